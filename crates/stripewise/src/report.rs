//! How pools and volumes are shown: plain data with the names that the command line promises in JSON, and the same for
//! people. Serialisable both ways, so that the process that has a pool open can leave its report for others to print.

use serde::{Deserialize, Serialize};
use stripewise_engine::pool::{DriveStatus, Event, PoolStatus, SlotStatus, TierInfo, VolumeInfo};

use crate::failure::Exit;
use crate::home::KnownPool;
use crate::printer::{Page, Style, Table, plain};
use crate::size::{ByteSize, duration_text};
use crate::times::moment_text;

/// A pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    /// What it would take to hold all that volumes promise; more than there is where thin ones promise too much.
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
    /// Most that is moved between fast and data drives per second; `null`: what the rebuild priority gives.
    pub tier_bytes_per_s: Option<u64>,
}

/// A drive of a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DriveReport {
    /// Its identity.
    pub id: String,
    /// Where it is, or was last seen.
    pub path: String,
    /// `data`, `spare`, `journal` or `fast`.
    pub role: String,
    /// `online`, `rebuilding`, `catching-up`, `retiring`; out of service: `missing`, `offline`, `failed`, `behind`, `stale`.
    pub state: String,
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
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActivityReport {
    /// `rebuild`, `scrub`, `convert`, `destage` or `tier`.
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
    /// Drives that each of its rows lies on.
    pub columns: usize,
    /// Groups that they form.
    pub groups: usize,
    /// Bytes on one drive before the next one follows.
    pub interleave_bytes: u64,
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
    /// The layout that it had and how far it is, where it is being converted; the other fields tell the layout to be.
    #[serde(default)]
    pub conversion: Option<ConversionReport>,
    /// Bytes of its rows on fast drives.
    pub fast_bytes: u64,
    /// Where its rows lie by kind of drive, and how much they are used.
    pub tiers: TierReport,
    /// The drives it lies on.
    pub drives: Vec<SlotReport>,
    /// Why it cannot be read, where it cannot.
    pub failure: Option<String>,
}

/// A conversion to another layout.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConversionReport {
    /// The layout that it had.
    pub from_layout: String,
    /// Drives that each of its rows lay on.
    pub from_columns: usize,
    /// The volume's bytes below this have the new layout.
    pub next_offset_bytes: u64,
    /// Done so far.
    pub percent: f64,
    /// Why it does not go on, where it does not.
    pub waits: Option<String>,
}

/// Where a volume's rows lie by kind of drive, and how much they are used.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TierReport {
    /// Rows wholly on fast drives.
    pub fast_rows: u64,
    /// Rows wholly on data drives.
    pub data_rows: u64,
    /// Rows on both.
    pub mixed_rows: u64,
    /// Bytes of rows on fast drives.
    pub fast_bytes: u64,
    /// Bytes of rows on data drives.
    pub data_bytes: u64,
    /// What was asked of late of rows on fast drives, in seeks of a disk: a request, or a MiB. Known only while a process
    /// has the pool open.
    pub fast_heat: f64,
    /// The same of all other rows.
    pub data_heat: f64,
    /// The most of any row.
    pub hottest_row_heat: f64,
    /// Rows that are being moved now.
    pub moving_rows: u64,
    /// What keeps its rows from where they belong.
    pub note: Option<String>,
}

/// A drive of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlotReport {
    /// The drive's identity.
    pub id: String,
    /// Where it is.
    pub path: String,
    /// What it is for.
    pub role: String,
    /// `active`, `missing`, `rebuilding`, `catching-up` or `away`: the worst that holds for any of it.
    pub state: String,
    /// Bytes of the volume's rows on it.
    pub bytes: u64,
    /// What of that is not current.
    pub lacking_bytes: u64,
}

/// Something that happened to a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventReport {
    /// When, for people.
    pub time: String,
    /// When.
    pub time_unix_ms: u64,
    /// What it is about: `pool`, `drive`, `volume`, `rebuild`, `scrub`, `convert`, `journal`, `space` or `loss`.
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

