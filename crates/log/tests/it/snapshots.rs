//! Snapshots, rollback, clones and differences, with power cuts at any instant.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::{Buffer, Context, CrashDrive, Delay, Drive, FaultyDrive, MemoryDrive, SplitMix64};
use stripewise_layout::MemberSet;
use stripewise_log::{Log, LogError};
use stripewise_runtime::VirtualExecutor;

use crate::crash::StuckRoots;
use crate::kit::history::{History, client, read_snapshot};
use crate::kit::seeds::sweep;
use crate::kit::{Setup, delete_snapshot, dynamic, take_snapshot};

/// Progress of a snapshot.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Creating,
    Kept,
    Deleting,
}

type Snapshots = Rc<RefCell<BTreeMap<String, (Stage, Rc<History>)>>>;

/// Takes, reads and deletes snapshots until the log fails.
async fn snapshooter(
    context: Context,
    log: Log,
    history: Rc<History>,
    all: Snapshots,
    seed: u64,
    round: u64,
) {
    let mut random = SplitMix64::new(seed);
    for turn in 0.. {
        context.sleep_ns(random.below(12_000_000)).await;
        let kept = all.borrow().iter().filter(|(_, (stage, _))| *stage == Stage::Kept).count() as u64;
        let chosen = all.borrow().keys().nth(random.below(kept.max(1)) as usize).cloned();
        match (chosen, random.below(10)) {
            (Some(name), 0..2) => {
                let own = all.borrow()[&name].1.clone();
                own.judge_snapshot(&log, &name, seed, "while clients write").await;
            }
            (Some(name), 2..5) if kept > 1 => {
                all.borrow_mut().get_mut(&name).expect("chosen").0 = Stage::Deleting;
                delete_snapshot(&log, &name).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                all.borrow_mut().remove(&name);
            }
            _ if kept < 4 => {
                let (name, own) = (format!("{round}-{turn}"), history.copy());
                all.borrow_mut().insert(name.clone(), (Stage::Creating, own.clone()));
                take_snapshot(&log, &name).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                own.allow_up_to(&history);
                all.borrow_mut().insert(name, (Stage::Kept, own));
            }
            _ => {}
        }
    }
}

/// Compares the snapshots after a cut with what they must be.
async fn judge_all(log: &Log, all: &Snapshots, history: &History, seed: u64, when: &str) {
    let names: Vec<String> = log.snapshots().into_iter().map(|snapshot| snapshot.name).collect();
    let known: Vec<_> = all.borrow().clone().into_iter().collect();
    for (name, (stage, own)) in known {
        if !names.contains(&name) {
            assert!(stage != Stage::Kept, "seed {seed}: {when}: snapshot {name} is lost");
            all.borrow_mut().remove(&name);
            continue;
        }
        if stage == Stage::Creating {
            own.allow_up_to(history);
        }
        own.judge_snapshot(log, &name, seed, when).await;
        all.borrow_mut().insert(name, (Stage::Kept, own));
    }
    assert_eq!(names.len(), all.borrow().len(), "seed {seed}: {when}: {names:?}");
}

