//! The slab map of a volume: which slab of which drive holds each column of each row.
//!
//! A *row* is one slab on each of `width` distinct drives. Rows that follow each other on the same
//! drives in consecutive slabs, in the same states, are one *run*, so a volume on equal drives is a
//! handful of runs however large it is. The map is cut into blocks of [`ROWS_PER_BLOCK`] rows that
//! are shared between versions of it: a clone costs a pointer per block, and comparing pointers
//! shows what a change touched. Rows that are not there (a thin volume's that no request
//! wrote) are *holes*. Pure data; the engine looks places up here, the pool allocates, records and
//! changes it.

use std::sync::Arc;

use smallvec::SmallVec;

/// Rows of one block: what is written whole when any of it changes.
pub const ROWS_PER_BLOCK: u64 = 4096;

/// State of a column of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// All of it is current.
    #[default]
    Active,
    /// Nothing current, or not reachable; what the slab held when its drive left may serve to catch
    /// up.
    Missing,
    /// A new slab that is to be filled; nothing current until the row is done.
    Rebuilding,
    /// An old slab whose drive was away: current but for the regions that are marked as changed
    /// since.
    CatchingUp,
}

/// The slab of a column, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotPlace {
    /// The drive's number in its pool.
    pub drive: u32,
    /// The slab's number on the drive.
    pub slab: u32,
    /// State of its contents.
    pub state: SlotState,
}

/// The places of a row, or of the first row of a run.
pub type Places = SmallVec<[SlotPlace; 8]>;

/// Rows in a sequence: row `first_row + i` has slab `slab + i` in every column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first row.
    pub first_row: u64,
    /// Number of rows, at least 1.
    pub rows: u64,
    /// The first row's places, one per column.
    pub places: Places,
}

impl Run {
    /// One past the last row.
    pub fn end_row(&self) -> u64 {
        self.first_row + self.rows
    }

    /// The place of a column in one of the rows.
    pub fn place(&self, row: u64, column: usize) -> SlotPlace {
        debug_assert!((self.first_row..self.end_row()).contains(&row));
        let first = self.places[column];
        SlotPlace { slab: first.slab + (row - self.first_row) as u32, ..first }
    }

    /// All places of one of the rows.
    pub fn places_of(&self, row: u64) -> Places {
        (0..self.places.len()).map(|column| self.place(row, column)).collect()
    }

    /// True if the row behind this run's last would lie at these places.
    fn is_followed_by(&self, places: &[SlotPlace]) -> bool {
        let follows = |(mine, next): (&SlotPlace, &SlotPlace)| {
            mine.drive == next.drive
                && mine.state == next.state
                && u64::from(mine.slab) + self.rows == u64::from(next.slab)
        };
        self.places.len() == places.len() && self.places.iter().zip(places).all(follows)
    }

    fn part(&self, from: u64, to: u64) -> Option<Run> {
        let (from, to) = (from.max(self.first_row), to.min(self.end_row()));
        (from < to).then(|| Run { first_row: from, rows: to - from, places: self.places_of(from) })
    }
}

/// Runs of one block, in order, without overlap.
pub type Block = Arc<Vec<Run>>;

/// The slab map of one volume.
#[derive(Clone, Debug, Default)]
pub struct RowTable {
    width: usize,
    rows: u64,
    blocks: Vec<Block>,
}

