//! The record of a volume's automatic snapshots, and their names. Pure.

use serde::{Deserialize, Serialize};

/// Most automatic snapshots of a kind.
pub const MOST_KEPT: u32 = 1000;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3600;
const DAY_S: u64 = 86_400;
const WEEK_S: u64 = 7 * DAY_S;
/// Days from the Monday before 1970 until 1970.
const DAYS_SINCE_MONDAY: u64 = 3;

/// Numbers of automatic snapshots that are kept; 0: none are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSchedule {
    /// Number for the last hours.
    pub hourly: u32,
    /// Number for the last days.
    pub daily: u32,
    /// Number for the last weeks.
    pub weekly: u32,
}

impl SnapshotSchedule {
    /// True if none are taken.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Number kept of a kind.
    pub(crate) fn kept(&self, kind: Period) -> usize {
        let kept = match kind {
            Period::Hour => self.hourly,
            Period::Day => self.daily,
            Period::Week => self.weekly,
        };
        kept as usize
    }
}

/// Period of which a snapshot is taken once: an hour, a day, or a week that begins on Monday (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    Hour,
    Day,
    Week,
}

impl Period {
    pub(crate) const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    /// End of the names of its snapshots.
    fn suffix(self) -> &'static str {
        match self {
            Self::Hour => ".hourly",
            Self::Day => ".daily",
            Self::Week => ".weekly",
        }
    }

    /// Number of the period at a time, seconds since 1970.
    pub(crate) fn of(self, unix_s: u64) -> u64 {
        match self {
            Self::Hour => unix_s / HOUR_S,
            Self::Day => unix_s / DAY_S,
            Self::Week => (unix_s + DAYS_SINCE_MONDAY * DAY_S) / WEEK_S,
        }
    }

    /// Name of a snapshot taken at a time: `2026-11-28T14-05.hourly`. Names sort by time.
    pub(crate) fn name(self, unix_s: u64) -> String {
        let (year, month, day) = date(unix_s / DAY_S);
        let (hour, minute) = (unix_s / HOUR_S % 24, unix_s / MINUTE_S % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}{}", self.suffix())
    }

    /// The time in a name of its snapshots, seconds since 1970; `None` for other names.
    pub(crate) fn time_of(self, name: &str) -> Option<u64> {
        let stamp = name.strip_suffix(self.suffix())?;
        let number = |at: std::ops::Range<usize>| stamp.get(at)?.parse::<u64>().ok();
        let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
        let (hour, minute) = (number(11..13)?, number(14..16)?);
        if year < 1970 {
            return None;
        }
        // The first day of which the date is not earlier.
        let (mut low, mut high) = (0, 3_000_000);
        while low < high {
            let middle = (low + high) / 2;
            if date(middle) < (year, month, day) { low = middle + 1 } else { high = middle }
        }
        let unix_s = low * DAY_S + hour * HOUR_S + minute * MINUTE_S;
        (self.name(unix_s) == name).then_some(unix_s)
    }
}

/// Year, month and day of a number of days since 1970-01-01. Years are counted from March, so that
/// the leap day comes last.
pub fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SATURDAY_S: u64 = 1_795_874_700; // 2026-11-28 14:05:00

    #[test]
    fn names_of_automatic_snapshots_sort_by_time() {
        assert_eq!(Period::Hour.name(SATURDAY_S), "2026-11-28T14-05.hourly");
        let times = [0, 951_782_340, 951_868_800, SATURDAY_S, SATURDAY_S + 60, 4_102_444_800];
        for kind in Period::ALL {
            let names: Vec<String> = times.iter().map(|time| kind.name(*time)).collect();
            assert!(names.is_sorted(), "{names:?}");
            let read: Vec<u64> = names.iter().map(|name| kind.time_of(name).expect("a time")).collect();
            assert_eq!(read, times);
        }
        for other in
            ["monday", ".hourly", "2026-11-28T14-05.daily", "2026-13-28T14-05.hourly", "", "é.hourly"]
        {
            assert_eq!(Period::Hour.time_of(other), None, "{other}");
        }
        for other in ["2026-02-30T14-05.hourly", "2026-11-28T24-05.hourly", "2026-11-28 14-05.hourly"] {
            assert_eq!(Period::Hour.time_of(other), None, "{other}");
        }
    }

    #[test]
    fn weeks_begin_on_monday() {
        let of = |days: u64| Period::Week.of(SATURDAY_S + days * DAY_S);
        assert_eq!((of(1), of(2), of(8), of(9)), (of(0), of(0) + 1, of(0) + 1, of(0) + 2));
        assert_eq!(Period::Day.of(SATURDAY_S + DAY_S), Period::Day.of(SATURDAY_S) + 1);
        assert_eq!(Period::Hour.of(SATURDAY_S + 55 * 60), Period::Hour.of(SATURDAY_S) + 1);
    }
}
