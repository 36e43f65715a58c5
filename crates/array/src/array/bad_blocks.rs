//! Blocks that hold nothing valid: which they are, and which of them were written since.
//!
//! A block of a *column* is lost when it could not be rebuilt: a drive was lost and another one
//! cannot read what is needed. A block of the *volume* is dead when power was cut while it was
//! being written and its drive was lost in the same instant. Reading either is an error until it is
//! written.
//!
//! A write makes a block whole, but not durably so: until a flush, a power cut or a drive that
//! loses its cache brings the former content back. So the block stays recorded as lost until a
//! flush that began after the write has succeeded. It can be read in between.
//!
//! Expected faults: commits for any other reason between the write and the flush. No I/O here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use stripewise_layout::{Geometry, Place, Stripe, UnitRange};

use super::BLOCK_BYTES;
use crate::block_set::{Block, BlockSet};
use crate::error::ArrayError;
use crate::mutation::{self, Mutation};

/// A block of a column: the column, and the block's number in the column's linear space.
pub(crate) type ColumnBlock = Block;

/// The space that blocks of the volume are in.
const VOLUME: usize = 0;

/// The blocks of one array.
#[derive(Default)]
pub(crate) struct BadBlocks {
    lost: RefCell<Blocks>,
    dead: RefCell<Blocks>,
    repairs: Cell<Repairs>,
    /// Number of times that repairs that were not durable have been undone.
    undone: Cell<u64>,
    /// Blocks that rebuilds found lost and no event has reported.
    unreported: Cell<u64>,
}

/// Blocks of one kind.
#[derive(Default)]
struct Blocks {
    /// Reading these is an error.
    bad: BlockSet,
    /// Written since, and not yet durably: each with the number of the repair.
    written: BTreeMap<Block, u64>,
    /// Written since, and still bad by the pool's record.
    unrecorded: BTreeMap<Block, u64>,
    /// Blocks to record; cached until something changes.
    to_record: Option<Arc<BlockSet>>,
}

impl Blocks {
    /// Bad blocks, and those whose repair is not yet durable.
    fn all_to_record(&mut self) -> Arc<BlockSet> {
        let Self { bad, written, to_record, .. } = self;
        let all = to_record.get_or_insert_with(|| {
            let mut all = bad.clone();
            for &(space, block) in written.keys() {
                all.insert(space, block..=block);
            }
            Arc::new(all)
        });
        all.clone()
    }

    /// Adds blocks; how many were not bad before.
    fn add(&mut self, space: usize, blocks: RangeInclusive<u64>) -> u64 {
        self.to_record = None;
        self.bad.insert(space, blocks)
    }

    /// Keeps blocks in spans of 1 MiB of which this is true; called with the first block of each.
    fn retain_spans(&mut self, keep: impl Fn(Block) -> bool) {
        self.to_record = None;
        self.bad.retain_spans(&keep);
        self.written.retain(|block, _| keep(*block));
        self.unrecorded.retain(|block, _| keep(*block));
    }

    /// Forgets a range of blocks of a space.
    fn forget(&mut self, space: usize, blocks: RangeInclusive<u64>) {
        self.to_record = None;
        self.bad.remove(space, blocks.clone());
        let is_kept = |block: &Block| block.0 != space || !blocks.contains(&block.1);
        self.written.retain(|block, _| is_kept(block));
        self.unrecorded.retain(|block, _| is_kept(block));
    }

    fn undo_repairs(&mut self) {
        self.to_record = None;
        for (space, block) in std::mem::take(&mut self.written).into_keys() {
            self.bad.insert(space, block..=block);
        }
    }

    fn repair(&mut self, space: usize, blocks: RangeInclusive<u64>, repairs: &Cell<Repairs>) {
        for block in self.bad.remove(space, blocks) {
            self.to_record = None;
            let before = repairs.get();
            let made = before.made + 1;
            repairs.set(Repairs { made, ..before });
            self.unrecorded.insert((space, block), made);
            if !mutation::is_chosen(Mutation::LostBlocksForgottenEarly) {
                self.written.insert((space, block), made);
            }
        }
    }

