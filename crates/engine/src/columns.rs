//! Which column of which row is where, and whether it is there: from places in the layout to slabs
//! on drives, and what is missing.
//!
//! A column of a row counts as missing where its slab holds nothing current: its drive is gone, it
//! is to be filled and the region in question is not yet, or its drive was away while the region
//! was written. What a drive refuses is counted here; a drive that is finished is first recorded as
//! excluded on all others, and only then is a write acknowledged that it does not hold.

use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_drive::{Cause, Completion, DriveError, DriveErrorKind, IoRequest, Operation};
use stripewise_layout::{MemberSet, Place};

use crate::array::{Array, ArrayMember, Inner};
use crate::error::ArrayError;
use crate::flush_losses::OnRefusedFlush;
use crate::member::{Class, Member};
use crate::mutation::{self, Mutation};
use crate::regions::RegionState;
use crate::rows::{RowTable, Run, SlotPlace, SlotState};
use crate::write_log::Logged;

/// Drives at hand, by number.
#[derive(Default)]
pub(crate) struct Members(Vec<Option<ArrayMember>>);

impl Members {
    pub fn get(&self, number: u32) -> Option<&ArrayMember> {
        self.0.get(number as usize)?.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ArrayMember> {
        self.0.iter().flatten()
    }

    fn insert(&mut self, member: ArrayMember) {
        let index = member.number as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(member);
    }

    fn remove(&mut self, number: u32) {
        if let Some(member) = self.0.get_mut(number as usize) {
            *member = None;
        }
    }
}

impl Array {
    /// A drive that rows name, or soon will. To be called before they do.
    pub fn add_member(&self, member: ArrayMember) {
        let inner = &self.0;
        let block_bytes = u64::from(member.member.info().logical_block_bytes);
        inner.block_bytes.set(inner.block_bytes.get().max(block_bytes));
        inner.losses.deal_with(member.number, member.member.flush_failures());
        member.member.tell_of_refusals(inner.me.clone());
        inner.members.borrow_mut().insert(member);
        inner.reload_sums();
        inner.note_wholeness();
    }

    /// A drive is out: to be called by the pool after it recorded that.
    pub fn drive_gone(&self, number: u32) {
        self.0.drive_gone(number);
    }

    /// The queue of a drive, where the array has it.
    pub fn member(&self, number: u32) -> Option<Rc<Member>> {
        self.0.members.borrow().get(number).map(|member| member.member.clone())
    }

    /// Where the rows lie.
    pub fn rows(&self) -> RowTable {
        self.0.rows.borrow().clone()
    }

    /// Takes over a slab map that was recorded. Columns that are being filled go on from where they
    /// are if their place stays.
    pub fn set_rows(&self, rows: RowTable) {
        let inner = &self.0;
        assert_eq!(rows.width(), inner.geometry.width(), "a column per member of the layout");
        let place_of = |key: &(u64, usize)| rows.place(key.0, key.1);
        inner.fills.borrow_mut().retain(|key, fill| {
            place_of(key).is_some_and(|place| {
                fill.is_of(place) && matches!(place.state, SlotState::Rebuilding | SlotState::CatchingUp)
            })
        });
        inner
            .moves
            .borrow_mut()
            .retain(|key, moving| place_of(key).is_some_and(|place| moving.is_from(place)));
        let slab_bytes = inner.spec.slab_bytes;
        inner.bad.retain_lost(|&(column, block)| {
            let place = rows.place(block * crate::array::BLOCK_BYTES / slab_bytes, column);
            place.is_some_and(|place| matches!(place.state, SlotState::Active | SlotState::CatchingUp))
                || inner
                    .fills
                    .borrow()
                    .contains_key(&(block * crate::array::BLOCK_BYTES / slab_bytes, column))
        });
        *inner.rows.borrow_mut() = rows;
        inner.forget_behind();
        inner.note_wholeness();
    }

