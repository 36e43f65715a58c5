//! A pool: drives, the volumes on them, and the record of both that every drive carries.
//!
//! The rooms: `open.rs` (making and opening a pool), `assemble.rs` (which of the drives say what counts), `format.rs` and
//! `superblock.rs` (the record and its bytes), `commit.rs` (changing it so that a cut at any instant leaves the state
//! before or after), `space.rs` and `volume.rs`, `drives.rs` (failing, replacing, spares), `jobs.rs` (rebuild, resync,
//! scrub), `status.rs`. Faults expected: drives that fail, come back, are someone else's or old; power cuts anywhere.
//!
//! The rule that keeps data right: a drive is left out of a volume only after every other drive of the pool has recorded
//! it, and no write that it lacks is acknowledged before. A volume that has lost more drives than it can spare takes no
//! more writes, so what those drives hold stays current for it and they can come back.
//!
//! Memory: a pool keeps one manifest (at most 512 KiB in its written form) and a member per drive; the volumes' own bounds
//! are stated in `array.rs`.

mod assemble;
mod commit;
mod drives;
mod error;
mod format;
mod ids;
mod jobs;
mod open;
mod read_only;
mod space;
mod status;
mod superblock;
mod volume;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use stripewise_drive::{BufferPool, Context, Drive, Semaphore};

pub use error::PoolError;
pub use format::Role;
pub use ids::{DriveId, Id, PoolId, VolumeId};
pub use jobs::{JobKind, ScrubSummary};
pub use open::{DriveLabel, LabelDrive, LabelVolume, inspect};
pub use status::{Activity, DriveStatus, PoolState, PoolStatus, SlotStatus, VolumeInfo, VolumeState};
pub use volume::{Volume, VolumeSpec};

use crate::array::{Array, ArrayOptions, LocalFuture, Membership};
use crate::member::{Member, MemberOptions};
use format::{Errors, Manifest};
use ids::IdSource;
use jobs::Jobs;

/// Share of each drive's time that a rebuild gets while there is other load, percent, when nothing else is asked for.
pub const REBUILD_PRIORITY_MEDIUM_PERCENT: u32 = 30;
/// The low setting of it.
pub const REBUILD_PRIORITY_LOW_PERCENT: u32 = 10;
/// The high setting of it.
pub const REBUILD_PRIORITY_HIGH_PERCENT: u32 = 60;

/// Limits and switches of a pool in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolOptions {
    /// For every volume's array.
    pub array: ArrayOptions,
    /// For every drive.
    pub member: MemberOptions,
    /// 1 to 100. Left out: what the pool has recorded, or [`REBUILD_PRIORITY_MEDIUM_PERCENT`] for a new one.
    pub rebuild_priority_percent: Option<u32>,
    /// Draws identities from this seed instead of at random, so that a run can be repeated. Never for pools that are to
    /// be kept: two pools made from one seed are told apart by nothing.
    pub id_seed: Option<u64>,
}

/// What a new pool is made of.
#[derive(Clone)]
pub struct PoolSpec {
    /// Its name.
    pub name: String,
    /// Drives for volumes, 1 to 255.
    pub drives: Vec<Rc<dyn Drive>>,
    /// Drives that wait for one of the others to fail.
    pub spares: Vec<Rc<dyn Drive>>,
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
        for drive in self.drives.get_mut().values() {
            drive.member.fail("the pool was dropped");
            drive.member.stop();
            drive.member.release();
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
    /// By number: drives at hand, also those excluded since opening (their members are failed).
    drives: RefCell<BTreeMap<u32, OpenDrive>>,
    /// Volumes that could be opened.
    arrays: RefCell<BTreeMap<VolumeId, Array>>,
    /// Why the other volumes could not.
    failures: RefCell<BTreeMap<VolumeId, String>>,
    notices: RefCell<Vec<String>>,
    /// Drives that were at hand but are out of date: numbers.
    stale: RefCell<Vec<u32>>,
    /// Commits go one at a time.
    committing: Semaphore,
    /// So do changes of drives and volumes, each of several commits and I/O.
    administering: Semaphore,
    jobs: Jobs,
    closed: Cell<bool>,
}

/// An open pool. Clones are the same pool. To be ended with [`Pool::close`]; dropped without it, it leaves what a power
/// cut leaves.
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

