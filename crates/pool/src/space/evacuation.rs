//! Checks that the content of drives that are to be emptied fits onto others, and finds what has to
//! move first if it does not fit directly. Pure.
//!
//! The columns of a row lie on distinct drives, so a column can go only to drives that its row is
//! not on. If all of these are full, one of them may be able to pass something on: a column of
//! another row moves from it to a drive with room, perhaps via several. The shortest such *chain*
//! is searched drive by drive. If there is none, the column has no place, whatever else is moved:
//! this is a matching of rows with drives, and a chain is an augmenting path.
//!
//! Maps and journal areas of several slabs need consecutive slabs; for these nothing is moved out
//! of the way. The only fault expected is a shortage of space.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::manifest::drive_record::{DriveRecord, Role};
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{JournalPlaceRecord, MetaPlaceRecord, PartRecord, PlaceState};
use crate::space::slabs::FreeSlabs;
use crate::sparing::allocation::{candidates, put};
use crate::sparing::enough_copies::{is_at_successor, lasting};
use stripewise_array::rows::{Places, SlotPlace, SlotState};

/// Move of a column of consecutive rows to another drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub part: Id,
    pub first_row: u64,
    pub rows: u64,
    pub column: usize,
    /// Place of the first row.
    pub from: SlotPlace,
    pub onto: u32,
}

/// Content that fits nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// Slabs in use on the drives that are to be emptied.
    pub held_slabs: u64,
    /// Number of these that have no place.
    pub homeless_slabs: u64,
    /// Free slabs that cannot be used, because the rows in question are already on their drives.
    pub useless_slabs: u64,
    /// Slabs of the largest map or journal area without a place; they have to be consecutive.
    pub adjacent_slabs: u64,
}

/// Finds the shortest chain that frees a slab on a drive which can take content of `old` and is not
/// in `not_on`. The first move comes first. Only columns of parts for which `may` returns true and
/// of places that are `movable` are moved. `None` if there is no chain, or if such a slab is free
/// already.
pub(crate) fn chain(
    manifest: &Manifest,
    books: &FreeSlabs,
    old: u32,
    not_on: &[u32],
    may: impl Fn(Id) -> bool,
    movable: impl Fn(SlotPlace) -> bool,
) -> Option<Vec<Link>> {
    let mut waiting: VecDeque<u32> =
        takers_of(manifest, books, old).into_iter().filter(|drive| !books.is_among(*drive, not_on)).collect();
    if waiting.iter().any(|drive| books.free_slabs(*drive) > 0) {
        return None;
    }
    // The link by which each drive is reached.
    let mut by: BTreeMap<u32, Option<Link>> = waiting.iter().map(|drive| (*drive, None)).collect();
    while let Some(drive) = waiting.pop_front() {
        let takers = takers_of(manifest, books, drive);
        for part in manifest.parts().filter(|part| may(part.id)) {
            for run in part.rows.runs() {
                let on_it = |place: &SlotPlace| place.drive == drive && movable(*place);
                let Some(column) = run.places.iter().position(on_it) else { continue };
                let in_run: Vec<u32> = run.places.iter().map(|place| place.drive).collect();
                for &onto in takers.iter().filter(|onto| !books.is_among(**onto, &in_run)) {
                    if by.contains_key(&onto) {
                        continue;
                    }
                    let (first_row, rows, from) = (run.first_row, run.rows, run.places[column]);
                    by.insert(onto, Some(Link { part: part.id, first_row, rows, column, from, onto }));
                    if books.free_slabs(onto) > 0 {
                        return Some(walked_back(&by, onto));
                    }
                    waiting.push_back(onto);
                }
            }
        }
    }
    None
}

/// The links that lead to a drive, the last one first.
fn walked_back(by: &BTreeMap<u32, Option<Link>>, goal: u32) -> Vec<Link> {
    let (mut links, mut at) = (Vec::new(), goal);
    while let Some(link) = &by[&at] {
        links.push(link.clone());
        at = link.from.drive;
    }
    links
}

/// Drives that may take content of this drive, whether or not they have room.
fn takers_of(manifest: &Manifest, books: &FreeSlabs, old: u32) -> Vec<u32> {
    if let Some(successor) = manifest.drive(old).and_then(|drive| drive.successor) {
        return vec![successor];
    }
    let role = manifest.drive(old).map_or(Role::Data, |drive| drive.role);
    let mut takers = books.usable(role);
    if role != Role::Data {
        takers.extend(books.usable(Role::Data));
    }
    takers
}

/// Applies a chain to the planned manifest, for as many rows as all its links have, at most `most`.
fn follow(manifest: &mut Manifest, books: &mut FreeSlabs, chain: &[Link], most: u64) {
    let mut rows = chain.iter().map(|link| link.rows).min().unwrap_or(0).min(most);
    for link in chain {
        let Some(found) = books.replace(&[link.onto], &[], rows, Some(link.from.slab)) else { return };
        rows = found.rows;
        let to = SlotPlace { drive: found.drive, slab: found.slab, state: link.from.state };
        if let Some(part) = manifest.part_mut(link.part) {
            put(&mut part.rows, link.first_row, rows, link.column, to);
        }
        books.give(link.from.drive, link.from.slab, rows as u32);
    }
}

