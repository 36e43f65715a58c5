//! One array of an evaluation: filled, taken through its states by the failure scenario, rebuilt
//! without load, verified completely.
//!
//! The scenario is that of `lab run`, on a system whose hooks pull the engine's own drives. A run
//! counts as "rebuilding" only if the rebuild was running throughout; if the rebuild would end
//! before the next run, its rest completes without load, another drive is pulled, and another
//! rebuild starts. Faults expected: failed requests (counted and reported), rebuilds too fast for a
//! run (reported), drives that do not answer (an error).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use stripewise_layout::LayoutSpec;

use super::options::{EvaluateError, EvaluateOptions};
use super::plan::{LATENCIES_PER_RUN, Ledger, Plan, Step, Subject};
use super::recorder::Recorder;
use super::rig::Rig;
use super::world::World;
use crate::loads::contents::{Contents, Verification};
use crate::loads::load::{Pulse, WindowLimits};
use crate::loads::metered::Traffic;
use crate::loads::sweep::{SweepOptions, fill, verify};
use crate::loads::target::{DriveTarget, Target};
use crate::loads::workload::{Workload, mix};
use crate::method::{
    self, Circumstances, HookError, Manner, Observer, Profile, RunError, RunSettings, Runner, Session,
};
use crate::records::record::MeasurementRecord;
use crate::records::results::{ArrayResult, Measurement, RebuildKind, RebuildLoad, RebuildRecord, State};
use crate::records::store::Sample;
use crate::scenario::{Course, Event, Hooks, prefixes, through};

/// Requests in flight during fills and verifications.
const SWEEP_DEPTH: u32 = 24;
/// Approximate request size of fills and verifications; a whole number of stripes.
const SWEEP_REQUEST_BYTES: u64 = 1 << 20;

/// State shared by all arrays of an evaluation.
pub(super) struct Bench<'a> {
    pub world: &'a World,
    pub options: &'a EvaluateOptions,
    pub plan: Plan,
    pub pace: Option<stripewise_drive::Pace>,
    pub workloads: &'a [Workload],
    pub ledger: &'a Ledger,
    pub moved_bytes: Rc<Cell<u64>>,
}

impl Bench<'_> {
    /// Evaluates array number `subject` of the matrix.
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
            state: Cell::new(State::Normal),
            run_began_ns: Cell::new(0),
            rebuild_began_ns: Cell::new(0),
            rebuilds: RefCell::default(),
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
            // The bare drive, without the engine: the baseline of every share of a single drive.
            let [drive] = drives.try_into().map_err(|_| work.wrong("setting up", "one drive expected"))?;
            let target = DriveTarget::new(drive.metered.clone(), self.world.buffers.clone());
            let traffic = || drive.metered.traffic();
            work.evaluate(&mut result, &target, SWEEP_REQUEST_BYTES, &traffic, None).await?;
            self.world.give_back(drive);
        } else {
            let priority = self.options.rebuild_priority_percent;
            let seed = mix(self.options.seed ^ mix(number as u64 + 1));
            let rig = Rig::build(self.world, shape, spec.interleave_bytes, drives, priority, seed).await;
            let rig = rig.map_err(|why| work.wrong("building the array", &why))?;
            let stripe = rig.volume().geometry().stripe_data_bytes();
            result.interleave_bytes = rig.volume().geometry().interleave_bytes();
            let request_bytes = (SWEEP_REQUEST_BYTES / stripe).max(1) * stripe;
            let (target, traffic) = (rig.volume().clone(), || rig.traffic());
            let tested = ArrayHooks {
                work: &work,
                rig: &rig,
                drive_bytes,
                slot: Cell::new(0),
                next_drive: Cell::new(shape.width),
                recorder: Cell::default(),
            };
            let tested = subject.is_redundant().then_some(&tested);
            work.evaluate(&mut result, &target, request_bytes, &traffic, tested).await?;
            rig.close(self.world).await.map_err(|why| work.wrong("closing the array", &why))?;
        }
        result.corrupt_bytes =
            result.verifications.iter().map(|found| found.corrupt_bytes + found.unreadable_bytes).sum();
        result.verified_bytes = result.verifications.first().map_or(0, |found| found.verified_bytes);
        Ok(result)
    }
}

