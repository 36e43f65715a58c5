//! An array: one layout over rows of slabs, and everything that must agree about them.
//!
//! Requests come in through [`Array::read`], [`Array::write`] and their siblings, in any number at
//! a time. Where they go next: `read.rs` (healthy and degraded reads), `write.rs` and `write/`
//! (gathering, planning, parity), `recover.rs` (what to do when a drive says no), `rebuild.rs`,
//! `moves.rs` and `scrub.rs` (background work), `discard.rs`. Which columns of which rows are
//! missing is settled in `columns.rs`, what the region map on the drives says in `map.rs`.
//!
//! Each column of the layout is one linear space of `rows` slabs; the slab map (`rows.rs`) says on
//! which drive each slab of it lies. The layout's addresses are made for an unbounded length, so a
//! volume grows by rows and nothing moves.
//!
//! Memory: requests in flight are admitted up to [`ArrayOptions::in_flight_bytes`]; parity,
//! pre-reads and padding add at most `(units + parity) / data` times that for small writes and are
//! bounded with it.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use rustc_hash::FxHashMap;
use stripewise_drive::{Buffer, BufferPool, Context, Semaphore};
use stripewise_layout::{Geometry, LayoutError, Shape};

use crate::columns::Members;
use crate::defer_pace::DeferPace;
use crate::destage::LARGEST_DEFERRED_BYTES;
use crate::error::ArrayError;
use crate::flush_losses::FlushLosses;
use crate::heat::Heat;
use crate::member::Member;
use crate::moves::Move;
use crate::pending::Pending;
use crate::rebuild::Fill;
use crate::regions::{RegionShape, Regions};
use crate::rows::RowTable;
use crate::stripe_table::StripeTable;
use crate::sums::{BlockSums, SumsInit};
use crate::tuning::{MapGrain, Tuning};
use crate::write_log::WriteLog;

mod bad_blocks;
mod lifecycle;
mod one_at_a_time;
mod read_epochs;
mod sequential_detector;
mod write_activity;

use bad_blocks::BadBlocks;
use lifecycle::Lifecycle;
use one_at_a_time::OneAtATime;
use read_epochs::ReadEpochs;
use sequential_detector::SequentialDetector;
use write_activity::WriteActivity;

/// The engine's own block: writes that do not fill blocks of this size are completed from what is
/// there.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// A boxed future of this thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What an array asks of whoever keeps the record of drives and slabs: the pool.
pub trait ArrayHost {
    /// Records durably on every other drive that `member` is out, then tells every array with
    /// [`Array::drive_gone`]. Until this is done no write that `member` lacks is acknowledged. Told
    /// more than once of the same member, it answers as the first time.
    fn exclude<'a>(&'a self, member: &'a Rc<Member>, reason: &'a str) -> LocalFuture<'a, Result<(), String>>;

    /// Records durably which blocks of array `id` are lost, as [`Array::lost_blocks`] has them.
    /// Asked before a flush is acknowledged, when they changed: a block that was lost and is
    /// written again must not be lost after a restart.
    fn record_lost(&self, id: u128) -> LocalFuture<'_, Result<(), String>> {
        let _ = id;
        Box::pin(std::future::ready(Ok(())))
    }

    /// The file system under a drive is full: the array writes nothing more. Told once.
    fn file_system_full(&self, drive: &str) {
        let _ = drive;
    }

    /// Gives slabs to rows that have none, records it durably and calls [`Array::set_rows`]. For
    /// thin volumes; an error says why there is no space.
    fn allocate_rows(&self, id: u128, first_row: u64, rows: u64) -> LocalFuture<'_, Result<(), String>> {
        let _ = (id, first_row, rows);
        Box::pin(std::future::ready(Err("this volume has all the rows it can have".to_owned())))
    }
}

/// Records nothing: for tests and benchmarks of an array without a pool.
pub struct NoHost;

impl ArrayHost for NoHost {
    fn exclude<'a>(&'a self, _: &'a Rc<Member>, _: &'a str) -> LocalFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Limits and switches of one array.
#[derive(Clone, Copy, Debug)]
pub struct ArrayOptions {
    /// Bytes of client requests admitted at a time; more wait in order of arrival.
    pub in_flight_bytes: u64,
    /// Bytes of rebuild and scrub I/O in memory at a time.
    pub background_bytes: u64,
    /// Times and sizes; those of the pool that the array belongs to are its own as well.
    pub tuning: Tuning,
}

