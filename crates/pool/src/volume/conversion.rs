//! Beginning the conversion of a volume to another layout; the work itself is a job
//! (`jobs/convert.rs`), the path of requests during it is in `volume/io.rs`.
//!
//! The new arrays are made with their maps and journals, without rows, before the manifest speaks
//! of them: what cannot be done is refused before anything is touched. Rows are given to them as
//! they need them, and come back from the old ones as these are left behind. Faults expected:
//! layouts that do not fit the drives, too little room, drives that fail while it begins.

use std::ops::Range;
use std::slice::from_ref;

use stripewise_layout::{LayoutError, LayoutSpec, Shape, Slicing};

use crate::error::{LogTask, PoolError};
use crate::manifest::events::EventKind;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::{Conversion, PartRecord, VolumeRecord};
use crate::space::new_slices::{LaidOutParts, lay_out_parts};
use crate::space::new_volume::{LaidOut, NotLaidOut, Wish};
use crate::superblock::commit::{Change, leave_out_excluded};
use crate::volume::conversion_room::{Rehearsal, RowsOf, rows_of};
use crate::volume::io::VolumeIo;
use crate::volume::make::{call_off, note_where_journal_is};
use crate::volume::sliced::Sliced;
use crate::volume::zones::Zones;
use crate::{Inner, MIB, Pool};
use stripewise_array::rows::RowTable;
use stripewise_array::{ArrayError, ArraySpec};

impl Pool {
    /// Begins to convert a volume to another layout; done when jobs run, while everything goes on.
    /// What is left out of `layout` is chosen as for a new volume, but for the interleave, which
    /// stays.
    pub async fn convert_volume(&self, name: &str, layout: LayoutSpec) -> Result<(), PoolError> {
        self.convert(name, Some(layout), None).await
    }

