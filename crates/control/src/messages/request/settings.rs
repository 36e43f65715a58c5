//! Settings of pools, as people write them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stripewise_pool::{
    REBUILD_LATENCY_MS, REBUILD_PRIORITY_HIGH_PERCENT, REBUILD_PRIORITY_LOW_PERCENT,
    REBUILD_PRIORITY_MEDIUM_PERCENT,
};

use crate::messages::report::PoolReport;
use crate::notation::size::ByteSize;

const DAY_S: u64 = 86_400;
/// Ten years: longer is a slip of the hand.
const MOST_DAYS: f64 = 3652.0;
const SETTINGS: &str = "scrub=monthly|weekly|daily|DAYSd|off, patrol-rate=RATE|none, \
                        rebuild-priority=low|medium|high|1..100, rebuild-latency=TIME|off, \
                        space-warning=1..100, tier-rate=RATE|off";

/// Interval between the scrubs of a new pool, seconds: `monthly`.
pub(crate) const MONTHLY_S: u64 = 30 * DAY_S;

/// A setting that is kept with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Percent of each drive's time that rebuilds get while there is other load.
    RebuildPriority(u32),
    /// Milliseconds that jobs add at most to what a client's request waits for a drive; none: no
    /// bound.
    RebuildLatency(Option<u32>),
    /// Most bytes that a scrub reads per second; none: no limit of its own.
    PatrolRate(Option<u64>),
    /// Seconds after which a scrub begins by itself; none: only by hand.
    PatrolInterval(Option<u64>),
    /// Percent of the space in use from which on the status warns.
    SpaceWarning(u32),
    /// Most bytes that move between fast and data drives per second; none: no limit of its own.
    TierRate(Option<u64>),
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| unknown(text))?;
        Self::of(name, value)
    }
}

fn unknown(text: &str) -> String {
    format!("unknown setting `{text}`; valid settings: {SETTINGS}")
}

impl Setting {
    /// The setting of this name, with a value as people write it.
    pub fn of(name: &str, value: &str) -> Result<Self, String> {
        match name {
            "rebuild-priority" => priority(value).map(Self::RebuildPriority),
            "rebuild-latency" => latency(value).map(Self::RebuildLatency),
            "patrol-rate" => rate(value).map(Self::PatrolRate),
            "tier-rate" => tier_rate(value).map(Self::TierRate),
            // Two names of one setting; the second is that of earlier versions.
            "scrub" | "patrol-interval" => interval(value).map(Self::PatrolInterval),
            "space-warning" => match value.trim_end_matches('%').parse() {
                Ok(percent @ 1..=100) => Ok(Self::SpaceWarning(percent)),
                _ => Err(format!("`{value}` is no share of the space; 1 to 100 (percent)")),
            },
            _ => Err(unknown(&format!("{name}={value}"))),
        }
    }
}

impl fmt::Display for Setting {
    /// `NAME=VALUE`, as [`Self::from_str`] takes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name(), self.value())
    }
}

impl Setting {
    /// All settings of a pool.
    pub fn all_of(pool: &PoolReport) -> Vec<Self> {
        vec![
            Self::PatrolInterval(pool.patrol_interval_s),
            Self::PatrolRate(pool.patrol_bytes_per_s),
            Self::RebuildPriority(pool.rebuild_priority_percent),
            Self::RebuildLatency(pool.rebuild_latency_ms),
            Self::SpaceWarning(pool.space_warning_percent),
            Self::TierRate(pool.tier_bytes_per_s),
        ]
    }

    /// Name of the setting.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RebuildPriority(_) => "rebuild-priority",
            Self::RebuildLatency(_) => "rebuild-latency",
            Self::PatrolRate(_) => "patrol-rate",
            Self::PatrolInterval(_) => "scrub",
            Self::SpaceWarning(_) => "space-warning",
            Self::TierRate(_) => "tier-rate",
        }
    }

    /// Value of the setting.
    pub fn value(&self) -> String {
        let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
        match *self {
            Self::RebuildPriority(REBUILD_PRIORITY_LOW_PERCENT) => "low".to_owned(),
            Self::RebuildPriority(REBUILD_PRIORITY_MEDIUM_PERCENT) => "medium".to_owned(),
            Self::RebuildPriority(REBUILD_PRIORITY_HIGH_PERCENT) => "high".to_owned(),
            Self::RebuildPriority(percent) | Self::SpaceWarning(percent) => percent.to_string(),
            Self::RebuildLatency(ms) => or(ms.map(|ms| format!("{ms}ms")), "off"),
            Self::PatrolRate(rate) => or(rate.map(rate_text), "none"),
            Self::TierRate(rate) => or(rate.map(rate_text), "off"),
            Self::PatrolInterval(None) => "off".to_owned(),
            Self::PatrolInterval(Some(MONTHLY_S)) => "monthly".to_owned(),
            Self::PatrolInterval(Some(seconds)) => match seconds as f64 / DAY_S as f64 {
                1.0 => "daily".to_owned(),
                7.0 => "weekly".to_owned(),
                days => format!("{days}d"),
            },
        }
    }
}

