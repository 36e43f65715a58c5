//! The runs of a profile on one target, one at a time: the load of a step, the result of a run, and
//! the number of runs needed.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use futures_util::future::join_all;

use super::{Condition, Driven, LIMIT_NS, RunError, RunSettings, Runner};
use crate::loads::contents::Contents;
use crate::loads::load::{Beat, Load, LoadEnd, Pulse, Surroundings, Tally, Window, WindowLimits};
use crate::loads::metered::Traffic;
use crate::loads::sweep::{self, SweepOptions, fill, verify};
use crate::loads::target::Target;
use crate::loads::workload::{Arrival, Region, Workload, mix};
use crate::method::profile::{Profile, Statistic, Step};
use crate::method::validity::{Circumstances, judge, judge_rounds};
use crate::records::record::{Latencies, MeasurementRecord};
use crate::records::store::{Sample, Second};
use crate::statistics::{is_steady, median, steady_text};

/// Interval of bandwidth over time.
const SECOND_NS: u64 = 1_000_000_000;
/// Parameters of the fill and of the final verification.
const SWEEP: SweepOptions = SweepOptions { depth: 16, request_bytes: 1 << 20 };

/// Execution of runs, as far as the method and its settings leave it open.
pub(crate) struct Manner<'a> {
    /// Time before a run: minimum, and maximum wait for the end of the initial burst.
    pub(crate) ramp_ns: [u64; 2],
    /// Length limits of runs.
    pub(crate) window: WindowLimits,
    /// Requests to the target's drives so far.
    pub(crate) drive_traffic: &'a dyn Fn() -> Traffic,
    /// If true, only runs whose state held throughout count, but one whose requests all fail is a
    /// run. Otherwise more than half of it suffices, and a run without success ends everything.
    pub(crate) whole_runs: bool,
}

impl Manner<'static> {
    fn of(profile: &Profile, settings: &RunSettings) -> Self {
        let ns = (settings.seconds.unwrap_or(profile.seconds) * 1e9) as u64;
        let ramp_ns = (settings.ramp_seconds * 1e9) as u64;
        Self {
            ramp_ns: [(ns / 10).min(SECOND_NS / 4).max(ramp_ns), ns.max(ramp_ns)],
            window: WindowLimits { least_ns: ns, least_latencies: 0.0, most_ns: ns },
            drive_traffic: &Traffic::default,
            whole_runs: false,
        }
    }
}

/// A step of a profile in one state of the target, with its measurements.
pub(crate) struct Plan<'a> {
    pub(crate) step: &'a Step,
    /// Loads of the step; each has a figure.
    loads: Vec<Workload>,
    /// Runs that count, of each load.
    pub(crate) windows: Vec<Vec<Window>>,
    figures: Vec<MeasurementRecord>,
    /// Index of its first figure.
    at: usize,
    /// Number of runs so far, including discarded ones.
    runs: u32,
    /// Runs that do not count, as their state ended.
    pub(crate) cut: u32,
    /// Error message of a failed request.
    pub(crate) message: Option<String>,
}

/// A profile on a target, run by run.
pub(crate) struct Session<'a, T: Target> {
    profile: &'a Profile,
    runner: &'a Runner<'a, T>,
    contents: Option<Rc<Contents>>,
    manner: Manner<'a>,
    began_ns: u64,
    pub(crate) plans: Vec<Plan<'a>>,
    /// Remarks for readers.
    pub(crate) notes: Vec<String>,
    /// Bytes moved by all loads.
    pub(crate) moved: Rc<Cell<u64>>,
    /// True if a load with discards was run.
    trimmed: bool,
    /// Requests of all loads, for an observer.
    pub(crate) pulse: Rc<Pulse>,
}

impl<'a, T: Target> Session<'a, T> {
    /// Fills the target and plans every step, once for each of `states`: prefixes of the figures'
    /// names.
    pub(crate) async fn begin(
        profile: &'a Profile,
        runner: &'a Runner<'a, T>,
        states: &[impl AsRef<str>],
    ) -> Result<Self, RunError> {
        let (settings, began_ns) = (&runner.settings, runner.context.now_ns());
        let written = (settings.may_write && settings.fills)
            .then(|| Rc::new(Contents::new(settings.seed, settings.size_bytes).with_data(profile.data)));
        if let Some(contents) = &written {
            for _ in 0..profile.precondition_passes.max(1) {
                precondition(runner, contents).await?;
            }
        }
        // Phantoms have no bytes to compare.
        let contents = written.filter(|_| !runner.target.buffers().is_phantom());
        let manner = Manner::of(profile, settings);
        Ok(Self { began_ns, ..Self::on(profile, runner, states, contents, manner) })
    }

