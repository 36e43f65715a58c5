//! Reading blocks of the log, whatever a member lacks or has wrong.
//!
//! A block that does not match its checksum, or cannot be read, is read again without the member
//! that has it, then without one more in turn, as far as the layout allows. Its right contents are
//! written back in place: the same bytes to the same place, so no order matters.
//!
//! Faults expected: read errors, rot, misdirected and lost writes, missing members.

use smallvec::SmallVec;
use stripewise_array::Class;
use stripewise_drive::{Buffer, Cause, DriveError, IoRequest, access};
use stripewise_layout::{Decode, MemberSet, UnitRange, plan_read};
use stripewise_parity::Recovery;

use crate::drives::Drives;
use crate::error::LogError;
use crate::shape::BLOCK_BYTES;
use crate::summary::crc32c;

/// Manner of a read.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) class: Class,
    /// Blocks that had to be reconstructed are written again in place, and errors count against
    /// their drive.
    pub(crate) mends: bool,
}

impl From<Class> for Manner {
    fn from(class: Class) -> Self {
        Self { class, mends: true }
    }
}

/// A read that did not work: the member that failed, if one did.
struct Refused {
    member: Option<usize>,
    why: String,
}

impl Drives {
    /// Reads blocks from a place on; each must match its checksum.
    pub(crate) async fn read(
        &self,
        place: u64,
        crcs: &[u32],
        manner: impl Into<Manner>,
    ) -> Result<Buffer, LogError> {
        let manner = manner.into();
        let data = self.read_present(place, crcs.len() as u64, manner).await;
        let block = BLOCK_BYTES as usize;
        let whole = data.unwrap_or_else(|_| self.buffers.allocate_zeroed(crcs.len() * block));
        for (index, &crc) in crcs.iter().enumerate() {
            let own = whole.slice(index * block..(index + 1) * block);
            if own.with(crc32c).is_some_and(|found| found != crc) {
                let matches = |bytes: &[u8]| crc32c(bytes) == crc;
                own.copy_from(&self.recover(place + index as u64, 1, manner, matches).await?);
            }
        }
        Ok(whole)
    }

