//! Rebuild: fills a replacement, region by region, while clients go on.
//!
//! A region is rebuilt under the locks of its stripes and counts as current on the new member from then on: reads may use
//! it and writes keep it up to date. Regions never written are passed over. Where a source cannot be read and nothing else
//! makes up for it, the block is remembered as lost, which is reported, and the rebuild goes on: what can be saved is saved.
//!
//! The number of the first region not yet done is all that has to be kept to resume; what was rebuilt beyond it is done
//! again. Several regions are in work at once, as many as [`ArrayOptions::background_bytes`](crate::ArrayOptions) allows.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::future::join_all;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Completion, IoRequest};
use stripewise_layout::{Stripe, UnitRange};

use crate::array::{Array, BLOCK_BYTES, Inner};
use crate::error::ArrayError;
use crate::member::{Class, Member};
use crate::read::slice_of;
use crate::regions::RegionState;
use crate::stripe_table::StripeGuard;

/// How far a slot's rebuild has come, in memory.
pub(crate) struct RebuildState {
    next: u64,
    /// Regions done beyond `next`.
    done: BTreeSet<u64>,
    rebuilt_bytes: u64,
}

impl RebuildState {
    pub fn starting_at(next: u64) -> Self {
        Self { next, done: BTreeSet::new(), rebuilt_bytes: 0 }
    }

    /// Whether the new member is current in the region.
    pub fn has(&self, region: u64) -> bool {
        region < self.next || self.done.contains(&region)
    }

    fn finish(&mut self, region: u64, bytes: u64) {
        self.rebuilt_bytes += bytes;
        self.done.insert(region);
        while self.done.remove(&self.next) {
            self.next += 1;
        }
    }
}

/// How far a rebuild has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildProgress {
    /// The first region not yet done: all below are.
    pub next_region: u64,
    /// Regions of the volume in all.
    pub regions: u64,
    /// Bytes written to the new member since this rebuild was started or resumed.
    pub rebuilt_bytes: u64,
    /// Bytes of the member's space that a region takes.
    pub region_bytes: u64,
}

/// What a finished rebuild did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Bytes written to the new member.
    pub rebuilt_bytes: u64,
    /// Blocks of 4 KiB that could not be reconstructed and are lost.
    pub lost_blocks: u64,
}

impl Array {
    /// Puts a new member into a missing slot; it holds nothing current until [`Self::rebuild`] has run. Writes the region
    /// map to it.
    pub async fn attach(&self, slot: usize, member: Rc<Member>) -> Result<(), ArrayError> {
        let inner = &self.0;
        assert!(inner.missing.get().contains(slot), "only a missing slot takes a new member");
        *inner.slots[slot].member.borrow_mut() = Some(member);
        *inner.slots[slot].rebuild.borrow_mut() = Some(RebuildState::starting_at(0));
        inner.rebuilding.set(inner.rebuilding.get() + 1);
        let mut missing = inner.missing.get();
        missing.remove(slot);
        inner.missing.set(missing);
        inner.rewrite_map().await
    }

    /// How far the rebuild of a slot has come; `None` if it is not being rebuilt.
    pub fn rebuild_progress(&self, slot: usize) -> Option<RebuildProgress> {
        let rebuild = self.0.slots[slot].rebuild.borrow();
        rebuild.as_ref().map(|rebuild| RebuildProgress {
            next_region: rebuild.next,
            regions: self.0.regions.shape.regions,
            rebuilt_bytes: rebuild.rebuilt_bytes,
            region_bytes: self.0.regions.shape.member_region_bytes,
        })
    }

    /// Slots being rebuilt.
    pub fn rebuilding_slots(&self) -> Vec<usize> {
        (0..self.0.slots.len()).filter(|slot| self.0.slots[*slot].rebuild.borrow().is_some()).collect()
    }

    /// The region from which a rebuild could be resumed, after making everything below it durable on the new member.
    pub async fn checkpoint_rebuild(&self, slot: usize) -> Result<Option<u64>, ArrayError> {
        let Some(progress) = self.rebuild_progress(slot) else { return Ok(None) };
        let Some(member) = self.member(slot) else { return Ok(None) };
        if let Err(error) = member.submit(Class::Background, IoRequest::flush()).await {
            self.0.note_write_error(slot, &error).await?;
            return Ok(None);
        }
        Ok(Some(progress.next_region))
    }

    /// Rebuilds the slot to its end, or until the array is closed ([`ArrayError::Closed`]) or the new member fails. To be
    /// stopped by closing the array, not by dropping this future.
    pub async fn rebuild(&self, slot: usize) -> Result<RebuildReport, ArrayError> {
        let inner = &self.0;
        let Some(start) = self.rebuild_progress(slot) else { return Ok(RebuildReport::default()) };
        let lost_before = inner.lost.borrow().len();
        let member_bytes = inner.regions.shape.member_region_bytes * inner.geometry.width() as u64;
        let workers = (inner.options.background_bytes / member_bytes).clamp(1, 16);
        let next = Cell::new(start.next_region);
        let results = join_all((0..workers).map(|_| inner.rebuild_worker(slot, &next))).await;
        results.into_iter().collect::<Result<Vec<()>, _>>()?;
        if let Err(error) = match self.member(slot) {
            Some(member) => member.submit(Class::Background, IoRequest::flush()).await,
            None => Ok(()),
        } {
            inner.note_write_error(slot, &error).await?;
        }
        let Some(end) = inner.slots[slot].rebuild.take() else {
            return Err(inner.rebuild_ended(slot));
        };
        inner.rebuilding.set(inner.rebuilding.get() - 1);
        let lost_blocks = (inner.lost.borrow().len().saturating_sub(lost_before)) as u64;
        Ok(RebuildReport { rebuilt_bytes: end.rebuilt_bytes, lost_blocks })
    }
}

