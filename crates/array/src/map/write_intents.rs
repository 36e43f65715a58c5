//! The write-intent bitmap of a volume: the chunks that may have writes in flight.
//!
//! A *chunk* is 64 regions ([`MapGrain`]). Its bit is durable before the first write into it and is
//! cleared when it has been quiet for a while: after a crash only dirty chunks can have copies or
//! parity that disagree, and only they are resynchronised. The bits are on the pages of the region
//! map (`map/pages.rs`). In memory: 8 bytes per chunk.

use std::cell::RefCell;
use std::collections::TryReserveError;
use std::ops::Range;

use crate::map::reserve;
use crate::tuning::MapGrain;

#[derive(Default, Clone, Copy)]
struct Chunk {
    /// Has to be dirty in the map.
    dirty: bool,
    /// The durable map has it as dirty.
    durable: bool,
    /// After a crash: copies or parity may disagree here until resynchronised.
    unsynced: bool,
    /// Written to since the bit-clearing task last ran.
    touched: bool,
    in_flight: u32,
}

pub(crate) struct WriteIntents {
    regions_per_chunk: u64,
    chunks: RefCell<Vec<Chunk>>,
}

impl WriteIntents {
    pub(super) fn new(grain: MapGrain) -> Self {
        Self { regions_per_chunk: grain.regions_per_chunk, chunks: RefCell::default() }
    }

    /// Allocates memory for this many regions.
    pub(super) fn make_room(&self, regions: u64) -> Result<(), TryReserveError> {
        reserve(&self.chunks, regions.div_ceil(self.regions_per_chunk))
    }

    pub(super) fn resize(&self, regions: u64) {
        let chunks = regions.div_ceil(self.regions_per_chunk) as usize;
        self.chunks.borrow_mut().resize(chunks, Chunk::default());
    }

    fn chunk_of(&self, region: u64) -> usize {
        (region / self.regions_per_chunk) as usize
    }

    /// Chunks of the regions of a page; a page begins with a chunk.
    fn chunks_of(&self, regions: &Range<u64>) -> Range<usize> {
        self.chunk_of(regions.start)..regions.end.div_ceil(self.regions_per_chunk) as usize
    }

    /// Counts a write as in flight. `true` if it needs the bit, and the bit is new.
    pub(super) fn begin_write(&self, region: u64, needs_bit: bool) -> bool {
        let chunk = &mut self.chunks.borrow_mut()[self.chunk_of(region)];
        chunk.in_flight += 1;
        chunk.touched = true;
        let is_new = needs_bit && !chunk.dirty;
        chunk.dirty |= needs_bit;
        is_new
    }

    /// Ends a write.
    pub(super) fn end_write(&self, region: u64) {
        self.chunks.borrow_mut()[self.chunk_of(region)].in_flight -= 1;
    }

    /// Sets the bit of the region's chunk.
    pub(super) fn set(&self, region: u64) {
        let chunk = &mut self.chunks.borrow_mut()[self.chunk_of(region)];
        chunk.dirty = true;
        chunk.touched = true;
    }

    pub(super) fn is_set(&self, region: u64) -> bool {
        self.chunks.borrow()[self.chunk_of(region)].dirty
    }

    /// True if the durable map has the bit.
    pub(super) fn is_durable(&self, region: u64) -> bool {
        self.chunks.borrow()[self.chunk_of(region)].durable
    }

    /// Notes that the bits of a map page are durable in their current state.
    pub(super) fn note_durable(&self, regions: &Range<u64>) {
        for chunk in &mut self.chunks.borrow_mut()[self.chunks_of(regions)] {
            chunk.durable = chunk.dirty;
        }
    }

    /// Calls `take` with the number, within the map page, of each set bit.
    pub(super) fn for_each_set(&self, regions: &Range<u64>, mut take: impl FnMut(usize)) {
        let chunks = &self.chunks.borrow()[self.chunks_of(regions)];
        chunks.iter().enumerate().filter(|(_, chunk)| chunk.dirty).for_each(|(bit, _)| take(bit));
    }

