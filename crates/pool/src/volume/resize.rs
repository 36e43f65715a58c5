//! Making volumes larger and smaller.
//!
//! Larger: the rows, and the region map with its new pages, are there before the manifest says so;
//! writes beyond the old end are refused until it does. Smaller: refused while anything is stored
//! beyond the new end, in place or in the journal. Writes there are refused before the last look,
//! and those in flight have ended by then, so none slips in between. The region map forgets what
//! lies there, then the rows are given up. A cut in between leaves the size that it had, with zeros
//! where it was already forgotten. All slices of a volume get their new sizes by one commit.

use crate::error::{LogTask, PoolError};
use crate::manifest::events::EventKind;
use crate::manifest::format::Manifest;
use crate::manifest::volume_record::{MetaPlaceRecord, MetaRecord, PartRecord, PlaceState, VolumeRecord};
use crate::space::new_volume::{Taken, map_size};
use crate::space::slabs::put_rows;
use crate::superblock::commit::{Change, map_place};
use crate::volume::make::{MOST_VOLUME_BYTES, check_slices_fit};
use crate::volume::sliced::Sliced;
use crate::{BLOCK_BYTES, Inner, Pool, Volume};
use stripewise_array::ArrayError;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::rows::SlotState;
use stripewise_array::{AreaPlace, Array, ArrayHandle, ArraySpec, BlockArray};

/// Read at once in search of something stored.
const PIECE_BYTES: u64 = 1 << 20;

impl Pool {
    /// Makes a volume larger, or smaller if nothing is stored beyond its new end. Rounded up to
    /// blocks of 4 KiB.
    pub async fn resize_volume(&self, name: &str, size_bytes: u64) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let volume = self.volume(name)?;
        self.refuse_for_log(name, LogTask::Resize)?;
        if size_bytes == 0 || size_bytes > MOST_VOLUME_BYTES {
            return Err(PoolError::BadSetting(format!(
                "a volume has at most {MOST_VOLUME_BYTES} bytes and at least one, not {size_bytes}"
            )));
        }
        let size_bytes = size_bytes.next_multiple_of(BLOCK_BYTES);
        let record = inner.manifest.borrow().volume(name).cloned().expect("just found");
        if record.conversion.is_some() {
            return Err(PoolError::Converting { pool: inner.name(), volume: name.to_owned() });
        }
        if let Some(slicing) = record.slicing() {
            check_slices_fit(name, slicing, size_bytes)?;
        }
        inner.freed.until_reclaimed().await;
        let arrays = volume.in_place();
        let before = record.size_bytes;
        let resized = match size_bytes.cmp(&before) {
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Greater => {
                arrays.end_writes_at(before);
                inner.grow(&record, &arrays, size_bytes).await
            }
            std::cmp::Ordering::Less => inner.shrink(&record, &volume, size_bytes).await,
        };
        arrays.end_writes_at(u64::MAX);
        resized?;
        inner.freed.until_reclaimed().await;
        Ok(())
    }
}

impl Pool {
    /// Bytes that a volume would have with all space that is free now.
    pub fn largest_size(&self, name: &str) -> Result<u64, PoolError> {
        let (inner, volume) = (&self.0, self.volume(name)?);
        self.refuse_for_log(name, LogTask::Resize)?;
        let manifest = inner.manifest.borrow();
        let record = manifest.volume(name).expect("just found");
        let parts = record.last_group();
        let drives = inner.drives_for(record.pin);
        let width = parts.first().map_or(1, |part| part.shape.width);
        let free = inner.space.borrow().max_rows(&drives, width);
        let allocated: u64 = parts.iter().map(|part| part.rows.allocated_rows()).sum();
        let rows = (allocated + free).max(parts.iter().map(|part| part.rows.rows()).sum());
        let row_bytes = volume.in_place().first().spec().row_data_bytes()?;
        let largest_bytes = match record.slicing() {
            None => rows.saturating_mul(row_bytes),
            Some(slicing) => {
                let slices = slicing.slices() as u64;
                let slice_bytes = (rows / slices).saturating_mul(row_bytes);
                slice_bytes / slicing.extent_bytes() * slicing.extent_bytes() * slices
            }
        };
        Ok(largest_bytes.max(record.size_bytes))
    }
}

