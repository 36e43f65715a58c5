//! Status of a volume, derived from the missing parts of its rows, map and journal. Time is
//! proportional to the number of runs of rows.

use std::collections::{BTreeMap, BTreeSet};

use stripewise_layout::{Geometry, Level, MemberSet, Shape};

use crate::Inner;
use crate::jobs::Lane;
use crate::jobs::tier::tier_info;
use crate::manifest::clone_record::CloneRecord;
use crate::manifest::format::Manifest;
use crate::manifest::ids::DriveId;
use crate::manifest::volume_record::{PartRecord, VolumeRecord};
use crate::status::copies::{copies, copies_left};
use crate::status::rows::state_of;
use crate::status::{
    ConversionStatus, ReceivingStatus, ShareState, SlotStatus, VolumeInfo, VolumeState, journal_slabs,
    map_slabs,
};
use stripewise_array::{Array, ArrayHandle};

/// A drive's share of a volume.
#[derive(Clone, Copy, Default)]
struct Share {
    slabs: u64,
    lacking: u64,
    state: ShareState,
}

/// Totals over the rows of a part.
#[derive(Default)]
struct Tally {
    /// Drives in the order in which they were seen.
    order: Vec<u32>,
    shares: BTreeMap<u32, Share>,
    /// Number of further drives that may be lost: the minimum over all rows.
    left: Option<isize>,
    readable: bool,
    lacking: bool,
    filling: bool,
    /// Drives with a map or a journal, and those of them that are wanted back.
    copies: BTreeSet<u32>,
    lacking_copies: BTreeSet<u32>,
}

impl Tally {
    /// Counts a part in. `works`: of a drive, as the record has it.
    fn add(&mut self, part: &PartRecord, array: Option<&ArrayHandle>, works: impl Fn(u32) -> bool) {
        // The array's knowledge is newer than the record.
        let is_there = |number: u32| match array {
            Some(array) => array.visit(|array| array.works_on(number)),
            None => works(number),
        };
        let mut there: BTreeMap<u32, bool> = BTreeMap::new();
        let tolerance = part.shape.fault_tolerance() as isize;
        let geometry = Geometry::new(part.shape, part.shape.interleave_bytes.saturating_mul(512)).ok();
        let mut seen: Option<MemberSet> = None;
        for run in part.rows.runs() {
            let mut lacking = MemberSet::EMPTY;
            for (column, place) in run.places.iter().enumerate() {
                let is_there = *there.entry(place.drive).or_insert_with(|| is_there(place.drive));
                let state = state_of(place.state, is_there);
                let share = self.shares.entry(place.drive).or_insert_with(|| {
                    self.order.push(place.drive);
                    Share::default()
                });
                share.slabs += run.rows;
                share.state = share.state.max(state);
                if state != ShareState::Active {
                    share.lacking += run.rows;
                    lacking.insert(column);
                    self.lacking = true;
                    self.filling |= matches!(state, ShareState::Rebuilding | ShareState::CatchingUp);
                }
            }
            if seen.is_none_or(|seen| seen != lacking) {
                self.readable &= geometry.as_ref().is_some_and(|geometry| geometry.survives(&lacking));
                seen = Some(lacking);
            }
            let left = tolerance - lacking.len() as isize;
            self.left = Some(self.left.map_or(left, |least| least.min(left)));
        }
        let (left, lacking) = copies_left(part, array, is_there);
        self.lacking |= left < tolerance;
        self.copies.extend(copies(part).map(|(drive, _)| drive));
        self.lacking_copies.extend(lacking);
        let least = self.left.get_or_insert(tolerance);
        *least = (*least).min(tolerance).min(left);
    }
}

impl Inner {
    /// Current status of all volumes, each followed by its clones.
    pub(crate) fn volume_infos(&self, manifest: &Manifest) -> Vec<VolumeInfo> {
        let mut all = Vec::new();
        for volume in &manifest.volumes {
            let info = self.volume_info(manifest, volume);
            let clones: Vec<VolumeInfo> =
                volume.clones.iter().map(|clone| self.clone_info(&info, volume, clone)).collect();
            all.push(info);
            all.extend(clones);
        }
        all
    }

    /// Current status of a clone, which shares the space and the drives of the volume in whose log
    /// it is.
    fn clone_info(&self, of: &VolumeInfo, volume: &VolumeRecord, clone: &CloneRecord) -> VolumeInfo {
        let is_there = self.volumes.clone_io(volume, clone).is_some();
        let lost = || format!("the log of volume {} has no such clone", volume.name);
        VolumeInfo {
            id: clone.id,
            name: clone.name.clone(),
            state: if is_there { of.state } else { VolumeState::Failed },
            capacity_bytes: clone.size_bytes,
            allocated_bytes: 0,
            written_bytes: None,
            rows: (0, 0),
            receiving: None,
            schedule: None,
            clone_of: clone.path(),
            failure: of.failure.clone().or_else(|| (!is_there).then(lost)),
            ..of.clone()
        }
    }

