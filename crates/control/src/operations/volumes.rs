//! Volumes: made, shown, changed, erased.

pub mod convert;
pub mod create;
pub mod delete;
pub mod list;
pub mod pin;
pub mod resize;
pub mod set;
pub mod show;
