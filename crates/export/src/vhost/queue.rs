//! A running queue: takes requests from its ring when it is kicked, runs each as a task, and
//! signals the guest for those that are done.
//!
//! Expected faults: those of `ring.rs` and `request.rs`, and chains that are made available while
//! they are in flight: each ends the connection. A guest that never stops asking waits for memory
//! and places as other clients do; one that never takes its signals is not waited for.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::{Event, SemaphorePermit, yield_now};
use stripewise_runtime::EventFile;

use super::device::Device;
use super::inflight::InflightLog;
use super::request::{Request, Status, Unanswered, execute};
use super::ring::{Chain, Ring, total};
use super::wire::malformed;
use crate::block::Export;
use crate::budget::Taken;

/// A queue that runs until it is stopped.
pub(super) struct Queue<X> {
    device: Rc<Device<X>>,
    ring: RefCell<Ring>,
    log: Option<InflightLog>,
    is_durable: bool,
    kick: Rc<EventFile>,
    call: RefCell<Option<Rc<EventFile>>>,
    /// Chains in flight, by head.
    heads: RefCell<Vec<bool>>,
    in_flight: Cell<usize>,
    is_stopping: Cell<bool>,
    /// Ends the wait for kicks.
    stopped: Event,
    /// Something was used since the last signal.
    has_used: Cell<bool>,
    /// The next signal is sent whether the guest waits for it or not: it may have missed one, of
    /// an earlier process or by an earlier eventfd.
    must_signal: Cell<bool>,
    /// All requests have ended: no more signals.
    is_over: Cell<bool>,
    /// Wakes the sender of signals.
    used: Event,
    /// A request has ended, or one of the tasks.
    ended: Event,
    /// Tasks of the queue itself that run: the taker of requests, the sender of signals.
    tasks: Cell<[bool; 2]>,
}

const TAKER: usize = 0;
const SENDER: usize = 1;

/// The settings of a queue.
pub(super) struct QueueStart {
    pub ring: Ring,
    pub log: Option<InflightLog>,
    /// Each change is durable when it is answered.
    pub is_durable: bool,
    pub kick: Rc<EventFile>,
    pub call: Option<Rc<EventFile>>,
}

/// Permits of a request in flight.
struct Permits {
    _place: SemaphorePermit,
    _memory: Taken,
}

impl<X: Export> Queue<X> {
    /// Starts a queue. It begins with the requests that an earlier process left in flight.
    pub(super) fn start(device: &Rc<Device<X>>, start: QueueStart) -> Rc<Self> {
        let QueueStart { mut ring, log, is_durable, kick, call } = start;
        let left = log.as_ref().map(|log| log.recover(&mut ring)).unwrap_or_default();
        let heads = RefCell::new(vec![false; usize::from(ring.size())]);
        let queue = Rc::new(Self {
            device: device.clone(),
            ring: RefCell::new(ring),
            log,
            is_durable,
            kick,
            call: RefCell::new(call),
            heads,
            in_flight: Cell::new(0),
            is_stopping: Cell::new(false),
            stopped: Event::new(),
            has_used: Cell::new(true),
            must_signal: Cell::new(true),
            is_over: Cell::new(false),
            used: Event::new(),
            ended: Event::new(),
            tasks: Cell::new([true; 2]),
        });
        let (context, taker, sender) = (&device.context, queue.clone(), queue.clone());
        drop(context.spawn(async move {
            if let Err(why) = taker.take_all(left).await {
                // Memory that is gone reads as zeros, which seldom are a ring.
                taker.device.fail(taker.check().err().unwrap_or(why));
            }
            taker.task_ended(TAKER);
        }));
        drop(context.spawn(async move {
            sender.signal_all().await;
            sender.task_ended(SENDER);
        }));
        queue
    }

    fn task_ended(&self, task: usize) {
        let mut tasks = self.tasks.get();
        tasks[task] = false;
        self.tasks.set(tasks);
        self.ended.notify_all();
    }

    /// Takes no more requests, and ends when those in flight have. Returns the number of available
    /// chains that were taken. May be called again where the first call was not waited for.
    pub(super) async fn stop(&self) -> u16 {
        self.is_stopping.set(true);
        self.stopped.notify_all();
        while self.tasks.get()[TAKER] || self.in_flight.get() > 0 {
            self.ended.wait().await;
        }
        self.is_over.set(true);
        self.used.notify_all();
        while self.tasks.get()[SENDER] {
            self.ended.wait().await;
        }
        self.ring.borrow().next_available()
    }

    /// Uses another eventfd for signals.
    pub(super) fn set_call(&self, call: Option<Rc<EventFile>>) {
        *self.call.borrow_mut() = call;
        self.must_signal.set(true);
        self.has_used.set(true);
        self.used.notify_all();
    }

    async fn until_stopped(&self) {
        while !self.is_stopping.get() {
            self.stopped.wait().await;
        }
    }

