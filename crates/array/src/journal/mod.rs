//! The journal of a volume: writes that were acknowledged to clients, or are about to be made in
//! place, kept on several drives until they are durable in place.
//!
//! An *area* is a ring of pages on a drive. A *batch* is one write of one or more records to
//! `copies` areas, at the head of each. Callers [`reserve`](Journal::reserve) room,
//! [`append`](Journal::append), write in place, and [`release`](Journal::release). After a crash
//! [`Journal::open`] returns the records that were not released.
//!
//! # Guarantees
//!
//! With `copies` areas available and up to `copies - 1` of them lost at the same moment as the
//! power:
//!
//! 1. *Found*: a record whose append succeeded, and that was not released, is found, byte for
//!    byte.
//! 2. *Atomic*: the records of one append are found together or not at all; an append that is found
//!    without having been acknowledged is, before `open` returns, on as many areas as if it had
//!    been (as far as there is room).
//! 3. *Ordered*: sequences rise in the order of the calls of `append`; appends end in that order,
//!    so that an acknowledged record is found only together with all earlier ones that are not
//!    released.
//! 4. *Released stays released*: once any append (or [`mark`](Journal::mark)) that was called after
//!    `release(s)` has succeeded, `s` is never found again, whatever else its batch holds. So a
//!    stripe without unreleased records may be written in place without its bytes in the journal,
//!    as soon as the append of the *intent* has ended. Until then `s` may come back: replaying it
//!    must be harmless, as its effects were in place.
//! 5. *Loss is known*: where more was lost than the copies could cover,
//!    [`replay::Replay::missing_batches`] reports it.
//!
//! # Protocol
//!
//! Every batch records the oldest batch with an unreleased record (`oldest live`), and which
//! records in batches from that one on were released since the last batch (*release notes*; each is
//! written once, and as batches are acknowledged in order, any later one makes it durable). A
//! batch's slot is reused only when a durable batch recorded that its number is below the oldest
//! live one. So the batch that a note refers to is gone before the note is. Replay takes T, the
//! highest `oldest live` in any head it finds, and from the batches from T on all records not noted
//! as released. Notes are written in the order of sequences, and those of a batch after a lost one
//! do not count: a released record that is found again is found with all that followed it.
//!
//! When an area is lost, the remaining ones record T in their headers: the lost area may have held
//! the only batch that recorded it, and there may be no later batch.
//!
//! Batch numbers hold the number of the *opening* in their upper bits, and an opening is durable on
//! all areas before its first batch: the number of a batch that was lost is never used for another.
//! An area records the number from which on its batches count, so that stale batches on a returning
//! drive are ignored.
//!
//! # Room
//!
//! `Client` and `InPlace` reservations leave the room that destaging the client's records will take
//! ([`set_destage_percent`](Journal::set_destage_percent)); `Destage` may use all of it. `InPlace`
//! is for the holder of a stripe: it goes before `Client` and finds room where `Client` finds none,
//! since a client that holds a reservation may be waiting for this stripe. Because a ring is freed
//! from its oldest end, progress under pressure is guaranteed only if `Destage` is used for the
//! oldest record ([`Journal::oldest`]): destage in the order of sequences when clients wait.
//!
//! Memory: some ten bytes per record not yet overwritten, plus one entry per batch in a ring;
//! payload only while its batch is written, bounded by the reservations and by four batches in
//! flight per area.
//!
//! Faults expected: torn batches, areas that fail a write (retried once, then the host excludes the
//! drive and another area takes the batch), areas lost or garbage on opening.

mod append;
mod area;
mod batch;
mod copies;
mod gathering;
mod replay;
mod scan;
mod space;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::future::join_all;
use smallvec::SmallVec;
use stripewise_drive::{
    Buffer, BufferPool, Cause, Context, DriveError, DriveKind, Event, IoRequest, Segments,
};

pub use area::Area;
pub(crate) use batch::decode_sealed;
pub(crate) use replay::Found;
pub(crate) use space::Reservation;
pub(crate) use waiting::Quota;

