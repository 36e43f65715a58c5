//! Seeks per kind of work, that is, requests that do not begin where the previous one on the drive
//! ended, by cause. Counted, in virtual time, on drives where each costs as much as transferring 1
//! MB.

use std::cell::RefCell;
use std::rc::Rc;

use crate::kit::pool::{Life, MIB, as_drives, full_volume, memory_drives, replace_failed, spec, volume_spec};
use futures_util::future::join_all;
use stripewise_drive::{
    Buffer, BufferPool, Cause, CauseTable, Drive, ModelDrive, ModelSpec, NullDrive, Pace, PacedDrive,
};
use stripewise_pool::{JobKind, Pool, Volume, VolumeSpec};

fn disks(life: &Life, count: usize, mib: u64) -> Vec<Rc<dyn Drive>> {
    let pace: Pace = "200MB/s,200iops".parse().expect("a pace");
    let paced = |drive: Rc<dyn Drive>| PacedDrive::new(&life.context, drive, pace) as Rc<dyn Drive>;
    as_drives(&memory_drives(count, mib)).into_iter().map(paced).collect()
}

/// Requests of all working drives so far, by cause.
fn asked(pool: &Pool) -> CauseTable {
    let working = pool.status().drives.into_iter().filter(|drive| drive.path != "drive1");
    let members = working.filter_map(|drive| pool.member(drive.id));
    members.fold(CauseTable::default(), |sum, member| sum.plus(&member.causes()))
}

#[test]
fn every_request_is_counted_for_its_cause() {
    let life = Life::new();
    life.run(async {
        let drives = disks(&life, 4, 64);
        let pool = life.create(&drives[..3], &[]).await.expect("a pool");
        let volume = full_volume(&pool, volume_spec("data", "raid5", None), 1).await;
        volume.flush().await.expect("flushed");
        for at in 0..8 {
            let block = stripewise_drive::Buffer::from_bytes(&[7; 4096]);
            volume.write(at * 5 * MIB, block, false).await.expect("written");
        }
        volume.read(3 * MIB, 4096).await.expect("read");
        pool.start_jobs();
        replace_failed(&pool, "drive1", &drives[3]).await;
        pool.wait(JobKind::Rebuild).await.expect("rebuilt");
        let asked = asked(&pool);
        let used: Vec<Cause> = asked.used().map(|(cause, _)| cause).collect();
        for cause in [
            Cause::Data,
            Cause::PreRead,
            Cause::Parity,
            Cause::Journal,
            Cause::Checksums,
            Cause::RegionMap,
            Cause::Record,
            Cause::Flush,
            Cause::Rebuild,
        ] {
            assert!(used.contains(&cause), "{cause:?} of {used:?}");
        }
        let none = [Cause::Scrub, Cause::Job, Cause::Repair];
        assert!(none.iter().all(|cause| !used.contains(cause)), "{used:?}");
        pool.close().await.expect("closed");
    });
}

#[test]
fn idle_rebuild_takes_little_more_than_its_data() {
    let life = Life::new();
    life.run(async {
        let drives = disks(&life, 5, 256);
        let pool = life.create(&drives[..4], &[]).await.expect("a pool");
        let volume = full_volume(&pool, volume_spec("data", "raid5", None), 1).await;
        volume.flush().await.expect("flushed");
        replace_failed(&pool, "drive1", &drives[4]).await;
        let (before, began_ns) = (asked(&pool), life.context.now_ns());
        pool.start_jobs();
        pool.wait(JobKind::Rebuild).await.expect("rebuilt");
        let seconds = (life.context.now_ns() - began_ns) as f64 / 1e9;
        let asked = asked(&pool).since(&before);
        let new =
            pool.status().drives.into_iter().find(|drive| drive.path == "drive4").expect("the new drive");
        let written = pool.member(new.id).expect("it is there").causes().of(Cause::Rebuild).bytes;
        let mib = written as f64 / MIB as f64;
        let per_mib = |cause| asked.of(cause).positions as f64 / mib;
        let rate = written as f64 / 1e6 / seconds;
        let text = format!("{rate:.0} MB/s, {mib} MiB: {:?}", asked.used().collect::<Vec<_>>());
        assert!(mib > 200.0, "{text}");
        assert!(per_mib(Cause::Checksums) < 0.1, "{text}");
        assert!(per_mib(Cause::Journal) + per_mib(Cause::RegionMap) + per_mib(Cause::Record) < 0.2, "{text}");
        assert!(asked.of(Cause::Flush).requests < 100, "{text}");
        assert!(rate > 170.0, "{text}");
        pool.close().await.expect("closed");
    });
}

