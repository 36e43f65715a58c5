//! The extents that a volume reports match what was written, in a plain volume and during a
//! conversion.
//!
//! Invariant I11 (`docs/internals/invariants.md`).

use crate::kit::pool::{Life, MIB, as_drives, contents, memory_drives, volume_spec};
use stripewise_array::{ArrayError, Extent};
use stripewise_drive::Buffer;
use stripewise_pool::Volume;

const UNWRITTEN: bool = false;
const WRITTEN: bool = true;

fn reported(volume: &Volume, offset: u64, length: u64) -> Vec<(u64, bool)> {
    let extents = volume.extents(offset, length, 1000).expect("in range");
    extents.iter().map(|Extent { length_bytes, written }| (*length_bytes, *written)).collect()
}

#[test]
fn extents_report_written_data_only() {
    for layout in ["raid0", "raid5", "raid10", "raid6"] {
        let life = Life::new();
        let drives = memory_drives(4, 96);
        life.run(async {
            let pool = life.create(&as_drives(&drives), &[]).await.expect("made");
            let volume =
                pool.create_volume(volume_spec("v", layout, Some(32 * MIB))).await.expect("a volume");
            let size = volume.capacity_bytes();
            assert_eq!(reported(&volume, 0, size), [(size, UNWRITTEN)]);
            assert!(volume.is_unwritten(512, size - 512).expect("in range"));
            assert!(volume.zeroes_at_once(512, 4096).expect("in range"), "no zeros to write");

            let stripe = volume.geometry().stripe_data_bytes();
            let at = 8 * MIB / stripe * stripe;
            let data = Buffer::from_bytes(&contents(1, at, 4096));
            volume.write(at, data, false).await.expect("written");
            let extents = reported(&volume, 0, size);
            // At least the block is reported as written, and at most its stripe while its region is
            // partial.
            assert_eq!(extents.len(), 3, "{layout}: {extents:?}");
            assert_eq!(extents[0], (at, UNWRITTEN));
            assert_eq!(extents[1], (stripe, WRITTEN));
            assert!(!volume.is_unwritten(at - 512, 1024).expect("in range"));
            assert!(volume.is_unwritten(0, at).expect("in range"));
            assert!(!volume.zeroes_at_once(at, 4096).expect("in range"));
            assert!(volume.zeroes_at_once(0, size).expect("in range"), "whole regions");
            assert_eq!(reported(&volume, at + 512, 1024), [(1024, WRITTEN)]);
            assert_eq!(volume.extents(0, size, 1).expect("in range").len(), 1);

            // Unwritten extents read as zeros, also after a flush has completed regions.
            volume.flush().await.expect("flushed");
            let mut offset = 0;
            for (length, written) in reported(&volume, 0, size) {
                let read = volume.read(offset, length as usize).await.expect("read").to_vec();
                assert!(written || read.iter().all(|byte| *byte == 0));
                offset += length;
            }
            assert_eq!(offset, size);
            assert_eq!(volume.read(at, 4096).await.expect("read").to_vec(), contents(1, at, 4096));

            volume.write_zeroes(0, size).await.expect("zeroed");
            assert_eq!(reported(&volume, 0, size), [(size, UNWRITTEN)]);
            let beyond = volume.extents(size, 512, 10).expect_err("beyond the end");
            assert!(matches!(beyond, ArrayError::OutOfRange { .. }), "{beyond}");
            pool.close().await.expect("closed");
            assert!(volume.is_unwritten(0, 512).is_err(), "a closed volume reports no extents");
        });
    }
}

#[test]
fn journaled_data_counts_as_written() {
    let life = Life::new();
    let drives = memory_drives(4, 96);
    life.run(async {
        let pool = life.create(&as_drives(&drives), &[]).await.expect("made");
        let spec = stripewise_pool::VolumeSpec {
            write_back: Some(true),
            ..volume_spec("v", "raid5", Some(32 * MIB))
        };
        let volume = pool.create_volume(spec).await.expect("a volume");
        for at in [0, 5 * MIB, 20 * MIB] {
            let data = Buffer::from_bytes(&contents(2, at, 4096));
            volume.write(at, data, true).await.expect("written");
            assert!(!volume.is_unwritten(at, 4096).expect("in range"), "at {at}");
        }
        pool.close().await.expect("closed");
    });
}

#[test]
fn extents_during_conversion_come_from_both_arrays() {
    let life = Life::new();
    let drives = memory_drives(5, 128);
    life.run(async {
        let pool = life.create(&as_drives(&drives), &[]).await.expect("made");
        let volume = pool.create_volume(volume_spec("v", "raid0", Some(48 * MIB))).await.expect("a volume");
        let places = [0, 17 * MIB, 40 * MIB];
        for at in places {
            volume.write(at, Buffer::from_bytes(&contents(3, at, 4096)), false).await.expect("written");
        }
        volume.flush().await.expect("flushed");
        let layout = volume_spec("v", "raid5", None).layout;
        pool.convert_volume("v", layout).await.expect("begun");
        for _ in 0..200 {
            let extents = reported(&volume, 0, volume.capacity_bytes());
            assert_eq!(extents.iter().map(|(length, _)| length).sum::<u64>(), volume.capacity_bytes());
            for at in places {
                assert!(!volume.is_unwritten(at, 4096).expect("in range"), "at {at}");
            }
            life.context.sleep_ns(100_000).await;
        }
        pool.close().await.expect("closed");
    });
}
