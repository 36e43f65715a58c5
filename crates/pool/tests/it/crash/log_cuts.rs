//! Power is cut at any write to a log volume, again and again, and a drive is lost in the same
//! instant: flushed data is there, and each block holds the last durable version or a later one.
//!
//! Invariants I1 to I3 (`docs/internals/invariants.md`), for log volumes in a pool.

use std::cell::RefCell;
use std::rc::Rc;

use stripewise_drive::{Buffer, Drive, MemoryDrive, SplitMix64};
use stripewise_pool::{JobKind, Volume, VolumeSpec, VolumeState};

use crate::kit::pool::*;

const BLOCK: u64 = 4096;
const CLIENTS: u64 = 3;
const ROUNDS: u64 = 5;

/// Versions of a block.
#[derive(Clone, Default)]
struct Versions {
    /// The last one that was acknowledged as durable.
    durable: u64,
    /// The last one that was acknowledged.
    acknowledged: u64,
    /// Later ones that were sent.
    sent: Vec<u64>,
}

struct History {
    blocks: RefCell<Vec<Versions>>,
    next: RefCell<u64>,
}

fn block_of(version: u64, number: u64) -> Vec<u8> {
    let mut bytes = contents(version, number * BLOCK, BLOCK as usize);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

impl History {
    fn new(blocks: u64) -> Rc<Self> {
        Rc::new(Self {
            blocks: RefCell::new(vec![Versions::default(); blocks as usize]),
            next: RefCell::new(1),
        })
    }

    async fn write(&self, volume: &Volume, number: u64, fua: bool) -> bool {
        let version = {
            let mut next = self.next.borrow_mut();
            *next += 1;
            *next
        };
        self.blocks.borrow_mut()[number as usize].sent.push(version);
        let data = Buffer::from_bytes(&block_of(version, number));
        if volume.write(number * BLOCK, data, fua).await.is_err() {
            return false;
        }
        let block = &mut self.blocks.borrow_mut()[number as usize];
        block.acknowledged = version;
        if fua {
            block.durable = version;
        }
        true
    }

    async fn flush(&self, volume: &Volume) -> bool {
        let before: Vec<u64> = self.blocks.borrow().iter().map(|block| block.acknowledged).collect();
        if volume.flush().await.is_err() {
            return false;
        }
        for (block, version) in self.blocks.borrow_mut().iter_mut().zip(before) {
            block.durable = block.durable.max(version);
        }
        true
    }

    /// Compares a volume with the history; what it holds is durable from now on.
    async fn judge(&self, volume: &Volume, what: &str) {
        let count = self.blocks.borrow().len() as u64;
        for number in 0..count {
            let read = volume.read(number * BLOCK, BLOCK as usize).await;
            let bytes = read.unwrap_or_else(|error| panic!("{what}: block {number}: {error}")).to_vec();
            let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let block = &mut self.blocks.borrow_mut()[number as usize];
            let is_known = found == block.durable || block.sent.contains(&found);
            assert!(is_known && found >= block.durable, "{what}: block {number}: {found}, {}", block.durable);
            let expected = if found == 0 { vec![0; BLOCK as usize] } else { block_of(found, number) };
            assert!(bytes == expected, "{what}: block {number} is torn");
            *block = Versions { durable: found, acknowledged: found, sent: Vec::new() };
        }
    }
}

/// Writes until the power is cut.
async fn client(volume: Volume, history: Rc<History>, number: u64, seed: u64) {
    let mut random = SplitMix64::new(seed * CLIENTS + number);
    let blocks = history.blocks.borrow().len() as u64 / CLIENTS;
    loop {
        let at = random.below(blocks) * CLIENTS + number;
        let goes_on = match random.below(20) {
            0 => history.flush(&volume).await,
            1 => history.write(&volume, at, true).await,
            _ => history.write(&volume, at, false).await,
        };
        if !goes_on {
            return;
        }
    }
}

/// A drive fails, a spare takes its column, and power is cut again and again while that is filled.
fn rebuilding_life(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (layout, drives) = [("raid5", 4), ("raid6", 5), ("raid1", 2), ("raid10", 4)][seed as usize % 4];
    let mut images: Vec<Rc<MemoryDrive>> = memory_drives(drives + 1, 24);
    let creation = Life::new();
    let history = creation.run(async {
        let (data, spares) = images.split_at(drives);
        let pool = creation.create(&as_drives(data), &as_drives(spares)).await.unwrap();
        let spec = VolumeSpec { log: Some(15), ..volume_spec("log", layout, Some(3 * MIB)) };
        let volume = pool.create_volume(spec).await.unwrap();
        let history = History::new(volume.capacity_bytes() / BLOCK);
        let blocks = history.blocks.borrow().len() as u64;
        for number in 0..blocks {
            assert!(history.write(&volume, number, false).await);
        }
        pool.close().await.unwrap();
        history
    });
    drop(creation);
    let failed = random.below(drives as u64) as usize;
    for round in 0..ROUNDS {
        let what = format!("seed {seed}, {layout}, round {round}");
        let cut = Cut::over(&images, seed * 100 + round);
        let life = Life::new();
        life.run(async {
            let pool = life.open(&cut.drives(&life.context)).await.unwrap();
            let volume = pool.volume("log").unwrap_or_else(|error| panic!("{what}: {error}"));
            history.judge(&volume, &what).await;
            if round == 1 {
                let id = id_of(&pool.status(), &format!("drive{failed}"));
                pool.fail_drive(id, "a test").await.unwrap();
            }
            cut.arm(1 + random.below(300));
            pool.start_jobs();
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    life.context.spawn(client(volume.clone(), history.clone(), number, seed * 1000 + round))
                })
                .collect();
            for client in clients {
                client.await;
            }
        });
        drop(life);
        images = cut.images();
    }
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        let volume = pool.volume("log").unwrap();
        history.judge(&volume, &format!("seed {seed}, at the end")).await;
        pool.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(volume.info().unwrap().state, VolumeState::Online, "seed {seed}");
        pool.close().await.unwrap();
    });
    drop(life);
    for lost in (0..=drives).filter(|lost| *lost != failed) {
        let kept = images.iter().enumerate().filter(|(index, _)| *index != lost && *index != failed);
        let kept: Vec<_> = kept.map(|(_, image)| image.duplicate(&image.info().label)).collect();
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&kept)).await.unwrap();
            history.judge(&pool.volume("log").unwrap(), &format!("seed {seed}, without drive{lost}")).await;
            pool.close().await.unwrap();
        });
    }
}

