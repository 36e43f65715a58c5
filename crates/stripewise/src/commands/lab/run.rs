//! `lab run`: a method on a target, every figure kept in the store as soon as it is taken.
//!
//! Expected faults: targets that hold something, an interrupt (what was measured is kept), a full disk, a pool that a
//! daemon has open, fio missing.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::time::{Instant, SystemTime};

use clap::{Args, ValueEnum};
use stripewise_lab::driver::fio;
use stripewise_lab::files::{Bonnie, Extents, FileStore, Folder, PostMark, run_bonnie, run_postmark};
use stripewise_lab::method::{
    Circumstances, FileMethod, Observer, Profile, RunError, RunSettings, Runner, Step, built_in, run_profile,
};
use stripewise_lab::record::{MeasurementRecord, RunRecord};
use stripewise_lab::store::{Sample, Store};
use stripewise_lab::{Environment, Target};
use stripewise_runtime::{interrupt_requested, process_cpu_ns};

use super::target::{self, Kind, OpenDrive, Use, usable_bytes};
use super::text::page_of;
use super::{store, store_failure};
use crate::commands::App;
use crate::commands::evaluate::iso_8601;
use crate::failure::{Exit, Failure, Result, chain, system_text};
use crate::names::VolumeName;
use crate::nest::refuse_if_used;
use crate::pieces::find_volume;
use crate::progress::Progress;
use crate::session::{Access, with_pool};
use crate::size::{ByteSize, duration_text};

/// Measure a volume, device, file, directory or NBD export with a method
#[derive(Args)]
#[command(
    after_help = "Measuring writes to the target. An existing file or a device needs --force; a folder gets a \
                        file of its own, which is removed again. `stripewise lab profiles` lists the methods."
)]
pub struct Options {
    /// POOL/VOL, a file, a block device, a folder, or an nbd:// URI
    #[arg(value_name = "TARGET")]
    target: String,
    /// The method: a name of `lab profiles`, or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    profile: String,
    /// What drives the load
    #[arg(long, value_name = "native|fio", default_value = "native")]
    driver: Driver,
    /// How much of the target is used; several sizes are measured one after the other
    #[arg(long = "size", value_name = "SIZE")]
    sizes: Vec<ByteSize>,
    /// Length of a run
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Runs per figure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Where all random choices start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write nothing: measurements that write are left out
    #[arg(long, conflicts_with = "force")]
    read_only: bool,
    /// Overwrite what the target holds
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Driver {
    Native,
    Fio,
}

/// Runs it.
pub fn run(options: &Options, app: &App) -> Result<Exit> {
    if options.seconds.is_some_and(|seconds| !seconds.is_finite() || seconds <= 0.0) {
        return Err(Failure::usage("--seconds must be more than 0"));
    }
    let profile = profile(app, &options.profile)?;
    let store = store(app)?;
    app.executor()?.block_on(go(options, app, &profile, &store))
}

/// The laboratory's own, or a file of the user's.
fn profile(app: &App, name: &str) -> Result<Profile> {
    let path = app.absolute(Path::new(name));
    if name.ends_with(".toml") || path.is_file() {
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::new(format!("cannot read {}: {}", path.display(), system_text(&error)))
        })?;
        return Profile::parse(&text)
            .map_err(|error| Failure::because(format!("cannot use {}", path.display()), &error));
    }
    built_in(name)
        .map_err(|error| Failure::usage(error.to_string()).hint("stripewise lab profiles lists them"))
}

