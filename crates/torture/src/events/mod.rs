//! What happens to a pool while clients use it, never more than what is promised to be survived.

mod actions;
mod faults;
mod losses;
mod moving;
mod victims;
mod volumes;
