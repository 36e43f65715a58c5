//! The journal of a volume: what was promised to clients, or is about to be changed in place, kept
//! on several drives until it is durable where it belongs.
//!
//! An *area* is a ring of pages on a drive. A *batch* is one write of one or more records to
//! `copies` areas, each placing it at its own head. Callers [`reserve`](Journal::reserve) room,
//! [`append`](Journal::append), do their work in place, and
//! [`release`](Journal::release). After a crash [`Journal::open`] gives back what was not released.
//!
//! # What is guaranteed
//!
//! With `copies` areas at hand and up to `copies - 1` of them lost in the same instant as the
//! power:
//!
//! 1. *Found*: a record whose append ended well, and that was not released, is found, byte for
//!    byte.
//! 2. *Whole or not at all*: the records of one append are found together or not at all; what is
//!    found in spite of not having been acknowledged is, before `open` ends, on as many areas as if
//!    it had been (as far as there is room).
//! 3. *Order*: sequences rise in the order of the calls of `append`; appends end in that order, so
//!    that a record which is acknowledged is found only together with all earlier ones that are not
//!    released.
//! 4. *Released stays released*: once any append (or [`mark`](Journal::mark)) that was called after
//!    `release(s)` has ended well, `s` is never found again, whatever else its batch holds. So a
//!    stripe without unreleased records may be written in place without its bytes in the journal,
//!    as soon as the append of the *intent* has ended. Until then `s` may come back: doing again
//!    what it says must be harmless, as its effects were in place.
//! 5. *Loss is known*: where more was lost than the copies could cover,
//!    [`replay::Replay::missing_batches`] says so.
//!
//! # How
//!
//! Every batch says which is the oldest batch with a record not released (`oldest live`), and which
//! records in batches from that one on were released since the last batch said so (*release notes*;
//! each goes out once, and that batches are acknowledged in order makes it durable with any later
//! one). A batch's slot is used again only when a durable batch said that its number is below the
//! oldest live one. So what a note speaks of is gone before the note is. Replay takes T, the
//! highest `oldest live` in any head it finds, and of the batches from T on all records not noted
//! as released. Notes go out in the order of sequences, and those of a batch behind a lost one do
//! not count: a record that comes back although it was released comes back with all that followed
//! it.
//!
//! When an area is lost, those that are left say T in their headers: perhaps only it had the batch
//! that said so, and no other may follow.
//!
//! Batch numbers hold the number of the *opening* in their upper bits, and an opening is durable on
//! all areas before its first batch: a number once used for a batch that was lost is never used for
//! another. An area says from which number on its batches count, so that one which comes back with
//! an old life in it brings nothing of it along.
//!
//! # Room
//!
//! `Client` and `InPlace` reservations leave the room that destaging the client's records will take
//! ([`set_destage_percent`](Journal::set_destage_percent)); `Destage` may use all of it. `InPlace`,
//! for who holds a stripe, goes before `Client` and finds room where `Client` finds none: who has
//! room may be waiting for that stripe. Because a ring is freed from its oldest end, progress under
//! pressure is sure only if `Destage` is used for what holds the oldest record
//! ([`Journal::oldest`]): destage in the order of sequences when clients wait.
//!
//! Memory: per record not yet overwritten some ten bytes, plus one entry per batch in a ring;
//! payload only while its batch is written, bounded by what was reserved and by four batches in
//! flight per area.
//!
//! Faults expected: torn batches, areas that fail a write (asked again once, then the host excludes
//! the drive and another area takes the batch), areas lost or garbage at open.

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
/// Of an area in a file, what is written once before it is used, and how much of that at a time.
const MOST_WRITTEN_ONCE_BYTES: u64 = 256 << 20;
const WRITTEN_AT_A_TIME_BYTES: usize = 1 << 20;
/// Openings that fit above.
const MAX_OPENING: u64 = 1 << 23;

/// Whoever keeps the record of which drives belong.
pub(crate) trait JournalHost {
    /// A write to a drive's area failed a second time. The host excludes the drive durably, or
    /// answers why it cannot (then the journal takes nothing more); after `Ok` the area is not used
    /// any more.
    fn area_failed<'a>(
        &'a self,
        drive: u32,
        error: &'a DriveError,
    ) -> LocalFuture<'a, Result<(), ArrayError>>;
}

