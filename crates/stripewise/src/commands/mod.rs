//! One file per command: its options for clap, and the request that they make, or `run` for
//! commands outside the library. The output of requests is in `answer/`.

pub(crate) mod advise;
pub(crate) mod alert_test;
pub(crate) mod completions;
pub(crate) mod drive;
pub(crate) mod evaluate;
pub(crate) mod lab;
pub(crate) mod list_options;
pub(crate) mod man;
pub(crate) mod model;
pub(crate) mod mount;
pub(crate) mod pool;
pub(crate) mod serve;
pub(crate) mod simulate_torture;
pub(crate) mod snapshot;
pub(crate) mod umount;
pub(crate) mod volume;

use std::ops::Deref;
use std::path::PathBuf;
use std::rc::Rc;

use stripewise_control::Control;
use stripewise_control::daemon::caller::Caller;
use stripewise_control::roles::Role;

use crate::input::Input;
use crate::printer::Printer;

/// The environment of every command: printer, input, and, as a [`Control`], everything that
/// operations on pools need.
#[derive(Clone)]
pub(crate) struct App {
    /// Prints results and messages.
    pub printer: Rc<Printer>,
    /// The command's input.
    pub input: Input,
    control: Control,
}

impl App {
    /// The environment of this process's own command.
    pub(crate) fn of_this_process(printer: Printer) -> Self {
        let printer = Rc::new(printer);
        Self { control: Control::of_this_process(printer.clone()), printer, input: Input::Process }
    }

    /// The environment of a command from another process with this role, typed in `folder`.
    pub(crate) fn for_caller(
        &self,
        printer: Printer,
        caller: Rc<Caller>,
        folder: PathBuf,
        role: Role,
    ) -> Self {
        let printer = Rc::new(printer);
        let control = self.control.for_caller(printer.clone(), caller.clone(), folder, role);
        Self { printer, input: Input::Caller(caller), control }
    }
}

impl Deref for App {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}