impl Default for ArrayOptions {
    fn default() -> Self {
        Self { in_flight_bytes: 128 << 20, background_bytes: 32 << 20, tuning: Tuning::default() }
    }
}

/// What an array is: recorded in the pool's metadata, the same for its whole life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// The array's identity; marks its region map.
    pub id: u128,
    /// Level, width, groups, interleave.
    pub shape: Shape,
    /// Bytes of a slab, a power of two from 1 MiB on.
    pub slab_bytes: u64,
}

impl ArraySpec {
    /// The addresses of the array's data, for a length that no drive reaches. Fails where the shape
    /// is impossible, or needs more than one slab for its stripes to come out even.
    pub fn geometry(&self) -> Result<Geometry, ArrayError> {
        let width = (self.shape.width as u64).max(1);
        let member_bytes = (1u64 << 62) / width / self.slab_bytes.max(1) * self.slab_bytes.max(1);
        let geometry = Geometry::new(self.shape, member_bytes)?;
        let region_bytes = RegionShape::of(&geometry).member_region_bytes;
        if self.slab_bytes == 0 || !self.slab_bytes.is_multiple_of(region_bytes) {
            return Err(ArrayError::Layout(LayoutError::MembersTooSmall {
                member_bytes: self.slab_bytes,
                interleave_bytes: region_bytes,
            }));
        }
        Ok(geometry)
    }

    /// Volume bytes that a row holds.
    pub fn row_data_bytes(&self) -> Result<u64, ArrayError> {
        let shape = RegionShape::of(&self.geometry()?);
        Ok(self.slab_bytes / shape.member_region_bytes * shape.region_data_bytes)
    }

    /// Bytes that each area of a journal needs at least, so that the largest entry, a whole stripe
    /// with its parity, fits into what clients may append at a time, also where room is kept for
    /// destaging.
    pub fn least_journal_bytes(&self) -> Result<u64, ArrayError> {
        let geometry = self.geometry()?;
        let stripe_bytes = geometry.units() as u64 * geometry.interleave_bytes();
        Ok((16 * stripe_bytes).next_multiple_of(self.slab_bytes).max(2 << 20))
    }

    /// Bytes that the region map of `rows` rows takes at each of its places.
    pub fn map_bytes(&self, rows: u64, grain: MapGrain) -> Result<u64, ArrayError> {
        let shape = RegionShape::of(&self.geometry()?);
        let per_row = self.slab_bytes / shape.member_region_bytes;
        Ok(RegionShape::map_bytes(rows.saturating_mul(per_row), grain))
    }
}

/// A drive that an array may use.
#[derive(Clone)]
pub struct ArrayMember {
    /// Its number in the slab map.
    pub number: u32,
    /// Its queue.
    pub member: Rc<Member>,
    /// Where slab 0 begins on it, bytes.
    pub slabs_base_bytes: u64,
    /// Where the checksum pages of slab 0 begin on it, bytes; of no concern to an array without
    /// checksums.
    pub sums_base_bytes: u64,
}

/// Consecutive slabs of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaPlace {
    /// The drive's number.
    pub drive: u32,
    /// The first slab.
    pub slab: u32,
    /// How many.
    pub slabs: u32,
}

/// What an array is made of, or opened from.
pub struct ArrayInit {
    /// What it is.
    pub spec: ArraySpec,
    /// Usable bytes, at most what the rows hold.
    pub size_bytes: u64,
    /// Where its rows lie.
    pub rows: RowTable,
    /// Where its region map lies: the same at each place.
    pub map: Vec<AreaPlace>,
    /// The areas of its journal; none for a volume without one.
    pub journal: Vec<AreaPlace>,
    /// Never used before for this array: tells a new journal from older ones. When an array is
    /// opened it is of concern only if its journal is lost.
    pub journal_epoch: u64,
    /// Every block has a checksum, and every read is verified; the same for the array's whole life.
    pub checksums: Option<SumsInit>,
    /// The drives that are there and current. What lies on others is missing.
    pub members: Vec<ArrayMember>,
    /// Partial stripes are acknowledged when the journal has them. Needs a journal, and a layout
    /// with parity.
    pub write_back: bool,
    /// Nothing may be written: the array is opened protected. Its members keep what is written to
    /// them in memory, so that what a crash left in the journal can be carried out for whoever
    /// reads.
    pub read_only: bool,
}

