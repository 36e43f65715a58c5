//! Drives that leave their pool: they are emptied until they count as empty, so that they can be
//! used again without force, unless something was written to them since.
//!
//! Expected faults: a drive that fails during this (the pool goes on without it), file systems that
//! cannot discard parts of a file (the file still holds data).

use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::{Context, Drive, DriveError, DriveKind, IoRequest, Operation};

use crate::superblock::writer::{wipe, zero};
use stripewise_array::{Class, Member, MemberOptions};

/// Bytes at each end of a drive that are looked at.
const END_BYTES: u64 = 16 << 20;
/// Number of samples between the ends, and length of each, bytes.
const SAMPLES: u64 = 128;
const SAMPLE_BYTES: u64 = 64 << 10;
/// Maximum bytes of a piece.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Alignment of samples, bytes, which suits every drive.
const ALIGNMENT_BYTES: u64 = 4096;

/// Removes the superblocks of a drive that leaves its pool, and what the search for contents would
/// find: all of a file, the sampled places of other drives. Durable when done.
pub(crate) async fn release(member: &Rc<Member>) -> Result<(), DriveError> {
    wipe(member).await?;
    let failures = member.flush_failures().count();
    let (kind, capacity_bytes) = (member.info().kind, member.info().capacity_bytes);
    if kind == DriveKind::File {
        let all = IoRequest::range(Operation::Discard, 0, capacity_bytes);
        member.submit(Class::Upkeep, all).await?;
    } else {
        for place in sampled_places(capacity_bytes) {
            zero(member, place.start, place.end - place.start).await?;
        }
    }
    member.flush_since(failures).await
}

/// Erases a drive of no open pool, as one that leaves its pool. Durable when done.
///
/// # Errors
/// The error of the first write that the drive refuses.
pub async fn erase(context: &Context, drive: Rc<dyn Drive>) -> Result<(), DriveError> {
    let member = Member::new(context, drive, MemberOptions::default());
    let erased = release(&member).await;
    member.stop();
    member.release();
    erased
}

/// The places of a drive of this size that are searched for contents if there is no map of its
/// written parts: both ends, and samples between them, in pieces of at most 1 MiB.
pub fn sampled_places(size_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let first = END_BYTES.min(size_bytes);
    let last = (size_bytes.saturating_sub(END_BYTES) / ALIGNMENT_BYTES * ALIGNMENT_BYTES).max(first);
    let between = last - first;
    let sample = move |index: u64| {
        let offset = (u128::from(between) * u128::from(index) / u128::from(SAMPLES)) as u64;
        let start = first + offset / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        start..(start + SAMPLE_BYTES).min(last)
    };
    let samples = (0..SAMPLES).map(sample).filter(|sample| !sample.is_empty());
    pieces(0..first).chain(pieces(last..size_bytes)).chain(samples)
}

/// Splits a part into reads of at most 1 MiB.
pub fn pieces(part: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let step = PIECE_BYTES as usize;
    part.clone().step_by(step).map(move |start| start..(start + PIECE_BYTES).min(part.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_and_samples_are_looked_at() {
        const SIZE: u64 = (1 << 30) + 512;
        let seen = |place: u64| sampled_places(SIZE).any(|piece| piece.contains(&place));
        for place in [0, END_BYTES - 1, SIZE - END_BYTES, SIZE - 1] {
            assert!(seen(place), "{place}");
        }
        // A stretch of data as long as the distance of samples is found.
        let distance = (SIZE - 2 * END_BYTES).div_ceil(SAMPLES) + ALIGNMENT_BYTES;
        for start in [END_BYTES, SIZE / 3, SIZE - END_BYTES - distance] {
            let met = sampled_places(SIZE).any(|piece| piece.start < start + distance && start < piece.end);
            assert!(met, "{start}");
        }
        for size in [0, 1, 4096, END_BYTES, END_BYTES + 1, 2 * END_BYTES, 2 * END_BYTES + 512, 1 << 62] {
            for piece in sampled_places(size) {
                assert!(piece.start < piece.end && piece.end <= size, "{size}: {piece:?}");
                assert!(piece.end - piece.start <= PIECE_BYTES, "{size}: {piece:?}");
            }
        }
    }
}