/// The work on one array.
struct Work<'a> {
    bench: &'a Bench<'a>,
    number: usize,
    layout: String,
    state: Cell<State>,
    run_began_ns: Cell<u64>,
    rebuild_began_ns: Cell<u64>,
    rebuilds: RefCell<Vec<RebuildRecord>>,
}

impl Work<'_> {
    fn wrong(&self, phase: &str, why: &str) -> EvaluateError {
        EvaluateError::Array { layout: self.layout.clone(), phase: phase.into(), why: why.into() }
    }

    fn failed(&self, error: RunError) -> EvaluateError {
        match error {
            RunError::Hook(HookError { hook: "fail", why }) => self.wrong("losing a drive", &why),
            RunError::Hook(HookError { hook: "replace", why }) => self.wrong("beginning a rebuild", &why),
            RunError::Hook(HookError { why, .. }) => self.wrong("rebuilding", &why),
            other => self.wrong(&self.state.get().to_string(), &other.to_string()),
        }
    }

    /// Runs a hook outside the scenario.
    async fn call<T>(
        &self,
        hook: &'static str,
        work: impl Future<Output = Result<T, String>>,
    ) -> Result<T, EvaluateError> {
        work.await.map_err(|why| self.failed(HookError { hook, why }.into()))
    }

    fn begin(&self, step: Step, what: &str) {
        self.bench.ledger.begin(self.number, step, self.now_ns() as f64 / 1e9);
        self.say(what);
    }

    fn say(&self, what: &str) {
        self.bench.ledger.say(format!("{}: {what}", self.layout));
    }

    fn now_ns(&self) -> u64 {
        self.bench.world.context.now_ns()
    }

    fn seed(&self) -> u64 {
        mix(self.bench.options.seed ^ mix(self.number as u64))
    }

    /// Fills, measures all states and verifies; an array with redundancy is also rebuilt without
    /// load.
    async fn evaluate<T: Target>(
        &self,
        result: &mut ArrayResult,
        target: &T,
        request_bytes: u64,
        traffic: &dyn Fn() -> Traffic,
        tested: Option<&ArrayHooks<'_>>,
    ) -> Result<(), EvaluateError> {
        let contents = self.fill(result, target, request_bytes).await?;
        self.measure(result, target, contents.clone(), traffic, tested).await?;
        if let Some(tested) = tested {
            self.begin(Step::IdleRebuild, "rebuilding without load");
            self.call("fail", tested.fail()).await?;
            self.call("replace", tested.replace()).await?;
            self.call("rebuild-done", tested.is_rebuilt()).await?;
            result.rebuilds = self.rebuilds();
            let idle = result.rebuilds.last();
            result.rebuild_seconds = idle.map(|record| record.seconds);
            result.rebuild_mb_per_s =
                idle.map(|record| record.rebuilt_bytes as f64 / 1e6 / record.seconds.max(1e-9));
        }
        self.begin(Step::Verify, "comparing every byte");
        self.verify(result, target, &contents, request_bytes, Vec::new()).await;
        if let Some(ArrayHooks { rig, .. }) = tested {
            let missing: Vec<usize> = (0..result.fault_tolerance).collect();
            for &slot in &missing {
                self.call("fail", rig.pull(slot)).await?;
            }
            let labels: Vec<String> = missing.iter().map(|&slot| rig.label(slot)).collect();
            self.say(&format!("comparing every byte without {}", labels.join(", ")));
            self.verify(result, target, &contents, request_bytes, labels).await;
        }
        Ok(())
    }

    /// Returns the contents to verify, if the drives store bytes. Without bytes the fill still has
    /// to happen: an unwritten array has nothing to rebuild.
    async fn fill<T: Target>(
        &self,
        result: &mut ArrayResult,
        target: &T,
        request_bytes: u64,
    ) -> Result<Option<Rc<Contents>>, EvaluateError> {
        self.begin(Step::Fill, "filling");
        let bench = self.bench;
        result.capacity_bytes = target.capacity_bytes();
        let contents = Rc::new(Contents::new(self.seed(), target.capacity_bytes()));
        contents.next_phase();
        let options = SweepOptions { depth: SWEEP_DEPTH, request_bytes };
        let filled = fill(&bench.world.context, target, &contents, options, &bench.moved_bytes).await;
        let took_ns = filled.map_err(|error| self.wrong("filling", &error.to_string()))?;
        result.fill_mb_per_s = Some(contents.covered_bytes() as f64 * 1e3 / took_ns.max(1) as f64);
        Ok(Some(contents).filter(|_| !target.buffers().is_phantom()))
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

    /// Measures all loads in every state of the array.
    async fn measure<T: Target>(
        &self,
        result: &mut ArrayResult,
        target: &T,
        contents: Option<Rc<Contents>>,
        traffic: &dyn Fn() -> Traffic,
        tested: Option<&ArrayHooks<'_>>,
    ) -> Result<(), EvaluateError> {
        let Bench { world, plan, workloads, .. } = self.bench;
        let ns = |seconds: f64| (seconds * 1e9).min(1e18) as u64;
        let runner = Runner {
            context: world.context.clone(),
            target: target.clone(),
            settings: RunSettings {
                runs: Some(plan.runs),
                within: None,
                most_runs: 0,
                seconds: None,
                size_bytes: target.capacity_bytes() / 4096 * 4096,
                may_write: true,
                fills: false,
                ramp_seconds: 0.0,
                virtual_time: world.is_virtual(),
                seed: self.seed(),
                circumstances: Circumstances::default(),
            },
            observer: self,
            cpu_seconds: &|| world.cpu_seconds(),
        };
        let manner = Manner {
            ramp_ns: [ns(plan.ramp_s), ns(plan.most_ramp_s)],
            window: WindowLimits {
                least_ns: ns(plan.least_run_s),
                least_latencies: LATENCIES_PER_RUN,
                most_ns: ns(plan.most_run_s),
            },
            drive_traffic: traffic,
            whole_runs: true,
        };
        let course = Course {
            states: if tested.is_some() { &State::ALL } else { &State::ALL[..1] },
            // The mixed load is the hardest; a quick look has no time for its last answers.
            beside_failing: if self.bench.options.quick { 0 } else { workloads.len() - 1 },
            beside_replacing: None,
            repeats: true,
        };
        let profile = Profile::of_loads(workloads);
        let mut session = Session::on(&profile, &runner, &prefixes(course.states), contents, manner);
        if let Some(why) = session.notes.first() {
            return Err(self.wrong("preparing the loads", why));
        }
        session.moved = self.bench.moved_bytes.clone();
        let tell = |event| self.hear(event);
        let gone_through = through(&mut session, &world.context, tested, &course, &tell).await;
        gone_through.map_err(|error| self.failed(error))?;
        result.incidents = session.notes;
        for (number, plan) in session.plans.iter().enumerate() {
            let (state, name) = (course.states[number / workloads.len()], &plan.step.name);
            if let Some(message) = &plan.message {
                result.incidents.push(format!("{state}, {name}: a request failed: {message}"));
            }
            if !plan.windows[0].is_empty() {
                let outstanding = plan.step.workload.outstanding();
                let cell = Measurement::of(&plan.windows[0], outstanding, plan.cut);
                result.states.entry(state).or_default().insert(name.clone(), cell);
            }
        }
        Ok(())
    }

    fn hear(&self, event: Event) {
        match event {
            Event::Calls("fail") if self.state.get() == State::Normal => {
                self.begin(Step::Measure(State::Degraded), "losing a drive under load");
            }
            Event::Begins(State::Degraded) => self.state.set(State::Degraded),
            Event::Begins(state) => {
                self.state.set(state);
                self.begin(Step::Measure(state), &state.to_string());
            }
            Event::Rests => self.say("the rest of the rebuild, without load"),
            _ => {}
        }
    }

    /// Completed rebuilds, with the loads that ran during each.
    fn rebuilds(&self) -> Vec<RebuildRecord> {
        let mut rebuilds = self.rebuilds.take();
        for record in &mut rebuilds {
            let loaded_s = record.loads.last().map_or(0.0, |load| load.to_seconds);
            record.idle_seconds = (record.seconds - loaded_s).max(0.0);
            record.kind = if record.loads.is_empty() { RebuildKind::Idle } else { RebuildKind::Load };
        }
        rebuilds
    }
}

