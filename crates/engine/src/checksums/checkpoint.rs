//! Checkpoints: changed pages go to the drives, in turns. The two places of a page are never
//! written in the same turn, and a turn begins when what the one before wrote is durable.
//!
//! So at any instant at least one of the two places of every page is whole: a cut tears one only
//! while the other is what it was, or durably new. What a page says at such a cut is the old or the
//! new. A turn is of every other column's drive, with the own pages and the copies that it keeps:
//! these lie side by side on it, so that its queue merges them. Of an odd number of columns the
//! last has a turn by itself, since it is a neighbour of the first; a volume of one column has its
//! copies written first, then its own pages.
//!
//! A page that changes while it is being written is written as it is at that moment, twice perhaps
//! in two versions, and stays changed: whatever was set before the checkpoint began is durable at
//! its end, in both places.
//!
//! A cut may leave the new page at one place only, and the drive with it may be lost at the next
//! cut. Nothing durable rests on that page alone: the records that say the same are in the journal
//! until a checkpoint has written both places, so they are found and carried out at the next
//! opening, and that ends with a checkpoint before any of them is released. A page of which one
//! place is behind counts as changed when it is loaded (`store.rs`), so that checkpoint writes it
//! to both.
//!
//! A place on a drive that is being filled does not count before its column is complete. Pages
//! whose other place is as it should be go to such a place alone, with the copies, and their own
//! and copied pages in one run (`Checksums::fill_places`).
//!
//! On drives whose positions are dear, unchanged pages that lie between changed ones are written
//! again, so that a turn is a few long requests. Each byte of them is what is there already,
//! whichever part of them a cut lets through; so they need no other place, and this holds for a
//! degraded array too. A place that is being filled does not count yet, whatever goes there.
//!
//! Memory: at most [`super::ChecksumOptions::window_pages`] are under way at a time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use stripewise_drive::{DriveErrorKind, Event};

use super::cache::Pinned;
use super::entries::Page;
use super::page::PAGE_BYTES;
use super::{Checksums, PageId, Side};
use crate::error::ArrayError;
use crate::mutation::{self, Mutation};

/// A page whose drive gives errors, yet is not excluded for them, is tried so often.
const ATTEMPTS: usize = 4;
/// Turns of a checkpoint, at most.
const TURNS: usize = 3;

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
    /// With the version that was written first, once it was.
    pages: Vec<(Rc<Page>, Option<u64>)>,
    /// What goes to one place, which is new.
    to_fill: Vec<(Pinned, Side)>,
    succeeded: bool,
}

/// A page to be written to one of its places.
struct Due {
    page: Rc<Page>,
    side: Side,
    /// See [`Checksums::place_on_holder`].
    at: u64,
    /// Which of the batch's pages it is; `None`: one that did not change.
    changed: Option<usize>,
    /// Keeps a page that did not change in memory until it is written: who loaded it meanwhile
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
        let pages: Vec<_> = self.dirty.take().into_iter().map(|page| (page, None)).collect();
        // A page that is changed goes to both of its places anyway.
        let mut to_fill = self.to_fill.take();
        to_fill.retain(|(page, _)| !page.dirty.get());
        // In the order in which they lie on the drive. Twice in it is what is tried again.
        let place = |(page, side): &(Pinned, Side)| (page.key >> 16, *side == Side::Copy, page.key as u16);
        to_fill.sort_unstable_by_key(place);
        to_fill.dedup_by_key(|one| place(one));
        let mut batch = Batch { checksums: self, pages, to_fill, succeeded: false };
        let report = CheckpointReport { pages: batch.pages.len() as u64 };
        let Batch { pages, to_fill, .. } = &mut batch;
        for turn in 0..TURNS {
            // What is to be filled does not count yet, whatever else is written meanwhile.
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

    /// Ends when the writes of pages that are under way now were answered: slabs that no page goes
    /// to any more may be used for something else then.
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

    /// Unchanged pages that lie on their drives between those that a turn writes anyway, where they
    /// are few and all of them in memory: writing them along saves positions. None of them is among
    /// the others: two writes of one place would be under way at once.
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

    /// The page at a place of a column's drive, if it is in memory as it is on the drives.
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

    /// The column on whose drive a place of a page is.
    fn holder(&self, page: PageId, side: Side) -> u16 {
        match side {
            Side::Own => page.column,
            Side::Copy => (page.column + 1) % self.spec.width,
        }
    }

    /// Where a place of a page lies on its drive, in pages, as if the slabs of all rows lay side by
    /// side.
    fn place_on_holder(&self, page: PageId, side: Side) -> u64 {
        let per_slab = u64::from(self.pages_per_slab());
        let copies_from = if side == Side::Copy { per_slab } else { 0 };
        page.row * 2 * per_slab + copies_from + u64::from(page.page)
    }

    /// In which turn a place of a page is written.
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

    /// Writes one place of each of some pages, if there are any, and makes them durable.
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

    /// Writes pages, each to one place; takes them one by one, when they are written. Ends only
    /// when every write was answered, errors or not: the next checkpoint must not meet writes of
    /// this one.
    async fn write_all(&self, pages: impl Iterator<Item = (Rc<Page>, Side)>) -> Result<(), ArrayError> {
        let mut result = Ok(());
        let mut under_way = VecDeque::with_capacity(self.window_pages.min(pages.size_hint().0));
        for (page, side) in pages {
            if under_way.len() == self.window_pages {
                let (page, side, answer) = under_way.pop_front().expect("a full window");
                result = result.and(self.finish(page, side, answer).await);
            }
            if page.forgotten.get() || result.is_err() {
                continue;
            }
            let answer = self.write_page(&page, side);
            under_way.push_back((page, side, answer));
        }
        for (page, side, answer) in under_way {
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
