//! What a caller may ask for. Each role includes the ones before it.

use std::fmt;
use std::str::FromStr;

/// What a caller may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// See how pools, drives and volumes are; figures.
    Read,
    /// Change pools and read volumes, without destroying anything.
    Operate,
    /// Everything, including what destroys data.
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
