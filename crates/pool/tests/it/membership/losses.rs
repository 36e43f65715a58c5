//! Drives that fail, go missing, return and are replaced: what is recorded, what is rebuilt, and
//! which contents are never trusted again.
//!
//! Invariant I10 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Drive, FaultyDrive, MemoryDrive};
use stripewise_pool::{
    Condition, DriveState, JobKind, OpenMode, Pool, PoolError, PoolState, Repair, VolumeState,
};

fn faulty(life: &Life, images: &[Rc<MemoryDrive>]) -> Vec<Rc<FaultyDrive>> {
    images.iter().map(|image| FaultyDrive::new(&life.context, image.clone(), 1)).collect()
}

fn copies(images: &[Rc<MemoryDrive>]) -> Vec<Rc<MemoryDrive>> {
    images.iter().map(|image| image.duplicate(&image.info().label)).collect()
}

#[test]
fn missed_write_is_acknowledged_after_it_is_recorded() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let drives = faulty(&life, &images);
        let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid6", None)).await.unwrap();
        fill(&volume, 1, 0, 8 * MIB).await;
        volume.flush().await.unwrap();
        drives[1].unplug();
        fill(&volume, 2, 0, 4 * MIB).await;
        let status = pool.status();
        assert_eq!((status.state, state_of(&status, "drive1")), (PoolState::Degraded, "missing"));
        let Condition::Degraded { out, repair: Repair::WithoutRoom { .. }, .. } = &status.condition else {
            panic!("{:?}", status.condition)
        };
        assert_eq!((out.len(), &*out[0].path), (1, "drive1"));
        drives[3].unplug();
        fill(&volume, 3, 0, 2 * MIB).await;
        volume.flush().await.unwrap();
    });
    drop(life);
    // Every set of drives: sets with a drive that knows of the losses never return old data; the
    // two stale drives alone cannot know.
    for present in 1u32..16 {
        let knows = present & 0b0101 != 0;
        let fresh = copies(&images);
        let drives: Vec<Rc<dyn Drive>> = (0..4)
            .filter(|index| present >> index & 1 == 1)
            .map(|index| fresh[index].clone() as Rc<dyn Drive>)
            .collect();
        let life = Life::new();
        life.run(async {
            let pool = life.open(&drives).await.unwrap();
            match pool.volume("data") {
                Ok(volume) if knows => {
                    assert_eq!(present & 0b0101, 0b0101, "two current drives are needed: {present:b}");
                    holds(&volume, 3, 0, 2 * MIB).await.unwrap();
                    holds(&volume, 2, 2 * MIB, 2 * MIB).await.unwrap();
                    holds(&volume, 1, 4 * MIB, 4 * MIB).await.unwrap();
                    for (index, path) in [(1, "drive1"), (3, "drive3")] {
                        let expected = if present >> index & 1 == 1 { "behind" } else { "missing" };
                        assert_eq!(state_of(&pool.status(), path), expected, "{present:b}");
                    }
                }
                Ok(_) => assert_eq!(present, 0b1010),
                Err(PoolError::VolumeFailed { needed, .. }) => {
                    assert_ne!(present & 0b0101, 0b0101);
                    assert_eq!(pool.status().state, PoolState::Failed);
                    assert!(
                        !needed.is_empty() && needed.iter().all(|drive| !drive.contains("drive1")) || !knows
                    );
                }
                Err(error) => panic!("{error}"),
            }
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn diverged_halves_are_refused() {
    let images = memory_drives(2, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        pool.create_volume(volume_spec("data", "raid1", None)).await.unwrap();
        pool.close().await.unwrap();
        for (index, seed) in [(0, 1), (1, 2)] {
            let half = as_drives(&images[index..=index]);
            let pool = life.open(&half).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Degraded);
            fill(&pool.volume("data").unwrap(), seed, 0, MIB).await;
            pool.close().await.unwrap();
        }
        let error = life.open(&as_drives(&images)).await.err().unwrap();
        let PoolError::Diverged { first, second } = &error else { panic!("{error}") };
        let mut named = [first.clone(), second.clone()].concat();
        named.sort();
        assert_eq!(named, ["drive0", "drive1"]);
        // The administrator decides: the second half is current, and the first is replaced.
        let pool = life.open(&as_drives(&images[1..])).await.unwrap();
        let old = id_of(&pool.status(), "drive0");
        pool.replace(old, images[0].clone(), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online);
        holds(&pool.volume("data").unwrap(), 2, 0, MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn spare_is_activated_automatically() {
    let images = memory_drives(5, 32);
    let life = Life::new();
    life.run(async {
        let drives = faulty(&life, &images);
        let all = as_drives(&drives);
        let pool = life.create(&all[..3], &all[3..]).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", None)).await.unwrap();
        fill(&volume, 1, 0, 20 * MIB).await;
        pool.start_jobs();
        pool.start_jobs();
        for (lost, left) in [(0, 4), (3, 3), (1, 0)] {
            drives[lost].unplug();
            holds(&volume, 1, 0, 20 * MIB).await.unwrap();
            fill(&volume, 1, 0, MIB).await;
            assert_eq!(pool.status().state, PoolState::Degraded);
            if lost == 1 {
                break;
            }
            pool.wait(JobKind::Rebuild).await.unwrap();
            let status = pool.status();
            assert_eq!(status.state, PoolState::Online, "{status:#?}");
            assert_eq!(status.drives.len(), left, "{status:#?}");
        }
        assert_eq!(pool.status().state, PoolState::Degraded, "no spare is left");
        pool.close().await.unwrap();
    });
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Degraded);
        holds(&pool.volume("data").unwrap(), 1, 0, 20 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn spare_replaces_a_missing_drive_at_next_start() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..3], &drives[3..]).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", None)).await.unwrap();
        fill(&volume, 1, 0, 8 * MIB).await;
        pool.close().await.unwrap();
        let pool = life.open(&drives[1..]).await.unwrap();
        let status = pool.status();
        assert_eq!((status.state, state_of(&status, "drive0")), (PoolState::Degraded, "missing"));
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online);
        holds(&pool.volume("data").unwrap(), 1, 0, 8 * MIB).await.unwrap();
        pool.close().await.unwrap();
        // The missing drive is no longer registered.
        let pool = life.open(&drives).await.unwrap();
        assert!(pool.notices().iter().any(|notice| notice.contains("drive0 is no drive of pool")));
        assert_eq!(pool.status().state, PoolState::Online);
        // It can be added as a spare, under a new identity.
        pool.add_spare(drives[0].clone(), false).await.unwrap();
        assert_eq!(state_of(&pool.status(), "drive0"), "online");
        pool.close().await.unwrap();
    });
}

