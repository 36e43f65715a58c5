//! Beginning the conversion of a volume to another layout; the work itself is a job
//! (`jobs/convert.rs`), the path of requests during it is in `volume/io.rs`.
//!
//! The new array is made with its map and journal, without rows, before the manifest speaks of it:
//! what cannot be done is refused before anything is touched. Rows are given to it as it needs
//! them, and come back from the old one as it is left behind. Faults expected: layouts that do not
//! fit the drives, too little room, drives that fail while it begins.

use stripewise_layout::{LayoutError, LayoutSpec, Shape};

use crate::error::{LogTask, PoolError};
use crate::manifest::events::EventKind;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{Conversion, PartRecord, VolumeRecord};
use crate::space::new_volume::{LaidOut, NotLaidOut, Wish, lay_out};
use crate::superblock::commit::{Change, leave_out_excluded};
use crate::volume::conversion_room::Rehearsal;
use crate::volume::io::VolumeIo;
use crate::volume::make::note_where_journal_is;
use crate::volume::zones::Zones;
use crate::{Inner, MIB, Pool};
use stripewise_array::ArrayError;
use stripewise_array::{Array, ArrayHandle, ArraySpec};

impl Pool {
    /// Begins to convert a volume to another layout; done when jobs run, while everything goes on.
    /// What is left out of `layout` is chosen as for a new volume, but for the interleave, which
    /// stays.
    pub async fn convert_volume(&self, name: &str, layout: LayoutSpec) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let volume = self.volume(name)?;
        self.refuse_for_log(name, LogTask::Convert)?;
        // Before its record is looked at: rows given back until then are no longer in it.
        inner.freed.until_reclaimed().await;
        let Some(record) = inner.manifest.borrow().volume(name).cloned() else {
            return Err(PoolError::Job(format!("volume {name} is gone")));
        };
        if record.conversion.is_some() {
            return Err(PoolError::Converting { pool: inner.name(), volume: name.to_owned() });
        }
        if volume.is_protected() {
            return Err(ArrayError::Protected.into());
        }
        let old_shape = record.parts[0].shape;
        let drives = inner.drives_for(record.pin);
        let shape = inner.converted_shape(layout, &old_shape, &drives)?;
        if shape == old_shape {
            let layout = layout_in_words(&shape);
            return Err(PoolError::SameLayout { pool: inner.name(), volume: name.to_owned(), layout });
        }
        let (part, laid_out) = inner.plan_conversion(&record, &volume.in_place(), shape, drives)?;
        match inner.begin_conversion(&record, part).await {
            Ok(new) => {
                if let Some(io) = inner.volumes.io(&record) {
                    io.begin(new);
                }
            }
            Err(error) => {
                laid_out.give_back(&mut inner.space.borrow_mut());
                return Err(error);
            }
        }
        inner.note_space();
        inner.kick_jobs();
        Ok(())
    }
}

/// Changes that a conversion would make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionPlan {
    /// The layout that the volume has.
    pub from: Shape,
    /// The layout that it would get.
    pub to: Shape,
}

impl Pool {
    /// Plans [`Self::convert_volume`]; changes nothing.
    pub fn plan_conversion(&self, name: &str, layout: LayoutSpec) -> Result<ConversionPlan, PoolError> {
        let volume = self.volume(name)?;
        self.refuse_for_log(name, LogTask::Convert)?;
        let inner = &self.0;
        let manifest = inner.manifest.borrow();
        let Some(record) = manifest.volume(name) else {
            return Err(PoolError::Job(format!("volume {name} is gone")));
        };
        let from = volume.in_place().spec().shape;
        let to = inner.converted_shape(layout, &from, &inner.drives_for(record.pin))?;
        Ok(ConversionPlan { from, to })
    }

