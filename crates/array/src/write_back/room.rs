//! Space for deferred writes: reserving it in the journal and in memory, and how long destaging can
//! wait.

use std::ops::Range;

use futures_util::future::FutureExt;
use smallvec::SmallVec;

use crate::array::BLOCK_BYTES;
use crate::error::ArrayError;
use crate::journal::Quota;
use crate::log::WriteLog;
use crate::tuning::Tuning;
use crate::write_back::Deferred;
use crate::write_back::pending::Room;

/// Minimum bytes that a drive transfers in the time of one request if its requests begin with a
/// seek.
const SEEK_BYTES: u64 = 64 << 10;

impl Deferred {
    /// Reserves space for each part of a request at once, or none if there is not enough now;
    /// `ranges` are bytes of their stripes, `request_bytes` is what a drive transfers in the time
    /// of one request. A request without space goes in place: clients that waited would be served
    /// at the rate of destaging, while otherwise idle drives could write for them.
    pub(crate) fn reserve_rooms(
        &self,
        log: &WriteLog,
        ranges: &[Range<u64>],
        request_bytes: impl FnOnce() -> u64,
        now_ns: u64,
    ) -> Result<Option<Vec<Room>>, ArrayError> {
        // Whole blocks and their descriptor. No more than that, since reserved space is not
        // available to others.
        let bytes: SmallVec<[u64; 4]> = ranges
            .iter()
            .map(|range| {
                range.end.next_multiple_of(BLOCK_BYTES) - range.start / BLOCK_BYTES * BLOCK_BYTES + 512
            })
            .collect();
        // Each part is an append of its own, in whole pages.
        let rounding_bytes = 4 * BLOCK_BYTES * bytes.len() as u64;
        if !log.journal.fits(bytes.iter().sum::<u64>() + rounding_bytes) {
            return Ok(None);
        }
        if !self.admission.admits(now_ns, self.pending.bytes()) {
            return Ok(None);
        }
        let lengths = || ranges.iter().map(|range| range.end - range.start);
        let memory = self.pending.room.acquire(lengths().sum()).now_or_never();
        let journal = log.journal.reserve_many(&bytes, Quota::Client).now_or_never();
        let (Some(mut memory), Some(journal)) = (memory, journal) else {
            self.note_full(log, request_bytes(), now_ns);
            return Ok(None);
        };
        let rooms = journal?
            .into_iter()
            .zip(lengths())
            .map(|(journal, length)| Room { journal, memory: memory.split(length) });
        Ok(Some(rooms.collect()))
    }

    /// Notes that there is no space to defer a write.
    fn note_full(&self, log: &WriteLog, request_bytes: u64, now_ns: u64) {
        let held = log.journal.held(self.pending.oldest_sequence());
        let from_oldest_pending = held.bytes - held.bytes_before;
        if from_oldest_pending * 2 < log.journal.fill().capacity_bytes {
            // It is full of releasable records: the next release frees space, whatever is destaged.
            return;
        }
        self.admission.note_full(self.pending.bytes());
        // Without seeks to save, merging few writes saves less than more checkpoints cost.
        if request_bytes == 0 || (request_bytes < SEEK_BYTES && log.keeps_sums) {
            self.admission.rest_unless_merged(now_ns);
        }
    }

    /// Time that destaging can still wait for adjacent writes; `None` if it has to start.
    pub(crate) fn pause_ns(&self, log: &WriteLog, tuning: &Tuning, now_ns: u64) -> Option<u64> {
        if log.journal.fill().percent() >= 50 || self.pending.bytes() >= tuning.pending_bytes / 2 {
            return None;
        }
        let since = self.pending.waiting_since_ns()?;
        let waited = now_ns.saturating_sub(since);
        tuning.destage_hold_ns.checked_sub(waited).filter(|left_ns| *left_ns > 0)
    }
}
