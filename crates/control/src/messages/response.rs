//! Results of requests as plain data, from which the command line, the control socket and HTTP make
//! text or a JSON document. Fields that are not serialised are for the text only.

use std::path::PathBuf;

use serde::Serialize;
use stripewise_layout::InterleaveReason;
use stripewise_pool::{DriveLabel, HostUse, Pin, Role};
use stripewise_runtime::Holder;
use utoipa::ToSchema;

use crate::daemon::alerts::Sent;
use crate::drives::hardware::Hardware;
use crate::jobs::Done;
use crate::messages::report::{DriveReport, EventReport, PoolReport, SnapshotReport, VolumeReport};
use crate::messages::request::Setting;
use crate::notation::names::{SnapshotName, VolumeName};
use crate::pools::load::Load;
use crate::registry::KnownPool;

/// Result of a successful request.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Response {
    /// The registered pools.
    KnownPools(KnownPools),
    /// The state of pools.
    Pools(Pools),
    /// A pool was changed.
    PoolChanged(PoolChanged),
    /// Pools were found on drives; some may have been imported.
    PoolsFound(PoolsFound),
    /// A pool was exported.
    PoolExported(PoolExported),
    /// The events of a pool.
    Events(Events),
    /// The settings of a pool.
    Settings(PoolSettings),
    /// The I/O load of a pool's drives and volumes.
    Load(Load),
    /// All jobs of one kind are done.
    JobsDone(Done),
    /// The state of volumes.
    Volumes(Volumes),
    /// The state of one named volume.
    Volume(Volumes),
    /// A volume was changed.
    VolumeChanged(VolumeChanged),
    /// Snapshots of pools.
    Snapshots(Snapshots),
    /// Snapshots were taken or deleted.
    SnapshotsChanged(SnapshotsChanged),
    /// Differences of snapshots.
    Differences(Differences),
    /// Data of a volume or a snapshot was sent to the caller's output.
    BytesSent,
    /// The caller's input was received as a snapshot.
    SnapshotReceived(SnapshotReceived),
    /// The caller's input was written to a volume.
    VolumeWritten(VolumeWritten),
    /// The drives of pools.
    DriveList(DriveList),
    /// The contents of drives.
    Drives(ShownDrives),
    /// A mount began or ended.
    Mounted(Mounted),
    /// A test alert was sent.
    AlertsTested(AlertsTested),
    /// The light of a drive's slot was switched.
    Located(Located),
    /// A drive was erased.
    DriveErased(DriveErased),
}

/// The registered pools.
#[derive(Serialize, ToSchema)]
pub struct KnownPools {
    /// None or more.
    pub pools: Vec<KnownPool>,
}

/// The state of pools.
#[derive(Serialize, ToSchema)]
pub struct Pools {
    /// One or more.
    pub pools: Vec<PoolReport>,
}

/// The settings of a pool.
#[derive(Serialize, ToSchema)]
pub struct PoolSettings {
    /// Pool name.
    pub pool: String,
    /// The settings, as `pool set` takes them.
    pub settings: Vec<SettingValue>,
    /// True if one setting was named: its value alone is the text.
    #[serde(skip)]
    pub is_one: bool,
}

/// A setting of a pool.
#[derive(Serialize, ToSchema)]
pub struct SettingValue {
    /// Name.
    pub key: String,
    /// Value.
    pub value: String,
}

/// A changed pool.
#[derive(Serialize)]
pub struct PoolChanged {
    /// The pool after the change, as the only element.
    pools: Vec<PoolReport>,
    /// The change.
    #[serde(skip)]
    pub change: PoolChange,
    /// True if the process that made the change keeps the pool open and runs its jobs.
    #[serde(skip)]
    pub is_served: bool,
}

impl PoolChanged {
    /// Response with the pool after the change.
    pub fn new(pool: PoolReport, change: PoolChange, is_served: bool) -> Self {
        Self { pools: vec![pool], change, is_served }
    }

    /// The pool after the change.
    pub fn pool(&self) -> &PoolReport {
        &self.pools[0]
    }
}

