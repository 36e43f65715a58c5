//! The one place that knows the engine's interface: what a life does to a pool, and what it asks of
//! it, in the words of this crate. When the engine learns something new, it is made known here, and
//! becomes an action in `events/actions.rs`.
//!
//! Faults expected: the engine's own errors, given on as text; what they mean is judged by the
//! callers.

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_drive::{BufferPool, Context, Drive};
use stripewise_engine::pool::{Pin, TierOptions};
use stripewise_engine::tuning::Tuning;
use stripewise_engine::{
    ArrayError, ArrayOptions, DriveId, DriveState, JobKind, MemberOptions, OpenMode, Pool, PoolOptions,
    PoolSpec, PoolState, Role, ShareState, Volume, VolumeSpec,
};
use stripewise_layout::LayoutSpec;

/// Why something was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    /// For people.
    text: String,
    /// There is no space for a thin volume to grow into.
    pub is_full: bool,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.text)
    }
}

fn refusal(error: impl std::fmt::Display) -> Refusal {
    Refusal { text: error.to_string(), is_full: false }
}

fn refused(error: ArrayError) -> Refusal {
    Refusal { text: error.to_string(), is_full: matches!(error, ArrayError::NoSpace(_)) }
}

/// How a pool is run, the same in all its lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The run's seed: identities come from it.
    pub seed: u64,
    /// After so long without an answer a drive has failed.
    pub timeout_ns: u64,
    /// Bytes of client requests at a time.
    pub in_flight_bytes: u64,
    /// Bytes of background work at a time.
    pub background_bytes: u64,
    /// Whether volumes have checksums.
    pub checksums: bool,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Medium errors after which a drive has failed.
    pub max_read_errors: u32,
    /// The engine's times and sizes.
    pub tuning: Tuning,
    /// How often it decides which rows lie on fast drives.
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
            tiers: self.tiers,
            ..PoolOptions::default()
        }
    }
}

/// A drive of the pool as its record has it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its identity.
    pub id: DriveId,
    /// The number in its label.
    pub disk: usize,
    /// Holds data, as opposed to waiting as a spare.
    pub is_data: bool,
    /// Holds what is often asked for.
    pub is_fast: bool,
    /// Takes part.
    pub is_online: bool,
    /// Was taken out for a while, by request.
    pub is_offline: bool,
}

/// One column of a volume: whose it is, and whether it is current.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// The disk's number.
    pub disk: usize,
    /// Holds all that it should.
    pub is_current: bool,
    /// Holds some of what it should; the rest is on the way.
    pub is_filling: bool,
}

/// A volume as the pool describes it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Its name.
    pub name: String,
    /// How many drives it can do without when whole.
    pub tolerance: usize,
    /// How many of these the engine counts as lost.
    pub counted_lost: usize,
    /// Its columns; where rows differ, those of all rows.
    pub columns: Vec<Column>,
    /// Disks with a copy of its map or an area of its journal.
    pub copies: BTreeSet<usize>,
    /// Those of them whose loss counts, as the others are too few.
    pub lacking_copies: BTreeSet<usize>,
    /// Nothing of it is missing.
    pub is_online: bool,
    /// It can be read.
    pub is_readable: bool,
    /// It is on its way to another layout.
    pub is_converting: bool,
    /// Some of its rows are on their way to other disks.
    pub is_moving: bool,
}

impl Facts {
    /// Disks that hold some of its data.
    pub(crate) fn disks(&self) -> BTreeSet<usize> {
        self.columns.iter().map(|column| column.disk).collect()
    }

    /// Disks that hold anything of it.
    pub(crate) fn all_disks(&self) -> BTreeSet<usize> {
        &self.disks() | &self.copies
    }

    /// Nothing of what it should have is lost.
    pub(crate) fn is_whole(&self) -> bool {
        self.counted_lost == 0 && self.behind().is_empty()
    }

