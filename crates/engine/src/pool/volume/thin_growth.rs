//! How many rows a thin volume gets at once: one after it was opened, twice as many each time it
//! runs out again. So a volume that is written from one end to the other does not cost a commit for
//! every row, and one that is written here and there takes no more than it needs.

use std::cell::RefCell;
use std::collections::BTreeMap;

use stripewise_drive::{Semaphore, SemaphorePermit};

use crate::pool::manifest::ids::Id;

/// The growth of all thin volumes of a pool.
pub(in crate::pool) struct ThinGrowth {
    /// Allocations of rows go one at a time.
    turns: Semaphore,
    /// Rows that a part gets the next time, by the array's identity.
    steps: RefCell<BTreeMap<Id, u64>>,
}

impl ThinGrowth {
    /// Nothing has grown yet.
    pub(in crate::pool) fn new() -> Self {
        Self { turns: Semaphore::new(1), steps: RefCell::default() }
    }

    /// The turn to allocate rows.
    pub(in crate::pool) async fn turn(&self) -> SemaphorePermit {
        self.turns.acquire(1).await
    }

    /// Rows that a part gets the next time.
    pub(in crate::pool) fn next_rows(&self, part: Id) -> u64 {
        self.steps.borrow().get(&part).copied().unwrap_or(1)
    }

    /// A part got rows: the next time twice as many, at most `most`.
    pub(in crate::pool) fn grew(&self, part: Id, most: u64) {
        let next = (self.next_rows(part) * 2).min(most);
        self.steps.borrow_mut().insert(part, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_up_to_the_most_for_each_part_alone() {
        let growth = ThinGrowth::new();
        let steps: Vec<u64> = (0..5)
            .map(|_| {
                let rows = growth.next_rows(Id(1));
                growth.grew(Id(1), 6);
                rows
            })
            .collect();
        assert_eq!(steps, [1, 2, 4, 6, 6]);
        assert_eq!(growth.next_rows(Id(2)), 1);
    }
}
