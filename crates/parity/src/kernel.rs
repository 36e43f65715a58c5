//! The kernels, and which of them this processor gets.
//!
//! A [`Kernel`] is a name and three functions. The checks that every kernel relies on (equal
//! lengths, one to three parity units) are made here once. The best kernel the processor supports
//! is chosen at first use; the environment variable `STRIPEWISE_PARITY_KERNEL` overrules it. A name
//! it does not know, or a kernel that cannot run here, is reported on standard error and the best
//! one used instead.

use std::sync::OnceLock;

use crate::portable;
use crate::recovery::MAXIMUM_DATA_UNITS;

/// The most parity units of a stripe: P, Q and R.
pub const MAXIMUM_PARITY: usize = 3;

/// The environment variable that forces a kernel by name.
pub const KERNEL_VARIABLE: &str = "STRIPEWISE_PARITY_KERNEL";

/// From so many bytes of data and parity in one call on, parity is written past the cache unasked.
/// Measured on Sapphire Rapids with 2 MiB of second-level cache, 8 data units and one or two parity
/// units, used over and over: up to 1.3 MiB storing through the cache is 1.4 times as fast or more,
/// from 2.3 MiB on streaming is as fast or faster, by up to 1.3 times.
const STREAMING_FROM_BYTES: usize = 2 << 20;

/// How parity is written to memory.
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

/// What a kernel consists of. Each function may be called only on processors that the kernel
/// supports, with slices as checked by the methods of [`Kernel`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    pub encode: Encode,
    pub sum_products: SumProducts,
    pub xor_into: XorInto,
}

impl Kernel {
    /// The name by which `STRIPEWISE_PARITY_KERNEL` asks for it.
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
            *entry = crate::field::coefficient(row, unit);
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

const PORTABLE: Functions = Functions {
    encode: |data, parity, _| portable::encode_from(0, data, parity),
    sum_products: |coefficients, sources, outputs, accumulate| {
        portable::sum_products_from(0, coefficients, sources, outputs, accumulate)
    },
    xor_into: |destination, source| portable::xor_into_from(0, destination, source),
};

/// The kernels this processor can run, from the plainest (always `portable`) to the best.
pub fn kernels() -> &'static [Kernel] {
    static KERNELS: OnceLock<Vec<Kernel>> = OnceLock::new();
    KERNELS.get_or_init(|| {
        #[allow(unused_mut, reason = "some processors have nothing but the portable kernel")]
        let mut kernels = vec![Kernel { name: "portable", functions: PORTABLE }];
        #[cfg(target_arch = "x86_64")]
        if crate::avx2::is_supported() {
            kernels.push(Kernel { name: "avx2", functions: crate::avx2::FUNCTIONS });
        }
        #[cfg(target_arch = "x86_64")]
        if crate::gfni::is_supported() {
            kernels.push(Kernel { name: "gfni", functions: crate::gfni::FUNCTIONS });
        }
        #[cfg(target_arch = "aarch64")]
        if crate::neon::is_supported() {
            kernels.push(Kernel { name: "neon", functions: crate::neon::FUNCTIONS });
        }
        kernels
    })
}

/// The kernel in use.
pub(crate) fn active() -> &'static Kernel {
    static ACTIVE: OnceLock<&'static Kernel> = OnceLock::new();
    ACTIVE.get_or_init(|| {
        let forced = std::env::var_os(KERNEL_VARIABLE);
        let (kernel, complaint) =
            choose(kernels(), forced.as_ref().map(|name| name.to_string_lossy()).as_deref());
        if let Some(complaint) = complaint {
            eprintln!("{complaint}");
        }
        kernel
    })
}

/// The kernel of that name, else the best one, with a complaint if another was asked for.
fn choose<'a>(available: &'a [Kernel], forced: Option<&str>) -> (&'a Kernel, Option<String>) {
    let best = available.last().expect("the portable kernel is always there");
    let Some(name) = forced.filter(|name| !name.is_empty()) else {
        return (best, None);
    };
    if let Some(kernel) = available.iter().find(|kernel| kernel.name == name) {
        return (kernel, None);
    }
    let names: Vec<&str> = available.iter().map(|kernel| kernel.name).collect();
    let complaint = format!(
        "warning: {KERNEL_VARIABLE}={name} is no parity kernel of this processor, using {}; hint: it has {}",
        best.name,
        names.join(", ")
    );
    (best, Some(complaint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_gets_its_kernels() {
        let names: Vec<&str> = kernels().iter().map(Kernel::name).collect();
        #[cfg(target_arch = "x86_64")]
        {
            let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            assert_eq!(names.contains(&"avx2"), is_x86_feature_detected!("avx2"));
            assert_eq!(names.contains(&"gfni"), avx512 && is_x86_feature_detected!("gfni"));
        }
        #[cfg(target_arch = "aarch64")]
        assert_eq!(names, ["portable", "neon"]);
        assert_eq!(names[0], "portable");
    }

    #[test]
    fn the_best_kernel_unless_another_is_forced() {
        let all = [("portable", PORTABLE), ("better", PORTABLE), ("best", PORTABLE)]
            .map(|(name, functions)| Kernel { name, functions });
        for (forced, expected) in
            [(None, "best"), (Some(""), "best"), (Some("portable"), "portable"), (Some("better"), "better")]
        {
            let (kernel, complaint) = choose(&all, forced);
            assert_eq!((kernel.name, complaint), (expected, None), "forced: {forced:?}");
        }
        let (kernel, complaint) = choose(&all, Some("sse9"));
        assert_eq!(kernel.name, "best");
        assert_eq!(
            complaint.as_deref(),
            Some(
                "warning: STRIPEWISE_PARITY_KERNEL=sse9 is no parity kernel of this processor, using best; \
                 hint: it has portable, better, best"
            )
        );
    }
}
