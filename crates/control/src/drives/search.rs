//! Searching for drives of pools: at paths, behind NBD URIs, and on volumes of registered pools.
//!
//! Expected faults: folders full of other files, one drive under several names, and drives that are
//! unreadable or do not respond (reported and skipped). What a drive says of other drives is not
//! trusted; it only adds places to search when the user has named the pool.

use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use stripewise_drive::Drive;
use stripewise_export::nbd::client::NbdUri;
use stripewise_pool::{DriveLabel, PoolError, inspect};
use stripewise_runtime::{DriveIdentity, OpenOptions, RealExecutor, drive_identity};

use crate::drives::candidates::{Candidate, noted_export};
use crate::drives::network;
use crate::drives::opened::{OpenedDrive, look_open};
use crate::environment::Environment;
use crate::failure::{Failure, Reason, Result, chain, system_text};

/// Timeout for reading the superblock of a drive.
const PATIENCE_NS: u64 = 10_000_000_000;

/// The way in which a drive was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A file or device of this host.
    Path,
    /// A volume of a pool: a client may have forged its superblock.
    Volume,
    /// An export of an NBD server.
    Network,
}

/// A drive that belongs to a pool.
pub(crate) struct Found {
    /// Path or URI of the drive.
    pub path: PathBuf,
    /// The drive, open for reading.
    pub opened: OpenedDrive,
    /// The superblock.
    pub label: DriveLabel,
    /// The way in which the drive was found.
    pub way: Way,
}

/// Places to search.
pub(crate) struct Places {
    /// Files and devices.
    pub paths: Vec<PathBuf>,
    /// Named exports.
    pub exports: Vec<NbdUri>,
    /// All places as text.
    pub words: String,
}

/// The named places; by default the current folder and all block devices.
pub(crate) async fn places(
    environment: &Environment,
    folders: &[PathBuf],
    drives: &[String],
) -> Result<Places> {
    let (mut paths, mut exports) = (Vec::new(), Vec::new());
    for name in drives {
        match Candidate::named(environment, name).await {
            Ok(candidate) => match noted_export(&candidate.path) {
                Some(uri) => exports.push(uri),
                None => paths.push(candidate.path),
            },
            // A malformed name is an error; a missing drive must not stop the search.
            Err(failure) if failure.reason == Reason::Usage => return Err(failure),
            Err(failure) => environment.warning(format!("{} (skipped)", failure.message)),
        }
    }
    if folders.is_empty() && drives.is_empty() {
        let devices = block_devices();
        let mut behind: Vec<DriveIdentity> = Vec::new();
        for file in devices.iter().filter_map(|device| file_behind(device)) {
            behind.extend(environment.look_at_drive(&file, drive_identity).await.ok());
        }
        for file in files_in(environment, Path::new("")).await? {
            let identity = environment.look_at_drive(&file, drive_identity).await;
            if !identity.is_ok_and(|identity| behind.contains(&identity)) {
                paths.push(file);
            }
        }
        paths.extend(devices);
        return Ok(Places { paths, exports, words: "the current folder and on block devices".to_owned() });
    }
    for folder in folders {
        paths.extend(files_in(environment, folder).await?);
    }
    let names = folders.iter().map(|folder| folder.display().to_string());
    let words: Vec<String> = names.chain(drives.iter().cloned()).collect();
    Ok(Places { paths, exports, words: words.join(", ") })
}

async fn files_in(environment: &Environment, folder: &Path) -> Result<Vec<PathBuf>> {
    let folder = environment.absolute(folder);
    let of_thread = folder.clone();
    let listing = environment.look(&folder, move || {
        let entries = std::fs::read_dir(of_thread)?.map(|entry| entry.map(|entry| entry.path()));
        entries.collect::<std::io::Result<Vec<PathBuf>>>()
    });
    let mut paths = listing.await.and_then(|listed| listed).map_err(|error| {
        Failure::new(format!("cannot list {}: {}", folder.display(), system_text(&error)))
    })?;
    paths.sort();
    Ok(paths)
}