fn resized(record: &VolumeRecord, size_bytes: u64) -> String {
    format!("volume {} was resized from {} to {size_bytes} bytes", record.name, record.size_bytes)
}

/// Growth of a volume: what was taken and made ready, part by part.
struct Growth {
    size_bytes: u64,
    /// Rows that each part had, and will have.
    old_rows: Vec<u64>,
    rows: Vec<u64>,
    /// The record, as it will be.
    planned: Manifest,
    taken: Vec<Taken>,
    /// New places of maps that were too small.
    metas: Vec<Option<MetaRecord>>,
}

impl Inner {
    async fn grow(&self, record: &VolumeRecord, arrays: &Sliced, size_bytes: u64) -> Result<(), PoolError> {
        let mut growth = Growth {
            size_bytes,
            old_rows: record.parts.iter().map(|part| part.rows.rows()).collect(),
            rows: Vec::new(),
            planned: self.manifest.borrow().clone(),
            taken: Vec::new(),
            metas: Vec::new(),
        };
        let mut grown = self.check_room_to_grow(record, arrays, size_bytes);
        for (part, array) in record.parts.iter().zip(arrays.handles()) {
            if grown.is_ok() {
                growth.taken.push(Taken::default());
                grown = self.prepare_growth(record, part, array, &mut growth).await;
            }
        }
        let text = resized(record, size_bytes);
        let recorded = match grown {
            Ok(()) => {
                self.news.event(EventKind::Volume, &text);
                let recorded = self.record_growth(record, &growth).await;
                if recorded.is_err() {
                    self.news.take_back(&text);
                }
                recorded
            }
            Err(error) => Err(error),
        };
        if recorded.is_ok() {
            arrays.set_capacity_bytes(size_bytes);
            return Ok(());
        }
        let begun = growth.taken.len();
        for (part, array) in record.parts.iter().zip(arrays.handles()).take(begun) {
            self.undo_growth(part, array, part.bytes_of(record.size_bytes)).await;
        }
        let mut space = self.space.borrow_mut();
        growth.taken.into_iter().for_each(|taken| taken.give_back(&mut space));
        recorded
    }

    async fn record_growth(&self, record: &VolumeRecord, growth: &Growth) -> Result<(), PoolError> {
        let (id, size_bytes) = (record.id, growth.size_bytes);
        let (old_rows, rows, metas) = (growth.old_rows.clone(), growth.rows.clone(), growth.metas.clone());
        let new: Vec<_> = growth.taken.iter().map(|taken| taken.rows.clone()).collect();
        self.try_commit(None, move |manifest| {
            let Some(volume) = manifest.volume_by_id_mut(id) else {
                return Err(PoolError::Job("the volume is gone".to_owned()));
            };
            volume.size_bytes = size_bytes;
            for (index, part) in volume.parts.iter_mut().enumerate() {
                part.rows.resize(rows[index]);
                put_rows(&mut part.rows, old_rows[index], &new[index], SlotState::Active);
                if let Some(meta) = &metas[index] {
                    part.meta = meta.clone();
                }
            }
            Ok(Change::Commit(()))
        })
        .await
    }

    /// Checks that there is room for the rows of all parts.
    fn check_room_to_grow(
        &self,
        record: &VolumeRecord,
        arrays: &Sliced,
        size_bytes: u64,
    ) -> Result<(), PoolError> {
        let spec = arrays.first().spec();
        let (row_bytes, width) = (spec.row_data_bytes()?, spec.shape.width);
        let more = |part: &PartRecord| {
            part.bytes_of(size_bytes).div_ceil(row_bytes).saturating_sub(part.rows.rows())
        };
        let needed_rows: u64 = record.parts.iter().map(more).sum();
        let drives = self.drives_for(record.pin);
        let free_rows = self.space.borrow().max_rows(&drives, width);
        if record.thin || needed_rows <= free_rows {
            return Ok(());
        }
        Err(self.no_space_to_grow(record, arrays.first().spec(), needed_rows, free_rows))
    }