    /// Reads blocks that `is_whole` accepts; none of their checksums is known.
    pub(crate) async fn read_if(
        &self,
        place: u64,
        count: u64,
        manner: impl Into<Manner>,
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> Result<Buffer, LogError> {
        let manner = manner.into();
        match self.read_present(place, count, manner).await {
            Ok(data) if data.with(&is_whole) != Some(false) => Ok(data),
            _ => self.recover(place, count, manner, is_whole).await,
        }
    }

    /// Reads blocks of a segment without looking at them; those that cannot be read are zeros.
    pub(crate) async fn read_raw(&self, place: u64, count: u64, manner: Manner) -> Buffer {
        if let Ok(data) = self.read_present(place, count, manner).await {
            return data;
        }
        let data = self.buffers.allocate_zeroed((count * BLOCK_BYTES) as usize);
        for index in 0..count {
            if let Ok(block) = self.read_present(place + index, 1, manner).await {
                let start = (index * BLOCK_BYTES) as usize;
                data.slice(start..start + block.len()).copy_from(&block);
            }
        }
        data
    }

    /// Reads from the members that are present.
    async fn read_present(&self, place: u64, count: u64, manner: Manner) -> Result<Buffer, Refused> {
        let mut without = self.missing();
        loop {
            match self.read_without(place, count, &without, manner).await {
                Err(Refused { member: Some(member), .. }) if without.insert(member) => {}
                result => return result,
            }
        }
    }

    /// Reads blocks in every way that the layout allows until `is_whole` accepts them, then
    /// repairs them.
    async fn recover(
        &self,
        place: u64,
        count: u64,
        manner: Manner,
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> Result<Buffer, LogError> {
        let mut why = "it does not match its checksum".to_owned();
        for without in self.ways(place) {
            match self.read_without(place, count, &without, manner).await {
                Ok(data) if data.with(&is_whole) != Some(false) && !manner.mends => return Ok(data),
                Ok(data) if data.with(&is_whole) != Some(false) => {
                    let mut counters = self.counters.get();
                    counters.repaired += count;
                    self.counters.set(counters);
                    self.rewrite(place, &data).await;
                    return Ok(data);
                }
                Ok(_) => {}
                Err(refused) => why = refused.why,
            }
        }
        Err(LogError::Lost { place, why })
    }

    /// Sets of members to do without: of a mirror, all but one; with parity, each, that of the
    /// place first, then each together with that of the place.
    fn ways(&self, place: u64) -> Vec<MemberSet> {
        let geometry = &self.segments.geometry;
        let (missing, width) = (self.missing(), geometry.width());
        let set =
            |members: &[usize]| -> MemberSet { missing.iter().chain(members.iter().copied()).collect() };
        if geometry.parity_units() == 0 {
            let copies = (0..geometry.copies())
                .map(|copy| geometry.copy_place(place * BLOCK_BYTES, copy).0.member)
                .collect::<Vec<_>>();
            let all_but = |kept: &usize| -> MemberSet {
                missing.iter().chain(copies.iter().copied().filter(|member| member != kept)).collect()
            };
            return copies.iter().filter(|&&copy| !missing.contains(copy)).map(all_but).collect();
        }
        let own = geometry.data_unit_place(place * BLOCK_BYTES).0.member;
        let others = (0..width).filter(|&member| member != own);
        let mut ways = vec![set(&[own])];
        ways.extend(others.clone().map(|member| set(&[member])));
        ways.extend(others.map(|member| set(&[own, member])));
        ways
    }

    /// Writes blocks in place on every present member that has a copy. A refusal is left to the
    /// next read.
    async fn rewrite(&self, place: u64, data: &Buffer) {
        let geometry = &self.segments.geometry;
        let block = BLOCK_BYTES as usize;
        for index in 0..data.len() / block {
            let at = (place + index as u64) * BLOCK_BYTES;
            for copy in 0..geometry.copies() {
                let (to, _) = geometry.copy_place(at, copy);
                if !self.missing().contains(to.member) {
                    let piece = data.slice(index * block..(index + 1) * block);
                    let start = self.segments.base_bytes + to.offset_bytes;
                    let request = IoRequest::write(start, piece, false).because(Cause::Repair);
                    let _ = self.ask(to.member, Class::Upkeep, request).await;
                }
            }
        }
    }

    /// Reads blocks with these members missing.
    async fn read_without(
        &self,
        place: u64,
        count: u64,
        missing: &MemberSet,
        manner: Manner,
    ) -> Result<Buffer, Refused> {
        let geometry = &self.segments.geometry;
        let data = self.buffers.allocate((count * BLOCK_BYTES) as usize);
        let mut at = 0;
        let mut sent = Vec::new();
        let mut decodes = Vec::new();
        for part in geometry.segments(place * BLOCK_BYTES, count * BLOCK_BYTES) {
            let stripe = geometry.stripe(part.stripe);
            let least_busy = |members: &[usize]| {
                (0..members.len()).min_by_key(|&index| self.columns.load(members[index])).unwrap_or(0)
            };
            let plan = plan_read(geometry, &stripe, part.from, part.to, missing, least_busy)
                .map_err(|error| Refused { member: None, why: error.to_string() })?;
            let target = data.slice(at..at + (part.to - part.from) as usize);
            at += target.len();
            let strip = geometry.interleave_bytes();
            let mut reads = SmallVec::<[(UnitRange, Buffer); 4]>::new();
            for range in plan.reads {
                // Without decoding, a range is a part of what was asked for.
                let data_unit = if geometry.parity_units() == 0 { 0 } else { range.unit as u64 };
                let buffer = match &plan.decode {
                    None => {
                        let start = (data_unit * strip + range.start - part.from) as usize;
                        target.slice(start..start + range.length() as usize)
                    }
                    Some(_) => self.buffers.allocate(range.length() as usize),
                };
                let from = stripe.units[range.unit];
                let start = self.segments.base_bytes + from.offset_bytes + range.start;
                let request = IoRequest::read(start, buffer.clone());
                let request =
                    if plan.decode.is_some() { request.because(Cause::Reconstruct) } else { request };
                sent.push((from.member, self.submit(from.member, manner.class, request)));
                reads.push((range, buffer));
            }
            decodes.extend(plan.decode.map(|decode| (decode, part, target, reads)));
        }
        let mut refused = None;
        for (member, answer) in sent {
            if let Err(error) = answer.end().await {
                self.note(member, &error, manner);
                refused = Some(Refused { member: Some(member), why: error.to_string() });
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        for (decode, part, target, reads) in decodes {
            let decoded = self.decode(&decode, &reads);
            for range in geometry.data_ranges(part.from, part.to) {
                let start =
                    (range.unit as u64 * geometry.interleave_bytes() + range.start - part.from) as usize;
                let to = target.slice(start..start + range.length() as usize);
                let known = reads.iter().find(|(read, _)| read.unit == range.unit);
                let (first, from) = match known {
                    Some((read, buffer)) => (read.start, buffer),
                    None => {
                        let wanted = decode.wanted.iter().position(|&unit| unit == range.unit);
                        (decode.start, &decoded[wanted.expect("read or decoded")])
                    }
                };
                let at = (range.start - first) as usize;
                to.copy_from(&from.slice(at..at + to.len()));
            }
        }
        Ok(data)
    }

    /// Reconstructs the wanted units of a decode.
    fn decode(&self, decode: &Decode, reads: &[(UnitRange, Buffer)]) -> Vec<Buffer> {
        let source = |unit: &usize| {
            let (range, buffer) =
                reads.iter().find(|(range, _)| range.unit == *unit).expect("sources are read");
            buffer.slice((decode.start - range.start) as usize..(decode.end - range.start) as usize)
        };
        let sources: SmallVec<[Buffer; 12]> = decode.sources.iter().map(source).collect();
        let length = (decode.end - decode.start) as usize;
        let wanted: Vec<Buffer> = decode.wanted.iter().map(|_| self.buffers.allocate(length)).collect();
        let data_units = self.segments.geometry.data_units();
        let recovery = Recovery::new(data_units, &decode.sources, &decode.wanted)
            .expect("any data_units of a stripe's units recover the others");
        let sources: SmallVec<[&Buffer; 12]> = sources.iter().collect();
        let targets: SmallVec<[&Buffer; 3]> = wanted.iter().collect();
        access(&sources, &targets, |sources, wanted| recovery.apply(sources, wanted));
        drop(targets);
        wanted
    }

    pub(super) fn note(&self, member: usize, error: &DriveError, manner: Manner) {
        if self.columns.has_ended() || !manner.mends {
            return;
        }
        let spare = self.missing().len() < self.segments.geometry.fault_tolerance();
        let member = self.columns.member(member);
        member.iter().for_each(|member| member.note_read_error(error, spare));
    }
}
