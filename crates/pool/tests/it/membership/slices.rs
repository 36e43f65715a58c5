//! Volumes that are cut into slices, while drives fail, join, leave and are replaced: each job does
//! all slices, and shows as one job of the volume.

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_array::Class;
use stripewise_drive::{Buffer, Drive, IoRequest, MemoryDrive};
use stripewise_pool::{JobKind, Pin, Pool, PoolSpec, PoolState, Role, Volume, VolumeSpec};

use crate::kit::pool::*;
use crate::kit::slices::{create, open, scrubbed_clean, sliced, with_extents};

const SIZE: u64 = 24 * MIB;

async fn is_sound(pool: &Pool, volume: &Volume) {
    assert_eq!(pool.status().state, PoolState::Online, "{:#?}", pool.status());
    holds(volume, 1, 0, SIZE).await.expect("as written");
    scrubbed_clean(volume).await;
}

fn spec(slices: u32) -> VolumeSpec {
    let mut spec = sliced("data", "raid5", slices, SIZE);
    spec.layout.columns = Some(3);
    spec
}

/// Drives of all rows of a volume.
fn drives_of(volume: &Volume) -> BTreeSet<u32> {
    let rows = volume.arrays().into_iter().map(|array| array.rows());
    rows.flat_map(|rows| {
        let places = rows.runs().flat_map(|run| run.places.iter().map(|place| place.drive));
        places.collect::<Vec<u32>>()
    })
    .collect()
}

#[test]
fn all_slices_are_rebuilt_and_shown_as_one_job() {
    let images = memory_drives(5, 64);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = create(&life, &drives[..4], 192 << 10).await;
        let volume = full_volume(&pool, spec(4), 1).await;
        volume.flush().await.expect("flushed");
        pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.expect("spared");
        let info = volume.info().expect("it is there");
        assert_eq!((info.redundancy_left, info.slices), (0, 4));
        holds(&volume, 1, 0, SIZE).await.expect("as written");
        pool.replace(id_of(&pool.status(), "drive1"), drives[4].clone(), false).await.expect("replaced");
        let jobs = pool.activity();
        assert_eq!(jobs.iter().filter(|job| job.kind == JobKind::Rebuild).count(), 1, "{jobs:?}");
        pool.wait(JobKind::Rebuild).await.expect("rebuilt");
        assert_eq!(volume.info().expect("it is there").redundancy_left, 1);
        pool.scrub().await.expect("begun");
        let jobs = pool.activity();
        assert_eq!(jobs.iter().filter(|job| job.kind == JobKind::Scrub).count(), 1, "{jobs:?}");
        pool.wait(JobKind::Scrub).await.expect("scrubbed");
        let reports = pool.scrub_reports();
        assert!(reports.len() == 1 && reports[0].report.checked_bytes >= SIZE, "{reports:?}");
        is_sound(&pool, &volume).await;
        pool.fail_drive(id_of(&pool.status(), "drive0"), "to see").await.expect("spared");
        holds(&volume, 1, 0, SIZE).await.expect("as written");
    });
}

#[test]
fn drive_that_was_away_catches_up_in_all_slices() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = create(&life, &drives, 192 << 10).await;
        let volume = full_volume(&pool, spec(3), 1).await;
        volume.flush().await.expect("flushed");
        let away = id_of(&pool.status(), "drive2");
        pool.offline(away).await.expect("spared");
        for at in (0..SIZE).step_by(MIB as usize) {
            fill(&volume, 2, at, 8192).await;
        }
        pool.close().await.expect("closed");
        let pool = open(&life, &drives).await.expect("opened");
        let volume = pool.volume("data").expect("it is there");
        pool.online(away, None).await.expect("brought back");
        pool.wait(JobKind::Rebuild).await.expect("caught up");
        assert_eq!(pool.status().state, PoolState::Online);
        pool.fail_drive(id_of(&pool.status(), "drive0"), "to see").await.expect("spared");
        for at in (0..SIZE).step_by(MIB as usize) {
            holds(&volume, 2, at, 8192).await.expect("as written");
            holds(&volume, 1, at + 8192, MIB - 8192).await.expect("as written");
        }
    });
}

