//! What a server needs of what it exports.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool, Event};
use stripewise_engine::{ArrayError, Extent};

use crate::edges::EdgeGate;

/// Something clients read and write as a block device. Offsets and lengths that it is asked for are
/// multiples of [`SECTOR_BYTES`](crate::SECTOR_BYTES) and within its size when asked; errors are
/// the engine's. Its futures are driven to their end.
pub trait Export: 'static {
    /// Its size now, bytes.
    fn size_bytes(&self) -> u64;
    /// Whether nothing may be written.
    fn is_read_only(&self) -> bool;
    /// The request that pays best, bytes: a power of two from 512 on.
    fn preferred_bytes(&self) -> u32;
    /// What it is, for people.
    fn description(&self) -> String;
    /// Where requests' buffers come from.
    fn buffers(&self) -> &BufferPool;
    /// Keeps writes of parts of sectors apart; the same for everybody who writes there.
    fn edges(&self) -> &EdgeGate;
    /// Whether it is over with it; the same for everybody who has it.
    fn ending(&self) -> &Ending;
    /// Reads; the buffer is the caller's.
    fn read(&self, offset_bytes: u64, length: usize) -> impl Future<Output = Result<Buffer, ArrayError>>;
    /// Writes; durable when this ends if `fua`, else after the next flush.
    fn write(
        &self,
        offset_bytes: u64,
        data: Buffer,
        fua: bool,
    ) -> impl Future<Output = Result<(), ArrayError>>;
    /// Makes durable what was acknowledged, whoever wrote it.
    fn flush(&self) -> impl Future<Output = Result<(), ArrayError>>;
    /// The range's contents are no longer needed.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> impl Future<Output = Result<(), ArrayError>>;
    /// The range reads as zeros afterwards.
    fn write_zeroes(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> impl Future<Output = Result<(), ArrayError>>;
    /// What of the range was ever written, from its beginning on, at most `most` stretches.
    fn extents(&self, offset_bytes: u64, length_bytes: u64, most: usize) -> Result<Vec<Extent>, ArrayError>;
    /// Whether the range reads as zeros because nothing was ever written there.
    fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError>;
    /// Whether zeroing the range is much faster than writing it.
    fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError>;
}

/// Tells those who use an export that there is no such export any more: its pool was closed, or it
/// was deleted. It will not be there again, but another one of the same name may.
#[derive(Default)]
pub struct Ending {
    has_begun: Cell<bool>,
    changed: Event,
}

impl Ending {
    /// From now on.
    pub fn begin(&self) {
        self.has_begun.set(true);
        self.changed.notify_all();
    }

    /// Whether it has.
    pub fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Ends when it has.
    pub async fn until_begun(&self) {
        while !self.has_begun.get() {
            self.changed.wait().await;
        }
    }
}

/// What there is to connect to, at any moment.
pub trait Exports: 'static {
    /// One of them.
    type Export: Export;
    /// The export of that name. As long as anybody has one, it is the same one.
    fn find(&self, name: &str) -> Option<Rc<Self::Export>>;
    /// All names, in the order in which they are listed.
    fn list(&self) -> Vec<String>;
}
