//! The kernel for any processor: eight bytes at a time in ordinary registers.
//!
//! It is also the yardstick the SIMD kernels are tested against, and computes the ends they leave over.
//! The loops over a block of words are written so that the compiler turns them into whatever vectors the target has.

use crate::field::{POLYNOMIAL, multiply, power_of_two};

/// Words of one block; the sums of a block stay in registers.
const BLOCK_WORDS: usize = 8;
const BLOCK_BYTES: usize = BLOCK_WORDS * 8;

type Block = [u64; BLOCK_WORDS];

const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;

/// Every byte of the word times 2.
fn double(word: u64) -> u64 {
    let overflowing = word & (0x80 * EVERY_BYTE);
    // 0xff in each byte that overflows: 0x100 - 0x01, the borrow of one byte paid by the carry of the one below.
    let mask = (overflowing << 1).wrapping_sub(overflowing >> 7);
    ((word & (0x7f * EVERY_BYTE)) << 1) ^ (mask & (POLYNOMIAL as u64 * EVERY_BYTE))
}

fn load(bytes: &[u8], at: usize) -> Block {
    let bytes: &[u8; BLOCK_BYTES] = bytes[at..at + BLOCK_BYTES].try_into().expect("a block long");
    let mut block = [0; BLOCK_WORDS];
    for (word, chunk) in block.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*chunk);
    }
    block
}

fn store(bytes: &mut [u8], at: usize, block: &Block) {
    for (word, chunk) in block.iter().zip(bytes[at..at + BLOCK_BYTES].as_chunks_mut::<8>().0) {
        *chunk = word.to_le_bytes();
    }
}

/// P, or P and Q, or P, Q and R of `data`, from byte `start` to the end.
pub(crate) fn encode_from(start: usize, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    match parity {
        [p] => encode_rows::<1>(start, data, [p]),
        [p, q] => encode_rows::<2>(start, data, [p, q]),
        [p, q, r] => encode_rows::<3>(start, data, [p, q, r]),
        _ => unreachable!("checked by Kernel::encode"),
    }
}

/// Horner's scheme: from the last unit to the first, row times 2^row, plus unit.
fn encode_rows<const ROWS: usize>(start: usize, data: &[&[u8]], mut parity: [&mut [u8]; ROWS]) {
    let length = parity[0].len();
    let mut at = start;
    while at + BLOCK_BYTES <= length {
        let mut sums = [[0; BLOCK_WORDS]; ROWS];
        for unit in data.iter().rev() {
            let block = load(unit, at);
            for (row, sum) in sums.iter_mut().enumerate() {
                for (word, unit_word) in sum.iter_mut().zip(&block) {
                    for _ in 0..row {
                        *word = double(*word);
                    }
                    *word ^= unit_word;
                }
            }
        }
        for (unit, sum) in parity.iter_mut().zip(&sums) {
            store(unit, at, sum);
        }
        at += BLOCK_BYTES;
    }
    for at in at..length {
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

/// `outputs[o] (^)= Σ coefficients[s * outputs.len() + o] · sources[s]`, from byte `start` to the end.
///
/// By bits of the coefficients, highest first: double the sum, add all sources whose coefficient has the bit. Eight
/// doublings per output in all, however many sources.
pub(crate) fn sum_products_from(
    start: usize,
    coefficients: &[u8],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    accumulate: bool,
) {
    let count = outputs.len();
    for (index, output) in outputs.iter_mut().enumerate() {
        let length = output.len();
        let mut at = start;
        while at + BLOCK_BYTES <= length {
            let mut sum = [0; BLOCK_WORDS];
            for bit in (0..8).rev() {
                sum = sum.map(double);
                for (source, factors) in sources.iter().zip(coefficients.chunks_exact(count)) {
                    if factors[index] >> bit & 1 == 1 {
                        let block = load(source, at);
                        sum.iter_mut().zip(&block).for_each(|(word, source_word)| *word ^= source_word);
                    }
                }
            }
            if accumulate {
                let block = load(output, at);
                sum.iter_mut().zip(&block).for_each(|(word, old_word)| *word ^= old_word);
            }
            store(output, at, &sum);
            at += BLOCK_BYTES;
        }
        for at in at..length {
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
