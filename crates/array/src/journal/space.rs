//! Space in the areas, reserved before a record is formed: back-pressure instead of collapse.
//!
//! A reservation names the areas that will take the record, with pages reserved in each, so that
//! its append never waits for space. Waiters are served first come, first served; destaging goes
//! before clients, as it frees space.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use smallvec::SmallVec;

use super::area::Ring;
use super::batch::{HEADER_BYTES, NOTE_BYTES, PAGE_BYTES, descriptor_bytes, payload_bytes};
use super::state::{Batch, State};
use super::waiting::{Grant, Quota, RingIds, Waiter};
use super::{Inner, Journal, Record};
use crate::error::ArrayError;

/// Reserved space for an append; freed when dropped unused.
pub(crate) struct Reservation {
    inner: Rc<Inner>,
    grant: Grant,
}

impl Reservation {
    /// Transfers the space to a batch.
    pub(super) fn take(mut self) -> Grant {
        std::mem::take(&mut self.grant)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.grant.pages > 0 {
            self.inner.state.borrow_mut().give_back(&self.grant);
            self.inner.changed();
        }
    }
}

/// Maximum number of pages of an append of `bytes`, as counted by [`Journal::bytes_of`].
fn pages_for(bytes: u64) -> u64 {
    (HEADER_BYTES as u64 + bytes).div_ceil(PAGE_BYTES) + 1
}

impl Journal {
    /// Bytes to reserve for an append of these records.
    pub(crate) fn bytes_of(records: &[Record]) -> u64 {
        let one = |record: &Record| (descriptor_bytes(record) + NOTE_BYTES) as u64 + payload_bytes(record);
        records.iter().map(one).sum()
    }

    /// True if an append of `bytes` can ever be made; otherwise it has to be split, or bypass the
    /// journal.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        let state = self.0.state.borrow();
        pages_for(bytes) <= state.longest_append()
    }

    /// Like [`Self::reserve`] for several appends; reserves all of the space at once.
    pub(crate) async fn reserve_many(
        &self,
        bytes: &[u64],
        quota: Quota,
    ) -> Result<Vec<Reservation>, ArrayError> {
        let pages: u64 = bytes.iter().map(|&bytes| pages_for(bytes)).sum();
        // The capacity of these pages, so that rounding loses none.
        let mut all = self.reserve(pages * PAGE_BYTES, quota).await?;
        let parts = bytes.iter().map(|&bytes| {
            let pages = pages_for(bytes);
            all.grant.pages -= pages;
            Reservation { inner: all.inner.clone(), grant: Grant { pages, rings: all.grant.rings.clone() } }
        });
        Ok(parts.collect())
    }

    /// Waits for space for one append of `bytes` ([`Self::bytes_of`]). Fails if it can never fit,
    /// or if the journal is broken or closed.
    pub(crate) async fn reserve(&self, bytes: u64, quota: Quota) -> Result<Reservation, ArrayError> {
        let waiter = Rc::new(Waiter {
            pages: pages_for(bytes),
            quota,
            result: RefCell::new(None),
            waker: Cell::new(None),
        });
        {
            let mut state = self.0.state.borrow_mut();
            state.waiters(quota).push_back(waiter.clone());
        }
        self.0.grant();
        if waiter.result.borrow().is_none() {
            self.0.pressure.notify_all();
            self.0.wake.notify_all(); // a mark may free space
        }
        let place = Place { inner: &self.0, waiter: &waiter };
        let result = poll_fn(|context| match place.waiter.result.borrow_mut().take() {
            Some(result) => Poll::Ready(result),
            None => {
                place.waiter.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await;
        let grant = result?;
        self.0.note_fill();
        Ok(Reservation { inner: self.0.clone(), grant })
    }
}

/// A place in the queue of waiters, given up when dropped.
struct Place<'a> {
    inner: &'a Rc<Inner>,
    waiter: &'a Rc<Waiter>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(Ok(grant)) = self.waiter.result.borrow_mut().take() {
            self.inner.state.borrow_mut().give_back(&grant);
        }
        let left = {
            let mut state = self.inner.state.borrow_mut();
            let queue = state.waiters(self.waiter.quota);
            let place = queue.iter().position(|waiter| Rc::ptr_eq(waiter, self.waiter));
            place.and_then(|index| queue.remove(index)).is_some()
        };
        if left {
            self.inner.changed();
        }
    }
}

impl Inner {
    /// Called when space, areas or records changed: serves waiters and wakes the batch writer.
    pub(super) fn changed(&self) {
        self.grant();
        self.wake.notify_all();
    }

