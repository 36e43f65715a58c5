//! Counts of one measured window: requests, bytes, latencies, and stalls.

use hdrhistogram::Histogram;

use super::{POLL_NS, STALL_NS};
use crate::loads::metered::Traffic;

/// One hour: longer latencies count as this.
const LATENCY_LIMIT_NS: u64 = 3_600_000_000_000;

/// Completed requests of one kind in a window.
#[derive(Clone)]
pub struct Tally {
    /// Requests completed without error.
    pub requests: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum of the latencies.
    pub total_latency_ns: u128,
    /// Latencies in nanoseconds, to three digits.
    pub latency_ns: Histogram<u64>,
}

impl Tally {
    /// Creates an empty tally.
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

    /// Adds another tally.
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

/// One measured time window and its completions.
#[derive(Clone)]
pub struct Window {
    /// Start, in the context's clock.
    pub start_ns: u64,
    /// Length.
    pub duration_ns: u64,
    /// Reads.
    pub reads: Tally,
    /// Writes.
    pub writes: Tally,
    /// Requests that failed.
    pub errors: u64,
    /// Total length of periods of at least 0.2 s without a completion; 0 if requests take that long
    /// anyway.
    pub stalled_ns: u64,
    /// Requests to the drives during stalls.
    pub stalled_traffic: Traffic,
    /// Requests to the drives in the whole window.
    pub drive_traffic: Traffic,
    /// Processor time of the process in the window, if known.
    pub cpu_seconds: Option<f64>,
    /// True if the required condition ceased to hold; the window ended then.
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

/// Length limits of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowLimits {
    /// Minimum length.
    pub least_ns: u64,
    /// Minimum length in mean latencies.
    pub least_latencies: f64,
    /// Maximum length.
    pub most_ns: u64,
}

/// Outcome of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadEnd {
    /// Requests that failed over the whole load.
    pub errors: u64,
    /// First error messages.
    pub messages: Vec<String>,
    /// Requests unanswered at the limit; 0 on success.
    pub unanswered: u64,
}

/// Sums up the requests to drives during long periods without a completion, from regular samples.
pub(super) struct StallTraffic {
    completed: u64,
    last: Traffic,
    /// Traffic and number of samples since the last completion.
    pending: (Traffic, u64),
    long: Traffic,
}

impl StallTraffic {
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
        // The samples at both ends of a pause see completions.
        if (looks + 2) * POLL_NS >= STALL_NS {
            self.long = self.long.plus(&traffic);
        }
    }

    pub(super) fn traffic(mut self) -> Traffic {
        self.end();
        self.long
    }
}
