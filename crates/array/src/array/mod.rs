//! An array: one layout over rows of slabs, and everything that must agree about them.
//!
//! Requests come in through [`Array::read`], [`Array::write`] and their siblings, in any number at
//! a time. Where they go next: `write.rs`, then `stripe_write.rs` (gathering, planning, parity),
//! `read/` (healthy and degraded reads, and what to do when a drive says no), `jobs/` (background
//! work), `map/discard.rs`. Which columns of which rows are missing is kept in `columns/`, what
//! the region map on the drives says in `map/`.
//!
//! Each column of the layout is one linear space of `rows` slabs; the slab map (`rows.rs`) says on
//! which drive each slab of it lies. The layout's addresses are made for an unbounded length, so a
//! volume grows by rows and nothing moves.
//!
//! Memory: requests in flight are admitted up to [`ArrayOptions::in_flight_bytes`]; parity,
//! pre-reads and padding add at most `(units + parity) / data` times that for small writes and are
//! bounded with it.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stripewise_drive::{Buffer, BufferPool, Context, Semaphore};
use stripewise_layout::Geometry;

use crate::block_set::BlockSet;
use crate::columns::Columns;
use crate::error::ArrayError;
use crate::flush_losses::FlushLosses;
use crate::heat::Heat;
use crate::log::log_slot::LogSlot;
use crate::map::map_upkeep::MapUpkeep;
use crate::map::regions::{RegionShape, Regions};
use crate::read::streams::ReadStreams;
use crate::stripes::stripe_table::StripeTable;
use crate::sums::state::BlockSums;
use crate::sync::one_at_a_time::OneAtATime;
use crate::sync::read_epochs::ReadEpochs;
use crate::write_back::Deferred;

mod bad_blocks;
mod capacity;
mod drive_faults;
mod for_pool;
mod held;
pub(crate) mod host;
mod lifecycle;
pub(crate) mod parity;
pub(crate) mod parts;
mod poison;
mod sequential_detector;
pub(crate) mod spec;
pub(crate) mod stripe_write;
mod write;
mod write_activity;

use bad_blocks::BadBlocks;
use capacity::Capacity;
use held::HeldForPool;
pub use host::{ArrayHost, HostRequest, LocalFuture, NoHost};
use lifecycle::Lifecycle;

use sequential_detector::SequentialDetector;
pub use spec::{AreaPlace, ArrayInit, ArrayMember, ArrayOptions, ArraySpec, SumsInit};
use write_activity::WriteActivity;

