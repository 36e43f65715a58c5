//! Making volumes larger and smaller.
//!
//! Larger: the rows, and the region map with its new pages, are there before the manifest says so;
//! writes beyond the old end are refused until it does. Smaller: refused while anything is stored
//! beyond the new end, in place or in the journal. Writes there are refused before the last look,
//! and those in flight have ended by then, so none slips in between. The region map forgets what
//! lies there, then the rows are given up. A cut in between leaves the size that it had, with zeros
//! where it was already forgotten.

use crate::error::{LogTask, PoolError};
use crate::manifest::events::EventKind;
use crate::manifest::volume_record::{MetaPlaceRecord, MetaRecord, PartRecord, PlaceState, VolumeRecord};
use crate::space::new_volume::{Taken, map_size};
use crate::space::slabs::put_rows;
use crate::superblock::commit::{Change, map_place};
use crate::volume::make::MOST_VOLUME_BYTES;
use crate::{BLOCK_BYTES, Inner, Pool, Volume};
use stripewise_array::ArrayError;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::rows::SlotState;
use stripewise_array::{AreaPlace, Array, ArrayHandle, BlockArray};

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
        inner.freed.until_reclaimed().await;
        let array = volume.in_place();
        let before = record.size_bytes;
        let resized = match size_bytes.cmp(&before) {
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Greater => {
                array.visit(|array| array.end_writes_at(before));
                inner.grow(&record, &array, size_bytes).await
            }
            std::cmp::Ordering::Less => inner.shrink(&record, &volume, size_bytes).await,
        };
        array.visit(|array| array.end_writes_at(u64::MAX));
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
        let part = record.parts.last().expect("a volume has a part");
        let drives = inner.drives_for(record.pin);
        let free = inner.space.borrow().max_rows(&drives, part.rows.width());
        let rows = (part.rows.allocated_rows() + free).max(part.rows.rows());
        Ok(rows.saturating_mul(volume.in_place().spec().row_data_bytes()?).max(record.size_bytes))
    }
}

fn resized(record: &VolumeRecord, size_bytes: u64) -> String {
    format!("volume {} was resized from {} to {size_bytes} bytes", record.name, record.size_bytes)
}

impl Inner {
    async fn grow(
        &self,
        record: &VolumeRecord,
        array: &ArrayHandle,
        size_bytes: u64,
    ) -> Result<(), PoolError> {
        let part = &record.parts[0];
        let mut taken = Taken::default();
        let grown = self.prepare_growth(record, part, array, size_bytes, &mut taken).await;
        let meta = match grown {
            Ok(meta) => meta,
            Err(error) => {
                self.undo_growth(part, array, record.size_bytes).await;
                taken.give_back(&mut self.space.borrow_mut());
                return Err(error);
            }
        };
        let text = resized(record, size_bytes);
        self.news.event(EventKind::Volume, &text);
        let (id, new, new_meta) = (record.id, taken.rows.clone(), meta);
        let (first_row, rows) = (part.rows.rows(), size_bytes.div_ceil(array.spec().row_data_bytes()?));
        let recorded = self
            .try_commit(None, move |manifest| {
                let Some(volume) = manifest.volume_by_id_mut(id) else {
                    return Err(PoolError::Job("the volume is gone".to_owned()));
                };
                volume.size_bytes = size_bytes;
                let part = &mut volume.parts[0];
                part.rows.resize(rows.max(first_row));
                put_rows(&mut part.rows, first_row, &new, SlotState::Active);
                if let Some(meta) = new_meta {
                    part.meta = meta;
                }
                Ok(Change::Commit(()))
            })
            .await;
        if let Err(error) = recorded {
            self.news.take_back(&text);
            self.undo_growth(part, array, record.size_bytes).await;
            taken.give_back(&mut self.space.borrow_mut());
            return Err(error);
        }
        Ok(())
    }

    /// Takes slabs, and has the array ready for the new size; a new place for the map where the old
    /// one is too small.
    async fn prepare_growth(
        &self,
        record: &VolumeRecord,
        part: &PartRecord,
        array: &ArrayHandle,
        size_bytes: u64,
        taken: &mut Taken,
    ) -> Result<Option<MetaRecord>, PoolError> {
        let row_bytes = array.spec().row_data_bytes()?;
        let (old_rows, rows) = (part.rows.rows(), size_bytes.div_ceil(row_bytes).max(part.rows.rows()));
        let (width, slab_bytes) = (part.rows.width(), array.spec().slab_bytes);
        let drives = self.drives_for(record.pin);
        let no_space = |possible: u64| PoolError::NoSpace {
            pool: self.name(),
            volume: record.name.clone(),
            needed_rows: rows - old_rows,
            free_rows: possible,
            width,
            slab_bytes,
            drives_with_room: self.space.borrow().drives_with_room(&drives),
            possible_bytes: (old_rows + possible) * row_bytes,
        };
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
        let mut planned = self.manifest.borrow().clone();
        if let Some(part) = planned.part_mut(part.id) {
            part.rows = table.clone();
        }
        self.commits.check_growth(&planned)?;
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
        array.call(prepare).await?;
        Ok(meta)
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
        let array = &volume.in_place();
        let check = async || match stored_beyond(array, size_bytes).await? {
            0 => Ok(()),
            stored_bytes => {
                Err(PoolError::StoredBeyond { volume: record.name.clone(), size_bytes, stored_bytes })
            }
        };
        // The first look spares clients the refusals that they get during the second.
        check().await?;
        array.visit(|array| array.end_writes_at(size_bytes));
        volume.until_writes_ended().await;
        check().await?;
        if let Err(error) = resize(array, size_bytes).await {
            let _ = resize(array, record.size_bytes).await;
            return Err(error.into());
        }
        let text = resized(record, size_bytes);
        self.news.event(EventKind::Volume, &text);
        let (id, rows) = (record.id, size_bytes.div_ceil(array.spec().row_data_bytes()?));
        let recorded = self
            .try_commit(None, move |manifest| {
                if let Some(volume) = manifest.volume_by_id_mut(id) {
                    volume.size_bytes = size_bytes;
                    volume.parts[0].rows.resize(rows);
                }
                Ok(Change::Commit(()))
            })
            .await;
        if recorded.is_err() {
            self.news.take_back(&text);
            let _ = resize(array, record.size_bytes).await;
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

async fn resize(array: &ArrayHandle, size_bytes: u64) -> Result<(), ArrayError> {
    array.call(async move |array| array.resize(size_bytes).await).await
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
