//! Errors of requests to a log volume.

use stripewise_drive::DriveError;
use stripewise_layout::LayoutError;

/// A request to a log that did not work.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
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
    /// Not a multiple of the block.
    #[error("{length_bytes} bytes at {offset_bytes}: offset and length must be multiples of 4096")]
    Misaligned {
        /// Start of the request, bytes.
        offset_bytes: u64,
        /// Length of the request, bytes.
        length_bytes: u64,
    },
    /// The space for clients is in use.
    #[error(
        "no space left: {live_blocks} of {limit_blocks} blocks are in use, those of {snapshots} snapshots \
         included; discard data or delete snapshots to free some"
    )]
    NoSpace {
        /// Blocks in use.
        live_blocks: u64,
        /// Blocks that clients may use.
        limit_blocks: u64,
        /// Snapshots, whose blocks count.
        snapshots: usize,
    },
    /// A snapshot of this name does not exist.
    #[error("there is no snapshot `{name}`")]
    NoSuchSnapshot {
        /// The name.
        name: String,
    },
    /// The snapshot was deleted since it was opened.
    #[error("the snapshot was deleted")]
    SnapshotGone,
    /// Snapshots never change.
    #[error("a snapshot cannot be written")]
    ReadOnly,
    /// A snapshot of this name exists.
    #[error("there is a snapshot `{name}` already")]
    SnapshotExists {
        /// The name.
        name: String,
    },
    /// Not a name for a snapshot.
    #[error("`{name}` is not a name for a snapshot: it must have 1 to 128 bytes")]
    SnapshotName {
        /// The name.
        name: String,
    },
    /// The roots have no room, or no number, for another snapshot.
    #[error("there is no room for another snapshot beside {snapshots}")]
    TooManySnapshots {
        /// Snapshots that there are.
        snapshots: usize,
    },
    /// No more rollbacks or clones can be numbered.
    #[error("the log has seen as many rollbacks and clones as it can number")]
    TooManyBranches,
    /// The clone was deleted.
    #[error("the clone was deleted")]
    NoSuchClone,
    /// More has failed than the layout can make up for.
    #[error("block {place} of the log is lost: {why}")]
    Lost {
        /// Number of the block among all blocks of the log.
        place: u64,
        /// The last attempt's fault.
        why: String,
    },
    /// More drives failed than the layout tolerates.
    #[error("{0}")]
    Drive(#[from] DriveError),
    /// A member that was being filled got another drive and place.
    #[error("the rebuild of member {member} ended: another drive took its place")]
    Replaced {
        /// The member.
        member: usize,
    },
    /// The roots could not be recorded.
    #[error("the log's roots could not be recorded: {0}")]
    Roots(String),
    /// The roots or what they refer to contradict each other.
    #[error("the log cannot be opened: {0}")]
    Invalid(String),
    /// The space is too small for the layout, the segments and the reserve.
    #[error("a log of {segments} segments is too small; at least {needed} are required")]
    TooSmall {
        /// Segments that fit.
        segments: u32,
        /// Segments that are needed.
        needed: u32,
    },
    /// More members were left out than the layout tolerates.
    #[error("the volume takes no writes: it has lost more drives than its layout can spare")]
    Protected,
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The layout does not fit.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}
