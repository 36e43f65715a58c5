//! Runs a study: builds each configuration and measures it.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

use stripewise_drive::Pace;
use stripewise_runtime::{RealExecutor, VirtualExecutor, process_cpu_ns};

use super::beside::conclude;
use super::findings::DOUBTFUL;
use super::plan::{Configuration, Part, drives, parts};
use super::{OwnFigures, StudyNumber, StudyOptions, StudyProgress, StudyResult};
use crate::evaluate::host::measure_host;
use crate::evaluate::options::beyond_caches;
use crate::evaluate::rig::{Rig, Ssds};
use crate::evaluate::world::{LabDrive, World};
use crate::evaluate::{DriveSource, EvaluateError, EvaluateOptions, PaceChoice, Progress, Status, evaluate};
use crate::loads::caches::{Beyond, REGION_MULTIPLE, is_beyond};
use crate::loads::files::{Bonnie, Extents, PostMark, Unwatched, run_bonnie, run_postmark};
use crate::loads::load::Pulse;
use crate::loads::target::{DriveTarget, Target};
use crate::loads::workload::random_stream;
use crate::method::{
    Circumstances, FileMethod, Observer, Profile, RunError, RunSettings, Runner, Statistic, Step, run_profile,
};
use crate::records::record::{Latencies, MeasurementRecord, Unit};
use crate::records::results::{Evaluation, Remark, Severity, State};
use crate::records::store::Sample;
use crate::statistics::mean;

/// Size of each drive in a quick look, unless files need more.
const DRIVE_BYTES: u64 = 96 << 20;
/// Size of each drive in a full run. A smaller volume has such a small journal that checksum pages
/// are written as often as data, which dominates on drives with few requests a second.
const FULL_BYTES: u64 = 256 << 20;
/// Minimum size of a drive: a pool of smaller ones has no space for its journals.
const LEAST_BYTES: u64 = 64 << 20;
/// Approximate maximum time to fill drives in a quick look; they are made smaller for it.
const QUICK_FILL_SECONDS: u64 = 2;
/// Share of the host's throughput below which all drives together stay.
const MARGIN: f64 = 0.65;

/// Runs a study. Blocks until it is done.
///
/// # Errors
/// No space, no io_uring, a misbehaving array, an interrupt.
pub fn run_study(options: &StudyOptions, progress: &dyn StudyProgress) -> Result<StudyResult, EvaluateError> {
    if options.study == StudyNumber::S004 {
        return evaluated(options, progress);
    }
    match &options.drives {
        DriveSource::Folder(folder) => {
            let executor = RealExecutor::new().map_err(EvaluateError::Executor)?;
            let world = World::in_folder(executor.context(), executor.opener(), folder.clone());
            let interrupted = executor.interrupted().map_err(EvaluateError::Executor)?;
            executor.block_on(crate::evaluate::first_of(on_world(&world, options, progress), async {
                interrupted.await;
                Err(EvaluateError::Interrupted)
            }))
        }
        DriveSource::Paths(paths) => {
            let executor = RealExecutor::new().map_err(EvaluateError::Executor)?;
            let world = World::of_paths(executor.context(), &executor.opener(), paths)?;
            let interrupted = executor.interrupted().map_err(EvaluateError::Executor)?;
            executor.block_on(crate::evaluate::first_of(on_world(&world, options, progress), async {
                interrupted.await;
                Err(EvaluateError::Interrupted)
            }))
        }
        DriveSource::Model { maker, .. } => {
            let executor = VirtualExecutor::new();
            let world = World::of_models(executor.context(), maker.clone(), true);
            executor.block_on(on_world(&world, options, progress))
        }
    }
}

