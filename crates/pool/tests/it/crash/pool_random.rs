//! Random histories of a pool: writes, drives lost, unplugged and returned, spares, interrupted
//! rebuilds and scrubs, volumes created and deleted, clean closes and power cuts. At the start of
//! each life all flushed data must be found.
//!
//! Runs are repeatable: a failure names its seed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::kit::pool::*;
use crate::kit::seeds::sweep;
use stripewise_drive::{Buffer, CrashDrive, Delay, Drive, FaultyDrive, MemoryDrive, SplitMix64};
use stripewise_pool::{DriveState, JobKind, Pool, PoolError, PoolState, ShareState, Volume};
use stripewise_runtime::VirtualExecutor;

const DRIVES: usize = 8;
const DATA_DRIVES: usize = 4;
const LIVES: usize = 12;

/// Expected contents of a volume: the seed of each stripe, 0 if it was never written, `None` if
/// power was cut during its write.
type Contents = Vec<Option<u64>>;

struct World {
    random: SplitMix64,
    levels: Vec<&'static str>,
    /// Maximum number of drives that may be out of service at once.
    tolerance: usize,
    /// Number of drives out of service or not rebuilt yet.
    out: usize,
    model: BTreeMap<String, Contents>,
    next_seed: u64,
    log: Vec<String>,
}

struct Drives {
    crash: Vec<Rc<CrashDrive>>,
    faulty: Vec<Rc<FaultyDrive>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let (levels, tolerance): (&[&str], usize) = match random.below(3) {
            0 => (&["raid6"], 2),
            1 => (&["raid5", "raid10", "raid4"], 1),
            _ => (&["raid5", "raid6", "raid10"], 1),
        };
        let (model, log) = (BTreeMap::new(), Vec::new());
        Self { random, levels: levels.to_vec(), tolerance, out: 0, model, next_seed: 1, log }
    }

    fn note(&mut self, what: String) {
        self.log.push(what);
    }

    fn pick(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    fn volume_name(&mut self) -> Option<String> {
        let index = self.random.below(self.model.len().max(1) as u64) as usize;
        self.model.keys().nth(index).cloned()
    }
}

fn stripe_bytes(volume: &Volume) -> u64 {
    volume.geometry().stripe_data_bytes()
}

async fn write_stripes(volume: &Volume, seed: u64, first: u64, count: u64) -> bool {
    let bytes = stripe_bytes(volume);
    for stripe in first..first + count {
        let data = Buffer::from_bytes(&contents(seed, stripe * bytes, bytes as usize));
        if volume.write(stripe * bytes, data, false).await.is_err() {
            return false;
        }
    }
    true
}

