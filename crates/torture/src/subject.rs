//! Adapter to the engine: the only file of this crate that uses the engine's interface. A new
//! capability of the engine is added here, and becomes an action in `events/actions.rs`.
//!
//! Expected faults: errors of the engine, passed on as text; the callers judge them.

mod files;
mod store;

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_array::tuning::Tuning;
use stripewise_array::{ArrayError, ArrayOptions, MemberOptions};
use stripewise_drive::{BufferPool, Context, Drive};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{
    DrawnShards, DriveId, DriveState, Host, JobKind, Notice, OpenMode, Pin, Pool, PoolError, PoolOptions,
    PoolSpec, PoolState, Role, ShareState, TierOptions, VolumeSpec,
};

pub(crate) use files::{File, Mount};
pub(crate) use store::Store;

/// A refused request.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// Error message of the engine.
    text: String,
    /// True if a thin volume has no space left to grow into.
    pub is_full: bool,
    /// True for the error number by which a file reports lost writes.
    pub is_io_error: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.text)
    }
}

fn refusal(error: impl std::fmt::Display) -> Refusal {
    Refusal { text: error.to_string(), is_full: false, is_io_error: false }
}

fn refused(error: ArrayError) -> Refusal {
    let is_full = matches!(error, ArrayError::NoSpace(_));
    Refusal { text: error.to_string(), is_full, is_io_error: false }
}

/// Settings of a pool, the same in all lives of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Seed of the run, from which IDs are derived.
    pub seed: u64,
    /// Time without an answer after which a drive counts as failed.
    pub timeout_ns: u64,
    /// Maximum bytes of client requests in flight.
    pub in_flight_bytes: u64,
    /// Maximum bytes of background work in flight.
    pub background_bytes: u64,
    /// True if volumes have checksums.
    pub checksums: bool,
    /// Size of a slab.
    pub slab_bytes: u64,
    /// Number of medium errors after which a drive counts as failed.
    pub max_read_errors: u32,
    /// Tuning of the engine.
    pub tuning: Tuning,
    /// Number of shards that arrays are spread over.
    pub shards: usize,
    /// Clients' requests come in on the threads of arrays, as far as these can serve them alone.
    pub direct: bool,
    /// Settings of tiering, such as the interval between its decisions.
    pub tiers: TierOptions,
}

impl Settings {
    fn options(&self) -> PoolOptions {
        PoolOptions {
            array: ArrayOptions {
                in_flight_bytes: self.in_flight_bytes,
                background_bytes: self.background_bytes,
                tuning: self.tuning,
            },
            member: MemberOptions {
                timeout_ns: self.timeout_ns,
                max_read_errors: self.max_read_errors,
                ..MemberOptions::default()
            },
            id_seed: Some(self.seed),
            drawn_shards: Some(DrawnShards { shards: self.shards, seed: self.seed }),
            tiers: self.tiers,
            ..PoolOptions::default()
        }
    }
}

/// A drive in the pool's record.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// ID of the drive.
    pub id: DriveId,
    /// Number in the disk's label.
    pub disk: usize,
    /// True for a data drive.
    pub is_data: bool,
    /// True for a fast drive.
    pub is_fast: bool,
    /// True if the drive is in service.
    pub is_online: bool,
    /// True if the drive was taken offline by request.
    pub is_offline: bool,
}

/// A column of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Number of the disk that holds the column.
    pub disk: usize,
    /// True if the column is complete and current.
    pub is_current: bool,
    /// True if the column is being rebuilt or resynchronised.
    pub is_filling: bool,
}

/// A volume as the pool describes it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Name of the volume.
    pub name: String,
    /// Number of drive failures that the volume survives when it is whole.
    pub tolerance: usize,
    /// Number of these failures that the engine counts as used up.
    pub counted_lost: usize,
    /// Columns of the volume; if rows differ, those of all rows.
    pub columns: Vec<Column>,
    /// Disks with a copy of the volume's region bitmap or a journal area.
    pub copies: BTreeSet<usize>,
    /// Missing copies that count as losses, since too few other copies are left.
    pub lacking_copies: BTreeSet<usize>,
    /// True if nothing of the volume is missing.
    pub is_online: bool,
    /// True if the volume can be read.
    pub is_readable: bool,
    /// True during a conversion to another layout.
    pub is_converting: bool,
    /// True while rows migrate to other disks.
    pub is_moving: bool,
}

