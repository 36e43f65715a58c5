//! Numbers of the catalogue: value, unit, where each comes from, and how it was found.
//!
//! Every name a component may carry is in [`KNOWN`] with its unit and the range in which it makes
//! sense; a file with another name, unit or a value outside is refused with the place.

use serde::{Deserialize, Serialize};

use crate::names::nearest;

/// Origin of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The maker's figure.
    DataSheet,
    /// Read directly off one measurement or stated beside it.
    Measured,
    /// Chosen so that the named rows come out right.
    Fitted,
    /// Usual for such a device; nothing was fitted.
    Assumed,
    /// A choice of structure: what the device does, not how much of it.
    Structure,
}

/// A number with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// In the unit beside it.
    pub value: f64,
    /// As [`KNOWN`] has it.
    pub unit: String,
    /// Origin of the value.
    pub how: How,
    /// Document, or the rows it was fitted to.
    pub source: String,
}

/// Definition of a parameter: unit, smallest and largest value.
pub struct Known {
    /// As in the files.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Smallest value that makes sense.
    pub least: f64,
    /// Largest value that makes sense.
    pub most: f64,
}

const fn known(name: &'static str, unit: &'static str, least: f64, most: f64) -> Known {
    Known { name, unit, least, most }
}

/// All names.
pub(crate) const KNOWN: &[Known] = &[
    // Any drive.
    known("capacity", "B", 1e6, 1e15),
    known("write_cache", "requests", 0.0, 65_536.0),
    known("write_cache_size", "MiB", 0.0, 65_536.0),
    known("interface", "MB/s", 1.0, 100_000.0),
    // Hard disks.
    known("spindle", "rpm", 1000.0, 30_000.0),
    known("heads", "heads", 1.0, 255.0),
    known("outer_rate", "MB/s", 0.1, 10_000.0),
    known("inner_rate", "MB/s", 0.1, 10_000.0),
    known("settle", "ms", 0.0, 50.0),
    known("average_seek", "ms", 0.1, 100.0),
    known("head_switch", "ms", 0.0, 20.0),
    known("write_settle", "ms", -5.0, 5.0),
    known("prepare", "us", 0.0, 100_000.0),
    known("command", "us", 0.0, 100_000.0),
    known("read_ahead", "KiB", 0.0, 1e6),
    known("read_segments", "segments", 0.0, 65_536.0),
    known("read_segment", "KiB", 0.0, 1e6),
    known("queue_depth", "commands", 1.0, 65_536.0),
    // Solid-state drives.
    known("turnaround", "us", 0.0, 10_000.0),
    known("sequential_read", "MB/s", 0.1, 100_000.0),
    known("sequential_write", "MB/s", 0.1, 100_000.0),
    known("random_read", "MB/s", 0.1, 100_000.0),
    known("page_read", "us", 0.0, 10_000.0),
    known("pages_read", "us", 0.0, 10_000.0),
    known("program", "us", 0.0, 100_000.0),
    known("random_write", "us", 0.0, 100_000.0),
    known("random_write_aged", "us", 0.0, 100_000.0),
    known("random_write_exponent", "1", 0.0, 2.0),
    known("random_write_sustained", "us/KiB", 0.0, 10_000.0),
    known("random_write_alone", "us/KiB", 0.0, 10_000.0),
    known("worst_read", "ms", 0.0, 10_000.0),
    known("worst_write", "ms", 0.0, 10_000.0),
    // Controllers and software.
    known("read", "us", 0.0, 100_000.0),
    known("read_direct", "us", 0.0, 100_000.0),
    known("per_kib", "us/KiB", 0.0, 10_000.0),
    known("stream", "us", 0.0, 100_000.0),
    known("write_strip", "us", 0.0, 100_000.0),
    known("write_strip_per_kib", "us/KiB", 0.0, 10_000.0),
    known("rate", "MB/s", 0.1, 1e6),
    known("read_rate", "MB/s", 0.1, 1e6),
    known("write_rate", "MB/s", 0.1, 1e6),
    known("latency", "us", 0.0, 1e6),
    known("latency_direct", "us", 0.0, 1e6),
    known("accept", "us", 0.0, 1e6),
    known("flush_per_host_kib", "us/KiB", 0.0, 10_000.0),
    known("flush_per_drive_kib", "us/KiB", 0.0, 10_000.0),
    known("redundant_write", "us", 0.0, 100_000.0),
    known("file_system_gain", "1", 0.1, 10.0),
    known("software", "0 or 1", 0.0, 1.0),
    known("software_request", "us", 0.0, 100_000.0),
    known("software_byte", "ns/B", 0.0, 1000.0),
    known("cores", "cores", 1.0, 1024.0),
    known("core_read", "us", 0.0, 100_000.0),
    known("core_write", "us", 0.0, 100_000.0),
    known("core_redundancy", "us", 0.0, 100_000.0),
    known("core_read_byte", "ns/B", 0.0, 1000.0),
    known("core_write_byte", "ns/B", 0.0, 1000.0),
    known("tags", "commands", 1.0, 65_536.0),
    known("in_flight", "commands", 1.0, 65_536.0),
    known("absorbs", "0 or 1", 0.0, 1.0),
    known("coalesces", "0 or 1", 0.0, 1.0),
    known("asymmetric", "0 or 1", 0.0, 1.0),
    known("parity_run", "rows", 1.0, 65_536.0),
    known("mirror_run", "KiB", 4.0, 1e9),
    known("bitmap", "0 or 1", 0.0, 1.0),
    known("rebuild_share", "1", 0.0, 0.99),
    known("rebuild_turns", "0 or 1", 0.0, 1.0),
    known("rebuild_burst", "MiB", 0.1, 1000.0),
    known("rebuild_pass", "commands", 1.0, 1000.0),
    known("rebuild_of_outer", "1", 0.01, 1.5),
    known("rebuilds_used_only", "0 or 1", 0.0, 1.0),
    known("read_cache", "MiB", 0.0, 1e6),
    known("read_cache_line", "KiB", 0.5, 65_536.0),
    known("cached_request", "us", 0.0, 1e6),
    known("cached_latency", "us", 0.0, 1e6),
    known("slab_drives", "drives", 1.0, 1000.0),
    known("record", "KiB", 0.0, 65_536.0),
    known("serial_strips", "0 or 1", 0.0, 1.0),
    known("efficiency", "1", 0.01, 2.0),
    known("strip_efficiency", "1", 0.01, 2.0),
    known("slab", "MiB", 0.0, 1e6),
    known("serial_members", "0 or 1", 0.0, 1.0),
    known("journals", "0 or 1", 0.0, 1.0),
    known("positions_per_request", "1", 1.0, 100.0),
    known("stream_read_gain", "1", 0.01, 10.0),
    known("stream_write_gain", "1", 0.01, 10.0),
    // An enclosure whose processor moves every byte, and its host.
    known("host_byte", "ns/B", 0.0, 1000.0),
    known("drive_byte", "ns/B", 0.0, 1000.0),
    known("parity_byte", "ns/B", 0.0, 1000.0),
    known("old_byte", "ns/B", 0.0, 1000.0),
    known("creation_byte", "ns/B", 0.0, 1000.0),
    known("widest_full_stripe", "strips", 1.0, 1000.0),
    known("all_drives_rate", "MB/s", 0.1, 1e6),
    known("turn_efficiency", "1", 0.01, 1.0),
    known("putc_cpu", "ns/B", 0.0, 1000.0),
    known("getc_cpu", "ns/B", 0.0, 1000.0),
    known("write_cpu", "ns/B", 0.0, 1000.0),
    known("rewrite_cpu", "ns/B", 0.0, 1000.0),
    known("read_cpu", "ns/B", 0.0, 1000.0),
    known("seek_cpu", "us", 0.0, 1e6),
    known("hidden_write", "ns/B", 0.0, 1000.0),
    known("hidden_read", "ns/B", 0.0, 1000.0),
    known("seek_rate", "1/s", 0.0, 1e6),
    known("small_read_byte", "ns/B", 0.0, 1000.0),
    known("deletion", "MB", 0.0, 1e6),
];

impl Parameter {
    /// Says what is wrong with it under this name; `None`: nothing.
    pub fn fault(&self, name: &str) -> Option<String> {
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            let near = nearest(name, KNOWN.iter().map(|known| known.name)).join(", ");
            return Some(format!("no parameter is named `{name}`; the nearest: {near}"));
        };
        if self.unit != known.unit {
            return Some(format!("the unit of `{name}` is `{}`, not `{}`", known.unit, self.unit));
        }
        let within = self.value.is_finite() && self.value >= known.least && self.value <= known.most;
        let text = || {
            let Known { least, most, unit, .. } = known;
            format!("`{name}` = {} is outside {least} to {most} {unit}", self.value)
        };
        (!within).then(text)
    }
}
