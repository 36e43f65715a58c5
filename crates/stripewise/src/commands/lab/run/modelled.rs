//! `lab run model:NAME`: measures a modelled drive in virtual time, or predicts the figures of a
//! system of the catalogue.
//!
//! Drives (of the catalogue, or a file of `drive measure`) are measured as any other, with the
//! native driver; they store no data, so the final comparison is skipped. Systems have no data path
//! here: each figure is that of `model predict`.

use std::cell::RefCell;
use std::time::{Instant, SystemTime};

use stripewise_drive::{BufferPool, MemoryDrive};
use stripewise_lab::method::{Circumstances, Profile, RunSettings, Runner, run_profile};
use stripewise_lab::record::{Latencies, MeasurementRecord, RunRecord};
use stripewise_lab::store::Store;
use stripewise_lab::{DriveTarget, Environment};
use stripewise_model::catalogue::DriveEntry;
use stripewise_model::modelled::ModelledDrive;
use stripewise_model::predict::{State, predict};
use stripewise_model::system::{Catalogue, System};
use stripewise_model::validate::Expected;
use stripewise_runtime::{VirtualExecutor, interrupt_requested};

use super::{
    Driver, Options, Shown, Work, interrupted, named_for, not_measured, run_name, settings, usable_bytes,
};
use crate::commands::App;
use crate::commands::evaluate::{catalogue_drive, iso_8601};
use crate::commands::lab::store_failure;
use crate::commands::lab::text::page_of;
use crate::commands::model::{lab_load, system_failure};
use crate::failure::{Exit, Failure, Reason, Result};
use crate::progress::Progress;

/// A drive or a system of the catalogue.
enum Modelled {
    Drive(Box<DriveEntry>),
    System(Box<System>),
}

/// Finds a drive by name or by the path of its entry, or a system by name.
fn named(app: &App, name: &str) -> Result<Modelled> {
    let catalogue = Catalogue::built_in();
    let system = catalogue.system(name);
    if catalogue.system.contains_key(name) {
        let system = system.map_err(|error| system_failure(&error))?;
        return Ok(Modelled::System(Box::new(system)));
    }
    let failed = |failure: Failure| match system {
        Err(error) if failure.reason == Reason::Missing => {
            Failure { message: format!("{}; {error}", failure.message), ..failure }
        }
        _ => failure,
    };
    catalogue_drive(app, name).map(|entry| Modelled::Drive(Box::new(entry))).map_err(failed)
}

pub(super) fn go(options: &Options, app: &App, profile: &Profile, store: &Store, name: &str) -> Result<Exit> {
    if options.driver == Driver::Fio || options.hooks.is_some() || !options.hosts.is_empty() {
        return Err(Failure::usage("--driver fio, --scenario and --hosts require a real target"));
    }
    if profile.files.is_some() {
        return Err(Failure::usage(format!("{} works on files, which models do not have", profile.name))
            .hint("choose a method with block loads; `stripewise lab profiles` lists the methods"));
    }
    let modelled = named(app, name)?;
    let run = RunRecord {
        run: run_name(),
        target: options.targets[0].clone(),
        profile: profile.name.clone(),
        tool: format!("stripewise {} (model)", env!("CARGO_PKG_VERSION")),
        date: iso_8601(SystemTime::now()),
        ..RunRecord::default()
    };
    store.begin(&run).map_err(|error| store_failure(&error))?;
    let environment = Environment::default();
    let work = Work { options, app, profile, store, run: &run, environment: &environment, hooks: None };
    let notes = match modelled {
        Modelled::Drive(entry) => on_drive(&work, &entry)?,
        Modelled::System(system) => of_system(&work, &system)?,
    };
    if interrupt_requested() {
        let kept = store.load(&run.run).map_or(0, |run| run.measurements.len());
        store.forget_empty(&run.run);
        return Err(interrupted(&run.run, kept));
    }
    store.finish(&run.run, &notes).map_err(|error| store_failure(&error))?;
    let run = store.load(&run.run).map_err(|error| store_failure(&error))?;
    app.printer.result(&run, |page| page_of(&run, page))?;
    Ok(Exit::Success)
}

