//! `lab run`: measures a target with a method and stores every figure as soon as it is measured.
//!
//! Expected faults: targets that hold data, an interrupt (figures so far are kept), a full disk, a
//! pool that a daemon has open, a missing fio.

mod by_fio;
mod modelled;
mod on_files;
mod options;
mod shown;
mod turns;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use stripewise_control::access::Access;
use stripewise_control::names::VolumeName;
use stripewise_control::pools::pieces::find_volume;
use stripewise_control::pools::session::with_pool;
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::size::ByteSize;
use stripewise_drive::Context;
use stripewise_lab::driver::fio;
use stripewise_lab::files::Extents;
use stripewise_lab::method::{Circumstances, Profile, RunError, Runner, run_profile};
use stripewise_lab::record::{MeasurementRecord, RunRecord};
use stripewise_lab::scenario::{CommandHooks, HookFile, Timeline, run_failure};
use stripewise_lab::store::Store;
use stripewise_lab::{Environment, Target};
use stripewise_runtime::{interrupt_requested, process_cpu_ns};

use super::target::{self, Kind, OpenDrive, Use, usable_bytes};
use super::text::page_of;
use super::{store, store_failure};
use crate::commands::App;
use crate::commands::evaluate::iso_8601;
use crate::commands::lab::profile::profile;
use crate::failure::{Exit, Failure, Result, system_text};
use crate::progress::Progress;

pub(crate) use options::Options;
use options::{Driver, settings};
use shown::Shown;

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    if options.seconds.is_some_and(|seconds| !seconds.is_finite() || seconds <= 0.0) {
        return Err(Failure::usage("--seconds must be more than 0"));
    }
    let profile = profile(app, &options.profile)?;
    let store = store(app)?;
    // From here on a signal ends the run in an orderly way: nothing that it made stays behind.
    let _interrupted = app.interrupted()?;
    match options.targets.as_slice() {
        [only] if only.starts_with(target::MODEL) => {
            modelled::go(options, app, &profile, &store, &only[target::MODEL.len()..])
        }
        [only] => {
            let hooks = options.hooks.as_deref().map(|path| hook_file(app, path)).transpose()?;
            app.executor()?.block_on(go(options, app, &profile, &store, only, hooks))
        }
        _ => app.executor()?.block_on(turns::go(options, app, &profile, &store)),
    }
}

/// Reads the user's hooks, before the target is touched.
fn hook_file(app: &App, path: &Path) -> Result<HookFile> {
    let path = app.absolute(path);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Failure::new(format!("cannot read {}: {}", path.display(), system_text(&error))))?;
    HookFile::parse(&text).map_err(|why| {
        Failure::new(format!("cannot use {}: {why}", path.display()))
            .hint("it needs [fail], [replace] and [rebuild-done], each with a command")
    })
}

async fn go(
    options: &Options,
    app: &App,
    profile: &Profile,
    store: &Store,
    target: &str,
    hooks: Option<HookFile>,
) -> Result<Exit> {
    if profile.files.is_some() && (options.driver == Driver::Fio || options.read_only || hooks.is_some()) {
        return Err(Failure::usage(format!(
            "{} writes files with the native driver: --driver fio, --read-only and --scenario do not apply",
            profile.name
        )));
    }
    if !options.hosts.is_empty() && hooks.is_some() {
        return Err(Failure::usage("--scenario and --hosts cannot be combined"));
    }
    if options.driver == Driver::Native && !options.hosts.is_empty() {
        return Err(Failure::usage("--hosts requires --driver fio"));
    }
    let largest = options.sizes.iter().map(|size| size.0).max().or(profile.sizes.iter().copied().max());
    let how = Use { read_only: options.read_only, force: options.force, size_bytes: largest };
    let folder = app.absolute(Path::new(target));
    let kind = match profile.files {
        _ if !options.hosts.is_empty() => Kind::OnHosts(on_hosts(options, target)?),
        Some(_) if folder.is_dir() => Kind::Folder(folder.clone()),
        _ => target::open(app, target, how).await?,
    };
    let run = RunRecord {
        run: run_name(),
        target: match &kind {
            // A file made for the run is in the folder that was named.
            Kind::Drive(OpenDrive { path: Some(_), .. }) | Kind::Folder(_) => folder.display().to_string(),
            _ => target.to_owned(),
        },
        profile: profile.name.clone(),
        tool: match options.driver {
            Driver::Native => format!("stripewise {}", env!("CARGO_PKG_VERSION")),
            Driver::Fio => fio::version().map_err(|error| by_fio::failure(&error))?,
        },
        date: iso_8601(SystemTime::now()),
        ..RunRecord::default()
    };
    let path = match &kind {
        Kind::Drive(drive) => drive.path.clone(),
        Kind::Folder(folder) => Some(folder.clone()),
        Kind::Volume(_) | Kind::OnHosts(_) => None,
    };
    let environment = Environment::capture(path.as_deref());
    let mut run = RunRecord { environment: environment.by_name(), ..run };
    run.environment.insert("load_average".into(), load_average());
    run.environment.insert("command".into(), command_line(std::env::args()));
    if !options.hosts.is_empty() {
        let hosts: Vec<String> = options.hosts.iter().map(ToString::to_string).collect();
        run.environment.insert("hosts".into(), hosts.join(", "));
    }
    // Methods on files begin once the sizes of their files are known.
    if profile.files.is_none() {
        store.begin(&run).map_err(|error| store_failure(&error))?;
    }
    let work = Work { options, app, profile, store, run: &run, environment: &environment, hooks };
    let measured = match &kind {
        Kind::OnHosts(path) => {
            let capacity = options.sizes.iter().map(|size| size.0).max().unwrap_or(0);
            work.by_fio(path, capacity, false).await
        }
        Kind::Drive(drive) => work.on_drive(drive).await,
        Kind::Folder(folder) => work.in_folder(folder).await,
        Kind::Volume(name) => work.on_volume(name).await,
    };
    let kept = store.load(&run.run).map_or(0, |run| run.measurements.len());
    store.forget_empty(&run.run);
    if interrupt_requested() {
        return Err(interrupted(&run.run, kept));
    }
    let notes = measured.map_err(|failure| match (kept, &failure.hint) {
        (1.., None) => failure.hint(format!("{kept} figures are kept: stripewise lab show {}", run.run)),
        _ => failure,
    })?;
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
    hooks: Option<HookFile>,
}

