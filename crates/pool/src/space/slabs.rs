//! Allocation of slabs: rows of slabs on distinct drives, places for maps and journals,
//! replacements for single columns.
//!
//! On equal drives a row has the same slab number everywhere and rows follow one another, so that a
//! volume is one or a few runs; on unequal drives every slab can be used (`space/placement.rs`).
//! Allocated slabs are in use at once: a caller that fails to record them gives them back. Pure;
//! the only fault expected is a shortage of space.

use std::collections::BTreeMap;

use crate::manifest::drive_record::Role;
use crate::manifest::format::Manifest;
use crate::space::free_slabs::Stretches;
use crate::space::placement::{Placement, max_rows, mixed};
use stripewise_array::rows::{Places, RowTable, SlotPlace, SlotState};

/// Maximum number of stretches examined in search of one that is free on all drives of a row.
const MAX_STEPS: usize = 4096;

/// Rows on consecutive slabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewRows {
    pub rows: u64,
    /// Drive and slab of the first row, for each column.
    pub places: Vec<(u32, u32)>,
}

/// There is less free space than requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// Number of rows or places that are possible.
    pub possible: u64,
}

/// New slabs for one column of consecutive rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    pub drive: u32,
    /// Slab of the first row.
    pub slab: u32,
    pub rows: u64,
}

#[derive(Clone, Debug)]
struct DriveSpace {
    role: Role,
    takes_new: bool,
    /// Number of the drive that its content moves to.
    successor: Option<u32>,
    /// Slabs in use for content that is moving here from the drive that this one replaces.
    arriving: u64,
    slabs: u32,
    free: Stretches,
}

/// Free slabs of each drive.
#[derive(Clone, Debug)]
pub(crate) struct FreeSlabs {
    drives: BTreeMap<u32, DriveSpace>,
}

impl FreeSlabs {
    /// Finds the free slabs of a manifest that passes its check.
    pub(crate) fn new(manifest: &Manifest) -> Self {
        let mut used: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        let mut add = |drive: u32, first: u32, slabs: u32| {
            used.entry(drive).or_default().push((first, first.saturating_add(slabs)));
        };
        for part in manifest.parts() {
            part.meta.places.iter().for_each(|place| add(place.drive, place.slab, part.meta.slabs));
            part.journal.iter().for_each(|place| add(place.drive, place.slab, place.slabs));
            for run in part.rows.runs() {
                run.places.iter().for_each(|place| add(place.drive, place.slab, run.rows as u32));
            }
        }
        let mut space = Self { drives: BTreeMap::new() };
        for drive in &manifest.drives {
            let slabs = drive.slab_count(manifest.slab_bytes);
            let mut used = used.remove(&drive.number).unwrap_or_default();
            used.sort_unstable();
            let free = Stretches::without(slabs, used);
            let (role, successor) = (drive.role, drive.successor);
            let entry = DriveSpace { role, takes_new: false, successor, arriving: 0, slabs, free };
            space.drives.insert(drive.number, entry);
        }
        space.refresh(manifest);
        space
    }

    /// Updates drives and their roles after a commit that changed them. Free slabs of known drives
    /// stay as they are.
    pub(crate) fn refresh(&mut self, manifest: &Manifest) {
        self.drives.retain(|number, _| manifest.drive(*number).is_some());
        for drive in &manifest.drives {
            let slabs = drive.slab_count(manifest.slab_bytes);
            let new = || DriveSpace {
                role: drive.role,
                takes_new: false,
                successor: None,
                arriving: 0,
                slabs,
                free: Stretches::without(slabs, []),
            };
            let entry = self.drives.entry(drive.number).or_insert_with(new);
            entry.role = drive.role;
            entry.successor = drive.successor;
            // A successor takes the content of the drive that it replaces, and nothing else until
            // that is complete.
            entry.takes_new = drive.takes_new() && manifest.predecessor_of(drive.number).is_none();
        }
    }

    /// Drives of a role that may take new content, by number.
    pub(crate) fn usable(&self, role: Role) -> Vec<u32> {
        let usable = self.drives.iter().filter(|(_, drive)| drive.role == role && drive.takes_new);
        usable.map(|(number, _)| *number).collect()
    }

    /// Free slabs of a drive that may be allocated. For a drive with a successor these are at most
    /// what the successor has room for beside the content that moves there.
    pub(crate) fn free_slabs(&self, drive: u32) -> u64 {
        let Some(space) = self.drives.get(&drive) else { return 0 };
        let free = space.free.count();
        match space.successor.and_then(|successor| self.drives.get(&successor)) {
            Some(successor) => {
                let room = successor.free.count() + successor.arriving;
                free.min(room.saturating_sub(self.used_slabs(drive)))
            }
            None => free,
        }
    }

