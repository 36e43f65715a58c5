//! `pool advise`: predicts the cost of the layouts of a pool's volumes, and the effect of other
//! layouts, a journal, another spare or another rebuild priority, from the pool's load so far.
//! Read-only.
//!
//! Expected faults: a pool that no process has open, whose load is therefore unknown (reported as
//! an assumption).

use std::path::Path;

use clap::Args;
use serde::Serialize;
use stripewise_control::access::Access;
use stripewise_control::names::PoolName;
use stripewise_control::pools::other_process;
use stripewise_control::pools::session::with_pool;
use stripewise_control::pools::status_file::StatusFile;
use stripewise_control::report::VolumeReport;
use stripewise_control::size::{ByteSize, duration_text};
use stripewise_control::times::unix_ms;
use stripewise_layout::{LayoutSpec, Level};
use stripewise_model::advise::{Advice, Choice, Kind, Need, Use, advise, parse_use};
use stripewise_model::reliability::{chance_per_year, percent};

use crate::commands::App;
use crate::commands::advise::{drives, workload};
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Style, Table, plain};

/// Predict the effect of another layout, a journal, a spare or another rebuild priority
#[derive(Args)]
#[command(after_help = "Example: stripewise pool advise tank")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Type of the pool's drives: hdd, ssd, nvme, a catalogue name, or a file written by `drive
    /// measure` [default: as reported by the kernel; hdd for files]
    #[arg(long, value_name = "NAME")]
    drive: Option<String>,
    /// Workload, as for `advise` [default: the pool's load so far]
    #[arg(long, value_name = "WORKLOAD", value_parser = workload)]
    workload: Option<Use>,
}

/// Mean request size above which a load counts as sequential.
const STREAM_BYTES: f64 = 256.0 * 1024.0;
/// Share of the requests on one row above which fast drives are advised.
const HOT_PERCENT: f64 = 20.0;

#[derive(Serialize)]
struct Report {
    pool: String,
    assumptions: Vec<String>,
    volumes: Vec<VolumeAdvice>,
}

#[derive(Serialize)]
struct VolumeAdvice {
    volume: String,
    layout: String,
    load: Load,
    present: Choice,
    costs: Costs,
    alternatives: Vec<Alternative>,
    rebuild: Rebuild,
}

/// Costs of the present layout.
#[derive(Serialize)]
struct Costs {
    /// Share of the drives' space that holds redundancy.
    space_percent: f64,
    /// Present rate, relative to the fastest alternative.
    rate_of_best_percent: f64,
}

/// Load of a volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Load {
    requests: u64,
    read_percent: f64,
    mean_bytes: f64,
    mb_per_s: f64,
    workload: String,
    /// Share of the volume's heat on its hottest row; `None` if no process counts it.
    hottest_row_percent: Option<f64>,
}

#[derive(Serialize)]
struct Alternative {
    what: String,
    command: String,
    /// Rate, relative to the present one.
    rate_percent: f64,
    usable_bytes: u64,
    loss_probability_per_year: f64,
    error_percent: f64,
    /// True if the difference to the present rate is within the model's error.
    rate_is_equal: bool,
}

/// Time to rebuild a drive.
#[derive(Serialize)]
struct Rebuild {
    idle_seconds: Option<f64>,
    drives_busy_percent: f64,
    now_seconds: Option<f64>,
    by_priority: Vec<AtPriority>,
}

/// Effect of a rebuild priority.
#[derive(Serialize)]
struct AtPriority {
    percent: u32,
    /// Duration of a rebuild under the present load.
    seconds: f64,
    /// Maximum client rate during the rebuild.
    clients_mb_per_s: f64,
}

pub(crate) async fn run(options: &Options, app: &App) -> Result<Exit> {
    if app.printer.caller().is_some() {
        return Err(Failure::new("a daemon cannot run predictions: it would serve no clients for seconds")
            .hint("run the command on the daemon's host, with its state directory"));
    }
    let registry = app.registry()?;
    let known = registry.pool(&options.name.0)?;
    let status = match other_process::wait_for_status(app, &registry, &known).await? {
        Some(status) => status,
        None => {
            with_pool(app, &known.name, Access::Look, "pool advise", async |session| Ok(session.word()))
                .await?
        }
    };
    let report = report(options, app, &status)?;
    app.printer.result(&report, |page| print(&report, page))?;
    Ok(Exit::Success)
}

