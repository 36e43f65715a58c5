//! Detection of full file systems below drives that are sparse files. Writes to such a drive fail
//! even if the pool has free space. Checking the files reports this before a write fails, and after
//! the process whose write failed has exited.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use stripewise_runtime::free_space_bytes;

use crate::messages::report::{PoolReport, PoolState};

/// Free space below which a file system counts as full.
const LEAST_ROOM_BYTES: u64 = 256 << 10;
/// Unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// True if the file is sparse and its file system is full. Blocks the thread.
pub(crate) fn is_full_below(path: &Path) -> bool {
    let Ok(metadata) = path.metadata() else { return false };
    let may_want = metadata.is_file() && metadata.blocks() * STAT_BLOCK_BYTES < metadata.len();
    may_want && free_space_bytes(path).is_ok_and(|room| room < LEAST_ROOM_BYTES)
}

/// Adds to a report that the file systems of these files are full, unless the pool has failed.
pub(crate) fn note_full_below<'a>(report: &mut PoolReport, mut full: impl Iterator<Item = &'a Path>) {
    if report.state == PoolState::Failed {
        return;
    }
    let Some(path) = full.next() else { return };
    report.state = PoolState::Degraded;
    report.condition = format!(
        "the file system below {} is full (ENOSPC): writes to unallocated space fail. Existing data remains readable, and \
         volumes can be deleted",
        path.display()
    );
    report.action = format!("free space there, or: stripewise volume delete {}/VOL --yes", report.name);
}
