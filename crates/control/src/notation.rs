//! Names, sizes and moments as people write and read them.

pub mod names;
pub mod size;
pub mod times;
