//! Rebuilds and scrubs of pools in virtual time: progress, checkpoints, interruption at many
//! moments, lost blocks.
//!
//! Invariants I11 and I27 (`docs/internals/invariants.md`).

use crate::kit;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{CrashDrive, Delay, Drive, FaultyDrive, MemoryDrive, ModelDrive, ModelSpec};
use stripewise_pool::{Condition, EventKind, JobKind, LastScrub, OpenMode, Pool, PoolState};

const SECOND_NS: u64 = 1_000_000_000;
const SPEED: ModelSpec = ModelSpec { latency_ns: 100_000, bytes_per_second: 2_000_000, queue_depth: 4 };

/// Slow drives over others.
fn slow<D: Drive + 'static>(life: &Life, below: &[Rc<D>]) -> Vec<Rc<dyn Drive>> {
    let model = |drive: &Rc<D>| {
        let info = drive.info();
        ModelDrive::new(&life.context, &info.label, info.capacity_bytes, SPEED, drive.clone())
            as Rc<dyn Drive>
    };
    below.iter().map(model).collect()
}

/// Opens with one region rebuilt at a time: on drives this slow, sixteen would all be half done for
/// long.
async fn open_slow(life: &Life, drives: &[Rc<dyn Drive>]) -> Pool {
    let mut options = options(7);
    options.array.background_bytes = 1;
    let drives = drives.to_vec();
    Pool::open(&life.context, &life.buffers, drives, OpenMode::ReadWrite, options).await.unwrap()
}

/// Offset of the slab of the volume's first row on the drive of this number. Slabs begin behind a
/// superblock area and a checksum area of 1 MiB each.
fn first_slab(volume: &stripewise_pool::Volume, drive: u32) -> u64 {
    let places = volume.array().rows().run(0).expect("a row").places_of(0);
    let place = places.iter().find(|place| place.drive == drive).expect("every drive is in it");
    2 * MIB + u64::from(place.slab) * MIB
}

/// As [`first_slab`], of the first drive under a volume `data` on the first three.
fn first_slab_of(images: &[Rc<MemoryDrive>]) -> u64 {
    let life = Life::new();
    life.run(async {
        let pool = life.open_as(&as_drives(&images[..3]), OpenMode::ReadOnly).await.unwrap();
        first_slab(&pool.volume("data").unwrap(), 0)
    })
}

/// A full RAID 5 on three of four drives.
fn full_raid5(mib: u64) -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, mib);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images[..3]), &[]).await.unwrap();
        full_volume(&pool, volume_spec("data", "raid5", None), 1).await;
        pool.close().await.unwrap();
    });
    images
}