/// Finds places for the content of all drives that are to be emptied according to the manifest, and
/// returns what is left without one.
pub(crate) fn shortage(mut manifest: Manifest, mut books: FreeSlabs) -> Option<Shortage> {
    let retiring: Vec<u32> =
        manifest.drives.iter().filter(|drive| drive.is_leaving()).map(|drive| drive.number).collect();
    let mut shortage = Shortage::default();
    // Drives whose free slabs are useless for the content without a place.
    let mut useless: BTreeSet<u32> = BTreeSet::new();
    for &number in &retiring {
        shortage.held_slabs += manifest.parts().map(|part| slabs_on(part, number)).sum::<u64>();
    }
    // Maps and areas first, because they need consecutive slabs.
    for (slabs, not_on) in homeless_places(&mut manifest, &mut books, &retiring) {
        shortage.homeless_slabs += slabs;
        shortage.adjacent_slabs = shortage.adjacent_slabs.max(slabs);
        useless.extend(not_on);
    }
    for &number in &retiring {
        for (rows, not_on) in homeless_rows(&mut manifest, &mut books, number) {
            shortage.homeless_slabs += rows;
            useless.extend(not_on);
        }
    }
    let is_usable = |drive: &&u32| manifest.drive(**drive).is_some_and(DriveRecord::takes_new);
    shortage.useless_slabs = useless.iter().filter(is_usable).map(|drive| books.free_slabs(*drive)).sum();
    (shortage.homeless_slabs > 0).then_some(shortage)
}

/// Takes room for maps and journal areas on leaving drives, in the order of a drain. Returns those
/// without room, as slabs and the drives they cannot go to.
fn homeless_places(manifest: &mut Manifest, books: &mut FreeSlabs, retiring: &[u32]) -> Vec<(u64, Vec<u32>)> {
    let mut homeless = Vec::new();
    let record = manifest.clone();
    for part in record.parts() {
        let mut maps: Vec<u32> = part.meta.places.iter().map(|place| place.drive).collect();
        // Copies beyond the number that the layout needs may go without a place.
        let mut spared = lasting(&record, &maps).saturating_sub(part.shape.fault_tolerance() + 1);
        for old in part.meta.places.iter().filter(|place| retiring.contains(&place.drive)) {
            match place(manifest, books, old.drive, &maps, part.meta.slabs) {
                Some((drive, _)) => maps.push(drive),
                None if is_at_successor(&record, old.drive, &maps) => {}
                None if spared > 0 => spared -= 1,
                None => homeless.push((u64::from(part.meta.slabs), maps.clone())),
            }
        }
    }
    for part in record.parts() {
        let mut areas: Vec<u32> = part.journal.iter().map(|place| place.drive).collect();
        let mut spared = lasting(&record, &areas).saturating_sub(part.shape.fault_tolerance() + 1);
        for old in part.journal.iter().filter(|place| retiring.contains(&place.drive)) {
            match place(manifest, books, old.drive, &areas, old.slabs) {
                Some((drive, _)) => areas.push(drive),
                None if is_at_successor(&record, old.drive, &areas) => {}
                None if spared > 0 => spared -= 1,
                None => homeless.push((u64::from(old.slabs), areas.clone())),
            }
        }
    }
    homeless
}

/// Takes room for lost copies of maps and areas of journals, as spare allocation will; those
/// without room are skipped.
pub(crate) fn place_lost(
    manifest: &mut Manifest,
    books: &mut FreeSlabs,
    may: impl Fn(Id) -> bool,
    is_lost: impl Fn(PlaceState, u32) -> bool,
) {
    let parts: Vec<PartRecord> = manifest.parts().filter(|part| may(part.id)).cloned().collect();
    for part in &parts {
        let id = part.id;
        let mut maps: Vec<u32> = part.meta.places.iter().map(|place| place.drive).collect();
        for lost in part.meta.places.iter().filter(|place| is_lost(place.state, place.drive)) {
            let Some((drive, slab)) = place(manifest, books, lost.drive, &maps, part.meta.slabs) else {
                continue;
            };
            maps.push(drive);
            let part = manifest.part_mut(id).expect("just found");
            part.meta.places.retain(|place| place != lost);
            part.meta.places.push(MetaPlaceRecord { drive, slab, state: PlaceState::Active });
        }
    }
    for part in &parts {
        let id = part.id;
        let mut areas: Vec<u32> = part.journal.iter().map(|place| place.drive).collect();
        for lost in part.journal.iter().filter(|place| is_lost(place.state, place.drive)) {
            let Some((drive, slab)) = place(manifest, books, lost.drive, &areas, lost.slabs) else {
                continue;
            };
            areas.push(drive);
            let part = manifest.part_mut(id).expect("just found");
            part.journal.retain(|place| place != lost);
            part.journal.push(JournalPlaceRecord {
                drive,
                slab,
                slabs: lost.slabs,
                state: PlaceState::Active,
            });
        }
    }
}

