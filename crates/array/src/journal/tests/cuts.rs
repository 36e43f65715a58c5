//! Power cuts at any instant, with areas lost in the same instant, several times in a row.

use std::collections::BTreeMap;
use std::ops::Range;

use super::seeds::sweep;
use super::*;
use stripewise_drive::{CrashDrive, Delay, IoRequest, SplitMix64};

#[derive(Clone, Debug, Default)]
struct Life {
    lengths: Vec<usize>,
    group: u64,
    sequence: Option<u64>,
    /// It must be found (acknowledged, or found before) unless released.
    sure: bool,
    /// When it was released, as a count of events.
    released: Option<u64>,
}

#[derive(Default)]
struct History {
    lives: RefCell<BTreeMap<u64, Life>>,
    events: Cell<u64>,
    /// Everything released before this event is durably so.
    barrier: Cell<u64>,
    next: Cell<u64>,
    next_group: Cell<u64>,
    appended: Cell<u64>,
}

impl History {
    fn event(&self) -> u64 {
        self.events.set(self.events.get() + 1);
        self.events.get()
    }

    fn release(&self, journal: &Journal, tag: u64) {
        let sequence = {
            let mut lives = self.lives.borrow_mut();
            let life = lives.get_mut(&tag).expect("known");
            assert!(life.released.is_none());
            life.released = Some(self.event());
            life.sequence.expect("appended")
        };
        journal.release(sequence);
    }
}

fn next(counter: &Cell<u64>) -> u64 {
    counter.set(counter.get() + 1);
    counter.get()
}

async fn client(journal: Journal, context: Context, history: Rc<History>, seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut mine: Vec<u64> = Vec::new();
    loop {
        if random.chance(0.1) {
            let called = history.event();
            journal.mark().await.expect("a mark");
            history.barrier.set(history.barrier.get().max(called));
        }
        let group = next(&history.next_group);
        let made: Vec<(u64, Vec<usize>)> = (0..1 + random.below(3))
            .map(|_| {
                let parts = random.below(3) as usize;
                let lengths = (0..parts).map(|_| 512 * (1 + random.below(6)) as usize).collect();
                (next(&history.next), lengths)
            })
            .collect();
        let records: Vec<Record> = made.iter().map(|(tag, lengths)| record(*tag, lengths)).collect();
        let quota = if random.chance(0.2) { Quota::Destage } else { Quota::Client };
        let limit = random.below(3_000_000);
        let reserve = Box::pin(journal.reserve(Journal::bytes_of(&records), quota));
        // A writer that finds it full makes room, the oldest first as far as it is its own.
        if let Ok(room) = context.time_limit_ns(limit, reserve).await {
            let room = room.expect("it fits");
            for (tag, lengths) in &made {
                let life = Life { lengths: lengths.clone(), group, ..Life::default() };
                history.lives.borrow_mut().insert(*tag, life);
            }
            let called = history.event();
            let sequences = journal.append(records, room).await.expect("an append");
            history.barrier.set(history.barrier.get().max(called));
            for ((tag, _), sequence) in made.iter().zip(sequences) {
                let mut lives = history.lives.borrow_mut();
                let life = lives.get_mut(tag).expect("known");
                (life.sequence, life.sure) = (Some(sequence), true);
                mine.push(*tag);
            }
            history.appended.set(history.appended.get() + 1);
        } else if !mine.is_empty() {
            history.release(&journal, mine.remove(0));
        }
        if random.chance(0.5) {
            context.sleep_ns(random.below(300_000)).await;
        }
        while mine.len() > 6 || (!mine.is_empty() && random.chance(0.5)) {
            let index = if random.chance(0.7) { 0 } else { random.below(mine.len() as u64) as usize };
            history.release(&journal, mine.remove(index));
        }
    }
}

/// Checks what was found against what must and may be; then that is what is known.
async fn check(journal: &Journal, replay: &Replay, history: &History, what: &str) {
    assert_eq!(replay.missing_batches, 0, "{what}");
    let sequences: Vec<u64> = replay.records.iter().map(|found| found.record.sequence).collect();
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]), "{what}: out of order");
    let mut found_tags = BTreeMap::new();
    for found in &replay.records {
        let loaded = journal.load(found).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        let tag = loaded.stripe;
        let life = history.lives.borrow().get(&tag).cloned();
        let life = life.unwrap_or_else(|| panic!("{what}: tag {tag} was never appended"));
        check_record(&loaded, &life.lengths, what);
        if let Some(sequence) = life.sequence {
            assert_eq!(sequence, loaded.sequence, "{what}: tag {tag}");
        }
        if let Some(released) = life.released {
            assert!(
                released >= history.barrier.get(),
                "{what}: tag {tag} released at {released}, durable since {}, was found",
                history.barrier.get()
            );
        }
        found_tags.insert(tag, loaded.sequence);
    }
    let mut groups: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
    for (tag, life) in history.lives.borrow().iter() {
        let found = found_tags.contains_key(tag);
        assert!(found || !life.sure || life.released.is_some(), "{what}: tag {tag} is gone: {life:?}");
        if !life.sure {
            let group = groups.entry(life.group).or_default();
            group.0 += 1;
            group.1 += usize::from(found);
        }
    }
    for (group, (all, found)) in groups {
        assert!(found == 0 || found == all, "{what}: append {group}: {found} of {all} found");
    }
    let mut lives = history.lives.borrow_mut();
    lives.retain(|tag, _| found_tags.contains_key(tag));
    for (tag, life) in lives.iter_mut() {
        *life = Life { sequence: Some(found_tags[tag]), sure: true, released: None, ..life.clone() };
    }
}

