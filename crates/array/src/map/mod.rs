//! The region map on the drives: loading it, updating it, flushing, and clearing write-intent bits.
//!
//! The map is stored at several places, each on another drive. A page is durable when every present
//! place has it; a place whose drive refuses it is excluded like any drive that misses a write. A
//! power cut may leave a page at some places only. On loading, the newest page counts, and is
//! brought to the other places, durably, before anything relies on it.

pub(crate) mod discard;
pub(crate) mod extents;
pub(crate) mod map_upkeep;
pub(crate) mod pages;
pub(crate) mod region_completion;
pub(crate) mod regions;
pub(crate) mod write_intents;

use std::cell::RefCell;
use std::collections::TryReserveError;

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, Completion, IoRequest};

use crate::array::{AreaPlace, Array, HostRequest, Inner};
use crate::columns::members::gone;
use crate::error::ArrayError;
use crate::map::pages::{MapPages, PAGE_BYTES};
use crate::member::Class;
use crate::mutation::{self, Mutation};
use crate::stripes::lock_order;

/// Allocates memory for `count` elements.
fn reserve<T>(of: &RefCell<Vec<T>>, count: u64) -> Result<(), TryReserveError> {
    let mut of = of.borrow_mut();
    let more = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(of.len());
    of.try_reserve_exact(more)
}

impl Array {
    /// Places of the region map.
    pub fn map_places(&self) -> Vec<AreaPlace> {
        self.0.map.places.borrow().clone()
    }

    /// Adds places to the map, up to date and durable on return; later changes are written to them
    /// too.
    pub async fn add_map_places(&self, places: &[AreaPlace]) -> Result<(), ArrayError> {
        self.0.map.places.borrow_mut().extend_from_slice(places);
        self.0.rewrite_map().await
    }

    /// Removes places of the map.
    pub fn remove_map_places(&self, places: &[AreaPlace]) {
        self.0.map.places.borrow_mut().retain(|place| !places.contains(place));
    }

    /// Waits for the map page writes that are in flight now.
    pub async fn until_map_written(&self) {
        let regions = &self.0.regions;
        for page in 0..regions.pages.count() {
            let Some(sequence) = regions.pages.being_written(page) else { continue };
            while regions.pages.being_written(page) == Some(sequence) {
                regions.pages.changed.wait().await;
            }
        }
    }
}

impl Inner {
    pub(crate) async fn flush(&self) -> Result<(), ArrayError> {
        lock_order::assert_holds_none(&*self.table, "a flush");
        if self.lifecycle.is_protected() {
            // Earlier writes cannot be made durable any more: parts of them are on members that are
            // gone, or in regions not yet marked as written.
            return if self.lifecycle.is_changed() { Err(ArrayError::Protected) } else { Ok(()) };
        }
        if self.lifecycle.is_full() {
            return match self.flush_what_is_whole().await? {
                true => Ok(()),
                false => self.check_writable(),
            };
        }
        if self.regions.partial_count() > 0 {
            for region in self.regions.partial_regions() {
                self.complete_region(region).await?;
            }
        }
        self.flush_what_is_whole().await.map(drop)
    }

    /// Like [`Self::flush`], but leaves out regions whose first write covered only a part:
    /// completing these takes space that was never written. True if there is no such region.
    pub(crate) async fn flush_what_is_whole(&self) -> Result<bool, ArrayError> {
        // Regions that another flush is about to mark may hold this caller's writes: they must be
        // marked on return.
        self.map.marking.until_free().await;
        let repairs = self.bad.repairs();
        if self.regions.has_fresh() {
            let marking = self.map.marking.begin();
            self.ready_new_regions().await?;
            drop(marking);
        } else {
            self.flush_members().await?;
        }
        self.bad.repairs_are_durable(repairs);
        self.persist_map().await?;
        // Before the journal releases the records that repaired them.
        self.record_lost().await?;
        self.release_early();
        if let Some(log) = self.log.open() {
            log.mark().await?;
        }
        Ok(!self.regions.is_any_in_part())
    }

