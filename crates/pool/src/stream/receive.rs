//! Receiving a stream: its ranges are written into a volume, and then the snapshot is taken.
//!
//! Before the first write, the pool's record says which stream the volume is receiving. Until the
//! stream is complete, verified and its snapshot durable, the volume is not served: what it holds
//! is neither the old contents nor the new ones. The same stream may be sent again at any time;
//! blocks that are there already are read and compared, not written. A volume that received an
//! incremental stream in part can instead be rolled back to its newest snapshot, and a new one be
//! deleted.
//!
//! Faults expected: everything that a stream can have wrong, streams for other volumes, power cuts
//! between any two writes, callers that leave.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, JoinHandle};
use stripewise_layout::{LayoutSpec, Shape};
use stripewise_log::{Log, LogError};

use crate::error::PoolError;
use crate::manifest::events::EventKind;
use crate::manifest::format::check_name;
use crate::manifest::ids::VolumeId;
use crate::manifest::received::{ReceivedRecord, ReceivingRecord};
use crate::manifest::snapshot_path::SnapshotPath;
use crate::manifest::volume_record::VolumeRecord;
use crate::stream::error::StreamError;
use crate::stream::format::StreamHeader;
use crate::stream::incoming::{IncomingStream, Step};
use crate::stream::send::number_of;
use crate::superblock::commit::Change;
use crate::volume::log::{LogArray, array_error};
use crate::volume::make::VolumeSpec;
use crate::volume::{Volume, io::VolumeIo};
use crate::{Inner, Pool};

/// Writes in flight.
const IN_FLIGHT: usize = 8;

/// Choices for a volume that a stream creates.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveSpec {
    /// Layout; left out: that of the source.
    pub layout: Option<LayoutSpec>,
    /// Share of the log's space that clients do not get, percent; left out: that of the source.
    pub reserve_percent: Option<u32>,
}

/// A stream that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The snapshot that was taken at its end.
    pub path: SnapshotPath,
    /// Data in the stream.
    pub data_bytes: u64,
    /// Part of it that the volume had already.
    pub present_bytes: u64,
    /// True if the volume had received a part of the stream before.
    pub was_resumed: bool,
}

/// A volume that is receiving a stream; one at a time.
struct Target {
    volume: Volume,
    log: LogArray,
    was_resumed: bool,
    running: Rc<VolumeIo>,
}

/// Keeps all but a receiver from a volume, until it is known whether it receives.
struct OnlyReceiver {
    volume: Volume,
    stays: Cell<bool>,
}

impl OnlyReceiver {
    fn begin(volume: Volume) -> Self {
        volume.io.in_part.set(true);
        Self { volume, stays: Cell::new(false) }
    }

    fn stays(self) {
        self.stays.set(true);
    }
}

impl Drop for OnlyReceiver {
    fn drop(&mut self) {
        self.volume.io.in_part.set(self.stays.get());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.running.receives.set(false);
    }
}

impl Pool {
    /// Receives a stream: a whole one creates a volume, an incremental one changes the volume whose
    /// newest snapshot it builds on. Ends with the snapshot. No client may have the volume open.
    pub async fn receive<I: AsyncFnMut(&mut [u8]) -> io::Result<usize>>(
        &self,
        name: &str,
        spec: &ReceiveSpec,
        stream: &mut IncomingStream<I>,
        mut progress: impl FnMut(u64),
    ) -> Result<Received, PoolError> {
        let path = SnapshotPath { volume: name.to_owned(), snapshot: stream.header().snapshot.clone() };
        if self.has_received(name, stream.header())? {
            // The caller may not know: it left, or lost its connection, just before the answer.
            while !matches!(stream.next().await?, Step::End) {}
            let data_bytes = stream.data_bytes();
            return Ok(Received { path, data_bytes, present_bytes: data_bytes, was_resumed: true });
        }
        let target = self.begin_receiving(name, spec, stream.header()).await?;
        let mut in_flight = VecDeque::new();
        let present = Rc::new(Cell::new(0));
        let mut result = self.apply(&target, stream, &mut in_flight, &present, &mut progress).await;
        // Also after an error: none may come after a later rollback.
        for write in in_flight {
            result = result.and(write.await.map_err(PoolError::from));
        }
        result?;
        self.end_receiving(&target, stream.header()).await?;
        let (data_bytes, present_bytes) = (stream.data_bytes(), present.get());
        Ok(Received { path, data_bytes, present_bytes, was_resumed: target.was_resumed })
    }

