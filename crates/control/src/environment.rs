//! The environment of every operation, on pools or on drives alone: notices, the folder for
//! relative paths, and the executor.

use std::cell::{OnceCell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use stripewise_pool::JobKind;
use stripewise_runtime::{OpenError, RealExecutor};

use crate::daemon::alerts::Alerts;
use crate::daemon::caller::{Caller, Party};
use crate::daemon::turns::Turn;
use crate::drives::hardware::samples::Samples;
use crate::drives::inspections::{Inspection, Inspections};
use crate::drives::looks::Looks;
use crate::drives::own::Own;
use crate::failure::{Failure, Result};
use crate::messages::report::ActivityReport;
use crate::messages::roles::Role;
use crate::registry::Registry;

/// Receives notes, warnings and progress; results and failures are returned.
pub trait Notices {
    /// Something that the user may like to know.
    fn note(&self, text: &str);
    /// Something that the user should know.
    fn warning(&self, text: &str);
    /// A receiver for the progress of jobs, several times a second.
    fn job_steps(&self) -> Box<dyn FnMut(&JobStep<'_>) + '_>;
}

/// Progress of a running job.
#[derive(Debug)]
pub struct JobStep<'a> {
    /// The job.
    pub kind: JobKind,
    /// Its pool.
    pub pool: &'a str,
    /// The progress.
    pub job: &'a ActivityReport,
}

/// The environment of an operation. Copies belong to the same process.
#[derive(Clone)]
pub struct Environment {
    notices: Rc<dyn Notices>,
    /// The caller, if another process sent the command.
    caller: Option<Rc<Caller>>,
    /// Base of relative paths.
    folder: PathBuf,
    executor: Rc<OnceCell<Rc<RealExecutor>>>,
    /// Path of the socket on which this process takes commands, once it does.
    commands_at: Rc<OnceCell<PathBuf>>,
    alerts: Rc<OnceCell<Alerts>>,
    /// The command's turn among commands that change something, while it has it.
    turn: Rc<RefCell<Option<Turn>>>,
    /// The caller's role.
    role: Role,
    /// Folders whose files and devices a caller below `admin` may make drives of.
    drive_folders: Rc<OnceCell<Vec<PathBuf>>>,
    inspections: Rc<Inspections>,
    looks: Rc<Looks>,
    own: Rc<Own>,
    hardware: Rc<Samples>,
    /// Limit of drives' temperature in degrees Celsius, if one is set.
    max_temperature_c: Rc<OnceCell<i64>>,
}

impl Environment {
    /// The environment of this process's own work, in its current folder.
    pub fn of_this_process(notices: Rc<dyn Notices>) -> Self {
        Self {
            notices,
            caller: None,
            // On failure, relative paths stay as they are.
            folder: std::env::current_dir().unwrap_or_default(),
            executor: Rc::default(),
            commands_at: Rc::default(),
            alerts: Rc::default(),
            turn: Rc::default(),
            role: Role::Admin,
            drive_folders: Rc::default(),
            inspections: Rc::default(),
            looks: Rc::default(),
            own: Rc::default(),
            hardware: Rc::default(),
            max_temperature_c: Rc::default(),
        }
    }

    /// The environment of a command from another process with this role, given in `folder`.
    pub fn for_caller(
        &self,
        notices: Rc<dyn Notices>,
        caller: Rc<Caller>,
        folder: PathBuf,
        role: Role,
    ) -> Self {
        Self { notices, caller: Some(caller), folder, role, turn: Rc::default(), ..self.clone() }
    }

    /// Passes on something that the user may like to know.
    pub fn note(&self, text: impl AsRef<str>) {
        self.notices.note(text.as_ref());
    }

    /// Passes on something that the user should know.
    pub fn warning(&self, text: impl AsRef<str>) {
        self.notices.warning(text.as_ref());
    }

    /// A receiver for the progress of jobs.
    pub fn job_steps(&self) -> Box<dyn FnMut(&JobStep<'_>) + '_> {
        self.notices.job_steps()
    }

    /// The process that sent this command, if another one did.
    pub fn caller(&self) -> Option<&Rc<Caller>> {
        self.caller.as_ref()
    }

    /// The caller's role.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Allows callers below `admin` to make drives of the contents of these folders.
    pub fn allow_drive_folders(&self, folders: Vec<PathBuf>) {
        self.drive_folders.set(folders).expect("the folders are set once");
    }

    /// Folders whose files and devices a caller below `admin` may make drives of.
    pub(crate) fn drive_folders(&self) -> &[PathBuf] {
        self.drive_folders.get().map_or(&[], Vec::as_slice)
    }

    /// Samples of the hardware of drives.
    pub(crate) fn hardware(&self) -> &Samples {
        &self.hardware
    }

    /// Sets the limit of drives' temperature in degrees Celsius, over those of the drives.
    pub fn limit_temperature(&self, degrees: i64) {
        self.max_temperature_c.set(degrees).expect("the limit is set once");
    }

    /// The limit of drives' temperature in degrees Celsius, if one is set.
    pub(crate) fn max_temperature_c(&self) -> Option<i64> {
        self.max_temperature_c.get().copied()
    }

    /// A permit to inspect drives' contents.
    pub(crate) async fn place_to_look(&self) -> Inspection {
        let party = self.caller.as_ref().map_or_else(Party::default, |caller| caller.party().clone());
        self.inspections.place(&party).await
    }

    /// The result of `work`, calls of the system that concern `path`, on another thread.
    ///
    /// # Errors
    /// `TimedOut` if its file system does not answer; the error of starting a thread.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let executor = self.executor().map_err(|failure| io::Error::other(failure.message))?;
        let party = self.caller.as_ref().map(|caller| caller.party());
        self.looks.at(&executor.context(), party, path, work).await
    }

    /// Listeners and mounts of this process.
    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// The looks of this process.
    pub(crate) fn looks(&self) -> &Rc<Looks> {
        &self.looks
    }

    /// The result of `work` on a drive's path, as [`Self::look`].
    ///
    /// # Errors
    /// Those of `work` and of [`Self::look`].
    pub(crate) async fn look_at_drive<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&Path) -> std::result::Result<T, OpenError> + Send + 'static,
    ) -> std::result::Result<T, OpenError> {
        let of_thread = path.to_owned();
        self.look(path, move || work(&of_thread)).await.unwrap_or_else(|source| {
            Err(OpenError::Io { path: path.to_owned(), action: "looking at it", source })
        })
    }

    /// Stores the command's turn.
    pub fn take_turn(&self, turn: Turn) {
        self.turn.replace(Some(turn));
    }

    /// Runs `work`, which waits for another machine or for long, without holding the turn.
    pub(crate) async fn without_turn<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        // Work that finishes at once keeps the turn.
        if let Some(done) = work.as_mut().now_or_never() {
            return done;
        }
        let Some(turn) = self.turn.take() else { return work.await };
        let line = turn.let_go();
        let done = work.await;
        self.turn.replace(Some(line.take_again().await));
        done
    }

    /// Gives up the turn: the command changes nothing any more, and only waits.
    pub fn let_others_go_on(&self) {
        self.turn.take();
    }

    /// The known pools and the state folder; opened only by commands that need them.
    pub fn registry(&self) -> Result<Registry> {
        Registry::from_environment()
    }

    /// The executor for all drives of this process.
    pub fn executor(&self) -> Result<Rc<RealExecutor>> {
        if let Some(executor) = self.executor.get() {
            return Ok(executor.clone());
        }
        let executor = Rc::new(new_executor()?);
        Ok(self.executor.get_or_init(|| executor).clone())
    }

    /// Ends when the command is no longer wanted: it was interrupted, or its caller has left.
    pub fn interrupted(&self) -> Result<LocalBoxFuture<'static, ()>> {
        if let Some(caller) = self.caller.clone() {
            return Ok(Box::pin(async move { caller.until_left().await }));
        }
        let interrupted = self.executor()?.interrupted();
        Ok(Box::pin(interrupted.map_err(|error| Failure::because("cannot watch for interrupts", &error))?))
    }

    /// A path, relative to the caller's folder.
    pub fn absolute(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// Publishes `socket` as the place that takes commands for this process's pools.
    pub(crate) fn take_commands_at(&self, socket: PathBuf) {
        self.commands_at.set(socket).expect("a process takes commands at one place");
    }

    /// Path of the socket on which this process takes commands.
    pub(crate) fn commands_at(&self) -> Option<&Path> {
        self.commands_at.get().map(PathBuf::as_path)
    }

    /// Sets the sender of alerts.
    pub fn send_alerts_by(&self, alerts: Alerts) {
        assert!(self.alerts.set(alerts).is_ok(), "a process sends alerts in one way");
    }

    /// The sender of alerts, if this process has one.
    pub fn alerts(&self) -> Option<&Alerts> {
        self.alerts.get()
    }
}