impl Facts {
    /// Disks that hold data of the volume.
    pub(crate) fn disks(&self) -> BTreeSet<usize> {
        self.columns.iter().map(|column| column.disk).collect()
    }

    /// Disks that hold data or metadata of the volume.
    pub(crate) fn all_disks(&self) -> BTreeSet<usize> {
        &self.disks() | &self.copies
    }

    /// True if no column or copy is lost.
    pub(crate) fn is_whole(&self) -> bool {
        self.counted_lost == 0 && self.behind().is_empty()
    }

    /// Disks that lack all data of their columns.
    pub(crate) fn lacking(&self) -> BTreeSet<usize> {
        let lacking = self.columns.iter().filter(|column| !column.is_current && !column.is_filling);
        lacking.map(|column| column.disk).collect()
    }

    /// Disks that lack some or all data of their columns.
    pub(crate) fn behind(&self) -> BTreeSet<usize> {
        self.columns.iter().filter(|column| !column.is_current).map(|column| column.disk).collect()
    }
}

/// An open pool.
#[derive(Clone)]
pub(crate) struct Subject {
    pool: Pool,
}

/// Process that opens a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opener {
    /// Identity of its host.
    pub host: u64,
    /// True if it takes the pool from a process that has it.
    pub by_force: bool,
}

/// Pin of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pinned {
    /// To fast drives.
    Fast,
    /// To data drives.
    Slow,
    /// Not pinned; rows move by their heat.
    Nowhere,
}

/// A new volume.
#[derive(Clone, Debug)]
pub(crate) struct NewVolume {
    /// Name of the volume.
    pub name: String,
    /// Layout.
    pub layout: LayoutSpec,
    /// Usable size.
    pub size_bytes: u64,
    /// True if partial stripe writes are acknowledged from the journal.
    pub write_back: bool,
    /// True if space is allocated as it is written.
    pub thin: bool,
    /// Number of slices, as far as its size and the space allow.
    pub slices: u32,
}

impl Subject {
    /// Creates a pool.
    pub(crate) async fn create(
        context: &Context,
        settings: Settings,
        drives: Vec<Rc<dyn Drive>>,
        spares: Vec<Rc<dyn Drive>>,
        journals: Vec<Rc<dyn Drive>>,
        fast: Vec<Rc<dyn Drive>>,
    ) -> Result<Self, Refusal> {
        let buffers = BufferPool::new(16 << 20);
        let options = settings.options();
        let spec = PoolSpec {
            name: "tank".to_owned(),
            drives,
            spares,
            journals,
            fast,
            slab_bytes: Some(settings.slab_bytes),
            options,
            ..PoolSpec::default()
        };
        Pool::create(context, &buffers, spec).await.map(|pool| Self { pool }).map_err(refusal)
    }

    /// Opens a pool.
    pub(crate) async fn open(
        context: &Context,
        settings: Settings,
        drives: Vec<Rc<dyn Drive>>,
        read_only: bool,
    ) -> Result<Self, Refusal> {
        let buffers = BufferPool::new(16 << 20);
        let mode = if read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let pool = Pool::open(context, &buffers, drives, mode, settings.options()).await;
        pool.map(|pool| Self { pool }).map_err(refusal)
    }

    /// Opens a pool as a process of a host.
    pub(crate) async fn open_as(
        context: &Context,
        settings: Settings,
        drives: Vec<Rc<dyn Drive>>,
        Opener { host, by_force }: Opener,
    ) -> Result<Self, Refusal> {
        let host = Some(Host::new(host, "host"));
        let options = PoolOptions { host, take_from_host: by_force, ..settings.options() };
        let pool =
            Pool::open(context, &BufferPool::new(16 << 20), drives, OpenMode::ReadWrite, options).await;
        pool.map(|pool| Self { pool }).map_err(refusal)
    }

    /// Creates a volume.
    pub(crate) async fn create_volume(&self, settings: Settings, new: &NewVolume) -> Result<Store, Refusal> {
        let mut slices = new.slices;
        loop {
            let spec = VolumeSpec {
                size_bytes: Some(new.size_bytes),
                write_back: Some(new.write_back),
                thin: new.thin,
                checksums: Some(settings.checksums),
                slices: Some(slices),
                ..VolumeSpec::new(&new.name, new.layout)
            };
            match self.pool.create_volume(spec).await {
                Err(
                    PoolError::NoSpace { .. }
                    | PoolError::ThinTooLarge { .. }
                    | PoolError::TooSmallForSlices { .. }
                    | PoolError::SeekBoundSlices { .. },
                ) if slices > 1 => slices /= 2,
                made => return made.map(Store::new).map_err(refusal),
            }
        }
    }