#[test]
fn drives_are_replaced_failed_missing_or_healthy() {
    let images = memory_drives(6, 32);
    let life = Life::new();
    life.run(async {
        let drives = faulty(&life, &images);
        let all = as_drives(&drives);
        let pool = life.create(&all[..4], &[]).await.unwrap();
        let wide = pool.create_volume(volume_spec("wide", "raid6", Some(8 * MIB))).await.unwrap();
        let narrow = pool.create_volume(volume_spec("narrow", "raid10", None)).await.unwrap();
        fill(&wide, 1, 0, 8 * MIB).await;
        fill(&narrow, 2, 0, 8 * MIB).await;

        // A healthy drive.
        let old = id_of(&pool.status(), "drive0");
        let new = pool.replace(old, all[4].clone(), false).await.unwrap();
        assert_ne!(old, new);
        let status = pool.status();
        assert_eq!((state_of(&status, "drive0"), state_of(&status, "drive4")), ("replacing", "online"));
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online);

        // Two failed drives at once.
        drives[1].unplug();
        drives[2].unplug();
        fill(&wide, 3, 0, 4 * MIB).await;
        fill(&narrow, 4, 0, MIB).await;
        for (lost, new) in [("drive1", 5), ("drive2", 0)] {
            pool.replace(id_of(&pool.status(), lost), all[new].clone(), false).await.unwrap();
        }
        let activity = pool.activity();
        assert_eq!(activity.len(), 2, "two volumes: {activity:?}");
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.activity(), []);
        assert_eq!(pool.status().state, PoolState::Online);

        // The same drive again, and replacements that are refused.
        drives[2].plug_in();
        let used = pool.replace(id_of(&pool.status(), "drive3"), all[4].clone(), false).await;
        assert!(matches!(used, Err(PoolError::DriveInPool { .. })));
        let small = MemoryDrive::new("small", 3 * MIB);
        let small = pool.replace(id_of(&pool.status(), "drive3"), small, false).await;
        assert!(matches!(small, Err(PoolError::DriveTooSmall { .. })));
        let stranger = MemoryDrive::new("stranger", 32 * MIB);
        let theirs: Vec<Rc<dyn Drive>> = vec![stranger.clone()];
        let others = Pool::create(&life.context, &life.buffers, spec("other", &theirs, &[]));
        others.await.unwrap().close().await.unwrap();
        let taken = pool.replace(id_of(&pool.status(), "drive3"), stranger.clone(), false).await;
        assert!(matches!(&taken, Err(PoolError::DriveOfOtherPool { pool_name, .. }) if pool_name == "other"));
        assert_eq!(pool.status().state, PoolState::Online, "refusals change nothing");
        pool.replace(id_of(&pool.status(), "drive3"), stranger, true).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();

        holds(&wide, 3, 0, 4 * MIB).await.unwrap();
        holds(&wide, 1, 4 * MIB, 4 * MIB).await.unwrap();
        holds(&narrow, 4, 0, MIB).await.unwrap();
        holds(&narrow, 2, MIB, 7 * MIB).await.unwrap();
        // Without space for another copy of a map, the record of the drive that had one stays.
        let status = pool.status();
        assert_eq!(
            status.drives.iter().filter(|drive| drive.state == DriveState::Online).count(),
            4,
            "{status:#?}"
        );
        pool.close().await.unwrap();
    });
}

