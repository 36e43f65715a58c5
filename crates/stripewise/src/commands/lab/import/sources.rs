//! Files to import: named ones, those in folders, and standard input.
//!
//! Expects pipes and devices in place of files, folders with very many files, and inputs without an
//! end.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use stripewise_lab::import::MAX_IMPORT_BYTES;
use stripewise_runtime::read_small_file;

use crate::commands::App;
use crate::failure::{Failure, Result, system_text};

/// Maximum number of files in a folder and those below it.
const MAX_FILES: usize = 10_000;
/// Folders below the one that was named.
const MAX_DEPTH: usize = 8;

/// A file, or standard input.
pub(super) struct Source {
    /// `None` for standard input.
    path: Option<PathBuf>,
    /// True if the command names its folder, and not the file.
    pub(super) is_of_folder: bool,
}

/// Output of a tool.
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    pub(super) modified: Option<SystemTime>,
}

/// All files that the command names, those of a folder by name.
pub(super) fn all_sources(named: &[PathBuf], app: &App) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for name in named {
        if name.as_os_str() == "-" {
            sources.push(Source { path: None, is_of_folder: false });
            continue;
        }
        let path = app.absolute(name);
        if path.is_dir() {
            let mut files = Vec::new();
            add_files(&path, 0, &mut files)?;
            files.sort();
            if files.is_empty() {
                return Err(Failure::new(format!("{} has no files", path.display()))
                    .hint("name the files with the output of other tools"));
            }
            sources.extend(files.into_iter().map(|path| Source { path: Some(path), is_of_folder: true }));
        } else {
            sources.push(Source { path: Some(path), is_of_folder: false });
        }
    }
    Ok(sources)
}

fn add_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot read the folder {}: {}", folder.display(), system_text(&error)))
    };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, path) = (entry.file_type().map_err(failed)?, entry.path());
        // Links to folders could lead in circles.
        if kind.is_dir() && depth < MAX_DEPTH {
            add_files(&path, depth + 1, files)?;
        } else if kind.is_file() || (kind.is_symlink() && path.is_file()) {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(Failure::new(format!("{} has more than {MAX_FILES} files", folder.display()))
                .hint("name the files, or folders with fewer"));
        }
    }
    Ok(())
}

impl Source {
    /// Path, or a name for standard input.
    pub(super) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard input".to_owned(), |path| path.display().to_string())
    }

    pub(super) fn read(&self) -> Result<Output> {
        match &self.path {
            Some(path) => read_file(path),
            None => read_input(),
        }
    }
}

fn too_large(name: &str) -> Failure {
    Failure::new(format!("{name} has more than {MAX_IMPORT_BYTES} bytes; results of one run are smaller"))
}

fn read_file(path: &Path) -> Result<Output> {
    let (bytes, about) = read_small_file(path, MAX_IMPORT_BYTES).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => Failure::new(format!("{} is not a file", path.display()))
            .hint("`stripewise lab import -` reads a pipe from standard input"),
        ErrorKind::FileTooLarge => too_large(&path.display().to_string()),
        _ => Failure::new(format!("cannot read {}: {}", path.display(), system_text(&error))),
    })?;
    Ok(Output { bytes, modified: about.modified().ok() })
}

fn read_input() -> Result<Output> {
    let mut bytes = Vec::new();
    let input = std::io::stdin().lock();
    input
        .take(MAX_IMPORT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(format!("cannot read standard input: {}", system_text(&error))))?;
    if bytes.len() as u64 > MAX_IMPORT_BYTES {
        return Err(too_large("standard input"));
    }
    Ok(Output { bytes, modified: None })
}
