//! Clones of snapshots in a pool: volumes of their own that share a log, what cannot be deleted
//! while they are there, and power cuts while they are made and deleted.

use std::rc::Rc;

use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, MemoryDrive};
use stripewise_pool::{Pin, Pool, PoolError, SnapshotSchedule, StreamError, VolumeState};

use crate::io::snapshots::{names, path};
use crate::io::streams::{is_same, log_spec, received, sent};
use crate::kit::pool::*;

const SIZE: u64 = MIB;

/// A pool with `v`, whose snapshot `v@one` has seed 1, and which has seed 2.
fn with_snapshot() -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("v", 8 * MIB)).await.unwrap();
        fill(&volume, 1, 0, SIZE).await;
        pool.create_snapshots(&[path("v@one")]).await.unwrap();
        fill(&volume, 2, 0, SIZE).await;
        pool.close().await.unwrap();
    });
    images
}

async fn has(pool: &Pool, name: &str, seed: u64, what: &str) {
    let volume = pool.volume(name).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
    holds(&volume, seed, 0, SIZE).await.unwrap_or_else(|why| panic!("{what}: {name}: {why}"));
}

fn volume_names(pool: &Pool) -> Vec<String> {
    pool.volumes().into_iter().map(|volume| volume.name).collect()
}

#[test]
fn clones_are_volumes_of_their_own() {
    let images = with_snapshot();
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        let clone = pool.clone_snapshot(&path("v@one"), "c").await.unwrap();
        has(&pool, "c", 1, "new").await;
        assert_eq!((clone.capacity_bytes(), volume_names(&pool)), (8 * MIB, vec!["v".into(), "c".into()]));
        fill(&clone, 3, 0, SIZE).await;
        pool.create_snapshots(&[path("c@two"), path("v@two")]).await.unwrap();
        assert_eq!(names(&pool), ["v@one", "v@two", "c@two"]);
        pool.clone_snapshot(&path("c@two"), "d").await.unwrap();
        fill(&pool.volume("d").unwrap(), 4, 0, SIZE).await;
        fill(&clone, 5, 0, SIZE).await;
        pool.close().await.unwrap();
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        for (name, seed) in [("v", 2), ("v@one", 1), ("c", 5), ("c@two", 3), ("d", 4)] {
            has(&pool, name, seed, "reopened").await;
        }
        let info = |name: &str| pool.volumes().into_iter().find(|volume| volume.name == name).unwrap();
        assert_eq!(info("d").clone_of, Some(path("c@two")));
        assert_eq!((info("d").allocated_bytes, info("d").state), (0, VolumeState::Online));
        assert_ne!(info("d").id, info("c").id);
        pool.roll_back(&path("c@two"), false).await.unwrap();
        has(&pool, "c", 3, "rolled back").await;
        has(&pool, "v", 2, "beside").await;
        // A stream of a clone is whole.
        let whole = sent(&pool, "c@two", None).await;
        received(&pool, "copy", &whole).await.unwrap();
        assert!(is_same(&pool, "c@two", &pool, "copy").await);
        let old = pool.volume("d").unwrap();
        pool.delete_volume("d").await.unwrap();
        assert!(matches!(old.read(0, 4096).await, Err(ArrayError::Closed)));
        let data = Buffer::from_bytes(&[1; 4096]);
        assert!(matches!(old.write(0, data, false).await, Err(ArrayError::Closed)));
        pool.delete_snapshots(&[path("c@two")]).await.unwrap();
        pool.delete_volume("c").await.unwrap();
        pool.delete_snapshots(&[path("v@one"), path("v@two")]).await.unwrap();
        pool.delete_volume("v").await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn the_origin_of_a_clone_stays() {
    let images = with_snapshot();
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        pool.create_snapshots(&[path("v@two")]).await.unwrap();
        pool.clone_snapshot(&path("v@two"), "c").await.unwrap();
        let stream = sent(&pool, "v@two", Some("one")).await;
        let generation = pool.generation();
        let has_clones = |result: Result<(), PoolError>| {
            assert!(
                matches!(&result, Err(PoolError::HasClones { clones, .. }) if *clones == ["c"]),
                "{result:?}"
            );
        };
        has_clones(pool.delete_snapshots(&[path("v@one"), path("v@two")]).await);
        has_clones(pool.roll_back(&path("v@one"), true).await);
        let taken = pool.clone_snapshot(&path("v@two"), "c").await.map(drop);
        assert!(matches!(taken, Err(PoolError::VolumeExists { .. })), "{taken:?}");
        let taken = pool.create_volume(log_spec("c", MIB)).await.map(drop);
        assert!(matches!(taken, Err(PoolError::VolumeExists { .. })), "{taken:?}");
        let missing = pool.clone_snapshot(&path("v@none"), "d").await.map(drop);
        assert!(matches!(missing, Err(PoolError::NoSuchSnapshot { .. })), "{missing:?}");
        let bad = pool.clone_snapshot(&path("v@two"), "a b").await.map(drop);
        assert!(matches!(bad, Err(PoolError::BadName { .. })), "{bad:?}");
        let resized = pool.resize_volume("c", 4 * MIB).await.map(drop);
        assert!(matches!(resized, Err(PoolError::LogVolume { .. })), "{resized:?}");
        let pinned = pool.set_pin("c", Pin::Fast).await.map(drop);
        assert!(matches!(pinned, Err(PoolError::LogVolume { .. })), "{pinned:?}");
        let converted = pool.convert("c", Some("raid6".parse().unwrap()), None).await.map(drop);
        assert!(matches!(converted, Err(PoolError::LogVolume { .. })), "{converted:?}");
        let cancelled = pool.cancel_conversion("c").await.map(drop);
        assert!(matches!(cancelled, Err(PoolError::Job(_))), "{cancelled:?}");
        let into = received(&pool, "c", &stream).await.map(drop);
        assert!(matches!(into, Err(PoolError::Stream(StreamError::IntoClone { .. }))), "{into:?}");
        let schedule = SnapshotSchedule { hourly: 1, ..Default::default() };
        let refused = pool.set_snapshot_schedule("c", schedule).await;
        assert!(matches!(refused, Err(PoolError::BadSetting(_))), "{refused:?}");
        assert_eq!(pool.generation(), generation);
        pool.delete_snapshots(&[path("v@one")]).await.unwrap();
        let kept = pool.delete_volume("v").await;
        assert!(matches!(kept, Err(PoolError::HasSnapshots { .. })), "{kept:?}");
        pool.close().await.unwrap();
    });
}

