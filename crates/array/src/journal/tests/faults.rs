//! Areas that fail in use.

use super::*;
use stripewise_drive::{DriveErrorKind, FaultyDrive};

fn faulty(context: &Context, count: usize, bytes: u64) -> Vec<Rc<FaultyDrive>> {
    memory(count, bytes).into_iter().map(|drive| FaultyDrive::new(context, drive, 7)).collect()
}

#[test]
fn area_failing_twice_is_replaced_by_another() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (1 << 20, Rc::new(Host::default()));
        let drives = faulty(&context, 3, bytes);
        let journal = create(&context, areas(&context, &as_drives(&drives), bytes), 2, &host).await;
        let mut sequences = Vec::new();
        for tag in 0..6 {
            sequences.push(append(&journal, record(tag, &[4096]), Quota::Client).await.expect("room"));
        }
        drives[1].make_unwritable(0..BASE + bytes);
        let tasks: Vec<_> = (6..30)
            .map(|tag| {
                let (journal, context) = (journal.clone(), context.clone());
                context.clone().spawn(async move {
                    context.sleep_ns(tag / 4 * 1000).await;
                    append(&journal, record(tag, &[4096]), Quota::Client).await
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("two areas are left");
        }
        assert_eq!(*host.failed.borrow(), [1], "the host is notified once");
        assert!(journal.is_short(), "early batches have a copy less");
        assert_eq!(journal.restore_copies().await.expect("restoring"), 0);
        assert!(!journal.is_short());
        for lost in [0, 2] {
            let left = drives[2 - lost].clone() as Rc<dyn Drive>;
            let copy = MemoryDrive::new("copy", BASE + bytes);
            let buffer = Buffer::from_bytes(&vec![0; (BASE + bytes) as usize]);
            left.submit(stripewise_drive::IoRequest::read(0, buffer.clone())).await.expect("a read");
            copy.poke(0, &buffer.to_vec());
            let left = vec![area(&context, 2 - lost as u32, copy, bytes)];
            let (journal, replay) = open(&context, left, 2, &host).await.expect("it opens");
            assert_eq!((replay.records.len(), replay.missing_batches), (30, 0));
            assert!(journal.is_short());
        }
        // Down to one area, then to none.
        drives[0].unplug();
        append(&journal, record(50, &[4096]), Quota::Client).await.expect("one is left");
        assert!(journal.is_short());
        drives[2].unplug();
        let error = append(&journal, record(51, &[4096]), Quota::Client).await.expect_err("none is left");
        assert!(matches!(error, ArrayError::Journal(_)), "{error}");
        assert!(journal.reserve(512, Quota::Client).await.is_err());
    });
}

#[test]
fn transient_error_is_harmless_and_host_refusal_final() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (1 << 20, Rc::new(Host::default()));
        let drives = faulty(&context, 2, bytes);
        let journal = create(&context, areas(&context, &as_drives(&drives), bytes), 2, &host).await;
        drives[0].set_transient_errors(0.0, 0.2);
        let mut done = 0;
        while drives[0].counts().transient == 0 {
            append(&journal, record(done, &[4096]), Quota::Client).await.expect("room");
            done += 1;
        }
        drives[0].set_transient_errors(0.0, 0.0);
        assert!(host.failed.borrow().is_empty());
        assert!(!journal.is_short());

        host.refuses.set(true);
        drives[0].make_unwritable(0..BASE + bytes);
        let tasks: Vec<_> = (0..8)
            .map(|tag| {
                let journal = journal.clone();
                context.spawn(async move { append(&journal, record(tag, &[4096]), Quota::Client).await })
            })
            .collect();
        for task in tasks {
            assert!(matches!(task.await, Err(ArrayError::CannotExclude(_))));
        }
        assert!(matches!(journal.reserve(512, Quota::Destage).await, Err(ArrayError::CannotExclude(_))));
        assert!(journal.broken().is_some());
    });
}

#[test]
fn returning_area_brings_back_no_old_records() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (512 << 10, Rc::new(Host::default()));
        let drives = memory(3, bytes);
        let all = areas(&context, &as_drives(&drives), bytes);
        let journal = create(&context, all.clone(), 3, &host).await;
        for tag in 0..5 {
            append(&journal, record(tag, &[4096]), Quota::Client).await.expect("room");
        }
        // Only drive 2 gets these batches, and it is missing while the others are reopened.
        journal.remove_area(0);
        journal.remove_area(1);
        for tag in 100..115 {
            append(&journal, record(tag, &[4096]), Quota::Client).await.expect("room");
        }
        journal.close().await.expect("closing");
        let (journal, replay) = open(&context, all[..2].to_vec(), 2, &host).await.expect("it opens");
        assert_eq!(tags(&replay), [0, 1, 2, 3, 4]);
        append(&journal, record(200, &[4096]), Quota::Client).await.expect("room");
        journal.add_area(all[2].clone()).await.expect("it is back");
        journal.set_copies(3);
        assert_eq!(journal.restore_copies().await.expect("restoring"), 0);
        append(&journal, record(201, &[4096]), Quota::Client).await.expect("room");
        journal.close().await.expect("closing");
        let (journal, replay) = open(&context, all[2..].to_vec(), 1, &host).await.expect("it opens");
        assert_eq!(tags(&replay), [0, 1, 2, 3, 4, 200, 201]);
        let sequences: Vec<u64> = replay.records.iter().map(|found| found.record.sequence).collect();
        assert!(sequences.is_sorted());
        for found in &replay.records {
            check_record(&journal.load(found).await.expect("loads"), &[4096], "loaded");
        }
    });
}