    /// Makes the contents of new regions durable, so that the map can mark them as written.
    async fn ready_new_regions(&self) -> Result<(), ArrayError> {
        let fresh = self.regions.take_fresh();
        let mut result = match mutation::is_chosen(Mutation::WrittenBeforeFlush) {
            true => Ok(()),
            false => self.flush_members().await,
        };
        if result.is_ok() {
            // The journal has no checksums of first writes.
            result = self.release_records().await;
        }
        match result {
            Ok(()) => self.regions.mark_ready(&fresh),
            Err(_) => self.regions.put_back_fresh(fresh),
        }
        result
    }

    /// Records that repaired blocks are no longer lost, if there are any.
    pub(crate) async fn record_lost(&self) -> Result<(), ArrayError> {
        let unrecorded = self.bad.repairs_to_record();
        let unrecorded = unrecorded.filter(|_| !mutation::is_chosen(Mutation::LostBlocksNotRecorded));
        let Some(repairs) = unrecorded else { return Ok(()) };
        let recorded = self.host.ask(self.spec.id, HostRequest::RecordLost).await;
        recorded.map_err(ArrayError::CannotRecord)?;
        self.bad.repairs_are_recorded(repairs);
        Ok(())
    }

    /// Writes all pages of the map whose durable copy is outdated.
    pub(crate) async fn persist_map(&self) -> Result<(), ArrayError> {
        for page in self.regions.pages.stale() {
            self.persist_page(page).await?;
        }
        Ok(())
    }

    /// Makes the page durable in its current state, or joins a write in flight if that is enough.
    pub(crate) async fn persist_page(&self, page: usize) -> Result<(), ArrayError> {
        let version = self.regions.pages.version(page);
        while !self.regions.pages.is_durable(page, version) {
            self.write_page(page).await?;
        }
        Ok(())
    }

    /// Places of the map whose drives are present.
    fn present_map_places(&self) -> SmallVec<[AreaPlace; 6]> {
        let members = self.columns.members.borrow();
        self.map.places.borrow().iter().filter(|place| members.get(place.drive).is_some()).copied().collect()
    }

    fn submit_to_map(&self, place: AreaPlace, mut request: IoRequest) -> Completion {
        let members = self.columns.members.borrow();
        let Some(member) = members.get(place.drive) else { return gone(&request) };
        request.offset_bytes += member.slabs_base_bytes + u64::from(place.slab) * self.spec.slab_bytes;
        member.member.submit(Class::Upkeep, request.because(Cause::RegionMap))
    }

    async fn write_page(&self, page: usize) -> Result<(), ArrayError> {
        if self.lifecycle.is_protected() {
            return Err(ArrayError::Protected);
        }
        self.lifecycle.note_change();
        let Some(write) = self.regions.begin_page(page, &self.buffers) else {
            self.regions.pages.changed.wait().await;
            return Ok(());
        };
        let writes: SmallVec<[Completion; 6]> = self
            .present_map_places()
            .into_iter()
            .map(|place| {
                let request = IoRequest::write(write.offset_bytes, write.buffer.clone(), true);
                self.submit_to_map(place, request)
            })
            .collect();
        let mut result = if writes.is_empty() { Err(ArrayError::MapLost) } else { Ok(()) };
        let mut written = 0;
        for answer in writes {
            match answer.await {
                Ok(()) => written += 1,
                Err(error) => {
                    if let Err(error) = self.note_write_error(&error).await {
                        result = Err(error);
                    }
                }
            }
        }
        if written == 0 && result.is_ok() {
            result = Err(ArrayError::MapLost);
        }
        self.regions.end_page(&write, result.is_ok());
        self.start_clearing_intents();
        result
    }

    /// Writes every page to every place, into both of its slots.
    pub(crate) async fn rewrite_map(&self) -> Result<(), ArrayError> {
        for _ in 0..2 {
            for page in 0..self.regions.pages.count() {
                let version = self.regions.pages.change(page);
                while !self.regions.pages.is_durable(page, version) {
                    self.write_page(page).await?;
                }
            }
        }
        Ok(())
    }

