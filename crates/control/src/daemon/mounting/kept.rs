//! Mounts that the daemon keeps for commands: mounts each one when its pool is served, records it,
//! brings it back when the daemon serves again, and unmounts it at shutdown.
//!
//! A mount that another process unmounts stays on the list and comes back with the next daemon, as
//! the system unmounts everything when it shuts down; `stripewise umount` takes it off the list. A
//! mount of the system's `mount` is recorded by `/etc/fstab`: `umount` takes it off the list too.
//!
//! Expected faults: folders that are gone or not empty after a start, pools that are served later
//! or not at all, file systems that are in use at the end (waited for), a damaged record
//! (reported).

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::select;
use stripewise_export::bridge::off_thread;
use stripewise_export::fuse::Tree;

use super::file_system::{Wanted, backing_file};
use super::program::{UTIL_LINUX, run};
use super::{free_folder_at, mount_fuse, unmount_fuse, what_is_mounted_at};
use crate::control::Control;
use crate::daemon::alerts::{Alert, tell};
use crate::daemon::serving::END_WITHIN_SECONDS;
use crate::failure::{Failure, Reason, Result};
use crate::messages::request::Mount;
use crate::notation::names::VolumeName;
use crate::pools::mount_list::{self, KeptMount, MountState};
use crate::pools::session::{Session, find_volume};
use crate::registry::replace_file;
use crate::registry::running_as_root;
use crate::registry::stacking::refuse_if_used;

/// Interval between looks at the list.
const LOOK_NS: u64 = 1_000_000_000;
/// Interval between attempts to mount.
const AGAIN_NS: u64 = 30_000_000_000;
/// Maximum time that an unmount waits for the release of the loop device.
const RELEASE_PATIENCE_NS: u64 = 5_000_000_000;
/// Maximum time that the start of the daemon waits for its mounts.
const START_PATIENCE_NS: u64 = 30_000_000_000;
/// Time to wait for a pool that is not served yet, seconds.
const NEW_POOL_SECONDS: u64 = 3;
/// Interval between looks at the pool that a mount of the system waits for.
const POOL_LOOK_NS: u64 = 100_000_000;

