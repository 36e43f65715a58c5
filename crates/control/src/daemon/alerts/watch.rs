//! Changes of the served pools, found by comparing each pool with its state at the last poll. All
//! changes go into the log and to the clients that follow the pools; changes that need action are
//! also sent as alerts.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use stripewise_pool::{JobKind, ScrubSummary};

use super::Alert;
use crate::control::Control;
use crate::daemon::news::{Found, News};
use crate::failure::Result;
use crate::messages::report::hardware::{Cause, named, warnings};
use crate::messages::report::{ActivityReport, EventReport, PoolReport, PoolState, SpareReport, counted};
use crate::notation::plain::one_line;
use crate::pools::load::{Interval, PoolRates};
use crate::pools::session::Session;
use crate::pools::status_file::StatusFile;

mod jobs;

/// Between two looks.
const LOOK_NS: u64 = 1_000_000_000;

/// A pool as it was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    state: PoolState,
    condition: String,
    /// Read, write and checksum errors of each drive.
    errors: HashMap<String, [u64; 3]>,
    /// Events so far.
    last_event: Option<(u64, String)>,
    jobs: Vec<Job>,
    /// Warnings about drives, by ID.
    warned: HashSet<(String, Cause)>,
    spares: Vec<SpareReport>,
    /// End of the last scrub, milliseconds since 1970.
    scrubbed_unix_ms: Option<u64>,
    /// Reasons why jobs cannot go on.
    stopped: Vec<(JobKind, String)>,
}

/// A job, by kind, volume and drive.
type Job = [String; 3];

fn job(job: &ActivityReport) -> Job {
    [job.kind.clone(), job.volume.clone(), job.drive.clone().unwrap_or_default()]
}

/// The pools as they were seen last, by name.
#[derive(Default)]
pub struct Watch(RefCell<HashMap<String, Seen>>);

impl Watch {
    /// Looks for as long as it is polled.
    pub async fn go_on(&self, control: &Control) -> Result<()> {
        let context = control.executor()?.context();
        loop {
            self.look(control);
            context.sleep_ns(LOOK_NS).await;
        }
    }

    /// Logs changes, notifies the followers, and sends alerts.
    pub fn look(&self, control: &Control) {
        let sessions = Session::all_served(control);
        let mut seen = self.0.borrow_mut();
        seen.retain(|pool, _| {
            let is_served = sessions.iter().any(|session| session.name() == pool);
            if !is_served {
                control.news.tell_gone(pool);
            }
            is_served
        });
        control.history.retain(|pool| sessions.iter().any(|session| session.name() == pool));
        for session in &sessions {
            let now = Look::at(session, control.max_temperature_c());
            let counters = StatusFile::counters(&session.pool, &now.report, now.opened_unix_ms);
            let load = control.history.add(counters);
            let before = seen.insert(session.name().to_owned(), now.seen());
            now.log(before.as_ref());
            now.tell(before.as_ref(), &control.news, load.as_ref());
            for alert in now.alerts(before.as_ref()) {
                tell(control, alert);
            }
        }
    }
}

/// Logs it where nothing else does, and has it sent; says where that fails.
pub fn tell(control: &Control, alert: Alert) {
    let Alert { pool, kind, text, .. } = &alert;
    if pool.is_empty() {
        tracing::warn!(target: "alert", kind, "{text}");
    } else if !alert.is_logged {
        tracing::warn!(target: "alert", pool, kind, "pool {pool}: {text}");
    }
    let Some(alerts) = control.alerts() else { return };
    let (pool, kind) = (pool.clone(), *kind);
    let Some(answered) = alerts.send(alert) else {
        tracing::warn!(target: "alert", pool, kind, "the alert queue is full: an alert was dropped");
        return;
    };
    let Ok(executor) = control.executor() else { return };
    drop(executor.context().spawn(async move {
        for sent in answered.await.unwrap_or_default() {
            match sent.error {
                None => tracing::info!(target: "alert", pool, kind, way = sent.way, "sent"),
                Some(error) => tracing::warn!(
                    target: "alert", pool, kind, way = sent.way,
                    "an alert could not be sent by {}: {error}", sent.way
                ),
            }
        }
    }));
}

