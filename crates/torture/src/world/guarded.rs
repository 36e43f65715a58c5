//! A volume of the run with its model, its lost drives and the areas that clients write.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::SplitMix64;

use super::content::SECTOR_BYTES;
use super::descriptors::Descriptors;
use super::oracle::Oracle;
use crate::subject::{Facts, Store};

/// An open volume with its record.
pub(crate) type Target = (Store, Rc<Guarded>);

/// A volume and its model.
pub(crate) struct Guarded {
    /// Number of the volume; its name is `v` and this number.
    pub number: u32,
    /// Name of the volume.
    pub name: String,
    /// Model of the volume's contents.
    pub oracle: RefCell<Oracle>,
    /// Model of the volume's file, while it is used as one.
    pub descriptors: Descriptors,
    /// Disks that may lack data of the volume.
    pub harmed: RefCell<BTreeSet<usize>>,
    /// True if the volume lost more drives in this life than it survives: it may refuse requests.
    pub is_failed: Cell<bool>,
    /// True if an event of this life allows the volume to refuse writes and flushes, but not reads.
    pub may_refuse_writes: Cell<bool>,
    /// True if the volume failed and was not reopened since: the engine may have recorded some of
    /// the drives as lost before it knew that they are too many.
    pub is_uncertain: Cell<bool>,
    /// True if a write was acknowledged in this life.
    pub is_changed: Cell<bool>,
    /// Last known facts about the volume.
    pub facts: RefCell<Facts>,
    /// True for a thin volume, which may run out of space.
    pub is_thin: bool,
    /// True while the volume is being deleted: it may exist or not.
    pub is_leaving: Cell<bool>,
    /// Sectors that clients mostly write.
    pub hot: Vec<Range<u32>>,
    /// Data sectors of a stripe.
    pub stripe_sectors: u32,
}

impl Guarded {
    /// Disks that count as lost to the volume.
    pub(crate) fn lost(&self) -> BTreeSet<usize> {
        let facts = self.facts.borrow();
        &*self.harmed.borrow() | &facts.lacking()
    }

    /// True if the volume also survives the loss of these disks, whatever the engine has recorded
    /// so far.
    pub(crate) fn can_spare(&self, disks: &BTreeSet<usize>) -> bool {
        let facts = self.facts.borrow();
        let lost = self.lost();
        // Drives with only a bitmap or journal copy count like any other: the engine reports how
        // many of them are lost.
        let counted_lost = lost.len().max(facts.counted_lost);
        let is_free = disks.is_subset(&facts.lacking()) && disks.is_disjoint(&facts.copies);
        let more = disks.difference(&lost).count();
        !self.is_uncertain.get() && (is_free || counted_lost + more <= facts.tolerance)
    }

    /// Marks these disks as harmed.
    pub(crate) fn harm(&self, disks: &BTreeSet<usize>) {
        self.harmed.borrow_mut().extend(disks);
        self.oracle.borrow_mut().lose_suspects();
    }
}

/// Offset and length in bytes of a range of sectors.
pub(crate) fn bytes_of(sectors: &Range<u32>) -> (u64, usize) {
    let length = u64::from(sectors.end - sectors.start) * SECTOR_BYTES;
    (u64::from(sectors.start) * SECTOR_BYTES, length as usize)
}

/// Draws the areas of a new volume that clients write: few, so that clients collide and
/// verification is quick.
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
