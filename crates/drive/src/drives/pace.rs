//! The pace of a drive: bytes per second, operations per second, or both, as text.
//!
//! `180MB/s,400iops`, `1.5GB/s`, `100 MiB/s`, `400 iops`. Parsing and printing are exact: a printed
//! pace parses back as the same pace. Expects anything a user may type; an error says what is wrong
//! and gives a correct example.

use std::fmt;
use std::str::FromStr;

/// Upper limits on completions per second; at least one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Bytes read and written per second; above zero.
    pub bytes_per_second: Option<u64>,
    /// Reads and writes per second; above zero.
    pub iops: Option<u64>,
}

/// Text that is not a pace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PaceError {
    /// Empty text, or nothing between two commas.
    #[error("a pace has an empty part; write for example 180MB/s,400iops")]
    Empty,
    /// A part that does not begin with a number.
    #[error("'{0}' does not begin with a number; write for example 180MB/s,400iops")]
    NoNumber(String),
    /// A number with an unknown unit, or without a unit.
    #[error(
        "'{0}' has no unit of pace; use kB/s, MB/s, GB/s, KiB/s, MiB/s, GiB/s or iops, as in 180MB/s,400iops"
    )]
    Unit(String),
    /// Bits instead of bytes.
    #[error("'{0}' is in bits; a pace is in bytes, as in 180MB/s")]
    Bits(String),
    /// Zero, or less than one byte or operation per second.
    #[error("'{0}' is less than one per second; leave out the part that should have no limit")]
    Zero(String),
    /// Above any real drive and above the supported range.
    #[error("'{0}' is more than 1000000 GB/s or 10^15 iops; leave out the part that should have no limit")]
    TooLarge(String),
    /// Two rates in bytes or two in operations.
    #[error("'{0}' gives the same kind of rate a second time; write one of each, as in 180MB/s,400iops")]
    Twice(String),
}

const LARGEST: u128 = 1_000_000_000_000_000;

#[derive(PartialEq, Eq)]
enum Quantity {
    Bytes,
    Operations,
}

/// Quantity that a unit measures, and its multiple of the base unit.
fn unit(text: &str, part: &str) -> Result<(Quantity, u128), PaceError> {
    let unknown = || PaceError::Unit(part.into());
    let lower = text.to_ascii_lowercase();
    if lower.contains("bit")
        || (text.ends_with("b/s") && text.starts_with(['M', 'G', 'T', 'K']))
        || lower.ends_with("bps")
    {
        return Err(PaceError::Bits(part.into()));
    }
    let (prefix, quantity) = if let Some(prefix) = lower.strip_suffix("iops") {
        (prefix, Quantity::Operations)
    } else {
        (lower.strip_suffix("b/s").ok_or_else(unknown)?, Quantity::Bytes)
    };
    let scale = match (prefix, &quantity) {
        ("", _) => 1,
        ("k", _) => 1_000,
        ("m", _) => 1_000_000,
        ("g", Quantity::Bytes) => 1_000_000_000,
        ("t", Quantity::Bytes) => 1_000_000_000_000,
        ("ki", Quantity::Bytes) => 1 << 10,
        ("mi", Quantity::Bytes) => 1 << 20,
        ("gi", Quantity::Bytes) => 1 << 30,
        ("ti", Quantity::Bytes) => 1 << 40,
        _ => return Err(unknown()),
    };
    Ok((quantity, scale))
}

/// Parses `digits[.digits]` times `scale`, to the nearest whole; `None` if it is not a number.
fn scaled(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits = |text: &str| {
        text.bytes().try_fold(0_u128, |sum, digit| {
            // Far above the accepted range, so clamping here changes no result and avoids overflow.
            Some((sum * 10 + u128::from((digit as char).to_digit(10)?)).min(LARGEST * 1_000))
        })
    };
    let fraction = &fraction[..fraction.len().min(15)];
    let divisor = 10_u128.pow(fraction.len() as u32);
    let part = (digits(fraction)? * scale + divisor / 2) / divisor;
    Some(digits(whole)?.saturating_mul(scale).saturating_add(part))
}

impl FromStr for Pace {
    type Err = PaceError;

    fn from_str(text: &str) -> Result<Self, PaceError> {
        let mut pace = Self { bytes_per_second: None, iops: None };
        for part in text.split(',').map(str::trim) {
            if part.is_empty() {
                return Err(PaceError::Empty);
            }
            let number_end = part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len());
            let number = &part[..number_end];
            if number.is_empty() {
                return Err(PaceError::NoNumber(part.into()));
            }
            let (quantity, scale) = unit(part[number_end..].trim(), part)?;
            let value = scaled(number, scale).ok_or_else(|| PaceError::NoNumber(part.into()))?;
            if value == 0 {
                return Err(PaceError::Zero(part.into()));
            }
            if value > LARGEST {
                return Err(PaceError::TooLarge(part.into()));
            }
            let limit = match quantity {
                Quantity::Bytes => &mut pace.bytes_per_second,
                Quantity::Operations => &mut pace.iops,
            };
            if limit.replace(value as u64).is_some() {
                return Err(PaceError::Twice(part.into()));
            }
        }
        Ok(pace)
    }
}

