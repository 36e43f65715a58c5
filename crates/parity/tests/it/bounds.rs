//! No kernel reads or writes outside of its slices: they lie against pages that must not be
//! touched, so that a single byte too many, before or behind, ends the test with a fault.
//! (Prefetches may look there; they cannot fault.)
#![cfg(unix)]

use stripewise_parity::{Recovery, kernels};

const PAGE_BYTES: usize = 1 << 16;

/// A page of memory between two forbidden ones. (As large as a page of any system is.)
struct Guarded {
    memory: *mut u8,
}

/// End of a slice that touches the forbidden page.
#[derive(Clone, Copy, Debug)]
enum Against {
    Front,
    Back,
}

impl Guarded {
    fn new() -> Guarded {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping; then the middle of it is made accessible.
        unsafe {
            let memory = libc::mmap(std::ptr::null_mut(), 3 * PAGE_BYTES, libc::PROT_NONE, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED, "no memory for the test");
            let page = memory.add(PAGE_BYTES);
            assert_eq!(libc::mprotect(page, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE), 0);
            Guarded { memory: memory.cast() }
        }
    }

    fn bytes(&mut self, length: usize, against: Against) -> &mut [u8] {
        assert!(length <= PAGE_BYTES);
        let start = match against {
            Against::Front => PAGE_BYTES,
            Against::Back => 2 * PAGE_BYTES - length,
        };
        // SAFETY: within the accessible page, zeroed by the system, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.add(start), length) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once.
        unsafe { libc::munmap(self.memory.cast(), 3 * PAGE_BYTES) };
    }
}

#[test]
fn kernels_touch_no_memory_outside_their_slices() {
    const DATA_UNITS: usize = 5;
    let mut data_memory: Vec<Guarded> = (0..DATA_UNITS).map(|_| Guarded::new()).collect();
    let mut parity_memory: Vec<Guarded> = (0..3).map(|_| Guarded::new()).collect();
    for length in (0..=600).chain([4096, 65535, 65536]) {
        for against in [Against::Front, Against::Back] {
            let data: Vec<&[u8]> =
                data_memory.iter_mut().map(|memory| &*memory.bytes(length, against)).collect();
            let mut parity: Vec<&mut [u8]> =
                parity_memory.iter_mut().map(|memory| memory.bytes(length, against)).collect();
            for kernel in kernels() {
                for rows in 1..=3 {
                    kernel.encode(&data, &mut parity[..rows]);
                    kernel.encode_streaming(&data, &mut parity[..rows]);
                    kernel.update(3, data[0], &[0, 1, 2][3 - rows..], &mut parity[..rows]);
                    // The numbers of the sources do not matter here.
                    let sources: Vec<usize> = (rows..DATA_UNITS + rows).collect();
                    let wanted: Vec<usize> = (0..rows).collect();
                    let recovery = Recovery::new(DATA_UNITS, &sources, &wanted).expect("solvable");
                    recovery.apply_with(kernel, &data, &mut parity[..rows]);
                }
                kernel.xor_into(parity[0], data[0]);
            }
        }
    }
}