    /// The first `made` repairs are durable.
    fn repairs_are_durable(&mut self, made: u64) {
        let before = self.written.len();
        self.written.retain(|_, repair| *repair > made);
        if self.written.len() != before {
            self.to_record = None;
        }
    }
}

/// Number of blocks that became whole.
#[derive(Clone, Copy, Default)]
struct Repairs {
    made: u64,
    /// Number of these that are durable.
    durable: u64,
    /// Number of these that the pool has recorded.
    recorded: u64,
}

/// The blocks that a range of a unit touches: the column, and its blocks.
fn blocks_of(place: Place, range: UnitRange) -> (usize, RangeInclusive<u64>) {
    let first = (place.offset_bytes + range.start) / BLOCK_BYTES;
    let last = (place.offset_bytes + range.end - 1) / BLOCK_BYTES;
    (place.member, first..=last)
}

impl BadBlocks {
    /// Blocks of columns that are lost.
    pub(crate) fn lost(&self) -> Vec<ColumnBlock> {
        self.lost.borrow().bad.iter().collect()
    }

    /// Blocks of the volume that are dead.
    pub(crate) fn dead(&self) -> Vec<u64> {
        self.dead.borrow().bad.iter().map(|(_, block)| block).collect()
    }

    /// The part of [`Self::lost`] that the pool has to record.
    pub(crate) fn lost_to_record(&self) -> Arc<BlockSet> {
        self.lost.borrow_mut().all_to_record()
    }

    /// The part of [`Self::dead`] that the pool has to record: blocks below `end`.
    pub(crate) fn dead_to_record(&self, end: u64) -> Arc<BlockSet> {
        let mut dead = self.dead.borrow_mut();
        // Dead blocks beyond a smaller size are dropped when the size is recorded.
        if dead.written.range((VOLUME, end)..).next().is_none() {
            return dead.all_to_record();
        }
        let mut all = BlockSet::clone(&dead.all_to_record());
        for &(space, block) in dead
            .written
            .keys()
            .filter(|(space, block)| *block >= end && dead.bad.first_in(*space, *block..=*block).is_none())
        {
            all.remove(space, block..=block);
        }
        Arc::new(all)
    }

    /// Number of lost blocks of columns and dead blocks of the volume.
    pub(crate) fn count(&self) -> u64 {
        self.lost.borrow().bad.count() + self.dead.borrow().bad.count()
    }

    /// True if no block of a column is lost.
    pub(crate) fn has_no_lost(&self) -> bool {
        self.lost.borrow().bad.is_empty()
    }

    /// True if no block of the volume is dead.
    pub(crate) fn has_no_dead(&self) -> bool {
        self.dead.borrow().bad.is_empty()
    }

    /// True if a range of a unit touches a block that holds nothing valid.
    pub(crate) fn is_unit_lost(&self, stripe: &Stripe, range: UnitRange) -> bool {
        self.is_lost_at(stripe.units[range.unit], range)
    }

    /// As [`Self::is_unit_lost`], where the unit's place is known.
    pub(crate) fn is_lost_at(&self, place: Place, range: UnitRange) -> bool {
        let (column, blocks) = blocks_of(place, range);
        self.lost.borrow().bad.first_in(column, blocks).is_some()
    }

    /// True if any block of a stripe, data or parity, is lost.
    pub(crate) fn is_any_lost_in(&self, geometry: &Geometry, stripe: u64) -> bool {
        let lost = self.lost.borrow();
        let last = geometry.shape().interleave_bytes / BLOCK_BYTES - 1;
        let is_lost = |place: &Place| {
            let first = place.offset_bytes / BLOCK_BYTES;
            lost.bad.first_in(place.member, first..=first + last).is_some()
        };
        !lost.bad.is_empty() && geometry.stripe(stripe).units.iter().any(is_lost)
    }

