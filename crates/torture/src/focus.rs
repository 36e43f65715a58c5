//! Kinds of lives that lead to one kind of fault, and the one that each mutation of the engine is
//! found in. What a kind of life changes of the usual draws is in `world/bias.rs`.
//!
//! Faults expected: those of any run. A focus makes some of them frequent; it allows nothing that
//! the judge does not allow elsewhere.

use crate::Mutation;

macro_rules! focuses {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Kind of lives that a run leads ([`crate::Options::focus`]).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Focus {
            $($(#[$doc])* $name,)+
        }

        impl Focus {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];
        }
    };
}

focuses! {
    /// Writes that are put in place in sweeps, as on drives with arms, beside power cuts.
    Arms,
    /// Power cuts amid partial stripes, with a drive lost in the same instant.
    Cuts,
    /// Power cuts amid small writes to parity that the journal acknowledged, with a drive missing.
    Parity,
    /// Power cuts amid writes to copies and parity that no journal has.
    Resyncs,
    /// Drives whose connection is lost with writes in flight, and that come back.
    Connections,
    /// Volumes that are converted to other layouts.
    Conversions,
    /// Volumes that are zeroed while conversions copy them, whose progress is not recorded.
    ZeroedConversions,
    /// Many clients in two regions that are discarded and zeroed beside them.
    Crowds,
    /// Regions that are discarded and written again, in volumes that acknowledge from the journal.
    Discards,
    /// Power cuts amid the first writes to regions.
    NewRegions,
    /// Drives of the pool that are offered as new ones.
    DrivesElsewhere,
    /// Blocks beyond the redundancy that are lost, written again, and lost with the next cut.
    LostBlocks,
    /// Pages of a region map at one of their places only, which is lost in the next life.
    MapPages,
    /// Halves of a pool that both live on, one of them through dozens of changes.
    Halves,
    /// Drives that are put back to what they held while the pool was in use.
    CopiedDrives,
    /// Drives that are cut short, and get their length back with zeros.
    CutDrives,
    /// Drives that are extended, cut, or replaced by files of another size.
    ResizedDrives,
    /// Power cuts amid zeros and discards that clients force.
    ForcedZeroes,
    /// Pools in use that a second process opens.
    TwoOpeners,
    /// Thin volumes that fill the pool's record, and drives that are lost then.
    FullRecords,
    /// Rebuilds that lose more blocks than the pool's record has room to name.
    ManyLosses,
    /// Rows that move between drives under load.
    Moves,
    /// Power that goes with the first answer that a lost drive does not have.
    PowerWithDrive,
    /// Drives that are lost, replaced and rebuilt, beside cuts.
    Rebuilds,
    /// Flushes that drives refuse, and lose their caches with.
    RefusedFlushes,
    /// Volumes used as files that are open twice, beside refused flushes and reopenings.
    Files,
    /// Drives that miss writes, and come back.
    Returns,
    /// Drives that are put back to what they held in an earlier life.
    RolledBack,
    /// Blocks that rot, and writes that are lost or go elsewhere.
    Rot,
    /// Volumes that are made smaller and larger, deleted and created.
    Shrinks,
    /// Thin volumes that give space back and take it again.
    Thin,
    /// Power cuts of volumes that are cut into slices.
    Slices,
}

impl Focus {
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
        Self::ALL.iter().copied().find(|focus| focus.name() == name)
    }

    /// The kind of lives that a mutation is found in; `None`: in none of them.
    pub fn of(mutation: Mutation) -> Option<Self> {
        Some(match mutation {
            Mutation::FirstStretchOnly => Self::Arms,
            Mutation::ReplayWithoutRedo
            | Mutation::ReleaseBeforeFlush
            | Mutation::CommitOnOneDrive
            | Mutation::LockWithoutWaiting
            | Mutation::ForceForgotten
            | Mutation::PageSequenceTruncated
            | Mutation::JournalOnOneDrive => Self::Cuts,
            Mutation::ParityCoversAll | Mutation::JournalNotDurable => Self::Parity,
            Mutation::WriteBeforeDirtyMark | Mutation::ResyncComparesNothing => Self::Resyncs,
            Mutation::FrontierBeforeFlush | Mutation::WriteOldArrayOnly => Self::Conversions,
            Mutation::StaleBeyondFrontier => Self::ZeroedConversions,
            Mutation::LockOneByOne => Self::Crowds,
            Mutation::DiscardKeepsRecords => Self::Discards,
            Mutation::WrittenBeforeFlush => Self::NewRegions,
            Mutation::OwnDriveTwice => Self::DrivesElsewhere,
            Mutation::LostBlocksForgottenEarly | Mutation::LostBlocksNotRecorded => Self::LostBlocks,
            Mutation::MapPageAtOnePlace => Self::MapPages,
            Mutation::MoveToOldPlaceOnly => Self::Moves,
            Mutation::AcknowledgeBeforeExclusion => Self::PowerWithDrive,
            Mutation::RebuiltBeforeFlush => Self::Rebuilds,
            Mutation::RefusedFlushForgotten | Mutation::FlushErrorDropped => Self::RefusedFlushes,
            Mutation::MissedWriteNotNoted => Self::Returns,
            Mutation::RolledBackDriveCounts => Self::RolledBack,
            Mutation::ChecksumsAlwaysAgree => Self::Rot,
            Mutation::ShrinkOverPending => Self::Shrinks,
            Mutation::ForgottenBranchIsPast => Self::Halves,
            Mutation::CopyWithoutMark => Self::CopiedDrives,
            Mutation::CutDriveCounts | Mutation::GenerationTruncated => Self::CutDrives,
            Mutation::UnflushedNotMissed => Self::Connections,
            Mutation::ForcedZeroesNotFlushed => Self::ForcedZeroes,
            Mutation::LongerDriveCounts => Self::ResizedDrives,
            Mutation::OtherSessionPassedOver | Mutation::OtherHostPassedOver => Self::TwoOpeners,
            Mutation::RecordWithoutReserve | Mutation::PlanCopiesRecord => Self::FullRecords,
            Mutation::LossesNeedNoRecord => Self::ManyLosses,
            Mutation::FreedAtOnce => Self::Thin,
            Mutation::FlushForgetsSlice => Self::Slices,
            Mutation::FlushErrorReportedOnce
            | Mutation::ReopenedWithoutLosses
            | Mutation::UnalignedWritesTogether => Self::Files,
            Mutation::PlaceAreasCarelessly
            | Mutation::OlderRecordsStay
            | Mutation::ReleaseBeforeRecord
            | Mutation::PassedOverForgotten
            | Mutation::IncompletePagesStay
            | Mutation::CheckpointInOneTurn
            | Mutation::UnsettledServerAsked
            | Mutation::ConversionBesideDirectWrites => return None,
        })
    }
}
