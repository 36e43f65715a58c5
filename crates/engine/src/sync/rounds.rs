//! Rounds of the same work, one at a time. A caller needs a round that begins after it has asked:
//! the one under way may not cover what the caller means. So it waits for that one, and for the
//! next, whichever caller makes it.

use std::cell::Cell;

use stripewise_drive::Event;

/// Counts of rounds.
#[derive(Default)]
pub(crate) struct Rounds {
    begun: Cell<u64>,
    /// The last round that ended well.
    done: Cell<u64>,
    is_under_way: Cell<bool>,
    ended: Event,
}

impl Rounds {
    /// Begins a round when none is under way; `None` where one that began after this call has ended
    /// well.
    pub(crate) async fn begin(&self) -> Option<Round<'_>> {
        let wanted = self.begun.get() + 1;
        while self.is_under_way.get() {
            self.ended.wait().await;
            if self.done.get() >= wanted {
                return None;
            }
        }
        self.is_under_way.set(true);
        let number = self.begun.get() + 1;
        self.begun.set(number);
        Some(Round { rounds: self, number })
    }
}

/// A round under way; it ends when this is dropped.
pub(crate) struct Round<'a> {
    rounds: &'a Rounds,
    number: u64,
}

impl Round<'_> {
    /// It has done its work, also for callers that wait for it.
    pub(crate) fn ends_well(&self) {
        self.rounds.done.set(self.number);
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.rounds.is_under_way.set(false);
        self.rounds.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn caller_is_served_by_a_round_begun_after_its_call() {
        let rounds = Rounds::default();
        let first = rounds.begin().now_or_never().flatten().expect("nothing is under way");
        let (mut second, mut third) = (pin!(rounds.begin()), pin!(rounds.begin()));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        first.ends_well();
        drop(first);
        // The first round began before they asked: one of them makes the next.
        let round = second.now_or_never().flatten().expect("its own round");
        assert!(third.as_mut().now_or_never().is_none());
        round.ends_well();
        drop(round);
        assert!(third.now_or_never().expect("served").is_none());
    }

    #[test]
    fn a_round_that_failed_serves_no_other_caller() {
        let rounds = Rounds::default();
        let first = rounds.begin().now_or_never().flatten().expect("nothing is under way");
        let (mut second, mut third) = (pin!(rounds.begin()), pin!(rounds.begin()));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        drop(first);
        drop(second.now_or_never().flatten().expect("its own round"));
        assert!(third.now_or_never().flatten().is_some(), "that one did nothing for it");
    }
}
