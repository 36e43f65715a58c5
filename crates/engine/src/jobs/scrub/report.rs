//! What a scrub found and did.

/// What a scrub found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes read from the members and compared.
    pub checked_bytes: u64,
    /// Blocks of 4 KiB found wrong on a known drive, by its label, and repaired.
    pub blamed: Vec<(String, u64)>,
    /// Rows of blocks that disagreed where it cannot be told which is wrong; made to agree.
    pub unattributed_blocks: u64,
    /// Strips of which some could not be read, nor reconstructed.
    pub unreadable_strips: u64,
    /// Regions that could not be compared because members are missing.
    pub regions_without_redundancy: u64,
    /// Blocks of 4 KiB that did not agree with their checksums; those that could be put right are
    /// among `blamed` too.
    pub checksum_errors: u64,
    /// Pages of checksums of which one place was wrong or old, and was written again from the
    /// other.
    pub pages_repaired: u64,
    /// Pages of checksums of which no place was right: nothing is known of their blocks.
    pub pages_lost: u64,
    /// Blocks of 4 KiB of which no checksum was recorded, and now is.
    pub sums_recorded: u64,
}

impl ScrubReport {
    pub(super) fn blame(&mut self, label: &str) {
        self.blame_for(label, 1);
    }

    fn blame_for(&mut self, label: &str, blocks: u64) {
        match self.blamed.iter_mut().find(|(blamed, _)| blamed == label) {
            Some((_, sum)) => *sum = sum.saturating_add(blocks),
            None => self.blamed.push((label.to_owned(), blocks)),
        }
    }

    /// Adds what was found elsewhere.
    pub fn add(&mut self, other: &Self) {
        // What was recorded comes from a drive.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.checked_bytes, other.checked_bytes);
        other.blamed.iter().for_each(|(label, blocks)| self.blame_for(label, *blocks));
        add(&mut self.unattributed_blocks, other.unattributed_blocks);
        add(&mut self.unreadable_strips, other.unreadable_strips);
        add(&mut self.regions_without_redundancy, other.regions_without_redundancy);
        add(&mut self.checksum_errors, other.checksum_errors);
        add(&mut self.pages_repaired, other.pages_repaired);
        add(&mut self.pages_lost, other.pages_lost);
        add(&mut self.sums_recorded, other.sums_recorded);
    }

    /// Whether something was wrong.
    pub fn found_something(&self) -> bool {
        !self.blamed.is_empty()
            || self.unattributed_blocks + self.unreadable_strips + self.pages_repaired + self.pages_lost > 0
    }
}
