//! Peer addresses of connections.

use std::fmt;
use std::net::SocketAddr;

/// Address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A process of this host: its credentials when it connected.
    Local {
        /// User ID.
        user: u32,
        /// Process ID; 0 if the system does not report it.
        process: i32,
    },
    /// A network address.
    Network(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { user, process: 0 } => write!(f, "uid {user}"),
            Self::Local { user, process } => write!(f, "uid {user} (process {process})"),
            Self::Network(address) => write!(f, "{address}"),
        }
    }
}
