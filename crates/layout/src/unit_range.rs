//! A part of one unit of a stripe: what addresses and plans are given in.

/// Bytes `start..end` of one unit of a stripe. In a plan: one I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitRange {
    /// The unit of the stripe; for mirrors, in plans, the copy.
    pub unit: usize,
    /// First byte, from the start of the strip.
    pub start: u64,
    /// One past the last byte, from the start of the strip.
    pub end: u64,
}

impl UnitRange {
    /// Number of bytes.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }
}
