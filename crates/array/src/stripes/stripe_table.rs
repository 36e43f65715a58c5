//! Serialises access to stripes. Writes, degraded reads, repairs and rebuilds of a stripe run one
//! at a time, in order of arrival; writes that wait for the same stripe are handed over together,
//! so that they can be merged.
//!
//! The first request for an idle stripe *leads* it: it holds the stripe and works for itself and
//! for all queued writes that fit. A write that finds the stripe held queues its piece. Later it
//! learns either that a leader has written it, or that it leads now itself. The table holds only
//! stripes in use, so its size is bounded by the number of admitted requests.
//!
//! Work on many stripes (rebuild, discard, scrub, column migration) takes them as a *group*: it
//! queues in all of them in one step and holds none until it is at the front of every queue. A
//! stripe where only a group's turn has come is *reserved*: later requests wait, but destaging may
//! use it in between. So work that waits for another stripe never holds the stripe whose record
//! keeps the journal full (`stripes/lock_order.rs`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustc_hash::FxHashMap;
use stripewise_drive::{Buffer, Event};

use crate::error::ArrayError;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::stripes::lock_order::{self, Holding};
use crate::write_back::pending::Room;

/// New data for a contiguous range of a stripe's data, bytes from the start of the stripe's data.
#[derive(Clone)]
pub(crate) struct Piece {
    pub from: u64,
    pub data: Buffer,
    pub fua: bool,
    /// Class of the caller that waits for it.
    pub class: Class,
    /// Journal space that allows the write to be deferred, see `write_back/destage.rs`.
    pub room: Option<Rc<RefCell<Option<Room>>>>,
}

impl Piece {
    pub(crate) fn to(&self) -> u64 {
        self.from + self.data.len() as u64
    }
}

pub(crate) enum Turn {
    /// The caller holds the stripe now, and its piece (if any) is first in the queue.
    Lead,
    /// A leader has written the piece, with this result.
    Done(Result<(), ArrayError>),
}

enum Signal {
    Waiting(Option<Waker>),
    Lead,
    Done(Result<(), ArrayError>),
    Taken,
}

pub(crate) struct Ticket(RefCell<Signal>);

impl Ticket {
    fn new() -> Rc<Self> {
        Rc::new(Self(RefCell::new(Signal::Waiting(None))))
    }

    fn signal(&self, signal: Signal) {
        if let Signal::Waiting(Some(waker)) = self.0.replace(signal) {
            waker.wake();
        }
    }

    pub(crate) fn finish(&self, result: Result<(), ArrayError>) {
        self.signal(Signal::Done(result));
    }
}

enum Wish {
    /// Write this piece, alone or merged with neighbours.
    Write(Piece),
    /// Hold the stripe exclusively, together with the group's others.
    Group(Rc<Group>),
    /// Share the stripe with other readers: for reads that decode, which need consistent data and
    /// parity.
    Shared,
}

struct Entry {
    ticket: Rc<Ticket>,
    wish: Wish,
}

impl Entry {
    fn piece(&self) -> Option<&Piece> {
        match &self.wish {
            Wish::Write(piece) => Some(piece),
            Wish::Group(_) | Wish::Shared => None,
        }
    }

    fn group(&self) -> Option<&Rc<Group>> {
        match &self.wish {
            Wish::Group(group) => Some(group),
            Wish::Write(_) | Wish::Shared => None,
        }
    }
}

/// Stripes that are locked together.
struct Group {
    stripes: Vec<u64>,
    /// Goes before all queued requests.
    is_ahead: bool,
    /// Number of stripes reserved for the group.
    reserved: Cell<usize>,
    has_begun: Cell<bool>,
    ticket: Rc<Ticket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Reserved for the group whose turn it is.
    Free,
    Alone,
    /// Number of readers.
    Shared(u32),
}

struct StripeState {
    hold: Hold,
    /// Groups that go before the queue.
    ahead: Vec<Rc<Group>>,
    queue: VecDeque<Entry>,
    /// Signals each request that joins the queue, for a leader that waits for more writes.
    joined: Option<Rc<Event>>,
}

impl StripeState {
    /// The group whose turn it is, if the next request is a group.
    fn next_group(&self) -> Option<&Rc<Group>> {
        self.ahead.first().or_else(|| self.queue.front().and_then(Entry::group))
    }
}

type Stripes = FxHashMap<u64, StripeState>;