#[test]
fn striped_volume_recovers_when_its_drive_returns() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let drives = faulty(&life, &images);
        let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
        let striped = pool.create_volume(volume_spec("striped", "raid0", Some(9 * MIB))).await.unwrap();
        let parity = pool.create_volume(volume_spec("parity", "raid5", Some(8 * MIB))).await.unwrap();
        fill(&striped, 1, 0, 9 * MIB).await;
        fill(&parity, 2, 0, 8 * MIB).await;
        striped.flush().await.unwrap();
        parity.flush().await.unwrap();
        let old = id_of(&pool.status(), "drive1");
        assert_eq!(pool.volumes_depending_on(old).unwrap(), ["striped"]);
        let offline = pool.offline(old).await.err().unwrap();
        assert!(matches!(&offline, PoolError::NeedsRedundancy { volumes, .. } if volumes == &["striped"]));

        drives[1].unplug();
        fill(&parity, 3, 0, 4 * MIB).await;
        // No drive may be written any more if a loss cannot be reconstructed.
        let zeroes = pool.buffers().allocate_zeroed(4096);
        for strip in 0..3 {
            assert!(striped.write(strip * 65_536, zeroes.clone(), false).await.is_err());
        }
        assert!(striped.flush().await.is_err(), "its data cannot be made durable completely");
        holds(&striped, 1, 0, 4096).await.unwrap();
        assert!(striped.read(65_536, 4096).await.is_err());
        let status = pool.status();
        assert_eq!(status.state, PoolState::Failed);
        assert_eq!(pool.volumes()[0].state, VolumeState::Failed);
        assert!(pool.volumes()[0].needed[0].contains("drive1"));
        let _ = pool.close().await;
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        // Still missing.
        let pool = life.open(&[images[0].clone() as Rc<dyn Drive>, images[2].clone()]).await.unwrap();
        let failed = pool.volume("striped").err().unwrap();
        let PoolError::VolumeFailed { needed, .. } = &failed else { panic!("{failed}") };
        assert!(needed[0].contains("drive1"), "{failed}");
        holds(&pool.volume("parity").unwrap(), 3, 0, 4 * MIB).await.unwrap();
        pool.close().await.unwrap();
        // Back: current for one volume, stale for the other, which catches up.
        let pool = life.open(&as_drives(&images)).await.unwrap();
        holds(&pool.volume("striped").unwrap(), 1, 0, 9 * MIB).await.unwrap();
        let parity = pool.volume("parity").unwrap();
        holds(&parity, 3, 0, 4 * MIB).await.unwrap();
        assert_eq!(pool.volumes()[1].state, VolumeState::Degraded);
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online);
        holds(&parity, 3, 0, 4 * MIB).await.unwrap();
        holds(&parity, 2, 4 * MIB, 4 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn the_only_copy_is_not_overwritten() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let striped = pool.create_volume(volume_spec("striped", "raid0", Some(9 * MIB))).await.unwrap();
        pool.create_volume(volume_spec("parity", "raid5", Some(8 * MIB))).await.unwrap();
        fill(&striped, 1, 0, 9 * MIB).await;
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images[1..])).await.unwrap();
        let lost = id_of(&pool.status(), "drive0");
        let refused = pool.replace(lost, images[0].clone(), false).await;
        assert!(matches!(&refused, Err(PoolError::OnlyCopy { volume, .. }) if volume == "striped"));
        // Another drive replaces it for the volume that can be rebuilt; the other volume still
        // waits for it.
        pool.replace(lost, MemoryDrive::new("new", 32 * MIB), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.volumes()[1].state, VolumeState::Online);
        let failed = pool.volume("striped").err().unwrap();
        let PoolError::VolumeFailed { needed, .. } = &failed else { panic!("{failed}") };
        assert!(needed[0].contains("drive0"), "{failed}");
        pool.delete_volume("striped").await.unwrap();
        let status = pool.status();
        assert_eq!((status.state, status.drives.len()), (PoolState::Online, 3), "{status:#?}");
        pool.close().await.unwrap();
    });
}

