//! Blocks that are lost stay so until what is written to them is durable: what stood in for them is
//! not given out after a power cut, whatever was recorded of the pool in between.
//!
//! Invariant I3 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, MemoryDrive};
use stripewise_pool::VolumeSpec;

const BLOCK: u64 = 4096;
/// The block that is lost.
const LOST: u64 = 3;

/// A volume of which one block is recorded as lost, closed.
fn with_a_lost_block(checksums: bool) -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(2, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.expect("a pool");
        let spec = VolumeSpec { checksums: Some(checksums), ..volume_spec("v", "raid0", Some(8 * MIB)) };
        let volume = full_volume(&pool, spec, 1).await;
        volume.array().note_dead_blocks([LOST]);
        pool.close().await.expect("closed");
    });
    images
}

/// Copies of the drives, for one more try.
fn copies(images: &[Rc<MemoryDrive>]) -> Vec<Rc<MemoryDrive>> {
    Cut::over(images, 0).images()
}

#[test]
fn unflushed_repair_is_new_or_lost_after_a_cut() {
    for checksums in [false, true] {
        let images = with_a_lost_block(checksums);
        let mut lost = 0;
        for seed in 0..20 {
            let cut = Cut::over(&copies(&images), seed);
            let life = Life::new();
            let left = life.run(async {
                let pool = life.open(&cut.drives(&life.context)).await.expect("opened");
                let volume = pool.volume("v").expect("open");
                volume.read(LOST * BLOCK, BLOCK as usize).await.expect_err("it is lost");
                fill(&volume, 2, LOST * BLOCK, BLOCK).await;
                holds(&volume, 2, LOST * BLOCK, BLOCK).await.expect("what was written");
                // Something else is recorded, and with it all that is known.
                pool.set_rebuild_priority(40 + seed as u32).await.expect("recorded");
                std::mem::forget(pool);
                cut.images()
            });
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&left)).await.expect("opened");
                let volume = pool.volume("v").expect("open");
                match holds(&volume, 2, LOST * BLOCK, BLOCK).await {
                    Ok(()) => {}
                    Err(what) if what.contains("wrong") => panic!("seed {seed}: {what}"),
                    Err(_) => lost += 1,
                }
                pool.close().await.expect("closed");
            });
        }
        assert!(lost > 0, "the write was always kept, so nothing was tried");
    }
}

#[test]
fn lost_block_is_repaired_once_its_write_is_durable() {
    for (checksums, fua) in [(false, false), (false, true), (true, false), (true, true)] {
        let images = with_a_lost_block(checksums);
        for seed in 0..5 {
            let cut = Cut::over(&copies(&images), seed);
            let life = Life::new();
            let left = life.run(async {
                let pool = life.open(&cut.drives(&life.context)).await.expect("opened");
                let volume = pool.volume("v").expect("open");
                let data = Buffer::from_bytes(&contents(2, LOST * BLOCK, BLOCK as usize));
                volume.write(LOST * BLOCK, data, fua).await.expect("written");
                if !fua {
                    volume.flush().await.expect("flushed");
                }
                assert_eq!(volume.info().expect("there").lost_blocks, 0);
                std::mem::forget(pool);
                cut.images()
            });
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&left)).await.expect("opened");
                let volume = pool.volume("v").expect("open");
                holds(&volume, 2, LOST * BLOCK, BLOCK).await.expect("durable");
                pool.close().await.expect("closed");
            });
        }
    }
}

/// The journal has the data of a block that is recorded as lost, since power went before the record
/// followed. The next write of the block and its acknowledgement must not leave it at that.
#[test]
fn repair_from_the_journal_survives_destaging() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.expect("a pool");
        let spec = VolumeSpec { write_back: Some(true), ..volume_spec("v", "raid5", Some(8 * MIB)) };
        let volume = full_volume(&pool, spec, 1).await;
        volume.array().note_dead_blocks([LOST]);
        pool.close().await.expect("closed");
    });
    let mut pending = 0;
    for seed in 0..10 {
        let mut left = copies(&images);
        for version in [2, 3] {
            let cut = Cut::over(&left, seed);
            let life = Life::new();
            left = life.run(async {
                let pool = life.open(&cut.drives(&life.context)).await.expect("opened");
                let volume = pool.volume("v").expect("open");
                if version == 3 && holds(&volume, 2, LOST * BLOCK, BLOCK).await.is_ok() {
                    pending += 1;
                }
                let data = Buffer::from_bytes(&contents(version, LOST * BLOCK, BLOCK as usize));
                let is_last = version == 3;
                volume.write(LOST * BLOCK, data, is_last).await.expect("the journal has it");
                if is_last {
                    // Until it is written in place.
                    life.context.sleep_ns(20_000_000_000).await;
                }
                std::mem::forget(pool);
                cut.images()
            });
        }
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&left)).await.expect("opened");
            let volume = pool.volume("v").expect("open");
            holds(&volume, 3, LOST * BLOCK, BLOCK).await.expect("durable");
            pool.close().await.expect("closed");
        });
    }
    assert!(pending > 0, "the journal never had the first write, so nothing was tried");
}

