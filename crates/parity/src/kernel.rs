//! A kernel: a name and three functions. The preconditions of every kernel (equal lengths, one to
//! three parity units) are checked here once. A violation is a bug and panics.

use crate::field::{MAXIMUM_DATA_UNITS, coefficient};

/// Maximum parity units of a stripe: P, Q and R.
pub const MAXIMUM_PARITY: usize = 3;

/// Total size of data and parity in one call from which parity is streamed past the cache by
/// default. Measured on Sapphire Rapids with 2 MiB of second-level cache, 8 data units and one or
/// two parity units, used repeatedly: up to 1.3 MiB storing through the cache is 1.4 times as fast
/// or more, from 2.3 MiB on streaming is as fast or faster, by up to 1.3 times.
const STREAMING_FROM_BYTES: usize = 2 << 20;

/// Store instructions used for parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stores {
    /// Through the cache: parity will be read again soon.
    Cached,
    /// Past the cache, where the kernel can.
    Streaming,
}

/// One implementation of the arithmetic.
#[derive(Debug)]
pub struct Kernel {
    name: &'static str,
    functions: Functions,
}

type Encode = unsafe fn(data: &[&[u8]], parity: &mut [&mut [u8]], Stores);
type SumProducts =
    unsafe fn(coefficients: &[u8], sources: &[&[u8]], outputs: &mut [&mut [u8]], accumulate: bool);
type XorInto = unsafe fn(destination: &mut [u8], source: &[u8]);

/// Functions of a kernel. Each may be called only on processors that the kernel supports, with
/// slices as checked by the methods of [`Kernel`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    pub encode: Encode,
    pub sum_products: SumProducts,
    pub xor_into: XorInto,
}

impl Kernel {
    /// A kernel of these functions, for processors that have what the functions need.
    pub(crate) const fn new(name: &'static str, functions: Functions) -> Self {
        Self { name, functions }
    }

    /// Name of the kernel in `STRIPEWISE_PARITY_KERNEL`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// [`encode`](crate::encode) by this kernel.
    ///
    /// # Panics
    /// As [`encode`](crate::encode).
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let length_bytes = data.first().map_or(0, |unit| unit.len());
        let total_bytes = (data.len() + parity.len()).saturating_mul(length_bytes);
        let stores = if total_bytes < STREAMING_FROM_BYTES { Stores::Cached } else { Stores::Streaming };
        self.encode_by(data, parity, stores);
    }

    /// [`encode_streaming`](crate::encode_streaming) by this kernel.
    ///
    /// # Panics
    /// As [`encode`](crate::encode).
    pub fn encode_streaming(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        self.encode_by(data, parity, Stores::Streaming);
    }

    fn encode_by(&self, data: &[&[u8]], parity: &mut [&mut [u8]], stores: Stores) {
        assert!(
            (1..=MAXIMUM_DATA_UNITS).contains(&data.len()),
            "{} data units, not 1 to {MAXIMUM_DATA_UNITS}",
            data.len()
        );
        assert_lengths(data, parity);
        // SAFETY: `kernels` lists only what the processor supports; the lengths were checked.
        unsafe { (self.functions.encode)(data, parity, stores) }
    }

    /// [`xor_into`](crate::xor_into) by this kernel.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn xor_into(&self, destination: &mut [u8], source: &[u8]) {
        assert_eq!(destination.len(), source.len(), "destination and source differ in length");
        // SAFETY: `kernels` lists only what the processor supports; the lengths were checked.
        unsafe { (self.functions.xor_into)(destination, source) }
    }

    /// [`update`](crate::update) by this kernel.
    ///
    /// # Panics
    /// As [`update`](crate::update).
    pub fn update(&self, unit: usize, change: &[u8], which: &[usize], parity: &mut [&mut [u8]]) {
        assert!(unit < MAXIMUM_DATA_UNITS, "data unit {unit}, not below {MAXIMUM_DATA_UNITS}");
        assert_eq!(which.len(), parity.len(), "as many parity slices as rows");
        assert!(which.iter().all(|&row| row < MAXIMUM_PARITY), "parity rows are 0, 1, 2 for P, Q, R");
        if which.is_empty() {
            return;
        }
        if which == [0] {
            return self.xor_into(parity[0], change);
        }
        assert_lengths(&[change], parity);
        let mut coefficients = [0; MAXIMUM_PARITY];
        for (entry, &row) in coefficients.iter_mut().zip(which) {
            *entry = coefficient(row, unit);
        }
        // SAFETY: `kernels` lists only what the processor supports; the lengths were checked, and
        // there are as many coefficients as outputs.
        unsafe { (self.functions.sum_products)(&coefficients[..which.len()], &[change], parity, true) }
    }

    /// `outputs[o] = Σ coefficients[s * outputs.len() + o] · sources[s]`.
    pub(crate) fn sum_products(&self, coefficients: &[u8], sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_lengths(sources, outputs);
        assert_eq!(
            coefficients.len(),
            sources.len() * outputs.len(),
            "one coefficient per source and output"
        );
        // SAFETY: `kernels` lists only what the processor supports; lengths and coefficients were
        // checked.
        unsafe { (self.functions.sum_products)(coefficients, sources, outputs, false) }
    }
}

fn assert_lengths(sources: &[&[u8]], outputs: &[&mut [u8]]) {
    assert!(
        (1..=MAXIMUM_PARITY).contains(&outputs.len()),
        "{} parity or wanted units at once, not 1 to {MAXIMUM_PARITY}",
        outputs.len()
    );
    let length = outputs[0].len();
    assert!(
        sources.iter().all(|unit| unit.len() == length) && outputs.iter().all(|unit| unit.len() == length),
        "units of one stripe differ in length"
    );
}
