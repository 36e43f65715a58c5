//! Several targets in turns: what changes with the hour, the room or the neighbours changes for all
//! of them.
//!
//! Each round takes one run of every step of each target, the targets in random order. Each is a
//! run of its own in the store, so that `lab compare` can be asked about any two.

use std::cell::RefCell;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use stripewise_lab::method::{Circumstances, Profile, Runner, run_interleaved};
use stripewise_lab::record::RunRecord;
use stripewise_lab::store::Store;
use stripewise_lab::{DriveTarget, Environment};
use stripewise_runtime::{interrupt_requested, process_cpu_ns};

use super::{
    Driver, Options, Shown, Work, command_line, load_average, named_for, not_measured, run_name, settings,
};
use crate::commands::App;
use crate::commands::evaluate::iso_8601;
use crate::commands::lab::store_failure;
use crate::commands::lab::target::{self, Kind, OpenDrive, Use, usable_bytes};
use crate::commands::lab::text::page_of;
use crate::failure::{Exit, Failure, Result};
use crate::progress::Progress;

#[derive(Serialize)]
struct Measured {
    runs: Vec<RunRecord>,
}

/// Runs it.
pub(super) async fn go(options: &Options, app: &App, profile: &Profile, store: &Store) -> Result<Exit> {
    let alone = options.driver == Driver::Fio || options.hooks.is_some() || options.sizes.len() > 1;
    if alone || profile.files.is_some() {
        return Err(Failure::usage(
            "several targets are measured by --driver native, with one --size, without a scenario",
        ));
    }
    let size_bytes = options.sizes.first().map(|size| size.0).or(profile.sizes.first().copied());
    let how = Use { read_only: options.read_only, force: options.force, size_bytes };
    let (mut drives, mut records, mut environments) = (Vec::new(), Vec::new(), Vec::new());
    for (number, name) in options.targets.iter().enumerate() {
        let drive = match target::open(app, name, how).await? {
            Kind::Drive(drive) => drive,
            _ => {
                return Err(Failure::usage(format!("`{name}` cannot be measured in turns with others"))
                    .hint(
                        "in turns: files, devices, folders and exports; serve a volume to have it as one",
                    ));
            }
        };
        let environment = Environment::capture(drive.path.as_deref());
        let mut record = RunRecord {
            run: format!("{}-{}", run_name(), number + 1),
            target: name.clone(),
            profile: profile.name.clone(),
            tool: format!("stripewise {}", env!("CARGO_PKG_VERSION")),
            date: iso_8601(SystemTime::now()),
            environment: environment.by_name(),
            ..RunRecord::default()
        };
        record.environment.insert("load_average".into(), load_average());
        record.environment.insert("command".into(), command_line(std::env::args()));
        record.environment.insert("measured_in_turns_with".into(), options.targets.join(", "));
        drives.push(drive);
        records.push(record);
        environments.push(environment);
    }
    for record in &records {
        store.begin(record).map_err(|error| store_failure(&error))?;
    }
    let works: Vec<Work<'_>> = records
        .iter()
        .zip(&environments)
        .map(|(run, environment)| Work { options, app, profile, store, run, environment, hooks: None })
        .collect();
    let named = named_for(profile, None);
    let shown: Vec<Shown<'_>> = works.iter().map(|work| shown(work, &named)).collect();
    let cpu = || Some(process_cpu_ns() as f64 / 1e9);
    let mut runners: Vec<Runner<'_, DriveTarget>> = Vec::new();
    for ((drive, work), shown) in drives.iter().zip(&works).zip(&shown) {
        let size = work.fitting(size_bytes, drive.capacity_bytes);
        let size_bytes = usable_bytes(size, drive.capacity_bytes, &work.run.target)?;
        runners.push(Runner {
            context: app.executor()?.context(),
            target: drive.target.clone(),
            settings: settings(options, size_bytes, circumstances(drive, work)),
            observer: shown,
            cpu_seconds: &cpu,
        });
    }
    let measured = run_interleaved(&named, &runners).await;
    if interrupt_requested() || measured.is_err() {
        records.iter().for_each(|record| store.forget_empty(&record.run));
    }
    if interrupt_requested() {
        return Err(Failure::new("interrupted").hint("stripewise lab list shows what was measured"));
    }
    let all = measured.map_err(|error| not_measured(&options.targets.join(" and "), &error))?;
    let mut runs = Vec::new();
    for (record, (_, notes)) in records.iter().zip(&all) {
        store.finish(&record.run, notes).map_err(|error| store_failure(&error))?;
        runs.push(store.load(&record.run).map_err(|error| store_failure(&error))?);
    }
    let measured = Measured { runs };
    app.printer.result(&measured, |page| {
        for run in &measured.runs {
            page_of(run, page);
            page.line("");
        }
    })?;
    Ok(Exit::Success)
}

fn circumstances(drive: &OpenDrive, work: &Work<'_>) -> Circumstances {
    Circumstances { direct_io: work.direct_io(drive), ..work.circumstances() }
}

fn shown<'a>(work: &'a Work<'a>, named: &'a Profile) -> Shown<'a> {
    Shown {
        work,
        named,
        first: 0,
        began: Instant::now(),
        progress: RefCell::new(Progress::new(&work.app.printer)),
        now: RefCell::default(),
        swept: RefCell::new(None),
    }
}
