//! Checksums of drives that were missing together. The two places of a checksum page are on
//! neighbouring columns, so two drives can take both with them; returning blocks must be verified
//! all the same. Also pages that are lost while all blocks are intact: a scrub records their
//! checksums again.
//!
//! Invariants I17 and I27 (`docs/internals/invariants.md`).

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_array::ScrubReport;
use stripewise_drive::{Buffer, Drive, IoRequest, MemoryDrive};
use stripewise_pool::{JobKind, OpenMode, Pool, PoolSpec, PoolState};

const BLOCK: u64 = 4096;
const VOLUME_BYTES: u64 = 5 * MIB;
/// Range that is rewritten while drives are missing.
const CHANGED_AT: u64 = MIB + MIB / 4;
const CHANGED_BYTES: u64 = 3 * BLOCK;
/// Layouts that tolerate the loss of two drives, and their number of drives here.
const LAYOUTS: [(&str, usize); 2] = [("raid1", 3), ("raid6", 5)];

fn pairs(drives: usize) -> Vec<[usize; 2]> {
    (0..drives).flat_map(|first| (first + 1..drives).map(move |second| [first, second])).collect()
}

/// Creates a pool with a full volume, and closes it.
fn make(layout: &str, images: &[Rc<MemoryDrive>]) {
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(images), &[]).await.unwrap();
        let mut spec = volume_spec("data", layout, Some(VOLUME_BYTES));
        spec.layout.columns = Some(images.len());
        full_volume(&pool, spec, 1).await;
        pool.close().await.unwrap();
    });
}

/// Flips a bit in a block of a drive with these contents.
fn flip(drive: &Rc<MemoryDrive>, number: usize, block: &[u8]) {
    let mut block = block.to_vec();
    block[700] ^= 0x10;
    let write = IoRequest::write(number as u64 * BLOCK, Buffer::from_bytes(&block), true);
    assert!(matches!(drive.submit(write).try_take(), Ok(Ok(()))), "memory answers at once");
}

/// Flips a bit in every third block of data that a drive has in place; returns the number of
/// blocks.
fn rot(drive: &Rc<MemoryDrive>) -> u64 {
    let first_bytes = |block: u64| [1, 2].map(|seed| contents(seed, block * BLOCK, 8));
    let known: HashSet<Vec<u8>> = (0..VOLUME_BYTES / BLOCK).flat_map(first_bytes).collect();
    let bytes = image(drive);
    let blocks = || bytes.chunks_exact(BLOCK as usize).enumerate();
    let journals: Vec<Range<usize>> = blocks()
        .filter(|(_, block)| block.starts_with(b"SWJAREA\0"))
        .map(|(number, block)| {
            let length_bytes = u64::from_le_bytes(block[48..56].try_into().unwrap());
            number..number + (length_bytes / BLOCK) as usize
        })
        .collect();
    let is_in_place = |number: usize| journals.iter().all(|journal| !journal.contains(&number));
    let of_data = blocks().filter(|(number, block)| known.contains(&block[..8]) && is_in_place(*number));
    let mut rotten = 0;
    for (number, block) in of_data.step_by(3) {
        flip(drive, number, block);
        rotten += 1;
    }
    assert!(rotten > 50, "{rotten}");
    rotten
}

/// Checks that the volume reads correctly although these drives rot, and that the errors are
/// counted against them.
fn reads_right_from(images: &[Rc<MemoryDrive>], rotten: &[&str], has_changed: bool, what: &str) {
    for drive in images.iter().filter(|drive| rotten.contains(&&*drive.info().label)) {
        rot(drive);
    }
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(images)).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online, "{what}");
        let volume = pool.volume("data").unwrap();
        let changed_end = CHANGED_AT + CHANGED_BYTES;
        let seed = if has_changed { 2 } else { 1 };
        // One reader may find and repair some of it before the next one comes.
        for _ in 0..2 {
            let found = [
                holds(&volume, 1, 0, CHANGED_AT).await,
                holds(&volume, seed, CHANGED_AT, CHANGED_BYTES).await,
                holds(&volume, 1, changed_end, VOLUME_BYTES - changed_end).await,
            ];
            assert!(found.iter().all(Result::is_ok), "{what}: {found:?}");
        }
        pool.scrub().await.unwrap();
        pool.wait(JobKind::Scrub).await.unwrap();
        let status = pool.status();
        for label in rotten {
            let drive = status.drives.iter().find(|drive| drive.path == *label).unwrap();
            assert!(drive.checksum_errors > 0, "{what}: {label} has no errors");
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn two_returning_drives_are_verified() {
    for (layout, drives) in LAYOUTS {
        for pair in pairs(drives) {
            let images = memory_drives(drives, 64);
            make(layout, &images);
            let others: Vec<Rc<MemoryDrive>> = (0..drives)
                .filter(|index| !pair.contains(index))
                .map(|index| images[index].clone())
                .collect();
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&others)).await.unwrap();
                fill(&pool.volume("data").unwrap(), 2, CHANGED_AT, CHANGED_BYTES).await;
                pool.close().await.unwrap();
            });
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&images)).await.unwrap();
                pool.wait(JobKind::Rebuild).await.unwrap();
                pool.close().await.unwrap();
            });
            let labels = pair.map(|index| format!("drive{index}"));
            let what = format!("{layout}, {labels:?}");
            reads_right_from(&images, &[&labels[0], &labels[1]], true, &what);
        }
    }
}

