//! The engine's times and sizes are the caller's: a pool is what it is whatever they are, but for
//! the grain of its region maps, which is on the drives and is held to.

use std::rc::Rc;

use crate::kit::pool::{Life, MIB, as_drives, fill, holds, memory_drives, options, spec, volume_spec};
use stripewise_array::tuning::{MapGrain, Tuning};
use stripewise_drive::Drive;
use stripewise_pool::{OpenMode, Pool, PoolError, PoolOptions, PoolSpec, VolumeState};

const SMALL: Tuning = Tuning {
    map_grain: MapGrain { regions_per_chunk: 1, regions_per_page: 2 },
    intent_clear_interval_ns: 2_000_000,
    partial_regions: 1,
    gather_hold_ns: 1,
    destage_hold_ns: 1,
    destage_stripes: 1,
    pending_bytes: 64 << 10,
    journal_batch_bytes: 4096,
    journal_batch_notes: 1,
    zero_write_bytes: 4096,
    mirror_zone_bytes: 4096,
    mirror_run_bytes: 8192,
    merged_segments: 1,
    checksum_cache_bytes: 1,
    checksum_window_pages: 1,
    known_bad_blocks: 1,
    begun_regions: 1,
    commit_piece_bytes: 1,
    record_room_bytes: 64 << 10,
    record_reserve_bytes: 1,
    lost_record_bytes: 1,
    thin_rows: 1,
    thin_patience_ns: 1,
    released_rows: 1,
    rebuild_checkpoint_ns: 1_000_000,
    rebuild_rows: 1,
    rebuild_batch_bytes: 1 << 20,
    rebuild_look_ahead: 1,
    scrub_checkpoint_ns: 1_000_000,
    drain_batch_bytes: 1,
    convert_window_bytes: 1,
    convert_piece_bytes: 1,
    convert_unrecorded_bytes: 1,
    convert_record_ns: 1,
    slice_extent_bytes: 4096,
    first_number: (1 << 32) - 3,
};

fn with(tuning: Tuning) -> PoolOptions {
    let mut options = options(7);
    options.array.tuning = tuning;
    options
}

async fn open(life: &Life, drives: &[Rc<dyn Drive>], tuning: Tuning) -> Result<Pool, PoolError> {
    Pool::open(&life.context, &life.buffers, drives.to_vec(), OpenMode::ReadWrite, with(tuning)).await
}

#[test]
fn pool_opens_with_minimal_and_usual_tuning_in_turn() {
    let images = memory_drives(4, 64);
    let usual = Tuning { map_grain: SMALL.map_grain, ..Tuning::default() };
    let first = Life::new();
    first.run(async {
        let made = PoolSpec { options: with(SMALL), ..spec("tank", &as_drives(&images), &[]) };
        let pool = Pool::create(&first.context, &first.buffers, made).await.expect("a pool");
        let mut wanted = volume_spec("v", "raid5", Some(24 * MIB));
        wanted.write_back = Some(true);
        let volume = pool.create_volume(wanted).await.expect("a volume");
        fill(&volume, 0, 0, 24 * MIB).await;
        volume.flush().await.expect("flushed");
        drop(pool);
    });
    for (turn, tuning) in [usual, SMALL, usual].into_iter().enumerate() {
        let life = Life::new();
        life.run(async {
            let pool = open(&life, &as_drives(&images), tuning).await.expect("opened");
            let volume = pool.volume("v").expect("there");
            assert_eq!(holds(&volume, turn as u64, 0, 24 * MIB).await, Ok(()), "turn {turn}");
            fill(&volume, turn as u64 + 1, 0, 24 * MIB).await;
            volume.write_zeroes(0, 8 * MIB).await.expect("zeroed");
            fill(&volume, turn as u64 + 1, 0, 8 * MIB).await;
            pool.close().await.expect("closed");
        });
    }
}

#[test]
fn a_map_with_another_grain_is_refused_and_left_alone() {
    let images = memory_drives(3, 64);
    let small = Tuning { map_grain: SMALL.map_grain, ..Tuning::default() };
    let first = Life::new();
    first.run(async {
        let made = PoolSpec { options: with(small), ..spec("tank", &as_drives(&images), &[]) };
        let pool = Pool::create(&first.context, &first.buffers, made).await.expect("a pool");
        let volume = pool.create_volume(volume_spec("v", "raid5", Some(16 * MIB))).await.expect("a volume");
        fill(&volume, 5, 0, 16 * MIB).await;
        pool.close().await.expect("closed");
    });
    let other = Life::new();
    other.run(async {
        let pool = open(&other, &as_drives(&images), Tuning::default()).await.expect("opened");
        assert_eq!(pool.status().volumes[0].state, VolumeState::Failed);
        pool.close().await.expect("closed");
    });
    let again = Life::new();
    again.run(async {
        let pool = open(&again, &as_drives(&images), small).await.expect("opened");
        let volume = pool.volume("v").expect("there");
        assert_eq!(holds(&volume, 5, 0, 16 * MIB).await, Ok(()));
    });
}