#[test]
fn rebuild_reports_progress_and_resumes() {
    let start = full_raid5(48);
    // 45 MiB of a drive hold data; at 2 MB/s they take about 24 s.
    for stop_ns in
        [SECOND_NS / 3, 2 * SECOND_NS, 6 * SECOND_NS, 13 * SECOND_NS, 22 * SECOND_NS, 23 * SECOND_NS]
    {
        let below: Vec<_> =
            start.iter().map(|image| CrashDrive::from_image(&image.info().label, image)).collect();
        let life = Life::new();
        let (images, percent) = life.run(async {
            let drives = slow(&life, &below);
            let pool = open_slow(&life, &drives[..3]).await;
            let volume = pool.volume("data").unwrap();
            replace_failed(&pool, "drive1", &drives[3]).await;
            let began_ns = life.context.now_ns();
            pool.start_jobs();
            // Clients go on: below what is rebuilt and above it.
            let mut step = 0;
            while life.context.now_ns() < began_ns + stop_ns {
                let at = step * 7 % 80 * MIB;
                fill(&volume, 1, at, 64 << 10).await;
                life.context.sleep_ns(SECOND_NS / 5).await;
                step += 1;
            }
            let activity = pool.activity();
            assert_eq!(activity.len(), 1);
            assert_eq!((activity[0].kind, activity[0].volume.as_str()), (JobKind::Rebuild, "data"));
            if stop_ns > 5 * SECOND_NS {
                assert!((0.5..2.5).contains(&activity[0].mb_per_s), "{activity:?}");
                let whole_s = activity[0].seconds_left.unwrap() / (1.0 - activity[0].percent / 100.0);
                assert!((15.0..60.0).contains(&whole_s), "{activity:?}");
            }
            let images: Vec<_> =
                below.iter().map(|drive| drive.image_after_cut(&drive.info().label, 5)).collect();
            (images, activity[0].percent)
        });
        drop(life);
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&images)).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Degraded);
            let resumed = pool.activity()[0].percent;
            assert!(resumed <= percent, "nothing counts as rebuilt that was not: {resumed} {percent}");
            // A checkpoint every 5 s, about 21 % each.
            assert!(
                stop_ns < 6 * SECOND_NS || resumed > percent - 35.0,
                "{resumed} of {percent} after {stop_ns}"
            );
            let volume = pool.volume("data").unwrap();
            holds(&volume, 1, 0, volume.capacity_bytes()).await.unwrap();
            pool.wait(JobKind::Rebuild).await.unwrap();
            assert_eq!(pool.status().state, PoolState::Online);
            // The rebuilt column must replace the data of another drive.
            pool.fail_drive(id_of(&pool.status(), "drive0"), "to see").await.unwrap();
            holds(&volume, 1, 0, volume.capacity_bytes()).await.unwrap();
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn rebuild_resumes_after_closing() {
    let images = full_raid5(32);
    let mut done = 0.0;
    for round in 0..20 {
        let life = Life::new();
        let (percent, finished) = life.run(async {
            let drives = slow(&life, &images);
            let pool = open_slow(&life, if round == 0 { &drives[..3] } else { &drives }).await;
            if round == 0 {
                replace_failed(&pool, "drive2", &drives[3]).await;
            }
            pool.start_jobs();
            life.context.sleep_ns(2 * SECOND_NS).await;
            let percent = pool.activity().first().map_or(100.0, |activity| activity.percent);
            pool.close().await.unwrap();
            let finished = pool.status().state == PoolState::Online;
            let is_told = |round: i32| {
                let text = match (round, finished) {
                    (0, _) => "the rebuild of volume data began: ",
                    (_, false) => "the rebuild of volume data goes on: ",
                    (_, true) => " s; it has all its redundancy again",
                };
                pool.events()
                    .iter()
                    .any(|event| event.kind == EventKind::Rebuild && event.text.contains(text))
            };
            assert!(is_told(0) && is_told(round), "round {round}: {:?}", pool.events());
            (percent, finished)
        });
        assert!(percent > done, "round {round} went on from {done}, to {percent}");
        done = percent;
        if finished {
            assert!(round > 4, "it was interrupted");
            return;
        }
    }
    panic!("twenty rounds of 2 s did not do what takes 16 s");
}