/// Loads the record of the last daemon and mounts what it had, for pools that are served.
pub async fn begin(control: &Control) -> Result<()> {
    let registry = control.registry()?;
    let recorded = match std::fs::read(registry.kept_mounts_path()) {
        Ok(bytes) => serde_json::from_slice::<Vec<KeptMount>>(&bytes).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let recorded = recorded.unwrap_or_else(|error| {
        let path = registry.kept_mounts_path();
        control.warning(format!("nothing is mounted: cannot read {}: {error}", path.display()));
        Vec::new()
    });
    let known = registry.pools()?;
    let (mut present, mut is_changed) = (Vec::new(), false);
    for kept in recorded {
        match known.iter().find(|pool| pool.id == kept.pool_id) {
            Some(pool) => present.push(KeptMount { pool: pool.name.clone(), ..kept }),
            None => {
                is_changed = true;
                let (target, folder) = (kept.target(), kept.folder.display().to_string());
                control.warning(format!("{target} is no longer mounted at {folder}: its pool is gone"));
            }
        }
    }
    let mounts = control.served.mounts();
    mounts.begin(present);
    if is_changed {
        record(control)?;
    }
    start_due(control)?;
    let context = control.executor()?.context();
    let all_tried = async {
        while mounts.all().iter().any(|mount| *mount.state.borrow() == MountState::Mounting) {
            mounts.changed().wait().await;
        }
    };
    // Later ones are mounted while the daemon serves.
    let _ = context.time_limit_ns(START_PATIENCE_NS, pin!(all_tried)).await;
    Ok(())
}

/// Mounts what is due, for as long as it is polled.
pub async fn keep(control: &Control) -> Result<()> {
    let context = control.executor()?.context();
    let mounts = control.served.mounts();
    loop {
        start_due(control)?;
        let changed = pin!(mounts.changed().wait());
        let _ = context.time_limit_ns(LOOK_NS, changed).await;
    }
}

/// Unmounts everything and waits until programs have closed their files. The record stays.
pub async fn end(control: &Control) -> Result<()> {
    let mounts = control.served.mounts();
    let all = mounts.all();
    all.iter().for_each(|mount| mount.is_ending.set(true));
    mounts.note_change();
    while all.iter().any(|mount| mount.is_active.get()) {
        mounts.changed().wait().await;
    }
    Ok(())
}

/// Mounts a pool or a volume, and records the mount.
pub(crate) async fn mount(control: &Control, asked: &Mount) -> Result<()> {
    let (pool, mounts) = (&asked.pool.0, control.served.mounts());
    if !mounts.is_kept() {
        return Err(Failure::new(format!(
            "pool `{pool}` is open in `stripewise mount`, which mounts nothing else"
        ))
        .hint("end that process first, or have `stripewise serve` serve the pool"));
    }
    if asked.file_system.is_some() && !running_as_root() {
        return Err(Failure::new("only a daemon that runs as root can mount a file system on a loop device")
            .hint(format!("stripewise mount {pool} DIR shows volumes as files")));
    }
    let Some(system) = &asked.of_system else {
        // A pool that was created a moment ago.
        let _ = until_served(control, pool, NEW_POOL_SECONDS).await;
        return mount_once(control, asked).await;
    };
    until_served(control, pool, system.wait_seconds).await?;
    if is_there_already(control, asked, system.wait_seconds).await? {
        return record(control);
    }
    mount_once(control, asked).await
}

/// Mounts what is not mounted, and records it.
async fn mount_once(control: &Control, asked: &Mount) -> Result<()> {
    let (pool, mounts) = (&asked.pool.0, control.served.mounts());
    let folder = free_folder_at(control.absolute(&asked.folder)).await?;
    let target = asked.volume.as_ref().map_or_else(|| pool.clone(), VolumeName::to_string);
    let existing = mounts.all().into_iter().find(|mount| {
        let kept = mount.kept.borrow();
        kept.target() == target || kept.folder == folder
    });
    if let Some(existing) = existing {
        if existing.is_active.get() {
            let kept = existing.kept.borrow();
            if existing.is_forgotten.get() {
                return Err(Failure::new(format!("{} is still being unmounted", kept.target()))
                    .hint("its loop device is in use in another mount namespace; repeat the command later"));
            }
            return Err(Failure::new(format!("{} is mounted at {}", kept.target(), kept.folder.display()))
                .hint(format!("stripewise umount {}", kept.target())));
        }
        // It failed, or another process unmounted it: this one takes its place.
        mounts.remove(&existing);
    }
    let session = Session::served(control, pool)
        .ok_or_else(|| Failure::missing(format!("pool `{pool}` is not served here")))?;
    let kept = KeptMount {
        pool_id: session.known().id,
        pool: pool.clone(),
        volume: asked.volume.as_ref().map(|volume| volume.volume.clone()),
        folder,
        file_system: asked.file_system,
        options: asked.options.clone(),
        is_of_system: asked.of_system.is_some(),
    };
    drop(session);
    let mount = mounts.add(kept);
    until_tried(control, &mount).await;
    let failed = match &*mount.state.borrow() {
        MountState::Failed { why, .. } => Some(why.clone()),
        _ => None,
    };
    if let Some(why) = failed {
        mounts.remove(&mount);
        let (message, hint) = why.split_once("; hint: ").unwrap_or((why.as_str(), ""));
        let failure = Failure::new(message);
        return Err(if hint.is_empty() { failure } else { failure.hint(hint) });
    }
    record(control)
}

/// Waits until a known pool is served, for at most `wait_seconds`.
async fn until_served(control: &Control, pool: &str, wait_seconds: u64) -> Result<()> {
    let is_known = control.registry()?.pools()?.iter().any(|known| known.name == *pool);
    let context = control.executor()?.context();
    let served = async {
        while is_known && !control.served.has(pool) {
            context.sleep_ns(POOL_LOOK_NS).await;
        }
    };
    let limit_ns = wait_seconds.saturating_mul(1_000_000_000);
    context.time_limit_ns(limit_ns, pin!(served)).await.map_err(|_| {
        Failure::new(format!("pool `{pool}` is not served after {wait_seconds} s"))
            .hint(format!("`stripewise pool status {pool}` says why"))
    })
}

/// True if the daemon has made the same mount before, which is the system's from now on. One that
/// was unmounted a moment ago ends first.
async fn is_there_already(control: &Control, asked: &Mount, wait_seconds: u64) -> Result<bool> {
    let folder = resolved(control.absolute(&asked.folder)).await;
    let all = control.served.mounts().all();
    let is_same = |mount: &&Rc<mount_list::Mount>| {
        let kept = mount.kept.borrow();
        let is_volume = kept.volume.as_ref() == asked.volume.as_ref().map(|name| &name.volume);
        let is_kind = kept.file_system == asked.file_system && kept.options == asked.options;
        is_volume && is_kind && kept.pool == asked.pool.0 && kept.folder == folder
    };
    let Some(same) = all.iter().find(is_same) else { return Ok(false) };
    until_tried(control, same).await;
    let mounted = what_is_mounted_at(&folder);
    let mounted = mounted.map_err(|error| Failure::because("cannot list mounts", &error))?;
    if same.is_mounted() && mounted.is_some() {
        same.kept.borrow_mut().is_of_system = true;
        return Ok(true);
    }
    let ended = async {
        while same.is_active.get() {
            control.served.mounts().changed().wait().await;
        }
    };
    let limit_ns = wait_seconds.saturating_mul(1_000_000_000);
    // If it does not end, the check of the folder says why.
    let _ = control.executor()?.context().time_limit_ns(limit_ns, pin!(ended)).await;
    Ok(false)
}

/// A path without links. It may be on a mounted file system, which this thread must not touch.
async fn resolved(path: PathBuf) -> PathBuf {
    let typed = path.clone();
    off_thread(move || std::fs::canonicalize(typed)).await.and_then(|found| found).unwrap_or(path)
}

/// Waits until a mount is there or has failed.
async fn until_tried(control: &Control, mount: &mount_list::Mount) {
    while matches!(*mount.state.borrow(), MountState::Waiting | MountState::Mounting) {
        control.served.mounts().changed().wait().await;
    }
}

/// Unmounts what is named by its target or its folder, and takes it off the record. Returns target
/// and folder.
pub(crate) async fn unmount(control: &Control, typed: &Path) -> Result<KeptMount> {
    let mounts = control.served.mounts();
    let folder = resolved(control.absolute(typed)).await;
    let mount = mounts.find(&typed.to_string_lossy(), &folder).ok_or_else(|| {
        Failure::of(Reason::Missing, format!("the daemon has mounted nothing at {}", typed.display()))
            .hint("`stripewise pool status` lists what is mounted")
    })?;
    let kept = mount.kept.borrow().clone();
    mount.is_commanded.set(true);
    if mount.is_mounted() {
        run_umount(&kept.folder).await.map_err(|failure| {
            mount.is_commanded.set(false);
            Failure::new(format!("{} stays mounted: {}", kept.target(), failure.message)).hint(format!(
                "`fuser -vm {}` lists the programs that use it; end them and repeat the command",
                kept.folder.display()
            ))
        })?;
    }
    mount.is_ending.set(true);
    mounts.forget(&mount);
    let ended = async {
        while mount.is_active.get() {
            mounts.changed().wait().await;
        }
    };
    let context = control.executor()?.context();
    if context.time_limit_ns(RELEASE_PATIENCE_NS, pin!(ended)).await.is_err() {
        control.warning(format!(
            "{} is unmounted, but its loop device is still in use: another mount namespace, such as a \
             container's, has a copy of the mount",
            kept.target()
        ));
    }
    record(control)?;
    Ok(kept)
}

/// Writes the list to the state folder.
fn record(control: &Control) -> Result<()> {
    let path = control.registry()?.kept_mounts_path();
    let mut text = serde_json::to_vec_pretty(&control.served.mounts().kept()).expect("plain data");
    text.push(b'\n');
    replace_file(&path, &text).map_err(|error| {
        Failure::because(format!("cannot record the mounts in {}", path.display()), &error)
            .hint("they are lost when the daemon ends")
    })
}

/// Starts a task for each mount that is due and whose pool is served.
fn start_due(control: &Control) -> Result<()> {
    let context = control.executor()?.context();
    for mount in control.served.mounts().all() {
        let is_due = match &*mount.state.borrow() {
            MountState::Waiting => true,
            MountState::Failed { again_ns, .. } => context.now_ns() >= *again_ns,
            MountState::Mounting | MountState::Mounted | MountState::Unmounted => false,
        };
        let pool = mount.kept.borrow().pool.clone();
        if !is_due || mount.is_active.get() || mount.is_ending.get() || !control.served.has(&pool) {
            continue;
        }
        mount.state.replace(MountState::Mounting);
        mount.is_active.set(true);
        let (control, mount) = (control.clone(), mount.clone());
        drop(context.spawn(async move { live(&control, &mount).await }));
    }
    Ok(())
}

/// The life of a mount, from mounting it to its end.
async fn live(control: &Control, mount: &Rc<mount_list::Mount>) {
    let kept = mount.kept.borrow().clone();
    let (target, folder) = (kept.target(), kept.folder.display().to_string());
    let result = mounted(control, mount, &kept).await;
    let (was_mounted, is_of_system) = (mount.is_mounted(), mount.kept.borrow().is_of_system);
    let is_by_system = is_of_system && result.as_ref().is_ok_and(|end| *end == End::Elsewhere);
    let state = match result {
        Ok(_) => MountState::Unmounted,
        Err(failure) => {
            let again_ns =
                control.executor().map_or(u64::MAX, |executor| executor.context().now_ns() + AGAIN_NS);
            let hint = failure.hint.map_or_else(String::new, |hint| format!("; hint: {hint}"));
            MountState::Failed { why: format!("{}{hint}", failure.message), again_ns }
        }
    };
    if was_mounted && !is_of_system && !mount.is_ending.get() && !mount.is_commanded.get() {
        let text = format!(
            "{target} was unmounted from {folder} by another process; `stripewise mount {target} {folder}` \
             mounts it again"
        );
        tell(control, Alert::new("mount", &text));
    }
    if let MountState::Failed { why, .. } = &state
        && mount.reported.replace(why.clone()) != *why
    {
        control.warning(format!("{target} is not mounted at {folder}: {why}"));
    }
    mount.state.replace(state);
    mount.is_active.set(false);
    if is_by_system {
        tracing::info!(target: "daemon", "{target} was unmounted from {folder}");
        mount.is_forgotten.set(true);
    }
    control.served.mounts().note_end(mount);
    if is_by_system && let Err(failure) = record(control) {
        control.warning(failure.message);
    }
}

/// Unmounts what a killed daemon left at the folder of a mount; it serves nothing any more. A
/// failure shows when the folder is checked.
async fn remove_dead_mount(control: &Control, kept: &KeptMount) -> Result<()> {
    let mounted = what_is_mounted_at(&kept.folder)
        .map_err(|error| Failure::because("cannot list mounts", &error))?
        .unwrap_or_default();
    let source = mounted.split(' ').next().unwrap_or_default();
    let is_ours = match kept.file_system {
        None => mounted.starts_with("stripewise:"),
        Some(_) => backing_file(source).is_some_and(|file| {
            let folder = control.registry().map(|registry| registry.mounts_path());
            // As the kernel names it, without links.
            let folder = folder.ok().and_then(|folder| std::fs::canonicalize(folder).ok());
            folder.is_some_and(|folder| file.starts_with(folder))
        }),
    };
    if is_ours {
        let _ = run_umount(&kept.folder).await;
    }
    Ok(())
}

/// Unmounts a folder.
async fn run_umount(folder: &Path) -> Result<String> {
    match running_as_root() {
        true => run("umount", UTIL_LINUX, &[folder.as_os_str()]).await,
        false => run("fusermount3", "fuse3", &["-u".as_ref(), folder.as_os_str()]).await,
    }
}

/// Origin of the end of a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The daemon unmounted it.
    Here,
    /// Another process unmounted it.
    Elsewhere,
}

