//! Parity arithmetic over GF(2^8): XOR (P), P+Q and P+Q+R. Pure computation on slices; no I/O, no
//! state, no allocation per request.
//!
//! # The code
//!
//! A stripe has k data units D_0 .. D_(k-1), and up to three parity units, with byte-wise sums in
//! the field of polynomial 0x11d:
//!
//! ```text
//! P = Σ D_i        Q = Σ 2^i D_i        R = Σ 4^i D_i
//! ```
//!
//! Units are numbered data first: 0..k, then P = k, Q = k + 1, R = k + 2.
//!
//! # Why as many missing units as there are parity units can be rebuilt (up to 255 data units)
//!
//! Write x_i = 2^i. As 2 generates all 255 non-zero elements, x_0 .. x_254 are distinct and not
//! zero, and P, Q, R have the coefficients 1, x_i, x_i². What is lost is solvable if the matrix of
//! the lost data units in the parity rows used for it is not singular:
//!
//! - one data unit lost, any row: 1, x or x², none of them zero;
//! - two, by P and Q: the determinant is x + y, not zero as they are distinct; by Q and R: xy(x +
//!   y); by P and R: x² + y² = (x + y)², as squaring is additive in characteristic 2 and only zero
//!   has a square of zero;
//! - three, by P, Q and R: the Vandermonde determinant (x + y)(x + z)(y + z).
//!
//! Lost parity units are then computed again. So all combinations of up to three members lost are
//! covered, for 2 to 255 members and some more; the tests go through every one of them. (This is
//! peculiar to three rows: 1, x, x², x³ would not have the property.)

#![warn(unreachable_pub)]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod choice;
mod field;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod kernel;
mod locate;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod recovery;

pub use choice::{KERNEL_VARIABLE, kernels};
pub use field::MAXIMUM_DATA_UNITS;
pub use kernel::{Kernel, MAXIMUM_PARITY};
pub use locate::{Verdict, locate};
pub use recovery::Recovery;

/// Computes parity of whole units: P, or P and Q, or P, Q and R, as many as `parity` has slices.
///
/// # Panics
/// If `data` has no or more than [`MAXIMUM_DATA_UNITS`] slices, `parity` not one to three, or if
/// lengths differ.
pub fn encode(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    choice::active().encode(data, parity);
}

/// As [`encode`], for parity that is not read again soon (it goes to a drive): kernels that can
/// write it past the cache, which saves reading the lines first and keeps the cache free.
///
/// # Panics
/// As [`encode`].
pub fn encode_streaming(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    choice::active().encode_streaming(data, parity);
}

/// `destination ^= source`.
///
/// # Panics
/// If the lengths differ.
pub fn xor_into(destination: &mut [u8], source: &[u8]) {
    choice::active().xor_into(destination, source);
}

/// Brings parity up to date with a change of one data unit: `change` is old ^ new, and each
/// `parity[i]` is row `which[i]` (0, 1, 2 = P, Q, R).
///
/// # Panics
/// If `unit` is not below [`MAXIMUM_DATA_UNITS`], a row not below 3, there are more than three
/// rows, not as many slices as rows, or lengths differ.
pub fn update(unit: usize, change: &[u8], which: &[usize], parity: &mut [&mut [u8]]) {
    choice::active().update(unit, change, which, parity);
}

/// The name of the kernel in use: `portable`, `avx2`, `gfni` or `neon`.
pub fn kernel_name() -> &'static str {
    choice::active().name()
}
