//! State of pools and volumes: plain data with the JSON keys that the command line and HTTP
//! promise. Serialised both ways: the process that has a pool open writes its report to the status
//! file, and other processes read and show it.

use serde::{Deserialize, Serialize};
use stripewise_pool::{
    Activity, DriveStatus, Event, HostUse, LogStatus, Notice, PoolStatus, SlotStatus, SnapshotInfo,
    SnapshotSchedule, TierInfo, VolumeInfo,
};
use stripewise_runtime::Holder;
use utoipa::ToSchema;

use crate::drives::hardware::Hardware;
use crate::notation::file_system::FileSystem;
use crate::notation::size::{ByteSize, duration_text};
use crate::notation::times::{host_in_words, moment_text};
use crate::registry::KnownPool;

pub(crate) mod condition;
pub(crate) mod hardware;
mod state;

pub use state::{DriveState, PoolState, ShareState, VolumeState, word};

/// A count with its noun: `1 drive`, `2 drives`.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// A pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolReport {
    /// Pool name.
    pub name: String,
    /// Pool identity.
    pub id: String,
    /// State of the pool as a whole.
    pub state: PoolState,
    /// Space for volumes, redundancy included.
    pub capacity_bytes: u64,
    /// Space that volumes use, with their region maps and journals.
    pub allocated_bytes: u64,
    /// Space that all volumes would use when fully written, redundancy included. Exceeds
    /// `capacity_bytes` if thin volumes overcommit the pool.
    pub provisioned_bytes: u64,
    /// Size of superblocks and checksums.
    pub metadata_bytes: u64,
    /// Size of region maps.
    pub map_bytes: u64,
    /// Size of journals.
    pub journal_bytes: u64,
    /// Share of metadata, region maps and journals in the size of all drives.
    pub overhead_percent: f64,
    /// Allocation unit.
    pub slab_bytes: u64,
    /// True if a process has the pool open and works on its jobs.
    #[serde(default)]
    pub in_use: bool,
    /// Drives of the pool, present or not.
    pub drives: Vec<DriveReport>,
    /// Running and pending jobs.
    pub activity: Vec<ActivityReport>,
    /// Explanation of the state.
    pub condition: String,
    /// Next command to run; empty if none is needed.
    pub action: String,
    /// Volumes of the pool.
    pub volumes: Vec<VolumeReport>,
    /// Further notices for the administrator.
    pub notices: Vec<String>,
    /// Share of drive time that rebuilds get under load.
    pub rebuild_priority_percent: u32,
    /// Number of the last commit of the pool's metadata.
    pub generation: u64,
    /// Number of recorded events; `pool events` shows them.
    pub events: usize,
    /// Scrub rate limit; `null`: only the rebuild priority limits it.
    pub patrol_bytes_per_s: Option<u64>,
    /// Interval between automatic scrubs; `null`: none start automatically.
    pub patrol_interval_s: Option<u64>,
    /// Time at which the next automatic scrub is due, milliseconds since 1970; `null`: none is
    /// scheduled.
    #[serde(default)]
    pub next_scrub_unix_ms: Option<u64>,
    /// Space usage from which on the status warns.
    pub space_warning_percent: u32,
    /// Rate limit for moving rows between tiers; `null`: only the rebuild priority limits it.
    pub tier_bytes_per_s: Option<u64>,
    /// Maximum delay that background jobs add to a client request's wait for a drive; `null`: no
    /// bound.
    #[serde(default)]
    pub rebuild_latency_ms: Option<u32>,
    /// Mounts that the daemon keeps.
    #[serde(default)]
    pub mounts: Vec<MountReport>,
    /// Spares that took the place of other drives, until `pool clear`.
    #[serde(default)]
    pub spares_in_use: Vec<SpareReport>,
    /// Result of the last finished scrub; `null`: there was none.
    #[serde(default)]
    pub last_scrub: Option<LastScrubReport>,
}

/// A mount that the daemon keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MountReport {
    /// Pool, whose volumes are files in the folder, or volume with a file system.
    pub target: String,
    /// Mount point.
    pub folder: String,
    /// Type of the file system; `null`: volumes as files.
    pub file_system: Option<FileSystem>,
    /// State of the mount.
    pub state: MountedState,
    /// Reason of a failure.
    pub why: Option<String>,
}

