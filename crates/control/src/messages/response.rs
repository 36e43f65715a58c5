//! What comes of requests, as data: the command line, the daemon's socket and HTTP make text or a
//! document of it. The document has the keys that JSON promises; fields that it leaves out are for
//! what people are told.

use std::path::PathBuf;

use serde::Serialize;
use stripewise_engine::pool::{DriveLabel, HostUse, Pin, Role};
use stripewise_layout::InterleaveReason;
use stripewise_runtime::Holder;
use utoipa::ToSchema;

use crate::daemon::alerts::Sent;
use crate::jobs::Done;
use crate::messages::report::{EventReport, PoolReport, VolumeReport};
use crate::messages::request::Setting;
use crate::notation::names::VolumeName;
use crate::pools::load::Load;
use crate::registry::KnownPool;

/// What came of a request that was carried out.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Response {
    /// The pools on the list.
    KnownPools(KnownPools),
    /// How pools stand.
    Pools(Pools),
    /// A pool was changed.
    PoolChanged(PoolChanged),
    /// Pools were found on drives, and perhaps imported.
    PoolsFound(PoolsFound),
    /// A pool was taken off the list.
    PoolExported(PoolExported),
    /// What happened to a pool.
    Events(Events),
    /// What a pool's drives and volumes were asked.
    Load(Load),
    /// Jobs were worked on until they were done.
    JobsDone(Done),
    /// How volumes stand.
    Volumes(Volumes),
    /// How one volume stands, which was named.
    Volume(Volumes),
    /// A volume was changed.
    VolumeChanged(VolumeChanged),
    /// A volume's bytes went to the caller's output.
    VolumeRead,
    /// The input's bytes are in a volume.
    VolumeWritten(VolumeWritten),
    /// What drives hold.
    Drives(ShownDrives),
    /// A test alert was sent.
    AlertsTested(AlertsTested),
}

/// Pools on the list.
#[derive(Serialize)]
pub struct KnownPools {
    /// None or more.
    pub pools: Vec<KnownPool>,
}

/// Pools, in JSON.
#[derive(Serialize, ToSchema)]
pub struct Pools {
    /// One or more.
    pub pools: Vec<PoolReport>,
}

/// A pool that was changed.
#[derive(Serialize)]
pub struct PoolChanged {
    /// The pool afterwards, alone.
    pools: Vec<PoolReport>,
    /// What was done.
    #[serde(skip)]
    pub change: PoolChange,
    /// Whether the process that did it keeps the pool open, and goes on with its jobs.
    #[serde(skip)]
    pub is_served: bool,
}

impl PoolChanged {
    /// `pool` as it stands afterwards.
    pub fn new(pool: PoolReport, change: PoolChange, is_served: bool) -> Self {
        Self { pools: vec![pool], change, is_served }
    }

    /// The pool afterwards.
    pub fn pool(&self) -> &PoolReport {
        &self.pools[0]
    }
}

/// What was done to a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolChange {
    /// It was made.
    Created {
        /// Of so many drives for volumes.
        data_drives: usize,
    },
    /// Drives came into it.
    DrivesAdded {
        /// How many.
        count: usize,
        /// For what.
        role: Role,
    },
    /// A drive was taken out.
    DriveRemoved {
        /// Where it is.
        path: String,
    },
    /// A drive is emptied, or was.
    DriveRetired {
        /// Where it is.
        path: String,
        /// Whether it is empty, and no drive of the pool any more.
        is_gone: bool,
        /// Whether that was waited for.
        was_waited_for: bool,
    },
    /// A drive is out of service by command.
    DriveOffline {
        /// Where it is.
        path: String,
        /// Its identity.
        id: String,
    },
    /// A drive is used again.
    DriveOnline {
        /// Where it is.
        path: String,
        /// Whether the pool was reopened for it.
        was_reopened: bool,
    },
    /// A drive takes the place of another.
    DriveReplaced {
        /// The drive that goes, as named.
        old: String,
        /// The drive that comes, as named.
        new: String,
    },
    /// Its volumes are to be spread over all data drives.
    RebalanceBegun,
    /// No volume could grow further by that.
    NothingToRebalance,
    /// A rebalance was stopped.
    RebalanceStopped,
    /// There was none to stop.
    NoRebalance,
    /// Every stripe is to be read and compared.
    ScrubAsked,
    /// What was reported of a drive was acknowledged, or (`None`) of all.
    Cleared {
        /// The drive.
        path: Option<String>,
    },
    /// It has these settings now.
    SettingsChanged(Vec<Setting>),
    /// It has another name.
    Renamed {
        /// The one that it had.
        from: String,
    },
    /// It was erased from its drives.
    Destroyed,
}

/// Pools that were found on drives.
#[derive(Serialize)]
pub struct PoolsFound {
    /// One or more.
    pub pools: Vec<FoundPool>,
    /// They were only looked for.
    #[serde(skip)]
    pub are_only_listed: bool,
}

