//! Drives of the catalogue behind the `Drive` trait, so that the engine runs on them in virtual
//! time.
//!
//! Times are those of the model; contents, phantom ones included, lie in a drive of memory beneath.
//! Discards and zeroes take no time, as nothing is transferred for them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use stripewise_drive::{
    Completion, CompletionSender, Context, Drive, DriveInfo, DriveKind, Event, IoRequest, Operation,
    completion,
};

use crate::catalogue::{DriveEntry, DriveModel};
use crate::hdd::{Completed, HddOperation, HddQueue, HddRequest, ParameterError};
use crate::measured::MeasuredQueue;
use crate::ssd::SsdQueue;

/// The queue of any modelled drive.
enum Queue {
    Hdd(Box<HddQueue>),
    Ssd(Box<SsdQueue>),
    Measured(Box<MeasuredQueue>),
}

impl Queue {
    fn submit(&mut self, now_ns: u64, request: HddRequest) {
        match self {
            Queue::Hdd(queue) => queue.submit(now_ns, request),
            Queue::Ssd(queue) => queue.submit(now_ns, request),
            Queue::Measured(queue) => queue.submit(now_ns, request),
        }
    }

    fn next_event_ns(&self) -> Option<u64> {
        match self {
            Queue::Hdd(queue) => queue.next_event_ns(),
            Queue::Ssd(queue) => queue.next_event_ns(),
            Queue::Measured(queue) => queue.next_event_ns(),
        }
    }

    fn advance(&mut self, now_ns: u64, completed: &mut Vec<Completed>) {
        match self {
            Queue::Hdd(queue) => queue.advance(now_ns, completed),
            Queue::Ssd(queue) => queue.advance(now_ns, completed),
            Queue::Measured(queue) => queue.advance(now_ns, completed),
        }
    }
}

struct Shared {
    queue: RefCell<Queue>,
    inside: RefCell<HashMap<u64, (IoRequest, CompletionSender)>>,
    inner: Rc<dyn Drive>,
    /// Completed, and not handed on yet.
    due: RefCell<Vec<Completed>>,
    /// Something was submitted, or the drive is gone.
    changed: Event,
    gone: Cell<bool>,
}

/// A drive of the catalogue.
pub struct ModelledDrive {
    info: DriveInfo,
    context: Context,
    shared: Rc<Shared>,
    submitted: Cell<u64>,
}

impl ModelledDrive {
    /// Contents are those of `inner`, whose capacity it has: at most the entry's. The seed sets
    /// what the entry leaves open.
    pub fn new(
        context: &Context,
        label: &str,
        entry: &DriveEntry,
        inner: Rc<dyn Drive>,
        seed: u64,
    ) -> Result<Rc<Self>, ParameterError> {
        let capacity_bytes = inner.info().capacity_bytes;
        if capacity_bytes > entry.capacity_bytes() {
            let why = format!("{} has {} bytes, not {capacity_bytes}", entry.name, entry.capacity_bytes());
            return Err(ParameterError::new("capacity_bytes", why));
        }
        let (queue, depth) = match &entry.model {
            DriveModel::Hdd(sheet) => {
                (Queue::Hdd(Box::new(HddQueue::new(&sheet.parameters()?, seed)?)), sheet.queue_depth)
            }
            DriveModel::Ssd(parameters) => {
                (Queue::Ssd(Box::new(SsdQueue::new(parameters, seed)?)), parameters.queue_depth)
            }
            DriveModel::Measured(parameters) => {
                (Queue::Measured(Box::new(MeasuredQueue::new(parameters)?)), parameters.queue_depth)
            }
        };
        let rates = entry.rates();
        let mut info = DriveInfo {
            label: label.into(),
            kind: DriveKind::Model,
            queue_depth: depth,
            // Transfer of about a tenth of a second.
            queue_bytes: ((rates.bytes_per_second / 10.0) as u64).clamp(4 << 20, 64 << 20),
            cheap_zeroes: true,
            gap_bytes: ((rates.bytes_per_second / rates.iops) as u64).min(256 << 10) / 4096 * 4096,
            ..inner.info().clone()
        };
        if let DriveModel::Measured(parameters) = &entry.model {
            // The drive's reported properties decide how the engine schedules its requests.
            info.queue_bytes = parameters.queue_bytes;
            info.max_request_bytes = parameters.longest_request_bytes;
            info.gap_bytes = parameters.gap_bytes;
        }
        let shared = Rc::new(Shared {
            queue: RefCell::new(queue),
            inside: RefCell::default(),
            inner,
            due: RefCell::default(),
            changed: Event::new(),
            gone: Cell::new(false),
        });
        context.spawn(run(context.clone(), shared.clone()));
        Ok(Rc::new(Self { info, context: context.clone(), shared, submitted: Cell::new(0) }))
    }
}

impl Drop for ModelledDrive {
    fn drop(&mut self) {
        self.shared.gone.set(true);
        self.shared.changed.notify_all();
    }
}

/// Hands requests to the drive beneath when their time has come. Ends when the drive is gone and
/// nothing is inside.
async fn run(context: Context, shared: Rc<Shared>) {
    loop {
        shared.queue.borrow_mut().advance(context.now_ns(), &mut shared.due.borrow_mut());
        let due = shared.due.take();
        for done in due {
            let found = shared.inside.borrow_mut().remove(&done.id);
            if let Some((request, sender)) = found {
                sender.complete(shared.inner.submit(request).await);
            }
        }
        let next_ns = shared.queue.borrow().next_event_ns();
        if next_ns.is_none() && shared.gone.get() {
            return;
        }
        if next_ns.is_some_and(|next_ns| next_ns <= context.now_ns()) || !shared.due.borrow().is_empty() {
            continue;
        }
        let mut changed = pin!(shared.changed.wait());
        let mut sleep = next_ns.map(|next_ns| context.sleep_until_ns(next_ns));
        std::future::poll_fn(|task| {
            let slept = sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(task).is_ready());
            if slept || changed.as_mut().poll(task).is_ready() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drive for ModelledDrive {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if let Err(error) = request.check(&self.info) {
            return Completion::ready(Err(error));
        }
        let operation = match request.operation {
            Operation::Read => HddOperation::Read,
            Operation::Write { fua: false } => HddOperation::Write,
            Operation::Write { fua: true } => HddOperation::ForcedWrite,
            Operation::Flush => HddOperation::Flush,
            Operation::Discard | Operation::WriteZeroes => return self.shared.inner.submit(request),
        };
        if operation != HddOperation::Flush && request.length_bytes == 0 {
            return self.shared.inner.submit(request);
        }
        let id = self.submitted.replace(self.submitted.get() + 1);
        let (offset_bytes, length_bytes) = (request.offset_bytes, request.length_bytes);
        let (sender, completion) = completion();
        self.shared.inside.borrow_mut().insert(id, (request, sender));
        let now_ns = self.context.now_ns();
        let mut queue = self.shared.queue.borrow_mut();
        // A busy machine may be late where time is real; the task hands these on.
        queue.advance(now_ns.saturating_sub(1), &mut self.shared.due.borrow_mut());
        queue.submit(now_ns, HddRequest { id, operation, offset_bytes, length_bytes });
        drop(queue);
        self.shared.changed.notify_all();
        completion
    }
}