/// What a record is for. The journal itself treats all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// New data, acknowledged from here, not yet in place.
    Data,
    /// All that is about to be written in place: data and parity.
    Redo,
    /// Parity of the `Data` records of this stripe up to `covers`.
    Parity,
    /// A full-stripe or copy write that is about to be made in place: no bytes, only checksums.
    Intent,
}

/// What an intent covers: all earlier records of its stripe were durable in place when it was
/// written. Otherwise it covers 0: some perhaps were not.
pub(crate) const ALL_BEFORE: u64 = 1;

/// One entry of the journal.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// 0 until appended.
    pub sequence: u64,
    pub kind: Kind,
    pub stripe: u64,
    /// Of parity: up to which of the stripe's `Data` records it goes. Of an intent: [`ALL_BEFORE`].
    pub covers: u64,
    pub parts: SmallVec<[Part; 4]>,
    pub sums: Vec<SumRun>,
}

/// Bytes of one strip.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub unit: u16,
    /// Byte in the strip, a multiple of 512.
    pub start: u32,
    /// Together a multiple of 512.
    pub segments: Segments,
}

impl Part {
    /// Bytes of payload.
    pub(crate) fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len() as u64).sum()
    }
}

/// Checksums of neighbouring blocks of a strip; at most 65535 of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SumRun {
    pub unit: u16,
    /// 4 KiB block in the strip.
    pub first_block: u32,
    pub sums: SmallVec<[u32; 4]>,
}

/// How full the journal is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalFill {
    /// In use or promised, summed over the areas.
    pub used_bytes: u64,
    /// What clients can use, summed over the areas; they wait when `used_bytes` gets there.
    pub capacity_bytes: u64,
    /// Records not released.
    pub live_records: u64,
}

/// What keeps a journal from being used again, summed over the areas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// All there is.
    pub ring_bytes: u64,
    /// From the oldest record not released to the end.
    pub bytes: u64,
    /// Of these, what lies before the record that was asked about.
    pub bytes_before: u64,
    /// Records not released.
    pub live_records: u64,
}

impl JournalFill {
    /// Used part in percent of what clients can use; may pass 100 while destaging.
    pub(crate) fn percent(&self) -> u64 {
        (self.used_bytes * 100).checked_div(self.capacity_bytes).unwrap_or(100)
    }
}

/// See the module. Clones are the same journal.
#[derive(Clone)]
pub(crate) struct Journal(Rc<Inner>);

struct Inner {
    context: Context,
    buffers: BufferPool,
    volume_id: u128,
    epoch: u64,
    opening: u64,
    host: Rc<dyn JournalHost>,
    /// Padding behind payloads.
    zeroes: Buffer,
    state: RefCell<State>,
    /// For the pump: something can perhaps be written.
    wake: Rc<Event>,
    /// An area went, or all is over.
    areas_changed: Event,
    pressure: Event,
    writes: Writes,
}

/// Writes to areas that are under way, by number, so that slabs are not given to others before they
/// have arrived.
#[derive(Default)]
struct Writes {
    begun: Cell<u64>,
    under_way: RefCell<BTreeSet<u64>>,
    arrived: Event,
}

impl Writes {
    /// Until what this gives is dropped, a write is under way.
    fn begin(&self) -> WriteUnderWay<'_> {
        let number = self.begun.get();
        self.begun.set(number + 1);
        self.under_way.borrow_mut().insert(number);
        WriteUnderWay { writes: self, number }
    }

    /// Ends when all that were begun before have arrived, or failed.
    async fn until_arrived(&self) {
        let begun = self.begun.get();
        while self.under_way.borrow().first().is_some_and(|&oldest| oldest < begun) {
            self.arrived.wait().await;
        }
    }
}

struct WriteUnderWay<'a> {
    writes: &'a Writes,
    number: u64,
}

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        self.writes.under_way.borrow_mut().remove(&self.number);
        self.writes.arrived.notify_all();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wake.notify_all(); // the pump ends
    }
}

