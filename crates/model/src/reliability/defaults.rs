//! Default assumptions, each with its source.

use super::law::Law;

/// A default with its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumed<T> {
    /// Assumed value.
    pub value: T,
    /// Publication, or a note that the value is a choice.
    pub source: &'static str,
}

/// Hours of a year.
pub const HOURS_PER_YEAR: f64 = 8760.0;

/// Ages at which drives fail: 1.2 % in the first year.
pub const FAILURE: Assumed<Law> = Assumed {
    value: Law::Weibull { location: 0.0, scale: 461_386.0, shape: 1.12 },
    source: "Elerath and Pecht, Enhanced Reliability Modeling of RAID Storage Systems, DSN 2007 (field data; about \
             1.2 % in the first year; Backblaze Drive Stats has 1.4 to 1.7 % a year for 2023 and 2024)",
};

/// Mean hours until a drive has a latent sector error: 3.15 % of nearline drives in their first
/// year.
pub(crate) const LATENT_HOURS: Assumed<f64> = Assumed {
    value: 273_700.0,
    source: "Bairavasundaram et al., An Analysis of Latent Sector Errors in Disk Drives, SIGMETRICS 2007 (3.15 % of \
             nearline drives within 12 months)",
};

/// Time between scrubs; an error waits for half of it on average.
pub(crate) const SCRUB_HOURS: Assumed<f64> =
    Assumed { value: 720.0, source: "monthly, as Debian's packages of mdadm and ZFS do" };

/// Time from a failure until a new drive is installed.
pub(crate) const REPLACEMENT_HOURS: Assumed<f64> =
    Assumed { value: 24.0, source: "a choice: a drive on the shelf and a visit within a day" };

/// Rebuild under load.
pub(crate) const REBUILD_BYTES_PER_SECOND: Assumed<f64> = Assumed {
    value: 100e6,
    source: "a choice: half of the 160 to 210 MB/s that idle arrays of 4 and 8 TB drives reach (Toshiba, What is the \
             best RAID configuration for 4 Drives?, 2023)",
};
