//! `model predict`: predicts the performance and bottleneck of a system, with the error of such
//! predictions in the published studies.
//!
//! Expected faults: unknown names (the error suggests the nearest), impossible configurations (the
//! error names the rule).

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use stripewise_control::registry::replace_file;
use stripewise_control::size::ByteSize;
use stripewise_lab::Pattern as LabPattern;
use stripewise_lab::method;
use stripewise_model::predict::{Latency, Limit, Prediction, State, Workload, depth_chart, predict};
use stripewise_model::system::{Catalogue, Configuration, Over, System};
use stripewise_model::validate::Expected;

use super::{parse_share, parse_state, system_failure};
use crate::commands::App;
use crate::failure::{Exit, Failure, Result, system_text};
use crate::printer::{Page, Style, Table, plain};

/// Predict the performance and bottleneck of a system of the catalogue, or of drives under a layout
#[derive(Args)]
#[command(after_help = "Example: stripewise model predict --layout raid5 --drives 4xmg08ada800e")]
pub(crate) struct Options {
    /// A system of the catalogue
    #[arg(value_name = "SYSTEM", required_unless_present = "drives", conflicts_with = "drives")]
    system: Option<String>,
    #[command(flatten)]
    build: Build,
    /// State of the array: normal, degraded or rebuilding
    #[arg(long, default_value = "normal", value_parser = parse_state)]
    state: State,
    /// Method of `lab profiles` whose loads to predict [default without --pattern: toshiba]
    #[arg(long, value_name = "NAME", conflicts_with = "pattern")]
    profile: Option<String>,
    /// Predict one load with this access pattern
    #[arg(long)]
    pattern: Option<Pattern>,
    /// Request size [default: 4 KiB for random loads, 1 MiB for sequential loads]
    #[arg(long, value_name = "SIZE")]
    block: Option<ByteSize>,
    /// Outstanding requests per worker
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4096))]
    depth: u16,
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Fraction of reads in a mixed load
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = parse_share)]
    read_share: f64,
    /// Size of the part of the array to use, from its start [default: all]
    #[arg(long, value_name = "SIZE")]
    span: Option<ByteSize>,
    /// Write a chart of throughput and latency over queue depth as SVG
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

/// A configuration given by its parts.
#[derive(Args)]
pub(super) struct Build {
    /// Number and name of the drives, as in 4xmg08ada400e
    #[arg(long, value_name = "NxNAME", requires = "layout")]
    drives: Option<String>,
    /// Layout over the drives
    #[arg(long)]
    layout: Option<String>,
    /// Number of drives per row [default: all]
    #[arg(long, value_name = "N")]
    columns: Option<usize>,
    /// Number of groups, for raid50 and raid60
    #[arg(long, value_name = "N")]
    groups: Option<usize>,
    /// Strip size
    #[arg(long, value_name = "SIZE")]
    interleave: Option<ByteSize>,
    /// Controller or software [default: hba]
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
    /// Number of controllers that share the drives
    #[arg(long, value_name = "N", default_value_t = 1)]
    controllers: usize,
    /// Devices below software RAID: jbod, simple-volumes or hardware-raid0
    #[arg(long, value_name = "WHAT")]
    over: Option<SoftwareOver>,
    /// Link between host and array: 10gbe, 2.5gbe, 1gbe …
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
}

/// Devices below software RAID.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum SoftwareOver {
    /// Devices that the controller passes through
    Jbod,
    /// One-drive volumes behind the controller's cache
    SimpleVolumes,
    /// RAID 0 sets of each controller
    HardwareRaid0,
}

/// Access pattern of a load.
#[derive(Clone, Copy, ValueEnum)]
enum Pattern {
    SeqRead,
    SeqWrite,
    RandRead,
    RandWrite,
    Mixed,
}

impl Build {
    /// Returns the requested configuration.
    pub(super) fn configuration(&self, catalogue: &Catalogue) -> Result<Configuration> {
        let drives = self.drives.clone().unwrap_or_default();
        catalogue.drives(&drives).map_err(|error| system_failure(&error))?;
        Ok(Configuration {
            drives,
            layout: self.layout.clone().unwrap_or_default(),
            columns: self.columns,
            interleave_kib: self.interleave.map(|size| size.0 >> 10),
            groups: self.groups,
            controller: self.controller.clone().unwrap_or_else(|| "hba".into()),
            controllers: self.controllers,
            over: match self.over {
                None => Over::Drives,
                Some(SoftwareOver::Jbod) => Over::Jbod,
                Some(SoftwareOver::SimpleVolumes) => Over::SimpleVolumes,
                Some(SoftwareOver::HardwareRaid0) => Over::HardwareRaid0,
            },
            file_system: false,
            link: self.link.clone(),
            journal: None,
            filled: None,
        })
    }
}