/// A pool as it is now.
struct Look {
    report: PoolReport,
    events: Vec<EventReport>,
    scrubs: Vec<ScrubSummary>,
    stopped: Vec<(JobKind, String)>,
    opened_unix_ms: u64,
    max_temperature_c: Option<i64>,
}

impl Look {
    fn at(session: &Session, max_temperature_c: Option<i64>) -> Self {
        Self {
            report: session.report(),
            events: session.pool.events().iter().map(EventReport::from).collect(),
            scrubs: session.pool.scrub_reports(),
            stopped: [JobKind::Rebuild, JobKind::Scrub]
                .into_iter()
                .filter_map(|kind| Some((kind, session.pool.job_failure(kind)?)))
                .collect(),
            opened_unix_ms: session.opened_unix_ms(),
            max_temperature_c,
        }
    }

    fn seen(&self) -> Seen {
        let errors = |drive: &crate::messages::report::DriveReport| {
            (drive.id.clone(), [drive.read_errors, drive.write_errors, drive.checksum_errors])
        };
        Seen {
            state: self.report.state,
            condition: self.report.condition.clone(),
            errors: self.report.drives.iter().map(errors).collect(),
            last_event: self.events.last().map(|event| (event.time_unix_ms, event.text.clone())),
            jobs: self.jobs(),
            warned: self.warnings().map(|(id, cause, _)| (id, cause)).collect(),
            spares: self.report.spares_in_use.clone(),
            scrubbed_unix_ms: self.scrubbed_unix_ms(),
            stopped: self.stopped.clone(),
        }
    }

    /// Warnings about the hardware of drives: ID, cause and text.
    fn warnings(&self) -> impl Iterator<Item = (String, Cause, String)> {
        self.report.drives.iter().flat_map(|drive| {
            let found = warnings(&self.report.name, drive, self.max_temperature_c);
            found.into_iter().map(|(cause, text)| (drive.id.clone(), cause, text))
        })
    }

    fn jobs(&self) -> Vec<Job> {
        self.report.activity.iter().map(job).collect()
    }

    /// Notifies the followers of changes since `before` and of the progress of jobs.
    fn tell(&self, before: Option<&Seen>, news: &News, load: Option<&(PoolRates, Interval)>) {
        if !news.is_followed() {
            return;
        }
        let now = self.jobs();
        let ended = before.iter().flat_map(|before| &before.jobs).filter(|job| !now.contains(job));
        let ended: Vec<(String, String)> =
            ended.map(|[kind, volume, _]| (kind.clone(), volume.clone())).collect();
        let is_same =
            |before: &Seen| before.state == self.report.state && before.condition == self.report.condition;
        news.tell(&Found {
            report: &self.report,
            has_changed: !before.is_some_and(is_same),
            events: self.new_events(before),
            ended: &ended,
            load,
        });
    }

    /// Events since `before`. At the first look those since the pool was opened.
    fn new_events(&self, before: Option<&Seen>) -> &[EventReport] {
        let Some(before) = before else {
            let is_older = |event: &EventReport| event.time_unix_ms < self.opened_unix_ms;
            return &self.events[self.events.iter().rposition(is_older).map_or(0, |last| last + 1)..];
        };
        let is_last = |event: &EventReport| {
            before
                .last_event
                .as_ref()
                .is_some_and(|(time, text)| *time == event.time_unix_ms && *text == event.text)
        };
        &self.events[self.events.iter().rposition(is_last).map_or(0, |last| last + 1)..]
    }

    /// Logs changes since `before`, except those that the alerts log.
    fn log(&self, before: Option<&Seen>) {
        let pool = self.report.name.as_str();
        // Opening the pool has logged that event already, with its details.
        let is_news = |event: &&EventReport| before.is_some() || event.kind != "pool";
        for event in self.new_events(before).iter().filter(is_news) {
            let (kind, text) = (event.kind.as_str(), one_line(&event.text));
            let (drive, volume) = (self.drive_in(&text), self.volume_in(&text));
            match kind {
                "loss" => tracing::error!(target: "pool", pool, kind, drive, volume, "{text}"),
                "space" => tracing::warn!(target: "pool", pool, kind, drive, volume, "{text}"),
                _ => tracing::info!(target: "pool", pool, kind, drive, volume, "{text}"),
            }
        }
        let jobs: &[Job] = before.map_or(&[], |before| &before.jobs);
        let now = self.jobs();
        for [kind, volume, drive] in now.iter().filter(|job| !jobs.contains(job)) {
            tracing::info!(target: "pool", pool, volume, drive, kind, "a {kind} has begun");
        }
        for [kind, volume, drive] in jobs.iter().filter(|job| !now.contains(job)) {
            tracing::info!(target: "pool", pool, volume, drive, kind, "a {kind} has ended");
        }
    }