/// Returns the kind of the pool's drives: as given, else as the kernel reports the first present
/// drive.
fn kind_of(
    options: &Options,
    app: &App,
    status: &StatusFile,
    bytes: u64,
    assumptions: &mut Vec<String>,
) -> Result<Kind> {
    let given = match options.drive.as_deref() {
        Some(sort @ ("hdd" | "ssd" | "nvme")) => Some(sort),
        Some(name) => {
            let text = if name.ends_with(".toml") { name.to_owned() } else { format!("1x{name}") };
            return match drives::parse(app, &text, assumptions)?.as_slice() {
                [kind] => Ok(kind.clone()),
                _ => Err(Failure::usage(format!("`{name}` is not one drive")).hint("--drive hdd")),
            };
        }
        None => None,
    };
    let mut data = status.report.drives.iter().filter(|drive| drive.role == "data");
    let known = data.find_map(|drive| drives::is_rotational(Path::new(&drive.path)));
    let sort = given.unwrap_or(if known == Some(false) { "ssd" } else { "hdd" });
    let why = match (given, known) {
        (Some(_), _) => "as given",
        (None, Some(_)) => "as reported by the kernel",
        (None, None) => "assumed for files; --drive overrides",
    };
    assumptions.push(format!("drive type {sort}, {}: {why}", ByteSize(bytes)));
    if bytes < drives::LEAST_BYTES {
        assumptions.push("drives smaller than 100 GB are modelled as 100 GB drives".to_owned());
    }
    Ok(Kind::of_size(1, bytes.max(drives::LEAST_BYTES), sort))
}

fn report(options: &Options, app: &App, status: &StatusFile) -> Result<Report> {
    let pool = &status.report;
    let data: Vec<_> = pool.drives.iter().filter(|drive| drive.role == "data").collect();
    let smallest = data.iter().map(|drive| drive.capacity_bytes).min().unwrap_or(0);
    let mut assumptions = Vec::new();
    let one = kind_of(options, app, status, smallest, &mut assumptions)?;
    let kind = |count| one.clone().times(count);
    let mut volumes = Vec::new();
    for volume in pool.volumes.iter().filter(|volume| volume.conversion.is_none()) {
        volumes.push(of_volume(options, status, volume, (data.len(), smallest), &kind, &mut assumptions)?);
    }
    if volumes.is_empty() {
        assumptions.push("the pool has no volumes; use `stripewise advise` to plan new ones".to_owned());
    }
    assumptions.dedup();
    Ok(Report { pool: pool.name.clone(), assumptions, volumes })
}

