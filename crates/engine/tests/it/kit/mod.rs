//! What the tests share: arrays and pools on drives in memory, and the images that are kept.

pub mod array;
pub mod cut_drives;
pub mod images;
pub mod pool;
#[path = "../../../../../tests/seeds.rs"]
pub mod seeds;
