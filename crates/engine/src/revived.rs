//! Blocks that were lost and have been written since.
//!
//! In the place of a block that is lost lies something that stands in for it, perhaps with a sum of
//! its own. A write makes the block whole, but not durably so: until a flush a power cut, or a drive
//! that loses its cache, brings the stand-in back. So the block stays recorded as lost until a flush
//! that began after the write has succeeded. It can be read meanwhile.
//!
//! Faults expected: commits for any other reason between the write and the flush. No I/O here.

use std::collections::BTreeMap;

/// Blocks of one kind, each with the number of the change that made it whole.
pub(crate) struct Revived<K>(BTreeMap<K, u64>);

impl<K: Ord> Default for Revived<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Revived<K> {
    /// A block was written.
    pub fn note(&mut self, block: K, change: u64) {
        self.0.insert(block, change);
    }

    /// What was changed up to this change is durable.
    pub fn made_durable(&mut self, change: u64) {
        self.0.retain(|_, made_whole| *made_whole > change);
    }

    /// Keeps these only: the others are no blocks any more.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.0.retain(|block, _| keep(block));
    }

    /// In order.
    pub fn blocks(&self) -> impl Iterator<Item = K> + '_ {
        self.0.keys().copied()
    }

    /// Whether all that was written is durable.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How often blocks became whole that were lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostChanges {
    /// So far.
    pub made: u64,
    /// Of these, durably.
    pub durable: u64,
    /// Of these, as the pool's record has it.
    pub recorded: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_counts_as_lost_until_what_was_written_to_it_last_is_durable() {
        let mut revived = Revived::default();
        revived.note(7, 1);
        revived.note(9, 2);
        revived.note(7, 3);
        revived.made_durable(2);
        assert_eq!(revived.blocks().collect::<Vec<u64>>(), [7]);
        revived.made_durable(3);
        assert!(revived.is_empty());
    }
}