/// The engine's own block: writes that do not fill blocks of this size are completed from what is
/// there.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Counts of what an array did; for benchmarks, tests and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayCounters {
    /// Stripes written without reading anything first.
    pub full_stripe_writes: u64,
    /// Stripes written by read-modify-write.
    pub read_modify_writes: u64,
    /// Stripes written by reconstruct-write or decode-write.
    pub reconstruct_writes: u64,
    /// Writes merged with another one in the same stripe.
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
    pub capacity: Capacity,
    pub block_bytes: Cell<u64>,
    pub columns: Rc<Columns>,
    pub map: MapUpkeep,
    pub log: LogSlot,
    pub sums: BlockSums,
    pub deferred: Deferred,
    pub table: Rc<StripeTable>,
    pub regions: Rc<Regions>,
    pub host: Rc<dyn ArrayHost>,
    pub admission: Semaphore,
    /// One strip of zeros, to pad and to write zeros from.
    pub zeroes: Buffer,
    pub sequences: SequentialDetector,
    pub reads: ReadEpochs,
    pub read_streams: ReadStreams,
    pub activity: WriteActivity,
    /// One drive is excluded at a time.
    pub exclusion: OneAtATime,
    pub bad: BadBlocks,
    pub counters: Cell<ArrayCounters>,
    pub heat: Heat,
    pub lifecycle: Lifecycle,
    /// Set while a chunk's copies or parity may disagree after a crash.
    pub unsynced: Cell<bool>,
    /// Flushes that drives have refused.
    pub losses: FlushLosses,
    /// Stripes that the pool holds.
    pub held: HeldForPool,
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
        let made = async {
            // Both slots of every page, so that nothing older in either can be taken for this
            // volume's.
            array.0.rewrite_map().await?;
            array.0.create_journal(&areas, epoch).await?;
            array.0.flush_members().await
        };
        if let Err(error) = made.await {
            array.call_off().await;
            return Err(error);
        }
        Ok(array)
    }

    /// Cleans up after a failed creation: the array's areas may be reused once this returns. If a
    /// drive has failed, journal headers may still be written to record it.
    pub async fn call_off(&self) {
        self.protect();
        let _ = self.close().await;
        self.until_pages_written().await;
        self.until_map_written().await;
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
        array.0.columns.note_columns_away();
        array.0.open_journal(&areas, fresh_epoch).await?;
        array.0.unsynced.set(!array.0.regions.intents.unsynced_chunks().is_empty());
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
        let (lost_blocks, dead_blocks) = (init.lost_blocks, init.dead_blocks);
        let geometry = spec.geometry()?;
        let shape = RegionShape::of(&geometry);
        let count = size_bytes.div_ceil(shape.region_data_bytes);
        let tuning = &options.tuning;
        let regions = Regions::new(shape, tuning.map_grain, tuning.first_number, spec.id, count)
            .map_err(|_| ArrayError::NoMemory { regions: count })?;
        let regions = Rc::new(regions);
        let columns = Columns::new(context, &geometry, spec.slab_bytes, &regions, rows);
        let zeroes = buffers.allocate_zeroed(geometry.interleave_bytes() as usize);
        let sums = BlockSums::new(&columns, &regions, &geometry, buffers, &zeroes, options.tuning);
        let array = Self(Rc::new_cyclic(|me| Inner {
            me: me.clone(),
            context: context.clone(),
            buffers: buffers.clone(),
            zeroes,
            geometry,
            options,
            capacity: Capacity::new(size_bytes),
            block_bytes: Cell::new(512),
            spec,
            columns,
            map: MapUpkeep::new(map),
            log: LogSlot::default(),
            sums,
            deferred: Deferred::new(write_back, options.tuning.pending_bytes),
            table: Rc::default(),
            regions,
            host,
            admission: Semaphore::new(options.in_flight_bytes),
            sequences: SequentialDetector::default(),
            reads: ReadEpochs::default(),
            read_streams: ReadStreams::default(),
            activity: WriteActivity::default(),
            exclusion: OneAtATime::default(),
            bad: BadBlocks::default(),
            counters: Cell::default(),
            heat: Heat::default(),
            lifecycle: Lifecycle::new(read_only),
            unsynced: Cell::new(false),
            losses: FlushLosses::default(),
            held: HeldForPool::default(),
        }));
        if let Some(checksums) = checksums {
            array.0.begin_sums(checksums);
        }
        for member in members {
            array.add_member(member);
        }
        // Before the journal is read: what it has of them makes them whole.
        array.0.bad.note_lost(&lost_blocks);
        array.0.bad.note_recorded_dead(&dead_blocks);
        Ok(array)
    }

    /// The array's addresses, for an unbounded length; see [`Self::capacity_bytes`].
    pub fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// Specification of the array.
    pub fn spec(&self) -> &ArraySpec {
        &self.0.spec
    }

    /// Usable bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.0.capacity.bytes()
    }

    /// Makes the array larger or smaller. The rows for it are set before it grows and taken away
    /// after it has shrunk; what lies beyond a smaller size is forgotten. To be called while no
    /// request beyond the smaller size is in flight.
    pub async fn resize(&self, size_bytes: u64) -> Result<(), ArrayError> {
        let inner = &self.0;
        inner.check_writable()?;
        let region_bytes = inner.regions.shape.region_data_bytes;
        let regions = size_bytes.div_ceil(region_bytes);
        inner.regions.make_room(regions).map_err(|_| ArrayError::NoMemory { regions })?;
        let old = inner.capacity.bytes();
        // The rest of the last region must read as zeros if the volume grows again. It is zeroed
        // again on growth: drives may have failed or lost some of it since, and no scrub looks
        // there.
        let (from, to) = (size_bytes.min(old), size_bytes.max(old));
        let to = from.next_multiple_of(region_bytes).min(to);
        if to > from {
            inner.zero(from, to / 512 * 512).await?;
            inner.flush().await?;
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
            inner.sums.forget_region(region);
        }
        // Dead blocks beyond the new size are forgotten: that space reads as zeros if it returns.
        let kept = size_bytes.min(old).div_ceil(BLOCK_BYTES);
        inner.bad.forget_dead_from(kept);
        inner.capacity.set(size_bytes);
        inner.regions.resize(regions);
        inner.persist_map().await
    }

    /// Buffer pool for requests.
    pub fn buffers(&self) -> &BufferPool {
        &self.0.buffers
    }

    /// Counters since the array was opened.
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

    /// True if a crash left regions whose copies or parity may disagree; [`Self::resync`] compares
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

    /// Number of currently lost blocks: [`Self::lost_blocks`] and [`Self::dead_blocks`].
    pub fn bad_block_count(&self) -> u64 {
        self.0.bad.count()
    }

    /// The part of [`Self::lost_blocks`] to record.
    pub fn lost_blocks_to_record(&self) -> Arc<BlockSet> {
        self.0.bad.lost_to_record()
    }

    /// The part of [`Self::dead_blocks`] to record.
    pub fn dead_blocks_to_record(&self) -> Arc<BlockSet> {
        self.0.bad.dead_to_record(self.0.capacity.bytes().div_ceil(BLOCK_BYTES))
    }

    /// Blocks of the volume that no drive has any more.
    pub fn note_dead_blocks(&self, blocks: impl IntoIterator<Item = u64>) {
        let Inner { deferred, geometry, bad, .. } = &*self.0;
        let is_needed =
            |block: &u64| !deferred.pending.holds_any_of(geometry, block * BLOCK_BYTES, BLOCK_BYTES);
        bad.note_dead(blocks.into_iter().filter(is_needed));
    }

    /// From now on nothing is written to any member, neither for clients nor as a repair; only the
    /// journal's headers may yet say which of its records are over. Reads go on. For a volume
    /// opened for reading only, and for one that has lost more members than it can spare: as long
    /// as nothing is written without them, what they hold stays current, and the volume is whole
    /// again when they come back.
    pub fn protect(&self) {
        self.0.lifecycle.protect();
    }

    /// Its volume was deleted, or has another array now: nothing is written any more, and what
    /// drives refuse of it has none of them excluded.
    pub fn abandon(&self) {
        self.0.lifecycle.abandon();
    }

    /// True if the array accepts no writes.
    pub fn is_protected(&self) -> bool {
        self.0.lifecycle.stopped().is_some()
    }

    /// Makes durable what can be, and gives up to where from `start_bytes` on all that was
    /// acknowledged is durable: to `end_bytes`, or less where the file system below is full. For
    /// code that has to say how much of a write counts.
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
    /// drive refused a flush, the error is reported here, once, whichever request met it. What was
    /// closed in order is durable; of what was closed otherwise nothing is known.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        let losses = &self.0.losses;
        let begun = losses.count();
        let flushed = self.flush_internally().await;
        losses.report_to_client(begun)?;
        flushed
    }

    /// As [`Self::flush`], for the engine's own needs: what there is to report to a client is kept.
    pub async fn flush_internally(&self) -> Result<(), ArrayError> {
        let lifecycle = &self.0.lifecycle;
        match (lifecycle.is_closed(), lifecycle.is_closed_in_order()) {
            // The members' queues have ended: a request would never complete.
            (true, false) => Err(ArrayError::Closed),
            (true, true) => Ok(()),
            (false, _) => self.0.flush().await,
        }
    }

    /// Flushes, clears all write-intent bits and ends the array's own tasks. The members stay
    /// open: they belong to the pool.
    pub async fn close(&self) -> Result<(), ArrayError> {
        self.0.lifecycle.close();
        let closed = self.close_in_order().await;
        if let Some(log) = self.0.log.open() {
            log.journal.stop().await;
        }
        closed
    }

    async fn close_in_order(&self) -> Result<(), ArrayError> {
        if self.0.lifecycle.is_protected() {
            return Ok(());
        }
        if self.0.lifecycle.is_full() {
            // The journal keeps what is not in place. What cannot be flushed was never said to be.
            let _ = self.0.flush_what_is_whole().await;
            return Ok(());
        }
        if self.0.log.has_replayed() {
            self.0.record_and_forget_replayed().await?;
        }
        self.0.destage_all().await?;
        self.0.flush().await?;
        self.0.clear_intents(true).await?;
        self.0.release_records().await?;
        if let Some(log) = self.0.log.open() {
            log.journal.close().await?;
        }
        self.0.losses.report_to_client(self.0.losses.count())?;
        self.0.lifecycle.note_closed_in_order();
        Ok(())
    }

    /// Set when it was closed with everything that was acknowledged durable; not so where
    /// [`Self::close`] failed, did not come to its end, or there was nothing to close as it took no
    /// writes any more.
    pub fn closed_in_order(&self) -> Arc<AtomicBool> {
        self.0.lifecycle.closed_in_order()
    }

    /// Waits for every read now in flight: slabs that the array no longer names may be reused
    /// afterwards.
    pub async fn drain_reads(&self) {
        self.0.reads.drain().await;
    }
}

impl Inner {
    pub(crate) fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.capacity.check(offset_bytes, length_bytes)?;
        if self.lifecycle.is_closed() {
            return Err(ArrayError::Closed);
        }
        Ok(())
    }

    /// To be asked before a client writes to a range.
    pub(crate) fn check_writable_range(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), ArrayError> {
        self.check_range(offset_bytes, length_bytes)?;
        self.capacity.check_written(offset_bytes, length_bytes)?;
        self.check_writable()
    }

    /// To be asked before anything that writes.
    pub(crate) fn check_writable(&self) -> Result<(), ArrayError> {
        if let Some(why) = self.lifecycle.stopped() {
            return Err(why);
        }
        self.lifecycle.note_change();
        Ok(())
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ArrayCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// A client asks for something: counted for the rows that it lies in.
    pub(crate) fn note_heat(&self, offset_bytes: u64, length_bytes: u64) {
        if self.heat.is_on() {
            let row_bytes = self.columns.regions_per_row * self.regions.shape.region_data_bytes;
            self.heat.note(self.context.now_ns(), row_bytes, offset_bytes, length_bytes);
        }
    }
}
