//! All tests of this crate that use it from outside, as one program.

#[macro_use]
#[path = "../../../../tests/cases.rs"]
mod cases;

mod crash;
mod io;
mod jobs;
mod kit;
