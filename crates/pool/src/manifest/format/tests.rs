//! Drives that leave: what their going does to the volumes.

use stripewise_layout::Level;

use super::*;
use crate::MIB;
use crate::manifest::drive_record::ExclusionKind;
use crate::manifest::events::{EventKind, MAX_EVENTS};
use crate::manifest::volume_record::PlaceState;
use crate::testing::{add_volume, pool, sample};
use stripewise_array::rows::SlotState;

fn out(drive: u32) -> Exclusion {
    Exclusion { drive, reason: "gone".to_owned(), kind: ExclusionKind::Missing }
}

fn states(manifest: &Manifest, volume: usize, drive: u32) -> Vec<SlotState> {
    let rows = &manifest.volumes[volume].parts[0].rows;
    let places = rows.runs().flat_map(|run| &run.places).filter(|place| place.drive == drive);
    places.map(|place| place.state).collect()
}

#[test]
fn exclusion_is_recorded_only_in_readable_volumes() {
    let mut manifest = pool(&[64; 3], MIB);
    add_volume(&mut manifest, 1, Level::Raid5, 3, 4);
    add_volume(&mut manifest, 2, Level::Raid0, 3, 4);
    manifest.exclude(&[out(1)]);
    assert_eq!(manifest.check(), Ok(()));
    assert_eq!(states(&manifest, 0, 1), [SlotState::Missing]);
    assert_eq!(states(&manifest, 1, 1), [SlotState::Active]);
    assert_eq!(manifest.volumes[0].parts[0].meta.places[1].state, PlaceState::Missing);
    assert_eq!(manifest.volumes[1].parts[0].meta.places[1].state, PlaceState::Active);
    assert!(manifest.is_needed(1));
    // Another one goes: now neither volume can be read, so nothing more is given up.
    manifest.exclude(&[out(2)]);
    assert_eq!(states(&manifest, 0, 2), [SlotState::Active]);
    // The first returns, but the RAID 5 volume has gone on without it.
    manifest.drive_mut(1).unwrap().standing = Standing::Online;
    manifest.note_missing();
    assert_eq!((manifest.check(), states(&manifest, 0, 2)), (Ok(()), vec![SlotState::Active]));
    manifest.drive_mut(2).unwrap().standing = Standing::Online;
    manifest.note_missing();
    assert!(!manifest.volumes[0].survives(|drive| drive == 2) && manifest.volumes[0].survives(|_| false));
}

#[test]
fn restored_volume_excludes_drives_still_away() {
    let mut manifest = pool(&[64; 4], MIB);
    add_volume(&mut manifest, 1, Level::Raid5, 4, 4);
    manifest.exclude(&[out(1), out(2)]);
    assert_eq!(states(&manifest, 0, 1), [SlotState::Active]);
    manifest.drive_mut(1).unwrap().standing = Standing::Online;
    assert!(manifest.check().is_err(), "drive 2 would be taken for current while writes go on without it");
    manifest.note_missing();
    assert_eq!((manifest.check(), states(&manifest, 0, 2)), (Ok(()), vec![SlotState::Missing]));
}

#[test]
fn unfilled_columns_of_a_leaving_drive_are_missing() {
    let mut manifest = pool(&[64; 3], MIB);
    add_volume(&mut manifest, 1, Level::Raid5, 3, 4);
    manifest.volumes[0].parts[0].rows.update(|_, _, places| {
        places[0].state = SlotState::Missing;
        places[2].state = SlotState::Rebuilding;
        true
    });
    // It cannot be read with or without it; a column that was never done is nothing to return to.
    manifest.exclude(&[out(2)]);
    assert_eq!(states(&manifest, 0, 2), [SlotState::Missing]);
    assert_eq!(states(&manifest, 0, 1), [SlotState::Active]);
}

#[test]
fn survival_is_asked_of_every_row() {
    let mut manifest = pool(&[64; 6], MIB);
    add_volume(&mut manifest, 1, Level::Raid1, 2, 30);
    let volume = &manifest.volumes[0];
    assert!(volume.parts[0].rows.runs().count() > 3);
    for (one, other) in [(0, 1), (2, 5), (3, 4)] {
        let meet = volume.parts[0]
            .rows
            .runs()
            .any(|run| run.places.iter().all(|place| [one, other].contains(&place.drive)));
        let maps = &volume.parts[0].meta.places;
        let map_left = maps.iter().any(|place| ![one, other].contains(&place.drive));
        assert_eq!(volume.survives(|drive| drive == one || drive == other), !meet && map_left);
    }
    assert!(volume.survives(|drive| drive == 4));
}

#[test]
fn replaced_drives_are_forgotten_once_unreferenced() {
    let mut manifest = pool(&[64; 4], MIB);
    add_volume(&mut manifest, 1, Level::Raid5, 3, 4);
    manifest.exclude(&[out(0), out(3)]);
    manifest.set_replaced(0);
    manifest.set_replaced(3);
    let numbers: Vec<u32> = manifest.drives.iter().map(|drive| drive.number).collect();
    let unnamed: Vec<u32> =
        [0, 3].into_iter().filter(|drive| !manifest.named_drives().contains(drive)).collect();
    assert_eq!(numbers.len(), 4 - unnamed.len());
    manifest.volumes.clear();
    manifest.forget_replaced();
    assert_eq!((manifest.drives.len(), manifest.former.len()), (2, 2));
    assert_eq!(manifest.check(), Ok(()));
}

#[test]
fn events_are_kept_for_a_while() {
    let mut manifest = sample();
    for number in 0..1000u64 {
        manifest.events.push(number, EventKind::Pool, &"é".repeat(number as usize));
    }
    let events = &manifest.events;
    assert_eq!((events.iter().count(), events.next_number()), (MAX_EVENTS, 1001));
    assert_eq!(events.since(1000).map(|event| event.time_unix_ms).collect::<Vec<_>>(), [999]);
    assert_eq!(events.since(events.next_number()).count(), 0);
    assert!(events.iter().all(|event| event.text.len() < 210));
}
