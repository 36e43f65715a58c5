//! An open pool for the time of one command: found through the list of pools, locked against other
//! processes, its drives opened (and held to their pace), jobs watched, and in the end closed and
//! its drives' places remembered.
//!
//! Expected faults: drives that are gone or in use, a pool in use, files removed under a running
//! job, a command that ends in an error half-way (the pool is closed all the same).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use stripewise_drive::{BufferPool, Drive};
use stripewise_engine::pool::{DriveStatus, OpenMode, Pool, PoolError, PoolOptions, inspect};
use stripewise_export::Hold;
use stripewise_export::nbd::client::NetworkDrive;
use stripewise_runtime::{FileDrive, OpenOptions, RealExecutor};

use crate::access::Access;
use crate::control::Control;
use crate::drives::candidates::Candidate;
use crate::drives::contents::refuse_contents;
use crate::drives::known::{KnownDrives, open_known, pool_id};
use crate::drives::network::{self, Returning};
use crate::drives::opened::{OpenedDrive, pool_options};
use crate::drives::trouble::Trouble;
use crate::failure::{Failure, Result, pool_failure};
use crate::names::VolumeName;
use crate::pools::open_pool::OpenPool;
use crate::pools::stacked::Stack;
use crate::pools::status_file::StatusFile;
use crate::registry::stacking::refuse_circle;
use crate::registry::{KnownPool, PoolLock, Registry};
use crate::report::{PoolReport, VolumeReport};
use crate::times::unix_ms;

/// Memory of returned buffers kept for reuse.
const RETAINED_BYTES: usize = 64 << 20;
/// How often others can read how a long job stands, and drives are looked after.
const WATCH_NS: u64 = 1_000_000_000;

/// The volume of that name in a report.
pub fn find_volume(report: PoolReport, name: &VolumeName) -> Result<VolumeReport> {
    let volumes = report.volumes;
    let known: Vec<String> = volumes.iter().map(|volume| volume.name.clone()).collect();
    volumes.into_iter().find(|volume| volume.name == name.volume).ok_or_else(|| {
        Failure::missing(format!("pool `{}` has no volume `{}`", name.pool, name.volume)).hint(
            match known.as_slice() {
                [] => "it has no volumes yet".to_owned(),
                _ => format!("it has {}", known.join(", ")),
            },
        )
    })
}

/// A pool as a command uses it: opened for that command alone and closed by it, or lent by the
/// process that serves it.
pub struct Session {
    /// The pool.
    pub pool: Pool,
    control: Control,
    open: Rc<OpenPool>,
    /// Where the pools below are, and those of drives to come; of the outermost pool only.
    stack: Option<Rc<Stack>>,
    lent: bool,
    /// While this opens drives that are none of the pool's yet.
    brings: RefCell<Option<Rc<()>>>,
    /// Those of them that are volumes: no client opens them meanwhile.
    holds: RefCell<Vec<Hold>>,
}

/// Opens a known pool, does `work` and closes it again, also after an error.
pub async fn with_pool<T>(
    control: &Control,
    name: &str,
    access: Access,
    doing: &str,
    work: impl AsyncFnOnce(&Session) -> Result<T>,
) -> Result<T> {
    Session::open(control, name, access, doing).await?.work_and_close(work).await
}

/// As [`with_pool`], to read the contents of volumes: a pool that was not closed is recovered
/// first. Where that cannot be done (drives are missing, or cannot be written) it is done in
/// memory, for this command alone.
pub async fn with_pool_to_read<T>(
    control: &Control,
    name: &str,
    doing: &str,
    work: impl AsyncFnOnce(&Session) -> Result<T>,
) -> Result<T> {
    let mut session = Session::open(control, name, Access::Look, doing).await?;
    if session.can_be_recovered().await {
        session.close().await?;
        if let Ok(recovering) = Session::open(control, name, Access::Change, doing).await {
            recovering.close().await?;
            control.note(format!("pool {name} was not closed; what its journals hold was put in place"));
        }
        session = Session::open(control, name, Access::Look, doing).await?;
    }
    session.work_and_close(work).await
}

impl Session {
    /// Whether a crash left something in the pool's journals, and all drives are there to put it in
    /// place.
    async fn can_be_recovered(&self) -> bool {
        let is_there = |drive: &DriveStatus| drive.state.takes_part();
        self.pool.status().drives.iter().all(is_there) && self.pool.recover_in_memory().await
    }

