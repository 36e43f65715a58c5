//! `mount`: shows the volumes of a pool as files in a directory, or mounts the file system on one
//! of them. If a daemon has the pool, the daemon mounts (`control/src/operations/mounts.rs`);
//! otherwise this process does, until interrupted. With `-o`, as mount(8) calls it through
//! `dist/mount.stripewise`, the daemon mounts or nothing does (`mount/system.rs`). It keeps the
//! pool open as `serve` does: it runs the pool's jobs and accepts commands for it.
//!
//! Expected faults: an unusable directory, a pool that another process serves, another process that
//! unmounts, files still open at shutdown (they are waited for), a pool that is destroyed or
//! exported while mounted (this ends the mount).

use std::path::PathBuf;
use std::pin::pin;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use futures_util::future::{Either, LocalBoxFuture, select};
use serde::Serialize;
use stripewise_control::access::Access;
use stripewise_control::daemon::alerts::Watch;
use stripewise_control::daemon::mounting::file_system::{FileSystem, Wanted};
use stripewise_control::daemon::mounting::{free_folder, mount_fuse, unmount_fuse};
use stripewise_control::daemon::serving::{END_WITHIN_SECONDS, begin_serving, close_all, in_time};
use stripewise_control::daemon::socket::ControlSocket;
use stripewise_control::names::{PoolName, VolumeName};
use stripewise_control::pools::pieces::find_volume;
use stripewise_control::pools::session::Session;
use stripewise_control::registry::running_as_root;
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::request::{Mount, SystemMount};
use stripewise_export::fuse::Tree;

use crate::commands::App;
use crate::execute::take_commands;
use crate::failure::{Exit, Failure, Result};
use crate::log::{self, LogOptions};

mod system;

use system::SystemOptions;

/// Interval between checks that the pool is still served.
const POLL_NS: u64 = 1_000_000_000;

/// Mount volumes as files, or the file system on a volume. If a daemon serves the pool, it mounts,
/// and mounts again whenever it serves the pool, until `stripewise umount`; otherwise the command
/// mounts until it is interrupted
#[derive(Args)]
#[command(after_help = "Examples:\n  stripewise mount tank/data /mnt/data --fs xfs\n  stripewise mount \
     tank /mnt/volumes")]
pub(crate) struct Options {
    /// The pool whose volumes appear as files; with --fs, the volume with the file system
    #[arg(value_name = "POOL[/VOL]")]
    what: What,
    /// Mount point: an empty directory
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Type of the file system on the volume; created if the volume is empty
    #[arg(long = "fs", value_name = "FS")]
    file_system: Option<FileSystemChoice>,
    /// Options as in /etc/fstab, by which mount(8) calls this command: the daemon mounts, and is
    /// waited for. fs=xfs|ext4|btrfs, wait=SECONDS (60), and options of the file system's mount
    #[arg(short = 'o', long = "options", value_name = "LIST", conflicts_with = "file_system")]
    system: Option<SystemOptions>,
    #[command(flatten)]
    log: LogOptions,
}

/// File system on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileSystemChoice {
    /// XFS
    Xfs,
    /// ext4
    Ext4,
    /// btrfs
    Btrfs,
}

impl From<FileSystemChoice> for FileSystem {
    fn from(typed: FileSystemChoice) -> Self {
        match typed {
            FileSystemChoice::Xfs => Self::Xfs,
            FileSystemChoice::Ext4 => Self::Ext4,
            FileSystemChoice::Btrfs => Self::Btrfs,
        }
    }
}

#[derive(Clone, Debug)]
enum What {
    Pool(PoolName),
    Volume(VolumeName),
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.contains('/') {
            true => text.parse().map(Self::Volume),
            false => text.parse().map(Self::Pool),
        }
    }
}

#[derive(Serialize)]
struct Ready<'a> {
    ready: bool,
    mounted: String,
    at: &'a str,
}

impl Options {
    /// The request to a daemon that has the pool.
    pub(crate) fn request(&self) -> Mount {
        let (pool, volume) = match &self.what {
            What::Pool(pool) => (pool.clone(), None),
            What::Volume(name) => (PoolName(name.pool.clone()), Some(name.clone())),
        };
        let folder = self.folder.clone();
        match &self.system {
            None => {
                let file_system = self.file_system.map(FileSystem::from);
                Mount { pool, volume, folder, file_system, options: Vec::new(), of_system: None }
            }
            Some(SystemOptions { file_system, wait_seconds, of_mount }) => {
                let of_system = Some(SystemMount { wait_seconds: *wait_seconds });
                let (file_system, options) = (*file_system, of_mount.clone());
                Mount { pool, volume, folder, file_system, options, of_system }
            }
        }
    }
}

