//! Sessions of the web console. The cookie names the token that logged in and is authenticated with
//! the token's secret, so a session needs no memory, survives a restart of the daemon, and ends
//! when its token is withdrawn or replaced. The same secret makes the session's CSRF token, which
//! only pages of this origin can read.
//!
//! Expected faults: cookies that are forged, cut, expired, or of another daemon on this host
//! (cookies are not separated by port, so the port is part of the name).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, header};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use stripewise_control::roles::Role;

use crate::http::access::Access;

/// Header with the CSRF token of a change.
pub(in crate::http) const CSRF_HEADER: &str = "x-csrf-token";
/// Duration of a session.
const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Maximum number of sessions of one token remembered as ended before their time.
const MAX_ENDED: usize = 64;
const NONCE_BYTES: usize = 16;

/// A session.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) struct Session {
    /// Name of its token.
    pub token: String,
    /// Role of its token.
    pub role: Role,
    /// CSRF token.
    pub csrf: String,
    nonce: String,
    expires_s: u64,
}

impl Session {
    /// True if the request carries the session's CSRF token.
    pub(in crate::http) fn is_confirmed_by(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(CSRF_HEADER).map(|value| value.as_bytes()).unwrap_or_default();
        sent.len() == self.csrf.len()
            && sent.iter().zip(self.csrf.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

/// Sessions that were ended before their time, by token.
#[derive(Default)]
pub(in crate::http) struct Sessions(Mutex<HashMap<String, Ended>>);

/// Sessions of one token that were ended. The token of another caller has its own, so a caller
/// cannot keep the sessions of others from being ended.
#[derive(Default)]
struct Ended {
    /// By nonce, with the time at which they expire.
    some: HashMap<String, u64>,
    /// All that expire before this time.
    all_before_s: u64,
}

impl Ended {
    fn has(&self, nonce: &str, expires_s: u64) -> bool {
        expires_s < self.all_before_s || self.some.contains_key(nonce)
    }

    /// Adds a session. If there are too many, all that began before now have ended.
    fn add(&mut self, session: &Session, now_s: u64) {
        if self.some.len() >= MAX_ENDED {
            self.some.clear();
            self.all_before_s = now_s + LASTS.as_secs();
        }
        self.some.insert(session.nonce.clone(), session.expires_s);
    }

    /// Forgets what has expired; true if there is more.
    fn still_counts(&mut self, now_s: u64) -> bool {
        self.some.retain(|_, expires_s| *expires_s > now_s);
        !self.some.is_empty() || self.all_before_s > now_s
    }
}

impl Sessions {
    /// Begins a session with a token. Returns the session and its cookie, or `None` if no token has
    /// the secret.
    pub(super) fn begin(&self, access: &Access, secret: &str) -> Option<(Session, String)> {
        let (token, _) = access.token(secret)?;
        let mut nonce = [0; NONCE_BYTES];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let signed = format!("{}.{}", now_s() + LASTS.as_secs(), hex(&nonce));
        let cookie = format!("{signed}.{}.{token}", sign(secret, "session", &signed, &token));
        Some((self.find(access, &cookie)?, cookie))
    }

    /// The session of a request.
    pub(in crate::http) fn of(&self, access: &Access, headers: &HeaderMap) -> Option<Session> {
        let name = cookie_name(headers);
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|text| text.split("; ")).filter_map(|one| one.split_once('='));
        cookies.find_map(|(found, value)| (found == name).then(|| self.find(access, value))?)
    }

    /// Ends a session.
    pub(super) fn end(&self, session: &Session) {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now_s();
        ended.retain(|_, ended| ended.still_counts(now));
        ended.entry(session.token.clone()).or_default().add(session, now);
    }

    fn find(&self, access: &Access, cookie: &str) -> Option<Session> {
        // The token's name comes last: it may have dots.
        let [expires, nonce, mac, token] = cookie.splitn(4, '.').collect::<Vec<_>>()[..] else { return None };
        let (secret, role) = access.named(token)?;
        let message = message("session", &format!("{expires}.{nonce}"), token);
        hmac::verify(&key(secret), message.as_bytes(), &unhex(mac)?).ok()?;
        let expires_s = expires.parse().ok()?;
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ended = ended.get(token).is_some_and(|ended| ended.has(nonce, expires_s));
        (expires_s > now_s() && !is_ended).then(|| Session {
            token: token.to_owned(),
            role,
            csrf: sign(secret, "csrf", nonce, token),
            nonce: nonce.to_owned(),
            expires_s,
        })
    }
}

/// Name of the cookie of this daemon: with the port, since browsers send cookies to all ports.
pub(super) fn cookie_name(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
    format!("stripewise-{}", port.unwrap_or("session"))
}

fn message(purpose: &str, text: &str, token: &str) -> String {
    format!("stripewise console {purpose}\n{text}\n{token}")
}

fn sign(secret: &str, purpose: &str, text: &str, token: &str) -> String {
    hex(hmac::sign(&key(secret), message(purpose, text, token).as_bytes()).as_ref())
}

fn key(secret: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::access::AccessFile;

    const SECRET: &str = "0123456789abcdef";

    fn access(tokens: &str) -> std::sync::Arc<Access> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = AccessFile::open(&folder.path().join("tokens"), true).expect("made");
        std::fs::write(file.path(), tokens).expect("written");
        file.current()
    }

    fn headers(cookie: &str, csrf: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("host", "localhost:8080".parse().expect("a value"));
        let cookies = format!("a=b; stripewise-8080={cookie}; c=d");
        headers.insert("cookie", cookies.parse().expect("a value"));
        headers.insert(CSRF_HEADER, csrf.parse().expect("a value"));
        headers
    }

    #[test]
    fn a_session_lives_as_long_as_its_token() {
        let (sessions, both) =
            (Sessions::default(), "token a.b read 0123456789abcdef\ntoken c admin 0123456789abcdeX\n");
        let access_now = access(both);
        assert!(sessions.begin(&access_now, "0123456789abcdeY").is_none());
        let (session, cookie) = sessions.begin(&access_now, SECRET).expect("a token");
        assert_eq!((session.token.as_str(), session.role), ("a.b", Role::Read));
        let found = |access: &Access| sessions.of(access, &headers(&cookie, ""));
        assert_eq!(found(&access_now).as_ref(), Some(&session));
        let replaced = "token a.b read 0123456789abcdeZ\n";
        assert_eq!(found(&access(replaced)), None, "the secret is another");
        assert_eq!(found(&access("token c admin 0123456789abcdeX\n")), None, "it was withdrawn");
        sessions.end(&session);
        assert_eq!(found(&access_now), None, "it was ended");
    }

    #[test]
    fn a_token_ends_no_sessions_of_others() {
        let access = access("token a read 0123456789abcdef\ntoken c admin 0123456789abcdeX\n");
        let sessions = Sessions::default();
        let begin = |secret| sessions.begin(&access, secret).expect("a token");
        let is_open = |cookie: &str| sessions.of(&access, &headers(cookie, "")).is_some();
        let mut all: Vec<_> = (0..2 * MAX_ENDED + 2).map(|_| begin(SECRET)).collect();
        let (kept_session, kept) = begin("0123456789abcdeX");
        for (session, cookie) in &all {
            sessions.end(session);
            assert!(!is_open(cookie));
        }
        assert!(is_open(&kept), "the session of another token");
        sessions.end(&kept_session);
        assert!(!is_open(&kept), "it can still be ended");
        assert!(is_open(&begin(SECRET).1), "a new session");
        // With more than are remembered, all earlier ones have ended.
        all.iter_mut().for_each(|(session, _)| session.expires_s -= 1);
        let ended = sessions.0.lock().expect("no panic");
        let ended = &ended["a"];
        assert!(all.iter().all(|(session, _)| ended.has(&session.nonce, session.expires_s)));
        assert!(ended.some.len() <= MAX_ENDED);
    }

    #[test]
    fn forged_and_expired_cookies_are_no_session() {
        let access = access("token a read 0123456789abcdef\ntoken c admin 0123456789abcdeX\n");
        let sessions = Sessions::default();
        let (_, cookie) = sessions.begin(&access, SECRET).expect("a token");
        let parts: Vec<&str> = cookie.split('.').collect();
        let past = format!("{}.{}", now_s() - 1, parts[1]);
        let later = format!("{}.{}", u64::MAX, parts[1]);
        for forged in [
            cookie.replace(".a", ".c"),
            cookie[..cookie.len() - 3].to_owned(),
            format!("{later}.{}.a", parts[2]),
            format!("{past}.{}.a", sign(SECRET, "session", &past, "a")),
            format!("{}.{}..a", parts[0], parts[1]),
            format!("{}.{}.zz.a", parts[0], parts[1]),
            String::new(),
        ] {
            assert_eq!(sessions.of(&access, &headers(&forged, "")), None, "{forged}");
        }
        let mut elsewhere = headers(&cookie, "");
        elsewhere.insert("host", "localhost:8081".parse().expect("a value"));
        assert_eq!(sessions.of(&access, &elsewhere), None, "it is the cookie of another daemon");
    }

    #[test]
    fn each_session_has_its_own_csrf_token() {
        let access = access("token a read 0123456789abcdef\n");
        let sessions = Sessions::default();
        let [(one, cookie), (other, _)] = [(); 2].map(|()| sessions.begin(&access, SECRET).expect("a token"));
        assert!(one.is_confirmed_by(&headers(&cookie, &one.csrf)));
        for wrong in [other.csrf.as_str(), "", &one.csrf[1..]] {
            assert!(!one.is_confirmed_by(&headers(&cookie, wrong)), "{wrong}");
        }
    }
}
