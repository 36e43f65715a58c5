//! Serialises work on overlapping ranges of a volume, first come, first served.
//!
//! While a volume is converted its writes hold their ranges here, because some of them go to two
//! arrays and must leave the same data in both. Copying a range holds it as well, and so does the
//! step that makes the copy the valid one. A request waits only for overlapping requests that came
//! before it, so none waits for ever. Memory: one entry per write in flight.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use stripewise_drive::Event;

#[derive(Default)]
pub(crate) struct RangeGate {
    /// Requests in order of arrival, running and waiting.
    entries: RefCell<VecDeque<Entry>>,
    next_ticket: Cell<u64>,
    left: Event,
}

#[derive(Clone, Copy)]
struct Entry {
    ticket: u64,
    start: u64,
    end: u64,
}

impl RangeGate {
    /// Waits until no earlier request works in the range; the caller holds it until the guard is
    /// dropped.
    pub(crate) async fn enter(&self, start: u64, end: u64) -> RangeGuard<'_> {
        let ticket = self.next_ticket.replace(self.next_ticket.get() + 1);
        self.entries.borrow_mut().push_back(Entry { ticket, start, end });
        let guard = RangeGuard { gate: self, ticket };
        loop {
            let left = self.left.wait();
            if self.is_free(ticket, start, end) {
                return guard;
            }
            left.await;
        }
    }

    fn is_free(&self, ticket: u64, start: u64, end: u64) -> bool {
        let entries = self.entries.borrow();
        let mut before = entries.iter().take_while(|entry| entry.ticket != ticket);
        !before.any(|entry| entry.start < end && start < entry.end)
    }
}

pub(crate) struct RangeGuard<'a> {
    gate: &'a RangeGate,
    ticket: u64,
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut entries = self.gate.entries.borrow_mut();
        if let Ok(index) = entries.binary_search_by_key(&self.ticket, |entry| entry.ticket) {
            entries.remove(index);
        }
        drop(entries);
        self.gate.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use stripewise_drive::SplitMix64;
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    #[test]
    fn overlapping_ranges_are_exclusive_and_all_enter() {
        for seed in 0..20 {
            let executor = VirtualExecutor::shuffled(seed);
            let context = executor.context();
            let gate: Rc<RangeGate> = Rc::default();
            let inside: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
            let mut random = SplitMix64::new(seed);
            let tasks: Vec<_> = (0..60)
                .map(|_| {
                    let (start, pause, work) = (random.below(20), random.below(50), random.below(50));
                    let end = start + 1 + random.below(10);
                    let (gate, inside, clock) = (gate.clone(), inside.clone(), context.clone());
                    context.spawn(async move {
                        clock.sleep_ns(pause).await;
                        let _mine = gate.enter(start, end).await;
                        let overlaps = |other: &(u64, u64)| other.0 < end && start < other.1;
                        assert!(!inside.borrow().iter().any(overlaps));
                        inside.borrow_mut().push((start, end));
                        clock.sleep_ns(work).await;
                        inside.borrow_mut().retain(|other| *other != (start, end));
                    })
                })
                .collect();
            executor.block_on(async {
                for task in tasks {
                    task.await;
                }
            });
            assert!(gate.entries.borrow().is_empty());
        }
    }
}
