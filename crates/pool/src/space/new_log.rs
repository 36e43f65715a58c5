//! Placement of a new log volume: whole columns, one on each of as many drives as its layout has.
//!
//! A column stays on one drive, so the drives with the most free space are taken, and the smallest
//! of them bounds the volume. Pure; the only fault expected is that there is not enough room.

use stripewise_layout::Shape;
use stripewise_log::LogSizes;

use crate::manifest::volume_record::LogRecord;
use crate::space::new_volume::{LaidOut, NotLaidOut};
use crate::space::slabs::FreeSlabs;

/// Requirements of a log volume to be placed.
pub(crate) struct LogWish {
    pub shape: Shape,
    pub slab_bytes: u64,
    pub reserve_percent: u32,
    /// Left out: all that there is room for.
    pub size_bytes: Option<u64>,
    /// Drives that it may lie on.
    pub drives: Vec<u32>,
}

/// Space of a log on all its drives, at most.
const MOST_LOG_BYTES: u64 = u64::MAX >> 3;

impl LogWish {
    /// Sizes of a log of this many rows, and the bytes that its clients may store; `None` if a log
    /// is impossible there.
    fn log_of(&self, rows: u64) -> Option<(LogRecord, u64)> {
        let column_bytes = rows.checked_mul(self.slab_bytes)?;
        column_bytes.checked_mul(self.shape.width as u64).filter(|all| *all <= MOST_LOG_BYTES)?;
        let LogSizes { slot_bytes, segment_bytes } = LogSizes::choose(&self.shape, column_bytes);
        let log = LogRecord {
            reserve_percent: self.reserve_percent,
            segment_bytes,
            slot_bytes,
            filled_since: 0,
            snapshots: false,
        };
        let client_bytes = log.sizes().client_bytes(self.shape, column_bytes, &log.options(None)).ok()?;
        Some((log, client_bytes))
    }

    fn holds(&self, rows: u64, size_bytes: u64) -> bool {
        self.log_of(rows).is_some_and(|(_, client_bytes)| client_bytes >= size_bytes)
    }
}

/// Finds places for a log volume, and takes them.
pub(crate) fn lay_out_log(space: &mut FreeSlabs, wish: &LogWish) -> Result<(LaidOut, LogRecord), NotLaidOut> {
    let mut drives = space.emptiest(&wish.drives);
    drives.truncate(wish.shape.width);
    drives.sort_unstable();
    let possible_rows = space.max_rows(&drives, wish.shape.width);
    let no_room = |needed_rows: u64| NotLaidOut::NoRoom { needed_rows, possible_rows };
    let rows = match wish.size_bytes {
        None => possible_rows,
        Some(size_bytes) => fewest_rows(wish, size_bytes).unwrap_or(u64::MAX / wish.slab_bytes),
    };
    let (log, client_bytes) =
        wish.log_of(rows).filter(|_| rows <= possible_rows).ok_or_else(|| no_room(rows))?;
    let new = space.allocate_rows(&drives, wish.shape.width, rows, 0).map_err(|_| no_room(rows))?;
    let laid_out = LaidOut::of_rows(wish.size_bytes.unwrap_or(client_bytes), wish.shape.width, new);
    Ok((laid_out, log))
}

/// Bytes that the largest possible log volume has.
pub(crate) fn largest_log(wish: &LogWish, rows: u64) -> u64 {
    wish.log_of(rows).map_or(0, |(_, client_bytes)| client_bytes)
}

/// The fewest rows of a log that holds this many bytes; `None` if no log is that large.
fn fewest_rows(wish: &LogWish, size_bytes: u64) -> Option<u64> {
    let row_bytes = wish.slab_bytes.saturating_mul(wish.shape.data_units() as u64);
    let (mut low, mut high) = (0, (size_bytes / row_bytes).max(1));
    while !wish.holds(high, size_bytes) {
        (low, high) = (high, high.checked_mul(2).filter(|rows| *rows < 1 << 40)?);
    }
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if wish.holds(middle, size_bytes) { high = middle } else { low = middle }
    }
    // Segments become larger with the space, so a little more may hold a little less.
    Some(high)
}

#[cfg(test)]
mod tests {
    use stripewise_layout::LayoutSpec;

    use super::*;
    use crate::manifest::drive_record::Role;
    use crate::{MIB, testing};

    fn wish(level: &str, columns: usize, size_bytes: Option<u64>, drives: Vec<u32>) -> LogWish {
        let spec = LayoutSpec { columns: Some(columns), ..LayoutSpec::parse(level).unwrap() };
        let shape = spec.resolve(drives.len()).unwrap();
        LogWish { shape, slab_bytes: MIB, reserve_percent: 15, size_bytes, drives }
    }

    #[test]
    fn columns_of_a_log_lie_on_one_drive_each() {
        let manifest = testing::pool(&[400, 90, 500, 300, 450], MIB);
        let mut space = FreeSlabs::new(&manifest);
        let drives = space.usable(Role::Data);
        let [least, fourth] = [1, 3].map(|drive| space.free_slabs(drive));
        let (laid_out, _) = lay_out_log(&mut space, &wish("raid5", 4, None, drives.clone())).ok().unwrap();
        let places: Vec<Vec<u32>> =
            laid_out.rows.runs().map(|run| run.places.iter().map(|place| place.drive).collect()).collect();
        assert!(places.iter().all(|drives| drives == &[0, 2, 3, 4]), "{places:?}");
        assert_eq!(laid_out.rows.rows(), fourth, "the smallest of the four emptiest drives");
        assert!(laid_out.size_bytes > 3 * fourth * MIB / 2);
        laid_out.give_back(&mut space);
        assert_eq!(space.max_rows(&drives, 5), least);
    }

    #[test]
    fn a_log_takes_no_more_rows_than_its_size_needs() {
        let manifest = testing::pool(&[4000; 4], MIB);
        for mib in [1, 50, 300, 1000, 3000] {
            let mut space = FreeSlabs::new(&manifest);
            let drives = space.usable(Role::Data);
            let wish = wish("raid5", 4, Some(mib * MIB), drives);
            let (laid_out, log) = lay_out_log(&mut space, &wish).ok().unwrap();
            let rows = laid_out.rows.rows();
            assert!(wish.holds(rows, mib * MIB) && !wish.holds(rows - 1, mib * MIB), "{mib} MiB: {rows}");
            assert_eq!((laid_out.size_bytes, log.reserve_percent), (mib * MIB, 15));
        }
        let mut space = FreeSlabs::new(&manifest);
        let drives = space.usable(Role::Data);
        let all = space.free_slabs(0);
        let too_large = lay_out_log(&mut space, &wish("raid5", 4, Some(12_000 * MIB), drives));
        assert!(matches!(too_large, Err(NotLaidOut::NoRoom { possible_rows, .. }) if possible_rows == all));
    }
}
