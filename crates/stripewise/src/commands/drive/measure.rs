//! `drive measure`: measures a drive and writes an entry that models accept in place of a catalogue
//! name.
//!
//! An empty drive is written to and left empty; one that holds data is refused without `--force`,
//! and one that is in use or belongs to a pool always is. Expected faults: those, a drive that
//! fails, an interrupt, an entry that cannot be written (checked before the measurement).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use futures_util::future::{Either, select};
use serde::Serialize;
use stripewise_control::drives::candidates::Candidate;
use stripewise_control::drives::opened::open_drive;
use stripewise_control::registry::replace_file;
use stripewise_control::size::{ByteSize, duration_text};
use stripewise_drive::{BufferPool, Drive, IoRequest, Operation};
use stripewise_model::catalogue::{DriveModel, drive_text, parse_drive};
use stripewise_model::measured::{
    MeasureError, MeasureOptions, MeasureProgress, ResponseTable, Taken, measure,
};
use stripewise_runtime::OpenOptions;

use crate::commands::App;
use crate::commands::lab::target::{contents_of_path, refuse_in_use, refuse_members, refuse_overwriting};
use crate::failure::{Exit, Failure, Result, chain, system_text};
use crate::printer::{Page, Style, Table, plain};
use crate::progress::Progress;

/// Memory of returned buffers kept for reuse.
pub(crate) const RETAINED_BYTES: usize = 64 << 20;
/// Duration of a measurement, seconds.
pub(crate) const SECONDS: f64 = 75.0;
/// Duration of a quick measurement, seconds.
pub(crate) const QUICK_SECONDS: f64 = 15.0;

/// Measure a drive, and write an entry that models take as a drive: `--model FILE`
#[derive(Args)]
#[command(
    after_help = "An empty drive is written to, and is empty again afterwards. One that holds data is \
                        refused unless --read-only or --force is given.\n\n\
                        Example: stripewise drive measure /dev/sdb -o drive.toml"
)]
pub(crate) struct Options {
    /// A file or block device
    #[arg(value_name = "DRIVE")]
    drive: PathBuf,
    /// Entry to write
    #[arg(short, long, value_name = "FILE.toml")]
    output: PathBuf,
    /// Measure for 15 seconds instead of 75, less precisely
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// Approximate duration
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Do not write: writes are assumed to be as fast as reads
    #[arg(long, conflicts_with = "force")]
    read_only: bool,
    /// Overwrite the drive's data, and an output file that is not an entry
    #[arg(long)]
    force: bool,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize)]
struct Measured {
    drive: PathBuf,
    entry: PathBuf,
    capacity_bytes: u64,
    seconds: f64,
    wrote: bool,
    seq_read_mb_per_s: f64,
    seq_write_mb_per_s: f64,
    random_read_iops: f64,
    random_write_iops: f64,
    read_cache_bytes: u64,
    write_burst_bytes: u64,
    steady_state_percent: f64,
    notes: Vec<String>,
}

pub(crate) fn run(options: &Options, app: &App) -> Result<Exit> {
    let seconds = options.seconds.unwrap_or(if options.quick { QUICK_SECONDS } else { SECONDS });
    if !(0.5..=86_400.0).contains(&seconds) {
        return Err(Failure::usage("--seconds takes 0.5 to 86400"));
    }
    let path = app.absolute(&options.drive);
    let output = app.absolute(&options.output);
    let candidate = Candidate::at(&path)?;
    refuse_output(&output, &candidate, options.force)?;
    if !options.read_only {
        refuse_in_use(&path)?;
    }
    let executor = app.executor()?;
    let open = OpenOptions { read_only: options.read_only, ..OpenOptions::default() };
    let opened = open_drive(app, &executor, &path, &open)?;
    opened.refuse_other_than(&candidate)?;
    if !options.read_only {
        executor.block_on(refuse_members(&path, &opened))?;
        if !contents_of_path(&opened)?.is_empty() {
            refuse_overwriting(app, &candidate, &opened, options.force)?;
        }
    }
    app.printer.note(format!(
        "measuring {} takes about {}{}",
        path.display(),
        duration_text(seconds),
        if options.read_only { "; read-only" } else { "" }
    ));
    let asked =
        MeasureOptions { seconds, quick: options.quick, may_write: !options.read_only, seed: options.seed };
    let taken = measure_drives(app, std::slice::from_ref(&opened.drive), asked);
    if !options.read_only {
        executor.block_on(empty(app, &opened.drive));
    }
    let taken = taken.map_err(|failure| Failure {
        message: format!("cannot measure {}: {}", path.display(), failure.message),
        ..failure
    })?;
    let name = output.file_stem().map_or_else(|| "drive".into(), |stem| stem.to_string_lossy().into_owned());
    let title = format!("{}, {}, measured", path.display(), ByteSize(taken.parameters.capacity_bytes));
    let text = drive_text(&name, &title, &format!("stripewise drive measure {}", path.display()), &taken);
    replace_file(&output, text.as_bytes()).map_err(|error| {
        Failure::new(format!("cannot write {}: {}", output.display(), system_text(&error)))
    })?;
    let measured = summary(path, output, &taken);
    app.printer.result(&measured, |page| page_of(&measured, &taken, page))?;
    Ok(Exit::Success)
}

/// Measures identical drives together, with progress; an interrupt ends it.
pub(crate) fn measure_drives(app: &App, drives: &[Rc<dyn Drive>], options: MeasureOptions) -> Result<Taken> {
    let executor = app.executor()?;
    let shown = Shown { progress: RefCell::new(Progress::new(&app.printer)), seconds: options.seconds };
    let context = executor.context();
    let buffers = BufferPool::new(RETAINED_BYTES);
    let interrupted = app.interrupted()?;
    executor.block_on(async {
        let measured = std::pin::pin!(measure(&context, drives, &buffers, options, &shown));
        match select(measured, interrupted).await {
            Either::Left((measured, _)) => measured.map_err(|error| failure(&error)),
            Either::Right(_) => Err(Failure::new("interrupted")),
        }
    })
}

