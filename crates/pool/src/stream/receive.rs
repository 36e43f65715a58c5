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
        let path = SnapshotPath { volume: name.to_owned(), snapshot: stream.header().snapshot.clone() };
        let (data_bytes, present_bytes) = (stream.data_bytes(), present.get());
        Ok(Received { path, data_bytes, present_bytes, was_resumed: target.was_resumed })
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
                    let is_it = receiving.snapshot_id == header.snapshot_id
                        && receiving.base.is_some() == header.base.is_some();
                    if !is_it {
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
        if volume.io.receives.replace(true) {
            return Err(StreamError::Running { pool: inner.name(), volume: name.to_owned() }.into());
        }
        let running = volume.io.clone();
        let target = Target { volume, log, was_resumed, running };
        // Those of a caller that left.
        target.volume.until_writes_ended().await;
        Ok(target)
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
        self.volume(&volume)?;
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
        inner.change_volume(id, move |record| record.receiving = Some(receiving)).await
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
        let there = volume.read(offset_bytes, data.len()).await?;
        if there.to_vec() == data.to_vec() {
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
