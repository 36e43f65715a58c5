//! A member is copied while the pool is in use, and the copy put back later: what was written in
//! between is not given up for what the copy holds.
//!
//! Invariant I24 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::MemoryDrive;
use stripewise_pool::{JobKind, PoolState, VolumeSpec};

const SIZE: u64 = 4 * MIB;
const SECOND_NS: u64 = 1_000_000_000;

/// End of the process that has the pool open.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Closed,
    Killed,
}

fn spec(layout: &str, write_back: bool) -> VolumeSpec {
    VolumeSpec {
        checksums: Some(false),
        write_back: Some(write_back),
        ..volume_spec("data", layout, Some(SIZE))
    }
}

/// Drives of which the first is a copy made in the session in which seed 2 was written over seed 1.
/// `idle_s`: how long nothing is asked of the pool afterwards.
fn with_a_copy(layout: &str, write_back: bool, end: End, idle_s: u64) -> Vec<Rc<MemoryDrive>> {
    let mut images = memory_drives(if layout == "raid1" { 2 } else { 4 }, 32);
    let life = Life::new();
    let copy = life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives, &[]).await.unwrap();
        let volume = full_volume(&pool, spec(layout, write_back), 1).await;
        volume.flush().await.unwrap();
        life.context.sleep_ns(60 * SECOND_NS).await;
        let copy = images[0].duplicate("drive0");
        fill(&volume, 2, 0, SIZE).await;
        volume.flush().await.unwrap();
        life.context.sleep_ns(idle_s * SECOND_NS).await;
        if end == End::Closed {
            pool.close().await.unwrap();
        }
        copy
    });
    drop(life);
    images[0] = copy;
    images
}

#[test]
fn a_copy_made_in_use_is_never_believed() {
    for layout in ["raid1", "raid5", "raid6", "raid10"] {
        for (write_back, end, idle_s) in
            [(false, End::Killed, 6), (true, End::Killed, 6), (false, End::Closed, 0), (true, End::Closed, 0)]
        {
            let images = with_a_copy(layout, write_back, end, idle_s);
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&images)).await.unwrap();
                let what = format!("{layout}, write-back {write_back}, {end:?}");
                assert_eq!(state_of(&pool.status(), "drive0"), "stale", "{what}");
                let volume = pool.volume("data").unwrap();
                holds(&volume, 2, 0, SIZE).await.expect(&what);
                pool.replace(id_of(&pool.status(), "drive0"), images[0].clone(), false).await.unwrap();
                pool.wait(JobKind::Rebuild).await.unwrap();
                assert_eq!(pool.status().state, PoolState::Online, "{what}");
                holds(&volume, 2, 0, SIZE).await.expect(&what);
                pool.close().await.unwrap();
            });
        }
    }
}

#[test]
fn a_pool_that_rests_is_not_written_to() {
    let images = memory_drives(2, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = full_volume(&pool, spec("raid1", false), 1).await;
        volume.flush().await.unwrap();
        life.context.sleep_ns(60 * SECOND_NS).await;
        let generation = pool.generation();
        life.context.sleep_ns(3600 * SECOND_NS).await;
        holds(&volume, 1, 0, SIZE).await.unwrap();
        life.context.sleep_ns(3600 * SECOND_NS).await;
        assert_eq!(pool.generation(), generation, "no marks where nothing is written");
        pool.close().await.unwrap();
        drop((pool, volume));
        life.context.sleep_ns(60 * SECOND_NS).await;
    });
    assert_eq!(life.executor.tasks_alive(), 0, "nothing goes on for ever");
}

#[test]
fn a_cut_in_the_middle_of_marks_makes_no_copy() {
    let mut last = 0;
    for at in 1.. {
        let images = memory_drives(3, 32);
        let life = Life::new();
        let cut = Cut::over(&images, at);
        let cut_and_writes = cut.clone();
        life.run(async {
            let pool = life.create(&cut.drives(&life.context), &[]).await.unwrap();
            let volume = full_volume(&pool, spec("raid5", false), 1).await;
            volume.flush().await.unwrap();
            cut_and_writes.arm(at);
            life.context.sleep_ns(20 * SECOND_NS).await;
        });
        let left = cut.images();
        drop(life);
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&left)).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Online, "write {at}: {:?}", pool.notices());
            holds(&pool.volume("data").unwrap(), 1, 0, SIZE).await.unwrap();
            pool.close().await.unwrap();
        });
        if cut.writes() < at {
            break;
        }
        last = at;
    }
    assert!(last >= 12, "two marks at both ends of three drives, not {last} writes");
}
