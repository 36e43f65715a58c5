//! Converting volumes to other layouts, from their beginning to their end, while everything goes on
//! (`volume/io.rs`).
//!
//! A window of whole stripes is kept from writers, read from the old array, written to the new one,
//! and then written in both. Now and then the new array is flushed and the frontier recorded: what
//! is below it counts in the new array only, and the old rows that lie wholly below it give their
//! slabs back, so that a conversion needs little room beside what the layouts differ by. What was
//! never written stays so. A block that no drive has any more is recorded as lost in the new array
//! too.
//!
//! The next process to open it goes on from the frontier that is recorded; the new array may hold
//! anything beyond it, and all of it is written again. A rebuild of the volume goes first. Faults
//! expected: drives fail, blocks cannot be read, there is no room any more (then the
//! volume stays as it is, part old, part new, until there is), the pool is closed, the volume is
//! deleted. Memory: a window, a few MiB.

use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{Buffer, DriveErrorKind};

use crate::error::PoolError;
use crate::jobs::wait::Wait;
use crate::jobs::{Parts, Progress, SECOND_NS, watched};
use crate::manifest::events::EventKind;
use crate::manifest::ids::{Id, VolumeId};
use crate::manifest::volume_record::PartRecord;
use crate::superblock::commit::Change;
use crate::volume::conversion::group_in_words;
use crate::volume::sliced::Sliced;
use crate::volume::sliced_copy::Stretch;
use crate::volume::volume_array::VolumeArray;
use crate::volume::zones::Zones;
use crate::{BLOCK_BYTES, Inner};
use stripewise_array::lock_order;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::{Array, ArrayError, ArrayHandle, BlockArray, Class};

/// Why a conversion does not go on.
enum Stop {
    /// The pool is being closed, or the volume is gone.
    Ended,
    /// There is no room in the pool for more of the new layout.
    Full(String),
    /// Something else is in the way.
    Waits(String),
}

impl From<ArrayError> for Stop {
    fn from(error: ArrayError) -> Self {
        match error {
            ArrayError::Closed => Self::Ended,
            ArrayError::NoSpace(why) => Self::Full(why),
            error => Self::Waits(error.to_string()),
        }
    }
}

impl From<PoolError> for Stop {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Closed { .. } => Self::Ended,
            PoolError::Full { .. } | PoolError::RowNeedsDrives { .. } => Self::Full(error.to_string()),
            PoolError::Array(error) => error.into(),
            error => Self::Waits(error.to_string()),
        }
    }
}

/// A volume that is being converted.
struct Converting {
    volume: VolumeId,
    name: String,
    thin: bool,
    old: Vec<Id>,
    new: Vec<Id>,
}

impl Converting {
    /// The parts of both layouts.
    fn parts(&self) -> impl Iterator<Item = Id> {
        self.old.iter().chain(&self.new).copied()
    }
}

impl Inner {
    /// Works on conversions until none is left that nothing stands in the way of.
    pub(crate) async fn run_conversions(&self) {
        let lane = &self.jobs.converting;
        while let Some(converting) = self.next_conversion() {
            let result = self.convert(&converting).await;
            self.jobs.pause(lane);
            let (why, is_for_space) = match result {
                Ok(()) => continue,
                Err(Stop::Ended) if self.lifecycle.is_closed() || !self.may_go_on(&converting) => continue,
                Err(Stop::Ended) => ("its arrays are closed".to_owned(), false),
                Err(Stop::Full(why)) => (format!("there is no room for more of it: {why}"), true),
                Err(Stop::Waits(why)) => (why, false),
            };
            let why = format!("the conversion of volume {} waits: {why}", converting.name);
            lane.stall(Some((converting.new[0], None)), Wait { why, is_for_space });
        }
        self.jobs.end(lane);
        lane.running.set(false);
        self.jobs.changed.notify_all();
    }

