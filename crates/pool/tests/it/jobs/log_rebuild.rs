//! Rebuild of log volumes through the pool: onto spares, replacements, free space and drives that
//! came back; interrupted by cuts, by closing, by the loss of the drive that is filled.
//!
//! Invariants I1 to I3, I7 and I11 (`docs/internals/invariants.md`), for log volumes.

use std::panic::catch_unwind;
use std::rc::Rc;

use stripewise_drive::{Buffer, Delay, Drive, FaultyDrive, MemoryDrive, ModelDrive, ModelSpec, SplitMix64};
use stripewise_pool::{
    JobKind, OpenMode, Pool, PoolOptions, PoolState, Role, Volume, VolumeSpec, VolumeState,
};

use stripewise_log::mutation::{Mutation, choose};

use crate::kit::pool::*;

const BLOCK: u64 = 4096;
const SECOND_NS: u64 = 1_000_000_000;

fn log_spec(layout: &str, size_bytes: Option<u64>) -> VolumeSpec {
    let mut spec = VolumeSpec { log: Some(15), ..volume_spec("log", layout, size_bytes) };
    spec.layout.interleave_bytes = Some(16 << 10);
    spec
}

/// Overwrites random blocks with the contents of `seed`.
async fn overwrite(volume: &Volume, model: &mut [u64], seed: u64, blocks: u64) {
    let mut random = SplitMix64::new(seed);
    for _ in 0..blocks {
        let number = random.below(model.len() as u64);
        let data = Buffer::from_bytes(&contents(seed, number * BLOCK, BLOCK as usize));
        volume.write(number * BLOCK, data, false).await.expect("written");
        model[number as usize] = seed;
    }
    volume.flush().await.expect("flushed");
}

/// Compares each block with the seed of its contents; 0: never written.
async fn hold(volume: &Volume, model: &[u64], what: &str) {
    for (number, &seed) in model.iter().enumerate() {
        let at = number as u64 * BLOCK;
        let held = match seed {
            0 => {
                let bytes = volume.read(at, BLOCK as usize).await.map(|read| read.to_vec());
                bytes.map_err(|error| error.to_string()).map(|bytes| assert!(bytes.iter().all(|b| *b == 0)))
            }
            seed => holds(volume, seed, at, BLOCK).await,
        };
        held.unwrap_or_else(|why| panic!("{what}: block {number}: {why}"));
    }
}

/// A pool of `drives` with a log, and what it holds.
async fn pool_with_log(
    life: &Life,
    drives: &[Rc<dyn Drive>],
    spares: &[Rc<dyn Drive>],
    layout: &str,
) -> (Pool, Volume, Vec<u64>) {
    let pool = life.create(drives, spares).await.unwrap();
    let volume = pool.create_volume(log_spec(layout, Some(8 * MIB))).await.unwrap();
    let mut model = vec![0; (volume.capacity_bytes() / BLOCK) as usize];
    overwrite(&volume, &mut model, 1, 3000).await;
    (pool, volume, model)
}

fn faulty(life: &Life, images: &[Rc<MemoryDrive>]) -> Vec<Rc<FaultyDrive>> {
    images.iter().map(|image| FaultyDrive::new(&life.context, image.clone(), 1)).collect()
}

/// Opens copies of the images without some, and compares.
fn holds_without(images: &[Rc<MemoryDrive>], lost: &[usize], model: &[u64]) {
    let kept = images.iter().enumerate().filter(|(index, _)| !lost.contains(index));
    let copies: Vec<_> = kept.map(|(_, image)| image.duplicate(&image.info().label)).collect();
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&copies)).await.unwrap();
        hold(&pool.volume("log").unwrap(), model, &format!("without {lost:?}")).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn spares_take_whole_columns_of_logs() {
    for (layout, count) in [("raid5", 4), ("raid6", 5), ("raid1", 2), ("raid10", 5), ("raid50", 6)] {
        let images = memory_drives(count + 1, 32);
        let life = Life::new();
        let model = life.run(async {
            let drives = faulty(&life, &images);
            let all = as_drives(&drives);
            let (pool, volume, mut model) = pool_with_log(&life, &all[..count], &all[count..], layout).await;
            pool.start_jobs();
            drives[1].unplug();
            overwrite(&volume, &mut model, 2, 1000).await;
            pool.wait(JobKind::Rebuild).await.unwrap();
            let status = pool.status();
            assert_eq!(status.volumes[0].state, VolumeState::Online, "{layout}: {:?}", status.volumes[0]);
            assert_eq!(status.state, PoolState::Online, "{layout}");
            assert_eq!(state_of(&status, &format!("drive{count}")), "online");
            assert!(pool.activity().is_empty());
            let events: Vec<String> = pool.events().into_iter().map(|event| event.text).collect();
            for part in ["the rebuild of volume log began", "the rebuild of volume log ended"] {
                assert_eq!(events.iter().filter(|text| text.contains(part)).count(), 1, "{part}: {events:?}");
            }
            overwrite(&volume, &mut model, 3, 1000).await;
            hold(&volume, &model, layout).await;
            pool.close().await.unwrap();
            model
        });
        drop(life);
        for lost in (0..=count).filter(|lost| *lost != 1) {
            holds_without(&images, &[1, lost], &model);
        }
    }
}