    /// Refuses to read what is dead: bytes of the volume.
    pub(crate) fn check_alive(&self, geometry: &Geometry, start: u64, end: u64) -> Result<(), ArrayError> {
        match self.first_dead(start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)) {
            None => Ok(()),
            Some(block) => Err(ArrayError::Lost {
                stripe: geometry.locate(block * BLOCK_BYTES).stripe,
                what: format!(
                    "the block at byte {} was being written when power was cut, and its drive was lost with it",
                    block * BLOCK_BYTES
                ),
            }),
        }
    }

    /// The first of these blocks that is dead.
    fn first_dead(&self, blocks: Range<u64>) -> Option<u64> {
        let last = blocks.end.checked_sub(1)?;
        self.dead.borrow().bad.first_in(VOLUME, blocks.start..=last)
    }

    /// Blocks of columns are lost.
    pub(crate) fn note_lost(&self, blocks: &BlockSet) {
        let mut lost = self.lost.borrow_mut();
        lost.to_record = None;
        lost.bad.extend(blocks);
    }

    /// Blocks of the volume that are recorded as dead.
    pub(crate) fn note_recorded_dead(&self, blocks: &BlockSet) {
        let mut dead = self.dead.borrow_mut();
        dead.to_record = None;
        dead.bad.extend(blocks);
    }

    /// Blocks that a range of a unit touches are lost; how many were not before.
    pub(crate) fn note_unit_lost(&self, stripe: &Stripe, range: UnitRange) -> u64 {
        let (column, blocks) = blocks_of(stripe.units[range.unit], range);
        self.lost.borrow_mut().add(column, blocks)
    }

    /// Adds to the blocks that a rebuild has found lost.
    pub(crate) fn note_unreported(&self, blocks: u64) {
        self.unreported.set(self.unreported.get() + blocks);
    }

    /// Blocks that rebuilds found lost since this was last asked.
    pub(crate) fn take_unreported(&self) -> u64 {
        self.unreported.take()
    }

    /// Blocks of the volume are dead.
    pub(crate) fn note_dead(&self, blocks: impl IntoIterator<Item = u64>) {
        let mut dead = self.dead.borrow_mut();
        for block in blocks {
            dead.add(VOLUME, block..=block);
        }
    }

    /// A range of a unit was written: it holds something valid again.
    pub(crate) fn repair_unit(&self, stripe: &Stripe, range: UnitRange) {
        let (column, blocks) = blocks_of(stripe.units[range.unit], range);
        self.repair_lost(column, blocks);
    }

    /// These blocks of a column were written.
    pub(crate) fn repair_lost(&self, column: usize, blocks: RangeInclusive<u64>) {
        self.lost.borrow_mut().repair(column, blocks, &self.repairs);
    }

    /// Bytes of the volume were written. Where they cover part of a block, the rest of it is as
    /// lost as before.
    pub(crate) fn repair_dead_bytes(&self, start: u64, end: u64) {
        let first = start.div_ceil(BLOCK_BYTES);
        self.repair_dead(first..first.max(end / BLOCK_BYTES));
    }

    /// These blocks of the volume were written.
    fn repair_dead(&self, blocks: Range<u64>) {
        if let Some(last) = blocks.end.checked_sub(1) {
            self.dead.borrow_mut().repair(VOLUME, blocks.start..=last, &self.repairs);
        }
    }

    /// Keeps those blocks of columns that are in spans of 1 MiB of which this is true; called with
    /// the first block of each.
    pub(crate) fn retain_lost(&self, keep: impl Fn(ColumnBlock) -> bool) {
        let mut lost = self.lost.borrow_mut();
        if !(lost.bad.is_empty() && lost.written.is_empty() && lost.unrecorded.is_empty()) {
            lost.retain_spans(keep);
        }
    }

    /// Blocks of the volume from `end` on do not exist any more.
    pub(crate) fn forget_dead_from(&self, end: u64) {
        self.dead.borrow_mut().forget(VOLUME, end..=u64::MAX);
    }

    /// Blocks of the volume below `end` do not exist any more.
    pub(crate) fn forget_dead_below(&self, end: u64) {
        if let Some(last) = end.checked_sub(1) {
            self.dead.borrow_mut().forget(VOLUME, 0..=last);
        }
    }

    /// These blocks of the volume are not dead after all.
    pub(crate) fn take_back_dead(&self, blocks: &[u64]) {
        let mut dead = self.dead.borrow_mut();
        blocks.iter().for_each(|block| dead.forget(VOLUME, *block..=*block));
    }

    /// Number of repairs made: to be read before a flush, and passed to
    /// [`Self::repairs_are_durable`] after it.
    pub(crate) fn repairs(&self) -> u64 {
        self.repairs.get().made
    }

    /// The first `made` repairs are durable.
    pub(crate) fn repairs_are_durable(&self, made: u64) {
        self.lost.borrow_mut().repairs_are_durable(made);
        self.dead.borrow_mut().repairs_are_durable(made);
        let before = self.repairs.get();
        self.repairs.set(Repairs { durable: before.durable.max(made), ..before });
    }

    /// A drive that cannot be spared has refused a flush, and may have lost what was written since
    /// the one before: blocks that became whole since are as bad as they were.
    pub(crate) fn repairs_may_be_lost(&self) {
        self.lost.borrow_mut().undo_repairs();
        self.dead.borrow_mut().undo_repairs();
        self.undone.set(self.undone.get() + 1);
    }

    /// Number of times this happened. A write in flight at that time may have lost what it sent
    /// before, and makes no block whole.
    pub(crate) fn undone(&self) -> u64 {
        self.undone.get()
    }

    /// True if a repair may still be undone by a power cut.
    pub(crate) fn has_undurable_repairs(&self) -> bool {
        !self.lost.borrow().written.is_empty() || !self.dead.borrow().written.is_empty()
    }

    /// True if the pool's record still has blocks as bad that are whole.
    pub(crate) fn has_unrecorded_repairs(&self) -> bool {
        let Repairs { made, recorded, .. } = self.repairs.get();
        made != recorded && !mutation::is_chosen(Mutation::LostBlocksNotRecorded)
    }

    /// Up to which repair the pool has to record them, where it has not.
    pub(crate) fn repairs_to_record(&self) -> Option<u64> {
        let Repairs { durable, recorded, .. } = self.repairs.get();
        (durable != recorded).then_some(durable)
    }

    /// The pool has recorded the first `made` repairs.
    pub(crate) fn repairs_are_recorded(&self, made: u64) {
        let before = self.repairs.get();
        self.repairs.set(Repairs { recorded: before.recorded.max(made), ..before });
        self.lost.borrow_mut().unrecorded.retain(|_, repair| *repair > made);
        self.dead.borrow_mut().unrecorded.retain(|_, repair| *repair > made);
    }

    /// True if the pool's record still has a block of the stripe as bad that was written since.
    /// What the journal has of it makes it whole after a crash, and is needed as long.
    pub(crate) fn is_repair_unrecorded(&self, geometry: &Geometry, stripe: u64) -> bool {
        let (lost, dead) = (&self.lost.borrow().unrecorded, &self.dead.borrow().unrecorded);
        if lost.is_empty() && dead.is_empty()
            || mutation::is_chosen(Mutation::ReleaseBeforeRecord)
            || mutation::is_chosen(Mutation::LostBlocksNotRecorded)
        {
            return false;
        }
        let stripe_bytes = geometry.stripe_data_bytes();
        let (start, end) = (stripe * stripe_bytes / BLOCK_BYTES, (stripe + 1) * stripe_bytes);
        let unit_blocks = geometry.shape().interleave_bytes / BLOCK_BYTES;
        let is_unit = |place: &Place| {
            let first = place.offset_bytes / BLOCK_BYTES;
            lost.range((place.member, first)..(place.member, first + unit_blocks)).next().is_some()
        };
        dead.range((VOLUME, start)..(VOLUME, end.div_ceil(BLOCK_BYTES))).next().is_some()
            || geometry.stripe(stripe).units.iter().any(is_unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorded dead blocks.
    fn dead(blocks: &BadBlocks) -> Vec<u64> {
        blocks.dead_to_record(100).iter().map(|(_, block)| block).collect()
    }

    #[test]
    fn dead_block_stays_recorded_until_write_is_durable() {
        let blocks = BadBlocks::default();
        blocks.note_dead([7, 9]);
        blocks.repair_dead(0..8);
        let first_flush = blocks.repairs();
        blocks.repair_dead(9..10);
        blocks.note_dead([7]);
        blocks.repair_dead(7..8);
        assert!(blocks.has_no_dead() && blocks.has_undurable_repairs());
        assert_eq!(dead(&blocks), [7, 9]);
        blocks.repairs_are_durable(first_flush);
        assert_eq!(dead(&blocks), [7, 9], "written again after the flush began");
        blocks.repairs_are_durable(blocks.repairs());
        assert!(dead(&blocks).is_empty() && !blocks.has_undurable_repairs());
    }

    #[test]
    fn durable_repairs_are_recorded_exactly_once() {
        let blocks = BadBlocks::default();
        blocks.note_lost(&[(1, 4), (1, 5), (2, 4)].into_iter().collect());
        blocks.repair_lost(1, 0..=u64::MAX);
        assert_eq!(blocks.lost(), [(2, 4)]);
        assert_eq!(blocks.repairs_to_record(), None);
        blocks.repairs_are_durable(blocks.repairs());
        let durable = blocks.repairs_to_record().unwrap();
        blocks.repairs_are_recorded(durable);
        assert_eq!(blocks.repairs_to_record(), None);
        assert_eq!(*blocks.lost_to_record(), [(2, 4)].into_iter().collect());
    }

    #[test]
    fn refused_flush_undoes_repairs_not_yet_durable() {
        let blocks = BadBlocks::default();
        blocks.note_dead([7, 9]);
        blocks.repair_dead(7..8);
        blocks.repairs_are_durable(blocks.repairs());
        blocks.repair_dead(9..10);
        let refused = blocks.repairs();
        blocks.repairs_may_be_lost();
        // The next flush succeeds.
        blocks.repairs_are_durable(refused);
        assert_eq!(blocks.dead(), [9]);
        assert_eq!(dead(&blocks), [9]);
    }

    #[test]
    fn blocks_that_are_cut_off_are_bad_no_more() {
        let blocks = BadBlocks::default();
        blocks.note_dead([3, 8]);
        blocks.repair_dead(8..9);
        blocks.forget_dead_from(8);
        assert_eq!(dead(&blocks), [3]);
        assert_eq!(blocks.first_dead(0..100), Some(3));
    }

    #[test]
    fn unit_is_lost_if_its_range_touches_a_lost_block() {
        let blocks = BadBlocks::default();
        let place = Place { member: 1, offset_bytes: 4 * BLOCK_BYTES };
        let stripe = Stripe { index: 0, units: [place].into_iter().collect() };
        let of_strip = |start: u64, end: u64| UnitRange { unit: 0, start, end };
        blocks.note_unit_lost(&stripe, of_strip(BLOCK_BYTES, BLOCK_BYTES + 512));
        assert_eq!(blocks.lost(), [(1, 5)]);
        assert!(!blocks.is_unit_lost(&stripe, of_strip(0, BLOCK_BYTES)));
        assert!(blocks.is_unit_lost(&stripe, of_strip(0, BLOCK_BYTES + 1)));
        blocks.repair_unit(&stripe, of_strip(0, 2 * BLOCK_BYTES));
        assert!(blocks.has_no_lost());
    }

    #[test]
    fn a_block_that_was_written_in_part_stays_dead() {
        let blocks = BadBlocks::default();
        blocks.note_dead([3]);
        blocks.repair_dead_bytes(3 * BLOCK_BYTES, 4 * BLOCK_BYTES - 512);
        assert_eq!(blocks.dead(), [3]);
        blocks.repair_dead_bytes(2 * BLOCK_BYTES + 512, 4 * BLOCK_BYTES);
        assert!(blocks.has_no_dead());
    }
}
