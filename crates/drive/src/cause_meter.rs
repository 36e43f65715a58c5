//! What each purpose costs a drive.
//!
//! A disk pays for positions more than for bytes: a request that begins where the one before it on
//! the drive ended needs no move of the arm. [`CauseMeter`] counts requests, bytes and positions of
//! one drive by cause, in the order in which the drive gets them. A request that was merged from
//! several counts for the cause of its first part. Faults expected: none.

use std::cell::{Cell, RefCell};

use crate::cause::Cause;
use crate::operation::Operation;
use crate::request::IoRequest;

/// What one cause asked of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseCounts {
    /// Requests, as the drive gets them.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests that do not begin where the request before ended. A flush is none.
    pub positions: u64,
}

/// What every cause asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CauseTable([CauseCounts; Cause::ALL.len()]);

impl CauseTable {
    /// Of one cause.
    pub fn of(&self, cause: Cause) -> CauseCounts {
        self.0[cause as usize]
    }

    /// Of one cause, to be changed.
    pub fn of_mut(&mut self, cause: Cause) -> &mut CauseCounts {
        &mut self.0[cause as usize]
    }

    /// The causes that asked anything.
    pub fn used(&self) -> impl Iterator<Item = (Cause, CauseCounts)> + '_ {
        Cause::ALL.into_iter().map(|cause| (cause, self.of(cause))).filter(|(_, counts)| counts.requests > 0)
    }

    /// Of all causes together.
    pub fn total(&self) -> CauseCounts {
        self.0.iter().fold(CauseCounts::default(), |sum, counts| CauseCounts {
            requests: sum.requests + counts.requests,
            bytes: sum.bytes + counts.bytes,
            positions: sum.positions + counts.positions,
        })
    }

    /// Adds what another drive was asked.
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, |own, other| own + other)
    }

    /// What came since an earlier look at the same counters.
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

/// Counts what one drive is asked.
#[derive(Debug, Default)]
pub struct CauseMeter {
    table: RefCell<CauseTable>,
    /// Where the last request ended.
    end_bytes: Cell<u64>,
}

impl CauseMeter {
    /// Counts a request that the drive gets now.
    pub fn note(&self, request: &IoRequest) {
        let cause = if request.operation == Operation::Flush { Cause::Flush } else { request.cause };
        let mut table = self.table.borrow_mut();
        let counts = table.of_mut(cause);
        counts.requests += 1;
        if matches!(request.operation, Operation::Flush | Operation::Discard) {
            return;
        }
        counts.bytes += request.length_bytes;
        counts.positions += u64::from(self.end_bytes.replace(request.end_bytes()) != request.offset_bytes);
    }

    /// What was counted so far.
    pub fn table(&self) -> CauseTable {
        *self.table.borrow()
    }
}
