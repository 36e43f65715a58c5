//! A pool: drives, the volumes on them, and the record of both that every drive carries.
//!
//! | folder | what is there |
//! |---|---|
//! | `manifest/` | the record, its bytes (`docs/internals/format.md`), and its changes by commits |
//! | `space/` | slabs: what lies where, what is free, where new rows go |
//! | `membership/` | drives that join, leave, fail, come back or are replaced |
//! | `volume/` | volumes: creation, opening, I/O, resizing, thin allocation, conversion |
//! | `jobs/` | background work: rebuild, scrub, evacuation, rebalancing, conversion, tiering |
//! | `status/` | what a pool says of itself |
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

mod create;
mod error;
pub(crate) mod jobs;
pub(crate) mod manifest;
pub(crate) mod membership;
mod open;
mod rolled_back;
mod settings;
pub(crate) mod space;
pub(crate) mod status;
#[cfg(test)]
mod testing;
pub(crate) mod volume;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::{Rc, Weak};

use stripewise_drive::{BufferPool, Context, Drive, Semaphore, SemaphorePermit};

pub use error::{NeedsDrives, PoolError};
pub use jobs::ScrubSummary;
pub use jobs::kind::JobKind;
pub use jobs::tier::{TIER_BYTES_PER_S, TierOptions};
pub use jobs::tier_plan::TierInfo;
pub use manifest::care::LastScrub;
pub use manifest::drive_record::{ExclusionKind, Role};
pub use manifest::events::{Event, EventKind};
pub use manifest::host_use::{Host, HostUse};
pub use manifest::ids::{DriveId, Id, PoolId, VolumeId};
pub use manifest::volume_record::Pin;
pub use membership::inspect::{DriveLabel, LabelDrive, LabelVolume, identify, inspect};
pub use status::activity::Activity;
pub use status::load::{LATENCY_STEPS_NS, RequestCounts, RequestKind, VolumeLoad};
pub use status::{
    ConversionStatus, DriveState, DriveStatus, PoolState, PoolStatus, ShareState, SlotStatus, VolumeInfo,
    VolumeState,
};
pub use volume::Volume;
pub use volume::conversion::ConversionPlan;
pub use volume::drive::VolumeDrive;
pub use volume::make::VolumeSpec;

use crate::array::{Array, ArrayMember, ArrayOptions};
use crate::member::{Member, MemberOptions};
use crate::tuning::Tuning;
use jobs::Jobs;
use manifest::drive_record::Errors;
use manifest::format::Manifest;
use manifest::ids::IdSource;
use manifest::writer::Writer;
use space::freed::Freed;
use space::slabs::FreeSlabs;
use volume::io::VolumeIo;

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

/// What a rebuild may be told to add at most to the clients' latency, ms.
pub const REBUILD_LATENCY_MS: RangeInclusive<u32> = 1..=10_000;
const MS: u64 = 1_000_000;

/// Where the time of events begins in runs that are to be repeated.
const REPEATABLE_START_UNIX_MS: u64 = 1_700_000_000_000;

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
    /// How often rows' tiers are decided, and how long heat lasts.
    pub tiers: TierOptions,
    /// Draws identities from this seed instead of at random, so that a run can be repeated. Never
    /// for pools that are to be kept: two pools made from one seed are told apart by nothing.
    pub id_seed: Option<u64>,
    /// Takes drives for current that were put back from an older copy, where a volume cannot be
    /// read otherwise. What was written since the copy was made is lost then, or disagrees with
    /// what other drives hold.
    pub take_rolled_back: bool,
    /// Tells the time of events, milliseconds since 1970. Left out: a fixed moment plus the pool's
    /// clock, so that a run can be repeated.
    pub unix_ms: Option<fn() -> u64>,
    /// Which pool is to be opened. Drives that hold another one, or none, are left out with a
    /// notice. Left out: the pool that the drives hold, and drives of two pools are refused.
    pub pool_id: Option<PoolId>,
    /// The host that this is. A pool that another one has is not opened for writing; one that is
    /// gets this one recorded. Left out: nothing is recorded.
    pub host: Option<Host>,
    /// Take the pool from the host that has it.
    pub take_from_host: bool,
}

impl PoolOptions {
    /// Limits of a drive's queue, with the pool's sizes.
    pub(crate) fn member(&self) -> MemberOptions {
        MemberOptions { merged_segments: self.array.tuning.merged_segments, ..self.member }
    }
}

/// What a new pool is made of.
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

/// Whether a pool may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Nothing is written to any drive and no job runs.
    ReadOnly,
    /// Everything is allowed.
    ReadWrite,
}

