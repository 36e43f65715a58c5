//! Entry points for fuzzers, and for the tests that stand in for them: every decoder of on-drive
//! data, past its checksums.
//!
//! A fuzzer never guesses a checksum, so each entry point corrects those that precede the decoder.
//! None of them may panic, hang, or take memory out of proportion to the input.

use crate::checksums;
use crate::journal;
use crate::map::regions::Regions;
use crate::pool;

/// Decodes bytes as the sections of a checkpoint. If they describe a pool, encodes and decodes them
/// again: nothing may change. True if they describe one.
pub fn sections(bytes: &[u8]) -> bool {
    pool::superblock::changes::survives_rewriting(bytes)
}

/// Decodes bytes as the head of a journal batch, after correcting its length, identity and
/// checksum. True if the decoder accepts it.
pub fn journal_head(bytes: &[u8]) -> bool {
    journal::decode_sealed(bytes)
}

/// Corrects the checksums of slot headers at their places in `image`, a whole drive, and of the
/// entries that follow, as far as their lengths are possible.
pub fn reseal_slots(image: &mut [u8]) {
    pool::superblock::entries::reseal_slots(image);
}

/// Replaces the numbers in the pool's record on a drive: `number` is called with each one, in the
/// same order for the same record. `image` is a whole drive.
pub fn change_numbers(image: &mut [u8], mut number: impl FnMut(u64) -> u64) {
    pool::superblock::entries::change_numbers(image, &mut number);
}

/// Decodes bytes as a checksum page and as a page of a region map, after correcting identity and
/// checksum. True if both decoders accept them.
pub fn page(bytes: &[u8]) -> bool {
    let regions = Regions::accepts_page(bytes);
    checksums::accepts_page(bytes) && regions
}

/// Corrects the checksum of a block of 4 KiB that carries one: a checksum page, a page of a region
/// map, the header of a journal area, or the head of a batch of one block.
pub fn reseal_page(block: &mut [u8]) {
    let Some(magic) = block.first_chunk::<8>() else { return };
    // Offset of the checksum, and end of the bytes that count as zero.
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
