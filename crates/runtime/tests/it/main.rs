//! All tests of this crate that use it from outside, as one program.

mod block_devices;
mod cut_drives;
mod kit;
mod links;
mod messages;
mod opening;
mod real_time;
mod shared;
mod sockets;
mod transfers;
mod virtual_time;
mod visits;
