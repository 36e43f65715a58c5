//! Regions that scrubs and checks compare, of arrays in place and of logs: a segment of a log takes
//! the place of a region.
//!
//! A scrub of a log waits while the log is rebuilt.

use std::rc::Rc;

use stripewise_array::{Array, ArrayError, PlaceFault, ScrubReport, WrongPlace};
use stripewise_log::{BLOCK_BYTES, LogScrubReport, LogWrongBlock};

use crate::Inner;
use crate::jobs::Progress;
use crate::jobs::kind::JobKind;
use crate::manifest::volume_record::PartRecord;
use crate::status::activity::Activity;
use crate::volume::log::{LogArray, array_error};
use crate::volume::part_array::PartArray;

/// Regions of an array in place; segments of a log.
impl PartArray {
    /// Their number.
    pub(crate) fn regions(&self) -> u64 {
        match self {
            Self::InPlace(array) => array.visit(Array::regions),
            Self::Log(log) => u64::from(log.log().segments()),
        }
    }

    /// Bytes that hold data.
    pub(crate) fn written_bytes(&self) -> u64 {
        match self {
            Self::InPlace(array) => array.visit(Array::written_bytes),
            Self::Log(log) => log.log().figures().live_blocks * BLOCK_BYTES,
        }
    }

    /// Compares one. Either mends what is wrong, or lists the places.
    pub(crate) async fn compare_region(
        &self,
        region: u64,
        mends: bool,
    ) -> (ScrubReport, Result<(), ArrayError>) {
        match self {
            Self::InPlace(array) => {
                let compare = async move |array: Array| {
                    let (mut found, range) = (ScrubReport::default(), region..region + 1);
                    let compared = match mends {
                        true => array.scrub_range(range, &mut found).await,
                        false => array.inspect_range(range, &mut found).await,
                    };
                    (found, compared)
                };
                array.call(compare).await
            }
            Self::Log(log) => log.scrub_segment(region, mends).await,
        }
    }

    /// Makes durable what a scrub has recorded of the regions that it has passed.
    pub(crate) async fn release_records(&self) -> Result<(), ArrayError> {
        match self {
            Self::InPlace(array) => array.call(async |array| array.release_records().await).await,
            Self::Log(_) => Ok(()),
        }
    }
}

impl LogArray {
    /// Reads and compares a segment. Either mends what is wrong, or lists the places.
    pub(crate) async fn scrub_segment(
        &self,
        segment: u64,
        mends: bool,
    ) -> (ScrubReport, Result<(), ArrayError>) {
        let segment = segment as u32;
        match self.log().scrub(segment..segment + 1, mends).await {
            Ok(found) => (self.report(&found, mends), Ok(())),
            Err(error) => (ScrubReport::default(), Err(array_error(error))),
        }
    }

    fn report(&self, found: &LogScrubReport, mends: bool) -> ScrubReport {
        let label = |member: usize| {
            let member = self.log().columns().member(member);
            member.map_or_else(|| "a missing drive".to_owned(), |member| member.label().to_string())
        };
        let mut report = ScrubReport {
            checked_bytes: found.checked_bytes,
            unreadable_strips: found.unrecoverable_strips,
            regions_without_redundancy: found.incomplete_segments,
            ..ScrubReport::default()
        };
        for wrong in &found.wrong {
            let drives = vec![label(wrong.member)];
            let fault = fault(wrong);
            if wrong.is_doubtful {
                report.unattributed_blocks += 1;
                continue;
            }
            let one = ScrubReport { blamed: vec![(drives[0].clone(), 1)], ..ScrubReport::default() };
            report.add(&one);
            report.checksum_errors += u64::from(fault == PlaceFault::Checksum);
            match wrong.offset_bytes {
                _ if mends => {}
                Some(offset_bytes) => {
                    report.places.push(WrongPlace { offset_bytes, length_bytes: BLOCK_BYTES, fault, drives })
                }
                None => report.further_places += 1,
            }
        }
        report
    }
}

fn fault(wrong: &LogWrongBlock) -> PlaceFault {
    match (wrong.is_unreadable, wrong.is_parity) {
        (true, _) => PlaceFault::Unreadable,
        (false, true) => PlaceFault::Mismatch,
        (false, false) => PlaceFault::Checksum,
    }
}

impl Inner {
    /// The scrub of a log that is running or due.
    pub(crate) fn log_scrub_activity(
        &self,
        part: &PartRecord,
        log: &LogArray,
        name: &str,
    ) -> Option<Activity> {
        let running = self.jobs.checking.current.borrow().get(&part.id).cloned();
        let progress = match running {
            Some(progress) => progress,
            None => {
                let manifest = self.manifest.borrow();
                let scrub = manifest.scrub.as_ref()?;
                let volume = manifest.volume_of(part.id).0;
                let position = scrub.volumes.iter().position(|other| *other == volume)?;
                let progress = Progress::default();
                progress.done_bytes.set(if position == 0 { scrub.next_region as f64 } else { 0.0 });
                progress.total_bytes.set(f64::from(log.log().segments()));
                Rc::new(progress)
            }
        };
        Some(progress.activity(JobKind::Scrub, name.to_owned(), None))
    }
}
