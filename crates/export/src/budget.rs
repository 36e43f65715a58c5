//! Memory that all connections of a process share, whichever way they came in. It is counted as
//! bytes arrive, not as they are announced, and freed when the answer was taken.
//!
//! A part of it is a reserve for one request at a time that has begun to arrive: where many clients
//! have sent half of something, the first of them gets what it needs to be done, so they never all
//! wait for each other.
//!
//! Expected faults: clients that announce much and send little, or take no answers (time limits end
//! them; those who wait go on then).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stripewise_drive::{Context, Semaphore, SemaphorePermit};

/// Memory for all connections unless something else is asked for.
pub(crate) const CONNECTION_BYTES: u64 = 256 << 20;
/// For the request that is to be finished: as much as the longest needs.
const RESERVE_BYTES: u64 = 32 << 20;
/// How often a request that waits looks whether there is memory.
const LOOK_NS: u64 = 2_000_000;

/// The memory. Clones are the same, on any thread.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

/// Memory that is in use; free again when this is dropped.
#[derive(Debug)]
pub struct Taken {
    budget: Budget,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(CONNECTION_BYTES)
    }
}

impl Budget {
    /// So much for everything; never less than two of the longest requests.
    pub fn new(limit_bytes: u64) -> Self {
        let limit_bytes = limit_bytes.max(2 * RESERVE_BYTES);
        Self(Arc::new(Shared { limit_bytes, used_bytes: AtomicU64::new(0) }))
    }

    /// How much is in use.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Nothing yet, to which more can be added.
    pub fn nothing(&self) -> Taken {
        Taken { budget: self.clone(), bytes: 0 }
    }

    fn try_add(&self, bytes: u64, limit_bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit_bytes);
        self.0.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

impl Taken {
    /// Adds so much, if there is as much beside the reserve.
    pub fn try_add(&mut self, bytes: u64) -> bool {
        let added = self.budget.try_add(bytes, self.budget.0.limit_bytes - RESERVE_BYTES);
        self.bytes += if added { bytes } else { 0 };
        added
    }

    /// Adds so much as the request that is to be finished: from the reserve, too.
    fn try_add_to_finish(&mut self, bytes: u64) -> bool {
        let added = self.budget.try_add(bytes, self.budget.0.limit_bytes);
        self.bytes += if added { bytes } else { 0 };
        added
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.budget.0.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Those of one executor who wait for memory, in their order.
pub struct Line {
    budget: Budget,
    finisher: Semaphore,
}

/// One request's way to its memory.
pub struct Wanted<'a> {
    line: &'a Line,
    context: &'a Context,
    taken: Taken,
    finishes: Option<SemaphorePermit>,
}

impl Line {
    /// For requests that are served from this memory.
    pub fn new(budget: Budget) -> Self {
        Self { budget, finisher: Semaphore::new(1) }
    }

    /// Whether requests wait: then no client may take long.
    pub(crate) fn is_short(&self) -> bool {
        self.finisher.available() == 0
    }

    /// A request that will need memory.
    pub fn wanted<'a>(&'a self, context: &'a Context) -> Wanted<'a> {
        Wanted { line: self, context, taken: self.budget.nothing(), finishes: None }
    }
}

impl Wanted<'_> {
    /// Adds so much, when there is as much.
    pub async fn add(&mut self, bytes: u64) {
        if self.finishes.is_none() {
            if self.taken.try_add(bytes) {
                return;
            }
            self.finishes = Some(self.line.finisher.acquire(1).await);
        }
        while !self.taken.try_add_to_finish(bytes) {
            self.context.sleep_ns(LOOK_NS).await;
        }
    }

    /// Whether other requests wait for memory.
    pub(crate) fn is_short(&self) -> bool {
        self.line.is_short()
    }

    /// All of it, for as long as the request is under way. The next one may be finished.
    pub(crate) fn into_taken(self) -> Taken {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use stripewise_runtime::VirtualExecutor;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn partly_received_requests_do_not_deadlock() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let budget = Budget::new(64 * MIB);
            let line = Rc::new(Line::new(budget.clone()));
            let work = |parts: u64| {
                let (line, context) = (line.clone(), context.clone());
                async move {
                    let mut wanted = line.wanted(&context);
                    for _ in 0..parts {
                        wanted.add(MIB).await;
                        // The next part takes a while to come.
                        context.sleep_ns(1_000_000).await;
                    }
                    drop(wanted.into_taken());
                }
            };
            let all: Vec<_> = (0..20).map(|_| context.spawn(work(32))).collect();
            let most = {
                let mut most = 0;
                for _ in 0..50 {
                    context.sleep_ns(1_000_000).await;
                    most = budget.used_bytes().max(most);
                }
                most
            };
            assert!(most <= 64 * MIB && line.is_short(), "{most}");
            for work in all {
                work.await;
            }
            assert_eq!(budget.used_bytes(), 0, "all is given back");
            assert!(!line.is_short());
        });
    }
}
