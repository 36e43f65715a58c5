//! NBD URIs, as the
//! [specification](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md) and libnbd
//! write them: `nbd://HOST[:PORT]/EXPORT`, `nbds://…` (encrypted),
//! `nbd+unix:///EXPORT?socket=PATH`, `nbds+unix://…`.
//!
//! Besides the standard parameters it supports libnbd's `tls-certificates=DIR` and `timeout=TIME`,
//! which is specific to Stripewise. Expected faults: any text that a user may type.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::nbd::wire::protocol::LONGEST_STRING;

/// Default port of NBD.
const PORT: u16 = 10809;
/// Default request timeout.
const DEFAULT_TIMEOUT_NS: u64 = 20_000_000_000;
/// Permitted request timeouts. The engine fails a drive that does not answer for 30 s, and rebuilds
/// it in full when it returns; a drive that reports its loss earlier only has to catch up.
const TIMEOUTS_NS: std::ops::RangeInclusive<u64> = 100_000_000..=25_000_000_000;
/// Maximum length of a URI, limited by the space for a drive's path in a pool's metadata.
const LONGEST_URI: usize = 200;

/// A malformed or unsupported URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{uri}: {why}")]
pub struct UriError {
    /// The text.
    pub uri: String,
    /// Reason.
    pub why: String,
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NbdPlace {
    /// A TCP host and port.
    Tcp {
        /// Host name or IP address; IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// Path of a unix socket.
    Unix(PathBuf),
}

/// Identity of an export, independent of connection options: equal for two URIs that name the same
/// server and export.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NbdAddress {
    /// Address of the server.
    pub place: NbdPlace,
    /// Export name; may be empty.
    pub export: String,
}

/// An export with its connection options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// The export.
    pub address: NbdAddress,
    /// True if TLS is required.
    pub encrypted: bool,
    /// Folder with `ca-cert.pem` and optionally `client-cert.pem` and `client-key.pem`.
    pub certificates: Option<PathBuf>,
    /// Expected name in the server's certificate, if not the host name.
    pub certificate_name: Option<String>,
    /// Timeout of a request, and of a server that cannot be reached.
    pub timeout_ns: u64,
}

impl NbdUri {
    /// True if the text has the form of an NBD URI rather than of a path.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| {
            scheme == "nbd" || scheme == "nbds" || scheme.starts_with("nbd+") || scheme.starts_with("nbds+")
        })
    }

    /// Parses a URI. Relative paths in it are resolved against `folder`.
    ///
    /// # Errors
    /// If it is malformed or uses an unsupported feature.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, UriError> {
        parse(text, folder).map_err(|why| UriError { uri: text.to_owned(), why })
    }

    /// Name that the server's certificate must be for.
    pub(crate) fn expected_name(&self) -> &str {
        match (&self.certificate_name, &self.address.place) {
            (Some(name), _) => name,
            (None, NbdPlace::Tcp { host, .. }) => host,
            (None, NbdPlace::Unix(_)) => "localhost",
        }
    }
}

fn parse(text: &str, folder: &Path) -> Result<NbdUri, String> {
    let (scheme, rest) = text.split_once("://").ok_or("it is not a URI: it has no `://`")?;
    let (encrypted, unix) = match scheme {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        _ => return Err(format!("`{scheme}` is not one of nbd, nbds, nbd+unix and nbds+unix")),
    };
    if rest.contains('#') {
        return Err("it contains `#`; in an export name, write %23".to_owned());
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decoded(path)?;
    if export.contains('\0') || export.len() > LONGEST_STRING {
        return Err("invalid export name".to_owned());
    }
    let mut uri = NbdUri {
        address: NbdAddress { place: NbdPlace::Unix(PathBuf::new()), export },
        encrypted,
        certificates: None,
        certificate_name: None,
        timeout_ns: DEFAULT_TIMEOUT_NS,
    };
    let mut socket = None;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = decoded(value)?;
        match name {
            "socket" if unix => socket = Some(value).filter(|path| !path.is_empty()),
            "tls-certificates" => uri.certificates = Some(folder.join(value)),
            "tls-hostname" => uri.certificate_name = Some(value),
            "timeout" => uri.timeout_ns = parse_time(&value)?,
            "tls-type" if value == "x509" => {}
            "tls-verify-peer" if value == "1" => {}
            "tls-type" => return Err(format!("`tls-type={value}` is not supported, only x509 is")),
            "tls-verify-peer" => return Err("TLS servers are always verified".to_owned()),
            "tls-psk-file" => return Err("pre-shared keys are not supported, only certificates".to_owned()),
            _ => return Err(format!("unknown parameter `{name}`")),
        }
    }
    if !encrypted && (uri.certificates.is_some() || uri.certificate_name.is_some()) {
        return Err(format!("it has TLS parameters; write {scheme}s to encrypt the connection")
            .replace("nbd+unixs", "nbds+unix"));
    }
    uri.address.place = match (unix, socket) {
        (true, Some(path)) if path.starts_with('\0') => {
            return Err("abstract sockets are not supported".to_owned());
        }
        (true, Some(_)) if !authority.is_empty() => {
            return Err("a unix socket is local: the host must be empty, as in nbd+unix:///".to_owned());
        }
        (true, Some(path)) => NbdPlace::Unix(folder.join(path)),
        (true, None) => return Err("it has no socket; use nbd+unix:///EXPORT?socket=PATH".to_owned()),
        (false, _) => parse_authority(authority)?,
    };
    let length = uri.to_string().len();
    if length > LONGEST_URI {
        return Err(format!("it has {length} bytes; the maximum is {LONGEST_URI}"));
    }
    Ok(uri)
}

