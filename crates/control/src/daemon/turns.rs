//! The queues of commands that change something: those that change the same pool are executed one
//! after the other, in order of arrival. A change that waits for a slow drive holds up no other
//! pool.
//!
//! Commands that only look take no turn, and neither does a pool's own recovery: it must not wait
//! for a caller. A command that connects to another machine, or reads much of a drive that is to
//! come in, lets others go on until that is done.
//!
//! A client has at most its share of the places in all queues, and callers with `admin` have places
//! that others cannot take: a caller with few rights does not keep out those who would stop it.
//!
//! Expected faults: more commands than can wait (refused), callers that leave before their turn
//! (their commands are dropped).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use stripewise_drive::{Semaphore, SemaphorePermit};
use stripewise_export::shares::{Group, ShareRules, Shares};

use crate::daemon::caller::{Caller, Left};
use crate::failure::{Failure, Reason};
use crate::messages::roles::Class;

/// Commands that may wait for their turn.
const MAX_WAITING: u64 = 32;
/// Those of one token, user or process.
const MAX_WAITING_OF_ONE: u64 = 8;
/// Places kept for each of [`Waiting`].
const RESERVE: u64 = 4;

/// The queues.
pub struct Turns {
    queues: RefCell<BTreeMap<String, Rc<Semaphore>>>,
    waiting: Waiting,
}

/// Places in the queues, with a reserve for each.
struct Waiting {
    operators: Group,
    admins: Group,
    owner: Group,
}

/// A command's turn in each of its queues; others have theirs when it is dropped.
pub struct Turn {
    _permits: Vec<SemaphorePermit>,
    line: Line,
}

/// The queues of a command that had its turn and will go on with it.
pub(crate) struct Line(Vec<Rc<Semaphore>>);

impl Turn {
    /// Lets others go on.
    pub(crate) fn let_go(self) -> Line {
        self.line
    }
}

impl Line {
    /// Waits for the turn again. What has begun is not refused, whatever waits.
    pub(crate) async fn take_again(self) -> Turn {
        Turn { _permits: self.permits().await, line: self }
    }

    /// The turn, if none is before it.
    fn at_once(&self) -> Option<Vec<SemaphorePermit>> {
        self.0.iter().map(|queue| queue.try_acquire(1)).collect()
    }

    /// In the order of names, which is the same for all: no two commands wait for each other.
    async fn permits(&self) -> Vec<SemaphorePermit> {
        let mut permits = Vec::new();
        for queue in &self.0 {
            permits.push(queue.acquire(1).await);
        }
        permits
    }
}

/// Why a command gets no turn.
#[derive(Debug, PartialEq, Eq)]
pub enum NoTurn {
    /// Its caller left.
    Left,
    /// Too many wait.
    TooMany,
}

impl Default for Turns {
    fn default() -> Self {
        let places = Shares::new(ShareRules {
            total: MAX_WAITING,
            group_reserve: RESERVE,
            least_common: 0,
            client_limit: MAX_WAITING_OF_ONE,
            client_first: 0,
            client_beside: 0,
        });
        let waiting = Waiting { operators: places.group(), admins: places.group(), owner: places.group() };
        Self { queues: RefCell::default(), waiting }
    }
}

impl Turns {
    /// True if a command has its turn now.
    pub(crate) fn is_any_taken(&self) -> bool {
        self.queues.borrow().values().any(|queue| queue.available() == 0)
    }

    /// The queues of what a command changes, given in order.
    fn line(&self, changed: &[String]) -> Line {
        let mut queues = self.queues.borrow_mut();
        queues.retain(|_, queue| queue.available() == 0 || Rc::strong_count(queue) > 1);
        let queue =
            |name: &String| queues.entry(name.clone()).or_insert_with(|| Rc::new(Semaphore::new(1))).clone();
        Line(changed.iter().map(queue).collect())
    }

    /// Waits for this caller's turn to change what is named, in the order of
    /// [`Request::changes`](crate::messages::request::Request::changes).
    pub async fn take(&self, caller: &Caller, changed: &[String]) -> Result<Turn, NoTurn> {
        let line = self.line(changed);
        if let Some(permits) = line.at_once() {
            return Ok(Turn { _permits: permits, line });
        }
        let party = caller.party();
        let group = match party.class {
            Class::Read | Class::Operate => &self.waiting.operators,
            Class::Admin => &self.waiting.admins,
            Class::Owner => &self.waiting.owner,
        };
        let _place = group.client(party.client.clone()).take(1).ok_or(NoTurn::TooMany)?;
        tracing::debug!(target: "command", "a command waits for its turn");
        let waited = caller.while_there(line.permits()).await;
        let permits = waited.map_err(|Left| NoTurn::Left)?;
        Ok(Turn { _permits: permits, line })
    }
}

