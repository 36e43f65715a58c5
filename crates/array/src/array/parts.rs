//! New data of a stripe by data unit: what a write puts together before it is planned.

use smallvec::SmallVec;
use stripewise_drive::Buffer;
use stripewise_layout::{Geometry, UnitRange};

/// New data of one data unit: bytes of the strip where parts begin, in order and without gaps.
pub(crate) type UnitParts = SmallVec<[(u64, Buffer); 1]>;

/// New data of all data units.
pub(crate) type StripeParts = SmallVec<[UnitParts; 8]>;

/// Ranges of the strip, ascending and apart from each other: where each begins and ends.
pub(crate) type StripRanges = SmallVec<[(u64, u64); 2]>;

/// Splits pieces of a stripe's data, in order and each with its first byte there, by unit.
pub(crate) fn split_by_unit<'a>(
    geometry: &Geometry,
    pieces: impl IntoIterator<Item = &'a (u64, Buffer)>,
) -> StripeParts {
    let mut parts: StripeParts = (0..geometry.data_units()).map(|_| UnitParts::new()).collect();
    for (from, data) in pieces {
        let mut at = 0;
        for range in geometry.data_ranges(*from, from + data.len() as u64) {
            let length = range.length() as usize;
            parts[range.unit].push((range.start, data.slice(at..at + length)));
            at += length;
        }
    }
    parts
}

/// Extends a unit's new data to the whole strip, which is as long as `zeroes`, with zeros.
pub(crate) fn pad_with_zeroes(parts: &mut UnitParts, zeroes: &Buffer) {
    let interleave = zeroes.len() as u64;
    let Some((first, _)) = parts.first() else {
        parts.push((0, zeroes.slice(0..zeroes.len())));
        return;
    };
    if *first > 0 {
        let length = *first as usize;
        parts.insert(0, (0, zeroes.slice(0..length)));
    }
    let (last, data) = parts.last().expect("just seen");
    let end = last + data.len() as u64;
    if end < interleave {
        parts.push((end, zeroes.slice(0..(interleave - end) as usize)));
    }
}

/// The range that each unit with new data is written in.
pub(crate) fn written_ranges(parts: &[UnitParts]) -> SmallVec<[UnitRange; 4]> {
    parts
        .iter()
        .enumerate()
        .filter_map(|(unit, parts)| {
            let (start, _) = parts.first()?;
            let (last, data) = parts.last()?;
            Some(UnitRange { unit, start: *start, end: last + data.len() as u64 })
        })
        .collect()
}

/// The bytes of the strip that any of these ranges covers, whichever unit each is of: where parity
/// changes.
pub(crate) fn covered(ranges: impl Iterator<Item = (u64, u64)>) -> StripRanges {
    let mut sorted: SmallVec<[(u64, u64); 8]> = ranges.collect();
    sorted.sort_unstable();
    let mut covered = StripRanges::new();
    for (start, end) in sorted {
        match covered.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => covered.push((start, end)),
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use stripewise_layout::{Level, Shape};

    use super::*;

    const STRIP: u64 = 16 << 10;

    fn geometry() -> Geometry {
        let shape =
            Shape { level: Level::Raid5, width: 4, groups: 1, interleave_bytes: STRIP, rotation_rows: 1 };
        Geometry::new(shape, 1 << 20).expect("a possible shape")
    }

    fn bytes(length: u64, byte: u8) -> Buffer {
        Buffer::from_bytes(&vec![byte; length as usize])
    }

    #[test]
    fn pieces_that_cross_strips_are_cut_there() {
        let pieces = [(STRIP - 4096, bytes(8192, 1)), (STRIP + 4096, bytes(4096, 2))];
        let parts = split_by_unit(&geometry(), &pieces);
        let places = |unit: usize| -> Vec<(u64, usize)> {
            parts[unit].iter().map(|(start, data)| (*start, data.len())).collect()
        };
        assert_eq!(places(0), [(STRIP - 4096, 4096)]);
        assert_eq!(places(1), [(0, 4096), (4096, 4096)]);
        assert!(parts[2].is_empty());
        let range = |unit, start, end| UnitRange { unit, start, end };
        assert_eq!(written_ranges(&parts)[..], [range(0, STRIP - 4096, STRIP), range(1, 0, 8192)]);
    }

    #[test]
    fn parity_changes_where_any_unit_does() {
        assert!(covered(std::iter::empty()).is_empty());
        let ranges = [(12, 16), (0, 4), (14, 20), (4, 8), (30, 31)];
        assert_eq!(covered(ranges.into_iter())[..], [(0, 8), (12, 20), (30, 31)]);
    }

    #[test]
    fn padding_fills_the_strip_around_existing_parts() {
        let zeroes = bytes(STRIP, 0);
        for (start, length) in [(0, 4096), (4096, 4096), (STRIP - 4096, 4096), (0, STRIP)] {
            let mut parts = UnitParts::from_iter([(start, bytes(length, 7))]);
            pad_with_zeroes(&mut parts, &zeroes);
            let mut end = 0;
            for (from, data) in &parts {
                assert_eq!(*from, end, "no gap");
                end += data.len() as u64;
            }
            assert_eq!(end, STRIP);
            assert_eq!(parts.iter().filter(|(from, _)| *from == start).count(), 1);
        }
        let mut nothing = UnitParts::new();
        pad_with_zeroes(&mut nothing, &zeroes);
        assert_eq!((nothing.len(), nothing[0].1.len() as u64), (1, STRIP));
    }
}
