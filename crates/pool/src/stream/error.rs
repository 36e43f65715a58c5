//! Reasons why a stream is not sent or not received.

use crate::manifest::snapshot_path::SnapshotPath;

/// A stream that cannot be sent or received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The bytes are no stream.
    #[error("the input is not a stream of a snapshot")]
    NoStream,
    /// A version that this program does not know.
    #[error("the stream has version {found}, and this program reads version {known}")]
    Version {
        /// Version of the stream.
        found: u32,
        /// Version that this program reads.
        known: u32,
    },
    /// The stream ends before its end record.
    #[error("the stream is cut short at byte {at}")]
    Cut {
        /// Offset in the stream.
        at: u64,
    },
    /// Bytes of the stream were changed.
    #[error("the stream is corrupted in what begins at byte {at}: {what}")]
    Corrupted {
        /// Offset in the stream of the header or record.
        at: u64,
        /// Description of the fault.
        what: &'static str,
    },
    /// More bytes follow the end record.
    #[error("the input goes on after the end of the stream at byte {at}")]
    GoesOn {
        /// Offset in the stream.
        at: u64,
    },
    /// The input cannot be read.
    #[error("the input cannot be read at byte {at}: {why}")]
    Input {
        /// Offset in the stream.
        at: u64,
        /// Error of the system.
        why: String,
    },
    /// The base of an incremental stream is not older than its snapshot.
    #[error("snapshot {base} is not older than snapshot {path} of pool {pool}")]
    NotOlder {
        /// The pool.
        pool: String,
        /// The snapshot to send.
        path: SnapshotPath,
        /// Name of the base.
        base: String,
    },
    /// The volume has a part of a stream.
    #[error("volume {volume} of pool {pool} holds a part of snapshot {snapshot} that it is to receive")]
    InPart {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// Name of the snapshot of the stream.
        snapshot: String,
        /// Name of the volume's snapshot that the stream builds on.
        base: Option<String>,
    },
    /// The volume has a part of another stream.
    #[error(
        "volume {volume} of pool {pool} holds a part of another stream, of its snapshot {snapshot}; \
         nothing was changed"
    )]
    OfOther {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// Name of the snapshot of the stream that it has in part.
        snapshot: String,
        /// Name of the volume's snapshot that that stream builds on.
        base: Option<String>,
    },
    /// Another process or command is writing a stream to the volume.
    #[error("volume {volume} of pool {pool} is receiving a stream now")]
    Running {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// The stream builds on another snapshot than the volume's newest.
    #[error(
        "the stream builds on snapshot {source_base}, which volume {volume} of pool {pool} did not receive \
         last, or has newer snapshots than"
    )]
    OtherBase {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// The base as the source names it, `POOL/VOL@NAME`.
        source_base: String,
        /// Name of the volume's newest snapshot.
        newest: Option<String>,
    },
    /// The volume was written after its newest snapshot.
    #[error("volume {} of pool {pool} was changed since its snapshot {base}, at byte {at}", base.volume)]
    Changed {
        /// The pool.
        pool: String,
        /// The newest snapshot.
        base: SnapshotPath,
        /// First byte that may differ.
        at: u64,
    },
    /// The volume is smaller than the snapshot.
    #[error("volume {volume} of pool {pool} has {capacity_bytes} bytes, and the snapshot has {needed_bytes}")]
    TooSmall {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// Its size.
        capacity_bytes: u64,
        /// Size of the snapshot.
        needed_bytes: u64,
    },
    /// Clones receive no streams.
    #[error("volume {volume} of pool {pool} is a clone, which receives no streams")]
    IntoClone {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// A layout was given for a volume that is there.
    #[error(
        "an incremental stream is received by an existing volume, whose layout and reserve it has already"
    )]
    HasLayout,
}
