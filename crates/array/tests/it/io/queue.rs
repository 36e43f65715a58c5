//! The queue in front of a drive: merging, splitting on errors, shares, time-outs.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Waker;

use stripewise_array::{Class, Member, MemberOptions};
use stripewise_drive::{
    Buffer, CheckedDrive, Clock, Context, DriveErrorKind, FaultyDrive, IoRequest, MemoryDrive, ModelDrive,
    ModelSpec, Spawn, TimerId,
};
use stripewise_runtime::VirtualExecutor;

const STRIP: u64 = 65536;
const MS: u64 = 1_000_000;

fn drive(
    context: &Context,
    latency_ns: u64,
    bytes_per_second: u64,
    queue_depth: u32,
) -> (Rc<FaultyDrive>, Rc<CheckedDrive>) {
    let memory = MemoryDrive::new("memory", 64 << 20);
    let spec = ModelSpec { latency_ns, bytes_per_second, queue_depth };
    let faults = FaultyDrive::new(context, ModelDrive::new(context, "model", 64 << 20, spec, memory), 1);
    let checked = CheckedDrive::new(context, faults.clone());
    (faults, checked)
}

#[test]
fn adjacent_requests_are_merged_into_one() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, checked) = drive(&context, 100_000, 1_000_000_000, 8);
    let member = Member::new(&context, checked.clone(), MemberOptions::default());
    executor.block_on(async {
        let large = Buffer::from_bytes(&[7; 16 * STRIP as usize]);
        let order = [3, 1, 0, 2, 7, 6, 5, 4, 8, 9, 15, 14, 13, 12, 11, 10];
        let answers: Vec<_> = order
            .iter()
            .map(|&index| {
                let from = index as usize * STRIP as usize;
                let data = large.slice(from..from + STRIP as usize);
                member.submit(Class::Foreground, IoRequest::write(index * STRIP, data, false))
            })
            .collect();
        for answer in answers {
            answer.await.expect("a write");
        }
        let read = Buffer::from_bytes(&[0; STRIP as usize]);
        member.submit(Class::Foreground, IoRequest::read(15 * STRIP, read.clone())).await.expect("a read");
        assert_eq!(read.to_vec(), vec![7; STRIP as usize]);
    });
    assert_eq!(checked.requests(), 2, "sixteen writes in one request, and the read");
}

#[test]
fn reads_merge_over_a_small_gap_if_cheaper() {
    for (pace, requests) in [("50MB/s,100iops", 1), ("50MB/s,10000iops", 2)] {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let (_, checked) = drive(&context, 100_000, 1_000_000_000, 8);
        let paced =
            stripewise_drive::PacedDrive::new(&context, checked.clone(), pace.parse().expect("a pace"));
        let member = Member::new(&context, paced, MemberOptions::default());
        executor.block_on(async {
            let noise: Vec<u8> = (0..4 * STRIP).map(|index| (index / 997) as u8).collect();
            let all = Buffer::from_bytes(&noise);
            member.submit(Class::Foreground, IoRequest::write(0, all, false)).await.expect("a write");
            let (first, second) = (Buffer::from_bytes(&[0; 65536]), Buffer::from_bytes(&[0; 131_072]));
            let before = checked.requests();
            let one = member.submit(Class::Foreground, IoRequest::read(0, first.clone()));
            let two = member.submit(Class::Foreground, IoRequest::read(2 * STRIP, second.clone()));
            one.await.expect("a read");
            two.await.expect("a read");
            assert_eq!(checked.requests() - before, requests, "{pace}");
            assert_eq!(first.to_vec(), noise[..65536], "{pace}");
            assert_eq!(second.to_vec(), noise[131_072..], "{pace}");
        });
    }
}

/// Like two degraded reads of parts of one stripe.
#[test]
fn queued_reads_of_one_range_become_one_request() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (faults, checked) = drive(&context, 1_000_000, 100_000_000, 1);
    let member = Member::new(&context, checked.clone(), MemberOptions::default());
    executor.block_on(async {
        let data: Vec<u8> = (0..3 * STRIP).map(|at| (at / 512) as u8).collect();
        member
            .submit(Class::Foreground, IoRequest::write(0, Buffer::from_bytes(&data), false))
            .await
            .unwrap();
        let strip = |index: u64| {
            let buffer = Buffer::from_bytes(&[0; STRIP as usize]);
            (member.submit(Class::Foreground, IoRequest::read(index * STRIP, buffer.clone())), buffer, index)
        };
        let reads: Vec<_> = [0, 1, 1, 2, 1].map(strip).into_iter().collect();
        for (answer, buffer, index) in reads {
            answer.await.expect("a read");
            let at = (index * STRIP) as usize;
            assert_eq!(buffer.to_vec(), data[at..at + STRIP as usize], "strip {index}");
        }
        assert_eq!(checked.requests(), 2, "the write, and one read");
        // An error concerns all requests that were merged, and no others.
        faults.make_unreadable(STRIP..STRIP + 512);
        for (answer, _, index) in [0, 1, 1, 2].map(strip) {
            assert_eq!(answer.await.is_err(), index == 1, "strip {index}");
        }
    });
}

