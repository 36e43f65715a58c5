//! The turn to flush a drive, which goes to one of its members at a time.
//!
//! A drive that refuses a flush may have dropped its cache, and succeeds with the next one. So no
//! flush is sent while another thread's is with the drive: when it goes, all refusals of earlier
//! ones are counted (`flush_losses.rs`). Members that wait get the turn in the order in which they
//! asked for it.
//!
//! Expected faults: members that end, or whose drive fails, while they have the turn or wait for
//! it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::member::opening::Opening;

/// No member has the turn, and none waits for it.
const FREE: u64 = 0;

#[derive(Default)]
pub(super) struct FlushTurn {
    /// Number of the opening that has the turn; changed with `waiting` locked, except from free.
    holder: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Members that want to flush.
    to_flush: VecDeque<Arc<Opening>>,
    /// Members that want to know when the turn ends.
    to_go_on: Vec<Arc<Opening>>,
}

impl FlushTurn {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_if_free(&self, own: &Opening) -> bool {
        let taken = self.holder.compare_exchange(FREE, own.number, Ordering::SeqCst, Ordering::SeqCst);
        taken.is_ok() || taken == Err(own.number)
    }

    /// Takes the turn, or has the member called when it has it: true if it has it now.
    pub(super) fn take(&self, own: &Arc<Opening>) -> bool {
        if self.take_if_free(own) {
            return true;
        }
        let mut waiting = self.waiting();
        if self.take_if_free(own) {
            return true;
        }
        if !waiting.to_flush.iter().any(|other| other.number == own.number) {
            waiting.to_flush.push_back(own.clone());
        }
        false
    }

    /// Gives the turn to the next member, if this one has it.
    pub(super) fn give_up(&self, own: &Opening) {
        if self.holder.load(Ordering::SeqCst) != own.number {
            return;
        }
        let (next, to_go_on) = {
            let mut waiting = self.waiting();
            let next = waiting.to_flush.pop_front();
            self.holder.store(next.as_ref().map_or(FREE, |next| next.number), Ordering::SeqCst);
            (next, std::mem::take(&mut waiting.to_go_on))
        };
        next.iter().chain(&to_go_on).for_each(|other| other.call());
    }

    /// Ends a member's part in this.
    pub(super) fn leave(&self, own: &Opening) {
        self.waiting().to_flush.retain(|other| other.number != own.number);
        self.give_up(own);
    }

    /// True if another member has the turn; this one is called when that member gives it up.
    pub(super) fn is_elsewhere(&self, own: &Arc<Opening>) -> bool {
        let is_elsewhere = || {
            let holder = self.holder.load(Ordering::SeqCst);
            holder != FREE && holder != own.number
        };
        if !is_elsewhere() {
            return false;
        }
        let mut waiting = self.waiting();
        if !is_elsewhere() {
            return false;
        }
        if !waiting.to_go_on.iter().any(|other| other.number == own.number) {
            waiting.to_go_on.push(own.clone());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_goes_round_in_the_order_of_asking() {
        let turn = FlushTurn::default();
        let [first, second, third] = [1, 2, 3].map(|number| Arc::new(Opening::new(number)));
        assert!(turn.take(&first) && turn.take(&first), "taking it twice is taking it");
        assert!(!turn.take(&third) && !turn.take(&second) && !turn.take(&third));
        assert!(turn.is_elsewhere(&second) && !turn.is_elsewhere(&first));
        assert!(!second.take_call() && !third.take_call());
        turn.give_up(&second);
        assert!(!turn.take(&second), "only its holder gives it up");
        turn.give_up(&first);
        assert!(third.take_call() && second.take_call(), "the next one, and one that wanted to go on");
        assert!(turn.take(&third) && !turn.take(&first));
        turn.give_up(&third);
        assert!(turn.take(&second));
        turn.leave(&first);
        turn.leave(&second);
        assert!(turn.take(&third) && turn.is_elsewhere(&second));
    }
}
