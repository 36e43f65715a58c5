//! Simulation of spare allocation on copies of the record and of the free list: the placement, and
//! the room that it needs. Pure.
//!
//! Other plans ask it, so that none counts on room that a rebuild is to take: emptying a drive,
//! letting go of one, a place for an area. It knows which drives work and which parts can be
//! rebuilt as they were when it was made.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{NeedsDrives, PoolError};
use crate::manifest::drive_record::{DriveRecord, Exclusion, ExclusionKind, Role};
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{PartRecord, PlaceState};
use crate::space::addresses::capacity_for;
use crate::space::evacuation::{self, Shortage};
use crate::space::slabs::FreeSlabs;
use crate::sparing::allocation::{Onto, allocate, candidates, stretches};
use crate::sparing::enough_copies::lasting;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::rows::{SlotPlace, SlotState};

/// A moment's view of what can be rebuilt, and onto what.
pub(crate) struct SparePlanner {
    /// Drives that take part and work.
    pub working: BTreeSet<u32>,
    /// Parts whose rows can be rebuilt.
    pub rebuildable: BTreeSet<Id>,
}

impl SparePlanner {
    fn works(&self, drive: u32) -> bool {
        self.working.contains(&drive)
    }

    fn may_rebuild(&self, part: Id) -> bool {
        self.rebuildable.contains(&part)
    }

    /// A drive whose place another could take, and which: the one that was to have it in any case,
    /// or a dedicated spare.
    pub(crate) fn next_for_spare(&self, manifest: &Manifest) -> Option<(u32, u32)> {
        for drive in manifest.drives.iter().filter(|drive| drive.is_given_up() && !drive.replaced) {
            let has_rows = self.has_missing_rows(manifest, drive.number);
            let has_copies =
                manifest.parts().any(|part| self.may_rebuild(part.id) && part.lacks_copy_on(drive.number));
            let successor = drive.successor.filter(|successor| self.works(*successor));
            if let Some(successor) = successor.filter(|_| has_rows || has_copies) {
                return Some((drive.number, successor));
            }
            // A journal drive's contents do not justify a data drive; other drives have room for
            // them.
            if !(has_rows || has_copies && drive.role != Role::Journal) {
                continue;
            }
            let slabs = u64::from(drive.slab_count(manifest.slab_bytes));
            return self.best_spare(manifest, slabs).map(|spare| (drive.number, spare));
        }
        None
    }

    /// A spare for what a replaced drive leaves without a place: its replacement was too small, and
    /// the other drives have no room.
    pub(crate) fn next_for_leftover(&self, manifest: &Manifest) -> Option<(u32, u32)> {
        let is_left = |drive: &&DriveRecord| {
            drive.replaced && drive.is_given_up() && self.has_missing_rows(manifest, drive.number)
        };
        let old = manifest.drives.iter().find(is_left)?.number;
        Some((old, self.best_spare(manifest, self.missing_slabs(manifest, old))?))
    }

    /// The smallest working spare with this many slabs, else the largest.
    fn best_spare(&self, manifest: &Manifest, slabs: u64) -> Option<u32> {
        let is_spare =
            |drive: &&DriveRecord| drive.role == Role::Spare && drive.takes_new() && self.works(drive.number);
        let spares: Vec<&DriveRecord> = manifest.drives.iter().filter(is_spare).collect();
        let size = |spare: &&DriveRecord| u64::from(spare.slab_count(manifest.slab_bytes));
        let enough = spares.iter().copied().filter(|spare| size(spare) >= slabs).min_by_key(size);
        let chosen = enough.or_else(|| spares.iter().copied().max_by_key(size));
        chosen.map(|spare| spare.number)
    }

    /// Slabs of rows that can be rebuilt and miss their columns on the drive.
    fn missing_slabs(&self, manifest: &Manifest, drive: u32) -> u64 {
        let wanted = |place: SlotPlace| place.drive == drive && place.state == SlotState::Missing;
        stretches(manifest, wanted, |part| self.may_rebuild(part)).iter().map(|stretch| stretch.rows).sum()
    }

    /// True if rows that can be rebuilt miss their columns on the drive.
    pub(crate) fn has_missing_rows(&self, manifest: &Manifest, drive: u32) -> bool {
        self.missing_slabs(manifest, drive) > 0
    }