    /// Finds a volume.
    pub(crate) fn volume(&self, name: &str) -> Result<Store, Refusal> {
        self.pool.volume(name).map(Store::new).map_err(refusal)
    }

    /// Drives of the pool.
    pub(crate) fn places(&self) -> Vec<Place> {
        let status = self.pool.status();
        let place = |drive: &stripewise_pool::DriveStatus| {
            Some(Place {
                id: drive.id,
                disk: disk_number(&drive.path)?,
                is_data: drive.role == Role::Data,
                is_fast: drive.role == Role::Fast,
                is_online: drive.state.takes_part(),
                is_offline: drive.state == DriveState::Offline,
            })
        };
        status.drives.iter().filter_map(place).collect()
    }

    /// Facts about all volumes.
    pub(crate) fn facts(&self) -> Vec<Facts> {
        let status = self.pool.status();
        let disk_of = |id: DriveId| {
            let drive = status.drives.iter().find(|drive| drive.id == id);
            drive.and_then(|drive| disk_number(&drive.path)).unwrap_or(usize::MAX)
        };
        let facts = |volume: &stripewise_pool::VolumeInfo| Facts {
            name: volume.name.clone(),
            tolerance: tolerance(volume),
            counted_lost: tolerance(volume).saturating_sub(volume.redundancy_left),
            columns: volume
                .slots
                .iter()
                .map(|slot| Column {
                    disk: disk_of(slot.drive),
                    is_current: slot.state == ShareState::Active,
                    is_filling: matches!(slot.state, ShareState::Rebuilding | ShareState::CatchingUp),
                })
                .collect(),
            copies: volume.copies.iter().map(|id| disk_of(*id)).collect(),
            lacking_copies: volume.lacking_copies.iter().map(|id| disk_of(*id)).collect(),
            is_online: volume.state == stripewise_pool::VolumeState::Online,
            is_readable: volume.state != stripewise_pool::VolumeState::Failed,
            is_converting: volume.conversion.is_some(),
            is_moving: volume.tiers.moving_rows > 0,
        };
        status.volumes.iter().map(facts).collect()
    }

    /// Formats the pool's status, for the report of a failure.
    pub(crate) fn in_words(&self) -> String {
        let status = self.pool.status();
        let drives: Vec<String> =
            status.drives.iter().map(|drive| format!("{} {}", drive.path, drive.state)).collect();
        let of_volume = |volume: &stripewise_pool::VolumeInfo| {
            let slots: Vec<&str> = volume.slots.iter().map(|slot| slot.state.word()).collect();
            let failure = volume.failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            let (name, level) = (&volume.name, volume.shape.level);
            let from = volume.conversion.as_ref().map_or_else(String::new, |conversion| {
                format!(" from {} at {}", conversion.from.level, conversion.next_offset_bytes)
            });
            format!("{name} {level}{from} {:?} [{}]{failure}", volume.state, slots.join(" "))
        };
        let volumes: Vec<String> = status.volumes.iter().map(of_volume).collect();
        format!("{}; {}; notices: {:?}", drives.join(", "), volumes.join(", "), status.notices)
    }

    /// Number of lost blocks of all volumes, as the pool reports it.
    pub(crate) fn lost_blocks(&self) -> u64 {
        self.pool.status().volumes.iter().map(|volume| volume.lost_blocks).sum()
    }

    /// True if all volumes have full redundancy.
    pub(crate) fn is_online(&self) -> bool {
        self.pool.status().state == PoolState::Online
    }

    /// True if the pool reports too little space to evacuate a drive.
    pub(crate) fn lacks_room_to_retire(&self) -> bool {
        self.pool.status().notices.iter().any(|notice| matches!(notice, Notice::CannotEmpty { .. }))
    }

    /// True if the pool reports too little space to continue a conversion.
    pub(crate) fn lacks_room_to_convert(&self) -> bool {
        let status = self.pool.status();
        let waits = status.volumes.iter().filter_map(|volume| volume.conversion.as_ref()?.waits.as_ref());
        waits.into_iter().any(|wait| wait.is_for_space)
    }

