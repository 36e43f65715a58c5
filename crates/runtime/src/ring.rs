//! One io_uring and the table of the requests in flight on it. Requests queue up while tasks run
//! and go to the kernel in one system call per turn of the executor; their memory stays in the
//! table until the kernel has answered.
//!
//! Expected faults: a full submission queue (submitted at once, then retried), more requests than
//! the completion queue holds (kept in order in a backlog, which drives' queue depths bound),
//! interrupted and temporarily refused system calls (repeated), and an end with requests still in
//! the kernel: they are waited for, then cancelled, and if the kernel never answers, their memory
//! is leaked rather than freed under a transfer.

pub(crate) mod errno;
pub(crate) mod message_op;
pub(crate) mod piece;
pub(crate) mod socket_op;
pub(crate) mod uring;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use stripewise_drive::Event;

use crate::ring::message_op::MessageOp;
use crate::ring::socket_op::{SocketOp, SocketProgress};
use crate::ring::uring::{DriveOp, Progress};

/// Entries of the submission queue.
const SUBMISSION_ENTRIES: u32 = 256;
/// Requests submitted at once. The kernel holds a batch back until it has prepared all of it, and
/// the drive idles until then: on a virtual disk, 4 KiB random reads at depth 32 reached 0.78 of
/// fio's rate (which submits one by one) in whole turns, 0.92 in batches of 16, 1.00 in batches
/// of 8 and of 4 (medians of 25 pairs).
const BATCH: usize = 8;
/// Entries of the completion queue; never more are in flight, so that it cannot overflow.
const COMPLETION_ENTRIES: u32 = 4096;
/// Completions kept free for the executor's own doorbell, watches and cancellations.
const RESERVED_COMPLETIONS: usize = 64;
/// Marks completions that no task waits for.
const IGNORED: u64 = u64::MAX;
/// Time that closing waits for requests in the kernel before it cancels them, and before it
/// abandons them.
const PATIENCE: Duration = Duration::from_secs(2);
const GIVE_UP: Duration = Duration::from_secs(30);

/// A watch on a file descriptor; set once it has become readable.
pub(crate) struct Watch {
    pub(crate) ready: Cell<bool>,
    pub(crate) changed: Event,
}

/// The work of one slot.
enum Work {
    Drive(DriveOp),
    Socket(SocketOp),
    Message(MessageOp),
    /// The read of the doorbell, with which other threads wake the executor.
    Doorbell,
    Watch(Rc<Watch>, RawFd),
}

#[derive(Default)]
struct OpSlot {
    work: Option<Work>,
    /// Memory list of a vectored transfer, at a fixed address while in the kernel; its capacity is
    /// kept for the slot's next use.
    iovecs: Vec<libc::iovec>,
    /// The header of a sent message, boxed for the same reason.
    header: Option<Box<libc::msghdr>>,
}

#[derive(Default)]
struct OpTable {
    slots: Vec<OpSlot>,
    free: Vec<u32>,
    /// Destination of the doorbell's count. Never read here.
    doorbell_count: Box<Cell<u64>>,
}

impl OpTable {
    fn insert(&mut self, work: Work) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(OpSlot::default());
            (self.slots.len() - 1) as u32
        });
        self.slots[index as usize].work = Some(work);
        index
    }

    fn remove(&mut self, index: u32) -> Work {
        self.free.push(index);
        self.slots[index as usize].work.take().expect("an answer belongs to a request")
    }

    fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

thread_local! {
    /// The ring of the executor that runs on this thread.
    static RUNNING: RefCell<Option<Rc<Ring>>> = const { RefCell::new(None) };
}

/// Resets the ring of the executor that runs on this thread when dropped.
pub(crate) struct RunningRing {
    before: Option<Rc<Ring>>,
}

impl Drop for RunningRing {
    fn drop(&mut self) {
        let ended = RUNNING.replace(self.before.take());
        drop(ended);
    }
}

/// The executor's io_uring.
pub(crate) struct Ring {
    uring: RefCell<Option<IoUring>>,
    table: RefCell<OpTable>,
    /// Slots not submitted yet, oldest first.
    backlog: RefCell<VecDeque<u32>>,
    /// Number submitted and not answered.
    in_flight: Cell<usize>,
    limit: usize,
    answers: RefCell<Vec<(u64, i32)>>,
    /// Number of collections; all answers of one collection have the same.
    turn: Cell<u64>,
    doorbell_armed: Cell<bool>,
    /// Scratch list for the pieces of a transfer that is done at once.
    pieces: RefCell<Vec<libc::iovec>>,
}