/// Makes writes, `depth` at a time; returns the bytes that were destaged until all were in place.
async fn destaged(life: &Life, pool: &Pool, volume: &Volume, depth: usize, writes: &[(u64, u64)]) -> u64 {
    let before = asked(pool);
    let left = RefCell::new(writes.iter());
    let job = |_| async {
        loop {
            let Some(&(at, bytes)) = left.borrow_mut().next() else { break };
            let data = Buffer::from_bytes(&vec![5; bytes as usize]);
            volume.write(at, data, false).await.expect("written");
        }
    };
    join_all((0..depth).map(job)).await;
    life.context.sleep_ns(60_000_000_000).await;
    asked(pool).since(&before).of(Cause::Destage).bytes
}

#[test]
fn small_writes_defer_but_streams_go_in_place() {
    let life = Life::new();
    life.run(async {
        let pool = life.create(&disks(&life, 4, 512), &[]).await.expect("a pool");
        let spec = VolumeSpec { write_back: Some(true), ..volume_spec("data", "raid5", Some(512 * MIB)) };
        let volume = full_volume(&pool, spec, 1).await;
        volume.flush().await.expect("flushed");
        let scattered: Vec<(u64, u64)> = (0..1024).map(|at| (at * 293 % 1024 * (MIB / 2), 4096)).collect();
        let stream: Vec<(u64, u64)> = (0..256).map(|at| (at * MIB, MIB)).collect();
        let (small, large) = (1024 * 4096, 256 * MIB);
        let alone = destaged(&life, &pool, &volume, 8, &scattered).await;
        assert!(alone >= small, "{alone} of {small} bytes and their parity");
        let deep = destaged(&life, &pool, &volume, 1024, &scattered).await;
        assert!(deep < alone / 2, "{deep} bytes, {alone} with few in flight");
        let streamed = destaged(&life, &pool, &volume, 16, &stream).await;
        assert!(streamed < large / 8, "{streamed} of {large} bytes");
        let slowly = destaged(&life, &pool, &volume, 1, &stream).await;
        // As much as the memory for pending writes holds.
        assert!(slowly >= 48 * MIB, "{slowly} of {large} bytes");
        pool.close().await.expect("closed");
    });
}

/// A mixed load for this many seconds: 32 jobs that read and write 4 KiB to 2 MiB at random places.
async fn mixed_load(life: &Life, volume: &Volume, seconds: u64) {
    let until_ns = life.context.now_ns() + seconds * 1_000_000_000;
    let blocks = volume.capacity_bytes() / 4096;
    let job = |seed| {
        let context = life.context.clone();
        async move {
            let mut random = stripewise_drive::SplitMix64::new(seed);
            while context.now_ns() < until_ns {
                let length = 1 + random.below(512);
                let at = random.below(blocks - length) * 4096;
                match random.below(2) {
                    0 => drop(volume.read(at, (length * 4096) as usize).await.expect("read")),
                    _ => {
                        let data = Buffer::from_bytes(&vec![seed as u8; (length * 4096) as usize]);
                        volume.write(at, data, false).await.expect("written");
                    }
                }
            }
        }
    };
    join_all((0..32).map(job)).await;
}

/// Rebuilds drive1 onto another drive, without load. Returns MB/s, seeks for checksum pages per
/// MiB, and all requests as text.
async fn idle_rebuild(life: &Life, pool: &Pool, new: &Rc<dyn Drive>) -> (f64, f64, String) {
    replace_failed(pool, "drive1", new).await;
    let (before, began_ns) = (asked(pool), life.context.now_ns());
    pool.wait(JobKind::Rebuild).await.expect("rebuilt");
    let seconds = (life.context.now_ns() - began_ns) as f64 / 1e9;
    let asked = asked(pool).since(&before);
    let label = &new.info().label;
    let status = pool.status();
    let filled = status.drives.iter().find(|drive| drive.path == **label).expect("the new drive");
    let written = pool.member(filled.id).expect("it is there").causes().of(Cause::Rebuild).bytes;
    let positions = asked.of(Cause::Checksums).positions as f64 / (written as f64 / MIB as f64);
    let text = format!("{written} bytes: {:?}", asked.used().collect::<Vec<_>>());
    (written as f64 / 1e6 / seconds, positions, text)
}