    /// Does to this record and these books what spare allocation would do.
    pub(crate) fn plan(&self, planned: &mut Manifest, books: &mut FreeSlabs) {
        let may = |part| self.may_rebuild(part);
        while let Some((old, new)) = self.next_for_spare(planned) {
            self.plan_onto(planned, books, (old, new));
        }
        let given_up = planned.drives.iter().filter(|drive| drive.is_given_up());
        let given_up: BTreeSet<u32> = given_up.map(|drive| drive.number).collect();
        allocate(planned, books, |drive| given_up.contains(&drive), may, Onto::All);
        while let Some((old, new)) = self.next_for_leftover(planned) {
            self.plan_onto(planned, books, (old, new));
        }
        let is_lost = |place: PlaceState, drive| place == PlaceState::Missing && given_up.contains(&drive);
        if !mutation::is_chosen(Mutation::PlaceAreasCarelessly) {
            evacuation::place_lost(planned, books, may, is_lost);
        }
    }

    /// Plans that one drive takes the place of another, as far as it is large enough.
    fn plan_onto(&self, planned: &mut Manifest, books: &mut FreeSlabs, (old, new): (u32, u32)) {
        allocate(planned, books, |drive| drive == old, |part| self.may_rebuild(part), Onto::Drive(new));
        let role = planned.drive(old).map_or(Role::Data, |drive| drive.role);
        if let Some(drive) = planned.drive_mut(new) {
            drive.role = role;
        }
        planned.set_replaced(old);
        books.refresh(planned);
    }

    /// The record as it is once drives that are gone have been excluded.
    pub(crate) fn without_gone(&self, manifest: &Manifest) -> Manifest {
        let mut planned = manifest.clone();
        let is_gone = |drive: &&DriveRecord| drive.is_online() && !self.works(drive.number);
        let (reason, kind) = (String::new(), ExclusionKind::Missing);
        let gone: Vec<Exclusion> = manifest
            .drives
            .iter()
            .filter(is_gone)
            .map(|drive| Exclusion { drive: drive.number, reason: reason.clone(), kind })
            .collect();
        planned.exclude(&gone);
        planned.end_replacements();
        planned
    }

    /// Checks that everything on a drive that is out has a place once another one, empty and of
    /// this capacity, has taken its place: on that one, or in free space of the others.
    pub(crate) fn check_takes_place(
        &self,
        manifest: &Manifest,
        mut books: FreeSlabs,
        old: u32,
        (label, capacity_bytes): (&str, u64),
    ) -> Result<(), PoolError> {
        let mut planned = self.without_gone(manifest);
        let new = planned.add_drive(Id(0), label, Role::Spare, capacity_bytes);
        books.refresh(&planned);
        self.plan_onto(&mut planned, &mut books, (old, new));
        let may = |part| self.may_rebuild(part);
        allocate(&mut planned, &mut books, |drive| drive == old, may, Onto::All);
        let is_lost = |place: PlaceState, drive| place == PlaceState::Missing && drive == old;
        evacuation::place_lost(&mut planned, &mut books, may, is_lost);
        let homeless = homeless(&planned, may, |drive| drive == old);
        let lacking: u64 = homeless.iter().map(|column| column.slabs).sum();
        if lacking == 0 {
            return Ok(());
        }
        let needed_bytes = capacity_for(books.used_slabs(new) + lacking, manifest.slab_bytes);
        Err(PoolError::DriveTooSmall { drive: label.to_owned(), capacity_bytes, needed_bytes })
    }

    /// The record after spare allocation, and what that leaves without a place.
    pub(crate) fn planned(&self, manifest: &Manifest, mut books: FreeSlabs) -> (Manifest, Vec<Homeless>) {
        let mut planned = self.without_gone(manifest);
        books.refresh(&planned);
        self.plan(&mut planned, &mut books);
        let given_up = |number| planned.drive(number).is_some_and(DriveRecord::is_given_up);
        let left = homeless(&planned, |part| self.may_rebuild(part), given_up);
        (planned, left)
    }