/// Whether a drive in this state takes part.
pub fn takes_part(state: &str) -> bool {
    matches!(state, "online" | "rebuilding" | "catching-up" | "retiring")
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
        let is_out = |drive: &DriveReport| !takes_part(&drive.state);
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

impl From<&TierInfo> for TierReport {
    fn from(tiers: &TierInfo) -> Self {
        Self {
            fast_rows: tiers.fast_rows,
            data_rows: tiers.data_rows,
            mixed_rows: tiers.mixed_rows,
            fast_bytes: tiers.fast_bytes,
            data_bytes: tiers.data_bytes,
            fast_heat: tiers.fast_heat,
            data_heat: tiers.data_heat,
            hottest_row_heat: tiers.hottest_row_heat,
            moving_rows: tiers.moving_rows,
            note: tiers.note.clone(),
        }
    }
}

impl From<&DriveStatus> for DriveReport {
    fn from(drive: &DriveStatus) -> Self {
        Self {
            id: drive.id.to_string(),
            path: drive.path.clone(),
            role: word(drive.role),
            state: drive.state.clone(),
            read_errors: drive.read_errors,
            write_errors: drive.write_errors,
            checksum_errors: drive.checksum_errors,
            capacity_bytes: drive.capacity_bytes,
            usable_bytes: drive.usable_bytes,
            allocated_bytes: drive.allocated_bytes,
            reason: drive.reason.clone(),
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
                state: slot.state.clone(),
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
                waits: conversion.waits.clone(),
            }),
            fast_bytes: volume.tiers.fast_bytes,
            tiers: TierReport::from(&volume.tiers),
            drives: on,
            failure: volume.failure.clone(),
        }
    }
}

