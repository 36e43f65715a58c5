//! Placement of a new volume: its rows, its region map, its journal.
//!
//! The map lies on drives of one redundancy group of a row, one more than may be lost: whenever
//! that row can be read, so can the map. The journal lies on journal drives where there are enough
//! of them for the layout's redundancy, else on the pool's own drives; it gets areas on more drives
//! than a batch needs, so that the load is shared. Pure; the only fault expected is that there is
//! not enough room.

use stripewise_layout::Shape;

use crate::error::PoolError;
use crate::manifest::drive_record::Role;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{
    JournalPlaceRecord, MetaPlaceRecord, MetaRecord, PartRecord, PlaceState,
};
use crate::space::slabs::{FreeSlabs, NewRows, Shortage, put_rows};
use stripewise_array::ArrayError;
use stripewise_array::ArraySpec;
use stripewise_array::rows::{RowTable, SlotState};
use stripewise_array::tuning::MapGrain;

/// Copies of the map, if there are enough drives.
const MAP_COPIES: usize = 4;
/// Areas of a journal, if there are enough drives.
const JOURNAL_AREAS: usize = 6;
/// A journal takes this share of its volume, within limits.
const JOURNAL_SHARE: u64 = 64;
/// No larger than this on drives that hold data too.
const MOST_SHARED_AREA_BYTES: u64 = 64 << 20;
/// Limit on such drives if they are seek-bound. When a journal is full the pages
/// of checksums are written, and in random writes each costs a position or two; the more of them
/// are written in one sweep, the nearer they lie. A RAID 5 of four modelled 8 TB disks gives
/// 61 MB/s of the mixed load of study 004 with 64 MiB, 73 with 256 MiB, 82 with this and 87 with
/// 1 GiB; but opening it after a crash takes longer in proportion.
const MOST_SHARED_AREA_OF_ARMS_BYTES: u64 = 512 << 20;
/// On such drives small volumes have this share of a journal, up to [`MOST_SHARED_AREA_BYTES`]:
/// with a sixty-fourth of a few hundred MiB checkpoints would follow one another.
const JOURNAL_SHARE_OF_SMALL: u64 = 16;
/// No larger than this on journal drives.
const MOST_OWN_AREA_BYTES: u64 = 4 << 30;
/// Sets of drives looked at for the map.
const SETS: usize = 64;

/// Requirements of a volume to be placed.
pub(crate) struct Wish<'a> {
    pub spec: &'a ArraySpec,
    /// Left out: all that there is room for.
    pub size_bytes: Option<u64>,
    /// No rows yet.
    pub thin: bool,
    pub with_journal: bool,
    /// Granularity of its region map.
    pub grain: MapGrain,
    /// Drives that rows may lie on.
    pub drives: Vec<u32>,
    /// True if these drives are seek-bound.
    pub is_seek_bound: bool,
}

impl Wish<'_> {
    fn most_shared_area_bytes(&self) -> u64 {
        if self.is_seek_bound { MOST_SHARED_AREA_OF_ARMS_BYTES } else { MOST_SHARED_AREA_BYTES }
    }
}

/// Placement of a volume. Its slabs are allocated in the free list.
pub(crate) struct LaidOut {
    pub size_bytes: u64,
    pub rows: RowTable,
    pub meta: MetaRecord,
    pub journal: Vec<JournalPlaceRecord>,
    taken: Taken,
}

impl LaidOut {
    /// A volume of these rows, without a map and a journal.
    pub(crate) fn of_rows(size_bytes: u64, width: usize, new: Vec<NewRows>) -> Self {
        let mut rows = RowTable::new(width, new.iter().map(|new| new.rows).sum());
        put_rows(&mut rows, 0, &new, SlotState::Active);
        let meta = MetaRecord { slabs: 0, map_rows: 0, places: Vec::new() };
        let taken = Taken { rows: new, places: Vec::new() };
        Self { size_bytes, rows, meta, journal: Vec::new(), taken }
    }

    /// Its record, of an array with this identity.
    pub(crate) fn part(&self, id: Id, shape: Shape) -> PartRecord {
        PartRecord {
            id,
            shape,
            meta: self.meta.clone(),
            log: None,
            slice: None,
            journal: self.journal.clone(),
            old_lost: Vec::new(),
            old_dead: Vec::new(),
            lost: Default::default(),
            dead: Default::default(),
            rows: self.rows.clone(),
        }
    }
}

