//! How a pool is: plain data for people and for JSON, with what it means and what to do next in words.

use serde::Serialize;
use stripewise_layout::Shape;

use super::format::{DriveRecord, MIB, Manifest, Role, SlotState, Standing, VolumeRecord};
use super::ids::{DriveId, PoolId, VolumeId};
use super::jobs::{Current, JobKind, is_resync_due, written_per_region};
use super::{Inner, Pool, space};

/// How a pool is as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolState {
    /// All volumes have all of their redundancy.
    Online,
    /// Every volume can be read and written, some with less redundancy.
    Degraded,
    /// Some volume has lost more than it can do without.
    Failed,
}

/// How a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// All there.
    Online,
    /// Works, with less redundancy.
    Degraded,
    /// Works; a replacement is being filled.
    Rebuilding,
    /// More is gone than the layout can do without.
    Failed,
}

/// A drive of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriveStatus {
    /// Its identity.
    pub id: DriveId,
    /// Where it is, or was last seen.
    pub path: String,
    /// What it is for.
    pub role: Role,
    /// `online`, `rebuilding`, `missing` (not there), `failed` (excluded after errors) or `stale` (there, but out of date).
    pub state: String,
    /// Reads that failed since it belongs to the pool.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Blocks of 4 KiB found wrong.
    pub checksum_errors: u64,
    /// Its size, bytes.
    pub capacity_bytes: u64,
    /// Why it is out, where it is.
    pub reason: Option<String>,
}

/// A job under way or due.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// What it does.
    pub kind: JobKind,
    /// Part done.
    pub percent: f64,
    /// Speed of late, 10^6 bytes per second; 0 where it waits for its turn.
    pub mb_per_s: f64,
    /// Time to go at that speed; `None` where that cannot be told yet.
    pub seconds_left: Option<f64>,
    /// The volume.
    pub volume: String,
    /// The drive being rebuilt.
    pub drive: Option<DriveId>,
}

/// A pool; serialises to what `pool status --json` prints of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: PoolId,
    /// How it is.
    pub state: PoolState,
    /// Space for volumes on all data drives, redundancy included, bytes.
    pub capacity_bytes: u64,
    /// What of it volumes take, bytes.
    pub allocated_bytes: u64,
    /// All drives that belong, present or not.
    pub drives: Vec<DriveStatus>,
    /// Jobs.
    pub activity: Vec<Activity>,
    /// What the state means.
    pub condition: String,
    /// What to type next; empty where nothing is to be done.
    pub action: String,
    /// The volumes.
    pub volumes: Vec<VolumeInfo>,
    /// What else a person should know.
    pub notices: Vec<String>,
    /// Share of each drive's time for rebuilds while there is other load, percent.
    pub rebuild_priority_percent: u32,
    /// Commits so far.
    pub generation: u64,
}

/// What a slot of a volume holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotStatus {
    /// The drive that has it, or had it last.
    pub drive: DriveId,
    /// `active`, `missing`, `rebuilding`; `away`: current, but not there.
    pub state: String,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeInfo {
    /// Its identity.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: VolumeState,
    /// Level, members, groups, interleave.
    #[serde(flatten)]
    pub shape: Shape,
    /// Usable bytes.
    pub capacity_bytes: u64,
    /// Bytes that it takes on all its drives together.
    pub allocated_bytes: u64,
    /// Bytes in regions ever written; `None` where the volume is not open.
    pub written_bytes: Option<u64>,
    /// How many more drives may fail, in whatever combination.
    pub redundancy_left: usize,
    /// Blocks of 4 KiB that are lost: reading them is an error until they are written.
    pub lost_blocks: u64,
    /// Its slots in order.
    pub slots: Vec<SlotStatus>,
    /// Why it cannot be read, where it cannot.
    pub failure: Option<String>,
    /// Drives that would help, by path and identity.
    pub needed: Vec<String>,
}

