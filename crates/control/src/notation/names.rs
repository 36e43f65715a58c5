//! Names of pools and volumes as typed: `tank`, `tank/data`. They become file names, NBD export
//! names and shell words, so their characters are restricted. Expected faults: any text that a user
//! may type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest name, in bytes.
const LONGEST: usize = 63;
/// Rule for names, as error messages show it.
const RULE: &str = "names are 1 to 63 characters: the letters a-z and A-Z, digits, - _ and ., beginning with a letter or digit";

/// The name of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolName(pub String);

/// A volume with its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName {
    /// The pool's name.
    pub pool: String,
    /// The volume's own name.
    pub volume: String,
}

/// A word as a shell takes it.
pub fn in_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:@%+=,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

fn check(what: &str, name: &str) -> Result<(), String> {
    let simple = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let why = match name {
        "" => "is empty".to_owned(),
        _ => match name.chars().find(|&c| !simple(c)) {
            Some(c) => format!("contains `{}`", c.escape_debug()),
            None if name.len() > LONGEST => format!("has {} characters", name.len()),
            None if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) => {
                "does not begin with a letter or digit".to_owned()
            }
            None => return Ok(()),
        },
    };
    Err(format!("{what} name `{}` {why}; {RULE}", name.escape_debug()))
}

impl FromStr for PoolName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        check("pool", text)?;
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((pool, volume)) = text.split_once('/') else {
            return Err(format!("`{text}` is not of the form POOL/VOL"));
        };
        check("pool", pool)?;
        check("volume", volume)?;
        Ok(Self { pool: pool.to_owned(), volume: volume.to_owned() })
    }
}

impl TryFrom<String> for PoolName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl TryFrom<String> for VolumeName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PoolName> for String {
    fn from(name: PoolName) -> Self {
        name.0
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_limited_to_simple_words() {
        let name: VolumeName = "tank-1/data.v2".parse().expect("a name");
        assert_eq!((name.pool.as_str(), name.volume.as_str()), ("tank-1", "data.v2"));
        for text in ["tank", "/a", "tank/", "tank/a/b", "tank/..", "-t/a", "tank/a b", "tänk/a", "tank/\n"] {
            assert!(text.parse::<VolumeName>().is_err(), "{text:?}");
        }
        for name in ["tänk", "プール", "x y", "", ".x", &"x".repeat(64), &"ä".repeat(64)] {
            let refused = name.parse::<PoolName>().expect_err("no name");
            assert!(refused.ends_with(RULE), "{refused}");
        }
        assert!("tänk".parse::<PoolName>().expect_err("no name").contains("contains `ä`"));
        assert!("x".repeat(63).parse::<PoolName>().is_ok());
    }
}
