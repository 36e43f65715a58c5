//! Carries out a profile on a target with the native driver, in real or virtual time, one figure
//! after the other.
//!
//! Expects targets that fail, that are too small for a step (told, the others go on), that stop
//! answering, and an interrupt: what was measured until then is kept by the observer.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::Context;

use super::profile::{Profile, Statistic, Step};
use super::validity::{Circumstances, judge};
use crate::contents::Contents;
use crate::load::{Beat, Load, LoadEnd, Pulse, Surroundings, Tally, Window, WindowLimits};
use crate::metered::Traffic;
use crate::record::{Latencies, MeasurementRecord};
use crate::statistics::{is_steady, median};
use crate::store::{Sample, Second};
use crate::sweep::{SweepOptions, fill, verify};
use crate::target::Target;
use crate::workload::{Arrival, Region, Workload, mix, random_stream};

/// A target that does not answer for so long is given up.
const LIMIT_NS: u64 = 120_000_000_000;
/// Pieces in which bandwidth over time is kept.
const SECOND_NS: u64 = 1_000_000_000;
/// How the target is filled, and compared in the end.
const SWEEP: SweepOptions = SweepOptions { depth: 16, request_bytes: 1 << 20 };

/// What ends a run early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Filling it before the measurements failed.
    #[error("filling the target: {0}")]
    Fill(String),
    /// Requests are not answered.
    #[error("{step}: {count} requests were not answered within {} seconds", LIMIT_NS / 1_000_000_000)]
    Stuck {
        /// The measurement.
        step: String,
        /// How many.
        count: u64,
    },
    /// Every request failed.
    #[error("{step}: {why}")]
    Failed {
        /// The measurement.
        step: String,
        /// The first message.
        why: String,
    },
    /// What is there is not what was written.
    #[error("{bytes} bytes are not as they were written; the first at {offset_bytes}: {what}")]
    Damaged {
        /// How many, in blocks of 4 KiB.
        bytes: u64,
        /// The first place.
        offset_bytes: u64,
        /// What is there instead.
        what: String,
    },
    /// What was to be done to the target failed.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The observer could not keep a figure.
    #[error("{0}")]
    Observer(String),
}

/// Why a target did not get into another state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hook `{hook}` {why}")]
pub struct HookError {
    /// Which of its hooks says so.
    pub hook: &'static str,
    /// What it says.
    pub why: String,
}

/// What is asked of a run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Runs of each measurement, where the profile's own are not wanted.
    pub runs: Option<u32>,
    /// More runs, until half the 95 % interval is at most this share of the figure.
    pub within: Option<f64>,
    /// But not more than this.
    pub most_runs: u32,
    /// Length of each, where the profile's own is not wanted.
    pub seconds: Option<f64>,
    /// Bytes of the target in use.
    pub size_bytes: u64,
    /// Whether anything may be written.
    pub may_write: bool,
    /// Whether the target is written once before anything is measured, where it may be.
    pub fills: bool,
    /// Time before each run that does not count, in seconds, where its own tenth is not enough.
    pub ramp_seconds: f64,
    /// Whether time is virtual.
    pub virtual_time: bool,
    /// Where all random choices start.
    pub seed: u64,
    /// What is known of the host.
    pub circumstances: Circumstances,
}

/// Hears of every figure as it grows.
pub trait Observer {
    /// Before a run: which step of how many, which run.
    fn begins(&self, step: &Step, position: usize, steps: usize, run: u32);
    /// Bytes moved so far by the load under way, and its requests since somebody looked at `pulse`.
    fn moved(&self, bytes: u64, pulse: &Pulse);
    /// A run of figure number `position` is done.
    ///
    /// # Errors
    /// Where it cannot be kept; the run ends.
    fn measured(&self, position: usize, figure: &MeasurementRecord, sample: &Sample) -> Result<(), RunError>;
    /// The load of a run has ended, whether the run counts or not.
    fn ended(&self, _step: &Step) {}
    /// Whether to stop in order.
    fn is_interrupted(&self) -> bool;
}

/// What a run needs besides the profile.
pub struct Runner<'a, T: Target> {
    /// Clock and tasks.
    pub context: Context,
    /// What is measured.
    pub target: T,
    /// How.
    pub settings: RunSettings,
    /// Hears of it.
    pub observer: &'a dyn Observer,
    /// Processor time used so far.
    pub cpu_seconds: &'a dyn Fn() -> Option<f64>,
}

