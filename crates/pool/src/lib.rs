//! A pool: drives, the volumes on them, and the record of both that every drive carries.
//!
//! | folder | what is there |
//! |---|---|
//! | `manifest/` | the record: what it says of drives, volumes and jobs |
//! | `superblock/` | how it comes onto drives and back: bytes, commits, which drives are believed |
//! | `space/` | slabs: what lies where, what is free, where new rows go |
//! | `membership/` | drives that join, leave, fail, come back or are replaced |
//! | `sparing/` | spares and free slabs that stand in for drives that are out |
//! | `volume/` | volumes: creation, opening, I/O, resizing, thin allocation, conversion |
//! | `jobs/` | background work: rebuild, scrub, evacuation, rebalancing, conversion, tiering |
//! | `status/` | what a pool says of itself |
//! | `stream/` | snapshots as streams: sending and receiving |
//!
//! What an open pool has in memory is in types of their own, which `Inner` holds together:
//!
//! | type | what it has |
//! |---|---|
//! | `Manifest` | the record, as last committed |
//! | `OpenDrives` | the drives at hand, and whether they work |
//! | `OpenVolumes` | the array of each part, and the way to it |
//! | `FreeSlabs`, `Freed` | free slabs, and those that will be when nothing uses them any more |
//! | `Commits` | the writer of the record, and the numbers of commits |
//! | `ThinGrowth` | how many rows a thin volume gets next |
//! | `News` | events to be recorded, notices to be shown |
//! | `Jobs` | what each lane of background work is at |
//! | `Lifecycle` | whether the pool may be changed, and whose turn it is |
//! | `Session` | this process's claim to the drives, and its marks on them |
//!
//! `SparePlanner`, `Filling`, `Copying` and their like are made of these for one task.
//!
//! Expected faults: drives that fail, come back, belong to another pool or are old; power cuts at
//! any instant.
//!
//! The rule that keeps data right: a drive is left out of a volume only after every other drive of
//! the pool has recorded it, and no write that it lacks is acknowledged before. A volume that has
//! lost more drives than it can spare takes no more writes, so what those drives hold stays current
//! and they can come back.
//!
//! Memory: a pool keeps one manifest (a few bytes per run of rows, 512 events) and a member per
//! drive; the bounds of a volume are stated in `array/mod.rs`.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/cases.rs"]
mod cases;

mod claims;
mod create;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod gate_state;
mod jobs;
mod lifecycle;
mod manifest;
mod membership;
mod news;
mod open;
mod open_drives;
mod open_volumes;
mod rolled_back;
mod session;
mod settings;
mod space;
mod sparing;
mod status;
mod stream;
mod superblock;
#[cfg(test)]
mod testing;
mod volume;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::rc::{Rc, Weak};

use stripewise_drive::{BufferPool, Context, Drive, SemaphorePermit};

pub use error::{LogTask, NeedsDrives, PoolError};
pub use jobs::ScrubSummary;
pub use jobs::kind::JobKind;
pub use jobs::tier::{TIER_BYTES_PER_S, TierOptions};
pub use jobs::tier_plan::TierInfo;
pub use jobs::wait::Wait;
pub use manifest::care::LastScrub;
pub use manifest::drive_record::{ExclusionKind, MAX_PATH_BYTES, Role};
pub use manifest::events::{Event, EventKind};
pub use manifest::host_use::{Host, HostUse};
pub use manifest::ids::{DriveId, Id, PoolId, VolumeId};
pub use manifest::slice_record::MOST_SLICES;
pub use manifest::snapshot_path::SnapshotPath;
pub use manifest::snapshot_schedule::{MOST_KEPT, SnapshotSchedule, date};
pub use manifest::volume_record::{Pin, RESERVE_PERCENT, USUAL_RESERVE_PERCENT};
pub use membership::inspect::{DriveLabel, LabelDrive, LabelVolume, identify, inspect};
pub use membership::new_identity::give_new_identity;
pub use space::addresses::{choose_slab_bytes, usable_bytes};
pub use sparing::planner::Homeless;
pub use status::activity::Activity;
pub use status::condition::{Condition, OutDrive, Repair, Replacing};
pub use status::load::{LATENCY_STEPS_NS, RequestCounts, RequestKind, VolumeLoad};
pub use status::notices::{Notice, SpaceUse, SpareTakeover};
pub use status::rows::{RowColumn, RowRun};
pub use status::{
    ConversionStatus, DriveState, DriveStatus, PoolState, PoolStatus, ReceivingStatus, ShareState,
    SlotStatus, VolumeInfo, VolumeState,
};
pub use stream::error::StreamError;
pub use stream::format::StreamHeader;
pub use stream::incoming::IncomingStream;
pub use stream::receive::{ReceiveSpec, Received};
pub use stream::send::OutgoingStream;
pub use stripewise_array::{ArrayThread, PlaceFault, WrongPlace};
pub use stripewise_log::{LogChange, LogChanges};
pub use superblock::released::{PIECE_BYTES, erase, pieces, sampled_places};
pub use volume::conversion::{ConversionPlan, layout_in_words};
pub use volume::direct::{DirectHold, DirectVolume};
pub use volume::drive::VolumeDrive;
pub use volume::log::status::{LogStatus, OpenLog};
pub use volume::make::VolumeSpec;
pub use volume::snapshots::SnapshotInfo;
pub use volume::{Closing, Volume};

