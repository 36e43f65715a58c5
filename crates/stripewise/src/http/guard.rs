//! Who is let in. With a token: whoever sends it as `Authorization: Bearer …`. Without one, which is for this machine only: whoever
//! reaches the address, but no page of a foreign site in somebody's browser, which could be made to reach it, too.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::api::error;

/// A shorter secret can be guessed.
pub const LEAST_TOKEN_BYTES: usize = 16;

/// Who is let in.
#[derive(Clone, Debug)]
pub struct Guard {
    /// What has to be sent; `None`: nothing.
    pub token: Option<String>,
}

impl Guard {
    fn refusal(&self, method: &Method, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(token) = &self.token {
            let sent = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
            let is_right = sent.is_some_and(|sent| same(sent.as_bytes(), token.as_bytes()));
            return (!is_right)
                .then_some((StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer TOKEN"));
        }
        // A foreign page can have its own name lead here; then that name is what it asks for.
        let is_ours = text(header::HOST).is_some_and(names_this_machine);
        if !is_ours {
            return Some((
                StatusCode::FORBIDDEN,
                "without a token only requests for this machine by name or address are answered",
            ));
        }
        // What a page sends without asking first names its origin, and cannot be JSON.
        if *method != Method::GET && text(header::ORIGIN).is_some() {
            return Some((StatusCode::FORBIDDEN, "without a token no requests of web pages are answered"));
        }
        None
    }
}

fn names_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Takes as long for any two of a length.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Lets in who may come in.
pub async fn let_in(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.refusal(request.method(), request.headers()) {
        Some((status, why)) => error(status, why, None).into_response(),
        None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(token: Option<&str>, method: Method, headers: &[(&'static str, &str)]) -> Option<StatusCode> {
        let guard = Guard { token: token.map(str::to_owned) };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a value"));
        }
        guard.refusal(&method, &map).map(|(status, _)| status)
    }

    #[test]
    fn a_token_lets_in_and_nothing_else_does() {
        let token = Some("0123456789abcdef");
        let asked =
            |value: &str| refused(token, Method::GET, &[("authorization", value), ("host", "localhost")]);
        assert_eq!(asked("Bearer 0123456789abcdef"), None);
        for wrong in ["Bearer 0123456789abcdeg", "Bearer ", "0123456789abcdef", "Bearer 0123456789abcdef0"] {
            assert_eq!(asked(wrong), Some(StatusCode::UNAUTHORIZED), "{wrong}");
        }
        assert_eq!(refused(token, Method::GET, &[("host", "localhost")]), Some(StatusCode::UNAUTHORIZED));
    }

    #[test]
    fn without_a_token_web_pages_are_kept_out() {
        let asked = |method, headers: &[(&'static str, &str)]| refused(None, method, headers);
        for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "localhost", "127.0.0.2"] {
            assert_eq!(asked(Method::POST, &[("host", host)]), None, "{host}");
        }
        for host in ["evil.example:8080", "evil.example", "10.0.0.1", "localhost.evil.example"] {
            assert_eq!(asked(Method::GET, &[("host", host)]), Some(StatusCode::FORBIDDEN), "{host}");
        }
        assert_eq!(asked(Method::GET, &[]), Some(StatusCode::FORBIDDEN));
        let page = [("host", "localhost:8080"), ("origin", "http://evil.example")];
        assert_eq!(asked(Method::POST, &page), Some(StatusCode::FORBIDDEN));
    }
}
