//! The map: logical block and birth → place, checksum. A log-structured merge tree.
//!
//! The newest entries are in a [`table::Table`] in memory. A full table is frozen and written as a
//! sorted run ([`run`]); runs are merged ([`merge`]). A look-up asks the table, the frozen table
//! and the runs, newest first. The map describes the *sealed* log: blocks of a segment that is
//! still being filled are not in it.

pub(crate) mod cache;
pub(crate) mod entry;
pub(crate) mod lineage;
pub(crate) mod merge;
pub(crate) mod page;
pub(crate) mod run;
pub(crate) mod table;

use std::rc::Rc;

use entry::Newest;
use lineage::View;
use run::Run;
use table::Table;

/// Parts of the map, newest first.
#[derive(Default)]
pub(crate) struct Map {
    pub(crate) table: Table,
    /// A table that is being written as a run.
    pub(crate) frozen: Option<Rc<Table>>,
    pub(crate) runs: Vec<Rc<Run>>,
}

impl Map {
    /// The newest version of a logical block that a viewer sees, according to the tables.
    pub(crate) fn in_memory(&self, lba: u64, view: &View) -> Newest {
        let mut newest = Newest::default();
        for table in self.tables() {
            if !newest.is_final {
                newest.offer(table.newest(lba, view));
            }
        }
        newest
    }

    /// The tables, the newest first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Table> {
        std::iter::once(&self.table).chain(self.frozen.as_deref())
    }

    /// Entries in memory.
    pub(crate) fn len_in_memory(&self) -> usize {
        self.table.len() + self.frozen.as_ref().map_or(0, |table| table.len())
    }

    /// Blocks that are kept for snapshots alone, as far as each part of the map shows.
    pub(crate) fn kept_for_snapshots(&self) -> u64 {
        let in_memory: u64 = self.tables().map(Table::older).sum();
        in_memory + self.runs.iter().map(|run| run.root.kept).sum::<u64>()
    }

    /// Moves the table out of the way of new entries.
    pub(crate) fn freeze(&mut self) -> Rc<Table> {
        assert!(self.frozen.is_none(), "one table is frozen at a time");
        let frozen = Rc::new(std::mem::take(&mut self.table));
        self.frozen = Some(frozen.clone());
        frozen
    }
}

/// Number of the newest runs to merge, if any: a run is merged into the next older one once the
/// newer ones together have a quarter of its entries. So few runs are asked at a look-up, and each
/// entry is rewritten a few times.
pub(crate) fn runs_to_merge(sizes: &[u64]) -> Option<usize> {
    let mut newer = 0;
    let mut wanted = None;
    for (index, pair) in sizes.windows(2).enumerate() {
        newer += pair[0];
        if newer * 4 >= pair[1] {
            wanted = Some(index + 2);
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_geometrically() {
        assert_eq!(runs_to_merge(&[]), None);
        assert_eq!(runs_to_merge(&[5]), None);
        assert_eq!(runs_to_merge(&[5, 100]), None);
        assert_eq!(runs_to_merge(&[25, 100]), Some(2));
        assert_eq!(runs_to_merge(&[5, 10, 100]), Some(2));
        assert_eq!(runs_to_merge(&[5, 20, 100]), Some(3));
        let mut sizes: Vec<u64> = Vec::new();
        for _ in 0..1000 {
            sizes.insert(0, 10);
            if let Some(count) = runs_to_merge(&sizes) {
                let merged = sizes.drain(..count).sum();
                sizes.insert(0, merged);
            }
            assert!(sizes.len() <= 8, "{sizes:?}");
        }
    }
}
