//! Making a volume: what is wanted, where it goes, and its record.
//!
//! A volume's region map is prepared before the manifest names it, so a cut in between leaves only
//! space that is not in use. Faults expected: too little room, drives that fail while it is made.

use stripewise_layout::{LayoutSpec, Level, Slicing};

use crate::error::PoolError;
use crate::manifest::drive_record::Role;
use crate::manifest::events::EventKind;
use crate::manifest::format::{Manifest, check_name};
use crate::manifest::ids::Id;
use crate::manifest::received::ReceivingRecord;
use crate::manifest::slice_record::{MOST_SLICES, SliceRecord};
use crate::manifest::volume_record::{JournalPlaceRecord, PartRecord, Pin, RESERVE_PERCENT, VolumeRecord};
use crate::news::News;
use crate::space::new_log::{LogWish, largest_log, lay_out_log};
use crate::space::new_slices::{LaidOutParts, lay_out_parts};
use crate::space::new_volume::{LaidOut, NotLaidOut, Wish};
use crate::superblock::commit::{Change, leave_out_excluded};
use crate::volume::Volume;
use crate::volume::log::LogArray;
use crate::{BLOCK_BYTES, Inner, Pool};
use stripewise_array::{ArrayHandle, ArraySpec};

/// No volume is larger.
pub(crate) const MOST_VOLUME_BYTES: u64 = 1 << 60;

/// Specification of a new volume.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Its name.
    pub name: String,
    /// Its layout.
    pub layout: LayoutSpec,
    /// Size in bytes, rounded up to blocks of 4 KiB; `None`: all free space.
    pub size_bytes: Option<u64>,
    /// Takes space only where it is written, so it may be larger than what there is.
    pub thin: bool,
    /// Writes are acknowledged when the journal has them; left out: when they are in place.
    pub write_back: Option<bool>,
    /// True if blocks have checksums, which is the default.
    pub checksums: Option<bool>,
    /// Kind of drives that the volume stays on.
    pub pin: Pin,
    /// Makes a log volume, whose clients do not get this share of the space, percent.
    pub log: Option<u32>,
    /// Number of slices, 1 to 8; left out: 1.
    pub slices: Option<u32>,
}

impl VolumeSpec {
    /// A volume of a layout, on all the space that is free, everything else as usual.
    pub fn new(name: &str, layout: LayoutSpec) -> Self {
        Self {
            name: name.to_owned(),
            layout,
            size_bytes: None,
            thin: false,
            write_back: None,
            checksums: None,
            pin: Pin::None,
            log: None,
            slices: None,
        }
    }
}

impl Default for VolumeSpec {
    fn default() -> Self {
        Self::new("", LayoutSpec::new(Level::Single))
    }
}

impl Pool {
    /// Creates a volume: nothing was ever written to it, so it reads as zeros and needs no
    /// initialisation.
    pub async fn create_volume(&self, spec: VolumeSpec) -> Result<Volume, PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        check_name(&spec.name).map_err(|why| PoolError::BadName {
            what: "volume",
            name: spec.name.clone(),
            why,
        })?;
        let _alone = inner.administer().await?;
        inner.freed.until_reclaimed().await;
        inner.create(&spec, None).await?;
        self.volume(&spec.name)
    }

    /// The size that a volume would have on all space that is free now; nothing is created.
    pub fn room_for(&self, spec: &VolumeSpec) -> Result<u64, PoolError> {
        let spec = VolumeSpec { size_bytes: None, thin: false, ..spec.clone() };
        let (record, laid_out) = self.0.plan_volume(&spec)?;
        laid_out.give_back(&mut self.0.space.borrow_mut());
        Ok(record.size_bytes)
    }
}

impl Inner {
    /// Creates a volume; `receiving`: a log that is to receive this stream.
    pub(crate) async fn create(
        &self,
        spec: &VolumeSpec,
        receiving: Option<ReceivingRecord>,
    ) -> Result<(), PoolError> {
        let (mut record, laid_out) = self.plan_volume(spec)?;
        for log in record.parts.iter_mut().filter_map(|part| part.log.as_mut()) {
            log.snapshots = receiving.is_some();
        }
        record.receiving = receiving;
        note_where_journal_is(&self.news, &self.manifest.borrow(), &record.name, &record.parts[0]);
        let name = record.name.clone();
        let made = self.make_volume(record).await;
        match made {
            Ok(made) => {
                // A drive may have been excluded since the commit.
                match &made {
                    Made::InPlace(arrays) => {
                        for array in arrays {
                            self.volumes.insert(Id(array.spec().id), array.clone());
                            leave_out_excluded(&self.manifest.borrow(), array);
                        }
                    }
                    Made::Log(log) => {
                        self.volumes.insert_log(log.clone());
                        self.follow_record(log);
                    }
                }
                self.note_space();
                self.note_fast_drives();
            }
            Err(error) => {
                self.news.take_back(&creation(&name));
                laid_out.give_back(&mut self.space.borrow_mut());
                return Err(error);
            }
        }
        Ok(())
    }

