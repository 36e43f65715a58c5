//! `serve`: keeps pools open, runs their jobs, and takes commands for them, until it is stopped.
//!
//! Expected faults: another daemon with the same state folder; listen addresses in use; pools that
//! cannot be opened (a named one ends the daemon, others are reported and the rest served); a stop
//! at any moment: SIGTERM and SIGINT close the pools in order, after kill -9 the next process to
//! open them recovers them; requests that never end (drives that hang): closing has a timeout.

use std::cell::Cell;
use std::future::pending;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::pin::pin;

use clap::Args;
use futures_util::FutureExt;
use futures_util::future::{Either, select, select_all};
use sd_notify::NotifyState;
use serde::Serialize;
use stripewise_control::daemon::alerts::{Alert, Alerts, Watch, tell};
use stripewise_control::daemon::hardware::sample_hardware;
use stripewise_control::daemon::listeners::open_nbd;
use stripewise_control::daemon::mounting::kept;
use stripewise_control::daemon::mounting::{free_folder, mount_fuse, unmount_fuse};
use stripewise_control::daemon::serving::{
    END_WITHIN_SECONDS, adopt, close_all, give_memory_back, in_time, open_all, start_cores, wanted_pools,
};
use stripewise_control::daemon::socket::ControlSocket;
use stripewise_control::daemon::vhost::open_vhost;
use stripewise_control::names::PoolName;
use stripewise_control::pools::reconnect::reconnect;
use stripewise_control::pools::session::Session;
use stripewise_control::report::counted;
use stripewise_export::MAX_THREADS;
use stripewise_export::budget::Budget;
use stripewise_export::fuse::{FuseMount, Tree};

use crate::commands::App;
use crate::execute::take_commands;
use crate::failure::{Exit, Failure, Result, system_text};
use crate::http::{Http, HttpOptions};
use crate::log::{self, LogOptions};

mod options;

use options::{AlertOptions, NbdOptions};

/// Run the daemon: serve pools to clients and commands, and run their jobs
#[derive(Args)]
#[command(after_help = "Example: stripewise serve tank --nbd unix:/run/stripewise/nbd.sock \
     --alert-mail admin@example.org")]
pub(crate) struct Options {
    /// Pools to serve, with the pools that they are stacked on; default: all registered ones, and
    /// those registered later
    #[arg(value_name = "POOL")]
    pools: Vec<PoolName>,
    #[command(flatten)]
    nbd: NbdOptions,
    #[command(flatten)]
    alerts: AlertOptions,
    #[command(flatten)]
    http: HttpOptions,
    /// Let callers with the role operate make drives of files and devices in this folder; default:
    /// block devices in /dev, and files in the state folder. May be given several times
    #[arg(long, value_name = "DIR")]
    drive_dirs: Vec<PathBuf>,
    /// Show each volume as the file DIR/POOL/VOL
    #[arg(long, value_name = "DIR")]
    fuse: Option<PathBuf>,
    /// Serve each volume to virtual machines, as the vhost-user-blk socket DIR/POOL/VOL
    #[arg(long = "vhost-user", value_name = "DIR")]
    vhost_user: Option<PathBuf>,
    /// Shutdown timeout; pools that are not closed by then are left as after a crash
    #[arg(long, value_name = "SECONDS", default_value_t = END_WITHIN_SECONDS)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=86_400))]
    end_within: u64,
    /// Highest temperature of drives in degrees Celsius before an alert is sent [default: the
    /// drive's own limit, else 60]
    #[arg(long, value_name = "DEGREES", value_parser = clap::value_parser!(i64).range(1..=150))]
    max_temperature: Option<i64>,
    /// Threads that serve volumes and connections [default: the number of processors less one, at
    /// most 8, at least 1]. With 1, all is done by one. Volumes on drives that one thread alone can
    /// use (those of other hosts, volumes of other pools, paced files) stay on the first
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_THREADS as u64))]
    cores: Option<u64>,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    pools: Vec<String>,
}

/// Number of threads by default: one processor is left to clients and to work outside the
/// executors.
fn usual_cores() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    (processors - 1).clamp(1, MAX_THREADS)
}

