//! Trials in blocks of a fixed size, blocks in rounds. Sums are added in the order of the blocks,
//! and the stop condition is tested after whole rounds. So the answer is the same on any number of
//! threads or machines, also when a block is made twice.

use std::ops::Range;

use rayon::prelude::*;

use super::path::{Plan, Workspace};
use super::tally::{Of, Sums};
use super::{HOURS_PER_YEAR, Question, QuestionError};

const TRIALS_PER_BLOCK: u64 = 512;
/// The first round; later ones double what there is.
const FIRST_BLOCKS: u64 = 8;
/// The first round where a coarse answer suffices: with many drives a trial takes long and has
/// much weight.
const FIRST_COARSE_BLOCKS: u64 = 2;
/// Precision that is coarse.
const COARSE: f64 = 0.15;

/// Stop condition of an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// Wanted half-width of the 95 % interval, relative to the estimate.
    pub precision: f64,
    /// Precision to reach as long as that takes no more than `easy_drive_years`; afterwards a lower
    /// one suffices.
    pub fine_precision: f64,
    /// Maximum drive-years simulated for the finer interval.
    pub easy_drive_years: f64,
    /// Maximum number of trials.
    pub most_trials: u64,
    /// Number of threads; default: those of the process. It does not change the answer.
    pub threads: Option<usize>,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            precision: 0.05,
            fine_precision: 0.003,
            easy_drive_years: 5e7,
            most_trials: 100_000_000,
            threads: None,
        }
    }
}

/// Rounds of blocks that were made, and the next one.
#[derive(Clone, Debug)]
pub struct Rounds {
    stop: Stop,
    years_per_trial: f64,
    sums: Sums,
    blocks: u64,
    expected_trials: u64,
    is_done: bool,
}

impl Rounds {
    /// No round so far.
    pub fn new(question: &Question, stop: &Stop) -> Result<Self, QuestionError> {
        question.check()?;
        Ok(Self {
            stop: *stop,
            years_per_trial: question.structure.drives() as f64 * question.mission_hours / HOURS_PER_YEAR,
            sums: Sums::default(),
            blocks: 0,
            expected_trials: 0,
            is_done: false,
        })
    }

    /// Blocks of the next round; `None` once the interval is narrow enough.
    pub fn next_blocks(&self) -> Option<Range<u64>> {
        let first = match self.stop.precision.min(self.stop.fine_precision) >= COARSE {
            true => FIRST_COARSE_BLOCKS,
            false => FIRST_BLOCKS,
        };
        let most = self.stop.most_trials.div_ceil(TRIALS_PER_BLOCK).max(1);
        let wanted = (2 * self.blocks).max(first).min(most);
        (!self.is_done).then_some(self.blocks..wanted)
    }

    /// Adds all blocks of the next round, in order.
    pub fn add(&mut self, round: Vec<Sums>) {
        self.blocks += round.len() as u64;
        round.into_iter().for_each(|block| self.sums += block);
        let spent = self.sums.trials as f64 * self.years_per_trial;
        // A further round costs as much again.
        let is_easy = 2.0 * spent <= self.stop.easy_drive_years;
        let precision = if is_easy { self.stop.fine_precision } else { self.stop.precision };
        let missing = [Of::Loss, Of::Events].into_iter().map(|of| match self.sums.mean(of) {
            0.0 => f64::INFINITY,
            mean => self.sums.half_width(of) / (precision * mean),
        });
        // An interval narrows with the square root of the trials.
        let missing = missing.fold(0.0, f64::max);
        let expected = self.sums.trials as f64 * missing * missing;
        self.expected_trials = expected.min(self.stop.most_trials as f64) as u64;
        self.is_done = missing <= 1.0 || self.sums.trials >= self.stop.most_trials;
    }

    /// Number of trials made.
    pub fn trials(&self) -> u64 {
        self.sums.trials
    }

    /// Estimated total of trials.
    pub fn expected_trials(&self) -> u64 {
        self.expected_trials
    }

    pub(super) fn sums(&self) -> &Sums {
        &self.sums
    }
}

/// Makes blocks of trials on the threads of the process; the sums of each. `go_on` is called before
/// each block and ends the work by returning false; the answer is `None` then.
pub fn run_blocks(
    question: &Question,
    bytes_per_group: f64,
    seed: u64,
    blocks: Range<u64>,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Vec<Sums>>, QuestionError> {
    question.check()?;
    let plan = Plan::new(question, bytes_per_group);
    let block = |workspace: &mut Workspace, block: u64| {
        if !go_on() {
            return None;
        }
        let mut sums = Sums::default();
        for trial in block * TRIALS_PER_BLOCK..(block + 1) * TRIALS_PER_BLOCK {
            sums.take(&plan.trial(workspace, seed, trial));
        }
        Some(sums)
    };
    Ok(blocks.into_par_iter().map_init(|| plan.workspace(), block).collect())
}
