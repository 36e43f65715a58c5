//! Writes: gather what belongs to one stripe, plan it, read what parity needs, compute, log, write.
//!
//! A request enters every stripe it touches at once. Stripes that nobody holds it leads; where it
//! has to wait it may find its piece carried out by another leader. A leader takes all waiting
//! pieces that fit, so that writes that come together become one, and the last, partial stripe of a
//! sequential writer is held back for the rest of it: a full stripe needs no reads. All stripes led
//! go through each step together, so their I/Os are in the drives' queues together and merge there.
//!
//! Here a request enters its stripes, and leads or waits. What a leader does stands in `write/`:
//! `lead.rs` (the steps in their order), `work.rs` (one stripe on its way through them), `ready.rs`
//! (what must be there before a stripe is written), `content.rs` (the plan, old data, parity),
//! `logging.rs` (in the journal first), `in_place.rs` (on the drives).

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::{join, join_all, select};
use smallvec::SmallVec;
use stripewise_drive::Buffer;

use crate::array::{Array, Inner};
use crate::destage::Room;
use crate::error::ArrayError;
use crate::lock_order;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::regions::RegionState;
use crate::stripe_table::{Piece, Turn, Waiting};

mod content;
mod in_place;
mod lead;
mod logging;
mod ready;
mod work;

pub(crate) use work::{UnitParts, written_ranges};

impl Array {
    /// Writes `data` at `offset_bytes`, both multiples of 512. With `fua` it is durable when this
    /// ends, else after the next
    /// [`Array::flush`]. The caller must not change the buffer until then.
    pub async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        self.write_as(Class::Foreground, offset_bytes, data, fua).await
    }

    /// As [`Self::write`], in the share of the drives that this class has.
    pub async fn write_as(
        &self,
        class: Class,
        offset_bytes: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), ArrayError> {
        let inner = &self.0;
        inner.check_writable_range(offset_bytes, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        let fua = fua && !mutation::is_chosen(Mutation::ForceForgotten);
        inner.note_heat(offset_bytes, data.len() as u64);
        let _permit = inner.admission.acquire(data.len() as u64).await;
        inner.write_admitted(class, offset_bytes, data, fua).await
    }
}

impl Inner {
    pub async fn write_admitted(
        &self,
        class: Class,
        offset_bytes: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), ArrayError> {
        lock_order::assert_holds_none(&self.table, "stripes to write to");
        let end_bytes = offset_bytes + data.len() as u64;
        if self.has_replayed() {
            Box::pin(self.record_and_forget_replayed()).await?;
        }
        if !self.regions.all_written() {
            self.admit_new_regions().await?;
        }
        let sequential = self.sequences.note(offset_bytes, end_bytes);
        let mut rooms = self.rooms_for(offset_bytes, &data)?.into_iter();
        let counted = self.activity.begin_write();

        let mut led: SmallVec<[u64; 8]> = SmallVec::new();
        let mut waiting: SmallVec<[(u64, Waiting); 2]> = SmallVec::new();
        let mut at = 0;
        for segment in self.geometry.segments(offset_bytes, data.len() as u64) {
            let length = (segment.to - segment.from) as usize;
            let room = rooms.next().map(|room| Rc::new(RefCell::new(Some(room))));
            let piece = Piece { from: segment.from, data: data.slice(at..at + length), fua, class, room };
            at += length;
            match self.table.enter(segment.stripe, piece) {
                Ok(_) => led.push(segment.stripe),
                Err(wait) => waiting.push((segment.stripe, wait)),
            }
        }

        let result = if waiting.is_empty() {
            self.lead_holding_tail(led, sequential).await
        } else {
            // All at once: a stripe that this request is given to lead must not wait for another
            // one, because somebody who has that may be waiting for this.
            let leading = self.lead_holding_tail(led, sequential);
            let following = join_all(waiting.into_iter().map(|(stripe, wait)| self.follow(stripe, wait)));
            let (first, others) = Box::pin(join(leading, following)).await;
            others.into_iter().fold(first, Result::and)
        };
        drop(counted);
        result?;
        self.forget_dead(offset_bytes, end_bytes);
        // The data are durable, but a region that the map does not know as written would read as
        // zeros after a crash, and a block that was lost is recorded as lost.
        let is_known =
            || self.all_regions_written(offset_bytes, end_bytes) && !self.bad.has_undurable_repairs();
        if fua && !is_known() {
            Box::pin(self.flush()).await?;
        }
        if fua { Box::pin(self.record_lost()).await } else { Ok(()) }
    }

