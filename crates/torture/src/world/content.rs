//! What clients write: every sector says which volume, which sector and which version it is, and
//! every byte of it follows from that, so that whatever is read back can be named: current, old, of
//! another place, or unknown.
//!
//! Faults expected: anything at all may be read back.

/// The smallest thing that clients write, bytes.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// What the engine promises to keep whole, bytes.
pub(crate) const BLOCK_BYTES: u64 = 4096;

const WORDS: usize = (SECTOR_BYTES / 8) as usize;

/// A sector's bytes.
pub(crate) type SectorBytes = [u8; SECTOR_BYTES as usize];

/// What a sector that was read holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Only zeros.
    Zero,
    /// What some client wrote.
    Data {
        /// The volume's number.
        volume: u32,
        /// The sector within the volume.
        sector: u32,
        /// Counts the writes of a volume from 1.
        version: u32,
    },
    /// Nothing that any client ever wrote.
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
    // Never zero, so that no data look like zeros.
    let first = (u64::from(volume) + 1) << 32 | u64::from(sector);
    let second = u64::from(version) << 32 | u64::from(version ^ sector.rotate_left(16) ^ 0x5a5a_a5a5);
    (first, second)
}

/// Fills `bytes`, whole sectors, with what a client writes from `first_sector` on.
pub(crate) fn stamp(bytes: &mut [u8], volume: u32, first_sector: u32, version: u32) {
    for (index, sector) in bytes.chunks_exact_mut(SECTOR_BYTES as usize).enumerate() {
        let (first, second) = header(volume, first_sector + index as u32, version);
        for (at, to) in sector.chunks_exact_mut(8).enumerate() {
            to.copy_from_slice(&word(first, second, at).to_le_bytes());
        }
    }
}

/// Names what a sector holds.
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

/// Whether the sector is made of pieces of these: torn, perhaps by several cuts one after the
/// other.
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
