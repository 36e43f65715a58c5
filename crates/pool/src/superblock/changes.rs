//! From a manifest to the bytes of what changed in it, and back: [`changes`] and [`Replay`].
//!
//! Maps are compared block by block, by pointer where nothing touched them, and of a block only the
//! rows between the first and the last difference are written: allocating one row of a large thin
//! volume is a change of some fifty bytes. Faults expected in a replay: sections that contradict
//! what was there before; they end it at the change before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::drive_record::DriveRecord;
use crate::manifest::events::Events;
use crate::manifest::format::{MAX_ROWS, Manifest};
use crate::manifest::ids::{Id, VolumeId};
use crate::manifest::volume_record::{PartRecord, VolumeRecord};
use crate::superblock::block_bytes::{put_blocks, take_blocks};
use crate::superblock::row_runs::{Patch, Reader};
use crate::superblock::sections::{Head, Section};
use stripewise_array::BlockSet;
use stripewise_array::rows::{Block, ROWS_PER_BLOCK, RowTable};

/// The bytes of what changed since `before`; of everything where there is no before.
pub(crate) fn changes(before: Option<&Manifest>, next: &Manifest) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |section: Section| section.put(&mut bytes);
    let head = Head::of(next);
    if before.is_none_or(|before| Head::of(before) != head) {
        put(Section::Pool(Box::new(head)));
    }
    for drive in &next.drives {
        if before.and_then(|before| before.drive(drive.number)) != Some(drive) {
            put(Section::Drive(Box::new(drive.clone())));
        }
    }
    for volume in &next.volumes {
        let known = before.and_then(|before| before.volume_by_id(volume.id));
        let bare = without_rows(volume);
        if known.is_none_or(|known| without_rows(known) != bare) {
            put(Section::Volume(Box::new(bare)));
        }
        for part in &volume.parts {
            let known = known.and_then(|known| known.part(part.id));
            put_map(&mut put, known, part);
            put_lost(&mut put, known, part);
        }
    }
    let known = before.map_or(0, |before| before.events.next_number());
    let events = &next.events;
    let number = if known < events.first_number() { events.first_number() } else { known };
    let list: Vec<_> = events.since(number).cloned().collect();
    if !list.is_empty() {
        put(Section::Events { number, list });
    }
    bytes
}

fn without_rows(volume: &VolumeRecord) -> VolumeRecord {
    let bare = |part: &PartRecord| PartRecord {
        id: part.id,
        shape: part.shape,
        meta: part.meta.clone(),
        log: part.log,
        slice: part.slice,
        journal: part.journal.clone(),
        old_lost: Vec::new(),
        old_dead: Vec::new(),
        lost: Arc::default(),
        dead: Arc::default(),
        rows: RowTable::default(),
    };
    VolumeRecord {
        id: volume.id,
        name: volume.name.clone(),
        parts: volume.parts.iter().map(bare).collect(),
        receiving: volume.receiving.clone(),
        clones: volume.clones.clone(),
        ..*volume
    }
}

fn put_lost(put: &mut impl FnMut(Section), known: Option<&PartRecord>, part: &PartRecord) {
    let none = BlockSet::default();
    let (known_lost, known_dead) = known.map_or((&none, &none), |known| (&*known.lost, &*known.dead));
    for (dead, before, next) in [(false, known_lost, &*part.lost), (true, known_dead, &*part.dead)] {
        let mut changes = Vec::new();
        if !std::ptr::eq(before, next) {
            put_blocks(&mut changes, before, next);
        }
        if !changes.is_empty() {
            put(Section::Lost { part: part.id, dead, changes });
        }
    }
}

fn put_map(put: &mut impl FnMut(Section), known: Option<&PartRecord>, part: &PartRecord) {
    let (id, rows) = (part.id, &part.rows);
    let width = u16::try_from(rows.width()).expect("no layout is that wide");
    let mut old = match known {
        Some(known) if known.rows.width() == rows.width() => known.rows.clone(),
        _ => {
            put(Section::Map { part: id, width, rows: rows.rows() });
            RowTable::new(rows.width(), rows.rows())
        }
    };
    if old.rows() != rows.rows() {
        put(Section::Map { part: id, width, rows: rows.rows() });
        old.resize(rows.rows());
    }
    for (index, (old, new)) in old.blocks().iter().zip(rows.blocks()).enumerate() {
        let first = index as u64 * ROWS_PER_BLOCK;
        let end = rows.rows().min(first + ROWS_PER_BLOCK);
        if let Some(patch) = patch(old, new, first, end) {
            put(Section::Rows { part: id, width, patch });
        }
    }
}

/// Patch that turns the old block, rows `first` to `end`, into the new one.
fn patch(old: &Block, new: &Block, first: u64, end: u64) -> Option<Patch> {
    if Arc::ptr_eq(old, new) || old == new {
        return None;
    }
    let alike = old.iter().zip(new.iter()).take_while(|(old, new)| old == new).count();
    let shorter = old.len().min(new.len()) - alike;
    let ending = old.iter().rev().zip(new.iter().rev()).take(shorter);
    let alike_at_end = ending.take_while(|(old, new)| old == new).count();
    let middle = alike..new.len() - alike_at_end;
    let from = if alike == 0 { first } else { new[alike - 1].end_row() };
    let to = if alike_at_end == 0 { end } else { new[middle.end].first_row };
    Some(Patch { from, to, runs: new[middle].to_vec() })
}

