//! Damage to what a client sends: included by the tests of malformed input.

use stripewise_drive::SplitMix64;

/// Flips bits, cuts, fills or repeats a part of the bytes, up to three times.
pub fn damage(bytes: &mut Vec<u8>, random: &mut SplitMix64) {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at.max(1)),
            2 => bytes[at..].fill(0xFF),
            _ => bytes.extend_from_within(at..),
        }
    }
}
