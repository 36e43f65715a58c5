//! Which row to rebuild next: the most exposed, and of these one whose drives have least to do
//! right now. Pure.
//!
//! Rows are kept in stretches, so memory goes with the number of stretches, not of rows.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use crate::pool::manifest::ids::Id;

/// Consecutive rows that are to be filled, on the same drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pool) struct Due {
    pub part: Id,
    pub first_row: u64,
    pub rows: u64,
    /// How many more columns could be lost.
    pub left: isize,
    /// All drives that a rebuild reads from or writes to.
    pub drives: SmallVec<[u32; 8]>,
}

/// A row to work on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pool) struct DueRow {
    pub part: Id,
    pub row: u64,
    drives: SmallVec<[u32; 8]>,
}

/// Rows that are to be rebuilt.
#[derive(Clone, Debug)]
pub(in crate::pool) struct RowQueue {
    due: VecDeque<Due>,
    /// Rows under way on each drive.
    busy: BTreeMap<u32, u32>,
    /// Stretches looked at for the next row.
    look_ahead: usize,
}

impl RowQueue {
    /// Looks at so many stretches for the next row.
    pub(crate) fn new(mut due: Vec<Due>, look_ahead: usize) -> Self {
        // Stable: parts and rows in order otherwise.
        due.sort_by_key(|due| due.left);
        Self { due: due.into(), busy: BTreeMap::new(), look_ahead: look_ahead.max(1) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Takes the next row; to be given back with [`Self::done`].
    pub(crate) fn next(&mut self) -> Option<DueRow> {
        let left = self.due.front()?.left;
        let busy = |drive: &u32| self.busy.get(drive).copied().unwrap_or(0);
        let cost = |due: &Due| {
            let most = due.drives.iter().map(busy).max().unwrap_or(0);
            (most, due.drives.iter().map(busy).sum::<u32>())
        };
        let window = self.due.iter().take(self.look_ahead).take_while(|due| due.left == left);
        let (index, _) = window.enumerate().min_by_key(|(index, due)| (cost(due), *index))?;
        let due = &mut self.due[index];
        let row = DueRow { part: due.part, row: due.first_row, drives: due.drives.clone() };
        due.first_row += 1;
        due.rows -= 1;
        if due.rows == 0 {
            self.due.remove(index);
        }
        for &drive in &row.drives {
            *self.busy.entry(drive).or_default() += 1;
        }
        Some(row)
    }

    /// A row is not under way any more, done or not.
    pub(crate) fn done(&mut self, row: &DueRow) {
        for drive in &row.drives {
            let busy = self.busy.get_mut(drive).expect("it was counted in");
            *busy -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(first_row: u64, rows: u64, left: isize, drives: &[u32]) -> Due {
        Due { part: Id(1), first_row, rows, left, drives: drives.into() }
    }

    #[test]
    fn the_most_exposed_come_first_and_rows_of_idle_drives_among_them() {
        let mut queue = RowQueue::new(
            vec![
                due(0, 1, 1, &[0, 1]),
                due(10, 2, 0, &[0, 1]),
                due(20, 1, 0, &[0, 2]),
                due(30, 1, 0, &[2, 3]),
            ],
            128,
        );
        let order: Vec<DueRow> = std::iter::from_fn(|| queue.next()).collect();
        let rows: Vec<u64> = order.iter().map(|row| row.row).collect();
        assert_eq!(rows, [10, 30, 11, 20, 0]);
        assert!(queue.is_empty());
        order.iter().for_each(|row| queue.done(row));
        assert!(queue.busy.values().all(|busy| *busy == 0));
    }
}
