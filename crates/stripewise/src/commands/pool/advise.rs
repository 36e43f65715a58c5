//! `pool advise`: what the layouts of a pool's volumes cost, and what others, a journal, a spare or
//! another rebuild priority would give, by the model and by what the pool was asked so far. Looks
//! only.
//!
//! Expected faults: a pool that nobody has open, so that nothing is known of its load (said so).

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

use crate::commands::App;
use crate::commands::advise::{drives, workload};
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Style, Table, plain};

/// Say what another layout, a journal, a spare or another rebuild priority would give a pool
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// What its drives are: hdd, ssd, nvme, a catalogue name, or a file of `drive measure`
    /// [default: what the kernel says of them, hdd for files]
    #[arg(long, value_name = "NAME")]
    drive: Option<String>,
    /// The workload, instead of what the pool was asked so far: as for `advise`
    #[arg(long, value_name = "WORKLOAD", value_parser = workload)]
    workload: Option<Use>,
}

/// Requests of more than this are taken for parts of a stream.
const STREAM_BYTES: f64 = 256.0 * 1024.0;
/// A row that takes more of the requests than this is worth fast drives.
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

/// What the present layout takes.
#[derive(Serialize)]
struct Costs {
    /// Of its drives' space, for redundancy.
    space_percent: f64,
    /// The present rate, of that of the fastest alternative.
    rate_of_best_percent: f64,
}

/// What a volume was asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Load {
    requests: u64,
    read_percent: f64,
    mean_bytes: f64,
    mb_per_s: f64,
    workload: String,
    /// What of its heat is on the row that is asked most; nothing where no process counts it.
    hottest_row_percent: Option<f64>,
}

#[derive(Serialize)]
struct Alternative {
    what: String,
    command: String,
    /// Of the present rate.
    rate_percent: f64,
    usable_bytes: u64,
    loss_probability_per_year: f64,
    error_percent: f64,
    /// Nearer to the present rate than the model's error.
    rate_is_equal: bool,
}

/// How long it takes to fill a new drive.
#[derive(Serialize)]
struct Rebuild {
    idle_seconds: Option<f64>,
    drives_busy_percent: f64,
    now_seconds: Option<f64>,
    by_priority: Vec<AtPriority>,
}

/// What a rebuild priority gives.
#[derive(Serialize)]
struct AtPriority {
    percent: u32,
    /// Under the present load.
    seconds: f64,
    /// What is left for clients who ask for more.
    clients_mb_per_s: f64,
}

pub(crate) async fn run(options: &Options, app: &App) -> Result<Exit> {
    if app.printer.caller().is_some() {
        return Err(Failure::new(
            "the daemon predicts nothing: that takes seconds in which it would serve nobody",
        )
        .hint("run the command where the daemon's state folder is"));
    }
    let registry = app.registry()?;
    let known = registry.pool(&options.name.0)?;
    let word = match other_process::wait_for(app, &registry, &known).await? {
        Some(word) => word,
        None => {
            with_pool(app, &known.name, Access::Look, "pool advise", async |session| Ok(session.word()))
                .await?
        }
    };
    let report = report(options, app, &word)?;
    app.printer.result(&report, |page| print(&report, page))?;
    Ok(Exit::Success)
}

