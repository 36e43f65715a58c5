//! Automatic snapshots in virtual time: taken once in each period, kept by number, deleted when
//! they are too many and nothing has them open.

use stripewise_drive::FaultyDrive;
use stripewise_pool::{Notice, Pool, PoolError, SnapshotSchedule};

use crate::io::snapshots::{names, path};
use crate::io::streams::log_spec;
use crate::kit::pool::*;

const HOUR_NS: u64 = 3600 * 1_000_000_000;

fn of_kind(pool: &Pool, volume: &str, kind: &str) -> Vec<String> {
    let is_of_kind = |name: &String| name.starts_with(&format!("{volume}@")) && name.ends_with(kind);
    names(pool).into_iter().filter(is_of_kind).collect()
}

#[test]
fn schedules_keep_the_newest_snapshots_of_each_kind() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    let last = life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        for name in ["a", "b"] {
            fill(&pool.create_volume(log_spec(name, 2 * MIB)).await.unwrap(), 1, 0, MIB).await;
        }
        pool.create_snapshots(&[path("a@mine"), path("a@2020-01-01.hourly")]).await.unwrap();
        pool.start_jobs();
        let schedule = SnapshotSchedule { hourly: 3, daily: 2, weekly: 1 };
        pool.set_snapshot_schedule("a", schedule).await.unwrap();
        pool.set_snapshot_schedule("b", SnapshotSchedule { hourly: 2, ..Default::default() }).await.unwrap();
        life.context.sleep_ns(HOUR_NS / 10).await;
        for kind in [".hourly", ".daily", ".weekly"] {
            let expected = if kind == ".hourly" { 2 } else { 1 };
            assert_eq!(of_kind(&pool, "a", kind).len(), expected, "{:?}", names(&pool));
        }
        // For ten days: what was taken is of the last hours, days and weeks.
        life.context.sleep_ns(240 * HOUR_NS).await;
        let all = names(&pool);
        assert!(
            all.contains(&"a@mine".to_owned()) && all.contains(&"a@2020-01-01.hourly".to_owned()),
            "{all:?}"
        );
        assert_eq!([".daily", ".weekly"].map(|kind| of_kind(&pool, "a", kind).len()), [2, 1], "{all:?}");
        // One of the hourly names was taken by a person, and is of another form.
        assert_eq!(of_kind(&pool, "a", ".hourly").len(), 4, "{all:?}");
        assert_eq!((of_kind(&pool, "b", ".hourly").len(), all.len()), (2, 10), "{all:?}");
        let mut sorted = of_kind(&pool, "b", ".hourly");
        sorted.sort();
        assert_eq!(sorted, of_kind(&pool, "b", ".hourly"));
        assert_eq!(pool.volume("a").unwrap().info().unwrap().schedule, Some(schedule));
        pool.close().await.unwrap();
        all
    });
    drop(life);
    // The clock is back at the beginning, and everything that is kept is later.
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        pool.start_jobs();
        life.context.sleep_ns(2 * HOUR_NS).await;
        assert_eq!(names(&pool), last);
        // Without a schedule, or a number for a kind, what there is stays.
        pool.set_snapshot_schedule("b", SnapshotSchedule::default()).await.unwrap();
        let daily = SnapshotSchedule { daily: 2, ..Default::default() };
        pool.set_snapshot_schedule("a", daily).await.unwrap();
        life.context.sleep_ns(300 * HOUR_NS).await;
        assert_eq!([".hourly", ".weekly"].map(|kind| of_kind(&pool, "a", kind).len()), [4, 1]);
        let of_b: Vec<String> = last.iter().filter(|name| name.starts_with("b@")).cloned().collect();
        assert_eq!(of_kind(&pool, "b", ".hourly"), of_b);
        assert_eq!(pool.volume("b").unwrap().info().unwrap().schedule, None);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_restart_takes_no_second_snapshot_of_an_hour() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    let first = life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        pool.create_volume(log_spec("v", 2 * MIB)).await.unwrap();
        pool.start_jobs();
        pool.set_snapshot_schedule("v", SnapshotSchedule { hourly: 5, ..Default::default() }).await.unwrap();
        life.context.sleep_ns(HOUR_NS / 20).await;
        let first = names(&pool);
        pool.close().await.unwrap();
        first
    });
    drop(life);
    assert_eq!(first.len(), 1);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        pool.start_jobs();
        life.context.sleep_ns(HOUR_NS / 20).await;
        assert_eq!(names(&pool), first);
        life.context.sleep_ns(HOUR_NS).await;
        assert_eq!(names(&pool).len(), 2);
        pool.close().await.unwrap();
    });
}

#[test]
fn one_snapshot_is_taken_after_a_downtime() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        pool.create_volume(log_spec("v", 2 * MIB)).await.unwrap();
        pool.start_jobs();
        pool.set_snapshot_schedule("v", SnapshotSchedule { hourly: 9, daily: 9, weekly: 0 }).await.unwrap();
        life.context.sleep_ns(HOUR_NS / 20).await;
        pool.close().await.unwrap();
        life.context.sleep_ns(50 * HOUR_NS).await;
        let pool = life.open(&as_drives(&images)).await.unwrap();
        pool.start_jobs();
        life.context.sleep_ns(HOUR_NS / 20).await;
        let taken = [".hourly", ".daily"].map(|kind| of_kind(&pool, "v", kind).len());
        assert_eq!(taken, [2, 2], "{:?}", names(&pool));
        pool.close().await.unwrap();
    });
}

