//! Minimum size of a measurement relative to the drives' caches, so that its figures are those of
//! the medium, and the resulting needs of modelled drives.
//!
//! Modelled drives take no space, so by default they are many times as large as their caches.
//! Explicit sizes apply as given; a remark says if they are too small.

/// Default size of modelled drives as a multiple of their caches. A mirror with a tier beside it
/// uses a third of that, which still exceeds the caches.
const DRIVE_MULTIPLE: u64 = 24;
/// Minimum size of the measured region as a multiple of the caches; below it the figures carry a
/// remark.
pub(crate) const REGION_MULTIPLE: u64 = 8;
/// Bytes that each modelled drive can move in a run, as a multiple of its cache.
const RUN_MULTIPLE: f64 = 4.0;
/// Minimum bytes a drive can move in a run, as a multiple of its cache; below it the run carries a
/// remark.
pub(crate) const LEAST_RUN_MULTIPLE: f64 = 2.0;

/// True if `region_bytes` are large enough for caches of `cache_bytes` not to affect the figures.
pub(crate) fn is_beyond(region_bytes: u64, cache_bytes: u64) -> bool {
    region_bytes >= REGION_MULTIPLE.saturating_mul(cache_bytes)
}

/// Minimum needs of a measurement on modelled drives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Beyond {
    /// Size of each drive.
    pub drive_bytes: u64,
    /// Length of a run.
    pub run_s: f64,
    /// Time before a run in which the drives' write caches fill.
    pub ramp_s: f64,
}

impl Beyond {
    /// Computes the needs for drives with caches of `cache_bytes`, a rate of about
    /// `bytes_per_second` and at most `capacity_bytes`; `None` if they have no cache.
    pub(crate) fn of(cache_bytes: u64, bytes_per_second: f64, capacity_bytes: u64) -> Option<Self> {
        let ramp_s = cache_bytes as f64 / bytes_per_second.max(1.0);
        (cache_bytes > 0).then(|| Self {
            drive_bytes: (DRIVE_MULTIPLE * cache_bytes).min(capacity_bytes),
            run_s: RUN_MULTIPLE * ramp_s,
            ramp_s,
        })
    }
}
