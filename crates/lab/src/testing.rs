//! Drives for this crate's tests: one that takes a known time, one with a place that cannot be
//! accessed.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use stripewise_drive::{
    Completion, Context, Drive, DriveErrorKind, DriveInfo, IoRequest, Operation, Semaphore, completion,
};

/// Answers one request at a time, each after a fixed time.
pub(crate) struct SlowDrive {
    context: Context,
    inner: Rc<dyn Drive>,
    turn: Semaphore,
    request_ns: u64,
    /// Nothing is answered before this.
    paused_until_ns: Rc<Cell<u64>>,
    asked: Cell<[u64; 3]>,
}

impl SlowDrive {
    pub(crate) fn new(context: &Context, inner: Rc<dyn Drive>, request_ns: u64) -> Rc<Self> {
        Rc::new(Self {
            context: context.clone(),
            inner,
            turn: Semaphore::new(1),
            request_ns,
            paused_until_ns: Rc::default(),
            asked: Cell::default(),
        })
    }

    /// Plain writes, forced ones and discards so far.
    pub(crate) fn asked(&self) -> [u64; 3] {
        self.asked.get()
    }

    /// Answers nothing for a while.
    pub(crate) fn pause(&self, for_ns: u64) {
        self.paused_until_ns.set(self.context.now_ns() + for_ns);
    }
}

impl Drive for SlowDrive {
    fn info(&self) -> &DriveInfo {
        self.inner.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let mut asked = self.asked.get();
        match request.operation {
            Operation::Write { fua } => asked[usize::from(fua)] += 1,
            Operation::Discard => asked[2] += 1,
            _ => {}
        }
        self.asked.set(asked);
        let (sender, answer) = completion();
        let (context, inner, turn) = (self.context.clone(), self.inner.clone(), self.turn.clone());
        let (request_ns, paused) = (self.request_ns, self.paused_until_ns.clone());
        self.context.spawn(async move {
            let _permit = turn.acquire(1).await;
            context.sleep_until_ns(paused.get()).await;
            context.sleep_ns(request_ns).await;
            sender.complete(inner.submit(request).await);
        });
        answer
    }
}

/// Fails every request that touches a range.
pub(crate) struct FailingDrive {
    inner: Rc<dyn Drive>,
    bad: Range<u64>,
}

impl FailingDrive {
    pub(crate) fn new(inner: Rc<dyn Drive>, bad: Range<u64>) -> Rc<Self> {
        Rc::new(Self { inner, bad })
    }
}

impl Drive for FailingDrive {
    fn info(&self) -> &DriveInfo {
        self.inner.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if request.offset_bytes < self.bad.end && self.bad.start < request.end_bytes() {
            return Completion::ready(Err(request.error(&self.info().label, DriveErrorKind::Medium, None)));
        }
        self.inner.submit(request)
    }
}
