//! What work costs a disk: positions, that is requests that do not begin where the one before them
//! on the drive ended, by cause. Counted, in virtual time, on drives where each costs as much as
//! 1 MB of data.

use std::rc::Rc;

use crate::kit::pool::{Life, MIB, as_drives, full_volume, memory_drives, replace_failed, volume_spec};
use stripewise_drive::{Cause, CauseTable, Drive, ModelDrive, ModelSpec, Pace, PacedDrive};
use stripewise_engine::{JobKind, Pool};

fn disks(life: &Life, count: usize, mib: u64) -> Vec<Rc<dyn Drive>> {
    let pace: Pace = "200MB/s,200iops".parse().expect("a pace");
    let paced = |drive: Rc<dyn Drive>| PacedDrive::new(&life.context, drive, pace) as Rc<dyn Drive>;
    as_drives(&memory_drives(count, mib)).into_iter().map(paced).collect()
}

/// What all drives that work were asked so far.
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
fn an_idle_rebuild_takes_little_more_than_its_data() {
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

/// Longest and mean wait of a client that reads 4 KiB at a time while a drive is rebuilt, and what
/// the rebuild wrote per second.
fn waits_while_rebuilding(bound_ms: Option<u32>) -> (f64, f64, f64) {
    let life = Life::new();
    life.run(async {
        // As a disk with a queue of its own.
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
        // In the last quarter of the volume, which the rebuild comes to when this is over.
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
fn a_rebuild_adds_no_more_to_the_latency_than_was_allowed_and_keeps_its_rate() {
    let unbounded = waits_while_rebuilding(None);
    // Alone a read takes 5.1 ms.
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