    /// Sets the number of slabs of a successor in use for content that still counts as being on the
    /// drive that it replaces.
    pub(crate) fn set_arriving(&mut self, successor: u32, slabs: u64) {
        if let Some(space) = self.drives.get_mut(&successor) {
            space.arriving = slabs;
        }
    }

    /// True if a drive must take no other column of a row on these drives: it already holds one, or
    /// its successor does.
    pub(crate) fn is_among(&self, drive: u32, in_rows: &[u32]) -> bool {
        let successor = self.drives.get(&drive).and_then(|space| space.successor);
        in_rows.contains(&drive) || successor.is_some_and(|successor| in_rows.contains(&successor))
    }

    /// Number of slabs in use on a drive.
    pub(crate) fn used_slabs(&self, drive: u32) -> u64 {
        self.drives.get(&drive).map_or(0, |space| u64::from(space.slabs) - space.free.count())
    }

    /// Number of these drives that have a free slab.
    pub(crate) fn drives_with_room(&self, drives: &[u32]) -> usize {
        drives.iter().filter(|drive| self.free_slabs(**drive) > 0).count()
    }

    /// Number of slabs on a drive.
    pub(crate) fn slabs(&self, drive: u32) -> u64 {
        self.drives.get(&drive).map_or(0, |drive| u64::from(drive.slabs))
    }

    /// Takes free slabs.
    pub(crate) fn take(&mut self, drive: u32, first: u32, slabs: u32) {
        self.drives.get_mut(&drive).expect("a drive of the pool").free.take(first, slabs);
    }

    /// Gives slabs back; does nothing if the drive no longer belongs to the pool.
    pub(crate) fn give(&mut self, drive: u32, first: u32, slabs: u32) {
        if let Some(drive) = self.drives.get_mut(&drive) {
            drive.free.give(first, slabs);
        }
    }

    /// Gives allocated rows back.
    pub(crate) fn give_rows(&mut self, rows: &[NewRows]) {
        for new in rows {
            new.places.iter().for_each(|&(drive, slab)| self.give(drive, slab, new.rows as u32));
        }
    }

    /// Maximum number of rows of `width` columns that can be allocated on these drives.
    pub(crate) fn max_rows(&self, drives: &[u32], width: usize) -> u64 {
        let free: Vec<u64> = drives.iter().map(|&drive| self.free_slabs(drive)).collect();
        max_rows(&free, width)
    }

    /// Allocates `rows` rows of `width` columns on drives out of `drives` (each at most once per
    /// row), in long runs. `salt` spreads rows that are allocated one by one evenly, if it differs
    /// from one to the next (the number of the first row will do).
    pub(crate) fn allocate_rows(
        &mut self,
        drives: &[u32],
        width: usize,
        rows: u64,
        salt: u64,
    ) -> Result<Vec<NewRows>, Shortage> {
        let free: Vec<u64> = drives.iter().map(|&drive| self.free_slabs(drive)).collect();
        let possible = max_rows(&free, width);
        if rows > possible {
            return Err(Shortage { possible });
        }
        let mut placement = Placement::new(&free, width, rows, salt);
        let mut all: Vec<NewRows> = Vec::new();
        let mut batch = mixed(salt, 0) as usize;
        while let Some((set, rows)) = placement.next() {
            let mut columns: Vec<u32> = set.iter().map(|&index| drives[index]).collect();
            if drives.len() > width {
                // Rotates the columns, so that in layouts with a fixed parity column no drive
                // always holds the parity.
                columns.rotate_left(batch % width);
                batch = batch.wrapping_add(1);
            }
            let (slabs, rows) = self.common(&columns, rows).unwrap_or_else(|| self.scattered(&columns, rows));
            let places: Vec<(u32, u32)> = columns.into_iter().zip(slabs).collect();
            places.iter().for_each(|&(drive, slab)| self.take(drive, slab, rows as u32));
            placement.done(&set, rows);
            match all.last_mut() {
                Some(last) if is_next(last, &places) => last.rows += rows,
                _ => all.push(NewRows { rows, places }),
            }
        }
        Ok(all)
    }

    fn free(&self, drive: u32) -> &Stretches {
        &self.drives[&drive].free
    }