    /// Current status of the volume.
    pub(crate) fn volume_info(&self, manifest: &Manifest, volume: &VolumeRecord) -> VolumeInfo {
        // A volume in conversion reports the new layout; its state covers all parts.
        let shape = volume.parts.last().map_or_else(unknown_shape, |part| part.shape);
        let mut tally = Tally { readable: true, ..Tally::default() };
        for part in &volume.parts {
            let works = |number: u32| self.working_member(number).is_some();
            tally.add(part, self.volumes.array(part.id).as_ref(), works);
        }
        let arrays: Vec<_> = volume.parts.iter().filter_map(|part| self.volumes.array(part.id)).collect();
        let log = self.log_status(volume);
        let is_open = self.volumes.is_open(volume);
        let readable = is_open && tally.readable;
        let state = if !readable {
            VolumeState::Failed
        } else if !tally.lacking {
            VolumeState::Online
        } else if tally.filling {
            VolumeState::Rebuilding
        } else {
            VolumeState::Degraded
        };
        let failure = (!readable).then(|| {
            let recorded = self.volumes.failure(volume.id);
            recorded.unwrap_or_else(|| {
                format!("more of its drives are gone than {} can do without; it takes no writes", shape.level)
            })
        });
        let slab_bytes = manifest.slab_bytes;
        let slot = |number: &u32| {
            let share = tally.shares[number];
            SlotStatus {
                drive: manifest.drive(*number).map_or(crate::Id(0), |drive| drive.id),
                state: share.state,
                bytes: share.slabs * slab_bytes,
                lacking_bytes: share.lacking * slab_bytes,
            }
        };
        let ids = |numbers: &BTreeSet<u32>| -> Vec<DriveId> {
            numbers.iter().filter_map(|number| Some(manifest.drive(*number)?.id)).collect()
        };
        let slabs: u64 = tally.shares.values().map(|share| share.slabs).sum();
        let beside: u64 = volume.parts.iter().map(|part| map_slabs(part) + journal_slabs(part)).sum();
        // The old layout's rows come back one after the other.
        let parts = volume.last_group();
        let rows = parts.iter().map(|part| part.rows.rows()).sum();
        let allocated_rows = parts.iter().map(|part| part.rows.allocated_rows()).sum();
        VolumeInfo {
            id: volume.id,
            name: volume.name.clone(),
            state,
            shape,
            capacity_bytes: volume.size_bytes,
            allocated_bytes: (slabs + beside) * slab_bytes,
            written_bytes: is_open.then(|| {
                let in_place: u64 = arrays.iter().map(|array| array.visit(Array::written_bytes)).sum();
                in_place + log.and_then(|log| log.open).map_or(0, |open| open.live_bytes)
            }),
            redundancy_left: tally.left.unwrap_or(shape.fault_tolerance() as isize).max(0) as usize,
            lost_blocks: match is_open {
                true => arrays.iter().map(|array| array.visit(Array::bad_block_count)).sum(),
                false => volume.parts.iter().map(|part| part.lost.count() + part.dead.count()).sum(),
            },
            thin: volume.thin,
            write_back: volume.write_back,
            checksums: volume.checksums,
            journal_area_bytes: parts.iter().map(|part| area_slabs(part) * slab_bytes).sum(),
            slices: parts.len() as u32,
            slice_extent_bytes: volume.slicing().map(|slicing| slicing.extent_bytes()),
            pin: volume.pin,
            log,
            tiers: tier_info(self, volume),
            rows: (allocated_rows, rows),
            slots: tally.order.iter().map(slot).collect(),
            copies: ids(&tally.copies),
            lacking_copies: ids(&tally.lacking_copies),
            conversion: conversion_status(volume, &self.jobs.converting),
            schedule: volume.schedule,
            clone_of: None,
            receiving: volume.receiving.as_ref().map(|receiving| ReceivingStatus {
                snapshot: receiving.snapshot.clone(),
                base: receiving.base.clone(),
                is_running: self.volumes.io(volume).is_some_and(|io| io.receives.get()),
            }),
            needed: if readable {
                Vec::new()
            } else {
                self.drives.needed_for(&self.manifest.borrow(), volume)
            },
            failure,
        }
    }
}

/// Slabs of a part's journal area on each drive that has one.
fn area_slabs(part: &PartRecord) -> u64 {
    u64::from(part.journal.iter().map(|place| place.slabs).max().unwrap_or(0))
}

fn conversion_status(volume: &VolumeRecord, converting: &Lane) -> Option<ConversionStatus> {
    let (conversion, old) = (volume.conversion?, volume.groups().next()?);
    let end_bytes = conversion.end_bytes(volume.size_bytes);
    let next_offset_bytes = conversion.next_offset_bytes.min(end_bytes);
    Some(ConversionStatus {
        from: old.first()?.shape,
        from_slices: old.len() as u32,
        next_offset_bytes,
        percent: next_offset_bytes as f64 * 100.0 / end_bytes.max(1) as f64,
        is_cancelled: conversion.until_offset_bytes.is_some(),
        waits: volume.last_group().first().and_then(|new| converting.stalled_because(new.id)),
    })
}

fn unknown_shape() -> Shape {
    Shape { level: Level::Single, width: 1, groups: 1, interleave_bytes: 65_536, rotation_rows: 1 }
}
