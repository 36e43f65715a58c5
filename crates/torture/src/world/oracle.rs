//! Reference model of a volume: the contents that each sector may have. It judges every read.
//!
//! For each sector the model keeps the writes that the sector may still hold: the last one that is
//! certainly durable, and later ones, each with the times of its beginning and end. A read may
//! return any write that no later, acknowledged write had replaced before the read began. After a
//! power cut, the sector may hold any write that no later, *durable* write has replaced. It keeps
//! this set of possible contents until it is written again, or is read at the end of the run.
//!
//! The model also knows the limits of the guarantees. A block that was being written at a power cut
//! is *suspect* until the whole volume is available again: if a drive is lost before that, a read
//! of the block may be refused ([`Oracle::lose_suspects`]), but must not return wrong data. With
//! parity and without a journal, whole stripes are suspect, and a read may return anything there.
//!
//! Time in the model is a count of events ([`Oracle::tick`]), which orders events at one instant of
//! the clock. Memory: 40 bytes per sector of the volume, and about 40 per write that a sector may
//! hold.

mod wrong;

use std::collections::BTreeSet;
use std::ops::Range;

use super::content::{BLOCK_BYTES, Content, SECTOR_BYTES, SectorBytes, identify, is_torn_of, stamp};
use crate::Promises;

pub(crate) use wrong::Wrong;

const SECTORS_PER_BLOCK: u32 = (BLOCK_BYTES / SECTOR_BYTES) as u32;
const IN_FLIGHT: u64 = u64::MAX;

/// Content that a write leaves in a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Zeros.
    Zero,
    /// A client's data of this version.
    Data(u32),
    /// Anything, including an error: lost beyond the guarantees.
    Any,
    /// A read error.
    Lost,
}

impl Value {
    fn may_be_refused(self) -> bool {
        matches!(self, Self::Any | Self::Lost)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    value: Value,
    begun: u64,
    ended: u64,
    acknowledged: bool,
    durable: bool,
    /// True for a discard, which may have no effect even if acknowledged.
    weak: bool,
    /// True if the write was not durable at a power cut: the sector may be torn between two such
    /// writes.
    cut: bool,
    /// True if a drive may have lost the write with its cache, and no client has an error for it
    /// yet ([`Oracle::put_at_risk`]).
    at_risk: bool,
}

#[derive(Default)]
struct Sector {
    /// Possible contents; empty for a sector that was never written.
    entries: Vec<Entry>,
    /// Time when entries were last dropped: earlier reads cannot be judged.
    dropped_at: u64,
    /// Time until which reads might be refused: a read that began earlier may still be.
    refusable_until: u64,
}

/// Content of a sector that was never written.
const UNWRITTEN: [Entry; 1] = [Entry {
    value: Value::Zero,
    begun: 0,
    ended: 0,
    acknowledged: true,
    durable: true,
    weak: false,
    cut: false,
    at_risk: false,
}];

impl Entry {
    /// True if the entry certainly replaces earlier ones.
    fn counts(&self) -> bool {
        self.acknowledged && !self.weak
    }

    /// A durable entry that no client wrote.
    fn of(value: Value, now: u64) -> Self {
        Self { value, begun: now, ended: now, acknowledged: false, ..UNWRITTEN[0] }
    }
}

impl Sector {
    fn entries(&self) -> &[Entry] {
        if self.entries.is_empty() { &UNWRITTEN } else { &self.entries }
    }

    /// Contents that a read that began at `since` may return.
    fn candidates(&self, since: u64) -> impl Iterator<Item = &Entry> {
        let all = self.entries();
        all.iter().filter(move |entry| {
            let is_replaced =
                |by: &Entry| by.counts() && !by.at_risk && by.begun > entry.ended && by.ended < since;
            !all.iter().any(is_replaced)
        })
    }

    /// Drops entries that no power cut can bring back.
    fn forget_replaced(&mut self, now: u64) {
        let replaces = |entry: &&Entry| entry.durable && entry.counts();
        let Some(latest) = self.entries.iter().filter(replaces).map(|entry| entry.begun).max() else {
            return;
        };
        let before = self.entries.len();
        if self.entries.iter().any(|entry| entry.ended < latest && entry.value.may_be_refused()) {
            self.refusable_until = now;
        }
        self.entries.retain(|entry| entry.ended >= latest);
        if self.entries.len() != before {
            self.dropped_at = now;
        }
    }

    fn was_lost(&self) -> bool {
        self.entries.iter().any(|entry| entry.value == Value::Lost)
    }

