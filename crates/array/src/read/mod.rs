//! Reads: healthy ones go straight to the drives, strip by strip; the rest decode what is missing.
//!
//! A read of a healthy array takes no locks: beside a write to the same blocks it sees either. A
//! read that decodes shares its stripes with other readers and keeps writers out, so that data and
//! parity belong together. Whatever a drive refuses goes to `read/recover.rs`.

pub(crate) mod recover;
pub(crate) mod streams;

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, DriveError, DriveErrorKind, IoRequest};
use stripewise_layout::{Decode, Place, Segment, Stripe, UnitRange, plan_read};

use crate::array::parity::{decode_units, slice_of};
use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::error::ArrayError;
use crate::member::Class;
use crate::read::recover::{HeldStripe, recover_read};
use crate::stripes::lock_order;
use crate::stripes::stripe_table::StripeGuard;

/// A direct read in flight.
struct Direct {
    stripe: u64,
    range: UnitRange,
    /// Offset of its bytes in the request's buffer.
    at: usize,
    slot: usize,
    /// Offset of the read in the column.
    offset_bytes: u64,
    answer: Completion,
}

impl Array {
    /// Reads `length` bytes at `offset_bytes`, both multiples of 512. The buffer is the caller's.
    pub async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        self.read_as(Class::Foreground, offset_bytes, length).await
    }

    /// As [`Self::read`], in the share of the drives that this class has.
    pub async fn read_as(
        &self,
        class: Class,
        offset_bytes: u64,
        length: usize,
    ) -> Result<Buffer, ArrayError> {
        let inner = &self.0;
        inner.check_range(offset_bytes, length as u64)?;
        if inner.log.is_unread() {
            Box::pin(inner.recover_in_memory()).await?;
        }
        if length == 0 {
            return Ok(inner.buffers.allocate(0));
        }
        let block = inner.block_bytes.get();
        let start = offset_bytes / block * block;
        let end = (offset_bytes + length as u64).next_multiple_of(block);
        inner.bad.check_alive(&inner.geometry, start, end)?;
        inner.note_heat(offset_bytes, length as u64);
        let _counted = inner.reads.begin();
        let _permit = inner.admission.acquire(end - start).await;
        let patches = inner.deferred.pending.patches(&inner.geometry, start, end);
        let buffer = match inner.read_blocks(class, start, end).await {
            Err(lost @ ArrayError::Lost { .. }) if !patches.is_empty() => {
                Box::pin(inner.read_beside_pending(class, (start, end), &patches, lost)).await?
            }
            result => result?,
        };
        for (at, bytes) in &patches {
            crate::write_back::destage::patch(&buffer, start, *at, bytes);
        }
        let at = (offset_bytes - start) as usize;
        Ok(if buffer.len() == length { buffer } else { buffer.slice(at..at + length) })
    }
}

impl Inner {
    /// Reads blocks of which some are lost where they lie: those that are pending are not needed.
    async fn read_beside_pending(
        &self,
        class: Class,
        (start, end): (u64, u64),
        patches: &[(u64, Buffer)],
        lost: ArrayError,
    ) -> Result<Buffer, ArrayError> {
        let whole = self.buffers.allocate((end - start) as usize);
        let mut is_any_pending = false;
        let mut at = start;
        while at < end {
            let to = (at / BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES).min(end);
            let covers = |(from, bytes): &(u64, Buffer)| *from <= at && to <= from + bytes.len() as u64;
            if patches.iter().any(covers) {
                is_any_pending = true;
            } else {
                let block = self.read_blocks(class, at, to).await?;
                whole.slice((at - start) as usize..(to - start) as usize).copy_from(&block);
            }
            at = to;
        }
        if is_any_pending { Ok(whole) } else { Err(lost) }
    }