#[test]
fn the_most_exposed_volume_is_rebuilt_first() {
    let images = memory_drives(6, 32);
    let life = Life::new();
    life.run(async {
        let drives = slow(&life, &images);
        life.create(&drives[..4], &[]).await.unwrap().close().await.unwrap();
        let pool = open_slow(&life, &drives[..4]).await;
        for (name, layout, size) in [("double", "raid6", 8 * MIB), ("single", "raid5", 24 * MIB)] {
            full_volume(&pool, volume_spec(name, layout, Some(size)), 1).await;
        }
        replace_failed(&pool, "drive0", &drives[4]).await;
        pool.start_jobs();
        life.context.sleep_ns(6 * SECOND_NS).await;
        let activity = pool.activity();
        let rate = |name: &str| activity.iter().find(|job| job.volume == name).unwrap().mb_per_s;
        assert!(rate("single") > 0.0 && rate("double") == 0.0, "{activity:?}");
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_replacement_that_fails_gives_way_to_the_next() {
    let images = memory_drives(5, 24);
    let life = Life::new();
    life.run(async {
        let faults: Vec<_> =
            slow(&life, &images).into_iter().map(|drive| FaultyDrive::new(&life.context, drive, 1)).collect();
        let drives = as_drives(&faults);
        life.create(&drives[..3], &drives[3..]).await.unwrap().close().await.unwrap();
        let pool = open_slow(&life, &drives).await;
        let volume = pool.create_volume(volume_spec("data", "raid5", None)).await.unwrap();
        fill(&volume, 1, 0, 16 * MIB).await;
        pool.start_jobs();
        pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
        life.context.sleep_ns(2 * SECOND_NS).await;
        assert_eq!(state_of(&pool.status(), "drive3"), "rebuilding");
        faults[3].unplug();
        life.context.sleep_ns(SECOND_NS).await;
        let status = pool.status();
        assert_eq!((state_of(&status, "drive4"), status.drives.len()), ("rebuilding", 3), "{status:#?}");
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Online);
        // Another fails while nothing is left to stand in.
        faults[4].unplug();
        holds(&volume, 1, 0, 16 * MIB).await.unwrap();
        assert_eq!(pool.status().state, PoolState::Degraded);
        pool.close().await.unwrap();
    });
}

#[test]
fn unrecoverable_blocks_stay_recorded_as_lost() {
    let images = full_raid5(16);
    let data = first_slab_of(&images);
    let with_faults = |life: &Life, images: &[Rc<MemoryDrive>]| {
        let faults: Vec<_> =
            images.iter().map(|image| FaultyDrive::new(&life.context, image.clone(), 1)).collect();
        // In the volume's data.
        // In the third stripe: there the drive has parity, and the one that is replaced data.
        let at = data + 2 * (64 << 10);
        faults[0].make_unreadable(at..at + 8192);
        faults
    };
    let life = Life::new();
    let wrong = life.run(async {
        let faults = with_faults(&life, &images);
        let drives = as_drives(&faults);
        let pool = life.open(&drives[..3]).await.unwrap();
        pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
        pool.replace(id_of(&pool.status(), "drive1"), drives[3].clone(), false).await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let status = pool.status();
        assert_eq!(status.volumes[0].lost_blocks, 2);
        assert_eq!(status.condition, Condition::LostBlocks { blocks: 2 });
        let volume = pool.volume("data").unwrap();
        let mut wrong = Vec::new();
        for at in (0..volume.capacity_bytes()).step_by(4096) {
            match volume.read(at, 4096).await {
                Ok(read) => assert!(read.to_vec() == contents(1, at, 4096), "at {at}"),
                Err(_) => wrong.push(at),
            }
        }
        assert!((2..=4).contains(&wrong.len()), "blocks of drive0 or of its partner, no other: {wrong:?}");
        // No closing: a crash.
        wrong
    });
    drop(life);
    let crashed: Vec<_> = images.iter().map(|image| image.duplicate(&image.info().label)).collect();
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&with_faults(&life, &crashed));
        let pool = life.open(&drives).await.unwrap();
        let volume = pool.volume("data").unwrap();
        assert_eq!(volume.array().lost_blocks().len(), 2);
        for &at in &wrong {
            assert!(volume.read(at, 4096).await.is_err(), "at {at}: rubbish is not data");
        }
        // Written, they are good again, and stay so once flushed, whatever comes.
        for &at in &wrong {
            fill(&volume, 2, at, 4096).await;
        }
        volume.flush().await.unwrap();
        assert_eq!(volume.array().lost_blocks(), []);
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&with_faults(&life, &crashed));
        let pool = life.open(&drives).await.unwrap();
        let volume = pool.volume("data").unwrap();
        assert_eq!((volume.array().lost_blocks(), pool.status().state), (Vec::new(), PoolState::Online));
        for &at in &wrong {
            holds(&volume, 2, at, 4096).await.unwrap();
        }
        pool.close().await.unwrap();
    });
    // Without the faults the drive can be read after all, and nothing is lost.
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        let volume = pool.volume("data").unwrap();
        assert_eq!(volume.array().lost_blocks().len(), 2);
        holds(&volume, 1, 0, volume.capacity_bytes()).await.unwrap();
        volume.flush().await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn a_scrub_is_an_intent_that_survives_the_process() {
    let images = memory_drives(4, 48);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let mut places = Vec::new();
        for (name, seed) in [("one", 1), ("two", 2)] {
            let volume = full_volume(&pool, volume_spec(name, "raid6", Some(20 * MIB)), seed).await;
            places.push(first_slab(&volume, 2));
        }
        pool.close().await.unwrap();
        // Something lies: in the first volume's data and in the second's.
        let mut byte = [0];
        for at in [places[0] + 5, places[1] + MIB + 99] {
            images[2].peek(at, &mut byte);
            images[2].poke(at, &[byte[0] ^ 0x20]);
        }
    });
    drop(life);
    let mut percents = Vec::new();
    let (mut came_to, mut rested) = (None::<(String, f64)>, 0);
    for round in 0..8 {
        let life = Life::new();
        let done = life.run(async {
            let drives = slow(&life, &images);
            let pool = life.open(&drives).await.unwrap();
            if round == 0 {
                pool.scrub().await.unwrap();
            }
            pool.scrub_reports().is_empty().then_some(()).expect("nothing was checked yet");
            // A paused job shows its progress; closing may have advanced it to the end of the
            // volume.
            if let Some((volume, before)) = &came_to {
                let paused = pool.activity();
                let paused = paused.iter().find(|job| job.volume == *volume);
                assert!(
                    paused.is_none_or(|job| job.percent >= *before),
                    "{before} % of {volume}: {paused:?}"
                );
                rested += usize::from(paused.is_some());
            }
            pool.start_jobs();
            pool.scrub().await.unwrap(); // No effect while a scrub is running.
            life.context.sleep_ns(4 * SECOND_NS).await;
            let activity = pool.activity();
            percents.push(activity.iter().map(|job| job.percent).collect::<Vec<_>>());
            came_to = activity.first().map(|job| (job.volume.clone(), job.percent));
            let done = activity.is_empty();
            if done {
                let reports = pool.scrub_reports();
                let wrong: u64 =
                    reports.iter().flat_map(|summary| &summary.report.blamed).map(|(_, blocks)| blocks).sum();
                assert_eq!((reports.len(), wrong), (2, 2), "all of it, in any session: {reports:?}");
            } else {
                assert!(activity.iter().all(|job| job.kind == JobKind::Scrub));
            }
            pool.close().await.unwrap();
            done
        });
        if done {
            break;
        }
    }
    assert!((3..8).contains(&percents.len()) && rested > 0, "{percents:?}");
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        let status = pool.status();
        assert_eq!(status.activity, []);
        let errors: Vec<u64> = status.drives.iter().map(|drive| drive.checksum_errors).collect();
        assert_eq!(errors, [0, 0, 2, 0], "the drive that lied is named, for good");
        let last = status.last_scrub.expect("it ended");
        assert_eq!((last.repaired_blocks, last.volumes, last.cut_short), (2, 2, 0));
        assert!(last.checked_bytes >= 80 * MIB && !last.is_clean(), "{last:?}");
        let wrong = vec![("drive2".to_owned(), 2)];
        assert_eq!(status.condition, Condition::WrongBlocks { drives: wrong, was_scrubbed: false });
        pool.scrub().await.unwrap();
        pool.wait(JobKind::Scrub).await.unwrap();
        let reports = pool.scrub_reports();
        assert_eq!(reports.len(), 2);
        assert!(reports.iter().all(|summary| summary.error.is_none() && summary.report.blamed.is_empty()));
        assert!(reports.iter().all(|summary| summary.report.checked_bytes >= 40 * MIB), "{reports:?}");
        let status = pool.status();
        assert!(status.last_scrub.as_ref().is_some_and(LastScrub::is_clean), "{status:?}");
        let was_scrubbed =
            |condition: Condition| matches!(condition, Condition::WrongBlocks { was_scrubbed: true, .. });
        assert!(was_scrubbed(pool.status().condition));
        pool.clear(Some(id_of(&status, "drive0"))).await.unwrap();
        assert!(was_scrubbed(pool.status().condition), "that was another drive");
        pool.clear(None).await.unwrap();
        let status = pool.status();
        assert_eq!(status.condition, Condition::AllThere);
        assert!(status.drives.iter().all(|drive| drive.checksum_errors == 0));
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images)).await.unwrap();
        assert!(pool.status().drives.iter().all(|drive| drive.checksum_errors == 0), "for good");
        pool.close().await.unwrap();
    });
}

