//! Write-back: partial stripes are acknowledged when the journal has them, and written in place
//! later.
//!
//! A deferred piece is logged as *data*, kept in memory (`write_back/pending.rs`) and acknowledged.
//! Destaging takes a stripe and puts pending pieces together, as many as pays
//! (`write_back/destage_round.rs`), plans them as one write, logs the new *parity* (replay has the
//! data already) and writes in place. It begins when a stripe has waited for
//! [`crate::tuning::Tuning::destage_hold_ns`], so that neighbours can join it, or at once when the
//! journal fills; oldest records first, since a ring is freed from its oldest end, and within a
//! batch in the order of the drives. Clients that find no room in the journal write in place
//! (`write_back/admission.rs` says when else).
//!
//! A request that writes a stripe in place by another way destages what is pending of it first,
//! under the same lock. So a record of a write in place stands for all data records of its stripe
//! before it.

use std::ops::Range;
use std::rc::Rc;

use futures_util::future::join_all;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, SemaphorePermit};
use stripewise_layout::{Geometry, Stripe, UnitRange};

use crate::array::parts::{StripeParts, UnitParts, covered};
use crate::array::stripe_write::{NewContent, OldData, PutTogether, StripeWrite};
use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::error::ArrayError;
use crate::journal::{Kind, Part, Record};
use crate::log::{Logged, WriteLog};
use crate::member::Class;
use crate::read::recover::HeldStripe;
use crate::stripes::lock_order;
use crate::stripes::stripe_table::{Piece, StripeGuard, StripeTable};
use crate::write_back::destage_round::Shape;
use crate::write_back::pending::{Pending, PendingPiece, Room};

/// After a failure destaging is tried again this much later.
const RETRY_NS: u64 = 100_000_000;
/// Pause before the next look if all stripes are in use, nanoseconds.
const BUSY_NS: u64 = 100_000;

impl Array {
    /// Writes in place all that is acknowledged and only in the journal.
    pub async fn destage(&self) -> Result<(), ArrayError> {
        self.0.destage_all().await
    }

    /// Bytes acknowledged that are not in place yet.
    pub fn pending_bytes(&self) -> u64 {
        self.0.deferred.pending.bytes()
    }
}

/// Pieces of a stripe that the caller leads, on their way to be acknowledged from the journal.
pub(crate) struct Deferral<'a> {
    pub array: &'a Inner,
    pub log: &'a WriteLog,
    pub stripe: &'a Stripe,
}

impl Deferral<'_> {
    /// Logs the pieces and keeps them; they are acknowledged when this ends.
    pub(crate) async fn run(&self, pieces: Vec<(Piece, Room)>) -> Result<(), ArrayError> {
        let Self { array, log, stripe } = *self;
        array.check_writable()?;
        let is_unwritten = array.regions.is_unwritten(stripe.index);
        let mut deferred = Vec::new();
        let mut appends = Vec::new();
        for (piece, room) in pieces {
            let data = self.own_copy(&piece, is_unwritten, &deferred).await?;
            let from = piece.from / BLOCK_BYTES * BLOCK_BYTES;
            let record = data_record(&array.geometry, stripe.index, from, &data);
            appends.push(log.journal.append(vec![record], room.journal));
            deferred.push((from, data, room.memory));
        }
        let mut result = Ok(());
        for ((from, data, memory), sequences) in deferred.into_iter().zip(join_all(appends).await) {
            match sequences {
                Ok(sequences) => {
                    let piece = PendingPiece { from, data, sequence: sequences[0], room: Some(memory) };
                    log.note_data(stripe.index);
                    array.deferred.pending.insert(stripe.index, piece, array.context.now_ns());
                }
                Err(error) => result = Err(error),
            }
        }
        array.start_destaging();
        result
    }

    /// The piece's bytes in memory of the array's own, since the client may use its buffer again;
    /// widened to whole blocks with what the stripe holds now.
    async fn own_copy(
        &self,
        piece: &Piece,
        is_unwritten: bool,
        before: &[(u64, Buffer, SemaphorePermit)],
    ) -> Result<Buffer, ArrayError> {
        let Self { array, stripe, .. } = *self;
        let from = piece.from / BLOCK_BYTES * BLOCK_BYTES;
        let to = piece.to().next_multiple_of(BLOCK_BYTES);
        let whole = if (from, to) == (piece.from, piece.to()) {
            array.buffers.allocate(piece.data.len())
        } else {
            Box::pin(HeldStripe::new(array, stripe, Class::Foreground).complete_blocks(
                piece.from,
                &piece.data,
                is_unwritten,
            ))
            .await?
            .1
        };
        let patches = before.iter().map(|(from, data, _)| (*from, data.clone()));
        let pending = array.deferred.pending.overlapping(stripe.index, from, to);
        for (start, bytes) in pending.into_iter().chain(patches) {
            patch(&whole, from, start, &bytes);
        }
        let at = (piece.from - from) as usize;
        whole.slice(at..at + piece.data.len()).copy_from(&piece.data);
        Ok(whole)
    }
}

