//! Undoes the parts of a commit that lie on drives which fail while it is written, where they can
//! be dropped.
//!
//! A column that is to move to such a drive stays at its old place, which has all of its data until
//! the commit counts. A row of a thin volume that was to get its first slabs there gets none: it
//! holds no data yet, and the caller allocates other slabs.

use crate::manifest::drive_record::Exclusion;
use crate::manifest::format::Manifest;
use crate::manifest::volume_record::PartRecord;
use stripewise_array::rows::{Places, RowTable, SlotPlace, SlotState};

/// Removes from `next` the places on failing drives that `before` does not have. True if it removed
/// any.
pub(crate) fn take_back(before: &Manifest, next: &mut Manifest, out: &[Exclusion]) -> bool {
    if out.is_empty() {
        return false;
    }
    let falls_out = |number: u32| out.iter().any(|exclusion| exclusion.drive == number);
    let online: Vec<u32> =
        next.drives.iter().filter(|drive| drive.is_online()).map(|drive| drive.number).collect();
    let stays = |place: &SlotPlace| {
        place.state == SlotState::Active && online.contains(&place.drive) && !falls_out(place.drive)
    };
    let mut is_any = false;
    for part in next.volumes.iter_mut().flat_map(|volume| &mut volume.parts) {
        let Some(old) = before.parts().find(|old| old.id == part.id) else { continue };
        for (row, places) in rows_on(part, &falls_out) {
            if row < old.rows.rows() && old.rows.is_hole(row) {
                part.rows.clear(row, 1);
                is_any = true;
            } else if let Some(places) = with_old_places(&old.rows, row, places, &falls_out, &stays) {
                part.rows.set(row, 1, &places);
                is_any = true;
            }
        }
    }
    is_any
}

/// Rows with a column on failing drives, each with its places.
fn rows_on(part: &PartRecord, falls_out: &impl Fn(u32) -> bool) -> Vec<(u64, Places)> {
    let is_on = |places: &Places| places.iter().any(|place| falls_out(place.drive));
    let runs = part.rows.runs().filter(|run| is_on(&run.places));
    runs.flat_map(|run| (run.first_row..run.end_row()).map(|row| (row, run.places_of(row)))).collect()
}

/// The row's places, with those on failing drives replaced by the former ones that were current on
/// drives that stay; `None` if there are none.
fn with_old_places(
    old: &RowTable,
    row: u64,
    mut places: Places,
    falls_out: &impl Fn(u32) -> bool,
    stays: &impl Fn(&SlotPlace) -> bool,
) -> Option<Places> {
    let mut is_any = false;
    for (column, place) in places.iter_mut().enumerate().filter(|(_, place)| falls_out(place.drive)) {
        if let Some(was) = old.place(row, column).filter(stays) {
            (*place, is_any) = (was, true);
        }
    }
    is_any.then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIB;
    use crate::manifest::drive_record::ExclusionKind;
    use crate::testing;

    fn out(drives: &[u32]) -> Vec<Exclusion> {
        let exclusion = |drive: &u32| {
            let reason = "a test".to_owned();
            Exclusion { drive: *drive, reason, kind: ExclusionKind::Failed }
        };
        drives.iter().map(exclusion).collect()
    }

    fn on_four_of_six_drives() -> Manifest {
        let mut manifest = testing::pool(&[64; 6], MIB);
        testing::add_volume(&mut manifest, 55, stripewise_layout::Level::Raid0, 4, 9);
        manifest
    }

    #[test]
    fn column_stays_if_its_target_drive_fails() {
        let before = on_four_of_six_drives();
        let part = &before.volumes[0].parts[0];
        let mut places = part.rows.run(2).unwrap().places_of(2);
        let from = places[1];
        let onto = (0..6).find(|drive| places.iter().all(|place| place.drive != *drive));
        let onto = onto.expect("a drive without a column of the row");
        places[1] = SlotPlace { drive: onto, slab: 40, ..from };
        let mut next = before.clone();
        next.volumes[0].parts[0].rows.set(2, 1, &places);
        let moved = next.clone();
        assert!(!take_back(&before, &mut next, &[]));
        assert!(!take_back(&before, &mut next, &out(&[from.drive])));
        assert!(!take_back(&before, &mut next, &out(&[from.drive, onto])), "both have failed");
        assert_eq!(next, moved);
        assert!(take_back(&before, &mut next, &out(&[onto])));
        assert_eq!(next, before);
    }

    #[test]
    fn thin_row_gets_no_slabs_on_a_failing_drive() {
        let next = on_four_of_six_drives();
        let mut before = next.clone();
        before.volumes[0].parts[0].rows.clear(3, 2);
        let drive = next.volumes[0].parts[0].rows.place(3, 2).unwrap().drive;
        let mut taken_back = next.clone();
        assert!(take_back(&before, &mut taken_back, &out(&[drive])));
        assert_eq!(taken_back, before);
        let mut new = next.clone();
        before.volumes[0].parts[0].rows.resize(3);
        assert!(!take_back(&before, &mut new, &out(&[drive])), "a growing volume keeps its rows");
    }
}
