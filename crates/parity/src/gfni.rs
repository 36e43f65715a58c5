//! The kernel for x86-64 with AVX-512 and GFNI: 64 bytes at a time.
//!
//! GFNI's own multiplication is in another field (0x11b), but its affine form multiplies every byte
//! by any 8x8 bit matrix, and multiplication by a constant in our field is such a matrix.
//!
//! Encoding takes two data units per step of Horner's scheme: `q = 4q + (2·high + low)`. The two
//! additions are one ternary-logic instruction, so a pair of units costs three instructions per row
//! instead of four, and P half of one per unit. The last, incomplete vector is loaded and stored
//! under a mask.

use core::arch::x86_64::*;
use core::array::from_fn;

use crate::field::{multiply, power_of_two};
use crate::kernel::{Functions, Stores};

pub(crate) const FUNCTIONS: Functions = Functions { encode, sum_products, xor_into };

/// True if this processor supports the kernel's instructions.
pub(crate) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("gfni")
}

const VECTOR_BYTES: usize = 64;
/// Vectors of each row that are summed at the same time, to hide the latency of the instructions.
const VECTORS: usize = 4;
const BLOCK_BYTES: usize = VECTORS * VECTOR_BYTES;
/// Prefetch distance ahead of the loads of one unit, where the data is not expected in the cache,
/// that is, when streaming. Measured on Sapphire Rapids, 8 units of 64 KiB out of cache, as ratio
/// to no prefetching: 1.01 for P, 1.03 for P+Q, 1.07 for P+Q+R; 256 and 1024 nearly the same, 2048
/// slower than none. In cache it costs 5 to 15 %.
const PREFETCH_BYTES: usize = 512;

/// For every constant its multiplication as a bit matrix, in the order the instruction wants: byte
/// 7 - i holds the bits of the input that go into bit i of the output.
static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut input_bit = 0;
        while input_bit < 8 {
            let product = multiply(constant as u8, 1 << input_bit);
            let mut output_bit = 0;
            while output_bit < 8 {
                if product >> output_bit & 1 == 1 {
                    matrices[constant] |= 1 << (8 * (7 - output_bit) + input_bit);
                }
                output_bit += 1;
            }
            input_bit += 1;
        }
        constant += 1;
    }
    matrices
};

/// Some vectors side by side of one row or unit.
type Block<const WIDTH: usize> = [__m512i; WIDTH];

/// The matrix of multiplication by a constant, in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn matrix(constant: u8) -> __m512i {
    _mm512_set1_epi64(MATRICES[constant as usize] as i64)
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn times(x: __m512i, matrix: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    const TRUTH_TABLE: i32 = 0x96;
    _mm512_ternarylogic_epi64::<TRUTH_TABLE>(a, b, c)
}

/// Loads the vectors at `at`; with `WIDTH` 1, only the bytes of the mask, the others being zero.
///
/// # Safety
/// `at + WIDTH * 64` bytes must be there, or, with `WIDTH` 1, those of the mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn load<const WIDTH: usize>(bytes: &[u8], at: usize, mask: __mmask64) -> Block<WIDTH> {
    from_fn(|vector| {
        // SAFETY: the caller guarantees the bytes that are read; the loads need no alignment.
        unsafe {
            let address = bytes.as_ptr().add(at + vector * VECTOR_BYTES);
            if WIDTH == 1 {
                _mm512_maskz_loadu_epi8(mask, address.cast())
            } else {
                _mm512_loadu_si512(address.cast())
            }
        }
    })
}

/// Stores vectors at `at`; with `WIDTH` 1, only the bytes of the mask.
///
/// # Safety
/// As `load`; with `STREAMING`, the address must be a multiple of 64 and `WIDTH` not 1.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn store<const WIDTH: usize, const STREAMING: bool>(
    bytes: &mut [u8],
    at: usize,
    mask: __mmask64,
    block: &Block<WIDTH>,
) {
    for (vector, &value) in block.iter().enumerate() {
        // SAFETY: the caller guarantees the bytes that are written, and the alignment of streaming
        // stores.
        unsafe {
            let address = bytes.as_mut_ptr().add(at + vector * VECTOR_BYTES);
            if WIDTH == 1 {
                _mm512_mask_storeu_epi8(address.cast(), mask, value);
            } else if STREAMING {
                _mm512_stream_si512(address.cast(), value);
            } else {
                _mm512_storeu_si512(address.cast(), value);
            }
        }
    }
}

