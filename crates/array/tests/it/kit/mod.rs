//! Shared parts of the tests: arrays on drives in memory.

pub mod array;
pub mod cut_drives;
pub mod forgetful;
pub mod linear;
#[path = "../../../../../tests/seeds.rs"]
pub mod seeds;
