//! Data that clients write. Every sector contains its volume, sector number and version, and all
//! its bytes follow from them. So each sector that is read can be classified: current, old,
//! misplaced or unknown.
//!
//! Expected faults: arbitrary bytes.

/// Minimum size of a client's write.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Size of a block, which the engine writes atomically.
pub(crate) const BLOCK_BYTES: u64 = 4096;

const WORDS: usize = (SECTOR_BYTES / 8) as usize;

/// Bytes of a sector.
pub(crate) type SectorBytes = [u8; SECTOR_BYTES as usize];

/// Content of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Only zeros.
    Zero,
    /// Data of a client.
    Data {
        /// Number of the volume.
        volume: u32,
        /// Sector within the volume.
        sector: u32,
        /// Number of the write to the volume, from 1.
        version: u32,
    },
    /// Bytes that no client ever wrote.
    Garbage,
}

fn word(first: u64, second: u64, index: usize) -> u64 {
    match index {
        0 => first,
        1 => second,
        _ => {
            let mixed = (first ^ second.rotate_left(29)).wrapping_add(index as u64);
            let mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 27)
        }
    }
}

fn header(volume: u32, sector: u32, version: u32) -> (u64, u64) {
    // Never zero, so that data differs from unwritten zeros.
    let first = (u64::from(volume) + 1) << 32 | u64::from(sector);
    let second = u64::from(version) << 32 | u64::from(version ^ sector.rotate_left(16) ^ 0x5a5a_a5a5);
    (first, second)
}

/// Fills `bytes`, whole sectors, with a client's data for `first_sector` and the following sectors.
pub(crate) fn stamp(bytes: &mut [u8], volume: u32, first_sector: u32, version: u32) {
    for (index, sector) in bytes.chunks_exact_mut(SECTOR_BYTES as usize).enumerate() {
        let (first, second) = header(volume, first_sector + index as u32, version);
        for (at, to) in sector.chunks_exact_mut(8).enumerate() {
            to.copy_from_slice(&word(first, second, at).to_le_bytes());
        }
    }
}

/// Identifies the content of a sector.
pub(crate) fn identify(sector: &[u8]) -> Content {
    let at = |index: usize| {
        u64::from_le_bytes(sector[index * 8..index * 8 + 8].try_into().expect("eight bytes of a sector"))
    };
    let (first, second) = (at(0), at(1));
    if first == 0 {
        return if sector == [0; SECTOR_BYTES as usize] { Content::Zero } else { Content::Garbage };
    }
    let Some(volume) = ((first >> 32) as u32).checked_sub(1) else { return Content::Garbage };
    let (sector_number, version) = (first as u32, (second >> 32) as u32);
    let is_whole = (first, second) == header(volume, sector_number, version)
        && (2..WORDS).all(|index| at(index) == word(first, second, index));
    match is_whole {
        true => Content::Data { volume, sector: sector_number, version },
        false => Content::Garbage,
    }
}

/// True if the sector consists of pieces of these versions: torn by one or several power cuts.
pub(crate) fn is_torn_of(sector: &[u8], versions: &[SectorBytes]) -> bool {
    sector.iter().enumerate().all(|(at, byte)| versions.iter().any(|version| version[at] == *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_sector_identifies_it() {
        let mut bytes = vec![0; 3 * SECTOR_BYTES as usize];
        assert_eq!(identify(&bytes[..512]), Content::Zero);
        stamp(&mut bytes, 2, 70, 9);
        assert_eq!(identify(&bytes[512..1024]), Content::Data { volume: 2, sector: 71, version: 9 });
        for at in 0..512 {
            let mut wrong = bytes[..512].to_vec();
            wrong[at] ^= 0x40;
            assert_eq!(identify(&wrong), Content::Garbage, "byte {at}");
        }
        let mut nearly_zero = [0; 512];
        nearly_zero[511] = 1;
        assert_eq!(identify(&nearly_zero), Content::Garbage);
    }

    #[test]
    fn torn_sectors_are_distinguished_from_garbage() {
        let (mut old, mut new) = ([0; 512], [0; 512]);
        stamp(&mut old, 0, 5, 1);
        stamp(&mut new, 0, 5, 2);
        let mut torn = old;
        torn[..200].copy_from_slice(&new[..200]);
        assert_eq!(identify(&torn), Content::Garbage);
        assert!(is_torn_of(&torn, &[new, old]) && !is_torn_of(&torn, &[old]));
        torn[300] ^= 1;
        assert!(!is_torn_of(&torn, &[new, old]));
    }
}
