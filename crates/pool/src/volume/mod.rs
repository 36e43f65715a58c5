//! Volumes of a pool: finding and deleting them. They are made in `volume/make.rs` and opened with
//! the pool in `volume/open.rs`; their requests come in through `volume/io.rs`.

pub(crate) mod clones;
pub(crate) mod conversion;
pub(crate) mod conversion_room;
pub(crate) mod direct;
pub(crate) mod drive;
pub(crate) mod io;
pub(crate) mod log;
pub(crate) mod make;
pub(crate) mod open;
pub(crate) mod part_array;
pub(crate) mod range_gate;
pub(crate) mod resize;
pub(crate) mod shadow;
pub(crate) mod site;
pub(crate) mod sliced;
pub(crate) mod sliced_copy;
pub(crate) mod snapshots;
pub(crate) mod thin;
pub(crate) mod thin_growth;
pub(crate) mod volume_array;
pub(crate) mod write_epochs;
pub(crate) mod zones;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stripewise_drive::BufferPool;
use stripewise_layout::Geometry;

use crate::error::{LogTask, PoolError};
use crate::manifest::care::ScrubRecord;
use crate::manifest::events::EventKind;
use crate::manifest::ids::VolumeId;
use crate::manifest::received::ReceivingRecord;
use crate::manifest::snapshot_path::SnapshotPath;
use crate::manifest::volume_record::VolumeRecord;
use crate::stream::error::StreamError;
use crate::superblock::commit::Change;
use crate::volume::io::VolumeIo;
use crate::volume::sliced::Sliced;
use crate::volume::volume_array::VolumeArray;
use crate::{Inner, Pool, VolumeInfo};
use stripewise_array::{Array, ArrayHandle, BlockArray};

/// An open volume. Clones are the same volume.
#[derive(Clone)]
pub struct Volume {
    pool: Pool,
    id: VolumeId,
    name: Rc<str>,
    pub(crate) io: Rc<VolumeIo>,
    /// The handle of a receiver of a stream.
    receives: bool,
}

impl Volume {
    /// The handle of the receiver of a stream.
    pub(crate) fn of_receiver(self) -> Self {
        Self { receives: true, ..self }
    }

    /// Its name in the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its identity.
    pub fn id(&self) -> VolumeId {
        self.id
    }

    /// The array that serves requests now, or will after a conversion, of a volume with one: for
    /// tests and measurements.
    pub fn array(&self) -> Array {
        self.arrays().remove(0)
    }

    /// The arrays of its slices, as [`Self::array`].
    pub fn arrays(&self) -> Vec<Array> {
        self.in_place().handles().iter().map(ArrayHandle::on_this_thread).collect()
    }

    /// The arrays of a volume that is not a log.
    pub(crate) fn in_place(&self) -> Sliced {
        self.io.array().in_place().expect("a volume in place").clone()
    }

    /// Requests are multiples of this many bytes.
    pub fn sector_bytes(&self) -> u64 {
        self.io.array().sector_bytes()
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

    /// Buffer pool for requests.
    pub fn buffers(&self) -> &BufferPool {
        &self.pool.0.buffers
    }

    /// Its layout's addresses, for an unbounded length; of the layout to be, where it is being
    /// converted.
    pub fn geometry(&self) -> Geometry {
        self.io.array().geometry().clone()
    }

    /// True if a crash left regions whose copies or parity may disagree.
    pub fn needs_resync(&self) -> bool {
        let in_place = |array: &VolumeArray| array.in_place().is_some_and(Sliced::needs_resync);
        self.io.arrays().iter().any(in_place)
    }

    /// True if it accepts no writes.
    pub fn is_protected(&self) -> bool {
        self.io.arrays().iter().any(VolumeArray::is_protected)
    }

    /// The end of this opening of the volume.
    pub fn closing(&self) -> Closing {
        Closing(self.io.arrays().iter().flat_map(VolumeArray::closed_in_order).collect())
    }
}

/// The end of an opening of a volume. It keeps nothing of the volume open.
pub struct Closing(Vec<Arc<AtomicBool>>);

impl Closing {
    /// True if the pool was closed with all acknowledged writes durable, flushed or not.
    pub fn was_in_order(&self) -> bool {
        self.0.iter().all(|closed_in_order| closed_in_order.load(Ordering::Acquire))
    }
}

impl Pool {
    /// Finds a volume by name, or a snapshot as `VOLUME@SNAPSHOT`.
    pub fn volume(&self, name: &str) -> Result<Volume, PoolError> {
        self.0.check_open()?;
        if let Some(path) = SnapshotPath::parse(name) {
            return self.snapshot(&path);
        }
        self.check_is_whole(name)?;
        self.open_volume_of(name)
    }

