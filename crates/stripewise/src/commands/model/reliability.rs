//! `model reliability`: estimates the probability of data loss of a layout, with confidence
//! intervals and assumptions.
//!
//! Expected faults: invalid distributions and numbers, layouts that do not fit the drives.

use clap::Args;
use serde::Serialize;
use stripewise_control::size::ByteSize;
use stripewise_layout::LayoutSpec;
use stripewise_model::advise::{Kind, Use};
use stripewise_model::reliability::{
    Batch, BitErrors, Estimate, Figure, Law, PredictedRebuild, RebuildErrors, Repairs, Spares, Stop,
    WishError, Wishes, chance, estimate, notation, percent, predicted_rebuild,
};

use crate::commands::App;
use crate::commands::advise::{drives, workload};
use crate::commands::volume::create::{parse_layout, with_columns};
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Style};
use crate::progress::Progress;

/// Estimate the probability of data loss of a layout
#[derive(Args)]
#[command(after_help = "LAW is a distribution of durations in hours: weibull:BETA,ETA, \
        weibull:GAMMA,ETA,BETA, exponential:MEAN, fixed:HOURS or uniform:FROM,TO. Omitted options \
        have published defaults; the output lists them as assumptions.\n\n\
        Example: stripewise model reliability --layout raid6 --drives 8 --years 5")]
pub(crate) struct Options {
    /// Layout: single raid0 raid1 raid4 raid5 raid6 raid7 raid10 raid50 raid60, or an alias of
    /// `volume create`
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout)]
    layout: LayoutSpec,
    /// Number of drives, without dedicated spares
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    drives: u16,
    /// Number of drives per row [default: all; raid1: 2]
    #[arg(long, value_name = "N")]
    columns: Option<usize>,
    /// Number of groups, for raid50 and raid60
    #[arg(long, value_name = "G")]
    groups: Option<usize>,
    /// Mission time in years
    #[arg(long, value_name = "Y", default_value = "10", value_parser = notation::positive)]
    years: f64,
    /// Mean time to failure of a drive; exponential
    #[arg(long, value_name = "H", value_parser = notation::positive, conflicts_with = "failure")]
    mttf_hours: Option<f64>,
    /// Mean time to repair: until a failed drive is rebuilt; exponential
    #[arg(long, value_name = "H", value_parser = notation::positive, conflicts_with = "restore")]
    mttr_hours: Option<f64>,
    /// Lifetime of a drive
    #[arg(long, value_name = "LAW")]
    failure: Option<Law>,
    /// Duration of a rebuild
    #[arg(long, value_name = "LAW")]
    restore: Option<Law>,
    /// Time to a latent sector error on a clean drive: hours, weibull:ETA,1 or none
    #[arg(long, value_name = "HOURS|LAW|none", value_parser = parse_latent)]
    latent: Option<OrNone<f64>>,
    /// Unrecoverable read errors by the data sheet, for each bit: 1e-14, or the bits for one error:
    /// 1e14. They take the place of latent errors; the output shows field data beside them
    #[arg(long, visible_alias = "uber", value_name = "RATE")]
    ure: Option<BitErrors>,
    /// Time from a latent error to its repair by a scrub: a law, hours between scrubs, or none
    #[arg(long, value_name = "HOURS|LAW|none", value_parser = parse_scrub)]
    scrub: Option<OrNone<Law>>,
    /// Number of spare drives
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=100))]
    spares: u16,
    /// Distribute the spare space over all drives, so that all of them take part in a rebuild
    #[arg(long)]
    distributed: bool,
    /// Time from a failure to the arrival of a new drive if no spare is left: hours, a law or none
    #[arg(long, value_name = "HOURS|LAW|none", value_parser = parse_delay)]
    replacement: Option<OrNone<Law>>,
    /// Fraction of bad batches, and the factor by which their drives fail faster, as in 0.05:10
    #[arg(long, value_name = "SHARE:FACTOR", value_parser = notation::batch)]
    batch: Option<Batch>,
    /// Run all rebuilds of a group at once instead of one after the other
    #[arg(long)]
    parallel_repairs: bool,
    /// Drive, for the predicted rebuild time: a catalogue name, a size as in 8TB-hdd, or a file
    /// written by `drive measure`
    #[arg(long, value_name = "NAME", conflicts_with = "capacity")]
    drive: Option<String>,
    /// Capacity of a drive, a hard disk [default: 8TB]
    #[arg(long, value_name = "SIZE")]
    capacity: Option<ByteSize>,
    /// Workload during a rebuild, as for `advise`: sequential, random, mixed, …
    #[arg(long, value_name = "WORKLOAD", default_value = "mixed", value_parser = workload)]
    workload: Use,
    /// Controller or software of the array, by its name in the catalogue
    #[arg(long, value_name = "NAME", default_value = "stripewise")]
    controller: String,
    /// Rebuild rate, instead of the predicted one
    #[arg(long, value_name = "MB/S", value_parser = notation::positive)]
    rebuild_rate: Option<f64>,
    /// Each drive is a volume of another pool with this layout and number of drives, as in raid5:4
    #[arg(long, value_name = "LAYOUT:N", value_parser = notation::inner)]
    on: Option<(LayoutSpec, usize)>,
    /// Maximum half-width of the 95 % confidence interval, in percent of the estimate
    #[arg(long, value_name = "PERCENT", value_parser = notation::positive)]
    precision: Option<f64>,
    /// Maximum number of trials
    #[arg(long, value_name = "N", default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    max_trials: u64,
    /// Random seed; the same seed gives the same result
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of threads; the result does not depend on it [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// A value or `none`.
#[derive(Clone, Copy, Debug)]
struct OrNone<T>(Option<T>);

fn parse_latent(text: &str) -> std::result::Result<OrNone<f64>, String> {
    notation::latent_hours(text).map(OrNone)
}

fn parse_scrub(text: &str) -> std::result::Result<OrNone<Law>, String> {
    notation::scrub(text).map(OrNone)
}

fn parse_delay(text: &str) -> std::result::Result<OrNone<Law>, String> {
    notation::delay(text).map(OrNone)
}

#[derive(Serialize)]
struct Report<'a> {
    layout: &'a str,
    drives: usize,
    years: f64,
    seed: u64,
    /// Array below each drive, with `--on`.
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<String>,
    trials: u64,
    loss_probability: f64,
    ci95: [f64; 2],
    mttdl_hours: Option<f64>,
    hours_degraded_per_year: f64,
    expected_bytes_lost: f64,
    /// Read errors of the data sheet beside field data, with `--ure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_errors: Option<ReadErrors>,
    /// All estimates with their confidence intervals.
    figures: &'a Estimate,
    assumptions: &'a [String],
}

