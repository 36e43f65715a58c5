use stripewise_drive::SplitMix64;
use stripewise_layout::Level;

use super::*;
use crate::MIB;
use crate::manifest::drive_record::{Exclusion, ExclusionKind};
use crate::testing::{add_volume, pool};
use stripewise_array::rows::RowTable;

/// A pool of drives with these numbers of slabs (of 1 MiB).
fn pool_of(slabs: &[u64]) -> Manifest {
    let with_rest = |slabs: &u64| slabs + 3 + (slabs * 8192).div_ceil(MIB);
    pool(&slabs.iter().map(with_rest).collect::<Vec<u64>>(), MIB)
}

/// Removes the maps, so that their slabs take no room.
fn without_maps(mut manifest: Manifest) -> Manifest {
    manifest.volumes.iter_mut().for_each(|volume| volume.parts[0].meta.places.clear());
    manifest
}

fn retire(manifest: &mut Manifest, number: u32) {
    manifest.drive_mut(number).unwrap().retiring = true;
}

/// True if all rows can be matched with drives, each column with a different one. A second method:
/// it assigns each row the drives with most room left, the widest rows first, and ignores the
/// present places.
fn can_be_matched(manifest: &Manifest) -> bool {
    let books = FreeSlabs::new(manifest);
    let mut room: BTreeMap<u32, u64> =
        books.usable(Role::Data).into_iter().map(|drive| (drive, books.slabs(drive))).collect();
    let mut widths: Vec<(usize, u64)> =
        manifest.parts().map(|part| (part.rows.width(), part.rows.allocated_rows())).collect();
    widths.sort_unstable_by(|one, other| other.cmp(one));
    for (width, rows) in widths {
        for _ in 0..rows {
            let mut drives: Vec<u32> = room.keys().copied().filter(|drive| room[drive] > 0).collect();
            drives.sort_by_key(|drive| std::cmp::Reverse(room[drive]));
            if drives.len() < width {
                return false;
            }
            drives[..width].iter().for_each(|drive| *room.get_mut(drive).unwrap() -= 1);
        }
    }
    true
}

#[test]
fn evacuation_check_agrees_with_exhaustive_matching() {
    let (mut fitted, mut refused, mut by_chains) = (0, 0, 0);
    for seed in 0..600 {
        let mut random = SplitMix64::new(seed);
        let drives = 3 + random.below(5) as usize;
        let slabs: Vec<u64> = (0..drives).map(|_| 6 + random.below(14)).collect();
        let mut manifest = pool_of(&slabs);
        let level = |width: usize| if width == 1 { Level::Single } else { Level::Raid0 };
        for id in 0..1 + random.below(3) {
            let width = 1 + random.below(drives as u64) as usize;
            let all: Vec<u32> = (0..drives as u32).collect();
            let mut books = FreeSlabs::new(&manifest);
            let has_map = books.allocate_places(&all[..width], 1).is_ok();
            let rows = random.below(24).min(if has_map { books.max_rows(&all, width) } else { 0 });
            if rows > 0 {
                add_volume(&mut manifest, u128::from(id), level(width), width, rows);
            }
        }
        let mut manifest = without_maps(manifest);
        (0..1 + random.below(2)).for_each(|_| retire(&mut manifest, random.below(drives as u64) as u32));
        let books = FreeSlabs::new(&manifest);
        let found = shortage(manifest.clone(), books.clone());
        assert_eq!(found.is_none(), can_be_matched(&manifest), "seed {seed}: {found:?}");
        fitted += u32::from(found.is_none());
        refused += u32::from(found.is_some());
        if found.is_none() {
            by_chains += u32::from(empty_step_by_step(manifest, books));
        }
    }
    assert!(fitted > 100 && refused > 100 && by_chains > 4, "{fitted} {refused} {by_chains}");
}