/// Counts of what an array did; for benchmarks, tests and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayCounters {
    /// Stripes written without reading anything first.
    pub full_stripe_writes: u64,
    /// Stripes written by read-modify-write.
    pub read_modify_writes: u64,
    /// Stripes written by reconstruct-write or decode-write.
    pub reconstruct_writes: u64,
    /// Writes that were carried out together with another one in the same stripe.
    pub merged_writes: u64,
    /// Blocks or strips rebuilt from redundancy and written back after a read error.
    pub repaired_reads: u64,
}

pub(crate) struct Inner {
    pub me: Weak<Inner>,
    pub context: Context,
    pub buffers: BufferPool,
    pub geometry: Geometry,
    pub spec: ArraySpec,
    pub options: ArrayOptions,
    pub stripes_per_row: u64,
    pub regions_per_row: u64,
    pub size_bytes: Cell<u64>,
    /// Clients' writes beyond this are refused, though the array reaches further: while its size is
    /// being changed.
    pub writes_end: Cell<u64>,
    pub block_bytes: Cell<u64>,
    pub rows: RefCell<RowTable>,
    pub members: RefCell<Members>,
    /// Every column of every row is current and there.
    pub whole: Cell<bool>,
    /// Columns of rows that are being filled, by row and column.
    pub fills: RefCell<FxHashMap<(u64, usize), Fill>>,
    /// Columns of rows that are being copied elsewhere.
    pub moves: RefCell<FxHashMap<(u64, usize), Move>>,
    pub map_places: RefCell<Vec<AreaPlace>>,
    pub log: RefCell<Option<Rc<WriteLog>>>,
    /// Set for good when the array is put together, if it has checksums.
    pub sums: OnceCell<BlockSums>,
    /// The journal's places and an epoch, of an array opened for reading only that was not read
    /// yet: what the journal holds is carried out before the first read, on members that keep it in
    /// memory.
    pub unread_journal: RefCell<Option<(Vec<AreaPlace>, u64)>>,
    /// Reading it goes one at a time.
    pub reading_journal: Semaphore,
    pub write_back: bool,
    pub pending: Pending,
    pub destaging: Cell<bool>,
    pub defer_pace: DeferPace,
    pub table: Rc<StripeTable>,
    pub regions: Rc<Regions>,
    pub host: Rc<dyn ArrayHost>,
    pub admission: Semaphore,
    /// One strip of zeros, to pad and to write zeros from.
    pub zeroes: Buffer,
    pub sequences: SequentialDetector,
    pub reads: ReadEpochs,
    pub activity: WriteActivity,
    /// One drive is excluded at a time.
    pub exclusion: OneAtATime,
    pub bad: BadBlocks,
    pub counters: Cell<ArrayCounters>,
    pub heat: Heat,
    pub settling: Cell<bool>,
    /// New regions are made durable, to have the map say so, by one task at a time.
    pub marking: OneAtATime,
    pub lifecycle: Lifecycle,
    /// Set while a chunk's copies or parity may disagree after a crash.
    pub unsynced: Cell<bool>,
    /// Flushes that drives have refused.
    pub losses: FlushLosses,
}

/// A volume's array. Clones are the same array. Its futures must be driven to their end: a write
/// that is dropped half-way would leave its stripes held.
#[derive(Clone)]
pub struct Array(pub(crate) Rc<Inner>);

impl Array {
    /// Makes a new array: every region unwritten. The slabs need not be cleared.
    pub async fn create(
        context: &Context,
        buffers: &BufferPool,
        init: ArrayInit,
        host: Rc<dyn ArrayHost>,
        options: ArrayOptions,
    ) -> Result<Self, ArrayError> {
        let (areas, epoch) = (init.journal.clone(), init.journal_epoch);
        let array = Self::assemble(context, buffers, init, host, options)?;
        // Both slots of every page, so that nothing older in either can be taken for this volume's.
        array.0.rewrite_map().await?;
        array.0.create_journal(&areas, epoch).await?;
        array.0.flush_members().await?;
        Ok(array)
    }

