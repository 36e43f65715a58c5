//! Faulty drives: errors that a scrub finds, drives that it blames, and data that it repairs.
//!
//! Invariant I4 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::array::{Model, Rig, SECTOR, shape};
use crate::kit::linear::{missing_columns, rebuild};
use stripewise_drive::{Buffer, Drive, IoRequest, SplitMix64};
use stripewise_runtime::VirtualExecutor;

/// Corrupts a block on a drive's medium, bypassing the array.
fn rot(rig: &Rc<Rig>, slot: usize, offset_in_data: u64, random: &mut SplitMix64) {
    let at = rig.spec.data_base_bytes().expect("a possible array") + offset_in_data;
    let noise: Vec<u8> = (0..512).map(|_| random.next_u64() as u8).collect();
    let request = IoRequest::write(at, Buffer::from_bytes(&noise), false);
    assert!(matches!(rig.drive(slot).image.submit(request).try_take(), Ok(Ok(()))));
}

fn run(level: &str, drives: usize, test: impl AsyncFnOnce(Rc<Rig>, Model)) {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let rig = Rig::new(&context, shape(level, drives, 16384), 2 << 20, 11).await;
        let array = rig.array();
        let model = Model::new(array.capacity_bytes());
        for first in (0..model.sectors() / 2).step_by(64) {
            array.write(first * SECTOR, Model::data(first, 64, 9), false).await.expect("a write");
            model.set(first, 64, 9);
        }
        array.flush().await.expect("a flush");
        test(rig, model).await;
    });
}

#[test]
fn two_parities_identify_and_repair_the_bad_drive() {
    for (level, drives) in [("raid6", 6), ("raid7", 7), ("raid60", 8), ("raid1", 3)] {
        run(level, drives, async |rig, model| {
            let mut random = SplitMix64::new(3);
            // Different drives in different rows, data and parity, each in a row of its own.
            for row in 0..8u64 {
                rot(&rig, row as usize % drives, row * 16384 + 4096, &mut random);
            }
            let array = rig.array();
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            let mut blamed = report.blamed.clone();
            blamed.sort_unstable();
            let expected: Vec<(String, u64)> = (0..drives)
                .map(|slot| {
                    (format!("drive{slot}"), (0..8).filter(|row| row % drives == slot).count() as u64)
                })
                .collect();
            assert_eq!(
                blamed,
                expected.into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(),
                "{level}"
            );
            assert_eq!(report.unattributed_blocks, 0, "{level}");
            assert_eq!(
                rig.member(0).counters().checksum_errors,
                blamed[0].1,
                "{level}: counted against the drive"
            );
            model.check_all(&array, 0, level).await;
            let again = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!(
                (again.blamed.len(), again.unattributed_blocks),
                (0, 0),
                "{level}: repaired: {again:?}"
            );
        });
    }
}

#[test]
fn single_redundancy_is_made_consistent_without_blame() {
    for (level, drives) in [("raid5", 4), ("raid10", 4), ("raid1", 2)] {
        run(level, drives, async |rig, _| {
            rot(&rig, 1, 3 * 16384, &mut SplitMix64::new(3));
            let array = rig.array();
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 1), "{level}: {report:?}");
            let again = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!(again.unattributed_blocks, 0, "{level}");
        });
    }
}

#[test]
fn unreadable_sectors_are_rewritten() {
    run("raid5", 4, async |rig, model| {
        let array = rig.array();
        let data = rig.spec.data_base_bytes().expect("a possible array");
        let at = data + 5 * 16384;
        rig.drive(2).faults.make_unreadable(at..at + 1024);
        // Another drive has a bad sector elsewhere in the same stripe: together no data is lost.
        rig.drive(3).faults.make_unreadable(at + 8192..at + 8704);
        let report = array.scrub(&|_, _| {}).await.expect("a scrub");
        assert_eq!(report.unreadable_strips, 0, "{report:?}");
        assert_eq!(rig.drive(2).faults.unreadable_bytes() + rig.drive(3).faults.unreadable_bytes(), 0);
        assert!(rig.member(2).counters().read_errors > 0);
        model.check_all(&array, 0, "after the scrub").await;
    });
}

