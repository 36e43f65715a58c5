//! On-drive format of the region map: 4 KiB pages, each in two slots used alternately, with a
//! sequence number and a checksum, so that a torn write leaves the other slot.
//!
//! A page: magic 8, volume id 16, page index 8, sequence 8, CRC-32C of the page with this field
//! zero 4, grain 4; then one bit per region (written), one bit per region (written while a column
//! was away), one bit per chunk (dirty), little endian, lowest bit first.
//!
//! This module knows the format and the durable version of each page. The bits belong to
//! [`Regions`](super::regions::Regions).

use std::cell::RefCell;
use std::collections::TryReserveError;
use std::ops::Range;

use stripewise_drive::{Buffer, Event};

use crate::map::reserve;
use crate::mutation::{self, Mutation};
use crate::tuning::MapGrain;

/// Size of a map page.
pub(crate) const PAGE_BYTES: usize = 4096;
const HEADER_BYTES: usize = 48;
/// Bytes of a page for one bit per region.
const BITS_BYTES: usize = (MapGrain::MOST_REGIONS_PER_PAGE / 8) as usize;
const MAGIC: [u8; 8] = *b"SWREGMAP";
/// No page has a higher sequence number: one that leaves none for the next is damage.
const MAX_SEQUENCE: u64 = 1 << 62;

/// Offset of each kind of bits in a page.
#[derive(Clone, Copy)]
pub(super) enum Bits {
    Written = HEADER_BYTES as isize,
    Behind = (HEADER_BYTES + BITS_BYTES) as isize,
    Dirty = (HEADER_BYTES + 2 * BITS_BYTES) as isize,
}

impl Bits {
    pub(super) fn set(self, page: &mut [u8], bit: usize) {
        page[self as usize + bit / 8] |= 1 << (bit % 8);
    }

    pub(super) fn is_set(self, page: &[u8], bit: usize) -> bool {
        page[self as usize + bit / 8] >> (bit % 8) & 1 == 1
    }
}

struct Page {
    sequence: u64,
    /// Number of changes of the page's bits in memory.
    version: u64,
    durable_version: u64,
    writing: bool,
}

/// A write of a page, in flight.
pub(crate) struct PageWrite {
    pub page: usize,
    pub(super) version: u64,
    pub offset_bytes: u64,
    pub buffer: Buffer,
}

pub(crate) struct MapPages {
    volume_id: u128,
    grain: MapGrain,
    /// Sequence number before the first of a new page.
    first_sequence: u64,
    pages: RefCell<Vec<Page>>,
    /// Notified when the write of a page ends.
    pub changed: Event,
}

impl MapPages {
    pub(super) fn new(volume_id: u128, grain: MapGrain, first_sequence: u64) -> Self {
        Self { volume_id, grain, first_sequence, pages: RefCell::default(), changed: Event::new() }
    }

    /// Number of pages for this many regions.
    pub(super) fn needed(regions: u64, grain: MapGrain) -> u64 {
        regions.div_ceil(grain.regions_per_page).max(1)
    }

    /// Allocates memory for this many regions.
    pub(super) fn make_room(&self, regions: u64) -> Result<(), TryReserveError> {
        reserve(&self.pages, Self::needed(regions, self.grain))
    }

    pub(super) fn resize(&self, regions: u64) {
        let sequence = self.first_sequence;
        let page = || Page { sequence, version: 1, durable_version: 0, writing: false };
        self.pages.borrow_mut().resize_with(Self::needed(regions, self.grain) as usize, page);
    }

    pub(crate) fn count(&self) -> usize {
        self.pages.borrow().len()
    }

    /// Page of a region.
    pub(crate) fn of(&self, region: u64) -> usize {
        (region / self.grain.regions_per_page) as usize
    }

    /// Regions of a page, in a map of `count` regions.
    pub(super) fn regions_of(&self, page: usize, count: u64) -> Range<u64> {
        let first = page as u64 * self.grain.regions_per_page;
        first..(first + self.grain.regions_per_page).min(count)
    }

    /// Marks the page's durable copy as outdated; returns the version that has to be made durable.
    pub(crate) fn change(&self, page: usize) -> u64 {
        let mut pages = self.pages.borrow_mut();
        pages[page].version += 1;
        pages[page].version
    }

    /// Pages whose durable copy is outdated.
    pub(crate) fn stale(&self) -> Vec<usize> {
        let pages = self.pages.borrow();
        (0..pages.len()).filter(|&index| pages[index].durable_version < pages[index].version).collect()
    }

    pub(crate) fn version(&self, page: usize) -> u64 {
        self.pages.borrow()[page].version
    }

