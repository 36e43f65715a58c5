//! The virtual executor: the same tasks and timers as the real one, but its clock stands still
//! while anything can run and jumps to the next timer when nothing can. Hours of modelled work take
//! as long as computing them takes.
//!
//! Runs repeat exactly: tasks run first in, first out (or in an order drawn from a seed), timers of
//! equal deadline in the order they were set. Waiting for an event that can never come is a bug, so
//! it panics instead of hanging.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use stripewise_drive::{Clock, Context, TimerId};

use crate::process::usage::thread_cpu_ns;
use crate::tasks::waker::Registration;
use crate::tasks::{Core, Next};

/// Polls in a turn: reading the processor time costs as much as a short poll.
const TURN_POLLS: u32 = 16;

struct VirtualClock {
    core: Rc<Core>,
    now_ns: Cell<u64>,
    slept_ns: Cell<u64>,
}

impl Clock for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn boot_ns(&self) -> u64 {
        self.now_ns.get() + self.slept_ns.get()
    }

    fn wake_at(&self, deadline_ns: u64, waker: Waker) -> TimerId {
        self.core.wake_at(deadline_ns, waker)
    }

    fn cancel(&self, timer: TimerId) {
        self.core.cancel(timer);
    }
}

/// A deterministic single-threaded executor in virtual time. Dropping it drops all its tasks.
pub struct VirtualExecutor {
    clock: Rc<VirtualClock>,
    /// Polls of tasks since the clock moved.
    polls: Cell<u64>,
    /// Their limit.
    most_polls: Cell<u64>,
    /// Limit on the processor time of a turn, ns.
    most_cpu_ns: Cell<u64>,
    /// Polls in the present turn, and the thread's processor time at its begin, ns.
    turn: Cell<(u32, u64)>,
}

impl Default for VirtualExecutor {
    fn default() -> Self {
        Self::new()
    }
}

impl VirtualExecutor {
    /// Starts at 0 ns; ready tasks run first in, first out.
    pub fn new() -> Self {
        Self::with_order(None)
    }

    /// Starts at 0 ns; which of several ready tasks runs next is drawn from `seed`, to try other
    /// interleavings. The same seed gives the same run.
    pub fn shuffled(seed: u64) -> Self {
        Self::with_order(Some(seed))
    }

    fn with_order(shuffle_seed: Option<u64>) -> Self {
        let core = Core::new(Registration::new(None), shuffle_seed);
        let clock = Rc::new(VirtualClock { core, now_ns: Cell::new(0), slept_ns: Cell::new(0) });
        Self {
            clock,
            polls: Cell::new(0),
            most_polls: Cell::new(u64::MAX),
            most_cpu_ns: Cell::new(u64::MAX),
            turn: Cell::default(),
        }
    }

    /// The clock and the spawner, for everything that runs here.
    pub fn context(&self) -> Context {
        Context::new(self.clock.clone(), self.clock.core.clone())
    }

    /// Virtual time passed, nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns.get()
    }

    /// Puts the machine to sleep for this time: only the clock that includes sleep advances.
    pub fn suspend_ns(&self, duration_ns: u64) {
        self.clock.slept_ns.set(self.clock.slept_ns.get() + duration_ns);
    }

    /// Limits the polls of tasks at one instant of the clock. More of them panic: where every drive
    /// takes time, work that goes on at one instant is unbounded, or a loop that waits for nothing.
    pub fn limit_polls(&self, most_polls: u64) {
        self.most_polls.set(most_polls);
    }

    /// Limits the processor time of a turn, which is 16 polls at most. A longer one panics: on the
    /// real executor all clients would wait for it.
    pub fn limit_turn_ns(&self, most_cpu_ns: u64) {
        self.most_cpu_ns.set(most_cpu_ns);
    }

    /// Number of running tasks.
    pub fn tasks_alive(&self) -> usize {
        self.clock.core.tasks_alive()
    }

    /// Runs `future`, and all tasks beside it, until it ends. Unfinished tasks stay, and continue
    /// in the next `block_on`.
    ///
    /// # Panics
    /// When nothing is ready and no timer is set while `future` is pending: a deadlock. Also when
    /// called from within one of its own tasks, and beyond [`Self::limit_polls`] and
    /// [`Self::limit_turn_ns`].
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let core = &*self.clock.core;
        let _running = core.start();
        let mut future = pin!(future);
        let waker = core.main_waker();
        self.begin_turn();
        loop {
            match core.run_next() {
                Next::Task => self.count_poll(),
                Next::Main => {
                    if let Poll::Ready(result) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
                        self.end_turn();
                        return result;
                    }
                    self.count_in_turn();
                }
                Next::Idle => self.advance(),
            }
        }
    }

    fn begin_turn(&self) {
        if self.most_cpu_ns.get() < u64::MAX {
            self.turn.set((0, thread_cpu_ns()));
        }
    }

    fn count_in_turn(&self) {
        let (polls, since_ns) = self.turn.get();
        self.turn.set((polls + 1, since_ns));
        if polls + 1 >= TURN_POLLS {
            self.end_turn();
            self.begin_turn();
        }
    }

    fn end_turn(&self) {
        if self.most_cpu_ns.get() == u64::MAX {
            return;
        }
        let (polls, since_ns) = self.turn.get();
        let took_ns = thread_cpu_ns() - since_ns;
        assert!(
            took_ns <= self.most_cpu_ns.get(),
            "a turn at {} ns took {} ms of the processor, in {polls} polls",
            self.now_ns(),
            took_ns / 1_000_000
        );
    }

    fn count_poll(&self) {
        self.count_in_turn();
        self.polls.set(self.polls.get() + 1);
        assert!(
            self.polls.get() <= self.most_polls.get(),
            "no end in virtual time at {} ns: {} polls of tasks without the clock moving",
            self.now_ns(),
            self.polls.get()
        );
    }

    /// Nothing is ready: moves the clock to the next timer.
    fn advance(&self) {
        let core = &*self.clock.core;
        core.take_mail();
        if core.has_ready() {
            return;
        }
        let now_ns = self.now_ns();
        let Some(deadline_ns) = core.next_deadline_ns() else {
            panic!(
                "deadlock in virtual time at {now_ns} ns: nothing is ready and no timer is set, while the main \
                 future and {} tasks wait",
                core.tasks_alive()
            );
        };
        if deadline_ns > now_ns {
            self.polls.set(0);
        }
        let now_ns = now_ns.max(deadline_ns);
        self.clock.now_ns.set(now_ns);
        core.fire_due(now_ns);
    }
}

impl Drop for VirtualExecutor {
    fn drop(&mut self) {
        self.clock.core.close();
    }
}
