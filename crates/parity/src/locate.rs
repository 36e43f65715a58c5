//! Locates the corrupt unit of a stripe from the syndromes, the differences between the stored
//! parity units and those computed from the data.
//!
//! One wrong byte in one unit leaves a syndrome that, with two parity units or more, points to that
//! unit. If all wrong bytes of a stripe point to the same unit, that unit is corrupt; anything else
//! is `Unknown`, since guessing would destroy data. Two wrong units in the same byte may, with P
//! and Q alone, look like one wrong third unit: that is the code's limit.

use crate::MAXIMUM_DATA_UNITS;
use crate::choice::active;
use crate::field::{logarithm, multiply, power_of_two};
use crate::kernel::MAXIMUM_PARITY;

/// Syndromes are computed in pieces that stay in the first-level cache.
const PIECE_BYTES: usize = 4096;

/// Result of comparing the units of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Data and parity agree in every byte.
    Consistent,
    /// They disagree, and every disagreement is explained by this one unit (data 0..k, then P, Q,
    /// R) being wrong.
    Unit(usize),
    /// They disagree, and no single unit explains it, or there is only P.
    Unknown,
}

/// Judges a whole stripe: `units` are the data units, then P, then Q and R if there.
///
/// # Panics
/// If the number of data units is 0 or above [`MAXIMUM_DATA_UNITS`], if not one to three parity
/// units follow, or if the lengths differ.
pub fn locate(data_units: usize, units: &[&[u8]]) -> Verdict {
    assert!(
        (1..=MAXIMUM_DATA_UNITS).contains(&data_units),
        "{data_units} data units, not 1 to {MAXIMUM_DATA_UNITS}"
    );
    let parity_units = units.len().saturating_sub(data_units);
    assert!(
        (1..=MAXIMUM_PARITY).contains(&parity_units),
        "{parity_units} parity units, not 1 to {MAXIMUM_PARITY}"
    );
    let length_bytes = units[0].len();
    assert!(units.iter().all(|unit| unit.len() == length_bytes), "units of one stripe differ in length");

    let kernel = active();
    let (data, parity) = units.split_at(data_units);
    let mut pieces: [&[u8]; MAXIMUM_DATA_UNITS] = [&[]; MAXIMUM_DATA_UNITS];
    let mut memory = [[0u8; PIECE_BYTES]; MAXIMUM_PARITY];
    let mut culprit = None;
    for start in (0..length_bytes).step_by(PIECE_BYTES) {
        let end = length_bytes.min(start + PIECE_BYTES);
        for (piece, unit) in pieces.iter_mut().zip(data) {
            *piece = &unit[start..end];
        }
        let mut syndromes = memory.each_mut().map(|piece| &mut piece[..end - start]);
        let syndromes = &mut syndromes[..parity_units];
        kernel.encode(&pieces[..data_units], syndromes);
        for (syndrome, unit) in syndromes.iter_mut().zip(parity) {
            kernel.xor_into(syndrome, &unit[start..end]);
        }
        if syndromes.iter().all(|syndrome| is_zero(syndrome)) {
            continue;
        }
        for at in 0..end - start {
            let mut here = [0; MAXIMUM_PARITY];
            for (byte, syndrome) in here.iter_mut().zip(syndromes.iter()) {
                *byte = syndrome[at];
            }
            if here == [0; MAXIMUM_PARITY] {
                continue;
            }
            match (culprit, accuse(data_units, &here[..parity_units])) {
                (_, None) => return Verdict::Unknown,
                (None, accused) => culprit = accused,
                (Some(known), Some(accused)) if known == accused => {}
                (Some(_), Some(_)) => return Verdict::Unknown,
            }
        }
    }
    culprit.map_or(Verdict::Consistent, Verdict::Unit)
}

/// The one unit that explains the syndromes of one byte, not all of them zero.
///
/// An error e in data unit i gives (e, 2^i e, 4^i e); an error in a parity unit gives that one
/// syndrome alone.
fn accuse(data_units: usize, syndromes: &[u8]) -> Option<usize> {
    if syndromes.len() < 2 {
        return None;
    }
    let mut wrong = (0..syndromes.len()).filter(|&row| syndromes[row] != 0);
    let first_wrong = wrong.next()?;
    if wrong.next().is_none() {
        return Some(data_units + first_wrong);
    }
    let (p, q) = (syndromes[0], syndromes[1]);
    if p == 0 || q == 0 {
        return None;
    }
    let unit = (logarithm(q) + 255 - logarithm(p)) % 255;
    let explained = syndromes.get(2).is_none_or(|&r| r == multiply(power_of_two(2 * unit), p));
    (unit < data_units && explained).then_some(unit)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |seen, &byte| seen | byte) == 0
}
