//! What a request to a drive is for. Faults expected: none.

/// What a request to a drive is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// What a client reads or writes.
    #[default]
    Data,
    /// Old data and parity that a write of part of a stripe needs.
    PreRead,
    /// What a read of missing or damaged data is computed from.
    Reconstruct,
    /// Parity of what a client writes, and further copies of it.
    Parity,
    /// What was deferred in the journal and now goes in place.
    Destage,
    /// First writes of zeros around what a client writes in a new region.
    Zero,
    /// The journal: batches, headers, replay.
    Journal,
    /// Pages of checksums.
    Checksums,
    /// Pages of the region map.
    RegionMap,
    /// The pool's own record.
    Record,
    /// Flushes, whatever for.
    Flush,
    /// Filling of a new drive: reads of the others, writes to it.
    Rebuild,
    /// Verification of all that is there.
    Scrub,
    /// What another job copies: a conversion, a column that moves.
    Job,
    /// Blocks written again that a drive lost.
    Repair,
    /// Discards.
    Discard,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 16] = [
        Self::Data,
        Self::PreRead,
        Self::Reconstruct,
        Self::Parity,
        Self::Destage,
        Self::Zero,
        Self::Journal,
        Self::Checksums,
        Self::RegionMap,
        Self::Record,
        Self::Flush,
        Self::Rebuild,
        Self::Scrub,
        Self::Job,
        Self::Repair,
        Self::Discard,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::PreRead => "pre_read",
            Self::Reconstruct => "reconstruct",
            Self::Parity => "parity",
            Self::Destage => "destage",
            Self::Zero => "zero",
            Self::Journal => "journal",
            Self::Checksums => "checksums",
            Self::RegionMap => "region_map",
            Self::Record => "record",
            Self::Flush => "flush",
            Self::Rebuild => "rebuild",
            Self::Scrub => "scrub",
            Self::Job => "job",
            Self::Repair => "repair",
            Self::Discard => "discard",
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Data => "client data",
            Self::PreRead => "pre-read",
            Self::Reconstruct => "reconstruction",
            Self::Parity => "parity and copies",
            Self::Destage => "destage",
            Self::Zero => "zeros of new regions",
            Self::Journal => "journal",
            Self::Checksums => "checksum pages",
            Self::RegionMap => "region map",
            Self::Record => "pool record",
            Self::Flush => "flush",
            Self::Rebuild => "rebuild",
            Self::Scrub => "scrub",
            Self::Job => "other jobs",
            Self::Repair => "repair",
            Self::Discard => "discard",
        }
    }
}
