//! A split virtqueue in a guest's memory: chains of descriptors that the guest makes available, and
//! the ring of those that this side has used.
//!
//! Nothing in the memory is trusted. Every number is read once, then checked. Expected faults:
//! chains that loop, that are too long, that leave the table or the memory, tables within tables,
//! and more available chains than the queue has entries: each is an error of the front end.

use std::io;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};

use super::config::MAX_QUEUE_SIZE;
use super::memory::{GuestMemory, Place, Segment};
use super::wire::malformed;

/// Descriptor flags.
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;
/// In the available ring: the guest wants no signals. In the used ring: this side wants none.
const NO_SIGNAL: u16 = 1;
const DESCRIPTOR_BYTES: usize = 16;
/// Maximum descriptors of a chain.
const MAX_CHAIN: usize = MAX_QUEUE_SIZE as usize;

/// Addresses and size of a queue, as the front end sets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingAt {
    pub size: u16,
    /// Addresses in the front end's process.
    pub descriptors: u64,
    pub used: u64,
    pub available: u64,
}

/// A chain of descriptors: a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub head: u16,
    segments: Vec<Segment>,
    /// Number of segments that the guest has filled; this side fills the rest.
    readable: usize,
}

impl Chain {
    pub(super) fn readable(&self) -> &[Segment] {
        &self.segments[..self.readable]
    }

    pub(super) fn writable(&self) -> &[Segment] {
        &self.segments[self.readable..]
    }
}

/// Total length of segments, bytes.
pub(super) fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length)).sum()
}

/// A descriptor as it is in memory.
struct Descriptor {
    segment: Segment,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn parse(bytes: [u8; DESCRIPTOR_BYTES]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self {
            segment: Segment { address: number as u64, length: (number >> 64) as u32 },
            flags: (number >> 96) as u16,
            next: (number >> 112) as u16,
        }
    }
}

/// A queue in memory.
pub(super) struct Ring {
    memory: Rc<GuestMemory>,
    size: u16,
    descriptors: Place,
    available: Place,
    used: Place,
    has_event_idx: bool,
    next_available: u16,
    next_used: u16,
    /// `next_used` when [`Self::wants_signal`] was last asked.
    signalled: u16,
}

impl Ring {
    /// The queue at these addresses, which goes on after `base` available chains. The number of
    /// used ones is in the memory.
    pub(super) fn new(
        memory: Rc<GuestMemory>,
        at: RingAt,
        has_event_idx: bool,
        base: u16,
    ) -> io::Result<Self> {
        if !at.size.is_power_of_two() || at.size > MAX_QUEUE_SIZE {
            return Err(malformed(format!(
                "a queue of {} entries; at most {MAX_QUEUE_SIZE}, a power of two",
                at.size
            )));
        }
        let size = u64::from(at.size);
        let place = |address: u64, length: u64, alignment: usize| {
            let place = memory.at_user(address, length);
            let place = place.filter(|place| place.at.is_multiple_of(alignment));
            place.ok_or_else(|| malformed("a ring is outside the memory, or not aligned"))
        };
        let descriptors = place(at.descriptors, DESCRIPTOR_BYTES as u64 * size, 16)?;
        let available = place(at.available, 6 + 2 * size, 2)?;
        let used = place(at.used, 6 + 8 * size, 4)?;
        let next_used = used.region.memory.load_u16(used.at + 2);
        Ok(Self {
            memory,
            size: at.size,
            descriptors,
            available,
            used,
            has_event_idx,
            next_available: base,
            next_used,
            signalled: next_used,
        })
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    pub(super) fn memory(&self) -> &Rc<GuestMemory> {
        &self.memory
    }

    pub(super) fn next_available(&self) -> u16 {
        self.next_available
    }

    pub(super) fn next_used(&self) -> u16 {
        self.next_used
    }

    /// Goes on after `base` available chains.
    pub(super) fn set_next_available(&mut self, base: u16) {
        self.next_available = base;
    }

    /// The next available chain.
    pub(super) fn pop(&mut self) -> io::Result<Option<Chain>> {
        let (memory, at) = (&self.available.region.memory, self.available.at);
        let waiting = memory.load_u16(at + 2).wrapping_sub(self.next_available);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.size {
            return Err(malformed("more requests are available than the queue has entries"));
        }
        let entry = usize::from(self.next_available % self.size);
        let chain = self.chain(memory.load_u16(at + 4 + 2 * entry))?;
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(chain))
    }

