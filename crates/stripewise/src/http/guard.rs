//! Authentication of requests: over a unix socket by the user that the system names, otherwise by
//! the token in `Authorization: Bearer …`, or by the cookie of a session of the web console
//! (`console/sessions.rs`), whose changes must carry the session's CSRF token. A request that a
//! browser sends for a page of another site is refused first, whatever its method, with or without
//! a token.
//!
//! Expected faults: requests without a token, with a wrong one, or with headers that are not text.
//! Pages cannot forge their origin: browsers set `Origin` and `Sec-Fetch-Site` themselves.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use stripewise_control::daemon::refusals::Refusals;
use stripewise_control::roles::Class;
use stripewise_export::ClientId;

use super::access::{Access, AccessFile};
use super::address::Address;
use super::clients::{Clients, Place, too_many};
use super::console::sessions::Sessions;
use super::problem::error;
use super::visitor::Visitor;

/// The connection of a request.
#[derive(Clone)]
pub(super) struct Peer {
    /// Address of the client.
    pub address: Address,
    /// Its place among all connections.
    pub place: Arc<Mutex<Place>>,
    /// True with TLS.
    pub is_encrypted: bool,
}

/// Admits or refuses requests.
pub(super) struct Guard {
    /// Tokens and users.
    pub access: Arc<AccessFile>,
    /// Log of refused requests.
    pub refusals: Arc<Refusals>,
    /// Limits per client.
    pub clients: Clients,
    /// Sessions of the web console.
    pub sessions: Sessions,
}

/// Next step for a change without its CSRF token.
const CSRF_HINT: &str = "send `csrf` of GET /console/session in the header X-CSRF-Token";

type Refusal = (StatusCode, &'static str, Option<&'static str>);

impl Guard {
    fn visitor(&self, address: Address, method: &Method, headers: &HeaderMap) -> Result<Visitor, Refusal> {
        if is_of_another_site(headers) {
            return Err((StatusCode::FORBIDDEN, "requests of web pages of other sites are refused", None));
        }
        let access = self.access.current();
        if let Some(visitor) = user_of(&access, address) {
            return Ok(visitor);
        }
        let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = sent.and_then(|value| value.strip_prefix("Bearer ")).and_then(|sent| access.token(sent));
        let session = match sent {
            Some(_) => None,
            None => self.sessions.of(&access, headers),
        };
        if let Some(session) = &session
            && !matches!(*method, Method::GET | Method::HEAD)
            && !session.is_confirmed_by(headers)
        {
            return Err((
                StatusCode::FORBIDDEN,
                "a change in a session needs the session's CSRF token",
                Some(CSRF_HINT),
            ));
        }
        match token.or(session.map(|session| (session.token, session.role))) {
            Some((token, role)) => Ok(Visitor {
                name: format!("token {token} from {address}"),
                role,
                client: ClientId::Named(token),
                class: role.into(),
            }),
            None => Err((
                StatusCode::UNAUTHORIZED,
                "a valid token is needed: Authorization: Bearer SECRET",
                Some("tokens are in the file http.tokens in the daemon's state folder"),
            )),
        }
    }
}

/// The user of this machine that a connection comes from, if it has a role.
pub(super) fn user_of(access: &Access, address: Address) -> Option<Visitor> {
    let Address::Local { user, .. } = address else { return None };
    let role = access.user(user)?;
    let class = if Access::is_owner(user) { Class::Owner } else { role.into() };
    let client = ClientId::User { place: String::new(), user };
    Some(Visitor { name: address.to_string(), role, client, class })
}

/// True if a browser sends this for a page of another site. Programs send neither header.
pub(super) fn is_of_another_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("no text"));
    if text("sec-fetch-site").is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return true;
    }
    let Some(origin) = text("origin") else { return false };
    let own = origin.split_once("://").map(|(_, host)| host);
    own.is_none() || own != text("host")
}