/// Lives of a log with snapshots and power cuts. Panics where a promise is broken.
pub fn life(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (level, width) = [("raid5", 4), ("raid6", 5), ("raid1", 2)][random.below(3) as usize];
    let mut setup = Setup::small(level, width);
    setup.segments = 60 + random.below(60);
    setup.fill = [0.2, 0.4, 0.6][random.below(3) as usize];
    let mut images: Vec<Rc<MemoryDrive>> =
        (0..width).map(|_| MemoryDrive::new("new", setup.drive_bytes())).collect();
    let mut history: Option<Rc<History>> = None;
    let all = Snapshots::default();
    for round in 0..5 {
        let drives: Vec<Rc<CrashDrive>> =
            images.iter().map(|image| CrashDrive::from_image("crash", image)).collect();
        let executor = VirtualExecutor::shuffled(seed * 7 + round);
        executor.limit_polls(5_000_000);
        let context = executor.context();
        let slow = |drive: &Rc<CrashDrive>| {
            let delayed = FaultyDrive::new(&context, drive.clone(), seed + round);
            delayed.set_delay(Delay::Exponential { mean_ns: 100_000 });
            delayed as Rc<dyn Drive>
        };
        let tops: Vec<Rc<dyn Drive>> = drives.iter().map(slow).collect();
        let instant_ns = random.below(150_000_000);
        let rolls_back = round > 0 && random.chance(0.4);
        let clients = 1 + random.below(3);
        let known = executor.block_on(async {
            let log = match &history {
                None => setup.create(&context, &tops).await,
                Some(_) => setup.open(&context, &tops, MemberSet::EMPTY).await.unwrap_or_else(|error| {
                    panic!("seed {seed}: round {round}: {error}");
                }),
            };
            let mut known = history.clone().unwrap_or_else(|| History::new(log.capacity_bytes() / 4096));
            let when = format!("after cut {round}");
            judge_all(&log, &all, &known, seed, &when).await;
            known.judge(&log, true, seed, &when).await;
            let chosen = all.borrow().iter().next().map(|(name, (_, own))| (name.clone(), own.clone()));
            if let Some((name, own)) = chosen.filter(|_| rolls_back) {
                log.roll_back(&name, &[]).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let old = known;
                known = own.copy();
                known.go_on_after(&old);
                known.judge(&log, false, seed, "rolled back").await;
            }
            for number in 0..clients {
                let seed = seed + round * 99;
                context.spawn(client(context.clone(), log.clone(), known.clone(), number, clients, seed));
            }
            context.spawn(snapshooter(context.clone(), log, known.clone(), all.clone(), seed + round, round));
            context.sleep_ns(instant_ns).await;
            known
        });
        history = Some(known);
        images = drives
            .iter()
            .enumerate()
            .map(|(number, drive)| drive.image_after_cut("after", seed * 31 + round * 7 + number as u64))
            .collect();
        drop(executor);
    }
    let history = history.expect("made in the first round");
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let log = setup.open(&context, &dynamic(&images), MemberSet::EMPTY).await.expect("recovered");
        judge_all(&log, &all, &history, seed, "at the end").await;
        history.judge(&log, true, seed, "at the end").await;
    });
}

fn lives(seeds: Range<u64>) {
    sweep(seeds).for_each(life);
}

test_cases! {
    snapshots_survive_cuts_exactly = lives {
        from_1: 1..6,
        from_6: 6..11,
        from_11: 11..16,
    }
}

/// Runs a test on a log in memory.
fn on_log(setup: &Setup, test: impl AsyncFnOnce(&Log, &Context, Vec<Rc<dyn Drive>>)) {
    let memory: Vec<Rc<MemoryDrive>> =
        (0..setup.shape.width).map(|_| MemoryDrive::new("memory", setup.drive_bytes())).collect();
    let executor = VirtualExecutor::new();
    executor.limit_polls(20_000_000);
    let context = executor.context();
    executor.block_on(async {
        let drives = dynamic(&memory);
        let log = setup.create(&context, &drives).await;
        test(&log, &context, drives).await;
    });
}

async fn overwrite(log: &Log, history: &History, random: &mut SplitMix64, count: u64) {
    for _ in 0..count {
        let lba = random.below(history.blocks() - 3);
        match random.chance(0.05) {
            true => history.discard(log, lba, 1 + random.below(3)).await.expect("discarded"),
            false => history.write(log, lba, 1 + random.below(3), false).await.expect("written"),
        }
    }
}

#[test]
fn snapshots_do_not_change_while_all_is_cleaned() {
    let mut setup = Setup::small("raid5", 4);
    setup.fill = 0.2;
    on_log(&setup, async |log, context, drives| {
        let history = History::new(log.capacity_bytes() / 4096);
        let mut random = SplitMix64::new(1);
        let mut kept = Vec::new();
        for turn in 0..3 {
            overwrite(log, &history, &mut random, history.blocks()).await;
            let name = format!("turn {turn}");
            take_snapshot(log, &name).await.expect("created");
            kept.push((name, history.copy()));
        }
        for _ in 0..4 {
            overwrite(log, &history, &mut random, 4 * history.blocks()).await;
            for (name, own) in &kept {
                own.judge_snapshot(log, name, 1, "while overwriting").await;
            }
            history.judge(log, false, 1, "while overwriting").await;
        }
        let figures = log.figures();
        assert!(figures.cleaned > 100 && figures.merges > 10, "{figures:?}");
        log.close().await.expect("closed");
        let log = setup.open(context, &drives, MemberSet::EMPTY).await.expect("opened");
        assert_eq!(log.snapshots().len(), 3);
        for (name, own) in &kept {
            own.judge_snapshot(&log, name, 1, "opened again").await;
        }
        history.judge(&log, false, 1, "opened again").await;
    });
}

