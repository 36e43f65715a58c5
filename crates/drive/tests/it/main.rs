//! All tests of this crate that use it from outside, as one program.

mod checked;
mod crash;
mod faulty;
mod kit;
mod model;
mod paced;
