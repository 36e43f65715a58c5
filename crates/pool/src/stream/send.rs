//! Sending a snapshot: the ranges with data, or those that differ from an older snapshot, in order,
//! with several reads in flight.
//!
//! Faults expected: lost drives, snapshots that are deleted while they are sent. The stream then
//! has no end record, and no receiver takes it for whole.

use std::collections::VecDeque;

use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, JoinHandle};
use stripewise_log::{LogChange, LogError};

use crate::Pool;
use crate::error::PoolError;
use crate::manifest::snapshot_path::SnapshotPath;
use crate::stream::error::StreamError;
use crate::stream::format::{MOST_DATA_BYTES, Record, StreamHeader, Sums, snapshot_id};
use crate::volume::Volume;
use crate::volume::log::{LogArray, array_error};

/// Reads in flight.
const IN_FLIGHT: usize = 8;

/// A snapshot of a log, with the number that no other one of its name has.
struct Numbered {
    name: String,
    number: u32,
    /// Keeps a schedule from deleting it.
    _open: LogArray,
}

/// A stream that is sent, part by part.
pub struct OutgoingStream {
    source: Volume,
    log: LogArray,
    newer: Numbered,
    older: Option<Numbered>,
    sums: Sums,
    /// Bytes to be sent next.
    ready: VecDeque<Buffer>,
    in_flight: VecDeque<Piece>,
    ranges: VecDeque<LogChange>,
    /// Place from which on ranges are to be found; `None` at the end.
    next_bytes: Option<u64>,
    records: u64,
    data_bytes: u64,
    size_bytes: u64,
    sent_through_bytes: u64,
    has_ended: bool,
}

enum Piece {
    Data { offset_bytes: u64, length_bytes: u64, read: JoinHandle<Result<Buffer, ArrayError>> },
    Zeros { offset_bytes: u64, length_bytes: u64 },
}

impl Pool {
    /// A stream of a snapshot, or of what changed since an older one.
    pub fn send(&self, path: &SnapshotPath, from: Option<&str>) -> Result<OutgoingStream, PoolError> {
        let inner = &self.0;
        inner.check_open()?;
        let log = self.log_with_snapshots(&path.volume)?;
        self.check_snapshot(&log, path)?;
        let source = self.snapshot(path)?;
        let older = from.map(|name| SnapshotPath { snapshot: name.to_owned(), ..path.clone() });
        if let Some(base) = &older {
            self.check_snapshot(&log, base)?;
            let names: Vec<String> = log.log().snapshots().into_iter().map(|of| of.name).collect();
            let place = |name: &str| names.iter().position(|other| other == name);
            if place(&base.snapshot) >= place(&path.snapshot) {
                let (pool, path, base) = (inner.name(), path.clone(), base.snapshot.clone());
                return Err(StreamError::NotOlder { pool, path, base }.into());
            }
        }
        let numbered = |path: &SnapshotPath| -> Result<Numbered, PoolError> {
            let number = number_of(&log, &path.snapshot).map_err(array_error)?;
            let open = log.snapshot(&path.snapshot).map_err(array_error)?;
            Ok(Numbered { name: path.snapshot.clone(), number, _open: open })
        };
        let (newer, older) = (numbered(path)?, older.as_ref().map(numbered).transpose()?);
        let all = log.log().snapshots();
        let created_unix_ms = |of: &Numbered| {
            all.iter().find(|snapshot| snapshot.name == of.name).map_or(0, |found| found.created_unix_ms)
        };
        let id = |of: &Numbered| snapshot_id(self.id(), log.part(), of.number, created_unix_ms(of));
        let manifest = inner.manifest.borrow();
        let of_part = manifest.volumes.iter().find(|record| record.part(log.part()).is_some());
        let record = of_part.expect("its log is open");
        let part = record.parts.iter().find_map(|part| Some((part.shape, part.log?)));
        let (shape, of_log) = part.expect("it is a log");
        let header = StreamHeader {
            snapshot_id: id(&newer),
            base: older.as_ref().map(|older| (id(older), older.name.clone())),
            pool_id: self.id(),
            pool: manifest.name.clone(),
            volume_id: self.open_volume_of(&path.volume)?.id(),
            volume: path.volume.clone(),
            snapshot: path.snapshot.clone(),
            size_bytes: source.capacity_bytes(),
            created_unix_ms: created_unix_ms(&newer),
            shape,
            reserve_percent: of_log.reserve_percent,
        };
        let (bytes, sum) = header.encode();
        Ok(OutgoingStream {
            source,
            log: log.clone(),
            newer,
            older,
            sums: Sums::new(sum),
            ready: VecDeque::from([Buffer::from_bytes(&bytes)]),
            in_flight: VecDeque::new(),
            ranges: VecDeque::new(),
            next_bytes: Some(0),
            records: 0,
            data_bytes: 0,
            size_bytes: header.size_bytes,
            sent_through_bytes: 0,
            has_ended: false,
        })
    }
}