#[test]
fn drives_that_fail_at_open_are_excluded() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (512 << 10, Rc::new(Host::default()));
        let drives = faulty(&context, 3, bytes);
        let journal = create(&context, areas(&context, &as_drives(&drives), bytes), 3, &host).await;
        append(&journal, record(5, &[8192]), Quota::Client).await.expect("room");
        journal.close().await.expect("closing");
        drives[0].unplug();
        drives[1].make_unwritable(0..BASE + bytes);
        let (journal, replay) =
            open(&context, areas(&context, &as_drives(&drives), bytes), 3, &host).await.expect("it opens");
        let mut failed = host.failed.borrow().clone();
        failed.sort_unstable();
        assert_eq!(failed, [0, 1]);
        assert_eq!(tags(&replay), [5]);
        assert!(journal.is_short());
        journal.load(&replay.records[0]).await.expect("loads");
        append(&journal, record(6, &[8192]), Quota::Client).await.expect("room");
        // Payload that becomes unreadable after the opening is not returned.
        drives[2].make_unreadable(BASE..BASE + bytes);
        let error = journal.load(&replay.records[0]).await.expect_err("unreadable");
        assert!(matches!(error, ArrayError::Journal(_)), "{error}");
        drives[2].unplug();
        let gone = open(&context, areas(&context, &as_drives(&drives), bytes), 3, &host).await;
        assert!(gone.is_err());
        let buffers = BufferPool::new(0);
        let fresh = Journal::create(
            &context,
            &buffers,
            VOLUME,
            9,
            areas(&context, &as_drives(&drives), bytes),
            3,
            host.clone(),
        );
        let Err(ArrayError::Drive(error)) = fresh.await else { panic!("no drive is there") };
        assert_eq!(error.kind, DriveErrorKind::Gone);
    });
}

#[test]
fn appends_complete_in_order() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (512 << 10, Rc::new(Host::default()));
        let drives = faulty(&context, 2, bytes);
        let journal = create(&context, areas(&context, &as_drives(&drives), bytes), 1, &host).await;
        drives.iter().for_each(|drive| drive.stick_next(1));
        let ended = Rc::new(RefCell::new(Vec::new()));
        for tag in 0..8 {
            let (journal, ended, context) = (journal.clone(), ended.clone(), context.clone());
            context.clone().spawn(async move {
                context.sleep_ns(1000 * tag).await;
                append(&journal, record(tag, &[4096]), Quota::Client).await.expect("room");
                ended.borrow_mut().push(tag);
            });
        }
        context.sleep_ns(1_000_000).await;
        assert!(ended.borrow().is_empty(), "{:?} went past the first", ended.borrow());
        let durable = journal.0.state.borrow().batches.iter().filter(|batch| batch.durable).count();
        assert!(durable > 2, "only {durable} later batches are durable: the test shows nothing");
        drives.iter().for_each(|drive| drive.release());
        context.sleep_ns(1_000_000).await;
        assert_eq!(*ended.borrow(), (0..8).collect::<Vec<_>>());
    });
}

/// Gives up the third of three areas; then power is cut, and that drive stays out, as does the
/// `lost` one. The first `over` records were released, and every other one of the rest.
async fn give_up_an_area(context: &Context, over: u64, marks: u64, lost: Option<usize>) {
    let (bytes, host) = (512 << 10, Rc::new(Host::default()));
    let all = areas(context, &as_drives(&memory(3, bytes)), bytes);
    let copies = if lost.is_some() { 2 } else { 1 };
    let journal = create(context, all.clone(), copies, &host).await;
    let mut sequences = Vec::new();
    for tag in 0..24 {
        sequences.push(append(&journal, record(tag, &[4096]), Quota::Client).await.expect("room"));
    }
    let is_over = |tag: u64| tag < over || tag % 2 == 1;
    for tag in (0..24).filter(|tag| is_over(*tag)) {
        journal.release(sequences[tag as usize]);
        // Each release is recorded by a batch of its own, in any of the areas.
        journal.mark().await.expect("room");
    }
    for _ in 0..marks {
        journal.mark().await.expect("room");
    }
    assert!(journal.begin_leaving(2, copies), "two are left");
    assert!(journal.leave_area(2).await.expect("leaving"), "they have room");
    assert!(!journal.is_short());
    let left = (0..2).filter(|area| Some(*area) != lost).map(|area| all[area].clone()).collect();
    let (journal, replay) = open(context, left, copies, &host).await.expect("it opens");
    let live: Vec<u64> = (0..24).filter(|tag| !is_over(*tag)).collect();
    assert_eq!(tags(&replay), live, "{over} over, {marks} marks, without {lost:?}");
    for found in &replay.records {
        check_record(&journal.load(found).await.expect("loads"), &[4096], "loaded");
    }
}

