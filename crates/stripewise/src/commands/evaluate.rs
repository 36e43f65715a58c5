//! `evaluate`: options, progress and output files of the array evaluation. The measurement itself
//! is in `stripewise-lab`.
//!
//! Expected faults: drives that hold data, an output directory that cannot be written (detected
//! before the measurement), too little space, an interrupt.

mod predict;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use stripewise_control::drives::candidates::{self, Candidate, Identity};
use stripewise_control::drives::contents::refuse_contents;
use stripewise_control::drives::opened::{open_drive, pace_of};
use stripewise_control::new_executor;
use stripewise_control::registry::replace_file;
use stripewise_control::size::ByteSize;
use stripewise_drive::{Context, Drive, ModelSpec, Pace};
use stripewise_lab::evaluate::{
    DriveMaker, DriveSource, EvaluateError, EvaluateOptions, GivenDrive, PaceChoice, Status, all_layouts,
    default_layouts, evaluate,
};
use stripewise_lab::results::Evaluation;
use stripewise_lab::tables::{cause_table, summary_text};
use stripewise_lab::{Workload, report_html};
use stripewise_layout::LayoutSpec;
use stripewise_model::catalogue::{DriveEntry, drive, parse_drive};
use stripewise_model::modelled::ModelledDrive;
use stripewise_runtime::{DriveIdentity, OpenOptions};

use crate::commands::App;
use crate::commands::lab::profile::profile as lab_profile;
use crate::commands::volume::create::parse_layout;
use crate::failure::{Exit, Failure, Result, chain, system_text};
use crate::printer::Printer;
use crate::progress::Progress;

/// Measure RAID layouts in normal, degraded and rebuilding state, verify every byte, and write a
/// report
#[derive(Args)]
#[command(
    after_help = "Writes report.html and results.json to --out. Without --drives, no other files remain."
)]
pub(crate) struct Options {
    /// A directory for temporary drive files, or drives (files or block devices) to overwrite;
    /// drives beyond --count serve as replacements [default: temporary files in the current
    /// directory]
    #[arg(long, value_name = "DIR|PATH", num_args = 1..)]
    drives: Vec<PathBuf>,
    /// Drives per array; with temporary drives, a layout that needs more gets more [default: 4, or
    /// all given drives]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=255))]
    count: Option<u16>,
    /// Size of each temporary drive [default: chosen to fit the time]
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Layouts, separated by commas, or `all` [default: single,raid0,raid5,raid10,raid1]
    #[arg(long, value_name = "LAYOUTS", value_parser = parse_layouts)]
    layouts: Option<Layouts>,
    /// Strip size of every layout [default: as for `volume create`]
    #[arg(long, value_name = "SIZE")]
    interleave: Option<ByteSize>,
    /// Rate limit of each drive: `auto` measures the underlying storage and stays below its rate,
    /// `none` sets no limit, or rates such as `180MB/s,400iops` [default: the drives' own pace if
    /// they have one; none for block devices; otherwise auto]
    #[arg(long, value_name = "auto|none|RATES", value_parser = parse_pace)]
    pace: Option<Pacing>,
    /// Finish in at most one minute, with less precise results
    #[arg(long)]
    quick: bool,
    /// Loads: a method of `lab profiles`, or a TOML file; `toshiba` has the sequential and the
    /// mixed load of study 004
    #[arg(long, value_name = "NAME|FILE", default_value = "toshiba")]
    profile: String,
    /// Minimum length of a run in seconds
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Runs per figure; confidence intervals need three [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N")]
    runs: Option<u32>,
    /// Percentage of drive time for rebuilds under load
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100))]
    rebuild_priority: u32,
    /// Use modelled drives in virtual time: a name from `model catalogue`, a file written by `drive
    /// measure`, or `fixed:LATENCY,RATE,DEPTH` as in fixed:100us,500MB/s,32
    #[arg(long, value_name = "DRIVE", value_parser = parse_model, conflicts_with_all = ["drives", "pace"])]
    model: Option<Model>,
    /// Also measure the drives alone, predict the arrays from them, and print the prediction error
    #[arg(long, conflicts_with = "model")]
    predict: bool,
    /// Also print the drives' I/O by cause
    #[arg(long)]
    causes: bool,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Directory for report.html and results.json
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Overwrite drives that hold data
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Debug)]
struct Layouts(Vec<LayoutSpec>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pacing(PaceChoice);

/// A modelled drive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Model {
    /// Fixed latency, rate and queue depth; named by their text on the command line.
    Fixed(String, ModelSpec),
    /// An entry of the catalogue, or of a file in its format.
    Catalogue(Arc<DriveEntry>),
}

