//! Errors of exports used as drives: location, cause and remedy.

use std::io;

use crate::nbd::transport::tls::TlsError;
use crate::plain::{cut, one_line};

/// Maximum length of a server's text in a message.
const MOST_SHOWN_BYTES: usize = 300;

/// An export that cannot be used as a drive.
#[derive(Debug, thiserror::Error)]
#[error("{uri}: {why}")]
pub struct ConnectError {
    /// URI of the export.
    pub uri: String,
    /// Cause.
    #[source]
    pub why: ConnectFault,
}

/// Reason that an export cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFault {
    /// The host name cannot be resolved.
    #[error("unknown host `{host}`: {}", said(error))]
    UnknownHost {
        /// Host name.
        host: String,
        /// The system's error.
        error: io::Error,
    },
    /// The connection to the server failed.
    #[error("the server cannot be reached: {}", said(error))]
    Unreachable {
        /// The system's error.
        error: io::Error,
    },
    /// The server did not respond in time.
    #[error("no answer for {} s", *.limit_ns as f64 / 1e9)]
    Silent {
        /// Timeout, nanoseconds.
        limit_ns: u64,
    },
    /// The connection failed during the negotiation.
    #[error("the negotiation with the server failed: {}", said(error))]
    BrokenOff {
        /// Cause.
        error: io::Error,
    },
    /// The server violates the protocol or lacks a required feature.
    #[error("not a usable NBD server: {0}")]
    NotNbd(String),
    /// The server does not have the export.
    #[error("the server has no export `{export}`{}", message(.said))]
    NoExport {
        /// Export name.
        export: String,
        /// Message of the server.
        said: String,
    },
    /// The server refuses access to the export.
    #[error("the server refused access to the export{}", message(.said))]
    Refused {
        /// Message of the server.
        said: String,
    },
    /// The server requires TLS.
    #[error("the server requires TLS")]
    WantsTls,
    /// The server does not offer TLS.
    #[error("the server does not offer TLS{}", message(.said))]
    NoTls {
        /// Message of the server.
        said: String,
    },
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {}", said(error))]
    Tls {
        /// Cause.
        error: io::Error,
    },
    /// The client's own certificate files are unusable.
    #[error("{0}")]
    Certificates(#[source] TlsError),
    /// The URI requires TLS without naming a certificate authority.
    #[error("the URI requires TLS, but names no certificate authority")]
    NoAuthority,
    /// The export is read-only.
    #[error("the export is read-only")]
    ReadOnly,
    /// The export is too small for a drive.
    #[error("the export holds {size_bytes} bytes, and a drive needs at least 4096")]
    TooSmall {
        /// Size of the export.
        size_bytes: u64,
    },
    /// The minimum block size of the server is too large.
    #[error("the server requires blocks of at least {smallest_bytes} bytes; the supported maximum is 4096")]
    Blocks {
        /// Minimum block size of the server.
        smallest_bytes: u32,
    },
    /// The server does not support FLUSH.
    #[error("the server does not offer FLUSH, so writes to it cannot be made durable")]
    NoFlush,
    /// The export differs from the one that was opened before.
    #[error("the export has changed: {0}")]
    Changed(String),
}

fn said(error: &io::Error) -> String {
    let text = error.to_string();
    shown(text.split(" (os error ").next().unwrap_or_default())
}

/// Text that is the server's, or has parts of its (names in a certificate): escaped, and cut.
pub(super) fn shown(text: &str) -> String {
    cut(&one_line(text), MOST_SHOWN_BYTES)
}

fn message(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" (server message: {said})") }
}

impl ConnectFault {
    /// True if the server or the export is absent and may return.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::UnknownHost { .. }
                | Self::Unreachable { .. }
                | Self::Silent { .. }
                | Self::BrokenOff { .. }
                | Self::NoExport { .. }
        )
    }

    /// Suggested remedy.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::UnknownHost { .. } => "check the name, or give the address",
            Self::Unreachable { .. } => {
                "check that the server runs and listens there, and that no firewall blocks it"
            }
            Self::Silent { .. } => {
                "the server hangs, or serves one client at a time and has one; timeout=TIME in the URI sets the time limit"
            }
            Self::BrokenOff { .. } => {
                "see the log of the server; it may also disconnect clients that show no certificate"
            }
            Self::NotNbd(_) => "check host and port; the NBD port is 10809",
            Self::NoExport { .. } => "`nbdinfo --list URI` lists its exports",
            Self::Refused { .. } => "see the log of the server",
            Self::WantsTls => "use nbds instead of nbd, with tls-certificates=DIR",
            Self::NoTls { .. } => "use nbd instead of nbds if the data may be sent unencrypted",
            Self::Tls { .. } => {
                "ca-cert.pem must be that of the authority that signed the server's certificate, and that certificate must be for \
                 the host name (or for tls-hostname=NAME)"
            }
            Self::Certificates(_) => {
                "tls-certificates=DIR names a folder with ca-cert.pem and, if the server requires them, client-cert.pem and \
                 client-key.pem"
            }
            Self::NoAuthority => "add tls-certificates=DIR, a folder that contains ca-cert.pem",
            Self::ReadOnly => "configure the server to export it for writing",
            Self::TooSmall { .. } | Self::Blocks { .. } | Self::NoFlush => {
                "configure the server to export something else"
            }
            Self::Changed(_) => "check what the server exports under this name now",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_is_escaped_and_cut() {
        assert_eq!(shown("no\x1b[2J\u{202e}txe"), "no\\u{1b}[2J\\u{202e}txe");
        let long = ConnectFault::Refused { said: shown(&"\x07".repeat(32 << 10)) }.to_string();
        assert!(long.len() < 400 && long.ends_with("more bytes))"), "{long}");
        let tls = ConnectFault::Tls { error: io::Error::other("certificate of `a\u{202e}b`\n") };
        assert_eq!(tls.to_string(), "the TLS handshake failed: certificate of `a\\u{202e}b`\\u{a}");
    }
}
