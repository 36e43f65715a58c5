//! Addresses on a drive: superblocks at both ends, the checksum area, slabs. Pure functions of the
//! drive's size and the pool's slab size, so that no address need be recorded. Faults expected:
//! arbitrary sizes, since they may come from a damaged record; every function accepts every size.

use crate::error::PoolError;
use crate::{BLOCK_BYTES, MIB};

/// The smallest drive that can belong to a pool.
pub(crate) const MIN_DRIVE_BYTES: u64 = 4 * MIB;
/// No drive is larger than this; keeps sums from overflowing.
pub(crate) const MAX_DRIVE_BYTES: u64 = 1 << 60;
/// The smallest slab.
pub(crate) const MIN_SLAB_BYTES: u64 = MIB;
/// The largest slab.
pub(crate) const MAX_SLAB_BYTES: u64 = 128 * MIB;
/// A chosen slab is small enough for a drive to have this many.
const ENOUGH_SLABS: u32 = 1000;
/// No drive has more slabs.
pub(crate) const MAX_SLABS: u64 = 1 << 31;
/// The smallest slot.
pub(crate) const MIN_SLOT_BYTES: u64 = 512 << 10;
const MAX_SLOT_BYTES: u64 = 64 * MIB;
/// A slot's share of the drive.
const SLOT_SHARE: u64 = 65_536;

/// True if this is a valid slab size.
pub(crate) fn is_slab_size(slab_bytes: u64) -> bool {
    slab_bytes.is_power_of_two() && (MIN_SLAB_BYTES..=MAX_SLAB_BYTES).contains(&slab_bytes)
}

/// The size of each of the two slots at each end of a drive.
pub(crate) fn slot_bytes(capacity_bytes: u64) -> u64 {
    if capacity_bytes <= MIN_SLOT_BYTES * SLOT_SHARE {
        return MIN_SLOT_BYTES;
    }
    (capacity_bytes / SLOT_SHARE).min(MAX_SLOT_BYTES).next_multiple_of(MIB)
}

/// The superblock area at the start of a drive; as much lies at its end.
pub(crate) fn superblock_bytes(capacity_bytes: u64) -> u64 {
    2 * slot_bytes(capacity_bytes)
}

/// Offset of the superblock copies at the end of a drive: the limit for slabs.
pub(crate) fn end_of_slabs(capacity_bytes: u64) -> u64 {
    (capacity_bytes / MIB * MIB).saturating_sub(superblock_bytes(capacity_bytes))
}

/// Offsets of slot A (0) or B (1): at the start of the drive and at its end.
pub(crate) fn slot_places(capacity_bytes: u64, slot: usize) -> [u64; 2] {
    let at = slot as u64 * slot_bytes(capacity_bytes);
    [at, end_of_slabs(capacity_bytes) + at]
}

/// Pages of checksums that a slab needs; as many hold the copy for its neighbour.
pub(crate) fn checksum_pages(slab_bytes: u64) -> u64 {
    slab_bytes / MIB
}

/// Both runs of pages of one slab.
fn checksum_bytes_per_slab(slab_bytes: u64) -> u64 {
    2 * checksum_pages(slab_bytes) * BLOCK_BYTES
}

fn base_for(capacity_bytes: u64, slab_bytes: u64, slabs: u64) -> u64 {
    let checksums = slabs * checksum_bytes_per_slab(slab_bytes);
    (superblock_bytes(capacity_bytes) + checksums).next_multiple_of(MIB)
}

/// Refuses a drive that is larger than any.
pub(crate) fn refuse_too_large(drive: &str, capacity_bytes: u64) -> Result<(), PoolError> {
    if capacity_bytes <= MAX_DRIVE_BYTES {
        return Ok(());
    }
    Err(PoolError::DriveTooLarge { drive: drive.to_owned(), capacity_bytes, most_bytes: MAX_DRIVE_BYTES })
}

/// Number of slabs on a drive of this size; 0 for impossible sizes.
pub(crate) fn slab_count(capacity_bytes: u64, slab_bytes: u64) -> u32 {
    if !is_slab_size(slab_bytes) || !(MIN_DRIVE_BYTES..=MAX_DRIVE_BYTES).contains(&capacity_bytes) {
        return 0;
    }
    let end = end_of_slabs(capacity_bytes);
    let room = end.saturating_sub(superblock_bytes(capacity_bytes));
    let mut slabs = (room / (slab_bytes + checksum_bytes_per_slab(slab_bytes))).min(MAX_SLABS);
    // Rounding the checksum area up to whole MiB may take the last one.
    while slabs > 0 && base_for(capacity_bytes, slab_bytes, slabs) + slabs * slab_bytes > end {
        slabs -= 1;
    }
    slabs as u32
}

/// Smallest capacity of a drive with this many slabs, bytes.
pub(crate) fn capacity_for(slabs: u64, slab_bytes: u64) -> u64 {
    let (mut low, mut high) = (0, slab_bytes * 2 + 64 * MIB);
    while u64::from(slab_count(high, slab_bytes)) < slabs && high < MAX_DRIVE_BYTES {
        (low, high) = (high, high.saturating_mul(2).min(MAX_DRIVE_BYTES));
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if u64::from(slab_count(middle, slab_bytes)) >= slabs { high = middle } else { low = middle }
    }
    high
}

/// Space for volumes on a drive, bytes: its slabs.
pub fn usable_bytes(capacity_bytes: u64, slab_bytes: u64) -> u64 {
    u64::from(slab_count(capacity_bytes, slab_bytes)) * slab_bytes
}