    async fn work_and_close<T>(self, work: impl AsyncFnOnce(&Session) -> Result<T>) -> Result<T> {
        let result = work(&self).await;
        let closed = self.close().await;
        // The first error is the one that explains the other.
        let value = result?;
        closed?;
        Ok(value)
    }

    /// Opens a known pool, and those below it; one that this process serves, or is about to, is
    /// lent.
    pub async fn open(control: &Control, name: &str, access: Access, doing: &str) -> Result<Self> {
        control.served.until_come(name).await;
        if let Some(session) = control.served.lend(name, control) {
            return Ok(session);
        }
        Self::open_here(control, name, access, doing).await
    }

    /// Opens a known pool, and those below it, for this process to serve; no other task does so
    /// meanwhile (`Served::comes`).
    pub(crate) async fn open_to_serve(control: &Control, name: &str, doing: &str) -> Result<Self> {
        Self::open_here(control, name, Access::Change, doing).await
    }

    async fn open_here(control: &Control, name: &str, access: Access, doing: &str) -> Result<Self> {
        let registry = control.registry()?;
        let known = registry.pool(name)?;
        let stack = Stack::new(control, doing)?;
        match stack.open_pool(registry, known, access).await {
            Ok(session) => Ok(Session { stack: Some(Rc::new(stack)), ..session }),
            Err(trouble) => {
                // What went wrong above explains whatever goes wrong now.
                let _ = stack.close().await;
                Err(trouble.failure())
            }
        }
    }

    /// Opens a pool whose lock is taken.
    pub(crate) async fn open_locked(
        stack: &Stack,
        registry: Registry,
        known: KnownPool,
        access: Access,
        lock: PoolLock,
    ) -> std::result::Result<Self, Trouble> {
        let (control, name, opened_unix_ms) = (stack.control(), known.name.clone(), unix_ms());
        if access == Access::Change {
            // What a killed process left.
            let _ = std::fs::remove_file(registry.status_path(&known.id));
        }
        let KnownDrives { opened, misplaced, used_by } = open_known(stack, &registry, &known, access).await?;
        let executor = stack.executor().clone();
        let drives: Vec<Rc<dyn Drive>> = opened.iter().map(|opened| opened.drive.clone()).collect();
        let mode = match access {
            Access::Look => OpenMode::ReadOnly,
            Access::Change => OpenMode::ReadWrite,
        };
        let (context, buffers) = (executor.context(), BufferPool::new(RETAINED_BYTES));
        let options = PoolOptions {
            pool_id: Some(pool_id(&known)?),
            take_rolled_back: stack.is_forced(&known.id),
            take_from_host: stack.is_forced(&known.id),
            ..pool_options(&opened)
        };
        let opening = Pool::open(&context, &buffers, drives, mode, options);
        let pool = opening.await.map_err(|error| {
            let failure = pool_failure(format!("cannot open pool `{name}`"), &error);
            match error {
                PoolError::OtherHost { .. } => Trouble::Stop(failure),
                _ => Trouble::Missing(failure),
            }
        })?;
        // A command that renamed it may have been cut short between the list and the drives.
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
        let open = OpenPool {
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
            bringing: Rc::default(),
            stays: Cell::new(false),
            fetches_back: Cell::new(false),
            _lock: lock,
        };
        let session = Session {
            pool,
            control: control.clone(),
            open: Rc::new(open),
            stack: None,
            lent: false,
            brings: RefCell::default(),
            holds: RefCell::default(),
        };
        if access == Access::Change {
            session.spawn_watch();
        }
        Ok(session)
    }

    /// The same pool for a command of somebody else's, who does not close it.
    pub fn lend(&self, control: &Control) -> Self {
        Self {
            pool: self.pool.clone(),
            control: control.clone(),
            open: self.open.clone(),
            stack: self.stack.clone(),
            lent: true,
            brings: RefCell::default(),
            holds: RefCell::default(),
        }
    }

    /// Whether the pool was open before this session and stays open after it.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Lets go of drives that are lost, so that what is there now can be opened.
    pub(crate) fn forget_vanished(&self) {
        self.open.opened.borrow_mut().retain(|opened| opened.lost().is_none());
    }

    /// Whether a pool with exports among its drives can only go on when it is reopened: no drive
    /// is left.
    pub(crate) fn is_stranded(&self) -> bool {
        !self.exports().is_empty() && self.pool.status().drives.iter().all(|drive| !drive.state.takes_part())
    }

