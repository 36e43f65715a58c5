//! A volume runs without its journal, since there is no space for one, and gets one when space is
//! freed. From then on every stripe without a record in the journal counts as consistent after a
//! crash: so all writes made without it have to be durable in place before, whenever power is cut.
//!
//! Invariant I26 (`docs/internals/invariants.md`).

use std::cell::Cell;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Drive, MemoryDrive, yield_now};
use stripewise_pool::{JobKind, Pool, PoolSpec, Role, Volume, VolumeSpec};

const BLOCK: u64 = 4096;
/// Start of the range that one client writes constantly.
const BUSY_AT: u64 = 2 * MIB;
const BUSY_BYTES: u64 = MIB;
const VOLUME_BYTES: u64 = 4 * MIB;
/// Maximum number of cuts; of more writes a sample is cut.
const MOST_CUTS: u64 = 150;

/// Creates a closed pool whose journal drives are gone: three drives without space for a journal
/// area, and a new drive.
fn without_room() -> Vec<Rc<MemoryDrive>> {
    let mut images = memory_drives(6, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let spec = PoolSpec { journals: drives[3..5].to_vec(), ..spec("tank", &drives[..3], &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        // With checksums, blocks written without a journal would not agree with them after a cut.
        let data = VolumeSpec { checksums: Some(false), ..volume_spec("data", "raid5", Some(VOLUME_BYTES)) };
        full_volume(&pool, data, 1).await;
        let rest = VolumeSpec { checksums: Some(false), ..volume_spec("rest", "raid0", None) };
        pool.create_volume(rest).await.unwrap();
        pool.close().await.unwrap();
    });
    images.drain(3..5);
    images
}

/// Writes single blocks, one after the other, until stopped or until power is cut.
async fn write_blocks(life: &Life, volume: &Volume, stop: &Cell<bool>) {
    for number in 0.. {
        let at = BUSY_AT + number * 37 % (BUSY_BYTES / BLOCK) * BLOCK;
        let data = Buffer::from_bytes(&contents(100 + number, at, BLOCK as usize));
        if stop.get() || volume.write(at, data, false).await.is_err() {
            return;
        }
        // Drives answer at once: mostly yield to other tasks, now and then let time pass.
        match number % 8 {
            7 => life.context.sleep_ns(50_000).await,
            _ => yield_now().await,
        }
    }
}

/// Frees space, so that a journal is started, while a client writes; power is cut at write number
/// `at`.
fn begun_and_cut(start: &[Rc<MemoryDrive>], deleting: bool, at: u64) -> Rc<Cut> {
    let cut = Cut::over(start, at);
    let life = Life::new();
    let drives = cut.drives(&life.context);
    life.run(async {
        let pool = life.open(&drives[..3]).await.unwrap();
        pool.start_jobs();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let volume = pool.volume("data").unwrap();
        assert_eq!(volume.array().journal_redundancy(), None, "there is no space for a journal");
        fill(&volume, 2, 0, MIB).await;
        volume.flush().await.unwrap();
        // Partial stripes, not flushed.
        for block in (0..BUSY_BYTES / BLOCK).step_by(3) {
            let at = BUSY_AT + block * BLOCK;
            let data = Buffer::from_bytes(&contents(3, at, BLOCK as usize));
            volume.write(at, data, false).await.unwrap();
        }
        let has_journal = || volume.array().journal_redundancy().is_some();
        cut.arm(at);
        let stop = Cell::new(false);
        let room = async {
            let made = match deleting {
                true => pool.delete_volume("rest").await,
                false => pool.add(drives[3].clone(), Role::Data, false).await.map(drop),
            };
            for _ in 0..300 {
                if made.is_err() || has_journal() {
                    break;
                }
                life.context.sleep_ns(1_000_000).await;
            }
            life.context.sleep_ns(200_000).await;
            stop.set(true);
        };
        futures_util::future::join(room, write_blocks(&life, &volume, &stop)).await;
        assert!(has_journal() || at < u64::MAX, "there is space now");
    });
    cut
}

/// Checks data that was flushed before, or not written since the volume was filled.
async fn is_untouched(volume: &Volume, what: &str) {
    let end = BUSY_AT + BUSY_BYTES;
    for (seed, at, length) in [(2, 0, MIB), (1, MIB, BUSY_AT - MIB), (1, end, VOLUME_BYTES - end)] {
        holds(volume, seed, at, length).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}

/// Tests that share the cuts.
const PARTS: usize = 3;

/// Every [`PARTS`]th cut, from one of the first on.
fn cut_everywhere(deleting: bool, part: usize) {
    let start = without_room();
    let total = begun_and_cut(&start, deleting, u64::MAX).writes();
    println!("{total} writes");
    for at in (1..=total).step_by((total / MOST_CUTS).max(1) as usize).skip(part).step_by(PARTS) {
        let what = format!("deleting: {deleting}, cut at write {at} of {total}");
        let images = begun_and_cut(&start, deleting, at).images();
        let copies: Vec<Rc<MemoryDrive>> =
            images.iter().map(|image| image.duplicate(&image.info().label)).collect();
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&images)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            pool.wait(JobKind::Rebuild).await.unwrap();
            // Chunks with writes in flight at the cut are resynced; no others may need it.
            pool.wait(JobKind::Scrub).await.unwrap();
            is_untouched(&pool.volume("data").unwrap(), &what).await;
            pool.scrub().await.unwrap();
            pool.wait(JobKind::Scrub).await.unwrap();
            let reports = pool.scrub_reports();
            let data = reports.iter().find(|summary| summary.volume == "data").unwrap();
            assert_eq!((&data.error, data.report.unattributed_blocks), (&None, 0), "{what}: {data:?}");
            pool.close().await.unwrap();
        });
        let life = Life::new();
        life.run(async {
            // A drive is lost together with the power.
            let lost = (at % 3) as usize;
            let left: Vec<_> = (0..)
                .zip(&copies)
                .filter(|(index, _)| *index != lost)
                .map(|(_, drive)| drive.clone())
                .collect();
            let pool = life.open(&as_drives(&left)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            is_untouched(&pool.volume("data").unwrap(), &what).await;
            pool.close().await.unwrap();
        });
    }
}

fn add_a_drive(part: usize) {
    cut_everywhere(false, part);
}

fn delete_a_volume(part: usize) {
    cut_everywhere(true, part);
}

test_cases! {
    journal_start_on_added_drive_survives_any_cut = add_a_drive {
        part_0: 0,
        part_1: 1,
        part_2: 2,
    }
}

test_cases! {
    journal_start_in_freed_space_survives_any_cut = delete_a_volume {
        part_0: 0,
        part_1: 1,
        part_2: 2,
    }
}
