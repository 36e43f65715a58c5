//! The members of a log: whole segments are written, blocks are read back.
//!
//! Writing computes parity and sends one request per member. A member that refuses a write is
//! recorded as missing before the write counts (invariant I7); beyond the layout's tolerance the
//! write fails. Reading ([`read`]) reconstructs blocks that cannot be read or do not match their
//! checksum.

pub(crate) mod columns;
mod exclusion;
pub(crate) mod fill;
pub(crate) mod read;
pub(crate) mod units;

use std::cell::Cell;
use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_array::Class;
use stripewise_drive::{
    Buffer, BufferPool, Cause, DriveError, DriveErrorKind, IoRequest, Operation, Segments as Pieces, access,
};
use stripewise_layout::MemberSet;

use crate::drives::columns::{Answer, Columns, refusals};
use crate::drives::exclusion::Exclusion;
use crate::drives::fill::Filling;
use crate::error::LogError;
use crate::mutation::{Mutation, is_chosen};
use crate::roots::RootStore;
use crate::shape::Segments;

/// Scattered pieces of memory in one request.
const MOST_PIECES: usize = 512;

/// Counters since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriveCounters {
    /// Blocks that did not match their checksum or could not be read, and were reconstructed.
    pub(crate) repaired: u64,
}

/// The members, those that are missing included.
pub(crate) struct Drives {
    pub(crate) buffers: BufferPool,
    pub(crate) segments: Segments,
    pub(crate) columns: Rc<Columns>,
    exclusion: Exclusion,
    filling: Filling,
    pub(crate) counters: Cell<DriveCounters>,
}

impl Drives {
    pub(crate) fn new(
        buffers: BufferPool,
        segments: Segments,
        columns: Rc<Columns>,
        missing: MemberSet,
        roots: Rc<dyn RootStore>,
    ) -> Self {
        let exclusion = Exclusion::new(missing, roots);
        let (filling, counters) = (Filling::default(), Cell::default());
        Self { buffers, segments, columns, exclusion, filling, counters }
    }

    /// Members that miss writes.
    pub(crate) fn missing(&self) -> MemberSet {
        self.exclusion.missing()
    }

    /// Members that the pool has recorded as missing. False if the layout cannot do without them.
    pub(crate) fn leave_out(&self, missing: MemberSet) -> bool {
        self.exclusion.add_recorded(missing);
        self.segments.geometry.survives(&self.missing())
    }

    /// Numbers of the members that take part, from `first` on and round.
    pub(crate) fn present_from(&self, first: usize) -> Vec<usize> {
        let (width, missing) = (self.columns.width(), self.missing());
        (first..first + width).map(|n| n % width).filter(|&member| !missing.contains(member)).collect()
    }

    fn submit(&self, member: usize, class: Class, request: IoRequest) -> Answer {
        self.columns.submit(member, class, request)
    }

    /// Sends a request to a member.
    pub(crate) async fn ask(
        &self,
        member: usize,
        class: Class,
        request: IoRequest,
    ) -> Result<(), DriveError> {
        self.submit(member, class, request).end().await
    }

    /// Writes a segment whose data, summary included, are in `data`.
    pub(crate) async fn write_segment(
        &self,
        segment: u32,
        data: &Buffer,
        class: Class,
    ) -> Result<(), LogError> {
        let parity = self.parity(data);
        let mut sent = Vec::new();
        for (member, pieces) in self.pieces(segment, data, &parity).into_iter().enumerate() {
            if !self.gets_segments(member) {
                continue;
            }
            for request in requests(self.segments.base_bytes, pieces) {
                sent.push((member, self.submit(member, class, request)));
            }
        }
        self.exclude(self.without_filling(refusals(sent).await)).await
    }

    /// Parity of each stripe in turn.
    pub(crate) fn parity(&self, data: &Buffer) -> Vec<Buffer> {
        let geometry = &self.segments.geometry;
        let (units, parity_units) = (geometry.data_units(), geometry.parity_units());
        let strip = geometry.interleave_bytes() as usize;
        if parity_units == 0 {
            return Vec::new();
        }
        let all = self.buffers.allocate(self.segments.stripes as usize * parity_units * strip);
        let parity: Vec<Buffer> =
            (0..all.len() / strip).map(|index| all.slice(index * strip..(index + 1) * strip)).collect();
        for (stripe, parity) in parity.chunks_exact(parity_units).enumerate() {
            let start = stripe * units * strip;
            let sources: SmallVec<[Buffer; 12]> =
                (0..units).map(|unit| data.slice(start + unit * strip..start + (unit + 1) * strip)).collect();
            let sources: SmallVec<[&Buffer; 12]> = sources.iter().collect();
            let targets: SmallVec<[&Buffer; 3]> = parity.iter().collect();
            access(&sources, &targets, stripewise_parity::encode);
        }
        parity
    }

