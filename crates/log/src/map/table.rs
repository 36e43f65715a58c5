//! The newest part of the map, in memory: ordered by logical block, without overlaps.

use std::collections::BTreeMap;

use crate::map::entry::{Block, Entry, Value};

/// Entries in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<u64, Value>,
}

impl Table {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Content of a logical block; `None` if the table does not know it.
    pub(crate) fn get(&self, lba: u64) -> Option<Value> {
        let (&start, &value) = self.entries.range(..=lba).next_back()?;
        (lba < start + value.count()).then_some(value)
    }

    /// Sets a block; returns the block that it replaces.
    pub(crate) fn put_block(&mut self, lba: u64, block: Block) -> Option<Block> {
        let replaced = self.get(lba);
        match replaced {
            Some(Value::Hole(_)) => self.cut(lba, lba + 1, &mut |_| {}),
            Some(Value::Block(_)) | None => {}
        }
        self.entries.insert(lba, Value::Block(block));
        match replaced {
            Some(Value::Block(old)) => Some(old),
            Some(Value::Hole(_)) | None => None,
        }
    }

    /// Marks a range as discarded; passes each block that it replaces to `dead`.
    pub(crate) fn put_hole(&mut self, lba: u64, count: u64, dead: &mut impl FnMut(Block)) {
        self.cut(lba, lba + count, dead);
        self.entries.insert(lba, Value::Hole(count));
    }

    /// Removes a range.
    fn cut(&mut self, start: u64, end: u64, dead: &mut impl FnMut(Block)) {
        if let Some((&first, &Value::Hole(count))) = self.entries.range(..start).next_back()
            && first + count > start
        {
            self.entries.insert(first, Value::Hole(start - first));
            self.entries.insert(start, Value::Hole(first + count - start));
        }
        while let Some((&lba, &value)) = self.entries.range(start..end).next() {
            self.entries.remove(&lba);
            match value {
                Value::Block(block) => dead(block),
                Value::Hole(count) if lba + count > end => {
                    self.entries.insert(end, Value::Hole(lba + count - end));
                }
                Value::Hole(_) => {}
            }
        }
    }

    /// The entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().map(|(&lba, &value)| Entry { lba, value })
    }

    /// Removes the entry that begins at a logical block.
    pub(crate) fn remove(&mut self, lba: u64) {
        self.entries.remove(&lba);
    }

    /// The entry at or after a logical block.
    pub(crate) fn at_or_after(&self, lba: u64) -> Option<Entry> {
        self.entries.range(lba..).next().map(|(&lba, &value)| Entry { lba, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::SplitMix64;

    #[test]
    fn table_agrees_with_a_plain_array() {
        let mut random = SplitMix64::new(4);
        let (mut table, mut plain) = (Table::default(), vec![None; 64]);
        for place in 0..4000 {
            let lba = random.below(64);
            if random.chance(0.6) {
                let block = Block { place, crc: 0, use_number: 0, birth: 0 };
                let old = table.put_block(lba, block);
                let before = plain[lba as usize].replace(Some(block));
                assert_eq!(old, before.flatten());
            } else {
                let count = 1 + random.below(64 - lba);
                let mut dead = Vec::new();
                table.put_hole(lba, count, &mut |block| dead.push(block));
                let range = &mut plain[lba as usize..(lba + count) as usize];
                let before: Vec<Block> = range.iter().flatten().flatten().copied().collect();
                range.fill(Some(None));
                assert_eq!(dead, before);
            }
            for (lba, known) in plain.iter().enumerate() {
                let found = table.get(lba as u64).map(|value| match value {
                    Value::Block(block) => Some(block),
                    Value::Hole(_) => None,
                });
                assert_eq!(found, *known);
            }
            let entries: Vec<Entry> = table.iter().collect();
            assert!(entries.windows(2).all(|pair| pair[0].end() <= pair[1].lba), "no overlap");
        }
    }
}
