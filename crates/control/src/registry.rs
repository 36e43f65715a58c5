//! `STRIPEWISE_HOME`: the state that is not on the drives. Holds the list of pools that this user
//! works with (where their drives were last seen) and one lock per pool, so that a pool is used by
//! one process at a time. Losing it loses no data: `pool import` finds pools by their drives again.
//!
//! Only its owner may open what is in the folder: a user who can open a lock file can hold its
//! lock, and so hold up what waits for it. Nothing here waits for a lock on the executor's thread.
//!
//! Expected faults: a folder that cannot be written or belongs to another user, a list cut short or
//! of a newer version, two commands at once, a lock that is never released, a command killed at any
//! instant.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stripewise_drive::Context;
use utoipa::ToSchema;

use crate::access::Access;
use crate::failure::{Failure, Reason, Result, system_text};

mod files;
mod locks;
pub mod stacking;
pub(crate) mod this_host;

use files::open_own;
pub use files::replace_file;
pub(crate) use files::write_beside;

const REGISTRY_VERSION: u32 = 1;
/// Time that a command waits for a pool that another process has open.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two attempts to lock.
const LOOK_NS: u64 = 20_000_000;

/// Mode of the state folder: access for its owner only.
const FOLDER_MODE: u32 = 0o700;
/// Prefixes of the names in the state folder; temporary files add a suffix.
const STATE_NAMES: [&str; 6] = ["pools", "control", "http.", "hardware", "lab.sqlite", "mounts"];

/// The list of known pools, and the state folder that it lies in.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
}

/// A pool this user works with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownPool {
    /// Its name, unique here.
    pub name: String,
    /// Its identity, as on the drives.
    pub id: String,
    /// Its drives, in the order given when it was made.
    pub drives: Vec<KnownDrive>,
}

/// A drive of a known pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KnownDrive {
    /// Its identity, as on the drive.
    pub id: String,
    /// Last known location: an absolute path, a volume, or a URI.
    #[schema(value_type = String)]
    pub path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct RegistryFile {
    version: u32,
    pools: Vec<KnownPool>,
}

