//! The address maps are bijections: exhaustively for small arrays, as properties for large ones.

use std::collections::{HashMap, HashSet};

use crate::kit::{INTERLEAVE_BYTES, geometry, small_geometries};
use stripewise_layout::{Geometry, LayoutSpec, Level, Place, UnitAt};

/// Strips that no unit lies at: only a RAID 10 with an odd number of strips has one, its last.
fn unused_strips(geometry: &Geometry) -> u64 {
    let strips = geometry.width() as u64 * (geometry.member_bytes() / geometry.interleave_bytes());
    if geometry.shape().level == Level::Raid10 { strips % 2 } else { 0 }
}

fn check_every_unit(geometry: &Geometry) {
    let interleave = geometry.interleave_bytes();
    let mut places: HashMap<Place, (u64, usize)> = HashMap::new();
    let mut previous_data_end = 0;
    for index in 0..geometry.stripes() {
        let stripe = geometry.stripe(index);
        assert_eq!(stripe.index, index);
        assert_eq!(stripe.units.len(), geometry.units());
        let members: HashSet<usize> = stripe.units.iter().map(|place| place.member).collect();
        assert_eq!(
            members.len(),
            stripe.units.len(),
            "two units of stripe {index} on one member: {geometry:?}"
        );
        for (unit, &place) in stripe.units.iter().enumerate() {
            assert!(place.member < geometry.width());
            assert_eq!(place.offset_bytes % interleave, 0);
            assert!(place.offset_bytes + interleave <= geometry.member_bytes());
            assert_eq!(places.insert(place, (index, unit)), None, "{place:?} used twice: {geometry:?}");
            assert_eq!(
                geometry.place_of_unit(index, unit),
                place,
                "stripe {index} unit {unit}: {geometry:?}"
            );
            check_unit_offsets(geometry, index, unit, place, &mut previous_data_end);
        }
    }
    assert_eq!(previous_data_end, geometry.capacity_bytes());
    let mut unused = 0;
    for member in 0..geometry.width() {
        for row in 0..geometry.member_bytes() / interleave {
            let place = Place { member, offset_bytes: row * interleave };
            for offset_in_unit in [0, 1, interleave - 1] {
                let found = geometry.unit_at(member, place.offset_bytes + offset_in_unit);
                let expected =
                    places.get(&place).map(|&(stripe, unit)| UnitAt { stripe, unit, offset_in_unit });
                assert_eq!(found, expected, "{place:?} + {offset_in_unit}: {geometry:?}");
            }
            unused += u64::from(!places.contains_key(&place));
        }
        assert_eq!(geometry.unit_at(member, geometry.member_bytes()), None);
    }
    assert_eq!(unused, unused_strips(geometry), "{geometry:?}");
    assert_eq!(geometry.unit_at(geometry.width(), 0), None);
}

/// Volume offsets to and from a unit agree, by every way there is.
fn check_unit_offsets(geometry: &Geometry, index: u64, unit: usize, place: Place, previous_end: &mut u64) {
    let interleave = geometry.interleave_bytes();
    let is_data = unit < geometry.data_units() * geometry.copies();
    if !is_data {
        assert_eq!(geometry.volume_offset(index, unit, 0), None);
        return;
    }
    let start = geometry.volume_offset(index, unit, 0).expect("data has a volume offset");
    let copy = if geometry.copies() > 1 { unit } else { 0 };
    if copy == 0 {
        assert_eq!(start, *previous_end, "the volume goes on without a gap");
        *previous_end = start + interleave;
    }
    for in_strip in [0, 1, 511, interleave - 1] {
        let offset = start + in_strip;
        assert_eq!(geometry.volume_offset(index, unit, in_strip), Some(offset));
        let location = geometry.locate(offset);
        assert_eq!(location.stripe, index);
        let data_unit = if geometry.copies() > 1 { 0 } else { unit as u64 };
        assert_eq!(location.from, data_unit * interleave + in_strip);
        let expected = Place { member: place.member, offset_bytes: place.offset_bytes + in_strip };
        assert_eq!(geometry.copy_place(offset, copy), (expected, interleave - in_strip));
        if copy == 0 {
            assert_eq!(geometry.data_unit_place(offset), (expected, interleave - in_strip));
        }
    }
}

