//! Entry points for fuzzers and for the tests that stand in for them: the decoders of journals, of
//! pages of checksums and of region maps, behind their checksums.
//!
//! A fuzzer never guesses a checksum, so each entry point corrects the checksums before the decoder
//! runs. None of them may panic, hang, or take memory out of proportion to its input.

use crate::checksums;
use crate::journal;
use crate::map::regions::Regions;

/// Decodes bytes as the head of a journal batch, after correcting its length, identity and
/// checksum. True if the decoder accepts it.
pub fn journal_head(bytes: &[u8]) -> bool {
    journal::decode_sealed(bytes)
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