/// State of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MountedState {
    /// It can be used.
    Mounted,
    /// It is being mounted.
    Mounting,
    /// It could not be mounted; it is tried again.
    Failed,
    /// Another process unmounted it; it comes back with the next daemon.
    Unmounted,
}

/// A spare in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SpareReport {
    /// Path of the spare.
    pub spare: String,
    /// Path of the drive whose place it took.
    pub drive: String,
    /// Time, milliseconds since 1970.
    pub time_unix_ms: u64,
}

/// Totals of a finished scrub over all volumes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LastScrubReport {
    /// Time of the request, milliseconds since 1970.
    pub began_unix_ms: u64,
    /// Time of the end, milliseconds since 1970.
    pub ended_unix_ms: u64,
    /// Bytes read and compared.
    pub checked_bytes: u64,
    /// Wrong blocks of 4 KiB that were attributed to a drive and repaired.
    pub repaired_blocks: u64,
    /// Mismatched blocks for which the layout cannot determine the correct copy; made consistent.
    pub unattributed_blocks: u64,
    /// Strips that could be neither read nor reconstructed.
    pub unreadable_strips: u64,
    /// Volumes whose scrub ended early.
    pub volumes_cut_short: u64,
}

impl LastScrubReport {
    /// True if it found no error and was complete.
    pub fn is_clean(&self) -> bool {
        let Self { repaired_blocks, unattributed_blocks, unreadable_strips, volumes_cut_short, .. } = *self;
        [repaired_blocks, unattributed_blocks, unreadable_strips, volumes_cut_short] == [0; 4]
    }

    /// Duration and findings in words.
    pub fn in_words(&self) -> String {
        let took = duration_text((self.ended_unix_ms.saturating_sub(self.began_unix_ms)) as f64 / 1000.0);
        let mut found = Vec::new();
        let mut add = |count: u64, what: &str, then: &str| {
            found.extend((count > 0).then(|| format!("{} {then}", counted(count as usize, what))));
        };
        add(self.repaired_blocks, "corrupt block", "repaired");
        add(self.unattributed_blocks, "block", "with redundancy rewritten");
        add(self.unreadable_strips, "strip", "unreadable");
        add(self.volumes_cut_short, "volume", "not verified to the end");
        let found = if found.is_empty() { "no errors found".to_owned() } else { found.join(", ") };
        format!("in {took}, {} verified: {found}", ByteSize(self.checked_bytes))
    }
}

