//! Reports on pools and volumes as text: fields, tables and sentences.

use stripewise_control::file_system::FileSystem;
use stripewise_control::report::{
    ActivityReport, DriveReport, DriveState, LogReport, MountReport, MountedState, PoolReport, PoolState,
    ScheduleReport, ShareState, VolumeReport, VolumeState, counted,
};
use stripewise_control::request::Setting;
use stripewise_control::size::{ByteSize, duration_text};
use stripewise_control::times::{moment_text, unix_ms};

use crate::printer::{Page, Style, Table, plain};

/// A state with a colour.
pub(crate) trait State: std::fmt::Display {
    fn style(&self) -> Style;

    fn cell(&self) -> (String, Style) {
        (self.to_string(), self.style())
    }
}

impl State for PoolState {
    fn style(&self) -> Style {
        match self {
            Self::Online => Style::Good,
            Self::Degraded | Self::Unknown => Style::Warning,
            Self::Failed => Style::Bad,
        }
    }
}

impl State for DriveState {
    fn style(&self) -> Style {
        match self {
            Self::Online => Style::Good,
            Self::Missing | Self::Failed => Style::Bad,
            Self::Rebuilding
            | Self::CatchingUp
            | Self::Retiring
            | Self::Replacing
            | Self::Offline
            | Self::Behind
            | Self::Stale
            | Self::Unknown => Style::Warning,
        }
    }
}

impl State for VolumeState {
    fn style(&self) -> Style {
        match self {
            Self::Online => Style::Good,
            Self::Degraded | Self::Rebuilding => Style::Warning,
            Self::Failed => Style::Bad,
        }
    }
}

impl State for ShareState {
    fn style(&self) -> Style {
        match self {
            Self::Active => Style::Good,
            Self::Rebuilding | Self::CatchingUp => Style::Warning,
            Self::Away | Self::Missing => Style::Bad,
        }
    }
}

/// A report that can be printed.
pub(crate) trait Shown {
    /// Prints the report.
    fn print(&self, page: &mut Page);
}

impl Shown for PoolReport {
    fn print(&self, page: &mut Page) {
        page.keep_narrow();
        page.field("pool", &self.name, Style::Strong);
        page.field("state", self.state.to_string(), self.state.style());
        page.field("condition", &self.condition, Style::Plain);
        if !self.action.is_empty() {
            page.field("action", &self.action, Style::Strong);
        }
        if self.capacity_bytes > 0 {
            page.field("space", space_in_words(self), Style::Plain);
        }
        // Without some of its drives a pool is smaller than its volumes, thin or not.
        let may_grow = |volume: &VolumeReport| volume.thin && volume.allocated_rows < volume.rows;
        if self.provisioned_bytes > self.capacity_bytes && self.volumes.iter().any(may_grow) {
            page.field("overcommit", overcommit_in_words(self), Style::Warning);
        }
        // A clone has the log of another volume.
        for volume in self.volumes.iter().filter(|volume| volume.clone_of.is_none()) {
            if let Some(log) = &volume.log {
                page.field("log", format!("{}: {}", volume.name, log_in_words(log)), Style::Plain);
            }
        }
        for job in &self.activity {
            page.field(&job.kind, job_in_words(job, self), Style::Plain);
        }
        if let Some(scrub) = &self.last_scrub {
            let style = if scrub.is_clean() { Style::Plain } else { Style::Warning };
            page.field(
                "scrubbed",
                format!("{} {}", moment_text(scrub.ended_unix_ms), scrub.in_words()),
                style,
            );
        }
        if self.capacity_bytes > 0 {
            page.field("next scrub", next_scrub_in_words(self, unix_ms()), Style::Plain);
        }
        if self.capacity_bytes > 0 {
            let settings: Vec<String> = Setting::all_of(self).iter().map(Setting::to_string).collect();
            page.field("settings", settings.join(" "), Style::Plain);
        }
        for mount in &self.mounts {
            let (text, style) = mount_in_words(mount);
            page.field("mount", text, style);
        }
        for notice in &self.notices {
            page.field("note", notice, Style::Plain);
        }
        page.line("");
        let headings = ["DRIVE", "ROLE", "STATE", ">SIZE", ">USED", ">READ", ">WRITE", ">CKSUM", "ID"];
        let mut drives = Table::new(&headings).indented().shortening_first();
        for drive in &self.drives {
            drives.row([
                plain(&drive.path),
                plain(&drive.role),
                drive.state.cell(),
                plain(ByteSize(drive.capacity_bytes).to_string()),
                plain(used_in_words(drive)),
                error_cell(drive.read_errors),
                error_cell(drive.write_errors),
                error_cell(drive.checksum_errors),
                plain(short_id(&drive.id)),
            ]);
        }
        page.table(&drives);
        if !self.volumes.is_empty() {
            page.line("");
            page.table(&volume_table(&self.volumes).indented());
        }
    }
}

