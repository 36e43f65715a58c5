//! Evacuation of drives with little free space: an evacuation that cannot finish is refused or
//! reported, any other finishes.
//!
//! Invariants I31 and I34 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{FaultyDrive, MemoryDrive};
use stripewise_pool::{JobKind, Notice, Pool, PoolError, Role, VolumeSpec};

const MIB: u64 = 1 << 20;

/// Returns the free space of a drive.
fn free_bytes(pool: &Pool, path: &str) -> u64 {
    let status = pool.status();
    let drive = status.drives.iter().find(|drive| drive.path == path).unwrap();
    drive.usable_bytes - drive.allocated_bytes
}

fn plain(name: &str, layout: &str, columns: usize, size_bytes: u64) -> VolumeSpec {
    let mut spec = VolumeSpec { checksums: Some(false), ..volume_spec(name, layout, Some(size_bytes)) };
    spec.layout.columns = Some(columns);
    spec
}

#[test]
fn evacuations_do_not_share_the_same_free_space() {
    let images = memory_drives(5, 24);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..4], &[]).await.unwrap();
        let size = free_bytes(&pool, "drive0") * 11 / 10 / MIB * MIB;
        let volume = full_volume(&pool, plain("data", "raid1", 2, size), 1).await;
        let id = |path: &str| id_of(&pool.status(), path);
        pool.retire(id("drive0")).await.unwrap();
        let refused = pool.retire(id("drive1")).await.err().unwrap();
        assert!(
            matches!(refused, PoolError::NoRoomElsewhere { held_slabs, homeless_slabs, .. }
                if 0 < homeless_slabs && homeless_slabs < held_slabs),
            "{refused}"
        );
        pool.add(drives[4].clone(), Role::Data, false).await.unwrap();
        pool.retire(id("drive1")).await.unwrap();
        // Now this drive is needed, though it is still empty.
        let refused = pool.remove(id("drive4")).await.err().unwrap();
        assert!(matches!(refused, PoolError::DriveStanding { .. }), "{refused}");
        pool.wait(JobKind::Rebuild).await.unwrap();
        let left: Vec<String> = pool.status().drives.iter().map(|drive| drive.path.clone()).collect();
        assert_eq!(left, ["drive2", "drive3", "drive4"]);
        holds(&volume, 1, 0, size).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn evacuation_moves_obstructing_data_first() {
    let images = memory_drives(4, 24);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..3], &[]).await.unwrap();
        let wide = full_volume(&pool, plain("wide", "raid5", 3, 8 * MIB), 1).await;
        let all_else =
            |pool: &Pool| pool.status().drives.iter().map(|drive| free_bytes(pool, &drive.path)).sum::<u64>();
        // The volume's own map takes a slab.
        pool.create_volume(plain("rest", "single", 1, all_else(&pool) - MIB)).await.unwrap();
        pool.add(drives[3].clone(), Role::Data, false).await.unwrap();
        let last = full_volume(&pool, plain("last", "single", 1, all_else(&pool) - MIB), 2).await;
        pool.delete_volume("rest").await.unwrap();
        assert_eq!(free_bytes(&pool, "drive3"), 0);
        pool.retire(id_of(&pool.status(), "drive2")).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().drives.len(), 3);
        assert!(pool.status().notices.is_empty(), "{:?}", pool.status().notices);
        holds(&wide, 1, 0, 8 * MIB).await.unwrap();
        holds(&last, 2, 0, last.capacity_bytes()).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn stuck_evacuation_is_reported_and_a_new_drive_helps() {
    let images = memory_drives(5, 24);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..4], &[]).await.unwrap();
        let volume = full_volume(&pool, plain("data", "raid5", 3, 8 * MIB), 1).await;
        pool.retire(id_of(&pool.status(), "drive0")).await.unwrap();
        pool.fail_drive(id_of(&pool.status(), "drive3"), "a test").await.unwrap();
        let refused = pool.wait(JobKind::Rebuild).await.err().unwrap().to_string();
        assert!(refused.contains("drive0 cannot be emptied"), "{refused}");
        let said = |pool: &Pool| {
            pool.status().notices.iter().any(|notice| matches!(notice, Notice::CannotEmpty { .. }))
        };
        assert!(said(&pool), "{:?}", pool.status());
        pool.add(drives[4].clone(), Role::Data, false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert!(!said(&pool) && !pool.status().drives.iter().any(|drive| drive.path == "drive0"));
        holds(&volume, 1, 0, 8 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn lost_block_does_not_prevent_evacuation() {
    for checksums in [false, true] {
        let images = memory_drives(3, 32);
        let life = Life::new();
        life.run(async {
            let faulty = FaultyDrive::new(&life.context, images[1].clone(), 1);
            let mut drives = as_drives(&images);
            drives[1] = faulty.clone();
            let pool = life.create(&drives[..2], &[]).await.unwrap();
            let spec =
                VolumeSpec { checksums: Some(checksums), ..volume_spec("data", "raid0", Some(8 * MIB)) };
            let volume = pool.create_volume(spec).await.unwrap();
            fill(&volume, 1, 0, 8 * MIB).await;
            volume.flush().await.unwrap();
            // Find the drive of a block by its contents.
            let wanted = contents(1, 5 * MIB + 8192, 4096);
            let is_on_other = place_of(&images[0], &wanted).is_some();
            let lost = 5 * MIB + 8192 + if is_on_other { interleave_bytes(&pool) } else { 0 };
            let place = place_of(&images[1], &contents(1, lost, 4096)).expect("it is on that drive");
            faulty.make_unreadable(place..place + 4096);
            pool.add(drives[2].clone(), Role::Data, false).await.unwrap();
            pool.retire(id_of(&pool.status(), "drive1")).await.unwrap();
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert!(!pool.status().drives.iter().any(|drive| drive.path == "drive1"));
            pool.close().await.unwrap();
            let rest = [drives[0].clone(), drives[2].clone()];
            let pool = life.open(&rest).await.unwrap();
            let volume = pool.volume("data").unwrap();
            assert!(volume.read(lost, 4096).await.is_err(), "a lost block is an error");
            holds(&volume, 1, 0, lost).await.unwrap();
            holds(&volume, 1, lost + 4096, 8 * MIB - lost - 4096).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

/// Interleave of the first volume: a block this far after one on one drive is on the other.
fn interleave_bytes(pool: &Pool) -> u64 {
    pool.status().volumes[0].shape.interleave_bytes
}

/// Offset of a block on a drive.
fn place_of(drive: &Rc<MemoryDrive>, block: &[u8]) -> Option<u64> {
    let image = image(drive);
    let found = image.chunks_exact(4096).position(|chunk| chunk == block);
    found.map(|index| index as u64 * 4096)
}