impl Registry {
    /// From `STRIPEWISE_HOME`, else the default of this user.
    pub(crate) fn from_environment() -> Result<Self> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = if let Some(folder) = variable("STRIPEWISE_HOME") {
            std::path::absolute(&folder)
                .map_err(|error| Failure::because("STRIPEWISE_HOME is no usable path", &error))?
        } else if running_as_root() {
            PathBuf::from("/var/lib/stripewise")
        } else if let Some(state) = variable("XDG_STATE_HOME").filter(|path| path.is_absolute()) {
            state.join("stripewise")
        } else if let Some(home) = variable("HOME") {
            home.join(".local/state/stripewise")
        } else {
            return Err(Failure::new(
                "there is no place for the list of pools: neither STRIPEWISE_HOME nor HOME is set",
            )
            .hint("set STRIPEWISE_HOME to a folder of yours"));
        };
        refuse_open_to_others(&folder)?;
        Ok(Self { folder })
    }

    /// The folder itself, for what is kept beside the list of pools.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Another folder, for tests.
    #[cfg(test)]
    pub fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// All known pools, by name.
    pub fn pools(&self) -> Result<Vec<KnownPool>> {
        let path = self.registry_path();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.unusable("read the list of pools", &path, &error)),
        };
        let damaged = |why: String| {
            Failure::new(format!("the list of pools {} cannot be read: {why}", path.display())).hint(
                "the pools themselves are not harmed: move that file away, then find them again with \
                 `stripewise pool import --dir DIR`",
            )
        };
        let file: RegistryFile = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if file.version != REGISTRY_VERSION {
            return Err(damaged(format!(
                "it is of version {}, this program knows {REGISTRY_VERSION}",
                file.version
            )));
        }
        Ok(file.pools)
    }

    /// The known pool of this name.
    pub fn pool(&self, name: &str) -> Result<KnownPool> {
        let pools = self.pools()?;
        if let Some(pool) = pools.iter().find(|pool| pool.name == name) {
            return Ok(pool.clone());
        }
        let failure = Failure::missing(format!("there is no pool `{name}` in {}", self.folder.display()));
        let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        Err(match names[..] {
            [] => failure.hint(
                "no pools are known here; `stripewise pool create` makes one, `stripewise pool import --dir DIR` finds \
                 those on drives in DIR",
            ),
            _ => failure.hint(format!(
                "known pools: {}; `stripewise pool import --dir DIR {name}` finds one on drives in DIR",
                names.join(", ")
            )),
        })
    }

    /// Changes the list of pools under its lock; the new list replaces the old one in one step. A
    /// lock that another process holds is waited for a few seconds, while everything else goes on.
    pub(crate) async fn change_pools<T>(
        &self,
        context: &Context,
        change: impl FnOnce(&mut Vec<KnownPool>) -> Result<T>,
    ) -> Result<T> {
        self.make_folder(&self.folder)?;
        let lock_path = self.folder.join("pools.lock");
        let lock = open_own().open(&lock_path);
        let lock = lock.map_err(|error| self.unusable("open", &lock_path, &error))?;
        let start = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(error)) => return Err(self.unusable("lock", &lock_path, &error)),
                Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                    context.sleep_ns(LOOK_NS).await
                }
                Err(TryLockError::WouldBlock) => {
                    let holder =
                        locks::holder_of(&lock).map_or("another process".to_owned(), |it| it.to_string());
                    return Err(Failure::new(format!(
                        "the list of pools cannot be changed: {holder} has held the lock {} for {} s",
                        lock_path.display(),
                        PATIENCE.as_secs()
                    ))
                    .hint("that process has to end, or let go of the lock; then run this again"));
                }
            }
        }

        let mut pools = self.pools()?;
        let result = change(&mut pools)?;
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        let text = serde_json::to_string_pretty(&RegistryFile { version: REGISTRY_VERSION, pools })
            .expect("plain data becomes JSON");
        replace_file(&self.registry_path(), text.as_bytes())
            .map_err(|error| self.unusable("write the list of pools", &self.registry_path(), &error))?;
        Ok(result)
    }

    /// Adds a pool, or replaces what is known of it (same identity).
    pub async fn remember(&self, context: &Context, pool: KnownPool) -> Result<()> {
        let remembered = self.change_pools(context, |pools| {
            if let Some(other) = pools.iter().find(|other| other.name == pool.name && other.id != pool.id) {
                return Err(Failure::new(format!(
                    "there is a pool `{}` already, with other drives (its identity is {})",
                    other.name, other.id
                ))
                .hint(format!("`stripewise pool export {}` puts that one aside", other.name)));
            }
            pools.retain(|other| other.id != pool.id);
            pools.push(pool);
            Ok(())
        });
        remembered.await
    }

    /// Takes a pool off the list.
    pub async fn forget(&self, context: &Context, id: &str) -> Result<()> {
        let forgotten = self.change_pools(context, |pools| {
            pools.retain(|pool| pool.id != id);
            Ok(())
        });
        forgotten.await
    }

    /// Takes the pool for this process, waiting a few seconds for another one or another command
    /// of this one to finish. `doing` is shown to others, who find commands for the pool taken at
    /// `control` if that is given. Any number of processes may look at the same time.
    pub(crate) async fn lock_pool(
        &self,
        context: &Context,
        pool: &KnownPool,
        access: Access,
        doing: &str,
        control: Option<&Path>,
    ) -> Result<PoolLock> {
        let folder = self.folder.join("pools");
        self.make_folder(&folder)?;
        let path = folder.join(format!("{}.lock", pool.id));
        let start = Instant::now();
        loop {
            let file = open_own().open(&path);
            let mut file = file.map_err(|error| self.unusable("open", &path, &error))?;
            let locked = match access {
                Access::Look => file.try_lock_shared(),
                Access::Change => file.try_lock(),
            };
            match locked {
                Ok(()) => {
                    let control = control.map_or_else(String::new, |path| path.display().to_string());
                    let holder = format!("{}\n{doing}\n{control}\n", std::process::id());
                    let written = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
                    written.map_err(|error| self.unusable("write", &path, &error))?;
                    return Ok(PoolLock { _file: file });
                }
                Err(TryLockError::Error(error)) => return Err(self.unusable("lock", &path, &error)),
                Err(TryLockError::WouldBlock) => {
                    let holder = Holder::read(&mut file);
                    // Another daemon stays. A command of this one ends.
                    let stays = holder.control.as_deref().is_some_and(|holder| Some(holder) != control);
                    if stays || start.elapsed() >= PATIENCE {
                        return Err(in_use(pool, holder));
                    }
                    context.sleep_ns(LOOK_NS).await;
                }
            }
        }
    }

    /// The other process that is changing the pool now, if there is one.
    pub(crate) fn pool_user(&self, pool: &KnownPool) -> Option<String> {
        let path = self.folder.join("pools").join(format!("{}.lock", pool.id));
        let mut file = File::open(path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(Holder::read(&mut file).text),
            _ => None,
        }
    }

    /// That the pool is in use by a process that takes commands for it, if it is.
    pub(crate) fn taken_elsewhere(&self, pool: &KnownPool) -> Option<Failure> {
        let path = self.folder.join("pools").join(format!("{}.lock", pool.id));
        let mut file = File::open(path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                let holder = Holder::read(&mut file);
                holder.control.is_some().then(|| in_use(pool, holder))
            }
            _ => None,
        }
    }

    /// Path of the socket on which a daemon takes commands.
    pub fn control_path(&self) -> Result<PathBuf> {
        self.make_folder(&self.folder)?;
        Ok(self.folder.join("control.sock"))
    }

    /// Path of the socket on which a daemon takes HTTP requests from its own user and root.
    pub fn http_path(&self) -> Result<PathBuf> {
        self.make_folder(&self.folder)?;
        Ok(self.folder.join("http.sock"))
    }

    /// The tokens for HTTP, unless another file is named.
    pub fn http_tokens_path(&self) -> Result<PathBuf> {
        self.make_folder(&self.folder)?;
        Ok(self.folder.join("http.tokens"))
    }

    /// The results of the laboratory.
    pub fn lab_path(&self) -> Result<PathBuf> {
        self.make_folder(&self.folder)?;
        Ok(self.folder.join("lab.sqlite"))
    }

    /// Path of the socket on which a process that has mounted a pool takes commands. Removes the
    /// sockets that killed processes left behind.
    pub(crate) fn mount_control_path(&self) -> Result<PathBuf> {
        self.make_folder(&self.folder)?;
        const BEFORE: &str = "control-mount-";
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.strip_prefix(BEFORE)?.strip_suffix(".sock"));
            if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(self.folder.join(format!("{BEFORE}{}.sock", std::process::id())))
    }

    /// The folder of folders that file systems on volumes stand on.
    pub(crate) fn mounts_path(&self) -> PathBuf {
        self.folder.join("mounts")
    }

    /// Path of the record of the mounts that the daemon keeps.
    pub(crate) fn kept_mounts_path(&self) -> PathBuf {
        self.folder.join("mounts.json")
    }

    /// Path of the status file that the process with the pool open writes, for `pool status` during
    /// a long job.
    pub(crate) fn status_path(&self, pool_id: &str) -> PathBuf {
        self.folder.join("pools").join(format!("{pool_id}.status.json"))
    }

    fn registry_path(&self) -> PathBuf {
        self.folder.join("pools.json")
    }

    fn make_folder(&self, folder: &Path) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder);
        made.map_err(|error| self.unusable("make the folder", folder, &error))?;
        let found = std::fs::metadata(folder).map_err(|error| self.unusable("look at", folder, &error))?;
        if found.mode() & 0o077 == 0 {
            return Ok(());
        }
        // One that an earlier version made lets others in. A folder of other things too is not this
        // program's to close: others may look into it, since files of the state are closed to them.
        if folder == self.folder && !holds_only_state(folder) {
            if found.mode() & 0o022 == 0 {
                return Ok(());
            }
            return Err(Failure::new(format!(
                "the folder {} holds other things, and other users may write there (mode {:04o})",
                folder.display(),
                found.mode() & 0o7777
            ))
            .hint("STRIPEWISE_HOME names a folder for the state of Stripewise alone; `chmod 700` it"));
        }
        let narrowed = std::fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE));
        narrowed.map_err(|error| self.unusable("keep other users out of", folder, &error))
    }

    fn unusable(&self, doing: &str, path: &Path, error: &std::io::Error) -> Failure {
        Failure::new(format!("cannot {doing} {}: {}", path.display(), system_text(error))).hint(
            "STRIPEWISE_HOME names the folder that holds the list of pools; it must be one that you can write to",
        )
    }
}

