//! Division of a member's space: two slots for the roots, then the log. Chosen when a log is
//! created, and recorded by its pool.
//!
//! Segments are as large as possible, up to 4 MiB of data, while there are enough of them to clean;
//! a log with very many gets larger ones, since the roots name each of them.

use stripewise_layout::Shape;

use crate::error::LogError;
use crate::options::{Limits, LogOptions};
use crate::shape::{LogSpace, Segments};

/// Smallest segment, bytes of data.
const LEAST_SEGMENT_BYTES: u64 = 64 << 10;
/// Usual segment, bytes of data.
const USUAL_SEGMENT_BYTES: u64 = 4 << 20;
/// Largest segment, bytes of data.
const MOST_SEGMENT_BYTES: u64 = 64 << 20;
/// Segments that a log has at least, if it is large enough for that.
const ENOUGH_SEGMENTS: u64 = 1024;
/// Segments for which the usual size is given up.
const MANY_SEGMENTS: u64 = 1 << 17;
/// Bytes of roots for snapshots and all else that is not of segments: a share of the member...
const MEMBER_BYTES_PER_ROOT_BYTE: u64 = 512;
/// ... and at least as many. ...
const LEAST_FIXED_ROOTS_BYTES: u64 = 32 << 10;
/// The most suffices for as many snapshots as there can be, whatever their names.
const MOST_FIXED_ROOTS_BYTES: u64 = 1 << 20;
/// Bytes of roots per segment, at most: its use, and whether it is recent.
const SEGMENT_ROOTS_BYTES: u64 = 40;
/// Bytes of roots that are neither of segments nor of snapshots, at most.
const OTHER_ROOTS_BYTES: u64 = 4 << 10;

/// Bytes for snapshots and heads in roots that have this much room.
pub(crate) fn head_room_bytes(room_bytes: u64, segments: u32) -> u64 {
    room_bytes.saturating_sub(OTHER_ROOTS_BYTES + u64::from(segments) * SEGMENT_ROOTS_BYTES)
}

/// Sizes of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSizes {
    /// Bytes of each of the two slots at the beginning of a member's space.
    pub slot_bytes: u64,
    /// Data of a segment, bytes.
    pub segment_bytes: u64,
}

impl LogSizes {
    /// Chooses the sizes for a layout on members of this many bytes.
    pub fn choose(shape: &Shape, member_bytes: u64) -> Self {
        let data_bytes =
            member_bytes / shape.units().max(1) as u64 * shape.width as u64 * shape.data_units() as u64;
        let mut segment_bytes = USUAL_SEGMENT_BYTES;
        while segment_bytes > LEAST_SEGMENT_BYTES && data_bytes / segment_bytes < ENOUGH_SEGMENTS {
            segment_bytes /= 2;
        }
        while segment_bytes < MOST_SEGMENT_BYTES && data_bytes / segment_bytes > MANY_SEGMENTS {
            segment_bytes *= 2;
        }
        let segments = data_bytes / segment_bytes;
        let fixed_bytes = (member_bytes / MEMBER_BYTES_PER_ROOT_BYTE)
            .clamp(LEAST_FIXED_ROOTS_BYTES, MOST_FIXED_ROOTS_BYTES);
        let slot_bytes = (fixed_bytes + segments * SEGMENT_ROOTS_BYTES).next_multiple_of(64 << 10);
        Self { slot_bytes, segment_bytes }
    }

    /// The space of the log behind the slots.
    pub fn space(&self, shape: Shape, member_bytes: u64) -> LogSpace {
        let start_bytes = 2 * self.slot_bytes;
        LogSpace { shape, start_bytes, member_bytes: member_bytes.saturating_sub(start_bytes) }
    }

    /// Data that clients may store at the same time, bytes.
    pub fn client_bytes(
        &self,
        shape: Shape,
        member_bytes: u64,
        options: &LogOptions,
    ) -> Result<u64, LogError> {
        let options = LogOptions { segment_bytes: self.segment_bytes, ..*options };
        let segments = Segments::new(&self.space(shape, member_bytes), self.segment_bytes)?;
        Ok(Limits::new(&options, &segments)?.client_blocks * crate::shape::BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::LayoutSpec;

    #[test]
    fn logs_of_any_size_have_roots_that_fit() {
        for (level, width) in [
            ("single", 1),
            ("raid0", 3),
            ("raid1", 2),
            ("raid10", 5),
            ("raid5", 4),
            ("raid6", 6),
            ("raid50", 6),
        ] {
            let shape = LayoutSpec::parse(level).unwrap().resolve(width).unwrap();
            for shift in 26..45 {
                let member_bytes = 1u64 << shift;
                let sizes = LogSizes::choose(&shape, member_bytes);
                let client = sizes.client_bytes(shape, member_bytes, &LogOptions::default());
                let segments = Segments::new(&sizes.space(shape, member_bytes), sizes.segment_bytes).unwrap();
                let raw = segments.geometry.capacity_bytes();
                let share = client.map_or(0.0, |client| client as f64 / raw as f64);
                let least = if shift < 30 { 0.4 } else { 0.79 };
                assert!(share > least, "{level} on 2^{shift}: {share}, {sizes:?}, {}", segments.count);
                let roots = u64::from(segments.count) * 28 + 4096;
                assert!(roots < sizes.slot_bytes, "{level} on 2^{shift}: {roots} {sizes:?}");
                assert!(2 * sizes.slot_bytes < member_bytes / 50 || shift < 30, "{level} on 2^{shift}");
                let heads = head_room_bytes(sizes.slot_bytes, segments.count);
                let least = if shift < 30 { 200 } else { 4096 };
                assert!(
                    heads / 200 > least || shift < 30 && heads > 16 << 10,
                    "{level} on 2^{shift}: {heads}"
                );
            }
        }
    }
}
