//! Validation of a manifest: references must resolve, slabs must lie within their drives and be
//! used once. Expected faults: any content, since a checksum excludes decay but not malice. The
//! time is proportional to the number of runs (times its logarithm), however many rows they have,
//! and no sum overflows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::care::MAX_TAKEOVERS;
use crate::manifest::format::{MAX_DRIVE_RECORDS, MAX_FORMER, MAX_ROWS, MAX_VOLUMES, Manifest, check_name};
use crate::manifest::snapshot_schedule::MOST_KEPT;
use crate::manifest::volume_record::{LogRecord, PartRecord, RESERVE_PERCENT, VolumeRecord};
use crate::space::addresses::{MAX_DRIVE_BYTES, is_slab_size};
use crate::superblock::block_bytes::MAX_LOST_BYTES;
use crate::{BLOCK_BYTES, MIB, REBUILD_LATENCY_MS};
use stripewise_array::ArrayError;
use stripewise_array::rows::{Run, check_block};
use stripewise_array::tuning::MapGrain;
use stripewise_array::{BlockSet, SPAN_BLOCKS};

/// No volume is larger; keeps sums from overflowing.
const MAX_VOLUME_BYTES: u64 = 1 << 60;
/// Copies of a map, and areas of a journal, that a part can have.
const MAX_PLACES: usize = 255;

/// Slabs in use: drive, first, one past the last.
type Used = Vec<(u32, u32, u32)>;

