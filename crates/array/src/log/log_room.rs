//! Journal space for writes: how a write gets some, and when a record can be released.
//!
//! A record can be released when its effects are durable in place: a flush of the drives that began
//! after the writes has ended, and the map on the drives has the region as written; with checksums
//! also when a checkpoint has made the pages durable ([`Inner::release_records`]). So a write that
//! finds no space waits until a task of this file has flushed and released enough. `log/mod.rs`
//! tracks the records.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use crate::array::Inner;
use crate::error::ArrayError;
use crate::journal::Kind;
use crate::log::{Logged, WriteLog};
use crate::map::regions::RegionState;
use crate::mutation::{self, Mutation};
use futures_util::future::{Either, select};

/// Pause between flushes while a write waits for space in the journal.
const ROOM_PAUSE_NS: u64 = 1_000_000;

/// While a write waits, releases that free little may take at most one part in this many of the
/// time.
const RELEASE_FACTOR: u64 = 5;

impl Inner {
    /// Waits for a reservation. If it is not granted at once, starts the task that frees space.
    /// Fails if none can be freed, because the array takes no more writes.
    pub(crate) async fn wait_for_room<T>(
        &self,
        log: &Rc<WriteLog>,
        reservation: impl Future<Output = Result<T, ArrayError>>,
    ) -> Result<T, ArrayError> {
        let mut reservation = pin!(reservation);
        let at_once = poll_fn(|context| Poll::Ready(reservation.as_mut().poll(context))).await;
        if let Poll::Ready(room) = at_once {
            return room;
        }
        let denied = pin!(log.room_denied.wait());
        log.waiting.set(log.waiting.get() + 1);
        self.start_making_room(log);
        let room = match select(reservation, denied).await {
            Either::Left((room, _)) => room,
            Either::Right(_) => Err(self.lifecycle.stopped().unwrap_or(ArrayError::Protected)),
        };
        log.waiting.set(log.waiting.get() - 1);
        room
    }

    fn start_making_room(&self, log: &Rc<WriteLog>) {
        let Some(inner) = self.me.upgrade().filter(|_| !log.making_room.replace(true)) else { return };
        self.context.spawn(async move {
            let Some(log) = inner.log.open() else { return };
            let mut next_release_ns = 0;
            while log.waiting.get() > 0 && inner.lifecycle.stopped().is_none() {
                inner.start_destaging();
                inner.start_marking_regions(&log);
                // A release takes as long however little it frees, and on a disk a flush costs a
                // seek, so both wait while destaging progresses towards freeing more.
                let oldest_pending = inner.deferred.pending.oldest_sequence();
                let held = log.journal.held(oldest_pending);
                let gives_much = held.bytes_before * 8 >= held.ring_bytes;
                let began_ns = inner.context.now_ns();
                if gives_much || oldest_pending.is_none() || began_ns >= next_release_ns {
                    // A failed flush is reported when a client flushes. Writes in flight are not in
                    // place yet.
                    let _ = inner.flush_members().await;
                    let _ = inner.release_records().await;
                    let took_ns = inner.context.now_ns() - began_ns;
                    next_release_ns = began_ns.saturating_add(took_ns.saturating_mul(RELEASE_FACTOR));
                }
                inner.context.sleep_ns(ROOM_PAUSE_NS).await;
            }
            log.making_room.set(false);
            if inner.lifecycle.stopped().is_some() {
                log.room_denied.notify_all();
            }
        });
    }

    /// Records of new regions can be released only when the map has those regions as written. Runs
    /// in a task of its own, since it waits for stripes whose holders may wait for space that only
    /// a flush of the drives can free.
    pub(crate) fn start_marking_regions(&self, log: &WriteLog) {
        let is_any_new = self.regions.has_fresh() || self.regions.partial_count() > 0 || log.has_any_early();
        // A repaired block is recorded together with them.
        let is_any = is_any_new || self.bad.has_unrecorded_repairs();
        if !is_any || log.marking_regions.replace(true) {
            return;
        }
        let Some(inner) = self.me.upgrade() else { return };
        self.context.spawn(async move {
            let _ = inner.flush().await;
            if let Some(log) = inner.log.open() {
                log.marking_regions.set(false);
            }
        });
    }

