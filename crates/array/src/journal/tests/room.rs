//! Journal space: waiting for it, the part kept for destaging, and rings that wrap many times.

use super::*;

#[test]
fn full_journal_blocks_clients_but_not_destaging() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (256 << 10, Rc::new(Host::default()));
        let drives = as_drives(&memory(2, bytes));
        let journal = create(&context, areas(&context, &drives, bytes), 2, &host).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..40)
            .map(|tag| {
                let (journal, order) = (journal.clone(), order.clone());
                context.spawn(async move {
                    let sequence = append(&journal, record(tag, &[4096]), Quota::Client).await;
                    order.borrow_mut().push(tag);
                    sequence.expect("room")
                })
            })
            .collect();
        context.sleep_ns(1_000_000).await;
        let admitted = order.borrow().len();
        assert!((10..40).contains(&admitted), "{admitted} admitted");
        assert!(journal.fill().percent() > 75, "{:?}", journal.fill());
        // Destaging goes ahead of waiting clients.
        let parity = append(&journal, record(1000, &[4096]), Quota::Destage).await.expect("room is kept");
        context.sleep_ns(1_000_000).await;
        assert_eq!(order.borrow().len(), admitted, "only releasing makes room");
        let released = (0..40).map(|_| journal.release(journal.oldest().expect("one is live")));
        assert_eq!(released.take(admitted).count(), admitted);
        context.sleep_ns(1_000_000).await;
        assert!(order.borrow().len() > admitted, "the batch writer marks the freed room itself");
        while order.borrow().len() < 40 {
            let oldest = journal.oldest().expect("one is live");
            journal.release(oldest);
            context.sleep_ns(100_000).await;
        }
        assert_eq!(*order.borrow(), (0..40).collect::<Vec<_>>(), "first come, first served");
        let mut sequences = vec![parity];
        for task in tasks {
            sequences.push(task.await);
        }
        sequences.sort_unstable();
        assert_eq!(sequences, (1..=41).collect::<Vec<_>>());
    });
}

#[test]
fn full_journal_destages_oldest_first() {
    for (parities, percent) in [(1, 220), (2, 320), (3, 420)] {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let (bytes, host) = (1 << 20, Rc::new(Host::default()));
            let drives = as_drives(&memory(parities + 1, bytes));
            let areas = areas(&context, &drives, bytes);
            let journal = create(&context, areas, parities + 1, &host).await;
            journal.set_destage_percent(percent);
            let clients: Vec<_> = (0..64)
                .map(|tag| {
                    let journal = journal.clone();
                    context.spawn(async move {
                        for round in 0..20 {
                            let record = record(tag * 100 + round, &[4096]);
                            append(&journal, record, Quota::Client).await.expect("room");
                        }
                    })
                })
                .collect();
            context.sleep_ns(1_000_000).await;
            assert!(journal.fill().percent() > 80);
            // The worst case: one record at a time, each with its own parity.
            let lengths = vec![4096; parities];
            let mut destaged = 0;
            while destaged < 64 * 20 {
                let Some(oldest) = journal.oldest() else {
                    context.sleep_ns(1000).await;
                    continue;
                };
                let parity = append(&journal, record(1, &lengths), Quota::Destage).await.expect("room");
                journal.release(oldest);
                journal.release(parity);
                destaged += 1;
            }
            for client in clients {
                client.await;
            }
            assert_eq!(journal.fill().live_records, 0);
        });
    }
}

#[test]
fn clients_get_room_while_destaging_runs() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (4 << 20, Rc::new(Host::default()));
        let drives = as_drives(&memory(2, bytes));
        let journal = create(&context, areas(&context, &drives, bytes), 2, &host).await;
        journal.set_destage_percent(220);
        let served = Rc::new(Cell::new(0));
        for tag in 0..2000 {
            let (journal, served) = (journal.clone(), served.clone());
            context.spawn(async move {
                // A tag that gives a `Data` record, as clients log.
                append(&journal, record(3 * tag, &[4096]), Quota::Client).await.expect("room");
                served.set(served.get() + 1);
            });
        }
        context.sleep_ns(10_000_000).await;
        let full = served.get();
        assert!((100..1000).contains(&full), "{full} served");
        // Like destaging: some stripes together, whose parity records are released once they are in
        // place.
        for _ in 0..full / 2 / 20 {
            let parity: Vec<Record> = (0..20).map(|_| record(1, &[4096])).collect();
            let room = journal.reserve(Journal::bytes_of(&parity), Quota::Destage).await.expect("room");
            let parity = journal.append(parity, room).await.expect("room");
            for _ in 0..20 {
                journal.release(journal.oldest().expect("one is live"));
            }
            parity.into_iter().for_each(|sequence| journal.release(sequence));
            context.sleep_ns(1_000_000).await;
        }
        assert!(served.get() > full + full / 10, "{} served, {full} before", served.get());
    });
}

