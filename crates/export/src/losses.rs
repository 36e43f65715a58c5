//! Acknowledged writes of a volume that were lost, and the clients that are still to get an error.
//!
//! A flush covers everything written to a volume, through any descriptor or connection. So a loss
//! concerns every client that had the volume open: each of them gets the error once, as Linux
//! reports it to every open descriptor (`errseq_t`). A loss that was reported to no client is
//! reported to the next one that opens the volume.
//!
//! A connection does not survive the reopening of a pool. A client that reconnects is recognised
//! by its identity ([`ClientId`]): the error goes to as many connections of that identity as were
//! open, and while any of them is still to get it, every new connection of that identity gets it.
//!
//! Expected faults: clients that are away when the loss is found, that never come back, and that
//! come back in great numbers (the memory for them is bounded).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stripewise_array::mutation::{self, Mutation};

use crate::client_id::ClientId;

/// Maximum identities remembered for a volume; further new clients get the error once.
const MAX_REMEMBERED: usize = 1024;

/// The losses of one volume, across all reopenings of its pool.
#[derive(Default)]
pub struct Losses {
    /// Number of acknowledged writes that need a flush to be durable.
    written: Cell<u64>,
    /// Number of these that are durable.
    flushed: Cell<u64>,
    /// The same counts of connections that are served by other threads.
    written_elsewhere: RefCell<Vec<Arc<AtomicU64>>>,
    /// Number of losses. Only this thread changes it.
    count: Arc<AtomicU64>,
    /// The last loss was reported to no client.
    unseen: Cell<bool>,
    /// Refused flushes of the volume when the last failed flush was recorded.
    refusals: Cell<u64>,
    /// Number of times the volume was reopened.
    reopenings: Cell<u64>,
    connections: RefCell<HashMap<ClientId, Connections>>,
}

/// The connections of one client.
#[derive(Default)]
struct Connections {
    /// Open, with all losses before their opening reported.
    open: usize,
    /// Closed with writes that no flush has covered since.
    left: usize,
    /// Open or left at a loss that was not reported to them yet.
    to_report: usize,
}

impl Losses {
    /// Records an acknowledged write that needs a flush to be durable.
    pub(crate) fn note_written(&self) {
        self.written.set(self.written.get() + 1);
    }

    /// Number of writes; taken when a flush begins, for [`Self::note_flushed`].
    pub(crate) fn written(&self) -> u64 {
        let elsewhere = self.written_elsewhere.borrow();
        self.written.get() + elsewhere.iter().map(|count| count.load(Ordering::Acquire)).sum::<u64>()
    }

    /// For a connection that another thread serves: its own count of writes, which is part of
    /// [`Self::written`], and the number of losses.
    pub(crate) fn for_another_thread(&self) -> (Arc<AtomicU64>, Arc<AtomicU64>) {
        let mut elsewhere = self.written_elsewhere.borrow_mut();
        elsewhere.retain(|count| {
            let is_used = Arc::strong_count(count) > 1;
            if !is_used {
                self.written.set(self.written.get() + count.load(Ordering::Acquire));
            }
            is_used
        });
        let written = Arc::<AtomicU64>::default();
        elsewhere.push(written.clone());
        (written, self.count.clone())
    }

    /// Records a flush: the first `written` writes are durable.
    pub(crate) fn note_flushed(&self, written: u64) {
        self.flushed.set(self.flushed.get().max(written));
        if !self.has_unflushed() {
            self.connections.borrow_mut().retain(|_, of_one| {
                of_one.left = 0;
                of_one.open + of_one.to_report > 0
            });
        }
    }

