//! `evaluate`: builds the arrays, measures each of them normal, degraded and rebuilding, times an
//! idle rebuild, compares every byte, and adds remarks on the results.
//!
//! The orchestration is one `async` function that is the same for real and virtual time, and for
//! files and models. Faults expected: no space, no io_uring, too few drives for a layout, an
//! interrupt at any moment (nothing is left behind), and any misbehaviour of an array under test.
//!
//! Time: settings without an explicit value are planned to fit 8 minutes, 1 minute for a quick look
//! (`plan.rs`). Memory: the loads' buffers in flight, at most about 150 MB, and 192 MB kept for
//! reuse (`world.rs`); each array within the engine's bounds. Modelled drives keep written data in
//! memory, unless they are phantoms, which keep only the pool's own records.

mod array;
pub(crate) mod host;
mod on_disks;
pub(crate) mod options;
mod plan;
mod recorder;
pub(crate) mod rig;
pub(crate) mod world;

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use stripewise_drive::Pace;
use stripewise_layout::{LayoutSpec, Level};
use stripewise_runtime::{RealExecutor, VirtualExecutor, free_space_bytes, max_resident_bytes};

use array::Bench;
pub use options::{
    DriveMaker, DriveSource, EvaluateError, EvaluateOptions, GivenDrive, NoProgress, PaceChoice, Progress,
    Status, all_layouts, default_layouts,
};
use plan::{Constraints, DriveRates, LATENCIES_PER_RUN, Ledger, Subject, plan};
use world::World;

use crate::environment::Environment;
use crate::loads::workload::Workload;
use crate::records::results::{Evaluation, HostSpeed, ModelUsed, OUTPUT_VERSION, PaceUsed, Settings};
use crate::reports::remarks::conclude;

/// Interval of progress updates.
const PROGRESS_NS: u64 = 200_000_000;

/// Runs a whole evaluation. Blocks until it is done. An interrupt (SIGINT, SIGTERM, SIGHUP) ends it
/// with [`EvaluateError::Interrupted`].
pub fn evaluate(options: &EvaluateOptions, progress: &dyn Progress) -> Result<Evaluation, EvaluateError> {
    check(options)?;
    let mut evaluation = evaluate_drives(options, progress)?;
    if options.on_disks_too {
        evaluation.on_disks = on_disks::measure(options, progress)?.map(Box::new);
    }
    Ok(evaluation)
}

/// Evaluates on the requested drives.
fn evaluate_drives(options: &EvaluateOptions, progress: &dyn Progress) -> Result<Evaluation, EvaluateError> {
    match &options.drives {
        DriveSource::Folder(folder) => {
            let executor = RealExecutor::new().map_err(EvaluateError::Executor)?;
            let world = World::in_folder(executor.context(), executor.opener(), folder.clone());
            let room = free_space_bytes(folder)
                .map_err(|source| EvaluateError::Folder { path: folder.clone(), source })?;
            let environment = Environment::capture(Some(folder));
            in_real_time(&executor, &world, options, environment, Some(room), progress)
        }
        DriveSource::Paths(paths) => {
            let executor = RealExecutor::new().map_err(EvaluateError::Executor)?;
            let world = World::of_paths(executor.context(), &executor.opener(), paths)?;
            let environment = Environment::capture(paths.first().map(GivenDrive::path));
            in_real_time(&executor, &world, options, environment, None, progress)
        }
        DriveSource::Model { maker, .. } => {
            let executor = VirtualExecutor::new();
            let world = World::of_models(executor.context(), maker.clone(), true);
            executor.block_on(run(&world, options, Environment::capture(None), None, progress))
        }
    }
}

fn in_real_time(
    executor: &RealExecutor,
    world: &World,
    options: &EvaluateOptions,
    environment: Environment,
    room_bytes: Option<u64>,
    progress: &dyn Progress,
) -> Result<Evaluation, EvaluateError> {
    let interrupted = executor.interrupted().map_err(EvaluateError::Executor)?;
    executor.block_on(first_of(run(world, options, environment, room_bytes, progress), async {
        interrupted.await;
        Err(EvaluateError::Interrupted)
    }))
}

