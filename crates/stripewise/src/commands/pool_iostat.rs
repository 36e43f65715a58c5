//! `pool iostat`: what a pool's drives are doing, and what its volumes were asked and how long that
//! took, as the process that has the pool open counts it; since it was opened, or interval by
//! interval.
//!
//! Expected faults: no process has the pool open (then nothing runs: said so), the process ends in
//! between, a clock that is set.

use clap::Args;
use serde::Serialize;
use stripewise_control::access::Access;
use stripewise_control::names::PoolName;
use stripewise_control::pools::other_process;
use stripewise_control::pools::session::with_pool;
use stripewise_control::pools::status_file::{CauseLoad, DriveLoad, StatusFile, VolumeRequests, loads};
use stripewise_control::registry::{Home, KnownPool};
use stripewise_control::report::DriveState;
use stripewise_control::request::ShowLoad;
use stripewise_control::size::ByteSize;
use stripewise_drive::Cause;
use stripewise_engine::pool::LATENCY_STEPS_NS;

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Style, Table, plain};

/// Show I/O statistics of a pool's drives
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Length of an interval; without it: since the pool was opened
    #[arg(value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// How many intervals; without it: until interrupted (with --json: one)
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Show what the drives were asked by what for: client data, parity, journal, checksums, ...
    #[arg(long)]
    causes: bool,
}

fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is no length of an interval; 1 to 86400 seconds")),
    }
}

