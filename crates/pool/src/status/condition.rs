//! The condition of a pool: of all that may need attention, what comes first. Data only; the crate
//! `control` puts it into words and names the next command.

use stripewise_array::rows::{Run, SlotState};
use stripewise_layout::Shape;

use crate::Inner;
use crate::jobs::is_resync_due;
use crate::jobs::rebalance_plan::room;
use crate::jobs::wait::Wait;
use crate::manifest::care::{LastScrub, Takeover};
use crate::manifest::format::Manifest;
use crate::manifest::ids::DriveId;
use crate::membership::replacement::replacement_bytes;
use crate::open_volumes::OpenVolumes;
use crate::space::addresses::capacity_for;
use crate::space::slabs::FreeSlabs;
use crate::sparing::planner::{Homeless, SparePlanner};
use crate::status::notices::{SpaceUse, SpareTakeover};
use crate::status::{DriveState, DriveStatus, VolumeInfo, VolumeState};

/// The first condition that applies, worst first.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// A volume cannot be read.
    VolumeFailed {
        /// The volume.
        volume: String,
        /// The reason, if one was recorded.
        why: Option<String>,
        /// Drives that would help, by path and identity.
        needed: Vec<String>,
    },
    /// Writing stopped because the file system under a drive is full.
    FileSystemFull {
        /// The drive's path.
        drive: String,
    },
    /// Blocks of volumes are lost until they are written.
    LostBlocks {
        /// Number of blocks of 4 KiB.
        blocks: u64,
    },
    /// New slabs are being filled.
    Rebuilding {
        /// The volumes that lack redundancy until then.
        volumes: Vec<String>,
    },
    /// No drive is out, but a volume lacks redundancy: what a drive held that was removed or
    /// replaced.
    Lacking {
        /// The volume.
        volume: String,
        /// Drives that it may lose.
        redundancy_left: usize,
        /// The repair that starts by itself.
        repair: Repair,
    },
    /// Drives are out, and a volume lacks redundancy.
    Degraded {
        /// The drives that are out.
        out: Vec<OutDrive>,
        /// The volume.
        volume: String,
        /// Drives that it may lose.
        redundancy_left: usize,
        /// The repair that starts by itself.
        repair: Repair,
    },
    /// Drives are out for good, and nothing lies on them any more.
    EmptyDrivesGone {
        /// These drives.
        out: Vec<OutDrive>,
    },
    /// Drives are out, and all volumes are whole.
    DrivesOut {
        /// These drives.
        out: Vec<OutDrive>,
    },
    /// Regions that a crash left open are still to be compared.
    ResyncDue,
    /// Working drives are being replaced.
    Replacing(Vec<Replacing>),
    /// A drive that is to be emptied has data without a place elsewhere.
    CannotEmpty {
        /// The reason.
        why: String,
    },
    /// Drives are being emptied.
    Retiring {
        /// Their paths.
        drives: Vec<String>,
    },
    /// A volume is being converted to another layout.
    Converting {
        /// The volume.
        volume: String,
        /// The layout that it had.
        from: Shape,
        /// The layout that it gets.
        to: Shape,
        /// The reason why it does not go on, if it waits.
        waits: Option<Wait>,
    },
    /// Blocks were found wrong since the counts were cleared.
    WrongBlocks {
        /// Paths of the drives, and their counts.
        drives: Vec<(String, u64)>,
        /// A scrub since then found nothing new.
        was_scrubbed: bool,
    },
    /// A spare has taken a drive's place, not acknowledged yet.
    SpareInUse(SpareTakeover),
    /// Rows are being spread over all drives.
    Rebalancing,
    /// Free space that is usable only after a rebalance.
    RebalanceGains {
        /// That space, bytes.
        bytes: u64,
    },
    /// Thin volumes may run out of space.
    SpaceShort(SpaceUse),
    /// Nothing needs attention.
    AllThere,
}

/// A drive that is out of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutDrive {
    /// Its identity.
    pub id: DriveId,
    /// Its path, or the last known one.
    pub path: String,
    /// Its state.
    pub state: DriveState,
}

