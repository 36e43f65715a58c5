//! Rebuild: fills new slabs, row by row, while clients go on.
//!
//! A region is rebuilt under the locks of its stripes and counts as current in the new slab from
//! then on: reads may use it and writes keep it up to date. Regions never written are skipped.
//! For a slab whose drive was only away, regions not written during its absence are skipped, too.
//! A block whose sources cannot be read, and that redundancy cannot replace, is recorded and
//! reported as lost, and the rebuild continues with the next one.
//!
//! Checksum pages have their two places on neighbouring columns. Where both were gone, nothing is
//! recorded of what comes back, so it is recorded when it is put in place; and until the pages are
//! on the new slab they are kept in memory, since no place that counts may have them.
//!
//! Which rows are done is recorded by the pool; a row that was interrupted is done again. Several
//! regions are in work at once, as many as [`ArrayOptions::background_bytes`](crate::ArrayOptions)
//! allows.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use futures_util::future::join_all;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, DriveError, IoRequest};
use stripewise_layout::{Stripe, UnitRange};

use crate::array::parity::{recover_units, slice_of};
use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::columns::Columns;
use crate::columns::column_work::Fill;
use crate::error::ArrayError;
use crate::map::regions::RegionState;
use crate::member::{Class, Member};
use crate::mutation::{self, Mutation};
use crate::read::recover::HeldStripe;
use crate::rows::{SlotPlace, SlotState};
use crate::stripes::lock_order;
use crate::stripes::stripe_table::StripeGuard;
use crate::sums::Recording;
use crate::sums::pages::AHEAD_PAGES;

/// Maximum attempts to fill a column whose drive refuses a flush each time.
const FILL_TRIES: u32 = 3;

/// Result of rebuilding a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowRebuild {
    /// Bytes written to new slabs.
    pub bytes: u64,
    /// Blocks of 4 KiB that could not be reconstructed and are lost.
    pub lost_blocks: u64,
}

impl Array {
    /// Fills all columns of a row that are to be filled; durable when this ends. Ends with
    /// [`ArrayError::Closed`] when the array is closed; to be stopped so, not by dropping this
    /// future. The row does not count as filled after a restart before the pool has recorded it
    /// ([`Self::rebuilt`]).
    pub async fn rebuild_row(&self, row: u64) -> Result<RowRebuild, ArrayError> {
        for _ in 1..FILL_TRIES {
            let filled = self.fill_row(row).await?;
            match self.finish_rows(&[row]).await {
                Err(ArrayError::NotDurable) => {}
                finished => return finished.map(|()| filled),
            }
        }
        let filled = self.fill_row(row).await?;
        self.finish_rows(&[row]).await.map(|()| filled)
    }

    /// As [`Self::rebuild_row`], but what was filled is not durable yet, and does not count before
    /// [`Self::finish_rows`] has ended well. Many rows are best finished together: their flushes
    /// are one, and their checksum pages lie together on the drive.
    pub async fn fill_row(&self, row: u64) -> Result<RowRebuild, ArrayError> {
        let inner = &self.0;
        inner.check_writable()?;
        let lost = Cell::new(0);
        let mut bytes = 0;
        for column in inner.columns.to_fill(row) {
            bytes += ColumnFill { array: inner, key: (row, column), lost: &lost }.fill().await?;
        }
        Ok(RowRebuild { bytes, lost_blocks: lost.get() })
    }

    /// Makes durable what was filled of rows, checksums included. Where it ends with an error, rows
    /// of these may have to be filled from the beginning; [`ArrayError::NotDurable`]: a drive that
    /// the array cannot do without has refused a flush, and it may succeed the next time.
    pub async fn finish_rows(&self, rows: &[u64]) -> Result<(), ArrayError> {
        let inner = &self.0;
        let keys: Vec<(u64, usize)> = rows
            .iter()
            .flat_map(|&row| inner.columns.to_fill(row).into_iter().map(move |column| (row, column)))
            .collect();
        FilledColumns::of(inner, &keys)?.finish().await
    }

    /// Columns that were filled and are not yet recorded as current: row and column.
    pub fn rebuilt(&self) -> Vec<(u64, usize)> {
        let fills = self.0.columns.fills.borrow();
        let mut rebuilt: Vec<(u64, usize)> =
            fills.iter().filter(|(_, fill)| fill.complete).map(|(key, _)| *key).collect();
        rebuilt.sort_unstable();
        rebuilt
    }