    /// Rows in which anything is missing or to be filled: first row, rows, columns lacking, and how
    /// many more columns could be lost (negative where too many are).
    pub fn lacking_rows(&self) -> Vec<(u64, u64, MemberSet, isize)> {
        let inner = &self.0;
        let rows = inner.rows.borrow();
        let tolerance = inner.geometry.fault_tolerance() as isize;
        rows.runs()
            .filter_map(|run| {
                let lacking: MemberSet =
                    (0..run.places.len()).filter(|&column| !inner.is_current(run.places[column])).collect();
                let left = tolerance - lacking.len() as isize;
                (!lacking.is_empty()).then_some((run.first_row, run.rows, lacking, left))
            })
            .collect()
    }

    /// Whether everything can be read.
    pub fn is_readable(&self) -> bool {
        let inner = &self.0;
        self.lacking_rows().iter().all(|(_, _, lacking, _)| inner.geometry.survives(lacking))
    }
}

impl Inner {
    /// Whether every column is there and current everywhere, and no block is known as lost.
    pub fn is_whole(&self) -> bool {
        self.whole.get() && self.bad.has_no_lost()
    }

    pub fn note_wholeness(&self) {
        let whole =
            self.rows.borrow().runs().all(|run| run.places.iter().all(|&place| self.is_current(place)));
        self.whole.set(whole);
    }

    /// Whether the place holds current data in all its regions.
    fn is_current(&self, place: SlotPlace) -> bool {
        place.state == SlotState::Active && self.members.borrow().get(place.drive).is_some()
    }

    pub fn row_of(&self, stripe: u64) -> u64 {
        stripe / self.stripes_per_row
    }

    /// Columns that hold nothing current in the stripe.
    pub fn missing_in(&self, stripe: u64) -> MemberSet {
        if self.whole.get() {
            return MemberSet::EMPTY;
        }
        let row = self.row_of(stripe);
        let region = self.regions.region_of(stripe);
        let rows = self.rows.borrow();
        let Some(run) = rows.run(row) else { return MemberSet::EMPTY };
        let members = self.members.borrow();
        let mut missing = MemberSet::EMPTY;
        for (column, place) in run.places.iter().enumerate() {
            let is_there = members.get(place.drive).is_some();
            let is_filled = || {
                let fills = self.fills.borrow();
                fills.get(&(row, column)).is_some_and(|fill| fill.has(region - row * self.regions_per_row))
            };
            let is_current = is_there
                && match place.state {
                    SlotState::Active => true,
                    SlotState::Missing => false,
                    SlotState::Rebuilding => is_filled(),
                    SlotState::CatchingUp => !self.regions.is_behind(region) || is_filled(),
                };
            if !is_current {
                missing.insert(column);
            }
        }
        missing
    }

    /// Whether a write to the row misses a column that may want to catch up later.
    pub fn is_column_away(&self, row: u64) -> bool {
        if self.whole.get() {
            return false;
        }
        let rows = self.rows.borrow();
        let members = self.members.borrow();
        rows.run(row).is_some_and(|run| {
            run.places.iter().any(|place| {
                matches!(place.state, SlotState::Missing | SlotState::CatchingUp)
                    || members.get(place.drive).is_none()
            })
        })
    }

    /// After opening: what was not settled when a column went counts as lacking on it.
    pub fn note_columns_away(&self) {
        for run in self.rows.borrow().runs() {
            if run.places.iter().any(|place| place.state == SlotState::Missing) {
                self.regions.mark_unsettled_behind(self.regions_of_run(run));
            }
        }
    }

    /// Where all columns are current nothing is lacking on any any more.
    fn forget_behind(&self) {
        if !self.regions.any_behind() {
            return;
        }
        for run in self.rows.borrow().runs() {
            if run.places.iter().all(|place| place.state == SlotState::Active) {
                self.regions.clear_behind(self.regions_of_run(run));
            }
        }
    }