    fn is_dirty(&self) -> bool {
        self.entries.iter().any(|entry| !entry.durable)
    }
}

/// A write in flight; passed to [`Oracle::end_write`] when it ends.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    sectors: Range<u32>,
    /// Time of its beginning.
    pub begun: u64,
    /// Version that it writes; 0 for zeros.
    pub version: u32,
}

/// The model of one volume.
pub(crate) struct Oracle {
    volume: u32,
    promises: Promises,
    /// Unit of suspicion: a block, or without a journal the data of a stripe. Zero: nothing becomes
    /// suspect.
    grain_sectors: u32,
    sectors: Vec<Sector>,
    /// Sectors with writes that are not durable.
    dirty: BTreeSet<u32>,
    /// Sectors with writes that were reported to a client as possibly lost. Without atomic blocks,
    /// the next power cut may tear them: a write that is still being written in place may have lost
    /// its record.
    reported: BTreeSet<u32>,
    suspects: BTreeSet<u32>,
    /// True if a drive is lost that the suspects may need.
    are_suspects_lost: bool,
    /// From a failed flush of a drive until the next one that is acknowledged: what is written to
    /// lost blocks may be lost again at any moment.
    undone: Range<u64>,
    now: u64,
    next_version: u32,
}

impl Oracle {
    /// Model of a new volume: all zeros. `parity_stripe_bytes` is the data of a stripe of a layout
    /// with parity.
    pub(crate) fn new(
        volume: u32,
        size_bytes: u64,
        parity_stripe_bytes: Option<u64>,
        promises: Promises,
    ) -> Self {
        let count = (size_bytes / SECTOR_BYTES) as usize;
        let mut sectors = Vec::with_capacity(count);
        sectors.resize_with(count, Sector::default);
        Self {
            volume,
            promises,
            grain_sectors: match promises.journal {
                true => SECTORS_PER_BLOCK,
                false => (parity_stripe_bytes.unwrap_or(0) / SECTOR_BYTES) as u32,
            },
            sectors,
            dirty: BTreeSet::new(),
            reported: BTreeSet::new(),
            suspects: BTreeSet::new(),
            are_suspects_lost: false,
            undone: 0..0,
            now: 0,
            next_version: 1,
        }
    }

    /// Number of sectors of the volume.
    pub(crate) fn sector_count(&self) -> u32 {
        self.sectors.len() as u32
    }

    /// Resizes the volume: new space reads as zeros, removed space is forgotten.
    pub(crate) fn resize(&mut self, size_bytes: u64) {
        let count = (size_bytes / SECTOR_BYTES) as usize;
        if count < self.sectors.len() {
            let first_gone = count as u32;
            self.dirty.retain(|sector| *sector < first_gone);
            self.reported.retain(|sector| *sector < first_gone);
            // A unit of suspicion may extend into the removed space.
            let grain = self.grain_sectors;
            self.suspects.retain(|suspect| suspect * grain < first_gone);
        }
        self.sectors.resize_with(count, Sector::default);
    }

    /// First sector from `first` on that certainly holds a client's data.
    pub(crate) fn surely_holds_data_from(&self, first: u32) -> Option<u32> {
        let is_data = |entry: &Entry| matches!(entry.value, Value::Data(_));
        (first..self.sector_count())
            .find(|&sector| self.sectors[sector as usize].candidates(self.now + 1).all(is_data))
    }

    /// Advances the time and returns it.
    pub(crate) fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Begins a write, whose data must be stamped with the ticket's version.
    pub(crate) fn begin_write(&mut self, sectors: Range<u32>) -> Ticket {
        let version = self.next_version;
        self.next_version += 1;
        self.begin(sectors, Value::Data(version), version, false)
    }

    /// Begins a write of zeros; `weak` for a discard, which may leave the old data.
    pub(crate) fn begin_zeroes(&mut self, sectors: Range<u32>, weak: bool) -> Ticket {
        self.begin(sectors, Value::Zero, 0, weak)
    }

    fn begin(&mut self, sectors: Range<u32>, value: Value, version: u32, weak: bool) -> Ticket {
        let begun = self.tick();
        for sector in sectors.clone() {
            let state = &mut self.sectors[sector as usize];
            if state.entries.is_empty() {
                state.entries.push(UNWRITTEN[0]);
            }
            state.entries.push(Entry {
                value,
                begun,
                ended: IN_FLIGHT,
                acknowledged: false,
                durable: false,
                weak,
                cut: false,
                at_risk: false,
            });
            self.dirty.insert(sector);
        }
        Ticket { sectors, begun, version }
    }

