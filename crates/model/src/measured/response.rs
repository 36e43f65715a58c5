//! Time per request by block size and depth.

use crate::hdd::ParameterError;

/// One cell: a constant number of requests of one size in the drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// Size of each request.
    pub block_bytes: u64,
    /// Requests inside.
    pub depth: u32,
    /// Time from one completion to the next.
    pub us: f64,
}

/// Cells for each of some block sizes at each of some depths.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseTable {
    blocks: Vec<u64>,
    depths: Vec<u32>,
    /// By depth, then block.
    us: Vec<Vec<f64>>,
}

/// Longest time of a cell.
const LONGEST_US: f64 = 60e6;

impl ResponseTable {
    /// Refuses a table with holes, twice the same cell, or times that no drive has.
    pub fn new(name: &str, cells: &[Response]) -> Result<Self, ParameterError> {
        let refuse = |why: String| Err(ParameterError::new(name, why));
        let mut blocks: Vec<u64> = cells.iter().map(|cell| cell.block_bytes).collect();
        let mut depths: Vec<u32> = cells.iter().map(|cell| cell.depth).collect();
        blocks.sort_unstable();
        blocks.dedup();
        depths.sort_unstable();
        depths.dedup();
        if cells.is_empty() || blocks[0] == 0 || depths[0] == 0 {
            return refuse("it needs cells of a block size and a depth above 0".into());
        }
        if blocks.len() * depths.len() != cells.len() {
            let (blocks, depths) = (blocks.len(), depths.len());
            return refuse(format!("{} cells are not {blocks} sizes times {depths} depths", cells.len()));
        }
        let mut us = vec![vec![f64::NAN; blocks.len()]; depths.len()];
        for cell in cells {
            if !(cell.us > 0.0 && cell.us <= LONGEST_US) {
                return refuse(format!("{} µs is not within 0 to {LONGEST_US}", cell.us));
            }
            let row = depths.partition_point(|depth| *depth < cell.depth);
            us[row][blocks.partition_point(|block| *block < cell.block_bytes)] = cell.us;
        }
        match us.iter().flatten().all(|us| us.is_finite()) {
            true => Ok(Self { blocks, depths, us }),
            false => refuse("a cell is there twice, and another is missing".into()),
        }
    }

    /// All cells, by depth, then block size.
    pub fn cells(&self) -> impl Iterator<Item = Response> {
        self.depths.iter().zip(&self.us).flat_map(|(depth, row)| {
            let cell = |(block_bytes, us): (&u64, &f64)| Response {
                block_bytes: *block_bytes,
                depth: *depth,
                us: *us,
            };
            self.blocks.iter().zip(row).map(cell)
        })
    }

    /// The smallest block size, whose time is that of a command.
    pub(crate) fn smallest_block(&self) -> u64 {
        self.blocks[0]
    }

    /// The largest one, whose time is mostly transfer.
    pub(crate) fn largest_block(&self) -> u64 {
        self.blocks[self.blocks.len() - 1]
    }

    /// Microseconds from one completion to the next; straight lines between sizes, powers of the
    /// depth between depths.
    pub fn us(&self, block_bytes: u64, inside: u32) -> f64 {
        let after = self.depths.partition_point(|depth| *depth < inside);
        if after == 0 {
            return self.of_row(0, block_bytes);
        }
        if after == self.depths.len() {
            return self.of_row(after - 1, block_bytes);
        }
        let (low, high) = (f64::from(self.depths[after - 1]), f64::from(self.depths[after]));
        let share = (f64::from(inside) / low).ln() / (high / low).ln();
        let (left, right) = (self.of_row(after - 1, block_bytes), self.of_row(after, block_bytes));
        left * (right / left).powf(share)
    }

    fn of_row(&self, row: usize, block_bytes: u64) -> f64 {
        let (blocks, us) = (&self.blocks, &self.us[row]);
        let last = blocks.len() - 1;
        if block_bytes <= blocks[0] || last == 0 {
            return us[0] * (block_bytes as f64 / blocks[0] as f64).max(1.0);
        }
        let right = blocks.partition_point(|block| *block < block_bytes).min(last);
        let (a, b) = (blocks[right - 1] as f64, blocks[right] as f64);
        let mut slope = (us[right] - us[right - 1]) / (b - a);
        if block_bytes > blocks[last] {
            // Noise may make a larger block look faster; beyond the table that must not go on.
            slope = slope.max(us[last] / b / 2.0);
        }
        us[right - 1] + slope * (block_bytes as f64 - a)
    }
}