async fn go(options: &Options, app: &App, profile: &Profile, store: &Store) -> Result<Exit> {
    if profile.files.is_some() && (options.driver == Driver::Fio || options.read_only) {
        return Err(Failure::usage(format!("{} works on files, by itself, and writes them", profile.name)));
    }
    let largest = options.sizes.iter().map(|size| size.0).max().or(profile.sizes.iter().copied().max());
    let how = Use { read_only: options.read_only, force: options.force, size_bytes: largest };
    let folder = app.absolute(Path::new(&options.target));
    let kind = match profile.files {
        Some(_) if folder.is_dir() => Kind::Folder(folder),
        _ => target::open(app, &options.target, how).await?,
    };
    let mut run = RunRecord {
        run: run_name(),
        target: match &kind {
            Kind::Drive(OpenDrive { path: Some(path), .. }) | Kind::Folder(path) => {
                path.display().to_string()
            }
            _ => options.target.clone(),
        },
        profile: profile.name.clone(),
        tool: match options.driver {
            Driver::Native => format!("stripewise {}", env!("CARGO_PKG_VERSION")),
            Driver::Fio => fio::version().map_err(|error| failure(&error))?,
        },
        date: iso_8601(SystemTime::now()),
        ..RunRecord::default()
    };
    let path = match &kind {
        Kind::Drive(drive) => drive.path.clone(),
        Kind::Folder(folder) => Some(folder.clone()),
        Kind::Volume(_) => None,
    };
    let environment = Environment::capture(path.as_deref());
    run.environment = environment.by_name();
    run.environment.insert("load_average".into(), load_average());
    store.begin(&run).map_err(|error| store_failure(&error))?;
    let work = Work { options, app, profile, store, run: &run, environment: &environment };
    let measured = match &kind {
        Kind::Drive(drive) => work.on_drive(drive).await,
        Kind::Folder(folder) => work.in_folder(folder).await,
        Kind::Volume(name) => work.on_volume(name).await,
    };
    let notes = measured.map_err(|failure| {
        let kept = store.load(&run.run).map_or(0, |run| run.measurements.len());
        match (kept, &failure.hint) {
            (1.., None) => failure.hint(format!("{kept} figures are kept: stripewise lab show {}", run.run)),
            _ => failure,
        }
    })?;
    if interrupt_requested() {
        let kept = format!("stripewise lab show {} has what was measured", run.run);
        return Err(Failure::new("interrupted").hint(kept));
    }
    store.finish(&run.run, &notes).map_err(|error| store_failure(&error))?;
    let run = store.load(&run.run).map_err(|error| store_failure(&error))?;
    app.printer.result(&run, |page| page_of(&run, page))?;
    Ok(Exit::Success)
}

struct Work<'a> {
    options: &'a Options,
    app: &'a App,
    profile: &'a Profile,
    store: &'a Store,
    run: &'a RunRecord,
    environment: &'a Environment,
}

