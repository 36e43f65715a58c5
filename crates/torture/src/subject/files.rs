//! Volumes as files of a simulated FUSE mount, as programs use them: each file is open twice.
//!
//! Expected faults: error numbers, passed on as text.

use std::io;
use std::rc::Rc;

use stripewise_drive::Context;
use stripewise_export::PoolExports;
use stripewise_export::fuse::{Descriptor, Host, SimulatedMount, Tree};

use super::{Refusal, Subject};

/// Error numbers.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A mount of a pool's volumes. It outlasts the pool, and goes on with it once it is reopened.
pub(crate) struct Mount {
    exports: PoolExports,
    mount: SimulatedMount,
}

/// An owner of a mount that forbids nothing and drops all remarks.
struct NoHost;

impl Host for NoHost {
    fn keeps_from_writing(&self, _volume: &str) -> Option<String> {
        None
    }

    fn remark(&self, _text: String) {}
}

/// A volume's file, open twice.
pub(crate) struct File {
    /// The descriptors, in the order in which they were opened.
    open: [Descriptor; File::DESCRIPTORS],
}

impl File {
    /// Descriptors of a file.
    pub(crate) const DESCRIPTORS: usize = 2;

    pub(super) fn descriptor(&self, number: usize) -> &Descriptor {
        &self.open[number]
    }
}

fn refused(error: io::Error) -> Refusal {
    let is = |number| error.raw_os_error() == Some(number);
    Refusal { text: error.to_string(), is_full: is(ENOSPC), is_io_error: is(EIO) }
}

impl Mount {
    /// Mounts the volumes of a pool.
    pub(crate) fn new(context: &Context, subject: &Subject) -> Result<Self, Refusal> {
        let exports = PoolExports::new();
        let tree = Tree::Volumes(subject.pool.name());
        let mount = SimulatedMount::new(context, exports.clone(), tree, Rc::new(NoHost)).map_err(refused)?;
        let mount = Self { exports, mount };
        mount.reopened(subject);
        Ok(mount)
    }

    /// Opens the file of a volume, twice.
    pub(crate) async fn open(&self, name: &str) -> Result<File, Refusal> {
        let first = self.mount.open(name).await.map_err(refused)?;
        let second = self.mount.open(name).await.map_err(refused)?;
        Ok(File { open: [first, second] })
    }

    /// Ends serving the pool, which is about to be closed. Files stay open.
    pub(crate) fn ends(&self, subject: &Subject) {
        self.exports.remove(&subject.pool.name());
    }

    /// Serves the pool, which was opened again.
    pub(crate) fn reopened(&self, subject: &Subject) {
        self.exports.add(subject.pool.clone(), false);
    }
}

/// Reads through a descriptor.
pub(super) async fn read(from: &Descriptor, offset_bytes: u64, length: usize) -> Result<Vec<u8>, Refusal> {
    from.read(offset_bytes, length).await.map_err(refused)
}

/// Writes through a descriptor. `fua`: as one opened with `O_DSYNC`.
pub(super) async fn write(to: &Descriptor, offset_bytes: u64, data: &[u8], fua: bool) -> Result<(), Refusal> {
    match to.write(offset_bytes, data, fua).await {
        Ok(written) if written == data.len() => Ok(()),
        // Beyond the end of a volume that became smaller.
        Ok(_) => Err(refused(io::Error::from_raw_os_error(ENOSPC))),
        Err(error) => Err(refused(error)),
    }
}

/// Zeroes a range through a descriptor; with `fua`, `fsync` follows.
pub(super) async fn write_zeroes(
    to: &Descriptor,
    offset_bytes: u64,
    length: u64,
    fua: bool,
) -> Result<(), Refusal> {
    to.punch_hole(offset_bytes, length).await.map_err(refused)?;
    if fua { sync(to).await } else { Ok(()) }
}

/// `fsync` of a descriptor. Lack of space does not excuse it.
pub(super) async fn sync(of: &Descriptor) -> Result<(), Refusal> {
    let synced = of.sync().await.map_err(refused);
    synced.map_err(|why| Refusal { is_full: false, ..why })
}
