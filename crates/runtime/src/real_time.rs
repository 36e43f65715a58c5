//! The real executor: the same tasks and timers as the virtual one, on the monotonic clock, with
//! one io_uring. One turn is: run ready tasks, collect completions, fire timers, then one system
//! call that submits new requests and, if nothing is ready, sleeps until a completion, a timer, or
//! a wake from another thread.
//!
//! Completions come before timers: when a timer is due, outstanding completions are collected, and
//! their waiters run first. So a time limit ends requests that were not answered in time, not those
//! whose answer this process was too late to read.
//!
//! Expected faults: tasks that never pause (requests are submitted and completions collected every
//! few hundred polls all the same), a process that stands still for long, wakes from other threads
//! at any moment, signals, and an end with requests in the kernel (waited for).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use stripewise_drive::{Clock, Context, Event, TimerId};

use crate::event_file::make_event_file;
use crate::files::file_drive::FileDrive;
use crate::files::open::{DriveOpener, OpenError, OpenOptions};
use crate::net::Network;
use crate::process::signals;
use crate::process::usage::clock_ns;
use crate::ring::{Ring, Watch};
use crate::shards::Shards;
use crate::tasks::visitor::Visitor;
use crate::tasks::waker::Registration;
use crate::tasks::{Core, Next};

/// Maximum polls before the next check of the ring, the timers and the mailbox.
const POLLS_PER_TURN: usize = 256;

struct RealClock {
    core: Rc<Core>,
}

impl Clock for RealClock {
    fn now_ns(&self) -> u64 {
        clock_ns(libc::CLOCK_MONOTONIC)
    }

    fn boot_ns(&self) -> u64 {
        clock_ns(libc::CLOCK_BOOTTIME)
    }

    fn wake_at(&self, deadline_ns: u64, waker: Waker) -> TimerId {
        self.core.wake_at(deadline_ns, waker)
    }

    fn cancel(&self, timer: TimerId) {
        self.core.cancel(timer);
    }
}

/// A single-threaded executor in real time, with file and block-device drives. It stays on the
/// thread that made it. Dropping it drops its tasks, then waits for requests in the kernel; its
/// drives fail with `Gone` afterwards.
pub struct RealExecutor {
    core: Rc<Core>,
    clock: Rc<RealClock>,
    ring: Rc<Ring>,
    interrupt: Rc<Watch>,
    interrupt_watched: Cell<bool>,
    /// Timers are due, and the last turn let completions go first.
    timers_put_off: Cell<bool>,
    shards: RefCell<Option<Shards>>,
}

impl RealExecutor {
    /// Sets up the ring. Fails if the system has no io_uring (Linux 5.11 or newer) or forbids it;
    /// the error says which.
    pub fn new() -> io::Result<Self> {
        let ring = Ring::new()?;
        let doorbell = make_event_file()?;
        // By default timers may come 50 us late, a considerable part of a drive's response time.
        // SAFETY: sets a property of this thread; no memory is involved. Without it timers are only
        // less exact.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
        let core = Core::new(Registration::new(Some(doorbell)), None);
        let interrupt = Rc::new(Watch { ready: Cell::new(false), changed: Event::new() });
        let clock = Rc::new(RealClock { core: core.clone() });
        Ok(Self {
            core,
            clock,
            ring,
            interrupt,
            interrupt_watched: Cell::new(false),
            timers_put_off: Cell::new(false),
            shards: RefCell::default(),
        })
    }

    /// The clock (CLOCK_MONOTONIC, so equal on every executor of the machine) and the spawner.
    pub fn context(&self) -> Context {
        Context::new(self.clock.clone(), self.core.clone())
    }

    /// Nanoseconds on the monotonic clock.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Number of running tasks.
    pub fn tasks_alive(&self) -> usize {
        self.core.tasks_alive()
    }

    /// Opens the file or block device at `path`. Blocks briefly.
    pub fn open_drive(&self, path: &Path, options: &OpenOptions) -> Result<Rc<FileDrive>, OpenError> {
        self.opener().open(path, options)
    }

    /// An opener of drives, for use in tasks.
    pub fn opener(&self) -> DriveOpener {
        DriveOpener { ring: self.ring.clone() }
    }

