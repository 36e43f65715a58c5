//! The manifest: all that a pool knows of itself, the same on every drive.
//!
//! On the drives it is JSON behind a binary header (`superblock.rs`; every byte in `docs/format.md`). What is read is
//! checked as a whole before any of it is believed: numbers that refer to something must refer to something, space must
//! lie within the drives and not overlap. Faults expected: anything, since a checksum keeps out decay but not malice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stripewise_layout::{MemberSet, Shape};

use super::ids::{Id, VolumeId};
use crate::array::ArraySpec;

/// Bytes at the start of each drive that no volume uses, and as many at the end; the unit in which space is given out.
pub(crate) const MIB: u64 = 1 << 20;
/// Most drives, in whatever role and state, that the metadata can name.
pub(crate) const MAX_DRIVES: usize = 255;
/// Records of drives, those that were excluded and not yet replaced included.
pub(crate) const MAX_DRIVE_RECORDS: usize = 2 * MAX_DRIVES;
/// Most volumes of a pool.
pub(crate) const MAX_VOLUMES: usize = 256;
/// Branches remembered; the oldest are forgotten.
const MAX_BRANCHES: usize = 128;
/// Drives that no longer belong, remembered so that they can be told from strangers.
const MAX_FORMER: usize = 64;
/// Ranges of lost blocks that can be recorded in all.
const MAX_LOST_RANGES: usize = 1500;
/// Lost blocks that can be recorded in all: they are kept in memory one by one.
const MAX_LOST_BLOCKS: u64 = 1 << 20;
/// No drive is larger than this; keeps sums from overflowing.
const MAX_BYTES: u64 = 1 << 60;
/// Longest text kept of a path or a reason, bytes.
const MAX_TEXT_BYTES: usize = 200;

/// What a drive is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Holds volumes.
    Data,
    /// Waits for a data drive to fail.
    Spare,
}

/// Whether a drive takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Standing {
    /// Every commit reaches it.
    Online,
    /// Commits go on without it: what it holds is current only where a volume's slot still says so.
    Excluded { reason: String, missing: bool },
}

/// Errors of a drive since it belongs to the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Errors {
    pub read: u64,
    pub write: u64,
    pub checksum: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriveRecord {
    /// What slots call the drive; never used again for another.
    pub number: u32,
    pub id: Id,
    /// Where it was last seen.
    pub path: String,
    pub role: Role,
    pub standing: Standing,
    pub capacity_bytes: u64,
    #[serde(default)]
    pub errors: Errors,
    /// Another has taken its place; the record stays while a volume that cannot be rebuilt still speaks of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

impl DriveRecord {
    pub fn is_online(&self) -> bool {
        self.standing == Standing::Online
    }

    /// Where the copies of the superblocks at the end begin, and volumes must end.
    pub fn end_bytes(&self) -> u64 {
        end_of_space(self.capacity_bytes)
    }
}

/// Where space for volumes ends on a drive of this size.
pub(crate) fn end_of_space(capacity_bytes: u64) -> u64 {
    (capacity_bytes / MIB).saturating_sub(1) * MIB
}

/// What a slot of a volume holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum SlotState {
    /// The drive's content is current.
    #[default]
    Active,
    /// Nothing current.
    Missing,
    /// Current in the regions below this one.
    Rebuilding { next_region: u64 },
}

impl SlotState {
    fn is_active(&self) -> bool {
        *self == Self::Active
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlotRecord {
    /// The drive that has the slot, or had it last.
    pub drive: u32,
    #[serde(default, skip_serializing_if = "SlotState::is_active")]
    pub state: SlotState,
}

/// Blocks of 4 KiB of a slot that hold nothing valid: slot, first block, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostRange(pub u16, pub u64, pub u64);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeRecord {
    pub id: VolumeId,
    pub name: String,
    pub shape: Shape,
    pub base_bytes: u64,
    pub space_bytes: u64,
    pub slots: Vec<SlotRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostRange>,
}

impl VolumeRecord {
    pub fn spec(&self) -> ArraySpec {
        ArraySpec {
            id: self.id.0,
            shape: self.shape,
            base_bytes: self.base_bytes,
            space_bytes: self.space_bytes,
        }
    }

