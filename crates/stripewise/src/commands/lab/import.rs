//! `lab import`: reads another tool's output into the result store.
//!
//! Expected faults: files of another kind than they seem, that are far too large, or that were
//! imported before.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use stripewise_lab::import::{ImportError, MAX_IMPORT_BYTES, import};
use stripewise_runtime::read_small_file;

use super::text::page_of;
use super::{store, store_failure};
use crate::commands::App;
use crate::commands::evaluate::iso_8601;
use crate::failure::{Exit, Failure, Result, system_text};

/// Read the results of another tool into the store
#[derive(Args)]
#[command(
    after_help = "Formats: fio JSON, CrystalDiskMark text, diskspd XML, IOMeter CSV, bonnie, bonnie++ CSV, \
                        PostMark, and tables in the form of studies/. The format is detected from the \
                        contents.\n\nExample: stripewise lab import results.json"
)]
pub(crate) struct Options {
    /// Output of the other tool
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Name of the target, if the file has none
    #[arg(long, value_name = "TEXT")]
    target: Option<String>,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let path = app.absolute(&options.file);
    let (bytes, about) = read_small_file(&path, MAX_IMPORT_BYTES).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => Failure::new(format!("{} is not a file", path.display()))
            .hint("write the results to a file first, then import it"),
        ErrorKind::FileTooLarge => Failure::new(format!(
            "{} has more than {MAX_IMPORT_BYTES} bytes; results of one run are smaller",
            path.display(),
        )),
        _ => Failure::new(format!("cannot read {}: {}", path.display(), system_text(&error))),
    })?;
    let mut run = import(&bytes).map_err(|error| {
        let failure = Failure::because(format!("cannot import {}", path.display()), &error);
        match error {
            ImportError::Unknown => failure.hint("fio needs --output-format=json, diskspd -Rxml"),
            ImportError::Broken { .. } => failure.hint("is the file complete?"),
            ImportError::TooMuch { .. } => failure.hint("import the runs in it one by one"),
        }
    })?;
    // The run's name comes from the contents: the same file twice is the same run.
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    run.run = format!("import-{:012x}", hasher.finish() >> 16);
    if let Some(target) = &options.target {
        run.target.clone_from(target);
    } else if run.target.is_empty() {
        run.target = path.display().to_string();
    }
    if run.date.is_empty() {
        run.date = iso_8601(about.modified().unwrap_or_else(|_| SystemTime::now()));
    }
    run.environment.insert("imported_from".into(), path.display().to_string());
    let store = store(app)?;
    if store.load(&run.run).is_ok() {
        return Err(Failure::new(format!("{} is in the store already", path.display()))
            .hint(format!("stripewise lab show {}", run.run)));
    }
    store.begin(&run).map_err(|error| store_failure(&error))?;
    app.printer.result(&run, |page| page_of(&run, page))?;
    Ok(Exit::Success)
}
