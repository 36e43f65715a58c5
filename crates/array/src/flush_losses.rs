//! Refused flushes: which arrays lost writes, and which clients still have to be notified.
//!
//! A drive that refuses a flush may have dropped its cache, and the next flush succeeds: Linux
//! files and many drives behave so. The refusal therefore concerns everything that was written to
//! the drive since its last good flush, by every array on it, not only by the caller whose flush
//! failed.
//!
//! The drive's queue counts the refusals ([`FlushFailures`], one for each drive and all threads)
//! before it passes on the answer. After each flush, its
//! own or one that it joined, every array compares that count with the one that it has handled
//! ([`FlushLosses`], one per array). If they differ, the array has lost writes, whichever client
//! issued the refused flush. It excludes the drive, or, if it cannot do without it, fails the flush
//! and keeps the error until a client's flush has reported it, as `fsync` does.
//!
//! An operation of the engine that writes, flushes and then relies on it (a rebuild, a migration, a
//! checkpoint, a conversion) notes the count before its first write: another flush may meet the
//! refusal between its write and its own flush.
//!
//! The writes that the drive lost must not be read either. So the queue also notifies the arrays at
//! once, before it passes on the answer to any later read ([`OnRefusedFlush`]): an array that can
//! do without the drive reads nothing more from it. Arrays on other threads are notified before
//! their own thread passes on another answer of the drive; a read that the drive may have answered
//! after a refusal that its thread has not seen waits there until that flush has ended.
//!
//! Faults expected: a drive that refuses one flush and accepts the next; two arrays, or two tasks
//! of one array, that flush at the same time. No I/O here.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;
use stripewise_drive::{DriveError, Operation};

/// An array's immediate reaction to a refused flush.
pub(crate) trait OnRefusedFlush {
    /// Called when a drive refused a flush with `error`: it may have lost what it acknowledged
    /// since its last good flush.
    fn flush_was_refused(&self, error: &DriveError);
}

/// Refused flushes of a drive, on whichever thread.
#[derive(Default)]
pub struct FlushFailures {
    /// Changed with `last` locked.
    count: AtomicU64,
    last: Mutex<Option<DriveError>>,
}

impl FlushFailures {
    /// Counts the error if it is that of a flush, including a flush by which a drive implements a
    /// FUA write.
    pub(crate) fn note(&self, error: &DriveError) {
        if error.operation == Operation::Flush {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some(error.clone());
            self.count.store(self.count() + 1, Ordering::SeqCst);
        }
    }

    /// Number of refused flushes so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Last refusal, if there were any after the first `count`.
    pub fn since(&self, count: u64) -> Option<DriveError> {
        if self.count() == count {
            return None;
        }
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Refused flushes of an array's drives, handled and lost.
#[derive(Default)]
pub(crate) struct FlushLosses {
    /// Count of refusals that were handled, by drive number.
    handled: RefCell<FxHashMap<u32, u64>>,
    /// Number of losses: refusals by a drive that the array could not do without.
    lost: Cell<u64>,
    /// Number of losses that were reported to a client.
    reported: Cell<u64>,
    last: RefCell<Option<DriveError>>,
}

impl FlushLosses {
    /// Marks all refusals of the drive so far as handled: the drive has just come in, or the array
    /// has no data on it.
    pub(crate) fn deal_with(&self, number: u32, failures: &FlushFailures) {
        self.handled.borrow_mut().insert(number, failures.count());
    }

    /// Error of a flush that the drive refused since the last check, if any.
    pub(crate) fn news(&self, number: u32, failures: &FlushFailures) -> Option<DriveError> {
        let known = self.handled.borrow().get(&number).copied().unwrap_or(0);
        failures.since(known)
    }

    /// Records a loss: the array cannot do without the drive that gave `error`.
    pub(crate) fn note_lost(&self, number: u32, failures: &FlushFailures, error: &DriveError) {
        self.deal_with(number, failures);
        self.lost.set(self.lost.get() + 1);
        *self.last.borrow_mut() = Some(error.clone());
    }

    /// Gives away the losses that no client has learned of.
    pub(crate) fn take_unreported(&self) -> Option<DriveError> {
        let is_any = self.reported.replace(self.lost.get()) != self.lost.get();
        is_any.then(|| self.last.borrow().clone()).flatten()
    }

    /// Takes over losses of an array that is no longer used: the next flush here reports them.
    pub(crate) fn take_over(&self, error: DriveError) {
        self.lost.set(self.lost.get() + 1);
        *self.last.borrow_mut() = Some(error);
    }

    /// Number of losses so far. A caller that relies on its writes compares it before and after.
    pub(crate) fn count(&self) -> u64 {
        self.lost.get()
    }

    /// Fails with the last loss if there was one after the first `count`.
    pub(crate) fn check_since(&self, count: u64) -> Result<(), DriveError> {
        match &*self.last.borrow() {
            Some(error) if self.lost.get() != count => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Called when a client's write that began at `count` losses is about to be acknowledged. Its
    /// data may have been lost, and a flush that already reported the loss did not cover it: the
    /// next flush reports the loss again.
    pub(crate) fn acknowledge_write(&self, count: u64) {
        self.reported.set(self.reported.get().min(count));
    }

    /// Result of a client's flush that began at `count` losses. Each loss is reported by the next
    /// flush to end, and by all others that were in flight when it occurred.
    pub(crate) fn report_to_client(&self, count: u64) -> Result<(), DriveError> {
        self.check_since(self.reported.replace(self.lost.get()).min(count))
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
        assert!(first.news(3, &drive).is_none(), "handled once");
        assert!(second.news(3, &drive).is_some(), "handled by one array, still new to another");
        assert!(later.news(3, &drive).is_none());
        drive.note(&refused());
        assert!(
            first.news(3, &drive).is_some() && later.news(3, &drive).is_some(),
            "the next refusal is new again"
        );
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
        assert!(array.report_to_client(array.count()).is_ok());
        // Met by the engine itself: the next flush of a client reports it.
        array.note_lost(0, &drive, &refused());
        let (first, second) = (array.count(), array.count());
        assert!(array.report_to_client(first).is_err());
        assert!(array.report_to_client(second).is_ok());
        // Met by one of two flushes of clients: both report it, the next one does not.
        let (first, second) = (array.count(), array.count());
        array.note_lost(0, &drive, &refused());
        let third = array.count();
        assert!(array.report_to_client(first).is_err());
        assert!(array.report_to_client(second).is_err());
        assert!(array.report_to_client(third).is_ok());
    }

    #[test]
    fn flush_reports_losses_of_writes_that_overlapped() {
        let (drive, array) = (FlushFailures::default(), FlushLosses::default());
        let (before, flush) = (array.count(), array.count());
        array.note_lost(0, &drive, &refused());
        let after = array.count();
        assert!(array.report_to_client(flush).is_err());
        array.acknowledge_write(after);
        assert!(array.report_to_client(array.count()).is_ok(), "it began after the loss");
        array.acknowledge_write(before);
        assert!(array.report_to_client(array.count()).is_err());
        assert!(array.report_to_client(array.count()).is_ok());
    }

    #[test]
    fn jobs_see_losses_met_by_other_flushes() {
        let (drive, array) = (FlushFailures::default(), FlushLosses::default());
        let begun = array.count();
        assert!(array.check_since(begun).is_ok());
        array.note_lost(0, &drive, &refused());
        assert!(array.check_since(begun).is_err());
        let _ = array.report_to_client(begun);
        assert!(array.check_since(begun).is_err(), "reporting to a client changes nothing");
        assert!(array.check_since(array.count()).is_ok());
    }
}