#[test]
fn two_replacement_drives_are_verified() {
    for (layout, drives) in LAYOUTS {
        for pair in pairs(drives) {
            let mut images = memory_drives(drives, 64);
            make(layout, &images);
            let others: Vec<Rc<MemoryDrive>> = (0..drives)
                .filter(|index| !pair.contains(index))
                .map(|index| images[index].clone())
                .collect();
            let new = ["new0", "new1"].map(|label| MemoryDrive::new(label, 64 * MIB));
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&others)).await.unwrap();
                for (index, drive) in pair.iter().zip(&new) {
                    let id = id_of(&pool.status(), &format!("drive{index}"));
                    pool.replace(id, drive.clone(), false).await.unwrap();
                }
                pool.wait(JobKind::Rebuild).await.unwrap();
                pool.close().await.unwrap();
            });
            for (index, drive) in pair.into_iter().zip(&new) {
                images[index] = drive.clone();
            }
            let what = format!("{layout}, {pair:?}");
            reads_right_from(&images, &["new0", "new1"], false, &what);
        }
    }
}

#[test]
fn drive_returning_beside_a_new_one_is_verified() {
    for (layout, drives) in LAYOUTS {
        for pair in pairs(drives).into_iter().flat_map(|[first, second]| [[first, second], [second, first]]) {
            let mut images = memory_drives(drives, 64);
            make(layout, &images);
            let [replaced, back] = pair;
            let others: Vec<Rc<MemoryDrive>> = (0..drives)
                .filter(|index| !pair.contains(index))
                .map(|index| images[index].clone())
                .collect();
            images[replaced] = MemoryDrive::new("new", 64 * MIB);
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&others)).await.unwrap();
                let id = id_of(&pool.status(), &format!("drive{replaced}"));
                pool.replace(id, images[replaced].clone(), false).await.unwrap();
                pool.wait(JobKind::Rebuild).await.unwrap();
                pool.close().await.unwrap();
            });
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&images)).await.unwrap();
                pool.wait(JobKind::Rebuild).await.unwrap();
                pool.close().await.unwrap();
            });
            let what = format!("{layout}, {pair:?}");
            reads_right_from(&images, &["new", &format!("drive{back}")], false, &what);
        }
    }
}

/// Row and column of a checksum page.
type PageName = [u8; 10];

fn pages(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8], PageName)> {
    let blocks = bytes.chunks_exact(BLOCK as usize).enumerate();
    let pages = blocks.filter(|(_, block)| block.starts_with(b"STRPSUMS"));
    pages.map(|(number, block)| (number, block, block[32..42].try_into().unwrap()))
}

/// Rows and columns of a drive's checksum pages, own places and copies.
fn page_names(drive: &Rc<MemoryDrive>) -> HashSet<PageName> {
    pages(&image(drive)).map(|(_, _, name)| name).collect()
}

/// As [`page_names`], but own places only, which come first in each row.
fn own_page_names(drive: &Rc<MemoryDrive>) -> HashSet<PageName> {
    let mut rows = HashSet::new();
    pages(&image(drive)).map(|(_, _, name)| name).filter(|name| rows.insert(name[..8].to_vec())).collect()
}

/// Flips a bit in each of these checksum pages on a drive.
fn rot_pages(drive: &Rc<MemoryDrive>, names: &HashSet<PageName>) {
    for (number, block, _) in pages(&image(drive)).filter(|(_, _, name)| names.contains(name)) {
        flip(drive, number, block);
    }
}

/// Scrubs the volume and returns the report.
async fn scrubbed(pool: &Pool) -> ScrubReport {
    pool.scrub().await.unwrap();
    pool.wait(JobKind::Scrub).await.unwrap();
    let reports = pool.scrub_reports();
    assert_eq!((reports.len(), &reports[0].error), (1, &None));
    reports[0].report.clone()
}

/// Scrubs, and cuts power when the scrub has ended. Returns the drives and the report.
fn scrubbed_and_cut(images: &[Rc<MemoryDrive>]) -> (Vec<Rc<MemoryDrive>>, ScrubReport) {
    let cut = Cut::over(images, 3);
    let life = Life::new();
    let drives = cut.drives(&life.context);
    let report = life.run(async {
        let pool = life.open(&drives).await.unwrap();
        scrubbed(&pool).await
    });
    (cut.images(), report)
}