    pub fn end_bytes(&self) -> u64 {
        self.base_bytes + self.space_bytes
    }

    /// Slots that are not current as a whole, and those whose drive `is_away`.
    pub fn missing(&self, is_away: impl Fn(u32) -> bool) -> MemberSet {
        let lacking = |slot: &SlotRecord| !slot.state.is_active() || is_away(slot.drive);
        (0..self.slots.len()).filter(|&index| lacking(&self.slots[index])).collect()
    }

    /// Whether all of it can be read without the drives that are away.
    pub fn survives(&self, is_away: impl Fn(u32) -> bool) -> bool {
        let missing = self.missing(is_away);
        self.spec().geometry().is_ok_and(|(geometry, _)| geometry.survives(&missing))
    }

    pub fn set_lost(&mut self, blocks: &[(usize, u64)]) {
        self.lost.clear();
        for &(slot, block) in blocks {
            match self.lost.last_mut() {
                Some(LostRange(last, first, count))
                    if usize::from(*last) == slot && *first + *count == block =>
                {
                    *count += 1;
                }
                _ => self.lost.push(LostRange(slot as u16, block, 1)),
            }
        }
    }

    pub fn lost_blocks(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.lost.iter().flat_map(|&LostRange(slot, first, count)| {
            (first..first + count).map(move |block| (usize::from(slot), block))
        })
    }
}

/// One line of the pool's descent: it is lived on from this generation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Branch {
    pub id: Id,
    pub generation: u64,
}

/// A scrub that was begun: volumes still to do, the first of them from a region on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScrubIntent {
    pub volumes: Vec<VolumeId>,
    pub next_region: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub name: String,
    /// Counts commits.
    pub generation: u64,
    /// Oldest first; the last is the one lived on. A new one begins whenever it changes who takes part.
    pub branches: Vec<Branch>,
    pub next_number: u32,
    pub drives: Vec<DriveRecord>,
    /// Drives that were replaced or given back.
    #[serde(default)]
    pub former: Vec<Id>,
    pub volumes: Vec<VolumeRecord>,
    pub rebuild_priority_percent: u32,
    #[serde(default)]
    pub scrub: Option<ScrubIntent>,
}

impl Manifest {
    pub fn new(name: &str, rebuild_priority_percent: u32) -> Self {
        Self {
            name: name.to_owned(),
            generation: 0,
            branches: Vec::new(),
            next_number: 0,
            drives: Vec::new(),
            former: Vec::new(),
            volumes: Vec::new(),
            rebuild_priority_percent,
            scrub: None,
        }
    }

    pub fn branch(&self) -> Branch {
        *self.branches.last().expect("a checked manifest has a branch")
    }

    /// Goes on under a new branch from the current generation on.
    pub fn fork(&mut self, id: Id) {
        if self.branches.len() >= MAX_BRANCHES {
            self.branches.remove(0);
        }
        self.branches.push(Branch { id, generation: self.generation });
    }

    /// Whether `other` describes an earlier (or the same) moment of the history that led here.
    pub fn descends_from(&self, other: &Manifest) -> bool {
        let theirs = other.branch().id;
        let Some(index) = self.branches.iter().position(|branch| branch.id == theirs) else {
            // Forgotten, or never known. A drive so far behind is of no use in either case.
            let oldest = self.branches.first().expect("a checked manifest has a branch");
            return self.branches.len() == MAX_BRANCHES && other.generation < oldest.generation;
        };
        match self.branches.get(index + 1) {
            Some(next) => other.generation < next.generation,
            None => other.generation <= self.generation,
        }
    }

