//! Other threads that receive requests of a mount: each has a clone of the device, on which it
//! answers reads and writes of arrays that are on it. All other requests are messages to the home,
//! which answers them on the same clone.
//!
//! Expected faults: a kernel without clones, or no free descriptor (the home then serves alone); a
//! mount that ends at any moment, on every clone at once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stripewise_drive::{Answerer, Buffer, Context, Delivery, Event, HalfPort, Port, Shard, link};
use stripewise_pool::ArrayThread;
use stripewise_runtime::{FuseMountPoint, Network};

use super::MAX_UNDER_WAY_BYTES;
use super::device::{Answer, Asked, Device, Held};
use super::execute::Worker;
use super::links::{DirectLoad, ToHome, ToShard};
use super::messages::Messages;
use super::wire::{self, Question, Transfer};
use crate::direct::DirectExport;

/// Has every other thread of `context` receive requests of the mount for `worker`, as far as the
/// system has clones and descriptors.
pub(super) fn receive_on_all(
    context: &Context,
    network: &Network,
    mount_point: &FuseMountPoint,
    worker: &Rc<Worker>,
) {
    for thread in &context.shards() {
        let Ok(clone) = mount_point.clone_device() else { return };
        let Ok(messages) = network.message_file(clone.as_fd()) else { return };
        add(context, thread, (clone, Rc::new(messages)), worker);
    }
}

fn add(
    context: &Context,
    thread: &Arc<dyn Shard>,
    (clone, messages): (OwnedFd, Rc<dyn Messages>),
    worker: &Rc<Worker>,
) {
    let (near, far) = link();
    let load = Arc::<DirectLoad>::default();
    let mut given = Some((clone, far, load.clone()));
    let mut begin = || {
        let (context, _) = ArrayThread::this();
        let (clone, far, load) = given.take().expect("it is visited once");
        drop(context.spawn(receive(context.clone(), clone, far, load)));
    };
    assert!(thread.visit(&mut begin), "a thread has ended on its own; its message is above");
    let port: Rc<Port<ToShard, ToHome>> = near.open(context, Delivery::AtOnce);
    worker.shards.add(port.clone(), load);
    let (context, worker) = (context.clone(), worker.clone());
    drop(context.clone().spawn(async move {
        let noted = |_| unreachable!("shards send requests only");
        let called = |call, answerer: Answerer<ToShard>| match call {
            ToHome::Open(handle) => answerer.answer(ToShard::Opened(worker.direct(handle))),
            ToHome::Ask { unique, question, data } => {
                let data = data.map(|data| worker.adopt(data));
                let answer = Answer::on(messages.clone(), unique);
                let held = Held::Elsewhere { _answered: Box::new(Answered(Some(answerer))) };
                worker.execute(&context, Asked { question, data, answer, held });
            }
        };
        port.serve(noted, called).await;
        port.close();
        worker.shards.note_end();
    }));
}

/// A request of a shard, which waits until this is dropped: its memory counts there.
struct Answered(Option<Answerer<ToShard>>);

impl Drop for Answered {
    fn drop(&mut self) {
        if let Some(answerer) = self.0.take() {
            answerer.answer(ToShard::Answered);
        }
    }
}

/// Answer to a request that was executed on a shard.
enum Body {
    Data(Buffer),
    Written(u32),
}

/// Volumes of open files on a shard. `None`: all requests have to go to the home.
type OpenFiles = RefCell<HashMap<u64, Option<Rc<DirectExport>>>>;

/// The shard's end.
struct Receiver {
    context: Context,
    home: Rc<Port<ToHome, ToShard>>,
    files: OpenFiles,
    load: Arc<DirectLoad>,
    in_flight: Cell<usize>,
    one_ended: Event,
}

/// Receives requests on a clone of the device, until the mount ends.
async fn receive(context: Context, clone: OwnedFd, link: HalfPort<ToHome, ToShard>, load: Arc<DirectLoad>) {
    let home = link.open(&context, Delivery::AtOnce);
    let receiver = Rc::new(Receiver {
        context: context.clone(),
        home: home.clone(),
        files: RefCell::default(),
        load,
        in_flight: Cell::new(0),
        one_ended: Event::new(),
    });
    let of_task = receiver.clone();
    let listening = context.spawn(async move {
        let noted = |note| {
            if let ToShard::Closed(handle) = note {
                of_task.files.borrow_mut().remove(&handle);
            }
        };
        of_task.home.serve(noted, |_, _| unreachable!("the home sends answers and notes")).await;
    });
    // Without a descriptor for it, the other threads receive this one's share.
    if let Ok(messages) = Network::running().message_file(clone.as_fd()) {
        let mut device = Device::new(Rc::new(messages), MAX_UNDER_WAY_BYTES);
        while let Some(asked) = device.next().await {
            receiver.begin(asked);
        }
    }
    while receiver.in_flight.get() > 0 {
        receiver.one_ended.wait().await;
    }
    home.close();
    listening.await;
}

impl Receiver {
    fn begin(self: &Rc<Self>, asked: Asked) {
        self.in_flight.set(self.in_flight.get() + 1);
        let receiver = self.clone();
        drop(self.context.spawn(async move {
            receiver.execute(asked).await;
            receiver.in_flight.set(receiver.in_flight.get() - 1);
            receiver.one_ended.notify_all();
        }));
    }

    async fn execute(&self, asked: Asked) {
        let Asked { question, data, answer, held } = asked;
        let add = |count: &AtomicU64, by: u64| {
            count.store(count.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        };
        add(&self.load.in_flight, 1);
        let body = self.execute_here(&question, data.as_ref()).await;
        add(&self.load.in_flight, u64::MAX);
        if let Some(body) = body {
            add(&self.load.answered, 1);
            return match body {
                Body::Data(data) => answer.data(data),
                Body::Written(length) => answer.bytes(wire::written(length)),
            };
        }
        let (unique, data) = (answer.leave_to_another_thread(), data.map(Buffer::into_moved));
        // The memory counts until the home has answered.
        let _answered = self.home.call(ToHome::Ask { unique, question, data }).await;
        drop(held);
    }

    /// Executes a read or write on this thread; `None` if it has to go to the home.
    async fn execute_here(&self, question: &Question, data: Option<&Buffer>) -> Option<Body> {
        match (question, data) {
            (Question::Transfer(Transfer::Read { handle, offset, length }), _) => {
                let file = self.file(*handle).await?;
                let read = file.read(&self.context, *offset, *length as usize, false).await?;
                read.map(Body::Data)
            }
            (Question::Transfer(Transfer::Write { handle, offset, durable: false, .. }), Some(data)) => {
                let file = self.file(*handle).await?;
                let is_written = file.write(&self.context, *offset, data.clone()).await;
                is_written.then(|| Body::Written(data.len() as u32))
            }
            _ => None,
        }
    }

    /// The volume of an open file, for direct requests.
    async fn file(&self, handle: u64) -> Option<Rc<DirectExport>> {
        if let Some(known) = self.files.borrow().get(&handle) {
            return known.clone();
        }
        let Some(ToShard::Opened(opened)) = self.home.call(ToHome::Open(handle)).await else { return None };
        let opened = opened.map(Rc::new);
        // Files are closed when their requests have ended, so the note comes later.
        self.files.borrow_mut().entry(handle).or_insert(opened).clone()
    }
}
