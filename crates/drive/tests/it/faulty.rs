//! Every fault strikes on demand, in the right place, is counted, and ends.

use std::cell::Cell;
use std::rc::Rc;

use crate::kit::{Executor, at_once, pattern};
use stripewise_drive::{
    Buffer, Completion, Context, Delay, Drive, DriveErrorKind, FaultCounts, FaultyDrive, IoRequest, IoResult,
    MemoryDrive, ModelDrive, ModelSpec, Operation, WriteFault,
};

const CAPACITY: u64 = 128 << 10;
const WRITE: Operation = Operation::Write { fua: false };

struct Rig {
    executor: Executor,
    memory: Rc<MemoryDrive>,
    drive: Rc<FaultyDrive>,
}

/// A rig over memory that answers at once, filled with a pattern.
fn rig(seed: u64) -> Rig {
    let executor = Executor::new();
    let memory = MemoryDrive::new("memory", CAPACITY);
    memory.poke(0, &pattern(CAPACITY as usize, 99));
    let drive = FaultyDrive::new(&executor.context(), memory.clone(), seed);
    Rig { executor, memory, drive }
}

/// A rig over a drive with a latency of 100 us and negligible transfer times.
fn slow_rig() -> Rig {
    let mut rig = rig(1);
    let spec = ModelSpec { latency_ns: 100_000, bytes_per_second: 1 << 50, queue_depth: 64 };
    let context = rig.executor.context();
    let model = ModelDrive::new(&context, "model", CAPACITY, spec, rig.memory.clone());
    rig.drive = FaultyDrive::new(&context, model, 1);
    rig
}

