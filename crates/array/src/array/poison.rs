//! Writing to stripes of which blocks are lost: so that parity can be computed, a lost data block
//! gets content of its own, the poison, and the pool records it as dead.
//!
//! A write of less than a stripe needs old data or parity. Where a data block can neither be read
//! nor reconstructed, there is none, and without this only whole stripes could be written. With
//! the poison in place the row of blocks has parity again, and can lose a drive; reading the block
//! is an error until it is written. It is recorded as dead before the poison is written, so that
//! the poison is never taken for data. Faults expected: no room in the record (then the write is
//! refused); drives that are only away and may bring the block back (then it is refused, too).

use smallvec::SmallVec;
use stripewise_drive::Buffer;
use stripewise_layout::{Stripe, UnitRange, WriteMethod, WritePlan};

use crate::array::parts::{StripRanges, StripeParts, UnitParts};
use crate::array::stripe_write::{NewContent, OldData, PutTogether, StripeWrite};
use crate::array::{BLOCK_BYTES, HostRequest, Inner};
use crate::error::ArrayError;
use crate::member::Class;
use crate::read::recover::HeldStripe;
use crate::rows::SlotState;

/// Maximum wait of destaging for older stripes before it gives up for now.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Polling interval of that wait.
const LOOK_NS: u64 = 1_000_000;

/// The data blocks of a stripe in one row of blocks: those that are lost have none.
struct BlockRow {
    /// Byte in the strip.
    start: u64,
    data: SmallVec<[Option<Buffer>; 8]>,
}

impl Inner {
    /// Poisons the lost blocks of a stripe that the caller holds, in a range of its strips; gives
    /// `lost` back where there are none, or they may come back. `is_destaging`: room in the
    /// journal is what destaging has.
    pub(crate) async fn poison_lost_blocks(
        &self,
        stripe: &Stripe,
        (start, end): (u64, u64),
        (class, is_destaging): (Class, bool),
        lost: ArrayError,
    ) -> Result<(), ArrayError> {
        let is_possible = self.geometry.parity_units() > 0 && !self.may_come_back(stripe);
        if !is_possible || is_destaging && !self.is_oldest_in_time(stripe).await {
            return Err(lost);
        }
        let missing = self.columns.missing_in(stripe.index);
        let mut rows = Vec::new();
        let mut at = start / BLOCK_BYTES * BLOCK_BYTES;
        while at < end {
            let row = self.read_block_row(stripe, at, class).await?;
            if row.data.iter().any(Option::is_none) {
                rows.push(row);
            }
            at += BLOCK_BYTES;
        }
        if rows.is_empty() {
            return Err(lost);
        }
        self.record_dead(stripe, &rows).await?;
        if self.columns.missing_in(stripe.index) != missing {
            // The data to be written has changed; the caller looks again.
            return Ok(());
        }
        for row in rows {
            let content = self.poisoned(stripe, row);
            let covers = is_destaging.then_some(0);
            let write = StripeWrite { index: stripe.index, content, fua: false, class, covers };
            let sent = self.send_stripes(SmallVec::from_iter([write])).await;
            for stripe in sent.stripes {
                self.until_in_place(sent.log.as_ref(), stripe).await?;
            }
        }
        Ok(())
    }

    /// True if a stripe is the oldest of those being destaged, or becomes it within the time-out.
    /// No room is reserved for poison: the oldest soon returns the room it takes; several stripes
    /// might block the ring.
    async fn is_oldest_in_time(&self, stripe: &Stripe) -> bool {
        let until_ns = self.context.now_ns() + PATIENCE_NS;
        let is_oldest =
            || self.deferred.pending.oldest(1).first().is_none_or(|oldest| *oldest == stripe.index);
        while !is_oldest() && self.context.now_ns() < until_ns {
            self.context.sleep_ns(LOOK_NS).await;
        }
        is_oldest()
    }

    /// True if a drive that is away may bring back blocks of the stripe. A drive that missed a
    /// write to the region does not: its contents there are stale, also once it is at hand again.
    fn may_come_back(&self, stripe: &Stripe) -> bool {
        let row = self.columns.row_of(stripe.index);
        let is_stale = self.regions.is_behind(self.regions.region_of(stripe.index));
        let rows = self.columns.rows.borrow();
        let may = |column: usize| match rows.place(row, column).map(|place| place.state) {
            Some(SlotState::Rebuilding) => false,
            Some(SlotState::Missing | SlotState::CatchingUp) => !is_stale,
            Some(SlotState::Active) | None => true,
        };
        self.columns.missing_in(stripe.index).iter().any(may)
    }