#[test]
fn idle_rebuild_after_mixed_load_rarely_seeks() {
    for layout in ["raid5", "raid10"] {
        let life = Life::new();
        life.run(async {
            let drives = disks(&life, 5, 256);
            let pool = life.create(&drives[..4], &[]).await.expect("a pool");
            let volume = full_volume(&pool, volume_spec("data", layout, None), 1).await;
            pool.start_jobs();
            mixed_load(&life, &volume, 2).await;
            let (rate, positions, text) = idle_rebuild(&life, &pool, &drives[4]).await;
            println!("{layout}: {rate:.0} MB/s, {positions:.2} {text}");
            assert!(rate > 180.0 && positions < 0.1, "{layout}: {rate:.0} MB/s, {positions:.2}, {text}");
            pool.close().await.expect("closed");
        });
    }
}

#[test]
fn rebuild_of_modelled_drives_costs_the_same() {
    let life = Life::new();
    life.run(async {
        let pace: Pace = "200MB/s,200iops".parse().expect("a pace");
        let paced = |index: usize| {
            let below = NullDrive::new(&format!("drive{index}"), 256 * MIB);
            PacedDrive::new(&life.context, below, pace) as Rc<dyn Drive>
        };
        let drives: Vec<Rc<dyn Drive>> = (0..5).map(paced).collect();
        let buffers = BufferPool::phantom();
        let pool =
            Pool::create(&life.context, &buffers, spec("tank", &drives[..4], &[])).await.expect("a pool");
        let volume = pool.create_volume(volume_spec("data", "raid5", None)).await.expect("a volume");
        for at in (0..volume.capacity_bytes()).step_by(3 << 20) {
            let length = (3 << 20).min(volume.capacity_bytes() - at);
            volume.write(at, buffers.allocate(length as usize), false).await.expect("written");
        }
        volume.flush().await.expect("flushed");
        pool.start_jobs();
        let (rate, positions, text) = idle_rebuild(&life, &pool, &drives[4]).await;
        println!("{rate:.0} MB/s, {positions:.2} {text}");
        assert!(rate > 180.0 && positions < 0.1, "{rate:.0} MB/s, {positions:.2}, {text}");
        pool.close().await.expect("closed");
    });
}

/// Seeks for checksum pages per MiB that a client reads or writes sequentially, in a pool that was
/// just opened.
async fn positions_of_pages(pool: &Pool, length: u64, writes: bool) -> f64 {
    let volume = pool.volume("data").expect("open");
    let before = asked(pool);
    for at in (0..length).step_by(MIB as usize) {
        match writes {
            true => volume.write(at, Buffer::from_bytes(&[7; 1 << 20]), false).await.expect("written"),
            false => drop(volume.read(at, 1 << 20).await.expect("read")),
        }
    }
    let positions = asked(pool).since(&before).of(Cause::Checksums).positions;
    positions as f64 / (length / MIB) as f64
}

#[test]
fn sequential_io_finds_checksum_pages_loaded() {
    for layout in ["raid5", "raid10"] {
        for writes in [false, true] {
            let life = Life::new();
            life.run(async {
                let drives = disks(&life, 4, 256);
                let pool = life.create(&drives, &[]).await.expect("a pool");
                drop(full_volume(&pool, volume_spec("data", layout, None), 1).await);
                pool.close().await.expect("closed");
                let pool = life.open(&drives).await.expect("opened");
                let positions = positions_of_pages(&pool, 256 * MIB, writes).await;
                println!("{layout}, writes {writes}: {positions:.2}");
                assert!(positions < 0.3, "{layout}, writes {writes}: {positions:.2} for each MiB");
                pool.close().await.expect("closed");
            });
        }
    }
}

