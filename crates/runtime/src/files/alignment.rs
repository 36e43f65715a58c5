//! Alignment of transfers that bypass the page cache (O_DIRECT), for a file or device.
//!
//! Expected faults: kernels and file systems that do not report it (small test reads determine it),
//! and file systems that accept the flag but do not support direct transfers.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Alignment of direct transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// Alignment of offset and length, in bytes; at least 512.
    pub(crate) offset_bytes: u32,
    /// Alignment of a buffer's address and of each piece's length, in bytes.
    pub(crate) memory_bytes: usize,
}

/// Alignment of buffers, in bytes. A file that requires more cannot use direct transfers.
const BUFFER_ALIGNMENT: usize = stripewise_drive::BUFFER_ALIGNMENT;

/// Alignment required by `file`, which was opened with O_DIRECT; `None` if direct transfers do not
/// work on it. `block_bytes`: logical block size of a block device.
pub(crate) fn direct_alignment(file: &File, block_bytes: Option<u32>) -> Option<Alignment> {
    match (reported(file), block_bytes) {
        (Some(None), _) => None,
        (Some(Some(alignment)), _) => Some(alignment),
        (None, Some(block_bytes)) => Some(Alignment {
            offset_bytes: block_bytes.max(512),
            memory_bytes: block_bytes.max(512) as usize,
        }),
        (None, None) => [512, 4096]
            .into_iter()
            .find(|unit| reads_in_units_of(file, *unit))
            .map(|unit| Alignment { offset_bytes: unit, memory_bytes: unit as usize }),
    }
}

/// Alignment that the kernel reports (since Linux 6.1, on most file systems): `None` if it reports
/// none, `Some(None)` if direct transfers are not supported.
fn reported(file: &File) -> Option<Option<Alignment>> {
    // SAFETY: statx fills the structure it is given; all-zero is valid; the empty path with
    // AT_EMPTY_PATH means the open descriptor itself.
    let answer = unsafe {
        let mut answer: libc::statx = std::mem::zeroed();
        let result = libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut answer,
        );
        (result == 0).then_some(answer)
    }?;
    if answer.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    let memory_bytes = answer.stx_dio_mem_align as usize;
    let supported = answer.stx_dio_offset_align > 0 && memory_bytes.is_power_of_two();
    Some(
        (supported && memory_bytes <= BUFFER_ALIGNMENT)
            .then(|| Alignment { offset_bytes: answer.stx_dio_offset_align.max(512), memory_bytes }),
    )
}

/// Tests a direct read of `unit` bytes at offset and address `unit`.
fn reads_in_units_of(file: &File, unit: u32) -> bool {
    let unit = unit as usize;
    let layout =
        Layout::from_size_align(2 * BUFFER_ALIGNMENT, BUFFER_ALIGNMENT).expect("a small power of two");
    // SAFETY: the layout is not empty; the read stays within the allocation, as `unit` is at most
    // its alignment; the memory is freed with the layout it came with, after the read has returned.
    unsafe {
        let memory = alloc_zeroed(layout);
        if memory.is_null() {
            return false;
        }
        let read = libc::pread(file.as_raw_fd(), memory.add(unit).cast(), unit, unit as libc::off_t);
        dealloc(memory, layout);
        read >= 0
    }
}
