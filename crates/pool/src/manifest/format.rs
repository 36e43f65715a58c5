//! The manifest: all that a pool knows of itself, the same on every drive.
//!
//! In memory it is one value that is cheap to clone: maps are shared between clones block by block,
//! events one by one. On the drives it is sections (`superblock/sections.rs`) of which a commit
//! writes those that changed. What is read is checked as a whole (`manifest/check.rs`) before any
//! of it is believed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::manifest::branches::{Branch, OldBranch};
use crate::manifest::care::{Care, ScrubRecord};
use crate::manifest::clone_record::CloneRecord;
use crate::manifest::drive_record::{DriveRecord, Errors, Exclusion, Role, Standing, shortened};
use crate::manifest::events::Events;
use crate::manifest::host_use::HostUse;
use crate::manifest::ids::{Id, VolumeId};
use crate::manifest::snapshot_path::SnapshotPath;
use crate::manifest::volume_record::{PartRecord, VolumeRecord};
use crate::superblock::block_bytes::record_bytes;

/// Most drives, in whatever role and state, that take part.
pub(crate) const MAX_DRIVES: usize = 255;
/// Records of drives, those that were excluded and not yet replaced included.
pub(crate) const MAX_DRIVE_RECORDS: usize = 2 * MAX_DRIVES;
/// Most volumes of a pool.
pub(crate) const MAX_VOLUMES: usize = 256;
/// Rows of all maps together, holes included: bounds the memory of maps that hold nothing.
pub(crate) const MAX_ROWS: u64 = 1 << 30;
/// Maximum former drives remembered, to distinguish them from unknown ones.
pub(crate) const MAX_FORMER: usize = 64;

/// A scrub that was begun: volumes still to do, the first of them from a region on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScrubIntent {
    pub volumes: Vec<VolumeId>,
    pub next_region: u64,
    /// When it was asked for; left out by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_unix_s: Option<u64>,
    /// Findings below `next_region`.
    #[serde(default, skip_serializing_if = "ScrubRecord::is_empty")]
    pub found: ScrubRecord,
    /// Findings on completed volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<ScrubRecord>,
}

impl ScrubIntent {
    /// True if it has fields unknown to versions that do not count a scrub's findings.
    pub(crate) fn has_counts(&self) -> bool {
        self.began_unix_s.is_some() || !self.found.is_empty() || !self.done.is_empty()
    }

    /// True if the record, as read from a drive, is within its bounds.
    pub(crate) fn is_bounded(&self) -> bool {
        self.done.len() <= MAX_VOLUMES
            && self.found.is_bounded()
            && self.done.iter().all(ScrubRecord::is_bounded)
    }
}

/// A rebalance that was begun, and how far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RebalanceIntent {
    pub moved_slabs: u64,
    /// Part of these that was ever written, bytes.
    pub moved_bytes: u64,
}

/// Settings of scrubs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Patrol {
    /// Rate limit for reads; without one the rebuild priority decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// A scrub begins by itself this long after the last one; left out: only by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<u64>,
    /// When the last scrub ended, seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_unix_s: Option<u64>,
}

impl Patrol {
    /// Time at which the next scrub is due, seconds since 1970; `None` without a schedule.
    pub(crate) fn next_unix_s(&self) -> Option<u64> {
        Some(self.last_unix_s.unwrap_or(0).saturating_add(self.interval_s?))
    }
}

/// Other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Settings {
    /// Share of allocated space from which a warning is given, percent.
    pub space_warning_percent: u32,
    /// Rate limit for moves between tiers; without one the rebuild priority decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier_bytes_per_s: Option<u64>,
    /// Maximum latency that jobs add to a client's request at a drive, ms; `None`: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rebuild_latency_ms: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { space_warning_percent: 80, tier_bytes_per_s: None, rebuild_latency_ms: None }
    }
}

