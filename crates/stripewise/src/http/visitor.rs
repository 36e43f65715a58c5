//! The sender of a request, after authentication.

use stripewise_control::roles::Role;
use stripewise_export::ClientId;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Visitor {
    /// Name for the log: the user or the token, and the address.
    pub name: String,
    /// Its rights.
    pub role: Role,
    /// The token or user, whatever address it comes from.
    pub client: ClientId,
    /// Callers with which it shares a reserve.
    pub class: Class,
}

/// Callers that share a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Callers with the role `read`.
    Read,
    /// Callers with the role `operate`.
    Operate,
    /// Callers with the role `admin`, by token or as a user listed in the file of tokens.
    Admin,
    /// The daemon's own user, or root, on a socket file.
    Owner,
}

impl From<Role> for Class {
    fn from(role: Role) -> Self {
        match role {
            Role::Read => Self::Read,
            Role::Operate => Self::Operate,
            Role::Admin => Self::Admin,
        }
    }
}