/// While this lives, no other process uses the pool.
pub(crate) struct PoolLock {
    _file: File,
}

fn in_use(pool: &KnownPool, holder: Holder) -> Failure {
    let reason = holder.control.map_or(Reason::Failed, Reason::TakenAt);
    Failure::of(reason, format!("pool `{}` is in use by {}", pool.name, holder.text))
        .hint("a pool is used by one process at a time; run this again when that one has ended")
}

/// The process that has a pool open, as recorded in its lock file.
struct Holder {
    /// Description of the process.
    text: String,
    /// Path of its command socket.
    control: Option<PathBuf>,
}

impl Holder {
    fn read(lock: &mut File) -> Self {
        let mut text = String::new();
        let read = lock.rewind().and_then(|()| lock.read_to_string(&mut text));
        let mut lines = text.lines();
        // The text may be from an earlier holder than the one that the system names.
        let holder = locks::holder_of(lock);
        let is_current =
            |process: &str| holder.as_ref().is_none_or(|holder| process.parse() == Ok(holder.process));
        match (lines.next(), lines.next()) {
            (Some(process), _) if !is_current(process) => {
                Self { text: holder.map_or_else(String::new, |holder| holder.to_string()), control: None }
            }
            (Some(process), Some(doing)) if read.is_ok() => Self {
                text: format!("process {process} (`{}`)", doing.trim()),
                control: lines.next().filter(|line| !line.is_empty()).map(PathBuf::from),
            },
            _ => Self { text: "another process".to_owned(), control: None },
        }
    }
}

