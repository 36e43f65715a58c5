//! Write plans with the fewest I/Os, also with missing members.
//!
//! A write to a stripe with parity must update the parity. The new parity of a window of the strip
//! can be computed in four ways, which differ only in what must be read first:
//!
//! - *full stripe*: nothing, all data of the window are new;
//! - *read-modify-write*: the old data that are overwritten, and the old parity, which then changes
//!   by the difference;
//! - *reconstruct-write*: the data of the window that are not overwritten;
//! - *decode-write*: any `k` units of the window, from which missing data are reconstructed first.
//!
//! The writes are the same in all four: the new data and the parity, except on missing members. So
//! the method with the fewest reads wins; on a tie read-modify-write, then reconstruct-write. The
//! parity of a missing data unit encodes its data, including new data, until the unit is rebuilt.
//!
//! Fault expected: more missing units than the stripe tolerates.

use smallvec::SmallVec;

use crate::geometry::{Geometry, Stripe};
use crate::members::MemberSet;
use crate::plan::{Decode, Unwritable, decode_sources, lost_ranges, members_of, missing_units};
use crate::read::hull;
use crate::unit_range::UnitRange;

/// Method that computes the new parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteMethod {
    /// There is no parity, or none of it is left: only data are written.
    Copy,
    /// From the new data alone.
    FullStripe,
    /// From the old parity, and the old and new data of what is overwritten.
    ReadModifyWrite,
    /// From the new data and the data that are not overwritten.
    ReconstructWrite,
    /// As reconstruct-write, with missing data reconstructed first.
    DecodeWrite,
}

/// Reads, the units to reconstruct from them, and the writes that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// Method that computes the new parity.
    pub method: WriteMethod,
    /// One I/O each, ascending by unit, at most one per unit. Where a range reaches over bytes that
    /// are overwritten (reconstruct-write with a hole on either side, decode-write), those read are
    /// old.
    pub reads: SmallVec<[UnitRange; 4]>,
    /// One I/O each, ascending by unit, at most one per unit, none to a missing member.
    pub writes: SmallVec<[UnitRange; 4]>,
    /// The bytes of the strip over which parity changes; `None` where no parity is written.
    pub window: Option<(u64, u64)>,
    /// Present for decode-write: the missing data units that the new parity needs, over the window.
    pub decode: Option<Box<Decode>>,
}

/// Plans writing the ranges, one non-empty range per data unit, ascending by unit, with these
/// members missing. Fails if more units are missing than the stripe tolerates: the written data
/// could not be read back, or the lost data could no longer be reconstructed. Panics if ranges are
/// unsorted, empty or past the strip.
#[inline]
pub fn plan_write(
    geometry: &Geometry,
    stripe: &Stripe,
    written: &[UnitRange],
    missing: &MemberSet,
) -> Result<WritePlan, Unwritable> {
    assert!(are_proper(geometry, written), "written ranges {written:?}");
    let gone = missing_units(stripe, missing);
    if gone.len() > geometry.fault_tolerance() {
        return Err(Unwritable {
            stripe: stripe.index,
            lost: lost_ranges(stripe, written, &gone),
            missing_members: members_of(stripe, &gone),
            tolerated: geometry.fault_tolerance(),
        });
    }
    if geometry.parity_units() == 0 {
        let UnitRange { start, end, .. } = written[0];
        let present = (0..geometry.copies()).filter(|copy| !gone.contains(*copy));
        let writes = present.map(|unit| UnitRange { unit, start, end }).collect();
        return Ok(without_parity(writes));
    }
    Ok(write_with_parity(geometry, written, &gone))
}

/// True if the ranges meet the conditions of [`plan_write`].
fn are_proper(geometry: &Geometry, written: &[UnitRange]) -> bool {
    let fits = |range: &UnitRange| {
        range.unit < geometry.data_units()
            && range.start < range.end
            && range.end <= geometry.interleave_bytes()
    };
    !written.is_empty() && written.iter().all(fits) && written.is_sorted_by(|one, next| one.unit < next.unit)
}

