//! Faults of drives: rot, unreadable blocks, lost writes, drives that fail.

use std::rc::Rc;

use stripewise_drive::{Context, Drive, FaultyDrive, MemoryDrive, SplitMix64};
use stripewise_layout::MemberSet;
use stripewise_log::LogError;
use stripewise_runtime::VirtualExecutor;

use crate::kit::Setup;
use crate::kit::history::History;

pub const REDUNDANT: [(&str, usize); 5] =
    [("raid5", 4), ("raid6", 5), ("raid7", 6), ("raid1", 2), ("raid10", 4)];

pub fn memory(setup: &Setup) -> Vec<Rc<MemoryDrive>> {
    (0..setup.shape.width).map(|_| MemoryDrive::new("memory", setup.drive_bytes())).collect()
}

/// Flips a bit in every 13th block of a drive, the first 256 KiB excepted.
pub fn rot(drive: &MemoryDrive, random: &mut SplitMix64) {
    let blocks = drive.info().capacity_bytes / 4096;
    for block in (64..blocks).filter(|block| block % 13 == 5) {
        let at = block * 4096 + random.below(4096);
        let mut byte = [0];
        drive.peek(at, &mut byte);
        drive.poke(at, &[byte[0] ^ 1 << random.below(8)]);
    }
}

#[test]
fn rot_is_found_by_checksums_and_repaired() {
    for (level, width) in REDUNDANT {
        let setup = Setup::small(level, width);
        let drives = memory(&setup);
        let tops: Vec<Rc<dyn Drive>> = drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let log = setup.create(&context, &tops).await;
            let history = History::new(log.capacity_bytes() / 4096);
            let mut random = SplitMix64::new(3);
            for lba in (0..history.blocks() - 4).step_by(4) {
                history.write(&log, lba, 4, false).await.unwrap();
            }
            history.flush(&log).await.unwrap();
            rot(&drives[0], &mut random);
            history.judge(&log, false, 3, level).await;
            let repaired = log.figures().repaired_blocks;
            assert!(repaired > 10, "{level}: {repaired} blocks repaired");
            history.judge(&log, false, 3, level).await;
            assert_eq!(log.figures().repaired_blocks, repaired, "{level}: repaired for good");
        });
    }
}

/// Places of the summaries on a drive.
fn summaries(drive: &MemoryDrive) -> Vec<u64> {
    let is_summary = |at: &u64| {
        let mut head = [0; 8];
        drive.peek(*at, &mut head);
        &head == b"SWLOGSUM"
    };
    (0..drive.info().capacity_bytes).step_by(4096).filter(is_summary).collect()
}

/// A summary says where each block belongs, and the blocks' own checksums do not cover that.
#[test]
pub fn damaged_summaries_are_reconstructed() {
    let setup = Setup::small("raid5", 4);
    let drives = memory(&setup);
    let tops: Vec<Rc<dyn Drive>> = drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let log = setup.create(&context, &tops).await;
        let history = History::new(log.capacity_bytes() / 4096);
        for lba in 0..300 {
            history.write(&log, lba, 1, false).await.unwrap();
        }
        history.flush(&log).await.unwrap();
        log.close().await.unwrap();
        // Those on one drive: the others reconstruct them.
        let drive = drives.iter().max_by_key(|drive| summaries(drive).len()).expect("a drive");
        let places = summaries(drive);
        assert!(places.len() > 3, "{places:?}");
        for at in places {
            // The address of the first slot.
            let mut byte = [0];
            drive.peek(at + 64, &mut byte);
            drive.poke(at + 64, &[byte[0] ^ 1]);
        }
        let log = setup.open(&context, &tops, MemberSet::EMPTY).await.unwrap();
        history.judge(&log, false, 1, "opened").await;
    });
}

#[test]
fn lost_data_are_an_error_and_never_wrong() {
    let setup = Setup::small("raid5", 4);
    let drives = memory(&setup);
    let tops: Vec<Rc<dyn Drive>> = drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let log = setup.create(&context, &tops).await;
        let history = History::new(log.capacity_bytes() / 4096);
        for lba in 0..200 {
            history.write(&log, lba, 1, false).await.unwrap();
        }
        history.flush(&log).await.unwrap();
        let mut random = SplitMix64::new(4);
        rot(&drives[0], &mut random);
        rot(&drives[2], &mut random);
        let mut lost = 0;
        for lba in 0..150 {
            match log.read(lba * 4096, 4096).await {
                Ok(bytes) => assert_eq!(bytes.to_vec()[..8], lba.to_le_bytes(), "block {lba}"),
                Err(LogError::Lost { .. }) => lost += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!((1..40).contains(&lost), "{lost} blocks lost");
    });
}

/// Drives that can be unplugged, and the same as the log takes them.
fn faulty_drives(context: &Context, setup: &Setup) -> (Vec<Rc<FaultyDrive>>, Vec<Rc<dyn Drive>>) {
    let faulty: Vec<Rc<FaultyDrive>> =
        memory(setup).into_iter().map(|drive| FaultyDrive::new(context, drive, 1)).collect();
    let tops = faulty.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect();
    (faulty, tops)
}

#[test]
fn failing_drives_are_excluded_and_nothing_is_lost() {
    for (level, width) in REDUNDANT {
        let setup = Setup::small(level, width);
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let (faulty, tops) = faulty_drives(&context, &setup);
        executor.block_on(async {
            let log = setup.create(&context, &tops).await;
            let history = History::new(log.capacity_bytes() / 4096);
            let mut random = SplitMix64::new(5);
            for (turn, drive) in faulty.iter().take(setup.shape.fault_tolerance()).enumerate() {
                for _ in 0..300 {
                    let lba = random.below(history.blocks());
                    history.write(&log, lba, 1, random.chance(0.02)).await.unwrap();
                }
                drive.unplug();
                for _ in 0..300 {
                    let lba = random.below(history.blocks());
                    history.write(&log, lba, 1, random.chance(0.02)).await.unwrap();
                }
                history.flush(&log).await.unwrap();
                assert_eq!(log.missing().len(), turn + 1, "{level}");
                history.judge(&log, false, 5, level).await;
            }
            // A drive that returns is stale and stays out.
            faulty.iter().for_each(|drive| drive.plug_in());
            let missing = log.missing();
            log.close().await.unwrap();
            let log = setup.open(&context, &tops, MemberSet::EMPTY).await.unwrap();
            assert_eq!(log.missing(), missing, "{level}");
            history.judge(&log, false, 5, "opened again").await;
        });
    }
}

#[test]
fn more_failures_than_tolerated_fail_the_log() {
    let setup = Setup::small("raid5", 4);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let (faulty, tops) = faulty_drives(&context, &setup);
    executor.block_on(async {
        let log = setup.create(&context, &tops).await;
        let history = History::new(log.capacity_bytes() / 4096);
        history.write(&log, 0, 1, true).await.unwrap();
        faulty[0].unplug();
        faulty[1].unplug();
        let mut failed = false;
        for lba in 0..200 {
            failed |= history.write(&log, lba, 1, true).await.is_err();
        }
        assert!(failed && log.flush().await.is_err());
    });
}
