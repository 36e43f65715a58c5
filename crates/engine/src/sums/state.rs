//! The checksums of an array, and what it knows about them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashSet;
use stripewise_drive::Event;

use crate::checksums::Checksums;

/// How an array keeps checksums.
#[derive(Clone, Copy, Debug)]
pub struct SumsInit {
    /// Above all stamps of earlier openings of this array: for instance the pool's generation
    /// shifted left by 32 bits.
    pub first_stamp: u64,
    /// Memory for pages.
    pub cache_bytes: usize,
}

/// The checksums of an array, and what it knows about them.
pub(crate) struct BlockSums {
    pub table: Rc<Checksums>,
    /// Regions whose pages were begun afresh since they were last unwritten.
    pub(super) begun: RefCell<FxHashSet<u64>>,
    pub(super) beginning: Cell<bool>,
    pub(super) began: Event,
    pub(super) known_bad: RefCell<FxHashSet<(usize, u64)>>,
    /// Opened after a stop that was not clean: torn and old pages are no fault.
    pub(super) lenient: Cell<bool>,
}
