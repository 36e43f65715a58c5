//! The line of commands that change something: carried out one after the other, in the order in
//! which they came.
//!
//! Commands that only look take no turn, and neither does a pool's own recovery: it must not wait
//! for a caller. A command that connects to another machine, or reads much of a drive that is to
//! come in, lets others go on until that is done. Expected faults: more commands than can wait
//! (refused), callers that leave before their turn (their commands are not carried out).

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::{Semaphore, SemaphorePermit};

use crate::daemon::caller::{Caller, Left};
use crate::failure::{Failure, Reason};

/// Commands that may wait for their turn.
const MAX_WAITING: usize = 32;

/// The line.
pub struct Turns {
    turn: Rc<Semaphore>,
    waiting: Cell<usize>,
}

/// A command's turn; others have theirs when it is dropped.
pub struct Turn {
    _permit: SemaphorePermit,
    line: Line,
}

/// The line, for a command that had its turn and will go on with it.
pub(crate) struct Line(Rc<Semaphore>);

impl Turn {
    /// Lets others go on.
    pub(crate) fn let_go(self) -> Line {
        self.line
    }
}

impl Line {
    /// Waits for the turn again. What has begun is not refused, whatever waits.
    pub(crate) async fn take_again(self) -> Turn {
        Turn { _permit: self.0.acquire(1).await, line: self }
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
        Self { turn: Rc::new(Semaphore::new(1)), waiting: Cell::new(0) }
    }
}

impl Turns {
    /// Whether a command has its turn now.
    pub(crate) fn is_taken(&self) -> bool {
        self.turn.available() == 0
    }

    /// Waits for this caller's turn.
    pub async fn take(&self, caller: &Caller) -> Result<Turn, NoTurn> {
        let turn = |permit| Turn { _permit: permit, line: Line(self.turn.clone()) };
        if let Some(permit) = self.turn.try_acquire(1) {
            return Ok(turn(permit));
        }
        if self.waiting.get() >= MAX_WAITING {
            return Err(NoTurn::TooMany);
        }
        let _waiting = Waiting::begin(&self.waiting);
        tracing::debug!(target: "command", "a command waits for its turn");
        match caller.while_there(self.turn.acquire(1)).await {
            Ok(permit) => Ok(turn(permit)),
            Err(Left) => Err(NoTurn::Left),
        }
    }
}

impl From<NoTurn> for Failure {
    fn from(why: NoTurn) -> Self {
        match why {
            NoTurn::Left => Self::of(Reason::CallerLeft, "the caller left before its turn"),
            NoTurn::TooMany => {
                Self::of(Reason::Busy, format!("{MAX_WAITING} commands wait for the daemon already"))
                    .hint("run this again when some of them are done")
            }
        }
    }
}

struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a Cell<usize>) -> Self {
        waiting.set(waiting.get() + 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use stripewise_runtime::VirtualExecutor;

    use super::*;

    #[test]
    fn the_queue_is_bounded_and_drops_departed_callers() {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let turns = Rc::new(Turns::default());
            let first = turns.take(&Caller::new(None)).await.expect("none is before it");
            let callers: Vec<_> = (0..MAX_WAITING).map(|_| Rc::new(Caller::new(None))).collect();
            let waiting: Vec<_> = callers
                .iter()
                .map(|caller| {
                    let (turns, caller) = (turns.clone(), caller.clone());
                    context.spawn(async move { turns.take(&caller).await.map(drop) })
                })
                .collect();
            context.sleep_ns(1).await;
            let one_more = turns.take(&Caller::new(None)).await;
            assert_eq!(one_more.err(), Some(NoTurn::TooMany));
            for caller in callers.iter().step_by(2) {
                caller.leave();
            }
            context.sleep_ns(1).await;
            assert_eq!(turns.waiting.get(), MAX_WAITING / 2, "those that left wait no more");
            drop(first);
            for (index, waiting) in waiting.into_iter().enumerate() {
                let expected = if index % 2 == 0 { Err(NoTurn::Left) } else { Ok(()) };
                assert_eq!(waiting.await, expected, "{index}");
            }
        });
    }
}