    async fn read_block_row(
        &self,
        stripe: &Stripe,
        start: u64,
        class: Class,
    ) -> Result<BlockRow, ArrayError> {
        let mut data = SmallVec::new();
        for unit in 0..self.geometry.data_units() {
            let block = UnitRange { unit, start, end: start + BLOCK_BYTES };
            data.push(match HeldStripe::new(self, stripe, class).fetch_unit(block).await {
                Ok(content) => Some(content),
                Err(ArrayError::Lost { .. }) => None,
                Err(error) => return Err(error),
            });
        }
        Ok(BlockRow { start, data })
    }

    /// Has it recorded that the lost blocks hold nothing valid, whatever will stand there. Blocks
    /// of which the journal has what is to be written are not needed.
    async fn record_dead(&self, stripe: &Stripe, rows: &[BlockRow]) -> Result<(), ArrayError> {
        let interleave = self.geometry.interleave_bytes();
        let in_volume = |unit: usize, start: u64| {
            stripe.index * self.geometry.stripe_data_bytes() + unit as u64 * interleave + start
        };
        let lost = rows.iter().flat_map(|row| {
            let units = row.data.iter().enumerate().filter(|(_, content)| content.is_none());
            units.map(|(unit, _)| in_volume(unit, row.start))
        });
        let is_news = |at: &u64| {
            !self.deferred.pending.holds_any_of(&self.geometry, *at, BLOCK_BYTES)
                && self.bad.check_alive(&self.geometry, *at, at + BLOCK_BYTES).is_ok()
        };
        let dead: Vec<u64> = lost.filter(is_news).map(|at| at / BLOCK_BYTES).collect();
        self.bad.note_dead(dead.iter().copied());
        let recorded = self.host.ask(self.spec.id, HostRequest::RecordLosses).await;
        recorded.map_err(|why| {
            self.bad.take_back_dead(&dead);
            // There is more room when blocks that were written since are durable.
            if let Some(log) = self.log.open() {
                self.start_marking_regions(&log);
            }
            ArrayError::CannotRecord(why)
        })
    }

    /// The write that puts the poison in place, and the parity that goes with it.
    fn poisoned(&self, stripe: &Stripe, row: BlockRow) -> NewContent {
        let (start, end) = (row.start, row.start + BLOCK_BYTES);
        let missing = self.columns.missing_in(stripe.index);
        let is_there = |unit: &usize| !missing.contains(stripe.units[*unit].member);
        let poisoned: SmallVec<[usize; 4]> =
            (0..row.data.len()).filter(|unit| row.data[*unit].is_none()).collect();
        let parity = self.geometry.data_units()..self.geometry.units();
        let range = |unit: usize| UnitRange { unit, start, end };
        let has_parity = parity.clone().any(|unit| is_there(&unit));
        let plan = WritePlan {
            method: if has_parity { WriteMethod::ReconstructWrite } else { WriteMethod::Copy },
            reads: SmallVec::new(),
            writes: poisoned.into_iter().chain(parity).filter(is_there).map(range).collect(),
            window: has_parity.then_some((start, end)),
            decode: None,
        };
        let content = |(unit, content): (usize, Option<Buffer>)| {
            UnitParts::from_iter([(start, content.unwrap_or_else(|| self.poison(stripe, unit, start)))])
        };
        let parts: StripeParts = row.data.into_iter().enumerate().map(content).collect();
        let changed = StripRanges::from_iter([(start, end)]);
        NewContent::Parts(Box::new(PutTogether { parts, changed, old: OldData::new(), plan: Some(plan) }))
    }

    /// Poisoned block: differs from any earlier content.
    fn poison(&self, stripe: &Stripe, unit: usize, start: u64) -> Buffer {
        let block = self.buffers.allocate(BLOCK_BYTES as usize);
        let place = u128::from(stripe.index) << 64 | (unit as u128) << 48 | u128::from(start);
        let mark = (self.spec.id ^ place ^ u128::from(self.context.now_ns()) << 32).to_le_bytes();
        block.with_mut(|bytes| bytes.chunks_exact_mut(mark.len()).for_each(|to| to.copy_from_slice(&mark)));
        block
    }
}
