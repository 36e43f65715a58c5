//! Common parts of read and write plans: ranges of units, decoding, and the errors for too many
//! missing units.
//!
//! Fault expected: more missing units in a stripe than its redundancy covers. The errors name the
//! stripe, the units and the members, so that a report can name the affected bytes of the volume.

use std::fmt;

use smallvec::SmallVec;
use thiserror::Error;

use crate::geometry::{Geometry, Stripe};
use crate::members::MemberSet;
use crate::unit_range::UnitRange;

/// Units to reconstruct, from which others, over which bytes of the strip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decode {
    /// Units to reconstruct, ascending.
    pub wanted: SmallVec<[usize; 3]>,
    /// As many units as the stripe has data units, ascending; the plan reads each over at least the
    /// window.
    pub sources: SmallVec<[usize; 12]>,
    /// First byte of the window, from the start of the strip.
    pub start: u64,
    /// One past the last byte of the window, from the start of the strip.
    pub end: u64,
}

/// Reads, and the units to reconstruct from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadPlan {
    /// One I/O each, ascending by unit, at most one per unit.
    pub reads: SmallVec<[UnitRange; 4]>,
    /// Present where a missing unit has to be reconstructed.
    pub decode: Option<Decode>,
}

/// A lost range, and the member that should hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRange {
    /// The range. If every copy of a mirror is gone, unit 0.
    pub range: UnitRange,
    /// The member where the unit lies.
    pub member: usize,
}

/// Part of the range cannot be read: too many units of the stripe are missing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct Unreadable {
    /// The stripe.
    pub stripe: u64,
    /// Requested ranges that are lost, ascending by unit.
    pub lost: Vec<LostRange>,
    /// All missing members of the stripe, ascending by unit.
    pub missing_members: Vec<usize>,
    /// Number of missing units that the stripe tolerates.
    pub tolerated: usize,
    /// Plan that reads every requested range that is not lost; empty if all are lost.
    pub rest: Box<ReadPlan>,
}

/// The write is refused: too many units of the stripe are missing for the data to be readable
/// afterwards. Nothing of the stripe should be written then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct Unwritable {
    /// The stripe.
    pub stripe: u64,
    /// The ranges that were to be written to missing members, ascending by unit; may be empty, when
    /// only units that were not to be written are missing.
    pub lost: Vec<LostRange>,
    /// All missing members of the stripe, ascending by unit.
    pub missing_members: Vec<usize>,
    /// Number of missing units that the stripe tolerates.
    pub tolerated: usize,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "stripe {} cannot be read in full: ", self.stripe)?;
        write_lost(formatter, &self.lost)?;
        write_missing(formatter, &self.missing_members, self.tolerated)
    }
}

impl fmt::Display for Unwritable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "stripe {} cannot be written: ", self.stripe)?;
        write_lost(formatter, &self.lost)?;
        write_missing(formatter, &self.missing_members, self.tolerated)
    }
}

fn write_lost(formatter: &mut fmt::Formatter<'_>, lost: &[LostRange]) -> fmt::Result {
    for LostRange { range: UnitRange { unit, start, end }, member } in lost {
        write!(formatter, "bytes {start}..{end} of unit {unit} on member {member} are lost, ")?;
    }
    Ok(())
}

fn write_missing(formatter: &mut fmt::Formatter<'_>, members: &[usize], tolerated: usize) -> fmt::Result {
    let list: Vec<String> = members.iter().map(usize::to_string).collect();
    let word = if members.len() == 1 { "member" } else { "members" };
    write!(formatter, "{word} {} missing, {tolerated} can be done without", list.join(", "))
}

/// Returns the units of a stripe that lie on missing members.
#[inline]
pub(crate) fn missing_units(stripe: &Stripe, missing: &MemberSet) -> MemberSet {
    if missing.is_empty() {
        return MemberSet::EMPTY;
    }
    let units = stripe.units.iter().enumerate();
    units.filter(|(_, place)| missing.contains(place.member)).map(|(unit, _)| unit).collect()
}

/// Returns as many present units as there are data units: all present data units, then the parity
/// needed, P first because it is the cheapest to decode. `None` if too few are left. Ascending.
pub(crate) fn decode_sources(geometry: &Geometry, gone: &MemberSet) -> Option<SmallVec<[usize; 12]>> {
    let data_units = geometry.data_units();
    let present = (0..geometry.units()).filter(|unit| !gone.contains(*unit));
    let sources: SmallVec<[usize; 12]> = present.take(data_units).collect();
    (sources.len() == data_units).then_some(sources)
}

/// Returns the members that hold the given units of the stripe.
pub(crate) fn members_of(stripe: &Stripe, units: &MemberSet) -> Vec<usize> {
    units.iter().map(|unit| stripe.units[unit].member).collect()
}

/// Returns those of the ranges that lie on missing units.
pub(crate) fn lost_ranges(stripe: &Stripe, ranges: &[UnitRange], gone: &MemberSet) -> Vec<LostRange> {
    let lost = ranges.iter().filter(|range| gone.contains(range.unit));
    lost.map(|&range| LostRange { range, member: stripe.units[range.unit].member }).collect()
}