    /// Plans every step on a target that is ready for measurement, filled with `contents`.
    pub(crate) fn on(
        profile: &'a Profile,
        runner: &'a Runner<'a, T>,
        states: &[impl AsRef<str>],
        contents: Option<Rc<Contents>>,
        manner: Manner<'a>,
    ) -> Self {
        let mut session = Self {
            profile,
            runner,
            contents,
            manner,
            began_ns: runner.context.now_ns(),
            plans: Vec::new(),
            notes: Vec::new(),
            moved: Rc::default(),
            trimmed: false,
            pulse: Rc::default(),
        };
        let mut at = 0;
        for state in states {
            for step in &profile.steps {
                match session.plan(step, state.as_ref(), at) {
                    Ok(plan) => {
                        at += plan.figures.len();
                        session.plans.push(plan);
                    }
                    Err(why) if session.notes.contains(&why) => {}
                    Err(why) => session.notes.push(why),
                }
            }
        }
        session
    }

    fn plan(&self, step: &'a Step, state: &str, at: usize) -> Result<Plan<'a>, String> {
        let settings = &self.runner.settings;
        if step.writes() && !settings.may_write {
            return Err(format!("{}: left out, as nothing may be written", step.name));
        }
        let of_load = |load: &Workload| Workload {
            region: Some(Region::within(load.region, settings.size_bytes)),
            ..load.clone()
        };
        let loads: Vec<Workload> = step.loads().map(of_load).collect();
        for load in &loads {
            load.resolve(settings.size_bytes).map_err(|error| format!("{}: left out: {error}", step.name))?;
        }
        let figure =
            |load: &Workload| MeasurementRecord::of_load(&format!("{state}{}", load.name), step.op, load);
        Ok(Plan {
            step,
            windows: vec![Vec::new(); loads.len()],
            figures: loads.iter().map(figure).collect(),
            loads,
            at,
            runs: 0,
            cut: 0,
            message: None,
        })
    }

    fn start(&self, step: &Step, load: &Workload) -> Result<Load<T>, RunError> {
        let contents = self.contents.clone();
        let load = Load::start(&self.runner.context, &self.runner.target, load, contents, &self.moved)
            .map_err(|error| RunError::Failed { step: step.name.clone(), why: error.to_string() })?;
        load.count_in(&self.pulse);
        Ok(load)
    }

    /// Measures one window of each load of a step, all at once.
    async fn windows_of(
        &self,
        plan: &Plan<'_>,
        seed: u64,
        condition: &dyn Condition,
    ) -> Result<Run, RunError> {
        let (runner, context, moved) = (self.runner, &self.runner.context, &self.moved);
        if let Some(contents) = &self.contents {
            contents.next_phase();
        }
        let mut loads = Vec::new();
        for (number, load) in plan.loads.iter().enumerate() {
            let load = load.clone().with_seed(seed.wrapping_add(number as u64));
            loads.push(self.start(plan.step, &load)?);
        }
        if !plan.loads.iter().any(Workload::is_counted) {
            let [least_ns, most_ns] = self.manner.ramp_ns;
            join_all(loads.iter().map(|load| load.ramp_up(least_ns, most_ns))).await;
        }
        let (start_ns, start_bytes) = (context.now_ns(), moved.get());
        let pulse: Rc<Pulse> = Rc::default();
        let live: Rc<Pulse> = Rc::default();
        for load in &loads {
            load.count_in(&pulse);
            load.count_in(&live);
        }
        let seen = Cell::new((start_ns, start_bytes));
        let (per_second, held) = (RefCell::new(Vec::new()), Cell::new(true));
        let holds = || {
            let (now_ns, bytes) = (context.now_ns(), moved.get());
            runner.observer.moved(bytes - start_bytes, &live);
            let (since_ns, since_bytes) = seen.get();
            if now_ns - since_ns >= SECOND_NS {
                per_second.borrow_mut().push(second(bytes - since_bytes, pulse.take()));
                seen.set((now_ns, bytes));
            }
            held.set(held.get() && condition.holds());
            let moved_once =
                self.profile.moves_size_once && bytes - start_bytes >= runner.settings.size_bytes;
            held.get() && !moved_once && !runner.observer.is_interrupted()
        };
        let drive_traffic = self.manner.drive_traffic;
        let around = Surroundings { cpu_seconds: runner.cpu_seconds, drive_traffic, holds: &holds };
        let windows = join_all(loads.iter().map(|load| load.measure(&self.manner.window, &around))).await;
        let mut message = None;
        for (load, window) in loads.into_iter().zip(&windows) {
            let (step, end) = (plan.step.name.clone(), load.stop(LIMIT_NS).await);
            answered(&end, &step)?;
            match end.messages.into_iter().next() {
                Some(why) if window.requests() == 0 && !self.manner.whole_runs => {
                    return Err(RunError::Failed { step, why });
                }
                first => message = message.or(first),
            }
        }
        Ok(Run { windows, per_second: per_second.into_inner(), held: held.get(), message })
    }

    /// Returns the figures and notes; verifies the written data first, if requested.
    pub(crate) async fn end(mut self) -> Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
        if self.is_interrupted() {
            self.notes.push("interrupted: the remaining measurements are missing".into());
        } else if let Some(contents) = self.contents.as_ref().filter(|_| self.profile.verify) {
            let done = Rc::new(Cell::new(0));
            let runner = self.runner;
            let compared = verify(&runner.context, &runner.target, contents, SWEEP, &done);
            let Some(found) = watched(runner, "comparing", contents, &done, compared).await else {
                self.notes.push("interrupted: not all that was written was compared".into());
                return Ok((self.taken(), self.notes));
            };
            if !found.is_clean() {
                let place = found.places.first();
                let (offset_bytes, what) =
                    place.map_or((0, String::new()), |place| (place.offset_bytes, place.found.clone()));
                let bytes = found.corrupt_bytes + found.unreadable_bytes;
                return Err(RunError::Damaged { bytes, offset_bytes, what });
            }
            self.notes.push(format!(
                "{} bytes were read back and compared: none differ; {} were not comparable",
                found.verified_bytes, found.unknown_bytes
            ));
        }
        self.note_steady_states();
        Ok((self.taken(), self.notes))
    }

