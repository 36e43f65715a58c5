//! Drives of pools: they come, go, are looked at.

pub mod add;
pub mod clear;
pub mod erase;
pub mod grow;
pub mod list;
pub mod locate;
pub mod offline;
pub mod online;
pub mod remove;
pub mod replace;
pub mod retire;
pub mod show;
pub(crate) mod sizes;
