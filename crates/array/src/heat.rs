//! Client I/O per row of a volume, the basis for tiering.
//!
//! The unit is what a hard disk can do in the time of one seek (about 8 ms): a request counts 1,
//! plus 1 for each MiB that it moves; a request that starts where another just ended needs no seek
//! and counts its bytes only, so that reading a volume from end to end warms little. Counts halve
//! with every half-life. They are kept in memory only: they are useful again within minutes of a
//! restart, and recording them would cost writes and save nothing.
//!
//! Memory: [`MAX_ROWS`] entries of 24 bytes and their table, about 3 MiB for each volume; beyond
//! that the colder half is dropped. In pools without fast drives nothing is counted, at the cost of
//! a test of a flag.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;

/// Maximum rows tracked per array; beyond it the colder half is dropped.
const MAX_ROWS: usize = 65_536;
/// Ends of recent requests tracked to recognise sequential ones.
const STREAMS: usize = 16;
/// Bytes that a hard disk transfers in the time of one seek.
const SEEK_BYTES: f32 = (1 << 20) as f32;

/// Heat of one row at a point in time.
#[derive(Clone, Copy, Debug)]
struct Warmth {
    heat: f32,
    at_ns: u64,
}

/// Heat of the rows of an array.
pub(crate) struct Heat {
    /// Half-life, in nanoseconds; 0 while counting is off.
    half_life_ns: Cell<u64>,
    rows: RefCell<FxHashMap<u64, Warmth>>,
    ends: RefCell<[u64; STREAMS]>,
    next_end: Cell<usize>,
}

impl Default for Heat {
    fn default() -> Self {
        Self {
            half_life_ns: Cell::new(0),
            rows: RefCell::default(),
            ends: RefCell::new([u64::MAX; STREAMS]),
            next_end: Cell::new(0),
        }
    }
}

impl Heat {
    /// Starts counting with a half-life in nanoseconds; 0 stops counting and drops all counts.
    pub(crate) fn set_half_life(&self, half_life_ns: u64) {
        if self.half_life_ns.replace(half_life_ns) != half_life_ns && half_life_ns == 0 {
            self.rows.take();
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.half_life_ns.get() > 0
    }

    /// Counts a request.
    pub(crate) fn note(&self, now_ns: u64, row_bytes: u64, offset_bytes: u64, length_bytes: u64) {
        let end_bytes = offset_bytes + length_bytes;
        let mut seek = if self.goes_on(offset_bytes, end_bytes) { 0.0 } else { 1.0 };
        let mut at = offset_bytes;
        while at < end_bytes {
            let row = at / row_bytes;
            let stop = end_bytes.min((row + 1) * row_bytes);
            self.warm(now_ns, row, seek + (stop - at) as f32 / SEEK_BYTES);
            seek = 0.0;
            at = stop;
        }
    }

    /// All tracked rows and their heat now.
    pub(crate) fn all(&self, now_ns: u64) -> Vec<(u64, f32)> {
        let rows = self.rows.borrow();
        rows.iter().map(|(row, warmth)| (*row, self.cooled(*warmth, now_ns))).collect()
    }

    /// True if a request begins where one of the last few ended.
    fn goes_on(&self, offset_bytes: u64, end_bytes: u64) -> bool {
        let mut ends = self.ends.borrow_mut();
        if let Some(end) = ends.iter_mut().find(|end| **end == offset_bytes) {
            *end = end_bytes;
            return true;
        }
        let next = self.next_end.get();
        ends[next] = end_bytes;
        self.next_end.set((next + 1) % STREAMS);
        false
    }

    fn warm(&self, now_ns: u64, row: u64, by: f32) {
        let mut rows = self.rows.borrow_mut();
        if rows.len() >= MAX_ROWS && !rows.contains_key(&row) {
            self.forget_colder_half(&mut rows, now_ns);
        }
        let warmth = rows.entry(row).or_insert(Warmth { heat: 0.0, at_ns: now_ns });
        *warmth = Warmth { heat: self.cooled(*warmth, now_ns) + by, at_ns: now_ns };
    }

    fn cooled(&self, warmth: Warmth, now_ns: u64) -> f32 {
        let half_lives = now_ns.saturating_sub(warmth.at_ns) as f32 / self.half_life_ns.get().max(1) as f32;
        warmth.heat * (-half_lives).exp2()
    }

    fn forget_colder_half(&self, rows: &mut FxHashMap<u64, Warmth>, now_ns: u64) {
        let mut heats: Vec<f32> = rows.values().map(|warmth| self.cooled(*warmth, now_ns)).collect();
        let middle = heats.len() / 2;
        let median = *heats.select_nth_unstable_by(middle, f32::total_cmp).1;
        // If all rows are equally warm, all are dropped.
        rows.retain(|_, warmth| self.cooled(*warmth, now_ns) > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const ROW: u64 = 4 << 20;

    fn counting(half_life_s: u64) -> Heat {
        let heat = Heat::default();
        heat.set_half_life(half_life_s * SECOND_NS);
        heat
    }

    impl Heat {
        fn of(&self, now_ns: u64, row: u64) -> f32 {
            self.rows.borrow().get(&row).map_or(0.0, |warmth| self.cooled(*warmth, now_ns))
        }
    }

    fn near(a: f32, b: f32) -> bool {
        (a - b).abs() < 0.01
    }

    #[test]
    fn requests_and_bytes_count_and_cool_down() {
        let heat = counting(10);
        heat.note(0, ROW, 3 * ROW + 4096, 1 << 19);
        assert!(near(heat.of(0, 3), 1.5));
        assert!(near(heat.of(10 * SECOND_NS, 3), 0.75));
        heat.note(20 * SECOND_NS, ROW, 3 * ROW, 4096);
        assert!(near(heat.of(20 * SECOND_NS, 3), 0.375 + 1.0));
        assert_eq!(heat.of(0, 4), 0.0);
    }

    #[test]
    fn stream_heat_counts_bytes_and_is_split_over_rows() {
        let heat = counting(10);
        for piece in 0..128 {
            heat.note(0, ROW, piece << 16, 1 << 16);
            // A second stream, interleaved.
            heat.note(0, ROW, 100 * ROW + (piece << 16), 1 << 16);
        }
        for row in [0, 1, 100, 101] {
            assert!((4.0..5.1).contains(&heat.of(0, row)), "{row}: {}", heat.of(0, row));
        }
        let across = counting(10);
        across.note(0, ROW, ROW - (1 << 20), 2 << 20);
        assert!(near(across.of(0, 0), 2.0) && near(across.of(0, 1), 1.0));
    }

    #[test]
    fn warmest_rows_are_kept_when_there_are_too_many() {
        let heat = counting(10);
        for row in 0..2 * MAX_ROWS as u64 {
            for _ in 0..1 + row % 2 {
                heat.note(row * 1000, ROW, row * ROW + 8192, 4096);
            }
            assert!(heat.rows.borrow().len() <= MAX_ROWS);
        }
        let warm = heat.all(SECOND_NS).iter().filter(|(row, _)| row % 2 == 1).count();
        assert!(warm > MAX_ROWS / 4, "{warm}");
        heat.set_half_life(0);
        assert!(heat.all(SECOND_NS).is_empty() && !heat.is_on());
    }
}
