//! Completion of a region's first write: fills the stripes that it did not reach with zeros, so
//! that the region counts as written. A partly written region reads as zeros after a crash, so a
//! flush completes it first.

use std::pin::pin;

use futures_util::future::{Either, select};
use stripewise_layout::UnitRange;

use crate::array::Inner;
use crate::error::ArrayError;
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::stripes::lock_order;
use crate::stripes::stripe_table::StripeGuard;
use crate::sums::Recording;

impl Inner {
    /// Writes zeros to every unwritten stripe of a partly written region.
    pub(crate) async fn complete_region(&self, region: u64) -> Result<(), ArrayError> {
        lock_order::scope(self.complete_held_region(region)).await
    }

    /// Locks the unwritten stripes of a partly written region, ahead of other waiters, and without
    /// those that are written in the meantime: their holders may be waiting for space in the
    /// journal, which this caller may have to free.
    async fn hold_unwritten(&self, region: u64) -> Vec<(u64, StripeGuard)> {
        let is_unwritten = |stripe: &u64| {
            self.regions.state(region) == RegionState::Partial && self.regions.is_unwritten(*stripe)
        };
        loop {
            let stripes: Vec<u64> = self.regions.stripes_of(region).filter(is_unwritten).collect();
            let one_is_written = async {
                while stripes.iter().all(is_unwritten) {
                    self.regions.initialised.wait().await;
                }
            };
            let (locking, one_is_written) =
                (pin!(self.table.lock_all_ahead(stripes.clone())), pin!(one_is_written));
            if let Either::Left((guards, _)) = select(locking, one_is_written).await {
                let held = stripes.iter().copied().zip(guards);
                return held.filter(|(stripe, _)| is_unwritten(stripe)).collect();
            }
        }
    }

    async fn complete_held_region(&self, region: u64) -> Result<(), ArrayError> {
        self.check_writable()?;
        let held = self.hold_unwritten(region).await;
        let mut answers = Vec::new();
        for (index, _) in &held {
            let missing = self.columns.missing_in(*index);
            for place in self.geometry.stripe(*index).units {
                if !missing.contains(place.member) {
                    let length = self.geometry.interleave_bytes();
                    let answer = self.columns.submit_zeroes(
                        place.member,
                        Class::Foreground,
                        place.offset_bytes,
                        length,
                    );
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
                    self.sums.record_content(&stripe, range, &self.zeroes, Recording::All).await?;
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