use jobs::Jobs;
use lifecycle::Lifecycle;
use manifest::format::Manifest;
use manifest::ids::IdSource;
use news::News;
use open_drives::OpenDrives;
use open_volumes::OpenVolumes;
use session::Session;
use space::freed::Freed;
use space::slabs::FreeSlabs;
use sparing::planner::SparePlanner;
use status::memo::StatusMemo;
use stripewise_array::tuning::Tuning;
use stripewise_array::{Array, ArrayOptions};
use stripewise_array::{Member, MemberOptions};
use superblock::commit::Change;
use superblock::commits::Commits;
use volume::site::ArraySites;
use volume::thin_growth::ThinGrowth;

/// The unit that checksum pages, superblocks and slabs are counted in.
pub(crate) const MIB: u64 = 1 << 20;
/// The block of checksums, of pages, and of everything that is written to a superblock.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Share of each drive's time that a rebuild gets while there is other load, percent, when nothing
/// else is asked for.
pub const REBUILD_PRIORITY_MEDIUM_PERCENT: u32 = 30;
/// The low setting of it.
pub const REBUILD_PRIORITY_LOW_PERCENT: u32 = 10;
/// The high setting of it.
pub const REBUILD_PRIORITY_HIGH_PERCENT: u32 = 60;

/// Valid limits for the latency that a rebuild adds to clients' requests, ms.
pub const REBUILD_LATENCY_MS: RangeInclusive<u32> = 1..=10_000;
const MS: u64 = 1_000_000;

/// Limits and switches of a pool in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolOptions {
    /// For every volume's array; the pool's own times and sizes are here, too.
    pub array: ArrayOptions,
    /// For every drive.
    pub member: MemberOptions,
    /// 1 to 100. Left out: what the pool has recorded, or [`REBUILD_PRIORITY_MEDIUM_PERCENT`] for a
    /// new one.
    pub rebuild_priority_percent: Option<u32>,
    /// Interval of tiering decisions, and half-life of heat.
    pub tiers: TierOptions,
    /// Draws identities from this seed instead of at random, so that a run can be repeated. Never
    /// for pools that are to be kept: two pools made from one seed are indistinguishable.
    pub id_seed: Option<u64>,
    /// Takes drives for current that were put back from an older copy, where a volume cannot be
    /// read otherwise. What was written since the copy was made is lost then, or disagrees with
    /// what other drives hold.
    pub take_rolled_back: bool,
    /// Clock for event times, milliseconds since 1970. `None`: a fixed moment plus the pool's
    /// clock, so that a run can be repeated.
    pub unix_ms: Option<fn() -> u64>,
    /// Pool to open. Drives that hold another pool, or none, are ignored with a notice. `None`: the
    /// pool that the drives hold; drives of two pools are refused.
    pub pool_id: Option<PoolId>,
    /// The host that this is. A pool that another one has is not opened for writing; one that is
    /// gets this one recorded. Left out: nothing is recorded.
    pub host: Option<Host>,
    /// Treatment of a pool that was destroyed.
    pub destroyed: OfDestroyed,
    /// Take the pool from the host that has it.
    pub take_from_host: bool,
    /// Memory of each log volume, bytes. `None`: 64 MiB.
    pub log_memory_bytes: Option<u64>,
    /// Shards that arrays are spread over in virtual time. `None`: all are on the pool's own.
    pub drawn_shards: Option<DrawnShards>,
    /// A session of this process that has ended: what it left on the drives is no sign that they
    /// are in use.
    pub ended_session: Option<Id>,
}

