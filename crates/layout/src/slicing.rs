//! Addresses of a volume that is cut into slices: extents of equal size go to the slices in turn.
//! Pure arithmetic: no faults.

use std::ops::Range;

/// Number of slices of a volume, and the size of the extents that they get in turn.
///
/// A range of the volume is a contiguous range of each slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slicing {
    slices: u64,
    extent_bytes: u64,
}

/// Part of a range of the volume within one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentPiece {
    /// Number of the slice.
    pub slice: usize,
    /// Offset in the slice, bytes.
    pub slice_offset: u64,
    /// Offset in the volume, bytes.
    pub volume_offset: u64,
    /// Length, bytes.
    pub length_bytes: u64,
}

impl Slicing {
    /// One slice with one extent.
    pub const WHOLE: Self = Self { slices: 1, extent_bytes: u64::MAX };

    /// Addresses for this number of slices; both numbers are at least 1.
    pub fn new(slices: usize, extent_bytes: u64) -> Self {
        assert!(slices > 0 && extent_bytes > 0, "{slices} slices with extents of {extent_bytes} bytes");
        Self { slices: slices as u64, extent_bytes }
    }

    /// Addresses with extents of whole stripes: the fewest that have `least_extent_bytes`, of all
    /// powers of two, so that extents, regions and rows end together.
    pub fn of_stripes(slices: usize, stripe_data_bytes: u64, least_extent_bytes: u64) -> Self {
        let stripes = least_extent_bytes.div_ceil(stripe_data_bytes).next_power_of_two();
        Self::new(slices, stripes * stripe_data_bytes)
    }

    /// Number of slices.
    pub fn slices(&self) -> usize {
        self.slices as usize
    }

    /// Bytes of an extent.
    pub fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// Bytes of a slice among the volume's first `volume_bytes`: the slice's size in a volume of
    /// that size, and the slice's offset for all that lies at or beyond that offset of the volume.
    pub fn bytes_below(&self, slice: usize, volume_bytes: u64) -> u64 {
        let (extent, within) = (volume_bytes / self.extent_bytes, volume_bytes % self.extent_bytes);
        let (turns, last) = (extent / self.slices, extent % self.slices);
        turns * self.extent_bytes
            + match (slice as u64).cmp(&last) {
                std::cmp::Ordering::Less => self.extent_bytes,
                std::cmp::Ordering::Equal => within,
                std::cmp::Ordering::Greater => 0,
            }
    }

    /// Range of a slice that a range of the volume has there, bytes.
    pub fn range_in(&self, slice: usize, volume_range: &Range<u64>) -> Range<u64> {
        self.bytes_below(slice, volume_range.start)..self.bytes_below(slice, volume_range.end)
    }

    /// Offset in the volume of a byte of a slice.
    pub fn volume_offset(&self, slice: usize, slice_offset: u64) -> u64 {
        let (turn, within) = (slice_offset / self.extent_bytes, slice_offset % self.extent_bytes);
        (turn * self.slices + slice as u64) * self.extent_bytes + within
    }

    /// Pieces of a range of the volume, extent by extent.
    pub fn pieces(&self, volume_range: Range<u64>) -> impl Iterator<Item = ExtentPiece> + use<> {
        let this = *self;
        let mut at = volume_range.start;
        std::iter::from_fn(move || {
            let (extent, within) = (at / this.extent_bytes, at % this.extent_bytes);
            let length_bytes = (this.extent_bytes - within).min(volume_range.end.checked_sub(at)?);
            let piece = ExtentPiece {
                slice: (extent % this.slices) as usize,
                slice_offset: extent / this.slices * this.extent_bytes + within,
                volume_offset: at,
                length_bytes,
            };
            at += length_bytes;
            (length_bytes > 0).then_some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_whole_stripes() {
        let extent = |stripe: u64, least: u64| Slicing::of_stripes(2, stripe, least).extent_bytes();
        assert_eq!(extent(65_536, 4 << 20), 4 << 20);
        assert_eq!(extent(3 * 65_536, 4 << 20), 6 << 20);
        assert_eq!(extent(14 << 20, 4 << 20), 14 << 20);
        assert_eq!(extent(4096, 1), 4096);
    }

    #[test]
    fn each_byte_has_one_place_and_ranges_stay_whole() {
        for (slices, extent) in [(1, 1), (1, 5), (2, 1), (3, 4), (8, 3)] {
            let slicing = Slicing::new(slices, extent);
            let end = 4 * slices as u64 * extent + 2;
            // The volume byte by byte, as the definition has it.
            let mut used = vec![0; slices];
            let places: Vec<(usize, u64)> = (0..end)
                .map(|byte| {
                    let slice = (byte / extent) as usize % slices;
                    used[slice] += 1;
                    (slice, used[slice] - 1)
                })
                .collect();
            for start in 0..end {
                for stop in start..=end {
                    let mut found = Vec::new();
                    for piece in slicing.pieces(start..stop) {
                        assert_eq!(piece.volume_offset, start + found.len() as u64);
                        assert!(piece.length_bytes <= extent);
                        let bytes = piece.slice_offset..piece.slice_offset + piece.length_bytes;
                        found.extend(bytes.map(|offset| (piece.slice, offset)));
                    }
                    assert_eq!(found, places[start as usize..stop as usize]);
                    for slice in 0..slices {
                        let of_slice = found.iter().filter(|place| place.0 == slice).map(|place| place.1);
                        let range = slicing.range_in(slice, &(start..stop));
                        assert!(of_slice.eq(range), "{slices} {extent} {start} {stop} {slice}");
                    }
                }
            }
            for (byte, (slice, offset)) in places.into_iter().enumerate() {
                assert_eq!(slicing.volume_offset(slice, offset), byte as u64);
            }
            let sizes: u64 = (0..slices).map(|slice| slicing.bytes_below(slice, end)).sum();
            assert_eq!(sizes, end);
        }
    }
}