/// A manifest in the making: a checkpoint, then changes in their order.
#[derive(Default)]
struct Replay {
    head: Option<Head>,
    drives: BTreeMap<u32, DriveRecord>,
    volumes: BTreeMap<VolumeId, VolumeRecord>,
    maps: BTreeMap<Id, RowTable>,
    /// Lost blocks of each part, and dead ones.
    lost: BTreeMap<(Id, bool), BlockSet>,
    events: Events,
}

impl Replay {
    /// `None`: it contradicts what was there; the replay is spoilt then.
    fn apply(&mut self, bytes: &[u8]) -> Option<()> {
        for section in Section::take_all(bytes)? {
            match section {
                Section::Pool(head) => self.head = Some(*head),
                Section::Drive(drive) => {
                    self.drives.insert(drive.number, *drive);
                }
                Section::Volume(volume) => {
                    self.volumes.insert(volume.id, *volume);
                }
                Section::Map { part, width, rows } => self.set_map(part, usize::from(width), rows)?,
                Section::Rows { part, width, patch } => {
                    let map = self.maps.get_mut(&part)?;
                    if map.width() != usize::from(width) || patch.to > map.rows() {
                        return None;
                    }
                    map.replace_runs(patch.from, patch.to, patch.runs);
                }
                Section::Lost { part, dead, changes } => {
                    let set = self.lost.entry((part, dead)).or_default();
                    take_blocks(&mut Reader(&changes), set)?;
                }
                Section::Events { number, list } => {
                    if number != self.events.next_number() {
                        self.events = Events::starting_at(number);
                    }
                    list.into_iter().for_each(|event| self.events.append(event));
                }
            }
        }
        self.forget()
    }

    fn set_map(&mut self, part: Id, width: usize, rows: u64) -> Option<()> {
        let others: u64 = self.maps.iter().filter(|(id, _)| **id != part).map(|(_, map)| map.rows()).sum();
        if rows > MAX_ROWS || others + rows > MAX_ROWS {
            return None;
        }
        match self.maps.get_mut(&part) {
            Some(map) if map.width() == width => map.resize(rows),
            _ => {
                self.maps.insert(part, RowTable::new(width, rows));
            }
        }
        Some(())
    }

    /// Lets go of what the pool does not list any more.
    fn forget(&mut self) -> Option<()> {
        let head = self.head.as_ref()?;
        let drives: BTreeSet<u32> = head.drives.iter().copied().collect();
        let volumes: BTreeSet<VolumeId> = head.volumes.iter().copied().collect();
        self.drives.retain(|number, _| drives.contains(number));
        self.volumes.retain(|id, _| volumes.contains(id));
        let parts: BTreeSet<Id> =
            self.volumes.values().flat_map(|volume| &volume.parts).map(|part| part.id).collect();
        self.maps.retain(|id, _| parts.contains(id));
        self.lost.retain(|(id, _), _| parts.contains(id));
        Some(())
    }

    fn finish(mut self, generation: u64) -> Option<Manifest> {
        let head = self.head?;
        let mut volumes = Vec::new();
        for id in &head.volumes {
            let mut volume = self.volumes.remove(id)?;
            for part in &mut volume.parts {
                part.rows = self.maps.remove(&part.id)?;
                part.lost = Arc::new(self.lost.remove(&(part.id, false)).unwrap_or_default());
                part.dead = Arc::new(self.lost.remove(&(part.id, true)).unwrap_or_default());
                part.take_over_old_lost()?;
            }
            volumes.push(volume);
        }
        let drives = head.drives.iter().map(|number| self.drives.remove(number)).collect::<Option<_>>()?;
        let manifest = Manifest {
            name: head.name,
            generation,
            proven: 0,
            branches: head.branches,
            old_branches: head.old_branches,
            next_number: head.next_number,
            drives,
            former: head.former,
            slab_bytes: head.slab_bytes,
            volumes,
            rebuild_priority_percent: head.rebuild_priority_percent,
            patrol: head.patrol,
            scrub: head.scrub,
            rebalance: head.rebalance,
            settings: head.settings,
            host: head.host,
            destroyed_unix_s: head.destroyed_unix_s,
            care: head.care,
            events: self.events,
        };
        manifest.check().is_ok().then_some(manifest)
    }
}

/// The manifest that a checkpoint and the changes behind it make: each with its generation and its
/// bytes. Changes that cannot be are left out, with all behind them. `None` where not even the
/// checkpoint makes sense.
pub(crate) fn replay(entries: &[(u64, Vec<u8>)]) -> Option<Manifest> {
    let mut count = entries.len();
    while count > 0 {
        let mut replay = Replay::default();
        let refused = entries[..count].iter().position(|(_, bytes)| replay.apply(bytes).is_none());
        match refused {
            Some(index) => count = index,
            None => return replay.finish(entries[count - 1].0),
        }
    }
    None
}

/// For fuzzers: whether these sections make a manifest; one that does must be the same when it was
/// written and read again.
pub(crate) fn survives_rewriting(sections: &[u8]) -> bool {
    let Some(manifest) = replay(&[(GENERATION_OF_FUZZERS, sections.to_vec())]) else { return false };
    let again = replay(&[(GENERATION_OF_FUZZERS, changes(None, &manifest))]);
    assert!(again.as_ref() == Some(&manifest), "{manifest:?} became {again:?}");
    true
}

/// Above those that branches of any kept pool have.
const GENERATION_OF_FUZZERS: u64 = 1 << 40;

#[cfg(test)]
mod tests;
