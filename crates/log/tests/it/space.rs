//! Full volumes, the reserve, discards, and the cost of cleaning.

use std::rc::Rc;

use stripewise_drive::{Drive, MemoryDrive, SplitMix64};
use stripewise_layout::MemberSet;
use stripewise_log::{Log, LogError};
use stripewise_runtime::VirtualExecutor;

use crate::kit::Setup;
use crate::kit::history::History;

/// Runs a test on a log in memory.
fn on_log<T>(setup: &Setup, test: impl AsyncFnOnce(&Log, Vec<Rc<dyn Drive>>) -> T) -> T {
    let drives: Vec<Rc<dyn Drive>> = (0..setup.shape.width)
        .map(|_| MemoryDrive::new("memory", setup.drive_bytes()) as Rc<dyn Drive>)
        .collect();
    let executor = VirtualExecutor::new();
    executor.limit_polls(20_000_000);
    let context = executor.context();
    executor.block_on(async {
        let log = setup.create(&context, &drives).await;
        test(&log, drives).await
    })
}

#[test]
pub fn full_volume_refuses_writes_until_a_discard() {
    let mut setup = Setup::small("raid5", 4);
    setup.fill = 2.0;
    on_log(&setup, async |log, _| {
        let history = History::new(log.capacity_bytes() / 4096);
        let mut stored = 0;
        let refused = loop {
            match history.write(log, stored, 1, false).await {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, LogError::NoSpace { .. }), "{refused}");
        assert_eq!(stored * 4096, log.client_bytes(), "all of it, and none of the reserve");
        // Overwriting needs no more space.
        let mut random = SplitMix64::new(1);
        for _ in 0..2 * stored {
            history.write(log, random.below(stored), 1, false).await.unwrap();
        }
        for _ in 0..3 {
            history.discard(log, 100, 64).await.unwrap();
            for lba in 100..164 {
                history.write(log, lba, 1, false).await.unwrap();
            }
            let refused = history.write(log, stored, 1, false).await;
            assert!(matches!(refused, Err(LogError::NoSpace { .. })), "{refused:?}");
        }
    });
}

#[test]
fn discarded_space_is_written_again_for_ever() {
    let setup = Setup::small("raid6", 5);
    on_log(&setup, async |log, _| {
        let history = History::new(log.capacity_bytes() / 4096);
        let blocks = history.blocks();
        for turn in 0..6 {
            for lba in (0..blocks - 8).step_by(8) {
                history.write(log, lba, 8, false).await.unwrap();
            }
            history.judge(log, false, turn, "written").await;
            history.discard(log, 0, blocks).await.unwrap();
            history.judge(log, false, turn, "discarded").await;
        }
        let moved = log.figures().moved_blocks;
        assert!(moved < 2 * blocks, "dead segments are reused without moving much: {moved} blocks moved");
    });
}

#[test]
fn cleaning_costs_as_much_as_analysis_says() {
    let mut setup = Setup::small("raid5", 4);
    setup.segments = 300;
    setup.options.memory_bytes = 64 << 20;
    setup.fill = 1.0;
    let written = on_log(&setup, async |log, _| {
        let history = History::new(log.capacity_bytes() / 4096);
        for lba in 0..history.blocks() {
            history.write(log, lba, 1, false).await.unwrap();
        }
        let mut random = SplitMix64::new(1);
        let mut before = log.figures();
        for turn in 0..4 * history.blocks() {
            if turn == 2 * history.blocks() {
                before = log.figures();
            }
            history.write(log, random.below(history.blocks()), 1, false).await.unwrap();
        }
        let after = log.figures();
        let moved = (after.moved_blocks - before.moved_blocks) as f64;
        1.0 + moved / (after.new_blocks - before.new_blocks) as f64
    });
    // 85 % of the segments hold live data, less the share that is kept free for the cleaner.
    assert!((1.5..4.5).contains(&written), "{written:.2} blocks written per client block");
}

#[test]
fn reads_during_cleaning_see_the_newest_data() {
    let setup = Setup::small("raid5", 4);
    on_log(&setup, async |log, drives| {
        let history = History::new(log.capacity_bytes() / 4096);
        let mut random = SplitMix64::new(8);
        for turn in 0..5 * history.blocks() {
            history.write(log, random.below(history.blocks()), 1, false).await.unwrap();
            if turn % 701 == 0 {
                history.judge(log, false, 8, "while cleaning").await;
            }
        }
        assert!(log.figures().cleaned > 50, "{:?}", log.figures());
        drop(drives);
    });
}

#[test]
fn roots_of_another_layout_are_refused() {
    let setup = Setup::small("raid5", 4);
    let drives: Vec<Rc<dyn Drive>> =
        (0..4).map(|_| MemoryDrive::new("memory", setup.drive_bytes()) as Rc<dyn Drive>).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        setup.create(&context, &drives).await.close().await.unwrap();
        let other = Setup { shape: crate::kit::shape("raid6", 4, 16384), ..setup };
        let refused = other.open(&context, &drives, MemberSet::EMPTY).await.err();
        assert!(matches!(refused, Some(LogError::Invalid(_) | LogError::TooSmall { .. })), "{refused:?}");
    });
}

#[test]
fn writes_go_on_however_often_roots_are_committed() {
    let mut setup = Setup::small("raid5", 4);
    // A plan that was just filled up outlasts the segments between the cleaner's levels.
    setup.options.planned_segments = 32;
    on_log(&setup, async |log, _| {
        let history = History::new(log.capacity_bytes() / 4096);
        let mut random = SplitMix64::new(8);
        for round in 0..300 {
            for _ in 0..history.blocks() / (10 + round % 40) {
                let lba = random.below(history.blocks());
                history.write(log, lba, 1, false).await.expect("a write");
            }
            log.checkpoint().await.expect("committed");
        }
    });
}
