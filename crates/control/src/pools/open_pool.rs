//! A pool that this process has open, under its lock: opening it from its known drives, monitoring
//! it, closing it. All sessions of the pool share it.
//!
//! Expected faults: drives that are missing, vanish, or are replaced by something else, files
//! removed under a running job, a full file system below.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use stripewise_drive::{BufferPool, Drive};
use stripewise_pool::{
    DriveId, DriveState, DriveStatus, Id, OfDestroyed, OpenMode, Pool, PoolError, PoolOptions, usable_bytes,
};
use stripewise_runtime::{Holder, RealExecutor};

use crate::access::Access;
use crate::drives::known::{KnownDrives, open_known, pool_id};
use crate::drives::looks::Looks;
use crate::drives::misplaced::{Holds, Misplaced};
use crate::drives::network::{self, Returning};
use crate::drives::opened::{OpenedDrive, look_at_paths, pool_options};
use crate::drives::opener::{DriveOpener, Volumes};
use crate::drives::space_below::note_full_below;
use crate::drives::trouble::Trouble;
use crate::environment::Environment;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::report::PoolReport;
use crate::notation::size::ByteSize;
use crate::notation::times::unix_ms;
use crate::pools::standstill::advise;
use crate::pools::status_file::StatusFile;
use crate::registry::this_host::this_host;
use crate::registry::{KnownDrive, KnownPool, PoolLock, Registry};

/// Memory of returned buffers kept for reuse.
const RETAINED_BYTES: usize = 64 << 20;
/// Interval at which the status file is written and drives are checked.
const WATCH_NS: u64 = 1_000_000_000;

/// Parameters for opening a known pool.
pub(super) struct Opening {
    pub(super) registry: Registry,
    pub(super) known: KnownPool,
    pub(super) access: Access,
    /// Take the pool from the host that has it, and count drives that were restored from older
    /// copies.
    pub(super) is_forced: bool,
    /// Treatment of the pool if it is destroyed.
    pub(super) destroyed: OfDestroyed,
    /// The last session under which this process had the pool open; it has ended.
    pub(super) ended_session: Option<Id>,
    pub(super) lock: PoolLock,
}

/// A pool that this process has open.
pub(crate) struct OpenPool {
    pub(super) pool: Pool,
    pub(super) registry: Registry,
    pub(super) name: String,
    pub(super) id: String,
    /// Its entry in the registry.
    pub(super) known: RefCell<KnownPool>,
    pub(super) access: Access,
    pub(super) opened_unix_ms: u64,
    /// All drives opened, including those that the pool does not use.
    pub(super) opened: RefCell<Vec<OpenedDrive>>,
    /// Paths at which a drive of the pool is expected and something else is.
    pub(super) misplaced: Vec<Misplaced>,
    /// A process with another registry that has drives of the pool open. Only set for
    /// [`Access::Look`].
    pub(super) used_by: Option<Holder>,
    pub(super) executor: Rc<RealExecutor>,
    looks: Rc<Looks>,
    /// Shared with sessions that are adding drives.
    pub(super) bringing: Rc<()>,
    /// Drives that sessions opened to add them.
    pub(super) brought: RefCell<Vec<Rc<dyn Drive>>>,
    /// Kept open by a daemon.
    pub(super) stays: Cell<bool>,
    /// Set once lost exports are being reconnected: lent sessions start jobs, too.
    pub(super) fetches_back: Cell<bool>,
    _lock: PoolLock,
}