    /// Makes the last chain available again.
    pub(super) fn put_back(&mut self) {
        self.next_available = self.next_available.wrapping_sub(1);
    }

    /// The chain that begins with descriptor `head`.
    pub(super) fn chain(&self, head: u16) -> io::Result<Chain> {
        let mut chain = Chain { head, segments: Vec::with_capacity(3), readable: 0 };
        let first = self.descriptor(head)?;
        if first.flags & INDIRECT == 0 {
            self.follow(&mut chain, first, usize::from(self.size), |next| self.descriptor(next))?;
            return Ok(chain);
        }
        let (address, length) = (first.segment.address, first.segment.length as usize);
        let count = length / DESCRIPTOR_BYTES;
        let is_table =
            length.is_multiple_of(DESCRIPTOR_BYTES) && (1..=usize::from(u16::MAX)).contains(&count);
        if !is_table || first.flags & NEXT != 0 || !self.memory.has(first.segment) {
            return Err(malformed("an indirect table is malformed or outside the memory"));
        }
        let of_table = |index: u16| {
            if usize::from(index) >= count {
                return Err(malformed("a descriptor is outside its indirect table"));
            }
            let mut bytes = [0; DESCRIPTOR_BYTES];
            let at = Segment { address, length: length as u32 };
            self.memory.read(&[at], u64::from(index) * DESCRIPTOR_BYTES as u64, &mut bytes);
            Ok(Descriptor::parse(bytes))
        };
        self.follow(&mut chain, of_table(0)?, count.min(MAX_CHAIN), of_table)?;
        Ok(chain)
    }

    fn descriptor(&self, index: u16) -> io::Result<Descriptor> {
        if index >= self.size {
            return Err(malformed("a descriptor is outside the table"));
        }
        let mut bytes = [0; DESCRIPTOR_BYTES];
        self.descriptors
            .region
            .memory
            .read(self.descriptors.at + usize::from(index) * DESCRIPTOR_BYTES, &mut bytes);
        Ok(Descriptor::parse(bytes))
    }

    /// Adds the descriptors from `first` on, at most `most`.
    fn follow(
        &self,
        chain: &mut Chain,
        first: Descriptor,
        most: usize,
        get: impl Fn(u16) -> io::Result<Descriptor>,
    ) -> io::Result<()> {
        let mut descriptor = first;
        for _ in 0..most {
            if descriptor.flags & INDIRECT != 0 {
                return Err(malformed("an indirect table within a chain or another table"));
            }
            if !self.memory.has(descriptor.segment) {
                return Err(malformed("a descriptor refers to no memory of the guest"));
            }
            let is_readable = descriptor.flags & WRITABLE == 0;
            if is_readable && chain.readable < chain.segments.len() {
                return Err(malformed("a readable descriptor follows a writable one"));
            }
            chain.readable += usize::from(is_readable);
            chain.segments.push(descriptor.segment);
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            descriptor = get(descriptor.next)?;
        }
        Err(malformed("a chain of descriptors is too long, or loops"))
    }

    /// Gives a chain back to the guest; `written` bytes of it were filled.
    pub(super) fn push_used(&mut self, head: u16, written: u32) {
        let (memory, at) = (&self.used.region.memory, self.used.at);
        let entry = usize::from(self.next_used % self.size);
        let element = u64::from(head) | u64::from(written) << 32;
        memory.write(at + 4 + 8 * entry, &element.to_le_bytes());
        self.next_used = self.next_used.wrapping_add(1);
        memory.store_u16(at + 2, self.next_used);
    }