    /// Contents of drives to be emptied for which there is no room after spare allocation.
    pub(crate) fn shortage(&self, mut planned: Manifest, mut books: FreeSlabs) -> Option<Shortage> {
        books.refresh(&planned);
        self.plan(&mut planned, &mut books);
        evacuation::shortage(planned, books)
    }

    /// Checks that the contents of a drive fit onto others, together with the contents of other
    /// drives to be emptied and pending rebuilds. The error says how much does not fit.
    pub(crate) fn check_evacuation(
        &self,
        manifest: &Manifest,
        books: &FreeSlabs,
        number: u32,
    ) -> Result<(), PoolError> {
        let mut planned = manifest.clone();
        if let Some(drive) = planned.drive_mut(number) {
            drive.retiring = true;
        }
        planned.end_replacements();
        match self.shortage(planned, books.clone()) {
            None => Ok(()),
            Some(Shortage { held_slabs, homeless_slabs, useless_slabs, adjacent_slabs }) => {
                Err(PoolError::NoRoomElsewhere {
                    drive: manifest.path_of(number),
                    held_slabs,
                    homeless_slabs,
                    useless_slabs,
                    adjacent_slabs,
                    needs: self.needs_drives(manifest, number),
                })
            }
        }
    }

    /// A volume on a drive whose rows lie on more drives than there are without it.
    fn needs_drives(&self, manifest: &Manifest, number: u32) -> Option<NeedsDrives> {
        let role = manifest.drive(number)?.role;
        let others = manifest.drives.iter().filter(|drive| drive.number != number && drive.role == role);
        let remain =
            others.filter(|drive| drive.is_online() && !drive.retiring && self.works(drive.number)).count();
        manifest.volumes.iter().find_map(|volume| {
            let too_wide =
                |part: &&PartRecord| part.shape.width > remain && part.drives().any(|on| on == number);
            let shape = volume.parts.iter().find(too_wide)?.shape;
            Some(NeedsDrives { volume: volume.name.clone(), level: shape.level, width: shape.width, remain })
        })
    }

    /// Checks that drives that are being emptied can be emptied without this one's room.
    pub(crate) fn check_not_needed_as_room(
        &self,
        manifest: &Manifest,
        books: &FreeSlabs,
        number: u32,
    ) -> Result<(), PoolError> {
        let retiring = manifest.drives.iter().filter(|drive| drive.retiring && drive.number != number);
        let retiring: Vec<String> = retiring.map(|drive| drive.path.clone()).collect();
        if retiring.is_empty() || self.shortage(manifest.clone(), books.clone()).is_some() {
            return Ok(());
        }
        let mut planned = manifest.clone();
        let Some(drive) = planned.drive_mut(number) else { return Ok(()) };
        drive.retiring = true;
        if self.shortage(planned, books.clone()).is_none() {
            return Ok(());
        }
        let what =
            format!("is needed: what is on {}, to be emptied, has no room without it", retiring.join(", "));
        Err(PoolError::DriveStanding { drive: manifest.path_of(number), what })
    }

    /// Takes consecutive slabs for what was on the drive `old`, on a drive that is none of `taken`:
    /// the emptiest, as long as all that is on drives to be emptied keeps a place. Such areas are
    /// not moved out of the way later, as rows are. `enter` has a record say that they are in use.
    pub(crate) fn place_off(
        &self,
        manifest: &Manifest,
        books: &mut FreeSlabs,
        (old, taken): (u32, &[u32]),
        slabs: u32,
        enter: impl Fn(&mut Manifest, (u32, u32)),
    ) -> Option<(u32, u32)> {
        let mut possible = Vec::new();
        let mut drives = books.emptiest(&candidates(manifest, books, old, taken));
        drives.retain(|drive| self.works(*drive));
        for drive in drives {
            let mut after = books.clone();
            if let Ok(places) = after.allocate_places(&[drive], slabs) {
                possible.push((places[0], after));
            }
        }
        let has_retiring = manifest.drives.iter().any(DriveRecord::is_leaving)
            && !mutation::is_chosen(Mutation::PlaceAreasCarelessly);
        let leaves_room = |(place, after): &((u32, u32), FreeSlabs)| {
            let mut planned = manifest.clone();
            enter(&mut planned, *place);
            self.shortage(planned, after.clone()).is_none()
        };
        let kept = possible.iter().position(|possible| !has_retiring || leaves_room(possible));
        // If there is not enough room in any case, redundancy comes first.
        let (place, after) = possible.into_iter().nth(kept.unwrap_or(0))?;
        *books = after;
        Some(place)
    }
}

