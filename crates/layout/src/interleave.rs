//! The interleave of a new volume that leaves it open: by its level, and by what a position costs
//! its drives. Measured (`docs/performance.md`), not guessed.

use crate::level::Level;
use crate::limits::DEFAULT_INTERLEAVE_BYTES;

/// A position is dear where a drive transfers this much in the time of one, or more.
const DEAR_POSITION_BYTES: u64 = 128 << 10;
/// Strips on such drives. A request that touches two drives costs two positions, so longer strips
/// pay, until one request no longer reaches several drives.
const INTERLEAVE_ON_DISKS_BYTES: u64 = 256 << 10;

/// What decides the interleave of a new volume that leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterleaveReason {
    /// Drives on which a position costs more time than a strip of the usual length.
    Disks,
    /// Nothing: it is the usual one.
    Usual,
}

/// The interleave of a volume of this level, and why, where the drive whose positions are dearest
/// transfers `position_bytes` in the time of one.
pub fn default_interleave(level: Level, position_bytes: u64) -> (u64, InterleaveReason) {
    match level {
        // Strips of one drive, or of copies of it, make no difference.
        Level::Single | Level::Raid1 => (DEFAULT_INTERLEAVE_BYTES, InterleaveReason::Usual),
        _ if position_bytes < DEAR_POSITION_BYTES => (DEFAULT_INTERLEAVE_BYTES, InterleaveReason::Usual),
        _ => (INTERLEAVE_ON_DISKS_BYTES, InterleaveReason::Disks),
    }
}
