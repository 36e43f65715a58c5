//! Checksum pages in memory: an index, and a ring swept by a clock hand that finds pages to evict.
//!
//! A page is evicted if it was not used since the hand last passed, is not pinned and is not dirty.
//! Memory is bounded by the limit, plus pinned or dirty pages beyond it: the store bounds the
//! number of dirty pages, the array's admission the number of pinned ones.
//!
//! Pages read ahead count as used when they are requested themselves. Read-ahead has a budget: each
//! page read ahead costs one, each one used later earns [`EARNED`], and each cache miss earns one.
//! So read-ahead continues where at least one page in [`EARNED`] is used before it is evicted, and
//! is tried now and then where not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::entries::Page;
use super::{BLOCK_BYTES, BLOCKS_PER_PAGE, PAGE_COVERS_BYTES};

/// Budget earned by the use of a page that was read ahead: about as many pages are read in the time
/// of one seek.
const EARNED: usize = 8;
/// Approximate memory of one page.
const USUAL_PAGE_BYTES: usize = 1300;

#[derive(Default)]
struct Ring {
    index: FxHashMap<u64, Rc<Page>>,
    pages: Vec<Rc<Page>>,
    hand: usize,
}

impl Ring {
    fn remove(&mut self, at: usize) -> Rc<Page> {
        let page = self.pages.swap_remove(at);
        if let Some(moved) = self.pages.get(at) {
            moved.ring_index.set(at);
        }
        self.index.remove(&page.key);
        page
    }
}

pub(super) struct Cache {
    ring: RefCell<Ring>,
    used_bytes: Cell<usize>,
    limit_bytes: usize,
    evictions: Cell<u64>,
    /// Number of further pages that may be read ahead.
    ahead_budget: Cell<usize>,
}

impl Cache {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self {
            ring: RefCell::default(),
            used_bytes: Cell::new(0),
            limit_bytes,
            evictions: Cell::new(0),
            ahead_budget: Cell::new(limit_bytes / USUAL_PAGE_BYTES),
        }
    }

    pub(super) fn get(&self, key: u64) -> Option<Rc<Page>> {
        let page = self.ring.borrow().index.get(&key).cloned()?;
        self.note_use(&page);
        Some(page)
    }

    fn note_use(&self, page: &Page) {
        if !page.referenced.replace(true) && page.is_ahead.replace(false) {
            self.earn(EARNED);
        }
    }

    fn earn(&self, pages: usize) {
        let most = self.limit_bytes / USUAL_PAGE_BYTES;
        self.ahead_budget.set((self.ahead_budget.get() + pages).min(most));
    }

    /// Takes a read-ahead budget for `pages` pages next to one that is not in memory. True if the
    /// budget allows it; the caller then has to load them.
    pub(super) fn take_ahead(&self, pages: usize) -> bool {
        self.earn(1);
        let budget = self.ahead_budget.get();
        let is_granted = budget >= pages;
        if is_granted {
            self.ahead_budget.set(budget - pages);
        }
        is_granted
    }

    pub(super) fn has(&self, key: u64) -> bool {
        self.ring.borrow().index.contains_key(&key)
    }

    /// Calls `f` with the page, if it is in memory. Every read takes this path; it does not touch
    /// reference counts.
    #[inline]
    pub(super) fn with<T>(&self, key: u64, f: impl FnOnce(&Page) -> T) -> Option<T> {
        let ring = self.ring.borrow();
        let page = ring.index.get(&key)?;
        if !page.referenced.get() {
            self.note_use(page);
        }
        Some(f(page))
    }

    /// Adds a page, then evicts others until memory is within the limit or no page can be evicted.
    pub(super) fn insert(&self, page: Rc<Page>) {
        self.used_bytes.set(self.used_bytes.get() + page.memory_bytes());
        {
            let ring = &mut *self.ring.borrow_mut();
            page.ring_index.set(ring.pages.len());
            ring.pages.push(page.clone());
            let before = ring.index.insert(page.key, page.clone());
            assert!(before.is_none(), "a page is in memory once");
        }
        page.pins.set(page.pins.get() + 1);
        self.shrink();
        page.pins.set(page.pins.get() - 1);
    }

    fn shrink(&self) {
        let ring = &mut *self.ring.borrow_mut();
        // Two rounds: the first clears the referenced bits, the second finds pages that were not
        // used again.
        let mut steps = 2 * ring.pages.len();
        while self.used_bytes.get() > self.limit_bytes && steps > 0 {
            steps -= 1;
            if ring.hand >= ring.pages.len() {
                ring.hand = 0;
            }
            let Some(page) = ring.pages.get(ring.hand) else { return };
            if page.pins.get() > 0 || page.dirty.get() || page.referenced.replace(false) {
                ring.hand += 1;
                continue;
            }
            let page = ring.remove(ring.hand);
            // `swap_remove` moved the newest page here: the hand skips it and reaches it last.
            ring.hand += 1;
            self.used_bytes.set(self.used_bytes.get() - page.memory_bytes());
            self.evictions.set(self.evictions.get() + 1);
        }
    }

    /// Removes a page for good.
    pub(super) fn forget(&self, page: &Page) {
        let removed = self.ring.borrow_mut().remove(page.ring_index.get());
        assert!(std::ptr::eq(&*removed, page), "the ring knows where its pages are");
        self.used_bytes.set(self.used_bytes.get() - removed.memory_bytes());
    }

    /// Changes a page and updates the memory count.
    pub(super) fn change<T>(&self, page: &Page, f: impl FnOnce(&Page) -> T) -> T {
        let before = page.memory_bytes();
        let result = f(page);
        self.used_bytes.set(self.used_bytes.get() - before + page.memory_bytes());
        result
    }

    /// Pages in memory whose keys satisfy `f`.
    pub(super) fn select(&self, mut f: impl FnMut(u64) -> bool) -> Vec<Rc<Page>> {
        self.ring.borrow().pages.iter().filter(|page| f(page.key)).cloned().collect()
    }

    pub(super) fn pages(&self) -> usize {
        self.ring.borrow().pages.len()
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.get()
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub(super) fn evictions(&self) -> u64 {
        self.evictions.get()
    }
}

