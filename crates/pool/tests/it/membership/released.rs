//! Drives that a pool has released count as empty, and can be used again.

use crate::kit::pool::*;
use stripewise_drive::{Drive, MemoryDrive};
use stripewise_pool::Role;
use stripewise_pool::sampled_places;

/// True if the search for contents finds nothing.
fn is_empty(image: &MemoryDrive) -> bool {
    sampled_places(image.info().capacity_bytes).all(|place| {
        let mut bytes = vec![1; (place.end - place.start) as usize];
        image.peek(place.start, &mut bytes);
        bytes.iter().all(|byte| *byte == 0)
    })
}

#[test]
fn a_released_drive_counts_as_empty() {
    let images = memory_drives(3, 96);
    let life = Life::new();
    for image in &images {
        image.poke(40 * MIB, &vec![7; 2 * MIB as usize]);
    }
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..2], &[]).await.expect("made");
        assert!(!is_empty(&images[0]), "it is in use");
        pool.add(drives[2].clone(), Role::Spare, false).await.expect("added");
        pool.remove(id_of(&pool.status(), "drive2")).await.expect("removed");
        assert!(is_empty(&images[2]));
        pool.add(drives[2].clone(), Role::Spare, false).await.expect("added again");
        assert!(!is_empty(&images[2]));
        pool.erase().await.expect("erased");
        for image in &images {
            assert!(is_empty(image));
        }
    });
}
