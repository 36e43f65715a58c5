//! The native driver on drives of known behaviour, in virtual time.

use super::task::MESSAGES_KEPT;
use super::*;
use crate::loads::contents::BLOCK_BYTES;
use crate::loads::sweep::{SweepOptions, fill, verify};
use crate::loads::target::DriveTarget;
use crate::loads::workload::Arrival;
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
fn a_drive_of_known_speed_is_measured_exactly() {
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
            .measure(&limits(2000), &Surroundings { cpu_seconds: &cpu_seconds, ..Surroundings::unknown() })
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
fn open_loop_latency_includes_requests_in_a_pause() {
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
fn think_time_and_flushes_slow_a_load() {
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
fn counted_loads_end_with_their_last_answer() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), MS);
    let target = DriveTarget::new(drive, BufferPool::phantom());
    let measure = |most_requests, most_bytes| {
        executor.block_on(async {
            let workload = Workload { most_requests, most_bytes, ..Workload::random_read(4) };
            let load = Load::start(&context, &target, &workload, None, &nowhere()).unwrap();
            let window = load.measure(&limits(60_000), &Surroundings::unknown()).await;
            assert!(load.is_over());
            assert_eq!(load.stop(u64::MAX).await.unanswered, 0);
            (window.requests(), window.duration_ns / MS)
        })
    };
    assert_eq!(measure(Some(1001), None), (1001, 1001));
    assert_eq!(measure(None, Some(100 * 4096 + 1)), (101, 101));
}

#[test]
fn fua_writes_and_discards_follow_the_configuration() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let drive = SlowDrive::new(&context, NullDrive::new("slow", CAPACITY), MS / 10);
    let target = DriveTarget::new(drive.clone(), BufferPool::new(1 << 20));
    let run = |workload: Workload| {
        let before = drive.asked();
        executor.block_on(async {
            let contents = Rc::new(Contents::new(1, CAPACITY));
            contents.next_phase();
            let workload = Workload { most_requests: Some(1000), ..workload };
            let load = Load::start(&context, &target, &workload, Some(contents), &nowhere()).unwrap();
            load.measure(&limits(60_000), &Surroundings::unknown()).await;
            load.stop(u64::MAX).await;
        });
        let after = drive.asked();
        [0, 1, 2].map(|kind| after[kind] - before[kind])
    };
    assert_eq!(run(Workload { fua_every: 4, ..Workload::random_write(1) }), [750, 250, 0]);
    assert_eq!(run(Workload { discards: true, ..Workload::random_write(2) }), [0, 0, 1000]);
}

#[test]
fn windows_last_four_mean_latencies_unless_stopped() {
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
fn stalls_are_detected_only_on_fast_targets() {
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
fn data_written_by_a_load_is_verifiable() {
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
        let load =
            Load::start(&context, &target, &Workload::mixed(), Some(contents.clone()), &nowhere()).unwrap();
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
fn failed_requests_are_counted_and_not_verified() {
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
        let load =
            Load::start(&context, &target, &Workload::sequential_write(), Some(contents.clone()), &nowhere());
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
fn unreadable_blocks_are_reported_one_by_one() {
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
fn an_instant_target_does_not_stall_virtual_time() {
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
fn a_hung_target_does_not_hang_the_measurement() {
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
fn runs_repeat_by_their_seed() {
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