    async fn make_volume(&self, record: VolumeRecord) -> Result<Made, PoolError> {
        let mut planned = self.manifest.borrow().clone();
        planned.volumes.push(record.clone());
        self.commits.check_growth(&planned)?;
        let part = &record.parts[0];
        let made = match &part.log {
            None => Made::InPlace(self.create_arrays(&record, &record.parts).await?),
            Some(log) => Made::Log(self.create_log(&record, part, log).await?),
        };
        self.news.event(EventKind::Volume, &creation(&record.name));
        let committed = self.commit_volume(record).await;
        if let Err(error) = committed {
            match made {
                Made::InPlace(arrays) => call_off(&arrays).await,
                Made::Log(log) => log.end().await,
            }
            return Err(error);
        }
        Ok(made)
    }

    /// Makes the arrays of new parts: all, or none.
    pub(crate) async fn create_arrays(
        &self,
        record: &VolumeRecord,
        parts: &[PartRecord],
    ) -> Result<Vec<ArrayHandle>, PoolError> {
        let mut arrays = Vec::new();
        for part in parts {
            match self.create_array(self.array_init(record, part)).await {
                Ok(array) => arrays.push(array),
                Err(error) => {
                    call_off(&arrays).await;
                    return Err(error.into());
                }
            }
        }
        Ok(arrays)
    }

    async fn commit_volume(&self, record: VolumeRecord) -> Result<(), PoolError> {
        self.try_commit(None, move |manifest| {
            let drives = record.parts.iter().flat_map(PartRecord::drives);
            let lost = drives.into_iter().find(|drive| !manifest.is_online(*drive));
            if let Some(lost) = lost {
                let drive = manifest.drive(lost).map_or_else(String::new, |drive| drive.path.clone());
                return Err(PoolError::Job(format!(
                    "{drive} failed while volume {} was being created; nothing was created",
                    record.name
                )));
            }
            manifest.volumes.push(record);
            Ok(Change::Commit(()))
        })
        .await
    }

    /// Drives that rows of a volume go to.
    pub(crate) fn drives_for(&self, pin: Pin) -> Vec<u32> {
        let role = if pin == Pin::Fast { Role::Fast } else { Role::Data };
        self.drives.usable(&self.manifest.borrow(), &self.space.borrow(), role)
    }

    fn plan_log(
        &self,
        manifest: &Manifest,
        spec: &VolumeSpec,
        wish: &LogWish,
        (id, part): (Id, Id),
    ) -> Result<(VolumeRecord, LaidOutParts), PoolError> {
        let laid_out = lay_out_log(&mut self.space.borrow_mut(), wish);
        let (laid_out, log) = laid_out.map_err(|error| match error {
            NotLaidOut::Other(error) => error,
            NotLaidOut::NoRoom { needed_rows, possible_rows } => PoolError::NoSpace {
                pool: manifest.name.clone(),
                volume: spec.name.clone(),
                needed_rows,
                free_rows: possible_rows,
                width: wish.shape.width,
                slab_bytes: wish.slab_bytes,
                drives_with_room: self.space.borrow().drives_with_room(&wish.drives),
                possible_bytes: largest_log(wish, possible_rows),
            },
        })?;
        let part = PartRecord { log: Some(log), ..laid_out.part(part, wish.shape) };
        let record = VolumeRecord {
            id,
            name: spec.name.clone(),
            size_bytes: laid_out.size_bytes,
            thin: false,
            write_back: false,
            checksums: true,
            pin: Pin::None,
            parts: vec![part],
            conversion: None,
            received: None,
            receiving: None,
            clones: Vec::new(),
            schedule: None,
        };
        Ok((record, LaidOutParts { size_bytes: laid_out.size_bytes, parts: vec![laid_out] }))
    }

