//! No slab is allocated twice, no drive twice in a row; every slab is usable; equal drives get long
//! runs.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stripewise_drive::SplitMix64;

use super::*;
use crate::MIB;
use crate::manifest::drive_record::{Exclusion, ExclusionKind};
use crate::testing::{pool, sample};

/// Adds rows to a set of used slabs, none of which may be in it already.
fn note(used: &mut BTreeSet<(u32, u32)>, new: &[NewRows], width: usize) -> u64 {
    for rows in new {
        let drives: BTreeSet<u32> = rows.places.iter().map(|place| place.0).collect();
        assert_eq!((drives.len(), rows.places.len()), (width, width), "distinct drives");
        for &(drive, slab) in &rows.places {
            for row in 0..rows.rows as u32 {
                assert!(used.insert((drive, slab + row)), "slab {} of drive {drive} twice", slab + row);
            }
        }
    }
    new.iter().map(|rows| rows.rows).sum()
}

#[test]
fn a_large_pool_is_one_run() {
    let manifest = pool(&[20_000_000; 60], 128 * MIB);
    let mut free = FreeSlabs::new(&manifest);
    let drives = free.usable(Role::Data);
    free.allocate_places(&drives, 2).unwrap();
    let most = free.max_rows(&drives, 60);
    assert!(most > 150_000, "{most}");
    let begun = std::time::Instant::now();
    let rows = free.allocate_rows(&drives, 60, most, 0).unwrap();
    assert!(begun.elapsed().as_millis() < 100, "{:?}", begun.elapsed());
    assert_eq!((rows.len(), rows[0].rows), (1, most));
    assert!(rows[0].places.iter().all(|place| place.1 == 2));
    assert_eq!(free.allocate_rows(&drives, 60, 1, 0), Err(Shortage { possible: 0 }));
    free.give_rows(&rows);
    assert_eq!(free.max_rows(&drives, 60), most);
}

#[test]
fn unequal_drives_are_filled() {
    // 62, 62, 30, 30, 30 slabs; with two columns half of the total is usable.
    for (sizes, width) in [
        (vec![64, 64, 32, 32, 32], 2usize),
        (vec![64, 32, 32], 2),
        (vec![64, 48, 32, 20, 20], 3),
        (vec![200, 20, 20, 20], 2),
    ] {
        let manifest = pool(&sizes, MIB);
        let mut free = FreeSlabs::new(&manifest);
        let drives = free.usable(Role::Data);
        let slabs: Vec<u64> = drives.iter().map(|&drive| free.slabs(drive)).collect();
        let (sum, widest) = (slabs.iter().sum::<u64>(), *slabs.iter().max().unwrap());
        // All slabs, unless the large drives lack partners: then the other drives decide.
        let limit = if width == 2 { (sum / 2).min(sum - widest) } else { sum / width as u64 };
        let most = free.max_rows(&drives, width);
        assert!(most == limit || (width > 2 && most <= limit && most * 10 >= limit * 9), "{most} of {limit}");
        let rows = free.allocate_rows(&drives, width, most, 3).unwrap();
        assert_eq!(note(&mut BTreeSet::new(), &rows, width), most);
        assert_eq!(free.max_rows(&drives, width), 0);
    }
}

#[test]
fn equal_drives_get_equal_slabs_in_narrow_rows() {
    let manifest = pool(&[256; 12], MIB);
    let mut free = FreeSlabs::new(&manifest);
    let drives = free.usable(Role::Data);
    let rows = free.allocate_rows(&drives, 4, 300, 0).unwrap();
    note(&mut BTreeSet::new(), &rows, 4);
    let alike = |rows: &&NewRows| rows.places.iter().all(|place| place.1 == rows.places[0].1);
    let all_alike: u64 = rows.iter().filter(alike).map(|rows| rows.rows).sum();
    assert!(all_alike >= 270, "{all_alike} of 300");
    // No drive is always the last column.
    let last: BTreeSet<u32> = rows.iter().map(|rows| rows.places[3].0).collect();
    assert!(last.len() > 6);
}

#[test]
fn rows_asked_for_one_by_one_are_spread() {
    let manifest = pool(&[256; 8], MIB);
    let mut free = FreeSlabs::new(&manifest);
    let drives = free.usable(Role::Data);
    let mut used = BTreeSet::new();
    let mut partners = BTreeSet::new();
    for row in 0..400 {
        let rows = free.allocate_rows(&drives, 2, 1, row).unwrap();
        note(&mut used, &rows, 2);
        partners.extend(
            rows[0]
                .places
                .iter()
                .map(|place| place.0)
                .filter(|_| rows[0].places.iter().any(|place| place.0 == 0)),
        );
        let counts: Vec<u64> = drives.iter().map(|&drive| free.free_slabs(drive)).collect();
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
    }
    assert_eq!(partners.len(), 8);
}

