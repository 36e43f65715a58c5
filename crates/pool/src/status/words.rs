//! Describes a pool's state in words, with the next command.

use crate::Inner;
use crate::jobs::convert::NO_ROOM;
use crate::jobs::is_resync_due;
use crate::jobs::rebalance_plan::room;
use crate::manifest::care::{LastScrub, Takeover};
use crate::manifest::drive_record::{DriveRecord, Exclusion, ExclusionKind, Role};
use crate::manifest::format::Manifest;
use crate::manifest::volume_record::{PartRecord, Pin, VolumeRecord};
use crate::membership::replacement::replacement_bytes;
use crate::open_volumes::OpenVolumes;
use crate::space::slabs::FreeSlabs;
use crate::sparing::planner::SparePlanner;
use crate::status::{DriveState, DriveStatus, VolumeInfo, VolumeState};
use crate::volume::conversion::in_words;
use crate::volume::thin::slabs_in_use;
use stripewise_array::rows::{Run, SlotState};

impl Inner {
    /// Returns the description of the state, and the next command.
    pub(crate) fn in_words(
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
            .filter(|(drive, record)| !is_fine(drive) && !record.replaced)
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
        if let Some(drive) = self.news.full_drive() {
            return full_in_words(pool, &drive);
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
            if out.is_empty() {
                let condition = format!(
                    "everything can be read and written, but volume {} {left}: a copy of its map or journal is lacking, for which \
                     the other drives may have no room",
                    volume.name
                );
                return (condition, remedy(pool, &out));
            }
            let mut condition = format!(
                "{} out of service: {listed}; everything can be read and written, volume {} {left}",
                counted(out.len(), "drive"),
                volume.name,
            );
            // Before a person brings a drive, the pool helps itself; not with others where it is
            // back.
            let is_back = out.iter().any(|drive| drive.state == DriveState::Behind);
            let reckon = |planner: &SparePlanner| prospect(planner, manifest, self.space.borrow().clone());
            let prospect = self.status_memo.prospect(manifest, self.spare_planner(), reckon);
            if let Some(prospect) = prospect.filter(|_| !is_back) {
                condition += &format!("; {prospect}");
                return (condition, format!("stripewise pool wait {pool} rebuild"));
            }
            return (condition, remedy(pool, &out));
        }
        if let Some(first) = out.first() {
            let holds_nothing = |drive: &DriveStatus| {
                let record = manifest.drive_by_id(drive.id);
                record.is_some_and(|record| !manifest.is_needed(record.number))
            };
            let is_gone =
                |drive: &&DriveStatus| matches!(drive.state, DriveState::Missing | DriveState::Failed);
            if out.iter().all(|drive| is_gone(drive) && holds_nothing(drive)) {
                let condition = format!(
                    "all volumes are whole without {listed}; `pool replace` puts a new drive in its place, and gives the room back"
                );
                return (condition, format!("stripewise pool remove {pool} {}", first.id));
            }
            let condition = format!("all volumes are whole; out of service: {listed}");
            return (condition, remedy(pool, &out));
        }
        if self.volumes.arrays().iter().any(is_resync_due) {
            let condition = "all there; what a crash left open is still to be compared".to_owned();
            return (condition, format!("stripewise pool wait {pool} scrub"));
        }
        let retiring: Vec<&str> = drives
            .iter()
            .filter(|drive| drive.state == DriveState::Retiring)
            .map(|drive| drive.path.as_str())
            .collect();
        if let Some(condition) = replacements_in_words(&self.volumes, manifest) {
            return (condition, format!("stripewise pool wait {pool} rebuild"));
        }
        if let Some(why) = self.retiring_without_room(manifest) {
            return (format!("all there, but {why}"), format!("stripewise pool add {pool} NEW-DRIVE"));
        }
        if !retiring.is_empty() {
            let condition = format!("all there; {} is being emptied", retiring.join(", "));
            return (condition, format!("stripewise pool wait {pool} rebuild"));
        }
        let conversion = |volume: &VolumeInfo| {
            let status = volume.conversion.as_ref()?;
            let (from, to) = (in_words(&status.from), in_words(&volume.shape));
            Some((
                status.waits.clone(),
                format!("volume {} is being converted from {from} to {to}", volume.name),
            ))
        };
        match volumes.iter().find_map(conversion) {
            Some((Some(waits), running)) => {
                let is_full = waits.contains(NO_ROOM);
                let action = match is_full {
                    true => format!("stripewise pool add {pool} NEW-DRIVE"),
                    false => format!("stripewise pool wait {pool} convert"),
                };
                return (format!("all there; {running}. {waits}"), action);
            }
            Some((None, running)) => {
                return (format!("all there; {running}"), format!("stripewise pool wait {pool} convert"));
            }
            None => {}
        }
        if let Some(told) = care_in_words(manifest, drives) {
            return told;
        }
        if manifest.rebalance.is_some() {
            let condition = "all there; what volumes take is being spread over all drives".to_owned();
            return (condition, format!("stripewise pool wait {pool} rebalance"));
        }
        if self.would_gain(manifest) {
            let room = room(manifest, &self.space.borrow());
            let mib = (room.free_slabs - room.usable_slabs) * (manifest.slab_bytes >> 20);
            let condition = format!(
                "all there; {mib} MiB that are free can be used only when rows are spread over all drives"
            );
            return (condition, format!("stripewise pool rebalance {pool}"));
        }
        if let Some(short) = space_in_words(manifest, slabs_in_use(manifest, &self.space.borrow())) {
            return (short, format!("stripewise pool add {pool} NEW-DRIVE"));
        }
        ("all drives are there and all volumes have all their redundancy".to_owned(), String::new())
    }