/// The repair that the pool makes without help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// None: what is lacking is on drives that are to come back, or lost with others.
    None,
    /// A spare, by its path.
    Spare(String),
    /// Free space on the other drives.
    FreeSpace,
    /// Neither the other drives nor spares have room for all that is lacking.
    WithoutRoom {
        /// Contents without a place.
        homeless: Vec<Homeless>,
        /// Bytes of a slab.
        slab_bytes: u64,
        /// Smallest capacity of a new drive that has room for all that was on one drive, bytes.
        needed_bytes: u64,
    },
}

/// A working drive that is being replaced.
#[derive(Clone, Debug, PartialEq)]
pub struct Replacing {
    /// Path of the old drive.
    pub from: String,
    /// Path of the new one.
    pub to: String,
    /// Part of its data on the new drive, percent.
    pub percent: f64,
}

impl Inner {
    /// Determines the condition.
    pub(crate) fn condition(
        &self,
        manifest: &Manifest,
        volumes: &[VolumeInfo],
        drives: &[DriveStatus],
    ) -> Condition {
        let out: Vec<OutDrive> = drives
            .iter()
            .zip(&manifest.drives)
            .filter(|(drive, record)| !drive.state.takes_part() && !record.replaced)
            .map(|(drive, _)| OutDrive { id: drive.id, path: drive.path.clone(), state: drive.state })
            .collect();
        if let Some(failed) = volumes.iter().find(|volume| volume.state == VolumeState::Failed) {
            return Condition::VolumeFailed {
                volume: failed.name.clone(),
                why: failed.failure.clone(),
                needed: failed.needed.clone(),
            };
        }
        if let Some(drive) = self.news.full_drive() {
            return Condition::FileSystemFull { drive };
        }
        let blocks: u64 = volumes.iter().map(|volume| volume.lost_blocks).sum();
        if blocks > 0 {
            return Condition::LostBlocks { blocks };
        }
        let names = |state| {
            let has_it = volumes.iter().filter(move |volume| volume.state == state);
            has_it.map(|volume| volume.name.clone()).collect::<Vec<_>>()
        };
        let rebuilding = names(VolumeState::Rebuilding);
        if !rebuilding.is_empty() {
            return Condition::Rebuilding { volumes: rebuilding };
        }
        let degraded = volumes.iter().filter(|volume| volume.state == VolumeState::Degraded);
        // The one that can lose least.
        if let Some(volume) = degraded.min_by_key(|volume| volume.redundancy_left) {
            let (volume, redundancy_left) = (volume.name.clone(), volume.redundancy_left);
            let plan = |planner: &SparePlanner| repair(planner, manifest, self.space.borrow().clone());
            let repair = self.status_memo.repair(manifest, self.spare_planner(), plan);
            if out.is_empty() {
                return Condition::Lacking { volume, redundancy_left, repair };
            }
            // Before a person brings a drive, the pool helps itself; not with others where it is
            // back.
            let is_back = out.iter().any(|drive| drive.state == DriveState::Behind);
            let repair = if is_back { Repair::None } else { repair };
            return Condition::Degraded { out, volume, redundancy_left, repair };
        }
        if !out.is_empty() {
            let holds_nothing = |drive: &OutDrive| {
                let record = manifest.drive_by_id(drive.id);
                record.is_some_and(|record| !manifest.is_needed(record.number))
            };
            let is_gone = |drive: &OutDrive| matches!(drive.state, DriveState::Missing | DriveState::Failed);
            return match out.iter().all(|drive| is_gone(drive) && holds_nothing(drive)) {
                true => Condition::EmptyDrivesGone { out },
                false => Condition::DrivesOut { out },
            };
        }
        if self.volumes.arrays().iter().any(|array| array.visit(is_resync_due)) {
            return Condition::ResyncDue;
        }
        let replacing = replacing(&self.volumes, manifest);
        if !replacing.is_empty() {
            return Condition::Replacing(replacing);
        }
        if let Some(why) = self.retiring_without_room(manifest) {
            return Condition::CannotEmpty { why };
        }
        let retiring: Vec<String> = drives
            .iter()
            .filter(|drive| drive.state == DriveState::Retiring)
            .map(|drive| drive.path.clone())
            .collect();
        if !retiring.is_empty() {
            return Condition::Retiring { drives: retiring };
        }
        let converting = |volume: &VolumeInfo| {
            let status = volume.conversion.as_ref()?;
            let (volume, from, to) = (volume.name.clone(), status.from, volume.shape);
            Some(Condition::Converting { volume, from, to, waits: status.waits.clone() })
        };
        if let Some(converting) = volumes.iter().find_map(converting) {
            return converting;
        }
        if let Some(care) = care(manifest, drives) {
            return care;
        }
        if manifest.rebalance.is_some() {
            return Condition::Rebalancing;
        }
        if self.would_gain(manifest) {
            let room = room(manifest, &self.space.borrow());
            let bytes = (room.free_slabs - room.usable_slabs) * manifest.slab_bytes;
            return Condition::RebalanceGains { bytes };
        }
        match self.short_space(manifest) {
            Some(space) => Condition::SpaceShort(space),
            None => Condition::AllThere,
        }
    }

