//! Drives that are files take space in their file system as they are written. Where that has none
//! left, writes fail though the pool has room: a look at the files tells so before a write has to
//! find out, and after the process that found out has ended.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use stripewise_runtime::free_space_bytes;

use crate::messages::report::{PoolReport, PoolState};

/// A file system with less room than this counts as full.
const LEAST_ROOM_BYTES: u64 = 256 << 10;
/// What `st_blocks` counts in.
const STAT_BLOCK_BYTES: u64 = 512;

/// Whether a file may want space that its file system does not have.
fn is_full_below(path: &Path) -> bool {
    let Ok(metadata) = path.metadata() else { return false };
    let may_want = metadata.is_file() && metadata.blocks() * STAT_BLOCK_BYTES < metadata.len();
    may_want && free_space_bytes(path).is_ok_and(|room| room < LEAST_ROOM_BYTES)
}

/// Says in a report of a pool that the file system under one of these drives is full, unless there
/// is worse to say.
pub(crate) fn note_full_below<'a>(report: &mut PoolReport, files: impl Iterator<Item = &'a Path>) {
    if report.state == PoolState::Failed {
        return;
    }
    let mut files = files;
    let Some(path) = files.find(|path| is_full_below(path)) else { return };
    report.state = PoolState::Degraded;
    report.condition = format!(
        "the file system under {} is full (ENOSPC): writes fail where nothing was written yet. Everything written before can be \
         read, and volumes can be deleted",
        path.display()
    );
    report.action = format!("free space there, or: stripewise volume delete {}/VOL --yes", report.name);
}
