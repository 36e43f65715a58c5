//! One checksum page in memory.
//!
//! Checksums are a flat array, since every block read looks one up. Sequences are needed only to
//! write a page or to recover from a crash, and blocks written together share one: they are kept as
//! runs while the runs are few, which halves the size of a page filled by large writes.

use std::cell::{Cell, RefCell};

use super::page::{self, Image};
use super::{BLOCKS_PER_PAGE, PageId};

/// Maximum runs; more of them would take as much memory as a flat array or more.
const MAX_RUNS: usize = 64;

/// Recorded checksum of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// CRC-32C of the block XOR the identity word of its place.
    pub sum: u32,
    /// Sequence of the write, never 0.
    pub sequence: u32,
}

enum Sequences {
    /// First block and sequence of each run, in order, the first at block 0.
    Runs(Vec<(u8, u32)>),
    Flat(Box<[u32; BLOCKS_PER_PAGE]>),
}

impl Sequences {
    fn get(&self, block: usize) -> u32 {
        match self {
            Self::Flat(all) => all[block],
            Self::Runs(runs) => runs[runs.partition_point(|&(first, _)| usize::from(first) <= block) - 1].1,
        }
    }

    fn set(&mut self, blocks: std::ops::Range<usize>, sequence: u32) {
        match self {
            Self::Flat(all) => all[blocks].fill(sequence),
            Self::Runs(runs) => {
                let behind = (blocks.end < BLOCKS_PER_PAGE).then(|| {
                    let at = runs.partition_point(|&(first, _)| usize::from(first) <= blocks.end);
                    (blocks.end as u8, runs[at - 1].1)
                });
                let from = runs.partition_point(|&(first, _)| usize::from(first) < blocks.start);
                let to = runs.partition_point(|&(first, _)| usize::from(first) <= blocks.end);
                let begin =
                    (from == 0 || runs[from - 1].1 != sequence).then_some((blocks.start as u8, sequence));
                let behind = behind.filter(|&(_, next)| next != sequence);
                runs.splice(from..to, begin.into_iter().chain(behind));
                if runs.len() > MAX_RUNS {
                    self.flatten();
                }
            }
        }
    }

    fn flatten(&mut self) {
        let mut all = Box::new([0; BLOCKS_PER_PAGE]);
        for (block, sequence) in all.iter_mut().enumerate() {
            *sequence = self.get(block);
        }
        *self = Self::Flat(all);
    }

    fn of(image: &Image) -> Self {
        let mut runs = Vec::new();
        for (block, &(_, sequence)) in image.entries.iter().enumerate() {
            if runs.last().is_none_or(|&(_, last)| last != sequence) {
                runs.push((block as u8, sequence));
                if runs.len() > MAX_RUNS {
                    let mut all = Box::new([0; BLOCKS_PER_PAGE]);
                    all.iter_mut().zip(&*image.entries).for_each(|(to, entry)| *to = entry.1);
                    return Self::Flat(all);
                }
            }
        }
        runs.shrink_to_fit();
        Self::Runs(runs)
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Runs(runs) => runs.capacity() * size_of::<(u8, u32)>(),
            Self::Flat(all) => size_of_val(&**all),
        }
    }
}

type Bits = [Cell<u64>; BLOCKS_PER_PAGE / 64];

fn bit(bits: &Bits, block: usize) -> bool {
    bits[block / 64].get() >> (block % 64) & 1 == 1
}

fn put_bit(bits: &Bits, block: usize, on: bool) {
    let word = &bits[block / 64];
    let mask = 1 << (block % 64);
    word.set(if on { word.get() | mask } else { word.get() & !mask });
}

/// Checksum value that marks a doubtful block where the sequence is 0: both places of its page were
/// damaged, so the block may be wrong.
const DOUBTED: u32 = u32::MAX;

/// A page in memory. The fields used by every lookup come first, within two cache lines, then the
/// checksums.
#[repr(C)]
pub(super) struct Page {
    /// Used since the eviction hand last came by.
    pub referenced: Cell<bool>,
    /// No place on the drives is newer than this page's contents.
    pub confirmed: Cell<bool>,
    /// No returning drive can hold a newer version of the page: both places were present when it
    /// was loaded, or the page was started empty, and both places took the last write.
    pub at_both_places: Cell<bool>,
    /// Read ahead, and not requested itself so far.
    pub is_ahead: Cell<bool>,
    /// Has to be written; such pages stay in memory.
    pub dirty: Cell<bool>,
    /// Removed from the cache for good; never written again.
    pub forgotten: Cell<bool>,
    /// Base of the identity words of the page's blocks.
    pub identity_base: u32,
    /// Number, within the slab, of the page's first block.
    pub first_block_in_slab: u32,
    pub pins: Cell<u32>,
    recorded: Bits,
    sums: [Cell<u32>; BLOCKS_PER_PAGE],
    /// Blocks set or cleared since the page was loaded.
    changed: Bits,
    sequences: RefCell<Sequences>,
    pub key: u64,
    pub id: PageId,
    /// Index of the page in the cache's ring.
    pub ring_index: Cell<usize>,
    /// Number of changes.
    pub version: Cell<u64>,
    /// Stamp of the newest version on the drives or in flight to them, and the version that it
    /// belongs to.
    pub stamp: Cell<u64>,
    pub stamped_version: Cell<u64>,
}

