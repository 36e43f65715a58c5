//! All tests of this crate that use it from outside, as one program.

#[macro_use]
#[path = "../../../../tests/cases.rs"]
mod cases;

mod actions;
mod bad_input;
mod clones;
mod console;
mod contract;
mod convert;
mod daemon;
mod destroyed;
mod documents;
mod drive_faults;
mod drive_measure;
mod evaluate;
mod failures;
mod foreign_paths;
mod full_below;
mod hardware;
mod hostile;
mod identity;
mod kept_mounts;
mod kit;
mod lab;
mod lab_failure;
mod lab_import;
mod licences;
mod limits;
mod listeners;
mod lists;
mod logs;
mod members;
mod memory;
mod model;
mod mount;
mod network_members;
mod openapi;
mod packaging;
mod predictions;
mod processes;
mod queue;
mod reliability;
mod reopened;
mod room;
mod scrubs;
mod serve;
mod shares;
mod silent_paths;
mod slices;
mod snapshot_schedules;
mod snapshot_streams;
mod snapshots;
mod stacked_pools;
mod state;
mod streams;
mod taken;
mod tiers;
mod torture;
mod unit;
mod vhost;

#[path = "../../../export/tests/it/kit/client.rs"]
#[allow(dead_code, reason = "the server's own tests say more")]
mod nbd_client;
#[path = "../../../../tests/own_process.rs"]
mod own_process;
