//! Recording of checksums: of writes, in the journal and in the pages, and of data that is already
//! in place.

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, IoRequest};
use stripewise_layout::{Stripe, UnitRange, WritePlan};

use crate::array::BLOCK_BYTES;
use crate::array::parts::{UnitParts, written_ranges};
use crate::checksums::{Pin, Sums, recorded_sequence};
use crate::error::ArrayError;
use crate::journal::SumRun;
use crate::member::Class;
use crate::sums::state::BlockSums;

/// Flag of a run of checksums in a record: they are those of the data before the write.
pub(crate) const OLD_SUMS: u16 = 1 << 15;

/// Checksums of new contents of a unit, and their pages.
pub(crate) struct UnitSums {
    pub unit: usize,
    /// Offset in the strip, in bytes.
    pub start: u64,
    column: u16,
    /// The same place, as an offset in the column.
    offset_bytes: u64,
    pin: Pin,
    /// `Err`: the contents of this many bytes are not known, and nothing is recorded.
    pub sums: Result<Sums, u64>,
    /// Old checksums of unrecorded blocks, as far as they could be read, by block.
    found: Vec<(usize, u32)>,
}

/// Selects the blocks whose checksum [`BlockSums::record_content`] records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recording {
    /// All blocks, recorded before or not.
    All,
    /// Blocks without a recorded checksum.
    Unknown,
}

/// Checksums that a write changes.
pub(crate) type NewSums = SmallVec<[UnitSums; 3]>;

impl BlockSums {
    /// Adds the checksums of a write to a stripe, data in parts and parity, for all columns,
    /// present or missing.
    pub(crate) async fn add_new_sums(
        &self,
        (stripe, parts, plan, parity): (&Stripe, &[UnitParts], &WritePlan, &[Buffer]),
        new: &mut NewSums,
    ) -> Result<(), ArrayError> {
        if self.get().is_none() {
            return Ok(());
        }
        for range in self.changed_units(parts, plan) {
            new.push(self.of_unit(stripe, range).await?);
        }
        if self.geometry.copies() > 1 {
            self.sum_copies(&parts[0], new);
        } else {
            self.sum_units(parts, parity, new);
        }
        Ok(())
    }

    /// Range that a write changes in each unit, in ascending order of units.
    fn changed_units(&self, parts: &[UnitParts], plan: &WritePlan) -> SmallVec<[UnitRange; 3]> {
        let written = written_ranges(parts);
        if self.geometry.copies() > 1 {
            return (0..self.geometry.copies()).map(|unit| UnitRange { unit, ..written[0] }).collect();
        }
        let hull = written
            .iter()
            .fold((u64::MAX, 0), |hull, range| (hull.0.min(range.start), hull.1.max(range.end)));
        let (start, end) = plan.window.unwrap_or(hull);
        let parity = self.geometry.data_units()..self.geometry.units();
        written.into_iter().chain(parity.map(|unit| UnitRange { unit, start, end })).collect()
    }

    fn sum_copies(&self, parts: &UnitParts, copies: &mut NewSums) {
        let sums = self.get().expect("called for arrays with checksums");
        let mut first: Option<(Sums, (u16, u64))> = None;
        for copy in copies {
            let name = (copy.column, copy.offset_bytes);
            let values = match &first {
                Some((values, from)) => sums.table.translate(values, *from, name),
                None => self.sums_of_parts(name, copy.start, parts),
            };
            first.get_or_insert_with(|| (values.clone(), name));
            copy.sums = Ok(values);
        }
    }

    fn sum_units(&self, parts: &[UnitParts], parity: &[Buffer], units: &mut NewSums) {
        let sums = self.get().expect("called for arrays with checksums");
        for of_unit in units {
            let name = (of_unit.column, of_unit.offset_bytes);
            match of_unit.unit.checked_sub(self.geometry.data_units()) {
                None => of_unit.sums = Ok(self.sums_of_parts(name, of_unit.start, &parts[of_unit.unit])),
                Some(number) => {
                    if let Some(content) = parity.get(number).filter(|content| !content.is_empty()) {
                        of_unit.sums = Ok(sums.table.compute(name.0, name.1, content));
                    }
                }
            }
        }
    }

    /// Pins the pages of a range of a unit; its contents are not known yet.
    pub(crate) async fn of_unit(&self, stripe: &Stripe, range: UnitRange) -> Result<UnitSums, ArrayError> {
        let sums = self.get().expect("called for arrays with checksums");
        let place = stripe.units[range.unit];
        let (column, offset_bytes) = (place.member as u16, place.offset_bytes + range.start);
        let pin = match sums.table.try_pin(column, offset_bytes, range.length()) {
            Some(pin) => pin,
            None => Box::pin(sums.table.pin(column, offset_bytes, range.length())).await?,
        };
        Ok(UnitSums {
            unit: range.unit,
            start: range.start,
            column,
            offset_bytes,
            pin,
            sums: Err(range.length()),
            found: Vec::new(),
        })
    }

