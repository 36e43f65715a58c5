//! Scrub and resync: read everything that was written, compare, repair.
//!
//! A scrub reads every unit of every written stripe. What a drive cannot read is reconstructed and
//! written back. Where copies or parity disagree: with two parities, or three copies, the wrong
//! unit is identified, repaired from the others and counted against its drive. With one parity, or
//! two copies, the wrong one cannot be identified: the data (of two copies the first) are taken as
//! they are and the rest is made to match, as after a crash. A *resync* does the same for chunks
//! that a crash left open, where a disagreement is no drive's fault: parity is recomputed, or the
//! first copy is copied.
//!
//! With checksums every block proves its own content, in any layout. The rules above then apply
//! only to blocks without a recorded checksum. The pages of checksums are compared with their
//! copies first, because a drive that lost the write of a block may also have lost that of its
//! page.
//!
//! Blocks without a recorded checksum are those of lost pages. Where the other blocks of their row
//! are verified, they are recomputed from these. A scrub also records a checksum for each block
//! that agrees with the rest of its row (without redundancy: each that could be read), so that it
//! is verified like all others from then on (`jobs/scrub/recording.rs`).

mod check;
mod recording;
mod region_check;
mod report;

use crate::array::Array;
use crate::error::ArrayError;
use crate::mutation::{self, Mutation};
use crate::stripes::lock_order;
use region_check::{Purpose, RegionCheck};

pub use report::{PlaceFault, ScrubReport, WrongPlace};

/// Progress callback, called after each region with the regions done and the total.
pub type ScrubProgress<'a> = &'a dyn Fn(u64, u64);

impl Array {
    /// Checks and repairs all written data. Stops early with [`ArrayError::Closed`] if the array is
    /// closed.
    pub async fn scrub(&self, progress: ScrubProgress<'_>) -> Result<ScrubReport, ArrayError> {
        self.scrub_from(0, progress).await
    }

    /// As [`Self::scrub`], starting at a region: resumes an interrupted scrub.
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

    /// Checks and repairs a range of regions, and adds the findings to the report.
    pub async fn scrub_range(
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

    /// Reads and compares a range of regions, and adds what it finds to the report, with places.
    /// Writes nothing, counts nothing against a drive and excludes none. Chunks that a crash left
    /// open are not compared.
    pub async fn inspect_range(
        &self,
        regions: std::ops::Range<u64>,
        report: &mut ScrubReport,
    ) -> Result<(), ArrayError> {
        for region in regions.start..regions.end.min(self.0.regions.count()) {
            lock_order::scope(RegionCheck::new(&self.0, Purpose::Check, report).run(region)).await?;
        }
        Ok(())
    }

    /// Makes copies and parity agree in the chunks that a crash left open. Chunks that cannot be
    /// compared because members are missing stay open ([`Self::needs_resync`]) until all members
    /// are back.
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
