//! Checkpoints: changed pages go to the drives, first all the copies, then, when those are durable,
//! all the own places.
//!
//! So at any instant at least one of the two places of every page is whole: a cut tears copies only
//! while the own pages are what they were, and own pages only while the copies are durable. What a
//! page says at such a cut is the old or the new. A page that changes while it is being written is
//! written as it is at that moment, twice perhaps in two versions, and stays changed: whatever was
//! set before the checkpoint began is durable at its end, in both places.
//!
//! A cut may leave the new page at one place only, and the drive with it may be lost at the next
//! cut. Nothing durable rests on that page alone: the records that say the same are in the journal
//! until a checkpoint has written both places, so they are found and carried out at the next
//! opening, and that ends with a checkpoint before any of them is released. A page of which one
//! place is behind counts as changed when it is loaded (`store.rs`), so that checkpoint writes it
//! to both.
//!
//! Memory: at most [`super::ChecksumOptions::window_pages`] are under way at a time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use stripewise_drive::{DriveErrorKind, Event};

use super::entries::Page;
use super::page::PAGE_BYTES;
use super::{Checksums, PageId, Side};
use crate::error::ArrayError;

/// A page whose drive gives errors, yet is not excluded for them, is tried so often.
const ATTEMPTS: usize = 4;

/// Who checkpoints, and how often that was begun and done.
#[derive(Default)]
pub(super) struct CheckpointState {
    running: Cell<bool>,
    begun: Cell<u64>,
    /// The latest that succeeded, as numbered by `begun`.
    done: Cell<u64>,
    ended: Event,
}

/// What a checkpoint wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Pages, each counted once; 0 also where another checkpoint had done it all.
    pub pages: u64,
}

/// The pages of a checkpoint; those that are not done go back to where they came from, however it
/// ends.
struct Batch<'a> {
    checksums: &'a Checksums,
    /// With the version that is durable in the copy.
    pages: Vec<(Rc<Page>, u64)>,
    succeeded: bool,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let checksums = self.checksums;
        let mut dirty = checksums.dirty.borrow_mut();
        for (page, version) in self.pages.drain(..) {
            if page.forgotten.get() {
                continue;
            }
            if self.succeeded && page.version.get() == version {
                page.dirty.set(false);
                page.confirmed.set(true);
                checksums.dirty_pages.set(checksums.dirty_pages.get() - 1);
            } else {
                dirty.push(page);
            }
        }
        drop(dirty);
        checksums.checkpoints.running.set(false);
        checksums.checkpoints.ended.notify_all();
    }
}

impl Checksums {
    /// Makes durable, in both places, everything that was set or cleared before. Until it ends
    /// without an error the journal's entries must be kept that came before it.
    pub async fn checkpoint(&self) -> Result<CheckpointReport, ArrayError> {
        let state = &self.checkpoints;
        let wanted = state.begun.get() + 1;
        while state.running.get() {
            state.ended.wait().await;
            if state.done.get() >= wanted {
                return Ok(CheckpointReport::default());
            }
        }
        state.running.set(true);
        state.begun.set(state.begun.get() + 1);
        let number = state.begun.get();
        let mut pages: Vec<_> = self.dirty.take().into_iter().map(|page| (page, 0)).collect();
        // Row by row, all columns of a row together: in the order in which they lie on the drives,
        // and on all of them at once.
        pages.sort_unstable_by_key(|(page, _)| page.key);
        let mut batch = Batch { checksums: self, pages, succeeded: false };
        let report = CheckpointReport { pages: batch.pages.len() as u64 };
        if report.pages > 0 {
            self.write_durably(&mut batch.pages, Side::Copy).await?;
            self.write_durably(&mut batch.pages, Side::Own).await?;
        }
        batch.succeeded = true;
        state.done.set(number);
        self.count(|counters| counters.checkpoints += 1);
        Ok(report)
    }

    /// Ends when the writes of pages that are under way now were answered: slabs that no page goes
    /// to any more may be used for something else then.
    pub async fn until_written(&self) {
        if self.checkpoints.running.get() {
            self.checkpoints.ended.wait().await;
        }
    }

    async fn write_durably(&self, pages: &mut [(Rc<Page>, u64)], side: Side) -> Result<(), ArrayError> {
        let losses = self.io.losses();
        self.write_all(pages, side).await?;
        self.io.flush().await?;
        if self.io.losses() == losses { Ok(()) } else { Err(ArrayError::NotDurable) }
    }

    /// Writes one place of all pages. Ends only when every write was answered, errors or not: the
    /// next checkpoint must not meet writes of this one.
    async fn write_all(&self, pages: &mut [(Rc<Page>, u64)], side: Side) -> Result<(), ArrayError> {
        let mut result = Ok(());
        let mut under_way = VecDeque::with_capacity(self.window_pages.min(pages.len()));
        for (page, version) in pages {
            if under_way.len() == self.window_pages {
                let (page, answer) = under_way.pop_front().expect("a full window");
                result = result.and(self.finish(page, side, answer).await);
            }
            if page.forgotten.get() || result.is_err() {
                continue;
            }
            if side == Side::Copy {
                *version = page.version.get();
            }
            under_way.push_back((page.clone(), self.write_page(page, side)));
        }
        for (page, answer) in under_way {
            result = result.and(self.finish(page, side, answer).await);
        }
        result
    }

    /// Starts writing a page as it is now. Both places of one version carry the same stamp. A page
    /// of which no place was at hand, and in which nothing was changed since, has the stamp 0: a
    /// place that comes back knows more.
    fn write_page(&self, page: &Page, side: Side) -> stripewise_drive::Completion {
        let is_unknown = page.stamp.get() == 0 && page.version.get() == 0;
        let is_stamped = page.stamp.get() > 0 && page.stamped_version.get() == page.version.get();
        if !is_unknown && !is_stamped {
            page.stamp.set(self.next_stamp.get());
            page.stamped_version.set(page.version.get());
            self.next_stamp.set(self.next_stamp.get() + 1);
        }
        let buffer = self.buffers.allocate(PAGE_BYTES);
        buffer.with_mut(|bytes| page.encode(self.spec.volume_id, bytes));
        self.io.write(page.id, side, buffer)
    }

    async fn finish(
        &self,
        page: Rc<Page>,
        side: Side,
        mut answer: stripewise_drive::Completion,
    ) -> Result<(), ArrayError> {
        let id: PageId = page.id;
        for attempt in 1.. {
            let error = match answer.await {
                Ok(()) => {
                    self.count(|counters| counters.pages_written += 1);
                    return Ok(());
                }
                Err(error) => error,
            };
            // A place without a drive needs nothing: where both are missing, so are the blocks.
            if error.kind == DriveErrorKind::Gone {
                return Ok(());
            }
            self.io.report(id, side, &error).await?;
            if attempt == ATTEMPTS {
                return Err(error.into());
            }
            if page.forgotten.get() {
                return Ok(());
            }
            answer = self.write_page(&page, side);
        }
        unreachable!("the loop ends by returning")
    }
}
