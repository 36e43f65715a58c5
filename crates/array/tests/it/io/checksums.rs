//! Faulty drives under checksums: rotten bits, lost or misdirected writes, in every layout and
//! under load. Reads return correct data or an error; with redundancy everything is repaired and
//! counted against the faulty drive.
//!
//! Invariant I2 (`docs/internals/invariants.md`).

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use crate::kit::array::{Model, Rig, SECTOR, shape};
use crate::kit::linear::{missing_columns, rebuild};
use crate::kit::seeds::sweep;
use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, Drive, IoRequest, SplitMix64, WriteFault};
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const INTERLEAVE: u64 = 16384;
const REDUNDANT: &[(&str, usize)] = &[
    ("raid1", 2),
    ("raid1", 3),
    ("raid10", 4),
    ("raid10", 5),
    ("raid4", 4),
    ("raid5", 4),
    ("raid6", 5),
    ("raid7", 6),
    ("raid50", 6),
    ("raid60", 8),
];
const PLAIN: &[(&str, usize)] = &[("single", 1), ("raid0", 3)];

/// Runs a test on an array whose first half durably holds version 1.
fn run(level: &str, drives: usize, seed: u64, test: impl AsyncFnOnce(Rc<Rig>, Rc<Model>)) {
    let executor = VirtualExecutor::shuffled(seed);
    let context = executor.context();
    executor.block_on(async {
        let rig = Rig::with_checksums(&context, shape(level, drives, INTERLEAVE), 2 * MIB, seed).await;
        let array = rig.array();
        let model = Rc::new(Model::new(array.capacity_bytes()));
        for first in (0..model.sectors() / 2).step_by(64) {
            write(&rig, &model, first, 64, 1).await;
        }
        array.flush().await.expect("a flush");
        test(rig, model).await;
    });
}

async fn write(rig: &Rc<Rig>, model: &Model, first: u64, count: u64, version: u32) {
    let data = Model::data(first, count, version);
    rig.array().write(first * SECTOR, data, false).await.expect("a write");
    model.set(first, count, version);
}

fn data_base(rig: &Rig) -> u64 {
    rig.spec.data_base_bytes().expect("a possible array")
}

fn errors_of(rig: &Rig, slot: usize) -> u64 {
    rig.member(slot).counters().checksum_errors
}

/// Flips bits in the middle of a block of a column.
async fn rot(rig: &Rig, slot: usize, block: u64) {
    rig.drive(slot).faults.rot(data_base(rig) + block * BLOCK + 700, 0x10).await.expect("rotting");
}

#[test]
fn rotten_blocks_are_never_returned_and_get_repaired() {
    for &(level, drives) in REDUNDANT {
        run(level, drives, 5, async |rig, model| {
            // Different rows of blocks, so that the other drives can reconstruct them.
            for slot in 0..drives {
                rot(&rig, slot, slot as u64 * 9 % 60).await;
            }
            let array = rig.array();
            model.check_all(&array, 5, level).await;
            // Clients do not read parity and second copies.
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{level}");
            for slot in 0..drives {
                assert_eq!(errors_of(&rig, slot), 1, "{level}: drive {slot} has one error");
            }
            let again = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((again.checksum_errors, again.blamed.len()), (0, 0), "{level}: all is repaired");
            model.check_all(&array, 5, level).await;
        });
    }
}

#[test]
fn scrub_finds_unread_rot_and_names_the_drive() {
    for &(level, drives) in REDUNDANT {
        run(level, drives, 6, async |rig, model| {
            rot(&rig, 1, 21).await;
            rot(&rig, 1, 22).await;
            let report = rig.array().scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!(report.blamed, [("drive1".to_owned(), 2)], "{level}: {report:?}");
            assert_eq!((report.checksum_errors, report.unattributed_blocks), (2, 0), "{level}");
            assert_eq!(errors_of(&rig, 1), 2, "{level}");
            model.check_all(&rig.array(), 6, level).await;
        });
    }
}