#[test]
fn free_space_takes_a_column_only_as_a_whole() {
    // The fifth drive has room for a column, the sixth has not.
    for (mib, is_enough) in [(32, true), (6, false)] {
        let mut images = memory_drives(5, 32);
        images[4] = memory_drives(1, mib).remove(0).duplicate("drive4");
        let life = Life::new();
        let model = life.run(async {
            let drives = faulty(&life, &images);
            let all = as_drives(&drives);
            let (pool, volume, mut model) = pool_with_log(&life, &all[..4], &[], "raid5").await;
            pool.add(all[4].clone(), Role::Data, false).await.unwrap();
            pool.fail_drive(id_of(&pool.status(), "drive2"), "a test").await.unwrap();
            pool.start_jobs();
            pool.wait(JobKind::Rebuild).await.unwrap();
            overwrite(&volume, &mut model, 2, 500).await;
            let status = pool.status();
            let state = if is_enough { VolumeState::Online } else { VolumeState::Degraded };
            assert_eq!(status.volumes[0].state, state, "{:?}", status.condition);
            let on = |run: &stripewise_pool::RowRun| {
                run.columns.iter().map(|column| column.drive).collect::<Vec<_>>()
            };
            let runs = pool.row_runs();
            assert!(runs.iter().all(|run| on(run) == on(&runs[0])), "one drive for each column");
            pool.close().await.unwrap();
            model
        });
        drop(life);
        for lost in if is_enough { &[0, 1, 3, 4][..] } else { &[4] } {
            holds_without(&images, &[2, *lost], &model);
        }
    }
}

#[test]
fn replacement_drives_are_filled_beside_clients() {
    replaced_beside_clients();
}

#[test]
fn a_rebuild_that_fills_nothing_is_noticed() {
    choose(Some(Mutation::UnfinishedMemberBelieved));
    let passed = catch_unwind(replaced_beside_clients);
    choose(None);
    assert!(passed.is_err());
}

fn replaced_beside_clients() {
    let images = memory_drives(6, 32);
    let life = Life::new();
    let model = life.run(async {
        let drives = faulty(&life, &images);
        let all = as_drives(&drives);
        let (pool, volume, mut model) = pool_with_log(&life, &all[..5], &[], "raid6").await;
        let id = id_of(&pool.status(), "drive3");
        pool.offline(id).await.unwrap();
        overwrite(&volume, &mut model, 2, 500).await;
        pool.replace(id, all[5].clone(), false).await.unwrap();
        drives.iter().for_each(|drive| drive.set_delay(Delay::Fixed(20_000)));
        let activity = pool.activity();
        assert_eq!((activity.len(), activity[0].kind), (1, JobKind::Rebuild), "due, not begun");
        assert_eq!(pool.status().volumes[0].state, VolumeState::Rebuilding);
        pool.start_jobs();
        // Few, so that most of what was there before is where it was.
        for seed in 3..9 {
            overwrite(&volume, &mut model, seed, 20).await;
        }
        pool.wait(JobKind::Rebuild).await.unwrap();
        overwrite(&volume, &mut model, 9, 20).await;
        assert_eq!(pool.status().state, PoolState::Online);
        hold(&volume, &model, "beside clients").await;
        pool.close().await.unwrap();
        model
    });
    drop(life);
    for lost in [0, 1, 2, 4, 5] {
        holds_without(&images, &[3, lost, (lost + 1) % 6], &model);
    }
}

