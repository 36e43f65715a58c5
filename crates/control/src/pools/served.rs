//! The pools that this process serves: kept open while it runs, lent to the commands of other
//! processes, and their volumes exported. Empty in a process that runs one command of its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use stripewise_drive::Event;
use stripewise_export::fuse::FuseLoad;
use stripewise_export::nbd::Server;
use stripewise_export::vhost::VhostServer;
use stripewise_export::{Exports, Hold, PoolExports, VolumeExport};
use stripewise_pool::{Id, Pool};

use crate::failure::{Failure, Result};
use crate::notation::names::VolumeName;
use crate::pools::mount_list::MountList;
use crate::pools::pool_stack::PoolStack;
use crate::registry::stacking::used_volumes;
use crate::registry::{KnownPool, Registry};

/// The pools served, in the order in which they were opened.
#[derive(Clone, Default)]
pub struct Served {
    pools: Rc<RefCell<Vec<PoolStack>>>,
    exports: PoolExports,
    listeners: Rc<RefCell<Listeners>>,
    /// Pools to be served again as soon as they can be opened.
    to_come: Rc<RefCell<Vec<KnownPool>>>,
    coming: Rc<Coming>,
    mounts: MountList,
    /// The last session of each pool opened by this process, by the pool's identity.
    sessions: Rc<RefCell<HashMap<String, Id>>>,
}

/// Names of the pools being opened to be served.
#[derive(Default)]
struct Coming {
    names: RefCell<Vec<String>>,
    changed: Event,
}

/// While this lives, commands for the pool wait until it is served.
pub struct Comes {
    coming: Rc<Coming>,
    name: String,
}

impl Drop for Comes {
    fn drop(&mut self) {
        let mut names = self.coming.names.borrow_mut();
        if let Some(index) = names.iter().position(|name| *name == self.name) {
            names.swap_remove(index);
        }
        drop(names);
        self.coming.changed.notify_all();
    }
}

/// The listeners for clients of the volumes.
#[derive(Default)]
pub struct Listeners {
    /// The NBD server, if there is one.
    pub nbd: Option<Server<ServedExports>>,
    /// Listen addresses of the NBD server: a path, or address and port.
    pub nbd_places: Vec<String>,
    /// The mounts.
    pub fuse: Vec<FuseLoad>,
    /// The server for virtual machines, if there is one.
    pub vhost: Option<VhostServer<ServedExports>>,
    /// Its folder of sockets.
    pub vhost_folder: Option<PathBuf>,
}

impl Served {
    /// Starts serving a pool.
    pub(super) fn begin(&self, pool: PoolStack) {
        pool.top.stays.set(true);
        self.exports.add(pool.top.pool.clone(), false);
        self.pools.borrow_mut().push(pool);
    }

    /// Records the session under which this process opened the pool.
    pub(super) fn note_session(&self, pool: &str, session: Option<Id>) {
        if let Some(session) = session {
            self.sessions.borrow_mut().insert(pool.to_owned(), session);
        }
    }

    /// The last session of a pool opened by this process.
    pub(super) fn last_session(&self, pool: &str) -> Option<Id> {
        self.sessions.borrow().get(pool).copied()
    }

    /// Records a pool that was served and could not be reopened.
    pub(crate) fn is_to_come(&self, pool: KnownPool) {
        self.to_come.borrow_mut().push(pool);
    }

    /// Takes the pools recorded by [`Self::is_to_come`], to try to open them.
    pub(crate) fn take_those_to_come(&self) -> Vec<KnownPool> {
        self.to_come.take()
    }

    /// Announces that a pool is being opened to be served.
    pub fn comes(&self, name: &str) -> Comes {
        self.coming.names.borrow_mut().push(name.to_owned());
        Comes { coming: self.coming.clone(), name: name.to_owned() }
    }

    /// True if a pool of this name is being opened to be served.
    pub(crate) fn is_coming(&self, name: &str) -> bool {
        self.coming.names.borrow().iter().any(|coming| coming == name)
    }

    /// Waits until no pool of this name is being opened to be served.
    pub(crate) async fn until_come(&self, name: &str) {
        while self.is_coming(name) {
            self.coming.changed.wait().await;
        }
    }

    /// True if the pool of this name is served.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The pool of this name, if it is served.
    pub(super) fn pool(&self, name: &str) -> Option<Pool> {
        self.find(name).map(|found| found.top.pool.clone())
    }

    /// The pool of this name with those below it, if it is served.
    pub(super) fn find(&self, name: &str) -> Option<PoolStack> {
        self.pools.borrow().iter().find(|pool| pool.name() == name).cloned()
    }

    /// All pools served.
    pub(super) fn all(&self) -> Vec<PoolStack> {
        self.pools.borrow().clone()
    }

    /// Keeps clients from opening a volume, or (`None`) any volume of a pool, while the returned
    /// hold lives; fails if a client has it open through this process.
    pub fn hold(&self, what: &str, pool: &str, volume: Option<&str>) -> Result<Hold> {
        self.exports.hold(pool, volume).map_err(|name| {
            Failure::new(format!("cannot {what}: a client has {name} open")).hint(
                "close it first: programs that have the file open, file systems and loop devices \
                 on it, connections",
            )
        })
    }

    /// The mounts that a daemon keeps.
    pub fn mounts(&self) -> &MountList {
        &self.mounts
    }

    /// The listeners for clients of the volumes.
    pub fn listeners(&self) -> &RefCell<Listeners> {
        &self.listeners
    }

    /// The volumes of the served pools, for clients.
    pub fn exports(&self) -> PoolExports {
        self.exports.clone()
    }

    /// Ends serving the pool; the caller closes it.
    pub(super) fn end(&self, name: &str) -> Option<PoolStack> {
        let mut pools = self.pools.borrow_mut();
        let index = pools.iter().position(|pool| pool.name() == name)?;
        self.exports.remove(name);
        Some(pools.remove(index))
    }

    /// Ends serving the pool that was opened last, which may be stacked on earlier ones.
    pub(super) fn end_last(&self) -> Option<PoolStack> {
        let pool = self.pools.borrow_mut().pop()?;
        self.exports.remove(pool.name());
        Some(pool)
    }

    /// The exports for network clients.
    pub(crate) fn for_clients(&self, registry: Registry) -> ServedExports {
        ServedExports { exports: self.exports.clone(), registry }
    }
}

/// The volumes available to network clients: all that are not drives of other pools.
pub struct ServedExports {
    exports: PoolExports,
    registry: Registry,
}

impl ServedExports {
    /// A test of names. With an unreadable registry all volumes count as used.
    fn is_free(&self) -> impl Fn(&str) -> bool + use<> {
        let used = used_volumes(&self.registry);
        move |name| {
            let is_it = |used: &VolumeName| {
                name.split_once('/').is_some_and(|(pool, volume)| used.pool == pool && used.volume == volume)
            };
            used.as_ref().is_some_and(|used| !used.iter().any(is_it))
        }
    }
}

impl Exports for ServedExports {
    type Export = VolumeExport;

    fn find(&self, name: &str) -> Option<Rc<VolumeExport>> {
        self.exports.find(name).filter(|_| self.is_free()(name))
    }

    fn list(&self) -> Vec<String> {
        let is_free = self.is_free();
        self.exports.list().into_iter().filter(|name| is_free(name)).collect()
    }
}