impl Rig {
    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, DriveErrorKind> {
        let buffer = Buffer::from_bytes(&vec![0; length]);
        at_once(self.drive.submit(IoRequest::read(offset, buffer.clone()))).map_err(|error| error.kind)?;
        Ok(buffer.to_vec())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DriveErrorKind> {
        let request = IoRequest::write(offset, Buffer::from_bytes(bytes), false);
        at_once(self.drive.submit(request)).map_err(|error| error.kind)
    }

    fn stored(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.peek(offset, &mut bytes);
        bytes
    }
}

/// Awaits a request in a task; returns its time and answer.
fn watch(context: &Context, answer: Completion) -> Rc<Cell<Option<(u64, IoResult)>>> {
    let seen = Rc::new(Cell::new(None));
    let (theirs, clock) = (seen.clone(), context.clone());
    context.spawn(async move {
        let result = answer.await;
        theirs.set(Some((clock.now_ns(), result)));
    });
    seen
}

#[test]
fn without_faults_nothing_changes() {
    let rig = rig(1);
    let written = pattern(8192, 5);
    rig.write(4096, &written).unwrap();
    assert_eq!(rig.read(4096, 8192).unwrap(), written);
    assert_eq!(rig.read(CAPACITY, 512), Err(DriveErrorKind::OutOfRange));
    assert_eq!(rig.drive.counts(), FaultCounts::default());
    assert_eq!(rig.executor.tasks(), 0, "no request needs a task");
}

#[test]
fn a_latent_error_lasts_until_its_sector_is_written() {
    let rig = rig(1);
    rig.drive.make_unreadable(4196..4197);
    assert_eq!(rig.drive.unreadable_bytes(), 512, "a whole sector");
    let buffer = Buffer::from_bytes(&vec![0; 8192]);
    let error = at_once(rig.drive.submit(IoRequest::read(0, buffer.clone()))).unwrap_err();
    assert_eq!((error.kind, error.offset_bytes, error.length_bytes), (DriveErrorKind::Medium, 0, 8192));
    assert!(buffer.to_vec().iter().all(|&byte| byte == 0xe5), "a failed read leaves rubbish");
    assert!(rig.read(0, 4096).is_ok());
    assert!(rig.read(4608, 512).is_ok());
    rig.write(4608, &[1; 512]).unwrap();
    assert_eq!(rig.read(4096, 512), Err(DriveErrorKind::Medium), "a neighbour's write does not repair it");
    rig.write(4096, &[7; 512]).unwrap();
    assert_eq!(rig.read(4096, 512).unwrap(), [7; 512]);
    let counts = rig.drive.counts();
    assert_eq!((counts.unreadable, counts.reallocated_bytes), (2, 512));

    rig.drive.make_unreadable(0..8192);
    at_once(rig.drive.submit(IoRequest::range(Operation::WriteZeroes, 0, 4096))).unwrap();
    rig.drive.repair(4096..6144);
    assert_eq!(rig.read(0, 6144).unwrap()[..4096], [0; 4096]);
    assert_eq!(rig.drive.unreadable_bytes(), 2048);
}

#[test]
fn an_unwritable_sector_stops_a_write_where_it_lies() {
    let rig = rig(1);
    let before = rig.stored(0, 16384);
    rig.drive.make_unwritable(8192..8704);
    // Cut across two segments, so that the part before the bad sector takes some of each.
    let written = pattern(12288, 5);
    let segments = [Buffer::from_bytes(&written[..2048]), Buffer::from_bytes(&written[2048..])];
    let request = IoRequest::with_segments(WRITE, 2048, segments.into_iter().collect());
    let error = at_once(rig.drive.submit(request)).unwrap_err();
    assert_eq!((error.kind, error.offset_bytes, error.length_bytes), (DriveErrorKind::Medium, 2048, 12288));
    assert_eq!(rig.stored(2048, 6144), written[..6144]);
    assert_eq!(rig.stored(8192, 8192), before[8192..]);
    assert_eq!(rig.write(8192, &[1; 512]), Err(DriveErrorKind::Medium), "for good");
    assert_eq!(rig.read(8192, 512).unwrap(), before[8192..8704], "it can still be read");
    rig.drive.repair(0..CAPACITY);
    rig.write(8192, &[1; 512]).unwrap();
    assert_eq!(rig.drive.counts().unwritable, 2);
}

#[test]
fn passing_errors_come_at_their_rate_by_seed() {
    let run = |seed| {
        let rig = rig(seed);
        rig.drive.set_transient_errors(0.25, 0.1);
        let outcome: Vec<bool> = (0..4000)
            .map(|index| {
                let failed =
                    if index % 2 == 0 { rig.read(0, 512).err() } else { rig.write(0, &[1; 512]).err() };
                assert!(matches!(failed, None | Some(DriveErrorKind::Other)));
                failed.is_some()
            })
            .collect();
        assert_eq!(rig.drive.counts().transient, outcome.iter().filter(|&&failed| failed).count() as u64);
        outcome
    };
    let first = run(1);
    let share = |of: usize| first.iter().skip(of).step_by(2).filter(|&&failed| failed).count();
    assert!((420..580).contains(&share(0)), "reads {}", share(0));
    assert!((150..250).contains(&share(1)), "writes {}", share(1));
    assert_eq!(first, run(1), "repeatable");
    assert_ne!(first, run(2));
}

#[test]
fn slowness_adds_or_multiplies() {
    let rig = slow_rig();
    let (drive, context) = (rig.drive.clone(), rig.executor.context());
    rig.executor.block_on(async move {
        let took_ns = async || {
            let start_ns = context.now_ns();
            drive.submit(IoRequest::read(0, Buffer::phantom(512))).await.unwrap();
            context.now_ns() - start_ns
        };
        assert_eq!(took_ns().await, 100_000);
        assert_eq!(drive.counts().slowed, 0);
        drive.set_delay(Delay::Fixed(50_000));
        assert_eq!(took_ns().await, 150_000);
        drive.set_slowdown(3.0);
        assert_eq!(took_ns().await, 350_000);
        drive.set_delay(Delay::Between { least_ns: 10, most_ns: 20 });
        drive.set_slowdown(0.0);
        for _ in 0..20 {
            assert!((100_010..=100_020).contains(&took_ns().await));
        }
        assert_eq!(drive.counts().slowed, 22);
    });
    let quick = self::rig(1);
    quick.drive.set_delay(Delay::Fixed(7));
    let answer = watch(&quick.executor.context(), quick.drive.submit(IoRequest::flush()));
    quick.executor.run_until_idle();
    assert!(matches!(answer.take(), Some((7, Ok(())))), "also over a drive that answers at once");
}

#[test]
fn a_stuck_drive_answers_nothing_until_released() {
    let rig = slow_rig();
    let context = rig.executor.context();
    let in_flight = watch(&context, rig.drive.submit(IoRequest::read(0, Buffer::phantom(512))));
    rig.executor.run_ready();
    rig.drive.stick();
    let request = IoRequest::write(0, Buffer::from_bytes(&[1; 512]), false);
    let later = watch(&context, rig.drive.submit(request));
    rig.executor.run_until_idle();
    assert!(in_flight.take().is_none(), "not even requests in flight are answered");
    assert!(later.take().is_none());
    assert_ne!(rig.stored(0, 512), [1; 512], "held back, not done");
    rig.drive.release();
    rig.executor.run_until_idle();
    assert!(matches!(in_flight.take(), Some((_, Ok(())))));
    assert!(matches!(later.take(), Some((_, Ok(())))));
    assert_eq!(rig.stored(0, 512), [1; 512]);
    assert_eq!(rig.drive.counts().stuck, 2);
}

#[test]
fn a_single_request_can_be_stuck() {
    let rig = rig(1);
    let context = rig.executor.context();
    rig.drive.stick_next(1);
    let stuck = watch(&context, rig.drive.submit(IoRequest::flush()));
    assert!(rig.read(0, 512).is_ok(), "others are served");
    rig.executor.run_until_idle();
    assert!(stuck.take().is_none());
    rig.drive.release();
    rig.executor.run_until_idle();
    assert!(matches!(stuck.take(), Some((_, Ok(())))));
}

#[test]
fn pulled_drive_fails_all_requests_in_flight_too() {
    let rig = slow_rig();
    let context = rig.executor.context();
    let in_flight = watch(&context, rig.drive.submit(IoRequest::read(0, Buffer::phantom(512))));
    rig.drive.stick_next(1);
    let stuck = watch(&context, rig.drive.submit(IoRequest::read(512, Buffer::phantom(512))));
    rig.executor.run_ready();
    rig.drive.unplug();
    rig.drive.plug_in(); // before the answer in flight arrives, which is lost nevertheless
    rig.executor.run_until_idle();
    for (seen, offset) in [(in_flight, 0), (stuck, 512)] {
        let Some((_, Err(error))) = seen.take() else { panic!("an error was expected") };
        assert_eq!((error.kind, error.offset_bytes, error.length_bytes), (DriveErrorKind::Gone, offset, 512));
    }
    rig.drive.unplug();
    let error = at_once(rig.drive.submit(IoRequest::flush())).unwrap_err();
    assert_eq!(error.kind, DriveErrorKind::Gone);
    rig.drive.plug_in();
    let back = watch(&context, rig.drive.submit(IoRequest::flush()));
    rig.executor.run_until_idle();
    assert!(matches!(back.take(), Some((_, Ok(())))));
    assert_eq!(rig.drive.counts().gone, 3);
}

#[test]
fn torn_writes_succeed_and_leave_old_blocks() {
    for fault in [WriteFault::TornPrefix, WriteFault::TornSubset] {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let rig = rig(seed);
            let (old, new) = (rig.stored(4096, 4096), pattern(4096, 5));
            rig.drive.arm_write_fault(fault);
            rig.write(4096, &new).unwrap();
            let stored = rig.stored(4096, 4096);
            let is_new: Vec<bool> = (0..8)
                .map(|block| {
                    let range = block * 512..(block + 1) * 512;
                    assert!(
                        stored[range.clone()] == new[range.clone()]
                            || stored[range.clone()] == old[range.clone()]
                    );
                    stored[range.clone()] == new[range]
                })
                .collect();
            assert!(is_new.contains(&false), "a torn write is never whole");
            if fault == WriteFault::TornPrefix {
                assert!(is_new.is_sorted_by(|a, b| a >= b), "a prefix: {is_new:?}");
            }
            outcomes.insert(is_new);
            assert_eq!(rig.drive.counts().torn, 1);
            rig.write(4096, &new).unwrap();
            assert_eq!(rig.stored(4096, 4096), new, "once");
        }
        assert!(outcomes.len() >= 8, "all kinds of tears: {outcomes:?}");
    }
}