    fn regions_of_run(&self, run: &Run) -> std::ops::Range<u64> {
        self.regions_of_row(run.first_row).start..self.regions_of_row(run.end_row() - 1).end
    }

    fn place(&self, column: usize, offset_bytes: u64) -> Option<SlotPlace> {
        self.rows.borrow().place(offset_bytes / self.spec.slab_bytes, column)
    }

    /// The drive behind a place of the layout.
    pub fn member_at(&self, place: Place) -> Option<Rc<Member>> {
        let slot = self.place(place.member, place.offset_bytes)?;
        self.members.borrow().get(slot.drive).map(|member| member.member.clone())
    }

    /// How busy the drive behind a place is.
    pub fn load_at(&self, place: Place) -> usize {
        let Some(slot) = self.place(place.member, place.offset_bytes) else { return usize::MAX };
        self.members.borrow().get(slot.drive).map_or(usize::MAX, |member| member.member.load())
    }

    /// Sends a request, addressed within the column's linear space and within one of its slabs, to
    /// the drive that has it. What changes a column that is being moved goes to both its places.
    pub fn submit(&self, column: usize, class: Class, mut request: IoRequest) -> Completion {
        let slab_bytes = self.spec.slab_bytes;
        let row = request.offset_bytes / slab_bytes;
        let within = request.offset_bytes % slab_bytes;
        debug_assert!(within + request.length_bytes <= slab_bytes, "a request lies within one slab");
        let Some(place) = self.rows.borrow().place(row, column) else {
            return gone(&request);
        };
        if !matches!(request.operation, Operation::Read | Operation::Flush)
            && !mutation::is_chosen(Mutation::MoveToOldPlaceOnly)
            && let Some(to) = self.moves.borrow().get(&(row, column)).and_then(|moving| moving.target())
        {
            return self.submit_to_both(class, request, (row, column), place, to);
        }
        request.offset_bytes = within;
        self.submit_to_slab(place, class, request)
    }

    /// Sends a request, addressed within a slab, to the drive that has it.
    pub fn submit_to_slab(&self, place: SlotPlace, class: Class, mut request: IoRequest) -> Completion {
        let members = self.members.borrow();
        let Some(member) = members.get(place.drive) else { return gone(&request) };
        request.offset_bytes += member.slabs_base_bytes + u64::from(place.slab) * self.spec.slab_bytes;
        member.member.submit(class, request)
    }

    /// Whether the array can do without a drive, on top of what is missing already.
    pub fn can_spare(&self, number: u32) -> bool {
        let rows = self.rows.borrow();
        rows.runs().all(|run| {
            let has_it = |place: &SlotPlace| place.drive == number && place.state != SlotState::Rebuilding;
            if !run.places.iter().any(has_it) {
                // A half-filled slab can always be given up: it only goes back to where it was.
                return true;
            }
            let lacking: MemberSet = (0..run.places.len())
                .filter(|&column| run.places[column].drive == number || !self.is_current(run.places[column]))
                .collect();
            self.geometry.survives(&lacking)
        })
    }

    /// Whether a column of a row lies on the drive, or is on its way there. Maps and journals need
    /// no flush.
    fn has_rows_on(&self, number: u32) -> bool {
        let lies_there = |run: &Run| run.places.iter().any(|place| place.drive == number);
        self.rows.borrow().runs().any(lies_there)
            || self.moves.borrow().values().any(|moving| moving.goes_to(number))
    }

    /// The drive that gave the error, if the array still has it: while an error of the one before
    /// waits to be looked at, a replacement may have come, and must not pay for it.
    fn member_that_gave(&self, error: &DriveError) -> Option<ArrayMember> {
        self.members.borrow().iter().find(|member| member.member.gave(error)).cloned()
    }

