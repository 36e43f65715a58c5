//! Rebuild: lost members are replaced by blank drives and filled, with power cuts on the way and
//! clients at work; afterwards as many others may be lost as before.

use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use stripewise_array::{Member, MemberOptions};
use stripewise_drive::{Context, CrashDrive, Delay, Drive, FaultyDrive, MemoryDrive, SplitMix64};
use stripewise_layout::MemberSet;
use stripewise_log::{Column, Log, LogError, LogProgress, Stretch};
use stripewise_runtime::VirtualExecutor;

use crate::kit::history::{History, client};
use crate::kit::seeds::sweep;
use crate::kit::{Setup, dynamic};

const LAYOUTS: [(&str, usize); 6] =
    [("raid5", 4), ("raid5", 3), ("raid6", 5), ("raid1", 2), ("raid1", 3), ("raid10", 5)];

/// Never pauses.
fn on(_: LogProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A log with a member replaced by a blank drive, and power cuts until it is filled.
pub fn life(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (level, width) = LAYOUTS[random.below(LAYOUTS.len() as u64) as usize];
    let mut setup = Setup::small(level, width);
    setup.segments = 60 + random.below(60);
    setup.fill = [0.3, 0.8, 1.0][random.below(3) as usize];
    let mut images: Vec<Rc<MemoryDrive>> =
        (0..width).map(|_| MemoryDrive::new("new", setup.drive_bytes())).collect();
    let mut history: Option<Rc<History>> = None;
    let member = random.below(width as u64) as usize;
    for round in 0..5 {
        if round == 1 {
            images[member] = MemoryDrive::new("blank", setup.drive_bytes());
            setup.record_missing(&dynamic(&images), member);
        }
        let drives: Vec<Rc<CrashDrive>> =
            images.iter().map(|image| CrashDrive::from_image("crash", image)).collect();
        let executor = VirtualExecutor::shuffled(seed * 7 + round);
        executor.limit_polls(3_000_000);
        let context = executor.context();
        let tops: Vec<Rc<dyn Drive>> = drives
            .iter()
            .map(|drive| {
                let delayed = FaultyDrive::new(&context, drive.clone(), seed + round);
                delayed.set_delay(Delay::Exponential { mean_ns: 100_000 });
                delayed as Rc<dyn Drive>
            })
            .collect();
        let limit_ns = if random.chance(0.5) { 20_000_000 } else { 200_000_000 };
        let instant_ns = random.below(limit_ns);
        let clients = 1 + random.below(3);
        let known = executor.block_on(async {
            let log = match &history {
                None => setup.create(&context, &tops).await,
                Some(_) => setup.open(&context, &tops, MemberSet::EMPTY).await.unwrap_or_else(|error| {
                    panic!("seed {seed}: round {round}: {error}");
                }),
            };
            let known = history.clone().unwrap_or_else(|| History::new(log.capacity_bytes() / 4096));
            known.judge(&log, true, seed, &format!("after cut {round}")).await;
            for number in 0..clients {
                let task =
                    client(context.clone(), log.clone(), known.clone(), number, clients, seed + round * 99);
                context.spawn(task);
            }
            if log.missing().contains(member) {
                let log = log.clone();
                context.spawn(async move {
                    log.rebuild(member, 1, &on).await.unwrap_or_else(|error| {
                        panic!("seed {seed}: round {round}: rebuilding: {error}");
                    });
                });
            }
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
        history.judge(&log, true, seed, "after the last cut").await;
        let report = log.rebuild(member, 1, &on).await.expect("nothing fails");
        assert_eq!(report.lost_blocks, 0, "seed {seed}");
        log.close().await.expect("closed");
        survives_losses(&setup, &context, &images, &history, seed).await;
    });
}

/// Reads everything without as many members as the layout tolerates, each in turn one of them.
async fn survives_losses(
    setup: &Setup,
    context: &Context,
    images: &[Rc<MemoryDrive>],
    history: &History,
    seed: u64,
) {
    for first in 0..images.len() {
        // Mirrored pairs may lose one of each.
        let most = if setup.shape.fault_tolerance() > 1 { 2 } else { 1 };
        let lost: MemberSet = (first..first + most).map(|member| member % images.len()).collect();
        let copies: Vec<Rc<MemoryDrive>> = images.iter().map(|image| image.duplicate("copy")).collect();
        let log = setup.open(context, &dynamic(&copies), lost).await;
        let log = log.unwrap_or_else(|error| panic!("seed {seed}: without {lost:?}: {error}"));
        history.judge(&log, false, seed, &format!("without members {lost:?}")).await;
    }
}

fn lives(seeds: Range<u64>) {
    sweep(seeds).for_each(life);
}

test_cases! {
    filled_members_replace_others_after_cuts = lives {
        from_1: 1..7,
        from_7: 7..13,
    }
}

/// Writes random blocks until `count` are written.
async fn overwrite(log: &Log, history: &History, random: &mut SplitMix64, count: u64) {
    for _ in 0..count {
        history.write(log, random.below(history.blocks()), 1, false).await.expect("a write");
    }
}

/// A log with data whose member 1 is then replaced by a blank drive.
async fn log_with_blank_member(
    setup: &Setup,
    context: &Context,
    random: &mut SplitMix64,
) -> (Vec<Rc<MemoryDrive>>, Rc<History>) {
    let mut images: Vec<Rc<MemoryDrive>> =
        (0..setup.shape.width).map(|_| MemoryDrive::new("memory", setup.drive_bytes())).collect();
    let log = setup.create(context, &dynamic(&images)).await;
    let history = History::new(log.capacity_bytes() / 4096);
    overwrite(&log, &history, random, 2 * history.blocks()).await;
    log.close().await.expect("closed");
    images[1] = MemoryDrive::new("blank", setup.drive_bytes());
    (images, history)
}

/// Opens the log on drives that take their time, and drops a rebuild beyond the middle.
async fn half_rebuilt(setup: &Setup, context: &Context, images: &[Rc<MemoryDrive>]) -> Log {
    setup.record_missing_in(context, &dynamic(images), 1).await;
    let slow = |image: &Rc<MemoryDrive>| {
        let delayed = FaultyDrive::new(context, image.clone(), 1);
        delayed.set_delay(Delay::Exponential { mean_ns: 100_000 });
        delayed as Rc<dyn Drive>
    };
    let tops: Vec<Rc<dyn Drive>> = images.iter().map(slow).collect();
    let log = setup.open(context, &tops, MemberSet::EMPTY).await.expect("opened");
    let passed = Cell::new(0);
    let progress = |progress: LogProgress| {
        passed.set(progress.segments);
        ControlFlow::Continue(())
    };
    let mut rebuild = Box::pin(log.rebuild(1, 9, &progress));
    while passed.get() < 60 {
        let _ = context.time_limit_ns(100_000, &mut rebuild).await;
    }
    drop(rebuild);
    assert!(log.missing().contains(1), "not complete");
    log
}

#[test]
fn interrupted_rebuilds_go_on_where_they_were() {
    let setup = Setup::small("raid5", 4);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let mut random = SplitMix64::new(2);
        let (images, history) = log_with_blank_member(&setup, &context, &mut random).await;
        let log = half_rebuilt(&setup, &context, &images).await;
        overwrite(&log, &history, &mut random, history.blocks() / 30).await;
        log.close().await.expect("closed");
        let log = setup.open(&context, &dynamic(&images), MemberSet::EMPTY).await.expect("opened");
        assert!(log.missing().contains(1), "not believed before it is complete");
        let report = log.rebuild(1, 9, &on).await.expect("rebuilt");
        assert!(report.skipped_segments > 5 && report.filled_segments > 5, "{report:?}");
        assert!(log.missing().is_empty());
        log.close().await.expect("closed");
        survives_losses(&setup, &context, &images, &history, 2).await;
    });
}

