//! Models of drives, controllers and systems: what an array will deliver, and how likely it is to
//! lose data, before it is built. Parameters are data (`catalogue/*.toml`), each with its unit and
//! its source.

#![warn(unreachable_pub)]

pub mod advise;
pub mod catalogue;
pub mod hdd;
pub mod measured;
pub mod modelled;
pub mod names;
pub mod predict;
pub mod reliability;
pub mod replay;
pub mod ssd;
pub mod studies;
pub mod sweep;
pub mod system;
pub mod validate;