    /// Cancels the conversion of a volume: it goes back to the layout that it had. What was
    /// converted already is copied back when jobs run, while everything goes on; where nothing was,
    /// it is over when this ends.
    pub async fn cancel_conversion(&self, name: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let volume = self.volume(name)?;
        inner.freed.until_reclaimed().await;
        let Some(record) = inner.manifest.borrow().volume(name).cloned() else {
            return Err(PoolError::Job(format!("volume {name} is gone")));
        };
        let is_converting =
            record.conversion.is_some_and(|conversion| conversion.until_offset_bytes.is_none());
        let (Some(io), true) = (inner.volumes.io(&record), is_converting) else {
            let why = if record.conversion.is_some() {
                "goes back to its layout already"
            } else {
                "is not being converted"
            };
            return Err(PoolError::Job(format!("volume {name} {why}")));
        };
        if volume.is_protected() {
            return Err(ArrayError::Protected.into());
        }
        let Some(zones) = io.zones() else {
            return Err(PoolError::Job(format!("volume {name} is not open")));
        };
        zones.is_cancelled.set(true);
        let turned = inner.turn_back(&record, &io, &zones).await;
        zones.is_cancelled.set(false);
        inner.jobs.forget_conversion_stalls();
        inner.kick_jobs();
        // The slabs of an array that holds nothing are free when this ends.
        inner.freed.until_reclaimed().await;
        turned
    }
}

/// A layout in words.
pub fn layout_in_words(shape: &Shape) -> String {
    let Shape { level, width, groups, interleave_bytes, rotation_rows } = *shape;
    let groups = if groups > 1 { format!(" in {groups} groups") } else { String::new() };
    let drives = if width == 1 { "1 drive".to_owned() } else { format!("{width} drives") };
    let rotation =
        if rotation_rows > 1 { format!(", parity for {rotation_rows} rows") } else { String::new() };
    format!("{level} over {drives}{groups}, interleave {} KiB{rotation}", interleave_bytes >> 10)
}

impl Inner {
    /// Shape of a layout on these drives: defaults are those of a new volume, except for the
    /// interleave, which stays.
    fn converted_shape(&self, layout: LayoutSpec, old: &Shape, drives: &[u32]) -> Result<Shape, LayoutError> {
        let interleave_bytes = layout.interleave_bytes.or(Some(old.interleave_bytes));
        let members = drives.iter().filter_map(|&number| self.working_member(number));
        let dearest_bytes = members.map(|member| member.info().gap_bytes).max().unwrap_or(0);
        LayoutSpec { interleave_bytes, ..layout }.on_drives(dearest_bytes).0.resolve(drives.len())
    }

    /// Proves that there is room, and takes what the new array needs beside its rows.
    fn plan_conversion(
        &self,
        record: &VolumeRecord,
        old: &ArrayHandle,
        shape: Shape,
        drives: Vec<u32>,
    ) -> Result<(PartRecord, LaidOut), PoolError> {
        let manifest = self.manifest.borrow();
        let spec = ArraySpec { id: self.ids.borrow_mut().next().0, shape, slab_bytes: manifest.slab_bytes };
        let with_journal = record.write_back || record.checksums || shape.parity_units() > 0;
        let size_bytes = Some(record.size_bytes);
        // Without rows for now.
        let grain = self.tuning().map_grain;
        let wish = Wish {
            spec: &spec,
            size_bytes,
            thin: true,
            with_journal,
            grain,
            is_seek_bound: self.drives.are_seek_bound(&drives),
            drives,
        };
        let row_bytes = spec.row_data_bytes()?;
        let new_rows = record.size_bytes.div_ceil(row_bytes);
        let part = &record.parts[0];
        let rehearsal = Rehearsal {
            old: &part.rows,
            old_row_bytes: old.spec().row_data_bytes()?,
            needed: match record.thin {
                true => old.visit(|old| rows_of_written(old, row_bytes)),
                false => vec![(0, new_rows)],
            },
            new_rows,
            new_row_bytes: row_bytes,
            width: shape.width,
            size_bytes: record.size_bytes,
            drives: &wish.drives,
        };
        let mut books = self.space.borrow().clone();
        let beside = match lay_out(&mut books, &wish) {
            Ok(laid_out) => Some(slabs_beside(&laid_out)),
            Err(NotLaidOut::NoRoom { .. }) => None,
            Err(NotLaidOut::Other(error)) => return Err(error),
        };
        if beside.is_none() || !rehearsal.fits(&books) {
            let free_slabs = wish.drives.iter().map(|&drive| self.space.borrow().free_slabs(drive)).sum();
            return Err(PoolError::NoRoomToConvert {
                pool: manifest.name.clone(),
                volume: record.name.clone(),
                layout: layout_in_words(&shape),
                needed_slabs: rehearsal.needed_rows() * shape.width as u64 + beside.unwrap_or(0),
                free_slabs,
                returned_slabs: part.rows.allocated_rows() * part.rows.width() as u64,
                slab_bytes: manifest.slab_bytes,
            });
        }
        let laid_out = lay_out(&mut self.space.borrow_mut(), &wish).map_err(|error| match error {
            NotLaidOut::Other(error) => error,
            NotLaidOut::NoRoom { .. } => PoolError::Job("there was room a moment ago".to_owned()),
        })?;
        let part = laid_out.part(Id(spec.id), shape);
        note_where_journal_is(&self.news, &manifest, &record.name, &part);
        Ok((part, laid_out))
    }

