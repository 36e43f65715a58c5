//! Work on a thread of its own, without the interpreter's lock. The calling thread waits, answers
//! signals and reports progress.
//!
//! Expected faults: an interrupt or an exception of the progress callback. The call returns at once
//! with it; the work stops at its next step, and the call does not wait for that.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::failure::{Failure, Result};

/// Time between two looks for signals; an interrupt ends a call within 100 ms.
const TURN: Duration = Duration::from_millis(20);

/// State of a call's work, shared by its threads.
#[derive(Default)]
pub(crate) struct Progress {
    is_stopped: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

/// Payload that unwinds work that has no other way to stop.
struct Stopped;

impl Progress {
    /// Notes work done, of a total that may grow. False once the caller has gone.
    pub(crate) fn note(&self, done: u64, total: u64) -> bool {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        !self.is_stopped.load(Ordering::Relaxed)
    }

    /// Notes one more piece of work. False once the caller has gone.
    pub(crate) fn step(&self, total: u64) -> bool {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        !self.is_stopped.load(Ordering::Relaxed)
    }

    /// As [`Progress::note`], for work that has no way to stop: unwinds it instead.
    pub(crate) fn note_or_unwind(&self, done: u64, total: u64) {
        if !self.note(done, total) {
            resume_unwind(Box::new(Stopped));
        }
    }

    fn report(&self, py: Python<'_>, callback: Option<&Py<PyAny>>) -> PyResult<()> {
        let Some(callback) = callback else { return Ok(()) };
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if total > 0 {
            callback.call1(py, (done, total.max(done)))?;
        }
        Ok(())
    }
}

/// Does the work; `callback(done, total)` is called now and then, and at the end.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    callback: Option<Py<PyAny>>,
    work: impl FnOnce(&Progress) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let progress = Arc::new(Progress::default());
    let (sender, receiver) = channel();
    let theirs = Arc::clone(&progress);
    let started = thread::Builder::new().name("stripewise".to_owned()).spawn(move || {
        // Nothing of the work is used after a panic.
        let answer = catch_unwind(AssertUnwindSafe(|| work(&theirs)));
        // A caller that was interrupted no longer listens.
        let _ = sender.send(answer);
    });
    started.map_err(|error| Failure::other(format!("cannot start a thread: {error}"), ""))?;
    let receiver = Mutex::new(receiver);
    loop {
        let answer = py.detach(|| receiver.lock().expect("one user").recv_timeout(TURN));
        let reported = match answer {
            Ok(Ok(answer)) => {
                progress.report(py, callback.as_ref())?;
                return answer.map_err(PyErr::from);
            }
            Ok(Err(panic)) => resume_unwind(panic),
            Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends before it ends"),
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals().and_then(|()| progress.report(py, callback.as_ref()))
            }
        };
        if let Err(error) = reported {
            progress.is_stopped.store(true, Ordering::Relaxed);
            return Err(error);
        }
    }
}
