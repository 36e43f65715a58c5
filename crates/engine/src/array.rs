//! An array: one volume's stripes over its members, and everything that must agree about them.
//!
//! Requests come in through [`Array::read`], [`Array::write`] and their siblings, in any number at a time. Where they go
//! next: `read.rs` (healthy and degraded reads), `write.rs` (gathering, planning, parity), `recover.rs` (what to do when a
//! drive says no), `rebuild.rs` and `scrub.rs` (background work), `discard.rs`. Which members are missing, and from when on
//! that may be relied on, is settled here: a member that fails is first recorded as excluded on all others, through
//! [`Membership`], and only then is a write acknowledged that it does not hold.
//!
//! Memory: requests in flight are admitted up to [`ArrayOptions::in_flight_bytes`]; parity, pre-reads and padding add at
//! most `(units + parity) / data` times that for small writes and are bounded with it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use smallvec::SmallVec;
use stripewise_drive::{
    Buffer, BufferPool, Completion, Context, DriveError, DriveErrorKind, Event, IoRequest, Operation,
    Semaphore,
};
use stripewise_layout::{Geometry, MemberSet, Shape};

use crate::error::ArrayError;
use crate::member::{Class, Member};
use crate::rebuild::RebuildState;
use crate::regions::{PAGE_BYTES, RegionShape, Regions};
use crate::stripe_table::StripeTable;

/// The engine's own block: writes that do not fill blocks of this size are completed from what is there.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Dirty marks are taken back when their chunk was quiet for this long.
const SETTLE_INTERVAL_NS: u64 = 5_000_000_000;

/// A boxed future of this thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Whoever keeps the record of which drives belong: the pool.
pub trait Membership {
    /// Records durably on every other drive that `member` is out. Until this is done no write that `member` lacks is
    /// acknowledged. Told more than once of the same member, it answers as the first time.
    fn exclude<'a>(&'a self, member: &'a Rc<Member>, reason: &'a str) -> LocalFuture<'a, Result<(), String>>;

    /// Records durably which blocks of volume `id` are lost, as [`Array::lost_blocks`] has them. Asked before a flush is
    /// acknowledged, when they changed: a block that was lost and is written again must not be lost after a restart.
    fn record_lost(&self, id: u128) -> LocalFuture<'_, Result<(), String>> {
        let _ = id;
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Forgets nothing because it records nothing: for tests and benchmarks of an array without a pool.
pub struct NoMembership;

impl Membership for NoMembership {
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
}

impl Default for ArrayOptions {
    fn default() -> Self {
        Self { in_flight_bytes: 128 << 20, background_bytes: 32 << 20 }
    }
}

/// What an array is: recorded in the pool's metadata, the same for its whole life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArraySpec {
    /// The volume's identity; marks its region map.
    pub id: u128,
    /// Level, width, groups, interleave.
    pub shape: Shape,
    /// Where the volume's space begins on every member, bytes; a multiple of 1 MiB.
    pub base_bytes: u64,
    /// The volume's space on every member, bytes, region map included.
    pub space_bytes: u64,
}

impl ArraySpec {
    /// The addresses of the volume's data, and how many bytes of each member's space the region map takes (it comes
    /// first).
    pub fn geometry(&self) -> Result<(Geometry, u64), ArrayError> {
        // The map's size depends on what is left for data, hardly; a map for the whole space is never too small.
        let whole = Geometry::new(self.shape, self.space_bytes)?;
        let map_bytes = RegionShape::of(&whole).map_bytes();
        let geometry = Geometry::new(self.shape, self.space_bytes.saturating_sub(map_bytes))?;
        Ok((geometry, map_bytes))
    }
}

/// What a slot of the array holds when it is opened.
#[derive(Clone)]
pub enum SlotInit {
    /// A member whose content is current.
    Active(Rc<Member>),
    /// Nothing.
    Missing,
    /// A replacement whose content is current in regions below this one.
    Rebuilding(Rc<Member>, u64),
}