    /// True if a conversion is pending.
    pub(crate) fn is_converting(&self) -> bool {
        self.pool.status().volumes.iter().any(|volume| volume.conversion.is_some())
    }

    /// Starts to convert a volume; to slices, as far as its size allows.
    pub(crate) async fn convert(&self, name: &str, layout: LayoutSpec, slices: u32) -> Result<(), Refusal> {
        match self.pool.convert(name, Some(layout), Some(slices)).await {
            Err(PoolError::SeekBoundSlices { .. } | PoolError::TooSmallForSlices { .. }) => {
                self.pool.convert(name, Some(layout), Some(1)).await.map_err(refusal)
            }
            begun => begun.map_err(refusal),
        }
    }

    /// Runs conversions until all are complete or blocked.
    pub(crate) async fn wait_converted(&self) -> Result<(), Refusal> {
        self.pool.wait(JobKind::Convert).await.map_err(refusal)
    }

    /// True if the data on retiring drives certainly fits elsewhere: at least as many other drives
    /// remain as any row has columns, so that each row leaves one of them unused, and each of them
    /// has space for all the data. False if the pool reports that contiguous space is missing.
    pub(crate) fn has_room_beyond_doubt(&self) -> bool {
        let status = self.pool.status();
        let is_for_side_by_side =
            |notice: &Notice| matches!(notice, Notice::CannotEmpty { why } if why.contains("side by side"));
        if status.notices.iter().any(is_for_side_by_side) {
            return false;
        }
        let taken = |drive: &stripewise_pool::DriveStatus| drive.allocated_bytes;
        let to_move: u64 =
            status.drives.iter().filter(|drive| drive.state == DriveState::Retiring).map(taken).sum();
        // A drive that returned after a spare replaced it keeps its data and gets no new data.
        let is_replaced = |drive: &stripewise_pool::DriveStatus| {
            let of_it =
                |notice: &Notice| matches!(notice, Notice::SpareInUse(spare) if spare.drive == drive.path);
            status.notices.iter().any(of_it)
        };
        let takes_new = |drive: &&stripewise_pool::DriveStatus| {
            drive.role == Role::Data && drive.state == DriveState::Online && !is_replaced(drive)
        };
        let takers = status.drives.iter().filter(takes_new);
        let takers: Vec<u64> = takers.map(|drive| drive.usable_bytes.saturating_sub(taken(drive))).collect();
        let widest = status.volumes.iter().map(|volume| volume.shape.width).max().unwrap_or(0);
        takers.len() >= widest && takers.iter().all(|free| *free >= to_move)
    }

