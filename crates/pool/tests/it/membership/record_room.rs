//! A record that thin volumes have filled with rows still takes the loss of as many drives as the
//! layout tolerates: what adds to it is refused before.
//!
//! Invariant I37 (`docs/internals/invariants.md`).

use std::rc::Rc;

use crate::kit::pool::*;
use stripewise_drive::{Buffer, Drive, SplitMix64};
use stripewise_pool::{JobKind, OpenMode, Pool, PoolOptions, PoolSpec, VolumeSpec};

const DRIVES: usize = 22;
const COLUMNS: usize = 20;
const ROW_BYTES: u64 = (COLUMNS as u64 - 2) * MIB;
const ROWS: u64 = 160;

/// Options with a record so small that a few rows fill it.
fn small_record() -> PoolOptions {
    let mut options = options(7);
    options.array.tuning.record_room_bytes = 16 << 10;
    options.array.tuning.record_reserve_bytes = 1 << 10;
    options.array.tuning.thin_rows = 1;
    options
}

async fn open(life: &Life, drives: &[Rc<dyn Drive>]) -> Pool {
    let (drives, mode) = (drives.to_vec(), OpenMode::ReadWrite);
    Pool::open(&life.context, &life.buffers, drives, mode, small_record()).await.expect("opened")
}

#[test]
fn a_full_record_takes_the_loss_of_drives() {
    let images = memory_drives(DRIVES + 1, 192);
    let life = Life::new();
    let written: Vec<u64> = life.run(async {
        let drives = as_drives(&images[..DRIVES]);
        let spec = PoolSpec { options: small_record(), slab_bytes: Some(MIB), ..spec("tank", &drives, &[]) };
        let pool = Pool::create(&life.context, &life.buffers, spec).await.expect("a pool");
        let mut layout = volume_spec("v", "raid6", Some(ROWS * ROW_BYTES)).layout;
        layout.columns = Some(COLUMNS);
        let spec = VolumeSpec {
            thin: true,
            checksums: Some(false),
            layout,
            ..volume_spec("v", "raid6", Some(ROWS * ROW_BYTES))
        };
        let volume = pool.create_volume(spec).await.expect("a volume");
        let mut rows: Vec<u64> = (0..ROWS).collect();
        let mut random = SplitMix64::new(1);
        (1..rows.len()).for_each(|at| rows.swap(at, random.below(at as u64 + 1) as usize));
        let mut written = Vec::new();
        for row in rows {
            let data = Buffer::from_bytes(&contents(1, row * ROW_BYTES, 4096));
            match volume.write(row * ROW_BYTES, data, false).await {
                Ok(()) => written.push(row),
                Err(error) => {
                    assert!(error.to_string().contains("metadata"), "{error}");
                    break;
                }
            }
        }
        assert!((40..ROWS as usize).contains(&written.len()), "{} rows fit", written.len());
        volume.flush().await.expect("flushed");
        for drive in ["drive0", "drive1"] {
            pool.fail_drive(id_of(&pool.status(), drive), "a test").await.expect("recorded");
            for &row in &written {
                fill(&volume, 2, row * ROW_BYTES, 4096).await;
            }
            volume.flush().await.expect("flushed");
        }
        std::mem::forget(pool);
        written
    });
    let life = Life::new();
    life.run(async {
        let pool = open(&life, &as_drives(&images[2..DRIVES])).await;
        let volume = pool.volume("v").expect("open");
        for &row in &written {
            holds(&volume, 2, row * ROW_BYTES, 4096).await.expect("flushed");
            fill(&volume, 3, row * ROW_BYTES, 4096).await;
        }
        volume.flush().await.expect("flushed");
        let new = images[DRIVES].clone() as Rc<dyn Drive>;
        pool.replace(id_of(&pool.status(), "drive0"), new, false).await.expect("replaced");
        // A step that splits rows into more runs may be refused.
        if let Err(error) = pool.wait(JobKind::Rebuild).await {
            assert!(error.to_string().contains("metadata"), "{error}");
        }
        assert!(pool.status().volumes[0].redundancy_left >= 1, "{:?}", pool.status().condition);
        pool.close().await.expect("closed");
    });
}
