//! What every operation gets, whether it concerns pools or only drives: where to tell, where
//! relative paths begin, and what it runs on.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use stripewise_drive::SemaphorePermit;
use stripewise_engine::pool::JobKind;
use stripewise_runtime::RealExecutor;

use crate::daemon::alerts::Alerts;
use crate::daemon::caller::Caller;
use crate::failure::{Failure, Result};
use crate::messages::report::ActivityReport;
use crate::registry::Registry;

/// Is told what goes on, besides results and failures.
pub trait Notices {
    /// Something that a person may like to know.
    fn note(&self, text: &str);
    /// Something that a person should know.
    fn warning(&self, text: &str);
    /// What is told from now on how jobs stand that are worked on, several times a second.
    fn job_steps(&self) -> Box<dyn FnMut(&JobStep<'_>) + '_>;
}

/// How a job stands that is worked on.
#[derive(Debug)]
pub struct JobStep<'a> {
    /// The job.
    pub kind: JobKind,
    /// Its pool.
    pub pool: &'a str,
    /// How it stands.
    pub job: &'a ActivityReport,
}

/// What an operation is done in. Copies are of the same process.
#[derive(Clone)]
pub struct Environment {
    notices: Rc<dyn Notices>,
    /// Had the command carried out here, unless it is this process's own.
    caller: Option<Rc<Caller>>,
    /// Where relative paths begin.
    folder: PathBuf,
    executor: Rc<OnceCell<Rc<RealExecutor>>>,
    /// Where this process takes commands of others, once it does.
    commands_at: Rc<OnceCell<PathBuf>>,
    alerts: Rc<OnceCell<Alerts>>,
    /// The command's turn among those that change something, while it has it.
    turn: Rc<RefCell<Option<SemaphorePermit>>>,
}

impl Environment {
    /// For what this process does of its own, in its current folder.
    pub fn of_this_process(notices: Rc<dyn Notices>) -> Self {
        Self {
            notices,
            caller: None,
            // Without one, relative paths stay as they are.
            folder: std::env::current_dir().unwrap_or_default(),
            executor: Rc::default(),
            commands_at: Rc::default(),
            alerts: Rc::default(),
            turn: Rc::default(),
        }
    }

    /// For a command of another process, given in `folder`.
    pub fn for_caller(&self, notices: Rc<dyn Notices>, caller: Rc<Caller>, folder: PathBuf) -> Self {
        Self { notices, caller: Some(caller), folder, turn: Rc::default(), ..self.clone() }
    }

    /// Tells what a person may like to know.
    pub fn note(&self, text: impl AsRef<str>) {
        self.notices.note(text.as_ref());
    }

    /// Tells what a person should know.
    pub fn warning(&self, text: impl AsRef<str>) {
        self.notices.warning(text.as_ref());
    }

    /// What is told how jobs stand that are worked on.
    pub fn job_steps(&self) -> Box<dyn FnMut(&JobStep<'_>) + '_> {
        self.notices.job_steps()
    }

    /// The process that had this command carried out here.
    pub fn caller(&self) -> Option<&Rc<Caller>> {
        self.caller.as_ref()
    }

    /// It is this command's turn.
    pub fn take_turn(&self, turn: SemaphorePermit) {
        self.turn.replace(Some(turn));
    }

    /// The command changes nothing any more, and only waits.
    pub fn let_others_go_on(&self) {
        self.turn.take();
    }

    /// The known pools and the state folder; only asked for by commands that need them.
    pub fn registry(&self) -> Result<Registry> {
        Registry::from_environment()
    }

    /// What drives are used on; one for all that this process does.
    pub fn executor(&self) -> Result<Rc<RealExecutor>> {
        if let Some(executor) = self.executor.get() {
            return Ok(executor.clone());
        }
        let executor = Rc::new(new_executor()?);
        Ok(self.executor.get_or_init(|| executor).clone())
    }

    /// Ends when the command is wanted no more: it was interrupted, or its caller has left.
    pub fn interrupted(&self) -> Result<LocalBoxFuture<'static, ()>> {
        if let Some(caller) = self.caller.clone() {
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
    pub(crate) fn take_commands_at(&self, socket: PathBuf) {
        self.commands_at.set(socket).expect("a process takes commands at one place");
    }

    /// Where this process takes commands of others.
    pub(crate) fn commands_at(&self) -> Option<&Path> {
        self.commands_at.get().map(PathBuf::as_path)
    }

    /// From now on alerts are sent so.
    pub fn send_alerts_by(&self, alerts: Alerts) {
        assert!(self.alerts.set(alerts).is_ok(), "a process sends alerts in one way");
    }

    /// What sends alerts, where this process does.
    pub fn alerts(&self) -> Option<&Alerts> {
        self.alerts.get()
    }
}

/// A new executor, with the hint that goes with its absence.
pub fn new_executor() -> Result<RealExecutor> {
    RealExecutor::new().map_err(|error| {
        Failure::because("cannot do input and output", &error).hint(
            "io_uring is needed: Linux 5.11 or newer, not forbidden by sysctl kernel.io_uring_disabled or a container's \
             seccomp profile",
        )
    })
}

#[cfg(test)]
pub(crate) struct Deaf;

#[cfg(test)]
impl Notices for Deaf {
    fn note(&self, _text: &str) {}

    fn warning(&self, _text: &str) {}

    fn job_steps(&self) -> Box<dyn FnMut(&JobStep<'_>) + '_> {
        Box::new(|_| ())
    }
}
