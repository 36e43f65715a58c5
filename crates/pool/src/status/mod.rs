//! Status of a pool and its drives: plain data, which the crate `control` makes into reports.
//! `status/volume.rs` derives the status of a volume; `status/condition.rs` determines the
//! condition, `status/notices.rs` what else an administrator should know.
//!
//! Time is proportional to the number of runs of rows, not to the number of rows.

pub(crate) mod activity;
pub(crate) mod condition;
pub(crate) mod copies;
pub(crate) mod load;
pub(crate) mod memo;
pub(crate) mod notices;
pub(crate) mod rows;
pub(crate) mod volume;

use std::fmt;

use serde::Serialize;
use stripewise_layout::Shape;

use crate::jobs::tier_plan::TierInfo;
use crate::jobs::wait::Wait;
use crate::manifest::care::LastScrub;
use crate::manifest::drive_record::{DriveRecord, ExclusionKind, Role, Standing};
use crate::manifest::format::Manifest;
use crate::manifest::ids::{DriveId, PoolId, VolumeId};
use crate::manifest::snapshot_path::SnapshotPath;
use crate::manifest::snapshot_schedule::SnapshotSchedule;
use crate::manifest::volume_record::{PartRecord, Pin, VolumeRecord};
use crate::open_drives::OpenDrives;
use crate::space::addresses;
use crate::status::activity::Activity;
use crate::status::condition::Condition;
use crate::status::memo::FilledDrives;
use crate::status::notices::Notice;
use crate::volume::log::status::LogStatus;
use crate::volume::thin::slabs_in_use;
use crate::{Inner, Pool};

/// State of a pool as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolState {
    /// All volumes have all of their redundancy.
    Online,
    /// Every volume can be read and written, some with less redundancy.
    Degraded,
    /// Some volume has lost more than it can do without.
    Failed,
}

/// State of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// All there.
    Online,
    /// Works, with less redundancy.
    Degraded,
    /// Works; a replacement is being filled.
    Rebuilding,
    /// More is gone than the layout can do without.
    Failed,
}

/// State of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveState {
    /// All of it is current.
    Online,
    /// New slabs on it are being filled.
    Rebuilding,
    /// It was away; what changed is being copied to it.
    CatchingUp,
    /// It is being emptied, and then let go of.
    Retiring,
    /// In use until its successor has all that it holds.
    Replacing,
    /// Not there.
    Missing,
    /// Taken out of service by command.
    Offline,
    /// Excluded after errors.
    Failed,
    /// There, and to catch up.
    Behind,
    /// There, but what it holds is out of date.
    Stale,
}

impl DriveState {
    /// True if a drive in this state participates in the pool.
    pub fn takes_part(self) -> bool {
        matches!(self, Self::Online | Self::Rebuilding | Self::CatchingUp | Self::Retiring | Self::Replacing)
    }

    /// As JSON and people have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Rebuilding => "rebuilding",
            Self::CatchingUp => "catching-up",
            Self::Retiring => "retiring",
            Self::Replacing => "replacing",
            Self::Missing => "missing",
            Self::Offline => "offline",
            Self::Failed => "failed",
            Self::Behind => "behind",
            Self::Stale => "stale",
        }
    }
}

impl fmt::Display for DriveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// State of a drive's share of a volume, from good to bad: the worst state of its slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareState {
    /// Current.
    #[default]
    Active,
    /// Changes made while the drive was away are being copied.
    CatchingUp,
    /// Being filled.
    Rebuilding,
    /// Current, but the drive is not there.
    Away,
    /// Lost.
    Missing,
}