impl Model {
    /// Source of drives of this model, in virtual time.
    pub(crate) fn source(&self) -> DriveSource {
        match self {
            Model::Fixed(name, spec) => DriveSource::Model { name: name.clone(), maker: Rc::new(*spec) },
            Model::Catalogue(entry) => catalogue_source(entry, entry.cache_bytes()),
        }
    }

    /// As [`Self::source`], for the sizes and times of an evaluation of real drives: the model's
    /// cache does not extend them.
    pub(crate) fn source_as_measured(&self) -> DriveSource {
        match self {
            Model::Fixed(..) => self.source(),
            Model::Catalogue(entry) => catalogue_source(entry, 0),
        }
    }
}

fn catalogue_source(entry: &Arc<DriveEntry>, cache_bytes: u64) -> DriveSource {
    let maker = Rc::new(CatalogueDrive { entry: entry.clone(), cache_bytes });
    DriveSource::Model { name: entry.name.clone(), maker }
}

/// Makes drives of one entry, each with its own rotational phase.
#[derive(Debug)]
struct CatalogueDrive {
    entry: Arc<DriveEntry>,
    /// Cache size that sizes and times must exceed.
    cache_bytes: u64,
}

impl DriveMaker for CatalogueDrive {
    fn make(
        &self,
        context: &Context,
        number: u32,
        contents: Rc<dyn Drive>,
    ) -> std::result::Result<Rc<dyn Drive>, EvaluateError> {
        let made = ModelledDrive::new(context, &self.entry.name, &self.entry, contents, u64::from(number));
        made.map(|drive| drive as Rc<dyn Drive>).map_err(|error| EvaluateError::Options(error.to_string()))
    }

    fn bytes_per_second(&self) -> f64 {
        self.entry.rates().bytes_per_second
    }

    fn iops(&self) -> f64 {
        self.entry.rates().iops
    }

    fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.entry.capacity_bytes()
    }
}

fn parse_layouts(text: &str) -> std::result::Result<Layouts, String> {
    match text {
        "all" => Ok(Layouts(all_layouts())),
        _ => text
            .split(',')
            .map(|name| parse_layout(name.trim()))
            .collect::<std::result::Result<_, _>>()
            .map(Layouts),
    }
}

fn parse_pace(text: &str) -> std::result::Result<Pacing, String> {
    let choice = match text {
        "auto" => PaceChoice::Auto,
        "none" => PaceChoice::None,
        _ => PaceChoice::Rates(text.parse::<Pace>().map_err(|error| format!("{error}; or auto, or none"))?),
    };
    Ok(Pacing(choice))
}

/// True if `name` is the path of an entry rather than a catalogue name.
fn is_path(name: &str) -> bool {
    name.ends_with(".toml") || name.contains('/')
}

/// Reads a file in the format of a catalogue entry.
fn read_entry(path: &Path) -> std::result::Result<DriveEntry, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {shown}: {}", system_text(&error)))?;
    parse_drive(&shown.to_string(), &text).map_err(|error| error.to_string())
}

/// Finds a drive by its catalogue name, or by the path of an entry such as `drive measure` writes.
pub(crate) fn catalogue_drive(app: &App, name: &str) -> Result<DriveEntry> {
    if is_path(name) {
        return read_entry(&app.absolute(Path::new(name))).map_err(|why| {
            Failure::new(why).hint("`stripewise drive measure DRIVE -o FILE.toml` writes an entry")
        });
    }
    drive(name).cloned().map_err(|error| {
        Failure::missing(error.to_string()).hint("`stripewise model catalogue` lists the drives")
    })
}

