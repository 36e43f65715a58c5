//! One file per command: its options as clap reads them, and `run`.

pub mod advise;
pub mod alert_test;
pub mod drive_make;
pub mod drive_measure;
pub mod drive_show;
pub mod evaluate;
pub mod lab;
pub mod model;
pub mod mount;
pub mod pool_add;
pub mod pool_advise;
pub mod pool_clear;
pub mod pool_create;
pub mod pool_destroy;
pub mod pool_events;
pub mod pool_export;
pub mod pool_import;
pub mod pool_iostat;
pub mod pool_list;
pub mod pool_offline;
pub mod pool_online;
pub mod pool_rebalance;
pub mod pool_remove;
pub mod pool_rename;
pub mod pool_replace;
pub mod pool_retire;
pub mod pool_scrub;
pub mod pool_set;
pub mod pool_status;
pub mod pool_wait;
pub mod serve;
pub mod simulate_torture;
pub mod volume_convert;
pub mod volume_create;
pub mod volume_delete;
pub mod volume_list;
pub mod volume_pin;
pub mod volume_read;
pub mod volume_resize;
pub mod volume_show;
pub mod volume_write;

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use stripewise_drive::SemaphorePermit;
use stripewise_runtime::RealExecutor;

use crate::alerts::Alerts;
use crate::failure::{Failure, Result};
use crate::home::Home;
use crate::input::Input;
use crate::printer::Printer;
use crate::report::{PoolReport, VolumeReport};
use crate::served::Served;
use crate::session::executor as new_executor;

/// What every command gets: where to print, where relative paths begin, what it runs on, and where
/// the list of pools is.
#[derive(Clone)]
pub struct App {
    /// Prints results and messages.
    pub printer: Rc<Printer>,
    /// Pools that this process has open anyway.
    pub served: Served,
    /// Where the command gets its input from.
    pub input: Input,
    /// The folder of whoever typed the command.
    folder: PathBuf,
    executor: Rc<OnceCell<Rc<RealExecutor>>>,
    /// Where this process takes commands of others, once it does.
    control: Rc<OnceCell<PathBuf>>,
    alerts: Rc<OnceCell<Alerts>>,
    /// The command's turn among those that change something, while it has it.
    turn: Rc<RefCell<Option<SemaphorePermit>>>,
}

impl App {
    /// For the command that this process was started with.
    pub fn of_this_process(printer: Printer) -> Self {
        Self {
            printer: Rc::new(printer),
            served: Served::default(),
            input: Input::Process,
            // Without one, relative paths stay as they are.
            folder: std::env::current_dir().unwrap_or_default(),
            executor: Rc::default(),
            control: Rc::default(),
            alerts: Rc::default(),
            turn: Rc::default(),
        }
    }

    /// For a command of somebody else's, typed in `folder`.
    pub fn for_caller(&self, printer: Printer, input: Input, folder: PathBuf) -> Self {
        Self { printer: Rc::new(printer), input, folder, turn: Rc::default(), ..self.clone() }
    }

    /// It is this command's turn.
    pub fn take_turn(&self, turn: SemaphorePermit) {
        self.turn.replace(Some(turn));
    }

    /// The command changes nothing any more, and only waits.
    pub fn let_others_go_on(&self) {
        self.turn.take();
    }

    /// The state folder; only asked for by commands that need it.
    pub fn home(&self) -> Result<Home> {
        Home::from_environment()
    }

    /// What drives are used on; one for all that this process does.
    pub fn executor(&self) -> Result<Rc<RealExecutor>> {
        if let Some(executor) = self.executor.get() {
            return Ok(executor.clone());
        }
        let executor = Rc::new(new_executor()?);
        Ok(self.executor.get_or_init(|| executor).clone())
    }

    /// Ends when whoever wants the command done wants it no more: they have interrupted it, or have
    /// left.
    pub fn interrupted(&self) -> Result<LocalBoxFuture<'static, ()>> {
        if let Some(caller) = self.printer.caller().cloned() {
            return Ok(Box::pin(async move { caller.until_left().await }));
        }
        let interrupted = self.executor()?.interrupted();
        Ok(Box::pin(interrupted.map_err(|error| Failure::because("cannot watch for interrupts", &error))?))
    }

    /// A path as the caller means it.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// From now on others find commands for this process's pools taken at `socket`.
    pub fn take_commands_at(&self, socket: PathBuf) {
        self.control.set(socket).expect("a process takes commands at one place");
    }

    /// From now on alerts are sent so.
    pub fn send_alerts_by(&self, alerts: Alerts) {
        assert!(self.alerts.set(alerts).is_ok(), "a process sends alerts in one way");
    }

    /// What sends alerts, where this process does.
    pub fn alerts(&self) -> Option<&Alerts> {
        self.alerts.get()
    }

    /// Where this process takes commands of others.
    pub fn control(&self) -> Option<&Path> {
        self.control.get().map(PathBuf::as_path)
    }
}

/// Pools as JSON has them.
#[derive(Serialize)]
pub struct Pools {
    /// One or more.
    pub pools: Vec<PoolReport>,
}

/// Volumes as JSON has them.
#[derive(Serialize)]
pub struct Volumes {
    /// None or more.
    pub volumes: Vec<VolumeReport>,
}

/// What cannot be undone is only done when `--yes` says so.
pub fn confirmed(yes: bool, command: &str, loss: &str) -> Result<()> {
    match yes {
        true => Ok(()),
        false => Err(Failure::usage(format!("{loss}; that cannot be undone"))
            .hint(format!("if that is what you want: stripewise {command} --yes"))),
    }
}
