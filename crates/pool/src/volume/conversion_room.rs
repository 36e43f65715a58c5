//! Checks that there is room to convert a volume. The conversion is rehearsed on a copy of the
//! free-space table, row by row; slabs of the old layout become free as its rows are left behind.
//! Pure: nothing is changed.

use std::ops::Range;

use stripewise_layout::Slicing;

use crate::space::slabs::FreeSlabs;
use stripewise_array::rows::RowTable;

/// Number of steps of the first rehearsal. Larger steps need more room than the conversion will, so
/// if these fit, the conversion fits; if not, it is rehearsed row by row.
const COARSE_STEPS: u64 = 64;

/// Rows of a volume's arrays: of one, or of each slice.
pub(crate) struct RowsOf<'a, T> {
    pub slicing: Slicing,
    /// Data of a row, bytes.
    pub row_bytes: u64,
    /// By slice.
    pub rows: Vec<&'a T>,
}

/// Space requirements of a conversion.
pub(crate) struct Rehearsal<'a> {
    pub old: RowsOf<'a, RowTable>,
    /// Rows of the new layout that need slabs: first row and end of each stretch, in order.
    pub new: RowsOf<'a, Vec<(u64, u64)>>,
    pub width: usize,
    /// Bytes of the volume that are converted.
    pub size_bytes: u64,
    /// Drives that new rows may lie on.
    pub drives: &'a [u32],
}

impl Rehearsal<'_> {
    /// True if every step of the conversion finds room, starting from the free space in `books`.
    pub(crate) fn fits(&self, books: &FreeSlabs) -> bool {
        let turn_bytes = self.new.row_bytes * self.new.slicing.slices() as u64;
        let turns = self.size_bytes.div_ceil(turn_bytes);
        let coarse = turns.div_ceil(COARSE_STEPS).max(1);
        self.fits_in_steps(books.clone(), coarse * turn_bytes)
            || (coarse > 1 && self.fits_in_steps(books.clone(), turn_bytes))
    }

    /// Number of rows that need slabs.
    pub(crate) fn needed_rows(&self) -> u64 {
        self.new.rows.iter().copied().flatten().map(|(first, end)| end - first).sum()
    }

    fn fits_in_steps(&self, mut books: FreeSlabs, step_bytes: u64) -> bool {
        let mut allocated = vec![0; self.new.rows.len()];
        let mut returned = vec![0; self.old.rows.len()];
        let mut at = 0;
        while at < self.size_bytes {
            let end = (at + step_bytes).min(self.size_bytes);
            for (slice, needed) in self.new.rows.iter().enumerate() {
                let (from, to) =
                    (allocated[slice], self.new.bytes_of(slice, end).div_ceil(self.new.row_bytes));
                // Stretches are in order: those before this row are done.
                let next = needed.partition_point(|(_, stretch_end)| *stretch_end <= from);
                for (first, stretch_end) in needed[next..].iter().take_while(|(first, _)| *first < to) {
                    let (first, rows) = (from.max(*first), to.min(*stretch_end) - from.max(*first));
                    if books.allocate_rows(self.drives, self.width, rows, first).is_err() {
                        return false;
                    }
                }
                allocated[slice] = to.max(from);
            }
            for (slice, rows) in self.old.rows.iter().enumerate() {
                let left_behind = match end == self.size_bytes {
                    true => rows.rows(),
                    false => self.old.bytes_of(slice, end) / self.old.row_bytes,
                };
                for row in returned[slice]..left_behind {
                    let Some(run) = rows.run(row) else { continue };
                    run.places_of(row).iter().for_each(|place| books.give(place.drive, place.slab, 1));
                }
                returned[slice] = left_behind.max(returned[slice]);
            }
            at = end;
        }
        true
    }
}

impl<T> RowsOf<'_, T> {
    fn bytes_of(&self, slice: usize, volume_bytes: u64) -> u64 {
        self.slicing.bytes_below(slice, volume_bytes)
    }
}

/// Rows of each slice in which these stretches of the volume lie: first and one past the last of
/// each stretch, in order.
pub(crate) fn rows_of(stretches: &[Range<u64>], slicing: Slicing, row_bytes: u64) -> Vec<Vec<(u64, u64)>> {
    let mut rows: Vec<Vec<(u64, u64)>> = vec![Vec::new(); slicing.slices()];
    for stretch in stretches {
        for (slice, rows) in rows.iter_mut().enumerate() {
            let range = slicing.range_in(slice, stretch);
            if range.is_empty() {
                continue;
            }
            let (first, end) = (range.start / row_bytes, range.end.div_ceil(row_bytes));
            match rows.last_mut() {
                Some(last) if first <= last.1 => last.1 = last.1.max(end),
                _ => rows.push((first, end)),
            }
        }
    }
    rows
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
        let needed = vec![(0, size_bytes.div_ceil(new_data))];
        let slicing = Slicing::new(1, u64::MAX);
        let rehearsal = Rehearsal {
            old: RowsOf { slicing, row_bytes: old_data, rows: vec![&table] },
            new: RowsOf { slicing, row_bytes: new_data, rows: vec![&needed] },
            width: new_width,
            size_bytes,
            drives: &[0, 1, 2, 3],
        };
        rehearsal.fits(&books)
    }

    #[test]
    fn rows_of_stretches_are_those_of_each_slice() {
        // Extents of 6 bytes in turn to two slices, rows of 4 bytes.
        let slicing = Slicing::new(2, 6);
        let found = rows_of(&[0..7, 11..12, 24..25], slicing, 4);
        assert_eq!(found, [vec![(0, 2), (3, 4)], vec![(0, 2)]]);
        assert_eq!(rows_of(std::slice::from_ref(&(0..0)), slicing, 4), [vec![], vec![]]);
    }

    #[test]
    fn slices_convert_as_one_array_does() {
        let (tight, table) = books(12, 1);
        let (one, two) = (Slicing::new(1, u64::MAX), Slicing::new(2, 3));
        let needed = rows_of(std::slice::from_ref(&(0..36)), two, 3);
        let old = || RowsOf { slicing: one, row_bytes: 3, rows: vec![&table] };
        let into_two = |size_bytes: u64| Rehearsal {
            old: old(),
            new: RowsOf { slicing: two, row_bytes: 3, rows: needed.iter().collect() },
            width: 4,
            size_bytes,
            drives: &[0, 1, 2, 3],
        };
        assert_eq!(into_two(36).needed_rows(), 12);
        // A row of each slice has to be there before two old ones come back.
        assert!(!into_two(36).fits(&tight));
        assert!(into_two(36).fits(&books(12, 2).0));
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
