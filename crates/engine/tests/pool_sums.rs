//! Checksums of drives that were gone together. A page of them has its two places on neighbouring columns, so two drives can take
//! both places with them; what comes back must be verified all the same.

mod pool_support;

use std::collections::HashSet;
use std::rc::Rc;

use pool_support::*;
use stripewise_drive::{Buffer, Drive, IoRequest, MemoryDrive};
use stripewise_engine::{JobKind, PoolState};

const BLOCK: u64 = 4096;
const VOLUME_BYTES: u64 = 5 * MIB;
/// What is written anew while drives are away.
const CHANGED_AT: u64 = MIB + MIB / 4;
const CHANGED_BYTES: u64 = 3 * BLOCK;
/// Layouts that can do without two drives, and how many drives they have here.
const LAYOUTS: [(&str, usize); 2] = [("raid1", 3), ("raid6", 5)];

fn pairs(drives: usize) -> Vec<[usize; 2]> {
    (0..drives).flat_map(|first| (first + 1..drives).map(move |second| [first, second])).collect()
}

/// A pool with a full volume, closed.
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

/// Flips a bit in every third block of data that a drive has.
fn rot(drive: &Rc<MemoryDrive>) {
    let first_bytes = |block: u64| [1, 2].map(|seed| contents(seed, block * BLOCK, 8));
    let known: HashSet<Vec<u8>> = (0..VOLUME_BYTES / BLOCK).flat_map(first_bytes).collect();
    let bytes = image(drive);
    let blocks = bytes.chunks_exact(BLOCK as usize).enumerate();
    let of_data = blocks.filter(|(_, block)| known.contains(&block[..8]));
    let mut rotten = 0;
    for (number, block) in of_data.step_by(3) {
        let mut block = block.to_vec();
        block[700] ^= 0x10;
        let write = IoRequest::write(number as u64 * BLOCK, Buffer::from_bytes(&block), true);
        assert!(matches!(drive.submit(write).try_take(), Ok(Ok(()))), "memory answers at once");
        rotten += 1;
    }
    assert!(rotten > 50, "{rotten}");
}

/// Whether the volume reads as it should though these drives rot, and whether they are found to have lied.
fn reads_right_from(images: &[Rc<MemoryDrive>], rotten: &[&str], has_changed: bool, what: &str) {
    images.iter().filter(|drive| rotten.contains(&&*drive.info().label)).for_each(rot);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(images)).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online, "{what}");
        let volume = pool.volume("data").unwrap();
        let changed_end = CHANGED_AT + CHANGED_BYTES;
        let seed = if has_changed { 2 } else { 1 };
        // Some of it may be found by one reader and put right before the next one comes.
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
            assert!(drive.checksum_errors > 0, "{what}: {label} has lied");
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn two_drives_that_were_away_together_are_verified_when_they_are_back() {
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
fn two_drives_that_took_the_place_of_two_others_are_verified() {
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
fn a_drive_that_comes_back_beside_a_new_one_is_verified() {
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
