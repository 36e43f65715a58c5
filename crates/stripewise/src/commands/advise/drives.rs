//! Drives to advise on: named by size, by catalogue name, by a file that `drive measure` wrote, or
//! by the path of a drive of this host.
//!
//! Expected faults: paths that are not drives, files that are not catalogue entries.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use stripewise_control::drives::candidates::Candidate;
use stripewise_model::advise::{AdviceError, Kind, parse_count, parse_drives};
use stripewise_model::catalogue::parse_drive;
use stripewise_runtime::block_device_folder;

use crate::commands::App;
use crate::failure::{Failure, Result, system_text};

/// Minimum modelled capacity: smaller drives, such as files that stand in for drives, get the rates
/// of a drive of this size.
pub(crate) const LEAST_BYTES: u64 = 100_000_000_000;

/// Parses `4x8TB-hdd,/dev/sda,2xdrive.toml`; adds what a path does not reveal to `assumptions`.
pub(crate) fn parse(app: &App, text: &str, assumptions: &mut Vec<String>) -> Result<Vec<Kind>> {
    let mut kinds = Vec::new();
    for part in text.split(',').map(str::trim) {
        match path_of(app, part) {
            Some((count, path)) => {
                let count = parse_count(count).map_err(|error| usage(&error))?;
                kinds.push(of_path(app, count, path, assumptions)?);
            }
            None => kinds.extend(parse_drives(part).map_err(|error| usage(&error))?),
        }
    }
    Ok(kinds)
}

fn usage(error: &AdviceError) -> Failure {
    Failure::usage(error.to_string()).hint(error.hint())
}

/// Returns the count and the path of a part that names a path.
fn path_of<'a>(app: &App, part: &'a str) -> Option<(&'a str, &'a str)> {
    let is_path = |text: &str| {
        !text.is_empty()
            && (text.contains('/') || text.ends_with(".toml") || app.absolute(Path::new(text)).exists())
    };
    match part.split_once('x') {
        Some((count, path)) if count.parse::<i64>().is_ok() && is_path(path) => Some((count, path)),
        _ => is_path(part).then_some(("1", part)),
    }
}

fn of_path(app: &App, count: usize, text: &str, assumptions: &mut Vec<String>) -> Result<Kind> {
    let path = app.absolute(Path::new(text));
    let unreadable = |error: std::io::Error| {
        Failure::new(format!("cannot read {}: {}", path.display(), system_text(&error)))
    };
    if path.extension().is_some_and(|extension| extension == "toml") {
        let drive = std::fs::read_to_string(&path).map_err(unreadable)?;
        let entry = parse_drive(text, &drive).map_err(|error| {
            Failure::new(error.to_string())
                .hint("`stripewise drive measure DRIVE -o drive.toml` writes such a file")
        })?;
        return Ok(Kind::of_entry(count, &entry));
    }
    Candidate::at(&path)?;
    let bytes = File::open(&path).and_then(|mut file| file.seek(SeekFrom::End(0))).map_err(unreadable)?;
    let sort = match is_rotational(&path) {
        Some(true) => "hdd",
        Some(false) if text.contains("nvme") => "nvme",
        Some(false) => "ssd",
        None => {
            assumptions.push(format!("{text} is assumed to be a hard disk"));
            "hdd"
        }
    };
    if bytes < LEAST_BYTES {
        assumptions.push(format!("{text} is smaller than 100 GB; modelled as a 100 GB drive"));
    }
    Ok(Kind::of_size(count, bytes.max(LEAST_BYTES), sort))
}

/// The kernel's `queue/rotational` of a block device, or of the disk of a partition.
pub(crate) fn is_rotational(path: &Path) -> Option<bool> {
    let folder = block_device_folder(path)?;
    let read = |folder: &Path| std::fs::read_to_string(folder.join("queue/rotational")).ok();
    let text = read(&folder).or_else(|| read(folder.parent()?))?;
    Some(text.trim() == "1")
}
