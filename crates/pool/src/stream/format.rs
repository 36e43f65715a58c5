//! The bytes of a stream: a header, records of ranges, an end record (`docs/internals/streams.md`).
//!
//! Each record has a checksum over itself and the header's checksum, so that none of another stream
//! is taken for one of this. The end record has a checksum over all of them, so that none can be
//! left out. Pure. Faults expected: any bytes.

use crc_fast::{CrcAlgorithm, Digest};
use stripewise_layout::Shape;

use crate::BLOCK_BYTES;
use crate::manifest::format::check_name;
use crate::manifest::ids::{Id, PoolId, VolumeId};
use crate::manifest::volume_record::RESERVE_PERCENT;
use crate::stream::error::StreamError;
use crate::superblock::entries::crc;
use crate::volume::make::MOST_VOLUME_BYTES;

/// Version that is written, and the only one that is read.
pub(crate) const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"SWSTREAM";
/// The beginning of a header that every version has: magic, version, length.
pub(crate) const PREFIX_BYTES: usize = 16;
/// Header before its names.
const FIXED_BYTES: usize = 136;
/// Most bytes of a header.
const MOST_HEADER_BYTES: usize = 1024;
/// A record without its data.
pub(crate) const RECORD_BYTES: usize = 32;
/// Most data of a record.
pub(crate) const MOST_DATA_BYTES: u64 = 1 << 20;
/// The last moment of the year 9999, milliseconds since 1970.
const LAST_UNIX_MS: u64 = 253_402_300_799_999;

/// The head of a stream: its source, and the snapshot that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamHeader {
    /// Identity of the snapshot.
    pub snapshot_id: Id,
    /// Identity of the snapshot that the stream builds on, and its name; `None`: it is whole.
    pub base: Option<(Id, String)>,
    /// The pool that sent it.
    pub pool_id: PoolId,
    /// Its name.
    pub pool: String,
    /// The volume that the snapshot is of.
    pub volume_id: VolumeId,
    /// Its name.
    pub volume: String,
    /// The snapshot's own name.
    pub snapshot: String,
    /// Size of the snapshot.
    pub size_bytes: u64,
    /// When it was taken, milliseconds since 1970.
    pub created_unix_ms: u64,
    /// Layout of the volume.
    pub shape: Shape,
    /// Share of the log's space that clients do not get, percent.
    pub reserve_percent: u32,
}

