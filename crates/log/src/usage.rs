//! Use of each segment: free, planned, data, map; live blocks, age and temperature of data.
//!
//! The number of live blocks is an upper bound: a block that was overwritten is known to be dead
//! once its entry was met, in the table in memory at once, in a run when it is merged.
//!
//! A segment that is not needed any more is *retired* at a commit and free when that commit is
//! durable and every read that began before has ended.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::map::entry::Block;
use crate::mutation::{Mutation, is_chosen};

/// Contents of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing that is needed.
    Free,
    /// Nothing yet; it is in the plan of segments to be written.
    Planned,
    /// Data of clients.
    Data,
    /// Pages of a run in use, or of one that is being written.
    Map,
    /// Pages of a run that was replaced.
    OldMap,
    /// Nothing that is needed once the commit that is running is durable.
    Retired,
}

/// One segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) content: Content,
    pub(crate) sequence: u64,
    /// Upper bound of the live blocks.
    pub(crate) live: u32,
    /// Number of times that its data survived cleaning, at most 2.
    pub(crate) survived: u8,
    /// True once the cleaner has moved everything that was live.
    pub(crate) is_cleaned: bool,
    /// True while its summary has holes that no run has yet.
    pub(crate) has_holes: bool,
    /// True if the cleaner could not read it.
    pub(crate) is_damaged: bool,
}

const UNUSED: Use = Use {
    content: Content::Free,
    sequence: 0,
    live: 0,
    survived: 0,
    is_cleaned: false,
    has_holes: false,
    is_damaged: false,
};

/// The table of segments.
pub(crate) struct Usage {
    segments: Vec<Use>,
    free: BTreeSet<u32>,
    /// Retired segments that reads may still use, with the ticket that those reads precede.
    waiting: Vec<(u64, u32)>,
    live: u64,
    /// Place to look for the next free segment, so that writes proceed in one direction.
    cursor: u32,
}

