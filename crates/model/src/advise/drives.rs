//! Drives by catalogue name, by size, or as measured: `4xmg08ada400e`, `4x8TB-hdd`, several with
//! commas; [`Kind::of_entry`] for a file that `drive measure` wrote.
//!
//! Expected faults: unknown names; the error names the nearest match.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::AdviceError;
use crate::catalogue::{DriveEntry, DriveModel};
use crate::measured::{MeasuredParameters, ResponseTable};
use crate::names::nearest;
use crate::system::{Catalogue, Component, ComponentKind, How, Parameter, hard_disk, solid_state};

/// A number of drives of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Number of drives.
    pub count: usize,
    /// As the catalogue, or as typed.
    pub name: String,
    /// Capacity of one drive.
    pub bytes: u64,
    /// True if it is a solid-state drive.
    pub is_ssd: bool,
    /// Its numbers, where the catalogue of systems has none of this name.
    pub(super) part: Option<Component>,
    /// Entry of the catalogue that it behaves like but for its size.
    pub(super) like: Option<&'static str>,
    /// Assumption made about the drive.
    pub(super) assumption: Option<String>,
}

/// The entries that stand for drives that are named by their size.
const ANY_HDD: &str = "mg08ada800e";
const ANY_SSD: &str = "850pro";
const ANY_NVME: &str = "nvme";
/// Drives that one kind may count.
const MOST_DRIVES: usize = 1000;

/// Reads `4x8TB-hdd,2xmg08ada800e`.
pub fn parse_drives(text: &str) -> Result<Vec<Kind>, AdviceError> {
    text.split(',').map(|part| parse_kind(part.trim())).collect()
}

/// Reads the number in front of an `x`.
pub fn parse_count(text: &str) -> Result<usize, AdviceError> {
    match text.trim().parse() {
        Ok(count) if (1..=MOST_DRIVES).contains(&count) => Ok(count),
        _ => Err(wish(format!("`{text}` is not a number of drives (1 to {MOST_DRIVES})"))),
    }
}

fn wish(what: String) -> AdviceError {
    let hint = "write a number, an x, and a size or a catalogue name: 4x8TB-hdd, 8x1TB-ssd, 4x2TB-nvme, \
                4xmg08ada400e; or paths of drives";
    AdviceError::Wish { what, hint: hint.to_owned() }
}

fn parse_kind(text: &str) -> Result<Kind, AdviceError> {
    let (count, name) =
        text.split_once('x').ok_or_else(|| wish(format!("`{text}` does not say how many drives")))?;
    Kind::named(parse_count(count)?, name)
}

