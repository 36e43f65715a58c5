//! Drives that come back after more changes of who takes part than a pool remembers, and halves of
//! a pool that went on without each other for as long.
//!
//! Invariant I22 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::MemoryDrive;
use stripewise_pool::{JobKind, Pool, PoolError, PoolState, VolumeSpec};

const SIZE: u64 = 2 * MIB;
/// More than a pool keeps branches, two for each.
const MANY: usize = 80;

/// A mirror of three, full of what seed 1 gives.
fn mirror() -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(3, 16);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let mut spec = VolumeSpec { checksums: Some(false), ..volume_spec("data", "raid1", Some(SIZE)) };
        spec.layout.columns = Some(3);
        full_volume(&pool, spec, 1).await;
        pool.close().await.unwrap();
    });
    images
}

async fn flap(pool: &Pool, drive2: &Rc<MemoryDrive>, times: usize) {
    let id = id_of(&pool.status(), "drive2");
    for _ in 0..times {
        pool.offline(id).await.unwrap();
        pool.online(id, Some(drive2.clone())).await.unwrap();
    }
    pool.wait(JobKind::Rebuild).await.unwrap();
}

/// Some of the drives are used without the others.
fn used(images: &[Rc<MemoryDrive>], seed: u64, flaps: usize) {
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(images)).await.unwrap();
        fill(&pool.volume("data").unwrap(), seed, 0, SIZE).await;
        if flaps > 0 {
            flap(&pool, &images[1], flaps).await;
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn two_halves_are_refused_after_any_number_of_changes() {
    for flaps in [1, MANY] {
        let images = mirror();
        used(&images[1..], 2, flaps);
        used(&images[..1], 3, 0);
        let life = Life::new();
        life.run(async {
            let refused = life.open(&as_drives(&images)).await.err().expect("refused");
            assert!(matches!(refused, PoolError::Diverged { .. }), "{flaps}: {refused}");
            // Each half is as it was left.
            for (half, seed) in [(&images[..1], 3), (&images[1..], 2)] {
                let pool = life.open(&as_drives(half)).await.unwrap();
                holds(&pool.volume("data").unwrap(), seed, 0, SIZE).await.unwrap();
                pool.close().await.unwrap();
            }
        });
    }
}

#[test]
fn a_drive_away_for_very_long_catches_up() {
    let images = mirror();
    used(&images[1..], 2, MANY);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert_eq!(state_of(&pool.status(), "drive0"), "behind");
        pool.online(id_of(&pool.status(), "drive0"), None).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online);
        holds(&pool.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
        pool.close().await.unwrap();
        let alone = life.open(&as_drives(&images[..1])).await.unwrap();
        holds(&alone.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
        alone.close().await.unwrap();
    });
}

#[test]
fn a_drive_replaced_long_ago_does_not_stop_a_pool() {
    let images = mirror();
    let new = memory_drives(4, 16).pop().unwrap();
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images[1..])).await.unwrap();
        let gone = id_of(&pool.status(), "drive0");
        pool.replace(gone, new.clone(), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        flap(&pool, &images[2], MANY).await;
        fill(&pool.volume("data").unwrap(), 2, 0, SIZE).await;
        pool.close().await.unwrap();
        let all = [&images[..], &[new]].concat();
        let pool = life.open(&as_drives(&all)).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online, "{:?}", pool.notices());
        holds(&pool.volume("data").unwrap(), 2, 0, SIZE).await.unwrap();
        pool.close().await.unwrap();
    });
}