#[test]
fn journal_leaves_no_resync_after_a_crash() {
    let images = memory_drives(3, 16);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid5", None), 1).await;
        volume.flush().await.unwrap();
        fill(&volume, 1, 0, MIB).await;
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let drives = slow(&life, &images);
        let pool = life.open(&drives).await.unwrap();
        let status = pool.status();
        assert_eq!((status.state, status.activity), (PoolState::Online, Vec::new()));
        pool.wait(JobKind::Scrub).await.unwrap();
        assert_eq!(pool.activity(), []);
        let volume = pool.volume("data").unwrap();
        assert!(!volume.array().needs_resync());
        holds(&volume, 1, 0, volume.capacity_bytes()).await.unwrap();
        let report = volume.array().scrub(&|_, _| {}).await.unwrap();
        assert_eq!(report.unattributed_blocks, 0);
        pool.close().await.unwrap();
        let pool = life.open(&drives).await.unwrap();
        assert_eq!(pool.activity(), [], "it stays so");
        pool.close().await.unwrap();
    });
}

#[test]
fn the_rebuild_priority_is_kept_and_holds() {
    let images = full_raid5(16);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images[..3])).await.unwrap();
        assert_eq!(pool.rebuild_priority(), stripewise_pool::REBUILD_PRIORITY_MEDIUM_PERCENT);
        pool.set_rebuild_priority(77).await.unwrap();
        pool.close().await.unwrap();
        let pool = life.open(&as_drives(&images[..3])).await.unwrap();
        assert_eq!(pool.status().rebuild_priority_percent, 77);
        pool.close().await.unwrap();
    });
}

