//! Data that the promises do not allow.

/// A read that violates the guarantees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Number of the sector.
    pub sector: u32,
    /// Content that was read, and the allowed contents.
    pub what: String,
    /// True if the sector returned an older content of its own, false for content that it never
    /// had.
    pub is_old: bool,
    /// True if a block mixes old and new sectors.
    pub is_torn_block: bool,
}
