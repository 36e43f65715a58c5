//! Threads of an executor, each with an executor of its own.
//!
//! Expected faults: no thread, or no io_uring, for one of them (those started before end again); a
//! thread that panics (its message is on standard error; visitors learn that it has ended).

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use stripewise_drive::{Event, Shard};

use crate::RealExecutor;
use crate::process::io_flusher::become_io_flusher;
use crate::tasks::visitor::Visitor;

thread_local! {
    /// End of this thread, if it is one of [`Shards`].
    static END: RefCell<Rc<End>> = RefCell::default();
}

#[derive(Default)]
struct End {
    has_come: Cell<bool>,
    changed: Event,
}

/// Threads that run until this is dropped.
#[derive(Default)]
pub(crate) struct Shards {
    all: Vec<(Visitor, thread::JoinHandle<()>)>,
}

impl Shards {
    /// As [`RealExecutor::start_shards`].
    pub(crate) fn start<T>(
        count: usize,
        enter: impl Fn(&RealExecutor) -> T + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let mut shards = Self::default();
        for number in 1..=count {
            let (started, outcome) = mpsc::channel();
            let enter = enter.clone();
            let run = move || run(&started, enter);
            let thread = thread::Builder::new().name(format!("shard {number}")).spawn(run)?;
            let ended = |_| io::Error::other("its thread has ended");
            shards.all.push((outcome.recv().map_err(ended)??, thread));
        }
        Ok(shards)
    }

    /// Ways to the threads.
    pub(crate) fn visitors(&self) -> Vec<Arc<dyn Shard>> {
        self.all.iter().map(|(visitor, _)| Arc::new(visitor.clone()) as Arc<dyn Shard>).collect()
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for (visitor, _) in &self.all {
            // One that has panicked has ended.
            let _ = visitor.visit(|| {
                let end = END.with_borrow(Clone::clone);
                end.has_come.set(true);
                end.changed.notify_all();
            });
        }
        for (_, thread) in self.all.drain(..) {
            // A panic was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// The work of a thread.
fn run<T>(started: &mpsc::Sender<io::Result<Visitor>>, enter: impl Fn(&RealExecutor) -> T) {
    // A client may be this machine's kernel, whose writeback then waits for this thread.
    become_io_flusher();
    let executor = match RealExecutor::new() {
        Ok(executor) => executor,
        Err(error) => return drop(started.send(Err(error))),
    };
    let kept = enter(&executor);
    // The starting thread waits for it.
    let _ = started.send(Ok(executor.visitor()));
    let end = END.with_borrow(Clone::clone);
    executor.block_on(async {
        while !end.has_come.get() {
            end.changed.wait().await;
        }
    });
    drop(executor);
    drop(kept);
}
