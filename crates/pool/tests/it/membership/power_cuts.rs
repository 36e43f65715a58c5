//! Power is cut at many writes of every operation that adds or removes drives: afterwards the pool
//! opens, holds all flushed data, and the operation can be completed; then another drive can be
//! lost. Also, the source of a rebuild goes missing: data that no other drive has is not lost, but
//! waits for it.

use std::pin::Pin;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Delay, Drive, FaultyDrive, MemoryDrive};
use stripewise_pool::{DriveState, JobKind, Pool, PoolError, PoolState, Role};

type Step<'a> = Pin<Box<dyn Future<Output = Result<(), PoolError>> + 'a>>;

/// Number of cuts per operation, spread over all its writes.
const CUTS: u64 = 40;
const SIZE: u64 = 12 * MIB;

/// Creates five drives with a volume of three columns; a sixth and a smaller seventh drive are
/// unused.
fn prepared(out: Option<&str>) -> Vec<Rc<MemoryDrive>> {
    let mut images = memory_drives(6, 16);
    images.push(MemoryDrive::new("drive6", 10 * MIB));
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..5], &[]).await.unwrap();
        let mut spec = volume_spec("data", "raid5", Some(SIZE));
        spec.layout.columns = Some(3);
        let volume = pool.create_volume(spec).await.unwrap();
        fill(&volume, 1, 0, SIZE).await;
        volume.flush().await.unwrap();
        if let Some(out) = out {
            pool.offline(id_of(&pool.status(), out)).await.unwrap();
            fill(&volume, 2, 2 * MIB, MIB).await;
            fill(&volume, 1, 2 * MIB, MIB).await;
        }
        pool.close().await.unwrap();
    });
    images
}

fn cut_often(
    name: &str,
    start: &[Rc<MemoryDrive>],
    step: impl for<'a> Fn(&'a Pool, &'a [Rc<dyn Drive>]) -> Step<'a>,
) {
    let run = |at: u64, seed: u64| {
        let cut = Cut::over(start, seed);
        let life = Life::new();
        let drives = cut.drives(&life.context);
        let result = life.run(async {
            let pool = life.open(&drives).await?;
            cut.arm(at);
            let result = step(&pool, &drives).await;
            let waited = pool.wait(JobKind::Rebuild).await;
            result.and(waited)
        });
        (result, cut.writes(), cut.images())
    };
    let (result, total, _) = run(u64::MAX, 0);
    result.unwrap_or_else(|error| panic!("{name} works without a cut: {error}"));
    assert!(total > 4, "{name}: {total} writes");
    let stride = (total / CUTS).max(1);
    for at in (1..=total).step_by(stride as usize) {
        let (_, _, images) = run(at, at);
        let what = format!("{name} cut at write {at} of {total}");
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&images)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let volume = pool.volume("data").unwrap_or_else(|error| panic!("{what}: {error}"));
            holds(&volume, 1, 0, SIZE).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            pool.wait(JobKind::Rebuild).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            for drive in pool.status().drives {
                if drive.state == DriveState::Offline {
                    pool.online(drive.id, None).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            }
            pool.wait(JobKind::Rebuild).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            pool.wait(JobKind::Scrub).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(pool.status().state, PoolState::Online, "{what}: {:#?}", pool.status());
            let report = volume.array().scrub(&|_, _| {}).await.unwrap();
            assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{what}");
            let status = pool.status();
            let victim = status
                .drives
                .iter()
                .find(|drive| drive.state == DriveState::Online && drive.allocated_bytes > 0);
            pool.fail_drive(victim.expect("a drive in use").id, "to see").await.unwrap();
            holds(&volume, 1, 0, SIZE).await.unwrap_or_else(|error| panic!("{what}, one more lost: {error}"));
        });
    }
}

#[test]
fn adding_and_rebuilding_survive_any_cut() {
    cut_often("failing a drive", &prepared(None), |pool, _| {
        Box::pin(async { pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await })
    });
    cut_often("adding a drive", &prepared(None), |pool, drives| {
        Box::pin(async {
            pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await?;
            pool.add(drives[5].clone(), Role::Data, false).await.map(|_| ())
        })
    });
}

#[test]
fn replacement_survives_any_cut() {
    for new in [5, 6] {
        cut_often("replacing a drive", &prepared(None), move |pool, drives| {
            Box::pin(async move {
                let old = id_of(&pool.status(), "drive2");
                pool.replace(old, drives[new].clone(), false).await.map(|_| ())
            })
        });
    }
}

#[test]
fn retirement_survives_any_cut() {
    cut_often("retiring a drive", &prepared(None), |pool, _| {
        Box::pin(async { pool.retire(id_of(&pool.status(), "drive0")).await })
    });
}

#[test]
fn offline_and_online_survive_any_cut() {
    cut_often("taking a drive offline", &prepared(None), |pool, _| {
        Box::pin(async { pool.offline(id_of(&pool.status(), "drive0")).await })
    });
    cut_often("bringing a drive back", &prepared(Some("drive1")), |pool, _| {
        Box::pin(async { pool.online(id_of(&pool.status(), "drive1"), None).await })
    });
}

#[test]
fn data_of_a_rebuild_source_that_left_is_not_lost() {
    let start = memory_drives(3, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&start[..2]), &[]).await.unwrap();
        full_volume(&pool, volume_spec("data", "raid1", Some(6 * MIB)), 1).await;
        pool.close().await.unwrap();
    });
    let mut half_way = 0;
    for moment in 0..25 {
        let images: Vec<_> = start.iter().map(|image| image.duplicate(&image.info().label)).collect();
        let life = Life::new();
        life.run(async {
            let seeded = |(seed, image): (usize, &Rc<MemoryDrive>)| {
                FaultyDrive::new(&life.context, image.clone(), seed as u64)
            };
            let drives: Vec<Rc<FaultyDrive>> = images.iter().enumerate().map(seeded).collect();
            let pool = life.open(&as_drives(&drives[..2])).await.unwrap();
            drives.iter().for_each(|drive| drive.set_delay(Delay::Exponential { mean_ns: 1_000_000 }));
            replace_failed(&pool, "drive0", &(drives[2].clone() as Rc<dyn Drive>)).await;
            pool.start_jobs();
            life.context.sleep_ns(moment * 1_500_000).await;
            drives[1].unplug();
            let _ = pool.wait(JobKind::Rebuild).await;
            half_way += u64::from(pool.status().state == PoolState::Failed);
            let _ = pool.close().await;
        });
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&images[1..])).await.unwrap();
            let volume = pool.volume("data").unwrap();
            holds(&volume, 1, 0, 6 * MIB).await.unwrap_or_else(|why| panic!("moment {moment}: {why}"));
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!((pool.status().state, pool.volumes()[0].lost_blocks), (PoolState::Online, 0));
            pool.fail_drive(id_of(&pool.status(), "drive1"), "to see").await.unwrap();
            holds(&volume, 1, 0, 6 * MIB).await.unwrap();
            pool.close().await.unwrap();
        });
    }
    assert!((5..25).contains(&half_way), "{half_way}");
}