    /// Records the outcome of a write; `durable` for an acknowledged FUA write.
    pub(crate) fn end_write(&mut self, ticket: &Ticket, acknowledged: bool, durable: bool) {
        let ended = self.tick();
        for sector in ticket.sectors.clone() {
            let state = &mut self.sectors[sector as usize];
            let entry = state.entries.iter_mut().find(|entry| entry.begun == ticket.begun);
            // A missing entry was overwritten.
            if let Some(entry) = entry {
                entry.ended = ended;
                entry.acknowledged = acknowledged;
                entry.durable = durable && acknowledged;
            }
            if durable && acknowledged {
                state.forget_replaced(ended);
                if !state.is_dirty() {
                    self.dirty.remove(&sector);
                }
            }
        }
        if !acknowledged && self.suspects_exist() {
            let stripes = ticket.sectors.clone().map(|sector| sector / self.grain_sectors);
            self.suspects.extend(stripes.collect::<BTreeSet<u32>>());
        }
    }

    /// Records the acknowledgement of a flush that began at `begun`.
    pub(crate) fn end_flush(&mut self, begun: u64) {
        let now = self.tick();
        if begun > self.undone.start {
            self.undone.end = self.undone.end.min(now);
        }
        let sectors = &mut self.sectors;
        self.dirty.retain(|&sector| {
            let state = &mut sectors[sector as usize];
            for entry in &mut state.entries {
                entry.durable |= entry.acknowledged && entry.ended < begun;
                // The acknowledgement guarantees that it is durable.
                entry.at_risk &= !entry.durable;
            }
            state.forget_replaced(now);
            state.is_dirty()
        });
    }

    /// Records that an indispensable drive failed a flush and lost its cache. Writes that were not
    /// durable may be lost or reverted, and reads refused where the loss is detected; but no flush
    /// may be acknowledged before a client has an error for the loss. A block is written and
    /// verified as a whole: if part of it is lost, all of it may be refused.
    pub(crate) fn put_at_risk(&mut self) {
        let now = self.tick();
        self.undone = now..u64::MAX;
        let blocks: BTreeSet<u32> = self.dirty.iter().map(|sector| sector / SECTORS_PER_BLOCK).collect();
        for block in blocks {
            let first = (block * SECTORS_PER_BLOCK) as usize;
            let end = self.sectors.len().min(first + SECTORS_PER_BLOCK as usize);
            for state in &mut self.sectors[first..end] {
                let risked = state.entries.iter_mut().filter(|entry| !entry.durable);
                risked.for_each(|entry| entry.at_risk = true);
                if state.entries.is_empty() {
                    state.entries.push(UNWRITTEN[0]);
                }
                state.entries.push(Entry::of(Value::Lost, now));
            }
        }
    }

    /// Records that a loss was reported to a client: each completed write at risk may now have any
    /// of its possible contents. The same holds for completed writes to blocks that were lost
    /// before: no flush has confirmed them, and they count as lost again.
    pub(crate) fn reported(&mut self) {
        let sectors = &mut self.sectors;
        self.dirty.retain(|&sector| {
            let state = &mut sectors[sector as usize];
            let was_lost = state.was_lost();
            let is_risked = |entry: &&mut Entry| {
                (entry.at_risk || (was_lost && !entry.durable)) && entry.ended != IN_FLIGHT
            };
            let risked = state.entries.iter_mut().filter(is_risked);
            for entry in risked {
                self.reported.insert(sector);
                (entry.at_risk, entry.acknowledged, entry.durable) = (false, false, true);
            }
            state.is_dirty()
        });
    }

    fn suspects_exist(&self) -> bool {
        self.grain_sectors > 0
    }

    /// Marks blocks written since the last flush as suspect: they may not match their parity.
    pub(crate) fn suspect_dirty(&mut self) {
        if self.suspects_exist() {
            self.suspects.extend(self.dirty.iter().map(|sector| sector / self.grain_sectors));
        }
    }

