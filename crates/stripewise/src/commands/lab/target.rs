//! The target of `lab run`: named by path, volume or URI, created if it is to be a file in a
//! folder, refused if it would be overwritten without consent.
//!
//! Expected faults: targets that hold data (refused without `--force`), that are mounted or part of
//! something else (always refused), missing, too small, read-only; a pool that another process has
//! open.

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use stripewise_control::drives::candidates::{Candidate, Place};
use stripewise_control::drives::contents::{contents_of, contents_of_file};
use stripewise_control::drives::emptiness::Contents;
use stripewise_control::drives::network;
use stripewise_control::drives::opened::{OpenedDrive, open_drive};
use stripewise_control::failure::pool_failure;
use stripewise_control::names::VolumeName;
use stripewise_control::size::ByteSize;
use stripewise_drive::{BufferPool, Drive};
use stripewise_export::nbd::client::NbdUri;
use stripewise_lab::{DriveTarget, Scratch};
use stripewise_pool::{PoolError, inspect};
use stripewise_runtime::{CreateOptions, OpenOptions, create_drive_file};

use crate::commands::App;
use crate::failure::{Failure, Result, chain, system_text};

/// Memory of returned buffers kept for reuse.
const RETAINED_BYTES: usize = 192 << 20;
/// Default size of a file created in a folder, bytes.
pub(crate) const MADE_BYTES: u64 = 1 << 30;

/// Prefix of modelled targets; the name of a drive or system follows.
pub(crate) const MODEL: &str = "model:";

/// An opened target.
pub(crate) enum Kind {
    /// A file, device or export, opened.
    Drive(OpenDrive),
    /// A volume of a pool.
    Volume(VolumeName),
    /// A folder, for file workloads.
    Folder(PathBuf),
    /// A path on other hosts.
    OnHosts(PathBuf),
}

/// An opened drive, with the file that was created for it.
pub(crate) struct OpenDrive {
    /// The drive under load.
    pub target: DriveTarget,
    /// Usable capacity, bytes.
    pub capacity_bytes: u64,
    /// The path, if it has one.
    pub path: Option<PathBuf>,
    /// True if I/O bypasses the page cache.
    pub direct_io: Option<bool>,
    /// Folder of the file created for the run; removed with it on drop.
    _made: Option<Scratch>,
}

/// Permitted use of a target.
#[derive(Clone, Copy)]
pub(crate) struct Use {
    /// Nothing is written.
    pub read_only: bool,
    /// Existing data may be overwritten.
    pub force: bool,
    /// Size of files to create, bytes.
    pub size_bytes: Option<u64>,
}

/// Opens the target named by `text`.
pub(crate) async fn open(app: &App, text: &str, how: Use) -> Result<Kind> {
    if text.starts_with(MODEL) {
        return Err(Failure::usage(format!(
            "`{text}` is a model; it cannot be measured in turns with others"
        )));
    }
    match Candidate::place(app, text)? {
        Place::Volume(name) => Ok(Kind::Volume(name)),
        Place::Network(uri) => {
            let opened = network::open(&*app.executor()?, &uri, how.read_only).await?;
            refuse_data(app, &uri, &opened, how).await?;
            Ok(Kind::Drive(of_drive(&opened, None, None)))
        }
        Place::Path(path) => file_or_device(app, &path, how).await.map(Kind::Drive),
    }
}

fn of_drive(opened: &OpenedDrive, path: Option<PathBuf>, made: Option<Scratch>) -> OpenDrive {
    let drive: Rc<dyn Drive> = opened.drive.clone();
    OpenDrive {
        capacity_bytes: drive.info().capacity_bytes,
        target: DriveTarget::new(drive, BufferPool::new(RETAINED_BYTES)),
        path,
        direct_io: opened.file.as_ref().map(|file| file.is_direct()),
        _made: made,
    }
}

async fn file_or_device(app: &App, path: &Path, how: Use) -> Result<OpenDrive> {
    let (path, made) = match std::fs::metadata(path) {
        Ok(about) if about.is_dir() => {
            let scratch = Scratch::new(path).map_err(|error| {
                Failure::new(format!("cannot create a file in {}: {}", path.display(), system_text(&error)))
                    .hint("name a writable folder")
            })?;
            let file = scratch.path().join("target.dat");
            make(&file, how.size_bytes.unwrap_or(MADE_BYTES))?;
            (file, Some(scratch))
        }
        Ok(_) => (path.to_owned(), None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Failure::new(format!("{} does not exist", path.display()))
                .hint("name a volume, a file, a device, a folder to create a file in, or an nbd:// URI"));
        }
        Err(error) => {
            return Err(Failure::new(format!("cannot use {}: {}", path.display(), system_text(&error))));
        }
    };
    let candidate = Candidate::at(&path)?;
    let is_users = made.is_none() && !how.read_only;
    if is_users {
        refuse_in_use(&path)?;
    }
    // Opening fails for a device that is mounted, has mounted partitions, or belongs to md, LVM or
    // ZFS: it is in use.
    let options = OpenOptions { read_only: how.read_only, ..OpenOptions::default() };
    let opened = open_drive(app, &*app.executor()?, &path, &options)?;
    opened.refuse_other_than(&candidate)?;
    if is_users {
        refuse_members(&path, &opened).await?;
        refuse_overwriting(app, &candidate, &opened, how.force)?;
    }
    Ok(of_drive(&opened, Some(path), made))
}

