//! Options of a log and the limits that follow from them.

use crate::error::LogError;
use crate::map::page::PAGE_ENTRIES;
use crate::shape::{BLOCK_BYTES, Segments};

/// Options of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Data of a segment, bytes; fixed when the log is created.
    pub segment_bytes: u64,
    /// Share of the space that clients do not get.
    pub reserve: f64,
    /// Memory for the map, cached pages and segments in flight, bytes.
    pub memory_bytes: u64,
    /// Segments in the plan: written between two commits of the roots at most.
    pub planned_segments: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 4 << 20, reserve: 0.15, memory_bytes: 256 << 20, planned_segments: 32 }
    }
}

/// Memory of an entry of a table, bytes.
const TABLE_ENTRY_BYTES: u64 = 72;
/// Memory of a cached page, bytes.
const CACHED_PAGE_BYTES: u64 = 48 * PAGE_ENTRIES as u64;

/// Limits of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Entries of a table, after which it is spilled.
    pub(crate) table_entries: usize,
    /// Pages of runs in memory.
    pub(crate) cached_pages: usize,
    /// Segments being written at once.
    pub(crate) in_flight: usize,
    /// Segments in the plan.
    pub(crate) planned: usize,
    /// Segments whose summaries recovery reads.
    pub(crate) recent: usize,
    /// Blocks that clients may use.
    pub(crate) client_blocks: u64,
    /// Free segments that are left to the cleaner and the map.
    pub(crate) low: usize,
    /// Free segments below which the cleaner runs.
    pub(crate) high: usize,
}

impl Limits {
    pub(crate) fn new(options: &LogOptions, segments: &Segments) -> Result<Self, LogError> {
        let memory = options.memory_bytes;
        let count = segments.count as usize;
        let blocks = u64::from(segments.count) * segments.payload;
        // A merge of all runs writes the whole map beside the old one.
        let map_pages = blocks.div_ceil(PAGE_ENTRIES as u64);
        let map_segments = map_pages.div_ceil(segments.payload) as usize;
        let low = 4 + 2 * map_segments;
        let high = low + 4 + count / 64;
        let kept = ((count as f64 * options.reserve).ceil() as usize).max(high + 2 * map_segments + 4);
        let client_segments = count.saturating_sub(kept);
        if client_segments < 2 {
            return Err(LogError::TooSmall { segments: segments.count, needed: kept as u32 + 2 });
        }
        Ok(Self {
            // Half of the memory, for two tables: one may be frozen.
            table_entries: (memory / 4 / TABLE_ENTRY_BYTES).max(2 * segments.payload) as usize,
            cached_pages: (memory / 4 / CACHED_PAGE_BYTES) as usize,
            in_flight: (memory / 8 / (segments.blocks * BLOCK_BYTES)).clamp(2, 8) as usize,
            planned: options.planned_segments.clamp(4, (count / 8).max(4)),
            recent: (count / 4).clamp(8, 4096),
            client_blocks: client_segments as u64 * segments.payload,
            low,
            high,
        })
    }
}