/// Slabs taken from the books, to be given back if what they are for is not recorded.
#[derive(Default)]
pub(crate) struct Taken {
    pub rows: Vec<NewRows>,
    /// Drive, first slab, slabs.
    pub places: Vec<(u32, u32, u32)>,
}

impl Taken {
    pub(crate) fn give_back(self, space: &mut FreeSlabs) {
        space.give_rows(&self.rows);
        self.places.iter().for_each(|&(drive, first, slabs)| space.give(drive, first, slabs));
    }
}

impl LaidOut {
    pub(crate) fn give_back(self, space: &mut FreeSlabs) {
        self.taken.give_back(space);
    }
}

/// Space that a volume needs beside its rows.
struct Needs {
    map_slabs: u32,
    map_rows: u64,
    area_slabs: u32,
}

/// Room for more rows than there are: the map is not moved for every MiB that a volume grows.
pub(crate) fn map_size(spec: &ArraySpec, rows: u64, grain: MapGrain) -> Result<(u32, u64), ArrayError> {
    let least = spec.map_bytes(rows, grain)?;
    let slabs = least.div_ceil(spec.slab_bytes);
    let room = slabs * spec.slab_bytes;
    let (mut low, mut high) = (rows, rows.saturating_mul(64) + 4096);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if spec.map_bytes(middle, grain)? <= room { low = middle } else { high = middle }
    }
    Ok((slabs as u32, low))
}

fn needs(wish: &Wish<'_>, rows: u64, share_rows: u64, most_area_bytes: u64) -> Result<Needs, ArrayError> {
    let spec = wish.spec;
    let (map_slabs, map_rows) = map_size(spec, rows, wish.grain)?;
    let column_bytes = share_rows.saturating_mul(spec.slab_bytes);
    let of_small = (column_bytes / JOURNAL_SHARE_OF_SMALL).min(MOST_SHARED_AREA_BYTES);
    let share = column_bytes / JOURNAL_SHARE;
    let share = if wish.is_seek_bound { share.max(of_small) } else { share };
    let area_bytes = share.min(most_area_bytes).max(spec.least_journal_bytes()?);
    Ok(Needs { map_slabs, map_rows, area_slabs: area_bytes.div_ceil(spec.slab_bytes) as u32 })
}

/// Why a volume was not laid out.
pub(crate) enum NotLaidOut {
    /// More rows are needed than are possible.
    NoRoom {
        needed_rows: u64,
        possible_rows: u64,
    },
    Other(PoolError),
}

impl From<ArrayError> for NotLaidOut {
    fn from(error: ArrayError) -> Self {
        Self::Other(error.into())
    }
}

/// Finds places for a volume, and takes them.
pub(crate) fn lay_out(space: &mut FreeSlabs, wish: &Wish<'_>) -> Result<LaidOut, NotLaidOut> {
    let row_bytes = wish.spec.row_data_bytes()?;
    let Some(size_bytes) = wish.size_bytes else { return largest(space, wish, row_bytes) };
    let rows = size_bytes.div_ceil(row_bytes);
    if let Ok(laid_out) = attempt(space, wish, rows, size_bytes)? {
        return Ok(laid_out);
    }
    let mut books = space.clone();
    if wish.thin {
        return Err(NotLaidOut::NoRoom {
            needed_rows: rows,
            possible_rows: largest_thin(&mut books, wish, rows)?,
        });
    }
    let possible_rows = match largest(&mut books, wish, row_bytes) {
        Ok(laid_out) => laid_out.rows.rows(),
        Err(_) => 0,
    };
    Err(NotLaidOut::NoRoom { needed_rows: rows, possible_rows })
}

/// As large a volume as there is room for.
fn largest(space: &mut FreeSlabs, wish: &Wish<'_>, row_bytes: u64) -> Result<LaidOut, NotLaidOut> {
    let mut rows = space.max_rows(&wish.drives, wish.spec.shape.width);
    let mut tries = 0;
    while rows > 0 {
        if let Ok(laid_out) = attempt(space, wish, rows, rows * row_bytes)? {
            return Ok(laid_out);
        }
        // The map and the journal seldom take much; with drives of different sizes more tries are
        // needed.
        tries += 1;
        rows = rows.saturating_sub(if tries < 64 { 1 } else { rows / 16 + 1 });
    }
    Err(NotLaidOut::NoRoom { needed_rows: 1, possible_rows: 0 })
}

