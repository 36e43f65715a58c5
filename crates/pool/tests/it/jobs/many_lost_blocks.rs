//! A rebuild that finds thousands of blocks lost ends, and each of them can be written again, in
//! whatever size, and stays written.
//!
//! Invariant I3 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Drive, FaultyDrive, MemoryDrive};
use stripewise_pool::EventKind;
use stripewise_pool::{JobKind, OpenMode, Pool, PoolState, Volume, VolumeSpec};

const BLOCK: u64 = 4096;
/// Blocks that a drive cannot read, none next to another.
const BAD: u64 = 1700;
/// Columns of the volume, enough that a small write reads old data and parity.
const WIDTH: usize = 5;

async fn open(life: &Life, drives: &[Rc<dyn Drive>], lost_record_bytes: u64) -> Pool {
    let mut options = options(7);
    options.array.tuning.lost_record_bytes = lost_record_bytes;
    // The drive is worn, and stays.
    options.member.max_read_errors = u32::MAX;
    Pool::open(&life.context, &life.buffers, drives.to_vec(), OpenMode::ReadWrite, options)
        .await
        .expect("opened")
}

/// A full RAID 5 on all drives but the last, closed; where its first slab lies on the first drive.
fn full_pool(checksums: bool, write_back: bool) -> (Vec<Rc<MemoryDrive>>, u64) {
    let images = memory_drives(WIDTH + 1, 24);
    let life = Life::new();
    let first = life.run(async {
        let pool = life.create(&as_drives(&images[..WIDTH]), &[]).await.expect("a pool");
        let spec = VolumeSpec {
            checksums: Some(checksums),
            write_back: Some(write_back),
            ..volume_spec("v", "raid5", None)
        };
        let volume = full_volume(&pool, spec, 1).await;
        let places = volume.array().rows().run(0).expect("a row").places_of(0);
        let place = places.iter().find(|place| place.drive == 0).expect("every drive is in it");
        pool.close().await.expect("closed");
        2 * MIB + u64::from(place.slab) * MIB
    });
    (images, first)
}

/// Drives of which the first cannot read `bad` blocks from a place on, every other one.
fn with_bad_blocks(life: &Life, images: &[Rc<dyn Drive>], first: u64, bad: u64) -> Vec<Rc<dyn Drive>> {
    let faults = FaultyDrive::new(&life.context, images[0].clone(), 1);
    (0..bad)
        .for_each(|block| faults.make_unreadable(first + block * 2 * BLOCK..first + (block * 2 + 1) * BLOCK));
    let mut drives = images.to_vec();
    drives[0] = faults;
    drives
}

/// Blocks that cannot be read; the others hold what was written.
async fn unreadable(volume: &Volume) -> Vec<u64> {
    let mut unreadable = Vec::new();
    for at in (0..volume.capacity_bytes()).step_by(64 << 10) {
        if holds(volume, 1, at, 64 << 10).await.is_ok() {
            continue;
        }
        for at in (at..at + (64 << 10)).step_by(BLOCK as usize) {
            match volume.read(at, BLOCK as usize).await {
                Ok(read) => assert!(read.to_vec() == contents(1, at, BLOCK as usize), "rubbish at {at}"),
                Err(_) => unreadable.push(at),
            }
        }
    }
    unreadable
}

/// Loses the second drive and has the last take its place; how its rebuild ended.
async fn rebuild(pool: &Pool, drives: &[Rc<dyn Drive>]) -> Result<(), String> {
    replace_failed(pool, "drive1", &drives[WIDTH]).await;
    pool.wait(JobKind::Rebuild).await.map_err(|error| error.to_string())
}

