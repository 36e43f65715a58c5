//! Written and unwritten extents of a volume, for programs that copy it without reading zeros.
//!
//! Answered from memory, without a drive: by region, and within a region in its first write by
//! stripe. A client may write there a moment later, as with any answer about a volume in use.
//! Nothing is recorded: after a cut the answer is as accurate as the region map, which is brought
//! to all its places when it is loaded (`map/mod.rs`).

use crate::array::{Array, Inner};
use crate::error::ArrayError;
use crate::map::regions::RegionState;

/// A range of a volume, written or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub length_bytes: u64,
    /// True if it was written and not discarded since; unwritten extents read as zeros.
    pub written: bool,
}

impl Array {
    /// Extents of a range, adjacent ones of one kind joined: the whole range, or as much of it as
    /// `most` extents (at least one) cover. Offset and length are multiples of 512.
    pub fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        most: usize,
    ) -> Result<Vec<Extent>, ArrayError> {
        let inner = &self.0;
        inner.check_range(offset_bytes, length_bytes)?;
        let (mut at, end) = (offset_bytes, offset_bytes + length_bytes);
        let mut extents = Vec::new();
        while at < end {
            let (written, until) = inner.written_at(at);
            let until = until.min(end);
            if !push_extent(&mut extents, until - at, written, most) {
                break;
            }
            at = until;
        }
        Ok(extents)
    }

    /// True if a range was never written and so reads as zeros. Offset and length are multiples of
    /// 512.
    pub fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        let inner = &self.0;
        inner.check_range(offset_bytes, length_bytes)?;
        let (mut at, end) = (offset_bytes, offset_bytes + length_bytes);
        while at < end && !inner.regions.all_written() {
            let (written, until) = inner.written_at(at);
            if written {
                return Ok(false);
            }
            at = until;
        }
        Ok(at >= end)
    }

    /// True if [`Array::write_zeroes`] of this range needs to write no zeros: regions that are
    /// partly inside are empty, and the others become unwritten as a whole.
    pub fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        let inner = &self.0;
        inner.check_range(offset_bytes, length_bytes)?;
        let (region_bytes, end) = (inner.regions.shape.region_data_bytes, offset_bytes + length_bytes);
        let reaches = |at: u64| at.is_multiple_of(region_bytes) || at == inner.capacity.bytes();
        let is_empty = |at: u64| inner.holds_nothing(at / region_bytes);
        Ok(length_bytes == 0
            || (reaches(offset_bytes) || is_empty(offset_bytes)) && (reaches(end) || is_empty(end - 1)))
    }
}

impl Inner {
    /// Tests if `at` was written, and returns the offset up to which the same holds.
    fn written_at(&self, at: u64) -> (bool, u64) {
        let region_bytes = self.regions.shape.region_data_bytes;
        let region = at / region_bytes;
        let region_end = (region + 1) * region_bytes;
        if self.log.is_unread() {
            // The unread journal may hold data for any stripe.
            return (true, region_end);
        }
        if self.holds_nothing(region) {
            return (false, region_end);
        }
        if !matches!(self.regions.state(region), RegionState::Unwritten | RegionState::Partial) {
            return (true, region_end);
        }
        let stripe = self.geometry.locate(at).stripe;
        let waits = !self.deferred.pending.is_empty()
            && !self.deferred.pending.stripes_in(stripe..stripe + 1).is_empty();
        let stripe_end = (stripe + 1) * self.geometry.stripe_data_bytes();
        (waits || !self.regions.is_unwritten(stripe), stripe_end.min(region_end))
    }
}

/// Adds an extent, joined with the last one if that is of its kind; `false` if it would be one too
/// many.
pub fn push_extent(extents: &mut Vec<Extent>, length_bytes: u64, written: bool, most: usize) -> bool {
    if let Some(last) = extents.last_mut().filter(|last| last.written == written) {
        last.length_bytes += length_bytes;
        return true;
    }
    if extents.len() >= most.max(1) {
        return false;
    }
    extents.push(Extent { length_bytes, written });
    true
}
