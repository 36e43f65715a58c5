//! Conversions of volumes to slices and back, also to other layouts, under power cuts, and beside
//! requests that come in on the thread of an array.
//!
//! Invariant I30 (`docs/internals/invariants.md`).

use std::cell::Cell;
use std::rc::Rc;

use stripewise_array::mutation::{Mutation, choose};
use stripewise_drive::{Buffer, IoRequest, MemoryDrive, Operation, SplitMix64};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{DrawnShards, JobKind, Pool, PoolError, PoolOptions, PoolSpec, Volume, VolumeSpec};

use crate::kit::pool::*;
use crate::kit::slices::{create, open, scrubbed_clean, sliced};

const SIZE: u64 = 9 * MIB;
const BLOCK: u64 = 4096;
const CUTS: u64 = 30;

fn layout(name: &str) -> LayoutSpec {
    LayoutSpec { columns: Some(4), ..LayoutSpec::parse(name).expect("a layout") }
}

async fn converted(pool: &Pool, volume: &Volume, layout: Option<LayoutSpec>, slices: u32) {
    let before = pool.status().allocated_bytes;
    pool.convert("data", layout, Some(slices)).await.expect("begun");
    let info = volume.info().expect("it is there");
    assert!(info.conversion.is_some() && info.slices == slices);
    pool.wait(JobKind::Convert).await.expect("converted");
    let info = volume.info().expect("it is there");
    assert_eq!((info.conversion, info.slices, info.lost_blocks), (None, slices, 0));
    assert_eq!(volume.arrays().len(), slices as usize);
    if layout.is_none() && slices == 1 {
        assert!(pool.status().allocated_bytes <= before, "the slices gave their space back");
    }
}

#[test]
fn volume_is_cut_into_slices_and_joined_again() {
    for thin in [false, true] {
        let images = memory_drives(5, 64);
        let life = Life::new();
        life.run(async {
            let drives = as_drives(&images);
            let pool = create(&life, &drives, 100 << 10).await;
            let mut spec = VolumeSpec { thin, ..sliced("data", "raid5", 1, SIZE) };
            spec.layout.columns = Some(4);
            let volume = pool.create_volume(spec).await.expect("a volume");
            fill(&volume, 1, 0, 4 * MIB).await;
            fill(&volume, 1, 8 * MIB, MIB).await;
            let same = pool.convert("data", None, Some(1)).await.err();
            assert!(matches!(same, Some(PoolError::SameLayout { .. })), "{same:?}");
            let check = async || {
                holds(&volume, 1, 0, 4 * MIB).await.expect("as written");
                holds(&volume, 1, 8 * MIB, MIB).await.expect("as written");
                let between = volume.read(4 * MIB, 4 << 20).await.expect("read").to_vec();
                assert!(between.iter().all(|byte| *byte == 0));
                scrubbed_clean(&volume).await;
            };
            converted(&pool, &volume, None, 3).await;
            check().await;
            converted(&pool, &volume, Some(layout("raid10")), 2).await;
            check().await;
            converted(&pool, &volume, Some(layout("raid6")), 4).await;
            check().await;
            converted(&pool, &volume, Some(layout("raid5")), 1).await;
            check().await;
            volume.flush().await.expect("flushed");
            pool.close().await.expect("closed");
            let pool = open(&life, &drives).await.expect("opened");
            let volume = pool.volume("data").expect("it is there");
            holds(&volume, 1, 0, 4 * MIB).await.expect("as written");
        });
    }
}

#[test]
fn cancelled_conversion_to_slices_goes_back() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&images), 100 << 10).await;
        let volume = full_volume(&pool, sliced("data", "raid5", 2, SIZE), 1).await;
        pool.convert("data", None, Some(5)).await.expect("begun");
        pool.cancel_conversion("data").await.expect("nothing was copied");
        assert_eq!(volume.info().expect("it is there").slices, 2);
        pool.convert("data", Some(layout("raid6")), Some(5)).await.expect("begun");
        pool.start_jobs();
        while volume.info().and_then(|info| info.conversion).is_some_and(|c| c.next_offset_bytes == 0) {
            life.context.sleep_ns(100_000).await;
        }
        if pool.cancel_conversion("data").await.is_ok() {
            fill(&volume, 1, MIB, 2 * MIB).await;
            pool.wait(JobKind::Convert).await.expect("gone back");
            assert_eq!(volume.info().expect("it is there").slices, 2);
        }
        holds(&volume, 1, 0, SIZE).await.expect("as written");
        scrubbed_clean(&volume).await;
    });
}

#[test]
fn lost_blocks_keep_their_places_when_slices_change() {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&images), 100 << 10).await;
        let volume = full_volume(&pool, sliced("data", "raid5", 3, SIZE), 1).await;
        volume.flush().await.expect("flushed");
        for array in volume.arrays() {
            array.note_dead_blocks([5, 200]);
        }
        let refused = async || {
            let mut lost = Vec::new();
            for block in 0..SIZE / BLOCK {
                match volume.read(block * BLOCK, BLOCK as usize).await {
                    Ok(read) => assert!(read.to_vec() == contents(1, block * BLOCK, BLOCK as usize)),
                    Err(_) => lost.push(block),
                }
            }
            lost
        };
        let before = refused().await;
        assert_eq!(before.len(), 6);
        for slices in [2, 1, 4] {
            pool.convert("data", None, Some(slices)).await.expect("begun");
            pool.wait(JobKind::Convert).await.expect("converted");
            assert_eq!(refused().await, before, "{slices} slices");
            assert_eq!(volume.info().expect("it is there").lost_blocks, 6);
        }
        let data = |block: u64| Buffer::from_bytes(&contents(1, block * BLOCK, BLOCK as usize));
        for block in before {
            volume.write(block * BLOCK, data(block), false).await.expect("written over");
        }
        volume.flush().await.expect("flushed");
        holds(&volume, 1, 0, SIZE).await.expect("whole again");
    });
}