#[test]
fn wrong_block_without_redundancy_is_a_named_error() {
    for &(level, drives) in PLAIN {
        run(level, drives, 7, async |rig, model| {
            rot(&rig, drives - 1, 5).await;
            let array = rig.array();
            let mut lost = Vec::new();
            for round in 0..2 {
                for first in (0..model.sectors() / 2).step_by(8) {
                    match array.read(first * SECTOR, BLOCK as usize).await {
                        Ok(data) => model.check(first, &data, 7, level),
                        Err(ArrayError::Lost { what, .. }) => lost.push((round, first, what)),
                        Err(error) => panic!("{level}: {error}"),
                    }
                }
            }
            assert_eq!(lost.len(), 2, "{level}: {lost:?}");
            assert_eq!(lost[0].1, lost[1].1);
            let named = format!("drive{}: block 5", drives - 1);
            assert!(lost[0].2.contains(&named), "{level}: {}", lost[0].2);
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.checksum_errors, report.unreadable_strips), (1, 1), "{level}");
            assert_eq!(errors_of(&rig, drives - 1), 1, "{level}: counted once however often it is read");
            write(&rig, &model, lost[0].1, 8, 9).await;
            model.check_all(&array, 7, level).await;
        });
    }
}

/// One drive loses and misdirects writes while clients write, read and flush; wrong data must never
/// be read.
fn lose_writes_under_load(level: &str, drives: usize, seed: u64, struck: &Cell<u64>) {
    run(level, drives, seed, async |rig, model| {
        let mut random = SplitMix64::new(seed);
        let faulty = random.below(drives as u64) as usize;
        let faults = rig.drive(faulty).faults;
        let data = data_base(&rig);
        let mut clients = Vec::new();
        let clients_count = 4;
        for number in 0..clients_count {
            let (rig, model) = (rig.clone(), model.clone());
            let mut random = SplitMix64::new(seed * 7 + number);
            let faults = faults.clone();
            clients.push(rig.context.clone().spawn(async move {
                let chunks = model.sectors() / 2 / (64 * clients_count);
                for version in 2..60 {
                    let first = (random.below(chunks) * clients_count + number) * 64 + random.below(56);
                    let count = 1 + random.below(8);
                    match random.below(10) {
                        0 => rig.array().flush().await.expect("a flush"),
                        1..=5 => {
                            if random.chance(0.2) {
                                let at = data + random.below(MIB / BLOCK) * BLOCK;
                                let elsewhere = data + random.below(MIB / BLOCK - 16) * BLOCK;
                                let fault = match random.chance(0.5) {
                                    true => WriteFault::Lost,
                                    false => WriteFault::Misdirected(Some(elsewhere)),
                                };
                                faults.arm_write_fault_at(at..at + 16 * BLOCK, fault);
                            }
                            write(&rig, &model, first, count, version).await;
                        }
                        _ => {
                            let read = rig.array().read(first * SECTOR, (count * SECTOR) as usize).await;
                            let read = read.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                            model.check(first, &read, seed, "read");
                        }
                    }
                }
            }));
        }
        for client in clients {
            client.await;
        }
        faults.set_write_fault_rate(0.0, WriteFault::Lost);
        let counts = faults.counts();
        struck.set(struck.get() + counts.lost + counts.misdirected);
        let array = rig.array();
        let what = format!("{level} on {drives}, drive {faulty} lost writes: {counts:?}");
        model.check_all(&array, seed, &what).await;
        let report = array.scrub(&|_, _| {}).await.expect("a scrub");
        assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "seed {seed}: {what}");
        for slot in (0..drives).filter(|&slot| slot != faulty) {
            assert_eq!(errors_of(&rig, slot), 0, "seed {seed}: {what}: drive {slot} is blamed");
        }
    });
}

fn lose_writes_under_load_each(seeds: Range<u64>) {
    let (struck, mut runs) = (Cell::new(0), 0);
    for seed in sweep(seeds) {
        runs += 1;
        let (level, drives) = REDUNDANT[seed as usize % REDUNDANT.len()];
        lose_writes_under_load(level, drives, seed, &struck);
    }
    assert!(runs == 1 || struck.get() > runs, "only {} writes went wrong in {runs} runs", struck.get());
}

test_cases! {
    /// Counted on the faulty drive, and on no other.
    lost_and_misdirected_writes_are_never_read = lose_writes_under_load_each {
        from_1: 1..16,
        from_16: 16..31,
        from_31: 31..46,
        from_46: 46..61,
    }
}

