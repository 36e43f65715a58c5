//! Recovery from a refused or wrong read: reconstructs the bytes from the rest of the stripe, and
//! writes them back to the drive.
//!
//! A range that cannot be read is reconstructed from other units. If one of those cannot be read
//! either, others take its place as far as the redundancy allows. After that the range is tried
//! block by block, because errors at different places on several drives lose nothing. Reconstructed
//! data is written back: a drive replaces a bad sector when it is written. Everything here works
//! under the stripe's lock.

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, DriveError, DriveErrorKind, IoRequest, access};
use stripewise_layout::{MemberSet, Stripe, UnitRange};

use crate::array::parity::{recover_units, slice_of};
use crate::array::{BLOCK_BYTES, Inner};
use crate::error::ArrayError;
use crate::member::Class;
use crate::stripes::lock_order;
use crate::sums::Recording;

/// Recovers a read without a lock that was refused, or that returned wrong data (`error` is
/// `None`). Counts the error, then reads under the stripe's lock by every means.
pub(crate) async fn recover_read(
    array: &Inner,
    stripe: u64,
    range: UnitRange,
    slot: usize,
    error: Option<&DriveError>,
    class: Class,
) -> Result<Buffer, ArrayError> {
    if let Some(error) = error {
        array.note_read_error(error).await?;
    }
    lock_order::scope(recover_alone(array, stripe, range, slot, class)).await
}

async fn recover_alone(
    array: &Inner,
    stripe: u64,
    range: UnitRange,
    slot: usize,
    class: Class,
) -> Result<Buffer, ArrayError> {
    let _alone = array.table.lock(stripe).await;
    if array.regions.is_unwritten(stripe) {
        // The region was discarded before the stripe was locked.
        return Ok(array.buffers.allocate_zeroed(range.length() as usize));
    }
    let stripe = array.geometry.stripe(stripe);
    // For mirrors the refused copy is the unit to repair.
    let unit = if array.geometry.copies() > 1 {
        stripe.units.iter().position(|place| place.member == slot).unwrap_or(0)
    } else {
        range.unit
    };
    HeldStripe::new(array, &stripe, class).fetch_unit(UnitRange { unit, ..range }).await
}

/// A stripe that the caller holds exclusively, with every means of reading it.
pub(crate) struct HeldStripe<'a> {
    array: &'a Inner,
    stripe: &'a Stripe,
    class: Class,
}

impl<'a> HeldStripe<'a> {
    /// Wraps a held stripe; requests to drives are of this class.
    pub(crate) fn new(array: &'a Inner, stripe: &'a Stripe, class: Class) -> Self {
        Self { array, stripe, class }
    }

    /// Reads data of the stripe by every means, from byte `from` of its data, into memory that no
    /// drive has access to.
    pub(crate) async fn fetch_data(&self, from: u64, target: &Buffer) -> Result<(), ArrayError> {
        let Self { array, .. } = *self;
        let mut at = 0;
        for range in array.geometry.data_ranges(from, from + target.len() as u64) {
            let length = range.length() as usize;
            let bytes = self.fetch_unit(range).await?;
            target.slice(at..at + length).copy_from(&bytes);
            at += length;
        }
        Ok(())
    }

    /// Widens new data to whole blocks with the present content of the stripe. Returns the start
    /// and the bytes.
    pub(crate) async fn complete_blocks(
        &self,
        start: u64,
        data: &Buffer,
        is_new: bool,
    ) -> Result<(u64, Buffer), ArrayError> {
        let Self { array, stripe, .. } = *self;
        let end = start + data.len() as u64;
        let from = start / BLOCK_BYTES * BLOCK_BYTES;
        let to = end.next_multiple_of(BLOCK_BYTES);
        let whole = array.buffers.allocate((to - from) as usize);
        let mut partial: SmallVec<[u64; 2]> = SmallVec::new();
        if start != from {
            partial.push(from);
        }
        if end != to && partial.first() != Some(&(to - BLOCK_BYTES)) {
            partial.push(to - BLOCK_BYTES);
        }
        for block in partial {
            let target = whole.slice((block - from) as usize..(block - from + BLOCK_BYTES) as usize);
            // The rest of a dead block is unknown, so the block would stay dead, together with
            // the new data in it.
            let at = stripe.index * array.geometry.stripe_data_bytes() + block;
            array.bad.check_alive(&array.geometry, at, at + BLOCK_BYTES)?;
            if is_new {
                target.fill(0);
            } else {
                self.fetch_data(block, &target).await?;
            }
        }
        let at = (start - from) as usize;
        whole.slice(at..at + data.len()).copy_from(data);
        Ok((from, whole))
    }