/// Checks on each drive in turn that every rotten block of data is found by its checksum, and
/// repaired.
fn all_is_verified(images: &[Rc<MemoryDrive>], has_changed: bool, what: &str) {
    for drive in images {
        let rotten = rot(drive);
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(images)).await.unwrap();
            let report = scrubbed(&pool).await;
            assert_eq!(report.checksum_errors, rotten, "{what}, {}: {report:?}", drive.info().label);
            assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{what}: {report:?}");
            assert_eq!(report.sums_recorded, 0, "{what}: {report:?}");
            let volume = pool.volume("data").unwrap();
            let changed_end = CHANGED_AT + CHANGED_BYTES;
            let seed = if has_changed { 2 } else { 1 };
            holds(&volume, 1, 0, CHANGED_AT).await.unwrap();
            holds(&volume, seed, CHANGED_AT, CHANGED_BYTES).await.unwrap();
            holds(&volume, 1, changed_end, VOLUME_BYTES - changed_end).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn scrub_records_sums_of_a_lost_page() {
    for (layout, drives) in [("raid1", 2), ("raid1", 3), ("raid5", 3), ("raid6", 5)] {
        for away in 0..drives {
            let what = format!("{layout} on {drives}, drive{away} was away");
            let images = memory_drives(drives, 64);
            make(layout, &images);
            let mut others = images.clone();
            let lost = page_names(&others.remove(away));
            others.iter().for_each(|drive| rot_pages(drive, &lost));
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&others)).await.unwrap();
                fill(&pool.volume("data").unwrap(), 2, CHANGED_AT, CHANGED_BYTES).await;
                pool.close().await.unwrap();
            });
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&images)).await.unwrap();
                pool.wait(JobKind::Rebuild).await.unwrap();
                pool.close().await.unwrap();
            });
            let (images, report) = scrubbed_and_cut(&images);
            assert!(report.sums_recorded > 200, "{what}: {report:?}");
            assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{what}: {report:?}");
            all_is_verified(&images, true, &what);
        }
    }
}

#[test]
fn scrub_without_redundancy_records_readable_sums() {
    for (layout, drives) in [("single", 1), ("raid0", 3)] {
        let images = memory_drives(drives, 64);
        make(layout, &images);
        images.iter().for_each(|drive| rot_pages(drive, &page_names(drive)));
        let (images, report) = scrubbed_and_cut(&images);
        assert!(report.sums_recorded >= VOLUME_BYTES / BLOCK, "{layout}: {report:?}");
        let rotten: u64 = images.iter().map(rot).sum();
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&images)).await.unwrap();
            let report = scrubbed(&pool).await;
            assert_eq!((report.checksum_errors, report.sums_recorded), (rotten, 0), "{layout}: {report:?}");
            let volume = pool.volume("data").unwrap();
            let mut refused = 0;
            for at in (0..VOLUME_BYTES).step_by(BLOCK as usize) {
                match holds(&volume, 1, at, BLOCK).await {
                    Ok(()) => {}
                    Err(why) => {
                        assert!(why.contains("checksum"), "{layout}: {why}");
                        refused += 1;
                    }
                }
            }
            assert_eq!(refused, rotten, "{layout}");
            pool.close().await.unwrap();
        });
    }
}

/// Creates a pool with the lost pages of a column and rotten blocks in that column; returns the
/// number of these blocks, too.
fn with_rot_and_lost_sums(layout: &str, drives: usize, faulty: usize) -> (Vec<Rc<MemoryDrive>>, u64) {
    let images = memory_drives(drives, 64);
    make(layout, &images);
    let lost = own_page_names(&images[faulty]);
    images.iter().for_each(|drive| rot_pages(drive, &lost));
    let rotten = rot(&images[faulty]);
    (images, rotten)
}

fn find_by_redundancy((layout, drives): (&str, usize)) {
    for faulty in 0..drives {
        let what = format!("{layout}, drive{faulty}");
        let (images, rotten) = with_rot_and_lost_sums(layout, drives, faulty);
        let (images, report) = scrubbed_and_cut(&images);
        assert_eq!(report.blamed, [(format!("drive{faulty}"), rotten)], "{what}: {report:?}");
        assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{what}: {report:?}");
        assert!(report.sums_recorded > rotten, "{what}: {report:?}");
        all_is_verified(&images, false, &what);
    }
}

test_cases! {
    rotten_block_without_a_sum_is_found_by_redundancy = find_by_redundancy {
        raid1_on_2: ("raid1", 2),
        raid1_on_3: ("raid1", 3),
        raid5_on_3: ("raid5", 3),
        raid6_on_5: ("raid6", 5),
    }
}

