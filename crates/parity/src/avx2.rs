//! The kernel for x86-64 with AVX2: 32 bytes at a time.
//!
//! Encoding is Horner's scheme with additions for doubling. Products with any constant come from
//! two tables of 16 bytes, one for each half of a byte, looked up by shuffles. Ends shorter than a
//! vector are left to the portable kernel.

use core::arch::x86_64::*;
use core::array::from_fn;

use crate::field::{HALF_PRODUCTS, POLYNOMIAL};
use crate::kernel::{Functions, Stores};
use crate::portable;

pub(crate) const FUNCTIONS: Functions = Functions { encode, sum_products, xor_into };

/// True if this processor supports the kernel's instructions.
pub(crate) fn is_supported() -> bool {
    is_x86_feature_detected!("avx2")
}

const VECTOR_BYTES: usize = 32;
/// Prefetch distance in bytes when streaming, as in the AVX-512 kernel.
const PREFETCH_BYTES: usize = 512;

/// Some vectors side by side of one row or unit.
type Block<const WIDTH: usize> = [__m256i; WIDTH];

#[inline]
#[target_feature(enable = "avx2")]
fn double(x: __m256i) -> __m256i {
    let overflowing = _mm256_cmpgt_epi8(_mm256_setzero_si256(), x);
    let reduction = _mm256_and_si256(overflowing, _mm256_set1_epi8(POLYNOMIAL as i8));
    _mm256_xor_si256(_mm256_add_epi8(x, x), reduction)
}

/// # Safety
/// `at + WIDTH * 32` bytes must be there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load<const WIDTH: usize>(bytes: &[u8], at: usize) -> Block<WIDTH> {
    debug_assert!(at + WIDTH * VECTOR_BYTES <= bytes.len());
    // SAFETY: the caller guarantees the bytes; the loads need no alignment.
    from_fn(|vector| unsafe { _mm256_loadu_si256(bytes.as_ptr().add(at + vector * VECTOR_BYTES).cast()) })
}

/// # Safety
/// `at + WIDTH * 32` bytes must be there; with `STREAMING`, the address must be a multiple of 32.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<const WIDTH: usize, const STREAMING: bool>(
    bytes: &mut [u8],
    at: usize,
    block: &Block<WIDTH>,
) {
    debug_assert!(at + WIDTH * VECTOR_BYTES <= bytes.len());
    for (vector, &value) in block.iter().enumerate() {
        // SAFETY: the caller guarantees the bytes, and the alignment of streaming stores.
        unsafe {
            let address = bytes.as_mut_ptr().add(at + vector * VECTOR_BYTES).cast();
            if STREAMING {
                _mm256_stream_si256(address, value);
            } else {
                _mm256_storeu_si256(address, value);
            }
        }
    }
}

/// # Safety
/// The processor must support this kernel; all slices must have one length; parity is one to three.
unsafe fn encode(data: &[&[u8]], parity: &mut [&mut [u8]], stores: Stores) {
    let aligned = parity.iter().all(|unit| unit.as_ptr().addr().is_multiple_of(VECTOR_BYTES));
    let streaming = aligned && stores == Stores::Streaming;
    // The more rows, the fewer vectors of each fit into the registers; always whole cache lines.
    // SAFETY: what the caller guarantees; streaming only into aligned slices.
    unsafe {
        match (parity, streaming) {
            ([p], false) => encode_rows::<1, 8, false>(data, [p]),
            ([p], true) => encode_rows::<1, 8, true>(data, [p]),
            ([p, q], false) => encode_rows::<2, 4, false>(data, [p, q]),
            ([p, q], true) => encode_rows::<2, 4, true>(data, [p, q]),
            ([p, q, r], false) => encode_rows::<3, 2, false>(data, [p, q, r]),
            ([p, q, r], true) => encode_rows::<3, 2, true>(data, [p, q, r]),
            _ => unreachable!("one to three parity units, as Kernel::encode has checked"),
        }
    }
}

/// # Safety
/// As `encode`; with `STREAMING`, all of parity must start at a multiple of 32.
#[target_feature(enable = "avx2")]
unsafe fn encode_rows<const ROWS: usize, const WIDTH: usize, const STREAMING: bool>(
    data: &[&[u8]],
    mut parity: [&mut [u8]; ROWS],
) {
    let block_bytes = WIDTH * VECTOR_BYTES;
    let length = parity[0].len();
    let whole = length - length % block_bytes;
    for at in (0..whole).step_by(block_bytes) {
        // SAFETY: a whole block is left; `at` is a multiple of 32, so alignment is that of the
        // slices.
        unsafe {
            let sums = horner::<ROWS, WIDTH, STREAMING>(data, at);
            for (unit, sum) in parity.iter_mut().zip(&sums) {
                store::<WIDTH, STREAMING>(unit, at, sum);
            }
        }
    }
    let whole_vectors = length - length % VECTOR_BYTES;
    for at in (whole..whole_vectors).step_by(VECTOR_BYTES) {
        // SAFETY: a whole vector is left.
        unsafe {
            let sums = horner::<ROWS, 1, false>(data, at);
            for (unit, sum) in parity.iter_mut().zip(&sums) {
                store::<1, false>(unit, at, sum);
            }
        }
    }
    portable::encode_from(whole_vectors, data, &mut parity);
    if STREAMING {
        // Streaming stores are unordered; the next reader of parity must see them.
        _mm_sfence();
    }
}