fn without_parity(writes: SmallVec<[UnitRange; 4]>) -> WritePlan {
    WritePlan { method: WriteMethod::Copy, reads: SmallVec::new(), writes, window: None, decode: None }
}

fn write_with_parity(geometry: &Geometry, written: &[UnitRange], gone: &MemberSet) -> WritePlan {
    let data_units = geometry.data_units();
    let (start, end) = hull(written.iter()).expect("something is written");
    let covers = |range: &UnitRange| range.start == start && range.end == end;
    let parity = (data_units..geometry.units()).filter(|unit| !gone.contains(*unit)).map(|unit| UnitRange {
        unit,
        start,
        end,
    });

    let mut writes: SmallVec<[UnitRange; 4]> =
        written.iter().filter(|range| !gone.contains(range.unit)).copied().collect();
    let written_missing = written.len() - writes.len();
    writes.extend(parity.clone());
    let parity_present = parity.clone().count();
    if parity_present == 0 {
        // The missing parity uses up the stripe's redundancy, so no data are missing.
        return without_parity(writes);
    }

    let covering = written.iter().filter(|range| covers(range)).count();
    let covering_missing = written.iter().filter(|range| covers(range) && gone.contains(range.unit)).count();
    let data_missing = gone.len() - (geometry.parity_units() - parity_present);

    let modify_reads = (written_missing == 0).then_some(written.len() + parity_present);
    let reconstruct_reads = (covering_missing == data_missing).then_some(data_units - covering);
    let method = choose(modify_reads, reconstruct_reads, data_units);

    let mut decode = None;
    let reads = match method {
        WriteMethod::Copy | WriteMethod::FullStripe => SmallVec::new(),
        WriteMethod::ReadModifyWrite => written.iter().copied().chain(parity).collect(),
        WriteMethod::ReconstructWrite => not_written(data_units, written, start, end).collect(),
        WriteMethod::DecodeWrite => {
            let sources = decode_sources(geometry, gone).expect("no more missing than can be done without");
            let not_covered =
                |unit: &usize| !written.iter().any(|range| range.unit == *unit && covers(range));
            let wanted = gone.iter().take_while(|unit| *unit < data_units).filter(not_covered).collect();
            let reads = sources.iter().map(|&unit| UnitRange { unit, start, end }).collect();
            decode = Some(Box::new(Decode { wanted, sources, start, end }));
            reads
        }
    };
    WritePlan { method, reads, writes, window: Some((start, end)), decode }
}

/// Returns the method with the fewest reads. Decode-write always works and takes as many reads as
/// there are data units.
fn choose(modify: Option<usize>, reconstruct: Option<usize>, decode: usize) -> WriteMethod {
    let best_other = reconstruct.unwrap_or(decode);
    match (modify, reconstruct) {
        (_, Some(0)) => WriteMethod::FullStripe,
        (Some(modify), _) if modify <= best_other => WriteMethod::ReadModifyWrite,
        (_, Some(_)) => WriteMethod::ReconstructWrite,
        (_, None) => WriteMethod::DecodeWrite,
    }
}

/// Returns, for every data unit, the part of the window that is not written; the whole window if
/// that part lies on both sides of the written range.
fn not_written(
    data_units: usize,
    written: &[UnitRange],
    start: u64,
    end: u64,
) -> impl Iterator<Item = UnitRange> {
    let mut next_written = written.iter().peekable();
    (0..data_units).filter_map(move |unit| {
        let Some(range) = next_written.next_if(|range| range.unit == unit) else {
            return Some(UnitRange { unit, start, end });
        };
        match (range.start > start, range.end < end) {
            (false, false) => None,
            (false, true) => Some(UnitRange { unit, start: range.end, end }),
            (true, false) => Some(UnitRange { unit, start, end: range.start }),
            (true, true) => Some(UnitRange { unit, start, end }),
        }
    })
}
