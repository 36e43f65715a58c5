//! `lab run --driver fio`: fills the target natively, then drives every step with fio.
//!
//! Expected faults: a missing fio, one that refuses a load, an interrupt (fio is killed).

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use stripewise_lab::driver::fio;
use stripewise_lab::method::{Circumstances, Profile};
use stripewise_lab::record::MeasurementRecord;
use stripewise_lab::scenario::{HookFile, Timeline};
use stripewise_lab::store::Sample;
use stripewise_lab::{Contents, SweepOptions, Target, fill, watched};
use stripewise_runtime::interrupt_requested;

use super::options::within;
use super::{Work, named_for, not_measured, usable_bytes};
use crate::commands::lab::store_failure;
use crate::failure::{Failure, Result, chain};
use crate::progress::Progress;

impl Work<'_> {
    /// As [`Self::through_failure`], with fio. Returns the number of figures, and the notes.
    async fn through_failure_by_fio(
        &self,
        profile: &Profile,
        asked: &fio::Asked<'_>,
        hooks: &HookFile,
        first: usize,
    ) -> Result<(usize, Vec<String>)> {
        let context = self.app.executor()?.context();
        let hooks = self.commands(&context, hooks);
        let kept = RefCell::new(Ok(()));
        let keep_timeline =
            |timeline: &Timeline| *kept.borrow_mut() = self.store.keep_timeline(&self.run.run, timeline);
        let keep = |position: usize, figure: &MeasurementRecord, sample: &Sample| {
            self.app.printer.note(format!("fio: {}, run {}", figure.name, figure.runs.len()));
            let kept = self.store.record(&self.run.run, first + position, figure, Some(sample));
            kept.map_err(|error| error.to_string())
        };
        let measured = fio::run_failure_by_fio(
            profile,
            asked,
            &context,
            &hooks,
            &keep_timeline,
            &keep,
            &interrupt_requested,
        );
        let (figures, notes) = measured.await.map_err(|error| not_measured(&self.run.target, &error))?;
        kept.into_inner().map_err(|error| store_failure(&error))?;
        Ok((figures.len(), notes))
    }

    /// Fills the target, so that fio does not read unwritten blocks.
    pub(super) async fn fill<T: Target>(&self, target: &T, bytes: u64) -> Result<()> {
        let contents = Rc::new(Contents::new(self.options.seed, bytes));
        contents.next_phase();
        let sweep = SweepOptions { depth: 16, request_bytes: 1 << 20 };
        let context = self.app.executor()?.context();
        let done = Rc::new(Cell::new(0));
        let progress = RefCell::new(Progress::new(&self.app.printer));
        let look = |done_bytes| {
            progress.borrow_mut().bytes("filling", done_bytes, Some(bytes));
            !interrupt_requested()
        };
        let filled = watched(&context, &done, look, fill(&context, target, &contents, sweep, &done)).await;
        let filled = filled.ok_or_else(|| Failure::new("interrupted"))?;
        filled.map(drop).map_err(|error| Failure::because(format!("cannot fill {}", self.run.target), &error))
    }

    pub(super) async fn by_fio(&self, path: &Path, capacity_bytes: u64, filled: bool) -> Result<Vec<String>> {
        let sizes = self.sizes();
        let mut notes = Vec::new();
        let mut position = 0;
        for size in &sizes {
            let size_bytes =
                usable_bytes(self.fitting(*size, capacity_bytes), capacity_bytes, &self.run.target)?;
            let named = named_for(self.profile, (sizes.len() > 1).then_some(size_bytes));
            let asked = fio::Asked {
                path,
                size_bytes,
                runs: self.options.runs.unwrap_or(named.runs),
                within: within(self.options).map(|within| (within, self.options.most_runs)),
                seconds: self.options.seconds.unwrap_or(named.seconds),
                may_write: !self.options.read_only,
                circumstances: Circumstances { filled_before: filled, ..self.circumstances() },
                seed: self.options.seed,
                hosts: &self.options.hosts,
            };
            if let Some(hooks) = &self.hooks {
                let (count, run_notes) = self.through_failure_by_fio(&named, &asked, hooks, position).await?;
                position += count;
                notes.extend(run_notes);
                continue;
            }
            let (began, progress) = (Instant::now(), RefCell::new(Progress::new(&self.app.printer)));
            let (runs, steps) = (asked.runs.max(1), named.steps.len() as f64);
            for (number, step) in named.steps.iter().enumerate() {
                if interrupt_requested() {
                    return Ok(notes);
                }
                if step.writes() && self.options.read_only {
                    notes.push(format!("{}: skipped, it writes (--read-only)", step.name));
                    continue;
                }
                let goes_on = |run: u32, share: f64| {
                    let of_step = ((f64::from(run) + share) / f64::from(runs)).min(1.0);
                    let done = (number as f64 + of_step) / steps;
                    let left = began.elapsed().as_secs_f64() / done.max(1e-9) * (1.0 - done);
                    let what = format!("fio: {}, run {} of {runs}", step.name, run + 1);
                    progress.borrow_mut().part(&what, 100.0 * done, (done > 0.02).then_some(left));
                    !interrupt_requested()
                };
                let by_host = RefCell::new(Vec::new());
                let keep =
                    |load: usize, figure: &MeasurementRecord, sample: &Sample, hosts: &[(String, f64)]| {
                        *by_host.borrow_mut() = hosts.to_vec();
                        let kept = self.store.record(&self.run.run, position + load, figure, Some(sample));
                        kept.map_err(|error| error.to_string())
                    };
                fio::measure(&named, step, &asked, &goes_on, keep).map_err(|error| failure(&error))?;
                position += step.loads().count();
                let hosts = by_host.into_inner();
                if !hosts.is_empty() {
                    let each: Vec<String> =
                        hosts.iter().map(|(host, rate)| format!("{host} {rate:.1} MB/s")).collect();
                    notes.push(format!("{}: {}", step.name, each.join(", ")));
                }
            }
        }
        Ok(notes)
    }
}

pub(super) fn failure(error: &fio::FioError) -> Failure {
    let failure = Failure::new(chain(error));
    match error {
        fio::FioError::Missing(_) => failure.hint("install fio, or omit --driver fio"),
        _ => failure,
    }
}
