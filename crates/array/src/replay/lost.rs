//! Records of which no area has the bytes any more: their drives were lost, or the pages cannot be
//! read.
//!
//! Their blocks are dead, unless a newer record writes them: reading one is an error, since what is
//! in place may be older than what was acknowledged. Expected faults: more of them than the layout
//! tolerates, or there would be another copy.

use std::borrow::Cow;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::array::{BLOCK_BYTES, Inner};
use crate::journal::{Found, Kind, Record};

/// The records to replay: without lost data, and of lost writes in place the announcement.
pub(super) fn left_of(records: &[Found]) -> Cow<'_, [Found]> {
    if records.iter().all(|found| !found.is_lost) {
        return Cow::Borrowed(records);
    }
    let left = |found: &Found| match (found.is_lost, found.record.kind) {
        (false, _) => Some(found.clone()),
        (true, Kind::Data) => None,
        (true, _) => Some(found.as_intent()),
    };
    records.iter().filter_map(left).collect()
}

/// Notes the blocks of lost records as dead, after the others were replayed.
pub(super) fn note_lost(array: &Inner, records: &[Found]) {
    let geometry = &array.geometry;
    let stripes: FxHashSet<u64> =
        records.iter().filter(|found| found.is_lost).map(|found| found.record.stripe).collect();
    let mut whole: FxHashMap<u64, Vec<&Record>> = FxHashMap::default();
    for found in records.iter().filter(|found| !found.is_lost && stripes.contains(&found.record.stripe)) {
        whole.entry(found.record.stripe).or_default().push(&found.record);
    }
    for found in records.iter().filter(|found| found.is_lost) {
        let record = &found.record;
        if array.regions.region_of(record.stripe) >= array.regions.count() {
            continue;
        }
        let newer: Vec<&Record> = whole
            .get(&record.stripe)
            .into_iter()
            .flatten()
            .copied()
            .filter(|other| other.sequence > record.sequence)
            .collect();
        for part in record.parts.iter().filter(|part| usize::from(part.unit) < geometry.data_units()) {
            let (start, length) = (u64::from(part.start), part.len());
            let end = (start + length).min(geometry.interleave_bytes());
            let first = start / BLOCK_BYTES * BLOCK_BYTES;
            for block in (first..end).step_by(BLOCK_BYTES as usize) {
                if newer.iter().any(|record| has_block(record, part.unit, block)) {
                    continue;
                }
                let from = u64::from(part.unit) * geometry.interleave_bytes() + block;
                array.deferred.pending.cut(record.stripe, from..from + BLOCK_BYTES, record.sequence);
                array.bad.note_dead([(record.stripe * geometry.stripe_data_bytes() + from) / BLOCK_BYTES]);
            }
        }
    }
}

/// True if a record has all bytes of a block of a strip.
fn has_block(record: &Record, unit: u16, block: u64) -> bool {
    record.parts.iter().any(|part| {
        let from = u64::from(part.start);
        part.unit == unit && from <= block && block + BLOCK_BYTES <= from + part.len()
    })
}