/// The inputs of a small write's parity must be verified, or wrong data would become valid.
#[test]
fn small_write_does_not_legitimise_a_rotten_neighbour() {
    for &(level, drives) in &[("raid5", 4), ("raid6", 5), ("raid4", 4), ("raid50", 6), ("raid7", 6)] {
        run(level, drives, 8, async |rig, model| {
            let array = rig.array();
            let geometry = array.geometry();
            // The written block, an adjacent one that a reconstruct-write reads, and parity.
            for (stripe, unit) in [(2, 0), (4, 1), (6, geometry.data_units())] {
                let place = geometry.place_of_unit(stripe, unit);
                rot(&rig, place.member, place.offset_bytes / BLOCK).await;
                let first = stripe * geometry.stripe_data_bytes() / SECTOR;
                write(&rig, &model, first, 3, 77).await;
            }
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{level}");
            model.check_all(&array, 8, level).await;
            for slot in 0..array.geometry().fault_tolerance() {
                rig.member(slot).fail("taken out");
            }
            array.flush().await.expect("a flush excludes it");
            model.check_all(&array, 8, level).await;
        });
    }
}

#[test]
fn degraded_reads_and_rebuilds_use_no_wrong_source() {
    for &(level, drives) in REDUNDANT {
        run(level, drives, 9, async |rig, model| {
            let array = rig.array();
            let tolerance = array.geometry().fault_tolerance();
            rig.member(0).fail("taken out");
            array.flush().await.expect("a flush excludes it");
            rot(&rig, 1, 13).await;
            let mut lost = 0;
            for first in (0..model.sectors() / 2).step_by(8) {
                match array.read(first * SECTOR, BLOCK as usize).await {
                    Ok(data) => model.check(first, &data, 9, level),
                    Err(ArrayError::Lost { .. }) => lost += 1,
                    Err(error) => panic!("{level}: {error}"),
                }
            }
            assert!(lost == 0 || tolerance == 1, "{level}: {lost} lost blocks despite redundancy");
            rig.attach_new(0).await.expect("attaching");
            let report = rebuild(&array).await.expect("a rebuild");
            assert!(report.lost_blocks == 0 || tolerance == 1 && report.lost_blocks <= 1, "{level}");
            assert!(missing_columns(&array).is_empty(), "{level}");
            let mut lost = 0;
            for first in (0..model.sectors() / 2).step_by(8) {
                match array.read(first * SECTOR, BLOCK as usize).await {
                    Ok(data) => model.check(first, &data, 9, level),
                    Err(ArrayError::Lost { .. }) => lost += 1,
                    Err(error) => panic!("{level}: {error}"),
                }
            }
            assert!(lost <= 2 && (lost == 0 || tolerance == 1), "{level}: {lost}");
            array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!(errors_of(&rig, 1), 1, "{level}: counted once, by whichever finds it");
        });
    }
}

#[test]
fn checksums_persist_and_rotten_pages_are_repaired() {
    for &(level, drives) in REDUNDANT {
        run(level, drives, 10, async |rig, model| {
            write(&rig, &model, 100, 40, 3).await;
            rig.array().close().await.expect("closing");
            // All own pages of one drive.
            let pages = rig.spec.base_bytes;
            for slab in 0..8u64 {
                rig.drive(1).faults.rot(pages + slab * 2 * BLOCK + 80, 1).await.expect("rotting");
            }
            rot(&rig, 0, 3).await;
            rig.reopen(&[]).await;
            let array = rig.array();
            model.check_all(&array, 10, level).await;
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!(report.pages_lost, 0, "{level}");
            assert_eq!(errors_of(&rig, 0), 1, "{level}: the checksum is known after reopening");
            assert!(errors_of(&rig, 1) > 0, "{level}: a page is counted too");
            array.close().await.expect("closing");
            rig.reopen(&[]).await;
            let again = rig.array().scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((again.checksum_errors, again.pages_repaired), (0, 0), "{level}: {again:?}");
        });
    }
}

#[test]
fn blocks_without_sums_are_checked_by_redundancy() {
    for &(level, drives) in REDUNDANT {
        run(level, drives, 12, async |rig, model| {
            rig.array().close().await.expect("closing");
            // Both places of all pages of a column, and one of its blocks.
            let pages = rig.spec.base_bytes;
            for slab in 0..8u64 {
                let own = pages + slab * 2 * BLOCK;
                rig.drive(1).faults.rot(own + 80, 1).await.expect("rotting");
                rig.drive(2 % drives).faults.rot(own + BLOCK + 80, 1).await.expect("rotting");
            }
            rot(&rig, 1, 21).await;
            rig.reopen(&[]).await;
            let array = rig.array();
            model.check_all(&array, 12, level).await;
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{level}: {report:?}");
            // The missing checksums are recorded now.
            array.close().await.expect("closing");
            rig.reopen(&[]).await;
            let again = rig.array().scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((again.checksum_errors, again.sums_recorded), (0, 0), "{level}: {again:?}");
            model.check_all(&rig.array(), 12, level).await;
        });
    }
}

