//! What redundancy the copies of region maps and the areas of journals leave to a volume, beside
//! that of its rows.

use crate::array::Array;
use crate::pool::manifest::volume_record::{PartRecord, PlaceState};

/// How many more drives may be lost, whichever they are, before nothing is left of a part's
/// region map, or of its journal; and whose copies are lacking where these are fewer than the
/// layout can spare.
pub(in crate::pool) fn copies_left(
    part: &PartRecord,
    array: Option<&Array>,
    is_there: impl Fn(u32) -> bool,
) -> (isize, Vec<u32>) {
    let tolerance = part.shape.fault_tolerance() as isize;
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
        // What the open journal knows is newer; where it could not be opened without an area it
        // is not used at all.
        if let Some(array) = array.filter(|array| !array.is_protected()) {
            left = left.min(array.journal_redundancy().unwrap_or(0) as isize);
        }
    }
    (left, lacking)
}

/// Drives with a copy of the region map, and whether it is current.
fn map_places(part: &PartRecord) -> impl Iterator<Item = (u32, bool)> {
    part.meta.places.iter().map(|place| (place.drive, place.state == PlaceState::Active))
}

/// Drives with an area of the journal, and whether it counts.
fn journal_places(part: &PartRecord) -> impl Iterator<Item = (u32, bool)> {
    part.journal.iter().map(|place| (place.drive, place.state == PlaceState::Active))
}

/// Drives with either.
pub(in crate::pool) fn copies(part: &PartRecord) -> impl Iterator<Item = (u32, bool)> {
    map_places(part).chain(journal_places(part))
}
