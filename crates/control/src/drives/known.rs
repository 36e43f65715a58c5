//! Opening the drives of a pool on the list. The list says where to look first; which drive of
//! which pool it is, only the drive itself says. A drive that is not where the list has it is
//! looked for at all places on the list and, where the pool lies on block devices, under
//! `/dev/disk/by-*`.
//!
//! Expected faults: disks renumbered at boot, so that names mean drives of other pools; blank and
//! foreign drives in the place of one; drives that are gone, in use, not permitted, silent; paths
//! that cannot be looked at (links in a circle, dead mounts, names that are none); a process that
//! has no descriptor left.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::Drive;
use stripewise_pool::{DriveId, PoolError, PoolId, identify, inspect};
use stripewise_runtime::{
    DriveIdentity, Holder, OpenError, OpenFile, OpenOptions, RealExecutor, drive_identity,
};

use crate::access::Access;
use crate::drives::candidates::{Identity, Place, noted_export, noted_place};
use crate::drives::misplaced::{Holds, Misplaced};
use crate::drives::network;
use crate::drives::opened::OpenedDrive;
use crate::drives::opener::{DriveOpener, Volumes};
use crate::drives::own;
use crate::drives::trouble::Trouble;
use crate::failure::{Failure, chain};
use crate::registry::{KnownPool, Registry};

/// Time limit for reading a drive's identity, as the engine has it for a silent drive.
const PATIENCE_NS: u64 = 30_000_000_000;
/// Folder of stable names of block devices; the first name found is recorded.
const DISK_NAMES: &str = "/dev/disk";

/// The drives of a pool, opened.
pub(crate) struct KnownDrives {
    /// Drives that say that they belong to the pool, or that cannot say anything.
    pub opened: Vec<OpenedDrive>,
    /// Places on the list that hold something else.
    pub misplaced: Vec<Misplaced>,
    /// Another process has a drive: it can be looked at, and what is seen may be changing.
    pub used_by: Option<Holder>,
}

/// Identity in a drive's superblock.
enum Says {
    Ours(DriveId),
    Else(Holds),
    /// Nothing can be read: it may be the pool's, and the engine says what is wrong with it.
    Unreadable,
}

/// The identity of a pool on the list.
pub(crate) fn pool_id(known: &KnownPool) -> Result<PoolId, Trouble> {
    known.id.parse().map_err(|why: String| {
        let failure = Failure::new(format!("the list of pools is damaged: pool `{}`: {why}", known.name));
        Trouble::Stop(failure.hint(
            "move the list away, then find the pools again with `stripewise pool import --dir DIR --all`",
        ))
    })
}

/// Opens what is there of a known pool's drives.
pub(crate) async fn open_known<V: Volumes>(
    opener: &DriveOpener<'_, V>,
    registry: &Registry,
    known: &KnownPool,
    access: Access,
) -> Result<KnownDrives, Trouble> {
    let search = Search { opener, known, pool_id: pool_id(known)?, access };
    let mut found = KnownDrives { opened: Vec::new(), misplaced: Vec::new(), used_by: None };
    let absent = search.at_noted_places(&mut found).await?;
    search.elsewhere(registry, &mut found).await?;
    for (path, why) in &absent {
        // A drive that was found elsewhere is not missing.
        let is_found = |id: &str| found.opened.iter().any(|opened| says_id(opened, id));
        if !known.drives.iter().any(|drive| drive.path == *path && is_found(&drive.id)) {
            opener.environment.warning(format!("{} is taken as missing: {why}", path.display()));
        }
    }
    if found.opened.is_empty() {
        return Err(Trouble::Missing(nothing_there(known, &found.misplaced)));
    }
    if access == Access::Change {
        note_others(opener.executor, registry, &found.misplaced).await.map_err(Trouble::Stop)?;
    }
    Ok(found)
}