/// Checks a path on other hosts. This host cannot inspect it, so writing to it needs `--force`.
fn on_hosts(options: &Options, target: &str) -> Result<PathBuf> {
    let path = PathBuf::from(target);
    if !path.is_absolute() {
        return Err(Failure::usage("with --hosts, TARGET must be an absolute path on every host"));
    }
    if !options.read_only && !options.force {
        return Err(Failure::new(format!("cannot check whether {target} holds data on other hosts"))
            .hint("--read-only measures only reads; --force overwrites the target and destroys its data"));
    }
    Ok(path)
}

impl Work<'_> {
    async fn on_drive(&self, drive: &OpenDrive) -> Result<Vec<String>> {
        match (self.options.driver, &drive.path) {
            (Driver::Native, _) => {
                let circumstances =
                    Circumstances { direct_io: self.direct_io(drive), ..self.circumstances() };
                self.natively(&drive.target, drive.capacity_bytes, circumstances).await
            }
            (Driver::Fio, Some(path)) => {
                let sizes = self.sizes();
                let largest = sizes.iter().copied().max().flatten();
                let bytes = usable_bytes(
                    self.fitting(largest, drive.capacity_bytes),
                    drive.capacity_bytes,
                    &self.run.target,
                )?;
                if !self.options.read_only {
                    self.fill(&drive.target, bytes).await?;
                }
                self.by_fio(path, drive.capacity_bytes, !self.options.read_only).await
            }
            (Driver::Fio, None) => Err(Failure::usage("--driver fio requires a file or a block device")),
        }
    }

    /// True if the page cache is bypassed; a file system in memory is page cache itself.
    fn direct_io(&self, drive: &OpenDrive) -> Option<bool> {
        let in_memory = matches!(self.environment.file_system.as_deref(), Some("tmpfs" | "ramfs"));
        drive.direct_io.map(|direct| direct && !in_memory)
    }

    /// Known properties of the host and the drives.
    fn circumstances(&self) -> Circumstances {
        Circumstances {
            memory_bytes: self.environment.memory_bytes,
            drive_cache_bytes: self.options.drive_cache.map(|size| size.0),
            link_mb_per_s: self.options.link.or(self.environment.link_mb_per_s),
            ..Circumstances::default()
        }
    }

    async fn on_volume(&self, name: &VolumeName) -> Result<Vec<String>> {
        if self.options.driver == Driver::Fio {
            return Err(Failure::usage(format!("fio cannot open `{name}` itself"))
                .hint("serve it: `stripewise mount POOL DIR` makes every volume a file in DIR"));
        }
        let what = format!("measure `{name}`");
        refuse_if_used(&self.app.registry()?, &what, &name.pool, Some(&name.volume))?;
        let access = if self.options.read_only { Access::Look } else { Access::Change };
        let doing = format!("lab run {name}");
        let measured = with_pool(self.app, &name.pool, access, &doing, async |session| {
            session.show_notices();
            let volume = find_volume(session, name)?;
            if !self.options.read_only && !self.options.force {
                refuse_written(&volume, name).await?;
            }
            let capacity = Target::capacity_bytes(&volume);
            self.natively(&volume, capacity, self.circumstances()).await
        });
        measured.await.map_err(|failure| match failure.taken_at() {
            Some(_) => Failure::new(format!("pool `{}` is open in a daemon", name.pool)).hint(format!(
                "measure it as its clients see it: stripewise lab run 'nbd+unix:///{name}?socket=PATH' --profile {}",
                self.profile.name
            )),
            None => failure,
        })
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
            let note = "files are raw extents of the target, without file system: no names, no log, no cache; only \
                        streams are merged";
            let (method, sized) = self.sized(method, capacity_bytes / 8 * 7)?;
            self.by_files(method, &files, None).await?;
            return Ok(sized.into_iter().chain([note.to_owned()]).collect());
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
                swept: RefCell::new(None),
            };
            let runner = Runner {
                context: self.app.executor()?.context(),
                target: target.clone(),
                settings: settings(self.options, size_bytes, circumstances.clone()),
                observer: &shown,
                cpu_seconds: &|| Some(process_cpu_ns() as f64 / 1e9),
            };
            let measured = match &self.hooks {
                None => run_profile(&named, &runner).await,
                Some(hooks) => self.through_failure(&named, &runner, hooks).await,
            };
            let (figures, run_notes) = measured.map_err(|error| not_measured(&self.run.target, &error))?;
            first.set(first.get() + figures.len());
            notes.extend(run_notes);
        }
        Ok(notes)
    }

    /// Measures through the states of a drive failure; stores the bandwidth over time after each.
    async fn through_failure<T: Target>(
        &self,
        profile: &Profile,
        runner: &Runner<'_, T>,
        hooks: &HookFile,
    ) -> std::result::Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
        let hooks = self.commands(&runner.context, hooks);
        let kept = RefCell::new(Ok(()));
        let keep =
            |timeline: &Timeline| *kept.borrow_mut() = self.store.keep_timeline(&self.run.run, timeline);
        let measured = run_failure(profile, runner, &hooks, &keep).await?;
        kept.into_inner().map_err(|error| RunError::Observer(error.to_string()))?;
        Ok(measured)
    }

    fn commands(&self, context: &Context, hooks: &HookFile) -> CommandHooks {
        CommandHooks { context: context.clone(), file: hooks.clone(), target: self.run.target.clone() }
    }

    /// Limits a method's own size to the capacity; a size from the command line stays as it is.
    fn fitting(&self, size: Option<u64>, capacity_bytes: u64) -> Option<u64> {
        match self.options.sizes.is_empty() {
            true => size.map(|size| size.min(capacity_bytes)),
            false => size,
        }
    }
}

