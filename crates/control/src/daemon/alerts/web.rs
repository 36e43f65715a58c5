//! Alerts to web addresses. An address is often secret: it can come from a file, and is then never
//! shown whole.
//!
//! Expected faults: addresses that do not answer, refuse, or redirect (followed only within
//! their origin), files that others may read.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use stripewise_runtime::read_small_file;

use super::Outcome;
use crate::failure::{Failure, Result, system_text};
use crate::notation::plain::{cut, one_line};
use crate::registry::own_user;

/// Maximum redirections, all within the origin.
const MOST_REDIRECTIONS: usize = 3;
/// Maximum length of a file with an address, bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
const MOST_SHOWN_BYTES: usize = 200;

/// An address for requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebAddress {
    url: String,
    /// The part that is shown.
    pub(super) shown: String,
}

impl FromStr for WebAddress {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        match is_plain && origin(text).is_some() {
            true => Ok(Self { url: text.to_owned(), shown: text.to_owned() }),
            false => Err(format!("`{}` is not a web address; expected https://HOST/PATH", one_line(text))),
        }
    }
}

impl WebAddress {
    /// Reads the address from a file that only its owner may read.
    pub fn from_file(path: &Path) -> Result<Self> {
        let unusable = |why: String| {
            Failure::new(format!("cannot use the web address in {}: {why}", path.display()))
                .hint("the file must hold one line, https://HOST/PATH, and have the mode 0600")
        };
        let io = |error: std::io::Error| unusable(system_text(&error));
        // The mode and owner are those of the file that was read, whatever is at the path by now.
        let (bytes, found) = read_small_file(path, MAX_FILE_BYTES).map_err(io)?;
        if found.mode() & 0o077 != 0 {
            let mode = found.mode() & 0o7777;
            return Err(unusable(format!("other users may read it (mode {mode:04o}): `chmod 600` it")));
        }
        if found.uid() != 0 && Some(found.uid()) != own_user() {
            return Err(unusable(format!("it belongs to another user ({})", found.uid())));
        }
        // The error does not quote the contents, which may be secret.
        let address = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse::<Self>().ok());
        let address = address.ok_or_else(|| unusable("it holds no address".to_owned()))?;
        let shown = format!("{}/…", origin(&address.url).unwrap_or_default());
        Ok(Self { shown, ..address })
    }
}

/// Sends a document.
pub(super) fn post(address: &WebAddress, document: &str, patience: Duration) -> Outcome {
    let config = ureq::Agent::config_builder().timeout_global(Some(patience));
    let agent: ureq::Agent = config.max_redirects(0).max_redirects_will_error(false).build().into();
    let mut url = address.url.clone();
    for _ in 0..=MOST_REDIRECTIONS {
        let response = agent.post(&url).content_type("application/json").send(document);
        let response = response.map_err(|error| error.to_string().replace(&url, &address.shown))?;
        let status = response.status();
        if !status.is_redirection() {
            return Ok(());
        }
        let place = response.headers().get("location").and_then(|place| place.to_str().ok());
        url = following(&url, status.as_u16(), place.unwrap_or_default())?;
    }
    Err("too many redirections".to_owned())
}

/// The target of a redirection, if it is within the origin and keeps the request.
fn following(url: &str, status: u16, place: &str) -> std::result::Result<String, String> {
    let own = origin(url).unwrap_or_default();
    let next = match place.starts_with('/') && !place.starts_with("//") {
        true => format!("{own}{place}"),
        false => place.to_owned(),
    };
    let leads_to = origin(&next);
    if matches!(status, 307 | 308) && leads_to.as_deref() == Some(&own) {
        return Ok(next);
    }
    let to = cut(&one_line(&leads_to.unwrap_or_else(|| "nowhere".to_owned())), MOST_SHOWN_BYTES);
    Err(format!(
        "it answers {status} and redirects to {to}, which is not followed: name the address that takes alerts"
    ))
}