/// A change of a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolChange {
    /// The pool was created.
    Created {
        /// Number of data drives.
        data_drives: usize,
    },
    /// Drives were added.
    DrivesAdded {
        /// Number of drives.
        count: usize,
        /// Role of the drives.
        role: Role,
    },
    /// A drive was removed.
    DriveRemoved {
        /// Path of the drive.
        path: String,
    },
    /// Evacuation of a drive was started, and may have ended.
    DriveRetired {
        /// Path of the drive.
        path: String,
        /// True if the drive is empty and has left the pool.
        is_gone: bool,
        /// True if the command waited for the evacuation.
        was_waited_for: bool,
    },
    /// A drive was taken offline.
    DriveOffline {
        /// Path of the drive.
        path: String,
        /// Drive identity.
        id: String,
    },
    /// A drive was brought online.
    DriveOnline {
        /// Path of the drive.
        path: String,
        /// True if the pool was reopened to use the drive.
        was_reopened: bool,
    },
    /// Replacement of a drive was started.
    DriveReplaced {
        /// Replaced drive, as the caller named it.
        old: String,
        /// Replacement drive, as the caller named it.
        new: String,
    },
    /// Drives that became larger are used in full.
    Grown {
        /// Their paths.
        drives: Vec<String>,
        /// Number of drives that wait until these are filled again.
        left: usize,
    },
    /// A rebalance of volumes over all data drives was queued.
    RebalanceBegun,
    /// No volume could grow further by a rebalance.
    NothingToRebalance,
    /// A rebalance was stopped.
    RebalanceStopped,
    /// No rebalance was running or queued.
    NoRebalance,
    /// A scrub of all volumes was queued.
    ScrubAsked,
    /// Error counters and notices were reset.
    Cleared {
        /// Path of the drive; `None` for all drives.
        path: Option<String>,
    },
    /// These settings were changed.
    SettingsChanged(Vec<Setting>),
    /// The pool was renamed.
    Renamed {
        /// Old name.
        from: String,
    },
    /// The pool was destroyed.
    Destroyed {
        /// It was erased from its drives, and cannot be brought back.
        wiped: bool,
    },
}

/// Pools found on drives.
#[derive(Serialize, ToSchema)]
pub struct PoolsFound {
    /// One or more.
    pub pools: Vec<FoundPool>,
    /// True if destroyed pools were searched for.
    #[serde(skip)]
    pub are_destroyed: bool,
    /// True if the request was only to list pools, not to import any.
    #[serde(skip)]
    pub are_only_listed: bool,
}

/// A pool found on drives.
#[derive(Serialize, ToSchema)]
pub struct FoundPool {
    /// State of the pool, as read from its drives.
    #[serde(flatten)]
    pub pool: PoolReport,
    /// True if the pool is registered.
    pub imported: bool,
    /// Reason that the pool cannot be imported, or only by name.
    pub held_back: Option<String>,
    /// Host that uses the pool, or used it last.
    #[schema(value_type = Option<Object>)]
    pub last_host: Option<HostUse>,
    /// When the pool was destroyed, seconds since 1970; omitted if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destroyed_unix_s: Option<u64>,
    /// True if the pool was not imported only because it was not named.
    #[serde(skip)]
    pub must_be_named: bool,
    /// True if it is registered, but not with the drives that were found.
    #[serde(skip)]
    pub has_moved: bool,
    /// Command that imports the pool.
    #[serde(skip)]
    pub command: String,
    /// Process that uses the pool.
    #[serde(skip)]
    pub used_by: Option<Holder>,
    /// True if drives restored from older copies are accepted, which the import has to record.
    #[serde(skip)]
    pub takes_rolled_back: bool,
}

impl PoolsFound {
    /// True if a requested import failed for a reason other than a missing name.
    pub fn lack_one(&self) -> bool {
        let is_lacking = |found: &FoundPool| {
            !self.are_only_listed && !found.imported && found.held_back.is_some() && !found.must_be_named
        };
        self.pools.iter().any(is_lacking)
    }
}

/// An exported pool.
#[derive(Serialize, ToSchema)]
pub struct PoolExported {
    /// Its former entry in the registry.
    pub exported: KnownPool,
}

