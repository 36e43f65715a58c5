//! Why an export cannot be used as a drive: what, where, why, and what to do about it.

use std::io;

use crate::nbd::transport::tls::TlsError;

/// An export could not be opened, or is of no use.
#[derive(Debug, thiserror::Error)]
#[error("{uri}: {why}")]
pub struct ConnectError {
    /// Where.
    pub uri: String,
    /// Why.
    #[source]
    pub why: ConnectFault,
}

/// What was wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFault {
    /// Nobody knows the host.
    #[error("the host `{host}` is not known: {}", said(error))]
    UnknownHost {
        /// Its name.
        host: String,
        /// What the system says.
        error: io::Error,
    },
    /// Nobody can be reached there.
    #[error("the server cannot be reached: {}", said(error))]
    Unreachable {
        /// What the system says.
        error: io::Error,
    },
    /// It is there, and says nothing.
    #[error("no answer for {} s", *.limit_ns as f64 / 1e9)]
    Silent {
        /// How long it was waited for, ns.
        limit_ns: u64,
    },
    /// It went in the middle.
    #[error("the server broke off the negotiation: {}", said(error))]
    BrokenOff {
        /// What the system says.
        error: io::Error,
    },
    /// What is there speaks another language.
    #[error("what listens there is no NBD server that can be used: {0}")]
    NotNbd(String),
    /// There is no such export.
    #[error("the server has no export `{export}`{}", in_words(.said))]
    NoExport {
        /// Its name.
        export: String,
        /// What the server said.
        said: String,
    },
    /// The server does not want to.
    #[error("the server refuses{}", in_words(.said))]
    Refused {
        /// What the server said.
        said: String,
    },
    /// The server wants to be talked to in cipher.
    #[error("the server takes encrypted connections only")]
    WantsTls,
    /// The server cannot encrypt.
    #[error("the server does not encrypt{}", in_words(.said))]
    NoTls {
        /// What the server said.
        said: String,
    },
    /// No keys were agreed upon.
    #[error("no encrypted connection comes about: {}", said(error))]
    Tls {
        /// Why.
        error: io::Error,
    },
    /// Our own certificates cannot be used.
    #[error("{0}")]
    Certificates(#[source] TlsError),
    /// No folder with the authority was named.
    #[error("it is to be encrypted, and nothing says who signs the server's certificate")]
    NoAuthority,
    /// It cannot be written to.
    #[error("the export is read-only")]
    ReadOnly,
    /// It is too small to hold anything.
    #[error("the export holds {size_bytes} bytes, and a drive needs at least 4096")]
    TooSmall {
        /// Its size.
        size_bytes: u64,
    },
    /// Its blocks are too large.
    #[error(
        "the server takes blocks of {smallest_bytes} bytes and more, and the most that can be used is 4096"
    )]
    Blocks {
        /// The smallest that it takes.
        smallest_bytes: u32,
    },
    /// Nothing could be made durable on it.
    #[error("the server does not offer FLUSH, so nothing written to it could be known to be durable")]
    NoFlush,
    /// It is another one than before.
    #[error("it is not as it was: {0}")]
    Changed(String),
}

fn said(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

fn in_words(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" (it says: {said})") }
}

impl ConnectFault {
    /// Whether the drive is only not there now: the server, or the export, is away.
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

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::UnknownHost { .. } => "check the name, or give the address",
            Self::Unreachable { .. } => {
                "check that the server runs and listens there, and that nothing between keeps it away"
            }
            Self::Silent { .. } => {
                "the server hangs, or lets in one client at a time and has one; timeout=TIME in the URI sets how long it is waited for"
            }
            Self::BrokenOff { .. } => "its log may say why; a server that wants certificates ends so, too",
            Self::NotNbd(_) => "check host and port; NBD's port is 10809",
            Self::NoExport { .. } => "`nbdinfo --list URI` shows what it has",
            Self::Refused { .. } => "its log may say why",
            Self::WantsTls => "write nbds instead of nbd, with tls-certificates=DIR",
            Self::NoTls { .. } => "write nbd instead of nbds if it may go in the clear",
            Self::Tls { .. } => {
                "ca-cert.pem must be of the authority that signed the server's certificate, which must be for the host's name (or \
                 tls-hostname=NAME)"
            }
            Self::Certificates(_) => {
                "tls-certificates=DIR names a folder with ca-cert.pem and, if the server wants them, client-cert.pem \
                                      and client-key.pem"
            }
            Self::NoAuthority => "add tls-certificates=DIR: a folder with ca-cert.pem in it",
            Self::ReadOnly => "have the server export it for writing",
            Self::TooSmall { .. } | Self::Blocks { .. } | Self::NoFlush => {
                "have the server export something else"
            }
            Self::Changed(_) => "check what the server exports under this name now",
        }
    }
}
