//! Kernels that this processor supports, and the choice among them.
//!
//! The best kernel the processor supports is chosen at first use; the environment variable
//! `STRIPEWISE_PARITY_KERNEL` overrules it. A name it does not know, or a kernel that cannot run
//! here, is reported on standard error and the best one used instead.

use std::sync::OnceLock;

use crate::kernel::{Functions, Kernel};
use crate::portable;

/// The environment variable that forces a kernel by name.
pub const KERNEL_VARIABLE: &str = "STRIPEWISE_PARITY_KERNEL";

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
        let mut kernels = vec![Kernel::new("portable", PORTABLE)];
        #[cfg(target_arch = "x86_64")]
        if crate::avx2::is_supported() {
            kernels.push(Kernel::new("avx2", crate::avx2::FUNCTIONS));
        }
        #[cfg(target_arch = "x86_64")]
        if crate::gfni::is_supported() {
            kernels.push(Kernel::new("gfni", crate::gfni::FUNCTIONS));
        }
        #[cfg(target_arch = "aarch64")]
        if crate::neon::is_supported() {
            kernels.push(Kernel::new("neon", crate::neon::FUNCTIONS));
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

/// Returns the kernel of that name, else the best one, with a warning if another was requested.
fn choose<'a>(available: &'a [Kernel], forced: Option<&str>) -> (&'a Kernel, Option<String>) {
    let best = available.last().expect("the portable kernel is always there");
    let Some(name) = forced.filter(|name| !name.is_empty()) else {
        return (best, None);
    };
    if let Some(kernel) = available.iter().find(|kernel| kernel.name() == name) {
        return (kernel, None);
    }
    let names: Vec<&str> = available.iter().map(|kernel| kernel.name()).collect();
    let complaint = format!(
        "warning: {KERNEL_VARIABLE}={name} is not a parity kernel of this processor, using {}; hint: it has {}",
        best.name(),
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
    fn the_best_kernel_is_used_unless_one_is_forced() {
        let all = [("portable", PORTABLE), ("better", PORTABLE), ("best", PORTABLE)]
            .map(|(name, functions)| Kernel::new(name, functions));
        for (forced, expected) in
            [(None, "best"), (Some(""), "best"), (Some("portable"), "portable"), (Some("better"), "better")]
        {
            let (kernel, complaint) = choose(&all, forced);
            assert_eq!((kernel.name(), complaint), (expected, None), "forced: {forced:?}");
        }
        let (kernel, complaint) = choose(&all, Some("sse9"));
        assert_eq!(kernel.name(), "best");
        assert_eq!(
            complaint.as_deref(),
            Some(
                "warning: STRIPEWISE_PARITY_KERNEL=sse9 is not a parity kernel of this processor, using best; \
                 hint: it has portable, better, best"
            )
        );
    }
}