impl ShareState {
    /// As JSON and people have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::CatchingUp => "catching-up",
            Self::Rebuilding => "rebuilding",
            Self::Away => "away",
            Self::Missing => "missing",
        }
    }
}

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStatus {
    /// Its identity.
    pub id: DriveId,
    /// Current path, or the last known one.
    pub path: String,
    /// Purpose of the drive.
    pub role: Role,
    /// Health of the drive.
    pub state: DriveState,
    /// Reads that failed since it belongs to the pool.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Blocks of 4 KiB found wrong.
    pub checksum_errors: u64,
    /// Its size, bytes.
    pub capacity_bytes: u64,
    /// Space on it for volumes, bytes.
    pub usable_bytes: u64,
    /// Allocated part of it, bytes.
    pub allocated_bytes: u64,
    /// Why it is out, where it is.
    pub reason: Option<String>,
    /// The drive that is to have its place.
    pub successor: Option<DriveId>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: PoolId,
    /// Health of the pool.
    pub state: PoolState,
    /// Space for volumes on all data drives, redundancy included, bytes.
    pub capacity_bytes: u64,
    /// Part of it allocated to volumes, with their maps and journals, bytes.
    pub allocated_bytes: u64,
    /// Full size of all volumes, redundancy included, bytes: more than `capacity_bytes` where thin
    /// volumes overcommit the pool.
    pub provisioned_bytes: u64,
    /// Superblocks and checksum areas of all drives, bytes.
    pub metadata_bytes: u64,
    /// Region maps of all volumes, bytes.
    pub map_bytes: u64,
    /// Journals of all volumes, bytes.
    pub journal_bytes: u64,
    /// These three in percent of all drives' size.
    pub overhead_percent: f64,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// All drives that belong, present or not.
    pub drives: Vec<DriveStatus>,
    /// Jobs.
    pub activity: Vec<Activity>,
    /// The first of all conditions that may need attention.
    pub condition: Condition,
    /// The volumes.
    pub volumes: Vec<VolumeInfo>,
    /// Further facts for an administrator.
    pub notices: Vec<Notice>,
    /// Share of each drive's time for rebuilds while there is other load, percent.
    pub rebuild_priority_percent: u32,
    /// Commits so far.
    pub generation: u64,
    /// Events that are kept.
    pub events: usize,
    /// Scrub rate limit, bytes per second.
    pub patrol_bytes_per_s: Option<u64>,
    /// Interval between automatic scrubs, seconds.
    pub patrol_interval_s: Option<u64>,
    /// Time at which the next automatic scrub is due, seconds since 1970.
    pub next_scrub_unix_s: Option<u64>,
    /// From how many percent on space counts as short.
    pub space_warning_percent: u32,
    /// Rate limit for moves between tiers, bytes per second; without one the rebuild priority
    /// decides.
    pub tier_bytes_per_s: Option<u64>,
    /// Maximum latency that jobs add to a client's request at a drive, ms; `None`: no bound.
    pub rebuild_latency_ms: Option<u32>,
    /// Result of the last completed scrub.
    pub last_scrub: Option<LastScrub>,
}

/// A drive's share of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotStatus {
    /// The drive that has it, or had it last.
    pub drive: DriveId,
    /// Health of the slot.
    pub state: ShareState,
    /// Bytes of the volume's rows on it.
    pub bytes: u64,
    /// Part of them that is not current, bytes.
    pub lacking_bytes: u64,
}

/// A stream that a volume has received in part; the volume is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivingStatus {
    /// Name of the stream's snapshot.
    pub snapshot: String,
    /// Name of the volume's snapshot that the stream builds on; `None` for a whole one.
    pub base: Option<String>,
    /// True while a command is receiving it.
    pub is_running: bool,
}

