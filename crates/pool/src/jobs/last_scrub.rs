//! Records for the administrator: findings of the last scrub, findings so far of the running one,
//! and spare allocations. They are shown until newer ones replace them, or [`Pool::clear`]
//! acknowledges them.
//!
//! Drives are recorded by number, so that a changed path does not matter. The records are bounded:
//! for each volume the drives with the most wrong blocks, and the last few spare allocations.

use crate::Pool;
use crate::error::PoolError;
use crate::jobs::ScrubSummary;
use crate::manifest::care::{LastScrub, MAX_BLAMED, ScrubRecord, Takeover};
use crate::manifest::drive_record::{Errors, shortened};
use crate::manifest::format::Manifest;
use crate::manifest::ids::DriveId;
use crate::superblock::commit::Change;
use stripewise_array::ScrubReport;

impl ScrubRecord {
    pub(crate) fn of(summary: &ScrubSummary, manifest: &Manifest) -> Self {
        let ScrubSummary { volume, report, error } = summary;
        let number = |label: &str| {
            let path = shortened(label);
            manifest.drives.iter().find(|drive| drive.path == path).map(|drive| drive.number)
        };
        let mut all: Vec<(Option<u32>, u64)> =
            report.blamed.iter().map(|(label, blocks)| (number(label), *blocks)).collect();
        all.sort_by_key(|(_, blocks)| std::cmp::Reverse(*blocks));
        let (mut blamed, mut others) = (Vec::new(), 0);
        for (number, blocks) in all {
            match number {
                Some(_) if blamed.len() < MAX_BLAMED => blamed.push((number, blocks)),
                _ => others += blocks,
            }
        }
        blamed.extend((others > 0).then_some((None, others)));
        Self {
            volume: volume.clone(),
            checked_bytes: report.checked_bytes,
            blamed,
            unattributed_blocks: report.unattributed_blocks,
            unreadable_strips: report.unreadable_strips,
            regions_without_redundancy: report.regions_without_redundancy,
            checksum_errors: report.checksum_errors,
            pages_repaired: report.pages_repaired,
            pages_lost: report.pages_lost,
            sums_recorded: report.sums_recorded,
            error: error.as_deref().map(shortened),
        }
    }

    pub(crate) fn summary(&self, manifest: &Manifest) -> ScrubSummary {
        let label = |number: &Option<u32>| {
            let drive = number.and_then(|number| manifest.drive(number));
            drive.map_or_else(|| "other drives".to_owned(), |drive| drive.path.clone())
        };
        ScrubSummary {
            volume: self.volume.clone(),
            report: ScrubReport {
                checked_bytes: self.checked_bytes,
                blamed: self.blamed.iter().map(|(number, blocks)| (label(number), *blocks)).collect(),
                unattributed_blocks: self.unattributed_blocks,
                unreadable_strips: self.unreadable_strips,
                regions_without_redundancy: self.regions_without_redundancy,
                checksum_errors: self.checksum_errors,
                pages_repaired: self.pages_repaired,
                pages_lost: self.pages_lost,
                sums_recorded: self.sums_recorded,
                ..ScrubReport::default()
            },
            error: self.error.clone(),
        }
    }
}

impl LastScrub {
    fn of(began_unix_s: u64, ended_unix_s: u64, counted_before: u64, done: &[ScrubRecord]) -> Self {
        let sum = |count: fn(&ScrubRecord) -> u64| done.iter().map(count).fold(0, u64::saturating_add);
        Self {
            began_unix_s,
            ended_unix_s,
            volumes: done.len() as u64,
            checked_bytes: sum(|volume| volume.checked_bytes),
            repaired_blocks: sum(|volume| {
                volume.blamed.iter().fold(0, |sum: u64, (_, blocks)| sum.saturating_add(*blocks))
            }),
            unattributed_blocks: sum(|volume| volume.unattributed_blocks),
            unreadable_strips: sum(|volume| volume.unreadable_strips),
            cut_short: sum(|volume| u64::from(volume.error.is_some())),
            counted_before,
        }
    }
}

impl Manifest {
    /// Ends a scrub that has no volumes left, and records its result. `counted`: number of wrong
    /// blocks counted on all drives.
    pub(crate) fn end_scrub_when_done(&mut self, now_unix_s: u64, counted: u64) {
        let Some(scrub) = self.scrub.take_if(|scrub| scrub.volumes.is_empty()) else { return };
        if scrub.done.is_empty() {
            // All its volumes were deleted before it reached them.
            return;
        }
        let began_unix_s = scrub.began_unix_s.unwrap_or(now_unix_s);
        self.care.last_scrub = Some(LastScrub::of(began_unix_s, now_unix_s, counted, &scrub.done));
        self.patrol.last_unix_s = Some(now_unix_s);
    }
}