#[test]
fn deleted_snapshots_give_their_space_back() {
    let mut setup = Setup::small("raid5", 4);
    setup.fill = 0.6;
    on_log(&setup, async |log, _, _| {
        let history = History::new(log.capacity_bytes() / 4096);
        let write_all = async || {
            for lba in 0..history.blocks() {
                history.write(log, lba, 1, false).await?;
            }
            Ok::<(), LogError>(())
        };
        for _ in 0..6 {
            write_all().await.expect("there is room");
            take_snapshot(log, "old").await.expect("created");
            let own = history.copy();
            let refused = write_all().await;
            assert!(matches!(refused, Err(LogError::NoSpace { snapshots: 1, .. })), "{refused:?}");
            own.judge_snapshot(log, "old", 1, "full").await;
            // Discards are always possible; they free what no snapshot keeps.
            history.discard(log, 0, 50).await.expect("discarded");
            let opened = log.snapshot("old").expect("it is there");
            let written = opened.write(0, Buffer::from_bytes(&[1; 4096]), true).await;
            assert!(matches!(written, Err(LogError::ReadOnly)), "{written:?}");
            assert!(matches!(opened.discard(0, 4096).await, Err(LogError::ReadOnly)));
            delete_snapshot(log, "old").await.expect("deleted");
            let gone = read_snapshot(log, "old", 0, 4096).await;
            assert!(matches!(gone, Err(LogError::NoSuchSnapshot { .. })), "{gone:?}");
            let gone = opened.read(0, 4096).await;
            assert!(matches!(gone, Err(LogError::SnapshotGone)), "{gone:?}");
        }
        write_all().await.expect("there is room");
        history.judge(log, false, 1, "at the end").await;
    });
}

#[test]
fn blocks_kept_for_snapshots_are_counted() {
    let mut setup = Setup::small("raid5", 4);
    setup.fill = 0.6;
    on_log(&setup, async |log, context, drives| {
        let history = History::new(log.capacity_bytes() / 4096);
        for lba in 0..history.blocks() {
            history.write(log, lba, 1, false).await.expect("written");
        }
        assert_eq!((log.figures().snapshots, log.figures().snapshot_blocks), (0, 0));
        take_snapshot(log, "old").await.expect("created");
        let mut overwritten = 0;
        while history.write(log, overwritten, 1, false).await.is_ok() {
            overwritten += 1;
            let kept = log.figures().snapshot_blocks;
            assert!(kept <= overwritten, "{kept} of {overwritten}");
        }
        // A full volume was merged as a whole.
        let kept = log.figures().snapshot_blocks;
        assert!(kept.abs_diff(overwritten) < 30, "{kept} of {overwritten}");
        log.close().await.expect("closed");
        let log = setup.open(context, &drives, MemberSet::EMPTY).await.expect("opened");
        let again = log.figures().snapshot_blocks;
        assert!(again.abs_diff(kept) < 30, "{again}, {kept} before closing");
        delete_snapshot(&log, "old").await.expect("deleted");
        assert_eq!((log.figures().snapshots, log.figures().snapshot_blocks), (0, 0));
    });
}

