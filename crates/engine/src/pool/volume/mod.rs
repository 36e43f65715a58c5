//! Volumes of a pool: finding and deleting them, and the way in for requests. They are made in
//! `volume/make.rs` and opened with the pool in `volume/open.rs`.

pub(crate) mod conversion;
pub(crate) mod conversion_room;
pub(crate) mod drive;
pub(crate) mod io;
pub(crate) mod make;
pub(crate) mod open;
pub(crate) mod range_gate;
pub(crate) mod resize;
pub(crate) mod shadow;
pub(crate) mod thin;
pub(crate) mod write_epochs;

use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool};
use stripewise_layout::Geometry;

use crate::array::Array;
use crate::error::ArrayError;
use crate::extents::Extent;
use crate::pool::error::PoolError;
use crate::pool::jobs::last_scrub::ScrubRecord;
use crate::pool::manifest::commit::Change;
use crate::pool::manifest::events::EventKind;
use crate::pool::manifest::ids::VolumeId;
use crate::pool::manifest::volume_record::VolumeRecord;
use crate::pool::status::load::{RequestKind, UnderWay};
use crate::pool::volume::io::{Clearing, VolumeIo};
use crate::pool::{Inner, Pool, VolumeInfo};

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

    /// Its layout's addresses, for an unbounded length; of the layout to be, where it is being
    /// converted.
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

    /// Whether its pool was closed with everything that was acknowledged here durable, flushed or
    /// not.
    pub fn was_closed_in_order(&self) -> bool {
        self.io.arrays().iter().all(Array::was_closed_in_order)
    }

    /// Reads; whatever was never written is zeros.
    pub async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        let under_way = self.begin_request();
        let result = self.io.read(offset_bytes, length).await;
        under_way.ended(RequestKind::Read, length as u64, &result);
        result
    }

    /// Writes; durable when this ends if `fua`, else after the next flush.
    pub async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        let length_bytes = data.len() as u64;
        let under_way = self.begin_request();
        let result = self.io.write(offset_bytes, data, fua).await;
        under_way.ended(RequestKind::Write, length_bytes, &result);
        result
    }

    /// Makes everything acknowledged so far durable.
    pub async fn flush(&self) -> Result<(), ArrayError> {
        let under_way = self.begin_request();
        let result = self.io.flush().await;
        under_way.ended(RequestKind::Flush, 0, &result);
        result
    }

    /// The range's contents are no longer needed; reading it gives zeros or what was there. A thin
    /// volume gives rows back of which nothing is needed any more.
    pub async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.clear(RequestKind::Discard, Clearing::Discard, offset_bytes, length_bytes).await
    }

    /// The range reads as zeros afterwards; durable after the next flush.
    pub async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError> {
        self.clear(RequestKind::WriteZeroes, Clearing::WriteZeroes, offset_bytes, length_bytes).await
    }

    async fn clear(
        &self,
        kind: RequestKind,
        how: Clearing,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), ArrayError> {
        let under_way = self.begin_request();
        let result = self.io.clear(&self.pool.0, self.id, how, offset_bytes, length_bytes).await;
        under_way.ended(kind, length_bytes, &result);
        result
    }

    fn begin_request(&self) -> UnderWay<'_> {
        self.io.load.begin(self.pool.context())
    }

    /// Makes durable what can be, and gives up to where from `start_bytes` on all that was
    /// acknowledged is durable: to `end_bytes`, or less where drives refuse. Of a volume that is
    /// being converted nothing is said.
    pub async fn durable_until(&self, start_bytes: u64, end_bytes: u64) -> u64 {
        match &self.io.arrays()[..] {
            [array] => array.durable_until(start_bytes, end_bytes).await,
            _ => start_bytes,
        }
    }

    /// Ends when every write that is under way now has ended.
    pub(in crate::pool) async fn until_writes_ended(&self) {
        self.io.until_writes_ended().await;
    }

    /// What of a range was ever written: stretches from its beginning on, at most `most` (at least
    /// one).
    pub fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        most: usize,
    ) -> Result<Vec<Extent>, ArrayError> {
        self.io.extents(offset_bytes, length_bytes, most)
    }

    /// Whether a range reads as zeros because nothing was ever written there.
    pub fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.io.ask_all(offset_bytes, length_bytes, Array::is_unwritten)
    }

    /// Whether [`Self::write_zeroes`] of a range writes no zeros, so that it is much faster than
    /// writing them.
    pub fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError> {
        self.io.ask_all(offset_bytes, length_bytes, Array::zeroes_at_once)
    }
}

impl Pool {
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
        let _alone = inner.administer().await?;
        let id = match self.volume(name) {
            Err(error @ PoolError::NoSuchVolume { .. }) => return Err(error),
            _ => inner.manifest.borrow().volume(name).expect("just found").id,
        };
        inner.event(EventKind::Volume, &format!("volume {name} was deleted"));
        let (now_s, counted) = (inner.unix_ms() / 1000, inner.counted_wrong_blocks());
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
        inner.failures.borrow_mut().remove(&id);
        inner.ios.borrow_mut().remove(&id);
        inner.until_reclaimed().await;
        Ok(())
    }
}

impl Inner {
    /// The way to the arrays of a volume, which are open.
    pub(in crate::pool) fn io_of(&self, record: &VolumeRecord) -> Option<Rc<VolumeIo>> {
        if let Some(io) = self.ios.borrow().get(&record.id) {
            return Some(io.clone());
        }
        let arrays: Option<Vec<Array>> = record.parts.iter().map(|part| self.array(part.id)).collect();
        let io = match (&arrays?[..], record.conversion) {
            ([array], _) => VolumeIo::plain(array.clone()),
            ([old, new], Some(conversion)) => {
                let end_bytes = conversion.until_offset_bytes.unwrap_or(u64::MAX);
                VolumeIo::converting(old.clone(), new.clone(), conversion.next_offset_bytes, end_bytes)
            }
            _ => return None,
        };
        self.ios.borrow_mut().insert(record.id, io.clone());
        Some(io)
    }

    /// Drives whose return would help a volume, by identity and last path.
    pub(in crate::pool) fn needed_drives(&self, record: &VolumeRecord) -> Vec<String> {
        let manifest = self.manifest.borrow();
        let away = manifest.drives.iter().filter(|drive| {
            self.working_member(drive.number).is_none()
                && record.parts.iter().any(|part| part.needs(drive.number))
        });
        away.map(|drive| format!("{} ({})", drive.path, drive.id)).collect()
    }
}
