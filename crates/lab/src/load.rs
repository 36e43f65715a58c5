//! The native driver: keeps a workload's requests in flight against a target and measures them, in the context's clock.
//!
//! A [`Load`] is started, ramped up, measured in one or several windows, and stopped; in between the caller can pull a
//! drive or start a rebuild. The same code runs in real and in virtual time. One task per request in flight; per request
//! there is no allocation, one look at the clock and one histogram entry. Expects targets that fail (counted, told, slowed
//! down), that answer at once for ever (tasks give way to others), and that stop answering (`stop` has a limit).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use hdrhistogram::Histogram;
use stripewise_drive::{Buffer, Context, JoinHandle, SplitMix64, yield_now};

use crate::contents::Contents;
use crate::metered::Traffic;
use crate::target::Target;
use crate::workload::{Arrival, Choice, JobCursor, ResolvedWorkload, Workload, WorkloadError, random_stream};

/// After this many answers without a wait a task lets the others run.
const AT_ONCE_LIMIT: u32 = 16;
/// How long a task pauses after an error, so that a dead target is not asked a million times a second.
const ERROR_PAUSE_NS: u64 = 1_000_000;
/// How many error messages are kept; the rest are only counted.
const MESSAGES_KEPT: usize = 5;
/// A time without any answer that is worth telling of, where answers otherwise come much faster.
const STALL_NS: u64 = 200_000_000;
/// One hour: latencies above it count as this.
const LATENCY_LIMIT_NS: u64 = 3_600_000_000_000;
/// How often waiting loops look whether they can go on.
const POLL_NS: u64 = 20_000_000;

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

    fn record(&mut self, bytes: u64, latency_ns: u64) {
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
    pub fn mean_latency_ns(&self) -> Option<f64> {
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
    /// Times of 0.2 s and more in which nothing completed, added up; none where a request takes that long anyway.
    pub stalled_ns: u64,
    /// What the drives were asked while nothing completed.
    pub stalled_traffic: Traffic,
    /// Processor time the process used meanwhile, where it is known.
    pub cpu_seconds: Option<f64>,
    /// The condition that had to hold all through stopped holding; the window ended there.
    pub interrupted: bool,
}

impl Window {
    fn new(start_ns: u64) -> Self {
        Self {
            start_ns,
            duration_ns: 0,
            reads: Tally::new(),
            writes: Tally::new(),
            errors: 0,
            stalled_ns: 0,
            stalled_traffic: Traffic::default(),
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
    pub fn mean_latency_ns(&self) -> Option<f64> {
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

struct Shared<T> {
    context: Context,
    target: T,
    workload: ResolvedWorkload,
    contents: Option<Rc<Contents>>,
    stopping: Cell<bool>,
    recording: Cell<bool>,
    window: RefCell<Window>,
    completed: Cell<u64>,
    last_completion_ns: Cell<u64>,
    in_flight: Cell<u64>,
    errors: Cell<u64>,
    messages: RefCell<Vec<String>>,
    moved_bytes: Rc<Cell<u64>>,
    /// When the next request is due, where requests have their time.
    next_due_ns: Cell<u64>,
    arrival: Arrival,
    think_ns: u64,
    flush_every: u32,
    /// The clock at the last time any task gave way: a clock that stands still is helped along.
    gave_way_ns: Cell<u64>,
}

/// A running workload.
pub struct Load<T: Target> {
    shared: Rc<Shared<T>>,
    tasks: Vec<JoinHandle<()>>,
    outstanding: u64,
}

impl<T: Target> Load<T> {
    /// Starts all requests of `workload` on `target`. Writes carry this phase's bytes of `contents`, or whatever the pool's
    /// memory holds. `moved_bytes` grows with every request that completes, for whoever watches from beside.
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
            next_due_ns: Cell::new(start_ns),
            arrival: workload.arrival,
            think_ns: workload.think_us.saturating_mul(1000),
            flush_every: workload.flush_every,
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

    /// Requests completed since the start, failed ones not counted.
    pub fn completed(&self) -> u64 {
        self.shared.completed.get()
    }

    /// Requests that failed since the start.
    pub fn errors(&self) -> u64 {
        self.shared.errors.get()
    }

    /// Waits for at least `least_ns` and until as many requests have completed as are kept in flight, so that the burst of
    /// the start is over; but not longer than `most_ns`.
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

    /// Records everything that completes in a window, and what is seen around it.
    pub async fn measure(&self, limits: &WindowLimits, around: &Surroundings<'_>) -> Window {
        let shared = &self.shared;
        let Surroundings { cpu_seconds, drive_traffic, holds } = around;
        let cpu_before = cpu_seconds();
        let mut silence = Silence::new(self.completed(), drive_traffic());
        let errors_before = self.errors();
        let start_ns = shared.context.now_ns();
        *shared.window.borrow_mut() = Window::new(start_ns);
        shared.recording.set(true);
        let mut interrupted = false;
        loop {
            let now_ns = shared.context.now_ns();
            interrupted |= !holds();
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
        window.duration_ns = shared.context.now_ns() - start_ns;
        let ordinary_gap_ns = window.duration_ns / window.requests().max(1);
        if ordinary_gap_ns > STALL_NS / 10 {
            window.stalled_ns = 0;
        }
        if window.stalled_ns > 0 {
            window.stalled_traffic = silence.traffic();
        }
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

/// What a window is measured against, besides the clock.
pub struct Surroundings<'a> {
    /// Processor time the process used so far, where it is known.
    pub cpu_seconds: &'a dyn Fn() -> Option<f64>,
    /// What the drives were asked so far, all together.
    pub drive_traffic: &'a dyn Fn() -> Traffic,
    /// Asked again and again; when it says no the window ends, marked as interrupted.
    pub holds: &'a dyn Fn() -> bool,
}

impl Surroundings<'static> {
    /// Only the clock.
    pub fn unknown() -> Self {
        Self { cpu_seconds: &|| None, drive_traffic: &Traffic::default, holds: &|| true }
    }
}

/// Adds up what drives were asked while no request completed for long, from regular looks.
struct Silence {
    completed: u64,
    last: Traffic,
    /// Since the last request completed, and in how many looks.
    pending: (Traffic, u64),
    long: Traffic,
}

impl Silence {
    fn new(completed: u64, traffic: Traffic) -> Self {
        Self { completed, last: traffic, pending: Default::default(), long: Traffic::default() }
    }

    fn look(&mut self, completed: u64, traffic: Traffic) {
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

    fn traffic(mut self) -> Traffic {
        self.end();
        self.long
    }
}

impl<T: Target> Drop for Load<T> {
    fn drop(&mut self) {
        self.shared.stopping.set(true);
    }
}

/// One task: a request, then the next, until the load stops.
async fn keep_one_in_flight<T: Target>(
    shared: Rc<Shared<T>>,
    job: u32,
    cursor: JobCursor,
    mut random: SplitMix64,
) {
    let mut began_ns = shared.context.now_ns();
    let mut at_once = 0;
    let mut unflushed = 0;
    while !shared.stopping.get() {
        if let Some(due_ns) = shared.next_due(&mut random) {
            if !shared.wait_until(due_ns).await {
                break;
            }
            began_ns = if shared.counts_from_due() { due_ns } else { shared.context.now_ns() };
        }
        let choice = shared.workload.choose(&mut random, job, &cursor);
        shared.in_flight.set(shared.in_flight.get() + 1);
        let (result, waited) = noting_waits(one_request(&shared, choice)).await;
        shared.in_flight.set(shared.in_flight.get() - 1);
        let ended_ns = shared.context.now_ns();
        match result {
            Ok(()) => shared.record(choice, began_ns, ended_ns),
            Err(error) => {
                shared.note_error(&error);
                shared.context.sleep_ns(ERROR_PAUSE_NS).await;
            }
        }
        unflushed += u32::from(!choice.is_read);
        if shared.flush_every > 0 && unflushed >= shared.flush_every {
            unflushed = 0;
            if let Err(error) = shared.target.flush().await {
                shared.note_error(&error);
            }
        }
        if shared.think_ns > 0 {
            shared.context.sleep_ns(shared.think_ns).await;
        }
        at_once = if waited { 0 } else { at_once + 1 };
        if at_once == AT_ONCE_LIMIT {
            at_once = 0;
            shared.give_way(ended_ns).await;
        }
        began_ns = if waited && shared.think_ns == 0 && shared.flush_every == 0 {
            ended_ns
        } else {
            shared.context.now_ns()
        };
    }
}

async fn one_request<T: Target>(shared: &Shared<T>, choice: Choice) -> Result<(), T::Error> {
    if choice.is_read {
        return shared.target.read(choice.offset_bytes, choice.length_bytes).await.map(drop);
    }
    let length = choice.length_bytes as usize;
    let buffer: Buffer = shared.target.buffers().allocate(length);
    let Some(contents) = &shared.contents else {
        return shared.target.write(choice.offset_bytes, buffer).await;
    };
    contents.write_begins(choice.offset_bytes, &buffer);
    let result = shared.target.write(choice.offset_bytes, buffer).await;
    contents.write_ended(choice.offset_bytes, length, result.is_ok());
    result
}

/// A future's result and whether it ever had to wait.
async fn noting_waits<F: Future>(future: F) -> (F::Output, bool) {
    let mut future = pin!(future);
    let mut waited = false;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready((output, waited)),
        Poll::Pending => {
            waited = true;
            Poll::Pending
        }
    })
    .await
}

impl<T> Shared<T> {
    /// When the next request of any task is due; `None` where requests follow answers.
    fn next_due(&self, random: &mut SplitMix64) -> Option<u64> {
        let gap_ns = match self.arrival {
            Arrival::Closed => return None,
            Arrival::Fixed(rate) | Arrival::Limited(rate) => 1e9 / rate,
            Arrival::Poisson(rate) => random.exponential(1e9 / rate),
        };
        let now_ns = self.context.now_ns();
        let due_ns = self.next_due_ns.get();
        // A limit is no debt: what was not used is gone.
        let due_ns = if self.counts_from_due() { due_ns } else { due_ns.max(now_ns) };
        self.next_due_ns.set(due_ns.saturating_add((gap_ns as u64).max(1)));
        Some(due_ns)
    }

    /// Open loops count from the intended moment, else a slow answer would hide the requests it held back.
    fn counts_from_due(&self) -> bool {
        matches!(self.arrival, Arrival::Fixed(_) | Arrival::Poisson(_))
    }

    /// Whether the load goes on when the moment comes; looks often enough to end soon.
    async fn wait_until(&self, due_ns: u64) -> bool {
        loop {
            let left_ns = due_ns.saturating_sub(self.context.now_ns());
            if self.stopping.get() {
                return false;
            }
            if left_ns == 0 {
                return true;
            }
            self.context.sleep_ns(left_ns.min(POLL_NS)).await;
        }
    }

    fn record(&self, choice: Choice, began_ns: u64, ended_ns: u64) {
        self.completed.set(self.completed.get() + 1);
        if self.recording.get() {
            let mut window = self.window.borrow_mut();
            let tally = if choice.is_read { &mut window.reads } else { &mut window.writes };
            tally.record(choice.length_bytes, ended_ns - began_ns);
            let gap_ns = ended_ns - self.last_completion_ns.get().max(window.start_ns);
            if gap_ns >= STALL_NS {
                window.stalled_ns += gap_ns;
            }
        }
        self.last_completion_ns.set(ended_ns);
        self.moved_bytes.set(self.moved_bytes.get() + choice.length_bytes);
    }

    fn note_error(&self, error: &dyn std::error::Error) {
        self.errors.set(self.errors.get() + 1);
        let mut messages = self.messages.borrow_mut();
        if messages.len() < MESSAGES_KEPT {
            messages.push(error.to_string());
        }
    }

    /// Lets other tasks run. Where no time passes at all (a target that answers at once, in virtual time) a microsecond is
    /// made to pass, else the end of the load would never come.
    async fn give_way(&self, now_ns: u64) {
        if self.gave_way_ns.replace(now_ns) == now_ns {
            self.context.sleep_ns(1000).await;
        } else {
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::BLOCK_BYTES;
    use crate::sweep::{SweepOptions, fill, verify};
    use crate::target::DriveTarget;
    use crate::testing::{FailingDrive, SlowDrive};
    use stripewise_drive::{BufferPool, MemoryDrive, NullDrive};
    use stripewise_runtime::VirtualExecutor;

    const MS: u64 = 1_000_000;
    const CAPACITY: u64 = 64 << 20;

    fn limits(least_ms: u64) -> WindowLimits {
        WindowLimits { least_ns: least_ms * MS, least_latencies: 4.0, most_ns: 3_600_000 * MS }
    }

    fn nowhere() -> Rc<Cell<u64>> {
        Rc::default()
    }

    #[test]
    fn a_drive_of_known_speed_is_measured_as_such() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        // One request at a time, 1 ms each: 4 KiB at depth 8 give 1000 requests a second of 8 ms each.
        let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), MS);
        let target = DriveTarget::new(drive, BufferPool::phantom());
        let moved = nowhere();
        let workload = Workload::random_read(8);
        let (window, end) = executor.block_on(async {
            let load = Load::start(&context, &target, &workload, None, &moved).unwrap();
            load.ramp_up(10 * MS, 1000 * MS).await;
            let cpu = Cell::new(0.0);
            let cpu_seconds = || Some(cpu.replace(cpu.get() + 0.25));
            let window = load
                .measure(
                    &limits(2000),
                    &Surroundings { cpu_seconds: &cpu_seconds, ..Surroundings::unknown() },
                )
                .await;
            (window, load.stop(u64::MAX).await)
        });
        assert!((window.iops() - 1000.0).abs() < 1.0, "{} a second", window.iops());
        assert!((window.mb_per_s() - 4.096).abs() < 0.01, "{} MB/s", window.mb_per_s());
        assert_eq!(window.mean_latency_ns(), Some(8.0 * MS as f64));
        assert_eq!((window.writes.requests, window.errors, window.interrupted), (0, 0, false));
        assert_eq!(window.duration_ns, 2000 * MS);
        assert_eq!(window.cpu_seconds, Some(0.25));
        let p99 = window.reads.latency_ns.value_at_quantile(0.99) as f64;
        assert!((p99 / (8.0 * MS as f64) - 1.0).abs() < 0.002, "{p99} ns");
        assert_eq!((end.errors, end.unanswered), (0, 0));
        let total = moved.get() / 4096;
        assert!((2016..=2020).contains(&total), "a request each ms and the last eight: {total}");
    }

    #[test]
    fn open_loops_count_what_a_pause_held_back() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), MS / 10);
        let target = DriveTarget::new(drive.clone(), BufferPool::phantom());
        let measure = |arrival: Arrival| {
            executor.block_on(async {
                let workload = Workload { arrival, ..Workload::random_read(4) };
                let load = Load::start(&context, &target, &workload, None, &nowhere()).unwrap();
                drive.pause(500 * MS);
                let window = load.measure(&limits(2000), &Surroundings::unknown()).await;
                load.stop(u64::MAX).await;
                window
            })
        };
        let closed = measure(Arrival::Limited(1000.0));
        let open = measure(Arrival::Fixed(1000.0));
        let poisson = measure(Arrival::Poisson(1000.0));
        let p90 = |window: &Window| window.reads.latency_ns.value_at_quantile(0.9) / MS;
        assert!(p90(&closed) < 5, "four requests alone felt the pause: {}", p90(&closed));
        assert!(p90(&open) > 200, "500 requests felt it: {}", p90(&open));
        assert!((open.iops() - 1000.0).abs() < 20.0, "{}", open.iops());
        assert!((poisson.iops() - 1000.0).abs() < 100.0, "{}", poisson.iops());
        assert!(closed.iops() < 800.0, "{}", closed.iops());
    }

    #[test]
    fn thinking_and_flushing_take_their_time() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), MS);
        let target = DriveTarget::new(drive, BufferPool::phantom());
        let rate = |think_us: u64, flush_every: u32| {
            executor.block_on(async {
                let workload = Workload { think_us, flush_every, ..Workload::random_write(1) };
                let load = Load::start(&context, &target, &workload, None, &nowhere()).unwrap();
                let window = load.measure(&limits(2000), &Surroundings::unknown()).await;
                load.stop(u64::MAX).await;
                assert_eq!(window.mean_latency_ns(), Some(MS as f64));
                window.iops()
            })
        };
        assert!((rate(0, 0) - 1000.0).abs() < 2.0);
        assert!((rate(3000, 0) - 250.0).abs() < 2.0);
        assert!(rate(0, 1) < 510.0, "a flush is a request to the drive, too");
    }

    #[test]
    fn windows_last_four_mean_latencies_and_end_when_the_condition_does() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), 100 * MS);
        let target = DriveTarget::new(drive, BufferPool::phantom());
        executor.block_on(async {
            let load = Load::start(&context, &target, &Workload::random_write(10), None, &nowhere()).unwrap();
            let before = context.now_ns();
            load.ramp_up(10 * MS, 60_000 * MS).await;
            assert_eq!((context.now_ns() - before) / MS, 1000 / 20 * 20 + 10, "ten answers of 100 ms each");
            let window = load.measure(&limits(2000), &Surroundings::unknown()).await;
            assert_eq!(window.mean_latency_ns(), Some(1000.0 * MS as f64));
            assert_eq!(window.duration_ns, 4000 * MS);
            let capped = WindowLimits { most_ns: 3000 * MS, ..limits(2000) };
            assert_eq!(load.measure(&capped, &Surroundings::unknown()).await.duration_ns, 3000 * MS);
            let until = context.now_ns() + 500 * MS;
            let window = load
                .measure(
                    &limits(2000),
                    &Surroundings { holds: &|| context.now_ns() < until, ..Surroundings::unknown() },
                )
                .await;
            assert!(window.interrupted && window.duration_ns < 600 * MS);
            load.stop(u64::MAX).await;
        });
    }

    #[test]
    fn stalls_are_noticed_where_answers_otherwise_come_fast() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), MS);
        let target = DriveTarget::new(drive.clone(), BufferPool::phantom());
        let slow = SlowDrive::new(&context, NullDrive::new("slower", CAPACITY), 300 * MS);
        let slow = DriveTarget::new(slow, BufferPool::phantom());
        executor.block_on(async {
            let load = Load::start(&context, &target, &Workload::random_read(4), None, &nowhere()).unwrap();
            let steady = load.measure(&limits(1000), &Surroundings::unknown()).await;
            assert_eq!(steady.stalled_ns, 0);
            drive.pause(500 * MS);
            let stalled = load.measure(&limits(2000), &Surroundings::unknown()).await.stalled_ns / MS;
            assert!((490..=510).contains(&stalled), "{stalled} ms");
            load.stop(u64::MAX).await;
            let load = Load::start(&context, &slow, &Workload::random_read(4), None, &nowhere()).unwrap();
            assert_eq!(
                load.measure(&limits(3000), &Surroundings::unknown()).await.stalled_ns,
                0,
                "it is always slow"
            );
            load.stop(u64::MAX).await;
        });
    }

    #[test]
    fn what_a_load_writes_can_be_checked_afterwards() {
        let executor = VirtualExecutor::shuffled(5);
        let context = executor.context();
        let memory = MemoryDrive::new("memory", CAPACITY + 512);
        let drive = SlowDrive::new(&context, memory.clone(), MS / 100);
        let target = DriveTarget::new(drive, BufferPool::new(8 << 20));
        let contents = Rc::new(Contents::new(3, CAPACITY + 512));
        let sweep = SweepOptions { depth: 4, request_bytes: 192 << 10 };
        executor.block_on(async {
            let done = Rc::new(Cell::new(0));
            contents.next_phase();
            let took = fill(&context, &target, &contents, sweep, &done).await.unwrap();
            assert!(took > 0 && done.get() == CAPACITY);
            contents.next_phase();
            let load = Load::start(&context, &target, &Workload::mixed(), Some(contents.clone()), &nowhere())
                .unwrap();
            let window = load.measure(&limits(20), &Surroundings::unknown()).await;
            assert!(window.reads.requests > 100 && window.writes.requests > 100);
            load.stop(u64::MAX).await;
            let report = verify(&context, &target, &contents, sweep, &done).await;
            assert_eq!((report.verified_bytes, report.corrupt_bytes), (CAPACITY, 0), "{report:?}");
            memory.poke(12345, &[memory_byte(&memory, 12345) ^ 1]);
            memory.poke(CAPACITY - 1, &[memory_byte(&memory, CAPACITY - 1) ^ 128]);
            let report = verify(&context, &target, &contents, sweep, &done).await;
            assert_eq!(report.corrupt_bytes, 2 * BLOCK_BYTES as u64, "{report:?}");
            assert_eq!(report.places[0].offset_bytes, 12288);
        });
    }

    fn memory_byte(memory: &MemoryDrive, offset: u64) -> u8 {
        let mut byte = [0];
        memory.peek(offset, &mut byte);
        byte[0]
    }

    #[test]
    fn errors_are_counted_told_and_not_demanded_back() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let failing = FailingDrive::new(MemoryDrive::new("failing", CAPACITY), (1 << 20)..(1 << 20) + 8192);
        let target = DriveTarget::new(SlowDrive::new(&context, failing, MS / 2), BufferPool::new(8 << 20));
        let contents = Rc::new(Contents::new(3, CAPACITY));
        let sweep = SweepOptions { depth: 1, request_bytes: 64 << 10 };
        executor.block_on(async {
            let done = Rc::new(Cell::new(0));
            contents.next_phase();
            let error = fill(&context, &target, &contents, sweep, &done).await.unwrap_err();
            assert_eq!(error.offset_bytes, 1 << 20, "{error}");
            assert!(error.to_string().contains("failing: write"), "{error}");
            let load = Load::start(
                &context,
                &target,
                &Workload::sequential_write(),
                Some(contents.clone()),
                &nowhere(),
            );
            let load = load.unwrap();
            let window = load.measure(&limits(50), &Surroundings::unknown()).await;
            assert!(window.errors > 0 && load.errors() >= window.errors);
            let end = load.stop(u64::MAX).await;
            assert!(end.messages[0].contains("failing: write of 1048576 bytes at 1048576"), "{end:?}");
            assert!(end.messages.len() <= MESSAGES_KEPT);
            let report = verify(&context, &target, &contents, sweep, &done).await;
            assert!(report.is_clean(), "a write that failed is not demanded back: {report:?}");
            assert_eq!(report.unknown_bytes, 1 << 20);
            assert_eq!(report.verified_bytes + report.unknown_bytes, CAPACITY);
        });
    }

    #[test]
    fn unreadable_blocks_are_told_one_by_one() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let memory = MemoryDrive::new("memory", CAPACITY);
        let buffers = BufferPool::new(8 << 20);
        let contents = Rc::new(Contents::new(3, CAPACITY));
        let sweep = SweepOptions { depth: 2, request_bytes: 64 << 10 };
        executor.block_on(async {
            let done = Rc::new(Cell::new(0));
            contents.next_phase();
            let good = DriveTarget::new(memory.clone(), buffers.clone());
            fill(&context, &good, &contents, sweep, &done).await.unwrap();
            let failing = FailingDrive::new(memory, 40960..40961);
            let bad = DriveTarget::new(failing, buffers);
            let report = verify(&context, &bad, &contents, sweep, &done).await;
            assert_eq!((report.unreadable_bytes, report.corrupt_bytes), (4096, 0));
            assert_eq!(report.verified_bytes, CAPACITY - 4096);
            assert_eq!(report.places[0].offset_bytes, 40960);
        });
    }

    #[test]
    fn a_target_that_takes_no_time_does_not_stop_time() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let target = DriveTarget::new(NullDrive::new("null", CAPACITY), BufferPool::phantom());
        executor.block_on(async {
            let load = Load::start(&context, &target, &Workload::random_read(32), None, &nowhere()).unwrap();
            let window = load.measure(&limits(1), &Surroundings::unknown()).await;
            assert!(window.requests() > 1000);
            assert_eq!(load.stop(u64::MAX).await.unanswered, 0);
        });
    }

    #[test]
    fn a_target_that_stops_answering_does_not_stop_the_laboratory() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), 3_600_000 * MS);
        let target = DriveTarget::new(drive, BufferPool::phantom());
        executor.block_on(async {
            let load = Load::start(&context, &target, &Workload::random_read(4), None, &nowhere()).unwrap();
            load.ramp_up(MS, 100 * MS).await;
            assert_eq!(load.stop(1000 * MS).await.unanswered, 4);
            assert_eq!(context.now_ns(), 1100 * MS);
        });
    }

    #[test]
    fn runs_are_repeated_by_their_seed() {
        let run = |seed: u64| {
            let executor = VirtualExecutor::new();
            let context = executor.context();
            let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), MS / 7);
            let target = DriveTarget::new(drive, BufferPool::phantom());
            executor.block_on(async {
                let workload = Workload::mixed().with_seed(seed);
                let load = Load::start(&context, &target, &workload, None, &nowhere()).unwrap();
                let window = load.measure(&limits(20), &Surroundings::unknown()).await;
                load.stop(u64::MAX).await;
                (window.bytes(), window.reads.total_latency_ns, window.writes.total_latency_ns)
            })
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