impl Ring {
    /// The ring of the executor that runs on this thread.
    ///
    /// # Panics
    /// If none does.
    pub(crate) fn running() -> Rc<Self> {
        RUNNING.with_borrow(Clone::clone).expect("called within an executor's tasks")
    }

    /// Makes this the ring of the executor that runs on this thread.
    pub(crate) fn run(self: &Rc<Self>) -> RunningRing {
        RunningRing { before: RUNNING.replace(Some(self.clone())) }
    }

    /// Sets up an io_uring, with the newest helpful features that the kernel has.
    pub(crate) fn new() -> io::Result<Rc<Self>> {
        let uring = Self::build().map_err(|error| {
            let hint = match error.raw_os_error() {
                Some(libc::ENOSYS) => "this kernel has no io_uring, or a container's filter hides it",
                Some(libc::EPERM | libc::EACCES) => {
                    "io_uring is switched off: see sysctl kernel.io_uring_disabled, or a container's filter"
                }
                Some(libc::ENOMEM) => "the locked-memory limit (ulimit -l) is too low",
                _ => return error,
            };
            io::Error::new(error.kind(), format!("cannot set up io_uring: {error} ({hint})"))
        })?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring of Linux 5.11 or newer is needed",
            ));
        }
        let limit = uring.params().cq_entries() as usize - RESERVED_COMPLETIONS;
        Ok(Rc::new(Self {
            uring: RefCell::new(Some(uring)),
            table: RefCell::default(),
            backlog: RefCell::default(),
            in_flight: Cell::new(0),
            limit,
            answers: RefCell::default(),
            turn: Cell::new(0),
            doorbell_armed: Cell::new(false),
            pieces: RefCell::default(),
        }))
    }

    fn build() -> io::Result<IoUring> {
        // Completions are collected only when this thread asks for them, in batches, without
        // interrupting its tasks.
        let deferred = IoUring::builder()
            .setup_cqsize(COMPLETION_ENTRIES)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(SUBMISSION_ENTRIES);
        match deferred {
            // Kernels before 6.1.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                IoUring::builder().setup_cqsize(COMPLETION_ENTRIES).build(SUBMISSION_ENTRIES)
            }
            other => other,
        }
    }

    /// True if the executor is gone: nothing can be started any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.uring.borrow().is_none()
    }

    /// Number of unanswered requests of drives, sockets and watches.
    pub(crate) fn unanswered(&self) -> usize {
        self.table.borrow().in_use()
    }

    /// Executes a drive's request, or queues it. The caller has checked that the ring is not
    /// closed.
    pub(crate) fn start(&self, mut op: DriveOp) {
        let outcome = op.carry_out_in_memory(&mut self.pieces.borrow_mut());
        if let Some(outcome) = outcome {
            op.finish(outcome);
            return;
        }
        let index = self.table.borrow_mut().insert(Work::Drive(op));
        self.hand_over_or_keep(index);
    }

    /// Queues a socket's operation. The caller has checked that the ring is not closed.
    pub(crate) fn start_socket(&self, op: SocketOp) -> u32 {
        let index = self.table.borrow_mut().insert(Work::Socket(op));
        self.hand_over_or_keep(index);
        index
    }

    /// Queues a message. The caller has checked that the ring is not closed.
    pub(crate) fn start_message(&self, op: MessageOp) {
        let index = self.table.borrow_mut().insert(Work::Message(op));
        self.hand_over_or_keep(index);
    }

    /// Cancels an unanswered socket operation whose future was dropped.
    pub(crate) fn cancel_socket(&self, index: u32) {
        let unseen = {
            let mut backlog = self.backlog.borrow_mut();
            let place = backlog.iter().position(|waiting| *waiting == index);
            place.and_then(|place| backlog.remove(place))
        };
        match unseen {
            Some(index) => {
                let work = self.table.borrow_mut().remove(index);
                drop(work);
            }
            None => self.cancel(opcode::AsyncCancel::new(u64::from(index)).build()),
        }
    }

    /// Sets the watch when `fd` becomes readable.
    pub(crate) fn watch_readable(&self, fd: RawFd, watch: Rc<Watch>) {
        let index = self.table.borrow_mut().insert(Work::Watch(watch, fd));
        self.hand_over_or_keep(index);
    }

    /// Requests a completion when `doorbell` rings, unless one is pending already.
    pub(crate) fn arm_doorbell(&self, doorbell: &impl AsRawFd) {
        if self.doorbell_armed.replace(true) {
            return;
        }
        let (index, count) = {
            let mut table = self.table.borrow_mut();
            (table.insert(Work::Doorbell), table.doorbell_count.as_ptr())
        };
        let entry = opcode::Read::new(types::Fd(doorbell.as_raw_fd()), count.cast(), 8).build();
        if !self.push(entry.user_data(u64::from(index))) {
            self.table.borrow_mut().remove(index);
            self.doorbell_armed.set(false);
        }
    }

    fn hand_over_or_keep(&self, index: u32) {
        if self.in_flight.get() >= self.limit || !self.backlog.borrow().is_empty() || !self.hand_over(index) {
            self.backlog.borrow_mut().push_back(index);
        }
    }

    /// Puts the slot's next step into the submission queue; `false` if there is no room even after
    /// submitting it.
    fn hand_over(&self, index: u32) -> bool {
        let entry = {
            let mut table = self.table.borrow_mut();
            let OpSlot { work, iovecs, header } = &mut table.slots[index as usize];
            match work.as_mut().expect("a queued slot has work") {
                Work::Drive(op) => op.entry(iovecs),
                Work::Socket(op) => op.entry(iovecs, header),
                Work::Message(op) => op.entry(iovecs),
                Work::Watch(_, fd) => opcode::PollAdd::new(types::Fd(*fd), libc::POLLIN as u32).build(),
                Work::Doorbell => unreachable!("the doorbell is armed directly"),
            }
        };
        self.push(entry.user_data(u64::from(index)))
    }

    fn push(&self, entry: squeue::Entry) -> bool {
        let mut uring = self.uring.borrow_mut();
        let Some(uring) = uring.as_mut() else { return false };
        for attempt in 0..2 {
            // SAFETY: the memory that the entry points at (buffers, iovecs, message headers,
            // addresses, the doorbell's count) is owned by the slot or by this ring and stays there
            // until the answer: slots that the kernel has seen are freed only by `answer`, or
            // leaked by `close`. Descriptors are owned by drives and sockets that the slot's work
            // keeps alive.
            if unsafe { uring.submission().push(&entry) }.is_ok() {
                self.in_flight.set(self.in_flight.get() + 1);
                if uring.submission().len() >= BATCH {
                    // If refused for now, the entries stay queued.
                    entered(uring.submit());
                }
                return true;
            }
            if attempt == 0 && !entered(uring.submit()) {
                break;
            }
        }
        false
    }

    /// Submits the queue without waiting; also lets the kernel post completions that are due.
    pub(crate) fn submit(&self) {
        let mut uring = self.uring.borrow_mut();
        let Some(uring) = uring.as_mut() else { return };
        let work = {
            let queue = uring.submission();
            !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
        };
        if work {
            entered(uring.submit());
        }
    }

    /// Submits the queue and sleeps until there is a completion, a signal, or `limit` has passed.
    pub(crate) fn submit_and_wait(&self, limit: Option<Duration>) {
        let uring = self.uring.borrow();
        let Some(uring) = uring.as_ref() else { return };
        let entered = match limit {
            None => entered(uring.submit_and_wait(1)),
            Some(limit) => {
                let limit = types::Timespec::from(limit);
                let arguments = types::SubmitArgs::new().timespec(&limit);
                entered(uring.submitter().submit_with_args(1, &arguments))
            }
        };
        if !entered {
            // The kernel is short of memory for requests; completions (collected next) free some.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the available completions, without a system call, wakes their waiters, and submits
    /// the backlog.
    pub(crate) fn collect(&self) {
        let mut answers = self.answers.take();
        if let Some(uring) = self.uring.borrow_mut().as_mut() {
            answers.extend(uring.completion().map(|entry| (entry.user_data(), entry.result())));
        }
        self.turn.update(|turn| turn + 1);
        for (user_data, result) in answers.drain(..) {
            if user_data != IGNORED {
                self.answer(user_data as u32, result);
            }
        }
        *self.answers.borrow_mut() = answers;
        while self.in_flight.get() < self.limit {
            let Some(index) = self.backlog.borrow_mut().pop_front() else { break };
            if !self.hand_over(index) {
                self.backlog.borrow_mut().push_front(index);
                break;
            }
        }
    }

    fn answer(&self, index: u32, result: i32) {
        self.in_flight.set(self.in_flight.get() - 1);
        let mut table = self.table.borrow_mut();
        match table.slots[index as usize].work.as_mut() {
            Some(Work::Drive(op)) => {
                match op.advance(result, self.turn.get()) {
                    Progress::Done(outcome) => {
                        let Work::Drive(op) = table.remove(index) else { unreachable!("just seen") };
                        drop(table);
                        op.finish(outcome);
                    }
                    Progress::Again => {
                        drop(table);
                        self.hand_over_or_keep(index);
                    }
                }
                return;
            }
            Some(Work::Socket(op)) => {
                match op.advance(result) {
                    SocketProgress::Done(outcome) => {
                        let Work::Socket(op) = table.remove(index) else { unreachable!("just seen") };
                        drop(table);
                        op.finish(outcome);
                    }
                    SocketProgress::Again => {
                        drop(table);
                        self.hand_over_or_keep(index);
                    }
                }
                return;
            }
            _ => {}
        }
        if matches!(table.slots[index as usize].work, Some(Work::Message(_))) && result == -libc::EINTR {
            drop(table);
            self.hand_over_or_keep(index);
            return;
        }
        let work = table.remove(index);
        drop(table);
        match work {
            Work::Message(_) => {}
            Work::Doorbell => self.doorbell_armed.set(false),
            Work::Watch(watch, _) => {
                // Negative if the ring ends first.
                watch.ready.set(result > 0);
                watch.changed.notify_all();
            }
            Work::Drive(_) | Work::Socket(_) => unreachable!("handled above"),
        }
    }

    /// Closes the ring: fails requests that the kernel has not seen, waits for those that it has,
    /// and abandons those that it never answers.
    pub(crate) fn close(&self) {
        let unseen = std::mem::take(&mut *self.backlog.borrow_mut());
        for index in unseen {
            let work = self.table.borrow_mut().remove(index);
            match work {
                Work::Drive(op) => {
                    let cancelled = op.cancelled();
                    op.finish(Err(cancelled));
                }
                Work::Socket(op) => op.finish_cancelled(),
                Work::Message(_) | Work::Doorbell | Work::Watch(..) => {}
            }
        }
        let endless: Vec<u32> = {
            let table = self.table.borrow();
            // These may wait for ever: no doorbell, connection or message comes any more.
            let is_endless =
                |slot: &OpSlot| matches!(slot.work, Some(Work::Doorbell | Work::Watch(..) | Work::Socket(_)));
            (0..table.slots.len() as u32).filter(|index| is_endless(&table.slots[*index as usize])).collect()
        };
        for index in endless {
            self.cancel(opcode::AsyncCancel::new(u64::from(index)).build());
        }
        let begin = Instant::now();
        let mut cancelled = false;
        while self.unanswered() > 0 && begin.elapsed() < GIVE_UP {
            if !cancelled && begin.elapsed() > PATIENCE {
                cancelled = true;
                self.cancel(opcode::AsyncCancel2::new(types::CancelBuilder::any()).build());
            }
            self.submit_and_wait(Some(Duration::from_millis(100)));
            self.collect();
        }
        if self.unanswered() > 0 {
            // The kernel may still write to this memory: neither it nor the ring may ever be freed.
            std::mem::forget(self.table.take());
            std::mem::forget(self.uring.take());
        }
        self.uring.take();
    }

    fn cancel(&self, entry: squeue::Entry) {
        if self.push(entry.user_data(IGNORED)) {
            // It has no slot in the table: its answer is not counted.
            self.in_flight.set(self.in_flight.get() - 1);
        }
    }
}

/// True if the kernel took the call, `false` if it is temporarily out of resources. Any other
/// refusal is a bug here.
fn entered(result: io::Result<usize>) -> bool {
    let Err(error) = result else { return true };
    match error.raw_os_error() {
        // Both simply end the wait.
        Some(libc::ETIME | libc::EINTR) => true,
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => false,
        _ => panic!("io_uring_enter was refused: {error}"),
    }
}
