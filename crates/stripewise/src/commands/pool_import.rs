//! `pool import`: finds pools on drives, in any order and under any name, and adds them to the list. Reads only, but for
//! `--force`: that drives were taken which were put back from older copies is recorded on all of them.
//!
//! Expected faults: folders full of other things, drives of several pools, pools of one name, drives missing or out of date,
//! halves that went on without each other, pools that another process uses.

use std::path::{Path, PathBuf};

use clap::Args;
use futures_util::future::join_all;
use stripewise_drive::BufferPool;
use stripewise_engine::pool::{DriveLabel, OpenMode, Pool, PoolOptions, inspect};
use stripewise_export::nbd::client::NbdUri;
use stripewise_runtime::{DriveIdentity, Holder, OpenError, OpenOptions, RealExecutor, drive_identity};

use crate::candidates::{Candidate, noted_export};
use crate::commands::{App, Pools};
use crate::failure::{Exit, Failure, Result, system_text};
use crate::home::{Home, KnownDrive, KnownPool};
use crate::nest::{Nest, Trouble};
use crate::network;
use crate::report::{PoolReport, counted};
use crate::session::{Access, OpenedDrive, open_drive, pool_failure};

/// Find pools on drives and add them to the list
#[derive(Args)]
pub struct Options {
    /// Look at the files in this folder (not below it); may be given several times. Without it and --drive: the current folder,
    /// all block devices, and exports that pools known here have
    #[arg(long = "dir", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Look at this drive: a path or an NBD URI; may be given several times. Exports that a drive's pool has noted are looked at as well
    #[arg(long = "drive", value_name = "DRIVE")]
    drives: Vec<String>,
    /// Only this pool, by name or identity; all that are found if left out
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// Take drives that were put back from older copies as they are, where volumes cannot be read without them: what was
    /// written since those copies were made is lost, or disagrees
    #[arg(long)]
    force: bool,
}

/// A drive that belongs to a pool.
struct Found {
    path: PathBuf,
    opened: OpenedDrive,
    label: DriveLabel,
    /// Not looked at together with its pool's others yet.
    is_new: bool,
}

/// A pool that is on the list now.
struct Imported {
    report: PoolReport,
    /// The process that uses it, under another state folder: until that has let go of it, it can only be looked at.
    used_by: Option<Holder>,
}

/// Runs it.
pub async fn run(options: &Options, app: &App) -> Result<Exit> {
    let nest = Nest::new(app, "pool import")?;
    let imported = import_all(options, app, &nest).await;
    let closed = nest.close().await;
    let imported = imported?;
    closed?;
    for notice in imported.iter().flat_map(|imported| &imported.report.notices) {
        app.printer.warning(notice);
    }
    let users: Vec<Option<Holder>> = imported.iter().map(|imported| imported.used_by.clone()).collect();
    let reports = Pools { pools: imported.into_iter().map(|imported| imported.report).collect() };
    app.printer.result(&reports, |page| {
        for (pool, user) in reports.pools.iter().zip(users) {
            let volumes = counted(pool.volumes.len(), "volume");
            let in_use = user.map_or_else(String::new, |user| format!("; in use by {user}"));
            page.line(format!(
                "pool {}: {}, {}, {volumes}{in_use}",
                pool.name,
                pool.state,
                counted(pool.drives.len(), "drive")
            ));
        }
    })?;
    Ok(Exit::Success)
}

/// Imports what is found on paths, then what is found on the volumes of that, and so on.
async fn import_all(options: &Options, app: &App, nest: &Nest) -> Result<Vec<Imported>> {
    let home = app.home()?;
    let executor = nest.executor();
    let (paths, exports, places) = places(options, app)?;
    let mut found = find(app, executor, &paths).await;
    find_exports(app, executor, exports, options.drives.is_empty(), &mut found).await?;
    let mut reports: Vec<Imported> = Vec::new();
    let mut looked_at: Vec<String> = Vec::new();
    loop {
        let pools = wanted_pools(options, &found);
        refuse_twins(&pools, &places)?;
        for (id, drives) in &pools {
            // One of which more drives turned up is looked at again.
            let known = reports.iter().position(|imported| imported.report.id == *id);
            let of_new = drives.iter().any(|drive| drive.is_new);
            if known.is_some() && !of_new {
                continue;
            }
            let report = import(&home, nest, id, drives, options.force).await?;
            let imported = with_user(app, &home, executor, report, drives);
            match known {
                Some(known) => reports[known] = imported,
                None => reports.push(imported),
            }
        }
        found.iter_mut().for_each(|found| found.is_new = false);
        let free = reports.iter().filter(|imported| imported.used_by.is_none());
        let mut below: Vec<String> = free.map(|imported| imported.report.name.clone()).collect();
        if options.pool.is_some() && reports.is_empty() {
            below.extend(home.pools()?.into_iter().map(|pool| pool.name));
        }
        below.retain(|name| !looked_at.contains(name));
        if below.is_empty() {
            break;
        }
        for name in below {
            for opened in nest.volumes_of(&name).await {
                found.extend(looked(app, opened).await);
            }
            looked_at.push(name);
        }
    }
    if reports.is_empty() { Err(nothing_found(options, &places)) } else { Ok(reports) }
}

