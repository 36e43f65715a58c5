//! Counters of a volume's requests: number, latency, bytes, failures, and requests in flight.

use std::rc::Rc;

use crate::kit::pool::*;
use futures_util::future::join;
use stripewise_drive::{Buffer, Delay, Drive, FaultyDrive};
use stripewise_pool::VolumeSpec;
use stripewise_pool::{LATENCY_STEPS_NS, RequestKind, VolumeLoad};

const MS: u64 = 1_000_000;

/// Index of the latency step that counts requests of this duration.
fn step(took_ns: u64) -> usize {
    LATENCY_STEPS_NS.iter().position(|&end_ns| took_ns <= end_ns).expect("shorter than the last step")
}

#[test]
fn requests_are_counted_by_kind_and_latency() {
    let life = Life::new();
    let faulty: Vec<Rc<FaultyDrive>> = memory_drives(2, 32)
        .into_iter()
        .map(|drive| FaultyDrive::new(&life.context, drive as Rc<dyn Drive>, 1))
        .collect();
    life.run(async {
        let pool = life.create(&as_drives(&faulty), &[]).await.expect("a pool");
        let spec = VolumeSpec { checksums: Some(false), ..volume_spec("a", "raid0", Some(8 * MIB)) };
        let volume = pool.create_volume(spec).await.expect("a volume");
        let load = || -> VolumeLoad { pool.volume_loads().remove(0) };
        assert_eq!((load().volume.as_str(), load().journal), ("a", None));

        volume.read(0, 4096).await.expect("zeros");
        volume.write(0, Buffer::from_bytes(&[7; 8192]), false).await.expect("written");
        volume.flush().await.expect("flushed");
        faulty.iter().for_each(|drive| drive.set_delay(Delay::Fixed(3 * MS)));
        volume.read(0, 8192).await.expect("read");
        volume.discard(0, 512).await.expect("nothing to give back");
        volume.read(8 * MIB, 512).await.expect_err("beyond the end");

        let reads = *load().of(RequestKind::Read);
        assert_eq!((reads.succeeded(), reads.bytes, reads.failed), (2, 4096 + 8192, 1));
        assert_eq!((reads.by_latency[0], reads.by_latency[step(3 * MS)]), (1, 1), "{reads:?}");
        assert_eq!(reads.total_ns, 3 * MS);
        let counts = RequestKind::ALL.map(|kind| (load().of(kind).succeeded(), load().of(kind).bytes));
        assert_eq!(counts, [(2, 12_288), (1, 8192), (1, 0), (1, 512), (0, 0)]);

        // In flight until answered, also as seen through another handle.
        let same = pool.volume("a").expect("it is open");
        let reads = join(volume.read(0, 4096), same.read(4096, 4096));
        let (_, in_flight) = join(reads, async {
            life.context.sleep_ns(MS).await;
            load().in_flight
        })
        .await;
        assert_eq!((in_flight, load().in_flight), (2, 0));
        // An abandoned request is not counted.
        let read = Box::pin(volume.read(0, 4096));
        assert!(life.context.time_limit_ns(MS, read).await.is_err(), "it takes longer");
        assert_eq!((load().in_flight, load().of(RequestKind::Read).succeeded()), (0, 4));
        pool.close().await.expect("closed");
    });
}

#[test]
fn journal_contents_are_reported() {
    let life = Life::new();
    let drives = memory_drives(4, 64);
    life.run(async {
        let pool = life.create(&as_drives(&drives), &[]).await.expect("a pool");
        let spec = VolumeSpec { write_back: Some(true), ..volume_spec("a", "raid5", Some(32 * MIB)) };
        let volume = full_volume(&pool, spec, 1).await;
        volume.flush().await.expect("flushed");
        let fill = || pool.volume_loads()[0].journal.expect("it has one");
        let (before, all) = fill();
        for place in 0..64 {
            volume.write(place * 256 * 1024, Buffer::from_bytes(&[9; 4096]), true).await.expect("written");
        }
        let (after, still_all) = fill();
        assert!(all == still_all && after > before && all > 0, "{before} {after} {all}");
        pool.close().await.expect("closed");
    });
}

#[test]
fn a_flush_is_answered_also_when_the_pool_is_closed() {
    let life = Life::new();
    let drives = memory_drives(3, 64);
    life.run(async {
        let pool = life.create(&as_drives(&drives), &[]).await.expect("a pool");
        let volume = pool.create_volume(volume_spec("a", "raid5", Some(8 * MIB))).await.expect("a volume");
        volume.write(0, Buffer::from_bytes(&[7; 8192]), false).await.expect("written");
        pool.close().await.expect("closed");
        let flush = Box::pin(volume.flush());
        let answer = life.context.time_limit_ns(60_000 * MS, flush).await.expect("it is answered");
        answer.expect("all of it was made durable when the pool was closed");
        assert!(volume.closing().was_in_order());
    });
}

#[test]
fn flush_after_an_unclean_close_fails() {
    let life = Life::new();
    let faulty: Vec<Rc<FaultyDrive>> = memory_drives(3, 64)
        .into_iter()
        .map(|drive| FaultyDrive::new(&life.context, drive as Rc<dyn Drive>, 1))
        .collect();
    life.run(async {
        let pool = life.create(&as_drives(&faulty), &[]).await.expect("a pool");
        let volume = pool.create_volume(volume_spec("a", "raid5", Some(8 * MIB))).await.expect("a volume");
        volume.write(0, Buffer::from_bytes(&[7; 8192]), false).await.expect("written");
        faulty.iter().for_each(|drive| drive.unplug());
        volume.read(0, 8192).await.expect_err("no drive is there");
        let _ = pool.close().await;
        let flush = Box::pin(volume.flush());
        let answer = life.context.time_limit_ns(60_000 * MS, flush).await.expect("it is answered");
        answer.expect_err("durability is unknown");
        assert!(!volume.closing().was_in_order());
    });
}