    /// As [`Self::convert_volume`], also to another number of slices; what is left out stays as it
    /// is.
    pub async fn convert(
        &self,
        name: &str,
        layout: Option<LayoutSpec>,
        slices: Option<u32>,
    ) -> Result<(), PoolError> {
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
        let wanted = slices.unwrap_or(record.parts.len() as u32);
        if shape == old_shape && wanted == record.parts.len() as u32 {
            let layout = group_in_words(&record.parts);
            return Err(PoolError::SameLayout { pool: inner.name(), volume: name.to_owned(), layout });
        }
        let (parts, laid_out) = inner.plan_conversion(&record, &volume.in_place(), shape, wanted, drives)?;
        match inner.begin_conversion(&record, parts).await {
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
    /// Plans [`Self::convert`]; changes nothing.
    pub fn plan_conversion(&self, name: &str, layout: LayoutSpec) -> Result<ConversionPlan, PoolError> {
        let volume = self.volume(name)?;
        self.refuse_for_log(name, LogTask::Convert)?;
        let inner = &self.0;
        let manifest = inner.manifest.borrow();
        let Some(record) = manifest.volume(name) else {
            return Err(PoolError::Job(format!("volume {name} is gone")));
        };
        let from = volume.in_place().first().spec().shape;
        let to = inner.converted_shape(Some(layout), &from, &inner.drives_for(record.pin))?;
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
            return Err(PoolError::Job(format!("volume {name} is not being converted")));
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

/// The layout of a group of parts in words.
pub(crate) fn group_in_words(group: &[PartRecord]) -> String {
    let layout = group.first().map_or_else(String::new, |part| layout_in_words(&part.shape));
    if group.len() > 1 { format!("{layout}, {} slices", group.len()) } else { layout }
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
    fn converted_shape(
        &self,
        layout: Option<LayoutSpec>,
        old: &Shape,
        drives: &[u32],
    ) -> Result<Shape, LayoutError> {
        let Some(layout) = layout else { return Ok(*old) };
        let interleave_bytes = layout.interleave_bytes.or(Some(old.interleave_bytes));
        let members = drives.iter().filter_map(|&number| self.working_member(number));
        let dearest_bytes = members.map(|member| member.info().gap_bytes).max().unwrap_or(0);
        LayoutSpec { interleave_bytes, ..layout }.on_drives(dearest_bytes).0.resolve(drives.len())
    }

    /// Proves that there is room, and takes what the new array needs beside its rows.
    fn plan_conversion(
        &self,
        record: &VolumeRecord,
        old: &Sliced,
        shape: Shape,
        slices: u32,
        drives: Vec<u32>,
    ) -> Result<(Vec<PartRecord>, LaidOutParts), PoolError> {
        let manifest = self.manifest.borrow();
        let spec = ArraySpec { id: self.ids.borrow_mut().next().0, shape, slab_bytes: manifest.slab_bytes };
        let with_journal = record.write_back || record.checksums || shape.parity_units() > 0;
        let size_bytes = Some(record.size_bytes);
        // Without rows for now.
        let grain = self.tuning().map_grain;
        let is_seek_bound = self.drives.are_seek_bound(&drives);
        let slicing = self.slicing(&record.name, slices, &spec, size_bytes, is_seek_bound)?;
        let wish = Wish { spec: &spec, size_bytes, thin: true, with_journal, grain, is_seek_bound, drives };
        let row_bytes = spec.row_data_bytes()?;
        let new_slicing = slicing.unwrap_or(Slicing::WHOLE);
        let needed = match record.thin {
            true => rows_of(&written(old, record.size_bytes), new_slicing, row_bytes),
            false => rows_of(from_ref(&(0..record.size_bytes)), new_slicing, row_bytes),
        };
        let rehearsal = Rehearsal {
            old: old_rows(&record.parts, old)?,
            new: RowsOf { slicing: new_slicing, row_bytes, rows: needed.iter().collect() },
            width: shape.width,
            size_bytes: record.size_bytes,
            drives: &wish.drives,
        };
        let mut books = self.space.borrow().clone();
        let beside = match lay_out_parts(&mut books, &wish, slicing) {
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
                returned_slabs: returned_slabs(&record.parts),
                slab_bytes: manifest.slab_bytes,
            });
        }
        let laid_out = lay_out_parts(&mut self.space.borrow_mut(), &wish, slicing);
        let laid_out = laid_out.map_err(|error| match error {
            NotLaidOut::Other(error) => error,
            NotLaidOut::NoRoom { .. } => PoolError::Job("there was room a moment ago".to_owned()),
        })?;
        let parts = self.parts_of(&laid_out, Id(spec.id), &spec, slicing);
        note_where_journal_is(&self.news, &manifest, &record.name, &parts[0]);
        Ok((parts, laid_out))
    }

    /// Makes the new arrays, and has them recorded.
    async fn begin_conversion(
        &self,
        record: &VolumeRecord,
        parts: Vec<PartRecord>,
    ) -> Result<Sliced, PoolError> {
        let mut planned = self.manifest.borrow().clone();
        if let Some(volume) = planned.volume_by_id_mut(record.id) {
            volume.parts.extend(parts.iter().cloned());
            volume.conversion = Some(Conversion::begun());
        }
        self.commits.check_growth(&planned)?;
        planned.check().map_err(PoolError::Job)?;
        let arrays = self.create_arrays(record, &parts).await?;
        let (from, to) = (group_in_words(&record.parts), group_in_words(&parts));
        let text = format!("volume {} is to be converted from {from} to {to}", record.name);
        self.news.event(EventKind::Convert, &text);
        if let Err(error) = self.commit_conversion(record, parts.clone()).await {
            self.news.take_back(&text);
            call_off(&arrays).await;
            return Err(error);
        }
        for (part, array) in parts.iter().zip(&arrays) {
            self.volumes.insert(part.id, array.clone());
            // A drive may have been excluded since the commit.
            leave_out_excluded(&self.manifest.borrow(), array);
        }
        Ok(Sliced::of_group(&parts, arrays, record.size_bytes))
    }

    /// Reverses a running conversion, or ends it if nothing was converted yet.
    async fn turn_back(&self, record: &VolumeRecord, io: &VolumeIo, zones: &Zones) -> Result<(), PoolError> {
        let groups: Vec<&[PartRecord]> = record.groups().collect();
        let [old, new] = groups[..] else {
            return Err(PoolError::Job("it has one layout only".to_owned()));
        };
        for part in new {
            self.jobs.until_off(part.id).await;
        }
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
        let (id, kept, size_bytes) = (record.id, old.len(), record.size_bytes);
        if come_to > 0 {
            self.check_room_back(record, (old, new), zones, come_to)?;
        }
        let back = group_in_words(old);
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
                volume.parts.truncate(kept);
                volume.conversion = None;
            } else {
                volume.parts.rotate_left(kept);
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
    fn check_room_back(
        &self,
        record: &VolumeRecord,
        (target, source): (&[PartRecord], &[PartRecord]),
        zones: &Zones,
        come_to: u64,
    ) -> Result<(), PoolError> {
        let row_bytes = zones.old.first().spec().row_data_bytes()?;
        let width = target.first().map_or(1, |part| part.shape.width);
        let slicing = zones.old.slicing();
        let written = match record.thin {
            true => rows_of(&written(&zones.new, come_to), slicing, row_bytes),
            false => rows_of(from_ref(&(0..come_to)), slicing, row_bytes),
        };
        let holes = |(part, stretches): (&PartRecord, Vec<(u64, u64)>)| -> Vec<(u64, u64)> {
            let rows = stretches.into_iter().flat_map(|(first, end)| first..end);
            rows.filter(|row| part.rows.is_hole(*row)).map(|row| (row, row + 1)).collect()
        };
        let needed: Vec<Vec<(u64, u64)>> = target.iter().zip(written).map(holes).collect();
        let drives = self.drives_for(record.pin);
        let rehearsal = Rehearsal {
            old: old_rows(source, &zones.new)?,
            new: RowsOf { slicing, row_bytes, rows: needed.iter().collect() },
            width,
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
            layout: group_in_words(target),
            needed_slabs: rehearsal.needed_rows() * width as u64,
            free_slabs: drives.iter().map(|&drive| space.free_slabs(drive)).sum(),
            returned_slabs: returned_slabs(source),
            slab_bytes: manifest.slab_bytes,
        })
    }

    async fn commit_conversion(
        &self,
        record: &VolumeRecord,
        parts: Vec<PartRecord>,
    ) -> Result<(), PoolError> {
        let (id, name) = (record.id, record.name.clone());
        self.try_commit(None, move |manifest| {
            let drives = parts.iter().flat_map(PartRecord::drives);
            if let Some(lost) = drives.into_iter().find(|drive| !manifest.is_online(*drive)) {
                let drive = manifest.drive(lost).map_or_else(String::new, |drive| drive.path.clone());
                return Err(PoolError::Job(format!(
                    "{drive} failed while the conversion of volume {name} was being begun; the volume stays as it is"
                )));
            }
            let Some(volume) = manifest.volume_by_id_mut(id) else {
                return Err(PoolError::Job(format!("volume {name} is gone")));
            };
            volume.parts.extend(parts);
            volume.conversion = Some(Conversion::begun());
            Ok(Change::Commit(()))
        })
        .await
    }
}

/// Slabs that a volume takes beside its rows.
fn slabs_beside(laid_out: &LaidOutParts) -> u64 {
    let of_part = |part: &LaidOut| {
        let map = part.meta.places.len() as u64 * u64::from(part.meta.slabs);
        map + part.journal.iter().map(|place| u64::from(place.slabs)).sum::<u64>()
    };
    laid_out.parts.iter().map(of_part).sum()
}

/// Slabs of rows that parts give back.
fn returned_slabs(parts: &[PartRecord]) -> u64 {
    parts.iter().map(|part| part.rows.allocated_rows() * part.rows.width() as u64).sum()
}

/// Rows that are left behind.
fn old_rows<'a>(parts: &'a [PartRecord], arrays: &Sliced) -> Result<RowsOf<'a, RowTable>, PoolError> {
    let row_bytes = arrays.first().spec().row_data_bytes()?;
    let rows = parts.iter().map(|part| &part.rows).collect();
    Ok(RowsOf { slicing: arrays.slicing(), row_bytes, rows })
}

/// Written stretches of the first bytes of a volume.
fn written(arrays: &Sliced, bytes: u64) -> Vec<Range<u64>> {
    let stretches = arrays.stretches(0, bytes).into_iter().filter(|stretch| stretch.is_written);
    stretches.map(|stretch| stretch.start..stretch.end).collect()
}