    /// True if a volume has the snapshot of a stream already, as the last one that it received.
    fn has_received(&self, name: &str, header: &StreamHeader) -> Result<bool, PoolError> {
        let record = self.0.manifest.borrow().volume(name).cloned();
        let Some(record) = record.filter(|record| record.receiving.is_none()) else { return Ok(false) };
        let Some(received) = record.received.filter(|of| of.snapshot_id == header.snapshot_id) else {
            return Ok(false);
        };
        let log = self.log_with_snapshots(name)?;
        Ok(number_of(&log, &header.snapshot).is_ok_and(|number| number == received.number))
    }

    async fn begin_receiving(
        &self,
        name: &str,
        spec: &ReceiveSpec,
        header: &StreamHeader,
    ) -> Result<Target, PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        check_name(name).map_err(|why| PoolError::BadName { what: "volume", name: name.to_owned(), why })?;
        let _alone = inner.administer().await?;
        let record = inner.manifest.borrow().volume(name).cloned();
        if header.base.is_some() && (spec.layout.is_some() || spec.reserve_percent.is_some()) {
            return Err(StreamError::HasLayout.into());
        }
        if header.base.is_some() && inner.manifest.borrow().clone_named(name).is_some() {
            return Err(StreamError::IntoClone { pool: inner.name(), volume: name.to_owned() }.into());
        }
        let was_resumed = match &record {
            None => {
                self.create_for(name, spec, header).await?;
                false
            }
            Some(record) => match &record.receiving {
                Some(receiving) => {
                    if receiving.snapshot_id != header.snapshot_id
                        || !self.continues_on_base(record, receiving, header)?
                    {
                        return Err(of_other(&inner.name(), name, receiving).into());
                    }
                    true
                }
                None => {
                    self.begin_on(record, header).await?;
                    false
                }
            },
        };
        let (volume, log) = self.open_log_volume(name)?;
        let volume = volume.of_receiver();
        volume.io.in_part.set(true);
        if volume.io.receives.replace(true) {
            return Err(StreamError::Running { pool: inner.name(), volume: name.to_owned() }.into());
        }
        let running = volume.io.clone();
        let target = Target { volume, log, was_resumed, running };
        // Those of a caller that left.
        target.volume.until_writes_ended().await;
        Ok(target)
    }

    /// True if a stream that a volume has in part builds on what it then built on.
    fn continues_on_base(
        &self,
        record: &VolumeRecord,
        receiving: &ReceivingRecord,
        header: &StreamHeader,
    ) -> Result<bool, PoolError> {
        let (base, base_id) = match (&receiving.base, &header.base) {
            (None, None) => return Ok(true),
            (Some(base), Some((base_id, _))) => (base, *base_id),
            _ => return Ok(false),
        };
        let log = self.log_with_snapshots(&record.name)?;
        let is_it = |number: u32| record.received == Some(ReceivedRecord { snapshot_id: base_id, number });
        Ok(number_of(&log, base).is_ok_and(is_it))
    }

    /// Creates the volume of a whole stream.
    async fn create_for(
        &self,
        name: &str,
        spec: &ReceiveSpec,
        header: &StreamHeader,
    ) -> Result<(), PoolError> {
        let inner = &self.0;
        if header.base.is_some() {
            return Err(inner.no_such_volume(name));
        }
        inner.freed.until_reclaimed().await;
        let spec = VolumeSpec {
            size_bytes: Some(header.size_bytes),
            log: Some(spec.reserve_percent.unwrap_or(header.reserve_percent)),
            ..VolumeSpec::new(name, spec.layout.unwrap_or_else(|| layout_of(&header.shape)))
        };
        inner.create(&spec, Some(receiving(header, None))).await
    }

    /// Checks that an incremental stream fits a volume, and records that it is received.
    async fn begin_on(&self, record: &VolumeRecord, header: &StreamHeader) -> Result<(), PoolError> {
        let inner = &self.0;
        let (pool, volume) = (inner.name(), record.name.clone());
        let Some((base_id, base_name)) = &header.base else {
            return Err(PoolError::VolumeExists { pool, name: volume });
        };
        let opened = self.volume(&volume)?;
        let log = self.log_with_snapshots(&volume)?;
        let snapshots = log.log().snapshots();
        let newest = snapshots.last().map(|snapshot| snapshot.name.clone());
        let other_base = || StreamError::OtherBase {
            pool: pool.clone(),
            volume: volume.clone(),
            source_base: format!("{}/{}@{base_name}", header.pool, header.volume),
            newest: newest.clone(),
        };
        let base = newest.clone().ok_or_else(other_base)?;
        let number = number_of(&log, &base).map_err(array_error)?;
        if record.received != Some(ReceivedRecord { snapshot_id: *base_id, number }) {
            return Err(other_base().into());
        }
        let capacity_bytes = log.log().capacity_bytes();
        if capacity_bytes < header.size_bytes {
            let needed_bytes = header.size_bytes;
            return Err(StreamError::TooSmall { pool, volume, capacity_bytes, needed_bytes }.into());
        }
        if snapshots.iter().any(|snapshot| snapshot.name == header.snapshot) {
            let path = SnapshotPath { volume, snapshot: header.snapshot.clone() };
            return Err(PoolError::SnapshotExists { pool, path });
        }
        // Those who opened the volume before do not write from here on.
        let alone = OnlyReceiver::begin(opened);
        alone.volume.until_writes_ended().await;
        let mut from = Some(0);
        while let Some(at) = from {
            let changes = log.log().changes(Some(&base), None, at).await.map_err(array_error)?;
            if let Some(first) = changes.ranges.first() {
                let base = SnapshotPath { volume, snapshot: base };
                return Err(StreamError::Changed { pool, base, at: first.offset_bytes }.into());
            }
            from = changes.next_bytes;
        }
        let (id, receiving) = (record.id, receiving(header, Some(base)));
        inner.change_volume(id, move |record| record.receiving = Some(receiving)).await?;
        alone.stays();
        Ok(())
    }

    /// Writes the ranges of a stream, all verified.
    async fn apply<I: AsyncFnMut(&mut [u8]) -> io::Result<usize>>(
        &self,
        target: &Target,
        stream: &mut IncomingStream<I>,
        in_flight: &mut VecDeque<JoinHandle<Result<(), ArrayError>>>,
        present: &Rc<Cell<u64>>,
        progress: &mut impl FnMut(u64),
    ) -> Result<(), PoolError> {
        loop {
            if in_flight.len() == IN_FLIGHT
                && let Some(write) = in_flight.pop_front()
            {
                write.await?;
            }
            let volume = target.volume.clone();
            in_flight.push_back(match stream.next().await? {
                Step::Data { offset_bytes, data } => {
                    progress(offset_bytes + data.len() as u64);
                    let present = target.was_resumed.then(|| present.clone());
                    self.0.context.spawn(async move { write(&volume, offset_bytes, data, present).await })
                }
                Step::Zeros { offset_bytes, length_bytes } => {
                    self.0.context.spawn(async move { volume.write_zeroes(offset_bytes, length_bytes).await })
                }
                Step::End => return Ok(()),
            });
        }
    }

    /// Takes the snapshot of a volume that has all of a stream, and serves it from now on.
    async fn end_receiving(&self, target: &Target, header: &StreamHeader) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let name = target.volume.name();
        let is_it = |record: &VolumeRecord| {
            let receiving = record.receiving.as_ref();
            record.id == target.volume.id()
                && receiving.is_some_and(|of| of.snapshot_id == header.snapshot_id)
        };
        if !inner.manifest.borrow().volume(name).is_some_and(is_it) {
            return Err(inner.no_such_volume(name));
        }
        let log = target.log.log();
        // It is there if power was cut before the record said so.
        if !log.snapshots().iter().any(|snapshot| snapshot.name == header.snapshot) {
            let new = [(log.clone(), header.snapshot.clone())];
            Log::create_snapshots(&new, header.created_unix_ms).await.map_err(|error| match error {
                LogError::TooManySnapshots { snapshots } => {
                    PoolError::TooManySnapshots { pool: inner.name(), snapshots }
                }
                error => array_error(error).into(),
            })?;
        }
        let number = number_of(&target.log, &header.snapshot).map_err(array_error)?;
        let received = ReceivedRecord { snapshot_id: header.snapshot_id, number };
        let (pool, volume) = (&header.pool, &header.volume);
        let text = format!("snapshot {name}@{} was received from {pool}/{volume}", header.snapshot);
        inner.news.event(EventKind::Volume, &text);
        inner
            .change_volume(target.volume.id(), move |record| {
                (record.receiving, record.received) = (None, Some(received));
            })
            .await?;
        target.volume.io.in_part.set(false);
        inner.session.before_acknowledgement().await?;
        Ok(())
    }

    /// A log volume with its log, complete or not.
    pub(crate) fn open_log_volume(&self, name: &str) -> Result<(Volume, LogArray), PoolError> {
        let volume = self.open_volume_of(name)?;
        let log = self.log_with_snapshots(name)?;
        Ok((volume, log))
    }
}

