//! Log volumes in a pool: what was flushed survives a cut and the loss of drives, stale drives are
//! not believed, space comes back, and what is not offered is refused before anything changes.

use std::rc::Rc;

use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, Drive, FaultyDrive, MemoryDrive, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{
    JobKind, LogTask, OpenMode, Pin, Pool, PoolError, PoolSpec, PoolState, Role, Volume, VolumeSpec,
    VolumeState,
};

use crate::kit::pool::*;

const BLOCK: u64 = 4096;

fn log_spec(name: &str, layout: &str, size_bytes: Option<u64>) -> VolumeSpec {
    let mut spec = VolumeSpec { log: Some(15), ..volume_spec(name, layout, size_bytes) };
    spec.layout.interleave_bytes = Some(16 << 10);
    spec
}

/// Overwrites random blocks with the contents of `seed`, and says which.
async fn overwrite(volume: &Volume, seed: u64, blocks: u64) -> Vec<u64> {
    let mut random = SplitMix64::new(seed);
    let mut written = Vec::new();
    for _ in 0..blocks {
        let at = random.below(volume.capacity_bytes() / BLOCK) * BLOCK;
        let data = Buffer::from_bytes(&contents(seed, at, BLOCK as usize));
        volume.write(at, data, false).await.expect("written");
        written.push(at);
    }
    written
}

async fn hold(volume: &Volume, seed: u64, written: &[u64]) {
    for &at in written {
        holds(volume, seed, at, BLOCK).await.unwrap();
    }
}

#[test]
fn flushed_data_survive_a_kill_and_reopening() {
    for (layout, drives) in
        [("raid5", 4), ("raid6", 5), ("raid1", 2), ("raid10", 5), ("raid50", 6), ("single", 1)]
    {
        let images = memory_drives(drives, 48);
        let life = Life::new();
        let written = life.run(async {
            let pool = life.create(&as_drives(&images), &[]).await.unwrap();
            let volume = pool.create_volume(log_spec("log", layout, None)).await.unwrap();
            fill(&volume, 1, 0, volume.capacity_bytes()).await;
            let written = overwrite(&volume, 2, volume.capacity_bytes() / BLOCK).await;
            volume.flush().await.unwrap();
            // Neither flushed nor closed.
            overwrite(&volume, 2, 10).await;
            written
        });
        drop(life);
        for how in ["after a kill", "after closing"] {
            let life = Life::new();
            life.run(async {
                let pool = life.open(&as_drives(&images)).await.unwrap();
                let volume = pool.volume("log").unwrap();
                hold(&volume, 2, &written).await;
                let info = volume.info().unwrap();
                let open = info.log.and_then(|log| log.open).unwrap();
                assert_eq!(info.state, VolumeState::Online, "{layout} {how}");
                assert!(open.live_bytes >= volume.capacity_bytes() / 2, "{layout} {how}: {open:?}");
                pool.close().await.unwrap();
            });
        }
    }
}

#[test]
fn a_pool_opened_for_reading_changes_nothing() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    let written = life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", "raid5", Some(8 * MIB))).await.unwrap();
        let written = overwrite(&volume, 1, 500).await;
        volume.flush().await.unwrap();
        written
    });
    drop(life);
    let before: Vec<Vec<u8>> = images.iter().map(|drive| image(drive)).collect();
    let life = Life::new();
    life.run(async {
        let pool = life.open_as(&as_drives(&images), OpenMode::ReadOnly).await.unwrap();
        let volume = pool.volume("log").unwrap();
        hold(&volume, 1, &written).await;
        let refused = volume.write(0, Buffer::from_bytes(&[1; 4096]), false).await;
        assert!(matches!(refused, Err(ArrayError::Protected)), "{refused:?}");
        pool.close().await.unwrap();
    });
    assert!(before.iter().zip(&images).all(|(before, drive)| *before == image(drive)));
}

fn faulty(life: &Life, images: &[Rc<MemoryDrive>]) -> Vec<Rc<FaultyDrive>> {
    images.iter().map(|image| FaultyDrive::new(&life.context, image.clone(), 1)).collect()
}