    fn no_space_to_grow(
        &self,
        record: &VolumeRecord,
        spec: &ArraySpec,
        needed_rows: u64,
        free_rows: u64,
    ) -> PoolError {
        let old_rows: u64 = record.parts.iter().map(|part| part.rows.rows()).sum();
        let drives = self.drives_for(record.pin);
        PoolError::NoSpace {
            pool: self.name(),
            volume: record.name.clone(),
            needed_rows,
            free_rows,
            width: spec.shape.width,
            slab_bytes: spec.slab_bytes,
            drives_with_room: self.space.borrow().drives_with_room(&drives),
            possible_bytes: (old_rows + free_rows) * spec.row_data_bytes().unwrap_or(0),
        }
    }

    /// Takes slabs for a part, and has its array ready for the new size; a new place for the map
    /// where the old one is too small.
    async fn prepare_growth(
        &self,
        record: &VolumeRecord,
        part: &PartRecord,
        array: &ArrayHandle,
        growth: &mut Growth,
    ) -> Result<(), PoolError> {
        let (row_bytes, size_bytes) = (array.spec().row_data_bytes()?, part.bytes_of(growth.size_bytes));
        let (old_rows, rows) = (part.rows.rows(), size_bytes.div_ceil(row_bytes).max(part.rows.rows()));
        let width = part.rows.width();
        let drives = self.drives_for(record.pin);
        let no_space = |possible: u64| self.no_space_to_grow(record, array.spec(), rows - old_rows, possible);
        let taken = growth.taken.last_mut().expect("begun for this part");
        if !record.thin && rows > old_rows {
            let allocated = self.space.borrow_mut().allocate_rows(&drives, width, rows - old_rows, old_rows);
            taken.rows = allocated.map_err(|shortage| no_space(shortage.possible))?;
        }
        let mut meta = None;
        if rows > part.meta.map_rows {
            let (slabs, map_rows) = map_size(array.spec(), rows, self.tuning().map_grain)?;
            let active = part.meta.places.iter().filter(|place| place.state == PlaceState::Active);
            let on: Vec<u32> = active.map(|place| place.drive).collect();
            let mut space = self.space.borrow_mut();
            let places = space.allocate_places(&on, slabs).or_else(|_| {
                let emptiest = space.emptiest(&drives);
                space.allocate_places(&emptiest[..on.len().min(emptiest.len())], slabs)
            });
            drop(space);
            let places = places.map_err(|_| no_space(0))?;
            taken.places = places.iter().map(|&(drive, slab)| (drive, slab, slabs)).collect();
            let place = |&(drive, slab)| MetaPlaceRecord { drive, slab, state: PlaceState::Active };
            meta = Some(MetaRecord { slabs, map_rows, places: places.iter().map(place).collect() });
        }
        let mut table = array.visit(Array::rows);
        table.resize(rows);
        put_rows(&mut table, old_rows, &taken.rows, SlotState::Active);
        if let Some(part) = growth.planned.part_mut(part.id) {
            part.rows = table.clone();
        }
        self.commits.check_growth(&growth.planned)?;
        growth.rows.push(rows);
        growth.metas.push(meta.clone());
        let moved = meta.as_ref().map(|meta| (areas(meta), old_areas(part)));
        let prepare = async move |array: Array| {
            array.set_rows(table);
            if let Some((new, old)) = moved {
                array.add_map_places(&new).await?;
                array.remove_map_places(&old);
            }
            array.resize(size_bytes).await?;
            // Both slots of every page: nothing that an earlier, larger life of the volume left can
            // be taken for this one's.
            array.rewrite_map().await
        };
        Ok(array.call(prepare).await?)
    }

    /// Makes the array what it was.
    async fn undo_growth(&self, part: &PartRecord, array: &ArrayHandle, size_bytes: u64) {
        let old = old_areas(part);
        let undo = async move |array: Array| {
            let _ = array.resize(size_bytes).await;
            let now = array.map_places();
            if now != old {
                let back: Vec<AreaPlace> = old.iter().filter(|place| !now.contains(place)).copied().collect();
                let _ = array.add_map_places(&back).await;
                let new: Vec<AreaPlace> = now.into_iter().filter(|place| !old.contains(place)).collect();
                array.remove_map_places(&new);
                // Space allocated for them may be given to others from now on.
                array.until_map_written().await;
            }
        };
        array.call(undo).await;
        let rows = self.manifest.borrow().parts().find(|now| now.id == part.id).map(|now| now.rows.clone());
        let rows = rows.unwrap_or_else(|| part.rows.clone());
        array.visit(|array| array.set_rows(rows));
    }