    pub fn add_drive(&mut self, id: Id, path: &str, role: Role, capacity_bytes: u64) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        self.drives.push(DriveRecord {
            number,
            id,
            path: shortened(path),
            role,
            standing: Standing::Online,
            capacity_bytes,
            errors: Errors::default(),
            replaced: false,
        });
        number
    }

    pub fn drive(&self, number: u32) -> Option<&DriveRecord> {
        self.drives.iter().find(|drive| drive.number == number)
    }

    pub fn drive_mut(&mut self, number: u32) -> Option<&mut DriveRecord> {
        self.drives.iter_mut().find(|drive| drive.number == number)
    }

    pub fn drive_by_id(&self, id: Id) -> Option<&DriveRecord> {
        self.drives.iter().find(|drive| drive.id == id)
    }

    pub fn volume(&self, name: &str) -> Option<&VolumeRecord> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    pub fn volume_by_id(&self, id: VolumeId) -> Option<&VolumeRecord> {
        self.volumes.iter().find(|volume| volume.id == id)
    }

    pub fn volume_by_id_mut(&mut self, id: VolumeId) -> Option<&mut VolumeRecord> {
        self.volumes.iter_mut().find(|volume| volume.id == id)
    }

    pub fn is_online(&self, number: u32) -> bool {
        self.drive(number).is_some_and(DriveRecord::is_online)
    }

    /// Whether a slot of a volume says that the drive holds something current.
    pub fn is_needed(&self, number: u32) -> bool {
        self.volumes
            .iter()
            .flat_map(|volume| &volume.slots)
            .any(|slot| slot.drive == number && slot.state.is_active())
    }

    /// Records that drives are out. In a volume that can do without them their slots are missing from now on; in one
    /// that cannot, nothing will be written while they are gone, so they stay what they are and the volume is whole
    /// again when they return.
    pub fn exclude(&mut self, out: &[(u32, String, bool)]) {
        let is_out = |number: u32| out.iter().any(|(drive, ..)| *drive == number);
        for volume in &mut self.volumes {
            let readable = volume.survives(is_out);
            for slot in volume.slots.iter_mut().filter(|slot| is_out(slot.drive)) {
                if readable || !slot.state.is_active() {
                    slot.state = SlotState::Missing;
                }
            }
        }
        for (number, reason, missing) in out {
            if let Some(drive) = self.drive_mut(*number) {
                drive.standing = Standing::Excluded { reason: shortened(reason), missing: *missing };
            }
        }
    }

    /// Another drive has taken this one's place.
    pub fn set_replaced(&mut self, number: u32) {
        if let Some(drive) = self.drive_mut(number) {
            drive.replaced = true;
        }
        self.forget_replaced();
    }

    /// Takes the records of replaced drives away where nothing refers to them any more.
    pub fn forget_replaced(&mut self) {
        let slots = || self.volumes.iter().flat_map(|volume| &volume.slots);
        let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.drives)
            .into_iter()
            .partition(|drive| drive.replaced && slots().all(|slot| slot.drive != drive.number));
        self.drives = kept;
        self.former.extend(gone.iter().map(|drive| drive.id));
        let surplus = self.former.len().saturating_sub(MAX_FORMER);
        self.former.drain(..surplus);
    }

    /// Whether no more blocks are lost than can be recorded.
    pub fn lost_fits(&self) -> bool {
        let lost = || self.volumes.iter().flat_map(|volume| &volume.lost);
        let blocks = lost().fold(0u64, |sum, range| sum.saturating_add(range.2));
        lost().count() <= MAX_LOST_RANGES && blocks <= MAX_LOST_BLOCKS
    }

    /// Whether everything in it makes sense; what does not is named.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        let rising = |pair: &[Branch]| pair[0].generation < pair[1].generation;
        let branches_fit = (1..=MAX_BRANCHES).contains(&self.branches.len())
            && self.branches.windows(2).all(rising)
            && self.branches.last().is_some_and(|branch| branch.generation <= self.generation);
        if !branches_fit {
            return Err("the branches are out of order".to_owned());
        }
        if self.drives.len() > MAX_DRIVE_RECORDS
            || self.volumes.len() > MAX_VOLUMES
            || self.former.len() > MAX_FORMER
        {
            return Err("too many drives or volumes".to_owned());
        }
        if !(1..=100).contains(&self.rebuild_priority_percent) {
            return Err("the rebuild priority is no percentage".to_owned());
        }
        for (index, drive) in self.drives.iter().enumerate() {
            let repeated =
                self.drives[..index].iter().any(|other| other.number == drive.number || other.id == drive.id);
            if repeated || drive.number >= self.next_number || drive.capacity_bytes > MAX_BYTES {
                return Err(format!("drive {} is impossible", drive.id));
            }
        }
        self.check_volumes()
    }

    fn check_volumes(&self) -> Result<(), String> {
        if !self.lost_fits() {
            return Err("too many lost blocks".to_owned());
        }
        let ends: BTreeMap<u32, u64> =
            self.drives.iter().map(|drive| (drive.number, drive.end_bytes())).collect();
        let mut used: Vec<(u32, u64, u64)> = Vec::new();
        for (index, volume) in self.volumes.iter().enumerate() {
            let name = &volume.name;
            check_name(name)?;
            let others = &self.volumes[..index];
            if others.iter().any(|other| other.name == *name || other.id == volume.id) {
                return Err(format!("volume {name} is there twice"));
            }
            let aligned = volume.base_bytes.is_multiple_of(MIB) && volume.space_bytes.is_multiple_of(MIB);
            let bounded =
                volume.base_bytes >= MIB && volume.base_bytes <= MAX_BYTES && volume.space_bytes <= MAX_BYTES;
            if !aligned || !bounded || volume.slots.len() != volume.shape.width {
                return Err(format!("volume {name} lies at an impossible place"));
            }
            let (geometry, _) =
                volume.spec().geometry().map_err(|error| format!("volume {name}: {error}"))?;
            for (number, slot) in volume.slots.iter().enumerate() {
                let end = ends.get(&slot.drive).copied();
                if end.is_none_or(|end| volume.end_bytes() > end) {
                    return Err(format!("volume {name} lies beyond a drive's end"));
                }
                if volume.slots[..number].iter().any(|other| other.drive == slot.drive) {
                    return Err(format!("volume {name} uses a drive twice"));
                }
                used.push((slot.drive, volume.base_bytes, volume.end_bytes()));
            }
            let blocks = geometry.member_bytes() / 4096;
            let fits = |lost: &LostRange| {
                usize::from(lost.0) < volume.slots.len()
                    && lost.2 > 0
                    && lost.1.checked_add(lost.2).is_some_and(|end| end <= blocks)
            };
            if !volume.lost.iter().all(fits) {
                return Err(format!("volume {name} has lost blocks that it never had"));
            }
        }
        used.sort_unstable();
        match used.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].1) {
            Some(_) => Err("two volumes lie at the same place".to_owned()),
            None => Ok(()),
        }
    }
}

/// A name of a pool or volume; what is wrong with it, otherwise.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        return Err("it is empty".to_owned());
    }
    if name.len() > 63 {
        return Err(format!("it has {} characters", name.len()));
    }
    if let Some(c) = name.chars().find(|&c| !allowed(c)) {
        return Err(format!("it contains {c:?}"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err("it does not begin with a letter or digit".to_owned());
    }
    Ok(())
}

/// At most [`MAX_TEXT_BYTES`] of a text, its end rather than its start: of a path that is what tells drives apart.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let start = (text.len() - MAX_TEXT_BYTES..text.len()).find(|&at| text.is_char_boundary(at));
    format!("…{}", &text[start.unwrap_or(text.len())..])
}
