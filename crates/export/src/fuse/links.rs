//! The links between the worker of a mount and the threads that receive requests for it
//! (`shards.rs`), and the messages on them.
//!
//! Expected faults: none of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stripewise_drive::{Event, MovedBuffer, Port};

use super::wire::Question;
use crate::direct::DirectExport;

/// To a shard.
pub(super) enum ToShard {
    /// The volume of an open file, for direct requests.
    Opened(Option<DirectExport>),
    /// The request was answered.
    Answered,
    /// A file was closed: its handle.
    Closed(u64),
}

/// To the home.
pub(super) enum ToHome {
    /// A request to be answered on the shard's clone; answered by [`ToShard::Answered`].
    Ask { unique: u64, question: Question, data: Option<MovedBuffer> },
    /// Question about an open file, by its handle; answered by [`ToShard::Opened`].
    Open(u64),
}

/// Requests that a shard executed itself. Only its thread changes them.
#[derive(Default)]
pub(super) struct DirectLoad {
    pub(super) in_flight: AtomicU64,
    pub(super) answered: AtomicU64,
}

/// The shards of one mount.
#[derive(Default)]
pub(super) struct FuseShards {
    loads: RefCell<Vec<Arc<DirectLoad>>>,
    ports: RefCell<Vec<Rc<Port<ToShard, ToHome>>>>,
    /// Shards that still receive.
    receiving: Cell<usize>,
    one_ended: Event,
}

impl FuseShards {
    /// A shard receives from now on.
    pub(super) fn add(&self, port: Rc<Port<ToShard, ToHome>>, load: Arc<DirectLoad>) {
        self.loads.borrow_mut().push(load);
        self.ports.borrow_mut().push(port);
        self.receiving.set(self.receiving.get() + 1);
    }

    /// Direct requests of all shards that are in flight.
    pub(super) fn in_flight(&self) -> u64 {
        self.loads.borrow().iter().map(|load| load.in_flight.load(Ordering::Relaxed)).sum()
    }

    /// Direct requests of all shards that were answered.
    pub(super) fn answered(&self) -> u64 {
        self.loads.borrow().iter().map(|load| load.answered.load(Ordering::Relaxed)).sum()
    }

    /// The mount has ended on a shard.
    pub(super) fn note_end(&self) {
        self.receiving.set(self.receiving.get() - 1);
        self.one_ended.notify_all();
    }

    /// Notifies all shards that a file was closed.
    pub(super) fn closed(&self, handle: u64) {
        self.ports.borrow().iter().for_each(|port| port.note(ToShard::Closed(handle)));
    }

    /// Waits until the mount has ended on all shards.
    pub(super) async fn until_ended(&self) {
        while self.receiving.get() > 0 {
            self.one_ended.wait().await;
        }
    }
}