    /// Says of each figure of a method that ends with the steady state when it was reached.
    fn note_steady_states(&mut self) {
        if self.profile.statistic != Statistic::Steady {
            return;
        }
        for figure in self.plans.iter().flat_map(|plan| &plan.figures).filter(|one| !one.runs.is_empty()) {
            let text = steady_text(&figure.runs).unwrap_or_else(|why| why);
            self.notes.push(format!("{}: {text}", figure.name));
        }
    }

    /// The present figures.
    fn taken(&mut self) -> Vec<MeasurementRecord> {
        let taken = self.plans.drain(..).flat_map(|plan| plan.figures);
        taken.filter(|figure| !figure.runs.is_empty()).collect()
    }
}

impl<T: Target> Driven for Session<'_, T> {
    type Load = Load<T>;

    fn steps(&self) -> usize {
        self.plans.len()
    }

    fn name(&self, number: usize) -> &str {
        &self.plans[number].step.name
    }

    fn is_interrupted(&self) -> bool {
        self.runner.observer.is_interrupted()
    }

    fn wants_more(&self, number: usize) -> bool {
        let (plan, settings) = (&self.plans[number], &self.runner.settings);
        let planned = settings.runs.unwrap_or(self.profile.runs).max(1);
        let most = settings.within.map(|within| (within, settings.most_runs));
        needs_more(self.profile.statistic, &plan.figures, plan.runs, planned, most)
    }

    async fn run_once(&mut self, number: usize, condition: &dyn Condition) -> Result<bool, RunError> {
        let runner = self.runner;
        let plan = &self.plans[number];
        runner.observer.begins(plan.step, number, self.plans.len(), plan.runs);
        let at = (plan.at as u64) << 32 | u64::from(plan.runs);
        let seed = mix(runner.settings.seed ^ mix(at));
        let Run { windows, per_second, held, message } = self.windows_of(plan, seed, condition).await?;
        runner.observer.ended(plan.step);
        let trimmed = self.trimmed;
        let plan = &mut self.plans[number];
        self.trimmed |= plan.loads.iter().any(|load| load.discards);
        plan.message = plan.message.take().or(message);
        let shortest = windows.iter().map(|window| window.duration_ns).min().unwrap_or(0);
        if !held && (self.manner.whole_runs || shortest < self.manner.window.least_ns / 2) {
            plan.cut += 1;
            return Ok(false);
        }
        // A single run cannot be discarded.
        let planned = runner.settings.runs.unwrap_or(self.profile.runs).max(1);
        let discarded = self.profile.discard_first && planned > 1 && plan.runs == 0;
        plan.runs += 1;
        if discarded {
            return Ok(held);
        }
        for (load, window) in windows.into_iter().enumerate() {
            let sample = sample_of(&window, per_second.clone(), self.began_ns);
            plan.windows[load].push(window);
            let figure = plan.figures[load].clone();
            let windows = &plan.windows[load];
            let mut figure = conclude(figure, &plan.loads[load], windows, self.profile, runner, trimmed);
            if !held || figure.badges.get("all_through").is_some_and(|held| !held) {
                let why = "the state of the array ended during a run".to_owned();
                figure.badge("all_through", Err(why));
            }
            plan.figures[load] = figure;
            runner.observer.measured(plan.at + load, &plan.figures[load], &sample)?;
        }
        Ok(held)
    }

    /// Returns after the initial burst.
    async fn start_load(&mut self, number: Option<usize>) -> Result<Option<Load<T>>, RunError> {
        let Some(plan) = number.and_then(|number| self.plans.get(number)) else { return Ok(None) };
        if let Some(contents) = &self.contents {
            contents.next_phase();
        }
        let load = Workload { most_bytes: None, most_requests: None, ..plan.loads[0].clone() };
        let load = self.start(plan.step, &load)?;
        load.ramp_up(self.manner.ramp_ns[0], self.manner.window.least_ns).await;
        Ok(Some(load))
    }

    async fn end_load(&mut self, load: Option<Load<T>>, beside: &str) -> Result<(), RunError> {
        let Some(load) = load else { return Ok(()) };
        // The action on the target takes a while to affect the load.
        self.runner.context.sleep_ns(self.manner.ramp_ns[0]).await;
        let step = format!("the load beside `{beside}`");
        let end = load.stop(LIMIT_NS).await;
        if let Some(message) = end.messages.first() {
            self.notes.push(format!("{} requests failed in {step}: {message}", end.errors));
        }
        answered(&end, &step)
    }

    fn note(&mut self, text: String) {
        self.notes.push(text);
    }
}