fn life(seed: u64) {
    let mut random = SplitMix64::new(seed);
    let (layout, drives) = [("raid5", 4), ("raid6", 5), ("raid1", 2), ("raid10", 4)][seed as usize % 4];
    let mut images: Vec<Rc<MemoryDrive>> = memory_drives(drives, 24);
    let creation = Life::new();
    let history = creation.run(async {
        let pool = creation.create(&as_drives(&images), &[]).await.unwrap();
        let spec = VolumeSpec { log: Some(15), ..volume_spec("log", layout, Some(3 * MIB)) };
        let volume = pool.create_volume(spec).await.unwrap();
        let history = History::new(volume.capacity_bytes() / BLOCK);
        pool.close().await.unwrap();
        history
    });
    drop(creation);
    let mut is_lost = false;
    for round in 0..ROUNDS {
        let what = format!("seed {seed}, {layout}, round {round}");
        let cut = Cut::over(&images, seed * 100 + round);
        let life = Life::new();
        life.run(async {
            let pool = life.open(&cut.drives(&life.context)).await.unwrap();
            let volume = pool.volume("log").unwrap_or_else(|error| panic!("{what}: {error}"));
            history.judge(&volume, &what).await;
            cut.arm(1 + random.below(600));
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    life.context.spawn(client(volume.clone(), history.clone(), number, seed * 1000 + round))
                })
                .collect();
            for client in clients {
                client.await;
            }
        });
        drop(life);
        images = cut.images();
        if !is_lost && random.chance(0.4) {
            images.remove(random.below(images.len() as u64) as usize);
            is_lost = true;
        }
    }
    let life = Life::new();
    life.run(async {
        let drives: Vec<Rc<dyn Drive>> = as_drives(&images);
        let pool = life.open(&drives).await.unwrap();
        history.judge(&pool.volume("log").unwrap(), &format!("seed {seed}, at the end")).await;
        pool.close().await.unwrap();
    });
}

test_cases! {
    flushed_blocks_of_logs_survive_cuts_and_losses = life {
        raid5: 4,
        raid6: 5,
        raid1: 6,
        raid10: 7,
        raid5_again: 8,
        raid6_again: 9,
    }
}

test_cases! {
    logs_are_rebuilt_across_cuts = rebuilding_life {
        raid5: 4,
        raid6: 5,
        raid1: 6,
        raid10: 7,
        raid5_again: 8,
        raid6_again: 9,
        raid1_again: 10,
        raid10_again: 11,
    }
}