/// Takes consecutive slabs on a drive that content of `number` may go to, and returns the place.
fn place(
    manifest: &mut Manifest,
    books: &mut FreeSlabs,
    number: u32,
    not_on: &[u32],
    slabs: u32,
) -> Option<(u32, u32)> {
    if slabs == 1
        && let Some(chain) = chain(manifest, books, number, not_on, |_| true, is_there)
    {
        follow(manifest, books, &chain, 1);
    }
    let possible = candidates(manifest, books, number, not_on);
    let emptiest = books.emptiest(&possible);
    emptiest.into_iter().find_map(|drive| books.allocate_places(&[drive], slabs).ok()?.pop())
}

/// Takes room for the columns of rows on a drive. Returns those without room, as rows and the
/// drives that they cannot go to.
fn homeless_rows(manifest: &mut Manifest, books: &mut FreeSlabs, number: u32) -> Vec<(u64, Vec<u32>)> {
    let mut homeless = Vec::new();
    for part in manifest.parts().map(|part| part.id).collect::<Vec<Id>>() {
        let mut row = 0;
        while let Some((first_row, rows, column, places)) = next_on(manifest, part, number, row) {
            let in_rows: Vec<u32> = places.iter().map(|place| place.drive).collect();
            let chain = chain(manifest, books, number, &in_rows, |_| true, is_there);
            if let Some(chain) = chain {
                follow(manifest, books, &chain, rows);
            }
            let possible = candidates(manifest, books, number, &in_rows);
            let prefer = Some(places[column].slab);
            // In short stretches, so that the rows are spread.
            let Some(found) = books.replace(&possible, &in_rows, rows.div_ceil(8), prefer) else {
                homeless.push((rows, in_rows));
                row = first_row + rows;
                continue;
            };
            let to = SlotPlace { drive: found.drive, slab: found.slab, ..places[column] };
            if let Some(part) = manifest.part_mut(part) {
                put(&mut part.rows, first_row, found.rows, column, to);
            }
            row = first_row + found.rows;
        }
    }
    homeless
}

/// The first rows from `row` on with a column on a drive: first row, number of rows, column, and
/// the places of the first row.
fn next_on(manifest: &Manifest, part: Id, number: u32, row: u64) -> Option<(u64, u64, usize, Places)> {
    let part = manifest.parts().find(|other| other.id == part)?;
    part.rows.runs().filter(|run| run.end_row() > row).find_map(|run| {
        let column = run.places.iter().position(|place| place.drive == number)?;
        let first_row = run.first_row.max(row);
        Some((first_row, run.end_row() - first_row, column, run.places_of(first_row)))
    })
}

/// True if a column counts as movable in the plan. One that is yet to be filled does: it will be
/// filled by the time of its move.
fn is_there(place: SlotPlace) -> bool {
    place.state != SlotState::Missing
}

/// The first move that is needed to make room for content of a drive that has no place. Only parts
/// for which `may` returns true are considered and moved. `None` if no move helps.
pub(crate) fn first_to_move(
    manifest: &Manifest,
    books: &FreeSlabs,
    number: u32,
    may: impl Fn(Id) -> bool,
) -> Option<Link> {
    let is_current = |place: SlotPlace| place.state == SlotState::Active;
    let found = |not_on: &[u32], rows: u64| {
        let links = chain(manifest, books, number, not_on, &may, is_current)?;
        let rows = links.iter().map(|link| link.rows).min()?.min(rows);
        links.into_iter().next().map(|link| Link { rows, ..link })
    };
    for part in manifest.parts().filter(|part| may(part.id)) {
        let maps: Vec<u32> = part.meta.places.iter().map(|place| place.drive).collect();
        let areas: Vec<u32> = part.journal.iter().map(|place| place.drive).collect();
        let has_one_slab = part.journal.iter().any(|place| place.drive == number && place.slabs == 1);
        let link = (maps.contains(&number) && part.meta.slabs == 1).then(|| found(&maps, 1)).flatten();
        let link = link.or_else(|| has_one_slab.then(|| found(&areas, 1)).flatten());
        if link.is_some() {
            return link;
        }
        for run in part.rows.runs() {
            if run.places.iter().any(|place| place.drive == number && is_current(*place)) {
                let in_rows: Vec<u32> = run.places.iter().map(|place| place.drive).collect();
                let link = found(&in_rows, run.rows);
                if link.is_some() {
                    return link;
                }
            }
        }
    }
    None
}

/// Slabs of a part on a drive, including those of maps and journals.
pub(crate) fn slabs_on(part: &PartRecord, number: u32) -> u64 {
    let meta = part.meta.places.iter().filter(|place| place.drive == number).count() as u64;
    let journal: u64 =
        part.journal.iter().filter(|place| place.drive == number).map(|place| u64::from(place.slabs)).sum();
    let rows: u64 = part
        .rows
        .runs()
        .filter(|run| run.places.iter().any(|place| place.drive == number))
        .map(|run| run.rows)
        .sum();
    meta * u64::from(part.meta.slabs) + journal + rows
}

#[cfg(test)]
mod tests;
