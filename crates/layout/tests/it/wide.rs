//! Properties of large arrays, up to 255 members and hundreds of terabytes, that the exhaustive
//! tests show for small ones.

use std::collections::HashSet;

use crate::kit::simulation::{CELLS, Cells, Simulation};
use crate::kit::{Random, geometry};
use proptest::prelude::*;
use stripewise_layout::{Geometry, LayoutSpec, Level, MemberSet, Place, Shape};

/// Any shape there can be.
fn shapes() -> impl Strategy<Value = Shape> {
    (prop::sample::select(Level::ALL.to_vec()), any::<u64>(), any::<u64>(), 12..=20u32).prop_map(
        |(level, width, groups, interleave_shift)| {
            let spread = (level.maximum_width() - level.minimum_width()) as u64 + 1;
            let mut width = level.minimum_width() + (width % spread) as usize;
            let mut groups_wanted = None;
            if level.is_grouped() {
                let most = (width / level.minimum_group_width()) as u64;
                let groups = 2 + (groups % (most - 1)) as usize;
                width -= width % groups;
                groups_wanted = Some(groups);
            }
            let spec = LayoutSpec {
                columns: Some(width),
                groups: groups_wanted,
                interleave_bytes: Some(1 << interleave_shift),
                ..LayoutSpec::new(level)
            };
            spec.resolve(width).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
        },
    )
}

/// Any shape over members of up to 32 TiB.
fn geometries() -> impl Strategy<Value = Geometry> {
    (shapes(), 1u64 << 20..1 << 45)
        .prop_map(|(shape, member_bytes)| Geometry::new(shape, member_bytes).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

    #[test]
    fn units_of_any_stripe_map_back(geometry in geometries(), at in any::<u64>(), in_unit in any::<u64>()) {
        let index = at % geometry.stripes();
        let in_unit = in_unit % geometry.interleave_bytes();
        let stripe = geometry.stripe(index);
        let members: HashSet<usize> = stripe.units.iter().map(|place| place.member).collect();
        prop_assert_eq!(stripe.units.len(), geometry.units());
        prop_assert_eq!(members.len(), geometry.units());
        for (unit, place) in stripe.units.iter().enumerate() {
            prop_assert_eq!(*place, geometry.place_of_unit(index, unit));
            prop_assert!(place.member < geometry.width());
            prop_assert!(place.offset_bytes + geometry.interleave_bytes() <= geometry.member_bytes());
            let found = geometry.unit_at(place.member, place.offset_bytes + in_unit).unwrap();
            prop_assert_eq!((found.stripe, found.unit, found.offset_in_unit), (index, unit, in_unit));
        }
    }

    #[test]
    fn any_place_maps_to_the_unit_that_lies_there(geometry in geometries(), member in any::<usize>(), at in any::<u64>()) {
        let member = member % geometry.width();
        let offset_bytes = at % geometry.member_bytes();
        let strips = geometry.width() as u64 * (geometry.member_bytes() / geometry.interleave_bytes());
        let has_unused = geometry.shape().level == Level::Raid10 && strips % 2 == 1;
        let is_last = offset_bytes / geometry.interleave_bytes() + 1
            == geometry.member_bytes() / geometry.interleave_bytes() && member + 1 == geometry.width();
        match geometry.unit_at(member, offset_bytes) {
            None => prop_assert!(has_unused && is_last),
            Some(found) => {
                prop_assert!(!(has_unused && is_last));
                let start = geometry.place_of_unit(found.stripe, found.unit);
                let place = Place { member, offset_bytes: offset_bytes - found.offset_in_unit };
                prop_assert_eq!(start, place);
            }
        }
    }

    #[test]
    fn any_volume_offset_is_found_again(geometry in geometries(), at in any::<u64>(), copy in any::<usize>()) {
        let offset = at % geometry.capacity_bytes();
        let location = geometry.locate(offset);
        prop_assert!(location.stripe < geometry.stripes());
        prop_assert!(location.from < geometry.stripe_data_bytes());
        prop_assert_eq!(location.stripe * geometry.stripe_data_bytes() + location.from, offset);
        let (place, left) = geometry.copy_place(offset, copy % geometry.copies());
        let found = geometry.unit_at(place.member, place.offset_bytes).unwrap();
        prop_assert_eq!(geometry.volume_offset(found.stripe, found.unit, found.offset_in_unit), Some(offset));
        prop_assert_eq!(left, geometry.interleave_bytes() - found.offset_in_unit);
    }

    #[test]
    fn requests_are_cut_without_gap_or_overlap(geometry in geometries(), at in any::<u64>(), length in 0..20_000_000u64) {
        let offset = at % geometry.capacity_bytes();
        let length = length.min(geometry.capacity_bytes() - offset);
        let mut next = offset;
        for segment in geometry.segments(offset, length) {
            prop_assert!(segment.from < segment.to && segment.to <= geometry.stripe_data_bytes());
            prop_assert_eq!(segment.stripe * geometry.stripe_data_bytes() + segment.from, next);
            let mut within = segment.from;
            for range in geometry.data_ranges(segment.from, segment.to) {
                prop_assert!(range.start < range.end && range.end <= geometry.interleave_bytes());
                prop_assert_eq!(range.unit as u64 * geometry.interleave_bytes() + range.start, within);
                within += range.length();
            }
            prop_assert_eq!(within, segment.to);
            next += segment.to - segment.from;
        }
        prop_assert_eq!(next, offset + length);
    }
}

/// Some ranges of some data units, never none.
fn some_write(data_units: usize, random: &mut Random) -> Vec<Cells> {
    let share = 1 + random.below(10);
    let mut written = Vec::new();
    for unit in 0..data_units {
        if random.below(10) < share {
            let start = random.below(CELLS as u64) as usize;
            let end = start + 1 + random.below((CELLS - start) as u64) as usize;
            written.push(Cells { unit, start, end });
        }
    }
    if written.is_empty() {
        written.push(Cells { unit: random.below(data_units as u64) as usize, start: 0, end: CELLS });
    }
    written
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn plans_of_wide_arrays_are_right(
        level in prop::sample::select(vec![Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid7, Level::Raid10]),
        width in 5..40usize,
        stripe in 0..100u64,
        losses in 0..5usize,
        seed in any::<u64>(),
    ) {
        let mut random = Random(seed);
        let geometry = geometry(level, width, None, 200);
        let missing: MemberSet = (0..losses).map(|_| random.below(width as u64) as usize).collect();
        let mut simulation = Simulation::new(&geometry, stripe, missing, &mut random);
        let tolerable = simulation.missing_units() <= geometry.fault_tolerance();
        for _ in 0..5 {
            let written = some_write(geometry.data_units(), &mut random);
            let plan = simulation.check_write(&written, &mut random);
            prop_assert_eq!(plan.is_some(), tolerable);
            let cells = (geometry.data_units() * CELLS) as u64;
            let from = random.below(cells);
            let to = from + 1 + random.below(cells - from);
            let outcome = simulation.check_read(from as usize, to as usize, |_| 0);
            prop_assert!(outcome.lost_cells == 0 || !tolerable);
        }
    }
}
