//! Other threads that receive requests of a mount: each has a clone of the device, on which it
//! answers reads and writes of arrays that are on it. All other requests are messages to the home,
//! which answers them on the same clone.
//!
//! Expected faults: a kernel without clones, or no free descriptor (the home then serves alone); a
//! mount that ends at any moment, on every clone at once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use stripewise_drive::{Answerer, Buffer, Context, Delivery, Event, HalfPort, Port, Shard, link};
use stripewise_pool::ArrayThread;
use stripewise_runtime::{FuseMountPoint, Network};

use super::MAX_UNDER_WAY_BYTES;
use super::device::{Answer, Asked, Device, Held};
use super::execute::Worker;
use super::links::{ToHome, ToShard};
use super::messages::Messages;
use super::wire::{self, Question, Transfer};
use crate::direct::DirectExport;

/// Has every other thread of `context` receive requests of the mount for `worker`. Gives their
/// number.
pub(super) fn receive_on_all(
    context: &Context,
    network: &Network,
    mount_point: &FuseMountPoint,
    worker: &Rc<Worker>,
) -> io::Result<usize> {
    let threads = context.shards();
    for thread in &threads {
        let clone = mount_point.clone_device()?;
        let messages: Rc<dyn Messages> = Rc::new(network.message_file(clone.as_fd())?);
        add(context, thread, (clone, messages), worker);
    }
    Ok(threads.len())
}

fn add(
    context: &Context,
    thread: &Arc<dyn Shard>,
    (clone, messages): (OwnedFd, Rc<dyn Messages>),
    worker: &Rc<Worker>,
) {
    let (near, far) = link();
    let mut given = Some((clone, far));
    let mut begin = || {
        let (context, _) = ArrayThread::this();
        let (clone, far) = given.take().expect("it is visited once");
        drop(context.spawn(receive(context.clone(), clone, far)));
    };
    assert!(thread.visit(&mut begin), "a thread has ended on its own; its message is above");
    let port: Rc<Port<ToShard, ToHome>> = near.open(context, Delivery::AtOnce);
    worker.shards.add(port.clone());
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

/// Volumes of open files on a shard. `None`: all requests have to go to the home.
type OpenFiles = RefCell<HashMap<u64, Option<Rc<DirectExport>>>>;

/// The shard's end.
struct Receiver {
    context: Context,
    home: Rc<Port<ToHome, ToShard>>,
    files: OpenFiles,
    in_flight: Cell<usize>,
    one_ended: Event,
}

/// Receives requests on a clone of the device, until the mount ends.
async fn receive(context: Context, clone: OwnedFd, link: HalfPort<ToHome, ToShard>) {
    let home = link.open(&context, Delivery::AtOnce);
    let receiver = Rc::new(Receiver {
        context: context.clone(),
        home: home.clone(),
        files: RefCell::default(),
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
        match &question {
            Question::Transfer(Transfer::Read { handle, offset, length }) => {
                let read = match self.file(*handle).await {
                    Some(file) => file.read(&self.context, *offset, *length as usize, false).await,
                    None => None,
                };
                if let Some(Some(data)) = read {
                    return answer.data(data);
                }
            }
            Question::Transfer(Transfer::Write { handle, offset, durable: false, .. }) => {
                if let (Some(file), Some(data)) = (self.file(*handle).await, &data) {
                    let length = data.len() as u32;
                    if file.write(&self.context, *offset, data.clone()).await {
                        return answer.bytes(wire::written(length));
                    }
                }
            }
            _ => {}
        }
        let (unique, data) = (answer.leave_to_another_thread(), data.map(Buffer::into_moved));
        // The memory counts until the home has answered.
        let _answered = self.home.call(ToHome::Ask { unique, question, data }).await;
        drop(held);
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
