//! Memory that all connections of a process share, whichever way they came in. It is counted as
//! bytes arrive, not as they are announced, and freed when the answer was taken.
//!
//! A client has at most its share, and every listener has a reserve ([`Shares`]), so that clients
//! that take no answers keep only themselves waiting. A client's requests wait for its memory one
//! after the other, and of those that its share allows one of each listener may use the reserve: it
//! gets what it needs to be done, so requests that have half arrived never all wait for each other.
//! On one thread the first is the one with a permit; of the first ones of several threads it is the
//! one whose turn it is.
//!
//! Expected faults: clients that announce much and send little, or take no answers. Time limits end
//! them, which are shorter for those that hold much while memory is short.

use std::cell::RefCell;
use std::collections::HashMap;
use std::pin::pin;
use std::rc::{Rc, Weak};

use stripewise_drive::{Context, Semaphore, SemaphorePermit};

use crate::client_id::ClientId;
pub use crate::shares::Taken;
use crate::shares::{Client, Group, ShareRules, Shares, Turn, Turns, Urgency};

/// Memory for all connections unless something else is asked for.
pub(crate) const CONNECTION_BYTES: u64 = 256 << 20;
/// For the request of a listener, or of a client, that is to be finished: as much as the longest
/// needs.
const RESERVE_BYTES: u64 = 32 << 20;
/// Divisor of the memory: the share of one client. Its first request may exceed it by the reserve.
const CLIENT_PART: u64 = 4;
/// For small requests of each client, beside all that is shared.
const BESIDE_BYTES: u64 = 128 << 10;
/// Pause of a waiting request between two checks for free memory; it doubles each time.
const FIRST_LOOK_NS: u64 = 1_000_000;
const LONGEST_LOOK_NS: u64 = 16_000_000;

/// The memory. Clones are the same, on any thread.
#[derive(Clone, Debug)]
pub struct Budget(Shares);

impl Default for Budget {
    fn default() -> Self {
        Self::new(CONNECTION_BYTES)
    }
}

impl Budget {
    /// A budget of `limit_bytes`, or more if the listeners' reserves need more.
    pub fn new(limit_bytes: u64) -> Self {
        Self(Shares::new(ShareRules {
            total: limit_bytes,
            group_reserve: RESERVE_BYTES,
            least_common: RESERVE_BYTES,
            client_limit: (limit_bytes / CLIENT_PART).max(RESERVE_BYTES) + RESERVE_BYTES,
            client_first: RESERVE_BYTES,
            client_beside: BESIDE_BYTES,
        }))
    }

    /// Memory in use.
    pub fn used_bytes(&self) -> u64 {
        self.0.used()
    }

    /// A listener's part.
    pub fn listener(&self) -> Group {
        self.0.group()
    }
}

/// The clients of one listener that this thread serves.
pub(crate) struct Line {
    group: Group,
    first: Rc<Semaphore>,
    clients: RefCell<HashMap<ClientId, Weak<ClientLine>>>,
}

/// The requests of one client on this thread, whichever of its connections they come from.
pub(crate) struct ClientLine {
    client: Client,
    first: Semaphore,
    first_of_listener: Rc<Semaphore>,
    turns_of_listener: Turns,
}

/// One request's way to its memory.
pub(crate) struct Wanted<'a> {
    line: &'a ClientLine,
    context: &'a Context,
    taken: Taken,
    first_of_client: Option<First>,
    first_of_listener: Option<First>,
}

/// The right to be served before others: the first on its thread, and of all threads.
struct First {
    _of_thread: SemaphorePermit,
    of_all: Turn,
}

impl Line {
    /// For the clients of one listener.
    pub(crate) fn new(group: Group) -> Self {
        Self { group, first: Rc::new(Semaphore::new(1)), clients: RefCell::default() }
    }

    /// True if it is of this listener.
    pub(crate) fn is_of(&self, group: &Group) -> bool {
        self.group.is(group)
    }

    /// The listener's part of the memory.
    pub(crate) fn group(&self) -> &Group {
        &self.group
    }

    /// A client's requests.
    pub(crate) fn client(&self, id: &ClientId) -> Rc<ClientLine> {
        let mut clients = self.clients.borrow_mut();
        if let Some(known) = clients.get(id).and_then(Weak::upgrade) {
            return known;
        }
        clients.retain(|_, line| line.strong_count() > 0);
        let line = Rc::new(ClientLine {
            client: self.group.client(id.clone()),
            turns_of_listener: self.group.turns().clone(),
            first: Semaphore::new(1),
            first_of_listener: self.first.clone(),
        });
        clients.insert(id.clone(), Rc::downgrade(&line));
        line
    }
}

