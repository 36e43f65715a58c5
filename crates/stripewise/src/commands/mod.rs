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

use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;

use serde::Serialize;
use stripewise_control::Control;
use stripewise_control::daemon::caller::Caller;
use stripewise_control::report::{PoolReport, VolumeReport};

use crate::failure::{Failure, Result};
use crate::input::Input;
use crate::printer::Printer;

/// What every command gets: where to print and to read, and, as a [`Control`], all that operations
/// on pools need.
#[derive(Clone)]
pub struct App {
    /// Prints results and messages.
    pub printer: Rc<Printer>,
    /// Where the command gets its input from.
    pub input: Input,
    control: Control,
}

impl App {
    /// For the command that this process was started with.
    pub fn of_this_process(printer: Printer) -> Self {
        let printer = Rc::new(printer);
        Self { control: Control::of_this_process(printer.clone()), printer, input: Input::Process }
    }

    /// For a command of another process, typed in `folder`.
    pub fn for_caller(&self, printer: Printer, caller: Rc<Caller>, folder: PathBuf) -> Self {
        let printer = Rc::new(printer);
        let control = self.control.for_caller(printer.clone(), caller.clone(), folder);
        Self { printer, input: Input::Caller(caller), control }
    }
}

impl Deref for App {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
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
