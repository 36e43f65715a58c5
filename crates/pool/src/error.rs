//! Errors of pools: each message says what failed, where and why. The remedies are in the crate
//! `control`, which knows the commands.

use stripewise_drive::DriveError;
use stripewise_layout::{LayoutError, Level};

use crate::manifest::host_use::HostUse;
use crate::manifest::ids::{DriveId, PoolId};
use crate::manifest::snapshot_path::SnapshotPath;
use crate::stream::error::StreamError;
use stripewise_array::ArrayError;

/// A pool operation that did not work. Nothing was changed unless the message says so.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A name that cannot be one.
    #[error("{name:?} cannot be the name of a {what}: {why}")]
    BadName {
        /// "pool", "volume" or "snapshot".
        what: &'static str,
        /// As it was given.
        name: String,
        /// Description of the fault.
        why: String,
    },
    /// The volume is there already.
    #[error("pool {pool} already has a volume {name}")]
    VolumeExists {
        /// The pool.
        pool: String,
        /// The volume.
        name: String,
    },
    /// There is no such volume.
    #[error("pool {pool} has no volume {name}")]
    NoSuchVolume {
        /// The pool.
        pool: String,
        /// The volume asked for.
        name: String,
        /// The volumes there are.
        known: Vec<String>,
    },
    /// More of the volume's drives are gone than its layout can do without.
    #[error("volume {name} cannot be read: {why}")]
    VolumeFailed {
        /// The volume.
        name: String,
        /// Description of the missing part.
        why: String,
        /// Drives that would make it readable, by identity and last path.
        needed: Vec<String>,
    },
    /// A pool needs at least one drive.
    #[error("a pool needs at least one drive, none was given")]
    NoDrives,
    /// More drives than a pool can have.
    #[error("a pool has at most {allowed} drives, {given} were given")]
    TooManyDrives {
        /// Number given.
        given: usize,
        /// The limit.
        allowed: usize,
    },
    /// More volumes than a pool can have.
    #[error("a pool has at most {allowed} volumes")]
    TooManyVolumes {
        /// The limit.
        allowed: usize,
    },
    /// The drive has no room for what it should hold.
    #[error("{drive} is too small: it has {capacity_bytes} bytes, {needed_bytes} are needed")]
    DriveTooSmall {
        /// The drive's label.
        drive: String,
        /// Its size, bytes.
        capacity_bytes: u64,
        /// Required space, bytes.
        needed_bytes: u64,
    },
    /// The drive is larger than any that a pool can address.
    #[error(
        "{drive} is too large: it has {capacity_bytes} bytes, and a pool uses drives of at most {most_bytes}"
    )]
    DriveTooLarge {
        /// The drive's label.
        drive: String,
        /// Its size, bytes.
        capacity_bytes: u64,
        /// The largest size, bytes.
        most_bytes: u64,
    },
    /// The drive can be used by one thread only, and the pool's volumes are on several.
    #[error("pool {pool} serves volumes on several threads, and {drive} can be used by one thread only")]
    OneThreadDrive {
        /// The pool.
        pool: String,
        /// The drive's label.
        drive: String,
    },
    /// A drive's place is being taken by another already.
    #[error("{drive} is being replaced with {by} already")]
    BeingReplaced {
        /// The pool.
        pool: String,
        /// The drive that goes, its label.
        drive: String,
        /// The one that comes.
        by: String,
    },
    /// The drive belongs to another pool, whose data would be lost.
    #[error("{drive} belongs to pool {pool_name} ({pool_id})")]
    DriveOfOtherPool {
        /// The drive's label.
        drive: String,
        /// The other pool's name.
        pool_name: String,
        /// The other pool's identity.
        pool_id: PoolId,
    },
    /// The drive belongs to a pool, and what it says of it cannot be read.
    #[error("{drive} belongs to pool {pool_id}, but what it says of the pool cannot be read")]
    UnreadableState {
        /// The drive's label.
        drive: String,
        /// The pool's identity.
        pool_id: PoolId,
    },
    /// The drive is one of this pool's own already.
    #[error("{drive} is a drive of this pool already ({id})")]
    DriveInPool {
        /// The drive's label.
        drive: String,
        /// Its identity.
        id: DriveId,
    },
    /// The drive holds the only current copy of something.
    #[error("{drive} holds data of volume {volume} that no other drive has")]
    OnlyCopy {
        /// The drive's label.
        drive: String,
        /// The volume.
        volume: String,
    },
    /// One drive given twice, perhaps under two names.
    #[error("{first} and {second} are the same drive")]
    SameDriveTwice {
        /// One label.
        first: String,
        /// The other label.
        second: String,
    },
    /// Drives of several pools where those of one were asked for.
    #[error("{first} belongs to pool {first_pool} but {second} to pool {second_pool}")]
    SeveralPools {
        /// A drive.
        first: String,
        /// Its pool, name and identity.
        first_pool: String,
        /// A drive of another pool.
        second: String,
        /// That other pool, name and identity.
        second_pool: String,
    },
    /// None of the drives holds a pool.
    #[error("no pool is found on {}", drives.join(", "))]
    NoPool {
        /// The drives' labels.
        drives: Vec<String>,
    },
    /// None of the drives belongs to the pool that was asked for.
    #[error("no drive of pool {id} is found on {}", drives.join(", "))]
    NotOfPool {
        /// The drives' labels.
        drives: Vec<String>,
        /// The pool's identity.
        id: PoolId,
        /// Other contents found on the drives.
        notices: Vec<String>,
    },
    /// Another host has the pool, and has not exported it.
    #[error("pool {pool} is in use by host {} ({})", host.name, host.id)]
    OtherHost {
        /// The pool.
        pool: String,
        /// That host.
        host: HostUse,
    },
    /// The pool was destroyed.
    #[error("pool {pool} was destroyed")]
    Destroyed {
        /// The pool.
        pool: String,
    },
    /// The drives were changed while they were looked at: another process has the pool open.
    #[error(
        "pool {pool} is in use by another process{}: its drives were changed while they were watched",
        in_words(host.as_ref())
    )]
    InUse {
        /// The pool.
        pool: String,
        /// The host that has it by the record.
        host: Option<HostUse>,
    },
    /// Another process has opened the pool for writing since.
    #[error(
        "pool {pool} was taken over by another process, on this host or another: nothing more is written here"
    )]
    TakenOver {
        /// The pool.
        pool: String,
    },
    /// Written by a newer version of the product.
    #[error("{drive} holds a pool in format version {version}; this program knows versions up to {known}")]
    NewerFormat {
        /// The drive's label.
        drive: String,
        /// The version on the drive.
        version: u32,
        /// The newest version known here.
        known: u32,
    },
    /// Written by an older version of the product, in a format that this one does not read.
    #[error("{drive} holds a pool in format version {version}, which this program does not read any more")]
    OlderFormat {
        /// The drive's label.
        drive: String,
        /// The version on the drive.
        version: u32,
    },
    /// Written with features that this version does not know.
    #[error("{drive} holds a pool that uses features unknown to this program (flags {flags:#x})")]
    UnknownFeatures {
        /// The drive's label.
        drive: String,
        /// The unknown flags.
        flags: u64,
    },
    /// Drives that lack commits which they had, and without which nothing can be read.
    #[error(
        "{} {} put back from an older copy: the pool is at generation {generation}, and no volume can be read without",
        drives.join(", "),
        if drives.len() == 1 { "was" } else { "were" }
    )]
    RolledBack {
        /// Their labels, and what they have.
        drives: Vec<String>,
        /// Generation on the other drives.
        generation: u64,
    },
    /// The drive is one of this pool's own, out of service, and what it holds may be of use.
    #[error("{drive} is a drive of this pool already ({id}), out of service")]
    DriveOut {
        /// The drive's label.
        drive: String,
        /// Its identity.
        id: DriveId,
    },
    /// The pool was used in two halves, each without the other.
    #[error(
        "the pool has diverged: {} went on without {}, and the other way round",
        first.join(", "),
        second.join(", ")
    )]
    Diverged {
        /// Drives of one half.
        first: Vec<String>,
        /// Drives of the other half.
        second: Vec<String>,
    },
    /// No drive of the pool has this identity.
    #[error("pool {pool} has no drive {id}")]
    NoSuchDrive {
        /// The pool.
        pool: String,
        /// Requested identity.
        id: DriveId,
    },
    /// There is not enough room for a volume.
    #[error(
        "not enough space in pool {pool}: volume {volume} needs {} free on each of {width} drives; {}",
        in_mib(needed_rows.saturating_mul(*slab_bytes)),
        room_in_words(*free_rows, *width, *slab_bytes, *drives_with_room)
    )]
    NoSpace {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// Rows that it needs.
        needed_rows: u64,
        /// Rows that there is room for.
        free_rows: u64,
        /// Drives that a row lies on.
        width: usize,
        /// Bytes of a slab.
        slab_bytes: u64,
        /// Drives that have room for anything.
        drives_with_room: usize,
        /// Largest possible size of the volume, bytes.
        possible_bytes: u64,
    },
    /// A thin volume whose region map has no room.
    #[error(
        "volume {volume} is too large for pool {pool}: the region map of a thin volume of {} has no room",
        in_mib(*size_bytes)
    )]
    ThinTooLarge {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// The size asked for, bytes.
        size_bytes: u64,
        /// Largest possible size of a thin volume of this layout, bytes.
        most_bytes: u64,
    },
    /// A thin volume cannot grow any more.
    #[error(
        "pool {pool} has no free slabs for another row of volume {volume} ({used_slabs} of {slabs} slabs in use)"
    )]
    Full {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// Slabs of data drives in use.
        used_slabs: u64,
        /// Slabs of data drives.
        slabs: u64,
    },
    /// A thin volume cannot grow while drives are out of service.
    #[error(
        "a new row of volume {volume} takes space on {needed} drives of pool {pool}, and only {working} in service have any"
    )]
    RowNeedsDrives {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// Drives that each row lies on.
        needed: usize,
        /// Drives in service that have free space.
        working: usize,
    },
    /// A conversion to another layout must end first.
    #[error("volume {volume} of pool {pool} is being converted to another layout")]
    Converting {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// Nothing would change.
    #[error("volume {volume} of pool {pool} is {layout} already")]
    SameLayout {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// Its layout, in words.
        layout: String,
    },
    /// A volume of another layout does not fit beside what is left of the old one.
    #[error(
        "not enough space in pool {pool} to convert volume {volume} to {layout}: that takes {needed_slabs} slabs of \
         {slab_bytes} bytes with its map and journal; {free_slabs} are free, and the {returned_slabs} that it has now come back \
         one after the other on the way"
    )]
    NoRoomToConvert {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// The layout that it was to have, in words.
        layout: String,
        /// Slabs of all drives together that the new layout takes.
        needed_slabs: u64,
        /// Slabs that are free on drives that can take them.
        free_slabs: u64,
        /// Slabs that the volume has now.
        returned_slabs: u64,
        /// Bytes of a slab.
        slab_bytes: u64,
    },
    /// Shrinking would cut off stored data.
    #[error("volume {volume} cannot be made so small: {stored_bytes} bytes are stored beyond {size_bytes}")]
    StoredBeyond {
        /// The volume.
        volume: String,
        /// The size asked for, bytes.
        size_bytes: u64,
        /// Data stored beyond it, bytes.
        stored_bytes: u64,
    },
    /// Taking the drive out would lose data.
    #[error("without {drive} these volumes could not be read: {}", volumes.join(", "))]
    NeedsRedundancy {
        /// The drive's label.
        drive: String,
        /// The volumes.
        volumes: Vec<String>,
    },
    /// The drive is not in a state for this.
    #[error("{drive} {what}")]
    DriveStanding {
        /// The drive's label.
        drive: String,
        /// Actual kind.
        what: String,
    },
    /// The drive cannot be let go of.
    #[error("{drive} holds {slabs} slabs of {}", volumes.join(", "))]
    DriveInUse {
        /// The drive's label.
        drive: String,
        /// Slabs in use on it.
        slabs: u64,
        /// The volumes that they belong to.
        volumes: Vec<String>,
    },
    /// The other drives have no room for the drive's data.
    #[error("{drive} cannot be emptied: {}", no_room_in_words((*held_slabs, *homeless_slabs), *useless_slabs, *adjacent_slabs, needs.as_ref()))]
    NoRoomElsewhere {
        /// The drive's label.
        drive: String,
        /// Slabs on it and on other drives that are to be emptied.
        held_slabs: u64,
        /// Those that have no place elsewhere.
        homeless_slabs: u64,
        /// Slabs that are free and of no use to them.
        useless_slabs: u64,
        /// Slabs of the largest map or journal area without a place, which lie side by side.
        adjacent_slabs: u64,
        /// A layout that the other drives are too few for.
        needs: Option<NeedsDrives>,
    },
    /// The layout is impossible.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A volume refused.
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// A drive refused.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// Opened for reading only.
    #[error("pool {pool} is open for reading only")]
    ReadOnly {
        /// The pool.
        pool: String,
    },
    /// The pool was closed.
    #[error("pool {pool} is closed")]
    Closed {
        /// The pool.
        pool: String,
    },
    /// Too many drives are missing to read any volume: the pool is not changed.
    #[error("pool {pool} cannot be changed: none of its volumes can be read without {}", missing.join(", "))]
    TooFewDrives {
        /// The pool.
        pool: String,
        /// Missing drives, by last path and identity.
        missing: Vec<String>,
    },
    /// A change could not be recorded on any drive.
    #[error("no drive is left on which the pool's metadata could be recorded: {why}")]
    NoDriveLeft {
        /// Error of the last attempt.
        why: String,
    },
    /// A drive is a file whose file system has no space left, and the change takes some.
    #[error("the file system under {drive} is full (ENOSPC), so the change could not be recorded")]
    FileSystemFull {
        /// The drive's label.
        drive: String,
    },
    /// The engine was about to record what cannot be: a fault of its own.
    #[error("the change was not recorded, since it makes no sense: {what}")]
    Senseless {
        /// Description of the fault.
        what: String,
    },
    /// The metadata have outgrown their place.
    #[error("the pool's metadata would take {needed_bytes} bytes, there is room for {room_bytes}")]
    MetadataFull {
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes there are.
        room_bytes: u64,
    },
    /// More blocks are lost than the metadata have room for.
    #[error("more blocks are lost than the metadata of pool {pool} have room to name")]
    LossesFull {
        /// The pool.
        pool: String,
    },
    /// A log volume does not offer this.
    #[error("volume {volume} of pool {pool} is a log volume, {task}")]
    LogVolume {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
        /// The work.
        task: LogTask,
    },
    /// Only logs have snapshots.
    #[error("volume {volume} of pool {pool} is overwritten in place and has no snapshots")]
    WithoutSnapshots {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// The snapshot is there already.
    #[error("pool {pool} already has a snapshot {path}")]
    SnapshotExists {
        /// The pool.
        pool: String,
        /// Volume and snapshot.
        path: SnapshotPath,
    },
    /// There is no such snapshot.
    #[error("pool {pool} has no snapshot {path}")]
    NoSuchSnapshot {
        /// The pool.
        pool: String,
        /// Volume and snapshot.
        path: SnapshotPath,
        /// Names of the volume's snapshots, the oldest first.
        known: Vec<String>,
    },
    /// The roots of a log have no room for another snapshot.
    #[error("there is no room for another snapshot in pool {pool}: a volume has {snapshots}")]
    TooManySnapshots {
        /// The pool.
        pool: String,
        /// Snapshots of the volume.
        snapshots: usize,
    },
    /// A rollback would leave snapshots of what is given up.
    #[error("volume {} of pool {pool} has newer snapshots than {path}: {}", path.volume, newer.len())]
    NewerSnapshots {
        /// The pool.
        pool: String,
        /// The snapshot to roll back to.
        path: SnapshotPath,
        /// Names of the newer ones, the oldest first.
        newer: Vec<String>,
    },
    /// The volume cannot be deleted while it has snapshots.
    #[error("volume {} of pool {pool} has snapshots: {snapshots}, the oldest is {first}", first.volume)]
    HasSnapshots {
        /// The pool.
        pool: String,
        /// Number of snapshots.
        snapshots: usize,
        /// The oldest one.
        first: SnapshotPath,
    },
    /// Clones rest on the volume or snapshot.
    #[error("{what} of pool {pool} has clones: {}", clones.join(", "))]
    HasClones {
        /// The pool.
        pool: String,
        /// The volume or snapshot.
        what: String,
        /// Names of the clones.
        clones: Vec<String>,
    },
    /// A stream cannot be sent or received.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Seek-bound drives, on which a volume has one array.
    #[error(
        "volume {volume} is to have {slices} slices, and its drives are seek-bound: each slice has journal areas of \
         its own, and every write would go back and forth between them"
    )]
    SeekBoundSlices {
        /// The volume.
        volume: String,
        /// Number asked for.
        slices: u32,
    },
    /// A size in which a slice of the volume would be empty.
    #[error(
        "volume {volume} of {slices} slices has at least {least_bytes} bytes, an extent for each, not {size_bytes}"
    )]
    TooSmallForSlices {
        /// The volume.
        volume: String,
        /// Number of slices.
        slices: u32,
        /// Size asked for, bytes.
        size_bytes: u64,
        /// Smallest size, bytes.
        least_bytes: u64,
    },
    /// A job could not go on.
    #[error("{0}")]
    Job(String),
    /// A setting out of its range.
    #[error("{0}")]
    BadSetting(String),
}

