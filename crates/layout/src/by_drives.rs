//! Defaults of a new volume by its level and the seek cost of its drives: the interleave, and the
//! number of rows for which parity stays on its members. Measured (`docs/performance.md`), not
//! guessed.

use crate::level::Level;
use crate::limits::DEFAULT_INTERLEAVE_BYTES;
use crate::spec::LayoutSpec;

/// A drive is seek-bound if it transfers at least this much in the time of one seek.
const DEAR_POSITION_BYTES: u64 = 128 << 10;
/// Interleave on seek-bound drives. A request that touches two drives costs two seeks, so longer
/// strips pay, until one request no longer reaches several drives.
const INTERLEAVE_ON_DISKS_BYTES: u64 = 256 << 10;
/// Bytes for which parity stays on a member of seek-bound drives. A sequential reader with many
/// requests skips them in one step; one with a single request finds them in the drive's read-ahead.
/// With 4 MiB the first reads 4 to 25 % more on modelled disks of 4 and 8 TB, the second a quarter
/// less.
const ROTATION_ON_DISKS_BYTES: u64 = 1 << 20;

/// Reason for the default interleave of a new volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterleaveReason {
    /// Seek-bound drives: a seek takes longer than transferring a strip of the default length.
    Disks,
    /// No special reason: the default.
    Usual,
}

/// Returns the default interleave of a volume of this level, and the reason, where the most
/// seek-bound drive transfers `position_bytes` in the time of one seek.
fn default_interleave(level: Level, position_bytes: u64) -> (u64, InterleaveReason) {
    match level {
        // Interleave does not matter on one drive, or on copies of it.
        Level::Single | Level::Raid1 => (DEFAULT_INTERLEAVE_BYTES, InterleaveReason::Usual),
        _ if position_bytes < DEAR_POSITION_BYTES => (DEFAULT_INTERLEAVE_BYTES, InterleaveReason::Usual),
        _ => (INTERLEAVE_ON_DISKS_BYTES, InterleaveReason::Disks),
    }
}

impl LayoutSpec {
    /// Returns the layout with interleave and rotation filled in where they are left open, for
    /// drives of which the most seek-bound transfers `position_bytes` in the time of one seek; and
    /// the reason for the interleave, `None` where it was given.
    pub fn on_drives(self, position_bytes: u64) -> (Self, Option<InterleaveReason>) {
        let (by_drives, reason) = default_interleave(self.level, position_bytes);
        let interleave_bytes = self.interleave_bytes.unwrap_or(by_drives);
        let stays = self.level.rotates_parity() && position_bytes >= DEAR_POSITION_BYTES;
        let rows = if stays { (ROTATION_ON_DISKS_BYTES / interleave_bytes.max(1)).max(1) } else { 1 };
        let filled = Self {
            interleave_bytes: Some(interleave_bytes),
            rotation_rows: Some(self.rotation_rows.unwrap_or(rows as u32)),
            ..self
        };
        (filled, self.interleave_bytes.is_none().then_some(reason))
    }
}
