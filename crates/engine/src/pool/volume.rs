//! Volumes of a pool: creating, finding, deleting, and the way in for requests.
//!
//! A volume's region map is prepared before the manifest names it, so a cut in between leaves only space that nobody uses.

use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool};
use stripewise_layout::{Geometry, LayoutSpec, Level};

use super::commit::{Change, map_place};
use super::drive_record::Role;
use super::error::PoolError;
use super::events::EventKind;
use super::format::{MAX_VOLUMES, Manifest, check_name};
use super::ids::{Id, VolumeId};
use super::layout_out::{LaidOut, NotLaidOut, Wish, lay_out};
use super::thin::PoolHost;
use super::volume_io::VolumeIo;
use super::volume_record::{JournalPlaceRecord, PartRecord, Pin, PlaceState, VolumeRecord};
use super::{BLOCK_BYTES, Inner, OpenMode, Pool, VolumeInfo};
use crate::array::{AreaPlace, Array, ArrayInit, ArraySpec};
use crate::error::ArrayError;
use crate::sums::SumsInit;

/// What a new volume should be.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Its name.
    pub name: String,
    /// Its layout.
    pub layout: LayoutSpec,
    /// How much it should hold, bytes, rounded up to blocks of 4 KiB; `None`: all the space that is free.
    pub size_bytes: Option<u64>,
    /// Takes space only where it is written, so it may be larger than what there is.
    pub thin: bool,
    /// Writes are acknowledged when the journal has them; left out: when they are in place.
    pub write_back: Option<bool>,
    /// Whether blocks have checksums; left out: they have.
    pub checksums: Option<bool>,
    /// Whether it stays on fast or on data drives.
    pub pin: Pin,
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
        }
    }
}

impl Default for VolumeSpec {
    fn default() -> Self {
        Self::new("", LayoutSpec::new(Level::Single))
    }
}

/// An open volume. Clones are the same volume.
#[derive(Clone)]
pub struct Volume {
    pool: Pool,
    id: VolumeId,
    name: Rc<str>,
    io: Rc<VolumeIo>,
}

impl Volume {
    /// Its name in the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its identity.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// What reads and writes now, or will when the volume is converted: for tests and measurements.
    pub fn array(&self) -> Array {
        self.io.array()
    }

    /// The pool that it is in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its state now; `None` once it was deleted.
    pub fn info(&self) -> Option<VolumeInfo> {
        self.pool.volumes().into_iter().find(|volume| volume.id == self.id)
    }

    /// Usable bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.io.array().capacity_bytes()
    }

    /// Where requests' buffers come from.
    pub fn buffers(&self) -> &BufferPool {
        &self.pool.0.buffers
    }

    /// Its layout's addresses, for an unbounded length; of the layout to be, where it is being converted.
    pub fn geometry(&self) -> Geometry {
        self.io.array().geometry().clone()
    }

    /// Whether a crash left regions whose copies or parity may disagree.
    pub fn needs_resync(&self) -> bool {
        self.io.arrays().iter().any(Array::needs_resync)
    }

    /// Whether it takes no writes.
    pub fn is_protected(&self) -> bool {
        self.io.arrays().iter().any(Array::is_protected)
    }

    /// Reads; whatever was never written is zeros.
    pub async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        self.io.read(offset_bytes, length).await
    }

    /// Writes; durable when this ends if `fua`, else after the next flush.
    pub async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        self.io.write(offset_bytes, data, fua).await
    }

    /// Makes everything acknowledged so far durable.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        self.io.flush().await
    }

    /// The range's contents are no longer needed; reading it gives zeros or what was there. A thin volume gives rows back of
    /// which nothing is needed any more.
    pub async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.io.discard(&self.pool.0, self.id, offset_bytes, length_bytes).await
    }

    /// The range reads as zeros afterwards; durable after the next flush.
    pub async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.io.write_zeroes(&self.pool.0, self.id, offset_bytes, length_bytes).await
    }
}