fn on_drive(work: &Work<'_>, entry: &DriveEntry) -> Result<Vec<String>> {
    let capacity_bytes = entry.capacity_bytes() / 4096 * 4096;
    let note = "a modelled drive in virtual time: nothing is stored, so nothing was compared";
    let mut notes = vec![note.to_owned()];
    let mut first = 0;
    let sizes = work.sizes();
    for size in &sizes {
        // Each size is measured on a new drive.
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let contents = MemoryDrive::new("model", capacity_bytes);
        let drive = ModelledDrive::new(&context, &entry.name, entry, contents, work.options.seed)
            .map_err(|error| Failure::because(format!("cannot model {}", entry.name), &error))?;
        let fitting = work.fitting(*size, capacity_bytes);
        let size_bytes = usable_bytes(fitting, capacity_bytes, &work.run.target)?;
        let named = named_for(work.profile, (sizes.len() > 1).then_some(size_bytes));
        let shown = Shown {
            work,
            named: &named,
            first,
            began: Instant::now(),
            progress: RefCell::new(Progress::new(&work.app.printer)),
            now: RefCell::default(),
            swept: RefCell::new(None),
        };
        let cache_bytes = entry.cache_bytes();
        let circumstances = Circumstances {
            // A modelled drive takes the same time for unwritten blocks.
            filled_before: true,
            drive_cache_bytes: (cache_bytes > 0).then_some(cache_bytes),
            ..Circumstances::default()
        };
        let settings = RunSettings {
            fills: false,
            ramp_seconds: cache_bytes as f64 / entry.rates().bytes_per_second,
            virtual_time: true,
            ..settings(work.options, size_bytes, circumstances)
        };
        let runner = Runner {
            context,
            target: DriveTarget::new(drive, BufferPool::phantom()),
            settings,
            observer: &shown,
            cpu_seconds: &|| None,
        };
        let measured = executor.block_on(run_profile(&named, &runner));
        let (figures, run_notes) = measured.map_err(|error| not_measured(&work.run.target, &error))?;
        first += figures.len();
        notes.extend(run_notes);
    }
    Ok(notes)
}

fn of_system(work: &Work<'_>, system: &System) -> Result<Vec<String>> {
    let catalogue = Catalogue::built_in();
    let mut expected = Expected::new(&catalogue);
    let note = format!("predicted for {}, not measured: `stripewise model predict` says more", system.name);
    let mut notes = vec![note];
    let mut position = 0;
    let sizes = work.sizes();
    for size in &sizes {
        let named = named_for(work.profile, size.filter(|_| sizes.len() > 1));
        for step in &named.steps {
            if work.options.read_only && step.writes() {
                notes.push(format!("{}: skipped, it writes (--read-only)", step.name));
                continue;
            }
            if step.loads().count() > 1 {
                notes.push(format!("{}: each load is predicted as if it were alone", step.name));
            }
            for load in step.loads() {
                let asked = stripewise_model::predict::Workload { span_bytes: *size, ..lab_load(load) };
                let predicted = predict(system, State::Normal, &asked);
                let error = expected.error(system, &asked);
                let latency = predicted.latency_us;
                let figure = MeasurementRecord {
                    iops: Some(predicted.iops),
                    latency_us: Some(Latencies {
                        mean: Some(latency.mean),
                        p50: Some(latency.p50),
                        p99: Some(latency.p99),
                        p999: Some(latency.p999),
                        max: Some(latency.max),
                    }),
                    ..MeasurementRecord::of_load(&load.name, step.op, load)
                        .with_runs(vec![predicted.mb_per_s])
                };
                notes.push(format!(
                    "{}: limited by {}; expected error {:.0} % (median), {:.0} % (p90)",
                    load.name, predicted.bottleneck, error.median_error_percent, error.p90_error_percent
                ));
                let kept = work.store.record(&work.run.run, position, &figure, None);
                kept.map_err(|error| store_failure(&error))?;
                position += 1;
            }
        }
    }
    Ok(notes)
}
