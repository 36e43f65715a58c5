//! A volume of the run and its judge: what it may hold, what it can do without, and where clients
//! write to it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::SplitMix64;

use super::content::SECTOR_BYTES;
use super::oracle::Oracle;
use crate::subject::{Facts, Store};

/// A volume as a client sees it.
pub(crate) type Target = (Store, Rc<Guarded>);

/// A volume and its judge.
pub(crate) struct Guarded {
    /// Its number; its name is `v` and this.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The judge.
    pub oracle: RefCell<Oracle>,
    /// Disks that may not hold what they should of it.
    pub harmed: RefCell<BTreeSet<usize>>,
    /// In this life more was taken from it than it can do without: it may refuse.
    pub is_failed: Cell<bool>,
    /// In this life something happened after which it may refuse to write, and to flush, yet not to
    /// read.
    pub may_refuse_writes: Cell<bool>,
    /// It was failed, and has not been opened again since: the engine may have recorded some of the
    /// drives as lost before it knew that they are too many.
    pub is_uncertain: Cell<bool>,
    /// Something was written in this life and acknowledged.
    pub is_changed: Cell<bool>,
    /// As it was last seen.
    pub facts: RefCell<Facts>,
    /// It may lack space.
    pub is_thin: bool,
    /// It is being deleted: it may be there or not.
    pub is_leaving: Cell<bool>,
    /// Where clients mostly write, sectors.
    pub hot: Vec<Range<u32>>,
    /// Sectors of a stripe's data.
    pub stripe_sectors: u32,
}

impl Guarded {
    /// Disks that count as lost to the volume now.
    pub(crate) fn lost(&self) -> BTreeSet<usize> {
        let facts = self.facts.borrow();
        &*self.harmed.borrow() | &facts.lacking()
    }

    /// Whether the volume can do without these too, whatever the engine knows already.
    pub(crate) fn can_spare(&self, disks: &BTreeSet<usize>) -> bool {
        let facts = self.facts.borrow();
        let lost = self.lost();
        // A drive that has only its map or its journal counts like any other: the engine says how
        // many of them are gone.
        let counted_lost = lost.len().max(facts.counted_lost);
        let is_free = disks.is_subset(&facts.lacking()) && disks.is_disjoint(&facts.copies);
        let more = disks.difference(&lost).count();
        !self.is_uncertain.get() && (is_free || counted_lost + more <= facts.tolerance)
    }

    /// These are harmed from now on.
    pub(crate) fn harm(&self, disks: &BTreeSet<usize>) {
        self.harmed.borrow_mut().extend(disks);
        self.oracle.borrow_mut().lose_suspects();
    }
}

/// Bytes of a range of sectors: where, and how many.
pub(crate) fn bytes_of(sectors: &Range<u32>) -> (u64, usize) {
    let length = u64::from(sectors.end - sectors.start) * SECTOR_BYTES;
    (u64::from(sectors.start) * SECTOR_BYTES, length as usize)
}

/// Where clients of a new volume write: a few places, so that they meet, and so that little has to
/// be looked at.
pub(crate) fn draw_hot(random: &mut SplitMix64, size_bytes: u64, stripe_bytes: u64) -> Vec<Range<u32>> {
    let total = (size_bytes / SECTOR_BYTES) as u32;
    let span = ((stripe_bytes / SECTOR_BYTES) as u32 * 2).clamp(64, 512);
    (0..1 + random.below(3))
        .map(|_| {
            let first = random.below(u64::from(total)) as u32 / 8 * 8;
            let first = first.min(total.saturating_sub(span));
            first..(first + span).min(total)
        })
        .collect()
}