#[test]
fn a_failed_log_keeps_what_clones_rest_on() {
    let images = memory_drives(5, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        pool.create_volume(log_spec("v", 4 * MIB)).await.unwrap();
        pool.create_snapshots(&[path("v@one")]).await.unwrap();
        pool.clone_snapshot(&path("v@one"), "c").await.unwrap();
        pool.create_snapshots(&[path("c@two")]).await.unwrap();
        pool.clone_snapshot(&path("c@two"), "d").await.unwrap();
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images[..3])).await.unwrap();
        for volume in pool.volumes() {
            assert!(volume.state == VolumeState::Failed && volume.failure.is_some(), "{volume:?}");
        }
        for (name, carried) in [("v", &["c", "d"][..]), ("c", &["d"])] {
            let kept = pool.delete_volume(name).await;
            let is_kept = matches!(&kept, Err(PoolError::HasClones { clones, .. }) if *clones == carried);
            assert!(is_kept, "{name}: {kept:?}");
        }
        for name in ["d", "c", "v"] {
            pool.delete_volume(name).await.unwrap();
        }
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert!(pool.volumes().is_empty());
        pool.close().await.unwrap();
    });
}

/// Cuts power at a write of making a clone and deleting another; the steps that were done.
fn cut_at(images: &[Rc<MemoryDrive>], at: u64) -> (bool, bool) {
    let cut = Cut::over(images, at);
    let life = Life::new();
    let done = life.run(async {
        let pool = life.open(&cut.drives(&life.context)).await.unwrap();
        cut.arm(at);
        let made = pool.clone_snapshot(&path("v@one"), "new").await.is_ok();
        (made, pool.delete_volume("old").await.is_ok())
    });
    drop(life);
    let what = format!("cut at write {at}");
    let (life, left) = (Life::new(), cut.images());
    life.run(async {
        let pool = life.open(&as_drives(&left)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let there = volume_names(&pool);
        assert!(!done.0 || there.contains(&"new".to_owned()), "{what}: {there:?}");
        assert!(!done.1 || !there.contains(&"old".to_owned()), "{what}: {there:?}");
        for (name, seed) in [("new", 1), ("old", 3), ("v", 2), ("v@one", 1)] {
            if name == "v@one" || there.contains(&name.to_owned()) {
                has(&pool, name, seed, &what).await;
            }
        }
        // No clone is left that the record does not name: its blocks would stay for good.
        for name in ["new", "old"] {
            if there.contains(&name.to_owned()) {
                pool.delete_volume(name).await.unwrap();
            }
        }
        pool.delete_snapshots(&[path("v@one")]).await.unwrap();
        let volume = pool.volume("v").unwrap();
        for seed in 10..16 {
            fill(&volume, seed, 0, 8 * MIB).await;
        }
        pool.close().await.unwrap();
    });
    done
}

#[test]
fn clones_survive_a_cut_at_each_write() {
    let images = with_snapshot();
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        fill(&pool.clone_snapshot(&path("v@one"), "old").await.unwrap(), 3, 0, SIZE).await;
        pool.close().await.unwrap();
    });
    drop(life);
    let mut outcomes = Vec::new();
    loop {
        outcomes.push(cut_at(&images, outcomes.len() as u64 + 1));
        if outcomes.last() == Some(&(true, true)) {
            break;
        }
    }
    for outcome in [(false, false), (true, false)] {
        let count = outcomes.iter().filter(|done| **done == outcome).count();
        assert!(count >= 4, "{outcome:?} of {outcomes:?}");
    }
}