/// The most rows of a thin volume, less than `too_many`: its map takes space as if all were
/// written.
fn largest_thin(space: &mut FreeSlabs, wish: &Wish<'_>, too_many: u64) -> Result<u64, ArrayError> {
    let (mut low, mut high) = (0, too_many);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        let mut taken = Taken::default();
        match place_all(space, wish, middle, &mut taken)? {
            Ok(_) => low = middle,
            Err(_) => high = middle,
        }
        taken.give_back(space);
    }
    Ok(low)
}

fn attempt(
    space: &mut FreeSlabs,
    wish: &Wish<'_>,
    rows: u64,
    size_bytes: u64,
) -> Result<Result<LaidOut, Shortage>, ArrayError> {
    let mut taken = Taken::default();
    match place_all(space, wish, rows, &mut taken)? {
        Ok((meta, journal)) => {
            let mut table = RowTable::new(wish.spec.shape.width, rows);
            put_rows(&mut table, 0, &taken.rows, SlotState::Active);
            Ok(Ok(LaidOut { size_bytes, rows: table, meta, journal, taken }))
        }
        Err(shortage) => {
            taken.give_back(space);
            Ok(Err(shortage))
        }
    }
}

type Places = (MetaRecord, Vec<JournalPlaceRecord>);

fn place_all(
    space: &mut FreeSlabs,
    wish: &Wish<'_>,
    rows: u64,
    taken: &mut Taken,
) -> Result<Result<Places, Shortage>, ArrayError> {
    let width = wish.spec.shape.width;
    if !wish.thin {
        match space.allocate_rows(&wish.drives, width, rows, 0) {
            Ok(new) => taken.rows = new,
            Err(shortage) => return Ok(Err(shortage)),
        }
    }
    // A thin volume's journal suits what there is, not what was promised.
    let share_rows = if wish.thin { rows.min(space.max_rows(&wish.drives, width)) } else { rows };
    let needed = needs(wish, rows, share_rows, wish.most_shared_area_bytes())?;
    let sets = sets_for_map(wish, &taken.rows)?;
    let places = match place_map(space, wish, needed.map_slabs, &sets) {
        Ok(places) => places,
        Err(shortage) => return Ok(Err(shortage)),
    };
    taken.places.extend(places.iter().map(|&(drive, slab)| (drive, slab, needed.map_slabs)));
    let record = |(drive, slab)| MetaPlaceRecord { drive, slab, state: PlaceState::Active };
    let meta = MetaRecord {
        slabs: needed.map_slabs,
        map_rows: needed.map_rows,
        places: places.into_iter().map(record).collect(),
    };
    if !wish.with_journal {
        return Ok(Ok((meta, Vec::new())));
    }
    let journal = match place_journal(space, wish, share_rows, needed.area_slabs, &sets)? {
        Ok(journal) => journal,
        Err(shortage) => return Ok(Err(shortage)),
    };
    taken.places.extend(journal.iter().map(|place| (place.drive, place.slab, place.slabs)));
    Ok(Ok((meta, journal)))
}

/// Drives that the map may lie on, in order of preference: in each set the drives of one redundancy
/// group come first.
fn sets_for_map(wish: &Wish<'_>, rows: &[NewRows]) -> Result<Vec<Vec<u32>>, ArrayError> {
    let geometry = wish.spec.geometry()?;
    let stripe = geometry.stripe(0);
    let mut columns: Vec<usize> = stripe.units.iter().map(|unit| unit.member).collect();
    columns.extend(
        (0..geometry.width()).filter(|column| !stripe.units.iter().any(|unit| unit.member == *column)),
    );
    let in_order = |drives: &[u32]| -> Vec<u32> { columns.iter().map(|&column| drives[column]).collect() };
    if rows.is_empty() {
        // Rows to come lie on these, in this order, if there are no others.
        let exact = wish.drives.len() == geometry.width();
        return Ok(if exact { vec![in_order(&wish.drives)] } else { Vec::new() });
    }
    let set = |new: &NewRows| {
        let drives: Vec<u32> = new.places.iter().map(|place| place.0).collect();
        in_order(&drives)
    };
    Ok(rows.iter().take(SETS).map(set).collect())
}

