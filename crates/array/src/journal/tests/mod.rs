//! Tests of the journal on drives that lose power, fail, or are full of garbage.

mod cuts;
mod damage;
mod faults;
mod files;
mod room;
#[path = "../../../../../tests/seeds.rs"]
mod seeds;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_drive::{Buffer, BufferPool, Context, Drive, DriveError, MemoryDrive, Segments};
use stripewise_runtime::VirtualExecutor;

use super::replay::Replay;
use super::{Area, Journal, JournalHost, Kind, Part, Quota, Record, SumRun};
use crate::LocalFuture;
use crate::error::ArrayError;
use crate::member::{Member, MemberOptions};

const VOLUME: u128 = 0x1234_5678_9abc_def0;
const BASE: u64 = 64 << 10;

#[derive(Default)]
struct Host {
    failed: RefCell<Vec<u32>>,
    refuses: Cell<bool>,
}

impl JournalHost for Host {
    fn area_failed<'a>(&'a self, drive: u32, _: &'a DriveError) -> LocalFuture<'a, Result<(), ArrayError>> {
        self.failed.borrow_mut().push(drive);
        let answer = match self.refuses.get() {
            true => Err(ArrayError::CannotExclude("refused".into())),
            false => Ok(()),
        };
        Box::pin(async {
            stripewise_drive::yield_now().await;
            answer
        })
    }
}

fn area(context: &Context, number: u32, drive: Rc<dyn Drive>, bytes: u64) -> Area {
    let member = Member::new(context, drive, MemberOptions::default());
    Area { drive: number, member, base_bytes: BASE, bytes }
}

fn areas(context: &Context, drives: &[Rc<dyn Drive>], bytes: u64) -> Vec<Area> {
    (0..).zip(drives).map(|(number, drive)| area(context, number, drive.clone(), bytes)).collect()
}

fn memory(count: usize, bytes: u64) -> Vec<Rc<MemoryDrive>> {
    (0..count).map(|number| MemoryDrive::new(&format!("m{number}"), BASE + bytes)).collect()
}

fn as_drives<T: Drive + 'static>(drives: &[Rc<T>]) -> Vec<Rc<dyn Drive>> {
    drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect()
}

fn pattern(tag: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (tag.wrapping_mul(31).wrapping_add(at * 7 + at / 253)) as u8).collect()
}

/// Creates a record identified by its `stripe`, which also determines its bytes.
fn record(tag: u64, lengths: &[usize]) -> Record {
    let parts: SmallVec<[Part; 4]> = (0..)
        .zip(lengths)
        .map(|(unit, &length): (u16, &usize)| {
            let bytes = pattern(tag + u64::from(unit), length);
            let half = length / 1024 * 512;
            let segments =
                Segments::from_iter([Buffer::from_bytes(&bytes[..half]), Buffer::from_bytes(&bytes[half..])]);
            Part { unit, start: 512 * u32::from(unit), segments }
        })
        .collect();
    let kind = match (lengths.is_empty(), tag % 3) {
        (true, _) => Kind::Intent,
        (_, 0) => Kind::Data,
        (_, 1) => Kind::Redo,
        _ => Kind::Parity,
    };
    let sums = (0..tag % 3).map(|unit| SumRun {
        unit: unit as u16,
        first_block: tag as u32,
        sums: (0..tag as u32 % 9).collect(),
    });
    Record { sequence: 0, kind, stripe: tag, covers: tag * 3, parts, sums: sums.collect() }
}

fn part_bytes(part: &Part) -> Vec<u8> {
    part.segments.iter().flat_map(Buffer::to_vec).collect()
}

/// Panics unless the record is the one of its tag.
fn check_record(found: &Record, lengths: &[usize], what: &str) {
    let expected = record(found.stripe, lengths);
    assert_eq!(
        (found.kind, found.covers, &found.sums),
        (expected.kind, expected.covers, &expected.sums),
        "{what}"
    );
    assert_eq!(found.parts.len(), expected.parts.len(), "{what}");
    for (part, expected) in found.parts.iter().zip(&expected.parts) {
        assert_eq!((part.unit, part.start), (expected.unit, expected.start), "{what}");
        assert!(part_bytes(part) == part_bytes(expected), "{what}: bytes of tag {}", found.stripe);
    }
}

async fn append(journal: &Journal, record: Record, quota: Quota) -> Result<u64, ArrayError> {
    let records = vec![record];
    let room = journal.reserve(Journal::bytes_of(&records), quota).await?;
    Ok(journal.append(records, room).await?[0])
}

async fn create(context: &Context, areas: Vec<Area>, copies: usize, host: &Rc<Host>) -> Journal {
    let buffers = BufferPool::new(1 << 20);
    Journal::create(context, &buffers, VOLUME, 1, areas, copies, host.clone()).await.expect("a new journal")
}

async fn open(
    context: &Context,
    areas: Vec<Area>,
    copies: usize,
    host: &Rc<Host>,
) -> Result<(Journal, Replay), ArrayError> {
    let buffers = BufferPool::new(1 << 20);
    Journal::open(context, &buffers, VOLUME, None, areas, copies, host.clone()).await
}

fn tags(replay: &Replay) -> Vec<u64> {
    replay.records.iter().map(|found| found.record.stripe).collect()
}

