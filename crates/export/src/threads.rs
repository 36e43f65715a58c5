//! Threads beside that of the pools, for arrays and connections.

use std::io;

use stripewise_drive::BufferPool;
use stripewise_pool::ArrayThread;
use stripewise_runtime::RealExecutor;

/// Memory for requests that each thread keeps for reuse, bytes.
const KEPT_BYTES: usize = 64 << 20;

/// Maximum threads of a daemon, that of the pools included.
pub const MAX_THREADS: usize = 8;

/// Starts threads, until there are `threads` with that of `executor`. Pools that are opened from
/// now on spread their volumes over all of them; servers use them by
/// [`Server::use_shards`](crate::nbd::Server::use_shards).
///
/// # Errors
/// The system's error if a thread or its ring cannot be made.
pub fn start_threads(executor: &RealExecutor, threads: usize) -> io::Result<()> {
    executor.start_shards(threads.saturating_sub(1), |executor| {
        ArrayThread::enter(&executor.context(), &BufferPool::new(KEPT_BYTES))
    })
}
