//! Copies of a volume's region map and areas of its journal: they count towards redundancy, are
//! replaced like rows, and a volume whose journal is lost starts a new one.
//!
//! Invariant I26 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::MemoryDrive;
use stripewise_pool::{Condition, JobKind, Pool, PoolError, PoolSpec, PoolState, Role, VolumeSpec};

/// A thin volume: its drives hold only its map and its journal.
fn thin(name: &str, layout: &str) -> VolumeSpec {
    VolumeSpec { thin: true, ..volume_spec(name, layout, Some(4 * MIB)) }
}

async fn with_journals(life: &Life, images: &[Rc<MemoryDrive>], data: usize) -> Pool {
    let drives = as_drives(images);
    let spec = PoolSpec { journals: drives[data..].to_vec(), ..spec("tank", &drives[..data], &[]) };
    Pool::create(&life.context, &life.buffers, spec).await.unwrap()
}

fn redundancy(pool: &Pool) -> (PoolState, usize) {
    let status = pool.status();
    (status.state, status.volumes[0].redundancy_left)
}

#[test]
fn missing_metadata_copies_reduce_redundancy() {
    let images = memory_drives(5, 32);
    let life = Life::new();
    life.run(async {
        let pool = with_journals(&life, &images, 3).await;
        pool.create_volume(volume_spec("data", "raid5", Some(4 * MIB))).await.unwrap();
        assert_eq!(redundancy(&pool), (PoolState::Online, 1));
        // A journal drive holds none of the volume's data.
        let journal = id_of(&pool.status(), "drive3");
        pool.fail_drive(journal, "a test").await.unwrap();
        assert_eq!(redundancy(&pool), (PoolState::Degraded, 0));
        let status = pool.status();
        assert_eq!(status.volumes[0].lacking_copies, [journal]);
        assert!(
            matches!(status.condition, Condition::Degraded { redundancy_left: 0, .. }),
            "{:?}",
            status.condition
        );
        // The last one cannot be taken offline: the volume could not be written without it.
        let last = id_of(&pool.status(), "drive4");
        assert!(matches!(pool.offline(last).await, Err(PoolError::NeedsRedundancy { .. })));
        // Data drives have space for an area.
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(redundancy(&pool), (PoolState::Online, 1));
        pool.offline(last).await.unwrap();
        assert_eq!(redundancy(&pool), (PoolState::Degraded, 0));
        fill(&pool.volume("data").unwrap(), 1, 0, 4 * MIB).await;
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert_eq!(redundancy(&pool), (PoolState::Degraded, 0));
        holds(&pool.volume("data").unwrap(), 1, 0, 4 * MIB).await.unwrap();
        pool.online(last, None).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(redundancy(&pool), (PoolState::Online, 1));
        pool.close().await.unwrap();
    });
}

#[test]
fn spare_replaces_a_drive_that_held_only_metadata() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..2], &drives[2..]).await.unwrap();
        pool.create_volume(thin("data", "raid1")).await.unwrap();
        pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
        assert_eq!(redundancy(&pool), (PoolState::Degraded, 0));
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(redundancy(&pool), (PoolState::Online, 1));
        fill(&pool.volume("data").unwrap(), 1, 0, MIB).await;
        pool.close().await.unwrap();
        // The other drive can be lost as well.
        let pool = life.open(&drives[2..]).await.unwrap();
        holds(&pool.volume("data").unwrap(), 1, 0, MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn journal_lost_with_its_drives_starts_empty() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = with_journals(&life, &images, 2).await;
        pool.create_volume(volume_spec("data", "raid1", Some(4 * MIB))).await.unwrap();
        fill(&pool.volume("data").unwrap(), 1, 0, MIB).await;
        pool.close().await.unwrap();
        let data = as_drives(&images[..2]);
        for round in 2..5 {
            // Both journal drives are missing; later the areas are on data drives.
            let pool = life.open(&data).await.unwrap();
            assert_eq!(redundancy(&pool), (PoolState::Online, 1), "round {round}");
            let is_reported = pool.events().iter().any(|event| event.text.contains("starts empty"));
            assert!(is_reported || round > 2, "{:?}", pool.events());
            let volume = pool.volume("data").unwrap();
            holds(&volume, round - 1, 0, MIB).await.unwrap();
            fill(&volume, round, 0, MIB).await;
            pool.close().await.unwrap();
        }
    });
}

#[test]
fn unused_journal_area_does_not_block_opening() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..2], &[]).await.unwrap();
        pool.create_volume(thin("data", "raid1")).await.unwrap();
        pool.close().await.unwrap();
        let pool = life.open(&drives[..1]).await.unwrap();
        // No job runs that could give the new drive an area before the old drive fails.
        let old = id_of(&pool.status(), "drive1");
        pool.replace(old, drives[2].clone(), false).await.unwrap();
        pool.fail_drive(id_of(&pool.status(), "drive0"), "a test").await.unwrap();
        // Its journal is lost.
        assert!(pool.close().await.is_err());
        for round in 1..4 {
            let pool = life.open(&drives[2..]).await.unwrap();
            let volume = pool.volume("data").unwrap();
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!(redundancy(&pool), (PoolState::Degraded, 0), "round {round}");
            volume.flush().await.unwrap();
            pool.close().await.unwrap();
        }
    });
}

#[test]
fn volume_gets_its_journal_once_there_is_room() {
    for deleting in [false, true] {
        let images = memory_drives(6, 32);
        let life = Life::new();
        life.run(async {
            let pool = with_journals(&life, &images[..5], 3).await;
            full_volume(&pool, volume_spec("data", "raid5", Some(4 * MIB)), 1).await;
            // Without checksums, which would need a journal too.
            let rest = VolumeSpec { checksums: Some(false), ..volume_spec("rest", "raid0", None) };
            pool.create_volume(rest).await.unwrap();
            pool.close().await.unwrap();
            let pool = life.open(&as_drives(&images[..3])).await.unwrap();
            pool.start_jobs();
            pool.wait(JobKind::Rebuild).await.unwrap();
            let volume = pool.volume("data").unwrap();
            assert_eq!(volume.array().journal_redundancy(), None, "there is no space for a journal");
            fill(&volume, 2, 0, MIB).await;
            if deleting {
                pool.delete_volume("rest").await.unwrap();
                life.context.sleep_ns(1_000_000_000).await;
            } else {
                pool.add(images[5].clone(), Role::Data, false).await.unwrap();
            }
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert!(volume.array().journal_redundancy().is_some(), "deleting: {deleting}");
            let is_reported = pool.events().iter().any(|event| event.text.contains("has a journal again"));
            assert!(is_reported, "{:?}", pool.events());
            holds(&volume, 2, 0, MIB).await.unwrap();
            // A partial stripe is in the journal first.
            fill(&volume, 3, 0, 64 << 10).await;
            assert!(volume.array().journal_fill().unwrap().0 > 0);
            pool.close().await.unwrap();
        });
    }
}