/// Offset of slab 0.
pub(crate) fn slabs_base_bytes(capacity_bytes: u64, slab_bytes: u64) -> u64 {
    base_for(capacity_bytes, slab_bytes, u64::from(slab_count(capacity_bytes, slab_bytes)))
}

/// Offset of the checksum area.
pub(crate) fn checksums_base_bytes(capacity_bytes: u64) -> u64 {
    superblock_bytes(capacity_bytes)
}

/// Offset of a checksum page for a slab's own blocks: page `page` covers the slab's MiB `page`.
#[cfg(test)] // arrays find their pages by themselves; this says where they must find them
pub(crate) fn own_page_bytes(capacity_bytes: u64, slab_bytes: u64, slab: u32, page: u64) -> u64 {
    debug_assert!(page < checksum_pages(slab_bytes));
    let of_slab = u64::from(slab) * checksum_bytes_per_slab(slab_bytes);
    checksums_base_bytes(capacity_bytes) + of_slab + page * BLOCK_BYTES
}

/// Offset of this slab's copy of a checksum page of another column's slab.
#[cfg(test)] // arrays find their pages by themselves; this says where they must find them
pub(crate) fn copy_page_bytes(capacity_bytes: u64, slab_bytes: u64, slab: u32, page: u64) -> u64 {
    own_page_bytes(capacity_bytes, slab_bytes, slab, page) + checksum_pages(slab_bytes) * BLOCK_BYTES
}

/// Slab size, bytes, of a pool whose smallest data drive has this size.
pub fn choose_slab_bytes(smallest_capacity_bytes: u64) -> u64 {
    let mut slab_bytes = MAX_SLAB_BYTES;
    while slab_bytes > MIN_SLAB_BYTES && slab_count(smallest_capacity_bytes, slab_bytes) < ENOUGH_SLABS {
        slab_bytes /= 2;
    }
    slab_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u64; 10] = [
        4 * MIB,
        5 * MIB + 4096,
        64 * MIB,
        1 << 30,
        (1 << 35) - MIB,
        (1 << 35) + MIB,
        100_000_000_000,
        4_000_787_030_016,
        20_000_000_000_000,
        1 << 60,
    ];

    #[test]
    fn nothing_overlaps_and_little_is_wasted() {
        for capacity in SIZES {
            for log2 in 20..=27 {
                let slab = 1u64 << log2;
                let (count, base) = (slab_count(capacity, slab), slabs_base_bytes(capacity, slab));
                let end = end_of_slabs(capacity);
                assert!(base + u64::from(count) * slab <= end, "{capacity} {slab}");
                let left = end - base - u64::from(count) * slab;
                assert!(left < slab + 2 * MIB || u64::from(count) == MAX_SLABS, "{capacity} {slab} {left}");
                assert!(slot_places(capacity, 1)[1] + slot_bytes(capacity) <= capacity);
                if count > 0 {
                    let last = checksum_pages(slab) - 1;
                    let highest = copy_page_bytes(capacity, slab, count - 1, last) + BLOCK_BYTES;
                    assert!(highest <= base && highest + MIB > base, "{capacity} {slab}");
                    assert_eq!(own_page_bytes(capacity, slab, 0, 0), superblock_bytes(capacity));
                }
            }
        }
        assert_eq!(slab_count(4 * MIB, MIB), 1);
        assert_eq!(slab_count(u64::MAX, MIB), 0);
        assert_eq!(slab_count(1 << 40, 3 * MIB), 0);
        assert_eq!(slab_count(0, MIB), 0);
    }

    #[test]
    fn needed_size_is_the_smallest_sufficient() {
        for (slabs, slab_bytes) in [(1, MIB), (5, MIB), (1000, 4 * MIB), (9000, 128 * MIB)] {
            let bytes = capacity_for(slabs, slab_bytes);
            assert_eq!(u64::from(slab_count(bytes, slab_bytes)), slabs);
            assert!(u64::from(slab_count(bytes - 1, slab_bytes)) < slabs);
        }
    }

    #[test]
    fn slabs_are_large_but_enough() {
        assert_eq!(choose_slab_bytes(20_000_000_000_000), 128 * MIB);
        assert_eq!(choose_slab_bytes(64 * MIB), MIB);
        for capacity in SIZES {
            let slab = choose_slab_bytes(capacity);
            assert!(slab == MIB || slab_count(capacity, slab) >= 1000);
            assert!(slab == MAX_SLAB_BYTES || slab_count(capacity, 2 * slab) < 1000);
        }
        // Everything that is not data, on drives worth counting: under 2 %.
        let capacity = 100_000_000_000;
        let slab = choose_slab_bytes(capacity);
        let data = u64::from(slab_count(capacity, slab)) * slab;
        assert!((capacity - data) * 100 < 2 * capacity);
    }

    #[test]
    fn checksum_pages_are_where_arrays_expect_them() {
        for slab_bytes in [1 << 20, 8 << 20, 128 << 20] {
            let (capacity, per_slab) = (1 << 40, stripewise_array::page_bytes_per_slab(slab_bytes));
            for (slab, page) in [(0, 0), (5, 0), (9, (slab_bytes >> 20) - 1)] {
                let at = checksums_base_bytes(capacity) + u64::from(slab) * per_slab + page * 4096;
                assert_eq!(own_page_bytes(capacity, slab_bytes, slab, page), at);
                assert_eq!(copy_page_bytes(capacity, slab_bytes, slab, page), at + per_slab / 2);
            }
        }
    }
}