    fn sums_of_parts(&self, (column, offset_bytes): (u16, u64), start: u64, parts: &UnitParts) -> Sums {
        let sums = self.get().expect("called for arrays with checksums");
        let of_part =
            |(from, data): &(u64, Buffer)| sums.table.compute(column, offset_bytes + from - start, data);
        match &parts[..] {
            [part] => of_part(part),
            parts => parts.iter().flat_map(of_part).collect(),
        }
    }

    /// Records the new checksums of a unit.
    pub(crate) fn set(&self, new: &UnitSums, sequence: u64) {
        let sums = self.get().expect("called for arrays with checksums");
        let length_bytes = match &new.sums {
            Ok(values) => {
                sums.table.set(&new.pin, new.offset_bytes, values, recorded_sequence(sequence));
                values.len() as u64 * BLOCK_BYTES
            }
            Err(length_bytes) => {
                sums.table.clear(&new.pin, new.offset_bytes, *length_bytes);
                *length_bytes
            }
        };
        self.forget_bad(usize::from(new.column), new.offset_bytes, length_bytes);
    }

    /// Records the checksum of one block of the range, or with `None` that it is unknown.
    pub(crate) fn set_block(&self, of: &UnitSums, block: usize, sum: Option<u32>, sequence: u64) {
        let Some(sums) = self.get() else { return };
        let offset_bytes = of.offset_bytes + block as u64 * BLOCK_BYTES;
        match sum {
            Some(sum) => sums.table.set(&of.pin, offset_bytes, &[sum], recorded_sequence(sequence)),
            None => sums.table.clear(&of.pin, offset_bytes, BLOCK_BYTES),
        }
    }

    /// Returns the recorded checksum of a block of the range.
    pub(crate) fn recorded(&self, of: &UnitSums, block: usize) -> Option<u32> {
        let sums = self.get()?;
        Some(sums.table.expected(&of.pin, of.offset_bytes + block as u64 * BLOCK_BYTES)?.sum)
    }

    /// True if a block that a write replaces has no recorded checksum. A model's pages lose their
    /// entries when they are reloaded, so there all blocks count as recorded.
    pub(crate) fn lacks_any_of(&self, new: &NewSums) -> bool {
        !self.zeroes.is_phantom()
            && new.iter().any(|of_unit| {
                let blocks = of_unit.sums.as_ref().map_or(0, |values| values.len());
                (0..blocks).any(|block| self.recorded(of_unit, block).is_none())
            })
    }

    /// Reads the blocks without a recorded checksum that a write is about to replace: after a crash
    /// only their checksum distinguishes a block that was not written from a torn one. The caller
    /// holds the stripe. Unreadable blocks stay unknown.
    pub(crate) async fn find_unrecorded(&self, stripe: &Stripe, new: &mut NewSums, class: Class) {
        let Some(sums) = self.get() else { return };
        let missing = self.columns.missing_in(stripe.index);
        for of_unit in new {
            let blocks = of_unit.sums.as_ref().map_or(0, |values| values.len());
            if missing.contains(usize::from(of_unit.column)) {
                continue;
            }
            let is_unknown = |block: &usize| self.recorded(of_unit, *block).is_none();
            let unknown: SmallVec<[usize; 8]> = (0..blocks).filter(is_unknown).collect();
            let read_block = |block: usize| {
                let start = of_unit.start + block as u64 * BLOCK_BYTES;
                let range = UnitRange { unit: of_unit.unit, start, end: start + BLOCK_BYTES };
                let content = self.buffers.allocate(BLOCK_BYTES as usize);
                let read =
                    self.columns.submit_unit_read(stripe, range, class, Cause::PreRead, content.clone());
                (block, content, read)
            };
            // All reads are submitted before the first is awaited.
            let reads: SmallVec<[_; 8]> = unknown.into_iter().map(read_block).collect();
            for (block, content, read) in reads {
                if read.await.is_ok() {
                    let offset_bytes = of_unit.offset_bytes + block as u64 * BLOCK_BYTES;
                    let sum = sums.table.compute(of_unit.column, offset_bytes, &content)[0];
                    of_unit.found.push((block, sum));
                }
            }
        }
    }

