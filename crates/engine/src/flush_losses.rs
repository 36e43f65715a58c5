//! What becomes of a flush that a drive refused.
//!
//! A drive that refuses a flush may have dropped its cache, and the next flush succeeds: Linux
//! files and many drives behave so. The refusal therefore concerns everything that was written to
//! the drive since its last good flush, by every array on it, and not only the caller that met it.
//!
//! The drive's queue counts the refusals ([`FlushFailures`], one per drive). Every array compares
//! that count with the one that it has dealt with ([`FlushLosses`], one per array) after each
//! flush, its own or one that it joined. Where they differ the array has lost writes, whichever
//! client asked for the flush that was refused. It excludes the drive, or, where it cannot do
//! without it, fails the flush and keeps the error until the next flush of a client has reported
//! it, as `fsync` does.
//!
//! An operation of the engine that writes, flushes and then relies on it (a rebuild, a migration, a
//! checkpoint, a conversion) notes the count before its first write: another flush may meet the
//! refusal between its write and its own flush.
//!
//! What the drive lost must not be read either. So the queue also tells the arrays at once, before
//! it passes on the answer to anything that the drive read later ([`OnRefusedFlush`]): an array
//! that can do without the drive reads nothing more from it.
//!
//! Faults expected: a drive that refuses one flush and accepts the next; two arrays, or two tasks
//! of one array, that flush at the same time. No I/O here.

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;
use stripewise_drive::{DriveError, Operation};

/// What an array does as soon as a drive refuses a flush.
pub(crate) trait OnRefusedFlush {
    /// The drive that gave `error` may have lost what it acknowledged since its last good flush.
    fn flush_was_refused(&self, error: &DriveError);
}

/// The flushes that a drive has refused.
#[derive(Default)]
pub(crate) struct FlushFailures {
    count: Cell<u64>,
    last: RefCell<Option<DriveError>>,
}

impl FlushFailures {
    /// Counts the error where it is that of a flush; also of one that the drive itself made a
    /// forced write of.
    pub(crate) fn note(&self, error: &DriveError) {
        if error.operation == Operation::Flush {
            self.count.set(self.count.get() + 1);
            *self.last.borrow_mut() = Some(error.clone());
        }
    }

    /// How many there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    /// The last of them, where there were any since there were `count`.
    pub(crate) fn since(&self, count: u64) -> Option<DriveError> {
        if self.count.get() == count { None } else { self.last.borrow().clone() }
    }
}

/// What an array knows of the refused flushes of its drives.
#[derive(Default)]
pub(crate) struct FlushLosses {
    /// By the drive's number: up to which count they are dealt with.
    dealt_with: RefCell<FxHashMap<u32, u64>>,
    /// Times that the array could not do without the drive, and so lost writes.
    lost: Cell<u64>,
    /// How many of these a client was told of.
    told: Cell<u64>,
    last: RefCell<Option<DriveError>>,
}

impl FlushLosses {
    /// What the drive has refused so far needs nothing more: the drive has just come in, or the
    /// array has nothing there.
    pub(crate) fn deal_with(&self, number: u32, failures: &FlushFailures) {
        self.dealt_with.borrow_mut().insert(number, failures.count());
    }

    /// The error of a flush that the drive refused since the array last looked, if it did.
    pub(crate) fn news(&self, number: u32, failures: &FlushFailures) -> Option<DriveError> {
        let known = self.dealt_with.borrow().get(&number).copied().unwrap_or(0);
        failures.since(known)
    }

    /// The array cannot do without the drive that gave `error`: what it lost is lost.
    pub(crate) fn note_lost(&self, number: u32, failures: &FlushFailures, error: &DriveError) {
        self.deal_with(number, failures);
        self.lost.set(self.lost.get() + 1);
        *self.last.borrow_mut() = Some(error.clone());
    }

    /// What clients were not told of yet is told by this one's flushes from now on: `other` is not
    /// asked any more.
    pub(crate) fn take_over(&self, other: &Self) {
        if other.told.replace(other.lost.get()) != other.lost.get() {
            self.lost.set(self.lost.get() + 1);
            *self.last.borrow_mut() = other.last.borrow().clone();
        }
    }

    /// How often writes were lost so far: to be compared by a caller that relies on writes that lie
    /// between.
    pub(crate) fn count(&self) -> u64 {
        self.lost.get()
    }