    /// True if a rebuild is running or pending.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.pool.activity().iter().any(|activity| activity.kind == JobKind::Rebuild)
    }

    /// True if a working drive is being replaced.
    pub(crate) fn is_replacing(&self) -> bool {
        self.pool.status().drives.iter().any(|drive| drive.state == DriveState::Replacing)
    }

    /// True if a rebalance is running or pending.
    pub(crate) fn is_rebalancing(&self) -> bool {
        self.pool.activity().iter().any(|activity| activity.kind == JobKind::Rebalance)
    }

    /// Starts a rebalance. Returns true if it is useful.
    pub(crate) async fn rebalance(&self) -> Result<bool, Refusal> {
        self.pool.rebalance().await.map_err(refusal)
    }

    /// Stops a rebalance.
    pub(crate) async fn stop_rebalance(&self) -> Result<(), Refusal> {
        self.pool.stop_rebalance().await.map(|_| ()).map_err(refusal)
    }

    /// Runs the rebalance to its end.
    pub(crate) async fn wait_rebalanced(&self) -> Result<(), Refusal> {
        self.pool.wait(JobKind::Rebalance).await.map_err(refusal)
    }

    /// Starts all jobs.
    pub(crate) fn start_jobs(&self) {
        self.pool.start_jobs();
    }

    /// Runs rebuilds to their end.
    pub(crate) async fn wait_rebuilt(&self) -> Result<(), Refusal> {
        self.pool.wait(JobKind::Rebuild).await.map_err(refusal)
    }

    /// Runs scrubs and resyncs to their end.
    pub(crate) async fn wait_checked(&self) -> Result<(), Refusal> {
        self.pool.wait(JobKind::Scrub).await.map_err(refusal)
    }

    /// Queues a scrub.
    pub(crate) async fn scrub(&self) -> Result<(), Refusal> {
        self.pool.scrub().await.map_err(refusal)
    }

    /// Errors found by the last scrub; `None` if it found none.
    pub(crate) fn scrub_findings(&self) -> Option<String> {
        let reports = self.pool.scrub_reports();
        let is_clean = |summary: &stripewise_pool::ScrubSummary| {
            let report = &summary.report;
            summary.error.is_none()
                && report.blamed.is_empty()
                && (report.unattributed_blocks, report.unreadable_strips) == (0, 0)
        };
        reports.iter().find(|summary| !is_clean(summary)).map(|summary| format!("{summary:?}"))
    }

    /// Fails a drive; the failure is recorded on return.
    pub(crate) async fn fail_drive(&self, id: DriveId) -> Result<(), Refusal> {
        self.pool.fail_drive(id, "torture").await.map_err(refusal)
    }

    /// Replaces a drive.
    pub(crate) async fn replace(&self, old: DriveId, new: Rc<dyn Drive>) -> Result<(), Refusal> {
        self.pool.replace(old, new, false).await.map(|_| ()).map_err(refusal)
    }

    /// Adds a spare.
    pub(crate) async fn add_spare(&self, drive: Rc<dyn Drive>) -> Result<(), Refusal> {
        self.pool.add_spare(drive, false).await.map(|_| ()).map_err(refusal)
    }

    /// Adds a data drive.
    pub(crate) async fn add_data(&self, drive: Rc<dyn Drive>) -> Result<(), Refusal> {
        self.pool.add(drive, Role::Data, false).await.map(|_| ()).map_err(refusal)
    }

    /// Takes a drive offline.
    pub(crate) async fn offline(&self, id: DriveId) -> Result<(), Refusal> {
        self.pool.offline(id).await.map_err(refusal)
    }

    /// Brings an offline or missing drive back online.
    pub(crate) async fn online(&self, id: DriveId, drive: Rc<dyn Drive>) -> Result<(), Refusal> {
        self.pool.online(id, Some(drive)).await.map_err(refusal)
    }

    /// Starts to evacuate a drive, which is then removed.
    pub(crate) async fn retire(&self, id: DriveId) -> Result<(), Refusal> {
        self.pool.retire(id).await.map_err(refusal)
    }

    /// Removes an empty drive.
    pub(crate) async fn remove(&self, id: DriveId) -> Result<(), Refusal> {
        self.pool.remove(id).await.map_err(refusal)
    }

    /// Pins a volume.
    pub(crate) async fn pin(&self, name: &str, pinned: Pinned) -> Result<(), Refusal> {
        let pin = match pinned {
            Pinned::Fast => Pin::Fast,
            Pinned::Slow => Pin::Slow,
            Pinned::Nowhere => Pin::None,
        };
        self.pool.set_pin(name, pin).await.map_err(refusal)
    }

    /// Resizes a volume.
    pub(crate) async fn resize(&self, name: &str, size_bytes: u64) -> Result<(), Refusal> {
        self.pool.resize_volume(name, size_bytes).await.map_err(refusal)
    }

    /// Deletes a volume.
    pub(crate) async fn delete_volume(&self, name: &str) -> Result<(), Refusal> {
        self.pool.delete_volume(name).await.map_err(refusal)
    }

    /// Sets the share of drive time for rebuilds under load.
    pub(crate) async fn set_rebuild_priority(&self, percent: u32) -> Result<(), Refusal> {
        self.pool.set_rebuild_priority(percent).await.map_err(refusal)
    }

    /// Closes the pool.
    pub(crate) async fn close(&self) -> Result<(), Refusal> {
        self.pool.close().await.map_err(refusal)
    }
}

/// Number of drive failures that a whole volume survives; during a conversion, the lower number of
/// the two layouts.
fn tolerance(volume: &stripewise_pool::VolumeInfo) -> usize {
    let from = volume.conversion.as_ref().map(|conversion| conversion.from.fault_tolerance());
    volume.shape.fault_tolerance().min(from.unwrap_or(usize::MAX))
}

/// Parses the number in a disk's label.
pub(crate) fn disk_number(path: &str) -> Option<usize> {
    path.strip_prefix("disk")?.parse().ok()
}

/// Label of a disk.
pub(crate) fn disk_label(number: usize) -> String {
    format!("disk{number}")
}
