//! Scrubs and checks of log volumes: what is wrong is found, named and mended, and a scrub that was
//! interrupted goes on.

use std::rc::Rc;

use stripewise_drive::{Drive, MemoryDrive, ModelDrive, ModelSpec};
use stripewise_pool::{JobKind, LastScrub, OpenMode, Pool, VolumeSpec};

use crate::kit::pool::*;

const SECOND_NS: u64 = 1_000_000_000;

/// A RAID 5 log, half of it written, beside a small volume in place.
async fn pool_with_log(life: &Life, images: &[Rc<MemoryDrive>]) -> Pool {
    let pool = life.create(&as_drives(images), &[]).await.unwrap();
    let mut spec = VolumeSpec { log: Some(15), ..volume_spec("log", "raid5", Some(16 * MIB)) };
    spec.layout.interleave_bytes = Some(16 << 10);
    let volume = pool.create_volume(spec).await.unwrap();
    fill(&volume, 1, 0, 8 * MIB).await;
    volume.flush().await.unwrap();
    full_volume(&pool, volume_spec("data", "raid1", Some(2 * MIB)), 2).await;
    pool
}

/// Slabs of the log on a drive, as its own bytes.
fn slabs(pool: &Pool, path: &str) -> Vec<u64> {
    let id = id_of(&pool.status(), path);
    let of_log = pool.row_runs().into_iter().filter(|run| run.volume == "log");
    let stretches = of_log.flat_map(|run| {
        let column = run.columns.iter().find(|column| column.drive == id).expect("a column");
        (0..run.rows).map(move |row| u64::from(column.first_slab) + row).collect::<Vec<_>>()
    });
    stretches.collect()
}

/// Changes a byte in every 16th block of the log's slabs on a drive, the first one (the roots)
/// excepted. Returns how many.
fn rot(pool: &Pool, image: &MemoryDrive) -> u64 {
    let base_bytes = 2 * MIB;
    let mut count = 0;
    for slab in slabs(pool, &image.info().label).into_iter().skip(1) {
        for block in (5..MIB / 4096).step_by(16) {
            let at = base_bytes + slab * MIB + block * 4096 + 77;
            let mut byte = [0];
            image.peek(at, &mut byte);
            image.poke(at, &[byte[0] ^ 0x10]);
            count += 1;
        }
    }
    count
}

async fn scrub(pool: &Pool) -> LastScrub {
    pool.scrub().await.unwrap();
    pool.wait(JobKind::Scrub).await.unwrap();
    pool.status().last_scrub.expect("it ended")
}

#[test]
fn scrub_finds_mends_and_names_rot_of_logs() {
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let pool = pool_with_log(&life, &images).await;
        let clean = scrub(&pool).await;
        assert_eq!((clean.volumes, clean.is_clean()), (2, true), "{clean:?}");
        // Data, parity, summaries and map, once for each member.
        assert!(clean.checked_bytes > 8 * MIB * 4 / 3 + 4 * MIB, "{clean:?}");
        let all = rot(&pool, &images[1]);
        let before: Vec<Vec<u8>> = images.iter().map(|drive| image(drive)).collect();
        let checked = pool.check(&|_| ()).await.unwrap();
        let of_log = &checked[0].report;
        assert_eq!((checked[0].volume.as_str(), &checked[0].error), ("log", &None));
        assert!(!of_log.places.is_empty() && of_log.places.iter().all(|place| place.drives == ["drive1"]));
        assert!(before.iter().zip(&images).all(|(before, drive)| *before == image(drive)), "a look");
        let found = scrub(&pool).await;
        let report = &pool.scrub_reports()[0];
        assert_eq!(report.report.blamed.len(), 1, "{report:?}");
        let (drive, blocks) = &report.report.blamed[0];
        assert_eq!((drive.as_str(), *blocks), ("drive1", of_log.blamed[0].1));
        assert!((20..=all).contains(blocks) && found.repaired_blocks == *blocks, "{found:?}");
        let status = pool.status();
        let errors: Vec<u64> = status.drives.iter().map(|drive| drive.checksum_errors).collect();
        assert_eq!(errors, [0, *blocks, 0, 0]);
        let again = scrub(&pool).await;
        assert!(again.is_clean(), "{again:?}");
        // The mended blocks are needed once another drive fails.
        pool.fail_drive(id_of(&pool.status(), "drive2"), "to see").await.unwrap();
        holds(&pool.volume("log").unwrap(), 1, 0, 8 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn scrub_reports_blocks_of_logs_that_are_lost() {
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let pool = pool_with_log(&life, &images).await;
        rot(&pool, &images[1]);
        rot(&pool, &images[3]);
        scrub(&pool).await;
        let report = &pool.scrub_reports()[0].report;
        assert!(report.unreadable_strips > 0, "{report:?}");
        assert!(!pool.status().last_scrub.expect("it ended").is_clean());
    });
}

#[test]
fn pools_opened_for_reading_check_logs() {
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let pool = pool_with_log(&life, &images).await;
        rot(&pool, &images[0]);
        pool.close().await.unwrap();
    });
    drop(life);
    let before: Vec<Vec<u8>> = images.iter().map(|drive| image(drive)).collect();
    let life = Life::new();
    life.run(async {
        let pool = life.open_as(&as_drives(&images), OpenMode::ReadOnly).await.unwrap();
        let checked = pool.check(&|_| ()).await.unwrap();
        assert_eq!(checked[0].error, None);
        assert!(!checked[0].report.blamed.is_empty(), "{:?}", checked[0]);
        pool.close().await.unwrap();
    });
    assert!(before.iter().zip(&images).all(|(before, drive)| *before == image(drive)));
}

#[test]
fn interrupted_scrubs_of_logs_go_on() {
    const SPEED: ModelSpec = ModelSpec { latency_ns: 100_000, bytes_per_second: 1_000_000, queue_depth: 4 };
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let pool = pool_with_log(&life, &images).await;
        rot(&pool, &images[2]);
        pool.scrub().await.unwrap();
        pool.close().await.unwrap();
    });
    drop(life);
    let (mut percent, mut rounds) = (0.0, 0);
    let mut ended = None;
    while ended.is_none() {
        rounds += 1;
        let life = Life::new();
        ended = life.run(async {
            let slow = |image: &Rc<MemoryDrive>| {
                let info = image.info();
                let drive =
                    ModelDrive::new(&life.context, &info.label, info.capacity_bytes, SPEED, image.clone());
                drive as Rc<dyn Drive>
            };
            let pool = life.open(&images.iter().map(slow).collect::<Vec<_>>()).await.unwrap();
            pool.start_jobs();
            life.context.sleep_ns(2 * SECOND_NS).await;
            let activity = pool.activity().into_iter().find(|activity| activity.volume == "log");
            if let Some(activity) = activity {
                assert_eq!(activity.kind, JobKind::Scrub);
                assert!(activity.percent >= percent - 5.0, "{percent}: {activity:?}");
                percent = activity.percent;
            }
            let last = pool.status().last_scrub;
            pool.close().await.unwrap();
            last
        });
        assert!(rounds < 40, "no end: {percent}");
    }
    let last = ended.expect("it ended");
    assert!(rounds > 2 && last.volumes == 2 && last.repaired_blocks > 20, "{rounds} {last:?}");
    assert_eq!(last.unreadable_strips, 0);
}