/// Content of a volume that has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Homeless {
    /// The volume.
    pub volume: String,
    /// The column, numbered from 0; `None`: a copy of its region map or an area of its journal.
    pub column: Option<usize>,
    /// Slabs.
    pub slabs: u64,
    /// Path of the drive that had it.
    pub drive: String,
}

/// Columns, copies of maps and areas of journals, of parts that `may` be rebuilt, that are lost
/// with drives that are `out`.
fn homeless(manifest: &Manifest, may: impl Fn(Id) -> bool, out: impl Fn(u32) -> bool) -> Vec<Homeless> {
    let mut slabs: BTreeMap<(usize, Option<usize>, u32), u64> = BTreeMap::new();
    for (index, volume) in manifest.volumes.iter().enumerate() {
        for part in volume.parts.iter().filter(|part| may(part.id)) {
            for run in part.rows.runs() {
                let lacks = |place: &SlotPlace| place.state == SlotState::Missing && out(place.drive);
                for (column, place) in run.places.iter().enumerate().filter(|(_, place)| lacks(place)) {
                    *slabs.entry((index, Some(column), place.drive)).or_default() += run.rows;
                }
            }
            for (drive, count) in lost_copies(manifest, part, &out) {
                *slabs.entry((index, None, drive)).or_default() += count;
            }
        }
    }
    let shown = |((index, column, drive), slabs): ((usize, Option<usize>, u32), u64)| Homeless {
        volume: manifest.volumes[index].name.clone(),
        column,
        slabs,
        drive: manifest.path_of(drive),
    };
    slabs.into_iter().map(shown).collect()
}

/// Drives with a lost copy of a part's map or area of its journal that the layout asks for, and the
/// slabs of each.
fn lost_copies(manifest: &Manifest, part: &PartRecord, out: impl Fn(u32) -> bool) -> Vec<(u32, u64)> {
    let tolerance = part.shape.fault_tolerance();
    let mut lost = Vec::new();
    let mut add = |places: Vec<(u32, PlaceState, u32)>| {
        let active = places.iter().filter(|(_, state, _)| *state == PlaceState::Active);
        let active: Vec<u32> = active.map(|(drive, ..)| *drive).collect();
        let wanted = (tolerance + 1).saturating_sub(lasting(manifest, &active));
        let missing = places.iter().filter(|(drive, state, _)| *state != PlaceState::Active && out(*drive));
        lost.extend(missing.take(wanted).map(|(drive, _, slabs)| (*drive, u64::from(*slabs))));
    };
    let maps = part.meta.places.iter();
    add(maps.map(|place| (place.drive, place.state, part.meta.slabs)).collect());
    add(part.journal.iter().map(|place| (place.drive, place.state, place.slabs)).collect());
    lost
}

#[cfg(test)]
mod tests {
    use stripewise_layout::Level;

    use super::*;
    use crate::{MIB, testing};

    /// A volume over the first four drives of these sizes, and everything works.
    fn pool(sizes_mib: &[u64], rows: u64) -> (Manifest, SparePlanner) {
        let mut manifest = testing::pool(sizes_mib, MIB);
        let later = manifest.drives.split_off(4);
        testing::add_volume(&mut manifest, 55, Level::Raid5, 4, rows);
        manifest.drives.extend(later);
        assert_eq!(manifest.check(), Ok(()));
        let working = manifest.drives.iter().map(|drive| drive.number).collect();
        let rebuildable = manifest.parts().map(|part| part.id).collect();
        (manifest, SparePlanner { working, rebuildable })
    }

    fn fail(manifest: &mut Manifest, planner: &mut SparePlanner, drive: u32) {
        let (reason, kind) = ("a test".to_owned(), ExclusionKind::Failed);
        manifest.exclude(&[Exclusion { drive, reason, kind }]);
        planner.working.remove(&drive);
    }

