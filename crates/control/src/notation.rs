//! Names, sizes and moments as people write and read them.

pub mod file_system;
pub mod json;
pub mod names;
pub mod size;
pub mod times;

pub use stripewise_export::plain;