fn space_in_words(pool: &PoolReport) -> String {
    let (used, all) = (ByteSize(pool.allocated_bytes), ByteSize(pool.capacity_bytes));
    format!(
        "{used} of {all} allocated, in slabs of {}; metadata, bitmaps and journals take {:.2} % of the drives",
        ByteSize(pool.slab_bytes),
        pool.overhead_percent
    )
}

fn overcommit_in_words(pool: &PoolReport) -> String {
    let (provisioned, all) = (ByteSize(pool.provisioned_bytes), ByteSize(pool.capacity_bytes));
    format!("thin volumes can grow to {provisioned}; the pool holds {all}: add drives in time")
}

/// Formats a mount of the daemon in one line.
fn mount_in_words(mount: &MountReport) -> (String, Style) {
    let MountReport { target, folder, .. } = mount;
    let kind = mount.file_system.map_or("volumes as files", FileSystem::name);
    let why = mount.why.as_deref().unwrap_or("unknown");
    match mount.state {
        MountedState::Mounted => (format!("{target} at {folder} ({kind})"), Style::Plain),
        MountedState::Mounting => (format!("{target} at {folder} ({kind}): being mounted"), Style::Plain),
        MountedState::Failed => (format!("{target} at {folder} ({kind}) failed: {why}"), Style::Bad),
        MountedState::Unmounted => (
            format!(
                "{target} at {folder} ({kind}) was unmounted; `stripewise mount` mounts it again, \
                 `stripewise umount {target}` forgets it"
            ),
            Style::Warning,
        ),
    }
}

/// Formats the schedule of scrubs in one line.
fn next_scrub_in_words(pool: &PoolReport, now_unix_ms: u64) -> String {
    let name = &pool.name;
    let (Some(next_unix_ms), Some(interval_s)) = (pool.next_scrub_unix_ms, pool.patrol_interval_s) else {
        return format!("none scheduled; `stripewise pool set {name} scrub=monthly` schedules them");
    };
    let next = moment_text(next_unix_ms);
    let is_pending = pool.activity.iter().any(|job| job.kind == "scrub");
    match next_unix_ms < now_unix_ms && !is_pending {
        true => format!(
            "due since {next}; it starts when `stripewise serve` opens the pool, \
             `stripewise pool scrub {name}` runs it now"
        ),
        false => format!("{next}, {}", interval_in_words(interval_s)),
    }
}

/// Formats the interval between automatic scrubs.
pub(crate) fn interval_in_words(seconds: u64) -> String {
    let days = seconds as f64 / 86_400.0;
    match seconds {
        86_400 => "every day".to_owned(),
        _ => format!("every {} days", (days * 100.0).round() / 100.0),
    }
}

/// Used share of a drive's space.
pub(crate) fn used_in_words(drive: &DriveReport) -> String {
    match drive.usable_bytes {
        0 => "–".to_owned(),
        usable => format!("{} %", drive.allocated_bytes * 100 / usable),
    }
}

/// The beginning of an identity, by which commands take a drive.
pub(crate) fn short_id(id: &str) -> &str {
    id.split('-').next().unwrap_or(id)
}

/// A count of errors.
pub(crate) fn error_cell(count: u64) -> (String, Style) {
    (count.to_string(), if count > 0 { Style::Warning } else { Style::Plain })
}

/// Formats a job in one line.
fn job_in_words(job: &ActivityReport, pool: &PoolReport) -> String {
    // Some jobs concern the whole pool.
    let volume = if job.volume.is_empty() { "all volumes" } else { &job.volume };
    match (job.mb_per_s > 0.0, job.seconds_left) {
        (true, Some(seconds)) => {
            let left = duration_text(seconds);
            format!("{volume}: {:.1} %, {:.0} MB/s, {left} left", job.percent, job.mb_per_s)
        }
        (true, None) => format!("{volume}: {:.1} %, {:.0} MB/s", job.percent, job.mb_per_s),
        (false, _) if pool.in_use => format!("{volume}: {:.1} %, waiting for its turn", job.percent),
        (false, _) => format!(
            "{volume}: {:.1} %, not running; run `stripewise pool wait {} {}` to start it now",
            job.percent, pool.name, job.kind
        ),
    }
}