/// A page that stays in memory as long as this value lives.
pub(super) struct Pinned(Rc<Page>);

impl Pinned {
    pub(super) fn new(page: Rc<Page>) -> Self {
        page.pins.set(page.pins.get() + 1);
        page.referenced.set(true);
        Self(page)
    }
}

impl std::ops::Deref for Pinned {
    type Target = Rc<Page>;

    fn deref(&self) -> &Rc<Page> {
        &self.0
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.pins.set(self.0.pins.get() - 1);
    }
}

/// Pinned pages of a range of a column. Checksums are recorded through it.
pub struct Pin {
    pub(super) column: u16,
    /// Number of the first page in the column.
    pub(super) first: u64,
    pub(super) pages: SmallVec<[Pinned; 2]>,
}

/// A range of blocks within one page of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub number: u64,
    pub blocks: std::ops::Range<usize>,
}

/// Splits a range of blocks, numbered along the column, by page.
pub(super) fn parts(blocks: std::ops::Range<u64>) -> impl Iterator<Item = Part> {
    let mut at = blocks.start;
    std::iter::from_fn(move || {
        if at >= blocks.end {
            return None;
        }
        let number = at / BLOCKS_PER_PAGE as u64;
        let first = (at % BLOCKS_PER_PAGE as u64) as usize;
        let count = (BLOCKS_PER_PAGE - first).min((blocks.end - at) as usize);
        at += count as u64;
        Some(Part { number, blocks: first..first + count })
    })
}

/// Pages that cover a byte range of a column.
pub(super) fn pages_of(offset_bytes: u64, length_bytes: u64) -> std::ops::Range<u64> {
    offset_bytes / PAGE_COVERS_BYTES..(offset_bytes + length_bytes).div_ceil(PAGE_COVERS_BYTES)
}

/// Blocks of a byte range of a column, which must be block-aligned.
pub(super) fn whole_blocks(offset_bytes: u64, length_bytes: u64) -> std::ops::Range<u64> {
    assert!(
        offset_bytes.is_multiple_of(BLOCK_BYTES) && length_bytes.is_multiple_of(BLOCK_BYTES),
        "{length_bytes} bytes at {offset_bytes} are not block-aligned"
    );
    offset_bytes / BLOCK_BYTES..(offset_bytes + length_bytes) / BLOCK_BYTES
}

impl Pin {
    /// True if all pages of this range of the column are pinned.
    pub fn covers(&self, column: u16, offset_bytes: u64, length_bytes: u64) -> bool {
        let pages = pages_of(offset_bytes, length_bytes);
        column == self.column
            && (pages.is_empty()
                || (self.first <= pages.start && pages.end <= self.first + self.pages.len() as u64))
    }

    pub(super) fn page(&self, number: u64) -> &Pinned {
        let index = number.checked_sub(self.first).map_or(usize::MAX, |index| index as usize);
        self.pages.get(index).expect("pages are pinned before they are changed")
    }
}