/// A pool with a volume of which everything was written and flushed.
fn prepared(slices: u32) -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, 64);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&images), 100 << 10).await;
        full_volume(&pool, sliced("data", "raid5", slices, SIZE), 1).await;
        pool.close().await.expect("closed");
    });
    images
}

fn cut_amid_conversion((from, to): (u32, u32)) {
    let start = prepared(from);
    let run = |at: u64| {
        let cut = Cut::over(&start, at);
        let life = Life::new();
        life.run(async {
            let pool = open(&life, &cut.drives(&life.context)).await.expect("opened");
            let volume = pool.volume("data").expect("it is there");
            cut.arm(at);
            if pool.convert("data", None, Some(to)).await.is_err() {
                return;
            }
            pool.start_jobs();
            // The same contents are written again, so that any block may be in flight.
            let mut random = SplitMix64::new(at);
            for _ in 0..40 {
                let block = random.below(SIZE / BLOCK);
                let data = Buffer::from_bytes(&contents(1, block * BLOCK, BLOCK as usize));
                if volume.write(block * BLOCK, data, random.chance(0.3)).await.is_err() {
                    return;
                }
            }
            let _ = pool.wait(JobKind::Convert).await;
        });
        (cut.writes(), cut.images())
    };
    let (total, _) = run(u64::MAX);
    for at in (1..=total).step_by((total / CUTS).max(1) as usize) {
        let (_, images) = run(at);
        let life = Life::new();
        life.run(async {
            let what = format!("cut at write {at} of {total}");
            let pool =
                open(&life, &as_drives(&images)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let volume = pool.volume("data").unwrap_or_else(|error| panic!("{what}: {error}"));
            holds(&volume, 1, 0, SIZE).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            pool.wait(JobKind::Convert).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            pool.wait(JobKind::Scrub).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let slices = volume.info().expect("it is there").slices;
            assert!(slices == to || slices == from, "{what}: {slices}");
            holds(&volume, 1, 0, SIZE).await.unwrap_or_else(|error| panic!("{what}, at its end: {error}"));
            scrubbed_clean(&volume).await;
            pool.fail_drive(id_of(&pool.status(), "drive1"), "to see").await.expect("spared");
            holds(&volume, 1, 0, SIZE).await.unwrap_or_else(|error| panic!("{what}, degraded: {error}"));
        });
    }
}

test_cases! {
    conversion_of_slices_survives_any_cut = cut_amid_conversion {
        one_to_three: (1, 3),
        three_to_one: (3, 1),
        two_to_five: (2, 5),
    }
}

/// Converts a volume while a direct write to it is in flight, and reads what was written.
fn converted_beside_a_direct_write() -> Result<(), String> {
    let all: Vec<Rc<Holding>> = memory_drives(4, 32).into_iter().map(Holding::over).collect();
    let life = Life::new();
    life.run(async {
        let drawn_shards = Some(DrawnShards { shards: 2, seed: 7 });
        let options = PoolOptions { drawn_shards, ..options(7) };
        let spec = PoolSpec { options, ..spec("tank", &as_drives(&all), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("a pool");
        let spec = VolumeSpec { checksums: Some(false), ..volume_spec("data", "raid10", Some(4 * MIB)) };
        let volume = full_volume(&pool, spec, 1).await;
        let direct = volume.direct().expect("its array is on another shard");
        // The writes of the data are held back, and none that comes later.
        let length = 64 << 10;
        let catches = Rc::new(Cell::new(true));
        for drive in &all {
            let catches = catches.clone();
            let is_data = move |request: &IoRequest| {
                matches!(request.operation, Operation::Write { .. }) && request.length_bytes == length
            };
            drive.hold(move |request| catches.get() && is_data(request)).await;
        }
        let written = {
            let data = Buffer::from_bytes(&contents(2, 0, length as usize));
            let context = life.context.clone();
            life.context.spawn(async move { direct.write(&context, 0, data).await })
        };
        while all.iter().map(|drive| drive.held(|_| true)).sum::<usize>() < 2 {
            life.context.sleep_ns(1_000_000).await;
        }
        catches.set(false);
        pool.convert("data", Some(layout("raid5")), None).await.expect("begun");
        pool.start_jobs();
        life.context.sleep_ns(1_000_000_000).await;
        for drive in &all {
            drive.hold(|_| false).await;
        }
        assert!(matches!(written.await, Some(Ok(()))));
        pool.wait(JobKind::Convert).await.expect("converted");
        holds(&volume, 1, length, volume.capacity_bytes() - length).await.expect("as before");
        holds(&volume, 2, 0, length).await
    })
}

#[test]
fn a_conversion_waits_for_direct_writes() {
    converted_beside_a_direct_write().expect("as written last");
    choose(Some(Mutation::ConversionBesideDirectWrites));
    assert!(converted_beside_a_direct_write().is_err(), "a conversion that does not wait is found");
}