/// Asks for the lines that will be loaded some blocks later.
#[inline]
fn prefetch(unit: &[u8], at: usize) {
    for vector in 0..VECTORS {
        let address = unit.as_ptr().wrapping_add(at + PREFETCH_BYTES + vector * VECTOR_BYTES);
        // SAFETY: a prefetch may be given any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}

/// The mask of what is left at `at`, at most a vector.
fn mask_at(at: usize, length: usize) -> __mmask64 {
    u64::MAX >> (VECTOR_BYTES - (length - at).min(VECTOR_BYTES))
}

/// # Safety
/// The processor must support this kernel; all slices must have one length; parity is one to three.
unsafe fn encode(data: &[&[u8]], parity: &mut [&mut [u8]], stores: Stores) {
    let aligned = parity.iter().all(|unit| unit.as_ptr().addr().is_multiple_of(VECTOR_BYTES));
    let streaming = aligned && stores == Stores::Streaming;
    // SAFETY: what the caller guarantees; streaming only into aligned slices.
    unsafe {
        match (parity, streaming) {
            ([p], false) => encode_rows::<1, false>(data, [p]),
            ([p], true) => encode_rows::<1, true>(data, [p]),
            ([p, q], false) => encode_rows::<2, false>(data, [p, q]),
            ([p, q], true) => encode_rows::<2, true>(data, [p, q]),
            ([p, q, r], false) => encode_rows::<3, false>(data, [p, q, r]),
            ([p, q, r], true) => encode_rows::<3, true>(data, [p, q, r]),
            _ => unreachable!("one to three parity units, as Kernel::encode has checked"),
        }
    }
}

/// # Safety
/// As `encode`; with `STREAMING`, all of parity must start at a multiple of 64.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn encode_rows<const ROWS: usize, const STREAMING: bool>(
    data: &[&[u8]],
    mut parity: [&mut [u8]; ROWS],
) {
    let length = parity[0].len();
    let whole = length - length % BLOCK_BYTES;
    for at in (0..whole).step_by(BLOCK_BYTES) {
        // SAFETY: a whole block is left; `at` is a multiple of 64, so alignment is that of the
        // slices.
        unsafe {
            let sums = horner::<ROWS, VECTORS, STREAMING>(data, at, 0);
            for (unit, sum) in parity.iter_mut().zip(&sums) {
                store::<VECTORS, STREAMING>(unit, at, 0, sum);
            }
        }
    }
    for at in (whole..length).step_by(VECTOR_BYTES) {
        let mask = mask_at(at, length);
        // SAFETY: the mask covers no more than what is left.
        unsafe {
            let sums = horner::<ROWS, 1, false>(data, at, mask);
            for (unit, sum) in parity.iter_mut().zip(&sums) {
                store::<1, false>(unit, at, mask, sum);
            }
        }
    }
    if STREAMING {
        // Streaming stores are unordered; the next reader of parity must see them.
        _mm_sfence();
    }
}

/// The rows' sums over all data at `at`, two units per step, from the last.
///
/// # Safety
/// As `load`, for every unit of data.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn horner<const ROWS: usize, const WIDTH: usize, const PREFETCH: bool>(
    data: &[&[u8]],
    at: usize,
    mask: __mmask64,
) -> [Block<WIDTH>; ROWS] {
    let generators: [__m512i; ROWS] = from_fn(|row| matrix(power_of_two(row)));
    let squares: [__m512i; ROWS] = from_fn(|row| matrix(power_of_two(2 * row)));
    let (pairs, odd) = data.as_chunks::<2>();
    let mut sums = match odd {
        // With an odd number of units, the last is where the scheme starts.
        // SAFETY: what the caller guarantees.
        [last] => [unsafe { load::<WIDTH>(last, at, mask) }; ROWS],
        _ => [[_mm512_setzero_si512(); WIDTH]; ROWS],
    };
    for [low, high] in pairs.iter().rev() {
        if PREFETCH {
            prefetch(low, at);
            prefetch(high, at);
        }
        // SAFETY: what the caller guarantees.
        let (low, high) = unsafe { (load::<WIDTH>(low, at, mask), load::<WIDTH>(high, at, mask)) };
        for (row, sum) in sums.iter_mut().enumerate() {
            for vector in 0..WIDTH {
                sum[vector] = match row {
                    0 => xor3(sum[vector], high[vector], low[vector]),
                    _ => {
                        let shifted = times(sum[vector], squares[row]);
                        xor3(shifted, times(high[vector], generators[row]), low[vector])
                    }
                };
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
            [a] => sum_products_rows::<1>(coefficients.as_chunks().0, sources, [a], accumulate),
            [a, b] => sum_products_rows::<2>(coefficients.as_chunks().0, sources, [a, b], accumulate),
            [a, b, c] => sum_products_rows::<3>(coefficients.as_chunks().0, sources, [a, b, c], accumulate),
            _ => unreachable!("one to three outputs, as Kernel has checked"),
        }
    }
}

/// # Safety
/// As `sum_products`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn sum_products_rows<const ROWS: usize>(
    coefficients: &[[u8; ROWS]],
    sources: &[&[u8]],
    mut outputs: [&mut [u8]; ROWS],
    accumulate: bool,
) {
    let length = outputs[0].len();
    let whole = length - length % BLOCK_BYTES;
    for at in (0..whole).step_by(BLOCK_BYTES) {
        // SAFETY: a whole block is left.
        unsafe { sum_products_block::<ROWS, VECTORS>(coefficients, sources, &mut outputs, accumulate, at, 0) }
    }
    for at in (whole..length).step_by(VECTOR_BYTES) {
        let mask = mask_at(at, length);
        // SAFETY: the mask covers no more than what is left.
        unsafe { sum_products_block::<ROWS, 1>(coefficients, sources, &mut outputs, accumulate, at, mask) }
    }
}

