//! Scrub: every segment in use is read as each member has it; blocks are compared with their
//! checksums, copies and parity with the data, and what is wrong is written again in place.
//!
//! Blocks of a segment that no logical block uses have no checksum. Parity counts them, so it is
//! made to agree with them as they are.
//!
//! Faults expected: rot, unreadable blocks, lost and misdirected writes, missing members.

use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_array::Class;
use stripewise_drive::{Buffer, access};

use crate::core::Core;
use crate::drives::units::StoredUnit;
use crate::error::LogError;
use crate::mutation::{Mutation, is_chosen};
use crate::shape::BLOCK_BYTES;
use crate::steps::rebuild::LogProgress;
use crate::steps::whole::{Whole, hold, read_whole};
use crate::summary::{Summary, UNUSED, crc32c};

/// Findings of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogScrubReport {
    /// Segments that were read.
    pub segments: u64,
    /// Blocks of data that were compared with their checksum, each copy for itself.
    pub checked_blocks: u64,
    /// Blocks of data that were wrong or unreadable and are right again.
    pub repaired_blocks: u64,
    /// Blocks of parity that did not agree with the data and do again.
    pub repaired_parity_blocks: u64,
    /// Blocks of data that no redundancy could bring back.
    pub unrecoverable_blocks: u64,
}

/// Reads and mends all segments in use.
pub(crate) async fn scrub(
    core: &Rc<Core>,
    progress: &dyn Fn(LogProgress),
) -> Result<LogScrubReport, LogError> {
    let _turn = core.pass_turn.acquire(1).await;
    let mut report = LogScrubReport::default();
    let of_segments = core.segments.count;
    for segment in 0..of_segments {
        scrub_segment(core, segment, &mut report).await?;
        progress(LogProgress { segments: segment + 1, of_segments });
    }
    core.drives.flush().await?;
    Ok(report)
}

async fn scrub_segment(core: &Core, segment: u32, report: &mut LogScrubReport) -> Result<(), LogError> {
    let Some(held) = hold(core, segment).await? else { return Ok(()) };
    report.segments += 1;
    let units = core.drives.read_units(segment).await;
    let is_expected = |found: &Summary| found.sequence == held.sequence;
    let Some(whole) = read_whole(core, segment, is_expected, Class::Background).await? else {
        report.unrecoverable_blocks += core.segments.summary_blocks();
        return Ok(());
    };
    report.unrecoverable_blocks += whole.lost.len() as u64;
    for unit in units.iter().filter(|unit| !is_parity(core, unit)) {
        scrub_data(core, unit, &whole, report).await;
    }
    if core.segments.geometry.parity_units() > 0 && !is_chosen(Mutation::ScrubForgetsParity) {
        scrub_parity(core, &units, &whole, report).await;
    }
    Ok(())
}

fn is_parity(core: &Core, unit: &StoredUnit) -> bool {
    let geometry = &core.segments.geometry;
    geometry.parity_units() > 0 && unit.unit >= geometry.data_units()
}

/// Number within the segment of a data unit's first block.
fn first_block(core: &Core, unit: &StoredUnit) -> usize {
    let geometry = &core.segments.geometry;
    let data_unit = if geometry.parity_units() == 0 { 0 } else { unit.unit };
    let strip_blocks = (geometry.interleave_bytes() / BLOCK_BYTES) as usize;
    (unit.stripe * geometry.data_units() + data_unit) * strip_blocks
}

/// Compares the blocks of a strip of data with their checksums; writes the right bytes over those
/// that are wrong.
async fn scrub_data(core: &Core, unit: &StoredUnit, whole: &Whole, report: &mut LogScrubReport) {
    let block = BLOCK_BYTES as usize;
    let first = first_block(core, unit);
    for index in 0..unit.bytes.len() / block {
        let number = first + index;
        let right = || whole.data.slice(number * block..(number + 1) * block);
        let stored = unit.block(index);
        let is_right = match whole.summary.slots.get(number) {
            Some(slot) if slot.lba != UNUSED => {
                report.checked_blocks += 1;
                if whole.lost.contains(&number) {
                    continue;
                }
                stored.is_some_and(|bytes| bytes.with(crc32c).is_none_or(|crc| crc == slot.crc))
            }
            _ if number >= core.segments.payload as usize => {
                stored.is_some_and(|bytes| is_same(&bytes, &right()))
            }
            // An unused block has no checksum: it only must be readable.
            _ => stored.is_some(),
        };
        if !is_right && core.drives.mend(unit, index, right()).await {
            report.repaired_blocks += 1;
        }
    }
}

/// Compares parity with the data; writes it again where it differs. Rows of a stripe with a lost
/// block are left alone: their parity is all that may be left of it.
async fn scrub_parity(core: &Core, units: &[StoredUnit], whole: &Whole, report: &mut LogScrubReport) {
    let geometry = &core.segments.geometry;
    let block = BLOCK_BYTES as usize;
    let strip_blocks = (geometry.interleave_bytes() / BLOCK_BYTES) as usize;
    let right = core.drives.parity(&whole.data);
    let is_lost = |stripe: usize, row: usize| {
        let of_row = |unit: usize| (stripe * geometry.data_units() + unit) * strip_blocks + row;
        (0..geometry.data_units()).any(|unit| whole.lost.contains(&of_row(unit)))
    };
    let mut wrong = Vec::new();
    for unit in units.iter().filter(|unit| is_parity(core, unit)) {
        let parity = &right[unit.stripe * geometry.parity_units() + unit.unit - geometry.data_units()];
        for row in (0..strip_blocks).filter(|&row| !is_lost(unit.stripe, row)) {
            let expected = parity.slice(row * block..(row + 1) * block);
            if !unit.block(row).is_some_and(|bytes| is_same(&bytes, &expected)) {
                wrong.push(core.drives.mend(unit, row, expected));
            }
        }
    }
    let mended = join_all(wrong).await;
    report.repaired_parity_blocks += mended.into_iter().filter(|&is_mended| is_mended).count() as u64;
}

fn is_same(one: &Buffer, other: &Buffer) -> bool {
    let mut is_same = true;
    // Without bytes, as in a simulation of sizes alone, all are.
    access(&[one, other], &[], |sources, _| is_same = sources[0] == sources[1]);
    is_same
}