    /// Reason why a drive that is to be emptied cannot be. It had room at the time of the request;
    /// others may have gone since, or something new may have taken it.
    pub(crate) fn retiring_without_room(&self, manifest: &Manifest) -> Option<String> {
        let first = manifest.drives.iter().find(|drive| drive.retiring && drive.is_online())?;
        self.status_memo.evacuation(manifest, self.spare_planner(), |planner| {
            let room = planner.check_evacuation(manifest, &self.space.borrow(), first.number);
            room.err().map(|error| error.to_string())
        })
    }
}

/// The repair that jobs will make without help, or what they leave without a place.
fn repair(planner: &SparePlanner, manifest: &Manifest, books: FreeSlabs) -> Repair {
    let planned = planner.without_gone(manifest);
    let spare = planner.next_for_spare(&planned).or_else(|| planner.next_for_leftover(&planned));
    let spare = spare.and_then(|(_, spare)| Some(planned.drive(spare)?.path.clone()));
    let (after, homeless) = planner.planned(manifest, books);
    if !homeless.is_empty() {
        let of_drive =
            |drive: &str| homeless.iter().filter(|left| left.drive == drive).map(|left| left.slabs).sum();
        let most = homeless.iter().map(|left| of_drive(&left.drive)).max().unwrap_or(0);
        let needed_bytes = capacity_for(most, manifest.slab_bytes);
        return Repair::WithoutRoom { homeless, slab_bytes: manifest.slab_bytes, needed_bytes };
    }
    let lacks = |run: &Run| run.places.iter().any(|place| place.state == SlotState::Missing);
    match after.parts().any(|part| part.rows.runs().any(lacks)) {
        true => Repair::None,
        false => spare.map_or(Repair::FreeSpace, Repair::Spare),
    }
}

/// Working drives that are being replaced.
fn replacing(volumes: &OpenVolumes, manifest: &Manifest) -> Vec<Replacing> {
    let progress = |(old, new): (u32, u32)| {
        let (from, to) = (manifest.drive(old)?, manifest.drive(new)?);
        let (done, all) = replacement_bytes(volumes, manifest, (old, new));
        let percent = if all > 0.0 { done * 100.0 / all } else { 0.0 };
        let replacing = Replacing { from: from.path.clone(), to: to.path.clone(), percent };
        from.is_online().then_some(replacing)
    };
    manifest.replacements().filter_map(progress).collect()
}

/// Conditions not yet acknowledged: wrong blocks, and spares in use.
fn care(manifest: &Manifest, drives: &[DriveStatus]) -> Option<Condition> {
    let wrong: Vec<(String, u64)> = drives
        .iter()
        .filter(|drive| drive.checksum_errors > 0)
        .map(|drive| (drive.path.clone(), drive.checksum_errors))
        .collect();
    if !wrong.is_empty() {
        let counted = drives.iter().fold(0, |sum: u64, drive| sum.saturating_add(drive.checksum_errors));
        let is_old = |scrub: &LastScrub| scrub.is_clean() && scrub.counted_before == counted;
        let was_scrubbed = manifest.care.last_scrub.as_ref().is_some_and(is_old);
        return Some(Condition::WrongBlocks { drives: wrong, was_scrubbed });
    }
    manifest.care.takeovers.last().map(Takeover::shown).map(Condition::SpareInUse)
}