/// Read errors of a data sheet beside what field data say.
#[derive(Serialize)]
struct ReadErrors {
    /// Errors of one rebuild without redundancy left.
    rebuild: RebuildErrors,
    /// Probability of data loss with latent errors as found in the field.
    loss_probability_by_field_data: f64,
    /// Its interval of 95 %.
    ci95_by_field_data: [f64; 2],
    /// Source of the field data.
    field_data: String,
}

/// Compares the data sheet's errors with field data: the same question without them.
fn read_errors(options: &Options, wishes: &Wishes, errors: BitErrors, stop: &Stop) -> Result<ReadErrors> {
    let field = Wishes { bit_errors: None, ..wishes.clone() };
    let asked = field.question().map_err(failure)?;
    // A rebuild without redundancy left reads all other drives of its group.
    let read = asked.question.structure.groups.first().map_or(1, |group| group.drives() - group.tolerance());
    let rebuild = RebuildErrors::of(errors, read, wishes.drive_bytes, &asked.question);
    let found = estimate(&asked.question, asked.bytes_per_group, options.seed, stop, &mut |_, _| true);
    let found = found.map_err(|error| failure(error.into()))?;
    let field_data = asked.assumptions.into_iter().find(|line| line.starts_with("latent errors"));
    Ok(ReadErrors {
        rebuild,
        loss_probability_by_field_data: found.loss_probability.mean,
        ci95_by_field_data: found.loss_probability.ci95,
        field_data: field_data.unwrap_or_else(|| "no latent errors".to_owned()),
    })
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let (wishes, mut assumptions) = wishes(options, app)?;
    let asked = wishes.question().map_err(failure)?;
    assumptions.extend(asked.assumptions);
    let (question, bytes_per_group) = (asked.question, asked.bytes_per_group);
    let threads = options.threads.map(usize::from);
    let mut stop = Stop { most_trials: options.max_trials, threads, ..Stop::default() };
    if let Some(percent) = options.precision {
        stop.precision = percent / 100.0;
        stop.fine_precision = stop.fine_precision.min(stop.precision);
    }
    let mut progress = Progress::new(&app.printer);
    let found = estimate(&question, bytes_per_group, options.seed, &stop, &mut |trials, expected| {
        progress.count("until the interval is narrow enough", "trials", trials, expected);
        true
    });
    let found = found.map_err(|error| failure(error.into()))?;
    let read_errors = options.ure.map(|errors| read_errors(options, &wishes, errors, &stop)).transpose()?;
    let report = Report {
        layout: options.layout.level.name(),
        drives: usize::from(options.drives),
        years: options.years,
        seed: options.seed,
        on: options.on.map(|(inner, drives)| format!("{} of {drives}", inner.level.name())),
        trials: found.trials,
        loss_probability: found.loss_probability.mean,
        ci95: found.loss_probability.ci95,
        mttdl_hours: found.mttdl_hours.map(|figure| figure.mean),
        hours_degraded_per_year: found.hours_degraded_per_year.mean,
        expected_bytes_lost: found.expected_bytes_lost.mean,
        read_errors,
        figures: &found,
        assumptions: &assumptions,
    };
    app.printer.result(&report, |page| print(&report, page))?;
    Ok(Exit::Success)
}