/// The writing in place of what is pending.
pub(crate) struct Destaging<'a> {
    array: &'a Inner,
    log: Rc<WriteLog>,
}

impl<'a> Destaging<'a> {
    /// Nothing is pending of an array without a journal.
    pub(crate) fn of(array: &'a Inner) -> Option<Self> {
        Some(Self { array, log: array.log.open()? })
    }

    /// Writes in place what is pending of a stripe that the caller holds alone.
    pub(crate) async fn stripe(&self, index: u64) -> Result<(), ArrayError> {
        let Self { array, log } = self;
        let stripe = array.geometry.stripe(index);
        while let Some((pieces, covers)) = array.deferred.pending.next_round(index, self.shape()) {
            array.deferred.admission.note_round(pieces.len());
            let content = self.put_together(&stripe, &pieces).await?;
            self.write_content(index, content, covers).await?;
            for sequence in array.deferred.pending.remove(index, covers) {
                log.note_applied(Logged { sequence, stripe: index, kind: Kind::Data });
            }
        }
        Ok(())
    }

    /// Writes to a stripe that the caller holds alone what was put together from pending pieces;
    /// the journal has the data up to the record `covers`.
    async fn write_content(&self, index: u64, content: NewContent, covers: u64) -> Result<(), ArrayError> {
        let array = self.array;
        array.check_writable()?;
        let write =
            StripeWrite { index, content, fua: false, class: Class::Foreground, covers: Some(covers) };
        let sent = array.send_stripes(SmallVec::from_iter([write])).await;
        let mut result = Ok(());
        for stripe in sent.stripes {
            result = array.until_in_place(sent.log.as_ref(), stripe).await;
        }
        result
    }

    fn shape(&self) -> Shape {
        let array = self.array;
        Shape {
            interleave_bytes: array.geometry.interleave_bytes(),
            parity_units: array.geometry.parity_units() as u64,
            request_bytes: array.columns.write_policy().least_gap_bytes,
        }
    }

    /// As [`Self::stripe`], of those of a range, which the caller holds.
    pub(crate) async fn held(&self, stripes: Range<u64>) -> Result<(), ArrayError> {
        for stripe in self.array.deferred.pending.stripes_in(stripes) {
            self.stripe(stripe).await?;
        }
        Ok(())
    }

    /// For each data unit one contiguous range that covers what is pending; what lies between
    /// pieces is read.
    async fn put_together(
        &self,
        stripe: &Stripe,
        pieces: &[(u64, Buffer)],
    ) -> Result<NewContent, ArrayError> {
        let array = self.array;
        let interleave = array.geometry.interleave_bytes();
        let is_unwritten = array.regions.is_unwritten(stripe.index);
        let mut parts = StripeParts::new();
        let mut old = OldData::new();
        let mut changed: SmallVec<[(u64, u64); 8]> = SmallVec::new();
        for unit in 0..array.geometry.data_units() {
            let base = unit as u64 * interleave;
            let mut ranges: Vec<(u64, u64)> = pieces
                .iter()
                .map(|(from, data)| ((*from).max(base), (from + data.len() as u64).min(base + interleave)))
                .filter(|(start, end)| start < end)
                .collect();
            ranges.sort_unstable();
            changed.extend(ranges.iter().map(|(start, end)| (start - base, end - base)));
            let mut unit_parts = UnitParts::new();
            if let Some(&(start, _)) = ranges.first() {
                let end = ranges.iter().map(|(_, end)| *end).max().expect("not empty");
                let whole = array.buffers.allocate((end - start) as usize);
                if has_gap(&ranges) {
                    match is_unwritten {
                        true => whole.fill(0),
                        false => {
                            Box::pin(fetch_gap(array, stripe, start, &whole)).await?;
                            let before = array.buffers.allocate(whole.len());
                            before.copy_from(&whole);
                            old.push((UnitRange { unit, start: start - base, end: end - base }, before));
                        }
                    }
                }
                for (from, data) in pieces {
                    patch(&whole, start, *from, data);
                }
                unit_parts.push((start - base, whole));
            }
            parts.push(unit_parts);
        }
        let changed = covered(changed.into_iter());
        Ok(NewContent::Parts(Box::new(PutTogether { parts, changed, old, plan: None })))
    }

