//! Replays the journal's records of an array without checksums, in order; for arrays with checksums
//! see `resync.rs`.
//!
//! Faults expected: missing drives, and drives that refuse requests. An interrupted replay starts
//! over.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, IoRequest, Operation, access};
use stripewise_layout::{Stripe, UnitRange};

use crate::array::{BLOCK_BYTES, Inner};
use crate::error::ArrayError;
use crate::journal::{Found, Journal, Kind, Record};
use crate::map::regions::RegionState;
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::write_back::pending::PendingPiece;

/// For each stripe the first record to replay: the start of the final run of one kind. The stripe
/// was made durable before it (`log/mod.rs`), and an older record would overwrite data that a later
/// intent put in place, which no record holds.
fn needed_from<'a>(records: impl Iterator<Item = &'a Record>) -> FxHashMap<u64, u64> {
    let mut needed: FxHashMap<u64, (bool, u64)> = FxHashMap::default();
    for Record { stripe, kind, sequence, .. } in records {
        if *kind == Kind::Data {
            continue;
        }
        let is_intent = *kind == Kind::Intent;
        let (of_intents, first) = needed.entry(*stripe).or_insert((is_intent, *sequence));
        if *of_intents != is_intent {
            (*of_intents, *first) = (is_intent, *sequence);
        }
    }
    needed.into_iter().map(|(stripe, (_, first))| (stripe, first)).collect()
}

/// Replay of a journal's records, before the array serves requests.
pub(super) struct Replay<'a> {
    pub array: &'a Inner,
    pub journal: &'a Journal,
}

