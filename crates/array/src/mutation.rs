//! Switches that break one rule of the engine each, to prove that the tests notice. They are
//! compiled where `debug_assertions` are on: in tests and in long runs of them. In a release build
//! [`is_chosen`] is the constant `false` and only the names are left; `scripts/shipped.sh` checks
//! that by [`MARKER`].
//!
//! A mutation holds for the thread that chose it, so that tests beside it are not touched.

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A rule of the engine to break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $($(#[$doc])* $name,)+
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
        }
    };
}

mutations! {
    /// After a crash what the journal has of partial stripes written in place is passed over.
    ReplayWithoutRedo,
    /// A parity record counts for all data records of its stripe before it, also those that it does
    /// not cover.
    ParityCoversAll,
    /// Journal records are released before their data is durable in place.
    ReleaseBeforeFlush,
    /// No block is ever found to disagree with its checksum.
    ChecksumsAlwaysAgree,
    /// A change of the pool's record counts when one drive has it.
    CommitOnOneDrive,
    /// A write that a drive lacks is acknowledged while the exclusion of that drive is still being
    /// recorded.
    AcknowledgeBeforeExclusion,
    /// An exclusive lock on a stripe does not wait for its holder.
    LockWithoutWaiting,
    /// Work on many stripes takes one after the other, and holds those that it has while it waits
    /// for the next.
    LockOneByOne,
    /// Maps and journals are put where most is free, whatever room drives need that are to be
    /// emptied.
    PlaceAreasCarelessly,
    /// While a volume is converted, what is copied counts in the new array before it is durable
    /// there.
    FrontierBeforeFlush,
    /// A resumed conversion leaves stale data in the new array where the old one is unwritten.
    StaleBeyondFrontier,
    /// Writes to a range that both arrays of a conversion hold go to the old array only.
    WriteOldArrayOnly,
    /// A flush that a drive refused concerns only the caller that met the refusal.
    RefusedFlushForgotten,
    /// A page of the region map that is at one of its places only stays so when the volume is
    /// opened.
    MapPageAtOnePlace,
    /// A drive of the pool that is out comes in as a new one, and keeps its old place.
    OwnDriveTwice,
    /// A drive that was put back from an older copy counts as one that missed a commit.
    RolledBackDriveCounts,
    /// A volume may become smaller than what its journal has of it.
    ShrinkOverPending,
    /// A flush that a drive fails counts as one that it did.
    FlushErrorDropped,
    /// A forced write is a write like any other.
    ForceForgotten,
    /// A write does not wait until its chunk's write-intent bit is durable.
    WriteBeforeDirtyMark,
    /// A region is marked as written before its data are durable.
    WrittenBeforeFlush,
    /// Writes while a drive is away are not recorded as missing on it.
    MissedWriteNotNoted,
    /// Writes to a column that is being migrated go to its old place only.
    MoveToOldPlaceOnly,
    /// A region is unwritten while the journal still has records of it.
    DiscardKeepsRecords,
    /// The journal is on one drive only, however many may be lost.
    JournalOnOneDrive,
    /// Freed slabs are reused at once, while writes to them may be in flight.
    FreedAtOnce,
    /// Rebuilt data counts as current before it is durable.
    RebuiltBeforeFlush,
    /// The journal keeps its older records of a row after a column of the row was filled.
    OlderRecordsStay,
    /// After a crash copies and parity count as compared.
    ResyncComparesNothing,
    /// Blocks that were lost are recorded as whole before what was written to them is durable.
    LostBlocksForgottenEarly,
    /// Blocks that are lost no more are not recorded as such before a flush is acknowledged.
    LostBlocksNotRecorded,
    /// The journal record of a rewritten lost block is released before the pool has recorded the
    /// block as whole.
    ReleaseBeforeRecord,
    /// Journal records count as written before they are durable.
    JournalNotDurable,
    /// After a crash a block that the last record of its stripe passes over counts as durable in
    /// place, whatever records before it hold of it.
    PassedOverForgotten,
    /// The journal has only the first stretch of parity of a write that skips blocks.
    FirstStretchOnly,
    /// A page of checksums that was found at one of its places is not read again when a drive comes
    /// in that may have the other.
    IncompletePagesStay,
    /// A checkpoint writes both places of a page at once.
    CheckpointInOneTurn,
    /// Spare allocation copies the pool's record several times for each column of each run of rows,
    /// at each step.
    PlanCopiesRecord,
    /// A branch that the record has forgotten counts as past if it is older than those that it has.
    ForgottenBranchIsPast,
    /// The record may be filled to its end: nothing is kept free for drives that fail.
    RecordWithoutReserve,
    /// Blocks that are lost count as recorded where the record has no room for them.
    LossesNeedNoRecord,
    /// A drive that is shorter than it was takes part as if it had its length.
    CutDriveCounts,
    /// A drive that is longer than it was is used as one of its new length.
    LongerDriveCounts,
    /// Writes that no flush covered count as present on a drive that went away.
    UnflushedNotMissed,
    /// Forced zeros and discards are not flushed.
    ForcedZeroesNotFlushed,
    /// A session goes on whatever other session has the drives.
    OtherSessionPassedOver,
    /// No record distinguishes a drive from a copy made while it was in use.
    CopyWithoutMark,
    /// A pool is opened whatever host has it.
    OtherHostPassedOver,
    /// Pages of a region map are ordered by the lower 32 bits of their sequence numbers.
    PageSequenceTruncated,
    /// The slots of a pool's record are ordered by the lower 32 bits of their generations.
    GenerationTruncated,
    /// A loss of acknowledged writes is reported to the first client that flushes, and to no other.
    FlushErrorReportedOnce,
    /// A pool that was not closed in order is reopened as if nothing had been lost.
    ReopenedWithoutLosses,
    /// Writes of parts of one sector do not wait for each other.
    UnalignedWritesTogether,
    /// The server of a network drive is asked again while it may still execute old requests.
    UnsettledServerAsked,
    /// A flush of a volume that is cut into slices leaves out the last one.
    FlushForgetsSlice,
    /// A conversion does not wait for writes that came in on the thread of the old array.
    ConversionBesideDirectWrites,
}

impl Mutation {
    /// Its name on the command line.
    pub fn name(self) -> String {
        let mut name = String::new();
        for (index, letter) in format!("{self:?}").char_indices() {
            if letter.is_ascii_uppercase() && index > 0 {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutation| mutation.name() == name)
    }
}

#[cfg(debug_assertions)]
mod chosen {
    use std::cell::Cell;
    use std::hint::black_box;

    use super::Mutation;

    /// Text that only a program with the switches contains.
    pub const MARKER: &str = "stripewise mutation switches";

    thread_local! {
        static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Breaks this, and nothing else, for whatever this thread does from now on.
    pub fn choose(mutation: Option<Mutation>) {
        black_box(MARKER);
        CHOSEN.set(mutation);
    }

    /// True if this fault is switched on for the calling thread.
    pub fn is_chosen(mutation: Mutation) -> bool {
        CHOSEN.get() == Some(mutation)
    }
}

#[cfg(debug_assertions)]
pub use chosen::is_chosen;
#[cfg(debug_assertions)]
pub use chosen::{MARKER, choose};

/// Always false: only builds with debug assertions have the switches.
#[cfg(not(debug_assertions))]
pub const fn is_chosen(_: Mutation) -> bool {
    false
}