    /// A read was refused: counts it against its drive and, where that is finished, excludes it.
    pub async fn note_read_error(&self, error: &DriveError) -> Result<(), ArrayError> {
        let Some(member) = self.member_that_gave(error) else { return Ok(()) };
        member.member.note_read_error(error, self.can_spare(member.number));
        self.exclude_if_failed(&member).await
    }

    /// A write was refused, also the second time. The drive is excluded, unless the array cannot do
    /// without it: then the write has failed, and what the drive still holds stays readable. A
    /// drive whose file system is full is not broken, and others are likely to lie there, too:
    /// writing stops instead.
    pub async fn note_write_error(&self, error: &DriveError) -> Result<(), ArrayError> {
        let Some(member) = self.member_that_gave(error) else { return Ok(()) };
        if error.kind == DriveErrorKind::NoSpace {
            member.member.note_write_error(error, false);
            if self.lifecycle.fill_up(member.member.label().clone()) {
                self.host.file_system_full(member.member.label());
            }
            return Err(ArrayError::FileSystemFull { drive: member.member.label().to_string() });
        }
        let spare = self.can_spare(member.number);
        member.member.note_write_error(error, spare);
        if !spare {
            return Err(ArrayError::Drive(error.clone()));
        }
        self.exclude_if_failed(&member).await
    }

    async fn exclude_if_failed(&self, failed: &ArrayMember) -> Result<(), ArrayError> {
        let Some(reason) = failed.member.failed() else { return Ok(()) };
        // One at a time; a caller that waited finds the work done.
        self.exclusion.until_free().await;
        let is_here = || {
            let members = self.members.borrow();
            members.get(failed.number).is_some_and(|now| Rc::ptr_eq(&now.member, &failed.member))
        };
        if !is_here() {
            return Ok(());
        }
        let _under_way = self.exclusion.begin();
        let result = self.host.exclude(&failed.member, &reason).await;
        // It may be back as a new drive in the meantime.
        if result.is_ok() && is_here() {
            self.drive_gone(failed.number);
        }
        result.map_err(ArrayError::CannotExclude)
    }

    pub fn drive_gone(&self, number: u32) {
        self.members.borrow_mut().remove(number);
        let rows = self.rows.borrow();
        let mut unsettled = Vec::new();
        for run in rows.runs() {
            if run.places.iter().any(|place| place.drive == number && place.state != SlotState::Rebuilding) {
                unsettled.push(self.regions_of_run(run));
            }
        }
        let on_it =
            |row: u64, column: usize| rows.place(row, column).is_some_and(|place| place.drive == number);
        self.fills.borrow_mut().retain(|&(row, column), _| !on_it(row, column));
        // What a missing drive held is gone with it, whether it was valid or not.
        let slab_bytes = self.spec.slab_bytes;
        self.bad
            .retain_lost(|&(column, block)| !on_it(block * crate::array::BLOCK_BYTES / slab_bytes, column));
        drop(rows);
        if let Some(log) = &*self.log.borrow() {
            log.journal.remove_area(number);
        }
        self.cancel_moves_to(number);
        for range in unsettled {
            self.regions.mark_unsettled_behind(range);
        }
        self.note_wholeness();
    }

    /// Makes what the drives acknowledged durable; what was logged for it may be forgotten then.
    pub async fn flush_members(&self) -> Result<(), ArrayError> {
        let Some(log) = self.write_log() else { return self.flush_drives().await };
        // One at a time, since records of one stripe must be released in order; whoever comes
        // meanwhile needs the next one only.
        let wanted = log.flushes_begun.get() + 1;
        while log.flushing.get() {
            log.flushed.wait().await;
            if log.flushes_done.get() >= wanted {
                return Ok(());
            }
        }
        log.flushing.set(true);
        let this = wanted.max(log.flushes_begun.get() + 1);
        log.flushes_begun.set(this);
        let applied = log.take_applied();
        let flushed = match mutation::is_chosen(Mutation::ReleaseBeforeFlush) {
            true => Ok(()),
            false => self.flush_drives().await,
        };
        match flushed {
            Ok(()) => {
                // Data of a region that reads as zeros after a crash is still needed, and with it
                // whatever was written over it since: it must not come back alone.
                let is_early = |logged: &Logged| {
                    !self.is_known_as_written(logged.stripe) || log.has_early(logged.stripe)
                };
                let (early, durable) = applied.into_iter().partition(is_early);
                log.note_early(early);
                log.note_durable(durable);
                log.flushes_done.set(this);
            }
            Err(_) => log.put_back(applied),
        }
        log.flushing.set(false);
        log.flushed.notify_all();
        flushed
    }

