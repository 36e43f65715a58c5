//! Volumes of a pool: creating, finding, deleting.
//!
//! A volume's space is prepared before the manifest names it, so a cut in between leaves only space that nobody uses.

use std::ops::Deref;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{IoRequest, Operation};
use stripewise_layout::LayoutSpec;

use super::commit::Change;
use super::error::PoolError;
use super::format::{MAX_VOLUMES, SlotRecord, SlotState, VolumeRecord, check_name};
use super::ids::VolumeId;
use super::{Inner, OpenMode, Pool, PoolMembership, VolumeInfo, space};
use crate::array::{Array, ArraySpec, SlotInit};
use crate::member::{Class, Member};

/// What a new volume should be.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Its name.
    pub name: String,
    /// Its layout.
    pub layout: LayoutSpec,
    /// How much it should hold, bytes, rounded up to what whole MiB of its drives give; `None`: all the space that is
    /// free.
    pub size_bytes: Option<u64>,
}

/// An open volume. Clones are the same volume. It is an [`Array`] with a name.
#[derive(Clone)]
pub struct Volume {
    pool: Pool,
    id: VolumeId,
    name: Rc<str>,
    array: Array,
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

    /// What reads and writes.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// The pool that it is in.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its state now; `None` once it was deleted.
    pub fn info(&self) -> Option<VolumeInfo> {
        self.pool.volumes().into_iter().find(|volume| volume.id == self.id)
    }
}

impl Deref for Volume {
    type Target = Array;

    fn deref(&self) -> &Array {
        &self.array
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
        let Some(array) = self.0.array(record.id) else {
            let why = self.0.failures.borrow().get(&record.id).cloned();
            return Err(PoolError::VolumeFailed {
                name: name.to_owned(),
                why: why.unwrap_or_else(|| "it is not open".to_owned()),
                needed: self.0.needed_drives(record),
            });
        };
        Ok(Volume { pool: self.clone(), id: record.id, name: name.into(), array })
    }

    /// Deletes a volume and all that it holds. Requests to it fail from now on.
    pub async fn delete_volume(&self, name: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        let _alone = inner.administering.acquire(1).await;
        inner.check_changeable()?;
        let record = match self.volume(name) {
            Err(error @ PoolError::NoSuchVolume { .. }) => return Err(error),
            _ => inner.manifest.borrow().volume(name).cloned().expect("just found"),
        };
        let id = record.id;
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
        let array = inner.arrays.borrow_mut().remove(&id);
        if let Some(array) = array {
            // Nothing that it holds matters any more.
            array.protect();
            let _ = array.close().await;
            inner.jobs.until_off(id).await;
        }
        inner.discard_space(&record).await;
        Ok(())
    }
}

impl Inner {
    async fn create_volume(&self, spec: &VolumeSpec) -> Result<(), PoolError> {
        let record = self.plan_volume(spec)?;
        let mut planned = self.manifest.borrow().clone();
        planned.volumes.push(record.clone());
        Self::check_room(&planned)?;

        let members = record.slots.iter().map(|slot| self.working_member(slot.drive));
        let slots = members.map(|member| member.map_or(SlotInit::Missing, SlotInit::Active)).collect();
        let membership = Rc::new(PoolMembership(self.me.clone()));
        let array =
            Array::create(&self.context, &self.buffers, record.spec(), slots, membership, self.options.array)
                .await?;
        let committed = self.commit_volume(&record).await;
        if committed.is_err() {
            array.protect();
            let _ = array.close().await;
            return committed;
        }
        self.arrays.borrow_mut().insert(record.id, array);
        // A drive may have been excluded since the commit.
        self.leave_out_excluded();
        Ok(())
    }