/// The events of a pool.
#[derive(Serialize, ToSchema)]
pub struct Events {
    /// Pool name.
    pub pool: String,
    /// Oldest first.
    pub events: Vec<EventReport>,
}

/// The state of volumes.
#[derive(Serialize, ToSchema)]
pub struct Volumes {
    /// None or more.
    pub volumes: Vec<VolumeReport>,
}

/// A changed volume.
#[derive(Serialize, ToSchema)]
pub struct VolumeChanged {
    /// The volume after the change; after a deletion, the remaining volumes of the pool.
    pub volumes: Vec<VolumeReport>,
    /// Reason for the interleave of a created volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interleave_choice: Option<InterleaveChoice>,
    /// Name of the changed volume.
    #[serde(skip)]
    pub name: VolumeName,
    /// The change.
    #[serde(skip)]
    pub change: VolumeChange,
}

/// Reason for the interleave of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterleaveChoice {
    /// The request specified it.
    Asked,
    /// The drives are seek-bound: a seek takes longer than transferring a default strip.
    Disks,
    /// It is the default.
    Usual,
}

impl From<InterleaveReason> for InterleaveChoice {
    fn from(reason: InterleaveReason) -> Self {
        match reason {
            InterleaveReason::Disks => Self::Disks,
            InterleaveReason::Usual => Self::Usual,
        }
    }
}

/// A change of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeChange {
    /// The volume was created.
    Created {
        /// True if space is allocated as the volume is written.
        thin: bool,
    },
    /// The volume was resized.
    Resized {
        /// Old size.
        from_bytes: u64,
    },
    /// A conversion was started or cancelled, and may have ended.
    Converted {
        /// A daemon runs the conversion.
        is_served: bool,
    },
    /// The volume was pinned to a tier, or unpinned.
    Pinned(Pin),
    /// The volume was created as a clone.
    Cloned {
        /// The snapshot.
        of: String,
    },
    /// Settings were changed.
    Set {
        /// A daemon has the pool open, and takes automatic snapshots.
        is_served: bool,
    },
    /// The volume was deleted.
    Deleted,
}

/// Snapshots of volumes.
#[derive(Serialize, ToSchema)]
pub struct Snapshots {
    /// None or more, the oldest of each volume first.
    pub snapshots: Vec<SnapshotReport>,
}

/// Snapshots that were taken or deleted.
#[derive(Serialize, ToSchema)]
pub struct SnapshotsChanged {
    /// The snapshots of the volumes after the change.
    pub snapshots: Vec<SnapshotReport>,
    /// Names of the snapshots that were taken or deleted.
    #[serde(skip)]
    pub names: Vec<SnapshotName>,
    /// The change.
    #[serde(skip)]
    pub change: SnapshotChange,
}

/// A change of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotChange {
    /// They were taken.
    Created,
    /// They were deleted.
    Deleted,
    /// The volume was rolled back to one.
    RolledBack,
}

/// A snapshot that was received from a stream.
#[derive(Serialize, ToSchema)]
pub struct SnapshotReceived {
    /// The snapshot that the volume has since.
    pub snapshot: SnapshotReport,
    /// Data in the stream.
    pub data_bytes: u64,
    /// Part of it that the volume had already, from an earlier try.
    pub present_bytes: u64,
    /// True if an earlier try had been interrupted.
    pub was_resumed: bool,
}

/// Ranges in which two snapshots of a volume differ, or a snapshot and the volume.
#[derive(Serialize, ToSchema)]
pub struct Differences {
    /// The ranges, in order.
    pub ranges: Vec<DifferenceReport>,
    /// Sum of their lengths.
    pub changed_bytes: u64,
    /// Offset from which on there may be more; `null` at the end.
    pub next_offset_bytes: Option<u64>,
    /// Options that show the rest, as text.
    #[serde(skip)]
    pub rest: String,
}

/// A range that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DifferenceReport {
    /// Offset of its first byte.
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// True if the newer one has data there; false if it reads as zeros.
    pub has_data: bool,
}

/// Data written to a volume.
#[derive(Serialize, ToSchema)]
pub struct VolumeWritten {
    /// Volume name, with its pool.
    pub volume: String,
    /// Offset of the first byte.
    pub offset_bytes: u64,
    /// Number of bytes, all of them durable.
    pub written_bytes: u64,
}

