//! Addresses of a log: segments over the geometry of a layout, and the staging area before them.
//!
//! The space on each member is the staging area, then the segments. A *place* is a block's number
//! in the geometry's own address space, so that a segment is a range of places and a whole number
//! of stripes. Its last places hold the summary, the others (the payload) hold data.
//!
//! Faults expected: a space too small for a segment, or an impossible layout.

use stripewise_layout::{Geometry, Level, Shape};

use crate::error::LogError;
use crate::summary::{ENTRY_BYTES, HEAD_BYTES};

/// Unit of client requests, of checksums and of the map, bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// Holes that the summary of a segment has room for, at least.
const FEWEST_HOLES: usize = 16;

/// The space of a log: the same range on every member.
#[derive(Clone, Copy, Debug)]
pub struct LogSpace {
    /// The layout.
    pub shape: Shape,
    /// Start on every member, bytes.
    pub start_bytes: u64,
    /// Length on every member, bytes.
    pub member_bytes: u64,
}

/// The address map of a log.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    pub(crate) geometry: Geometry,
    /// Start of the staging area on each member, bytes.
    pub(crate) staging_start: u64,
    /// Length of the staging area, bytes.
    pub(crate) staging_bytes: u64,
    /// Start of the geometry's space on each member, bytes.
    pub(crate) base_bytes: u64,
    pub(crate) stripes: u64,
    pub(crate) count: u32,
    /// Blocks of a segment, summary included.
    pub(crate) blocks: u64,
    /// Blocks of data in a segment.
    pub(crate) payload: u64,
    /// Holes that a summary has room for.
    pub(crate) max_holes: usize,
}

impl Segments {
    /// Divides a space into segments of about `segment_bytes` of data.
    pub(crate) fn new(space: &LogSpace, segment_bytes: u64) -> Result<Self, LogError> {
        space.shape.check()?;
        let LogSpace { shape, start_bytes, member_bytes } = *space;
        let stripe_bytes = shape.interleave_bytes * shape.data_units() as u64;
        // Two rows of strips: a whole number of stripes in every layout, the same on each member.
        let step = match shape.level {
            Level::Single | Level::Raid0 => 2 * shape.width as u64,
            Level::Raid10 => shape.width as u64,
            _ => 2 * shape.groups as u64,
        };
        let stripes = (segment_bytes / stripe_bytes).max(1).next_multiple_of(step);
        let blocks = stripes * stripe_bytes / BLOCK_BYTES;
        let (payload, max_holes) = divide(blocks);
        let staging_bytes = (2 * blocks + 8) * BLOCK_BYTES;
        let rest = member_bytes.saturating_sub(staging_bytes);
        let geometry = Geometry::new(shape, rest)?;
        let count = u32::try_from(geometry.stripes() / stripes).unwrap_or(u32::MAX);
        Ok(Self {
            geometry,
            staging_start: start_bytes,
            staging_bytes,
            base_bytes: start_bytes + staging_bytes,
            stripes,
            count,
            blocks,
            payload,
            max_holes,
        })
    }

    /// Blocks of a summary.
    pub(crate) fn summary_blocks(&self) -> u64 {
        self.blocks - self.payload
    }

    /// Bytes of a segment's data, summary included.
    pub(crate) fn segment_bytes(&self) -> usize {
        (self.blocks * BLOCK_BYTES) as usize
    }

    /// Place of a block of a segment.
    pub(crate) fn place(&self, segment: u32, slot: u64) -> u64 {
        u64::from(segment) * self.blocks + slot
    }

    /// Segment of a place.
    pub(crate) fn segment_of(&self, place: u64) -> u32 {
        (place / self.blocks) as u32
    }

    /// Block number within its segment.
    pub(crate) fn slot_of(&self, place: u64) -> u64 {
        place % self.blocks
    }
}

/// Divides a segment's blocks between payload and the smallest summary that describes it; also the
/// number of holes that the summary then has room for.
fn divide(blocks: u64) -> (u64, usize) {
    (1..blocks)
        .find_map(|summary| {
            let payload = blocks - summary;
            let used = HEAD_BYTES + payload as usize * ENTRY_BYTES;
            let left = (summary * BLOCK_BYTES) as usize;
            let holes = left.checked_sub(used)? / ENTRY_BYTES;
            (holes >= FEWEST_HOLES).then_some((payload, holes))
        })
        .expect("a segment of two blocks or more has room for a summary")
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::LayoutSpec;

    #[test]
    fn places_of_segments_do_not_overlap() {
        for (level, width) in
            [("raid0", 3), ("raid1", 2), ("raid10", 5), ("raid5", 4), ("raid6", 6), ("raid50", 6)]
        {
            let shape = LayoutSpec::parse(level).unwrap().resolve(width).unwrap();
            let space = LogSpace { shape, start_bytes: 0, member_bytes: 64 << 20 };
            let segments = Segments::new(&space, 1 << 20).unwrap();
            assert!(segments.count > 40, "{level}: {segments:?}");
            assert!(segments.summary_blocks() < segments.payload / 20, "{level}: {segments:?}");
            let last = segments.place(segments.count - 1, segments.blocks - 1);
            assert!(last * BLOCK_BYTES < segments.geometry.capacity_bytes(), "{level}");
            assert_eq!(
                (segments.segment_of(last), segments.slot_of(last)),
                (segments.count - 1, segments.blocks - 1)
            );
        }
    }
}