impl Usage {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            segments: vec![UNUSED; count as usize],
            free: (0..count).collect(),
            waiting: Vec::new(),
            live: 0,
            cursor: 0,
        }
    }

    pub(crate) fn of(&self, segment: u32) -> &Use {
        &self.segments[segment as usize]
    }

    /// All segments in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Use)> {
        self.segments.iter().enumerate().map(|(segment, used)| (segment as u32, used))
    }

    /// Number of segments of a range that hold data or pages of the map.
    pub(crate) fn in_use_in(&self, segments: Range<u32>) -> u32 {
        let is_in_use = |used: &&Use| matches!(used.content, Content::Data | Content::Map);
        let range = segments.start as usize..segments.end as usize;
        self.segments[range].iter().filter(is_in_use).count() as u32
    }

    /// Upper bound of the live blocks of data.
    pub(crate) fn live(&self) -> u64 {
        self.live
    }

    /// Segments that can be planned at once.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Segments that are free as soon as reads have ended.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the next free segment for the plan.
    pub(crate) fn plan(&mut self) -> Option<u32> {
        let next = self.free.range(self.cursor..).next().or_else(|| self.free.first()).copied()?;
        self.free.remove(&next);
        self.cursor = next + 1;
        self.segments[next as usize] = Use { content: Content::Planned, ..UNUSED };
        Some(next)
    }

    /// Records a segment's contents, in place of what it was.
    pub(crate) fn set(&mut self, segment: u32, used: Use) {
        let old = std::mem::replace(&mut self.segments[segment as usize], used);
        self.free.remove(&segment);
        self.live = self.live - u64::from(old.live) + u64::from(used.live);
    }

    /// Records a segment that was just sealed.
    pub(crate) fn sealed(&mut self, segment: u32, content: Content, sequence: u64) -> &mut Use {
        self.set(segment, Use { content, sequence, ..UNUSED });
        &mut self.segments[segment as usize]
    }

    /// Counts live blocks of a segment.
    pub(crate) fn add_live(&mut self, segment: u32, blocks: u32) {
        self.segments[segment as usize].live += blocks;
        self.live += u64::from(blocks);
    }

    /// Notes that a block is dead. An entry of an earlier use of its segment changes nothing.
    pub(crate) fn dead(&mut self, segment: u32, block: &Block) {
        let used = &mut self.segments[segment as usize];
        if used.content == Content::Data && used.sequence as u32 == block.use_number && used.live > 0 {
            used.live -= 1;
            self.live -= 1;
        }
    }

    /// True if a segment is still in the use of this sequence.
    pub(crate) fn is_in_use(&self, segment: u32, sequence: u64) -> bool {
        let used = self.of(segment);
        used.content == Content::Data && used.sequence == sequence
    }

    /// Marks a use of a segment from which the cleaner has moved everything. If the last block
    /// died on the way, the segment may be in another use already.
    pub(crate) fn cleaned(&mut self, segment: u32, sequence: u64) {
        if self.is_in_use(segment, sequence) {
            self.segments[segment as usize].is_cleaned = true;
        }
    }

    /// Marks a use of a segment that cannot be read.
    pub(crate) fn damaged(&mut self, segment: u32, sequence: u64) {
        if self.is_in_use(segment, sequence) {
            self.segments[segment as usize].is_damaged = true;
        }
    }

    /// Notes that the holes of segments up to this sequence are in a run.
    pub(crate) fn holes_spilled(&mut self, through: u64) {
        for used in self.segments.iter_mut().filter(|used| used.sequence <= through) {
            used.has_holes = false;
        }
    }

    /// Marks the segments of a run that was replaced.
    pub(crate) fn run_replaced(&mut self, segments: &[(u64, u32)]) {
        for &(_, segment) in segments {
            self.segments[segment as usize].content = Content::OldMap;
        }
    }

    /// Number of segments that only wait for their holes to be in a run.
    pub(crate) fn held_by_holes(&self) -> usize {
        let held = |used: &&Use| {
            used.content == Content::Data && used.has_holes && (used.live == 0 || used.is_cleaned)
        };
        self.segments.iter().filter(held).count()
    }

    /// Segments that nothing needs once the state of this instant is durable.
    pub(crate) fn retirable(&self, is_held: impl Fn(u32) -> bool) -> impl Iterator<Item = u32> {
        self.iter().filter_map(move |(segment, used)| {
            let is_over = match used.content {
                Content::Data => (used.live == 0 || used.is_cleaned) && !used.has_holes,
                Content::OldMap => true,
                _ => false,
            };
            (is_over && !is_held(segment)).then_some(segment)
        })
    }

    /// True if segments were cleaned that a commit would free, but for survivors in memory.
    pub(crate) fn has_cleaned(&self) -> bool {
        self.segments.iter().any(|used| used.content == Content::Data && used.is_cleaned && !used.has_holes)
    }

    /// Retires the segments that nothing needs once the state of this instant is durable.
    /// `is_held` excludes those from which blocks are still being moved, or that are being
    /// written.
    pub(crate) fn retire(&mut self, is_held: impl Fn(u32) -> bool) -> Vec<u32> {
        let retired: Vec<u32> = self.retirable(is_held).collect();
        for &segment in &retired {
            let used = &mut self.segments[segment as usize];
            self.live -= u64::from(used.live);
            *used = Use { content: Content::Retired, ..UNUSED };
        }
        if is_chosen(Mutation::ReuseBeforeRoots) {
            self.release(&retired, 0);
            self.settle(u64::MAX);
        }
        retired
    }

    /// Frees retired segments after reads that began before `ticket`.
    pub(crate) fn release(&mut self, retired: &[u32], ticket: u64) {
        let still = retired.iter().filter(|&&one| self.segments[one as usize].content == Content::Retired);
        self.waiting.extend(still.map(|&segment| (ticket, segment)));
    }

    /// Frees the segments for which no read is left; `oldest` is the oldest read's ticket.
    pub(crate) fn settle(&mut self, oldest: u64) {
        let Self { waiting, free, segments, .. } = self;
        waiting.retain(|&(ticket, segment)| {
            if ticket > oldest {
                return true;
            }
            segments[segment as usize].content = Content::Free;
            free.insert(segment);
            false
        });
    }
}
