//! A drive is added to a full pool: the volumes' data is redistributed over all drives, so that
//! they can grow again. The rebalance starts by itself, yields to all other work, can be stopped,
//! resumes after a restart, and moves nothing without a gain.
//!
//! Invariant I33 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Drive, FaultyDrive, MemoryDrive, ModelDrive, ModelSpec};
use stripewise_pool::{Condition, JobKind, OpenMode, Pool, PoolState, Role, Volume, VolumeSpec};

const SECOND_NS: u64 = 1_000_000_000;
/// Data of a row of RAID 5 on four drives, in slabs of 1 MiB.
const ROW: u64 = 3 * MIB;
const SPEED: ModelSpec = ModelSpec { latency_ns: 50_000, bytes_per_second: 10_000_000, queue_depth: 8 };

fn slow(life: &Life, images: &[Rc<MemoryDrive>]) -> Vec<Rc<FaultyDrive>> {
    let slow = |image: &Rc<MemoryDrive>| {
        let (label, bytes) = (image.info().label.clone(), image.info().capacity_bytes);
        let model = ModelDrive::new(&life.context, &label, bytes, SPEED, image.clone());
        FaultyDrive::new(&life.context, model, 1)
    };
    images.iter().map(slow).collect()
}

/// Writes the first part of each row until there is no space; returns the number of rows with data.
async fn fill_rows(volume: &Volume, from: u64) -> u64 {
    let rows = volume.capacity_bytes() / ROW;
    for row in from..rows {
        let data = Buffer::from_bytes(&contents(1, row * ROW, 256 << 10));
        if volume.write(row * ROW, data, false).await.is_err() {
            return row;
        }
    }
    rows
}

async fn check_rows(volume: &Volume, rows: u64) {
    for row in 0..rows {
        holds(volume, 1, row * ROW, 256 << 10).await.unwrap_or_else(|why| panic!("row {row}: {why}"));
    }
}

/// Creates a pool on four of six drives, filled by a thin volume; returns the number of its rows.
fn full() -> (Vec<Rc<MemoryDrive>>, u64) {
    let images = memory_drives(6, 48);
    let life = Life::new();
    let rows = life.run(async {
        let pool = life.create(&as_drives(&images[..4]), &[]).await.unwrap();
        let thin = VolumeSpec { thin: true, ..volume_spec("data", "raid5", Some(90 * ROW)) };
        let volume = pool.create_volume(thin).await.unwrap();
        let rows = fill_rows(&volume, 0).await;
        assert!((30..50).contains(&rows), "{rows}");
        pool.close().await.unwrap();
        rows
    });
    (images, rows)
}

async fn open(life: &Life, drives: &[Rc<FaultyDrive>]) -> (Pool, Volume) {
    let mut options = options(7);
    options.array.background_bytes = 1;
    options.array.tuning.thin_patience_ns = SECOND_NS / 10;
    let drives = as_drives(drives);
    let pool = Pool::open(&life.context, &life.buffers, drives, OpenMode::ReadWrite, options).await.unwrap();
    let volume = pool.volume("data").unwrap();
    (pool, volume)
}

fn percent(pool: &Pool) -> Option<f64> {
    let activity = pool.activity();
    activity.iter().find(|job| job.kind == JobKind::Rebalance).map(|job| job.percent)
}

/// Free slabs according to the status.
fn free(pool: &Pool) -> u64 {
    let status = pool.status();
    (status.capacity_bytes - status.allocated_bytes) / MIB
}

