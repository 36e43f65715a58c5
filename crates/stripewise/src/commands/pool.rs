//! Commands on pools, a file for each; those on the drives of a pool are in `drives/`, those on its
//! jobs in `jobs/`.

pub(crate) mod advise;
pub(crate) mod create;
pub(crate) mod destroy;
pub(crate) mod drives;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod iostat;
pub(crate) mod jobs;
pub(crate) mod list;
pub(crate) mod rename;
pub(crate) mod set;
pub(crate) mod status;