fn make(path: &Path, bytes: u64) -> Result<()> {
    let create = CreateOptions { allocate: true, ..CreateOptions::new(bytes) };
    create_drive_file(path, &create).map_err(|error| {
        let failure = Failure::new(format!("cannot create {}", chain(&error)));
        failure.hint(error.hint().unwrap_or("name a writable folder, or create a smaller file with --size"))
    })
}

/// Refuses a file behind a loop device, which may be mounted.
pub(crate) fn refuse_in_use(path: &Path) -> Result<()> {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for device in devices {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if !file.is_empty() && Path::new(file.trim_end_matches('\n')) == real {
            let name = format!("/dev/{}", device.file_name().to_string_lossy());
            return Err(Failure::new(format!("{} is in use: {name} is a loop device on it", path.display()))
                .hint("nothing was changed; once nothing on it is mounted, release it with `losetup -d`"));
        }
    }
    Ok(())
}

/// Refuses a pool's drive, even with `--force`: the pool would silently lose it.
pub(crate) async fn refuse_members(path: &Path, opened: &OpenedDrive) -> Result<()> {
    let path = path.display();
    let pool = match inspect(&*opened.bare).await {
        Ok(None) => return Ok(()),
        Ok(Some(label)) => format!("pool `{}`", label.pool_name),
        Err(
            PoolError::NewerFormat { .. } | PoolError::OlderFormat { .. } | PoolError::UnknownFeatures { .. },
        ) => "a pool of another version".to_owned(),
        Err(PoolError::UnreadableState { pool_id, .. }) => format!("pool {pool_id}"),
        Err(error) => return Err(pool_failure(format!("cannot read what {path} holds"), &error)),
    };
    Err(Failure::new(format!("{path} is a drive of {pool}; nothing was changed"))
        .hint("measure a volume of the pool instead, or destroy the pool first: `stripewise pool destroy`"))
}

/// Requires `--force` to overwrite an existing target; at a terminal, also its name.
pub(crate) fn refuse_overwriting(
    app: &App,
    candidate: &Candidate,
    opened: &OpenedDrive,
    force: bool,
) -> Result<()> {
    let path = candidate.path.display();
    let contents = contents_of_path(opened)?;
    let is_recognised = !contents.recognised.is_empty();
    let holds = match contents.is_empty() {
        true => String::new(),
        false => format!(", which holds {}", contents.in_words().join(" and ")),
    };
    if !force {
        return Err(Failure::new(format!(
            "measuring would overwrite the {} {path}{holds}; nothing was changed",
            candidate.kind()
        ))
        .hint("--read-only measures reads alone; --force overwrites it, and destroys all data on it"));
    }
    if is_recognised && candidate.kind() == "block device" {
        return Err(Failure::new(format!("{path} is a block device{holds}; nothing was changed"))
            .hint("if its data is not needed, wipe it first with wipefs -a or `stripewise pool destroy`"));
    }
    app.printer.warning(format!("{path} is overwritten{holds}"));
    if std::io::stdin().is_terminal() && app.printer.caller().is_none() {
        app.printer.note(format!("type its name, {path}, to continue:"));
        let mut typed = String::new();
        let read = std::io::stdin().lock().read_line(&mut typed);
        if read.is_err() || typed.trim() != candidate.path.to_string_lossy() {
            return Err(Failure::new("the names differ; nothing was changed"));
        }
    }
    Ok(())
}

/// Contents of a file or device.
pub(crate) fn contents_of_path(opened: &OpenedDrive) -> Result<Contents> {
    contents_of_file(opened.file.as_ref().expect("it was opened by its path"))
}

/// Refuses an export that holds data.
async fn refuse_data(app: &App, uri: &NbdUri, opened: &OpenedDrive, how: Use) -> Result<()> {
    if how.read_only || how.force || contents_of(app, opened).await?.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("measuring would overwrite {uri}, which holds data; nothing was changed"))
        .hint("--read-only measures reads alone; --force overwrites it"))
}

/// Bytes of a target that a run uses: the size asked for, within its capacity, in whole blocks.
pub(crate) fn usable_bytes(asked: Option<u64>, capacity_bytes: u64, target: &str) -> Result<u64> {
    match asked {
        None => Ok(capacity_bytes / 4096 * 4096),
        Some(bytes) if bytes <= capacity_bytes && bytes >= 4096 => Ok(bytes / 4096 * 4096),
        Some(bytes) => Err(Failure::new(format!(
            "{target} has {}; {} of it cannot be measured",
            ByteSize(capacity_bytes),
            ByteSize(bytes)
        ))
        .hint("--size takes 4KiB or more, up to what the target has")),
    }
}
