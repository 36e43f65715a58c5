//! A sorted run: pages of entries in map segments, written once.
//!
//! The *fences* (first logical block and CRC-32C of each page) are in memory while the run is in
//! use: 12 bytes for some 170 entries, so that a look-up reads one page at most. On the drives
//! they follow the pages, 12 bytes each; the roots have the checksum of each page of fences.

use crate::shape::{BLOCK_BYTES, Segments};

/// Bytes of a stored fence.
const FENCE_BYTES: usize = 12;
/// Fences in a page of them.
pub(crate) const FENCES: usize = BLOCK_BYTES as usize / FENCE_BYTES;

/// Pointer to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    /// First logical block of the page.
    pub(crate) first: u64,
    pub(crate) crc: u32,
}

/// Parts of a run that the roots have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunRoot {
    /// Number of the run; never used twice.
    pub(crate) id: u64,
    pub(crate) entries: u64,
    /// Pages of entries.
    pub(crate) pages: u64,
    /// Entries of blocks that only snapshots see, as far as this run shows.
    pub(crate) kept: u64,
    /// CRC-32C of each page of fences.
    pub(crate) fence_crcs: Vec<u32>,
    /// Segments with their sequences, in the order of the pages.
    pub(crate) segments: Vec<(u64, u32)>,
}

impl RunRoot {
    /// Place of a page; pages of fences follow those of entries.
    pub(crate) fn place(&self, segments: &Segments, page: u64) -> u64 {
        let (_, segment) = self.segments[(page / segments.payload) as usize];
        segments.place(segment, page % segments.payload)
    }
}

/// A run in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    pub(crate) root: RunRoot,
    pub(crate) fences: Vec<Fence>,
}

impl Run {
    /// The first page that may have versions of a logical block, if there is one. Versions of a
    /// range are on one page, unless they fill more than one; the range begins a page then.
    pub(crate) fn page_of(&self, lba: u64) -> Option<u64> {
        let first = self.fences.partition_point(|fence| fence.first < lba);
        let begins_page = self.fences.get(first).is_some_and(|fence| fence.first == lba);
        let page = if begins_page { Some(first) } else { first.checked_sub(1) }?;
        // A range that fills pages and begins before the block: its first page.
        let start = self.fences[page].first;
        Some(self.fences.partition_point(|fence| fence.first < start) as u64)
    }

    /// True if a range of this start goes on, on a page.
    pub(crate) fn goes_on(&self, page: u64, start: u64) -> bool {
        self.fences.get(page as usize).is_some_and(|fence| fence.first == start)
    }
}

/// Writes one page of fences.
pub(crate) fn encode_fences(fences: &[Fence], to: &mut [u8]) {
    to.fill(0);
    for (fence, to) in fences.iter().zip(to.chunks_exact_mut(FENCE_BYTES)) {
        to[..8].copy_from_slice(&fence.first.to_le_bytes());
        to[8..].copy_from_slice(&fence.crc.to_le_bytes());
    }
}

/// Reads `count` fences of a page.
pub(crate) fn decode_fences(from: &[u8], count: usize) -> impl Iterator<Item = Fence> + '_ {
    from.chunks_exact(FENCE_BYTES).take(count).map(|bytes| Fence {
        first: u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")),
        crc: u32::from_le_bytes(bytes[8..].try_into().expect("4 bytes")),
    })
}