#[test]
fn thousands_of_lost_blocks_can_be_written_for_good() {
    for (checksums, write_back) in [(true, true), (true, false), (false, true), (false, false)] {
        let (images, first) = full_pool(checksums, write_back);
        let cut = Cut::over(&images, 3);
        let life = Life::new();
        let (left, lost) = life.run(async {
            let drives = with_bad_blocks(&life, &cut.drives(&life.context), first, BAD);
            let pool = open(&life, &drives[..WIDTH], u64::MAX).await;
            rebuild(&pool, &drives).await.expect("it ends");
            let status = pool.status();
            let volume = pool.volume("v").expect("open");
            let lost = unreadable(&volume).await;
            assert_eq!((status.volumes[0].lost_blocks, status.volumes[0].redundancy_left), (BAD, 1));
            let text = format!("{BAD} blocks");
            let events = pool.events();
            let told = events.iter().filter(|event| event.kind == EventKind::Loss);
            assert_eq!(told.filter(|event| event.text.contains(&text)).count(), 1, "{events:?}");
            for &at in &lost {
                fill(&volume, 2, at, BLOCK).await;
            }
            volume.flush().await.expect("flushed");
            assert_eq!(pool.status().volumes[0].lost_blocks, 0);
            std::mem::forget(pool);
            (cut.images(), lost)
        });
        assert!(lost.len() as u64 >= BAD, "{}", lost.len());
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&left)).await.expect("opened");
            let volume = pool.volume("v").expect("open");
            for &at in &lost {
                holds(&volume, 2, at, BLOCK).await.expect("flushed, so durable");
            }
            assert_eq!((pool.status().state, pool.status().volumes[0].lost_blocks), (PoolState::Online, 0));
            // The written data has redundancy.
            pool.fail_drive(id_of(&pool.status(), "drive2"), "to see").await.expect("it can be spared");
            for &at in &lost {
                holds(&volume, 2, at, BLOCK).await.expect("reconstructed");
            }
            pool.close().await.expect("closed");
        });
    }
}

#[test]
fn blocks_lost_beside_a_written_one_stay_errors() {
    for checksums in [true, false] {
        let (images, first) = full_pool(checksums, false);
        let cut = Cut::over(&images, 5);
        let life = Life::new();
        let (left, lost) = life.run(async {
            let drives = with_bad_blocks(&life, &cut.drives(&life.context), first, 100);
            let pool = open(&life, &drives[..WIDTH], u64::MAX).await;
            rebuild(&pool, &drives).await.expect("it ends");
            let volume = pool.volume("v").expect("open");
            let lost = unreadable(&volume).await;
            // Every other one.
            for &at in lost.iter().step_by(2) {
                fill(&volume, 2, at, BLOCK).await;
            }
            volume.flush().await.expect("flushed");
            std::mem::forget(pool);
            (cut.images(), lost)
        });
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&left)).await.expect("opened");
            let volume = pool.volume("v").expect("open");
            for (index, &at) in lost.iter().enumerate() {
                let read = volume.read(at, BLOCK as usize).await;
                match read {
                    Ok(read) if index % 2 == 0 => assert!(read.to_vec() == contents(2, at, BLOCK as usize)),
                    Ok(read) => assert!(read.to_vec() == contents(1, at, BLOCK as usize), "rubbish at {at}"),
                    Err(error) => assert!(index % 2 == 1, "written and flushed: {error}"),
                }
            }
            pool.close().await.expect("closed");
        });
    }
}

#[test]
fn a_full_record_keeps_only_rows_with_losses_waiting() {
    for write_back in [false, true] {
        let (images, first) = full_pool(true, write_back);
        let cut = Cut::over(&images, 7);
        let life = Life::new();
        let (left, lost) = life.run(async {
            // 2 MiB of the first drive, and with it two or three rows.
            let drives = with_bad_blocks(&life, &cut.drives(&life.context), first, 256);
            let pool = open(&life, &drives[..WIDTH], 64).await;
            let error = rebuild(&pool, &drives).await.expect_err("not all rows count");
            assert!(error.contains("have no redundancy until"), "{error}");
            let volume = pool.volume("v").expect("open");
            let lacking: u64 = volume.array().lacking_rows().iter().map(|(_, rows, ..)| rows).sum();
            assert!((1..=3).contains(&lacking), "{lacking} rows lack something");
            (cut.images(), unreadable(&volume).await)
        });
        assert!(lost.len() >= 256, "{}", lost.len());
        let cut = Cut::over(&left, 8);
        let life = Life::new();
        let left = life.run(async {
            let mut drives = cut.drives(&life.context);
            drives.remove(1);
            let drives = with_bad_blocks(&life, &drives, first, 256);
            let pool = open(&life, &drives, 64).await;
            let volume = pool.volume("v").expect("open");
            for at in lost.iter().copied() {
                let write = || volume.write(at, Buffer::from_bytes(&contents(2, at, BLOCK as usize)), false);
                if let Err(error) = write().await {
                    assert!(error.to_string().contains("have room to name"), "{error}");
                    volume.flush().await.expect("what was acknowledged is durable");
                    write().await.expect("there is room again");
                }
            }
            volume.flush().await.expect("flushed");
            for &at in &lost {
                holds(&volume, 2, at, BLOCK).await.expect("acknowledged, wherever it is");
            }
            pool.wait(JobKind::Rebuild).await.expect("there is room for what is lost");
            pool.wait(JobKind::Destage).await.expect("put in place");
            assert_eq!((pool.status().state, pool.status().volumes[0].lost_blocks), (PoolState::Online, 0));
            std::mem::forget(pool);
            cut.images()
        });
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&left)).await.expect("opened");
            let volume = pool.volume("v").expect("open");
            for &at in &lost {
                holds(&volume, 2, at, BLOCK).await.expect("flushed, so durable");
            }
            pool.close().await.expect("closed");
        });
    }
}

