//! The paced drive in virtual time: never above its rates in any second, even over a misbehaving
//! drive, and at its rates under load.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::kit::{Executor, pattern};
use stripewise_drive::{
    Buffer, Completion, Context, Drive, DriveErrorKind, DriveInfo, DriveKind, IoRequest, MemoryDrive,
    ModelDrive, ModelSpec, NullDrive, Operation, PACE_BURST_NS, Pace, PacedDrive, SplitMix64, completion,
};

const SECOND_NS: u64 = 1_000_000_000;

/// Time and length in bytes of each answer.
type Answers = Rc<RefCell<Vec<(u64, u64)>>>;

/// A drive whose answer time is a function of the time: for stalls and jitter of a host.
struct Host {
    info: DriveInfo,
    context: Context,
    answers_at: Box<dyn Fn(u64) -> u64>,
}

impl Host {
    fn new(context: &Context, answers_at: impl Fn(u64) -> u64 + 'static) -> Rc<Self> {
        let info = NullDrive::new("host", 1 << 40).info().clone();
        Rc::new(Self { info, context: context.clone(), answers_at: Box::new(answers_at) })
    }
}

impl Drive for Host {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, _: IoRequest) -> Completion {
        let (sender, completion) = completion();
        let sleep = self.context.sleep_until_ns((self.answers_at)(self.context.now_ns()));
        self.context.spawn(async move {
            sleep.await;
            sender.complete(Ok(()));
        });
        completion
    }
}

fn pace(text: &str) -> Pace {
    text.parse().unwrap()
}

/// Keeps `depth` requests in flight for `duration_ns`, each of the length that `length` draws.
fn load(
    executor: &Executor,
    drive: Rc<dyn Drive>,
    depth: u32,
    duration_ns: u64,
    length: impl Fn(&mut SplitMix64) -> usize + 'static,
) -> Vec<(u64, u64)> {
    let context = executor.context();
    let answers: Answers = Rc::default();
    let random = Rc::new(RefCell::new(SplitMix64::new(1)));
    let length = Rc::new(length);
    for _ in 0..depth {
        let (drive, context, answers) = (drive.clone(), context.clone(), answers.clone());
        let (random, length) = (random.clone(), length.clone());
        executor.context().spawn(async move {
            while context.now_ns() < duration_ns {
                let bytes = length(&mut random.borrow_mut());
                drive.submit(IoRequest::read(0, Buffer::phantom(bytes))).await.unwrap();
                answers.borrow_mut().push((context.now_ns(), bytes as u64));
            }
        });
    }
    executor.run_until_idle();
    answers.take()
}

/// Maximum answered in any span of `window_ns`: bytes, operations.
fn busiest(answers: &[(u64, u64)], window_ns: u64) -> (u64, u64) {
    let (mut first, mut bytes, mut most) = (0, 0, (0, 0));
    for (index, &(at, length)) in answers.iter().enumerate() {
        bytes += length;
        while answers[first].0 + window_ns <= at {
            bytes -= answers[first].1;
            first += 1;
        }
        most = (most.0.max(bytes), most.1.max((index - first + 1) as u64));
    }
    most
}

fn assert_strict(answers: &[(u64, u64)], pace: Pace, largest: u64) {
    for window_ns in [SECOND_NS, SECOND_NS / 10, SECOND_NS / 100] {
        let (bytes, operations) = busiest(answers, window_ns);
        let allowed = |rate: u64| rate as f64 * (window_ns + PACE_BURST_NS) as f64 / SECOND_NS as f64;
        if let Some(rate) = pace.bytes_per_second {
            assert!(
                bytes as f64 <= allowed(rate) + largest as f64,
                "{bytes} bytes in {window_ns} ns at {pace}"
            );
        }
        if let Some(rate) = pace.iops {
            assert!(operations as f64 <= allowed(rate) + 1.0, "{operations} in {window_ns} ns at {pace}");
        }
    }
}

/// Bytes and operations per second.
fn rates(answers: &[(u64, u64)]) -> (f64, f64) {
    let seconds = answers.last().unwrap().0 as f64 / SECOND_NS as f64;
    (answers.iter().map(|answer| answer.1).sum::<u64>() as f64 / seconds, answers.len() as f64 / seconds)
}

