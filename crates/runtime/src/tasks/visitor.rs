//! A way for other threads to visit an executor (`visits.rs`).

use std::sync::Arc;

use stripewise_drive::Shard;

use crate::tasks::visits::Ended;
use crate::tasks::waker::Mailbox;

/// Visits an executor from other threads. Clones visit the same one.
#[derive(Clone)]
pub struct Visitor {
    mailbox: Arc<Mailbox>,
}

impl Visitor {
    /// A visitor of the executor of this thread that has this mailbox.
    pub(crate) fn of(mailbox: &Arc<Mailbox>) -> Self {
        mailbox.visits.open();
        Self { mailbox: mailbox.clone() }
    }

    /// Runs `look` on the executor's thread, between two polls of its tasks, and waits for its
    /// result. `look` must not wait for anything.
    ///
    /// # Errors
    /// The executor has ended; `look` was not run.
    ///
    /// # Panics
    /// If `look` does, and on a thread that can be visited itself.
    pub fn visit<R: Send>(&self, look: impl FnOnce() -> R + Send) -> Result<R, Ended> {
        let (mut look, mut result) = (Some(look), None);
        self.make(&mut || result = look.take().map(|look| look()))?;
        Ok(result.expect("it was run"))
    }

    fn make(&self, look: &mut (dyn FnMut() + Send)) -> Result<(), Ended> {
        self.mailbox.visits.make(look, || self.mailbox.ring())
    }
}

impl Shard for Visitor {
    fn visit(&self, look: &mut (dyn FnMut() + Send)) -> bool {
        self.make(look).is_ok()
    }
}
