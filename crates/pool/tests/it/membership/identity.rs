//! A drive is one member, with contents as new as its last commit: a drive that belongs to the pool
//! can be added as another member only if its old slot is given up, and a drive restored from an
//! older copy is not trusted.
//!
//! Invariants I22, I23 and I24 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_array::Array;
use stripewise_drive::{Drive, MemoryDrive, SplitMix64};
use stripewise_pool::{
    DriveState, JobKind, OpenMode, Pool, PoolError, PoolOptions, PoolState, Role, VolumeSpec,
};

const SIZE: u64 = 12 * MIB;

/// A volume that cannot detect wrong blocks by itself.
fn without_checksums(layout: &str) -> VolumeSpec {
    VolumeSpec { checksums: Some(false), ..volume_spec("data", layout, Some(SIZE)) }
}

/// Creates a pool with a volume full of the contents of seed 1, and closes it.
fn made(images: &[Rc<MemoryDrive>], spec: VolumeSpec) {
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(images), &[]).await.unwrap();
        full_volume(&pool, spec, 1).await;
        pool.close().await.unwrap();
    });
}

/// Opens the pool, rewrites the volume, and closes it.
fn used(images: &[Rc<MemoryDrive>], seed: u64) {
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(images)).await.unwrap();
        fill(&pool.volume("data").unwrap(), seed, 0, SIZE).await;
        pool.close().await.unwrap();
    });
}

async fn scrubbed_clean(array: &Array) {
    let report = array.scrub(&|_, _| {}).await.unwrap();
    assert_eq!((report.blamed.len(), report.unattributed_blocks, report.unreadable_strips), (0, 0, 0));
}

fn copy(images: &[Rc<MemoryDrive>]) -> Vec<Rc<MemoryDrive>> {
    images.iter().map(|image| image.duplicate(&image.info().label)).collect()
}

fn state(pool: &Pool, path: &str) -> String {
    state_of(&pool.status(), path).to_owned()
}

/// Creates a RAID 6 on five drives that was used without the last two.
fn two_away() -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(5, 32);
    made(&images, without_checksums("raid6"));
    used(&images[..3], 2);
    images
}

