//! Shared parts of the tests: pools on drives in memory, and the stored images.

#[allow(dead_code)]
#[path = "../../../../array/tests/it/kit/forgetful.rs"]
pub mod forgetful;
pub mod images;
pub mod pool;
#[path = "../../../../../tests/seeds.rs"]
pub mod seeds;
pub mod slices;
