//! Room for what lost drives held: replacements that are too small are refused, and what has no
//! place is named until a drive or a spare with room is added.
//!
//! Invariant I10 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Drive, MemoryDrive};
use stripewise_pool::{Condition, JobKind, Pool, PoolError, PoolState, Repair, Role};

fn drive(name: &str, mib: u64) -> Rc<dyn Drive> {
    MemoryDrive::new(name, mib * MIB)
}

/// Columns without a place, as volume, column and slabs, and the needed size in MiB.
fn homeless(pool: &Pool) -> (Vec<(Option<usize>, u64)>, u64) {
    let status = pool.status();
    let (Condition::Lacking { repair, .. } | Condition::Degraded { repair, .. }) = &status.condition else {
        panic!("{:?}", status.condition)
    };
    let Repair::WithoutRoom { homeless, needed_bytes, .. } = repair else { panic!("{repair:?}") };
    let left = homeless.iter().inspect(|left| assert_eq!((&*left.volume, &*left.drive), ("data", "drive1")));
    (left.map(|left| (left.column, left.slabs)).collect(), needed_bytes / MIB)
}

/// A pool of four drives that one volume fills.
async fn full(life: &Life, spares: &[Rc<dyn Drive>]) -> Pool {
    let pool = life.create(&as_drives(&memory_drives(4, 32)), spares).await.unwrap();
    full_volume(&pool, volume_spec("data", "raid5", None), 1).await;
    pool.start_jobs();
    pool
}

async fn check_whole(pool: &Pool) {
    pool.wait(JobKind::Rebuild).await.unwrap();
    let status = pool.status();
    assert_eq!(status.state, PoolState::Online, "{:?}", status.condition);
    assert!(status.drives.iter().all(|drive| drive.path != "drive1"), "{status:#?}");
    let volume = pool.volume("data").unwrap();
    holds(&volume, 1, 0, volume.capacity_bytes()).await.unwrap();
    pool.close().await.unwrap();
}

#[test]
fn too_small_drive_for_a_lost_one_is_refused() {
    let life = Life::new();
    life.run(async {
        let pool = full(&life, &[]).await;
        let old = id_of(&pool.status(), "drive1");
        pool.fail_drive(old, "a test").await.unwrap();
        let before = pool.status().drives.len();
        let refused = pool.replace(old, drive("small", 24), false).await.expect_err("too small");
        let PoolError::DriveTooSmall { needed_bytes, .. } = refused else { panic!("{refused}") };
        assert_eq!(pool.status().drives.len(), before, "it was not added");
        pool.replace(old, drive("enough", needed_bytes.div_ceil(MIB)), false).await.unwrap();
        check_whole(&pool).await;
    });
}

#[test]
fn column_without_a_place_is_named_until_it_has_one() {
    for role in [Role::Data, Role::Spare] {
        let life = Life::new();
        life.run(async {
            let pool = full(&life, &[drive("small", 24)]).await;
            pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
            pool.wait(JobKind::Rebuild).await.unwrap();
            let (left, needed_mib) = homeless(&pool);
            assert!(left.iter().all(|(column, slabs)| *column == Some(1) && *slabs > 0), "{left:?}");
            assert_eq!(pool.status().state, PoolState::Degraded);
            pool.add(drive("new", needed_mib), role, false).await.unwrap();
            pool.allocate_spares().await.unwrap();
            check_whole(&pool).await;
        });
    }
}

#[test]
fn lost_drive_without_room_elsewhere_can_be_removed() {
    let life = Life::new();
    life.run(async {
        let pool = full(&life, &[]).await;
        let old = id_of(&pool.status(), "drive1");
        pool.fail_drive(old, "a test").await.unwrap();
        let (left, needed_mib) = homeless(&pool);
        pool.remove(old).await.unwrap();
        assert_eq!(homeless(&pool), (left, needed_mib), "the same columns, with no drive to replace");
        pool.add(drive("new", needed_mib), Role::Data, false).await.unwrap();
        check_whole(&pool).await;
    });
}

#[test]
fn condition_names_the_volume_that_can_lose_least() {
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&memory_drives(5, 32)), &[]).await.unwrap();
        for (name, layout) in [("archive", "raid6"), ("machines", "raid5")] {
            full_volume(&pool, volume_spec(name, layout, Some(12 * MIB)), 1).await;
        }
        let lost = id_of(&pool.status(), "drive1");
        pool.fail_drive(lost, "a test").await.unwrap();
        let status = pool.status();
        let Condition::Degraded { volume, redundancy_left, .. } = status.condition else {
            panic!("{:?}", status.condition)
        };
        assert_eq!((volume.as_str(), redundancy_left), ("machines", 0));
        pool.close().await.unwrap();
    });
}