    #[test]
    fn smallest_sufficient_spare_is_used_else_the_largest() {
        let (mut manifest, mut planner) = pool(&[64, 64, 64, 64, 48, 96, 80], 9);
        manifest.drives[4..].iter_mut().for_each(|drive| drive.role = Role::Spare);
        assert_eq!(planner.next_for_spare(&manifest), None, "nothing is missing");
        fail(&mut manifest, &mut planner, 1);
        assert_eq!(planner.next_for_spare(&manifest), Some((1, 6)));
        planner.working.remove(&6);
        assert_eq!(planner.next_for_spare(&manifest), Some((1, 5)));
        planner.working.remove(&5);
        assert_eq!(planner.next_for_spare(&manifest), Some((1, 4)));
        planner.rebuildable.clear();
        assert_eq!(planner.next_for_spare(&manifest), None, "its volume cannot be rebuilt");
    }

    #[test]
    fn a_plan_leaves_nothing_missing_where_there_is_room() {
        let (mut manifest, mut planner) = pool(&[64; 5], 9);
        fail(&mut manifest, &mut planner, 1);
        assert!(planner.has_missing_rows(&manifest, 1));
        let mut books = FreeSlabs::new(&manifest);
        planner.plan(&mut manifest, &mut books);
        let states: Vec<SlotState> = manifest
            .parts()
            .flat_map(|part| part.rows.runs().flat_map(|run| run.places.iter().map(|place| place.state)))
            .collect();
        assert!(states.contains(&SlotState::Rebuilding) && !states.contains(&SlotState::Missing));
    }

    #[test]
    fn drive_needed_for_row_width_is_not_evacuated() {
        let (manifest, planner) = pool(&[64; 4], 9);
        let books = FreeSlabs::new(&manifest);
        match planner.check_evacuation(&manifest, &books, 1) {
            Err(PoolError::NoRoomElsewhere { needs: Some(needs), .. }) => {
                assert_eq!((needs.width, needs.remain), (4, 3));
            }
            other => panic!("{other:?}"),
        }
        let (manifest, planner) = pool(&[64; 5], 9);
        let books = FreeSlabs::new(&manifest);
        assert!(planner.check_evacuation(&manifest, &books, 1).is_ok());
    }

    #[test]
    fn evacuating_drive_keeps_its_target_room() {
        let (mut manifest, planner) = pool(&[64; 5], 9);
        let books = FreeSlabs::new(&manifest);
        assert!(planner.check_not_needed_as_room(&manifest, &books, 4).is_ok());
        manifest.drives[1].retiring = true;
        let refused = planner.check_not_needed_as_room(&manifest, &books, 4);
        assert!(matches!(refused, Err(PoolError::DriveStanding { .. })), "{refused:?}");
    }

    #[test]
    fn planning_many_short_runs_takes_no_time() {
        // Each row lies somewhere else. Clients wait while this runs.
        let rows = 6000;
        let mut manifest = testing::pool(&[16_384; 26], MIB);
        testing::add_volume(&mut manifest, 55, Level::Raid6, 24, rows);
        let table = &mut manifest.volumes[0].parts[0].rows;
        let mut places: Vec<_> = (0..rows).map(|row| table.run(row).expect("a row").places_of(row)).collect();
        let mut random = stripewise_drive::SplitMix64::new(1);
        (1..places.len()).for_each(|at| places.swap(at, random.below(at as u64 + 1) as usize));
        places.iter().zip(0..).for_each(|(places, row)| table.set(row, 1, places));
        assert!(table.runs().count() > 5500);
        assert_eq!(manifest.check(), Ok(()));
        let working = manifest.drives.iter().map(|drive| drive.number).collect();
        let rebuildable = manifest.parts().map(|part| part.id).collect();
        let mut planner = SparePlanner { working, rebuildable };
        fail(&mut manifest, &mut planner, 3);
        let mut books = FreeSlabs::new(&manifest);
        let began = std::time::Instant::now();
        planner.plan(&mut manifest, &mut books);
        assert!(began.elapsed().as_secs() < 4, "{:?}", began.elapsed());
        let lacks = |place: &SlotPlace| place.state == SlotState::Missing;
        assert!(!manifest.parts().any(|part| part.rows.runs().any(|run| run.places.iter().any(lacks))));
    }
}