/// A drive of a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DriveReport {
    /// Drive identity.
    pub id: String,
    /// Current path, or the last known one.
    pub path: String,
    /// `data`, `spare`, `journal` or `fast`.
    pub role: String,
    /// State of the drive.
    pub state: DriveState,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Blocks with wrong contents.
    pub checksum_errors: u64,
    /// Size of the drive.
    pub capacity_bytes: u64,
    /// Space for slabs.
    pub usable_bytes: u64,
    /// Allocated part of `usable_bytes`.
    pub allocated_bytes: u64,
    /// Reason that the drive is out of service, if it is.
    pub reason: Option<String>,
    /// Identity of the drive that replaces this one, while it is `replacing`.
    #[serde(default)]
    pub successor: Option<String>,
    /// Serial number, slot, temperature and health.
    #[serde(flatten)]
    pub hardware: Hardware,
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActivityReport {
    /// `rebuild`, `scrub`, `convert`, `destage`, `tier` or `rebalance`.
    pub kind: String,
    /// Completed share.
    pub percent: f64,
    /// Recent speed; 0 if the job is not running.
    pub mb_per_s: f64,
    /// Estimated time left, if known.
    pub seconds_left: Option<f64>,
    /// Volume; empty for a job of the whole pool.
    pub volume: String,
    /// Identity of the drive being filled.
    pub drive: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeReport {
    /// Pool name.
    pub pool: String,
    /// Volume name.
    pub name: String,
    /// Volume identity.
    pub id: String,
    /// State of the volume.
    pub state: VolumeState,
    /// RAID level of the layout.
    pub layout: String,
    /// Number of drives per row.
    pub columns: usize,
    /// Number of groups that the columns form.
    pub groups: usize,
    /// Bytes of a strip.
    pub interleave_bytes: u64,
    /// Number of rows after which parity rotates to the next drives; 1 without parity.
    pub rotation_rows: u32,
    /// Size of the journal area on each drive that has one, of all slices together; 0 without a
    /// journal.
    pub journal_area_bytes: u64,
    /// Number of slices that the volume is cut into; 1: it is not.
    #[serde(default = "one_slice")]
    pub slices: u32,
    /// Size of the extents that go to the slices in turn; `null` for one slice.
    #[serde(default)]
    pub slice_extent_bytes: Option<u64>,
    /// Usable size.
    pub capacity_bytes: u64,
    /// Space used on all drives together, with region map and journal.
    pub allocated_bytes: u64,
    /// Size of the regions written so far; `null` if unknown.
    pub written_bytes: Option<u64>,
    /// Number of further drives whose loss the volume survives, in any combination.
    pub redundancy_left: usize,
    /// Lost blocks of 4 KiB: reading one is an error until it is rewritten.
    pub lost_blocks: u64,
    /// True if space is allocated as the volume is written.
    pub thin: bool,
    /// True if small writes are acknowledged once they are in the journal.
    pub write_back: bool,
    /// True if blocks have checksums.
    pub checksums: bool,
    /// Tier to which the volume is pinned: `none`, `fast` or `slow`.
    pub pin: String,
    /// Number of rows.
    pub rows: u64,
    /// Number of allocated rows; less than `rows` only for thin volumes.
    pub allocated_rows: u64,
    /// Figures of a log volume; `null` for other volumes.
    #[serde(default)]
    pub log: Option<LogReport>,
    /// Old layout and progress of a running conversion; the other fields describe the new layout.
    #[serde(default)]
    pub conversion: Option<ConversionReport>,
    /// Snapshot of which it is a clone, `VOL@NAME`; `null` for other volumes. Space, drives and log
    /// are those of the volume in whose log it is.
    #[serde(default)]
    pub clone_of: Option<String>,
    /// Numbers of automatic snapshots that are kept; `null`: none are taken.
    #[serde(default)]
    pub snapshot_schedule: Option<ScheduleReport>,
    /// Stream that the volume has received in part; it is not served. `null` for a whole volume.
    #[serde(default)]
    pub receiving: Option<ReceivingReport>,
    /// Size of the rows on fast drives.
    pub fast_bytes: u64,
    /// Rows by tier, and how often they are used.
    #[schema(value_type = Object)]
    pub tiers: TierInfo,
    /// Drives that hold part of the volume.
    pub drives: Vec<SlotReport>,
    /// Reason that the volume is unreadable, if it is.
    pub failure: Option<String>,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotReport {
    /// Pool name.
    pub pool: String,
    /// Volume name.
    pub volume: String,
    /// The snapshot's own name.
    pub name: String,
    /// Size of the volume when it was taken.
    pub capacity_bytes: u64,
    /// When it was taken, milliseconds since 1970.
    pub created_unix_ms: u64,
}

impl SnapshotReport {
    /// Report on a snapshot in a pool.
    pub fn new(pool: &str, snapshot: SnapshotInfo) -> Self {
        let SnapshotInfo { path, capacity_bytes, created_unix_ms } = snapshot;
        Self {
            pool: pool.to_owned(),
            volume: path.volume,
            name: path.snapshot,
            capacity_bytes,
            created_unix_ms,
        }
    }
}

/// Numbers of automatic snapshots that are kept, 0: none are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleReport {
    /// Number for the last hours.
    pub hourly: u32,
    /// Number for the last days.
    pub daily: u32,
    /// Number for the last weeks.
    pub weekly: u32,
}

impl From<SnapshotSchedule> for ScheduleReport {
    fn from(schedule: SnapshotSchedule) -> Self {
        let SnapshotSchedule { hourly, daily, weekly } = schedule;
        Self { hourly, daily, weekly }
    }
}

/// A stream that a volume has received in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceivingReport {
    /// Name of the stream's snapshot.
    pub snapshot: String,
    /// Name of the volume's snapshot that the stream builds on; `null` for a whole stream.
    pub base: Option<String>,
    /// True while a command is receiving it.
    pub is_running: bool,
}