    /// Records a power cut: each write that was not durable may have any of its possible contents.
    pub(crate) fn power_cut(&mut self) {
        self.suspect_dirty();
        if self.promises.journal && !self.promises.atomic_drives {
            self.forget_suspects();
        }
        let now = self.tick();
        for sector in std::mem::take(&mut self.dirty) {
            for entry in self.sectors[sector as usize].entries.iter_mut() {
                if !entry.durable {
                    entry.ended = entry.ended.min(now);
                    entry.acknowledged = false;
                    entry.durable = true;
                }
                entry.cut = true;
            }
        }
        for sector in std::mem::take(&mut self.reported) {
            let entries = self.sectors[sector as usize].entries.iter_mut();
            entries.for_each(|entry| entry.cut |= !self.promises.atomic_blocks);
        }
    }

    /// Records the loss, or the possible loss, of a drive that suspects may need. Until they are
    /// resynchronised, reads of suspects may be refused (without a journal, they may return
    /// anything), and data written there until then may be lost as well.
    pub(crate) fn lose_suspects(&mut self) {
        self.are_suspects_lost = true;
        self.forget_suspects();
    }

    fn is_suspect_lost(&self, sector: u32) -> bool {
        self.are_suspects_lost
            && !self.suspects.is_empty()
            && self.suspects.contains(&(sector / self.grain_sectors))
    }

    /// Gives up judging suspects until they are written again.
    fn forget_suspects(&mut self) {
        let now = self.tick();
        let count = self.sector_count();
        let value = if self.promises.journal { Value::Lost } else { Value::Any };
        for grain in &self.suspects {
            let first = grain * self.grain_sectors;
            for sector in first..(first + self.grain_sectors).min(count) {
                let state = &mut self.sectors[sector as usize];
                let is_last = state.entries.last().is_some_and(|entry| entry.value == value);
                if is_last {
                    state.entries.pop();
                }
                if state.entries.is_empty() {
                    state.entries.push(UNWRITTEN[0]);
                }
                state.entries.push(Entry::of(value, now));
            }
        }
    }

    /// Number of suspects, whose data and parity may disagree.
    #[cfg(test)]
    pub(crate) fn suspect_count(&self) -> usize {
        self.suspects.len()
    }

    /// Records that all stripes match their parity again.
    pub(crate) fn resynchronised(&mut self) {
        if self.are_suspects_lost {
            self.forget_suspects();
        }
        self.are_suspects_lost = false;
        self.suspects.clear();
    }

    /// True if a read of the range that began at `since` may be refused, or a write that has to
    /// read there.
    pub(crate) fn may_refuse(&self, sectors: Range<u32>, since: u64) -> bool {
        sectors.into_iter().any(|sector| {
            let state = &self.sectors[sector as usize];
            self.is_suspect_lost(sector)
                || state.refusable_until >= since
                || state.candidates(since).any(|entry| entry.value.may_be_refused())
                || (self.undone.end >= since && state.is_dirty() && state.was_lost())
        })
    }

    /// True if the sector was ever written.
    pub(crate) fn is_touched(&self, sector: u32) -> bool {
        !self.sectors[sector as usize].entries.is_empty()
    }

    /// Judges the data of a read that began at `since`.
    pub(crate) fn check(&self, first: u32, bytes: &[u8], since: u64) -> Result<(), Wrong> {
        let mut found = Vec::with_capacity(bytes.len() / SECTOR_BYTES as usize);
        for (index, sector) in bytes.chunks_exact(SECTOR_BYTES as usize).enumerate() {
            found.push(self.check_sector(first + index as u32, sector, since)?);
        }
        if self.promises.atomic_blocks { self.check_blocks(first, &found, since) } else { Ok(()) }
    }

    /// Accepts `bytes`, an older content, for sectors that were in flight at a power cut, after a
    /// drive silently lost the previous write to them.
    pub(crate) fn bring_back(&mut self, first: u32, bytes: &[u8]) {
        let now = self.tick();
        for (number, bytes) in (first..).zip(bytes.chunks_exact(SECTOR_BYTES as usize)) {
            let value = match identify(bytes) {
                Content::Zero => Value::Zero,
                Content::Data { volume, sector, version } if (volume, sector) == (self.volume, number) => {
                    Value::Data(version)
                }
                _ => continue,
            };
            let state = &mut self.sectors[number as usize];
            let was_in_flight = state.entries.iter().any(|entry| entry.cut && !entry.acknowledged);
            if was_in_flight && !state.entries.iter().any(|entry| entry.value == value) {
                state.entries.push(Entry::of(value, now));
            }
        }
    }

