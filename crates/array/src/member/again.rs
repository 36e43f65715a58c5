//! Members of one drive on several threads.
//!
//! The first member is that of the pool. Each other thread opens the drive once more and has a
//! member of its own, with the same label and the same state ([`Common`]). Gates belong to their
//! threads ([`Member::set_gate`]). Each member is stopped and lets go of the drive on its own
//! thread; the drive's file is closed with the last of them.
//!
//! Expected faults: a refused flush whose answer one thread has, while another one has the answer
//! to a read that it made out of date.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use stripewise_drive::{Context, OpenAgain, Operation};

use crate::member::common::Common;
use crate::member::queue::{Flight, key_of};
use crate::member::{Member, MemberOptions};

/// Makes a member of a drive on another thread.
pub struct MemberAgain {
    open: OpenAgain,
    options: MemberOptions,
    common: Arc<Common>,
}

impl MemberAgain {
    /// The member, on the calling thread.
    pub fn open(self, context: &Context) -> Rc<Member> {
        Member::opened(context, (self.open)(), self.options, self.common)
    }
}

/// A member of a drive on another thread, which ends when this is dropped.
pub(crate) struct Elsewhere(Box<dyn FnMut()>);

impl Elsewhere {
    /// `end` stops it there, and lets go of the drive.
    pub(crate) fn new(end: impl FnMut() + 'static) -> Self {
        Self(Box::new(end))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Member {
    /// Has a member on another thread end with this one.
    pub(crate) fn ends_with(&self, elsewhere: Elsewhere) {
        self.elsewhere.borrow_mut().push(elsewhere);
    }

    /// Opens the drive on another thread; `None` if it can be used on this one only, or was let go
    /// of.
    pub fn for_another_thread(&self) -> Option<MemberAgain> {
        let open = self.drive()?.for_another_thread()?;
        Some(MemberAgain { open, options: self.options, common: self.common.clone() })
    }

    /// Another member of the drive on this thread: stands for one on another thread, in virtual
    /// time. `None` if the drive was let go of.
    pub fn beside(&self, context: &Context) -> Option<Rc<Self>> {
        Some(Self::opened(context, self.drive()?, self.options, self.common.clone()))
    }

    /// True if the answer to a read is kept until a flush of another thread has ended. Should the
    /// drive refuse that flush, the read may have missed what it lost.
    pub(super) fn must_wait(&self, token: u64) -> bool {
        if !self.unflushed.is_any() || !self.common.has_several() {
            return false;
        }
        let queue = self.queue.borrow();
        let is_read = |flight: &Flight| flight.parts[0].request.operation == Operation::Read;
        queue.flights.get(key_of(token)).is_some_and(is_read)
            && self.common.flush_turn.is_elsewhere(&self.opening)
    }

    /// Does what other threads have called this one for.
    pub(super) fn catch_up(&self) {
        if !self.common.has_several() {
            return;
        }
        if self.is_failed() {
            return self.answer_all();
        }
        let mut queue = self.queue.borrow_mut();
        if !queue.held.is_empty() && !self.common.flush_turn.is_elsewhere(&self.opening) {
            let later = std::mem::take(&mut queue.answers);
            queue.answers = std::mem::take(&mut queue.held);
            queue.answers.extend(later);
        }
        if queue.flushes.next.is_some()
            && self.common.flush_turn.take(&self.opening)
            && let Some((class, next)) = queue.flushes.next.take()
        {
            queue.of(class).push(next);
        }
        drop(queue);
        self.tell_of_news();
    }

    /// Waits until there is something to land or to send, or another thread calls.
    pub(super) async fn until_woken(&self) {
        let mut wakeup = std::pin::pin!(self.wakeup.wait());
        poll_fn(|context| match wakeup.as_mut().poll(context) {
            Poll::Pending if self.opening.take_call() => Poll::Ready(()),
            poll => poll,
        })
        .await;
    }
}