#[test]
fn free_slabs_agree_with_the_manifest() {
    let mut manifest = sample();
    let free = FreeSlabs::new(&manifest);
    for drive in &manifest.drives {
        let used: u64 = manifest
            .parts()
            .map(|part| {
                let on = |number: u32| u64::from(number == drive.number);
                let meta = part.meta.places.iter().map(|place| on(place.drive) * u64::from(part.meta.slabs));
                let journal = part.journal.iter().map(|place| on(place.drive) * u64::from(place.slabs));
                let rows = part
                    .rows
                    .runs()
                    .map(|run| run.places.iter().map(|place| on(place.drive) * run.rows).sum::<u64>());
                meta.sum::<u64>() + journal.sum::<u64>() + rows.sum::<u64>()
            })
            .sum();
        assert_eq!(free.used_slabs(drive.number), used);
        let unused = free.slabs(drive.number) - used;
        match drive.successor {
            Some(_) => assert!(free.free_slabs(drive.number) < unused),
            None => assert_eq!(free.free_slabs(drive.number), unused),
        }
    }
    assert_eq!(free.usable(Role::Data), [0, 1, 2], "4 is excluded, 3 only takes the content of 2");
    assert_eq!((free.usable(Role::Journal), free.usable(Role::Spare)), (vec![5], vec![]));
    let kind = ExclusionKind::Offline;
    manifest.exclude(&[Exclusion { drive: 0, reason: String::new(), kind }]);
    manifest.drives[1].retiring = true;
    let number = manifest.add_drive(crate::manifest::ids::Id(4), "", Role::Fast, 64 * MIB);
    let mut refreshed = free.clone();
    refreshed.refresh(&manifest);
    assert_eq!((refreshed.usable(Role::Data), refreshed.usable(Role::Fast)), (vec![2], vec![number]));
    assert_eq!(refreshed.free_slabs(0), free.free_slabs(0));
}

#[test]
fn replacement_slabs_go_to_the_emptiest_other_drive() {
    let manifest = pool(&[64, 64, 64, 128, 40], MIB);
    let mut free = FreeSlabs::new(&manifest);
    let drives = free.usable(Role::Data);
    let first = free.replace(&drives, &[0, 1], 5, Some(17)).unwrap();
    assert_eq!(first, Replacement { drive: 3, slab: 17, rows: 5 });
    let second = free.replace(&drives, &[0, 1, 3], 500, Some(17)).unwrap();
    assert_eq!(second, Replacement { drive: 2, slab: 17, rows: free.slabs(2) - 17 });
    let third = free.replace(&[2], &[], 500, Some(20)).unwrap();
    assert_eq!((third.slab, third.rows), (0, 17), "a preferred slab in use is not taken");
    assert_eq!(free.replace(&[2], &[], 1, None), None);
    assert_eq!(free.replace(&drives, &drives, 1, None), None);
}

#[test]
fn places_are_all_or_nothing() {
    let manifest = pool(&[64, 64, 32], MIB);
    let mut free = FreeSlabs::new(&manifest);
    free.take(0, 3, 5);
    assert_eq!(free.allocate_places(&[0, 1, 2], 4), Ok(vec![(0, 8), (1, 8), (2, 8)]));
    assert_eq!(free.allocate_places(&[0, 1, 2], 25), Err(Shortage { possible: 2 }));
    free.take(2, 15, 2);
    free.take(0, 14, 10);
    free.take(1, 13, 10);
    // No stretch of this length is free at the same number on all three drives.
    assert_eq!(free.allocate_places(&[0, 1, 2], 12), Ok(vec![(0, 24), (1, 23), (2, 17)]));
    assert_eq!(free.emptiest(&[0, 1, 2])[2], 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// Rows are allocated and given back in any order: the free space agrees with a set of slabs,
    /// and as many rows as reported are possible.
    #[test]
    fn nothing_is_handed_out_twice(
        sizes in prop::collection::vec(10u64..80, 1..9),
        steps in prop::collection::vec((1usize..5, 1u64..40, any::<u64>()), 1..25),
    ) {
        let manifest = pool(&sizes, MIB);
        let mut free = FreeSlabs::new(&manifest);
        let drives = free.usable(Role::Data);
        let mut held: Vec<(Vec<NewRows>, usize)> = Vec::new();
        for (width, rows, salt) in steps {
            let most = free.max_rows(&drives, width);
            match free.allocate_rows(&drives, width, rows, salt) {
                Ok(new) => {
                    prop_assert!(rows <= most);
                    held.push((new, width));
                }
                Err(shortage) => {
                    prop_assert!(rows > most && shortage.possible == most);
                    if most > 0 {
                        held.push((free.allocate_rows(&drives, width, most, salt).unwrap(), width));
                    }
                    let mut random = SplitMix64::new(salt);
                    for _ in 0..random.below(4).min(held.len() as u64) {
                        let index = random.below(held.len() as u64) as usize;
                        free.give_rows(&held.swap_remove(index).0);
                    }
                }
            }
            let mut used = BTreeSet::new();
            held.iter().for_each(|(new, width)| { note(&mut used, new, *width); });
            for &drive in &drives {
                let on = used.iter().filter(|(number, _)| *number == drive).count() as u64;
                prop_assert_eq!(free.free_slabs(drive) + on, free.slabs(drive));
            }
        }
    }
}