#[derive(Serialize)]
struct Predicted<'a> {
    system: &'a str,
    layout: &'a str,
    state: State,
    mb_per_s: f64,
    iops: f64,
    latency_us: Latency,
    bottleneck: &'a str,
    headroom: f64,
    rebuild_seconds: Option<f64>,
    rebuild_under_load_seconds: Option<f64>,
    drive_utilisation: f64,
    drive_utilisations: &'a [f64],
    processor_utilisation: f64,
    expected_error_percent: f64,
    expected_p90_error_percent: f64,
    limits: &'a [Limit],
    #[serde(skip_serializing_if = "Option::is_none")]
    measurements: Option<Vec<Measurement<'a>>>,
}

#[derive(Serialize)]
struct Measurement<'a> {
    name: &'a str,
    mb_per_s: f64,
    iops: f64,
    latency_us: Latency,
    bottleneck: &'a str,
    headroom: f64,
    rebuild_under_load_seconds: Option<f64>,
    drive_utilisation: f64,
    processor_utilisation: f64,
    expected_error_percent: f64,
    expected_p90_error_percent: f64,
}

/// A load, its prediction, and the median and p90 error of such figures.
struct Figure {
    name: String,
    prediction: Prediction,
    error: (f64, f64),
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let catalogue = Catalogue::built_in();
    let system = match &options.system {
        Some(name) => catalogue.system(name),
        None => {
            let configuration = options.build.configuration(&catalogue)?;
            let name = format!("{} {}", configuration.drives, configuration.layout);
            catalogue.build(&name, &configuration)
        }
    };
    let system = system.map_err(|error| system_failure(&error))?;
    if options.state != State::Normal && system.shape.fault_tolerance() == 0 {
        return Err(Failure::new(format!("{} has no redundancy: it has no such state", system.shape.level))
            .hint("choose a layout with redundancy, or --state normal"));
    }
    let loads = loads(options)?;
    let mut expected = Expected::new(&catalogue);
    let figures: Vec<Figure> = loads
        .iter()
        .map(|(name, load)| {
            let error = expected.error(&system, load);
            Figure {
                name: name.clone(),
                prediction: predict(&system, options.state, load),
                error: (error.median_error_percent, error.p90_error_percent),
            }
        })
        .collect();
    if let Some(path) = &options.chart {
        let path = app.absolute(path);
        let chart = depth_chart(&system, options.state, &loads[0].1);
        replace_file(&path, chart.as_bytes()).map_err(|error| {
            Failure::new(format!("cannot write {}: {}", path.display(), system_text(&error)))
        })?;
        app.printer.note(format!("chart: {}", path.display()));
    }
    print(options, app, &system, &figures)?;
    Ok(Exit::Success)
}

fn loads(options: &Options) -> Result<Vec<(String, Workload)>> {
    let span_bytes = options.span.map(|size| size.0);
    if let Some(pattern) = options.pattern {
        let (name, read_share, random) = match pattern {
            Pattern::SeqRead => ("seq-read", 1.0, false),
            Pattern::SeqWrite => ("seq-write", 0.0, false),
            Pattern::RandRead => ("rand-read", 1.0, true),
            Pattern::RandWrite => ("rand-write", 0.0, true),
            Pattern::Mixed => ("mixed", options.read_share, true),
        };
        let block = options.block.map_or(if random { 4096 } else { 1 << 20 }, |size| size.0);
        if block == 0 || !block.is_multiple_of(512) {
            return Err(Failure::usage(format!(
                "a block of {block} bytes is not a positive multiple of 512"
            )));
        }
        let load = Workload {
            read_share,
            random_share: if random { 1.0 } else { 0.0 },
            blocks: vec![(block, 1.0)],
            depth: options.depth.into(),
            workers: options.workers.into(),
            span_bytes,
            repeats: false,
        };
        return Ok(vec![(name.into(), load)]);
    }
    profile_loads(options.profile.as_deref().unwrap_or("toshiba"), span_bytes)
}

/// Returns the block loads of a method.
pub(crate) fn profile_loads(name: &str, span_bytes: Option<u64>) -> Result<Vec<(String, Workload)>> {
    let profile = method::built_in(name)
        .map_err(|error| Failure::because(format!("cannot predict `{name}`"), &error))?;
    let load = |step: &method::Step| {
        let load = Workload { span_bytes, ..lab_load(&step.workload) };
        (step.name.clone(), load)
    };
    let loads: Vec<_> = profile.steps.iter().map(load).collect();
    if loads.is_empty() {
        return Err(Failure::new(format!("`{name}` measures a file system, which is not modelled"))
            .hint("choose a method with block loads; `stripewise lab profiles` lists the methods"));
    }
    Ok(loads)
}

