//! A workload checked against a target, and its sequence of requests.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::SplitMix64;

use super::places::Zipf;
use super::{Access, Pattern, Region};

/// One request to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Read or write.
    pub is_read: bool,
    /// Offset in bytes from the target's start.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
}

/// A workload checked against a target.
#[derive(Clone, Debug)]
pub struct ResolvedWorkload {
    /// (upper bound of a 32-bit random number, length): the first entry whose bound exceeds the
    /// number applies.
    pub(super) blocks: Vec<(u64, u64)>,
    /// In place of read share and pattern, one for each of `blocks`; or empty.
    pub(super) accesses: Vec<Access>,
    pub(super) read_below: u64,
    pub(super) pattern: Pattern,
    pub(super) zipf: Option<Zipf>,
    pub(super) align_bytes: u64,
    pub(super) region: Region,
    pub(super) part_bytes: u64,
}

/// Position of a sequential job; shared by the tasks that keep its depth.
#[derive(Clone)]
pub struct JobCursor(Rc<Cell<u64>>);

impl ResolvedWorkload {
    /// Initial position of job number `job`.
    pub fn cursor(&self, job: u32) -> JobCursor {
        JobCursor(Rc::new(Cell::new(self.part_start(job))))
    }

    fn part_start(&self, job: u32) -> u64 {
        match self.pattern.is_sequential() {
            true => self.region.offset_bytes + u64::from(job) * self.part_bytes,
            false => self.region.offset_bytes,
        }
    }

    /// Draws the next request of `job` at `cursor`.
    pub fn choose(&self, random: &mut SplitMix64, job: u32, cursor: &JobCursor) -> Choice {
        let dice = random.next_u64();
        let (low, high) = (dice & 0xffff_ffff, dice >> 32);
        let line = match self.blocks.as_slice() {
            [_] => 0,
            blocks => blocks.iter().position(|(bound, _)| low < *bound).unwrap_or(0),
        };
        let length_bytes = self.blocks[line].1;
        let (read_below, pattern) = match self.accesses.get(line) {
            None => (self.read_below, self.pattern),
            Some(line) => ((u64::from(line.read_percent) << 32) / 100, Pattern::Partly(line.random_percent)),
        };
        let is_read = high < read_below;
        let places = (self.region.length_bytes - length_bytes) / self.align_bytes + 1;
        let at_place = |place: u64| self.region.offset_bytes + place * self.align_bytes;
        let offset_bytes = match pattern {
            Pattern::Sequential => self.go_on(job, cursor, length_bytes, length_bytes),
            Pattern::Strided(stride) => self.go_on(job, cursor, length_bytes, stride),
            Pattern::Partly(percent) if random.below(100) < u64::from(percent) => {
                let own = (self.part_bytes - length_bytes) / self.align_bytes + 1;
                let at = self.part_start(job) + random.below(own) * self.align_bytes;
                cursor.0.set(at + length_bytes);
                at
            }
            Pattern::Partly(_) => self.go_on(job, cursor, length_bytes, length_bytes),
            Pattern::Random => at_place(random.below(places)),
            Pattern::Zipf(_) => {
                let zipf = self.zipf.as_ref().expect("made with the pattern");
                at_place(zipf.place(random, places))
            }
            Pattern::HotSpot(requests, region) => {
                let hot = (places * u64::from(region) / 100).clamp(1, places);
                if places == hot || random.below(100) < u64::from(requests) {
                    at_place(random.below(hot))
                } else {
                    at_place(hot + random.below(places - hot))
                }
            }
        };
        Choice { is_read, offset_bytes, length_bytes }
    }

    /// Returns the job's position and moves it by `step`; the end of its part wraps to the start.
    fn go_on(&self, job: u32, cursor: &JobCursor, length_bytes: u64, step: u64) -> u64 {
        let start = self.part_start(job);
        let at = cursor.0.get();
        let at = if at + length_bytes > start + self.part_bytes { start } else { at };
        cursor.0.set(at + step);
        at
    }
}