#[test]
fn scrub_that_records_sums_survives_any_cut() {
    for (case, layout, drives, faulty) in [(5, "raid5", 3, 0), (8, "raid6", 5, 0), (11, "raid6", 5, 3)] {
        let (start, _) = with_rot_and_lost_sums(layout, drives, faulty);
        let scrub_of = |at: u64| {
            let cut = Cut::over(&start, at);
            let life = Life::new();
            let drives = cut.drives(&life.context);
            life.run(async {
                let pool = life.open(&drives).await.unwrap();
                cut.arm(at);
                if pool.scrub().await.is_ok() {
                    let _ = pool.wait(JobKind::Scrub).await;
                }
            });
            cut
        };
        let total = scrub_of(u64::MAX).writes();
        assert!(total > 200, "{total}");
        for at in (1..=total).step_by((total / 40) as usize).map(|at| at + case as u64) {
            let what = format!("{layout}, case {case}, cut at write {at} of {total}");
            let images = scrub_of(at).images();
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&images)).await.unwrap();
                pool.wait(JobKind::Scrub).await.unwrap();
                let report = scrubbed(&pool).await;
                assert_eq!((report.checksum_errors, report.sums_recorded), (0, 0), "{what}: {report:?}");
                assert_eq!(report.unattributed_blocks, 0, "{what}: {report:?}");
                holds(&pool.volume("data").unwrap(), 1, 0, VOLUME_BYTES).await.unwrap();
                pool.close().await.unwrap();
            });
        }
    }
}

#[test]
fn resumed_scrub_leaves_nothing_out() {
    let images = memory_drives(3, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        full_volume(&pool, volume_spec("data", "raid5", Some(24 * MIB)), 1).await;
        pool.close().await.unwrap();
    });
    let lost = page_names(&images[1]);
    images.iter().for_each(|drive| rot_pages(drive, &lost));
    let cut = Cut::over(&images, 5);
    let life = Life::new();
    let drives = cut.drives(&life.context);
    life.run(async {
        let pool = life.open(&drives).await.unwrap();
        // 36 MiB at 1 MiB/s: the progress is recorded once, at 30 s.
        pool.set_patrol(Some(MIB), None).await.unwrap();
        pool.scrub().await.unwrap();
        pool.start_jobs();
        life.context.sleep_ns(33_000_000_000).await;
    });
    let images = cut.images();
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        let percent = pool.activity()[0].percent;
        assert!(percent >= 75.0, "it resumes from there: {percent} %");
        pool.wait(JobKind::Scrub).await.unwrap();
        let all = pool.scrub_reports().remove(0).report;
        assert_eq!(all.checked_bytes, 36 * MIB, "what was checked before counts, once: {all:?}");
        let report = scrubbed(&pool).await;
        assert_eq!((report.sums_recorded, report.checksum_errors), (0, 0), "{report:?}");
        pool.close().await.unwrap();
    });
}

/// A column has far more pages than fit into memory. With both neighbours missing, no place of them
/// counts until the column is filled, so none of them may be evicted before.
#[test]
fn pages_of_a_filling_column_stay_in_memory() {
    let size_bytes = 32 * MIB;
    let images = memory_drives(3, 112);
    let drives = as_drives(&images);
    let mut little = options(7);
    little.array.tuning.checksum_cache_bytes = 1;
    let life = Life::new();
    life.run(async {
        let spec = PoolSpec { slab_bytes: Some(size_bytes), ..spec("tank", &drives, &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        let mut spec = volume_spec("data", "raid1", Some(size_bytes));
        spec.layout.columns = Some(3);
        full_volume(&pool, spec, 1).await;
        pool.close().await.unwrap();
    });
    for pair in pairs(3) {
        let mut now = images.iter().map(|image| image.duplicate(&image.info().label)).collect::<Vec<_>>();
        let left = 3 - pair[0] - pair[1];
        let life = Life::new();
        life.run(async {
            let drive = vec![now[left].clone() as Rc<dyn Drive>];
            let pool = Pool::open(&life.context, &life.buffers, drive, OpenMode::ReadWrite, little);
            let pool = pool.await.unwrap();
            for index in pair {
                now[index] = MemoryDrive::new(&format!("new{index}"), 112 * MIB);
                let id = id_of(&pool.status(), &format!("drive{index}"));
                pool.replace(id, now[index].clone(), false).await.unwrap();
            }
            pool.wait(JobKind::Rebuild).await.unwrap();
            pool.close().await.unwrap();
        });
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&now)).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Online, "{pair:?}");
            let report = scrubbed(&pool).await;
            assert_eq!((report.sums_recorded, report.pages_lost), (0, 0), "{pair:?}: {report:?}");
            assert_eq!(report.checksum_errors, 0, "{pair:?}: {report:?}");
            pool.close().await.unwrap();
        });
    }
}