fn parse_authority(authority: &str) -> Result<NbdPlace, String> {
    if authority.contains('@') {
        return Err("a user name is for pre-shared keys, which are not supported".to_owned());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("its address has no closing bracket")?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| format!("`{host}` is not an IPv6 address"))?;
            (
                host.to_owned(),
                rest.strip_prefix(':')
                    .or(rest.is_empty().then_some(""))
                    .ok_or("its port must follow a colon")?,
            )
        }
        None => {
            let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
            (decoded(host)?.to_ascii_lowercase(), port)
        }
    };
    if host.is_empty() {
        return Err("it has no host; use nbd://HOST/EXPORT".to_owned());
    }
    if host.contains([':', '/', '\0', ' ']) && host.parse::<std::net::Ipv6Addr>().is_err() {
        return Err(format!("`{host}` is not a host name; an IPv6 address needs brackets"));
    }
    let port = match port {
        "" => PORT,
        text => text.parse().ok().filter(|port| *port != 0).ok_or(format!("`{text}` is not a port"))?,
    };
    Ok(NbdPlace::Tcp { host, port })
}

/// Parses a timeout such as `2s` or `500ms` into nanoseconds.
fn parse_time(text: &str) -> Result<u64, String> {
    let (number, unit_ns) = match text.strip_suffix("ms") {
        Some(number) => (number, 1_000_000),
        None => (text.strip_suffix('s').unwrap_or(""), 1_000_000_000),
    };
    let time_ns = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ns));
    time_ns
        .filter(|time| TIMEOUTS_NS.contains(time))
        .ok_or_else(|| format!("invalid `timeout={text}`; use a time from 100ms to 25s, as in timeout=5s"))
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = behind;
            continue;
        }
        let digits =
            behind.split_at_checked(2).filter(|(digits, _)| digits.iter().all(u8::is_ascii_hexdigit));
        let (digits, behind) = digits.ok_or("each `%` must be followed by two hexadecimal digits")?;
        let value = std::str::from_utf8(digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.extend(value);
        rest = behind;
    }
    String::from_utf8(bytes).map_err(|_| "it is not valid UTF-8 when decoded".to_owned())
}

/// Writes a text percent-encoded; `also` are further characters that need no encoding here.
fn encode(text: &str, also: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in text.bytes() {
        let is_plain =
            byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also.as_bytes().contains(&byte);
        if is_plain { write!(f, "{}", char::from(byte))? } else { write!(f, "%{byte:02X}")? }
    }
    Ok(())
}

impl fmt::Display for NbdUri {
    /// Canonical form, without default values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.encrypted { "nbds" } else { "nbd" })?;
        write!(f, "{}", self.address)?;
        let mut before = if matches!(self.address.place, NbdPlace::Unix(_)) { '&' } else { '?' };
        let mut parameter = |f: &mut fmt::Formatter<'_>, name: &str, value: &str| {
            write!(f, "{before}{name}=")?;
            before = '&';
            encode(value, "/:", f)
        };
        if let Some(path) = &self.certificates {
            parameter(f, "tls-certificates", &path.to_string_lossy())?;
        }
        if let Some(name) = &self.certificate_name {
            parameter(f, "tls-hostname", name)?;
        }
        if self.timeout_ns != DEFAULT_TIMEOUT_NS {
            let ms = self.timeout_ns / 1_000_000;
            let text = if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") };
            parameter(f, "timeout", &text)?;
        }
        Ok(())
    }
}