    /// Makes the new array, and has it recorded.
    async fn begin_conversion(
        &self,
        record: &VolumeRecord,
        part: PartRecord,
    ) -> Result<ArrayHandle, PoolError> {
        let mut planned = self.manifest.borrow().clone();
        if let Some(volume) = planned.volume_by_id_mut(record.id) {
            volume.parts.push(part.clone());
            volume.conversion = Some(Conversion::begun());
        }
        self.commits.check_growth(&planned)?;
        planned.check().map_err(PoolError::Job)?;
        let array = self.create_array(self.array_init(record, &part)).await?;
        let (from, to) = (layout_in_words(&record.parts[0].shape), layout_in_words(&part.shape));
        let text = format!("volume {} is to be converted from {from} to {to}", record.name);
        self.news.event(EventKind::Convert, &text);
        if let Err(error) = self.commit_conversion(record, part.clone()).await {
            self.news.take_back(&text);
            array.call(async |array| array.call_off().await).await;
            return Err(error);
        }
        self.volumes.insert(part.id, array.clone());
        // A drive may have been excluded since the commit.
        leave_out_excluded(&self.manifest.borrow(), &array);
        Ok(array)
    }

    /// Reverses a running conversion, or ends it if nothing was converted yet.
    async fn turn_back(&self, record: &VolumeRecord, io: &VolumeIo, zones: &Zones) -> Result<(), PoolError> {
        let [old, new] = &record.parts[..] else {
            return Err(PoolError::Job("it has one part only".to_owned()));
        };
        self.jobs.until_off(new.id).await;
        // No write is in flight in both arrays, and none will be: what is not recorded as
        // moved counts in the old one.
        let _held = zones.gate.enter(0, u64::MAX).await;
        let come_to = zones.committed.get();
        zones.cursor.set(come_to);
        if come_to == zones.end_bytes() {
            return Err(PoolError::Job(format!(
                "the conversion of volume {} has come to its end",
                record.name
            )));
        }
        let (id, dropped, size_bytes) = (record.id, new.id, record.size_bytes);
        if come_to > 0 {
            self.check_room_back(record, zones, come_to)?;
        }
        let back = layout_in_words(&old.shape);
        let text = match come_to {
            0 => format!("the conversion of volume {} was cancelled: it stays {back}", record.name),
            _ => format!("the conversion of volume {} was cancelled: it goes back to {back}", record.name),
        };
        let time_unix_ms = self.news.unix_ms();
        self.try_commit(None, move |manifest| {
            let Some(volume) = manifest.volume_by_id_mut(id) else {
                return Err(PoolError::Job("the volume was deleted".to_owned()));
            };
            if come_to == 0 {
                volume.parts.retain(|part| part.id != dropped);
                volume.conversion = None;
            } else {
                volume.parts.swap(0, 1);
                let until_offset_bytes = Some(come_to.min(size_bytes.next_multiple_of(MIB)));
                volume.conversion = Some(Conversion { next_offset_bytes: 0, until_offset_bytes });
            }
            manifest.events.push(time_unix_ms, EventKind::Convert, &text);
            manifest.forget_replaced();
            Ok(Change::Commit(()))
        })
        .await?;
        io.turn_back();
        Ok(())
    }

