//! Carries out a profile on a target with the native driver, in real or virtual time, one figure after the other.
//!
//! Expects targets that fail, that are too small for a step (told, the others go on), that stop answering, and an
//! interrupt: what was measured until then is kept by the observer.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::Context;

use super::profile::{Profile, Statistic, Step};
use super::validity::{Circumstances, judge};
use crate::contents::Contents;
use crate::load::{Load, Surroundings, Tally, Window, WindowLimits};
use crate::record::{Latencies, MeasurementRecord, Unit};
use crate::statistics::{is_steady, mean};
use crate::store::Sample;
use crate::sweep::{SweepOptions, fill};
use crate::target::Target;
use crate::workload::{Region, Workload, mix};

/// A target that does not answer for so long is given up.
const LIMIT_NS: u64 = 120_000_000_000;
/// Pieces in which bandwidth over time is kept.
const SECOND_NS: u64 = 1_000_000_000;

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
    /// The observer could not keep a figure.
    #[error("{0}")]
    Observer(String),
}

/// What is asked of a run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Runs of each measurement, where the profile's own are not wanted.
    pub runs: Option<u32>,
    /// Length of each, where the profile's own is not wanted.
    pub seconds: Option<f64>,
    /// Bytes of the target in use.
    pub size_bytes: u64,
    /// Whether anything may be written.
    pub may_write: bool,
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
    /// Bytes moved so far by the load under way.
    fn moved(&self, bytes: u64);
    /// A run of figure number `position` is done.
    ///
    /// # Errors
    /// Where it cannot be kept; the run ends.
    fn measured(&self, position: usize, figure: &MeasurementRecord, sample: &Sample) -> Result<(), RunError>;
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

/// Measures every step of `profile` and gives the figures in order. Steps that cannot be are left out, with a note.
pub async fn run_profile<T: Target>(
    profile: &Profile,
    runner: &Runner<'_, T>,
) -> Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
    let settings = &runner.settings;
    let began_ns = runner.context.now_ns();
    let contents = settings.may_write.then(|| Rc::new(Contents::new(settings.seed, settings.size_bytes)));
    if let Some(contents) = &contents {
        for _ in 0..profile.precondition_passes.max(1) {
            precondition(runner, contents).await?;
        }
    }
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for (position, step) in profile.steps.iter().enumerate() {
        if runner.observer.is_interrupted() {
            notes.push("interrupted: the measurements behind are missing".into());
            break;
        }
        if step.workload.read_share < 1.0 && !settings.may_write {
            notes.push(format!("{}: left out, as nothing may be written", step.name));
            continue;
        }
        let region = Region { offset_bytes: 0, length_bytes: settings.size_bytes };
        let workload = Workload { region: Some(region), ..step.workload.clone() };
        if let Err(error) = workload.resolve(settings.size_bytes) {
            notes.push(format!("{}: left out: {error}", step.name));
            continue;
        }
        runner.context.sleep_ns((profile.pause_seconds * 1e9) as u64).await;
        let at = figures.len();
        let how = Measuring { profile, step, workload, contents: contents.clone(), began_ns };
        figures.push(one_figure(runner, &how, (position, at)).await?);
    }
    Ok((figures, notes))
}

async fn precondition<T: Target>(runner: &Runner<'_, T>, contents: &Rc<Contents>) -> Result<(), RunError> {
    let options = SweepOptions { depth: 16, request_bytes: 1 << 20 };
    contents.next_phase();
    let moved = Rc::new(Cell::new(0));
    let filled = fill(&runner.context, &runner.target, contents, options, &moved).await;
    filled.map(drop).map_err(|error| RunError::Fill(error.to_string()))
}

/// One measurement of a profile on its way.
struct Measuring<'a> {
    profile: &'a Profile,
    step: &'a Step,
    workload: Workload,
    contents: Option<Rc<Contents>>,
    began_ns: u64,
}

async fn one_figure<T: Target>(
    runner: &Runner<'_, T>,
    how: &Measuring<'_>,
    (position, at): (usize, usize),
) -> Result<MeasurementRecord, RunError> {
    let Measuring { profile, step, .. } = how;
    let runs = runner.settings.runs.unwrap_or(profile.runs).max(1);
    // With one run alone there is none to throw away.
    let discarded = u32::from(profile.discard_first && runs > 1);
    let mut windows: Vec<Window> = Vec::new();
    let mut figure = MeasurementRecord {
        block_bytes: match step.workload.blocks.as_slice() {
            [only] => Some(only.bytes),
            _ => None,
        },
        queue_depth: Some(step.workload.depth),
        workers: Some(step.workload.jobs),
        unit: Unit::MbPerS,
        ..MeasurementRecord::empty(&step.name, step.op)
    };
    for run in 0..runs {
        runner.observer.begins(step, position, profile.steps.len(), run);
        let seed = mix(runner.settings.seed ^ mix((at as u64) << 32 | u64::from(run)));
        let (window, per_second) = one_run(runner, how, how.workload.clone().with_seed(seed)).await?;
        let sample = sample_of(&window, per_second, how.began_ns);
        if run >= discarded {
            windows.push(window);
            figure = conclude(figure, &windows, profile, runner);
            runner.observer.measured(at, &figure, &sample)?;
        }
        let steady = profile.statistic == Statistic::Steady && is_steady(&figure.runs);
        if steady || runner.observer.is_interrupted() {
            break;
        }
    }
    Ok(figure)
}