impl ClientLine {
    /// A request that will need memory.
    pub(crate) fn wanted<'a>(&'a self, context: &'a Context) -> Wanted<'a> {
        let taken = self.client.nothing();
        Wanted { line: self, context, taken, first_of_client: None, first_of_listener: None }
    }

    /// Reduction of the client's time limits for sending and receiving: 0 for the usual limits, 1
    /// if it holds much memory while memory is short. If only its own share is short, it delays
    /// only its own connections.
    pub(crate) fn haste(&self) -> f64 {
        let (own, common) = self.client.fill();
        // From half on.
        let shortage = |fill: f64| (2.0 * fill - 1.0).max(0.0);
        (shortage(common) * own).max(shortage(own) / 2.0)
    }
}

impl Wanted<'_> {
    /// Adds `bytes` as soon as they are free.
    pub(crate) async fn add(&mut self, bytes: u64) {
        let line = self.line;
        if self.taken.try_add(bytes, Urgency::Ordinary) {
            // Nothing of what is kept for the first is in use: others need not wait for this one.
            if !self.taken.uses_reserve() {
                (self.first_of_client, self.first_of_listener) = (None, None);
            }
            return;
        }
        if self.first_of_client.is_none() {
            let turns = line.client.turns();
            self.first_of_client = self.turn(&line.first, turns, bytes, Urgency::Ordinary).await;
            if self.first_of_client.is_none() {
                return;
            }
        }
        let mut look_ns = FIRST_LOOK_NS;
        while !self.taken.try_add(bytes, Urgency::FirstOfClient) {
            if !line.client.has_share(bytes) {
                // It waits for itself, and keeps no other client waiting.
                self.first_of_listener = None;
            } else if self.first_of_listener.is_none() {
                let (first, turns) = (&line.first_of_listener, &line.turns_of_listener);
                self.first_of_listener = self.turn(first, turns, bytes, Urgency::FirstOfClient).await;
                if self.first_of_listener.is_none() {
                    return;
                }
                continue;
            } else if self.taken.try_add(bytes, Urgency::FirstOfGroup) {
                return;
            }
            self.context.sleep_ns(look_ns).await;
            look_ns = (2 * look_ns).min(LONGEST_LOOK_NS);
        }
    }

    /// Waits for a turn; `None` where memory was there before it came, and was added.
    async fn turn(
        &mut self,
        first: &Semaphore,
        turns: &Turns,
        bytes: u64,
        urgency: Urgency,
    ) -> Option<First> {
        let (mut permit, mut look_ns) = (pin!(first.acquire(1)), FIRST_LOOK_NS);
        let mut of_thread: Option<First> = None;
        loop {
            if let Some(first) = of_thread.take_if(|first| first.of_all.is_first()) {
                return Some(first);
            }
            if of_thread.is_some() {
                self.context.sleep_ns(look_ns).await;
            } else if let Ok(permit) = self.context.time_limit_ns(look_ns, permit.as_mut()).await {
                of_thread = Some(First { _of_thread: permit, of_all: turns.enter() });
                continue;
            }
            if self.taken.try_add(bytes, urgency) {
                return None;
            }
            look_ns = (2 * look_ns).min(LONGEST_LOOK_NS);
        }
    }

    /// True if it is the first of its client's requests, for which others may have to wait.
    pub(crate) fn is_first(&self) -> bool {
        self.first_of_client.is_some()
    }

    /// The client's haste.
    pub(crate) fn haste(&self) -> f64 {
        self.line.haste()
    }

    /// Converts the reservation into memory held while the request is in flight. The client's next
    /// request may then reserve.
    pub(crate) fn into_taken(self) -> Taken {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn client(line: &Line, user: u32) -> Rc<ClientLine> {
        line.client(&ClientId::User { place: "s".to_owned(), user })
    }

    /// Answers of 1 MiB that are not taken, as many as there is memory for.
    async fn held(context: &Context, line: &Rc<ClientLine>) -> Vec<Taken> {
        let mut held = Vec::new();
        loop {
            let mut wanted = line.wanted(context);
            let added = context.time_limit_ns(100_000_000, Box::pin(wanted.add(MIB))).await;
            if added.is_err() {
                return held;
            }
            held.push(wanted.into_taken());
        }
    }

    #[test]
    fn partly_received_requests_do_not_deadlock() {
        for (of_one_client, threads) in [(true, 1), (false, 1), (true, 3), (false, 3)] {
            let executor = VirtualExecutor::new();
            let context = executor.context();
            executor.block_on(async {
                let budget = Budget::new(64 * MIB);
                let listener = budget.listener();
                let lines: Vec<_> = (0..threads).map(|_| Line::new(listener.clone())).collect();
                let work = |client: Rc<ClientLine>| {
                    let context = context.clone();
                    async move {
                        let mut wanted = client.wanted(&context);
                        for _ in 0..32 {
                            wanted.add(MIB).await;
                            // The next part takes a while to come.
                            context.sleep_ns(1_000_000).await;
                        }
                        drop(wanted.into_taken());
                    }
                };
                let number = |index: u32| if of_one_client { 0 } else { index };
                let line = |index: u32| &lines[index as usize % threads];
                let all: Vec<_> =
                    (0..20).map(|index| context.spawn(work(client(line(index), number(index))))).collect();
                for _ in 0..50 {
                    context.sleep_ns(1_000_000).await;
                    assert!(budget.used_bytes() <= 64 * MIB + 20 * BESIDE_BYTES);
                }
                for work in all {
                    let ended = context.time_limit_ns(600_000_000_000, work).await;
                    assert!(ended.is_ok(), "it waits for ever");
                }
                assert_eq!(budget.used_bytes(), 0, "all is given back");
            });
        }
    }

    #[test]
    fn untaken_answers_keep_only_their_client_waiting() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let budget = Budget::default();
            let (line, other) = (Line::new(budget.listener()), Line::new(budget.listener()));
            let greedy = client(&line, 0);
            let held_by_one = held(&context, &greedy).await;
            assert_eq!(held_by_one.len(), 96, "its share");
            // More of it wait.
            let waits = greedy.clone();
            let of_task = context.clone();
            let _waits = context.spawn(async move { waits.wanted(&of_task).add(MIB).await });
            let begun_ns = context.now_ns();
            for line in [&line, &other] {
                let victim = client(line, 1);
                victim.wanted(&context).add(32 * MIB).await;
            }
            assert_eq!(context.now_ns(), begun_ns, "at once");
            drop(held_by_one);
        });
    }

    #[test]
    fn many_greedy_clients_leave_others_enough() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let budget = Budget::default();
            let (line, other) = (Line::new(budget.listener()), Line::new(budget.listener()));
            let mut all_held = Vec::new();
            let greedy: Vec<_> = (0..6).map(|user| client(&line, user)).collect();
            for client in &greedy {
                all_held.push(held(&context, client).await);
            }
            assert_eq!(budget.used_bytes(), (256 - 32) * MIB, "all but the reserve of the other listener");
            let begun_ns = context.now_ns();
            let small = client(&line, 9);
            let small_ones: Vec<_> = (0..32).map(|_| small.wanted(&context)).collect();
            for mut wanted in small_ones {
                wanted.add(4096).await;
            }
            client(&other, 9).wanted(&context).add(32 * MIB).await;
            assert_eq!(context.now_ns(), begun_ns, "at once");
            assert!(small.haste() < 0.01, "it holds next to nothing");
            assert!(greedy[0].haste() > 0.9, "{}", greedy[0].haste());
            assert!(greedy[5].haste() < 0.1, "{}", greedy[5].haste());
        });
    }

    #[test]
    fn a_stalled_request_blocks_none_once_memory_is_free() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let budget = Budget::default();
            let client = client(&Line::new(budget.listener()), 0);
            let mut ordinary = client.client.nothing();
            while ordinary.try_add(MIB, Urgency::Ordinary) {}
            let mut stalled = client.wanted(&context);
            stalled.add(MIB).await;
            assert!(stalled.is_first());
            let (waiting, of_task) = (client.clone(), context.clone());
            let work = context.spawn(async move { waiting.wanted(&of_task).add(32 * MIB).await });
            context.sleep_ns(1_000_000_000).await;
            let begun_ns = context.now_ns();
            drop(ordinary);
            work.await;
            assert!(context.now_ns() - begun_ns < 100_000_000);
            stalled.add(MIB).await;
            assert!(!stalled.is_first(), "it needs no turn any more");
        });
    }

    #[test]
    fn a_client_that_waits_for_itself_blocks_no_other() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let budget = Budget::default();
            let (line, _other) = (Line::new(budget.listener()), budget.listener());
            let greedy: Vec<_> = (0..2).map(|user| client(&line, user)).collect();
            let mut all_held = Vec::new();
            for client in &greedy {
                all_held.extend(held(&context, client).await);
            }
            assert_eq!(all_held.len(), 192, "all that is common");
            let wait = |client: &Rc<ClientLine>| {
                let (client, of_task) = (client.clone(), context.clone());
                context.spawn(async move { client.wanted(&of_task).add(32 * MIB).await })
            };
            let waiting: Vec<_> = greedy.iter().map(wait).collect();
            context.sleep_ns(1_000_000_000).await;
            let begun_ns = context.now_ns();
            client(&line, 9).wanted(&context).add(32 * MIB).await;
            assert_eq!(context.now_ns(), begun_ns, "at once");
            drop(all_held);
            for work in waiting {
                work.await;
            }
        });
    }
}