/// All that a pool knows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub name: String,
    /// Counts commits.
    pub generation: u64,
    /// The last commit that every drive which takes part is known to have, as a generation; 0 where
    /// that is not known.
    pub proven: u64,
    /// Oldest first; the last is the one lived on. A new one begins whenever it changes who takes
    /// part.
    pub branches: Vec<Branch>,
    /// Older branches that a drive which is away, or was replaced, may have last.
    pub old_branches: Vec<OldBranch>,
    pub next_number: u32,
    /// In the order of their numbers.
    pub drives: Vec<DriveRecord>,
    /// Drives that were replaced or given back.
    pub former: Vec<Id>,
    pub slab_bytes: u64,
    pub volumes: Vec<VolumeRecord>,
    pub rebuild_priority_percent: u32,
    pub patrol: Patrol,
    pub scrub: Option<ScrubIntent>,
    pub rebalance: Option<RebalanceIntent>,
    pub settings: Settings,
    /// The host that has the pool, or had it last.
    pub host: Option<HostUse>,
    /// When the pool was destroyed, seconds since 1970. It can be brought back until its drives are
    /// used again.
    pub destroyed_unix_s: Option<u64>,
    /// Conditions reported until they are acknowledged or superseded.
    pub care: Care,
    pub events: Events,
}

impl Manifest {
    pub(crate) fn new(name: &str, slab_bytes: u64, rebuild_priority_percent: u32) -> Self {
        Self {
            name: name.to_owned(),
            generation: 0,
            proven: 0,
            branches: Vec::new(),
            old_branches: Vec::new(),
            next_number: 0,
            drives: Vec::new(),
            former: Vec::new(),
            slab_bytes,
            volumes: Vec::new(),
            rebuild_priority_percent,
            patrol: Patrol::default(),
            scrub: None,
            rebalance: None,
            settings: Settings::default(),
            host: None,
            destroyed_unix_s: None,
            care: Care::default(),
            events: Events::default(),
        }
    }

