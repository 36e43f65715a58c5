//! Events that happen to a pool under load, never more than the guarantees cover.

mod actions;
mod connections;
mod faults;
mod losses;
mod moving;
mod victims;
mod volumes;
