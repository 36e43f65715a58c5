//! Size of an array, and the ranges that requests may name.

use std::cell::Cell;

use crate::error::ArrayError;

/// Alignment of offsets and lengths of requests.
const SECTOR_BYTES: u64 = 512;

/// Usable size.
pub(crate) struct Capacity {
    bytes: Cell<u64>,
    /// Limit of clients' writes: lower than the size while the array is being resized.
    writes_end: Cell<u64>,
}

impl Capacity {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes: Cell::new(bytes), writes_end: Cell::new(u64::MAX) }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn set(&self, bytes: u64) {
        self.bytes.set(bytes);
    }

    /// Refuses writes beyond this offset from now on; `u64::MAX`: writes may reach the array's end.
    pub(crate) fn end_writes_at(&self, bytes: u64) {
        self.writes_end.set(bytes);
    }

    /// Checks that a range is aligned and within the array.
    pub(crate) fn check(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        if !(offset_bytes | length_bytes).is_multiple_of(SECTOR_BYTES) {
            return Err(ArrayError::Misaligned { offset_bytes, length_bytes, unit_bytes: SECTOR_BYTES });
        }
        Self::check_end(offset_bytes, length_bytes, self.bytes.get())
    }

    /// Checks that a range that may be read may be written, too.
    pub(crate) fn check_written(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        Self::check_end(offset_bytes, length_bytes, self.writes_end.get())
    }

    fn check_end(offset_bytes: u64, length_bytes: u64, capacity_bytes: u64) -> Result<(), ArrayError> {
        if offset_bytes.checked_add(length_bytes).is_none_or(|end| end > capacity_bytes) {
            return Err(ArrayError::OutOfRange { offset_bytes, length_bytes, capacity_bytes });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_and_writes_end_at_a_shrink() {
        let capacity = Capacity::new(8192);
        assert!(capacity.check(7680, 512).is_ok() && capacity.check(8192, 0).is_ok());
        assert!(matches!(capacity.check(256, 512), Err(ArrayError::Misaligned { .. })));
        assert!(matches!(capacity.check(0, 100), Err(ArrayError::Misaligned { .. })));
        assert!(matches!(capacity.check(7680, 1024), Err(ArrayError::OutOfRange { .. })));
        assert!(matches!(capacity.check(512, u64::MAX - 511), Err(ArrayError::OutOfRange { .. })));
        capacity.end_writes_at(4096);
        assert!(capacity.check(4096, 512).is_ok(), "reads are still allowed there");
        let refused = capacity.check_written(4096, 512);
        assert!(matches!(refused, Err(ArrayError::OutOfRange { capacity_bytes: 4096, .. })));
        assert!(capacity.check_written(3584, 512).is_ok());
    }
}
