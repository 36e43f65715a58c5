//! Journals whose drives go: what the status says of it, and that nothing is forgotten which drives that went may lack.

mod pool_support;

use std::rc::Rc;

use pool_support::*;
use stripewise_drive::{Delay, Drive, FaultyDrive};
use stripewise_engine::{Pool, PoolSpec, VolumeState};

const DATA: u64 = 256 << 10;

#[test]
fn a_flush_that_loses_too_many_drives_lets_the_journal_forget_nothing() {
    let mut refused = 0;
    for step in 0..60 {
        let images = memory_drives(4, 32);
        let life = Life::new();
        life.run(async {
            let drives: Vec<_> =
                images.iter().map(|image| FaultyDrive::new(&life.context, image.clone(), 1)).collect();
            let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
            let volume = pool.create_volume(volume_spec("data", "raid5", None)).await.unwrap();
            fill(&volume, 1, 0, 4 * MIB).await;
            volume.flush().await.unwrap();
            fill(&volume, 2, 0, DATA).await;
            drives.iter().for_each(|drive| drive.set_delay(Delay::Fixed(100_000)));
            let flush = life.context.spawn(async move { volume.flush().await.is_ok() });
            life.context.sleep_ns(step * 50_000).await;
            drives[1].unplug();
            drives[2].unplug();
            refused += u32::from(!flush.await);
            let _ = pool.close().await;
        });
        drop(life);
        // They come back with all that they had acknowledged: no power was cut.
        let life = Life::new();
        life.run(async {
            let pool = life.open(&as_drives(&images)).await.unwrap();
            let volume = pool.volume("data").unwrap();
            holds(&volume, 2, 0, DATA).await.unwrap_or_else(|why| panic!("step {step}: {why}"));
            holds(&volume, 1, DATA, 4 * MIB - DATA).await.unwrap_or_else(|why| panic!("step {step}: {why}"));
            pool.close().await.unwrap();
        });
    }
    assert!((1..60).contains(&refused), "{refused} flushes were refused: nothing is shown");
}

#[test]
fn a_journal_with_too_few_areas_counts_as_lost_redundancy() {
    let images = memory_drives(5, 32);
    let (data, journals) = images.split_at(3);
    let life = Life::new();
    life.run(async {
        let spec = PoolSpec { journals: as_drives(journals), ..spec("tank", &as_drives(data), &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.unwrap();
        let volume = pool.create_volume(volume_spec("data", "raid5", Some(8 * MIB))).await.unwrap();
        fill(&volume, 1, 0, MIB).await;
        let info = &pool.volumes()[0];
        assert_eq!((info.redundancy_left, info.journal_lacks.len()), (1, 0));
        pool.close().await.unwrap();
    });
    drop(life);
    let life = Life::new();
    life.run(async {
        let present: Vec<Rc<dyn Drive>> = as_drives(&images[..4]);
        let pool = life.open(&present).await.unwrap();
        let status = pool.status();
        let info = &pool.volumes()[0];
        assert_eq!((info.state, info.redundancy_left), (VolumeState::Online, 0));
        assert_eq!(info.journal_lacks, [id_of(&status, "drive4")]);
        assert!(status.notices.iter().any(|notice| notice.contains("journal")), "{:?}", status.notices);
        // Whoever takes its place makes it whole, once nobody waits for it.
        pool.fail_drive(id_of(&status, "drive4"), "it is not coming back").await.unwrap();
        assert_eq!(pool.volumes()[0].redundancy_left, 0);
        pool.heal().await.unwrap();
        let info = &pool.volumes()[0];
        assert_eq!((info.redundancy_left, info.journal_lacks.len()), (1, 0), "it is on a data drive now");
        pool.close().await.unwrap();
    });
}
