//! A profile on a slow drive of memory, in virtual time.

use std::cell::{Cell, RefCell};

use super::*;
use crate::loads::contents::Data;
use crate::loads::target::DriveTarget;
use crate::loads::workload::BlockShare;
use crate::method::built_in;
use crate::testing::SlowDrive;
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
fn read_only_runs_skip_writes_and_report_it() {
    let profile = built_in("crystaldiskmark").expect("it");
    let (figures, notes) = run(&profile, RunSettings { may_write: false, ..settings() }, &Kept::default());
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
fn concurrent_loads_are_separate_figures() {
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
fn verify_reads_back_what_was_written() {
    for data in [Data::Unique, Data::Compressible(50)] {
        let profile = Profile { verify: true, data, ..small() };
        let (_, notes) = run(&profile, settings(), &Kept::default());
        assert!(notes[0].starts_with("67108864 bytes were read back"), "{notes:?}");
    }
}

#[test]
fn steps_stay_in_their_range_and_flag_trimmed_reads() {
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
fn runs_repeat_until_the_interval_is_narrow_or_capped() {
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
fn interleaved_targets_are_measured_separately() {
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
    assert!((rates[0] / 10_000.0 - 1.0).abs() < 0.02 && (rates[1] / 5000.0 - 1.0).abs() < 0.02, "{rates:?}");
    assert!(all.iter().flat_map(|(figures, _)| figures).all(|figure| figure.runs.len() == 3));
}

#[test]
fn steady_rounds_end_and_interrupts_keep_the_figures() {
    let profile = built_in("snia-steady").expect("it");
    let kept = Kept::default();
    let settings = RunSettings { runs: None, ..settings() };
    let (figures, notes) = run(&profile, settings.clone(), &kept);
    assert!(figures.iter().all(|figure| figure.runs.len() == 5), "steady from the start");
    let reached = notes.iter().filter(|note| note.contains("steady state reached in round 5"));
    assert_eq!(reached.count(), figures.len(), "{notes:?}");
    assert!(figures.iter().all(|figure| figure.badges["steady_state"]));
    let kept = Kept { stop_after: Cell::new(Some(3)), ..Kept::default() };
    let (figures, notes) = run(&profile, settings, &kept);
    assert_eq!((figures.len(), figures[0].runs.len()), (1, 3));
    assert!(figures[0].badge_reasons["steady_state"].contains("3 rounds of the 5 needed"));
    assert!(notes[0].contains("interrupted"), "{notes:?}");
}
