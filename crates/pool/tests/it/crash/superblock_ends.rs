//! A drive refuses the pool's manifest at one of its two ends. The commit counts all the same, so
//! it must not rest on the other end alone: one more unreadable sector would bring back the
//! previous state.
//!
//! Invariant I9 (`docs/internals/invariants.md`).

use std::rc::Rc;

use stripewise_drive::{Drive, FaultyDrive, MemoryDrive};
use stripewise_pool::VolumeSpec;

use crate::kit::pool::*;

const CAPACITY: u64 = 32 * MIB;
const SLOT: u64 = 512 << 10;
const SIZE: u64 = 6 * MIB;

/// Ranges of a slot: at the start of the drive, and at its end.
fn places(slot: u64) -> [std::ops::Range<u64>; 2] {
    [slot * SLOT, CAPACITY - 2 * SLOT + slot * SLOT].map(|at| at..at + SLOT)
}

fn faulty(life: &Life, images: &[Rc<MemoryDrive>]) -> Vec<Rc<FaultyDrive>> {
    let over = |image: &Rc<MemoryDrive>| FaultyDrive::new(&life.context, image.clone() as Rc<dyn Drive>, 1);
    images.iter().map(over).collect()
}

#[test]
fn commit_refused_at_one_end_survives_a_bad_sector() {
    for refusing in 0..2 {
        let images = memory_drives(2, CAPACITY / MIB);
        let life = Life::new();
        let slot = life.run(async {
            let drives = faulty(&life, &images);
            let pool = life.create(&as_drives(&drives), &[]).await.unwrap();
            let spec = VolumeSpec { checksums: Some(false), ..volume_spec("data", "raid1", Some(SIZE)) };
            let volume = full_volume(&pool, spec, 1).await;
            volume.flush().await.unwrap();
            let before = image(&images[0]);
            pool.set_rebuild_priority(40).await.unwrap();
            let after = image(&images[0]);
            let is_changed = |slot: &u64| {
                let front = places(*slot)[0].clone();
                let front = front.start as usize..front.end as usize;
                before[front.clone()] != after[front]
            };
            let slot = (0..2).find(is_changed).expect("a commit goes to one of the slots");

            drives[0].make_unwritable(places(slot)[refusing].clone());
            pool.fail_drive(id_of(&pool.status(), "drive1"), "a test").await.unwrap();
            assert!(drives[0].counts().unwritable > 0);
            fill(&volume, 2, 0, SIZE).await;
            volume.flush().await.unwrap();
            slot
        });

        let life = Life::new();
        life.run(async {
            let drives = faulty(&life, &images);
            drives[0].make_unreadable(places(slot)[1 - refusing].clone());
            let pool = life.open(&as_drives(&drives)).await.unwrap();
            assert_ne!(state_of(&pool.status(), "drive1"), "online", "its exclusion is recorded");
            let found = holds(&pool.volume("data").unwrap(), 2, 0, SIZE).await;
            found.unwrap_or_else(|why| panic!("end {refusing} refused: {why}"));
        });
    }
}
