//! Plans the rebalancing of data drives, so that free space lies where rows can use it. Pure.
//!
//! The columns of a row lie on distinct drives, so the free slabs of a single drive are useless to
//! a volume whose rows need several. A full pool that gets a new drive has all its free space
//! there. Columns move from the fullest drives to the emptiest ones that their rows are not on, as
//! long as the existing layouts gain room for more rows; a move without gain is not made. Each move
//! makes the drives more alike, so this ends. The only fault expected is that nothing can be
//! gained.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::drive_record::{DriveRecord, Role};
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{PartRecord, Pin};
use crate::space::evacuation::Link;
use crate::space::placement::max_rows;
use crate::space::slabs::FreeSlabs;
use crate::sparing::allocation::put;
use stripewise_array::rows::{Run, SlotPlace, SlotState};

/// Divisor for the smallest gain worth any move: one in this many of the free slabs. No drives are
/// ever quite alike.
const WORTH_SHARE: u64 = 32;
/// Maximum number of moves planned ahead; later ones are found when these are done.
const MOST_LINKS: usize = 1024;

/// Free space on data drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Free slabs that the existing layouts can use for rows where they are.
    pub usable_slabs: u64,
    /// All free slabs.
    pub free_slabs: u64,
}

/// Drives that take part in balancing: neither retiring nor being replaced.
fn drives_to_balance(manifest: &Manifest, books: &FreeSlabs) -> Vec<u32> {
    let stays = |number: &u32| manifest.drive(*number).is_some_and(|drive| drive.successor.is_none());
    books.usable(Role::Data).into_iter().filter(stays).collect()
}

/// Row widths of the layouts that rows on data drives have or may get.
fn widths(manifest: &Manifest) -> BTreeSet<usize> {
    let of_volume = |volume: &crate::manifest::volume_record::VolumeRecord| {
        let part = volume.parts.last().filter(|_| volume.pin != Pin::Fast)?;
        Some(part.shape.width)
    };
    manifest.volumes.iter().filter_map(of_volume).collect()
}

fn free(books: &FreeSlabs, drives: &[u32]) -> Vec<u64> {
    drives.iter().map(|&drive| books.free_slabs(drive)).collect()
}

/// Number of rows that fit, for each of these widths.
fn rows_of(free: &[u64], widths: &BTreeSet<usize>) -> Vec<u64> {
    widths.iter().map(|&width| max_rows(free, width)).collect()
}

/// Free slabs on data drives, and those that the existing layouts can use, by the layout that can
/// use most. Without volumes all are usable.
pub(crate) fn room(manifest: &Manifest, books: &FreeSlabs) -> Room {
    // An excluded drive counts: it may return, or another may take its place.
    let counts = |drive: &&DriveRecord| {
        let takes_rows = drive.role == Role::Data && !drive.replaced && !drive.retiring;
        takes_rows && manifest.predecessor_of(drive.number).is_none()
    };
    let drives: Vec<u32> = manifest.drives.iter().filter(counts).map(|drive| drive.number).collect();
    let free = free(books, &drives);
    let free_slabs = free.iter().sum();
    let in_rows = widths(manifest).into_iter().map(|width| max_rows(&free, width) * width as u64);
    Room { usable_slabs: in_rows.max().unwrap_or(free_slabs), free_slabs }
}

/// Moves that make room for more rows, in order; none if nothing can be gained. Only parts for
/// which `may` returns true are moved.
pub(crate) fn plan(manifest: &Manifest, books: &FreeSlabs, may: impl Fn(Id) -> bool) -> Vec<Link> {
    let widths = widths(manifest);
    let drives = drives_to_balance(manifest, books);
    let before = free(books, &drives);
    let (now, total) = (rows_of(&before, &widths), before.iter().sum::<u64>());
    // Room if slabs could lie anywhere.
    let is_possible = |(width, now): (&usize, &u64)| *width <= drives.len() && total / *width as u64 > *now;
    if !widths.iter().zip(&now).any(is_possible) {
        return Vec::new();
    }
    let mut draft = Draft { manifest: manifest.clone(), books: books.clone(), drives };
    // `useful`: number of moves up to the last one that gains something.
    let (mut links, mut useful, mut best) = (Vec::new(), 0, now.clone());
    while links.len() < MOST_LINKS {
        let Some(link) = draft.next(&may) else { break };
        links.push(link);
        let rows = rows_of(&free(&draft.books, &draft.drives), &widths);
        if rows.iter().zip(&best).any(|(rows, best)| rows > best) {
            useful = links.len();
            best = rows.iter().zip(&best).map(|(rows, best)| *rows.max(best)).collect();
        }
    }
    links.truncate(useful);
    let gained =
        widths.iter().zip(best.iter().zip(&now)).map(|(width, (best, now))| *width as u64 * (best - now));
    if gained.max().unwrap_or(0) * WORTH_SHARE < total {
        return Vec::new();
    }
    links
}