#[test]
fn absent_drive_returns_only_as_itself() {
    let images = two_away();
    let life = Life::new();
    life.run(async {
        let at_hand: Vec<Rc<dyn Drive>> = as_drives(&[&images[..3], &images[4..]].concat());
        let pool = life.open(&at_hand).await.unwrap();
        assert_eq!(state(&pool, "drive4"), "behind");
        let ids = [3, 4].map(|index| id_of(&pool.status(), &format!("drive{index}")));
        let generation = pool.generation();
        // Under any name, and opened once more.
        let again = Rc::new(Relabelled { drive: images[4].clone(), info: renamed(&images[4], "by-id/4") });
        for drive in [at_hand[3].clone(), again as Rc<dyn Drive>] {
            for role in [Role::Data, Role::Spare, Role::Journal, Role::Fast] {
                let refused = pool.add(drive.clone(), role, false).await.unwrap_err();
                assert!(matches!(&refused, PoolError::DriveOut { id, .. } if *id == ids[1]), "{refused}");
            }
            let refused = pool.replace(ids[0], drive.clone(), false).await.unwrap_err();
            assert!(matches!(refused, PoolError::DriveOut { .. }), "{refused}");
        }
        assert_eq!(pool.generation(), generation, "nothing changed");
        pool.online(ids[1], None).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let refused = pool.replace(ids[0], at_hand[3].clone(), true).await.unwrap_err();
        assert!(matches!(refused, PoolError::DriveInPool { .. }), "not even with force: {refused}");
        holds(&pool.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn drive_in_another_slot_gives_up_its_own() {
    for in_place in [true, false] {
        let images = two_away();
        let life = Life::new();
        life.run(async {
            let at_hand = as_drives(&[&images[..3], &images[4..]].concat());
            let pool = life.open(&at_hand).await.unwrap();
            let volume = pool.volume("data").unwrap();
            let ids = [3, 4].map(|index| id_of(&pool.status(), &format!("drive{index}")));
            match in_place {
                true => pool.replace(ids[0], at_hand[3].clone(), true).await.unwrap(),
                false => pool.add(at_hand[3].clone(), Role::Data, true).await.unwrap(),
            };
            let refused = pool.online(ids[1], None).await.unwrap_err();
            assert!(matches!(refused, PoolError::DriveStanding { .. } | PoolError::NoSuchDrive { .. }));
            pool.wait(JobKind::Rebuild).await.unwrap();
            let refused = pool.online(ids[1], Some(at_hand[3].clone())).await.unwrap_err();
            assert!(matches!(refused, PoolError::DriveStanding { .. } | PoolError::NoSuchDrive { .. }));
            let new = pool.status().drives.into_iter().rfind(|drive| drive.path == "drive4");
            assert_eq!(new.map(|drive| drive.state), Some(DriveState::Online));
            holds(&volume, 2, 0, SIZE).await.unwrap();
            // It replaces one of the two, not both.
            assert_eq!(pool.volumes()[0].redundancy_left, 1);
            scrubbed_clean(&volume.array()).await;
            pool.fail_drive(id_of(&pool.status(), "drive0"), "to see").await.unwrap();
            holds(&volume, 2, 0, SIZE).await.unwrap();
            pool.close().await.unwrap();
        });
        drop(life);
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&[&images[1..3], &images[4..]].concat())).await.unwrap();
            holds(&pool.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn offline_drive_is_not_new_while_its_slot_exists() {
    for restart in [false, true] {
        let images = memory_drives(4, 32);
        made(&images, without_checksums("raid5"));
        let (mut life, drives) = (Life::new(), as_drives(&images));
        let open = |life: &Life| life.run(life.open(&drives)).unwrap();
        let mut pool = open(&life);
        let id = id_of(&pool.status(), "drive1");
        life.run(pool.offline(id)).unwrap();
        if restart {
            life.run(pool.close()).unwrap();
            drop(pool);
            life = Life::new();
            pool = open(&life);
        }
        life.run(async {
            let volume = pool.volume("data").unwrap();
            fill(&volume, 2, 0, MIB).await;
            let refused = pool.add(drives[1].clone(), Role::Data, false).await.unwrap_err();
            assert!(matches!(refused, PoolError::DriveOut { .. }), "{refused}");
            pool.add(drives[1].clone(), Role::Data, true).await.unwrap();
            let refused = pool.online(id, None).await.unwrap_err();
            assert!(matches!(refused, PoolError::DriveStanding { .. } | PoolError::NoSuchDrive { .. }));
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!((pool.status().state, pool.status().drives.len()), (PoolState::Online, 4));
            holds(&volume, 2, 0, MIB).await.unwrap();
            holds(&volume, 1, MIB, SIZE - MIB).await.unwrap();
            scrubbed_clean(&volume.array()).await;
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn excluded_spare_and_journal_drives_are_not_new() {
    let images = memory_drives(7, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let mut spec = spec("tank", &drives[..3], &drives[3..4]);
        spec.journals = drives[4..6].to_vec();
        spec.fast = drives[6..].to_vec();
        let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        full_volume(&pool, volume_spec("data", "raid5", Some(SIZE)), 1).await;
        for path in ["drive3", "drive4", "drive6"] {
            pool.offline(id_of(&pool.status(), path)).await.unwrap();
        }
        pool.close().await.unwrap();
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.open(&drives).await.unwrap();
        for drive in [&drives[3], &drives[4], &drives[6]] {
            for role in [Role::Data, Role::Spare, Role::Journal, Role::Fast] {
                let refused = pool.add(drive.clone(), role, false).await.unwrap_err();
                assert!(
                    matches!(refused, PoolError::DriveOut { .. } | PoolError::OnlyCopy { .. }),
                    "{refused}"
                );
            }
        }
        // It may return to its own slot.
        pool.replace(id_of(&pool.status(), "drive3"), drives[3].clone(), false).await.unwrap();
        let spares = pool.status().drives.into_iter().filter(|drive| drive.role == Role::Spare);
        assert_eq!(spares.map(|drive| drive.state).collect::<Vec<_>>(), [DriveState::Online]);
        pool.close().await.unwrap();
    });
}

#[test]
fn returning_drive_is_read_again_before_use() {
    let other = memory_drives(3, 32);
    made(&other, without_checksums("raid5"));
    for overwritten in [true, false] {
        let images = memory_drives(4, 32);
        made(&images, without_checksums("raid5"));
        let life = Life::new();
        life.run(async {
            let drives = as_drives(&images);
            let pool = life.open(&drives).await.unwrap();
            let id = id_of(&pool.status(), "drive1");
            pool.offline(id).await.unwrap();
            pool.close().await.unwrap();
            let pool = life.open(&drives).await.unwrap();
            // Overwritten without the pool's knowledge.
            let new = if overwritten { image(&other[0]) } else { vec![0; 32 << 20] };
            images[1].poke(0, &new);
            let refused = pool.online(id, None).await.unwrap_err();
            assert!(
                matches!(refused, PoolError::DriveStanding { .. } | PoolError::DriveOfOtherPool { .. }),
                "{refused}"
            );
            assert_eq!(image(&images[1]), new, "it was not written to");
            holds(&pool.volume("data").unwrap(), 1, 0, SIZE).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

/// A drive under another name, as if it was opened once more.
struct Relabelled {
    drive: Rc<MemoryDrive>,
    info: stripewise_drive::DriveInfo,
}

fn renamed(drive: &MemoryDrive, label: &str) -> stripewise_drive::DriveInfo {
    stripewise_drive::DriveInfo { label: label.into(), ..drive.info().clone() }
}

impl Drive for Relabelled {
    fn info(&self) -> &stripewise_drive::DriveInfo {
        &self.info
    }

    fn submit(&self, request: stripewise_drive::IoRequest) -> stripewise_drive::Completion {
        self.drive.submit(request)
    }
}

#[test]
fn member_restored_from_an_older_copy_is_stale() {
    for (layout, checksums) in [("raid5", false), ("raid5", true), ("raid1", false), ("raid6", false)] {
        let images = memory_drives(if layout == "raid1" { 2 } else { 4 }, 32);
        made(&images, VolumeSpec { checksums: Some(checksums), ..without_checksums(layout) });
        let older = images[1].duplicate("drive1");
        used(&images, 2);
        let mut images = copy(&images);
        images[1] = older;
        let life = Life::new();
        life.run(async {
            let look = life.open_as(&as_drives(&images), OpenMode::ReadOnly).await.unwrap();
            assert_eq!(state(&look, "drive1"), "stale");
            holds(&look.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
            look.close().await.unwrap();
            let drives = as_drives(&images);
            for _ in 0..2 {
                let pool = life.open(&drives).await.unwrap();
                assert_eq!(state(&pool, "drive1"), "stale", "{layout}");
                assert!(
                    pool.notices().iter().any(|notice| notice.contains("drive1")),
                    "{:?}",
                    pool.notices()
                );
                assert_eq!(pool.status().state, PoolState::Degraded);
                holds(&pool.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
                pool.close().await.unwrap();
            }
            let pool = life.open(&drives).await.unwrap();
            pool.replace(id_of(&pool.status(), "drive1"), drives[1].clone(), false).await.unwrap();
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Online);
            let volume = pool.volume("data").unwrap();
            scrubbed_clean(&volume.array()).await;
            pool.fail_drive(id_of(&pool.status(), "drive0"), "to see").await.unwrap();
            holds(&volume, 2, 0, SIZE).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn older_copy_of_an_offline_drive_is_refused() {
    let images = memory_drives(4, 32);
    made(&images, without_checksums("raid5"));
    let older = images[1].duplicate("drive1");
    used(&images, 2);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        let id = id_of(&pool.status(), "drive1");
        pool.offline(id).await.unwrap();
        fill(&pool.volume("data").unwrap(), 3, 0, MIB).await;
        // Restored while the pool is open: then it is rebuilt completely.
        pool.online(id, Some(older.duplicate("drive1"))).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        scrubbed_clean(&pool.volume("data").unwrap().array()).await;
        pool.close().await.unwrap();
    });
    drop(life);
    // Restored while the pool is closed.
    let images = memory_drives(4, 32);
    made(&images, without_checksums("raid5"));
    let older = images[1].duplicate("drive1");
    used(&images, 2);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        pool.offline(id_of(&pool.status(), "drive1")).await.unwrap();
        fill(&pool.volume("data").unwrap(), 3, 0, MIB).await;
        pool.close().await.unwrap();
        let drives = as_drives(&[&images[..1], &[older], &images[2..]].concat());
        let pool = life.open(&drives).await.unwrap();
        let volume = pool.volume("data").unwrap();
        let id = id_of(&pool.status(), "drive1");
        assert!(pool.online(id, None).await.is_err(), "its contents are not current");
        pool.replace(id, drives[1].clone(), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        holds(&volume, 3, 0, MIB).await.unwrap();
        holds(&volume, 2, MIB, SIZE - MIB).await.unwrap();
        scrubbed_clean(&volume.array()).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn majority_of_older_copies_needs_force() {
    let images = memory_drives(5, 32);
    made(&images, without_checksums("raid6"));
    let older = copy(&images[..3]);
    used(&images, 2);
    let drives = as_drives(&[&older[..], &images[3..]].concat());
    let life = Life::new();
    life.run(async {
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            let refused = life.open_as(&drives, mode).await.err().unwrap();
            let PoolError::RolledBack { drives, .. } = &refused else { panic!("{refused}") };
            assert_eq!(drives.len(), 3);
            assert!(drives[0].starts_with("drive0 (at generation "), "{refused}");
        }
        let options = PoolOptions { take_rolled_back: true, ..options(7) };
        let (context, buffers) = (&life.context, &life.buffers);
        let pool = Pool::open(context, buffers, drives.clone(), OpenMode::ReadWrite, options).await.unwrap();
        assert!(pool.notices().iter().any(|notice| notice.contains("is taken as it is")));
        let volume = pool.volume("data").unwrap();
        volume.read(0, SIZE as usize).await.unwrap();
        pool.close().await.unwrap();
        // This state is current from now on.
        let pool = life.open(&drives).await.unwrap();
        assert_eq!(
            (pool.status().state, pool.notices().len()),
            (PoolState::Online, 0),
            "{:?}",
            pool.notices()
        );
        pool.close().await.unwrap();
    });
}

#[test]
fn older_copy_stays_stale_for_volumes_that_need_it() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        full_volume(&pool, without_checksums("raid5"), 1).await;
        let striped = VolumeSpec { checksums: Some(false), ..volume_spec("striped", "raid0", Some(8 * MIB)) };
        full_volume(&pool, striped, 1).await;
        pool.close().await.unwrap();
    });
    drop(life);
    let older = images[1].duplicate("drive1");
    used(&images, 2);
    let drives = as_drives(&[&images[..1], &[older], &images[2..]].concat());
    let life = Life::new();
    life.run(async {
        // The second time its exclusion is recorded, and still its data is not trusted where it has
        // the only copy.
        for _ in 0..2 {
            let pool = life.open(&drives).await.unwrap();
            assert_eq!(state(&pool, "drive1"), "stale");
            holds(&pool.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
            assert!(matches!(pool.volume("striped"), Err(PoolError::VolumeFailed { .. })));
            let refused = pool.online(id_of(&pool.status(), "drive1"), Some(drives[1].clone())).await;
            assert!(matches!(refused, Err(PoolError::RolledBack { .. })), "{refused:?}");
            pool.close().await.unwrap();
        }
        let options = PoolOptions { take_rolled_back: true, ..options(7) };
        let (context, buffers) = (&life.context, &life.buffers);
        let pool = Pool::open(context, buffers, drives.clone(), OpenMode::ReadWrite, options).await.unwrap();
        holds(&pool.volume("striped").unwrap(), 1, 0, 8 * MIB).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let volume = pool.volume("data").unwrap();
        scrubbed_clean(&volume.array()).await;
        holds(&volume, 2, 0, SIZE).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn older_copy_used_alone_is_refused_as_diverged() {
    let images = memory_drives(2, 32);
    made(&images, without_checksums("raid1"));
    let older = images[1].duplicate("drive1");
    used(&images, 2);
    used(std::slice::from_ref(&older), 3);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&[images[0].clone(), older]);
        let refused = life.open(&drives).await.err().unwrap();
        assert!(matches!(refused, PoolError::Diverged { .. }), "{refused}");
        for (index, seed) in [(0, 2), (1, 3)] {
            let pool = life.open_as(&drives[index..=index], OpenMode::ReadOnly).await.unwrap();
            holds(&pool.volume("data").unwrap(), seed, 0, SIZE).await.unwrap();
        }
    });
}

#[test]
fn power_cuts_at_opening_make_no_drive_stale() {
    let images = memory_drives(4, 32);
    made(&images, without_checksums("raid5"));
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let mut images = copy(&images);
        for _ in 0..1 + random.below(6) {
            let cut = Cut::over(&images, random.next_u64());
            // Sometimes a drive is missing, and returns later.
            let away = random.below(12) as usize;
            cut.arm(1 + random.below(16));
            let life = Life::new();
            life.run(async {
                let mut drives = cut.drives(&life.context);
                if away < drives.len() {
                    drives.remove(away);
                }
                if let Ok(pool) = life.open(&drives).await {
                    let _ = pool.allocate_spares().await;
                }
            });
            drop(life);
            images = cut.images();
        }
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&images)).await.unwrap();
            let status = pool.status();
            assert!(
                status.drives.iter().all(|drive| drive.state != DriveState::Stale),
                "seed {seed}: {status:#?}"
            );
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Online, "seed {seed}");
            holds(&pool.volume("data").unwrap(), 1, 0, SIZE).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn drives_returning_at_a_power_cut_are_not_stale() {
    let images = memory_drives(4, 32);
    made(&images, without_checksums("raid0"));
    // Two drives are lost; the others continue with the rest of the pool, for many commits.
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        for path in ["drive1", "drive2"] {
            pool.drive_vanished(id_of(&pool.status(), path), "it was pulled").await.unwrap();
        }
        for percent in 20..26 {
            pool.set_rebuild_priority(percent).await.unwrap();
        }
        pool.close().await.unwrap();
    });
    drop(life);
    for at in 1..24 {
        for seed in 0..3 {
            let cut = Cut::over(&copy(&images), seed);
            cut.arm(at);
            let life = Life::new();
            let _ = life.run(async { life.open(&cut.drives(&life.context)).await.map(|_| ()) });
            drop(life);
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&cut.images())).await.unwrap();
                let states = |pool: &Pool| -> Vec<String> {
                    pool.status().drives.iter().map(|drive| drive.state.to_string()).collect()
                };
                assert!(!states(&pool).contains(&"stale".to_owned()), "{at}, {seed}: {:?}", states(&pool));
                pool.wait(JobKind::Rebuild).await.unwrap();
                holds(&pool.volume("data").unwrap(), 1, 0, SIZE).await.unwrap();
                pool.close().await.unwrap();
            });
        }
    }
}

#[test]
fn drive_written_as_two_members_is_stale() {
    let images = memory_drives(4, 32);
    made(&images, without_checksums("raid5"));
    used(&images, 1);
    // Replace the older one of its two slots, at both ends, by another drive's.
    let slot = 512 << 10;
    let capacity = images[1].info().capacity_bytes;
    let newest = |drive: &MemoryDrive, slot_at: u64| {
        let mut entry = [0; 16];
        drive.peek(slot_at + 4096, &mut entry);
        u64::from_le_bytes(entry[8..].try_into().unwrap())
    };
    let older = if newest(&images[1], 0) < newest(&images[1], slot) { 0 } else { slot };
    for place in [older, capacity - 2 * slot + older] {
        let mut bytes = vec![0; slot as usize];
        images[2].peek(place, &mut bytes);
        images[1].poke(place, &bytes);
    }
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.open(&drives).await.unwrap();
        assert_eq!(state(&pool, "drive1"), "stale");
        assert!(
            pool.notices().iter().any(|notice| notice.contains("as two different drives")),
            "{:?}",
            pool.notices()
        );
        let volume = pool.volume("data").unwrap();
        holds(&volume, 1, 0, SIZE).await.unwrap();
        let id = id_of(&pool.status(), "drive1");
        assert!(pool.online(id, Some(drives[1].clone())).await.is_err());
        pool.replace(id, drives[1].clone(), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        scrubbed_clean(&volume.array()).await;
        pool.close().await.unwrap();
        let pool = life.open(&drives).await.unwrap();
        assert_eq!((pool.status().state, pool.notices().len()), (PoolState::Online, 0));
        pool.close().await.unwrap();
    });
}
