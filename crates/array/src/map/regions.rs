//! The region map of a volume: which regions were ever written, and where writes are in flight.
//!
//! A *region* is 1 MiB of every member (more where rows of stripes need it). A region never written
//! reads as zeros without touching a drive; so a new volume needs no initial sync, and rebuild and
//! scrub skip unwritten space. Within a region in its first write, stripes are tracked one by one:
//! the first write to a stripe writes it whole, with zeros around the new data, so it needs no
//! pre-reads and leaves the stripe consistent.
//!
//! A region written while a column of its row is away is marked too: when the drive returns, only
//! such regions have to be copied to it.
//!
//! The on-drive format is in `map/pages.rs`, the write-intent bitmap in `map/write_intents.rs`. A
//! "written" mark becomes durable only after the data it covers, so a crash in between leaves a
//! region that still reads as zeros, as it did before.

use std::cell::{Cell, RefCell};
use std::collections::TryReserveError;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use stripewise_drive::{BufferPool, Event};
use stripewise_layout::Geometry;

use crate::map::pages::{Bits, MapPages, PAGE_BYTES, PageWrite, with_corrected_header};
use crate::map::reserve;
use crate::map::write_intents::WriteIntents;
use crate::mutation::{self, Mutation};
use crate::tuning::MapGrain;

/// Size of a region on each member, where the layout allows it.
const REGION_BYTES: u64 = 1 << 20;

/// State of a region: from never written to written, as far as the durable map knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// Never written: reads as zeros.
    Unwritten,
    /// Some stripes are initialised, or about to be; the durable map has it as unwritten.
    Partial,
    /// Every stripe is initialised; the durable map does not have it as written yet.
    Fresh,
    /// Like `Fresh`, and its data is durable: the next write of the map marks it as written.
    Ready,
    /// The durable map has it as written.
    Written,
}

/// Relation of stripes, members and regions of one geometry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegionShape {
    pub stripes_per_region: u64,
    pub member_region_bytes: u64,
    pub region_data_bytes: u64,
}

impl RegionShape {
    pub(crate) fn of(geometry: &Geometry) -> Self {
        let interleave = geometry.interleave_bytes();
        let units_per_stripe = (geometry.data_units() * geometry.copies() + geometry.parity_units()) as u64;
        let width = geometry.width() as u64;
        let mut rows = (REGION_BYTES / interleave).max(1);
        while !(rows * width).is_multiple_of(units_per_stripe) {
            rows *= 2;
        }
        let stripes_per_region = rows * width / units_per_stripe;
        Self {
            stripes_per_region,
            member_region_bytes: rows * interleave,
            region_data_bytes: stripes_per_region * geometry.stripe_data_bytes(),
        }
    }

    /// Size of a map of this many regions at each of its places, in bytes.
    pub(crate) fn map_bytes(regions: u64, grain: MapGrain) -> u64 {
        MapPages::needed(regions, grain) * 2 * PAGE_BYTES as u64
    }
}

pub(crate) struct Regions {
    pub shape: RegionShape,
    pub pages: MapPages,
    pub intents: WriteIntents,
    regions_per_chunk: u64,
    states: RefCell<Vec<RegionState>>,
    /// Regions written while a column of their row was away.
    behind: RefCell<Vec<bool>>,
    /// Regions marked as behind in the durable map.
    behind_durable: RefCell<Vec<bool>>,
    behind_count: Cell<u64>,
    partial: RefCell<FxHashMap<u64, Vec<u64>>>,
    fresh: RefCell<Vec<u64>>,
    /// Notified when a stripe of a partly written region was initialised, or when the region is no
    /// longer partial.
    pub initialised: Event,
    /// True if every region is written: the common case of a filled volume, tested first.
    all_written: Cell<bool>,
    unwritten: Cell<u64>,
}

impl Regions {
    /// Creates a map of unwritten regions. `Err` if it does not fit into memory.
    pub(crate) fn new(
        shape: RegionShape,
        grain: MapGrain,
        first_sequence: u64,
        volume_id: u128,
        regions: u64,
    ) -> Result<Self, TryReserveError> {
        let map = Self {
            shape,
            pages: MapPages::new(volume_id, grain, first_sequence),
            intents: WriteIntents::new(grain),
            regions_per_chunk: grain.regions_per_chunk,
            states: RefCell::default(),
            behind: RefCell::default(),
            behind_durable: RefCell::default(),
            behind_count: Cell::new(0),
            partial: RefCell::default(),
            fresh: RefCell::default(),
            initialised: Event::new(),
            all_written: Cell::new(true),
            unwritten: Cell::new(0),
        };
        map.make_room(regions)?;
        map.resize(regions);
        Ok(map)
    }

