//! Limits for each HTTP caller: connections, streams, and memory for requests and answers. A token
//! or user has at most its share, and every class of callers has a reserve, so that callers with
//! few rights cannot keep out those with more.
//!
//! Expected faults: callers that open connections and keep them, and that do not read answers.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use stripewise_control::daemon::news::MAX_FOLLOWERS;
use stripewise_control::roles::Class;
use stripewise_export::ClientId;
use stripewise_export::budget::Budget;
use stripewise_export::shares::{Client, Group, ShareRules, Shares, Taken};

use super::handshakes::HandshakeSlot;
use super::problem::{error, no_memory};
use super::visitor::Visitor;

/// Maximum connections of authenticated callers.
pub(super) const MAX_CONNECTIONS: u64 = 256;
/// Connections reserved for each class.
const CLASS_CONNECTIONS: u64 = 32;
/// Maximum connections of one token or user.
const MAX_CONNECTIONS_OF_ONE: u64 = 64;
/// Maximum event streams.
const MAX_STREAMS: u64 = MAX_FOLLOWERS as u64;
const CLASS_STREAMS: u64 = 4;
const MAX_STREAMS_OF_ONE: u64 = 8;
/// Answers up to this length are not counted: every connection has one at most.
const COUNTED_BYTES: u64 = 64 << 10;

/// The limits of all callers.
#[derive(Clone)]
pub(super) struct Clients {
    connections: [Group; 4],
    streams: [Group; 4],
    /// Memory of callers that may change everything, and of all others.
    memory: [Group; 2],
}

impl Clients {
    /// Limits of which nothing is used.
    pub(super) fn new(budget: &Budget) -> Self {
        let places = |total, group_reserve, client_limit| {
            let rules = ShareRules {
                total,
                group_reserve,
                least_common: 0,
                client_limit,
                client_first: 0,
                client_beside: 0,
            };
            let shares = Shares::new(rules);
            [(); 4].map(|()| shares.group())
        };
        Self {
            connections: places(MAX_CONNECTIONS, CLASS_CONNECTIONS, MAX_CONNECTIONS_OF_ONE),
            streams: places(MAX_STREAMS, CLASS_STREAMS, MAX_STREAMS_OF_ONE),
            memory: [(); 2].map(|()| budget.listener()),
        }
    }

    /// A connection's place among those of its caller.
    pub(super) fn connection(&self, visitor: &Visitor) -> Option<Taken> {
        self.connections[visitor.class as usize].client(visitor.client.clone()).take(1)
    }

    /// The limits for the requests of a caller.
    pub(super) fn allowance(&self, visitor: &Visitor) -> Allowance {
        let memory = usize::from(matches!(visitor.class, Class::Read | Class::Operate));
        Allowance {
            streams: self.streams[visitor.class as usize].client(visitor.client.clone()),
            memory: self.memory[memory].client(visitor.client.clone()),
        }
    }
}

/// The limits for the requests of one caller.
#[derive(Clone)]
pub(super) struct Allowance {
    /// Event streams.
    pub streams: Client,
    /// Bytes of request bodies and answers.
    pub memory: Client,
}

/// A connection's place: first among unauthenticated connections, then among its caller's.
#[derive(Default)]
pub(super) struct Place {
    stranger: Option<HandshakeSlot>,
    known: Option<((ClientId, Class), Taken)>,
}

impl Place {
    /// The place of an unauthenticated connection.
    pub(super) fn of_stranger(stranger: HandshakeSlot) -> Self {
        Self { stranger: Some(stranger), known: None }
    }

    /// True if the connection is not authenticated yet.
    pub(super) fn is_strangers(&self) -> bool {
        self.stranger.is_some()
    }

    /// Moves the connection to its caller's places; `false` if none is free.
    pub(super) fn give_to(&mut self, visitor: &Visitor, clients: &Clients) -> bool {
        let caller = (visitor.client.clone(), visitor.class);
        if self.known.as_ref().is_some_and(|(known, _)| *known == caller) {
            return true;
        }
        let Some(taken) = clients.connection(visitor) else { return false };
        *self = Self { stranger: None, known: Some((caller, taken)) };
        true
    }
}

