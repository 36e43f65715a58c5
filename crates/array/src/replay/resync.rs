//! After a crash, with checksums: blocks that were being written are recognised by their sums.
//!
//! The records of a stripe say which sums its blocks had, one after the other. What the last record
//! holds whole (*redo*) is written in place. A block of which the last record says only its sum
//! (*intent*) is compared: it holds the newest version, or an older one back to the last that was
//! surely durable, or it is torn. A row of blocks, one of each unit, is put together like this:
//! where all data blocks hold a version each, parity is computed again, since every block may be
//! old or new on its own. A data block that is torn, on a drive that is gone, or behind the others
//! is reconstructed from blocks that all hold the same version, if what comes out has the sum of
//! that version; one that holds no version is dead otherwise. Of several copies the newest counts
//! for all.
//!
//! What was before a redo record is durable in place, as the stripe was flushed before a record of
//! another kind followed (`log/mod.rs`); so only versions from the row's last redo record on can
//! be met. The same holds from an intent on that says so: an older version in place then means that
//! the drive has lost a write.
//!
//! Faults expected: torn blocks, blocks that cannot be read, and drives missing. Done again from
//! the beginning if it is interrupted; memory is bounded by [`STRIPES_AT_A_TIME`] stripes and their
//! records.

use std::collections::BTreeMap;

use futures_util::stream::{self, StreamExt};
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, IoRequest, access};
use stripewise_layout::{Geometry, MemberSet, Stripe, UnitRange};

use crate::array::parity::recover_units;
use crate::array::{BLOCK_BYTES, Inner};
use crate::error::ArrayError;
use crate::journal::{ALL_BEFORE, Found, Kind, Record};
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::replay::redo::{Replay, note_block_dead};
use crate::sums::{OLD_SUMS, UnitSums};

/// Stripes put right at a time.
const STRIPES_AT_A_TIME: usize = 32;

/// One record's information on a block.
#[derive(Clone, Copy)]
struct Touch {
    /// Index of the record in the stripe's list.
    record: usize,
    /// The block's sum from then on; `None`: nothing is recorded of it.
    new: Option<u32>,
    /// The sum before, if the record has it.
    old: Option<u32>,
}

type Touches = SmallVec<[Touch; 2]>;

/// A stripe that is being resynchronised.
struct StripeResync<'a> {
    inner: &'a Inner,
    stripe: &'a Stripe,
    missing: MemberSet,
    records: Vec<Record>,
    /// Data acknowledged from the journal that is written in place with the record of this number:
    /// byte of the stripe's data, oldest first.
    pending: Vec<(usize, u64, Buffer)>,
    interleave: u64,
    data_units: usize,
    /// Per unit and block of the strip.
    touches: Vec<Touches>,
    blocks: usize,
    /// The pages of each unit.
    sums: Vec<UnitSums>,
    /// Contents of the units, once read; `None` for blocks that cannot be.
    strips: Option<Vec<Vec<Option<Buffer>>>>,
    writes: Vec<Completion>,
}