    /// Loads the bits of a map page, after a crash or a close.
    pub(super) fn load(&self, regions: &Range<u64>, is_set: impl Fn(usize) -> bool) {
        for (bit, chunk) in self.chunks.borrow_mut()[self.chunks_of(regions)].iter_mut().enumerate() {
            let dirty = is_set(bit);
            *chunk = Chunk { dirty, durable: dirty, unsynced: dirty, ..Chunk::default() };
        }
    }

    /// True if a crash may have left copies or parity of this region disagreeing.
    pub(crate) fn is_unsynced(&self, region: u64) -> bool {
        self.chunks.borrow()[self.chunk_of(region)].unsynced
    }

    pub(crate) fn unsynced_chunks(&self) -> Vec<u64> {
        let chunks = self.chunks.borrow();
        (0..chunks.len() as u64).filter(|&index| chunks[index as usize].unsynced).collect()
    }

    pub(crate) fn mark_synced(&self, chunk: u64) {
        self.chunks.borrow_mut()[chunk as usize].unsynced = false;
    }

    /// True if a chunk is dirty for another reason than an old crash.
    pub(crate) fn any_to_clear(&self) -> bool {
        self.chunks.borrow().iter().any(|chunk| chunk.dirty && !chunk.unsynced)
    }

    /// Chunks that were quiet since the last call (or, with `all`, that have no write in flight):
    /// candidates to be marked clean once a flush has made their data durable.
    pub(crate) fn quiet_chunks(&self, all: bool) -> Vec<u64> {
        let mut chunks = self.chunks.borrow_mut();
        let mut quiet = Vec::new();
        for (index, chunk) in chunks.iter_mut().enumerate() {
            let touched = std::mem::replace(&mut chunk.touched, false);
            if chunk.dirty && !chunk.unsynced && chunk.in_flight == 0 && (all || !touched) {
                quiet.push(index as u64);
            }
        }
        quiet
    }

    /// Clears the bits of those `quiet` chunks that are still quiet; returns the first region of
    /// each.
    pub(super) fn clear(&self, quiet: &[u64]) -> Vec<u64> {
        let mut chunks = self.chunks.borrow_mut();
        let mut cleared = Vec::new();
        for &index in quiet {
            let chunk = &mut chunks[index as usize];
            if chunk.dirty && chunk.in_flight == 0 && !chunk.touched {
                chunk.dirty = false;
                // The clean bit is not durable yet, but a new write must make the dirty bit durable
                // again.
                chunk.durable = false;
                cleared.push(index * self.regions_per_chunk);
            }
        }
        cleared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_is_cleared_only_if_unwritten_since_last_look() {
        let intents = WriteIntents::new(MapGrain::default());
        intents.resize(200);
        assert!(intents.begin_write(70, true));
        assert!(!intents.begin_write(71, true), "same chunk");
        intents.end_write(70);
        assert!(intents.quiet_chunks(true).is_empty(), "a write is in flight");
        intents.end_write(71);
        intents.set(70);
        assert!(intents.quiet_chunks(false).is_empty(), "touched since");
        let quiet = intents.quiet_chunks(false);
        assert_eq!(quiet, [1]);
        intents.begin_write(64, true);
        intents.end_write(64);
        assert!(intents.clear(&quiet).is_empty(), "written during the flush");
        let quiet = intents.quiet_chunks(true);
        assert_eq!((intents.clear(&quiet), intents.is_set(70)), (vec![64], false));
        assert!(intents.begin_write(64, true), "a new write sets it again");
    }

    #[test]
    fn bits_set_before_a_crash_stay_set_until_resync() {
        let intents = WriteIntents::new(MapGrain::default());
        intents.resize(200);
        intents.load(&(0..200), |bit| bit == 2);
        assert_eq!((intents.unsynced_chunks(), intents.is_unsynced(130)), (vec![2], true));
        assert!(!intents.any_to_clear() && intents.quiet_chunks(true).is_empty());
        intents.mark_synced(2);
        assert!(intents.any_to_clear());
        assert_eq!(intents.quiet_chunks(true), [2]);
    }
}