struct Draft {
    manifest: Manifest,
    books: FreeSlabs,
    drives: Vec<u32>,
}

impl Draft {
    /// Applies the best move, between the most different drives, to the draft.
    fn next(&mut self, may: impl Fn(Id) -> bool) -> Option<Link> {
        let free: BTreeMap<u32, u64> =
            self.drives.iter().map(|&drive| (drive, self.books.free_slabs(drive))).collect();
        let emptiest = self.books.emptiest(&self.drives);
        let mut best: Option<(u64, Link)> = None;
        for part in self.manifest.parts().filter(|part| may(part.id)) {
            for run in part.rows.runs().filter(|run| is_current(run)) {
                let in_run: Vec<u32> = run.places.iter().map(|place| place.drive).collect();
                let onto = emptiest.iter().find(|drive| !self.books.is_among(**drive, &in_run));
                let columns = (0..run.places.len()).filter(|column| free.contains_key(&in_run[*column]));
                let fullest = columns.min_by_key(|column| (free[&in_run[*column]], *column));
                let (Some(&onto), Some(column)) = (onto, fullest) else { continue };
                let apart = free[&onto].saturating_sub(free[&in_run[column]]);
                if apart >= 2 && best.as_ref().is_none_or(|(most, _)| apart > *most) {
                    best = Some((apart, link(part, run, column, onto)));
                }
            }
        }
        let (apart, link) = best?;
        self.follow(&free, apart, link)
    }

    /// Applies a move, limited to as many rows as leave neither drive further from the average.
    fn follow(&mut self, free: &BTreeMap<u32, u64>, apart: u64, link: Link) -> Option<Link> {
        let level = free.values().sum::<u64>() / free.len().max(1) as u64;
        let to_level =
            level.saturating_sub(free[&link.from.drive]).min(free[&link.onto].saturating_sub(level));
        let most = link.rows.min(apart / 2).min(to_level.max(1));
        let found = self.books.replace(&[link.onto], &[], most, Some(link.from.slab))?;
        let to = SlotPlace { drive: found.drive, slab: found.slab, state: link.from.state };
        let part = self.manifest.part_mut(link.part)?;
        put(&mut part.rows, link.first_row, found.rows, link.column, to);
        self.books.give(link.from.drive, link.from.slab, found.rows as u32);
        Some(Link { rows: found.rows, ..link })
    }
}

fn link(part: &PartRecord, run: &Run, column: usize, onto: u32) -> Link {
    let (first_row, rows, from) = (run.first_row, run.rows, run.places[column]);
    Link { part: part.id, first_row, rows, column, from, onto }
}