    /// The drive that a sentence speaks of, by identity, if it is one.
    fn drive_in(&self, text: &str) -> Option<&str> {
        let mut drives = self.report.drives.iter().filter(|drive| names(text, &drive.path));
        drives.next().filter(|_| drives.next().is_none()).map(|drive| drive.id.as_str())
    }

    /// The volume that a sentence speaks of, if it is one.
    fn volume_in(&self, text: &str) -> Option<&str> {
        let (_, rest) = text.split_once("volume ")?;
        let is_it = |volume: &&crate::messages::report::VolumeReport| {
            rest.starts_with(&volume.name) && names(rest, &volume.name)
        };
        self.report.volumes.iter().find(is_it).map(|volume| volume.name.as_str())
    }

    /// Alerts for changes since `before`. The first poll reports only a state other than online.
    fn alerts(&self, before: Option<&Seen>) -> Vec<Alert> {
        let report = &self.report;
        let alert = |kind: &'static str, text: String| Alert::of_pool(report, kind, &text);
        let mut alerts = Vec::new();
        if report.state != before.map_or(PoolState::Online, |before| before.state) {
            alerts.push(alert("state", format!("{}: {}", report.state, report.condition)));
        }
        for (id, cause, text) in self.warnings() {
            if !before.is_some_and(|before| before.warned.contains(&(id, cause))) {
                alerts.push(alert("drive", text));
            }
        }
        alerts.extend(self.job_alerts(before));
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
                alerts.push(alert("drive", format!("{} had {}", named(drive), more.join(", "))));
            }
        }
        for event in self.new_events(Some(before)) {
            match event.kind.as_str() {
                "space" => alerts.push(alert("space", event.text.clone()).logged()),
                "loss" => alerts.push(alert("loss", event.text.clone()).logged()),
                _ => {}
            }
        }
        alerts
    }
}