/// Runs study 004 as an evaluation.
fn evaluated(options: &StudyOptions, progress: &dyn StudyProgress) -> Result<StudyResult, EvaluateError> {
    progress.update("evaluating single, RAID 5, RAID 10 and RAID 1", 0.0, None);
    let is_model = matches!(options.drives, DriveSource::Model { .. });
    let asked = EvaluateOptions {
        drives: options.drives.clone(),
        layouts: ["single", "raid5", "raid10", "raid1"].map(|name| name.parse().expect("a layout")).to_vec(),
        pace: match options.pace {
            Some(pace) => PaceChoice::Rates(pace),
            None if is_model => PaceChoice::None,
            None => PaceChoice::Auto,
        },
        quick: options.quick,
        seed: options.seed,
        ..EvaluateOptions::new(".".into(), options.date.clone())
    };
    let evaluation = evaluate(&asked, &EvaluationProgress(progress))?;
    let ours = of_evaluation(&evaluation);
    let pace = evaluation.settings.pace.as_ref().map(|pace| pace.text.clone());
    let notes = evaluation.remarks.iter().map(|remark| remark.text.clone()).collect();
    Ok(conclude(options.study, &ours, pace, notes))
}

/// Passes the progress of an evaluation on as progress of the study.
struct EvaluationProgress<'a>(&'a dyn StudyProgress);

impl Progress for EvaluationProgress<'_> {
    fn update(&self, status: &Status) {
        self.0.update(&status.what, status.percent / 100.0, Some(status.seconds_left));
    }

    fn planned(&self, seconds: f64) {
        self.0.planned(seconds);
    }

    fn note(&self, _: &str) {}
}

fn of_evaluation(evaluation: &Evaluation) -> OwnFigures {
    let mut ours = OwnFigures::new();
    for array in &evaluation.arrays {
        let level = if array.layout == "single" { "single".into() } else { array.layout.to_uppercase() };
        for (state, cells) in &array.states {
            for (workload, cell) in cells {
                let figure = MeasurementRecord::empty(workload, crate::records::record::Operation::Mixed);
                let mut figure = figure.with_runs(cell.runs.clone());
                if let Some(why) = warning(evaluation, &array.layout, *state, workload) {
                    figure.badge(DOUBTFUL, Err(why.to_owned()));
                }
                ours.insert(format!("{level}/{state}/{workload}"), figure);
            }
        }
    }
    ours
}

/// Warning about a cell.
fn warning<'a>(evaluation: &'a Evaluation, layout: &str, state: State, workload: &str) -> Option<&'a str> {
    let is_about = |remark: &&Remark| {
        remark.severity >= Severity::Warning
            && remark.layout.as_deref() == Some(layout)
            && remark.state == Some(state)
            && remark.workload.as_deref() == Some(workload)
    };
    evaluation.remarks.iter().find(is_about).map(|remark| remark.text.as_str())
}

