//! One area: its header pages, and a ring of pages after them.
//!
//! The header is kept in two pages written alternately, so that a torn write leaves the other. The
//! ring lists the batches that must not be overwritten, in ring order; the free space lies between
//! the head and the oldest of them.

use std::collections::VecDeque;
use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool};

use super::batch::PAGE_BYTES;
use crate::member::Member;

/// Pages before the ring.
pub(super) const HEADER_PAGES: u64 = 2;
/// Minimum size of an area.
pub(super) const MIN_AREA_BYTES: u64 = 256 << 10;
/// Pages reserved for marks and release notes, so that there is always room to record which batches
/// may be overwritten. Openings that are interrupted use them up; then the areas' headers record
/// it.
pub(super) const KEPT_PAGES: u64 = 4;
const MAGIC: [u8; 8] = *b"SWJAREA\0";
const VERSION: u32 = 1;
/// End of the checksum field; the field counts as zero in the checksum.
const CHECKSUM_END: usize = 72;

/// Space on a drive for the journal. `base_bytes` and `bytes` are multiples of 4096.
#[derive(Clone)]
pub struct Area {
    /// The drive's number in the pool.
    pub drive: u32,
    /// The drive itself.
    pub member: Rc<Member>,
    /// Offset of the space on the drive, bytes.
    pub base_bytes: u64,
    /// Length of the space, bytes.
    pub bytes: u64,
}

/// Contents of a header page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AreaHeader {
    pub epoch: u64,
    /// Number of this opening of the journal: no two openings use the same batch numbers.
    pub opening: u64,
    /// Batch number from which copies in this area belong to the journal; older ones are left over
    /// from an earlier use of the area.
    pub from_batch: u64,
    /// As in the heads of batches: every record of every batch below this number was released. 0 if
    /// not recorded.
    pub oldest_live: u64,
}

impl AreaHeader {
    pub(super) fn encode(&self, volume_id: u128, area: &Area, buffers: &BufferPool) -> Buffer {
        let page = buffers.allocate_zeroed(PAGE_BYTES as usize);
        page.with_mut(|bytes| {
            bytes[0..8].copy_from_slice(&MAGIC);
            bytes[8..24].copy_from_slice(&volume_id.to_le_bytes());
            bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
            bytes[32..40].copy_from_slice(&self.opening.to_le_bytes());
            bytes[40..48].copy_from_slice(&self.from_batch.to_le_bytes());
            bytes[48..56].copy_from_slice(&area.bytes.to_le_bytes());
            bytes[56..60].copy_from_slice(&area.drive.to_le_bytes());
            bytes[60..64].copy_from_slice(&VERSION.to_le_bytes());
            bytes[72..80].copy_from_slice(&self.oldest_live.to_le_bytes());
            let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
            bytes[64..68].copy_from_slice(&checksum.to_le_bytes());
        });
        page
    }

    /// Decodes a header page. `None` if it is not a header of this volume's journal in this area.
    pub(super) fn decode(bytes: &[u8], volume_id: u128, area: &Area) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if bytes.len() != PAGE_BYTES as usize || bytes[0..8] != MAGIC {
            return None;
        }
        let mut copy = [0; PAGE_BYTES as usize];
        copy.copy_from_slice(bytes);
        copy[64..CHECKSUM_END].fill(0);
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &copy) as u32;
        let ours = bytes[8..24] == volume_id.to_le_bytes()
            && bytes[48..56] == area.bytes.to_le_bytes()
            && bytes[56..60] == area.drive.to_le_bytes()
            && bytes[60..64] == VERSION.to_le_bytes()
            && bytes[64..68] == checksum.to_le_bytes();
        let header = Self { epoch: word(24), opening: word(32), from_batch: word(40), oldest_live: word(72) };
        // An opening that leaves no numbers for the next one is invalid.
        (ours && header.opening < super::MAX_OPENING).then_some(header)
    }
}

struct Entry {
    number: u64,
    start: u64,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests check that batches do not overlap"))]
    pages: u64,
}

/// The state of one area.
pub(super) struct Ring {
    /// Identifier while the journal is open; a drive that returns gets a new one.
    pub id: u64,
    pub area: Area,
    pub pages: u64,
    /// First page of the next batch; may be the ring's end.
    head: u64,
    /// Batches that must not be overwritten, in ring order.
    entries: VecDeque<Entry>,
    /// Pages reserved for appends.
    pub reserved: u64,
    pub in_flight: u32,
    /// The area failed, and the host is excluding its drive.
    pub failing: bool,
    /// Index of the current header page, and the batch number from which copies in this area count.
    pub header: (u64, u64),
}

