//! The gate for requests to the drives of a pool: the pool sees each request, and holds it back if
//! it must first check that the drives are still its own.

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use stripewise_drive::{Completion, IoRequest, completion};

use crate::member::{Class, Member};

/// Admission of requests. Requests for the pool's own record bypass it.
pub trait Gate {
    /// True if the request may go at once. Called once for each request.
    fn passes(&self, request: &IoRequest) -> bool;
    /// Ends when what may go on has been decided: else the members have failed.
    fn decided(&self) -> LocalBoxFuture<'static, ()>;
}

impl Member {
    /// Puts a gate before the drive.
    pub fn set_gate(&self, gate: Rc<dyn Gate>) {
        *self.gate.borrow_mut() = Some(gate);
    }

    /// Has a request wait that must not go at once.
    pub(super) fn held_back(
        self: &Rc<Self>,
        gate: &dyn Gate,
        class: Class,
        request: IoRequest,
    ) -> Completion {
        let (sender, completion) = completion();
        let (member, decided) = (self.clone(), gate.decided());
        self.context.spawn(async move {
            decided.await;
            sender.complete(member.submit_past_gate(class, request).await);
        });
        completion
    }
}