    /// Reads a range of a unit by every means: from its member, or else from the rest of the
    /// stripe, and then repairs the member. For mirrors any copy will do.
    ///
    /// The bytes are returned in memory of their own. A drive that was given up may still write
    /// into a buffer that it was handed, so a buffer handed to a drive that refused is never used
    /// again.
    pub(crate) async fn fetch_unit(&self, range: UnitRange) -> Result<Buffer, ArrayError> {
        let Self { array, stripe, class } = *self;
        let slot = stripe.units[range.unit].member;
        let mut repair = false;
        while !array.columns.missing_in(stripe.index).contains(slot) {
            if array.bad.is_unit_lost(stripe, range) {
                repair = true;
                break;
            }
            let read = array.buffers.allocate(range.length() as usize);
            let from = array.columns.slot_of(stripe.units[range.unit]);
            match array.columns.submit_unit_read(stripe, range, class, Cause::PreRead, read.clone()).await {
                Ok(()) => return self.put_right(range, read).await,
                // The commit that removes a drive records the column's new place: retry there.
                Err(_) if array.columns.slot_of(stripe.units[range.unit]) != from => {}
                Err(error) => {
                    array.note_read_error(&error).await?;
                    repair = error.kind == DriveErrorKind::Medium;
                    break;
                }
            }
        }
        let fresh = array.buffers.allocate(range.length() as usize);
        self.reconstruct(range, &fresh).await?;
        if repair && !array.lifecycle.is_protected() && !array.columns.missing_in(stripe.index).contains(slot)
        {
            self.write_back(range, fresh.clone()).await?;
        }
        Ok(fresh)
    }

    /// Replaces blocks that do not match their checksums, in the data that was read and on the
    /// member.
    async fn put_right(&self, range: UnitRange, read: Buffer) -> Result<Buffer, ArrayError> {
        let Self { array, stripe, .. } = *self;
        let place = stripe.units[range.unit];
        for start in array.sums.bad_blocks(stripe, range, &read).await? {
            array.sums.note_bad_block(place, start);
            let block = UnitRange { start, end: start + BLOCK_BYTES, ..range };
            let fresh = array.buffers.allocate(BLOCK_BYTES as usize);
            match self.reconstruct(block, &fresh).await {
                Err(ArrayError::Lost { stripe, what }) => {
                    let member = array.columns.member_at(place);
                    let label = member.map_or_else(|| "a drive".into(), |member| member.label().clone());
                    let at = (place.offset_bytes + start) / BLOCK_BYTES;
                    let what =
                        format!("{label}: block {at} of the column does not match its checksum; {what}");
                    return Err(ArrayError::Lost { stripe, what });
                }
                result => result?,
            }
            if !array.lifecycle.is_protected()
                && !array.columns.missing_in(stripe.index).contains(place.member)
            {
                self.write_back(block, fresh.clone()).await?;
            }
            slice_of(&read, range.start, block.start, block.end).copy_from(&fresh);
        }
        for start in array.sums.doubted_blocks(stripe, range, &read).await? {
            let block = UnitRange { start, end: start + BLOCK_BYTES, ..range };
            let part = slice_of(&read, range.start, block.start, block.end);
            self.resolve_doubt(block, &part).await?;
        }
        Ok(read)
    }

    /// Resolves a block whose checksum was lost. If the other units match their checksums and
    /// determine the block, that content is used and its checksum recorded. Otherwise the block
    /// stays as it was read.
    async fn resolve_doubt(&self, block: UnitRange, read: &Buffer) -> Result<(), ArrayError> {
        let Self { array, stripe, .. } = *self;
        let missing = array.columns.missing_in(stripe.index);
        for unit in (0..stripe.units.len()).filter(|unit| *unit != block.unit) {
            let is_there = !missing.contains(stripe.units[unit].member);
            if is_there && array.sums.lacks_any(stripe, UnitRange { unit, ..block }).await? {
                return Ok(());
            }
        }
        let fresh = array.buffers.allocate(BLOCK_BYTES as usize);
        match self.reconstruct(block, &fresh).await {
            Err(ArrayError::Lost { .. }) => return Ok(()),
            result => result?,
        }
        let mut agrees = true;
        access(&[&fresh, read], &[], |both, _| agrees = both[0] == both[1]);
        let place = stripe.units[block.unit];
        if !agrees {
            array.sums.note_bad_block(place, block.start);
            read.copy_from(&fresh);
        }
        if array.lifecycle.is_protected() || missing.contains(place.member) {
            return Ok(());
        }
        if !agrees {
            self.write_back(block, fresh.clone()).await?;
        }
        array.sums.record_content(stripe, block, &fresh, Recording::Unknown).await?;
        Ok(())
    }