/// A log volume, which never overwrites. Counters begin when the pool is opened; what is `null` is
/// unknown.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogReport {
    /// Share of the space that clients do not get.
    pub reserve_percent: u32,
    /// Data of a segment.
    pub segment_bytes: u64,
    /// Data that is live; an upper bound until the map was merged.
    pub live_bytes: Option<u64>,
    /// Share of the space for clients that is live.
    pub live_percent: Option<f64>,
    /// Number of snapshots.
    #[serde(default)]
    pub snapshots: Option<u64>,
    /// Live data that only snapshots hold; a lower bound until the map was merged.
    #[serde(default)]
    pub snapshot_bytes: Option<u64>,
    /// Data that clients wrote.
    pub client_bytes: Option<u64>,
    /// Data, moved data and map written to segments.
    pub segment_written_bytes: Option<u64>,
    /// Part of it that the cleaner moved.
    pub moved_bytes: Option<u64>,
    /// Bytes written to segments per byte that clients wrote.
    pub written_per_client_byte: Option<f64>,
    /// Segments cleaned.
    pub cleaned_segments: Option<u64>,
    /// Megabytes of segments cleaned per second of late.
    pub cleaning_mb_per_s: Option<f64>,
    /// Blocks reconstructed after a read error or a wrong checksum.
    pub repaired_blocks: Option<u64>,
}

impl From<LogStatus> for LogReport {
    fn from(log: LogStatus) -> Self {
        let open = log.open;
        Self {
            reserve_percent: log.reserve_percent,
            segment_bytes: log.segment_bytes,
            live_bytes: open.map(|open| open.live_bytes),
            live_percent: open.map(|open| open.live_percent()),
            snapshots: open.map(|open| open.snapshots),
            snapshot_bytes: open.map(|open| open.snapshot_bytes),
            client_bytes: open.map(|open| open.client_bytes),
            segment_written_bytes: open.map(|open| open.written_bytes),
            moved_bytes: open.map(|open| open.moved_bytes),
            written_per_client_byte: open.and_then(|open| open.written_per_client_byte()),
            cleaned_segments: open.map(|open| open.cleaned_segments),
            cleaning_mb_per_s: open.map(|open| open.cleaned_bytes_per_s as f64 / 1e6),
            repaired_blocks: open.map(|open| open.repaired_blocks),
        }
    }
}

/// A conversion to another layout.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConversionReport {
    /// RAID level of the old layout.
    pub from_layout: String,
    /// Number of drives per row of the old layout.
    pub from_columns: usize,
    /// Number of slices of the old layout.
    #[serde(default = "one_slice")]
    pub from_slices: u32,
    /// Offset in the volume below which the new layout holds the data.
    pub next_offset_bytes: u64,
    /// Completed share.
    pub percent: f64,
    /// True if the conversion was cancelled and is reverting.
    #[serde(default)]
    pub is_cancelled: bool,
    /// Reason that the conversion waits, if it does.
    pub waits: Option<String>,
}

/// Share of a volume on one drive.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SlotReport {
    /// Drive identity.
    pub id: String,
    /// Path of the drive.
    pub path: String,
    /// Role of the drive.
    pub role: String,
    /// Worst state of any part of the share.
    pub state: ShareState,
    /// Size of the volume's rows on the drive.
    pub bytes: u64,
    /// Part of `bytes` that is not current.
    pub lacking_bytes: u64,
}

/// An event in the history of a pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventReport {
    /// Time in UTC, as text.
    pub time: String,
    /// Time, milliseconds since 1970.
    pub time_unix_ms: u64,
    /// Subject: `pool`, `drive`, `volume`, `rebuild`, `scrub`, `convert`, `journal`, `space` or
    /// `loss`.
    pub kind: String,
    /// Description.
    pub text: String,
}

impl From<&Event> for EventReport {
    fn from(event: &Event) -> Self {
        Self {
            time: moment_text(event.time_unix_ms),
            time_unix_ms: event.time_unix_ms,
            kind: word(event.kind),
            text: event.text.clone(),
        }
    }
}