    /// Opens an array that exists: reads its region map from all its places, the newest page of
    /// each counts.
    pub async fn open(
        context: &Context,
        buffers: &BufferPool,
        init: ArrayInit,
        host: Rc<dyn ArrayHost>,
        options: ArrayOptions,
    ) -> Result<Self, ArrayError> {
        let (areas, fresh_epoch) = (init.journal.clone(), init.journal_epoch);
        let array = Self::assemble(context, buffers, init, host, options)?;
        array.0.load_map().await?;
        array.0.note_columns_away();
        array.0.open_journal(&areas, fresh_epoch).await?;
        array.0.unsynced.set(!array.0.regions.unsynced_chunks().is_empty());
        Ok(array)
    }

    fn assemble(
        context: &Context,
        buffers: &BufferPool,
        init: ArrayInit,
        host: Rc<dyn ArrayHost>,
        options: ArrayOptions,
    ) -> Result<Self, ArrayError> {
        let ArrayInit { spec, size_bytes, rows, map, checksums, members, write_back, read_only, .. } = init;
        let geometry = spec.geometry()?;
        assert_eq!(rows.width(), geometry.width(), "a column per member of the layout");
        let shape = RegionShape::of(&geometry);
        let regions_per_row = spec.slab_bytes / shape.member_region_bytes;
        let count = size_bytes.div_ceil(shape.region_data_bytes);
        let regions = Regions::new(shape, options.tuning.map_grain, spec.id, count)
            .map_err(|_| ArrayError::NoMemory { regions: count })?;
        let regions = Rc::new(regions);
        let array = Self(Rc::new_cyclic(|me| Inner {
            me: me.clone(),
            context: context.clone(),
            buffers: buffers.clone(),
            zeroes: buffers.allocate_zeroed(geometry.interleave_bytes() as usize),
            geometry,
            options,
            stripes_per_row: regions_per_row * shape.stripes_per_region,
            regions_per_row,
            size_bytes: Cell::new(size_bytes),
            writes_end: Cell::new(u64::MAX),
            block_bytes: Cell::new(512),
            spec,
            rows: RefCell::new(rows),
            members: RefCell::default(),
            whole: Cell::new(false),
            fills: RefCell::default(),
            moves: RefCell::default(),
            map_places: RefCell::new(map),
            log: RefCell::default(),
            sums: OnceCell::new(),
            unread_journal: RefCell::default(),
            reading_journal: Semaphore::new(1),
            write_back,
            pending: Pending::new(options.tuning.pending_bytes.max(LARGEST_DEFERRED_BYTES)),
            destaging: Cell::new(false),
            defer_pace: DeferPace::new(),
            table: Rc::default(),
            regions,
            host,
            admission: Semaphore::new(options.in_flight_bytes),
            sequences: SequentialDetector::default(),
            reads: ReadEpochs::default(),
            activity: WriteActivity::default(),
            exclusion: OneAtATime::default(),
            bad: BadBlocks::default(),
            counters: Cell::default(),
            heat: Heat::default(),
            settling: Cell::new(false),
            marking: OneAtATime::default(),
            lifecycle: Lifecycle::new(read_only),
            unsynced: Cell::new(false),
            losses: FlushLosses::default(),
        }));
        if let Some(checksums) = checksums {
            array.0.begin_sums(checksums);
        }
        for member in members {
            array.add_member(member);
        }
        array.0.note_wholeness();
        Ok(array)
    }

    /// The array's addresses, for an unbounded length; see [`Self::capacity_bytes`].
    pub fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// What the array was made from.
    pub fn spec(&self) -> &ArraySpec {
        &self.0.spec
    }