/// Refuses invalid options before anything is created.
fn check(options: &EvaluateOptions) -> Result<(), EvaluateError> {
    let refuse = |text: &str| Err(EvaluateError::Options(text.into()));
    if options.layouts.is_empty() {
        return refuse("no layout to evaluate");
    }
    if options.workloads.is_empty() {
        return refuse("no load to measure");
    }
    if options.runs == Some(0)
        || options.seconds_per_run.is_some_and(|seconds| !(seconds > 0.0 && seconds < 1e6))
    {
        return refuse("at least one run of more than 0 s is needed");
    }
    if !(1..=100).contains(&options.rebuild_priority_percent) {
        return refuse("the rebuild priority is a share of drive time, 1 to 100 percent");
    }
    if options.count == 0 || options.count > 255 {
        return refuse("an array has 1 to 255 drives");
    }
    if let DriveSource::Paths(paths) = &options.drives
        && paths.len() < options.count
    {
        return refuse("fewer drives are given than --count requires");
    }
    if options.drive_bytes.is_some_and(|bytes| bytes < (16 << 20)) {
        return refuse("drives of less than 16 MiB hold too little to measure");
    }
    let given = matches!(options.drives, DriveSource::Paths(_));
    for spec in &options.layouts {
        subject_of(spec, options.count, !given)?;
    }
    Ok(())
}