    /// Reads the map: for each page the newest version of any place. Unless the array is protected,
    /// each page is durable at all places on return. It may be at only one because of a power cut;
    /// nothing would bring it to the others before its next change, and if the drive that has it
    /// were lost, acknowledged flushes that rely on it would be lost too.
    pub(crate) async fn load_map(&self) -> Result<(), ArrayError> {
        for page in 0..self.regions.pages.count() {
            let offset = page as u64 * 2 * PAGE_BYTES as u64;
            let reads: SmallVec<[_; 6]> = self
                .present_map_places()
                .into_iter()
                .map(|place| {
                    let buffer = self.buffers.allocate_zeroed(2 * PAGE_BYTES);
                    let request = IoRequest::read(offset, buffer.clone());
                    (place, buffer, self.submit_to_map(place, request))
                })
                .collect();
            let mut newest: Option<(u64, Buffer)> = None;
            let mut held: SmallVec<[(AreaPlace, Option<u64>); 6]> = SmallVec::new();
            for (place, buffer, answer) in reads {
                held.push((place, None));
                if answer.await.is_err() {
                    continue;
                }
                for copy in [buffer.slice(0..PAGE_BYTES), buffer.slice(PAGE_BYTES..2 * PAGE_BYTES)] {
                    let sequence = copy.with(|bytes| self.regions.pages.check(page, bytes)).flatten();
                    if let Some((_, of_place)) = held.last_mut() {
                        *of_place = sequence.max(*of_place);
                    }
                    if let Some(sequence) = sequence
                        && newest.as_ref().is_none_or(|(best, _)| sequence > *best)
                    {
                        newest = Some((sequence, copy));
                    }
                }
            }
            let (sequence, bytes) = newest.ok_or(ArrayError::MapLost)?;
            bytes.with(|bytes| self.regions.load_page(page, sequence, bytes));
            for (place, _) in held.iter().filter(|(_, of_place)| *of_place < Some(sequence)) {
                if self.lifecycle.is_protected() || mutation::is_chosen(Mutation::MapPageAtOnePlace) {
                    break;
                }
                self.copy_page(*place, MapPages::slot_offset(page, sequence), &bytes).await?;
            }
        }
        Ok(())
    }

    /// Copies a page to a place with an older version, into the same slot as at the other places:
    /// if the write is torn, the place's other slot is intact.
    async fn copy_page(&self, place: AreaPlace, offset: u64, bytes: &Buffer) -> Result<(), ArrayError> {
        let write = || self.submit_to_map(place, IoRequest::write(offset, bytes.clone(), true));
        let mut written = write().await;
        if written.is_err() {
            written = write().await;
        }
        let Err(error) = written else { return Ok(()) };
        match self.note_write_error(&error).await {
            // Reads can continue, but no write may rely on this page.
            Err(ArrayError::Drive(_)) => {
                self.lifecycle.protect();
                Ok(())
            }
            result => result,
        }
    }

    /// Clears the write-intent bits of quiet chunks; with `all`, of every chunk without a write in
    /// flight.
    pub(crate) async fn clear_intents(&self, all: bool) -> Result<(), ArrayError> {
        self.check_writable()?;
        let quiet = self.regions.intents.quiet_chunks(all);
        if quiet.is_empty() {
            return Ok(());
        }
        self.flush_members().await?;
        // A clean chunk must have no records in the journal.
        self.release_records().await?;
        if let Some(log) = self.log.open() {
            // Released space is free only once that is durable; otherwise the next burst would find
            // the journal full.
            log.journal.mark_releases().await?;
        }
        self.regions.mark_clean(&quiet);
        self.persist_map().await
    }

    /// Starts the task that clears write-intent bits, unless it is running. It ends when no bit is
    /// left.
    pub(crate) fn start_clearing_intents(&self) {
        if self.map.is_clearing_intents.get()
            || self.lifecycle.is_closed()
            || !self.regions.intents.any_to_clear()
        {
            return;
        }
        self.map.is_clearing_intents.set(true);
        let Some(inner) = self.me.upgrade() else { return };
        self.context.spawn(async move {
            while inner.regions.intents.any_to_clear() && !inner.lifecycle.is_closed() {
                inner.context.sleep_ns(inner.options.tuning.intent_clear_interval_ns).await;
                if inner.lifecycle.is_closed() || inner.clear_intents(false).await.is_err() {
                    break;
                }
            }
            inner.map.is_clearing_intents.set(false);
        });
    }
}
