//! Loads by which drives are measured, and where their requests go.

use std::cell::{Cell, RefCell};

use stripewise_drive::{DriveError, SplitMix64};

/// Offsets of a load's requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Places {
    Random {
        span_bytes: u64,
    },
    /// From here on, and from there again at the end of the drive.
    Stream {
        from_bytes: u64,
    },
    /// So far from the one before, forward, and back from the end.
    Steps {
        distance_bytes: u64,
    },
}

/// Load on the drives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) write: bool,
    pub(super) forced: bool,
    /// Every other request writes, whatever `write` says.
    pub(super) both: bool,
    /// One after the other.
    pub(super) blocks: [u64; 2],
    pub(super) depth: u32,
    pub(super) places: Places,
    /// Completions that do not count yet.
    pub(super) ramp: u64,
    pub(super) seconds: f64,
}

impl Load {
    /// Reads of blocks of this length.
    pub(super) fn of(block: u64, depth: u32, places: Places, seconds: f64) -> Self {
        Self {
            write: false,
            forced: false,
            both: false,
            blocks: [block; 2],
            depth,
            places,
            ramp: depth.into(),
            seconds,
        }
    }
}

/// State of one load on one drive.
pub(super) struct Running {
    pub(super) load: Load,
    pub(super) capacity_bytes: u64,
    pub(super) random: RefCell<SplitMix64>,
    pub(super) at: Cell<u64>,
    pub(super) back: Cell<bool>,
    pub(super) sent: Cell<u64>,
    pub(super) done: RefCell<Vec<u64>>,
    pub(super) failed: RefCell<Option<DriveError>>,
}

impl Running {
    /// Returns the offset and length of the next request, and true if it is a write.
    pub(super) fn next(&self) -> (u64, u64, bool) {
        let turn = self.sent.replace(self.sent.get() + 1) % 2;
        let block = self.load.blocks[turn as usize];
        let write = if self.load.both { turn == 1 } else { self.load.write };
        let end = self.capacity_bytes / block * block;
        let offset = match self.load.places {
            Places::Random { span_bytes } => {
                let places = (span_bytes.min(end) / block).max(1);
                self.random.borrow_mut().below(places) * block
            }
            Places::Stream { .. } => {
                let at = self.at.get();
                let at = if at + block > end { 0 } else { at };
                self.at.set(at + block);
                at
            }
            Places::Steps { distance_bytes } => self.step(distance_bytes, end, block),
        };
        (offset, block, write)
    }

    /// Some more or less than the distance, so that the platter stands anyhow, and no place comes
    /// twice.
    fn step(&self, distance_bytes: u64, end: u64, block: u64) -> u64 {
        let jitter = (distance_bytes / 8).max(1);
        let distance = distance_bytes - jitter / 2 + self.random.borrow_mut().below(jitter);
        let at = self.at.get();
        let last = end - block;
        let back = match self.back.get() {
            true => at >= distance,
            false => at + distance > last,
        };
        self.back.set(back);
        let short = self.random.borrow_mut().below(jitter).min(last);
        let next = match back {
            true => at.checked_sub(distance).unwrap_or(short),
            false => {
                if at + distance <= last {
                    at + distance
                } else {
                    last - short
                }
            }
        };
        self.at.set(next);
        next / block * block
    }
}
