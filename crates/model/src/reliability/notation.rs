//! Parameters of an estimate as people write them, on the command line and in Python.
//!
//! Expected faults: any text that a user may type.

use std::str::FromStr;

use stripewise_layout::{LayoutError, LayoutSpec};

use super::{Batch, Law};

/// A number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err(format!("`{text}` is not a number above 0")),
    }
}

/// Mean hours to a latent error: hours, an exponential law, or `none`.
pub fn latent_hours(text: &str) -> Result<Option<f64>, String> {
    match law_or_none(text, Law::exponential)? {
        None => Ok(None),
        Some(Law::Weibull { location: 0.0, scale, shape: 1.0 }) => Ok(Some(scale)),
        Some(_) => {
            Err("latent errors are exponential: give the mean time as hours or as weibull:ETA,1".to_owned())
        }
    }
}

/// Time from a latent error to its repair: a law, hours between scrubs, or `none`. With hours
/// between scrubs, an error waits for the rest of the interval.
pub fn scrub(text: &str) -> Result<Option<Law>, String> {
    law_or_none(text, |hours| Law::Uniform { from: 0.0, to: hours })
}

/// Time until a new drive is there: hours, a law, or `none`.
pub fn delay(text: &str) -> Result<Option<Law>, String> {
    law_or_none(text, Law::Fixed)
}

fn law_or_none(text: &str, of_hours: impl Fn(f64) -> Law) -> Result<Option<Law>, String> {
    match (text, positive(text)) {
        ("none", _) => Ok(None),
        (_, Ok(hours)) => Ok(Some(of_hours(hours))),
        _ => Law::from_str(text).map(Some).map_err(|error| error.to_string()),
    }
}

/// The array below each drive: `raid5:4`.
pub fn inner(text: &str) -> Result<(LayoutSpec, usize), String> {
    let form = || format!("`{text}` is not a layout with a number of drives; use LAYOUT:N, as in raid5:4");
    let (layout, drives) = text.rsplit_once(':').ok_or_else(form)?;
    let layout: LayoutSpec =
        layout.parse().map_err(|error: LayoutError| format!("{error}; {}", error.hint()))?;
    match drives.parse() {
        Ok(drives @ 1..=255) => Ok((layout, drives)),
        _ => Err(form()),
    }
}

/// Bad batches: `0.05:10`.
pub fn batch(text: &str) -> Result<Batch, String> {
    let form = || format!("`{text}` is not a batch; use SHARE:FACTOR, as in 0.05:10");
    let (share, factor) = text.split_once(':').ok_or_else(form)?;
    Ok(Batch { share: share.parse().map_err(|_| form())?, factor: factor.parse().map_err(|_| form())? })
}