/// Returns a drive of the array, and its rebuild's predicted duration if neither a time nor a rate
/// is given.
fn rebuild(
    options: &Options,
    app: &App,
    layout: &LayoutSpec,
    assumptions: &mut Vec<String>,
) -> Result<(u64, bool, Option<PredictedRebuild>)> {
    // With --on, a rebuild fills a drive of the pool below.
    let (layout, drives) = match &options.on {
        Some((inner, drives)) => (inner, *drives),
        None => (layout, usize::from(options.drives)),
    };
    let kind = match (&options.drive, options.capacity) {
        (Some(name), _) => match drives::parse(app, &format!("{drives}x{name}"), assumptions)?.as_slice() {
            [kind] => kind.clone(),
            _ => return Err(Failure::usage(format!("`{name}` is not one drive")).hint("--drive 8TB-hdd")),
        },
        (None, Some(size)) if size.0 >= drives::LEAST_BYTES => Kind::of_size(drives, size.0, "hdd"),
        (None, Some(ByteSize(0))) => return Err(Failure::usage("--capacity must be more than 0")),
        // Too small for the model of a disk.
        (None, Some(size)) => return Ok((size.0, false, None)),
        (None, None) => Kind::of_size(drives, 8_000_000_000_000, "hdd"),
    };
    let is_given =
        options.restore.is_some() || options.mttr_hours.is_some() || options.rebuild_rate.is_some();
    // Layouts that do not fit the drives are refused later, by the reliability model.
    if is_given || layout.resolve(drives).is_err() {
        return Ok((kind.bytes, kind.is_ssd, None));
    }
    let predicted = predicted_rebuild(layout, &kind, &options.controller, &options.workload);
    let predicted = predicted
        .map_err(|error| Failure::usage(format!("cannot predict the rebuild: {error}")).hint(error.hint()))?;
    Ok((kind.bytes, kind.is_ssd, predicted))
}

