//! Splitting a range of a volume into requests of whole stripes of about 1 MiB, so that writes need
//! not read old data. Pure, except for finding the volume.

use std::ops::Range;

use stripewise_pool::Volume;

use crate::failure::{Result, pool_failure};
use crate::notation::names::{ReadableName, VolumeName};
use crate::pools::session::Session;

/// Maximum pieces in flight; with [`LARGEST_BYTES`] this bounds the memory of a transfer.
pub const IN_FLIGHT: usize = 8;
/// Usual length of a piece, rounded up to whole stripes.
const USUAL_BYTES: u64 = 1 << 20;
/// Maximum length of a piece, even if a stripe is longer.
const LARGEST_BYTES: u64 = 4 << 20;

/// The pieces of a range, in order.
pub struct Pieces {
    piece_bytes: u64,
    rest: Range<u64>,
}

impl Pieces {
    /// Pieces of `range` for stripes with this much data.
    pub fn new(stripe_data_bytes: u64, range: Range<u64>) -> Self {
        let stripe = stripe_data_bytes.max(1);
        let piece_bytes =
            if stripe > LARGEST_BYTES { LARGEST_BYTES } else { USUAL_BYTES.div_ceil(stripe) * stripe };
        Self { piece_bytes, rest: range }
    }
}

impl Iterator for Pieces {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        if self.rest.is_empty() {
            return None;
        }
        let boundary = (self.rest.start / self.piece_bytes + 1).saturating_mul(self.piece_bytes);
        let piece = self.rest.start..boundary.min(self.rest.end);
        self.rest.start = piece.end;
        Some(piece)
    }
}

/// Offset and length of the whole sectors that cover a piece.
pub fn aligned(piece: &Range<u64>, sector_bytes: u64) -> (u64, usize) {
    let start = piece.start / sector_bytes * sector_bytes;
    (start, (piece.end.next_multiple_of(sector_bytes) - start) as usize)
}

/// Returns the open volume of this name.
pub fn find_volume(session: &Session, name: &VolumeName) -> Result<Volume> {
    find_readable(session, &ReadableName::Volume(name.clone()))
}

/// Returns the open volume of this name, or the snapshot.
pub fn find_readable(session: &Session, name: &ReadableName) -> Result<Volume> {
    session.refuse_if_used_elsewhere()?;
    session.pool.volume(&name.in_pool()).map_err(|error| pool_failure(format!("cannot use `{name}`"), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_stripes_and_cover_everything() {
        for (stripe, range) in [
            (3 * 65_536, 0..10_000_000),
            (3 * 65_536, 700_001..10_000_001),
            (4096, 4095..4097),
            (255 << 20, 1..20 << 20),
            (65_536, 5..5),
        ] {
            let pieces: Vec<Range<u64>> = Pieces::new(stripe, range.clone()).collect();
            let mut at = range.start;
            for piece in &pieces {
                assert_eq!(piece.start, at);
                assert!(
                    piece.end > at && piece.end - at <= LARGEST_BYTES,
                    "{piece:?} of stripes of {stripe}"
                );
                at = piece.end;
                let whole = piece.end.is_multiple_of(stripe) || stripe > LARGEST_BYTES;
                assert!(whole || piece.end == range.end, "{piece:?} of stripes of {stripe}");
            }
            assert_eq!(at, range.end);
        }
    }

    #[test]
    fn sectors_surround_pieces() {
        assert_eq!(aligned(&(0..512), 512), (0, 512));
        assert_eq!(aligned(&(511..513), 512), (0, 1024));
        assert_eq!(aligned(&(512..513), 512), (512, 512));
        assert_eq!(aligned(&(5..5), 512), (0, 512));
        assert_eq!(aligned(&(4095..8193), 4096), (0, 12_288));
    }
}
