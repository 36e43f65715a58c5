//! The kernel for any processor: eight bytes at a time in ordinary registers.
//!
//! It is also the reference that the SIMD kernels are tested against, and computes their
//! remainders. The loops over a block of words are written so that the compiler turns them into
//! whatever vectors the target has.

use crate::field::{POLYNOMIAL, multiply, power_of_two};

/// Words side by side of one row or unit; the sums of a block stay in registers.
type Block<const WORDS: usize> = [u64; WORDS];

const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// Every byte of the word times 2.
fn double(word: u64) -> u64 {
    let overflowing = word & (0x80 * EVERY_BYTE);
    // 0xff in each byte that overflows: 0x100 - 0x01, the borrow of one byte paid by the carry of
    // the one below.
    let mask = (overflowing << 1).wrapping_sub(overflowing >> 7);
    ((word & (0x7f * EVERY_BYTE)) << 1) ^ (mask & (POLYNOMIAL as u64 * EVERY_BYTE))
}

fn load<const WORDS: usize>(bytes: &[u8], at: usize) -> Block<WORDS> {
    let chunks = bytes[at..at + WORDS * 8].as_chunks::<8>().0;
    std::array::from_fn(|word| u64::from_le_bytes(chunks[word]))
}

fn store<const WORDS: usize>(bytes: &mut [u8], at: usize, block: &Block<WORDS>) {
    for (chunk, word) in bytes[at..at + WORDS * 8].as_chunks_mut::<8>().0.iter_mut().zip(block) {
        *chunk = word.to_le_bytes();
    }
}

fn xor<const WORDS: usize>(sum: &mut Block<WORDS>, block: Block<WORDS>) {
    for (word, other) in sum.iter_mut().zip(block) {
        *word ^= other;
    }
}

/// P, or P and Q, or P, Q and R of `data`, from byte `start` to the end.
pub(crate) fn encode_from(start: usize, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    match parity {
        [p] => encode_rows::<1, 8>(start, data, [p]),
        [p, q] => encode_rows::<2, 8>(start, data, [p, q]),
        [p, q, r] => encode_rows::<3, 4>(start, data, [p, q, r]),
        _ => unreachable!("one to three parity units, as Kernel::encode has checked"),
    }
}

/// Horner's scheme: from the last unit to the first, row times 2^row, plus unit.
fn encode_rows<const ROWS: usize, const WORDS: usize>(
    start: usize,
    data: &[&[u8]],
    mut parity: [&mut [u8]; ROWS],
) {
    let length = parity[0].len();
    let whole = length - (length - start) % (WORDS * 8);
    for at in (start..whole).step_by(WORDS * 8) {
        let mut sums = [[0; WORDS]; ROWS];
        for unit in data.iter().rev() {
            let block = load::<WORDS>(unit, at);
            for (row, sum) in sums.iter_mut().enumerate() {
                for _ in 0..row {
                    *sum = sum.map(double);
                }
                xor(sum, block);
            }
        }
        for (unit, sum) in parity.iter_mut().zip(&sums) {
            store(unit, at, sum);
        }
    }
    for at in whole..length {
        let mut sums = [0; ROWS];
        for unit in data.iter().rev() {
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = multiply(power_of_two(row), *sum) ^ unit[at];
            }
        }
        for (unit, sum) in parity.iter_mut().zip(sums) {
            unit[at] = sum;
        }
    }
}

/// `outputs[o] = Σ coefficients[s * outputs.len() + o] · sources[s]`, from byte `start` to the end;
/// what was in the outputs is added if `accumulate`.
///
/// By bits of the coefficients, highest first: double the sum, add all sources whose coefficient
/// has the bit. Eight doublings per output in all, however many sources.
pub(crate) fn sum_products_from(
    start: usize,
    coefficients: &[u8],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    accumulate: bool,
) {
    const WORDS: usize = 8;
    let count = outputs.len();
    for (index, output) in outputs.iter_mut().enumerate() {
        let length = output.len();
        let whole = length - (length - start) % (WORDS * 8);
        for at in (start..whole).step_by(WORDS * 8) {
            let mut sum = [0; WORDS];
            for bit in (0..8).rev() {
                sum = sum.map(double);
                for (source, factors) in sources.iter().zip(coefficients.chunks_exact(count)) {
                    if factors[index] >> bit & 1 == 1 {
                        xor(&mut sum, load(source, at));
                    }
                }
            }
            if accumulate {
                xor(&mut sum, load(output, at));
            }
            store(output, at, &sum);
        }
        for at in whole..length {
            let products = sources.iter().zip(coefficients.chunks_exact(count));
            let sum = products.fold(0, |sum, (source, factors)| sum ^ multiply(factors[index], source[at]));
            output[at] = if accumulate { output[at] ^ sum } else { sum };
        }
    }
}

/// `destination ^= source`, from byte `start` to the end.
pub(crate) fn xor_into_from(start: usize, destination: &mut [u8], source: &[u8]) {
    for (to, from) in destination[start..].iter_mut().zip(&source[start..]) {
        *to ^= from;
    }
}