fn is_current(run: &Run) -> bool {
    run.places.iter().all(|place| place.state == SlotState::Active)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIB;
    use crate::sparing::allocation::tests::pool;

    /// A full pool of four drives with a volume over all of them, and `more` empty drives.
    fn grown(slabs: u64, more: usize) -> (Manifest, FreeSlabs) {
        let (mut manifest, _) = pool(&[slabs; 4], "raid5", 4, slabs - 1);
        for index in 0..more {
            let capacity = (slabs + 3) * MIB + (slabs * 8192).next_multiple_of(MIB);
            manifest.add_drive(Id(500 + index as u128), "new", Role::Data, capacity);
        }
        let books = FreeSlabs::new(&manifest);
        (manifest, books)
    }

    /// Applies a plan. Returns the number of rows moved.
    fn follow(manifest: &mut Manifest, links: &[Link]) -> u64 {
        let mut books = FreeSlabs::new(manifest);
        let mut moved = 0;
        for link in links {
            let part = manifest.part_mut(link.part).unwrap();
            assert_eq!(part.rows.place(link.first_row, link.column), Some(link.from));
            let found = books.replace(&[link.onto], &[], link.rows, Some(link.from.slab)).unwrap();
            assert_eq!(found.rows, link.rows);
            let to = SlotPlace { drive: found.drive, slab: found.slab, state: SlotState::Active };
            put(&mut part.rows, link.first_row, link.rows, link.column, to);
            books.give(link.from.drive, link.from.slab, link.rows as u32);
            moved += link.rows;
        }
        assert_eq!(manifest.check(), Ok(()));
        moved
    }

    fn room_for(manifest: &Manifest, width: usize) -> u64 {
        let books = FreeSlabs::new(manifest);
        max_rows(&free(&books, &books.usable(Role::Data)), width)
    }

    #[test]
    fn rebalance_makes_a_new_drives_space_usable() {
        for (more, slabs) in [(1, 253u64), (2, 100), (5, 40)] {
            let (mut manifest, books) = grown(slabs, more);
            let free: u64 = books.usable(Role::Data).iter().map(|drive| books.free_slabs(*drive)).sum();
            let before = (room_for(&manifest, 4), room(&manifest, &books).usable_slabs);
            assert!(more >= 4 || before.1 <= free / 10, "{before:?} of {free} with {more} drives more");
            let links = plan(&manifest, &books, |_| true);
            let before = before.0;
            let moved = follow(&mut manifest, &links);
            let after = room_for(&manifest, 4);
            assert!(after > before || more >= 4 && moved == 0, "{before} {after} of {free}");
            assert!(after >= free / 4 - free / 128 - 1, "{before} {after} of {free}");
            assert!(moved <= free, "{moved} slabs moved for {free}");
            // Balanced: nothing more can be gained.
            let books = FreeSlabs::new(&manifest);
            assert_eq!(plan(&manifest, &books, |_| true), []);
            assert!(room(&manifest, &books).usable_slabs >= free - free / 32 - 4);
        }
    }

    #[test]
    fn nothing_moves_where_nothing_is_gained() {
        // All drives alike; one drive too few for a row to gain anything; a volume that must not
        // be touched.
        let (manifest, books) = pool(&[200; 4], "raid5", 4, 150);
        assert_eq!(plan(&manifest, &books, |_| true), []);
        let (manifest, books) = pool(&[200, 200, 50], "raid5", 3, 40);
        assert_eq!(plan(&manifest, &books, |_| true), []);
        let (manifest, books) = grown(50, 1);
        assert_eq!(plan(&manifest, &books, |_| false), []);
        // Rows with a missing column are rebuilt first.
        let (mut manifest, _) = grown(50, 1);
        let part = &mut manifest.volumes[0].parts[0];
        for row in 0..part.rows.rows() {
            let mut places = part.rows.run(row).unwrap().places_of(row);
            places[2].state = SlotState::Rebuilding;
            part.rows.set(row, 1, &places);
        }
        let books = FreeSlabs::new(&manifest);
        assert_eq!(plan(&manifest, &books, |_| true), []);
        // A retiring drive takes no part, either.
        let (mut manifest, _) = grown(50, 1);
        manifest.drives[4].retiring = true;
        let books = FreeSlabs::new(&manifest);
        assert_eq!(plan(&manifest, &books, |_| true), []);
    }

    #[test]
    fn rebalance_over_unequal_drives_only_gains_rows() {
        for sizes in [vec![60, 60, 60, 200], vec![60, 120, 60, 120, 300], vec![40, 40, 200, 200]] {
            let (mut manifest, books) = pool(&sizes, "raid1", 2, 35);
            let before = room_for(&manifest, 2);
            let links = plan(&manifest, &books, |_| true);
            follow(&mut manifest, &links);
            let after = room_for(&manifest, 2);
            assert!(after >= before && (links.is_empty() || after > before), "{sizes:?}: {before} {after}");
            let books = FreeSlabs::new(&manifest);
            assert_eq!(plan(&manifest, &books, |_| true), [], "{sizes:?}");
        }
    }
}