#[test]
fn read_repairs_unreadable_sectors() {
    for (level, drives) in [("raid5", 4), ("raid6", 5), ("raid10", 4), ("raid1", 2)] {
        run(level, drives, async |rig, model| {
            let array = rig.array();
            let data = rig.spec.data_base_bytes().expect("a possible array");
            for slot in 0..drives {
                let at = data + slot as u64 * 3 * 16384;
                rig.drive(slot).faults.make_unreadable(at..at + 4096);
            }
            model.check_all(&array, 0, level).await;
            // Clients do not read parity and second copies; a scrub does.
            array.scrub(&|_, _| {}).await.expect("a scrub");
            let left: u64 = (0..drives).map(|slot| rig.drive(slot).faults.unreadable_bytes()).sum();
            assert_eq!(left, 0, "{level}");
            assert!(missing_columns(&array).is_empty(), "{level}: a few bad sectors do not fail a drive");
        });
    }
}

#[test]
fn needed_drive_stays_despite_too_many_errors() {
    run("raid5", 4, async |rig, model| {
        let array = rig.array();
        rig.drive(1).faults.set_transient_errors(1.0, 0.0);
        model.check_all(&array, 0, "with a drive that fails all reads").await;
        assert!(missing_columns(&array).contains(1), "it was excluded");
        let reason = rig.member(1).failed().expect("failed");
        assert!(reason.contains("too many read errors"), "{reason}");
        // The next drive is needed: it stays, whatever its errors.
        let data = rig.spec.data_base_bytes().expect("a possible array");
        let at = data;
        rig.drive(2).faults.make_unreadable(at..at + (1 << 20));
        let mut errors = 0;
        for first in (0..model.sectors() / 2).step_by(8) {
            match array.read(first * SECTOR, 4096).await {
                Ok(data) => model.check(first, &data, 0, "beside unreadable sectors"),
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 64, "{errors} errors");
        assert!(!missing_columns(&array).contains(2), "still in service for its readable data");
    });
}

#[test]
fn rebuild_reports_lost_blocks_and_saves_the_rest() {
    run("raid5", 4, async |rig, model| {
        let array = rig.array();
        rig.member(0).fail("taken out");
        array.flush().await.expect("a flush excludes it");
        let data = rig.spec.data_base_bytes().expect("a possible array");
        let at = data + 2 * 16384;
        rig.drive(2).faults.make_unreadable(at..at + 4096);
        rig.attach_new(0).await.expect("attaching");
        let report = rebuild(&array).await.expect("a rebuild");
        assert_eq!(report.lost_blocks, 1, "the block that two drives lack");
        let mut errors = Vec::new();
        for first in (0..model.sectors()).step_by(8) {
            match array.read(first * SECTOR, 4096).await {
                Ok(data) => model.check(first, &data, 0, "after a lossy rebuild"),
                Err(error) => errors.push((first, error)),
            }
        }
        assert!(!errors.is_empty() && errors.len() <= 2, "only lost blocks are reported: {errors:?}");
        // Rewriting the whole stripe repairs it.
        let stripe = errors[0].0 * SECTOR / array.geometry().stripe_data_bytes();
        let sectors = array.geometry().stripe_data_bytes() / SECTOR;
        let first = stripe * sectors;
        array.write(first * SECTOR, Model::data(first, sectors, 77), false).await.expect("a full stripe");
        model.set(first, sectors, 77);
        assert_eq!(array.lost_blocks(), []);
        model.check_all(&array, 0, "after writing again").await;
    });
}

/// A volume ends within a region; the rest of the region reads as zeros after the volume grows
/// again, whatever errors the drives have there.
#[test]
fn nothing_is_lost_beyond_the_end_of_a_volume() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let rig = Rig::with_checksums(&context, shape("raid0", 2, 16384), 2 << 20, 11).await;
        let array = rig.array();
        let size_bytes = array.capacity_bytes();
        array.write(0, Model::data(0, 64, 9), false).await.expect("a write");
        array.resize(32 << 10).await.expect("a smaller size");
        rot(&rig, 1, 16384 + 4096, &mut SplitMix64::new(5));
        let report = array.scrub(&|_, _| {}).await.expect("a scrub");
        assert!(!report.found_something(), "{report:?}");
        array.resize(size_bytes).await.expect("a larger size");
        let read = array.read(32 << 10, 256 << 10).await.expect("new space can be read");
        assert!(read.to_vec().iter().all(|byte| *byte == 0));
        let report = array.scrub(&|_, _| {}).await.expect("a scrub");
        assert!(!report.found_something(), "{report:?}");
    });
}
