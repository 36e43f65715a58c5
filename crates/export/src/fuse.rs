//! Volumes as files, through FUSE: programs and loop devices use them where they are mounted.
//!
//! The kernel's requests are read on the executor's thread, which carries them out, as many as
//! there are beside one another, and answers each when it is done. So nothing waits for anything
//! but its own drives. `device.rs` is the kernel's side, `wire.rs` its language, `files.rs` what
//! there is to see, `carry_out.rs` the work.
//!
//! Files are past the page cache and may be written by many at once: order and overlaps are the
//! engine's matter, which keeps writes of the same blocks apart.
//!
//! Nothing on the executor's thread may touch the mounted files in a way that blocks: it would wait
//! for itself.

mod carry_out;
mod device;
mod files;
mod trouble;
mod wire;

use std::io;
use std::path::Path;
use std::rc::{Rc, Weak};

use stripewise_drive::{Context, Event};
use stripewise_runtime::{FuseMountPoint, Network};

use self::carry_out::Worker;
use self::device::Device;
use crate::pools::PoolExports;

/// Requests under way hold at most this much data; more wait in the kernel.
const MAX_UNDER_WAY_BYTES: u64 = 64 << 20;

/// What is to be seen in the mounted folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// The volumes of this pool.
    Volumes(String),
    /// A folder for each pool, with its volumes.
    Pools,
}

/// Whoever has the folder mounted.
pub trait Host: 'static {
    /// Why the volume `POOL/VOL` is not to be written now, if that is so.
    fn keeps_from_writing(&self, volume: &str) -> Option<String>;
    /// Something went wrong that the client is told in a number only; each kind is said once.
    fn remark(&self, text: String);
}

/// Volumes, mounted. Serves for as long as the executor runs; unmounting is left to others
/// (`umount`, `fusermount3 -u`), since it may have to wait, or be done by a program with more
/// rights. Dropping it while mounted unmounts it.
pub struct FuseMount {
    ended: Rc<Ended>,
    worker: Weak<Worker>,
    /// Unmounts when it is dropped, if need be.
    _mount_point: FuseMountPoint,
}

/// What the kernel asks of a mount.
#[derive(Clone)]
pub struct FuseLoad(Weak<Worker>);

impl FuseLoad {
    /// Reads, writes, zeroings and flushes that are not answered yet; those that still wait in the
    /// kernel do not count.
    pub fn under_way(&self) -> usize {
        self.0.upgrade().map_or(0, |worker| worker.under_way())
    }

    /// How many of these were answered since it was mounted.
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
    /// The system's, as mounting gives them; where there is no `/dev/fuse`, `NotFound`.
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
        device::agree(&mount_point)?;
        let device = Device::new(network, &mount_point, MAX_UNDER_WAY_BYTES)?;
        let worker = Rc::new(Worker::new(exports, tree, host)?);
        let of_mount = Rc::downgrade(&worker);
        let (ended, of_task) = (Rc::new(Ended::default()), context.clone());
        let theirs = ended.clone();
        drop(context.spawn(async move {
            worker.serve(&of_task, device).await;
            theirs.is_so.set(true);
            theirs.changed.notify_all();
        }));
        Ok(Self { ended, worker: of_mount, _mount_point: mount_point })
    }

    /// Whether it is mounted no more.
    pub fn has_ended(&self) -> bool {
        self.ended.is_so.get()
    }

    /// What it is asked for, also for those who do not keep it mounted.
    pub fn load(&self) -> FuseLoad {
        FuseLoad(self.worker.clone())
    }

    /// Ends when it is mounted no more, whoever unmounted it, and every request was answered.
    pub async fn until_ended(&self) {
        while !self.ended.is_so.get() {
            self.ended.changed.wait().await;
        }
    }
}
