//! Pools on volumes of other pools: a process that opens one opens those below first, in the same
//! process and on the same executor, and closes them after it.
//!
//! Locks are taken from the outside to the inside, so that two commands never wait for each other
//! in a circle; a pool that several volumes below belong to is opened once. A volume whose pool is
//! not there, or that cannot be read, is a drive that is missing, and the pool above decides what
//! that means for it; a pool below that another process has open stops the command, since to go on
//! without it would make what it holds out of date.
//!
//! Expected faults: pools that are unknown, gone, in use, or that stand on themselves.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use stripewise_engine::pool::{Pool, VolumeDrive};
use stripewise_runtime::{OpenOptions, RealExecutor};

use crate::access::Access;
use crate::control::Control;
use crate::drives::candidates::Candidate;
use crate::drives::opened::OpenedDrive;
use crate::drives::opener::{DriveOpener, Volumes};
use crate::drives::trouble::Trouble;
use crate::failure::{Failure, Result};
use crate::notation::names::VolumeName;
use crate::pools::open_pool::{OpenPool, Opening};
use crate::pools::pool_stack::PoolsBelow;
use crate::registry::{KnownPool, Registry};

/// Opens pools, those below them, and drives that may be volumes of such.
pub(crate) struct StackOpener {
    control: Control,
    executor: Rc<RealExecutor>,
    below: Rc<PoolsBelow>,
    /// Names of those that are being opened, the outermost first.
    opening: RefCell<Vec<String>>,
    /// The identity of a pool that is taken by force.
    forced: RefCell<Option<String>>,
}

impl StackOpener {
    /// Nothing open yet; `doing` is what others are told when they find a pool in use.
    pub(crate) fn new(control: &Control, doing: &str) -> Result<Self> {
        Self::onto(control, Rc::new(PoolsBelow::new(doing)))
    }

    /// Opens more beside what is open already.
    pub(super) fn onto(control: &Control, below: Rc<PoolsBelow>) -> Result<Self> {
        Ok(Self {
            control: control.clone(),
            executor: control.executor()?,
            below,
            opening: RefCell::default(),
            forced: RefCell::default(),
        })
    }

    /// From now on this pool is opened for writing also where another host has it, and its drives
    /// count also where they were put back from older copies. Not the pools below it.
    pub(crate) fn force(&self, id: &str) {
        self.forced.replace(Some(id.to_owned()));
    }

    /// What all of them run on.
    pub(crate) fn executor(&self) -> &Rc<RealExecutor> {
        &self.executor
    }

    /// The pools below that are open.
    pub(super) fn below(&self) -> &Rc<PoolsBelow> {
        &self.below
    }

    /// Opens whatever offers itself as a drive.
    pub(crate) async fn open(
        &self,
        candidate: &Candidate,
        access: Access,
        options: &OpenOptions,
    ) -> Result<OpenedDrive> {
        self.drives().open(candidate, access, options).await
    }

    fn drives(&self) -> DriveOpener<'_, Self> {
        DriveOpener { environment: &self.control, executor: &self.executor, volumes: self }
    }

    /// All volumes of a pool that can be read, as drives to look at.
    pub(crate) async fn volumes_of(&self, pool: &str) -> Vec<OpenedDrive> {
        let below = match self.pool_below(pool, Access::Look).await {
            Ok(below) => below,
            Err(trouble) => {
                let why = trouble.failure().message;
                self.control.note(format!("note: volumes of pool {pool} are not looked at: {why}"));
                return Vec::new();
            }
        };
        let mut drives = Vec::new();
        for volume in below.volumes() {
            let name = VolumeName { pool: pool.to_owned(), volume: volume.name };
            drives.extend(self.volume(&name, Access::Look).await.ok());
        }
        drives
    }

    /// A pool that is to lie below: served by this process, open already, or opened now.
    async fn pool_below(&self, name: &str, access: Access) -> std::result::Result<Pool, Trouble> {
        self.control.without_turn(self.control.served.until_come(name)).await;
        if let Some(pool) = self.control.served.pool(name) {
            return Ok(pool);
        }
        if let Some(open) = self.below.find(name) {
            return Ok(open.pool.clone());
        }
        let registry = self.control.registry().map_err(Trouble::Stop)?;
        let known = registry.pool(name).map_err(Trouble::Missing)?;
        // Boxed, since what lies below may lie on pools in turn.
        let opening: LocalBoxFuture<'_, _> = Box::pin(self.open_pool(registry, known, access));
        let open = opening.await?;
        open.refuse_if_used_elsewhere().map_err(Trouble::Stop)?;
        self.below.add(open.clone());
        Ok(open.pool.clone())
    }

    /// Opens a pool, and those below it first; with its lock taken before theirs.
    pub(crate) async fn open_pool(
        &self,
        registry: Registry,
        known: KnownPool,
        access: Access,
    ) -> std::result::Result<Rc<OpenPool>, Trouble> {
        if self.opening.borrow().contains(&known.name) {
            return Err(Trouble::Stop(stands_on_itself(&known.name)));
        }
        let (context, doing) = (self.executor.context(), &self.below.doing);
        let lock = registry.lock_pool(&context, &known, access, doing, self.control.commands_at());
        let lock = lock.await.map_err(Trouble::Stop)?;
        let is_forced = self.forced.borrow().as_deref() == Some(known.id.as_str());
        self.opening.borrow_mut().push(known.name.clone());
        let ended_session = self.control.served.last_session(&known.id);
        let opening = Opening { registry, known, access, is_forced, ended_session, lock };
        let open = OpenPool::open(&self.drives(), opening).await;
        self.opening.borrow_mut().pop();
        if let Ok(open) = &open {
            self.control.served.note_session(&open.id, open.pool.session());
        }
        open
    }

    /// Closes the pools that were opened for others to stand on, the last opened first. The first
    /// error is reported; all are closed.
    pub(crate) async fn close(&self) -> Result<()> {
        self.below.close().await
    }
}

impl Volumes for StackOpener {
    async fn volume(&self, name: &VolumeName, access: Access) -> std::result::Result<OpenedDrive, Trouble> {
        let pool = self.pool_below(&name.pool, access).await?;
        match pool.volume(&name.volume) {
            Ok(volume) => {
                let drive = VolumeDrive::new(volume, &name.to_string());
                Ok(OpenedDrive::volume(name.clone(), drive))
            }
            Err(error) => {
                Err(Trouble::Missing(Failure::because(format!("cannot use volume `{name}`"), &error)))
            }
        }
    }
}

fn stands_on_itself(pool: &str) -> Failure {
    Failure::new(format!("pool `{pool}` stands on a volume of its own"))
        .hint("a pool's drives are files, devices, or volumes of pools that do not stand on it in turn")
}
