//! `serve`: keeps pools open, works on their jobs, and takes commands for them, until it is told to
//! end.
//!
//! Expected faults: another daemon with the same state folder; places to listen that are taken;
//! pools that cannot be opened (named ones end it, of others it says so and serves the rest); an
//! end at any moment: SIGTERM and SIGINT close the pools in order, after kill -9 the next to open
//! them goes on; requests that never end (drives that hang): closing has a limit.

use std::cell::Cell;
use std::collections::HashMap;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::pin::pin;

use clap::Args;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{Either, select, select_all};
use sd_notify::NotifyState;
use serde::Serialize;
use stripewise_drive::Context;
use stripewise_export::budget::Budget;
use stripewise_export::fuse::{FuseMount, Tree};

use crate::alerts::{Alert, AlertOptions, Alerts, Watch, tell};
use crate::candidates::{Place, noted_export, noted_place};
use crate::commands::App;
use crate::control::ControlSocket;
use crate::failure::{Exit, Failure, Result, system_text};
use crate::home::{Home, KnownPool};
use crate::http::{Http, HttpOptions};
use crate::log::{self, LogOptions};
use crate::mounting::{free_folder, mount_fuse, unmount_fuse};
use crate::names::PoolName;
use crate::report::counted;
use crate::revive::revive;
use crate::session::Session;
use crate::turns::Turns;
use crate::ways_in::{NbdOptions, open_nbd};

/// How often the list of pools is looked at for new ones.
const ADOPT_NS: u64 = 1_000_000_000;
/// How often it is tried to open one.
const MAX_ATTEMPTS: u32 = 5;
/// One with drives on other machines, which may come later than this, is tried for ever, once in so
/// many looks.
const LOOKS_PER_LATER_ATTEMPT: u32 = 30;

/// Seconds that closing may take: less than the service manager allows (`dist/stripewise.service`).
pub const END_WITHIN_SECONDS: u64 = 90;
/// How often it is looked whether memory of connections can be given back.
const GIVE_BACK_NS: u64 = 2_000_000_000;
/// The start waits so long for pools with drives on other machines.
const FAR_PATIENCE_NS: u64 = 5_000_000_000;

/// Run the daemon: serve pools to clients and commands, and run their jobs
#[derive(Args)]
pub struct Options {
    /// The pools, and those they lie on; all known ones, and those that come to be known, if left
    /// out
    #[arg(value_name = "POOL")]
    pools: Vec<PoolName>,
    #[command(flatten)]
    nbd: NbdOptions,
    #[command(flatten)]
    alerts: AlertOptions,
    #[command(flatten)]
    http: HttpOptions,
    /// Show each volume as the file DIR/POOL/VOL
    #[arg(long, value_name = "DIR")]
    fuse: Option<PathBuf>,
    /// When told to end, close within this time; pools that are not closed by then are left as a
    /// crash would leave them
    #[arg(long, value_name = "SECONDS", default_value_t = END_WITHIN_SECONDS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    end_within: u64,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    pools: Vec<String>,
}

/// Runs it.
pub async fn run(options: &Options, app: &App) -> Result<Exit> {
    log::begin(&options.log, app)?;
    let home = app.home()?;
    let wanted = wanted_pools(options, &home)?;
    let folder = options.fuse.as_deref().map(|typed| free_folder(app, typed)).transpose()?;
    // First of all, so that the locks of the pools say where commands are taken.
    let control = ControlSocket::open(app).await?;
    let budget = Budget::new(options.nbd.memory.0);
    let context = app.executor()?.context();
    drop(context.spawn(give_memory_back(context.clone(), budget.clone())));
    let http = Http::open(&options.http, &budget, app).await?;
    let nbd = open_nbd(&options.nbd, &budget, app).await?;
    if options.alerts.is_some() {
        app.send_alerts_by(Alerts::start(options.alerts.clone())?);
    }
    let mut interrupted = app.interrupted()?;
    let watch = Watch::default();
    // Opening may wait for drives that do not answer.
    let opened = {
        let opening = pin!(open_all(app, &wanted, !options.pools.is_empty()));
        match select(&mut interrupted, opening).await {
            Either::Left(((), _)) => None,
            Either::Right((opened, _)) => Some(opened),
        }
    };
    let ended = match opened {
        None => Ok(()),
        Some(Err(failure)) => Err(failure),
        Some(Ok(())) => {
            let mounted = |folder| Mounted::at(app, folder, options.end_within);
            let newcomers = options.pools.is_empty();
            match folder.as_deref().map(mounted).transpose() {
                Ok(mounted) => serve(app, &control, http, newcomers, mounted, &watch, interrupted).await,
                Err(failure) => Err(failure),
            }
        }
    };
    tell_the_service_manager(app, &[NotifyState::Stopping]);
    let closing = async {
        if let Some(nbd) = &nbd
            && !nbd.end().await
        {
            app.printer.warning("requests of NBD clients had to be given up");
        }
        watch.look(app);
        close_all(app).await
    };
    let closed = in_time(app, options.end_within, closing).await;
    ended?;
    closed?;
    app.printer.note("all pools are closed");
    Ok(Exit::Success)
}

