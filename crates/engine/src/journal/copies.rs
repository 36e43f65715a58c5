//! Copies made up for: batches in use that an area took along when it was lost are read from
//! another one and written again.
//!
//! Faults expected: copies that are torn or unreadable (another one is read), areas that fail, no
//! room.

use stripewise_drive::{Buffer, Segments};

use super::area::{Area, HEADER_PAGES};
use super::batch::{self, PAGE_BYTES};
use super::scan::{payload_is_sound, read};
use super::state::{Batch, Copy};
use super::{Inner, Journal};
use crate::error::ArrayError;

impl Journal {
    /// Gives batches in use that have fewer copies than they should further ones, where there is
    /// room: after an area was lost or came in. Gives how many still lack some.
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
    /// What has to be read for one more copy of a batch: its places and its pages. `None`: it has
    /// enough, or is gone.
    fn next_restore(&self, number: u64) -> Option<u64> {
        let state = self.state.borrow();
        let batch = state.batches.iter().find(|batch| batch.number == number)?;
        (state.copies_of(batch) < state.target()).then_some(batch.pages)
    }

    /// One more copy of a batch. `false`: there is no room, or no copy can be read.
    async fn restore_copy(&self, number: u64, pages: u64) -> Result<bool, ArrayError> {
        let Some((whole, copy)) = self.read_and_place(number, pages).await else { return Ok(false) };
        let written = self.write_copy(copy.ring, copy.start, &Segments::from_iter([whole])).await?;
        let mut state = self.state.borrow_mut();
        if let Some(ring) = state.ring(copy.ring) {
            ring.in_flight -= 1;
        }
        // Everything in it may have been released meanwhile.
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
                    // Else nothing could be destaged any more, and so nothing freed.
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