    /// Of those with data, disks that hold nothing of what they should.
    pub(crate) fn lacking(&self) -> BTreeSet<usize> {
        let lacking = self.columns.iter().filter(|column| !column.is_current && !column.is_filling);
        lacking.map(|column| column.disk).collect()
    }

    /// Of those, disks that do not hold all that they should.
    pub(crate) fn behind(&self) -> BTreeSet<usize> {
        self.columns.iter().filter(|column| !column.is_current).map(|column| column.disk).collect()
    }
}

/// An open pool.
#[derive(Clone)]
pub(crate) struct Subject {
    pool: Pool,
}

/// Where a volume's rows belong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pinned {
    /// On fast drives.
    Fast,
    /// On data drives.
    Slow,
    /// Wherever their heat takes them.
    Nowhere,
}

/// A new volume.
#[derive(Clone, Debug)]
pub(crate) struct NewVolume {
    /// Its name.
    pub name: String,
    /// Its layout.
    pub layout: LayoutSpec,
    /// Its size.
    pub size_bytes: u64,
    /// Parts of stripes are acknowledged from the journal.
    pub write_back: bool,
    /// Takes space where it is written only.
    pub thin: bool,
}

impl Subject {
    /// Makes a pool.
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

    /// Makes a volume.
    pub(crate) async fn create_volume(&self, settings: Settings, new: &NewVolume) -> Result<Store, Refusal> {
        let spec = VolumeSpec {
            size_bytes: Some(new.size_bytes),
            write_back: Some(new.write_back),
            thin: new.thin,
            checksums: Some(settings.checksums),
            ..VolumeSpec::new(&new.name, new.layout)
        };
        self.pool.create_volume(spec).await.map(|volume| Store { volume }).map_err(refusal)
    }

    /// Finds a volume.
    pub(crate) fn volume(&self, name: &str) -> Result<Store, Refusal> {
        self.pool.volume(name).map(|volume| Store { volume }).map_err(refusal)
    }

