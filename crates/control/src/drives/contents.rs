//! Existing contents of drives that are to be added to a pool: refused, unless they are to be
//! overwritten.
//!
//! Expected faults: drives of other pools, of newer and older formats, file systems, other files.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_export::bridge::off_thread;
use stripewise_pool::{DriveId, PoolError, identify, inspect};
use stripewise_runtime::{DriveHandle, DriveIdentity, FileDrive, OpenFile, OpenOptions};

use crate::drives::candidates::{Candidate, Identity};
use crate::drives::emptiness::{Contents, drive_holds_data, file_holds_data, samples_hold_data};
use crate::drives::opened::OpenedDrive;
use crate::drives::{blkid, signatures};
use crate::environment::Environment;
use crate::failure::{Failure, Result, pool_failure, system_text};
use crate::registry::{KnownDrive, KnownPool};

/// Refuses a drive that holds data, or, with `force`, warns of its loss.
pub async fn refuse_contents(
    environment: &Environment,
    candidate: &Candidate,
    opened: &OpenedDrive,
    force: bool,
) -> Result<()> {
    let path = candidate.path.display();
    if force {
        refuse_known_member(environment, candidate, opened).await?;
    }
    let contents = contents_in_words(environment, candidate, opened, force).await?;
    if contents.is_empty() {
        return Ok(());
    }
    let holds = contents.join(" and ");
    if !force && let Some(pool) = destroyed_pool(environment, opened).await? {
        environment.warning(format!("{path} was a drive of the destroyed pool `{pool}`, which loses it"));
        return Ok(());
    }
    if force {
        environment.warning(format!("{path} is overwritten; it held {holds}"));
        return Ok(());
    }
    Err(Failure::new(format!("{path} holds {holds}; nothing was changed"))
        .hint("--force overwrites it: all that it holds would be lost"))
}

/// Describes the contents of a drive, to go behind "holds"; nothing if it is empty. A pool is named
/// with its identity where that has to be without ambiguity.
pub(crate) async fn contents_in_words(
    environment: &Environment,
    candidate: &Candidate,
    opened: &OpenedDrive,
    with_identity: bool,
) -> Result<Vec<String>> {
    let path = candidate.path.display();
    let mut contents = match inspect(&*opened.bare).await {
        Ok(None) => contents_of(environment, opened).await?.in_words(),
        Ok(Some(label)) => {
            let volumes: Vec<&str> = label
                .volumes
                .iter()
                .filter(|volume| volume.on_this_drive)
                .map(|volume| volume.name.as_str())
                .collect();
            let parts = if volumes.is_empty() {
                String::new()
            } else {
                format!(", with parts of {}", volumes.join(", "))
            };
            let identity = if with_identity { format!(" ({})", label.pool_id) } else { String::new() };
            let destroyed = if label.destroyed_unix_s.is_some() { "the destroyed " } else { "" };
            vec![format!("a drive of {destroyed}pool `{}`{identity}{parts}", label.pool_name)]
        }
        Err(PoolError::NewerFormat { version, .. }) => vec![format!("a pool of a newer format ({version})")],
        Err(PoolError::OlderFormat { version, .. }) => vec![format!("a pool of an older format ({version})")],
        Err(PoolError::UnknownFeatures { .. }) => {
            vec!["a pool with features unknown to this version".to_owned()]
        }
        Err(PoolError::UnreadableState { pool_id, .. }) => {
            vec![format!("a drive of pool {pool_id}, whose state cannot be read from it")]
        }
        Err(error) => return Err(pool_failure(format!("cannot read what {path} holds"), &error)),
    };
    contents.dedup();
    Ok(contents)
}