#[test]
fn a_drive_that_was_away_is_not_believed() {
    let images = memory_drives(5, 32);
    let life = Life::new();
    let (old, new) = life.run(async {
        let drives = faulty(&life, &images);
        let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", "raid6", Some(12 * MIB))).await.unwrap();
        fill(&volume, 1, 0, 12 * MIB).await;
        volume.flush().await.unwrap();
        drives[1].unplug();
        let new = overwrite(&volume, 2, 1500).await;
        volume.flush().await.unwrap();
        let status = pool.status();
        assert_eq!((status.state, state_of(&status, "drive1")), (PoolState::Degraded, "missing"));
        assert_eq!(status.volumes[0].state, VolumeState::Degraded);
        hold(&volume, 2, &new).await;
        let old = (0..12 * MIB / BLOCK).map(|block| block * BLOCK).filter(|at| !new.contains(at));
        (old.collect::<Vec<u64>>(), new)
    });
    drop(life);
    // With any further drive missing, the stale one present.
    for missing in [None, Some(0), Some(2), Some(4)] {
        let copies: Vec<Rc<MemoryDrive>> = images
            .iter()
            .enumerate()
            .filter(|(index, _)| Some(*index) != missing)
            .map(|(_, image)| image.duplicate(&image.info().label))
            .collect();
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&copies)).await.unwrap();
            let volume = pool.volume("log").unwrap();
            hold(&volume, 1, &old).await;
            hold(&volume, 2, &new).await;
            // It takes part again, and is filled beside clients.
            let id = id_of(&pool.status(), "drive1");
            pool.online(id, None).await.unwrap();
            pool.start_jobs();
            let written = overwrite(&volume, 3, 300).await;
            volume.flush().await.unwrap();
            pool.wait(JobKind::Rebuild).await.unwrap();
            hold(&volume, 3, &written).await;
            let info = volume.info().unwrap();
            let state = if missing.is_some() { VolumeState::Degraded } else { VolumeState::Online };
            let left = if missing.is_some() { 1 } else { 2 };
            assert_eq!((info.state, info.redundancy_left), (state, left), "{missing:?}");
            pool.close().await.unwrap();
        });
    }
}

