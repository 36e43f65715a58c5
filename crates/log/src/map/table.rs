//! The newest part of the map, in memory: versions of ranges ordered by logical block, then the
//! newest first. The versions of a block have the same range, and different ranges do not overlap.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::map::entry::{Block, Entry, Value};
use crate::map::lineage::{Birth, Kept, View};

/// Logical block and birth; the newest version of a block comes first.
type Key = (u64, Reverse<Birth>);

const NEWEST: Reverse<Birth> = Reverse(Birth::MAX);
const OLDEST: Reverse<Birth> = Reverse(0);

/// Entry without its key.
#[derive(Clone, Copy, Debug)]
struct Stored {
    count: u64,
    is_late: bool,
    value: Value,
}

/// Entries in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    entries: BTreeMap<Key, Stored>,
    /// Entries that are late.
    late: usize,
    /// Blocks that have a newer version here.
    older: u64,
}

fn entry_of((&(lba, Reverse(birth)), stored): (&Key, &Stored)) -> Entry {
    let Stored { count, is_late, value } = *stored;
    Entry { lba, count, birth, is_late, value }
}

impl Table {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if some entry is late.
    pub(crate) fn has_late(&self) -> bool {
        self.late > 0
    }

    /// Blocks that have a newer version here, and are kept for a snapshot.
    pub(crate) fn older(&self) -> u64 {
        self.older
    }

    fn older_at(&self, lba: u64) -> u64 {
        let older = self.versions(lba).skip(1).filter(|version| version.block().is_some());
        older.count() as u64
    }

    /// Start of the range that a logical block lies in.
    fn range_of(&self, lba: u64) -> Option<u64> {
        let (&(start, _), stored) = self.entries.range(..=(lba, OLDEST)).next_back()?;
        (lba < start + stored.count).then_some(start)
    }

