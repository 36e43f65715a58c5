//! Settings of volumes, as people write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stripewise_pool::{MOST_KEPT, SnapshotSchedule};

const SETTINGS: &str = "hourly-snapshots=N|off, daily-snapshots=N|off, weekly-snapshots=N|off";

/// A setting that is kept with a volume: a number of automatic snapshots that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeSetting {
    /// Number for the last hours.
    HourlySnapshots(Option<u32>),
    /// Number for the last days.
    DailySnapshots(Option<u32>),
    /// Number for the last weeks.
    WeeklySnapshots(Option<u32>),
}

impl FromStr for VolumeSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("unknown setting `{text}`; valid settings: {SETTINGS}");
        let (name, value) = text.split_once('=').ok_or_else(unknown)?;
        let kept = || match (value, value.parse()) {
            ("off", _) => Ok(None),
            (_, Ok(kept @ 1..=MOST_KEPT)) => Ok(Some(kept)),
            _ => Err(format!("`{value}` is not a number of snapshots; valid: 1 to {MOST_KEPT}, or off")),
        };
        match name {
            "hourly-snapshots" => kept().map(Self::HourlySnapshots),
            "daily-snapshots" => kept().map(Self::DailySnapshots),
            "weekly-snapshots" => kept().map(Self::WeeklySnapshots),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for VolumeSetting {
    /// `NAME=VALUE`, as [`Self::from_str`] takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, kept) = match self {
            Self::HourlySnapshots(kept) => ("hourly-snapshots", kept),
            Self::DailySnapshots(kept) => ("daily-snapshots", kept),
            Self::WeeklySnapshots(kept) => ("weekly-snapshots", kept),
        };
        match kept {
            Some(kept) => write!(f, "{name}={kept}"),
            None => write!(f, "{name}=off"),
        }
    }
}

impl VolumeSetting {
    /// Changes a schedule.
    pub(crate) fn apply(self, schedule: &mut SnapshotSchedule) {
        let (kept, new) = match self {
            Self::HourlySnapshots(new) => (&mut schedule.hourly, new),
            Self::DailySnapshots(new) => (&mut schedule.daily, new),
            Self::WeeklySnapshots(new) => (&mut schedule.weekly, new),
        };
        *kept = new.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_settings_print_as_they_are_typed() {
        let mut schedule = SnapshotSchedule { hourly: 1, daily: 2, weekly: 3 };
        for text in ["hourly-snapshots=24", "daily-snapshots=1000", "weekly-snapshots=off"] {
            let setting: VolumeSetting = text.parse().expect("a setting");
            assert_eq!(setting.to_string(), text);
            setting.apply(&mut schedule);
        }
        assert_eq!(schedule, SnapshotSchedule { hourly: 24, daily: 1000, weekly: 0 });
        for text in [
            "hourly-snapshots",
            "hourly-snapshots=0",
            "daily-snapshots=1001",
            "weekly-snapshots=-1",
            "yearly-snapshots=1",
            "",
            "=",
            "hourly-snapshots=",
        ] {
            assert!(text.parse::<VolumeSetting>().is_err(), "{text}");
        }
    }
}