    /// From now on a daemon keeps it open: what helps it on is said accordingly.
    pub(crate) fn stays_open(&self) {
        self.open.stays.set(true);
    }

    /// Whether the pool can be opened by any process: no session of it is left, so its lock is
    /// free, and its files and devices are closed.
    pub(crate) fn let_go(&self) -> impl Fn() -> bool + use<> {
        let open = Rc::downgrade(&self.open);
        let opened = self.open.opened.borrow();
        let files: Vec<Weak<FileDrive>> =
            opened.iter().filter_map(|opened| opened.file.as_ref().map(Rc::downgrade)).collect();
        move || open.strong_count() == 0 && files.iter().all(|file| file.strong_count() == 0)
    }

    /// Its drives that are exports.
    pub fn exports(&self) -> Vec<Rc<NetworkDrive>> {
        self.open.opened.borrow().iter().filter_map(|opened| opened.network.clone()).collect()
    }

    /// The pool as it is on the list.
    pub fn known(&self) -> KnownPool {
        self.open.known.borrow().clone()
    }

    /// The pool's name, as it is known here.
    pub fn name(&self) -> &str {
        &self.open.name
    }

    /// Begins the pool's jobs, and those of the pools below.
    pub fn start_jobs(&self) {
        self.pool.start_jobs();
        self.start_jobs_below();
        self.fetch_back();
    }

    /// For as long as the pool is open, exports that went are tried to be had back.
    fn fetch_back(&self) {
        if self.open.fetches_back.replace(true) {
            return;
        }
        let (control, executor, pool) = (self.control.clone(), self.open.executor.clone(), self.pool.clone());
        let (context, open) = (executor.context(), Rc::downgrade(&self.open));
        let fetching = async move {
            let mut returning = Returning::default();
            loop {
                executor.context().sleep_ns(WATCH_NS).await;
                if open.strong_count() == 0 {
                    return;
                }
                let due = returning.due(&pool.status().drives, executor.context().now_ns());
                for (id, uri, under_way) in due {
                    under_way.replace(true);
                    let (control, executor, pool, open) =
                        (control.clone(), executor.clone(), pool.clone(), open.clone());
                    drop(executor.clone().context().spawn(async move {
                        let keep = |opened: OpenedDrive| {
                            let Some(open) = open.upgrade() else { return };
                            let mut all = open.opened.borrow_mut();
                            all.retain(|other| other.lost().is_none() && other.identity != opened.identity);
                            all.push(opened);
                        };
                        network::fetch(&control, &executor, &pool, id, &uri, keep).await;
                        under_way.replace(false);
                    }));
                }
            }
        };
        drop(context.spawn(fetching));
    }

    /// Begins the jobs of the pools below: whoever has a pool open for long works on them.
    pub(crate) fn start_jobs_below(&self) {
        self.stack.iter().for_each(|stack| stack.start_jobs());
    }

    /// The executor.
    pub fn executor(&self) -> &RealExecutor {
        &self.open.executor
    }

    /// How the pool is.
    pub fn report(&self) -> PoolReport {
        let mut report = self.open.report(&self.pool);
        // A pool that is only looked at has no jobs of its own; what a crash left open is due all
        // the same.
        let names: Vec<String> = report.volumes.iter().map(|volume| volume.name.clone()).collect();
        for name in names {
            if self.pool.volume(&name).is_ok_and(|volume| volume.needs_resync()) {
                report.add_resync(&name);
            }
        }
        report
    }

    /// How the pool stands at this moment, as it is left for others.
    pub fn word(&self) -> StatusFile {
        StatusFile::of(&self.pool, self.report(), self.open.opened_unix_ms)
    }

    /// Refuses to read what another process may be changing.
    pub(crate) fn refuse_if_used_elsewhere(&self) -> Result<()> {
        match &self.open.used_by {
            None => Ok(()),
            Some(user) => Err(Failure::new(format!("pool `{}` is in use by {user}", self.name()))
                .hint("end that process, or give it commands with its own STRIPEWISE_HOME")),
        }
    }

    /// When it was opened by this process.
    pub fn opened_unix_ms(&self) -> u64 {
        self.open.opened_unix_ms
    }

    /// Tells the user what the pool has to say.
    pub fn show_notices(&self) {
        for notice in self.pool.notices() {
            self.control.warning(notice);
        }
    }

    /// One volume as it is now.
    pub(crate) fn volume_report(&self, name: &VolumeName) -> Result<VolumeReport> {
        find_volume(self.report(), name)
    }