    pub(super) fn grant(&self) {
        let granted = self.state.borrow_mut().serve_waiters();
        for waiter in granted {
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    /// Notifies of a fill level that rose past a threshold.
    fn note_fill(&self) {
        let risen = {
            let mut state = self.state.borrow_mut();
            let percent = state.fill().percent();
            let level = [50, 75, 90].iter().filter(|&&threshold| percent >= threshold).count();
            std::mem::replace(&mut state.pressure_level, level) < level
        };
        if risen {
            self.pressure.notify_all();
        }
    }
}

impl State {
    fn waiters(&mut self, quota: Quota) -> &mut VecDeque<Rc<Waiter>> {
        match quota {
            Quota::Client => &mut self.clients_waiting,
            Quota::InPlace => &mut self.in_place_waiting,
            Quota::Destage => &mut self.destage_waiting,
        }
    }

    /// Maximum pages of an append that can be granted.
    pub(super) fn longest_append(&self) -> u64 {
        let longest = self.longest_batch();
        let rings = self.rings_by_size();
        let Some(ring) = rings.get(self.target().saturating_sub(1)) else { return 0 };
        longest.min(self.client_limit(*ring, longest))
    }

    fn rings_by_size(&self) -> SmallVec<[u64; 8]> {
        let mut sizes: SmallVec<[u64; 8]> = self.rings.iter().map(|ring| ring.pages).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    }

    /// Maximum pages of a batch: a part of the ring that is small enough to be lost by wrapping,
    /// and to be destaged in one go.
    pub(super) fn longest_batch(&self) -> u64 {
        let sizes = self.rings_by_size();
        sizes.get(self.target().saturating_sub(1)).map_or(0, |pages| pages / 8)
    }

    /// Maximum pages of a ring that clients may fill. Besides these and the records that destage
    /// all but the last batch of them, the ring has to hold one batch skipped by wrapping, one that
    /// cannot be freed yet, and one of a write in place.
    pub(super) fn client_limit(&self, ring_pages: u64, longest: u64) -> u64 {
        ring_pages.saturating_sub(3 * longest) * 100 / self.destage_percent
    }

    /// True if, after reserving `pages` more of a ring, enough space is left to destage all of its
    /// records that are not in place, plus `kept` pages. Records in place need no more space, even
    /// if they are not released yet, or lie behind others that are not: if they counted, clients,
    /// whose own records reuse the space freed by destaging, would get none from the start of
    /// destaging until its last record.
    pub(super) fn leaves_enough(&self, ring: &Ring, pages: u64, kept: u64) -> bool {
        let promised = ring.reserved + pages;
        // A quick test without the records to be destaged, before iterating over all batches, which
        // every waiter does at every release.
        if ring.used() + promised + kept > ring.pages {
            return false;
        }
        let to_destage = (self.pages_to_destage(ring.id) + promised) * (self.destage_percent - 100) / 100;
        ring.used() + promised + to_destage + kept <= ring.pages
    }

    /// Pages of a ring that hold records to be destaged, counting batches in proportion.
    fn pages_to_destage(&self, ring: u64) -> u64 {
        if !self.had_to_destage {
            return 0;
        }
        let is_there = |batch: &Batch| batch.copies.iter().any(|copy| copy.ring == ring);
        let of_batch = |batch: &Batch| match batch.to_destage() {
            0 => 0,
            records if is_there(batch) => (batch.pages * records).div_ceil(batch.records),
            _ => 0,
        };
        self.batches.iter().map(of_batch).sum()
    }

    /// Pages for the release notes of all records without a note.
    pub(super) fn note_pages(&self) -> u64 {
        ((self.live_records + self.notes.len() as u64) * NOTE_BYTES as u64).div_ceil(PAGE_BYTES)
    }

    /// Free pages of a ring that are not reserved.
    pub(super) fn spare(&self, index: usize, longest: u64, note_pages: u64) -> u64 {
        let ring = &self.rings[index];
        ring.usable(longest, note_pages).saturating_sub(ring.reserved)
    }

    pub(super) fn give_back(&mut self, grant: &Grant) {
        for id in &grant.rings {
            if let Some(ring) = self.rings.iter_mut().find(|ring| ring.id == *id) {
                ring.reserved -= grant.pages;
            }
        }
    }

    fn try_grant(&mut self, pages: u64, quota: Quota) -> Option<Grant> {
        let (longest, note_pages) = (self.longest_batch(), self.note_pages());
        let mut found: SmallVec<[(u64, usize); 8]> = SmallVec::new();
        for (index, ring) in self.rings.iter().enumerate() {
            let spare = self.spare(index, longest, note_pages);
            let (limit, kept) = match quota {
                Quota::Client => (self.client_limit(ring.pages, longest), 3 * longest),
                Quota::InPlace => (self.client_limit(ring.pages, longest) + longest, 2 * longest),
                Quota::Destage => (u64::MAX, 0),
            };
            let is_within = ring.used() + ring.reserved + pages <= limit;
            if !ring.failing && spare >= pages && (is_within || self.leaves_enough(ring, pages, kept)) {
                found.push((spare, index));
            }
        }
        let target = self.target();
        if found.len() < target {
            return None;
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.truncate(target);
        let mut rings = RingIds::new();
        for &(_, index) in &found {
            self.rings[index].reserved += pages;
            rings.push(self.rings[index].id);
        }
        Some(Grant { pages, rings })
    }

    fn serve_waiters(&mut self) -> SmallVec<[Rc<Waiter>; 4]> {
        let mut served = SmallVec::new();
        for quota in [Quota::Destage, Quota::InPlace, Quota::Client] {
            while let Some(first) = self.waiters(quota).front().cloned() {
                let result = if let Some(error) = &self.broken {
                    Err(error.clone())
                } else if self.rings.is_empty() {
                    Err(super::no_area())
                } else if first.pages > self.longest_append() {
                    Err(ArrayError::Journal(format!(
                        "a record of {} KiB is too large: the journal takes at most {} KiB",
                        first.pages * PAGE_BYTES / 1024,
                        self.longest_append() * PAGE_BYTES / 1024
                    )))
                } else {
                    match self.try_grant(first.pages, quota) {
                        Some(grant) => Ok(grant),
                        // Clients must not overtake the work that frees space for them.
                        None => return served,
                    }
                };
                self.waiters(quota).pop_front();
                *first.result.borrow_mut() = Some(result);
                served.push(first);
            }
        }
        served
    }
}
