//! Figures of a log volume, for the status of its pool.

use stripewise_log::{BLOCK_BYTES, LogFigures};

use crate::Inner;
use crate::manifest::volume_record::VolumeRecord;

/// State of a log volume. The counters begin when the pool is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogStatus {
    /// Share of the space that clients do not get, percent.
    pub reserve_percent: u32,
    /// Data of a segment, bytes.
    pub segment_bytes: u64,
    /// State of the open log; `None` while the volume is not open.
    pub open: Option<OpenLog>,
}

/// Figures of an open log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenLog {
    /// Data that is live, bytes: an upper bound until the next merge of the map.
    pub live_bytes: u64,
    /// Data that clients may store, bytes.
    pub limit_bytes: u64,
    /// Number of snapshots.
    pub snapshots: u64,
    /// Live data that only snapshots hold, bytes: a lower bound until the map is merged as a whole.
    pub snapshot_bytes: u64,
    /// Bytes that clients wrote.
    pub client_bytes: u64,
    /// Bytes written to segments: data of clients, data moved by the cleaner, the map.
    pub written_bytes: u64,
    /// Part of them that the cleaner moved.
    pub moved_bytes: u64,
    /// Segments cleaned.
    pub cleaned_segments: u64,
    /// Segments cleaned of late, as bytes of data per second.
    pub cleaned_bytes_per_s: u64,
    /// Blocks reconstructed after a read error or a wrong checksum.
    pub repaired_blocks: u64,
}

impl OpenLog {
    /// Share of the space for clients that is live, percent.
    pub fn live_percent(&self) -> f64 {
        self.live_bytes as f64 * 100.0 / self.limit_bytes.max(1) as f64
    }

    /// Bytes written to segments per byte that clients wrote; `None` before the first.
    pub fn written_per_client_byte(&self) -> Option<f64> {
        (self.client_bytes > 0).then(|| self.written_bytes as f64 / self.client_bytes as f64)
    }
}

impl From<LogFigures> for OpenLog {
    fn from(figures: LogFigures) -> Self {
        let written_blocks = figures.new_blocks + figures.moved_blocks + figures.map_blocks;
        Self {
            live_bytes: figures.live_blocks * BLOCK_BYTES,
            limit_bytes: figures.limit_blocks * BLOCK_BYTES,
            snapshots: figures.snapshots,
            snapshot_bytes: figures.snapshot_blocks * BLOCK_BYTES,
            client_bytes: figures.client_blocks * BLOCK_BYTES,
            written_bytes: written_blocks * BLOCK_BYTES,
            moved_bytes: figures.moved_blocks * BLOCK_BYTES,
            cleaned_segments: figures.cleaned,
            cleaned_bytes_per_s: figures.cleaned_bytes_per_s,
            repaired_blocks: figures.repaired_blocks,
        }
    }
}

impl Inner {
    /// State of a volume as a log; `None` if it is not one.
    pub(crate) fn log_status(&self, volume: &VolumeRecord) -> Option<LogStatus> {
        let (part, record) = volume.parts.iter().find_map(|part| Some((part, part.log?)))?;
        let open = self.log_of(part.id).map(|log| log.log().figures().into());
        let (reserve_percent, segment_bytes) = (record.reserve_percent, record.segment_bytes);
        Some(LogStatus { reserve_percent, segment_bytes, open })
    }
}
