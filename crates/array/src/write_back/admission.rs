//! Write-back admission: decides when acknowledging writes from the journal pays, and when writing
//! in place is faster.
//!
//! A burst always pays: it is acknowledged at the rate of the journal. When clients have filled the
//! journal, they are served no faster than it is destaged. That is still faster than writing in
//! place if destaging merges several writes into one; otherwise each of them is only written once
//! more. So, if destaging had nothing to merge when the journal was full, writes go in place for
//! [`REST_FACTOR`] times as long as the journal took to fill; over time the rate is then that of
//! write-through.
//!
//! On disks it pays as long as clients have few requests in flight; `array/write.rs` has the
//! exceptions.
//!
//! In any case writes go in place until most of the pending data is destaged. If freed space were
//! reused at once, a few pending records would always be scattered over the ring, with those of
//! writes in place between them. A ring is freed from its oldest end, so each release would free
//! little; with checksums that is a checkpoint, which takes as long however little it frees.

use std::cell::Cell;

/// One part in this many of the time may be spent refilling the journal.
const REST_FACTOR: u64 = 31;
/// Maximum rest, however long the journal took to fill: clients may have been idle for most of that
/// time.
const LONGEST_REST_NS: u64 = 60_000_000_000;
/// Acknowledged writes per write in place from which destaging is worth its records in the journal.
const WORTHWHILE: f64 = 1.5;
/// After the journal was full, deferring resumes when one part in this many of the pending data is
/// left.
const DRAINED_PART: u64 = 3;
/// Weight of the last write in place in the mean.
const LAST_WEIGHT: f64 = 1.0 / 64.0;

pub(crate) struct Admission {
    /// Recent mean of acknowledged writes per write in place.
    merged: Cell<f64>,
    /// Time since which clients have been filling the journal.
    filling_since_ns: Cell<u64>,
    resting_until_ns: Cell<u64>,
    /// Limit of pending bytes above which no write is deferred.
    resume_at_bytes: Cell<u64>,
}

impl Admission {
    pub(crate) fn new() -> Self {
        Self {
            merged: Cell::new(1.0),
            filling_since_ns: Cell::new(0),
            resting_until_ns: Cell::new(0),
            resume_at_bytes: Cell::new(u64::MAX),
        }
    }

    /// True if a write may be deferred now, with `pending_bytes` pending.
    pub(crate) fn admits(&self, now_ns: u64, pending_bytes: u64) -> bool {
        if now_ns < self.resting_until_ns.get() || pending_bytes > self.resume_at_bytes.get() {
            return false;
        }
        self.resume_at_bytes.set(u64::MAX);
        if pending_bytes == 0 {
            self.filling_since_ns.set(now_ns);
        }
        true
    }

    /// Notes that one write in place destaged `pieces` acknowledged writes.
    pub(crate) fn note_round(&self, pieces: usize) {
        let mean = self.merged.get();
        self.merged.set(mean + (pieces as f64 - mean) * LAST_WEIGHT);
    }

    /// Notes that the journal had no space, with `pending_bytes` pending.
    pub(crate) fn note_full(&self, pending_bytes: u64) {
        // With nothing pending, other records fill it.
        if pending_bytes > 0 {
            self.resume_at_bytes.set(pending_bytes / DRAINED_PART);
        }
    }

    /// Starts a rest after the journal was full, unless destaging merges writes. Not to be called
    /// where fewer and sorted requests always pay.
    pub(crate) fn rest_unless_merged(&self, now_ns: u64) {
        if self.merged.get() >= WORTHWHILE {
            return;
        }
        let filled_in_ns = now_ns.saturating_sub(self.filling_since_ns.get());
        let rest_ns = REST_FACTOR.saturating_mul(filled_in_ns).min(LONGEST_REST_NS);
        let until_ns = now_ns.saturating_add(rest_ns);
        self.resting_until_ns.set(until_ns);
        self.filling_since_ns.set(until_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::Admission;

    #[test]
    fn scattered_burst_sends_writes_in_place_for_a_while() {
        let admission = Admission::new();
        assert!(admission.admits(1_000, 0));
        assert!(admission.admits(1_050, 4096));
        admission.rest_unless_merged(1_100);
        assert!(!admission.admits(1_101, 0));
        assert!(!admission.admits(4_199, 0));
        assert!(admission.admits(4_200, 4096));
        // The next burst begins there.
        admission.rest_unless_merged(4_300);
        assert!(!admission.admits(7_399, 4096));
        assert!(admission.admits(7_400, 4096));
    }

    #[test]
    fn mergeable_writes_always_use_the_journal() {
        let admission = Admission::new();
        assert!(admission.admits(0, 0));
        (0..200).for_each(|_| admission.note_round(3));
        admission.rest_unless_merged(100);
        assert!(admission.admits(101, 4096));
    }

    #[test]
    fn full_journal_defers_again_after_most_is_destaged() {
        let admission = Admission::new();
        assert!(admission.admits(0, 9000));
        admission.note_full(9000);
        assert!(!admission.admits(1, 9000));
        assert!(!admission.admits(2, 3001));
        assert!(admission.admits(3, 3000));
        assert!(admission.admits(4, 9000), "until it is full again");
        admission.note_full(0);
        assert!(admission.admits(5, 9000), "pending data did not fill it");
    }
}
