//! Sizes as people write them (`4KiB`, `64K`, `1MiB`, `4TB`) and as they like to read them.
//!
//! `K M G T P E` alone and `KiB MiB …` count in powers of 1024, as fio and ZFS do; `KB MB GB TB PB
//! EB` in powers of 1000, as drive makers do. Upper and lower case are the same; fractions are
//! rounded down to whole bytes. Expected faults: anything a person may type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Why a text is no size.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// No number, or an unknown unit.
    #[error("`{0}` is not a size; write a number and a unit, as in 4096, 64K, 64KiB, 1.5TB")]
    NotASize(String),
    /// More than 2^64 bytes.
    #[error("`{0}` is more than any drive holds (2^64 bytes)")]
    TooLarge(String),
    /// No percentage.
    #[error("`{0}` is not a percentage (1 to 100)")]
    NotAPercentage(String),
    /// A fraction of a byte.
    #[error("`{0}` is not a whole number of bytes")]
    Fraction(String),
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let not_a_size = || SizeError::NotASize(text.to_owned());
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let unit_bytes = unit_bytes(unit.trim_start()).ok_or_else(not_a_size)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
            return Err(not_a_size());
        }
        // Exact decimal arithmetic: 1.1TB is 1,100,000,000,000 bytes, not what a binary fraction
        // makes of it.
        let too_large = || SizeError::TooLarge(text.to_owned());
        let scale = 10u128.checked_pow(fraction.len() as u32).ok_or_else(not_a_size)?;
        let scaled: u128 = format!("{whole}{fraction}").parse().map_err(|_| too_large())?;
        let scaled_bytes = scaled.checked_mul(unit_bytes).ok_or_else(too_large)?;
        // 2.7GiB is a size that people read and write; half a byte is a mistake.
        if unit_bytes == 1 && !scaled_bytes.is_multiple_of(scale) {
            return Err(SizeError::Fraction(text.to_owned()));
        }
        u64::try_from(scaled_bytes / scale).map(ByteSize).map_err(|_| too_large())
    }
}

fn unit_bytes(unit: &str) -> Option<u128> {
    let unit = unit.to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix("ib") {
        Some(prefix) if !prefix.is_empty() => (prefix, 1024u128),
        Some(_) => return None,
        None => match unit.strip_suffix('b') {
            Some("") => return Some(1),
            Some(prefix) => (prefix, 1000),
            None => (unit.as_str(), 1024),
        },
    };
    let power = match prefix {
        "" => return Some(1),
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        "e" => 6,
        _ => return None,
    };
    Some(base.pow(power))
}

impl fmt::Display for ByteSize {
    /// Powers of 1024 with at most two decimals; exact byte counts below 1 KiB.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let power = (63 - self.0.leading_zeros()) / 10;
        let unit = UNITS[power as usize - 1];
        let value = self.0 as f64 / (1u64 << (10 * power)) as f64;
        let text = format!("{value:.2}");
        write!(f, "{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Size of a volume as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum WantedSize {
    /// Absolute size, bytes.
    Bytes(u64),
    /// All the space there is: `max`.
    Max,
    /// This share of all the space there is, 1 to 100: `50%`.
    Percent(u32),
    /// More than now: `+100G`.
    More(u64),
    /// Less than now: `-100G`.
    Less(u64),
}

/// A size in a document: a number of bytes, or text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Bytes(u64),
    Text(String),
}

impl TryFrom<Written> for WantedSize {
    type Error = SizeError;

    fn try_from(written: Written) -> Result<Self, SizeError> {
        match written {
            Written::Bytes(bytes) => Ok(Self::Bytes(bytes)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<WantedSize> for Written {
    fn from(size: WantedSize) -> Self {
        match size {
            WantedSize::Bytes(bytes) => Self::Bytes(bytes),
            WantedSize::Max => Self::Text("max".to_owned()),
            WantedSize::Percent(percent) => Self::Text(format!("{percent}%")),
            WantedSize::More(bytes) => Self::Text(format!("+{bytes}")),
            WantedSize::Less(bytes) => Self::Text(format!("-{bytes}")),
        }
    }
}

impl FromStr for WantedSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("max") {
            return Ok(Self::Max);
        }
        if let Some(percent) = trimmed.strip_suffix('%') {
            let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
            return percent.map(Self::Percent).ok_or_else(|| SizeError::NotAPercentage(text.to_owned()));
        }
        let bytes = |text: &str| text.parse::<ByteSize>().map(|size| size.0);
        match (trimmed.strip_prefix('+'), trimmed.strip_prefix('-')) {
            (Some(more), _) => bytes(more).map(Self::More),
            (_, Some(less)) => bytes(less).map(Self::Less),
            _ => bytes(text).map(Self::Bytes),
        }
    }
}

impl fmt::Display for WantedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => ByteSize(*bytes).fmt(f),
            Self::Max => f.write_str("max"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::More(bytes) => write!(f, "+{}", ByteSize(*bytes)),
            Self::Less(bytes) => write!(f, "-{}", ByteSize(*bytes)),
        }
    }
}