/// Measures every step of `profile` and gives the figures in order. Steps that cannot be are left
/// out, with a note.
pub async fn run_profile<T: Target>(
    profile: &Profile,
    runner: &Runner<'_, T>,
) -> Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
    let mut session = Session::begin(profile, runner, &[""]).await?;
    for number in 0..session.plans.len() {
        if session.is_interrupted() {
            break;
        }
        runner.context.sleep_ns((profile.pause_seconds * 1e9) as u64).await;
        while session.wants_more(number) && !session.is_interrupted() {
            session.run_once(number, &Whole).await?;
        }
    }
    session.end().await
}

/// Measures several targets in turns: each round takes one run of every step of each, the targets
/// in random order, so that what changes with time changes for all of them. Gives what
/// [`run_profile`] does, for each target.
pub async fn run_interleaved<T: Target>(
    profile: &Profile,
    runners: &[Runner<'_, T>],
) -> Result<Vec<(Vec<MeasurementRecord>, Vec<String>)>, RunError> {
    let mut sessions = Vec::new();
    for runner in runners {
        sessions.push(Session::begin(profile, runner, &[""]).await?);
    }
    let mut random = random_stream(runners.first().map_or(0, |runner| runner.settings.seed), u64::MAX);
    let mut going: Vec<usize> = (0..sessions.len()).collect();
    while !going.is_empty() {
        for at in (1..going.len()).rev() {
            going.swap(at, random.below(at as u64 + 1) as usize);
        }
        for at in &going {
            let session = &mut sessions[*at];
            for number in 0..session.plans.len() {
                if session.wants_more(number) && !session.is_interrupted() {
                    session.run_once(number, &Whole).await?;
                }
            }
        }
        going.retain(|at| {
            let session = &sessions[*at];
            !session.is_interrupted() && (0..session.plans.len()).any(|number| session.wants_more(number))
        });
    }
    let mut all = Vec::new();
    for session in sessions {
        all.push(session.end().await?);
    }
    Ok(all)
}

/// What has to hold all through a run, for it to count as one.
pub(crate) trait Condition {
    /// Whether the run goes on.
    fn holds(&self) -> bool;
}

/// Nothing but the clock ends a run.
pub(crate) struct Whole;

impl Condition for Whole {
    fn holds(&self) -> bool {
        true
    }
}

/// The runs of a method in every state, whichever driver takes them.
pub(crate) trait Driven {
    /// A load that goes on while something is done to the target.
    type Load;

    /// A number for each step in each state, those of a state together.
    fn steps(&self) -> usize;

    fn name(&self, number: usize) -> &str;

    /// Whether a step needs another run: as many as planned, and on until the interval is as narrow
    /// as asked for.
    fn wants_more(&self, number: usize) -> bool;

    fn is_interrupted(&self) -> bool;

    /// One run of a step. Tells whether `condition` held all through; a run that it cut to less
    /// than half counts as none.
    fn run_once(
        &mut self,
        number: usize,
        condition: &dyn Condition,
    ) -> impl Future<Output = Result<bool, RunError>>;

    /// Starts the load of a step, if of any.
    fn carry_on(
        &mut self,
        number: Option<usize>,
    ) -> impl Future<Output = Result<Option<Self::Load>, RunError>>;

    /// Ends it; requests that failed while a drive went are part of what is watched.
    fn end_load(
        &mut self,
        load: Option<Self::Load>,
        beside: &str,
    ) -> impl Future<Output = Result<(), RunError>>;

    fn note(&mut self, text: String);
}

/// How runs are taken, where a method and its settings leave that open.
pub(crate) struct Manner<'a> {
    /// Time before a run: at least, and at most until the burst of its start is over.
    pub(crate) ramp_ns: [u64; 2],
    /// How long runs are.
    pub(crate) window: WindowLimits,
    /// What the target's drives were asked so far.
    pub(crate) drive_traffic: &'a dyn Fn() -> Traffic,
    /// Only runs during which their state held all through count, but one whose requests all fail
    /// is a run. Otherwise more than half of it is enough, and such a one ends everything.
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

/// A step of a profile, in one state of the target, with what was measured of it.
pub(crate) struct Plan<'a> {
    pub(crate) step: &'a Step,
    /// A load each, and a figure each.
    loads: Vec<Workload>,
    /// Runs that count, of each load.
    pub(crate) windows: Vec<Vec<Window>>,
    figures: Vec<MeasurementRecord>,
    /// Where its figures are among all.
    at: usize,
    /// Runs so far, those that are thrown away as well.
    runs: u32,
    /// Runs that do not count, as their state ended.
    pub(crate) cut: u32,
    /// What a request said that failed.
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
    /// What a reader should know.
    pub(crate) notes: Vec<String>,
    /// Bytes moved by all loads.
    pub(crate) moved: Rc<Cell<u64>>,
    /// Whether a load that discards was run.
    trimmed: bool,
    /// Requests of all loads, for who watches the whole.
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
        // Phantoms have no bytes to be compared.
        let contents = written.filter(|_| !runner.target.buffers().is_phantom());
        let manner = Manner::of(profile, settings);
        Ok(Self { began_ns, ..Self::on(profile, runner, states, contents, manner) })
    }

    /// The same on a target that is as it is to be measured, filled with `contents`.
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

    /// A window of each load of a step, all at once.
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

    /// The figures and the notes; what was written is compared first, if that was asked for.
    pub(crate) async fn end(mut self) -> Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
        if self.is_interrupted() {
            self.notes.push("interrupted: the measurements behind are missing".into());
        } else if let Some(contents) = self.contents.as_ref().filter(|_| self.profile.verify) {
            let done = Rc::new(Cell::new(0));
            let runner = self.runner;
            let found = verify(&runner.context, &runner.target, contents, SWEEP, &done).await;
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
        let taken = self.plans.into_iter().flat_map(|plan| plan.figures);
        Ok((taken.filter(|figure| !figure.runs.is_empty()).collect(), self.notes))
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
        // With one run alone there is none to throw away.
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

    /// Comes back when the burst of its start is over.
    async fn carry_on(&mut self, number: Option<usize>) -> Result<Option<Load<T>>, RunError> {
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
        // What is done to the target shows a while after it.
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

/// A run as it was taken.
struct Run {
    windows: Vec<Window>,
    per_second: Vec<Second>,
    /// Whether its condition held all through.
    held: bool,
    /// What a request said that failed.
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
    let filled = fill(&runner.context, &runner.target, contents, SWEEP, &moved).await;
    filled.map(drop).map_err(|error| RunError::Fill(error.to_string()))
}

/// Whether figures need another run after so many: fewer than planned, or an interval wider than
/// `within` and not yet as many runs as there may be; none once rounds are steady, where that is
/// what counts.
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
    if closed && !load.is_counted() {
        let least = windows.iter().map(Window::requests).min().unwrap_or(0);
        let why = format!("a run of {least} requests, with {outstanding} in flight");
        figure.badge("long_enough", if least >= u64::from(outstanding) { Ok(()) } else { Err(why) });
    }
    figure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::Data;
    use crate::method::built_in;
    use crate::target::DriveTarget;
    use crate::testing::SlowDrive;
    use crate::workload::BlockShare;
    use stripewise_drive::{BufferPool, MemoryDrive};
    use stripewise_runtime::VirtualExecutor;

    #[derive(Default)]
    struct Kept {
        samples: RefCell<Vec<(usize, Sample)>>,
        stop_after: Cell<Option<usize>>,
    }

    impl Observer for Kept {
        fn begins(&self, _: &Step, _: usize, _: usize, _: u32) {}
        fn moved(&self, _: u64, _: &Pulse) {}
        fn measured(&self, at: usize, _: &MeasurementRecord, sample: &Sample) -> Result<(), RunError> {
            self.samples.borrow_mut().push((at, sample.clone()));
            Ok(())
        }
        fn is_interrupted(&self) -> bool {
            self.stop_after.get().is_some_and(|most| self.samples.borrow().len() >= most)
        }
    }

    fn run(profile: &Profile, settings: RunSettings, kept: &Kept) -> (Vec<MeasurementRecord>, Vec<String>) {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let memory = MemoryDrive::new("memory", 64 << 20);
        let drive = SlowDrive::new(&context, memory, 100_000);
        let target = DriveTarget::new(drive, BufferPool::new(8 << 20));
        let runner = Runner { context, target, settings, observer: kept, cpu_seconds: &|| None };
        executor.block_on(run_profile(profile, &runner)).expect("it runs")
    }

    fn settings() -> RunSettings {
        RunSettings {
            runs: Some(3),
            within: None,
            most_runs: 0,
            seconds: Some(0.1),
            size_bytes: 64 << 20,
            may_write: true,
            fills: true,
            ramp_seconds: 0.0,
            virtual_time: true,
            seed: 1,
            circumstances: Circumstances::default(),
        }
    }

    #[test]
    fn a_profile_gives_a_figure_for_each_step() {
        let profile = built_in("crystaldiskmark").expect("it");
        let kept = Kept::default();
        let (figures, notes) = run(&profile, settings(), &kept);
        assert_eq!((figures.len(), notes.len()), (12, 0));
        for figure in &figures {
            // One request at a time takes 0.1 ms: 10,000 a second whatever their length or number.
            assert!((figure.iops.expect("rate") / 10_000.0 - 1.0).abs() < 0.01, "{figure:?}");
            assert_eq!(figure.runs.len(), 2, "the first is thrown away");
            assert!(figure.badges["steady"] && figure.badges["repeatable"], "{figure:?}");
            assert!(!figure.badges.contains_key("caches_defeated"));
        }
        let random = figures.iter().find(|figure| figure.name == "RND4K_Q32T1_read").expect("it");
        let mean = random.latency_us.expect("latencies").mean.expect("a mean");
        assert!((mean - 3200.0).abs() < 50.0, "{mean}");
        assert_eq!(kept.samples.borrow().len(), 24);
    }

    #[test]
    fn what_may_not_be_written_is_left_out_and_told() {
        let profile = built_in("crystaldiskmark").expect("it");
        let (figures, notes) =
            run(&profile, RunSettings { may_write: false, ..settings() }, &Kept::default());
        assert_eq!((figures.len(), notes.len()), (6, 6));
        assert!(figures.iter().all(|figure| !figure.badges["filled_before"]));
    }

    #[test]
    fn transfer_sizes_move_their_total_length_once() {
        let profile = built_in("atto").expect("it");
        let kept = Kept::default();
        let settings = RunSettings { runs: None, seconds: Some(60.0), size_bytes: 64 << 20, ..settings() };
        let profile = Profile {
            steps: profile.steps.into_iter().filter(|step| step.name.starts_with("64KiB")).collect(),
            ..profile
        };
        run(&profile, settings, &kept);
        let samples = kept.samples.borrow();
        assert_eq!(samples.len(), 2);
        for (_, sample) in samples.iter() {
            let lengths = sample.bytes as f64 / f64::from(64 << 20);
            assert!((0.9..1.3).contains(&lengths), "{lengths}");
        }
    }

    #[test]
    fn a_run_too_short_for_what_is_in_flight_says_so() {
        let holds = |seconds| {
            let settings = RunSettings { seconds: Some(seconds), runs: Some(1), ..settings() };
            run(&small(), settings, &Kept::default()).0[0].badges["long_enough"]
        };
        assert!(holds(0.1) && !holds(0.0003));
    }

    fn small() -> Profile {
        let text = "name = \"small\"\nseconds = 0.1\n[[measurement]]\nname = \"r\"\nops = [\"read\", \"write\"]\n\
                    pattern = \"random\"\nblocks = [\"4KiB\"]\ndepths = [4]\n";
        Profile::parse(text).expect("a profile")
    }

    #[test]
    fn loads_beside_each_other_are_figures_of_their_own() {
        let profile = built_in("orion-normal").expect("it");
        let wanted = |step: &Step| ["small 4 large 0", "small 4 large 4"].contains(&step.name.as_str());
        let steps: Vec<Step> = profile.steps.iter().filter(|step| wanted(step)).cloned().collect();
        let (figures, _) = run(&Profile { steps, ..profile }, settings(), &Kept::default());
        let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["small 4 large 0", "small 4 large 4", "small 4 large 4, large"]);
        let rate = |at: usize| figures[at].iops.expect("a rate");
        // The drive answers 10,000 a second, one after the other: four of eight are small.
        assert!((rate(0) / 10_000.0 - 1.0).abs() < 0.02, "{}", rate(0));
        assert!((rate(1) / 5000.0 - 1.0).abs() < 0.05, "{}", rate(1));
        assert!((rate(2) / 5000.0 - 1.0).abs() < 0.05, "{}", rate(2));
        assert_eq!((figures[1].block_bytes, figures[2].block_bytes), (Some(8192), Some(1 << 20)));
    }

    #[test]
    fn what_was_written_is_compared_where_asked_for() {
        for data in [Data::Unique, Data::Compressible(50)] {
            let profile = Profile { verify: true, data, ..small() };
            let (_, notes) = run(&profile, settings(), &Kept::default());
            assert!(notes[0].starts_with("67108864 bytes were read back"), "{notes:?}");
        }
    }

    #[test]
    fn a_part_of_the_target_is_worked_on_and_what_was_discarded_is_told_of_reads_behind_it() {
        let text = "name = \"t\"\nseconds = 0.1\nruns = 1\norder = \"as-given\"\n[[measurement]]\nname = \"r\"\n\
                    ops = [\"read\"]\npattern = \"random\"\nblocks = [\"4KiB\"]\n[[measurement]]\nname = \"d\"\n\
                    ops = [\"discard\", \"read\"]\npattern = \"sequential\"\nblocks = [\"4KiB\"]\n\
                    offset = \"1MiB\"\nworking_set = \"64KiB\"\n[[measurement]]\nname = \"behind\"\nops = [\"read\"]\n\
                    pattern = \"random\"\nblocks = [\"4KiB\"]\noffset = \"64MiB\"\n";
        let profile = Profile::parse(text).expect("a profile");
        let kept = Kept::default();
        let (figures, notes) = run(&profile, settings(), &kept);
        let trimmed: Vec<Option<bool>> =
            figures.iter().map(|figure| figure.badges.get("no_trimmed_blocks").copied()).collect();
        assert_eq!(trimmed, [Some(true), None, Some(false)]);
        assert!(notes.len() == 1 && notes[0].starts_with("behind: left out"), "{notes:?}");
    }

    #[test]
    fn runs_go_on_until_the_interval_is_narrow_or_the_cap_is_reached() {
        let count = |within, most_runs| {
            let settings = RunSettings { within: Some(within), most_runs, ..settings() };
            let mut profile = small();
            // Each request takes as long as any other, so that bandwidth differs from run to run.
            profile.steps[0].workload.blocks =
                [(4096, 90), (1 << 20, 10)].map(|(bytes, share)| BlockShare { bytes, share }).to_vec();
            run(&profile, settings, &Kept::default()).0[0].runs.len()
        };
        assert_eq!(count(1.0, 20), 3, "narrow from the start");
        assert_eq!(count(1e-9, 20), 20, "never narrow enough");
        assert!((4..20).contains(&count(0.12, 20)), "narrow after a few more");
    }

    #[test]
    fn targets_in_turns_are_measured_as_often_and_each_as_itself() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let kept = Kept::default();
        let runner = |request_ns: u64| {
            let drive = SlowDrive::new(&context, MemoryDrive::new("memory", 8 << 20), request_ns);
            let target = DriveTarget::new(drive, BufferPool::new(8 << 20));
            let settings = RunSettings { size_bytes: 8 << 20, ..settings() };
            Runner { context: context.clone(), target, settings, observer: &kept, cpu_seconds: &|| None }
        };
        let runners = [runner(100_000), runner(200_000)];
        let all = executor.block_on(run_interleaved(&small(), &runners)).expect("it runs");
        let rates: Vec<f64> = all.iter().map(|(figures, _)| figures[0].iops.expect("a rate")).collect();
        assert!(
            (rates[0] / 10_000.0 - 1.0).abs() < 0.02 && (rates[1] / 5000.0 - 1.0).abs() < 0.02,
            "{rates:?}"
        );
        assert!(all.iter().flat_map(|(figures, _)| figures).all(|figure| figure.runs.len() == 3));
    }

    #[test]
    fn rounds_end_when_they_are_steady_and_an_interrupt_keeps_what_there_is() {
        let profile = built_in("snia-steady").expect("it");
        let kept = Kept::default();
        let settings = RunSettings { runs: None, ..settings() };
        let (figures, _) = run(&profile, settings.clone(), &kept);
        assert!(figures.iter().all(|figure| figure.runs.len() == 5), "steady from the start");
        let kept = Kept { stop_after: Cell::new(Some(3)), ..Kept::default() };
        let (figures, notes) = run(&profile, settings, &kept);
        assert_eq!((figures.len(), figures[0].runs.len()), (1, 3));
        assert!(notes[0].contains("interrupted"), "{notes:?}");
    }
}
