//! Acknowledged writes of a volume that were lost, and the clients that are still to be told.
//!
//! A flush speaks of everything that was written to a volume, through whichever descriptor or
//! connection. So each loss concerns all that had the volume open: every one of them gets the error
//! once, as Linux gives it to every open descriptor (`errseq_t`). A loss that no client was told of
//! is told to the next one that opens the volume.
//!
//! A connection does not outlive the reopening of a pool. A client that connects again is
//! recognised by its identity ([`ClientId`]): of each identity as many connections are told as were
//! open, and while any of them is to be told, every new one of that identity is.
//!
//! Expected faults: clients that are away when the loss is found, that never come back, and that
//! come back in great numbers (what is remembered of them is bounded).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::client_id::ClientId;

/// Identities that are remembered of a volume; of more, new clients are told once.
const MAX_REMEMBERED: usize = 1024;

/// The losses of one volume, through all reopenings of its pool.
#[derive(Default)]
pub struct Losses {
    /// Writes that were acknowledged and are durable only after a flush.
    written: Cell<u64>,
    /// How many of these are durable.
    flushed: Cell<u64>,
    /// Losses so far.
    count: Cell<u64>,
    /// No client was told of the last one.
    unseen: Cell<bool>,
    /// How often the volume was opened again.
    reopenings: Cell<u64>,
    connections: RefCell<HashMap<ClientId, Connections>>,
}

/// The connections of one client.
#[derive(Default)]
struct Connections {
    /// Open, and told of all losses before they were opened.
    open: usize,
    /// Closed with writes that no flush has covered since.
    left: usize,
    /// Open or left at a loss, and not told of it yet.
    to_tell: usize,
}

impl Losses {
    /// A write was acknowledged that is durable only after a flush.
    pub(crate) fn note_written(&self) {
        self.written.set(self.written.get() + 1);
    }

    /// For [`Self::note_flushed`]: what was written when a flush began.
    pub(crate) fn written(&self) -> u64 {
        self.written.get()
    }

    /// All that was written until then is durable.
    pub(crate) fn note_flushed(&self, written: u64) {
        self.flushed.set(self.flushed.get().max(written));
        if !self.has_unflushed() {
            self.connections.borrow_mut().retain(|_, of_one| {
                of_one.left = 0;
                of_one.open + of_one.to_tell > 0
            });
        }
    }

    /// Whether some of what was acknowledged is not known to be durable.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.written.get() > self.flushed.get()
    }

    /// Losses so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    /// How often the volume was opened again.
    pub(crate) fn reopenings(&self) -> u64 {
        self.reopenings.get()
    }

    /// The pool was opened again. Unless it was closed in order, what was not flushed may be lost.
    pub(crate) fn note_reopened(&self, was_closed_in_order: bool) {
        self.reopenings.set(self.reopenings.get() + 1);
        if self.has_unflushed() && !was_closed_in_order {
            self.lose();
        }
        self.note_flushed(self.written.get());
    }

    /// What was acknowledged may be lost, and its connections are gone.
    pub(crate) fn lose(&self) {
        self.count.set(self.count.get() + 1);
        self.unseen.set(true);
        for of_one in self.connections.borrow_mut().values_mut() {
            of_one.to_tell += of_one.open + std::mem::take(&mut of_one.left);
        }
    }

    /// A flush that began at `count` losses failed, and its caller is told: some of what was
    /// acknowledged before may be lost. All that are open are to be told, too.
    pub(crate) fn note_failed_flush(&self, count: u64) {
        if self.count.get() == count {
            self.count.set(count + 1);
            self.unseen.set(false);
            for of_one in self.connections.borrow_mut().values_mut() {
                of_one.to_tell += std::mem::take(&mut of_one.left);
            }
        }
    }

    /// Whether it is to be kept although no client has the volume open.
    pub(crate) fn is_wanted(&self) -> bool {
        self.has_unflushed() || self.unseen.get() || !self.connections.borrow().is_empty()
    }

    /// A descriptor is opened.
    pub(crate) fn open(&self) -> Seen {
        Seen(Cell::new(self.count.get() - u64::from(self.unseen.get())))
    }

    /// A client connects.
    pub(crate) fn connect(self: &Rc<Self>, client: ClientId) -> Connection {
        let mut connections = self.connections.borrow_mut();
        let is_remembered = connections.len() < MAX_REMEMBERED || connections.contains_key(&client);
        let seen = self.open();
        let mut is_to_be_told = false;
        if is_remembered {
            let of_one = connections.entry(client.clone()).or_default();
            is_to_be_told = of_one.to_tell > 0;
            if !is_to_be_told {
                of_one.open += 1;
                of_one.left = of_one.left.saturating_sub(1);
            }
        }
        let client = is_remembered.then_some(client);
        Connection { losses: self.clone(), client, seen, is_to_be_told: Cell::new(is_to_be_told) }
    }

    fn change(&self, client: &ClientId, change: impl FnOnce(&mut Connections)) {
        let mut connections = self.connections.borrow_mut();
        let Some(of_one) = connections.get_mut(client) else { return };
        change(of_one);
        if of_one.open + of_one.left + of_one.to_tell == 0 {
            connections.remove(client);
        }
    }
}

