//! The on-drive format of a checksum page, and the word by which a block's checksum depends on the
//! block's place.
//!
//! Both places of a page hold the same bytes. A page is valid if magic, version, volume, row,
//! column and page number are the expected ones and the CRC-32C over everything before it agrees;
//! this rejects torn pages, pages of other places and pages that another volume left behind.
//!
//! The newer of two pages is the one with the higher *stamp*: one counter for the whole volume,
//! raised for each page version written and above all earlier ones at opening. A page created again
//! for reused space (a region discarded and written again, a row freed and allocated again) is
//! therefore newer than whatever the drives still hold of it, and rows need no recorded incarnation
//! number.

use super::{BLOCKS_PER_PAGE, ChecksumSpec, PageId};

/// Length of a page on the drive.
pub const PAGE_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"STRPSUMS";
const VERSION: u32 = 1;
const ENTRIES_AT: usize = 64;
const ENTRIES_END: usize = ENTRIES_AT + 8 * BLOCKS_PER_PAGE;
const CRC_AT: usize = PAGE_BYTES - 4;

/// Decoded contents of a page: checksum and write sequence of each block; sequence 0 means that
/// nothing is recorded.
pub(super) struct Image {
    pub stamp: u64,
    pub entries: Box<[(u32, u32); BLOCKS_PER_PAGE]>,
}

/// Result of decoding the bytes at a page's place.
pub(super) enum Decoded {
    /// The expected page, intact.
    Page(Image),
    /// Nothing of this volume: zeros, or an intact page of another volume. The place was not
    /// written since it was allocated to this volume.
    Blank,
    /// Anything else.
    Wrong,
}

/// CRC-32C. This entry point of the library skips its choice of algorithm, which matters at 4 KiB.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Writes the header and the checksum around entries that are already in place (see [`put_entry`]).
pub(super) fn seal(bytes: &mut [u8], volume_id: u128, id: PageId, stamp: u64) {
    bytes[..ENTRIES_AT].fill(0);
    bytes[ENTRIES_END..].fill(0);
    put(bytes, 0, &MAGIC);
    put(bytes, 8, &VERSION.to_le_bytes());
    put(bytes, 16, &volume_id.to_le_bytes());
    put(bytes, 32, &id.row.to_le_bytes());
    put(bytes, 40, &id.column.to_le_bytes());
    put(bytes, 42, &id.page.to_le_bytes());
    put(bytes, 48, &stamp.to_le_bytes());
    let crc = crc(&bytes[..CRC_AT]);
    put(bytes, CRC_AT, &crc.to_le_bytes());
}

pub(super) fn put_entry(bytes: &mut [u8], block: usize, sum: u32, sequence: u32) {
    let at = ENTRIES_AT + 8 * block;
    put(bytes, at, &sum.to_le_bytes());
    put(bytes, at + 4, &sequence.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Decodes bytes as the page with this identity.
pub(super) fn decode(bytes: &[u8], volume_id: u128, id: PageId) -> Decoded {
    if bytes.len() != PAGE_BYTES {
        return Decoded::Wrong;
    }
    if bytes[0..8] == [0; 8] && bytes.iter().all(|&byte| byte == 0) {
        return Decoded::Blank;
    }
    let is_whole =
        bytes[0..8] == MAGIC && u32_at(bytes, 8) == VERSION && u32_at(bytes, CRC_AT) == crc(&bytes[..CRC_AT]);
    if is_whole && bytes[16..32] != volume_id.to_le_bytes() {
        return Decoded::Blank;
    }
    let is_asked_for = bytes[32..40] == id.row.to_le_bytes()
        && bytes[40..42] == id.column.to_le_bytes()
        && bytes[42..44] == id.page.to_le_bytes();
    if !is_whole || !is_asked_for {
        return Decoded::Wrong;
    }
    let mut entries = Box::new([(0, 0); BLOCKS_PER_PAGE]);
    for (block, entry) in entries.iter_mut().enumerate() {
        let at = ENTRIES_AT + 8 * block;
        *entry = (u32_at(bytes, at), u32_at(bytes, at + 4));
    }
    let stamp = u64::from_le_bytes(bytes[48..56].try_into().expect("eight bytes"));
    Decoded::Page(Image { stamp, entries })
}

/// For fuzzers: decodes bytes as a page after correcting magic, version, identity and checksum.
/// True if the decoder accepts them.
pub(crate) fn accepts_page(bytes: &[u8]) -> bool {
    let id = PageId { row: 3, column: 1, page: 2 };
    let mut page = [0; PAGE_BYTES];
    let length = bytes.len().min(PAGE_BYTES);
    page[..length].copy_from_slice(&bytes[..length]);
    put(&mut page, 0, &MAGIC);
    put(&mut page, 8, &VERSION.to_le_bytes());
    put(&mut page, 16, &7u128.to_le_bytes());
    put(&mut page, 32, &id.row.to_le_bytes());
    put(&mut page, 40, &id.column.to_le_bytes());
    put(&mut page, 42, &id.page.to_le_bytes());
    let checksum = crc(&page[..CRC_AT]);
    put(&mut page, CRC_AT, &checksum.to_le_bytes());
    matches!(decode(&page, 7, id), Decoded::Page(_))
}

/// Identity words, which make checksums depend on the place.
///
/// A block's checksum is the CRC-32C of its bytes XOR the word of its place. A misdirected block
/// fails against the entry of the place where it was found because its bytes differ (as with any
/// CRC, all but 1 in 2^32). The word adds that an entry, too, is valid only at its own place: a
/// block and an entry that both come from elsewhere agree only where the two places have the same
/// word. Within a slab that never happens, because there the word is one-to-one in the block
/// number; between slabs, columns and volumes it happens once in 2^32.
#[derive(Clone, Copy)]
pub(super) struct Identity {
    seed: u64,
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 32)).wrapping_mul(0xe703_7ed1_a0b4_28db);
    let value = (value ^ (value >> 29)).wrapping_mul(0x8ebc_6af0_9c88_c6e3);
    value ^ (value >> 32)
}