impl StreamHeader {
    /// The bytes, with their checksum.
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let mut bytes = vec![0; FIXED_BYTES];
        let base = self.base.as_ref();
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.snapshot_id.0.to_be_bytes());
        bytes[32..48].copy_from_slice(&base.map_or(0, |(id, _)| id.0).to_be_bytes());
        bytes[48..64].copy_from_slice(&self.pool_id.0.to_be_bytes());
        bytes[64..80].copy_from_slice(&self.volume_id.0.to_be_bytes());
        bytes[80..88].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[88..96].copy_from_slice(&self.created_unix_ms.to_le_bytes());
        bytes[96..104].copy_from_slice(&self.shape.interleave_bytes.to_le_bytes());
        let numbers = [
            BLOCK_BYTES as u32,
            self.reserve_percent,
            self.shape.width as u32,
            self.shape.groups as u32,
            self.shape.rotation_rows,
        ];
        for (place, number) in bytes[104..124].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let base = base.map_or("", |(_, name)| name.as_str());
        let names = [self.shape.level.name(), &self.pool, &self.volume, &self.snapshot, base];
        for (index, name) in names.into_iter().enumerate() {
            bytes[124 + 2 * index..126 + 2 * index].copy_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend(name.as_bytes());
        }
        let length = bytes.len() as u32 + 4;
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let sum = crc(&bytes);
        bytes.extend(sum.to_le_bytes());
        (bytes, sum)
    }

    /// Length of a header that begins so.
    pub(crate) fn length(prefix: &[u8; PREFIX_BYTES]) -> Result<usize, StreamError> {
        if prefix[..8] != MAGIC {
            return Err(StreamError::NoStream);
        }
        let (version, length) = (u32_at(prefix, 8), u32_at(prefix, 12) as usize);
        if version != VERSION {
            return Err(StreamError::Version { found: version, known: VERSION });
        }
        match (FIXED_BYTES + 4..=MOST_HEADER_BYTES).contains(&length) {
            true => Ok(length),
            false => Err(corrupted(0, "the length of its header is impossible")),
        }
    }

    /// Reads a header of [`Self::length`] bytes; also returns its checksum.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, u32), StreamError> {
        let wrong = |what: &'static str| corrupted(0, what);
        let (head, sum) = bytes.split_at_checked(bytes.len() - 4).expect("longer than its fixed part");
        let sum = u32_at(sum, 0);
        if crc(head) != sum {
            return Err(wrong("the checksum of its header does not match"));
        }
        let mut rest = &head[FIXED_BYTES..];
        let mut names = [""; 5];
        for (index, name) in names.iter_mut().enumerate() {
            let length = usize::from(u16::from_le_bytes([head[124 + 2 * index], head[125 + 2 * index]]));
            let (text, after) =
                rest.split_at_checked(length).ok_or_else(|| wrong("its names have another length"))?;
            *name = str::from_utf8(text).map_err(|_| wrong("its names are not text"))?;
            rest = after;
        }
        let [level, pool, volume, snapshot, base] = names;
        let base_id = id_at(head, 32);
        let number = |index: usize| u32_at(head, 104 + 4 * index);
        let shape = Shape {
            level: level.parse().map_err(|_| wrong("its layout is unknown"))?,
            width: number(2) as usize,
            groups: number(3) as usize,
            interleave_bytes: u64_at(head, 96),
            rotation_rows: number(4),
        };
        let header = Self {
            snapshot_id: id_at(head, 16),
            base: (base_id.0 != 0).then(|| (base_id, base.to_owned())),
            pool_id: id_at(head, 48),
            pool: pool.to_owned(),
            volume_id: id_at(head, 64),
            volume: volume.to_owned(),
            snapshot: snapshot.to_owned(),
            size_bytes: u64_at(head, 80),
            created_unix_ms: u64_at(head, 88),
            shape,
            reserve_percent: number(1),
        };
        let is_name = |name: &str| check_name(name).is_ok();
        let fits = rest.is_empty()
            && head[134..136] == [0, 0]
            && number(0) == BLOCK_BYTES as u32
            && shape.check().is_ok()
            && [pool, volume, snapshot].into_iter().all(is_name)
            && header.base.as_ref().map_or(base.is_empty(), |(_, name)| is_name(name))
            && header.snapshot_id.0 != 0
            && (BLOCK_BYTES..=MOST_VOLUME_BYTES).contains(&header.size_bytes)
            && header.size_bytes.is_multiple_of(BLOCK_BYTES)
            && header.created_unix_ms <= LAST_UNIX_MS
            && RESERVE_PERCENT.contains(&header.reserve_percent);
        if fits { Ok((header, sum)) } else { Err(wrong("its header has impossible values")) }
    }
}

/// Identity of a snapshot in streams: of the pool, the array, the snapshot's number in it and the
/// time when it was taken, ms since 1970. A copy of a pool with an identity of its own has other
/// snapshots, and so has a pool that was restored from older copies of its drives.
pub(crate) fn snapshot_id(pool: PoolId, part: Id, number: u32, created_unix_ms: u64) -> Id {
    let of_snapshot = (u128::from(created_unix_ms) << 64) | (u128::from(number) + 1);
    Id(pool.0 ^ part.0.rotate_left(64) ^ of_snapshot)
}

/// A record without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Data of a range, which follows.
    Data { offset_bytes: u64, length_bytes: u64 },
    /// A range that reads as zeros.
    Zeros { offset_bytes: u64, length_bytes: u64 },
    /// The end: numbers of records and of bytes of data before, checksum over their checksums.
    End { records: u64, data_bytes: u64, sums: u32 },
}

/// Checksums of a stream as far as it has come.
pub(crate) struct Sums {
    header: u32,
    all: Digest,
}