#[test]
fn roots_without_room_refuse_snapshots_only() {
    let mut setup = Setup::small("raid1", 2);
    setup.fill = 0.2;
    on_log(&setup, async |log, context, drives| {
        let history = History::new(log.capacity_bytes() / 4096);
        let mut random = SplitMix64::new(6);
        let mut made = 0;
        let refused = loop {
            match take_snapshot(log, &format!("{made:0>120}")).await {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
        };
        assert!(
            matches!(refused, LogError::TooManySnapshots { snapshots } if snapshots == made),
            "{refused}"
        );
        assert!(made > 200, "{made}");
        overwrite(log, &history, &mut random, 3 * history.blocks()).await;
        delete_snapshot(log, &format!("{:0>120}", 7)).await.expect("deleted");
        take_snapshot(log, &format!("{:0>120}", "again")).await.expect("there is room for one");
        overwrite(log, &history, &mut random, history.blocks()).await;
        log.close().await.expect("closed");
        let log = setup.open(context, &drives, MemberSet::EMPTY).await.expect("opened");
        assert_eq!(log.snapshots().len(), made);
        history.judge(&log, false, 6, "opened again").await;
    });
}

#[test]
fn wrong_snapshots_change_nothing() {
    let mut setup = Setup::small("raid1", 2);
    setup.fill = 0.2;
    on_log(&setup, async |log, _, _| {
        take_snapshot(log, "one").await.expect("created");
        let both = |second: &str| [(log.clone(), "two".to_owned()), (log.clone(), second.to_owned())];
        for second in ["one", "two", "", &"x".repeat(129)] {
            assert!(Log::create_snapshots(&both(second), 0).await.is_err(), "{second}");
        }
        let gone = log.delete_snapshots(&["one".to_owned(), "two".to_owned()]).await;
        assert!(matches!(gone, Err(LogError::NoSuchSnapshot { .. })), "{gone:?}");
        let names: Vec<String> = log.snapshots().into_iter().map(|snapshot| snapshot.name).collect();
        assert_eq!(names, ["one"]);
        Log::create_snapshots(&both("three"), 5).await.expect("created");
        assert_eq!(log.snapshots()[2].created_unix_ms, 5);
    });
}

#[test]
fn rollback_restores_and_keeps_later_snapshots() {
    let mut setup = Setup::small("raid6", 5);
    setup.fill = 0.2;
    on_log(&setup, async |log, context, drives| {
        let history = History::new(log.capacity_bytes() / 4096);
        let mut random = SplitMix64::new(2);
        overwrite(log, &history, &mut random, history.blocks()).await;
        take_snapshot(log, "first").await.expect("created");
        let first = history.copy();
        overwrite(log, &history, &mut random, history.blocks()).await;
        take_snapshot(log, "second").await.expect("created");
        let second = history.copy();
        overwrite(log, &history, &mut random, history.blocks()).await;
        let mut current = history;
        for (name, own) in [("first", &first), ("second", &second), ("first", &first)] {
            log.roll_back(name, &[]).await.expect("rolled back");
            let old = current;
            current = own.copy();
            current.go_on_after(&old);
            current.judge(log, false, 2, "rolled back").await;
            overwrite(log, &current, &mut random, 3 * current.blocks()).await;
            for (name, own) in [("first", &first), ("second", &second)] {
                own.judge_snapshot(log, name, 2, "after a rollback").await;
            }
            current.judge(log, false, 2, "after a rollback").await;
        }
        delete_snapshot(log, "first").await.expect("deleted");
        overwrite(log, &current, &mut random, 3 * current.blocks()).await;
        log.close().await.expect("closed");
        let log = setup.open(context, &drives, MemberSet::EMPTY).await.expect("opened");
        second.judge_snapshot(&log, "second", 2, "opened again").await;
        current.judge(&log, false, 2, "opened again").await;
    });
}

#[test]
fn rollbacks_end_before_the_roots_are_full() {
    let mut setup = Setup::small("raid1", 2);
    setup.fill = 0.2;
    on_log(&setup, async |log, context, drives| {
        take_snapshot(log, "old").await.expect("created");
        take_snapshot(log, "newer").await.expect("created");
        let newer = ["newer".to_owned()];
        let mut done = 0;
        let refused = loop {
            match log.roll_back("old", &[]).await {
                Ok(()) => done += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, LogError::TooManyBranches) && done > 500, "{refused}, {done}");
        let refused = log.roll_back("old", &newer).await;
        assert!(matches!(refused, Err(LogError::TooManyBranches)), "{refused:?}");
        let refused = log.clone_snapshot("old").await.map(drop);
        assert!(matches!(refused, Err(LogError::TooManyBranches)), "{refused:?}");
        assert_eq!(log.snapshots().len(), 2, "neither of both was done");
        log.write(0, Buffer::from_bytes(&[1; 4096]), true).await.expect("the log works");
        log.close().await.expect("closed");
        let log = setup.open(context, &drives, MemberSet::EMPTY).await.expect("opened");
        assert_eq!(log.snapshots().len(), 2);
    });
}

#[test]
fn clones_share_and_go_their_own_way() {
    let mut setup = Setup::small("raid5", 4);
    setup.fill = 0.2;
    on_log(&setup, async |log, context, drives| {
        let history = History::new(log.capacity_bytes() / 4096);
        let mut random = SplitMix64::new(3);
        overwrite(log, &history, &mut random, history.blocks()).await;
        take_snapshot(log, "base").await.expect("created");
        let live = log.figures().live_blocks;
        let clone = log.clone_snapshot("base").await.expect("cloned");
        assert_eq!(log.figures().live_blocks, live, "a clone takes no space");
        let of_clone = history.copy();
        of_clone.judge(&clone, false, 3, "cloned").await;
        // The clone does without the snapshot that it began with.
        delete_snapshot(log, "base").await.expect("deleted");
        for _ in 0..3 {
            overwrite(log, &history, &mut random, history.blocks()).await;
            overwrite(&clone, &of_clone, &mut random, history.blocks() / 2).await;
            history.judge(log, false, 3, "the volume").await;
            of_clone.judge(&clone, false, 3, "the clone").await;
        }
        take_snapshot(&clone, "base").await.expect("names are the clone's own");
        assert!(log.snapshots().is_empty());
        log.close().await.expect("closed");
        let log = setup.open(context, &drives, MemberSet::EMPTY).await.expect("opened");
        assert_eq!(log.numbers(), [0, clone.number()]);
        let clone = log.volume(clone.number()).expect("it is there");
        history.judge(&log, false, 3, "opened again").await;
        of_clone.judge(&clone, false, 3, "opened again").await;
        clone.delete_clone().await.expect("deleted");
        let gone = clone.read(0, 4096).await;
        assert!(matches!(gone, Err(LogError::NoSuchClone)), "{gone:?}");
        overwrite(&log, &history, &mut random, 4 * history.blocks()).await;
        history.judge(&log, false, 3, "without the clone").await;
    });
}

#[test]
fn changes_are_the_blocks_that_differ() {
    let mut setup = Setup::small("raid1", 2);
    setup.fill = 0.2;
    on_log(&setup, async |log, _, _| {
        let history = History::new(log.capacity_bytes() / 4096);
        let mut random = SplitMix64::new(4);
        overwrite(log, &history, &mut random, history.blocks() / 2).await;
        for turn in 0..6 {
            let (older, newer) = (format!("{turn}"), format!("{}", turn + 1));
            if turn == 0 {
                take_snapshot(log, &older).await.expect("created");
            }
            let count = 1 + random.below(300);
            overwrite(log, &history, &mut random, count).await;
            take_snapshot(log, &newer).await.expect("created");
            let mut changed = vec![false; history.blocks() as usize];
            let mut from = Some(0);
            while let Some(at) = from {
                let changes = log.changes(Some(&older), Some(&newer), at).await.expect("compared");
                for range in changes.ranges {
                    let blocks = range.offset_bytes / 4096..(range.offset_bytes + range.length_bytes) / 4096;
                    blocks.for_each(|lba| changed[lba as usize] = true);
                }
                from = changes.next_bytes;
            }
            for (lba, is_changed) in changed.into_iter().enumerate() {
                let before = read_snapshot(log, &older, lba as u64 * 4096, 4096).await.expect("read");
                let after = read_snapshot(log, &newer, lba as u64 * 4096, 4096).await.expect("read");
                assert_eq!(is_changed, before.to_vec() != after.to_vec(), "turn {turn}: block {lba}");
            }
        }
    });
}

#[test]
fn interrupted_rollbacks_are_all_or_nothing() {
    let mut setup = Setup::small("raid5", 4);
    setup.fill = 0.2;
    let memory: Vec<Rc<MemoryDrive>> =
        (0..4).map(|_| MemoryDrive::new("memory", setup.drive_bytes())).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (old, new) = executor.block_on(async {
        let log = setup.create(&context, &dynamic(&memory)).await;
        let history = History::new(log.capacity_bytes() / 4096);
        let mut random = SplitMix64::new(5);
        overwrite(&log, &history, &mut random, history.blocks()).await;
        take_snapshot(&log, "before").await.expect("created");
        let old = history.copy();
        overwrite(&log, &history, &mut random, history.blocks()).await;
        log.close().await.expect("closed");
        (old, history)
    });
    let mut outcomes = [0, 0];
    for seed in 0..40 {
        let drives: Vec<Rc<CrashDrive>> =
            memory.iter().map(|image| CrashDrive::from_image("crash", image)).collect();
        let executor = VirtualExecutor::shuffled(seed);
        let context = executor.context();
        let slow = |drive: &Rc<CrashDrive>| {
            let delayed = FaultyDrive::new(&context, drive.clone(), seed);
            delayed.set_delay(Delay::Exponential { mean_ns: 100_000 });
            delayed as Rc<dyn Drive>
        };
        let tops: Vec<Rc<dyn Drive>> = drives.iter().map(slow).collect();
        let is_done = executor.block_on(async {
            let log = setup.open(&context, &tops, MemberSet::EMPTY).await.expect("opened");
            let rollback = Box::pin(log.roll_back("before", &[]));
            context.time_limit_ns(seed * 40_000, rollback).await.is_ok()
        });
        let images: Vec<Rc<MemoryDrive>> =
            drives.iter().map(|drive| drive.image_after_cut("after", seed)).collect();
        drop(executor);
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let log = setup.open(&context, &dynamic(&images), MemberSet::EMPTY).await.expect("opened");
            old.copy().judge_snapshot(&log, "before", seed, "after the cut").await;
            let first_changed = log.changes(Some("before"), None, 0).await.expect("compared").ranges.len();
            let is_back = first_changed == 0;
            assert!(is_back || !is_done, "seed {seed}: an acknowledged rollback is lost");
            outcomes[usize::from(is_back)] += 1;
            if is_back { old.copy() } else { new.copy() }.judge(&log, false, seed, "after the cut").await;
        });
    }
    assert!(outcomes.iter().all(|&count| count > 3), "{outcomes:?}");
}

