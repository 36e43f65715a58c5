//! Writes of clients: admission, the stripes that a write touches, and the leader that writes
//! each.
//!
//! A request enters every stripe it touches at once. It *leads* a stripe that is idle; where it has
//! to wait, another leader may write its piece. A leader takes all waiting pieces that fit, so
//! that writes that come together become one. The last, partial stripe of a sequential writer is
//! held back for the rest of it: a full stripe needs no reads.
//!
//! What a leader has taken is acknowledged from the journal where it may be deferred
//! (`write_back/destage.rs`), else written in place (`stripe_write.rs`). The leader holds its
//! stripes until it releases them, whether or not the write succeeded.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::{join, join_all, select};
use smallvec::SmallVec;
use stripewise_drive::Buffer;
use stripewise_layout::Geometry;

use crate::array::stripe_write::{Group, NewContent, SentStripes, StripeWrite};
use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::columns::write_policy::{WriteLoad, WritePolicy};
use crate::error::ArrayError;
use crate::log::WriteLog;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::stripes::lock_order::{self, Holding};
use crate::stripes::stripe_table::{Piece, StripeTable, Ticket, Turn, Waiting};
use crate::write_back::destage::{Deferral, Destaging};
use crate::write_back::pending::Room;

/// A stripe that a request leads, and the pieces that it writes there.
struct Led {
    stripe: u64,
    pieces: Vec<(Rc<Ticket>, Piece)>,
}

impl Led {
    /// All pieces as one write. Urgent if one of them is, forced if one of them is.
    fn to_write(&self) -> StripeWrite {
        let mut pieces: SmallVec<[(u64, Buffer); 1]> =
            self.pieces.iter().map(|(_, piece)| (piece.from, piece.data.clone())).collect();
        pieces.sort_by_key(|(from, _)| *from);
        let is_urgent = self.pieces.iter().any(|(_, piece)| piece.class == Class::Foreground);
        StripeWrite {
            index: self.stripe,
            content: NewContent::Pieces(pieces),
            fua: self.pieces.iter().any(|(_, piece)| piece.fua),
            class: if is_urgent { Class::Foreground } else { Class::Background },
            covers: None,
        }
    }

    fn data_bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, piece)| piece.data.len() as u64).sum()
    }

    /// All of it has room to be deferred, and it is part of a stripe, or the policy defers whole
    /// ones.
    fn is_deferrable(&self, geometry: &Geometry, policy: WritePolicy) -> bool {
        (policy.defers_whole_stripes() || self.data_bytes() < geometry.stripe_data_bytes())
            && self.pieces.iter().all(|(_, piece)| piece.room.is_some())
    }

    /// Completes the requests whose pieces were written, and releases the stripe.
    fn finish(self, table: &StripeTable, result: &Result<(), ArrayError>) {
        for (ticket, _) in &self.pieces {
            ticket.finish(result.clone());
        }
        table.leave(self.stripe);
    }
}

/// True if a piece joins others in each strip that they share, without overlap or gap.
fn fits(geometry: &Geometry, taken: &[(Rc<Ticket>, Piece)], next: &Piece) -> bool {
    let ranges_of = |piece: &Piece| geometry.data_ranges(piece.from, piece.to());
    ranges_of(next).all(|range| {
        let (mut start, mut end) = (u64::MAX, 0);
        for other in
            taken.iter().flat_map(|(_, piece)| ranges_of(piece)).filter(|other| other.unit == range.unit)
        {
            start = start.min(other.start);
            end = end.max(other.end);
        }
        start == u64::MAX || range.end == start || range.start == end
    })
}

impl Array {
    /// Writes `data` at `offset_bytes`, both multiples of 512. With `fua` it is durable when this
    /// ends, else after the next [`Array::flush`]. The caller must not change the buffer until
    /// then.
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
        let losses = inner.losses.count();
        inner.write_admitted(class, offset_bytes, data, fua).await?;
        inner.losses.acknowledge_write(losses);
        Ok(())
    }
}

