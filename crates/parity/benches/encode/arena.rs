//! Memory holding many stripes, page-aligned as the engine's buffers are, and touched, so that no
//! page is the shared zero page.

use std::alloc::{Layout, alloc, dealloc};

pub const STRIP_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// Stripes one after the other, each its data and then its parity units.
pub struct Arena {
    memory: *mut u8,
    layout: Layout,
    units: usize,
    stripes: usize,
}

impl Arena {
    /// Allocates stripes of this number of units each, filled with noise.
    pub fn new(stripes: usize, units: usize) -> Arena {
        let layout =
            Layout::from_size_align(stripes * units * STRIP_BYTES, PAGE_BYTES).expect("far from overflow");
        // SAFETY: not of size zero.
        let memory = unsafe { alloc(layout) };
        assert!(!memory.is_null(), "no memory for {} bytes of stripes", layout.size());
        for at in (0..layout.size()).step_by(8) {
            let noise = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
            // SAFETY: within the allocation, aligned to 8.
            unsafe { memory.add(at).cast::<u64>().write(noise) }
        }
        Arena { memory, layout, units, stripes }
    }

    pub fn stripes(&self) -> usize {
        self.stripes
    }

    /// One unit of one stripe.
    pub fn unit(&self, stripe: usize, unit: usize) -> &[u8] {
        // SAFETY: within the allocation (checked in `address`), initialised; exclusive borrows go
        // through `split`.
        unsafe { std::slice::from_raw_parts(self.address(stripe, unit), STRIP_BYTES) }
    }

    /// The data of a stripe, and the parity behind it to write to.
    pub fn split<const K: usize>(&mut self, stripe: usize) -> ([&[u8]; K], Vec<&mut [u8]>) {
        let data = std::array::from_fn(|unit| {
            // SAFETY: as in `unit`; data and parity are different units, and `self` is borrowed
            // exclusively.
            unsafe { std::slice::from_raw_parts(self.address(stripe, unit).cast_const(), STRIP_BYTES) }
        });
        let parity = (K..self.units)
            // SAFETY: as above, each parity unit once.
            .map(|unit| unsafe { std::slice::from_raw_parts_mut(self.address(stripe, unit), STRIP_BYTES) })
            .collect();
        (data, parity)
    }

    /// Copies the first `units` units of one stripe over those of another.
    pub fn copy(&mut self, from: usize, to: usize, units: usize) {
        assert!(from != to && units <= self.units);
        // SAFETY: different stripes do not overlap, both within the allocation.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::hint::black_box(self.address(from, 0)),
                std::hint::black_box(self.address(to, 0)),
                units * STRIP_BYTES,
            )
        }
    }

    fn address(&self, stripe: usize, unit: usize) -> *mut u8 {
        assert!(stripe < self.stripes && unit < self.units);
        // SAFETY: within the allocation, as just checked.
        unsafe { self.memory.add((stripe * self.units + unit) * STRIP_BYTES) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.memory, self.layout) }
    }
}