/// Puts on the list where drives of other pools are now. This pool's own places are noted next, and
/// no pool on the list may have theirs then: they would not be looked for there.
async fn note_others(
    executor: &RealExecutor,
    registry: &Registry,
    misplaced: &[Misplaced],
) -> Result<(), Failure> {
    let others: Vec<(String, String, &PathBuf)> = misplaced
        .iter()
        .filter_map(|Misplaced { path, holds }| match holds {
            Holds::OtherPool { id, drive, .. } => Some((id.to_string(), drive.to_string(), path)),
            _ => None,
        })
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    let context = executor.context();
    let noted = registry.change_pools(&context, |pools| {
        for (pool, drive, path) in &others {
            let drives =
                pools.iter_mut().filter(|known| known.id == *pool).flat_map(|known| &mut known.drives);
            drives.filter(|known| known.id == *drive).for_each(|known| known.path.clone_from(path));
        }
        Ok(())
    });
    noted.await
}

fn says_id(opened: &OpenedDrive, id: &str) -> bool {
    opened.says.is_some_and(|says| says.to_string() == id)
}

fn nothing_there(known: &KnownPool, misplaced: &[Misplaced]) -> Failure {
    let place = |drive: &crate::registry::KnownDrive| {
        let path = drive.path.display();
        match misplaced.iter().find(|misplaced| misplaced.path == drive.path) {
            Some(misplaced) => format!("{path} {}", misplaced.holds),
            None => path.to_string(),
        }
    };
    let mut places: Vec<String> = known.drives.iter().map(place).collect();
    places.dedup();
    Failure::new(format!(
        "none of the drives of pool `{}` ({}) is there: {}",
        known.name,
        known.id,
        places.join(", ")
    ))
    .hint(format!("if they are elsewhere now: stripewise pool import --dir DIR {}", known.name))
}

struct Search<'a, V> {
    opener: &'a DriveOpener<'a, V>,
    known: &'a KnownPool,
    pool_id: PoolId,
    access: Access,
}