/// Lets in who may come in; what comes behind finds a [`Visitor`] in the request.
pub(super) async fn let_in(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().cloned() else {
        return error(StatusCode::INTERNAL_SERVER_ERROR, "the connection has no address", None)
            .into_response();
    };
    match guard.visitor(peer.address, request.method(), request.headers()) {
        Ok(visitor) => {
            if !peer.place.lock().unwrap_or_else(PoisonError::into_inner).give_to(&visitor, &guard.clients) {
                guard.refusals.tell("HTTP", &peer.address, "too many of its connections are open");
                return too_many("connections");
            }
            request.extensions_mut().insert(guard.clients.allowance(&visitor));
            request.extensions_mut().insert(visitor);
            next.run(request).await
        }
        Err((status, why, hint)) => {
            guard.refusals.tell("HTTP", &peer.address, why);
            let asks = [(header::WWW_AUTHENTICATE, "Bearer")];
            let refusal = error(status, why, hint).into_response();
            if status == StatusCode::UNAUTHORIZED { (asks, refusal).into_response() } else { refusal }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_control::registry::own_user;
    use stripewise_control::roles::Role;
    use stripewise_export::budget::Budget;

    const TOKENS: &str = "token eyes read 0123456789abcdef\nuser 4711 operate\n";

    fn asked(address: Address, headers: &[(&'static str, &str)]) -> Result<Visitor, StatusCode> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let access = AccessFile::open(&path, true).expect("made");
        std::fs::write(&path, TOKENS).expect("written");
        let clients = Clients::new(&Budget::default());
        let sessions = Sessions::default();
        let guard = Guard { access: Arc::new(access), refusals: Arc::default(), clients, sessions };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a value"));
        }
        guard.visitor(address, &Method::GET, &map).map_err(|(status, ..)| status)
    }

    fn network() -> Address {
        Address::Network("127.0.0.1:5".parse().expect("an address"))
    }

    fn local(user: u32) -> Address {
        Address::Local { user, process: 7 }
    }

    #[test]
    fn tcp_needs_a_token_even_on_loopback() {
        let visitor = asked(network(), &[("authorization", "Bearer 0123456789abcdef")]).expect("let in");
        assert_eq!((visitor.name.as_str(), visitor.role), ("token eyes from 127.0.0.1:5", Role::Read));
        assert_eq!((visitor.client, visitor.class), (ClientId::Named("eyes".to_owned()), Class::Read));
        for wrong in ["Bearer 0123456789abcdeg", "Bearer ", "0123456789abcdef", "Bearer 0123456789abcdef0"] {
            assert_eq!(
                asked(network(), &[("authorization", wrong)]),
                Err(StatusCode::UNAUTHORIZED),
                "{wrong}"
            );
        }
        assert_eq!(asked(network(), &[("host", "localhost")]), Err(StatusCode::UNAUTHORIZED));
    }

    #[test]
    fn unix_socket_roles_follow_the_user_or_a_token() {
        let own = own_user().expect("a user");
        let role = |user| asked(local(user), &[]).map(|visitor| visitor.role);
        let class = |user| asked(local(user), &[]).map(|visitor| visitor.class);
        assert_eq!([class(0), class(4711)], [Ok(Class::Owner), Ok(Class::Operate)]);
        assert_eq!(role(own), Ok(Role::Admin));
        assert_eq!(role(0), Ok(Role::Admin));
        assert_eq!(role(4711), Ok(Role::Operate));
        assert_eq!(role(4712), Err(StatusCode::UNAUTHORIZED));
        let visitor = asked(local(4712), &[("authorization", "Bearer 0123456789abcdef")]).expect("let in");
        assert_eq!(visitor.name, "token eyes from uid 4712 (process 7)");
    }

    #[test]
    fn cross_site_requests_are_refused_even_with_a_token() {
        let token = ("authorization", "Bearer 0123456789abcdef");
        let host = ("host", "nas.example:8080");
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "http://evil.example:8080"),
            ("origin", "http://nas.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(asked(network(), &[token, host, foreign]), Err(StatusCode::FORBIDDEN), "{foreign:?}");
            assert_eq!(asked(local(0), &[host, foreign]), Err(StatusCode::FORBIDDEN), "{foreign:?}");
        }
        for own in [
            &[("origin", "http://nas.example:8080"), ("sec-fetch-site", "same-origin")][..],
            &[("sec-fetch-site", "none")],
            &[],
        ] {
            assert!(asked(network(), &[&[token, host], own].concat()).is_ok(), "{own:?}");
        }
    }
}