/// # Safety
/// As `load`, for all sources and outputs.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn sum_products_block<const ROWS: usize, const WIDTH: usize>(
    coefficients: &[[u8; ROWS]],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]; ROWS],
    accumulate: bool,
    at: usize,
    mask: __mmask64,
) {
    let mut sums = [[_mm512_setzero_si512(); WIDTH]; ROWS];
    if accumulate {
        for (sum, output) in sums.iter_mut().zip(outputs.iter()) {
            // SAFETY: what the caller guarantees.
            *sum = unsafe { load::<WIDTH>(output, at, mask) };
        }
    }
    let (source_pairs, odd_source) = sources.as_chunks::<2>();
    let (factor_pairs, odd_factors) = coefficients.as_chunks::<2>();
    for ([first, second], [first_factors, second_factors]) in source_pairs.iter().zip(factor_pairs) {
        // SAFETY: what the caller guarantees.
        let (first, second) = unsafe { (load::<WIDTH>(first, at, mask), load::<WIDTH>(second, at, mask)) };
        for row in 0..ROWS {
            let (first_matrix, second_matrix) = (matrix(first_factors[row]), matrix(second_factors[row]));
            for vector in 0..WIDTH {
                let product = times(first[vector], first_matrix);
                sums[row][vector] = xor3(sums[row][vector], product, times(second[vector], second_matrix));
            }
        }
    }
    if let ([source], [factors]) = (odd_source, odd_factors) {
        // SAFETY: what the caller guarantees.
        let source = unsafe { load::<WIDTH>(source, at, mask) };
        for row in 0..ROWS {
            let factor_matrix = matrix(factors[row]);
            for vector in 0..WIDTH {
                sums[row][vector] = _mm512_xor_si512(sums[row][vector], times(source[vector], factor_matrix));
            }
        }
    }
    for (sum, output) in sums.iter().zip(outputs) {
        // SAFETY: what the caller guarantees.
        unsafe { store::<WIDTH, false>(output, at, mask, sum) }
    }
}

/// # Safety
/// The processor must support this kernel; the slices must have one length.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn xor_into(destination: &mut [u8], source: &[u8]) {
    let length = destination.len();
    let whole = length - length % BLOCK_BYTES;
    for at in (0..whole).step_by(BLOCK_BYTES) {
        // SAFETY: a whole block is left.
        unsafe { xor_block::<VECTORS>(destination, source, at, 0) }
    }
    for at in (whole..length).step_by(VECTOR_BYTES) {
        // SAFETY: the mask covers no more than what is left.
        unsafe { xor_block::<1>(destination, source, at, mask_at(at, length)) }
    }
}

/// # Safety
/// As `load`, for both slices.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn xor_block<const WIDTH: usize>(destination: &mut [u8], source: &[u8], at: usize, mask: __mmask64) {
    // SAFETY: what the caller guarantees.
    unsafe {
        let (old, change) = (load::<WIDTH>(destination, at, mask), load::<WIDTH>(source, at, mask));
        let new: Block<WIDTH> = from_fn(|vector| _mm512_xor_si512(old[vector], change[vector]));
        store::<WIDTH, false>(destination, at, mask, &new);
    }
}
