//! Errors of requests to a volume.

use stripewise_drive::DriveError;
use stripewise_layout::LayoutError;

/// A request to an array that did not work. Cloned to every request that was merged into the one
/// that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ArrayError {
    /// Beyond the end of the volume.
    #[error("{length_bytes} bytes at {offset_bytes} lie beyond the volume's end at {capacity_bytes}")]
    OutOfRange {
        /// Start of the request, bytes.
        offset_bytes: u64,
        /// Length of the request, bytes.
        length_bytes: u64,
        /// The volume's size, bytes.
        capacity_bytes: u64,
    },
    /// Not a multiple of the volume's sector.
    #[error("{length_bytes} bytes at {offset_bytes}: offset and length must be multiples of {unit_bytes}")]
    Misaligned {
        /// Start of the request, bytes.
        offset_bytes: u64,
        /// Length of the request, bytes.
        length_bytes: u64,
        /// The sector, bytes.
        unit_bytes: u64,
    },
    /// More has failed than the layout can make up for; this range is lost or cannot be written.
    #[error("stripe {stripe}: {what}")]
    Lost {
        /// The stripe.
        stripe: u64,
        /// Affected units and members, with the error of each.
        what: String,
    },
    /// A drive failed and there is no redundancy to do without it.
    #[error("{0}")]
    Drive(#[from] DriveError),
    /// A drive had to be excluded, but that could not be recorded on the others.
    #[error("the loss of a drive could not be recorded on the others, so nothing more is written: {0}")]
    CannotExclude(String),
    /// Lost blocks could not be recorded.
    #[error("the pool's record of lost blocks could not be brought up to date: {0}")]
    CannotRecord(String),
    /// The region map of a volume of this size does not fit into memory.
    #[error("the map of {regions} regions does not fit into this machine's memory")]
    NoMemory {
        /// Number of regions.
        regions: u64,
    },
    /// The layout does not fit.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The map of written regions is unreadable on every member.
    #[error("the region map of the volume is unreadable on all members")]
    MapLost,
    /// The journal cannot take or give back what it should.
    #[error("the volume's journal: {0}")]
    Journal(String),
    /// The log of a log volume cannot take or give back what it should.
    #[error("the volume's log: {0}")]
    Log(String),
    /// The array takes no writes: see [`Array::protect`](crate::Array::protect).
    #[error(
        "the volume takes no writes: it was opened for reading only, or has lost more drives than its layout can spare"
    )]
    Protected,
    /// A snapshot, which never changes.
    #[error("a snapshot cannot be written")]
    ReadOnly,
    /// There is no space left for a thin volume to grow into.
    #[error("no space left: {0}")]
    NoSpace(String),
    /// A drive is a file whose file system has no space left. Nothing more is written, so all
    /// drives stay current, and everything is as it was when there is space and the pool was opened
    /// again.
    #[error("writing stopped: the file system under {drive} is full (ENOSPC)")]
    FileSystemFull {
        /// The drive's label.
        drive: String,
    },
    /// A column of a row is not, or no longer, being moved or filled: its drive went, or the pool
    /// gave it another place.
    #[error("column {column} of row {row} has another place now")]
    Moved {
        /// The row.
        row: u64,
        /// The column.
        column: usize,
    },
    /// A drive refused a flush, and what was written before it may be lost.
    #[error("a drive refused a flush while this was being made durable, and may have lost it")]
    NotDurable,
    /// Another session has the pool's drives.
    #[error("{0}")]
    TakenOver(String),
    /// The array was closed.
    #[error("the volume is closed")]
    Closed,
}