/// Columns of a list of volumes.
pub(crate) const VOLUME_COLUMNS: [&str; 8] =
    ["VOLUME", "STATE", "LAYOUT", ">DRIVES", ">INTERLEAVE", ">CAPACITY", ">WRITTEN", ">CAN LOSE"];

/// Table of volumes.
pub(crate) fn volume_table(volumes: &[VolumeReport]) -> Table {
    let mut table = Table::new(&VOLUME_COLUMNS);
    for volume in volumes {
        table.row([
            plain(format!("{}/{}", volume.pool, volume.name)),
            volume.state.cell(),
            plain(layout_in_words(volume)),
            plain(volume.columns.to_string()),
            plain(ByteSize(volume.interleave_bytes).to_string()),
            plain(ByteSize(volume.capacity_bytes).to_string()),
            plain(volume.written_bytes.map_or_else(|| "?".to_owned(), |bytes| ByteSize(bytes).to_string())),
            plain(volume.redundancy_left.to_string()),
        ]);
    }
    table
}

/// Level of a volume's layout, and its kind.
fn layout_in_words(volume: &VolumeReport) -> String {
    match volume.slices {
        _ if volume.log.is_some() => format!("{} log", volume.layout),
        1 => volume.layout.clone(),
        slices => format!("{} in {slices} slices", volume.layout),
    }
}

/// State of a log, for people.
pub(crate) fn log_in_words(log: &LogReport) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), |value| format!("{value:.1}"));
    let snapshots = match (log.snapshots.unwrap_or(0), log.snapshot_bytes.unwrap_or(0)) {
        (0, _) => String::new(),
        (count, bytes) => {
            format!(", {} holding at least {}", counted(count as usize, "snapshot"), ByteSize(bytes))
        }
    };
    format!(
        "{} % live{snapshots}, {} bytes written per client byte, cleaning {} MB/s, {} % reserve",
        number(log.live_percent),
        number(log.written_per_client_byte),
        number(log.cleaning_mb_per_s),
        log.reserve_percent
    )
}

/// The numbers of automatic snapshots that are kept.
pub(crate) fn schedule_in_words(schedule: &ScheduleReport) -> String {
    let ScheduleReport { hourly, daily, weekly } = *schedule;
    let kinds = [(hourly, "hourly"), (daily, "daily"), (weekly, "weekly")];
    let kept: Vec<String> = kinds
        .into_iter()
        .filter(|(kept, _)| *kept > 0)
        .map(|(kept, kind)| format!("{kept} {kind}"))
        .collect();
    format!("keeps {} snapshots", kept.join(", "))
}