impl Inner {
    /// Changes the record of a log volume, which has snapshots from now on.
    pub(crate) async fn change_volume(
        &self,
        id: VolumeId,
        change: impl FnOnce(&mut VolumeRecord) + 'static,
    ) -> Result<(), PoolError> {
        self.try_commit(None, move |manifest| {
            let Some(record) = manifest.volumes.iter_mut().find(|record| record.id == id) else {
                return Ok(Change::Nothing(()));
            };
            record.parts.iter_mut().filter_map(|part| part.log.as_mut()).for_each(|log| log.snapshots = true);
            change(record);
            Ok(Change::Commit(()))
        })
        .await
    }
}

/// Writes data that is not there yet; counts in `present`, if given, what is.
async fn write(
    volume: &Volume,
    offset_bytes: u64,
    data: Buffer,
    present: Option<Rc<Cell<u64>>>,
) -> Result<(), ArrayError> {
    if let Some(present) = present {
        // A block that cannot be read is written again.
        let there = volume.read(offset_bytes, data.len()).await;
        if there.is_ok_and(|there| there.to_vec() == data.to_vec()) {
            present.set(present.get() + data.len() as u64);
            return Ok(());
        }
    }
    volume.write(offset_bytes, data, false).await
}

fn receiving(header: &StreamHeader, base: Option<String>) -> ReceivingRecord {
    ReceivingRecord { snapshot_id: header.snapshot_id, snapshot: header.snapshot.clone(), base }
}

fn of_other(pool: &str, volume: &str, receiving: &ReceivingRecord) -> StreamError {
    let ReceivingRecord { snapshot, base, .. } = receiving.clone();
    StreamError::OfOther { pool: pool.to_owned(), volume: volume.to_owned(), snapshot, base }
}

/// A layout with nothing left open.
fn layout_of(shape: &Shape) -> LayoutSpec {
    LayoutSpec {
        level: shape.level,
        columns: Some(shape.width),
        groups: Some(shape.groups),
        interleave_bytes: Some(shape.interleave_bytes),
        rotation_rows: Some(shape.rotation_rows),
    }
}
