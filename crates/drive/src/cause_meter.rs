//! Cost of each cause on a drive.
//!
//! A disk pays more for seeks than for bytes: a request that begins where the previous one on the
//! drive ended needs no seek. [`CauseMeter`] counts requests, bytes and positions (seeks) of one
//! drive by cause, in the order in which the drive receives them. A request merged from several
//! counts for the cause of its first part. Faults expected: none.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::cause::Cause;
use crate::operation::Operation;
use crate::request::IoRequest;

/// Requests to a drive for one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseCounts {
    /// Number of requests, as the drive receives them.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Number of requests that do not begin where the previous one ended. Flushes do not count.
    pub positions: u64,
}

/// Requests by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseTable([CauseCounts; Cause::ALL.len()]);

impl CauseTable {
    /// Counts of `cause`.
    pub fn of(&self, cause: Cause) -> CauseCounts {
        self.0[cause as usize]
    }

    /// Mutable counts of `cause`.
    pub fn of_mut(&mut self, cause: Cause) -> &mut CauseCounts {
        &mut self.0[cause as usize]
    }

    /// Causes with at least one request.
    pub fn used(&self) -> impl Iterator<Item = (Cause, CauseCounts)> + '_ {
        Cause::ALL.into_iter().map(|cause| (cause, self.of(cause))).filter(|(_, counts)| counts.requests > 0)
    }

    /// Sum over all causes.
    pub fn total(&self) -> CauseCounts {
        self.0.iter().fold(CauseCounts::default(), |sum, counts| CauseCounts {
            requests: sum.requests + counts.requests,
            bytes: sum.bytes + counts.bytes,
            positions: sum.positions + counts.positions,
        })
    }

    /// Adds the counts of another drive.
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, |own, other| own + other)
    }

    /// Difference from an earlier snapshot of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn with(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let mut table = *self;
        for (own, other) in table.0.iter_mut().zip(&other.0) {
            own.requests = combine(own.requests, other.requests);
            own.bytes = combine(own.bytes, other.bytes);
            own.positions = combine(own.positions, other.positions);
        }
        table
    }
}

/// Counts the requests of one thread to one drive. Other threads may look at the counts.
#[derive(Debug, Default)]
pub struct CauseMeter {
    /// Requests, bytes and positions of each cause.
    counts: [[AtomicU64; 3]; Cause::ALL.len()],
    /// End of the last request.
    end_bytes: AtomicU64,
}

impl CauseMeter {
    /// Counts a request that the drive is about to receive.
    pub fn note(&self, request: &IoRequest) {
        let cause = if request.operation == Operation::Flush { Cause::Flush } else { request.cause };
        let [requests, bytes, positions] = &self.counts[cause as usize];
        add(requests, 1);
        if matches!(request.operation, Operation::Flush | Operation::Discard) {
            return;
        }
        add(bytes, request.length_bytes);
        add(positions, u64::from(self.end_bytes.load(Relaxed) != request.offset_bytes));
        self.end_bytes.store(request.end_bytes(), Relaxed);
    }

    /// Counts so far.
    pub fn table(&self) -> CauseTable {
        CauseTable(self.counts.each_ref().map(|counts| {
            let [requests, bytes, positions] = counts.each_ref().map(|count| count.load(Relaxed));
            CauseCounts { requests, bytes, positions }
        }))
    }
}

/// Adds to a count that one thread changes.
fn add(count: &AtomicU64, number: u64) {
    count.store(count.load(Relaxed) + number, Relaxed);
}