impl Work<'_> {
    async fn on_drive(&self, drive: &OpenDrive) -> Result<Vec<String>> {
        match (self.options.driver, &drive.path) {
            (Driver::Native, _) => {
                let circumstances = Circumstances {
                    direct_io: drive.direct_io,
                    memory_bytes: self.environment.memory_bytes,
                    ..Circumstances::default()
                };
                self.natively(&drive.target, drive.capacity_bytes, circumstances).await
            }
            (Driver::Fio, Some(path)) => self.by_fio(path, drive.capacity_bytes),
            (Driver::Fio, None) => Err(Failure::usage("fio needs a path: a file or a block device")),
        }
    }

    async fn on_volume(&self, name: &VolumeName) -> Result<Vec<String>> {
        if self.options.driver == Driver::Fio {
            return Err(Failure::usage(format!("fio cannot open `{name}` itself"))
                .hint("serve it: `stripewise mount POOL DIR` makes every volume a file in DIR"));
        }
        let what = format!("measure `{name}`");
        refuse_if_used(&self.app.home()?, &what, &name.pool, Some(&name.volume))?;
        let access = if self.options.read_only { Access::Look } else { Access::Change };
        let doing = format!("lab run {name}");
        let measured = with_pool(self.app, &name.pool, access, &doing, async |session| {
            session.show_notices();
            let volume = find_volume(session, name)?;
            if !self.options.read_only && !self.options.force {
                refuse_written(&volume, name).await?;
            }
            let capacity = Target::capacity_bytes(&volume);
            self.natively(&volume, capacity, Circumstances::default()).await
        });
        measured.await.map_err(|failure| match failure.taken_at {
            Some(_) => Failure::new(format!("pool `{}` is open in a daemon", name.pool)).hint(format!(
                "measure it as its clients see it: stripewise lab run 'nbd+unix:///{name}?socket=PATH' --profile {}",
                self.profile.name
            )),
            None => failure,
        })
    }

    async fn in_folder(&self, folder: &Path) -> Result<Vec<String>> {
        let method = self.profile.files.expect("only methods on files come here");
        let keeps_open = matches!(method, FileMethod::Bonnie(_));
        let mut notes = Vec::new();
        let (largest, memory) = (self.most_bytes(method), self.environment.memory_bytes);
        if memory.is_some_and(|memory| largest < 2 * memory) {
            notes.push(
                "the files fit into the host's memory: reads may never have reached a drive".to_owned(),
            );
        }
        let files = Folder::new(folder, keeps_open).map_err(|error| {
            Failure::new(format!("cannot make a folder in {}: {}", folder.display(), system_text(&error)))
        })?;
        self.by_files(method, &files).await.map(|()| notes)
    }

    /// Bytes of all files together.
    fn most_bytes(&self, method: FileMethod) -> u64 {
        match method {
            FileMethod::Bonnie(asked) => self.options.sizes.first().map_or(asked.file_bytes, |size| size.0),
            FileMethod::PostMark(asked) => {
                asked.files.saturating_mul((asked.least_bytes + asked.most_bytes) / 2)
            }
        }
    }

    async fn by_files<S: FileStore>(&self, method: FileMethod, files: &S) -> Result<()> {
        let context = self.app.executor()?.context();
        let mut all: Vec<MeasurementRecord> = Vec::new();
        for run in 0..self.options.runs.unwrap_or(self.profile.runs).max(1) {
            let seed = self.options.seed.wrapping_add(u64::from(run));
            let began = |what: &str| self.app.printer.note(format!("{}: {what}", self.profile.name));
            let cpu = || Some(process_cpu_ns() as f64 / 1e9);
            let measured = match method {
                FileMethod::Bonnie(asked) => {
                    let asked = Bonnie { file_bytes: self.most_bytes(method), seed, ..asked };
                    run_bonnie(&context, files, &asked, &cpu, &began).await
                }
                FileMethod::PostMark(asked) => {
                    began("files are made, then transactions, then they are deleted");
                    run_postmark(&context, files, &PostMark { seed, ..asked }, &|_| {}).await
                }
            };
            let figures = measured
                .map_err(|error| Failure::because(format!("cannot measure {}", self.run.target), &error))?;
            for (position, figure) in figures.into_iter().enumerate() {
                match all.get_mut(position) {
                    None => all.push(figure),
                    Some(before) => {
                        let runs = [before.runs.clone(), figure.runs].concat();
                        *before = before.clone().with_runs(runs);
                    }
                }
                let kept = self.store.record(&self.run.run, position, &all[position], None);
                kept.map_err(|error| store_failure(&error))?;
            }
        }
        Ok(())
    }

    fn sizes(&self) -> Vec<Option<u64>> {
        let asked: Vec<Option<u64>> = self.options.sizes.iter().map(|size| Some(size.0)).collect();
        match (asked.is_empty(), self.profile.sizes.as_slice()) {
            (false, _) => asked,
            (true, []) => vec![None],
            (true, sizes) => sizes.iter().map(|size| Some(*size)).collect(),
        }
    }

    async fn natively<T: Target>(
        &self,
        target: &T,
        capacity_bytes: u64,
        circumstances: Circumstances,
    ) -> Result<Vec<String>> {
        if let Some(method) = self.profile.files {
            let files = Extents::new(target.clone());
            let note = "files lie on the target without a file system: nothing is cached, named or logged";
            return self.by_files(method, &files).await.map(|()| vec![note.to_owned()]);
        }
        let sizes = self.sizes();
        let mut notes = Vec::new();
        let first = Cell::new(0);
        for size in &sizes {
            let size_bytes =
                usable_bytes(self.fitting(*size, capacity_bytes), capacity_bytes, &self.run.target)?;
            let named = named_for(self.profile, (sizes.len() > 1).then_some(size_bytes));
            let shown = Shown {
                work: self,
                named: &named,
                first: first.get(),
                began: Instant::now(),
                progress: RefCell::new(Progress::new(&self.app.printer)),
                now: RefCell::default(),
            };
            let runner = Runner {
                context: self.app.executor()?.context(),
                target: target.clone(),
                settings: RunSettings {
                    runs: self.options.runs,
                    seconds: self.options.seconds,
                    size_bytes,
                    may_write: !self.options.read_only,
                    virtual_time: false,
                    seed: self.options.seed,
                    circumstances: circumstances.clone(),
                },
                observer: &shown,
                cpu_seconds: &|| Some(process_cpu_ns() as f64 / 1e9),
            };
            let (figures, told) = run_profile(&named, &runner)
                .await
                .map_err(|error| Failure::because(format!("cannot measure {}", self.run.target), &error))?;
            first.set(first.get() + figures.len());
            notes.extend(told);
        }
        Ok(notes)
    }

    /// A profile's own size is cut to what there is; one that was asked for is not.
    fn fitting(&self, size: Option<u64>, capacity_bytes: u64) -> Option<u64> {
        match self.options.sizes.is_empty() {
            true => size.map(|size| size.min(capacity_bytes)),
            false => size,
        }
    }

    fn by_fio(&self, path: &Path, capacity_bytes: u64) -> Result<Vec<String>> {
        let sizes = self.sizes();
        let mut notes = Vec::new();
        let mut position = 0;
        for size in &sizes {
            let size_bytes =
                usable_bytes(self.fitting(*size, capacity_bytes), capacity_bytes, &self.run.target)?;
            let named = named_for(self.profile, (sizes.len() > 1).then_some(size_bytes));
            let asked = fio::Asked {
                path,
                size_bytes,
                runs: self.options.runs.unwrap_or(named.runs),
                seconds: self.options.seconds.unwrap_or(named.seconds),
                may_write: !self.options.read_only,
                seed: self.options.seed,
            };
            for step in &named.steps {
                if interrupt_requested() {
                    return Ok(notes);
                }
                if step.workload.read_share < 1.0 && self.options.read_only {
                    notes.push(format!("{}: left out, as nothing may be written", step.name));
                    continue;
                }
                self.app.printer.note(format!("fio: {}", step.name));
                let keep = |figure: &MeasurementRecord, sample: &Sample| {
                    let kept = self.store.record(&self.run.run, position, figure, Some(sample));
                    kept.map_err(|error| error.to_string())
                };
                fio::measure(&named, step, &asked, keep).map_err(|error| failure(&error))?;
                position += 1;
            }
        }
        Ok(notes)
    }
}