    /// Why a drive that is to be emptied cannot be. It had room when that was asked for; others may
    /// have gone since, or something new may have taken it.
    fn retiring_without_room(&self, manifest: &Manifest) -> Option<String> {
        let first = manifest.drives.iter().find(|drive| drive.retiring && drive.is_online())?;
        self.status_memo.evacuation(manifest, self.spare_planner(), |planner| {
            let room = planner.check_evacuation(manifest, &self.space.borrow(), first.number);
            room.err().map(|error| error.to_string())
        })
    }

    /// Returns all notices for the administrator.
    pub(crate) fn all_notices(&self) -> Vec<String> {
        let mut notices = self.news.notices();
        let manifest = self.manifest.borrow();
        let wanted: u64 = thin_parts(&manifest)
            .map(|part| (part.rows.rows() - part.rows.allocated_rows()) * part.rows.width() as u64)
            .sum();
        let (used, all) = slabs_in_use(&manifest, &self.space.borrow());
        let free = all.saturating_sub(used);
        if wanted > free {
            notices.push(format!(
                "thin volumes may still want {wanted} slabs of {} MiB, {free} are free",
                manifest.slab_bytes >> 20
            ));
        }
        notices.extend(space_in_words(&manifest, (used, all)));
        notices.extend(thin_without_drives(
            &manifest,
            self.drives.count_with_room(&manifest, &self.space.borrow(), &[Role::Data]),
        ));
        notices.extend(manifest.care.takeovers.iter().map(takeover_in_words));
        notices.extend(self.retiring_without_room(&manifest));
        let is_away = |number: u32| self.working_member(number).is_none();
        for volume in &manifest.volumes {
            let lost: usize = volume.parts.iter().map(|part| part.lost_journals(is_away)).sum();
            if lost > 0 {
                notices.push(format!(
                    "{} of the journal of volume {} on drives that are gone; the others do its work",
                    counted(lost, "area"),
                    volume.name
                ));
            }
        }
        notices
    }
}

/// Describes how jobs will restore all redundancy without help: with a spare, or in free space.
/// `None` if they cannot restore all of it.
fn prospect(planner: &SparePlanner, manifest: &Manifest, mut books: FreeSlabs) -> Option<String> {
    let mut planned = manifest.clone();
    let is_gone = |drive: &&DriveRecord| drive.is_online() && !planner.working.contains(&drive.number);
    let gone: Vec<Exclusion> = manifest
        .drives
        .iter()
        .filter(is_gone)
        .map(|drive| Exclusion { drive: drive.number, reason: String::new(), kind: ExclusionKind::Missing })
        .collect();
    planned.exclude(&gone);
    planned.end_replacements();
    let spare = planner.next_for_spare(&planned).and_then(|(_, spare)| planned.drive(spare));
    let spare = spare.map(|spare| spare.path.clone());
    books.refresh(&planned);
    planner.plan(&mut planned, &mut books);
    let lacks = |run: &Run| run.places.iter().any(|place| place.state == SlotState::Missing);
    if planned.parts().any(|part| part.rows.runs().any(lacks)) {
        return None;
    }
    Some(match spare {
        Some(path) => format!("the spare {path} takes over"),
        None => "the other drives have room for what is lacking".to_owned(),
    })
}

/// Drives that are being replaced while they work, and how far that is.
fn replacements_in_words(volumes: &OpenVolumes, manifest: &Manifest) -> Option<String> {
    let in_words = |(old, new): (u32, u32)| {
        let (from, to) = (manifest.drive(old)?, manifest.drive(new)?);
        let (done, all) = replacement_bytes(volumes, manifest, (old, new));
        let percent = if all > 0.0 { done * 100.0 / all } else { 0.0 };
        let line = format!("replacing {} with {}, {percent:.1} % done", from.path, to.path);
        from.is_online().then_some(line)
    };
    let lines: Vec<String> = manifest.replacements().filter_map(in_words).collect();
    (!lines.is_empty()).then(|| {
        format!("all there; {}: until then both are used, and no redundancy is missing", lines.join("; "))
    })
}

