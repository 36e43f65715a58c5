//! The failure scenario of an array with fio as the driver.
//!
//! Each run is a process of its own; one during which a rebuild ended cannot be cut short, and
//! counts if more than half of it was before. Bandwidth over time comes from the kernel's counters
//! of the process; latencies over time are unknown. Expects fio to end early if a drive fails
//! during a run: reported, and the states continue.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::Context;

use super::process::Fio;
use super::{Asked, FigureData, FioError, job};
use crate::method::{Condition, Driven, Profile, RunError, Step, needs_more};
use crate::records::record::MeasurementRecord;
use crate::records::results::State;
use crate::records::store::Sample;
use crate::scenario::{Hooks, Timeline, prefixes, watched};

/// Poll interval for a process.
const LOOK_NS: u64 = 20_000_000;
/// Longer than any hook may take.
const WITHOUT_END_S: f64 = 1e6;

/// Keeps a figure: its number, the figure, its last run.
pub(super) type Keep<'a> = &'a dyn Fn(usize, &MeasurementRecord, &Sample) -> Result<(), String>;

/// Runs `scenario::run_failure` with fio. Passes every figure to `keep` as it grows.
///
/// # Errors
/// Those of fio, of hooks, and of `keep`.
pub async fn run_failure_by_fio<H: Hooks>(
    profile: &Profile,
    asked: &Asked<'_>,
    context: &Context,
    hooks: &H,
    timeline: &dyn Fn(&Timeline),
    keep: Keep<'_>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
    let mut runs = Runs {
        profile,
        asked,
        context,
        keep,
        is_interrupted,
        plans: Vec::new(),
        notes: Vec::new(),
        moved: Rc::default(),
    };
    let mut at = 0;
    for state in prefixes(&State::FAILURE) {
        for step in &profile.steps {
            if step.writes() && !asked.may_write {
                let note = format!("{}: left out, as nothing may be written", step.name);
                if !runs.notes.contains(&note) {
                    runs.notes.push(note);
                }
                continue;
            }
            let figure = |load: &crate::loads::workload::Workload| {
                let name = format!("{state}{}", load.name);
                FigureData::of(MeasurementRecord::of_load(&name, step.op, load))
            };
            let taken: Vec<FigureData> = step.loads().map(figure).collect();
            let count = taken.len();
            runs.plans.push(Plan { step, taken, runs: 0, at });
            at += count;
        }
    }
    let moved = runs.moved.clone();
    let runs = watched(runs, context, (&moved, &Rc::default()), hooks, timeline).await?;
    let figures = runs.plans.into_iter().flat_map(|plan| plan.taken).map(|taken| taken.figure);
    Ok((figures.filter(|figure| !figure.runs.is_empty()).collect(), runs.notes))
}

/// A step in a state.
struct Plan<'a> {
    step: &'a Step,
    taken: Vec<FigureData>,
    /// Number of runs, including discarded ones.
    runs: u32,
    /// Number of its first figure.
    at: usize,
}

struct Runs<'a> {
    profile: &'a Profile,
    asked: &'a Asked<'a>,
    context: &'a Context,
    keep: Keep<'a>,
    is_interrupted: &'a dyn Fn() -> bool,
    plans: Vec<Plan<'a>>,
    notes: Vec<String>,
    moved: Rc<Cell<u64>>,
}

impl Runs<'_> {
    /// Starts one process, whose threads the kernel counts together.
    fn start(&self, step: &Step, asked: &Asked<'_>, run: u32) -> Result<Running, FioError> {
        let job = job::job_file(self.profile, step, asked, run)?;
        let fio = Fio::start(&format!("[global]\nthread=1\n{job}"), asked)?;
        let over = Rc::new(Cell::new(false));
        let (context, moved, ended, id) = (self.context.clone(), self.moved.clone(), over.clone(), fio.id());
        self.context.spawn(async move {
            let before = moved.get();
            while !ended.get() {
                // Counters of an ended process are unreadable; its last count stays.
                if let Some(bytes) = bytes_moved(id) {
                    moved.set(moved.get().max(before + bytes));
                }
                context.sleep_ns(LOOK_NS).await;
            }
        });
        Ok(Running { fio: Some(fio), over })
    }
}

