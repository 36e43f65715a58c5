//! More deferred writes than the journal holds: every client makes progress, and no data is lost.
//!
//! Invariant I5 (`docs/internals/invariants.md`).

use crate::kit;
use std::cell::RefCell;
use std::rc::Rc;

use crate::kit::pool::{Life, MIB, as_drives, contents, memory_drives, spec, volume_spec};
use futures_util::future::join_all;
use stripewise_drive::{Buffer, Drive, MemoryDrive, ModelDrive, ModelSpec, SplitMix64};
use stripewise_pool::{JobKind, OpenMode, Pool, PoolSpec, Volume, VolumeSpec};

const BLOCK: u64 = 4096;
const SPAN: u64 = 16 * MIB;
const CLIENTS: u64 = 160;
const WRITES: u64 = 60;
/// Larger than a write that may be deferred.
const LARGE: u64 = 384 << 10;
/// Many times what the drives need.
const LIMIT_NS: u64 = 60_000_000_000;

/// Seed of the newest contents of each block.
type Written = RefCell<Vec<u64>>;

fn modelled(life: &Life, drives: &[Rc<MemoryDrive>], spec: ModelSpec) -> Vec<Rc<dyn Drive>> {
    let one = |(index, drive): (usize, &Rc<MemoryDrive>)| {
        let inner: Rc<dyn Drive> = drive.clone();
        let bytes = inner.info().capacity_bytes;
        ModelDrive::new(&life.context, &format!("drive{index}"), bytes, spec, inner) as Rc<dyn Drive>
    };
    drives.iter().enumerate().map(one).collect()
}

async fn put(volume: &Volume, written: &Written, block: u64, count: u64, seed: u64) {
    let data = Buffer::from_bytes(&contents(seed, block * BLOCK, (count * BLOCK) as usize));
    volume.write(block * BLOCK, data, false).await.expect("written");
    written.borrow_mut()[block as usize..(block + count) as usize].fill(seed);
}

/// Writes the client's own blocks, scattered over the volume; one in eight clients writes large
/// pieces after that range instead.
async fn client(volume: &Volume, written: &Written, number: u64) {
    let mut random = SplitMix64::new(number);
    for turn in 0..WRITES {
        let seed = number * WRITES + turn + 2;
        if number.is_multiple_of(8) {
            let at = (SPAN + number / 8 * LARGE) / BLOCK;
            put(volume, written, at, LARGE / BLOCK, seed).await;
        } else {
            let block = random.below(SPAN / BLOCK / CLIENTS) * CLIENTS + number;
            put(volume, written, block, 1, seed).await;
        }
    }
}

async fn check(volume: &Volume, written: &Written) {
    let seeds = written.borrow().clone();
    for (block, seed) in seeds.iter().enumerate() {
        let at = block as u64 * BLOCK;
        kit::pool::holds(volume, *seed, at, BLOCK).await.expect("the newest version");
    }
}

fn more_than_the_journal_takes(model: ModelSpec, checksums: bool) {
    let drives = memory_drives(4, 96);
    let life = Life::new();
    let end = SPAN + CLIENTS.div_ceil(8) * LARGE;
    let written = RefCell::new(vec![1; (end / BLOCK) as usize]);
    life.run(async {
        let drives = modelled(&life, &drives, model);
        let pool = PoolSpec { drives: drives.clone(), ..spec("tank", &drives, &[]) };
        let pool = Pool::create(&life.context, &life.buffers, pool).await.expect("a pool");
        let wish = VolumeSpec {
            write_back: Some(true),
            checksums: Some(checksums),
            ..volume_spec("data", "raid5", Some(end))
        };
        let volume = pool.create_volume(wish).await.expect("a volume");
        kit::pool::fill(&volume, 1, 0, end).await;
        let clients = join_all((0..CLIENTS).map(|number| client(&volume, &written, number)));
        let clients = std::pin::pin!(clients);
        life.context.time_limit_ns(LIMIT_NS, clients).await.expect("no deadlock of clients");
        check(&volume, &written).await;
        volume.flush().await.expect("flushed");
        // Not closed: acknowledged writes may be in the journal only.
    });
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &drives, model);
        let pool = life.open(&drives).await.expect("opened again");
        check(&pool.volume("data").expect("it is there"), &written).await;
        pool.start_jobs();
        pool.scrub().await.expect("begun");
        pool.wait(JobKind::Scrub).await.expect("scrubbed");
        for summary in pool.scrub_reports() {
            let report = &summary.report;
            assert!(summary.error.is_none() && report.blamed.is_empty(), "{summary:?}");
            assert_eq!(report.unattributed_blocks, 0, "{summary:?}");
        }
        pool.close().await.expect("closed");
    });
}

#[test]
fn write_back_progresses_on_quick_drives() {
    let quick = ModelSpec { latency_ns: 100_000, bytes_per_second: 500_000_000, queue_depth: 32 };
    more_than_the_journal_takes(quick, true);
    more_than_the_journal_takes(quick, false);
}

