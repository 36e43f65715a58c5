//! All tests of this crate that use it from outside, as one program.

mod fio;
mod imports;
mod interrupt;
mod judges;
mod real_drives;

#[path = "../../../../tests/own_process.rs"]
mod own_process;
