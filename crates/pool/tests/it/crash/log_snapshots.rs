//! Power is cut at each write of deleting and taking snapshots of two volumes: each snapshot is
//! there with exactly its contents, or not at all, and what was acknowledged is so.
//!
//! Invariant I39 (`docs/internals/invariants.md`).

use std::rc::Rc;

use stripewise_drive::{Drive, MemoryDrive};
use stripewise_pool::{Pool, VolumeSpec};

use crate::io::snapshots::{names, path};
use crate::kit::pool::*;

/// Written of each volume: snapshots need space for what is overwritten.
const SIZE: u64 = MIB;
/// Written last; only the snapshot flushes it.
const LAST: u64 = 64 << 10;

async fn fill_both(pool: &Pool, seed: u64, length: u64) {
    for name in ["a", "b"] {
        fill(&pool.volume(name).unwrap(), seed, 0, length).await;
    }
}

/// Volumes full of seed 2, with snapshots of seed 1.
fn before() -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        for name in ["a", "b"] {
            let spec = VolumeSpec { log: Some(15), ..volume_spec(name, "raid5", Some(6 * MIB)) };
            pool.create_volume(spec).await.unwrap();
        }
        fill_both(&pool, 1, SIZE).await;
        pool.create_snapshots(&[path("a@old"), path("b@old")]).await.unwrap();
        fill_both(&pool, 2, SIZE).await;
        pool.close().await.unwrap();
    });
    images
}

/// Contents of a volume, or a snapshot, that was written as `before` did, and then as said.
async fn judge(pool: &Pool, name: &str, has_last: bool, what: &str) {
    let volume = pool.volume(name).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
    let last = if has_last { 3 } else { 2 };
    for (seed, start, length) in [(last, 0, LAST), (2, LAST, SIZE - LAST)] {
        holds(&volume, seed, start, length).await.unwrap_or_else(|why| panic!("{what}: {name}: {why}"));
    }
}

/// Cuts power at a write; returns the steps that were done: deletion, snapshots.
fn cut_at(images: &[Rc<MemoryDrive>], at: u64, loses_a_drive: bool) -> (bool, bool) {
    let cut = Cut::over(images, at);
    let life = Life::new();
    let done = life.run(async {
        let pool = life.open(&cut.drives(&life.context)).await.unwrap();
        fill_both(&pool, 3, LAST).await;
        cut.arm(at);
        let deleted = pool.delete_snapshots(&[path("a@old"), path("b@old")]).await.is_ok();
        let created = pool.create_snapshots(&[path("a@new"), path("b@new")]).await.is_ok();
        (deleted, created)
    });
    drop(life);
    let what = format!("cut at write {at}");
    let mut left = cut.images();
    if loses_a_drive {
        left.remove(at as usize % left.len());
    }
    let drives: Vec<Rc<dyn Drive>> = as_drives(&left);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&drives).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let there = names(&pool);
        for volume in ["a", "b"] {
            let (old, new) = (format!("{volume}@old"), format!("{volume}@new"));
            assert!(!done.0 || !there.contains(&old), "{what}: {old} is back");
            assert!(!done.1 || there.contains(&new), "{what}: {new} is lost");
            if there.contains(&old) {
                holds(&pool.volume(&old).unwrap(), 1, 0, SIZE)
                    .await
                    .unwrap_or_else(|why| panic!("{what}: {why}"));
            }
            if there.contains(&new) {
                judge(&pool, &new, true, &what).await;
                // It was flushed for the snapshot.
                judge(&pool, volume, true, &what).await;
            }
            holds(&pool.volume(volume).unwrap(), 2, LAST, SIZE - LAST).await.unwrap();
        }
        pool.close().await.unwrap();
    });
    done
}

/// Cuts power at a write of a rollback that deletes a newer snapshot; true if it was done.
fn rollback_cut_at(images: &[Rc<MemoryDrive>], at: u64) -> bool {
    let cut = Cut::over(images, at);
    let life = Life::new();
    let done = life.run(async {
        let pool = life.open(&cut.drives(&life.context)).await.unwrap();
        pool.create_snapshots(&[path("a@new")]).await.unwrap();
        cut.arm(at);
        pool.roll_back(&path("a@old"), true).await.is_ok()
    });
    drop(life);
    let what = format!("cut at write {at}");
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&cut.images())).await.unwrap();
        let is_back = !names(&pool).contains(&"a@new".to_owned());
        assert!(is_back || !done, "{what}: an acknowledged rollback is lost");
        let seed = if is_back { 1 } else { 2 };
        for (name, seed) in [("a", seed), ("a@old", 1), ("b", 2), ("b@old", 1)] {
            let volume = pool.volume(name).unwrap();
            holds(&volume, seed, 0, SIZE).await.unwrap_or_else(|why| panic!("{what}: {name}: {why}"));
        }
        pool.close().await.unwrap();
    });
    done
}

#[test]
fn rollbacks_cut_at_a_write_are_all_or_nothing() {
    let images = before();
    let mut cuts = 1;
    while !rollback_cut_at(&images, cuts) {
        cuts += 1;
    }
    assert!(cuts >= 4, "{cuts}");
}

fn cut_everywhere(loses_a_drive: bool) {
    let images = before();
    let mut outcomes = Vec::new();
    loop {
        let done = cut_at(&images, outcomes.len() as u64 + 1, loses_a_drive);
        outcomes.push(done);
        if done == (true, true) {
            break;
        }
    }
    for outcome in [(false, false), (true, false)] {
        let count = outcomes.iter().filter(|done| **done == outcome).count();
        assert!(count >= 4, "{outcome:?} of {outcomes:?}");
    }
}

test_cases! {
    snapshots_survive_a_cut_at_each_write = cut_everywhere {
        all_drives_left: false,
        a_drive_lost_too: true,
    }
}
