//! A pool opened for one command: found in the registry and opened for it, or lent by the process
//! that serves it; in the end closed, or given back.
//!
//! Expected faults: a pool in use, a command that fails half-way (the pool is closed all the same).

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::{Rc, Weak};

use stripewise_drive::Drive;
use stripewise_export::Hold;
use stripewise_export::nbd::client::NetworkDrive;
use stripewise_pool::{DriveId, DriveStatus, OfDestroyed, Pool, inspect};
use stripewise_runtime::{FileDrive, OpenOptions, RealExecutor, drive_identity};

use crate::access::Access;
use crate::control::Control;
use crate::drives::candidates::{Candidate, Identity};
use crate::drives::contents::refuse_contents;
use crate::drives::opened::OpenedDrive;
use crate::drives::rights::refuse_foreign_path;
use crate::failure::{Failure, Result};
use crate::messages::report::hardware;
use crate::messages::report::{PoolReport, VolumeReport};
use crate::notation::names::VolumeName;
use crate::pools::pool_stack::PoolStack;
use crate::pools::stacked::StackOpener;
use crate::pools::status_file::StatusFile;
use crate::registry::KnownPool;
use crate::registry::stacking::refuse_circle;

/// Finds the volume of that name in a report.
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

/// The failure to open a new drive. If the drive is one of a pool that a process has open, it names
/// that pool.
pub(crate) async fn not_opened(control: &Control, candidate: &Candidate, failure: Failure) -> Failure {
    let Identity::Drive(identity) = candidate.identity else { return failure };
    let Ok(registry) = control.registry() else { return failure };
    let pools = registry.pools().unwrap_or_default();
    let paths = |pool: &KnownPool| pool.drives.iter().map(|drive| drive.path.clone()).collect();
    let of_pools: Vec<Vec<PathBuf>> = pools.iter().map(paths).collect();
    let is_it = move |path: &PathBuf| drive_identity(path).is_ok_and(|found| found == identity);
    let looked = control.look(&candidate.path, move || of_pools.iter().position(|of| of.iter().any(&is_it)));
    let Some(pool) = looked.await.ok().flatten().map(|index| &pools[index]) else {
        return failure;
    };
    let user = match control.served.has(&pool.name) {
        true => Some("this daemon".to_owned()),
        false => registry.pool_user(pool),
    };
    let Some(user) = user else { return failure };
    Failure::new(format!(
        "{} is a drive of pool `{}`, which {user} has open; nothing was changed",
        candidate.path.display(),
        pool.name
    ))
    .hint(format!(
        "name another drive; if it is to leave pool {0}: `stripewise pool retire {0} {1}`",
        pool.name,
        candidate.path.display()
    ))
}

/// A pool as a command uses it: opened and closed by that command alone, or lent by the process
/// that serves it.
pub struct Session {
    /// The pool.
    pub pool: Pool,
    control: Control,
    stack: PoolStack,
    lent: bool,
    /// Set while this session opens drives that are not in the pool yet.
    brings: RefCell<Option<Rc<()>>>,
    /// Holds on those of them that are volumes: no client can open them.
    holds: RefCell<Vec<Hold>>,
}

/// Opens a known pool, does `work` and closes it again, even after an error.
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
/// first. If it cannot be (drives are missing or not writable), it is recovered in memory, for
/// this command alone.
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
            control.note(format!("pool {name} was not closed in order; its journals were replayed"));
        }
        session = Session::open(control, name, Access::Look, doing).await?;
    }
    session.work_and_close(work).await
}

impl Session {
    /// True if a crash left data in the pool's journals, and all drives are there to replay it.
    async fn can_be_recovered(&self) -> bool {
        let is_there = |drive: &DriveStatus| drive.state.takes_part();
        self.pool.status().drives.iter().all(is_there) && self.pool.recover_in_memory().await
    }

    async fn work_and_close<T>(self, work: impl AsyncFnOnce(&Session) -> Result<T>) -> Result<T> {
        let result = work(&self).await;
        let closed = self.close().await;
        // The first error explains the other.
        let value = result?;
        closed?;
        Ok(value)
    }

    /// Opens a known pool, and those below it; a pool that this process serves, or is about to, is
    /// lent.
    pub async fn open(control: &Control, name: &str, access: Access, doing: &str) -> Result<Self> {
        control.without_turn(control.served.until_come(name)).await;
        if let Some(session) = Self::served(control, name) {
            return Ok(session);
        }
        Self::open_here(control, name, access, doing, OfDestroyed::Refuse).await
    }

    /// Opens a known pool to destroy it, also if that was begun before and interrupted.
    pub(crate) async fn open_to_destroy(control: &Control, name: &str, doing: &str) -> Result<Self> {
        control.without_turn(control.served.until_come(name)).await;
        if let Some(session) = Self::served(control, name) {
            return Ok(session);
        }
        Self::open_here(control, name, Access::Change, doing, OfDestroyed::Keep).await
    }