/// Converts a load of the laboratory to one of the model, on the whole array.
pub(crate) fn lab_load(load: &stripewise_lab::Workload) -> Workload {
    let random_share = match load.pattern {
        LabPattern::Sequential => 0.0,
        LabPattern::Partly(percent) => f64::from(percent) / 100.0,
        _ => 1.0,
    };
    Workload {
        read_share: load.read_share,
        random_share,
        blocks: load.blocks.iter().map(|one| (one.bytes, f64::from(one.share))).collect(),
        depth: load.depth as usize,
        workers: load.jobs as usize,
        span_bytes: None,
        repeats: false,
    }
}

fn print(options: &Options, app: &App, system: &System, figures: &[Figure]) -> Result<()> {
    let first = &figures[0];
    let prediction = &first.prediction;
    let layout = system.shape.level.name();
    let document = Predicted {
        system: &system.name,
        layout,
        state: options.state,
        mb_per_s: prediction.mb_per_s,
        iops: prediction.iops,
        latency_us: prediction.latency_us,
        bottleneck: &prediction.bottleneck,
        headroom: prediction.headroom,
        rebuild_seconds: prediction.rebuild_seconds,
        rebuild_under_load_seconds: prediction.rebuild_under_load_seconds,
        drive_utilisation: prediction.drive_utilisation,
        drive_utilisations: &prediction.drives_busy,
        processor_utilisation: prediction.processor_utilisation,
        expected_error_percent: first.error.0,
        expected_p90_error_percent: first.error.1,
        limits: &prediction.limits,
        measurements: (figures.len() > 1).then(|| {
            let all = figures.iter().map(|figure| {
                let one = &figure.prediction;
                Measurement {
                    name: &figure.name,
                    mb_per_s: one.mb_per_s,
                    iops: one.iops,
                    latency_us: one.latency_us,
                    bottleneck: &one.bottleneck,
                    headroom: one.headroom,
                    rebuild_under_load_seconds: one.rebuild_under_load_seconds,
                    drive_utilisation: one.drive_utilisation,
                    processor_utilisation: one.processor_utilisation,
                    expected_error_percent: figure.error.0,
                    expected_p90_error_percent: figure.error.1,
                }
            });
            all.collect()
        }),
    };
    app.printer.result(&document, |page| page_of(system, figures, page))
}

fn page_of(system: &System, figures: &[Figure], page: &mut Page) {
    page.field("system", &system.name, Style::Strong);
    let drives = format!("{} × {}", system.drives, system.drive.title);
    page.field("drives", drives, Style::Plain);
    page.field("behind", &system.controller.title, Style::Plain);
    let shape = &system.shape;
    page.field("layout", format!("{} of {} members", shape.level, shape.width), Style::Plain);
    let mut table = Table::new(&[
        "LOAD",
        ">MB/s",
        ">IOPS",
        ">MEAN µs",
        ">P99 µs",
        "LIMITED BY",
        ">NEXT",
        ">DRIVES %",
        ">CPU %",
        ">ERROR %",
    ]);
    for Figure { name, prediction, error } in figures {
        table.row([
            plain(name.clone()),
            plain(format!("{:.1}", prediction.mb_per_s)),
            plain(format!("{:.0}", prediction.iops)),
            plain(format!("{:.0}", prediction.latency_us.mean)),
            plain(format!("{:.0}", prediction.latency_us.p99)),
            plain(prediction.bottleneck.clone()),
            plain(format!("{:.2}×", prediction.headroom)),
            plain(format!("{:.0}", 100.0 * prediction.drive_utilisation)),
            plain(format!("{:.0}", 100.0 * prediction.processor_utilisation)),
            plain(format!("{:.0}, {:.0}", error.0, error.1)),
        ]);
    }
    page.line("");
    page.table_within(&table, 100);
    page.line("");
    let mut rebuilds = vec![format!("{} idle", hours(figures[0].prediction.rebuild_seconds))];
    rebuilds.extend(figures.iter().map(|figure| {
        format!("{} under {}", hours(figure.prediction.rebuild_under_load_seconds), figure.name)
    }));
    page.field("rebuild, h", rebuilds.join(", "), Style::Plain);
    let busy: Vec<String> =
        figures[0].prediction.drives_busy.iter().map(|one| format!("{:.0}", 100.0 * one)).collect();
    page.field("drives, %", format!("{} ({})", busy.join(" "), figures[0].name), Style::Plain);
    page.line("");
    page.line(
        "NEXT: rate of the next bottleneck, as a multiple. DRIVES, CPU: percentage of time that the busiest",
    );
    page.line(
        "drive, and the controller's processor or a core of the host, are busy. ERROR: median and p90 error",
    );
    page.line("in the published studies (`stripewise model validate`).");
}

/// Hours of a rebuild; `no` without redundancy.
fn hours(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "no".into(), |one| format!("{:.1}", one / 3600.0))
}
