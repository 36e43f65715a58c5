//! Unrecoverable read errors as data sheets state them, in errors per bit read, and probabilities
//! in words.
//!
//! A data sheet bounds the rate at which reads fail; field studies count drives with unreadable
//! sectors. The first grows with the bytes that a rebuild reads, the second does not.
//!
//! Expected faults: rates that no drive has.

use std::str::FromStr;

use serde::Serialize;

use super::Question;
use super::exposure::Exposure;

/// Unrecoverable errors for each bit read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct BitErrors(f64);

/// Rates that data sheets have, with room on both sides.
const LEAST: f64 = 1e-20;
const MOST: f64 = 1e-9;

impl FromStr for BitErrors {
    type Err = String;

    /// Reads `1e-14`, or the number of bits for one error: `1e14`, `10^14`, `1 in 10^14`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused =
            || format!("`{text}` is not an error rate of a data sheet: 1e-14, or 1e14 bits for one error");
        let trimmed = text.trim().to_ascii_lowercase();
        let bits = trimmed.strip_prefix("1 in ").or(trimmed.strip_prefix("1/")).unwrap_or(&trimmed).trim();
        let number = match bits.split_once('^') {
            Some((base, exponent)) => {
                let base = base.trim().parse::<f64>().map_err(|_| refused())?;
                base.powi(exponent.trim().parse().map_err(|_| refused())?)
            }
            None => bits.parse::<f64>().map_err(|_| refused())?,
        };
        let rate = if number > 1.0 { 1.0 / number } else { number };
        match (LEAST..=MOST).contains(&rate) {
            true => Ok(Self(rate)),
            false => Err(refused()),
        }
    }
}

impl BitErrors {
    /// Errors for each bit.
    pub fn per_bit(self) -> f64 {
        self.0
    }

    /// Probability that reading `bytes` meets an error: 1 - (1 - p)^bits.
    pub fn reading(self, bytes: f64) -> f64 {
        -(bytes * 8.0 * (-self.0).ln_1p()).exp_m1()
    }
}

/// Probability that one rebuild without redundancy left meets an unreadable sector: by the data
/// sheet and by field data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RebuildErrors {
    /// As given.
    pub errors_per_bit: BitErrors,
    /// Bytes that the rebuild reads.
    pub bytes_read: f64,
    /// 1 - (1 - p)^bits.
    pub by_data_sheet: f64,
    /// By latent errors as found in the field.
    pub in_the_field: f64,
}

impl RebuildErrors {
    /// Errors met in `drives` that are read whole, with the latent errors of `field`.
    pub fn of(errors: BitErrors, drives: usize, drive_bytes: u64, field: &Question) -> Self {
        let bytes_read = drives as f64 * drive_bytes as f64;
        // Long after the drives were clean.
        let exposure = Exposure::new(field.latent_hours, field.scrub.as_ref()).at(field.mission_hours);
        let in_the_field = 1.0 - (1.0 - exposure).powi(drives as i32);
        Self { errors_per_bit: errors, bytes_read, by_data_sheet: errors.reading(bytes_read), in_the_field }
    }
}

/// From here on a probability is not said as one in a number.
const OFTEN: f64 = 0.3;

/// A probability in words: `0.009 % (1 in 11,000)`.
pub fn chance(probability: f64) -> String {
    in_words(probability, "")
}

/// The same for a probability within a year: `0.009 % a year (1 in 11,000)`.
pub fn chance_per_year(probability: f64) -> String {
    in_words(probability, " a year")
}

fn in_words(probability: f64, within: &str) -> String {
    let percent = percent(probability);
    match probability {
        0.0 | OFTEN.. => format!("{percent}{within}"),
        _ => format!("{percent}{within} (1 in {})", one_in(probability)),
    }
}

/// A probability in percent with two digits, without an exponent.
pub fn percent(probability: f64) -> String {
    let percent = probability * 100.0;
    let decimals = match percent {
        0.0 => 0,
        99.5..100.0 => return "over 99 %".to_owned(),
        10.0.. => 0,
        1e-7.. => (1 - percent.log10().floor() as i32).max(0) as usize,
        _ => return "under 0.0000001 %".to_owned(),
    };
    let mut text = format!("{percent:.decimals$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    format!("{text} %")
}

/// The whole number in `1 in N`, with two digits that count and commas.
fn one_in(probability: f64) -> String {
    let number = 1.0 / probability;
    let unit = 10f64.powi((number.log10().floor() as i32 - 1).max(0));
    let digits = format!("{:.0}", (number / unit).round() * unit);
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_written_without_exponents() {
        for (probability, wanted) in [
            (0.17, "17 % (1 in 6)"),
            (0.001, "0.1 % (1 in 1,000)"),
            (0.000_09, "0.009 % (1 in 11,000)"),
            (7.881e-7, "0.000079 % (1 in 1,300,000)"),
            (0.98, "98 %"),
            (0.9999, "over 99 %"),
            (1.0, "100 %"),
            (0.0, "0 %"),
            (1e-12, "under 0.0000001 % (1 in 1,000,000,000,000)"),
        ] {
            assert_eq!(chance(probability), wanted);
        }
        assert_eq!(chance_per_year(0.000_09), "0.009 % a year (1 in 11,000)");
    }

    #[test]
    fn error_rates_are_read_as_data_sheets_print_them() {
        for text in ["1e-14", "1e14", "10^14", "1 in 10^14", "1/1e14"] {
            let rate = text.parse::<BitErrors>().unwrap().per_bit();
            assert!((rate / 1e-14 - 1.0).abs() < 1e-9, "{text}: {rate:e}");
        }
        for text in ["", "0", "1", "-1e-14", "nan", "inf", "1e-3", "10^x", "1e400", "10^-99999"] {
            assert!(text.parse::<BitErrors>().is_err(), "{text}");
        }
        let rate: BitErrors = "1e-14".parse().unwrap();
        assert!((rate.reading(12.5e12) - 0.632).abs() < 0.001, "a bit error on average");
    }
}