fn of_volume(
    options: &Options,
    status: &StatusFile,
    volume: &VolumeReport,
    (drives, smallest): (usize, u64),
    kind: &dyn Fn(usize) -> Kind,
    assumptions: &mut Vec<String>,
) -> Result<VolumeAdvice> {
    let load = load(options, status, &volume.name, assumptions)?;
    let use_ = match &options.workload {
        Some(given) => given.clone(),
        None => parse_use(&load.workload).map_err(|error| Failure::new(error.to_string()))?,
    };
    // Small drives get the rates of larger ones, but not their capacity.
    let scaled = |bytes: u64| (bytes as f64 * (smallest as f64 / kind(1).bytes as f64).min(1.0)) as u64;
    let spares = status.report.drives.iter().filter(|drive| drive.role == "spare").count();
    let has_journal = status.report.drives.iter().any(|drive| drive.role == "journal");
    let journal = || Some(Kind::of_size(2, 500_000_000_000, "ssd"));
    let level = volume.layout.parse::<Level>().ok();
    // No layout is excluded for its risk: the table shows the risk.
    let ask = |count: usize, spares: usize| -> Result<Advice> {
        let need = Need {
            risk_per_year: 1.0,
            spares,
            journal: journal(),
            include: level.map(|level| LayoutSpec {
                columns: Some(volume.columns),
                groups: (volume.groups > 1).then_some(volume.groups),
                ..LayoutSpec::new(level)
            }),
            ..Need::of(vec![kind(count + spares)], use_.clone())
        };
        advise(&need, &|_, _| ()).map_err(|error| Failure::new(error.to_string()).hint(error.hint()))
    };
    let is_present = |choice: &&Choice| {
        choice.layout == volume.layout
            && choice.groups == volume.groups
            && (choice.journal_drives > 0) == has_journal
    };
    let of_columns = ask(volume.columns, spares)?;
    let Some(mut present) = of_columns.choices.iter().find(is_present).cloned() else {
        return Err(Failure::new(format!("cannot model {} of {} drives", volume.layout, volume.columns)));
    };
    let all = if drives > volume.columns { ask(drives, spares)? } else { of_columns.clone() };
    let mut alternatives = Vec::new();
    let mut add = |what: String, command: String, choice: &Choice| {
        let ratio = choice.normal.workload / present.normal.workload.max(1e-9);
        alternatives.push(Alternative {
            what,
            command,
            rate_percent: 100.0 * ratio,
            usable_bytes: scaled(choice.usable_bytes),
            loss_probability_per_year: choice.loss_probability_per_year,
            error_percent: choice.error_percent,
            rate_is_equal: (ratio.max(1.0 / ratio) - 1.0) * 100.0 <= choice.error_percent,
        });
    };
    let name = format!("{}/{}", status.report.name, volume.name);
    for choice in all.choices.iter().filter(|choice| (choice.journal_drives > 0) == has_journal) {
        if is_present(&choice) && choice.columns == volume.columns {
            continue;
        }
        let groups = if choice.groups > 1 { format!(" --groups {}", choice.groups) } else { String::new() };
        let yes = if redundancy(&choice.layout, choice.columns) < redundancy(&volume.layout, volume.columns) {
            " --yes"
        } else {
            ""
        };
        add(
            format!("{} of {} drives", choice.layout, choice.drives),
            format!(
                "stripewise volume convert {name} --layout {}{groups} --columns {}{yes}",
                choice.layout, choice.columns
            ),
            choice,
        );
    }
    let with_journal = |choice: &&Choice| {
        choice.layout == volume.layout && choice.groups == volume.groups && choice.journal_drives > 0
    };
    if let Some(choice) = of_columns.choices.iter().find(with_journal).filter(|_| !has_journal) {
        let command = format!("stripewise pool add {} SSD1 SSD2 --as journal", status.report.name);
        add("a journal on solid-state drives".to_owned(), command, choice);
    }
    if present.rebuild_seconds.is_some()
        && let Some(choice) = ask(volume.columns, spares + 1)?.choices.iter().find(is_present)
    {
        let command = format!("stripewise pool add {} DRIVE --as spare", status.report.name);
        add("one more spare".to_owned(), command, choice);
    }
    let best = alternatives.iter().map(|alternative| alternative.rate_percent).fold(100.0, f64::max);
    let costs = Costs {
        space_percent: 100.0
            * (1.0 - present.usable_bytes as f64 / (volume.columns as f64 * kind(1).bytes as f64)),
        rate_of_best_percent: 100.0 * 100.0 / best,
    };
    let rebuild = rebuild(status, volume, &present, kind(1).bytes);
    present.usable_bytes = scaled(present.usable_bytes);
    let layout = volume.layout.clone();
    Ok(VolumeAdvice { volume: name, layout, load, present, costs, alternatives, rebuild })
}

/// Number of drive failures that a layout survives in every case.
fn redundancy(layout: &str, columns: usize) -> usize {
    layout.parse::<Level>().map_or(0, |level| match level {
        Level::Raid1 => columns - 1,
        Level::Raid10 => 1,
        other => other.parity_units(),
    })
}

/// Load of a volume since the pool was opened.
fn load(options: &Options, status: &StatusFile, volume: &str, assumptions: &mut Vec<String>) -> Result<Load> {
    let of = |operation: &str| {
        let counts =
            status.volumes.iter().filter(|counts| counts.volume == volume && counts.operation == operation);
        counts
            .fold((0, 0), |sum, counts| (sum.0 + counts.by_latency.iter().sum::<u64>(), sum.1 + counts.bytes))
    };
    let tiers = status.report.volumes.iter().find(|report| report.name == volume).map(|report| &report.tiers);
    let hottest_row_percent = tiers.and_then(|tiers| {
        let heat = tiers.fast_heat + tiers.data_heat;
        (heat > 0.0).then(|| 100.0 * tiers.hottest_row_heat / heat)
    });
    let ((reads, read_bytes), (writes, written_bytes)) = (of("read"), of("write"));
    let (requests, bytes) = (reads + writes, read_bytes + written_bytes);
    let seconds = (unix_ms().saturating_sub(status.opened_unix_ms) as f64 / 1000.0).max(1.0);
    let mean_bytes = if requests > 0 { bytes as f64 / requests as f64 } else { 0.0 };
    let read_percent = if requests > 0 { 100.0 * reads as f64 / requests as f64 } else { 50.0 };
    let workload = match (&options.workload, requests) {
        (Some(given), _) => given.name.clone(),
        (None, 0) => {
            assumptions
                .push(format!("no I/O on {volume} since the pool was opened: a mixed workload is assumed"));
            "mixed".to_owned()
        }
        (None, _) => {
            let random = if mean_bytes < STREAM_BYTES { 100 } else { 0 };
            assumptions.push(
                "requests smaller than 256 KiB on average count as random; queue depth 32 is assumed"
                    .to_owned(),
            );
            let block = (mean_bytes as u64).clamp(4096, 16 << 20).next_power_of_two();
            format!("read={read_percent:.0},random={random},block={block},depth=32")
        }
    };
    let mb_per_s = bytes as f64 / 1e6 / seconds;
    Ok(Load { requests, read_percent, mean_bytes, mb_per_s, workload, hottest_row_percent })
}