/// A rate in the largest unit in which it is a whole number.
fn rate_text(bytes_per_s: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = units.iter().find(|(_, unit)| bytes_per_s.is_multiple_of(*unit));
    whole.map_or_else(|| bytes_per_s.to_string(), |(name, unit)| format!("{}{name}", bytes_per_s / unit))
}

fn priority(value: &str) -> Result<u32, String> {
    match value {
        "low" => Ok(REBUILD_PRIORITY_LOW_PERCENT),
        "medium" => Ok(REBUILD_PRIORITY_MEDIUM_PERCENT),
        "high" => Ok(REBUILD_PRIORITY_HIGH_PERCENT),
        _ => match value.parse() {
            Ok(percent @ 1..=100) => Ok(percent),
            _ => Err(format!("`{value}` is no rebuild priority; low, medium, high or 1 to 100 (percent)")),
        },
    }
}

/// Milliseconds, from `20ms` or `1s`.
fn latency(value: &str) -> Result<Option<u32>, String> {
    if value == "off" {
        return Ok(None);
    }
    let in_ms = match (value.strip_suffix("ms"), value.strip_suffix('s')) {
        (Some(ms), _) => ms.parse::<u32>().ok(),
        (None, Some(seconds)) => seconds.parse::<u32>().ok().and_then(|seconds| seconds.checked_mul(1000)),
        (None, None) => None,
    };
    match in_ms.filter(|ms| REBUILD_LATENCY_MS.contains(ms)) {
        Some(ms) => Ok(Some(ms)),
        None => Err(format!("`{value}` is no rebuild latency; 1ms to 10s as in 20ms, or off")),
    }
}

/// Bytes per second, as `20MB` or `20MB/s`.
fn rate(value: &str) -> Result<Option<u64>, String> {
    if value == "none" {
        return Ok(None);
    }
    match value.strip_suffix("/s").unwrap_or(value).parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err("a patrol rate of 0 would never end; `none` takes the limit away".to_owned()),
        Ok(size) => Ok(Some(size.0)),
        Err(error) => Err(error.to_string()),
    }
}

/// Bytes per second that rows move at.
fn tier_rate(value: &str) -> Result<Option<u64>, String> {
    const LEAST: ByteSize = ByteSize(1 << 20);
    if value == "off" {
        return Ok(None);
    }
    match value.strip_suffix("/s").unwrap_or(value).parse::<ByteSize>() {
        Ok(size) if size < LEAST => Err(format!(
            "tiers move at {LEAST} per second at least; `off` takes the limit away, and a pinned volume stays"
        )),
        Ok(size) => Ok(Some(size.0)),
        Err(error) => Err(error.to_string()),
    }
}