/// A pool that was found.
#[derive(Serialize)]
pub struct FoundPool {
    /// How it is, as far as its drives tell.
    #[serde(flatten)]
    pub pool: PoolReport,
    /// Whether it is on the list of pools.
    pub imported: bool,
    /// Why it is not imported unless it is named, or at all.
    pub held_back: Option<String>,
    /// The host that has it, or had it last.
    pub last_host: Option<HostUse>,
    /// It is held back only because it was not named.
    #[serde(skip)]
    pub must_be_named: bool,
    /// The process that uses it.
    #[serde(skip)]
    pub used_by: Option<Holder>,
    /// Drives count that were put back from older copies, which is to be recorded.
    #[serde(skip)]
    pub takes_rolled_back: bool,
}

impl PoolsFound {
    /// Whether one could not be imported that was to be, for more than want of its name.
    pub fn lack_one(&self) -> bool {
        let is_lacking = |found: &FoundPool| {
            !self.are_only_listed && !found.imported && found.held_back.is_some() && !found.must_be_named
        };
        self.pools.iter().any(is_lacking)
    }
}

/// A pool that is used here no more.
#[derive(Serialize)]
pub struct PoolExported {
    /// As it was on the list.
    pub exported: KnownPool,
}

/// What happened to a pool.
#[derive(Serialize, ToSchema)]
pub struct Events {
    /// The pool.
    pub pool: String,
    /// Oldest first.
    pub events: Vec<EventReport>,
}

/// Volumes, in JSON.
#[derive(Serialize, ToSchema)]
pub struct Volumes {
    /// None or more.
    pub volumes: Vec<VolumeReport>,
}

/// A volume that was changed.
#[derive(Serialize, ToSchema)]
pub struct VolumeChanged {
    /// The volume afterwards; of one that was deleted those that are left in its pool.
    pub volumes: Vec<VolumeReport>,
    /// What decided the interleave of a volume that was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interleave_choice: Option<InterleaveChoice>,
    /// Which one.
    #[serde(skip)]
    pub name: VolumeName,
    /// What was done.
    #[serde(skip)]
    pub change: VolumeChange,
}

/// What decides the interleave of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterleaveChoice {
    /// The request.
    Asked,
    /// Drives on which a position costs more time than a strip of the usual length.
    Disks,
    /// Nothing: it is the usual one.
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

/// What was done to a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeChange {
    /// It was made.
    Created {
        /// It takes room only as it is written.
        thin: bool,
    },
    /// It has another size.
    Resized {
        /// What it held before.
        from_bytes: u64,
    },
    /// It has another layout, or is on the way there, or back.
    Converted,
    /// It is to stay on drives of a kind.
    Pinned(Pin),
    /// It was erased.
    Deleted,
}

/// Bytes that were written to a volume.
#[derive(Serialize)]
pub struct VolumeWritten {
    /// The volume, with its pool.
    pub volume: String,
    /// Where the first of them is.
    pub offset_bytes: u64,
    /// How many; all are durable.
    pub written_bytes: u64,
}

/// What drives hold.
#[derive(Serialize)]
pub struct ShownDrives {
    /// One or more.
    pub drives: Vec<ShownDrive>,
}

/// What a drive holds.
#[derive(Serialize)]
pub struct ShownDrive {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub capacity_bytes: u64,
    /// `file`, `block device`, `volume` or `NBD export`.
    pub kind: &'static str,
    /// What it is held to.
    pub pace: Option<String>,
    /// What its superblock says; `null` where it belongs to no pool.
    pub superblock: Option<DriveLabel>,
    /// Whether the pool still counts it among its drives; `null` where that pool is not known here.
    pub belongs: Option<bool>,
    /// What else was found on it.
    pub holds: Vec<String>,
}

/// What came of a test alert.
#[derive(Serialize)]
pub struct AlertsTested {
    /// By each way of sending.
    pub sent: Vec<Sent>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(response: &Response) -> Vec<String> {
        let serde_json::Value::Object(document) = serde_json::to_value(response).expect("plain data") else {
            panic!("no document");
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
            must_be_named: false,
            used_by: Some(Holder::Kernel),
            takes_rolled_back: true,
        };
        let document = serde_json::to_value(&found).expect("plain data");
        assert!(document.get("name").is_some() && document.get("held_back").is_some());
        for hidden in ["must_be_named", "used_by", "takes_rolled_back", "pool"] {
            assert!(document.get(hidden).is_none(), "{hidden}");
        }
        let mut found = PoolsFound { pools: vec![found], are_only_listed: false };
        assert!(found.lack_one());
        found.pools[0].must_be_named = true;
        assert!(!found.lack_one());
        assert_eq!(keys(&Response::PoolsFound(found)), ["pools"]);
    }
}