impl PartialEq for RowTable {
    fn eq(&self, other: &Self) -> bool {
        self.width == other.width
            && self.rows == other.rows
            && self.blocks.iter().zip(&other.blocks).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

impl Eq for RowTable {}

impl RowTable {
    /// A map of `rows` holes.
    pub fn new(width: usize, rows: u64) -> Self {
        let mut table = Self { width, rows: 0, blocks: Vec::new() };
        table.resize(rows);
        table
    }

    /// Columns: members of the layout.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Rows, holes included.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds holes at the end, or takes rows away from it.
    pub fn resize(&mut self, rows: u64) {
        if rows < self.rows {
            self.clear(rows, self.rows - rows);
        }
        self.rows = rows;
        // Blocks of holes are one and the same, so that a large map of nothing costs a pointer per
        // block.
        self.blocks.resize(rows.div_ceil(ROWS_PER_BLOCK) as usize, Block::default());
    }

    /// The blocks, to be recorded; equal pointers mean equal contents.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Puts a block in place of another, valid or not: for tests of what refuses invalid ones.
    #[doc(hidden)]
    pub fn set_block(&mut self, index: usize, runs: Vec<Run>) {
        self.blocks[index] = Arc::new(runs);
    }

    /// Puts `runs` in place of whatever rows `from` to `to` have; all of them lie in one block. The
    /// caller has checked the runs (see [`check_runs`]). Runs at the seams are not joined: the map
    /// becomes exactly what was recorded.
    pub fn replace_runs(&mut self, from: u64, to: u64, runs: Vec<Run>) {
        assert!(from < to && to <= self.rows && from / ROWS_PER_BLOCK == (to - 1) / ROWS_PER_BLOCK);
        let block = &mut self.blocks[(from / ROWS_PER_BLOCK) as usize];
        let mut all: Vec<Run> = Vec::with_capacity(runs.len() + block.len() + 2);
        all.extend(block.iter().filter_map(|run| run.part(0, from)));
        all.extend(runs);
        all.extend(block.iter().filter_map(|run| run.part(to, u64::MAX)));
        *block = Arc::new(all);
    }

    /// The run that a row is in; `None` for a hole and beyond the end.
    pub fn run(&self, row: u64) -> Option<&Run> {
        let block = self.blocks.get((row / ROWS_PER_BLOCK) as usize)?;
        let run = match &block[..] {
            [only] => only,
            runs => &runs[runs.partition_point(|run| run.first_row <= row).checked_sub(1)?],
        };
        (run.first_row <= row && row < run.end_row()).then_some(run)
    }

    /// The place of a column of a row.
    pub fn place(&self, row: u64, column: usize) -> Option<SlotPlace> {
        self.run(row).map(|run| run.place(row, column))
    }

    /// True if nothing is allocated for the row.
    pub fn is_hole(&self, row: u64) -> bool {
        self.run(row).is_none()
    }

    /// All runs in order. A run ends at the end of its block.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    /// Rows that are no holes.
    pub fn allocated_rows(&self) -> u64 {
        self.runs().map(|run| run.rows).sum()
    }

    /// Makes holes of rows.
    pub fn clear(&mut self, first_row: u64, rows: u64) {
        self.replace(first_row, rows, None);
    }

    /// Gives `rows` rows from `first_row` on consecutive slabs, the first row's being `places`.
    pub fn set(&mut self, first_row: u64, rows: u64, places: &[SlotPlace]) {
        assert_eq!(places.len(), self.width, "one place per column");
        assert!(first_row + rows <= self.rows, "within the map");
        self.replace(first_row, rows, Some(places));
    }

    fn replace(&mut self, first_row: u64, rows: u64, places: Option<&[SlotPlace]>) {
        let end = first_row + rows;
        let mut at = first_row;
        while at < end {
            let index = (at / ROWS_PER_BLOCK) as usize;
            let stop = end.min((index as u64 + 1) * ROWS_PER_BLOCK);
            // In place, where no other version shares the block: a plan that moves many rows would
            // copy all runs for each of them.
            let runs = Arc::make_mut(&mut self.blocks[index]);
            // The runs that are touched, and one on either side that may go on in what is new.
            let touched = runs.partition_point(|run| run.end_row() < at)
                ..runs.partition_point(|run| run.first_row <= stop);
            let mut new: Vec<Run> = Vec::with_capacity(touched.len() + 1);
            new.extend(runs[touched.clone()].iter().filter_map(|run| run.part(0, at)));
            if let Some(places) = places {
                let first = Run { first_row, rows: end - first_row, places: places.into() };
                push(&mut new, first.part(at, stop).expect("not empty"));
            }
            for run in runs[touched.clone()].iter().filter_map(|run| run.part(stop, u64::MAX)) {
                push(&mut new, run);
            }
            runs.splice(touched, new);
            at = stop;
        }
    }

    /// Changes places in whole runs: `change` gets first row, rows and places of each run, may
    /// change the places, and returns true if it did. To change part of a run only, use
    /// [`Self::set`].
    pub fn update(&mut self, mut change: impl FnMut(u64, u64, &mut Places) -> bool) {
        for block in &mut self.blocks {
            let mut changed = false;
            let mut runs: Vec<Run> = Vec::with_capacity(block.len());
            for run in block.iter() {
                let mut run = run.clone();
                changed |= change(run.first_row, run.rows, &mut run.places);
                push(&mut runs, run);
            }
            if changed {
                *block = Arc::new(runs);
            }
        }
    }
}

/// Adds a run behind the others, as part of the last where it goes on there.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.end_row() == run.first_row && last.is_followed_by(&run.places) => {
            last.rows += run.rows
        }
        _ => runs.push(run),
    }
}

/// Validates runs read from a record as block `index` of a map of `width` columns and `rows` rows.
pub fn check_block(runs: &[Run], index: u64, width: usize, rows: u64) -> Result<(), String> {
    let first = index.checked_mul(ROWS_PER_BLOCK).ok_or("a block beyond the end")?;
    check_runs(runs, first, rows.min(first.saturating_add(ROWS_PER_BLOCK)), width)
}

