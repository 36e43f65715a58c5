//! Names, sizes and moments as people write and read them.

pub mod json;
pub mod names;
pub mod plain;
pub mod size;
pub mod times;
