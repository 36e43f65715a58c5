//! Times and sizes that the engine works with: how long it waits, how much it takes at a time, how
//! much it remembers. None of them decides what is right, so each may have any value of its range;
//! the defaults are what serves real drives well.
//!
//! They are given at opening, so that tests can make them small. Then what takes gigabytes and
//! minutes on real drives (pages of maps that fill, caches that overflow, checkpoints that are due)
//! happens within milliseconds on a few MiB. Every opening of a volume may use other values, but
//! for
//! [`MapGrain`], which says how a region map lies on the drives.
//!
//! Faults expected: none. A value out of range is a bug of the caller, and asserted.

const SECOND_NS: u64 = 1_000_000_000;

/// Number of regions that share a write-intent bit and a page of a region map. Part of the on-disk
/// format: a map is opened with the grain it was made with, which each page records
/// (`docs/internals/format.md`, *Region map*).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapGrain {
    /// Regions of one write-intent bit; divides `regions_per_page`.
    pub regions_per_chunk: u64,
    /// Regions of one page, at most [`MapGrain::MOST_REGIONS_PER_PAGE`].
    pub regions_per_page: u64,
}

impl MapGrain {
    /// Capacity of a page, regions.
    pub const MOST_REGIONS_PER_PAGE: u64 = 15_872;

    /// As a page of a map says it: zero for the default.
    pub(crate) fn code(self) -> u32 {
        if self == Self::default() {
            return 0;
        }
        let (chunk, page) = (self.regions_per_chunk, self.regions_per_page);
        let is_possible = chunk > 0 && page <= Self::MOST_REGIONS_PER_PAGE && page.is_multiple_of(chunk);
        // Write-intent bits have 31 bytes of a page.
        assert!(is_possible && page > 0 && page / chunk <= 248, "a map with {self:?}");
        (chunk as u32) << 16 | page as u32
    }
}

impl Default for MapGrain {
    fn default() -> Self {
        Self { regions_per_chunk: 64, regions_per_page: Self::MOST_REGIONS_PER_PAGE }
    }
}

