//! Background work on an array, region by region and beside clients: filling columns, checking
//! everything, migrating columns to other slabs. The pool decides what is due (`pool/jobs/`).

pub(crate) mod migration;
pub(crate) mod rebuild;
pub(crate) mod scrub;