impl Pool {
    /// Creates a volume: nothing was ever written to it, so it reads as zeros and needs no initialisation.
    pub async fn create_volume(&self, spec: VolumeSpec) -> Result<Volume, PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        check_name(&spec.name).map_err(|why| PoolError::BadName {
            what: "volume",
            name: spec.name.clone(),
            why,
        })?;
        let _alone = inner.administering.acquire(1).await;
        inner.check_changeable()?;
        inner.until_reclaimed().await;
        inner.create_volume(&spec).await?;
        self.volume(&spec.name)
    }

    /// Finds a volume by name.
    pub fn volume(&self, name: &str) -> Result<Volume, PoolError> {
        self.0.check_open()?;
        let manifest = self.0.manifest.borrow();
        let Some(record) = manifest.volume(name) else {
            return Err(PoolError::NoSuchVolume {
                pool: manifest.name.clone(),
                name: name.to_owned(),
                known: manifest.volumes.iter().map(|volume| volume.name.clone()).collect(),
            });
        };
        let io = self.0.io_of(record).filter(|_| !self.0.failures.borrow().contains_key(&record.id));
        let Some(io) = io else {
            let why = self.0.failures.borrow().get(&record.id).cloned();
            return Err(PoolError::VolumeFailed {
                name: name.to_owned(),
                why: why.unwrap_or_else(|| "it is not open".to_owned()),
                needed: self.0.needed_drives(record),
            });
        };
        Ok(Volume { pool: self.clone(), id: record.id, name: name.into(), io })
    }

    /// Deletes a volume and all that it holds. Requests to it fail from now on.
    pub async fn delete_volume(&self, name: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        let _alone = inner.administering.acquire(1).await;
        inner.check_changeable()?;
        let id = match self.volume(name) {
            Err(error @ PoolError::NoSuchVolume { .. }) => return Err(error),
            _ => inner.manifest.borrow().volume(name).expect("just found").id,
        };
        inner.event(EventKind::Volume, &format!("volume {name} was deleted"));
        inner
            .commit_regardless(None, move |manifest| {
                manifest.volumes.retain(|volume| volume.id != id);
                if let Some(scrub) = &mut manifest.scrub {
                    if scrub.volumes.first() == Some(&id) {
                        scrub.next_region = 0;
                    }
                    scrub.volumes.retain(|volume| *volume != id);
                }
                if manifest.scrub.as_ref().is_some_and(|scrub| scrub.volumes.is_empty()) {
                    manifest.scrub = None;
                }
                manifest.forget_replaced();
                Ok(Change::Commit(()))
            })
            .await?;
        inner.failures.borrow_mut().remove(&id);
        inner.ios.borrow_mut().remove(&id);
        inner.until_reclaimed().await;
        Ok(())
    }
}

impl PartRecord {
    /// What arrays are made from.
    pub(super) fn spec(&self, slab_bytes: u64) -> ArraySpec {
        ArraySpec { id: self.id.0, shape: self.shape, slab_bytes }
    }
}

/// An area of a journal, as arrays know it.
pub(super) fn journal_place(place: &JournalPlaceRecord) -> AreaPlace {
    AreaPlace { drive: place.drive, slab: place.slab, slabs: place.slabs }
}

impl Inner {
    async fn create_volume(&self, spec: &VolumeSpec) -> Result<(), PoolError> {
        let (record, laid_out) = self.plan_volume(spec)?;
        let name = record.name.clone();
        let made = self.make_volume(record).await;
        match made {
            Ok(array) => {
                self.arrays.borrow_mut().insert(Id(array.spec().id), array.clone());
                // A drive may have been excluded since the commit.
                self.leave_out_excluded(&array);
                self.note_space();
                self.note_fast_drives();
            }
            Err(error) => {
                self.happened.borrow_mut().retain(|event| event.text != creation(&name));
                laid_out.give_back(&mut self.space.borrow_mut());
                return Err(error);
            }
        }
        Ok(())
    }

