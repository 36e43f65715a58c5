//! Snapshots of log volumes in a pool: contents of one instant that nothing changes, names, the
//! space that they hold, and what is refused.

use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, SplitMix64};
use stripewise_pool::{Pool, PoolError, SnapshotPath, Volume, VolumeSpec};

use crate::kit::pool::*;

const BLOCK: u64 = 4096;

fn log_spec(name: &str, size_bytes: u64) -> VolumeSpec {
    VolumeSpec { log: Some(15), ..volume_spec(name, "raid5", Some(size_bytes)) }
}

pub fn path(text: &str) -> SnapshotPath {
    SnapshotPath::parse(text).expect("VOLUME@SNAPSHOT")
}

pub fn names(pool: &Pool) -> Vec<String> {
    pool.snapshots(None).unwrap().into_iter().map(|snapshot| snapshot.path.to_string()).collect()
}

/// Written of each volume: snapshots need space for what is overwritten.
const WRITTEN: u64 = 3 * MIB;

/// Overwrites random blocks.
async fn overwrite(volume: &Volume, seed: u64, blocks: u64) {
    let mut random = SplitMix64::new(seed);
    for _ in 0..blocks {
        let at = random.below(WRITTEN / BLOCK) * BLOCK;
        let data = Buffer::from_bytes(&contents(seed, at, BLOCK as usize));
        volume.write(at, data, false).await.expect("written");
    }
}

#[test]
fn snapshots_keep_what_was_acknowledged() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", 16 * MIB)).await.unwrap();
        for round in 1..=3 {
            fill(&volume, round, 0, WRITTEN).await;
            pool.create_snapshots(&[path(&format!("log@r{round}"))]).await.unwrap();
            overwrite(&volume, 9, 500).await;
        }
        pool.close().await.unwrap();
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert_eq!(names(&pool), ["log@r1", "log@r2", "log@r3"]);
        let volume = pool.volume("log").unwrap();
        overwrite(&volume, 10, 3000).await;
        for round in 1..=3 {
            let snapshot = pool.volume(&format!("log@r{round}")).unwrap();
            holds(&snapshot, round, 0, WRITTEN).await.unwrap();
            assert!(snapshot.is_protected());
            let data = Buffer::from_bytes(&[1; 4096]);
            let refused = [
                snapshot.write(0, data, true).await,
                snapshot.discard(0, BLOCK).await,
                snapshot.write_zeroes(0, BLOCK).await,
            ];
            assert!(refused.iter().all(|result| matches!(result, Err(ArrayError::ReadOnly))), "{refused:?}");
            snapshot.flush().await.unwrap();
        }
        let open = volume.info().unwrap().log.unwrap().open.unwrap();
        assert_eq!(open.snapshots, 3);
        assert!((MIB..=3 * WRITTEN).contains(&open.snapshot_bytes), "{open:?}");
        // A name that is used again is another snapshot.
        let old = pool.volume("log@r2").unwrap();
        pool.delete_snapshots(&[path("log@r2"), path("log@r1")]).await.unwrap();
        assert!(matches!(old.read(0, 4096).await, Err(ArrayError::Closed)));
        pool.create_snapshots(&[path("log@r2")]).await.unwrap();
        assert_ne!(pool.volume("log@r2").unwrap().id(), old.id());
        assert!(matches!(old.read(0, 4096).await, Err(ArrayError::Closed)));
        assert_eq!(names(&pool), ["log@r3", "log@r2"]);
        pool.close().await.unwrap();
    });
}

#[test]
fn several_snapshots_are_of_one_instant() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volumes = [
            pool.create_volume(log_spec("a", 2 * MIB)).await.unwrap(),
            pool.create_volume(log_spec("b", 2 * MIB)).await.unwrap(),
        ];
        // Each number goes to the one, then to the other.
        let (context, writers) = (&life.context, volumes.clone());
        let writing = context.spawn(async move {
            for number in 1..=4000u64 {
                for volume in &writers {
                    let bytes = number.to_le_bytes().repeat(512);
                    volume.write(0, Buffer::from_bytes(&bytes), false).await.unwrap();
                }
                stripewise_drive::yield_now().await;
            }
        });
        let mut seen = Vec::new();
        for turn in 0..20 {
            for _ in 0..turn * 7 {
                stripewise_drive::yield_now().await;
            }
            let pair = [path(&format!("a@{turn}")), path(&format!("b@{turn}"))];
            pool.create_snapshots(&pair).await.unwrap();
            let mut numbers = Vec::new();
            for path in pair {
                let read = pool.volume(&path.to_string()).unwrap().read(0, 4096).await.unwrap();
                numbers.push(u64::from_le_bytes(read.to_vec()[..8].try_into().unwrap()));
            }
            assert!(numbers[0] == numbers[1] || numbers[0] == numbers[1] + 1, "{turn}: {numbers:?}");
            seen.push(numbers[0]);
        }
        assert!(seen.is_sorted() && seen.last() > seen.first(), "{seen:?}");
        writing.await;
        pool.close().await.unwrap();
    });
}

