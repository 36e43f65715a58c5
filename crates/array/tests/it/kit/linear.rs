//! Arrays without a pool: every row on the same drives, one slab after the other, the region map in
//! the first slabs of each. For tests and benchmarks of the engine by itself; nothing of it is
//! recorded anywhere.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_layout::{MemberSet, Shape};

use stripewise_array::rows::{Places, RowTable, SlotPlace, SlotState};
use stripewise_array::tuning::MapGrain;
use stripewise_array::{
    Area, AreaPlace, Array, ArrayError, ArrayInit, ArrayMember, ArraySpec, BlockSet, Member, RowRebuild,
    SumsInit, page_bytes_per_slab,
};

/// Memory for checksum pages, unless the caller changes it.
const SUMS_CACHE_BYTES: usize = 64 << 20;

thread_local! {
    /// Arrays put together on this thread: each opening's pages are newer than those of the ones
    /// before.
    static OPENINGS: Cell<u64> = const { Cell::new(0) };
}

/// Place of an array on its drives, and its layout.
#[derive(Clone, Debug)]
pub struct LinearSpec {
    /// The array's identity.
    pub id: u128,
    /// Its layout.
    pub shape: Shape,
    /// Offset of the array on every drive, bytes.
    pub base_bytes: u64,
    /// Its space on every drive, region map and journal included, bytes.
    pub space_bytes: u64,
    /// Slabs of its journal on every drive; none: no journal.
    pub journal_slabs: u64,
    /// Acknowledge partial stripes when the journal has them.
    pub write_back: bool,
    /// True if its blocks have checksums. Every layout then needs a journal: without one, writes in
    /// flight at a power cut do not match their checksums afterwards.
    pub checksums: bool,
}

/// State of a column when the array is opened. Column *i* is drive number *i*.
#[derive(Clone)]
pub enum SlotInit {
    /// Current data.
    Active(Rc<Member>),
    /// Nothing.
    Missing,
    /// A replacement that is current in rows below this one.
    Rebuilding(Rc<Member>, u64),
}

impl LinearSpec {
    /// The array's own specification: slabs of 1 MiB, larger where the layout needs it.
    pub fn array_spec(&self) -> ArraySpec {
        let spec = |slab_bytes| ArraySpec { id: self.id, shape: self.shape, slab_bytes };
        let sizes = (20..=27).map(|bits| 1u64 << bits);
        sizes.map(spec).find(|spec| spec.geometry().is_ok()).unwrap_or_else(|| spec(1 << 20))
    }

    /// The space for pages of checksums in front of the slabs, and how many slabs there are.
    fn sums_bytes(&self, slab_bytes: u64) -> (u64, u64) {
        if !self.checksums {
            return (0, self.space_bytes / slab_bytes);
        }
        let per_slab = page_bytes_per_slab(slab_bytes);
        let area = |slabs: u64| (slabs * per_slab).next_multiple_of(1 << 20);
        let mut slabs = self.space_bytes / (slab_bytes + per_slab);
        while slabs > 0 && area(slabs) + slabs * slab_bytes > self.space_bytes {
            slabs -= 1;
        }
        (area(slabs), slabs)
    }

    fn slabs_base_bytes(&self) -> u64 {
        self.base_bytes + self.sums_bytes(self.array_spec().slab_bytes).0
    }

    /// Slabs of the region map on each drive, and rows of data behind it and the journal.
    fn slabs(&self) -> Result<(u64, u64), ArrayError> {
        let spec = self.array_spec();
        let slabs = self.sums_bytes(spec.slab_bytes).1;
        let map_slabs = spec.map_bytes(slabs, MapGrain::default())?.div_ceil(spec.slab_bytes);
        Ok((map_slabs, slabs.saturating_sub(map_slabs + self.journal_slabs)))
    }

    /// Offset of the data on every drive, bytes.
    pub fn data_base_bytes(&self) -> Result<u64, ArrayError> {
        Ok(self.slabs_base_bytes() + (self.slabs()?.0 + self.journal_slabs) * self.array_spec().slab_bytes)
    }