    pub(crate) fn add_drive(&mut self, id: Id, path: &str, role: Role, capacity_bytes: u64) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        self.drives.push(DriveRecord {
            number,
            id,
            path: shortened(path),
            role,
            standing: Standing::Online,
            retiring: false,
            capacity_bytes,
            errors: Errors::default(),
            had: None,
            successor: None,
            replaced: false,
        });
        number
    }

    pub(crate) fn drive(&self, number: u32) -> Option<&DriveRecord> {
        let index = self.drives.binary_search_by_key(&number, |drive| drive.number).ok()?;
        Some(&self.drives[index])
    }

    pub(crate) fn drive_mut(&mut self, number: u32) -> Option<&mut DriveRecord> {
        let index = self.drives.binary_search_by_key(&number, |drive| drive.number).ok()?;
        Some(&mut self.drives[index])
    }

    /// True if a drive whose slots also name these drives is the place of one not given up: it was
    /// written as two members, and is valid for neither.
    pub(crate) fn is_shared(&self, also: &[Id]) -> bool {
        also.iter().filter_map(|id| self.drive_by_id(*id)).any(|other| !other.replaced)
    }

    pub(crate) fn path_of(&self, number: u32) -> String {
        self.drive(number).map_or_else(String::new, |drive| drive.path.clone())
    }

    pub(crate) fn drive_by_id(&self, id: Id) -> Option<&DriveRecord> {
        self.drives.iter().find(|drive| drive.id == id)
    }

    pub(crate) fn volume(&self, name: &str) -> Option<&VolumeRecord> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    pub(crate) fn volume_by_id(&self, id: VolumeId) -> Option<&VolumeRecord> {
        self.volumes.iter().find(|volume| volume.id == id)
    }

    pub(crate) fn volume_by_id_mut(&mut self, id: VolumeId) -> Option<&mut VolumeRecord> {
        self.volumes.iter_mut().find(|volume| volume.id == id)
    }

    /// A clone, and the volume in whose log it is.
    pub(crate) fn clone_named(&self, name: &str) -> Option<(&VolumeRecord, &CloneRecord)> {
        self.clones().find(|(_, clone)| clone.name == name)
    }

    /// All clones.
    pub(crate) fn clones(&self) -> impl Iterator<Item = (&VolumeRecord, &CloneRecord)> {
        self.volumes.iter().flat_map(|volume| volume.clones.iter().map(move |clone| (volume, clone)))
    }

    /// Names of all volumes, clones included.
    pub(crate) fn volume_names(&self) -> Vec<String> {
        let names = |volume: &VolumeRecord| {
            let clones = volume.clones.iter().map(|clone| clone.name.clone());
            std::iter::once(volume.name.clone()).chain(clones).collect::<Vec<_>>()
        };
        self.volumes.iter().flat_map(names).collect()
    }

    /// Names of clones of snapshots that `rests` selects.
    pub(crate) fn clones_of(&self, rests: impl Fn(&SnapshotPath) -> bool) -> Vec<String> {
        let is_one =
            |(_, clone): &(&VolumeRecord, &CloneRecord)| clone.path().is_some_and(|path| rests(&path));
        self.clones().filter(is_one).map(|(_, clone)| clone.name.clone()).collect()
    }

    /// The parts of all volumes.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &PartRecord> {
        self.volumes.iter().flat_map(|volume| &volume.parts)
    }

    /// The part with this array's identity.
    pub(crate) fn has_part(&self, id: Id) -> bool {
        self.parts().any(|part| part.id == id)
    }

    /// The volume that a part is of, and its name; where there is none, the part stands for it.
    pub(crate) fn volume_of(&self, part: Id) -> (VolumeId, String) {
        let volume = self.volumes.iter().find(|volume| volume.part(part).is_some());
        volume.map_or_else(|| (part, part.to_string()), |volume| (volume.id, volume.name.clone()))
    }

    pub(crate) fn part_mut(&mut self, id: Id) -> Option<&mut PartRecord> {
        self.volumes.iter_mut().find_map(|volume| volume.part_mut(id))
    }

    pub(crate) fn is_online(&self, number: u32) -> bool {
        self.drive(number).is_some_and(DriveRecord::is_online)
    }

    /// True if any part has current data on the drive.
    pub(crate) fn is_needed(&self, number: u32) -> bool {
        self.parts().any(|part| part.needs(number))
    }

    /// Drives that any row, map or journal names.
    pub(crate) fn named_drives(&self) -> BTreeSet<u32> {
        self.parts().flat_map(PartRecord::drives).collect()
    }

    /// Records that drives are out, and what follows from it for the volumes
    /// ([`Self::note_missing`]).
    pub(crate) fn exclude(&mut self, out: &[Exclusion]) {
        for exclusion in out {
            if let Some(drive) = self.drive_mut(exclusion.drive) {
                drive.standing =
                    Standing::Excluded { reason: shortened(&exclusion.reason), kind: exclusion.kind };
            }
        }
        self.note_missing();
    }

    /// Has every volume that can be read without the drives that are out go on without them: what
    /// lies there is missing from now on. A volume that cannot is not written to, so what they hold
    /// of it stays what it is, and it is whole again when they return. To be called whenever drives
    /// came or went or volumes lost rows, at best with every commit; a manifest in which this is
    /// due fails its check.
    pub(crate) fn note_missing(&mut self) {
        if self.drives.iter().all(DriveRecord::is_online) {
            return;
        }
        let online: BTreeSet<u32> =
            self.drives.iter().filter(|drive| drive.is_online()).map(|drive| drive.number).collect();
        let is_out = |number: u32| !online.contains(&number);
        for volume in &mut self.volumes {
            if !volume.parts.iter().any(|part| part.names_current(is_out)) {
                continue;
            }
            let readable = volume.survives(is_out);
            for part in &mut volume.parts {
                part.set_missing(is_out, !readable);
            }
        }
    }

    /// Another drive has taken this one's place.
    pub(crate) fn set_replaced(&mut self, number: u32) {
        if let Some(drive) = self.drive_mut(number) {
            drive.replaced = true;
            drive.successor = None;
        }
        self.forget_replaced();
    }

    /// Takes the records of replaced drives away where nothing refers to them any more.
    pub(crate) fn forget_replaced(&mut self) {
        if !self.drives.iter().any(|drive| drive.replaced) {
            return;
        }
        let named = self.named_drives();
        let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.drives)
            .into_iter()
            .partition(|drive| drive.replaced && !named.contains(&drive.number));
        self.drives = kept;
        self.former.extend(gone.iter().map(|drive| drive.id));
        let surplus = self.former.len().saturating_sub(MAX_FORMER);
        self.former.drain(..surplus);
    }

    /// Most bytes that the lost blocks take in the record.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.parts().map(|part| record_bytes(&part.lost) + record_bytes(&part.dead)).sum()
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

#[cfg(test)]
mod tests;