async fn on_world(
    world: &World,
    options: &StudyOptions,
    progress: &dyn StudyProgress,
) -> Result<StudyResult, EvaluateError> {
    let mut parts = parts(options.study, options.quick);
    let mut notes = leave_out(&mut parts, options);
    let has_ssds =
        parts.iter().flat_map(|part| &part.configurations).any(|one| one.all_drives() > one.drives);
    if has_ssds && world.is_virtual() {
        notes.push("drives for journals and tiers are of the same model as the others".into());
    }
    notes.extend(lengthen(&mut parts, options));
    let most = parts.iter().flat_map(|part| &part.configurations).map(Configuration::all_drives).max();
    let (pace, told) = pace(world, options, most.unwrap_or(1), progress).await?;
    notes.extend(told);
    let mut whole = 0.0;
    if !world.is_virtual() {
        let once = |part: &Part| -> f64 {
            part.configurations.iter().map(|one| seconds(part, one, options, pace)).sum()
        };
        whole = parts.iter().map(|part| f64::from(rounds(part, options.quick)) * once(part)).sum();
        progress.planned(whole);
    }
    let mut ours = OwnFigures::new();
    let (mut random, mut done) = (random_stream(options.seed, 0x57d7), 0.0);
    let began = Instant::now();
    for part in &parts {
        let profile = Profile { runs: 1, ..part.profile.clone() };
        let once = Part { profile, configurations: part.configurations.clone(), key: part.key };
        let mut taken: HashMap<String, Vec<MeasurementRecord>> = HashMap::new();
        let turns = rounds(part, options.quick) * part.configurations.len() as u32;
        for _ in 0..rounds(part, options.quick) {
            // A random order spreads drift of the host over all configurations.
            let mut order: Vec<&Configuration> = once.configurations.iter().collect();
            for at in (1..order.len()).rev() {
                order.swap(at, random.below(at as u64 + 1) as usize);
            }
            for configuration in order {
                let left =
                    (!world.is_virtual()).then(|| seconds_left(began.elapsed().as_secs_f64(), done, whole));
                progress.update(&format!("{}, {}", configuration.key, part.profile.name), done, left);
                for (key, figure) in measure(world, options, &once, configuration, pace).await? {
                    taken.entry(key).or_default().push(figure);
                }
                let share = seconds(part, configuration, options, pace) / whole.max(1e-9);
                done += if world.is_virtual() { 1.0 / f64::from(turns) / parts.len() as f64 } else { share };
            }
        }
        ours.extend(taken.into_iter().map(|(key, rounds)| (key, joined(rounds, part.profile.statistic))));
    }
    notes.extend(answered_by_caches(&ours));
    if options.quick {
        notes.push("a quick look: one short run of each figure, no intervals".into());
    }
    Ok(conclude(options.study, &ours, pace.map(|pace| pace.to_string()), notes))
}

/// Time that is left: the plan at the present pace, damped by a few seconds of trust in it.
fn seconds_left(elapsed_s: f64, done: f64, planned_s: f64) -> f64 {
    const TRUST_S: f64 = 10.0;
    let pace = (elapsed_s + TRUST_S) / (done * planned_s + TRUST_S);
    (1.0 - done).max(0.0) * planned_s * pace
}

/// Number of rounds through all configurations, each in another order with one run of each figure.
fn rounds(part: &Part, quick: bool) -> u32 {
    if quick { 1 } else { part.profile.runs.max(1) }
}

/// Size of the caches of modelled drives; 0 if drives are not modelled or have none.
fn cache_bytes(options: &StudyOptions) -> u64 {
    match &options.drives {
        DriveSource::Model { maker, .. } => maker.cache_bytes(),
        _ => 0,
    }
}

fn beyond(options: &StudyOptions) -> Beyond {
    match &options.drives {
        DriveSource::Model { maker, .. } => beyond_caches(&**maker).unwrap_or_default(),
        _ => Beyond::default(),
    }
}

/// Lengthens the file of a method with one file beyond the caches of all modelled drives; a method
/// with many files gets a note that they are too small.
fn lengthen(parts: &mut [Part], options: &StudyOptions) -> Vec<String> {
    let mut notes = Vec::new();
    for part in parts {
        let Some(method) = part.profile.files else { continue };
        let drives = part.configurations.iter().map(|one| one.drives).max().unwrap_or(1) as u64;
        let caches = cache_bytes(options) * drives;
        let method = match method {
            FileMethod::Bonnie(asked) => FileMethod::Bonnie(Bonnie {
                file_bytes: asked.file_bytes.max(REGION_MULTIPLE * caches),
                ..asked
            }),
            other => other,
        };
        if !is_beyond(method.most_bytes(), caches) {
            notes.push(format!(
                "{}: its files hold {} MiB and the drives' modelled caches {}, so caches are not defeated",
                part.profile.name,
                method.most_bytes() >> 20,
                caches >> 20
            ));
        }
        part.profile.files = Some(method);
    }
    notes
}

/// A note on figures that are not the medium's alone.
fn answered_by_caches(ours: &OwnFigures) -> Option<String> {
    let badge = "caches_defeated";
    let failed = ours.iter().filter(|(_, figure)| figure.badges.get(badge) == Some(&false));
    let mut keys: Vec<(&String, &MeasurementRecord)> = failed.collect();
    keys.sort_by_key(|(key, _)| *key);
    let (first, figure) = keys.first()?;
    Some(format!(
        "caches take part in {} of {} figures, the first of them {first}: {}",
        keys.len(),
        ours.len(),
        figure.badge_reasons.get(badge).map_or("", String::as_str)
    ))
}