    /// Refuses a volume that has a part of a stream.
    pub(crate) fn check_is_whole(&self, name: &str) -> Result<(), PoolError> {
        let manifest = self.0.manifest.borrow();
        let receiving = manifest.volume(name).and_then(|record| record.receiving.clone());
        let Some(ReceivingRecord { snapshot, base, .. }) = receiving else { return Ok(()) };
        let (pool, volume) = (manifest.name.clone(), name.to_owned());
        Err(StreamError::InPart { pool, volume, snapshot, base }.into())
    }

    /// Finds a volume by name, also one that has a part of a stream.
    pub(crate) fn open_volume_of(&self, name: &str) -> Result<Volume, PoolError> {
        self.0.check_open()?;
        let manifest = self.0.manifest.borrow();
        let clone = manifest.clone_named(name);
        let Some(record) = manifest.volume(name).or(clone.map(|(volume, _)| volume)) else {
            return Err(self.0.no_such_volume(name));
        };
        let io = match clone {
            Some((_, clone)) => self.0.volumes.clone_io(record, clone),
            None => self.0.volumes.io(record),
        };
        let io = io.filter(|_| self.0.volumes.failure(record.id).is_none());
        let Some(io) = io else {
            let why = self.0.volumes.failure(record.id);
            return Err(PoolError::VolumeFailed {
                name: name.to_owned(),
                why: why.unwrap_or_else(|| "it is not open".to_owned()),
                needed: self.0.drives.needed_for(&self.0.manifest.borrow(), record),
            });
        };
        let id = clone.map_or(record.id, |(_, clone)| clone.id);
        Ok(Volume { pool: self.clone(), id, name: name.into(), io, receives: false })
    }

    /// Refuses work that log volumes do not offer.
    pub(crate) fn refuse_for_log(&self, name: &str, task: LogTask) -> Result<(), PoolError> {
        let manifest = self.0.manifest.borrow();
        let is_log = manifest.volume(name).is_some_and(VolumeRecord::is_log);
        match is_log || manifest.clone_named(name).is_some() {
            true => Err(PoolError::LogVolume { pool: manifest.name.clone(), volume: name.to_owned(), task }),
            false => Ok(()),
        }
    }

    /// Deletes a volume and all that it holds; refused while it has snapshots. Requests to it fail
    /// from now on.
    pub async fn delete_volume(&self, name: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let id = match self.volume(name) {
            Err(error @ PoolError::NoSuchVolume { .. }) => return Err(error),
            _ => {
                let manifest = inner.manifest.borrow();
                let clone = manifest.clone_named(name).map(|(_, clone)| clone.id);
                clone.or(manifest.volume(name).map(|record| record.id)).expect("just found")
            }
        };
        let io = inner.manifest.borrow().volume(name).and_then(|record| inner.volumes.io(record));
        if io.is_some_and(|io| io.receives.get()) {
            return Err(StreamError::Running { pool: inner.name(), volume: name.to_owned() }.into());
        }
        self.check_has_no_snapshots(name)?;
        self.check_carries_no_clones(name)?;
        if inner.manifest.borrow().clone_named(name).is_some() {
            return self.delete_clone(id, name).await;
        }
        inner.news.event(EventKind::Volume, &format!("volume {name} was deleted"));
        let (now_s, counted) = (inner.news.unix_ms() / 1000, inner.drives.counted_wrong_blocks());
        inner
            .commit_regardless(None, move |manifest| {
                manifest.volumes.retain(|volume| volume.id != id);
                if let Some(scrub) = &mut manifest.scrub {
                    if scrub.volumes.first() == Some(&id) {
                        (scrub.next_region, scrub.found) = (0, ScrubRecord::default());
                    }
                    scrub.volumes.retain(|volume| *volume != id);
                }
                manifest.end_scrub_when_done(now_s, counted);
                manifest.forget_replaced();
                Ok(Change::Commit(()))
            })
            .await?;
        inner.volumes.forget(id);
        inner.freed.until_reclaimed().await;
        Ok(())
    }
}

impl Inner {
    pub(crate) fn no_such_volume(&self, name: &str) -> PoolError {
        let manifest = self.manifest.borrow();
        PoolError::NoSuchVolume {
            pool: manifest.name.clone(),
            name: name.to_owned(),
            known: manifest.volume_names(),
        }
    }
}
