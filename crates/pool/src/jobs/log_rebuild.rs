//! Rebuild of log volumes: columns that were given another place, or whose drive came back, are
//! filled. The log does the work (`Log::rebuild`); this job decides which column is next, pauses
//! where something changed, and reports.
//!
//! A column at a time, the most exposed first. Requests are of the background class, so the
//! rebuild priority holds as for other rebuilds. How far a rebuild has come is in the roots of the
//! log, at the latest every few seconds.
//!
//! Faults expected: the drive that is filled fails (it is excluded, and another one takes over),
//! blocks that no drive has any more, the pool is closed, the volume is deleted.

use std::ops::ControlFlow;
use std::rc::Rc;

use stripewise_array::rows::SlotState;
use stripewise_drive::DriveErrorKind;
use stripewise_log::{LogError, LogProgress, LogRebuildReport};

use crate::Inner;
use crate::error::PoolError;
use crate::jobs::kind::JobKind;
use crate::jobs::rebuild::{note_begins, note_ended};
use crate::jobs::{Parts, Progress, watched};
use crate::manifest::events::EventKind;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::PartRecord;
use crate::status::activity::Activity;
use crate::volume::log::LogArray;

/// A column of a log that is to be filled.
struct DueColumn {
    log: LogArray,
    column: usize,
    /// Distinguishes the contents of its place.
    identity: u64,
    /// Number of further columns that may be lost.
    left: isize,
}

impl PartRecord {
    /// Columns of a log that are to be filled, each with the identity of the contents of its place.
    fn columns_to_fill(&self) -> Vec<(usize, u64)> {
        let identity = |column: usize| {
            let place = self.rows.place(0, column).filter(|place| place.state == SlotState::Rebuilding)?;
            // Each place that a column was ever given, and each time, has its own.
            let places = [self.log?.filled_since, u64::from(place.drive), u64::from(place.slab)];
            Some((column, places.iter().fold(column as u64, |sum, part| mixed(sum ^ part))))
        };
        (0..self.shape.width).filter_map(identity).collect()
    }
}

/// Spreads a number over all bits.
fn mixed(number: u64) -> u64 {
    stripewise_drive::SplitMix64::new(number).next_u64()
}

impl Inner {
    /// The most exposed column of a log that can be filled.
    fn due_column(&self) -> Option<DueColumn> {
        let manifest = self.manifest.borrow();
        let lane = &self.jobs.rebuilding;
        let due = |part: &PartRecord| {
            let log = self.volumes.log(part.id).filter(|log| !log.is_protected())?;
            if lane.is_stalled(Some((part.id, None))) {
                return None;
            }
            let left = part.shape.fault_tolerance() as isize - part.lacking_columns().len() as isize;
            let works = |column: usize| {
                part.rows
                    .place(0, column)
                    .is_some_and(|place| self.drives.working(&manifest, place.drive).is_some())
            };
            let (column, identity) = part.columns_to_fill().into_iter().find(|(column, _)| works(*column))?;
            Some(DueColumn { log, column, identity, left })
        };
        manifest.parts().filter_map(due).min_by_key(|due| due.left)
    }

