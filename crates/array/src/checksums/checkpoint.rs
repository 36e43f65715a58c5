//! Checkpoints write dirty pages to the drives, in turns. The two places of a page are never
//! written in the same turn, and a turn begins once the writes of the previous one are durable.
//!
//! So at any instant at least one of the two places of every page is intact: a power cut tears one
//! only while the other is unchanged, or durably new. After a cut a page has its old or its new
//! contents. A turn writes to the drive of every other column, both the column's own pages and the
//! copies on that drive: these are adjacent, so that the drive's queue merges them. With an odd
//! number of columns the last column has a turn by itself, since it is a neighbour of the first; a
//! volume of one column has its copies written first, then its own pages.
//!
//! A page that changes while it is being written is written in its state at that moment, possibly
//! in a different version to each place, and stays dirty: every change made before the checkpoint
//! began is durable at its end, in both places.
//!
//! A cut may leave the new page at one place only, and the drive with it may be lost at the next
//! cut. Nothing durable relies on that page alone: the journal keeps the records of the same
//! changes until a checkpoint has written both places, so the next opening replays them, and replay
//! ends with a checkpoint before any of them is released. A page with one outdated place is loaded
//! as dirty (`store.rs`), so that checkpoint writes it to both.
//!
//! A place on a drive that is being filled does not count before its column is complete. Pages
//! whose other place is current are written to such a place alone, own pages and copies in one run
//! (`Checksums::fill_places`).
//!
//! On seek-bound drives, unchanged pages that lie between dirty ones are written again, so that a
//! turn consists of a few long requests. Their bytes are the ones already on the drive, so a torn
//! write changes nothing: they do not depend on the other place, and this holds for a degraded
//! array too. A place that is being filled does not count yet, whatever is written there.
//!
//! Memory: at most [`super::ChecksumOptions::window_pages`] page writes are in flight.

use std::collections::VecDeque;
use std::rc::Rc;

use stripewise_drive::DriveErrorKind;

use super::cache::Pinned;
use super::entries::Page;
use super::page::PAGE_BYTES;
use super::{Checksums, PageId, Side};
use crate::error::ArrayError;
use crate::mutation::{self, Mutation};

/// Attempts to write a page to a drive that gives errors and is not excluded for them.
const ATTEMPTS: usize = 4;
/// Maximum turns of a checkpoint.
const TURNS: usize = 3;

/// Result of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Pages written, each counted once; 0 also if another checkpoint had written them all.
    pub pages: u64,
}

/// The pages of a checkpoint. However it ends, pages that were not written become dirty again.
struct Batch<'a> {
    checksums: &'a Checksums,
    /// Dirty pages, with the version that was written first, once it was.
    pages: Vec<(Rc<Page>, Option<u64>)>,
    /// Pages to be written to one new place only.
    to_fill: Vec<(Pinned, Side)>,
    succeeded: bool,
}

/// A page due for writing at one of its places.
struct Due {
    page: Rc<Page>,
    side: Side,
    /// See [`Checksums::place_on_holder`].
    at: u64,
    /// Index of the page in the batch; `None` for an unchanged page.
    changed: Option<usize>,
    /// Keeps an unchanged page in memory until it is written: a task that loads it during the write
    /// might read half of it.
    _pin: Option<Pinned>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let checksums = self.checksums;
        let mut dirty = checksums.dirty.borrow_mut();
        for (page, version) in self.pages.drain(..) {
            if page.forgotten.get() {
                continue;
            }
            if self.succeeded && version == Some(page.version.get()) {
                page.dirty.set(false);
                page.confirmed.set(true);
                checksums.dirty_pages.set(checksums.dirty_pages.get() - 1);
            } else {
                dirty.push(page);
            }
        }
        drop(dirty);
        if !self.succeeded {
            checksums.to_fill.borrow_mut().append(&mut self.to_fill);
        }
        checksums.checkpoints.running.set(false);
        checksums.checkpoints.ended.notify_all();
    }
}

