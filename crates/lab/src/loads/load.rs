//! The native driver: keeps a workload's requests in flight against a target and measures them, in
//! the context's clock.
//!
//! A [`Load`] is started, ramped up, measured in one or several windows, and stopped; in between
//! the caller can pull a drive or start a rebuild. The same code runs in real and in virtual time.
//! One task per request in flight; a request costs no allocation, one clock read and one histogram
//! entry. Expects targets that fail (counted, reported, throttled), that always answer at once
//! (tasks yield), and that stop answering (`stop` has a limit).

mod task;
#[cfg(test)]
mod tests;
mod window;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{Context, JoinHandle};

use self::task::{Shared, keep_one_in_flight};
use self::window::StallTraffic;
pub use self::window::{LoadEnd, Tally, Window, WindowLimits};
use crate::loads::contents::Contents;
use crate::loads::metered::Traffic;
use crate::loads::target::Target;
use crate::loads::workload::{Workload, WorkloadError, random_stream};

/// Minimum length of a reported stall, if answers otherwise arrive much faster.
const STALL_NS: u64 = 200_000_000;
/// Poll interval of waiting loops.
const POLL_NS: u64 = 20_000_000;

/// Counts completions for an observer, over one load or several in sequence.
#[derive(Debug, Default)]
pub struct Pulse {
    requests: Cell<u64>,
    latency_ns: Cell<u64>,
    longest_ns: Cell<u64>,
}

/// Requests completed since the previous take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// Number of completed requests.
    pub requests: u64,
    /// Sum of their latencies.
    pub latency_ns: u64,
    /// Longest latency.
    pub longest_ns: u64,
}

impl Beat {
    /// Mean latency in microseconds; 0 if nothing completed.
    pub fn mean_us(&self) -> f64 {
        self.latency_ns as f64 / 1e3 / self.requests.max(1) as f64
    }
}

impl Pulse {
    fn count(&self, latency_ns: u64) {
        self.requests.set(self.requests.get() + 1);
        self.latency_ns.set(self.latency_ns.get().saturating_add(latency_ns));
        self.longest_ns.set(self.longest_ns.get().max(latency_ns));
    }

    /// Returns and resets the counts.
    pub fn take(&self) -> Beat {
        Beat {
            requests: self.requests.take(),
            latency_ns: self.latency_ns.take(),
            longest_ns: self.longest_ns.take(),
        }
    }
}

/// A running workload.
pub struct Load<T: Target> {
    shared: Rc<Shared<T>>,
    tasks: Vec<JoinHandle<()>>,
    outstanding: u64,
}

impl<T: Target> Load<T> {
    /// Starts all requests of `workload` on `target`. Writes carry this phase's bytes of
    /// `contents`, or arbitrary memory of the pool. `moved_bytes` grows with every completed
    /// request, for an observer.
    pub fn start(
        context: &Context,
        target: &T,
        workload: &Workload,
        contents: Option<Rc<Contents>>,
        moved_bytes: &Rc<Cell<u64>>,
    ) -> Result<Self, WorkloadError> {
        let start_ns = context.now_ns();
        let capacity_bytes =
            contents.as_ref().map_or(target.capacity_bytes(), |contents| contents.covered_bytes());
        let shared = Rc::new(Shared {
            context: context.clone(),
            target: target.clone(),
            workload: workload.resolve(capacity_bytes)?,
            contents,
            stopping: Cell::new(false),
            recording: Cell::new(false),
            window: RefCell::new(Window::new(start_ns)),
            completed: Cell::new(0),
            last_completion_ns: Cell::new(start_ns),
            in_flight: Cell::new(0),
            errors: Cell::new(0),
            messages: RefCell::new(Vec::new()),
            moved_bytes: moved_bytes.clone(),
            pulses: RefCell::default(),
            next_due_ns: Cell::new(start_ns),
            arrival: workload.arrival,
            think_ns: workload.think_us.saturating_mul(1000),
            flush_every: workload.flush_every,
            fua_every: workload.fua_every,
            discards: workload.discards,
            requests_left: Cell::new(workload.most_requests.unwrap_or(u64::MAX)),
            bytes_left: Cell::new(workload.most_bytes.unwrap_or(u64::MAX)),
            gave_way_ns: Cell::new(start_ns),
        });
        let mut tasks = Vec::new();
        for job in 0..workload.jobs {
            let cursor = shared.workload.cursor(job);
            for task in 0..workload.depth {
                let stream = (u64::from(job) << 32) | u64::from(task);
                let random = random_stream(workload.seed, stream);
                tasks.push(context.spawn(keep_one_in_flight(shared.clone(), job, cursor.clone(), random)));
            }
        }
        Ok(Self { shared, tasks, outstanding: workload.outstanding() })
    }

