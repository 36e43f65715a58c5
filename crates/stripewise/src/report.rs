//! How pools and volumes are shown: plain data with the names that the command line promises in JSON, and the same for
//! people. Serialisable both ways, so that the process that has a pool open can leave its report for others to print.

use serde::{Deserialize, Serialize};
use stripewise_engine::pool::{PoolStatus, SlotStatus, VolumeInfo};

use crate::failure::Exit;
use crate::home::KnownPool;
use crate::printer::{Page, Style, Table, plain};
use crate::size::{ByteSize, duration_text};

/// A pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolReport {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// `online`, `degraded` or `failed`.
    pub state: String,
    /// Space for volumes, redundancy included.
    pub capacity_bytes: u64,
    /// What volumes take of it.
    pub allocated_bytes: u64,
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
}

/// A drive of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DriveReport {
    /// Its identity.
    pub id: String,
    /// Where it is, or was last seen.
    pub path: String,
    /// `data` or `spare`.
    pub role: String,
    /// `online`, `rebuilding`, `missing`, `failed` or `stale`.
    pub state: String,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks found wrong.
    pub checksum_errors: u64,
    /// Its size.
    pub capacity_bytes: u64,
    /// Why it is out, where it is.
    pub reason: Option<String>,
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActivityReport {
    /// `rebuild` or `scrub`.
    pub kind: String,
    /// Done so far.
    pub percent: f64,
    /// Speed of late; 0 where nobody works on it now.
    pub mb_per_s: f64,
    /// Time to go, where that can be told.
    pub seconds_left: Option<f64>,
    /// The volume.
    pub volume: String,
    /// The drive being filled.
    pub drive: Option<String>,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// `online`, `degraded`, `rebuilding` or `failed`.
    pub state: String,
    /// The layout.
    pub layout: String,
    /// Drives that it lies on.
    pub columns: usize,
    /// Groups that they form.
    pub groups: usize,
    /// Bytes on one drive before the next one follows.
    pub interleave_bytes: u64,
    /// Usable bytes.
    pub capacity_bytes: u64,
    /// Bytes taken on all drives together.
    pub allocated_bytes: u64,
    /// Bytes of regions ever written, where that is known.
    pub written_bytes: Option<u64>,
    /// Drives that may still be lost.
    pub redundancy_left: usize,
    /// Blocks of 4 KiB that no drive has any more.
    pub lost_blocks: u64,
    /// The drives it lies on, in order.
    pub drives: Vec<SlotReport>,
    /// Why it cannot be read, where it cannot.
    pub failure: Option<String>,
}

/// A place of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlotReport {
    /// The drive's identity.
    pub id: String,
    /// Where it is.
    pub path: String,
    /// `active`, `missing`, `rebuilding` or `away`.
    pub state: String,
}

/// The word that a plain enum serialises to.
pub fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        other => unreachable!("not a word: {other:?}"),
    }
}