    /// Allocates memory for this many regions. A number read from a drive must not abort the
    /// process.
    pub(crate) fn make_room(&self, regions: u64) -> Result<(), TryReserveError> {
        reserve(&self.states, regions)?;
        reserve(&self.behind, regions)?;
        reserve(&self.behind_durable, regions)?;
        self.intents.make_room(regions)?;
        self.pages.make_room(regions)
    }

    /// Number of regions of the volume.
    pub(crate) fn count(&self) -> u64 {
        self.states.borrow().len() as u64
    }

    /// Adds unwritten regions at the end, or drops regions there.
    pub(crate) fn resize(&self, regions: u64) {
        let old = self.count();
        for region in regions..old {
            self.mark_unwritten(region);
        }
        self.clear_behind(regions.min(old)..old);
        self.states.borrow_mut().resize(regions as usize, RegionState::Unwritten);
        self.behind.borrow_mut().resize(regions as usize, false);
        self.behind_durable.borrow_mut().resize(regions as usize, false);
        self.intents.resize(regions);
        self.pages.resize(regions);
        self.unwritten.set(self.unwritten.get() + regions - old.min(regions) - old.saturating_sub(regions));
        self.all_written.set(self.unwritten.get() == 0);
    }

    pub(crate) fn region_of(&self, stripe: u64) -> u64 {
        stripe / self.shape.stripes_per_region
    }

    pub(crate) fn stripes_of(&self, region: u64) -> std::ops::Range<u64> {
        let first = region * self.shape.stripes_per_region;
        first..first + self.shape.stripes_per_region
    }

    /// State of a region; unwritten beyond the end, as the volume may have been shrunk since a
    /// caller took the region's number.
    pub(crate) fn state(&self, region: u64) -> RegionState {
        self.states.borrow().get(region as usize).copied().unwrap_or(RegionState::Unwritten)
    }

    fn set_state(&self, region: u64, state: RegionState) {
        let old = std::mem::replace(&mut self.states.borrow_mut()[region as usize], state);
        let counts = |state: RegionState| state != RegionState::Written;
        match (counts(old), counts(state)) {
            (true, false) => self.unwritten.set(self.unwritten.get() - 1),
            (false, true) => self.unwritten.set(self.unwritten.get() + 1),
            _ => {}
        }
        self.all_written.set(self.unwritten.get() == 0);
    }

    /// True if the stripe was never written, so that it reads as zeros.
    pub(crate) fn is_unwritten(&self, stripe: u64) -> bool {
        if self.all_written.get() {
            return false;
        }
        let region = self.region_of(stripe);
        match self.state(region) {
            RegionState::Unwritten => true,
            RegionState::Partial => {
                let bit = stripe % self.shape.stripes_per_region;
                self.partial
                    .borrow()
                    .get(&region)
                    .is_none_or(|mask| mask[(bit / 64) as usize] >> (bit % 64) & 1 == 0)
            }
            _ => false,
        }
    }

    /// True if every region is durably marked as written.
    pub(crate) fn all_written(&self) -> bool {
        self.all_written.get()
    }

    /// True if the durable map has all stripes from the first to the last as written.
    pub(crate) fn is_written(&self, first_stripe: u64, last_stripe: u64) -> bool {
        let mut regions = self.region_of(first_stripe)..=self.region_of(last_stripe);
        regions.all(|region| self.state(region) == RegionState::Written)
    }

    /// Number of regions that hold data, for progress and status.
    pub(crate) fn written_regions(&self) -> u64 {
        self.count() - self.unwritten.get()
    }

    pub(crate) fn partial_count(&self) -> usize {
        self.partial.borrow().len()
    }

    pub(crate) fn partial_regions(&self) -> Vec<u64> {
        let mut regions: Vec<u64> = self.partial.borrow().keys().copied().collect();
        regions.sort_unstable();
        regions
    }