#[derive(Serialize)]
struct Shown {
    pool: String,
    /// Whether a process has the pool open; else nothing runs.
    running: bool,
    intervals: Vec<Interval>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Interval {
    seconds: f64,
    drives: Vec<DriveRates>,
    /// Kinds of requests that there were any of.
    volumes: Vec<VolumeRates>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct VolumeRates {
    volume: String,
    operation: String,
    requests: u64,
    requests_per_s: f64,
    bytes: u64,
    mb_per_s: f64,
    failed: u64,
    latency_us: Latencies,
}

/// Of requests that succeeded. Latencies are counted in steps: so many took no longer than this;
/// `null`: longer than the last step, or there were none.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Latencies {
    mean: f64,
    p50_at_most: Option<f64>,
    p99_at_most: Option<f64>,
    p999_at_most: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct DriveRates {
    id: String,
    path: String,
    role: String,
    state: DriveState,
    requests: u64,
    requests_per_s: f64,
    read_bytes: u64,
    read_mb_per_s: f64,
    written_bytes: u64,
    write_mb_per_s: f64,
    busy_percent: f64,
    queued: usize,
    /// What the requests were for; causes that there were any of.
    causes: Vec<CauseRates>,
}

/// What a drive was asked for one cause. A position is a request that did not begin where the one
/// before it on the drive ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct CauseRates {
    cause: String,
    requests: u64,
    bytes: u64,
    positions: u64,
    positions_per_s: f64,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ShowLoad {
        ShowLoad { pool: self.name.clone(), seconds: self.seconds, count: self.count, causes: self.causes }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ShowLoad, app: &App) -> Result<Exit> {
    let (home, name) = (app.home()?, &asked.pool.0);
    check(asked)?;
    let known = home.pool(name)?;
    let first = match app.served.lend(name, app) {
        Some(session) => Some(session.word()),
        None => other_process::wait_for_word(app, &home, &known).await?,
    };
    let Some(first) = first else {
        return nothing_runs(app, name, asked.causes).await;
    };
    let mut shown = Shown { pool: name.clone(), running: true, intervals: Vec::new() };
    let Some(seconds) = asked.seconds else {
        shown.intervals.push(since_opening(&first));
        app.printer.result(&shown, |page| shown.intervals[0].print(page, asked.causes))?;
        return Ok(Exit::Success);
    };
    let count = asked.count.unwrap_or(if app.printer.is_json() { 1 } else { u32::MAX });
    let mut before = first;
    for _ in 0..count {
        let Some(now) = next(app, &home, &known, &before, seconds).await? else {
            app.printer
                .note(format!("the process that had pool `{name}` open has ended: nothing runs any more"));
            break;
        };
        let interval = between(&before, &now);
        if app.printer.is_json() {
            shown.intervals.push(interval);
        } else {
            app.printer.result(&(), |page| interval.print(page, asked.causes))?;
        }
        before = now;
    }
    if app.printer.is_json() {
        app.printer.result(&shown, |_| ())?;
    }
    Ok(Exit::Success)
}

/// Times that make no sense, also where they were not typed.
fn check(asked: &ShowLoad) -> Result<()> {
    if let Some(seconds) = asked.seconds {
        parse_seconds(&seconds.to_string()).map_err(Failure::usage)?;
    }
    match asked.count {
        Some(0) => Err(Failure::usage("no interval is asked for: there is one at least")),
        _ => Ok(()),
    }
}

/// Nobody has the pool open: what opening it takes is all that its drives are asked.
async fn nothing_runs(app: &App, name: &str, causes: bool) -> Result<Exit> {
    let drives = with_pool(app, name, Access::Look, "pool iostat", async |session| {
        Ok(loads(&session.pool, &session.report()))
    })
    .await?;
    let interval = Interval {
        seconds: 0.0,
        drives: drives.iter().map(|drive| rates(drive, None, 0.0)).collect(),
        volumes: Vec::new(),
    };
    let shown = Shown { pool: name.to_owned(), running: false, intervals: vec![interval] };
    app.printer.result(&shown, |page| {
        page.line(format!(
            "no process has pool {name} open: nothing runs; these requests were to look at it now"
        ));
        shown.intervals[0].print(page, causes);
    })?;
    Ok(Exit::Success)
}

/// The word left at least so many seconds after `before`; `None` once nobody leaves word any more.
async fn next(
    app: &App,
    home: &Home,
    known: &KnownPool,
    before: &StatusFile,
    seconds: f64,
) -> Result<Option<StatusFile>> {
    let context = app.executor()?.context();
    // Word is left once a second, a little after which it is read.
    let due_ms = before.unix_ms + (seconds * 1000.0) as u64 - 500;
    loop {
        context.sleep_ns(100_000_000).await;
        let word = match app.served.lend(&known.name, app) {
            Some(session) => Some(session.word()),
            None => other_process::read(home, known),
        };
        let Some(word) = word else { return Ok(None) };
        // A clock that was set back must not keep anybody waiting; another process begins to count
        // again.
        if word.unix_ms >= due_ms
            || word.unix_ms < before.unix_ms
            || word.opened_unix_ms != before.opened_unix_ms
        {
            return Ok(Some(word));
        }
    }
}

fn since_opening(word: &StatusFile) -> Interval {
    let seconds = word.unix_ms.saturating_sub(word.opened_unix_ms) as f64 / 1e3;
    Interval {
        seconds,
        drives: word.drives.iter().map(|drive| rates(drive, None, seconds)).collect(),
        volumes: word.volumes.iter().filter_map(|volume| volume_rates(volume, None, seconds)).collect(),
    }
}

fn between(before: &StatusFile, now: &StatusFile) -> Interval {
    if before.opened_unix_ms != now.opened_unix_ms {
        return since_opening(now);
    }
    let seconds = now.unix_ms.saturating_sub(before.unix_ms) as f64 / 1e3;
    let earlier = |drive: &DriveLoad| before.drives.iter().find(|other| other.id == drive.id);
    let earlier_of = |volume: &VolumeRequests| {
        let is_it =
            |other: &&VolumeRequests| other.volume == volume.volume && other.operation == volume.operation;
        before.volumes.iter().find(is_it)
    };
    Interval {
        seconds,
        drives: now.drives.iter().map(|drive| rates(drive, earlier(drive), seconds)).collect(),
        volumes: now
            .volumes
            .iter()
            .filter_map(|volume| volume_rates(volume, earlier_of(volume), seconds))
            .collect(),
    }
}

fn rates(now: &DriveLoad, before: Option<&DriveLoad>, seconds: f64) -> DriveRates {
    let since = |of: fn(&DriveLoad) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let (requests, read, written) =
        (since(|load| load.requests), since(|load| load.read_bytes), since(|load| load.written_bytes));
    DriveRates {
        id: now.id.clone(),
        path: now.path.clone(),
        role: now.role.clone(),
        state: now.state,
        requests,
        requests_per_s: per_s(requests),
        read_bytes: read,
        read_mb_per_s: per_s(read) / 1e6,
        written_bytes: written,
        write_mb_per_s: per_s(written) / 1e6,
        busy_percent: (per_s(since(|load| load.busy_ns)) / 1e7).min(100.0),
        queued: now.queued,
        causes: now.causes.iter().filter_map(|cause| cause_rates(cause, before, seconds)).collect(),
    }
}

/// `None` where there were none since.
fn cause_rates(now: &CauseLoad, before: Option<&DriveLoad>, seconds: f64) -> Option<CauseRates> {
    let earlier = before.and_then(|before| before.causes.iter().find(|earlier| earlier.cause == now.cause));
    let since = |of: fn(&CauseLoad) -> u64| of(now).saturating_sub(earlier.map_or(0, of));
    let (requests, positions) = (since(|load| load.requests), since(|load| load.positions));
    (requests > 0).then(|| CauseRates {
        cause: now.cause.clone(),
        requests,
        bytes: since(|load| load.bytes),
        positions,
        positions_per_s: if seconds > 0.0 { positions as f64 / seconds } else { 0.0 },
    })
}

/// `None` where there were none. A volume that was made again under its name counts from its
/// beginning.
fn volume_rates(now: &VolumeRequests, before: Option<&VolumeRequests>, seconds: f64) -> Option<VolumeRates> {
    let before = before.filter(|before| before.total_ns <= now.total_ns && before.failed <= now.failed);
    let since = |of: fn(&VolumeRequests) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let earlier = |step: usize| before.and_then(|before| before.by_latency.get(step)).copied().unwrap_or(0);
    let counts: Vec<u64> =
        now.by_latency.iter().enumerate().map(|(step, count)| count.saturating_sub(earlier(step))).collect();
    let (requests, failed) = (counts.iter().sum::<u64>(), since(|volume| volume.failed));
    let (bytes, total_ns) = (since(|volume| volume.bytes), since(|volume| volume.total_ns));
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    (requests + failed > 0).then(|| VolumeRates {
        volume: now.volume.clone(),
        operation: now.operation.clone(),
        requests,
        requests_per_s: per_s(requests),
        bytes,
        mb_per_s: per_s(bytes) / 1e6,
        failed,
        latency_us: Latencies {
            mean: total_ns as f64 / 1e3 / requests.max(1) as f64,
            p50_at_most: at_most(&counts, 0.5),
            p99_at_most: at_most(&counts, 0.99),
            p999_at_most: at_most(&counts, 0.999),
        },
    })
}

/// The end of the step that has this part of the requests below it, microseconds.
fn at_most(counts: &[u64], part: f64) -> Option<f64> {
    let wanted = (counts.iter().sum::<u64>() as f64 * part).ceil() as u64;
    if wanted == 0 {
        return None;
    }
    let mut so_far = 0;
    let step = counts.iter().position(|count| {
        so_far += count;
        so_far >= wanted
    });
    LATENCY_STEPS_NS.get(step?).map(|&end_ns| end_ns as f64 / 1e3)
}

impl Interval {
    fn print(&self, page: &mut Page, causes: bool) {
        if self.seconds > 0.0 {
            page.line(format!("{:.1} s", self.seconds));
        }
        let mut table = Table::new(&[
            "DRIVE",
            "ROLE",
            "STATE",
            ">REQUESTS",
            ">PER S",
            ">READ",
            ">MB/S",
            ">WRITTEN",
            ">MB/S",
            ">BUSY",
            ">QUEUE",
        ])
        .indented();
        for drive in &self.drives {
            table.row([
                plain(&drive.path),
                plain(&drive.role),
                (
                    drive.state.to_string(),
                    if drive.state == DriveState::Online { Style::Plain } else { Style::Warning },
                ),
                plain(drive.requests.to_string()),
                plain(format!("{:.0}", drive.requests_per_s)),
                plain(ByteSize(drive.read_bytes).to_string()),
                plain(format!("{:.1}", drive.read_mb_per_s)),
                plain(ByteSize(drive.written_bytes).to_string()),
                plain(format!("{:.1}", drive.write_mb_per_s)),
                plain(format!("{:.0} %", drive.busy_percent)),
                plain(drive.queued.to_string()),
            ]);
        }
        page.table(&table);
        if causes {
            page.line("");
            page.table(&self.cause_table());
        }
        if self.volumes.is_empty() {
            return;
        }
        let mut table = Table::new(&[
            "VOLUME",
            "OPERATION",
            ">REQUESTS",
            ">PER S",
            ">MB/S",
            ">MEAN",
            ">P99 UP TO",
            ">FAILED",
        ])
        .indented();
        for volume in &self.volumes {
            let p99 = volume.latency_us.p99_at_most;
            table.row([
                plain(&volume.volume),
                plain(&volume.operation),
                plain(volume.requests.to_string()),
                plain(format!("{:.0}", volume.requests_per_s)),
                plain(format!("{:.1}", volume.mb_per_s)),
                plain(format!("{:.2} ms", volume.latency_us.mean / 1e3)),
                plain(p99.map_or_else(|| "more".to_owned(), |us| format!("{} ms", us / 1e3))),
                plain(volume.failed.to_string()),
            ]);
        }
        page.line("");
        page.table(&table);
    }

    fn cause_table(&self) -> Table {
        let head = ["DRIVE", "CAUSE", ">REQUESTS", ">BYTES", ">POSITIONS", ">PER S"];
        let mut table = Table::new(&head).indented();
        for drive in &self.drives {
            for counts in &drive.causes {
                let cause = Cause::ALL.into_iter().find(|cause| cause.name() == counts.cause);
                table.row([
                    plain(&drive.path),
                    plain(cause.map_or_else(|| counts.cause.clone(), |cause| cause.words().to_owned())),
                    plain(counts.requests.to_string()),
                    plain(ByteSize(counts.bytes).to_string()),
                    plain(counts.positions.to_string()),
                    plain(format!("{:.0}", counts.positions_per_s)),
                ]);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_interval_alone() {
        let load = |requests, read_bytes, busy_ns| DriveLoad {
            requests,
            read_bytes,
            busy_ns,
            queued: 3,
            ..DriveLoad::default()
        };
        let found = rates(&load(30, 7_000_000, 1_500_000_000), Some(&load(10, 1_000_000, 500_000_000)), 2.0);
        assert_eq!((found.requests, found.requests_per_s), (20, 10.0));
        assert_eq!((found.read_mb_per_s, found.write_mb_per_s), (3.0, 0.0));
        assert_eq!((found.busy_percent, found.queued), (50.0, 3));
        assert_eq!(rates(&load(5, 0, 0), None, 0.0).requests_per_s, 0.0);
    }

    #[test]
    fn causes_are_of_the_interval_alone() {
        let load = |journal, map| {
            let of = |cause: &str, positions| CauseLoad {
                cause: cause.to_owned(),
                requests: 2 * positions,
                bytes: 4096 * positions,
                positions,
            };
            DriveLoad { causes: vec![of("journal", journal), of("region_map", map)], ..DriveLoad::default() }
        };
        let found = rates(&load(30, 7), Some(&load(10, 7)), 2.0).causes;
        let journal = CauseRates {
            cause: "journal".into(),
            requests: 40,
            bytes: 81920,
            positions: 20,
            positions_per_s: 10.0,
        };
        assert_eq!(found, [journal]);
    }

    #[test]
    fn latencies_are_of_the_interval_alone() {
        let load = |counts: [u64; 3], total_ns| {
            let mut by_latency = vec![0; LATENCY_STEPS_NS.len() + 1];
            by_latency[..2].copy_from_slice(&counts[..2]);
            by_latency[LATENCY_STEPS_NS.len()] = counts[2];
            VolumeRequests { by_latency, total_ns, bytes: 8192, ..VolumeRequests::default() }
        };
        let before = load([100, 0, 0], 500_000);
        let found = volume_rates(&load([150, 49, 1], 2_500_000), Some(&before), 2.0).expect("some");
        assert_eq!((found.requests, found.requests_per_s, found.bytes), (100, 50.0, 0));
        let latencies =
            Latencies { mean: 20.0, p50_at_most: Some(10.0), p99_at_most: Some(20.0), p999_at_most: None };
        assert_eq!(found.latency_us, latencies);
        assert_eq!(volume_rates(&before, Some(&before), 1.0), None);
        assert_eq!(
            volume_rates(&before, Some(&load([150, 0, 0], 600_000)), 1.0).map(|rates| rates.requests),
            Some(100)
        );
    }

    #[test]
    fn intervals_are_a_second_to_a_day() {
        for text in ["0", "-1", "0.5", "x", "1e9", "NaN"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert_eq!(parse_seconds("2.5"), Ok(2.5));
    }
}