use crate::LocalFuture;
use crate::error::ArrayError;
use crate::member::Class;
use area::{AreaHeader, MIN_AREA_BYTES, Ring};
use batch::PAGE_BYTES;
use state::State;

/// Bits of a batch number below its opening.
const OPENING_SHIFT: u32 = 40;
/// Maximum bytes of an area in a file that are preallocated, and bytes per write.
const MAX_PREALLOCATED_BYTES: u64 = 256 << 20;
const PREALLOCATION_WRITE_BYTES: usize = 1 << 20;
/// Limit of the opening's number, in the bits above.
const MAX_OPENING: u64 = 1 << 23;

/// Owner of the pool's membership records.
pub(crate) trait JournalHost {
    /// Called when a write to a drive's area failed a second time. The host excludes the drive
    /// durably, or returns why it cannot (then the journal is broken); after `Ok` the area is not
    /// used any more.
    fn area_failed<'a>(
        &'a self,
        drive: u32,
        error: &'a DriveError,
    ) -> LocalFuture<'a, Result<(), ArrayError>>;
}

/// Purpose of a record. The journal itself treats all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// New data, acknowledged from the journal, not yet in place.
    Data,
    /// Data and parity that are about to be written in place.
    Redo,
    /// Parity of the `Data` records of this stripe up to `covers`.
    Parity,
    /// Announces a full-stripe or copy write in place: no bytes, only checksums.
    Intent,
}

/// Value of `covers` of an intent that was written when all earlier records of its stripe were
/// durable in place. Otherwise it is 0.
pub(crate) const ALL_BEFORE: u64 = 1;

/// One entry of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// 0 until appended.
    pub sequence: u64,
    pub kind: Kind,
    pub stripe: u64,
    /// For parity: sequence of the last `Data` record of the stripe that it includes. For an
    /// intent: [`ALL_BEFORE`] or 0.
    pub covers: u64,
    pub parts: SmallVec<[Part; 4]>,
    pub sums: Vec<SumRun>,
}

/// Bytes of one strip.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub unit: u16,
    /// Offset in the strip, a multiple of 512 bytes.
    pub start: u32,
    /// Payload; the total length is a multiple of 512 bytes.
    pub segments: Segments,
}

impl Part {
    /// Size of the payload, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len() as u64).sum()
    }
}

/// Checksums of adjacent blocks of a strip; at most 65535 of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SumRun {
    pub unit: u16,
    /// Number of the first 4 KiB block in the strip.
    pub first_block: u32,
    pub sums: SmallVec<[u32; 4]>,
}

/// Fill level of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalFill {
    /// Bytes in use or reserved, over all areas.
    pub used_bytes: u64,
    /// Bytes available to clients, over all areas; clients wait when `used_bytes` reaches this.
    pub capacity_bytes: u64,
    /// Number of unreleased records.
    pub live_records: u64,
}

/// Journal space that cannot be reused yet, over all areas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Total bytes of the rings.
    pub ring_bytes: u64,
    /// Bytes from the oldest unreleased record to the end.
    pub bytes: u64,
    /// Bytes of these before the given record.
    pub bytes_before: u64,
    /// Number of unreleased records.
    pub live_records: u64,
}

impl JournalFill {
    /// Used bytes as a percentage of what clients can use; may exceed 100 while destaging.
    pub(crate) fn percent(&self) -> u64 {
        (self.used_bytes * 100).checked_div(self.capacity_bytes).unwrap_or(100)
    }
}

/// Handle of a journal, see the module. Clones share it.
#[derive(Clone)]
pub(crate) struct Journal(Rc<Inner>);

struct Inner {
    context: Context,
    buffers: BufferPool,
    volume_id: u128,
    epoch: u64,
    opening: u64,
    host: Rc<dyn JournalHost>,
    /// Padding after payloads.
    zeroes: Buffer,
    state: RefCell<State>,
    /// Wakes the batch writer.
    wake: Rc<Event>,
    /// Notified when an area is removed, and when the journal is closed.
    areas_changed: Event,
    pressure: Event,
    writes: Writes,
}

/// Writes to areas in flight, by number, so that slabs are not reused before they have landed.
#[derive(Default)]
struct Writes {
    begun: Cell<u64>,
    in_flight: RefCell<BTreeSet<u64>>,
    arrived: Event,
}