/// Until it is told to end.
async fn serve(
    app: &App,
    control: &ControlSocket,
    mut http: Http,
    newcomers: bool,
    mounted: Option<Mounted<'_>>,
    watch: &Watch,
    interrupted: impl Future<Output = ()>,
) -> Result<()> {
    let pools: Vec<String> =
        app.served.lend_all(app).iter().map(|session| session.name().to_owned()).collect();
    app.printer.note(format!("serving {}: {}", counted(pools.len(), "pool"), pools.join(", ")));
    tell_the_service_manager(app, &[NotifyState::Ready]);
    app.printer.result(&Ready { ready: true, pools }, |page| page.line("ready"))?;
    let taking_commands = control.serve(app);
    let answering = async {
        http.serve(app, control.turns()).await;
        // A thread that has ended by itself does not end the daemon.
        pending::<Result<()>>().await
    };
    let adopting = async { if newcomers { adopt(app, control.turns()).await } else { pending().await } };
    let mounted_still = async {
        if let Some(mounted) = &mounted {
            mounted.tell_when_it_has_ended(app).await;
        }
        pending().await
    };
    // These go on for ever unless something is wrong.
    let mut working = select_all([
        taking_commands.boxed_local(),
        answering.boxed_local(),
        adopting.boxed_local(),
        revive(app).boxed_local(),
        watch.go_on(app).boxed_local(),
        mounted_still.boxed_local(),
    ]);
    let ended = match select(pin!(interrupted), &mut working).await {
        Either::Left(((), _)) => {
            app.printer.note("told to end: closing");
            Ok(())
        }
        Either::Right(((result, ..), _)) => result,
    };
    match &mounted {
        None => ended,
        // Commands are taken for as long as somebody uses what is mounted.
        Some(mounted) if ended.is_ok() => match select(pin!(mounted.end(app)), working).await {
            Either::Left((result, _)) => result,
            Either::Right(((result, ..), unmounting)) => unmounting.await.and(result),
        },
        Some(mounted) => mounted.end(app).await.and(ended),
    }
}

/// The pools served as folders of files.
struct Mounted<'a> {
    mount: FuseMount,
    folder: &'a Path,
    /// How long it is kept when told to end, in seconds, while nothing is answered.
    end_within: u64,
    /// By this process, as it ends.
    is_being_unmounted: Cell<bool>,
}

impl<'a> Mounted<'a> {
    fn at(app: &App, folder: &'a Path, end_within: u64) -> Result<Self> {
        let mount = mount_fuse(app, Tree::Pools, folder)?;
        Ok(Self { mount, folder, end_within, is_being_unmounted: Cell::new(false) })
    }

    /// Somebody else may unmount it. That ends no other way in, so the daemon goes on; but nobody
    /// may take it for what was meant.
    async fn tell_when_it_has_ended(&self, app: &App) {
        self.mount.until_ended().await;
        if self.is_being_unmounted.get() {
            return;
        }
        let text = format!(
            "{} was unmounted: the volumes are not to be seen there until the daemon is started anew",
            self.folder.display()
        );
        tell(app, Alert { pool: String::new(), kind: "mount", text });
    }

    async fn end(&self, app: &App) -> Result<()> {
        self.is_being_unmounted.set(true);
        unmount_fuse(app, &self.mount, self.folder, self.end_within).await
    }
}

