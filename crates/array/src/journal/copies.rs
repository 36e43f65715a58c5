//! Restores missing copies: live batches that lost a copy with an area are read from another one
//! and written again.
//!
//! Faults expected: torn or unreadable copies (another one is read), areas that fail, lack of
//! space.

use stripewise_drive::{Buffer, Segments};

use super::area::{Area, HEADER_PAGES};
use super::batch::{self, PAGE_BYTES};
use super::scan::{payload_is_sound, read};
use super::state::{Batch, Copy};
use super::{Inner, Journal};
use crate::error::ArrayError;

impl Journal {
    /// Writes further copies of live batches that have too few, as far as there is space: after an
    /// area was lost or came in. Returns the number of batches that still lack copies.
    pub(crate) async fn restore_copies(&self) -> Result<u64, ArrayError> {
        let inner = &self.0;
        let numbers: Vec<u64> = {
            let state = inner.state.borrow();
            let target = state.target();
            let lacks = |batch: &&Batch| batch.acknowledged && state.copies_of(batch) < target;
            state.batches.iter().filter(lacks).map(|batch| batch.number).collect()
        };
        let mut lacking = 0;
        for number in numbers {
            while let Some(whole) = inner.next_restore(number) {
                if !inner.restore_copy(number, whole).await? {
                    lacking += 1;
                    break;
                }
            }
        }
        Ok(lacking)
    }
}

impl Inner {
    /// Number of pages of a batch that needs another copy. `None` if it has enough, or is gone.
    fn next_restore(&self, number: u64) -> Option<u64> {
        let state = self.state.borrow();
        let batch = state.batches.iter().find(|batch| batch.number == number)?;
        (state.copies_of(batch) < state.target()).then_some(batch.pages)
    }

    /// Writes another copy of a batch. `false` if there is no space, or no copy can be read.
    async fn restore_copy(&self, number: u64, pages: u64) -> Result<bool, ArrayError> {
        let Some((whole, copy)) = self.read_and_place(number, pages).await else { return Ok(false) };
        let written = self.write_copy(copy.ring, copy.start, &Segments::from_iter([whole])).await?;
        let mut state = self.state.borrow_mut();
        if let Some(ring) = state.ring(copy.ring) {
            ring.in_flight -= 1;
        }
        // All of its records may have been released during the write.
        if written && state.batches.iter().any(|batch| batch.number == number) {
            state.batch(number).copies.push(copy);
        }
        drop(state);
        self.changed();
        Ok(true)
    }

    async fn read_and_place(&self, number: u64, pages: u64) -> Option<(Buffer, Copy)> {
        let (sources, header): (Vec<(Area, u64)>, _) = {
            let mut state = self.state.borrow_mut();
            let copies = state.batch(number).copies.clone();
            let places = copies
                .iter()
                .filter_map(|copy| Some((state.ring(copy.ring)?.area.clone(), copy.start)))
                .collect();
            (places, (self.volume_id, self.epoch))
        };
        for (area, start) in sources {
            let at = (HEADER_PAGES + start) * PAGE_BYTES;
            let Ok(whole) = read(&area, &self.buffers, at, pages * PAGE_BYTES).await else { continue };
            let first = whole.slice(0..PAGE_BYTES as usize);
            let Some(read_header) =
                first.with(|bytes| batch::decode_header(bytes, header.0, header.1)).flatten()
            else {
                continue;
            };
            let head = whole.slice(0..read_header.head_bytes.min(pages * PAGE_BYTES) as usize);
            let decoded = head.with(|bytes| batch::decode(bytes, header.0, header.1)).flatten();
            let sound = decoded.is_some_and(|decoded| {
                decoded.header.number == number
                    && decoded.header.pages() == pages
                    && decoded.records.iter().all(|(_, payload)| payload_is_sound(&whole, payload))
            });
            if !sound {
                continue;
            }
            let mut state = self.state.borrow_mut();
            let copies = state.batches.iter().find(|batch| batch.number == number)?.copies.clone();
            let (longest, note_pages) = (state.longest_batch(), state.note_pages());
            let index = (0..state.rings.len()).find(|&index| {
                let ring = &state.rings[index];
                !ring.failing
                    && copies.iter().all(|copy| copy.ring != ring.id)
                    && state.spare(index, longest, note_pages) >= pages
                    // Keep room for destaging, or nothing could be freed any more.
                    && state.leaves_enough(ring, pages, 2 * longest)
            })?;
            let ring = &mut state.rings[index];
            let start = ring.allocate(number, pages)?;
            ring.in_flight += 1;
            let copy = Copy { ring: ring.id, start };
            let written_at = state.next_number;
            head.with_mut(|bytes| batch::rewrite(bytes, written_at));
            return Some((whole, copy));
        }
        None
    }
}