impl OpenPool {
    /// Opens a pool whose lock is taken.
    pub(super) async fn open<V: Volumes>(
        opener: &DriveOpener<'_, V>,
        opening: Opening,
    ) -> std::result::Result<Rc<Self>, Trouble> {
        let Opening { registry, known, access, is_forced, destroyed, ended_session, lock } = opening;
        let (name, opened_unix_ms) = (known.name.clone(), unix_ms());
        if access == Access::Change {
            // A killed process may have left it.
            let _ = std::fs::remove_file(registry.status_path(&known.id));
        }
        let found = open_known(opener, &registry, &known, access).await?;
        let KnownDrives { opened, misplaced, used_by } = found;
        let executor = opener.executor.clone();
        let drives: Vec<Rc<dyn Drive>> = opened.iter().map(|opened| opened.drive.clone()).collect();
        let mode = match access {
            Access::Look => OpenMode::ReadOnly,
            Access::Change => OpenMode::ReadWrite,
        };
        let (context, buffers) = (executor.context(), BufferPool::new(RETAINED_BYTES));
        let options = PoolOptions {
            pool_id: Some(pool_id(&known)?),
            take_rolled_back: is_forced,
            take_from_host: is_forced,
            destroyed,
            ended_session,
            ..pool_options(&opened)
        };
        let opening = Pool::open(&context, &buffers, drives, mode, options);
        let pool = opening.await.map_err(|error| {
            let failure = pool_failure(format!("cannot open pool `{name}`"), &error);
            match error {
                PoolError::OtherHost { .. } | PoolError::InUse { .. } => Trouble::Stop(failure),
                _ => Trouble::Missing(failure),
            }
        })?;
        // An interrupted rename may have changed the registry only.
        if access == Access::Change && pool.name() != name {
            let renamed = pool.rename(&name).await;
            renamed.map_err(|error| {
                Trouble::Missing(pool_failure(
                    format!("cannot rename pool `{}` to `{name}`", pool.name()),
                    &error,
                ))
            })?;
        }
        let (id, known) = (known.id.clone(), RefCell::new(known));
        let open = Rc::new(Self {
            pool,
            registry,
            name,
            id,
            known,
            access,
            opened_unix_ms,
            opened: RefCell::new(opened),
            misplaced,
            used_by,
            executor,
            looks: opener.environment.looks().clone(),
            bringing: Rc::default(),
            brought: RefCell::default(),
            stays: Cell::new(false),
            fetches_back: Cell::new(false),
            _lock: lock,
        });
        if access == Access::Change {
            open.spawn_watch();
        }
        Ok(open)
    }

    /// While the pool is open: writes the status file for `pool status`, and detects drives whose
    /// file was removed (requests to a removed file would still succeed) or whose server is
    /// unreachable.
    fn spawn_watch(self: &Rc<Self>) {
        let (context, open) = (self.executor.context(), Rc::downgrade(self));
        let path = self.registry.status_path(&self.id);
        let watch = async move {
            loop {
                let word = open.upgrade().map(|open| open.word());
                let Some(word) = word else { return };
                word.leave(&path);
                context.sleep_ns(WATCH_NS).await;
                let Some(open) = open.upgrade() else { return };
                open.look_at_drives().await;
                // A failed write is retried in the next round.
                let _ = open.remember_drives().await;
                open.leave_out_vanished().await;
            }
        };
        drop(self.executor.context().spawn(watch));
    }

    /// While the pool is open, tries to reconnect lost exports.
    pub(super) fn fetch_back(self: &Rc<Self>, environment: &Environment) {
        if self.fetches_back.replace(true) {
            return;
        }
        let (environment, executor, pool) = (environment.clone(), self.executor.clone(), self.pool.clone());
        let (context, open) = (executor.context(), Rc::downgrade(self));
        let fetching = async move {
            let mut returning = Returning::default();
            loop {
                executor.context().sleep_ns(WATCH_NS).await;
                if open.strong_count() == 0 {
                    return;
                }
                let due = returning.due(&pool.status().drives, executor.context().now_ns());
                for (id, uri, in_flight) in due {
                    in_flight.replace(true);
                    let (environment, executor, pool, open) =
                        (environment.clone(), executor.clone(), pool.clone(), open.clone());
                    drop(executor.clone().context().spawn(async move {
                        let keep = |opened: OpenedDrive| {
                            let Some(open) = open.upgrade() else { return };
                            let mut all = open.opened.borrow_mut();
                            all.retain(|other| other.lost().is_none() && other.identity != opened.identity);
                            all.push(opened);
                        };
                        network::fetch(&environment, &executor, &pool, id, &uri, keep).await;
                        in_flight.replace(false);
                    }));
                }
            }
        };
        drop(context.spawn(fetching));
    }