    async fn shrink(&self, record: &VolumeRecord, volume: &Volume, size_bytes: u64) -> Result<(), PoolError> {
        let arrays = &volume.in_place();
        let check = async || {
            let mut stored_bytes = 0;
            for (part, array) in record.parts.iter().zip(arrays.handles()) {
                stored_bytes += stored_beyond(array, part.bytes_of(size_bytes)).await?;
            }
            match stored_bytes {
                0 => Ok(()),
                _ => Err(PoolError::StoredBeyond { volume: record.name.clone(), size_bytes, stored_bytes }),
            }
        };
        // The first look spares clients the refusals that they get during the second.
        check().await?;
        arrays.end_writes_at(size_bytes);
        volume.until_writes_ended().await;
        check().await?;
        if let Err(error) = resize(record, arrays, size_bytes).await {
            let _ = resize(record, arrays, record.size_bytes).await;
            return Err(error.into());
        }
        let text = resized(record, size_bytes);
        self.news.event(EventKind::Volume, &text);
        let (id, row_bytes) = (record.id, arrays.first().spec().row_data_bytes()?);
        let recorded = self
            .try_commit(None, move |manifest| {
                if let Some(volume) = manifest.volume_by_id_mut(id) {
                    volume.size_bytes = size_bytes;
                    for part in &mut volume.parts {
                        part.rows.resize(part.bytes_of(size_bytes).div_ceil(row_bytes));
                    }
                }
                Ok(Change::Commit(()))
            })
            .await;
        if recorded.is_err() {
            self.news.take_back(&text);
            let _ = resize(record, arrays, record.size_bytes).await;
        }
        recorded
    }
}

fn areas(meta: &MetaRecord) -> Vec<AreaPlace> {
    let area =
        |place: &MetaPlaceRecord| AreaPlace { drive: place.drive, slab: place.slab, slabs: meta.slabs };
    meta.places.iter().map(area).collect()
}

fn old_areas(part: &PartRecord) -> Vec<AreaPlace> {
    let active = part.meta.places.iter().filter(|place| place.state == PlaceState::Active);
    active.map(|place| map_place(part, place)).collect()
}

/// Resizes all arrays of a volume, also where one fails.
async fn resize(record: &VolumeRecord, arrays: &Sliced, size_bytes: u64) -> Result<(), ArrayError> {
    // No request is sent to a slice beyond its end.
    arrays.set_capacity_bytes(size_bytes.min(record.size_bytes));
    let mut result = Ok(());
    for (part, array) in record.parts.iter().zip(arrays.handles()) {
        let bytes = part.bytes_of(size_bytes);
        result = result.and(array.call(async move |array| array.resize(bytes).await).await);
    }
    result
}

/// Bytes stored in whole regions beyond a new end, and whether anything but zeros is in the rest of
/// the region that it cuts.
async fn stored_beyond(array: &ArrayHandle, size_bytes: u64) -> Result<u64, ArrayError> {
    let is_only_written = mutation::is_chosen(Mutation::ShrinkOverPending);
    let (mut stored, cut_end) = array.visit(|array| {
        let (region_bytes, capacity_bytes) = (array.region_data_bytes(), array.capacity_bytes());
        // Data that is acknowledged and only in the journal may leave its region unwritten.
        let is_written = |region: u64| match is_only_written {
            true => !array.is_region_unwritten(region),
            false => !array.holds_nothing(region),
        };
        let end_of = |region: u64| ((region + 1) * region_bytes).min(capacity_bytes);
        let whole = (size_bytes.div_ceil(region_bytes)..array.regions()).filter(|&region| is_written(region));
        let stored: u64 = whole.map(|region| end_of(region) - region * region_bytes).sum();
        let cut = size_bytes / region_bytes;
        let is_cut = !size_bytes.is_multiple_of(region_bytes) && is_written(cut);
        (stored, is_cut.then(|| end_of(cut)))
    });
    if let Some(end) = cut_end {
        let mut at = size_bytes;
        while at < end {
            let length = PIECE_BYTES.min(end - at);
            let read = array.read(at, length as usize).await?.to_vec();
            let is_stored = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
            stored += read
                .chunks(BLOCK_BYTES as usize)
                .filter(is_stored)
                .map(|block| block.len() as u64)
                .sum::<u64>();
            at += length;
        }
    }
    Ok(stored)
}