fn failure(error: &MeasureError) -> Failure {
    let failure = Failure::new(chain(error));
    match error {
        MeasureError::TooSmall { .. } => failure.hint("use a file of 64MiB or more"),
        MeasureError::Parameters(_) => failure.hint("measure for longer: --seconds 120"),
        MeasureError::Drive { .. } => failure,
    }
}

/// Refuses to replace a file that is not an entry, unless forced, and the drive itself always.
fn refuse_output(output: &Path, drive: &Candidate, force: bool) -> Result<()> {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(Failure::new(format!(
            "cannot write {}: the folder {} does not exist",
            output.display(),
            folder.display()
        )));
    }
    if output.symlink_metadata().is_err() {
        return Ok(());
    }
    if Candidate::at(output).is_ok_and(|other| other.identity == drive.identity) {
        return Err(Failure::usage(format!("{} is the drive itself", output.display())));
    }
    let text = std::fs::read_to_string(output).unwrap_or_default();
    let is_entry = parse_drive("", &text).is_ok_and(|entry| matches!(entry.model, DriveModel::Measured(_)));
    match is_entry || force {
        true => Ok(()),
        false => {
            Err(Failure::new(format!("{} exists, and is no entry of a measured drive", output.display()))
                .hint("name another file with -o, or add --force to replace it"))
        }
    }
}

/// Erases the data of the measurement, where that is cheap.
async fn empty(app: &App, drive: &Rc<dyn Drive>) {
    let info = drive.info();
    let zeroes = IoRequest::range(Operation::WriteZeroes, 0, info.capacity_bytes);
    let emptied = match info.cheap_zeroes {
        true => drive.submit(zeroes).await.is_ok() && drive.submit(IoRequest::flush()).await.is_ok(),
        false => false,
    };
    if !emptied {
        app.printer.note(format!("note: {} still holds data of the measurement", info.label));
    }
}

struct Shown<'a> {
    progress: RefCell<Progress<'a>>,
    seconds: f64,
}

impl MeasureProgress for Shown<'_> {
    fn update(&self, what: &str, share: f64, mb_per_s: f64) {
        let left = self.seconds * (1.0 - share);
        self.progress.borrow_mut().update(what, 100.0 * share, mb_per_s, Some(left));
    }
}

fn deepest(table: &ResponseTable, block_bytes: u64) -> f64 {
    let cells = table.cells().filter(|cell| cell.block_bytes == block_bytes);
    cells.map(|cell| cell.us).fold(f64::INFINITY, f64::min)
}

fn summary(drive: PathBuf, entry: PathBuf, taken: &Taken) -> Measured {
    let found = &taken.parameters;
    let mb_per_s = |table| f64::from(1 << 20) / deepest(table, 1 << 20);
    let iops = |table| 1e6 / deepest(table, 4096);
    Measured {
        drive,
        entry,
        capacity_bytes: found.capacity_bytes,
        seconds: taken.seconds,
        wrote: taken.wrote,
        seq_read_mb_per_s: mb_per_s(&found.sequential_read),
        seq_write_mb_per_s: mb_per_s(&found.sequential_write),
        random_read_iops: iops(&found.random_read),
        random_write_iops: iops(&found.random_write),
        read_cache_bytes: found.read_cache_kib << 10,
        write_burst_bytes: found.write_burst_kib << 10,
        steady_state_percent: taken.steady_state_percent,
        notes: taken.notes.clone(),
    }
}

fn page_of(measured: &Measured, taken: &Taken, page: &mut Page) {
    page.field("drive", measured.drive.display().to_string(), Style::Strong);
    page.field("entry", measured.entry.display().to_string(), Style::Plain);
    let found = &taken.parameters;
    let mut table = Table::new(&["LOAD", ">BLOCK", ">DEPTH", ">MB/s", ">IOPS"]);
    let loads = [
        ("sequential reads", &found.sequential_read),
        ("sequential writes", &found.sequential_write),
        ("random reads", &found.random_read),
        ("random writes", &found.random_write),
    ];
    for (load, cells) in loads.into_iter().filter(|(load, _)| taken.wrote || !load.ends_with("writes")) {
        for cell in cells.cells() {
            table.row([
                plain(load),
                plain(ByteSize(cell.block_bytes).to_string()),
                plain(cell.depth.to_string()),
                plain(format!("{:.1}", cell.block_bytes as f64 / cell.us)),
                plain(format!("{:.0}", 1e6 / cell.us)),
            ]);
        }
    }
    page.table(&table);
    page.line("");
    let ends = |points: &[(f64, f64)]| (points[0].1, points[points.len() - 1].1);
    let (near_us, far_us) = ends(&found.seek);
    page.field("seeks", format!("{:.2} to {:.2} ms", near_us / 1e3, far_us / 1e3), Style::Plain);
    let (outer, inner) = ends(&found.zones);
    page.field("zones", format!("{outer:.0} MB/s at the start, {inner:.0} at the end"), Style::Plain);
    let cache = |bytes: u64| if bytes == 0 { "none found".into() } else { ByteSize(bytes).to_string() };
    page.field("read cache", cache(measured.read_cache_bytes), Style::Plain);
    if taken.wrote {
        page.field("write burst", cache(measured.write_burst_bytes), Style::Plain);
        let kept = format!("{:.0} % of the first rate", measured.steady_state_percent);
        page.field("steady state", kept, Style::Plain);
    }
    for note in &measured.notes {
        page.line(format!("note: {note}"));
    }
}
