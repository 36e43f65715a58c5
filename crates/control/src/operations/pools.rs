//! Pools: made, found, shown, changed, let go.

pub mod create;
pub mod destroy;
pub mod events;
pub mod export;
pub mod get;
pub mod import;
pub mod list;
pub mod rename;
pub mod set;
pub mod status;