impl Manifest {
    /// Validates the manifest; the error names the first inconsistency.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        self.check_history()?;
        if self.drives.len() > MAX_DRIVE_RECORDS
            || self.volume_names().len() > MAX_VOLUMES
            || self.former.len() > MAX_FORMER
            || self.care.takeovers.len() > MAX_TAKEOVERS
        {
            return Err("too many drives or volumes".to_owned());
        }
        if self.scrub.as_ref().is_some_and(|scrub| !scrub.is_bounded()) {
            return Err("a scrub has found more than it can".to_owned());
        }
        if !(1..=100).contains(&self.rebuild_priority_percent)
            || !(1..=100).contains(&self.settings.space_warning_percent)
        {
            return Err("a percentage is none".to_owned());
        }
        if self.settings.rebuild_latency_ms.is_some_and(|ms| !REBUILD_LATENCY_MS.contains(&ms)) {
            return Err("a bound of latencies is out of range".to_owned());
        }
        if !is_slab_size(self.slab_bytes) {
            return Err(format!("slabs cannot have {} bytes", self.slab_bytes));
        }
        if let Some(host) = &self.host {
            host.check()?;
        }
        self.check_drives()?;
        self.check_volumes()
    }

    /// Validates the slab maps that differ from those of `before`. An invalid map must not be
    /// recorded, since no drive that has it could be read any more.
    pub(crate) fn check_changed_rows(&self, before: &Self) -> Result<(), String> {
        let known: BTreeMap<_, _> = before.parts().map(|part| (part.id, part)).collect();
        for volume in &self.volumes {
            for part in &volume.parts {
                let old = known.get(&part.id).map_or(&[][..], |old| old.rows.blocks());
                for (index, block) in part.rows.blocks().iter().enumerate() {
                    if old.get(index).is_some_and(|old| Arc::ptr_eq(old, block)) {
                        continue;
                    }
                    check_block(block, index as u64, part.shape.width, part.rows.rows())
                        .map_err(|why| format!("volume {}: {why}", volume.name))?;
                }
            }
        }
        Ok(())
    }

    fn check_drives(&self) -> Result<(), String> {
        let mut ids = BTreeSet::new();
        let mut next = 0;
        for drive in &self.drives {
            let fits = drive.number >= next
                && drive.number < self.next_number
                && drive.capacity_bytes <= MAX_DRIVE_BYTES
                && ids.insert(drive.id);
            if !fits {
                return Err(format!("drive {} is impossible", drive.id));
            }
            next = drive.number + 1;
        }
        let mut successors = BTreeSet::new();
        for drive in &self.drives {
            let Some(successor) = drive.successor else { continue };
            let fits = self.drive(successor).is_some_and(|other| other.successor.is_none())
                && successor != drive.number
                && successors.insert(successor);
            if !fits {
                return Err(format!("drive {} is replaced in an impossible way", drive.id));
            }
        }
        Ok(())
    }

    fn check_volumes(&self) -> Result<(), String> {
        if self.lost_bytes() > MAX_LOST_BYTES {
            return Err("too many lost blocks".to_owned());
        }
        let rows = self.parts().fold(0u64, |sum, part| sum.saturating_add(part.rows.rows()));
        if rows > MAX_ROWS {
            return Err("too many rows".to_owned());
        }
        let slabs: BTreeMap<u32, u32> =
            self.drives.iter().map(|drive| (drive.number, drive.slab_count(self.slab_bytes))).collect();
        let online: BTreeSet<u32> =
            self.drives.iter().filter(|drive| drive.is_online()).map(|drive| drive.number).collect();
        let is_out = |number: u32| !online.contains(&number);
        let (mut names, mut ids, mut parts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut used: Used = Vec::new();
        for volume in &self.volumes {
            let name = &volume.name;
            check_name(name)?;
            if !names.insert(name) || !ids.insert(volume.id) {
                return Err(format!("volume {name} is there twice"));
            }
            check_attributes(volume)?;
            check_received(volume)?;
            check_clones(volume)?;
            if !volume.clones.iter().all(|clone| names.insert(&clone.name) && ids.insert(clone.id)) {
                return Err(format!("a clone of volume {name} is there twice"));
            }
            volume.check_slices()?;
            for part in &volume.parts {
                self.check_room(volume, part).map_err(|why| format!("volume {name}: {why}"))?;
                if !parts.insert(part.id) {
                    return Err(format!("volume {name} has an array that is there twice"));
                }
                self.check_part(part, &mut used).map_err(|why| format!("volume {name}: {why}"))?;
            }
            if volume.parts.iter().any(|part| part.names_current(is_out)) && volume.survives(is_out) {
                return Err(format!("volume {name} takes drives for current that are left out"));
            }
        }
        used.sort_unstable();
        if let Some((drive, ..)) =
            used.iter().find(|(drive, _, end)| slabs.get(drive).is_none_or(|slabs| end > slabs))
        {
            return Err(format!("slabs that drive {drive} does not have are in use"));
        }
        match used.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].1) {
            Some(pair) => Err(format!("slab {} of drive {} is used twice", pair[1].1, pair[1].0)),
            None => Ok(()),
        }
    }

    /// Checks that the volume's size fits its rows, and that its region map fits the slabs that it
    /// lies on: memory is allocated for as many regions as the size requires.
    fn check_room(&self, volume: &VolumeRecord, part: &PartRecord) -> Result<(), String> {
        part.shape.check().map_err(|error| error.to_string())?;
        if let Some(log) = &part.log {
            return check_log_room(volume, part, log, self.slab_bytes);
        }
        let (spec, text) = (part.spec(self.slab_bytes), |error: ArrayError| error.to_string());
        let room_bytes = spec.row_data_bytes().map_err(text)?.saturating_mul(part.rows.rows());
        let size_bytes = part.bytes_of(volume.size_bytes);
        if size_bytes > room_bytes {
            return Err(format!("its {size_bytes} bytes do not fit its rows' {room_bytes}"));
        }
        let map_bytes = spec.map_bytes(part.meta.map_rows, MapGrain::default()).map_err(text)?;
        if map_bytes > u64::from(part.meta.slabs).saturating_mul(self.slab_bytes) {
            return Err("its map does not fit the slabs for it".to_owned());
        }
        Ok(())
    }

    fn check_part(&self, part: &PartRecord, used: &mut Used) -> Result<(), String> {
        part.shape.check().map_err(|error| error.to_string())?;
        let width = part.shape.width;
        if part.rows.width() != width {
            return Err(format!("its rows have {} columns, not {width}", part.rows.width()));
        }
        match part.log {
            Some(_) => check_log_places(part)?,
            None if !(1..=MAX_PLACES).contains(&part.meta.places.len())
                || part.journal.len() > MAX_PLACES =>
            {
                return Err("it has no place for its map, or too many".to_owned());
            }
            None if part.meta.map_rows < part.rows.rows() => {
                return Err("its map has no room for it".to_owned());
            }
            None => {}
        }
        let meta = part.meta.places.iter().map(|place| (place.drive, place.slab, part.meta.slabs));
        let journal = part.journal.iter().map(|place| (place.drive, place.slab, place.slabs));
        for (drive, first, slabs) in meta.chain(journal) {
            match first.checked_add(slabs) {
                Some(end) if slabs > 0 => used.push((drive, first, end)),
                _ => return Err("a place of its map or journal is impossible".to_owned()),
            }
        }
        for (index, block) in part.rows.blocks().iter().enumerate() {
            check_block(block, index as u64, width, part.rows.rows())?;
            for run in block.iter() {
                // The block's check has seen that this does not overflow.
                let rows = run.rows as u32;
                used.extend(run.places.iter().map(|place| (place.drive, place.slab, place.slab + rows)));
            }
        }
        let blocks = part.rows.rows().saturating_mul(self.slab_bytes / BLOCK_BYTES);
        let volume_blocks = MAX_VOLUME_BYTES / BLOCK_BYTES;
        let are_within = |set: &BlockSet, spaces: usize, blocks: u64| {
            set.spans().all(|((space, span), bits)| {
                let last = bits.last().unwrap_or(0);
                space < spaces && span.saturating_mul(SPAN_BLOCKS).saturating_add(last) < blocks
            })
        };
        if !are_within(&part.lost, width, blocks) || !are_within(&part.dead, 1, volume_blocks) {
            return Err("it has lost blocks that it never had".to_owned());
        }
        Ok(())
    }
}

