//! `lab import`: reads other tools' output into the result store.
//!
//! Expected faults: files of another kind than they seem, that are far too large, or that were
//! imported before; folders with many files, of which some are no results. One file that cannot be
//! imported does not stop the others.

mod sources;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use stripewise_lab::dates::iso_8601;
use stripewise_lab::import::{ImportError, import};
use stripewise_lab::record::RunRecord;
use stripewise_lab::store::Store;

use super::text::page_of;
use super::{store, store_failure};
use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Table, plain};
use sources::{Output, Source, all_sources};

/// Read the results of other tools into the store
#[derive(Args)]
#[command(
    after_help = "Formats: fio (JSON, terse, text), CrystalDiskMark and KDiskMark text, diskspd XML and text, \
                        IOMeter CSV, bonnie, bonnie++ CSV, sysbench fileio, PostMark, and tables in the form \
                        of studies/. The format is detected from the contents; other text around results is \
                        skipped.\n\nExamples:\n  stripewise lab import fio.json\n  \
                        stripewise lab import results/*.xml\n  fio job.fio --output-format=json | stripewise \
                        lab import -"
)]
pub(crate) struct Options {
    /// Output of another tool; a folder means all files in it, `-` standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Name of the target, in place of the one in the files
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
}

/// Outcome for several files.
#[derive(Default, Serialize)]
struct Imported {
    runs: Vec<Entered>,
    /// Runs that were in the store before.
    known: Vec<Entered>,
    failed: Vec<Refused>,
}

#[derive(Serialize)]
struct Entered {
    run: String,
    file: String,
    profile: String,
    tool: String,
    target: String,
    date: String,
    figures: usize,
}

#[derive(Serialize)]
struct Refused {
    file: String,
    error: String,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let sources = all_sources(&options.files, app)?;
    let store = store(app)?;
    if let [source] = sources.as_slice()
        && !source.is_of_folder
    {
        return import_one(source, options, &store, app);
    }
    let (mut imported, mut others) = (Imported::default(), 0);
    for source in &sources {
        match runs_of(source, options) {
            Ok(runs) => runs.into_iter().try_for_each(|run| enter(run, source, &store, &mut imported))?,
            // A folder of results has scripts and notes in it, too.
            Err((Some(ImportError::Unknown), _)) if source.is_of_folder => others += 1,
            Err((_, failure)) => {
                app.printer.warning(&failure.message);
                imported.failed.push(Refused { file: source.name(), error: failure.message });
            }
        }
    }
    if others > 0 {
        app.printer.note(format!("note: files without known results were skipped: {others}"));
    }
    if imported.runs.is_empty() && imported.known.is_empty() {
        return Err(Failure::new(format!("none of {} files could be imported", sources.len()))
            .hint("stripewise lab import --help lists the formats"));
    }
    app.printer.result(&imported, |page| list(&imported, page))?;
    Ok(if imported.failed.is_empty() { Exit::Success } else { Exit::Failure })
}

/// Imports a single file and shows its figures.
fn import_one(source: &Source, options: &Options, store: &Store, app: &App) -> Result<Exit> {
    let mut runs = runs_of(source, options).map_err(|(_, failure)| failure)?;
    if let Some(known) = runs.iter().find(|run| store.load(&run.run).is_ok()) {
        return Err(Failure::new(format!("{} is in the store already", source.name()))
            .hint(format!("stripewise lab show {}", known.run)));
    }
    if let [run] = runs.as_slice() {
        store.begin(run).map_err(|error| store_failure(&error))?;
        app.printer.result(run, |page| page_of(run, page))?;
        return Ok(Exit::Success);
    }
    // Results of several tools.
    let mut imported = Imported::default();
    runs.drain(..).try_for_each(|run| enter(run, source, store, &mut imported))?;
    app.printer.result(&imported, |page| list(&imported, page))?;
    Ok(Exit::Success)
}

fn enter(run: RunRecord, source: &Source, store: &Store, imported: &mut Imported) -> Result<()> {
    let entered = Entered {
        run: run.run.clone(),
        file: source.name(),
        profile: run.profile.clone(),
        tool: run.tool.clone(),
        target: run.target.clone(),
        date: run.date.clone(),
        figures: run.measurements.len(),
    };
    if store.load(&run.run).is_ok() {
        imported.known.push(entered);
        return Ok(());
    }
    store.begin(&run).map_err(|error| store_failure(&error))?;
    imported.runs.push(entered);
    Ok(())
}

fn list(imported: &Imported, page: &mut Page) {
    let mut table = Table::new(&["RUN", "DATE", "TOOL", "TARGET", ">FIGURES", "FILE"]);
    for run in &imported.runs {
        table.row([
            plain(run.run.clone()),
            plain(run.date.clone()),
            plain(run.tool.clone()),
            plain(run.target.clone()),
            plain(run.figures.to_string()),
            plain(run.file.clone()),
        ]);
    }
    if !imported.runs.is_empty() {
        page.table(&table);
    }
    for known in &imported.known {
        page.line(format!("{} is in the store already: {}", known.file, known.run));
    }
    if let Some(first) = imported.runs.first() {
        page.line(format!("Figures of a run: stripewise lab show {}", first.run));
    }
}

/// The runs in a file, ready for the store, or why there are none.
fn runs_of(
    source: &Source,
    options: &Options,
) -> std::result::Result<Vec<RunRecord>, (Option<ImportError>, Failure)> {
    let Output { bytes, modified } = source.read().map_err(|failure| (None, failure))?;
    let mut runs = import(&bytes).map_err(|error| {
        let failure = Failure::because(format!("cannot import {}", source.name()), &error);
        let hint = match error {
            ImportError::Unknown => "stripewise lab import --help lists the formats",
            ImportError::Broken { .. } => {
                "import the complete output; stripewise lab import --help lists the formats"
            }
            ImportError::TooMuch { .. } => "import the runs in it one by one",
        };
        (Some(error), failure.hint(hint))
    })?;
    // The run's name comes from the contents: the same file twice is the same run.
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let name = format!("import-{:012x}", hasher.finish() >> 16);
    for (at, run) in runs.iter_mut().enumerate() {
        run.run = if at == 0 { name.clone() } else { format!("{name}-{}", at + 1) };
        if let Some(target) = &options.target {
            run.target.clone_from(target);
        } else if run.target.is_empty() {
            run.target = source.name();
        }
        if run.date.is_empty() {
            let since = modified.unwrap_or_else(SystemTime::now).duration_since(UNIX_EPOCH);
            run.date = iso_8601(since.map_or(0, |since| since.as_secs()));
        }
        run.environment.insert("imported_from".into(), source.name());
    }
    Ok(runs)
}