impl Shown for VolumeReport {
    fn print(&self, page: &mut Page) {
        page.field("volume", format!("{}/{}", self.pool, self.name), Style::Strong);
        page.field("state", self.state.to_string(), self.state.style());
        if let Some(failure) = &self.failure {
            page.field("failure", failure, Style::Bad);
        }
        let groups = if self.groups > 1 { format!(" in {} groups", self.groups) } else { String::new() };
        let rotation = match self.rotation_rows {
            1 => String::new(),
            rows => format!(", parity rotates every {rows} rows"),
        };
        let layout = format!(
            "{} over {} drives{groups}, interleave {}{rotation}",
            self.layout,
            self.columns,
            ByteSize(self.interleave_bytes)
        );
        page.field("layout", layout, Style::Plain);
        if let Some(extent_bytes) = self.slice_extent_bytes {
            let slices = format!("{}, extents of {} in turn", self.slices, ByteSize(extent_bytes));
            page.field("slices", slices, Style::Plain);
        }
        if let Some(conversion) = &self.conversion {
            let back = if conversion.is_cancelled { "cancelled, back " } else { "" };
            let progress = format!(
                "{back}from {} over {} drives; {:.1} % done",
                conversion.from_layout, conversion.from_columns, conversion.percent
            );
            page.field("converting", progress, Style::Warning);
            if let Some(waits) = &conversion.waits {
                page.field("waits", waits, Style::Bad);
            }
        }
        if let Some(receiving) = &self.receiving {
            let base = receiving.base.as_ref().map_or_else(String::new, |base| format!(" from {base} on"));
            let how = if receiving.is_running { "" } else { ", interrupted" };
            let text =
                format!("snapshot {}{base}{how}; not served until that is complete", receiving.snapshot);
            page.field("receiving", text, Style::Warning);
        }
        page.field("capacity", size_with_bytes(self.capacity_bytes), Style::Plain);
        let rows = match self.thin {
            true => {
                format!("{} of {} allocated (thin)", self.allocated_rows, counted(self.rows as usize, "row"))
            }
            false => counted(self.rows as usize, "row"),
        };
        page.field("rows", rows, Style::Plain);
        page.field("allocated", format!("{} on the drives", ByteSize(self.allocated_bytes)), Style::Plain);
        if let Some(written) = self.written_bytes {
            page.field("written", ByteSize(written).to_string(), Style::Plain);
        }
        if let Some(log) = &self.log {
            page.field("log", log_in_words(log), Style::Plain);
            page.field("segments", format!("{} of data", ByteSize(log.segment_bytes)), Style::Plain);
        }
        if let Some(of) = &self.clone_of {
            page.field("clone of", format!("{}/{of}", self.pool), Style::Plain);
        }
        if let Some(schedule) = &self.snapshot_schedule {
            page.field("schedule", schedule_in_words(schedule), Style::Plain);
        }
        let journal = match self.write_back {
            _ if self.log.is_some() => "none: writes are acknowledged from memory, flushes are staged",
            true => {
                "write-back: small writes are acknowledged once durable in the journal, and written in place later"
            }
            false => "write-through: writes are acknowledged in place; the journal closes the write hole",
        };
        page.field("journal", journal, Style::Plain);
        match self.checksums {
            true => page.field("checksums", "on", Style::Plain),
            false => page.field("checksums", "off: silent corruption is not detected", Style::Warning),
        }
        if let Some(tiers) = tiers_in_words(self) {
            page.field("tiers", tiers, Style::Plain);
        }
        page.field("can lose", counted(self.redundancy_left, "more drive"), Style::Plain);
        if self.lost_blocks > 0 {
            let lost = format!(
                "{} of 4 KiB; reads fail until they are rewritten",
                counted(self.lost_blocks as usize, "block")
            );
            page.field("lost", lost, Style::Bad);
        }
        page.field("id", &self.id, Style::Plain);
        page.line("");
        let headings = ["DRIVE", "ROLE", "STATE", ">HOLDS", ">LACKS", "ID"];
        let mut table = Table::new(&headings).indented().shortening_first();
        for drive in &self.drives {
            table.row([
                plain(&drive.path),
                plain(&drive.role),
                drive.state.cell(),
                plain(ByteSize(drive.bytes).to_string()),
                plain(ByteSize(drive.lacking_bytes).to_string()),
                plain(short_id(&drive.id)),
            ]);
        }
        page.table(&table);
    }
}

/// Formats the use of fast drives; `None` if the volume neither uses them nor is pinned.
fn tiers_in_words(volume: &VolumeReport) -> Option<String> {
    let tiers = &volume.tiers;
    if tiers.fast_bytes == 0 && volume.pin == "none" && tiers.note.is_none() {
        return None;
    }
    let (fast, all) = (ByteSize(tiers.fast_bytes), ByteSize(tiers.fast_bytes + tiers.data_bytes));
    let mut text = format!(
        "{} of {} on fast drives ({fast} of {all})",
        tiers.fast_rows,
        counted((tiers.fast_rows + tiers.data_rows + tiers.mixed_rows) as usize, "row")
    );
    if tiers.mixed_rows > 0 {
        text += &format!(", {} on both", tiers.mixed_rows);
    }
    match volume.pin.as_str() {
        "fast" => text += "; pinned to fast drives",
        "slow" => text += "; pinned to data drives",
        _ => {}
    }
    let heat = tiers.fast_heat + tiers.data_heat;
    if heat > 0.0 {
        text += &format!("; {:.0} % of recent I/O on fast drives", tiers.fast_heat * 100.0 / heat);
    }
    if tiers.moving_rows > 0 {
        text += &format!("; {} migrating", counted(tiers.moving_rows as usize, "row"));
    }
    if let Some(note) = &tiers.note {
        text += &format!("; {note}");
    }
    Some(text)
}

fn size_with_bytes(bytes: u64) -> String {
    format!("{} ({bytes} bytes)", ByteSize(bytes))
}