    /// Usable bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.0.size_bytes.get()
    }

    /// Makes the array larger or smaller. The rows for it are set before it grows and taken away
    /// after it has shrunk; what lies beyond a smaller size is forgotten. To be called while no
    /// request beyond the smaller size is under way.
    pub async fn resize(&self, size_bytes: u64) -> Result<(), ArrayError> {
        let inner = &self.0;
        inner.check_writable()?;
        let region_bytes = inner.regions.shape.region_data_bytes;
        let regions = size_bytes.div_ceil(region_bytes);
        inner.regions.make_room(regions).map_err(|_| ArrayError::NoMemory { regions })?;
        let old = inner.size_bytes.get();
        if size_bytes < old {
            // What is left of the last region must read as zeros if the volume grows again.
            let kept = size_bytes.next_multiple_of(region_bytes).min(old);
            if kept > size_bytes {
                inner.zero(size_bytes, kept / 512 * 512).await?;
                inner.flush().await?;
            }
        }
        if regions < inner.regions.count() {
            let stripes = inner.regions.stripes_of(regions).start
                ..inner.regions.stripes_of(inner.regions.count()).start;
            // Until the smaller size is recorded a crash must not bring back what was there before.
            inner.destage_stripes(stripes.clone()).await?;
            inner.flush().await?;
            inner.forget_logged(stripes).await?;
        }
        for region in regions..inner.regions.count() {
            inner.forget_sums(region);
        }
        inner.size_bytes.set(size_bytes);
        inner.regions.resize(regions);
        inner.persist_map().await
    }

    /// Where requests' buffers come from.
    pub fn buffers(&self) -> &BufferPool {
        &self.0.buffers
    }

    /// What the array did so far.
    pub fn counters(&self) -> ArrayCounters {
        self.0.counters.get()
    }

    /// Bytes of volume space in regions that were ever written.
    pub fn written_bytes(&self) -> u64 {
        let region_bytes = self.0.regions.shape.region_data_bytes;
        (self.0.regions.written_regions() * region_bytes).min(self.capacity_bytes())
    }

    /// Regions of the volume: the unit in which scrubs count.
    pub fn regions(&self) -> u64 {
        self.0.regions.count()
    }

    /// Whether a crash left regions whose copies or parity may disagree; [`Self::resync`] settles
    /// them.
    pub fn needs_resync(&self) -> bool {
        self.0.unsynced.get()
    }

    /// Blocks of 4 KiB (column, block number in the column's linear space) that are lost: they
    /// could not be rebuilt, and reading them is an error until they are written.
    pub fn lost_blocks(&self) -> Vec<(usize, u64)> {
        self.0.bad.lost()
    }

    /// Blocks of 4 KiB of the volume that are lost for good, since they were being written when
    /// power was cut and their drive was lost in the same instant. Reading them is an error until
    /// they are written.
    pub fn dead_blocks(&self) -> Vec<u64> {
        self.0.bad.dead()
    }

    /// What is to be recorded of [`Self::lost_blocks`].
    pub(crate) fn lost_blocks_to_record(&self) -> Vec<(usize, u64)> {
        self.0.bad.lost_to_record()
    }

    /// What is to be recorded of [`Self::dead_blocks`].
    pub(crate) fn dead_blocks_to_record(&self) -> Vec<u64> {
        self.0.bad.dead_to_record(self.0.size_bytes.get().div_ceil(BLOCK_BYTES))
    }

    /// Restores what [`Self::dead_blocks`] gave when the array was closed.
    pub fn set_dead_blocks(&self, blocks: impl IntoIterator<Item = u64>) {
        self.0.bad.note_dead(blocks.into_iter().filter(|&block| !self.0.is_block_pending(block)));
    }

    /// Restores what [`Self::lost_blocks`] gave when the array was closed.
    pub fn set_lost_blocks(&self, blocks: impl IntoIterator<Item = (usize, u64)>) {
        self.0.bad.note_lost(blocks);
    }

    /// From now on nothing is written to any member, neither for clients nor as a repair; reads go
    /// on. For a volume opened for reading only, and for one that has lost more members than it can
    /// spare: as long as nothing is written without them, what they hold stays current, and the
    /// volume is whole again when they come back.
    pub fn protect(&self) {
        self.0.lifecycle.protect();
    }

    /// Whether the array takes no writes.
    pub fn is_protected(&self) -> bool {
        self.0.lifecycle.stopped().is_some()
    }

    /// Makes durable what can be, and gives up to where from `start_bytes` on all that was
    /// acknowledged is durable: to `end_bytes`, or less where the file system below is full. For
    /// whoever has to say how much of a write counts.
    pub async fn durable_until(&self, start_bytes: u64, end_bytes: u64) -> u64 {
        let inner = &self.0;
        if inner.lifecycle.is_protected() {
            return start_bytes;
        }
        let flushed = match inner.lifecycle.is_full() {
            true => inner.flush_what_is_whole().await,
            false => inner.flush().await.map(|()| true),
        };
        match flushed {
            Ok(true) => end_bytes,
            Ok(false) => inner.regions.first_undurable(start_bytes, end_bytes),
            Err(_) => start_bytes,
        }
    }

    /// Makes everything acknowledged so far durable, for a client: where writes were lost because a
    /// drive refused a flush, the error is reported here, once, whoever met it. What was closed in
    /// order is durable; of what was closed otherwise nothing is known.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        let losses = &self.0.losses;
        let begun = losses.count();
        let flushed = self.flush_internally().await;
        losses.tell_client(begun)?;
        flushed
    }

    /// As [`Self::flush`], for the engine's own needs: what there is to report to a client is kept.
    pub(crate) async fn flush_internally(&self) -> Result<(), ArrayError> {
        let lifecycle = &self.0.lifecycle;
        match (lifecycle.is_closed(), lifecycle.is_closed_in_order()) {
            // The members' queues have ended: nobody would answer.
            (true, false) => Err(ArrayError::Closed),
            (true, true) => Ok(()),
            (false, _) => self.0.flush().await,
        }
    }

    /// Flushes, takes all dirty marks back and ends the array's own tasks. The members stay open:
    /// they belong to the pool.
    pub async fn close(&self) -> Result<(), ArrayError> {
        self.0.lifecycle.close();
        if self.0.lifecycle.is_protected() {
            return Ok(());
        }
        if self.0.lifecycle.is_full() {
            // The journal keeps what is not in place. What cannot be flushed was never said to be.
            let _ = self.0.flush_what_is_whole().await;
            return Ok(());
        }
        if self.0.has_replayed() {
            self.0.record_and_forget_replayed().await?;
        }
        self.0.destage_all().await?;
        self.0.flush().await?;
        self.0.settle(true).await?;
        self.0.release_records().await?;
        self.0.close_journal().await?;
        self.0.losses.tell_client(self.0.losses.count())?;
        self.0.lifecycle.note_closed_in_order();
        Ok(())
    }

    /// Whether it was closed with everything that was acknowledged durable; not so where
    /// [`Self::close`] failed, did not come to its end, or there was nothing to close as it took no
    /// writes any more.
    pub fn was_closed_in_order(&self) -> bool {
        self.0.lifecycle.is_closed_in_order()
    }

    /// Ends when every read that is under way now has ended: slabs that the array no longer names
    /// may be used again then.
    pub async fn drain_reads(&self) {
        self.0.reads.drain().await;
    }
}

