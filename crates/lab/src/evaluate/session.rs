//! One array through all its states: filled, measured normal, degraded and rebuilding, rebuilt
//! without load, every byte compared.
//!
//! A "degraded" array loses its drive under load. A run counts as "rebuilding" only if the rebuild
//! was under way all through it; where the rebuild would end before the next run, its rest is
//! waited for without load, another drive is pulled, and another rebuild begun. Faults expected:
//! failed requests (counted, remarked), rebuilds too fast for a run (told), drives that do not
//! answer (an error).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use stripewise_layout::LayoutSpec;

use super::options::{EvaluateError, EvaluateOptions};
use super::plan::{LATENCIES_PER_RUN, Ledger, Plan, Step, Subject};
use super::recorder::Recorder;
use super::rig::Rig;
use super::world::World;
use crate::contents::{Contents, Verification};
use crate::load::{Load, Surroundings, Window, WindowLimits};
use crate::metered::Traffic;
use crate::results::{ArrayResult, Measurement, RebuildKind, RebuildLoad, RebuildRecord, State};
use crate::sweep::{SweepOptions, fill, verify};
use crate::target::{DriveTarget, Target};
use crate::workload::{Workload, mix};

/// How long a stopped load may take to get its last answers.
const DRAIN_LIMIT_NS: u64 = 60_000_000_000;
/// Fills and comparisons keep this many requests in flight ...
const SWEEP_DEPTH: u32 = 24;
/// ... of whole stripes of about this size.
const SWEEP_REQUEST_BYTES: u64 = 1 << 20;
/// So many rebuilds in a row that end before a single run does, and the state is given up.
const FRUITLESS_REBUILDS: u32 = 2;

/// What all arrays of an evaluation share.
pub(super) struct Bench<'a> {
    pub world: &'a World,
    pub options: &'a EvaluateOptions,
    pub plan: Plan,
    pub pace: Option<stripewise_drive::Pace>,
    pub workloads: &'a [Workload],
    pub ledger: &'a Ledger,
    pub moved_bytes: Rc<Cell<u64>>,
    /// Whether contents exist to be compared.
    pub verifies: bool,
}

/// One run that counts, or not.
struct Run {
    window: Window,
    traffic: Traffic,
    messages: Vec<String>,
}

/// A rebuild under way.
struct ActiveRebuild {
    slot: usize,
    kind: RebuildKind,
    lost_drive: String,
    start_ns: u64,
    written_before: u64,
    traffic_before: Traffic,
    recorder: Recorder,
    loads: Vec<RebuildLoad>,
}

impl Bench<'_> {
    fn now_s(&self) -> f64 {
        self.world.context.now_ns() as f64 / 1e9
    }

    fn contents(&self, capacity_bytes: u64, subject: usize) -> Option<Rc<Contents>> {
        let seed = mix(self.options.seed ^ mix(subject as u64));
        self.verifies.then(|| Rc::new(Contents::new(seed, capacity_bytes)))
    }

    /// Evaluates one array, the number `subject` of the matrix.
    pub(super) async fn array(
        &self,
        number: usize,
        spec: &LayoutSpec,
        subject: &Subject,
    ) -> Result<ArrayResult, EvaluateError> {
        let shape = subject.shape;
        let drive_bytes = match self.world.given_bytes() {
            Some(given) => given,
            None => (self.plan.drive_bytes as f64 * subject.size_factor) as u64 / (1 << 20) * (1 << 20),
        };
        self.world.keep_only(drive_bytes);
        let drives = (0..shape.width)
            .map(|slot| self.world.take(&format!("drive{slot}"), drive_bytes, self.pace))
            .collect::<Result<Vec<_>, _>>()?;
        let work = Work {
            bench: self,
            number,
            layout: spec.level.name().to_owned(),
            drive_bytes,
            cells: RefCell::default(),
            incidents: RefCell::default(),
            next_drive: Cell::new(shape.width),
        };
        let mut result = ArrayResult {
            layout: work.layout.clone(),
            drives: shape.width,
            drive_bytes,
            columns: shape.width,
            interleave_bytes: shape.interleave_bytes,
            data_units: shape.data_units(),
            copies: shape.copies(),
            fault_tolerance: shape.fault_tolerance(),
            capacity_bytes: 0,
            fill_mb_per_s: None,
            rebuild_seconds: None,
            rebuild_mb_per_s: None,
            verified_bytes: 0,
            corrupt_bytes: 0,
            verifications: Vec::new(),
            states: BTreeMap::new(),
            rebuilds: Vec::new(),
            incidents: Vec::new(),
        };
        if spec.level == stripewise_layout::Level::Single {
            // The bare drive, without the engine: what every share of a single drive refers to.
            let [drive] = drives.try_into().map_err(|_| work.wrong("setting up", "one drive expected"))?;
            let target = DriveTarget::new(drive.metered.clone(), self.world.buffers.clone());
            let traffic = || drive.metered.traffic();
            work.plain(&mut result, &target, SWEEP_REQUEST_BYTES, &traffic).await?;
            self.world.give_back(drive);
        } else {
            let priority = self.options.rebuild_priority_percent;
            let seed = mix(self.options.seed ^ mix(number as u64 + 1));
            let rig = Rig::build(self.world, shape, drives, priority, seed).await;
            let rig = rig.map_err(|why| work.wrong("building the array", &why))?;
            let stripe = rig.volume().geometry().stripe_data_bytes();
            let request_bytes = (SWEEP_REQUEST_BYTES / stripe).max(1) * stripe;
            let target = rig.volume().clone();
            let traffic = || rig.traffic();
            if subject.is_redundant() {
                work.redundant(&mut result, &rig, request_bytes).await?;
            } else {
                work.plain(&mut result, &target, request_bytes, &traffic).await?;
            }
            rig.close(self.world).await.map_err(|why| work.wrong("closing the array", &why))?;
        }
        result.corrupt_bytes =
            result.verifications.iter().map(|found| found.corrupt_bytes + found.unreadable_bytes).sum();
        result.verified_bytes = result.verifications.first().map_or(0, |found| found.verified_bytes);
        result.states = work.states();
        result.incidents = work.incidents.take();
        Ok(result)
    }
}