    fn plan_volume(&self, spec: &VolumeSpec) -> Result<(VolumeRecord, LaidOutParts), PoolError> {
        let manifest = self.manifest.borrow();
        self.check_new_name(&spec.name)?;
        let drives = self.drives_for(spec.pin);
        let shape = spec.layout.resolve(drives.len()).map_err(|error| match spec.pin {
            Pin::Fast => PoolError::BadSetting(format!(
                "volume {} is to be on fast drives, and the pool has {} in service: {error}",
                spec.name,
                drives.len()
            )),
            Pin::None | Pin::Slow => error.into(),
        })?;
        let size_bytes = match spec.size_bytes {
            Some(0) => return Err(PoolError::BadSetting("a volume of 0 bytes holds nothing".to_owned())),
            Some(size) if size > MOST_VOLUME_BYTES => {
                return Err(PoolError::BadSetting(format!(
                    "a volume has at most {MOST_VOLUME_BYTES} bytes, not {size}"
                )));
            }
            size => size.map(|size| size.next_multiple_of(BLOCK_BYTES)),
        };
        let (id, part) = {
            let mut ids = self.ids.borrow_mut();
            (ids.next(), ids.next())
        };
        if let Some(reserve_percent) = spec.log {
            check_log(spec, reserve_percent)?;
            let slab_bytes = manifest.slab_bytes;
            // Its columns cannot move off a drive that leaves.
            let stays = |drive: &u32| manifest.drive(*drive).is_some_and(|drive| !drive.is_leaving());
            let drives = drives.into_iter().filter(stays).collect();
            let wish = LogWish { shape, slab_bytes, reserve_percent, size_bytes, drives };
            return self.plan_log(&manifest, spec, &wish, (id, part));
        }
        let array = ArraySpec { id: part.0, shape, slab_bytes: manifest.slab_bytes };
        // A pool with journal drives is meant to acknowledge writes from them. On disks
        // what is put in place together takes less time.
        let is_seek_bound = self.drives.are_seek_bound(&drives);
        let pays = has_journal_drives(&manifest) || is_seek_bound;
        let write_back = spec.write_back.unwrap_or(pays && shape.parity_units() > 0);
        let checksums = spec.checksums.unwrap_or(true);
        // Without one, what was being written when power was cut would not agree with its checksums
        // afterwards.
        let with_journal = write_back || checksums || shape.parity_units() > 0;
        let slices = spec.slices.unwrap_or(1);
        let slicing = self.slicing(&spec.name, slices, &array, size_bytes, is_seek_bound)?;
        let grain = self.tuning().map_grain;
        let wish =
            Wish { spec: &array, size_bytes, thin: spec.thin, with_journal, grain, is_seek_bound, drives };
        let laid_out = lay_out_parts(&mut self.space.borrow_mut(), &wish, slicing);
        let laid_out = laid_out.map_err(|error| match error {
            NotLaidOut::Other(error) => error,
            NotLaidOut::NoRoom { possible_rows, .. } if spec.thin => PoolError::ThinTooLarge {
                pool: manifest.name.clone(),
                volume: spec.name.clone(),
                size_bytes: size_bytes.unwrap_or(0),
                most_bytes: array.row_data_bytes().map_or(0, |bytes| bytes * possible_rows),
            },
            NotLaidOut::NoRoom { needed_rows, possible_rows } => PoolError::NoSpace {
                pool: manifest.name.clone(),
                volume: spec.name.clone(),
                needed_rows,
                free_rows: possible_rows,
                width: shape.width,
                slab_bytes: manifest.slab_bytes,
                drives_with_room: self.space.borrow().drives_with_room(&wish.drives),
                possible_bytes: array.row_data_bytes().map_or(0, |bytes| bytes * possible_rows),
            },
        })?;
        let record = VolumeRecord {
            id,
            name: spec.name.clone(),
            size_bytes: laid_out.size_bytes,
            thin: spec.thin,
            write_back,
            checksums,
            pin: spec.pin,
            parts: self.parts_of(&laid_out, part, &array, slicing),
            conversion: None,
            received: None,
            receiving: None,
            clones: Vec::new(),
            schedule: None,
        };
        Ok((record, laid_out))
    }