/// What the drives are: as said, else as the kernel says of the first that is there.
fn kind_of(
    options: &Options,
    app: &App,
    word: &StatusFile,
    bytes: u64,
    assumptions: &mut Vec<String>,
) -> Result<Kind> {
    let said = match options.drive.as_deref() {
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
    let mut data = word.report.drives.iter().filter(|drive| drive.role == "data");
    let known = data.find_map(|drive| drives::is_rotational(Path::new(&drive.path)));
    let sort = said.unwrap_or(if known == Some(false) { "ssd" } else { "hdd" });
    let why = match (said, known) {
        (Some(_), _) => "as said",
        (None, Some(_)) => "as the kernel says",
        (None, None) => "files do not tell; --drive does",
    };
    assumptions.push(format!("the drives are of the sort {sort}, {}: {why}", ByteSize(bytes)));
    if bytes < drives::LEAST_BYTES {
        assumptions.push("drives of less than 100 GB have the rates of such ones".to_owned());
    }
    Ok(Kind::of_size(1, bytes.max(drives::LEAST_BYTES), sort))
}

fn report(options: &Options, app: &App, word: &StatusFile) -> Result<Report> {
    let pool = &word.report;
    let data: Vec<_> = pool.drives.iter().filter(|drive| drive.role == "data").collect();
    let smallest = data.iter().map(|drive| drive.capacity_bytes).min().unwrap_or(0);
    let mut assumptions = Vec::new();
    let one = kind_of(options, app, word, smallest, &mut assumptions)?;
    let kind = |count| one.clone().times(count);
    let mut volumes = Vec::new();
    for volume in pool.volumes.iter().filter(|volume| volume.conversion.is_none()) {
        volumes.push(of_volume(options, word, volume, (data.len(), smallest), &kind, &mut assumptions)?);
    }
    if volumes.is_empty() {
        assumptions.push(
            "the pool has no volume to advise on: stripewise advise is for what is not there yet".to_owned(),
        );
    }
    assumptions.dedup();
    Ok(Report { pool: pool.name.clone(), assumptions, volumes })
}

fn of_volume(
    options: &Options,
    word: &StatusFile,
    volume: &VolumeReport,
    (drives, smallest): (usize, u64),
    kind: &dyn Fn(usize) -> Kind,
    assumptions: &mut Vec<String>,
) -> Result<VolumeAdvice> {
    let load = load(options, word, &volume.name, assumptions)?;
    let use_ = match &options.workload {
        Some(given) => given.clone(),
        None => parse_use(&load.workload).map_err(|error| Failure::new(error.to_string()))?,
    };
    // Small drives have the rates of larger ones, not their room.
    let scaled = |bytes: u64| (bytes as f64 * (smallest as f64 / kind(1).bytes as f64).min(1.0)) as u64;
    let spares = word.report.drives.iter().filter(|drive| drive.role == "spare").count();
    let has_journal = word.report.drives.iter().any(|drive| drive.role == "journal");
    let journal = || Some(Kind::of_size(2, 500_000_000_000, "ssd"));
    let level = volume.layout.parse::<Level>().ok();
    // Everything is an option here: what is risky says so.
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
        return Err(Failure::new(format!(
            "{} of {} drives is not in the model",
            volume.layout, volume.columns
        )));
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
    let name = format!("{}/{}", word.report.name, volume.name);
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
        let command = format!("stripewise pool add {} SSD1 SSD2 --as journal", word.report.name);
        add("a journal on solid-state drives".to_owned(), command, choice);
    }
    if present.rebuild_seconds.is_some()
        && let Some(choice) = ask(volume.columns, spares + 1)?.choices.iter().find(is_present)
    {
        let command = format!("stripewise pool add {} DRIVE --as spare", word.report.name);
        add("one more spare".to_owned(), command, choice);
    }
    let best = alternatives.iter().map(|alternative| alternative.rate_percent).fold(100.0, f64::max);
    let costs = Costs {
        space_percent: 100.0
            * (1.0 - present.usable_bytes as f64 / (volume.columns as f64 * kind(1).bytes as f64)),
        rate_of_best_percent: 100.0 * 100.0 / best,
    };
    let rebuild = rebuild(word, volume, &present, kind(1).bytes);
    present.usable_bytes = scaled(present.usable_bytes);
    let layout = volume.layout.clone();
    Ok(VolumeAdvice { volume: name, layout, load, present, costs, alternatives, rebuild })
}

/// Drives that a layout may lose wherever they are.
fn redundancy(layout: &str, columns: usize) -> usize {
    layout.parse::<Level>().map_or(0, |level| match level {
        Level::Raid1 => columns - 1,
        Level::Raid10 => 1,
        other => other.parity_units(),
    })
}