    /// Opens a known pool, and those below it, for this process to serve. `Served::comes` keeps
    /// other tasks from doing so at the same time.
    pub(crate) async fn open_to_serve(control: &Control, name: &str, doing: &str) -> Result<Self> {
        Self::open_here(control, name, Access::Change, doing, OfDestroyed::Refuse).await
    }

    async fn open_here(
        control: &Control,
        name: &str,
        access: Access,
        doing: &str,
        destroyed: OfDestroyed,
    ) -> Result<Self> {
        let registry = control.registry()?;
        let known = registry.pool(name)?;
        let opener = StackOpener::new(control, doing)?;
        opener.treat_destroyed(&known.id, destroyed);
        match opener.open_pool(registry, known, access).await {
            Ok(top) => Ok(Self::of(control, PoolStack { top, below: opener.below().clone() })),
            Err(trouble) => {
                // The error above explains any error here.
                let _ = opener.close().await;
                Err(trouble.failure())
            }
        }
    }

    /// A pool that this process serves, lent to a command, which does not close it.
    pub fn served(control: &Control, name: &str) -> Option<Self> {
        control.served.find(name).map(|stack| Self::lent(control, stack))
    }

    /// All pools that this process serves, lent.
    pub fn all_served(control: &Control) -> Vec<Self> {
        control.served.all().into_iter().map(|stack| Self::lent(control, stack)).collect()
    }

    /// Ends serving a pool; the returned session closes it.
    pub(crate) fn end_serving(control: &Control, name: &str) -> Option<Self> {
        control.served.end(name).map(|stack| Self::of(control, stack))
    }

    /// As [`Session::end_serving`], for the pool that was opened last.
    pub(crate) fn end_serving_last(control: &Control) -> Option<Self> {
        control.served.end_last().map(|stack| Self::of(control, stack))
    }

    /// Starts serving the pool.
    pub(crate) fn serve(self) {
        self.control.served.begin(self.stack);
    }

    fn of(control: &Control, stack: PoolStack) -> Self {
        Self {
            pool: stack.top.pool.clone(),
            control: control.clone(),
            stack,
            lent: false,
            brings: RefCell::default(),
            holds: RefCell::default(),
        }
    }

    fn lent(control: &Control, stack: PoolStack) -> Self {
        Self { lent: true, ..Self::of(control, stack) }
    }

    /// True if the pool was open before this session and stays open after it.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Closes drives that are lost, so that their replacements can be opened.
    pub(crate) async fn forget_vanished(&self) {
        self.stack.top.look_at_drives().await;
        self.stack.top.opened.borrow_mut().retain(|opened| opened.lost().is_none());
    }

    /// True if all drives of a pool with exports among them are gone, so that it has to be
    /// reopened.
    pub(crate) fn is_stranded(&self) -> bool {
        !self.exports().is_empty() && self.pool.status().drives.iter().all(|drive| !drive.state.takes_part())
    }

    /// A test, for after this session: true if any process can open the pool, since no session of
    /// it is left, so its lock is free, and its files and devices are closed.
    pub(crate) fn let_go(&self) -> impl Fn() -> bool + use<> {
        let open = Rc::downgrade(&self.stack.top);
        let opened = self.stack.top.opened.borrow();
        let files: Vec<Weak<FileDrive>> =
            opened.iter().filter_map(|opened| opened.file.as_ref().map(Rc::downgrade)).collect();
        move || open.strong_count() == 0 && files.iter().all(|file| file.strong_count() == 0)
    }

    /// The NBD exports among the pool's drives.
    pub fn exports(&self) -> Vec<Rc<NetworkDrive>> {
        self.stack.top.opened.borrow().iter().filter_map(|opened| opened.network.clone()).collect()
    }

    /// The pool's entry in the registry.
    pub fn known(&self) -> KnownPool {
        self.stack.top.known.borrow().clone()
    }

    /// The pool's name in the registry.
    pub fn name(&self) -> &str {
        &self.stack.top.name
    }

    /// Starts the pool's jobs, and those of the pools below.
    pub fn start_jobs(&self) {
        self.pool.start_jobs();
        self.start_jobs_below();
        self.stack.top.fetch_back(&self.control);
    }

    /// Starts the jobs of the pools below: every process that keeps a pool open runs them.
    pub(crate) fn start_jobs_below(&self) {
        self.stack.below.start_jobs();
    }

    /// The executor.
    pub fn executor(&self) -> &RealExecutor {
        &self.stack.top.executor
    }