impl Writes {
    /// Registers a write as in flight until the returned guard is dropped.
    fn begin(&self) -> WriteInFlight<'_> {
        let number = self.begun.get();
        self.begun.set(number + 1);
        self.in_flight.borrow_mut().insert(number);
        WriteInFlight { writes: self, number }
    }

    /// Waits until all writes that began before have landed or failed.
    async fn until_arrived(&self) {
        let begun = self.begun.get();
        while self.in_flight.borrow().first().is_some_and(|&oldest| oldest < begun) {
            self.arrived.wait().await;
        }
    }
}

struct WriteInFlight<'a> {
    writes: &'a Writes,
    number: u64,
}

impl Drop for WriteInFlight<'_> {
    fn drop(&mut self) {
        self.writes.in_flight.borrow_mut().remove(&self.number);
        self.writes.arrived.notify_all();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wake.notify_all(); // ends the batch writer
    }
}

impl Journal {
    /// Creates an empty journal. `epoch` must never have been used with this `volume_id`: nothing
    /// older in the areas can then be taken for part of it.
    pub(crate) async fn create(
        context: &Context,
        buffers: &BufferPool,
        volume_id: u128,
        epoch: u64,
        areas: Vec<Area>,
        copies: usize,
        host: Rc<dyn JournalHost>,
    ) -> Result<Self, ArrayError> {
        let journal = Self::assemble(context, buffers, volume_id, epoch, 1, copies, host);
        join_all(areas.iter().map(|area| journal.preallocate(area))).await;
        for area in areas {
            journal.take_into_use(area).await?;
        }
        Ok(journal)
    }

    fn assemble(
        context: &Context,
        buffers: &BufferPool,
        volume_id: u128,
        epoch: u64,
        opening: u64,
        copies: usize,
        host: Rc<dyn JournalHost>,
    ) -> Self {
        let inner = Rc::new(Inner {
            context: context.clone(),
            buffers: buffers.clone(),
            volume_id,
            epoch,
            opening,
            host,
            zeroes: buffers.allocate_zeroed(PAGE_BYTES as usize),
            state: RefCell::new(State::new(copies, opening << OPENING_SHIFT)),
            wake: Rc::new(Event::new()),
            areas_changed: Event::new(),
            pressure: Event::new(),
            writes: Writes::default(),
        });
        context.spawn(append::run_batch_writer(Rc::downgrade(&inner)));
        Self(inner)
    }

    /// Takes another area into use, after writing a new header to it. An error is the drive's.
    pub(crate) async fn add_area(&self, area: Area) -> Result<(), ArrayError> {
        self.preallocate(&area).await;
        self.take_into_use(area).await
    }

    /// Writes zeros to an area in a file, up to [`MAX_PREALLOCATED_BYTES`]. Space of a file that
    /// was never written is only promised: the file system records each first write to it before
    /// that is durable, which takes several times as long as the write itself. Errors are ignored
    /// here; they recur when the area is used.
    async fn preallocate(&self, area: &Area) {
        if area.member.info().kind != DriveKind::File {
            return;
        }
        let zeroes = self.0.buffers.allocate_zeroed(PREALLOCATION_WRITE_BYTES);
        let bytes = area.bytes.min(MAX_PREALLOCATED_BYTES);
        for at in (0..bytes).step_by(PREALLOCATION_WRITE_BYTES) {
            let length = (bytes - at).min(zeroes.len() as u64) as usize;
            let piece = IoRequest::write(area.base_bytes + at, zeroes.slice(0..length), false);
            let _in_flight = self.0.writes.begin();
            if self.broken().is_some() {
                return;
            }
            if area.member.submit(Class::Foreground, piece.because(Cause::Journal)).await.is_err() {
                return;
            }
        }
    }

