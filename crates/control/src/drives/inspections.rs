//! Places for inspections of drives' contents, each of which may read much, and for looks at paths,
//! each of which may wait long (`looks.rs`).
//!
//! A caller below `admin` has few places at most, and callers with `admin` have places of their
//! own: a caller with few rights cannot hold up a `pool create`.
//!
//! Expected faults: callers that ask for many inspections at once (their others wait), callers that
//! leave while they wait.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use stripewise_drive::{Semaphore, SemaphorePermit};
use stripewise_export::ClientId;

use crate::daemon::caller::Party;
use crate::messages::roles::Class;

/// Maximum concurrent inspections for callers below `admin`, and for the others.
const MAX_INSPECTIONS: u64 = 2;

/// All places.
pub(crate) struct Inspections {
    operators: Semaphore,
    admins: Semaphore,
    /// Clients below `admin` that inspect a drive or wait for it.
    clients: RefCell<HashMap<ClientId, Rc<Semaphore>>>,
    most_of_one: u64,
}

/// A place; free again when it is dropped.
pub(crate) struct Inspection {
    _place: SemaphorePermit,
    _of_client: Option<SemaphorePermit>,
}

impl Default for Inspections {
    fn default() -> Self {
        Self::new(MAX_INSPECTIONS, 1)
    }
}

impl Inspections {
    /// `most` places for callers below `admin`, as many for the others, and at most `most_of_one`
    /// for one client below `admin`.
    pub(crate) fn new(most: u64, most_of_one: u64) -> Self {
        let places = || Semaphore::new(most);
        Self { operators: places(), admins: places(), clients: RefCell::default(), most_of_one }
    }

    /// Waits for a place.
    pub(crate) async fn place(&self, party: &Party) -> Inspection {
        if matches!(party.class, Class::Admin | Class::Owner) {
            return Inspection { _place: self.admins.acquire(1).await, _of_client: None };
        }
        // First the client's own: at most these of its inspections wait among those of others.
        let own = self.of_client(&party.client);
        let of_client = own.acquire(1).await;
        Inspection { _place: self.operators.acquire(1).await, _of_client: Some(of_client) }
    }

    fn of_client(&self, client: &ClientId) -> Rc<Semaphore> {
        let mut clients = self.clients.borrow_mut();
        let most = self.most_of_one;
        clients.retain(|_, own| own.available() < most || Rc::strong_count(own) > 1);
        clients.entry(client.clone()).or_insert_with(|| Rc::new(Semaphore::new(most))).clone()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn place(inspections: &Inspections, name: &str, class: Class) -> Option<Inspection> {
        let party = Party { client: ClientId::Named(name.to_owned()), class };
        inspections.place(&party).now_or_never()
    }

    #[test]
    fn an_admin_waits_for_no_operators_inspection() {
        let inspections = Inspections::default();
        let first = place(&inspections, "a", Class::Operate).expect("free");
        assert!(place(&inspections, "a", Class::Operate).is_none(), "it has one already");
        let _second = place(&inspections, "b", Class::Read).expect("free");
        assert!(place(&inspections, "c", Class::Operate).is_none(), "all are taken");
        let _third = place(&inspections, "head", Class::Admin).expect("a place for admins");
        let _fourth = place(&inspections, "own", Class::Owner).expect("a place for admins");
        drop(first);
        let _again = place(&inspections, "a", Class::Operate).expect("free again");
    }

    #[test]
    fn clients_that_have_left_are_not_remembered() {
        let inspections = Inspections::default();
        for number in 0..100 {
            drop(place(&inspections, &number.to_string(), Class::Read));
        }
        assert!(inspections.clients.borrow().len() <= 1);
    }
}
