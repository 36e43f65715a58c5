//! The layouts by name.
//!
//! Fault expected: a name that is none; the error lists those that are.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::LayoutError;

/// How the data of a volume is spread and protected. Written, printed and stored by its lower-case
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One drive.
    Single,
    /// Strips in turn over all members, no redundancy.
    Raid0,
    /// The same on every member.
    Raid1,
    /// One parity unit, always on the last member.
    Raid4,
    /// One parity unit, rotating.
    Raid5,
    /// Two parity units (P and Q), rotating.
    Raid6,
    /// Three parity units (P, Q and R), rotating.
    Raid7,
    /// Every strip twice, on neighbouring members; any number of members from 2, odd ones too.
    Raid10,
    /// Stripes in turn over groups of RAID 5.
    Raid50,
    /// Stripes in turn over groups of RAID 6.
    Raid60,
}

impl Level {
    /// Every level, in the order of the contract.
    pub const ALL: [Level; 10] = [
        Level::Single,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid7,
        Level::Raid10,
        Level::Raid50,
        Level::Raid60,
    ];

    /// The name that the command line, JSON and metadata use.
    pub fn name(self) -> &'static str {
        match self {
            Level::Single => "single",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid7 => "raid7",
            Level::Raid10 => "raid10",
            Level::Raid50 => "raid50",
            Level::Raid60 => "raid60",
        }
    }

    /// Parity units in every stripe: 0 to 3.
    pub fn parity_units(self) -> usize {
        match self {
            Level::Single | Level::Raid0 | Level::Raid1 | Level::Raid10 => 0,
            Level::Raid4 | Level::Raid5 | Level::Raid50 => 1,
            Level::Raid6 | Level::Raid60 => 2,
            Level::Raid7 => 3,
        }
    }

    /// Whether the level stripes over groups of members.
    pub fn is_grouped(self) -> bool {
        matches!(self, Level::Raid50 | Level::Raid60)
    }

    /// The fewest members one group can have; the whole array where there are no groups.
    pub fn minimum_group_width(self) -> usize {
        match self {
            Level::Single => 1,
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 2,
            Level::Raid4 | Level::Raid5 | Level::Raid50 => 3,
            Level::Raid6 | Level::Raid60 => 4,
            Level::Raid7 => 5,
        }
    }

    /// The fewest members the level can have. RAID 0 begins at two: on one drive it is `single` by
    /// a wrong name, and a request for it has most likely forgotten a drive.
    pub fn minimum_width(self) -> usize {
        if self.is_grouped() { 2 * self.minimum_group_width() } else { self.minimum_group_width() }
    }

    /// The most members the level can have.
    pub fn maximum_width(self) -> usize {
        if self == Level::Single { 1 } else { crate::MAXIMUM_WIDTH }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = LayoutError;

    /// Takes names and aliases, in either case. `mirror3` is refused, because a level alone cannot
    /// say "three copies" and two would be less than was asked for: parse a [`crate::LayoutSpec`]
    /// instead.
    fn from_str(name: &str) -> Result<Level, LayoutError> {
        let lower = name.to_ascii_lowercase();
        let level = match lower.as_str() {
            "simple" => Level::Raid0,
            "mirror" => Level::Raid1,
            "parity" | "raidz1" => Level::Raid5,
            "dual-parity" | "raidz2" => Level::Raid6,
            "raidz3" => Level::Raid7,
            "mirror3" => return Err(LayoutError::ThreeCopiesAreNoLevel),
            other => match Level::ALL.into_iter().find(|level| level.name() == other) {
                Some(level) => level,
                None => return Err(LayoutError::UnknownLayout { name: name.to_owned() }),
            },
        };
        Ok(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse::<Level>().unwrap(), level);
            assert_eq!(level.name().to_ascii_uppercase().parse::<Level>().unwrap(), level);
            let json = serde_json::to_string(&level).unwrap();
            assert_eq!(json, format!("\"{level}\""));
            assert_eq!(serde_json::from_str::<Level>(&json).unwrap(), level);
        }
        assert_eq!(format!("[{:<8}]", Level::Raid5), "[raid5   ]");
    }

    #[test]
    fn aliases_name_the_same_levels() {
        for (alias, level) in [
            ("simple", Level::Raid0),
            ("mirror", Level::Raid1),
            ("parity", Level::Raid5),
            ("raidz1", Level::Raid5),
            ("dual-parity", Level::Raid6),
            ("raidz2", Level::Raid6),
            ("raidz3", Level::Raid7),
        ] {
            assert_eq!(alias.parse::<Level>().unwrap(), level, "{alias}");
        }
    }

    #[test]
    fn no_other_name_is_taken() {
        for name in ["", "raid", "raid2", "raid3", "raid 5", " raid5", "5", "mirror4", "raid5\n"] {
            let error = name.parse::<Level>().unwrap_err();
            assert_eq!(error, LayoutError::UnknownLayout { name: name.to_owned() });
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
        assert_eq!("mirror3".parse::<Level>().unwrap_err(), LayoutError::ThreeCopiesAreNoLevel);
    }
}