impl Replay<'_> {
    /// Replays the records, in order, and makes the result durable.
    pub(super) async fn replay(&self, records: &[Found]) -> Result<(), ArrayError> {
        let Self { array, journal } = *self;
        let needed_from = needed_from(records.iter().map(|found| &found.record));
        for found in records {
            let record = &found.record;
            if record.kind == Kind::Data {
                self.keep_data(&journal.load(found).await?);
                continue;
            }
            let region = array.regions.region_of(record.stripe);
            if region >= array.regions.count() || array.regions.state(region) == RegionState::Unwritten {
                // Never durable as a whole, or discarded since: it reads as zeros, overlaid by
                // pending data.
                continue;
            }
            // A request that writes a stripe in place has destaged its pending data first, perhaps
            // in several steps.
            let covers_all = record.kind != Kind::Parity || mutation::is_chosen(Mutation::ParityCoversAll);
            let placed = if covers_all { record.sequence } else { record.covers };
            let pending = array.deferred.pending.up_to(record.stripe, placed);
            array.deferred.pending.remove(record.stripe, placed);
            if needed_from.get(&record.stripe).is_some_and(|&first| record.sequence < first) {
                continue;
            }
            let stripe = array.geometry.stripe(record.stripe);
            match record.kind {
                Kind::Redo => self.redo(&stripe, &journal.load(found).await?).await?,
                Kind::Intent => self.resync_stripe(&stripe).await?,
                Kind::Parity => {
                    self.redo_pending(&stripe, &pending).await?;
                    self.redo(&stripe, &journal.load(found).await?).await?;
                }
                Kind::Data => unreachable!("kept above"),
            }
        }
        array.flush_members().await
    }

    /// Makes data that was acknowledged from the journal pending again.
    pub(super) fn keep_data(&self, record: &Record) {
        let array = self.array;
        let interleave = array.geometry.interleave_bytes();
        for part in &record.parts {
            let unit = u64::from(part.unit);
            let start = u64::from(part.start);
            let fits = start + part.len() <= interleave && unit < array.geometry.data_units() as u64;
            let region = array.regions.region_of(record.stripe);
            if !fits || region >= array.regions.count() {
                continue;
            }
            let mut from = unit * interleave + start;
            for data in &part.segments {
                let piece = PendingPiece { from, data: data.clone(), sequence: record.sequence, room: None };
                let start = record.stripe * array.geometry.stripe_data_bytes() + from;
                array.bad.repair_dead_bytes(start, start + data.len() as u64);
                from = piece.to();
                array.deferred.pending.insert(record.stripe, piece, array.context.now_ns());
            }
        }
    }

    /// Writes pending data in place; the caller writes the parity that belongs to it.
    async fn redo_pending(&self, stripe: &Stripe, pending: &[(u64, Buffer)]) -> Result<(), ArrayError> {
        let array = self.array;
        let missing = array.columns.missing_in(stripe.index);
        for (from, data) in pending {
            let mut at = 0;
            for range in array.geometry.data_ranges(*from, from + data.len() as u64) {
                let length = range.length() as usize;
                let bytes = data.slice(at..at + length);
                at += length;
                let place = stripe.units[range.unit];
                if missing.contains(place.member) {
                    continue;
                }
                // In order: where pieces overlap, the last one counts.
                let request = IoRequest::write(place.offset_bytes + range.start, bytes, false);
                if let Err(error) = array
                    .columns
                    .submit(place.member, Class::Foreground, request.because(Cause::Journal))
                    .await
                {
                    array.note_write_error(&error).await?;
                }
                array.bad.repair_unit(stripe, range);
            }
        }
        Ok(())
    }

    /// Writes the contents of a record in place.
    async fn redo(&self, stripe: &Stripe, record: &Record) -> Result<(), ArrayError> {
        let array = self.array;
        let missing = array.columns.missing_in(stripe.index);
        let mut answers = Vec::new();
        for part in &record.parts {
            let Some(place) = stripe.units.get(usize::from(part.unit)) else { continue };
            let end = u64::from(part.start) + part.len();
            if missing.contains(place.member) || end > array.geometry.interleave_bytes() {
                continue;
            }
            let at = place.offset_bytes + u64::from(part.start);
            let request =
                IoRequest::with_segments(Operation::Write { fua: false }, at, part.segments.clone());
            answers.push(array.columns.submit(
                place.member,
                Class::Foreground,
                request.because(Cause::Journal),
            ));
        }
        for answer in answers {
            if let Err(error) = answer.await {
                array.note_write_error(&error).await?;
            }
        }
        // Written data is no longer lost, even if it entered parity only.
        for part in record.parts.iter().filter(|part| usize::from(part.unit) < array.geometry.data_units()) {
            let start = u64::from(part.start);
            let range = UnitRange { unit: usize::from(part.unit), start, end: start + part.len() };
            array.bad.repair_unit(stripe, range);
        }
        Ok(())
    }

    /// Recomputes the parity of a stripe that was being written as a whole.
    async fn resync_stripe(&self, stripe: &Stripe) -> Result<(), ArrayError> {
        let array = self.array;
        let interleave = array.geometry.interleave_bytes();
        let data_units = array.geometry.data_units();
        let missing = array.columns.missing_in(stripe.index);
        let mut data: SmallVec<[Buffer; 12]> = SmallVec::new();
        for unit in 0..data_units {
            let place = stripe.units[unit];
            let buffer = array.buffers.allocate(interleave as usize);
            let read = match missing.contains(place.member) {
                true => None,
                false => {
                    let request = IoRequest::read(place.offset_bytes, buffer.clone());
                    match array
                        .columns
                        .submit(place.member, Class::Foreground, request.because(Cause::Journal))
                        .await
                    {
                        Ok(()) => Some(buffer),
                        Err(error) => {
                            array.note_read_error(&error).await?;
                            None
                        }
                    }
                }
            };
            data.push(match read {
                Some(buffer) => buffer,
                None => {
                    for start in (0..interleave).step_by(BLOCK_BYTES as usize) {
                        note_block_dead(array, stripe.index, unit, start);
                    }
                    array.buffers.allocate_zeroed(interleave as usize)
                }
            });
        }
        let parity: SmallVec<[Buffer; 3]> =
            (0..array.geometry.parity_units()).map(|_| array.buffers.allocate(interleave as usize)).collect();
        if !parity.is_empty() {
            let sources: SmallVec<[&Buffer; 12]> = data.iter().collect();
            let targets: SmallVec<[&Buffer; 3]> = parity.iter().collect();
            access(&sources, &targets, stripewise_parity::encode);
        }
        for (number, buffer) in parity.into_iter().enumerate() {
            let place = stripe.units[data_units + number];
            if missing.contains(place.member) {
                continue;
            }
            let request = IoRequest::write(place.offset_bytes, buffer, false);
            if let Err(error) =
                array.columns.submit(place.member, Class::Foreground, request.because(Cause::Journal)).await
            {
                array.note_write_error(&error).await?;
            }
        }
        Ok(())
    }
}

/// Notes that a block of a data unit is lost; `start` is its offset in the strip. A block with
/// pending data is not needed.
pub(super) fn note_block_dead(array: &Inner, stripe: u64, unit: usize, start: u64) {
    let in_stripe = unit as u64 * array.geometry.interleave_bytes() + start;
    let block = (stripe * array.geometry.stripe_data_bytes() + in_stripe) / BLOCK_BYTES;
    if !array.deferred.pending.holds_any_of(&array.geometry, block * BLOCK_BYTES, BLOCK_BYTES) {
        array.bad.note_dead([block]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redo_starts_at_the_last_change_of_record_kind() {
        let record = |(sequence, stripe, kind)| {
            let (covers, parts, sums) = (0, SmallVec::new(), Vec::new());
            Record { sequence, kind, stripe, covers, parts, sums }
        };
        let records = [
            (1, 7, Kind::Redo),
            (2, 8, Kind::Parity),
            (3, 7, Kind::Intent),
            (4, 9, Kind::Data),
            (5, 7, Kind::Parity),
            // Pending data is neither.
            (6, 7, Kind::Data),
            (7, 8, Kind::Intent),
            (8, 7, Kind::Redo),
            (9, 8, Kind::Intent),
        ]
        .map(record);
        assert_eq!(needed_from(records.iter()), FxHashMap::from_iter([(7, 5), (8, 7)]));
    }
}
