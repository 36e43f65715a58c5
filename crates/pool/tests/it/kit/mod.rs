//! Shared parts of the tests: arrays and pools on drives in memory, and the stored images.

pub mod array;
pub mod cut_drives;
pub mod images;
pub mod pool;
#[path = "../../../../../tests/seeds.rs"]
pub mod seeds;
