//! State that arrays know before the record does: filled columns, and blocks without valid content.
//!
//! Every commit records it. A block that was written can always be taken out of the record, since
//! a set with fewer blocks takes no more room. Lost blocks for which there is no room are left
//! out, and nothing that depends on them is recorded either: a row with such blocks does not
//! count as filled, and callers that need them recorded check [`Inner::are_losses_recorded`].
//! Expected fault: more lost blocks than there is room for.

use std::sync::Arc;

use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::PartRecord;
use crate::superblock::block_bytes::span_bytes;
use crate::{BLOCK_BYTES, Inner};
use stripewise_array::rows::{RowTable, SlotPlace, SlotState};
use stripewise_array::{Array, ArrayHandle, Bits, BlockSet, SPAN_BLOCKS, Span};

/// State of an array that the record may lack.
struct Known {
    lost: Arc<BlockSet>,
    dead: Arc<BlockSet>,
    rows: RowTable,
    /// Row and column of each column that was filled.
    rebuilt: Vec<(u64, usize)>,
}

impl Known {
    fn by(array: &Array) -> Self {
        Self {
            lost: array.lost_blocks_to_record(),
            dead: array.dead_blocks_to_record(),
            rows: array.rows(),
            rebuilt: array.rebuilt(),
        }
    }
}

impl Inner {
    /// Enters what arrays and members know better than the manifest: counts of errors, columns that
    /// were filled, lost blocks.
    pub(crate) fn refresh(&self, manifest: &mut Manifest) {
        self.drives.enter_errors(manifest);
        let slab_bytes = manifest.slab_bytes;
        let known: Vec<(Id, Known)> =
            self.volumes.parts().iter().map(|(id, array)| (*id, array.visit(Known::by))).collect();
        let mut is_any_new = false;
        for (id, known) in &known {
            let Some(part) = manifest.part_mut(*id) else { continue };
            keep(&mut part.lost, &known.lost);
            keep(&mut part.dead, &known.dead);
            is_any_new |= !is_same(&part.lost, &known.lost) || !is_same(&part.dead, &known.dead);
        }
        let mut left_bytes = if is_any_new { self.room_for_losses(manifest, &known) } else { 0 };
        for (id, Known { lost, dead, rows, rebuilt }) in known {
            let Some(part) = manifest.part_mut(id) else { continue };
            // Span by span: as many as fit.
            for span in dead.spans() {
                add(&mut part.dead, std::iter::once(span), &mut left_bytes);
            }
            if !is_same(&part.lost, &lost) {
                let current = lost.filtered(|block| part.is_current_at(block, slab_bytes));
                for span in current.spans() {
                    add(&mut part.lost, std::iter::once(span), &mut left_bytes);
                }
            }
            for (row, column) in rebuilt {
                if add(&mut part.lost, spans_of(&lost, row, column, slab_bytes), &mut left_bytes) {
                    note_filled(part, row, column, rows.place(row, column));
                }
            }
            share(&mut part.lost, lost);
            share(&mut part.dead, dead);
        }
    }

    /// Bytes that lost blocks may yet take.
    fn room_for_losses(&self, manifest: &Manifest, known: &[(Id, Known)]) -> u64 {
        let of_set = |set: &BlockSet| set.spans().map(|(key, bits)| span_bytes(key, bits)).sum::<u64>();
        let wanted: u64 = known.iter().map(|(_, known)| of_set(&known.lost) + of_set(&known.dead)).sum();
        let all = self.commits.bounds.lost_bytes(manifest, wanted + manifest.lost_bytes());
        all.saturating_sub(manifest.lost_bytes())
    }

    /// True if a commit now would change nothing but its number.
    pub(crate) fn is_up_to_date(&self) -> bool {
        let manifest = self.manifest.borrow();
        let mut next = manifest.clone();
        self.refresh(&mut next);
        next == *manifest
    }

    /// True if all blocks of a part without valid content are recorded, as far as they are in
    /// columns that count as current.
    pub(crate) fn are_losses_recorded(&self, id: Id) -> bool {
        let manifest = self.manifest.borrow();
        let Some(array) = self.volumes.array(id) else { return true };
        let Some(part) = manifest.parts().find(|part| part.id == id) else { return true };
        let (lost, dead) =
            array.visit(|array| (array.lost_blocks_to_record(), array.dead_blocks_to_record()));
        let current = lost.filtered(|block| part.is_current_at(block, manifest.slab_bytes));
        part.lost.has_all(&current) && part.dead.has_all(&dead)
    }
}

impl PartRecord {
    /// True if all blocks that an array has lost in a column of a row are recorded.
    pub(crate) fn has_losses_of(
        &self,
        array: &ArrayHandle,
        row: u64,
        column: usize,
        slab_bytes: u64,
    ) -> bool {
        let lost = array.visit(Array::lost_blocks_to_record);
        let is_recorded = |(key, bits): (Span, Bits)| self.lost.span(key).has_all(bits);
        spans_of(&lost, row, column, slab_bytes).all(is_recorded)
    }
}

fn is_same(recorded: &Arc<BlockSet>, known: &Arc<BlockSet>) -> bool {
    Arc::ptr_eq(recorded, known) || recorded == known
}

/// Takes out of a recorded set what is whole again.
fn keep(recorded: &mut Arc<BlockSet>, known: &Arc<BlockSet>) {
    if !recorded.is_empty() && !Arc::ptr_eq(recorded, known) && !known.has_all(recorded) {
        *recorded = Arc::new(recorded.intersection(known));
    }
}

/// Has the record use the array's set where it is the same, so that they compare at once.
fn share(recorded: &mut Arc<BlockSet>, known: Arc<BlockSet>) {
    if *recorded == known {
        *recorded = known;
    }
}

/// The spans of a set in a column of a row.
fn spans_of(set: &BlockSet, row: u64, column: usize, slab_bytes: u64) -> impl Iterator<Item = (Span, Bits)> {
    let spans = slab_bytes / BLOCK_BYTES / SPAN_BLOCKS;
    set.spans_in(column, row * spans..(row + 1) * spans)
}

/// Adds spans to a recorded set if there is room for all of them; whether it has them now.
fn add(
    recorded: &mut Arc<BlockSet>,
    spans: impl Iterator<Item = (Span, Bits)>,
    left_bytes: &mut u64,
) -> bool {
    let new: Vec<(Span, Bits)> = spans.filter(|(key, bits)| !recorded.span(*key).has_all(*bits)).collect();
    let bytes = |(key, bits): &(Span, Bits)| {
        let before = recorded.span(*key);
        span_bytes(*key, before.with(*bits)) - span_bytes(*key, before)
    };
    let Some(left) = left_bytes.checked_sub(new.iter().map(bytes).sum()) else { return false };
    *left_bytes = left;
    if !new.is_empty() {
        let set = Arc::make_mut(recorded);
        new.into_iter().for_each(|(key, bits)| set.join_span(key, bits));
    }
    true
}

/// A column that an array has filled is current, if it still is where the array thinks.
fn note_filled(part: &mut PartRecord, row: u64, column: usize, filled: Option<SlotPlace>) {
    let Some(run) = part.rows.run(row) else { return };
    let mut places = run.places_of(row);
    let place = &mut places[column];
    let is_it = filled.is_some_and(|filled| (filled.drive, filled.slab) == (place.drive, place.slab));
    if is_it && matches!(place.state, SlotState::Rebuilding | SlotState::CatchingUp) {
        place.state = SlotState::Active;
        part.rows.set(row, 1, &places);
    }
}
