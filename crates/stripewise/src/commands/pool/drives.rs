//! Commands on the drives of a pool.

pub(crate) mod add;
pub(crate) mod clear;
pub(crate) mod grow;
pub(crate) mod offline;
pub(crate) mod online;
pub(crate) mod remove;
pub(crate) mod replace;
pub(crate) mod retire;