/// The answer to a caller with too many connections or streams.
pub(super) fn too_many(what: &str) -> Response {
    let again = [(header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
    let text = format!("too many {what} are open with this token or role");
    (again, error(StatusCode::SERVICE_UNAVAILABLE, &text, Some("close others, or try again"))).into_response()
}

/// Marks an answer whose memory is already counted.
#[derive(Clone)]
pub(super) struct Counted;

/// Counts the memory of an answer until the client has read it. The answer to a change is given in
/// any case, since the change is done.
pub(super) async fn count_answer(request: Request, next: Next) -> Response {
    let memory = request.extensions().get::<Allowance>().map(|allowance| allowance.memory.clone());
    let may_be_refused = request.method() == Method::GET;
    let response = next.run(request).await;
    let length = response.body().size_hint().exact().unwrap_or_default();
    let is_counted = response.extensions().get::<Counted>().is_some();
    let (Some(memory), false, true) = (memory, is_counted, length > COUNTED_BYTES) else { return response };
    let Some(taken) = memory.take(length) else {
        return if may_be_refused { no_memory() } else { response };
    };
    let (parts, body) = response.into_parts();
    // The body is complete in memory: its length is known.
    let Ok(bytes) = axum::body::to_bytes(body, length as usize).await else {
        return error(StatusCode::INTERNAL_SERVER_ERROR, "the answer was lost", None).into_response();
    };
    Response::from_parts(parts, Body::from(held(bytes, taken)))
}

/// An answer's bytes with their part of the connection memory, which is freed once the client has
/// read the last of them.
pub(super) fn held(bytes: impl AsRef<[u8]> + Send + 'static, taken: Taken) -> Bytes {
    Bytes::from_owner(Held { bytes, _taken: taken })
}

struct Held<B> {
    bytes: B,
    _taken: Taken,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_control::roles::Role;

    fn visitor(name: &str, class: Class) -> Visitor {
        let role = match class {
            Class::Read => Role::Read,
            Class::Operate => Role::Operate,
            Class::Admin | Class::Owner => Role::Admin,
        };
        Visitor { name: name.to_owned(), role, client: ClientId::Named(name.to_owned()), class }
    }

    fn places(clients: &Clients, visitor: &Visitor) -> Vec<Taken> {
        std::iter::from_fn(|| clients.connection(visitor)).collect()
    }

    #[test]
    fn readers_leave_places_for_all_others() {
        let clients = Clients::new(&Budget::default());
        let held: Vec<_> =
            (0..9).map(|number| places(&clients, &visitor(&format!("r{number}"), Class::Read))).collect();
        assert_eq!(held[0].len(), 64, "its share");
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 160);
        for class in [Class::Operate, Class::Admin, Class::Owner] {
            assert_eq!(places(&clients, &visitor("other", class)).len(), 32, "{class:?}");
        }
        let streams: Vec<_> = (0..9)
            .map(|number| clients.allowance(&visitor(&format!("r{number}"), Class::Read)).streams)
            .collect();
        let taken: Vec<_> = streams.iter().flat_map(|of_one| std::iter::from_fn(|| of_one.take(1))).collect();
        assert_eq!(taken.len(), 20);
        assert!(clients.allowance(&visitor("a", Class::Admin)).streams.take(4).is_some());
    }

    #[test]
    fn a_connection_counts_for_its_present_caller() {
        let clients = Clients::new(&Budget::default());
        let (reader, admin) = (visitor("r", Class::Read), visitor("a", Class::Admin));
        let mut place = Place::default();
        assert!(place.give_to(&reader, &clients) && place.give_to(&reader, &clients));
        assert_eq!(places(&clients, &reader).len(), 63, "one place for any number of requests");
        assert!(place.give_to(&admin, &clients));
        let all = places(&clients, &reader);
        assert_eq!(all.len(), 64, "its place is free again");
        assert!(!place.give_to(&reader, &clients) && place.give_to(&admin, &clients));
    }

    #[test]
    fn unread_answers_of_others_leave_memory_to_admins() {
        let clients = Clients::new(&Budget::default());
        let mib = 1 << 20;
        let all = |visitor: &Visitor| {
            let memory = clients.allowance(visitor).memory;
            std::iter::from_fn(move || memory.take(mib)).collect::<Vec<_>>()
        };
        let held: Vec<_> =
            (0..9).map(|number| all(&visitor(&format!("r{number}"), Class::Operate))).collect();
        assert_eq!(held[0].len(), 96, "its share");
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 256 - 32);
        assert_eq!(all(&visitor("a", Class::Admin)).len(), 32);
        let answer = held_bytes(&clients);
        let part = answer.slice(0..1);
        drop((held, answer));
        assert_eq!(all(&visitor("b", Class::Operate)).len(), 96);
        drop(part);
    }

    fn held_bytes(clients: &Clients) -> Bytes {
        let memory = clients.allowance(&visitor("x", Class::Owner)).memory;
        held(vec![1; 1000], memory.take(1000).expect("beside all others"))
    }
}