impl<V: Volumes> Search<'_, V> {
    fn looks(&self) -> bool {
        self.access == Access::Look
    }

    fn executor(&self) -> &Rc<RealExecutor> {
        self.opener.executor
    }

    fn options(&self) -> OpenOptions {
        OpenOptions { read_only: self.looks(), lock: true, buffered: false }
    }

    /// Opens what is where the list says. Gives the places that are of no use, with the reason
    /// where there is more to say than that nothing is there.
    async fn at_noted_places(&self, found: &mut KnownDrives) -> Result<Vec<(PathBuf, String)>, Trouble> {
        let environment = self.opener.environment;
        let reached = network::open_all(self.executor(), self.known, self.looks());
        let mut reached = environment.without_turn(reached).await;
        let mut files = self.open_files().await;
        let (mut paths, mut opened, mut absent) = (Vec::<&Path>::new(), Vec::new(), Vec::new());
        let mut errors = Vec::new();
        for drive in &self.known.drives {
            if paths.contains(&drive.path.as_path()) {
                continue;
            }
            paths.push(&drive.path);
            let answer = match (reached.remove(&drive.path), files.remove(&drive.path)) {
                (Some(answer), _) => answer.map(Ok),
                (None, Some(answer)) => Ok(answer),
                // The same export under another name.
                (None, None) if noted_export(&drive.path).is_some() => continue,
                (None, None) => self.opener.open_noted(&drive.path, self.access, &self.options()).await,
            };
            match answer {
                Ok(Ok(found)) if !self.looks() && found.is_on_own_volume(environment) => {
                    absent.push((drive.path.clone(), own::WHY.to_owned()));
                }
                Ok(Ok(drive)) => opened.push((drive_path(&drive), drive)),
                Ok(Err(error)) => errors.push((&drive.path, error)),
                Err(Trouble::Stop(failure)) if !self.looks() => return Err(Trouble::Stop(failure)),
                Err(trouble) => absent.push((drive.path.clone(), trouble.failure().message)),
            }
        }
        for (path, error) in errors {
            if let Some(why) = self.judge(path, error, &opened, found).await? {
                absent.push((path.clone(), why));
            }
        }
        let says = join_all(opened.iter().map(|(_, drive)| self.ask(drive))).await;
        for ((path, mut drive), says) in opened.into_iter().zip(says) {
            match says {
                Says::Ours(id) => {
                    drive.says = Some(id);
                    found.opened.push(drive);
                }
                Says::Unreadable => found.opened.push(drive),
                Says::Else(holds) => found.misplaced.push(Misplaced { path, holds }),
            }
        }
        Ok(absent)
    }

    /// Opens all files and devices among the pool's drives at the same time, so that several that
    /// do not answer cost no more than one.
    async fn open_files(&self) -> HashMap<PathBuf, Result<OpenedDrive, OpenError>> {
        let paths: BTreeSet<&Path> = self.known.drives.iter().map(|drive| drive.path.as_path()).collect();
        let paths = paths.into_iter().filter(|path| matches!(noted_place(path), Place::Path(_)));
        let opening =
            paths.map(|path| async move { (path.to_owned(), self.opener.at(path, &self.options()).await) });
        join_all(opening).await.into_iter().collect()
    }

    /// The identity of the file or device at a path.
    async fn identity(&self, path: &Path) -> Option<DriveIdentity> {
        self.opener.environment.look_at_drive(path, drive_identity).await.ok()
    }

    /// True if the file or device at a path is one of these drives.
    async fn is_among(&self, opened: &[(PathBuf, OpenedDrive)], path: &Path) -> bool {
        let Some(identity) = self.identity(path).await else { return false };
        opened.iter().any(|(_, opened)| opened.identity == Identity::Drive(identity))
    }

    /// Classifies an error at a place on the list: ignored, reported, or fatal for the pool. The
    /// same for commands that read and commands that change: an error of one drive costs the pool
    /// no more than that drive.
    async fn judge(
        &self,
        path: &Path,
        error: OpenError,
        opened: &[(PathBuf, OpenedDrive)],
        found: &mut KnownDrives,
    ) -> Result<Option<String>, Trouble> {
        match error {
            // The pool itself says which drive it misses.
            OpenError::NotFound { .. } => Ok(None),
            // Two names that have come to mean the same drive.
            OpenError::Busy { holder: Holder::ThisProcess, .. } if self.is_among(opened, path).await => {
                Ok(None)
            }
            OpenError::Busy { ref holder, .. } => {
                let holder = holder.clone();
                let beside = OpenOptions { read_only: true, lock: false, buffered: false };
                let Ok(mut drive) = self.opener.at(path, &beside).await else {
                    return Err(Trouble::Stop(error.into()));
                };
                match self.ask(&drive).await {
                    Says::Else(holds) => {
                        found.misplaced.push(Misplaced { path: path.to_owned(), holds });
                        Ok(None)
                    }
                    Says::Ours(id) if self.looks() => {
                        drive.says = Some(id);
                        found.opened.push(drive);
                        found.used_by = Some(holder);
                        Ok(None)
                    }
                    // To go on without it would make what it holds out of date.
                    Says::Ours(_) | Says::Unreadable => Err(Trouble::Stop(error.into())),
                }
            }
            // A process without rights knows nothing of the pool.
            error if error.is_of_this_process() => Err(Trouble::Stop(error.into())),
            error => Ok(Some(chain(&error))),
        }
    }

    /// Asks a drive which one it is.
    async fn ask(&self, opened: &OpenedDrive) -> Says {
        let context = self.executor().context();
        let drive = &*opened.bare;
        let answer = std::pin::pin!(self.answer(drive));
        context.time_limit_ns(PATIENCE_NS, answer).await.unwrap_or(Says::Unreadable)
    }

    async fn answer(&self, drive: &dyn Drive) -> Says {
        match identify(drive).await {
            Ok(Some((pool, id))) if pool == self.pool_id => return Says::Ours(id),
            Ok(_) => {}
            Err(_) => return Says::Unreadable,
        }
        match inspect(drive).await {
            Ok(Some(label)) if label.pool_id == self.pool_id => Says::Ours(label.drive_id),
            Ok(Some(label)) => Says::Else(Holds::OtherPool {
                name: label.pool_name,
                id: label.pool_id,
                drive: label.drive_id,
            }),
            Ok(None) => Says::Else(Holds::Nothing),
            Err(PoolError::OlderFormat { version, .. } | PoolError::NewerFormat { version, .. }) => {
                Says::Else(Holds::OtherFormat(format!(
                    "holds a pool in format version {version}, which is not read here"
                )))
            }
            Err(PoolError::UnknownFeatures { .. }) => Says::Else(Holds::OtherFormat(
                "holds a pool with features unknown to this program".to_owned(),
            )),
            Err(PoolError::UnreadableState { pool_id, .. }) => Says::Else(Holds::OtherFormat(format!(
                "is a drive of pool {pool_id}, whose state cannot be read from it"
            ))),
            Err(_) => Says::Unreadable,
        }
    }

    /// Looks for drives that are not where the list has them.
    async fn elsewhere(&self, registry: &Registry, found: &mut KnownDrives) -> Result<(), Trouble> {
        let missing = |found: &KnownDrives| -> Vec<DriveId> {
            let ids = self.known.drives.iter().filter_map(|drive| drive.id.parse().ok());
            ids.filter(|id| !found.opened.iter().any(|opened| opened.says == Some(*id))).collect()
        };
        if missing(found).is_empty() {
            return Ok(());
        }
        let noted = self.known.drives.iter().map(|drive| self.identity(&drive.path));
        let mut asked: Vec<DriveIdentity> = join_all(noted).await.into_iter().flatten().collect();
        let mut places = places_on_the_list(registry);
        if self.known.drives.iter().any(|drive| drive.path.starts_with("/dev")) {
            places.extend(disk_names(Path::new(DISK_NAMES)));
        }
        let beside = OpenOptions { read_only: true, lock: false, buffered: true };
        let mut candidates = Vec::new();
        let identities = join_all(places.iter().map(|path| self.identity(path))).await;
        for (path, identity) in places.into_iter().zip(identities) {
            let Some(identity) = identity.filter(|identity| !asked.contains(identity)) else { continue };
            asked.push(identity);
            let environment = self.opener.environment;
            let opening = environment.look_at_drive(&path, move |path| OpenFile::open(path, &beside));
            if let Ok(file) = opening.await {
                candidates.push((path, OpenedDrive::plain(self.executor().opener().drive(file))));
            }
        }
        let says = join_all(candidates.iter().map(|(_, drive)| self.ask(drive))).await;
        let paths: Vec<(PathBuf, Says)> = candidates.into_iter().map(|(path, _)| path).zip(says).collect();
        for (path, says) in paths {
            let Says::Ours(id) = says else { continue };
            if !missing(found).contains(&id) {
                continue;
            }
            match self.opener.at(&path, &self.options()).await {
                Ok(mut drive) => {
                    drive.says = Some(id);
                    self.opener.environment.note(format!(
                        "note: a drive of pool {} is at {} now",
                        self.known.name,
                        path.display()
                    ));
                    found.opened.push(drive);
                }
                Err(error) => {
                    if let Some(why) = self.judge(&path, error, &[], found).await? {
                        self.opener.environment.warning(why);
                    }
                }
            }
        }
        Ok(())
    }
}