/// Stripes of one array that are in use.
#[derive(Default)]
pub(crate) struct StripeTable {
    stripes: RefCell<Stripes>,
    spare_queues: RefCell<Vec<VecDeque<Entry>>>,
    contended: Cell<u64>,
}

impl lock_order::Stripes for StripeTable {}

const KEPT_QUEUES: usize = 256;

impl StripeTable {
    /// Queues a write. Returns its ticket if the caller leads the stripe at once, otherwise a
    /// future of its turn.
    pub(crate) fn enter(&self, stripe: u64, piece: Piece) -> Result<Rc<Ticket>, Waiting> {
        self.enter_with(stripe, Wish::Write(piece))
    }

    fn enter_with(&self, stripe: u64, wish: Wish) -> Result<Rc<Ticket>, Waiting> {
        let ticket = Ticket::new();
        let mut stripes = self.stripes.borrow_mut();
        let shared = matches!(wish, Wish::Shared);
        let entry = Entry { ticket: ticket.clone(), wish };
        if let Some(state) = stripes.get_mut(&stripe) {
            if shared
                && let Hold::Shared(readers) = &mut state.hold
                && state.ahead.is_empty()
                && state.queue.is_empty()
            {
                *readers += 1;
                return Ok(ticket);
            }
            state.queue.push_back(entry);
            if let Some(joined) = &state.joined {
                joined.notify_all();
            }
            self.contended.set(self.contended.get() + 1);
            return Err(Waiting { ticket });
        }
        let mut state = self.new_state(if shared { Hold::Shared(1) } else { Hold::Alone });
        if !shared {
            state.queue.push_back(entry);
        }
        stripes.insert(stripe, state);
        Ok(ticket)
    }

    fn new_state(&self, hold: Hold) -> StripeState {
        let queue = self.spare_queues.borrow_mut().pop().unwrap_or_default();
        StripeState { hold, ahead: Vec::new(), queue, joined: None }
    }

    /// Locks the stripe exclusively, waiting for its turn.
    pub(crate) async fn lock(self: &Rc<Self>, stripe: u64) -> StripeGuard {
        self.lock_all(vec![stripe]).await.pop().expect("one stripe, one guard")
    }

    /// Locks these stripes (in order, each once) exclusively, all at the same time. Until then it
    /// holds none.
    pub(crate) async fn lock_all(self: &Rc<Self>, stripes: Vec<u64>) -> Vec<StripeGuard> {
        self.lock_group(stripes, false).await
    }

    /// As [`Self::lock_all`], ahead of all requests that wait for any of the stripes. The present
    /// holders must not be waiting for the result of the caller's work.
    pub(crate) async fn lock_all_ahead(self: &Rc<Self>, stripes: Vec<u64>) -> Vec<StripeGuard> {
        self.lock_group(stripes, true).await
    }

    async fn lock_group(self: &Rc<Self>, stripes: Vec<u64>, is_ahead: bool) -> Vec<StripeGuard> {
        debug_assert!(stripes.is_sorted_by(|a, b| a < b), "a group has each of its stripes once");
        if stripes.len() > 1 && mutation::is_chosen(Mutation::LockOneByOne) {
            let mut guards = Vec::new();
            for stripe in stripes {
                guards.extend(Box::pin(self.lock_group(vec![stripe], false)).await);
            }
            return guards;
        }
        if !mutation::is_chosen(Mutation::LockOneByOne) {
            lock_order::assert_holds_none(&**self, "stripes");
        }
        if stripes.is_empty() {
            return Vec::new();
        }
        let table = match mutation::is_chosen(Mutation::LockWithoutWaiting) {
            true => Rc::new(Self::default()),
            false => self.clone(),
        };
        let ticket = Ticket::new();
        let (reserved, has_begun) = (Cell::new(0), Cell::new(false));
        let group = Rc::new(Group { stripes, is_ahead, reserved, has_begun, ticket: ticket.clone() });
        table.join(&group);
        let mut membership = Membership { table: &table, group: &group, is_over: false };
        if !group.has_begun.get() {
            let turn = Waiting { ticket }.await;
            assert!(matches!(turn, Turn::Lead), "a lock has no piece that a leader could write");
        }
        membership.is_over = true;
        group.stripes.iter().map(|&stripe| StripeGuard::new(&table, stripe)).collect()
    }