/// Virtual time that a snapshot takes with this many blocks stored, if each request to a drive
/// takes a millisecond.
fn creation_ns(blocks: u64) -> u64 {
    let mut setup = Setup::small("raid5", 4);
    setup.segments = 400;
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let slow = |_| {
            let delayed = FaultyDrive::new(&context, MemoryDrive::new("memory", setup.drive_bytes()), 1);
            delayed.set_delay(Delay::Fixed(1_000_000));
            delayed as Rc<dyn Drive>
        };
        let drives: Vec<Rc<dyn Drive>> = (0..4).map(slow).collect();
        let log = setup.create(&context, &drives).await;
        let history = History::new(log.capacity_bytes() / 4096);
        for lba in 0..blocks {
            history.write(&log, lba, 1, false).await.expect("written");
        }
        // The last write is in memory only, and becomes durable with the snapshot.
        context.sleep_ns(1_000_000_000).await;
        let began_ns = context.now_ns();
        take_snapshot(&log, "now").await.expect("created");
        context.now_ns() - began_ns
    })
}

#[test]
fn snapshots_take_the_same_short_time_at_any_size() {
    let (few, many) = (creation_ns(50), creation_ns(6000));
    assert!((1_000_000..10_000_000).contains(&many), "{many} ns");
    assert!(many <= few + 1_000_000, "{few} ns with few blocks, {many} ns with many");
}

