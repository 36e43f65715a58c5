//! Timers of one executor: a binary heap in which every timer knows its position, so that
//! cancelling one is as cheap as letting it fire, and nothing is allocated per timer in steady
//! state.
//!
//! Timers of the same deadline fire in the order they were set, so that runs in virtual time repeat
//! exactly. The id of a fired or cancelled timer is not reused within 2^32 uses of its slot.

use std::task::Waker;

use stripewise_drive::TimerId;

#[derive(Clone, Copy)]
struct Node {
    deadline_ns: u64,
    /// Number of the timer, which orders equal deadlines.
    sequence: u64,
    slot: u32,
}

impl Node {
    fn is_before(&self, other: &Self) -> bool {
        (self.deadline_ns, self.sequence) < (other.deadline_ns, other.sequence)
    }
}

struct Slot {
    /// Position in the heap; meaningless while `waker` is `None`.
    position: u32,
    generation: u32,
    waker: Option<Waker>,
}

/// The pending timers.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Vec<Node>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    sequence: u64,
}

impl Timers {
    /// Sets a timer.
    pub(crate) fn insert(&mut self, deadline_ns: u64, waker: Waker) -> TimerId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { position: 0, generation: 0, waker: None });
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].waker = Some(waker);
        self.sequence += 1;
        self.heap.push(Node { deadline_ns, sequence: self.sequence, slot });
        self.rise(self.heap.len() - 1);
        TimerId(u64::from(self.slots[slot as usize].generation) << 32 | u64::from(slot))
    }

    /// Cancels a timer. Returns its waker, which the caller drops when nothing is borrowed.
    pub(crate) fn cancel(&mut self, timer: TimerId) -> Option<Waker> {
        let slot = timer.0 as u32;
        let entry = self.slots.get(slot as usize)?;
        if u64::from(entry.generation) != timer.0 >> 32 || entry.waker.is_none() {
            return None;
        }
        Some(self.remove(entry.position as usize))
    }

    /// Deadline of the next timer.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.heap.first().map(|node| node.deadline_ns)
    }

    /// Removes the next timer that is due at `now_ns`.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Waker> {
        (self.next_deadline_ns()? <= now_ns).then(|| self.remove(0))
    }

    /// Removes all wakers, in no order, for the caller to drop.
    pub(crate) fn take_all(&mut self) -> Vec<Waker> {
        self.heap.clear();
        self.free.clear();
        self.slots.drain(..).filter_map(|slot| slot.waker).collect()
    }

    fn remove(&mut self, position: usize) -> Waker {
        let node = self.heap.swap_remove(position);
        if position < self.heap.len() {
            // The node moved here from the end may belong further up or further down.
            let position = self.rise(position);
            self.sink(position);
        }
        let slot = &mut self.slots[node.slot as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(node.slot);
        slot.waker.take().expect("a timer in the heap has a waker")
    }

    fn rise(&mut self, mut position: usize) -> usize {
        let node = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if !node.is_before(&self.heap[parent]) {
                break;
            }
            self.place(position, self.heap[parent]);
            position = parent;
        }
        self.place(position, node);
        position
    }

    fn sink(&mut self, mut position: usize) {
        let node = self.heap[position];
        loop {
            let mut child = 2 * position + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].is_before(&self.heap[child]) {
                child += 1;
            }
            if !self.heap[child].is_before(&node) {
                break;
            }
            self.place(position, self.heap[child]);
            position = child;
        }
        self.place(position, node);
    }

    fn place(&mut self, position: usize, node: Node) {
        self.heap[position] = node;
        self.slots[node.slot as usize].position = position as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_cancelled_ones_never() {
        let mut timers = Timers::default();
        let mut expected = Vec::new();
        let mut kept = Vec::new();
        // A fixed scramble of deadlines with many equal ones.
        for index in 0..500_u64 {
            let deadline_ns = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 59;
            let timer = timers.insert(deadline_ns, Waker::noop().clone());
            if index % 3 == 0 {
                kept.push(timer);
            } else {
                expected.push((deadline_ns, index + 1));
            }
        }
        for timer in &kept {
            assert!(timers.cancel(*timer).is_some());
            assert!(timers.cancel(*timer).is_none(), "already cancelled");
        }
        expected.sort_unstable();
        let mut fired = Vec::new();
        while let Some(node) = timers.heap.first().copied() {
            if let Some(earlier_ns) = node.deadline_ns.checked_sub(1) {
                assert!(timers.pop_due(earlier_ns).is_none(), "fired before its time");
            }
            fired.push((node.deadline_ns, node.sequence));
            timers.pop_due(node.deadline_ns).expect("due");
        }
        assert_eq!(fired, expected);
    }

    #[test]
    fn random_timer_operations_match_a_sorted_map() {
        let mut timers = Timers::default();
        let mut model = std::collections::BTreeMap::new();
        let mut state = 0x5EED_u64;
        let mut random = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for step in 1..20_000_u64 {
            match random(5) {
                0..=2 => {
                    let deadline_ns = random(1_000);
                    let timer = timers.insert(deadline_ns, Waker::noop().clone());
                    model.insert((deadline_ns, step), timer);
                }
                3 => {
                    let nth = random(model.len() as u64 + 1) as usize;
                    let Some(key) = model.keys().nth(nth).copied() else { continue };
                    let timer = model.remove(&key).expect("just seen");
                    assert!(timers.cancel(timer).is_some(), "step {step}");
                }
                _ => {
                    let first = model.pop_first();
                    assert_eq!(
                        timers.next_deadline_ns(),
                        first.map(|((deadline_ns, _), _)| deadline_ns),
                        "step {step}"
                    );
                    if let Some(((deadline_ns, _), timer)) = first {
                        assert!(timers.pop_due(deadline_ns).is_some());
                        assert!(
                            timers.cancel(timer).is_none(),
                            "step {step}: another timer of that deadline fired"
                        );
                    }
                }
            }
        }
        assert!(model.len() > 1_000, "the mix never filled the heap");
    }

    #[test]
    fn a_fired_timer_id_does_not_cancel_its_successor() {
        let mut timers = Timers::default();
        let first = timers.insert(5, Waker::noop().clone());
        assert!(timers.pop_due(5).is_some());
        let second = timers.insert(7, Waker::noop().clone());
        assert!(timers.cancel(first).is_none());
        assert_eq!(timers.next_deadline_ns(), Some(7));
        assert!(timers.cancel(second).is_some());
        assert_eq!(timers.next_deadline_ns(), None);
    }
}