    /// True if a rebuild of the row would not have to wait for requests of clients.
    pub fn is_row_unused(&self, row: u64) -> bool {
        let is_unused = |region| self.0.table.are_unused(self.0.regions.stripes_of(region));
        self.0.columns.regions_of_row(row).all(is_unused)
    }

    /// Bytes of each column that a rebuild of the row has to look at: what of it was ever written.
    pub fn row_written_bytes(&self, row: u64) -> u64 {
        let inner = &self.0;
        let written = |region: &u64| inner.regions.state(*region) != RegionState::Unwritten;
        let regions = inner.columns.regions_of_row(row).filter(written).count() as u64;
        regions * inner.regions.shape.member_region_bytes
    }
}

/// The filling of a column of a row.
struct ColumnFill<'a> {
    array: &'a Inner,
    /// Row and column.
    key: (u64, usize),
    /// Blocks found lost that were not known as lost before.
    lost: &'a Cell<u64>,
}

impl ColumnFill<'_> {
    /// Gives the bytes that were written.
    async fn fill(&self) -> Result<u64, ArrayError> {
        let Self { array, key, .. } = *self;
        let Some(place) = array.columns.rows.borrow().place(key.0, key.1) else { return Ok(0) };
        let Some(member) =
            array.columns.members.borrow().get(place.drive).map(|member| member.member.clone())
        else {
            return Err(fill_ended(&array.columns, place));
        };
        if array.columns.fills.borrow().get(&key).is_some_and(|fill| fill.is_of(place) && fill.complete) {
            // Filled, and not recorded yet.
            return Ok(0);
        }
        if array.columns.fills.borrow().get(&key).is_none_or(|fill| !fill.is_of(place)) {
            let done = vec![false; array.columns.regions_per_row as usize];
            let failures = member.flush_failures().count();
            let (is_fresh, complete, pages) = (false, false, BTreeMap::new());
            array
                .columns
                .fills
                .borrow_mut()
                .insert(key, Fill { place, done, is_fresh, failures, complete, pages });
        }
        let regions = array.columns.regions_of_row(key.0);
        let region_bytes = array.regions.shape.member_region_bytes * array.geometry.width() as u64;
        let workers = (array.options.background_bytes / region_bytes).clamp(1, 16);
        let next = Cell::new(regions.start);
        let bytes = Cell::new(0);
        let worker = |_| lock_order::scope(self.work_on_regions(&next, regions.end, &bytes));
        let results = join_all((0..workers).map(worker)).await;
        results.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(bytes.get())
    }

    async fn work_on_regions(&self, next: &Cell<u64>, end: u64, bytes: &Cell<u64>) -> Result<(), ArrayError> {
        let Self { array, key, .. } = *self;
        let first = key.0 * array.columns.regions_per_row;
        while next.get() < end {
            let region = next.get();
            next.set(region + 1);
            if array.lifecycle.is_closed() {
                return Err(ArrayError::Closed);
            }
            array.sums.load_ahead(region, AHEAD_PAGES).await;
            let is_unwritten = || array.regions.state(region) == RegionState::Unwritten;
            if self.is_current_from_before(region) && !is_unwritten() {
                self.keep_pages(region).await?;
            }
            // Checked only now: earlier writes missed the column. The locks are held until the
            // region is marked: a write in between would miss the new slab.
            let _guards = if self.is_current_from_before(region) || is_unwritten() {
                Vec::new()
            } else {
                if let Some(fill) = array.columns.fills.borrow_mut().get_mut(&key) {
                    fill.is_fresh = true;
                }
                let (filled, guards) = self.fill_region(region).await?;
                bytes.set(bytes.get() + filled);
                self.keep_pages(region).await?;
                guards
            };
            match array.columns.fills.borrow_mut().get_mut(&key) {
                Some(fill) => fill.done[(region - first) as usize] = true,
                None => return Err(ArrayError::Moved { row: key.0, column: key.1 }),
            }
        }
        Ok(())
    }

    /// True if the column was only away, and the region was not written during its absence.
    fn is_current_from_before(&self, region: u64) -> bool {
        let Self { array, key: (row, column), .. } = *self;
        let place = array.columns.rows.borrow().place(row, column);
        place.is_some_and(|place| place.state == SlotState::CatchingUp) && !array.regions.is_behind(region)
    }

    /// Keeps the column's checksum pages of a region in memory until the column is filled.
    async fn keep_pages(&self, region: u64) -> Result<(), ArrayError> {
        let Self { array, key, .. } = *self;
        let Some(sums) = array.sums.get() else { return Ok(()) };
        let length = array.regions.shape.member_region_bytes;
        let pages = sums.table.pin(key.1 as u16, region * length, length).await?;
        if let Some(fill) = array.columns.fills.borrow_mut().get_mut(&key) {
            fill.pages.insert(region, pages);
        }
        Ok(())
    }

    /// Copies what a column should hold of a region; the caller gets the locks of its stripes with
    /// it.
    async fn fill_region(&self, region: u64) -> Result<(u64, Vec<StripeGuard>), ArrayError> {
        let Self { array, key, lost } = *self;
        let of_column = array.columns.units_on(key.1, region);
        let guards = array.table.lock_all(of_column.iter().map(|(stripe, _)| stripe.index).collect()).await;
        let written = of_column.into_iter().filter(|(stripe, _)| !array.regions.is_unwritten(stripe.index));
        let source = |(stripe, unit)| Source {
            stripe,
            unit,
            units: SmallVec::new(),
            buffers: SmallVec::new(),
            answers: SmallVec::new(),
        };
        let mut sources: Vec<Source> = written.map(source).collect();
        // Before the reads and beside them: afterwards, one by one, each would take as long as
        // they.
        let inner = array.me.upgrade().expect("the rebuild holds the array");
        let mut pages = Box::pin(async move { inner.sums.load_region(region).await });
        let are_there = poll_fn(|context| Poll::Ready(pages.as_mut().poll(context).is_ready())).await;
        for source in &mut sources {
            source.send_reads(array, region);
        }
        let pages = (!are_there).then(|| array.context.spawn(pages));
        let mut writes: Vec<(Completion, Stripe, UnitRange, Buffer)> = Vec::new();
        let mut bytes = 0;
        for source in sources {
            let (stripe, unit) = (source.stripe.clone(), source.unit);
            for (range, data) in source.rebuilt(array, lost).await? {
                bytes += range.length();
                let place = stripe.units[unit];
                let request = IoRequest::write(place.offset_bytes + range.start, data.clone(), false);
                let write =
                    array.columns.submit(place.member, Class::Background, request.because(Cause::Rebuild));
                writes.push((write, stripe.clone(), range, data));
            }
        }
        let mut written = Vec::with_capacity(writes.len());
        for (write, stripe, range, data) in writes {
            if let Err(error) = write.await {
                array.note_write_error(&error).await?;
                return Err(ArrayError::Drive(error));
            }
            written.push((stripe, range, data));
        }
        if let Some(pages) = pages {
            pages.await;
        }
        for (stripe, range, data) in &written {
            array.sums.record_content(stripe, *range, data, Recording::Unknown).await?;
        }
        Ok((bytes, guards))
    }
}

