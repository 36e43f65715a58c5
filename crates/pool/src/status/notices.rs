//! Notices about a pool: what an administrator should know besides the condition. Data only; the
//! crate `control` puts it into words.

use crate::Inner;
use crate::manifest::care::Takeover;
use crate::manifest::drive_record::Role;
use crate::manifest::format::Manifest;
use crate::manifest::volume_record::{PartRecord, Pin, VolumeRecord};
use crate::volume::thin::slabs_in_use;

/// A notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Something that happened since the pool was opened.
    News(String),
    /// Thin volumes may want more space than is free.
    ThinWants {
        /// Slabs that they lack.
        wanted_slabs: u64,
        /// Free slabs.
        free_slabs: u64,
        /// Bytes of a slab.
        slab_bytes: u64,
    },
    /// Thin volumes may run out of space.
    SpaceShort(SpaceUse),
    /// Thin volumes get no new rows while drives are out.
    ThinWithoutDrives {
        /// These volumes.
        volumes: Vec<String>,
        /// Drives in service with space.
        working: usize,
    },
    /// A spare has taken a drive's place.
    SpareInUse(SpareTakeover),
    /// A drive that is to be emptied cannot be.
    CannotEmpty {
        /// The reason.
        why: String,
    },
    /// A volume has a part of a stream, and no command is receiving the rest.
    HalfReceived {
        /// The volume.
        volume: String,
        /// Name of the stream's snapshot.
        snapshot: String,
        /// Name of the volume's snapshot that the stream builds on.
        base: Option<String>,
    },
    /// Journal areas of a volume are on drives that are gone.
    JournalAreasGone {
        /// The volume.
        volume: String,
        /// Their number.
        areas: usize,
    },
}

/// Space that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUse {
    /// Slabs in use.
    pub used_slabs: u64,
    /// All slabs.
    pub slabs: u64,
}

/// A spare that has taken a drive's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpareTakeover {
    /// Path of the spare.
    pub spare: String,
    /// Path of the drive.
    pub drive: String,
    /// Time, seconds since 1970.
    pub unix_s: u64,
}

impl Takeover {
    pub(crate) fn shown(&self) -> SpareTakeover {
        SpareTakeover { spare: self.spare_path.clone(), drive: self.path.clone(), unix_s: self.unix_s }
    }
}

impl Inner {
    /// All notices.
    pub(crate) fn all_notices(&self) -> Vec<Notice> {
        let mut notices: Vec<Notice> = self.news.notices().into_iter().map(Notice::News).collect();
        notices.extend(self.jobs.snapshots_not_taken.borrow().values().cloned().map(Notice::News));
        let manifest = self.manifest.borrow();
        let wanted_slabs: u64 = thin_parts(&manifest)
            .map(|part| (part.rows.rows() - part.rows.allocated_rows()) * part.rows.width() as u64)
            .sum();
        let (used, all) = slabs_in_use(&manifest, &self.space.borrow());
        let free_slabs = all.saturating_sub(used);
        if wanted_slabs > free_slabs {
            notices.push(Notice::ThinWants { wanted_slabs, free_slabs, slab_bytes: manifest.slab_bytes });
        }
        notices.extend(self.short_space(&manifest).map(Notice::SpaceShort));
        let drives = self.drives.count_with_room(&manifest, &self.space.borrow(), &[Role::Data]);
        notices.extend(thin_without_drives(&manifest, drives));
        notices.extend(manifest.care.takeovers.iter().map(Takeover::shown).map(Notice::SpareInUse));
        notices.extend(self.retiring_without_room(&manifest).map(|why| Notice::CannotEmpty { why }));
        let is_away = |number: u32| self.working_member(number).is_none();
        for volume in &manifest.volumes {
            let areas: usize = volume.parts.iter().map(|part| part.lost_journals(is_away)).sum();
            if areas > 0 {
                notices.push(Notice::JournalAreasGone { volume: volume.name.clone(), areas });
            }
            let is_running = || self.volumes.io(volume).is_some_and(|io| io.receives.get());
            if let Some(receiving) = volume.receiving.as_ref().filter(|_| !is_running()) {
                let (snapshot, base) = (receiving.snapshot.clone(), receiving.base.clone());
                notices.push(Notice::HalfReceived { volume: volume.name.clone(), snapshot, base });
            }
        }
        notices
    }

    /// The space in use, if it has reached the threshold and thin volumes can still grow. Space
    /// that was given to volumes for good is no reason for a warning.
    pub(crate) fn short_space(&self, manifest: &Manifest) -> Option<SpaceUse> {
        let (used_slabs, slabs) = slabs_in_use(manifest, &self.space.borrow());
        let warn = u64::from(manifest.settings.space_warning_percent);
        let has_holes = thin_parts(manifest).any(|part| part.rows.allocated_rows() < part.rows.rows());
        let is_short = has_holes && slabs > 0 && used_slabs * 100 >= slabs * warn;
        is_short.then_some(SpaceUse { used_slabs, slabs })
    }
}

/// Thin volumes that get no new space while drives are out of service.
fn thin_without_drives(manifest: &Manifest, (working, away): (usize, usize)) -> Option<Notice> {
    let wants = |volume: &&VolumeRecord| {
        let part = volume.parts.last().filter(|_| volume.thin && volume.pin != Pin::Fast);
        part.is_some_and(|part| {
            let width = part.rows.width();
            part.rows.allocated_rows() < part.rows.rows() && working < width && working + away >= width
        })
    };
    let volumes: Vec<String> =
        manifest.volumes.iter().filter(wants).map(|volume| volume.name.clone()).collect();
    (!volumes.is_empty()).then_some(Notice::ThinWithoutDrives { volumes, working })
}

/// Parts for which thin volumes may allocate more rows.
fn thin_parts(manifest: &Manifest) -> impl Iterator<Item = &PartRecord> {
    manifest.volumes.iter().filter(|volume| volume.thin).filter_map(|volume| volume.parts.last())
}