#[test]
fn lost_writes_report_success_and_write_nothing() {
    let rig = rig(1);
    let old = rig.stored(4096, 512);
    rig.drive.arm_write_fault_at(4096..4608, WriteFault::Lost);
    rig.drive.make_unreadable(4096..4608);
    rig.write(0, &[1; 4096]).unwrap();
    assert_eq!(rig.stored(0, 4096), [1; 4096], "the fault waits for its place");
    rig.write(4096, &[1; 512]).unwrap();
    assert_eq!(rig.stored(4096, 512), old);
    assert_eq!(rig.read(4096, 512), Err(DriveErrorKind::Medium), "a lost write repairs nothing");
    rig.write(4096, &[1; 512]).unwrap();
    assert_eq!(rig.stored(4096, 512), [1; 512]);
    assert_eq!(rig.drive.counts().lost, 1);
}

#[test]
fn misdirected_writes_land_elsewhere() {
    let told = rig(1);
    let before = told.stored(0, CAPACITY as usize);
    told.drive.arm_write_fault(WriteFault::Misdirected(Some(65_536)));
    told.write(4096, &[1; 512]).unwrap();
    let mut expected = before.clone();
    expected[65_536..66_048].fill(1);
    assert!(told.stored(0, CAPACITY as usize) == expected);

    for seed in 0..100 {
        let drawn = rig(seed);
        drawn.drive.arm_write_fault(WriteFault::Misdirected(None));
        drawn.write(4096, &[1; 512]).unwrap();
        let stored = drawn.stored(0, CAPACITY as usize);
        let changed =
            stored.chunks(512).zip(before.chunks(512)).enumerate().filter(|(_, (now, then))| now != then);
        let changed: Vec<usize> = changed.map(|(block, _)| block).collect();
        assert!(changed.len() == 1 && changed[0] != 8, "seed {seed}: {changed:?}");
        assert_eq!(drawn.drive.counts().misdirected, 1);
    }
}

