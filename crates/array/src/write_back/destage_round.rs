//! Selects the pending pieces of a stripe that one write destages.
//!
//! Pieces of one write are widened to one range in each strip, since a drive serves one large
//! request faster than many small ones, and parity is read, logged and written over all of it. That
//! pays for pieces that are close together or fill much of the stripe, not for two distant blocks
//! on a drive with low latency. The cost is counted in bytes transferred, with each request counted
//! as the bytes that the drive transfers in the time of one ([`DriveInfo::gap_bytes`]).
//!
//! A write takes the oldest pieces without gaps, since the journal records one sequence up to which
//! the data are in place.
//!
//! [`DriveInfo::gap_bytes`]: stripewise_drive::DriveInfo::gap_bytes

use smallvec::SmallVec;

/// Geometry and request cost of a stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub interleave_bytes: u64,
    pub parity_units: u64,
    /// Bytes transferred in the time of one request.
    pub request_bytes: u64,
}

/// A pending piece: a range of the stripe's data, and its record in the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub from: u64,
    pub to: u64,
    pub sequence: u64,
}

/// Range of a group of pieces in each strip that they touch.
#[derive(Clone, Default)]
struct Ranges(SmallVec<[(u64, u64, u64); 4]>);

impl Ranges {
    fn of(extents: &[Extent], shape: Shape) -> Self {
        let mut ranges = Self::default();
        extents.iter().for_each(|extent| ranges.add(extent, shape));
        ranges
    }

    fn add(&mut self, extent: &Extent, shape: Shape) {
        let strip = shape.interleave_bytes;
        let mut at = extent.from;
        while at < extent.to {
            let (unit, end) = (at / strip, extent.to.min((at / strip + 1) * strip));
            let (from, to) = (at - unit * strip, end - unit * strip);
            match self.0.iter_mut().find(|(known, _, _)| *known == unit) {
                Some((_, first, last)) => (*first, *last) = ((*first).min(from), (*last).max(to)),
                None => self.0.push((unit, from, to)),
            }
            at = end;
        }
    }

    fn cost(&self, shape: Shape) -> u64 {
        let data: u64 = self.0.iter().map(|(_, from, to)| to - from).sum();
        let first = self.0.iter().map(|(_, from, _)| *from).min().unwrap_or(0);
        let last = self.0.iter().map(|(_, _, to)| *to).max().unwrap_or(0);
        let requests = self.0.len() as u64 + shape.parity_units;
        data + shape.parity_units * (last - first) + requests * shape.request_bytes
    }
}

/// Number of pieces, given in the order of their sequences, that the next write takes; at least one
/// if there is one.
pub(crate) fn next_round(extents: &[Extent], shape: Shape) -> usize {
    let one = |extent: &Extent| Ranges::of(std::slice::from_ref(extent), shape).cost(shape);
    let singly: u64 = extents.iter().map(one).sum();
    if Ranges::of(extents, shape).cost(shape) <= singly {
        return extents.len();
    }
    let mut taken = Ranges::default();
    let mut cost = 0;
    for (index, extent) in extents.iter().enumerate() {
        let mut wider = taken.clone();
        wider.add(extent, shape);
        let wider_cost = wider.cost(shape);
        // Parts of one record stay together.
        let is_same_record = index > 0 && extents[index - 1].sequence == extent.sequence;
        if index > 0 && !is_same_record && wider_cost > cost + one(extent) {
            return index;
        }
        (taken, cost) = (wider, wider_cost);
    }
    extents.len()
}

#[cfg(test)]
mod tests {
    use super::{Extent, Shape, next_round};

    const QUICK: Shape = Shape { interleave_bytes: 65536, parity_units: 1, request_bytes: 0 };
    const SLOW: Shape = Shape { request_bytes: 256 << 10, ..QUICK };

    fn block(number: u64, sequence: u64) -> Extent {
        Extent { from: number * 4096, to: (number + 1) * 4096, sequence }
    }

    #[test]
    fn distant_blocks_destage_alone_on_quick_drives() {
        let far = [block(0, 1), block(12, 2), block(40, 3)];
        assert_eq!(next_round(&far, QUICK), 1);
        assert_eq!(next_round(&far, SLOW), 3);
        assert_eq!(next_round(&far[..1], QUICK), 1);
        assert_eq!(next_round(&[], QUICK), 0);
    }

    #[test]
    fn blocks_sharing_parity_destage_together() {
        let near = [block(3, 1), block(4, 2), block(20, 3), block(3, 4), block(9, 5)];
        assert_eq!(next_round(&near, QUICK), 4, "the last one is five blocks away");
    }

    #[test]
    fn full_stripe_destages_at_once_in_any_order() {
        let all: Vec<Extent> = (0..48).map(|index| block(index * 29 % 48, index)).collect();
        assert_eq!(next_round(&all, QUICK), 48);
        assert!(next_round(&all[..8], QUICK) < 8);
    }

    #[test]
    fn parts_of_one_record_stay_together() {
        let parts = [block(0, 1), block(12, 1), block(31, 2)];
        assert_eq!(next_round(&parts, QUICK), 2);
    }
}