/// Finds out whether somebody has the pool's drives who does not go by this list of pools: whoever does is shown by `pool status`.
fn with_user(
    app: &App,
    home: &Home,
    executor: &RealExecutor,
    mut report: PoolReport,
    drives: &[&Found],
) -> Imported {
    let known = KnownPool { name: report.name.clone(), id: report.id.clone(), drives: Vec::new() };
    if app.served.has(&report.name) || home.pool_user(&known).is_some() {
        return Imported { report, used_by: None };
    }
    let options = OpenOptions { read_only: true, lock: true, buffered: false };
    // Who only looks keeps nobody from looking.
    let user = |found: &&Found| match executor.open_drive(&found.path, &options) {
        Err(OpenError::Busy { holder: Holder::ThisProcess, .. }) => None,
        Err(OpenError::Busy { holder, .. }) => Some(holder),
        _ => None,
    };
    let used_by = drives.iter().filter(|found| found.opened.file.is_some()).find_map(user);
    if let Some(user) = &used_by {
        report.notices.push(format!(
            "pool {} is in use by {user}, which may be changing what is said of it here",
            report.name
        ));
        report.condition = format!("in use by {user}, whose list of pools is another");
        report.action = "end that process, or give it commands with its own STRIPEWISE_HOME".to_owned();
    }
    Imported { report, used_by }
}

/// What a volume of a pool says of another.
async fn looked(app: &App, opened: OpenedDrive) -> Option<Found> {
    let label = opened.bare.info().label.to_string();
    match inspect(&*opened.bare).await {
        Ok(Some(of)) => Some(Found { path: PathBuf::from(label), opened, label: of, is_new: true }),
        Ok(None) => None,
        Err(error) => {
            app.printer.warning(said_of(&label.to_string(), &error));
            None
        }
    }
}

/// What was found, by pool; only the one that was asked for, if one was.
fn wanted_pools<'a>(options: &Options, found: &'a [Found]) -> Vec<(String, Vec<&'a Found>)> {
    let mut pools: Vec<(String, Vec<&Found>)> = Vec::new();
    for found in found {
        let id = found.label.pool_id.to_string();
        match pools.iter_mut().find(|(known, _)| *known == id) {
            Some((_, drives)) => drives.push(found),
            None => pools.push((id, vec![found])),
        }
    }
    if let Some(wanted) = &options.pool {
        pools.retain(|(id, drives)| id == wanted || newest(drives).pool_name == *wanted);
    }
    pools
}

/// All paths to look at, and how to call them together.
fn places(options: &Options, app: &App) -> Result<(Vec<PathBuf>, Vec<NbdUri>, String)> {
    let (mut paths, mut exports) = (Vec::new(), Vec::new());
    for name in &options.drives {
        let candidate = Candidate::named(app, name)?;
        match noted_export(&candidate.path) {
            Some(uri) => exports.push(uri),
            None => paths.push(candidate.path),
        }
    }
    if options.folders.is_empty() && options.drives.is_empty() {
        let known = app.home()?.pools()?;
        exports
            .extend(known.iter().flat_map(|pool| &pool.drives).filter_map(|drive| noted_export(&drive.path)));
        let devices = block_devices();
        let behind: Vec<DriveIdentity> = devices.iter().filter_map(|device| file_behind(device)).collect();
        let is_behind =
            |path: &PathBuf| drive_identity(path).is_ok_and(|identity| behind.contains(&identity));
        paths.extend(files_in(&app.absolute(Path::new("")))?.into_iter().filter(|path| !is_behind(path)));
        paths.extend(devices);
        return Ok((paths, exports, "the current folder and on block devices".to_owned()));
    }
    for folder in &options.folders {
        paths.extend(files_in(&app.absolute(folder))?);
    }
    let folders = options.folders.iter().map(|folder| folder.display().to_string());
    let names: Vec<String> = folders.chain(options.drives.iter().cloned()).collect();
    Ok((paths, exports, names.join(", ")))
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |error: std::io::Error| {
        Failure::new(format!("cannot look into {}: {}", folder.display(), system_text(&error)))
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        paths.push(entry.map_err(unreadable)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn block_devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| Path::new("/dev").join(entry.file_name())).collect();
    paths.sort();
    paths
}

/// The file that a loop device stands for: one drive, not two.
fn file_behind(device: &Path) -> Option<DriveIdentity> {
    let attribute = Path::new("/sys/class/block").join(device.file_name()?).join("loop/backing_file");
    let path = std::fs::read_to_string(attribute).ok()?;
    drive_identity(Path::new(path.trim_end_matches('\n'))).ok()
}

/// What is wrong with a drive, with its name where the words do not begin with it.
fn said_of(drive: &str, error: &impl ToString) -> String {
    let error = error.to_string();
    match error.starts_with(drive) {
        true => error,
        false => format!("{drive}: {error}"),
    }
}

/// Drives that belong to some pool; everything else is passed over.
async fn find(app: &App, executor: &RealExecutor, paths: &[PathBuf]) -> Vec<Found> {
    let mut identities = Vec::new();
    let mut all = Vec::new();
    for path in paths {
        let Ok(candidate) = Candidate::at(path) else { continue };
        if identities.contains(&candidate.identity) {
            continue;
        }
        let options = OpenOptions { read_only: true, lock: false, buffered: false };
        let Ok(opened) = open_drive(app, executor, &candidate.path, &options) else { continue };
        match inspect(&*opened.bare).await {
            Ok(Some(label)) => {
                identities.push(candidate.identity);
                all.push(Found { path: candidate.path, opened, label, is_new: true });
            }
            Ok(None) => {}
            Err(error) => app.printer.warning(said_of(&candidate.path.display().to_string(), &error)),
        }
    }
    all
}

/// Looks at exports, and at those that the pools of all that was found have noted. `passes_over`: what is of no use is only said to be so.
async fn find_exports(
    app: &App,
    executor: &RealExecutor,
    exports: Vec<NbdUri>,
    passes_over: bool,
    found: &mut Vec<Found>,
) -> Result<()> {
    let mut looked_at: Vec<NbdUri> = Vec::new();
    let (mut next, mut given) = (exports, true);
    loop {
        for found in found.iter() {
            next.extend(found.label.drives.iter().filter_map(|drive| noted_export(Path::new(&drive.path))));
        }
        next.retain(|uri| looked_at.iter().all(|other| other.address != uri.address));
        if next.is_empty() {
            return Ok(());
        }
        let mut new: Vec<NbdUri> = Vec::new();
        for uri in next.drain(..) {
            if new.iter().all(|other| other.address != uri.address) {
                new.push(uri);
            }
        }
        let opening = new.iter().map(|uri| network::open(executor, uri, true));
        for (uri, opened) in new.iter().zip(join_all(opening).await) {
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) if given && !passes_over => return Err(error.into()),
                Err(error) => {
                    app.printer.warning(format!("{error} (passed over)"));
                    continue;
                }
            };
            match inspect(&*opened.bare).await {
                Ok(Some(label)) => {
                    found.push(Found { path: PathBuf::from(uri.to_string()), opened, label, is_new: true });
                }
                Ok(None) => {}
                Err(error) => app.printer.warning(said_of(&uri.to_string(), &error)),
            }
        }
        looked_at.extend(new);
        given = false;
    }
}

