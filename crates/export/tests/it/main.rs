//! All tests of this crate that use it from outside, as one program.

mod idle;
mod kit;
mod late_writes;
mod members;
mod members_on_threads;
mod misbehaving;
mod on_threads;
mod programs;
mod protocol;
mod reopened;
mod shards;
mod shares;
mod tls;
mod vhost;

#[path = "../../../../tests/damage.rs"]
mod damage;
#[path = "../../../../tests/own_process.rs"]
mod own_process;