impl End {
    fn of(is_gone: bool) -> Self {
        if is_gone { Self::Elsewhere } else { Self::Here }
    }
}

/// Mounts, waits for the end, and unmounts.
async fn mounted(control: &Control, mount: &Rc<mount_list::Mount>, kept: &KeptMount) -> Result<End> {
    let mounts = control.served.mounts();
    remove_dead_mount(control, kept).await?;
    let folder: PathBuf = free_folder_at(kept.folder.clone()).await?;
    let begin = || {
        mount.state.replace(MountState::Mounted);
        mounts.note_change();
        tracing::info!(target: "daemon", "{} is mounted at {}", kept.target(), folder.display());
    };
    let until_ending = async {
        while !mount.is_ending.get() {
            mounts.changed().wait().await;
        }
    };
    if let (Some(volume), Some(kind)) = (&kept.volume, kept.file_system) {
        let volume = VolumeName { pool: kept.pool.clone(), volume: volume.clone() };
        refuse_if_used(&control.registry()?, &format!("mount {volume}"), &volume.pool, Some(&volume.volume))?;
        let session = Session::served(control, &volume.pool)
            .ok_or_else(|| Failure::new(format!("pool `{}` is not served", volume.pool)))?;
        let size_bytes = find_volume(session.report(), &volume)?.capacity_bytes;
        drop(session);
        let wanted = Wanted { volume: &volume, size_bytes, kind, folder: &folder, options: &kept.options };
        let end = Cell::new(End::Here);
        let work = async || {
            begin();
            select(pin!(until_ending), pin!(wanted.until_unmounted(control))).await;
            end.set(End::of(!wanted.is_mounted()?));
            Ok(())
        };
        wanted.mounted(control, work).await?;
        return Ok(end.get());
    }
    let fuse = mount_fuse(control, Tree::Volumes(kept.pool.clone()), &folder)?;
    begin();
    let until_not_served = async {
        let context = control.executor()?.context();
        while control.served.has(&kept.pool) {
            context.sleep_ns(LOOK_NS).await;
        }
        Ok::<(), Failure>(())
    };
    let (until_ending, until_not_served) = (pin!(until_ending), pin!(until_not_served));
    select(pin!(fuse.until_ended()), select(until_ending, until_not_served)).await;
    let end = End::of(fuse.has_ended());
    unmount_fuse(control, &fuse, &folder, END_WITHIN_SECONDS).await?;
    Ok(end)
}