    /// True if some acknowledged writes are not known to be durable.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.written() > self.flushed.get()
    }

    /// Number of losses.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Number of times the volume was reopened.
    pub(crate) fn reopenings(&self) -> u64 {
        self.reopenings.get()
    }

    /// Records a reopening of the pool. Unless it was closed in order, unflushed writes may be
    /// lost.
    pub(crate) fn note_reopened(&self, was_closed_in_order: bool) {
        self.reopenings.set(self.reopenings.get() + 1);
        let is_forgotten = mutation::is_chosen(Mutation::ReopenedWithoutLosses);
        if self.has_unflushed() && !was_closed_in_order && !is_forgotten {
            self.lose();
        }
        self.note_flushed(self.written());
    }

    /// Records a loss: acknowledged writes may be gone, and so are the connections.
    pub(crate) fn lose(&self) {
        self.count.store(self.count() + 1, Ordering::Release);
        self.unseen.set(true);
        for of_one in self.connections.borrow_mut().values_mut() {
            of_one.to_report += of_one.open + std::mem::take(&mut of_one.left);
        }
    }

    /// Records a failed flush that began at `count` losses; its caller gets the error. Writes
    /// acknowledged before may be lost, so all other open descriptors are to get the error, too.
    /// Several flushes may meet one refusal, which counts once: a later refusal has raised the
    /// volume's number of `refusals`.
    pub(crate) fn note_failed_flush(&self, count: u64, refusals: u64) {
        let is_same = refusals == self.refusals.replace(refusals);
        if self.count() == count || !is_same {
            self.count.store(self.count() + 1, Ordering::Release);
            self.unseen.set(false);
            for of_one in self.connections.borrow_mut().values_mut() {
                of_one.to_report += std::mem::take(&mut of_one.left);
            }
        }
    }

    /// True if this must be kept although no client has the volume open.
    pub(crate) fn is_wanted(&self) -> bool {
        self.has_unflushed() || self.unseen.get() || !self.connections.borrow().is_empty()
    }

    /// Opens a descriptor.
    pub(crate) fn open(&self) -> Seen {
        Seen(Cell::new(self.count() - u64::from(self.unseen.get())))
    }

    /// Connects a client.
    pub(crate) fn connect(self: &Rc<Self>, client: ClientId) -> Connection {
        let mut connections = self.connections.borrow_mut();
        let is_remembered = connections.len() < MAX_REMEMBERED || connections.contains_key(&client);
        let seen = self.open();
        let mut is_owed_report = false;
        if is_remembered {
            let of_one = connections.entry(client.clone()).or_default();
            is_owed_report = of_one.to_report > 0;
            if !is_owed_report {
                of_one.open += 1;
                of_one.left = of_one.left.saturating_sub(1);
            }
        }
        let client = is_remembered.then_some(client);
        Connection { losses: self.clone(), client, seen, is_owed_report: Cell::new(is_owed_report) }
    }

    fn change(&self, client: &ClientId, change: impl FnOnce(&mut Connections)) {
        let mut connections = self.connections.borrow_mut();
        let Some(of_one) = connections.get_mut(client) else { return };
        change(of_one);
        if of_one.open + of_one.left + of_one.to_report == 0 {
            connections.remove(client);
        }
    }
}

/// Number of losses reported to one open descriptor.
pub(crate) struct Seen(Cell<u64>);

impl Seen {
    /// True if a loss has not been reported to this descriptor.
    pub(crate) fn has_news(&self, losses: &Losses) -> bool {
        let is_first_only = mutation::is_chosen(Mutation::FlushErrorReportedOnce);
        self.0.get() < losses.count() && (losses.unseen.get() || !is_first_only)
    }

    /// As [`Self::has_news`], and marks the losses as reported to this descriptor.
    pub(crate) fn takes_news(&self, losses: &Losses) -> bool {
        let has_news = self.has_news(losses);
        if has_news {
            self.0.set(losses.count());
            losses.unseen.set(false);
        }
        has_news
    }
}

/// A connection that has the volume open.
pub(crate) struct Connection {
    losses: Rc<Losses>,
    /// `None` if too many clients are remembered already.
    client: Option<ClientId>,
    seen: Seen,
    is_owed_report: Cell<bool>,
}

impl Connection {
    /// True if a loss has not been reported to the client.
    pub(crate) fn has_news(&self) -> bool {
        self.is_owed_report.get() || self.seen.has_news(&self.losses)
    }