    /// Closes the pool and records its drives' paths.
    pub(crate) async fn close(&self) -> Result<()> {
        let closed = self.pool.close().await;
        let cannot_close = |error| pool_failure(format!("cannot close pool `{}`", self.name), &error);
        if self.access == Access::Look {
            return closed.map_err(cannot_close);
        }
        // Best effort: the status file is only read while the pool is open.
        let _ = std::fs::remove_file(self.registry.status_path(&self.id));
        closed.map_err(cannot_close)?;
        self.remember_drives().await
    }

    /// Takes the pool off the registry and marks its drives as those of a destroyed pool, or, with
    /// `wipe`, erases it from them.
    pub(super) async fn destroy(&self, wipe: bool) -> Result<()> {
        let (ended, what) = match wipe {
            true => (self.pool.erase().await, "cannot erase all of pool"),
            false => (self.pool.destroy().await, "cannot record on all drives the end of pool"),
        };
        ended.map_err(|error| pool_failure(format!("{what} `{}`", self.name), &error))?;
        let _ = std::fs::remove_file(self.registry.status_path(&self.id));
        self.registry.forget(&self.executor.context(), &self.id).await
    }

    /// Fails if another process may be changing the pool.
    pub(super) fn refuse_if_used_elsewhere(&self) -> Result<()> {
        match &self.used_by {
            None => Ok(()),
            Some(user) => Err(Failure::new(format!("pool `{}` is in use by {user}", self.name))
                .hint("stop that process, or send it commands with its own STRIPEWISE_HOME")),
        }
    }

    /// Closes drives that are not (or no longer) in the pool, so that others can use them. While a
    /// session is adding drives this is left to it.
    pub(super) fn let_go_of_strangers(&self) {
        if Rc::strong_count(&self.bringing) > 1 {
            return;
        }
        let (status, brought) = (self.pool.status(), self.brought.take());
        let is_ours = |opened: &OpenedDrive| {
            let label = &opened.bare.info().label;
            let of_path = status.drives.iter().find(|drive| **label == *drive.path);
            // A drive that was refused may be at the path of one that is missing.
            let is_new = brought.iter().any(|new| Rc::ptr_eq(new, &opened.bare));
            of_path
                .is_some_and(|drive| !is_new || drive.state.takes_part() || drive.state == DriveState::Behind)
        };
        self.opened.borrow_mut().retain(is_ours);
    }

    /// The pool's report, with the next step.
    pub(super) fn report(&self) -> PoolReport {
        let mut report = PoolReport::from(&self.pool.status());
        if self.pool.full_drive().is_none() {
            let opened = self.opened.borrow();
            let full = opened.iter().filter(|opened| opened.is_full_below());
            let files = full.filter_map(|opened| opened.file.as_ref()).map(|file| file.path());
            note_full_below(&mut report, files);
        }
        if self.stays.get() {
            advise(&self.pool, &mut report);
        }
        self.misplaced.iter().for_each(|misplaced| note_misplaced(&mut report, misplaced));
        self.note_larger(&mut report);
        report.in_use = self.access == Access::Change;
        match (&self.used_by, self.pool.host()) {
            (Some(user), _) => report.note_user(user),
            (None, Some(host)) if host.is_other(&this_host()) && !report.in_use => report.note_host(&host),
            (None, _) => {}
        }
        report
    }

    /// Drives that have more space for slabs now than when they joined.
    pub(super) fn larger_drives(&self) -> Vec<(DriveId, Rc<dyn Drive>)> {
        let (status, opened) = (self.pool.status(), self.opened.borrow());
        let is_larger = |drive: &DriveStatus, now: &OpenedDrive| {
            let capacity_bytes = now.drive.info().capacity_bytes;
            drive.state.takes_part() && usable_bytes(capacity_bytes, status.slab_bytes) > drive.usable_bytes
        };
        let larger = opened.iter().filter_map(|opened| {
            let drive = status.drives.iter().find(|drive| Some(drive.id) == opened.says)?;
            is_larger(drive, opened).then(|| (drive.id, opened.drive.clone()))
        });
        larger.collect()
    }