fn drive_path(opened: &OpenedDrive) -> PathBuf {
    PathBuf::from(opened.bare.info().label.to_string())
}

/// Paths at which any pool on the list has drives.
fn places_on_the_list(registry: &Registry) -> Vec<PathBuf> {
    let pools = registry.pools().unwrap_or_default();
    let drives = pools.into_iter().flat_map(|pool| pool.drives);
    drives.map(|drive| drive.path).filter(|path| matches!(noted_place(path), Place::Path(_))).collect()
}

/// The names of all block devices below a folder as `/dev/disk`: by what they are first, then by
/// where they are.
fn disk_names(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let is_kind = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("by-"))
    };
    entries(folder).into_iter().filter(is_kind).flat_map(|kind| entries(&kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_all_their_persistent_names() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["by-path/pci-1", "by-id/wwn-2", "by-id/wwn-1", "other/x"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
            std::os::unix::fs::symlink("/dev/null", path).expect("linked");
        }
        let names = disk_names(folder.path());
        let names: Vec<&Path> =
            names.iter().map(|name| name.strip_prefix(folder.path()).expect("below it")).collect();
        assert_eq!(names, [Path::new("by-id/wwn-1"), Path::new("by-id/wwn-2"), Path::new("by-path/pci-1")]);
        assert_eq!(disk_names(&folder.path().join("absent")), Vec::<PathBuf>::new());
    }
}
