//! Scrub and resync: read everything that was written, compare, repair.
//!
//! A scrub reads every unit of every written stripe. What a drive cannot read is reconstructed and
//! written back. Where copies or parity disagree: with two parities, or three copies, the unit that
//! lied is named, repaired from the others and counted against its drive; with one, it cannot be
//! told who is right, so data are taken as they are (of two copies the first) and the rest is made
//! to agree, as after a crash. A *resync* is the same for chunks that a crash left open, where
//! disagreement is nobody's lie: parity is recomputed, or the first copy copied.
//!
//! With checksums every block says by itself whether it is right, in any layout; what is said above
//! is then left for blocks of which nothing is recorded. The pages of checksums are compared with
//! their copies first, because a drive that lost the write of a block may have lost that of its
//! page too.
//!
//! Blocks of which nothing is recorded are those of pages that were lost. Where the others of their
//! row are known to be right they are made to follow from these; and of all that agree with the
//! rest of their row (without redundancy: that could be read) a sum is recorded by a scrub, so that
//! from then on they are verified like all others (`jobs/scrub/recording.rs`).

mod recording;
mod region_check;
mod report;

use crate::array::Array;
use crate::error::ArrayError;
use crate::mutation::{self, Mutation};
use crate::stripes::lock_order;
use region_check::{Purpose, RegionCheck};

pub use report::ScrubReport;

/// Told after each region: regions done, regions in all.
pub type ScrubProgress<'a> = &'a dyn Fn(u64, u64);

impl Array {
    /// Checks and repairs all that was written. Ends early with [`ArrayError::Closed`] when the
    /// array is closed.
    pub async fn scrub(&self, progress: ScrubProgress<'_>) -> Result<ScrubReport, ArrayError> {
        self.scrub_from(0, progress).await
    }

    /// As [`Self::scrub`], from a region on: to go on with one that was interrupted.
    pub(crate) async fn scrub_from(
        &self,
        first_region: u64,
        progress: ScrubProgress<'_>,
    ) -> Result<ScrubReport, ArrayError> {
        let mut report = ScrubReport::default();
        let regions = self.0.regions.count();
        for region in first_region..regions {
            self.scrub_range(region..region + 1, &mut report).await?;
            progress(region + 1, regions);
        }
        self.0.release_records().await?;
        Ok(report)
    }

    /// Checks and repairs some regions; what is found is added to the report.
    pub(crate) async fn scrub_range(
        &self,
        regions: std::ops::Range<u64>,
        report: &mut ScrubReport,
    ) -> Result<(), ArrayError> {
        self.0.check_writable()?;
        for region in regions.start..regions.end.min(self.0.regions.count()) {
            lock_order::scope(RegionCheck::new(&self.0, Purpose::Scrub, report).run(region)).await?;
        }
        Ok(())
    }

    /// Makes copies and parity agree in the chunks that a crash left open. Where members went
    /// meanwhile there is nothing to compare: these chunks stay open ([`Self::needs_resync`]) until
    /// all is there again.
    pub async fn resync(&self, progress: ScrubProgress<'_>) -> Result<ScrubReport, ArrayError> {
        let inner = &self.0;
        inner.check_writable()?;
        let mut report = ScrubReport::default();
        let chunks = inner.regions.intents.unsynced_chunks();
        let total: u64 =
            chunks.iter().map(|&chunk| inner.regions.regions_of_chunk(chunk).count() as u64).sum();
        let mut done = 0;
        let mut all_compared = true;
        for chunk in chunks {
            let without_redundancy = report.regions_without_redundancy;
            for region in inner.regions.regions_of_chunk(chunk) {
                if !mutation::is_chosen(Mutation::ResyncComparesNothing) {
                    lock_order::scope(RegionCheck::new(inner, Purpose::Resync, &mut report).run(region))
                        .await?;
                }
                done += 1;
                progress(done, total);
            }
            if report.regions_without_redundancy == without_redundancy {
                inner.regions.intents.mark_synced(chunk);
            } else {
                all_compared = false;
            }
        }
        inner.unsynced.set(!all_compared);
        inner.start_clearing_intents();
        Ok(report)
    }
}