#[test]
fn releases_survive_loss_of_the_area_with_them() {
    for lost in [None, Some(0), Some(1)] {
        for (over, marks) in [(0, 0), (0, 1), (0, 2), (9, 0), (9, 1), (9, 2), (24, 0), (24, 1), (24, 2)] {
            let executor = VirtualExecutor::new();
            let context = executor.context();
            executor.block_on(give_up_an_area(&context, over, marks, lost));
        }
    }
}

#[test]
fn indispensable_area_stays_in_use() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (256 << 10, Rc::new(Host::default()));
        let all = areas(&context, &as_drives(&memory(2, bytes)), bytes);
        let journal = create(&context, all.clone(), 1, &host).await;
        // More live records than one area can hold.
        let mut tag = 0;
        while journal.fill().percent() < 90 {
            append(&journal, record(tag, &[8192]), Quota::InPlace).await.expect("room");
            tag += 1;
        }
        assert!(
            journal.begin_leaving(0, 1) && !journal.leave_area(0).await.expect("leaving"),
            "there is no room"
        );
        journal.set_copies(2);
        assert!(!journal.begin_leaving(0, 2), "there would be too few");
        let (_, replay) = open(&context, all, 2, &host).await.expect("it opens");
        assert_eq!(tags(&replay), (0..tag).collect::<Vec<_>>());
    });
}

/// More areas are lost than there are copies, when no record is live.
#[test]
fn released_records_are_absent_from_the_last_area() {
    for left in 0..3 {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let (bytes, host) = (512 << 10, Rc::new(Host::default()));
            let all = areas(&context, &as_drives(&memory(3, bytes)), bytes);
            let journal = create(&context, all.clone(), 2, &host).await;
            for tag in 0..12 {
                let sequence = append(&journal, record(tag, &[4096]), Quota::Client).await.expect("room");
                journal.release(sequence);
            }
            journal.mark().await.expect("room");
            (0..3).filter(|area| *area != left).for_each(|area| journal.remove_area(area));
            context.sleep_ns(1_000_000).await;
            let (_, replay) =
                open(&context, vec![all[left as usize].clone()], 1, &host).await.expect("it opens");
            assert_eq!(tags(&replay), [0; 0], "only area {left} is left");
        });
    }
}

#[test]
fn release_during_header_writes_survives_area_loss() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (512 << 10, Rc::new(Host::default()));
        let drives = faulty(&context, 3, bytes);
        let all = areas(&context, &as_drives(&drives), bytes);
        let journal = create(&context, all.clone(), 1, &host).await;
        let mut sequences = Vec::new();
        for tag in 0..12 {
            sequences.push(append(&journal, record(tag, &[4096]), Quota::Client).await.expect("room"));
        }
        // Headers record the first area's loss while all records are released; only the second area
        // records that.
        drives[2].stick();
        journal.remove_area(0);
        context.sleep_ns(1_000_000).await;
        sequences.into_iter().for_each(|sequence| journal.release(sequence));
        journal.mark().await.expect("room");
        journal.remove_area(1);
        drives[2].release();
        context.sleep_ns(1_000_000).await;
        let (_, replay) = open(&context, vec![all[2].clone()], 1, &host).await.expect("it opens");
        assert_eq!(tags(&replay), [0; 0]);
    });
}

#[test]
fn stopped_journal_writes_no_headers() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (512 << 10, Rc::new(Host::default()));
        let drives = memory(3, bytes);
        let journal = create(&context, areas(&context, &as_drives(&drives), bytes), 1, &host).await;
        let sequence = append(&journal, record(1, &[4096]), Quota::Client).await.expect("room");
        journal.release(sequence);
        journal.remove_area(0);
        journal.stop().await;
        // The areas may belong to another volume now.
        let contents = || -> Vec<Vec<u8>> {
            let of_drive = |drive: &Rc<MemoryDrive>| {
                let mut all = vec![0; (BASE + bytes) as usize];
                drive.peek(0, &mut all);
                all
            };
            drives.iter().map(of_drive).collect()
        };
        let before = contents();
        context.sleep_ns(1_000_000).await;
        assert!(contents() == before, "nothing is written");
    });
}
