//! Result of a scrub.

/// Maximum number of places that a report lists.
const MAX_PLACES: usize = 1000;

/// Fault at a place that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceFault {
    /// The drive cannot read it.
    Unreadable,
    /// The data does not match its checksum.
    Checksum,
    /// Copies, or data and parity, disagree.
    Mismatch,
    /// A copy of the checksums themselves is damaged or outdated.
    ChecksumPage,
}

/// A place that a check found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongPlace {
    /// Offset in the volume, bytes; of parity, that of the first block that it protects.
    pub offset_bytes: u64,
    /// Length, bytes.
    pub length_bytes: u64,
    /// Fault.
    pub fault: PlaceFault,
    /// Labels of the drives that may be wrong: several if the layout cannot identify the one.
    pub drives: Vec<String>,
}

/// Findings and repairs of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes read from the members and compared.
    pub checked_bytes: u64,
    /// Blocks of 4 KiB that were wrong on an identified drive and were repaired, by the drive's
    /// label.
    pub blamed: Vec<(String, u64)>,
    /// Rows of blocks that disagreed where the wrong one could not be identified; now consistent.
    pub unattributed_blocks: u64,
    /// Strips with data that could be neither read nor reconstructed.
    pub unreadable_strips: u64,
    /// Regions that could not be compared because members are missing.
    pub regions_without_redundancy: u64,
    /// Blocks of 4 KiB that did not match their checksums. Those that could be repaired also count
    /// in `blamed`.
    pub checksum_errors: u64,
    /// Checksum pages with one wrong or stale copy, which was rewritten from the other.
    pub pages_repaired: u64,
    /// Checksum pages without a valid copy: the checksums of their blocks are lost.
    pub pages_lost: u64,
    /// Blocks of 4 KiB that had no checksum and now have one.
    pub sums_recorded: u64,
    /// Places found wrong, in order; only a check lists them, at most 1000.
    pub places: Vec<WrongPlace>,
    /// Number of further places.
    pub further_places: u64,
}

impl ScrubReport {
    /// Adds a place; one that follows the last with the same fault continues it.
    pub(super) fn add_place(&mut self, place: WrongPlace) {
        if let Some(last) = self.places.last_mut()
            && (last.fault, &last.drives) == (place.fault, &place.drives)
            && last.offset_bytes + last.length_bytes == place.offset_bytes
        {
            last.length_bytes += place.length_bytes;
        } else if self.places.len() < MAX_PLACES {
            self.places.push(place);
        } else {
            self.further_places += 1;
        }
    }

    pub(super) fn blame(&mut self, label: &str) {
        self.blame_for(label, 1);
    }

    fn blame_for(&mut self, label: &str, blocks: u64) {
        match self.blamed.iter_mut().find(|(blamed, _)| blamed == label) {
            Some((_, sum)) => *sum = sum.saturating_add(blocks),
            None => self.blamed.push((label.to_owned(), blocks)),
        }
    }

    /// Adds the findings of another report.
    pub fn add(&mut self, other: &Self) {
        // Saturates, because recorded figures are read from a drive and may be anything.
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
        other.places.iter().for_each(|place| self.add_place(place.clone()));
        add(&mut self.further_places, other.further_places);
    }

    /// True if the scrub found errors.
    pub fn found_something(&self) -> bool {
        !self.blamed.is_empty()
            || self.unattributed_blocks + self.unreadable_strips + self.pages_repaired + self.pages_lost > 0
    }
}
