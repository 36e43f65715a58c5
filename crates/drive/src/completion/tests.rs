//! Every order in which the two ends can go away, and that cells come back for reuse, empty.

use super::*;
use crate::error::DriveErrorKind;
use crate::request::IoRequest;
use crate::support::CountingWaker;

fn free_cells() -> usize {
    FREE.with(|free| free.borrow().len())
}

fn failure() -> IoResult {
    Err(IoRequest::flush().error(&"test".into(), DriveErrorKind::Gone, None))
}

fn poll(completion: &mut Completion, waker: &Waker) -> Poll<IoResult> {
    Pin::new(completion).poll(&mut TaskContext::from_waker(waker))
}

/// A cell fresh from the pool must know nothing of its former life.
fn assert_next_cell_is_clean() {
    let (sender, mut completion) = completion();
    assert!(poll(&mut completion, Waker::noop()).is_pending());
    sender.complete(Ok(()));
    assert!(matches!(completion.try_take(), Ok(Ok(()))));
}

#[test]
fn answered_then_awaited() {
    assert_next_cell_is_clean();
    let before = free_cells();
    let (sender, mut future) = completion();
    assert_eq!(free_cells(), before - 1, "reused, not allocated");
    sender.complete(failure());
    assert!(matches!(poll(&mut future, Waker::noop()), Poll::Ready(Err(_))));
    assert_eq!(free_cells(), before);
    drop(future);
    assert_eq!(free_cells(), before, "not returned twice");
    assert_next_cell_is_clean();
}

#[test]
fn awaited_then_answered_wakes_the_latest_waker_once() {
    let (old, new) = (CountingWaker::new(), CountingWaker::new());
    let (sender, mut future) = completion();
    assert!(poll(&mut future, &old.clone().into()).is_pending());
    assert!(poll(&mut future, &new.clone().into()).is_pending());
    sender.complete(Ok(()));
    assert_eq!((old.count(), new.count()), (0, 1));
    assert!(poll(&mut future, Waker::noop()).is_ready());
}

#[test]
fn requester_may_drop_before_the_answer() {
    assert_next_cell_is_clean();
    let before = free_cells();
    let waker = CountingWaker::new();
    let (sender, mut future) = completion();
    assert!(poll(&mut future, &waker.clone().into()).is_pending());
    drop(future);
    sender.complete(failure());
    assert_eq!(free_cells(), before);
    assert_next_cell_is_clean();
}

#[test]
fn drive_may_drop_without_answering() {
    assert_next_cell_is_clean();
    let before = free_cells();
    let waker = CountingWaker::new();
    let (sender, mut future) = completion();
    assert!(poll(&mut future, &waker.clone().into()).is_pending());
    drop(sender);
    assert_eq!(waker.count(), 0);
    assert!(poll(&mut future, Waker::noop()).is_pending(), "stuck for ever, not an error");
    drop(future);
    assert_eq!(free_cells(), before);
    assert_next_cell_is_clean();
}

#[test]
fn unread_answer_frees_its_cell() {
    assert_next_cell_is_clean();
    let before = free_cells();
    let (sender, future) = completion();
    sender.complete(failure());
    drop(future);
    assert_eq!(free_cells(), before);
    assert_next_cell_is_clean();
}

#[test]
fn taking_early_gives_the_future_back() {
    let (sender, future) = completion();
    let Err(future) = future.try_take() else { panic!("no answer yet") };
    sender.complete(failure());
    assert!(matches!(future.try_take(), Ok(Err(_))));
    assert!(matches!(Completion::ready(Ok(())).try_take(), Ok(Ok(()))));
}

#[test]
fn kept_cells_are_bounded() {
    let many: Vec<_> = (0..KEPT_CELLS + 100).map(|_| completion()).collect();
    drop(many);
    assert_eq!(free_cells(), KEPT_CELLS);
}
