//! Identities of pools, drives, volumes and branches: random version 4 UUIDs, or derived from a
//! seed where a run must be repeatable. Fault expected: text that is not an identity.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stripewise_drive::SplitMix64;

/// A 128-bit identity, written as a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(pub u128);

/// Identity of a drive, assigned by its pool. An excluded drive that is added again gets a new one.
pub type DriveId = Id;
/// Identity of a pool.
pub type PoolId = Id;
/// Identity of a volume.
pub type VolumeId = Id;

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_u128(self.0).hyphenated().fmt(f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match uuid::Uuid::try_parse(text) {
            Ok(uuid) => Ok(Self(uuid.as_u128())),
            Err(_) => Err(format!("`{text}` is not an identity of the form 8-4-4-4-12 hexadecimal digits")),
        }
    }
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.to_string()
    }
}

/// Source of new identities.
pub(crate) enum IdSource {
    Random,
    Seeded(SplitMix64),
}

impl IdSource {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        seed.map_or(Self::Random, |seed| Self::Seeded(SplitMix64::new(seed)))
    }

    pub(crate) fn next(&mut self) -> Id {
        let uuid = match self {
            Self::Random => uuid::Uuid::new_v4(),
            Self::Seeded(random) => {
                let high = u128::from(random.next_u64());
                let bits = high << 64 | u128::from(random.next_u64());
                uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
            }
        };
        Id(uuid.as_u128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_read_back_and_seeds_repeat() {
        let mut random = IdSource::new(None);
        let (one, two) = (random.next(), random.next());
        assert_ne!(one, two);
        assert_eq!(one.to_string().parse::<Id>(), Ok(one));
        assert_eq!(IdSource::new(Some(7)).next(), IdSource::new(Some(7)).next());
        assert_ne!(IdSource::new(Some(7)).next(), IdSource::new(Some(8)).next());
        assert!("no id".parse::<Id>().is_err());
    }
}