    fn check_sector(&self, number: u32, bytes: &[u8], since: u64) -> Result<Content, Wrong> {
        let sector = &self.sectors[number as usize];
        let content = identify(bytes);
        let fits = |entry: &Entry| self.is_value(entry.value, number, content);
        let is_anything = !self.promises.journal && self.is_suspect_lost(number);
        let is_allowed = is_anything || sector.dropped_at >= since || sector.candidates(since).any(fits);
        if is_allowed || (content == Content::Garbage && self.is_torn(number, bytes, since)) {
            return Ok(content);
        }
        let is_old = match content {
            Content::Zero => true,
            Content::Data { volume, sector, .. } => volume == self.volume && sector == number,
            Content::Garbage => false,
        };
        let allowed: Vec<Value> = sector.candidates(since).map(|entry| entry.value).collect();
        let what = format!("sector {number} holds {content:?}, allowed are {allowed:?}");
        Err(Wrong { sector: number, what, is_old, is_torn_block: false })
    }

    fn is_value(&self, value: Value, number: u32, content: Content) -> bool {
        match (value, content) {
            (Value::Any, _) => true,
            (Value::Zero, Content::Zero) => true,
            (Value::Data(expected), Content::Data { volume, sector, version }) => {
                (volume, sector, version) == (self.volume, number, expected)
            }
            _ => false,
        }
    }

    fn bytes_of(&self, value: Value, number: u32) -> SectorBytes {
        let mut bytes = [0; SECTOR_BYTES as usize];
        if let Value::Data(version) = value {
            stamp(&mut bytes, self.volume, number, version);
        }
        bytes
    }

    /// True if a power cut may have torn the sector; only without atomic blocks.
    fn is_torn(&self, number: u32, bytes: &[u8], since: u64) -> bool {
        if self.promises.atomic_blocks {
            return false;
        }
        let cut: Vec<SectorBytes> = self.sectors[number as usize]
            .candidates(since)
            .filter(|entry| entry.cut && entry.value != Value::Lost)
            .map(|entry| self.bytes_of(entry.value, number))
            .collect();
        is_torn_of(bytes, &cut)
    }

    /// Checks that blocks are atomic: if a write is visible in a sector, no other sector of the
    /// block may show its older content.
    fn check_blocks(&self, first: u32, found: &[Content], since: u64) -> Result<(), Wrong> {
        let end = first + found.len() as u32;
        let content = |sector: u32| found[(sector - first) as usize];
        let written = (first..end).filter_map(|sector| {
            let Content::Data { version, .. } = content(sector) else { return None };
            let entries = self.sectors[sector as usize].entries();
            // A read may see part of a concurrent write; after a power cut the block must be whole.
            let write = entries.iter().find(|entry| entry.cut && entry.value == Value::Data(version))?;
            Some((sector, *write))
        });
        for (sector, write) in written {
            let block = sector / SECTORS_PER_BLOCK * SECTORS_PER_BLOCK;
            for other in block.max(first)..(block + SECTORS_PER_BLOCK).min(end) {
                let state = &self.sectors[other as usize];
                let covers = state.entries.iter().any(|entry| entry.begun == write.begun);
                if !covers || state.dropped_at >= since {
                    continue;
                }
                let holds = |entry: &&Entry| self.is_value(entry.value, other, content(other));
                let newest = state.entries.iter().filter(holds).map(|entry| entry.ended).max();
                if newest.is_some_and(|newest| newest < write.begun) {
                    let what = format!(
                        "sector {sector} holds {:?}, sector {other} of the same block still {:?}",
                        content(sector),
                        content(other)
                    );
                    return Err(Wrong { sector: other, what, is_old: true, is_torn_block: true });
                }
            }
        }
        Ok(())
    }

    /// Pins the content at the end of a run: the data that was read, and found valid, is durable
    /// and must not change again.
    pub(crate) fn pin(&mut self, first: u32, bytes: &[u8]) {
        for (index, sector) in bytes.chunks_exact(SECTOR_BYTES as usize).enumerate() {
            let number = first + index as u32;
            let value = match identify(sector) {
                Content::Zero => Value::Zero,
                Content::Data { volume, sector, version } if (volume, sector) == (self.volume, number) => {
                    Value::Data(version)
                }
                // Torn or lost, as allowed: unknown until it is written again.
                _ => continue,
            };
            let now = self.tick();
            let state = &mut self.sectors[number as usize];
            if state.entries.is_empty() || state.is_dirty() {
                continue;
            }
            state.entries = vec![Entry { value, begun: now, ended: now, ..UNWRITTEN[0] }];
            state.dropped_at = now;
        }
    }
}

#[cfg(test)]
mod tests;