fn check_capacity(geometry: &Geometry) {
    let strips = geometry.width() as u64 * (geometry.member_bytes() / geometry.interleave_bytes());
    let units = geometry.units() as u64;
    assert_eq!(strips - unused_strips(geometry), geometry.stripes() * units);
    let data_bytes = geometry.stripes() * geometry.data_units() as u64 * geometry.interleave_bytes();
    assert_eq!(geometry.capacity_bytes(), data_bytes);
}

#[test]
fn small_arrays_are_bijections() {
    for rows in [1, 2, 3, 7, 26] {
        for geometry in small_geometries(13, 16, rows) {
            check_every_unit(&geometry);
            check_capacity(&geometry);
        }
    }
}

#[test]
fn interleaves_scale_the_map() {
    for interleave_bytes in [8 << 10, 64 << 10, 1 << 20] {
        let spec = LayoutSpec { interleave_bytes: Some(interleave_bytes), ..LayoutSpec::new(Level::Raid6) };
        // The space after the last whole strip is not used.
        let geometry = Geometry::new(spec.resolve(6).unwrap(), 8 * interleave_bytes - 1).unwrap();
        assert_eq!(geometry.member_bytes(), 7 * interleave_bytes);
        check_every_unit(&geometry);
    }
}

/// The members of the units, written out by hand from the published figures of each layout.
#[test]
fn units_lie_where_the_layout_says() {
    let members = |geometry: &Geometry| -> Vec<Vec<usize>> {
        let stripes = 0..geometry.stripes();
        stripes
            .map(|stripe| geometry.stripe(stripe).units.iter().map(|place| place.member).collect())
            .collect()
    };
    assert_eq!(members(&geometry(Level::Single, 1, None, 3)), [[0], [0], [0]]);
    assert_eq!(members(&geometry(Level::Raid0, 3, None, 2)), [[0], [1], [2], [0], [1], [2]]);
    assert_eq!(members(&geometry(Level::Raid1, 3, None, 2)), [[0, 1, 2], [0, 1, 2]]);
    assert_eq!(members(&geometry(Level::Raid10, 4, None, 2)), [[0, 1], [2, 3], [0, 1], [2, 3]]);
    assert_eq!(members(&geometry(Level::Raid10, 3, None, 3)), [[0, 1], [2, 0], [1, 2], [0, 1]]);
    assert_eq!(members(&geometry(Level::Raid4, 4, None, 2)), [[0, 1, 2, 3], [0, 1, 2, 3]]);
    assert_eq!(
        members(&geometry(Level::Raid5, 4, None, 5)),
        [[0, 1, 2, 3], [3, 0, 1, 2], [2, 3, 0, 1], [1, 2, 3, 0], [0, 1, 2, 3]]
    );
    assert_eq!(
        members(&geometry(Level::Raid6, 5, None, 5)),
        [[1, 2, 3, 4, 0], [0, 1, 2, 3, 4], [4, 0, 1, 2, 3], [3, 4, 0, 1, 2], [2, 3, 4, 0, 1]]
    );
    assert_eq!(members(&geometry(Level::Raid7, 5, None, 2)), [[2, 3, 4, 0, 1], [1, 2, 3, 4, 0]]);
    assert_eq!(members(&geometry(Level::Raid50, 6, None, 2)), [[0, 1, 2], [3, 4, 5], [2, 0, 1], [5, 3, 4]]);
    let rows: Vec<u64> =
        (0..4).map(|s| geometry(Level::Raid50, 6, None, 2).stripe(s).units[0].offset_bytes).collect();
    assert_eq!(rows, [0, 0, INTERLEAVE_BYTES, INTERLEAVE_BYTES]);
}
