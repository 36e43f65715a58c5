//! Model of the open descriptors of a volume's file: which of them are still to report a loss.
//!
//! Acknowledged writes of a volume may be lost, for example by a drive that refuses a flush. The
//! next `fsync` reports that, through whichever descriptor. From then on each of the others that
//! was open is to report it as well, once, at its own next `fsync`.
//!
//! An error may have several causes. Where it is not certain that it reported a new loss, nothing
//! more is asked of the other descriptors.

use std::cell::Cell;

use crate::subject::File;

/// The descriptors of one file.
#[derive(Default)]
pub(crate) struct Descriptors {
    /// For each that is still to report a loss, the time at which another one reported it.
    owed_since: [Cell<Option<u64>>; File::DESCRIPTORS],
    /// For each, the number of `fsync`s in flight.
    in_flight: [Cell<u64>; File::DESCRIPTORS],
    /// True if a loss was reported through none of them yet.
    is_unreported: Cell<bool>,
}

/// Outcome of an `fsync`, or of a write that includes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Synced {
    Durable,
    /// Failed, for a reason of its own.
    Failed,
    /// Failed, to report a loss that another descriptor has reported.
    Repeated,
    /// Succeeded, although the descriptor was still to report a loss.
    Silent,
}

impl Descriptors {
    /// The file is closed and opened again.
    pub(crate) fn reopen(&self) {
        self.owed_since.iter().for_each(|since| since.set(None));
        self.in_flight.iter().for_each(|count| count.set(0));
        self.is_unreported.set(false);
    }

    /// Acknowledged writes may be lost.
    pub(crate) fn lose(&self) {
        self.is_unreported.set(true);
    }

    /// Begins an `fsync`, or a write that includes one.
    pub(crate) fn begin(&self, descriptor: usize) {
        let in_flight = &self.in_flight[descriptor];
        in_flight.set(in_flight.get() + 1);
    }

    /// Classifies an `fsync` that began at `begun` and ends at `now`.
    pub(crate) fn end(&self, descriptor: usize, begun: u64, now: u64, answer: Result<(), Meaning>) -> Synced {
        let owed_since = &self.owed_since[descriptor];
        let others = self.in_flight[descriptor].get().saturating_sub(1);
        self.in_flight[descriptor].set(others);
        let Err(meaning) = answer else {
            // One that was in flight when the loss was reported may have ended before. Where there
            // are others, one of them may report it.
            let is_silent = others == 0 && owed_since.get().is_some_and(|since| since < begun);
            return if is_silent { Synced::Silent } else { Synced::Durable };
        };
        if owed_since.take().is_some() {
            // The error may be that of a new loss, too.
            self.is_unreported.set(false);
            return Synced::Repeated;
        }
        if meaning != Meaning::OtherFailure && self.is_unreported.take() && meaning == Meaning::Loss {
            let others = self.owed_since.iter().enumerate().filter(|(other, _)| *other != descriptor);
            others.for_each(|(_, since)| since.set(Some(now)));
        }
        Synced::Failed
    }
}

/// Meaning of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Reports a loss, if there is one.
    Loss,
    /// May report a loss.
    PerhapsLoss,
    /// Lack of space, or a write that failed: the next `fsync` reports the loss.
    OtherFailure,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSS: Result<(), Meaning> = Err(Meaning::Loss);

    #[test]
    fn a_loss_is_owed_by_all_other_descriptors_once() {
        let file = Descriptors::default();
        file.lose();
        assert_eq!(file.end(1, 1, 2, LOSS), Synced::Failed);
        assert_eq!(file.end(1, 3, 4, Ok(())), Synced::Durable);
        assert_eq!(file.end(0, 1, 5, Ok(())), Synced::Durable, "it began before");
        assert_eq!(file.end(0, 6, 7, Ok(())), Synced::Silent);
        assert_eq!(file.end(0, 8, 9, LOSS), Synced::Repeated);
        assert_eq!(file.end(0, 10, 11, Ok(())), Synced::Durable);
    }

    #[test]
    fn one_of_several_in_flight_reports_a_loss() {
        let file = Descriptors::default();
        file.lose();
        assert_eq!(file.end(1, 1, 2, LOSS), Synced::Failed);
        (0..3).for_each(|_| file.begin(0));
        assert_eq!(file.end(0, 3, 6, Ok(())), Synced::Durable);
        assert_eq!(file.end(0, 4, 6, LOSS), Synced::Repeated);
        assert_eq!(file.end(0, 5, 7, Ok(())), Synced::Durable);
        file.lose();
        assert_eq!(file.end(1, 8, 9, LOSS), Synced::Failed);
        (0..2).for_each(|_| file.begin(0));
        assert_eq!(file.end(0, 10, 12, Ok(())), Synced::Durable);
        assert_eq!(file.end(0, 11, 13, Ok(())), Synced::Silent, "none of them reported it");
    }

    #[test]
    fn errors_of_other_kinds_are_owed_by_none() {
        let file = Descriptors::default();
        assert_eq!(file.end(0, 1, 2, LOSS), Synced::Failed);
        assert_eq!(file.end(1, 3, 4, Ok(())), Synced::Durable, "nothing was lost");
        file.lose();
        assert_eq!(file.end(0, 5, 6, Err(Meaning::OtherFailure)), Synced::Failed);
        assert_eq!(file.end(1, 7, 8, Ok(())), Synced::Durable);
        assert_eq!(file.end(0, 9, 10, LOSS), Synced::Failed);
        file.reopen();
        assert_eq!(file.end(1, 11, 12, Ok(())), Synced::Durable, "opened after the loss");
        file.lose();
        assert_eq!(file.end(0, 13, 14, Err(Meaning::PerhapsLoss)), Synced::Failed);
        assert_eq!(file.end(0, 15, 16, LOSS), Synced::Failed);
        assert_eq!(file.end(1, 17, 18, Ok(())), Synced::Durable, "it is not certain");
    }
}