/// Shards of virtual time: groups of tasks, with messages that take a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnShards {
    /// Number of shards, at least 1: the first one is the pool's own.
    pub shards: usize,
    /// Seed from which the times of messages are drawn.
    pub seed: u64,
}

impl Default for DrawnShards {
    fn default() -> Self {
        Self { shards: 1, seed: 0 }
    }
}

impl PoolOptions {
    /// Limits of a drive's queue, with the pool's sizes.
    pub(crate) fn member(&self) -> MemberOptions {
        MemberOptions { merged_segments: self.array.tuning.merged_segments, ..self.member }
    }

    /// Sets the number of threads that arrays are spread over: those of `context`, if each of them
    /// can open all drives.
    pub(crate) fn for_threads(mut self, context: &Context, drives: &[Rc<dyn Drive>]) -> Self {
        let are_opened_again = drives.iter().all(|drive| drive.for_another_thread().is_some());
        let others = if are_opened_again { context.shards().len() } else { 0 };
        self.member.threads = others as u32 + 1;
        self
    }
}

/// Treatment of a destroyed pool when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OfDestroyed {
    /// Refuse to open it.
    #[default]
    Refuse,
    /// Open it; it remains destroyed.
    Keep,
    /// Open it and, in [`OpenMode::ReadWrite`], record that it is no longer destroyed. Refused
    /// where too many of its drives are missing.
    BringBack,
}

/// Way of ending an open pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Close,
    Destroy,
    Erase,
}

/// Specification of a new pool.
#[derive(Clone, Default)]
pub struct PoolSpec {
    /// Its name.
    pub name: String,
    /// Drives for volumes, 1 to 255.
    pub drives: Vec<Rc<dyn Drive>>,
    /// Drives that wait for one of the others to fail.
    pub spares: Vec<Rc<dyn Drive>>,
    /// Drives for journals only.
    pub journals: Vec<Rc<dyn Drive>>,
    /// Drives for what is often asked for.
    pub fast: Vec<Rc<dyn Drive>>,
    /// The size of its slabs, a power of two from 1 MiB to 128 MiB. Left out: chosen from the
    /// smallest drive.
    pub slab_bytes: Option<u64>,
    /// Take over drives that hold another pool.
    pub force: bool,
    /// Limits and switches.
    pub options: PoolOptions,
}

/// Access mode of an open pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Nothing is written to any drive and no job runs.
    ReadOnly,
    /// Everything is allowed.
    ReadWrite,
}

pub(crate) struct Inner {
    me: Weak<Inner>,
    context: Context,
    buffers: BufferPool,
    options: PoolOptions,
    pool_id: PoolId,
    ids: RefCell<IdSource>,
    /// As last committed; when opened for reading only, as chosen from the drives.
    manifest: RefCell<Manifest>,
    drives: OpenDrives,
    volumes: OpenVolumes,
    sites: Rc<ArraySites>,
    /// Free slabs. A caller that takes some and fails to commit their use gives them back; those
    /// that a commit frees return automatically (`space/freed.rs`).
    space: RefCell<FreeSlabs>,
    freed: Freed,
    commits: Commits,
    growth: ThinGrowth,
    news: News,
    status_memo: StatusMemo,
    jobs: Jobs,
    lifecycle: Lifecycle,
    session: Rc<Session>,
}

/// An open pool. Clones are the same pool. To be ended with [`Pool::close`]; dropped without it, it
/// leaves what a power cut leaves.
#[derive(Clone)]
pub struct Pool(Rc<Inner>);

impl Pool {
    /// The pool's name.
    pub fn name(&self) -> String {
        self.0.manifest.borrow().name.clone()
    }

    /// The pool's identity.
    pub fn id(&self) -> PoolId {
        self.0.pool_id
    }