/// One stripe of a region being rebuilt: what is read, for which unit.
struct Source {
    stripe: Stripe,
    unit: usize,
    units: SmallVec<[usize; 12]>,
    buffers: SmallVec<[Buffer; 12]>,
    answers: SmallVec<[Completion; 12]>,
}

impl Source {
    /// Sends the reads of as many units as are needed.
    fn send_reads(&mut self, array: &Inner, region: u64) {
        let missing = array.columns.missing_in(self.stripe.index);
        let whole = UnitRange { unit: 0, start: 0, end: array.geometry.interleave_bytes() };
        let mut usable: SmallVec<[usize; 12]> = (0..self.stripe.units.len())
            .filter(|&unit| unit != self.unit && !missing.contains(self.stripe.units[unit].member))
            .filter(|&unit| !array.bad.is_unit_lost(&self.stripe, UnitRange { unit, ..whole }))
            .collect();
        if array.geometry.copies() > 1 && !usable.is_empty() {
            // Spreads the regions over the copies.
            let first = region as usize % usable.len();
            usable.rotate_left(first);
        }
        usable.truncate(array.geometry.data_units());
        for unit in usable {
            let buffer = array.buffers.allocate(whole.end as usize);
            let range = UnitRange { unit, ..whole };
            self.answers.push(array.columns.submit_unit_read(
                &self.stripe,
                range,
                Class::Background,
                Cause::Rebuild,
                buffer.clone(),
            ));
            self.buffers.push(buffer);
            self.units.push(unit);
        }
    }

