//! How pools and volumes stand: plain data with the names that the command line and HTTP promise in
//! JSON. Serialisable both ways, so that the process that has a pool open can leave its report for
//! others to show.

use serde::{Deserialize, Serialize};
use stripewise_engine::pool::{DriveStatus, Event, PoolStatus, SlotStatus, TierInfo, VolumeInfo};
use stripewise_runtime::Holder;
use utoipa::ToSchema;

use crate::notation::times::moment_text;
use crate::registry::KnownPool;

mod state;

pub use state::{DriveState, PoolState, ShareState, VolumeState, word};

/// `1 drive`, `2 drives`.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// A pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoolReport {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// How it is.
    pub state: PoolState,
    /// Space for volumes, redundancy included.
    pub capacity_bytes: u64,
    /// What volumes take of it.
    pub allocated_bytes: u64,
    /// What it would take to hold all that volumes promise; more than there is where thin ones
    /// promise too much.
    pub provisioned_bytes: u64,
    /// Superblocks and checksums.
    pub metadata_bytes: u64,
    /// Maps of what was ever written.
    pub map_bytes: u64,
    /// Journals.
    pub journal_bytes: u64,
    /// These three in percent of all drives.
    pub overhead_percent: f64,
    /// Space is handed out in pieces of this size.
    pub slab_bytes: u64,
    /// Its drives.
    pub drives: Vec<DriveReport>,
    /// Jobs under way or due.
    pub activity: Vec<ActivityReport>,
    /// What the state means.
    pub condition: String,
    /// What to type next; empty where nothing is to be done.
    pub action: String,
    /// Its volumes.
    pub volumes: Vec<VolumeReport>,
    /// What else a person should know.
    pub notices: Vec<String>,
    /// Share of drive time for rebuilds under load.
    pub rebuild_priority_percent: u32,
    /// Changes of the pool's metadata so far.
    pub generation: u64,
    /// Things that happened and are remembered; `pool events` shows them.
    pub events: usize,
    /// Most that a scrub reads per second; `null`: what the rebuild priority gives.
    pub patrol_bytes_per_s: Option<u64>,
    /// A scrub begins by itself so long after the last one; `null`: only by hand.
    pub patrol_interval_s: Option<u64>,
    /// From how many percent on the status warns that space is short.
    pub space_warning_percent: u32,
    /// Most that is moved between fast and data drives per second; `null`: what the rebuild
    /// priority gives.
    pub tier_bytes_per_s: Option<u64>,
    /// What rebuilds, scrubs and other jobs add at most to the time that a client's request waits
    /// for a drive; `null`: no bound.
    #[serde(default)]
    pub rebuild_latency_ms: Option<u32>,
    /// What the last scrub that ended found; `null`: there was none.
    #[serde(default)]
    pub last_scrub: Option<LastScrubReport>,
}

/// A scrub that ended, all volumes together.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LastScrubReport {
    /// When it was asked for, milliseconds since 1970.
    pub began_unix_ms: u64,
    /// When it ended.
    pub ended_unix_ms: u64,
    /// Bytes read and compared.
    pub checked_bytes: u64,
    /// Blocks of 4 KiB found wrong on a known drive, and repaired.
    pub repaired_blocks: u64,
    /// Blocks that disagreed where the layout cannot tell which copy was right; made to agree.
    pub unattributed_blocks: u64,
    /// Strips that could be neither read nor rebuilt.
    pub unreadable_strips: u64,
    /// Volumes whose check ended early.
    pub volumes_cut_short: u64,
}

/// A drive of a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DriveReport {
    /// Its identity.
    pub id: String,
    /// Where it is, or was last seen.
    pub path: String,
    /// `data`, `spare`, `journal` or `fast`.
    pub role: String,
    /// How it is.
    pub state: DriveState,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks found wrong.
    pub checksum_errors: u64,
    /// Its size.
    pub capacity_bytes: u64,
    /// Space on it for slabs.
    pub usable_bytes: u64,
    /// What of that is taken.
    pub allocated_bytes: u64,
    /// Why it is out, where it is.
    pub reason: Option<String>,
    /// The identity of the drive that is to have its place, while it is `replacing`.
    #[serde(default)]
    pub successor: Option<String>,
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ActivityReport {
    /// `rebuild`, `scrub`, `convert`, `destage`, `tier` or `rebalance`.
    pub kind: String,
    /// Done so far.
    pub percent: f64,
    /// Speed of late; 0 where no job works on it now.
    pub mb_per_s: f64,
    /// Time to go, where that can be told.
    pub seconds_left: Option<f64>,
    /// The volume; empty for what concerns the pool as a whole.
    pub volume: String,
    /// The drive being filled.
    pub drive: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeReport {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// How it is.
    pub state: VolumeState,
    /// The layout.
    pub layout: String,
    /// Drives that each of its rows lies on.
    pub columns: usize,
    /// Groups that they form.
    pub groups: usize,
    /// Bytes on one drive before the next one follows.
    pub interleave_bytes: u64,
    /// Rows for which parity stays on its drives before it moves on; 1 where there is none.
    pub rotation_rows: u32,
    /// Bytes of its journal's area on each drive that has one; 0 where it has no journal.
    pub journal_area_bytes: u64,
    /// Usable bytes.
    pub capacity_bytes: u64,
    /// Bytes taken on all drives together, with its map and journal.
    pub allocated_bytes: u64,
    /// Bytes of regions ever written, where that is known.
    pub written_bytes: Option<u64>,
    /// Drives that may still be lost.
    pub redundancy_left: usize,
    /// Blocks of 4 KiB that no drive has any more.
    pub lost_blocks: u64,
    /// Whether it takes room only as it is written.
    pub thin: bool,
    /// Whether small writes are acknowledged once the journal has them.
    pub write_back: bool,
    /// Whether its blocks have checksums.
    pub checksums: bool,
    /// `none`, `fast` or `slow`.
    pub pin: String,
    /// Rows it consists of.
    pub rows: u64,
    /// Rows that have taken room; fewer only for thin volumes.
    pub allocated_rows: u64,
    /// The layout that it had and how far it is, where it is being converted; the other fields tell
    /// the layout to be.
    #[serde(default)]
    pub conversion: Option<ConversionReport>,
    /// Bytes of its rows on fast drives.
    pub fast_bytes: u64,
    /// Where its rows lie by kind of drive, and how much they are used.
    #[schema(value_type = Object)]
    pub tiers: TierInfo,
    /// The drives it lies on.
    pub drives: Vec<SlotReport>,
    /// Why it cannot be read, where it cannot.
    pub failure: Option<String>,
}

/// A conversion to another layout.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConversionReport {
    /// The layout that it had.
    pub from_layout: String,
    /// Drives that each of its rows lay on.
    pub from_columns: usize,
    /// The volume's bytes below this have the new layout.
    pub next_offset_bytes: u64,
    /// Done so far.
    pub percent: f64,
    /// It was cancelled, and goes back.
    #[serde(default)]
    pub is_cancelled: bool,
    /// Why it does not go on, where it does not.
    pub waits: Option<String>,
}

