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
    source: "Elerath and Pecht, Enhanced Reliability Modeling of RAID Storage Systems, DSN 2007 \
        (field data; about 1.2 % in the first year; Backblaze Drive Stats has 1.4 to 1.7 % a year \
        for 2023 and 2024)",
};

/// Mean hours until a drive has a latent sector error: 3.15 % of nearline drives in their first
/// year.
pub(crate) const LATENT_HOURS: Assumed<f64> = Assumed {
    value: 273_700.0,
    source: "Bairavasundaram et al., An Analysis of Latent Sector Errors in Disk Drives, SIGMETRICS \
        2007 (3.15 % of nearline drives within 12 months)",
};

/// Ages at which solid-state drives fail: 0.90 % a year.
pub(crate) const SSD_FAILURE: Assumed<Law> = Assumed {
    value: Law::Weibull { location: 0.0, scale: 973_000.0, shape: 1.0 },
    source: "Backblaze, The SSD Edition: 2023 Drive Stats Mid-Year Review (0.90 % a year over the \
        lifetime of 3,144 drives, no trend with age)",
};

/// Mean hours until a solid-state drive has an unreadable block.
pub(crate) const SSD_LATENT_HOURS: Assumed<f64> = Assumed {
    value: 157_000.0,
    source: "Schroeder, Lagisetty and Merchant, Flash Reliability in Production, FAST 2016 (20 % of \
        the drives of the best of ten models within four years, 63 % of the worst: such drives \
        fail less often than hard disks, and have unreadable blocks more often)",
};

/// Failures and latent errors of a kind of drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) failure: Assumed<Law>,
    pub(crate) latent_hours: Assumed<f64>,
}

/// Field data of hard disks or of solid-state drives.
pub(crate) fn field(is_ssd: bool) -> Field {
    match is_ssd {
        true => Field { failure: SSD_FAILURE, latent_hours: SSD_LATENT_HOURS },
        false => Field { failure: FAILURE, latent_hours: LATENT_HOURS },
    }
}

/// Time between scrubs; an error waits for half of it on average.
pub(crate) const SCRUB_HOURS: Assumed<f64> =
    Assumed { value: 720.0, source: "monthly, as Debian's packages of mdadm and ZFS do" };

/// Time from a failure until a new drive is installed.
pub(crate) const REPLACEMENT_HOURS: Assumed<f64> =
    Assumed { value: 24.0, source: "a choice: a drive on the shelf and a visit within a day" };

/// Rebuild under load.
pub(crate) const REBUILD_BYTES_PER_SECOND: Assumed<f64> = Assumed {
    value: 100e6,
    source: "a choice: half of the 160 to 210 MB/s that idle arrays of 4 and 8 TB drives reach \
        (Toshiba, What is the best RAID configuration for 4 Drives?, 2023)",
};