    /// Access mode of the pool.
    pub fn mode(&self) -> OpenMode {
        self.0.lifecycle.mode()
    }

    /// True if drives restored from an older copy were accepted as current at opening
    /// ([`PoolOptions::take_rolled_back`]).
    pub fn takes_rolled_back(&self) -> bool {
        self.0.drives.takes_rolled_back()
    }

    /// True if another process has opened the pool for writing since; this process then writes
    /// nothing more.
    pub fn is_taken_over(&self) -> bool {
        self.0.session.check().is_err()
    }

    /// Identity of this session on the drives; `None` if the record names no host.
    pub fn session(&self) -> Option<Id> {
        self.0.commits.writer.session()
    }

    /// The count of commits so far.
    pub fn generation(&self) -> u64 {
        self.0.manifest.borrow().generation
    }

    /// The last few hundred events of the pool, oldest first.
    pub fn events(&self) -> Vec<Event> {
        let manifest = self.0.manifest.borrow();
        manifest.events.iter().cloned().chain(self.0.news.unrecorded()).collect()
    }

    /// Bytes of a slab.
    pub fn slab_bytes(&self) -> u64 {
        self.0.manifest.borrow().slab_bytes
    }

    /// The drive under which the file system was found full, so that something is not written any
    /// more until the pool is opened again.
    pub fn full_drive(&self) -> Option<String> {
        self.0.news.full_drive()
    }

    /// Notices for the administrator: drives that differ in size, are out of date or cannot be
    /// read.
    pub fn notices(&self) -> Vec<String> {
        self.0.news.notices()
    }

    /// Buffer pool for requests.
    pub fn buffers(&self) -> &BufferPool {
        &self.0.buffers
    }

    /// The clock and tasks that the pool runs on.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The queue in front of a drive, with its counters; `None` for a drive that is not at hand.
    pub fn member(&self, id: DriveId) -> Option<Rc<Member>> {
        let number = self.0.manifest.borrow().drive_by_id(id)?.number;
        self.0.drives.get(number).map(|drive| drive.member)
    }

    /// Ends the pool: stops jobs (the next process to open it goes on with them), makes everything
    /// durable and releases the drives. To be called when no request to a volume is in flight.
    /// The first error is reported; the pool is closed in any case.
    pub async fn close(&self) -> Result<(), PoolError> {
        self.0.close(Ending::Close).await
    }

    /// Ends the pool and records on its drives that it is destroyed. Nothing else on them changes,
    /// so that it can be brought back ([`OfDestroyed::BringBack`]) until they are used again.
    pub async fn destroy(&self) -> Result<(), PoolError> {
        self.end_for_good(Ending::Destroy).await
    }

    /// Ends the pool for good: afterwards its drives hold nothing of it.
    pub async fn erase(&self) -> Result<(), PoolError> {
        self.end_for_good(Ending::Erase).await
    }

    async fn end_for_good(&self, ending: Ending) -> Result<(), PoolError> {
        self.0.check_changeable()?;
        self.0.session.check()?;
        self.0.close(ending).await
    }
}

impl Inner {
    fn rc(&self) -> Rc<Inner> {
        self.me.upgrade().expect("the caller holds the pool")
    }

    /// Times and sizes.
    fn tuning(&self) -> &Tuning {
        &self.options.array.tuning
    }

    fn name(&self) -> String {
        self.manifest.borrow().name.clone()
    }

    fn check_open(&self) -> Result<(), PoolError> {
        self.lifecycle.check_open(&self.manifest.borrow().name)
    }

    fn check_changeable(&self) -> Result<(), PoolError> {
        self.lifecycle.check_changeable(&self.manifest.borrow().name)
    }

    /// The turn to change drives or volumes: one at a time. The pool may be closed while
    /// the caller waits for it.
    async fn administer(&self) -> Result<SemaphorePermit, PoolError> {
        self.check_changeable()?;
        let turn = self.lifecycle.turn().await;
        self.check_changeable()?;
        Ok(turn)
    }

    /// The member of a drive that takes part and works.
    fn working_member(&self, number: u32) -> Option<Rc<Member>> {
        self.drives.working(&self.manifest.borrow(), number)
    }

