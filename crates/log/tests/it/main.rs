//! All tests of this crate that use it from outside, as one program. They run in virtual time, and
//! a seed repeats each of them.

#[macro_use]
#[path = "../../../../tests/cases.rs"]
mod cases;

mod crash;
mod faults;
mod kit;
mod model_check;
#[cfg(debug_assertions)]
mod mutations;
mod rebuild;
mod scrub;
mod snapshots;
mod space;