#[test]
fn slices_leave_a_retired_and_a_replaced_drive() {
    let images = memory_drives(6, 64);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = create(&life, &drives[..5], 192 << 10).await;
        let volume = full_volume(&pool, spec(4), 1).await;
        volume.flush().await.expect("flushed");
        assert_eq!(drives_of(&volume), (0..5).collect());
        pool.retire(id_of(&pool.status(), "drive4")).await.expect("there is room");
        pool.wait(JobKind::Rebuild).await.expect("emptied");
        assert!(pool.status().drives.iter().all(|drive| drive.path != "drive4"));
        assert_eq!(drives_of(&volume), (0..4).collect());
        is_sound(&pool, &volume).await;
        // A working drive stays a member until its successor has everything.
        pool.replace(id_of(&pool.status(), "drive0"), drives[5].clone(), false).await.expect("begun");
        pool.wait(JobKind::Rebuild).await.expect("replaced");
        assert!(pool.status().drives.iter().all(|drive| drive.path != "drive0"));
        is_sound(&pool, &volume).await;
        let returned: Rc<dyn Drive> = MemoryDrive::new("drive9", 64 * MIB);
        pool.add(returned, Role::Data, false).await.expect("added");
        pool.start_jobs();
        pool.wait(JobKind::Rebalance).await.expect("spread");
        is_sound(&pool, &volume).await;
    });
}

#[test]
fn pinned_slices_move_to_fast_drives() {
    let images = memory_drives(7, 64);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let made = PoolSpec {
            fast: drives[4..].to_vec(),
            options: with_extents(192 << 10),
            ..crate::kit::pool::spec("tank", &drives[..4], &[])
        };
        let pool = Pool::create(&life.context, &life.buffers, made).await.expect("a pool");
        let volume = full_volume(&pool, spec(4), 1).await;
        volume.flush().await.expect("flushed");
        pool.set_pin("data", Pin::Fast).await.expect("there is room");
        pool.start_jobs();
        pool.wait(JobKind::Tier).await.expect("moved");
        let tiers = volume.info().expect("it is there").tiers;
        assert_eq!((tiers.data_rows, tiers.mixed_rows), (0, 0), "{tiers:?}");
        assert_eq!(drives_of(&volume), (4..7).collect());
        is_sound(&pool, &volume).await;
    });
}

#[test]
fn scrub_finds_rot_in_every_slice() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&images), 192 << 10).await;
        let volume = full_volume(&pool, spec(3), 1).await;
        volume.flush().await.expect("flushed");
        life.context.sleep_ns(30_000_000_000).await;
        for array in volume.arrays() {
            let place = array.rows().place(0, 0).expect("a row");
            let id = pool.status().drives[place.drive as usize].id;
            let member = pool.member(id).expect("it is there");
            // Slabs begin behind superblocks and checksums.
            let at = 2 * MIB + u64::from(place.slab) * MIB + 8192;
            let rot = IoRequest::write(at, Buffer::from_bytes(&[7; 4096]), true);
            member.submit(Class::Upkeep, rot).await.expect("written");
        }
        let checked = pool.check(&|_| {}).await.expect("checked");
        let wrong = |report: &stripewise_array::ScrubReport| {
            report.blamed.iter().map(|(_, blocks)| blocks).sum::<u64>()
        };
        assert_eq!(wrong(&checked[0].report), 3, "{checked:?}");
        let mut places: Vec<u64> = checked[0].report.places.iter().map(|place| place.offset_bytes).collect();
        places.sort();
        let extent_bytes = volume.info().expect("it is there").slice_extent_bytes.expect("slices");
        assert_eq!(places, [0, 1, 2].map(|slice| slice * extent_bytes + 8192), "offsets in the volume");
        pool.scrub().await.expect("begun");
        pool.wait(JobKind::Scrub).await.expect("scrubbed");
        let reports = pool.scrub_reports();
        assert_eq!(wrong(&reports[0].report), 3, "{reports:?}");
        is_sound(&pool, &volume).await;
    });
}