    /// True if any region was partly written in its first write.
    pub(crate) fn is_any_in_part(&self) -> bool {
        self.partial.borrow().values().any(|mask| mask.iter().any(|word| *word != 0))
    }

    /// First offset in a range of the volume from which a crash may undo first writes.
    pub(crate) fn first_undurable(&self, start_bytes: u64, end_bytes: u64) -> u64 {
        let region_bytes = self.shape.region_data_bytes;
        let is_new = |region: &u64| {
            matches!(self.state(*region), RegionState::Partial | RegionState::Fresh | RegionState::Ready)
        };
        let mut regions = start_bytes / region_bytes..end_bytes.div_ceil(region_bytes);
        let first = regions.find(is_new).map_or(end_bytes, |region| region * region_bytes);
        first.clamp(start_bytes, end_bytes)
    }

    /// Begins a write: counts it, and makes an unwritten region partial. `away` is true if a column
    /// of the row misses the write. True if the marks of chunk and region have to become durable
    /// first.
    pub(crate) fn begin_write(&self, region: u64, away: bool) -> bool {
        if self.state(region) == RegionState::Unwritten {
            let words = self.shape.stripes_per_region.div_ceil(64) as usize;
            self.partial.borrow_mut().insert(region, vec![0; words]);
            self.set_state(region, RegionState::Partial);
        }
        // A region that the durable map has as unwritten needs no mark: after a crash it reads as
        // zeros.
        let needs_mark = matches!(self.state(region), RegionState::Ready | RegionState::Written);
        if self.intents.begin_write(region, needs_mark) {
            self.change_page_of(region);
        }
        if away && !mutation::is_chosen(Mutation::MissedWriteNotNoted) {
            self.mark_behind(region);
        }
        let behind_durable = !away || self.behind_durable.borrow()[region as usize];
        needs_mark && !(self.intents.is_durable(region) && behind_durable)
    }

    /// True if any region was written while a column of its row was away.
    pub(crate) fn any_behind(&self) -> bool {
        self.behind_count.get() > 0
    }

    /// True if the region was written while a column of its row was away; never beyond the end.
    pub(crate) fn is_behind(&self, region: u64) -> bool {
        self.behind.borrow().get(region as usize).copied().unwrap_or(false)
    }

    fn mark_behind(&self, region: u64) {
        if !std::mem::replace(&mut self.behind.borrow_mut()[region as usize], true) {
            self.behind_count.set(self.behind_count.get() + 1);
            self.change_page_of(region);
        }
    }

    /// Called when a drive goes away, perhaps with unflushed or incomplete writes: regions it may
    /// lack count as written while it was away.
    pub(crate) fn mark_undurable_behind(&self, regions: std::ops::Range<u64>) {
        if mutation::is_chosen(Mutation::UnflushedNotMissed) {
            return;
        }
        for region in regions {
            let undurable = match self.state(region) {
                RegionState::Unwritten => false,
                RegionState::Partial | RegionState::Fresh | RegionState::Ready => true,
                RegionState::Written => self.intents.is_set(region),
            };
            if undurable {
                self.mark_behind(region);
            }
        }
    }

    /// Clears the marks of regions whose rows have only current columns again.
    pub(crate) fn clear_behind(&self, regions: std::ops::Range<u64>) {
        for region in regions {
            if std::mem::replace(&mut self.behind.borrow_mut()[region as usize], false) {
                self.behind_count.set(self.behind_count.get() - 1);
                // A new mark must become durable again before anything relies on it.
                self.behind_durable.borrow_mut()[region as usize] = false;
                self.change_page_of(region);
            }
        }
    }

    /// Ends a write, successful or not.
    pub(crate) fn end_write(&self, region: u64) {
        self.intents.end_write(region);
    }

    /// Marks a stripe as initialised: it holds the data that was written, with zeros around it.
    pub(crate) fn mark_initialised(&self, stripe: u64) {
        let region = self.region_of(stripe);
        if self.state(region) != RegionState::Partial {
            return;
        }
        let stripes = self.stripes_of(region);
        let bit = stripe - stripes.start;
        let complete = {
            let mut partial = self.partial.borrow_mut();
            let mask = partial.get_mut(&region).expect("a partial region has a mask");
            mask[(bit / 64) as usize] |= 1 << (bit % 64);
            mask.iter().map(|word| u64::from(word.count_ones())).sum::<u64>() == stripes.end - stripes.start
        };
        if complete {
            self.partial.borrow_mut().remove(&region);
            self.set_state(region, RegionState::Fresh);
            self.fresh.borrow_mut().push(region);
        }
        self.initialised.notify_all();
    }