#[test]
fn write_back_progresses_on_slow_drives() {
    let slow = ModelSpec { latency_ns: 4_000_000, bytes_per_second: 200_000_000, queue_depth: 4 };
    more_than_the_journal_takes(slow, true);
}

#[test]
fn blocks_at_strip_ends_destage_in_reserved_room() {
    // On a disk two blocks are written as one range, with the old parity between them. If all of
    // that were logged, a stripe would take thirty times the space of its two blocks.
    const STRIP: u64 = 256 << 10;
    const STRIPES: u64 = 300;
    let slow = ModelSpec { latency_ns: 4_000_000, bytes_per_second: 200_000_000, queue_depth: 1 };
    let drives = memory_drives(4, 128);
    let life = Life::new();
    life.run(async {
        let drives = modelled(&life, &drives, slow);
        let pool = PoolSpec { drives: drives.clone(), ..spec("tank", &drives, &[]) };
        let pool = Pool::create(&life.context, &life.buffers, pool).await.expect("a pool");
        let end = STRIPES * 3 * STRIP;
        let mut wish = VolumeSpec { write_back: Some(true), ..volume_spec("data", "raid5", Some(end)) };
        wish.layout.interleave_bytes = Some(STRIP);
        let volume = pool.create_volume(wish).await.expect("a volume");
        kit::pool::fill(&volume, 1, 0, end).await;
        let written = RefCell::new(vec![1; (end / BLOCK) as usize]);
        let client = async |number: u64| {
            for stripe in (number..STRIPES).step_by(32) {
                let first = stripe * 3 * STRIP / BLOCK;
                put(&volume, &written, first, 1, 2 * stripe + 2).await;
                put(&volume, &written, first + STRIP / BLOCK - 1, 1, 2 * stripe + 3).await;
            }
        };
        let clients = std::pin::pin!(join_all((0..32).map(client)));
        life.context.time_limit_ns(LIMIT_NS, clients).await.expect("no client waits forever");
        let closed = std::pin::pin!(pool.close());
        life.context.time_limit_ns(LIMIT_NS, closed).await.expect("in time").expect("closed");
    });
}

/// Reads the whole volume.
async fn all_of(volume: &Volume) -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in (0..volume.capacity_bytes()).step_by(MIB as usize) {
        bytes.extend(volume.read(at, MIB as usize).await.expect("read").to_vec());
    }
    bytes
}

#[test]
fn read_only_pool_shows_journaled_data() {
    for checksums in [true, false] {
        let images = memory_drives(4, 64);
        let life = Life::new();
        life.run(async {
            let pool = life.create(&as_drives(&images), &[]).await.expect("a pool");
            let wish = VolumeSpec {
                write_back: Some(true),
                checksums: Some(checksums),
                ..volume_spec("data", "raid5", Some(24 * MIB))
            };
            let volume = pool.create_volume(wish).await.expect("a volume");
            kit::pool::fill(&volume, 1, 0, 12 * MIB).await;
            volume.flush().await.expect("flushed");
            // Over existing data, and in unwritten space.
            for block in (0..20 * MIB / BLOCK).step_by(97) {
                let data = Buffer::from_bytes(&contents(2, block * BLOCK, BLOCK as usize));
                volume.write(block * BLOCK, data, false).await.expect("written");
            }
            volume.flush().await.expect("flushed");
            assert!(volume.array().pending_bytes() > 0, "some of it is in the journal only");
            // Not closed, as after a kill.
        });
        let before: Vec<Vec<u8>> = images.iter().map(|image| kit::pool::image(image)).collect();
        let life = Life::new();
        let shown = life.run(async {
            let pool = life.open_as(&as_drives(&images), OpenMode::ReadOnly).await.expect("opened");
            assert!(pool.recover_in_memory().await);
            let volume = pool.volume("data").expect("it is there");
            let (first, second) = futures_util::future::join(all_of(&volume), all_of(&volume)).await;
            assert!(first == second);
            assert!(volume.write(0, Buffer::from_bytes(&[0; 4096]), false).await.is_err());
            pool.close().await.expect("closed");
            first
        });
        for block in (0..20 * MIB / BLOCK).step_by(97) {
            let at = (block * BLOCK) as usize;
            assert!(
                shown[at..at + BLOCK as usize] == contents(2, at as u64, BLOCK as usize),
                "block {block}"
            );
        }
        for (image, before) in images.iter().zip(&before) {
            assert!(kit::pool::image(image) == *before, "no drive was written to");
        }
        life.run(async {
            let pool = life.open(&as_drives(&images)).await.expect("opened");
            let volume = pool.volume("data").expect("it is there");
            assert!(all_of(&volume).await == shown, "the same as after destaging everything");
            pool.close().await.expect("closed");
            let pool = life.open_as(&as_drives(&images), OpenMode::ReadOnly).await.expect("opened");
            assert!(!pool.recover_in_memory().await, "nothing left to replay");
            pool.close().await.expect("closed");
        });
    }
}