    pub(crate) fn is_durable(&self, page: usize, version: u64) -> bool {
        self.pages.borrow()[page].durable_version >= version
    }

    /// Starts writing a page, with the bits that `fill` sets. `None` if it is being written
    /// already.
    pub(super) fn begin(
        &self,
        page: usize,
        allocate: impl FnOnce() -> Buffer,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<PageWrite> {
        let (sequence, version) = {
            let mut pages = self.pages.borrow_mut();
            let state = &mut pages[page];
            if state.writing {
                return None;
            }
            state.writing = true;
            state.sequence += 1;
            (state.sequence, state.version)
        };
        let buffer = allocate();
        buffer.with_mut(|bytes| {
            bytes[0..8].copy_from_slice(&MAGIC);
            bytes[8..24].copy_from_slice(&self.volume_id.to_le_bytes());
            bytes[24..32].copy_from_slice(&(page as u64).to_le_bytes());
            bytes[32..40].copy_from_slice(&sequence.to_le_bytes());
            bytes[44..48].copy_from_slice(&self.grain.code().to_le_bytes());
            fill(bytes);
            seal(bytes);
        });
        Some(PageWrite { page, version, offset_bytes: Self::slot_offset(page, sequence), buffer })
    }

    /// Sequence number of the page's write in flight, if there is one.
    pub(crate) fn being_written(&self, page: usize) -> Option<u64> {
        let pages = self.pages.borrow();
        pages.get(page).filter(|state| state.writing).map(|state| state.sequence)
    }

    /// Ends the write of a page; `durable` is true if the members have it.
    pub(super) fn end(&self, write: &PageWrite, durable: bool) {
        let mut pages = self.pages.borrow_mut();
        let state = &mut pages[write.page];
        state.writing = false;
        if durable {
            state.durable_version = write.version;
        } else {
            // Some places may have it and others not. The next write uses the same slot again: the
            // other slot holds the last page that is at all places, and a torn write must not
            // destroy it.
            state.sequence += 1;
        }
    }

    /// Offset in the map of a page with this sequence.
    pub(crate) fn slot_offset(page: usize, sequence: u64) -> u64 {
        (page as u64 * 2 + (sequence & 1)) * PAGE_BYTES as u64
    }

    /// Sequence number of a valid page of this volume, otherwise `None`.
    pub(crate) fn check(&self, page: usize, bytes: &[u8]) -> Option<u64> {
        let mut copy = bytes.to_vec();
        copy[40..44].fill(0);
        let fits = bytes[0..8] == MAGIC
            && bytes[8..24] == self.volume_id.to_le_bytes()
            && bytes[24..32] == (page as u64).to_le_bytes()
            && bytes[40..44] == checksum(&copy).to_le_bytes()
            && bytes[44..48] == self.grain.code().to_le_bytes();
        let sequence = u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
        let is_truncated = mutation::is_chosen(Mutation::PageSequenceTruncated);
        let known = if is_truncated { sequence & u64::from(u32::MAX) } else { sequence };
        (fits && sequence < MAX_SEQUENCE).then_some(known)
    }

    /// Records the version of a page that was read from a member.
    pub(super) fn note_loaded(&self, page: usize, sequence: u64) {
        self.pages.borrow_mut()[page] = Page { sequence, version: 1, durable_version: 1, writing: false };
    }
}

/// Checksum of a page whose checksum field is zero.
fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn seal(bytes: &mut [u8]) {
    bytes[40..44].fill(0);
    let checksum = checksum(bytes);
    bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
}

/// For fuzzers: bytes as page 1 of volume 0, with corrected magic, place and checksum.
pub(super) fn with_corrected_header(bytes: &[u8]) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    let length = bytes.len().min(PAGE_BYTES);
    page[..length].copy_from_slice(&bytes[..length]);
    page[0..8].copy_from_slice(&MAGIC);
    page[8..32].fill(0);
    page[24] = 1;
    page[44..48].fill(0);
    // Below MAX_SEQUENCE.
    page[39] &= 0x3f;
    seal(&mut page);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_without_a_successor_is_damage() {
        let pages = MapPages::new(0, MapGrain::default(), 0);
        for (sequence, is_read) in
            [(7, true), (MAX_SEQUENCE - 1, true), (MAX_SEQUENCE, false), (u64::MAX, false)]
        {
            let mut page = with_corrected_header(&[]);
            page[32..40].copy_from_slice(&sequence.to_le_bytes());
            seal(&mut page);
            assert_eq!(pages.check(1, &page), is_read.then_some(sequence));
        }
    }
}
