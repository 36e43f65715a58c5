//! The record of a pool that every drive carries: what it says, its bytes, and how it is changed so
//! that a cut at any instant leaves the state before or after (bytes: `docs/internals/format.md`).

pub(crate) mod assemble;
pub(crate) mod care;
pub(crate) mod changes;
pub(crate) mod check;
pub(crate) mod commit;
pub(crate) mod commits;
pub(crate) mod drive_record;
pub(crate) mod entries;
pub(crate) mod events;
pub(crate) mod format;
pub(crate) mod host_use;
pub(crate) mod ids;
pub(crate) mod row_runs;
pub(crate) mod sections;
pub(crate) mod slots;
pub(in crate::pool) mod taken_back;
pub(crate) mod volume_record;
pub(crate) mod writer;