#[test]
fn under_load_the_rate_is_reached_and_kept() {
    for (text, bytes) in [
        ("180MB/s", 4096),
        ("180MB/s", 1 << 20),
        ("400iops", 4096),
        ("400iops", 1 << 20),
        ("180MB/s,400iops", 4096),
        ("180MB/s,400iops", 450_560),
        ("180MB/s,400iops", 4 << 20),
        ("2.5GB/s,100000iops", 4096),
        ("1MB/s,7iops", 65_536),
    ] {
        let executor = Executor::new();
        let context = executor.context();
        let pace = pace(text);
        // Slower than a small request at the fast pace, so the queue depth has to hide it.
        let host = Host::new(&context, |now_ns| now_ns + 100_000);
        let drive = PacedDrive::new(&context, host, pace);
        let depth = drive.info().queue_depth;
        let answers = load(&executor, drive, depth, 4 * SECOND_NS, move |_| bytes);
        assert_strict(&answers, pace, bytes as u64);
        let (byte_rate, operation_rate) = rates(&answers);
        let of_bytes = pace.bytes_per_second.map_or(0.0, |limit| byte_rate / limit as f64);
        let of_operations = pace.iops.map_or(0.0, |limit| operation_rate / limit as f64);
        let used = of_bytes.max(of_operations);
        assert!((0.98..=1.0001).contains(&used), "{text}, {bytes} bytes: {used}");
    }
}

#[test]
fn mixed_sizes_use_up_one_rate_and_keep_both() {
    let executor = Executor::new();
    let context = executor.context();
    let pace = pace("180MB/s,400iops");
    let drive = PacedDrive::new(&context, NullDrive::new("null", 1 << 40), pace);
    let sizes = [4096, 65_536, 262_144, 2 << 20];
    let answers = load(&executor, drive, 16, 10 * SECOND_NS, move |random| sizes[random.below(4) as usize]);
    assert_strict(&answers, pace, 2 << 20);
    let (byte_rate, operation_rate) = rates(&answers);
    // While a run of small requests uses up its operations, the byte rate idles: neither rate is
    // fully reached.
    assert!(byte_rate / 180e6 > 0.95 && operation_rate < 400.0, "{byte_rate} {operation_rate}");
}

#[test]
fn single_request_takes_the_time_of_its_rate() {
    let executor = Executor::new();
    let context = executor.context();
    let drive = PacedDrive::new(&context, NullDrive::new("null", 1 << 40), pace("100MB/s,400iops"));
    let clock = context.clone();
    executor.block_on(async move {
        for think_ns in [0, 3_000_000, SECOND_NS] {
            clock.sleep_ns(think_ns).await;
            for (bytes, expected_ns) in [(4096, 2_500_000), (1_048_576, 10_485_760)] {
                let start_ns = clock.now_ns();
                drive.submit(IoRequest::read(0, Buffer::phantom(bytes))).await.unwrap();
                let took_ns = clock.now_ns() - start_ns;
                assert!(took_ns.abs_diff(expected_ns) <= 1, "{bytes} bytes took {took_ns} ns");
            }
        }
    });
}

#[test]
fn host_stalls_are_made_up_only_within_the_burst() {
    for (text, bytes) in [("180MB/s", 65_536), ("400iops", 4096), ("180MB/s,400iops", 450_560)] {
        let executor = Executor::new();
        let context = executor.context();
        let pace = pace(text);
        // In every second the host gives no answer for the first 300 ms.
        let host = Host::new(&context, |now_ns| {
            let within = now_ns % SECOND_NS;
            now_ns + 100_000 + 300_000_000_u64.saturating_sub(within)
        });
        let drive = PacedDrive::new(&context, host, pace);
        // Far more requests in flight than its info asks for: the limits must still hold.
        let answers = load(&executor, drive, 200, 5 * SECOND_NS, move |_| bytes);
        assert_strict(&answers, pace, bytes as u64);
        let (byte_rate, operation_rate) = rates(&answers);
        let used = (byte_rate / pace.bytes_per_second.map_or(f64::MAX, |limit| limit as f64))
            .max(operation_rate / pace.iops.map_or(f64::MAX, |limit| limit as f64));
        assert!(used > 0.68, "{text}: only {used} of the rate");
    }
}

#[test]
fn jitter_of_the_host_hardly_lowers_the_rate() {
    let executor = Executor::new();
    let context = executor.context();
    let pace = pace("400iops");
    let random = RefCell::new(SplitMix64::new(7));
    // 1 ms, but one in ten takes 6 ms more than a request's own share of the rate.
    let host = Host::new(&context, move |now_ns| {
        now_ns + if random.borrow_mut().chance(0.1) { 8_500_000 } else { 1_000_000 }
    });
    let drive = PacedDrive::new(&context, host, pace);
    // One at a time, so that nothing hides it: without catching up, 322 a second. If slow answers
    // come close together, more than the burst is lost.
    let answers = load(&executor, drive, 1, 20 * SECOND_NS, |_| 4096);
    assert_strict(&answers, pace, 4096);
    let (_, operation_rate) = rates(&answers);
    assert!(operation_rate > 360.0, "{operation_rate}");
}

