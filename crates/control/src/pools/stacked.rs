//! Pools on volumes of other pools: a process that opens one opens those below first, in the same
//! process and on the same executor, and closes them after it.
//!
//! Locks are taken from the outermost pool inwards, so that two commands never wait for each other
//! in a circle; a pool to which several volumes below belong is opened once. A volume whose pool is
//! missing or unreadable is a missing drive, and the pool above decides what that means; a pool
//! below that another process has open stops the command, since going on without it would make its
//! data out of date.
//!
//! Expected faults: pools that are unknown, missing, in use, or stacked on themselves.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use stripewise_pool::{OfDestroyed, Pool, VolumeDrive};
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

/// Opens pools, those below them, and drives that may be volumes of such pools.
pub(crate) struct StackOpener {
    control: Control,
    executor: Rc<RealExecutor>,
    below: Rc<PoolsBelow>,
    /// Names of the pools being opened, the outermost first.
    opening: RefCell<Vec<String>>,
    /// The identity of a pool to be opened by force.
    forced: RefCell<Option<String>>,
    /// The treatment of a destroyed pool of this identity; others are refused.
    destroyed: RefCell<Option<(String, OfDestroyed)>>,
}

impl StackOpener {
    /// An opener with no pools open; `doing` is shown to other processes that find a pool in use.
    pub(crate) fn new(control: &Control, doing: &str) -> Result<Self> {
        Self::onto(control, Rc::new(PoolsBelow::new(doing)))
    }

    /// An opener that adds to the pools that are open already.
    pub(super) fn onto(control: &Control, below: Rc<PoolsBelow>) -> Result<Self> {
        Ok(Self {
            control: control.clone(),
            executor: control.executor()?,
            below,
            opening: RefCell::default(),
            forced: RefCell::default(),
            destroyed: RefCell::default(),
        })
    }

    /// Opens this pool for writing even if another host has it, and counts drives that were
    /// restored from older copies. Does not apply to the pools below it.
    pub(crate) fn force(&self, id: &str) {
        self.forced.replace(Some(id.to_owned()));
    }

    /// Opens this pool also if it is destroyed.
    pub(crate) fn treat_destroyed(&self, id: &str, treatment: OfDestroyed) {
        self.destroyed.replace(Some((id.to_owned(), treatment)));
    }

    /// The executor of all pools.
    pub(crate) fn executor(&self) -> &Rc<RealExecutor> {
        &self.executor
    }

    /// The open pools below.
    pub(super) fn below(&self) -> &Rc<PoolsBelow> {
        &self.below
    }

    /// Opens any candidate for a drive.
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

    /// All readable volumes of a pool, as drives to inspect.
    pub(crate) async fn volumes_of(&self, pool: &str) -> Vec<OpenedDrive> {
        let below = match self.pool_below(pool, Access::Look).await {
            Ok(below) => below,
            Err(trouble) => {
                let why = trouble.failure().message;
                self.control.note(format!("note: volumes of pool {pool} are not searched: {why}"));
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

    /// A pool below: served by this process, open already, or opened now.
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
        // Boxed, since the pool below may be stacked in turn.
        let opening: LocalBoxFuture<'_, _> = Box::pin(self.open_pool(registry, known, access));
        let open = opening.await?;
        open.refuse_if_used_elsewhere().map_err(Trouble::Stop)?;
        self.below.add(open.clone());
        Ok(open.pool.clone())
    }

    /// Opens a pool, after those below it; its lock is taken before theirs.
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
        let treatment = self.destroyed.borrow().clone().filter(|(id, _)| *id == known.id);
        let destroyed = treatment.map_or(OfDestroyed::Refuse, |(_, treatment)| treatment);
        self.opening.borrow_mut().push(known.name.clone());
        let ended_session = self.control.served.last_session(&known.id);
        let opening = Opening { registry, known, access, is_forced, destroyed, ended_session, lock };
        let open = OpenPool::open(&self.drives(), opening).await;
        self.opening.borrow_mut().pop();
        if let Ok(open) = &open {
            self.control.served.note_session(&open.id, open.pool.session());
        }
        open
    }

    /// Closes the pools below, the last opened first. The first error is reported; all are closed.
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
    Failure::new(format!("pool `{pool}` is stacked on a volume of its own"))
        .hint("a pool's drives are files, devices, or volumes of pools that are not stacked on it in turn")
}
