//! Scrub: rot and unreadable blocks on any member are found and mended, parity included.

use std::rc::Rc;

use stripewise_drive::{Drive, FaultyDrive, MemoryDrive, SplitMix64};
use stripewise_layout::MemberSet;
use stripewise_log::{Log, LogError, LogScrubReport, LogWrongBlock};
use stripewise_runtime::VirtualExecutor;

use crate::faults::{REDUNDANT, memory, rot};
use crate::kit::history::History;
use crate::kit::{Setup, dynamic};

async fn filled(log: &Log) -> Rc<History> {
    let history = History::new(log.capacity_bytes() / 4096);
    let mut random = SplitMix64::new(6);
    for _ in 0..2 * history.blocks() {
        history.write(log, random.below(history.blocks()), 1, false).await.expect("a write");
    }
    history.flush(log).await.expect("flushed");
    history
}

async fn scrub(log: &Log) -> LogScrubReport {
    log.scrub(0..log.segments(), true).await.expect("scrubbed")
}

pub fn rot_of_data_and_parity_is_mended() {
    for (level, width) in REDUNDANT {
        let setup = Setup::small(level, width);
        let drives = memory(&setup);
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let log = setup.create(&context, &dynamic(&drives)).await;
            let history = filled(&log).await;
            let clean = scrub(&log).await;
            let found = (clean.wrong_blocks, clean.wrong_parity_blocks, clean.unrecoverable_blocks);
            assert!(clean.segments > 50 && clean.checked_bytes > 4096 * 1000, "{level}: {clean:?}");
            assert_eq!(found, (0, 0, 0), "{level}: {clean:?}");
            rot(&drives[1], &mut SplitMix64::new(5));
            let found = log.scrub(0..log.segments(), false).await.expect("looked at");
            // Parity follows rot of unused blocks, which have no checksum.
            let is_named = |wrong: &LogWrongBlock| wrong.member == 1 || wrong.is_doubtful;
            assert!(found.wrong.iter().all(|wrong| is_named(wrong) && !wrong.is_mended), "{level}");
            let mended = scrub(&log).await;
            assert!(mended.wrong_blocks > 10, "{level}: {mended:?}");
            assert!(
                mended.wrong_parity_blocks > 10 || setup.shape.parity_units() == 0,
                "{level}: {mended:?}"
            );
            assert_eq!(mended.unrecoverable_blocks, 0, "{level}: {mended:?}");
            let again = scrub(&log).await;
            let found = (again.wrong_blocks, again.wrong_parity_blocks, again.unrecoverable_blocks);
            assert_eq!(found, (0, 0, 0), "{level}: {again:?}");
            log.close().await.expect("closed");
            // The mended member replaces any other.
            for member in 0..width {
                let copies: Vec<Rc<MemoryDrive>> =
                    drives.iter().map(|drive| drive.duplicate("copy")).collect();
                let lost: MemberSet = [member].into_iter().collect();
                let log = setup.open(&context, &dynamic(&copies), lost).await.expect("opened");
                history.judge(&log, false, 5, &format!("{level} without {member}")).await;
            }
        });
    }
}

#[test]
fn scrub_mends_rot_of_data_and_parity() {
    rot_of_data_and_parity_is_mended();
}

#[test]
fn unreadable_blocks_are_written_again() {
    for (level, width) in REDUNDANT {
        let setup = Setup::small(level, width);
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let mut tops = dynamic(&memory(&setup));
            let faulty = FaultyDrive::new(&context, tops[1].clone(), 1);
            tops[1] = faulty.clone() as Rc<dyn Drive>;
            let log = setup.create(&context, &tops).await;
            let history = filled(&log).await;
            let first = setup.drive_bytes() / 2 / 4096 * 4096;
            for block in (0..20).map(|block| first + block * 12288) {
                faulty.make_unreadable(block..block + 4096);
            }
            let unreadable = faulty.unreadable_bytes();
            let report = scrub(&log).await;
            assert!(report.wrong_blocks + report.wrong_parity_blocks > 0, "{level}: {report:?}");
            assert_eq!(report.unrecoverable_blocks, 0, "{level}");
            // Those of free segments are left.
            assert!(faulty.unreadable_bytes() < unreadable / 2, "{level}: {report:?}");
            history.judge(&log, false, 5, level).await;
        });
    }
}

#[test]
fn lost_blocks_are_counted_and_stay_errors() {
    let setup = Setup::small("raid5", 4);
    let drives = memory(&setup);
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let log = setup.create(&context, &dynamic(&drives)).await;
        for lba in 0..200_u64 {
            let bytes = lba.to_le_bytes().repeat(512);
            let data = stripewise_drive::Buffer::from_bytes(&bytes);
            log.write(lba * 4096, data, false).await.expect("a write");
        }
        log.flush().await.expect("flushed");
        rot(&drives[0], &mut SplitMix64::new(4));
        rot(&drives[2], &mut SplitMix64::new(4));
        let report = scrub(&log).await;
        assert!((1..60).contains(&report.unrecoverable_blocks), "{report:?}");
        let mut lost = 0;
        for lba in 0..150 {
            match log.read(lba * 4096, 4096).await {
                Ok(bytes) => assert_eq!(bytes.to_vec()[..8], lba.to_le_bytes(), "block {lba}"),
                Err(LogError::Lost { .. }) => lost += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(lost > 0, "blocks were lost");
    });
}

#[test]
fn clients_and_cleaning_go_on_during_scrubs() {
    let setup = Setup::small("raid6", 5);
    let executor = VirtualExecutor::shuffled(3);
    let context = executor.context();
    executor.block_on(async {
        let log = setup.create(&context, &dynamic(&memory(&setup))).await;
        let history = filled(&log).await;
        let task = crate::kit::history::client(context.clone(), log.clone(), history.clone(), 0, 1, 3);
        drop(context.spawn(task));
        for _ in 0..3 {
            let report = scrub(&log).await;
            let found = (report.wrong_blocks, report.wrong_parity_blocks, report.unrecoverable_blocks);
            assert_eq!(found, (0, 0, 0), "{report:?}");
        }
    });
}