impl Identity {
    pub(super) fn new(spec: &ChecksumSpec) -> Self {
        Self { seed: mix(spec.volume_id as u64 ^ mix((spec.volume_id >> 64) as u64)) }
    }

    /// The part of the word that all blocks of a column of a row share.
    pub(super) fn base(self, row: u64, column: u16) -> u32 {
        (mix(self.seed ^ (row << 16 | u64::from(column))) >> 32) as u32
    }
}

/// Identity word of a block of the slab.
#[inline]
pub(super) fn word(base: u32, block_in_slab: u32) -> u32 {
    base ^ block_in_slab.wrapping_mul(0x9e37_79b1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PageId = PageId { row: 5, column: 2, page: 7 };

    fn sample() -> Vec<u8> {
        let mut bytes = vec![0xaa; PAGE_BYTES];
        for block in 0..BLOCKS_PER_PAGE {
            put_entry(&mut bytes, block, block as u32 * 3, block as u32);
        }
        seal(&mut bytes, 77, ID, 1 << 40);
        bytes
    }

    fn is_wrong(bytes: &[u8], volume_id: u128, id: PageId) -> bool {
        matches!(decode(bytes, volume_id, id), Decoded::Wrong)
    }

    #[test]
    fn page_encoding_round_trips() {
        let Decoded::Page(image) = decode(&sample(), 77, ID) else { panic!("it is valid") };
        assert_eq!(image.stamp, 1 << 40);
        assert!(image.entries.iter().enumerate().all(|(i, entry)| *entry == (i as u32 * 3, i as u32)));
    }

    #[test]
    fn page_bytes_match_the_format() {
        let bytes = sample();
        assert_eq!(&bytes[..12], b"STRPSUMS\x01\0\0\0");
        assert_eq!(bytes[16], 77);
        assert_eq!((bytes[32], bytes[40], bytes[42], bytes[53]), (5, 2, 7, 1));
        assert_eq!(&bytes[64 + 8 * 2..64 + 8 * 3], &[6, 0, 0, 0, 2, 0, 0, 0]);
        assert!(bytes[64 + 8 * 256..4092].iter().all(|&byte| byte == 0));
        assert_eq!(bytes[4092..], crc_fast::crc32_iscsi(&bytes[..4092]).to_le_bytes());
    }

    #[test]
    fn page_with_another_identity_is_rejected() {
        let bytes = sample();
        assert!(is_wrong(&bytes, 77, PageId { row: 6, ..ID }));
        assert!(is_wrong(&bytes, 77, PageId { column: 1, ..ID }));
        assert!(is_wrong(&bytes, 77, PageId { page: 8, ..ID }));
        assert!(is_wrong(&bytes[..4095], 77, ID));
        assert!(is_wrong(&[], 77, ID));
        assert!(matches!(decode(&bytes, 78, ID), Decoded::Blank), "another volume's");
        assert!(matches!(decode(&[0; PAGE_BYTES], 77, ID), Decoded::Blank));
    }

    #[test]
    fn every_bit_flip_and_tear_is_detected() {
        let bytes = sample();
        for bit in 0..PAGE_BYTES * 8 {
            let mut wrong = bytes.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(is_wrong(&wrong, 77, ID), "bit {bit}");
        }
        let mut newer = bytes.clone();
        put_entry(&mut newer, 0, 9, 9);
        put_entry(&mut newer, 255, 9, 9);
        seal(&mut newer, 77, ID, (1 << 40) + 1);
        for sector in 1..8 {
            let torn = [&newer[..sector * 512], &bytes[sector * 512..]].concat();
            assert!(is_wrong(&torn, 77, ID), "torn after sector {sector}");
        }
    }

    #[test]
    fn words_differ_within_a_slab_and_between_columns() {
        let spec = ChecksumSpec { volume_id: 9 << 70, width: 4, slab_bytes: 128 << 20 };
        let base = Identity::new(&spec).base(3, 1);
        let mut seen: Vec<u32> = (0..32768).map(|block| word(base, block)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 32768);
        let other = Identity::new(&ChecksumSpec { volume_id: 10 << 70, ..spec });
        for clash in [Identity::new(&spec).base(3, 2), Identity::new(&spec).base(4, 1), other.base(3, 1)] {
            assert_ne!(base, clash);
        }
    }
}
