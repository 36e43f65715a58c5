//! Entry points for fuzzers and for the tests that stand in for them: every decoder of what lies on
//! drives, behind its checksums.
//!
//! A fuzzer never guesses a checksum, so each entry point makes those right that stand before the
//! decoder. None of them may panic, hang, or take memory out of proportion to the bytes given.

use crate::checksums;
use crate::journal;
use crate::map::regions::Regions;
use crate::pool;

/// Reads bytes as the sections of a checkpoint, and, where they make a pool, writes and reads them
/// again: nothing may change. Gives whether they made one.
pub fn sections(bytes: &[u8]) -> bool {
    pool::superblock::changes::survives_rewriting(bytes)
}

/// Reads bytes as the head of a batch of a journal, with what says how long it is and whose made
/// right. Gives whether it was one.
pub fn journal_head(bytes: &[u8]) -> bool {
    journal::decode_sealed(bytes)
}

/// Makes the checksums of what begins at these places of a drive right again: headers of slots, and
/// the entries behind them as far as their lengths are possible. `image` is a whole drive.
pub fn reseal_slots(image: &mut [u8]) {
    pool::superblock::entries::reseal_slots(image);
}

/// Gives the pool's record on a drive other numbers: `number` is called with each one that it has,
/// in the same order for the same record. `image` is a whole drive.
pub fn change_numbers(image: &mut [u8], mut number: impl FnMut(u64) -> u64) {
    pool::superblock::entries::change_numbers(image, &mut number);
}

/// Reads bytes as a page of checksums and as a page of a region map, whose and where it is and its
/// checksum made right. Gives whether it was taken for both.
pub fn page(bytes: &[u8]) -> bool {
    let regions = Regions::survives_page(bytes);
    checksums::page_is_taken(bytes) && regions
}

/// Makes the checksum of a block of 4 KiB right again, if it begins as one that has its checksum in
/// itself: a page of checksums or of a region map, the head of a journal's area, or the head of a
/// batch that is one block long.
pub fn reseal_page(block: &mut [u8]) {
    let Some(magic) = block.first_chunk::<8>() else { return };
    // Where the checksum is, and up to where it counts as zero.
    let (at, end) = match magic {
        b"SWREGMAP" => (40, 44),
        b"SWJAREA\0" => (64, 72),
        b"SWJBATCH" => (104, 108),
        b"STRPSUMS" => (block.len() - 4, block.len()),
        _ => return,
    };
    if end > block.len() {
        return;
    }
    block[at..end].fill(0);
    let covered = if at + 4 == block.len() { &block[..at] } else { &*block };
    let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, covered) as u32;
    block[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
}
