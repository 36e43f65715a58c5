//! Read plans with the fewest I/Os, also with missing members.
//!
//! Reading a missing unit takes as many other units as the stripe has data units, however many are
//! missing; requested data units among them are read once, for both purposes. Fault expected: more
//! missing units than the stripe tolerates; then the remaining units are still read.

use smallvec::{SmallVec, smallvec};

use crate::geometry::{Geometry, Stripe};
use crate::members::MemberSet;
use crate::plan::{Decode, ReadPlan, Unreadable, decode_sources, lost_ranges, members_of, missing_units};
use crate::unit_range::UnitRange;

/// Plans reading bytes `from..to` of a stripe's data with these members missing. `prefer` chooses
/// among the present copies of a mirror: it gets their members and returns an index into them. If
/// more units are missing than the stripe tolerates, the error holds a plan for the rest. Panics
/// for an empty range or one past the stripe's data.
#[inline]
pub fn plan_read(
    geometry: &Geometry,
    stripe: &Stripe,
    from: u64,
    to: u64,
    missing: &MemberSet,
    prefer: impl FnMut(&[usize]) -> usize,
) -> Result<ReadPlan, Unreadable> {
    assert!(from < to && to <= geometry.stripe_data_bytes(), "range {from}..{to} of a stripe's data");
    if geometry.parity_units() == 0 {
        return read_copy(geometry, stripe, from, to, missing, prefer);
    }
    let wanted = geometry.data_ranges(from, to);
    if missing.is_empty() {
        return Ok(ReadPlan { reads: wanted.collect(), decode: None });
    }
    let gone = missing_units(stripe, missing);
    let wanted: SmallVec<[UnitRange; 4]> = wanted.collect();
    read_ranges(geometry, stripe, &wanted, &gone)
}

/// Plans the reconstruction of whole or parts of units, `start..end` of each, parity too: for
/// rebuilding a member or repairing a unit that cannot be read. The wanted units count as missing
/// whether their members are or not, and the plan does not read them. For mirrors the plan reads
/// one present copy, a different one from stripe to stripe, and has nothing to decode. Panics for
/// units that are not there or an empty range.
pub fn plan_reconstruct(
    geometry: &Geometry,
    stripe: &Stripe,
    wanted: &[usize],
    start: u64,
    end: u64,
    missing: &MemberSet,
) -> Result<ReadPlan, Unreadable> {
    assert!(start < end && end <= geometry.interleave_bytes(), "range {start}..{end} of a strip");
    assert!(wanted.iter().all(|&unit| unit < geometry.units()), "units {wanted:?} of {}", geometry.units());
    let wanted: MemberSet = wanted.iter().copied().collect();
    assert!(!wanted.is_empty(), "nothing to reconstruct");
    let mut gone = missing_units(stripe, missing);
    gone.extend(wanted);
    let ranges: SmallVec<[UnitRange; 4]> = wanted.iter().map(|unit| UnitRange { unit, start, end }).collect();
    if geometry.parity_units() > 0 {
        return read_ranges(geometry, stripe, &ranges, &gone);
    }
    let present: SmallVec<[usize; 4]> = (0..geometry.units()).filter(|unit| !gone.contains(*unit)).collect();
    if present.is_empty() {
        return Err(unreadable(geometry, stripe, &ranges, &gone));
    }
    let unit = present[(stripe.index % present.len() as u64) as usize];
    Ok(ReadPlan { reads: smallvec![UnitRange { unit, start, end }], decode: None })
}

/// Reads one of the copies of a stripe without parity.
#[inline]
fn read_copy(
    geometry: &Geometry,
    stripe: &Stripe,
    from: u64,
    to: u64,
    missing: &MemberSet,
    mut prefer: impl FnMut(&[usize]) -> usize,
) -> Result<ReadPlan, Unreadable> {
    let mut present_units: SmallVec<[usize; 12]> = SmallVec::new();
    let mut present_members: SmallVec<[usize; 12]> = SmallVec::new();
    for (unit, place) in stripe.units.iter().enumerate() {
        if !missing.contains(place.member) {
            present_units.push(unit);
            present_members.push(place.member);
        }
    }
    let unit = match present_units.as_slice() {
        [] => {
            let gone = missing_units(stripe, missing);
            let range = UnitRange { unit: 0, start: from, end: to };
            return Err(unreadable(geometry, stripe, &[range], &gone));
        }
        [only] => *only,
        several => several[prefer(&present_members)],
    };
    Ok(ReadPlan { reads: smallvec![UnitRange { unit, start: from, end: to }], decode: None })
}

/// Reads the ranges, ascending by unit, one per unit; those of missing units are reconstructed.
fn read_ranges(
    geometry: &Geometry,
    stripe: &Stripe,
    wanted: &[UnitRange],
    gone: &MemberSet,
) -> Result<ReadPlan, Unreadable> {
    let lost = wanted.iter().filter(|range| gone.contains(range.unit));
    let Some((start, end)) = hull(lost.clone()) else {
        return Ok(ReadPlan { reads: wanted.iter().copied().collect(), decode: None });
    };
    let Some(sources) = decode_sources(geometry, gone) else {
        return Err(unreadable(geometry, stripe, wanted, gone));
    };
    // Every present data unit is a source, so the sources' reads cover what else was asked for.
    let mut asked = wanted.iter().filter(|range| !gone.contains(range.unit)).peekable();
    let reads = sources.iter().map(|&unit| match asked.next_if(|range| range.unit == unit) {
        Some(range) => UnitRange { unit, start: start.min(range.start), end: end.max(range.end) },
        None => UnitRange { unit, start, end },
    });
    let reads = reads.collect();
    let wanted = lost.map(|range| range.unit).collect();
    Ok(ReadPlan { reads, decode: Some(Decode { wanted, sources, start, end }) })
}

/// From the first start to the last end.
pub(crate) fn hull<'a>(ranges: impl Iterator<Item = &'a UnitRange>) -> Option<(u64, u64)> {
    ranges
        .map(|range| (range.start, range.end))
        .reduce(|(start, end), (other_start, other_end)| (start.min(other_start), end.max(other_end)))
}

fn unreadable(geometry: &Geometry, stripe: &Stripe, wanted: &[UnitRange], gone: &MemberSet) -> Unreadable {
    let rest = wanted.iter().filter(|range| !gone.contains(range.unit)).copied().collect();
    Unreadable {
        stripe: stripe.index,
        lost: lost_ranges(stripe, wanted, gone),
        missing_members: members_of(stripe, gone),
        tolerated: geometry.fault_tolerance(),
        rest: Box::new(ReadPlan { reads: rest, decode: None }),
    }
}
