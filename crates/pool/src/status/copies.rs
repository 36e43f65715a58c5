//! Redundancy that the copies of a volume's region maps and the areas of its journals leave, apart
//! from that of its rows.

use crate::manifest::volume_record::{PartRecord, PlaceState};
use stripewise_array::{Array, ArrayHandle};

/// Number of further drives, in the worst case, that may be lost before a part's region map or
/// journal has no copy left; and, where fewer copies are left than the layout tolerates, the drives
/// whose copies are missing.
pub(crate) fn copies_left(
    part: &PartRecord,
    array: Option<&ArrayHandle>,
    is_there: impl Fn(u32) -> bool,
) -> (isize, Vec<u32>) {
    let tolerance = part.shape.fault_tolerance() as isize;
    if part.log.is_some() {
        // A log's own record is on each of its members.
        return (tolerance, Vec::new());
    }
    let is_current = |(drive, is_active): &(u32, bool)| *is_active && is_there(*drive);
    let mut lacking = Vec::new();
    let mut left_of = |places: &[(u32, bool)]| {
        let left = places.iter().filter(|place| is_current(place)).count() as isize - 1;
        if left < tolerance {
            lacking.extend(places.iter().filter(|place| !is_current(place)).map(|(drive, _)| *drive));
        }
        left
    };
    let mut left = left_of(&map_places(part).collect::<Vec<_>>());
    let journal: Vec<(u32, bool)> = journal_places(part).collect();
    if !journal.is_empty() {
        left = left.min(left_of(&journal));
        // The open journal has newer information. A part that was opened without one of its areas
        // does not use the journal at all.
        if let Some(array) = array.filter(|array| !array.visit(Array::is_protected)) {
            left = left.min(array.visit(Array::journal_redundancy).unwrap_or(0) as isize);
        }
    }
    (left, lacking)
}

/// Drives with a copy of the region map, and whether the copy is current.
fn map_places(part: &PartRecord) -> impl Iterator<Item = (u32, bool)> {
    part.meta.places.iter().map(|place| (place.drive, place.state == PlaceState::Active))
}

/// Drives with an area of the journal, and whether the area is in use.
fn journal_places(part: &PartRecord) -> impl Iterator<Item = (u32, bool)> {
    part.journal.iter().map(|place| (place.drive, place.state == PlaceState::Active))
}

/// Drives with a copy of the region map or an area of the journal, and whether it is current.
pub(crate) fn copies(part: &PartRecord) -> impl Iterator<Item = (u32, bool)> {
    map_places(part).chain(journal_places(part))
}