/// See the module. Everything is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Grain of a new volume's region map.
    pub map_grain: MapGrain,
    /// Write-intent bits are taken back when their chunk was quiet for this long.
    pub intent_clear_interval_ns: u64,
    /// Regions that may be partly initialised at once; writers into further new regions wait until
    /// some were completed.
    pub partial_regions: usize,
    /// A stripe that is written in a sequence waits this long for its rest.
    pub gather_hold_ns: u64,
    /// The shortest time that a deferred write waits for neighbours while there is room.
    pub destage_hold_ns: u64,
    /// Stripes destaged at a time.
    pub destage_stripes: usize,
    /// Bytes of deferred writes in memory, at least one of the largest (1 MiB); further writes go
    /// in place at once.
    pub pending_bytes: u64,
    /// A batch of the journal that holds several appends ends here.
    pub journal_batch_bytes: u64,
    /// Runs of release notes in one batch of the journal; more go ahead in batches of their own.
    pub journal_batch_notes: usize,
    /// Zeros are written in writes of at most this size.
    pub zero_write_bytes: u64,
    /// Copies of a mirror take turns in zones of this size, so that a sequential reader keeps all
    /// copies busy with long runs.
    pub mirror_zone_bytes: u64,
    /// Bytes that a sequential reader of a mirror reads from a seek-bound drive before it switches
    /// to another copy.
    pub mirror_run_bytes: u64,
    /// Scattered segments of memory in one merged request to a drive (the kernel takes 1024).
    pub merged_segments: usize,
    /// Memory for the checksums of each volume: 256 MiB are enough for 200 GB of drives in use at a
    /// time.
    pub checksum_cache_bytes: usize,
    /// Maximum checksum pages in flight while they are written. The drives' queues merge
    /// neighbours.
    pub checksum_window_pages: usize,
    /// Bad blocks remembered by name, so that each is counted once however often it is read; of
    /// more than that, some are counted again.
    pub known_bad_blocks: usize,
    /// Regions whose checksums are noted as begun, before those that are past it are forgotten.
    pub begun_regions: usize,
    /// Largest single write of a commit to the pool's record.
    pub commit_piece_bytes: usize,
    /// The pool's record is never larger than this, nor than its slot on the smallest drive. At
    /// least what it has already.
    pub record_room_bytes: u64,
    /// Part of that reserved for the entries that failing drives add to the record, besides their
    /// additions to existing rows, bytes.
    pub record_reserve_bytes: u64,
    /// Maximum space in the record for the names of lost blocks, at most 4 MiB: about three bytes a
    /// block where they are scattered.
    pub lost_record_bytes: u64,
    /// Rows given to a thin volume at once, at most.
    pub thin_rows: u64,
    /// Maximum wait of a write to a thin volume for slabs that are free but still in use.
    pub thin_patience_ns: u64,
    /// Rows given back by one commit: those of thin volumes, and those that a conversion leaves
    /// behind.
    pub released_rows: u64,
    /// Interval between records of a rebuild's progress.
    pub rebuild_checkpoint_ns: u64,
    /// Maximum rows rebuilt concurrently.
    pub rebuild_rows: u64,
    /// Approximate bytes of each column that a rebuild makes durable together: a flush, and one run
    /// of checksum pages.
    pub rebuild_batch_bytes: u64,
    /// Stretches of rows looked at for the next row to rebuild.
    pub rebuild_look_ahead: usize,
    /// Interval between records of a scrub's progress.
    pub scrub_checkpoint_ns: u64,
    /// Bytes moved off a drive that is being emptied before it is recorded, about.
    pub drain_batch_bytes: u64,
    /// Copied at a time by a conversion, about: whole stripes of the new layout.
    pub convert_window_bytes: u64,
    /// Read and written by one request of a conversion, about.
    pub convert_piece_bytes: u64,
    /// A conversion's frontier is recorded at the latest after this many copied bytes,
    pub convert_unrecorded_bytes: u64,
    /// or after this time.
    pub convert_record_ns: u64,
    /// Smallest extent that goes to the slices of a new volume in turn, rounded up to whole
    /// stripes.
    pub slice_extent_bytes: u64,
    /// Counters of a new pool, map or journal start after this number. Tests start just below a
    /// power of two, so that a counter kept in too few bits wraps around within a run.
    pub first_number: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            map_grain: MapGrain::default(),
            intent_clear_interval_ns: 5 * SECOND_NS,
            partial_regions: 2048,
            gather_hold_ns: 50_000_000,
            destage_hold_ns: SECOND_NS,
            destage_stripes: 64,
            pending_bytes: 64 << 20,
            journal_batch_bytes: 1 << 20,
            journal_batch_notes: 320,
            zero_write_bytes: 1 << 20,
            mirror_zone_bytes: 1 << 20,
            mirror_run_bytes: 16 << 20,
            merged_segments: 512,
            checksum_cache_bytes: 256 << 20,
            checksum_window_pages: 1024,
            known_bad_blocks: 65_536,
            begun_regions: 4096,
            commit_piece_bytes: 1 << 20,
            record_room_bytes: u64::MAX,
            record_reserve_bytes: 160 << 10,
            lost_record_bytes: 4 << 20,
            thin_rows: 16,
            thin_patience_ns: 2 * SECOND_NS,
            released_rows: 16,
            rebuild_checkpoint_ns: 5 * SECOND_NS,
            rebuild_rows: 64,
            rebuild_batch_bytes: 256 << 20,
            rebuild_look_ahead: 128,
            scrub_checkpoint_ns: 30 * SECOND_NS,
            drain_batch_bytes: 4 << 30,
            convert_window_bytes: 4 << 20,
            convert_piece_bytes: 1 << 20,
            convert_unrecorded_bytes: 256 << 20,
            convert_record_ns: 10 * SECOND_NS,
            slice_extent_bytes: 4 << 20,
            first_number: 0,
        }
    }
}