#[test]
fn wrong_snapshots_are_refused_and_change_nothing() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        pool.create_volume(log_spec("log", 2 * MIB)).await.unwrap();
        pool.create_volume(volume_spec("plain", "raid5", Some(2 * MIB))).await.unwrap();
        pool.create_snapshots(&[path("log@one")]).await.unwrap();
        let create = async |names: &[&str]| {
            let paths: Vec<SnapshotPath> = names.iter().map(|name| path(name)).collect();
            pool.create_snapshots(&paths).await.unwrap_err()
        };
        let generation = pool.generation();
        assert!(matches!(create(&["log@two", "plain@two"]).await, PoolError::WithoutSnapshots { .. }));
        assert!(matches!(create(&["log@two", "log@one"]).await, PoolError::SnapshotExists { .. }));
        assert!(matches!(create(&["log@two", "log@two"]).await, PoolError::SnapshotExists { .. }));
        assert!(matches!(create(&["log@two", "none@two"]).await, PoolError::NoSuchVolume { .. }));
        for name in ["log@", "log@a b", "log@a/b", "log@a@b", "log@-a", &format!("log@{}", "x".repeat(64))] {
            assert!(matches!(create(&[name]).await, PoolError::BadName { what: "snapshot", .. }), "{name}");
        }
        let gone = pool.delete_snapshots(&[path("log@one"), path("log@two")]).await;
        assert!(matches!(gone, Err(PoolError::NoSuchSnapshot { .. })), "{gone:?}");
        let gone = pool.volume("log@two").map(drop);
        assert!(matches!(gone, Err(PoolError::NoSuchSnapshot { .. })), "{gone:?}");
        let kept = pool.delete_volume("log").await;
        assert!(matches!(kept, Err(PoolError::HasSnapshots { snapshots: 1, .. })), "{kept:?}");
        assert_eq!((pool.generation(), names(&pool)), (generation, vec!["log@one".to_owned()]));
        pool.delete_snapshots(&[path("log@one")]).await.unwrap();
        pool.delete_volume("log").await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn full_volume_says_that_snapshots_hold_space() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", 12 * MIB)).await.unwrap();
        fill(&volume, 1, 0, 12 * MIB).await;
        pool.create_snapshots(&[path("log@old")]).await.unwrap();
        let write_all = async |seed: u64| {
            for at in (0..12 * MIB).step_by(64 << 10) {
                volume.write(at, Buffer::from_bytes(&contents(seed, at, 64 << 10)), false).await?;
            }
            Ok::<(), ArrayError>(())
        };
        let refused = write_all(2).await.unwrap_err();
        assert!(refused.to_string().contains("a snapshot keeps"), "{refused}");
        assert!(matches!(refused, ArrayError::NoSpace(_)), "{refused:?}");
        let open = volume.info().unwrap().log.unwrap().open.unwrap();
        assert!(open.snapshot_bytes > MIB, "{open:?}");
        holds(&pool.volume("log@old").unwrap(), 1, 0, 12 * MIB).await.unwrap();
        // One more takes no space, and deletion is possible in a full volume.
        pool.create_snapshots(&[path("log@new")]).await.unwrap();
        pool.delete_snapshots(&[path("log@old"), path("log@new")]).await.unwrap();
        write_all(3).await.unwrap();
        holds(&volume, 3, 0, 12 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn rollback_gives_up_what_is_newer() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", 16 * MIB)).await.unwrap();
        for (seed, name) in [(1, "log@one"), (2, "log@two"), (3, "log@three")] {
            fill(&volume, seed, 0, WRITTEN).await;
            pool.create_snapshots(&[path(name)]).await.unwrap();
        }
        overwrite(&volume, 4, 100).await;
        let kept = pool.roll_back(&path("log@one"), false).await;
        assert!(
            matches!(&kept, Err(PoolError::NewerSnapshots { newer, .. }) if *newer == ["two", "three"]),
            "{kept:?}"
        );
        // To the newest one nothing else is in the way.
        pool.roll_back(&path("log@three"), false).await.unwrap();
        holds(&volume, 3, 0, WRITTEN).await.unwrap();
        overwrite(&volume, 4, 100).await;
        pool.roll_back(&path("log@one"), true).await.unwrap();
        assert_eq!(names(&pool), ["log@one"]);
        holds(&volume, 1, 0, WRITTEN).await.unwrap();
        fill(&volume, 5, 0, MIB).await;
        holds(&pool.volume("log@one").unwrap(), 1, 0, WRITTEN).await.unwrap();
        let gone = pool.roll_back(&path("log@two"), true).await;
        assert!(matches!(gone, Err(PoolError::NoSuchSnapshot { .. })), "{gone:?}");
        pool.close().await.unwrap();
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        let volume = pool.volume("log").unwrap();
        holds(&volume, 5, 0, MIB).await.unwrap();
        holds(&volume, 1, MIB, WRITTEN - MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn changes_are_the_ranges_that_differ() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", 4 * MIB)).await.unwrap();
        fill(&volume, 1, 0, 2 * MIB).await;
        pool.create_snapshots(&[path("log@one")]).await.unwrap();
        fill(&volume, 2, MIB, 64 << 10).await;
        volume.discard(0, 8192).await.unwrap();
        pool.create_snapshots(&[path("log@two")]).await.unwrap();
        fill(&volume, 3, 3 * MIB, 4096).await;
        let ranges = async |newer: Option<&str>| {
            let changes = pool.changes(&path("log@one"), newer, 0).await.unwrap();
            assert_eq!(changes.next_bytes, None);
            let range = |change: &stripewise_pool::LogChange| {
                (change.offset_bytes, change.length_bytes, change.has_data)
            };
            changes.ranges.iter().map(range).collect::<Vec<_>>()
        };
        let of_two = [(0, 8192, false), (MIB, 64 << 10, true)];
        assert_eq!(ranges(Some("two")).await, of_two);
        assert_eq!(ranges(None).await, [of_two[0], of_two[1], (3 * MIB, 4096, true)]);
        let gone = pool.changes(&path("log@one"), Some("three"), 0).await;
        assert!(matches!(gone, Err(PoolError::NoSuchSnapshot { .. })), "{gone:?}");
        pool.close().await.unwrap();
    });
}
