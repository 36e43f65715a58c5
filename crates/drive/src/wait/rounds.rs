//! Rounds of the same work, one at a time. A caller needs a round that begins after its call,
//! because a running round may not cover what the caller means. So it waits for the running round
//! and then for the next, whichever caller runs that.

use std::cell::Cell;

use super::Event;

/// Counters of the rounds.
#[derive(Default)]
pub struct Rounds {
    begun: Cell<u64>,
    /// Number of the last successful round.
    done: Cell<u64>,
    is_running: Cell<bool>,
    ended: Event,
}

impl Rounds {
    /// Begins a round once none is running; `None` if a round that began after this call has
    /// succeeded.
    pub async fn begin(&self) -> Option<Round<'_>> {
        let wanted = self.begun.get() + 1;
        while self.is_running.get() {
            self.ended.wait().await;
            if self.done.get() >= wanted {
                return None;
            }
        }
        self.is_running.set(true);
        let number = self.begun.get() + 1;
        self.begun.set(number);
        Some(Round { rounds: self, number })
    }
}

/// A running round, which ends when this is dropped.
pub struct Round<'a> {
    rounds: &'a Rounds,
    number: u64,
}

impl Round<'_> {
    /// Marks the round as successful, also for the callers that wait for it.
    pub fn ends_well(&self) {
        self.rounds.done.set(self.number);
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.rounds.is_running.set(false);
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
        let first = rounds.begin().now_or_never().flatten().expect("no round is running");
        let (mut second, mut third) = (pin!(rounds.begin()), pin!(rounds.begin()));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        first.ends_well();
        drop(first);
        // The first round began before these two calls: one of them runs the next.
        let round = second.now_or_never().flatten().expect("its own round");
        assert!(third.as_mut().now_or_never().is_none());
        round.ends_well();
        drop(round);
        assert!(third.now_or_never().expect("served").is_none());
    }

    #[test]
    fn a_round_that_failed_serves_no_other_caller() {
        let rounds = Rounds::default();
        let first = rounds.begin().now_or_never().flatten().expect("no round is running");
        let (mut second, mut third) = (pin!(rounds.begin()), pin!(rounds.begin()));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        drop(first);
        drop(second.now_or_never().flatten().expect("its own round"));
        assert!(third.now_or_never().flatten().is_some(), "the failed round does not count");
    }
}