/// Seconds between scrubs, from a word, or days as in `30d` or `30`.
fn interval(value: &str) -> Result<Option<u64>, String> {
    let days = match value {
        "off" | "none" => return Ok(None),
        "daily" => 1.0,
        "weekly" => 7.0,
        "monthly" => return Ok(Some(MONTHLY_S)),
        _ => value.strip_suffix('d').unwrap_or(value).parse().unwrap_or(f64::NAN),
    };
    match days > 0.0 && days <= MOST_DAYS {
        true => Ok(Some(((days * DAY_S as f64) as u64).max(1))),
        false => Err(format!(
            "`{value}` is not an interval between scrubs; valid: monthly, weekly, daily, up to \
             {MOST_DAYS} days as in 30d, or off"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_words_or_percentages() {
        assert_eq!("rebuild-priority=low".parse(), Ok(Setting::RebuildPriority(10)));
        assert_eq!("rebuild-priority=high".parse(), Ok(Setting::RebuildPriority(60)));
        assert_eq!("rebuild-priority=100".parse(), Ok(Setting::RebuildPriority(100)));
        for text in [
            "rebuild-priority=0",
            "rebuild-priority=101",
            "rebuild-priority=",
            "rebuild-priority",
            "x=1",
            "=",
        ] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }

    #[test]
    fn settings_print_as_they_are_typed() {
        let report = PoolReport {
            patrol_interval_s: Some(MONTHLY_S),
            patrol_bytes_per_s: Some(20_000_000),
            rebuild_priority_percent: 30,
            space_warning_percent: 80,
            tier_bytes_per_s: None,
            ..PoolReport::default()
        };
        let shown = |report: &PoolReport| -> Vec<String> {
            Setting::all_of(report).iter().map(Setting::to_string).collect()
        };
        let typed = "scrub=monthly patrol-rate=20MB rebuild-priority=medium rebuild-latency=off \
         space-warning=80 tier-rate=off";
        assert_eq!(shown(&report).join(" "), typed);
        let odd = PoolReport {
            patrol_interval_s: Some(100_000),
            patrol_bytes_per_s: Some((1 << 20) + 1),
            rebuild_priority_percent: 31,
            rebuild_latency_ms: Some(20),
            space_warning_percent: 1,
            tier_bytes_per_s: Some(3 << 20),
            ..PoolReport::default()
        };
        for report in [report, odd] {
            for setting in Setting::all_of(&report) {
                assert_eq!(setting.to_string().parse(), Ok(setting), "{setting}");
            }
        }
    }

    #[test]
    fn a_rebuild_latency_is_a_time_or_off() {
        assert_eq!("rebuild-latency=20ms".parse(), Ok(Setting::RebuildLatency(Some(20))));
        assert_eq!("rebuild-latency=2s".parse(), Ok(Setting::RebuildLatency(Some(2000))));
        assert_eq!("rebuild-latency=off".parse(), Ok(Setting::RebuildLatency(None)));
        for value in ["", "20", "0ms", "11s", "4294968s", "-1ms", "1.5ms", "20us", "none"] {
            assert!(format!("rebuild-latency={value}").parse::<Setting>().is_err(), "{value}");
        }
    }

    #[test]
    fn patrols_have_a_rate_and_an_interval_or_none() {
        assert_eq!("patrol-rate=20MB/s".parse(), Ok(Setting::PatrolRate(Some(20_000_000))));
        assert_eq!("patrol-rate=1M".parse(), Ok(Setting::PatrolRate(Some(1 << 20))));
        assert_eq!("patrol-rate=none".parse(), Ok(Setting::PatrolRate(None)));
        assert_eq!("patrol-interval=7".parse(), Ok(Setting::PatrolInterval(Some(604_800))));
        assert_eq!("patrol-interval=0.5".parse(), Ok(Setting::PatrolInterval(Some(43_200))));
        assert_eq!("patrol-interval=none".parse(), Ok(Setting::PatrolInterval(None)));
        for (text, days) in [("monthly", 30), ("weekly", 7), ("daily", 1), ("14d", 14), ("14", 14)] {
            let set = Ok(Setting::PatrolInterval(Some(days * DAY_S)));
            assert_eq!(format!("scrub={text}").parse(), set, "{text}");
            assert_eq!(format!("patrol-interval={text}").parse(), set, "{text}");
        }
        assert_eq!("scrub=off".parse(), Ok(Setting::PatrolInterval(None)));
        assert_eq!("space-warning=90%".parse(), Ok(Setting::SpaceWarning(90)));
        assert_eq!("tier-rate=50MB/s".parse(), Ok(Setting::TierRate(Some(50_000_000))));
        assert_eq!("tier-rate=off".parse(), Ok(Setting::TierRate(None)));
        for text in [
            "patrol-rate=0",
            "patrol-rate=fast",
            "patrol-interval=0",
            "patrol-interval=-1",
            "patrol-interval=NaN",
            "patrol-interval=99999",
            "scrub=",
            "scrub=d",
            "scrub=0d",
            "scrub=yearly",
            "scrub=inf",
            "space-warning=0",
            "space-warning=101",
            "tier-rate=0",
            "tier-rate=1000",
            "tier-rate=none",
        ] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }
}