/// The page copies of a column, on the drive of the next one, are outdated: that drive lost their
/// last writes.
#[test]
fn stale_page_refuses_no_block_the_parity_confirms() {
    for &(level, drives) in &[("raid1", 3), ("raid6", 5), ("raid7", 6), ("raid60", 8)] {
        run(level, drives, 13, async |rig, model| {
            rig.array().close().await.expect("closing");
            let image = rig.drive(2).image;
            let copy_at = |slab: u64| rig.spec.base_bytes + slab * 2 * BLOCK + BLOCK;
            let mut before = Vec::new();
            for slab in 0..4 {
                let page = Buffer::from_bytes(&[0; BLOCK as usize]);
                image.submit(IoRequest::read(copy_at(slab), page.clone())).await.expect("a read");
                before.push(page);
            }
            rig.reopen(&[]).await;
            for first in (0..model.sectors() / 2).step_by(64) {
                write(&rig, &model, first, 64, 2).await;
            }
            rig.array().close().await.expect("closing");
            for (slab, page) in before.into_iter().enumerate() {
                let request = IoRequest::write(copy_at(slab as u64), page, false);
                image.submit(request).await.expect("a write");
            }
            rig.reopen(&[]).await;
            rig.drive(1).faults.unplug();
            model.check_all(&rig.array(), 13, level).await;
        });
    }
}

/// No place of a page is current, one lost with its drive, the other outdated: a block on which its
/// drive and all others agree is still valid.
#[test]
fn stale_page_without_copy_is_outvoted_by_the_drives() {
    for &(level, drives) in &[("raid1", 3), ("raid6", 4), ("raid6", 5), ("raid7", 6)] {
        run(level, drives, 14, async |rig, model| {
            rig.array().close().await.expect("closing");
            let last = drives - 1;
            let image = rig.drive(last).image;
            let page_at = |slab: u64| rig.spec.base_bytes + slab * 2 * BLOCK;
            let mut before = Vec::new();
            for slab in 0..8 {
                let page = Buffer::from_bytes(&[0; BLOCK as usize]);
                image.submit(IoRequest::read(page_at(slab), page.clone())).await.expect("a read");
                before.push(page);
            }
            rig.reopen(&[]).await;
            for first in (0..model.sectors() / 2).step_by(64) {
                write(&rig, &model, first, 64, 2).await;
            }
            // It holds the copies of the last column's pages.
            rig.drive(0).faults.unplug();
            model.check_all(&rig.array(), 14, level).await;
            rig.array().close().await.expect("closing");
            for (slab, page) in before.into_iter().enumerate() {
                let request = IoRequest::write(page_at(slab as u64), page, false);
                image.submit(request).await.expect("a write");
            }
            rig.reopen(&[]).await;
            model.check_all(&rig.array(), 14, level).await;
        });
    }
}

#[test]
fn discarded_space_is_rewritten_without_old_sums() {
    for &(level, drives) in REDUNDANT.iter().chain(PLAIN) {
        run(level, drives, 11, async |rig, model| {
            let array = rig.array();
            let sectors = array.capacity_bytes() / SECTOR;
            for version in 5..8 {
                array.discard(0, array.capacity_bytes()).await.expect("a discard");
                model.set(0, sectors, 0);
                model.check_all(&array, 11, level).await;
                write(&rig, &model, 11, 30, version).await;
                array.flush().await.expect("a flush");
                array.write_zeroes(12 * SECTOR, 9 * SECTOR).await.expect("zeros");
                model.set(12, 9, 0);
                model.check_all(&array, 11, level).await;
            }
            array.close().await.expect("closing");
            rig.reopen(&[]).await;
            model.check_all(&rig.array(), 11, level).await;
            let report = rig.array().scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.checksum_errors, report.unattributed_blocks), (0, 0), "{level}: {report:?}");
        });
    }
}