impl Inner {
    pub(crate) async fn write_admitted(
        &self,
        class: Class,
        offset_bytes: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), ArrayError> {
        lock_order::assert_holds_none(&*self.table, "stripes to write to");
        let end_bytes = offset_bytes + data.len() as u64;
        if self.log.has_replayed() {
            Box::pin(self.record_and_forget_replayed()).await?;
        }
        if !self.regions.all_written() {
            self.admit_new_regions().await?;
        }
        let sequential = self.sequences.note(offset_bytes, end_bytes);
        let gains = self.gains_by_deferral(data.len() as u64, sequential);
        let rooms = if gains { self.rooms_for(offset_bytes, &data)? } else { Vec::new() };
        let mut rooms = rooms.into_iter();
        let counted = self.activity.begin_write();
        let undone = self.bad.undone();

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
            // one, because the request that leads that one may be waiting for this.
            let leading = self.lead_holding_tail(led, sequential);
            let following = join_all(waiting.into_iter().map(|(stripe, wait)| self.follow(stripe, wait)));
            let (first, others) = Box::pin(join(leading, following)).await;
            others.into_iter().fold(first, Result::and)
        };
        drop(counted);
        result?;
        if fua || self.bad.undone() == undone {
            self.bad.repair_dead_bytes(offset_bytes, end_bytes);
        }
        // The data are durable, but a region that the map does not know as written would read as
        // zeros after a crash, and a block that was lost is recorded as lost.
        let is_known = || {
            self.regions.is_written(
                self.geometry.locate(offset_bytes).stripe,
                self.geometry.locate(end_bytes - 1).stripe,
            ) && !self.bad.has_undurable_repairs()
        };
        if fua && !is_known() {
            Box::pin(self.flush()).await?;
        }
        if fua { Box::pin(self.record_lost()).await } else { Ok(()) }
    }

    /// True if a write is better acknowledged from the journal and destaged with others.
    fn gains_by_deferral(&self, bytes: u64, is_sequential: bool) -> bool {
        self.columns.write_policy().gains_by_deferral(&WriteLoad {
            in_flight: (self.activity.writes(), self.reads.in_flight()),
            bytes,
            is_sequential,
            stripe_data_bytes: self.geometry.stripe_data_bytes(),
            width: self.geometry.width(),
        })
    }

    /// Room for each of the request's pieces to be deferred with; none where it goes in place at
    /// once.
    fn rooms_for(&self, offset_bytes: u64, data: &Buffer) -> Result<Vec<Room>, ArrayError> {
        let bytes = data.len() as u64;
        let policy = self.columns.write_policy();
        let Some(log) = self.log.open().filter(|_| self.deferred.admits(bytes, &self.geometry, policy))
        else {
            return Ok(Vec::new());
        };
        let segments = self.geometry.segments(offset_bytes, data.len() as u64);
        let ranges: SmallVec<[Range<u64>; 4]> = segments.map(|segment| segment.from..segment.to).collect();
        let request_bytes = || policy.least_gap_bytes;
        let rooms = self.deferred.reserve_rooms(&log, &ranges, request_bytes, self.context.now_ns());
        Ok(rooms?.unwrap_or_default())
    }

    /// Keeps the number of partly initialised regions bounded, before any stripe is held.
    async fn admit_new_regions(&self) -> Result<(), ArrayError> {
        while self.regions.partial_count() >= self.options.tuning.partial_regions {
            let oldest = self.regions.partial_regions()[0];
            self.complete_region(oldest).await?;
        }
        Ok(())
    }

    /// Waits until another leader has written the piece, or leads the stripe and writes it.
    async fn follow(&self, stripe: u64, wait: Waiting) -> Result<(), ArrayError> {
        match wait.await {
            Turn::Done(outcome) => outcome,
            Turn::Lead => Box::pin(self.lead(&[stripe])).await,
        }
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

    /// Waits until the stripe's queue covers it, or no write is in flight whose completion could
    /// bring more.
    async fn hold_for_more(&self, stripe: u64) {
        // Only while other writes are in flight, so a lone writer never waits.
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

    /// Writes the pieces that wait in stripes the caller leads, and releases the stripes. The
    /// result covers all of them.
    async fn lead(&self, stripes: &[u64]) -> Result<(), ArrayError> {
        let led: Group<Led> = stripes.iter().map(|&stripe| self.take_pieces(stripe)).collect();
        let Some(log) = self.log.open() else {
            return self.lead_in_place(led).await;
        };
        let policy = self.columns.write_policy();
        // Putting it in place may take more room in the journal than is kept for that.
        let is_hurt = |led: &Led| self.bad.is_any_lost_in(&self.geometry, led.stripe);
        let (later, now): (Group<Led>, Group<Led>) = led.into_iter().partition(|led| {
            self.deferred.is_on && led.is_deferrable(&self.geometry, policy) && !is_hurt(led)
        });
        // Stripes never written need no room in the journal, and must not wait for those that do: a
        // flush that makes room may have to wait for them. Where something is pending of one, that
        // is written first, and then it needs room.
        let is_new =
            |index: u64| self.regions.is_unwritten(index) && !self.deferred.pending.has_stripe(index);
        let (new, others): (Group<Led>, Group<Led>) = now.into_iter().partition(|led| is_new(led.stripe));
        if later.is_empty() && (new.is_empty() || others.is_empty()) {
            return self.lead_in_place(if new.is_empty() { others } else { new }).await;
        }
        Box::pin(self.lead_apart(&log, later, new, others)).await
    }

    async fn lead_apart(
        &self,
        log: &WriteLog,
        later: Group<Led>,
        new: Group<Led>,
        others: Group<Led>,
    ) -> Result<(), ArrayError> {
        let deferring = join_all(later.into_iter().map(|led| self.lead_deferred(log, led)));
        let in_place = join(self.lead_in_place(new), self.lead_in_place(others));
        let (deferred, (first, second)) = join(deferring, in_place).await;
        deferred.into_iter().fold(first.and(second), Result::and)
    }

    /// Takes the pieces to write together: aligned to blocks, without overlap, and without gaps
    /// within a unit.
    fn take_pieces(&self, stripe: u64) -> Led {
        let aligned =
            |piece: &Piece| piece.from.is_multiple_of(BLOCK_BYTES) && piece.to().is_multiple_of(BLOCK_BYTES);
        let pieces = self.table.take_pieces(stripe, |taken, next| {
            taken.iter().all(|(_, piece)| aligned(piece))
                && aligned(next)
                && fits(&self.geometry, taken, next)
        });
        if pieces.len() > 1 {
            self.count(|counters| counters.merged_writes += pieces.len() as u64 - 1);
        }
        Led { stripe, pieces }
    }

    /// Acknowledges pieces of a stripe from the journal, and leaves the stripe.
    async fn lead_deferred(&self, log: &WriteLog, led: Led) -> Result<(), ArrayError> {
        // Boxed, so that release builds have no future of this kind in theirs.
        match cfg!(debug_assertions) {
            true => Box::pin(lock_order::scope(self.lead_deferred_held(log, led))).await,
            false => self.lead_deferred_held(log, led).await,
        }
    }

    async fn lead_deferred_held(&self, log: &WriteLog, led: Led) -> Result<(), ArrayError> {
        let _holding = lock_order::took(&*self.table, led.stripe);
        let pieces = led.pieces.iter().map(|(_, piece)| {
            let room = piece.room.as_ref().and_then(|room| room.take()).expect("a deferrable piece has room");
            (piece.clone(), room)
        });
        let pieces = pieces.collect();
        let mut result = self.fill_holes(std::iter::once(led.stripe)).await;
        if result.is_ok() {
            let stripe = &self.geometry.stripe(led.stripe);
            result = Deferral { array: self, log, stripe }.run(pieces).await;
        }
        led.finish(&self.table, &result);
        result
    }

    async fn lead_in_place(&self, led: Group<Led>) -> Result<(), ArrayError> {
        if led.is_empty() {
            return Ok(());
        }
        // As above.
        match cfg!(debug_assertions) {
            true => Box::pin(lock_order::scope(self.lead_in_place_held(led))).await,
            false => self.lead_in_place_held(led).await,
        }
    }

    async fn lead_in_place_held(&self, led: Group<Led>) -> Result<(), ArrayError> {
        let _holding: Group<Holding> =
            led.iter().map(|led| lock_order::took(&*self.table, led.stripe)).collect();
        let group = self.activity.begin_group();
        let sent = match self.clear_way(&led).await {
            Ok(()) => self.send_stripes(led.iter().map(Led::to_write).collect()).await,
            Err(error) => SentStripes::failed(led.len(), &error),
        };
        let mut result = Ok(());
        for (led, stripe) in led.into_iter().zip(sent.stripes) {
            let ended = self.until_in_place(sent.log.as_ref(), stripe).await;
            led.finish(&self.table, &ended);
            result = result.and(ended);
        }
        drop(group);
        result
    }

    /// Destages the pending data of the stripes before anything else is written there.
    async fn clear_way(&self, led: &[Led]) -> Result<(), ArrayError> {
        // The write that this one waited for may have failed half-way.
        self.check_writable()?;
        let Some(destaging) = Destaging::of(self).filter(|_| !self.deferred.pending.is_empty()) else {
            return Ok(());
        };
        for led in led {
            Box::pin(destaging.stripe(led.stripe)).await?;
        }
        Ok(())
    }
}