/// Losses that one open descriptor was told of.
pub(crate) struct Seen(Cell<u64>);

impl Seen {
    /// Whether there is one that it was not told of.
    pub(crate) fn has_news(&self, losses: &Losses) -> bool {
        self.0.get() < losses.count.get()
    }

    /// The same for a descriptor that is told now.
    pub(crate) fn takes_news(&self, losses: &Losses) -> bool {
        let has_news = self.has_news(losses);
        if has_news {
            self.0.set(losses.count.get());
            losses.unseen.set(false);
        }
        has_news
    }
}

/// A connection that has the volume open.
pub(crate) struct Connection {
    losses: Rc<Losses>,
    /// `None` where there are too many to remember.
    client: Option<ClientId>,
    seen: Seen,
    is_to_be_told: Cell<bool>,
}

impl Connection {
    /// Whether there is a loss that the client was not told of; it is told now.
    pub(crate) fn takes_news(&self) -> bool {
        let is_to_be_told = self.is_to_be_told.replace(false);
        if is_to_be_told && let Some(client) = &self.client {
            self.losses.change(client, |of_one| {
                of_one.to_tell = of_one.to_tell.saturating_sub(1);
                of_one.open += 1;
            });
        }
        self.seen.takes_news(&self.losses) || is_to_be_told
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(client) = &self.client else { return };
        let has_unflushed = self.losses.has_unflushed();
        let was_told = !self.is_to_be_told.get();
        self.losses.change(client, |of_one| {
            if was_told {
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
    fn every_open_descriptor_is_told_of_a_loss_once() {
        let losses = written();
        let (a, b) = (losses.open(), losses.open());
        losses.note_reopened(false);
        for of_one in [&a, &b] {
            assert!(of_one.takes_news(&losses) && !of_one.takes_news(&losses));
        }
        assert!(!losses.open().has_news(&losses), "the volume was opened after the loss was told");
    }

    #[test]
    fn a_loss_nobody_was_told_of_goes_to_the_next() {
        let losses = written();
        losses.note_reopened(false);
        assert!(losses.is_wanted());
        let (next, later) = (losses.connect(client(1)), losses.open());
        assert!(next.takes_news() && !next.takes_news());
        assert!(later.takes_news(&losses), "it was open when the loss was told first");
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
    fn a_client_that_reconnects_is_told_per_connection() {
        let losses = written();
        let (first, second) = (losses.connect(client(1)), losses.connect(client(1)));
        let other = losses.connect(client(2));
        drop(first);
        losses.note_reopened(false);
        drop((second, other));
        // One that leaves without being told has learnt nothing.
        drop(losses.connect(client(1)));
        for _ in 0..2 {
            let back = losses.connect(client(1));
            assert!(back.takes_news() && !back.takes_news());
        }
        assert!(!losses.connect(client(1)).takes_news(), "both were told");
        assert!(!losses.connect(client(3)).takes_news(), "it was not there");
        assert!(losses.connect(client(2)).takes_news());
        assert!(!losses.is_wanted(), "nothing is kept of clients that were told");
    }

    #[test]
    fn a_client_told_while_connected_is_told_of_each_loss() {
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
    fn a_failed_flush_is_told_to_all_others() {
        let losses = written();
        let (asked, other, connected) = (losses.open(), losses.open(), losses.connect(client(1)));
        let begun = losses.count();
        losses.note_failed_flush(begun);
        // Another flush that met the same failure.
        losses.note_failed_flush(begun);
        assert!(asked.takes_news(&losses) && other.takes_news(&losses) && !other.takes_news(&losses));
        assert!(connected.takes_news() && !connected.takes_news());
        assert!(!losses.open().has_news(&losses));
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