impl StripeResync<'_> {
    fn touches(&self, unit: usize, block: usize) -> &Touches {
        &self.touches[unit * self.blocks + block]
    }

    fn range(&self, unit: usize, block: usize) -> UnitRange {
        let start = block as u64 * BLOCK_BYTES;
        UnitRange { unit, start, end: start + BLOCK_BYTES }
    }

    /// The content that the records have of a block as it was last, if they have it. A write that
    /// passes over a block between two that it changes has only its sum in the record; what the
    /// block holds is in a record before it with the same sum then, or durable in place, as it is
    /// where an intent lies between (`log/mod.rs`).
    fn payload(&self, unit: usize, block: usize) -> Option<Buffer> {
        let touches = self.touches(unit, block);
        let last = touches.last()?;
        let looks_further = last.new.is_some() && !mutation::is_chosen(Mutation::PassedOverForgotten);
        let looked_at = if looks_further { touches.len() } else { 1 };
        let is_it = |touch: &&Touch| self.records[touch.record].kind != Kind::Intent && touch.new == last.new;
        let with_content = touches.iter().rev().take(looked_at).take_while(is_it);
        with_content.map(|touch| touch.record).find_map(|number| self.payload_of(number, unit, block))
    }

    /// The content that a record has of a block, if it has it.
    fn payload_of(&self, number: usize, unit: usize, block: usize) -> Option<Buffer> {
        let record = &self.records[number];
        let start = block as u64 * BLOCK_BYTES;
        if unit < self.data_units && record.kind == Kind::Parity {
            let at = unit as u64 * self.interleave + start;
            let holds = |(of, from, data): &&(usize, u64, Buffer)| {
                *of == number && *from <= at && at + BLOCK_BYTES <= from + data.len() as u64
            };
            if let Some((_, from, data)) = self.pending.iter().rev().find(holds) {
                return Some(data.slice((at - from) as usize..(at - from + BLOCK_BYTES) as usize));
            }
            // The record itself has what poisons a lost block.
        }
        let part = record.parts.iter().find(|part| {
            let from = u64::from(part.start);
            usize::from(part.unit) == unit && from <= start && start + BLOCK_BYTES <= from + part.len()
        })?;
        let from = (start - u64::from(part.start)) as usize;
        // A record that was loaded has each part in one piece.
        Some(part.segments.first()?.slice(from..from + BLOCK_BYTES as usize))
    }

    /// The block's sum after the first `records` records. Of copies, one speaks for all: nothing
    /// may be recorded of one that was not there.
    fn sum_after(&self, unit: usize, block: usize, records: usize) -> Option<u32> {
        let own = self.own_sum_after(unit, block, records);
        if own.is_some() || self.inner.geometry.copies() == 1 {
            return own;
        }
        let sums = self.inner.sums.get()?;
        let name = |unit: usize| {
            let place = self.stripe.units[unit];
            (place.member as u16, place.offset_bytes + block as u64 * BLOCK_BYTES)
        };
        let of_other = |other: usize| {
            let sum = self.own_sum_after(other, block, records)?;
            Some(sums.table.translate(&[sum], name(other), name(unit))[0])
        };
        (0..self.stripe.units.len()).find_map(of_other)
    }

    fn own_sum_after(&self, unit: usize, block: usize, records: usize) -> Option<u32> {
        let touches = self.touches(unit, block);
        match touches.iter().rev().find(|touch| touch.record < records) {
            Some(touch) => touch.new,
            None => match touches.first() {
                Some(first) => first.old,
                None => self.inner.sums.recorded(&self.sums[unit], block),
            },
        }
    }

    async fn resync_row(&mut self, block: usize) -> Result<(), ArrayError> {
        let units = self.stripe.units.len();
        let mut is_touched = false;
        let mut has_intents = false;
        let mut floor = 0;
        for unit in 0..units {
            let touches = self.touches(unit, block);
            for touch in touches {
                let record = &self.records[touch.record];
                if record.kind != Kind::Intent {
                    floor = floor.max(touch.record + 1);
                } else if record.covers == ALL_BEFORE {
                    floor = floor.max(touch.record);
                }
            }
            if let Some(last) = touches.last() {
                is_touched = true;
                has_intents |= self.records[last.record].kind == Kind::Intent;
            }
        }
        if !is_touched {
            return Ok(());
        }
        if has_intents {
            return self.resync_versions(block, floor).await;
        }
        for unit in 0..units {
            let Some(&last) = self.touches(unit, block).last() else { continue };
            if let Some(content) = self.payload(unit, block) {
                self.write(unit, block, content);
            }
            self.record(unit, block, last.new);
        }
        Ok(())
    }

    /// A row in which some blocks have only their sums in the journal.
    async fn resync_versions(&mut self, block: usize, floor: usize) -> Result<(), ArrayError> {
        let inner = self.inner;
        if self.strips.is_none() {
            self.strips = Some(self.read_strips().await?);
        }
        let units = self.stripe.units.len();
        let newest = self.records.len();
        let held = |unit: usize| self.strips.as_ref().and_then(|strips| strips[unit][block].clone());
        let mut contents: Vec<Option<Buffer>> = Vec::with_capacity(units);
        let mut is_in_place = Vec::with_capacity(units);
        for unit in 0..units {
            let payload = self.payload(unit, block);
            is_in_place.push(payload.is_none());
            contents.push(payload.or_else(|| held(unit)));
        }
        let has = |unit: usize, records: usize| {
            let Some(content) = &contents[unit] else { return false };
            let expected = self.sum_after(unit, block, records);
            expected.is_none_or(|expected| expected == self.sum_of(unit, block, content))
        };
        let version = |unit: usize| (floor..=newest).rev().find(|&records| has(unit, records));
        let mut versions: Vec<Option<usize>> = (0..units).map(version).collect();

        if inner.geometry.copies() > 1 {
            let best = (0..units).filter(|&unit| versions[unit].is_some()).max_by_key(|&unit| versions[unit]);
            let content = match best {
                Some(unit) => contents[unit].clone().expect("what has a version has content"),
                None => self.poison(0, block),
            };
            for unit in 0..units {
                if best.is_none() || versions[unit].is_none() || !same(contents[unit].as_ref(), &content) {
                    self.write(unit, block, content.clone());
                }
                let sum = self.sum_of(unit, block, &content);
                self.record(unit, block, Some(sum));
            }
            return Ok(());
        }

        let data_units = inner.geometry.data_units();
        // The newest version held by enough blocks to reconstruct the others: these then get it
        // too, also one that holds an older version, since its drive may have lost a write that was
        // durable on all others.
        let mut found: SmallVec<[(usize, Buffer); 4]> = SmallVec::new();
        for records in (floor..=newest).rev() {
            let is_behind = |unit: &usize| versions[*unit].is_none_or(|version| version < records);
            let behind: SmallVec<[usize; 4]> = (0..data_units).filter(is_behind).collect();
            if behind.is_empty() {
                break;
            }
            let together: SmallVec<[usize; 12]> =
                (0..units).filter(|&unit| has(unit, records)).take(data_units).collect();
            if together.len() < data_units {
                continue;
            }
            let sources: SmallVec<[Buffer; 12]> =
                together.iter().map(|&unit| contents[unit].clone().expect("it has content")).collect();
            let wanted: Vec<Buffer> =
                behind.iter().map(|_| inner.buffers.allocate(BLOCK_BYTES as usize)).collect();
            recover_units(inner.geometry.data_units(), &together, &sources, &behind, &wanted);
            let fits = behind.iter().zip(&wanted).all(|(&unit, content)| {
                let expected = self.sum_after(unit, block, records);
                expected.is_none_or(|expected| expected == self.sum_of(unit, block, content))
            });
            if fits {
                found = behind.into_iter().zip(wanted).collect();
                break;
            }
        }
        for (unit, content) in found {
            contents[unit] = Some(content);
            versions[unit] = Some(newest);
            is_in_place[unit] = false;
        }
        for unit in 0..data_units {
            if versions[unit].is_none() {
                contents[unit] = Some(self.poison(unit, block));
                is_in_place[unit] = false;
            }
        }
        let data: Vec<Buffer> = contents[..data_units].iter().flatten().cloned().collect();
        let parity: Vec<Buffer> =
            (data_units..units).map(|_| inner.buffers.allocate(BLOCK_BYTES as usize)).collect();
        if !parity.is_empty() {
            let sources: SmallVec<[&Buffer; 12]> = data.iter().collect();
            let targets: SmallVec<[&Buffer; 3]> = parity.iter().collect();
            access(&sources, &targets, stripewise_parity::encode);
        }
        for (unit, content) in data.into_iter().chain(parity).enumerate() {
            let is_there = is_in_place[unit] && same(contents[unit].as_ref(), &content);
            let sum = self.sum_of(unit, block, &content);
            if !is_there {
                self.write(unit, block, content);
            }
            self.record(unit, block, Some(sum));
        }
        Ok(())
    }

    /// Poison for a lost block. Neither zeros, nor anything that may have been there before, nor
    /// earlier poison: if this is interrupted and repeated, the block must not pass for an old
    /// version of itself.
    fn poison(&self, unit: usize, block: usize) -> Buffer {
        let inner = self.inner;
        note_block_dead(inner, self.stripe.index, unit, block as u64 * BLOCK_BYTES);
        let stand_in = inner.buffers.allocate(BLOCK_BYTES as usize);
        let sequence = self.records.last().map_or(0, |record| record.sequence);
        let mark = (inner.spec.id ^ u128::from(sequence)).to_le_bytes();
        stand_in
            .with_mut(|bytes| bytes.chunks_exact_mut(mark.len()).for_each(|to| to.copy_from_slice(&mark)));
        stand_in
    }

    fn sum_of(&self, unit: usize, block: usize, content: &Buffer) -> u32 {
        let inner = self.inner;
        let sums = inner.sums.get().expect("asked by who has checksums");
        let place = self.stripe.units[unit];
        let at = place.offset_bytes + block as u64 * BLOCK_BYTES;
        sums.table.compute(place.member as u16, at, content)[0]
    }

    fn write(&mut self, unit: usize, block: usize, content: Buffer) {
        let inner = self.inner;
        let place = self.stripe.units[unit];
        let range = self.range(unit, block);
        if unit < inner.geometry.data_units() || inner.geometry.copies() > 1 {
            // Written data is no longer lost, also if it enters parity only.
            inner.bad.repair_unit(self.stripe, range);
        }
        if self.missing.contains(place.member) {
            return;
        }
        let request = IoRequest::write(place.offset_bytes + range.start, content, false);
        self.writes.push(inner.columns.submit(
            place.member,
            Class::Foreground,
            request.because(Cause::Journal),
        ));
    }

    fn record(&self, unit: usize, block: usize, sum: Option<u32>) {
        let inner = self.inner;
        let sequence = self.records.last().map_or(1, |record| record.sequence);
        inner.sums.set_block(&self.sums[unit], block, sum, sequence);
    }

    /// All blocks of all units that are there.
    async fn read_strips(&self) -> Result<Vec<Vec<Option<Buffer>>>, ArrayError> {
        let inner = self.inner;
        let length = inner.geometry.interleave_bytes();
        let mut reads = Vec::new();
        for unit in 0..self.stripe.units.len() {
            let is_there = !self.missing.contains(self.stripe.units[unit].member);
            let buffer = inner.buffers.allocate(length as usize);
            let whole = UnitRange { unit, start: 0, end: length };
            let answer = is_there.then(|| {
                inner.columns.submit_unit_read(
                    self.stripe,
                    whole,
                    Class::Foreground,
                    Cause::Journal,
                    buffer.clone(),
                )
            });
            reads.push((buffer, answer));
        }
        let mut strips = Vec::new();
        for (unit, (buffer, answer)) in reads.into_iter().enumerate() {
            let mut strip: Vec<Option<Buffer>> = vec![None; self.blocks];
            match answer {
                None => {}
                Some(answer) => match answer.await {
                    Ok(()) => {
                        for (block, content) in strip.iter_mut().enumerate() {
                            let at = block * BLOCK_BYTES as usize;
                            *content = Some(buffer.slice(at..at + BLOCK_BYTES as usize));
                        }
                    }
                    Err(error) => {
                        inner.note_read_error(&error).await?;
                        for (block, content) in strip.iter_mut().enumerate() {
                            let one = inner.buffers.allocate(BLOCK_BYTES as usize);
                            let range = self.range(unit, block);
                            let read = inner.columns.submit_unit_read(
                                self.stripe,
                                range,
                                Class::Foreground,
                                Cause::Journal,
                                one.clone(),
                            );
                            if read.await.is_ok() {
                                *content = Some(one);
                            }
                        }
                    }
                },
            }
            strips.push(strip);
        }
        Ok(strips)
    }
}

