//! Checks that write nothing: the places that they name, and drives that stay as they are.
//!
//! Invariant I4 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::array::{Model, Rig, SECTOR, shape};
use stripewise_array::{PlaceFault, ScrubReport, WrongPlace};
use stripewise_runtime::VirtualExecutor;

const STRIP: u64 = 16384;
const BLOCK: u64 = 4096;

fn run(level: &str, drives: usize, checksums: bool, test: impl AsyncFnOnce(Rc<Rig>)) {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let shape = shape(level, drives, STRIP);
        let rig = match checksums {
            true => Rig::with_checksums(&context, shape, 2 << 20, 11).await,
            false => Rig::new(&context, shape, 2 << 20, 11).await,
        };
        let array = rig.array();
        let sectors = array.capacity_bytes() / SECTOR;
        for first in (0..sectors / 2).step_by(64) {
            array.write(first * SECTOR, Model::data(first, 64, 9), false).await.expect("a write");
        }
        array.flush().await.expect("a flush");
        // Destaging and the write-intent bitmap come to rest.
        context.sleep_ns(120_000_000_000).await;
        test(rig).await;
    });
}

/// Inverts a block on a drive's medium, bypassing the array.
fn rot(rig: &Rig, slot: usize, offset_in_data: u64) {
    let at = rig.spec.data_base_bytes().expect("a possible array") + offset_in_data;
    let mut bytes = [0; 512];
    rig.drive(slot).image.peek(at, &mut bytes);
    rig.drive(slot).image.poke(at, &bytes.map(|byte| !byte));
}

/// Checks everything, and that no drive was written to and none has an error counted.
async fn check(rig: &Rig) -> ScrubReport {
    let images = || -> Vec<Vec<u8>> {
        let drives = rig.drives.borrow();
        let image = |drive: &crate::kit::array::TestDrive| {
            let mut bytes = vec![0; (rig.spec.base_bytes + rig.spec.space_bytes) as usize];
            drive.image.peek(0, &mut bytes);
            bytes
        };
        drives.iter().map(image).collect()
    };
    let (before, array) = (images(), rig.array());
    let mut report = ScrubReport::default();
    array.inspect_range(0..array.regions(), &mut report).await.expect("a check");
    rig.context.sleep_ns(120_000_000_000).await;
    assert!(images() == before, "a check writes nothing");
    for slot in 0..before.len() {
        let counters = rig.member(slot).counters();
        assert_eq!((counters.read_errors, counters.checksum_errors), (0, 0), "drive {slot}");
    }
    report
}

fn names(place: &WrongPlace) -> Vec<&str> {
    place.drives.iter().map(String::as_str).collect()
}

#[test]
fn a_check_of_a_sound_array_finds_nothing() {
    for (level, drives) in [("raid0", 2), ("raid1", 2), ("raid5", 4), ("raid60", 8)] {
        for checksums in [false, true] {
            run(level, drives, checksums, async |rig| {
                let report = check(&rig).await;
                assert!(!report.found_something() && report.places.is_empty(), "{level}: {report:?}");
                assert!(report.checked_bytes > 1 << 20, "{level}: {report:?}");
            });
        }
    }
}

#[test]
fn a_check_names_all_drives_that_may_be_wrong() {
    run("raid1", 2, false, async |rig| {
        rot(&rig, 1, 3 * STRIP + BLOCK);
        rot(&rig, 1, 3 * STRIP + 2 * BLOCK);
        let report = check(&rig).await;
        assert_eq!(report.unattributed_blocks, 2, "{report:?}");
        let [place] = &report.places[..] else { panic!("{report:?}") };
        assert_eq!((place.offset_bytes, place.length_bytes), (3 * STRIP + BLOCK, 2 * BLOCK));
        assert_eq!((place.fault, names(place)), (PlaceFault::Mismatch, vec!["drive0", "drive1"]));
        // Both copies are as they were: the administrator can choose.
        assert_eq!(check(&rig).await, report);
    });
    run("raid5", 4, false, async |rig| {
        rot(&rig, 2, 5 * STRIP);
        let report = check(&rig).await;
        let [place] = &report.places[..] else { panic!("{report:?}") };
        assert_eq!((place.offset_bytes, names(place).len()), (5 * 3 * STRIP, 4));
    });
}

#[test]
fn a_check_names_the_drive_that_is_wrong() {
    // Without redundancy each strip is a stripe of its own.
    for (level, drives, checksums, fault, stripe) in [
        ("raid6", 5, false, PlaceFault::Mismatch, 4),
        ("raid1", 3, false, PlaceFault::Mismatch, 4),
        ("raid5", 4, true, PlaceFault::Checksum, 4),
        ("raid0", 2, true, PlaceFault::Checksum, 2 * 4 + 1),
    ] {
        run(level, drives, checksums, async |rig| {
            rot(&rig, 1, 4 * STRIP);
            let report = check(&rig).await;
            let [place] = &report.places[..] else { panic!("{level}: {report:?}") };
            assert_eq!((place.fault, names(place)), (fault, vec!["drive1"]), "{level}");
            assert_eq!(report.blamed, [("drive1".to_owned(), 1)], "{level}");
            let stripe_bytes = rig.array().geometry().stripe_data_bytes();
            assert_eq!(place.offset_bytes / stripe_bytes, stripe, "{level}: {place:?}");
        });
    }
}

#[test]
fn a_check_names_unreadable_places() {
    run("raid5", 4, true, async |rig| {
        let data = rig.spec.data_base_bytes().expect("a possible array");
        let at = data + 5 * STRIP + BLOCK;
        rig.drive(2).faults.make_unreadable(at..at + 1024);
        let report = check(&rig).await;
        let [place] = &report.places[..] else { panic!("{report:?}") };
        assert_eq!(
            (place.fault, place.length_bytes, names(place)),
            (PlaceFault::Unreadable, BLOCK, vec!["drive2"])
        );
        assert_eq!(report.unreadable_strips, 0, "the rest of the stripe has it");
        // A second fault in the same row of blocks: nothing has it any more.
        rot(&rig, 3, 5 * STRIP + BLOCK);
        let report = check(&rig).await;
        assert_eq!((report.places.len(), report.unreadable_strips), (2, 1), "{report:?}");
        assert!(rig.drive(2).faults.unreadable_bytes() > 0, "it is not rewritten");
    });
}