    /// Notes that a logged write is in place, durably with `fua`.
    pub(crate) async fn note_in_place(
        &self,
        log: &Rc<WriteLog>,
        logged: Logged,
        fua: bool,
    ) -> Result<(), ArrayError> {
        if fua && logged.kind == Kind::Intent {
            Box::pin(self.note_durable_intent(log, logged)).await?;
        } else {
            log.note_applied(logged);
        }
        if self.can_make_room(log) && !log.checkpointing.replace(true) {
            let Some(inner) = self.me.upgrade() else { return Ok(()) };
            let log = log.clone();
            self.context.spawn(async move {
                // Repeat until there is space: a write that waits for it does not call this. A
                // failed flush is reported when a client flushes.
                while inner.can_make_room(&log)
                    && inner.flush_members().await.is_ok()
                    && inner.release_records().await.is_ok()
                {}
                log.checkpointing.set(false);
            });
        }
        Ok(())
    }

    async fn note_durable_intent(&self, log: &WriteLog, logged: Logged) -> Result<(), ArrayError> {
        if log.is_alone(logged.stripe) {
            log.note_durable(vec![logged]);
        } else {
            log.note_applied(logged);
            // Older records of the stripe must not outlive the intent.
            self.flush_members().await?;
        }
        log.mark().await
    }

    /// True if it is time to release records and would help: a ring is freed from its oldest end,
    /// and only destaging can do that if the oldest record is pending.
    fn can_make_room(&self, log: &WriteLog) -> bool {
        let oldest = log.journal.oldest();
        let pending = self.deferred.pending.oldest_sequence();
        oldest.is_some() && oldest != pending && log.is_filling(pending, self.full_quarters())
    }

    /// Quarters of the journal in use at which space is freed.
    fn full_quarters(&self) -> u64 {
        self.columns.write_policy().full_quarters(self.sums.get().is_some())
    }

    /// Flushes the drives; records of the writes that they acknowledged before can be released
    /// then.
    pub(crate) async fn flush_members(&self) -> Result<(), ArrayError> {
        let Some(log) = self.log.open() else { return self.flush_drives().await };
        // One flush at a time, since records of one stripe must be released in order.
        let Some(round) = log.flushes.begin().await else { return Ok(()) };
        let applied = log.take_applied();
        let flushed = match mutation::is_chosen(Mutation::ReleaseBeforeFlush) {
            true => Ok(()),
            false => self.flush_drives().await,
        };
        match flushed {
            Ok(()) => {
                // Data that a crash would leave as zeros or as lost is still needed, and with it
                // every later record of the stripe: it must not be replayed alone.
                let is_early =
                    |logged: &Logged| !self.is_recorded(logged.stripe) || log.has_early(logged.stripe);
                let (early, durable) = applied.into_iter().partition(is_early);
                log.note_early(early);
                log.note_durable(durable);
                round.ends_well();
            }
            Err(_) => log.put_back(applied),
        }
        flushed
    }

    /// True if a stripe's contents in place survive a crash: the map has its region as written, and
    /// the pool lists none of its blocks as lost that was rewritten since.
    fn is_recorded(&self, stripe: u64) -> bool {
        let region = self.regions.region_of(stripe);
        let is_written = region >= self.regions.count() || self.regions.state(region) == RegionState::Written;
        is_written && !self.bad.is_repair_unrecorded(&self.geometry, stripe)
    }

    /// Releases the records that were waiting for the map on the drives or for the pool's record of
    /// lost blocks; called after both were updated.
    pub(crate) fn release_early(&self) {
        let Some(log) = self.log.open() else { return };
        let (known, early) = log.take_early().into_iter().partition(|logged| self.is_recorded(logged.stripe));
        log.note_early(early);
        log.note_durable(known);
    }
}
