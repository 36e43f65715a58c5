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
use std::path::Path;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use stripewise_engine::pool::{Pool, VolumeDrive};
use stripewise_runtime::{OpenError, OpenOptions, RealExecutor};

use crate::access::Access;
use crate::control::Control;
use crate::drives::candidates::{Candidate, Identity, Place, noted_export, noted_place};
use crate::drives::network;
use crate::drives::opened::{OpenedDrive, open_drive};
use crate::drives::trouble::Trouble;
use crate::failure::{Failure, Result};
use crate::names::VolumeName;
use crate::pools::session::Session;
use crate::registry::{KnownPool, Registry};

/// The pools below, open.
pub(crate) struct Stack {
    control: Control,
    executor: Rc<RealExecutor>,
    doing: String,
    /// In the order in which they were opened: what a pool stands on comes before it.
    sessions: RefCell<Vec<Session>>,
    /// Names of those that are being opened, the outermost first.
    opening: RefCell<Vec<String>>,
    /// The identity of a pool that is taken by force.
    forced: RefCell<Option<String>>,
}

impl Stack {
    /// Nothing open yet; `doing` is what others are told when they find a pool in use.
    pub(crate) fn new(control: &Control, doing: &str) -> Result<Self> {
        Ok(Self {
            control: control.clone(),
            executor: control.executor()?,
            doing: doing.to_owned(),
            sessions: RefCell::default(),
            opening: RefCell::default(),
            forced: RefCell::default(),
        })
    }

    /// From now on this pool is opened for writing also where another host has it, and its drives
    /// count also where they were put back from older copies. Not the pools below it.
    pub(crate) fn force(&self, id: &str) {
        self.forced.replace(Some(id.to_owned()));
    }

    /// Whether a pool is taken as it is, and from whichever host has it.
    pub(crate) fn is_forced(&self, id: &str) -> bool {
        self.forced.borrow().as_deref() == Some(id)
    }

    /// What all of them run on.
    pub(crate) fn executor(&self) -> &Rc<RealExecutor> {
        &self.executor
    }

    /// For whom.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Opens whatever offers itself as a drive.
    pub(crate) async fn open(
        &self,
        candidate: &Candidate,
        access: Access,
        options: &OpenOptions,
    ) -> Result<OpenedDrive> {
        match (&candidate.identity, noted_export(&candidate.path)) {
            (Identity::Volume(name), _) => self.volume(name, access).await.map_err(Trouble::failure),
            (Identity::Network(_), Some(uri)) => {
                Ok(network::open(&self.executor, &uri, options.read_only).await?)
            }
            _ => Ok(open_drive(&self.control, &self.executor, &candidate.path, options)?),
        }
    }

    /// Opens the drive that a pool has noted at this place.
    pub(crate) async fn open_noted(
        &self,
        path: &Path,
        access: Access,
        options: &OpenOptions,
    ) -> std::result::Result<std::result::Result<OpenedDrive, OpenError>, Trouble> {
        match noted_place(path) {
            Place::Volume(name) => self.volume(&name, access).await.map(Ok),
            Place::Path(path) => Ok(open_drive(&self.control, &self.executor, &path, options)),
            Place::Network(uri) => network::open_known(&self.executor, &uri, options.read_only).await.map(Ok),
        }
    }

    /// A volume as a drive; its pool is opened for it if it is not open yet.
    pub(crate) async fn volume(
        &self,
        name: &VolumeName,
        access: Access,
    ) -> std::result::Result<OpenedDrive, Trouble> {
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
        self.control.served.until_come(name).await;
        if let Some(session) = self.control.served.lend(name, &self.control) {
            return Ok(session.pool.clone());
        }
        let open = |stack: &Self| {
            stack
                .sessions
                .borrow()
                .iter()
                .find(|session| session.name() == name)
                .map(|open| open.pool.clone())
        };
        if let Some(pool) = open(self) {
            return Ok(pool);
        }
        let registry = self.control.registry().map_err(Trouble::Stop)?;
        let known = registry.pool(name).map_err(Trouble::Missing)?;
        // Boxed, since what lies below may lie on pools in turn.
        let opening: LocalBoxFuture<'_, _> = Box::pin(self.open_pool(registry, known, access));
        let session = opening.await?;
        session.refuse_if_used_elsewhere().map_err(Trouble::Stop)?;
        let pool = session.pool.clone();
        self.sessions.borrow_mut().push(session);
        Ok(pool)
    }

    /// Opens a pool, and those below it first; with its lock taken before theirs.
    pub(crate) async fn open_pool(
        &self,
        registry: Registry,
        known: KnownPool,
        access: Access,
    ) -> std::result::Result<Session, Trouble> {
        if self.opening.borrow().contains(&known.name) {
            return Err(Trouble::Stop(stands_on_itself(&known.name)));
        }
        let context = self.executor.context();
        let lock = registry.lock_pool(&context, &known, access, &self.doing, self.control.commands_at());
        let lock = lock.await.map_err(Trouble::Stop)?;
        self.opening.borrow_mut().push(known.name.clone());
        let session = Session::open_locked(self, registry, known, access, lock).await;
        self.opening.borrow_mut().pop();
        session
    }

    /// Begins the jobs of the pools below.
    pub(crate) fn start_jobs(&self) {
        self.sessions.borrow().iter().for_each(|session| session.pool.start_jobs());
    }

    /// Closes them, the last opened first. The first error is reported; all are closed.
    pub(crate) async fn close(&self) -> Result<()> {
        let mut result = Ok(());
        while let Some(session) = { self.sessions.borrow_mut().pop() } {
            let closing: LocalBoxFuture<'_, _> = Box::pin(session.close());
            result = result.and(closing.await);
        }
        result
    }
}

fn stands_on_itself(pool: &str) -> Failure {
    Failure::new(format!("pool `{pool}` stands on a volume of its own"))
        .hint("a pool's drives are files, devices, or volumes of pools that do not stand on it in turn")
}
