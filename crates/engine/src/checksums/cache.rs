//! Checksum pages in memory: an index, and a ring over which a hand goes round to find pages that
//! may leave.
//!
//! A page leaves when it was not used since the hand last came by, is not pinned and has nothing to
//! be written. Memory is bounded by the limit given, plus the pages that are pinned or changed
//! beyond it; how many may be changed is the store's to bound, how many are pinned is bounded by
//! the requests that the array admits.
//!
//! Pages that were loaded beside one that was asked for count as used when they are asked for
//! themselves. What is loaded so has a budget: each such page costs one, each that is used later
//! earns [`EARNED`], and each page that is not in memory earns one. So loading ahead goes on where
//! one page in [`EARNED`] is used before it leaves, and is tried now and then where it is not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::entries::Page;
use super::{BLOCK_BYTES, BLOCKS_PER_PAGE, PAGE_COVERS_BYTES};

/// What a page loaded ahead is worth that is used: about as many are read in the time of one
/// position.
const EARNED: usize = 8;
/// A page in memory, about.
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
    /// So many more pages may be loaded ahead.
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

    /// Whether so many pages may be loaded beside one that is not in memory; from then on they are.
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

    /// Calls `f` with the page, if it is here; the way of every read, without counting references.
    #[inline]
    pub(super) fn with<T>(&self, key: u64, f: impl FnOnce(&Page) -> T) -> Option<T> {
        let ring = self.ring.borrow();
        let page = ring.index.get(&key)?;
        if !page.referenced.get() {
            self.note_use(page);
        }
        Some(f(page))
    }

    /// Adds a page, and lets others go until the limit is kept again or nothing may leave.
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
        // Twice round: once to take back the marks of use, once to find those that were not used
        // again.
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
            // The page that took its place came last: it has its turn when the others had theirs.
            ring.hand += 1;
            self.used_bytes.set(self.used_bytes.get() - page.memory_bytes());
            self.evictions.set(self.evictions.get() + 1);
        }
    }

    /// Takes a page out for good.
    pub(super) fn forget(&self, page: &Page) {
        let removed = self.ring.borrow_mut().remove(page.ring_index.get());
        assert!(std::ptr::eq(&*removed, page), "the ring knows where its pages are");
        self.used_bytes.set(self.used_bytes.get() - removed.memory_bytes());
    }

    /// Changes a page and keeps the count of memory in step.
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

/// A page that stays in memory as long as this lives.
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

/// The pages of a part of a column, held in memory. Sums are recorded through it.
pub struct Pin {
    pub(super) column: u16,
    /// Number of the first page in the column.
    pub(super) first: u64,
    pub(super) pages: SmallVec<[Pinned; 2]>,
}

/// A part of one page: which page of the column, and which of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub number: u64,
    pub blocks: std::ops::Range<usize>,
}

/// The parts that blocks (numbered along the column) lie in.
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

/// The pages that bytes of a column lie in.
pub(super) fn pages_of(offset_bytes: u64, length_bytes: u64) -> std::ops::Range<u64> {
    offset_bytes / PAGE_COVERS_BYTES..(offset_bytes + length_bytes).div_ceil(PAGE_COVERS_BYTES)
}

/// The blocks that bytes of a column make up; both ends must lie on blocks.
pub(super) fn whole_blocks(offset_bytes: u64, length_bytes: u64) -> std::ops::Range<u64> {
    assert!(
        offset_bytes.is_multiple_of(BLOCK_BYTES) && length_bytes.is_multiple_of(BLOCK_BYTES),
        "{length_bytes} bytes at {offset_bytes} are no whole blocks"
    );
    offset_bytes / BLOCK_BYTES..(offset_bytes + length_bytes) / BLOCK_BYTES
}

impl Pin {
    /// Whether all of this part of the column is held.
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
