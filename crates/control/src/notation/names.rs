//! Names of pools, volumes and snapshots as typed: `tank`, `tank/data`, `tank/data@monday`. They
//! become file names, NBD export names and shell words, so their characters are restricted.
//! Expected faults: any text that a user may type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stripewise_pool::SnapshotPath;

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

/// A snapshot with its volume: `POOL/VOL@NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName {
    /// Its volume.
    pub volume: VolumeName,
    /// The snapshot's own name.
    pub snapshot: String,
}

impl SnapshotName {
    /// The snapshot as its pool names it.
    pub fn path(&self) -> SnapshotPath {
        SnapshotPath { volume: self.volume.volume.clone(), snapshot: self.snapshot.clone() }
    }
}

/// A snapshot's own name, typed as `@NAME` or `NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnName(pub String);

/// A volume, or a snapshot of one: `POOL/VOL` or `POOL/VOL@NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ReadableName {
    /// A volume.
    Volume(VolumeName),
    /// A snapshot.
    Snapshot(SnapshotName),
}

impl ReadableName {
    /// The pool's name.
    pub fn pool(&self) -> &str {
        match self {
            Self::Volume(name) => &name.pool,
            Self::Snapshot(name) => &name.volume.pool,
        }
    }

    /// Its name in the pool.
    pub fn in_pool(&self) -> String {
        match self {
            Self::Volume(name) => name.volume.clone(),
            Self::Snapshot(name) => name.path().to_string(),
        }
    }
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

/// Has documents hold names as they are typed.
macro_rules! as_typed {
    ($($name:ty),+) => {$(
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.to_string()
            }
        }
    )+};
}

as_typed!(PoolName, VolumeName, SnapshotName, ReadableName, OwnName);

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

impl FromStr for SnapshotName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((volume, snapshot)) = text.split_once('@') else {
            return Err(format!("`{text}` is not of the form POOL/VOL@NAME"));
        };
        check("snapshot", snapshot)?;
        Ok(Self { volume: volume.parse()?, snapshot: snapshot.to_owned() })
    }
}

impl FromStr for OwnName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix('@').unwrap_or(text);
        check("snapshot", name)?;
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for OwnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.snapshot)
    }
}

impl FromStr for ReadableName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.contains('@') {
            true => text.parse().map(Self::Snapshot),
            false => text.parse().map(Self::Volume),
        }
    }
}

impl fmt::Display for ReadableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(name) => name.fmt(f),
            Self::Snapshot(name) => name.fmt(f),
        }
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
        let name: SnapshotName = "tank/data@2026-11-28.daily".parse().expect("a name");
        assert_eq!((name.volume.volume.as_str(), name.snapshot.as_str()), ("data", "2026-11-28.daily"));
        for text in
            ["tank/data", "tank@a", "tank/data@", "tank/data@a@b", "tank/data@a/b", "@a", "tank/a b@c"]
        {
            assert!(text.parse::<SnapshotName>().is_err(), "{text:?}");
        }
        for text in ["@monday", "monday"] {
            assert_eq!(text.parse::<OwnName>().expect("a name").to_string(), "@monday");
        }
        for text in ["", "@", "@@a", "data@a", "@a b"] {
            assert!(text.parse::<OwnName>().is_err(), "{text:?}");
        }
        for (text, in_pool) in [("tank/data", "data"), ("tank/data@a", "data@a")] {
            let name: ReadableName = text.parse().expect("a name");
            assert_eq!(
                (name.pool(), name.in_pool(), name.to_string()),
                ("tank", in_pool.into(), text.into())
            );
        }
        for name in ["tänk", "プール", "x y", "", ".x", &"x".repeat(64), &"ä".repeat(64)] {
            let refused = name.parse::<PoolName>().expect_err("no name");
            assert!(refused.ends_with(RULE), "{refused}");
        }
        assert!("tänk".parse::<PoolName>().expect_err("no name").contains("contains `ä`"));
        assert!("x".repeat(63).parse::<PoolName>().is_ok());
    }
}