/// The rows' sums over all data at `at`, from the last unit.
///
/// # Safety
/// As `load`, for every unit of data.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn horner<const ROWS: usize, const WIDTH: usize, const PREFETCH: bool>(
    data: &[&[u8]],
    at: usize,
) -> [Block<WIDTH>; ROWS] {
    let mut sums = [[_mm256_setzero_si256(); WIDTH]; ROWS];
    for unit in data.iter().rev() {
        if PREFETCH {
            for vector in (0..WIDTH).step_by(2) {
                let address = unit.as_ptr().wrapping_add(at + PREFETCH_BYTES + vector * VECTOR_BYTES);
                _mm_prefetch::<_MM_HINT_T0>(address.cast());
            }
        }
        // SAFETY: what the caller guarantees.
        let unit = unsafe { load::<WIDTH>(unit, at) };
        for (row, sum) in sums.iter_mut().enumerate() {
            for (value, unit_value) in sum.iter_mut().zip(unit) {
                for _ in 0..row {
                    *value = double(*value);
                }
                *value = _mm256_xor_si256(*value, unit_value);
            }
        }
    }
    sums
}

/// # Safety
/// The processor must support this kernel; all slices must have one length; outputs are one to
/// three; there is one coefficient for each source and output.
unsafe fn sum_products(coefficients: &[u8], sources: &[&[u8]], outputs: &mut [&mut [u8]], accumulate: bool) {
    // SAFETY: what the caller guarantees.
    unsafe {
        match outputs {
            [a] => sum_products_rows::<1, 4>(coefficients, sources, [a], accumulate),
            [a, b] => sum_products_rows::<2, 2>(coefficients, sources, [a, b], accumulate),
            [a, b, c] => sum_products_rows::<3, 2>(coefficients, sources, [a, b, c], accumulate),
            _ => unreachable!("one to three outputs, as Kernel has checked"),
        }
    }
}

/// # Safety
/// As `sum_products`.
#[target_feature(enable = "avx2")]
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
#[target_feature(enable = "avx2")]
unsafe fn sum_products_block<const ROWS: usize, const WIDTH: usize>(
    coefficients: &[u8],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]; ROWS],
    accumulate: bool,
    at: usize,
) {
    let low_half = _mm256_set1_epi8(0x0f);
    let mut sums = [[_mm256_setzero_si256(); WIDTH]; ROWS];
    if accumulate {
        for (sum, output) in sums.iter_mut().zip(outputs.iter()) {
            // SAFETY: what the caller guarantees.
            *sum = unsafe { load::<WIDTH>(output, at) };
        }
    }
    for (source, factors) in sources.iter().zip(coefficients.as_chunks::<ROWS>().0) {
        // SAFETY: what the caller guarantees.
        let source = unsafe { load::<WIDTH>(source, at) };
        let lows: Block<WIDTH> = from_fn(|vector| _mm256_and_si256(source[vector], low_half));
        let highs: Block<WIDTH> =
            from_fn(|vector| _mm256_and_si256(_mm256_srli_epi64::<4>(source[vector]), low_half));
        for (sum, &factor) in sums.iter_mut().zip(factors) {
            let [low_table, high_table] = HALF_PRODUCTS[factor as usize].each_ref().map(|table| {
                // SAFETY: a table has 16 bytes; the load needs no alignment.
                _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
            });
            for vector in 0..WIDTH {
                let low_product = _mm256_shuffle_epi8(low_table, lows[vector]);
                let high_product = _mm256_shuffle_epi8(high_table, highs[vector]);
                let product = _mm256_xor_si256(low_product, high_product);
                sum[vector] = _mm256_xor_si256(sum[vector], product);
            }
        }
    }
    for (sum, output) in sums.iter().zip(outputs) {
        // SAFETY: what the caller guarantees.
        unsafe { store::<WIDTH, false>(output, at, sum) }
    }
}

/// # Safety
/// The processor must support this kernel; the slices must have one length.
#[target_feature(enable = "avx2")]
unsafe fn xor_into(destination: &mut [u8], source: &[u8]) {
    const WIDTH: usize = 4;
    let length = destination.len();
    let whole = length - length % (WIDTH * VECTOR_BYTES);
    for at in (0..whole).step_by(WIDTH * VECTOR_BYTES) {
        // SAFETY: a whole block is left.
        unsafe {
            let (old, change) = (load::<WIDTH>(destination, at), load::<WIDTH>(source, at));
            let new: Block<WIDTH> = from_fn(|vector| _mm256_xor_si256(old[vector], change[vector]));
            store::<WIDTH, false>(destination, at, &new);
        }
    }
    portable::xor_into_from(whole, destination, source);
}