    /// Strips of a segment by member: offset in the geometry's space and memory, ascending.
    fn pieces(&self, segment: u32, data: &Buffer, parity: &[Buffer]) -> Vec<Vec<(u64, Buffer)>> {
        let geometry = &self.segments.geometry;
        let (units, strip) = (geometry.data_units(), geometry.interleave_bytes() as usize);
        let mut pieces = vec![Vec::new(); self.columns.width()];
        for stripe in 0..self.segments.stripes as usize {
            let places = geometry.stripe(u64::from(segment) * self.segments.stripes + stripe as u64).units;
            for (unit, place) in places.iter().enumerate() {
                let is_copy = geometry.parity_units() == 0;
                let buffer = if is_copy || unit < units {
                    let at = (stripe * units + if is_copy { 0 } else { unit }) * strip;
                    data.slice(at..at + strip)
                } else {
                    parity[stripe * geometry.parity_units() + unit - units].clone()
                };
                pieces[place.member].push((place.offset_bytes, buffer));
            }
        }
        pieces.iter_mut().for_each(|pieces| pieces.sort_by_key(|(offset, _)| *offset));
        pieces
    }

    /// Takes members that refused a write out of the log, and has that recorded. Also waits until
    /// earlier exclusions are recorded, since what is about to count was not written there.
    pub(crate) async fn exclude(&self, refused: Vec<(usize, DriveError)>) -> Result<(), LogError> {
        if self.columns.has_ended() {
            return Err(LogError::Closed);
        }
        let missing = self.missing();
        let refused: Vec<_> = refused.into_iter().filter(|(member, _)| !missing.contains(*member)).collect();
        if let Some((_, first)) = refused.first() {
            let all: MemberSet = missing.iter().chain(refused.iter().map(|(member, _)| *member)).collect();
            // A full file system is no fault of the drive, and others are likely to lie there too.
            let full = refused.iter().find(|(_, error)| error.kind == DriveErrorKind::NoSpace);
            let is_spared = full.is_none() && self.segments.geometry.survives(&all);
            for (member, error) in &refused {
                let member = self.columns.member(*member);
                member.iter().for_each(|member| member.note_write_error(error, is_spared));
            }
            if !is_spared {
                return Err(LogError::Drive(full.map_or(first, |(_, error)| error).clone()));
            }
            self.exclusion.record(all).await?;
        }
        self.exclusion.until_recorded().await
    }

    /// Makes everything durable that was written before.
    pub(crate) async fn flush(&self) -> Result<(), LogError> {
        if is_chosen(Mutation::FlushWithoutDrives) {
            return Ok(());
        }
        let flush = |member: usize| {
            let request = IoRequest::flush().because(Cause::Flush);
            (member, self.submit(member, Class::Upkeep, request))
        };
        let sent: Vec<_> = self.present_from(0).into_iter().map(flush).collect();
        let mut refused = refusals(sent).await;
        // A refusal that another user of the drive met concerns what was written here, too.
        for member in self.present_from(0) {
            let error = self.columns.take_refused_flush(member);
            if let Some(error) = error.filter(|_| !refused.iter().any(|(other, _)| *other == member)) {
                refused.push((member, error));
            }
        }
        self.exclude(refused).await
    }
}

/// Joins adjacent strips into requests.
fn requests(base_bytes: u64, pieces: Vec<(u64, Buffer)>) -> Vec<IoRequest> {
    let mut requests: Vec<(u64, u64, Pieces)> = Vec::new();
    for (offset, buffer) in pieces {
        let length = buffer.len() as u64;
        match requests.last_mut() {
            Some((_, end, pieces)) if *end == offset && pieces.len() < MOST_PIECES => {
                *end += length;
                pieces.push(buffer);
            }
            _ => requests.push((offset, offset + length, Pieces::from_iter([buffer]))),
        }
    }
    let write = Operation::Write { fua: false };
    let joined = requests.into_iter();
    joined.map(|(start, _, pieces)| IoRequest::with_segments(write, base_bytes + start, pieces)).collect()
}