#[test]
fn log_without_too_many_drives_is_whole_later() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    let written = life.run(async {
        let drives = faulty(&life, &images);
        let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", "raid5", Some(8 * MIB))).await.unwrap();
        let written = overwrite(&volume, 1, 800).await;
        volume.flush().await.unwrap();
        drives[0].unplug();
        drives[3].unplug();
        let mut refused = false;
        for seed in 0..20 {
            let data = Buffer::from_bytes(&contents(9, 0, 256 << 10));
            refused |= volume.write(seed * (256 << 10), data, true).await.is_err();
        }
        assert!(refused && volume.is_protected());
        written
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        let volume = pool.volume("log").unwrap();
        // Blocks that the refused writes covered hold either.
        let others: Vec<u64> = written.into_iter().filter(|at| *at >= 5 * MIB).collect();
        hold(&volume, 1, &others).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn deleted_logs_give_their_space_back() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let before = pool.status().allocated_bytes;
        for round in 0..4 {
            let volume = pool.create_volume(log_spec("log", "raid5", None)).await.unwrap();
            assert_eq!(volume.read(0, 64 << 10).await.unwrap().to_vec(), vec![0; 64 << 10]);
            fill(&volume, round, 0, volume.capacity_bytes()).await;
            if round % 2 == 0 {
                volume.flush().await.unwrap();
            }
            pool.delete_volume("log").await.unwrap();
            assert_eq!(pool.status().allocated_bytes, before);
            assert!(matches!(volume.read(0, 4096).await, Err(ArrayError::Closed)));
        }
        let volume = full_volume(&pool, volume_spec("data", "raid5", None), 77).await;
        holds(&volume, 77, 0, volume.capacity_bytes()).await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn columns_of_many_stretches_are_one_space() {
    let images = memory_drives(4, 96);
    let life = Life::new();
    let written = life.run(async {
        let drives = as_drives(&images);
        let spec = PoolSpec { slab_bytes: Some(MIB), ..spec("tank", &drives, &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        let mut count = 0;
        while pool.create_volume(volume_spec(&format!("v{count}"), "raid5", Some(9 * MIB))).await.is_ok() {
            count += 1;
        }
        for index in (0..count).step_by(2) {
            pool.delete_volume(&format!("v{index}")).await.unwrap();
        }
        let volume = pool.create_volume(log_spec("log", "raid5", None)).await.unwrap();
        let runs = pool.row_runs().iter().filter(|run| run.volume == "log").count();
        assert!(runs > 5, "{runs} stretches");
        fill(&volume, 1, 0, volume.capacity_bytes()).await;
        let written = overwrite(&volume, 2, 4000).await;
        volume.flush().await.unwrap();
        written
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        hold(&pool.volume("log").unwrap(), 2, &written).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn work_not_offered_is_refused_before_it_begins() {
    let images = memory_drives(6, 32);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..4], &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", "raid5", Some(8 * MIB))).await.unwrap();
        let id = id_of(&pool.status(), "drive2");
        let generation = pool.generation();
        let raid6 = LayoutSpec::parse("raid6").unwrap();
        let refused = [
            pool.convert_volume("log", raid6).await,
            pool.plan_conversion("log", raid6).map(drop),
            pool.resize_volume("log", 16 * MIB).await,
            pool.set_pin("log", Pin::Slow).await,
            pool.retire(id).await,
            pool.replace(id, drives[4].clone(), false).await.map(drop),
        ];
        for (index, refused) in refused.into_iter().enumerate() {
            assert!(matches!(refused, Err(PoolError::LogVolume { .. })), "{index}: {refused:?}");
        }
        assert_eq!(pool.generation(), generation, "nothing was recorded");
        let refused = pool.retire(id).await;
        let Err(PoolError::LogVolume { task: LogTask::Move { drive }, .. }) = refused else { panic!() };
        assert_eq!(drive, "drive2");
        // A drive that the volume is not on is as before.
        let added = pool.add(drives[5].clone(), Role::Data, false).await.unwrap();
        pool.retire(added).await.unwrap();
        fill(&volume, 1, 0, 8 * MIB).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn impossible_logs_are_refused() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let good = || log_spec("log", "raid5", Some(4 * MIB));
        let bad = [
            VolumeSpec { log: Some(0), ..good() },
            VolumeSpec { log: Some(90), ..good() },
            VolumeSpec { thin: true, ..good() },
            VolumeSpec { write_back: Some(true), ..good() },
            VolumeSpec { checksums: Some(false), ..good() },
            VolumeSpec { pin: Pin::Slow, ..good() },
        ];
        for spec in bad {
            let refused = pool.create_volume(spec.clone()).await.map(drop);
            assert!(matches!(refused, Err(PoolError::BadSetting(_))), "{spec:?}: {refused:?}");
        }
        let refused = pool.create_volume(log_spec("log", "raid5", Some(90 * MIB))).await.map(drop);
        let Err(PoolError::NoSpace { possible_bytes, .. }) = refused else { panic!("{refused:?}") };
        let room = pool.room_for(&good()).unwrap();
        assert_eq!(possible_bytes, room);
        let volume = pool.create_volume(log_spec("log", "raid5", Some(room))).await.unwrap();
        fill(&volume, 1, 0, room).await;
        let odd = volume.write(512, Buffer::from_bytes(&[1; 512]), false).await;
        assert!(matches!(odd, Err(ArrayError::Misaligned { unit_bytes: 4096, .. })), "{odd:?}");
        let beyond = volume.read(room, 4096).await;
        assert!(matches!(beyond, Err(ArrayError::OutOfRange { .. })), "{beyond:?}");
        pool.close().await.unwrap();
    });
}

#[test]
fn full_file_system_excludes_no_drive_of_a_log() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let drives = faulty(&life, &images);
        let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
        let volume = pool.create_volume(log_spec("log", "raid5", Some(8 * MIB))).await.unwrap();
        fill(&volume, 1, 0, 2 * MIB).await;
        volume.flush().await.unwrap();
        drives[2].set_full(true);
        let mut refused = None;
        for piece in 0..24 {
            let data = Buffer::from_bytes(&contents(2, 0, 256 << 10));
            refused = volume.write(2 * MIB + piece * (256 << 10), data, true).await.err().or(refused);
        }
        assert!(matches!(refused, Some(ArrayError::FileSystemFull { .. })), "{refused:?}");
        assert_eq!(pool.full_drive().as_deref(), Some("drive2"));
        holds(&volume, 1, 0, 2 * MIB).await.unwrap();
        assert!(pool.status().drives.iter().all(|drive| drive.state.word() == "online"));
    });
}