    /// Also counts every request that completes from now on in `pulse`.
    pub(crate) fn count_in(&self, pulse: &Rc<Pulse>) {
        self.shared.pulses.borrow_mut().push(pulse.clone());
    }

    /// Requests completed since the start, without failed ones.
    pub fn completed(&self) -> u64 {
        self.shared.completed.get()
    }

    /// Requests failed since the start.
    pub fn errors(&self) -> u64 {
        self.shared.errors.get()
    }

    /// True if a load that ends by itself has ended.
    pub fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    /// Waits for at least `least_ns` and until the number of completed requests reaches the number
    /// in flight, so that the initial burst is over; but not longer than `most_ns`.
    pub async fn ramp_up(&self, least_ns: u64, most_ns: u64) {
        let start = self.shared.context.now_ns();
        let before = self.completed();
        self.shared.context.sleep_ns(least_ns).await;
        while self.completed() - before < self.outstanding {
            let left = (start + most_ns).saturating_sub(self.shared.context.now_ns());
            if left == 0 {
                break;
            }
            self.shared.context.sleep_ns(left.min(POLL_NS)).await;
        }
    }

    /// Records all completions in a window, and its surroundings.
    pub async fn measure(&self, limits: &WindowLimits, around: &Surroundings<'_>) -> Window {
        let shared = &self.shared;
        let Surroundings { cpu_seconds, drive_traffic, holds } = around;
        let (cpu_before, traffic_before) = (cpu_seconds(), drive_traffic());
        let mut silence = StallTraffic::new(self.completed(), traffic_before);
        let errors_before = self.errors();
        let start_ns = shared.context.now_ns();
        *shared.window.borrow_mut() = Window::new(start_ns);
        shared.recording.set(true);
        let mut interrupted = false;
        loop {
            let now_ns = shared.context.now_ns();
            interrupted |= !holds() || shared.is_over();
            let so_far_ns = now_ns - start_ns;
            let mean_ns = shared.window.borrow().mean_latency_ns().unwrap_or(f64::INFINITY);
            let wanted_ns = (limits.least_latencies * mean_ns).min(limits.most_ns as f64) as u64;
            let wanted_ns = wanted_ns.max(limits.least_ns);
            if interrupted || so_far_ns >= wanted_ns {
                break;
            }
            shared.context.sleep_ns((wanted_ns - so_far_ns).min(POLL_NS)).await;
            silence.look(self.completed(), drive_traffic());
        }
        shared.recording.set(false);
        let mut window = shared.window.replace(Window::new(start_ns));
        // A load that ended by itself ended with its last answer, not at the next poll.
        let end_ns = if shared.is_over() { shared.last_completion_ns.get() } else { shared.context.now_ns() };
        window.duration_ns = end_ns.saturating_sub(start_ns);
        let ordinary_gap_ns = window.duration_ns / window.requests().max(1);
        if ordinary_gap_ns > STALL_NS / 10 {
            window.stalled_ns = 0;
        }
        if window.stalled_ns > 0 {
            window.stalled_traffic = silence.traffic();
        }
        window.drive_traffic = drive_traffic().since(&traffic_before);
        window.errors = self.errors() - errors_before;
        window.cpu_seconds = cpu_before.zip(cpu_seconds()).map(|(before, after)| (after - before).max(0.0));
        window.interrupted = interrupted;
        window
    }

    /// Starts no more requests and waits for those in flight, for at most `limit_ns`.
    pub async fn stop(mut self, limit_ns: u64) -> LoadEnd {
        self.shared.stopping.set(true);
        let deadline_ns = self.shared.context.now_ns().saturating_add(limit_ns);
        for task in self.tasks.drain(..) {
            let left_ns = deadline_ns.saturating_sub(self.shared.context.now_ns());
            if self.shared.context.time_limit_ns(left_ns, task).await.is_err() {
                break;
            }
        }
        let shared = &self.shared;
        LoadEnd {
            errors: shared.errors.get(),
            messages: shared.messages.borrow().clone(),
            unanswered: shared.in_flight.get(),
        }
    }
}

/// Counters and conditions of a window besides the clock.
pub struct Surroundings<'a> {
    /// Processor time of the process so far, if known.
    pub cpu_seconds: &'a dyn Fn() -> Option<f64>,
    /// Requests to all drives together so far.
    pub drive_traffic: &'a dyn Fn() -> Traffic,
    /// Polled condition; once it is false the window ends, marked as interrupted.
    pub holds: &'a dyn Fn() -> bool,
}

impl Surroundings<'static> {
    /// Only the clock.
    pub fn unknown() -> Self {
        Self { cpu_seconds: &|| None, drive_traffic: &Traffic::default, holds: &|| true }
    }
}

impl<T: Target> Drop for Load<T> {
    fn drop(&mut self) {
        self.shared.stopping.set(true);
    }
}