    async fn read_blocks(&self, class: Class, start: u64, end: u64) -> Result<Buffer, ArrayError> {
        let buffer = self.buffers.allocate((end - start) as usize);
        let copy = self.copy_for_all(start, end);
        if !self.is_whole() {
            return Box::pin(self.read_degraded(class, start, end, copy, buffer)).await;
        }
        let (place, left) = self.read_place(start, copy);
        if end - start <= left && self.regions.all_written() {
            // The common small read: one strip, nothing to gather.
            let answer =
                self.columns.submit(place.member, class, IoRequest::read(place.offset_bytes, buffer.clone()));
            let answer =
                self.sums.read_with_pages(place.member, place.offset_bytes, end - start, answer).await;
            if answer.is_ok() && self.sums.is_right(place.member, place.offset_bytes, &buffer).await? {
                return Ok(buffer);
            }
            let location = self.geometry.locate(start);
            let range = self.unit_range(location.from, end - start);
            let error = answer.err();
            let recovered = recover_read(self, location.stripe, range, place.member, error.as_ref(), class);
            return Box::pin(recovered).await;
        }
        let mut direct: SmallVec<[Direct; 4]> = SmallVec::new();
        let mut at = start;
        while at < end {
            let (place, left) = self.read_place(at, copy);
            let length = left.min(end - at);
            let from = (at - start) as usize;
            let target = buffer.slice(from..from + length as usize);
            let location = self.geometry.locate(at);
            at += length;
            if self.regions.is_unwritten(location.stripe) {
                target.fill(0);
                continue;
            }
            let answer =
                self.columns.submit(place.member, class, IoRequest::read(place.offset_bytes, target));
            let range = self.unit_range(location.from, length);
            let offset_bytes = place.offset_bytes;
            let stripe = location.stripe;
            direct.push(Direct { stripe, range, at: from, slot: place.member, offset_bytes, answer });
        }
        let recovered = Box::pin(self.await_direct(class, direct, &buffer)).await?;
        Ok(self.with_recovered(buffer, recovered))
    }

