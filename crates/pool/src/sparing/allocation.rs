//! Spare allocation: new slabs for columns that are missing, chosen so that all drives share the
//! work. Pure.
//!
//! A column of a log lies on one drive, so all of it goes to one, or none of it.
//! Onto one drive (a dedicated spare) columns go with the slab numbers that they had, as far as it
//! is large enough. Into distributed spare space they go in short stretches to all drives that are
//! not in the row, each to the one that the rebuild has least to do with so far: what it reads
//! counts as well as what it writes, so that all drives end at the same time. Most exposed rows
//! first, so that where room is short it goes to them. The only fault expected is that there is not
//! enough.

use std::collections::{BTreeMap, BTreeSet};

use stripewise_layout::Geometry;

use crate::manifest::drive_record::Role;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::PartRecord;
use crate::space::slabs::FreeSlabs;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::rows::{RowTable, SlotPlace, SlotState};

/// Stretches that each drive gets of what is distributed: more spread better, fewer keep maps
/// small.
const STRETCHES_PER_DRIVE: u64 = 32;
/// Load that one row written, or read, is.
const ROW_LOAD: u64 = 1000;

/// Consecutive slabs of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slabs {
    pub drive: u32,
    pub first: u32,
    pub count: u32,
}

/// Result of an allocation. The previous slabs of the columns are freed when this has been
/// recorded, as with any commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Slabs that columns have now.
    pub new: Vec<Slabs>,
    /// Columns of rows for which there was no room.
    pub without_room: u64,
}

impl Taken {
    /// Gives back what was taken where it could not be recorded.
    pub(crate) fn undone(&self, books: &mut FreeSlabs) {
        self.new.iter().for_each(|slabs| books.give(slabs.drive, slabs.first, slabs.count));
    }
}

/// Drives that columns may be allocated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Onto {
    /// This drive alone, however much fits.
    Drive(u32),
    /// All drives of the role that the one before had, or else data drives; fast ones if those have
    /// no room either: the tier that a volume should be on never keeps it from having its
    /// redundancy.
    All,
}

/// A stretch of one column that needs a new place.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub part: Id,
    pub column: usize,
    pub first_row: u64,
    pub rows: u64,
    /// Number of further columns of these rows that may be lost.
    pub left: isize,
}

/// Gives columns that are missing on drives that `is_out` new slabs, to be rebuilt; of those parts
/// that it `may`.
pub(crate) fn allocate(
    manifest: &mut Manifest,
    books: &mut FreeSlabs,
    is_out: impl Fn(u32) -> bool,
    may: impl Fn(Id) -> bool,
    onto: Onto,
) -> Taken {
    let wanted = |place: SlotPlace| place.state == SlotState::Missing && is_out(place.drive);
    let stretches = stretches(manifest, wanted, may);
    let mut taken = Taken::default();
    let mut load = Load::new(manifest, &stretches);
    let total: u64 = stretches.iter().map(|stretch| stretch.rows).sum();
    let mut columns_of_logs = BTreeSet::new();
    for stretch in stretches {
        let end = stretch.first_row + stretch.rows;
        let mut row = stretch.first_row;
        if manifest.parts().any(|part| part.id == stretch.part && part.log.is_some()) {
            if columns_of_logs.insert((stretch.part, stretch.column)) {
                allocate_column(manifest, books, &stretch, onto, (&mut load, &mut taken));
            }
            continue;
        }
        while row < end {
            let part = manifest.parts().find(|part| part.id == stretch.part);
            let Some(run) = part.and_then(|part| part.rows.run(row)) else { break };
            let rows = end.min(run.end_row()) - row;
            if mutation::is_chosen(Mutation::PlanCopiesRecord) {
                let columns = part.iter().flat_map(|part| part.rows.runs()).flat_map(|run| run.places.iter());
                columns.for_each(|_| drop([(); 16].map(|()| manifest.clone())));
            }
            let places = run.places_of(row);
            let in_rows: Vec<u32> = places.iter().map(|place| place.drive).collect();
            let old = places[stretch.column];
            let found = match onto {
                Onto::Drive(drive) => books.replace(&[drive], &in_rows, rows, Some(old.slab)),
                Onto::All => {
                    let mut candidates = candidates(manifest, books, old.drive, &in_rows);
                    if candidates.is_empty() {
                        candidates = with_room(books, Role::Fast, &in_rows);
                    }
                    let shares = STRETCHES_PER_DRIVE * candidates.len().max(1) as u64;
                    let rows = rows.min(total.div_ceil(shares).max(1));
                    load.least(&candidates, books).and_then(|drive| books.replace(&[drive], &[], rows, None))
                }
            };
            let Some(found) = found else {
                taken.without_room += end - row;
                break;
            };
            load.add(found.drive, found.rows * ROW_LOAD);
            let new = SlotPlace { drive: found.drive, slab: found.slab, state: SlotState::Rebuilding };
            let part = manifest.part_mut(stretch.part).expect("just found");
            put(&mut part.rows, row, found.rows, stretch.column, new);
            taken.new.push(Slabs { drive: found.drive, first: found.slab, count: found.rows as u32 });
            row += found.rows;
        }
    }
    taken
}

