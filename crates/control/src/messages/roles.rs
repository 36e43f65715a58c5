//! Roles of callers. Each role includes the rights of the ones before it.

use std::fmt;
use std::str::FromStr;

/// Rights of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read status, events and metrics.
    Read,
    /// Also change pools and read volumes, but destroy nothing.
    Operate,
    /// All requests, including those that destroy data.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "read" => Ok(Self::Read),
            "operate" => Ok(Self::Operate),
            "admin" => Ok(Self::Admin),
            _ => Err(format!("`{text}` is not a role; roles are read, operate and admin")),
        }
    }
}

/// Callers that share a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
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