impl Pool {
    /// How the pool is now.
    pub fn status(&self) -> PoolStatus {
        self.0.status()
    }

    /// All volumes, also those that cannot be read.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let manifest = self.0.manifest.borrow();
        manifest.volumes.iter().map(|volume| self.0.volume_info(&manifest, volume)).collect()
    }

    /// Jobs under way or due.
    pub fn activity(&self) -> Vec<Activity> {
        self.0.activity()
    }
}

impl Inner {
    fn status(&self) -> PoolStatus {
        let manifest = self.manifest.borrow();
        let volumes: Vec<VolumeInfo> =
            manifest.volumes.iter().map(|volume| self.volume_info(&manifest, volume)).collect();
        let state = if volumes.iter().any(|volume| volume.state == VolumeState::Failed) {
            PoolState::Failed
        } else if volumes.iter().any(|volume| volume.state != VolumeState::Online) {
            PoolState::Degraded
        } else {
            PoolState::Online
        };
        let data = manifest.drives.iter().filter(|drive| drive.role == Role::Data && !drive.replaced).count();
        let space = space::common_end_bytes(&manifest).saturating_sub(MIB);
        let drives: Vec<DriveStatus> =
            manifest.drives.iter().map(|drive| self.drive_status(&manifest, drive)).collect();
        let (condition, action) = self.in_words(&manifest, &volumes, &drives);
        PoolStatus {
            name: manifest.name.clone(),
            id: self.pool_id,
            state,
            capacity_bytes: space * data as u64,
            allocated_bytes: volumes.iter().map(|volume| volume.allocated_bytes).sum(),
            drives,
            activity: self.activity(),
            condition,
            action,
            volumes,
            notices: self.notices.borrow().clone(),
            rebuild_priority_percent: manifest.rebuild_priority_percent,
            generation: manifest.generation,
        }
    }

    fn drive_status(&self, manifest: &Manifest, drive: &DriveRecord) -> DriveStatus {
        let open = self.open_drive(drive.number);
        let errors = open.as_ref().map_or(drive.errors, |open| open.errors());
        let failed = open.as_ref().and_then(|open| open.member.failed());
        let is_rebuilding = manifest
            .volumes
            .iter()
            .flat_map(|volume| &volume.slots)
            .any(|slot| slot.drive == drive.number && matches!(slot.state, SlotState::Rebuilding { .. }));
        let (state, reason) = match (&drive.standing, open.is_some()) {
            (_, _) if failed.is_some() => ("failed", failed.map(|why| why.to_string())),
            (_, false) if self.stale.borrow().contains(&drive.number) => (
                "stale",
                Some("it was away while the pool was used: what it holds is out of date".to_owned()),
            ),
            (Standing::Online, false) => ("missing", Some("it was not found".to_owned())),
            (Standing::Online, true) if is_rebuilding => ("rebuilding", None),
            (Standing::Online, true) => ("online", None),
            (Standing::Excluded { reason, missing: true }, _) => ("missing", Some(reason.clone())),
            (Standing::Excluded { reason, missing: false }, _) => ("failed", Some(reason.clone())),
        };
        DriveStatus {
            id: drive.id,
            path: drive.path.clone(),
            role: drive.role,
            state: state.to_owned(),
            read_errors: errors.read,
            write_errors: errors.write,
            checksum_errors: errors.checksum,
            capacity_bytes: drive.capacity_bytes,
            reason,
        }
    }