    /// Whether writes were lost since there were `count` losses.
    pub(crate) fn check_since(&self, count: u64) -> Result<(), DriveError> {
        match &*self.last.borrow() {
            Some(error) if self.lost.get() != count => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// A client's write that began when there were `count` losses is about to be acknowledged. What
    /// it sent before a loss may be gone, and a flush that has reported the loss already did not
    /// speak of it: the next one reports it again.
    pub(crate) fn acknowledge_write(&self, count: u64) {
        self.told.set(self.told.get().min(count));
    }

    /// What a client's flush that began when there were `count` losses has to report. Each loss is
    /// reported by the next flush to end, and by all others that were under way when it was met.
    pub(crate) fn tell_client(&self, count: u64) -> Result<(), DriveError> {
        self.check_since(self.told.replace(self.lost.get()).min(count))
    }
}

#[cfg(test)]
mod tests {
    use stripewise_drive::{DriveErrorKind, IoRequest};

    use super::*;

    fn refused() -> DriveError {
        IoRequest::flush().error(&"drive0".into(), DriveErrorKind::Medium, Some(5))
    }

    #[test]
    fn each_array_present_at_a_refusal_sees_it_once() {
        let (drive, first, second, later) = (
            FlushFailures::default(),
            FlushLosses::default(),
            FlushLosses::default(),
            FlushLosses::default(),
        );
        first.deal_with(3, &drive);
        second.deal_with(3, &drive);
        drive.note(&refused());
        later.deal_with(3, &drive);
        assert!(first.news(3, &drive).is_some());
        first.note_lost(3, &drive, &refused());
        assert!(first.news(3, &drive).is_none(), "dealt with once");
        assert!(second.news(3, &drive).is_some(), "what one array did about it says nothing of another");
        assert!(later.news(3, &drive).is_none());
        drive.note(&refused());
        assert!(first.news(3, &drive).is_some() && later.news(3, &drive).is_some(), "the next is news again");
    }

    #[test]
    fn only_flushes_count() {
        let drive = FlushFailures::default();
        let write = IoRequest::range(Operation::Write { fua: true }, 0, 0);
        drive.note(&write.error(&"drive0".into(), DriveErrorKind::Medium, Some(5)));
        assert_eq!(drive.count(), 0);
        drive.note(&refused());
        assert_eq!(drive.count(), 1);
    }

    #[test]
    fn flushes_in_flight_report_a_loss_once() {
        let (drive, array) = (FlushFailures::default(), FlushLosses::default());
        assert!(array.tell_client(array.count()).is_ok());
        // Met by the engine itself: the next client's flush reports it.
        array.note_lost(0, &drive, &refused());
        let (first, second) = (array.count(), array.count());
        assert!(array.tell_client(first).is_err());
        assert!(array.tell_client(second).is_ok());
        // Met by one of two flushes of clients: both report it, and the one after does not.
        let (first, second) = (array.count(), array.count());
        array.note_lost(0, &drive, &refused());
        let third = array.count();
        assert!(array.tell_client(first).is_err());
        assert!(array.tell_client(second).is_err());
        assert!(array.tell_client(third).is_ok());
    }

    #[test]
    fn flush_reports_losses_of_writes_that_overlapped() {
        let (drive, array) = (FlushFailures::default(), FlushLosses::default());
        let (before, flush) = (array.count(), array.count());
        array.note_lost(0, &drive, &refused());
        let after = array.count();
        assert!(array.tell_client(flush).is_err());
        array.acknowledge_write(after);
        assert!(array.tell_client(array.count()).is_ok(), "it began after the loss");
        array.acknowledge_write(before);
        assert!(array.tell_client(array.count()).is_err());
        assert!(array.tell_client(array.count()).is_ok());
    }

    #[test]
    fn jobs_see_losses_met_by_other_flushes() {
        let (drive, array) = (FlushFailures::default(), FlushLosses::default());
        let begun = array.count();
        assert!(array.check_since(begun).is_ok());
        array.note_lost(0, &drive, &refused());
        assert!(array.check_since(begun).is_err());
        let _ = array.tell_client(begun);
        assert!(array.check_since(begun).is_err(), "that a client was told changes nothing");
        assert!(array.check_since(array.count()).is_ok());
    }
}