impl WantedSize {
    /// The size in bytes; `most` gives the space there is, `now` the present size.
    ///
    /// # Errors
    /// Those of `most`.
    pub fn bytes<E>(self, now: u64, most: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        Ok(match self {
            Self::Bytes(bytes) => bytes,
            Self::Max => most()?,
            Self::Percent(percent) => (u128::from(most()?) * u128::from(percent) / 100) as u64,
            Self::More(bytes) => now.saturating_add(bytes),
            Self::Less(bytes) => now.saturating_sub(bytes),
        })
    }
}

/// A duration for people: `8 s`, `3 min 20 s`, `11 h 05 min`, `2 d 4 h`.
pub fn duration_text(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "unknown".to_owned();
    }
    let total = seconds.ceil() as u64;
    let (days, hours, minutes) = (total / 86_400, total / 3600 % 24, total / 60 % 60);
    match total {
        0..60 => format!("{total} s"),
        60..3600 => format!("{minutes} min {:02} s", total % 60),
        3600..86_400 => format!("{hours} h {minutes:02} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> u64 {
        text.parse::<ByteSize>().unwrap_or_else(|error| panic!("{error}")).0
    }

    #[test]
    fn sizes_parse_in_every_common_notation() {
        assert_eq!(bytes("0"), 0);
        assert_eq!(bytes("4096"), 4096);
        assert_eq!(bytes("512B"), 512);
        assert_eq!(bytes("4KiB"), 4096);
        assert_eq!(bytes("64K"), 65_536);
        assert_eq!(bytes("64k"), 65_536);
        assert_eq!(bytes("64 KiB"), 65_536);
        assert_eq!(bytes("64KB"), 64_000);
        assert_eq!(bytes("1MiB"), 1 << 20);
        assert_eq!(bytes("512MiB"), 512 << 20);
        assert_eq!(bytes("1g"), 1 << 30);
        assert_eq!(bytes("4TB"), 4_000_000_000_000);
        assert_eq!(bytes("1.1TB"), 1_100_000_000_000);
        assert_eq!(bytes("1.5GiB"), 3 << 29);
        assert_eq!(bytes("15PiB"), 15 << 50);
        assert_eq!(bytes("8EiB"), 8 << 60);
        assert_eq!(bytes("2.7GiB"), 2_899_102_924, "rounded down");
    }

    #[test]
    fn malformed_sizes_are_refused() {
        for text in ["", "KiB", "x", "12X", "-1", "1..5K", "1.", ".5K", "64KiBB", "iB", "1e9", "0x10", "1 2K"]
        {
            assert!(matches!(text.parse::<ByteSize>(), Err(SizeError::NotASize(_))), "{text:?}");
        }
        assert!(matches!("1.5B".parse::<ByteSize>(), Err(SizeError::Fraction(_))));
        assert!(matches!("99999PB".parse::<ByteSize>(), Err(SizeError::TooLarge(_))));
        let digits = "9".repeat(60);
        assert!(matches!(digits.parse::<ByteSize>(), Err(SizeError::TooLarge(_))));
    }

    #[test]
    fn wanted_sizes_are_absolute_or_relative() {
        let all = [
            ("2.5G", WantedSize::Bytes(5 << 29), 5 << 29),
            ("max", WantedSize::Max, 1000),
            ("50%", WantedSize::Percent(50), 500),
            ("+1K", WantedSize::More(1024), 1324),
            ("-100", WantedSize::Less(100), 200),
        ];
        for (text, wanted, bytes) in all {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
            assert_eq!(wanted.bytes(300, || Ok::<_, ()>(1000)), Ok(bytes), "{text}");
            let document = serde_json::to_string(&wanted).expect("plain data");
            assert_eq!(serde_json::from_str::<WantedSize>(&document).ok(), Some(wanted), "{document}");
        }
        for text in ["0%", "101%", "x%", "++1", "half"] {
            assert!(text.parse::<WantedSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_in_readable_units() {
        let text = |bytes| ByteSize(bytes).to_string();
        assert_eq!(text(0), "0 B");
        assert_eq!(text(1023), "1023 B");
        assert_eq!(text(65_536), "64 KiB");
        assert_eq!(text(1 << 20), "1 MiB");
        assert_eq!(text(3 << 29), "1.5 GiB");
        assert_eq!(text(4_000_000_000_000), "3.64 TiB");
        assert_eq!(text(u64::MAX), "16 EiB");
    }

    #[test]
    fn durations_print_in_readable_units() {
        assert_eq!(duration_text(0.4), "1 s");
        assert_eq!(duration_text(59.0), "59 s");
        assert_eq!(duration_text(200.0), "3 min 20 s");
        assert_eq!(duration_text(39_900.0), "11 h 05 min");
        assert_eq!(duration_text(200_000.0), "2 d 7 h");
        assert_eq!(duration_text(f64::INFINITY), "unknown");
    }
}