    /// All drives of the pool.
    pub(crate) fn places(&self) -> Vec<Place> {
        let status = self.pool.status();
        let place = |drive: &stripewise_engine::DriveStatus| {
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

    /// All volumes.
    pub(crate) fn facts(&self) -> Vec<Facts> {
        let status = self.pool.status();
        let disk_of = |id: DriveId| {
            let drive = status.drives.iter().find(|drive| drive.id == id);
            drive.and_then(|drive| disk_number(&drive.path)).unwrap_or(usize::MAX)
        };
        let facts = |volume: &stripewise_engine::VolumeInfo| Facts {
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
            is_online: volume.state == stripewise_engine::VolumeState::Online,
            is_readable: volume.state != stripewise_engine::VolumeState::Failed,
            is_converting: volume.conversion.is_some(),
            is_moving: volume.tiers.moving_rows > 0,
        };
        status.volumes.iter().map(facts).collect()
    }

    /// What the pool says of itself, for the report of a failure.
    pub(crate) fn in_words(&self) -> String {
        let status = self.pool.status();
        let drives: Vec<String> =
            status.drives.iter().map(|drive| format!("{} {}", drive.path, drive.state)).collect();
        let of_volume = |volume: &stripewise_engine::VolumeInfo| {
            let slots: Vec<&str> = volume.slots.iter().map(|slot| slot.state.word()).collect();
            let failure = volume.failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            let (name, level) = (&volume.name, volume.shape.level);
            let from = volume.conversion.as_ref().map_or_else(String::new, |conversion| {
                format!(" from {} at {}", conversion.from.level, conversion.next_offset_bytes)
            });
            format!("{name} {level}{from} {:?} [{}]{failure}", volume.state, slots.join(" "))
        };
        let volumes: Vec<String> = status.volumes.iter().map(of_volume).collect();
        format!("{}; {}; notices: {}", drives.join(", "), volumes.join(", "), status.notices.join("; "))
    }

    /// Whether all volumes have all of their redundancy.
    pub(crate) fn is_online(&self) -> bool {
        self.pool.status().state == PoolState::Online
    }

    /// Whether the pool says that there is no room for what is on a drive that is to be emptied.
    pub(crate) fn lacks_room_to_retire(&self) -> bool {
        self.pool.status().notices.iter().any(|notice| notice.contains("cannot be emptied"))
    }

    /// Whether the pool says that there is no room for more of a layout that a volume is converted
    /// to.
    pub(crate) fn lacks_room_to_convert(&self) -> bool {
        let status = self.pool.status();
        let waits = status.volumes.iter().filter_map(|volume| volume.conversion.as_ref()?.waits.as_ref());
        waits.into_iter().any(|why| why.contains("there is no room"))
    }

    /// Whether a volume is on its way to another layout.
    pub(crate) fn is_converting(&self) -> bool {
        self.pool.status().volumes.iter().any(|volume| volume.conversion.is_some())
    }

    /// Begins to convert a volume.
    pub(crate) async fn convert(&self, name: &str, layout: LayoutSpec) -> Result<(), Refusal> {
        self.pool.convert_volume(name, layout).await.map_err(refusal)
    }

    /// Works until no conversion is left that nothing stands in the way of.
    pub(crate) async fn wait_converted(&self) -> Result<(), Refusal> {
        self.pool.wait(JobKind::Convert).await.map_err(refusal)
    }

    /// Whether what is on drives that retire surely has room elsewhere: there are as many others as
    /// any row has columns, so each row is without one of them, and each of them has room for all
    /// of it. What has to lie side by side may find the room in pieces.
    pub(crate) fn has_room_beyond_doubt(&self) -> bool {
        let status = self.pool.status();
        if status.notices.iter().any(|notice| notice.contains("side by side")) {
            return false;
        }
        let taken = |drive: &stripewise_engine::DriveStatus| drive.allocated_bytes;
        let to_move: u64 =
            status.drives.iter().filter(|drive| drive.state == DriveState::Retiring).map(taken).sum();
        // One whose place a spare took, and that came back, keeps what it has and gets nothing new.
        let is_replaced = |drive: &stripewise_engine::DriveStatus| {
            let words = format!("took the place of {}", drive.path);
            status.notices.iter().any(|notice| notice.ends_with(&words))
        };
        let takes_new = |drive: &&stripewise_engine::DriveStatus| {
            drive.role == Role::Data && drive.state == DriveState::Online && !is_replaced(drive)
        };
        let takers = status.drives.iter().filter(takes_new);
        let takers: Vec<u64> = takers.map(|drive| drive.usable_bytes.saturating_sub(taken(drive))).collect();
        let widest = status.volumes.iter().map(|volume| volume.shape.width).max().unwrap_or(0);
        takers.len() >= widest && takers.iter().all(|free| *free >= to_move)
    }

    /// Whether a rebuild is under way or due.
    pub(crate) fn is_rebuilding(&self) -> bool {
        self.pool.activity().iter().any(|activity| activity.kind == JobKind::Rebuild)
    }

    /// Whether a drive that works is being replaced.
    pub(crate) fn is_replacing(&self) -> bool {
        self.pool.status().drives.iter().any(|drive| drive.state == DriveState::Replacing)
    }

    /// Whether rows are being spread over all drives, or about to be.
    pub(crate) fn is_rebalancing(&self) -> bool {
        self.pool.activity().iter().any(|activity| activity.kind == JobKind::Rebalance)
    }

    /// Has rows spread over all drives; whether anything is gained by it.
    pub(crate) async fn rebalance(&self) -> Result<bool, Refusal> {
        self.pool.rebalance().await.map_err(refusal)
    }

    /// Has that stopped.
    pub(crate) async fn stop_rebalance(&self) -> Result<(), Refusal> {
        self.pool.stop_rebalance().await.map(|_| ()).map_err(refusal)
    }

    /// Works until rows are spread.
    pub(crate) async fn wait_rebalanced(&self) -> Result<(), Refusal> {
        self.pool.wait(JobKind::Rebalance).await.map_err(refusal)
    }

    /// Begins all jobs.
    pub(crate) fn start_jobs(&self) {
        self.pool.start_jobs();
    }

    /// Works until nothing is left to rebuild.
    pub(crate) async fn wait_rebuilt(&self) -> Result<(), Refusal> {
        self.pool.wait(JobKind::Rebuild).await.map_err(refusal)
    }

    /// Works until nothing is left to check or to resynchronise.
    pub(crate) async fn wait_checked(&self) -> Result<(), Refusal> {
        self.pool.wait(JobKind::Scrub).await.map_err(refusal)
    }

    /// Has everything checked when jobs run.
    pub(crate) async fn scrub(&self) -> Result<(), Refusal> {
        self.pool.scrub().await.map_err(refusal)
    }

    /// What the last scrub found wrong; `None`: nothing.
    pub(crate) fn scrub_findings(&self) -> Option<String> {
        let reports = self.pool.scrub_reports();
        let is_clean = |summary: &stripewise_engine::ScrubSummary| {
            let report = &summary.report;
            summary.error.is_none()
                && report.blamed.is_empty()
                && (report.unattributed_blocks, report.unreadable_strips) == (0, 0)
        };
        reports.iter().find(|summary| !is_clean(summary)).map(|summary| format!("{summary:?}"))
    }

    /// Takes a drive out; recorded when this ends.
    pub(crate) async fn fail_drive(&self, id: DriveId) -> Result<(), Refusal> {
        self.pool.fail_drive(id, "torture").await.map_err(refusal)
    }

    /// Puts a drive in the place of another.
    pub(crate) async fn replace(&self, old: DriveId, new: Rc<dyn Drive>) -> Result<(), Refusal> {
        self.pool.replace(old, new, false).await.map(|_| ()).map_err(refusal)
    }

    /// Adds a spare.
    pub(crate) async fn add_spare(&self, drive: Rc<dyn Drive>) -> Result<(), Refusal> {
        self.pool.add_spare(drive, false).await.map(|_| ()).map_err(refusal)
    }

    /// Adds a drive for data.
    pub(crate) async fn add_data(&self, drive: Rc<dyn Drive>) -> Result<(), Refusal> {
        self.pool.add(drive, Role::Data, false).await.map(|_| ()).map_err(refusal)
    }

    /// Takes a drive out for a while.
    pub(crate) async fn offline(&self, id: DriveId) -> Result<(), Refusal> {
        self.pool.offline(id).await.map_err(refusal)
    }

    /// Takes back a drive that was taken out or went.
    pub(crate) async fn online(&self, id: DriveId, drive: Rc<dyn Drive>) -> Result<(), Refusal> {
        self.pool.online(id, Some(drive)).await.map_err(refusal)
    }

    /// Has a drive emptied and let go of.
    pub(crate) async fn retire(&self, id: DriveId) -> Result<(), Refusal> {
        self.pool.retire(id).await.map_err(refusal)
    }

    /// Lets go of a drive that holds nothing.
    pub(crate) async fn remove(&self, id: DriveId) -> Result<(), Refusal> {
        self.pool.remove(id).await.map_err(refusal)
    }

    /// Says where a volume's rows belong.
    pub(crate) async fn pin(&self, name: &str, pinned: Pinned) -> Result<(), Refusal> {
        let pin = match pinned {
            Pinned::Fast => Pin::Fast,
            Pinned::Slow => Pin::Slow,
            Pinned::Nowhere => Pin::None,
        };
        self.pool.set_pin(name, pin).await.map_err(refusal)
    }

    /// Makes a volume larger or smaller.
    pub(crate) async fn resize(&self, name: &str, size_bytes: u64) -> Result<(), Refusal> {
        self.pool.resize_volume(name, size_bytes).await.map_err(refusal)
    }

    /// Deletes a volume.
    pub(crate) async fn delete_volume(&self, name: &str) -> Result<(), Refusal> {
        self.pool.delete_volume(name).await.map_err(refusal)
    }

    /// Sets how much of the drives' time a rebuild gets.
    pub(crate) async fn set_rebuild_priority(&self, percent: u32) -> Result<(), Refusal> {
        self.pool.set_rebuild_priority(percent).await.map_err(refusal)
    }

    /// Ends the pool.
    pub(crate) async fn close(&self) -> Result<(), Refusal> {
        self.pool.close().await.map_err(refusal)
    }
}

/// How many drives a volume can do without when whole: while it is converted, as many as the lower
/// of the two layouts.
fn tolerance(volume: &stripewise_engine::VolumeInfo) -> usize {
    let from = volume.conversion.as_ref().map(|conversion| conversion.from.fault_tolerance());
    volume.shape.fault_tolerance().min(from.unwrap_or(usize::MAX))
}

/// The number in the label that a disk was given.
pub(crate) fn disk_number(path: &str) -> Option<usize> {
    path.strip_prefix("disk")?.parse().ok()
}

/// The label of a disk.
pub(crate) fn disk_label(number: usize) -> String {
    format!("disk{number}")
}

/// An open volume.
#[derive(Clone)]
pub(crate) struct Store {
    volume: Volume,
}

impl Store {
    /// Its size.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.volume.capacity_bytes()
    }

    /// Data bytes of a stripe.
    pub(crate) fn stripe_bytes(&self) -> u64 {
        self.volume.geometry().stripe_data_bytes()
    }

    /// Data bytes of a region, about: what lies on 1 MiB of each column.
    pub(crate) fn region_bytes(&self) -> u64 {
        let geometry = self.volume.geometry();
        (1 << 20) / geometry.interleave_bytes() * geometry.stripe_data_bytes()
    }

    /// Whether it has parity, and so stripes of which a part cannot be written alone.
    pub(crate) fn has_parity(&self) -> bool {
        self.volume.geometry().parity_units() > 0
    }

    /// Whether it surely cannot be read as a whole without these disks, where `facts` are its own.
    /// Rows may lie on different disks, and of copies and groups it matters which are lost; where
    /// that would have to be known the answer is no.
    pub(crate) fn surely_fails(&self, facts: &Facts, disks: &BTreeSet<usize>) -> bool {
        let geometry = self.volume.geometry();
        let shape = geometry.shape();
        let lost = facts.columns.iter().filter(|column| disks.contains(&column.disk)).count();
        let all_alike = !facts.is_converting
            && facts.columns.len() == geometry.width()
            && shape.groups == 1
            && (geometry.copies() == 1 || geometry.copies() == geometry.width());
        lost == facts.columns.len() || (all_alike && lost > facts.tolerance)
    }

    /// Whether a cut left stripes that have yet to be made to agree.
    pub(crate) fn needs_resync(&self) -> bool {
        self.volume.needs_resync()
    }

    /// Reads.
    pub(crate) async fn read(&self, offset_bytes: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        let buffer = self.volume.read(offset_bytes, length).await.map_err(refusal)?;
        Ok(buffer.to_vec())
    }

    /// Writes.
    pub(crate) async fn write(&self, offset_bytes: u64, data: &[u8], fua: bool) -> Result<(), Refusal> {
        let buffer = self.volume.buffers().allocate(data.len());
        buffer.with_mut(|bytes| bytes.copy_from_slice(data));
        self.volume.write(offset_bytes, buffer, fua).await.map_err(refused)
    }

    /// Makes durable.
    pub(crate) async fn flush(&self) -> Result<(), Refusal> {
        self.volume.flush().await.map_err(refusal)
    }

    /// Gives up a range.
    pub(crate) async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), Refusal> {
        self.volume.discard(offset_bytes, length_bytes).await.map_err(refusal)
    }

    /// Writes zeros.
    pub(crate) async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), Refusal> {
        self.volume.write_zeroes(offset_bytes, length_bytes).await.map_err(refused)
    }
}
