//! `drive make`: creates files to use as drives, all or none.
//!
//! Expected faults: files that already exist, too little free space, a file system without extended
//! attributes, which hold a drive's pace.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use stripewise_control::size::ByteSize;
use stripewise_drive::Pace;
use stripewise_runtime::{
    AttributeError, CreateOptions, create_drive_file, free_space_bytes, set_pace_attribute,
};

use crate::commands::App;
use crate::failure::{Exit, Failure, Result, chain, system_text};
use crate::printer::{Table, plain};

/// Drive sizes are multiples of this, which suits every alignment.
const BLOCK_BYTES: u64 = 4096;

/// Create files to use as drives
#[derive(Args)]
#[command(after_help = "Example: stripewise drive make drives --count 4 --size 256MiB")]
pub(crate) struct Options {
    /// Directory for the files; created if missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Number of drives
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    count: u32,
    /// Size of each drive; the files are sparse
    #[arg(long, value_name = "SIZE")]
    size: ByteSize,
    /// Limit each drive to these rates wherever it is used: `180MB/s`, `400iops` or both, separated
    /// by a comma
    #[arg(long, value_name = "RATES", value_parser = parse_pace)]
    pace: Option<PaceChoice>,
    /// Number of the first file
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u32,
    /// Allocate the space now, so that it cannot run out later
    #[arg(long, conflicts_with = "overcommit")]
    allocate: bool,
    /// Allow drives larger than the free space; writes fail once it runs out
    #[arg(long)]
    overcommit: bool,
}

#[derive(Clone, Copy)]
struct PaceChoice(Option<Pace>);

fn parse_pace(text: &str) -> std::result::Result<PaceChoice, String> {
    match text {
        "none" => Ok(PaceChoice(None)),
        _ => text
            .parse()
            .map(|pace| PaceChoice(Some(pace)))
            .map_err(|error: stripewise_drive::PaceError| error.to_string()),
    }
}

#[derive(Serialize)]
struct Made {
    drives: Vec<MadeDrive>,
}

#[derive(Serialize)]
struct MadeDrive {
    path: PathBuf,
    capacity_bytes: u64,
    pace: Option<String>,
}

pub(crate) fn run(options: &Options, app: &App) -> Result<Exit> {
    let size_bytes = options.size.0 / BLOCK_BYTES * BLOCK_BYTES;
    if size_bytes == 0 {
        return Err(Failure::usage(format!("drives of {} are too small to hold anything", options.size))
            .hint("a pool reserves a few MiB of each drive; use 64MiB or more"));
    }
    if size_bytes != options.size.0 {
        app.printer
            .note(format!("note: {} bytes rounded down to {size_bytes}, a multiple of 4096", options.size.0));
    }
    std::fs::create_dir_all(&options.folder).map_err(|error| {
        Failure::new(format!("cannot make the folder {}: {}", options.folder.display(), system_text(&error)))
    })?;
    let paths: Vec<PathBuf> =
        (options.first..).take(options.count as usize).map(|n| drive_path(&options.folder, n)).collect();
    refuse_existing(options, &paths)?;
    refuse_too_large(options, size_bytes)?;

    let pace = options.pace.and_then(|choice| choice.0).map(|pace| pace.to_string());
    let create = CreateOptions {
        size_bytes,
        allocate: options.allocate,
        replace_existing: false,
        overcommit: options.overcommit,
    };
    for (index, path) in paths.iter().enumerate() {
        if let Err(failure) = make_one(path, &create, pace.as_deref()) {
            for made in &paths[..index] {
                // Best effort: the failure to report is the first one.
                let _ = std::fs::remove_file(made);
            }
            return Err(failure);
        }
    }
    let drive =
        |path: &PathBuf| MadeDrive { path: absolute(path), capacity_bytes: size_bytes, pace: pace.clone() };
    let made = Made { drives: paths.iter().map(drive).collect() };
    app.printer.result(&made, |page| {
        let mut table = Table::new(&["DRIVE", ">SIZE", "PACE"]);
        for drive in &made.drives {
            let pace = drive.pace.as_deref().unwrap_or("as fast as it goes");
            table.row([
                plain(drive.path.display().to_string()),
                plain(ByteSize(drive.capacity_bytes).to_string()),
                plain(pace),
            ]);
        }
        page.table(&table);
    })?;
    Ok(Exit::Success)
}

fn drive_path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("drive{number}.img"))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn refuse_existing(options: &Options, paths: &[PathBuf]) -> Result<()> {
    let Some(there) = paths.iter().find(|path| path.symlink_metadata().is_ok()) else { return Ok(()) };
    let free = (0u32..).find(|&number| {
        (number..number.saturating_add(options.count))
            .all(|n| drive_path(&options.folder, n).symlink_metadata().is_err())
    });
    let hint = free.map_or_else(String::new, |free| {
        format!(", or number them from the next free place: --first {free}")
    });
    Err(Failure::new(format!("{} exists already; nothing was made", there.display()))
        .hint(format!("choose another folder{hint}")))
}

fn refuse_too_large(options: &Options, size_bytes: u64) -> Result<()> {
    let free_bytes = free_space_bytes(&options.folder).map_err(|error| {
        Failure::new(format!(
            "cannot determine the free space in {}: {}",
            options.folder.display(),
            system_text(&error)
        ))
    })?;
    if options.overcommit {
        return Ok(());
    }
    let needed_bytes = u128::from(size_bytes) * u128::from(options.count);
    if needed_bytes <= u128::from(free_bytes) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} drives of {} do not fit in {}: {} are free there; nothing was made",
        options.count,
        ByteSize(size_bytes),
        options.folder.display(),
        ByteSize(free_bytes)
    ))
    .hint(format!(
        "use --size {}MiB; or --overcommit: the files are sparse and take up space as they are written",
        (free_bytes / u64::from(options.count)) >> 20
    )))
}

fn make_one(path: &Path, create: &CreateOptions, pace: Option<&str>) -> Result<()> {
    create_drive_file(path, create).map_err(|error| {
        let failure = Failure::new(format!("cannot make {}", chain(&error)));
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?;
    let Some(pace) = pace else { return Ok(()) };
    set_pace_attribute(path, pace).map_err(|error| {
        // Best effort, as above.
        let _ = std::fs::remove_file(path);
        let failure = Failure::new(format!("cannot make {}", chain(&error)));
        match error {
            AttributeError::Unsupported { .. } => {
                failure.hint("use a folder on ext4, XFS or btrfs, or leave out --pace")
            }
            AttributeError::Io { .. } => failure,
        }
    })
}
