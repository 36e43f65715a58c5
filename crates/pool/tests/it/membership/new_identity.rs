//! A copy of all drives gets a new identity, and is used beside the original.

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Drive, MemoryDrive};
use stripewise_pool::{PoolError, PoolState, give_new_identity};

#[test]
fn copy_with_new_identity_is_another_pool() {
    let images = memory_drives(4, 32);
    let life = Life::new();
    life.run(async {
        let pool = life.create(&as_drives(&images), &[]).await.unwrap();
        let volume = full_volume(&pool, volume_spec("data", "raid5", Some(12 * MIB)), 1).await;
        volume.flush().await.unwrap();
        // A snapshot of a pool in use, which was not closed.
        let copies: Vec<Rc<MemoryDrive>> =
            images.iter().map(|image| image.duplicate(&format!("copy of {}", image.info().label))).collect();
        pool.close().await.unwrap();
        let new = give_new_identity(&life.context, &life.buffers, as_drives(&copies), options(7)).await;
        let new = new.unwrap();
        let (original, copy) =
            (life.open(&as_drives(&images)).await.unwrap(), life.open(&as_drives(&copies)).await.unwrap());
        assert_eq!(copy.id(), new);
        assert_ne!(original.id(), new);
        for pool in [&original, &copy] {
            let status = pool.status();
            assert_eq!(status.state, PoolState::Online, "{:?}", status.condition);
            holds(&pool.volume("data").unwrap(), 1, 0, 12 * MIB).await.unwrap();
        }
        // A write to one is not seen in the other.
        fill(&copy.volume("data").unwrap(), 2, 0, 4 * MIB).await;
        holds(&original.volume("data").unwrap(), 1, 0, 12 * MIB).await.unwrap();
        let ids = |pool: &stripewise_pool::Pool| -> Vec<_> {
            pool.status().drives.iter().map(|drive| drive.id).collect()
        };
        assert!(ids(&original).iter().all(|id| !ids(&copy).contains(id)));
        original.close().await.unwrap();
        copy.close().await.unwrap();
        let mixed: Vec<Rc<dyn Drive>> = vec![images[0].clone(), copies[1].clone(), copies[2].clone()];
        assert!(matches!(life.open(&mixed).await, Err(PoolError::SeveralPools { .. })));
    });
}