/// Bytes counted by the kernel for a process.
fn bytes_moved(id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/io")).ok()?;
    let value = |key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)).and_then(|rest| rest.trim().parse::<u64>().ok())
    };
    Some(value("read_bytes:")? + value("write_bytes:")?)
}

/// A fio process whose bytes are counted; killed when dropped.
struct Running {
    fio: Option<Fio>,
    over: Rc<Cell<bool>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over.set(true);
        if let Some(fio) = &mut self.fio {
            fio.kill();
        }
    }
}

fn run_error(error: &FioError, step: &Step) -> RunError {
    RunError::Failed { step: step.name.clone(), why: error.to_string() }
}

impl Driven for Runs<'_> {
    type Load = Running;

    fn steps(&self) -> usize {
        self.plans.len()
    }

    fn name(&self, number: usize) -> &str {
        &self.plans[number].step.name
    }

    fn wants_more(&self, number: usize) -> bool {
        let plan = &self.plans[number];
        let figures: Vec<MeasurementRecord> = plan.taken.iter().map(|one| one.figure.clone()).collect();
        needs_more(self.profile.statistic, &figures, plan.runs, self.asked.runs.max(1), self.asked.within)
    }

    fn is_interrupted(&self) -> bool {
        (self.is_interrupted)()
    }

    async fn run_once(&mut self, number: usize, condition: &dyn Condition) -> Result<bool, RunError> {
        let (step, run) = (self.plans[number].step, self.plans[number].runs);
        let failed = |error: FioError| run_error(&error, step);
        let mut running = self.start(step, self.asked, run).map_err(failed)?;
        let (start_ns, mut held_until_ns) = (self.context.now_ns(), None);
        let process = running.fio.as_mut().expect("fio was started");
        while !process.has_ended().map_err(failed)? {
            if self.is_interrupted() {
                return Ok(false);
            }
            if held_until_ns.is_none() && !condition.holds() {
                held_until_ns = Some(self.context.now_ns());
            }
            self.context.sleep_ns(LOOK_NS).await;
        }
        let end_ns = self.context.now_ns();
        let process = running.fio.take().expect("fio was started");
        let document = process.answer(step, self.asked.hosts).map_err(failed)?;
        if held_until_ns.is_some_and(|until_ns| 2 * (until_ns - start_ns) < end_ns - start_ns) {
            return Ok(false);
        }
        let discarded = u32::from(self.profile.discard_first && self.asked.runs > 1);
        let plan = &mut self.plans[number];
        plan.runs += 1;
        if plan.runs <= discarded {
            return Ok(held_until_ns.is_none());
        }
        for (load, taken) in plan.taken.iter_mut().enumerate() {
            let started_s = start_ns as f64 / 1e9;
            let sample =
                taken.take(self.profile, step, self.asked, (&document, load), started_s).map_err(failed)?;
            let was_cut = taken.figure.badges.get("all_through") == Some(&false);
            if held_until_ns.is_some() || was_cut {
                let why = "the state of the array ended during a run".to_owned();
                taken.figure.badge("all_through", Err(why));
            }
            (self.keep)(plan.at + load, &taken.figure, &sample).map_err(RunError::Observer)?;
        }
        Ok(held_until_ns.is_none())
    }

    async fn start_load(&mut self, number: Option<usize>) -> Result<Option<Running>, RunError> {
        let Some(plan) = number.and_then(|number| self.plans.get(number)) else { return Ok(None) };
        let mut step = plan.step.clone();
        (step.workload.most_bytes, step.workload.most_requests) = (None, None);
        let asked = Asked { seconds: WITHOUT_END_S, ..self.asked.clone() };
        self.start(&step, &asked, 0).map(Some).map_err(|error| run_error(&error, &step))
    }

    async fn end_load(&mut self, load: Option<Running>, beside: &str) -> Result<(), RunError> {
        let Some((mut load, plan)) = load.zip(self.plans.first()) else { return Ok(()) };
        let process = load.fio.as_mut().expect("fio was started");
        if process.has_ended().map_err(|error| run_error(&error, plan.step))? {
            let process = load.fio.take().expect("fio was started");
            let why = process.answer(plan.step, &[]).err().map(|error| format!(": {error}"));
            self.notes.push(format!("fio ended beside `{beside}`{}", why.unwrap_or_default()));
        }
        Ok(())
    }

    fn note(&mut self, text: String) {
        self.notes.push(text);
    }
}
