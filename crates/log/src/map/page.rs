//! Pages of a run: entries in order, 24 bytes each, in blocks of the log. The checksum of a page
//! is in the fence that points to it. Numbers are little endian:
//!
//! ```text
//!  0  8 bytes  "SWLOGMAP"
//!  8  4        entries
//! 16  24 each  logical block (6, the top bit: late), place (6), CRC-32C (4), use of the segment
//!              (4), birth (4); a hole has the place of all ones, and the number of blocks behind
//!              it (8)
//! ```
//!
//! Faults expected: none that the checksum lets through; malformed pages are refused.

use crate::map::entry::{Block, Entry, Value};
use crate::shape::BLOCK_BYTES;

const MAGIC: [u8; 8] = *b"SWLOGMAP";
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 24;
const HOLE: u64 = (1 << 48) - 1;
/// Bit of a logical block that marks a late entry.
const LATE: u64 = 1 << 47;

/// Entries in a page.
pub(crate) const PAGE_ENTRIES: usize = (BLOCK_BYTES as usize - HEAD_BYTES) / ENTRY_BYTES;

/// Writes a page of at most [`PAGE_ENTRIES`] entries.
pub(crate) fn encode_page(entries: &[Entry], to: &mut [u8]) {
    assert!(entries.len() <= PAGE_ENTRIES, "{} entries in a page", entries.len());
    to.fill(0);
    to[..8].copy_from_slice(&MAGIC);
    to[8..12].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    for (entry, to) in entries.iter().zip(to[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES)) {
        let lba = entry.lba | if entry.is_late { LATE } else { 0 };
        to[..6].copy_from_slice(&lba.to_le_bytes()[..6]);
        match entry.value {
            Value::Block(block) => {
                to[6..12].copy_from_slice(&block.place.to_le_bytes()[..6]);
                to[12..16].copy_from_slice(&block.crc.to_le_bytes());
                to[16..20].copy_from_slice(&block.use_number.to_le_bytes());
            }
            Value::Hole => {
                to[6..12].copy_from_slice(&HOLE.to_le_bytes()[..6]);
                to[12..20].copy_from_slice(&entry.count.to_le_bytes());
            }
        }
        to[20..24].copy_from_slice(&entry.birth.to_le_bytes());
    }
}

/// Reads a page; `None` if it is malformed.
pub(crate) fn decode_page(from: &[u8]) -> Option<Vec<Entry>> {
    if from.get(..8)? != MAGIC {
        return None;
    }
    let u32_of = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
    let count = u32_of(from.get(8..12)?) as usize;
    let mut all = from[HEAD_BYTES..].chunks_exact(ENTRY_BYTES);
    if count > all.len() {
        return None;
    }
    let short = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let entries = all.by_ref().take(count).map(|bytes| {
        let (lba, place) = (short(&bytes[..6]), short(&bytes[6..12]));
        let block = Block { place, crc: u32_of(&bytes[12..16]), use_number: u32_of(&bytes[16..20]) };
        let (count, value) = match place {
            HOLE => (short(&bytes[12..20]), Value::Hole),
            _ => (1, Value::Block(block)),
        };
        let (lba, is_late) = (lba & !LATE, lba & LATE != 0);
        Entry { lba, count, birth: u32_of(&bytes[20..24]), is_late, value }
    });
    Some(entries.collect())
}