    /// Writes the oldest pending stripes in place and flushes the drives. It waits for no request
    /// that may wait for room in the journal, for that comes from here.
    async fn batch(array: &Inner) -> Result<(), ArrayError> {
        let Some(destaging) = Destaging::of(array) else { return Ok(()) };
        let held = hold_oldest(&array.deferred.pending, &array.table, array.destage_stripes_at_a_time());
        if held.is_empty() {
            array.context.sleep_ns(BUSY_NS).await;
        }
        let in_place = async |(stripe, guard): (u64, StripeGuard)| {
            let result = destaging.stripe(stripe).await;
            // A task that waits for it need not wait for the others.
            drop(guard);
            result
        };
        let stripes = held.into_iter().map(in_place);
        join_all(stripes).await.into_iter().collect::<Result<Vec<()>, _>>()?;
        array.flush_members().await
    }
}

impl Inner {
    /// Number of stripes that are destaged together.
    fn destage_stripes_at_a_time(&self) -> usize {
        self.columns.write_policy().destaged_together(self.options.tuning.destage_stripes)
    }

    /// Destages stripes to which nothing is written any more.
    pub(crate) async fn destage_stripes(&self, stripes: Range<u64>) -> Result<(), ArrayError> {
        let Some(destaging) = Destaging::of(self) else { return Ok(()) };
        for stripe in self.deferred.pending.stripes_in(stripes) {
            let of_stripe = async {
                let _alone = self.table.lock(stripe).await;
                destaging.stripe(stripe).await
            };
            lock_order::scope(of_stripe).await?;
        }
        Ok(())
    }

    pub(crate) async fn destage_all(&self) -> Result<(), ArrayError> {
        while !self.deferred.pending.is_empty() {
            self.check_writable()?;
            lock_order::scope(Destaging::batch(self)).await?;
        }
        self.flush().await
    }

    /// Writes in place all data pending now, and has the journal release what is in place. Data
    /// that arrives during this is not waited for.
    pub(crate) async fn destage_logged(&self) -> Result<(), ArrayError> {
        let newest = self.deferred.pending.newest_sequence().unwrap_or(0);
        while self.deferred.pending.oldest_sequence().is_some_and(|oldest| oldest <= newest) {
            self.check_writable()?;
            lock_order::scope(Destaging::batch(self)).await?;
        }
        self.flush().await?;
        self.release_records().await
    }

    /// Has the journal forget what it holds of stripes that no request writes now and whose
    /// contents no longer matter: replayed later, it would come over what is written there next.
    pub(crate) async fn forget_logged(&self, stripes: Range<u64>) -> Result<(), ArrayError> {
        let Some(log) = self.log.open() else { return Ok(()) };
        if !log.has_any(stripes.clone()) {
            // Released records are still found after a crash until the release is durable; a batch
            // in flight that has it does not suffice.
            return log.journal.mark_releases().await;
        }
        for stripe in self.deferred.pending.stripes_in(stripes.clone()) {
            for sequence in self.deferred.pending.remove(stripe, u64::MAX) {
                log.note_applied(Logged { sequence, stripe, kind: Kind::Data });
            }
        }
        // Not all that a flush does: it would wait for stripes that the caller may hold.
        self.flush_members().await?;
        log.forget_early(stripes);
        self.release_records().await?;
        log.journal.mark().await
    }