/// Work that log volumes do not offer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogTask {
    /// Another layout.
    #[error("which cannot be converted to another layout yet")]
    Convert,
    /// Another size.
    #[error("which cannot be resized yet")]
    Resize,
    /// Another kind of drives.
    #[error("which stays on data drives and cannot be pinned")]
    Pin,
    /// Another drive for one of its columns.
    #[error("whose part on {drive} cannot be moved to another drive yet")]
    Move {
        /// The drive's label.
        drive: String,
    },
}

/// A layout that needs more drives than would remain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedsDrives {
    /// The volume.
    pub volume: String,
    /// Its layout.
    pub level: Level,
    /// Drives that each of its rows lies on.
    pub width: usize,
    /// Drives that would remain.
    pub remain: usize,
}

fn no_room_in_words(
    (held, homeless): (u64, u64),
    useless: u64,
    adjacent: u64,
    needs: Option<&NeedsDrives>,
) -> String {
    let side_by_side = match adjacent {
        0 | 1 => String::new(),
        _ => format!(", and {adjacent} of them have to lie side by side"),
    };
    match needs {
        Some(NeedsDrives { volume, level, width, remain }) => format!(
            "volume {volume}, {level} over {width} drives, needs {width} drives; only {remain} would remain. Add one first"
        ),
        None => format!(
            "{homeless} of its {held} slabs fit on no other drive{side_by_side} ({useless} are free where the volume's other columns are)"
        ),
    }
}

fn room_in_words(rows: u64, width: usize, slab_bytes: u64, drives_with_room: usize) -> String {
    match drives_with_room {
        0 => "no drive has space".to_owned(),
        1 if width > 1 => "only one has space".to_owned(),
        some if some < width => format!("only {some} have space"),
        _ => format!("there is room for {}", in_mib(rows.saturating_mul(slab_bytes))),
    }
}

/// Bytes of slabs, which are whole MiB.
fn in_mib(bytes: u64) -> String {
    let mib = bytes >> 20;
    if mib < 10 << 10 { format!("{mib} MiB") } else { format!("{:.1} GiB", mib as f64 / 1024.0) }
}

fn in_words(host: Option<&HostUse>) -> String {
    host.map_or_else(String::new, |host| format!(" (last recorded: host {})", host.name))
}