    fn volume_info(&self, manifest: &Manifest, volume: &VolumeRecord) -> VolumeInfo {
        let array = self.array(volume.id);
        let is_away = |number: u32| self.working_member(number).is_none();
        // What the array knows is newer than what is recorded.
        let state_of = |index: usize| match &array {
            Some(array) if array.missing().contains(index) => match volume.slots[index].state {
                SlotState::Active => "away",
                _ => "missing",
            },
            Some(array) if array.rebuild_progress(index).is_some() => "rebuilding",
            Some(_) if is_away(volume.slots[index].drive) => "away",
            Some(_) => "active",
            None => match volume.slots[index].state {
                SlotState::Active if is_away(volume.slots[index].drive) => "away",
                SlotState::Active => "active",
                SlotState::Missing => "missing",
                SlotState::Rebuilding { .. } => "rebuilding",
            },
        };
        let slots: Vec<SlotStatus> = (0..volume.slots.len())
            .map(|index| SlotStatus {
                drive: manifest.drive(volume.slots[index].drive).map_or(super::Id(0), |drive| drive.id),
                state: state_of(index).to_owned(),
            })
            .collect();
        let lacking = (0..slots.len()).filter(|&index| slots[index].state != "active").collect();
        let geometry = volume.spec().geometry().ok().map(|(geometry, _)| geometry);
        let readable =
            array.is_some() && geometry.as_ref().is_some_and(|geometry| geometry.survives(&lacking));
        let state = if !readable {
            VolumeState::Failed
        } else if lacking.is_empty() {
            VolumeState::Online
        } else if slots.iter().any(|slot| slot.state == "rebuilding") {
            VolumeState::Rebuilding
        } else {
            VolumeState::Degraded
        };
        let failure = (!readable).then(|| {
            let recorded = self.failures.borrow().get(&volume.id).cloned();
            recorded.unwrap_or_else(|| {
                format!(
                    "{} of its {} drives are gone, more than {} can do without; it takes no writes",
                    lacking.len(),
                    slots.len(),
                    volume.shape.level
                )
            })
        });
        VolumeInfo {
            id: volume.id,
            name: volume.name.clone(),
            state,
            shape: volume.shape,
            capacity_bytes: geometry.map_or(0, |geometry| geometry.capacity_bytes()),
            allocated_bytes: volume.space_bytes * volume.slots.len() as u64,
            written_bytes: array.as_ref().map(|array| array.written_bytes()),
            redundancy_left: volume.shape.fault_tolerance().saturating_sub(lacking.len()),
            lost_blocks: match &array {
                Some(array) => array.lost_blocks().len() as u64,
                None => volume.lost.iter().map(|lost| lost.2).sum(),
            },
            slots,
            needed: if readable { Vec::new() } else { self.needed_drives(volume) },
            failure,
        }
    }

    fn activity(&self) -> Vec<Activity> {
        let manifest = self.manifest.borrow();
        let rebuilding = self.jobs.rebuilding.current.borrow().clone();
        let checking = self.jobs.checking.current.borrow().clone();
        let mut all = Vec::new();
        for volume in &manifest.volumes {
            let Some(array) = self.array(volume.id) else { continue };
            for slot in array.rebuilding_slots() {
                let Some(progress) = array.rebuild_progress(slot) else { continue };
                let is_this = |job: &&std::rc::Rc<Current>| job.volume == volume.id && job.slot == Some(slot);
                let rate = rebuilding.as_ref().filter(is_this).map_or(0.0, |job| job.rate());
                let part = progress.next_region as f64 / progress.regions.max(1) as f64;
                let written = array.written_bytes() as f64 / array.capacity_bytes() as f64;
                let all_bytes = (progress.regions * progress.region_bytes) as f64 * written;
                all.push(Activity {
                    kind: JobKind::Rebuild,
                    percent: part * 100.0,
                    mb_per_s: rate / 1e6,
                    seconds_left: seconds_left(all_bytes * (1.0 - part), rate),
                    volume: volume.name.clone(),
                    drive: manifest.drive(volume.slots[slot].drive).map(|drive| drive.id),
                });
            }
            let scrub = manifest.scrub.as_ref().filter(|scrub| scrub.volumes.contains(&volume.id));
            let job = checking.as_ref().filter(|job| job.volume == volume.id);
            if job.is_none() && scrub.is_none() && !is_resync_due(&array) {
                continue;
            }
            let ((done, regions), rate) = job.map_or(((0, 0), 0.0), |job| (job.checked(), job.rate()));
            let left = (regions - done) as f64 * written_per_region(&array);
            all.push(Activity {
                kind: JobKind::Scrub,
                percent: done as f64 * 100.0 / regions.max(1) as f64,
                mb_per_s: rate / 1e6,
                seconds_left: seconds_left(left, rate),
                volume: volume.name.clone(),
                drive: None,
            });
        }
        all
    }