#[test]
fn a_pool_of_modelled_drives_needs_no_memory() {
    const TB: u64 = 1_000_000_000_000;
    let life = Life::new();
    life.run(async {
        let spec = ModelSpec { latency_ns: 100_000, bytes_per_second: 200_000_000, queue_depth: 16 };
        let model = |index: usize| {
            let label = format!("model{index}");
            let below = stripewise_drive::NullDrive::new(&label, TB);
            ModelDrive::new(&life.context, &label, TB, spec, below) as Rc<dyn Drive>
        };
        let drives: Vec<_> = (0..5).map(model).collect();
        let buffers = stripewise_drive::BufferPool::phantom();
        let pool = Pool::create(&life.context, &buffers, kit::pool::spec("model", &drives[..4], &[]));
        let pool = pool.await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", None)).await.unwrap();
        let at_once = 64 * MIB;
        for step in 0..32 {
            volume.write(step * at_once, buffers.allocate(at_once as usize), false).await.unwrap();
        }
        volume.flush().await.unwrap();
        replace_failed(&pool, "model2", &drives[4]).await;
        let began_ns = life.context.now_ns();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let took_s = (life.context.now_ns() - began_ns) as f64 / 1e9;
        let least_s = (32 * at_once / 3) as f64 / 200e6;
        assert!((least_s..least_s * 1.1).contains(&took_s), "{took_s} s for what takes {least_s} s");
        assert_eq!(pool.status().state, PoolState::Online);
        pool.close().await.unwrap();
    });
}

#[test]
fn errors_of_a_lost_drive_do_not_count_on_its_spare() {
    let images = memory_drives(4, 16);
    let life = Life::new();
    life.run(async {
        let faults: Vec<_> =
            images.iter().map(|image| FaultyDrive::new(&life.context, image.clone(), 1)).collect();
        let drives = as_drives(&faults);
        let pool = life.create(&drives[..3], &drives[3..]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid5", Some(8 * MIB)), 1).await;
        volume.flush().await.unwrap();
        faults.iter().for_each(|drive| drive.set_delay(Delay::Fixed(1_000_000)));
        // A scrub has a whole region's reads in flight, and looks at their errors one by one,
        // repairing in between: long enough for the spare to be in place when it comes to the last.
        pool.start_jobs();
        pool.scrub().await.unwrap();
        life.context.sleep_ns(1_500_000).await;
        faults[1].unplug();
        pool.wait(JobKind::Rebuild).await.unwrap();
        pool.wait(JobKind::Scrub).await.unwrap();
        let status = pool.status();
        assert_eq!((status.state, state_of(&status, "drive3")), (PoolState::Online, "online"), "{status:#?}");
        assert!(pool.scrub_reports()[0].report.checked_bytes > MIB, "it was running");
        holds(&volume, 1, 0, 8 * MIB).await.unwrap();
        pool.close().await.unwrap();
    });
}