impl From<&PoolStatus> for PoolReport {
    fn from(status: &PoolStatus) -> Self {
        let drives: Vec<DriveReport> = status.drives.iter().map(DriveReport::from).collect();
        let volume = |volume: &VolumeInfo| VolumeReport::new(&status.name, volume, &drives);
        // A pool that lacks a drive is not as its owner wants it, even while no volume misses it.
        let is_out = |drive: &DriveReport| !matches!(drive.state.as_str(), "online" | "rebuilding");
        let state = match word(status.state) {
            state if state == "online" && drives.iter().any(is_out) => "degraded".to_owned(),
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

impl From<&stripewise_engine::pool::DriveStatus> for DriveReport {
    fn from(drive: &stripewise_engine::pool::DriveStatus) -> Self {
        Self {
            id: drive.id.to_string(),
            path: drive.path.clone(),
            role: word(drive.role),
            state: drive.state.clone(),
            read_errors: drive.read_errors,
            write_errors: drive.write_errors,
            checksum_errors: drive.checksum_errors,
            capacity_bytes: drive.capacity_bytes,
            reason: drive.reason.clone(),
        }
    }
}

impl VolumeReport {
    fn new(pool: &str, volume: &VolumeInfo, drives: &[DriveReport]) -> Self {
        let slot = |slot: &SlotStatus| {
            let id = slot.drive.to_string();
            let path = drives.iter().find(|drive| drive.id == id).map(|drive| drive.path.clone());
            SlotReport { path: path.unwrap_or_default(), state: slot.state.clone(), id }
        };
        Self {
            pool: pool.to_owned(),
            name: volume.name.clone(),
            id: volume.id.to_string(),
            state: word(volume.state),
            layout: volume.shape.level.to_string(),
            columns: volume.shape.width,
            groups: volume.shape.groups,
            interleave_bytes: volume.shape.interleave_bytes,
            capacity_bytes: volume.capacity_bytes,
            allocated_bytes: volume.allocated_bytes,
            written_bytes: volume.written_bytes,
            redundancy_left: volume.redundancy_left,
            lost_blocks: volume.lost_blocks,
            drives: volume.slots.iter().map(slot).collect(),
            failure: volume.failure.clone(),
        }
    }
}

fn state_style(state: &str) -> Style {
    match state {
        "online" | "active" => Style::Good,
        "degraded" | "rebuilding" | "stale" => Style::Warning,
        _ => Style::Bad,
    }
}

fn state_cell(state: &str) -> (String, Style) {
    (state.to_owned(), state_style(state))
}

impl PoolReport {
    /// Of a pool of which nothing can be read.
    pub fn unreachable(pool: &KnownPool, why: &str, action: &str) -> Self {
        let drive = |drive: &crate::home::KnownDrive| DriveReport {
            id: drive.id.clone(),
            path: drive.path.display().to_string(),
            role: "data".to_owned(),
            state: "missing".to_owned(),
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            capacity_bytes: 0,
            reason: None,
        };
        Self {
            name: pool.name.clone(),
            id: pool.id.clone(),
            state: "failed".to_owned(),
            capacity_bytes: 0,
            allocated_bytes: 0,
            drives: pool.drives.iter().map(drive).collect(),
            activity: Vec::new(),
            condition: why.to_owned(),
            action: action.to_owned(),
            volumes: Vec::new(),
            notices: Vec::new(),
            rebuild_priority_percent: 0,
            generation: 0,
        }
    }

    /// Says that copies or parity of a volume are still to be compared after a crash.
    pub fn add_resync(&mut self, volume: &str) {
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

    /// The exit code that tells scripts how the pool is.
    pub fn exit(&self) -> Exit {
        match self.state.as_str() {
            "online" => Exit::Success,
            "degraded" => Exit::Degraded,
            _ => Exit::Failure,
        }
    }

    /// For people.
    pub fn print(&self, page: &mut Page) {
        page.field("pool", &self.name, Style::Strong);
        page.field("state", &self.state, state_style(&self.state));
        page.field("condition", &self.condition, Style::Plain);
        if !self.action.is_empty() {
            page.field("action", &self.action, Style::Strong);
        }
        let (used, all) = (ByteSize(self.allocated_bytes), ByteSize(self.capacity_bytes));
        page.field("space", format!("{used} of {all} taken by volumes"), Style::Plain);
        for job in &self.activity {
            page.field(&job.kind, job.in_words(&self.name), Style::Plain);
        }
        for notice in &self.notices {
            page.field("note", notice, Style::Plain);
        }
        page.line("");
        let mut drives =
            Table::new(&["DRIVE", "ROLE", "STATE", ">SIZE", ">READ ERR", ">WRITE ERR", ">CKSUM ERR", "ID"])
                .indented();
        for drive in &self.drives {
            drives.row([
                plain(&drive.path),
                plain(&drive.role),
                state_cell(&drive.state),
                plain(ByteSize(drive.capacity_bytes).to_string()),
                plain(drive.read_errors.to_string()),
                plain(drive.write_errors.to_string()),
                plain(drive.checksum_errors.to_string()),
                plain(&drive.id),
            ]);
        }
        page.table(&drives);
        if !self.volumes.is_empty() {
            page.line("");
            page.table(&volume_table(&self.volumes).indented());
        }
    }
}

impl ActivityReport {
    /// In one line.
    pub fn in_words(&self, pool: &str) -> String {
        let volume = &self.volume;
        match (self.mb_per_s > 0.0, self.seconds_left) {
            (true, Some(seconds)) => {
                let left = duration_text(seconds);
                format!("{volume}: {:.1} %, {:.0} MB/s, {left} left", self.percent, self.mb_per_s)
            }
            (true, None) => format!("{volume}: {:.1} %, {:.0} MB/s", self.percent, self.mb_per_s),
            (false, _) => {
                let kind = &self.kind;
                format!(
                    "{volume}: {:.1} %, not under way now; `stripewise pool wait {pool} {kind}` does it",
                    self.percent
                )
            }
        }
    }
}

/// Volumes under headings.
pub fn volume_table(volumes: &[VolumeReport]) -> Table {
    let mut table = Table::new(&[
        "VOLUME",
        "STATE",
        "LAYOUT",
        ">DRIVES",
        ">INTERLEAVE",
        ">CAPACITY",
        ">WRITTEN",
        ">MAY LOSE",
    ]);
    for volume in volumes {
        table.row([
            plain(format!("{}/{}", volume.pool, volume.name)),
            state_cell(&volume.state),
            plain(&volume.layout),
            plain(volume.columns.to_string()),
            plain(ByteSize(volume.interleave_bytes).to_string()),
            plain(ByteSize(volume.capacity_bytes).to_string()),
            plain(volume.written_bytes.map_or_else(|| "?".to_owned(), |bytes| ByteSize(bytes).to_string())),
            plain(volume.redundancy_left.to_string()),
        ]);
    }
    table
}

impl VolumeReport {
    /// For people, at length.
    pub fn print(&self, page: &mut Page) {
        page.field("volume", format!("{}/{}", self.pool, self.name), Style::Strong);
        page.field("state", &self.state, state_style(&self.state));
        if let Some(failure) = &self.failure {
            page.field("failure", failure, Style::Bad);
        }
        let groups = if self.groups > 1 { format!(" in {} groups", self.groups) } else { String::new() };
        let layout = format!(
            "{} over {} drives{groups}, interleave {}",
            self.layout,
            self.columns,
            ByteSize(self.interleave_bytes)
        );
        page.field("layout", layout, Style::Plain);
        page.field("capacity", size_with_bytes(self.capacity_bytes), Style::Plain);
        page.field("takes", format!("{} of the drives", ByteSize(self.allocated_bytes)), Style::Plain);
        if let Some(written) = self.written_bytes {
            page.field("written", ByteSize(written).to_string(), Style::Plain);
        }
        page.field("may lose", counted(self.redundancy_left, "more drive"), Style::Plain);
        if self.lost_blocks > 0 {
            let lost = format!(
                "{} of 4 KiB; reading them is an error until they are written",
                counted(self.lost_blocks as usize, "block")
            );
            page.field("lost", lost, Style::Bad);
        }
        page.field("id", &self.id, Style::Plain);
        page.line("");
        let mut table = Table::new(&[">COLUMN", "STATE", "DRIVE", "ID"]).indented();
        for (column, slot) in self.drives.iter().enumerate() {
            table.row([
                plain(column.to_string()),
                state_cell(&slot.state),
                plain(&slot.path),
                plain(&slot.id),
            ]);
        }
        page.table(&table);
    }
}

fn size_with_bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", ByteSize(bytes))
}

/// `1 drive`, `2 drives`.
pub fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
