//! The laboratory against its own promises: requests a second of the native driver beside fio's on
//! the same file, run after run in turns; a thousand stored runs listed; the report of a hundred
//! runs. Limits: fio's threads have a core of their own where there are two, and a file system's
//! cache below direct I/O is out of reach of both.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use hdrhistogram::Histogram;
use stripewise_drive::BufferPool;
use stripewise_lab::driver::fio::{self, Asked};
use stripewise_lab::lab_report::{ReportedRun, charted_figures, lab_report_html};
use stripewise_lab::method::{Circumstances, Profile};
use stripewise_lab::record::{MeasurementRecord, Operation, RunRecord};
use stripewise_lab::store::{Sample, Second, Store};
use stripewise_lab::{Contents, DriveTarget, Load, Surroundings, SweepOptions, WindowLimits, Workload, fill};
use stripewise_runtime::{CreateOptions, OpenOptions, RealExecutor, create_drive_file};

const FILE_BYTES: u64 = 256 << 20;
const SECONDS: f64 = 1.0;
const ROUNDS: u64 = 5;

fn main() {
    let folder = tempfile::tempdir_in(".").expect("a folder on the disk that this is built on");
    stored_runs(folder.path());
    match fio::version() {
        Ok(version) => beside_fio(folder.path(), &version),
        Err(error) => println!("native beside fio: passed over, {error}"),
    }
}

fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn beside_fio(folder: &Path, version: &str) {
    let path = folder.join("file");
    create_drive_file(&path, &CreateOptions { allocate: true, ..CreateOptions::new(FILE_BYTES) })
        .expect("made");
    let executor = RealExecutor::new().expect("io_uring");
    let context = executor.context();
    let drive = executor.open_drive(&path, &OpenOptions::default()).expect("open");
    let target = DriveTarget::new(drive, BufferPool::new(64 << 20));
    let contents = Rc::new(Contents::new(1, FILE_BYTES));
    contents.next_phase();
    let sweep = SweepOptions { depth: 16, request_bytes: 1 << 20 };
    executor.block_on(fill(&context, &target, &contents, sweep, &Rc::default())).expect("filled");
    for depth in [1, 32, 256] {
        let text = format!(
            "name = \"x\"\nruns = 1\nseconds = {SECONDS}\n[[measurement]]\nname = \"x\"\nops = [\"read\"]\n\
             pattern = \"random\"\nblocks = [\"4KiB\"]\ndepths = [{depth}]\n"
        );
        let profile = Profile::parse(&text).expect("a profile");
        let (mut native, mut by_fio) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            native.push(native_iops(&executor, &target, depth, round));
            let asked = Asked {
                path: &path,
                size_bytes: FILE_BYTES,
                runs: 1,
                within: None,
                seconds: SECONDS,
                may_write: false,
                circumstances: Circumstances { filled_before: true, ..Circumstances::default() },
                seed: round,
                hosts: &[],
            };
            let rate = Cell::new(0.0);
            let keep = |_: usize, figure: &MeasurementRecord, _: &Sample, _: &[(String, f64)]| {
                rate.set(figure.iops.unwrap_or(0.0));
                Ok(())
            };
            fio::measure(&profile, &profile.steps[0], &asked, &|_, _| true, keep).expect("fio measures it");
            by_fio.push(rate.get());
        }
        let mut ratios: Vec<f64> = native.iter().zip(&by_fio).map(|(native, fio)| native / fio).collect();
        let (native, by_fio) = (middle(&mut native), middle(&mut by_fio));
        let ratio = middle(&mut ratios);
        println!(
            "native beside {version}, random reads of 4 KiB at depth {depth}: {ratio:.2} times its requests a second \
             ({native:.0} and {by_fio:.0}; medians of {ROUNDS}); to reach: 0.95"
        );
    }
}

fn native_iops(executor: &RealExecutor, target: &DriveTarget, depth: u32, seed: u64) -> f64 {
    let ns = (SECONDS * 1e9) as u64;
    let limits = WindowLimits { least_ns: ns, least_latencies: 0.0, most_ns: ns };
    executor.block_on(async {
        let workload = Workload::random_read(depth).with_seed(seed);
        let load = Load::start(&executor.context(), target, &workload, None, &Rc::default()).expect("a load");
        load.ramp_up(ns / 10, ns).await;
        let window = load.measure(&limits, &Surroundings::unknown()).await;
        load.stop(u64::MAX).await;
        window.iops()
    })
}

fn stored_runs(folder: &Path) {
    let store = Store::open(&folder.join("lab.sqlite")).expect("a store");
    let figure = |at: usize| {
        let runs = (0..6).map(|run| 100.0 + (at + run) as f64).collect();
        MeasurementRecord::empty(format!("figure {at}"), Operation::Read).with_runs(runs)
    };
    let record = |number: usize| RunRecord {
        run: format!("20260101-{number:06}"),
        date: format!("2026-01-01T{number:06}"),
        target: "/dev/sdx".into(),
        profile: "crystaldiskmark".into(),
        tool: "stripewise".into(),
        measurements: (0..12).map(figure).collect(),
        ..RunRecord::default()
    };
    let mut latency = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).expect("valid bounds");
    (1..2000).for_each(|number| latency.record(number * 1000).expect("in range"));
    let sample = Sample {
        seconds: 5.0,
        bytes: 500_000_000,
        requests: 2000,
        read_latency: Some(latency),
        per_second: vec![Second { bytes: 100_000_000, mean_us: 1000.0, longest_us: 2000.0 }; 5],
        ..Sample::default()
    };
    (0..1000).for_each(|number| store.begin(&record(number)).expect("begun"));
    for number in 0..100 {
        for at in (0..12).flat_map(|at| [at; 6]) {
            let run = format!("20260101-{number:06}");
            store.record(&run, at, &figure(at), Some(&sample)).expect("recorded");
        }
    }
    let start = Instant::now();
    let count = store.list().expect("a list").len();
    println!("{count} stored runs listed: {:.1} ms; to reach: 100", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let load = |number: usize| {
        let run = store.load(&format!("20260101-{number:06}")).expect("there");
        let samples =
            (0..charted_figures(100)).map(|at| store.samples(&run.run, at).expect("there")).collect();
        ReportedRun { run, samples }
    };
    let page = lab_report_html(&(0..100).map(load).collect::<Vec<_>>());
    println!(
        "report of 100 runs of 12 figures, six samples each: {:.2} s, {:.1} MiB; to reach: 2 s, 5 MiB",
        start.elapsed().as_secs_f64(),
        page.len() as f64 / f64::from(1 << 20)
    );
}
