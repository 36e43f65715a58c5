//! A compact file format for drive contents: for drive images kept with the tests, and for
//! attachments of fault reports.
//!
//! The file contains only non-zero blocks of 4 KiB, each as runs of 8-byte words, so that zeros and
//! repeated words cost next to nothing. A block that repeats an earlier block of the file refers to
//! it by number. No library is needed to read it, now or in ten years. Numbers are little endian:
//!
//! ```text
//! 8 bytes   "SWPACKED"
//! 8 bytes   the drive's size in bytes, a multiple of 512
//! then, for each block that is not all zeros, in ascending order:
//! 8 bytes   the block's number on the drive
//! 4 bytes   0xffff_ffff: the block follows; else the number (from 0, among the blocks
//!           that follow) of an earlier block with the same contents
//! the block: runs until there are 512 words
//!     2 bytes   low 15 bits: number of words; top bit: all equal the one word that follows;
//!               else all of them follow
//!     8 bytes   for each word that follows
//! ```
//!
//! A partial last block is padded with zeros. Faults expected: any bytes. Malformed input is
//! refused with a reason, and memory is proportional to the input, except for the drive's table,
//! which [`MAX_UNPACKED_BYTES`] bounds.

use std::collections::HashMap;
use std::rc::Rc;

use crate::drives::memory::MemoryDrive;
use crate::request::Drive;

/// Maximum size of an unpacked drive in bytes.
pub(crate) const MAX_UNPACKED_BYTES: u64 = 1 << 40;

const MAGIC: [u8; 8] = *b"SWPACKED";
const BLOCK_BYTES: usize = 4096;
const WORD_BYTES: usize = 8;
const WORDS: usize = BLOCK_BYTES / WORD_BYTES;
/// Marks a block whose words follow, in place of the number of an equal block.
const FOLLOWS: u32 = u32::MAX;
const REPEATED: u16 = 1 << 15;

type Block = [u8; BLOCK_BYTES];

impl MemoryDrive {
    /// Packs the contents.
    pub fn pack(&self) -> Vec<u8> {
        let capacity_bytes = self.info().capacity_bytes;
        let mut packed = MAGIC.to_vec();
        packed.extend(capacity_bytes.to_le_bytes());
        let mut seen: HashMap<Block, u32> = HashMap::new();
        for number in 0..capacity_bytes.div_ceil(BLOCK_BYTES as u64) {
            let at = number * BLOCK_BYTES as u64;
            let mut block = [0; BLOCK_BYTES];
            let length = (capacity_bytes - at).min(BLOCK_BYTES as u64) as usize;
            self.peek(at, &mut block[..length]);
            if block.iter().all(|&byte| byte == 0) {
                continue;
            }
            packed.extend(number.to_le_bytes());
            if let Some(same) = seen.get(&block) {
                packed.extend(same.to_le_bytes());
                continue;
            }
            packed.extend(FOLLOWS.to_le_bytes());
            put_block(&mut packed, &block);
            seen.insert(block, seen.len() as u32);
        }
        packed
    }

    /// Unpacks a drive under this label, or returns what is wrong with the bytes.
    pub fn unpack(label: &str, packed: &[u8]) -> Result<Rc<Self>, &'static str> {
        let mut rest = packed;
        if take(&mut rest)? != MAGIC {
            return Err("no packed drive: bad magic");
        }
        let capacity_bytes = u64::from_le_bytes(take(&mut rest)?);
        if !capacity_bytes.is_multiple_of(512) || capacity_bytes > MAX_UNPACKED_BYTES {
            return Err("invalid drive size");
        }
        let drive = Self::new(label, capacity_bytes);
        let mut seen: Vec<Block> = Vec::new();
        let mut next = 0;
        while !rest.is_empty() {
            let number = u64::from_le_bytes(take(&mut rest)?);
            if number < next || number >= capacity_bytes.div_ceil(BLOCK_BYTES as u64) {
                return Err("a block is beyond the drive's end or out of order");
            }
            next = number + 1;
            let same = u32::from_le_bytes(take(&mut rest)?);
            if same == FOLLOWS {
                seen.push(take_block(&mut rest)?);
            }
            let block = match same {
                FOLLOWS => seen.last(),
                same => seen.get(same as usize),
            };
            let block = block.ok_or("a block refers to a missing block")?;
            let at = number * BLOCK_BYTES as u64;
            let length = (capacity_bytes - at).min(BLOCK_BYTES as u64) as usize;
            drive.poke(at, &block[..length]);
        }
        Ok(drive)
    }
}

