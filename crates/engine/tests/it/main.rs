//! All tests of this crate that use it from outside, as one program.

mod crash;
mod format;
mod imports;
mod io;
mod jobs;
mod kit;
mod membership;
