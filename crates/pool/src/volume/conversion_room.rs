//! Checks that there is room to convert a volume. The conversion is rehearsed on a copy of the
//! free-space table, row by row; slabs of the old layout become free as its rows are left behind.
//! Pure: nothing is changed.

use crate::space::slabs::FreeSlabs;
use stripewise_array::rows::RowTable;

/// Number of steps of the first rehearsal. Larger steps need more room than the conversion will, so
/// if these fit, the conversion fits; if not, it is rehearsed row by row.
const COARSE_STEPS: u64 = 64;

/// Space requirements of a conversion.
pub(crate) struct Rehearsal<'a> {
    pub old: &'a RowTable,
    pub old_row_bytes: u64,
    /// Rows of the new layout that need slabs: first row and end of each stretch, in order.
    pub needed: Vec<(u64, u64)>,
    pub new_rows: u64,
    pub new_row_bytes: u64,
    pub width: usize,
    pub size_bytes: u64,
    /// Drives that new rows may lie on.
    pub drives: &'a [u32],
}

impl Rehearsal<'_> {
    /// True if every step of the conversion finds room, starting from the free space in `books`.
    pub(crate) fn fits(&self, books: &FreeSlabs) -> bool {
        let coarse = self.new_rows.div_ceil(COARSE_STEPS).max(1);
        self.fits_in_steps(books.clone(), coarse) || (coarse > 1 && self.fits_in_steps(books.clone(), 1))
    }

    /// Number of rows that need slabs.
    pub(crate) fn needed_rows(&self) -> u64 {
        self.needed.iter().map(|(first, end)| end - first).sum()
    }

    fn fits_in_steps(&self, mut books: FreeSlabs, step: u64) -> bool {
        let (mut at, mut returned) = (0, 0);
        let mut needed = self.needed.iter().copied().peekable();
        while at < self.new_rows {
            let end = (at + step).min(self.new_rows);
            while let Some(&(first, stretch_end)) = needed.peek().filter(|(first, _)| *first < end) {
                let (from, to) = (first.max(at), stretch_end.min(end));
                if from < to && books.allocate_rows(self.drives, self.width, to - from, from).is_err() {
                    return false;
                }
                if stretch_end > end {
                    break;
                }
                needed.next();
            }
            let left_behind = match (end * self.new_row_bytes).min(self.size_bytes) {
                all if all == self.size_bytes => self.old.rows(),
                bytes => bytes / self.old_row_bytes,
            };
            for row in returned..left_behind {
                let Some(run) = self.old.run(row) else { continue };
                run.places_of(row).iter().for_each(|place| books.give(place.drive, place.slab, 1));
            }
            returned = returned.max(left_behind);
            at = end;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIB;
    use crate::testing::pool;
    use stripewise_array::rows::{SlotPlace, SlotState};

    /// A pool of four drives with `free` free slabs each, and a volume of `rows` rows on all of
    /// them.
    fn books(rows: u64, free: u64) -> (FreeSlabs, RowTable) {
        let mut books = FreeSlabs::new(&pool(&[64; 4], MIB));
        let mut table = RowTable::new(4, rows);
        let place = |drive: u32| SlotPlace { drive, slab: 0, state: SlotState::Active };
        table.set(0, rows, &[place(0), place(1), place(2), place(3)]);
        for drive in 0..4 {
            let all = books.free_slabs(drive);
            assert!(all >= rows + free);
            books.take(drive, 0, (all - free) as u32);
        }
        (books, table)
    }

    fn fits(rows: u64, free: u64, old_data: u64, new_width: usize, new_data: u64) -> bool {
        let (books, table) = books(rows, free);
        let size_bytes = rows * old_data;
        let new_rows = size_bytes.div_ceil(new_data);
        let rehearsal = Rehearsal {
            old: &table,
            old_row_bytes: old_data,
            needed: vec![(0, new_rows)],
            new_rows,
            new_row_bytes: new_data,
            width: new_width,
            size_bytes,
            drives: &[0, 1, 2, 3],
        };
        rehearsal.fits(&books)
    }

    #[test]
    fn smaller_layout_converts_in_a_row_or_two_of_room() {
        // From two copies of each block to one parity unit in four.
        assert!(!fits(12, 0, 2, 4, 3));
        assert!(fits(12, 1, 2, 4, 3));
        // The same amount of data per row.
        assert!(fits(12, 1, 3, 4, 3));
    }

    #[test]
    fn a_layout_that_takes_more_needs_the_difference() {
        // 12 rows of 3 become 18 rows of 2.
        assert!(fits(12, 7, 3, 4, 2));
        assert!(!fits(12, 4, 3, 4, 2));
    }
}