    /// Writes a reconstructed range to the member that could not read it.
    async fn write_back(&self, range: UnitRange, data: Buffer) -> Result<(), ArrayError> {
        let Self { array, stripe, class } = *self;
        let place = stripe.units[range.unit];
        let request = IoRequest::write(place.offset_bytes + range.start, data, false);
        match array.columns.submit(place.member, class, request.because(Cause::Repair)).await {
            Ok(()) => {
                array.bad.repair_unit(stripe, range);
                array.sums.forget_bad(place.member, place.offset_bytes + range.start, range.length());
                array.count(|counters| counters.repaired_reads += 1);
                Ok(())
            }
            // The client has its data, so the write error of a drive that is needed is ignored.
            Err(error) => match array.note_write_error(&error).await {
                Err(error @ ArrayError::CannotExclude(_)) => Err(error),
                _ => Ok(()),
            },
        }
    }

    /// Reconstructs a range of a unit from the other units of its stripe: as a whole, or else block
    /// by block.
    pub(crate) async fn reconstruct(&self, range: UnitRange, target: &Buffer) -> Result<(), ArrayError> {
        if range.length() <= BLOCK_BYTES {
            return self.reconstruct_block(range, target).await;
        }
        match self.reconstruct_once(range, target).await {
            Ok(()) => return Ok(()),
            Err(error @ ArrayError::CannotExclude(_)) => return Err(error),
            Err(_) => {}
        }
        let mut start = range.start;
        while start < range.end {
            let end = (start / BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES).min(range.end);
            let block = UnitRange { start, end, ..range };
            let part = slice_of(target, range.start, start, end);
            self.reconstruct_block(block, &part).await?;
            start = end;
        }
        Ok(())
    }

    /// Reconstructs a block, or part of one, from the other units. If they cannot provide it, a
    /// block recorded as zeros is known all the same: a drive may have lost the zeros of a new
    /// region with its cache.
    async fn reconstruct_block(&self, block: UnitRange, target: &Buffer) -> Result<(), ArrayError> {
        let Self { array, stripe, .. } = *self;
        match self.reconstruct_once(block, target).await {
            Err(ArrayError::Lost { .. }) if array.sums.is_recorded_as_zeros(stripe, block).await? => {
                target.fill(0);
                Ok(())
            }
            result => result,
        }
    }

    /// Reads sources until there are as many as needed; a source that refuses is left out of the
    /// next attempt.
    async fn reconstruct_once(&self, range: UnitRange, target: &Buffer) -> Result<(), ArrayError> {
        let Self { array, stripe, class } = *self;
        let mut have: SmallVec<[(usize, Buffer); 12]> = SmallVec::new();
        let mut refused: SmallVec<[(usize, String); 2]> = SmallVec::new();
        let needed = array.geometry.data_units();
        loop {
            let missing = array.columns.missing_in(stripe.index);
            let candidates: SmallVec<[usize; 12]> = (0..stripe.units.len())
                .filter(|&unit| unit != range.unit && !missing.contains(stripe.units[unit].member))
                .filter(|unit| {
                    have.iter().all(|(have, _)| have != unit) && refused.iter().all(|(no, _)| no != unit)
                })
                .filter(|&unit| !array.bad.is_unit_lost(stripe, UnitRange { unit, ..range }))
                .take(needed - have.len())
                .collect();
            if have.len() + candidates.len() < needed {
                return Err(self.lost(range, &missing, &refused));
            }
            let reads: SmallVec<[(usize, Buffer, Completion); 12]> = candidates
                .into_iter()
                .map(|unit| {
                    let buffer = array.buffers.allocate(range.length() as usize);
                    let answer = array.columns.submit_unit_read(
                        stripe,
                        UnitRange { unit, ..range },
                        class,
                        Cause::Reconstruct,
                        buffer.clone(),
                    );
                    (unit, buffer, answer)
                })
                .collect();
            for (unit, buffer, answer) in reads {
                match answer.await {
                    Ok(()) => {
                        let bad = array.sums.bad_blocks(stripe, UnitRange { unit, ..range }, &buffer).await?;
                        if bad.is_empty() {
                            have.push((unit, buffer));
                            continue;
                        }
                        bad.iter().for_each(|&start| array.sums.note_bad_block(stripe.units[unit], start));
                        refused.push((unit, format!("{} blocks do not match their checksums", bad.len())));
                    }
                    Err(error) => {
                        refused.push((unit, error.to_string()));
                        array.note_read_error(&error).await?;
                    }
                }
            }
            if have.len() == needed {
                break;
            }
        }
        have.sort_by_key(|(unit, _)| *unit);
        let units: SmallVec<[usize; 12]> = have.iter().map(|(unit, _)| *unit).collect();
        if array.geometry.copies() > 1 {
            target.copy_from(&have[0].1);
        } else {
            let sources: SmallVec<[Buffer; 12]> = have.into_iter().map(|(_, buffer)| buffer).collect();
            recover_units(
                array.geometry.data_units(),
                &units,
                &sources,
                &[range.unit],
                std::slice::from_ref(target),
            );
        }
        if array.sums.is_possible(stripe, range, target).await? {
            return Ok(());
        }
        let is_parity = array.geometry.copies() == 1 && range.unit >= needed;
        if is_parity && units.iter().all(|unit| *unit < needed) {
            // Parity that is computed from verified data is right, whatever checksum is recorded: a
            // write that failed half-way, with the parity's drive gone, leaves a stale one.
            if !array.lifecycle.is_protected() {
                array.sums.record_content(stripe, range, target, Recording::All).await?;
            }
            return Ok(());
        }
        if self.is_borne_out(range, target, &units).await? {
            if !array.lifecycle.is_protected() {
                array.sums.record_content(stripe, range, target, Recording::All).await?;
            }
            return Ok(());
        }
        refused.push((range.unit, "the reconstructed data does not match its checksum".to_owned()));
        Err(self.lost(range, &array.columns.missing_in(stripe.index), &refused))
    }