impl fmt::Display for NbdAddress {
    /// The part of a URI after `nbd` or `nbds`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            NbdPlace::Tcp { host, port } => {
                f.write_str("://")?;
                if host.contains(':') {
                    write!(f, "[{host}]")?
                } else {
                    encode(host, "", f)?
                }
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
                f.write_str("/")?;
                encode(&self.export, "/:", f)
            }
            NbdPlace::Unix(path) => {
                f.write_str("+unix:///")?;
                encode(&self.export, "/:", f)?;
                f.write_str("?socket=")?;
                encode(&path.to_string_lossy(), "/:", f)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> NbdUri {
        NbdUri::parse(text, Path::new("/here")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn uris_have_one_canonical_form() {
        for (given, written) in [
            ("nbd://Example.com", "nbd://example.com/"),
            ("nbd://example.com:10809/disk", "nbd://example.com/disk"),
            ("nbd://example.com//disk", "nbd://example.com//disk"),
            ("nbd://[::1]:4000/hello%20world", "nbd://[::1]:4000/hello%20world"),
            (
                "nbds://10.0.0.1/a?tls-certificates=certs&timeout=2s",
                "nbds://10.0.0.1/a?tls-certificates=/here/certs&timeout=2s",
            ),
            ("nbd+unix:///a%2Fb?socket=nbd.sock", "nbd+unix:///a/b?socket=/here/nbd.sock"),
            (
                "nbd+unix:///?socket=/run/n%C3%BC.sock&timeout=1500ms",
                "nbd+unix:///?socket=/run/n%C3%BC.sock&timeout=1500ms",
            ),
            (
                "nbds+unix://?socket=/s&tls-hostname=box&tls-type=x509&tls-verify-peer=1",
                "nbds+unix:///?socket=/s&tls-hostname=box",
            ),
            ("nbd://h/x?timeout=20s", "nbd://h/x"),
        ] {
            assert_eq!(parsed(given).to_string(), written);
            assert_eq!(parsed(written), parsed(given), "{written} is the same again");
        }
        assert_eq!(parsed("nbd://h/x").address, parsed("nbds://H:10809/x?timeout=1s").address);
        assert_ne!(parsed("nbd://h/x").address, parsed("nbd://h/y").address);
        assert_eq!(parsed("nbd://h//x").address.export, "/x");
    }

    #[test]
    fn invalid_uris_are_refused_with_the_reason() {
        let why = |text: &str| NbdUri::parse(text, Path::new("/")).expect_err(text).why;
        for (text, part) in [
            ("nbd:/h/x", "no `://`"),
            ("nbd+vsock:///x", "not one of nbd"),
            ("nbd:///x", "has no host"),
            ("nbd://h:0/x", "`0` is not a port"),
            ("nbd://h:99999/x", "is not a port"),
            ("nbd://me@h/x", "pre-shared"),
            ("nbd://[::1/x", "no closing bracket"),
            ("nbd://[h]/x", "is not an IPv6 address"),
            ("nbd://fe80::1/x", "brackets"),
            ("nbd+unix:///x", "has no socket"),
            ("nbd+unix://h/x?socket=/s", "host must be empty"),
            ("nbd+unix:///x?socket=%00s", "abstract"),
            ("nbd://h/x?socket=/s", "unknown parameter `socket`"),
            ("nbd://h/x?timeout=1h", "from 100ms to 25s"),
            ("nbd://h/x?timeout=30s", "from 100ms to 25s"),
            ("nbd://h/x?timeout=99999999999999999999s", "from 100ms to 25s"),
            ("nbd://h/%zz", "two hexadecimal"),
            ("nbd://h/%4", "two hexadecimal"),
            ("nbd://h/%ff", "UTF-8"),
            ("nbd://h/a%00", "invalid export name"),
            ("nbd://h/a#b", "%23"),
            ("nbd://h/x?tls-certificates=/c", "write nbds to"),
            ("nbd+unix:///x?socket=/s&tls-hostname=h", "write nbds+unix to"),
            ("nbds://h/x?tls-verify-peer=0", "always verified"),
            ("nbds://h/x?tls-psk-file=/k", "pre-shared keys"),
        ] {
            assert!(why(text).contains(part), "{text}: {}", why(text));
        }
        assert!(why(&format!("nbd://h/{}", "x".repeat(200))).contains("the maximum is 200"));
    }

    #[test]
    fn paths_are_not_taken_for_uris() {
        for text in ["/dev/sda", "tank/a", "nbd", "nbd0.img", "file:///x", "./nbd:/x"] {
            assert!(!NbdUri::is_meant(text), "{text}");
        }
        for text in ["nbd://h", "nbds://h/x", "nbd+unix:///?socket=/s", "nbd+ssh://x"] {
            assert!(NbdUri::is_meant(text), "{text}");
        }
    }
}
