//! A pool on volumes of other pools, in virtual time: its acknowledged data survives power cuts in
//! the drives two levels below, and a lower pool that goes away is like a drive that goes away.

use std::cell::RefCell;
use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Drive, MemoryDrive, SplitMix64};
use stripewise_pool::VolumeDrive;
use stripewise_pool::{JobKind, Pool, PoolState, Volume};

/// Number of drives of each lower pool.
const BELOW: usize = 3;
const SIDES: [&str; 2] = ["left", "right"];
const BLOCKS: u64 = 64;
const BLOCK: u64 = 64 << 10;

/// Lower pools, and the pool on their volumes.
struct Tower {
    below: Vec<Pool>,
    top: Pool,
}

impl Tower {
    async fn make(life: &Life, drives: &[Rc<dyn Drive>]) -> Self {
        let mut below = Vec::new();
        for (side, drives) in SIDES.iter().zip(drives.chunks(BELOW)) {
            let pool = Pool::create(&life.context, &life.buffers, spec(side, drives, &[])).await.unwrap();
            pool.create_volume(volume_spec("v", "raid5", Some(24 * MIB))).await.unwrap();
            below.push(pool);
        }
        let volumes = Self::volumes(&below);
        let top = Pool::create(&life.context, &life.buffers, spec("top", &volumes, &[])).await.unwrap();
        Self { below, top }
    }

    async fn open(life: &Life, drives: &[Rc<dyn Drive>]) -> Self {
        let mut below = Vec::new();
        for drives in drives.chunks(BELOW) {
            below.push(life.open(drives).await.unwrap());
        }
        let top = life.open(&Self::volumes(&below)).await.unwrap();
        Self { below, top }
    }

    fn volumes(below: &[Pool]) -> Vec<Rc<dyn Drive>> {
        let volume = |(side, pool): (&&str, &Pool)| {
            let volume = pool.volume("v").expect("it can be read");
            VolumeDrive::new(volume, &format!("{side}/v")) as Rc<dyn Drive>
        };
        SIDES.iter().zip(below).map(volume).collect()
    }

    fn data(&self) -> Volume {
        self.top.volume("data").unwrap()
    }

    async fn close(self) {
        self.top.close().await.unwrap();
        for pool in self.below {
            pool.close().await.unwrap();
        }
    }
}

fn prepared(layout: &str) -> Vec<Rc<MemoryDrive>> {
    let images = memory_drives(2 * BELOW, 24);
    let life = Life::new();
    life.run(async {
        let tower = Tower::make(&life, &as_drives(&images)).await;
        let volume =
            tower.top.create_volume(volume_spec("data", layout, Some(BLOCKS * BLOCK))).await.unwrap();
        fill(&volume, 1, 0, BLOCKS * BLOCK).await;
        tower.close().await;
    });
    images
}

/// Makes writes, flushes and FUA writes until power is cut. `blocks` has the possible seeds of each
/// block: the last durable one, then later ones.
async fn write_until_cut(volume: &Volume, seed: u64, blocks: &RefCell<Vec<Vec<u64>>>) {
    let mut random = SplitMix64::new(seed);
    for round in 0..60 {
        let block = random.below(BLOCKS);
        let new = seed * 1000 + round;
        let data = Buffer::from_bytes(&contents(new, block * BLOCK, BLOCK as usize));
        let forced = random.chance(0.2);
        blocks.borrow_mut()[block as usize].push(new);
        if volume.write(block * BLOCK, data, forced).await.is_err() {
            return;
        }
        if forced {
            blocks.borrow_mut()[block as usize] = vec![new];
        }
        if random.chance(0.2) {
            if volume.flush().await.is_err() {
                return;
            }
            let last = |seeds: &mut Vec<u64>| *seeds = vec![*seeds.last().expect("never empty")];
            blocks.borrow_mut().iter_mut().for_each(last);
        }
    }
}

async fn check(volume: &Volume, blocks: &[Vec<u64>], seed: u64) {
    for (index, seeds) in blocks.iter().enumerate() {
        let at = index as u64 * BLOCK;
        let read = volume.read(at, BLOCK as usize).await.unwrap().to_vec();
        for (part, bytes) in read.chunks(4096).enumerate() {
            let at = at + part as u64 * 4096;
            let is = |seed: &u64| bytes == &contents(*seed, at, 4096)[..];
            assert!(seeds.iter().any(is), "seed {seed}: block {index} part {part} is none of {seeds:?}");
        }
    }
}

#[test]
fn acknowledged_data_survives_cuts_two_levels_below() {
    for layout in ["raid0", "raid1"] {
        let start = prepared(layout);
        let run = |seed: u64, at: u64| {
            let cut = Cut::over(&start, seed);
            let blocks = RefCell::new(vec![vec![1]; BLOCKS as usize]);
            let life = Life::new();
            let drives = cut.drives(&life.context);
            life.run(async {
                let tower = Tower::open(&life, &drives).await;
                cut.arm(at);
                write_until_cut(&tower.data(), seed, &blocks).await;
            });
            (cut.writes(), cut.images(), blocks.take())
        };
        let total = run(1, u64::MAX).0;
        let mut moments = SplitMix64::new(3);
        for seed in 2..32 {
            let (_, images, blocks) = run(seed, 1 + moments.below(total));
            let life = Life::new();
            life.run(async {
                let tower = Tower::open(&life, &as_drives(&images)).await;
                assert_eq!(tower.top.status().state, PoolState::Online, "seed {seed}");
                check(&tower.data(), &blocks, seed).await;
                // A drive of each lower pool may be lost as well.
                for (side, pool) in tower.below.iter().enumerate() {
                    let victim = format!("drive{}", side * BELOW + seed as usize % BELOW);
                    pool.fail_drive(id_of(&pool.status(), &victim), "a test").await.unwrap();
                }
                check(&tower.data(), &blocks, seed).await;
                tower.close().await;
            });
        }
    }
}

#[test]
fn lower_pool_leaves_and_returns_like_a_drive() {
    let images = prepared("raid1");
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let tower = Tower::open(&life, &drives).await;
        tower.below[0].close().await.unwrap();
        let volume = tower.data();
        fill(&volume, 2, 0, 8 * BLOCK).await;
        volume.flush().await.unwrap();
        assert_eq!(tower.top.status().state, PoolState::Degraded);
        holds(&volume, 1, 8 * BLOCK, 20 * BLOCK).await.unwrap();
        tower.top.close().await.unwrap();
        tower.below[1].close().await.unwrap();
        let tower = Tower::open(&life, &drives).await;
        tower.top.wait(JobKind::Rebuild).await.unwrap();
        assert_eq!(tower.top.status().state, PoolState::Online, "{:#?}", tower.top.status());
        // The side that caught up has to suffice alone.
        tower.top.fail_drive(id_of(&tower.top.status(), "right/v"), "a test").await.unwrap();
        holds(&tower.data(), 2, 0, 8 * BLOCK).await.unwrap();
        holds(&tower.data(), 1, 8 * BLOCK, 20 * BLOCK).await.unwrap();
        tower.close().await;
    });
}