impl From<&PoolStatus> for PoolReport {
    fn from(status: &PoolStatus) -> Self {
        let drives: Vec<DriveReport> = status.drives.iter().map(DriveReport::from).collect();
        let volume = |volume: &VolumeInfo| VolumeReport::new(&status.name, volume, &drives);
        // A missing drive needs the owner's attention even if no volume uses it.
        let is_out = |drive: &DriveReport| !drive.state.takes_part();
        let state = match PoolState::from(status.state) {
            PoolState::Online if drives.iter().any(is_out) => PoolState::Degraded,
            state => state,
        };
        let activity = status.activity.iter().map(ActivityReport::from);
        let (condition, action) = condition::in_words(&status.name, &status.condition);
        Self {
            name: status.name.clone(),
            id: status.id.to_string(),
            state,
            capacity_bytes: status.capacity_bytes,
            allocated_bytes: status.allocated_bytes,
            provisioned_bytes: status.provisioned_bytes,
            metadata_bytes: status.metadata_bytes,
            map_bytes: status.map_bytes,
            journal_bytes: status.journal_bytes,
            overhead_percent: status.overhead_percent,
            slab_bytes: status.slab_bytes,
            in_use: false,
            events: status.events,
            patrol_bytes_per_s: status.patrol_bytes_per_s,
            patrol_interval_s: status.patrol_interval_s,
            next_scrub_unix_ms: status.next_scrub_unix_s.map(|unix_s| unix_s.saturating_mul(1000)),
            space_warning_percent: status.space_warning_percent,
            tier_bytes_per_s: status.tier_bytes_per_s,
            rebuild_latency_ms: status.rebuild_latency_ms,
            mounts: Vec::new(),
            spares_in_use: status.notices.iter().filter_map(SpareReport::of).collect(),
            last_scrub: status.last_scrub.as_ref().map(|scrub| LastScrubReport {
                began_unix_ms: scrub.began_unix_s.saturating_mul(1000),
                ended_unix_ms: scrub.ended_unix_s.saturating_mul(1000),
                checked_bytes: scrub.checked_bytes,
                repaired_blocks: scrub.repaired_blocks,
                unattributed_blocks: scrub.unattributed_blocks,
                unreadable_strips: scrub.unreadable_strips,
                volumes_cut_short: scrub.cut_short,
            }),
            activity: activity.collect(),
            condition,
            action,
            volumes: status.volumes.iter().map(volume).collect(),
            drives,
            notices: status.notices.iter().map(condition::notice_in_words).collect(),
            rebuild_priority_percent: status.rebuild_priority_percent,
            generation: status.generation,
        }
    }
}

impl SpareReport {
    fn of(notice: &Notice) -> Option<Self> {
        let Notice::SpareInUse(takeover) = notice else { return None };
        Some(Self {
            spare: takeover.spare.clone(),
            drive: takeover.drive.clone(),
            time_unix_ms: takeover.unix_s.saturating_mul(1000),
        })
    }
}

impl From<&Activity> for ActivityReport {
    fn from(job: &Activity) -> Self {
        Self {
            kind: word(job.kind),
            percent: job.percent,
            mb_per_s: job.mb_per_s,
            seconds_left: job.seconds_left,
            volume: job.volume.clone(),
            drive: job.drive.map(|drive| drive.to_string()),
        }
    }
}

impl From<&DriveStatus> for DriveReport {
    fn from(drive: &DriveStatus) -> Self {
        Self {
            id: drive.id.to_string(),
            path: drive.path.clone(),
            role: word(drive.role),
            state: drive.state.into(),
            read_errors: drive.read_errors,
            write_errors: drive.write_errors,
            checksum_errors: drive.checksum_errors,
            capacity_bytes: drive.capacity_bytes,
            usable_bytes: drive.usable_bytes,
            allocated_bytes: drive.allocated_bytes,
            reason: drive.reason.clone(),
            successor: drive.successor.map(|id| id.to_string()),
            hardware: Hardware::default(),
        }
    }
}

/// Slices of a volume in a report that does not name them.
fn one_slice() -> u32 {
    1
}

