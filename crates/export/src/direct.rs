//! An export on the thread of a connection: reads and writes that this thread's arrays can serve go
//! to them at once (`pool/src/volume/direct.rs`); all else goes to the thread of the pools.
//!
//! Writes are counted for the volume's losses before they begin, so that a loss which comes with
//! them is reported, and again when they are acknowledged, so that only a later flush covers them.
//! After a loss that the client was not informed of, nothing is served here any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, Context};
use stripewise_pool::DirectVolume;

/// An export of another thread. It can be sent to the thread of a connection.
pub struct DirectExport {
    pub(crate) volume: DirectVolume,
    pub(crate) may_write: bool,
    /// Writes of this client that need a flush to be durable ([`Losses`](crate::Losses)).
    pub(crate) written: Arc<AtomicU64>,
    /// Number of losses of the volume.
    pub(crate) losses: Arc<AtomicU64>,
    /// Number of them that the client was informed of.
    pub(crate) informed: u64,
}

impl DirectExport {
    /// Reads a range; `Some(None)` if nothing was ever written there and `finds_holes`. `None`: the
    /// request is to go to the thread of the pools, also because it failed here.
    pub(crate) async fn read(
        &self,
        context: &Context,
        offset: u64,
        length: usize,
        finds_holes: bool,
    ) -> Option<Option<Buffer>> {
        self.volume.read(context, offset, length, finds_holes).await?.ok()
    }

    /// Writes a range; durable after the next flush. False: the request is to go to the thread of
    /// the pools, also because it failed here.
    pub(crate) async fn write(&self, context: &Context, offset: u64, data: Buffer) -> bool {
        if !self.may_write || self.losses.load(Ordering::Acquire) != self.informed {
            return false;
        }
        self.count();
        let written: Option<Result<(), ArrayError>> = self.volume.write(context, offset, data).await;
        self.count();
        matches!(written, Some(Ok(())))
    }

    /// Only this thread changes the count.
    fn count(&self) {
        self.written.store(self.written.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}
