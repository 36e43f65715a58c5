//! All tests of this crate that use it from outside, as one program.

mod mutations;
mod regressions;
mod torture;