impl Page {
    pub(super) fn new(key: u64, id: PageId, identity_base: u32, image: Option<&Image>) -> Self {
        let page = Self {
            key,
            id,
            identity_base,
            first_block_in_slab: u32::from(id.page) * BLOCKS_PER_PAGE as u32,
            ring_index: Cell::new(0),
            referenced: Cell::new(true),
            pins: Cell::new(0),
            dirty: Cell::new(false),
            version: Cell::new(0),
            stamp: Cell::new(0),
            stamped_version: Cell::new(0),
            confirmed: Cell::new(false),
            at_both_places: Cell::new(false),
            is_ahead: Cell::new(false),
            forgotten: Cell::new(false),
            sums: [const { Cell::new(0) }; BLOCKS_PER_PAGE],
            recorded: Bits::default(),
            changed: Bits::default(),
            sequences: RefCell::new(Sequences::Runs(vec![(0, 0)])),
        };
        if let Some(image) = image {
            page.stamp.set(image.stamp);
            for (block, &(sum, sequence)) in image.entries.iter().enumerate() {
                page.sums[block].set(sum);
                put_bit(&page.recorded, block, sequence != 0);
            }
            *page.sequences.borrow_mut() = Sequences::of(image);
        }
        page
    }

    /// Recorded checksum; called by every read.
    #[inline]
    pub(super) fn sum(&self, block: usize) -> Option<u32> {
        bit(&self.recorded, block).then(|| self.sums[block].get())
    }

    /// True if a checksum was recorded for the block and has been lost.
    #[inline]
    pub(super) fn is_doubted(&self, block: usize) -> bool {
        !bit(&self.recorded, block) && self.sums[block].get() == DOUBTED
    }

    /// Marks all blocks without a recorded checksum as doubtful.
    pub(super) fn doubt_all(&self) {
        for block in (0..BLOCKS_PER_PAGE).filter(|block| !bit(&self.recorded, *block)) {
            self.sums[block].set(DOUBTED);
        }
    }

    pub(super) fn get(&self, block: usize) -> Option<Recorded> {
        let sum = self.sum(block)?;
        Some(Recorded { sum, sequence: self.sequences.borrow().get(block) })
    }

    pub(super) fn set(&self, first_block: usize, sums: &[u32], sequence: u32) {
        for (block, &sum) in (first_block..).zip(sums) {
            self.sums[block].set(sum);
            put_bit(&self.recorded, block, true);
            put_bit(&self.changed, block, true);
        }
        self.sequences.borrow_mut().set(first_block..first_block + sums.len(), sequence);
        self.version.set(self.version.get() + 1);
    }

    pub(super) fn clear(&self, blocks: std::ops::Range<usize>) {
        for block in blocks.clone() {
            self.sums[block].set(0);
            put_bit(&self.recorded, block, false);
            put_bit(&self.changed, block, true);
        }
        self.sequences.borrow_mut().set(blocks, 0);
        self.version.set(self.version.get() + 1);
    }

    /// Takes the entries of a newer page on the drives for all blocks that were not changed in
    /// memory. This corrects a page that was loaded from an older place.
    pub(super) fn merge(&self, image: &Image) {
        let mut sequences = self.sequences.borrow_mut();
        for (block, &(sum, sequence)) in image.entries.iter().enumerate() {
            if !bit(&self.changed, block) {
                self.sums[block].set(sum);
                put_bit(&self.recorded, block, sequence != 0);
                sequences.set(block..block + 1, sequence);
            }
        }
        self.version.set(self.version.get() + 1);
    }

    /// Encodes the page in its current state.
    pub(super) fn encode(&self, volume_id: u128, bytes: &mut [u8]) {
        let sequences = self.sequences.borrow();
        for block in 0..BLOCKS_PER_PAGE {
            let (sum, sequence) = match self.sum(block) {
                Some(sum) => (sum, sequences.get(block)),
                None if self.is_doubted(block) => (DOUBTED, 0),
                None => (0, 0),
            };
            page::put_entry(bytes, block, sum, sequence);
        }
        page::seal(bytes, volume_id, self.id, self.stamp.get());
    }

    pub(super) fn memory_bytes(&self) -> usize {
        // The page itself, its reference counts, and its share of the index and the ring.
        size_of::<Self>() + 48 + self.sequences.borrow().memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use stripewise_drive::SplitMix64;

    use super::*;

    #[test]
    fn sequence_runs_agree_with_a_flat_array() {
        for seed in 0..300 {
            let mut random = SplitMix64::new(seed);
            let mut sequences = Sequences::Runs(vec![(0, 0)]);
            let mut model = [0; BLOCKS_PER_PAGE];
            for _ in 0..random.below(80) {
                let first = random.below(256) as usize;
                let end = first + 1 + random.below(256 - first as u64).min(random.below(256)) as usize;
                let sequence = random.below(4) as u32;
                sequences.set(first..end, sequence);
                model[first..end].fill(sequence);
                for (block, &expected) in model.iter().enumerate() {
                    assert_eq!(sequences.get(block), expected, "seed {seed}, block {block}");
                }
                if let Sequences::Runs(runs) = &sequences {
                    assert!(runs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1));
                }
            }
        }
    }

    #[test]
    fn many_runs_become_a_flat_array() {
        let mut sequences = Sequences::Runs(vec![(0, 0)]);
        for block in 0..BLOCKS_PER_PAGE {
            sequences.set(block..block + 1, block as u32 + 1);
        }
        assert!(matches!(sequences, Sequences::Flat(_)));
        assert!((0..BLOCKS_PER_PAGE).all(|block| sequences.get(block) == block as u32 + 1));
    }
}