/// A drive that is at hand and takes part.
#[derive(Clone)]
pub(crate) struct OpenDrive {
    member: Rc<Member>,
    /// What was counted before the pool was opened.
    errors_before: Errors,
    /// What the drive itself recorded last, where it was away while the pool was used: it takes no
    /// part before its standing is online again, and then what it says was current on it may be
    /// brought up to date instead of being rebuilt.
    behind: Option<Rc<Manifest>>,
}

impl OpenDrive {
    fn errors(&self) -> Errors {
        let now = self.member.counters();
        Errors {
            read: self.errors_before.read.saturating_add(now.read_errors),
            write: self.errors_before.write.saturating_add(now.write_errors),
            checksum: self.errors_before.checksum.saturating_add(now.checksum_errors),
        }
    }
}

impl Drop for Inner {
    /// A pool that was not closed lets go of its drives as if they had gone.
    fn drop(&mut self) {
        let members = self.drives.get_mut().values().map(|drive| &drive.member);
        for member in members.chain(self.shadows.get_mut().iter()) {
            member.fail("the pool was dropped");
            member.stop();
            member.release();
        }
    }
}

pub(crate) struct Inner {
    me: Weak<Inner>,
    context: Context,
    buffers: BufferPool,
    options: PoolOptions,
    mode: OpenMode,
    pool_id: PoolId,
    ids: RefCell<IdSource>,
    /// As last committed; when opened for reading only, as chosen from the drives.
    manifest: RefCell<Manifest>,
    /// Which slabs are free. A caller that takes some and fails to commit what they are for gives
    /// them back; those that a commit frees come back by themselves (`space/freed.rs`).
    space: RefCell<FreeSlabs>,
    freed: Freed,
    writer: Writer,
    /// The highest number that a commit was begun with: none is used for two different ones.
    attempted: Cell<u64>,
    /// The last commit that every drive which takes part is known to have, as a generation; 0 where
    /// that is not known.
    proven: Cell<u64>,
    takes_rolled_back: Cell<bool>,
    /// By number: drives at hand, also those excluded since opening (their members are failed) and
    /// those that were away.
    drives: RefCell<BTreeMap<u32, OpenDrive>>,
    /// Queues before drives whose changes stay in memory, of volumes that can be read only as their
    /// file system is full.
    shadows: RefCell<Vec<Rc<Member>>>,
    /// Parts of volumes that could be opened, by the array's identity.
    arrays: RefCell<BTreeMap<Id, Array>>,
    /// The way to these for requests, by the volume's identity.
    ios: RefCell<BTreeMap<VolumeId, Rc<VolumeIo>>>,
    /// Why the others could not, by the volume's identity.
    failures: RefCell<BTreeMap<VolumeId, String>>,
    notices: RefCell<Vec<String>>,
    /// What happened since the last commit.
    happened: RefCell<Vec<Event>>,
    /// Drives that were at hand but are of no use: numbers.
    stale: RefCell<Vec<u32>>,
    /// How many rows a thin volume was given at once the last time, by the array's identity.
    thin_steps: RefCell<BTreeMap<Id, u64>>,
    /// The generation when arrays with checksums were opened last, or, before that, when the pool
    /// was: their pages carry it, so no two openings of an array share one.
    stamped: Cell<u64>,
    /// Whether it was said that space is short.
    is_short: Cell<bool>,
    /// The drive under which the file system was found full.
    full: RefCell<Option<String>>,
    /// Commits go one at a time.
    committing: Semaphore,
    /// So do changes of drives and volumes, each of several commits and I/O.
    administering: Semaphore,
    /// And allocations of rows of thin volumes.
    allocating: Semaphore,
    jobs: Jobs,
    /// Exported: what is written from now on says that no host has it.
    released: Cell<bool>,
    closed: Cell<bool>,
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

    /// Whether the pool may be changed.
    pub fn mode(&self) -> OpenMode {
        self.0.mode
    }

    /// Whether it was opened with drives that were put back from an older copy and taken as they
    /// are ([`PoolOptions::take_rolled_back`]).
    pub fn takes_rolled_back(&self) -> bool {
        self.0.takes_rolled_back.get()
    }

    /// The count of commits so far.
    pub fn generation(&self) -> u64 {
        self.0.manifest.borrow().generation
    }

    /// What happened to the pool, oldest first: the last few hundred events.
    pub fn events(&self) -> Vec<Event> {
        let manifest = self.0.manifest.borrow();
        manifest.events.iter().cloned().chain(self.0.happened.borrow().iter().cloned()).collect()
    }

    /// Bytes of a slab.
    pub fn slab_bytes(&self) -> u64 {
        self.0.manifest.borrow().slab_bytes
    }

    /// The drive under which the file system was found full, so that something is not written any
    /// more until the pool is opened again.
    pub fn full_drive(&self) -> Option<String> {
        self.0.full.borrow().clone()
    }