    /// Notes drives that became larger.
    fn note_larger(&self, report: &mut PoolReport) {
        for (id, now) in self.larger_drives() {
            let Some(drive) = report.drives.iter().find(|drive| drive.id == id.to_string()) else { continue };
            report.notices.push(format!(
                "{} has grown from {} to {}; `stripewise pool grow {}` uses the new space",
                drive.path,
                ByteSize(drive.capacity_bytes),
                ByteSize(now.info().capacity_bytes),
                report.name
            ));
        }
    }

    /// The status file's contents.
    fn word(&self) -> StatusFile {
        StatusFile::of(&self.pool, self.report(), self.opened_unix_ms)
    }

    /// Looks whether the drives are still at their paths.
    pub(super) async fn look_at_drives(&self) {
        let opened = self.opened.borrow().clone();
        look_at_paths(&self.executor.context(), &self.looks, &opened).await;
    }

    /// Lost drives: label, reason, and whether the loss came from truncation.
    fn vanished(&self) -> Vec<(Arc<str>, String, bool)> {
        let opened = self.opened.borrow();
        let label = |opened: &OpenedDrive| opened.bare.info().label.clone();
        let vanished = |opened: &OpenedDrive| Some((label(opened), opened.lost()?, opened.is_cut()));
        opened.iter().filter_map(vanished).collect()
    }

    /// Takes lost drives offline that the pool still counts as present.
    async fn leave_out_vanished(&self) {
        for (label, why, is_cut) in self.vanished() {
            let status = self.pool.status();
            // Another drive may now be at the path of a missing one.
            let of_label = |drive: &&DriveStatus| *drive.path == *label && drive.state.takes_part();
            let Some(drive) = status.drives.iter().find(of_label) else { continue };
            // The drive may have been reopened in the meantime.
            if self.vanished().iter().any(|(lost, ..)| *lost == label) {
                // A failure to record it is not final: the next request to the drive records it.
                let _ = match is_cut {
                    true => self.pool.drive_cut(drive.id, &why).await,
                    false => self.pool.drive_vanished(drive.id, &why).await,
                };
            }
        }
    }

    /// Records the drives' current paths in the registry.
    pub(super) async fn remember_drives(&self) -> Result<()> {
        if self.access == Access::Look {
            return Ok(());
        }
        let status = self.pool.status();
        let known =
            |drive: &DriveStatus| KnownDrive { id: drive.id.to_string(), path: PathBuf::from(&drive.path) };
        let now = KnownPool {
            name: self.name.clone(),
            id: self.id.clone(),
            drives: status.drives.iter().map(known).collect(),
        };
        let is_known = *self.known.borrow() == now;
        if !is_known {
            self.registry.remember(&self.executor.context(), now.clone()).await?;
            self.known.replace(now);
        }
        Ok(())
    }
}

/// Adds to a report what was found at the path of a missing drive, and the next step.
fn note_misplaced(report: &mut PoolReport, Misplaced { path, holds }: &Misplaced) {
    let place = path.display().to_string();
    let is_here = |drive: &crate::messages::report::DriveReport| drive.path == place;
    if report.drives.iter().any(|drive| is_here(drive) && drive.state.takes_part()) {
        return;
    }
    let Some(missing) = report.drives.iter_mut().find(|drive| is_here(drive)) else { return };
    missing.reason = Some(format!("{place} {holds}"));
    report.condition += &format!("; {place} {holds}");
    // A blank drive at the path of a missing one is most likely its replacement.
    let asks_for_it = format!("stripewise pool replace {} {} NEW-DRIVE", report.name, missing.id);
    if *holds == Holds::Nothing && report.action == asks_for_it {
        report.action = format!("stripewise pool replace {} {} {place}", report.name, missing.id);
    }
}