/// The shortest of the exact spellings.
fn shortest_bytes_text(bytes: u64) -> String {
    let decimal = [("B/s", 0), ("kB/s", 3), ("MB/s", 6), ("GB/s", 9)].map(|(unit, digits)| {
        let divisor = 10_u64.pow(digits);
        let fraction = format!("{:0width$}", bytes % divisor, width = digits as usize);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{}{point}{fraction}{unit}", bytes / divisor)
    });
    let binary = [("KiB/s", 10), ("MiB/s", 20), ("GiB/s", 30)]
        .into_iter()
        .filter(|(_, shift)| bytes.is_multiple_of(1 << shift))
        .map(|(unit, shift)| format!("{}{unit}", bytes >> shift));
    // Larger units win ties: `1GB/s` over `1000MB/s` by length, `0.5GB/s` never over `500MB/s`.
    decimal
        .into_iter()
        .chain(binary)
        .filter(|text| bytes == 0 || !text.starts_with('0'))
        .min_by_key(String::len)
        .expect("bytes always fit")
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes_per_second.map(shortest_bytes_text);
        let iops = self.iops.map(|iops| format!("{iops}iops"));
        let parts: Vec<String> = bytes.into_iter().chain(iops).collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Option<u64>, Option<u64>) {
        let pace: Pace = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        (pace.bytes_per_second, pace.iops)
    }

    #[test]
    fn common_spellings_of_a_pace_are_parsed() {
        assert_eq!(parse("180MB/s,400iops"), (Some(180_000_000), Some(400)));
        assert_eq!(parse("400 IOPS , 180 MB/s"), (Some(180_000_000), Some(400)));
        assert_eq!(parse("180mb/s"), (Some(180_000_000), None));
        assert_eq!(parse("1.5GB/s"), (Some(1_500_000_000), None));
        assert_eq!(parse("100MiB/s"), (Some(100 << 20), None));
        assert_eq!(parse(".5KiB/s"), (Some(512), None));
        assert_eq!(parse("1.0000000001B/s"), (Some(1), None));
        assert_eq!(parse("75kiops"), (None, Some(75_000)));
        assert_eq!(parse("1000000GB/s"), (Some(1_000_000_000_000_000), None));
    }

    #[test]
    fn invalid_paces_give_specific_errors() {
        let error = |text: &str| text.parse::<Pace>().expect_err(text);
        assert_eq!(error(""), PaceError::Empty);
        assert_eq!(error("180MB/s,"), PaceError::Empty);
        assert_eq!(error("fast"), PaceError::NoNumber("fast".into()));
        assert_eq!(error("-1MB/s"), PaceError::NoNumber("-1MB/s".into()));
        assert_eq!(error("1.2.3MB/s"), PaceError::NoNumber("1.2.3MB/s".into()));
        assert_eq!(error(".MB/s"), PaceError::NoNumber(".MB/s".into()));
        assert_eq!(error("180"), PaceError::Unit("180".into()));
        assert_eq!(error("180MB"), PaceError::Unit("180MB".into()));
        assert_eq!(error("1e3iops"), PaceError::Unit("1e3iops".into()));
        assert_eq!(error("180Mb/s"), PaceError::Bits("180Mb/s".into()));
        assert_eq!(error("180Mbit/s"), PaceError::Bits("180Mbit/s".into()));
        assert_eq!(error("180Mbps"), PaceError::Bits("180Mbps".into()));
        assert_eq!(error("0iops"), PaceError::Zero("0iops".into()));
        assert_eq!(error("0.1B/s"), PaceError::Zero("0.1B/s".into()));
        assert_eq!(
            error("99999999999999999999999999999999999999999GB/s").to_string().split(' ').nth(2),
            Some("more")
        );
        assert_eq!(error("1MB/s,2MB/s"), PaceError::Twice("2MB/s".into()));
        assert!(error("12 parsecs").to_string().contains("180MB/s,400iops"), "gives a correct example");
        assert_eq!(error("180MB/s,é"), PaceError::NoNumber("é".into()));
    }

    #[test]
    fn printed_pace_parses_back() {
        let print = |bytes_per_second, iops| Pace { bytes_per_second, iops }.to_string();
        assert_eq!(print(Some(180_000_000), Some(400)), "180MB/s,400iops");
        assert_eq!(print(Some(1_500_000_000), None), "1.5GB/s");
        assert_eq!(print(Some(100 << 20), None), "100MiB/s");
        assert_eq!(print(None, Some(75_000)), "75000iops");
        assert_eq!(print(None, None), "none");
        let mut random = crate::SplitMix64::new(3);
        for _ in 0..10_000 {
            let bytes_per_second = Some(1 + (random.next_u64() >> 15 >> random.below(48)));
            let pace = Pace { bytes_per_second, iops: Some(1 + random.below(1_000_000)) };
            let text = pace.to_string();
            assert_eq!(text.parse(), Ok(pace), "{text}");
        }
    }
}