#[test]
fn error_in_a_merged_request_hits_only_its_part() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (faults, checked) = drive(&context, 100_000, 1_000_000_000, 8);
    let member = Member::new(&context, checked, MemberOptions::default());
    faults.make_unreadable(5 * STRIP..5 * STRIP + 512);
    executor.block_on(async {
        let answers: Vec<_> = (0..8)
            .map(|index| {
                let buffer = Buffer::from_bytes(&[0; STRIP as usize]);
                member.submit(Class::Foreground, IoRequest::read(index * STRIP, buffer))
            })
            .collect();
        for (index, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.await.is_err(), index == 5, "strip {index}");
        }
    });
}

#[test]
fn unresponsive_drive_fails_after_the_timeout() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (faults, checked) = drive(&context, 100_000, 1_000_000_000, 8);
    let options = MemberOptions { timeout_ns: 3_000_000_000, ..MemberOptions::default() };
    let member = Member::new(&context, checked, options);
    faults.stick();
    executor.block_on(async {
        let buffer = Buffer::from_bytes(&[0; 4096]);
        let error =
            member.submit(Class::Foreground, IoRequest::read(0, buffer)).await.expect_err("no answer");
        assert_eq!(error.kind, DriveErrorKind::Gone);
    });
    assert!((3_000_000_000..4_000_000_000).contains(&executor.now_ns()), "{}", executor.now_ns());
    assert!(member.failed().is_some_and(|reason| reason.contains("no answer")));
}

/// The clock of a process that is stopped at times: its timers fire when it runs again, but the
/// time has passed.
struct JumpingClock {
    inner: Context,
    jumped_ns: Cell<u64>,
}

impl Clock for JumpingClock {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns() + self.jumped_ns.get()
    }

    fn wake_at(&self, deadline_ns: u64, waker: Waker) -> TimerId {
        let sleep = self.inner.sleep_until_ns(deadline_ns.saturating_sub(self.jumped_ns.get()));
        self.inner.spawn(async move {
            sleep.await;
            waker.wake();
        });
        TimerId(0)
    }

    /// Never needed: a woken task reads the clock again.
    fn cancel(&self, _: TimerId) {}
}

struct Tasks(Context);

impl Spawn for Tasks {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) {
        self.0.spawn(task);
    }
}

#[test]
fn stalled_process_checks_answers_before_timing_out() {
    for is_stuck in [false, true] {
        let executor = VirtualExecutor::new();
        let inner = executor.context();
        let clock = Rc::new(JumpingClock { inner: inner.clone(), jumped_ns: Cell::new(0) });
        let context = Context::new(clock.clone(), Rc::new(Tasks(inner.clone())));
        // The drive answers after the first time-out check, which comes a minute late.
        let (faults, checked) = drive(&inner, 1_000_000_000, 1_000_000_000, 8);
        let options = MemberOptions { timeout_ns: 3_000_000_000, ..MemberOptions::default() };
        let member = Member::new(&context, checked, options);
        if is_stuck {
            faults.stick();
        }
        let answer = executor.block_on(async {
            let answer = member.submit(Class::Foreground, IoRequest::read(0, Buffer::from_bytes(&[0; 4096])));
            inner.sleep_ns(1_000_000).await;
            clock.jumped_ns.set(60_000_000_000);
            answer.await
        });
        assert_eq!(answer.is_err(), is_stuck, "{answer:?}");
        assert_eq!(member.failed().is_some(), is_stuck);
        assert!(executor.now_ns() < 3_000_000_000, "one more look, no more: {}", executor.now_ns());
    }
}