    /// Fills a column of a log, until it is done or something changed; whether there was any.
    pub(crate) async fn rebuild_log(&self) -> bool {
        let Some(DueColumn { log, column, identity, .. }) = self.due_column() else {
            self.jobs.logs.borrow_mut().clear();
            return false;
        };
        let (part, lane) = (log.part(), &self.jobs.rebuilding);
        let strips_bytes = log.log().strips_bytes() as f64;
        let progress = self.progress_of(part);
        let note = |at: LogProgress| {
            progress.done_bytes.set(f64::from(at.segments) * strips_bytes);
            progress.total_bytes.set(f64::from(at.of_segments) * strips_bytes);
        };
        note(log.log().rebuilt_segments(column, identity));
        if progress.begun.get().is_none() {
            note_begins(self, part, &progress, progress.total_bytes.get() - progress.done_bytes.get());
        }
        let parts: Parts = [(part, progress.clone())].into();
        self.jobs.begin(lane, parts.clone());
        let on_progress = |at: LogProgress| {
            note(at);
            match self.lifecycle.is_closed() || self.jobs.look_again.get() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let work = log.log().rebuild(column, identity, &on_progress);
        let checkpoint =
            || async { log.log().checkpoint().await.map_err(|error| PoolError::Job(error.to_string())) };
        let interval_ns = self.tuning().rebuild_checkpoint_ns;
        let ended = watched(&self.context, &parts, work, interval_ns, checkpoint).await;
        self.jobs.end(lane);
        match ended {
            Ok(report) => self.note_filled(part, &progress, report),
            Err(error) => self.log_rebuild_failed(&log, column, error).await,
        }
        self.jobs.changed.notify_all();
        true
    }

    /// Progress of a part's rebuild, which goes on after a pause.
    fn progress_of(&self, part: Id) -> Rc<Progress> {
        self.jobs.logs.borrow_mut().entry(part).or_default().clone()
    }

    fn note_filled(&self, part: Id, progress: &Progress, report: LogRebuildReport) {
        if report.lost_blocks > 0 {
            let text = format!(
                "{} blocks of 4 KiB of volume {} could not be rebuilt, since no drive had them any more; \
                 reading them is an error until they are written",
                report.lost_blocks,
                self.manifest.borrow().volume_of(part).1
            );
            self.news.notice(text.clone());
            self.news.event(EventKind::Loss, &text);
        }
        let is_whole = {
            let manifest = self.manifest.borrow();
            manifest
                .parts()
                .find(|other| other.id == part)
                .is_some_and(|part| part.lacking_columns().is_empty())
        };
        if report.is_complete {
            self.jobs.logs.borrow_mut().remove(&part);
        }
        if report.is_complete && is_whole {
            note_ended(self, part, progress);
        }
    }

    /// Excludes the drive that was filled if it failed; any other obstacle is reported, and stops
    /// the rebuild until something changes.
    async fn log_rebuild_failed(&self, log: &LogArray, column: usize, error: LogError) {
        if matches!(error, LogError::Closed | LogError::Protected | LogError::Replaced { .. }) {
            return;
        }
        let filled = log.log().columns().member(column);
        let excluded = match (&error, filled) {
            (LogError::Drive(refusal), Some(member))
                if refusal.drive == *member.label() && refusal.kind != DriveErrorKind::NoSpace =>
            {
                self.exclude_member(member.label(), &refusal.to_string()).await
            }
            _ => Err(PoolError::Job(error.to_string())),
        };
        if let Err(why) = excluded {
            let part = log.part();
            let name = self.manifest.borrow().volume_of(part).1;
            let why = format!("the rebuild of volume {name} stopped: {why}");
            self.jobs.rebuilding.stall(Some((part, None)), why);
        }
    }

    /// The rebuild of a log that is running or due.
    pub(crate) fn log_rebuild_activity(
        &self,
        part: &PartRecord,
        log: &LogArray,
        name: &str,
    ) -> Option<Activity> {
        let (column, identity) = part.columns_to_fill().into_iter().next()?;
        let drive = part
            .rows
            .place(0, column)
            .and_then(|place| self.manifest.borrow().drive(place.drive).map(|drive| drive.id));
        let running = self.jobs.logs.borrow().get(&part.id).cloned();
        let progress = running.unwrap_or_else(|| {
            let (progress, at) = (Progress::default(), log.log().rebuilt_segments(column, identity));
            let strips_bytes = log.log().strips_bytes() as f64;
            progress.done_bytes.set(f64::from(at.segments) * strips_bytes);
            progress.total_bytes.set(f64::from(at.of_segments) * strips_bytes);
            Rc::new(progress)
        });
        Some(progress.activity(JobKind::Rebuild, name.to_owned(), drive))
    }
}
