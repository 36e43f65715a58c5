//! The columns of each row: their places (slabs on drives), and which of them are missing.
//!
//! A column of a row counts as missing where its slab holds nothing current: its drive is gone, it
//! is to be filled and the region in question is not filled yet, or its drive was away while the
//! region was written. A change to a column that is being migrated goes to both its places.

pub(crate) mod column_work;
pub(crate) mod members;
pub(crate) mod write_policy;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, Context, DriveError, IoRequest, Operation, completion};
use stripewise_layout::{Geometry, MemberSet, Place, Stripe, UnitRange};

use crate::array::spec::ArrayMember;
use crate::checksums::Pin;
use crate::columns::column_work::{Fill, Migration};
use crate::columns::members::{Members, gone};
use crate::columns::write_policy::WritePolicy;
use crate::map::regions::{RegionState, Regions};
use crate::member::{Class, Member};
use crate::mutation::{self, Mutation};
use crate::rows::{RowTable, Run, SlotPlace, SlotState};

/// The columns of an array, row by row.
pub(crate) struct Columns {
    me: Weak<Self>,
    context: Context,
    geometry: Geometry,
    slab_bytes: u64,
    pub stripes_per_row: u64,
    pub regions_per_row: u64,
    regions: Rc<Regions>,
    pub rows: RefCell<RowTable>,
    pub members: RefCell<Members>,
    write_policy: Cell<WritePolicy>,
    /// Every column of every row is current and its drive present.
    whole: Cell<bool>,
    /// Columns of rows that are being filled, by row and column.
    pub fills: RefCell<FxHashMap<(u64, usize), Fill>>,
    /// Columns of rows that are being migrated, by row and column.
    pub migrations: RefCell<FxHashMap<(u64, usize), Migration>>,
}

impl Columns {
    /// Creates the columns of rows of `slab_bytes` slabs, without any drive yet.
    pub(crate) fn new(
        context: &Context,
        geometry: &Geometry,
        slab_bytes: u64,
        regions: &Rc<Regions>,
        rows: RowTable,
    ) -> Rc<Self> {
        assert_eq!(rows.width(), geometry.width(), "a column per member of the layout");
        let regions_per_row = slab_bytes / regions.shape.member_region_bytes;
        let columns = Rc::new_cyclic(|me| Self {
            me: me.clone(),
            context: context.clone(),
            geometry: geometry.clone(),
            slab_bytes,
            stripes_per_row: regions_per_row * regions.shape.stripes_per_region,
            regions_per_row,
            regions: regions.clone(),
            rows: RefCell::new(rows),
            members: RefCell::default(),
            write_policy: Cell::default(),
            whole: Cell::new(false),
            fills: RefCell::default(),
            migrations: RefCell::default(),
        });
        columns.note_wholeness();
        columns
    }

    /// Adds a drive that rows name, or soon will.
    pub(crate) fn add_member(&self, member: ArrayMember) {
        self.members.borrow_mut().insert(member);
        self.note_members();
        self.note_wholeness();
    }

    /// Replaces the slab map. Fills and migrations continue where their place stays the same.
    pub(crate) fn set_rows(&self, rows: RowTable) {
        assert_eq!(rows.width(), self.geometry.width(), "a column per member of the layout");
        let place_of = |key: &(u64, usize)| rows.place(key.0, key.1);
        self.fills.borrow_mut().retain(|key, fill| {
            place_of(key).is_some_and(|place| {
                fill.is_of(place) && matches!(place.state, SlotState::Rebuilding | SlotState::CatchingUp)
            })
        });
        self.migrations
            .borrow_mut()
            .retain(|key, migration| place_of(key).is_some_and(|place| migration.is_from(place)));
        *self.rows.borrow_mut() = rows;
        self.forget_behind();
        self.note_wholeness();
    }

