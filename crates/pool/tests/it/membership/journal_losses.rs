//! Losses of journal drives: what the status reports, and what data survives.
//!
//! Invariant I13 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Drive, FaultyDrive, MemoryDrive};
use stripewise_pool::{Notice, Pool, PoolSpec, Volume, VolumeSpec, VolumeState};

#[test]
fn journal_with_too_few_areas_is_lost_redundancy() {
    let images = memory_drives(5, 32);
    let (data, journals) = images.split_at(3);
    let life = Life::new();
    life.run(async {
        let spec = PoolSpec { journals: as_drives(journals), ..spec("tank", &as_drives(data), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", Some(8 * MIB))).await.unwrap();
        fill(&volume, 1, 0, MIB).await;
        let info = &pool.volumes()[0];
        assert_eq!((info.redundancy_left, info.lacking_copies.len()), (1, 0));
        pool.close().await.unwrap();
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let present: Vec<Rc<dyn Drive>> = as_drives(&images[..4]);
        let pool = life.open(&present).await.unwrap();
        let status = pool.status();
        let info = &pool.volumes()[0];
        assert_eq!((info.state, info.redundancy_left), (VolumeState::Degraded, 0));
        assert_eq!(info.lacking_copies, [id_of(&status, "drive4")]);
        assert!(
            status.notices.iter().any(|notice| matches!(notice, Notice::JournalAreasGone { .. })),
            "{:?}",
            status.notices
        );
        // Another drive restores the copy, once the missing one is no longer expected.
        pool.fail_drive(id_of(&status, "drive4"), "it is not coming back").await.unwrap();
        assert_eq!(pool.volumes()[0].redundancy_left, 0);
        pool.allocate_spares().await.unwrap();
        let info = &pool.volumes()[0];
        assert_eq!((info.redundancy_left, info.lacking_copies.len()), (1, 0), "it is on a data drive now");
        pool.close().await.unwrap();
    });
}

/// Writes blocks one by one, each durable before the next, so that they go to different areas of
/// the journal.
async fn write_flushed(volume: &Volume, blocks: u64) {
    for block in 0..blocks {
        let data = Buffer::from_bytes(&contents(1, block * 4096, 4096));
        volume.write(block * 4096, data, true).await.expect("a FUA write");
    }
}

/// A thin volume on one drive has areas of its journal on other drives, too: before the first write
/// it has no rows anywhere.
#[test]
fn losing_one_journal_area_loses_no_data() {
    for write_back in [false, true] {
        let images = memory_drives(4, 32);
        let life = Life::new();
        life.run(async {
            let pool = life.create(&as_drives(&images), &[]).await.unwrap();
            let of = volume_spec("data", "single", Some(MIB));
            let of = VolumeSpec { thin: true, write_back: Some(write_back), ..of };
            let volume = pool.create_volume(of).await.unwrap();
            write_flushed(&volume, 40).await;
        });
        drop(life);
        let mut lost_with = Vec::new();
        for absent in 0..images.len() {
            let copies = images.iter().map(|image| image.duplicate(&image.info().label));
            let mut present = copies.map(|copy| copy as Rc<dyn Drive>).collect::<Vec<_>>();
            present.remove(absent);
            let life = Life::new();
            life.run(async {
                let pool = life.open(&present).await.unwrap();
                match pool.volume("data") {
                    Ok(volume) => holds(&volume, 1, 0, 40 * 4096).await.unwrap(),
                    Err(_) => lost_with.push(absent),
                }
                pool.close().await.unwrap();
            });
        }
        assert_eq!(lost_with.len(), 1, "the one drive with its rows: {lost_with:?}");
    }
}

/// First the journal drives fail; while that is being recorded, drives fail that the volume cannot
/// do without.
#[test]
fn drives_pulled_together_return_with_the_journal() {
    let images = memory_drives(6, 32);
    let (data, journals) = images.split_at(4);
    let life = Life::new();
    life.run(async {
        let faulty = |image: &Rc<MemoryDrive>| FaultyDrive::new(&life.context, image.clone(), 1);
        let drives = |images: &[Rc<MemoryDrive>]| images.iter().map(faulty).collect::<Vec<_>>();
        let (data, journals) = (drives(data), drives(journals));
        let spec = PoolSpec { journals: as_drives(&journals), ..spec("tank", &as_drives(&data), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        let of = VolumeSpec { write_back: Some(true), ..volume_spec("data", "raid5", Some(4 * MIB)) };
        let volume = pool.create_volume(of).await.unwrap();
        write_flushed(&volume, 40).await;
        for pulled in [&journals[0], &journals[1], &data[0], &data[1]] {
            pulled.unplug();
        }
        let late = Buffer::from_bytes(&contents(1, 40 * 4096, 4096));
        volume.write(40 * 4096, late, true).await.expect_err("too many are gone");
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let pool = life.open(&as_drives(&images)).await.unwrap();
        holds(&pool.volume("data").unwrap(), 1, 0, 40 * 4096).await.unwrap();
        pool.close().await.unwrap();
    });
}