/// Number of a snapshot in its log.
pub(crate) fn number_of(log: &LogArray, name: &str) -> Result<u32, LogError> {
    let number = log.log().snapshot(name)?.snapshot_number();
    Ok(number.expect("a snapshot has a number"))
}

impl OutgoingStream {
    /// Size of the snapshot, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Place in the snapshot through which the stream has come, bytes.
    pub fn sent_through_bytes(&self) -> u64 {
        self.sent_through_bytes
    }

    /// The next bytes; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Buffer>, PoolError> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Ok(Some(bytes));
            }
            if self.has_ended {
                return Ok(None);
            }
            while self.in_flight.len() < IN_FLIGHT
                && let Some(piece) = self.next_piece().await?
            {
                self.in_flight.push_back(piece);
            }
            match self.in_flight.pop_front() {
                Some(Piece::Data { offset_bytes, length_bytes, read }) => {
                    let data = read.await?;
                    self.data_bytes += length_bytes;
                    self.add(Record::Data { offset_bytes, length_bytes }, Some(data));
                    self.sent_through_bytes = offset_bytes + length_bytes;
                }
                Some(Piece::Zeros { offset_bytes, length_bytes }) => {
                    self.add(Record::Zeros { offset_bytes, length_bytes }, None);
                }
                None => {
                    let (records, data_bytes, sums) = (self.records, self.data_bytes, self.sums.all());
                    self.add(Record::End { records, data_bytes, sums }, None);
                    self.sent_through_bytes = self.size_bytes;
                    self.has_ended = true;
                }
            }
        }
    }

    fn add(&mut self, record: Record, data: Option<Buffer>) {
        let head = match &data {
            Some(data) => data.with(|bytes| self.sums.encode(record, bytes)),
            None => Some(self.sums.encode(record, &[])),
        };
        // Models have no bytes to send.
        let head = head.unwrap_or_else(|| self.sums.encode(record, &[]));
        self.records += 1;
        self.ready.push_back(Buffer::from_bytes(&head));
        self.ready.extend(data);
    }

    async fn next_piece(&mut self) -> Result<Option<Piece>, PoolError> {
        loop {
            let Some(range) = self.ranges.front_mut() else {
                let Some(from) = self.next_bytes else { return Ok(None) };
                let changes = self.changes(from).await.map_err(array_error)?;
                self.next_bytes = changes.1;
                self.ranges = changes.0.into();
                continue;
            };
            let LogChange { offset_bytes, length_bytes, has_data } = *range;
            if !has_data {
                self.ranges.pop_front();
                return Ok(Some(Piece::Zeros { offset_bytes, length_bytes }));
            }
            let end = (offset_bytes / MOST_DATA_BYTES + 1) * MOST_DATA_BYTES;
            let piece_bytes = length_bytes.min(end - offset_bytes);
            range.offset_bytes += piece_bytes;
            range.length_bytes -= piece_bytes;
            if range.length_bytes == 0 {
                self.ranges.pop_front();
            }
            let source = self.source.clone();
            let read = self
                .source
                .pool()
                .context()
                .spawn(async move { source.read(offset_bytes, piece_bytes as usize).await });
            return Ok(Some(Piece::Data { offset_bytes, length_bytes: piece_bytes, read }));
        }
    }

    /// Changed ranges from a place on, and the place to go on from. Fails if a snapshot was
    /// deleted, even where there is another one of its name.
    async fn changes(&self, from: u64) -> Result<(Vec<LogChange>, Option<u64>), LogError> {
        for of in self.older.iter().chain([&self.newer]) {
            if number_of(&self.log, &of.name)? != of.number {
                return Err(LogError::SnapshotGone);
            }
        }
        let older = self.older.as_ref().map(|of| of.name.as_str());
        let changes = self.log.log().changes(older, Some(&self.newer.name), from).await?;
        Ok((changes.ranges, changes.next_bytes))
    }
}