    async fn take_into_use(&self, area: Area) -> Result<(), ArrayError> {
        assert!(
            area.base_bytes.is_multiple_of(PAGE_BYTES) && area.bytes.is_multiple_of(PAGE_BYTES),
            "an area is whole pages"
        );
        if area.bytes < MIN_AREA_BYTES {
            return Err(too_small(&area));
        }
        let (from_batch, oldest_live) = {
            let state = self.0.state.borrow();
            (state.next_number, state.durable_oldest)
        };
        let header = AreaHeader { epoch: self.0.epoch, opening: self.0.opening, from_batch, oldest_live };
        let page = header.encode(self.0.volume_id, &area, &self.0.buffers);
        let both = Segments::from_iter([page.clone(), page]);
        append::write_fua(&area.member, area.base_bytes, &both).await?;
        {
            let mut state = self.0.state.borrow_mut();
            let id = state.next_ring_id();
            let mut ring = Ring::new(id, area);
            ring.header = (0, from_batch);
            state.rings.push(ring);
        }
        self.0.changed();
        Ok(())
    }

    /// Removes the area of a drive that was excluded, if it has one.
    pub(crate) fn remove_area(&self, drive: u32) {
        // That area may have held the only record of the oldest live batch, and without further
        // writes no other would record it.
        if self.forget_area(drive) && self.0.state.borrow_mut().begins_header_mark_after_loss() {
            self.0.context.spawn(append::mark_in_headers(self.0.clone()));
        }
    }

    /// `false` if the drive has no area.
    fn forget_area(&self, drive: u32) -> bool {
        let ids: SmallVec<[u64; 1]> = {
            let state = self.0.state.borrow();
            let all = state.rings.iter().chain(&state.leaving);
            all.filter(|ring| ring.area.drive == drive).map(|ring| ring.id).collect()
        };
        for &id in &ids {
            self.0.state.borrow_mut().remove_ring(id);
        }
        self.0.areas_changed.notify_all();
        self.0.changed();
        !ids.is_empty()
    }

    /// Stops new batches to an area whose drive is present, before the area is given up. `false` if
    /// fewer than `least` areas would be left. Records that are durable in place need not be
    /// copied, so flush next, then call [`Self::leave_area`].
    pub(crate) fn begin_leaving(&self, drive: u32, least: usize) -> bool {
        let may_leave = self.0.state.borrow_mut().begin_leaving(drive, least);
        self.0.changed();
        may_leave
    }

    /// Gives up an area after [`Self::begin_leaving`], once the other areas have copies of all live
    /// batches and all durable state that only this one held. `false` if they have no room for
    /// that; the area stays in use.
    pub(crate) async fn leave_area(&self, drive: u32) -> Result<bool, ArrayError> {
        let moved = self.move_out().await;
        if matches!(moved, Ok(true)) {
            self.forget_area(drive);
            self.until_written().await;
        } else {
            self.0.state.borrow_mut().stay(drive);
            self.0.changed();
        }
        moved
    }

    async fn move_out(&self) -> Result<bool, ArrayError> {
        // The mark records the oldest live batch, which possibly only that area did; and as batches
        // are acknowledged in order, all batches written there have all their copies by now.
        // Releases of records in live batches are recorded in live batches.
        self.mark().await?;
        Ok(self.restore_copies().await? == 0)
    }

    /// Sets the number of areas that batches are written to. Existing batches stay as they are, see
    /// [`Self::restore_copies`].
    #[cfg(test)]
    pub(crate) fn set_copies(&self, copies: usize) {
        assert!(copies > 0, "a journal has at least one copy");
        self.0.state.borrow_mut().copies = copies;
        self.0.changed();
    }

    /// Sets the space that destaging logs, in percent of what clients log, as a ring is freed only
    /// from its oldest end: that much is kept free of clients. At least 125, the default. `Parity`
    /// records for `Data` records take about 110 per parity unit if one append carries many, 100
    /// more if each has its own append.
    pub(crate) fn set_destage_percent(&self, percent: u64) {
        self.0.state.borrow_mut().destage_percent = percent.max(125);
        self.0.changed();
    }

    /// Sets the size at which a batch of several appends ends, and the maximum number of its
    /// release notes.
    pub(crate) fn set_batch_limits(&self, bytes: u64, notes: usize) {
        let mut state = self.0.state.borrow_mut();
        (state.batch_bytes, state.batch_notes) = (bytes, notes.max(1));
    }

