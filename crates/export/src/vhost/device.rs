//! The parts of a connection's device that its queues share.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use stripewise_drive::{Context, Event, Semaphore};

use crate::budget::ClientLine;
use crate::losses::Connection;

/// A volume as a device of one front end.
pub(super) struct Device<X> {
    pub context: Context,
    pub export: Rc<X>,
    /// Serial number that the guest sees.
    pub identity: String,
    /// Losses of the volume still to be reported to this client.
    pub losses: Connection,
    /// Memory for requests.
    pub memory: Rc<ClientLine>,
    /// Permits for requests in flight.
    pub places: Semaphore,
    failure: RefCell<Option<io::Error>>,
    failed: Event,
}

impl<X> Device<X> {
    pub(super) fn new(
        context: Context,
        export: Rc<X>,
        identity: String,
        losses: Connection,
        memory: Rc<ClientLine>,
        requests: usize,
    ) -> Self {
        let places = Semaphore::new(requests as u64);
        let (failure, failed) = (RefCell::default(), Event::new());
        Self { context, export, identity, losses, memory, places, failure, failed }
    }

    /// Ends the connection: its front end violates the protocol.
    pub(super) fn fail(&self, why: io::Error) {
        self.failure.borrow_mut().get_or_insert(why);
        self.failed.notify_all();
    }

    /// Waits for a failure.
    pub(super) async fn until_failed(&self) -> io::Error {
        loop {
            if let Some(why) = self.failure.borrow_mut().take() {
                return why;
            }
            self.failed.wait().await;
        }
    }
}
