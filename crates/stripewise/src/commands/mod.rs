//! One file per command: its options as clap reads them, and the request that they make, or, for
//! what no library does, `run`. The words for what comes of requests are in `answer/`.

pub(crate) mod advise;
pub(crate) mod alert_test;
pub(crate) mod drive_make;
pub(crate) mod drive_measure;
pub(crate) mod drive_show;
pub(crate) mod evaluate;
pub(crate) mod lab;
pub(crate) mod model;
pub(crate) mod mount;
pub(crate) mod pool_add;
pub(crate) mod pool_advise;
pub(crate) mod pool_clear;
pub(crate) mod pool_create;
pub(crate) mod pool_destroy;
pub(crate) mod pool_events;
pub(crate) mod pool_export;
pub(crate) mod pool_import;
pub(crate) mod pool_iostat;
pub(crate) mod pool_list;
pub(crate) mod pool_offline;
pub(crate) mod pool_online;
pub(crate) mod pool_rebalance;
pub(crate) mod pool_remove;
pub(crate) mod pool_rename;
pub(crate) mod pool_replace;
pub(crate) mod pool_retire;
pub(crate) mod pool_scrub;
pub(crate) mod pool_set;
pub(crate) mod pool_status;
pub(crate) mod pool_wait;
pub(crate) mod serve;
pub(crate) mod simulate_torture;
pub(crate) mod volume_convert;
pub(crate) mod volume_create;
pub(crate) mod volume_delete;
pub(crate) mod volume_list;
pub(crate) mod volume_pin;
pub(crate) mod volume_read;
pub(crate) mod volume_resize;
pub(crate) mod volume_show;
pub(crate) mod volume_write;

use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;

use stripewise_control::Control;
use stripewise_control::daemon::caller::Caller;

use crate::input::Input;
use crate::printer::Printer;

/// What every command gets: where to print and to read, and, as a [`Control`], all that operations
/// on pools need.
#[derive(Clone)]
pub(crate) struct App {
    /// Prints results and messages.
    pub printer: Rc<Printer>,
    /// Where the command gets its input from.
    pub input: Input,
    control: Control,
}

impl App {
    /// For the command that this process was started with.
    pub(crate) fn of_this_process(printer: Printer) -> Self {
        let printer = Rc::new(printer);
        Self { control: Control::of_this_process(printer.clone()), printer, input: Input::Process }
    }

    /// For a command of another process, typed in `folder`.
    pub(crate) fn for_caller(&self, printer: Printer, caller: Rc<Caller>, folder: PathBuf) -> Self {
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
