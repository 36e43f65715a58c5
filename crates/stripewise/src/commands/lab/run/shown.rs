//! Shows the progress of a run with its last rates, and stores every figure when it is measured.

use std::cell::RefCell;
use std::time::Instant;

use stripewise_control::size::duration_text;
use stripewise_lab::Pulse;
use stripewise_lab::method::{Observer, Profile, RunError, Step};
use stripewise_lab::record::MeasurementRecord;
use stripewise_lab::store::Sample;
use stripewise_lab::tables::{number, time_text};
use stripewise_runtime::interrupt_requested;

use super::Work;
use crate::progress::Progress;

/// Shows progress and stores every figure.
pub(super) struct Shown<'a> {
    pub(super) work: &'a Work<'a>,
    pub(super) named: &'a Profile,
    /// Number of figures of the previous sizes.
    pub(super) first: usize,
    pub(super) began: Instant,
    pub(super) progress: RefCell<Progress<'a>>,
    pub(super) now: RefCell<Now>,
    /// Current pass over the target, the bytes done, and their progress.
    pub(super) swept: RefCell<Option<(&'static str, u64, Progress<'a>)>>,
}

/// Interval between samples of the running load.
const SAMPLE_SECONDS: f64 = 0.25;
/// Number of samples in the sparkline.
const SPARKS: usize = 24;

/// Progress of the current run.
pub(super) struct Now {
    what: String,
    /// Fraction of all runs that is complete, without the current run.
    done: f64,
    /// Fraction of all runs that the current run is.
    share: f64,
    began: Instant,
    /// Bytes transferred up to the last sample.
    bytes: u64,
    sampled: Instant,
    /// Rates of the last samples, in 10^6 bytes per second.
    rates: Vec<f64>,
}

impl Default for Now {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            what: String::new(),
            done: 0.0,
            share: 0.0,
            began: now,
            bytes: 0,
            sampled: now,
            rates: Vec::new(),
        }
    }
}

/// Draws a sparkline, scaled to the highest rate.
fn sparks(rates: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = rates.iter().copied().fold(1e-9, f64::max);
    rates.iter().map(|rate| BARS[((rate / most * 7.0).round() as usize).min(7)]).collect()
}

impl Observer for Shown<'_> {
    fn begins(&self, step: &Step, position: usize, steps: usize, run: u32) {
        let runs = self.work.options.runs.unwrap_or(self.named.runs).max(1);
        // Runs that --within adds do not advance the progress.
        let done = (position as f64 + (f64::from(run) / f64::from(runs)).min(1.0)) / steps as f64;
        *self.swept.borrow_mut() = None;
        let mut now = self.now.borrow_mut();
        now.what = format!("{}, run {} of {runs}", step.name, run + 1);
        (now.done, now.bytes, now.sampled, now.began) = (done, 0, Instant::now(), Instant::now());
        now.share = 1.0 / f64::from(runs) / steps as f64;
    }

    fn moved(&self, bytes: u64, pulse: &Pulse) {
        let mut now = self.now.borrow_mut();
        if bytes == 0 {
            // The rate is that since the first answer, not since the ramp began.
            now.sampled = Instant::now();
            return;
        }
        let elapsed = now.sampled.elapsed().as_secs_f64();
        if elapsed < SAMPLE_SECONDS {
            return;
        }
        let (beat, since_bytes) = (pulse.take(), bytes.saturating_sub(now.bytes));
        let rate = since_bytes as f64 / 1e6 / elapsed;
        (now.sampled, now.bytes) = (Instant::now(), bytes);
        if now.rates.len() == SPARKS {
            now.rates.remove(0);
        }
        now.rates.push(rate);
        let so_far = self.began.elapsed().as_secs_f64();
        let run_seconds = self.work.options.seconds.unwrap_or(self.named.seconds);
        let of_run = (now.began.elapsed().as_secs_f64() / run_seconds).min(1.0);
        let done = (now.done + now.share * of_run).min(1.0);
        let mut progress = self.progress.borrow_mut();
        let sparks = if progress.is_on_terminal() { sparks(&now.rates) } else { String::new() };
        progress.live(&now.what, 100.0 * done, || {
            let left = so_far / done.max(1e-9) * (1.0 - done);
            let left = if done > 0.02 { format!(", {} left", duration_text(left)) } else { String::new() };
            let iops = beat.requests as f64 / elapsed;
            let percent = 100.0 * done;
            let mean = time_text(beat.mean_us());
            format!("{percent:.1} %, {} MB/s, {} IOPS, {mean} {sparks}{left}", number(rate), number(iops))
        });
    }

    fn swept(&self, what: &'static str, done_bytes: u64, total_bytes: u64) {
        let mut swept = self.swept.borrow_mut();
        let is_new = swept.as_ref().is_none_or(|(now, done, _)| *now != what || *done > done_bytes);
        if is_new {
            // The bar of the previous pass ends first.
            *swept = None;
            *swept = Some((what, done_bytes, Progress::new(&self.work.app.printer)));
        }
        if let Some((_, done, progress)) = swept.as_mut() {
            *done = done_bytes;
            progress.bytes(what, done_bytes, Some(total_bytes));
        }
    }

    fn measured(
        &self,
        position: usize,
        figure: &MeasurementRecord,
        sample: &Sample,
    ) -> std::result::Result<(), RunError> {
        let kept = self.work.store.record(&self.work.run.run, self.first + position, figure, Some(sample));
        kept.map_err(|error| RunError::Observer(error.to_string()))
    }

    fn is_interrupted(&self) -> bool {
        interrupt_requested()
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed().as_secs_f64();
        self.work.app.printer.note(format!("took {}", duration_text(took)));
    }
}
