//! What of a volume was ever written, for whoever copies it and would rather not read zeros.
//!
//! Told from memory, without a drive: regions never written, and within one that is being written
//! for the first time its stripes. A moment later a client may have written there, as with any
//! answer about a volume in use. Nothing of it is recorded: after a cut it is as right as the
//! region map, which is brought to all its places when it is loaded (`map/mod.rs`).

use crate::array::{Array, Inner};
use crate::error::ArrayError;
use crate::map::regions::RegionState;

/// A stretch of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length, bytes.
    pub length_bytes: u64,
    /// Whether it was ever written and not discarded since; what was not reads as zeros.
    pub written: bool,
}

impl Array {
    /// The stretches of a range, neighbours of one kind joined: all of it, or as much as `most` of
    /// them (at least one) tell. Offset and length are multiples of 512.
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

    /// Whether a range reads as zeros because nothing was ever written there. Offset and length are
    /// multiples of 512.
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

    /// Whether [`Array::write_zeroes`] of a range writes no zeros: regions in part inside hold
    /// nothing, and others become unwritten as a whole.
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
    /// Whether anything was written at `at`, and up to where the same holds.
    fn written_at(&self, at: u64) -> (bool, u64) {
        let region_bytes = self.regions.shape.region_data_bytes;
        let region = at / region_bytes;
        let region_end = (region + 1) * region_bytes;
        if self.log.is_unread() {
            // What the journal has may lie anywhere.
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

/// Adds a stretch, joined with the one before if that is of its kind; `false` if that would be one
/// too many.
pub(crate) fn push_extent(extents: &mut Vec<Extent>, length_bytes: u64, written: bool, most: usize) -> bool {
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