fn put_block(packed: &mut Vec<u8>, block: &Block) {
    let words: Vec<&[u8]> = block.chunks_exact(WORD_BYTES).collect();
    let alike = |at: usize| words[at..].iter().take_while(|&word| *word == words[at]).count();
    let mut at = 0;
    while at < WORDS {
        let repeated = alike(at);
        if repeated > 1 {
            packed.extend((repeated as u16 | REPEATED).to_le_bytes());
            packed.extend(words[at]);
            at += repeated;
            continue;
        }
        let end = (at + 1..WORDS).find(|&end| alike(end) > 1).unwrap_or(WORDS);
        packed.extend(((end - at) as u16).to_le_bytes());
        packed.extend(words[at..end].concat());
        at = end;
    }
}

fn take_block(rest: &mut &[u8]) -> Result<Block, &'static str> {
    let mut block = [0; BLOCK_BYTES];
    let mut words = block.chunks_exact_mut(WORD_BYTES);
    while words.len() > 0 {
        let head = u16::from_le_bytes(take(rest)?);
        let count = usize::from(head & !REPEATED);
        if count == 0 || count > words.len() {
            return Err("a run of words is empty or exceeds its block");
        }
        let mut word = [0; WORD_BYTES];
        for (index, to) in words.by_ref().take(count).enumerate() {
            if index == 0 || head & REPEATED == 0 {
                word = take(rest)?;
            }
            to.copy_from_slice(&word);
        }
    }
    Ok(block)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], &'static str> {
    let (first, behind) = rest.split_first_chunk().ok_or("truncated")?;
    *rest = behind;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// A drive with blocks of every kind, and a partial last block.
    fn drive() -> Rc<MemoryDrive> {
        let drive = MemoryDrive::new("packed", (2 << 20) + 512);
        let mut random = SplitMix64::new(1);
        drive.poke(0, b"text at the beginning");
        drive.poke(8192, &[7; 4096]);
        drive.poke(12_288, &[7; 4096]);
        let noise: Vec<u8> = (0..8192).map(|_| random.below(256) as u8).collect();
        drive.poke(1 << 20, &noise);
        drive.poke((1 << 20) + 16_384 + 24, &[1, 2, 3]);
        drive.poke(2 << 20, &[9; 512]);
        drive
    }

    fn bytes_of(drive: &MemoryDrive) -> Vec<u8> {
        let mut bytes = vec![0; drive.info().capacity_bytes as usize];
        drive.peek(0, &mut bytes);
        bytes
    }

    #[test]
    fn packed_drive_unpacks_unchanged() {
        let drive = drive();
        let packed = drive.pack();
        assert!(packed.len() < 9000, "two blocks of noise and little else: {}", packed.len());
        let again = MemoryDrive::unpack("again", &packed).unwrap();
        assert!(bytes_of(&again) == bytes_of(&drive));
        assert_eq!(&*again.info().label, "again");
        let empty = MemoryDrive::unpack("empty", &MemoryDrive::new("empty", 4096).pack()).unwrap();
        assert_eq!(empty.allocated_bytes(), 0);
    }

    #[test]
    fn invalid_packed_drives_are_refused() {
        let packed = drive().pack();
        for length in 0..packed.len() {
            // Cut between two blocks, it is a valid drive with fewer blocks.
            let _ = MemoryDrive::unpack("cut", &packed[..length]);
        }
        let why = |bytes: &[u8]| MemoryDrive::unpack("x", bytes).err().expect("refused");
        assert_eq!(why(b"SWPACK"), "truncated");
        assert_eq!(why(b"RUBBISH!RUBBISH!"), "no packed drive: bad magic");
        let with = |at: usize, value: &[u8]| {
            let mut bytes = packed.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            why(&bytes)
        };
        assert_eq!(with(8, &u64::MAX.to_le_bytes()), "invalid drive size");
        assert_eq!(with(16, &600u64.to_le_bytes()), "a block is beyond the drive's end or out of order");
        assert_eq!(with(24, &0u32.to_le_bytes()), "a block refers to a missing block");
        assert_eq!(with(28, &600u16.to_le_bytes()), "a run of words is empty or exceeds its block");
        let mut random = SplitMix64::new(2);
        for _ in 0..2000 {
            let mut bytes = packed.clone();
            let at = 16 + random.below(bytes.len() as u64 - 16) as usize;
            bytes[at] = random.below(256) as u8;
            let _ = MemoryDrive::unpack("x", &bytes);
        }
    }
}