async fn verify(pool: &Pool, world: &World) {
    for (name, contents_of) in &world.model {
        let volume = pool.volume(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let bytes = stripe_bytes(&volume);
        for (stripe, expected) in contents_of.iter().enumerate() {
            let at = stripe as u64 * bytes;
            let expected = match expected {
                None => continue,
                Some(0) => vec![0; bytes as usize],
                Some(seed) => contents(*seed, at, bytes as usize),
            };
            let read = volume.read(at, bytes as usize).await;
            let read = read.unwrap_or_else(|error| panic!("{name}, stripe {stripe}: {error}"));
            assert!(read.to_vec() == expected, "{name}, stripe {stripe} is wrong");
        }
    }
}

/// Makes one random change while the pool is open.
async fn step(world: &mut World, life: &Life, pool: &Pool, drives: &Drives) {
    match world.pick(14) {
        0..=4 => {
            let Some(name) = world.volume_name() else { return };
            let volume = pool.volume(&name).expect("open");
            let stripes = world.model[&name].len() as u64;
            let first = world.random.below(stripes);
            let count = 1 + world.random.below((stripes - first).min(6));
            let seed = world.next_seed;
            world.next_seed += 1;
            world.note(format!("write {name} {first}+{count} seed {seed}"));
            assert!(write_stripes(&volume, seed, first, count).await, "written");
            volume.flush().await.expect("flushed");
            for stripe in first..first + count {
                world.model.get_mut(&name).unwrap()[stripe as usize] = Some(seed);
            }
        }
        5 if world.out < world.tolerance => {
            let used: Vec<usize> = (0..DRIVES)
                .filter(|index| {
                    let label = format!("drive{index}");
                    pool.status()
                        .drives
                        .iter()
                        .any(|drive| drive.path == label && drive.state == DriveState::Online)
                })
                .collect();
            let lost = used[world.pick(used.len())];
            let status = pool.status();
            let record = status.drives.iter().find(|drive| drive.path == format!("drive{lost}")).unwrap();
            if format!("{:?}", record.role) == "Data" {
                world.out += 1;
            }
            if world.pick(2) == 0 {
                world.note(format!("unplug {lost}"));
                drives.faulty[lost].unplug();
            } else {
                world.note(format!("fail {lost}"));
                pool.fail_drive(record.id, "a test").await.expect("failed");
            }
        }
        6 => {
            let status = pool.status();
            let Some(gone) = status
                .drives
                .iter()
                .find(|drive| matches!(drive.state.word(), "failed" | "missing" | "stale"))
            else {
                return;
            };
            let free: Vec<usize> = (0..DRIVES)
                .filter(|index| {
                    let label = format!("drive{index}");
                    status.drives.iter().all(|drive| drive.path != label || drive.id == gone.id)
                })
                .collect();
            let new = free[world.pick(free.len())];
            drives.faulty[new].plug_in();
            world.note(format!("replace {} by drive{new}", gone.path));
            match pool.replace(gone.id, drives.faulty[new].clone(), false).await {
                // A spare was activated first.
                Ok(_) | Err(PoolError::NoSuchDrive { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        7 => {
            world.note("wait for rebuilds".to_owned());
            pool.wait(JobKind::Rebuild).await.expect("rebuilt");
            let status = pool.status();
            let lacking = |volume: &stripewise_pool::VolumeInfo| {
                volume.slots.iter().filter(|slot| slot.state != ShareState::Active).count()
            };
            // Unplugged drives without I/O since then are out too.
            let unseen = drives.faulty.iter().enumerate().filter(|(index, drive)| {
                let label = format!("drive{index}");
                let online = status.drives.iter().any(|drive| {
                    drive.path == label
                        && drive.state == DriveState::Online
                        && format!("{:?}", drive.role) == "Data"
                });
                online && is_unplugged(drive)
            });
            world.out = status.volumes.iter().map(lacking).max().unwrap_or(0) + unseen.count();
        }
        8 => {
            pool.start_jobs();
            let ms = world.random.below(400);
            world.note(format!("jobs for {ms} ms"));
            life.context.sleep_ns(ms * 1_000_000).await;
        }
        9 => {
            world.note("scrub".to_owned());
            pool.scrub().await.expect("recorded");
        }
        10 if world.model.len() < 3 => {
            let name = format!("v{}", world.next_seed);
            world.next_seed += 1;
            let choice = world.pick(world.levels.len());
            let level = world.levels[choice];
            let usable = pool.status().drives.iter().filter(|drive| is_usable(drive)).count();
            let mut spec = volume_spec(&name, level, Some(2 * MIB));
            spec.layout.columns = Some(DATA_DRIVES);
            world.note(format!("create {name} {level}"));
            match pool.create_volume(spec).await {
                Ok(volume) => {
                    let stripes = (volume.capacity_bytes() / stripe_bytes(&volume)) as usize;
                    world.model.insert(name, vec![Some(0); stripes]);
                }
                Err(error) => {
                    assert!(usable < DATA_DRIVES || error.to_string().contains("failed"), "{error}")
                }
            }
        }
        11 if world.model.len() > 1 => {
            let name = world.volume_name().expect("there are some");
            world.note(format!("delete {name}"));
            pool.delete_volume(&name).await.expect("deleted");
            world.model.remove(&name);
        }
        12 => {
            let at = world.pick(DRIVES);
            drives.faulty[at].set_delay(Delay::Exponential { mean_ns: 1_000_000 });
        }
        _ => {
            world.note("verify".to_owned());
            verify(pool, world).await;
        }
    }
}

fn is_usable(drive: &stripewise_pool::DriveStatus) -> bool {
    format!("{:?}", drive.role) == "Data" && matches!(drive.state.word(), "online" | "rebuilding")
}

/// True if requests to the drive fail.
fn is_unplugged(drive: &Rc<FaultyDrive>) -> bool {
    let buffer = Buffer::from_bytes(&[0; 512]);
    let answer = drive.submit(stripewise_drive::IoRequest::read(0, buffer)).try_take();
    matches!(answer, Ok(Err(_)))
}

/// Runs one life from the images of the previous one; returns the images it leaves.
fn live(world: &mut World, images: &[Rc<MemoryDrive>], number: usize) -> Vec<Rc<MemoryDrive>> {
    let shuffle = world.random.next_u64();
    let executor = VirtualExecutor::shuffled(shuffle);
    let context = executor.context();
    let life = Life { executor, context, buffers: stripewise_drive::BufferPool::new(8 << 20) };
    let crash: Vec<_> =
        images.iter().map(|image| CrashDrive::from_image(&image.info().label, image)).collect();
    let faulty: Vec<_> = crash
        .iter()
        .enumerate()
        .map(|(index, drive)| {
            let drive = FaultyDrive::new(&life.context, drive.clone(), shuffle + index as u64);
            drive.set_delay(Delay::Exponential { mean_ns: 50_000 });
            drive
        })
        .collect();
    let drives = Drives { crash, faulty };
    life.run(async {
        let mut at_hand: Vec<usize> = (0..DRIVES).collect();
        for index in (1..DRIVES).rev() {
            at_hand.swap(index, world.pick(index + 1));
        }
        let pool = if number == 0 {
            let all = as_drives(&drives.faulty);
            let pool = life.create(&all[..DATA_DRIVES], &all[DATA_DRIVES..=DATA_DRIVES]).await.unwrap();
            let level = world.levels[0];
            let mut spec = volume_spec("v0", level, Some(3 * MIB));
            spec.layout.columns = Some(DATA_DRIVES);
            let volume = pool.create_volume(spec).await.unwrap();
            let stripes = (volume.capacity_bytes() / stripe_bytes(&volume)) as usize;
            world.model.insert("v0".to_owned(), vec![Some(0); stripes]);
            pool
        } else {
            if world.out < world.tolerance && world.pick(3) == 0 {
                let missing = at_hand.pop().unwrap();
                world.note(format!("open without drive{missing}"));
            } else {
                world.note("open".to_owned());
            }
            let chosen: Vec<Rc<dyn Drive>> =
                at_hand.iter().map(|index| drives.faulty[*index].clone() as Rc<dyn Drive>).collect();
            let pool = life.open(&chosen).await.unwrap();
            let status = pool.status();
            assert_ne!(status.state, PoolState::Failed, "{status:#?}");
            let lacking = |volume: &stripewise_pool::VolumeInfo| {
                volume.slots.iter().filter(|slot| slot.state != ShareState::Active).count()
            };
            world.out = status.volumes.iter().map(lacking).max().unwrap_or(0);
            assert!(world.out <= world.tolerance, "{status:#?}");
            pool
        };
        verify(&pool, world).await;
        if world.pick(2) == 0 {
            pool.start_jobs();
        }
        for _ in 0..world.pick(12) {
            step(world, &life, &pool, &drives).await;
        }
        if world.pick(3) == 0 {
            world.note("close".to_owned());
            pool.close().await.expect("closed");
        } else {
            // A write is in flight when power is cut.
            let name = world.volume_name().expect("at least one");
            let volume = pool.volume(&name).expect("open");
            let stripes = world.model[&name].len() as u64;
            let (first, seed) = (world.random.below(stripes), world.next_seed);
            let count = (stripes - first).min(4);
            world.next_seed += 1;
            life.context.spawn(async move { write_stripes(&volume, seed, first, count).await });
            let us = world.random.below(2000);
            world.note(format!("cut {us} us into writing {name} {first}+{count}"));
            life.context.sleep_ns(us * 1000).await;
            for stripe in first..first + count {
                world.model.get_mut(&name).unwrap()[stripe as usize] = None;
            }
        }
    });
    let seed = world.random.next_u64();
    drives.crash.iter().map(|drive| drive.image_after_cut(&drive.info().label, seed)).collect()
}

fn live_each(seeds: Range<u64>) {
    for seed in sweep(seeds) {
        let mut world = World::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut images = memory_drives(DRIVES, 48);
            for number in 0..LIVES {
                world.note(format!("life {number}"));
                images = live(&mut world, &images, number);
            }
        }));
        if outcome.is_err() {
            panic!("seed {seed}, after:\n{}", world.log.join("\n"));
        }
    }
}

test_cases! {
    flushed_data_survives_random_pool_operations = live_each {
        from_1: 1..7,
        from_7: 7..13,
        from_13: 13..19,
        from_19: 19..25,
    }
}