/// Gives a column of a log new slabs: all of them on one drive, or none.
fn allocate_column(
    manifest: &mut Manifest,
    books: &mut FreeSlabs,
    Stretch { part: id, column, .. }: &Stretch,
    onto: Onto,
    (load, taken): (&mut Load, &mut Taken),
) {
    let Some(part) = manifest.parts().find(|part| part.id == *id) else { return };
    let (in_rows, rows) = (part.column_drives(), part.rows.rows());
    let candidates = match onto {
        Onto::Drive(drive) => vec![drive],
        Onto::All => candidates(manifest, books, in_rows[*column], &in_rows),
    };
    let stays = |drive: &u32| manifest.drive(*drive).is_some_and(|drive| !drive.is_leaving());
    let has_room =
        |drive: &u32| stays(drive) && !books.is_among(*drive, &in_rows) && books.free_slabs(*drive) >= rows;
    let fitting: Vec<u32> = candidates.into_iter().filter(has_room).collect();
    let Some(drive) = load.least(&fitting, books) else {
        taken.without_room += rows;
        return;
    };
    load.add(drive, rows * ROW_LOAD);
    let next = manifest.generation + 1;
    let part = manifest.part_mut(*id).expect("just found");
    part.log.iter_mut().for_each(|log| log.filled_since = next);
    let mut row = 0;
    while let Some((end, old)) = part.rows.run(row).map(|run| (run.end_row(), run.place(row, *column))) {
        let found = books.replace(&[drive], &[], end - row, Some(old.slab)).expect("there is room for all");
        let new = SlotPlace { drive, slab: found.slab, state: SlotState::Rebuilding };
        put(&mut part.rows, row, found.rows, *column, new);
        taken.new.push(Slabs { drive, first: found.slab, count: found.rows as u32 });
        row += found.rows;
    }
}

/// Gives one column of consecutive rows (of one run) new slabs.
pub(crate) fn put(table: &mut RowTable, first_row: u64, rows: u64, column: usize, place: SlotPlace) {
    let Some(run) = table.run(first_row) else { return };
    debug_assert!(first_row + rows <= run.end_row(), "rows of one run");
    let mut places = run.places_of(first_row);
    places[column] = place;
    table.set(first_row, rows, &places);
}

/// Drives that may get a column of rows on `in_rows` from `old`: where that one has a
/// successor, this alone. A successor that is among them (a cut left a journal area on both drives,
/// and by now others were lost) cannot.
pub(crate) fn candidates(manifest: &Manifest, books: &FreeSlabs, old: u32, in_rows: &[u32]) -> Vec<u32> {
    let successor = manifest.drive(old).and_then(|drive| drive.successor);
    if let Some(successor) = successor.filter(|successor| !in_rows.contains(successor)) {
        return if books.free_slabs(successor) > 0 { vec![successor] } else { Vec::new() };
    }
    let role = manifest.drive(old).map_or(Role::Data, |drive| drive.role);
    let same = with_room(books, role, in_rows);
    if same.is_empty() && role != Role::Data { with_room(books, Role::Data, in_rows) } else { same }
}

