//! A destroyed pool is refused, and comes back as it was until its drives are used again. Power is
//! cut at writes of the destruction and of the way back.

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Drive, MemoryDrive};
use stripewise_pool::{Host, OfDestroyed, OpenMode, Pool, PoolError, PoolOptions, PoolState, Role, inspect};

const SIZE: u64 = 6 * MIB;
/// Number of cuts per operation, spread over all its writes.
const CUTS: u64 = 24;

async fn open_as(
    life: &Life,
    drives: &[Rc<dyn Drive>],
    mode: OpenMode,
    destroyed: OfDestroyed,
) -> Result<Pool, PoolError> {
    let options = PoolOptions { destroyed, host: Some(Host::new(1, "alpha")), ..options(7) };
    Pool::open(&life.context, &life.buffers, drives.to_vec(), mode, options).await
}

async fn bring_back(life: &Life, drives: &[Rc<dyn Drive>]) -> Result<Pool, PoolError> {
    open_as(life, drives, OpenMode::ReadWrite, OfDestroyed::BringBack).await
}

async fn open(life: &Life, drives: &[Rc<dyn Drive>]) -> Result<Pool, PoolError> {
    open_as(life, drives, OpenMode::ReadWrite, OfDestroyed::Refuse).await
}

/// Four drives with a full volume of RAID 5.
fn in_use() -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, 16);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid5", Some(SIZE)), 1).await;
        volume.flush().await.unwrap();
        pool.close().await.unwrap();
    });
    images
}

/// As [`in_use`], and destroyed.
fn destroyed() -> Vec<Rc<MemoryDrive>> {
    let images = in_use();
    let life = Life::new();
    life.run(async { open(&life, &as_drives(&images)).await.unwrap().destroy().await.unwrap() });
    images
}

async fn is_whole(pool: &Pool, what: &str) {
    let volume = pool.volume("data").unwrap_or_else(|error| panic!("{what}: {error}"));
    holds(&volume, 1, 0, SIZE).await.unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn a_destroyed_pool_is_refused_and_comes_back_whole() {
    let images = destroyed();
    let life = Life::new();
    life.run(async {
        let mut drives = as_drives(&images);
        drives.rotate_left(1);
        for drive in &drives {
            assert!(inspect(&**drive).await.unwrap().unwrap().destroyed_unix_s.is_some());
        }
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            let refused = open_as(&life, &drives, mode, OfDestroyed::Refuse).await.err().unwrap();
            assert!(matches!(&refused, PoolError::Destroyed { pool } if pool == "tank"), "{refused}");
        }
        let before: Vec<Vec<u8>> = images.iter().map(|drive| image(drive)).collect();
        let seen = open_as(&life, &drives, OpenMode::ReadOnly, OfDestroyed::BringBack).await.unwrap();
        assert_eq!(seen.status().state, PoolState::Online);
        // Another host may bring it back: the destruction released it.
        assert!(seen.host().unwrap().exported);
        seen.close().await.unwrap();
        assert!(images.iter().map(|drive| image(drive)).eq(before), "looking changes nothing");
        let pool = bring_back(&life, &drives).await.unwrap();
        is_whole(&pool, "back").await;
        assert_eq!(pool.status().state, PoolState::Online);
        pool.close().await.unwrap();
        let pool = open(&life, &drives).await.unwrap();
        is_whole(&pool, "opened again").await;
        pool.close().await.unwrap();
    });
}

/// Cuts power at writes of a step on the drives `start`, and hands each result to `judge`.
fn cut_at_writes(
    name: &str,
    start: &[Rc<MemoryDrive>],
    step: impl AsyncFn(&Life, &[Rc<dyn Drive>]) -> Result<(), PoolError>,
    judge: impl AsyncFn(&Life, &[Rc<dyn Drive>], &str),
) {
    let run = |at: u64| {
        let cut = Cut::over(start, at);
        let life = Life::new();
        let drives = cut.drives(&life.context);
        cut.arm(at);
        let result = life.run(step(&life, &drives));
        (result, cut.writes(), cut.images())
    };
    let (result, total, _) = run(u64::MAX);
    result.unwrap_or_else(|error| panic!("{name} works without a cut: {error}"));
    for at in (1..=total).step_by((total / CUTS).max(1) as usize) {
        let (_, _, images) = run(at);
        let life = Life::new();
        life.run(judge(&life, &as_drives(&images), &format!("{name} cut at write {at} of {total}")));
    }
}

#[test]
fn interrupted_destruction_can_go_on_or_be_undone() {
    cut_at_writes(
        "destroying",
        &in_use(),
        async |life, drives| open(life, drives).await?.destroy().await,
        async |life, drives, what| {
            // The pool is one or the other, whichever drives were written last.
            let pool = match open(life, drives).await {
                Err(PoolError::Destroyed { .. }) => bring_back(life, drives).await,
                other => other,
            };
            let pool = pool.unwrap_or_else(|error| panic!("{what}: {error}"));
            is_whole(&pool, what).await;
            pool.destroy().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            // Begun again, it ends on every drive.
            let again = open_as(life, drives, OpenMode::ReadWrite, OfDestroyed::Keep).await;
            again.unwrap().destroy().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            for drive in drives {
                assert!(inspect(&**drive).await.unwrap().unwrap().destroyed_unix_s.is_some(), "{what}");
            }
        },
    );
}

#[test]
fn interrupted_way_back_can_be_repeated() {
    cut_at_writes(
        "bringing back",
        &destroyed(),
        async |life, drives| bring_back(life, drives).await?.close().await,
        async |life, drives, what| {
            let pool = bring_back(life, drives).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            is_whole(&pool, what).await;
            assert_eq!(pool.status().state, PoolState::Online, "{what}");
            pool.close().await.unwrap();
            is_whole(&open(life, drives).await.unwrap(), what).await;
        },
    );
}

#[test]
fn drives_of_a_destroyed_pool_are_free() {
    let images = destroyed();
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let spec = spec("other", &drives[..1], &[]);
        let other = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        // Without that drive the pool is degraded, and can still be brought back.
        let pool = bring_back(&life, &drives[1..]).await.unwrap();
        is_whole(&pool, "degraded").await;
        assert_eq!(pool.status().state, PoolState::Degraded);
        pool.destroy().await.unwrap();
        other.add(drives[1].clone(), Role::Data, false).await.unwrap();
        other.close().await.unwrap();
        let refused = bring_back(&life, &drives[2..]).await.err().unwrap();
        assert!(matches!(refused, PoolError::TooFewDrives { .. }), "{refused}");
        assert!(matches!(open(&life, &drives[2..]).await, Err(PoolError::Destroyed { .. })));
    });
}

#[test]
fn the_mark_of_a_drive_that_was_away_does_not_count() {
    let images = destroyed();
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        bring_back(&life, &drives[1..]).await.unwrap().close().await.unwrap();
        let pool = open(&life, &drives).await.unwrap();
        is_whole(&pool, "with the drive that was away").await;
        pool.close().await.unwrap();
    });
}

#[test]
fn a_failed_pool_can_be_destroyed_and_come_back() {
    let images = in_use();
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = open(&life, &drives[..2]).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Failed);
        pool.destroy().await.unwrap();
        assert!(matches!(open(&life, &drives[..2]).await, Err(PoolError::Destroyed { .. })));
        let pool = bring_back(&life, &drives).await.unwrap();
        is_whole(&pool, "with all drives").await;
        pool.close().await.unwrap();
    });
}