/// Checks that a log's columns lie on one drive each, without holes, and that it has nothing that
/// only arrays in place have.
fn check_log_places(part: &PartRecord) -> Result<(), String> {
    if !part.meta.places.is_empty()
        || !part.journal.is_empty()
        || !part.lost.is_empty()
        || !part.dead.is_empty()
    {
        return Err("it is a log with a region map, a journal or lost blocks".to_owned());
    }
    if part.rows.allocated_rows() != part.rows.rows() {
        return Err("it is a log with rows that have no slabs".to_owned());
    }
    let drives = |run: &Run| run.places.iter().map(|place| place.drive).collect::<Vec<u32>>();
    let first = part.rows.runs().next().map(drives);
    let distinct: BTreeSet<&u32> = first.iter().flatten().collect();
    let is_one_each = part.rows.runs().all(|run| Some(drives(run)) == first);
    match is_one_each && distinct.len() == part.shape.width {
        true => Ok(()),
        false => Err("it is a log with a column on several drives, or two on one".to_owned()),
    }
}

/// Checks a log's sizes, and that the volume fits it.
fn check_log_room(
    volume: &VolumeRecord,
    part: &PartRecord,
    log: &LogRecord,
    slab_bytes: u64,
) -> Result<(), String> {
    let is_possible = RESERVE_PERCENT.contains(&log.reserve_percent)
        && (1 << 16..=1 << 26).contains(&log.segment_bytes)
        && log.slot_bytes.is_multiple_of(BLOCK_BYTES)
        && (1 << 16..=1 << 40).contains(&log.slot_bytes);
    if !is_possible {
        return Err("the sizes of its log are impossible".to_owned());
    }
    if volume.thin || volume.write_back || !volume.checksums {
        return Err("it is a log with attributes that only volumes in place have".to_owned());
    }
    let column_bytes = part.column_bytes(slab_bytes);
    let room = log.sizes().client_bytes(part.shape, column_bytes, &log.options(None));
    let room_bytes = room.map_err(|error| error.to_string())?;
    match volume.size_bytes <= room_bytes {
        true => Ok(()),
        false => Err(format!("its {} bytes do not fit its log's {room_bytes}", volume.size_bytes)),
    }
}

/// Checks that only a log has clones, each under a number of its own.
fn check_clones(volume: &VolumeRecord) -> Result<(), String> {
    let heads: BTreeSet<u32> = volume.clones.iter().map(|clone| clone.head).collect();
    let has_odd_heads = heads.len() < volume.clones.len() || heads.contains(&0);
    if has_odd_heads || (!heads.is_empty() && !volume.is_log()) {
        return Err(format!("volume {} has impossible clones", volume.name));
    }
    volume.clones.iter().try_for_each(|clone| {
        check_name(&clone.name)?;
        let path = clone.path().ok_or_else(|| format!("volume {} is a clone of nothing", clone.name))?;
        check_name(&path.volume)?;
        check_name(&path.snapshot)
    })
}

/// Checks that only logs receive streams and have a schedule.
fn check_received(volume: &VolumeRecord) -> Result<(), String> {
    if let Some(receiving) = &volume.receiving {
        check_name(&receiving.snapshot)?;
        receiving.base.as_deref().map_or(Ok(()), check_name)?;
    }
    let receives = volume.received.is_some() || volume.receiving.is_some();
    if (receives || volume.schedule.is_some()) && !volume.is_log() {
        return Err(format!("volume {} has snapshots and is no log", volume.name));
    }
    let numbers = volume.schedule.map_or([0; 3], |of| [of.hourly, of.daily, of.weekly]);
    match numbers.into_iter().any(|kept| kept > MOST_KEPT) {
        true => Err(format!("volume {} keeps more snapshots than it can", volume.name)),
        false => Ok(()),
    }
}

fn check_attributes(volume: &VolumeRecord) -> Result<(), String> {
    let name = &volume.name;
    if volume.size_bytes > MAX_VOLUME_BYTES {
        return Err(format!("volume {name} is larger than anything"));
    }
    let fits = match (volume.groups().count(), volume.conversion) {
        (1, None) => true,
        (2, Some(conversion)) => {
            let most = volume.size_bytes.next_multiple_of(MIB);
            let until = conversion.until_offset_bytes.unwrap_or(most);
            conversion.next_offset_bytes <= until
                && until <= most
                && conversion.next_offset_bytes.is_multiple_of(BLOCK_BYTES)
                && until.is_multiple_of(BLOCK_BYTES)
        }
        _ => false,
    };
    if fits { Ok(()) } else { Err(format!("volume {name} is converted in an impossible way")) }
}

#[cfg(test)]
mod tests;