pub(crate) async fn run(options: &Options, app: &App) -> Result<Exit> {
    log::begin(&options.log, app)?;
    let registry = app.registry()?;
    app.allow_drive_folders(match options.drive_dirs.as_slice() {
        [] => vec![PathBuf::from("/dev"), registry.folder().to_owned()],
        folders => folders.iter().map(|folder| app.absolute(folder)).collect(),
    });
    if let Some(degrees) = options.max_temperature {
        app.limit_temperature(degrees);
    }
    let wanted = wanted_pools(&options.pools, &registry)?;
    let folder = options.fuse.as_deref().map(|typed| free_folder(app, typed)).transpose()?;
    let sockets = options.vhost_user.as_deref().map(|typed| app.absolute(typed));
    refuse_sockets_on_volumes(sockets.as_deref(), folder.as_deref())?;
    // Comes first, so that the locks of the pools name the socket.
    let control = ControlSocket::open(app).await?;
    let budget = Budget::new(options.nbd.memory.0);
    start_cores(app, options.cores.map_or_else(usual_cores, |cores| cores as usize))?;
    let context = app.executor()?.context();
    drop(context.spawn(give_memory_back(context.clone(), budget.clone())));
    let http = Http::open(&options.http, &budget, app).await?;
    let nbd = open_nbd(&options.nbd.settings(), &budget, app).await?;
    let vhost = sockets.as_deref().map(|folder| open_vhost(folder, &budget, app)).transpose()?;
    let alerts = options.alerts.ways(app)?;
    if alerts.is_some() {
        app.send_alerts_by(Alerts::start(alerts)?);
    }
    let mut interrupted = app.interrupted()?;
    let watch = Watch::default();
    // Opening may wait for unresponsive drives.
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
            app.printer.warning("requests of NBD clients were abandoned");
        }
        if let Some(vhost) = &vhost
            && !vhost.end().await
        {
            app.printer.warning("requests of virtual machines were abandoned");
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

/// Refuses a folder of sockets within the folder of files: this process would wait for itself when
/// it makes one.
fn refuse_sockets_on_volumes(sockets: Option<&Path>, files: Option<&Path>) -> Result<()> {
    let Some((sockets, files)) = sockets.zip(files) else { return Ok(()) };
    // The folder may still have to be made.
    let existing = sockets.ancestors().find_map(|folder| folder.canonicalize().ok());
    match existing.is_some_and(|folder| folder.starts_with(files)) {
        false => Ok(()),
        true => Err(Failure::usage("the folder of --vhost-user is within that of --fuse")
            .hint("sockets cannot be made among the volumes; name another folder")),
    }
}

/// Serves until it is stopped.
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
        Session::all_served(app).iter().map(|session| session.name().to_owned()).collect();
    app.printer.note(format!("serving {}: {}", counted(pools.len(), "pool"), pools.join(", ")));
    // Services that are ordered after this one find its file systems.
    kept::begin(app).await?;
    tell_the_service_manager(app, &[NotifyState::Ready]);
    app.printer.result(&Ready { ready: true, pools }, |page| page.line("ready"))?;
    let taking_commands = take_commands(app, control);
    let answering = async {
        http.serve(app, control.turns()).await;
        // The end of this thread does not end the daemon.
        pending::<Result<()>>().await
    };
    let adopting = async { if newcomers { adopt(app, control.turns()).await } else { pending().await } };
    let mounted_still = async {
        if let Some(mounted) = &mounted {
            mounted.tell_when_it_has_ended(app).await;
        }
        pending().await
    };
    // These run until one of them fails.
    let mut working = select_all([
        taking_commands.boxed_local(),
        answering.boxed_local(),
        adopting.boxed_local(),
        reconnect(app).boxed_local(),
        watch.go_on(app).boxed_local(),
        sample_hardware(app).boxed_local(),
        mounted_still.boxed_local(),
        kept::keep(app).boxed_local(),
    ]);
    let ended = match select(pin!(interrupted), &mut working).await {
        Either::Left(((), _)) => {
            app.printer.note("shutting down");
            Ok(())
        }
        Either::Right(((result, ..), _)) => result,
    };
    let unmounting = async {
        let unmounted = kept::end(app).await;
        match &mounted {
            None => unmounted,
            Some(mounted) => mounted.end(app).await.and(unmounted),
        }
    };
    if ended.is_err() {
        return unmounting.await.and(ended);
    }
    // Commands are taken while mounts are still in use.
    match select(pin!(unmounting), working).await {
        Either::Left((result, _)) => result,
        Either::Right(((result, ..), unmounting)) => unmounting.await.and(result),
    }
}

/// The mount that shows the served pools as folders.
struct Mounted<'a> {
    mount: FuseMount,
    folder: &'a Path,
    /// Time to wait at shutdown for a mount in use on which nothing is answered, seconds.
    end_within: u64,
    /// Set while this process itself unmounts it.
    is_being_unmounted: Cell<bool>,
}

impl<'a> Mounted<'a> {
    fn at(app: &App, folder: &'a Path, end_within: u64) -> Result<Self> {
        let mount = mount_fuse(app, Tree::Pools, folder)?;
        Ok(Self { mount, folder, end_within, is_being_unmounted: Cell::new(false) })
    }

    /// Raises an alert if another process unmounts it. The other listeners go on, so the daemon
    /// does; but the unmounting may be unintended.
    async fn tell_when_it_has_ended(&self, app: &App) {
        self.mount.until_ended().await;
        if self.is_being_unmounted.get() {
            return;
        }
        let text = format!(
            "{} was unmounted: volumes are not available there until the daemon is restarted",
            self.folder.display()
        );
        tell(app, Alert::new("mount", &text));
    }

    async fn end(&self, app: &App) -> Result<()> {
        self.is_being_unmounted.set(true);
        unmount_fuse(app, &self.mount, self.folder, self.end_within).await
    }
}

/// Reports the state to systemd, if it started this process.
fn tell_the_service_manager(app: &App, states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        app.printer.warning(format!("cannot notify the service manager: {}", system_text(&error)));
    }
}