    /// Parts whose rows can be rebuilt; of a pool that is only read, those that could be if it were
    /// not.
    fn rebuildable(&self) -> BTreeSet<Id> {
        self.volumes.rebuildable(self.lifecycle.is_read_only())
    }

    /// Those of them whose rows can also be moved.
    fn movable(&self) -> BTreeSet<Id> {
        self.volumes.movable(self.lifecycle.is_read_only())
    }

    /// Planner for spare allocation on the current drives and record.
    fn spare_planner(&self) -> SparePlanner {
        let working = self.drives.all_working(&self.manifest.borrow());
        SparePlanner { working, rebuildable: self.rebuildable() }
    }

    fn set_background_share(&self) {
        let percent = self.manifest.borrow().rebuild_priority_percent;
        let limit = if self.jobs.only_scrubs() { REBUILD_PRIORITY_LOW_PERCENT } else { percent };
        self.set_share(limit.min(percent));
    }

    /// Sets the background share of each drive's time under client load, percent.
    fn set_share(&self, percent: u32) {
        let slice_ns = self.manifest.borrow().settings.rebuild_latency_ms.map(|ms| u64::from(ms) * MS);
        self.drives.set_share(percent, slice_ns);
    }

    async fn close(&self, ending: Ending) -> Result<(), PoolError> {
        {
            // Running changes end first; none begins after. Jobs may be waiting for their turn,
            // so it is given back.
            let _alone = self.lifecycle.turn().await;
            if !self.lifecycle.close() {
                return Ok(());
            }
        }
        let arrays = self.volumes.arrays();
        let mut result = Ok(());
        if ending == Ending::Erase {
            // Nothing that it holds matters any more.
            arrays.iter().for_each(|array| array.visit(Array::protect));
        }
        self.jobs.until_conversions_rest().await;
        for array in &arrays {
            let closed = array.call(async |array| array.close().await).await;
            result = result.and(closed.map_err(PoolError::from));
        }
        for log in self.volumes.logs() {
            // The last commit of the log records the progress of its rebuild.
            self.jobs.until_off(log.part()).await;
            match ending {
                Ending::Erase => log.end().await,
                Ending::Close | Ending::Destroy => {
                    result = result.and(log.close().await.map_err(PoolError::from))
                }
            }
        }
        self.jobs.until_idle().await;
        self.freed.until_reclaimed().await;
        if !self.lifecycle.is_read_only() {
            result = match ending {
                Ending::Close => result.and(self.record_end().await),
                // A volume that could not be closed is destroyed all the same.
                Ending::Destroy => self.record_destruction().await,
                Ending::Erase => self.drives.give_up_all().await,
            };
        }
        self.drives.release_all();
        result
    }

    /// The last commits: how far jobs have come, error counts, lost blocks, that no session has the
    /// pool. Left out where nothing changed.
    async fn record_end(&self) -> Result<(), PoolError> {
        if self.drives.check_readable(&self.manifest.borrow()).is_err() {
            return Ok(());
        }
        let last = u64::from(self.session.has_identity() || !self.is_up_to_date());
        self.commit_last(self.session.marks_due().max(last), None).await
    }

    /// The last commits of a pool that is destroyed: no host and no session has it. Made also if no
    /// volume can be read: drives that are missing count as excluded, and return as they were.
    async fn record_destruction(&self) -> Result<(), PoolError> {
        self.lifecycle.set_released(true);
        self.news.event(EventKind::Pool, "the pool was destroyed");
        let unix_s = self.news.unix_ms() / 1000;
        self.commit_last(self.session.marks_due().max(1), Some(unix_s)).await
    }

    /// Makes this number of commits; the last one ends the session.
    async fn commit_last(&self, commits: u64, destroyed_unix_s: Option<u64>) -> Result<(), PoolError> {
        for left in (0..commits).rev() {
            if left == 0 && self.session.has_identity() {
                self.session.before_commit().await?;
                self.commits.writer.end_session();
            }
            let record = move |manifest: &mut Manifest| {
                manifest.destroyed_unix_s = manifest.destroyed_unix_s.or(destroyed_unix_s);
                Ok(Change::Commit(()))
            };
            self.commit_regardless(None, record).await?;
        }
        Ok(())
    }
}