/// A new executor; on failure, with a hint.
pub fn new_executor() -> Result<RealExecutor> {
    RealExecutor::new().map_err(|error| {
        Failure::because("cannot start I/O", &error).hint(
            "io_uring is needed: Linux 5.11 or newer, not forbidden by sysctl kernel.io_uring_disabled or a container's \
             seccomp profile",
        )
    })
}

#[cfg(test)]
pub(crate) struct NoNotices;

#[cfg(test)]
impl Notices for NoNotices {
    fn note(&self, _text: &str) {}

    fn warning(&self, _text: &str) {}

    fn job_steps(&self) -> Box<dyn FnMut(&JobStep<'_>) + '_> {
        Box::new(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use stripewise_runtime::VirtualExecutor;

    use super::*;
    use crate::daemon::turns::Turns;

    #[test]
    fn silent_servers_hold_up_no_other_command() {
        const PATIENCE_NS: u64 = 25_000_000_000;
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let turns = Rc::new(Turns::default());
            let connecting = (0..40).map(|_| {
                let (turns, of_task) = (turns.clone(), context.clone());
                context.spawn(async move {
                    let environment = Environment::of_this_process(Rc::new(NoNotices));
                    environment.take_turn(
                        turns.take(&Caller::new(None), &["tank".to_owned()]).await.expect("a turn"),
                    );
                    let connected = environment.without_turn(of_task.sleep_ns(PATIENCE_NS));
                    connected.await;
                    assert!(turns.is_any_taken(), "it has its turn again");
                })
            });
            let connecting: Vec<_> = connecting.collect();
            let begin = context.now_ns();
            let changing = turns.take(&Caller::new(None), &["tank".to_owned()]).await.expect("a turn");
            assert!(context.now_ns() - begin < 1_000_000_000, "it waited for the servers");
            drop(changing);
            for command in connecting {
                command.await;
            }
            assert!(context.now_ns() - begin < 2 * PATIENCE_NS, "all of them connect at the same time");
            assert!(!turns.is_any_taken());
        });
    }

    #[test]
    fn work_done_at_once_keeps_its_turn() {
        let executor = VirtualExecutor::new();
        executor.block_on(async {
            let turns = Rc::new(Turns::default());
            let environment = Environment::of_this_process(Rc::new(NoNotices));
            environment
                .take_turn(turns.take(&Caller::new(None), &["tank".to_owned()]).await.expect("a turn"));
            environment.without_turn(async { assert!(turns.is_any_taken()) }).await;
            assert!(turns.is_any_taken());
            environment.let_others_go_on();
            environment.without_turn(async {}).await;
            assert!(!turns.is_any_taken(), "a turn that was given up stays so");
        });
    }
}