#[test]
fn a_spare_that_fails_gives_way_to_the_next() {
    let images = memory_drives(6, 32);
    let life = Life::new();
    let model = life.run(async {
        let drives = faulty(&life, &images);
        let all = as_drives(&drives);
        let (pool, volume, mut model) = pool_with_log(&life, &all[..4], &all[4..], "raid5").await;
        pool.fail_drive(id_of(&pool.status(), "drive0"), "a test").await.unwrap();
        pool.allocate_spares().await.unwrap();
        let status = pool.status();
        let first = status.drives.iter().find(|drive| drive.state.word() == "rebuilding");
        let first = first.expect("a spare is being filled").path.clone();
        drives.iter().for_each(|drive| drive.set_delay(Delay::Fixed(100_000)));
        pool.start_jobs();
        while pool.activity().first().is_none_or(|activity| activity.percent < 30.0) {
            life.context.sleep_ns(100_000).await;
        }
        let label = |drive: &&Rc<FaultyDrive>| drive.info().label.to_string() == first;
        drives.iter().find(label).expect("one of the spares").unplug();
        pool.wait(JobKind::Rebuild).await.unwrap();
        overwrite(&volume, &mut model, 2, 500).await;
        let status = pool.status();
        assert_eq!(status.volumes[0].state, VolumeState::Online, "{status:?}");
        assert!(status.drives.iter().all(|drive| drive.path != first || drive.state.word() != "online"));
        pool.close().await.unwrap();
        model
    });
    drop(life);
    for lost in 1..4 {
        holds_without(&images, &[0, lost], &model);
    }
}

#[test]
fn a_deleted_log_ends_its_rebuild() {
    let images = memory_drives(5, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let (pool, volume, _) = pool_with_log(&life, &drives[..4], &drives[4..], "raid5").await;
        pool.fail_drive(id_of(&pool.status(), "drive0"), "a test").await.unwrap();
        pool.allocate_spares().await.unwrap();
        pool.start_jobs();
        life.context.sleep_ns(1000).await;
        pool.delete_volume("log").await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert!(volume.read(0, 4096).await.is_err());
        let volume = full_volume(&pool, volume_spec("data", "raid5", None), 77).await;
        holds(&volume, 77, 0, volume.capacity_bytes()).await.unwrap();
        pool.close().await.unwrap();
    });
}

/// Slow drives over images.
fn slow(life: &Life, images: &[Rc<MemoryDrive>]) -> Vec<Rc<dyn Drive>> {
    const SPEED: ModelSpec = ModelSpec { latency_ns: 100_000, bytes_per_second: 2_000_000, queue_depth: 4 };
    let model = |image: &Rc<MemoryDrive>| {
        let info = image.info();
        let drive = ModelDrive::new(&life.context, &info.label, info.capacity_bytes, SPEED, image.clone());
        drive as Rc<dyn Drive>
    };
    images.iter().map(model).collect()
}

#[test]
fn closed_pools_go_on_where_a_rebuild_was() {
    let images = memory_drives(5, 48);
    let life = Life::new();
    let model = life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..4], &drives[4..]).await.unwrap();
        let volume = pool.create_volume(log_spec("raid5", None)).await.unwrap();
        let mut model = vec![0; (volume.capacity_bytes() / BLOCK) as usize];
        let blocks = 2 * model.len() as u64;
        overwrite(&volume, &mut model, 1, blocks).await;
        pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
        pool.close().await.unwrap();
        model
    });
    drop(life);
    let mut percent = 0.0;
    for round in 0.. {
        let life = Life::new();
        let is_over = life.run(async {
            let drives = slow(&life, &images);
            let (context, buffers) = (&life.context, &life.buffers);
            let options = PoolOptions { ..options(round) };
            let pool = Pool::open(context, buffers, drives, OpenMode::ReadWrite, options).await.unwrap();
            let resumed = pool.activity().first().map_or(0.0, |activity| activity.percent);
            assert!(round == 0 || resumed >= percent - 1.0, "{resumed} of {percent}");
            pool.start_jobs();
            life.context.sleep_ns(3 * SECOND_NS).await;
            let activity = pool.activity();
            let is_over = activity.is_empty();
            if let Some(activity) = activity.first() {
                assert_eq!((activity.kind, &activity.volume[..]), (JobKind::Rebuild, "log"));
                assert!(activity.percent > percent, "{percent} {activity:?}");
                assert!((0.1..8.0).contains(&activity.mb_per_s), "{activity:?}");
                assert_eq!(pool.status().volumes[0].state, VolumeState::Rebuilding);
                assert!(pool.status().drives.iter().any(|drive| drive.state.word() == "rebuilding"));
                percent = activity.percent;
            } else {
                assert_eq!(pool.status().state, PoolState::Online);
            }
            pool.close().await.unwrap();
            is_over
        });
        if is_over {
            assert!(round > 2, "{round}");
            break;
        }
        assert!(round < 60, "no end");
    }
    for lost in [0, 2, 3, 4] {
        holds_without(&images, &[1, lost], &model);
    }
}
