//! On-drive format of a batch: a head (header, one descriptor per record, release notes; whole
//! pages, one checksum over all of it), followed by the payload of its records, each with a
//! checksum of its own.
//!
//! The input may be garbage, an old batch, or a payload that looks like a batch: decoding checks
//! every length against the input, allocates no more than the input can describe, and returns
//! `None` if anything is wrong.

use crc_fast::{CrcAlgorithm, Digest};
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Segments};

use super::{Kind, Part, Record, SumRun};

/// Unit of all sizes in an area.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Maximum size of a batch's head: bounds what a scan reads because of a page that looks like one.
pub(super) const MAX_HEAD_BYTES: u64 = 1 << 20;
/// Upper bound of valid sequences; real ones stay far below.
const MAX_SEQUENCE: u64 = 1 << 62;
/// Size of the fixed part of a head.
pub(super) const HEADER_BYTES: usize = 112;
/// Size of one release note: a run of sequences.
pub(super) const NOTE_BYTES: usize = 12;
const RECORD_BYTES: usize = 40;
const PART_BYTES: usize = 12;
const RUN_BYTES: usize = 8;
const MAGIC: [u8; 8] = *b"SWJBATCH";
const CHECKSUM_AT: usize = 104;
/// Record flag: the payload had no bytes (a phantom of a performance model), so it has no checksum.
const PHANTOM: u8 = 1;

/// Header of a batch, with the state of the journal when the batch was formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub volume_id: u128,
    pub epoch: u64,
    pub number: u64,
    /// Number of the next batch when this copy was written: its own, or a later one for a copy that
    /// was restored later.
    pub written_at: u64,
    /// Sequence of its first record; without records, the next sequence.
    pub first_sequence: u64,
    /// Every record of every batch below this number was released.
    pub oldest_live: u64,
    /// Every batch of this opening up to this number was acknowledged; 0 if none was.
    pub acknowledged: u64,
    pub records: u32,
    pub notes: u32,
    /// Size of header, descriptors, notes and padding: whole pages.
    pub head_bytes: u64,
    /// Size of the payload without padding.
    pub payload_bytes: u64,
}

impl BatchHeader {
    /// True if both are heads of copies of one batch.
    pub(super) fn is_copy_of(&self, other: &Self) -> bool {
        Self { written_at: other.written_at, ..*self } == *other
    }

    /// Pages of the whole batch.
    pub(super) fn pages(&self) -> u64 {
        self.head_bytes / PAGE_BYTES + self.payload_bytes.div_ceil(PAGE_BYTES)
    }
}

/// A run of released sequences: `count` from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub first: u64,
    pub count: u32,
}

/// Location and checksum of a record's payload in its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Payload {
    /// Offset from the start of the batch, in bytes.
    pub at: u64,
    pub bytes: u64,
    pub crc: u32,
    pub phantom: bool,
}

/// A decoded head: the payloads of its records are phantoms.
#[derive(Debug)]
pub(super) struct Head {
    pub header: BatchHeader,
    pub records: Vec<(Record, Payload)>,
    pub notes: Vec<Note>,
}

/// Size of a record's descriptor, in bytes.
pub(super) fn descriptor_bytes(record: &Record) -> usize {
    let sums: usize = record.sums.iter().map(|run| RUN_BYTES + 4 * run.sums.len()).sum();
    RECORD_BYTES + PART_BYTES * record.parts.len() + sums
}

/// Size of a record's payload, in bytes.
pub(super) fn payload_bytes(record: &Record) -> u64 {
    record.parts.iter().map(Part::len).sum()
}

/// CRC-32C over consecutive buffers, and whether any of them is a phantom; then the CRC is 0.
pub(super) fn checksum<'a>(buffers: impl IntoIterator<Item = &'a Buffer>) -> (u32, bool) {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut phantom = false;
    for buffer in buffers {
        phantom |= buffer.with(|bytes| digest.update(bytes)).is_none();
    }
    (if phantom { 0 } else { digest.finalize() as u32 }, phantom)
}

fn head_checksum(bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..CHECKSUM_AT]);
    digest.update(&[0; 4]);
    digest.update(&bytes[CHECKSUM_AT + 4..]);
    digest.finalize() as u32
}

struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::Data => 1,
        Kind::Redo => 2,
        Kind::Parity => 3,
        Kind::Intent => 4,
    }
}

fn kind_of(code: u8) -> Option<Kind> {
    Some(match code {
        1 => Kind::Data,
        2 => Kind::Redo,
        3 => Kind::Parity,
        4 => Kind::Intent,
        _ => return None,
    })
}

/// Encodes a batch head into `head`, which has the size given in the header; a phantom stays as it
/// is.
pub(super) fn encode<'a>(
    head: &Buffer,
    header: &BatchHeader,
    records: impl Iterator<Item = &'a Record>,
    notes: &[Note],
) {
    // Checksums first: accesses to buffers do not nest.
    let described: SmallVec<[(&Record, u32, bool); 8]> = records
        .map(|record| {
            let (crc, phantom) = checksum(record.parts.iter().flat_map(|part| &part.segments));
            (record, crc, phantom)
        })
        .collect();
    head.with_mut(|bytes| {
        let mut to = Writer { bytes, at: 0 };
        to.put(&MAGIC);
        to.put(&header.volume_id.to_le_bytes());
        for word in [
            header.epoch,
            header.number,
            header.written_at,
            header.first_sequence,
            header.oldest_live,
            // Reserved.
            0,
            header.acknowledged,
        ] {
            to.put(&word.to_le_bytes());
        }
        to.put(&header.records.to_le_bytes());
        to.put(&header.notes.to_le_bytes());
        to.put(&header.head_bytes.to_le_bytes());
        to.put(&header.payload_bytes.to_le_bytes());
        to.put(&[0; 8]); // the checksum, and four spare bytes
        for &(record, crc, phantom) in &described {
            put_record(&mut to, record, crc, phantom);
        }
        for note in notes {
            to.put(&note.first.to_le_bytes());
            to.put(&note.count.to_le_bytes());
        }
        let end = to.at;
        bytes[end..].fill(0);
        let checksum = head_checksum(bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    });
}

fn put_record(to: &mut Writer<'_>, record: &Record, crc: u32, phantom: bool) {
    to.put(&(descriptor_bytes(record) as u32).to_le_bytes());
    to.put(&[kind_code(record.kind), if phantom { PHANTOM } else { 0 }]);
    to.put(&(record.parts.len() as u16).to_le_bytes());
    to.put(&record.stripe.to_le_bytes());
    to.put(&record.covers.to_le_bytes());
    to.put(&payload_bytes(record).to_le_bytes());
    to.put(&crc.to_le_bytes());
    to.put(&(record.sums.len() as u32).to_le_bytes());
    for part in &record.parts {
        to.put(&part.unit.to_le_bytes());
        to.put(&[0; 2]);
        to.put(&part.start.to_le_bytes());
        to.put(&(part.len() as u32).to_le_bytes());
    }
    for run in &record.sums {
        to.put(&run.unit.to_le_bytes());
        to.put(&(run.sums.len() as u16).to_le_bytes());
        to.put(&run.first_block.to_le_bytes());
        for sum in &run.sums {
            to.put(&sum.to_le_bytes());
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// Decodes the header at the start of a page, if it could be one of this volume and epoch;
/// validates its fields only.
pub(super) fn decode_header(page: &[u8], volume_id: u128, epoch: u64) -> Option<BatchHeader> {
    if page.len() < HEADER_BYTES || page[..8] != MAGIC {
        return None;
    }
    let mut from = Reader(&page[8..]);
    let read_id = u128::from_le_bytes(from.take(16)?.try_into().ok()?);
    let header = BatchHeader {
        volume_id: read_id,
        epoch: from.u64()?,
        number: from.u64()?,
        written_at: from.u64()?,
        first_sequence: from.u64()?,
        oldest_live: from.u64()?,
        acknowledged: {
            // Eight reserved bytes come before it.
            from.u64()?;
            from.u64()?
        },
        records: from.u32()?,
        notes: from.u32()?,
        head_bytes: from.u64()?,
        payload_bytes: from.u64()?,
    };
    let sound = read_id == volume_id
        && header.epoch == epoch
        && header.written_at >= header.number
        && header.oldest_live <= header.number
        && header.acknowledged < header.number
        && header.head_bytes >= PAGE_BYTES
        && header.head_bytes <= MAX_HEAD_BYTES
        && header.head_bytes.is_multiple_of(PAGE_BYTES)
        && header.payload_bytes <= u64::from(u32::MAX)
        && header.first_sequence < MAX_SEQUENCE;
    sound.then_some(header)
}

/// True if the checksum of a whole head is correct.
pub(super) fn head_is_whole(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES && bytes[CHECKSUM_AT..CHECKSUM_AT + 4] == head_checksum(bytes).to_le_bytes()
}

/// Turns a whole head into that of a copy written later.
pub(super) fn rewrite(bytes: &mut [u8], written_at: u64) {
    bytes[40..48].copy_from_slice(&written_at.to_le_bytes());
    let checksum = head_checksum(bytes);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Decodes a whole head of this volume and epoch.
pub(super) fn decode(bytes: &[u8], volume_id: u128, epoch: u64) -> Option<Head> {
    let header = decode_header(bytes, volume_id, epoch)?;
    if header.head_bytes != bytes.len() as u64 || !head_is_whole(bytes) {
        return None;
    }
    let mut from = Reader(&bytes[HEADER_BYTES..]);
    let mut records = Vec::new();
    let mut at = header.head_bytes;
    for index in 0..header.records {
        let (record, payload) = take_record(&mut from, header.first_sequence + u64::from(index), at)?;
        at = at.checked_add(payload.bytes)?;
        records.push((record, payload));
    }
    if at - header.head_bytes != header.payload_bytes {
        return None;
    }
    let mut notes = Vec::new();
    for _ in 0..header.notes {
        let note = Note { first: from.u64()?, count: from.u32()? };
        note.first.checked_add(u64::from(note.count))?;
        notes.push(note);
    }
    Some(Head { header, records, notes })
}

/// For fuzzers: decodes bytes as a head after correcting its length, identity and checksum. True if
/// the decoder accepts it.
pub(crate) fn decode_sealed(bytes: &[u8]) -> bool {
    let mut head = bytes.to_vec();
    let whole_pages = head.len().max(HEADER_BYTES).next_multiple_of(PAGE_BYTES as usize);
    head.resize(whole_pages, 0);
    head[..8].copy_from_slice(&MAGIC);
    head[88..96].copy_from_slice(&(whole_pages as u64).to_le_bytes());
    let checksum = head_checksum(&head);
    head[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    let volume_id = u128::from_le_bytes(head[8..24].try_into().expect("sixteen bytes"));
    let epoch = u64::from_le_bytes(head[24..32].try_into().expect("eight bytes"));
    decode(&head, volume_id, epoch).is_some()
}

fn take_record(from: &mut Reader<'_>, sequence: u64, at: u64) -> Option<(Record, Payload)> {
    let length = from.u32()? as usize;
    let mut from = Reader(from.take(length.checked_sub(4)?)?);
    let kind = kind_of(from.take(1)?[0])?;
    let phantom = from.take(1)?[0] & PHANTOM != 0;
    let parts_count = from.u16()?;
    let (stripe, covers) = (from.u64()?, from.u64()?);
    let bytes = from.u64()?;
    let crc = from.u32()?;
    let runs_count = from.u32()?;
    let mut parts: SmallVec<[Part; 4]> = SmallVec::new();
    let mut total = 0_u64;
    for _ in 0..parts_count {
        let unit = from.u16()?;
        from.take(2)?;
        let (start, length) = (from.u32()?, from.u32()?);
        total += u64::from(length);
        let segments = Segments::from_iter([Buffer::phantom(length as usize)]);
        parts.push(Part { unit, start, segments });
    }
    let mut sums = Vec::new();
    for _ in 0..runs_count {
        let (unit, count, first_block) = (from.u16()?, from.u16()?, from.u32()?);
        let bytes = from.take(4 * usize::from(count))?;
        let values = bytes.chunks_exact(4).map(|sum| u32::from_le_bytes(sum.try_into().expect("four bytes")));
        sums.push(SumRun { unit, first_block, sums: values.collect() });
    }
    if total != bytes || !from.0.is_empty() {
        return None;
    }
    let record = Record { sequence, kind, stripe, covers, parts, sums };
    Some((record, Payload { at, bytes, crc, phantom }))
}
