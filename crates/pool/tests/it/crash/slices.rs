//! Volumes that are cut into slices, and power cuts: a flush covers all slices, also together with
//! the loss of a drive, and blocks that are not in flight stay as they were. And drives that
//! refuse a flush.
//!
//! Invariants I1, I2, I8 and I13 (`docs/internals/invariants.md`).

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{Buffer, Drive, MemoryDrive, SplitMix64};
use stripewise_pool::{JobKind, Volume, VolumeSpec};

use crate::kit::forgetful::Forgetful;
use crate::kit::pool::*;
use crate::kit::slices::{create, open, scrubbed_clean, sliced};

const BLOCK: u64 = 4096;
const SIZE: u64 = 6 * MIB;
const CUTS: u64 = 24;

/// A pool with a volume of which everything was written and flushed.
fn prepared(slices: u32, write_back: bool) -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(4, 40);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&images), 64 << 10).await;
        let spec = VolumeSpec { write_back: Some(write_back), ..sliced("data", "raid5", slices, SIZE) };
        full_volume(&pool, spec, 1).await;
        pool.close().await.expect("closed");
    });
    images
}

/// Possible contents of each block, by their seeds.
#[derive(Default)]
struct Model {
    durable: BTreeMap<u64, u64>,
    in_flight: BTreeMap<u64, Vec<u64>>,
}

/// Writes to random blocks, several at a time, and flushes in between, until power is cut.
async fn write_until_cut(volume: &Volume, model: &mut Model, random: &mut SplitMix64) {
    for round in 0..12 {
        let blocks: Vec<(u64, u64)> =
            (0..10).map(|_| (random.below(SIZE / BLOCK), 2 + random.below(1 << 30))).collect();
        let is_forced = round % 4 == 3;
        for (block, seed) in blocks {
            model.in_flight.entry(block).or_default().push(seed);
            let data = Buffer::from_bytes(&contents(seed, block * BLOCK, BLOCK as usize));
            if volume.write(block * BLOCK, data, is_forced).await.is_err() {
                return;
            }
            if is_forced {
                model.durable.insert(block, seed);
                model.in_flight.remove(&block);
            }
        }
        if !is_forced && volume.flush().await.is_err() {
            return;
        }
        for (block, seeds) in std::mem::take(&mut model.in_flight) {
            model.durable.insert(block, *seeds.last().expect("written"));
        }
    }
}

async fn check(volume: &Volume, model: &Model, what: &str) {
    for block in 0..SIZE / BLOCK {
        let read = volume.read(block * BLOCK, BLOCK as usize).await;
        let read = read.unwrap_or_else(|error| panic!("{what}, block {block}: {error}")).to_vec();
        let durable = model.durable.get(&block).copied().unwrap_or(1);
        let mut may = model.in_flight.get(&block).into_iter().flatten().chain([&durable]);
        let is_one = may.any(|seed| read == contents(*seed, block * BLOCK, BLOCK as usize));
        assert!(is_one, "{what}: block {block} is neither old nor new");
    }
}

fn cut_often((slices, write_back): (u32, bool)) {
    let start = prepared(slices, write_back);
    let run = |at: u64| {
        let cut = Cut::over(&start, at);
        let life = Life::new();
        let mut model = Model::default();
        life.run(async {
            let pool = open(&life, &cut.drives(&life.context)).await.expect("opened");
            let volume = pool.volume("data").expect("it is there");
            cut.arm(at);
            write_until_cut(&volume, &mut model, &mut SplitMix64::new(at)).await;
        });
        (cut.writes(), cut.images(), model)
    };
    let (total, ..) = run(u64::MAX);
    assert!(total > 100, "{total} writes");
    for at in (1..=total).step_by((total / CUTS) as usize) {
        let (_, images, model) = run(at);
        for lost in [None, Some((at % 4) as usize)] {
            let what = format!("{slices} slices cut at write {at} of {total}, without {lost:?}");
            let copies: Vec<_> = images.iter().map(|image| image.duplicate(&image.info().label)).collect();
            let mut drives = as_drives(&copies);
            if let Some(lost) = lost {
                drives.remove(lost);
            }
            let life = Life::new();
            life.run(async {
                let pool = open(&life, &drives).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                let volume = pool.volume("data").unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&volume, &model, &what).await;
                if lost.is_none() {
                    pool.wait(JobKind::Scrub).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(!volume.needs_resync(), "{what}");
                    scrubbed_clean(&volume).await;
                    pool.fail_drive(id_of(&pool.status(), "drive2"), "to see").await.expect("spared");
                    check(&volume, &model, &what).await;
                }
            });
        }
    }
}

test_cases! {
    flushed_slices_survive_cut_and_lost_drive = cut_often {
        two_slices: (2, false),
        five_slices: (5, false),
        four_slices_write_back: (4, true),
    }
}