impl Pool {
    /// Resets the error counters of one drive or of all, and forgets the spare allocations for it.
    pub async fn clear(&self, drive: Option<DriveId>) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let number = drive.map(|id| inner.manifest.borrow().number_of(id)).transpose()?;
        let is_meant = move |other: u32| number.is_none_or(|number| number == other);
        let counted = inner.drives.counted_wrong_blocks();
        inner.drives.forget_errors(is_meant);
        let cleared = counted.saturating_sub(inner.drives.counted_wrong_blocks());
        inner
            .try_commit(None, move |manifest| {
                for drive in manifest.drives.iter_mut().filter(|drive| is_meant(drive.number)) {
                    drive.errors = Errors::default();
                }
                let is_over =
                    |takeover: &Takeover| drive.is_none_or(|id| id == takeover.drive || id == takeover.spare);
                manifest.care.takeovers.retain(|takeover| !is_over(takeover));
                if let Some(scrub) = &mut manifest.care.last_scrub {
                    scrub.counted_before = scrub.counted_before.saturating_sub(cleared);
                }
                Ok(Change::Commit(()))
            })
            .await
    }

    /// True if a scrub was requested and has not ended.
    pub fn is_scrub_due(&self) -> bool {
        self.0.manifest.borrow().scrub.is_some()
    }
}

impl Takeover {
    /// Records that a spare takes the place of a drive.
    pub(crate) fn by_spare(manifest: &Manifest, old: u32, spare: u32, unix_s: u64) -> Option<Self> {
        let (old, spare) = (manifest.drive(old)?, manifest.drive(spare)?);
        Some(Self {
            unix_s,
            drive: old.id,
            path: old.path.clone(),
            spare: spare.id,
            spare_path: spare.path.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::care::Care;
    use crate::testing::sample;

    #[test]
    fn scrub_result_survives_deletion_of_volumes_left() {
        let mut manifest = sample();
        manifest.care = Care::default();
        manifest.end_scrub_when_done(5, 0);
        assert_eq!(manifest.care.last_scrub, None, "a volume is left to scrub");
        let scrub = manifest.scrub.as_mut().expect("begun");
        scrub.volumes.clear();
        // Figures from a drive are added without overflow.
        scrub.done.extend([1, u64::MAX].map(|checked_bytes| ScrubRecord {
            checked_bytes,
            blamed: vec![(Some(1), 2), (None, u64::MAX)],
            ..ScrubRecord::default()
        }));
        manifest.end_scrub_when_done(5, 7);
        let last = manifest.care.last_scrub.expect("it ended");
        assert_eq!((last.volumes, last.checked_bytes, last.repaired_blocks), (3, u64::MAX, u64::MAX));
        assert_eq!((last.ended_unix_s, last.counted_before, last.is_clean()), (5, 7, false));
        assert_eq!((manifest.scrub, manifest.patrol.last_unix_s), (None, Some(5)));
    }

    #[test]
    fn scrub_of_deleted_volumes_records_no_result() {
        let mut manifest = sample();
        let before = manifest.care.clone();
        let scrub = manifest.scrub.as_mut().expect("begun");
        (scrub.volumes, scrub.done) = (Vec::new(), Vec::new());
        manifest.end_scrub_when_done(5, 0);
        assert_eq!((manifest.scrub, manifest.care), (None, before));
    }

    #[test]
    fn scrub_records_drives_with_most_wrong_blocks() {
        let manifest = sample();
        let mut blamed: Vec<(String, u64)> =
            (1..30).map(|blocks| (format!("gone{blocks}"), blocks)).collect();
        let path = manifest.drives[0].path.clone();
        blamed.push((path.clone(), 1000));
        let report = ScrubReport { blamed, ..ScrubReport::default() };
        let summary = ScrubSummary { volume: "v".to_owned(), report, error: None };
        let record = ScrubRecord::of(&summary, &manifest);
        assert!(record.is_bounded(), "{record:?}");
        let shown = record.summary(&manifest).report.blamed;
        assert_eq!(shown, [(path, 1000), ("other drives".to_owned(), (1..30).sum())]);
    }
}