/// Share of the drive's time that each class gets while both always have requests (foreground
/// `foreground` of 4 KiB, background eight of 256 KiB).
fn shares(foreground: usize, share: f64) -> (f64, f64) {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, checked) = drive(&context, 50_000, 200_000_000, 32);
    let member = Member::new(&context, checked, MemberOptions::default());
    member.set_background_share(share);
    let stop = Rc::new(Cell::new(false));
    let run = |class: Class, bytes: usize, number: u64| {
        let (member, stop) = (member.clone(), stop.clone());
        context.spawn(async move {
            let mut index = number;
            while !stop.get() {
                let buffer = Buffer::phantom(bytes);
                let offset = index * 7919 % (32 << 20) / 4096 * 4096;
                member.submit(class, IoRequest::read(offset, buffer)).await.expect("a read");
                index += 1;
            }
        })
    };
    let mut tasks: Vec<_> =
        (0..foreground).map(|number| run(Class::Foreground, 4096, number as u64 * 999)).collect();
    tasks.extend((0..8).map(|number| run(Class::Background, 256 << 10, number * 555)));
    executor.block_on(async {
        context.sleep_ns(1_000_000_000).await;
        let before = member.counters();
        context.sleep_ns(10_000_000_000).await;
        let after = member.counters();
        stop.set(true);
        for task in tasks {
            task.await;
        }
        let foreground = (after.foreground_busy_ns - before.foreground_busy_ns) as f64;
        let background = (after.background_busy_ns - before.background_busy_ns) as f64;
        (foreground / 1e10, background / 1e10)
    })
}

#[test]
fn background_gets_its_share_of_a_loaded_drive() {
    for share in [0.1, 0.3, 0.6, 0.9] {
        let (foreground, background) = shares(32, share);
        let got = background / (foreground + background);
        assert!((got - share).abs() < 0.05, "share {share}: background got {got:.3}");
        assert!(
            foreground + background > 0.9,
            "share {share}: the drive was kept busy: {foreground} + {background}"
        );
    }
}

#[test]
fn client_at_queue_depth_one_keeps_its_share() {
    let (foreground, background) = shares(1, 0.3);
    let got = background / (foreground + background);
    assert!((got - 0.3).abs() < 0.1, "background got {got:.3}");
}

#[test]
fn background_has_an_idle_drive_to_itself() {
    let (foreground, background) = shares(0, 0.1);
    assert_eq!(foreground, 0.0);
    assert!(background > 0.97, "{background}");
}

/// Time for `writes` upkeep writes, one after the other, beside background work.
async fn upkeep_ns(context: &Context, member: &Rc<Member>, writes: u64) -> u64 {
    let begin_ns = context.now_ns();
    for number in 0..writes {
        let write = IoRequest::write(number * 4096, Buffer::phantom(4096), false);
        member.submit(Class::Upkeep, write).await.expect("a write");
    }
    context.now_ns() - begin_ns
}

#[test]
fn urgent_upkeep_does_not_wait_for_background_work() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, checked) = drive(&context, 50_000, 200_000_000, 32);
    let member = Member::new(&context, checked, MemberOptions::default());
    member.set_background_share(0.3);
    executor.block_on(async {
        let alone_ns = upkeep_ns(&context, &member, 200).await;
        for number in 0..8_u64 {
            let member = member.clone();
            context.spawn(async move {
                loop {
                    let read = IoRequest::read((32 + number) << 20, Buffer::phantom(256 << 10));
                    member.submit(Class::Background, read).await.expect("a read");
                }
            });
        }
        context.sleep_ns(3_000 * MS).await;
        let no_client_waits_ns = upkeep_ns(&context, &member, 200).await;
        member.submit(Class::Foreground, IoRequest::read(0, Buffer::phantom(4096))).await.expect("a read");
        let clients_wait_ns = upkeep_ns(&context, &member, 200).await;
        assert!(clients_wait_ns < alone_ns + 100 * MS, "{clients_wait_ns} instead of {alone_ns}");
        assert!(
            no_client_waits_ns > 2 * clients_wait_ns,
            "background work has the drive: {no_client_waits_ns}"
        );
    });
}