    /// Queues a group in all of its stripes.
    fn join(&self, group: &Rc<Group>) {
        let mut stripes = self.stripes.borrow_mut();
        for &stripe in &group.stripes {
            let state = stripes.entry(stripe).or_insert_with(|| self.new_state(Hold::Free));
            let was_next = state.next_group().cloned();
            if group.is_ahead {
                state.ahead.push(group.clone());
            } else {
                let entry = Entry { ticket: group.ticket.clone(), wish: Wish::Group(group.clone()) };
                state.queue.push_back(entry);
                if let Some(joined) = &state.joined {
                    joined.notify_all();
                }
            }
            let is_next = state.next_group().is_some_and(|next| Rc::ptr_eq(next, group));
            if state.hold == Hold::Free && is_next {
                if let Some(before) = was_next {
                    before.reserved.set(before.reserved.get() - 1);
                }
                group.reserved.set(group.reserved.get() + 1);
            } else {
                self.contended.set(self.contended.get() + 1);
            }
        }
        Self::begin_if_all_are_reserved(&mut stripes, group);
    }

    fn begin_if_all_are_reserved(stripes: &mut Stripes, group: &Rc<Group>) {
        if group.reserved.get() < group.stripes.len() {
            return;
        }
        for stripe in &group.stripes {
            let state = stripes.get_mut(stripe).expect("a reserved stripe is in the table");
            if group.is_ahead {
                state.ahead.remove(0);
            } else {
                state.queue.pop_front();
            }
            state.hold = Hold::Alone;
        }
        group.has_begun.set(true);
        group.ticket.signal(Signal::Lead);
    }

    /// Removes a dropped group from its queues, or releases its stripes if it has them.
    fn withdraw(&self, group: &Rc<Group>) {
        if group.has_begun.get() {
            group.stripes.iter().for_each(|&stripe| self.leave(stripe));
            return;
        }
        let mut stripes = self.stripes.borrow_mut();
        for &stripe in &group.stripes {
            let state = stripes.get_mut(&stripe).expect("a group is queued in its stripes");
            let was_reserved =
                state.hold == Hold::Free && state.next_group().is_some_and(|next| Rc::ptr_eq(next, group));
            state.ahead.retain(|other| !Rc::ptr_eq(other, group));
            state.queue.retain(|entry| entry.group().is_none_or(|other| !Rc::ptr_eq(other, group)));
            if was_reserved {
                self.pass_on(&mut stripes, stripe);
            }
        }
    }

    /// True if none of these stripes is held or waited for.
    pub(crate) fn are_unused(&self, stripes: impl IntoIterator<Item = u64>) -> bool {
        let used = self.stripes.borrow();
        used.is_empty() || stripes.into_iter().all(|stripe| !used.contains_key(&stripe))
    }

    /// Locks a stripe exclusively if no request holds it: it is idle, or reserved.
    pub(crate) fn try_lock(self: &Rc<Self>, stripe: u64) -> Option<StripeGuard> {
        if mutation::is_chosen(Mutation::LockWithoutWaiting) {
            let own = Rc::new(Self::default());
            own.stripes.borrow_mut().insert(stripe, self.new_state(Hold::Alone));
            return Some(StripeGuard::new(&own, stripe));
        }
        let mut stripes = self.stripes.borrow_mut();
        match stripes.get_mut(&stripe) {
            None => {
                stripes.insert(stripe, self.new_state(Hold::Alone));
            }
            Some(state) if state.hold == Hold::Free => {
                let group = state.next_group().expect("a stripe is reserved for a group");
                group.reserved.set(group.reserved.get() - 1);
                state.hold = Hold::Alone;
            }
            Some(_) => return None,
        }
        Some(StripeGuard::new(self, stripe))
    }

    /// Shares the stripe with other readers, waiting for writers that came before.
    pub(crate) async fn lock_shared(self: &Rc<Self>, stripe: u64) -> StripeGuard {
        lock_order::assert_holds_none(&**self, "a stripe");
        if let Err(waiting) = self.enter_with(stripe, Wish::Shared) {
            let turn = waiting.await;
            assert!(matches!(turn, Turn::Lead), "a lock has no piece that a leader could write");
        }
        StripeGuard::new(self, stripe)
    }

    /// For a leader: takes the pieces at the front of the queue that `fits` accepts; always the
    /// first.
    pub(crate) fn take_pieces(
        &self,
        stripe: u64,
        mut fits: impl FnMut(&[(Rc<Ticket>, Piece)], &Piece) -> bool,
    ) -> Vec<(Rc<Ticket>, Piece)> {
        let mut stripes = self.stripes.borrow_mut();
        let state = stripes.get_mut(&stripe).expect("a leader's stripe is in the table");
        state.joined = None;
        let mut taken: Vec<(Rc<Ticket>, Piece)> = Vec::with_capacity(1);
        while let Some(piece) = state.queue.front().and_then(Entry::piece) {
            if !taken.is_empty() && !fits(&taken, piece) {
                break;
            }
            let piece = piece.clone();
            let entry = state.queue.pop_front().expect("just seen");
            taken.push((entry.ticket, piece));
        }
        taken
    }