    /// What a person should know of: drives that differ in size, are out of date, could not be
    /// read.
    pub fn notices(&self) -> Vec<String> {
        self.0.notices.borrow().clone()
    }

    /// Where requests' buffers come from.
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
        self.0.drives.borrow().get(&number).map(|drive| drive.member.clone())
    }

    /// Sets the share of each drive's time that rebuild and scrub get while there is other load, 1
    /// to 100 percent, and records it.
    pub async fn set_rebuild_priority(&self, percent: u32) -> Result<(), PoolError> {
        check_priority(percent)?;
        self.0.commit(None, move |manifest| manifest.rebuild_priority_percent = percent).await?;
        self.0.set_background_share();
        Ok(())
    }

    /// Sets how much rebuild and scrub add at most to what a client's request waits for a drive, 1
    /// to 10,000 ms, and records it; `None`: no bound. They go in slices of that length then.
    pub async fn set_rebuild_latency(&self, bound_ms: Option<u32>) -> Result<(), PoolError> {
        if let Some(ms) = bound_ms.filter(|ms| !REBUILD_LATENCY_MS.contains(ms)) {
            return Err(PoolError::BadSetting(format!(
                "a rebuild latency is {} to {} ms, not {ms}",
                REBUILD_LATENCY_MS.start(),
                REBUILD_LATENCY_MS.end()
            )));
        }
        self.0.check_changeable()?;
        self.0.commit(None, move |manifest| manifest.settings.rebuild_latency_ms = bound_ms).await?;
        self.0.set_background_share();
        Ok(())
    }

    /// What rebuild and scrub add at most to what a client's request waits for a drive, ms; `None`:
    /// no bound.
    pub fn rebuild_latency(&self) -> Option<u32> {
        self.0.manifest.borrow().settings.rebuild_latency_ms
    }

    /// Share of each drive's time that rebuild and scrub get while there is other load, percent.
    pub fn rebuild_priority(&self) -> u32 {
        self.0.manifest.borrow().rebuild_priority_percent
    }

    /// Ends the pool: stops jobs (the next process to open it goes on with them), makes everything
    /// durable and lets go of the drives. To be called when no request to a volume is under way.
    /// The first error is reported; the pool is closed in any case.
    pub async fn close(&self) -> Result<(), PoolError> {
        self.0.close(false).await
    }

    /// Ends the pool for good: afterwards its drives hold nothing of it.
    pub async fn destroy(&self) -> Result<(), PoolError> {
        self.0.check_changeable()?;
        self.0.close(true).await
    }
}

pub(crate) fn check_priority(percent: u32) -> Result<(), PoolError> {
    if (1..=100).contains(&percent) {
        return Ok(());
    }
    Err(PoolError::BadSetting(format!("a rebuild priority is a percentage from 1 to 100, not {percent}")))
}

impl Inner {
    fn rc(&self) -> Rc<Inner> {
        self.me.upgrade().expect("whoever calls holds the pool")
    }

    /// Times and sizes.
    fn tuning(&self) -> &Tuning {
        &self.options.array.tuning
    }

    fn name(&self) -> String {
        self.manifest.borrow().name.clone()
    }

    fn notice(&self, text: String) {
        let mut notices = self.notices.borrow_mut();
        if !notices.contains(&text) {
            notices.push(text);
        }
    }

    /// The file system under a drive is full, and something stopped being written.
    fn note_full(&self, drive: &str) {
        if self.full.borrow_mut().replace(drive.to_owned()).is_none() {
            self.event(
                EventKind::Space,
                &format!("writing stopped: the file system under {drive} is full (ENOSPC)"),
            );
        }
    }

    /// Notes that something happened; recorded with the next commit.
    fn event(&self, kind: EventKind, text: &str) {
        let mut happened = self.happened.borrow_mut();
        if happened.len() >= manifest::events::MAX_EVENTS {
            happened.remove(0);
        }
        let text = manifest::drive_record::shortened(text);
        happened.push(Event { time_unix_ms: self.unix_ms(), kind, text });
    }

    /// The time of events.
    fn unix_ms(&self) -> u64 {
        match self.options.unix_ms {
            Some(unix_ms) => unix_ms(),
            None => REPEATABLE_START_UNIX_MS + self.context.now_ns() / 1_000_000,
        }
    }

    fn check_open(&self) -> Result<(), PoolError> {
        if self.closed.get() { Err(PoolError::Closed { pool: self.name() }) } else { Ok(()) }
    }

    fn check_changeable(&self) -> Result<(), PoolError> {
        self.check_open()?;
        match self.mode {
            OpenMode::ReadOnly => Err(PoolError::ReadOnly { pool: self.name() }),
            OpenMode::ReadWrite => Ok(()),
        }
    }

