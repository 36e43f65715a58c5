//! Reading the names of layouts.
//!
//! Fault expected: a name that is none; the error lists those that are.

use std::str::FromStr;

use crate::error::LayoutError;
use crate::level::Level;

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
    fn unknown_level_names_are_refused() {
        for name in ["", "raid", "raid2", "raid3", "raid 5", " raid5", "5", "mirror4", "raid5\n"] {
            let error = name.parse::<Level>().unwrap_err();
            assert_eq!(error, LayoutError::UnknownLayout { name: name.to_owned() });
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
        assert_eq!("mirror3".parse::<Level>().unwrap_err(), LayoutError::ThreeCopiesAreNoLevel);
    }
}