    fn next_conversion(&self) -> Option<Converting> {
        if self.lifecycle.is_closed() {
            return None;
        }
        let manifest = self.manifest.borrow();
        manifest.volumes.iter().filter(|volume| volume.conversion.is_some()).find_map(|volume| {
            let groups: Vec<&[PartRecord]> = volume.groups().collect();
            let [old, new] = groups[..] else { return None };
            let ids = |group: &[PartRecord]| group.iter().map(|part| part.id).collect::<Vec<Id>>();
            let may = self.volumes.is_open(volume)
                && !self.volumes.is_conversion_cancelled(volume)
                && !self.jobs.converting.is_stalled(Some((new[0].id, None)));
            may.then(|| Converting {
                volume: volume.id,
                name: volume.name.clone(),
                thin: volume.thin,
                old: ids(old),
                new: ids(new),
            })
        })
    }

    /// True if the volume is still being converted from and to these arrays, and not being
    /// cancelled.
    fn may_go_on(&self, converting: &Converting) -> bool {
        let manifest = self.manifest.borrow();
        let Some(volume) = manifest.volume_by_id(converting.volume) else { return false };
        let is_same = volume.last_group().first().is_some_and(|part| part.id == converting.new[0]);
        volume.conversion.is_some() && is_same && !self.volumes.is_conversion_cancelled(volume)
    }

    async fn convert(&self, converting: &Converting) -> Result<(), Stop> {
        let record = self.manifest.borrow().volume_by_id(converting.volume).cloned().ok_or(Stop::Ended)?;
        let io = self.volumes.io(&record).ok_or(Stop::Ended)?;
        if let Some(zones) = io.zones() {
            let progress: Rc<Progress> = Rc::default();
            progress.done_bytes.set(zones.cursor.get() as f64);
            progress.total_bytes.set(zones.end_bytes() as f64);
            let parts: Parts = converting.parts().map(|part| (part, progress.clone())).collect();
            self.jobs.begin(&self.jobs.converting, parts.clone());
            io.until_ranges_are_held(&self.context).await;
            let nothing = || std::future::ready(Ok(()));
            let copying = Copying { pool: self, converting, zones, progress, parts };
            watched(&self.context, &copying.parts, copying.run(), SECOND_NS, nothing).await?;
        }
        self.end_conversion(converting).await
    }

    /// Everything is in the new array: the old one goes.
    async fn end_conversion(&self, converting: &Converting) -> Result<(), Stop> {
        // Deletion of the volume waits for this lane to be off it.
        self.jobs.pause(&self.jobs.converting);
        let _alone = self.lifecycle.turn().await;
        let record = self.manifest.borrow().volume_by_id(converting.volume).cloned();
        let (Some(record), false) = (record, self.lifecycle.is_closed()) else { return Err(Stop::Ended) };
        let io = self.volumes.io(&record).ok_or(Stop::Ended)?;
        io.end();
        let VolumeArray::InPlace(new) = io.array() else { return Err(Stop::Ended) };
        let groups: Vec<String> = record.groups().map(group_in_words).collect();
        let [from, to] = &groups[..] else { return Err(Stop::Ended) };
        let is_back = record.conversion.is_some_and(|conversion| conversion.until_offset_bytes.is_some());
        let mut text = match is_back {
            true => format!("volume {} is {to} again", record.name),
            false => format!("volume {} was converted from {from} to {to}", record.name),
        };
        let lost = new.bad_block_count();
        if lost > 0 {
            text += &format!("; {lost} blocks of 4 KiB are lost");
        }
        let (volume, old, now_ms) = (converting.volume, converting.old.clone(), self.news.unix_ms());
        let ended = self.try_commit(None, move |manifest| {
            let Some(volume) = manifest.volume_by_id_mut(volume) else { return Ok(Change::Nothing(())) };
            volume.parts.retain(|part| !old.contains(&part.id));
            volume.conversion = None;
            let id = volume.id;
            // Regions are others now.
            if let Some(scrub) = &mut manifest.scrub
                && scrub.volumes.first() == Some(&id)
            {
                scrub.next_region = 0;
            }
            manifest.events.push(now_ms, EventKind::Convert, &text);
            manifest.forget_replaced();
            Ok(Change::Commit(()))
        });
        ended.await?;
        // A thin volume keeps no rows in which nothing was written.
        self.release_unused(converting.volume, &new, 0, new.capacity_bytes()).await;
        Ok(())
    }
}