/// Drives of a role with something free, none of those that a row lies on.
fn with_room(books: &FreeSlabs, role: Role, in_rows: &[u32]) -> Vec<u32> {
    let usable = books.usable(role).into_iter();
    usable.filter(|drive| !books.is_among(*drive, in_rows) && books.free_slabs(*drive) > 0).collect()
}

/// All stretches of columns whose place is `wanted`, most exposed first.
pub(crate) fn stretches(
    manifest: &Manifest,
    wanted: impl Fn(SlotPlace) -> bool,
    may: impl Fn(Id) -> bool,
) -> Vec<Stretch> {
    let online: BTreeSet<u32> =
        manifest.drives.iter().filter(|drive| drive.is_online()).map(|drive| drive.number).collect();
    let mut stretches = Vec::new();
    for part in manifest.parts().filter(|part| may(part.id)) {
        let tolerance = part.shape.fault_tolerance() as isize;
        for run in part.rows.runs() {
            let is_lacking =
                |place: &&SlotPlace| place.state != SlotState::Active || !online.contains(&place.drive);
            let left = tolerance - run.places.iter().filter(is_lacking).count() as isize;
            for column in (0..run.places.len()).filter(|&column| wanted(run.places[column])) {
                let (first_row, rows) = (run.first_row, run.rows);
                stretches.push(Stretch { part: part.id, column, first_row, rows, left });
            }
        }
    }
    stretches.sort_by_key(|stretch| stretch.left);
    stretches
}

/// Load of a rebuild on each drive.
struct Load(BTreeMap<u32, u64>);

impl Load {
    /// Load of the reads that fill these stretches.
    fn new(manifest: &Manifest, stretches: &[Stretch]) -> Self {
        let mut load = Self(BTreeMap::new());
        let mut sources: BTreeMap<(Id, usize), Vec<(usize, u64)>> = BTreeMap::new();
        for stretch in stretches {
            let Some(part) = manifest.parts().find(|part| part.id == stretch.part) else { continue };
            let key = (stretch.part, stretch.column);
            let sources = sources.entry(key).or_insert_with(|| sources_of(part, stretch.column));
            let Some(run) = part.rows.run(stretch.first_row) else { continue };
            for &(column, weight) in sources.iter() {
                load.add(run.places[column].drive, weight * stretch.rows);
            }
        }
        load
    }

    fn add(&mut self, drive: u32, load: u64) {
        *self.0.entry(drive).or_default() += load;
    }

    /// The drive with least to do; of several the one with most room.
    fn least(&self, drives: &[u32], books: &FreeSlabs) -> Option<u32> {
        let of = |drive: u32| self.0.get(&drive).copied().unwrap_or(0);
        drives
            .iter()
            .copied()
            .min_by_key(|&drive| (of(drive), std::cmp::Reverse(books.free_slabs(drive)), drive))
    }
}