impl Observer for Work<'_> {
    fn begins(&self, step: &method::Step, _: usize, _: usize, run: u32) {
        self.run_began_ns.set(self.now_ns());
        let (state, runs) = (self.state.get(), self.bench.plan.runs);
        let name = crate::reports::tables::short_name(&step.name);
        let text = format!("{}, {state}: {name}, run {} of {runs}", self.layout, run + 1);
        self.bench.ledger.say(text);
    }

    fn moved(&self, _: u64, _: &Pulse) {}

    fn measured(&self, _: usize, _: &MeasurementRecord, _: &Sample) -> Result<(), RunError> {
        Ok(())
    }

    fn ended(&self, step: &method::Step) {
        let since = |at_ns: u64| at_ns.saturating_sub(self.rebuild_began_ns.get()) as f64 / 1e9;
        if let Some(record) = self.rebuilds.borrow_mut().last_mut() {
            record.loads.push(RebuildLoad {
                workload: step.name.clone(),
                from_seconds: since(self.run_began_ns.get()),
                to_seconds: since(self.now_ns()),
            });
        }
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// An array of the engine that loses one drive after another; every rebuild is recorded.
struct ArrayHooks<'a> {
    work: &'a Work<'a>,
    rig: &'a Rig,
    drive_bytes: u64,
    /// Slot of the drive that was lost last.
    slot: Cell<usize>,
    /// Number in the next replacement's name.
    next_drive: Cell<usize>,
    /// Recorder of the current rebuild, and the traffic of all drives before it.
    recorder: Cell<Option<(Recorder, Traffic)>>,
}