    /// The pool's report.
    pub fn report(&self) -> PoolReport {
        let mut report = self.stack.top.report();
        // A pool that is only read has no jobs of its own; a resync after a crash is due all the
        // same.
        let names: Vec<String> = report.volumes.iter().map(|volume| volume.name.clone()).collect();
        for name in names {
            if self.pool.volume(&name).is_ok_and(|volume| volume.needs_resync()) {
                report.add_resync(&name);
            }
        }
        for drive in &mut report.drives {
            drive.hardware = self.control.hardware().of(&drive.id).unwrap_or_default();
        }
        report.mounts = self.control.served.mounts().reports(self.name());
        hardware::add_notices(&mut report, self.control.max_temperature_c());
        report
    }

    /// IDs and paths of the pool's drives.
    pub(crate) fn drives(&self) -> Vec<(String, PathBuf)> {
        let drives = self.pool.status().drives;
        drives.iter().map(|drive| (drive.id.to_string(), PathBuf::from(&drive.path))).collect()
    }

    /// Drives of the pool, by identity, that have more space for slabs now than when they joined.
    pub(crate) fn larger_drives(&self) -> Vec<(DriveId, Rc<dyn Drive>)> {
        self.stack.top.larger_drives()
    }

    /// Samples the hardware of the pool's drives.
    pub(crate) async fn sample_hardware(&self) -> Result<()> {
        let folder = self.control.registry()?.folder().to_owned();
        self.control.hardware().take(&folder, self.drives()).await;
        Ok(())
    }

    /// The status file's contents.
    pub fn word(&self) -> StatusFile {
        StatusFile::of(&self.pool, self.report(), self.stack.top.opened_unix_ms)
    }

    /// Fails if another process may be changing the pool.
    pub(crate) fn refuse_if_used_elsewhere(&self) -> Result<()> {
        self.stack.top.refuse_if_used_elsewhere()
    }

    /// Time at which this process opened the pool.
    pub fn opened_unix_ms(&self) -> u64 {
        self.stack.top.opened_unix_ms
    }

    /// Shows the pool's notices to the user.
    pub fn show_notices(&self) {
        for notice in self.pool.notices() {
            self.control.warning(notice);
        }
    }

    /// The report of one volume.
    pub(crate) fn volume_report(&self, name: &VolumeName) -> Result<VolumeReport> {
        find_volume(self.report(), name)
    }

    /// Opens a drive that is to be added to the pool, unless it is open already. A drive that holds
    /// data is refused, unless it is to be overwritten.
    pub(crate) async fn open_new_drive(&self, candidate: &Candidate, force: bool) -> Result<OpenedDrive> {
        self.control.without_turn(self.open_and_look(candidate, force)).await
    }

    async fn open_and_look(&self, candidate: &Candidate, force: bool) -> Result<OpenedDrive> {
        refuse_foreign_path(&self.control, candidate).await?;
        candidate.refuse_long_name()?;
        let known = self
            .stack
            .top
            .opened
            .borrow()
            .iter()
            .find(|opened| opened.identity == candidate.identity)
            .cloned();
        let opened = match known {
            Some(opened) => opened,
            None => {
                if let Some(volume) = candidate.volume() {
                    refuse_circle(&self.stack.top.registry, self.name(), volume)?;
                    let what = format!("use `{volume}` as a drive of pool `{}`", self.name());
                    let held = self.control.served.hold(&what, &volume.pool, Some(&volume.volume))?;
                    self.holds.borrow_mut().push(held);
                }
                self.brings.replace(Some(self.stack.top.bringing.clone()));
                let opener = StackOpener::onto(&self.control, self.stack.below.clone())?;
                let opened = opener.open(candidate, Access::Change, &OpenOptions::default()).await;
                let opened = match opened {
                    Ok(opened) => opened,
                    Err(failure) => return Err(not_opened(&self.control, candidate, failure).await),
                };
                self.stack.top.brought.borrow_mut().push(opened.bare.clone());
                self.stack.top.opened.borrow_mut().push(opened.clone());
                opened
            }
        };
        // An absent drive of this very pool may come back: the engine decides whether it may be
        // overwritten.
        let label = inspect(&*opened.bare).await;
        if !matches!(&label, Ok(Some(label)) if label.pool_id == self.pool.id()) {
            refuse_contents(&self.control, candidate, &opened, force).await?;
        }
        Ok(opened)
    }

    /// Closes the pool and records its drives' paths; then the pools below. A lent pool stays open.
    pub async fn close(self) -> Result<()> {
        if self.lent {
            self.brings.take();
            self.stack.top.let_go_of_strangers();
            // Recorded now: should this process be killed, the next one finds the new drives.
            return self.stack.top.remember_drives().await;
        }
        self.stack.close().await
    }

    /// Destroys the pool, and with `wipe` erases it from its drives; a lent pool is no longer
    /// served.
    pub async fn destroy(self, wipe: bool) -> Result<()> {
        if self.lent {
            self.control.served.end(self.name());
        }
        self.stack.destroy(wipe).await
    }
}