    /// As [`Self::has_news`], and marks the loss as reported.
    pub(crate) fn takes_news(&self) -> bool {
        let is_owed_report = self.is_owed_report.replace(false);
        if is_owed_report && let Some(client) = &self.client {
            self.losses.change(client, |of_one| {
                of_one.to_report = of_one.to_report.saturating_sub(1);
                of_one.open += 1;
            });
        }
        self.seen.takes_news(&self.losses) || is_owed_report
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(client) = &self.client else { return };
        let has_unflushed = self.losses.has_unflushed();
        let was_reported = !self.is_owed_report.get();
        self.losses.change(client, |of_one| {
            if was_reported {
                of_one.open -= 1;
                of_one.left += usize::from(has_unflushed);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(user: u32) -> ClientId {
        ClientId::User { place: "s".into(), user }
    }

    fn written() -> Rc<Losses> {
        let losses = Rc::<Losses>::default();
        losses.note_written();
        losses
    }

    #[test]
    fn every_open_descriptor_gets_a_loss_once() {
        let losses = written();
        let (a, b) = (losses.open(), losses.open());
        losses.note_reopened(false);
        for of_one in [&a, &b] {
            assert!(of_one.takes_news(&losses) && !of_one.takes_news(&losses));
        }
        assert!(!losses.open().has_news(&losses), "the volume was opened after the loss was reported");
    }

    #[test]
    fn an_unreported_loss_goes_to_the_next_client() {
        let losses = written();
        losses.note_reopened(false);
        assert!(losses.is_wanted());
        let (next, later) = (losses.connect(client(1)), losses.open());
        assert!(next.takes_news() && !next.takes_news());
        assert!(later.takes_news(&losses), "it was open when the loss was first reported");
        assert!(!losses.connect(client(2)).takes_news());
    }

    #[test]
    fn flushed_writes_are_not_lost() {
        for (flushes, closed_in_order) in [(true, false), (false, true)] {
            let losses = written();
            let open = losses.open();
            let _connection = losses.connect(client(1));
            if flushes {
                losses.note_flushed(losses.written());
            }
            losses.note_reopened(closed_in_order);
            assert!(!open.has_news(&losses) && !losses.connect(client(1)).takes_news());
        }
        let losses = written();
        let before = losses.written();
        losses.note_written();
        losses.note_flushed(before);
        losses.note_reopened(false);
        assert!(losses.open().has_news(&losses), "one write came after the flush had begun");
    }

    #[test]
    fn a_reconnecting_client_gets_a_loss_per_connection() {
        let losses = written();
        let (first, second) = (losses.connect(client(1)), losses.connect(client(1)));
        let other = losses.connect(client(2));
        drop(first);
        losses.note_reopened(false);
        drop((second, other));
        // A connection that leaves before it got the error does not count.
        drop(losses.connect(client(1)));
        for _ in 0..2 {
            let back = losses.connect(client(1));
            assert!(back.takes_news() && !back.takes_news());
        }
        assert!(!losses.connect(client(1)).takes_news(), "both got it");
        assert!(!losses.connect(client(3)).takes_news(), "it had nothing open at the loss");
        assert!(losses.connect(client(2)).takes_news());
        assert!(!losses.is_wanted(), "nothing is kept of clients that got the error");
    }

    #[test]
    fn a_client_gets_each_loss_once() {
        let losses = written();
        let connection = losses.connect(client(1));
        for _ in 0..2 {
            losses.note_written();
            losses.note_reopened(false);
            let back = losses.connect(client(1));
            assert!(back.takes_news() && !back.takes_news());
            drop(back);
        }
        drop(connection);
        assert!(!losses.connect(client(1)).takes_news());
    }

    #[test]
    fn a_failed_flush_is_reported_to_all_others() {
        let losses = written();
        let (asked, other, connected) = (losses.open(), losses.open(), losses.connect(client(1)));
        let begun = losses.count();
        losses.note_failed_flush(begun, 1);
        // A second flush meets the same failure.
        losses.note_failed_flush(begun, 1);
        assert!(asked.takes_news(&losses) && other.takes_news(&losses) && !other.takes_news(&losses));
        assert!(connected.takes_news() && !connected.takes_news());
        assert!(!losses.open().has_news(&losses));
    }

    #[test]
    fn a_flush_that_meets_a_second_loss_reports_it() {
        let losses = written();
        let (begun, other) = (losses.count(), losses.open());
        losses.note_failed_flush(begun, 1);
        assert!(other.takes_news(&losses));
        // This flush began before the first loss was known, and another drive refused it.
        losses.note_failed_flush(begun, 2);
        assert!(other.takes_news(&losses) && !other.takes_news(&losses));
    }

    #[test]
    fn the_memory_of_clients_is_bounded() {
        let losses = written();
        let all: Vec<_> = (0..2 * MAX_REMEMBERED as u32).map(|user| losses.connect(client(user))).collect();
        assert_eq!(losses.connections.borrow().len(), MAX_REMEMBERED);
        drop(all);
        losses.note_flushed(losses.written());
        assert!(!losses.is_wanted());
    }
}