    /// True if the guest wants a signal for the chains used since this was last asked.
    pub(super) fn wants_signal(&mut self) -> bool {
        // The guest must see the used chains before this looks at its wish.
        fence(Ordering::SeqCst);
        let (memory, at) = (&self.available.region.memory, self.available.at);
        let before = std::mem::replace(&mut self.signalled, self.next_used);
        if !self.has_event_idx {
            return memory.load_u16(at) & NO_SIGNAL == 0;
        }
        let event = memory.load_u16(at + 4 + 2 * usize::from(self.size));
        self.next_used.wrapping_sub(event).wrapping_sub(1) < self.next_used.wrapping_sub(before)
    }

    /// Asks for no kicks, as far as the guest honours that.
    pub(super) fn disable_kicks(&self) {
        // With event indexes none comes anyway until the next one is asked for.
        if !self.has_event_idx {
            self.used.region.memory.store_u16(self.used.at, NO_SIGNAL);
        }
    }

    /// Asks for a kick for the next available chain; true if there is one already.
    pub(super) fn enable_kicks(&self) -> bool {
        let memory = &self.used.region.memory;
        match self.has_event_idx {
            true => memory.store_u16(self.used.at + 4 + 8 * usize::from(self.size), self.next_available),
            false => memory.store_u16(self.used.at, 0),
        }
        // The guest must see the wish before this looks for chains.
        fence(Ordering::SeqCst);
        self.available.region.memory.load_u16(self.available.at + 2) != self.next_available
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost::fuzzing::memory_of;

    const AVAILABLE_AT: usize = 0x4000;
    const USED_AT: usize = 0x5000;

    fn ring(has_event_idx: bool) -> (Ring, Place) {
        let memory = Rc::new(memory_of(&[]).expect("memory"));
        let at = RingAt { size: 8, descriptors: 0, used: USED_AT as u64, available: AVAILABLE_AT as u64 };
        let place = memory.at_user(0, 0x6000).expect("within the first region");
        (Ring::new(memory, at, has_event_idx, 0).expect("a ring"), place)
    }

    #[test]
    fn signals_follow_the_flag_of_the_guest() {
        let (mut ring, place) = ring(false);
        ring.push_used(0, 1);
        assert!(ring.wants_signal());
        place.region.memory.store_u16(AVAILABLE_AT, NO_SIGNAL);
        ring.push_used(1, 1);
        assert!(!ring.wants_signal());
    }

    #[test]
    fn signals_follow_the_event_index_of_the_guest() {
        let (mut ring, place) = ring(true);
        let wait_for = |used: u16| place.region.memory.store_u16(AVAILABLE_AT + 4 + 2 * 8, used);
        ring.push_used(0, 1);
        assert!(ring.wants_signal(), "the guest waits for the first");
        ring.push_used(1, 1);
        assert!(!ring.wants_signal(), "it has not asked for another");
        wait_for(4);
        for head in 2..5 {
            assert!(!ring.wants_signal(), "{head}");
            ring.push_used(head, 1);
        }
        assert!(ring.wants_signal());
    }

    #[test]
    fn kicks_are_asked_for_before_the_last_look() {
        for has_event_idx in [false, true] {
            let (mut ring, place) = ring(has_event_idx);
            ring.set_next_available(7);
            place.region.memory.store_u16(AVAILABLE_AT + 2, 7);
            ring.disable_kicks();
            assert_eq!(place.region.memory.load_u16(USED_AT) == NO_SIGNAL, !has_event_idx);
            assert!(!ring.enable_kicks());
            assert_eq!(place.region.memory.load_u16(USED_AT), 0);
            if has_event_idx {
                assert_eq!(place.region.memory.load_u16(USED_AT + 4 + 8 * 8), 7);
            }
            place.region.memory.store_u16(AVAILABLE_AT + 2, 8);
            assert!(ring.enable_kicks(), "one has come");
        }
    }
}