impl Replay<'_> {
    /// Carries the records out and makes the result durable, sums and all.
    pub(super) async fn replay_with_sums(&self, records: &[Found]) -> Result<(), ArrayError> {
        let Self { array, journal } = *self;
        let mut stripes: BTreeMap<u64, Vec<&Found>> = BTreeMap::new();
        for found in records {
            let region = array.regions.region_of(found.record.stripe);
            if region < array.regions.count() && array.regions.state(region) != RegionState::Unwritten {
                stripes.entry(found.record.stripe).or_default().push(found);
            } else if found.record.kind == Kind::Data {
                // Never made durable as a whole, or forgotten since: it reads as zeros, with what
                // is pending over it.
                self.keep_data(&journal.load(found).await?);
            }
        }
        // Each stripe by itself, enough of them at a time for the drives' queues to order. All are
        // awaited, even if one fails: nothing is in flight when this ends.
        let resyncs = stripes.iter().map(|(&index, found)| self.resync_by_sums(index, found));
        let ended: Vec<Result<(), ArrayError>> =
            stream::iter(resyncs).buffer_unordered(STRIPES_AT_A_TIME).collect().await;
        ended.into_iter().collect::<Result<(), ArrayError>>()?;
        array.flush_members().await?;
        array.release_records().await
    }

    async fn resync_by_sums(&self, index: u64, found: &[&Found]) -> Result<(), ArrayError> {
        let Self { array, journal } = *self;
        let stripe = array.geometry.stripe(index);
        let blocks = (array.geometry.interleave_bytes() / BLOCK_BYTES) as usize;
        let mut records = Vec::with_capacity(found.len());
        let mut pending: Vec<(usize, u64, Buffer)> = Vec::new();
        let mut data: Vec<Record> = Vec::new();
        for found in found {
            let record = match found.record.kind {
                Kind::Intent => found.record.clone(),
                _ => journal.load(found).await?,
            };
            if record.kind == Kind::Data {
                data.push(record);
                continue;
            }
            // A request that writes a stripe in place has first put in place what was pending of
            // it, or does so now, perhaps not all at once.
            let covers_all = record.kind != Kind::Parity || mutation::is_chosen(Mutation::ParityCoversAll);
            let is_placed = |data: &Record| covers_all || data.sequence <= record.covers;
            let (placed, later): (Vec<Record>, Vec<Record>) = data.into_iter().partition(is_placed);
            data = later;
            if record.kind == Kind::Parity {
                for part in placed.into_iter().flat_map(|record| record.parts) {
                    let mut from =
                        u64::from(part.unit) * array.geometry.interleave_bytes() + u64::from(part.start);
                    for segment in part.segments {
                        let length = segment.len() as u64;
                        pending.push((records.len(), from, segment));
                        from += length;
                    }
                }
            }
            records.push(record);
        }
        for record in &data {
            self.keep_data(record);
        }
        if records.is_empty() {
            return Ok(());
        }
        let mut touches = vec![Touches::new(); stripe.units.len() * blocks];
        for (number, record) in records.iter().enumerate() {
            note_touches(&array.geometry, number, record, blocks, &mut touches);
        }
        let mut sums = Vec::with_capacity(stripe.units.len());
        for unit in 0..stripe.units.len() {
            let whole = UnitRange { unit, start: 0, end: array.geometry.interleave_bytes() };
            sums.push(array.sums.of_unit(&stripe, whole).await?);
        }
        let mut resync = StripeResync {
            inner: array,
            stripe: &stripe,
            missing: array.columns.missing_in(index),
            records,
            pending,
            interleave: array.geometry.interleave_bytes(),
            data_units: array.geometry.data_units(),
            touches,
            blocks,
            sums,
            strips: None,
            writes: Vec::new(),
        };
        for block in 0..blocks {
            resync.resync_row(block).await?;
        }
        for write in std::mem::take(&mut resync.writes) {
            if let Err(error) = write.await {
                array.note_write_error(&error).await?;
            }
        }
        Ok(())
    }
}

