//! Methods on files (PostMark, bonnie) in a folder or on raw extents of a target: sizes that fit,
//! progress of each phase.
//!
//! Expected faults: too little space, an interrupt (all files are removed).

use std::cell::RefCell;
use std::path::Path;

use stripewise_control::size::ByteSize;
use stripewise_lab::files::{
    Bonnie, FileError, FileStore, FileWatch, Folder, Phase, PostMark, run_bonnie, run_postmark,
};
use stripewise_lab::method::FileMethod;
use stripewise_lab::record::{MeasurementRecord, RunRecord, Unit};
use stripewise_runtime::{free_space_bytes, interrupt_requested, process_cpu_ns};

use super::Work;
use crate::commands::lab::store_failure;
use crate::failure::{Failure, Result, system_text};
use crate::printer::Printer;
use crate::progress::Progress;

/// Outcome of the check that the page cache cannot hold all files; the reason if it can.
pub(super) type BeyondMemory = std::result::Result<(), String>;

impl Work<'_> {
    pub(super) async fn in_folder(&self, folder: &Path) -> Result<Vec<String>> {
        let method = self.profile.files.expect("only methods on files come here");
        let keeps_open = matches!(method, FileMethod::Bonnie(_));
        let files = Folder::new(folder, keeps_open).map_err(|error| {
            Failure::new(format!("cannot make a folder in {}: {}", folder.display(), system_text(&error)))
        })?;
        let free_bytes = free_space_bytes(folder).map_err(|error| {
            Failure::new(format!("cannot use {}: {}", folder.display(), system_text(&error)))
        })?;
        let (method, note) = self.sized(method, free_bytes)?;
        // The page cache holds as much of the files as fits into memory.
        let (largest, memory) = (method.most_bytes(), self.environment.memory_bytes);
        let fits = memory.filter(|memory| largest < 2 * memory);
        let why = "the files fit into the host's memory: reads may not have reached a drive";
        self.by_files(method, &files, Some(fits.map_or(Ok(()), |_| Err(why.to_owned())))).await?;
        Ok(note.into_iter().collect())
    }

    /// The method with files of `--size`, or that leave half of the space free. Returns a note
    /// where they differ from the method's own.
    pub(super) fn sized(&self, method: FileMethod, room_bytes: u64) -> Result<(FileMethod, Option<String>)> {
        let own_bytes = method.most_bytes();
        let (bytes, why) = match self.options.sizes.as_slice() {
            [size] => (size.0, "as --size asks"),
            [] if own_bytes > room_bytes / 2 => (room_bytes / 2, "to leave half of the free space"),
            [] => return Ok((method, None)),
            _ => return Err(Failure::usage(format!("{} takes one --size", self.profile.name))),
        };
        if bytes > room_bytes {
            return Err(Failure::new(format!(
                "{} has {} free; files of {} do not fit",
                self.run.target,
                ByteSize(room_bytes),
                ByteSize(bytes)
            ))
            .hint("choose a smaller --size"));
        }
        let fitted = method.fitted(bytes);
        let note = format!("{}, {why}; the method itself has {}", in_words(fitted), in_words(method));
        Ok((fitted, Some(note)))
    }

    pub(super) async fn by_files<S: FileStore>(
        &self,
        method: FileMethod,
        files: &S,
        larger_than_memory: Option<BeyondMemory>,
    ) -> Result<()> {
        self.store.begin(&self.with_files(method)).map_err(|error| store_failure(&error))?;
        self.app.printer.note(format!("{}: {}", self.profile.name, in_words(method)));
        let context = self.app.executor()?.context();
        let mut all: Vec<MeasurementRecord> = Vec::new();
        for run in 0..self.options.runs.unwrap_or(self.profile.runs).max(1) {
            let seed = self.options.seed.wrapping_add(u64::from(run));
            let watch = Watch::new(&self.profile.name, &self.app.printer);
            let cpu = || Some(process_cpu_ns() as f64 / 1e9);
            let measured = match method {
                FileMethod::Bonnie(asked) => {
                    run_bonnie(&context, files, &Bonnie { seed, ..asked }, &cpu, &watch).await
                }
                FileMethod::PostMark(asked) => {
                    run_postmark(&context, files, &PostMark { seed, ..asked }, &watch).await
                }
            };
            let figures = match measured {
                // The caller says so, and which figures are kept.
                Err(FileError::Interrupted) => return Ok(()),
                measured => measured.map_err(|error| {
                    Failure::because(format!("cannot measure {}", self.run.target), &error)
                })?,
            };
            for (position, figure) in figures.into_iter().enumerate() {
                match all.get_mut(position) {
                    None => all.push(figure),
                    Some(before) => {
                        let runs = [before.runs.clone(), figure.runs].concat();
                        *before = before.clone().with_runs(runs);
                    }
                }
                if let (Some(holds), Unit::MbPerS | Unit::PerSecond) =
                    (&larger_than_memory, all[position].unit)
                {
                    all[position].badge("larger_than_memory", holds.clone());
                }
                let kept = self.store.record(&self.run.run, position, &all[position], None);
                kept.map_err(|error| store_failure(&error))?;
            }
        }
        Ok(())
    }

    /// The run's record with the parameters of its files, as the tools' own output needs them.
    fn with_files(&self, method: FileMethod) -> RunRecord {
        let mut run = self.run.clone();
        let mut insert = |name: &str, value: u64| run.environment.insert(name.into(), value.to_string());
        match method {
            FileMethod::Bonnie(asked) => {
                insert("file_bytes", asked.file_bytes);
            }
            FileMethod::PostMark(asked) => {
                insert("files", asked.files);
                insert("transactions", asked.transactions);
                insert("least_file_bytes", asked.least_bytes);
                insert("most_file_bytes", asked.most_bytes);
            }
        }
        run
    }
}

/// Number and sizes of a method's files.
fn in_words(method: FileMethod) -> String {
    let all = ByteSize(method.most_bytes());
    match method {
        FileMethod::Bonnie(_) => format!("one file of {all}"),
        FileMethod::PostMark(asked) => format!(
            "{} files of {} to {} and {} transactions, {all} in all",
            asked.files,
            ByteSize(asked.least_bytes),
            ByteSize(asked.most_bytes),
            asked.transactions
        ),
    }
}

/// Shows the progress of each phase, and stops at an interrupt.
struct Watch<'a> {
    name: &'a str,
    printer: &'a Printer,
    phase: RefCell<Option<(Phase, Progress<'a>)>>,
}

impl<'a> Watch<'a> {
    fn new(name: &'a str, printer: &'a Printer) -> Self {
        Self { name, printer, phase: RefCell::new(None) }
    }
}

impl FileWatch for Watch<'_> {
    fn at(&self, phase: Phase, done: u64) {
        let mut now = self.phase.borrow_mut();
        let what = || format!("{}: {}", self.name, phase.name);
        match now.as_mut().filter(|(current, _)| *current == phase) {
            Some((_, progress)) if phase.unit == "bytes" => progress.bytes(&what(), done, Some(phase.total)),
            Some((_, progress)) => progress.count(&what(), phase.unit, done, phase.total),
            None => {
                // The bar of the previous phase ends first.
                *now = None;
                self.printer.note(what());
                *now = Some((phase, Progress::new(self.printer)));
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        interrupt_requested()
    }
}