/// A folder of another user, or one in which other users may write: what lies in it is not to be
/// believed, and they could hold up this process.
fn refuse_open_to_others(folder: &Path) -> Result<()> {
    let Ok(found) = std::fs::metadata(folder) else { return Ok(()) };
    if found.mode() & 0o022 != 0 {
        return Err(Failure::new(format!(
            "other users may write in the state folder {} (mode {:04o})",
            folder.display(),
            found.mode() & 0o7777
        ))
        .hint(
            "`chmod 700` it, once nothing in it is from another user; or name another with STRIPEWISE_HOME",
        ));
    }
    match own_user() {
        Some(own) if found.uid() != own => Err(Failure::new(format!(
            "the state folder {} belongs to another user ({}), and this process acts as user {own}",
            folder.display(),
            found.uid()
        ))
        .hint("STRIPEWISE_HOME names a folder of your own; or run this as that user")),
        _ => Ok(()),
    }
}

/// True if the folder is empty or holds only files of this program.
fn holds_only_state(folder: &Path) -> bool {
    let is_state = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        STATE_NAMES.iter().any(|own| name.as_encoded_bytes().starts_with(own.as_bytes()))
    };
    std::fs::read_dir(folder).is_ok_and(|mut all| all.all(|entry| entry.is_ok_and(is_state)))
}

/// The user this process acts as: `/proc/self` belongs to it.
pub fn own_user() -> Option<u32> {
    std::fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
}