#[test]
fn another_drive_is_filled_from_the_beginning() {
    let setup = Setup::small("raid6", 5);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let mut random = SplitMix64::new(3);
        let (mut images, history) = log_with_blank_member(&setup, &context, &mut random).await;
        let log = half_rebuilt(&setup, &context, &images).await;
        log.close().await.expect("closed");
        images[1] = MemoryDrive::new("another", setup.drive_bytes());
        let log = setup.open(&context, &dynamic(&images), MemberSet::EMPTY).await.expect("opened");
        let report = log.rebuild(1, 10, &on).await.expect("rebuilt");
        assert_eq!(report.skipped_segments, 0);
        log.close().await.expect("closed");
        survives_losses(&setup, &context, &images, &history, 3).await;
    });
}

#[test]
fn new_members_that_refuse_writes_stay_missing() {
    let setup = Setup::small("raid5", 4);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let mut random = SplitMix64::new(4);
        let (images, history) = log_with_blank_member(&setup, &context, &mut random).await;
        setup.record_missing_in(&context, &dynamic(&images), 1).await;
        let faulty = FaultyDrive::new(&context, images[1].clone(), 1);
        let mut tops = dynamic(&images);
        tops[1] = faulty.clone();
        let log = setup.open(&context, &tops, MemberSet::EMPTY).await.expect("opened");
        let unplug = |progress: LogProgress| {
            if progress.segments >= 30 {
                faulty.unplug();
            }
            ControlFlow::Continue(())
        };
        let refused = log.rebuild(1, 9, &unplug).await;
        assert!(matches!(refused, Err(LogError::Drive(_))), "{refused:?}");
        assert_eq!(log.missing(), [1].into_iter().collect());
        overwrite(&log, &history, &mut random, 300).await;
        history.judge(&log, false, 4, "after the refusal").await;
    });
}

