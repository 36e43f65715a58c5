//! The kernel for 64-bit ARM with NEON: 16 bytes at a time.
//!
//! Encoding is Horner's scheme with shifts for doubling. Products with any constant come from two
//! tables of 16 bytes, one for each half of a byte. Ends shorter than a vector are left to the
//! portable kernel. NEON has no streaming stores among its intrinsics, so parity always goes
//! through the cache.

use core::arch::aarch64::*;
use core::array::from_fn;

use crate::field::{HALF_PRODUCTS, POLYNOMIAL};
use crate::kernel::{Functions, Stores};
use crate::portable;

pub(crate) const FUNCTIONS: Functions = Functions { encode, sum_products, xor_into };

/// True if this processor supports the kernel's instructions.
pub(crate) fn is_supported() -> bool {
    std::arch::is_aarch64_feature_detected!("neon")
}

const VECTOR_BYTES: usize = 16;

/// Some vectors side by side of one row or unit.
type Block<const WIDTH: usize> = [uint8x16_t; WIDTH];

#[inline]
#[target_feature(enable = "neon")]
fn double(x: uint8x16_t) -> uint8x16_t {
    // The sign bit over the whole byte: 0xff where it overflows.
    let overflowing = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(x)));
    veorq_u8(vshlq_n_u8::<1>(x), vandq_u8(overflowing, vdupq_n_u8(POLYNOMIAL)))
}

/// # Safety
/// `at + WIDTH * 16` bytes must be there.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn load<const WIDTH: usize>(bytes: &[u8], at: usize) -> Block<WIDTH> {
    debug_assert!(at + WIDTH * VECTOR_BYTES <= bytes.len());
    // SAFETY: the caller guarantees the bytes; the loads need no alignment.
    from_fn(|vector| unsafe { vld1q_u8(bytes.as_ptr().add(at + vector * VECTOR_BYTES)) })
}

/// # Safety
/// `at + WIDTH * 16` bytes must be there.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn store<const WIDTH: usize>(bytes: &mut [u8], at: usize, block: &Block<WIDTH>) {
    debug_assert!(at + WIDTH * VECTOR_BYTES <= bytes.len());
    for (vector, &value) in block.iter().enumerate() {
        // SAFETY: the caller guarantees the bytes; the stores need no alignment.
        unsafe { vst1q_u8(bytes.as_mut_ptr().add(at + vector * VECTOR_BYTES), value) }
    }
}

/// # Safety
/// The processor must support this kernel; all slices must have one length; parity is one to three.
unsafe fn encode(data: &[&[u8]], parity: &mut [&mut [u8]], _: Stores) {
    // SAFETY: what the caller guarantees.
    unsafe {
        match parity {
            [p] => encode_rows::<1, 8>(data, [p]),
            [p, q] => encode_rows::<2, 4>(data, [p, q]),
            [p, q, r] => encode_rows::<3, 4>(data, [p, q, r]),
            _ => unreachable!("one to three parity units, as Kernel::encode has checked"),
        }
    }
}

/// # Safety
/// As `encode`.
#[target_feature(enable = "neon")]
unsafe fn encode_rows<const ROWS: usize, const WIDTH: usize>(data: &[&[u8]], mut parity: [&mut [u8]; ROWS]) {
    let block_bytes = WIDTH * VECTOR_BYTES;
    let length = parity[0].len();
    let whole = length - length % block_bytes;
    for at in (0..whole).step_by(block_bytes) {
        // SAFETY: a whole block is left.
        unsafe { encode_block::<ROWS, WIDTH>(data, &mut parity, at) }
    }
    let whole_vectors = length - length % VECTOR_BYTES;
    for at in (whole..whole_vectors).step_by(VECTOR_BYTES) {
        // SAFETY: a whole vector is left.
        unsafe { encode_block::<ROWS, 1>(data, &mut parity, at) }
    }
    portable::encode_from(whole_vectors, data, &mut parity);
}

/// # Safety
/// As `load`, for every unit of data and parity.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn encode_block<const ROWS: usize, const WIDTH: usize>(
    data: &[&[u8]],
    parity: &mut [&mut [u8]; ROWS],
    at: usize,
) {
    let mut sums = [[vdupq_n_u8(0); WIDTH]; ROWS];
    for unit in data.iter().rev() {
        // SAFETY: what the caller guarantees.
        let unit = unsafe { load::<WIDTH>(unit, at) };
        for (row, sum) in sums.iter_mut().enumerate() {
            for (value, unit_value) in sum.iter_mut().zip(unit) {
                for _ in 0..row {
                    *value = double(*value);
                }
                *value = veorq_u8(*value, unit_value);
            }
        }
    }
    for (unit, sum) in parity.iter_mut().zip(&sums) {
        // SAFETY: what the caller guarantees.
        unsafe { store::<WIDTH>(unit, at, sum) }
    }
}