/// Marks configurations with more drives than were given as published only, with a note.
fn leave_out(parts: &mut [Part], options: &StudyOptions) -> Vec<String> {
    let DriveSource::Paths(given) = &options.drives else { return Vec::new() };
    let mut notes: Vec<String> = Vec::new();
    for part in parts {
        part.configurations.retain(|one| {
            let wanted = one.all_drives();
            let fits = wanted <= given.len();
            let note = format!(
                "{} needs {wanted} drives, {} were given: its figures are published only",
                one.key,
                given.len()
            );
            if !fits && !notes.contains(&note) {
                notes.push(note);
            }
            fits
        });
    }
    notes
}

/// Approximate duration of a round of a configuration: building, filling, and each figure once.
fn seconds(part: &Part, configuration: &Configuration, options: &StudyOptions, pace: Option<Pace>) -> f64 {
    let wanted = drives(options.study);
    let rate =
        pace.and_then(|pace| pace.bytes_per_second).unwrap_or(wanted.mb_per_s * 1_000_000).max(1) as f64;
    let iops = pace.and_then(|pace| pace.iops).unwrap_or(wanted.iops).max(1) as f64;
    let wide = configuration.drives as f64;
    match part.profile.files {
        // bonnie passes through its file five times, one request at a time.
        Some(FileMethod::Bonnie(asked)) => {
            5.0 * asked.file_bytes as f64 / (rate * wide.sqrt()) + asked.seeks as f64 / iops
        }
        Some(FileMethod::PostMark(asked)) => {
            let bytes = (asked.files + asked.transactions) * (asked.least_bytes + asked.most_bytes) / 2;
            bytes as f64 / (rate * wide.sqrt()) + 4.0 * (asked.files + asked.transactions) as f64 / iops
        }
        None => {
            let fill = drive_bytes(options, &part.profile, pace) as f64 / rate;
            let ramp = (part.profile.seconds / 10.0).min(0.25);
            1.0 + 1.5 * fill + part.profile.steps.len() as f64 * (part.profile.seconds + ramp + 0.05)
        }
    }
}

/// Used bytes of each drive; a single drive must hold the files of its method.
fn drive_bytes(options: &StudyOptions, profile: &Profile, pace: Option<Pace>) -> u64 {
    let rate = pace.and_then(|pace| pace.bytes_per_second);
    let own = match options.drives {
        // Real drives have caches that could hold a few megabytes.
        DriveSource::Paths(_) if !options.quick => 6 * FULL_BYTES,
        _ if options.quick => rate.map_or(DRIVE_BYTES, |rate| (QUICK_FILL_SECONDS * rate).min(DRIVE_BYTES)),
        _ => FULL_BYTES,
    };
    let files = profile.files.map_or(0, FileMethod::most_bytes);
    let wanted = own.max(files + files / 8).max(LEAST_BYTES).max(beyond(options).drive_bytes);
    let most = match &options.drives {
        DriveSource::Model { maker, .. } => maker.capacity_bytes() / 4096 * 4096,
        _ => u64::MAX,
    };
    wanted.next_multiple_of(16 << 20).min(most)
}