    /// Checks that there is room for a reversed conversion, beside what it gives back on the way.
    fn check_room_back(&self, record: &VolumeRecord, zones: &Zones, come_to: u64) -> Result<(), PoolError> {
        let [target, source] = &record.parts[..] else { return Ok(()) };
        let row_bytes = zones.old.spec().row_data_bytes()?;
        let rows = come_to.div_ceil(row_bytes);
        let written = match record.thin {
            true => zones.new.visit(|new| rows_of_written(new, row_bytes)),
            false => vec![(0, rows)],
        };
        let is_needed = |row: &u64| target.rows.is_hole(*row);
        let needed: Vec<(u64, u64)> = written
            .into_iter()
            .flat_map(|(first, end)| first..end.min(rows))
            .filter(is_needed)
            .map(|row| (row, row + 1))
            .collect();
        let drives = self.drives_for(record.pin);
        let rehearsal = Rehearsal {
            old: &source.rows,
            old_row_bytes: zones.new.spec().row_data_bytes()?,
            needed,
            new_rows: rows,
            new_row_bytes: row_bytes,
            width: target.shape.width,
            size_bytes: come_to,
            drives: &drives,
        };
        let space = self.space.borrow();
        if rehearsal.fits(&space) {
            return Ok(());
        }
        let manifest = self.manifest.borrow();
        Err(PoolError::NoRoomToConvert {
            pool: manifest.name.clone(),
            volume: record.name.clone(),
            layout: layout_in_words(&target.shape),
            needed_slabs: rehearsal.needed_rows() * target.shape.width as u64,
            free_slabs: drives.iter().map(|&drive| space.free_slabs(drive)).sum(),
            returned_slabs: source.rows.allocated_rows() * source.rows.width() as u64,
            slab_bytes: manifest.slab_bytes,
        })
    }

    async fn commit_conversion(&self, record: &VolumeRecord, part: PartRecord) -> Result<(), PoolError> {
        let (id, name) = (record.id, record.name.clone());
        self.try_commit(None, move |manifest| {
            if let Some(lost) = part.drives().find(|drive| !manifest.is_online(*drive)) {
                let drive = manifest.drive(lost).map_or_else(String::new, |drive| drive.path.clone());
                return Err(PoolError::Job(format!(
                    "{drive} failed while the conversion of volume {name} was being begun; the volume stays as it is"
                )));
            }
            let Some(volume) = manifest.volume_by_id_mut(id) else {
                return Err(PoolError::Job(format!("volume {name} is gone")));
            };
            volume.parts.push(part);
            volume.conversion = Some(Conversion::begun());
            Ok(Change::Commit(()))
        })
        .await
    }
}

/// Slabs that a volume takes beside its rows.
fn slabs_beside(laid_out: &LaidOut) -> u64 {
    let map = laid_out.meta.places.len() as u64 * u64::from(laid_out.meta.slabs);
    map + laid_out.journal.iter().map(|place| u64::from(place.slabs)).sum::<u64>()
}

/// Written rows, each of `row_bytes`: first and one past the last of each stretch.
fn rows_of_written(array: &Array, row_bytes: u64) -> Vec<(u64, u64)> {
    let region_bytes = array.region_data_bytes();
    let mut stretches: Vec<(u64, u64)> = Vec::new();
    for region in (0..array.regions()).filter(|&region| !array.holds_nothing(region)) {
        let end_bytes = ((region + 1) * region_bytes).min(array.capacity_bytes());
        let (first, end) = (region * region_bytes / row_bytes, end_bytes.div_ceil(row_bytes));
        match stretches.last_mut() {
            Some(last) if first <= last.1 => last.1 = last.1.max(end),
            _ => stretches.push((first, end)),
        }
    }
    stretches
}
