//! Threads that serve connections, seen from the home shard, which has the pools.
//!
//! The home accepts and negotiates; so places, access rules and notices concern it alone. Then it
//! may hand the connection to another shard, which reads its requests, takes memory for them,
//! decrypts, and sends the answers. Each request comes back as a message. The home checks it
//! against the volume as it is, reports losses, executes it, and answers. So lost writes, unaligned
//! writes and the end of a volume have one place, whichever shards its connections are on.
//!
//! No shard waits for another one with a lock or a permit that the other needs: a shard's permits
//! are its own connections', and the home holds none across a message (docs/internals/locks.md).
//!
//! Expected faults: no descriptor for handing over (the home serves the connection itself), a
//! thread that panics (the process ends, as for a panic of the home).

mod messages;
mod remote;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, select};
use stripewise_drive::{Answerer, Context, Delivery, JoinHandle, Port, link};
use stripewise_pool::ArrayThread;
use stripewise_runtime::Network;

use crate::block::Export;
use crate::direct::DirectExport;
use crate::nbd::connection::backend::{Backend, LocalBackend};
use crate::nbd::limits::Limits;
use crate::nbd::shards::messages::{MovedOutcome, Remote, ToHome, ToShard};
use crate::nbd::shutting_down::ShuttingDown;
use crate::nbd::wire::replies::Outcome;

pub(crate) use messages::Handed;

/// The other shards of a server.
pub(crate) struct Shards<X> {
    all: RefCell<Vec<Rc<Shard<X>>>>,
    /// Number of connections that the home serves.
    at_home: Cell<usize>,
}

/// A connection that the home serves.
pub(crate) struct AtHome<'a>(&'a Cell<usize>);

impl Drop for AtHome<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// One of them, with the volumes of its connections.
pub(crate) struct Shard<X> {
    thread: Arc<dyn stripewise_drive::Shard>,
    port: Rc<Port<ToShard, ToHome>>,
    /// Volumes by number of the connection.
    connections: RefCell<HashMap<u64, Rc<LocalBackend<X>>>>,
    closing: Cell<bool>,
    serving: Cell<Option<JoinHandle<()>>>,
}

impl<X> Default for Shards<X> {
    fn default() -> Self {
        Self { all: RefCell::default(), at_home: Cell::new(0) }
    }
}

impl<X: Export> Shards<X> {
    /// Adds a thread that serves connections: it runs an executor, and has entered the engine.
    pub(crate) fn add(
        &self,
        context: &Context,
        thread: &Arc<dyn stripewise_drive::Shard>,
        limits: Limits,
        shutting_down: &ShuttingDown,
    ) {
        let (near, far) = link();
        let mut far = Some(far);
        let mut begin = || {
            let (context, buffers) = ArrayThread::this();
            let far = far.take().expect("it is visited once");
            let network = Network::running();
            drop(context.spawn(remote::run(
                (context.clone(), buffers),
                network,
                far,
                limits,
                shutting_down.clone(),
            )));
        };
        assert!(thread.visit(&mut begin), "a thread has ended on its own; its message is above");
        let shard = Rc::new(Shard {
            thread: thread.clone(),
            port: near.open(context, Delivery::AtOnce),
            connections: RefCell::default(),
            closing: Cell::new(false),
            serving: Cell::new(None),
        });
        self.all.borrow_mut().push(shard.clone());
        let (of_task, context_of_task) = (shard.clone(), context.clone());
        shard.serving.set(Some(context.spawn(async move { of_task.receive(&context_of_task).await })));
    }

    /// The shard for a connection: the thread with the fewest connections, where one without any
    /// of the volume counts as having one more. `None`: the home. So the first connections need no
    /// messages for reads and writes, and many of them use all threads.
    pub(crate) fn choose(&self, direct: Option<&DirectExport>) -> Option<Rc<Shard<X>>> {
        let home_has_some = direct.is_none_or(|direct| direct.volume.is_on_home());
        let home = load(self.at_home.get(), home_has_some);
        let of_shard = |shard: &Shard<X>| {
            let has_some = direct.is_some_and(|direct| direct.volume.is_on(&shard.thread));
            load(shard.connections.borrow().len(), has_some)
        };
        let all = self.all.borrow();
        let least = all.iter().min_by_key(|shard| of_shard(shard))?;
        (of_shard(least) < home).then(|| least.clone())
    }

    /// Counts a connection that the home serves, until the guard is dropped.
    pub(crate) fn stay(&self) -> AtHome<'_> {
        self.at_home.set(self.at_home.get() + 1);
        AtHome(&self.at_home)
    }

    /// Uses the threads no more; connections that are still served are cut.
    pub(crate) async fn close(&self) {
        let all = self.all.take();
        for shard in &all {
            shard.closing.set(true);
            shard.port.close();
        }
        for shard in &all {
            if let Some(serving) = shard.serving.take() {
                serving.await;
            }
        }
    }
}

/// Order of threads for a new connection: the least is chosen.
fn load(connections: usize, has_some_of_the_volume: bool) -> (usize, bool) {
    (connections + usize::from(!has_some_of_the_volume), !has_some_of_the_volume)
}

impl<X: Export> Shard<X> {
    async fn receive(&self, context: &Context) {
        let noted = |_| unreachable!("shards send requests only");
        let called = |call, answerer: Answerer<ToShard>| match call {
            ToHome::Request(request) => self.begin(context, request, answerer),
            ToHome::Over(_) => unreachable!("it is an answer"),
        };
        self.port.serve(noted, called).await;
        assert!(self.closing.get(), "the thread of a shard has ended on its own; its message is above");
    }

    fn begin(&self, context: &Context, remote: Remote, answerer: Answerer<ToShard>) {
        let Remote { connection, request, memory } = remote;
        let backend = self.connections.borrow().get(&connection).cloned();
        let backend = backend.expect("a connection is known until the shard reports its end");
        context.spawn(async move {
            let buffers = backend.buffers();
            // The memory for an answer goes to the pool, from which the answer takes it.
            let memory = memory.map(|memory| buffers.adopt(memory));
            let payload = memory.filter(|_| request.payload_bytes() > 0);
            let outcome = backend.perform(request, payload).await;
            let spare = match &outcome {
                Outcome::Data(_) => None,
                _ => buffers.spare(request.transfer_bytes() as usize),
            };
            answerer.answer(ToShard::Outcome(MovedOutcome::of(outcome), spare));
        });
    }

    /// Has the connection served; its volume is `backend`'s.
    pub(crate) async fn serve(&self, handed: Handed, backend: Rc<LocalBackend<X>>) -> io::Result<()> {
        let number = handed.number;
        self.connections.borrow_mut().insert(number, backend.clone());
        let over = pin!(self.port.call(ToShard::Serve(Box::new(handed))));
        let over = match select(over, pin!(backend.until_ended())).await {
            Either::Left((over, _)) => over,
            Either::Right(((), over)) => {
                self.port.note(ToShard::VolumeEnded(number));
                over.await
            }
        };
        self.connections.borrow_mut().remove(&number);
        match over {
            Some(ToHome::Over(outcome)) => outcome,
            Some(ToHome::Request(_)) => unreachable!("a request is no answer"),
            None => Err(io::Error::new(io::ErrorKind::NotConnected, "the server has shut down")),
        }
    }
}