/// Joins the runs of all rounds to one figure. Percentiles would need all requests, and no study
/// prints any.
fn joined(rounds: Vec<MeasurementRecord>, statistic: Statistic) -> MeasurementRecord {
    let latencies: Vec<Latencies> = rounds.iter().filter_map(|figure| figure.latency_us).collect();
    let iops: Vec<f64> = rounds.iter().filter_map(|figure| figure.iops).collect();
    let runs: Vec<f64> = rounds.iter().flat_map(|figure| figure.runs.clone()).collect();
    let Some(last) = rounds.last().filter(|_| rounds.len() > 1) else {
        return rounds.into_iter().next().expect("a round each");
    };
    let mut all = last.clone().with_runs(runs.clone());
    match all.unit {
        Unit::MbPerS => all.mb_per_s = statistic.of(&runs),
        _ => all.mb_per_s = None,
    }
    all.iops = statistic.of(&iops);
    let means: Vec<f64> = latencies.iter().filter_map(|one| one.mean).collect();
    all.latency_us = mean(&means).map(|mean| Latencies {
        mean: Some(mean),
        max: latencies.iter().filter_map(|one| one.max).max_by(f64::total_cmp),
        ..Latencies::default()
    });
    for figure in &rounds {
        for (name, why) in &figure.badge_reasons {
            all.badge(name, Err(why.clone()));
        }
    }
    all
}

/// Pace of the drives: as requested, else that of the study's drives, slowed by one factor if the
/// host requires it.
async fn pace(
    world: &World,
    options: &StudyOptions,
    most_drives: usize,
    progress: &dyn StudyProgress,
) -> Result<(Option<Pace>, Vec<String>), EvaluateError> {
    if world.is_virtual() {
        let note = "drives are models in virtual time: nothing is stored, so nothing was compared";
        return Ok((None, vec![note.into()]));
    }
    if options.pace.is_some() {
        return Ok((options.pace, Vec::new()));
    }
    if matches!(options.drives, DriveSource::Paths(_)) {
        return Ok((None, vec!["the given drives are not paced".into()]));
    }
    progress.update("measuring the host", 0.0, None);
    let moved = Rc::new(Cell::new(0));
    let host =
        measure_host(world, most_drives, if options.quick { 0.3 } else { 1.0 }, options.seed, &moved).await?;
    let wanted = drives(options.study);
    let mb_per_s = host.seq_write_mb_per_s.min(host.seq_read_mb_per_s) * MARGIN / most_drives as f64;
    let iops = host.random_write_iops.min(host.random_read_iops) * MARGIN / most_drives as f64;
    let factor = (mb_per_s / wanted.mb_per_s as f64).min(iops / wanted.iops as f64).min(1.0);
    let pace = Pace {
        bytes_per_second: Some(((wanted.mb_per_s as f64 * factor) as u64).max(1) * 1_000_000),
        iops: Some(((wanted.iops as f64 * factor) as u64).max(10)),
    };
    let mut notes = Vec::new();
    if factor < 1.0 {
        notes.push(format!(
            "the study's drives deliver {} MB/s and {} requests a second; this host cannot sustain {most_drives} of \
             them, so all are slower by one factor, {factor:.2}",
            wanted.mb_per_s, wanted.iops
        ));
    }
    Ok((Some(pace), notes))
}

/// Drives for journals and tiers are faster than the others by the same factor as in the study.
fn ssd_pace(study: StudyNumber, pace: Option<Pace>) -> Option<Pace> {
    let speed = drives(study);
    let Some((mb_per_s, iops)) = speed.ssd else { return pace };
    let scaled = |rate: u64, by: u64, of: u64| rate.saturating_mul(by) / of.max(1);
    pace.map(|pace| Pace {
        bytes_per_second: pace.bytes_per_second.map(|rate| scaled(rate, mb_per_s, speed.mb_per_s)),
        iops: pace.iops.map(|rate| scaled(rate, iops, speed.iops)),
    })
}