/// A running conversion.
struct Copying<'a> {
    pool: &'a Inner,
    converting: &'a Converting,
    zones: Rc<Zones>,
    progress: Rc<Progress>,
    parts: Parts,
}

impl Copying<'_> {
    /// Copies all that is left.
    async fn run(&self) -> Result<(), Stop> {
        let (pool, zones) = (self.pool, &*self.zones);
        let row_bytes = |arrays: &Sliced| arrays.first().spec().row_data_bytes();
        let row_bytes = row_bytes(&zones.old)?.max(row_bytes(&zones.new)?);
        let most_unrecorded = row_bytes.min(pool.tuning().convert_unrecorded_bytes);
        let mut recorded_ns = pool.context.now_ns();
        // An interruption may have left rows to release.
        self.release_left_behind().await?;
        while zones.committed.get() < zones.end_bytes() {
            self.until_whole().await;
            if pool.lifecycle.is_closed() || zones.is_cancelled.get() {
                return Err(Stop::Ended);
            }
            if zones.old.is_protected() || zones.new.is_protected() {
                return Err(ArrayError::Protected.into());
            }
            let copied = self.copy_window().await;
            self.progress.done_bytes.set(zones.cursor.get() as f64);
            let unrecorded = zones.cursor.get().saturating_sub(zones.committed.get());
            let is_full = match copied {
                Ok(()) => false,
                // Slabs that were given up may be in use for longer than writes of clients wait for
                // them.
                Err(Stop::Full(_)) if pool.freed.is_reclaiming() => {
                    // Those of a deleted volume come back when no job is at it: it may be this
                    // volume.
                    pool.jobs.pause(&pool.jobs.converting);
                    pool.freed.until_reclaimed().await;
                    if pool.lifecycle.is_closed() || !pool.may_go_on(self.converting) {
                        return Err(Stop::Ended);
                    }
                    pool.jobs.begin(&pool.jobs.converting, self.parts.clone());
                    continue;
                }
                // Old rows that come back may be all that it takes.
                Err(Stop::Full(_)) if unrecorded > 0 => true,
                Err(stop) => return Err(stop),
            };
            let is_late = pool.context.now_ns() - recorded_ns >= pool.tuning().convert_record_ns;
            let is_all = zones.cursor.get() == zones.end_bytes();
            if unrecorded > 0 && (is_full || is_late || is_all || unrecorded >= most_unrecorded) {
                self.move_frontier().await?;
                self.release_left_behind().await?;
                recorded_ns = pool.context.now_ns();
            }
        }
        // Reads that began when the old array had the end of the volume.
        zones.old.drain_reads().await;
        Ok(())
    }

    /// Waits until no rebuild of the volume is running.
    async fn until_whole(&self) {
        let (pool, converting) = (self.pool, self.converting);
        let rebuilding = &pool.jobs.rebuilding;
        while !pool.lifecycle.is_closed() && converting.parts().any(|part| rebuilding.is_at(part)) {
            pool.jobs.changed.wait().await;
        }
    }

    /// Copies what is next, and moves the cursor behind it.
    async fn copy_window(&self) -> Result<(), Stop> {
        let (converting, zones) = (self.converting, &*self.zones);
        let start = zones.cursor.get();
        let end =
            window_end(&zones.new, start, self.pool.tuning().convert_window_bytes).min(zones.end_bytes());
        if start == end {
            return Ok(());
        }
        let _alone = zones.gate.enter(start, end).await;
        if zones.cursor.get() != start {
            // A concurrent write refused, and took it back.
            return Ok(());
        }
        for Stretch { start: from, end: to, is_written } in zones.old.stretches(start, end) {
            if !converting.thin {
                self.give_rows(from, to).await?;
            }
            if is_written {
                self.copy(from, to).await?;
            } else if !mutation::is_chosen(Mutation::StaleBeyondFrontier) {
                // Nothing is there as a rule; or what was copied before the conversion was
                // interrupted.
                zones.new.write_zeroes(from, to - from).await?;
                zones.new.repair_dead(from..to);
            }
        }
        if zones.cursor.get() == start {
            zones.cursor.set(end);
        }
        Ok(())
    }

    /// Allocates slabs for a range of the new arrays. A volume that is not thin keeps them however
    /// short space becomes.
    async fn give_rows(&self, from: u64, to: u64) -> Result<(), Stop> {
        for (new, range) in self.zones.new.ranges(from, to - from) {
            let row_bytes = new.spec().row_data_bytes()?;
            for row in range.start / row_bytes..range.end.div_ceil(row_bytes) {
                if new.visit(|new| new.rows().is_hole(row)) {
                    self.pool.allocate_rows(Id(new.spec().id), row, 1).await?;
                }
            }
        }
        Ok(())
    }

    async fn copy(&self, start: u64, end: u64) -> Result<(), Stop> {
        let mut pieces = Vec::new();
        let mut at = start;
        while at < end {
            let to = window_end(&self.zones.new, at, self.pool.tuning().convert_piece_bytes).min(end);
            pieces.push(self.copy_piece(at, to));
            at = to;
        }
        join_all(pieces).await.into_iter().collect()
    }

    async fn copy_piece(&self, start: u64, end: u64) -> Result<(), Stop> {
        let zones = &self.zones;
        match zones.old.read_as(Class::Background, start, (end - start) as usize).await {
            Ok(data) if self.converting.thin && is_zeros(&data) => {
                // The range known as written exceeds the data written; a thin volume takes no space
                // for the rest.
                zones.new.write_zeroes(start, end - start).await?;
                zones.new.repair_dead(start..end);
                Ok(())
            }
            Ok(data) => Ok(zones.new.write_as(Class::Background, start, data).await?),
            Err(error) if is_loss(&error) => self.copy_blocks(start, end).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Copies block by block; those that no drive has any more are lost in the new array too.
    async fn copy_blocks(&self, start: u64, end: u64) -> Result<(), Stop> {
        let zones = &self.zones;
        let known = zones.old.dead_blocks();
        let mut lost = Vec::new();
        let mut at = start;
        while at < end {
            let length = BLOCK_BYTES.min(end - at);
            match zones.old.read_as(Class::Background, at, length as usize).await {
                Ok(data) => zones.new.write_as(Class::Background, at, data).await?,
                Err(error) if is_loss(&error) => {
                    let is_known = known.contains(&(at / BLOCK_BYTES));
                    if !is_known && zones.old.may_come_back() {
                        // A drive that is out may have it, and may come back.
                        return Err(Stop::Waits(format!(
                            "the block at byte {at} cannot be read while drives of the volume are missing or not rebuilt \
                             ({error}); bring them back, or replace them"
                        )));
                    }
                    lost.push(at / BLOCK_BYTES);
                }
                Err(error) => return Err(error.into()),
            }
            at += length;
        }
        Ok(zones.new.note_dead_blocks(&lost).await?)
    }

    /// Makes what was copied durable, and records that from now on it is the new array that has it.
    async fn move_frontier(&self) -> Result<(), Stop> {
        let (converting, zones) = (self.converting, &self.zones);
        let is_flushed = !mutation::is_chosen(Mutation::FrontierBeforeFlush);
        if is_flushed {
            zones.new.flush_internally().await?;
        }
        let from = zones.committed.get();
        // No write goes to both arrays while the current one changes.
        let _alone = zones.gate.enter(from, zones.cursor.get()).await;
        let to = zones.cursor.get();
        if to <= from {
            return Ok(());
        }
        if is_flushed {
            zones.new.flush_internally().await?;
        }
        let losses = zones.losses.get();
        if zones.new.has_refused_since(losses) {
            // A drive that the new array cannot do without refused a flush, whichever request met
            // it: what was copied is copied again.
            zones.losses.set(zones.new.refused_flushes());
            zones.cursor.set(from);
            return Ok(());
        }
        let (volume, arrays) = (converting.volume, zones.new.clone());
        let recorded = self.pool.try_commit(None, move |manifest| {
            let Some(volume) = manifest.volume_by_id_mut(volume) else {
                return Err(PoolError::Job("the volume was deleted".to_owned()));
            };
            for array in arrays.handles() {
                let Some(record) = volume.part(Id(array.spec().id)) else {
                    return Err(PoolError::Job("the conversion has ended".to_owned()));
                };
                if !record.dead.has_all(&array.visit(Array::dead_blocks_to_record)) {
                    return Err(PoolError::Job(
                        "more blocks cannot be read than can be recorded as lost".to_owned(),
                    ));
                }
            }
            if let Some(conversion) = &mut volume.conversion {
                conversion.next_offset_bytes = to;
            }
            Ok(Change::Commit(()))
        });
        recorded.await?;
        zones.committed.set(to);
        Ok(())
    }

    /// Gives back the slabs of old rows that lie wholly below the frontier. Not those of the last:
    /// they go with the array.
    async fn release_left_behind(&self) -> Result<(), Stop> {
        let zones = &self.zones;
        let (from, below) = (zones.released_below.get(), zones.committed.get());
        if below == zones.end_bytes() {
            return Ok(());
        }
        for (slice, old) in zones.old.handles().iter().enumerate() {
            let slicing = zones.old.slicing();
            let (from, to) = (slicing.bytes_below(slice, from), slicing.bytes_below(slice, below));
            let row_bytes = old.spec().row_data_bytes()?;
            self.release_rows_between(old, from / row_bytes, to / row_bytes).await?;
            old.visit(|old| old.forget_dead_below(to));
        }
        zones.released_below.set(below);
        Ok(())
    }

    async fn release_rows_between(&self, old: &ArrayHandle, mut row: u64, end: u64) -> Result<(), Stop> {
        let blocks_per_slab = old.spec().slab_bytes / BLOCK_BYTES;
        while row < end {
            let to = (row + self.pool.tuning().released_rows).min(end);
            let has_slabs = old.visit(|old| {
                let rows = old.rows();
                (row..to).any(|row| !rows.is_hole(row))
            });
            if has_slabs {
                // Reads that began while these rows counted may still use them.
                old.call(async |old| old.drain_reads().await).await;
                lock_order::scope(self.release_old_rows(old, row, to)).await?;
            }
            old.visit(|old| old.forget_lost_below(to * blocks_per_slab));
            row = to;
        }
        Ok(())
    }

    async fn release_old_rows(&self, old: &ArrayHandle, first: u64, end: u64) -> Result<(), Stop> {
        let (part, _held) = (Id(old.spec().id), old.clear_rows(first..end).await?);
        let released = self.pool.try_commit(None, move |manifest| {
            let Some(record) = manifest.part_mut(part) else { return Ok(Change::Nothing(())) };
            let end = end.min(record.rows.rows());
            if first < end {
                record.rows.clear(first, end - first);
            }
            Ok(Change::Commit(()))
        });
        Ok(released.await?)
    }
}

/// End of a window of about the given size: at the end of a stripe, so that stripes are written
/// whole.
fn window_end(array: &Sliced, start: u64, bytes: u64) -> u64 {
    let stripe_bytes = array.geometry().stripe_data_bytes();
    let window = (bytes / stripe_bytes).max(1) * stripe_bytes;
    ((start / window + 1) * window).min(array.capacity_bytes())
}

fn is_zeros(data: &Buffer) -> bool {
    data.with(|bytes| bytes.iter().all(|byte| *byte == 0)).unwrap_or(false)
}

/// True if an error means that the data is lost, not just unavailable now.
fn is_loss(error: &ArrayError) -> bool {
    match error {
        ArrayError::Lost { .. } => true,
        ArrayError::Drive(error) => error.kind == DriveErrorKind::Medium,
        _ => false,
    }
}
