//! Alerts about jobs: the begin, the end and the failure of scrubs and rebuilds, and spares that
//! took a drive's place.
//!
//! A short job may begin and end between two looks, so begins and ends are taken from the pool's
//! events and from its last scrub.

use stripewise_pool::{JobKind, ScrubSummary};

use super::{Look, Seen};
use crate::daemon::alerts::Alert;
use crate::messages::report::hardware::named;
use crate::messages::report::{SpareReport, counted};

impl Look {
    /// End of the last scrub, milliseconds since 1970.
    pub(super) fn scrubbed_unix_ms(&self) -> Option<u64> {
        self.report.last_scrub.as_ref().map(|scrub| scrub.ended_unix_ms)
    }

    /// Alerts about jobs since `before`; at the first look, those since the pool was opened.
    pub(super) fn job_alerts(&self, before: Option<&Seen>) -> Vec<Alert> {
        let alert = |kind: &'static str, text: &str| Alert::of_pool(&self.report, kind, text);
        let mut alerts = Vec::new();
        for spare in self.report.spares_in_use.iter().filter(|spare| self.is_new(spare, before)) {
            alerts.push(alert("spare", &self.spare_in_words(spare)));
        }
        let mut scrubs_ended = 0;
        for event in self.new_events(before) {
            // The events of a rebalance, and of a scrub of all volumes, name none.
            let names_volume = event.text.contains("volume ");
            match event.kind.as_str() {
                "rebuild" if names_volume => alerts.push(alert("rebuild", &event.text).logged()),
                "scrub" if names_volume => scrubs_ended += 1,
                "scrub" => alerts.push(alert("scrub", &event.text).logged()),
                _ => {}
            }
        }
        // The reports are of the scrub that was asked for last; each ends with an event.
        for scrub in self.scrubs.iter().rev().take(scrubs_ended).filter(|scrub| found_something(scrub)) {
            alerts.push(alert("scrub", &scrub_text(scrub)));
        }
        if let (Some(before), Some(scrub)) = (before, &self.report.last_scrub)
            && before.scrubbed_unix_ms != self.scrubbed_unix_ms()
        {
            alerts.push(alert("scrub", &format!("the scrub ended {}", scrub.in_words())).logged());
        }
        for stopped in &self.stopped {
            if !before.is_some_and(|before| before.stopped.contains(stopped)) {
                let (kind, why) = stopped;
                let word = if *kind == JobKind::Scrub { "scrub" } else { "rebuild" };
                alerts.push(alert(word, &format!("the {kind} cannot go on: {why}")));
            }
        }
        alerts
    }

    fn is_new(&self, spare: &SpareReport, before: Option<&Seen>) -> bool {
        match before {
            Some(before) => !before.spares.contains(spare),
            // Times of spares are in whole seconds.
            None => spare.time_unix_ms / 1000 >= self.opened_unix_ms / 1000,
        }
    }

    /// Both drives, with their serial numbers where they are known.
    fn spare_in_words(&self, spare: &SpareReport) -> String {
        let name = |path: &String| {
            let drive = self.report.drives.iter().find(|drive| drive.path == *path);
            drive.map_or_else(|| path.clone(), named)
        };
        format!("spare {} takes the place of {}", name(&spare.spare), name(&spare.drive))
    }
}

fn found_something(scrub: &ScrubSummary) -> bool {
    let report = &scrub.report;
    !report.blamed.is_empty()
        || report.unattributed_blocks > 0
        || report.unreadable_strips > 0
        || scrub.error.is_some()
}

fn scrub_text(scrub: &ScrubSummary) -> String {
    let report = &scrub.report;
    let wrong: u64 = report.blamed.iter().map(|(_, blocks)| *blocks).sum();
    let mut text = format!(
        "the scrub of volume {} found {} that disagreed ({} repaired from the others), {} that \
         could not be read",
        scrub.volume,
        counted((wrong + report.unattributed_blocks) as usize, "block"),
        wrong,
        counted(report.unreadable_strips as usize, "strip"),
    );
    if let Some(error) = &scrub.error {
        text = format!("{text}; it ended early: {error}");
    }
    text
}