/// A conversion to another layout.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversionStatus {
    /// The layout that it had.
    pub from: Shape,
    /// Number of slices that it had.
    pub from_slices: u32,
    /// The volume's bytes below this have the new layout.
    pub next_offset_bytes: u64,
    /// Part done.
    pub percent: f64,
    /// It was cancelled, and goes back: `from` is the layout that the volume was to have.
    pub is_cancelled: bool,
    /// The reason why it does not go on, if it waits.
    pub waits: Option<Wait>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeInfo {
    /// Its identity.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Health of the volume.
    pub state: VolumeState,
    /// Bytes of the journal's area on each drive that has one, of all slices together; 0 without a
    /// journal.
    pub journal_area_bytes: u64,
    /// Number of slices.
    pub slices: u32,
    /// Size of the extents that go to the slices in turn; `None` for one slice.
    pub slice_extent_bytes: Option<u64>,
    /// Level, members, groups, interleave; of the layout to be, where it is being converted.
    pub shape: Shape,
    /// Usable bytes.
    pub capacity_bytes: u64,
    /// Bytes that it takes on all its drives together, with map and journal.
    pub allocated_bytes: u64,
    /// Bytes in regions ever written; `None` where the volume is not open.
    pub written_bytes: Option<u64>,
    /// Number of further drives that may fail, in any combination.
    pub redundancy_left: usize,
    /// Blocks of 4 KiB that are lost: reading them is an error until they are written.
    pub lost_blocks: u64,
    /// True if space is allocated on first write.
    pub thin: bool,
    /// True if writes are acknowledged once they are in the journal.
    pub write_back: bool,
    /// True if its blocks have checksums.
    pub checksums: bool,
    /// Kind of drives to which the volume is pinned, if any.
    pub pin: Pin,
    /// Placement of its rows by kind of drive, and their heat.
    pub tiers: TierInfo,
    /// Allocated slab rows, and their total number.
    pub rows: (u64, u64),
    /// The drives that it lies on: in the order of its first row's columns, then the others.
    pub slots: Vec<SlotStatus>,
    /// Drives that have a copy of its region map or an area of its journal, current or not.
    pub copies: Vec<DriveId>,
    /// Those of them whose copy or area is not current, or not there, where the others are fewer
    /// than losing as many drives as the layout can do without asks for.
    pub lacking_copies: Vec<DriveId>,
    /// Figures, if it is a log volume.
    pub log: Option<LogStatus>,
    /// The layout that it had, and how far it is, where it is being converted.
    pub conversion: Option<ConversionStatus>,
    /// The stream that it has received in part.
    pub receiving: Option<ReceivingStatus>,
    /// The snapshot of which it is a clone.
    pub clone_of: Option<SnapshotPath>,
    /// Its automatic snapshots.
    pub schedule: Option<SnapshotSchedule>,
    /// Why it cannot be read, where it cannot.
    pub failure: Option<String>,
    /// Drives that would help, by path and identity.
    pub needed: Vec<String>,
}

impl Pool {
    /// Current status of the pool.
    pub fn status(&self) -> PoolStatus {
        self.0.status()
    }

    /// All volumes, also those that cannot be read.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let manifest = self.0.manifest.borrow();
        self.0.volume_infos(&manifest)
    }

    /// Running and pending jobs.
    pub fn activity(&self) -> Vec<Activity> {
        self.0.activity()
    }
}

impl Inner {
    fn status(&self) -> PoolStatus {
        let manifest = self.manifest.borrow();
        let volumes = self.volume_infos(&manifest);
        let state = if volumes.iter().any(|volume| volume.state == VolumeState::Failed) {
            PoolState::Failed
        } else if self.news.full_drive().is_some()
            || volumes.iter().any(|volume| volume.state != VolumeState::Online)
        {
            PoolState::Degraded
        } else {
            PoolState::Online
        };
        let slab_bytes = manifest.slab_bytes;
        let drives: Vec<DriveStatus> =
            manifest.drives.iter().map(|drive| self.drive_status(&manifest, drive)).collect();
        let metadata_bytes: u64 = own(&manifest).map(|drive| metadata_bytes(drive, slab_bytes)).sum();
        let map_bytes: u64 = manifest.parts().map(|part| map_slabs(part) * slab_bytes).sum();
        let journal_bytes: u64 = manifest.parts().map(|part| journal_slabs(part) * slab_bytes).sum();
        let all_bytes: u64 = own(&manifest).map(|drive| drive.capacity_bytes).sum();
        let overhead = (metadata_bytes + map_bytes + journal_bytes) as f64;
        let (used, slabs) = slabs_in_use(&manifest, &self.space.borrow());
        let condition = self.condition(&manifest, &volumes, &drives);
        PoolStatus {
            name: manifest.name.clone(),
            id: self.pool_id,
            state,
            capacity_bytes: slabs * slab_bytes,
            allocated_bytes: used * slab_bytes,
            provisioned_bytes: manifest
                .volumes
                .iter()
                .flat_map(VolumeRecord::last_group)
                .map(|part| part.rows.rows() * part.rows.width() as u64 * slab_bytes)
                .sum(),
            metadata_bytes,
            map_bytes,
            journal_bytes,
            overhead_percent: overhead * 100.0 / all_bytes.max(1) as f64,
            slab_bytes,
            drives,
            activity: self.activity(),
            condition,
            volumes,
            notices: self.all_notices(),
            rebuild_priority_percent: manifest.rebuild_priority_percent,
            generation: manifest.generation,
            events: manifest.events.iter().count() + self.news.unrecorded().len(),
            patrol_bytes_per_s: manifest.patrol.rate_bytes_per_s,
            patrol_interval_s: manifest.patrol.interval_s,
            next_scrub_unix_s: manifest.patrol.next_unix_s(),
            space_warning_percent: manifest.settings.space_warning_percent,
            tier_bytes_per_s: manifest.settings.tier_bytes_per_s,
            rebuild_latency_ms: manifest.settings.rebuild_latency_ms,
            last_scrub: manifest.care.last_scrub.clone(),
        }
    }