async fn measure(
    world: &World,
    options: &StudyOptions,
    part: &Part,
    configuration: &Configuration,
    pace: Option<Pace>,
) -> Result<Vec<(String, MeasurementRecord)>, EvaluateError> {
    let failed = |why: String| EvaluateError::Array {
        layout: configuration.key.clone(),
        phase: part.profile.name.clone(),
        why,
    };
    let bytes = drive_bytes(options, &part.profile, pace);
    world.keep_only(bytes);
    let take = |name: &str, count: usize, pace| -> Result<Vec<LabDrive>, EvaluateError> {
        (0..count).map(|number| world.take(&format!("{name}{number}"), bytes, pace)).collect()
    };
    // Given drives may be large: the used part is as large as that of created drives.
    let most_bytes = bytes * configuration.drives as u64;
    let drives = take("drive", configuration.drives, pace)?;
    let Some(layout) = configuration.layout else {
        let target = DriveTarget::new(drives[0].metered.clone(), world.buffers.clone());
        let figures = on_target(world, options, part, configuration, target, most_bytes).await;
        let figures = figures.map_err(failed)?;
        drives.into_iter().for_each(|drive| world.give_back(drive));
        return Ok(keyed(part, configuration, figures));
    };
    let ssd_pace = ssd_pace(options.study, pace);
    let ssds = Ssds {
        journals: take("journal", configuration.journals, ssd_pace)?,
        tier: take("tier", configuration.tier, ssd_pace)?,
    };
    let rig = Rig::with_ssds(world, layout, drives, ssds, options.seed).await.map_err(failed)?;
    let volume = rig.volume().clone();
    let figures = on_target(world, options, part, configuration, volume, most_bytes).await;
    let figures = figures.map_err(failed)?;
    rig.close(world).await.map_err(failed)?;
    Ok(keyed(part, configuration, figures))
}

fn keyed(
    part: &Part,
    configuration: &Configuration,
    figures: Vec<MeasurementRecord>,
) -> Vec<(String, MeasurementRecord)> {
    let key =
        |figure: &MeasurementRecord| match part.profile.steps.iter().find(|step| step.name == figure.name) {
            Some(step) => (part.key)(&configuration.key, step),
            None => format!("{}/{}", configuration.key, figure.name),
        };
    figures.into_iter().map(|figure| (key(&figure), figure)).collect()
}

async fn on_target<T: Target>(
    world: &World,
    options: &StudyOptions,
    part: &Part,
    configuration: &Configuration,
    target: T,
    most_bytes: u64,
) -> Result<Vec<MeasurementRecord>, String> {
    let profile = &part.profile;
    let cpu = || (!world.is_virtual()).then(|| process_cpu_ns() as f64 / 1e9);
    match profile.files {
        Some(FileMethod::Bonnie(asked)) => {
            let asked = Bonnie { seed: options.seed, ..asked };
            let measured = run_bonnie(&world.context, &Extents::new(target), &asked, &cpu, &Unwatched).await;
            measured.map_err(|error| error.to_string())
        }
        Some(FileMethod::PostMark(asked)) => {
            let asked = PostMark { seed: options.seed, ..asked };
            let measured = run_postmark(&world.context, &Extents::new(target), &asked, &Unwatched).await;
            measured.map_err(|error| error.to_string())
        }
        None => {
            let wanted = profile.sizes.first().copied().unwrap_or(u64::MAX);
            let size_bytes = target.capacity_bytes().min(wanted).min(most_bytes);
            let beyond = beyond(options);
            let caches = cache_bytes(options) * configuration.all_drives() as u64;
            let settings = RunSettings {
                runs: None,
                within: None,
                most_runs: 0,
                seconds: Some(profile.seconds.max(beyond.run_s)),
                size_bytes: size_bytes / 4096 * 4096,
                may_write: true,
                fills: true,
                ramp_seconds: beyond.ramp_s,
                virtual_time: world.is_virtual(),
                seed: options.seed,
                circumstances: Circumstances {
                    direct_io: world.direct_io(),
                    drive_cache_bytes: (caches > 0).then_some(caches),
                    ..Circumstances::default()
                },
            };
            let context = world.context.clone();
            let runner = Runner { context, target, settings, observer: &Unobserved, cpu_seconds: &cpu };
            let measured = run_profile(profile, &runner).await;
            measured.map(|(figures, _)| figures).map_err(|error| error.to_string())
        }
    }
}

struct Unobserved;

