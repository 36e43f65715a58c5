//! Drives by catalogue name or by size: `4xmg08ada400e`, `4x8TB-hdd`, several with commas.
//!
//! Expected faults: names that are none; told with the nearest.

use super::AdviceError;
use crate::system::{Catalogue, ComponentKind, How};

/// So many drives of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// How many.
    pub count: usize,
    /// As the catalogue, or as typed.
    pub name: String,
    /// Of one.
    pub bytes: u64,
    /// Whether it has no arm.
    pub is_ssd: bool,
}

/// The entries that stand for drives that are named by their size.
const ANY_HDD: &str = "mg08ada800e";
const ANY_SSD: &str = "850pro";

/// Reads `4x8TB-hdd,2xmg08ada800e`.
pub fn parse_drives(text: &str) -> Result<Vec<Kind>, AdviceError> {
    text.split(',').map(|part| parse_kind(part.trim())).collect()
}

fn parse_kind(text: &str) -> Result<Kind, AdviceError> {
    let wish = |what: String| AdviceError::Wish {
        what,
        hint: "write a number, an x, and a size or a catalogue name: 4x8TB-hdd, 8x1TB-ssd, 4xmg08ada400e"
            .to_owned(),
    };
    let (count, name) =
        text.split_once('x').ok_or_else(|| wish(format!("`{text}` does not say how many drives")))?;
    let count: usize = match count.trim().parse() {
        Ok(count @ 1..=1000) => count,
        _ => return Err(wish(format!("`{count}` is no number of drives (1 to 1000)"))),
    };
    let name = name.trim().to_ascii_lowercase();
    if let Some((bytes, is_ssd)) = by_size(&name) {
        return Ok(Kind { count, name, bytes, is_ssd });
    }
    let catalogue = Catalogue::built_in();
    let (_, name, drive) = catalogue.drives(&format!("{count}x{name}"))?;
    let bytes = drive.or("capacity", 0.0) as u64;
    Ok(Kind { count, name, bytes, is_ssd: drive.kind == ComponentKind::Ssd })
}

fn by_size(name: &str) -> Option<(u64, bool)> {
    let (size, kind) = name.split_once('-')?;
    let is_ssd = match kind {
        "hdd" => false,
        "ssd" => true,
        _ => return None,
    };
    let (number, unit) = match (size.strip_suffix("tb"), size.strip_suffix("gb")) {
        (Some(number), _) => (number, 1e12),
        (_, Some(number)) => (number, 1e9),
        _ => return None,
    };
    let bytes = number.parse::<f64>().ok()? * unit;
    (1e9..=1e15).contains(&bytes).then_some((bytes as u64, is_ssd))
}

/// The catalogue with entries for the kinds that are named by their size.
pub(super) fn catalogue(kinds: &[Kind]) -> Catalogue {
    let mut catalogue = Catalogue::built_in();
    for kind in kinds.iter().filter(|kind| by_size(&kind.name).is_some()) {
        let like = if kind.is_ssd { ANY_SSD } else { ANY_HDD };
        let mut component = catalogue.component[like].clone();
        component.title = kind.name.clone();
        if let Some(capacity) = component.parameters.get_mut("capacity") {
            capacity.value = kind.bytes as f64;
            capacity.how = How::Assumed;
        }
        catalogue.component.insert(kind.name.clone(), component);
    }
    catalogue
}

/// What stands for a kind that is named by its size.
pub(super) fn stand_in(kind: &Kind) -> Option<&'static str> {
    by_size(&kind.name).map(|_| if kind.is_ssd { ANY_SSD } else { ANY_HDD })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_by_size_and_by_name() {
        let kinds = parse_drives("4x8TB-hdd, 2xmg08ada400e,8x500GB-ssd").unwrap();
        assert_eq!((kinds[0].count, kinds[0].bytes, kinds[0].is_ssd), (4, 8_000_000_000_000, false));
        assert_eq!((kinds[1].count, kinds[1].name.as_str()), (2, "mg08ada400e"));
        assert_eq!((kinds[2].bytes, kinds[2].is_ssd), (500_000_000_000, true));
        let catalogue = catalogue(&kinds);
        assert_eq!(catalogue.component["8tb-hdd"].get("capacity"), Some(8e12));
    }

    #[test]
    fn unknown_drives_are_told_with_the_nearest() {
        let error = parse_drives("4xmg08ada40e").unwrap_err();
        assert!(error.to_string().contains("mg08ada400e"), "{error}");
        for text in ["", "4", "xhdd", "0x8TB-hdd", "-4x8TB-hdd", "4x0TB-hdd", "4x8TB", "9999x8TB-hdd"] {
            assert!(parse_drives(text).is_err(), "{text}");
        }
    }
}