pub(crate) struct Slot {
    pub member: RefCell<Option<Rc<Member>>>,
    pub rebuild: RefCell<Option<RebuildState>>,
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
    me: Weak<Inner>,
    pub context: Context,
    pub buffers: BufferPool,
    pub geometry: Geometry,
    pub spec: ArraySpec,
    pub options: ArrayOptions,
    pub data_base_bytes: u64,
    pub block_bytes: u64,
    pub slots: Vec<Slot>,
    pub missing: Cell<MemberSet>,
    /// Slots being rebuilt; they are missing in some regions and not in others.
    pub rebuilding: Cell<usize>,
    pub table: Rc<StripeTable>,
    pub regions: Rc<Regions>,
    pub membership: Rc<dyn Membership>,
    pub admission: Semaphore,
    /// One strip of zeros, to pad and to write zeros from.
    pub zeroes: Buffer,
    pub recent_ends: RefCell<[u64; 32]>,
    pub recent_next: Cell<usize>,
    pub writes_in_flight: Cell<usize>,
    pub active_groups: Cell<usize>,
    pub write_activity: Event,
    excluding: Cell<bool>,
    excluded: Event,
    /// Blocks (slot, block of the member's data space) that hold nothing valid: they could not be rebuilt.
    pub lost: RefCell<BTreeSet<(usize, u64)>>,
    /// How often `lost` shrank, and how often it had when it was last recorded.
    pub lost_changes: Cell<(u64, u64)>,
    pub counters: Cell<ArrayCounters>,
    settling: Cell<bool>,
    closed: Cell<bool>,
    /// Set while a chunk's copies or parity may disagree after a crash.
    pub unsynced: Cell<bool>,
    /// Nothing is written any more, see [`Array::protect`].
    pub protected: Cell<bool>,
    /// Something was, or may have been, written since opening.
    changed: Cell<bool>,
}

/// A volume's array. Clones are the same array. Its futures must be driven to their end: a write that is dropped half-way
/// would leave its stripes held.
#[derive(Clone)]
pub struct Array(pub(crate) Rc<Inner>);

impl Array {
    /// Makes a new array: every region unwritten. The members' space need not be cleared.
    pub async fn create(
        context: &Context,
        buffers: &BufferPool,
        spec: ArraySpec,
        slots: Vec<SlotInit>,
        membership: Rc<dyn Membership>,
        options: ArrayOptions,
    ) -> Result<Self, ArrayError> {
        let array = Self::assemble(context, buffers, spec, slots, membership, options)?;
        // Both slots of every page, so that nothing older in either can be taken for this volume's.
        array.0.rewrite_map().await?;
        array.0.flush_members().await?;
        Ok(array)
    }

    /// Opens an array that exists: reads its region map from all members, the newest page of each counts.
    pub async fn open(
        context: &Context,
        buffers: &BufferPool,
        spec: ArraySpec,
        slots: Vec<SlotInit>,
        membership: Rc<dyn Membership>,
        options: ArrayOptions,
    ) -> Result<Self, ArrayError> {
        let array = Self::assemble(context, buffers, spec, slots, membership, options)?;
        array.0.load_map().await?;
        array.0.unsynced.set(!array.0.regions.unsynced_chunks().is_empty());
        Ok(array)
    }

