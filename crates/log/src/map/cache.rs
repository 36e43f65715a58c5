//! Pages of runs in memory, a bounded number; the oldest go first.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::map::entry::Entry;

/// Run and page.
type Key = (u64, u64);

/// Pages, and their keys in the order in which they came.
type Pages = (FxHashMap<Key, Rc<Vec<Entry>>>, VecDeque<Key>);

/// The cache.
pub(crate) struct PageCache {
    limit: usize,
    state: RefCell<Pages>,
}

impl PageCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), state: RefCell::default() }
    }

    pub(crate) fn get(&self, key: Key) -> Option<Rc<Vec<Entry>>> {
        self.state.borrow().0.get(&key).cloned()
    }

    pub(crate) fn put(&self, key: Key, page: Rc<Vec<Entry>>) {
        let (pages, order) = &mut *self.state.borrow_mut();
        if pages.insert(key, page).is_none() {
            order.push_back(key);
        }
        while order.len() > self.limit {
            let oldest = order.pop_front().expect("not empty");
            pages.remove(&oldest);
        }
    }
}
