//! RAID levels, with their minimum and maximum number of members. Faults expected: none.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::MAXIMUM_WIDTH;

/// RAID level of a volume. Written, printed and stored by its lower-case name.
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

    /// Name in the command line, JSON and metadata.
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

    /// True if parity rotates over the members.
    pub fn rotates_parity(self) -> bool {
        self.parity_units() > 0 && self != Level::Raid4
    }

    /// True if the level stripes over groups of members.
    pub fn is_grouped(self) -> bool {
        matches!(self, Level::Raid50 | Level::Raid60)
    }

    /// Minimum members of one group, or of the whole array if the level has no groups.
    pub fn minimum_group_width(self) -> usize {
        match self {
            Level::Single => 1,
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 2,
            Level::Raid4 | Level::Raid5 | Level::Raid50 => 3,
            Level::Raid6 | Level::Raid60 => 4,
            Level::Raid7 => 5,
        }
    }

    /// Minimum members of the level. RAID 0 begins at two: with one drive it is `single`, and such
    /// a request has most likely forgotten a drive.
    pub fn minimum_width(self) -> usize {
        if self.is_grouped() { 2 * self.minimum_group_width() } else { self.minimum_group_width() }
    }

    /// Maximum members of the level.
    pub fn maximum_width(self) -> usize {
        if self == Level::Single { 1 } else { MAXIMUM_WIDTH }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
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
}
