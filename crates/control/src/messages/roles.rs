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