impl Sums {
    /// Behind a header with this checksum.
    pub(crate) fn new(header: u32) -> Self {
        let mut all = Digest::new(CrcAlgorithm::Crc32Iscsi);
        all.update(&header.to_le_bytes());
        Self { header, all }
    }

    /// Checksum over all checksums so far.
    pub(crate) fn all(&self) -> u32 {
        self.all.clone().finalize() as u32
    }

    fn add(&mut self, record: &[u8; RECORD_BYTES], data: &[u8]) -> u32 {
        let mut sum = Digest::new(CrcAlgorithm::Crc32Iscsi);
        sum.update(&self.header.to_le_bytes());
        sum.update(&record[..4]);
        sum.update(&record[8..]);
        sum.update(data);
        let sum = sum.finalize() as u32;
        self.all.update(&sum.to_le_bytes());
        sum
    }

    /// Bytes of a record; its checksum is over the data that follows, too.
    pub(crate) fn encode(&mut self, record: Record, data: &[u8]) -> [u8; RECORD_BYTES] {
        let (kind, first, second, sums) = match record {
            Record::Data { offset_bytes, length_bytes } => (1u32, offset_bytes, length_bytes, 0),
            Record::Zeros { offset_bytes, length_bytes } => (2, offset_bytes, length_bytes, 0),
            Record::End { records, data_bytes, sums } => (3, records, data_bytes, sums),
        };
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&first.to_le_bytes());
        bytes[16..24].copy_from_slice(&second.to_le_bytes());
        bytes[24..28].copy_from_slice(&sums.to_le_bytes());
        let sum = self.add(&bytes, data);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// True if a record's checksum matches it and its data.
    pub(crate) fn verify(&mut self, record: &[u8; RECORD_BYTES], data: &[u8]) -> bool {
        self.add(record, data) == u32_at(record, 4)
    }
}

impl Record {
    /// Reads a record; `None` for an impossible one. Its checksum is not verified yet.
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let (first, second, sums) = (u64_at(bytes, 8), u64_at(bytes, 16), u32_at(bytes, 24));
        let record = match u32_at(bytes, 0) {
            1 => Self::Data { offset_bytes: first, length_bytes: second },
            2 => Self::Zeros { offset_bytes: first, length_bytes: second },
            3 => Self::End { records: first, data_bytes: second, sums },
            _ => return None,
        };
        let fits = match record {
            Self::End { .. } => true,
            Self::Data { length_bytes, .. } if length_bytes > MOST_DATA_BYTES => false,
            Self::Data { .. } | Self::Zeros { .. } => {
                second > 0
                    && first.is_multiple_of(BLOCK_BYTES)
                    && second.is_multiple_of(BLOCK_BYTES)
                    && sums == 0
            }
        };
        (fits && u32_at(bytes, 28) == 0).then_some(record)
    }
}

pub(crate) fn corrupted(at: u64, what: &'static str) -> StreamError {
    StreamError::Corrupted { at, what }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn id_at(bytes: &[u8], at: usize) -> Id {
    Id(u128::from_be_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes")))
}

/// Corrects the checksums of a stream, as far as the lengths of its records are possible.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let length = bytes.first_chunk().and_then(|prefix| StreamHeader::length(prefix).ok());
    let Some(length) = length.filter(|length| *length <= bytes.len()) else { return };
    let sum = crc(&bytes[..length - 4]);
    bytes[length - 4..length].copy_from_slice(&sum.to_le_bytes());
    let (mut sums, mut at) = (Sums::new(sum), length);
    while let Some(head) = bytes[at..].first_chunk::<RECORD_BYTES>().copied() {
        let data_bytes = match u32_at(&head, 0) {
            1 => u64_at(&head, 16).min(MOST_DATA_BYTES) as usize,
            _ => 0,
        };
        let Some(data) = bytes[at + RECORD_BYTES..].get(..data_bytes) else { return };
        let mut head = head;
        if u32_at(&head, 0) == 3 {
            head[24..28].copy_from_slice(&sums.all().to_le_bytes());
        }
        let sum = sums.add(&head, data);
        head[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes[at..at + RECORD_BYTES].copy_from_slice(&head);
        at += RECORD_BYTES + data_bytes;
    }
}