    /// Removes a drive, and with it the slabs on it, valid or not.
    pub(crate) fn remove_member(&self, number: u32) {
        self.members.borrow_mut().remove(number);
        self.note_members();
        let rows = self.rows.borrow();
        let on_it =
            |row: u64, column: usize| rows.place(row, column).is_some_and(|place| place.drive == number);
        self.fills.borrow_mut().retain(|&(row, column), _| !on_it(row, column));
        self.cancel_migrations_to(number);
        for run in rows.runs() {
            if run.places.iter().any(|place| place.drive == number && place.state != SlotState::Rebuilding) {
                self.regions.mark_undurable_behind(self.regions_of_run(run));
            }
        }
        drop(rows);
        self.note_wholeness();
    }

    /// True if every column of every row is current and its drive present.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.get()
    }

    fn note_wholeness(&self) {
        let rows = self.rows.borrow();
        self.whole.set(rows.runs().all(|run| run.places.iter().all(|&place| self.is_current(place))));
    }

    /// True if a block of a column, by its number in the column's linear space, lies on the drive.
    pub(crate) fn is_block_on(&self, column: usize, block: u64, block_bytes: u64, number: u32) -> bool {
        self.place(column, block * block_bytes).is_some_and(|place| place.drive == number)
    }

    /// True if a block of a column, by its number in the column's linear space, is on a drive that
    /// has it, or is being filled.
    pub(crate) fn holds_block(&self, column: usize, block: u64, block_bytes: u64) -> bool {
        let place = self.place(column, block * block_bytes);
        place.is_some_and(|place| matches!(place.state, SlotState::Active | SlotState::CatchingUp))
            || self.fills.borrow().contains_key(&(block * block_bytes / self.slab_bytes, column))
    }

    /// Keeps a column's checksum pages in memory while the column is being filled. They belong to a
    /// region that was unwritten when the filling passed it, and is now being written.
    pub(crate) fn keep_fresh_pages(&self, column: usize, region: u64, pages: Pin) {
        let row = region / self.regions_per_row;
        if let Some(fill) = self.fills.borrow_mut().get_mut(&(row, column))
            && !fill.complete
        {
            fill.pages.insert(region, pages);
        }
    }

    /// True if the place holds current data in all its regions.
    pub(crate) fn is_current(&self, place: SlotPlace) -> bool {
        place.state == SlotState::Active && self.members.borrow().get(place.drive).is_some()
    }

    pub(crate) fn row_of(&self, stripe: u64) -> u64 {
        stripe / self.stripes_per_row
    }

    /// Regions of the row, as far as the volume reaches.
    pub(crate) fn regions_of_row(&self, row: u64) -> Range<u64> {
        let first = row * self.regions_per_row;
        first..(first + self.regions_per_row).min(self.regions.count())
    }

    /// True if any region of the row was ever written.
    pub(crate) fn holds_data(&self, row: u64) -> bool {
        self.regions_of_row(row).any(|region| self.regions.state(region) != RegionState::Unwritten)
    }

    /// Columns of the row that are to be filled.
    pub(crate) fn to_fill(&self, row: u64) -> SmallVec<[usize; 4]> {
        let rows = self.rows.borrow();
        let Some(run) = rows.run(row) else { return SmallVec::new() };
        let to_fill = |column: &usize| {
            matches!(run.places[*column].state, SlotState::Rebuilding | SlotState::CatchingUp)
        };
        (0..run.places.len()).filter(to_fill).collect()
    }

    /// The stripes of a region that have a unit on the column, with the number of that unit; each
    /// stripe has at most one.
    pub(crate) fn units_on(&self, column: usize, region: u64) -> Vec<(Stripe, usize)> {
        let on_column = |index: u64| {
            let stripe = self.geometry.stripe(index);
            let unit = stripe.units.iter().position(|place| place.member == column)?;
            Some((stripe, unit))
        };
        self.regions.stripes_of(region).filter_map(on_column).collect()
    }

    fn regions_of_run(&self, run: &Run) -> Range<u64> {
        self.regions_of_row(run.first_row).start..self.regions_of_row(run.end_row() - 1).end
    }

    /// Columns without current data in the stripe.
    pub(crate) fn missing_in(&self, stripe: u64) -> MemberSet {
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

    /// True if a write to the row misses a column that may catch up later.
    pub(crate) fn is_column_away(&self, row: u64) -> bool {
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

    /// After opening: marks regions that were not durable when a column went away as behind.
    pub(crate) fn note_columns_away(&self) {
        for run in self.rows.borrow().runs() {
            if run.places.iter().any(|place| place.state == SlotState::Missing) {
                self.regions.mark_undurable_behind(self.regions_of_run(run));
            }
        }
    }

    /// Forgets regions that were behind in rows whose columns are all current.
    pub(crate) fn forget_behind(&self) {
        if !self.regions.any_behind() {
            return;
        }
        for run in self.rows.borrow().runs() {
            if run.places.iter().all(|place| place.state == SlotState::Active) {
                self.regions.clear_behind(self.regions_of_run(run));
            }
        }
    }

    /// Rows with missing or unfilled columns: first row, number of rows, those columns, and the
    /// number of further columns that may be lost (negative if too many are missing).
    pub(crate) fn lacking_rows(&self) -> Vec<(u64, u64, MemberSet, isize)> {
        let rows = self.rows.borrow();
        let tolerance = self.geometry.fault_tolerance() as isize;
        rows.runs()
            .filter_map(|run| {
                let lacking: MemberSet =
                    (0..run.places.len()).filter(|&column| !self.is_current(run.places[column])).collect();
                let left = tolerance - lacking.len() as isize;
                (!lacking.is_empty()).then_some((run.first_row, run.rows, lacking, left))
            })
            .collect()
    }

    fn place(&self, column: usize, offset_bytes: u64) -> Option<SlotPlace> {
        self.rows.borrow().place(offset_bytes / self.slab_bytes, column)
    }

    /// The slab behind a place of the layout.
    pub(crate) fn slot_of(&self, place: Place) -> Option<SlotPlace> {
        self.place(place.member, place.offset_bytes)
    }

    /// The drive behind a place of the layout.
    pub(crate) fn member_at(&self, place: Place) -> Option<Rc<Member>> {
        let slot = self.place(place.member, place.offset_bytes)?;
        self.members.borrow().get(slot.drive).map(|member| member.member.clone())
    }

    /// Load of the drive behind a place.
    pub(crate) fn load_at(&self, place: Place) -> usize {
        let Some(slot) = self.place(place.member, place.offset_bytes) else { return usize::MAX };
        self.members.borrow().get(slot.drive).map_or(usize::MAX, |member| member.member.load())
    }

    /// The write policy for the drives at hand.
    pub(crate) fn write_policy(&self) -> WritePolicy {
        self.write_policy.get()
    }

    fn note_members(&self) {
        let members = self.members.borrow();
        self.write_policy.set(WritePolicy::of(members.iter().map(|member| member.member.info())));
    }

    /// True if any drive is serving clients at the moment.
    pub(crate) fn serve_clients(&self) -> bool {
        self.members.borrow().iter().any(|member| member.member.serves_clients())
    }

    /// Sends a request, addressed within the column's linear space and within one of its slabs, to
    /// the drive that holds the slab. A change to a column that is being migrated goes to both
    /// places.
    pub(crate) fn submit(&self, column: usize, class: Class, mut request: IoRequest) -> Completion {
        let slab_bytes = self.slab_bytes;
        let row = request.offset_bytes / slab_bytes;
        let within = request.offset_bytes % slab_bytes;
        debug_assert!(within + request.length_bytes <= slab_bytes, "a request lies within one slab");
        let Some(place) = self.rows.borrow().place(row, column) else {
            return gone(&request);
        };
        if !matches!(request.operation, Operation::Read | Operation::Flush)
            && !mutation::is_chosen(Mutation::MoveToOldPlaceOnly)
            && let Some(to) =
                self.migrations.borrow().get(&(row, column)).and_then(|migration| migration.target())
        {
            return self.submit_to_both(class, request, (row, column), place, to);
        }
        request.offset_bytes = within;
        self.submit_to_slab(place, class, request)
    }

    /// Reads a range of a unit from its member.
    pub(crate) fn submit_unit_read(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        class: Class,
        cause: Cause,
        buffer: Buffer,
    ) -> Completion {
        let place = stripe.units[range.unit];
        let request = IoRequest::read(place.offset_bytes + range.start, buffer);
        self.submit(place.member, class, request.because(cause))
    }

    /// Sends a request, addressed within a slab, to the drive that holds the slab.
    pub(crate) fn submit_to_slab(
        &self,
        place: SlotPlace,
        class: Class,
        mut request: IoRequest,
    ) -> Completion {
        let members = self.members.borrow();
        let Some(member) = members.get(place.drive) else { return gone(&request) };
        request.offset_bytes += member.slabs_base_bytes + u64::from(place.slab) * self.slab_bytes;
        member.member.submit(class, request)
    }

    /// Writes to a column that is being migrated, and completes when both places have. If the new
    /// place refuses, the migration ends and the write fails, so that the drive is excluded before
    /// the write counts: the pool may be recording the new place as the column's own at this
    /// moment.
    pub(crate) fn submit_to_both(
        &self,
        class: Class,
        mut request: IoRequest,
        key: (u64, usize),
        from: SlotPlace,
        to: SlotPlace,
    ) -> Completion {
        request.offset_bytes %= self.slab_bytes;
        let first = self.submit_to_slab(from, class, request.clone());
        let second = self.submit_to_slab(to, class, request);
        let (sender, answer) = completion();
        let columns = self.me.upgrade().expect("the array holds them");
        self.context.spawn(async move {
            let result = first.await;
            let result_of_second = second.await;
            if result_of_second.is_err() {
                columns.fail_move(key, to);
            }
            sender.complete(result.and(result_of_second));
        });
        answer
    }

    /// Ends a migration whose new place has refused a request.
    pub(crate) fn fail_move(&self, key: (u64, usize), to: SlotPlace) {
        if let Some(migration) = self.migrations.borrow_mut().get_mut(&key) {
            migration.fail(to);
        }
    }

    /// Gives up migrations to a drive that is gone.
    pub(crate) fn cancel_migrations_to(&self, number: u32) {
        let mut migrations = self.migrations.borrow_mut();
        migrations.values_mut().filter(|migration| migration.goes_to(number)).for_each(Migration::give_up);
    }

    /// Writes zeros to a range of a column.
    pub(crate) fn submit_zeroes(
        &self,
        column: usize,
        class: Class,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Completion {
        let request = IoRequest::range(Operation::WriteZeroes, offset_bytes, length_bytes);
        self.submit(column, class, request.because(Cause::Zero))
    }

    /// True if the array survives the loss of this drive on top of what is missing already.
    pub(crate) fn can_spare(&self, number: u32) -> bool {
        let rows = self.rows.borrow();
        rows.runs().all(|run| {
            let has_it = |place: &SlotPlace| place.drive == number && place.state != SlotState::Rebuilding;
            if !run.places.iter().any(has_it) {
                // Giving up a half-filled slab returns the column to its former place.
                return true;
            }
            let lacking: MemberSet = (0..run.places.len())
                .filter(|&column| run.places[column].drive == number || !self.is_current(run.places[column]))
                .collect();
            self.geometry.survives(&lacking)
        })
    }

    /// True if a column of a row lies on the drive or is being migrated to it. Maps and journals
    /// need no flush.
    pub(crate) fn has_rows_on(&self, number: u32) -> bool {
        let lies_there = |run: &Run| run.places.iter().any(|place| place.drive == number);
        self.rows.borrow().runs().any(lies_there)
            || self.migrations.borrow().values().any(|migration| migration.goes_to(number))
    }

    /// Returns the drive that reported the error, if the array still has it. A replacement may have
    /// arrived before the error is handled, and must not be blamed for it.
    pub(crate) fn member_that_gave(&self, error: &DriveError) -> Option<ArrayMember> {
        self.members.borrow().iter().find(|member| member.member.gave(error)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use stripewise_drive::{Buffer, Drive, MemoryDrive};
    use stripewise_layout::{Level, Shape};
    use stripewise_runtime::VirtualExecutor;

    use super::*;
    use crate::map::regions::RegionShape;
    use crate::member::MemberOptions;
    use crate::tuning::MapGrain;

    const SLAB: u64 = 1 << 20;

    fn place(drive: u32, slab: u32, state: SlotState) -> SlotPlace {
        SlotPlace { drive, slab, state }
    }

    /// RAID 5 of three columns and two rows on four drives; drive 3 has nothing yet.
    fn columns(context: &Context) -> (Rc<Columns>, Vec<Rc<MemoryDrive>>) {
        let shape =
            Shape { level: Level::Raid5, width: 3, groups: 1, interleave_bytes: 64 << 10, rotation_rows: 1 };
        let geometry = Geometry::new(shape, 64 * SLAB).expect("a possible shape");
        let regions = Regions::new(RegionShape::of(&geometry), MapGrain::default(), 0, 1, 2);
        let mut rows = RowTable::new(3, 2);
        let row: Vec<SlotPlace> = (0..3).map(|drive| place(drive, 0, SlotState::Active)).collect();
        rows.set(0, 2, &row);
        let columns = Columns::new(context, &geometry, SLAB, &Rc::new(regions.expect("little memory")), rows);
        let drives: Vec<Rc<MemoryDrive>> =
            (0..4).map(|number| MemoryDrive::new(&format!("d{number}"), 8 * SLAB)).collect();
        for (number, drive) in (0..).zip(&drives) {
            let member = Member::new(context, drive.clone(), MemberOptions::default());
            columns.add_member(ArrayMember { number, member, slabs_base_bytes: 4096, sums_base_bytes: 0 });
        }
        (columns, drives)
    }

    #[test]
    fn column_without_drive_or_unfilled_is_missing() {
        let executor = VirtualExecutor::new();
        let (columns, _drives) = columns(&executor.context());
        assert!(columns.is_whole() && columns.missing_in(0).is_empty());
        columns.remove_member(1);
        let missing: Vec<usize> = columns.missing_in(0).iter().collect();
        assert_eq!((columns.is_whole(), missing), (false, vec![1]));
        assert!(columns.is_column_away(0) && !columns.can_spare(0) && columns.can_spare(3));

        let mut rows = columns.rows.borrow().clone();
        let filling = place(3, 0, SlotState::Rebuilding);
        rows.update(|_, _, places| {
            places[1] = filling;
            true
        });
        columns.set_rows(rows);
        let fill = Fill {
            place: filling,
            done: vec![false],
            is_fresh: false,
            failures: 0,
            complete: false,
            pages: Default::default(),
        };
        columns.fills.borrow_mut().insert((0, 1), fill);
        assert_eq!(columns.missing_in(0).len(), 1);
        columns.fills.borrow_mut().get_mut(&(0, 1)).expect("just put there").done[0] = true;
        let second_row = columns.stripes_per_row;
        assert_eq!((columns.missing_in(0).len(), columns.missing_in(second_row).len()), (0, 1));
        assert!(columns.can_spare(3), "a half-filled slab goes back to where it was");
    }

    #[test]
    fn moving_column_writes_both_places_until_refusal() {
        let executor = VirtualExecutor::new();
        let (columns, drives) = columns(&executor.context());
        let (from, to) = (place(2, 0, SlotState::Active), place(3, 5, SlotState::Active));
        columns.migrations.borrow_mut().insert((0, 2), Migration::new(from, to));
        let write = |byte: u8| {
            let data = Buffer::from_bytes(&[byte; 4096]);
            columns.submit(2, Class::Foreground, IoRequest::write(8192, data, false))
        };
        let held = |drive: usize, slab: u64| {
            let buffer = Buffer::from_bytes(&[0; 4096]);
            let at = 4096 + slab * SLAB + 8192;
            let read = drives[drive].submit(IoRequest::read(at, buffer.clone())).try_take();
            assert!(matches!(read, Ok(Ok(()))));
            buffer.with(|bytes| bytes[0]).expect("no phantom")
        };
        executor.block_on(async {
            assert!(write(7).await.is_ok());
            assert_eq!((held(2, 0), held(3, 5)), (7, 7));
            columns.fail_move((0, 2), to);
            assert!(write(8).await.is_ok());
            assert_eq!((held(2, 0), held(3, 5)), (8, 7));
        });
    }
}