/// # Safety
/// The processor must support this kernel; all slices must have one length; outputs are one to
/// three; there is one coefficient for each source and output.
unsafe fn sum_products(coefficients: &[u8], sources: &[&[u8]], outputs: &mut [&mut [u8]], accumulate: bool) {
    // SAFETY: what the caller guarantees.
    unsafe {
        match outputs {
            [a] => sum_products_rows::<1, 4>(coefficients, sources, [a], accumulate),
            [a, b] => sum_products_rows::<2, 4>(coefficients, sources, [a, b], accumulate),
            [a, b, c] => sum_products_rows::<3, 4>(coefficients, sources, [a, b, c], accumulate),
            _ => unreachable!("one to three outputs, as Kernel has checked"),
        }
    }
}

/// # Safety
/// As `sum_products`.
#[target_feature(enable = "neon")]
unsafe fn sum_products_rows<const ROWS: usize, const WIDTH: usize>(
    coefficients: &[u8],
    sources: &[&[u8]],
    mut outputs: [&mut [u8]; ROWS],
    accumulate: bool,
) {
    let block_bytes = WIDTH * VECTOR_BYTES;
    let length = outputs[0].len();
    let whole = length - length % block_bytes;
    for at in (0..whole).step_by(block_bytes) {
        // SAFETY: a whole block is left.
        unsafe { sum_products_block::<ROWS, WIDTH>(coefficients, sources, &mut outputs, accumulate, at) }
    }
    let whole_vectors = length - length % VECTOR_BYTES;
    for at in (whole..whole_vectors).step_by(VECTOR_BYTES) {
        // SAFETY: a whole vector is left.
        unsafe { sum_products_block::<ROWS, 1>(coefficients, sources, &mut outputs, accumulate, at) }
    }
    portable::sum_products_from(whole_vectors, coefficients, sources, &mut outputs, accumulate);
}

/// # Safety
/// As `load`, for all sources and outputs.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn sum_products_block<const ROWS: usize, const WIDTH: usize>(
    coefficients: &[u8],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]; ROWS],
    accumulate: bool,
    at: usize,
) {
    let mut sums = [[vdupq_n_u8(0); WIDTH]; ROWS];
    if accumulate {
        for (sum, output) in sums.iter_mut().zip(outputs.iter()) {
            // SAFETY: what the caller guarantees.
            *sum = unsafe { load::<WIDTH>(output, at) };
        }
    }
    for (source, factors) in sources.iter().zip(coefficients.as_chunks::<ROWS>().0) {
        // SAFETY: what the caller guarantees.
        let source = unsafe { load::<WIDTH>(source, at) };
        let lows: Block<WIDTH> = from_fn(|vector| vandq_u8(source[vector], vdupq_n_u8(0x0f)));
        let highs: Block<WIDTH> = from_fn(|vector| vshrq_n_u8::<4>(source[vector]));
        for (sum, &factor) in sums.iter_mut().zip(factors) {
            // SAFETY: each table has 16 bytes.
            let [low_table, high_table] =
                HALF_PRODUCTS[factor as usize].each_ref().map(|table| unsafe { vld1q_u8(table.as_ptr()) });
            for vector in 0..WIDTH {
                let low_product = vqtbl1q_u8(low_table, lows[vector]);
                let high_product = vqtbl1q_u8(high_table, highs[vector]);
                sum[vector] = veorq_u8(sum[vector], veorq_u8(low_product, high_product));
            }
        }
    }
    for (sum, output) in sums.iter().zip(outputs) {
        // SAFETY: what the caller guarantees.
        unsafe { store::<WIDTH>(output, at, sum) }
    }
}

/// # Safety
/// The processor must support this kernel; the slices must have one length.
#[target_feature(enable = "neon")]
unsafe fn xor_into(destination: &mut [u8], source: &[u8]) {
    const WIDTH: usize = 4;
    let length = destination.len();
    let whole = length - length % (WIDTH * VECTOR_BYTES);
    for at in (0..whole).step_by(WIDTH * VECTOR_BYTES) {
        // SAFETY: a whole block is left.
        unsafe {
            let (old, change) = (load::<WIDTH>(destination, at), load::<WIDTH>(source, at));
            let new: Block<WIDTH> = from_fn(|vector| veorq_u8(old[vector], change[vector]));
            store::<WIDTH>(destination, at, &new);
        }
    }
    portable::xor_into_from(whole, destination, source);
}