fn block_devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| Path::new("/dev").join(entry.file_name())).collect();
    paths.sort();
    paths
}

/// The path of a loop device's backing file; the two are one drive.
fn file_behind(device: &Path) -> Option<PathBuf> {
    let attribute = Path::new("/sys/class/block").join(device.file_name()?).join("loop/backing_file");
    let path = std::fs::read_to_string(attribute).ok()?;
    Some(PathBuf::from(path.trim_end_matches('\n')))
}

/// Reads the superblock of a drive. `None` if it belongs to no pool, or, with a warning, if it is
/// unreadable.
async fn read_label(
    environment: &Environment,
    executor: &RealExecutor,
    name: &str,
    drive: &dyn Drive,
) -> Option<DriveLabel> {
    let context = executor.context();
    let inspecting = std::pin::pin!(inspect(drive));
    let why = match context.time_limit_ns(PATIENCE_NS, inspecting).await {
        Ok(Ok(label)) => return label,
        Ok(Err(error)) => with_name(name, &error),
        Err(_) => format!("{name} does not respond"),
    };
    environment.warning(format!("{why} (skipped)"));
    None
}

/// The text of an error, prefixed with the drive's name unless it begins with that.
fn with_name(name: &str, error: &PoolError) -> String {
    let error = error.to_string();
    match error.starts_with(name) {
        true => error,
        false => format!("{name}: {error}"),
    }
}

/// Finds drives of any pool at paths; everything else is skipped.
pub(crate) async fn on_paths(
    environment: &Environment,
    executor: &RealExecutor,
    paths: &[PathBuf],
) -> Vec<Found> {
    let (mut identities, mut opened) = (Vec::new(), Vec::new());
    for path in paths {
        let Ok(candidate) = Candidate::look(environment, path).await else { continue };
        if identities.contains(&candidate.identity) {
            continue;
        }
        let options = OpenOptions { read_only: true, lock: false, buffered: false };
        match look_open(environment, executor, &candidate.path, &options).await {
            Ok(drive) => {
                identities.push(candidate.identity);
                opened.push((candidate.path, drive));
            }
            Err(stripewise_runtime::OpenError::Io { .. }) => {
                environment.warning(format!("{} cannot be opened (skipped)", candidate.path.display()));
            }
            // Too small, not permitted, no medium: not a drive of a pool.
            Err(_) => {}
        }
    }
    let names: Vec<String> = opened.iter().map(|(path, _)| path.display().to_string()).collect();
    let labels = opened
        .iter()
        .zip(&names)
        .map(|((_, drive), name)| read_label(environment, executor, name, &*drive.bare));
    let labels = join_all(labels).await;
    let found = opened
        .into_iter()
        .zip(labels)
        .filter_map(|((path, opened), label)| Some(Found { path, opened, label: label?, way: Way::Path }));
    found.collect()
}

/// Finds drives of any pool among exports. Unreachable ones are reported and skipped.
pub(crate) async fn on_exports(
    environment: &Environment,
    executor: &RealExecutor,
    exports: Vec<NbdUri>,
    found: &mut Vec<Found>,
) {
    let opening = exports.iter().map(|uri| network::open(executor, uri, true));
    for (uri, opened) in exports.iter().zip(join_all(opening).await) {
        match opened {
            Err(error) => environment.warning(format!("{} (passed over)", chain(&error))),
            Ok(opened) => {
                let label = read_label(environment, executor, &uri.to_string(), &*opened.bare).await;
                found.extend(label.map(|label| Found {
                    path: PathBuf::from(uri.to_string()),
                    opened,
                    label,
                    way: Way::Network,
                }));
            }
        }
    }
}

/// Checks whether a volume is a drive of another pool.
pub(crate) async fn on_volume(
    environment: &Environment,
    executor: &RealExecutor,
    opened: OpenedDrive,
) -> Option<Found> {
    let name = opened.bare.info().label.to_string();
    let label = read_label(environment, executor, &name, &*opened.bare).await?;
    Some(Found { path: PathBuf::from(name), opened, label, way: Way::Volume })
}