fn wishes(options: &Options, app: &App) -> Result<(Wishes, Vec<String>)> {
    let layout = LayoutSpec { groups: options.groups, ..with_columns(options.layout, options.columns)? };
    let spares = usize::from(options.spares);
    let mut assumptions = Vec::new();
    let (drive_bytes, is_ssd, predicted) = rebuild(options, app, &layout, &mut assumptions)?;
    let wishes = Wishes {
        years: options.years,
        is_ssd,
        bit_errors: options.ure,
        failure: options.failure.or(options.mttf_hours.map(Law::exponential)),
        restore: options.restore.or(options.mttr_hours.map(Law::exponential)),
        latent_hours: options.latent.map(|latent| latent.0),
        scrub: options.scrub.map(|scrub| scrub.0),
        spares: if options.distributed { Spares::Distributed(spares) } else { Spares::Dedicated(spares) },
        replacement: options.replacement.map(|delay| delay.0),
        batch: options.batch,
        repairs: if options.parallel_repairs { Repairs::Parallel } else { Repairs::OneAtATime },
        drive_bytes,
        rebuild_bytes_per_second: options.rebuild_rate.map(|rate| rate * 1e6),
        predicted,
        inner: options.on,
        ..Wishes::new(layout, usize::from(options.drives))
    };
    Ok((wishes, assumptions))
}

fn failure(error: WishError) -> Failure {
    let failure = Failure::usage(format!("cannot estimate the reliability: {error}"));
    match error {
        WishError::Layout(error) => failure.hint(error.hint()),
        WishError::Question(_) => failure,
    }
}

fn print(report: &Report, page: &mut Page) {
    let found = report.figures;
    let mut field = |label: &str, text: String| page.field(label, text, Style::Plain);
    let on = report.on.as_ref().map_or_else(String::new, |on| format!(", each a volume of {on} drives"));
    field("array", format!("{} of {} drives{on}, {} years", report.layout, report.drives, report.years));
    let years = report.years;
    field("data loss", probability(&found.loss_probability, &format!(" in {years} years")));
    field("per year", probability(&found.loss_probability_per_year, " a year"));
    let hours = |hours: f64| format!("{hours:.4e} h");
    let never = || "no data loss in these trials".to_owned();
    field("MTTDL", found.mttdl_hours.as_ref().map_or_else(never, |figure| interval(figure, hours)));
    let (events, latent) = (&found.events_per_1000, &found.latent_events_per_1000);
    field("losses", format!("{} in 1000 arrays", interval(events, short)));
    field("of these", format!("{} by unreadable sectors", interval(latent, short)));
    field("bytes lost", interval(&found.expected_bytes_lost, short));
    field("degraded", format!("{} h a year", interval(&found.hours_degraded_per_year, short)));
    field(
        "unprotected",
        format!("{} h a year with no redundancy left", interval(&found.hours_critical_per_year, short)),
    );
    field("rebuilds", interval(&found.rebuilds, short));
    field("new drives", interval(&found.replacement_drives, short));
    field("trials", format!("{}, seed {}", found.trials, report.seed));
    if let Some(errors) = &report.read_errors {
        let rebuild = &errors.rebuild;
        let naive = format!(
            "a rebuild with no redundancy left reads {:.1} TB and meets an unreadable sector with \
             {}: 1 - (1 - p)^bits",
            rebuild.bytes_read / 1e12,
            chance(rebuild.by_data_sheet)
        );
        field("data sheet", naive);
        let seen = format!(
            "such a rebuild meets one with {}; data loss {} in {} years: {}",
            chance(rebuild.in_the_field),
            chance(errors.loss_probability_by_field_data),
            report.years,
            errors.field_data
        );
        field("field data", seen);
    }
    for assumption in report.assumptions {
        field("assumed", assumption.clone());
    }
}

/// Formats a probability within a time, with its 95 % confidence interval.
fn probability(figure: &Figure, within: &str) -> String {
    let [low, high] = figure.ci95.map(percent);
    let mean = chance(figure.mean);
    let (mean, one_in) = mean.split_once(" (").map_or((mean.as_str(), String::new()), |(mean, one_in)| {
        (mean, format!("{}, ", one_in.trim_end_matches(')')))
    });
    format!("{mean}{within} ({one_in}{low} to {high})")
}

/// Formats an estimate with its 95 % confidence interval.
fn interval(figure: &Figure, text: impl Fn(f64) -> String) -> String {
    let [low, high] = figure.ci95;
    format!("{} ({} to {})", text(figure.mean), text(low), text(high))
}

fn short(number: f64) -> String {
    match number.abs() {
        0.0 => "0".to_owned(),
        0.01..1000.0 => format!("{number:.3}"),
        1000.0..1e6 => format!("{number:.0}"),
        _ => format!("{number:.3e}"),
    }
}