#[test]
fn paused_rebuilds_go_on_without_repeating_work() {
    let setup = Setup::small("raid5", 4);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let mut random = SplitMix64::new(5);
        let (images, history) = log_with_blank_member(&setup, &context, &mut random).await;
        setup.record_missing_in(&context, &dynamic(&images), 1).await;
        let log = setup.open(&context, &dynamic(&images), MemberSet::EMPTY).await.expect("opened");
        let mut filled = 0;
        for round in 0.. {
            let report = log.rebuild(1, 9, &|_| ControlFlow::Break(())).await.expect("paused");
            assert!(log.missing().contains(1) != report.is_complete);
            filled += report.filled_segments;
            if report.is_complete {
                assert!(round > 10, "{round}");
                break;
            }
            assert!(log.rebuilt_segments(1, 9).segments > 0 && log.rebuilt_segments(1, 8).segments == 0);
        }
        assert!(filled <= u64::from(log.segments()), "{filled} of {}", log.segments());
        log.close().await.expect("closed");
        survives_losses(&setup, &context, &images, &history, 5).await;
    });
}

/// The column of a member is given to another drive after `segments` of its rebuild.
pub fn replaced_column_is_not_believed() {
    let setup = Setup::small("raid5", 4);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let mut random = SplitMix64::new(6);
        let (mut images, history) = log_with_blank_member(&setup, &context, &mut random).await;
        setup.record_missing_in(&context, &dynamic(&images), 1).await;
        let log = setup.open(&context, &dynamic(&images), MemberSet::EMPTY).await.expect("opened");
        let another = MemoryDrive::new("another", setup.drive_bytes());
        let is_replaced = Cell::new(false);
        let replaces = |progress: LogProgress| {
            if progress.segments >= 30 && !is_replaced.replace(true) {
                let member = Member::new(&context, another.clone(), MemberOptions::default());
                let stretches = vec![Stretch { start_bytes: 0, length_bytes: u64::MAX }];
                let column = Column { member: Some(member), stretches };
                assert!(!log.columns().has(1, &column));
                log.replace_column(1, column.clone());
                assert!(log.columns().has(1, &column));
            }
            ControlFlow::Continue(())
        };
        let ended = log.rebuild(1, 9, &replaces).await;
        assert!(matches!(ended, Err(LogError::Replaced { member: 1 })), "{ended:?}");
        assert!(log.missing().contains(1));
        let report = log.rebuild(1, 10, &on).await.expect("rebuilt");
        assert!(report.is_complete && report.skipped_segments == 0, "{report:?}");
        log.close().await.expect("closed");
        images[1] = another;
        survives_losses(&setup, &context, &images, &history, 6).await;
    });
}

#[test]
fn a_column_given_to_another_drive_is_filled_anew() {
    replaced_column_is_not_believed();
}