    /// True if the recorded checksum of a whole block is that of zeros.
    pub(crate) async fn is_recorded_as_zeros(
        &self,
        stripe: &Stripe,
        block: UnitRange,
    ) -> Result<bool, ArrayError> {
        let Some(sums) = self.get() else { return Ok(false) };
        if !block.start.is_multiple_of(BLOCK_BYTES) || block.length() != BLOCK_BYTES {
            return Ok(false);
        }
        let of_unit = self.of_unit(stripe, block).await?;
        let zeros = self.zeroes.slice(0..BLOCK_BYTES as usize);
        let of_zeros = sums.table.compute(of_unit.column, of_unit.offset_bytes, &zeros)[0];
        Ok(self.recorded(&of_unit, 0) == Some(of_zeros))
    }

    /// The checksums as a record of the journal carries them; with `with_old` also those of the
    /// replaced data, to distinguish old from new after a crash.
    pub(crate) fn runs(&self, new: &NewSums, with_old: bool) -> Vec<SumRun> {
        let mut runs = Vec::new();
        for of_unit in new {
            let Ok(values) = &of_unit.sums else { continue };
            let first_block = (of_unit.start / BLOCK_BYTES) as u32;
            runs.push(SumRun { unit: of_unit.unit as u16, first_block, sums: values.clone() });
            if !with_old {
                continue;
            }
            let mut is_open = false;
            for block in 0..values.len() {
                let found = || of_unit.found.iter().find(|(of, _)| *of == block).map(|(_, sum)| *sum);
                let Some(old) = self.recorded(of_unit, block).or_else(found) else {
                    is_open = false;
                    continue;
                };
                if is_open {
                    runs.last_mut().expect("just pushed").sums.push(old);
                } else {
                    let unit = of_unit.unit as u16 | OLD_SUMS;
                    let first_block = first_block + block as u32;
                    runs.push(SumRun { unit, first_block, sums: SmallVec::from_iter([old]) });
                    is_open = true;
                }
            }
        }
        runs
    }

    /// Called when a write failed and its effect is unknown: records the checksums of new blocks
    /// that are in place. The caller holds the stripe.
    pub(crate) async fn record_failed_write(&self, stripe: &Stripe, new: &NewSums, sequence: u64) {
        let Some(sums) = self.get() else { return };
        let missing = self.columns.missing_in(stripe.index);
        for of_unit in new {
            let (Ok(values), false) = (&of_unit.sums, missing.contains(usize::from(of_unit.column))) else {
                continue;
            };
            for (index, value) in values.iter().enumerate() {
                let offset_bytes = of_unit.offset_bytes + index as u64 * BLOCK_BYTES;
                let buffer = self.buffers.allocate(BLOCK_BYTES as usize);
                let request = IoRequest::read(offset_bytes, buffer.clone());
                if self.columns.submit(usize::from(of_unit.column), Class::Foreground, request).await.is_ok()
                    && sums.table.compute(of_unit.column, offset_bytes, &buffer)[0] == *value
                {
                    sums.table.set(&of_unit.pin, offset_bytes, &[*value], recorded_sequence(sequence));
                }
            }
        }
    }

    /// Records the checksums of data in place, which the caller, who holds the stripe, has read or
    /// written. The journal has no record of it. Returns the number of blocks whose checksums were
    /// recorded.
    pub(crate) async fn record_content(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        data: &Buffer,
        recording: Recording,
    ) -> Result<u64, ArrayError> {
        let Some(sums) = self.get() else { return Ok(0) };
        if recording == Recording::Unknown && data.is_phantom() {
            // A model's pages lose their entries when they are reloaded; all blocks count as
            // recorded.
            return Ok(0);
        }
        let mut of_unit = self.of_unit(stripe, range).await?;
        let is_meant =
            |block: &usize| recording == Recording::All || self.recorded(&of_unit, *block).is_none();
        let blocks = (range.length() / BLOCK_BYTES) as usize;
        let meant: SmallVec<[usize; 16]> = (0..blocks).filter(is_meant).collect();
        if meant.is_empty() {
            return Ok(0);
        }
        let recorded = meant.len() as u64;
        let content = sums.table.compute(of_unit.column, of_unit.offset_bytes, data);
        if meant.len() == blocks {
            of_unit.sums = Ok(content);
            self.set(&of_unit, 1);
            return Ok(recorded);
        }
        // A block without a recorded checksum cannot be a known bad block.
        meant.into_iter().for_each(|block| self.set_block(&of_unit, block, Some(content[block]), 1));
        Ok(recorded)
    }

    /// True if a block in the range has no recorded checksum.
    pub(crate) async fn lacks_any(&self, stripe: &Stripe, range: UnitRange) -> Result<bool, ArrayError> {
        if self.get().is_none() {
            return Ok(false);
        }
        let of_unit = self.of_unit(stripe, range).await?;
        let mut blocks = 0..(range.length() / BLOCK_BYTES) as usize;
        Ok(blocks.any(|block| self.recorded(&of_unit, block).is_none()))
    }
}