/// True if this process acts as root.
pub fn running_as_root() -> bool {
    own_user() == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, id: &str) -> KnownPool {
        let drive = KnownDrive { id: format!("{id}-0"), path: PathBuf::from("/disks/drive0.img") };
        KnownPool { name: name.to_owned(), id: id.to_owned(), drives: vec![drive] }
    }

    #[test]
    fn pools_are_remembered_by_identity() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(&folder.path().join("not/yet/there"));
        assert_eq!(registry.pools().expect("none yet"), []);
        let executor = stripewise_runtime::RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let remember = |pool| executor.block_on(registry.remember(&context, pool));
        remember(pool("tank", "1")).expect("new");
        remember(pool("big", "2")).expect("new");
        remember(pool("renamed", "1")).expect("same identity");
        let names: Vec<_> = registry.pools().expect("readable").into_iter().map(|pool| pool.name).collect();
        assert_eq!(names, ["big", "renamed"]);
        let failure = remember(pool("big", "3")).expect_err("another pool of that name");
        assert!(failure.message.contains("there is a pool `big` already"), "{}", failure.message);
        executor.block_on(registry.forget(&context, "2")).expect("known");
        assert!(registry.pool("big").is_err());
        assert_eq!(registry.pool("renamed").expect("known").id, "1");
    }

    #[test]
    fn a_damaged_list_is_an_error_and_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(folder.path());
        let executor = stripewise_runtime::RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let remember = |pool| executor.block_on(registry.remember(&context, pool));
        remember(pool("tank", "1")).expect("new");
        let path = folder.path().join("pools.json");
        let text = std::fs::read_to_string(&path).expect("readable");
        std::fs::write(&path, &text[..text.len() / 2]).expect("writable");
        assert!(remember(pool("big", "2")).expect_err("damaged").message.contains("cannot be read"));
        assert_eq!(std::fs::read_to_string(&path).expect("readable"), text[..text.len() / 2]);
        std::fs::write(&path, text.replace("\"version\": 1", "\"version\": 9")).expect("writable");
        assert!(registry.pools().expect_err("newer").message.contains("version 9"));
    }

    #[test]
    fn the_state_folder_is_private_to_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("home");
        let registry = Registry::at(&path);
        let executor = stripewise_runtime::RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o777;
        let open_to_all = |path: &Path| {
            std::fs::set_permissions(path, Permissions::from_mode(0o755)).expect("set");
        };
        executor.block_on(registry.remember(&context, pool("tank", "1"))).expect("new");
        let tank = pool("tank", "1");
        let lock = registry.lock_pool(&context, &tank, Access::Change, "", None);
        drop(executor.block_on(lock).expect("free"));
        assert_eq!((mode(&path), mode(&path.join("pools"))), (0o700, 0o700));
        for file in ["pools.json", "pools.lock", "pools/1.lock"] {
            assert_eq!(mode(&path.join(file)), 0o600, "{file}");
        }
        // As an earlier version left it.
        open_to_all(&path);
        executor.block_on(registry.remember(&context, pool("big", "2"))).expect("new");
        assert_eq!(mode(&path), 0o700);
        // A folder of other things stays as it is, and what is put there is closed to others.
        let other = Registry::at(folder.path());
        open_to_all(folder.path());
        for _ in 0..2 {
            executor.block_on(other.remember(&context, pool("tank", "1"))).expect("new");
            assert_eq!(mode(folder.path()), 0o755);
        }
        for file in ["pools.json", "pools.lock"] {
            assert_eq!(mode(&folder.path().join(file)), 0o600, "{file}");
        }
        // Other users who may write there could plant a lock file.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("set");
        let refused = executor.block_on(other.remember(&context, pool("tank", "1"))).expect_err("refused");
        assert!(refused.message.contains("holds other things"), "{}", refused.message);
    }

    #[test]
    fn a_stuck_lock_names_its_holder_and_blocks_no_task() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(folder.path());
        let executor = stripewise_runtime::RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let held = open_own().open(folder.path().join("pools.lock")).expect("made");
        held.lock().expect("free");
        let ticks = std::cell::Cell::new(0);
        let changed = executor.block_on(async {
            let changing = std::pin::pin!(registry.remember(&context, pool("tank", "1")));
            let ticking = std::pin::pin!(async {
                while ticks.get() < 10_000 {
                    context.sleep_ns(LOOK_NS).await;
                    ticks.set(ticks.get() + 1);
                }
                panic!("it was waited for without a limit")
            });
            let ended = futures_util::future::select(changing, ticking).await;
            ended.factor_first().0
        });
        let refused = changed.expect_err("held");
        assert!(refused.message.contains(&format!("process {}", std::process::id())), "{}", refused.message);
        assert!(ticks.get() > 10, "everything else stood still: {}", ticks.get());
        drop(held);
        executor.block_on(registry.remember(&context, pool("tank", "1"))).expect("free");
    }

    #[test]
    fn a_pool_is_changed_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(folder.path());
        let executor = stripewise_runtime::RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let lock = |pool: &str, access, doing: &str, control: Option<&Path>| {
            executor.block_on(registry.lock_pool(&context, &self::pool(pool, pool), access, doing, control))
        };
        let tank = pool("tank", "tank");
        let first = lock("tank", Access::Change, "volume write tank/a", None).expect("free");
        let user = registry.pool_user(&tank).expect("in use");
        assert_eq!(user, format!("process {} (`volume write tank/a`)", std::process::id()));
        lock("other", Access::Change, "", None).expect("another pool");
        drop(first);
        assert_eq!(registry.pool_user(&tank), None);
        let look = lock("tank", Access::Look, "", None).expect("free again");
        lock("tank", Access::Look, "", None).expect("two may look");
        drop(look);
        let served =
            lock("tank", Access::Change, "serve", Some(Path::new("/run/there"))).expect("free again");
        // A daemon stays: the command fails at once instead of waiting for it to end.
        let begin = Instant::now();
        let failure = lock("tank", Access::Change, "", None).err().expect("in use");
        assert_eq!(failure.taken_at(), Some(Path::new("/run/there")));
        assert!(begin.elapsed() < PATIENCE);
        drop(served);
    }

    #[test]
    fn a_daemon_waits_for_its_own_looks() {
        let folder = tempfile::tempdir().expect("a folder");
        let registry = Registry::at(folder.path());
        let executor = stripewise_runtime::RealExecutor::new().expect("io_uring");
        let context = executor.context();
        let (tank, socket) = (pool("tank", "tank"), Path::new("/run/there"));
        let look = registry.lock_pool(&context, &tank, Access::Look, "pool status", Some(socket));
        let look = executor.block_on(look).expect("free");
        let looking = {
            let context = context.clone();
            executor.context().spawn(async move {
                context.sleep_ns(5 * LOOK_NS).await;
                drop(look);
            })
        };
        let served = registry.lock_pool(&context, &tank, Access::Change, "serve", Some(socket));
        executor.block_on(served).expect("the look ends");
        assert!(looking.is_finished());
    }
}
