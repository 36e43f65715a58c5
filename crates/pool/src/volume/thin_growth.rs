//! Number of rows that a thin volume allocates at once: one after it was opened, then twice as many
//! each time it runs out. A volume that is written sequentially does not pay for a commit per row,
//! and one that is written sparsely takes no more than it needs.

use std::cell::RefCell;
use std::collections::BTreeMap;

use stripewise_drive::{Semaphore, SemaphorePermit};

use crate::manifest::ids::Id;

/// The growth of all thin volumes of a pool.
pub(crate) struct ThinGrowth {
    /// Serialises the allocation of rows.
    turns: Semaphore,
    /// Rows of a part's next allocation, by the array's identity.
    steps: RefCell<BTreeMap<Id, u64>>,
}

impl ThinGrowth {
    /// State of a pool that was just opened: no part has grown.
    pub(crate) fn new() -> Self {
        Self { turns: Semaphore::new(1), steps: RefCell::default() }
    }

    /// Waits for the exclusive right to allocate rows.
    pub(crate) async fn turn(&self) -> SemaphorePermit {
        self.turns.acquire(1).await
    }

    /// Rows of the part's next allocation.
    pub(crate) fn next_rows(&self, part: Id) -> u64 {
        self.steps.borrow().get(&part).copied().unwrap_or(1)
    }

    /// Records that a part was given rows: its next allocation is twice as large, at most `most`
    /// rows.
    pub(crate) fn grew(&self, part: Id, most: u64) {
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