/// The name of the destroyed pool of which the drive is free for use: nothing else was written to
/// it since, and no pool on this host's list has it.
async fn destroyed_pool(environment: &Environment, opened: &OpenedDrive) -> Result<Option<String>> {
    let Ok(Some(label)) = inspect(&*opened.bare).await else { return Ok(None) };
    let pools = environment.registry()?.pools()?;
    let is_listed = pool_with(&pools, &label.pool_id.to_string(), &label.drive_id.to_string()).is_some();
    // Later contents have overwritten one of the pool's ends, or have a signature.
    if label.destroyed_unix_s.is_none() || !label.intact || is_listed {
        return Ok(None);
    }
    if let Some(file) = &opened.file {
        let look = Look::begin(file)?;
        let looked = off_thread(move || look.recognised()).await;
        let recognised =
            looked.unwrap_or_else(|error| Err(Failure::because("cannot look at a drive", &error)))?;
        if !recognised.is_empty() {
            return Ok(None);
        }
    }
    Ok(Some(label.pool_name))
}

/// Refuses a drive that a pool on this host's list still has: the pool may be closed for now, and
/// would silently lose it.
pub(crate) async fn refuse_known_member(
    environment: &Environment,
    candidate: &Candidate,
    opened: &OpenedDrive,
) -> Result<()> {
    // The caller reports a superblock that cannot be read.
    let Ok(Some((pool_id, drive_id))) = identify(&*opened.bare).await else { return Ok(()) };
    let pools = environment.registry()?.pools()?;
    match pool_with(&pools, &pool_id.to_string(), &drive_id.to_string()) {
        None => Ok(()),
        Some((_, known)) if is_elsewhere(environment, candidate, known).await => Ok(()),
        Some((pool, _)) => Err(Failure::new(format!(
            "{} is a drive of pool `{}`; nothing was changed",
            candidate.path.display(),
            pool.name
        ))
        .hint(format!(
            "if its data is not needed, `stripewise pool destroy {0} --yes` frees its drives; \
             `stripewise pool export {0}` takes a pool that cannot be opened any more off the list",
            pool.name
        ))),
    }
}

/// The pool on the list that has this drive, and its entry there.
fn pool_with<'a>(
    pools: &'a [KnownPool],
    pool_id: &str,
    drive_id: &str,
) -> Option<(&'a KnownPool, &'a KnownDrive)> {
    let pool = pools.iter().find(|pool| pool.id == pool_id)?;
    Some((pool, pool.drives.iter().find(|drive| drive.id == drive_id)?))
}

/// True if the drive on the list is another one, at its own place: the candidate is a copy of it.
async fn is_elsewhere(environment: &Environment, candidate: &Candidate, known: &KnownDrive) -> bool {
    let Ok(executor) = environment.executor() else { return false };
    let options = OpenOptions { read_only: true, lock: false, buffered: false };
    let opening = environment.look_at_drive(&known.path, move |path| OpenFile::open(path, &options));
    let Ok(file) = opening.await else { return false };
    if Identity::Drive(file.identity()) == candidate.identity {
        return false;
    }
    let drive = executor.opener().drive(file);
    let is_it = |id: DriveId| id.to_string() == known.id;
    matches!(identify(&*drive).await, Ok(Some((_, id))) if is_it(id))
}

/// Contents of a drive that is not in a pool. Runs concurrently with everything else, and stops
/// reading when the result is no longer wanted.
pub async fn contents_of(environment: &Environment, opened: &OpenedDrive) -> Result<Contents> {
    let _place = environment.place_to_look().await;
    let Some(file) = &opened.file else {
        return Ok(Contents { has_unknown: drive_holds_data(&*opened.bare).await?, ..Contents::default() });
    };
    let (look, stop) = (Look::begin(file)?, StopOnDrop::default());
    let stopped = stop.0.clone();
    let looked = off_thread(move || look.contents(&stopped)).await;
    looked.unwrap_or_else(|error| Err(Failure::because("cannot look at a drive", &error)))
}

/// Contents of a file or device that is not in a pool. Blocks the thread, long for a large file
/// that is full of zeros.
pub fn contents_of_file(file: &FileDrive) -> Result<Contents> {
    Look::begin(file)?.contents(&AtomicBool::new(false))
}

/// The file or device of an open drive, for reading. Its path is not used: another file may be
/// there by now, and that one says nothing about the drive.
struct Look {
    handle: DriveHandle,
    identity: DriveIdentity,
    name: String,
}