impl Kind {
    /// Drives of a size (`8TB-hdd`) or a name of the catalogue.
    pub fn named(count: usize, name: &str) -> Result<Self, AdviceError> {
        let name = name.trim().to_ascii_lowercase();
        if let Some((bytes, sort)) = by_size(&name) {
            return Ok(Self::of_size(count, bytes, sort));
        }
        let catalogue = Catalogue::built_in();
        match catalogue.drives(&format!("{count}x{name}")) {
            Ok((_, name, part)) => Ok(Self {
                count,
                name,
                bytes: part.or("capacity", 0.0) as u64,
                is_ssd: part.kind == ComponentKind::Ssd,
                part: None,
                like: None,
                assumption: None,
            }),
            // Something like a size: the nearest is one.
            Err(_) if name.starts_with(|first: char| first.is_ascii_digit()) => {
                let (size, sort) = name.split_once('-').unwrap_or((name.as_str(), ""));
                let sorts = nearest(sort, ["hdd", "ssd", "nvme"]);
                let sort = sorts.first().copied().unwrap_or("hdd");
                let near = [size.to_owned(), format!("{size}b"), format!("{size}tb")]
                    .into_iter()
                    .map(|size| format!("{size}-{sort}"))
                    .find(|near| by_size(near).is_some());
                let near = near.map_or_else(String::new, |near| format!("; the nearest: {near}"));
                Err(wish(format!("there is no drive `{name}`{near}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Drives of which the size is known, and the sort: `hdd`, `ssd` or `nvme`.
    pub fn of_size(count: usize, bytes: u64, sort: &str) -> Self {
        let (like, is_ssd) = match sort {
            "hdd" => (ANY_HDD, false),
            "nvme" => (ANY_NVME, true),
            _ => (ANY_SSD, true),
        };
        let mut part = Catalogue::built_in().component[like].clone();
        let (number, unit) =
            if bytes >= 1_000_000_000_000 { (bytes as f64 / 1e12, "tb") } else { (bytes as f64 / 1e9, "gb") };
        let name = format!("{}{unit}-{sort}", (number * 100.0).round() / 100.0);
        part.title.clone_from(&name);
        if let Some(capacity) = part.parameters.get_mut("capacity") {
            capacity.value = bytes as f64;
            capacity.how = How::Assumed;
        }
        let assumption = Some(format!("{name} behaves like {like}, but for its size"));
        Self { count, name, bytes, is_ssd, part: Some(part), like: Some(like), assumption }
    }

    /// Drives of the drives' catalogue, or of a file in its form.
    pub fn of_entry(count: usize, entry: &DriveEntry) -> Self {
        let (name, bytes) = (entry.name.to_ascii_lowercase(), entry.capacity_bytes());
        let part = of_entry(entry);
        let is_ssd = part.kind == ComponentKind::Ssd;
        let assumption = match (&entry.model, is_ssd) {
            (DriveModel::Measured(_), false) => {
                format!("{name} is {}: rates as measured, an arm like that of {ANY_HDD}", entry.title)
            }
            _ => format!("{name} is {}", entry.title),
        };
        Self { count, name, bytes, is_ssd, part: Some(part), like: None, assumption: Some(assumption) }
    }

    /// Returns the same kind with this number of drives.
    pub fn times(self, count: usize) -> Self {
        Self { count, ..self }
    }

    /// True if a name means such drives.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name
            || by_size(name).is_some_and(|(bytes, sort)| Self::of_size(1, bytes, sort).name == self.name)
    }
}

fn by_size(name: &str) -> Option<(u64, &str)> {
    let (size, sort) = name.split_once('-')?;
    if !["hdd", "ssd", "nvme"].contains(&sort) {
        return None;
    }
    let (number, unit) = match (size.strip_suffix("tb"), size.strip_suffix("gb")) {
        (Some(number), _) => (number, 1e12),
        (_, Some(number)) => (number, 1e9),
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * unit;
    (1e9..=1e15).contains(&bytes).then_some((bytes as u64, sort))
}

/// Capacity of a drive of the built-in catalogue.
pub(super) fn bytes_of(name: &str) -> u64 {
    static CAPACITIES: LazyLock<Catalogue> = LazyLock::new(Catalogue::built_in);
    CAPACITIES.component[name].or("capacity", 0.0) as u64
}

/// The catalogue with the kinds that it lacks.
pub(crate) fn catalogue<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> Catalogue {
    let mut catalogue = Catalogue::built_in();
    for kind in kinds {
        if let Some(part) = &kind.part {
            catalogue.component.insert(kind.name.clone(), part.clone());
        }
    }
    catalogue
}

/// As a part of systems.
fn of_entry(entry: &DriveEntry) -> Component {
    match &entry.model {
        DriveModel::Ssd(ssd) => solid_state(entry, ssd),
        DriveModel::Hdd(_) => hard_disk(entry),
        DriveModel::Measured(measured) => as_measured(measured, &entry.title),
    }
}

/// A drive that was measured: with an arm where one short read takes as long as a turn of it.
fn as_measured(drive: &MeasuredParameters, title: &str) -> Component {
    const MIB: u64 = 1 << 20;
    const ARM_US: f64 = 2000.0;
    let depth = drive.queue_depth;
    // Bytes in a microsecond are MB/s.
    let rate = |table: &ResponseTable, bytes: u64| bytes as f64 / table.us(bytes, depth).max(1e-3);
    let (read, write) = (rate(&drive.sequential_read, MIB), rate(&drive.sequential_write, MIB));
    let (kind, mut parameters, numbers) = if drive.random_read.us(4096, 1) >= ARM_US {
        let zone = |found: Option<&(f64, f64)>| found.map_or(read, |(_, rate)| *rate);
        let (outer, inner) = (zone(drive.zones.first()), zone(drive.zones.last()));
        let like = Catalogue::built_in().component[ANY_HDD].parameters.clone();
        let numbers =
            vec![("outer_rate", "MB/s", outer.max(inner)), ("inner_rate", "MB/s", outer.min(inner))];
        (ComponentKind::Hdd, like, numbers)
    } else {
        let small_write = drive.random_write.us(4096, depth);
        let exponent = (drive.random_write.us(65536, depth) / small_write).ln() / 16f64.ln();
        let numbers = vec![
            ("interface", "MB/s", read.max(write)),
            ("command", "us", drive.random_read.us(4096, depth)),
            ("sequential_read", "MB/s", read),
            ("sequential_write", "MB/s", write),
            ("random_read", "MB/s", rate(&drive.random_read, 1 << 18)),
            ("page_read", "us", drive.random_read.us(4096, 1)),
            ("pages_read", "us", drive.random_read.us(65536, 1)),
            ("program", "us", drive.random_write.us(4096, 1)),
            ("random_write", "us", small_write),
            ("random_write_aged", "us", small_write),
            ("random_write_exponent", "1", exponent.clamp(0.0, 1.0)),
        ];
        (ComponentKind::Ssd, BTreeMap::new(), numbers)
    };
    let capacity = ("capacity", "B", drive.capacity_bytes as f64);
    for (key, unit, value) in numbers.into_iter().chain([capacity]) {
        let parameter =
            Parameter { value, unit: unit.to_owned(), how: How::Measured, source: title.to_owned() };
        parameters.insert(key.to_owned(), parameter);
    }
    Component { kind, title: title.to_owned(), parameters }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_parsed_by_size_and_by_name() {
        let kinds = parse_drives("4x8TB-hdd, 2xmg08ada400e,8x500GB-ssd, 3x1.5TB-nvme").unwrap();
        assert_eq!((kinds[0].count, kinds[0].bytes, kinds[0].is_ssd), (4, 8_000_000_000_000, false));
        assert_eq!((kinds[1].count, kinds[1].name.as_str()), (2, "mg08ada400e"));
        assert_eq!((kinds[2].bytes, kinds[2].is_ssd), (500_000_000_000, true));
        assert_eq!((kinds[3].name.as_str(), kinds[3].is_ssd), ("1.5tb-nvme", true));
        let catalogue = catalogue(&kinds);
        assert_eq!(catalogue.component["8tb-hdd"].get("capacity"), Some(8e12));
        assert!(kinds[0].is_named("8.0tb-hdd") && !kinds[0].is_named("8tb-ssd"));
    }

    #[test]
    fn catalogue_ssds_are_not_taken_for_disks() {
        for name in ["nvme", "sata-ssd"] {
            let kind = parse_drives(&format!("4x{name}")).unwrap().remove(0);
            assert!(kind.is_ssd, "{name}");
            let catalogue = catalogue([&kind]);
            let (_, _, part) = catalogue.drives(&format!("4x{name}")).unwrap();
            assert_eq!(part.kind, ComponentKind::Ssd);
            assert!(part.get("random_read").unwrap() > 200.0, "{name}: {part:?}");
        }
    }

    #[test]
    fn unknown_drives_name_the_nearest() {
        let error = parse_drives("4xmg08ada40e").unwrap_err();
        assert!(error.to_string().contains("mg08ada400e"), "{error}");
        for (text, near) in [("4x8TB-hd", "8tb-hdd"), ("4x8TB", "8tb-hdd"), ("4x8-sdd", "8tb-")] {
            let error = parse_drives(text).unwrap_err().to_string();
            assert!(error.contains(&format!("the nearest: {near}")), "{text}: {error}");
        }
        for text in ["", "4", "xhdd", "0x8TB-hdd", "-4x8TB-hdd", "4x0TB-hdd", "10000x8TB-hdd"] {
            assert!(parse_drives(text).is_err(), "{text}");
        }
    }
}
