//! Limits on the width of a volume and the length of its strips.

/// Default interleave.
pub(crate) const DEFAULT_INTERLEAVE_BYTES: u64 = 64 << 10;
/// Minimum interleave: the block size of checksums and of most drives.
pub(crate) const MINIMUM_INTERLEAVE_BYTES: u64 = 4 << 10;
/// Maximum interleave: half of a slab of the smallest size.
pub(crate) const MAXIMUM_INTERLEAVE_BYTES: u64 = 1 << 20;
/// Maximum rows for which parity may stay on its members before it moves on.
pub(crate) const MAXIMUM_ROTATION_ROWS: u32 = 1024;
/// Maximum number of members of a volume: the units that P, Q and R over GF(2^8) can distinguish.
pub const MAXIMUM_WIDTH: usize = 255;