/// Parses `fixed:LATENCY,RATE,DEPTH`, a catalogue name, or the path of an entry.
pub(crate) fn parse_model(text: &str) -> std::result::Result<Model, String> {
    if !text.starts_with("fixed:") && is_path(text) {
        return read_entry(Path::new(text)).map(|entry| Model::Catalogue(Arc::new(entry)));
    }
    if !text.starts_with("fixed:") {
        let named = drive(text).map(|entry| Model::Catalogue(Arc::new(entry.clone())));
        return named.map_err(|error| format!("{error}; or fixed:LATENCY,RATE,DEPTH, or a file FILE.toml"));
    }
    let wrong = || {
        format!("`{text}` is not a drive model; use fixed:LATENCY,RATE,DEPTH as in fixed:100us,500MB/s,32")
    };
    let parts: Vec<&str> = text.strip_prefix("fixed:").ok_or_else(wrong)?.split(',').collect();
    let [latency, rate, depth] = parts[..] else { return Err(wrong()) };
    let rate: Pace = rate.parse().map_err(|_| wrong())?;
    let spec = ModelSpec {
        latency_ns: latency_ns(latency).ok_or_else(wrong)?,
        bytes_per_second: rate.bytes_per_second.ok_or_else(wrong)?,
        queue_depth: depth.parse().ok().filter(|depth| (1..=65_536).contains(depth)).ok_or_else(wrong)?,
    };
    Ok(Model::Fixed(text.to_owned(), spec))
}

/// Parses `250ns`, `100us` or `8.5ms`, up to one minute.
fn latency_ns(text: &str) -> Option<u64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match &text[unit..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let value: f64 = text[..unit].parse().ok()?;
    let ns = value * scale;
    (0.0..=60e9).contains(&ns).then_some(ns as u64)
}

pub(crate) fn run(options: &Options, app: &App) -> Result<Exit> {
    let workloads = loads(&options.profile, app)?;
    let out = prepare_output(&options.out)?;
    // The drives that are made for a prediction are removed at an interrupt, too.
    let _interrupted = options.predict.then(|| app.interrupted()).transpose()?;
    let made = if options.predict { predict::make_drives(options)? } else { None };
    let (drives, default_count, default_pace) = match &made {
        Some(made) => (DriveSource::Paths(made.drives()), made.count(), PaceChoice::Auto),
        None => source(options, app)?,
    };
    let mut layouts = options.layouts.clone().map_or_else(default_layouts, |layouts| layouts.0);
    if let Some(interleave) = options.interleave {
        layouts.iter_mut().for_each(|layout| layout.interleave_bytes = Some(interleave.0));
    }
    // Only the default run also measures modelled disks, which show what files hide.
    let pace = options.pace.map_or(default_pace, |pace| pace.0);
    let is_default =
        pace == PaceChoice::Auto && options.layouts.is_none() && !options.quick && !options.predict;
    let asked = EvaluateOptions {
        drives,
        count: options.count.map_or(default_count, usize::from),
        drive_bytes: options.size.map(|size| size.0),
        layouts,
        workloads,
        pace,
        quick: options.quick,
        seconds_per_run: options.seconds,
        runs: options.runs,
        rebuild_priority_percent: options.rebuild_priority,
        seed: options.seed,
        on_disks_too: is_default,
        ..EvaluateOptions::new(PathBuf::new(), iso_8601(SystemTime::now()))
    };
    let shown = Shown { printer: &app.printer, progress: RefCell::new(Progress::new(&app.printer)) };
    let result = evaluate(&asked, &shown);
    drop(shown);
    let evaluation = result.map_err(|error| failure(&error))?;

    let predictions = match options.predict {
        true => Some(predict::predict(app, &asked, &evaluation)?),
        false => None,
    };
    drop(made);
    let document = WithPredictions { evaluation: &evaluation, predictions: predictions.as_ref() };
    let json = serde_json::to_string_pretty(&document).expect("plain data becomes JSON") + "\n";
    let (report, results) = (out.join("report.html"), out.join("results.json"));
    write(&results, &json)?;
    write(&report, &report_html(&evaluation))?;
    let mut text = summary_text(&evaluation);
    if let Some(causes) = cause_table(&evaluation).filter(|_| options.causes) {
        text = format!("{text}\n{}", causes.to_text());
    }
    let beside = predictions.as_ref().map(predict::Predictions::text).unwrap_or_default();
    app.printer.text_or_json(&format!("{text}{beside}"), &json)?;
    app.printer.note(format!("report: {}\nresults: {}", report.display(), results.display()));
    refuse_corruption(&evaluation)
}

