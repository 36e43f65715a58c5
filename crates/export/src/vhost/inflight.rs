//! The record of requests in flight, in memory that the front end keeps while this side is away: a
//! process that was killed does them again when it is back, and none that was answered.
//!
//! Its format is that of the protocol for split rings. An answer is recorded in three steps: the
//! chain's number, then the used ring, then the end of the flight. If the process ends between the
//! second and the third step, the number of used chains shows that the answer was given.
//!
//! Expected faults: an end of the process between any two steps, and arbitrary contents (numbers
//! are checked as those of a ring; the worst are requests of this client done again or not at all).

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

use stripewise_runtime::{SharedMemory, make_shared_file};

use super::config::{MAX_QUEUE_SIZE, MAX_QUEUES};
use super::ring::Ring;
use super::wire::malformed;

/// Offsets in a queue's record.
const VERSION_AT: usize = 8;
const COUNT_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
const ENTRIES_AT: usize = 16;
const ENTRY_BYTES: usize = 16;
/// Offsets in the entry of a chain.
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;
const VERSION: u16 = 1;
const ALIGNMENT: usize = 64;

/// The records of all queues of a device.
#[derive(Clone)]
pub(super) struct InflightArea {
    memory: Rc<SharedMemory>,
    queues: usize,
    queue_size: u16,
}

/// The record of one queue.
pub(super) struct InflightLog {
    memory: Rc<SharedMemory>,
    at: usize,
    /// Order of the next request.
    counter: Cell<u64>,
}

fn record_bytes(queue_size: u16) -> usize {
    (ENTRIES_AT + usize::from(queue_size) * ENTRY_BYTES).next_multiple_of(ALIGNMENT)
}

fn area_bytes(queues: u16, queue_size: u16) -> io::Result<u64> {
    let has_queues = (1..=MAX_QUEUES).contains(&usize::from(queues));
    if !has_queues || !(1..=MAX_QUEUE_SIZE).contains(&queue_size) {
        return Err(malformed(format!("a record of {queues} queues of {queue_size} entries")));
    }
    Ok(usize::from(queues) as u64 * record_bytes(queue_size) as u64)
}

/// A file for the records of that many queues, and its length.
pub(super) fn make_area(queues: u16, queue_size: u16) -> io::Result<(OwnedFd, u64)> {
    let length_bytes = area_bytes(queues, queue_size)?;
    Ok((make_shared_file(length_bytes)?, length_bytes))
}

impl InflightArea {
    /// The records in a part of a file.
    pub(super) fn new(
        file: OwnedFd,
        offset_bytes: u64,
        length_bytes: u64,
        queues: u16,
        queue_size: u16,
    ) -> io::Result<Self> {
        if length_bytes < area_bytes(queues, queue_size)? || !offset_bytes.is_multiple_of(ALIGNMENT as u64) {
            return Err(malformed("the record of requests in flight is too short, or not aligned"));
        }
        let memory = Rc::new(SharedMemory::new(&file, offset_bytes, length_bytes)?);
        Ok(Self { memory, queues: queues.into(), queue_size })
    }

    /// The record of a queue of `size` entries; `None` if there is no room for it.
    pub(super) fn log(&self, queue: usize, size: u16) -> Option<InflightLog> {
        let at = queue * record_bytes(self.queue_size);
        let has_room = queue < self.queues && size <= self.queue_size;
        has_room.then(|| InflightLog { memory: self.memory.clone(), at, counter: Cell::new(0) })
    }
}

impl InflightLog {
    fn entry_at(&self, head: u16) -> usize {
        self.at + ENTRIES_AT + usize::from(head) * ENTRY_BYTES
    }

