//! What can be broken on purpose, to see that the tests notice. Only with the feature `mutations`, which nothing but tests turns
//! on; without it every question here is answered with `false` when it is compiled.
//!
//! A mutation holds for the thread that chose it, so that tests beside it are not touched.

/// What to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// After a crash what the journal has of partial stripes written in place is passed over.
    ReplayWithoutRedo,
    /// A parity record counts for all data records of its stripe before it, also those that it does not cover.
    ParityCoversAll,
    /// What the journal has released comes back: it may be forgotten before it is durable in place.
    ReleaseBeforeFlush,
    /// No block is ever found to disagree with its checksum.
    ChecksumsAlwaysAgree,
    /// A change of the pool's record counts when one drive has it.
    CommitOnOneDrive,
    /// A write that a drive lacks is acknowledged while the exclusion of that drive is still being recorded.
    AcknowledgeBeforeExclusion,
    /// Who wants a stripe alone does not wait for who has it.
    LockWithoutWaiting,
    /// Work on many stripes takes one after the other, and holds those that it has while it waits for the next.
    LockOneByOne,
    /// Maps and journals are put where most is free, whatever room drives need that are to be emptied.
    PlaceAreasCarelessly,
    /// While a volume is converted, what is copied counts in the new array before it is durable there.
    FrontierBeforeFlush,
    /// Where nothing is written in the old array a conversion that is resumed leaves in the new one what it finds there.
    StaleBeyondFrontier,
    /// What is in both arrays of a volume that is being converted is written in the old one only.
    WriteOldArrayOnly,
    /// A flush that a drive refused concerns only the caller that met the refusal.
    RefusedFlushForgotten,
    /// A page of the region map that is at one of its places only stays so when the volume is opened.
    MapPageAtOnePlace,
}

#[cfg(feature = "mutations")]
mod chosen {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static CHOSEN: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Breaks this, and nothing else, for whatever this thread does from now on.
    pub fn choose(mutation: Option<Mutation>) {
        CHOSEN.set(mutation);
    }

    pub(crate) fn is_chosen(mutation: Mutation) -> bool {
        CHOSEN.get() == Some(mutation)
    }
}

#[cfg(feature = "mutations")]
pub use chosen::choose;
#[cfg(feature = "mutations")]
pub(crate) use chosen::is_chosen;

#[cfg(not(feature = "mutations"))]
pub(crate) const fn is_chosen(_: Mutation) -> bool {
    false
}
