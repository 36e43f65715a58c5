//! Scrub: every segment in use is read as each member has it; blocks are compared with their
//! checksums, copies and parity with the data, and what is wrong is written again in place.
//!
//! Blocks of a segment that no logical block uses have no checksum. Parity counts them, so it is
//! made to agree with them as they are.
//!
//! Faults expected: rot, unreadable blocks, lost and misdirected writes, missing members.

use std::ops::Range;
use std::rc::Rc;

use stripewise_array::Class;
use stripewise_drive::{Buffer, access};

use crate::core::Core;
use crate::drives::read::Manner;
use crate::drives::units::StoredUnit;
use crate::error::LogError;
use crate::mutation::{Mutation, is_chosen};
use crate::shape::BLOCK_BYTES;
use crate::steps::whole::{Whole, hold, read_whole};
use crate::summary::{Kind, Summary, UNUSED, crc32c};

/// Findings of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogScrubReport {
    /// Segments that were read.
    pub segments: u64,
    /// Bytes that were read and compared, each copy and parity for itself.
    pub checked_bytes: u64,
    /// Blocks of data that were wrong or unreadable; right again if the scrub mends.
    pub wrong_blocks: u64,
    /// Blocks of parity that did not agree with the data; they do again if the scrub mends.
    pub wrong_parity_blocks: u64,
    /// Blocks of data that no redundancy could bring back.
    pub unrecoverable_blocks: u64,
    /// Strips that they lie in.
    pub unrecoverable_strips: u64,
    /// Segments that were not compared in full, because a member is missing.
    pub incomplete_segments: u64,
    /// The wrong blocks, in order.
    pub wrong: Vec<LogWrongBlock>,
}

/// A block that a scrub found wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogWrongBlock {
    /// The member that has it.
    pub member: usize,
    /// Offset in the volume of the data that it holds, bytes; of parity, unused blocks and the
    /// log's own, none.
    pub offset_bytes: Option<u64>,
    /// True if it is parity.
    pub is_parity: bool,
    /// True if others of its row may be wrong instead: they have no checksum.
    pub is_doubtful: bool,
    /// True if the member could not read it.
    pub is_unreadable: bool,
    /// True if it is right again.
    pub is_mended: bool,
}

/// Reads the segments in use of a range, compares them, and mends them with `mends`.
pub(crate) async fn scrub(
    core: &Rc<Core>,
    segments: Range<u32>,
    mends: bool,
) -> Result<LogScrubReport, LogError> {
    let _turn = core.pass_turn.acquire(1).await;
    if mends {
        core.check()?;
    }
    let mut scrub =
        Scrub { core, manner: Manner { class: Class::Background, mends }, report: LogScrubReport::default() };
    for segment in segments.start..segments.end.min(core.segments.count) {
        scrub.segment(segment).await?;
    }
    if scrub.report.wrong.iter().any(|wrong| wrong.is_mended) {
        core.drives.flush().await?;
    }
    Ok(scrub.report)
}

/// A scrub with what it has found.
struct Scrub<'a> {
    core: &'a Core,
    manner: Manner,
    report: LogScrubReport,
}