    /// The unit's content: as a whole, or in blocks where some of it is lost.
    async fn rebuilt(self, array: &Inner, lost: &Cell<u64>) -> Result<Vec<(UnitRange, Buffer)>, ArrayError> {
        let Self { stripe, unit, units, buffers, answers } = self;
        let mut complete = units.len() == array.geometry.data_units();
        for answer in answers {
            if let Err(error) = answer.await {
                complete = false;
                array.note_read_error(&error).await?;
            }
        }
        let whole = UnitRange { unit, start: 0, end: array.geometry.interleave_bytes() };
        for (source, buffer) in units.iter().zip(&buffers) {
            let range = UnitRange { unit: *source, ..whole };
            complete = complete && array.sums.is_possible(&stripe, range, buffer).await?;
        }
        if complete {
            let target = if array.geometry.copies() > 1 {
                buffers[0].clone()
            } else {
                let target = array.buffers.allocate(whole.end as usize);
                recover_units(
                    array.geometry.data_units(),
                    &units,
                    &buffers,
                    &[unit],
                    std::slice::from_ref(&target),
                );
                target
            };
            if array.sums.is_possible(&stripe, whole, &target).await? {
                return Ok(vec![(whole, target)]);
            }
        }
        let mut rebuilt = Vec::new();
        let target = array.buffers.allocate(whole.end as usize);
        for start in (0..whole.end).step_by(BLOCK_BYTES as usize) {
            let block = UnitRange { unit, start, end: start + BLOCK_BYTES };
            let part = slice_of(&target, 0, block.start, block.end);
            match HeldStripe::new(array, &stripe, Class::Background).reconstruct(block, &part).await {
                Ok(()) => rebuilt.push((block, part)),
                Err(error @ ArrayError::Lost { .. }) => {
                    // A drive that failed during the rebuild may have it, and may come back.
                    if !array.geometry.stripe_survives(stripe.index, &array.columns.missing_in(stripe.index))
                    {
                        return Err(error);
                    }
                    let found = array.bad.note_unit_lost(&stripe, block);
                    lost.set(lost.get() + found);
                    if !is_pending(array, &stripe, block) {
                        array.bad.note_unreported(found);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(rebuilt)
    }
}

/// True if the journal has the block's new content: destaging it makes the block whole.
fn is_pending(array: &Inner, stripe: &Stripe, block: UnitRange) -> bool {
    let in_stripe = block.unit as u64 * array.geometry.interleave_bytes() + block.start;
    let at = stripe.index * array.geometry.stripe_data_bytes() + in_stripe;
    block.unit < array.geometry.data_units()
        && array.deferred.pending.holds_any_of(&array.geometry, at, BLOCK_BYTES)
}

/// A column of a row that was filled and is to be made durable.
struct Filled {
    key: (u64, usize),
    place: SlotPlace,
    member: Rc<Member>,
    is_fresh: bool,
    /// Flushes that the drive had refused when the filling began.
    failures: u64,
}

/// Columns of rows that are made durable together.
struct FilledColumns<'a> {
    array: &'a Inner,
    columns: Vec<Filled>,
}

impl<'a> FilledColumns<'a> {
    /// The columns of these, by row and column, that are not durable yet.
    fn of(array: &'a Inner, keys: &[(u64, usize)]) -> Result<Self, ArrayError> {
        let mut columns: Vec<Filled> = Vec::with_capacity(keys.len());
        for &(row, column) in keys {
            let key = (row, column);
            let Some(place) = array.columns.rows.borrow().place(row, column) else { continue };
            let state = array
                .columns
                .fills
                .borrow()
                .get(&key)
                .map(|fill| (fill.is_fresh, fill.failures, fill.complete));
            let member = array.columns.members.borrow().get(place.drive).map(|member| member.member.clone());
            let (Some((is_fresh, failures, complete)), Some(member)) = (state, member) else {
                return Err(fill_ended(&array.columns, place));
            };
            if !complete {
                columns.push(Filled { key, place, member, is_fresh, failures });
            }
        }
        Ok(Self { array, columns })
    }

    /// Makes durable what they were filled with: first the blocks, with a flush of each drive that
    /// was filled, then their checksum pages. From then on they are complete.
    async fn finish(&self) -> Result<(), ArrayError> {
        let Self { array, columns } = self;
        let mut flushed: Vec<&Rc<Member>> = Vec::new();
        // Rows that hold nothing cost nothing.
        for fresh in columns.iter().filter(|filled| filled.is_fresh) {
            if !flushed.iter().any(|member| Rc::ptr_eq(member, &fresh.member)) {
                flushed.push(&fresh.member);
            }
        }
        if !mutation::is_chosen(Mutation::RebuiltBeforeFlush) {
            let flush = |member: &&Rc<Member>| member.submit(Class::Upkeep, IoRequest::flush());
            let flushes: Vec<Completion> = flushed.iter().map(flush).collect();
            let mut results = Vec::with_capacity(flushes.len());
            for flush in flushes {
                results.push(flush.await);
            }
            for (member, result) in flushed.iter().zip(&results) {
                let Err(error) = result else { continue };
                let of_drive = columns.iter().filter(|filled| Rc::ptr_eq(&filled.member, member));
                return Err(self.refused(of_drive, error).await);
            }
            self.check_flushes().await?;
        }
        self.fill_sums().await?;
        // The pages were flushed with all drives; another flush may have met what became of them.
        self.check_flushes().await?;
        let fresh_rows: BTreeSet<u64> =
            columns.iter().filter(|filled| filled.is_fresh).map(|filled| filled.key.0).collect();
        if !fresh_rows.is_empty() && !mutation::is_chosen(Mutation::OlderRecordsStay) {
            self.release_older_records(&fresh_rows).await?;
        }
        for &Filled { key, place, .. } in columns {
            match array.columns.fills.borrow_mut().get_mut(&key) {
                Some(fill) if fill.is_of(place) => {
                    fill.complete = true;
                    fill.pages.clear();
                }
                _ => return Err(fill_ended(&array.columns, place)),
            }
        }
        Ok(())
    }

    /// An error where a drive that was filled has refused a flush since its filling began.
    async fn check_flushes(&self) -> Result<(), ArrayError> {
        for one in &self.columns {
            if let Some(error) = one.member.flush_failures().since(one.failures) {
                let of_drive = self.columns.iter().filter(|other| Rc::ptr_eq(&other.member, &one.member));
                return Err(self.refused(of_drive, &error).await);
            }
        }
        Ok(())
    }

    /// Brings the checksum pages that a filled column keeps to its new place, its own and the
    /// copies of its neighbour's, and makes them durable. The other places of these pages are as
    /// they were, unless the pages were changed.
    async fn fill_sums(&self) -> Result<(), ArrayError> {
        let array = self.array;
        let Some(sums) = array.sums.get() else { return Ok(()) };
        let mut any = false;
        for &Filled { key: (row, column), .. } in &self.columns {
            if array.columns.holds_data(row) {
                sums.table
                    .fill_places(row, column as u16, &|page| array.sums.page_holds_data(row, page))
                    .await?;
                any = true;
            }
        }
        if !any {
            return Ok(());
        }
        array.flush_members().await?;
        array.release_records().await
    }

    /// Releases the journal's older records of rows in which a missing column was filled,
    /// durably, before the column counts as current. Records of writes that found the column
    /// missing leave it out; older records include it. Replaying these after a cut would
    /// overwrite the filled column with old data, and no newer record would correct it.
    async fn release_older_records(&self, rows: &BTreeSet<u64>) -> Result<(), ArrayError> {
        let array = self.array;
        let Some(log) = array.log.open() else { return Ok(()) };
        let stripes =
            |row: &u64| row * array.columns.stripes_per_row..(row + 1) * array.columns.stripes_per_row;
        if rows.iter().any(|row| log.has_any(stripes(row))) {
            array.flush_members().await?;
            // They are kept as long as the map on the drives does not know their regions, or the
            // pool has a block of theirs as lost; more may have been added since.
            while rows.iter().any(|row| log.has_early_in(&stripes(row))) {
                array.flush().await?;
            }
            array.release_records().await?;
        }
        // Also where all were released before: not necessarily durably. What areas on drives that
        // are out hold is not found again.
        log.journal.mark_releases().await
    }

    /// A drive that is being filled has refused a flush, and may have lost any part of what was
    /// filled: it is excluded, or, where the array cannot do without it, the columns are filled
    /// from the beginning.
    async fn refused<'b>(
        &self,
        of_drive: impl Iterator<Item = &'b Filled>,
        error: &DriveError,
    ) -> ArrayError {
        let array = self.array;
        let mut place = None;
        for filled in of_drive {
            array.columns.fills.borrow_mut().remove(&filled.key);
            place = Some(filled.place);
        }
        match (array.note_write_error(error).await, place) {
            (Ok(()), Some(place)) => fill_ended(&array.columns, place),
            (Ok(()), None) | (Err(ArrayError::Drive(_)), _) => ArrayError::NotDurable,
            (Err(error), _) => error,
        }
    }
}

/// Why a column cannot be filled any more.
fn fill_ended(columns: &Columns, place: SlotPlace) -> ArrayError {
    let member = columns.members.borrow().get(place.drive).map(|member| member.member.clone());
    let reason = member.and_then(|member| member.failed());
    let why = reason.map_or_else(|| "it was taken out".to_owned(), |reason| reason.to_string());
    ArrayError::Lost { stripe: 0, what: format!("the drive being filled is gone: {why}") }
}