#[test]
fn discarded_lost_block_reads_as_zeros() {
    let images = memory_drives(3, 64);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..2], &[]).await.expect("a pool");
        let spec = volume_spec("v", "raid0", Some(8 * MIB));
        let volume = full_volume(&pool, spec, 1).await;
        volume.flush().await.expect("flushed");
        // Behind the engine's back, and then its drive is replaced: the block is nowhere.
        let held = contents(1, LOST * BLOCK, BLOCK as usize);
        let place = (0..64 * MIB).step_by(BLOCK as usize).find(|&at| {
            let mut found = vec![0; BLOCK as usize];
            images[0].peek(at, &mut found);
            found == held
        });
        images[0].poke(place.expect("the first strip is on the first drive") + 7, &[held[7] ^ 1]);
        let old = id_of(&pool.status(), "drive0");
        pool.replace(old, drives[2].clone(), false).await.expect("taken in");
        pool.wait(stripewise_pool::JobKind::Rebuild).await.expect("replaced");
        volume.read(LOST * BLOCK, BLOCK as usize).await.expect_err("it is lost");
        volume.discard(0, 8 * MIB).await.expect("discarded");
        // The region has something again, elsewhere.
        fill(&volume, 2, 0, BLOCK).await;
        let read = volume.read(LOST * BLOCK, BLOCK as usize).await.expect("nothing is lost any more");
        assert!(read.with(|bytes| bytes.iter().all(|byte| *byte == 0)).expect("bytes"));
        assert_eq!(volume.info().expect("there").lost_blocks, 0);
        pool.close().await.expect("closed");
    });
}

/// As after a discard, where power went before it was recorded that the region's blocks are whole.
#[test]
fn zeros_written_to_unwritten_space_clear_dead_blocks() {
    for (offset, length) in [(LOST * BLOCK, BLOCK), (0, 8 * MIB)] {
        let images = memory_drives(2, 64);
        let life = Life::new();
        life.run(async {
            let pool = life.create(&as_drives(&images), &[]).await.expect("a pool");
            let volume = pool.create_volume(volume_spec("v", "raid0", Some(8 * MIB))).await.expect("made");
            volume.array().note_dead_blocks([LOST]);
            volume.read(LOST * BLOCK, BLOCK as usize).await.expect_err("it is dead");
            volume.write_zeroes(offset, length).await.expect("written");
            let read = volume.read(LOST * BLOCK, BLOCK as usize).await.expect("it is whole");
            assert!(read.with(|bytes| bytes.iter().all(|byte| *byte == 0)).expect("bytes"));
            pool.close().await.expect("closed");
        });
    }
}

#[test]
fn shrunk_away_dead_blocks_read_as_zeros_on_regrow() {
    let images = memory_drives(2, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.expect("a pool");
        let volume = pool.create_volume(volume_spec("v", "raid0", Some(8 * MIB))).await.expect("made");
        let last = 8 * MIB / BLOCK - 1;
        volume.array().note_dead_blocks([LOST, last]);
        pool.resize_volume("v", 4 * MIB).await.expect("smaller");
        pool.resize_volume("v", 8 * MIB).await.expect("as large as before");
        let read = volume.read(last * BLOCK, BLOCK as usize).await.expect("it is new");
        assert!(read.with(|bytes| bytes.iter().all(|byte| *byte == 0)).expect("bytes"));
        volume.read(LOST * BLOCK, BLOCK as usize).await.expect_err("it is dead still");
        assert_eq!(volume.array().dead_blocks(), [LOST]);
        pool.close().await.expect("closed");
    });
}

#[test]
fn a_block_that_is_recorded_as_zeros_is_never_lost() {
    let images = memory_drives(2, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.expect("a pool");
        let volume = pool.create_volume(volume_spec("v", "raid0", Some(8 * MIB))).await.expect("a volume");
        // The rest of the region is zeros, and recorded as such.
        fill(&volume, 1, 0, BLOCK).await;
        volume.flush().await.expect("flushed");
        let held = contents(1, 0, BLOCK as usize);
        let place = (0..64 * MIB).step_by(BLOCK as usize).find(|&at| {
            let mut found = vec![0; BLOCK as usize];
            images[0].peek(at, &mut found);
            found == held
        });
        let first = place.expect("the first strip is on the first drive");
        images[0].poke(first + LOST * BLOCK, &[1; BLOCK as usize]);
        let read = volume.read(LOST * BLOCK, BLOCK as usize).await.expect("known without the drive");
        assert!(read.with(|bytes| bytes.iter().all(|byte| *byte == 0)).expect("bytes"));
        images[0].poke(first, &[1; BLOCK as usize]);
        volume.read(0, BLOCK as usize).await.expect_err("nothing else is known of this one");
        pool.close().await.expect("closed");
    });
}