/// Maximum wait of a client, and background work's share of the drive's time. Background work
/// always has `beside` requests of 256 KiB in flight; each of `clients` clients has one request of
/// `bytes` at a time, with a pause between two.
fn waits_in_slices(
    slice_ns: Option<u64>,
    clients: u64,
    bytes: u64,
    pause_ns: u64,
    beside: u64,
) -> (u64, f64) {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, checked) = drive(&context, 5 * MS, 50_000_000, 32);
    let member = Member::new(&context, checked, MemberOptions::default());
    member.set_background_share(0.3);
    member.set_background_slice(slice_ns);
    let longest_ns = Rc::new(Cell::new(0));
    let stop = Rc::new(Cell::new(false));
    let run = |class: Class, bytes: u64, number: u64| {
        let (member, stop, longest_ns) = (member.clone(), stop.clone(), longest_ns.clone());
        let context = context.clone();
        context.clone().spawn(async move {
            let mut index = number;
            while !stop.get() {
                if class == Class::Foreground {
                    context.sleep_ns(pause_ns).await;
                }
                let began_ns = context.now_ns();
                let read = IoRequest::read(index * 7919 % 100 * (512 << 10), Buffer::phantom(bytes as usize));
                member.submit(class, read).await.expect("a read");
                if class == Class::Foreground {
                    longest_ns.set(longest_ns.get().max(context.now_ns() - began_ns));
                }
                index += 1;
            }
        })
    };
    let mut tasks: Vec<_> = (0..clients).map(|number| run(Class::Foreground, bytes, number * 13)).collect();
    tasks.extend((0..beside).map(|number| run(Class::Background, 256 << 10, number * 555)));
    executor.block_on(async {
        context.sleep_ns(20_000 * MS).await;
        stop.set(true);
        for task in tasks {
            task.await;
        }
    });
    (longest_ns.get(), member.counters().background_busy_ns as f64 / 20e9)
}

#[test]
fn client_waits_for_at_most_one_background_slice() {
    const SLICE_NS: u64 = 20 * MS;
    // One occasional client; eight that need half of the drive; eight that need all of it.
    for (clients, bytes, pause_ns) in [(1, 4096, 50 * MS), (8, 65_536, 20 * MS), (8, 65_536, 0)] {
        let (alone_ns, _) = waits_in_slices(None, clients, bytes, pause_ns, 0);
        let (unbounded_ns, _) = waits_in_slices(None, clients, bytes, pause_ns, 16);
        let (longest_ns, share) = waits_in_slices(Some(SLICE_NS), clients, bytes, pause_ns, 16);
        let text = format!(
            "{clients} clients, {bytes} bytes: {alone_ns} ns alone, {longest_ns} in slices, {unbounded_ns} without, \
             share {share:.2}"
        );
        println!("{text}");
        assert!(longest_ns <= alone_ns + SLICE_NS, "{text}");
        assert!(clients > 1 || unbounded_ns > alone_ns + 2 * SLICE_NS, "{text}");
        assert!(share > 0.25, "{text}");
    }
}

#[test]
fn background_keeps_a_third_of_its_share_at_overload() {
    const SLICE_NS: u64 = 20 * MS;
    let (alone_ns, _) = waits_in_slices(None, 64, 256 << 10, 0, 0);
    let (longest_ns, share) = waits_in_slices(Some(SLICE_NS), 64, 256 << 10, 0, 16);
    let text = format!("{alone_ns} ns alone, {longest_ns} in slices, share {share:.3}");
    println!("{text}");
    assert!((0.09..0.3).contains(&share), "{text}");
    assert!(longest_ns <= alone_ns + 3 * SLICE_NS, "{text}");
}

#[test]
fn one_flush_in_flight_and_waiters_share_the_next() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (_, checked) = drive(&context, 100_000, 1_000_000_000, 8);
    let member = Member::new(&context, checked.clone(), MemberOptions::default());
    let flush = || member.submit(Class::Upkeep, IoRequest::flush());
    executor.block_on(async {
        let first = flush();
        context.sleep_ns(10_000).await;
        let others: Vec<_> = (0..3).map(|_| flush()).collect();
        first.await.expect("a flush");
        for other in others {
            other.await.expect("a flush");
        }
    });
    assert_eq!(checked.requests(), 2, "four flushes, three of them merged");
    executor.block_on(async { flush().await.expect("a flush") });
    assert_eq!(checked.requests(), 3);
}

#[test]
fn waiting_flushes_fail_with_the_drive() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (faults, checked) = drive(&context, 100_000, 1_000_000_000, 8);
    let member = Member::new(&context, checked, MemberOptions::default());
    executor.block_on(async {
        faults.stick();
        let mut flushes = vec![member.submit(Class::Upkeep, IoRequest::flush())];
        context.sleep_ns(1_000_000).await;
        flushes.extend((0..2).map(|_| member.submit(Class::Upkeep, IoRequest::flush())));
        member.fail("a test");
        for flush in flushes {
            assert_eq!(flush.await.expect_err("no answer came").kind, DriveErrorKind::Gone);
        }
    });
}
