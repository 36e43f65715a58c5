//! Arithmetic on a stripe's units: computes new parity from the change of the data or from all
//! data, and reconstructs units from others. No I/O.

use smallvec::SmallVec;
use stripewise_drive::{Buffer, BufferPool, access};
use stripewise_layout::{Decode, Geometry, UnitRange, WriteMethod, WritePlan};
use stripewise_parity::Recovery;

use crate::array::parts::UnitParts;

/// Known pieces of a unit's content, old and new: start, end and bytes. Where pieces overlap the
/// first counts.
type KnownPieces = SmallVec<[(u64, u64, Buffer); 2]>;

/// Computes the new parity over the plan's window, P first; empty if no parity is written.
pub(crate) fn new_parity(
    geometry: &Geometry,
    buffers: &BufferPool,
    parts: &[UnitParts],
    plan: &WritePlan,
    old: &[(UnitRange, Buffer)],
) -> SmallVec<[Buffer; 3]> {
    let Some((start, end)) = plan.window else { return SmallVec::new() };
    match plan.method {
        WriteMethod::ReadModifyWrite => modified_parity(geometry, parts, plan, old, start),
        _ => encoded_parity(geometry, buffers, parts, plan, old, start, end),
    }
}

fn modified_parity(
    geometry: &Geometry,
    parts: &[UnitParts],
    plan: &WritePlan,
    old: &[(UnitRange, Buffer)],
    start: u64,
) -> SmallVec<[Buffer; 3]> {
    let data_units = geometry.data_units();
    let which: SmallVec<[usize; 3]> = plan
        .reads
        .iter()
        .filter(|range| range.unit >= data_units)
        .map(|range| range.unit - data_units)
        .collect();
    let parity: SmallVec<[Buffer; 3]> =
        old.iter().filter(|(range, _)| range.unit >= data_units).map(|(_, buffer)| buffer.clone()).collect();
    for (range, old_data) in old.iter().filter(|(range, _)| range.unit < data_units) {
        for (from, new_data) in &parts[range.unit] {
            let at = (from - range.start) as usize;
            let change = old_data.slice(at..at + new_data.len());
            access(&[new_data], &[&change], |new, change| stripewise_parity::xor_into(change[0], new[0]));
            let at = (from - start) as usize;
            let windows: SmallVec<[Buffer; 3]> =
                parity.iter().map(|p| p.slice(at..at + new_data.len())).collect();
            let windows: SmallVec<[&Buffer; 3]> = windows.iter().collect();
            access(&[&change], &windows, |change, parity| {
                stripewise_parity::update(range.unit, change[0], &which, parity);
            });
        }
    }
    // Indexed by number, so that the writer finds P, Q and R whichever are present.
    let mut by_number: SmallVec<[Buffer; 3]> =
        (0..geometry.parity_units()).map(|_| Buffer::phantom(0)).collect();
    for (number, buffer) in which.into_iter().zip(parity) {
        by_number[number] = buffer;
    }
    by_number
}

fn encoded_parity(
    geometry: &Geometry,
    buffers: &BufferPool,
    parts: &[UnitParts],
    plan: &WritePlan,
    old: &[(UnitRange, Buffer)],
    start: u64,
    end: u64,
) -> SmallVec<[Buffer; 3]> {
    let length = (end - start) as usize;
    let data_units = geometry.data_units();
    let decoded = plan.decode.as_deref().map(|decode| decode_units(geometry, buffers, decode, old));
    // New data hides old data. The cuts divide the window into stretches in which every unit is
    // one piece of memory.
    let mut units: SmallVec<[KnownPieces; 8]> = SmallVec::new();
    let mut cuts: SmallVec<[u64; 8]> = SmallVec::from_iter([start, end]);
    for (unit, new) in parts.iter().enumerate().take(data_units) {
        let mut pieces = KnownPieces::new();
        for (from, data) in new {
            pieces.push((*from, from + data.len() as u64, data.clone()));
        }
        if let Some((range, buffer)) = old.iter().find(|(range, _)| range.unit == unit) {
            pieces.push((range.start, range.end, buffer.clone()));
        }
        if let Some((wanted, buffers)) = &decoded
            && let Some(index) = wanted.iter().position(|&wanted| wanted == unit)
        {
            pieces.push((start, end, buffers[index].clone()));
        }
        cuts.extend(
            pieces.iter().flat_map(|(from, to, _)| [*from, *to]).filter(|cut| (start..end).contains(cut)),
        );
        units.push(pieces);
    }
    cuts.sort_unstable();
    cuts.dedup();
    let parity: SmallVec<[Buffer; 3]> =
        (0..geometry.parity_units()).map(|_| buffers.allocate(length)).collect();
    for stretch in cuts.windows(2) {
        let (from, to) = (stretch[0], stretch[1]);
        let sources: SmallVec<[Buffer; 12]> = units
            .iter()
            .map(|pieces| {
                let (piece_start, _, buffer) = pieces
                    .iter()
                    .find(|(piece_start, piece_end, _)| *piece_start <= from && to <= *piece_end)
                    .expect("a plan leaves no byte of the window unknown");
                buffer.slice((from - piece_start) as usize..(to - piece_start) as usize)
            })
            .collect();
        let sources: SmallVec<[&Buffer; 12]> = sources.iter().collect();
        let targets: SmallVec<[Buffer; 3]> =
            parity.iter().map(|p| p.slice((from - start) as usize..(to - start) as usize)).collect();
        let targets: SmallVec<[&Buffer; 3]> = targets.iter().collect();
        access(&sources, &targets, stripewise_parity::encode);
    }
    parity
}

/// Reconstructs the wanted units over the decode's window from the data that was read.
pub(crate) fn decode_units(
    geometry: &Geometry,
    buffers: &BufferPool,
    decode: &Decode,
    read: &[(UnitRange, Buffer)],
) -> (SmallVec<[usize; 3]>, SmallVec<[Buffer; 3]>) {
    let sources: SmallVec<[Buffer; 12]> = decode
        .sources
        .iter()
        .map(|unit| {
            let (range, buffer) =
                read.iter().find(|(range, _)| range.unit == *unit).expect("sources are read");
            slice_of(buffer, range.start, decode.start, decode.end)
        })
        .collect();
    let length = (decode.end - decode.start) as usize;
    let wanted: SmallVec<[Buffer; 3]> = decode.wanted.iter().map(|_| buffers.allocate(length)).collect();
    recover_units(geometry.data_units(), &decode.sources, &sources, &decode.wanted, &wanted);
    (decode.wanted.clone(), wanted)
}

/// Reconstructs `wanted` units from as many `sources` as the stripe has data units.
pub(crate) fn recover_units(
    data_units: usize,
    source_units: &[usize],
    sources: &[Buffer],
    wanted_units: &[usize],
    wanted: &[Buffer],
) {
    let recovery = Recovery::new(data_units, source_units, wanted_units)
        .expect("any data_units of a stripe's units recover the others");
    let sources: SmallVec<[&Buffer; 12]> = sources.iter().collect();
    let wanted: SmallVec<[&Buffer; 3]> = wanted.iter().collect();
    access(&sources, &wanted, |sources, wanted| recovery.apply(sources, wanted));
}

/// Bytes `start..end` of a strip, out of a buffer that begins at byte `at` of the strip.
pub(crate) fn slice_of(buffer: &Buffer, at: u64, start: u64, end: u64) -> Buffer {
    buffer.slice((start - at) as usize..(end - at) as usize)
}