/// A measured run.
struct Run {
    windows: Vec<Window>,
    per_second: Vec<Second>,
    /// True if its condition held throughout.
    held: bool,
    /// Error message of a failed request.
    message: Option<String>,
}

fn answered(end: &LoadEnd, step: &str) -> Result<(), RunError> {
    match end.unanswered {
        0 => Ok(()),
        count => Err(RunError::Stuck { step: step.to_owned(), count }),
    }
}

async fn precondition<T: Target>(runner: &Runner<'_, T>, contents: &Rc<Contents>) -> Result<(), RunError> {
    contents.next_phase();
    let moved = Rc::new(Cell::new(0));
    let filling = fill(&runner.context, &runner.target, contents, SWEEP, &moved);
    let filled = watched(runner, "filling", contents, &moved, filling).await;
    filled.ok_or(RunError::Interrupted)?.map(drop).map_err(|error| RunError::Fill(error.to_string()))
}

/// A pass over the target, with progress. `None` if it was interrupted.
async fn watched<T: Target, R>(
    runner: &Runner<'_, T>,
    what: &'static str,
    contents: &Contents,
    done_bytes: &Cell<u64>,
    pass: impl Future<Output = R>,
) -> Option<R> {
    let look = |done_bytes| {
        runner.observer.swept(what, done_bytes, contents.covered_bytes());
        !runner.observer.is_interrupted()
    };
    sweep::watched(&runner.context, done_bytes, look, pass).await
}