/// Returns the block loads of a method.
fn loads(name: &str, app: &App) -> Result<Vec<Workload>> {
    let profile = lab_profile(app, name)?;
    profile.plain_loads().ok_or_else(|| {
        Failure::usage(format!("{} has no loads that an array can be evaluated with", profile.name))
            .hint("methods on files and of loads beside each other are measured by `stripewise lab run`")
    })
}

/// `results.json`, with the predictions of `--predict`.
#[derive(Serialize)]
struct WithPredictions<'a> {
    #[serde(flatten)]
    evaluation: &'a Evaluation,
    #[serde(flatten)]
    predictions: Option<&'a predict::Predictions>,
}

/// Returns the source of the drives, and the default drives per array and pace.
fn source(options: &Options, app: &App) -> Result<(DriveSource, usize, PaceChoice)> {
    if let Some(model) = &options.model {
        return Ok((model.source(), 4, PaceChoice::None));
    }
    match options.drives.as_slice() {
        [] => return Ok((DriveSource::Folder(PathBuf::from(".")), 4, PaceChoice::Auto)),
        [folder] if folder.is_dir() => return Ok((DriveSource::Folder(folder.clone()), 4, PaceChoice::Auto)),
        _ => {}
    }
    if let Some(size) = options.size {
        return Err(Failure::usage(format!(
            "--size {size} applies to temporary drives only; given drives keep their size"
        )));
    }
    let candidates = refused_unless_free(&options.drives, options.force, app)?;
    let pace = default_pace(app, &candidates);
    let drives = judged(candidates);
    let count = drives.len();
    Ok((DriveSource::Paths(drives), count, pace))
}

/// Inspects the given drives; refuses drives that hold data unless forced.
fn refused_unless_free(paths: &[PathBuf], force: bool, app: &App) -> Result<Vec<Candidate>> {
    let candidates = candidates::paths(paths)?;
    let executor = new_executor()?;
    for candidate in &candidates {
        let look = OpenOptions { read_only: true, ..OpenOptions::default() };
        let opened = open_drive(app, &executor, &candidate.path, &look)?;
        opened.refuse_other_than(candidate)?;
        executor.block_on(refuse_contents(app, candidate, &opened, force))?;
    }
    Ok(candidates)
}

/// Returns drives that may be overwritten.
pub(crate) fn given(paths: &[PathBuf], force: bool, app: &App) -> Result<Vec<GivenDrive>> {
    Ok(judged(refused_unless_free(paths, force, app)?))
}

/// The drives that were looked at, and no others that take their paths.
fn judged(candidates: Vec<Candidate>) -> Vec<GivenDrive> {
    let drive = |candidate: Candidate| match candidate.identity {
        Identity::Drive(identity) => GivenDrive::seen(candidate.path, identity),
        Identity::Volume(_) | Identity::Network(_) => candidate.path.into(),
    };
    candidates.into_iter().map(drive).collect()
}

/// Block devices need no pace; files that share a pace of their own keep it.
fn default_pace(app: &App, candidates: &[Candidate]) -> PaceChoice {
    let is_device = |candidate: &Candidate| {
        matches!(candidate.identity, Identity::Drive(DriveIdentity::BlockDevice { .. }))
    };
    if candidates.iter().all(is_device) {
        return PaceChoice::None;
    }
    let own: Vec<Option<Pace>> = candidates.iter().map(|candidate| pace_of(app, &candidate.path)).collect();
    match own.first() {
        Some(Some(pace)) if own.iter().all(|other| *other == Some(*pace)) => PaceChoice::Rates(*pace),
        _ => PaceChoice::Auto,
    }
}

/// Creates the output directory and checks that it is writable, before a measurement of minutes.
pub(crate) fn prepare_output(out: &Path) -> Result<PathBuf> {
    let unusable = |error: std::io::Error| {
        Failure::new(format!("cannot write results to {}: {}", out.display(), system_text(&error)))
            .hint("choose another directory with --out")
    };
    std::fs::create_dir_all(out).map_err(unusable)?;
    let probe = out.join(format!(".stripewise-{}", std::process::id()));
    // Another user's link at this name is not written through.
    let _ = std::fs::remove_file(&probe);
    let made = std::fs::File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe));
    made.map_err(unusable)?;
    std::path::absolute(out).map_err(unusable)
}