/// Failure of an interrupted run. All temporary files are gone by the time it is shown.
fn interrupted(run: &str, figures: usize) -> Failure {
    let failure = Failure::new("interrupted");
    match figures {
        0 => failure.hint("nothing was measured yet, and no run is listed"),
        1.. => failure.hint(format!("`stripewise lab show {run}` shows the figures so far")),
    }
}

fn not_measured(target: &str, error: &RunError) -> Failure {
    let failure = Failure::because(format!("cannot measure {target}"), error);
    match error {
        RunError::Hook(_) => failure
            .hint("the array is as the hooks left it; `stripewise lab show latest` shows the figures so far"),
        _ => failure,
    }
}

/// Appends the size to the names of the steps, if several sizes are measured.
fn named_for(profile: &Profile, size_bytes: Option<u64>) -> Profile {
    let mut profile = profile.clone();
    if let Some(bytes) = size_bytes {
        for step in &mut profile.steps {
            step.name = format!("{} of {}", step.name, ByteSize(bytes));
            step.workload.name.clone_from(&step.name);
            if let Some(beside) = &mut step.beside {
                beside.name = format!("{} of {}", beside.name, ByteSize(bytes));
            }
        }
    }
    profile
}

/// Refuses a volume that holds data, found by sampling 64 blocks.
async fn refuse_written<T: Target>(volume: &T, name: &VolumeName) -> Result<()> {
    let capacity = volume.capacity_bytes() / 4096 * 4096;
    for place in 0..64 {
        let at = capacity / 64 * place / 4096 * 4096;
        let read = volume.read(at, 4096.min(capacity)).await;
        let bytes = read.map_err(|error| Failure::because(format!("cannot read `{name}`"), &error))?;
        if bytes.to_vec().iter().any(|byte| *byte != 0) {
            return Err(Failure::new(format!("measuring would overwrite `{name}`, which holds data")).hint(
                "--read-only measures only reads; --force overwrites the volume and destroys its data",
            ));
        }
    }
    Ok(())
}

/// Unique name in order of time: date, time, and three hex digits that separate runs of one second.
fn run_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let stamp: String = iso_8601(SystemTime::now()).chars().filter(char::is_ascii_digit).collect();
    let (date, time) = stamp.split_at(8);
    format!("{date}-{time}-{:03x}", (now.subsec_micros() ^ std::process::id()) & 0xfff)
}

/// The command line, quoted for a shell.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=+.,:/@%".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