    /// Room for each of the request's pieces to be deferred with; none where it goes in place at
    /// once.
    fn rooms_for(&self, offset_bytes: u64, data: &Buffer) -> Result<Vec<Room>, ArrayError> {
        let Some(log) = self.write_log().filter(|_| self.may_defer(data.len() as u64)) else {
            return Ok(Vec::new());
        };
        let segments = self.geometry.segments(offset_bytes, data.len() as u64);
        let ranges: SmallVec<[Range<u64>; 4]> = segments.map(|segment| segment.from..segment.to).collect();
        Ok(self.reserve_rooms(&log, &ranges)?.unwrap_or_default())
    }

    /// Waits until the piece was carried out by another leader, or carries it out.
    async fn follow(&self, stripe: u64, wait: Waiting) -> Result<(), ArrayError> {
        match wait.await {
            Turn::Done(outcome) => outcome,
            Turn::Lead => Box::pin(self.lead(&[stripe])).await,
        }
    }

    fn all_regions_written(&self, offset_bytes: u64, end_bytes: u64) -> bool {
        let first = self.regions.region_of(self.geometry.locate(offset_bytes).stripe);
        let last = self.regions.region_of(self.geometry.locate(end_bytes - 1).stripe);
        (first..=last).all(|region| self.regions.state(region) == RegionState::Written)
    }

    /// Keeps the number of partly initialised regions bounded, before any stripe is held.
    async fn admit_new_regions(&self) -> Result<(), ArrayError> {
        while self.regions.partial_count() >= self.options.tuning.partial_regions {
            let oldest = self.regions.partial_regions()[0];
            self.complete_region(oldest).await?;
        }
        Ok(())
    }

    /// Leads the stripes; the last one, if a sequential writer filled it only in part, apart from
    /// the others and later.
    async fn lead_holding_tail(&self, led: SmallVec<[u64; 8]>, sequential: bool) -> Result<(), ArrayError> {
        let Some((&tail, rest)) = led.split_last() else { return Ok(()) };
        let hold = sequential
            && self.geometry.parity_units() > 0
            && self.activity.writes() > 1
            && self.table.gathered(tail).0 < self.geometry.stripe_data_bytes();
        if hold { Box::pin(self.lead_tail_later(rest, tail)).await } else { self.lead(&led).await }
    }

    async fn lead_tail_later(&self, rest: &[u64], tail: u64) -> Result<(), ArrayError> {
        let now = async { if rest.is_empty() { Ok(()) } else { self.lead(rest).await } };
        let later = async {
            self.hold_for_more(tail).await;
            self.lead(&[tail]).await
        };
        let (first, second) = join(now, later).await;
        first.and(second)
    }

    /// Waits until the stripe's queue covers it, or no write is being carried out whose end could
    /// bring more.
    async fn hold_for_more(&self, stripe: u64) {
        // Only while other writes are being carried out, so a lone writer never waits.
        let deadline = self.context.now_ns() + self.options.tuning.gather_hold_ns;
        // The writer's other stripes begin their work in this same turn.
        stripewise_drive::yield_now().await;
        loop {
            let (bytes, joined) = self.table.gathered(stripe);
            let more_may_come = self.activity.has_groups() && self.context.now_ns() < deadline;
            if bytes >= self.geometry.stripe_data_bytes() || !more_may_come {
                return;
            }
            let joined = std::pin::pin!(joined.wait());
            let activity = std::pin::pin!(self.activity.until_group_ends());
            let sleep = self.context.sleep_until_ns(deadline);
            select(select(joined, activity), sleep).await;
        }
    }
}