    /// True if any region is fresh.
    pub(crate) fn has_fresh(&self) -> bool {
        !self.fresh.borrow().is_empty()
    }

    /// Takes the fresh regions, to be marked once their data is durable. The caller flushes, then
    /// calls [`Self::mark_ready`].
    pub(crate) fn take_fresh(&self) -> Vec<u64> {
        std::mem::take(&mut *self.fresh.borrow_mut())
    }

    /// Puts fresh regions back after a failed flush.
    pub(crate) fn put_back_fresh(&self, regions: Vec<u64>) {
        self.fresh.borrow_mut().extend(regions);
    }

    /// Marks regions as ready, since their data is durable: the next write of their pages has
    /// "written", and "dirty" with it, since writes that began before may still be in flight. Skips
    /// regions that are unwritten again, and those completed again since, whose data may not be
    /// durable.
    pub(crate) fn mark_ready(&self, regions: &[u64]) {
        for &region in regions {
            let is_new_again = self.fresh.borrow().contains(&region);
            if self.state(region) != RegionState::Fresh || is_new_again {
                continue;
            }
            self.set_state(region, RegionState::Ready);
            self.intents.set(region);
            self.change_page_of(region);
        }
    }

    /// Makes a region unwritten; it reads as zeros once its page is durable.
    pub(crate) fn mark_unwritten(&self, region: u64) {
        self.partial.borrow_mut().remove(&region);
        self.fresh.borrow_mut().retain(|&fresh| fresh != region);
        self.set_state(region, RegionState::Unwritten);
        self.change_page_of(region);
        self.initialised.notify_all();
    }

    /// Undoes [`Self::mark_unwritten`] after its page could not be made durable; `before` is the
    /// state before, `Ready` or `Written`. The region's stripes have been locked since.
    pub(crate) fn mark_written_still(&self, region: u64, before: RegionState) {
        debug_assert!(matches!(before, RegionState::Ready | RegionState::Written));
        self.set_state(region, before);
        self.change_page_of(region);
        self.initialised.notify_all();
    }

    fn change_page_of(&self, region: u64) {
        self.pages.change(self.pages.of(region));
    }

    /// Starts writing a page. `None` if it is being written already.
    pub(crate) fn begin_page(&self, page: usize, buffers: &BufferPool) -> Option<PageWrite> {
        self.pages.begin(page, || buffers.allocate_zeroed(PAGE_BYTES), |bytes| self.fill(page, bytes))
    }

    /// Ends the write of a page; `durable` is true if the members have it.
    pub(crate) fn end_page(&self, write: &PageWrite, durable: bool) {
        self.pages.end(write, durable);
        if durable && write.version == self.pages.version(write.page) {
            self.note_durable(write.page);
        }
        self.pages.changed.notify_all();
    }

    /// Notes that a page is durable in its current state.
    fn note_durable(&self, page: usize) {
        let regions = self.pages.regions_of(page, self.count());
        for region in regions.clone() {
            if self.state(region) == RegionState::Ready {
                self.set_state(region, RegionState::Written);
            }
        }
        let range = regions.start as usize..regions.end as usize;
        self.behind_durable.borrow_mut()[range.clone()].copy_from_slice(&self.behind.borrow()[range]);
        self.intents.note_durable(&regions);
    }

    /// Sets the bits of a page.
    fn fill(&self, page: usize, bytes: &mut [u8]) {
        let regions = self.pages.regions_of(page, self.count());
        for (bit, region) in regions.clone().enumerate() {
            if matches!(self.state(region), RegionState::Ready | RegionState::Written) {
                Bits::Written.set(bytes, bit);
            }
            if self.is_behind(region) {
                Bits::Behind.set(bytes, bit);
            }
        }
        self.intents.for_each_set(&regions, |bit| Bits::Dirty.set(bytes, bit));
    }