/// Notes what one record says of the blocks that it touches.
fn note_touches(geometry: &Geometry, number: usize, record: &Record, blocks: usize, touches: &mut [Touches]) {
    let data_units = geometry.data_units();
    let units = touches.len() / blocks;
    let mut window = (usize::MAX, 0);
    for is_old in [false, true] {
        for run in record.sums.iter().filter(|run| (run.unit & OLD_SUMS != 0) == is_old) {
            let unit = usize::from(run.unit & !OLD_SUMS);
            for (block, &sum) in (run.first_block as usize..).zip(&run.sums) {
                // Records are checked by their own checksum; one of another shape is another
                // volume's.
                if unit >= units || block >= blocks {
                    continue;
                }
                let of_block = &mut touches[unit * blocks + block];
                if !is_old {
                    of_block.push(Touch { record: number, new: Some(sum), old: None });
                    window = (window.0.min(block), window.1.max(block + 1));
                } else if let Some(touch) = of_block.last_mut() {
                    touch.old = Some(sum);
                }
            }
        }
    }
    // Parity that no record has: it has changed, and its new value is not known.
    let parity = if geometry.copies() > 1 { units..units } else { data_units..units };
    for unit in parity {
        for block in window.0.min(window.1)..window.1 {
            let of_block = &mut touches[unit * blocks + block];
            if of_block.last().is_none_or(|touch| touch.record != number) {
                of_block.push(Touch { record: number, new: None, old: None });
            }
        }
    }
}

fn same(content: Option<&Buffer>, other: &Buffer) -> bool {
    let Some(content) = content else { return false };
    let mut equal = true;
    access(&[content, other], &[], |bytes, _| equal = bytes[0] == bytes[1]);
    equal
}
