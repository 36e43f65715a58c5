//! Pools whose volumes are cut into slices with small extents.

use std::rc::Rc;

use stripewise_array::tuning::Tuning;
use stripewise_array::{Array, ArrayOptions};
use stripewise_drive::Drive;
use stripewise_pool::{DrawnShards, OpenMode, Pool, PoolError, PoolOptions, PoolSpec, Volume, VolumeSpec};

use super::pool::{Life, options, spec, volume_spec};

/// Settings with extents of one stripe or a few, and arrays spread over three shards.
pub fn with_extents(extent_bytes: u64) -> PoolOptions {
    let tuning = Tuning { slice_extent_bytes: extent_bytes, ..Tuning::default() };
    let array = ArrayOptions { tuning, ..ArrayOptions::default() };
    PoolOptions { array, drawn_shards: Some(DrawnShards { shards: 3, seed: 5 }), ..options(9) }
}

/// Creates a pool with such settings.
pub async fn create(life: &Life, drives: &[Rc<dyn Drive>], extent_bytes: u64) -> Pool {
    let spec = PoolSpec { options: with_extents(extent_bytes), ..spec("tank", drives, &[]) };
    Pool::create(&life.context, &life.buffers, spec).await.expect("a pool")
}

/// Opens it, with other settings: the extents are recorded.
pub async fn open(life: &Life, drives: &[Rc<dyn Drive>]) -> Result<Pool, PoolError> {
    let options = with_extents(1 << 20);
    Pool::open(&life.context, &life.buffers, drives.to_vec(), OpenMode::ReadWrite, options).await
}

/// Specification of a volume with slices.
pub fn sliced(name: &str, layout: &str, slices: u32, size_bytes: u64) -> VolumeSpec {
    VolumeSpec { slices: Some(slices), ..volume_spec(name, layout, Some(size_bytes)) }
}

/// Scrubs all slices: nothing may be wrong.
pub async fn scrubbed_clean(volume: &Volume) {
    for array in volume.arrays() {
        let report = array.scrub(&|_, _| {}).await.expect("scrubbed");
        assert!(report.blamed.is_empty(), "{report:?}");
        assert_eq!((report.unattributed_blocks, report.unreadable_strips), (0, 0), "{report:?}");
    }
}

/// Bytes in written regions of each slice.
pub fn written(volume: &Volume) -> Vec<u64> {
    volume.arrays().iter().map(Array::written_bytes).collect()
}
