//! How much larger than a drive's own cache a measurement has to be for its figures to be those of
//! the medium, and what modelled drives need for that.
//!
//! Modelled drives cost no space, so by default they are many times as large as their caches. What
//! is asked for explicitly is done, and said to be too small where it is.

/// Modelled drives are this many times as large as their caches, unless a size is asked for: a
/// mirror with a tier beside it has a third of that to itself, and is beyond them still.
const DRIVE_MULTIPLE: u64 = 24;
/// What is measured is at least this many times as large as the caches, or the figures say that it
/// is not.
pub(crate) const REGION_MULTIPLE: u64 = 8;
/// A run on modelled drives lasts until each of them could have moved this many times its cache.
const RUN_MULTIPLE: f64 = 4.0;
/// A run in which a drive cannot move this many times its cache is remarked on.
pub(crate) const LEAST_RUN_MULTIPLE: f64 = 2.0;

/// Whether `region_bytes` leave caches of `cache_bytes` without a part in the figures.
pub(crate) fn is_beyond(region_bytes: u64, cache_bytes: u64) -> bool {
    region_bytes >= REGION_MULTIPLE.saturating_mul(cache_bytes)
}

/// What a measurement on modelled drives needs at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Beyond {
    /// Bytes of each drive.
    pub drive_bytes: u64,
    /// Length of a run.
    pub run_s: f64,
    /// Time before a run in which the drives' write caches fill.
    pub ramp_s: f64,
}

impl Beyond {
    /// For drives with caches of `cache_bytes`, which move about `bytes_per_second` and have at
    /// most `capacity_bytes`; `None` where they have no cache.
    pub(crate) fn of(cache_bytes: u64, bytes_per_second: f64, capacity_bytes: u64) -> Option<Self> {
        let ramp_s = cache_bytes as f64 / bytes_per_second.max(1.0);
        (cache_bytes > 0).then(|| Self {
            drive_bytes: (DRIVE_MULTIPLE * cache_bytes).min(capacity_bytes),
            run_s: RUN_MULTIPLE * ramp_s,
            ramp_s,
        })
    }
}
