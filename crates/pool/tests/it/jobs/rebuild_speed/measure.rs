//! Measures a rebuild in virtual time.

use std::cell::Cell;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{BufferPool, Drive, ModelDrive, ModelSpec, NullDrive, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{JobKind, Pool, PoolSpec, PoolState, VolumeSpec};

const SPEED: ModelSpec = ModelSpec { latency_ns: 50_000, bytes_per_second: 200_000_000, queue_depth: 32 };
/// Slabs of each drive that the volume takes.
const SLABS_PER_DRIVE: u64 = 480;

/// Seconds to rebuild one of `drives` drives that hold a full volume, with or without a dedicated
/// spare.
pub fn rebuild_seconds(drives: usize, layout: &str, columns: usize, with_spare: bool) -> f64 {
    let life = Life::new();
    life.run(async {
        let model = |index: usize| {
            let (label, bytes) = (format!("model{index}"), 960 * MIB);
            let below = NullDrive::new(&label, bytes);
            ModelDrive::new(&life.context, &label, bytes, SPEED, below) as Rc<dyn Drive>
        };
        let all: Vec<Rc<dyn Drive>> = (0..drives + usize::from(with_spare)).map(model).collect();
        let buffers = BufferPool::phantom();
        let spec = PoolSpec { slab_bytes: Some(MIB), ..spec("speed", &all[..drives], &all[drives..]) };
        let pool = Pool::create(&life.context, &buffers, spec).await.unwrap();
        let mut layout = LayoutSpec::parse(layout).unwrap();
        layout.columns = Some(columns);
        let copies_or_parity = if columns == 2 { 2.0 } else { columns as f64 / (columns as f64 - 1.0) };
        let size = (SLABS_PER_DRIVE * drives as u64 * MIB) as f64 / copies_or_parity;
        let size = size as u64 / MIB * MIB;
        let volume =
            VolumeSpec { size_bytes: Some(size), checksums: Some(false), ..VolumeSpec::new("data", layout) };
        let volume = pool.create_volume(volume).await.unwrap();
        let mut at = 0;
        while at < size {
            let length = (64 * MIB).min(size - at);
            volume.write(at, buffers.allocate(length as usize), false).await.unwrap();
            at += length;
        }
        volume.flush().await.unwrap();
        life.context.sleep_ns(20_000_000_000).await;
        let began_ns = life.context.now_ns();
        pool.fail_drive(id_of(&pool.status(), "model1"), "a measurement").await.unwrap();
        pool.wait(JobKind::Rebuild).await.unwrap();
        let seconds = (life.context.now_ns() - began_ns) as f64 / 1e9;
        assert_eq!(pool.status().state, PoolState::Online);
        pool.close().await.unwrap();
        seconds
    })
}

/// Strips read or written per strip rebuilt.
pub fn strips_per_strip(layout: &str, columns: usize) -> usize {
    let mut spec = LayoutSpec::parse(layout).unwrap();
    spec.columns = Some(columns);
    spec.resolve(columns).unwrap().data_units() + 1
}

/// Share of the drives' time that a rebuild of RAID 5 on four disks gets while `writers` each have
/// one random write in flight.
pub fn rebuild_share_beside(writers: u64) -> f64 {
    const DISK: ModelSpec =
        ModelSpec { latency_ns: 5_000_000, bytes_per_second: 200_000_000, queue_depth: 1 };
    const WRITE_BYTES: u64 = 64 << 10;
    let life = Life::new();
    life.run(async {
        let model = |index: usize| {
            let (label, bytes) = (format!("model{index}"), 4096 * MIB);
            let below = NullDrive::new(&label, bytes);
            ModelDrive::new(&life.context, &label, bytes, DISK, below) as Rc<dyn Drive>
        };
        let all: Vec<Rc<dyn Drive>> = (0..5).map(model).collect();
        let buffers = BufferPool::phantom();
        let pool = Pool::create(&life.context, &buffers, spec("share", &all[..4], &all[4..])).await.unwrap();
        let mut layout = LayoutSpec::parse("raid5").unwrap();
        layout.interleave_bytes = Some(256 << 10);
        let size = 4096 * MIB;
        let spec =
            VolumeSpec { size_bytes: Some(size), checksums: Some(false), ..VolumeSpec::new("data", layout) };
        let volume = Rc::new(pool.create_volume(spec).await.unwrap());
        for at in (0..size).step_by(64 * MIB as usize) {
            volume.write(at, buffers.allocate(64 * MIB as usize), false).await.unwrap();
        }
        volume.flush().await.unwrap();
        pool.fail_drive(id_of(&pool.status(), "model1"), "a measurement").await.unwrap();
        pool.start_jobs();
        let stop = Rc::new(Cell::new(false));
        let writing: Vec<_> = (0..writers)
            .map(|writer| {
                let (volume, buffers, stop) = (volume.clone(), buffers.clone(), stop.clone());
                let mut random = SplitMix64::new(writer);
                life.context.spawn(async move {
                    while !stop.get() {
                        let at = random.below(size / WRITE_BYTES) * WRITE_BYTES;
                        volume.write(at, buffers.allocate(WRITE_BYTES as usize), false).await.unwrap();
                    }
                })
            })
            .collect();
        let drives = ["model0", "model2", "model3"];
        let members: Vec<_> =
            drives.iter().map(|drive| pool.member(id_of(&pool.status(), drive)).unwrap()).collect();
        let busy_ns =
            || members.iter().map(|member| member.counters().background_busy_ns).sum::<u64>() as f64;
        while busy_ns() == 0.0 {
            life.context.sleep_ns(1_000_000_000).await;
        }
        let (before, began_ns) = (busy_ns(), life.context.now_ns());
        life.context.sleep_ns(10_000_000_000).await;
        let share = (busy_ns() - before) / (life.context.now_ns() - began_ns) as f64 / members.len() as f64;
        assert!(!pool.status().activity.is_empty(), "the rebuild is still running");
        stop.set(true);
        for task in writing {
            task.await;
        }
        drop(volume);
        pool.close().await.unwrap();
        share
    })
}