/// What a volume was asked since the pool was opened.
fn load(options: &Options, word: &StatusFile, volume: &str, assumptions: &mut Vec<String>) -> Result<Load> {
    let of = |operation: &str| {
        let counts =
            word.volumes.iter().filter(|counts| counts.volume == volume && counts.operation == operation);
        counts
            .fold((0, 0), |sum, counts| (sum.0 + counts.by_latency.iter().sum::<u64>(), sum.1 + counts.bytes))
    };
    let tiers = word.report.volumes.iter().find(|report| report.name == volume).map(|report| &report.tiers);
    let hottest_row_percent = tiers.and_then(|tiers| {
        let heat = tiers.fast_heat + tiers.data_heat;
        (heat > 0.0).then(|| 100.0 * tiers.hottest_row_heat / heat)
    });
    let ((reads, read_bytes), (writes, written_bytes)) = (of("read"), of("write"));
    let (requests, bytes) = (reads + writes, read_bytes + written_bytes);
    let seconds = (unix_ms().saturating_sub(word.opened_unix_ms) as f64 / 1000.0).max(1.0);
    let mean_bytes = if requests > 0 { bytes as f64 / requests as f64 } else { 0.0 };
    let read_percent = if requests > 0 { 100.0 * reads as f64 / requests as f64 } else { 50.0 };
    let workload = match (&options.workload, requests) {
        (Some(given), _) => given.name.clone(),
        (None, 0) => {
            assumptions
                .push(format!("{volume} was asked nothing since the pool was opened: mixed work is assumed"));
            "mixed".to_owned()
        }
        (None, _) => {
            let random = if mean_bytes < STREAM_BYTES { 100 } else { 0 };
            assumptions.push(
                "requests of less than 256 KiB on average are taken for random ones, 32 at a time".to_owned(),
            );
            let block = (mean_bytes as u64).clamp(4096, 16 << 20).next_power_of_two();
            format!("read={read_percent:.0},random={random},block={block},depth=32")
        }
    };
    let mb_per_s = bytes as f64 / 1e6 / seconds;
    Ok(Load { requests, read_percent, mean_bytes, mb_per_s, workload, hottest_row_percent })
}

/// Only what is allocated is filled; drives that are busy leave it the rest of their time, or its
/// share.
fn rebuild(word: &StatusFile, volume: &VolumeReport, present: &Choice, drive_bytes: u64) -> Rebuild {
    let filled = volume.allocated_bytes as f64 / volume.columns.max(1) as f64 / drive_bytes as f64;
    let idle_seconds = present.rebuild_seconds.map(|seconds| seconds * filled.min(1.0));
    let seconds = (word.unix_ms.saturating_sub(word.opened_unix_ms) as f64 / 1000.0).max(1.0);
    let busiest =
        word.drives.iter().map(|drive| drive.busy_ns as f64 / 1e9 / seconds).fold(0.0, f64::max).min(1.0);
    let at = |priority: u32| {
        let share = (1.0 - busiest).max(f64::from(priority) / 100.0);
        idle_seconds.map(|idle| idle / share)
    };
    let priorities = [10, 30, 60, 100];
    Rebuild {
        idle_seconds,
        drives_busy_percent: 100.0 * busiest,
        now_seconds: at(word.report.rebuild_priority_percent.max(1)),
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
        let asked = match load.requests {
            0 => format!("nothing so far; predicted for {}", load.workload),
            requests => format!("{requests} requests, {:.1} MB/s: {}", load.mb_per_s, load.workload),
        };
        field(page, "load", asked);
        if let Some(percent) = load.hottest_row_percent.filter(|percent| *percent > HOT_PERCENT) {
            let advice = format!(
                "{percent:.0} % of it on one row: stripewise pool add {} SSD1 SSD2 … --as fast",
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
            "{:.0} % of the space, and it has {:.0} % of the rate of the fastest alternative",
            costs.space_percent, costs.rate_of_best_percent
        );
        field(page, "costs", text);
        let loss = |probability: f64| match probability * 100.0 {
            percent @ 0.01.. => format!("{percent:.2} %"),
            percent => format!("{percent:.0e} %"),
        };
        field(page, "loss", format!("{} a year", loss(volume.present.loss_probability_per_year)));
        let time = |seconds: Option<f64>| seconds.map_or_else(|| "impossible".to_owned(), duration_text);
        let rebuild = &volume.rebuild;
        let now = format!(
            "{} without load, {} now that drives are {:.0} % busy",
            time(rebuild.idle_seconds),
            time(rebuild.now_seconds),
            rebuild.drives_busy_percent
        );
        field(page, "rebuild", now);
        for at in &rebuild.by_priority {
            let text = format!(
                "{} with rebuild-priority={}, which leaves clients {:.0} MB/s",
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
                plain(loss(alternative.loss_probability_per_year)),
                plain(alternative.command.clone()),
            ]);
        }
        page.table(&table);
    }
    for line in &report.assumptions {
        page.field("assumed", line, Style::Plain);
    }
}
