//! Detects whether a write continues an earlier one.

use std::cell::{Cell, RefCell};

/// Maximum number of streams that are tracked.
const STREAMS: usize = 32;

/// End offsets of recent writes.
pub(crate) struct SequentialDetector {
    ends: RefCell<[u64; STREAMS]>,
    /// The entry that the next new stream takes: the one that began longest ago.
    next: Cell<usize>,
}

impl Default for SequentialDetector {
    fn default() -> Self {
        Self { ends: RefCell::new([u64::MAX; STREAMS]), next: Cell::new(0) }
    }
}

impl SequentialDetector {
    /// Records a write of a range in bytes. True if the range begins where an earlier write ended.
    pub(crate) fn note(&self, start_bytes: u64, end_bytes: u64) -> bool {
        let mut ends = self.ends.borrow_mut();
        if let Some(stream) = ends.iter_mut().find(|end| **end == start_bytes) {
            *stream = end_bytes;
            return true;
        }
        let next = self.next.get();
        ends[next] = end_bytes;
        self.next.set((next + 1) % STREAMS);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_streams_are_tracked_up_to_a_limit() {
        let detector = SequentialDetector::default();
        assert!(!detector.note(0, 10));
        assert!(!detector.note(1000, 1010));
        assert!(detector.note(10, 20) && detector.note(1010, 1020));
        assert!(!detector.note(10, 20), "it has gone on from there");
        for stream in 0..STREAMS as u64 {
            assert!(!detector.note(5000 + 100 * stream, 5001 + 100 * stream));
        }
        assert!(!detector.note(1020, 1030), "forgotten");
    }
}