    /// What the state means, and what to type next.
    fn in_words(
        &self,
        manifest: &Manifest,
        volumes: &[VolumeInfo],
        drives: &[DriveStatus],
    ) -> (String, String) {
        let pool = &manifest.name;
        let named = |drive: &DriveStatus| format!("{} ({})", drive.path, drive.state);
        let out: Vec<&DriveStatus> = drives
            .iter()
            .zip(&manifest.drives)
            .filter(|(drive, record)| {
                !matches!(drive.state.as_str(), "online" | "rebuilding") && !record.replaced
            })
            .map(|(drive, _)| drive)
            .collect();
        let listed = out.iter().map(|drive| named(drive)).collect::<Vec<_>>().join(", ");
        if let Some(failed) = volumes.iter().find(|volume| volume.state == VolumeState::Failed) {
            let why = failed.failure.as_deref().unwrap_or("too many drives are gone");
            let mut condition = format!("volume {} has failed: {why}", failed.name);
            let action = if failed.needed.is_empty() {
                format!("stripewise volume delete {pool}/{} --yes", failed.name)
            } else {
                condition += &format!("; with these it could be read again: {}", failed.needed.join(", "));
                format!("stripewise pool import {pool} --dir DIR")
            };
            return (condition, action);
        }
        let lost: u64 = volumes.iter().map(|volume| volume.lost_blocks).sum();
        if lost > 0 {
            let condition = format!(
                "{lost} blocks of 4 KiB are lost, no drive has them any more; all else can be read. Writing them makes \
                 them good again"
            );
            return (condition, format!("stripewise pool scrub {pool} --wait"));
        }
        let rebuilding: Vec<&str> = volumes
            .iter()
            .filter(|volume| volume.state == VolumeState::Rebuilding)
            .map(|volume| volume.name.as_str())
            .collect();
        if !rebuilding.is_empty() {
            let condition = format!(
                "a replacement is being filled; until that is done {} can lose fewer drives than when whole",
                rebuilding.join(", ")
            );
            return (condition, format!("stripewise pool wait {pool} rebuild"));
        }
        let degraded = volumes.iter().find(|volume| volume.state == VolumeState::Degraded);
        if let Some(volume) = degraded {
            let left = match volume.redundancy_left {
                0 => "has no redundancy left".to_owned(),
                left => format!("can lose {} more", counted(left, "drive")),
            };
            let condition = format!(
                "{} out of service: {listed}; everything can be read and written, volume {} {left}",
                counted(out.len(), "drive"),
                volume.name,
            );
            let action = match out.first() {
                Some(drive) => format!("stripewise pool replace {pool} {} NEW-DRIVE", drive.id),
                None => format!("stripewise pool wait {pool} rebuild"),
            };
            return (condition, action);
        }
        if let Some(drive) = out.first() {
            let condition = format!("all volumes are whole; out of service: {listed}");
            return (condition, format!("stripewise pool replace {pool} {} NEW-DRIVE", drive.id));
        }
        if self.arrays.borrow().values().any(is_resync_due) {
            let condition = "all there; what a crash left open is still to be compared".to_owned();
            return (condition, format!("stripewise pool wait {pool} scrub"));
        }
        ("all drives are there and all volumes have all their redundancy".to_owned(), String::new())
    }
}

fn seconds_left(bytes: f64, rate: f64) -> Option<f64> {
    (rate > 0.0 && bytes > 0.0).then(|| bytes / rate)
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