#[test]
fn a_host_slower_than_the_pace_is_not_slowed_further() {
    let executor = Executor::new();
    let context = executor.context();
    let spec = ModelSpec { latency_ns: 4_000_000, bytes_per_second: 50_000_000, queue_depth: 4 };
    let host = ModelDrive::new(&context, "slow", 1 << 40, spec, NullDrive::new("null", 1 << 40));
    let pace = pace("180MB/s,10000iops");
    let drive = PacedDrive::new(&context, host, pace);
    let answers = load(&executor, drive, 4, 5 * SECOND_NS, |_| 1 << 20);
    assert_strict(&answers, pace, 1 << 20);
    assert!(rates(&answers).0 > 0.99 * 50e6, "{:?}", rates(&answers));
}

#[test]
fn flushes_are_free_and_zeroes_cost_their_bytes() {
    let executor = Executor::new();
    let context = executor.context();
    let costly = Host::new(&context, |now_ns| now_ns);
    let mut costly = Rc::into_inner(costly).unwrap();
    costly.info.cheap_zeroes = false;
    for (host, expected_ns) in [
        (NullDrive::new("cheap", 1 << 40) as Rc<dyn Drive>, 10_000_000),
        (Rc::new(costly) as Rc<dyn Drive>, 1_048_576_000),
    ] {
        let drive = PacedDrive::new(&context, host, pace("1MB/s,100iops"));
        let clock = context.clone();
        executor.block_on(async move {
            let start_ns = clock.now_ns();
            drive.submit(IoRequest::flush()).await.unwrap();
            drive.submit(IoRequest::range(Operation::Discard, 0, 1 << 30)).await.unwrap();
            assert_eq!(clock.now_ns(), start_ns);
            drive.submit(IoRequest::range(Operation::WriteZeroes, 0, 1 << 20)).await.unwrap();
            assert_eq!(clock.now_ns() - start_ns, expected_ns);
        });
    }
}

#[test]
fn queue_limits_match_the_pace() {
    let executor = Executor::new();
    let info = |text: &str| {
        let paced = PacedDrive::new(&executor.context(), NullDrive::new("null", 1 << 30), pace(text));
        (paced.info().queue_depth, paced.info().queue_bytes, paced.info().max_request_bytes)
    };
    assert_eq!(info("180MB/s,400iops"), (16, 4 << 20, 1 << 20));
    assert_eq!(info("10MB/s,50iops"), (8, 1 << 20, 1 << 18));
    assert_eq!(info("200MB/s,100iops"), (8, 4 << 20, 2_002_944));
    assert_eq!(info("40MB/s"), (32, 2_000_000, 503_808));
    assert_eq!(info("400iops"), (16, 4 << 20, 1 << 20));
}

#[test]
fn contents_and_errors_pass_through() {
    let executor = Executor::new();
    let context = executor.context();
    let drive = PacedDrive::new(&context, MemoryDrive::new("memory", 1 << 20), pace("100MB/s"));
    assert_ne!(drive.info().kind, DriveKind::Memory, "it does not answer at once");
    executor.block_on(async move {
        let written = pattern(8192, 1);
        drive.submit(IoRequest::write(4096, Buffer::from_bytes(&written), true)).await.unwrap();
        let buffer = Buffer::from_bytes(&[0; 8192]);
        drive.submit(IoRequest::read(4096, buffer.clone())).await.unwrap();
        assert_eq!(buffer.to_vec(), written);
        let beyond = drive.submit(IoRequest::read(1 << 20, buffer)).await.unwrap_err();
        assert_eq!(beyond.kind, DriveErrorKind::OutOfRange);
    });
    executor.run_until_idle();
    assert_eq!(executor.tasks(), 0, "no task remains once the drive is dropped");
}

#[test]
fn a_run_is_repeatable() {
    let run = || {
        let executor = Executor::new();
        let context = executor.context();
        let random = Cell::new(1_u64);
        let host = Host::new(&context, move |now_ns| {
            random.set(random.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            now_ns + (random.get() >> 40)
        });
        let drive = PacedDrive::new(&context, host, pace("180MB/s,400iops"));
        load(&executor, drive, 20, SECOND_NS, |random| 512 << random.below(10))
    };
    assert_eq!(run(), run());
}