impl VolumeReport {
    fn new(pool: &str, volume: &VolumeInfo, drives: &[DriveReport]) -> Self {
        let slot = |slot: &SlotStatus| {
            let id = slot.drive.to_string();
            let drive = drives.iter().find(|drive| drive.id == id);
            SlotReport {
                path: drive.map(|drive| drive.path.clone()).unwrap_or_default(),
                role: drive.map(|drive| drive.role.clone()).unwrap_or_default(),
                state: slot.state.into(),
                bytes: slot.bytes,
                lacking_bytes: slot.lacking_bytes,
                id,
            }
        };
        let on: Vec<SlotReport> = volume.slots.iter().map(slot).collect();
        Self {
            pool: pool.to_owned(),
            name: volume.name.clone(),
            id: volume.id.to_string(),
            state: volume.state.into(),
            layout: volume.shape.level.to_string(),
            columns: volume.shape.width,
            groups: volume.shape.groups,
            interleave_bytes: volume.shape.interleave_bytes,
            rotation_rows: volume.shape.rotation_rows,
            journal_area_bytes: volume.journal_area_bytes,
            slices: volume.slices,
            slice_extent_bytes: volume.slice_extent_bytes,
            capacity_bytes: volume.capacity_bytes,
            allocated_bytes: volume.allocated_bytes,
            written_bytes: volume.written_bytes,
            redundancy_left: volume.redundancy_left,
            lost_blocks: volume.lost_blocks,
            thin: volume.thin,
            write_back: volume.write_back,
            checksums: volume.checksums,
            pin: word(volume.pin),
            allocated_rows: volume.rows.0,
            rows: volume.rows.1,
            log: volume.log.map(LogReport::from),
            conversion: volume.conversion.as_ref().map(|conversion| ConversionReport {
                from_layout: conversion.from.level.to_string(),
                from_columns: conversion.from.width,
                from_slices: conversion.from_slices,
                next_offset_bytes: conversion.next_offset_bytes,
                percent: conversion.percent,
                is_cancelled: conversion.is_cancelled,
                waits: conversion.waits.as_ref().map(|wait| wait.why.clone()),
            }),
            clone_of: volume.clone_of.as_ref().map(ToString::to_string),
            snapshot_schedule: volume.schedule.map(ScheduleReport::from),
            receiving: volume.receiving.clone().map(|receiving| ReceivingReport {
                snapshot: receiving.snapshot,
                base: receiving.base,
                is_running: receiving.is_running,
            }),
            fast_bytes: volume.tiers.fast_bytes,
            tiers: volume.tiers.clone(),
            drives: on,
            failure: volume.failure.clone(),
        }
    }
}

impl PoolReport {
    /// Report of a pool that cannot be read: the reason, and the next command to run.
    pub fn unreachable(pool: &KnownPool, why: &str, action: &str) -> Self {
        let drive = |drive: &crate::registry::KnownDrive| DriveReport {
            id: drive.id.clone(),
            path: drive.path.display().to_string(),
            role: "data".to_owned(),
            state: DriveState::Missing,
            ..DriveReport::default()
        };
        Self {
            name: pool.name.clone(),
            id: pool.id.clone(),
            state: PoolState::Failed,
            drives: pool.drives.iter().map(drive).collect(),
            condition: why.to_owned(),
            action: action.to_owned(),
            ..Self::default()
        }
    }

    /// Adds the pending crash resync of a volume.
    pub(crate) fn add_resync(&mut self, volume: &str) {
        if self.activity.iter().any(|job| job.kind == "scrub" && job.volume == volume) {
            return;
        }
        self.activity.push(ActivityReport {
            kind: "scrub".to_owned(),
            percent: 0.0,
            mb_per_s: 0.0,
            seconds_left: None,
            volume: volume.to_owned(),
            drive: None,
        });
        if self.action.is_empty() {
            self.condition = "online; resync pending".to_owned();
            self.action = format!("stripewise pool wait {} scrub", self.name);
        }
    }

    /// Marks the pool and its drives as unknown: this user may not read them.
    pub(crate) fn of_unknown_state(mut self) -> Self {
        self.state = PoolState::Unknown;
        self.drives.iter_mut().for_each(|drive| drive.state = DriveState::Unknown);
        self
    }

    /// Name, identity and drives, so that destructive commands name the pool unambiguously.
    pub(crate) fn with_identity_and_drives(&self) -> String {
        let drive = |drive: &DriveReport| match drive.state.takes_part() {
            true => drive.path.clone(),
            false => format!("{} ({})", drive.path, drive.state),
        };
        let drives: Vec<String> = self.drives.iter().map(drive).collect();
        format!("pool {} ({}) on {}", self.name, self.id, drives.join(", "))
    }

    /// Notes that another host has taken the pool: what is seen here may be changing.
    pub(crate) fn note_host(&mut self, host: &HostUse) {
        self.state = PoolState::Unknown;
        self.drives.iter_mut().for_each(|drive| drive.state = DriveState::Unknown);
        self.condition = format!("in use by host {}; only that host knows its state", host_in_words(host));
        self.action = format!(
            "stripewise pool export {0}; if that host no longer uses the pool: stripewise pool \
             import {0} --force",
            self.name
        );
    }

    /// Notes that a process with another `STRIPEWISE_HOME` uses the pool.
    pub(crate) fn note_user(&mut self, user: &Holder) {
        self.notices.push(format!("pool {} is in use by {user}; this status may be stale", self.name));
        self.condition = format!("in use by {user}, which has another STRIPEWISE_HOME");
        self.action = "end that process, or give it commands with its own STRIPEWISE_HOME".to_owned();
    }
}