impl Checksums {
    /// Makes every change made before durable in both places. The journal's records of these
    /// changes must be kept until a checkpoint ends without an error.
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
        let pages: Vec<_> = self.dirty.take().into_iter().map(|page| (page, None)).collect();
        // A page that is changed goes to both of its places anyway.
        let mut to_fill = self.to_fill.take();
        to_fill.retain(|(page, _)| !page.dirty.get());
        // In on-drive order. Retries can queue a place twice.
        let place = |(page, side): &(Pinned, Side)| (page.key >> 16, *side == Side::Copy, page.key as u16);
        to_fill.sort_unstable_by_key(place);
        to_fill.dedup_by_key(|one| place(one));
        let mut batch = Batch { checksums: self, pages, to_fill, succeeded: false };
        let report = CheckpointReport { pages: batch.pages.len() as u64 };
        let Batch { pages, to_fill, .. } = &mut batch;
        for turn in 0..TURNS {
            // New places do not count yet, so the first turn may write all of them.
            let to_fill: &[(Pinned, Side)] = if turn == 0 { to_fill } else { &[] };
            let filled = to_fill.iter().map(|(page, side)| ((*page).clone(), *side));
            let mut due = self.due(pages, turn);
            due.extend(self.between(&due, to_fill));
            due.sort_unstable_by_key(|due| due.at);
            let pages_due = due.iter().map(|due| {
                if let Some(index) = due.changed {
                    pages[index].1.get_or_insert(due.page.version.get());
                }
                (due.page.clone(), due.side)
            });
            self.write_durably(filled.chain(pages_due)).await?;
        }
        batch.succeeded = true;
        state.done.set(number);
        self.count(|counters| counters.checkpoints += 1);
        Ok(report)
    }

    /// Waits for the page writes in flight: afterwards, slabs that receive no more pages can be
    /// reused.
    pub(crate) async fn until_written(&self) {
        if self.checkpoints.running.get() {
            self.checkpoints.ended.wait().await;
        }
    }

    /// The places of changed pages that are written in a turn.
    fn due(&self, pages: &[(Rc<Page>, Option<u64>)], turn: usize) -> Vec<Due> {
        let places = pages.iter().enumerate().flat_map(|page| [(page, Side::Own), (page, Side::Copy)]);
        let due = places.filter(|((_, (page, _)), side)| self.turn(page.id, *side) == turn);
        let due = due.map(|((index, (page, _)), side)| {
            let at = self.place_on_holder(page.id, side);
            Due { page: page.clone(), side, at, changed: Some(index), _pin: None }
        });
        due.collect()
    }

    /// Unchanged pages between those that a turn writes anyway, if the gap is small and all of its
    /// pages are in memory: writing them along saves seeks. None of them may be among the other
    /// pages, or two writes of one place would be in flight at once.
    fn between(&self, due: &[Due], to_fill: &[(Pinned, Side)]) -> Vec<Due> {
        let most = self.io.most_between();
        let mut places: Vec<(u16, u64)> = Vec::new();
        if most > 0 {
            let place = |page: PageId, side| (self.holder(page, side), self.place_on_holder(page, side));
            places.extend(due.iter().map(|due| place(due.page.id, due.side)));
            places.extend(to_fill.iter().map(|(page, side)| place(page.id, *side)));
            places.sort_unstable();
        }
        let mut found = Vec::new();
        for pair in places.windows(2) {
            let [(holder, from), (next_holder, to)] = *pair else { unreachable!("windows of two") };
            if holder == next_holder && (2..=most + 1).contains(&(to - from)) {
                let unchanged: Option<Vec<Due>> =
                    (from + 1..to).map(|at| self.unchanged_at(holder, at)).collect();
                found.extend(unchanged.into_iter().flatten());
            }
        }
        found
    }

    /// The page at a place of a column's drive, if it is in memory and unchanged.
    fn unchanged_at(&self, holder: u16, at: u64) -> Option<Due> {
        let per_slab = u64::from(self.pages_per_slab());
        let (row, within) = (at / (2 * per_slab), at % (2 * per_slab));
        let (side, column) = match within < per_slab {
            true => (Side::Own, holder),
            false => (Side::Copy, (holder + self.spec.width - 1) % self.spec.width),
        };
        let page = self.cache.get(Self::key(column, self.number(row, (within % per_slab) as u16)))?;
        let is_on_drives = page.confirmed.get() && page.stamp.get() > 0 && !page.dirty.get();
        (is_on_drives && self.io.is_there(page.id, side)).then(|| Due {
            page: page.clone(),
            side,
            at,
            changed: None,
            _pin: Some(Pinned::new(page)),
        })
    }

    /// Column whose drive holds a place of a page.
    fn holder(&self, page: PageId, side: Side) -> u16 {
        match side {
            Side::Own => page.column,
            Side::Copy => (page.column + 1) % self.spec.width,
        }
    }

    /// Position of a place of a page on its drive, in pages, as if the slabs of all rows were
    /// contiguous.
    fn place_on_holder(&self, page: PageId, side: Side) -> u64 {
        let per_slab = u64::from(self.pages_per_slab());
        let copies_from = if side == Side::Copy { per_slab } else { 0 };
        page.row * 2 * per_slab + copies_from + u64::from(page.page)
    }

    /// The turn in which a place of a page is written.
    fn turn(&self, page: PageId, side: Side) -> usize {
        if mutation::is_chosen(Mutation::CheckpointInOneTurn) {
            return 0;
        }
        let width = self.spec.width;
        if width == 1 {
            return usize::from(side == Side::Own);
        }
        let holder = self.holder(page, side);
        if width % 2 == 1 && holder == width - 1 { 2 } else { usize::from(holder % 2) }
    }

    /// Writes one place of each page and makes the writes durable.
    async fn write_durably(&self, pages: impl Iterator<Item = (Rc<Page>, Side)>) -> Result<(), ArrayError> {
        let mut pages = pages.peekable();
        if pages.peek().is_none() {
            return Ok(());
        }
        let losses = self.io.losses();
        self.write_all(pages).await?;
        self.io.flush().await?;
        if self.io.losses() == losses { Ok(()) } else { Err(ArrayError::NotDurable) }
    }

    /// Writes each page to one place, encoding it when its turn comes. Returns only when every
    /// write was answered, with an error or not: the next checkpoint must not meet writes of this
    /// one.
    async fn write_all(&self, pages: impl Iterator<Item = (Rc<Page>, Side)>) -> Result<(), ArrayError> {
        let mut result = Ok(());
        let mut in_flight = VecDeque::with_capacity(self.window_pages.min(pages.size_hint().0));
        for (page, side) in pages {
            if in_flight.len() == self.window_pages {
                let (page, side, answer) = in_flight.pop_front().expect("a full window");
                result = result.and(self.finish(page, side, answer).await);
            }
            if page.forgotten.get() || result.is_err() {
                continue;
            }
            let answer = self.write_page(&page, side);
            in_flight.push_back((page, side, answer));
        }
        for (page, side, answer) in in_flight {
            result = result.and(self.finish(page, side, answer).await);
        }
        result
    }

    /// Starts writing a page in its current state. Both places of one version carry the same stamp.
    /// A page of which no place was available, and which was not changed since, keeps stamp 0: a
    /// place that returns is newer.
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
            // A place without a drive needs no page: if both drives are missing, so are the blocks.
            if error.kind == DriveErrorKind::Gone {
                page.at_both_places.set(false);
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
