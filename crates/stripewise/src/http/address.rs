//! Where connections come from.

use std::fmt;
use std::net::SocketAddr;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A process of this machine, as the system named it when it connected.
    Local {
        /// Its user.
        user: u32,
        /// Its number; 0 where the system does not say.
        process: i32,
    },
    /// Anywhere.
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