    async fn commit_volume(&self, record: &VolumeRecord) -> Result<(), PoolError> {
        let record = record.clone();
        self.try_commit(None, move |manifest| {
            if let Some(lost) = record.slots.iter().find(|slot| !manifest.is_online(slot.drive)) {
                let drive = manifest.drive(lost.drive).map_or_else(String::new, |drive| drive.path.clone());
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

    fn plan_volume(&self, spec: &VolumeSpec) -> Result<VolumeRecord, PoolError> {
        let manifest = self.manifest.borrow();
        if manifest.volume(&spec.name).is_some() {
            return Err(PoolError::VolumeExists { pool: manifest.name.clone(), name: spec.name.clone() });
        }
        if manifest.volumes.len() >= MAX_VOLUMES {
            return Err(PoolError::TooManyVolumes { allowed: MAX_VOLUMES });
        }
        let shape = spec.layout.resolve(space::usable_drives(&manifest).len())?;
        let id = self.ids.borrow_mut().next();
        let array = ArraySpec { id: id.0, shape, base_bytes: 0, space_bytes: 0 };
        let needed_bytes = match spec.size_bytes {
            None => None,
            Some(0) => return Err(PoolError::BadSetting("a volume of 0 bytes holds nothing".to_owned())),
            // More than any drive can have.
            Some(size) if size > 1 << 60 => Some(1 << 60),
            Some(size) => Some(space::space_for(&array, size)?),
        };
        let place = space::find(&manifest, shape.width, needed_bytes)?;
        ArraySpec { space_bytes: place.space_bytes, ..array }.geometry()?;
        let slots = place.drives.iter().map(|&drive| SlotRecord { drive, state: SlotState::Active });
        Ok(VolumeRecord {
            id,
            name: spec.name.clone(),
            shape,
            base_bytes: place.base_bytes,
            space_bytes: place.space_bytes,
            slots: slots.collect(),
            lost: Vec::new(),
        })
    }

    /// Tells the drives that a deleted volume's space is free: advice, so refusals do not matter.
    async fn discard_space(&self, record: &VolumeRecord) {
        let members: Vec<Rc<Member>> =
            record.slots.iter().filter_map(|slot| self.working_member(slot.drive)).collect();
        let discards = members.iter().map(|member| {
            let request = IoRequest::range(Operation::Discard, record.base_bytes, record.space_bytes);
            member.submit(Class::Foreground, request)
        });
        join_all(discards).await;
    }

    /// Opens the volumes that can be read; the others are remembered with the reason.
    pub(super) async fn open_volumes(&self) {
        let records = self.manifest.borrow().volumes.clone();
        for record in records {
            if let Err(why) = self.open_volume(&record).await {
                self.failures.borrow_mut().insert(record.id, why);
            }
        }
    }

    async fn open_volume(&self, record: &VolumeRecord) -> Result<(), String> {
        let is_away = |number: u32| self.working_member(number).is_none();
        if !record.survives(is_away) {
            let missing = record.missing(is_away).len();
            return Err(format!(
                "{missing} of its {} drives are missing or not rebuilt, more than {} can do without",
                record.slots.len(),
                record.shape.level
            ));
        }
        let slots = record.slots.iter().map(|slot| match (self.working_member(slot.drive), slot.state) {
            (Some(member), SlotState::Active) => SlotInit::Active(member),
            (Some(member), SlotState::Rebuilding { next_region }) => {
                SlotInit::Rebuilding(member, next_region)
            }
            _ => SlotInit::Missing,
        });
        let slots = slots.collect();
        let membership = Rc::new(PoolMembership(self.me.clone()));
        let array =
            Array::open(&self.context, &self.buffers, record.spec(), slots, membership, self.options.array)
                .await
                .map_err(|error| error.to_string())?;
        array.set_lost_blocks(self.still_lost(record, &array));
        if self.mode == OpenMode::ReadOnly {
            array.protect();
        }
        self.arrays.borrow_mut().insert(record.id, array);
        Ok(())
    }

    /// Lost blocks, less those that a resumed rebuild will try again.
    fn still_lost(&self, record: &VolumeRecord, array: &Array) -> Vec<(usize, u64)> {
        let counts = |&(slot, block): &(usize, u64)| match array.rebuild_progress(slot) {
            Some(progress) => block * 4096 / progress.region_bytes < progress.next_region,
            None => !array.missing().contains(slot),
        };
        record.lost_blocks().filter(counts).collect()
    }

    /// Drives whose return would help a volume, by identity and last path.
    pub(super) fn needed_drives(&self, record: &VolumeRecord) -> Vec<String> {
        let manifest = self.manifest.borrow();
        let away = record
            .slots
            .iter()
            .filter(|slot| slot.state == SlotState::Active && self.working_member(slot.drive).is_none());
        away.filter_map(|slot| manifest.drive(slot.drive))
            .map(|drive| format!("{} ({})", drive.path, drive.id))
            .collect()
    }
}