impl Ring {
    pub(super) fn new(id: u64, area: Area) -> Self {
        let pages = area.bytes / PAGE_BYTES - HEADER_PAGES;
        Self {
            id,
            area,
            pages,
            head: 0,
            entries: VecDeque::new(),
            reserved: 0,
            in_flight: 0,
            failing: false,
            header: (0, 0),
        }
    }

    /// Restores the ring from a scan: `copies` are (number, start, pages) in any order, `head` is
    /// the end of the newest batch.
    pub(super) fn restore(&mut self, mut copies: Vec<(u64, u64, u64)>, head: u64) {
        copies.sort_unstable_by_key(|&(_, start, _)| start);
        let mut end = 0;
        // A payload may contain the image of a batch; a batch inside another one is not part of the
        // ring.
        copies.retain(|&(_, start, pages)| {
            let apart = start >= end;
            end = end.max(start + pages);
            apart
        });
        self.take_over(&copies, head.min(self.pages));
        let Some(&(_, first, _)) = copies.first() else { return };
        let nexts = copies.iter().map(|&(_, start, _)| start).skip(1).chain([self.pages]);
        let gaps = copies.iter().zip(nexts).map(|(&(_, start, pages), next)| {
            let end = start + pages;
            (next - end, end)
        });
        let (widest, at) = gaps.chain([(first, 0)]).max().expect("one at least");
        let (here, behind) = self.room();
        if here + behind < KEPT_PAGES || (widest > self.pages / 8 && here + behind < widest) {
            // A ring in use has no such gap elsewhere: the head came from the image of a batch in
            // unused space. Continue at the widest gap.
            self.take_over(&copies, at);
        }
    }

    fn take_over(&mut self, copies: &[(u64, u64, u64)], head: u64) {
        let inside = copies.iter().find(|&&(_, start, pages)| start < head && head < start + pages);
        self.head = inside.map_or(head, |&(_, start, pages)| start + pages);
        let first = copies.partition_point(|&(_, start, _)| start < self.head);
        let in_order = copies[first..].iter().chain(&copies[..first]);
        self.entries = in_order.map(|&(number, start, pages)| Entry { number, start, pages }).collect();
    }

    /// True if the ring holds this batch at this page.
    pub(super) fn holds(&self, number: u64, start: u64) -> bool {
        self.entries.iter().any(|entry| entry.number == number && entry.start == start)
    }

    /// Free pages at the head, and those at the ring's start if the free space wraps.
    fn room(&self) -> (u64, u64) {
        let Some(oldest) = self.entries.front() else { return (self.pages, 0) };
        if self.head > oldest.start {
            (self.pages - self.head, oldest.start)
        } else {
            (oldest.start - self.head, 0)
        }
    }

    /// Pages that batches of up to `longest` pages can rely on, whatever is lost by wrapping.
    pub(super) fn usable(&self, longest: u64, note_pages: u64) -> u64 {
        let (here, behind) = self.room();
        here.max((here + behind).saturating_sub(longest)).saturating_sub(KEPT_PAGES + note_pages)
    }

    /// Pages between the oldest batch and the head, including skipped ones.
    pub(super) fn used(&self) -> u64 {
        let (here, behind) = self.room();
        self.pages - here - behind
    }

    /// True if `pages` fit now, ignoring reservations.
    pub(super) fn has_room(&self, pages: u64) -> bool {
        let (here, behind) = self.room();
        here >= pages || behind >= pages
    }

    /// Allocates pages for a batch.
    pub(super) fn allocate(&mut self, number: u64, pages: u64) -> Option<u64> {
        if self.entries.is_empty() {
            self.head = 0;
        }
        let (here, behind) = self.room();
        let start = match (here >= pages, behind >= pages) {
            (true, _) => self.head,
            (false, true) => 0,
            (false, false) => return None,
        };
        self.head = start + pages;
        self.entries.push_back(Entry { number, start, pages });
        Some(start)
    }

    /// Number of the oldest batch in the ring.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.number)
    }

    /// Frees batches below `oldest_live`, once that number is durable.
    pub(super) fn reclaim(&mut self, oldest_live: u64) {
        while self.entries.front().is_some_and(|entry| entry.number < oldest_live) {
            self.entries.pop_front();
        }
    }

    /// Offset of a page of the ring on the drive.
    pub(super) fn offset_bytes(&self, page: u64) -> u64 {
        self.area.base_bytes + (HEADER_PAGES + page) * PAGE_BYTES
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        // Entries follow one another around the ring from the oldest to the head.
        let mut at = self.entries.front().map_or(0, |entry| entry.start);
        let mut wrapped = 0;
        for entry in &self.entries {
            if entry.start < at {
                wrapped += 1;
            }
            assert!(entry.start + entry.pages <= self.pages);
            at = entry.start + entry.pages;
        }
        assert!(wrapped <= 1, "the ring overlaps itself");
    }
}