    /// Slabs with the same numbers on all of the drives: the first stretch that is long enough, or
    /// else the longest seen.
    fn common(&self, drives: &[u32], wanted: u64) -> Option<(Vec<u32>, u64)> {
        let mut best: Option<(u32, u32)> = None;
        let mut at = 0;
        'search: for _ in 0..MAX_STEPS {
            let mut end = u32::MAX;
            for &drive in drives {
                let Some((start, free_end)) = self.free(drive).at_or_after(at) else { break 'search };
                if start > at {
                    at = start;
                    continue 'search;
                }
                end = end.min(free_end);
            }
            if best.is_none_or(|(from, to)| end - at > to - from) {
                best = Some((at, end));
            }
            if u64::from(end - at) >= wanted {
                break;
            }
            at = end;
        }
        best.map(|(from, to)| (vec![from; drives.len()], wanted.min(u64::from(to - from))))
    }

    /// Slabs anywhere on each of the drives, all of which have free ones.
    fn scattered(&self, drives: &[u32], wanted: u64) -> (Vec<u32>, u64) {
        let mut rows = wanted;
        let mut slabs = Vec::with_capacity(drives.len());
        for &drive in drives {
            let (start, end) = self.free(drive).fit(wanted).expect("a free slab");
            rows = rows.min(u64::from(end - start));
            slabs.push(start);
        }
        (slabs, rows)
    }

    /// Allocates `slabs` consecutive slabs on every one of the drives, at the same number where
    /// possible, and returns the first slab of each. All or nothing.
    pub(crate) fn allocate_places(
        &mut self,
        drives: &[u32],
        slabs: u32,
    ) -> Result<Vec<(u32, u32)>, Shortage> {
        let wanted = u64::from(slabs);
        let with_room = drives.iter().filter(|drive| self.free_slabs(**drive) >= wanted).count();
        if with_room < drives.len() {
            return Err(Shortage { possible: with_room as u64 });
        }
        let firsts: Vec<Option<u32>> = match self.common(drives, wanted) {
            Some((firsts, found)) if found == wanted => firsts.into_iter().map(Some).collect(),
            _ => {
                let fit = |&drive: &u32| {
                    let (start, end) = self.drives.get(&drive)?.free.fit(wanted)?;
                    (u64::from(end - start) >= wanted).then_some(start)
                };
                drives.iter().map(fit).collect()
            }
        };
        let possible = firsts.iter().flatten().count();
        if possible < drives.len() {
            return Err(Shortage { possible: possible as u64 });
        }
        let places: Vec<(u32, u32)> = drives.iter().copied().zip(firsts.into_iter().flatten()).collect();
        places.iter().for_each(|&(drive, first)| self.take(drive, first, slabs));
        Ok(places)
    }

    /// The drives in descending order of free slabs.
    pub(crate) fn emptiest(&self, drives: &[u32]) -> Vec<u32> {
        let mut drives = drives.to_vec();
        drives.sort_by_key(|&drive| (std::cmp::Reverse(self.free_slabs(drive)), drive));
        drives
    }

    /// Allocates slabs for one column of up to `rows` consecutive rows, on the emptiest of
    /// `candidates` that may take a column of these rows. `in_rows`: the drives of all their
    /// columns, including the replaced one. `prefer`: preferred slab number, used if free. Fewer
    /// rows per call spread better.
    pub(crate) fn replace(
        &mut self,
        candidates: &[u32],
        in_rows: &[u32],
        rows: u64,
        prefer: Option<u32>,
    ) -> Option<Replacement> {
        let fitting = candidates.iter().copied().filter(|drive| !self.is_among(*drive, in_rows));
        let drive = fitting
            .filter(|&drive| self.free_slabs(drive) > 0)
            .max_by_key(|&drive| (self.free_slabs(drive), std::cmp::Reverse(drive)))?;
        let free = self.free(drive);
        let preferred = prefer.and_then(|slab| {
            let (start, end) = free.at_or_after(slab)?;
            (start <= slab).then_some((slab, end))
        });
        let (slab, end) = preferred.or_else(|| free.fit(rows))?;
        let rows = rows.min(u64::from(end - slab)).min(self.free_slabs(drive));
        self.take(drive, slab, rows as u32);
        Some(Replacement { drive, slab, rows })
    }
}

fn is_next(last: &NewRows, places: &[(u32, u32)]) -> bool {
    let follows = |(last_place, place): (&(u32, u32), &(u32, u32))| {
        last_place.0 == place.0 && u64::from(last_place.1) + last.rows == u64::from(place.1)
    };
    last.places.iter().zip(places).all(follows)
}

/// Enters allocated rows in a map, from `first_row` on.
pub(crate) fn put_rows(table: &mut RowTable, first_row: u64, new: &[NewRows], state: SlotState) {
    let mut row = first_row;
    for rows in new {
        let place = |&(drive, slab): &(u32, u32)| SlotPlace { drive, slab, state };
        let places: Places = rows.places.iter().map(place).collect();
        table.set(row, rows.rows, &places);
        row += rows.rows;
    }
}

#[cfg(test)]
mod tests;
