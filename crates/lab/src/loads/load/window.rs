//! What is counted in one stretch of measuring: requests, bytes, latencies, and the times in which
//! nothing was answered.

use hdrhistogram::Histogram;

use super::{POLL_NS, STALL_NS};
use crate::loads::metered::Traffic;

/// One hour: latencies above it count as this.
const LATENCY_LIMIT_NS: u64 = 3_600_000_000_000;

/// Requests of one kind completed in a window.
#[derive(Clone)]
pub struct Tally {
    /// Completed without error.
    pub requests: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Sum of their latencies.
    pub total_latency_ns: u128,
    /// Their latencies in nanoseconds, to three digits.
    pub latency_ns: Histogram<u64>,
}

impl Tally {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            requests: 0,
            bytes: 0,
            total_latency_ns: 0,
            latency_ns: Histogram::new_with_bounds(1, LATENCY_LIMIT_NS, 3).expect("valid bounds"),
        }
    }

    pub(super) fn record(&mut self, bytes: u64, latency_ns: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.total_latency_ns += u128::from(latency_ns);
        self.latency_ns.saturating_record(latency_ns);
    }

    /// Adds everything of another tally.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.total_latency_ns += other.total_latency_ns;
        self.latency_ns.add(&other.latency_ns).expect("same bounds");
    }

    /// Mean latency; `None` without requests.
    pub(crate) fn mean_latency_ns(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.total_latency_ns as f64 / self.requests as f64)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self::new()
    }
}

/// One measured stretch of time: what completed within it.
#[derive(Clone)]
pub struct Window {
    /// When it began, in the context's clock.
    pub start_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// Reads.
    pub reads: Tally,
    /// Writes.
    pub writes: Tally,
    /// Requests that failed.
    pub errors: u64,
    /// Times of 0.2 s and more in which nothing completed, added up; none where a request takes
    /// that long anyway.
    pub stalled_ns: u64,
    /// What the drives were asked while nothing completed.
    pub stalled_traffic: Traffic,
    /// What they were asked all the time.
    pub drive_traffic: Traffic,
    /// Processor time the process used meanwhile, where it is known.
    pub cpu_seconds: Option<f64>,
    /// The condition that had to hold all through stopped holding; the window ended there.
    pub interrupted: bool,
}

impl Window {
    pub(super) fn new(start_ns: u64) -> Self {
        Self {
            start_ns,
            duration_ns: 0,
            reads: Tally::new(),
            writes: Tally::new(),
            errors: 0,
            stalled_ns: 0,
            stalled_traffic: Traffic::default(),
            drive_traffic: Traffic::default(),
            cpu_seconds: None,
            interrupted: false,
        }
    }

    /// Bytes moved both ways.
    pub fn bytes(&self) -> u64 {
        self.reads.bytes + self.writes.bytes
    }

    /// Requests completed.
    pub fn requests(&self) -> u64 {
        self.reads.requests + self.writes.requests
    }

    /// Throughput in 10^6 bytes a second.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes() as f64 * 1e3 / self.duration_ns.max(1) as f64
    }

    /// Requests a second.
    pub fn iops(&self) -> f64 {
        self.requests() as f64 * 1e9 / self.duration_ns.max(1) as f64
    }

    /// Mean latency of reads and writes together; `None` without requests.
    pub(crate) fn mean_latency_ns(&self) -> Option<f64> {
        let total = self.reads.total_latency_ns + self.writes.total_latency_ns;
        (self.requests() > 0).then(|| total as f64 / self.requests() as f64)
    }
}

/// How long a window is.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// At least this long ...
    pub least_ns: u64,
    /// ... and at least this many mean latencies ...
    pub least_latencies: f64,
    /// ... but not longer than this.
    pub most_ns: u64,
}

/// How a load ended.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadEnd {
    /// Requests that failed over the whole load.
    pub errors: u64,
    /// The first few of their messages.
    pub messages: Vec<String>,
    /// Requests that had not been answered when the limit was reached; 0 is how it should be.
    pub unanswered: u64,
}

/// Adds up what drives were asked while no request completed for long, from regular looks.
pub(super) struct Silence {
    completed: u64,
    last: Traffic,
    /// Since the last request completed, and in how many looks.
    pending: (Traffic, u64),
    long: Traffic,
}

impl Silence {
    pub(super) fn new(completed: u64, traffic: Traffic) -> Self {
        Self { completed, last: traffic, pending: Default::default(), long: Traffic::default() }
    }

    pub(super) fn look(&mut self, completed: u64, traffic: Traffic) {
        let since = traffic.since(&self.last);
        self.last = traffic;
        if completed == self.completed {
            self.pending = (self.pending.0.plus(&since), self.pending.1 + 1);
        } else {
            self.completed = completed;
            self.end();
        }
    }

    fn end(&mut self) {
        let (traffic, looks) = std::mem::take(&mut self.pending);
        // The looks at both ends of a pause see requests complete.
        if (looks + 2) * POLL_NS >= STALL_NS {
            self.long = self.long.plus(&traffic);
        }
    }

    pub(super) fn traffic(mut self) -> Traffic {
        self.end();
        self.long
    }
}
