//! Switches that break one rule of the log each, to prove that the tests notice. They exist where
//! `debug_assertions` are on; elsewhere [`is_chosen`] is the constant `false`.
//!
//! A mutation holds for the thread that chose it, so that tests beside it are not touched.

/// A rule of the log to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The cleaner passes over some blocks that are live.
    LiveBlockCleanedAway,
    /// A summary of an earlier use of its segment counts.
    OlderUseOfSegment,
    /// Segments are written again before the roots that free them are durable.
    ReuseBeforeRoots,
    /// Merges do not report the blocks that they find dead.
    DeadListForgotten,
    /// A flush does not stage the blocks of the open segment.
    FlushWithoutStaging,
    /// Blocks that a segment lacks after a crash do not end recovery.
    TornSegmentCounts,
    /// A segment counts as durable once it is written, without a flush of the drives.
    FlushWithoutDrives,
    /// Roots that were replaced are taken.
    StaleRoots,
    /// Summaries and staging records are believed whatever their checksum.
    SummaryWithoutChecksum,
    /// A member counts as present when its rebuild begins.
    UnfinishedMemberBelieved,
    /// Segments that are written during a rebuild do not go to the member that is being filled.
    NewSegmentsNotFilled,
    /// A rebuild goes on after the member got another drive and place.
    ReplacedMemberBelieved,
    /// A rebuild that goes on believes that the member has the newest use of each segment.
    FilledWhateverTheUse,
    /// A scrub does not compare parity.
    ScrubForgetsParity,
    /// Merges drop versions that only snapshots see.
    KeptVersionDropped,
    /// The cleaner passes over blocks that only snapshots see.
    KeptBlockCleanedAway,
    /// A snapshot is recorded before all that it contains is durable.
    SnapshotBeforeItsData,
    /// Blocks of a snapshot are given up before roots without the snapshot are durable.
    SnapshotGivenUpBeforeRoots,
    /// A version that the cleaner moves hides a newer one in an older run.
    LateVersionsCountAsNewest,
}

impl Mutation {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::LiveBlockCleanedAway,
        Self::OlderUseOfSegment,
        Self::ReuseBeforeRoots,
        Self::DeadListForgotten,
        Self::FlushWithoutStaging,
        Self::TornSegmentCounts,
        Self::FlushWithoutDrives,
        Self::StaleRoots,
        Self::SummaryWithoutChecksum,
        Self::UnfinishedMemberBelieved,
        Self::NewSegmentsNotFilled,
        Self::ReplacedMemberBelieved,
        Self::FilledWhateverTheUse,
        Self::ScrubForgetsParity,
        Self::KeptVersionDropped,
        Self::KeptBlockCleanedAway,
        Self::SnapshotBeforeItsData,
        Self::SnapshotGivenUpBeforeRoots,
        Self::LateVersionsCountAsNewest,
    ];
}

#[cfg(debug_assertions)]
mod chosen {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Breaks this, and nothing else, for everything this thread does from now on.
    pub fn choose(mutation: Option<Mutation>) {
        CHOSEN.set(mutation);
    }

    /// True if this fault is switched on for the calling thread.
    pub fn is_chosen(mutation: Mutation) -> bool {
        CHOSEN.get() == Some(mutation)
    }
}

#[cfg(debug_assertions)]
pub use chosen::{choose, is_chosen};

/// Always false: only builds with debug assertions have the switches.
#[cfg(not(debug_assertions))]
pub const fn is_chosen(_: Mutation) -> bool {
    false
}