#[test]
fn mirror_stream_keeps_both_disks_on_long_runs() {
    let life = Life::new();
    life.run(async {
        let drives = disks(&life, 4, 256);
        let pool = life.create(&drives, &[]).await.expect("a pool");
        let volume = full_volume(&pool, volume_spec("data", "raid10", None), 1).await;
        let (before, began_ns) = (asked(&pool), life.context.now_ns());
        let next = std::cell::Cell::new(0);
        let reader = |_| async {
            while next.get() < 400 * MIB {
                let at = next.replace(next.get() + MIB);
                volume.read(at, 1 << 20).await.expect("read");
            }
        };
        join_all((0..64).map(reader)).await;
        let seconds = (life.context.now_ns() - began_ns) as f64 / 1e9;
        let data = asked(&pool).since(&before).of(Cause::Data);
        let (rate, positions) = (400.0 * MIB as f64 / 1e6 / seconds, data.positions as f64 / 400.0);
        println!("{rate:.0} MB/s, {positions:.2}");
        assert!(rate > 500.0 && positions < 0.2, "{rate:.0} MB/s, {positions:.2} for each MiB");
        pool.close().await.expect("closed");
    });
}

/// Maximum and mean wait, in ms, of a client that reads 4 KiB at a time during a rebuild, and the
/// rebuild's MB/s.
fn waits_while_rebuilding(bound_ms: Option<u32>) -> (f64, f64, f64) {
    let life = Life::new();
    life.run(async {
        // A disk with a queue of its own.
        let spec = ModelSpec { latency_ns: 5_000_000, bytes_per_second: 100_000_000, queue_depth: 32 };
        let memory = memory_drives(5, 128).into_iter();
        let drives: Vec<Rc<dyn Drive>> = memory
            .enumerate()
            .map(|(index, below)| {
                let bytes = below.info().capacity_bytes;
                ModelDrive::new(&life.context, &format!("drive{index}"), bytes, spec, below) as Rc<dyn Drive>
            })
            .collect();
        let pool = life.create(&drives[..4], &[]).await.expect("a pool");
        let volume = full_volume(&pool, volume_spec("data", "raid5", None), 1).await;
        volume.flush().await.expect("flushed");
        pool.set_rebuild_latency(bound_ms).await.expect("set");
        replace_failed(&pool, "drive1", &drives[4]).await;
        pool.start_jobs();
        let began_ns = life.context.now_ns();
        let (mut longest_ns, mut sum_ns, mut count) = (0, 0, 0);
        let mut random = stripewise_drive::SplitMix64::new(1);
        // Read the last part of the volume, which the rebuild has not reached by the end of this
        // loop.
        while pool.status().activity.iter().any(|activity| activity.percent < 70.0) {
            let at = volume.capacity_bytes() / 16 * 15 + random.below(8 * MIB / 4096) * 4096;
            let from_ns = life.context.now_ns();
            volume.read(at, 4096).await.expect("read");
            let took_ns = life.context.now_ns() - from_ns;
            (longest_ns, sum_ns, count) = (longest_ns.max(took_ns), sum_ns + took_ns, count + 1);
            life.context.sleep_ns(20_000_000).await;
        }
        let seconds = (life.context.now_ns() - began_ns) as f64 / 1e9;
        let new = pool.status().drives.into_iter().find(|drive| drive.path == "drive4").expect("it is there");
        let written = pool.member(new.id).expect("it is there").causes().of(Cause::Rebuild).bytes;
        pool.close().await.expect("closed");
        (longest_ns as f64 / 1e6, sum_ns as f64 / 1e6 / f64::from(count), written as f64 / 1e6 / seconds)
    })
}

#[test]
fn rebuild_respects_the_latency_bound_and_its_rate() {
    let unbounded = waits_while_rebuilding(None);
    // An undisturbed read takes 5.1 ms.
    for (bound_ms, least_share) in [(20, 0.9), (10, 0.3)] {
        let bounded = waits_while_rebuilding(Some(bound_ms));
        let text = format!("{bound_ms} ms: {bounded:.1?}, without a bound {unbounded:.1?}");
        println!("{text}");
        let most_ms = 5.2 + f64::from(bound_ms);
        assert!(bounded.0 <= most_ms && unbounded.0 > most_ms, "{text}");
        assert!(bounded.1 < unbounded.1, "{text}");
        assert!(bounded.2 >= least_share * unbounded.2, "{text}");
    }
}