/// Empties drives as a drain does, one move after the other. True if something had to be moved out
/// of the way.
fn empty_step_by_step(mut manifest: Manifest, mut books: FreeSlabs) -> bool {
    let mut moved_on = false;
    let retiring: Vec<u32> =
        manifest.drives.iter().filter(|drive| drive.retiring).map(|drive| drive.number).collect();
    for number in retiring {
        for steps in 0.. {
            assert!(steps < 1000, "no progress");
            let parts: Vec<Id> = manifest.parts().map(|part| part.id).collect();
            let stretches: Vec<_> = parts
                .iter()
                .filter_map(|part| Some((*part, next_on(&manifest, *part, number, 0)?)))
                .collect();
            if stretches.is_empty() {
                break;
            }
            let direct = stretches.iter().find_map(|(part, (first_row, _, column, places))| {
                let in_rows: Vec<u32> = places.iter().map(|place| place.drive).collect();
                let found =
                    books.replace(&candidates(&manifest, &books, number, &in_rows), &in_rows, 1, None)?;
                Some((*part, *first_row, *column, places[*column], found))
            });
            let (part, row, column, from, found) = direct.unwrap_or_else(|| {
                let link = first_to_move(&manifest, &books, number, |_| true).expect("there is room");
                moved_on = true;
                let found = books.replace(&[link.onto], &[], 1, None).expect("there was room");
                (link.part, link.first_row, link.column, link.from, found)
            });
            let to = SlotPlace { drive: found.drive, slab: found.slab, ..from };
            put(&mut manifest.part_mut(part).unwrap().rows, row, 1, column, to);
            books.give(from.drive, from.slab, 1);
            let row = manifest.parts().find(|other| other.id == part).unwrap().rows.run(row).unwrap();
            let drives: BTreeSet<u32> = row.places.iter().map(|place| place.drive).collect();
            assert_eq!(drives.len(), row.places.len(), "columns of a row lie on distinct drives");
        }
    }
    moved_on
}

#[test]
fn shortage_counts_slabs_without_a_target() {
    let mut manifest = pool_of(&[20, 20, 20, 40]);
    add_volume(&mut manifest, 1, Level::Raid5, 4, 8);
    let mut manifest = without_maps(manifest);
    retire(&mut manifest, 2);
    let books = FreeSlabs::new(&manifest);
    let found = shortage(manifest.clone(), books.clone()).unwrap();
    let others = [0, 1, 3].into_iter().map(|drive| books.free_slabs(drive)).sum();
    // All other drives are in every row.
    let expected = Shortage { held_slabs: 8, homeless_slabs: 8, useless_slabs: others, adjacent_slabs: 0 };
    assert_eq!(found, expected);
    assert_eq!(first_to_move(&manifest, &books, 2, |_| true), None);
}

#[test]
fn room_for_a_lost_journal_area_is_kept() {
    // Rows on the first three drives. The last has room either for the column of one that is to be
    // emptied, or for the area that was on the fourth, which failed.
    let mut manifest = pool_of(&[20, 20, 20, 20, 6]);
    [3, 4].into_iter().for_each(|drive| retire(&mut manifest, drive));
    add_volume(&mut manifest, 1, Level::Raid5, 3, 4);
    manifest.drives.iter_mut().for_each(|drive| drive.retiring = false);
    let mut manifest = without_maps(manifest);
    let area = |drive, state| JournalPlaceRecord { drive, slab: 10, slabs: 6, state };
    manifest.volumes[0].parts[0].journal =
        vec![area(1, PlaceState::Active), area(2, PlaceState::Active), area(3, PlaceState::Missing)];
    let kind = ExclusionKind::Failed;
    manifest.exclude(&[Exclusion { drive: 3, reason: "a test".to_owned(), kind }]);
    retire(&mut manifest, 0);
    let mut books = FreeSlabs::new(&manifest);
    assert_eq!(shortage(manifest.clone(), books.clone()), None);
    let is_lost = |state, drive| state == PlaceState::Missing && drive == 3;
    place_lost(&mut manifest, &mut books, |_| true, is_lost);
    assert_eq!(manifest.volumes[0].parts[0].journal[2].drive, 4);
    assert!(shortage(manifest, books).is_some());
}

#[test]
fn fragmented_room_for_an_area_is_reported() {
    let mut manifest = pool_of(&[20, 20, 9]);
    add_volume(&mut manifest, 1, Level::Raid1, 2, 1);
    add_volume(&mut manifest, 2, Level::Single, 1, 1);
    let mut manifest = without_maps(manifest);
    manifest
        .volumes
        .iter_mut()
        .for_each(|volume| volume.parts[0].rows = RowTable::new(volume.parts[0].rows.width(), 0));
    let area = |drive, slab, slabs| JournalPlaceRecord { drive, slab, slabs, state: PlaceState::Active };
    manifest.volumes[0].parts[0].journal = vec![area(0, 10, 6), area(1, 10, 6)];
    retire(&mut manifest, 0);
    assert_eq!(shortage(manifest.clone(), FreeSlabs::new(&manifest)), None);
    manifest.volumes[1].parts[0].journal = vec![area(2, 4, 1)];
    let found = shortage(manifest.clone(), FreeSlabs::new(&manifest)).unwrap();
    assert_eq!((found.homeless_slabs, found.adjacent_slabs), (6, 6));
}
