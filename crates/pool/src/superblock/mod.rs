//! Storage of the record on drives: its bytes (`docs/internals/format.md`), the commits that change
//! it so that a cut at any instant leaves the state before or after, and the choice of the drives
//! that count when a pool is opened.
//!
//! | files | what is there |
//! |---|---|
//! | `sections.rs`, `changes.rs`, `row_runs.rs`, `block_bytes.rs` | the record as bytes |
//! | `entries.rs`, `slots.rs` | where these lie on a drive, and reading them |
//! | `room.rs`, `losses.rs` | how much of that there may be; which lost blocks are recorded |
//! | `writer.rs`, `commits.rs`, `commit.rs` | writing them to all drives, so that they count |
//! | `sessions.rs` | which opening of the pool has its drives |
//! | `assemble.rs` | what counts of what is on the drives |

pub(crate) mod assemble;
pub(crate) mod block_bytes;
pub(crate) mod changes;
pub(crate) mod commit;
pub(crate) mod commits;
pub(crate) mod entries;
pub(crate) mod losses;
pub(crate) mod released;
pub(crate) mod room;
pub(crate) mod row_runs;
pub(crate) mod sections;
pub(crate) mod sessions;
pub(crate) mod slots;
pub(crate) mod writer;
