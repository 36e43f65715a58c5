//! Handle of an array for its pool, which may be on another thread.
//!
//! An array and everything in it belong to one thread. A pool reaches its arrays only through
//! handles: with [`ArrayHandle::visit`] it looks at an array, or changes its state in memory,
//! between two steps of the tasks there; with [`ArrayHandle::call`] it has work done there, and
//! awaits the result. What goes in and what comes out is `Send`, so the compiler proves that
//! nothing of an array leaves its thread: drives are named by labels, and locked stripes by a
//! number. Requests of clients have methods of their own ([`BlockArray`]), because buffers belong
//! to a thread, too.
//!
//! ```compile_fail
//! use stripewise_array::{Array, ArrayHandle};
//! # fn leak(handle: &ArrayHandle) {
//! // Buffers are counted without atomics.
//! let buffers = handle.visit(|array: &Array| array.buffers().clone());
//! # }
//! ```
//!
//! Of an array on the shard of its pool each of these is a direct call. An array on another shard
//! is visited there, and its work is sent in messages (`shards/`).

use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use stripewise_drive::{Buffer, BufferPool, Shard};
use stripewise_layout::Geometry;

use crate::array::{Array, ArraySpec};
use crate::block_array::BlockArray;
use crate::error::ArrayError;
use crate::map::extents::Extent;
use crate::member::Class;
use crate::shards::link::{FarArray, ShardLink};
use crate::shards::site::{ArrayPlace, PoolSite};

/// Handle of an array. Clones are the same array.
#[derive(Clone)]
pub struct ArrayHandle(Place);

/// The shard of an array.
#[derive(Clone)]
enum Place {
    /// This one.
    Near(Array),
    /// Another one.
    Far(Rc<FarArray>),
}

impl From<Array> for ArrayHandle {
    /// Handle of an array on this shard.
    fn from(array: Array) -> Self {
        Self(Place::Near(array))
    }
}

impl ArrayHandle {
    /// Has an array made or opened on another shard.
    pub async fn place<F>(
        link: &Rc<ShardLink>,
        make: impl FnOnce(Rc<PoolSite>) -> F + Send + 'static,
    ) -> Result<Self, ArrayError>
    where
        F: Future<Output = Result<Array, ArrayError>>,
    {
        let array = FarArray::make(link, make).await?;
        Ok(Self(Place::Far(Rc::new(array))))
    }

    /// Looks at the array, or changes its state in memory, between two steps of its thread's tasks.
    /// `look` must not wait for anything.
    pub fn visit<R: Send>(&self, look: impl FnOnce(&Array) -> R + Send) -> R {
        match &self.0 {
            Place::Near(array) => look(array),
            Place::Far(array) => array.visit(look),
        }
    }