/// Predicts the rebuild. It fills only allocated space, and gets the idle time of the busiest
/// drive, at least the share of its priority.
fn rebuild(status: &StatusFile, volume: &VolumeReport, present: &Choice, drive_bytes: u64) -> Rebuild {
    let filled = volume.allocated_bytes as f64 / volume.columns.max(1) as f64 / drive_bytes as f64;
    let idle_seconds = present.rebuild_seconds.map(|seconds| seconds * filled.min(1.0));
    let seconds = (status.unix_ms.saturating_sub(status.opened_unix_ms) as f64 / 1000.0).max(1.0);
    let busiest =
        status.drives.iter().map(|drive| drive.busy_ns as f64 / 1e9 / seconds).fold(0.0, f64::max).min(1.0);
    let at = |priority: u32| {
        let share = (1.0 - busiest).max(f64::from(priority) / 100.0);
        idle_seconds.map(|idle| idle / share)
    };
    let priorities = [10, 30, 60, 100];
    Rebuild {
        idle_seconds,
        drives_busy_percent: 100.0 * busiest,
        now_seconds: at(status.report.rebuild_priority_percent.max(1)),
        by_priority: priorities
            .into_iter()
            .filter_map(|percent| {
                let clients_mb_per_s = present.degraded.workload * (1.0 - f64::from(percent) / 100.0);
                Some(AtPriority { percent, seconds: at(percent)?, clients_mb_per_s })
            })
            .collect(),
    }
}

fn print(report: &Report, page: &mut Page) {
    for volume in &report.volumes {
        let field = |page: &mut Page, label: &str, text: String| page.field(label, text, Style::Plain);
        field(
            page,
            "volume",
            format!("{}, {} of {} drives", volume.volume, volume.layout, volume.present.columns),
        );
        let load = &volume.load;
        let text = match load.requests {
            0 => format!("no I/O so far; predicted for {}", load.workload),
            requests => format!("{requests} requests, {:.1} MB/s: {}", load.mb_per_s, load.workload),
        };
        field(page, "load", text);
        if let Some(percent) = load.hottest_row_percent.filter(|percent| *percent > HOT_PERCENT) {
            let advice = format!(
                "{percent:.0} % on one row: stripewise pool add {} SSD1 SSD2 … --as fast",
                report.pool
            );
            field(page, "heat", advice);
        }
        field(
            page,
            "can do",
            format!("{:.0} MB/s, limited by {}", volume.present.normal.workload, volume.present.bottleneck),
        );
        let costs = &volume.costs;
        let text = format!(
            "{:.0} % of the space; {:.0} % of the rate of the fastest alternative",
            costs.space_percent, costs.rate_of_best_percent
        );
        field(page, "costs", text);
        field(page, "loss", chance_per_year(volume.present.loss_probability_per_year));
        let time = |seconds: Option<f64>| seconds.map_or_else(|| "impossible".to_owned(), duration_text);
        let rebuild = &volume.rebuild;
        let now = format!(
            "{} without load, {} at the present load (drives {:.0} % busy)",
            time(rebuild.idle_seconds),
            time(rebuild.now_seconds),
            rebuild.drives_busy_percent
        );
        field(page, "rebuild", now);
        for at in &rebuild.by_priority {
            let text = format!(
                "{} with rebuild-priority={}; up to {:.0} MB/s for clients",
                duration_text(at.seconds),
                at.percent,
                at.clients_mb_per_s
            );
            field(page, "", text);
        }
        let mut table = Table::new(&["WHAT IF", ">RATE", ">USABLE", ">LOSS/YEAR", "COMMAND"]);
        for alternative in &volume.alternatives {
            let rate = match alternative.rate_is_equal {
                true => "equal".to_owned(),
                false => format!("{:.0} %", alternative.rate_percent),
            };
            table.row([
                plain(alternative.what.clone()),
                plain(rate),
                plain(ByteSize(alternative.usable_bytes).to_string()),
                plain(percent(alternative.loss_probability_per_year)),
                plain(alternative.command.clone()),
            ]);
        }
        page.table(&table);
    }
    for line in &report.assumptions {
        page.field("assumed", line, Style::Plain);
    }
}