#[test]
fn too_few_drives_are_left_unchanged() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", None)).await.unwrap();
        fill(&volume, 1, 0, 8 * MIB).await;
        pool.close().await.unwrap();
        for half in [0..2, 2..4] {
            let pool = life.open(&as_drives(&images[half])).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Failed);
            assert!(matches!(pool.volume("data"), Err(PoolError::VolumeFailed { .. })));
            let error = pool.set_rebuild_priority(99).await.err().unwrap();
            assert!(matches!(error, PoolError::TooFewDrives { .. }), "{error}");
            assert!(matches!(pool.scrub().await, Err(PoolError::TooFewDrives { .. })));
            pool.close().await.unwrap();
        }
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online, "neither half continued without the other");
        holds(&pool.volume("data").unwrap(), 1, 0, 8 * MIB).await.unwrap();
        pool.close().await.unwrap();
        // The administrator can delete the volume, and continue with the remaining drives.
        let pool = life.open(&as_drives(&images[..2])).await.unwrap();
        pool.delete_volume("data").await.unwrap();
        pool.create_volume(volume_spec("new", "raid1", None)).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn drive_refusing_a_commit_is_excluded_first() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let drives = faulty(&life, &images);
        let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
        pool.create_volume(volume_spec("data", "raid5", Some(4 * MIB))).await.unwrap();
        // One unwritable copy of two is no reason to exclude a drive: tested with a change and with
        // two checkpoints.
        drives[0].make_unwritable(0..MIB);
        pool.set_rebuild_priority(50).await.unwrap();
        pool.set_rebuild_priority(51).await.unwrap();
        let status = pool.status();
        assert_eq!((status.state, status.drives[0].write_errors), (PoolState::Online, 3));
        drives[0].make_unwritable(31 * MIB..32 * MIB);
        pool.set_rebuild_priority(52).await.unwrap();
        let status = pool.status();
        assert_eq!((status.state, state_of(&status, "drive0")), (PoolState::Degraded, "failed"));
        pool.close().await.unwrap();
        drives[0].repair(0..32 * MIB);
        let pool = life.open(&as_drives(&drives)).await.unwrap();
        assert_eq!(pool.rebuild_priority(), 52);
        assert_eq!(state_of(&pool.status(), "drive0"), "stale");
        assert_eq!(pool.status().drives[0].write_errors, 5, "error counts persist");
        // Without a drive to record it, nothing changes.
        drives[1].unplug();
        drives[2].unplug();
        assert!(matches!(pool.set_rebuild_priority(53).await, Err(PoolError::NoDriveLeft { .. })));
        assert_eq!(pool.rebuild_priority(), 52);
        let _ = pool.close().await;
    });
}