impl Observer for Unobserved {
    fn begins(&self, _: &Step, _: usize, _: usize, _: u32) {}
    fn moved(&self, _: u64, _: &Pulse) {}
    fn measured(&self, _: usize, _: &MeasurementRecord, _: &Sample) -> Result<(), RunError> {
        Ok(())
    }
    fn is_interrupted(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::ModelSpec;

    /// Shows nothing.
    struct Unshown;

    impl StudyProgress for Unshown {
        fn update(&self, _: &str, _: f64, _: Option<f64>) {}
        fn planned(&self, _: f64) {}
    }

    /// 100 MB/s, 1 ms, one at a time: about 1000 requests a second.
    const DISK: ModelSpec =
        ModelSpec { latency_ns: 1_000_000, bytes_per_second: 100_000_000, queue_depth: 1 };

    fn study(study: StudyNumber) -> StudyResult {
        let drives = DriveSource::Model { name: "disk".into(), maker: std::rc::Rc::new(DISK) };
        let options = StudyOptions {
            study,
            drives,
            pace: None,
            quick: true,
            seed: 1,
            date: "2026-01-01T00:00:00Z".into(),
        };
        run_study(&options, &Unshown).expect("the study failed")
    }

    #[test]
    fn drive_size_fits_the_files_and_the_pace() {
        let asked = |quick| StudyOptions {
            study: StudyNumber::S001,
            drives: DriveSource::Folder(".".into()),
            pace: None,
            quick,
            seed: 1,
            date: String::new(),
        };
        let pace = |mb_per_s: u64| Some(Pace { bytes_per_second: Some(mb_per_s * 1_000_000), iops: None });
        for quick in [true, false] {
            for part in parts(StudyNumber::S001, quick) {
                let needed = part.profile.files.expect("methods on files").most_bytes();
                let bytes = drive_bytes(&asked(quick), &part.profile, pace(70));
                assert!(bytes > needed, "{}: {needed} of {bytes}", part.profile.name);
            }
        }
        let blocks = &parts(StudyNumber::S002, true)[0].profile;
        let size = |quick, mb_per_s| drive_bytes(&asked(quick), blocks, pace(mb_per_s)) >> 20;
        assert_eq!((size(true, 10), size(true, 40), size(true, 200), size(false, 10)), (64, 80, 96, 256));
    }

    #[test]
    fn one_estimate_follows_the_measured_pace() {
        assert_eq!(seconds_left(0.0, 0.0, 300.0), 300.0, "the plan, as it was announced");
        let twice_as_slow = seconds_left(300.0, 0.5, 300.0);
        assert!((285.0..300.0).contains(&twice_as_slow), "{twice_as_slow}");
        assert_eq!(seconds_left(400.0, 1.0, 300.0), 0.0);
    }

    #[test]
    fn study_000_is_shown_beside_published_figures() {
        let result = study(StudyNumber::S000);
        assert_eq!(result.tables.len(), 7, "one for each system");
        let large = |table: usize| result.tables[table].rows.iter().filter(|row| row.row.contains("large"));
        assert!(large(0).all(|row| row.percent_of_single == Some(100.0)), "{:?}", result.tables[0]);
        let striped = large(4).find(|row| row.row.contains("SEQ1M_Q16T1 read")).expect("a row");
        assert!(striped.percent_of_single.is_some_and(|share| share > 300.0), "{striped:?}");
        // 339 % over the whole tables; a little more over the rows that are in `studies/`.
        assert!(
            striped.published_percent_of_single.is_some_and(|share| (330.0..360.0).contains(&share)),
            "{striped:?}"
        );
        assert!(result.findings.len() >= 41);
    }

    #[test]
    fn the_other_studies_fill_their_tables() {
        for number in [StudyNumber::S001, StudyNumber::S003] {
            let result = study(number);
            let measured =
                result.tables.iter().flat_map(|table| &table.rows).filter(|row| row.measured.is_some());
            assert!(measured.count() >= 20, "{}", number.text());
            assert!(!result.findings.is_empty());
        }
    }
}