fn place_map(
    space: &mut FreeSlabs,
    wish: &Wish<'_>,
    slabs: u32,
    sets: &[Vec<u32>],
) -> Result<Vec<(u32, u32)>, Shortage> {
    let least = wish.spec.shape.fault_tolerance() + 1;
    for wanted in [MAP_COPIES.max(least), least] {
        for set in sets {
            if let Ok(places) = space.allocate_places(&set[..wanted.min(set.len())], slabs) {
                return Ok(places);
            }
        }
    }
    placed_apart(space, &wish.drives, least, MAP_COPIES.max(least), slabs)
}

/// Places on the emptiest drives: as many as there is room for, but no fewer than `least`.
fn placed_apart(
    space: &mut FreeSlabs,
    drives: &[u32],
    least: usize,
    most: usize,
    slabs: u32,
) -> Result<Vec<(u32, u32)>, Shortage> {
    let emptiest = space.emptiest(drives);
    for count in (least..=most.min(emptiest.len())).rev() {
        if let Ok(places) = space.allocate_places(&emptiest[..count], slabs) {
            return Ok(places);
        }
    }
    Err(Shortage { possible: 0 })
}

fn place_journal(
    space: &mut FreeSlabs,
    wish: &Wish<'_>,
    rows: u64,
    area_slabs: u32,
    sets: &[Vec<u32>],
) -> Result<Result<Vec<JournalPlaceRecord>, Shortage>, ArrayError> {
    let least = wish.spec.shape.fault_tolerance() + 1;
    let own = space.emptiest(&space.usable(Role::Journal));
    if own.len() >= least {
        let free = own.iter().map(|&drive| space.free_slabs(drive)).nth(least - 1).unwrap_or(0);
        let wanted = needs(wish, 1, rows, MOST_OWN_AREA_BYTES)?.area_slabs;
        let slabs = wanted.min((free / 4) as u32).max(area_slabs);
        for slabs in [slabs, area_slabs] {
            if let Ok(places) = placed_apart(space, &own, least, JOURNAL_AREAS.max(least), slabs) {
                return Ok(Ok(journal(places, slabs)));
            }
        }
    }
    let most = JOURNAL_AREAS.max(least);
    for wanted in [most, least] {
        for set in sets {
            if let Ok(places) = space.allocate_places(&set[..wanted.min(set.len())], area_slabs) {
                return Ok(Ok(journal(places, area_slabs)));
            }
        }
    }
    Ok(placed_apart(space, &wish.drives, least, most, area_slabs).map(|places| journal(places, area_slabs)))
}

fn journal(places: Vec<(u32, u32)>, slabs: u32) -> Vec<JournalPlaceRecord> {
    let record = |(drive, slab)| JournalPlaceRecord { drive, slab, slabs, state: PlaceState::Active };
    places.into_iter().map(record).collect()
}

#[cfg(test)]
mod tests {
    use stripewise_layout::{LayoutSpec, Level};

    use super::*;
    use stripewise_array::tuning::Tuning;

    fn area_bytes(rows: u64, is_seek_bound: bool) -> u64 {
        let shape = LayoutSpec::new(Level::Raid5).resolve(4).expect("a shape");
        let spec = ArraySpec { id: 1, shape, slab_bytes: 64 << 20 };
        let wish = Wish {
            spec: &spec,
            size_bytes: None,
            thin: false,
            with_journal: true,
            grain: Tuning::default().map_grain,
            drives: (0..4).collect(),
            is_seek_bound,
        };
        let needs = needs(&wish, rows, rows, wish.most_shared_area_bytes()).expect("room");
        u64::from(needs.area_slabs) * spec.slab_bytes
    }

    #[test]
    fn journal_on_disks_is_larger_and_scales_with_volume() {
        let rows_of = |drive_bytes: u64| drive_bytes / (64 << 20);
        assert_eq!(area_bytes(rows_of(8 << 40), true), 512 << 20);
        assert_eq!(area_bytes(rows_of(8 << 40), false), 64 << 20);
        assert_eq!(area_bytes(rows_of(8 << 30), true), 128 << 20, "a sixty-fourth");
        assert_eq!(area_bytes(rows_of(1 << 30), true), 64 << 20, "a sixteenth of a small one");
        assert_eq!(area_bytes(rows_of(64 << 30), false), 64 << 20);
    }
}
