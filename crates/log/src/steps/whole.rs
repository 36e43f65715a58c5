//! Reading whole segments, each block compared with its checksum.
//!
//! Faults expected: blocks that cannot be read or do not match, with and without redundancy left to
//! reconstruct them.

use stripewise_drive::Buffer;

use crate::core::{Core, State};
use crate::drives::read::Manner;
use crate::error::LogError;
use crate::readers::Ticket;
use crate::shape::BLOCK_BYTES;
use crate::summary::{Kind, Summary, UNUSED, crc32c};
use crate::usage::Content;

/// A segment as it was read.
pub(crate) struct Whole {
    pub(crate) summary: Summary,
    /// All blocks, summary included.
    pub(crate) data: Buffer,
    /// Numbers of the blocks that no redundancy could bring back.
    pub(crate) lost: Vec<usize>,
}

/// A segment in use that is not reused while this exists.
pub(crate) struct Held {
    pub(crate) sequence: u64,
    _ticket: Ticket,
}

/// Holds a segment that has data or pages of the map, once it is written; `None` if it has none.
pub(crate) async fn hold(core: &Core, segment: u32) -> Result<Option<Held>, LogError> {
    let look = |state: &mut State| {
        if state.is_in_flight(segment) {
            return None;
        }
        let used = state.usage.of(segment);
        let is_in_use = matches!(used.content, Content::Data | Content::Map);
        Some(is_in_use.then(|| Held { sequence: used.sequence, _ticket: core.readers.begin() }))
    };
    core.check_open()?;
    // Possible also when the log takes no writes.
    let found = look(&mut core.state.borrow_mut());
    match found {
        Some(found) => Ok(found),
        None => core.when(look).await,
    }
}

/// Reads a segment whose summary is as expected; `None` if it is not, or lost.
pub(crate) async fn read_whole(
    core: &Core,
    segment: u32,
    is_expected: impl Fn(&Summary) -> bool,
    manner: impl Into<Manner>,
) -> Result<Option<Whole>, LogError> {
    let manner = manner.into();
    let segments = &core.segments;
    let volume = core.identity.volume;
    let is_right = |bytes: &[u8]| {
        Summary::decode(bytes).is_some_and(|found| found.volume == volume && is_expected(&found))
    };
    let place = segments.place(segment, segments.payload);
    let found = match core.drives.read_if(place, segments.summary_blocks(), manner, is_right).await {
        Ok(bytes) => bytes,
        Err(LogError::Lost { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(summary) = found.with(Summary::decode).flatten() else { return Ok(None) };
    if summary.slots.len() as u64 > segments.payload || summary.kind == Kind::Staged {
        return Ok(None);
    }
    let data = core.drives.read_raw(segments.place(segment, 0), segments.blocks, manner).await;
    let block = BLOCK_BYTES as usize;
    let payload = segments.payload as usize * block;
    data.slice(payload..data.len()).copy_from(&found);
    let mut lost = Vec::new();
    for (number, slot) in summary.slots.iter().enumerate().filter(|(_, slot)| slot.lba != UNUSED) {
        let own = data.slice(number * block..(number + 1) * block);
        if own.with(crc32c).is_none_or(|crc| crc == slot.crc) {
            continue;
        }
        match core.drives.read(segments.place(segment, number as u64), &[slot.crc], manner).await {
            Ok(bytes) => own.copy_from(&bytes),
            Err(LogError::Lost { .. }) => lost.push(number),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(Whole { summary, data, lost }))
}
