//! Drives that a pool has released carry a mark, so that they can be used again.

use crate::kit::pool::*;
use stripewise_drive::MemoryDrive;
use stripewise_engine::Role;
use stripewise_engine::pool::is_released;

#[test]
fn a_released_drive_is_marked_until_it_is_written() {
    let images = memory_drives(3, 16);
    let life = Life::new();
    life.run(async {
        let drives = as_drives(&images);
        let pool = life.create(&drives[..2], &[]).await.expect("made");
        assert!(!is_released(&*drives[0]).await, "it is in use");
        pool.add(drives[2].clone(), Role::Spare, false).await.expect("added");
        pool.remove(id_of(&pool.status(), "drive2")).await.expect("removed");
        assert!(is_released(&*drives[2]).await);
        let untouched = MemoryDrive::new("other", 16 * MIB);
        assert!(!is_released(&*untouched).await, "an empty drive has no mark");
        pool.add(drives[2].clone(), Role::Spare, false).await.expect("added again");
        assert!(!is_released(&*drives[2]).await, "joining removes the mark");
        pool.destroy().await.expect("destroyed");
        for drive in &drives {
            assert!(is_released(&**drive).await);
        }
    });
    images[0].poke(0, b"a boot sector of something else");
    images[1].poke(16 * MIB - 4096, b"a label at the end");
    let drives = as_drives(&images);
    life.run(async {
        for (drive, is_marked) in drives.iter().zip([false, false, true]) {
            assert_eq!(is_released(&**drive).await, is_marked);
        }
    });
}