    /// Loads a page that was read from a member.
    pub(crate) fn load_page(&self, page: usize, sequence: u64, bytes: &[u8]) {
        let regions = self.pages.regions_of(page, self.count());
        for (bit, region) in regions.clone().enumerate() {
            if Bits::Written.is_set(bytes, bit) {
                self.set_state(region, RegionState::Written);
            }
            let behind = Bits::Behind.is_set(bytes, bit);
            self.behind.borrow_mut()[region as usize] = behind;
            self.behind_count.set(self.behind_count.get() + u64::from(behind));
            self.behind_durable.borrow_mut()[region as usize] = behind;
        }
        self.intents.load(&regions, |bit| Bits::Dirty.is_set(bytes, bit));
        self.pages.note_loaded(page, sequence);
    }

    /// For fuzzers: loads bytes as a page of a map, after correcting its identity, place and
    /// checksum. True if the decoder accepts them.
    pub(crate) fn accepts_page(bytes: &[u8]) -> bool {
        let shape = RegionShape {
            stripes_per_region: 16,
            member_region_bytes: REGION_BYTES,
            region_data_bytes: REGION_BYTES,
        };
        let grain = MapGrain::default();
        let map = Self::new(shape, grain, 0, 0, grain.regions_per_page + 100).expect("a little memory");
        let page = with_corrected_header(bytes);
        let Some(sequence) = map.pages.check(1, &page) else { return false };
        map.load_page(1, sequence, &page);
        map.all_written.get() || map.unwritten.get() <= map.count()
    }

    pub(crate) fn regions_of_chunk(&self, chunk: u64) -> std::ops::Range<u64> {
        chunk * self.regions_per_chunk..((chunk + 1) * self.regions_per_chunk).min(self.count())
    }

    /// Clears the write-intent bits of those `quiet` chunks that are still quiet; the caller has
    /// flushed since [`WriteIntents::quiet_chunks`].
    pub(crate) fn mark_clean(&self, quiet: &[u64]) {
        self.intents.clear(quiet).into_iter().for_each(|region| self.change_page_of(region));
    }
}

/// Counts as a write in flight for as long as it lives.
pub(crate) struct WriteIntent {
    regions: Rc<Regions>,
    region: u64,
}

impl WriteIntent {
    pub(crate) fn new(regions: &Rc<Regions>, region: u64, away: bool) -> (Self, bool) {
        let needs_mark = regions.begin_write(region, away);
        (Self { regions: regions.clone(), region }, needs_mark)
    }
}

impl Drop for WriteIntent {
    fn drop(&mut self) {
        self.regions.end_write(self.region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes all stripes of a region.
    fn write_all(regions: &Regions, region: u64) {
        for stripe in regions.stripes_of(region) {
            regions.begin_write(region, false);
            regions.mark_initialised(stripe);
            regions.end_write(region);
        }
    }

    #[test]
    fn write_during_a_flush_is_not_counted_as_flushed() {
        let shape = RegionShape { stripes_per_region: 2, region_data_bytes: 8192, member_region_bytes: 4096 };
        let regions = Regions::new(shape, MapGrain::default(), 0, 1, 2).expect("a little memory");
        (0..2).for_each(|region| write_all(&regions, region));
        let flushed = regions.take_fresh();
        regions.mark_unwritten(0);
        write_all(&regions, 0);
        regions.mark_ready(&flushed);
        assert_eq!((regions.state(0), regions.state(1)), (RegionState::Fresh, RegionState::Ready));
        let next = regions.take_fresh();
        assert_eq!(next, [0], "only the next flush makes it durable");
        regions.mark_ready(&next);
        assert_eq!(regions.state(0), RegionState::Ready);
    }

    #[test]
    fn failed_page_write_retries_the_same_slot() {
        let shape = RegionShape { stripes_per_region: 2, region_data_bytes: 8192, member_region_bytes: 4096 };
        let regions = Regions::new(shape, MapGrain::default(), 0, 1, 2).expect("a little memory");
        let buffers = BufferPool::new(0);
        let write = |durable: bool| {
            let page = regions.begin_page(0, &buffers).expect("no other write is in flight");
            regions.end_page(&page, durable);
            page.offset_bytes
        };
        let (good, failed, again) = (write(true), write(false), write(false));
        assert_ne!(good, failed, "slots are used in turn");
        assert_eq!(failed, again, "the last good page is in the other slot");
        assert_eq!(write(true), failed);
        assert_eq!(write(true), good);
    }
}
