//! The drives of the catalogue.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::hdd::DataSheet;
use crate::measured::MeasuredParameters;
use crate::ssd::SsdParameters;

use super::entry::{CatalogueError, Parameter, Reader};
use super::taken;

const BUILT_IN: [(&str, &str); 11] = [
    ("mg08ada400e.toml", include_str!("../../../../catalogue/drives/mg08ada400e.toml")),
    ("mg08ada800e.toml", include_str!("../../../../catalogue/drives/mg08ada800e.toml")),
    ("hdd2j12.toml", include_str!("../../../../catalogue/drives/hdd2j12.toml")),
    ("he8.toml", include_str!("../../../../catalogue/drives/he8.toml")),
    ("sas10k.toml", include_str!("../../../../catalogue/drives/sas10k.toml")),
    ("hdd8tb.toml", include_str!("../../../../catalogue/drives/hdd8tb.toml")),
    ("hdd20tb.toml", include_str!("../../../../catalogue/drives/hdd20tb.toml")),
    ("x25e.toml", include_str!("../../../../catalogue/drives/x25e.toml")),
    ("sata-ssd.toml", include_str!("../../../../catalogue/drives/sata-ssd.toml")),
    ("nvme.toml", include_str!("../../../../catalogue/drives/nvme.toml")),
    ("p4500.toml", include_str!("../../../../catalogue/drives/p4500.toml")),
];

/// Model of an entry's behaviour.
#[derive(Clone, Debug, PartialEq)]
pub enum DriveModel {
    /// A hard disk.
    Hdd(DataSheet),
    /// A solid-state drive.
    Ssd(SsdParameters),
    /// Anything that `drive measure` characterised.
    Measured(Box<MeasuredParameters>),
}

/// About what a drive can do: enough to choose sizes and times by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Rate of long transfers.
    pub bytes_per_second: f64,
    /// Rate of short random reads with a full queue.
    pub iops: f64,
}

/// A drive of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveEntry {
    /// Name on the command line.
    pub name: String,
    /// Maker, model, size.
    pub title: String,
    /// Its behaviour.
    pub model: DriveModel,
    /// Every parameter with its source.
    pub parameters: BTreeMap<String, Parameter>,
}

impl DriveEntry {
    /// Kind of drive, as in the catalogue file.
    pub fn kind(&self) -> &'static str {
        match &self.model {
            DriveModel::Hdd(_) => "hdd",
            DriveModel::Ssd(_) => "ssd",
            DriveModel::Measured(_) => "measured",
        }
    }

    /// Usable capacity.
    pub fn capacity_bytes(&self) -> u64 {
        match &self.model {
            DriveModel::Hdd(sheet) => sheet.capacity_bytes,
            DriveModel::Ssd(parameters) => parameters.capacity_bytes,
            DriveModel::Measured(parameters) => parameters.capacity_bytes,
        }
    }

    /// Total size of the read and write caches.
    pub fn cache_bytes(&self) -> u64 {
        let kib = match &self.model {
            DriveModel::Hdd(sheet) => {
                let read = u64::from(sheet.read_segments) * u64::from(sheet.read_segment_kib);
                read + (u64::from(sheet.write_cache_mib) << 10)
            }
            DriveModel::Ssd(parameters) => parameters.write_cache_kib.into(),
            DriveModel::Measured(parameters) => {
                parameters.read_cache_kib.saturating_add(parameters.write_burst_kib)
            }
        };
        kib.saturating_mul(1024)
    }

    /// Without simulation.
    pub fn rates(&self) -> Rates {
        match &self.model {
            DriveModel::Hdd(sheet) => {
                // A full queue halves the way of the arm and of the platter.
                let positioned_ms = sheet.average_seek_ms / 2.0 + 15_000.0 / f64::from(sheet.rpm);
                Rates { bytes_per_second: sheet.outer_mb_per_s * 1e6, iops: 1000.0 / positioned_ms }
            }
            DriveModel::Ssd(ssd) => {
                let dies = f64::from(ssd.channels * ssd.dies_per_channel);
                let programs = dies * f64::from(ssd.page_bytes) / ssd.program_us.max(1.0) * 1e6;
                let commands = (1e6 / ssd.command_us.max(0.01)).min(dies * 1e6 / ssd.read_us.max(1.0));
                Rates { bytes_per_second: programs.min(ssd.interface_mb_per_s * 1e6), iops: commands }
            }
            DriveModel::Measured(drive) => {
                let depth = drive.queue_depth;
                let stream_us =
                    drive.sequential_read.us(1 << 20, depth).max(drive.sequential_write.us(1 << 20, depth));
                let iops = 1e6 / drive.random_read.us(4096, depth);
                Rates { bytes_per_second: f64::from(1 << 20) / stream_us * 1e6, iops }
            }
        }
    }
}