#[test]
fn records_in_place_need_no_destaging_room() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (1 << 20, Rc::new(Host::default()));
        let drives = as_drives(&memory(2, bytes));
        let journal = create(&context, areas(&context, &drives, bytes), 2, &host).await;
        journal.set_destage_percent(220);
        let fill_up = async || {
            let mut sequences = Vec::new();
            loop {
                // A tag that gives a `Data` record.
                let one = Box::pin(append(&journal, record(3, &[4096]), Quota::Client));
                match context.time_limit_ns(1_000_000, one).await {
                    Ok(sequence) => sequences.push(sequence.expect("room")),
                    Err(_) => return sequences,
                }
            }
        };
        let first = fill_up().await;
        assert!(first.len() > 10, "{}", first.len());
        assert!(fill_up().await.is_empty());
        let held = journal.held(None);
        assert!(held.bytes * 5 > held.ring_bytes && held.live_records == first.len() as u64, "{held:?}");
        assert_eq!(journal.held(Some(first[0])).bytes_before, 0);
        let before = journal.held(Some(first[4])).bytes_before;
        assert!(before > 0 && before < held.bytes, "{before} of {held:?}");
        first.iter().for_each(|&sequence| journal.note_placed(sequence));
        assert_eq!(journal.held(None).bytes, held.bytes, "nothing is released");
        let more = fill_up().await;
        assert!(more.len() * 4 > first.len(), "{} after {}", more.len(), first.len());
        // All of these have to be destaged, and there is room for that.
        for _ in &more {
            append(&journal, record(1, &[4096]), Quota::Destage).await.expect("room");
        }
    });
}

#[test]
fn largest_append_is_accepted_and_larger_refused() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        for bytes in [256 << 10, 1 << 20, 20 << 20] {
            let host = Rc::new(Host::default());
            let drives = as_drives(&memory(2, bytes));
            let journal = create(&context, areas(&context, &drives, bytes), 2, &host).await;
            let lengths: Vec<usize> = (4096..bytes as usize).step_by(4096).collect();
            let fits = |length: &usize| journal.fits(Journal::bytes_of(&[record(1, &[*length])]));
            let length = lengths[lengths.partition_point(fits) - 1];
            assert!(length as u64 >= bytes / 13, "{length} of {bytes}");
            let refused = append(&journal, record(1, &[length + 4096]), Quota::Client).await;
            assert!(matches!(refused, Err(ArrayError::Journal(_))), "{refused:?}");
            for tag in 0..20 {
                let done = append(&journal, record(tag, &[length]), Quota::Client).await.expect("it fits");
                journal.release(done);
            }
        }
    });
}

#[test]
fn dropped_reservations_and_waiters_free_room() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (256 << 10, Rc::new(Host::default()));
        let drives = as_drives(&memory(3, bytes));
        let journal = create(&context, areas(&context, &drives, bytes), 2, &host).await;
        let mut held = Vec::new();
        loop {
            let reserve = Box::pin(journal.reserve(8192, Quota::Client));
            match context.time_limit_ns(1000, reserve).await {
                Ok(room) => held.push(room.expect("room")),
                Err(_) => break, // drops the waiter
            }
        }
        assert!(held.len() > 5);
        drop(held);
        assert_eq!(journal.fill().used_bytes, 0);
        append(&journal, record(1, &[4096]), Quota::Client).await.expect("room");
    });
}