    fn number<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(at, &mut bytes);
        bytes
    }

    /// Fails if the file of the record was truncated.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.memory.is_lost() {
            true => Err(malformed("the file of its requests in flight was truncated")),
            false => Ok(()),
        }
    }

    /// Chains that an earlier process left in flight, in the order in which it began them. The ring
    /// goes on after them.
    pub(super) fn recover(&self, ring: &mut Ring) -> Vec<u16> {
        let used = ring.next_used();
        if self.memory.load_u16(self.at + VERSION_AT) != VERSION {
            self.memory.store_u16(self.at + COUNT_AT, ring.size());
            self.memory.store_u16(self.at + USED_AT, used);
            self.memory.store_u16(self.at + VERSION_AT, VERSION);
        } else if self.memory.load_u16(self.at + USED_AT) != used {
            let head = self.memory.load_u16(self.at + LAST_HEAD_AT);
            if head < ring.size() {
                self.note_answered(head, used);
            }
        }
        let is_in_flight = |head: &u16| self.number::<1>(self.entry_at(*head)) != [0];
        let order = |head: &u16| u64::from_le_bytes(self.number(self.entry_at(*head) + COUNTER_AT));
        let mut ordered: Vec<(u64, u16)> =
            (0..ring.size()).filter(is_in_flight).map(|head| (order(&head), head)).collect();
        ordered.sort_unstable();
        self.counter.set(ordered.last().map_or(0, |(last, _)| last.wrapping_add(1)));
        ring.set_next_available(used.wrapping_add(ordered.len() as u16));
        ordered.into_iter().map(|(_, head)| head).collect()
    }

    /// Records that a request begins.
    pub(super) fn note_begun(&self, head: u16) {
        let (at, counter) = (self.entry_at(head), self.counter.get());
        self.counter.set(counter.wrapping_add(1));
        self.memory.write(at + COUNTER_AT, &counter.to_le_bytes());
        fence(Ordering::SeqCst);
        self.memory.write(at, &[1]);
        fence(Ordering::SeqCst);
    }

    /// Records that a request is about to be answered.
    pub(super) fn note_answer(&self, head: u16) {
        let last = self.memory.load_u16(self.at + LAST_HEAD_AT);
        self.memory.store_u16(self.entry_at(head) + NEXT_AT, last);
        self.memory.store_u16(self.at + LAST_HEAD_AT, head);
        fence(Ordering::SeqCst);
    }

    /// Records that it was: the ring has `used` used chains.
    pub(super) fn note_answered(&self, head: u16, used: u16) {
        fence(Ordering::SeqCst);
        self.memory.write(self.entry_at(head), &[0]);
        fence(Ordering::SeqCst);
        self.memory.store_u16(self.at + USED_AT, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost::fuzzing::memory_of;
    use crate::vhost::ring::RingAt;

    /// A queue of 8 entries in fresh memory, and its record in a file.
    fn queue() -> (Ring, InflightArea) {
        let memory = Rc::new(memory_of(&[]).expect("memory"));
        let at = RingAt { size: 8, descriptors: 0, used: 0x5000, available: 0x4000 };
        let ring = Ring::new(memory, at, false, 0).expect("a ring");
        let (file, length) = make_area(2, 8).expect("a file");
        (ring, InflightArea::new(file, 0, length, 2, 8).expect("an area"))
    }

    /// The record as the next process finds it.
    fn recovered(ring: &mut Ring, area: &InflightArea) -> (InflightLog, Vec<u16>) {
        let log = area.log(1, 8).expect("there is room");
        let heads = log.recover(ring);
        (log, heads)
    }

    #[test]
    fn requests_in_flight_are_found_in_their_order() {
        let (mut ring, area) = queue();
        let (log, heads) = recovered(&mut ring, &area);
        assert!(heads.is_empty() && ring.next_available() == 0);
        for head in [5, 2, 7, 0] {
            log.note_begun(head);
        }
        log.note_answer(2);
        ring.push_used(2, 1);
        log.note_answered(2, ring.next_used());
        let (log, heads) = recovered(&mut ring, &area);
        assert_eq!((heads, ring.next_available()), (vec![5, 7, 0], 4));
        log.note_begun(2);
        assert_eq!(recovered(&mut ring, &area).1, [5, 7, 0, 2], "a later one comes last");
        let other = area.log(0, 8).expect("there is room");
        assert!(other.recover(&mut ring).is_empty());
    }

    #[test]
    fn an_end_between_any_two_steps_repeats_no_answer() {
        for steps in 0..=3 {
            let (mut ring, area) = queue();
            let (log, _) = recovered(&mut ring, &area);
            log.note_begun(3);
            log.note_begun(4);
            if steps >= 1 {
                log.note_answer(3);
            }
            if steps >= 2 {
                ring.push_used(3, 1);
            }
            if steps >= 3 {
                log.note_answered(3, ring.next_used());
            }
            let (_, heads) = recovered(&mut ring, &area);
            let wanted = if steps >= 2 { vec![4] } else { vec![3, 4] };
            assert_eq!((heads, ring.next_available()), (wanted, 2), "after {steps} steps");
        }
    }

    #[test]
    fn records_that_are_too_small_are_refused() {
        let (file, length) = make_area(2, 8).expect("a file");
        InflightArea::new(file, 0, length - 1, 2, 8).err().expect("too short");
        make_area(0, 8).expect_err("no queue");
        make_area(65, 8).expect_err("too many queues");
        make_area(2, 2000).expect_err("too many entries");
        let (_, area) = queue();
        assert!(area.log(2, 8).is_none() && area.log(0, 16).is_none());
    }
}
