//! Results as plain data: of a run, of an evaluation, kept in the store, imported from other tools.

pub mod dates;
pub mod import;
pub mod paired;
pub mod record;
pub mod results;
pub mod store;
