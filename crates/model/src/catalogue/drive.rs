//! The drives of the catalogue.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::hdd::DataSheet;

use super::entry::{CatalogueError, Parameter, Reader};

const BUILT_IN: [(&str, &str); 7] = [
    ("mg08ada400e.toml", include_str!("../../../../catalogue/drives/mg08ada400e.toml")),
    ("mg08ada800e.toml", include_str!("../../../../catalogue/drives/mg08ada800e.toml")),
    ("hdd2j12.toml", include_str!("../../../../catalogue/drives/hdd2j12.toml")),
    ("he8.toml", include_str!("../../../../catalogue/drives/he8.toml")),
    ("sas10k.toml", include_str!("../../../../catalogue/drives/sas10k.toml")),
    ("hdd8tb.toml", include_str!("../../../../catalogue/drives/hdd8tb.toml")),
    ("hdd20tb.toml", include_str!("../../../../catalogue/drives/hdd20tb.toml")),
];

/// How an entry behaves.
#[derive(Clone, Debug, PartialEq)]
pub enum DriveModel {
    /// A hard disk.
    Hdd(DataSheet),
}

/// A drive of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveEntry {
    /// What commands call it.
    pub name: String,
    /// Maker, model, size.
    pub title: String,
    /// Its behaviour.
    pub model: DriveModel,
    /// Every parameter with its source.
    pub parameters: BTreeMap<String, Parameter>,
}

impl DriveEntry {
    /// What its file calls the sort of drive.
    pub fn kind(&self) -> &'static str {
        match &self.model {
            DriveModel::Hdd(_) => "hdd",
        }
    }

    /// What clients see.
    pub fn capacity_bytes(&self) -> u64 {
        match &self.model {
            DriveModel::Hdd(sheet) => sheet.capacity_bytes,
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
        other => return Err(reader.wrong("kind", format!("`{other}` is none of: hdd"))),
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
