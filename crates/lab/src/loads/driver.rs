//! What drives a load besides the laboratory itself: other programs, from the same description of
//! the load.

pub mod fio;