/// Deletes a snapshot while no commit ends, and overwrites what it has; then power is cut.
pub fn deletions_wait_for_the_roots() {
    let mut setup = Setup::small("raid5", 4);
    setup.fill = 0.2;
    let drives: Vec<Rc<dyn Drive>> =
        (0..4).map(|_| MemoryDrive::new("memory", setup.drive_bytes()) as Rc<dyn Drive>).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let own = executor.block_on(async {
        let mut stuck = None;
        let log = setup.create_with(&context, &drives, |slots| {
            stuck.insert(Rc::new(StuckRoots { slots, is_stuck: Cell::new(false) })).clone()
        });
        let log = log.await;
        let history = History::new(log.capacity_bytes() / 4096);
        history.write(&log, 0, 4, false).await.expect("written");
        take_snapshot(&log, "kept").await.expect("created");
        let own = history.copy();
        stuck.expect("made with the log").is_stuck.set(true);
        let deletion = Box::pin(delete_snapshot(&log, "kept"));
        let deleted = context.time_limit_ns(1_000_000, deletion).await;
        assert!(deleted.is_err(), "no commit can end");
        // Enough to seal the segment that has the snapshot's blocks.
        for lba in 0..40 {
            history.write(&log, lba, 1, false).await.expect("written");
        }
        history.flush(&log).await.expect("flushed");
        own
    });
    drop(executor);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let log = setup.open(&context, &drives, MemberSet::EMPTY).await.expect("recovered");
        own.judge_snapshot(&log, "kept", 1, "without the commit").await;
    });
}

#[test]
fn deleted_snapshots_are_kept_until_roots_are_durable() {
    deletions_wait_for_the_roots();
}
