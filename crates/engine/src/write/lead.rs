//! What the leader of stripes does with the pieces that wait there, step by step: acknowledge them
//! from the journal, or write them in place. The stripes are his until he leaves them, whatever
//! became of the write.

use std::rc::Rc;

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use stripewise_layout::Stripe;

use crate::array::Inner;
use crate::error::ArrayError;
use crate::lock_order::{self, Holding};
use crate::write::UnitParts;
use crate::write::work::{Work, Works};
use crate::write_log::WriteLog;

impl Inner {
    /// Carries out the pieces that wait in stripes the caller leads, and leaves the stripes. The
    /// result is of all of them.
    pub(super) async fn lead(&self, stripes: &[u64]) -> Result<(), ArrayError> {
        let works: Works = stripes.iter().map(|&stripe| self.begin(stripe)).collect();
        let Some(log) = self.write_log() else {
            return self.lead_in_place(works).await;
        };
        let (later, now): (Works, Works) = works.into_iter().partition(|work| self.is_deferrable(work));
        // Stripes never written need no room in the journal, and must not wait for those that do: a
        // flush that makes room may have to wait for them. Where something is pending of one, that
        // is written first, and then it needs room.
        let is_new = |index: u64| self.regions.is_virgin(index) && !self.pending.has_stripe(index);
        let (new, others): (Works, Works) = now.into_iter().partition(|work| is_new(work.index));
        if later.is_empty() && (new.is_empty() || others.is_empty()) {
            return self.lead_in_place(if new.is_empty() { others } else { new }).await;
        }
        Box::pin(self.lead_apart(&log, later, new, others)).await
    }

    async fn lead_apart(
        &self,
        log: &WriteLog,
        later: Works,
        new: Works,
        others: Works,
    ) -> Result<(), ArrayError> {
        let deferring = join_all(later.into_iter().map(|work| self.lead_deferred(log, work)));
        let in_place = join(self.lead_in_place(new), self.lead_in_place(others));
        let (deferred, (first, second)) = join(deferring, in_place).await;
        deferred.into_iter().fold(first.and(second), Result::and)
    }

    /// Part of a stripe, all of it with room to be deferred.
    fn is_deferrable(&self, work: &Work) -> bool {
        let bytes: u64 = work.taken.iter().map(|(_, piece)| piece.data.len() as u64).sum();
        self.write_back
            && bytes < self.geometry.stripe_data_bytes()
            && work.taken.iter().all(|(_, piece)| piece.room.is_some())
    }

    /// Acknowledges pieces of a stripe from the journal, and leaves the stripe.
    async fn lead_deferred(&self, log: &WriteLog, work: Box<Work>) -> Result<(), ArrayError> {
        // Boxed, so that release builds have no future of this kind in theirs.
        match cfg!(debug_assertions) {
            true => Box::pin(lock_order::scope(self.lead_deferred_held(log, work))).await,
            false => self.lead_deferred_held(log, work).await,
        }
    }

    async fn lead_deferred_held(&self, log: &WriteLog, work: Box<Work>) -> Result<(), ArrayError> {
        let _holding = lock_order::took(&self.table, work.index);
        let pieces = work.taken.iter().map(|(_, piece)| {
            let room = piece.room.as_ref().and_then(|room| room.take()).expect("a deferrable piece has room");
            (piece.clone(), room)
        });
        let pieces = pieces.collect();
        let mut result = self.fill_holes(std::slice::from_ref(&work)).await;
        if result.is_ok() {
            result = self.defer(log, &work.stripe, pieces).await;
        }
        for (ticket, _) in &work.taken {
            ticket.finish(result.clone());
        }
        self.table.leave(work.index);
        result
    }

    async fn lead_in_place(&self, works: Works) -> Result<(), ArrayError> {
        if works.is_empty() {
            return Ok(());
        }
        // As above.
        match cfg!(debug_assertions) {
            true => Box::pin(lock_order::scope(self.lead_in_place_held(works))).await,
            false => self.lead_in_place_held(works).await,
        }
    }

    async fn lead_in_place_held(&self, mut works: Works) -> Result<(), ArrayError> {
        let _holding: SmallVec<[Holding; 1]> =
            works.iter().map(|work| lock_order::took(&self.table, work.index)).collect();
        let group = self.activity.begin_group();
        // What waited for its stripe may have waited for one of which a write failed half-way.
        let mut marked = self.check_writable();
        if marked.is_ok() {
            marked = self.destage_first(&works).await;
        }
        if marked.is_ok() {
            marked = self.fill_holes(&works).await;
        }
        if marked.is_ok() {
            marked = self.begin_sums_of(&works).await;
        }
        if marked.is_ok() {
            marked = self.mark_dirty(&mut works).await;
        }
        let mut result = Ok(());
        for work in &mut works {
            work.result = marked.clone();
            if work.result.is_ok() {
                work.result = self.prepare(work).await;
            }
        }
        let is_logged = self.geometry.parity_units() > 0 || self.sums.get().is_some();
        let log = self.write_log().filter(|_| is_logged);
        let _pages = self.load_pages(&mut works).await;
        for work in &mut works {
            if work.result.is_ok() {
                work.result = self.read_and_compute(work).await;
            }
            if work.result.is_ok() && log.is_none() {
                self.send_writes(work);
            }
        }
        if let Some(log) = &log {
            self.log_in_portions(log, &mut works).await;
        }
        for mut work in works {
            self.put_in_place(log.as_ref(), &mut work).await;
            drop(work.intent);
            for (ticket, _) in &work.taken {
                ticket.finish(work.result.clone());
            }
            self.table.leave(work.index);
            result = result.and(work.result);
        }
        drop(group);
        result
    }

    /// What is pending of the stripes goes in place before anything else does.
    async fn destage_first(&self, works: &[Box<Work>]) -> Result<(), ArrayError> {
        let Some(log) = self.write_log().filter(|_| !self.pending.is_empty()) else { return Ok(()) };
        for work in works {
            Box::pin(self.destage_held(&log, work.index)).await?;
        }
        Ok(())
    }

    /// Writes new data that was put together from pending pieces to a stripe that the caller holds
    /// alone; the journal has the data up to the record `covers`.
    pub async fn write_parts(
        &self,
        log: &Rc<WriteLog>,
        stripe: Stripe,
        parts: SmallVec<[UnitParts; 8]>,
        covers: u64,
    ) -> Result<(), ArrayError> {
        self.check_writable()?;
        let mut works = [Box::new(Work { parts, covers: Some(covers), ..Work::of(stripe) })];
        self.fill_holes(&works).await?;
        self.begin_sums_of(&works).await?;
        self.mark_dirty(&mut works).await?;
        let work = &mut works[0];
        work.virgin = self.regions.is_virgin(work.index);
        if work.virgin {
            for parts in &mut work.parts {
                self.pad_with_zeroes(parts);
            }
        }
        self.plan(work)?;
        let _pages = self.load_pages(&mut works).await;
        let work = &mut works[0];
        std::mem::replace(&mut work.result, Ok(()))?;
        self.read_and_compute(work).await?;
        self.log_and_send(log, &mut works).await;
        let work = &mut works[0];
        std::mem::replace(&mut work.result, Ok(()))?;
        self.finish_writes(work).await?;
        self.regions.mark_initialised(work.index);
        if let Some(logged) = work.logged {
            log.note_applied(logged);
        }
        Ok(())
    }
}