impl Inner {
    pub fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        if !offset_bytes.is_multiple_of(512) || !length_bytes.is_multiple_of(512) {
            return Err(ArrayError::Misaligned { offset_bytes, length_bytes });
        }
        let capacity_bytes = self.size_bytes.get();
        if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > capacity_bytes) {
            return Err(ArrayError::OutOfRange { offset_bytes, length_bytes, capacity_bytes });
        }
        if self.lifecycle.is_closed() {
            return Err(ArrayError::Closed);
        }
        Ok(())
    }

    /// To be asked before a client writes to a range.
    pub fn check_writable_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.check_range(offset_bytes, length_bytes)?;
        let capacity_bytes = self.writes_end.get();
        if offset_bytes + length_bytes > capacity_bytes {
            return Err(ArrayError::OutOfRange { offset_bytes, length_bytes, capacity_bytes });
        }
        self.check_writable()
    }

    /// To be asked before anything that writes.
    pub fn check_writable(&self) -> Result<(), ArrayError> {
        if let Some(why) = self.lifecycle.stopped() {
            return Err(why);
        }
        self.lifecycle.note_change();
        Ok(())
    }

    pub fn count(&self, change: impl FnOnce(&mut ArrayCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Regions of a row that belong to the volume.
    pub fn regions_of_row(&self, row: u64) -> std::ops::Range<u64> {
        let first = row * self.regions_per_row;
        first..(first + self.regions_per_row).min(self.regions.count())
    }

    /// A client asks for something: counted for the rows that it lies in.
    pub fn note_heat(&self, offset_bytes: u64, length_bytes: u64) {
        if self.heat.is_on() {
            let row_bytes = self.regions_per_row * self.regions.shape.region_data_bytes;
            self.heat.note(self.context.now_ns(), row_bytes, offset_bytes, length_bytes);
        }
    }
}
