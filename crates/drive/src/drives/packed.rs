//! A drive's contents as a small file: for images of drives that are kept with the tests, and for
//! what is sent along with a report of a fault.
//!
//! Only blocks of 4 KiB that hold something are in it, each as runs of words of 8 bytes, so that
//! zeros, and data of which every word is the same, cost next to nothing. A block that was seen
//! before in the same file is named by its number. It needs no library to read, now or in ten
//! years. Numbers are little endian:
//!
//! ```text
//! 8 bytes   "SWPACKED"
//! 8 bytes   the drive's size in bytes, a multiple of 512
//! then, for each block that is not all zeros, in ascending order:
//! 8 bytes   the block's number on the drive
//! 4 bytes   0xffff_ffff: the block follows; else it is the same as that one of the blocks before
//!           that followed, counted from 0
//! the block: runs until there are 512 words
//!     2 bytes   low 15 bits: how many words; top bit: they are all the one that follows; else
//!               all of them follow
//!     8 bytes   for each word that follows
//! ```
//!
//! A last block that the drive has only a part of is filled up with zeros. Faults expected: any
//! bytes; what is no packed drive is refused by a word on what is wrong with it, and memory is in
//! proportion to the bytes given, but for the table of the drive, which [`MAX_UNPACKED_BYTES`]
//! bounds.

use std::collections::HashMap;
use std::rc::Rc;

use crate::drives::memory::MemoryDrive;
use crate::request::Drive;

/// The largest drive that is unpacked, bytes.
pub(crate) const MAX_UNPACKED_BYTES: u64 = 1 << 40;

const MAGIC: [u8; 8] = *b"SWPACKED";
const BLOCK_BYTES: usize = 4096;
const WORD_BYTES: usize = 8;
const WORDS: usize = BLOCK_BYTES / WORD_BYTES;
/// Instead of the number of a block that is the same.
const FOLLOWS: u32 = u32::MAX;
const REPEATED: u16 = 1 << 15;

type Block = [u8; BLOCK_BYTES];

impl MemoryDrive {
    /// What it holds, packed.
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

    /// A drive of this name that holds what was packed, or what is wrong with the bytes.
    pub fn unpack(label: &str, packed: &[u8]) -> Result<Rc<Self>, &'static str> {
        let mut rest = packed;
        if take(&mut rest)? != MAGIC {
            return Err("it does not begin as a packed drive does");
        }
        let capacity_bytes = u64::from_le_bytes(take(&mut rest)?);
        if !capacity_bytes.is_multiple_of(512) || capacity_bytes > MAX_UNPACKED_BYTES {
            return Err("no drive has that size");
        }
        let drive = Self::new(label, capacity_bytes);
        let mut seen: Vec<Block> = Vec::new();
        let mut next = 0;
        while !rest.is_empty() {
            let number = u64::from_le_bytes(take(&mut rest)?);
            if number < next || number >= capacity_bytes.div_ceil(BLOCK_BYTES as u64) {
                return Err("a block is beyond the drive's end, or out of order");
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
            let block = block.ok_or("a block is said to be like one that is not there")?;
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
            return Err("a run of words is empty, or longer than its block");
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
    let (first, behind) = rest.split_first_chunk().ok_or("it is cut short")?;
    *rest = behind;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// A drive with blocks of every kind, and a last one that is not whole.
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
    fn a_packed_drive_is_the_same_again() {
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
            // Cut between two blocks it is a drive with fewer of them.
            let _ = MemoryDrive::unpack("cut", &packed[..length]);
        }
        let why = |bytes: &[u8]| MemoryDrive::unpack("x", bytes).err().expect("refused");
        assert_eq!(why(b"SWPACK"), "it is cut short");
        assert_eq!(why(b"RUBBISH!RUBBISH!"), "it does not begin as a packed drive does");
        let with = |at: usize, value: &[u8]| {
            let mut bytes = packed.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            why(&bytes)
        };
        assert_eq!(with(8, &u64::MAX.to_le_bytes()), "no drive has that size");
        assert_eq!(with(16, &600u64.to_le_bytes()), "a block is beyond the drive's end, or out of order");
        assert_eq!(with(24, &0u32.to_le_bytes()), "a block is said to be like one that is not there");
        assert_eq!(with(28, &600u16.to_le_bytes()), "a run of words is empty, or longer than its block");
        let mut random = SplitMix64::new(2);
        for _ in 0..2000 {
            let mut bytes = packed.clone();
            let at = 16 + random.below(bytes.len() as u64 - 16) as usize;
            bytes[at] = random.below(256) as u8;
            let _ = MemoryDrive::unpack("x", &bytes);
        }
    }
}