pub(crate) async fn run(options: &Options, app: &App) -> Result<Exit> {
    let file_system = match &options.system {
        Some(system) => system.file_system,
        None => options.file_system.map(FileSystem::from),
    };
    let (pool, shown) = match (&options.what, file_system) {
        (What::Pool(pool), None) => (&pool.0, pool.0.clone()),
        (What::Volume(name), Some(_)) => (&name.pool, name.to_string()),
        (What::Pool(pool), Some(_)) => {
            return Err(Failure::usage("--fs requires a volume, not a pool").hint(format!(
                "name the volume: stripewise mount {0}/VOL {1} --fs …; `stripewise volume list {0}` lists them",
                pool.0,
                options.folder.display()
            )));
        }
        (What::Volume(name), None) => {
            return Err(Failure::usage(format!("mounting volume {name} requires --fs")).hint(format!(
                "for a file system on it, add --fs xfs|ext4|btrfs; in /etc/fstab the option fs=ext4; to see the volume as a file: stripewise mount {} {}",
                name.pool,
                options.folder.display()
            )));
        }
    };
    if file_system.is_some() && !running_as_root() {
        return Err(Failure::new("only root can mount a file system on a loop device")
            .hint(format!("as an ordinary user: stripewise mount {pool} DIR shows volumes as files")));
    }
    if let Some(system) = &options.system {
        return system::by_daemon(options.request(), system.wait_seconds, app).await;
    }
    log::begin(&options.log, app)?;
    let folder = free_folder(app, &options.folder)?;
    let control = ControlSocket::open_for_mount(app).await?;
    let interrupted = app.interrupted()?;
    let session = Session::open(app, pool, Access::Change, &format!("mount {shown}")).await?;
    begin_serving(session);
    let watch = Watch::default();
    let work =
        Work { app, watch: &watch, control: &control, shown: &shown, folder: &folder.display().to_string() };
    let ended = match (&options.what, file_system) {
        (What::Volume(volume), Some(kind)) => {
            let size_bytes = size_of(app, volume);
            match size_bytes {
                Ok(size_bytes) => {
                    work.file_system(
                        &Wanted { volume, size_bytes, kind, folder: &folder, options: &[] },
                        interrupted,
                    )
                    .await
                }
                Err(failure) => Err(failure),
            }
        }
        _ => work.files(pool, &folder, interrupted).await,
    };
    watch.look(app);
    let closed = in_time(app, END_WITHIN_SECONDS, close_all(app)).await;
    ended?;
    closed?;
    app.printer.note("unmounted and closed");
    Ok(Exit::Success)
}

/// Size of a volume that is not in use.
fn size_of(app: &App, name: &VolumeName) -> Result<u64> {
    refuse_if_used(&app.registry()?, &format!("mount {name}"), &name.pool, Some(&name.volume))?;
    let session = Session::served(app, &name.pool).expect("it was just opened");
    Ok(find_volume(&session, name)?.capacity_bytes())
}

/// Context of the tasks that run while the mount is active.
struct Work<'a> {
    app: &'a App,
    watch: &'a Watch,
    control: &'a ControlSocket,
    shown: &'a str,
    folder: &'a str,
}

type Interrupt = LocalBoxFuture<'static, ()>;

impl Work<'_> {
    async fn files(&self, pool: &str, folder: &std::path::Path, interrupted: Interrupt) -> Result<()> {
        let mount = mount_fuse(self.app, Tree::Volumes(pool.to_owned()), folder)?;
        let ready = self.ready();
        let mut commands = pin!(self.commands_and_alerts());
        let ended = async {
            ready?;
            let (unmounted, taken_away) = (pin!(mount.until_ended()), pin!(self.until_not_served(pool)));
            let gone = select(unmounted, taken_away);
            if let Either::Right((Either::Right((taken_away, _)), _)) = select(interrupted, gone).await {
                taken_away?;
                let app = self.app;
                app.printer
                    .warning(format!("pool {pool} was destroyed or exported: {} is unmounted", self.folder));
            }
            Ok(())
        };
        let ended = until(pin!(ended), commands.as_mut()).await;
        // Commands are accepted while files are still open.
        let unmounting = unmount_fuse(self.app, &mount, folder, END_WITHIN_SECONDS);
        let unmounted = until(pin!(unmounting), commands.as_mut()).await;
        ended.and(unmounted)
    }

    async fn file_system(&self, wanted: &Wanted<'_>, interrupted: Interrupt) -> Result<()> {
        let work = async || {
            self.ready()?;
            match select(interrupted, pin!(wanted.until_unmounted(self.app))).await {
                Either::Left(_) => Ok(()),
                Either::Right((result, _)) => result,
            }
        };
        until(pin!(wanted.mounted(self.app, work)), pin!(self.commands_and_alerts())).await
    }

    /// Accepts commands and sends alerts.
    async fn commands_and_alerts(&self) -> Result<()> {
        select(pin!(take_commands(self.app, self.control)), pin!(self.watch.go_on(self.app)))
            .await
            .factor_first()
            .0
    }

    /// Returns once a command has destroyed or exported the pool.
    async fn until_not_served(&self, pool: &str) -> Result<()> {
        let context = self.app.executor()?.context();
        while self.app.served.has(pool) {
            context.sleep_ns(POLL_NS).await;
        }
        Ok(())
    }

    fn ready(&self) -> Result<()> {
        self.app.printer.note(format!("{} is mounted at {}", self.shown, self.folder));
        let ready = Ready { ready: true, mounted: self.shown.to_owned(), at: self.folder };
        self.app.printer.result(&ready, |page| page.line("ready"))
    }
}

/// Waits for `work` while accepting commands. If that fails, `work` continues without commands.
async fn until(
    work: impl Future<Output = Result<()>> + Unpin,
    commands: impl Future<Output = Result<()>> + Unpin,
) -> Result<()> {
    match select(work, commands).await {
        Either::Left((result, _)) => result,
        Either::Right((failure, work)) => work.await.and(failure),
    }
}
