//! Which row to rebuild next: the most exposed, and of these one whose drives have least to do
//! right now. A row in which clients are at work, who would have to be waited for, is passed over
//! and comes again after the others that are as exposed. Pure.
//!
//! Rows are kept in stretches, so memory goes with the number of stretches, not of rows.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use crate::pool::manifest::ids::Id;

/// So many rows are passed over before one is waited for.
const MOST_PASSED_OVER: usize = 64;

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

impl Due {
    /// Takes the first row off.
    fn take_first(&mut self) -> Self {
        let first = Self { rows: 1, ..self.clone() };
        self.first_row += 1;
        self.rows -= 1;
        first
    }

    /// Whether `next` goes on where this ends.
    fn goes_on_with(&self, next: &Self) -> bool {
        self.part == next.part && self.first_row + self.rows == next.first_row && self.drives == next.drives
    }
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
    /// What comes again once nothing else is due that is as exposed.
    passed_over: Vec<Due>,
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
        let (passed_over, busy) = (Vec::new(), BTreeMap::new());
        Self { due: due.into(), passed_over, busy, look_ahead: look_ahead.max(1) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty() && self.passed_over.is_empty()
    }

    /// Takes the next row; to be given back with [`Self::done`]. `is_free`: whether nobody is at
    /// work in a row of a part.
    pub(crate) fn next(&mut self, is_free: impl Fn(Id, u64) -> bool) -> Option<DueRow> {
        let mut passed_over = 0;
        loop {
            let first = self.take()?;
            if passed_over == MOST_PASSED_OVER || is_free(first.part, first.first_row) {
                for &drive in &first.drives {
                    *self.busy.entry(drive).or_default() += 1;
                }
                return Some(DueRow { part: first.part, row: first.first_row, drives: first.drives });
            }
            passed_over += 1;
            match self.passed_over.last_mut().filter(|last| last.goes_on_with(&first)) {
                Some(last) => last.rows += 1,
                None => self.passed_over.push(first),
            }
        }
    }

    /// Takes one row off the stretch whose drives have least to do, of the most exposed.
    fn take(&mut self) -> Option<Due> {
        if let Some(waiting) = self.passed_over.first()
            && self.due.front().is_none_or(|due| due.left > waiting.left)
        {
            self.passed_over.drain(..).rev().for_each(|due| self.due.push_front(due));
        }
        let left = self.due.front()?.left;
        let busy = |drive: &u32| self.busy.get(drive).copied().unwrap_or(0);
        let cost = |due: &Due| {
            let most = due.drives.iter().map(busy).max().unwrap_or(0);
            (most, due.drives.iter().map(busy).sum::<u32>())
        };
        let window = self.due.iter().take(self.look_ahead).take_while(|due| due.left == left);
        let (index, _) = window.enumerate().min_by_key(|(index, due)| (cost(due), *index))?;
        let first = self.due[index].take_first();
        if self.due[index].rows == 0 {
            self.due.remove(index);
        }
        Some(first)
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
    fn most_exposed_rows_first_then_rows_of_idle_drives() {
        let mut queue = RowQueue::new(
            vec![
                due(0, 1, 1, &[0, 1]),
                due(10, 2, 0, &[0, 1]),
                due(20, 1, 0, &[0, 2]),
                due(30, 1, 0, &[2, 3]),
            ],
            128,
        );
        let order: Vec<DueRow> = std::iter::from_fn(|| queue.next(|_, _| true)).collect();
        let rows: Vec<u64> = order.iter().map(|row| row.row).collect();
        assert_eq!(rows, [10, 30, 11, 20, 0]);
        assert!(queue.is_empty());
        order.iter().for_each(|row| queue.done(row));
        assert!(queue.busy.values().all(|busy| *busy == 0));
    }

    #[test]
    fn busy_rows_are_deferred() {
        let mut queue = RowQueue::new(vec![due(10, 4, 0, &[0, 1]), due(20, 1, 1, &[0, 1])], 128);
        let mut next = |busy: &[u64]| queue.next(|_, row| !busy.contains(&row)).map(|row| row.row);
        assert_eq!(next(&[10, 11]), Some(12));
        assert_eq!(next(&[10]), Some(13), "what was passed over comes after the others");
        assert_eq!(next(&[10]), Some(11));
        assert_eq!(next(&[10]), Some(10), "and before what is less exposed, even where it is waited for");
        assert_eq!(next(&[]), Some(20));
        assert_eq!(next(&[]), None);
        assert!(queue.is_empty());
    }
}
