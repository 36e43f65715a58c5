//! Settings of pools, as people write them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stripewise_pool::{
    REBUILD_LATENCY_MS, REBUILD_PRIORITY_HIGH_PERCENT, REBUILD_PRIORITY_LOW_PERCENT,
    REBUILD_PRIORITY_MEDIUM_PERCENT,
};

use crate::notation::size::ByteSize;

const DAY_S: u64 = 86_400;
/// Ten years: longer is a slip of the hand.
const MOST_DAYS: f64 = 3652.0;
const SETTINGS: &str = "rebuild-priority=low|medium|high|1..100, rebuild-latency=TIME|off, patrol-rate=RATE|none, \
                        patrol-interval=DAYS|none, space-warning=1..100, tier-rate=RATE|off";

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
    format!("`{text}` is no setting; there are {SETTINGS}")
}

impl Setting {
    /// The setting of this name, with a value as people write it.
    pub fn of(name: &str, value: &str) -> Result<Self, String> {
        match name {
            "rebuild-priority" => priority(value).map(Self::RebuildPriority),
            "rebuild-latency" => latency(value).map(Self::RebuildLatency),
            "patrol-rate" => rate(value).map(Self::PatrolRate),
            "tier-rate" => tier_rate(value).map(Self::TierRate),
            "patrol-interval" => interval(value).map(Self::PatrolInterval),
            "space-warning" => match value.trim_end_matches('%').parse() {
                Ok(percent @ 1..=100) => Ok(Self::SpaceWarning(percent)),
                _ => Err(format!("`{value}` is no share of the space; 1 to 100 (percent)")),
            },
            _ => Err(unknown(&format!("{name}={value}"))),
        }
    }
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

/// Days in seconds.
fn interval(value: &str) -> Result<Option<u64>, String> {
    match (value, value.parse::<f64>()) {
        ("none", _) => Ok(None),
        (_, Ok(days)) if days > 0.0 && days <= MOST_DAYS => Ok(Some(((days * DAY_S as f64) as u64).max(1))),
        _ => Err(format!(
            "`{value}` is no number of days up to {MOST_DAYS}; `none`: scrubs begin only by hand"
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