fn write(path: &Path, text: &str) -> Result<()> {
    replace_file(path, text.as_bytes())
        .map_err(|error| Failure::new(format!("cannot write {}: {}", path.display(), system_text(&error))))
}

/// Converts an evaluation error to a failure with its hint.
pub(crate) fn failure(error: &EvaluateError) -> Failure {
    let failure = match error {
        EvaluateError::Options(text) => Failure::usage(text.clone()),
        EvaluateError::Interrupted => Failure::new("interrupted; nothing is left behind"),
        _ => Failure::new(format!("cannot evaluate: {}", chain(error))),
    };
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Fails if an array returned other bytes than were written: data corruption must not go unnoticed.
fn refuse_corruption(evaluation: &Evaluation) -> Result<Exit> {
    let corrupt: Vec<String> = evaluation
        .arrays
        .iter()
        .filter(|array| array.corrupt_bytes > 0)
        .map(|array| format!("{} ({} bytes)", array.layout, array.corrupt_bytes))
        .collect();
    match corrupt.as_slice() {
        [] => Ok(Exit::Success),
        _ => Err(Failure::new(format!("bytes read back differ from those written: {}", corrupt.join(", ")))),
    }
}

struct Shown<'a> {
    printer: &'a Printer,
    progress: RefCell<Progress<'a>>,
}

impl stripewise_lab::evaluate::Progress for Shown<'_> {
    fn update(&self, status: &Status) {
        self.progress.borrow_mut().update(
            &status.what,
            status.percent,
            status.mb_per_s,
            Some(status.seconds_left),
        );
    }

    fn note(&self, text: &str) {
        self.progress.borrow().suspended(|| self.printer.note(text));
    }
}

/// Formats a time as `2026-11-20T17:44:33Z`. The date arithmetic counts years from 1 March, so that
/// a leap day is the last day of its year.
pub(crate) fn iso_8601(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Days since 0000-03-01; an era is 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        let text = |seconds| iso_8601(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(text(0), "1970-01-01T00:00:00Z");
        assert_eq!(text(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(text(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(text(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(text(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(text(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    #[test]
    fn model_options_are_parsed() {
        let model = parse_model("fixed:100us,500MB/s,32").expect("a model");
        let expected = ModelSpec { latency_ns: 100_000, bytes_per_second: 500_000_000, queue_depth: 32 };
        assert_eq!(model, Model::Fixed("fixed:100us,500MB/s,32".into(), expected));
        let slow = ModelSpec { latency_ns: 8_500_000, bytes_per_second: 1 << 30, queue_depth: 1 };
        assert_eq!(
            parse_model("fixed:8.5ms,1GiB/s,1"),
            Ok(Model::Fixed("fixed:8.5ms,1GiB/s,1".into(), slow))
        );
        assert!(matches!(parse_model("nvme"), Ok(Model::Catalogue(entry)) if entry.name == "nvme"));
        assert!(parse_model("mg08ada40").expect_err("unknown").contains("mg08ada400e"));
        for text in [
            "hdd",
            "fixed:",
            "fixed:1,2,3",
            "fixed:100us,500iops,32",
            "fixed:100us,500MB/s,0",
            "fixed:61s,1MB/s,1",
        ] {
            assert!(parse_model(text).is_err(), "{text}");
        }
    }

    #[test]
    fn layouts_and_paces_are_read() {
        let names = |text: &str| {
            parse_layouts(text).map(|layouts| layouts.0.iter().map(|spec| spec.level.to_string()).collect())
        };
        assert_eq!(names("raid5, mirror"), Ok(vec!["raid5".to_owned(), "raid1".to_owned()]));
        assert_eq!(names("all").map(|all: Vec<String>| all.len()), Ok(10));
        assert!(names("raid5,raid9").expect_err("unknown").contains("\"raid9\""));
        assert_eq!(parse_pace("auto"), Ok(Pacing(PaceChoice::Auto)));
        assert!(matches!(parse_pace("180MB/s"), Ok(Pacing(PaceChoice::Rates(_)))));
        assert!(parse_pace("fast").expect_err("no pace").ends_with("; or auto, or none"));
    }
}