    /// For a leader that waits for more: the number of bytes of stripe data in the queued pieces,
    /// and an event that signals the next request. Overlapping pieces count twice, so the stripe
    /// may seem complete early, which is harmless.
    pub(crate) fn gathered(&self, stripe: u64) -> (u64, Rc<Event>) {
        let mut stripes = self.stripes.borrow_mut();
        let state = stripes.get_mut(&stripe).expect("a leader's stripe is in the table");
        let bytes = state.queue.iter().map_while(Entry::piece).map(|piece| piece.data.len() as u64).sum();
        (bytes, state.joined.get_or_insert_with(|| Rc::new(Event::new())).clone())
    }

    /// True if no request holds or waits for any stripe.
    pub(crate) fn is_idle(&self) -> bool {
        self.stripes.borrow().is_empty()
    }

    /// Releases a held stripe to the next request in its queue.
    pub(crate) fn leave(&self, stripe: u64) {
        let mut stripes = self.stripes.borrow_mut();
        let state = stripes.get_mut(&stripe).expect("a held stripe is in the table");
        match &mut state.hold {
            Hold::Shared(readers) if *readers > 1 => *readers -= 1,
            _ => self.pass_on(&mut stripes, stripe),
        }
    }

    /// Gives a stripe that is no longer held to the next request.
    fn pass_on(&self, stripes: &mut Stripes, stripe: u64) {
        let state = stripes.get_mut(&stripe).expect("a stripe that is passed on is in the table");
        state.hold = Hold::Free;
        if let Some(group) = state.next_group().cloned() {
            group.reserved.set(group.reserved.get() + 1);
            Self::begin_if_all_are_reserved(stripes, &group);
            return;
        }
        let mut readers = 0;
        while matches!(state.queue.front(), Some(Entry { wish: Wish::Shared, .. })) {
            let reader = state.queue.pop_front().expect("just seen");
            readers += 1;
            reader.ticket.signal(Signal::Lead);
        }
        if readers > 0 {
            state.hold = Hold::Shared(readers);
            return;
        }
        match state.queue.front() {
            Some(next) => {
                state.hold = Hold::Alone;
                next.ticket.signal(Signal::Lead);
            }
            None => {
                let state = stripes.remove(&stripe).expect("just seen");
                let mut spare = self.spare_queues.borrow_mut();
                if spare.len() < KEPT_QUEUES {
                    spare.push(state.queue);
                }
            }
        }
    }
}

/// A waiting group, which withdraws when this is dropped before it has its stripes.
struct Membership<'a> {
    table: &'a StripeTable,
    group: &'a Rc<Group>,
    is_over: bool,
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.table.withdraw(self.group);
        }
    }
}

/// Future of a piece or lock that has to wait. Once polled it must be driven to its end, because a
/// leader may count on it.
pub(crate) struct Waiting {
    ticket: Rc<Ticket>,
}

impl Future for Waiting {
    type Output = Turn;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn> {
        let mut signal = self.ticket.0.borrow_mut();
        match std::mem::replace(&mut *signal, Signal::Taken) {
            Signal::Waiting(_) => {
                *signal = Signal::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            Signal::Lead => {
                // The leader still has to finish its own piece.
                *signal = Signal::Waiting(None);
                Poll::Ready(Turn::Lead)
            }
            Signal::Done(result) => Poll::Ready(Turn::Done(result)),
            Signal::Taken => unreachable!("not polled after completion"),
        }
    }
}

/// Holds one stripe, exclusively or shared, and releases it when dropped.
pub(crate) struct StripeGuard {
    table: Rc<StripeTable>,
    stripe: u64,
    _holding: Holding,
}

impl StripeGuard {
    fn new(table: &Rc<StripeTable>, stripe: u64) -> Self {
        Self { table: table.clone(), stripe, _holding: lock_order::took(&**table, stripe) }
    }
}

impl Drop for StripeGuard {
    fn drop(&mut self) {
        self.table.leave(self.stripe);
    }
}

#[cfg(test)]
mod tests;
