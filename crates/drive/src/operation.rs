//! The operations of a drive. Faults expected: none.

/// The operation of a drive request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read into the segments.
    Read,
    /// Write from the segments. Durable only after a later flush, unless `fua`.
    Write {
        /// Forced unit access: complete only when durable.
        fua: bool,
    },
    /// Make every write that completed before the flush was submitted durable.
    Flush,
    /// Drop the range's contents; later reads of it are undefined.
    Discard,
    /// Make the range read as zeros. Durable only after a later flush.
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