/// A drive of a volume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SlotReport {
    /// The drive's identity.
    pub id: String,
    /// Where it is.
    pub path: String,
    /// What it is for.
    pub role: String,
    /// How that is.
    pub state: ShareState,
    /// Bytes of the volume's rows on it.
    pub bytes: u64,
    /// What of that is not current.
    pub lacking_bytes: u64,
}

/// Something that happened to a pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct EventReport {
    /// When, for people.
    pub time: String,
    /// When.
    pub time_unix_ms: u64,
    /// What it is about: `pool`, `drive`, `volume`, `rebuild`, `scrub`, `convert`, `journal`,
    /// `space` or `loss`.
    pub kind: String,
    /// What happened.
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
        // A pool that lacks a drive is not as its owner wants it, even while no volume misses it.
        let is_out = |drive: &DriveReport| !drive.state.takes_part();
        let state = match PoolState::from(status.state) {
            PoolState::Online if drives.iter().any(is_out) => PoolState::Degraded,
            state => state,
        };
        let activity = status.activity.iter().map(|job| ActivityReport {
            kind: word(job.kind),
            percent: job.percent,
            mb_per_s: job.mb_per_s,
            seconds_left: job.seconds_left,
            volume: job.volume.clone(),
            drive: job.drive.map(|drive| drive.to_string()),
        });
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
            events: status.events,
            patrol_bytes_per_s: status.patrol_bytes_per_s,
            patrol_interval_s: status.patrol_interval_s,
            space_warning_percent: status.space_warning_percent,
            tier_bytes_per_s: status.tier_bytes_per_s,
            rebuild_latency_ms: status.rebuild_latency_ms,
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
            condition: status.condition.clone(),
            action: status.action.clone(),
            volumes: status.volumes.iter().map(volume).collect(),
            drives,
            notices: status.notices.clone(),
            rebuild_priority_percent: status.rebuild_priority_percent,
            generation: status.generation,
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
        }
    }
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
            conversion: volume.conversion.as_ref().map(|conversion| ConversionReport {
                from_layout: conversion.from.level.to_string(),
                from_columns: conversion.from.width,
                next_offset_bytes: conversion.next_offset_bytes,
                percent: conversion.percent,
                is_cancelled: conversion.is_cancelled,
                waits: conversion.waits.clone(),
            }),
            fast_bytes: volume.tiers.fast_bytes,
            tiers: volume.tiers.clone(),
            drives: on,
            failure: volume.failure.clone(),
        }
    }
}

impl PoolReport {
    /// Of a pool of which nothing can be read.
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

    /// Says that copies or parity of a volume are still to be compared after a crash.
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
            self.condition = "all there; what a crash left open is still to be compared".to_owned();
            self.action = format!("stripewise pool wait {} scrub", self.name);
        }
    }

    /// Nothing is known of it: this user may not look.
    pub(crate) fn of_unknown_state(mut self) -> Self {
        self.state = PoolState::Unknown;
        self.drives.iter_mut().for_each(|drive| drive.state = DriveState::Unknown);
        self
    }

    /// Which pool it is, beyond doubt: for commands that destroy something.
    pub(crate) fn with_identity_and_drives(&self) -> String {
        let drive = |drive: &DriveReport| match drive.state.takes_part() {
            true => drive.path.clone(),
            false => format!("{} ({})", drive.path, drive.state),
        };
        let drives: Vec<String> = self.drives.iter().map(drive).collect();
        format!("pool {} ({}) on {}", self.name, self.id, drives.join(", "))
    }

    /// Says that a process uses the pool that does not go by this list of pools.
    pub(crate) fn note_user(&mut self, user: &Holder) {
        self.notices.push(format!(
            "pool {} is in use by {user}, which may be changing what is said of it here",
            self.name
        ));
        self.condition = format!("in use by {user}, whose list of pools is another");
        self.action = "end that process, or give it commands with its own STRIPEWISE_HOME".to_owned();
    }
}