impl Look {
    fn begin(drive: &FileDrive) -> Result<Self> {
        let name = drive.path().display().to_string();
        let handle = drive.handle().map_err(|error| unreadable(&name, &error))?;
        Ok(Self { handle, identity: drive.identity(), name })
    }

    /// Finds contents that have a known signature. Blocks the thread.
    fn recognised(self) -> Result<Vec<String>> {
        let unreadable = |error: std::io::Error| unreadable(&self.name, &error);
        let mut file = self.handle.open().map_err(unreadable)?;
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        recognised(&file, size_bytes).map_err(unreadable)
    }

    /// Finds what overwriting the drive would destroy. Drives of pools are not known here. Ended
    /// early, with an error, by `stop`.
    fn contents(self, stop: &AtomicBool) -> Result<Contents> {
        let unreadable = |error: std::io::Error| unreadable(&self.name, &error);
        let mut file = self.handle.open().map_err(unreadable)?;
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let recognised = recognised(&file, size_bytes).map_err(unreadable)?;
        let has_unknown = recognised.is_empty()
            && match self.identity {
                DriveIdentity::File { .. } => file_holds_data(&file, stop),
                DriveIdentity::BlockDevice { .. } => samples_hold_data(&file, size_bytes, stop),
            }
            .map_err(unreadable)?;
        Ok(Contents { recognised, has_unknown })
    }
}

fn recognised(file: &File, size_bytes: u64) -> std::io::Result<Vec<String>> {
    let found = signatures::find(file, size_bytes)?;
    let mut recognised: Vec<String> = found.iter().map(ToString::to_string).collect();
    if recognised.is_empty() {
        recognised.extend(blkid::find(file));
    }
    Ok(recognised)
}

fn unreadable(name: &str, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot read {name}: {}", system_text(error)))
}

/// Ends a search when the future that waits for it is dropped.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::rc::Rc;

    use stripewise_runtime::{OpenOptions, RealExecutor};

    use super::*;

    fn open(path: &Path) -> Rc<FileDrive> {
        let options = OpenOptions { lock: false, ..OpenOptions::default() };
        RealExecutor::new().expect("io_uring").open_drive(path, &options).expect("opens")
    }

    #[test]
    fn only_a_file_of_zeros_is_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let contents = |offset: u64, bytes: &[u8]| {
            let path = folder.path().join("file");
            let file = File::create(&path).expect("a file");
            file.set_len(4 << 20).expect("room");
            file.write_all_at(bytes, offset).expect("written");
            contents_of_file(&open(&path)).expect("readable")
        };
        assert!(contents(0, &[0; 100_000]).is_empty());
        for offset in [0, 65_536, 1 << 20, (4 << 20) - 10] {
            let found = contents(offset, b"dear diary");
            assert_eq!(found.in_words(), ["data of an unknown kind"], "{offset}");
            assert!(!found.is_empty() && found.recognised.is_empty());
        }
        assert_eq!(contents(0, b"XFSB").in_words(), ["an XFS file system"]);
        assert_eq!(contents(66_908, b"\x19\x01\x54\x19").in_words(), ["a UFS file system"]);
    }

    #[test]
    fn the_opened_file_is_judged_not_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("diary"), vec![b'x'; 1 << 20]).expect("written");
        std::fs::write(at("empty"), vec![0; 1 << 20]).expect("written");
        std::os::unix::fs::symlink(at("diary"), at("link")).expect("linked");
        let diary = open(&at("link"));
        std::fs::remove_file(at("link")).expect("removed");
        std::os::unix::fs::symlink(at("empty"), at("link")).expect("linked");
        assert!(!contents_of_file(&diary).expect("readable").is_empty());
        // Nothing to wait for.
        std::fs::remove_file(at("link")).expect("removed");
        assert!(std::process::Command::new("mkfifo").arg(at("link")).status().expect("mkfifo").success());
        assert!(!contents_of_file(&diary).expect("readable").is_empty());
    }
}