#[test]
fn snapshots_that_cannot_be_taken_are_noted_once() {
    let images = memory_drives(5, 64);
    let life = Life::new();
    life.run(async {
        let drives: Vec<_> =
            images.iter().map(|image| FaultyDrive::new(&life.context, image.clone(), 1)).collect();
        let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
        pool.create_volume(log_spec("v", 2 * MIB)).await.unwrap();
        pool.start_jobs();
        pool.set_snapshot_schedule("v", SnapshotSchedule { hourly: 2, ..Default::default() }).await.unwrap();
        life.context.sleep_ns(HOUR_NS / 20).await;
        assert_eq!(names(&pool).len(), 1);
        drives[0].unplug();
        drives[1].unplug();
        life.context.sleep_ns(3 * HOUR_NS).await;
        let text = "an automatic snapshot of volume v was not taken";
        let notices = pool.status().notices;
        let is_it = |notice: &&Notice| matches!(notice, Notice::News(news) if news.starts_with(text));
        assert_eq!(notices.iter().filter(is_it).count(), 1, "{notices:?}");
        let events = pool.events();
        assert_eq!(events.iter().filter(|event| event.text.starts_with(text)).count(), 1, "{events:?}");
        pool.set_snapshot_schedule("v", SnapshotSchedule::default()).await.unwrap();
        life.context.sleep_ns(HOUR_NS / 20).await;
        assert_eq!(pool.status().notices.iter().filter(is_it).count(), 0);
        let _ = pool.close().await;
    });
}

#[test]
fn expired_snapshots_stay_while_they_are_open() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("v", 2 * MIB)).await.unwrap();
        fill(&volume, 1, 0, MIB).await;
        pool.start_jobs();
        pool.set_snapshot_schedule("v", SnapshotSchedule { hourly: 1, ..Default::default() }).await.unwrap();
        life.context.sleep_ns(HOUR_NS / 10).await;
        let first = names(&pool).remove(0);
        let open = pool.volume(&first).unwrap();
        fill(&volume, 2, 0, MIB).await;
        life.context.sleep_ns(3 * HOUR_NS).await;
        assert_eq!(names(&pool).len(), 2, "the newest, and the one that is open");
        holds(&open, 1, 0, MIB).await.unwrap();
        let sending = pool.send(&path(&names(&pool)[1]), Some(path(&first).snapshot.as_str())).unwrap();
        drop(open);
        life.context.sleep_ns(3 * HOUR_NS).await;
        assert_eq!(names(&pool).len(), 3, "both that are being sent stay");
        drop(sending);
        life.context.sleep_ns(HOUR_NS).await;
        assert_eq!(names(&pool).len(), 1);
        pool.close().await.unwrap();
    });
}

#[test]
fn expired_snapshots_stay_while_clones_rest_on_them() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("v", 2 * MIB)).await.unwrap();
        fill(&volume, 1, 0, MIB).await;
        pool.start_jobs();
        pool.set_snapshot_schedule("v", SnapshotSchedule { hourly: 2, ..Default::default() }).await.unwrap();
        life.context.sleep_ns(HOUR_NS / 10).await;
        let first = names(&pool).remove(0);
        pool.clone_snapshot(&path(&first), "c").await.unwrap();
        fill(&volume, 2, 0, MIB).await;
        life.context.sleep_ns(5 * HOUR_NS).await;
        assert_eq!((names(&pool).len(), names(&pool).remove(0)), (3, first), "{:?}", names(&pool));
        holds(&pool.volume("c").unwrap(), 1, 0, MIB).await.unwrap();
        pool.delete_volume("c").await.unwrap();
        life.context.sleep_ns(HOUR_NS).await;
        assert_eq!(names(&pool).len(), 2);
        pool.close().await.unwrap();
    });
}

#[test]
fn impossible_schedules_are_refused() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        pool.create_volume(log_spec("log", 2 * MIB)).await.unwrap();
        pool.create_volume(volume_spec("plain", "raid5", Some(2 * MIB))).await.unwrap();
        let generation = pool.generation();
        let schedule = SnapshotSchedule { hourly: 1, ..Default::default() };
        let refused = pool.set_snapshot_schedule("plain", schedule).await;
        assert!(matches!(refused, Err(PoolError::WithoutSnapshots { .. })), "{refused:?}");
        let refused = pool.set_snapshot_schedule("none", schedule).await;
        assert!(matches!(refused, Err(PoolError::NoSuchVolume { .. })), "{refused:?}");
        let many = SnapshotSchedule { weekly: 1001, ..schedule };
        let refused = pool.set_snapshot_schedule("log", many).await;
        assert!(matches!(refused, Err(PoolError::BadSetting(_))), "{refused:?}");
        assert_eq!(pool.generation(), generation);
        pool.close().await.unwrap();
    });
}