/// The scheme, host and port of an address.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let host = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
    let default = if scheme == "https" { ":443" } else { ":80" };
    let host = host.strip_suffix(default).unwrap_or(&host);
    (matches!(&*scheme, "http" | "https") && !host.is_empty()).then(|| format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::channel;

    use super::*;

    /// A server that gives each client the next of these answers; returns its address, and the
    /// request heads received.
    fn server(answers: Vec<String>) -> (String, std::sync::mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let (heads_in, heads) = channel();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).expect("a head");
                    head.push(byte[0]);
                }
                stream.write_all(answer.as_bytes()).expect("sent");
                let _ = heads_in.send(String::from_utf8_lossy(&head).into_owned());
            }
        });
        (address, heads)
    }

    fn answer(status: &str, place: &str) -> String {
        format!("HTTP/1.1 {status}\r\nlocation: {place}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    }

    fn send(url: &str) -> Outcome {
        post(&url.parse().expect("an address"), "{}", Duration::from_secs(5))
    }

    #[test]
    fn no_redirection_to_another_origin_is_followed() {
        let (other, asked) = server(vec![answer("200 OK", "/")]);
        for status in ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"] {
            let (url, _) = server(vec![answer(status, &format!("{other}/secret"))]);
            let refused = send(&format!("{url}/hook")).expect_err("it leads elsewhere");
            assert!(refused.contains(&other) && !refused.contains("secret"), "{refused}");
        }
        assert!(asked.try_recv().is_err(), "no request came there");
    }

    #[test]
    fn a_redirection_within_the_origin_keeps_the_request() {
        let (url, heads) = server(vec![answer("308 Permanent", "/there"), answer("200 OK", "/")]);
        assert_eq!(send(&format!("{url}/hook")), Ok(()));
        let asked: Vec<String> = heads.iter().take(2).collect();
        assert!(asked[0].starts_with("POST /hook ") && asked[1].starts_with("POST /there "), "{asked:?}");
    }

    #[test]
    fn redirections_are_judged_by_origin() {
        let led = |status, place| following("https://host/a?secret", status, place);
        assert_eq!(led(307, "/b"), Ok("https://host/b".to_owned()));
        assert_eq!(led(308, "https://HOST:443/b"), Ok("https://HOST:443/b".to_owned()));
        for place in [
            "http://host/b",
            "https://host:444/b",
            "//other/b",
            "https://host@other/b",
            "https://other\\@host/b",
            "b",
            "",
        ] {
            let refused = led(307, place).expect_err(place);
            assert!(!refused.contains("secret"), "{refused}");
        }
        assert!(led(302, "/b").is_err(), "the method would change");
    }

    #[test]
    fn an_address_from_a_file_is_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hook");
        std::fs::write(&path, "https://hooks.example/T0/secret\n").expect("written");
        let mode =
            |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        mode(0o644);
        let refused = WebAddress::from_file(&path).expect_err("others may read it");
        assert!(refused.message.contains("other users may read"), "{}", refused.message);
        mode(0o600);
        let address = WebAddress::from_file(&path).expect("an address");
        assert_eq!(
            (&*address.url, &*address.shown),
            ("https://hooks.example/T0/secret", "https://hooks.example/…")
        );
        std::fs::write(&path, "secret").expect("written");
        let refused = WebAddress::from_file(&path).expect_err("no address");
        assert!(!refused.message.contains("secret"), "{}", refused.message);
        assert!(WebAddress::from_file(folder.path()).is_err());
    }

    #[test]
    fn addresses_are_looked_at() {
        for right in ["https://example.org/hook", "http://127.0.0.1:8080"] {
            assert!(right.parse::<WebAddress>().is_ok(), "{right}");
        }
        for wrong in
            ["file:///etc/passwd", "https://", "https:///path", "https://a b/", "https://a\n/", "host/path"]
        {
            assert!(wrong.parse::<WebAddress>().is_err(), "{wrong}");
        }
    }
}