/// Serves pools as they come to be known: made or imported while this runs.
async fn adopt(app: &App, turns: &Turns) -> Result<()> {
    let (home, context) = (app.home()?, app.executor()?.context());
    let mut attempts: HashMap<String, u32> = HashMap::new();
    loop {
        context.sleep_ns(ADOPT_NS).await;
        // A list that cannot be read now says nothing of the pools that are served.
        for pool in home.pools().unwrap_or_default() {
            let attempt = attempts.entry(pool.id.clone()).or_default();
            let may_come_later = is_far(&pool);
            let is_known_here = app.served.has(&pool.name) || app.served.is_coming(&pool.name);
            if is_known_here || (*attempt >= MAX_ATTEMPTS && !may_come_later) {
                continue;
            }
            // Nobody waits for another process to let go of it.
            if home.pool_user(&pool).is_some() {
                continue;
            }
            *attempt = attempt.saturating_add(1);
            if *attempt > MAX_ATTEMPTS && !attempt.is_multiple_of(LOOKS_PER_LATER_ATTEMPT) {
                continue;
            }
            match open(app, &pool).await {
                Ok(()) => {
                    attempts.remove(&pool.id);
                    app.printer.note(format!("pool {} is served from now on", pool.name));
                }
                // The command that makes or imports it has not let go of its drives yet.
                Err(_) if turns.is_taken() => *attempt -= 1,
                // Another process that has just made it may not have let go of it yet.
                Err(_) if *attempt != MAX_ATTEMPTS => {}
                Err(failure) => not_served(&pool, &failure),
            }
        }
    }
}

/// Where systemd started this, it is told how far it is.
fn tell_the_service_manager(app: &App, states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        app.printer.warning(format!("the service manager could not be told: {}", system_text(&error)));
    }
}

/// The pools asked for, or all; each behind those that it lies on.
fn wanted_pools(options: &Options, home: &Home) -> Result<Vec<KnownPool>> {
    let known = home.pools()?;
    let named: Vec<KnownPool> = match options.pools.as_slice() {
        [] => known.clone(),
        names => names.iter().map(|name| home.pool(&name.0)).collect::<Result<_>>()?,
    };
    let mut ordered = Vec::new();
    for pool in &named {
        put_behind_those_below(pool, &known, &mut Vec::new(), &mut ordered);
    }
    Ok(ordered)
}

fn put_behind_those_below(
    pool: &KnownPool,
    known: &[KnownPool],
    above: &mut Vec<String>,
    ordered: &mut Vec<KnownPool>,
) {
    // One that lies on itself is refused when it is opened.
    if above.contains(&pool.name) || ordered.iter().any(|other| other.id == pool.id) {
        return;
    }
    above.push(pool.name.clone());
    for drive in &pool.drives {
        if let Place::Volume(volume) = noted_place(&drive.path)
            && let Some(below) = known.iter().find(|other| other.name == volume.pool)
        {
            put_behind_those_below(below, known, above, ordered);
        }
    }
    above.pop();
    ordered.push(pool.clone());
}

/// Gives memory back that connections had in use, when nothing of it is in use any more.
async fn give_memory_back(context: Context, budget: Budget) {
    let mut was_used = false;
    loop {
        context.sleep_ns(GIVE_BACK_NS).await;
        let is_used = budget.used_bytes() > 0;
        if was_used && !is_used {
            stripewise_runtime::give_memory_back();
        }
        was_used = is_used;
    }
}

/// Opens the pools and begins their jobs. Pools with drives on other machines are opened beside
/// each other, and those that take long go on being opened when this has ended: a machine that does
/// not answer must not hold up the others.
async fn open_all(app: &App, pools: &[KnownPool], all_are_wanted: bool) -> Result<()> {
    let context = app.executor()?.context();
    let mut opening = Vec::new();
    for pool in pools {
        if is_far(pool) {
            opening.push((pool, begin_opening(app, &context, pool)));
            continue;
        }
        match open(app, pool).await {
            Err(failure) if all_are_wanted => return Err(failure),
            Err(failure) => not_served(pool, &failure),
            Ok(()) => {}
        }
    }
    let end_ns = context.now_ns() + FAR_PATIENCE_NS;
    for (pool, opened) in opening {
        let left_ns = end_ns.saturating_sub(context.now_ns());
        match context.time_limit_ns(left_ns, pin!(opened)).await {
            Ok(Ok(Err(failure))) if all_are_wanted => return Err(failure),
            Ok(Ok(Err(failure))) => not_served(pool, &failure),
            Ok(Ok(Ok(()))) => {}
            Ok(Err(_)) | Err(_) => app.printer.warning(format!(
                "pool {} is served later: drives of it on other machines do not answer yet",
                pool.name
            )),
        }
    }
    Ok(())
}