/// The drives of pools.
#[derive(Serialize, ToSchema)]
pub struct DriveList {
    /// None or more.
    pub drives: Vec<ListedDrive>,
}

/// A drive of a pool.
#[derive(Serialize, ToSchema)]
pub struct ListedDrive {
    /// Pool name.
    pub pool: String,
    /// The drive.
    #[serde(flatten)]
    pub drive: DriveReport,
}

/// The contents of drives.
#[derive(Serialize, ToSchema)]
pub struct ShownDrives {
    /// One or more.
    pub drives: Vec<ShownDrive>,
}

/// The contents of a drive.
#[derive(Serialize, ToSchema)]
pub struct ShownDrive {
    /// Path of the drive.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Size of the drive.
    pub capacity_bytes: u64,
    /// `file`, `block device`, `volume` or `NBD export`.
    #[schema(value_type = String)]
    pub kind: &'static str,
    /// Emulated drive model and limits, if the drive is paced.
    pub pace: Option<String>,
    /// Superblock; `null` if the drive belongs to no pool.
    #[schema(value_type = Option<Object>)]
    pub superblock: Option<DriveLabel>,
    /// True if the drive is still a member of its pool; `null` if that pool is not registered.
    pub belongs: Option<bool>,
    /// Other contents that were recognised.
    pub holds: Vec<String>,
    /// Serial number, slot, temperature and health.
    #[serde(flatten)]
    pub hardware: Hardware,
}

/// A mount that began or ended.
#[derive(Serialize, ToSchema)]
pub struct Mounted {
    /// Pool, or volume with its pool.
    pub target: String,
    /// Mount point.
    #[schema(value_type = String)]
    pub folder: PathBuf,
    /// True if it is mounted now.
    pub mounted: bool,
}

/// The light of a drive's slot.
#[derive(Serialize, ToSchema)]
pub struct Located {
    /// Path of the drive.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// True if the light is on.
    pub on: bool,
}

/// An erased drive.
#[derive(Serialize, ToSchema)]
pub struct DriveErased {
    /// Path of the drive.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Former contents, in words.
    pub held: Vec<String>,
}

/// Result of a test alert.
#[derive(Serialize, ToSchema)]
pub struct AlertsTested {
    /// Result for each recipient.
    pub sent: Vec<Sent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(response: &Response) -> Vec<String> {
        let serde_json::Value::Object(document) = serde_json::to_value(response).expect("plain data") else {
            panic!("not an object");
        };
        document.keys().cloned().collect()
    }

    #[test]
    fn responses_serialise_only_the_documented_keys() {
        let pool = || PoolReport { name: "tank".into(), ..PoolReport::default() };
        let changed = PoolChanged::new(pool(), PoolChange::DriveRemoved { path: "/d/0".into() }, true);
        assert_eq!(keys(&Response::PoolChanged(changed)), ["pools"]);
        let changed = VolumeChanged {
            volumes: Vec::new(),
            interleave_choice: None,
            name: "tank/a".parse().expect("a name"),
            change: VolumeChange::Deleted,
        };
        assert_eq!(keys(&Response::VolumeChanged(changed)), ["volumes"]);
        let found = FoundPool {
            pool: pool(),
            imported: false,
            held_back: Some("why".into()),
            last_host: None,
            destroyed_unix_s: None,
            must_be_named: false,
            has_moved: false,
            command: "stripewise pool import tank".into(),
            used_by: Some(Holder::Kernel),
            takes_rolled_back: true,
        };
        let document = serde_json::to_value(&found).expect("plain data");
        assert!(document.get("name").is_some() && document.get("held_back").is_some());
        for hidden in ["must_be_named", "has_moved", "command", "used_by", "takes_rolled_back", "pool"] {
            assert!(document.get(hidden).is_none(), "{hidden}");
        }
        let mut found = PoolsFound { pools: vec![found], are_destroyed: false, are_only_listed: false };
        assert!(found.lack_one());
        found.pools[0].must_be_named = true;
        assert!(!found.lack_one());
        assert_eq!(keys(&Response::PoolsFound(found)), ["pools"]);
    }
}