/// True if `word` is one of the words of `text`.
pub(super) fn names(text: &str, word: &str) -> bool {
    text.split([' ', ',', ':', ';', '(', ')']).any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drives::hardware::SmartHealth;
    use crate::messages::report::{DriveReport, LastScrubReport};

    fn look(state: PoolState, read_errors: u64, events: &[(&str, &str)]) -> Look {
        let drive =
            DriveReport { id: "1".into(), path: "/d/0".into(), read_errors, ..DriveReport::default() };
        let report = PoolReport {
            name: "tank".into(),
            state,
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
        Look {
            report,
            events: events.iter().enumerate().map(event).collect(),
            scrubs: Vec::new(),
            stopped: Vec::new(),
            opened_unix_ms: 1,
            max_temperature_c: None,
        }
    }

    fn kinds(now: &Look, before: Option<&Look>) -> Vec<&'static str> {
        let before = before.map(Look::seen);
        now.alerts(before.as_ref()).iter().map(|alert| alert.kind).collect()
    }

    #[test]
    fn a_drive_that_expects_to_fail_is_an_alert_once() {
        let mut well = look(PoolState::Online, 0, &[]);
        let mut bad = look(PoolState::Online, 0, &[]);
        bad.report.drives[0].hardware.smart = Some(SmartHealth::Failed);
        assert_eq!(kinds(&bad, None), ["drive"], "also at the first look");
        assert_eq!(kinds(&bad, Some(&well)), ["drive"]);
        assert_eq!(kinds(&bad, Some(&bad)), [""; 0]);
        well.report.drives[0].hardware.temperature_c = Some(61);
        assert_eq!(kinds(&well, Some(&bad)), ["drive"]);
    }

    #[test]
    fn each_alert_is_sent_once() {
        let well = look(PoolState::Online, 3, &[("pool", "opened"), ("space", "short")]);
        assert_eq!(kinds(&well, None), [""; 0], "what was so before is not news");
        let bad = look(
            PoolState::Degraded,
            5,
            &[("pool", "opened"), ("space", "short"), ("drive", "out"), ("loss", "gone")],
        );
        assert_eq!(kinds(&bad, None), ["state"]);
        assert_eq!(kinds(&bad, Some(&well)), ["state", "drive", "loss"]);
        assert_eq!(kinds(&bad, Some(&bad)), [""; 0]);
        assert_eq!(kinds(&well, Some(&bad)), ["state", "space"], "a history that starts over is all new");
        let told = &bad.alerts(Some(&well.seen()))[1];
        assert_eq!(told.text, "/d/0 had 2 read errors");
    }

    #[test]
    fn jobs_are_alerts_at_begin_end_and_failure() {
        let begun = [("pool", "opened"), ("scrub", "a scrub of all volumes began")];
        let rebuilt = [
            ("pool", "opened"),
            ("scrub", "a scrub of all volumes began"),
            ("rebuild", "rebalance started"),
            ("rebuild", "the rebuild of volume a began: 1.0 MiB to copy"),
            ("scrub", "volume a was scrubbed, 3 MiB: nothing wrong"),
        ];
        let texts = |now: &Look, before: &Look| -> Vec<(&'static str, String)> {
            now.alerts(Some(&before.seen())).into_iter().map(|alert| (alert.kind, alert.text)).collect()
        };
        let well = look(PoolState::Online, 0, &begun[..1]);
        let mut now = look(PoolState::Online, 0, &begun);
        assert_eq!(texts(&now, &well), [("scrub", "a scrub of all volumes began".to_owned())]);
        assert_eq!(kinds(&now, None), ["scrub"], "also where it began before the first look");
        let mut later = look(PoolState::Online, 0, &rebuilt);
        later.report.last_scrub = Some(LastScrubReport {
            began_unix_ms: 0,
            ended_unix_ms: 2000,
            checked_bytes: 3 << 20,
            repaired_blocks: 0,
            unattributed_blocks: 0,
            unreadable_strips: 0,
            volumes_cut_short: 0,
        });
        assert_eq!(
            texts(&later, &now),
            [
                ("rebuild", rebuilt[3].1.to_owned()),
                ("scrub", "the scrub ended in 2 s, 3 MiB verified: no errors found".to_owned()),
            ]
        );
        assert_eq!(texts(&later, &later), []);
        now.stopped.push((JobKind::Rebuild, "no space".to_owned()));
        assert_eq!(
            texts(&now, &look(PoolState::Online, 0, &begun)),
            [("rebuild", "the rebuild cannot go on: no space".to_owned())]
        );
        assert_eq!(texts(&now, &now), []);
    }

    #[test]
    fn a_spare_in_use_is_an_alert_with_both_drives() {
        let well = look(PoolState::Online, 0, &[("pool", "opened")]);
        let mut now = look(PoolState::Online, 0, &[("pool", "opened")]);
        now.report.drives[0].hardware.serial = Some("Z1".into());
        let spare = |time_unix_ms| SpareReport { spare: "/d/9".into(), drive: "/d/0".into(), time_unix_ms };
        now.report.spares_in_use = vec![spare(5000)];
        let alerts = now.alerts(Some(&well.seen()));
        assert_eq!(alerts.len(), 1);
        assert_eq!(alerts[0].text, "spare /d/9 takes the place of /d/0 (serial Z1)");
        assert_eq!((alerts[0].kind, alerts[0].drives[0].path.as_str()), ("spare", "/d/0"));
        assert_eq!(kinds(&now, Some(&now)), [""; 0]);
        // At the first look: one since the pool was opened, and an older one.
        (now.opened_unix_ms, now.report.spares_in_use) = (5400, vec![spare(4000), spare(5000)]);
        assert_eq!(kinds(&now, None), ["spare"]);
    }

    #[test]
    fn events_since_the_opening_are_new_once() {
        let now = look(
            PoolState::Online,
            0,
            &[("drive", "long ago"), ("pool", "opened"), ("drive", "/d/0 was let go of")],
        );
        let texts =
            |events: &[EventReport]| events.iter().map(|event| event.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(now.new_events(None)), ["opened", "/d/0 was let go of"]);
        assert_eq!(texts(now.new_events(Some(&now.seen()))), [""; 0]);
        assert_eq!(now.drive_in("/d/0 was let go of"), Some("1"));
        assert_eq!(now.drive_in("/d/01 was let go of"), None);
    }
}