    /// Sets the number before the first sequence, as far as records do not have higher ones. Called
    /// before the first append.
    pub(crate) fn begin_sequences_after(&self, number: u64) {
        let mut state = self.0.state.borrow_mut();
        state.next_sequence = state.next_sequence.max(number + 1);
    }

    /// Releases a record whose effects are durable in place: replay need not return it any more.
    /// Must be called once only.
    pub(crate) fn release(&self, sequence: u64) {
        self.0.state.borrow_mut().release(sequence);
        self.0.changed();
    }

    /// Notes that a `Data` record is in place, though perhaps not durably: no room is kept for
    /// destaging it any more.
    pub(crate) fn note_placed(&self, sequence: u64) {
        self.0.state.borrow_mut().note_placed(sequence);
        self.0.changed();
    }

    /// Makes all earlier releases durable, by writing a batch without records.
    pub(crate) async fn mark(&self) -> Result<(), ArrayError> {
        let reservation = self.reserve(0, Quota::Destage).await?;
        self.append(Vec::new(), reservation).await.map(drop)
    }

    /// Makes all earlier releases durable. Returns at once if they are, or if there is no area left
    /// in which a record could be found. A batch in flight does not count.
    pub(crate) async fn mark_releases(&self) -> Result<(), ArrayError> {
        let is_durable = {
            let state = self.0.state.borrow();
            state.released == state.released_durably || state.rings.is_empty()
        };
        if is_durable { Ok(()) } else { self.mark().await }
    }

    /// Sequence of the oldest unreleased record, which keeps the ring from being freed.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.0.state.borrow().oldest_record()
    }

    /// Maximum space that a release could free; with `sequence`, a record that cannot be released
    /// yet, also the space before it.
    pub(crate) fn held(&self, sequence: Option<u64>) -> Held {
        self.0.state.borrow_mut().held(sequence)
    }

    /// Returns the fill level.
    pub(crate) fn fill(&self) -> JournalFill {
        self.0.state.borrow().fill()
    }

    /// Notified when the fill level rises past 50, 75 or 90 percent, and when a client has to wait.
    pub(crate) fn pressure(&self) -> &Event {
        &self.0.pressure
    }

    /// True if there are fewer areas than copies, or live batches with too few copies.
    pub(crate) fn is_short(&self) -> bool {
        self.0.state.borrow().is_short()
    }

    /// Minimum number of copies: of new batches, or of live ones after an area was lost. 0 once the
    /// journal is broken.
    pub(crate) fn least_copies(&self) -> usize {
        self.0.state.borrow().least_copies()
    }

    /// The error because of which the journal accepts no more appends, if any.
    pub(crate) fn broken(&self) -> Option<ArrayError> {
        self.0.state.borrow().broken.clone()
    }

    /// Makes releases durable and ends the batch writer. Nothing can be
    /// appended afterwards; unreleased records are found on the next opening.
    pub(crate) async fn close(&self) -> Result<(), ArrayError> {
        let has_news = self.0.state.borrow().has_news();
        // State recorded by a batch in flight needs no mark; stopping waits for its writes. If one
        // of them fails, records whose effects are in place are found again.
        let result = if has_news { self.mark().await } else { Ok(()) };
        self.stop().await;
        result
    }

    /// Ends the batch writer without a mark. On return the areas may be given to another volume.
    pub(crate) async fn stop(&self) {
        self.0.state.borrow_mut().fail_all(ArrayError::Closed);
        self.0.areas_changed.notify_all();
        self.0.changed();
        self.0.writes.until_arrived().await;
    }

    /// Waits until no write to an area that was removed before is in flight.
    pub(crate) async fn until_written(&self) {
        self.0.writes.until_arrived().await;
    }
}

fn too_small(area: &Area) -> ArrayError {
    ArrayError::Journal(format!(
        "an area of {} bytes on {} is too small: it needs at least {MIN_AREA_BYTES}",
        area.bytes,
        area.member.label()
    ))
}

fn no_area() -> ArrayError {
    ArrayError::Journal("no drive with one of its areas is left".to_owned())
}