    /// Puts the array together.
    pub fn init(&self, slots: Vec<SlotInit>) -> Result<ArrayInit, ArrayError> {
        let spec = self.array_spec();
        let (map_slabs, rows) = self.slabs()?;
        let mut table = RowTable::new(self.shape.width, rows);
        let places = |state_of: &dyn Fn(&SlotInit) -> SlotState, row: u64| -> Places {
            let slab = (map_slabs + self.journal_slabs + row) as u32;
            let place = |(drive, slot)| SlotPlace { drive: drive as u32, slab, state: state_of(slot) };
            slots.iter().enumerate().map(place).collect()
        };
        for row in 0..rows {
            let state_of = |slot: &SlotInit| match slot {
                SlotInit::Active(_) => SlotState::Active,
                SlotInit::Missing => SlotState::Missing,
                SlotInit::Rebuilding(_, next) if row < *next => SlotState::Active,
                SlotInit::Rebuilding(..) => SlotState::Rebuilding,
            };
            table.set(row, 1, &places(&state_of, row));
        }
        let members = slots.iter().enumerate().filter_map(|(number, slot)| match slot {
            SlotInit::Active(member) | SlotInit::Rebuilding(member, _) => {
                Some(self.member(number as u32, member.clone()))
            }
            SlotInit::Missing => None,
        });
        let map_place = |number| AreaPlace { drive: number as u32, slab: 0, slabs: map_slabs as u32 };
        let journal_place = |number| AreaPlace {
            drive: number as u32,
            slab: map_slabs as u32,
            slabs: self.journal_slabs as u32,
        };
        let with_journal = if self.journal_slabs == 0 { 0 } else { slots.len() };
        Ok(ArrayInit {
            size_bytes: rows * spec.row_data_bytes()?,
            spec,
            rows: table,
            map: (0..slots.len()).map(map_place).collect(),
            journal: (0..with_journal).map(journal_place).collect(),
            journal_epoch: 1,
            write_back: self.write_back,
            lost_blocks: BlockSet::default(),
            dead_blocks: BlockSet::default(),
            checksums: self.checksums.then(|| SumsInit {
                first_stamp: OPENINGS.replace(OPENINGS.get() + 1) << 32,
                cache_bytes: SUMS_CACHE_BYTES,
            }),
            read_only: false,
            members: members.collect(),
        })
    }

    fn member(&self, number: u32, member: Rc<Member>) -> ArrayMember {
        let slabs_base_bytes = self.slabs_base_bytes();
        ArrayMember { number, member, slabs_base_bytes, sums_base_bytes: self.base_bytes }
    }

    /// Puts a new drive, under the number of the one that is gone, into a column that is missing.
    /// It holds nothing current until it was rebuilt.
    pub async fn attach(&self, array: &Array, column: usize, member: Rc<Member>) -> Result<(), ArrayError> {
        let number = column as u32;
        array.drive_gone(number);
        let mut rows = array.rows();
        rows.update(|_, _, places| {
            places[column] = SlotPlace { drive: number, state: SlotState::Rebuilding, ..places[column] };
            true
        });
        array.add_member(self.member(number, member.clone()));
        array.set_rows(rows);
        let (gone, _): (Vec<_>, Vec<_>) =
            array.map_places().into_iter().partition(|place| place.drive == number);
        array.remove_map_places(&gone);
        let map_slabs = self.slabs()?.0 as u32;
        array.add_map_places(&[AreaPlace { drive: number, slab: 0, slabs: map_slabs }]).await?;
        let slab_bytes = self.array_spec().slab_bytes;
        let base_bytes = self.slabs_base_bytes() + u64::from(map_slabs) * slab_bytes;
        let bytes = self.journal_slabs * slab_bytes;
        array.add_journal_area(Area { drive: number, member, base_bytes, bytes }).await
    }
}

/// Columns of which some row holds nothing, or is on a drive that is not there.
pub fn missing_columns(array: &Array) -> MemberSet {
    let mut missing = MemberSet::EMPTY;
    for run in array.rows().runs() {
        for (column, place) in run.places.iter().enumerate() {
            if place.state == SlotState::Missing || array.member(place.drive).is_none() {
                missing.insert(column);
            }
        }
    }
    missing
}

/// Fills all rows that are to be filled and takes them for current.
pub async fn rebuild(array: &Array) -> Result<RowRebuild, ArrayError> {
    let mut total = RowRebuild::default();
    for (first, rows, ..) in array.lacking_rows() {
        for row in first..first + rows {
            let RowRebuild { bytes, lost_blocks } = array.rebuild_row(row).await?;
            total.bytes += bytes;
            total.lost_blocks += lost_blocks;
        }
    }
    take_over_rebuilt(array);
    Ok(total)
}

/// Takes what was filled for current.
pub(crate) fn take_over_rebuilt(array: &Array) {
    let mut rows = array.rows();
    for (row, column) in array.rebuilt() {
        let Some(run) = rows.run(row) else { continue };
        let mut places = run.places_of(row);
        places[column].state = SlotState::Active;
        rows.set(row, 1, &places);
    }
    array.set_rows(rows);
}