/// Determines the array of a layout on `count` drives. If drives are created, a layout that needs
/// more gets them, and a mirror of fewer gets larger ones, so that raw space stays the same.
fn subject_of(spec: &LayoutSpec, count: usize, made: bool) -> Result<Subject, EvaluateError> {
    let wanted = match spec.level {
        Level::Single => 1,
        Level::Raid1 => spec.columns.unwrap_or(2),
        level if made => count.max(level.minimum_width()).max(spec.columns.unwrap_or(0)),
        _ => count,
    };
    // A number of drives that does not divide into groups is rounded up.
    let most = if made && spec.level.is_grouped() { wanted + 8 } else { wanted };
    let mut first_error = None;
    for drives in wanted..=most {
        match spec.resolve(drives) {
            Ok(shape) => {
                let mirror = made && spec.level == Level::Raid1 && count > shape.width;
                let size_factor = if mirror { count as f64 / shape.width as f64 } else { 1.0 };
                return Ok(Subject { shape, size_factor });
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.map_or(EvaluateError::Options("no number of drives fits".into()), EvaluateError::Layout))
}

/// Runs the whole evaluation and shows progress.
async fn run(
    world: &World,
    options: &EvaluateOptions,
    environment: Environment,
    room_bytes: Option<u64>,
    progress: &dyn Progress,
) -> Result<Evaluation, EvaluateError> {
    let moved_bytes: Rc<Cell<u64>> = Rc::default();
    let host_s = match (world.is_virtual(), options.quick) {
        (true, _) => 0.0,
        (false, true) => 2.0,
        (false, false) => 7.0,
    };
    let ledger = Ledger::new(world.context.now_ns() as f64 / 1e9, host_s);
    let show = async {
        let mut before = (world.context.now_ns(), 0);
        let mut shown: Option<Instant> = None;
        loop {
            world.context.sleep_ns(PROGRESS_NS).await;
            let now_ns = world.context.now_ns();
            let moved = moved_bytes.get();
            // Virtual time may run fast: progress follows the wall clock.
            if shown.is_none_or(|shown| shown.elapsed().as_nanos() as u64 >= PROGRESS_NS / 2) {
                let rate = (moved - before.1) as f64 * 1e3 / (now_ns - before.0).max(1) as f64;
                progress.update(&ledger.status(now_ns as f64 / 1e9, rate));
                shown = Some(Instant::now());
                before = (now_ns, moved);
            }
        }
    };
    let work = matrix(world, options, environment, room_bytes, host_s, &ledger, &moved_bytes, progress);
    first_of(work, show).await
}

#[expect(clippy::too_many_arguments, reason = "called once; each is another thing of the outside")]
async fn matrix(
    world: &World,
    options: &EvaluateOptions,
    environment: Environment,
    room_bytes: Option<u64>,
    host_s: f64,
    ledger: &Ledger,
    moved_bytes: &Rc<Cell<u64>>,
    progress: &dyn Progress,
) -> Result<Evaluation, EvaluateError> {
    let began = Instant::now();
    let began_ns = world.context.now_ns();
    let made = !matches!(options.drives, DriveSource::Paths(_));
    let subjects: Vec<Subject> =
        options.layouts.iter().map(|spec| subject_of(spec, options.count, made)).collect::<Result<_, _>>()?;
    let workloads = &options.workloads;
    let host = if world.is_virtual() {
        None
    } else {
        let seconds = if options.quick { 0.3 } else { 1.2 };
        Some(host::measure_host(world, options.count, seconds, options.seed, moved_bytes).await?)
    };
    let most_drives = subjects.iter().map(|subject| subject.shape.width).fold(options.count, usize::max);
    let pace = match (&options.pace, &host) {
        (PaceChoice::Auto, Some(host)) => Some(host::auto_pace(host, most_drives)),
        (PaceChoice::Rates(pace), Some(_)) => Some(*pace),
        _ => None,
    };
    if let Some(pace) = pace {
        progress.note(&format!("each drive is paced at {pace}"));
    }

    let rates = drive_rates(options, pace, host.as_ref());
    let widest =
        subjects.iter().map(|subject| subject.shape.width as f64 * subject.size_factor).fold(1.0, f64::max);
    let replacement = subjects.iter().map(|subject| subject.size_factor).fold(1.0, f64::max);
    let drives_of_room = widest + replacement;
    let model_bytes = world.maker().map(|maker| maker.capacity_bytes() as f64 / replacement);
    let constraints = Constraints {
        quick: options.quick,
        drive_bytes: world.given_bytes().or(options.drive_bytes.map(|bytes| bytes / 4096 * 4096)),
        runs: options.runs,
        seconds_per_run: options.seconds_per_run,
        room_bytes: room_bytes
            .map(|room| 0.9 * room as f64 / drives_of_room)
            .or(model_bytes)
            .map_or(u64::MAX, |room| room as u64),
        host_s,
        beyond: world.maker().and_then(options::beyond_caches),
    };
    let plan = plan(&subjects, workloads, &rates, &constraints);
    if let (Some(room), DriveSource::Folder(folder)) = (room_bytes, &options.drives) {
        let needed_bytes = (plan.drive_bytes as f64 * drives_of_room) as u64;
        if needed_bytes > room {
            return Err(EvaluateError::NoSpace { path: folder.clone(), needed_bytes, free_bytes: room });
        }
    }
    ledger.set_plan(&subjects, workloads, &rates, &plan);
    if !world.is_virtual() {
        progress.planned(plan.expected_s);
    }

    let bench = Bench { world, options, plan, pace, workloads, ledger, moved_bytes: moved_bytes.clone() };
    let mut arrays = Vec::with_capacity(subjects.len());
    for (number, (spec, subject)) in options.layouts.iter().zip(&subjects).enumerate() {
        arrays.push(bench.array(number, spec, subject).await?);
    }

    let parity_kernel = Some(stripewise_parity::kernel_name().to_owned());
    let environment = Environment { direct_io: world.direct_io(), parity_kernel, ..environment };
    let seconds = if world.is_virtual() {
        (world.context.now_ns() - began_ns) as f64 / 1e9
    } else {
        began.elapsed().as_secs_f64()
    };
    let mut evaluation = Evaluation {
        output_version: OUTPUT_VERSION,
        date: options.date.clone(),
        seconds,
        environment,
        settings: settings(options, &plan, pace, workloads, world),
        host,
        arrays,
        remarks: Vec::new(),
        on_disks: None,
        max_resident_bytes: (!world.is_virtual()).then(max_resident_bytes),
    };
    conclude(&mut evaluation);
    Ok(evaluation)
}

fn drive_rates(options: &EvaluateOptions, pace: Option<Pace>, host: Option<&HostSpeed>) -> DriveRates {
    let share = |speed: f64| speed / options.count as f64;
    let host_bytes = host.map(|host| share(host.seq_write_mb_per_s.min(host.seq_read_mb_per_s)) * 1e6);
    let host_iops = host.map(|host| share(host.random_read_iops.min(host.random_write_iops)));
    let (mut bytes_per_s, mut iops) = (host_bytes.unwrap_or(200e6), host_iops.unwrap_or(10_000.0));
    if let DriveSource::Model { maker, .. } = &options.drives {
        bytes_per_s = maker.bytes_per_second();
        iops = maker.iops();
    }
    if let Some(pace) = pace {
        bytes_per_s = pace.bytes_per_second.map_or(bytes_per_s, |rate| bytes_per_s.min(rate as f64));
        iops = pace.iops.map_or(iops, |rate| iops.min(rate as f64));
    }
    DriveRates {
        bytes_per_s: bytes_per_s.max(1e6),
        iops: iops.max(10.0),
        rebuild_share: f64::from(options.rebuild_priority_percent) / 100.0,
    }
}

fn settings(
    options: &EvaluateOptions,
    plan: &plan::Plan,
    pace: Option<Pace>,
    workloads: &[Workload],
    world: &World,
) -> Settings {
    let drives = match &options.drives {
        DriveSource::Folder(folder) => format!("files made in {}", absolute(folder)),
        DriveSource::Paths(paths) => {
            paths.iter().map(|given| absolute(given.path())).collect::<Vec<_>>().join(", ")
        }
        DriveSource::Model { name, .. } => format!("model {name}"),
    };
    Settings {
        drives,
        drive_count: options.count,
        drive_bytes: plan.drive_bytes,
        pace_asked: options.pace_text(),
        pace: pace.map(|pace| PaceUsed {
            text: pace.to_string(),
            mb_per_s: pace.bytes_per_second.map(|rate| rate as f64 / 1e6),
            iops: pace.iops.map(|rate| rate as f64),
        }),
        runs: plan.runs,
        seconds_per_run: plan.least_run_s,
        mean_latencies_per_run: LATENCIES_PER_RUN,
        quick: options.quick,
        seed: options.seed,
        virtual_time: world.is_virtual(),
        model: world.maker().map(|maker| ModelUsed {
            cache_bytes: maker.cache_bytes(),
            mb_per_s: maker.bytes_per_second() / 1e6,
        }),
        rebuild_priority_percent: options.rebuild_priority_percent,
        workloads: workloads.to_vec(),
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// Returns the result of the future that ends first; the other is dropped.
pub(crate) async fn first_of<T>(main: impl Future<Output = T>, beside: impl Future<Output = T>) -> T {
    let (mut main, mut beside) = (pin!(main), pin!(beside));
    std::future::poll_fn(|context| match main.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(result),
        Poll::Pending => beside.as_mut().poll(context),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::results::{RebuildKind, Severity, State};
    use std::cell::RefCell;
    use std::path::PathBuf;
    use stripewise_drive::ModelSpec;

    const MIB: u64 = 1 << 20;

    /// 100 MB/s, 0.1 ms, depth 32.
    const DRIVE: ModelSpec =
        ModelSpec { latency_ns: 100_000, bytes_per_second: 100_000_000, queue_depth: 32 };

    fn options(layouts: &[&str]) -> EvaluateOptions {
        EvaluateOptions {
            drives: DriveSource::Model { name: "example".into(), maker: Rc::new(DRIVE) },
            drive_bytes: Some(64 * MIB),
            layouts: layouts.iter().map(|name| name.parse().expect("a layout")).collect(),
            seconds_per_run: Some(0.1),
            // Shallower than in the study: a model check does not need 150 MB in flight.
            workloads: Workload::study_004()
                .map(|workload| Workload {
                    depth: workload.depth / 8,
                    jobs: workload.jobs.div_ceil(4),
                    ..workload
                })
                .to_vec(),
            ..EvaluateOptions::new("/nowhere".into(), "2026-01-01T00:00:00Z".into())
        }
    }

    /// Runs the whole orchestration in virtual time, with contents.
    fn evaluated(options: &EvaluateOptions) -> Evaluation {
        let executor = VirtualExecutor::new();
        let world = World::of_models(executor.context(), Rc::new(DRIVE), false);
        executor.block_on(run(&world, options, Environment::default(), None, &NoProgress)).expect("it works")
    }

    #[test]
    fn every_array_state_is_measured_without_data_loss() {
        let evaluation = evaluated(&options(&["single", "raid0", "raid5", "raid6", "raid10", "raid1"]));
        let single = &evaluation.arrays[0];
        for array in &evaluation.arrays {
            let name = &array.layout;
            assert_eq!((array.corrupt_bytes, array.verified_bytes), (0, array.capacity_bytes), "{name}");
            assert_eq!(array.incidents, Vec::<String>::new(), "{name}");
            let redundant = array.fault_tolerance > 0;
            assert_eq!(array.states.len(), if redundant { 3 } else { 1 }, "{name}");
            for (state, cells) in &array.states {
                for workload in ["seq_write", "seq_read", "mixed"] {
                    let cell = &cells[workload];
                    assert_eq!((cell.runs.len(), cell.errors), (3, 0), "{name} {state} {workload}");
                    assert!(
                        cell.ci95.is_some() && cell.mb_per_s > 1.0,
                        "{name} {state} {workload}: {cell:?}"
                    );
                    let fewest = cell.run_mean_latencies.iter().copied().fold(f64::INFINITY, f64::min);
                    let shortest = cell.run_seconds.iter().copied().fold(f64::INFINITY, f64::min);
                    assert!(
                        shortest >= 0.1 && fewest > 3.9,
                        "{name} {state} {workload}: {shortest} s, {fewest}"
                    );
                }
            }
            let drives_missing: Vec<usize> =
                array.verifications.iter().map(|found| found.missing_drives.len()).collect();
            if redundant {
                assert_eq!(drives_missing, [0, array.fault_tolerance], "{name}");
                let idle = array.rebuilds.last().expect("an idle rebuild comes last");
                assert_eq!(idle.kind, RebuildKind::Idle);
                assert!(array.rebuilds.len() >= 2 && array.rebuilds[0].kind == RebuildKind::Load, "{name}");
                let on_each = match array.copies {
                    1 => array.capacity_bytes / array.data_units as u64,
                    copies => array.capacity_bytes * copies as u64 / array.drives as u64,
                };
                let rebuilt = idle.rebuilt_bytes as f64 / on_each as f64;
                assert!((0.99..1.1).contains(&rebuilt), "{name}: {rebuilt} of the drive's part, {idle:?}");
                let rate = array.rebuild_mb_per_s.unwrap();
                assert!((60.0..=101.0).contains(&rate), "{name}: {rate} MB/s");
                assert!(idle.timeline.windows(2).all(|pair| pair[0].percent <= pair[1].percent), "{name}");
            } else {
                assert_eq!((drives_missing, array.rebuild_seconds), (vec![0], None), "{name}");
            }
        }
        let percent = |layout: &str, workload: &str| {
            let array = evaluation.arrays.iter().find(|array| array.layout == layout).unwrap();
            array.cell(State::Normal, workload).unwrap().percent_of_single.unwrap()
        };
        assert_eq!(single.cell(State::Normal, "seq_write").unwrap().percent_of_single, Some(100.0));
        for (layout, writes, reads) in
            [("raid0", 400.0, 400.0), ("raid5", 300.0, 400.0), ("raid10", 200.0, 400.0)]
        {
            let (found, expected) = (percent(layout, "seq_write"), writes);
            assert!((found / expected - 1.0_f64).abs() < 0.12, "{layout} writes {found} %");
            let found = percent(layout, "seq_read");
            assert!((found / reads - 1.0_f64).abs() < 0.25, "{layout} reads {found} %");
        }
        assert!(
            evaluation.remarks.iter().all(|remark| remark.severity < Severity::Error),
            "{:?}",
            evaluation.remarks
        );
    }

    #[test]
    fn same_seed_gives_the_same_figures() {
        let figures = || {
            let evaluation = evaluated(&EvaluateOptions { runs: Some(1), ..options(&["raid5"]) });
            serde_json::to_value(&evaluation.arrays).expect("plain data")
        };
        assert_eq!(figures(), figures());
    }

    #[test]
    fn a_rebuild_shorter_than_a_run_is_reported() {
        let slow_runs = EvaluateOptions { seconds_per_run: Some(8.0), runs: Some(1), ..options(&["raid1"]) };
        let evaluation = evaluated(&slow_runs);
        let array = &evaluation.arrays[0];
        assert!(!array.states.contains_key(&State::Rebuilding));
        assert!(
            array.incidents.iter().any(|text| text.contains("before a run of seq_write does")),
            "{:?}",
            array.incidents
        );
        assert_eq!(array.corrupt_bytes, 0);
    }

    #[test]
    fn modelled_drives_move_no_data_and_report_it() {
        let options = options(&["single", "raid5"]);
        let evaluation = evaluate(&options, &NoProgress).expect("it works");
        let array = &evaluation.arrays[1];
        assert_eq!((array.verified_bytes, array.verifications.len()), (0, 0));
        assert!(array.rebuild_seconds.is_some() && array.states.len() == 3);
        assert!(evaluation.settings.virtual_time && evaluation.host.is_none());
        assert!(evaluation.remarks.iter().any(|remark| remark.text.contains("virtual time")));
    }

    #[test]
    fn progress_is_shown_and_never_goes_back() {
        struct Seen(RefCell<Vec<Status>>);
        impl Progress for Seen {
            fn update(&self, status: &Status) {
                self.0.borrow_mut().push(status.clone());
            }
            fn note(&self, _: &str) {}
        }
        let seen = Seen(RefCell::default());
        evaluate(&options(&["raid0", "raid5"]), &seen).expect("it works");
        let seen = seen.0.take();
        // The number of updates depends on the machine: virtual time runs fast, and progress
        // follows the wall clock.
        assert!(seen.iter().any(|status| status.what.starts_with("raid")), "{seen:?}");
        assert!(seen.windows(2).all(|pair| pair[0].percent <= pair[1].percent), "{seen:?}");
        assert!(seen.iter().all(|status| status.seconds_left >= 0.0 && status.percent < 100.0));
    }

    #[test]
    fn layouts_get_the_drives_they_need() {
        let subject = |name: &str, made| {
            subject_of(&name.parse().unwrap(), 4, made)
                .map(|subject| (subject.shape.width, subject.size_factor))
        };
        assert_eq!(subject("single", true).unwrap(), (1, 1.0));
        assert_eq!(subject("raid1", true).unwrap(), (2, 2.0));
        assert_eq!(subject("raid1", false).unwrap(), (2, 1.0));
        assert_eq!(subject("raid6", true).unwrap(), (4, 1.0));
        assert_eq!(subject("raid7", true).unwrap(), (5, 1.0));
        assert_eq!(subject("raid50", true).unwrap(), (6, 1.0));
        assert_eq!(subject("raid60", true).unwrap(), (8, 1.0));
        assert!(matches!(subject("raid60", false), Err(EvaluateError::Layout(_))));
        assert_eq!(all_layouts().len(), Level::ALL.len());
        for spec in all_layouts() {
            for count in 4..=12 {
                assert!(subject_of(&spec, count, true).is_ok(), "{spec:?} on {count}");
            }
        }
    }

    #[test]
    fn invalid_options_are_refused_before_any_setup() {
        let refused = |change: fn(&mut EvaluateOptions)| {
            let mut wrong = options(&["raid5"]);
            change(&mut wrong);
            evaluate(&wrong, &NoProgress).expect_err("nonsense").to_string()
        };
        assert!(refused(|o| o.layouts.clear()).contains("no layout"));
        assert!(refused(|o| o.workloads.clear()).contains("no load"));
        assert!(refused(|o| o.runs = Some(0)).contains("at least one run"));
        assert!(refused(|o| o.seconds_per_run = Some(f64::NAN)).contains("at least one run"));
        assert!(refused(|o| o.rebuild_priority_percent = 0).contains("1 to 100"));
        assert!(refused(|o| o.count = 0).contains("1 to 255"));
        assert!(refused(|o| o.drive_bytes = Some(1)).contains("16 MiB"));
        assert!(
            refused(|o| o.drives = DriveSource::Paths(vec![PathBuf::from("/dev/null").into()]))
                .contains("fewer drives")
        );
        let two = |o: &mut EvaluateOptions| {
            o.drives = DriveSource::Paths(["a", "b"].map(|path| PathBuf::from(path).into()).to_vec());
            o.count = 2;
        };
        assert!(refused(two).contains("raid5"));
    }
}