/// The cells that were measured: runs and how many were discarded.
type Cells = BTreeMap<(State, String), (Vec<Run>, u32)>;

/// The work on one array.
struct Work<'a> {
    bench: &'a Bench<'a>,
    number: usize,
    layout: String,
    drive_bytes: u64,
    cells: RefCell<Cells>,
    incidents: RefCell<Vec<String>>,
    /// The number in the next replacement's name.
    next_drive: Cell<usize>,
}

impl Work<'_> {
    fn wrong(&self, phase: &str, why: &str) -> EvaluateError {
        EvaluateError::Array { layout: self.layout.clone(), phase: phase.into(), why: why.into() }
    }

    fn begin(&self, step: Step, what: &str) {
        self.bench.ledger.begin(self.number, step, self.bench.now_s());
        self.bench.ledger.say(format!("{}: {what}", self.layout));
    }

    fn incident(&self, text: String) {
        self.incidents.borrow_mut().push(text);
    }

    /// Fill, measure, compare: all there is for arrays without redundancy.
    async fn plain<T: Target>(
        &self,
        result: &mut ArrayResult,
        target: &T,
        request_bytes: u64,
        traffic: &dyn Fn() -> Traffic,
    ) -> Result<(), EvaluateError> {
        let contents = self.fill(result, target, request_bytes).await?;
        self.begin(Step::Measure(State::Normal), "normal");
        self.measure_all(State::Normal, target, &contents, traffic).await?;
        self.begin(Step::Verify, "comparing every byte");
        self.verify(result, target, &contents, request_bytes, Vec::new()).await;
        Ok(())
    }

    /// The whole life of an array that can lose a drive.
    async fn redundant(
        &self,
        result: &mut ArrayResult,
        rig: &Rig,
        request_bytes: u64,
    ) -> Result<(), EvaluateError> {
        let target = rig.volume();
        let contents = self.fill(result, target, request_bytes).await?;
        self.begin(Step::Measure(State::Normal), "normal");
        self.measure_all(State::Normal, target, &contents, &|| rig.traffic()).await?;

        self.begin(Step::Measure(State::Degraded), "losing a drive under load");
        // Not the first: the one that also holds the first strip is a special case only in
        // appearance.
        let lost_slot = 1;
        self.pull_under_load(rig, lost_slot, &contents).await?;
        self.measure_all(State::Degraded, target, &contents, &|| rig.traffic()).await?;
        if !rig.is_degraded() {
            return Err(self.wrong("measuring it degraded", "it did not stay degraded"));
        }

        self.begin(Step::Measure(State::Rebuilding), "rebuilding");
        let last_slot = self.measure_rebuilding(result, rig, lost_slot, &contents).await?;

        self.begin(Step::IdleRebuild, "rebuilding without load");
        let slot = self.next_slot(rig, last_slot);
        self.pull(rig, slot).await?;
        let rebuild = self.begin_rebuild(rig, slot, RebuildKind::Idle).await?;
        let record = self.finish_rebuild(rig, rebuild).await?;
        result.rebuild_seconds = Some(record.seconds);
        result.rebuild_mb_per_s = Some(record.rebuilt_bytes as f64 / 1e6 / record.seconds.max(1e-9));
        result.rebuilds.push(record);

        self.begin(Step::Verify, "comparing every byte");
        self.verify(result, target, &contents, request_bytes, Vec::new()).await;
        let missing: Vec<usize> = (0..result.fault_tolerance).collect();
        for &slot in &missing {
            self.pull(rig, slot).await?;
        }
        let labels: Vec<String> = missing.iter().map(|&slot| rig.label(slot)).collect();
        self.bench.ledger.say(format!("{}: comparing every byte without {}", self.layout, labels.join(", ")));
        self.verify(result, target, &contents, request_bytes, labels).await;
        Ok(())
    }

    async fn fill<T: Target>(
        &self,
        result: &mut ArrayResult,
        target: &T,
        request_bytes: u64,
    ) -> Result<Option<Rc<Contents>>, EvaluateError> {
        self.begin(Step::Fill, "filling");
        let bench = self.bench;
        result.capacity_bytes = target.capacity_bytes();
        // Where nothing can be compared the fill still has to happen: an array that was never
        // written rebuilds nothing.
        let contents = Rc::new(Contents::new(
            mix(bench.options.seed ^ mix(self.number as u64)),
            target.capacity_bytes(),
        ));
        contents.next_phase();
        let options = SweepOptions { depth: SWEEP_DEPTH, request_bytes };
        let filled = fill(&bench.world.context, target, &contents, options, &bench.moved_bytes).await;
        let took_ns = filled.map_err(|error| self.wrong("filling", &error.to_string()))?;
        result.fill_mb_per_s = Some(contents.covered_bytes() as f64 * 1e3 / took_ns.max(1) as f64);
        Ok(bench.contents(target.capacity_bytes(), self.number).map(|_| contents))
    }

    async fn verify<T: Target>(
        &self,
        result: &mut ArrayResult,
        target: &T,
        contents: &Option<Rc<Contents>>,
        request_bytes: u64,
        missing_drives: Vec<String>,
    ) {
        let Some(contents) = contents else { return };
        let bench = self.bench;
        let options = SweepOptions { depth: SWEEP_DEPTH, request_bytes };
        let found = verify(&bench.world.context, target, contents, options, &bench.moved_bytes).await;
        result.verifications.push(Verification { missing_drives, ..found });
    }

    /// All workloads of a state, as many runs as planned.
    async fn measure_all<T: Target>(
        &self,
        state: State,
        target: &T,
        contents: &Option<Rc<Contents>>,
        traffic: &dyn Fn() -> Traffic,
    ) -> Result<(), EvaluateError> {
        for workload in self.bench.workloads {
            for run in 0..self.bench.plan.runs {
                self.say_run(state, workload, run);
                let run = self.one_run(state, workload, run, target, contents, traffic, &|| true).await?;
                self.keep(state, workload, run);
            }
        }
        Ok(())
    }

    fn say_run(&self, state: State, workload: &Workload, run: u32) {
        let name = crate::tables::short_name(&workload.name);
        let runs = self.bench.plan.runs;
        self.bench.ledger.say(format!("{}, {state}: {name}, run {} of {runs}", self.layout, run + 1));
    }

    /// Files a run under its cell; an interrupted one is only counted.
    fn keep(&self, state: State, workload: &Workload, run: Run) {
        let mut cells = self.cells.borrow_mut();
        let (runs, discarded) = cells.entry((state, workload.name.clone())).or_default();
        if run.window.interrupted {
            *discarded += 1;
        } else {
            runs.push(run);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one place that a run is made of")]
    async fn one_run<T: Target>(
        &self,
        state: State,
        workload: &Workload,
        run: u32,
        target: &T,
        contents: &Option<Rc<Contents>>,
        traffic: &dyn Fn() -> Traffic,
        holds: &dyn Fn() -> bool,
    ) -> Result<Run, EvaluateError> {
        let bench = self.bench;
        let plan = &bench.plan;
        if let Some(contents) = contents {
            contents.next_phase();
        }
        let identity = [self.number as u64, state as u64, u64::from(run)];
        let seed = identity.iter().fold(bench.options.seed, |seed, part| mix(seed ^ part));
        let workload = workload.clone().with_seed(seed);
        let phase = || format!("{state}, {}", workload.name);
        let load = Load::start(&bench.world.context, target, &workload, contents.clone(), &bench.moved_bytes)
            .map_err(|error| self.wrong(&phase(), &error.to_string()))?;
        load.ramp_up((plan.ramp_s * 1e9) as u64, (plan.most_ramp_s * 1e9) as u64).await;
        let before = traffic();
        let limits = WindowLimits {
            least_ns: (plan.least_run_s * 1e9) as u64,
            least_latencies: LATENCIES_PER_RUN,
            most_ns: (plan.most_run_s * 1e9).min(1e18) as u64,
        };
        let cpu_seconds = || bench.world.cpu_seconds();
        let around = Surroundings { cpu_seconds: &cpu_seconds, drive_traffic: traffic, holds };
        let window = load.measure(&limits, &around).await;
        let traffic = traffic().since(&before);
        let end = load.stop(DRAIN_LIMIT_NS).await;
        if end.unanswered > 0 {
            let why = format!("{} requests had no answer after a minute", end.unanswered);
            return Err(self.wrong(&phase(), &why));
        }
        Ok(Run { window, traffic, messages: end.messages })
    }

    /// Pulls a drive while the first load runs on all of them.
    async fn pull_under_load(
        &self,
        rig: &Rig,
        slot: usize,
        contents: &Option<Rc<Contents>>,
    ) -> Result<(), EvaluateError> {
        let bench = self.bench;
        if let Some(contents) = contents {
            contents.next_phase();
        }
        // The mixed load is the hardest; a quick look has no time for its last answers.
        let under = if bench.options.quick { bench.workloads.first() } else { bench.workloads.last() };
        let Some(workload) = under else { return self.pull(rig, slot).await };
        let phase = "losing a drive under load";
        let load =
            Load::start(&bench.world.context, rig.volume(), workload, contents.clone(), &bench.moved_bytes)
                .map_err(|error| self.wrong(phase, &error.to_string()))?;
        load.ramp_up((bench.plan.ramp_s * 1e9) as u64, (bench.plan.least_run_s * 1e9) as u64).await;
        self.pull(rig, slot).await?;
        bench.world.context.sleep_ns((bench.plan.ramp_s * 1e9) as u64).await;
        let end = load.stop(DRAIN_LIMIT_NS).await;
        if end.unanswered > 0 {
            return Err(
                self.wrong(phase, &format!("{} requests had no answer after a minute", end.unanswered))
            );
        }
        if end.errors > 0 {
            let first = end.messages.first().map_or("", String::as_str);
            self.incident(format!(
                "{} requests failed when a drive was pulled under load: {first}",
                end.errors
            ));
        }
        Ok(())
    }

    async fn pull(&self, rig: &Rig, slot: usize) -> Result<(), EvaluateError> {
        rig.pull(slot).await.map_err(|why| self.wrong("losing a drive", &why))
    }

    /// Another slot than the last one, so that every rebuild is of another drive.
    fn next_slot(&self, rig: &Rig, last: usize) -> usize {
        (last + 1) % rig.width()
    }

    /// All workloads while a rebuild is under way. Returns the slot that was rebuilt last.
    async fn measure_rebuilding(
        &self,
        result: &mut ArrayResult,
        rig: &Rig,
        first_slot: usize,
        contents: &Option<Rc<Contents>>,
    ) -> Result<usize, EvaluateError> {
        let context = &self.bench.world.context;
        let mut slot = first_slot;
        let mut active = Some(self.begin_rebuild(rig, slot, RebuildKind::Load).await?);
        for workload in self.bench.workloads {
            let (mut run, mut fruitless, mut run_s) = (0, 0, self.bench.plan.least_run_s);
            let mut fresh = active.as_ref().is_some_and(|rebuild| rebuild.loads.is_empty());
            while run < self.bench.plan.runs {
                let outlasts = active.as_ref().is_some_and(|rebuild| self.outlasts(rig, rebuild, run_s));
                if !outlasts && !fresh {
                    if let Some(rebuild) = active.take() {
                        result.rebuilds.push(self.finish_rebuild(rig, rebuild).await?);
                    }
                    slot = self.next_slot(rig, slot);
                    self.pull(rig, slot).await?;
                    active = Some(self.begin_rebuild(rig, slot, RebuildKind::Load).await?);
                }
                self.say_run(State::Rebuilding, workload, run);
                let began_ns = context.now_ns();
                let done = self
                    .one_run(
                        State::Rebuilding,
                        workload,
                        run,
                        rig.volume(),
                        contents,
                        &|| rig.traffic(),
                        &|| rig.is_rebuilding(),
                    )
                    .await?;
                run_s = (context.now_ns() - began_ns) as f64 / 1e9;
                if let Some(rebuild) = &mut active {
                    let since = |at_ns: u64| (at_ns - rebuild.start_ns) as f64 / 1e9;
                    rebuild.loads.push(RebuildLoad {
                        workload: workload.name.clone(),
                        from_seconds: since(began_ns),
                        to_seconds: since(context.now_ns()),
                    });
                }
                let interrupted = done.window.interrupted;
                self.keep(State::Rebuilding, workload, done);
                if !interrupted {
                    (run, fruitless, fresh) = (run + 1, 0, false);
                    continue;
                }
                fruitless += u32::from(std::mem::replace(&mut fresh, false) || run == 0);
                if fruitless >= FRUITLESS_REBUILDS {
                    self.incident(format!(
                        "A rebuild ends within {run_s:.1} s, before a run of {} does: larger drives (--size), a slower pace or \
                         shorter runs (--seconds) are needed.",
                        workload.name
                    ));
                    break;
                }
            }
        }
        if let Some(rebuild) = active.take() {
            self.bench.ledger.say(format!("{}: the rest of the rebuild, without load", self.layout));
            result.rebuilds.push(self.finish_rebuild(rig, rebuild).await?);
        }
        Ok(slot)
    }

    /// Whether a rebuild will probably still be under way after another run.
    fn outlasts(&self, rig: &Rig, rebuild: &ActiveRebuild, run_s: f64) -> bool {
        let Some(percent) = rig.rebuild_percent()() else { return false };
        let elapsed_s = (self.bench.world.context.now_ns() - rebuild.start_ns) as f64 / 1e9;
        let left_s = elapsed_s * (100.0 - percent) / percent.max(0.1);
        left_s > 1.1 * run_s
    }

    async fn begin_rebuild(
        &self,
        rig: &Rig,
        slot: usize,
        kind: RebuildKind,
    ) -> Result<ActiveRebuild, EvaluateError> {
        let world = self.bench.world;
        let number = self.next_drive.replace(self.next_drive.get() + 1);
        let lost_drive = rig.label(slot);
        let new = world.take_another(
            &format!("drive{number}"),
            self.drive_bytes,
            self.bench.pace,
            rig.drive(slot),
        )?;
        let start_ns = world.context.now_ns();
        let written_before = new.metered.traffic().written_bytes;
        let traffic_before = rig.traffic();
        let old = rig.replace(slot, new.clone()).await;
        old.map_err(|why| self.wrong("beginning a rebuild", &why))?;
        let percent = rig.rebuild_percent();
        let recorder = Recorder::start(&world.context, new.metered, self.bench.moved_bytes.clone(), percent);
        Ok(ActiveRebuild {
            slot,
            kind,
            lost_drive,
            start_ns,
            written_before,
            traffic_before,
            recorder,
            loads: Vec::new(),
        })
    }

    async fn finish_rebuild(
        &self,
        rig: &Rig,
        rebuild: ActiveRebuild,
    ) -> Result<RebuildRecord, EvaluateError> {
        rig.until_rebuilt().await.map_err(|why| self.wrong("rebuilding", &why))?;
        let seconds = (self.bench.world.context.now_ns() - rebuild.start_ns) as f64 / 1e9;
        let loaded_s = rebuild.loads.last().map_or(0.0, |load| load.to_seconds);
        let written = rig.drive(rebuild.slot).metered.traffic().written_bytes - rebuild.written_before;
        Ok(RebuildRecord {
            kind: rebuild.kind,
            lost_drive: rebuild.lost_drive,
            seconds,
            idle_seconds: (seconds - loaded_s).max(0.0),
            rebuilt_bytes: written,
            drive_traffic: rig.traffic().since(&rebuild.traffic_before),
            timeline: rebuild.recorder.finish(rebuild.start_ns),
            loads: rebuild.loads,
        })
    }

    /// The measurements of all cells that have runs.
    fn states(&self) -> BTreeMap<State, BTreeMap<String, Measurement>> {
        let mut states: BTreeMap<State, BTreeMap<String, Measurement>> = BTreeMap::new();
        for ((state, workload), (runs, discarded)) in self.cells.take() {
            if let Some(message) = runs.iter().flat_map(|run| &run.messages).next() {
                self.incident(format!("{state}, {workload}: a request failed: {message}"));
            }
            let outstanding = self.bench.workloads.iter().find(|other| other.name == workload);
            if runs.is_empty() {
                continue;
            }
            let traffic = runs.iter().fold(Traffic::default(), |sum, run| sum.plus(&run.traffic));
            let windows: Vec<Window> = runs.into_iter().map(|run| run.window).collect();
            let outstanding = outstanding.map_or(1, Workload::outstanding);
            let cell = Measurement::of(&windows, outstanding, traffic, discarded);
            states.entry(state).or_default().insert(workload, cell);
        }
        states
    }
}