/// Whether a drive of the pool is behind a server.
fn is_far(pool: &KnownPool) -> bool {
    pool.drives.iter().any(|drive| noted_export(&drive.path).is_some())
}

/// Opens a pool beside everything else. What came of it goes to the receiver while that is there;
/// later it is only told.
fn begin_opening(app: &App, context: &Context, pool: &KnownPool) -> oneshot::Receiver<Result<()>> {
    let (app, pool) = (app.clone(), pool.clone());
    let (told, opened) = oneshot::channel();
    drop(context.spawn(async move {
        match told.send(open(&app, &pool).await) {
            Ok(()) => {}
            Err(Ok(())) => app.printer.note(format!("pool {} is served from now on", pool.name)),
            Err(Err(failure)) => {
                not_served(&pool, &failure);
                app.served.is_to_come(pool);
            }
        }
    }));
    opened
}

/// Opens a pool, begins its jobs, and serves it from now on. Commands for it wait until then.
pub async fn open(app: &App, pool: &KnownPool) -> Result<()> {
    let _coming = app.served.comes(&pool.name);
    let session = Session::open_to_serve(app, &pool.name, "serve").await?;
    begin_serving(app, session);
    Ok(())
}

/// Serves a pool that was opened, and works on its jobs.
pub fn begin_serving(app: &App, session: Session) {
    let report = session.report();
    tracing::info!(
        target: "pool", pool = report.name, state = report.state, drives = report.drives.len(),
        volumes = report.volumes.len(), jobs = report.activity.len(), "opened"
    );
    session.show_notices();
    session.start_jobs();
    app.served.begin(session);
}

fn not_served(pool: &KnownPool, failure: &Failure) {
    tracing::warn!(target: "pool", pool = pool.name, "pool {} is not served: {}", pool.name, failure.message);
}

/// Closing, which is given up after so many seconds: requests to drives may never be answered.
pub async fn in_time(app: &App, seconds: u64, closing: impl Future<Output = Result<()>>) -> Result<()> {
    let context = app.executor()?.context();
    let closed = context.time_limit_ns(seconds.saturating_mul(1_000_000_000), pin!(closing)).await;
    closed.unwrap_or_else(|_| {
        let message = format!("not all pools could be closed within {seconds} s: they are left as after a crash");
        Err(Failure::new(message).hint(
            "nothing that was acknowledged as durable is lost: the next process to open them goes on from their journals",
        ))
    })
}

/// Closes them, the last opened first. The first error is reported; all are closed.
pub async fn close_all(app: &App) -> Result<()> {
    let mut result = Ok(());
    while let Some(session) = app.served.end_last() {
        let pool = session.name().to_owned();
        let closed = session.close().await;
        match &closed {
            Ok(()) => tracing::info!(target: "pool", pool, "closed"),
            Err(failure) => tracing::error!(target: "pool", pool, "not closed: {}", failure.message),
        }
        result = result.and(closed);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::home::KnownDrive;

    #[test]
    fn pools_come_behind_those_that_they_lie_on() {
        let pool = |name: &str, drives: &[&str]| KnownPool {
            name: name.to_owned(),
            id: name.to_owned(),
            drives: drives
                .iter()
                .map(|path| KnownDrive { id: String::new(), path: PathBuf::from(path) })
                .collect(),
        };
        let known = [
            pool("above", &["middle/a", "/d/0"]),
            pool("below", &["/d/1"]),
            pool("middle", &["below/x", "below/y"]),
        ];
        let order = |names: &[&str]| {
            let mut ordered = Vec::new();
            for name in names {
                let pool = known.iter().find(|pool| pool.name == *name).expect("known");
                put_behind_those_below(pool, &known, &mut Vec::new(), &mut ordered);
            }
            ordered.into_iter().map(|pool| pool.name).collect::<Vec<_>>()
        };
        assert_eq!(order(&["above", "below", "middle"]), ["below", "middle", "above"]);
        assert_eq!(order(&["middle"]), ["below", "middle"]);
        let circle = [pool("a", &["b/x"]), pool("b", &["a/x"])];
        let mut ordered = Vec::new();
        put_behind_those_below(&circle[0], &circle, &mut Vec::new(), &mut ordered);
        assert_eq!(ordered.len(), 2);
    }
}
