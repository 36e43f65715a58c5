//! Numbers of commits: the highest that was tried, the one that every drive has, and the one that
//! arrays were opened with. The next number is above all that were ever tried, so that no number
//! means two states.
//!
//! Fault expected: a drive that comes back with a higher number than the pool has.

use std::cell::Cell;

use stripewise_drive::{Semaphore, SemaphorePermit};

use crate::error::PoolError;
use crate::manifest::format::Manifest;
use crate::manifest::ids::PoolId;
use crate::superblock::room::RecordBounds;
use crate::superblock::writer::Writer;
use stripewise_array::tuning::Tuning;

/// The commits of an open pool.
pub(crate) struct Commits {
    /// Writes commits to drives.
    pub writer: Writer,
    /// Limits of the record.
    pub bounds: RecordBounds,
    turns: Semaphore,
    /// The highest number that a commit was begun with.
    attempted: Cell<u64>,
    /// The last commit that every drive which takes part is known to have; 0 where that is not
    /// known.
    proven: Cell<u64>,
    /// The generation when arrays with checksums were opened last, or, before that, when the pool
    /// was: their pages carry it, so no two openings of an array share one.
    stamped: Cell<u64>,
}

impl Commits {
    /// The commits of a pool at this generation.
    pub(crate) fn new(pool_id: PoolId, tuning: &Tuning, generation: u64) -> Self {
        Self {
            writer: Writer::new(pool_id, tuning.commit_piece_bytes, tuning.record_room_bytes),
            bounds: RecordBounds::of(tuning),
            turns: Semaphore::new(1),
            attempted: Cell::new(generation),
            proven: Cell::new(0),
            stamped: Cell::new(generation),
        }
    }

    /// Refuses a change of one state to another that adds to the record, before there is no room
    /// left for emergencies.
    pub(crate) fn check_growth(&self, next: &Manifest) -> Result<(), PoolError> {
        self.bounds.check_growth(next)
    }

    /// As [`Self::check_growth`], for added runs of `width` columns; fast while there is much room.
    pub(crate) fn check_runs(
        &self,
        change: (&Manifest, &Manifest),
        runs: u64,
        width: u64,
    ) -> Result<(), PoolError> {
        self.writer.ledger.check_runs(&self.bounds, change, runs, width)
    }

    /// Commits go one at a time.
    pub(crate) async fn turn(&self) -> SemaphorePermit {
        self.turns.acquire(1).await
    }

    /// A commit of this number was begun somewhere: the next one is newer.
    pub(crate) fn note_attempted(&self, generation: u64) {
        self.attempted.set(self.attempted.get().max(generation));
    }

    /// The number of the next attempt, behind `generation`.
    pub(crate) fn begin_attempt(&self, generation: u64) -> u64 {
        self.note_attempted(generation);
        self.attempted.set(self.attempted.get() + 1);
        self.attempted.get()
    }

    /// The last commit that every drive has.
    pub(crate) fn proven(&self) -> u64 {
        self.proven.get()
    }

    /// Every drive that takes part has this commit.
    pub(crate) fn prove(&self, generation: u64) {
        self.proven.set(generation);
    }

    /// True if arrays were opened in this generation already.
    pub(crate) fn is_stamped(&self, generation: u64) -> bool {
        self.stamped.get() == generation
    }

    /// Arrays are opened in this generation.
    pub(crate) fn stamp(&self, generation: u64) {
        self.stamped.set(generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::ids::Id;

    #[test]
    fn commit_numbers_are_unique_and_above_any_seen() {
        let commits = Commits::new(Id(1), &Tuning::default(), 5);
        assert_eq!([commits.begin_attempt(5), commits.begin_attempt(5)], [6, 7], "the first did not count");
        commits.note_attempted(20);
        commits.note_attempted(3);
        assert_eq!(commits.begin_attempt(7), 21);
        assert_eq!(commits.begin_attempt(30), 31);
    }

    #[test]
    fn the_generation_of_the_opening_is_taken() {
        let commits = Commits::new(Id(1), &Tuning::default(), 5);
        assert!(commits.is_stamped(5) && !commits.is_stamped(6));
        commits.stamp(6);
        assert!(commits.is_stamped(6));
    }
}
