//! The write policy of an array: all that depends on whether a position costs more than
//! a transfer.
//!
//! On *seek-bound* drives (disks) the fewest and longest requests win, even at the price of writing
//! data twice. On others data goes in place as soon as it fills stripes. The policy is made from
//! the drives at hand, whenever one joins or leaves. A single seek-bound drive makes an array
//! seek-bound, because requests to all drives wait for the slowest.

use stripewise_drive::DriveInfo;

/// Length of the longest request that is acknowledged from the journal, bytes.
const LONGEST_DEFERRED_BYTES: u64 = 256 << 10;
/// The same on seek-bound drives.
pub(crate) const LONGEST_DEFERRED_ON_DISKS_BYTES: u64 = 1 << 20;
/// Requests in flight per drive from which on a disk sorts them as well as destaging does.
const DEEP_PER_DRIVE: usize = 32;
/// Stripes that are destaged together on seek-bound drives, relative to others.
const SWEEP_FACTOR: usize = 8;

/// The policy for the drives at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WritePolicy {
    is_seek_bound: bool,
    /// Smallest gap between two requests that the drives still merge across, bytes; 0 if a drive
    /// merges across none.
    pub least_gap_bytes: u64,
    /// Bytes that each drive transfers in the time of one seek; 0 if a drive is not seek-bound.
    pub position_bytes: u64,
}

/// A write, as far as the decision to defer it is concerned.
pub(crate) struct WriteLoad {
    /// Writes in flight, and reads in flight.
    pub in_flight: (usize, usize),
    /// Bytes of the write.
    pub bytes: u64,
    /// The write continues the one before it.
    pub is_sequential: bool,
    /// Data bytes of a stripe.
    pub stripe_data_bytes: u64,
    /// Columns of the array.
    pub width: usize,
}

impl WritePolicy {
    /// The policy for drives with these properties.
    pub(crate) fn of<'a>(drives: impl Iterator<Item = &'a DriveInfo> + Clone) -> Self {
        let position_bytes = |info: &DriveInfo| if info.is_seek_bound() { info.gap_bytes } else { 0 };
        Self {
            is_seek_bound: drives.clone().any(DriveInfo::is_seek_bound),
            least_gap_bytes: drives.clone().map(|info| info.gap_bytes).min().unwrap_or(0),
            position_bytes: drives.map(position_bytes).min().unwrap_or(0),
        }
    }

    /// True if a position costs more than a transfer.
    pub(crate) fn is_seek_bound(self) -> bool {
        self.is_seek_bound
    }

    /// Length of the longest request that is acknowledged from the journal, bytes.
    pub(crate) fn longest_deferred_bytes(self) -> u64 {
        if self.is_seek_bound { LONGEST_DEFERRED_ON_DISKS_BYTES } else { LONGEST_DEFERRED_BYTES }
    }

    /// True if writes that fill a stripe are deferred as well.
    pub(crate) fn defers_whole_stripes(self) -> bool {
        self.is_seek_bound
    }

    /// True if a write is better acknowledged from the journal and destaged with others. On
    /// seek-bound drives a deep stream fills stripes with the writes in flight before it, and a
    /// deep queue is sorted as well as destaging is, without writing the data twice.
    pub(crate) fn gains_by_deferral(self, load: &WriteLoad) -> bool {
        let (writes, reads) = load.in_flight;
        let fills_stripes = load.is_sequential && writes as u64 * load.bytes >= load.stripe_data_bytes;
        let is_deep = writes + reads >= DEEP_PER_DRIVE * load.width;
        !self.is_seek_bound || !(fills_stripes || is_deep)
    }

    /// Quarters of the journal in use at which space is freed. With checksums on seek-bound drives
    /// more: the more pages a checkpoint writes, the closer together they lie.
    pub(crate) fn full_quarters(self, has_checksums: bool) -> u64 {
        if has_checksums && self.is_seek_bound { 3 } else { 2 }
    }

    /// Stripes destaged together, from the number for other drives. Many on seek-bound drives: the
    /// more there are, the shorter the seek from one to the next.
    pub(crate) fn destaged_together(self, stripes: usize) -> usize {
        if self.is_seek_bound { SWEEP_FACTOR * stripes } else { stripes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::{Drive, MemoryDrive};

    fn disk(gap_bytes: u64) -> DriveInfo {
        DriveInfo { gap_bytes, ..MemoryDrive::new("d", 1 << 20).info().clone() }
    }

    #[test]
    fn one_disk_makes_an_array_seek_bound() {
        let memory = MemoryDrive::new("m", 1 << 20).info().clone();
        let disk = disk(1 << 20);
        let mixed = [memory.clone(), disk.clone()];
        let policy = WritePolicy::of(mixed.iter());
        assert!(policy.is_seek_bound() && policy.defers_whole_stripes());
        assert_eq!(policy.position_bytes, 0, "a drive of them has no positions");
        let disks = [disk.clone(), disk];
        assert_eq!(WritePolicy::of(disks.iter()).position_bytes, 1 << 20);
        assert!(!WritePolicy::of([memory].iter()).is_seek_bound());
        assert!(!WritePolicy::of([].iter()).is_seek_bound());
    }

    #[test]
    fn deep_queues_and_full_stripes_are_not_deferred() {
        let disks = [disk(1 << 20)];
        let policy = WritePolicy::of(disks.iter());
        let load = |writes, is_sequential| WriteLoad {
            in_flight: (writes, 0),
            bytes: 64 << 10,
            is_sequential,
            stripe_data_bytes: 256 << 10,
            width: 5,
        };
        assert!(policy.gains_by_deferral(&load(1, true)));
        assert!(!policy.gains_by_deferral(&load(4, true)), "they fill a stripe");
        assert!(policy.gains_by_deferral(&load(4, false)));
        assert!(!policy.gains_by_deferral(&load(DEEP_PER_DRIVE * 5, false)), "the disks sort them");
    }
}
