//! What there is to tell: each served pool as it is now, against how it was when it was last looked at.

use std::collections::HashMap;

use stripewise_engine::pool::ScrubSummary;

use super::Alert;
use crate::commands::App;
use crate::failure::Result;
use crate::report::{EventReport, PoolReport, counted};
use crate::session::Session;

/// Between two looks.
const LOOK_NS: u64 = 1_000_000_000;

/// A pool as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    state: String,
    /// Read, write and checksum errors of each drive.
    errors: HashMap<String, [u64; 3]>,
    /// Events so far.
    last_event: Option<(u64, String)>,
    scrubs: usize,
}

/// Looks for as long as it is polled, and has what there is to tell sent.
pub async fn watch(app: &App) -> Result<()> {
    let context = app.executor()?.context();
    let mut seen: HashMap<String, Seen> = HashMap::new();
    loop {
        let sessions = app.served.lend_all(app);
        seen.retain(|pool, _| sessions.iter().any(|session| session.name() == pool));
        for session in &sessions {
            let now = Look::at(session);
            let before = seen.insert(session.name().to_owned(), now.seen());
            for alert in now.alerts(before.as_ref()) {
                tell(app, alert);
            }
        }
        context.sleep_ns(LOOK_NS).await;
    }
}

/// Says it, and has it sent; says where that fails.
pub fn tell(app: &App, alert: Alert) {
    app.printer.warning(match alert.pool.as_str() {
        "" => alert.text.clone(),
        pool => format!("pool {pool}: {}", alert.text),
    });
    let Some(alerts) = app.alerts() else { return };
    let Some(answered) = alerts.send(alert) else {
        app.printer.warning("there is more to tell than can be sent: an alert was left out");
        return;
    };
    let Ok(executor) = app.executor() else { return };
    let printer = app.printer.clone();
    drop(executor.context().spawn(async move {
        for sent in answered.await.unwrap_or_default() {
            if let Some(error) = sent.error {
                printer.warning(format!("an alert could not be sent by {}: {error}", sent.way));
            }
        }
    }));
}

/// A pool as it is now.
struct Look {
    report: PoolReport,
    events: Vec<EventReport>,
    scrubs: Vec<ScrubSummary>,
}

impl Look {
    fn at(session: &Session) -> Self {
        Self {
            report: session.report(),
            events: session.pool.events().iter().map(EventReport::from).collect(),
            scrubs: session.pool.scrub_reports(),
        }
    }

    fn seen(&self) -> Seen {
        let errors = |drive: &crate::report::DriveReport| {
            (drive.id.clone(), [drive.read_errors, drive.write_errors, drive.checksum_errors])
        };
        Seen {
            state: self.report.state.clone(),
            errors: self.report.drives.iter().map(errors).collect(),
            last_event: self.events.last().map(|event| (event.time_unix_ms, event.text.clone())),
            scrubs: self.scrubs.len(),
        }
    }

    /// What is new since `before`. At the first look only a state that is not well is.
    fn alerts(&self, before: Option<&Seen>) -> Vec<Alert> {
        let report = &self.report;
        let alert = |kind: &'static str, text: String| Alert {
            pool: report.name.clone(),
            kind,
            text: one_line(&text),
        };
        let mut alerts = Vec::new();
        if report.state != before.map_or("online", |before| &before.state) {
            alerts.push(alert("state", format!("{}: {}", report.state, report.condition)));
        }
        let Some(before) = before else { return alerts };
        for drive in &report.drives {
            let now = [drive.read_errors, drive.write_errors, drive.checksum_errors];
            let then = before.errors.get(&drive.id).copied().unwrap_or(now);
            let more: Vec<String> = ["read error", "write error", "wrong block"]
                .into_iter()
                .zip(now.into_iter().zip(then))
                .filter(|(_, (now, then))| now > then)
                .map(|(what, (now, then))| counted((now - then) as usize, what))
                .collect();
            if !more.is_empty() {
                alerts.push(alert("drive", format!("{} had {}", drive.path, more.join(", "))));
            }
        }
        let is_last = |event: &EventReport| {
            before
                .last_event
                .as_ref()
                .is_some_and(|(time, text)| *time == event.time_unix_ms && *text == event.text)
        };
        let old = self.events.iter().rposition(is_last).map_or(0, |last| last + 1);
        for event in &self.events[old..] {
            match event.kind.as_str() {
                "space" => alerts.push(alert("space", event.text.clone())),
                "loss" => alerts.push(alert("loss", event.text.clone())),
                _ => {}
            }
        }
        for scrub in self.scrubs.iter().skip(before.scrubs).filter(|scrub| found_something(scrub)) {
            alerts.push(alert("scrub", scrub_text(scrub)));
        }
        alerts
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
        "the scrub of volume {} found {} that disagreed ({} repaired from the others), {} that could not be read",
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

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::DriveReport;

    fn look(state: &str, read_errors: u64, events: &[(&str, &str)]) -> Look {
        let drive =
            DriveReport { id: "1".into(), path: "/d/0".into(), read_errors, ..DriveReport::default() };
        let report = PoolReport {
            name: "tank".into(),
            state: state.into(),
            condition: "as it is".into(),
            drives: vec![drive],
            ..PoolReport::default()
        };
        let event = |(index, (kind, text)): (usize, &(&str, &str))| EventReport {
            time: String::new(),
            time_unix_ms: index as u64,
            kind: (*kind).into(),
            text: (*text).into(),
        };
        Look { report, events: events.iter().enumerate().map(event).collect(), scrubs: Vec::new() }
    }

    fn kinds(now: &Look, before: Option<&Look>) -> Vec<&'static str> {
        let before = before.map(Look::seen);
        now.alerts(before.as_ref()).iter().map(|alert| alert.kind).collect()
    }

    #[test]
    fn what_is_new_is_told_once() {
        let well = look("online", 3, &[("pool", "opened"), ("space", "short")]);
        assert_eq!(kinds(&well, None), [""; 0], "what was so before is not news");
        let bad = look(
            "degraded",
            5,
            &[("pool", "opened"), ("space", "short"), ("drive", "out"), ("loss", "gone")],
        );
        assert_eq!(kinds(&bad, None), ["state"]);
        assert_eq!(kinds(&bad, Some(&well)), ["state", "drive", "loss"]);
        assert_eq!(kinds(&bad, Some(&bad)), [""; 0]);
        assert_eq!(kinds(&well, Some(&bad)), ["state", "space"], "a history that begins anew is all new");
        let told = &bad.alerts(Some(&well.seen()))[1];
        assert_eq!(told.text, "/d/0 had 2 read errors");
    }
}