#[test]
fn rings_wrap_and_never_overlap() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    for seed in 1..=20 {
        println!("seed {seed}");
        executor.block_on(async {
            let mut random = stripewise_drive::SplitMix64::new(seed);
            let (bytes, host) = (256 << 10, Rc::new(Host::default()));
            let count = 1 + random.below(4) as usize;
            let copies = 1 + random.below(count as u64) as usize;
            let drives = as_drives(&memory(count, bytes));
            let journal = create(&context, areas(&context, &drives, bytes), copies, &host).await;
            let mut live = Vec::new();
            for tag in 0..600 {
                let length = 512 * random.below(40) as usize;
                loop {
                    let quota = Quota::Client;
                    let one = Box::pin(append(&journal, record(tag, &[length]), quota));
                    if let Ok(done) = context.time_limit_ns(1_000_000, one).await {
                        live.push((done.unwrap_or_else(|e| panic!("seed {seed}: {e}")), tag, length));
                        break;
                    }
                    let (oldest, ..) = live.remove(0);
                    journal.release(oldest);
                }
                journal.0.state.borrow().rings.iter().for_each(super::super::area::Ring::check);
                if random.chance(0.3) && !live.is_empty() {
                    let index = random.below(live.len() as u64) as usize;
                    journal.release(live.remove(index).0);
                }
            }
            journal.close().await.expect("closing");
            let (journal, replay) =
                open(&context, areas(&context, &drives, bytes), copies, &host).await.expect("it opens");
            let found: Vec<u64> = replay.records.iter().map(|found| found.record.sequence).collect();
            assert_eq!(found, live.iter().map(|one| one.0).collect::<Vec<_>>(), "seed {seed}");
            for (found, &(_, tag, length)) in replay.records.iter().zip(&live) {
                let loaded = journal.load(found).await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                assert_eq!(loaded.stripe, tag, "seed {seed}");
                check_record(&loaded, &[length], &format!("seed {seed}"));
            }
        });
    }
}

#[test]
fn slot_is_reused_only_after_durable_release() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (512 << 10, Rc::new(Host::default()));
        let faults = stripewise_drive::FaultyDrive::new(&context, memory(1, bytes)[0].clone(), 1);
        let drives: Vec<Rc<dyn Drive>> = vec![faults.clone()];
        let journal = create(&context, areas(&context, &drives, bytes), 1, &host).await;
        let first = append(&journal, record(1, &[4096]), Quota::Client).await.expect("room");
        let number = journal.0.state.borrow().batches[0].number;
        let held = || journal.0.state.borrow().rings[0].holds(number, 0);
        faults.set_delay(stripewise_drive::Delay::Fixed(1_000_000));
        let second = {
            let journal = journal.clone();
            context.spawn(async move { append(&journal, record(2, &[4096]), Quota::Client).await })
        };
        context.sleep_ns(1000).await;
        journal.release(first);
        assert!(held(), "no batch records the release");
        second.await.expect("room");
        assert!(held(), "the second batch was formed before the release");
        journal.mark().await.expect("a mark");
        assert!(!held());
    });
}

#[test]
fn interrupted_openings_leave_room_for_releases() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let (bytes, host) = (256 << 10, Rc::new(Host::default()));
        let drives = as_drives(&memory(2, bytes));
        let journal = create(&context, areas(&context, &drives, bytes), 2, &host).await;
        // Fill the ring completely, with the quota that may fill it most.
        for tag in 0..80 {
            let full = Box::pin(append(&journal, record(tag, &[4096]), Quota::Destage));
            if context.time_limit_ns(1_000_000, full).await.is_err() {
                break;
            }
        }
        let mut found = Vec::new();
        drop(journal);
        for round in 0..20 {
            let (journal, replay) = open(&context, areas(&context, &drives, bytes), 2, &host)
                .await
                .unwrap_or_else(|why| panic!("opening {round}: {why}"));
            let now = tags(&replay);
            assert!(!now.is_empty() && (round == 0 || now == found), "nothing was released");
            found = now;
            if round < 19 {
                continue;
            }
            replay.records.iter().for_each(|found| journal.release(found.record.sequence));
            let closed = context.time_limit_ns(1_000_000_000, Box::pin(journal.close())).await;
            assert!(matches!(closed, Ok(Ok(()))), "there is room to record the releases: {closed:?}");
        }
        let (journal, replay) =
            open(&context, areas(&context, &drives, bytes), 2, &host).await.expect("opens");
        assert_eq!(tags(&replay), [0u64; 0]);
        append(&journal, record(7, &[4096]), Quota::Client).await.expect("room");
    });
}
