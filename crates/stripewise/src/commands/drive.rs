//! Commands on single drives, in a pool or not.

pub(crate) mod clear;
pub(crate) mod list;
pub(crate) mod locate;
pub(crate) mod make;
pub(crate) mod measure;
pub(crate) mod show;
