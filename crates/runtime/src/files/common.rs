//! The state of a drive that its openings on several threads have in common: the file and its lock,
//! and the end of the drive (`opened.rs`).
//!
//! A thread's own write may make a hole in a truncated file, and another thread's read find it
//! before that write is answered. So each opening counts its unanswered writes where all see it.
//! Only its own thread changes a count: a drive with one opening pays for no atomic operation.
//!
//! Expected faults: a file that another program truncates, or a device that shrinks, while several
//! threads use it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stripewise_drive::DriveErrorKind;

use crate::files::open_handle::OpenHandle;

/// Values of [`Common::lost`].
const HERE: u8 = 0;
const GONE: u8 = 1;
const CUT: u8 = 2;

/// State that the openings of a drive share.
pub(crate) struct Common {
    /// Closed, and its lock released, with the last opening and its last request.
    pub(crate) file: OpenHandle,
    lost: AtomicU8,
    /// A write has completed since the length was last compared.
    uncompared: AtomicBool,
    /// True if there was more than one opening.
    has_several: AtomicBool,
    openings: Mutex<Vec<Lengthening>>,
}

/// Number of an opening's unanswered requests that may lengthen a truncated file.
#[derive(Clone, Default)]
pub(crate) struct Lengthening(Arc<AtomicU32>);

impl Lengthening {
    /// Counts a request that is about to begin. On the opening's own thread.
    pub(crate) fn begin(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Counts a request as answered. On the opening's own thread.
    pub(crate) fn end(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    fn is_any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

impl Common {
    /// A drive with no opening yet.
    pub(crate) fn new(file: OpenHandle) -> Arc<Self> {
        Arc::new(Self {
            file,
            lost: AtomicU8::new(HERE),
            uncompared: AtomicBool::new(false),
            has_several: AtomicBool::new(false),
            openings: Mutex::default(),
        })
    }

    /// Registers an opening.
    pub(crate) fn opening(&self) -> Lengthening {
        let (own, mut openings) =
            (Lengthening::default(), self.openings.lock().unwrap_or_else(PoisonError::into_inner));
        self.has_several.store(!openings.is_empty(), Ordering::Release);
        openings.push(own.clone());
        own
    }

    /// Why the drive is lost, if it is.
    pub(crate) fn lost(&self) -> Option<DriveErrorKind> {
        match self.lost.load(Ordering::Acquire) {
            HERE => None,
            CUT => Some(DriveErrorKind::Cut),
            _ => Some(DriveErrorKind::Gone),
        }
    }

    /// Marks the drive as lost: later requests of all openings fail with this kind. The first kind
    /// counts.
    pub(crate) fn lose(&self, kind: DriveErrorKind) {
        let lost = if kind == DriveErrorKind::Cut { CUT } else { GONE };
        let _ = self.lost.compare_exchange(HERE, lost, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Records that a write has completed, and the length was not compared.
    pub(crate) fn note_uncompared(&self) {
        self.uncompared.store(true, Ordering::Release);
    }

    /// Records that the length is about to be compared.
    pub(crate) fn note_compared(&self) {
        self.uncompared.store(false, Ordering::Release);
    }

    /// True if a request may have lengthened the file since its length was last compared. `own` is
    /// the caller's count.
    pub(crate) fn may_have_grown(&self, own: &Lengthening) -> bool {
        // In this order: a request that ends in between has set the mark before.
        own.is_any() || self.may_grow_elsewhere() || self.uncompared.load(Ordering::Acquire)
    }

    fn may_grow_elsewhere(&self) -> bool {
        if !self.has_several.load(Ordering::Acquire) {
            return false;
        }
        let openings = self.openings.lock().unwrap_or_else(PoisonError::into_inner);
        openings.iter().any(Lengthening::is_any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_see_each_others_writes_and_the_end() {
        let file = OpenHandle::new(tempfile::tempfile().expect("a file"), false);
        let common = Common::new(file);
        let [first, second] = [common.opening(), common.opening()];
        assert!(!common.may_have_grown(&second));
        first.begin();
        assert!(common.may_have_grown(&second), "a write of another opening is unanswered");
        common.note_uncompared();
        first.end();
        assert!(common.may_have_grown(&second), "nothing has compared the length since");
        common.note_compared();
        assert!(!common.may_have_grown(&first) && !common.may_have_grown(&second));
        common.lose(DriveErrorKind::Cut);
        common.lose(DriveErrorKind::Gone);
        assert_eq!(common.lost(), Some(DriveErrorKind::Cut), "the first kind counts");
    }
}