#[test]
fn write_faults_can_strike_at_a_rate() {
    let rig = rig(3);
    rig.drive.set_write_fault_rate(0.2, WriteFault::Lost);
    for _ in 0..1000 {
        rig.write(0, &[1; 512]).unwrap();
    }
    let lost = rig.drive.counts().lost;
    assert!((150..250).contains(&lost), "{lost}");
    rig.drive.set_write_fault_rate(0.0, WriteFault::Lost);
    rig.write(0, &[2; 512]).unwrap();
    assert_eq!((rig.stored(0, 512), rig.drive.counts().lost), (vec![2; 512], lost));
}

#[test]
fn rot_changes_stored_bytes_and_nothing_else() {
    let rig = rig(1);
    let mut expected = rig.stored(0, 16384);
    let drive = rig.drive.clone();
    rig.executor.block_on(async move {
        drive.rot(5000, 0b1000_0001).await.unwrap();
        drive.scramble(8000..8400).await.unwrap();
    });
    expected[5000] ^= 0b1000_0001;
    let stored = rig.read(0, 16384).unwrap();
    assert!(stored[..8000] == expected[..8000] && stored[8400..] == expected[8400..]);
    assert_ne!(stored[8000..8400], expected[8000..8400]);
    assert_eq!(rig.drive.counts().rotten_bytes, 401);
}

#[test]
fn a_full_drive_refuses_writes_and_reads_on() {
    let executor = Executor::new();
    let memory = MemoryDrive::new("disk", 1 << 20);
    let drive = FaultyDrive::new(&executor.context(), memory, 1);
    at_once(drive.submit(IoRequest::write(0, Buffer::from_bytes(&[7; 4096]), false))).unwrap();
    drive.set_full(true);
    let refused = at_once(drive.submit(IoRequest::write(0, Buffer::from_bytes(&[8; 4096]), false)));
    assert_eq!(refused.unwrap_err().kind, DriveErrorKind::NoSpace);
    let read = Buffer::from_bytes(&[0; 4096]);
    at_once(drive.submit(IoRequest::read(0, read.clone()))).unwrap();
    at_once(drive.submit(IoRequest::flush())).unwrap();
    assert_eq!((read.to_vec(), drive.counts().no_space), (vec![7; 4096], 1));
    drive.set_full(false);
    at_once(drive.submit(IoRequest::write(0, Buffer::from_bytes(&[8; 4096]), false))).unwrap();
}
