//! One io_uring and the table of what is in flight on it. Requests queue up while tasks run and go
//! to the kernel in one system call per turn of the executor; their memory stays in the table until
//! the kernel has answered.
//!
//! Expected faults: a full submission queue (handed over at once, then again), more requests than
//! the completion queue holds (kept in a backlog in order, bounded by what callers have in flight,
//! which drives' queue depths bound), interrupted and momentarily refused system calls (repeated),
//! and an end with requests still in the kernel: those are waited for, then cancelled, and if the
//! kernel never answers, their memory is leaked rather than freed under a transfer.

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

/// Room for requests on their way to the kernel.
const SUBMISSION_ENTRIES: u32 = 256;
/// Requests handed over at once. The kernel holds a batch back until it has prepared all of it, and
/// the drive idles until then: on a virtual disk, 4 KiB random reads at depth 32 reached 0.78 of
/// fio's rate (which hands over one by one) in whole turns, 0.92 in batches of 16, 1.00 in batches
/// of 8 and of 4 (medians of 25 pairs).
const BATCH: usize = 8;
/// Room for answers; in flight are never more than fit, so that none overflows.
const COMPLETION_ENTRIES: u32 = 4096;
/// Answers kept free for the executor's own doorbell, watches and cancellations.
const RESERVED_COMPLETIONS: usize = 64;
/// Marks answers that no task waits for.
const IGNORED: u64 = u64::MAX;
/// How long an end waits for requests in the kernel before it cancels them, and before it gives
/// them up.
const PATIENCE: Duration = Duration::from_secs(2);
const GIVE_UP: Duration = Duration::from_secs(30);

/// Set once the file descriptor watched has become readable.
pub(crate) struct Watch {
    pub(crate) ready: Cell<bool>,
    pub(crate) changed: Event,
}

/// What one entry of the ring is for.
enum Work {
    Drive(DriveOp),
    Socket(SocketOp),
    Message(MessageOp),
    /// The read of the doorbell, by which other threads wake the executor.
    Doorbell,
    Watch(Rc<Watch>, RawFd),
}

#[derive(Default)]
struct OpSlot {
    work: Option<Work>,
    /// Memory of a scattered transfer, at a fixed address while in the kernel; its room is kept for
    /// the slot's next use.
    iovecs: Vec<libc::iovec>,
    /// The head of a message that is sent, for the same reason in a box of its own.
    header: Option<Box<libc::msghdr>>,
}

#[derive(Default)]
struct OpTable {
    slots: Vec<OpSlot>,
    free: Vec<u32>,
    /// Where the kernel puts the doorbell's count. Never read here.
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

/// The executor's io_uring.
pub(crate) struct Ring {
    uring: RefCell<Option<IoUring>>,
    table: RefCell<OpTable>,
    /// Slots not handed over yet, oldest first.
    backlog: RefCell<VecDeque<u32>>,
    /// Handed over and not answered.
    in_flight: Cell<usize>,
    limit: usize,
    answers: RefCell<Vec<(u64, i32)>>,
    /// How often answers were taken; all that are taken at a time have the same.
    turn: Cell<u64>,
    doorbell_armed: Cell<bool>,
    /// Room for the pieces of one transfer that is carried out at once.
    pieces: RefCell<Vec<libc::iovec>>,
}

impl Ring {
    /// Sets up an io_uring, with the newest of the features that help and that the kernel has.
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
            io::Error::new(error.kind(), format!("io_uring could not be set up: {error} ({hint})"))
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
        // Answers are then collected only when this thread asks for them, in batches, without
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

    /// Whether the executor is gone: nothing can be started any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.uring.borrow().is_none()
    }

    /// Requests of drives, sockets and watches that have not been answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.table.borrow().in_use()
    }

    /// Carries out a drive's request, or queues it. The caller has checked that the ring is not
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

    /// Has the kernel answer when `doorbell` rings, unless that is under way already.
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
    /// emptying it.
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
            // SAFETY: what the entry points at (buffers, iovecs, heads of messages, addresses, the
            // doorbell's count) is owned by the slot or by this ring and stays there until the
            // answer: slots that the kernel has seen are freed only by `answer`, or leaked by
            // `close`. Descriptors are owned by drives and sockets that the slot's work keeps
            // alive.
            if unsafe { uring.submission().push(&entry) }.is_ok() {
                self.in_flight.set(self.in_flight.get() + 1);
                if uring.submission().len() >= BATCH {
                    // Refused for the moment: the entries stay queued for the next time.
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

    /// Gives the kernel what is queued, without waiting; also lets it post answers that are due.
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

    /// Gives the kernel what is queued and sleeps until there is an answer, a signal, or `limit`
    /// has passed.
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
            // The kernel is short of memory for requests; answers (collected next) free some.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes the answers that are there, without a system call, wakes who waits for them, and hands
    /// over the backlog.
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
                // Negative when the ring ends first.
                watch.ready.set(result > 0);
                watch.changed.notify_all();
            }
            Work::Drive(_) | Work::Socket(_) => unreachable!("handled above"),
        }
    }

    /// Ends the ring: answers what the kernel has not seen with an error, waits for what it has,
    /// gives up what it never answers. Afterwards the ring is closed.
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
            // What may wait for ever: no doorbell, connection or message comes any more.
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
            // Not one of the table's: its answer is not counted.
            self.in_flight.set(self.in_flight.get() - 1);
        }
    }
}

/// Whether the kernel took part: `false` when it is momentarily out of resources. Any other refusal
/// is a bug here.
fn entered(result: io::Result<usize>) -> bool {
    let Err(error) = result else { return true };
    match error.raw_os_error() {
        // Time is up, or a signal came: both simply end the wait.
        Some(libc::ETIME | libc::EINTR) => true,
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => false,
        _ => panic!("io_uring_enter was refused: {error}"),
    }
}
