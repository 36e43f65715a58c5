//! Login with a token, the session's facts, and its end.
//!
//! Expected faults: wrong tokens (logged, as for other requests), pages of other sites, bodies that
//! are no login or never come.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::sessions::cookie_name;
use crate::http::api::Api;
use crate::http::guard::{Guard, Peer, is_of_another_site};
use crate::http::problem::error;

/// A login is short.
const MAX_BYTES: usize = 4096;
/// Time limit for the body of a login.
const PATIENCE: Duration = Duration::from_secs(10);

/// A login.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// The session, for the page.
#[derive(Serialize)]
struct Facts {
    /// Name of the token.
    name: String,
    /// `read`, `operate` or `admin`.
    role: String,
    /// To be sent with each change; `null` without a session.
    csrf: Option<String>,
    /// Name of the daemon's host.
    host: String,
    /// Version of the program.
    version: &'static str,
}

/// Begins a session.
pub(super) async fn login(
    State(guard): State<Arc<Guard>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let refused = |status, why: &str, hint| error(status, why, hint).into_response();
    if is_of_another_site(&headers) {
        return refused(StatusCode::FORBIDDEN, "requests of web pages of other sites are refused", None);
    }
    let body = match timeout(PATIENCE, to_bytes(body, MAX_BYTES)).await {
        Ok(Ok(body)) => body,
        _ => return refused(StatusCode::BAD_REQUEST, "the login did not come whole", None),
    };
    let Ok(Login { token }) = serde_json::from_slice(&body) else {
        return refused(StatusCode::BAD_REQUEST, "a login is {\"token\": SECRET}", None);
    };
    let access = guard.access.current();
    let Some((session, cookie)) = guard.sessions.begin(&access, token.trim()) else {
        guard.refusals.tell("HTTP", &peer.address, "a login with a token that is not valid");
        let hint = Some("tokens are in the file http.tokens in the daemon's state folder");
        return refused(StatusCode::UNAUTHORIZED, "this token is not valid", hint);
    };
    let facts =
        Facts { name: session.token, role: session.role.to_string(), csrf: Some(session.csrf), ..facts() };
    let cookie = format!("{}={cookie}; {}", cookie_name(&headers), attributes(&peer));
    ([(header::SET_COOKIE, cookie)], document(&facts)).into_response()
}

/// The present session.
pub(super) async fn session(api: Api, headers: HeaderMap) -> Response {
    let session = api.guard().sessions.of(&api.guard().access.current(), &headers);
    let name = session.as_ref().map_or_else(|| api.visitor.name.clone(), |session| session.token.clone());
    let csrf = session.map(|session| session.csrf);
    document(&Facts { name, role: api.visitor.role.to_string(), csrf, ..facts() })
}

/// Ends the session.
pub(super) async fn logout(api: Api, Extension(peer): Extension<Peer>, headers: HeaderMap) -> Response {
    if let Some(session) = api.guard().sessions.of(&api.guard().access.current(), &headers) {
        api.guard().sessions.end(&session);
    }
    let cookie = format!("{}=; Max-Age=0; {}", cookie_name(&headers), attributes(&peer));
    ([(header::SET_COOKIE, cookie)], document(&serde_json::json!({}))).into_response()
}

/// Attributes of the cookie: no script reads it, and no page of another site sends it.
fn attributes(peer: &Peer) -> &'static str {
    match peer.is_encrypted {
        true => "Path=/; HttpOnly; SameSite=Strict; Secure",
        false => "Path=/; HttpOnly; SameSite=Strict",
    }
}

fn facts() -> Facts {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    Facts { name: String::new(), role: String::new(), csrf: None, host, version }
}

fn document(facts: &impl Serialize) -> Response {
    let text = serde_json::to_string(facts).expect("plain data becomes JSON");
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (headers, text).into_response()
}