    /// Awaits direct reads into parts of `buffer`. Gives what had to be got by other means, each
    /// with its place in the buffer.
    async fn await_direct(
        &self,
        class: Class,
        direct: SmallVec<[Direct; 4]>,
        buffer: &Buffer,
    ) -> Result<Recovered, ArrayError> {
        // Pages that are not in memory are on their way while the drives read.
        let pages = direct.iter().map(|direct| {
            let place = Place { member: direct.slot, offset_bytes: direct.offset_bytes };
            (place, direct.range.length())
        });
        let lacks_pages = |(place, length): &(Place, u64)| {
            let sums = self.sums.get();
            sums.is_some_and(|sums| !sums.table.has_pages(place.member as u16, place.offset_bytes, *length))
        };
        let lacking: SmallVec<[(Place, u64); 4]> = pages.filter(lacks_pages).collect();
        let _pages = if lacking.is_empty() { Vec::new() } else { self.sums.load(&lacking).await? };
        let mut refused: SmallVec<[(Refused, Option<DriveError>); 1]> = SmallVec::new();
        let mut result = Ok(());
        for Direct { stripe, range, at, slot, offset_bytes, answer } in direct {
            let error = match answer.await {
                Ok(()) => {
                    let part = buffer.slice(at..at + range.length() as usize);
                    match self.sums.is_right(slot, offset_bytes, &part).await {
                        Ok(true) => continue,
                        Ok(false) => None,
                        Err(error) => {
                            result = result.and(Err(error));
                            continue;
                        }
                    }
                }
                Err(error) => Some(error),
            };
            refused.push(((stripe, range, at, slot), error));
        }
        let mut recovered = Recovered::new();
        for ((stripe, range, at, slot), error) in refused {
            match Box::pin(recover_read(self, stripe, range, slot, error.as_ref(), class)).await {
                Ok(bytes) => recovered.push((at, bytes)),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.map(|()| recovered)
    }

    /// A drive that was given up may still write into the memory it was handed, whenever it
    /// pleases: where something had to be recovered, the request gets other memory.
    fn with_recovered(&self, buffer: Buffer, recovered: Recovered) -> Buffer {
        if recovered.is_empty() {
            return buffer;
        }
        let fresh = self.buffers.allocate(buffer.len());
        fresh.copy_from(&buffer);
        for (at, bytes) in recovered {
            fresh.slice(at..at + bytes.len()).copy_from(&bytes);
        }
        fresh
    }

    /// The range within its unit of `length` bytes at byte `from` of a stripe's data.
    fn unit_range(&self, from: u64, length: u64) -> UnitRange {
        let interleave = self.geometry.interleave_bytes();
        let start = from % interleave;
        UnitRange { unit: (from / interleave) as usize, start, end: start + length }
    }

    /// The copy from which a read of a mirror is best read as a whole; `None` where each strip has
    /// its own: there is one copy, or a position costs the drives little.
    fn copy_for_all(&self, start: u64, end: u64) -> Option<usize> {
        let copies = self.geometry.copies();
        if copies == 1 {
            return None;
        }
        let places = (0..copies).map(|copy| self.geometry.copy_place(start, copy).0);
        let has_arm = |place| Some(self.columns.member_at(place)?.info().is_seek_bound());
        if places.clone().find_map(has_arm) != Some(true) {
            return None;
        }
        let least_busy = || {
            let loads = places.map(|place| self.columns.load_at(place)).enumerate();
            loads.min_by_key(|(_, load)| *load).map_or(0, |(copy, _)| copy)
        };
        let run_bytes = self.options.tuning.mirror_run_bytes * (self.geometry.width() / copies) as u64;
        Some(self.read_streams.copy_for(start..end, run_bytes, copies, least_busy))
    }

    /// Place of the byte at `offset` of the volume, and the number of bytes that follow it there.
    /// Of several copies this one or, if none was chosen for the whole read, the next in turn,
    /// unless it is much busier.
    fn read_place(&self, offset: u64, copy: Option<usize>) -> (Place, u64) {
        let copies = self.geometry.copies();
        if copies == 1 {
            return self.geometry.data_unit_place(offset);
        }
        let (first, left) = self.geometry.copy_place(offset, 0);
        if self.unsynced.get()
            && self.regions.intents.is_unsynced(self.regions.region_of(self.geometry.locate(offset).stripe))
        {
            // The copies may disagree: always the same one, so that two reads do not.
            return (first, left);
        }
        if let Some(copy) = copy {
            return self.geometry.copy_place(offset, copy);
        }
        let zone_bytes = self.options.tuning.mirror_zone_bytes;
        let turn = ((first.offset_bytes / zone_bytes) % copies as u64) as usize;
        let mut best = self.geometry.copy_place(offset, turn).0;
        let mut best_load = self.columns.load_at(best) / 2;
        for copy in (0..copies).filter(|copy| *copy != turn) {
            let place = self.geometry.copy_place(offset, copy).0;
            let load = self.columns.load_at(place).saturating_add(2);
            if load < best_load {
                (best, best_load) = (place, load);
            }
        }
        (best, left)
    }

    /// Reads with members missing, being rebuilt, or with blocks known as lost.
    async fn read_degraded(
        &self,
        class: Class,
        start: u64,
        end: u64,
        copy: Option<usize>,
        buffer: Buffer,
    ) -> Result<Buffer, ArrayError> {
        let mut direct: SmallVec<[Direct; 4]> = SmallVec::new();
        let mut decoding: Vec<(Segment, Buffer)> = Vec::new();
        let mut at = 0;
        for segment in self.geometry.segments(start, end - start) {
            let length = (segment.to - segment.from) as usize;
            let target = buffer.slice(at..at + length);
            at += length;
            if self.regions.is_unwritten(segment.stripe) {
                target.fill(0);
            } else if !self.read_directly(class, &segment, copy, (&target, at - length), &mut direct) {
                decoding.push((segment, target));
            }
        }
        // Both kinds are in the drives' queues together.
        let decoded = self.read_decoding(class, decoding);
        let (decoded, recovered) = join(decoded, self.await_direct(class, direct, &buffer)).await;
        decoded?;
        Ok(self.with_recovered(buffer, recovered?))
    }

    /// Sends the reads of a stripe in which everything asked for is there. `false` if something has
    /// to be decoded.
    fn read_directly(
        &self,
        class: Class,
        segment: &Segment,
        chosen: Option<usize>,
        (target, target_at): (&Buffer, usize),
        direct: &mut SmallVec<[Direct; 4]>,
    ) -> bool {
        let missing = self.columns.missing_in(segment.stripe);
        // Always the same copy then, as in `read_place`: two reads must not disagree.
        let may_disagree =
            self.unsynced.get() && self.regions.intents.is_unsynced(self.regions.region_of(segment.stripe));
        let mut places: SmallVec<[(UnitRange, Place, usize); 4]> = SmallVec::new();
        let mut at = 0;
        for range in self.geometry.data_ranges(segment.from, segment.to) {
            let length = range.length() as usize;
            let part = at;
            at += length;
            let of_copies = (0..self.geometry.copies()).map(|copy| {
                let unit = if self.geometry.copies() > 1 { copy } else { range.unit };
                (copy, self.geometry.place_of_unit(segment.stripe, unit))
            });
            let usable = of_copies
                .filter(|(_, place)| !missing.contains(place.member) && !self.bad.is_lost_at(*place, range))
                .min_by_key(|(copy, place)| match chosen {
                    _ if may_disagree => 0,
                    Some(chosen) => usize::from(*copy != chosen),
                    None => self.columns.load_at(*place),
                });
            let Some((_, place)) = usable else { return false };
            places.push((range, place, part));
        }
        for (range, place, part) in places {
            let memory = target.slice(part..part + range.length() as usize);
            let request = IoRequest::read(place.offset_bytes + range.start, memory);
            let answer = self.columns.submit(place.member, class, request);
            direct.push(Direct {
                stripe: segment.stripe,
                range,
                at: target_at + part,
                slot: place.member,
                offset_bytes: place.offset_bytes + range.start,
                answer,
            });
        }
        true
    }

    /// Each stripe by itself: it is held only while it is read, so that a request over many stripes
    /// does not keep the first while it waits for the last.
    async fn read_decoding(&self, class: Class, segments: Vec<(Segment, Buffer)>) -> Result<(), ArrayError> {
        let read = |(segment, target)| lock_order::scope(self.read_stripe_decoding(class, segment, target));
        let reads = segments.into_iter().map(read);
        join_all(reads).await.into_iter().collect()
    }

    async fn read_stripe_decoding(
        &self,
        class: Class,
        segment: Segment,
        target: Buffer,
    ) -> Result<(), ArrayError> {
        let guard = self.table.lock_shared(segment.stripe).await;
        if self.regions.is_unwritten(segment.stripe) {
            // Discarded while this waited for a writer: what the drives hold is left over.
            target.fill(0);
            return Ok(());
        }
        let stripe = self.geometry.stripe(segment.stripe);
        let missing = self.columns.missing_in(segment.stripe);
        let plan = plan_read(&self.geometry, &stripe, segment.from, segment.to, &missing, |_| 0)
            .map_err(|lost| ArrayError::Lost { stripe: segment.stripe, what: lost.to_string() })?;
        let reads = plan
            .reads
            .iter()
            .map(|&range| {
                let buffer = self.buffers.allocate(range.length() as usize);
                let answer =
                    self.submit_unless_lost(&stripe, range, class, Cause::Reconstruct, buffer.clone());
                (range, buffer, answer)
            })
            .collect();
        self.finish_decoding(DecodingRead {
            segment,
            stripe,
            target,
            reads,
            decode: plan.decode,
            guard,
            class,
        })
        .await
    }

    async fn finish_decoding(&self, read: DecodingRead) -> Result<(), ArrayError> {
        let DecodingRead { segment, stripe, target, reads, decode, guard, class } = read;
        let mut parts: SmallVec<[(UnitRange, Buffer); 4]> = SmallVec::new();
        let mut refused = None;
        let mut all_right = true;
        for (range, buffer, answer) in reads {
            match answer.await {
                Ok(()) => {
                    all_right = all_right && self.sums.is_unit_right(&stripe, range, &buffer).await?;
                    parts.push((range, buffer));
                }
                Err(error) => {
                    refused.get_or_insert((range, error));
                }
            }
        }
        let decoded = decode.as_ref().filter(|_| all_right && refused.is_none()).map(|decode| {
            (decode_units(&self.geometry, &self.buffers, decode, &parts), decode.start, decode.end)
        });
        if let Some(((wanted, buffers), start, end)) = &decoded {
            for (&unit, buffer) in wanted.iter().zip(buffers) {
                let range = UnitRange { unit, start: *start, end: *end };
                all_right = all_right && self.sums.is_unit_right(&stripe, range, buffer).await?;
            }
        }
        if !all_right || refused.is_some() {
            drop(guard);
            if let Some((range, error)) = refused
                && !self.bad.is_unit_lost(&stripe, range)
            {
                self.note_read_error(&error).await?;
            }
            let _alone = self.table.lock(segment.stripe).await;
            if self.regions.is_unwritten(segment.stripe) {
                target.fill(0);
                return Ok(());
            }
            return Box::pin(HeldStripe::new(self, &stripe, class).fetch_data(segment.from, &target)).await;
        }
        let mut at = 0;
        for range in self.geometry.data_ranges(segment.from, segment.to) {
            let length = range.length() as usize;
            let part = target.slice(at..at + length);
            at += length;
            let unit = if self.geometry.copies() > 1 { None } else { Some(range.unit) };
            let read = parts.iter().find(|(have, _)| {
                unit.is_none_or(|unit| have.unit == unit)
                    && have.start <= range.start
                    && range.end <= have.end
            });
            if let Some((have, bytes)) = read {
                part.copy_from(&slice_of(bytes, have.start, range.start, range.end));
                continue;
            }
            let ((wanted, buffers), start, _) = decoded.as_ref().expect("what is not read is decoded");
            let index =
                wanted.iter().position(|&unit| unit == range.unit).expect("what is not read is decoded");
            part.copy_from(&slice_of(&buffers[index], *start, range.start, range.end));
        }
        Ok(())
    }

    /// Reads a range of a unit from its member; where a block of it holds nothing valid, that is
    /// refused as the drive would refuse it.
    pub(crate) fn submit_unless_lost(
        &self,
        stripe: &Stripe,
        range: UnitRange,
        class: Class,
        cause: Cause,
        buffer: Buffer,
    ) -> Completion {
        if !self.bad.is_unit_lost(stripe, range) {
            return self.columns.submit_unit_read(stripe, range, class, cause, buffer);
        }
        let place = stripe.units[range.unit];
        let request = IoRequest::read(place.offset_bytes + range.start, self.buffers.allocate(0));
        let member = self.columns.member_at(place);
        let label = member.map_or_else(|| "missing drive".into(), |member| member.label().clone());
        Completion::ready(Err(request.error(&label, DriveErrorKind::Medium, None)))
    }
}

/// Stripe, range, place in the request's buffer, and slot of a direct read that was refused.
type Refused = (u64, UnitRange, usize, usize);

/// Data recovered by other means, and its offset in the request's buffer.
type Recovered = SmallVec<[(usize, Buffer); 1]>;

struct DecodingRead {
    segment: Segment,
    stripe: Stripe,
    target: Buffer,
    reads: SmallVec<[(UnitRange, Buffer, Completion); 4]>,
    decode: Option<Decode>,
    guard: StripeGuard,
    class: Class,
}