    /// Takes requests until it is stopped.
    async fn take_all(self: &Rc<Self>, left: Vec<u16>) -> io::Result<()> {
        for head in left {
            let chain = self.ring.borrow().chain(head)?;
            let request = self.parse(&chain)?;
            // Not interrupted: whether it stops or not, these are in the record.
            let permits = self.permits(&request).await;
            self.begin(chain, request, permits)?;
        }
        let mut stopped = pin!(self.until_stopped());
        loop {
            self.ring.borrow().disable_kicks();
            loop {
                if self.is_stopping.get() {
                    return Ok(());
                }
                let Some(chain) = self.ring.borrow_mut().pop()? else { break };
                let request = self.parse(&chain)?;
                let permits = match select(pin!(self.permits(&request)), stopped.as_mut()).await {
                    Either::Left((permits, _)) => permits,
                    Either::Right(_) => {
                        self.ring.borrow_mut().put_back();
                        return Ok(());
                    }
                };
                if let Some(log) = &self.log {
                    log.note_begun(chain.head);
                }
                self.begin(chain, request, permits)?;
            }
            let has_more = self.ring.borrow().enable_kicks();
            self.check()?;
            if has_more {
                yield_now().await;
                continue;
            }
            match select(pin!(self.kick.wait()), stopped.as_mut()).await {
                Either::Left((kicked, _)) => kicked?,
                Either::Right(_) => return Ok(()),
            }
        }
    }

    /// Fails if memory of the front end is gone.
    fn check(&self) -> io::Result<()> {
        self.ring.borrow().memory().check()?;
        self.log.as_ref().map_or(Ok(()), InflightLog::check)
    }

    fn parse(&self, chain: &Chain) -> io::Result<Request> {
        let ring = self.ring.borrow();
        let request = Request::parse(ring.memory(), chain)?;
        // After the reads: what they gave is the guest's.
        ring.memory().check()?;
        Ok(request)
    }

    async fn permits(&self, request: &Request) -> Permits {
        let place = self.device.places.acquire(1).await;
        let mut wanted = self.device.memory.wanted(&self.device.context);
        match request.buffer_bytes() {
            0 => {}
            bytes => wanted.add(bytes).await,
        }
        Permits { _place: place, _memory: wanted.into_taken() }
    }

    fn begin(self: &Rc<Self>, chain: Chain, request: Request, permits: Permits) -> io::Result<()> {
        let was_in_flight = std::mem::replace(&mut self.heads.borrow_mut()[usize::from(chain.head)], true);
        if was_in_flight {
            return Err(malformed("a request was made available while it is in flight"));
        }
        self.in_flight.set(self.in_flight.get() + 1);
        let (queue, memory) = (self.clone(), self.ring.borrow().memory().clone());
        drop(self.device.context.spawn(async move {
            match execute(&queue.device, &memory, &chain, &request, queue.is_durable).await {
                Ok(status) => queue.answer(&chain, status),
                Err(Unanswered::VolumeEnded) => queue.device.export.ending().begin(),
                Err(Unanswered::MemoryLost(why)) => queue.device.fail(why),
            }
            drop(permits);
            queue.in_flight.set(queue.in_flight.get() - 1);
            if queue.in_flight.get() == 0 {
                queue.ended.notify_all();
            }
        }));
        Ok(())
    }

    fn answer(&self, chain: &Chain, status: Status) {
        let mut ring = self.ring.borrow_mut();
        let filled = total(chain.writable());
        ring.memory().write(chain.writable(), filled - 1, &[status as u8]);
        self.heads.borrow_mut()[usize::from(chain.head)] = false;
        if let Some(log) = &self.log {
            log.note_answer(chain.head);
        }
        ring.push_used(chain.head, u32::try_from(filled).unwrap_or(u32::MAX));
        if let Some(log) = &self.log {
            log.note_answered(chain.head, ring.next_used());
        }
        drop(ring);
        if let Err(why) = self.check() {
            self.device.fail(why);
        }
        if !self.has_used.replace(true) {
            self.used.notify_all();
        }
    }

    /// Signals the guest until it is over. One signal may stand for many requests.
    async fn signal_all(&self) {
        loop {
            while !self.has_used.get() {
                if self.is_over.get() {
                    return;
                }
                self.used.wait().await;
            }
            self.has_used.set(false);
            let call = self.call.borrow().clone();
            let Some(call) = call else { continue };
            let is_wanted = self.ring.borrow_mut().wants_signal();
            if !self.must_signal.replace(false) && !is_wanted {
                continue;
            }
            // A count that is full wakes the guest as well as another signal would.
            let mut signal = pin!(call.signal());
            loop {
                match select(signal.as_mut(), pin!(self.used.wait())).await {
                    // An eventfd that cannot be signalled concerns its owner only.
                    Either::Left(_) => break,
                    Either::Right(_) if self.is_over.get() => return,
                    Either::Right(_) => {}
                }
            }
        }
    }
}
