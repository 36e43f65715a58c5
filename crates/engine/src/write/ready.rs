//! What must be there before anything is written to a stripe: slabs for its row, checksum pages in
//! which nothing is recorded yet, and a durable mark that writes are under way. And the other end
//! of a region's first writes: what none of them reached is filled with zeros, so that the region
//! counts as written.

use std::pin::pin;

use futures_util::future::{Either, select};
use smallvec::SmallVec;
use stripewise_layout::UnitRange;

use crate::array::Inner;
use crate::error::ArrayError;
use crate::lock_order;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::regions::{RegionState, WriteIntent};
use crate::stripe_table::StripeGuard;
use crate::sums::Recording;
use crate::write::work::Work;

impl Inner {
    /// Has slabs allocated for rows that have none: a thin volume's first write there.
    pub(super) async fn fill_holes(&self, works: &[Box<Work>]) -> Result<(), ArrayError> {
        for work in works {
            let row = self.row_of(work.index);
            if self.rows.borrow().is_hole(row) {
                self.host.allocate_rows(self.spec.id, row, 1).await.map_err(ArrayError::NoSpace)?;
            }
        }
        Ok(())
    }

    /// Regions that are written for the first time begin with checksum pages in which nothing is
    /// recorded.
    pub(super) async fn begin_sums_of(&self, works: &[Box<Work>]) -> Result<(), ArrayError> {
        for work in works {
            self.begin_region_sums(self.regions.region_of(work.index)).await?;
        }
        Ok(())
    }

    /// Counts the writes in and makes their chunks' dirty marks durable where they are not.
    pub(super) async fn mark_dirty(&self, works: &mut [Box<Work>]) -> Result<(), ArrayError> {
        let mut pages: SmallVec<[usize; 2]> = SmallVec::new();
        for work in works {
            let region = self.regions.region_of(work.index);
            let away = self.is_column_away(self.row_of(work.index));
            let (intent, needs_mark) = WriteIntent::new(&self.regions, region, away);
            work.intent = Some(intent);
            let page = self.regions.page_of(region);
            let needs_mark = needs_mark && !mutation::is_chosen(Mutation::WriteBeforeDirtyMark);
            if needs_mark && !pages.contains(&page) {
                pages.push(page);
            }
        }
        for page in pages {
            self.persist_page(page).await?;
        }
        Ok(())
    }

    /// Writes zeros to every stripe of a partly initialised region that was not written yet.
    pub async fn complete_region(&self, region: u64) -> Result<(), ArrayError> {
        lock_order::scope(self.complete_held_region(region)).await
    }

    /// Takes the stripes of a partly initialised region that were not written yet. Ahead of others,
    /// and without those that are written meanwhile: what has them then may be waiting for room in
    /// the journal, which may come from here.
    async fn hold_virgin(&self, region: u64) -> Vec<(u64, StripeGuard)> {
        let is_virgin = |stripe: &u64| {
            self.regions.state(region) == RegionState::Partial && self.regions.is_virgin(*stripe)
        };
        loop {
            let stripes: Vec<u64> = self.regions.stripes_of(region).filter(is_virgin).collect();
            let one_is_written = async {
                while stripes.iter().all(is_virgin) {
                    self.regions.initialised.wait().await;
                }
            };
            let (locking, one_is_written) =
                (pin!(self.table.lock_all_ahead(stripes.clone())), pin!(one_is_written));
            if let Either::Left((guards, _)) = select(locking, one_is_written).await {
                let held = stripes.iter().copied().zip(guards);
                return held.filter(|(stripe, _)| is_virgin(stripe)).collect();
            }
        }
    }

    async fn complete_held_region(&self, region: u64) -> Result<(), ArrayError> {
        self.check_writable()?;
        let held = self.hold_virgin(region).await;
        let mut answers = Vec::new();
        for (index, _) in &held {
            let missing = self.missing_in(*index);
            for place in self.geometry.stripe(*index).units {
                if !missing.contains(place.member) {
                    let length = self.geometry.interleave_bytes();
                    let answer =
                        self.submit_zeroes(place.member, Class::Foreground, place.offset_bytes, length);
                    answers.push(answer);
                }
            }
        }
        let mut result = Ok(());
        for answer in answers {
            if let Err(error) = answer.await {
                result = result.and(self.note_write_error(&error).await);
            }
        }
        result.and(self.check_writable())?;
        if self.sums.get().is_some() {
            for (index, _) in &held {
                let stripe = self.geometry.stripe(*index);
                for unit in 0..stripe.units.len() {
                    let range = UnitRange { unit, start: 0, end: self.geometry.interleave_bytes() };
                    self.record_content(&stripe, range, &self.zeroes, Recording::All).await?;
                }
            }
        }
        for (index, guard) in held {
            self.regions.mark_initialised(index);
            drop(guard);
        }
        Ok(())
    }
}