    /// The turn to change drives or volumes: one at a time. The pool may be closed while
    /// the caller waits for it.
    async fn administer(&self) -> Result<SemaphorePermit, PoolError> {
        self.check_changeable()?;
        let turn = self.administering.acquire(1).await;
        self.check_changeable()?;
        Ok(turn)
    }

    fn open_drive(&self, number: u32) -> Option<OpenDrive> {
        self.drives.borrow().get(&number).cloned()
    }

    /// The member of a drive that takes part and works.
    fn working_member(&self, number: u32) -> Option<Rc<Member>> {
        if !self.manifest.borrow().is_online(number) {
            return None;
        }
        let drives = self.drives.borrow();
        drives.get(&number).map(|drive| drive.member.clone()).filter(|member| !member.is_failed())
    }

    /// Whether a drive is at hand and what it holds counts, as far as a map says so.
    fn is_at_hand(&self, number: u32) -> bool {
        let manifest = self.manifest.borrow();
        // One that was away counts for volumes that were not written without it.
        let counts = || manifest.is_online(number) || manifest.is_needed(number);
        self.drives.borrow().get(&number).is_some_and(|drive| drive.behind.is_none() || counts())
    }

    /// The array of a part.
    fn array(&self, part: Id) -> Option<Array> {
        self.arrays.borrow().get(&part).cloned()
    }

    /// A drive as arrays know it.
    fn array_member(&self, number: u32) -> Option<ArrayMember> {
        let member = self.working_member(number)?;
        let manifest = self.manifest.borrow();
        let capacity_bytes = manifest.drive(number)?.capacity_bytes;
        let slabs_base_bytes = space::addresses::slabs_base_bytes(capacity_bytes, manifest.slab_bytes);
        let sums_base_bytes = space::addresses::checksums_base_bytes(capacity_bytes);
        Some(ArrayMember { number, member, slabs_base_bytes, sums_base_bytes })
    }

    /// All drives that rows may lie on and that work, as arrays know them.
    fn array_members(&self) -> Vec<ArrayMember> {
        let manifest = self.manifest.borrow();
        let drives = manifest.drives.iter().filter(|drive| drive.is_online() && drive.role != Role::Spare);
        let numbers: Vec<u32> = drives.map(|drive| drive.number).collect();
        drop(manifest);
        numbers.into_iter().filter_map(|number| self.array_member(number)).collect()
    }

    fn set_background_share(&self) {
        self.set_share(self.manifest.borrow().rebuild_priority_percent);
    }

    /// Background work gets so much of each drive's time while there is other load.
    fn set_share(&self, percent: u32) {
        let share = f64::from(percent) / 100.0;
        let slice_ns = self.manifest.borrow().settings.rebuild_latency_ms.map(|ms| u64::from(ms) * MS);
        for drive in self.drives.borrow().values() {
            drive.member.set_background_share(share);
            drive.member.set_background_slice(slice_ns);
        }
    }

    async fn close(&self, destroy: bool) -> Result<(), PoolError> {
        {
            // Changes under way end first; none begins after. Jobs may be waiting for their turn,
            // so it is given back.
            let _alone = self.administering.acquire(1).await;
            if self.closed.replace(true) {
                return Ok(());
            }
        }
        let arrays: Vec<Array> = self.arrays.borrow().values().cloned().collect();
        let mut result = Ok(());
        if destroy {
            // Nothing that it holds matters any more.
            arrays.iter().for_each(Array::protect);
        }
        self.jobs.until_conversions_rest().await;
        for array in &arrays {
            result = result.and(array.close().await.map_err(PoolError::from));
        }
        self.jobs.until_idle().await;
        self.until_reclaimed().await;
        if self.mode == OpenMode::ReadWrite {
            let ended = if destroy { self.wipe_all().await } else { self.record_end().await };
            result = if destroy { ended } else { result.and(ended) };
        }
        let drives = self.drives.borrow();
        for member in drives.values().map(|drive| &drive.member).chain(self.shadows.borrow().iter()) {
            member.stop();
            member.release();
        }
        result
    }

    /// The last commit: how far jobs have come, error counts, lost blocks. Left out where nothing
    /// changed.
    async fn record_end(&self) -> Result<(), PoolError> {
        if self.is_up_to_date() || self.check_readable().is_err() {
            return Ok(());
        }
        self.commit(None, |_| ()).await
    }

    async fn wipe_all(&self) -> Result<(), PoolError> {
        let members: Vec<Rc<Member>> =
            self.drives.borrow().values().map(|drive| drive.member.clone()).collect();
        let mut result = Ok(());
        for member in members.iter().filter(|member| !member.is_failed()) {
            result = result.and(manifest::writer::wipe(member).await.map_err(PoolError::from));
        }
        result
    }
}
