//! Journals whose drives go: what the status says of it.
//!
//! Invariant I13 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::Drive;
use stripewise_engine::{Pool, PoolSpec, VolumeState};

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
        assert!(status.notices.iter().any(|notice| notice.contains("journal")), "{:?}", status.notices);
        // Whoever takes its place makes it whole, once nobody waits for it.
        pool.fail_drive(id_of(&status, "drive4"), "it is not coming back").await.unwrap();
        assert_eq!(pool.volumes()[0].redundancy_left, 0);
        pool.heal().await.unwrap();
        let info = &pool.volumes()[0];
        assert_eq!((info.redundancy_left, info.lacking_copies.len()), (1, 0), "it is on a data drive now");
        pool.close().await.unwrap();
    });
}