    /// Records of parts that were laid out; the first has the identity `first`.
    pub(crate) fn parts_of(
        &self,
        laid_out: &LaidOutParts,
        first: Id,
        spec: &ArraySpec,
        slicing: Option<Slicing>,
    ) -> Vec<PartRecord> {
        let of = laid_out.parts.len() as u32;
        let record = |(number, part): (u32, &LaidOut)| {
            let id = if number == 0 { first } else { self.ids.borrow_mut().next() };
            let slice =
                slicing.map(|slicing| SliceRecord { number, of, extent_bytes: slicing.extent_bytes() });
            PartRecord { slice, ..part.part(id, spec.shape) }
        };
        (0..).zip(&laid_out.parts).map(record).collect()
    }

    /// Addresses of the slices of new arrays; `None` if there is to be one array.
    pub(crate) fn slicing(
        &self,
        volume: &str,
        slices: u32,
        array: &ArraySpec,
        size_bytes: Option<u64>,
        is_seek_bound: bool,
    ) -> Result<Option<Slicing>, PoolError> {
        if !(1..=MOST_SLICES).contains(&slices) {
            let text = format!("a volume has 1 to {MOST_SLICES} slices, not {slices}");
            return Err(PoolError::BadSetting(text));
        }
        if slices == 1 {
            return Ok(None);
        }
        if is_seek_bound {
            return Err(PoolError::SeekBoundSlices { volume: volume.to_owned(), slices });
        }
        let stripe_bytes = array.geometry()?.stripe_data_bytes();
        let slicing = Slicing::of_stripes(slices as usize, stripe_bytes, self.tuning().slice_extent_bytes);
        if let Some(size_bytes) = size_bytes {
            check_slices_fit(volume, slicing, size_bytes)?;
        }
        Ok(Some(slicing))
    }
}

/// Arrays of a new volume.
enum Made {
    InPlace(Vec<ArrayHandle>),
    Log(LogArray),
}

/// Ends arrays whose creation was not recorded.
pub(crate) async fn call_off(arrays: &[ArrayHandle]) {
    for array in arrays {
        array.call(async |array| array.call_off().await).await;
    }
}

/// Refuses a size in which a slice would be empty.
pub(crate) fn check_slices_fit(volume: &str, slicing: Slicing, size_bytes: u64) -> Result<(), PoolError> {
    let least_bytes = slicing.slices() as u64 * slicing.extent_bytes();
    if size_bytes >= least_bytes {
        return Ok(());
    }
    let (volume, slices) = (volume.to_owned(), slicing.slices() as u32);
    Err(PoolError::TooSmallForSlices { volume, slices, size_bytes, least_bytes })
}

/// Refuses what a log volume has not or always has.
fn check_log(spec: &VolumeSpec, reserve_percent: u32) -> Result<(), PoolError> {
    if !RESERVE_PERCENT.contains(&reserve_percent) {
        let (least, most) = (RESERVE_PERCENT.start(), RESERVE_PERCENT.end());
        let text = format!("a reserve is {least} to {most} percent of a log volume, not {reserve_percent}");
        return Err(PoolError::BadSetting(text));
    }
    let name = &spec.name;
    let what = if spec.thin {
        "a log volume is not thin yet: all its space is allocated when it is created"
    } else if spec.write_back.is_some() {
        "a log volume has no journal: writes are acknowledged from memory and made durable by a flush"
    } else if spec.checksums == Some(false) {
        "a log volume always has checksums"
    } else if spec.slices.is_some_and(|slices| slices != 1) {
        "a log volume cannot be cut into slices"
    } else if spec.pin != Pin::None {
        "a log volume cannot be pinned: it stays on data drives"
    } else {
        return Ok(());
    };
    Err(PoolError::BadSetting(format!("volume {name}: {what}")))
}

/// Says so where a pool has journal drives, yet too few for a volume.
pub(crate) fn note_where_journal_is(news: &News, manifest: &Manifest, volume: &str, part: &PartRecord) {
    let is_elsewhere = |place: &JournalPlaceRecord| {
        manifest.drive(place.drive).is_some_and(|drive| drive.role != Role::Journal)
    };
    if has_journal_drives(manifest) && part.journal.iter().any(is_elsewhere) {
        news.notice(format!(
            "the journal of volume {volume} is on data drives: {} journal drives with room are needed for its redundancy",
            part.shape.fault_tolerance() + 1
        ));
    }
}

fn has_journal_drives(manifest: &Manifest) -> bool {
    manifest.drives.iter().any(|drive| drive.role == Role::Journal && drive.takes_new())
}

fn creation(name: &str) -> String {
    format!("volume {name} was created")
}