impl Scrub<'_> {
    async fn segment(&mut self, segment: u32) -> Result<(), LogError> {
        let core = self.core;
        let Some(held) = hold(core, segment).await? else { return Ok(()) };
        self.report.segments += 1;
        let units = core.drives.read_units(segment, self.manner).await;
        self.report.checked_bytes += units.iter().map(|unit| unit.bytes.len() as u64).sum::<u64>();
        self.report.incomplete_segments += u64::from(!core.drives.missing().is_empty());
        let is_expected = |found: &Summary| found.sequence == held.sequence;
        let Some(whole) = read_whole(core, segment, is_expected, self.manner).await? else {
            let numbers = core.segments.payload..core.segments.blocks;
            self.unrecoverable(&numbers.map(|number| number as usize).collect::<Vec<_>>());
            return Ok(());
        };
        self.unrecoverable(&whole.lost);
        for unit in units.iter().filter(|unit| !is_parity(core, unit)) {
            self.data(unit, &whole).await;
        }
        if core.segments.geometry.parity_units() > 0 && !is_chosen(Mutation::ScrubForgetsParity) {
            self.parity(&units, &whole).await;
        }
        Ok(())
    }

    /// Counts blocks of a segment that are lost, by their numbers in order.
    fn unrecoverable(&mut self, blocks: &[usize]) {
        let strip_blocks = (self.core.segments.geometry.interleave_bytes() / BLOCK_BYTES) as usize;
        let strips = blocks.chunk_by(|one, next| one / strip_blocks == next / strip_blocks);
        self.report.unrecoverable_blocks += blocks.len() as u64;
        self.report.unrecoverable_strips += strips.count() as u64;
    }

    /// Compares the blocks of a strip of data with their checksums; writes the right bytes over
    /// those that are wrong.
    async fn data(&mut self, unit: &StoredUnit, whole: &Whole) {
        let core = self.core;
        let block = BLOCK_BYTES as usize;
        let first = first_block(core, unit);
        for index in 0..unit.bytes.len() / block {
            let number = first + index;
            let right = || whole.data.slice(number * block..(number + 1) * block);
            let stored = unit.block(index);
            let slot = whole.summary.slots.get(number).filter(|slot| slot.lba != UNUSED);
            let is_right = match slot {
                Some(_) if whole.lost.contains(&number) => continue,
                Some(slot) => {
                    stored.is_some_and(|bytes| bytes.with(crc32c).is_none_or(|crc| crc == slot.crc))
                }
                None if number >= core.segments.payload as usize => {
                    stored.is_some_and(|bytes| is_same(&bytes, &right()))
                }
                // An unused block has no checksum: it only must be readable.
                None => stored.is_some(),
            };
            if !is_right {
                self.report.wrong_blocks += 1;
                let offset_bytes = slot
                    .filter(|_| matches!(whole.summary.kind, Kind::Data(_)))
                    .map(|slot| slot.lba * BLOCK_BYTES);
                self.wrong(unit, index, right(), (offset_bytes, false)).await;
            }
        }
    }

    /// Compares parity with the data; writes it again where it differs. Rows of a stripe with a
    /// lost block are left alone: their parity is all that may be left of it.
    async fn parity(&mut self, units: &[StoredUnit], whole: &Whole) {
        let core = self.core;
        let geometry = &core.segments.geometry;
        let block = BLOCK_BYTES as usize;
        let strip_blocks = (geometry.interleave_bytes() / BLOCK_BYTES) as usize;
        let right = core.drives.parity(&whole.data);
        let row_has = |stripe: usize, row: usize, is_it: &dyn Fn(usize) -> bool| {
            let of_row = |unit: usize| (stripe * geometry.data_units() + unit) * strip_blocks + row;
            (0..geometry.data_units()).any(|unit| is_it(of_row(unit)))
        };
        let is_lost = |stripe, row| row_has(stripe, row, &|number| whole.lost.contains(&number));
        // The last block of the summary may be longer than what its checksum covers.
        let payload = core.segments.payload as usize;
        let is_unused = |number: usize| match number.checked_sub(payload) {
            Some(index) => (index + 1) * block > whole.summary.length_bytes(),
            None => whole.summary.slots.get(number).is_none_or(|slot| slot.lba == UNUSED),
        };
        for unit in units.iter().filter(|unit| is_parity(core, unit)) {
            let parity = &right[unit.stripe * geometry.parity_units() + unit.unit - geometry.data_units()];
            for row in (0..strip_blocks).filter(|&row| !is_lost(unit.stripe, row)) {
                let expected = parity.slice(row * block..(row + 1) * block);
                if !unit.block(row).is_some_and(|bytes| is_same(&bytes, &expected)) {
                    self.report.wrong_parity_blocks += 1;
                    let is_doubtful = row_has(unit.stripe, row, &is_unused);
                    self.wrong(unit, row, expected, (None, is_doubtful)).await;
                }
            }
        }
    }

    /// Notes a wrong block, and mends it in a scrub that mends.
    async fn wrong(
        &mut self,
        unit: &StoredUnit,
        index: usize,
        right: Buffer,
        (offset_bytes, is_doubtful): (Option<u64>, bool),
    ) {
        let drives = &self.core.drives;
        let (member, is_unreadable) = (unit.place.member, unit.block(index).is_none());
        let is_mended = self.manner.mends && drives.mend(unit, index, right).await;
        if self.manner.mends && !is_unreadable && !is_doubtful {
            drives.columns.member(member).iter().for_each(|member| member.count_checksum_errors(1));
        }
        let is_parity = is_parity(self.core, unit);
        let is_doubtful = is_doubtful && !is_unreadable;
        let wrong = LogWrongBlock { member, offset_bytes, is_parity, is_doubtful, is_unreadable, is_mended };
        self.report.wrong.push(wrong);
    }
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

fn is_same(one: &Buffer, other: &Buffer) -> bool {
    let mut is_same = true;
    // Without bytes, as in a simulation of sizes alone, all are.
    access(&[one, other], &[], |sources, _| is_same = sources[0] == sources[1]);
    is_same
}