impl From<NoTurn> for Failure {
    fn from(why: NoTurn) -> Self {
        match why {
            NoTurn::Left => Self::of(Reason::CallerLeft, "the caller left before its turn"),
            NoTurn::TooMany => Self::of(Reason::Busy, "too many commands wait for the daemon already")
                .hint("run this again when some of them are done"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use stripewise_drive::Context;
    use stripewise_export::ClientId;
    use stripewise_runtime::VirtualExecutor;

    use super::*;
    use crate::daemon::caller::Party;

    fn caller(name: &str, class: Class) -> Rc<Caller> {
        Rc::new(Caller::new(None).of(Party { client: ClientId::Named(name.to_owned()), class }))
    }

    fn tank() -> [String; 1] {
        ["tank".to_owned()]
    }

    #[test]
    fn a_slow_change_holds_up_its_pools_alone() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let turns = Rc::new(Turns::default());
            let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
            let head = caller("x", Class::Admin);
            let slow = turns.take(&head, &names(&["below", "tank"])).await.expect("none is before it");
            for _ in 0..2 {
                let lake = names(&["lake"]);
                let other = turns.take(&head, &lake);
                drop(
                    context.time_limit_ns(1, std::pin::pin!(other)).await.expect("it waits").expect("a turn"),
                );
            }
            for changed in [&["below"][..], &["tank"], &["lake", "tank"]] {
                let names = names(changed);
                let same = std::pin::pin!(turns.take(&head, &names));
                assert!(context.time_limit_ns(1, same).await.is_err(), "{changed:?}");
            }
            drop(slow);
            drop(turns.take(&head, &names(&["below", "lake", "tank"])).await.expect("all are free"));
            assert!(!turns.is_any_taken());
        });
    }

    /// The callers of this number of commands that wait, as many as are let in.
    async fn wait(
        turns: &Rc<Turns>,
        context: &Context,
        name: &str,
        class: Class,
        commands: usize,
    ) -> Vec<Rc<Caller>> {
        let refused = Rc::new(std::cell::RefCell::new(Vec::new()));
        let callers: Vec<_> = (0..commands).map(|_| caller(name, class)).collect();
        for caller in &callers {
            let (turns, caller, refused) = (turns.clone(), caller.clone(), refused.clone());
            drop(context.spawn(async move {
                if let Err(NoTurn::TooMany) = turns.take(&caller, &tank()).await.map(drop) {
                    refused.borrow_mut().push(caller);
                }
            }));
        }
        context.sleep_ns(1).await;
        let refused = refused.borrow();
        callers.into_iter().filter(|caller| !refused.iter().any(|other| Rc::ptr_eq(caller, other))).collect()
    }

    #[test]
    fn one_client_cannot_fill_the_line() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let turns = Rc::new(Turns::default());
            let _first = turns.take(&caller("x", Class::Admin), &tank()).await.expect("none is before it");
            let line = async |name: &str, class| wait(&turns, &context, name, class, 40).await.len();
            let mut operators = 0;
            for name in ["a", "b", "c", "d"] {
                operators += line(name, Class::Operate).await;
            }
            assert_eq!(operators, 8 + 8 + 8, "three shares: the rest is kept for others");
            assert_eq!(line("e", Class::Operate).await, 0);
            assert_eq!(line("head", Class::Admin).await, 4);
            assert_eq!(line("own", Class::Owner).await, 4);
        });
    }

    #[test]
    fn departed_callers_leave_the_line() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let turns = Rc::new(Turns::default());
            let first = turns.take(&caller("x", Class::Owner), &tank()).await.expect("none is before it");
            let callers: Vec<_> = (0..8).map(|_| caller("a", Class::Operate)).collect();
            let waiting: Vec<_> = callers
                .iter()
                .map(|caller| {
                    let (turns, caller) = (turns.clone(), caller.clone());
                    context.spawn(async move { turns.take(&caller, &tank()).await.map(drop) })
                })
                .collect();
            context.sleep_ns(1).await;
            let one_more = turns.take(&caller("a", Class::Operate), &tank()).await;
            assert_eq!(one_more.err(), Some(NoTurn::TooMany));
            callers.iter().step_by(2).for_each(|caller| caller.leave());
            context.sleep_ns(1).await;
            assert_eq!(
                wait(&turns, &context, "a", Class::Operate, 8).await.len(),
                4,
                "their places are free"
            );
            drop(first);
            for (index, waiting) in waiting.into_iter().enumerate() {
                let expected = if index % 2 == 0 { Err(NoTurn::Left) } else { Ok(()) };
                assert_eq!(waiting.await, expected, "{index}");
            }
        });
    }
}