    /// The count of commits so far.
    pub fn generation(&self) -> u64 {
        self.0.manifest.borrow().generation
    }

    /// What a person should know of: drives that differ in size, are out of date, could not be read.
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

    /// Sets the share of each drive's time that rebuild and scrub get while there is other load, 1 to 100 percent, and
    /// records it.
    pub async fn set_rebuild_priority(&self, percent: u32) -> Result<(), PoolError> {
        check_priority(percent)?;
        self.0.commit(None, move |manifest| manifest.rebuild_priority_percent = percent).await?;
        self.0.set_background_share();
        Ok(())
    }

    /// Share of each drive's time that rebuild and scrub get while there is other load, percent.
    pub fn rebuild_priority(&self) -> u32 {
        self.0.manifest.borrow().rebuild_priority_percent
    }

    /// Ends the pool: stops jobs (whoever opens it next goes on with them), makes everything durable and lets go of the
    /// drives. To be called when no request to a volume is under way. The first error is reported; the pool is closed in
    /// any case.
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

    fn name(&self) -> String {
        self.manifest.borrow().name.clone()
    }

    fn notice(&self, text: String) {
        let mut notices = self.notices.borrow_mut();
        if !notices.contains(&text) {
            notices.push(text);
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

    fn array(&self, volume: VolumeId) -> Option<Array> {
        self.arrays.borrow().get(&volume).cloned()
    }

    fn set_background_share(&self) {
        let share = f64::from(self.manifest.borrow().rebuild_priority_percent) / 100.0;
        for drive in self.drives.borrow().values() {
            drive.member.set_background_share(share);
        }
    }

    async fn close(&self, destroy: bool) -> Result<(), PoolError> {
        {
            // Changes under way end first; none begins after. Jobs may be waiting for their turn, so it is given back.
            let _alone = self.administering.acquire(1).await;
            if self.closed.replace(true) {
                return Ok(());
            }
        }
        let arrays: Vec<Array> = self.arrays.borrow().values().cloned().collect();
        let mut result = Ok(());
        for array in &arrays {
            result = result.and(array.close().await.map_err(PoolError::from));
        }
        self.jobs.until_idle().await;
        if self.mode == OpenMode::ReadWrite {
            let ended = if destroy { self.wipe_all().await } else { self.record_end().await };
            result = if destroy { ended } else { result.and(ended) };
        }
        for drive in self.drives.borrow().values() {
            drive.member.stop();
            drive.member.release();
        }
        result
    }

    /// The last commit: how far jobs have come, error counts, lost blocks. Left out where nothing changed.
    async fn record_end(&self) -> Result<(), PoolError> {
        self.checkpoint_rebuilds().await?;
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
            result = result.and(superblock::wipe(member).await.map_err(PoolError::from));
        }
        result
    }
}

/// What an array knows of its pool: how to have a drive excluded.
pub(crate) struct PoolMembership(pub Weak<Inner>);

impl Membership for PoolMembership {
    fn exclude<'a>(&'a self, member: &'a Rc<Member>, reason: &'a str) -> LocalFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let Some(pool) = self.0.upgrade() else { return Err("the pool is closed".to_owned()) };
            pool.exclude_member(member, reason).await.map_err(|error| error.to_string())
        })
    }

    fn record_lost(&self, _: u128) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let Some(pool) = self.0.upgrade() else { return Err("the pool is closed".to_owned()) };
            // Every commit records what the arrays know.
            if pool.mode == OpenMode::ReadOnly || pool.is_up_to_date() {
                return Ok(());
            }
            pool.commit(None, |_| ()).await.map_err(|error| error.to_string())
        })
    }
}
