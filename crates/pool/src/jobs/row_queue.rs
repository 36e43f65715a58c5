//! Order of rebuilding rows: the most exposed first, and among these a row whose drives are least
//! busy. A row that clients are using is deferred until the others of the same exposure are done,
//! so that the rebuild does not wait for the clients. Pure.
//!
//! Rows are kept in stretches, so memory is proportional to the number of stretches, not of rows.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use crate::manifest::ids::Id;

/// Number of rows in use that are passed over before one is taken regardless.
const MOST_PASSED_OVER: usize = 64;

/// Consecutive rows to be filled, on the same drives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub part: Id,
    pub first_row: u64,
    pub rows: u64,
    /// Number of further columns that may be lost.
    pub left: isize,
    /// Drives that a rebuild of these rows reads from or writes to.
    pub drives: SmallVec<[u32; 8]>,
}

impl Due {
    /// Splits off the first row.
    fn take_first(&mut self) -> Self {
        let first = Self { rows: 1, ..self.clone() };
        self.first_row += 1;
        self.rows -= 1;
        first
    }

    /// True if `next` continues where this ends.
    fn goes_on_with(&self, next: &Self) -> bool {
        self.part == next.part && self.first_row + self.rows == next.first_row && self.drives == next.drives
    }
}

/// A row to rebuild.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueRow {
    pub part: Id,
    pub row: u64,
    drives: SmallVec<[u32; 8]>,
}

/// Rows to be rebuilt.
#[derive(Clone, Debug)]
pub(crate) struct RowQueue {
    due: VecDeque<Due>,
    /// Deferred rows, which are due again once no others of the same exposure are.
    passed_over: Vec<Due>,
    /// Number of rows in progress on each drive.
    busy: BTreeMap<u32, u32>,
    /// Number of stretches considered for the next row.
    look_ahead: usize,
}

impl RowQueue {
    /// Creates a queue that considers `look_ahead` stretches for the next row.
    pub(crate) fn new(mut due: Vec<Due>, look_ahead: usize) -> Self {
        // A stable sort: otherwise parts and rows stay in order.
        due.sort_by_key(|due| due.left);
        let (passed_over, busy) = (Vec::new(), BTreeMap::new());
        Self { due: due.into(), passed_over, busy, look_ahead: look_ahead.max(1) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty() && self.passed_over.is_empty()
    }

    /// Takes the next row, which the caller gives back with [`Self::done`]. `is_free`: returns true
    /// if no client uses a row of a part.
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

    /// Takes one row from the stretch with the least busy drives among the most exposed.
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

    /// Gives a row back, whether it was rebuilt or not.
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
        assert_eq!(next(&[10]), Some(13), "deferred rows come after the others");
        assert_eq!(next(&[10]), Some(11));
        assert_eq!(next(&[10]), Some(10), "before less exposed rows, although it is in use");
        assert_eq!(next(&[]), Some(20));
        assert_eq!(next(&[]), None);
        assert!(queue.is_empty());
    }
}