async fn one_run<T: Target>(
    runner: &Runner<'_, T>,
    how: &Measuring<'_>,
    workload: Workload,
) -> Result<(Window, Vec<u64>), RunError> {
    let context = &runner.context;
    let step = &how.step.name;
    let moved = Rc::new(Cell::new(0));
    if let Some(contents) = &how.contents {
        contents.next_phase();
    }
    let contents = how.contents.clone();
    let load = Load::start(context, &runner.target, &workload, contents, &moved)
        .map_err(|error| RunError::Failed { step: step.clone(), why: error.to_string() })?;
    let seconds = runner.settings.seconds.unwrap_or(how.profile.seconds);
    let ns = (seconds * 1e9) as u64;
    load.ramp_up((ns / 10).min(SECOND_NS / 4), ns).await;
    let (start_ns, start_bytes) = (context.now_ns(), moved.get());
    let seen = Cell::new((start_ns, start_bytes));
    let per_second = std::cell::RefCell::new(Vec::new());
    let holds = || {
        let (now_ns, bytes) = (context.now_ns(), moved.get());
        runner.observer.moved(bytes);
        let (since_ns, since_bytes) = seen.get();
        if now_ns - since_ns >= SECOND_NS {
            per_second.borrow_mut().push(bytes - since_bytes);
            seen.set((now_ns, bytes));
        }
        let done = how.profile.moves_size_once && bytes - start_bytes >= runner.settings.size_bytes;
        !done && !runner.observer.is_interrupted()
    };
    let limits = WindowLimits { least_ns: ns, least_latencies: 0.0, most_ns: ns };
    let around = Surroundings { cpu_seconds: runner.cpu_seconds, holds: &holds, ..Surroundings::unknown() };
    let window = load.measure(&limits, &around).await;
    let end = load.stop(LIMIT_NS).await;
    if end.unanswered > 0 {
        return Err(RunError::Stuck { step: step.clone(), count: end.unanswered });
    }
    if let (0, Some(why)) = (window.requests(), end.messages.first()) {
        return Err(RunError::Failed { step: step.clone(), why: why.clone() });
    }
    Ok((window, per_second.into_inner()))
}

fn sample_of(window: &Window, per_second: Vec<u64>, began_ns: u64) -> Sample {
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
    windows: &[Window],
    profile: &Profile,
    runner: &Runner<'_, T>,
) -> MeasurementRecord {
    let mut all = Tally::new();
    for window in windows {
        all.add(&window.reads);
        all.add(&window.writes);
    }
    let seconds: f64 = windows.iter().map(|window| window.duration_ns as f64 / 1e9).sum();
    let rates: Vec<f64> = windows.iter().map(Window::mb_per_s).collect();
    let mut figure = figure.with_runs(rates.clone());
    figure.mb_per_s = chosen(profile.statistic, &rates);
    figure.iops = chosen(profile.statistic, &windows.iter().map(Window::iops).collect::<Vec<_>>());
    figure.latency_us = Latencies::of(&all);
    let outstanding = figure.queue_depth.unwrap_or(1) * figure.workers.unwrap_or(1);
    let closed = profile.steps.iter().any(|step| {
        step.name == figure.name
            && step.workload.arrival == crate::workload::Arrival::Closed
            && step.workload.think_us == 0
            && step.workload.flush_every == 0
    });
    let law = all
        .mean_latency_ns()
        .map(|mean_ns| mean_ns / 1e9 * all.requests as f64 / seconds / f64::from(outstanding));
    let cpu: Option<f64> = windows.iter().map(|window| window.cpu_seconds).sum();
    let around = Circumstances {
        run_bytes: windows.iter().map(Window::bytes).collect(),
        cpu_share: cpu.map(|cpu| cpu / seconds),
        littles_law_ratio: law.filter(|_| closed),
        errors: windows.iter().map(|window| window.errors).sum(),
        region_bytes: runner.settings.size_bytes,
        filled_before: runner.settings.may_write,
        virtual_time: runner.settings.virtual_time,
        ..runner.settings.circumstances.clone()
    };
    judge(&mut figure, &around);
    figure
}

fn chosen(statistic: Statistic, values: &[f64]) -> Option<f64> {
    match statistic {
        Statistic::Median => crate::statistics::median(values),
        Statistic::Mean => mean(values),
        Statistic::Best => values.iter().copied().max_by(f64::total_cmp),
        Statistic::Steady => mean(&values[values.len().saturating_sub(crate::statistics::STEADY_ROUNDS)..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::built_in;
    use crate::target::DriveTarget;
    use crate::testing::SlowDrive;
    use std::cell::RefCell;
    use stripewise_drive::{BufferPool, MemoryDrive};
    use stripewise_runtime::VirtualExecutor;

    #[derive(Default)]
    struct Kept {
        samples: RefCell<Vec<(usize, Sample)>>,
        stop_after: Cell<Option<usize>>,
    }

    impl Observer for Kept {
        fn begins(&self, _: &Step, _: usize, _: usize, _: u32) {}
        fn moved(&self, _: u64) {}
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
            seconds: Some(0.1),
            size_bytes: 64 << 20,
            may_write: true,
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
