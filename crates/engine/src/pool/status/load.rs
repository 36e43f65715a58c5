//! What was asked of a volume since it was opened, and how long that took: counted at its door,
//! the caller.
//!
//! Two looks at the clock (65 ns together on the machine of `docs/performance.md`) and one place in
//! a fixed table (4 ns) for each request; nothing is allocated. Latencies are counted in steps, as
//! Prometheus wants its histograms, so that they can be added up over volumes and machines.

use std::cell::{Cell, RefCell};

use stripewise_drive::Context;

use crate::error::ArrayError;
use crate::pool::Pool;

/// The upper ends of the steps in which latencies are counted, nanoseconds; each belongs to its
/// step. What took longer has one step more.
pub const LATENCY_STEPS_NS: [u64; 19] = {
    const US: u64 = 1_000;
    const MS: u64 = 1_000 * US;
    const S: u64 = 1_000 * MS;
    [
        10 * US,
        20 * US,
        50 * US,
        100 * US,
        200 * US,
        500 * US,
        MS,
        2 * MS,
        5 * MS,
        10 * MS,
        20 * MS,
        50 * MS,
        100 * MS,
        200 * MS,
        500 * MS,
        S,
        2 * S,
        5 * S,
        10 * S,
    ]
};

/// What can be asked of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Bytes are read.
    Read,
    /// Bytes are written, durably or not.
    Write,
    /// What was written becomes durable.
    Flush,
    /// What a range holds is no longer needed.
    Discard,
    /// A range is to read as zeros.
    WriteZeroes,
}

impl RequestKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::WriteZeroes];

    /// Its name in figures.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write_zeroes",
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Those that succeeded, by how long they took: one place for each of [`LATENCY_STEPS_NS`], and
    /// one for the rest.
    pub by_latency: [u64; LATENCY_STEPS_NS.len() + 1],
    /// How long these took together, nanoseconds.
    pub total_ns: u64,
    /// Bytes that these were for.
    pub bytes: u64,
    /// Those that ended in an error.
    pub failed: u64,
}

impl RequestCounts {
    /// Those that succeeded.
    pub fn succeeded(&self) -> u64 {
        self.by_latency.iter().sum()
    }

    fn count(&mut self, took_ns: u64, bytes: u64) {
        let step = LATENCY_STEPS_NS.partition_point(|&end_ns| end_ns < took_ns);
        self.by_latency[step] += 1;
        self.total_ns = self.total_ns.saturating_add(took_ns);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// What was asked of a volume since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeLoad {
    /// Its name.
    pub volume: String,
    /// Requests that are not answered yet.
    pub under_way: u64,
    /// By kind, in the order of [`RequestKind::ALL`].
    pub requests: [RequestCounts; RequestKind::ALL.len()],
    /// Bytes in use in its journals and bytes that these have for clients; `None` where it has
    /// none. Part of what is there is kept for putting things in place, so that more may be in use
    /// than clients have.
    pub journal: Option<(u64, u64)>,
}

impl VolumeLoad {
    /// Requests of one kind.
    pub fn of(&self, kind: RequestKind) -> &RequestCounts {
        &self.requests[kind as usize]
    }
}

/// Counts the requests of a volume.
#[derive(Default)]
pub(in crate::pool) struct LoadCounter {
    under_way: Cell<u64>,
    requests: RefCell<[RequestCounts; RequestKind::ALL.len()]>,
}

/// A request under way. One that is given up half-way is not counted.
pub(in crate::pool) struct UnderWay<'a> {
    counter: &'a LoadCounter,
    context: &'a Context,
    begin_ns: u64,
}

impl UnderWay<'_> {
    /// It has come to its end, and was for so many bytes.
    pub(crate) fn ended<T>(self, kind: RequestKind, bytes: u64, result: &Result<T, ArrayError>) {
        let took_ns = self.context.now_ns().saturating_sub(self.begin_ns);
        let counts = &mut self.counter.requests.borrow_mut()[kind as usize];
        match result {
            Ok(_) => counts.count(took_ns, bytes),
            Err(_) => counts.failed += 1,
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.counter.under_way.set(self.counter.under_way.get() - 1);
    }
}

impl LoadCounter {
    /// Requests that are not answered yet.
    pub(crate) fn under_way(&self) -> u64 {
        self.under_way.get()
    }

    /// What was counted, by kind.
    pub(crate) fn requests(&self) -> [RequestCounts; RequestKind::ALL.len()] {
        *self.requests.borrow()
    }

    /// A request begins.
    pub(crate) fn begin<'a>(&'a self, context: &'a Context) -> UnderWay<'a> {
        self.under_way.set(self.under_way.get() + 1);
        UnderWay { counter: self, context, begin_ns: context.now_ns() }
    }
}

impl Pool {
    /// What was asked of each volume that is open, in the order in which they were made.
    pub fn volume_loads(&self) -> Vec<VolumeLoad> {
        let manifest = self.0.manifest.borrow();
        let load = |volume: &crate::pool::manifest::volume_record::VolumeRecord| {
            Some(self.0.volumes.io(volume)?.load_of(&volume.name))
        };
        manifest.volumes.iter().filter_map(load).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_step_belongs_to_it() {
        let mut counts = RequestCounts::default();
        for took_ns in [0, 10_000, 10_001, 10_000_000_000, 10_000_000_001, u64::MAX] {
            counts.count(took_ns, 1);
        }
        let mut expected = [0; LATENCY_STEPS_NS.len() + 1];
        (expected[0], expected[1]) = (2, 1);
        (expected[LATENCY_STEPS_NS.len() - 1], expected[LATENCY_STEPS_NS.len()]) = (1, 2);
        assert_eq!(counts.by_latency, expected);
        assert_eq!((counts.succeeded(), counts.bytes, counts.total_ns), (6, 6, u64::MAX));
        assert!(LATENCY_STEPS_NS.is_sorted());
    }
}