/// Returns a warning if used space has reached the threshold and thin volumes can still grow.
fn space_in_words(manifest: &Manifest, (used, all): (u64, u64)) -> Option<String> {
    let warn = u64::from(manifest.settings.space_warning_percent);
    // Space that was given to volumes for good is no reason to worry; thin ones that may want
    // more are.
    let has_holes = thin_parts(manifest).any(|part| part.rows.allocated_rows() < part.rows.rows());
    (has_holes && all > 0 && used * 100 >= all * warn).then(|| {
        format!(
            "space is short: {} % of it is taken ({used} of {all} slabs), and thin volumes may want more. When it is full, \
             writes to places of theirs that were never written fail; all else goes on",
            used * 100 / all
        )
    })
}

/// Thin volumes that get no new space while drives are out of service.
fn thin_without_drives(manifest: &Manifest, (working, away): (usize, usize)) -> Option<String> {
    let wants = |volume: &&VolumeRecord| {
        let part = volume.parts.last().filter(|_| volume.thin && volume.pin != Pin::Fast);
        part.is_some_and(|part| {
            let width = part.rows.width();
            part.rows.allocated_rows() < part.rows.rows() && working < width && working + away >= width
        })
    };
    let names: Vec<&str> = manifest.volumes.iter().filter(wants).map(|volume| volume.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "thin volumes get no new space until all drives are back: each row takes more drives than the {working} in \
             service ({}). What was written before can be read and written",
            names.join(", ")
        )
    })
}

/// Parts for which thin volumes may allocate more rows.
fn thin_parts(manifest: &Manifest) -> impl Iterator<Item = &PartRecord> {
    manifest.volumes.iter().filter(|volume| volume.thin).filter_map(|volume| volume.parts.last())
}

fn is_fine(drive: &DriveStatus) -> bool {
    drive.state.takes_part()
}

/// Describes a full file system under a drive, with the remedy.
pub(crate) fn full_in_words(pool: &str, drive: &str) -> (String, String) {
    let condition = format!(
        "writing stopped: the file system under {drive} is full (ENOSPC). Everything written before can be read, and volumes can be \
         deleted"
    );
    (condition, format!("free space there, or: stripewise volume delete {pool}/VOL --yes"))
}

fn takeover_in_words(takeover: &Takeover) -> String {
    format!("spare {} took the place of {}", takeover.spare_path, takeover.path)
}

/// Describes conditions not yet acknowledged: wrong blocks, and spares in use.
fn care_in_words(manifest: &Manifest, drives: &[DriveStatus]) -> Option<(String, String)> {
    let pool = &manifest.name;
    let wrong: Vec<String> = drives
        .iter()
        .filter(|drive| drive.checksum_errors > 0)
        .map(|drive| format!("{} ({})", drive.path, drive.checksum_errors))
        .collect();
    let clear = format!("stripewise pool clear {pool}");
    if !wrong.is_empty() {
        let condition = format!(
            "all there; blocks were found wrong on {}, and repaired where there is redundancy. A drive that goes on \
             like this should be replaced; `{clear}` sets the counts back",
            wrong.join(", ")
        );
        let counted = drives.iter().fold(0, |sum: u64, drive| sum.saturating_add(drive.checksum_errors));
        let is_old = |scrub: &LastScrub| scrub.is_clean() && scrub.counted_before == counted;
        let was_clean = manifest.care.last_scrub.as_ref().is_some_and(is_old);
        return Some((
            condition,
            if was_clean { clear } else { format!("stripewise pool scrub {pool} --wait") },
        ));
    }
    let takeover = manifest.care.takeovers.last()?;
    Some((format!("all there; {}", takeover_in_words(takeover)), clear))
}

/// Returns the remedy for drives that are out of service.
fn remedy(pool: &str, out: &[&DriveStatus]) -> String {
    match out.first() {
        None => format!("stripewise pool wait {pool} rebuild"),
        Some(_) if out.iter().any(|drive| drive.state == DriveState::Behind) => {
            format!("stripewise pool wait {pool} rebuild")
        }
        Some(drive) if drive.state == DriveState::Offline => {
            format!("stripewise pool online {pool} {}", drive.id)
        }
        // It is there, and may be filled again.
        Some(drive) if drive.state == DriveState::Stale => {
            format!("stripewise pool replace {pool} {} {}", drive.id, drive.path)
        }
        Some(drive) => format!("stripewise pool replace {pool} {} NEW-DRIVE", drive.id),
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
