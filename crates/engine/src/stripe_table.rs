//! Who works on which stripe: every write, degraded read, repair and rebuild of a stripe goes one at a time, in order of
//! arrival, and writes that wait for the same stripe are handed over together, so that they can become one.
//!
//! The first to ask for an idle stripe *leads* it: it holds the stripe and works for itself and for all writes queued
//! there that fit. A write that finds the stripe held queues its piece and later learns either that it was carried out by
//! a leader, or that it leads now itself. The table holds only stripes in use, so its size is bounded by the requests
//! admitted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_util::future::FutureExt;
use rustc_hash::FxHashMap;
use stripewise_drive::{Buffer, Event};

use crate::destage::Room;
use crate::error::ArrayError;
use crate::member::Class;
use crate::mutation::{self, Mutation};

/// New data for a contiguous range of a stripe's data, bytes from the start of the stripe's data.
#[derive(Clone)]
pub(crate) struct Piece {
    pub from: u64,
    pub data: Buffer,
    pub fua: bool,
    /// Who waits for it.
    pub class: Class,
    /// What it may be deferred with, see `destage.rs`.
    pub room: Option<Rc<RefCell<Option<Room>>>>,
}

impl Piece {
    pub fn to(&self) -> u64 {
        self.from + self.data.len() as u64
    }
}

pub(crate) enum Turn {
    /// The caller holds the stripe now, and its piece (if any) is first in the queue.
    Lead,
    /// A leader carried the piece out, with this result.
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

    pub fn finish(&self, result: Result<(), ArrayError>) {
        self.signal(Signal::Done(result));
    }
}

enum Wish {
    /// Write this, alone or together with neighbours.
    Write(Piece),
    /// Have the stripe alone.
    Alone,
    /// Have it beside other readers: for reads that decode, which need data and parity to belong together.
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
            Wish::Alone | Wish::Shared => None,
        }
    }
}

struct StripeState {
    queue: VecDeque<Entry>,
    /// How many share the stripe; 0 while one has it alone.
    readers: u32,
    /// Told of every piece that joins the queue, for a leader that holds back for more.
    joined: Option<Rc<Event>>,
}

/// All stripes in use of one array.
#[derive(Default)]
pub(crate) struct StripeTable {
    stripes: RefCell<FxHashMap<u64, StripeState>>,
    spare_queues: RefCell<Vec<VecDeque<Entry>>>,
    contended: Cell<u64>,
}

const KEPT_QUEUES: usize = 256;

impl StripeTable {
    /// Queues a write. Returns its ticket if the caller leads the stripe at once, else what to wait for.
    pub fn enter(&self, stripe: u64, piece: Piece) -> Result<Rc<Ticket>, Waiting> {
        self.enter_with(stripe, Wish::Write(piece))
    }

    fn enter_with(&self, stripe: u64, wish: Wish) -> Result<Rc<Ticket>, Waiting> {
        let ticket = Ticket::new();
        let mut stripes = self.stripes.borrow_mut();
        let shared = matches!(wish, Wish::Shared);
        let entry = Entry { ticket: ticket.clone(), wish };
        if let Some(state) = stripes.get_mut(&stripe) {
            if shared && state.readers > 0 && state.queue.is_empty() {
                state.readers += 1;
                return Ok(ticket);
            }
            state.queue.push_back(entry);
            if let Some(joined) = &state.joined {
                joined.notify_all();
            }
            self.contended.set(self.contended.get() + 1);
            return Err(Waiting { ticket });
        }
        let mut queue = self.spare_queues.borrow_mut().pop().unwrap_or_default();
        if !shared {
            queue.push_back(entry);
        }
        stripes.insert(stripe, StripeState { queue, readers: u32::from(shared), joined: None });
        Ok(ticket)
    }

    /// Takes the stripe alone, waiting for its turn.
    pub async fn lock(self: &Rc<Self>, stripe: u64) -> StripeGuard {
        if mutation::is_chosen(Mutation::LockWithoutWaiting) {
            let own = Rc::new(Self::default());
            let _ = own.enter_with(stripe, Wish::Alone);
            return StripeGuard { table: own, stripe };
        }
        if let Err(waiting) = self.enter_with(stripe, Wish::Alone) {
            let turn = waiting.await;
            assert!(matches!(turn, Turn::Lead), "nobody else can carry out a lock");
        }
        self.stripes.borrow_mut().get_mut(&stripe).expect("led").queue.pop_front();
        StripeGuard { table: self.clone(), stripe }
    }

    /// As [`Self::lock`], if nobody has the stripe.
    pub fn try_lock(self: &Rc<Self>, stripe: u64) -> Option<StripeGuard> {
        let is_busy = self.stripes.borrow().contains_key(&stripe);
        (!is_busy || mutation::is_chosen(Mutation::LockWithoutWaiting))
            .then(|| self.lock(stripe).now_or_never().expect("nobody to wait for"))
    }

    /// Shares the stripe with other readers, waiting for writers that came before.
    pub async fn lock_shared(self: &Rc<Self>, stripe: u64) -> StripeGuard {
        if let Err(waiting) = self.enter_with(stripe, Wish::Shared) {
            let turn = waiting.await;
            assert!(matches!(turn, Turn::Lead), "nobody else can carry out a lock");
        }
        StripeGuard { table: self.clone(), stripe }
    }

    /// For a leader: the pieces at the front of the queue that `fits` accepts, the first always.
    pub fn take_pieces(
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

    /// For a leader that holds back: bytes of the stripe's data covered by the pieces queued, and an event that tells
    /// of the next one. Pieces that overlap count twice: then the stripe is taken for complete early, which is harmless.
    pub fn gathered(&self, stripe: u64) -> (u64, Rc<Event>) {
        let mut stripes = self.stripes.borrow_mut();
        let state = stripes.get_mut(&stripe).expect("a leader's stripe is in the table");
        let bytes = state.queue.iter().map_while(Entry::piece).map(|piece| piece.data.len() as u64).sum();
        (bytes, state.joined.get_or_insert_with(|| Rc::new(Event::new())).clone())
    }

    /// Whether nobody works on any stripe, nor waits for one.
    pub fn is_idle(&self) -> bool {
        self.stripes.borrow().is_empty()
    }

    /// For whoever holds the stripe and is done: hands it to the next in its queue.
    pub fn leave(&self, stripe: u64) {
        let mut stripes = self.stripes.borrow_mut();
        let state = stripes.get_mut(&stripe).expect("a held stripe is in the table");
        if state.readers > 1 {
            state.readers -= 1;
            return;
        }
        state.readers = 0;
        while matches!(state.queue.front(), Some(Entry { wish: Wish::Shared, .. })) {
            let reader = state.queue.pop_front().expect("just seen");
            state.readers += 1;
            reader.ticket.signal(Signal::Lead);
        }
        if state.readers > 0 {
            return;
        }
        match state.queue.front() {
            Some(next) => next.ticket.signal(Signal::Lead),
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

/// Future of a piece or lock that has to wait. Once polled it must be driven to its end: a leader may count on it.
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
                // Its own piece is still to be finished, by itself.
                *signal = Signal::Waiting(None);
                Poll::Ready(Turn::Lead)
            }
            Signal::Done(result) => Poll::Ready(Turn::Done(result)),
            Signal::Taken => unreachable!("not polled after completion"),
        }
    }
}

/// Holds one stripe, alone or shared; gives it on when dropped.
pub(crate) struct StripeGuard {
    table: Rc<StripeTable>,
    stripe: u64,
}

impl Drop for StripeGuard {
    fn drop(&mut self) {
        self.table.leave(self.stripe);
    }
}
