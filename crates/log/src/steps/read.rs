//! Reading: each block comes from the open segment, from a segment that is being written, or from
//! its place on the drives.

use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_array::Class;
use stripewise_drive::Buffer;

use crate::core::Core;
use crate::error::LogError;
use crate::map::entry::{Block, Newest, Value};
use crate::map::lineage::View;
use crate::map::run::Run;
use crate::open_segment::Content;
use crate::shape::BLOCK_BYTES;
use crate::steps::look_up::look_up_in_runs;
use crate::summary::{Kind, Summary};

/// Reads `count` blocks from `lba` on, as a viewer sees them.
pub(crate) async fn read(core: &Rc<Core>, view: &View, lba: u64, count: u64) -> Result<Buffer, LogError> {
    core.check_open()?;
    let _ticket = core.readers.begin();
    let data = core.drives.buffers.allocate((count * BLOCK_BYTES) as usize);
    let block_of = |index: u64| {
        let start = (index * BLOCK_BYTES) as usize;
        data.slice(start..start + BLOCK_BYTES as usize)
    };
    let mut stored: Vec<(u64, Block)> = Vec::new();
    let mut unknown: Vec<(u64, Newest)> = Vec::new();
    // One instant: everything acknowledged before the read is seen.
    let runs: Vec<Rc<Run>> = {
        let state = core.state.borrow();
        for index in 0..count {
            match state.open.get(lba + index, view) {
                Some(Content::Bytes(bytes)) => block_of(index).copy_from(&bytes),
                Some(Content::Zeroes) => block_of(index).fill(0),
                None => match state.map.in_memory(lba + index, view) {
                    Newest { found: Some(entry), is_final: true } => match entry.value {
                        Value::Block(block) => stored.push((index, block)),
                        Value::Hole => block_of(index).fill(0),
                    },
                    newest => unknown.push((index, newest)),
                },
            }
        }
        state.map.runs.clone()
    };
    for (index, newest) in unknown {
        let found = look_up_in_runs(core, &runs, lba + index, view, newest).await?;
        match found.and_then(|entry| entry.block()) {
            Some(block) => stored.push((index, block)),
            None => block_of(index).fill(0),
        }
    }
    stored.sort_unstable_by_key(|(index, _)| *index);
    let pieces = stored.chunk_by(|(index, block), (next, after)| {
        let is_same_segment = core.segments.segment_of(block.place) == core.segments.segment_of(after.place);
        next - index == 1 && after.place == block.place + 1 && is_same_segment
    });
    let reads = pieces.map(|piece| async {
        let (first, start) = piece[0];
        let crcs: Vec<u32> = piece.iter().map(|(_, block)| block.crc).collect();
        let bytes = read_stored(core, start.place, &crcs, Class::Foreground).await?;
        let at = (first * BLOCK_BYTES) as usize;
        data.slice(at..at + bytes.len()).copy_from(&bytes);
        Ok::<(), LogError>(())
    });
    // All of them to their end: one may be writing back what it repaired.
    join_all(reads).await.into_iter().collect::<Result<(), LogError>>()?;
    Ok(data)
}

/// Reads blocks of one segment, from memory while it is being written.
pub(crate) async fn read_stored(
    core: &Core,
    place: u64,
    crcs: &[u32],
    class: Class,
) -> Result<Buffer, LogError> {
    let segment = core.segments.segment_of(place);
    let in_flight = core.state.borrow().in_flight_data(segment);
    match in_flight {
        Some(bytes) => {
            let start = (core.segments.slot_of(place) * BLOCK_BYTES) as usize;
            Ok(bytes.slice(start..start + crcs.len() * BLOCK_BYTES as usize))
        }
        None => core.drives.read(place, crcs, class).await,
    }
}

/// Reads the summary of a segment of data that was written with this sequence.
pub(crate) async fn read_summary(core: &Core, segment: u32, sequence: u64) -> Result<Summary, LogError> {
    let place = core.segments.place(segment, core.segments.payload);
    let is_right = |bytes: &[u8]| Summary::decode(bytes).is_some_and(|found| found.sequence == sequence);
    let count = core.segments.summary_blocks();
    let bytes = core.drives.read_if(place, count, Class::Foreground, is_right).await?;
    let summary = bytes.with(Summary::decode).flatten();
    summary
        .filter(|summary| matches!(summary.kind, Kind::Data(_)))
        .ok_or_else(|| LogError::Lost { place, why: "its segment's summary is of another kind".into() })
}