    fn assemble(
        context: &Context,
        buffers: &BufferPool,
        spec: ArraySpec,
        inits: Vec<SlotInit>,
        membership: Rc<dyn Membership>,
        options: ArrayOptions,
    ) -> Result<Self, ArrayError> {
        let (geometry, map_bytes) = spec.geometry()?;
        assert_eq!(inits.len(), geometry.width(), "one slot per member");
        let mut missing = MemberSet::EMPTY;
        let mut rebuilding = 0;
        let mut block_bytes = 512;
        let mut slots = Vec::with_capacity(inits.len());
        for (index, init) in inits.into_iter().enumerate() {
            let (member, rebuild) = match init {
                SlotInit::Active(member) => (Some(member), None),
                SlotInit::Missing => {
                    missing.insert(index);
                    (None, None)
                }
                SlotInit::Rebuilding(member, next_region) => {
                    rebuilding += 1;
                    (Some(member), Some(RebuildState::starting_at(next_region)))
                }
            };
            if let Some(member) = &member {
                block_bytes = block_bytes.max(u64::from(member.info().logical_block_bytes));
            }
            slots.push(Slot { member: RefCell::new(member), rebuild: RefCell::new(rebuild) });
        }
        let regions = Rc::new(Regions::new(RegionShape::of(&geometry), spec.id));
        Ok(Self(Rc::new_cyclic(|me| Inner {
            me: me.clone(),
            context: context.clone(),
            buffers: buffers.clone(),
            zeroes: buffers.allocate_zeroed(geometry.interleave_bytes() as usize),
            data_base_bytes: spec.base_bytes + map_bytes,
            geometry,
            spec,
            options,
            block_bytes,
            slots,
            missing: Cell::new(missing),
            rebuilding: Cell::new(rebuilding),
            table: Rc::default(),
            regions,
            membership,
            admission: Semaphore::new(options.in_flight_bytes),
            recent_ends: RefCell::new([u64::MAX; 32]),
            recent_next: Cell::new(0),
            writes_in_flight: Cell::new(0),
            active_groups: Cell::new(0),
            write_activity: Event::new(),
            excluding: Cell::new(false),
            excluded: Event::new(),
            lost: RefCell::default(),
            lost_changes: Cell::default(),
            counters: Cell::default(),
            settling: Cell::new(false),
            closed: Cell::new(false),
            unsynced: Cell::new(false),
            protected: Cell::new(false),
            changed: Cell::new(false),
        })))
    }

    /// The array's addresses.
    pub fn geometry(&self) -> &Geometry {
        &self.0.geometry
    }

    /// What the array was made from.
    pub fn spec(&self) -> &ArraySpec {
        &self.0.spec
    }

    /// Usable bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.0.geometry.capacity_bytes()
    }

    /// Where requests' buffers come from.
    pub fn buffers(&self) -> &BufferPool {
        &self.0.buffers
    }

    /// What the array did so far.
    pub fn counters(&self) -> ArrayCounters {
        self.0.counters.get()
    }

    /// Members that hold nothing current anywhere: missing or excluded. Members being rebuilt are not among them.
    pub fn missing(&self) -> MemberSet {
        self.0.missing.get()
    }

    /// The member in a slot.
    pub fn member(&self, slot: usize) -> Option<Rc<Member>> {
        self.0.slots[slot].member.borrow().clone()
    }

    /// Bytes of volume space in regions that were ever written.
    pub fn written_bytes(&self) -> u64 {
        let shape = &self.0.regions.shape;
        let region_bytes = shape.stripes_per_region * self.0.geometry.stripe_data_bytes();
        (self.0.regions.written_regions() * region_bytes).min(self.capacity_bytes())
    }

    /// Whether a crash left regions whose copies or parity may disagree; [`Self::resync`] settles them.
    pub fn needs_resync(&self) -> bool {
        self.0.unsynced.get()
    }

    /// Blocks of 4 KiB (slot, block number in the member's data space) that are lost: they could not be rebuilt, and
    /// reading them is an error until they are written.
    pub fn lost_blocks(&self) -> Vec<(usize, u64)> {
        self.0.lost.borrow().iter().copied().collect()
    }

    /// Restores what [`Self::lost_blocks`] gave when the array was closed.
    pub fn set_lost_blocks(&self, blocks: impl IntoIterator<Item = (usize, u64)>) {
        self.0.lost.borrow_mut().extend(blocks);
    }

    /// Takes a member out of a slot: to be called by the pool after it recorded the exclusion.
    pub fn mark_missing(&self, slot: usize) {
        self.0.mark_missing(slot);
    }

    /// From now on nothing is written to any member, neither for clients nor as a repair; reads go on. For a volume opened
    /// for reading only, and for one that has lost more members than it can spare: as long as nothing is written without
    /// them, what they hold stays current, and the volume is whole again when they come back.
    pub fn protect(&self) {
        self.0.protected.set(true);
    }

    /// Whether the array takes no writes.
    pub fn is_protected(&self) -> bool {
        self.0.protected.get()
    }

    /// Makes everything acknowledged so far durable.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        self.0.flush().await
    }

    /// Flushes, takes all dirty marks back and ends the array's own tasks. The members stay open: they belong to the pool.
    pub async fn close(&self) -> Result<(), ArrayError> {
        self.0.closed.set(true);
        if self.0.protected.get() {
            return Ok(());
        }
        self.0.flush().await?;
        self.0.settle(true).await
    }
}