#[test]
fn damaged_superblocks_are_repaired() {
    let images = memory_drives(2, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        full_volume(&pool, volume_spec("data", "raid1", Some(4 * MIB)), 1).await;
        pool.close().await.unwrap();
        // The whole first MiB of one drive, the last MiB of the other.
        images[0].poke(0, &vec![0x5a; MIB as usize]);
        images[1].poke(31 * MIB, &vec![0xa5; MIB as usize]);
        let looked = life.open_as(&as_drives(&images), OpenMode::ReadOnly).await.unwrap();
        assert_eq!(looked.status().state, PoolState::Online);
        looked.close().await.unwrap();
        let pool = life.open(&as_drives(&images)).await.unwrap();
        holds(&pool.volume("data").unwrap(), 1, 0, 4 * MIB).await.unwrap();
        pool.set_rebuild_priority(40).await.unwrap();
        pool.close().await.unwrap();
        // Now the other ends.
        images[0].poke(31 * MIB, &vec![0; MIB as usize]);
        images[1].poke(0, &vec![0; MIB as usize]);
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert_eq!((pool.status().state, pool.rebuild_priority()), (PoolState::Online, 40));
        pool.close().await.unwrap();
    });
}

#[test]
fn spare_can_be_chosen_as_the_replacement() {
    let images = memory_drives(5, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..3], &drives[3..]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid5", Some(8 * MIB)), 1).await;
        let status = pool.status();
        let named = pool.replace(id_of(&status, "drive0"), drives[4].clone(), false).await.unwrap();
        assert_eq!(named, id_of(&status, "drive4"));
        pool.wait(JobKind::Rebuild).await.unwrap();
        let status = pool.status();
        let active = pool.replace_by_spare(id_of(&status, "drive1"), id_of(&status, "drive2")).await;
        assert!(matches!(active, Err(PoolError::DriveInPool { .. })), "it is not a spare");
        pool.replace_by_spare(id_of(&status, "drive1"), id_of(&status, "drive3")).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let left: Vec<_> = pool.status().drives.into_iter().map(|drive| drive.path).collect();
        assert_eq!(left, ["drive2", "drive3", "drive4"]);
        // A spare can be replaced like any other drive.
        pool.add_spare(drives[0].clone(), false).await.unwrap();
        pool.replace(id_of(&pool.status(), "drive0"), drives[1].clone(), false).await.unwrap();
        let status = pool.status();
        assert_eq!((state_of(&status, "drive1"), status.drives.len()), ("online", 4));
        holds(&volume, 1, 0, 8 * MIB).await.unwrap();
        pool.close().await.unwrap();
        let pool = life.open(&drives[1..]).await.unwrap();
        assert_eq!((pool.status().state, pool.status().drives.len()), (PoolState::Online, 4));
        pool.close().await.unwrap();
    });
}

#[test]
fn unresponsive_drive_does_not_block_opening() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let drives = faulty(&life, &images);
        let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
        full_volume(&pool, volume_spec("data", "raid5", Some(8 * MIB)), 1).await;
        pool.close().await.unwrap();
        drives[1].stick();
        let pool = life.open(&as_drives(&drives)).await.unwrap();
        assert!(pool.notices()[0].contains("drive1 could not be read"), "{:?}", pool.notices());
        holds(&pool.volume("data").unwrap(), 1, 0, 8 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn drives_are_released_on_exclusion_and_at_close() {
    let images = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", Some(8 * MIB))).await.unwrap();
        fill(&volume, 1, 0, MIB).await;
        assert!(images.iter().all(|image| Rc::strong_count(image) == 2));
        pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
        assert_eq!(Rc::strong_count(&images[1]), 1, "it can be unplugged, or added under its name");
        pool.replace(id_of(&pool.status(), "drive1"), images[1].clone(), false).await.unwrap();
        drop((pool, volume));
        assert!(images.iter().all(|image| Rc::strong_count(image) == 1), "also without a close");
        let pool = life.open(&as_drives(&images)).await.unwrap();
        pool.close().await.unwrap();
        assert!(images.iter().all(|image| Rc::strong_count(image) == 1));
    });
}