    /// Versions of a logical block, the newest first, each with its whole range.
    pub(crate) fn versions(&self, lba: u64) -> impl Iterator<Item = Entry> + '_ {
        let start = self.range_of(lba);
        let found = start.map(|start| self.entries.range((start, NEWEST)..=(start, OLDEST)));
        found.into_iter().flatten().map(entry_of)
    }

    /// The newest version of a logical block that a viewer sees.
    pub(crate) fn newest(&self, lba: u64, view: &View) -> Option<Entry> {
        self.versions(lba).find(|entry| view.sees(entry.birth))
    }

    /// The version of a birth.
    pub(crate) fn get(&self, lba: u64, birth: Birth) -> Option<Entry> {
        self.entries.get_key_value(&(lba, Reverse(birth))).map(entry_of)
    }

    /// Adds a version, in place of one of the same birth. Passes each block that is replaced, or
    /// that no viewer sees any more, to `dead`.
    pub(crate) fn put(&mut self, entry: Entry, kept: &Kept, dead: &mut impl FnMut(Block)) {
        let end = entry.end();
        self.split(entry.lba);
        if let Value::Block(_) = entry.value {
            self.split(end);
            self.put_here(entry, kept, dead);
            return;
        }
        self.split(end);
        // Ranges that have nothing but the hole become one.
        let mut alone = entry.lba..entry.lba;
        while alone.end < end {
            let at = alone.end;
            let next = self.entries.range((at, NEWEST)..).next().map(entry_of).filter(|next| next.lba < end);
            match next {
                Some(next) if next.lba == at => {
                    self.put_here(Entry { lba: at, count: next.count, ..entry }, kept, dead);
                    if self.versions(at).all(|version| version.birth == entry.birth) {
                        self.remove(at, entry.birth);
                        alone.end = next.end();
                    } else {
                        self.insert_hole(entry, alone.start, alone.end);
                        alone = next.end()..next.end();
                    }
                }
                next => alone.end = next.map_or(end, |next| next.lba),
            }
        }
        self.insert_hole(entry, alone.start, alone.end);
    }

    fn insert_hole(&mut self, hole: Entry, start: u64, end: u64) {
        if start < end {
            self.insert(Entry { lba: start, count: end - start, ..hole });
        }
    }

    fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let Entry { lba, count, birth, is_late, value } = entry;
        self.late += usize::from(is_late);
        let old = self.entries.insert((lba, Reverse(birth)), Stored { count, is_late, value })?;
        self.late -= usize::from(old.is_late);
        Some(Entry { count: old.count, is_late: old.is_late, value: old.value, ..entry })
    }

    /// Adds a version of a range that has versions, or of one that overlaps none.
    fn put_here(&mut self, entry: Entry, kept: &Kept, dead: &mut impl FnMut(Block)) {
        if self.older == 0 && kept.is_single() {
            // Only the newest version stays.
            return self.put_version(entry, kept, dead);
        }
        self.older -= self.older_at(entry.lba);
        self.put_version(entry, kept, dead);
        self.older += self.older_at(entry.lba);
    }

    fn put_version(&mut self, entry: Entry, kept: &Kept, dead: &mut impl FnMut(Block)) {
        let replaced = self.insert(entry);
        replaced.and_then(|old| old.block()).into_iter().for_each(&mut *dead);
        let births: SmallVec<[Birth; 4]> = self.versions(entry.lba).map(|version| version.birth).collect();
        if births.len() == 1 {
            return;
        }
        for (birth, is_live) in births.iter().zip(kept.live(&births)) {
            if !is_live {
                let old = self.take(entry.lba, *birth);
                old.and_then(|old| old.block()).into_iter().for_each(&mut *dead);
            }
        }
    }

    /// Divides the range that has a logical block inside, so that the block begins a range.
    fn split(&mut self, at: u64) {
        let Some(start) = at.checked_sub(1).and_then(|before| self.range_of(before)) else { return };
        let whole: SmallVec<[Entry; 2]> =
            self.versions(start).take_while(|version| version.end() > at).collect();
        for version in whole {
            self.insert(version.clipped(start, at));
            self.insert(version.clipped(at, version.end()));
        }
    }

    /// The entries in order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().map(entry_of)
    }

    /// The entries of ranges that begin at a logical block or later, in order.
    pub(crate) fn from(&self, lba: u64) -> impl Iterator<Item = Entry> + '_ {
        self.entries.range((lba, NEWEST)..).map(entry_of)
    }

    /// Removes the version of a birth of the range that begins at a logical block.
    pub(crate) fn remove(&mut self, lba: u64, birth: Birth) -> Option<Entry> {
        if self.older == 0 {
            return self.take(lba, birth);
        }
        self.older -= self.older_at(lba);
        let removed = self.take(lba, birth);
        self.older += self.older_at(lba);
        removed
    }

    fn take(&mut self, lba: u64, birth: Birth) -> Option<Entry> {
        let Stored { count, is_late, value } = self.entries.remove(&(lba, Reverse(birth)))?;
        self.late -= usize::from(is_late);
        Some(Entry { lba, count, birth, is_late, value })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::map::lineage::Branches;
    use stripewise_drive::SplitMix64;

    /// A plain array of versions: for each logical block, births with their places.
    #[derive(Clone, Default)]
    pub(crate) struct Plain(pub(crate) Vec<BTreeMap<Birth, Option<u64>>>);

    impl Plain {
        pub(crate) fn put(&mut self, entry: &Entry) {
            for lba in entry.lba..entry.end() {
                self.0.resize_with(self.0.len().max(lba as usize + 1), BTreeMap::new);
                self.0[lba as usize].insert(entry.birth, entry.block().map(|block| block.place));
            }
        }

        /// Birth and place of the newest version that a viewer sees.
        pub(crate) fn newest(&self, lba: u64, view: &View) -> Option<(Birth, Option<u64>)> {
            let mut versions = self.0.get(lba as usize)?.iter().rev();
            versions.find(|(birth, _)| view.sees(**birth)).map(|(&birth, &place)| (birth, place))
        }
    }

    /// A history with a few branches: it, and the births in it.
    pub(crate) fn some_history(random: &mut SplitMix64) -> (Branches, Vec<Birth>) {
        let mut branches = Branches::default();
        let mut births = vec![0];
        for _ in 0..random.below(8) {
            let from = births[random.below(births.len() as u64) as usize];
            births.push(match random.chance(0.3) {
                true => branches.fork(from).unwrap(),
                false => from + 1,
            });
        }
        (branches, births)
    }

    /// A random version at a place.
    pub(crate) fn some_entry(random: &mut SplitMix64, births: &[Birth], place: u64) -> Entry {
        let birth = births[random.below(births.len() as u64) as usize];
        let block = Block { place, crc: 1, use_number: 2 };
        match random.chance(0.6) {
            true => {
                Entry { lba: random.below(64), count: 1, birth, is_late: false, value: Value::Block(block) }
            }
            false => {
                let count = 1 + random.below(20);
                Entry { lba: random.below(50), count, birth, is_late: false, value: Value::Hole }
            }
        }
    }

    #[test]
    fn table_agrees_with_a_plain_array() {
        for seed in 0..60 {
            let mut random = SplitMix64::new(seed);
            let (branches, births) = some_history(&mut random);
            let tips: Vec<Birth> = births.iter().copied().filter(|_| random.chance(0.6)).chain([0]).collect();
            let kept = Kept::new(&branches, tips.iter().copied());
            let (mut table, mut plain) = (Table::default(), Plain::default());
            let (mut stored, mut dead) = (0, Vec::new());
            for place in 0..200 {
                let entry = some_entry(&mut random, &births, place);
                stored += usize::from(entry.block().is_some());
                plain.put(&entry);
                table.put(entry, &kept, &mut |block| dead.push(block.place));
                for lba in 0..80 {
                    for &tip in &tips {
                        let view = branches.view(tip);
                        let found = table
                            .newest(lba, &view)
                            .map(|found| (found.birth, found.block().map(|block| block.place)));
                        assert_eq!(found, plain.newest(lba, &view), "seed {seed}: block {lba} at {tip}");
                    }
                }
            }
            let ranges: Vec<(u64, u64)> = table.iter().map(|entry| (entry.lba, entry.end())).collect();
            assert!(
                ranges.windows(2).all(|pair| pair[0] == pair[1] || pair[0].1 <= pair[1].0),
                "seed {seed}: ranges overlap"
            );
            let older =
                |(before, entry): (&Entry, &Entry)| entry.block().is_some() && before.lba == entry.lba;
            let entries: Vec<Entry> = table.iter().collect();
            let older = entries.iter().zip(&entries[1..]).filter(|pair| older(*pair)).count();
            assert_eq!(table.older(), older as u64, "seed {seed}: blocks with newer versions");
            let left = table.iter().filter(|entry| entry.block().is_some()).count();
            assert_eq!(left + dead.len(), stored, "seed {seed}: each block is stored or dead");
        }
    }

    #[test]
    fn discards_of_one_version_take_one_entry() {
        let kept = Kept::new(&Branches::default(), [0]);
        let mut table = Table::default();
        let hole = Entry { lba: 0, count: 1, birth: 0, is_late: false, value: Value::Hole };
        for lba in 0..100 {
            let block = Block { place: lba, crc: 0, use_number: 0 };
            table.put(Entry { lba, value: Value::Block(block), ..hole }, &kept, &mut |_| {});
        }
        let mut dead = 0;
        table.put(Entry { lba: 10, count: 70, ..hole }, &kept, &mut |_| dead += 1);
        assert_eq!((dead, table.len()), (70, 31));
    }
}