/// True if a figure needs another run: fewer than planned, or an interval wider than `within` and
/// the maximum not yet reached. With [`Statistic::Steady`], no more runs are needed once the rounds
/// are steady.
pub(crate) fn needs_more(
    statistic: Statistic,
    figures: &[MeasurementRecord],
    runs: u32,
    planned: u32,
    within: Option<(f64, u32)>,
) -> bool {
    let Some(first) = figures.first() else { return false };
    if statistic == Statistic::Steady && is_steady(&first.runs) {
        return false;
    }
    let is_wide = |figure: &MeasurementRecord, within: f64| match (figure.ci95, median(&figure.runs)) {
        (Some([low, high]), Some(middle)) => (high - low) / 2.0 > within * middle,
        _ => true,
    };
    runs < planned
        || within.is_some_and(|(within, most)| {
            runs < most.max(planned) && figures.iter().any(|figure| is_wide(figure, within))
        })
}

fn second(bytes: u64, beat: Beat) -> Second {
    Second { bytes, mean_us: beat.mean_us(), longest_us: beat.longest_ns as f64 / 1e3 }
}

fn sample_of(window: &Window, per_second: Vec<Second>, began_ns: u64) -> Sample {
    let histogram = |tally: &Tally| (tally.requests > 0).then(|| tally.latency_ns.clone());
    Sample {
        started_s: (window.start_ns - began_ns) as f64 / 1e9,
        seconds: window.duration_ns as f64 / 1e9,
        bytes: window.bytes(),
        requests: window.requests(),
        errors: window.errors,
        cpu_seconds: window.cpu_seconds,
        read_latency: histogram(&window.reads),
        write_latency: histogram(&window.writes),
        per_second,
    }
}

fn conclude<T: Target>(
    figure: MeasurementRecord,
    load: &Workload,
    windows: &[Window],
    profile: &Profile,
    runner: &Runner<'_, T>,
    trimmed_before: bool,
) -> MeasurementRecord {
    let mut all = Tally::new();
    for window in windows {
        all.add(&window.reads);
        all.add(&window.writes);
    }
    let seconds: f64 = windows.iter().map(|window| window.duration_ns as f64 / 1e9).sum();
    let rates: Vec<f64> = windows.iter().map(Window::mb_per_s).collect();
    let mut figure = figure.with_runs(rates.clone());
    figure.mb_per_s = profile.statistic.of(&rates);
    figure.iops = profile.statistic.of(&windows.iter().map(Window::iops).collect::<Vec<_>>());
    figure.latency_us = Latencies::of(&all);
    let outstanding = figure.queue_depth.unwrap_or(1) * figure.workers.unwrap_or(1);
    let closed = load.arrival == Arrival::Closed && load.think_us == 0 && load.flush_every == 0;
    let law = all
        .mean_latency_ns()
        .map(|mean_ns| mean_ns / 1e9 * all.requests as f64 / seconds / f64::from(outstanding));
    let cpu: Option<f64> = windows.iter().map(|window| window.cpu_seconds).sum();
    let around = Circumstances {
        run_bytes: windows.iter().map(Window::bytes).collect(),
        cpu_share: cpu.map(|cpu| cpu / seconds),
        littles_law_ratio: law.filter(|_| closed),
        errors: windows.iter().map(|window| window.errors).sum(),
        trimmed_before,
        region_bytes: runner.settings.size_bytes,
        filled_before: runner.settings.circumstances.filled_before
            || (runner.settings.may_write && runner.settings.fills),
        virtual_time: runner.settings.virtual_time,
        ..runner.settings.circumstances.clone()
    };
    judge(&mut figure, &around);
    if profile.statistic == Statistic::Steady {
        judge_rounds(&mut figure);
    }
    if closed && !load.is_counted() {
        let least = windows.iter().map(Window::requests).min().unwrap_or(0);
        let why = format!("a run of {least} requests, with {outstanding} in flight");
        figure.badge("long_enough", if least >= u64::from(outstanding) { Ok(()) } else { Err(why) });
    }
    figure
}