    async fn make_volume(&self, record: VolumeRecord) -> Result<Array, PoolError> {
        let mut planned = self.manifest.borrow().clone();
        planned.volumes.push(record.clone());
        Self::check_room(&planned)?;
        let part = &record.parts[0];
        let init = self.array_init(&record, part);
        let host = PoolHost::of(self);
        let array = Array::create(&self.context, &self.buffers, init, host, self.options.array).await?;
        self.event(EventKind::Volume, &creation(&record.name));
        let committed = self.commit_volume(record).await;
        if let Err(error) = committed {
            array.protect();
            let _ = array.close().await;
            return Err(error);
        }
        Ok(array)
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
    pub(super) fn drives_for(&self, pin: Pin) -> Vec<u32> {
        let space = self.space.borrow();
        let role = if pin == Pin::Fast { Role::Fast } else { Role::Data };
        space.usable(role).into_iter().filter(|drive| self.working_member(*drive).is_some()).collect()
    }

    fn plan_volume(&self, spec: &VolumeSpec) -> Result<(VolumeRecord, LaidOut), PoolError> {
        let manifest = self.manifest.borrow();
        if manifest.volume(&spec.name).is_some() {
            return Err(PoolError::VolumeExists { pool: manifest.name.clone(), name: spec.name.clone() });
        }
        if manifest.volumes.len() >= MAX_VOLUMES {
            return Err(PoolError::TooManyVolumes { allowed: MAX_VOLUMES });
        }
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
        let array = ArraySpec { id: part.0, shape, slab_bytes: manifest.slab_bytes };
        // Whoever gives a pool journal drives wants writes to be acknowledged by them.
        let has_own = has_journal_drives(&manifest);
        let write_back = spec.write_back.unwrap_or(has_own && shape.parity_units() > 0);
        let checksums = spec.checksums.unwrap_or(true);
        // Without one, what was being written when power was cut would not agree with its checksums afterwards.
        let with_journal = write_back || checksums || shape.parity_units() > 0;
        let wish = Wish { spec: &array, size_bytes, thin: spec.thin, with_journal, drives };
        let laid_out = lay_out(&mut self.space.borrow_mut(), &wish).map_err(|error| match error {
            NotLaidOut::Other(error) => error,
            NotLaidOut::NoRoom { needed_rows, possible_rows } => PoolError::NoSpace {
                pool: manifest.name.clone(),
                volume: spec.name.clone(),
                needed_rows,
                free_rows: possible_rows,
                width: shape.width,
                slab_bytes: manifest.slab_bytes,
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
            parts: vec![PartRecord {
                id: part,
                shape,
                meta: laid_out.meta.clone(),
                journal: laid_out.journal.clone(),
                lost: Vec::new(),
                dead: Vec::new(),
                rows: laid_out.rows.clone(),
            }],
            conversion: None,
        };
        self.note_where_journal_is(&manifest, &record.name, &record.parts[0]);
        Ok((record, laid_out))
    }

    /// Says so where a pool has journal drives, yet too few for a volume.
    pub(super) fn note_where_journal_is(&self, manifest: &Manifest, volume: &str, part: &PartRecord) {
        let is_elsewhere = |place: &JournalPlaceRecord| {
            manifest.drive(place.drive).is_some_and(|drive| drive.role != Role::Journal)
        };
        if has_journal_drives(manifest) && part.journal.iter().any(is_elsewhere) {
            self.notice(format!(
                "the journal of volume {volume} is on data drives: {} journal drives with room are needed for its redundancy",
                part.shape.fault_tolerance() + 1
            ));
        }
    }

    /// What the array of a part is made from.
    pub(super) fn array_init(&self, record: &VolumeRecord, part: &PartRecord) -> ArrayInit {
        let slab_bytes = self.manifest.borrow().slab_bytes;
        let map = part.meta.places.iter().filter(|place| place.state == PlaceState::Active);
        let journal = part.journal.iter().filter(|place| place.state == PlaceState::Active);
        ArrayInit {
            spec: part.spec(slab_bytes),
            size_bytes: record.size_bytes,
            rows: part.rows.clone(),
            map: map.map(|place| map_place(part, place)).collect(),
            journal: journal.map(journal_place).collect(),
            journal_epoch: self.manifest.borrow().generation + 1,
            write_back: record.write_back && part.shape.parity_units() > 0,
            checksums: record.checksums.then(|| self.sums_init()),
            members: self.array_members(),
            read_only: self.mode == OpenMode::ReadOnly,
        }
    }

    fn sums_init(&self) -> SumsInit {
        SumsInit {
            first_stamp: self.manifest.borrow().generation << 32,
            cache_bytes: self.options.checksum_cache_bytes.unwrap_or(CHECKSUM_CACHE_BYTES),
        }
    }

    /// Sees to it that arrays that are opened now have a generation of their own.
    async fn begin_stamps(&self) -> Result<(), PoolError> {
        if self.mode == OpenMode::ReadWrite && self.stamped.get() == self.manifest.borrow().generation {
            self.commit(None, |_| ()).await?;
        }
        self.stamped.set(self.manifest.borrow().generation);
        Ok(())
    }

    /// Opens the volumes that can be read and are not open; the others are remembered with the reason.
    pub(super) async fn open_volumes(&self) {
        let records = self.manifest.borrow().volumes.clone();
        let is_open = |record: &VolumeRecord| record.parts.iter().all(|part| self.array(part.id).is_some());
        let to_open: Vec<VolumeRecord> = records.into_iter().filter(|record| !is_open(record)).collect();
        let stamped = match to_open.iter().any(|record| record.checksums && self.may_open(record)) {
            true => self.begin_stamps().await,
            false => Ok(()),
        };
        for record in to_open {
            let record = self.with_journal(record).await;
            let opened = match &stamped {
                Err(error) if record.checksums => Err(error.to_string()),
                _ => self.open_volume(&record).await,
            };
            match opened {
                Ok(()) => self.failures.borrow_mut().remove(&record.id),
                Err(why) => self.failures.borrow_mut().insert(record.id, why),
            };
        }
    }

    /// A volume that is about to be opened, with new areas for its journal where none is left.
    async fn with_journal(&self, record: VolumeRecord) -> VolumeRecord {
        if self.mode == OpenMode::ReadOnly || !self.may_open(&record) {
            return record;
        }
        let parts: Vec<Id> = record.parts.iter().map(|part| part.id).collect();
        self.renew_lost_journals(&parts).await;
        self.manifest.borrow().volume_by_id(record.id).cloned().unwrap_or(record)
    }

    /// Whether enough of a volume's drives are there.
    fn may_open(&self, record: &VolumeRecord) -> bool {
        record.survives(|number| self.working_member(number).is_none())
    }

    async fn open_volume(&self, record: &VolumeRecord) -> Result<(), String> {
        if !self.may_open(record) {
            let level = record.parts.last().map_or(Level::Single, |part| part.shape.level);
            return Err(format!(
                "more of its drives are missing or not rebuilt than {level} can do without: {}",
                self.needed_drives(record).join(", ")
            ));
        }
        let mut arrays = Vec::new();
        for part in &record.parts {
            let init = self.array_init(record, part);
            let host = PoolHost::of(self);
            let array = Array::open(&self.context, &self.buffers, init, host, self.options.array)
                .await
                .map_err(|error| error.to_string())?;
            array.set_lost_blocks(still_lost(part, &array));
            array.set_dead_blocks(part.dead_blocks());
            arrays.push((part.id, array));
        }
        let opened: Vec<Array> = arrays.iter().map(|(_, array)| array.clone()).collect();
        // Arrays that are opened anew are reached by a new way.
        self.ios.borrow_mut().remove(&record.id);
        self.arrays.borrow_mut().extend(arrays);
        if opened.iter().any(Array::journal_began_anew) {
            self.event(
                EventKind::Journal,
                &format!("the journal of volume {} was lost with its drives and begins anew", record.name),
            );
        }
        // A drive may have been excluded since.
        opened.iter().for_each(|array| self.leave_out_excluded(array));
        // What the journal's replay found lost is recorded before the journal may forget why.
        if self.mode == OpenMode::ReadWrite && opened.iter().any(|array| !array.dead_blocks().is_empty()) {
            self.commit(None, |_| ()).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The way to the arrays of a volume, which are open.
    pub(super) fn io_of(&self, record: &VolumeRecord) -> Option<Rc<VolumeIo>> {
        if let Some(io) = self.ios.borrow().get(&record.id) {
            return Some(io.clone());
        }
        let arrays: Option<Vec<Array>> = record.parts.iter().map(|part| self.array(part.id)).collect();
        let io = match (&arrays?[..], record.conversion) {
            ([array], _) => VolumeIo::plain(array.clone()),
            ([old, new], Some(conversion)) => {
                VolumeIo::converting(old.clone(), new.clone(), conversion.next_offset_bytes)
            }
            _ => return None,
        };
        self.ios.borrow_mut().insert(record.id, io.clone());
        Some(io)
    }

    /// Drives whose return would help a volume, by identity and last path.
    pub(super) fn needed_drives(&self, record: &VolumeRecord) -> Vec<String> {
        let manifest = self.manifest.borrow();
        let away = manifest.drives.iter().filter(|drive| {
            self.working_member(drive.number).is_none()
                && record.parts.iter().any(|part| part.needs(drive.number))
        });
        away.map(|drive| format!("{} ({})", drive.path, drive.id)).collect()
    }
}

/// Memory for checksums of each volume, unless the pool's options say otherwise: enough for 200 GB of drives in use at a time.
const CHECKSUM_CACHE_BYTES: usize = 256 << 20;
/// No volume is larger.
const MOST_VOLUME_BYTES: u64 = 1 << 60;

fn has_journal_drives(manifest: &Manifest) -> bool {
    manifest.drives.iter().any(|drive| drive.role == Role::Journal && drive.takes_new())
}

fn creation(name: &str) -> String {
    format!("volume {name} was created")
}

/// Lost blocks, less those of columns that hold nothing current: these are found lost again, or not, when they are filled.
fn still_lost(part: &PartRecord, array: &Array) -> Vec<(usize, u64)> {
    use crate::rows::SlotState::{Active, CatchingUp};
    let blocks_per_slab = array.spec().slab_bytes / BLOCK_BYTES;
    let counts = |&(column, block): &(usize, u64)| {
        let place = part.rows.place(block / blocks_per_slab, column);
        place.is_some_and(|place| matches!(place.state, Active | CatchingUp))
    };
    part.lost_blocks().filter(counts).collect()
}
