//! A check: reads and compares all data and reports the places that are wrong, without writing
//! anything. It belongs to its caller: nothing of it is recorded, and it ends with the caller.
//!
//! Faults expected: volumes that are deleted or converted during the check, the pool is closed,
//! drives that fail (they are not excluded by a check).

use crate::error::PoolError;
use crate::jobs::kind::JobKind;
use crate::jobs::scrub::Pace;
use crate::jobs::{Progress, SECOND_NS, ScrubSummary};
use crate::manifest::ids::{Id, VolumeId};
use crate::manifest::slice_record::SliceRecord;
use crate::status::activity::Activity;
use crate::volume::part_array::PartArray;
use crate::{Inner, Pool};
use stripewise_array::{ArrayError, ScrubReport};

impl Pool {
    /// Checks all volumes, no faster than the scrub rate. Calls `on_progress` after each region.
    pub async fn check(&self, on_progress: &dyn Fn(Activity)) -> Result<Vec<ScrubSummary>, PoolError> {
        let inner = &self.0;
        inner.check_open()?;
        let volumes: Vec<VolumeId> = inner.manifest.borrow().volumes.iter().map(|volume| volume.id).collect();
        let mut summaries = Vec::new();
        for volume in volumes {
            let found = inner.manifest.borrow().volume_by_id(volume).map(|volume| {
                let parts = volume.parts.iter().map(|part| (part.id, part.slice));
                (volume.name.clone(), parts.collect::<Vec<(Id, Option<SliceRecord>)>>())
            });
            // Deleted in the meantime.
            let Some((name, parts)) = found else { continue };
            let mut report = ScrubReport::default();
            let mut error = None;
            for (part, slice) in parts {
                let Some(array) = inner.volumes.array_or_log(part) else {
                    error = Some("it cannot be read".to_owned());
                    continue;
                };
                let mut of_part = ScrubReport::default();
                let checked = inner.check_part(&array, &name, &mut of_part, on_progress).await;
                if let Some(slice) = slice {
                    for place in &mut of_part.places {
                        place.offset_bytes =
                            slice.slicing().volume_offset(slice.number as usize, place.offset_bytes);
                    }
                }
                report.add(&of_part);
                match checked {
                    Ok(()) => {}
                    Err(ArrayError::Closed) if inner.lifecycle.is_closed() => {
                        return Err(PoolError::Closed { pool: inner.name() });
                    }
                    // Removed during its check: by the deletion of the volume, or the end of its
                    // conversion.
                    Err(_) if !inner.manifest.borrow().has_part(part) => {}
                    Err(failure) => error = Some(failure.to_string()),
                }
            }
            summaries.push(ScrubSummary { volume: name, report, error });
        }
        Ok(summaries)
    }
}

impl Inner {
    async fn check_part(
        &self,
        array: &PartArray,
        volume: &str,
        report: &mut ScrubReport,
        on_progress: &dyn Fn(Activity),
    ) -> Result<(), ArrayError> {
        let progress = Progress::default();
        let (written_bytes, regions) = (array.written_bytes(), array.regions());
        progress.total_bytes.set(written_bytes as f64);
        let per_region = progress.total_bytes.get() / regions.max(1) as f64;
        let (mut pace, mut sampled_ns) = (Pace::of(self), None);
        for region in 0..regions {
            pace.wait(self).await?;
            let (found, inspected) = array.compare_region(region, false).await;
            report.add(&found);
            inspected?;
            pace.charge(self, found.checked_bytes);
            progress.add(per_region);
            let now_ns = self.context.now_ns();
            if sampled_ns.is_none_or(|sampled_ns| now_ns >= sampled_ns + SECOND_NS) {
                sampled_ns = Some(now_ns);
                progress.sample(now_ns);
            }
            on_progress(progress.activity(JobKind::Scrub, volume.to_owned(), None));
        }
        Ok(())
    }
}
