//! Survival of lost members: every combination, for every layout up to 8 drives.

use crate::kit::{geometry, members, period, small_geometries};
use stripewise_layout::{Geometry, Level, MemberSet, plan_read, plan_reconstruct, plan_write};

/// Number of a stripe's units on missing members, and the number that it tolerates: from the places
/// alone.
fn losses(geometry: &Geometry, stripe: u64, missing: &MemberSet) -> (usize, usize) {
    let units = geometry.stripe(stripe).units;
    let lost = units.iter().filter(|place| missing.contains(place.member)).count();
    (lost, units.len() - geometry.data_units())
}

/// True if the plan can read all data of a stripe.
fn is_readable(geometry: &Geometry, stripe: u64, missing: &MemberSet) -> bool {
    let to = geometry.stripe_data_bytes();
    plan_read(geometry, &geometry.stripe(stripe), 0, to, missing, |_| 0).is_ok()
}

#[test]
fn exactly_the_stripes_past_tolerance_are_unreadable() {
    for rows in [1, 9] {
        for geometry in small_geometries(8, 9, rows) {
            let (mut survived, mut lost_at) = (vec![true; geometry.width() + 1], usize::MAX);
            for bits in 0..1u32 << geometry.width() {
                let missing = members(bits);
                let mut all_readable = true;
                for stripe in 0..period(&geometry) {
                    let (lost, tolerated) = losses(&geometry, stripe, &missing);
                    check_stripe(&geometry, stripe, &missing, lost, tolerated);
                    all_readable &= is_readable(&geometry, stripe, &missing);
                }
                assert_eq!(geometry.survives(&missing), all_readable, "{geometry:?} without {missing:?}");
                survived[missing.len()] &= all_readable;
                if !all_readable {
                    lost_at = lost_at.min(missing.len());
                }
            }
            let tolerance = geometry.fault_tolerance();
            assert!(survived[..=tolerance].iter().all(|survived| *survived), "{geometry:?}");
            assert_eq!(lost_at, tolerance + 1, "no more is promised than holds, and no less: {geometry:?}");
        }
    }
}

/// A stripe that lost no more than it can do without is read, written and rebuilt in full; one that
/// lost more gives an error for what is lost, but not for the units that are still there.
fn check_stripe(geometry: &Geometry, index: u64, missing: &MemberSet, lost: usize, tolerated: usize) {
    let stripe = geometry.stripe(index);
    let interleave = geometry.interleave_bytes();
    let gone = |unit: usize| missing.contains(stripe.units[unit].member);
    assert_eq!(geometry.stripe_survives(index, missing), lost <= tolerated);
    for unit in 0..geometry.data_units() {
        let from = unit as u64 * interleave;
        let readable = plan_read(geometry, &stripe, from, from + interleave, missing, |_| 0).is_ok();
        let unit_gone = if geometry.parity_units() == 0 { lost == geometry.units() } else { gone(unit) };
        assert_eq!(
            readable,
            lost <= tolerated || !unit_gone,
            "stripe {index} unit {unit} without {missing:?}"
        );
    }
    assert_eq!(
        is_readable(geometry, index, missing),
        lost <= tolerated || data_is_whole(geometry, index, missing)
    );
    let all: Vec<_> = geometry.data_ranges(0, geometry.stripe_data_bytes()).collect();
    assert_eq!(plan_write(geometry, &stripe, &all, missing).is_ok(), lost <= tolerated);
    for unit in (0..geometry.units()).filter(|&unit| gone(unit)) {
        let plan = plan_reconstruct(geometry, &stripe, &[unit], 0, interleave, missing);
        assert_eq!(plan.is_ok(), lost <= tolerated);
    }
}

/// With parity and more lost than tolerated some data unit is always lost too.
fn data_is_whole(geometry: &Geometry, stripe: u64, missing: &MemberSet) -> bool {
    let units = geometry.stripe(stripe).units;
    let data = &units[..geometry.data_units() * geometry.copies()];
    geometry.parity_units() > 0 && data.iter().all(|place| !missing.contains(place.member))
}

#[test]
fn numbers_beyond_the_width_are_ignored() {
    for geometry in small_geometries(6, 8, 9) {
        let strangers: MemberSet = (geometry.width()..256).collect();
        assert!(geometry.survives(&strangers), "{geometry:?}");
        assert!((0..geometry.stripes()).all(|stripe| is_readable(&geometry, stripe, &strangers)));
    }
}

/// The combinations beyond the guaranteed number that layouts with several redundancy sets survive
/// all the same.
#[test]
fn some_losses_beyond_tolerance_are_survived() {
    let cases: [(Geometry, &[usize], bool); 8] = [
        (geometry(Level::Raid10, 4, None, 4), &[0, 2], true),
        (geometry(Level::Raid10, 4, None, 4), &[0, 1], false),
        (geometry(Level::Raid10, 8, None, 4), &[0, 3, 4, 7], true),
        (geometry(Level::Raid10, 5, None, 4), &[0, 2], true),
        (geometry(Level::Raid10, 5, None, 4), &[4, 0], false),
        (geometry(Level::Raid50, 6, None, 4), &[1, 5], true),
        (geometry(Level::Raid50, 6, None, 4), &[3, 5], false),
        (geometry(Level::Raid60, 8, None, 4), &[0, 1, 6, 7], true),
    ];
    for (geometry, missing, survives) in cases {
        let set: MemberSet = missing.iter().copied().collect();
        assert_eq!(geometry.survives(&set), survives, "{geometry:?} without {missing:?}");
    }
}

#[test]
fn errors_name_stripe_units_and_members() {
    let geometry = geometry(Level::Raid5, 4, None, 8);
    let missing: MemberSet = [1, 3].into_iter().collect();
    // Stripe 1 lies on members 3, 0, 1 and has its parity on 2.
    let stripe = geometry.stripe(1);
    let error = plan_read(&geometry, &stripe, 1024, 3 * 4096, &missing, |_| 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stripe 1 cannot be read in full: bytes 1024..4096 of unit 0 on member 3 are lost, \
         bytes 0..4096 of unit 2 on member 1 are lost, members 3, 1 missing, 1 can be done without"
    );
    let written: Vec<_> = geometry.data_ranges(4096, 8192).collect();
    let error = plan_write(&geometry, &stripe, &written, &missing).unwrap_err();
    assert_eq!(error.to_string(), "stripe 1 cannot be written: members 3, 1 missing, 1 can be done without");
}
