//! All tests of this crate that use it from outside, as one program.

mod addresses;
mod cost_model;
mod kit;
mod plans;
mod survival;
mod wide;
mod wishes;