/// Power goes while whole stripes are written, and a drive with it: which of its blocks were new is
/// known to the journal only, until the pool has recorded that they are dead.
#[test]
fn dead_blocks_without_room_stay_in_the_journal() {
    let images = memory_drives(4, 24);
    let length = 4 * 3 * (64 << 10);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.expect("a pool");
        let spec = VolumeSpec {
            checksums: Some(false),
            write_back: Some(false),
            ..volume_spec("v", "raid5", Some(8 * MIB))
        };
        full_volume(&pool, spec, 1).await;
        pool.close().await.expect("closed");
    });
    let cut = Cut::over(&images, 1);
    let life = Life::new();
    let left = life.run(async {
        let pool = life.open(&cut.drives(&life.context)).await.expect("opened");
        let volume = pool.volume("v").expect("open");
        fill(&volume, 2, 0, length).await;
        std::mem::forget(pool);
        cut.images()
    });
    let mut dead = Vec::new();
    // There is no room twice, then there is.
    for lost_record_bytes in [1, 1, u64::MAX] {
        let life = Life::new();
        life.run(async {
            let pool = open(&life, &as_drives(&left[1..]), lost_record_bytes).await;
            let volume = pool.volume("v").expect("open");
            let now = volume.array().dead_blocks();
            assert!(!now.is_empty() && (dead.is_empty() || dead == now), "{dead:?}, then {now:?}");
            dead = now;
            for &block in &dead {
                volume.read(block * BLOCK, BLOCK as usize).await.expect_err("it is dead");
            }
            holds(&volume, 1, length, 8 * MIB - length).await.expect("it was not written");
            let at = dead[0] * BLOCK;
            let data = Buffer::from_bytes(&contents(3, at, BLOCK as usize));
            if lost_record_bytes == 1 {
                volume.write(at, data, false).await.expect_err("what is written would be dead again");
                assert!(pool.events().iter().any(|event| event.text.contains("can only be read")));
                std::mem::forget(pool);
                return;
            }
            volume.write(at, data, false).await.expect("recorded");
            volume.flush().await.expect("flushed");
            holds(&volume, 3, at, BLOCK).await.expect("it is whole");
            pool.close().await.expect("closed");
        });
    }
}

/// One drive cannot read a block, another missed writes to the same region.
#[test]
fn lost_blocks_take_writes_beside_a_stale_drive() {
    for (checksums, write_back, is_back) in [
        (true, true, false),
        (true, false, true),
        (false, true, true),
        (false, false, false),
        (false, false, true),
    ] {
        let (images, first) = full_pool(checksums, write_back);
        let life = Life::new();
        life.run(async {
            let drives = with_bad_blocks(&life, &as_drives(&images), first, 4);
            let pool = open(&life, &drives[..WIDTH], u64::MAX).await;
            let volume = pool.volume("v").expect("open");
            let stale = id_of(&pool.status(), "drive1");
            pool.offline(stale).await.expect("it can be spared");
            let lost = unreadable(&volume).await;
            assert!(lost.len() >= 4, "{lost:?}");
            // Blocks beside them are written, those too that small writes need.
            for &at in &lost {
                let beside = at + BLOCK;
                assert!(!lost.contains(&beside));
                fill(&volume, 1, beside, BLOCK).await;
            }
            if is_back {
                pool.online(stale, Some(drives[1].clone())).await.expect("back, and behind");
            }
            for &at in &lost {
                fill(&volume, 2, at, BLOCK).await;
            }
            volume.flush().await.expect("flushed");
            for &at in &lost {
                holds(&volume, 2, at, BLOCK).await.expect("written");
                holds(&volume, 1, at + BLOCK, BLOCK).await.expect("written");
            }
            pool.wait(JobKind::Destage).await.expect("put in place");
            assert_eq!(pool.status().volumes[0].lost_blocks, 0);
            if !is_back {
                pool.online(stale, Some(drives[1].clone())).await.expect("back, and behind");
            }
            pool.wait(JobKind::Rebuild).await.expect("caught up");
            assert_eq!(pool.status().state, PoolState::Online);
            pool.fail_drive(id_of(&pool.status(), "drive2"), "to see").await.expect("it can be spared");
            for &at in &lost {
                holds(&volume, 2, at, BLOCK).await.expect("reconstructed");
            }
            pool.close().await.expect("closed");
        });
    }
}