struct Round {
    images: Vec<Rc<MemoryDrive>>,
    /// True if areas may have been lost in the instant of the cut.
    may_lose: bool,
}

async fn powered(context: &Context, image: &MemoryDrive, bytes: u64, seed: u64) -> Rc<CrashDrive> {
    let delay = Delay::Exponential { mean_ns: 60_000 };
    let drive = CrashDrive::with_delay(context, "crash", BASE + bytes, delay, seed);
    let mut contents = vec![0; (BASE + bytes) as usize];
    image.peek(0, &mut contents);
    drive.submit(IoRequest::write(0, Buffer::from_bytes(&contents), true)).await.expect("a write");
    drive
}

fn cut(seed: u64) -> u64 {
    let mut random = SplitMix64::new(seed);
    let bytes = (256 << 10) << random.below(2);
    let count = 1 + random.below(5) as usize;
    let copies = 1 + random.below(count.min(3) as u64) as usize;
    let history = Rc::new(History::default());
    let mut images = memory(count, bytes);
    for image in &images {
        let mut garbage = vec![0; bytes as usize];
        garbage.fill_with(|| random.next_u64() as u8);
        image.poke(BASE, &garbage);
    }
    // Areas whose content counts.
    let mut current: Vec<usize> = (0..count).collect();
    for round in 0..4 {
        let what = format!("seed {seed}, round {round}: {count} areas, {copies} copies, current {current:?}");
        let done = {
            let executor = VirtualExecutor::shuffled(seed + round);
            let context = executor.context();
            let mut random = SplitMix64::new(seed * 31 + round);
            executor.block_on(async {
                let mut drives = Vec::new();
                for image in &images {
                    drives.push(powered(&context, image, bytes, random.next_u64()).await);
                }
                let host = Rc::new(Host::default());
                let all = areas(&context, &as_drives(&drives), bytes);
                let in_use: Vec<Area> = current.iter().map(|&index| all[index].clone()).collect();
                let back: Vec<Area> =
                    (0..count).filter(|index| !current.contains(index)).map(|i| all[i].clone()).collect();
                let running: Rc<RefCell<Option<Journal>>> = Rc::default();
                let main = {
                    let (context, history, host) = (context.clone(), history.clone(), host.clone());
                    let (running, what) = (running.clone(), what.clone());
                    context.clone().spawn(async move {
                        let journal = if round == 0 {
                            create(&context, in_use, copies, &host).await
                        } else {
                            let opened = open(&context, in_use, copies, &host).await;
                            let (journal, replay) = opened.unwrap_or_else(|e| panic!("{what}: {e}"));
                            check(&journal, &replay, &history, &what).await;
                            for area in back {
                                journal.add_area(area).await.expect("it comes back");
                            }
                            journal.restore_copies().await.expect("restoring");
                            let old: Vec<u64> = history.lives.borrow().keys().copied().collect();
                            for tag in old {
                                history.release(&journal, tag);
                                context.sleep_ns(20_000).await;
                            }
                            journal
                        };
                        *running.borrow_mut() = Some(journal.clone());
                        for number in 0..4 {
                            let client =
                                client(journal.clone(), context.clone(), history.clone(), seed * 7 + number);
                            context.spawn(client);
                        }
                    })
                };
                // The cut: while it is created (then nothing is there to check), opened, or in use.
                if round == 0 {
                    main.await;
                }
                let instant = if random.chance(0.3) { 3_000_000 } else { 60_000_000 };
                context.sleep_ns(random.below(instant)).await;
                let may_lose = running.borrow().as_ref().is_some_and(|journal| !journal.is_short());
                assert!(host.failed.borrow().is_empty(), "{what}");
                let images = drives.iter().map(|drive| drive.image_after_cut("after", random.next_u64()));
                Round { images: images.collect(), may_lose }
            })
        };
        images = done.images;
        if done.may_lose {
            current = (0..count).collect();
            for _ in 0..random.below(copies as u64) {
                current.remove(random.below(current.len() as u64) as usize);
            }
        }
    }
    history.appended.get()
}

fn cut_each(seeds: Range<u64>) {
    let (mut appends, mut runs) = (0, 0);
    for seed in sweep(seeds) {
        runs += 1;
        appends += cut(seed);
    }
    assert!(runs == 1 || appends > 250 * runs, "only {appends} appends were made in {runs} runs");
}

test_cases! {
    acknowledged_records_survive_any_cut = cut_each {
        from_1: 1..21,
        from_21: 21..41,
        from_41: 41..61,
        from_61: 61..81,
    }
}