impl Hooks for ArrayHooks<'_> {
    async fn fail(&self) -> Result<(), String> {
        // A different drive each time. The first drive is not the first to fail: as it holds the
        // first strip, it would look like a special case.
        self.slot.set((self.slot.get() + 1) % self.rig.width());
        self.rig.pull(self.slot.get()).await
    }

    async fn replace(&self) -> Result<(), String> {
        if !self.rig.is_degraded() {
            return Err("the array did not stay degraded".into());
        }
        let (slot, bench) = (self.slot.get(), self.work.bench);
        let number = self.next_drive.replace(self.next_drive.get() + 1);
        let lost_drive = self.rig.label(slot);
        let (name, lost) = (format!("drive{number}"), self.rig.drive(slot));
        let new = bench.world.take_another(&name, self.drive_bytes, bench.pace, lost);
        let new = new.map_err(|error| error.to_string())?;
        self.work.rebuild_began_ns.set(self.work.now_ns());
        let before = self.rig.traffic();
        self.rig.replace(slot, new.clone()).await?;
        let (moved_bytes, percent) = (bench.moved_bytes.clone(), self.rig.rebuild_percent());
        let recorder = Recorder::start(&bench.world.context, new.metered, moved_bytes, percent);
        self.recorder.set(Some((recorder, before)));
        self.work.rebuilds.borrow_mut().push(RebuildRecord {
            kind: RebuildKind::Idle,
            lost_drive,
            seconds: 0.0,
            idle_seconds: 0.0,
            rebuilt_bytes: 0,
            drive_traffic: Traffic::default(),
            timeline: Vec::new(),
            loads: Vec::new(),
        });
        Ok(())
    }

    async fn is_rebuilt(&self) -> Result<bool, String> {
        self.rig.until_rebuilt().await?;
        let mut rebuilds = self.work.rebuilds.borrow_mut();
        if let Some((record, (recorder, before))) = rebuilds.last_mut().zip(self.recorder.take()) {
            let began_ns = self.work.rebuild_began_ns.get();
            record.seconds = (self.work.now_ns() - began_ns) as f64 / 1e9;
            record.rebuilt_bytes = self.rig.drive(self.slot.get()).metered.traffic().written_bytes;
            record.drive_traffic = self.rig.traffic().since(&before);
            record.timeline = recorder.finish(began_ns);
        }
        Ok(true)
    }

    fn every_ns(&self) -> u64 {
        0
    }

    fn rebuild_limit_ns(&self) -> u64 {
        u64::MAX
    }

    fn outlasts(&self, run_ns: Option<u64>) -> bool {
        let Some(percent) = self.rig.rebuild_percent()() else { return false };
        let run_s = run_ns.map_or(self.work.bench.plan.least_run_s, |ns| ns as f64 / 1e9);
        let elapsed_s = (self.work.now_ns() - self.work.rebuild_began_ns.get()) as f64 / 1e9;
        let left_s = elapsed_s * (100.0 - percent) / percent.max(0.1);
        left_s > 1.1 * run_s
    }
}