    /// True if units that were not needed to reconstruct `found` confirm it, so that the recorded
    /// checksum must be wrong: the drive with one copy of its page is missing, and the write of the
    /// other copy was lost. All other units must match their checksums and none may contradict. At
    /// least one unused unit must follow from `found`, or the unit itself must hold exactly that.
    async fn is_borne_out(
        &self,
        range: UnitRange,
        found: &Buffer,
        used: &[usize],
    ) -> Result<bool, ArrayError> {
        let Self { array, stripe, class } = *self;
        let missing = array.columns.missing_in(stripe.index);
        let mut others: SmallVec<[(usize, Buffer); 12]> = SmallVec::new();
        for unit in (0..stripe.units.len()).filter(|unit| *unit != range.unit) {
            let of_unit = UnitRange { unit, ..range };
            if missing.contains(stripe.units[unit].member) || array.bad.is_unit_lost(stripe, of_unit) {
                continue;
            }
            let buffer = array.buffers.allocate(range.length() as usize);
            let is_read = array
                .columns
                .submit_unit_read(stripe, of_unit, class, Cause::Reconstruct, buffer.clone())
                .await
                .is_ok();
            // A unit without recorded checksums confirms nothing.
            let is_known = is_read
                && !array.sums.lacks_any(stripe, of_unit).await?
                && array.sums.bad_blocks(stripe, of_unit, &buffer).await?.is_empty();
            match is_known {
                true => others.push((unit, buffer)),
                false if used.contains(&unit) => return Ok(false),
                false => {}
            }
        }
        let (sources, witnesses): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(unit, _)| used.contains(unit));
        let source_buffers: SmallVec<[Buffer; 12]> = sources.into_iter().map(|(_, buffer)| buffer).collect();
        for (unit, witness) in &witnesses {
            let expected = array.buffers.allocate(range.length() as usize);
            match array.geometry.copies() > 1 {
                true => expected.copy_from(found),
                false => recover_units(
                    array.geometry.data_units(),
                    used,
                    &source_buffers,
                    &[*unit],
                    std::slice::from_ref(&expected),
                ),
            }
            let mut agrees = true;
            access(&[&expected, witness], &[], |read, _| agrees = read[0] == read[1]);
            if !agrees {
                return Ok(false);
            }
        }
        Ok(!witnesses.is_empty() || self.holds(range, found).await)
    }

    /// True if the unit's member returns `expected` for a range.
    async fn holds(&self, range: UnitRange, expected: &Buffer) -> bool {
        let Self { array, stripe, class } = *self;
        let missing = array.columns.missing_in(stripe.index);
        if missing.contains(stripe.units[range.unit].member) || array.bad.is_unit_lost(stripe, range) {
            return false;
        }
        let read = array.buffers.allocate(range.length() as usize);
        let answer =
            array.columns.submit_unit_read(stripe, range, class, Cause::Reconstruct, read.clone()).await;
        let mut agrees = false;
        access(&[expected, &read], &[], |both, _| agrees = both[0] == both[1]);
        agrees && answer.is_ok()
    }

    fn lost(&self, range: UnitRange, missing: &MemberSet, refused: &[(usize, String)]) -> ArrayError {
        let Self { stripe, .. } = *self;
        let member = stripe.units[range.unit].member;
        let gone: Vec<String> = missing.iter().map(|member| member.to_string()).collect();
        let mut what =
            format!("bytes {}..{} of unit {} (member {member}) are lost", range.start, range.end, range.unit);
        if !gone.is_empty() {
            what += &format!("; members missing: {}", gone.join(", "));
        }
        for (unit, error) in refused {
            what += &format!("; member {}: {error}", stripe.units[*unit].member);
        }
        ArrayError::Lost { stripe: stripe.index, what }
    }
}