fn state_style(state: &str) -> Style {
    match state {
        "online" | "active" => Style::Good,
        "degraded" | "rebuilding" | "catching-up" | "retiring" | "offline" | "behind" | "stale" => {
            Style::Warning
        }
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
            ..DriveReport::default()
        };
        Self {
            name: pool.name.clone(),
            id: pool.id.clone(),
            state: "failed".to_owned(),
            drives: pool.drives.iter().map(drive).collect(),
            condition: why.to_owned(),
            action: action.to_owned(),
            ..Self::default()
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
        if self.capacity_bytes > 0 {
            page.field("space", self.space_in_words(), Style::Plain);
        }
        if self.provisioned_bytes > self.capacity_bytes {
            page.field("promised", self.promise_in_words(), Style::Warning);
        }
        for job in &self.activity {
            page.field(&job.kind, job.in_words(&self.name), Style::Plain);
        }
        for notice in &self.notices {
            page.field("note", notice, Style::Plain);
        }
        page.line("");
        let headings =
            ["DRIVE", "ROLE", "STATE", ">SIZE", ">USED", ">READ ERR", ">WRITE ERR", ">CKSUM ERR", "ID"];
        let mut drives = Table::new(&headings).indented();
        for drive in &self.drives {
            drives.row([
                plain(&drive.path),
                plain(&drive.role),
                state_cell(&drive.state),
                plain(ByteSize(drive.capacity_bytes).to_string()),
                plain(drive.used_in_words()),
                error_cell(drive.read_errors),
                error_cell(drive.write_errors),
                error_cell(drive.checksum_errors),
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

impl PoolReport {
    fn space_in_words(&self) -> String {
        let (used, all) = (ByteSize(self.allocated_bytes), ByteSize(self.capacity_bytes));
        format!(
            "{used} of {all} taken by volumes, in slabs of {}; metadata, maps and journals are {:.2} % of the drives",
            ByteSize(self.slab_bytes),
            self.overhead_percent
        )
    }

    fn promise_in_words(&self) -> String {
        let (promised, all) = (ByteSize(self.provisioned_bytes), ByteSize(self.capacity_bytes));
        let percent = self.provisioned_bytes as f64 * 100.0 / self.capacity_bytes.max(1) as f64;
        format!(
            "thin volumes may want up to {promised}, {percent:.0} % of the {all} there are; add drives in time"
        )
    }
}

impl DriveReport {
    fn used_in_words(&self) -> String {
        match self.usable_bytes {
            0 => "–".to_owned(),
            usable => format!("{} %", self.allocated_bytes * 100 / usable),
        }
    }
}

fn error_cell(count: u64) -> (String, Style) {
    (count.to_string(), if count > 0 { Style::Warning } else { Style::Plain })
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
        if let Some(conversion) = &self.conversion {
            let progress = format!(
                "from {} over {} drives; {:.1} % done",
                conversion.from_layout, conversion.from_columns, conversion.percent
            );
            page.field("converting", progress, Style::Warning);
            if let Some(waits) = &conversion.waits {
                page.field("waits", waits, Style::Bad);
            }
        }
        page.field("capacity", size_with_bytes(self.capacity_bytes), Style::Plain);
        let rows = match self.thin {
            true => format!(
                "{} of {} have room so far (thin)",
                self.allocated_rows,
                counted(self.rows as usize, "row")
            ),
            false => counted(self.rows as usize, "row"),
        };
        page.field("rows", rows, Style::Plain);
        page.field("takes", format!("{} of the drives", ByteSize(self.allocated_bytes)), Style::Plain);
        if let Some(written) = self.written_bytes {
            page.field("written", ByteSize(written).to_string(), Style::Plain);
        }
        let journal = match self.write_back {
            true => {
                "small writes are acknowledged once they are safe in it, and put in place later (write-back)"
            }
            false => {
                "keeps stripes whole through a power cut; writes are acknowledged in place (write-through)"
            }
        };
        page.field("journal", journal, Style::Plain);
        match self.checksums {
            true => page.field("checksums", "on", Style::Plain),
            false => {
                page.field("checksums", "off: a drive that answers wrongly is not found out", Style::Warning)
            }
        }
        if let Some(tiers) = self.tiers_in_words() {
            page.field("tiers", tiers, Style::Plain);
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
        let mut table = Table::new(&["DRIVE", "ROLE", "STATE", ">HOLDS", ">LACKS", "ID"]).indented();
        for drive in &self.drives {
            table.row([
                plain(&drive.path),
                plain(&drive.role),
                state_cell(&drive.state),
                plain(ByteSize(drive.bytes).to_string()),
                plain(ByteSize(drive.lacking_bytes).to_string()),
                plain(&drive.id),
            ]);
        }
        page.table(&table);
    }
}

impl VolumeReport {
    /// Where fast drives or a wish for them play a part.
    fn tiers_in_words(&self) -> Option<String> {
        let tiers = &self.tiers;
        if tiers.fast_bytes == 0 && self.pin == "none" && tiers.note.is_none() {
            return None;
        }
        let (fast, all) = (ByteSize(tiers.fast_bytes), ByteSize(tiers.fast_bytes + tiers.data_bytes));
        let mut text = format!(
            "{} of {} on fast drives ({fast} of {all})",
            tiers.fast_rows,
            counted((tiers.fast_rows + tiers.data_rows + tiers.mixed_rows) as usize, "row")
        );
        if tiers.mixed_rows > 0 {
            text += &format!(", {} on both kinds", tiers.mixed_rows);
        }
        match self.pin.as_str() {
            "fast" => text += "; pinned to them",
            "slow" => text += "; pinned off them",
            _ => {}
        }
        let heat = tiers.fast_heat + tiers.data_heat;
        if heat > 0.0 {
            text +=
                &format!("; {:.0} % of what was asked of late was theirs", tiers.fast_heat * 100.0 / heat);
        }
        if tiers.moving_rows > 0 {
            text += &format!("; {} on the move", counted(tiers.moving_rows as usize, "row"));
        }
        if let Some(note) = &tiers.note {
            text += &format!("; {note}");
        }
        Some(text)
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