    fn is_known_as_written(&self, stripe: u64) -> bool {
        let region = self.regions.region_of(stripe);
        region >= self.regions.count() || self.regions.state(region) == RegionState::Written
    }

    /// The map on the drives was brought up to date: releases data whose regions it knows now.
    pub fn release_early(&self) {
        let Some(log) = self.write_log() else { return };
        let (known, early) =
            log.take_early().into_iter().partition(|logged| self.is_known_as_written(logged.stripe));
        log.note_early(early);
        log.note_durable(known);
    }

    /// Makes what the drives acknowledged durable. An error, too, where a drive that the array
    /// cannot do without has refused a flush of another array since this one last asked: what it
    /// had in its cache may be lost.
    pub async fn flush_drives(&self) -> Result<(), ArrayError> {
        let flush =
            |member: &ArrayMember| (member.clone(), member.member.submit(Class::Upkeep, IoRequest::flush()));
        let flushes: SmallVec<[_; 12]> = self.members.borrow().iter().map(flush).collect();
        let mut first_error = None;
        for (member, answer) in flushes {
            let failures = member.member.flush_failures();
            let refused = match answer.await {
                Err(error) => Some(error),
                Ok(()) if mutation::is_chosen(Mutation::RefusedFlushForgotten) => None,
                Ok(()) => self.losses.news(member.number, failures),
            };
            let refused = refused.filter(|_| !mutation::is_chosen(Mutation::FlushErrorDropped));
            let Some(refused) = refused else { continue };
            if member.member.is_still_there_after(&refused) && !self.has_rows_on(member.number) {
                // The array had nothing in its cache: what the refusal means is for those to say
                // that did.
                self.losses.deal_with(member.number, failures);
                continue;
            }
            if let Err(error) = self.note_write_error(&refused).await {
                self.losses.note_lost(member.number, failures, &refused);
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)?;
        // One that cannot be spared is not among the drives any more, and has perhaps not kept what
        // it acknowledged.
        if self.lifecycle.is_protected() { Err(ArrayError::Protected) } else { Ok(()) }
    }

    /// Writes zeros to a range of a column.
    pub fn submit_zeroes(
        &self,
        column: usize,
        class: Class,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Completion {
        let request = IoRequest::range(Operation::WriteZeroes, offset_bytes, length_bytes);
        self.submit(column, class, request.because(Cause::Zero))
    }
}

impl OnRefusedFlush for Inner {
    /// Takes the drive out of service where the array can do without it; the flush that meets the
    /// error, or the next one, has it excluded. Where the array cannot, that flush reports what was
    /// lost.
    fn flush_was_refused(&self, error: &DriveError) {
        if mutation::is_chosen(Mutation::FlushErrorDropped)
            || mutation::is_chosen(Mutation::RefusedFlushForgotten)
        {
            return;
        }
        let Some(member) = self.member_that_gave(error) else { return };
        if self.has_rows_on(member.number) && self.can_spare(member.number) {
            member.member.fail_with(error);
        }
    }
}

/// The answer for a place that no drive at hand has.
pub(crate) fn gone(request: &IoRequest) -> Completion {
    Completion::ready(Err(request.error(&"missing drive".into(), DriveErrorKind::Gone, None)))
}