impl Inner {
    async fn rebuild_worker(&self, slot: usize, next: &Cell<u64>) -> Result<(), ArrayError> {
        while next.get() < self.regions.shape.regions {
            let region = next.get();
            next.set(region + 1);
            if self.is_closed() {
                return Err(ArrayError::Closed);
            }
            // The locks are held until the region is marked: a write in between would miss the new member.
            let (bytes, _guards) = if self.regions.state(region) == RegionState::Unwritten {
                (0, Vec::new())
            } else {
                self.rebuild_region(slot, region).await?
            };
            match self.slots[slot].rebuild.borrow_mut().as_mut() {
                Some(rebuild) => rebuild.finish(region, bytes),
                None => return Err(self.rebuild_ended(slot)),
            }
        }
        Ok(())
    }

    /// Copies what the slot's member should hold of a region; the caller gets the locks of its stripes with it.
    async fn rebuild_region(&self, slot: usize, region: u64) -> Result<(u64, Vec<StripeGuard>), ArrayError> {
        let mut guards = Vec::new();
        let mut sources: Vec<Source> = Vec::new();
        for index in self.regions.stripes_of(region, self.geometry.stripes()) {
            let stripe = self.geometry.stripe(index);
            let Some(unit) = stripe.units.iter().position(|place| place.member == slot) else { continue };
            guards.push(self.table.lock(index).await);
            if !self.regions.is_virgin(index) {
                sources.push(Source {
                    stripe,
                    unit,
                    units: SmallVec::new(),
                    buffers: SmallVec::new(),
                    answers: SmallVec::new(),
                });
            }
        }
        for source in &mut sources {
            self.read_sources(source, region);
        }
        let mut writes: Vec<Completion> = Vec::new();
        let mut bytes = 0;
        for source in sources {
            let (stripe, unit) = (source.stripe.clone(), source.unit);
            for (range, data) in self.rebuilt_unit(source).await? {
                bytes += range.length();
                let place = stripe.units[unit];
                let request = IoRequest::write(place.offset_bytes + range.start, data, false);
                writes.push(self.submit(place.member, Class::Background, request));
            }
        }
        for write in writes {
            if let Err(error) = write.await {
                self.note_write_error(slot, &error).await?;
                return Err(self.rebuild_ended(slot));
            }
        }
        Ok((bytes, guards))
    }

    fn read_sources(&self, source: &mut Source, region: u64) {
        let missing = self.missing_in(source.stripe.index);
        let whole = UnitRange { unit: 0, start: 0, end: self.geometry.interleave_bytes() };
        let mut usable: SmallVec<[usize; 12]> = (0..source.stripe.units.len())
            .filter(|&unit| unit != source.unit && !missing.contains(source.stripe.units[unit].member))
            .filter(|&unit| !self.is_lost(&source.stripe, UnitRange { unit, ..whole }))
            .collect();
        if self.geometry.copies() > 1 && !usable.is_empty() {
            // Of several copies each serves some regions.
            let first = region as usize % usable.len();
            usable.rotate_left(first);
        }
        usable.truncate(self.geometry.data_units());
        for unit in usable {
            let buffer = self.buffers.allocate(whole.end as usize);
            let range = UnitRange { unit, ..whole };
            source.answers.push(self.submit_unit_read(
                &source.stripe,
                range,
                Class::Background,
                buffer.clone(),
            ));
            source.buffers.push(buffer);
            source.units.push(unit);
        }
    }

    /// The unit's content: as a whole, or in blocks where some of it is lost.
    async fn rebuilt_unit(&self, source: Source) -> Result<Vec<(UnitRange, Buffer)>, ArrayError> {
        let Source { stripe, unit, units, buffers, answers } = source;
        let mut complete = units.len() == self.geometry.data_units();
        for (unit, answer) in units.iter().zip(answers) {
            if let Err(error) = answer.await {
                complete = false;
                self.note_read_error(stripe.units[*unit].member, &error).await?;
            }
        }
        let whole = UnitRange { unit, start: 0, end: self.geometry.interleave_bytes() };
        if complete {
            if self.geometry.copies() > 1 {
                return Ok(vec![(whole, buffers[0].clone())]);
            }
            let target = self.buffers.allocate(whole.end as usize);
            self.recover_units(&units, &buffers, &[unit], std::slice::from_ref(&target));
            return Ok(vec![(whole, target)]);
        }
        let mut rebuilt = Vec::new();
        let target = self.buffers.allocate(whole.end as usize);
        for start in (0..whole.end).step_by(BLOCK_BYTES as usize) {
            let block = UnitRange { unit, start, end: start + BLOCK_BYTES };
            let part = slice_of(&target, 0, block.start, block.end);
            match self.reconstruct(&stripe, block, &part, Class::Background).await {
                Ok(()) => rebuilt.push((block, part)),
                Err(ArrayError::Lost { .. }) => self.remember_lost(&stripe, block),
                Err(error) => return Err(error),
            }
        }
        Ok(rebuilt)
    }

    fn rebuild_ended(&self, slot: usize) -> ArrayError {
        let member = self.slots[slot].member.borrow();
        let reason = member.as_ref().and_then(|member| member.failed());
        let why = reason.map_or_else(|| "it was taken out".to_owned(), |reason| reason.to_string());
        ArrayError::Lost {
            stripe: 0,
            what: format!("the drive being rebuilt (member {slot}) is gone: {why}"),
        }
    }
}

/// One stripe of a region being rebuilt: what is read, for which unit.
struct Source {
    stripe: Stripe,
    unit: usize,
    units: SmallVec<[usize; 12]>,
    buffers: SmallVec<[Buffer; 12]>,
    answers: SmallVec<[Completion; 12]>,
}
