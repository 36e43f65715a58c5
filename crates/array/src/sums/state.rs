//! State of an array's checksums.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashSet;
use stripewise_drive::{Buffer, BufferPool, Event};
use stripewise_layout::Geometry;

use crate::checksums::Checksums;
use crate::columns::Columns;
use crate::map::regions::Regions;
use crate::tuning::Tuning;

/// The checksums of an array. Without checksums nothing is loaded or recorded, and everything that
/// is read counts as correct.
pub(crate) struct BlockSums {
    pub(super) columns: Rc<Columns>,
    pub(super) regions: Rc<Regions>,
    pub(super) geometry: Geometry,
    pub(super) buffers: BufferPool,
    pub(super) tuning: Tuning,
    /// One strip of zeros.
    pub(super) zeroes: Buffer,
    /// Set once while the array is assembled, if it has checksums.
    pub(super) kept: OnceCell<Kept>,
}

/// State of an array with checksums.
pub(crate) struct Kept {
    pub table: Rc<Checksums>,
    /// Regions whose pages were started since they were last unwritten.
    pub(super) begun: RefCell<FxHashSet<u64>>,
    pub(super) beginning: Cell<bool>,
    pub(super) began: Event,
    pub(super) known_bad: RefCell<FxHashSet<(usize, u64)>>,
    /// True after an unclean stop: torn and outdated pages are no fault.
    pub(super) lenient: Cell<bool>,
}

impl BlockSums {
    /// Creates the state of an array without checksums.
    pub(crate) fn new(
        columns: &Rc<Columns>,
        regions: &Rc<Regions>,
        geometry: &Geometry,
        buffers: &BufferPool,
        zeroes: &Buffer,
        tuning: Tuning,
    ) -> Self {
        Self {
            columns: columns.clone(),
            regions: regions.clone(),
            geometry: geometry.clone(),
            buffers: buffers.clone(),
            tuning,
            zeroes: zeroes.clone(),
            kept: OnceCell::new(),
        }
    }

    /// Adds checksums to the array.
    pub(super) fn begin(&self, table: Rc<Checksums>) {
        let kept = Kept {
            table,
            begun: RefCell::default(),
            beginning: Cell::new(false),
            began: Event::new(),
            known_bad: RefCell::default(),
            lenient: Cell::new(false),
        };
        assert!(self.kept.set(kept).is_ok(), "set once");
    }

    /// Returns the state, if the array has checksums.
    pub(crate) fn get(&self) -> Option<&Kept> {
        self.kept.get()
    }
}
