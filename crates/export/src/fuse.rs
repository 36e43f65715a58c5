//! Volumes as files of a FUSE mount, for programs and loop devices.
//!
//! The executor's thread reads the kernel's requests, executes them concurrently, and answers each
//! when it is done, so that a request waits only for its own drives. `device.rs` talks to the
//! kernel over the carrier of `messages.rs`, `wire.rs` parses and builds messages, `files.rs` is
//! the directory tree, and `execute.rs` executes requests. If there are other threads, each of them
//! receives requests as well (`shards.rs`). In virtual time `simulated.rs` takes the
//! kernel's place.
//!
//! Files bypass the page cache and can have many concurrent writers. The engine serialises writes
//! of the same blocks.
//!
//! The executor's thread must not access the mounted files with blocking calls: it would wait for
//! itself.

mod device;
mod execute;
mod files;
mod links;
mod messages;
mod shards;
mod simulated;
mod trouble;
mod wire;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::{Rc, Weak};

use stripewise_drive::{Context, Event};
use stripewise_runtime::{FuseMountPoint, Network};

use self::device::Device;
use self::execute::Worker;
use self::shards::receive_on_all;
use crate::pools::PoolExports;

pub use self::simulated::{Descriptor, SimulatedMount};

/// Maximum data of requests in flight; further requests wait in the kernel.
const MAX_UNDER_WAY_BYTES: u64 = 64 << 20;

/// Contents of the mounted folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// The volumes of this pool.
    Volumes(String),
    /// A folder for each pool, with its volumes.
    Pools,
}

/// Callbacks to the owner of the mount.
pub trait Host: 'static {
    /// The reason that the volume `POOL/VOL` must not be written now, if there is one.
    fn keeps_from_writing(&self, volume: &str) -> Option<String>;
    /// Reports the text of an error of which clients get only the number; once for each kind.
    fn remark(&self, text: String);
}

/// A FUSE mount of volumes, served while the executor runs. Unmounting is left to `umount` or
/// `fusermount3 -u`, since it may have to wait or need more rights. Dropping a mounted one unmounts
/// it.
pub struct FuseMount {
    ended: Rc<Ended>,
    worker: Weak<Worker>,
    is_over_ring: bool,
    /// Unmounts on drop if still mounted.
    _mount_point: FuseMountPoint,
}

/// Load of a mount.
#[derive(Clone)]
pub struct FuseLoad(Weak<Worker>);

impl FuseLoad {
    /// Reads, writes, zeroings and flushes in flight, not counting those that wait in the kernel.
    pub fn in_flight(&self) -> usize {
        self.0.upgrade().map_or(0, |worker| worker.in_flight())
    }

    /// Number of these that were answered since the mount.
    pub fn answered(&self) -> u64 {
        self.0.upgrade().map_or(0, |worker| worker.answered())
    }
}

#[derive(Default)]
struct Ended {
    is_so: std::cell::Cell<bool>,
    changed: Event,
}

impl FuseMount {
    /// Mounts at the folder `at`. Blocks briefly.
    ///
    /// # Errors
    /// The system's error from mounting; `NotFound` without `/dev/fuse`.
    pub fn new(
        context: &Context,
        network: &Network,
        exports: PoolExports,
        tree: Tree,
        at: &Path,
        host: Rc<dyn Host>,
    ) -> io::Result<Self> {
        let source = match &tree {
            Tree::Volumes(pool) => format!("stripewise:{pool}"),
            Tree::Pools => "stripewise".to_owned(),
        };
        let mount_point = FuseMountPoint::new(at, &source)?;
        // Other threads have clones of the device, whose requests need no ring.
        let ring = match context.shards()[..] {
            [] => network.fuse_ring(mount_point.as_fd(), device::MAX_REQUEST_BYTES).ok(),
            _ => None,
        };
        let is_offered = device::agree(&mount_point, ring.is_some())?;
        let ring = ring.filter(|ring| is_offered && ring.register());
        let device = Device::new(Rc::new(network.message_file(mount_point.as_fd())?), MAX_UNDER_WAY_BYTES);
        let over_ring = ring.map(|ring| Device::new(Rc::new(ring), MAX_UNDER_WAY_BYTES));
        let is_over_ring = over_ring.is_some();
        let worker = Rc::new(Worker::new(exports, tree, host)?);
        receive_on_all(context, network, &mount_point, &worker);
        let of_mount = Rc::downgrade(&worker);
        let (ended, of_task) = (Rc::new(Ended::default()), context.clone());
        let theirs = ended.clone();
        drop(context.spawn(async move {
            worker.serve(&of_task, device, over_ring).await;
            theirs.is_so.set(true);
            theirs.changed.notify_all();
        }));
        Ok(Self { ended, worker: of_mount, is_over_ring, _mount_point: mount_point })
    }

    /// True if the kernel's requests come over io_uring, which it has to be set up for.
    pub fn is_over_ring(&self) -> bool {
        self.is_over_ring
    }

    /// True once the folder is unmounted.
    pub fn has_ended(&self) -> bool {
        self.ended.is_so.get()
    }

    /// Load of the mount, as a handle that does not keep the folder mounted.
    pub fn load(&self) -> FuseLoad {
        FuseLoad(self.worker.clone())
    }

    /// Waits until the folder is unmounted, by any program, and every request was answered.
    pub async fn until_ended(&self) {
        while !self.ended.is_so.get() {
            self.ended.changed.wait().await;
        }
    }
}
