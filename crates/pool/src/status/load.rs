//! Load of a volume since it was opened: its requests and their latencies, counted where callers
//! enter the volume.
//!
//! Each request costs two reads of the clock (65 ns together on the machine of
//! `docs/performance.md`) and one update of a fixed table (4 ns), without allocation. Latencies are
//! counted in steps, like Prometheus histograms, so that they can be added up over volumes and
//! machines.

use std::cell::{Cell, RefCell};

use stripewise_drive::Context;

use crate::Pool;
use stripewise_array::ArrayError;

/// Inclusive upper bounds of the latency steps, nanoseconds. Slower requests count in one further
/// step.
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

/// Kind of request to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads bytes.
    Read,
    /// Writes bytes, durably or not.
    Write,
    /// Makes completed writes durable.
    Flush,
    /// Discards the content of a range.
    Discard,
    /// Makes a range read as zeros.
    WriteZeroes,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::WriteZeroes];

    /// Name in statistics.
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

/// Counters of the requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Successful requests by latency: one entry for each of [`LATENCY_STEPS_NS`], and one for
    /// slower requests.
    pub by_latency: [u64; LATENCY_STEPS_NS.len() + 1],
    /// Total time of the successful requests, nanoseconds.
    pub total_ns: u64,
    /// Total bytes of the successful requests.
    pub bytes: u64,
    /// Number of failed requests.
    pub failed: u64,
}

impl RequestCounts {
    /// Number of successful requests.
    pub fn succeeded(&self) -> u64 {
        self.by_latency.iter().sum()
    }

    /// Adds counters of other requests.
    pub(crate) fn add(&mut self, more: &Self) {
        self.by_latency.iter_mut().zip(more.by_latency).for_each(|(sum, more)| *sum += more);
        self.total_ns = self.total_ns.saturating_add(more.total_ns);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.failed += more.failed;
    }

    pub(crate) fn count(&mut self, took_ns: u64, bytes: u64) {
        let step = LATENCY_STEPS_NS.partition_point(|&end_ns| end_ns < took_ns);
        self.by_latency[step] += 1;
        self.total_ns = self.total_ns.saturating_add(took_ns);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Load of a volume since it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeLoad {
    /// Name of the volume.
    pub volume: String,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Counters by kind, in the order of [`RequestKind::ALL`].
    pub requests: [RequestCounts; RequestKind::ALL.len()],
    /// Bytes in use in its journals, and bytes that these have for clients; `None` without a
    /// journal. Part of the space is reserved for destaging, so more may be in use than clients
    /// have.
    pub journal: Option<(u64, u64)>,
}

impl VolumeLoad {
    /// Counters of the requests of one kind.
    pub fn of(&self, kind: RequestKind) -> &RequestCounts {
        &self.requests[kind as usize]
    }
}

/// Counts the requests to a volume.
#[derive(Default)]
pub(crate) struct LoadCounter {
    in_flight: Cell<u64>,
    requests: RefCell<[RequestCounts; RequestKind::ALL.len()]>,
}

/// A request in flight. If it is dropped before it has ended it is not counted.
pub(crate) struct InFlight<'a> {
    counter: &'a LoadCounter,
    context: &'a Context,
    begin_ns: u64,
}

impl InFlight<'_> {
    /// Counts the request, which was for `bytes`, by its result.
    pub(crate) fn ended<T>(self, kind: RequestKind, bytes: u64, result: &Result<T, ArrayError>) {
        let took_ns = self.context.now_ns().saturating_sub(self.begin_ns);
        let counts = &mut self.counter.requests.borrow_mut()[kind as usize];
        match result {
            Ok(_) => counts.count(took_ns, bytes),
            Err(_) => counts.failed += 1,
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.counter.in_flight.set(self.counter.in_flight.get() - 1);
    }
}

impl LoadCounter {
    /// Number of requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    /// Counters by kind.
    pub(crate) fn requests(&self) -> [RequestCounts; RequestKind::ALL.len()] {
        *self.requests.borrow()
    }

    /// Begins a request.
    pub(crate) fn begin<'a>(&'a self, context: &'a Context) -> InFlight<'a> {
        self.in_flight.set(self.in_flight.get() + 1);
        InFlight { counter: self, context, begin_ns: context.now_ns() }
    }
}

impl Pool {
    /// Loads of the open volumes, in the order of their creation.
    pub fn volume_loads(&self) -> Vec<VolumeLoad> {
        let manifest = self.0.manifest.borrow();
        let load = |volume: &crate::manifest::volume_record::VolumeRecord| {
            Some(self.0.volumes.io(volume)?.load_of(&volume.name))
        };
        let of_clone = |(volume, clone): (&_, &crate::manifest::clone_record::CloneRecord)| {
            Some(self.0.volumes.clone_io(volume, clone)?.load_of(&clone.name))
        };
        manifest.volumes.iter().filter_map(load).chain(manifest.clones().filter_map(of_clone)).collect()
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