impl Inner {
    pub fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        if !offset_bytes.is_multiple_of(512) || !length_bytes.is_multiple_of(512) {
            return Err(ArrayError::Misaligned { offset_bytes, length_bytes });
        }
        let capacity_bytes = self.geometry.capacity_bytes();
        if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > capacity_bytes) {
            return Err(ArrayError::OutOfRange { offset_bytes, length_bytes, capacity_bytes });
        }
        if self.closed.get() {
            return Err(ArrayError::Closed);
        }
        Ok(())
    }

    /// To be asked before anything that writes.
    pub fn check_writable(&self) -> Result<(), ArrayError> {
        if self.protected.get() {
            return Err(ArrayError::Protected);
        }
        self.changed.set(true);
        Ok(())
    }

    pub fn count(&self, change: impl FnOnce(&mut ArrayCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Whether every member is there and current everywhere, and no block is known as lost.
    pub fn is_whole(&self) -> bool {
        self.missing.get().is_empty() && self.rebuilding.get() == 0 && self.lost.borrow().is_empty()
    }

    /// Members that hold nothing current in the stripe.
    pub fn missing_in(&self, stripe: u64) -> MemberSet {
        let mut missing = self.missing.get();
        if self.rebuilding.get() > 0 {
            let region = self.regions.region_of(stripe);
            for (index, slot) in self.slots.iter().enumerate() {
                if slot.rebuild.borrow().as_ref().is_some_and(|rebuild| !rebuild.has(region)) {
                    missing.insert(index);
                }
            }
        }
        missing
    }

    /// Sends a request, addressed within the member's data space, to the member in `slot`.
    pub fn submit(&self, slot: usize, class: Class, mut request: IoRequest) -> Completion {
        request.offset_bytes += self.data_base_bytes;
        self.submit_absolute(slot, class, request)
    }

    fn submit_absolute(&self, slot: usize, class: Class, request: IoRequest) -> Completion {
        match &*self.slots[slot].member.borrow() {
            Some(member) => member.submit(class, request),
            None => {
                Completion::ready(Err(request.error(&"missing member".into(), DriveErrorKind::Gone, None)))
            }
        }
    }

    /// Members to keep up to date: all but the missing ones, those being rebuilt included.
    pub fn present_slots(&self) -> SmallVec<[usize; 12]> {
        let missing = self.missing.get();
        (0..self.slots.len()).filter(|slot| !missing.contains(*slot)).collect()
    }

    /// Whether the array can do without this member, on top of those missing already.
    pub fn can_spare(&self, slot: usize) -> bool {
        let mut missing = self.missing.get();
        for (index, other) in self.slots.iter().enumerate() {
            if other.rebuild.borrow().is_some() {
                missing.insert(index);
            }
        }
        // A half-rebuilt member can always be given up: it only goes back to where it was.
        let is_rebuilding = self.slots[slot].rebuild.borrow().is_some();
        missing.insert(slot);
        is_rebuilding || self.geometry.survives(&missing)
    }

    /// The member in `slot`, if the error is its own: while an error of the one before waits to be looked at, a replacement
    /// may have come, and must not pay for it.
    fn member_that_gave(&self, slot: usize, error: &DriveError) -> Option<Rc<Member>> {
        let member = self.slots[slot].member.borrow().clone()?;
        member.gave(error).then_some(member)
    }

    /// A read was refused by the member in `slot`: counts it and, where the member is finished, excludes it.
    pub async fn note_read_error(&self, slot: usize, error: &DriveError) -> Result<(), ArrayError> {
        let Some(member) = self.member_that_gave(slot, error) else { return Ok(()) };
        member.note_read_error(error, self.can_spare(slot));
        self.exclude_if_failed(slot, &member).await
    }

    /// A write was refused, also the second time. The member is excluded, unless the array cannot do without it: then the
    /// write has failed, and what the member still holds stays readable.
    pub async fn note_write_error(&self, slot: usize, error: &DriveError) -> Result<(), ArrayError> {
        let Some(member) = self.member_that_gave(slot, error) else { return Ok(()) };
        let spare = self.can_spare(slot);
        member.note_write_error(error, spare);
        if !spare {
            return Err(ArrayError::Drive(error.clone()));
        }
        self.exclude_if_failed(slot, &member).await
    }

    async fn exclude_if_failed(&self, slot: usize, member: &Rc<Member>) -> Result<(), ArrayError> {
        let Some(reason) = member.failed() else { return Ok(()) };
        // One at a time; whoever waited finds the work done.
        while self.excluding.get() {
            self.excluded.wait().await;
        }
        let is_in_slot =
            || self.slots[slot].member.borrow().as_ref().is_some_and(|now| Rc::ptr_eq(now, member));
        if !is_in_slot() || self.missing.get().contains(slot) {
            return Ok(());
        }
        self.excluding.set(true);
        let result = self.membership.exclude(member, &reason).await;
        self.excluding.set(false);
        // A replacement may have been attached in the meantime.
        if result.is_ok() && is_in_slot() {
            self.mark_missing(slot);
        }
        self.excluded.notify_all();
        result.map_err(ArrayError::CannotExclude)
    }

    pub fn mark_missing(&self, slot: usize) {
        let mut missing = self.missing.get();
        if missing.insert(slot) && self.slots[slot].rebuild.take().is_some() {
            self.rebuilding.set(self.rebuilding.get() - 1);
        }
        self.missing.set(missing);
        // What a missing member held is gone with it, whether it was valid or not.
        self.lost.borrow_mut().retain(|(lost_slot, _)| *lost_slot != slot);
    }

    /// Makes what the drives acknowledged durable.
    pub async fn flush_members(&self) -> Result<(), ArrayError> {
        let slots = self.present_slots();
        let flushes: SmallVec<[_; 12]> = slots
            .iter()
            .map(|&slot| (slot, self.submit_absolute(slot, Class::Foreground, IoRequest::flush())))
            .collect();
        let mut first_error = None;
        for (slot, flush) in flushes {
            if let Err(error) = flush.await
                && let Err(error) = self.note_write_error(slot, &error).await
            {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    pub async fn flush(&self) -> Result<(), ArrayError> {
        if self.protected.get() {
            // What was written before cannot be made durable any more: part of it is on members that are gone, or in regions
            // not yet marked as written.
            return if self.changed.get() { Err(ArrayError::Protected) } else { Ok(()) };
        }
        if self.regions.partial_count() > 0 {
            for region in self.regions.partial_regions() {
                self.complete_region(region).await?;
            }
        }
        let fresh = self.regions.take_fresh();
        if let Err(error) = self.flush_members().await {
            self.regions.put_back_fresh(fresh);
            return Err(error);
        }
        if !fresh.is_empty() {
            self.regions.mark_ready(&fresh);
            self.persist_map().await?;
        }
        self.record_lost().await
    }

    /// Has it recorded that blocks are lost no more, where that changed.
    pub async fn record_lost(&self) -> Result<(), ArrayError> {
        let (now, recorded) = self.lost_changes.get();
        if now == recorded {
            return Ok(());
        }
        self.membership.record_lost(self.spec.id).await.map_err(ArrayError::CannotRecord)?;
        let (later, recorded) = self.lost_changes.get();
        self.lost_changes.set((later, recorded.max(now)));
        Ok(())
    }

    /// Writes all pages of the map whose durable copy is behind.
    pub async fn persist_map(&self) -> Result<(), ArrayError> {
        for page in self.regions.stale_pages() {
            self.persist_page(page).await?;
        }
        Ok(())
    }

    /// Makes the page durable as it is now; joins a write of it that is under way where that suffices.
    pub async fn persist_page(&self, page: usize) -> Result<(), ArrayError> {
        let version = self.regions.page_version(page);
        while !self.regions.page_is_durable(page, version) {
            self.write_page(page).await?;
        }
        Ok(())
    }

    async fn write_page(&self, page: usize) -> Result<(), ArrayError> {
        self.check_writable()?;
        let Some(write) = self.regions.begin_page(page, &self.buffers) else {
            self.regions.page_changed.wait().await;
            return Ok(());
        };
        let offset = self.spec.base_bytes + write.offset_bytes;
        let request = || IoRequest::write(offset, write.buffer.clone(), true);
        let writes: SmallVec<[_; 12]> = self
            .present_slots()
            .into_iter()
            .map(|slot| (slot, self.submit_absolute(slot, Class::Foreground, request())))
            .collect();
        let mut result = if writes.is_empty() { Err(ArrayError::MapLost) } else { Ok(()) };
        for (slot, answer) in writes {
            if let Err(error) = answer.await
                && let Err(error) = self.note_write_error(slot, &error).await
            {
                result = Err(error);
            }
        }
        self.regions.end_page(&write, result.is_ok());
        self.start_settling();
        result
    }

    /// Writes every page to every member, into both of its slots.
    pub async fn rewrite_map(&self) -> Result<(), ArrayError> {
        for _ in 0..2 {
            for page in 0..self.regions.page_count() {
                let version = self.regions.change_page(page);
                while !self.regions.page_is_durable(page, version) {
                    self.write_page(page).await?;
                }
            }
        }
        Ok(())
    }

    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    async fn load_map(&self) -> Result<(), ArrayError> {
        for page in 0..self.regions.page_count() {
            let offset = self.spec.base_bytes + page as u64 * 2 * PAGE_BYTES as u64;
            let reads: SmallVec<[_; 12]> = self
                .present_slots()
                .into_iter()
                .map(|slot| {
                    let buffer = self.buffers.allocate_zeroed(2 * PAGE_BYTES);
                    let request = IoRequest::read(offset, buffer.clone());
                    (buffer, self.submit_absolute(slot, Class::Foreground, request))
                })
                .collect();
            let mut newest: Option<(u64, Buffer)> = None;
            for (buffer, answer) in reads {
                if answer.await.is_err() {
                    continue;
                }
                for copy in [buffer.slice(0..PAGE_BYTES), buffer.slice(PAGE_BYTES..2 * PAGE_BYTES)] {
                    let sequence = copy.with(|bytes| self.regions.check_page(page, bytes)).flatten();
                    if let Some(sequence) = sequence
                        && newest.as_ref().is_none_or(|(best, _)| sequence > *best)
                    {
                        newest = Some((sequence, copy));
                    }
                }
            }
            let (sequence, bytes) = newest.ok_or(ArrayError::MapLost)?;
            bytes.with(|bytes| self.regions.load_page(page, sequence, bytes));
        }
        Ok(())
    }

    /// Takes back dirty marks of chunks that are quiet; with `all`, of every chunk without a write under way.
    async fn settle(&self, all: bool) -> Result<(), ArrayError> {
        self.check_writable()?;
        let quiet = self.regions.quiet_chunks(all);
        if quiet.is_empty() {
            return Ok(());
        }
        self.flush_members().await?;
        self.regions.mark_clean(&quiet);
        self.persist_map().await
    }

    /// Starts the task that takes dirty marks back, unless it runs. It ends when none is left.
    pub fn start_settling(&self) {
        if self.settling.get() || self.closed.get() || !self.regions.any_to_settle() {
            return;
        }
        self.settling.set(true);
        let Some(inner) = self.me.upgrade() else { return };
        self.context.spawn(async move {
            while inner.regions.any_to_settle() && !inner.closed.get() {
                inner.context.sleep_ns(SETTLE_INTERVAL_NS).await;
                if inner.closed.get() || inner.settle(false).await.is_err() {
                    break;
                }
            }
            inner.settling.set(false);
        });
    }

    /// Writes zeros to a range of a member's data space.
    pub fn submit_zeroes(
        &self,
        slot: usize,
        class: Class,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Completion {
        self.submit(slot, class, IoRequest::range(Operation::WriteZeroes, offset_bytes, length_bytes))
    }
}