#[test]
fn interrupted_creation_leaves_all_slices_or_none() {
    let start = memory_drives(4, 40);
    let life = Life::new();
    life.run(async { create(&life, &as_drives(&start), 64 << 10).await.close().await.expect("closed") });
    let run = |at: u64| {
        let cut = Cut::over(&start, at);
        let life = Life::new();
        life.run(async {
            let pool = open(&life, &cut.drives(&life.context)).await.expect("opened");
            cut.arm(at);
            pool.create_volume(sliced("data", "raid5", 3, 18 * MIB)).await.is_ok()
        });
        (cut.writes(), cut.images())
    };
    let (total, _) = run(u64::MAX);
    let mut created = 0;
    for at in 1..=total {
        let (_, images) = run(at);
        let life = Life::new();
        life.run(async {
            let pool = open(&life, &as_drives(&images)).await.unwrap_or_else(|error| panic!("{at}: {error}"));
            match pool.volumes().len() {
                0 => assert_eq!(pool.status().allocated_bytes, 0),
                _ => {
                    created += 1;
                    let volume = pool.volume("data").expect("it is there");
                    assert_eq!((volume.arrays().len(), volume.capacity_bytes()), (3, 18 * MIB));
                    assert!(volume.is_unwritten(0, 18 * MIB).expect("known"));
                }
            }
        });
    }
    assert!((1..total).contains(&created), "{created} of {total}");
}

#[test]
fn interrupted_resize_leaves_old_or_new_size() {
    let start = prepared(3, false);
    let run = |at: u64| {
        let cut = Cut::over(&start, at);
        let life = Life::new();
        life.run(async {
            let pool = open(&life, &cut.drives(&life.context)).await.expect("opened");
            cut.arm(at);
            pool.resize_volume("data", 2 * SIZE).await.is_ok()
        });
        (cut.writes(), cut.images())
    };
    let (total, _) = run(u64::MAX);
    let mut sizes: Vec<u64> = Vec::new();
    for at in 1..=total {
        let (_, images) = run(at);
        let life = Life::new();
        life.run(async {
            let pool = open(&life, &as_drives(&images)).await.unwrap_or_else(|error| panic!("{at}: {error}"));
            let volume = pool.volume("data").expect("it is there");
            holds(&volume, 1, 0, SIZE).await.unwrap_or_else(|error| panic!("{at}: {error}"));
            let beyond = volume.capacity_bytes() - SIZE;
            let read = volume.read(SIZE, beyond as usize).await.expect("read").to_vec();
            assert!(read.iter().all(|byte| *byte == 0), "{at}");
            sizes.push(volume.capacity_bytes());
        });
    }
    assert!(sizes.contains(&SIZE) && sizes.iter().all(|size| [SIZE, 2 * SIZE].contains(size)));
}

fn forgetful_drives(count: usize) -> Vec<Rc<Forgetful>> {
    memory_drives(count, 40).into_iter().map(Forgetful::over).collect()
}

#[test]
fn flush_reports_losses_of_all_slices_once() {
    for checksums in [false, true] {
        let all = forgetful_drives(3);
        let life = Life::new();
        life.run(async {
            let pool = create(&life, &as_drives(&all), 64 << 10).await;
            let spec = VolumeSpec { checksums: Some(checksums), ..sliced("data", "raid0", 4, SIZE) };
            let volume = full_volume(&pool, spec, 1).await;
            volume.flush().await.expect("flushed");
            life.context.sleep_ns(30_000_000_000).await;
            let first = volume.arrays()[0].rows().place(0, 0).expect("a row").drive as usize;
            for refusal in 0..6 {
                // In every other round the other slices have nothing to flush, and end at once.
                let (end, drive) = if refusal % 2 == 0 { (SIZE, refusal as usize % 3) } else { (1, first) };
                let blocks = (0..end).step_by(128 << 10);
                let writes = blocks.map(|at| {
                    let data = Buffer::from_bytes(&contents(refusal, at, BLOCK as usize));
                    volume.write(at, data, false)
                });
                join_all(writes).await.into_iter().for_each(|written| written.expect("written"));
                all[drive].refuse_next();
                volume.flush().await.expect_err("writes were lost");
                volume.flush().await.expect("nothing was lost since");
                volume.flush().await.expect("nothing was lost since");
            }
        });
    }
}

#[test]
fn sliced_volume_goes_on_without_a_forgetful_drive() {
    let all = forgetful_drives(4);
    let life = Life::new();
    life.run(async {
        let pool = create(&life, &as_drives(&all), 64 << 10).await;
        let volume = full_volume(&pool, sliced("data", "raid5", 4, SIZE), 1).await;
        volume.flush().await.expect("flushed");
        life.context.sleep_ns(30_000_000_000).await;
        fill(&volume, 2, 0, SIZE).await;
        all[1].refuse_next();
        volume.flush().await.expect("it can do without a drive");
        assert_eq!(all[1].refused.get(), 1);
        assert_eq!(state_of(&pool.status(), "drive1"), "failed");
        holds(&volume, 2, 0, SIZE).await.expect("as written");
        let spare: Rc<dyn Drive> = MemoryDrive::new("drive4", 40 * MIB);
        pool.replace(id_of(&pool.status(), "drive1"), spare, false).await.expect("replaced");
        pool.wait(JobKind::Rebuild).await.expect("rebuilt");
        scrubbed_clean(&volume).await;
        pool.fail_drive(id_of(&pool.status(), "drive2"), "to see").await.expect("spared");
        holds(&volume, 2, 0, SIZE).await.expect("as written");
    });
}