#[test]
fn live_records_are_found_and_released_ones_are_not() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (1 << 20, Rc::new(Host::default()));
        let drives = as_drives(&memory(3, bytes));
        let journal = create(&context, areas(&context, &drives, bytes), 2, &host).await;
        let mut sequences = Vec::new();
        for tag in 10..20 {
            sequences.push(append(&journal, record(tag, &[4096, 1536]), Quota::Client).await.expect("room"));
        }
        assert_eq!(sequences, (1..=10).collect::<Vec<_>>());
        assert_eq!(journal.oldest(), Some(1));
        for sequence in [1, 2, 5, 7] {
            journal.release(sequence);
        }
        assert_eq!((journal.oldest(), journal.fill().live_records), (Some(3), 6));
        journal.mark().await.expect("a mark");
        assert!(!journal.is_short());

        for lost in 0..3 {
            let left: Vec<_> = areas(&context, &drives, bytes)
                .into_iter()
                .filter(|area| area.drive != lost)
                .map(|mut area| {
                    // Copy the drive, since opening writes.
                    let mut image = vec![0; (BASE + bytes) as usize];
                    let memory = MemoryDrive::new("copy", BASE + bytes);
                    let buffer = Buffer::from_bytes(&image);
                    let read = stripewise_drive::IoRequest::read(0, buffer.clone());
                    let _ = drives[area.drive as usize].submit(read).try_take();
                    buffer.with(|bytes| image.copy_from_slice(bytes));
                    memory.poke(0, &image);
                    area.member = Member::new(&context, memory, MemberOptions::default());
                    area
                })
                .collect();
            let (journal, replay) = open(&context, left, 2, &host).await.expect("it opens");
            assert_eq!(tags(&replay), [12, 13, 15, 17, 18, 19]);
            assert_eq!((replay.missing_batches, replay.blank.len()), (0, 0));
            assert!(!journal.is_short());
            for found in &replay.records {
                assert!(found.record.parts.iter().all(|part| part.segments[0].is_phantom()));
                let loaded = journal.load(found).await.expect("its bytes");
                assert_eq!(loaded.sequence, loaded.stripe - 9);
                check_record(&loaded, &[4096, 1536], "loaded");
            }
            // New records continue the sequence.
            let next = append(&journal, record(40, &[512]), Quota::Client).await.expect("room");
            assert_eq!(next, 11);
        }
    });
}

#[test]
fn concurrent_appends_share_a_batch_without_delay() {
    use stripewise_drive::{ModelDrive, ModelSpec};
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (4 << 20, Rc::new(Host::default()));
        let spec = ModelSpec { latency_ns: 100_000, bytes_per_second: 1_000_000_000, queue_depth: 32 };
        let drives: Vec<Rc<dyn Drive>> = memory(2, bytes)
            .into_iter()
            .map(|drive| ModelDrive::new(&context, "model", BASE + bytes, spec, drive) as Rc<dyn Drive>)
            .collect();
        let areas = areas(&context, &drives, bytes);
        let members: Vec<_> = areas.iter().map(|area| area.member.clone()).collect();
        let journal = create(&context, areas, 2, &host).await;
        let writes = || members[0].counters().requests;

        let (before, start) = (writes(), context.now_ns());
        let alone = append(&journal, record(1, &[4096]), Quota::Client).await.expect("room");
        journal.release(alone);
        assert_eq!(writes() - before, 1);
        // Latency and the transfer of two pages.
        assert_eq!(context.now_ns() - start, 100_000 + 8192);

        let (before, start) = (writes(), context.now_ns());
        let tasks: Vec<_> = (0..32)
            .map(|tag| {
                let journal = journal.clone();
                context.spawn(async move { append(&journal, record(tag, &[4096]), Quota::Client).await })
            })
            .collect();
        for task in tasks {
            journal.release(task.await.expect("room"));
        }
        assert_eq!(writes() - before, 1);
        assert_eq!(context.now_ns() - start, 100_000 + 33 * 4096);

        // Constant load: at most four batches in flight, each carrying the appends that arrived
        // during earlier ones.
        let before = writes();
        let tasks: Vec<_> = (0..32)
            .map(|tag| {
                let (journal, context) = (journal.clone(), context.clone());
                context.clone().spawn(async move {
                    for round in 0..20 {
                        context.sleep_ns(1000 * tag).await;
                        let done = append(&journal, record(tag * 100 + round, &[4096]), Quota::Client).await;
                        journal.release(done.expect("room"));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        let written = writes() - before;
        assert!((40..320).contains(&written), "{written} writes for 640 appends");
    });
}

#[test]
fn phantoms_cost_time_and_no_memory() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (128 << 20, Rc::new(Host::default()));
        let drives = as_drives(&memory(2, bytes));
        let phantom = |tag| Record {
            parts: SmallVec::from_iter([Part {
                unit: 0,
                start: 0,
                segments: Segments::from_iter([Buffer::phantom(1 << 20)]),
            }]),
            ..record(tag, &[])
        };
        // A pool of phantoms writes nothing at all; with a real pool, heads are real and records
        // are found.
        for (buffers, found) in [(BufferPool::phantom(), 0), (BufferPool::new(1 << 20), 20)] {
            let areas_now = areas(&context, &drives, bytes);
            let journal = Journal::create(&context, &buffers, VOLUME, 1, areas_now, 2, host.clone());
            let journal = journal.await.expect("a new journal");
            for tag in 0..200 {
                let sequence = append(&journal, phantom(tag), Quota::Client).await.expect("room");
                if tag < 180 {
                    journal.release(sequence);
                }
            }
            journal.close().await.expect("closing");
            assert!(matches!(append(&journal, record(1, &[]), Quota::Client).await, Err(ArrayError::Closed)));
            let areas = areas(&context, &drives, bytes);
            let opened = Journal::open(&context, &buffers, VOLUME, None, areas, 2, host.clone()).await;
            let (journal, replay) = opened.expect("it opens");
            assert_eq!(replay.records.len(), found);
            for record in &replay.records {
                assert_eq!(journal.load(record).await.expect("loads").parts[0].len(), 1 << 20);
            }
        }
    });
}