    /// Runs work on the array's thread, to its end; the result comes back as a message. The caller
    /// must await it, as it must any future of an array.
    pub async fn call<F, R>(&self, work: impl FnOnce(Array) -> F + Send + 'static) -> R
    where
        F: Future<Output = R>,
        R: Send + 'static,
    {
        match &self.0 {
            Place::Near(array) => work(array.clone()).await,
            Place::Far(array) => Box::pin(array.call(work)).await,
        }
    }

    /// The array itself, on its own thread: for tests and measurements.
    pub fn on_this_thread(&self) -> Array {
        match &self.0 {
            Place::Near(array) => array.clone(),
            Place::Far(array) => array.on_this_thread().expect("on this thread"),
        }
    }

    /// Place of the array, for requests that come in there, and its thread; `None` if that is the
    /// pool's.
    pub fn place_elsewhere(&self) -> Option<(ArrayPlace, Arc<dyn Shard>)> {
        match &self.0 {
            Place::Near(_) => None,
            Place::Far(array) => Some(array.place()),
        }
    }

    /// Specification of the array.
    pub fn spec(&self) -> &ArraySpec {
        match &self.0 {
            Place::Near(array) => array.spec(),
            Place::Far(array) => array.spec(),
        }
    }

    /// The array's addresses, for an unbounded length.
    pub fn geometry(&self) -> &Geometry {
        match &self.0 {
            Place::Near(array) => array.geometry(),
            Place::Far(array) => array.geometry(),
        }
    }

    /// As [`BlockArray::read`], for background work.
    pub async fn read_as(
        &self,
        class: Class,
        offset_bytes: u64,
        length: usize,
    ) -> Result<Buffer, ArrayError> {
        match &self.0 {
            Place::Near(array) => array.read_as(class, offset_bytes, length).await,
            Place::Far(array) => Box::pin(read_far(array, class, offset_bytes, length)).await,
        }
    }

    /// As [`BlockArray::write`], for background work.
    pub async fn write_as(
        &self,
        class: Class,
        offset_bytes: u64,
        data: Buffer,
        fua: bool,
    ) -> Result<(), ArrayError> {
        match &self.0 {
            Place::Near(array) => array.write_as(class, offset_bytes, data, fua).await,
            Place::Far(array) => Box::pin(write_far(array, class, offset_bytes, data, fua)).await,
        }
    }

    /// Locks all stripes of these rows, which are in ascending order.
    pub async fn lock_rows(&self, rows: Vec<u64>) -> HeldRows {
        let lock = async move |array: Array| array.keep_held(array.lock_rows(rows).await);
        HeldRows { array: self.clone(), number: self.call(lock).await }
    }

    /// Makes rows unwritten, durably, and keeps their stripes locked: their slabs may be released
    /// before the locks are.
    pub async fn clear_rows(&self, rows: Range<u64>) -> Result<HeldRows, ArrayError> {
        let clear = async move |array: Array| Ok(array.keep_held(array.clear_rows(rows).await?));
        self.call(clear).await.map(|number| HeldRows { array: self.clone(), number })
    }
}

/// Reads on another shard. The memory for the data goes there with the request.
async fn read_far(
    far: &FarArray,
    class: Class,
    offset_bytes: u64,
    length: usize,
) -> Result<Buffer, ArrayError> {
    let spare = far.buffers().spare(length);
    let read = async move |array: Array| {
        array.buffers().keep_spare(spare);
        array.read_as(class, offset_bytes, length).await.map(Buffer::into_moved)
    };
    far.call(read).await.map(|moved| far.buffers().adopt(moved))
}

/// Writes on another shard. Memory in exchange for the data comes back.
async fn write_far(
    far: &FarArray,
    class: Class,
    offset_bytes: u64,
    data: Buffer,
    fua: bool,
) -> Result<(), ArrayError> {
    let length = data.len();
    let moved = data.into_moved();
    let write = async move |array: Array| {
        let data = array.buffers().adopt(moved);
        let written = array.write_as(class, offset_bytes, data, fua).await;
        (written, array.buffers().spare(length))
    };
    let (written, spare) = far.call(write).await;
    far.buffers().keep_spare(spare);
    written
}

/// Exclusive access to rows of an array, until it is dropped.
pub struct HeldRows {
    array: ArrayHandle,
    number: u64,
}

impl Drop for HeldRows {
    fn drop(&mut self) {
        match &self.array.0 {
            Place::Near(array) => array.release_held(self.number),
            Place::Far(array) => array.release_held(self.number),
        }
    }
}

impl BlockArray for ArrayHandle {
    fn capacity_bytes(&self) -> u64 {
        self.visit(Array::capacity_bytes)
    }

    /// Buffers of the caller's thread.
    fn buffers(&self) -> &BufferPool {
        match &self.0 {
            Place::Near(array) => array.buffers(),
            Place::Far(array) => array.buffers(),
        }
    }

    fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.visit(|array| array.check_range(offset_bytes, length_bytes))
    }

    async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        match &self.0 {
            Place::Near(array) => array.read(offset_bytes, length).await,
            _ => Box::pin(self.read_as(Class::Foreground, offset_bytes, length)).await,
        }
    }

    async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        match &self.0 {
            Place::Near(array) => array.write(offset_bytes, data, fua).await,
            _ => Box::pin(self.write_as(Class::Foreground, offset_bytes, data, fua)).await,
        }
    }

    async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        match &self.0 {
            Place::Near(array) => array.write_zeroes(offset_bytes, length_bytes).await,
            _ => self.call(async move |array| array.write_zeroes(offset_bytes, length_bytes).await).await,
        }
    }

    async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        match &self.0 {
            Place::Near(array) => array.discard(offset_bytes, length_bytes).await,
            _ => self.call(async move |array| array.discard(offset_bytes, length_bytes).await).await,
        }
    }

    async fn flush(&self) -> Result<(), ArrayError> {
        match &self.0 {
            Place::Near(array) => array.flush().await,
            _ => self.call(async |array| array.flush().await).await,
        }
    }

    async fn durable_until(&self, start_bytes: u64, end_bytes: u64) -> u64 {
        self.call(async move |array| array.durable_until(start_bytes, end_bytes).await).await
    }

    fn extents(&self, offset_bytes: u64, length_bytes: u64, most: usize) -> Result<Vec<Extent>, ArrayError> {
        self.visit(|array| array.extents(offset_bytes, length_bytes, most))
    }

    fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.visit(|array| array.is_unwritten(offset_bytes, length_bytes))
    }

    fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.visit(|array| array.zeroes_at_once(offset_bytes, length_bytes))
    }

    fn is_abandoned(&self) -> bool {
        self.visit(Array::is_abandoned)
    }

    fn refused_flushes(&self) -> u64 {
        self.visit(Array::refused_flushes)
    }

    fn take_over_refusals(&self, other: &Self) {
        if let Some(error) = other.visit(Array::take_unreported_refusals) {
            self.visit(|array| array.take_over_refusals(error));
        }
    }

    fn journal_fill(&self) -> Option<(u64, u64)> {
        self.visit(Array::journal_fill)
    }
}