    fn drive_status(&self, manifest: &Manifest, drive: &DriveRecord) -> DriveStatus {
        let open = self.drives.get(drive.number);
        let errors = open.as_ref().map_or(drive.errors, |open| open.errors());
        let space = self.space.borrow();
        let (slabs, used) = (space.slabs(drive.number), space.used_slabs(drive.number));
        let filled = self.status_memo.filled(manifest);
        let (state, reason) = drive_state(&self.drives, &filled, drive);
        DriveStatus {
            id: drive.id,
            path: drive.path.clone(),
            role: drive.role,
            state,
            read_errors: errors.read,
            write_errors: errors.write,
            checksum_errors: errors.checksum,
            capacity_bytes: drive.capacity_bytes,
            usable_bytes: slabs * manifest.slab_bytes,
            allocated_bytes: used * manifest.slab_bytes,
            reason,
            successor: drive.successor.and_then(|number| Some(manifest.drive(number)?.id)),
        }
    }
}

fn drive_state(
    drives: &OpenDrives,
    filled: &FilledDrives,
    drive: &DriveRecord,
) -> (DriveState, Option<String>) {
    let open = drives.get(drive.number);
    let failed = open.as_ref().and_then(|open| open.member.failed());
    let is_behind = open.as_ref().is_some_and(|open| open.behind.is_some());
    match &drive.standing {
        Standing::Excluded { reason, kind: ExclusionKind::Offline } => {
            (DriveState::Offline, Some(reason.clone()))
        }
        Standing::Excluded { .. } if is_behind && failed.is_none() => (
            DriveState::Behind,
            Some("it was away while the pool was used; a resync of changed data is needed".to_owned()),
        ),
        Standing::Excluded { .. } if drives.is_stale(drive.number) => (
            DriveState::Stale,
            Some("it was left out while the pool was used: what it holds is out of date".to_owned()),
        ),
        Standing::Excluded { reason, kind: ExclusionKind::Missing } => {
            (DriveState::Missing, Some(reason.clone()))
        }
        Standing::Excluded { reason, kind: ExclusionKind::Failed } => {
            (DriveState::Failed, Some(reason.clone()))
        }
        Standing::Online if failed.is_some() => (DriveState::Failed, failed.map(|why| why.to_string())),
        Standing::Online if open.is_none() && drives.is_stale(drive.number) => (
            DriveState::Stale,
            Some("it lived on without the others: what it holds is out of date".to_owned()),
        ),
        Standing::Online if open.is_none() => (DriveState::Missing, Some("it was not found".to_owned())),
        Standing::Online => {
            if filled.rebuilding.contains(&drive.number) {
                (DriveState::Rebuilding, None)
            } else if filled.catching_up.contains(&drive.number) {
                (DriveState::CatchingUp, None)
            } else if drive.successor.is_some() {
                (DriveState::Replacing, None)
            } else if drive.retiring {
                (DriveState::Retiring, None)
            } else {
                (DriveState::Online, None)
            }
        }
    }
}

/// Drives that belong, those whose place others have taken left out.
fn own(manifest: &Manifest) -> impl Iterator<Item = &DriveRecord> {
    manifest.drives.iter().filter(|drive| !drive.replaced)
}

/// Superblocks at both ends, and the checksum area.
fn metadata_bytes(drive: &DriveRecord, slab_bytes: u64) -> u64 {
    let base = addresses::slabs_base_bytes(drive.capacity_bytes, slab_bytes);
    base + drive.capacity_bytes.saturating_sub(addresses::end_of_slabs(drive.capacity_bytes))
}

pub(crate) fn map_slabs(part: &PartRecord) -> u64 {
    part.meta.places.len() as u64 * u64::from(part.meta.slabs)
}

pub(crate) fn journal_slabs(part: &PartRecord) -> u64 {
    part.journal.iter().map(|place| u64::from(place.slabs)).sum()
}