fn failure(error: &fio::FioError) -> Failure {
    let failure = Failure::new(chain(error));
    match error {
        fio::FioError::Missing(_) => failure.hint("apt install fio, or leave out --driver fio"),
        _ => failure,
    }
}

/// Where several sizes are measured, names say which.
fn named_for(profile: &Profile, size_bytes: Option<u64>) -> Profile {
    let mut profile = profile.clone();
    if let Some(bytes) = size_bytes {
        for step in &mut profile.steps {
            step.name = format!("{} of {}", step.name, ByteSize(bytes));
            step.workload.name.clone_from(&step.name);
        }
    }
    profile
}

/// A volume with something in it is not overwritten unasked: its beginning and 64 places are looked at.
async fn refuse_written<T: Target>(volume: &T, name: &VolumeName) -> Result<()> {
    let capacity = volume.capacity_bytes() / 4096 * 4096;
    for place in 0..64 {
        let at = capacity / 64 * place / 4096 * 4096;
        let read = volume.read(at, 4096.min(capacity)).await;
        let bytes = read.map_err(|error| Failure::because(format!("cannot read `{name}`"), &error))?;
        if bytes.to_vec().iter().any(|byte| *byte != 0) {
            return Err(Failure::new(format!("measuring would overwrite `{name}`, which holds data")).hint(
                "--read-only measures reads alone; --force overwrites it: all that it holds would be lost",
            ));
        }
    }
    Ok(())
}

/// Unique and in the order of time: the second, and two letters against a second run in it.
fn run_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let stamp: String = iso_8601(SystemTime::now()).chars().filter(char::is_ascii_digit).collect();
    let (date, time) = stamp.split_at(8);
    format!("{date}-{time}-{:03x}", (now.subsec_micros() ^ std::process::id()) & 0xfff)
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Shows how the run stands, and keeps every figure.
struct Shown<'a> {
    work: &'a Work<'a>,
    named: &'a Profile,
    /// Figures of sizes before.
    first: usize,
    began: Instant,
    progress: RefCell<Progress<'a>>,
    now: RefCell<(String, f64, Option<Instant>)>,
}

impl Observer for Shown<'_> {
    fn begins(&self, step: &Step, position: usize, steps: usize, run: u32) {
        let runs = self.work.options.runs.unwrap_or(self.named.runs).max(1);
        let done = (position as f64 + f64::from(run) / f64::from(runs)) / steps as f64;
        let what = format!("{}, run {} of {runs}", step.name, run + 1);
        *self.now.borrow_mut() = (what, done, Some(Instant::now()));
    }

    fn moved(&self, bytes: u64) {
        let now = self.now.borrow();
        let (what, done, Some(since)) = &*now else { return };
        let rate = bytes as f64 / 1e6 / since.elapsed().as_secs_f64().max(1e-3);
        let so_far = self.began.elapsed().as_secs_f64();
        let left = (*done > 0.02).then(|| so_far / done * (1.0 - done));
        self.progress.borrow_mut().update(what, 100.0 * done, rate, left);
    }

    fn measured(
        &self,
        position: usize,
        figure: &MeasurementRecord,
        sample: &Sample,
    ) -> std::result::Result<(), RunError> {
        let kept = self.work.store.record(&self.work.run.run, self.first + position, figure, Some(sample));
        kept.map_err(|error| RunError::Observer(error.to_string()))
    }

    fn is_interrupted(&self) -> bool {
        interrupt_requested()
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed().as_secs_f64();
        self.work.app.printer.note(format!("took {}", duration_text(took)));
    }
}