    /// A factory of sockets, for use in tasks.
    pub fn network(&self) -> Network {
        Network { ring: self.ring.clone() }
    }

    /// A way for other threads to look at what belongs to this one. From now on this thread visits
    /// no other one until the executor is dropped. Closures run while the executor does.
    pub fn visitor(&self) -> Visitor {
        Visitor::of(self.core.mailbox())
    }

    /// Starts threads that may have work of this one ([`Context::shards`]), each with an executor
    /// of its own. They end with this executor. `enter` runs on each of them first; its result is
    /// dropped when the thread ends.
    ///
    /// # Errors
    /// The system's error if a thread cannot be started, or has no io_uring; then there are none.
    ///
    /// # Panics
    /// If there are such threads already.
    pub fn start_shards<T>(
        &self,
        count: usize,
        enter: impl Fn(&Self) -> T + Clone + Send + 'static,
    ) -> io::Result<()> {
        assert!(self.shards.borrow().is_none(), "the threads of an executor are started once");
        let shards = Shards::start(count, enter)?;
        self.core.set_shards(shards.visitors());
        self.shards.replace(Some(shards));
        Ok(())
    }

    /// Ends when the process gets SIGINT, SIGTERM or SIGHUP. From the first call on, the first of
    /// them no longer kills the process; the second does.
    pub fn interrupted(&self) -> io::Result<impl Future<Output = ()> + use<>> {
        let descriptor = signals::descriptor()?;
        if !self.interrupt_watched.replace(true) {
            self.ring.watch_readable(descriptor, self.interrupt.clone());
        }
        let watch = self.interrupt.clone();
        Ok(async move {
            while !watch.ready.get() {
                watch.changed.wait().await;
            }
        })
    }

    /// Runs `future`, and all tasks beside it, until it ends. Unfinished tasks stay, and continue
    /// in the next `block_on`.
    ///
    /// # Panics
    /// When called from within one of its own tasks.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let core = &*self.core;
        let _running = (core.start(), self.ring.run());
        let mut future = pin!(future);
        let waker = core.main_waker();
        let visits = &core.mailbox().visits;
        loop {
            for _ in 0..POLLS_PER_TURN {
                if visits.are_pending() {
                    visits.run_all();
                }
                match core.run_next() {
                    Next::Task => {}
                    Next::Main => {
                        if let Poll::Ready(result) =
                            future.as_mut().poll(&mut TaskContext::from_waker(&waker))
                        {
                            // Submits new requests even if no task waits for them.
                            self.ring.submit();
                            return result;
                        }
                    }
                    Next::Idle => break,
                }
            }
            self.turn();
        }
    }

    /// Collects events from outside; sleeps if there are none and no task is ready.
    fn turn(&self) {
        let core = &*self.core;
        self.ring.collect();
        core.take_mail();
        let mut wait = self.until_next_timer();
        if wait == Some(Duration::ZERO) {
            // Only once, so that a flood of completions does not keep timers from firing.
            if !self.timers_put_off.replace(true) {
                self.ring.submit();
                self.ring.collect();
                core.take_mail();
                if core.has_ready() {
                    return;
                }
            }
            core.fire_due(self.now_ns());
            wait = self.until_next_timer();
        }
        self.timers_put_off.set(false);
        if core.has_ready() {
            self.ring.submit();
            self.ring.collect();
            return;
        }
        let mailbox = core.mailbox();
        if !mailbox.try_sleep() {
            return;
        }
        if let Some(doorbell) = mailbox.doorbell() {
            self.ring.arm_doorbell(doorbell);
        }
        self.ring.submit_and_wait(wait);
        mailbox.awake();
        // The next turn fires due timers, after the waiters of completions have run.
        self.ring.collect();
        core.take_mail();
    }

    /// Time until the next timer, zero if one is due; `None` if none is set.
    fn until_next_timer(&self) -> Option<Duration> {
        let deadline_ns = self.core.next_deadline_ns()?;
        Some(Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns())))
    }
}

impl Drop for RealExecutor {
    fn drop(&mut self) {
        self.core.close();
        self.core.set_shards(Vec::new());
        drop(self.shards.take());
        self.ring.close();
    }
}