/// Validates runs read from a record as rows `from` to `to` of a map of `width` columns.
pub fn check_runs(runs: &[Run], from: u64, to: u64, width: usize) -> Result<(), String> {
    let mut next = from;
    for run in runs {
        let run_end = run.first_row.checked_add(run.rows);
        if run.rows == 0 || run.first_row < next || run_end.is_none_or(|run_end| run_end > to) {
            return Err(format!("run at row {} lies outside its block or overlaps another", run.first_row));
        }
        if run.places.len() != width {
            return Err(format!(
                "run at row {} has {} columns, not {width}",
                run.first_row,
                run.places.len()
            ));
        }
        if run.places.iter().any(|place| u64::from(place.slab) + run.rows > u64::from(u32::MAX)) {
            return Err(format!("run at row {} has slabs beyond any drive", run.first_row));
        }
        let mut drives: SmallVec<[u32; 64]> = run.places.iter().map(|place| place.drive).collect();
        drives.sort_unstable();
        if drives.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("run at row {} uses a drive twice", run.first_row));
        }
        next = run.first_row + run.rows;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(drive: u32, slab: u32) -> SlotPlace {
        SlotPlace { drive, slab, state: SlotState::Active }
    }

    /// A plain model: one entry per row.
    fn expanded(table: &RowTable) -> Vec<Option<Places>> {
        (0..table.rows()).map(|row| table.run(row).map(|run| run.places_of(row))).collect()
    }

    #[test]
    fn random_changes_agree_with_a_plain_list() {
        let mut random = stripewise_drive::SplitMix64::new(3);
        for _ in 0..200 {
            let rows = 1 + random.below(3 * ROWS_PER_BLOCK);
            let mut table = RowTable::new(2, rows);
            let mut model: Vec<Option<Places>> = vec![None; rows as usize];
            for _ in 0..20 {
                let first = random.below(rows);
                let count = 1 + random.below((rows - first).min(6000));
                let slab = random.below(10) as u32 * 1000;
                let clear = random.below(4) == 0;
                if clear {
                    table.clear(first, count);
                } else {
                    table.set(first, count, &[place(0, slab), place(1, slab + 5)]);
                }
                for row in first..first + count {
                    let at = slab + (row - first) as u32;
                    model[row as usize] =
                        (!clear).then(|| Places::from_iter([place(0, at), place(1, at + 5)]));
                }
            }
            assert_eq!(expanded(&table), model);
            for (index, block) in table.blocks().iter().enumerate() {
                assert_eq!(check_block(block, index as u64, 2, rows), Ok(()));
            }
            assert_eq!(table.allocated_rows(), model.iter().flatten().count() as u64);
        }
    }

    #[test]
    fn adjacent_rows_merge_and_others_stay_shared() {
        let mut table = RowTable::new(1, 2 * ROWS_PER_BLOCK);
        for row in 0..ROWS_PER_BLOCK {
            table.set(row, 1, &[place(7, row as u32)]);
        }
        assert_eq!(table.runs().count(), 1);
        let before = table.clone();
        table.set(ROWS_PER_BLOCK + 3, 1, &[place(7, 9)]);
        assert!(Arc::ptr_eq(&before.blocks()[0], &table.blocks()[0]));
        assert!(!Arc::ptr_eq(&before.blocks()[1], &table.blocks()[1]));
        table.resize(5);
        assert_eq!(table.allocated_rows(), 5);
        table.update(|_, _, places| {
            places[0].state = SlotState::Missing;
            true
        });
        assert_eq!(table.place(4, 0).map(|place| place.state), Some(SlotState::Missing));
    }

    #[test]
    fn impossible_blocks_are_named() {
        let run = |first_row, rows, places: &[SlotPlace]| Run { first_row, rows, places: places.into() };
        assert!(check_block(&[run(0, 2, &[place(0, 0)]), run(1, 1, &[place(0, 9)])], 0, 1, 9).is_err());
        assert!(check_block(&[run(0, 10, &[place(0, 0)])], 0, 1, 9).is_err());
        assert!(check_block(&[run(0, 1, &[place(0, 0), place(0, 1)])], 0, 2, 9).is_err());
        assert!(check_block(&[run(0, 1, &[place(0, u32::MAX)])], 0, 1, 9).is_err());
        assert!(check_block(&[run(0, 0, &[place(0, 0)])], 0, 1, 9).is_err());
        assert!(check_block(&[], u64::MAX, 1, 9).is_err());
    }
}