    /// Starts the task that destages, unless it runs. It ends when nothing is pending.
    pub(crate) fn start_destaging(&self) {
        if self.deferred.is_destaging.get()
            || self.lifecycle.is_closed()
            || self.deferred.pending.is_empty()
            || self.log.has_replayed()
        {
            return;
        }
        self.deferred.is_destaging.set(true);
        let Some(inner) = self.me.upgrade() else { return };
        self.context.spawn(async move {
            while !inner.deferred.pending.is_empty()
                && !inner.lifecycle.is_closed()
                && inner.lifecycle.stopped().is_none()
            {
                if let Some(log) = inner.log.open()
                    && let Some(wait_ns) =
                        inner.deferred.pause_ns(&log, &inner.options.tuning, inner.context.now_ns())
                {
                    let pressure = std::pin::pin!(log.journal.pressure().wait());
                    if inner.context.time_limit_ns(wait_ns, pressure).await.is_err() {
                        continue;
                    }
                }
                if lock_order::scope(Destaging::batch(&inner)).await.is_err() {
                    // It stays in the journal, and is tried again: drives may have been excluded
                    // since.
                    inner.context.sleep_ns(RETRY_NS).await;
                } else if let Some(log) = inner.log.open() {
                    // Regions written for the first time have to be known as written before the
                    // journal may forget.
                    inner.start_marking_regions(&log);
                }
            }
            inner.deferred.is_destaging.set(false);
        });
    }
}

/// Reads what lies between pending pieces of a unit; blocks that no drive has any more are poisoned
/// first, so that what is pending around them comes into place.
async fn fetch_gap(array: &Inner, stripe: &Stripe, from: u64, target: &Buffer) -> Result<(), ArrayError> {
    loop {
        let lost = match HeldStripe::new(array, stripe, Class::Foreground).fetch_data(from, target).await {
            Err(lost @ ArrayError::Lost { .. }) => lost,
            result => return result,
        };
        let start = from % array.geometry.interleave_bytes();
        let strip = (start, start + target.len() as u64);
        array.poison_lost_blocks(stripe, strip, (Class::Foreground, true), lost).await?;
    }
}

/// The record of bytes of a stripe's data.
fn data_record(geometry: &Geometry, stripe: u64, from: u64, data: &Buffer) -> Record {
    let mut at = 0;
    let mut parts = SmallVec::new();
    for range in geometry.data_ranges(from, from + data.len() as u64) {
        let length = range.length() as usize;
        let segments = SmallVec::from_iter([data.slice(at..at + length)]);
        parts.push(Part { unit: range.unit as u16, start: range.start as u32, segments });
        at += length;
    }
    Record { sequence: 0, kind: Kind::Data, stripe, covers: 0, parts, sums: Vec::new() }
}

/// The oldest pending stripes that are idle, or reserved. Others are not waited for: what
/// writes one in place has destaged it before, and may be waiting for room; what else has one
/// waits for no room (`stripes/lock_order.rs`).
fn hold_oldest(pending: &Pending, table: &Rc<StripeTable>, most: usize) -> Vec<(u64, StripeGuard)> {
    let oldest = pending.oldest(2 * most);
    let free = oldest.iter().filter_map(|&stripe| Some((stripe, table.try_lock(stripe)?)));
    let mut held: Vec<(u64, StripeGuard)> = free.take(most).collect();
    // In the order in which they lie on the drives.
    held.sort_unstable_by_key(|(stripe, _)| *stripe);
    held
}

/// Puts the bytes that begin at `start` over a buffer that begins at `at`, as far as they lie in
/// it.
pub(crate) fn patch(target: &Buffer, at: u64, start: u64, bytes: &Buffer) {
    let end = start + bytes.len() as u64;
    let (from, to) = (start.max(at), end.min(at + target.len() as u64));
    if from < to {
        let source = bytes.slice((from - start) as usize..(to - start) as usize);
        target.slice((from - at) as usize..(to - at) as usize).copy_from(&source);
    }
}

fn has_gap(sorted: &[(u64, u64)]) -> bool {
    let mut end = sorted[0].1;
    sorted.iter().any(|&(start, to)| {
        let gap = start > end;
        end = end.max(to);
        gap
    })
}