#[test]
fn full_pool_accepts_writes_after_adding_a_drive() {
    let (images, rows) = full();
    let life = Life::new();
    life.run(async {
        let drives = slow(&life, &images);
        let (pool, volume) = open(&life, &drives[..4]).await;
        assert!(free(&pool) < 4, "{:#?}", pool.status());
        assert_eq!(fill_rows(&volume, rows).await, rows, "it is full");
        pool.add(drives[4].clone(), Role::Data, false).await.unwrap();
        // Rows of four columns cannot use the space of the new drive yet.
        assert!(free(&pool) < 4, "{:#?}", pool.status());
        assert_eq!(fill_rows(&volume, rows).await, rows);
        assert_eq!(pool.status().condition, Condition::Rebalancing);
        assert_eq!(percent(&pool), Some(0.0));
        pool.start_jobs();
        let looking = pool.clone();
        let context = life.context.clone();
        let looking = life.context.spawn(async move {
            let mut percents = Vec::new();
            while let Some(percent) = percent(&looking) {
                assert_eq!(looking.status().state, PoolState::Online);
                assert_eq!(looking.status().volumes[0].redundancy_left, 1);
                percents.push(percent);
                context.sleep_ns(SECOND_NS / 20).await;
            }
            percents
        });
        pool.wait(JobKind::Rebalance).await.unwrap();
        let percents = looking.await;
        assert_ne!(pool.status().condition, Condition::Rebalancing);
        assert!(percents.len() > 5 && percents.windows(2).all(|pair| pair[0] <= pair[1]), "{percents:?}");
        let (before, more) = (free(&pool), fill_rows(&volume, rows).await - rows);
        assert!(more >= 9, "{more} rows of the 11 that a drive of 45 slabs makes: {:#?}", pool.status());
        assert!(
            (4 * more..4 * more + 4).contains(&before),
            "free space is usable: {before} slabs for {more} rows"
        );
        check_rows(&volume, rows + more).await;
        assert_eq!(percent(&pool), None);
        assert!(pool.events().iter().any(|event| event.text.contains("rebalance finished")));
        // Another rebalance would gain nothing.
        assert!(!pool.rebalance().await.unwrap());
        let report = volume.array().scrub(&|_, _| {}).await.unwrap();
        assert_eq!((report.blamed.len(), report.unattributed_blocks, report.unreadable_strips), (0, 0, 0));
        drives[1].unplug();
        check_rows(&volume, rows + more).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn rebalance_stops_starts_and_resumes_after_restart() {
    let (images, rows) = full();
    let life = Life::new();
    life.run(async {
        let drives = slow(&life, &images);
        let (pool, _) = open(&life, &drives[..4]).await;
        pool.add(drives[4].clone(), Role::Data, false).await.unwrap();
        pool.start_jobs();
        life.context.sleep_ns(SECOND_NS / 5).await;
        assert!(pool.stop_rebalance().await.unwrap());
        assert_eq!(percent(&pool), None);
        assert!(!pool.stop_rebalance().await.unwrap(), "none is running");
        pool.wait(JobKind::Rebalance).await.unwrap();
        // The status names what helps.
        let status = pool.status();
        assert!(matches!(status.condition, Condition::RebalanceGains { bytes } if bytes > 0), "{status:#?}");
        assert!(pool.rebalance().await.unwrap());
        assert!(pool.rebalance().await.unwrap(), "it is running");
        life.context.sleep_ns(SECOND_NS).await;
        pool.close().await.unwrap();
    });
    let life = Life::new();
    life.run(async {
        let drives = slow(&life, &images);
        let (pool, volume) = open(&life, &drives[..5]).await;
        let percent = percent(&pool).expect("it is still pending");
        assert!(percent > 0.0 && percent < 100.0, "{percent}");
        pool.wait(JobKind::Rebalance).await.unwrap();
        assert!(fill_rows(&volume, rows).await >= rows + 9);
        check_rows(&volume, rows + 9).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn any_drive_may_fail_during_a_rebalance() {
    for victim in 0..5 {
        let (images, rows) = full();
        let life = Life::new();
        life.run(async {
            let drives = slow(&life, &images);
            let (pool, volume) = open(&life, &drives[..4]).await;
            pool.add(drives[4].clone(), Role::Data, false).await.unwrap();
            pool.start_jobs();
            life.context.sleep_ns(SECOND_NS / 2).await;
            drives[victim].unplug();
            check_rows(&volume, rows).await;
            let lost = format!("drive{victim}");
            pool.fail_drive(id_of(&pool.status(), &lost), "a test").await.unwrap();
            let _ = pool.wait(JobKind::Rebuild).await;
            pool.replace(id_of(&pool.status(), &lost), drives[5].clone(), false).await.unwrap();
            pool.wait(JobKind::Rebuild).await.unwrap();
            pool.wait(JobKind::Rebalance).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Online, "{lost}: {:#?}", pool.status());
            check_rows(&volume, rows).await;
            let more = fill_rows(&volume, rows).await;
            check_rows(&volume, more).await;
            let report = volume.array().scrub(&|_, _| {}).await.unwrap();
            assert_eq!(
                (report.blamed.len(), report.unattributed_blocks, report.unreadable_strips),
                (0, 0, 0)
            );
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn rebalance_without_gain_moves_nothing() {
    let images = memory_drives(5, 48);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..4], &[]).await.unwrap();
        let mut spec = volume_spec("data", "raid1", Some(16 * MIB));
        spec.layout.columns = Some(2);
        let volume = full_volume(&pool, spec, 1).await;
        assert!(!pool.rebalance().await.unwrap());
        let rows = volume.array().rows();
        pool.add(drives[4].clone(), Role::Data, false).await.unwrap();
        pool.start_jobs();
        pool.wait(JobKind::Rebalance).await.unwrap();
        assert_eq!(volume.array().rows(), rows, "any two drives have free space");
        assert_eq!(pool.status().condition, Condition::AllThere);
        pool.close().await.unwrap();
    });
}
