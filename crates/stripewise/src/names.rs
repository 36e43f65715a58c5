//! Names of pools and volumes as typed: `tank`, `tank/data`. They become file names, NBD export names and shell words, so
//! they are kept simple. Expected faults: anything a person may type.

use std::fmt;
use std::str::FromStr;

/// Longest name, in bytes.
const LONGEST: usize = 63;

/// The name of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolName(pub String);

/// A volume with its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeName {
    /// The pool's name.
    pub pool: String,
    /// The volume's own name.
    pub volume: String,
}

fn check(what: &str, name: &str) -> Result<(), String> {
    let simple = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match name {
        "" => Err(format!("the {what}'s name is empty")),
        _ if name.len() > LONGEST => Err(format!("the {what}'s name is longer than {LONGEST} characters")),
        _ if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) => {
            Err(format!("the {what}'s name `{name}` does not begin with a letter or digit"))
        }
        _ => match name.chars().find(|&c| !simple(c)) {
            Some(c) => {
                Err(format!("the {what}'s name `{name}` contains `{c}`; letters, digits, - _ . are allowed"))
            }
            None => Ok(()),
        },
    }
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
    fn names_are_simple_words() {
        let name: VolumeName = "tank-1/data.v2".parse().expect("a name");
        assert_eq!((name.pool.as_str(), name.volume.as_str()), ("tank-1", "data.v2"));
        for text in ["tank", "/a", "tank/", "tank/a/b", "tank/..", "-t/a", "tank/a b", "tänk/a", "tank/\n"] {
            assert!(text.parse::<VolumeName>().is_err(), "{text:?}");
        }
        assert!("x".repeat(64).parse::<PoolName>().is_err());
        assert!("x".repeat(63).parse::<PoolName>().is_ok());
    }
}
