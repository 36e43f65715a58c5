//! What can be asked of a drive. Faults expected: none.

/// What a request asks of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read into the segments.
    Read,
    /// Write from the segments. Durable only after a later flush, unless `fua`.
    Write {
        /// Forced unit access: complete only when durable.
        fua: bool,
    },
    /// Make every write completed before this was submitted durable.
    Flush,
    /// The range's contents are no longer needed; what a read gives afterwards is undefined.
    Discard,
    /// The range reads as zeros afterwards. Durable only after a later flush.
    WriteZeroes,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write { fua: false } => "write",
            Self::Write { fua: true } => "write (FUA)",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write zeroes",
        })
    }
}