fn newest<'a>(drives: &[&'a Found]) -> &'a DriveLabel {
    &drives.iter().max_by_key(|found| found.label.generation).expect("no pool without drives").label
}

fn nothing_found(options: &Options, places: &str) -> Failure {
    let what = options.pool.as_ref().map_or_else(|| "no pool".to_owned(), |name| format!("no pool `{name}`"));
    Failure::new(format!("{what} was found in {places}"))
        .hint("--dir DIR names a folder with the pool's drives, --drive DRIVE one of them, as a path or an NBD URI; `stripewise drive show DRIVE` tells what a drive holds")
}

fn refuse_twins(pools: &[(String, Vec<&Found>)], places: &str) -> Result<()> {
    for (index, (id, drives)) in pools.iter().enumerate() {
        let name = &newest(drives).pool_name;
        if let Some((other, _)) = pools[..index].iter().find(|(_, drives)| newest(drives).pool_name == *name)
        {
            return Err(Failure::new(format!("there are two pools `{name}` in {places}"))
                .hint(format!("name one by its identity: {other} or {id}")));
        }
    }
    Ok(())
}

async fn import(
    home: &Home,
    nest: &Nest,
    id: &str,
    drives: &[&Found],
    take_rolled_back: bool,
) -> Result<PoolReport> {
    let name = &newest(drives).pool_name;
    let what = format!("cannot import pool `{name}`");
    let given = drives.iter().map(|found| found.opened.drive.clone()).collect();
    let (context, buffers) = (nest.executor().context(), BufferPool::new(0));
    let options = PoolOptions { take_rolled_back, ..PoolOptions::default() };
    let opening = Pool::open(&context, &buffers, given, OpenMode::ReadOnly, options);
    let pool = opening.await.map_err(|error| pool_failure(&what, &error))?;
    let report = PoolReport::from(&pool.status());
    let is_to_be_recorded = pool.takes_rolled_back();
    pool.close().await.map_err(|error| pool_failure(&what, &error))?;
    // Where the pool says a drive was last stands in for those that were not found.
    let known = |drive: &crate::report::DriveReport| {
        let found = drives.iter().find(|found| found.label.drive_id.to_string() == drive.id);
        KnownDrive {
            id: drive.id.clone(),
            path: found.map_or_else(|| PathBuf::from(&drive.path), |found| found.path.clone()),
        }
    };
    let drives = report.drives.iter().map(known).collect();
    let known = KnownPool { name: report.name.clone(), id: id.to_owned(), drives };
    home.remember(known.clone())?;
    if is_to_be_recorded {
        nest.take_rolled_back_of(id);
        let opening = nest.open_pool(home.clone(), known, Access::Change);
        opening.await.map_err(Trouble::failure)?.close().await?;
    }
    Ok(report)
}