impl Journal {
    /// A new, empty journal. `epoch` was never used before with this `volume_id`: nothing older in
    /// the areas can be taken for part of it.
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
        join_all(areas.iter().map(|area| journal.write_through_once(area))).await;
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
        context.spawn(append::pump(Rc::downgrade(&inner)));
        Self(inner)
    }

    /// Takes one more area into use, after writing a fresh header there. An error is the drive's.
    pub(crate) async fn add_area(&self, area: Area) -> Result<(), ArrayError> {
        self.write_through_once(&area).await;
        self.take_into_use(area).await
    }

    /// Writes zeros to all of an area that lies in a file, [`MOST_WRITTEN_ONCE_BYTES`] at most. The
    /// space of a file that was never written is only promised: the file system records each first
    /// write to it before that counts as durable, which takes several times as long as the write.
    /// What fails here shows when the area is used.
    async fn write_through_once(&self, area: &Area) {
        if area.member.info().kind != DriveKind::File {
            return;
        }
        let zeroes = self.0.buffers.allocate_zeroed(WRITTEN_AT_A_TIME_BYTES);
        let bytes = area.bytes.min(MOST_WRITTEN_ONCE_BYTES);
        for at in (0..bytes).step_by(WRITTEN_AT_A_TIME_BYTES) {
            let length = (bytes - at).min(zeroes.len() as u64) as usize;
            let piece = IoRequest::write(area.base_bytes + at, zeroes.slice(0..length), false);
            let _under_way = self.0.writes.begin();
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

    /// The drive was excluded: its area is not used any more. Nothing happens if it has none.
    pub(crate) fn remove_area(&self, drive: u32) {
        // Perhaps only that area said from where on there is something live; without further
        // writes no other would.
        if self.forget_area(drive) && self.0.state.borrow_mut().begins_header_mark_after_loss() {
            self.0.context.spawn(append::mark_in_headers(self.0.clone()));
        }
    }

    /// `false`: it has none.
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

    /// Before an area is given up whose drive is there: nothing new goes to it. `false`: fewer than
    /// `least` would be left. What is durable in place need not be copied, so flush, then
    /// [`Self::leave_area`].
    pub(crate) fn begin_leaving(&self, drive: u32, least: usize) -> bool {
        let may_leave = self.0.state.borrow_mut().begin_leaving(drive, least);
        self.0.changed();
        may_leave
    }

    /// Gives up an area that [`Self::begin_leaving`] was called for, when the others have copies of
    /// all that is in use and say durably all that only this one said. `false`: they have no room
    /// for that, and it is used on.
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
        // It says from where on there is something live, which perhaps only that area did; and as
        // batches are acknowledged in order, all that went there has what copies it gets. What was
        // released of what is in use is said by batches in use.
        self.mark().await?;
        Ok(self.restore_copies().await? == 0)
    }

    /// From now on batches go to so many areas. What is there already stays as it is, see
    /// [`Self::restore_copies`].
    #[cfg(test)]
    pub(crate) fn set_copies(&self, copies: usize) {
        assert!(copies > 0, "a journal has at least one copy");
        self.0.state.borrow_mut().copies = copies;
        self.0.changed();
    }

    /// How much destaging logs, in percent of what clients log, as a ring is freed only from its
    /// oldest end: room for that is kept free of clients. 125 unless set, and never less. `Parity`
    /// records for `Data` records take about 110 per parity unit when many go in one append, 100
    /// more when each goes alone.
    pub(crate) fn set_destage_percent(&self, percent: u64) {
        self.0.state.borrow_mut().destage_percent = percent.max(125);
        self.0.changed();
    }

    /// Where a batch of several appends ends, and how many runs of release notes it has at most.
    pub(crate) fn set_batch_limits(&self, bytes: u64, notes: usize) {
        let mut state = self.0.state.borrow_mut();
        (state.batch_bytes, state.batch_notes) = (bytes, notes.max(1));
    }

    /// The records' effects are durable in place: replay need not see this one any more. To be
    /// called once.
    pub(crate) fn release(&self, sequence: u64) {
        self.0.state.borrow_mut().release(sequence);
        self.0.changed();
    }

    /// A `Data` record's effects are in place, though perhaps not durably: no room is kept for
    /// destaging it any more.
    pub(crate) fn note_placed(&self, sequence: u64) {
        self.0.state.borrow_mut().note_placed(sequence);
        self.0.changed();
    }

    /// Goes with the next batch, which is durable when this ends: replay gives back the highest
    /// number that was ever set. No product code sets one.
    #[cfg(test)]
    pub(crate) async fn mark_durable_point(&self, sequence: u64) -> Result<(), ArrayError> {
        {
            let mut state = self.0.state.borrow_mut();
            state.durable_point = state.durable_point.max(sequence);
        }
        self.mark().await
    }

    /// Ends when everything released, and every durable point set, before is durably so: writes a
    /// batch without records.
    pub(crate) async fn mark(&self) -> Result<(), ArrayError> {
        let reservation = self.reserve(0, Quota::Destage).await?;
        self.append(Vec::new(), reservation).await.map(drop)
    }

    /// Ends when everything released before is durably so: at once where it is, or where no area is
    /// left in which anything could be found again. A batch that says so and is only on its way
    /// does not count.
    pub(crate) async fn mark_releases(&self) -> Result<(), ArrayError> {
        let is_durable = {
            let state = self.0.state.borrow();
            state.released == state.released_durably || state.rings.is_empty()
        };
        if is_durable { Ok(()) } else { self.mark().await }
    }

    /// Sequence and stripe-independent age of what holds the ring: the oldest record not released.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.0.state.borrow().oldest_record()
    }

    /// What a release could give back at most; where a record is named that cannot be released yet,
    /// what lies before it.
    pub(crate) fn held(&self, sequence: Option<u64>) -> Held {
        self.0.state.borrow_mut().held(sequence)
    }

    /// How full it is.
    pub(crate) fn fill(&self) -> JournalFill {
        self.0.state.borrow().fill()
    }

    /// Notified when the fill passes 50, 75 or 90 percent upwards, and when a client has to wait.
    pub(crate) fn pressure(&self) -> &Event {
        &self.0.pressure
    }

    /// Whether there are fewer areas than copies, or batches in use that have fewer copies than
    /// they should.
    pub(crate) fn is_short(&self) -> bool {
        self.0.state.borrow().is_short()
    }

    /// On how many areas what it holds is at least: as many as batches go to, or what a lost area
    /// left of those that are in use. 0 where it takes nothing more.
    pub(crate) fn least_copies(&self) -> usize {
        self.0.state.borrow().least_copies()
    }

    /// Why the journal takes nothing more, if so.
    pub(crate) fn broken(&self) -> Option<ArrayError> {
        self.0.state.borrow().broken.clone()
    }

    /// Makes releases and the durable point durable and ends the journal's task. Nothing is
    /// appended any more. What is not released is found when it is opened next.
    pub(crate) async fn close(&self) -> Result<(), ArrayError> {
        let has_news = self.0.state.borrow().has_news();
        // What is told by a batch on its way is no news; stopping waits for its writes. Should one
        // of them fail, records are found again whose effects are in place.
        let result = if has_news { self.mark().await } else { Ok(()) };
        self.stop().await;
        result
    }

    /// Ends the journal's task as things are. Its areas may be somebody else's when this has ended.
    pub(crate) async fn stop(&self) {
        self.0.state.borrow_mut().fail_all(ArrayError::Closed);
        self.0.areas_changed.notify_all();
        self.0.changed();
        self.0.writes.until_arrived().await;
    }

    /// Ends when nothing is on its way any more to areas that were removed before.
    pub(crate) async fn until_written(&self) {
        self.0.writes.until_arrived().await;
    }
}

fn too_small(area: &Area) -> ArrayError {
    ArrayError::Journal(format!(
        "an area of {} bytes on {} is too small: at least {MIN_AREA_BYTES} are needed",
        area.bytes,
        area.member.label()
    ))
}

fn no_area() -> ArrayError {
    ArrayError::Journal("no drive with an area of it is left".to_owned())
}