/// All of them, in the catalogue's order.
pub fn drives() -> &'static [DriveEntry] {
    static DRIVES: LazyLock<Vec<DriveEntry>> = LazyLock::new(|| {
        let parsed = BUILT_IN.iter().map(|(file, text)| parse_drive(file, text));
        parsed.map(|entry| entry.unwrap_or_else(|error| panic!("built in: {error}"))).collect()
    });
    &DRIVES
}

/// One by its name, upper or lower case.
pub fn drive(name: &str) -> Result<&'static DriveEntry, CatalogueError> {
    drives().iter().find(|entry| entry.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        CatalogueError::unknown("drive", name, drives().iter().map(|entry| entry.name.as_str()))
    })
}

/// Reads an entry; `file` is for messages.
pub fn parse_drive(file: &str, text: &str) -> Result<DriveEntry, CatalogueError> {
    let raw = Reader::parse(file, text)?;
    let reader = Reader { file, text, parameters: raw.parameters };
    let model = match raw.kind.as_str() {
        "hdd" => DriveModel::Hdd(hdd(&reader)?),
        "ssd" => DriveModel::Ssd(ssd(&reader)?),
        "measured" => DriveModel::Measured(Box::new(taken::read(&reader)?)),
        other => return Err(reader.wrong("kind", format!("`{other}` is none of: hdd, ssd, measured"))),
    };
    Ok(DriveEntry { name: raw.name, title: raw.title, model, parameters: reader.parameters })
}

const HDD: [&str; 18] = [
    "capacity_bytes",
    "sector_bytes",
    "revolutions_per_minute",
    "heads",
    "outer_mb_per_s",
    "inner_mb_per_s",
    "settle_ms",
    "average_seek_ms",
    "head_switch_ms",
    "write_settle_ms",
    "command_overhead_ms",
    "interface_mb_per_s",
    "queue_depth",
    "read_segments",
    "read_segment_kib",
    "read_ahead_kib",
    "write_cache_extents",
    "write_cache_mib",
];

fn hdd(reader: &Reader) -> Result<DataSheet, CatalogueError> {
    reader.check_names(&HDD)?;
    let sheet = DataSheet {
        capacity_bytes: reader.whole("capacity_bytes")?,
        sector_bytes: reader.small("sector_bytes")?,
        rpm: reader.small("revolutions_per_minute")?,
        heads: reader.small("heads")?,
        outer_mb_per_s: reader.number("outer_mb_per_s")?,
        inner_mb_per_s: reader.number("inner_mb_per_s")?,
        settle_ms: reader.number("settle_ms")?,
        average_seek_ms: reader.number("average_seek_ms")?,
        head_switch_ms: reader.number("head_switch_ms")?,
        write_settle_ms: reader.number("write_settle_ms")?,
        command_overhead_ms: reader.number("command_overhead_ms")?,
        interface_mb_per_s: reader.number("interface_mb_per_s")?,
        queue_depth: reader.small("queue_depth")?,
        read_segments: reader.small("read_segments")?,
        read_segment_kib: reader.small("read_segment_kib")?,
        read_ahead_kib: reader.small("read_ahead_kib")?,
        write_cache_extents: reader.small("write_cache_extents")?,
        write_cache_mib: reader.small("write_cache_mib")?,
    };
    sheet.parameters().map_err(|error| reader.wrong(&error.parameter, error.why))?;
    Ok(sheet)
}

const SSD: [&str; 15] = [
    "capacity_bytes",
    "page_bytes",
    "pages_per_block",
    "channels",
    "dies_per_channel",
    "read_us",
    "program_us",
    "erase_us",
    "channel_mb_per_s",
    "interface_mb_per_s",
    "command_us",
    "latency_us",
    "queue_depth",
    "over_provisioning_percent",
    "write_cache_kib",
];

fn ssd(reader: &Reader) -> Result<SsdParameters, CatalogueError> {
    reader.check_names(&SSD)?;
    let parameters = SsdParameters {
        capacity_bytes: reader.whole("capacity_bytes")?,
        page_bytes: reader.small("page_bytes")?,
        pages_per_block: reader.small("pages_per_block")?,
        channels: reader.small("channels")?,
        dies_per_channel: reader.small("dies_per_channel")?,
        read_us: reader.number("read_us")?,
        program_us: reader.number("program_us")?,
        erase_us: reader.number("erase_us")?,
        channel_mb_per_s: reader.number("channel_mb_per_s")?,
        interface_mb_per_s: reader.number("interface_mb_per_s")?,
        command_us: reader.number("command_us")?,
        latency_us: reader.number("latency_us")?,
        queue_depth: reader.small("queue_depth")?,
        over_provisioning_percent: reader.number("over_provisioning_percent")?,
        write_cache_kib: reader.small("write_cache_kib")?,
    };
    parameters.check().map_err(|error| reader.wrong(&error.parameter, error.why))?;
    Ok(parameters)
}