/// Reads from the other columns that fill a row of this one, in thousandths of a row.
fn sources_of(part: &PartRecord, column: usize) -> Vec<(usize, u64)> {
    let length = part.shape.interleave_bytes.saturating_mul(512);
    let Ok(geometry) = Geometry::new(part.shape, length) else { return Vec::new() };
    let mut read = vec![0u64; part.shape.width];
    let mut rows = 0;
    for index in 0..geometry.stripes().min(2048) {
        let stripe = geometry.stripe(index);
        if !stripe.units.iter().any(|unit| unit.member == column) {
            continue;
        }
        rows += 1;
        let others = stripe.units.iter().filter(|unit| unit.member != column);
        let weight = geometry.data_units() as u64 * ROW_LOAD / (stripe.units.len() as u64 - 1).max(1);
        others.for_each(|unit| read[unit.member] += weight);
    }
    let per_row = |(column, weight): (usize, u64)| (column, weight / rows.max(1));
    read.into_iter().enumerate().map(per_row).filter(|(_, weight)| *weight > 0).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use stripewise_layout::LayoutSpec;

    use super::*;
    use crate::manifest::drive_record::{Exclusion, ExclusionKind};
    use crate::manifest::volume_record::{MetaPlaceRecord, MetaRecord, PlaceState, VolumeRecord};
    use crate::space::slabs::put_rows;

    pub(crate) const MIB: u64 = 1 << 20;

    /// A pool of drives with `slabs` slabs (of 1 MiB) each, and one volume of `rows` rows.
    pub(crate) fn pool(slabs: &[u64], layout: &str, columns: usize, rows: u64) -> (Manifest, FreeSlabs) {
        let mut manifest = Manifest::new("tank", MIB, 30);
        manifest.fork(Id(7), manifest.generation);
        for (index, slabs) in slabs.iter().enumerate() {
            // Room for superblocks and checksums.
            let capacity = (slabs + 3) * MIB + (slabs * 8192).next_multiple_of(MIB);
            manifest.add_drive(Id(100 + index as u128), &format!("drive{index}"), Role::Data, capacity);
        }
        let mut spec = LayoutSpec::parse(layout).unwrap();
        spec.columns = Some(columns);
        let shape = spec.resolve(columns).unwrap();
        let mut books = FreeSlabs::new(&manifest);
        let drives = books.usable(Role::Data);
        let places = books.allocate_places(&drives[..shape.fault_tolerance() + 1], 1).unwrap();
        let place = |(drive, slab)| MetaPlaceRecord { drive, slab, state: PlaceState::Active };
        let meta = MetaRecord { slabs: 1, map_rows: rows, places: places.into_iter().map(place).collect() };
        let mut table = RowTable::new(columns, rows);
        let new = books.allocate_rows(&drives, columns, rows, 1).unwrap();
        put_rows(&mut table, 0, &new, SlotState::Active);
        manifest.volumes.push(VolumeRecord {
            id: Id(1),
            name: "data".to_owned(),
            size_bytes: rows * MIB,
            thin: false,
            write_back: false,
            checksums: false,
            pin: Default::default(),
            parts: vec![PartRecord {
                id: Id(2),
                shape,
                meta,
                log: None,
                slice: None,
                journal: Vec::new(),
                old_lost: Vec::new(),
                old_dead: Vec::new(),
                lost: Default::default(),
                dead: Default::default(),
                rows: table,
            }],
            conversion: None,
            received: None,
            receiving: None,
            clones: Vec::new(),
            schedule: None,
        });
        assert_eq!(manifest.check(), Ok(()));
        (manifest, books)
    }

    pub(crate) fn lose(manifest: &mut Manifest, books: &mut FreeSlabs, drive: u32) {
        let kind = ExclusionKind::Failed;
        manifest.exclude(&[Exclusion { drive, reason: "a test".to_owned(), kind }]);
        books.refresh(manifest);
    }

    fn on(manifest: &Manifest, drive: u32, state: SlotState) -> u64 {
        let runs = manifest.volumes[0].parts[0].rows.runs();
        runs.filter(|run| run.places.iter().any(|place| place.drive == drive && place.state == state))
            .map(|run| run.rows)
            .sum()
    }

    #[test]
    fn dedicated_spare_gets_the_same_slabs_while_it_fits() {
        let (mut manifest, mut books) = pool(&[200, 200, 200], "raid5", 3, 150);
        for slabs in [300u64, 200, 100] {
            let (mut manifest, mut books) = (manifest.clone(), books.clone());
            let capacity = (slabs + 4) * MIB + (slabs * 8192).next_multiple_of(MIB);
            let spare = manifest.add_drive(Id(900), "spare", Role::Data, capacity);
            books.refresh(&manifest);
            lose(&mut manifest, &mut books, 1);
            let before = manifest.volumes[0].parts[0].rows.clone();
            let taken = allocate(&mut manifest, &mut books, |drive| drive == 1, |_| true, Onto::Drive(spare));
            let moved: u64 = taken.new.iter().map(|slabs| u64::from(slabs.count)).sum();
            let room = u64::from(manifest.drive(spare).unwrap().slab_count(MIB));
            assert_eq!(moved, 150.min(room));
            assert_eq!(taken.without_room, 150 - moved);
            assert_eq!(on(&manifest, spare, SlotState::Rebuilding), moved);
            if room >= 200 {
                for row in 0..150 {
                    let old = before.run(row).unwrap().places_of(row);
                    let new = manifest.volumes[0].parts[0].rows.run(row).unwrap().places_of(row);
                    assert!(old.iter().zip(&new).all(|(old, new)| old.slab == new.slab));
                }
                assert_eq!(manifest.volumes[0].parts[0].rows.runs().count(), before.runs().count());
            }
            assert_eq!(manifest.check(), Ok(()));
        }
        // Nothing for a drive that is only offline, and nothing where the volume may not be
        // touched.
        lose(&mut manifest, &mut books, 1);
        let none = allocate(&mut manifest, &mut books, |_| false, |_| true, Onto::All);
        assert_eq!(none, Taken::default());
        let none = allocate(&mut manifest, &mut books, |_| true, |_| false, Onto::All);
        assert_eq!(none, Taken::default());
        // And no drive is left that is not in the row.
        let none = allocate(&mut manifest, &mut books, |_| true, |_| true, Onto::All);
        assert_eq!((none.new.len(), none.without_room), (0, 150));
    }

    #[test]
    fn distributed_work_is_even_over_all_drives() {
        for (drives, layout, columns) in
            [(12, "raid1", 2), (12, "raid5", 4), (24, "raid5", 6), (24, "raid6", 6), (12, "raid10", 5)]
        {
            let (mut manifest, mut books) =
                pool(&vec![300; drives], layout, columns, 200 * drives as u64 / columns as u64);
            lose(&mut manifest, &mut books, 3);
            let lost = on(&manifest, 3, SlotState::Missing);
            let parts = manifest.volumes[0].parts[0].clone();
            let taken = allocate(&mut manifest, &mut books, |drive| drive == 3, |_| true, Onto::All);
            assert_eq!(taken.without_room, 0);
            assert_eq!(on(&manifest, 3, SlotState::Missing), 0);
            let mut work = vec![0u64; drives];
            for slabs in &taken.new {
                work[slabs.drive as usize] += u64::from(slabs.count) * ROW_LOAD;
            }
            for run in parts.rows.runs() {
                let Some(column) = run.places.iter().position(|place| place.drive == 3) else { continue };
                for (source, weight) in sources_of(&parts, column) {
                    work[run.places[source].drive as usize] += weight * run.rows;
                }
            }
            assert_eq!(work[3], 0);
            let (sum, most) = (work.iter().sum::<u64>(), *work.iter().max().unwrap());
            let even = sum as f64 / (drives - 1) as f64;
            assert!(
                most as f64 <= even * 1.12,
                "{drives} {layout}: {most} of {even} for {lost} rows: {work:?}"
            );
            assert_eq!(manifest.check(), Ok(()), "every slab is used once, every drive once in a row");
            // The books agree with the map, but for the slabs of the drive that is out.
            let fresh = FreeSlabs::new(&manifest);
            for drive in (0..drives as u32).filter(|drive| *drive != 3) {
                assert_eq!(books.free_slabs(drive), fresh.free_slabs(drive), "drive {drive}");
            }
        }
    }

    #[test]
    fn short_room_goes_to_the_most_exposed_rows() {
        let (mut manifest, mut books) = pool(&[100; 6], "raid6", 5, 90);
        lose(&mut manifest, &mut books, 0);
        lose(&mut manifest, &mut books, 1);
        let before = (manifest.clone(), books.clone());
        let taken = allocate(&mut manifest, &mut books, |drive| drive < 2, |_| true, Onto::All);
        let moved: u64 = taken.new.iter().map(|slabs| u64::from(slabs.count)).sum();
        assert!(taken.without_room > 0 && moved > 0, "{taken:?}");
        let missing = on(&manifest, 0, SlotState::Missing) + on(&manifest, 1, SlotState::Missing);
        assert_eq!(missing, taken.without_room);
        assert_eq!(manifest.check(), Ok(()));
        taken.undone(&mut books);
        for drive in 0..6 {
            assert_eq!(books.free_slabs(drive), before.1.free_slabs(drive));
        }
    }
}