    /// A drive that is to come into the pool: the one opened already, or newly opened. What it
    /// holds is refused, unless it is to be overwritten.
    pub(crate) async fn open_new_drive(&self, candidate: &Candidate, force: bool) -> Result<OpenedDrive> {
        let known =
            self.open.opened.borrow().iter().find(|opened| opened.identity == candidate.identity).cloned();
        let opened = match known {
            Some(opened) => opened,
            None => {
                if let Some(volume) = candidate.volume() {
                    refuse_circle(&self.open.registry, self.name(), volume)?;
                    let what = format!("use `{volume}` as a drive of pool `{}`", self.name());
                    let held = self.control.served.hold(&what, &volume.pool, Some(&volume.volume))?;
                    self.holds.borrow_mut().push(held);
                }
                self.brings.replace(Some(self.open.bringing.clone()));
                let stack = self.stack.as_ref().expect("drives come into the outermost pool");
                let opened = stack.open(candidate, Access::Change, &OpenOptions::default()).await?;
                self.open.opened.borrow_mut().push(opened.clone());
                opened
            }
        };
        // A drive of this very pool that was left out may come back: the engine knows whether it
        // may be overwritten.
        let label = inspect(&*opened.bare).await;
        if !matches!(&label, Ok(Some(label)) if label.pool_id == self.pool.id()) {
            refuse_contents(&self.control, candidate, &opened, force).await?;
        }
        Ok(opened)
    }

    /// Closes the pool and remembers where its drives are; then the pools below. One that was lent
    /// stays open.
    pub async fn close(mut self) -> Result<()> {
        if self.lent {
            self.brings.take();
            self.open.let_go_of_strangers(&self.pool);
            // Whatever ends this process: the next one finds the drives that came in.
            return self.open.remember_drives(&self.pool).await;
        }
        let stack = self.stack.take();
        let closed = self.close_this().await;
        // Its lock outlives those below.
        closed.and(match stack {
            Some(stack) => stack.close().await,
            None => Ok(()),
        })
    }

    async fn close_this(&self) -> Result<()> {
        let OpenPool { registry, name, id, access, .. } = &*self.open;
        let closed = self.pool.close().await;
        if *access == Access::Look {
            return closed.map_err(|error| pool_failure(format!("cannot close pool `{name}`"), &error));
        }
        // Best effort: it was for others to read while the pool was open.
        let _ = std::fs::remove_file(registry.status_path(id));
        closed.map_err(|error| pool_failure(format!("cannot close pool `{name}`"), &error))?;
        self.open.remember_drives(&self.pool).await
    }

    /// Erases the pool from its drives and the list; one that was lent is served no more.
    pub async fn destroy(mut self) -> Result<()> {
        if self.lent {
            self.control.served.end(self.name());
        }
        let stack = self.stack.take();
        let destroyed = self.destroy_this().await;
        destroyed.and(match stack {
            Some(stack) => stack.close().await,
            None => Ok(()),
        })
    }

    async fn destroy_this(&self) -> Result<()> {
        let OpenPool { registry, name, id, .. } = &*self.open;
        let destroyed = self.pool.destroy().await;
        destroyed.map_err(|error| pool_failure(format!("cannot erase all of pool `{name}`"), &error))?;
        let _ = std::fs::remove_file(registry.status_path(id));
        registry.forget(&self.open.executor.context(), id).await
    }

    /// While the pool is open: leaves word for `pool status` how it stands, and finds out when a
    /// drive's file is removed (requests to a removed file would still succeed) or its server is
    /// out of reach.
    fn spawn_watch(&self) {
        let pool = self.pool.clone();
        let context = self.open.executor.context();
        let open = Rc::downgrade(&self.open);
        let path = self.open.registry.status_path(&self.open.id);
        let opened_unix_ms = self.open.opened_unix_ms;
        let watch = async move {
            loop {
                let Some(now) = open.upgrade().map(|open| open.report(&pool)) else { return };
                StatusFile::of(&pool, now, opened_unix_ms).leave(&path);
                context.sleep_ns(WATCH_NS).await;
                let Some(open) = open.upgrade() else { return };
                // Where it cannot be written now, it is tried again.
                let _ = open.remember_drives(&pool).await;
                open.leave_out_vanished(&pool).await;
            }
        };
        drop(self.open.executor.context().spawn(watch));
    }
}
