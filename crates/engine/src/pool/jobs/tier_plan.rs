//! Tiers: which rows should lie on fast drives, and which step leads there.
//!
//! A pinned volume's rows belong on its kind of drives. Of the others a row moves up when what
//! clients ask of it (`heat.rs`), weighed against what the move costs, makes it worth while, and
//! room is there; where it is not, the coldest row up there moves down for it, if it is clearly
//! colder. So the hottest rows that fit are up, nothing moves to and fro, and what is not asked for
//! stays where it is. There is no other read cache: a block has one place, so a row on fast drives
//! has its redundancy there, and its writes go there too.
//!
//! A row moves as a whole, since it is as fast as its slowest column. Where drives failed or room
//! was short, a row may lie on both kinds; it counts as not up, and moves like any other. A few
//! slabs of every fast drive stay free, so that rows can change places. Pure but for the books; the
//! fault expected is that there is no room, which is said.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pool::jobs::column_migration::Step;
use crate::pool::manifest::drive_record::Role;
use crate::pool::manifest::ids::Id;
use crate::pool::manifest::volume_record::Pin;
use crate::pool::space::slabs::FreeSlabs;
use crate::rows::{Places, RowTable, Run, SlotPlace, SlotState};

/// What a row must be asked for before it moves up, in seeks of a disk per MiB that is copied: a
/// move pays for itself when it spares the disks several times the work that it makes.
const HEAT_PER_MIB: f32 = 4.0;
/// A row takes the place of another only if it is warmer by this factor: what is asked for varies
/// from minute to minute.
const CLEARLY: f32 = 2.0;
/// One in so many slabs of each fast drive stays free, and one at least.
const RESERVE_SHARE: u64 = 20;

/// Where a volume's rows lie, and how warm they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TierInfo {
    /// Rows all of whose columns are on fast drives.
    pub fast_rows: u64,
    /// Rows all of whose columns are on data drives.
    pub data_rows: u64,
    /// Rows that lie on both.
    pub mixed_rows: u64,
    /// Bytes of rows on fast drives.
    pub fast_bytes: u64,
    /// Bytes of rows on data drives.
    pub data_bytes: u64,
    /// What clients asked of late of rows that are wholly on fast drives, in seeks of a disk (a
    /// request, or a MiB); halves with every half-life. Known only while a process has the pool
    /// open.
    pub fast_heat: f64,
    /// The same of all other rows.
    pub data_heat: f64,
    /// The most of any row.
    pub hottest_row_heat: f64,
    /// Rows that are being moved now.
    pub moving_rows: u64,
    /// Why fast drives are of no use to the volume, where they are not, or what keeps its rows from
    /// where they belong.
    pub note: Option<String>,
}

/// A part of a volume, as tiers see it.
pub(in crate::pool) struct TierPart {
    pub part: Id,
    pub pin: Pin,
    pub rows: RowTable,
    /// Heat of rows of which anything is known.
    pub heat: BTreeMap<u64, f32>,
}

/// Whether a row lies on fast drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pool) enum Tier {
    Fast,
    Data,
    Mixed,
}

/// Drives and space, as far as rows may move there.
pub(in crate::pool) struct Field<'a> {
    pub books: &'a mut FreeSlabs,
    pub roles: BTreeMap<u32, Role>,
    /// Fast drives that work and take something new.
    pub fast: Vec<u32>,
    /// Data drives that do.
    pub data: Vec<u32>,
}

/// What is to be done next.
#[derive(Default)]
pub(in crate::pool) struct Plan {
    pub steps: Vec<Step>,
    /// Bytes that they copy, all columns.
    pub bytes: u64,
    /// Volumes' parts whose pin cannot be met now.
    pub without_room: Vec<Id>,
}

/// A row up or on its way.
#[derive(Clone, Copy, Debug)]
struct Warm {
    index: usize,
    row: u64,
    /// Heat for each column: fast slabs go where they do most.
    density: f32,
}

impl Field<'_> {
    pub(crate) fn tier_of(&self, places: &[SlotPlace]) -> Tier {
        let fast = places.iter().filter(|place| self.roles.get(&place.drive) == Some(&Role::Fast)).count();
        match fast {
            0 => Tier::Data,
            _ if fast == places.len() => Tier::Fast,
            _ => Tier::Mixed,
        }
    }

    /// Slabs of a fast drive that stay free.
    fn reserve(&self, drive: u32) -> u64 {
        (self.books.slabs(drive) / RESERVE_SHARE).max(1)
    }

    /// Fast drives with more free than is kept.
    fn fast_beyond_reserve(&self) -> Vec<u32> {
        let has_more = |drive: &&u32| self.books.free_slabs(**drive) > self.reserve(**drive);
        self.fast.iter().filter(has_more).copied().collect()
    }

    fn is_below_reserve(&self) -> bool {
        self.fast.iter().any(|&drive| self.books.free_slabs(drive) < self.reserve(drive))
    }

    /// Takes slabs on `drives` for the columns of a row that are not on drives of the role. All or
    /// nothing.
    fn place(
        &mut self,
        part: Id,
        row: u64,
        places: &Places,
        drives: &[u32],
        role: Role,
    ) -> Option<Vec<Step>> {
        let is_elsewhere = |place: &SlotPlace| self.roles.get(&place.drive) != Some(&role);
        let moving: Vec<usize> = (0..places.len()).filter(|&column| is_elsewhere(&places[column])).collect();
        let step = |column: usize, drive: u32, slab: u32| {
            let to = SlotPlace { drive, slab, state: SlotState::Active };
            Step { part, row, column, from: places[column], to }
        };
        if moving.len() == places.len() {
            let new = self.books.allocate_rows(drives, places.len(), 1, row).ok()?;
            let new = new.first()?;
            return Some(new.places.iter().enumerate().map(|(c, &(d, slab))| step(c, d, slab)).collect());
        }
        let mut in_row: Vec<u32> = places.iter().map(|place| place.drive).collect();
        let mut steps: Vec<Step> = Vec::new();
        for column in moving {
            let Some(found) = self.books.replace(drives, &in_row, 1, None) else {
                steps.iter().for_each(|step| self.books.give(step.to.drive, step.to.slab, 1));
                return None;
            };
            in_row.push(found.drive);
            steps.push(step(column, found.drive, found.slab));
        }
        Some(steps)
    }
}

/// What is being put together.
struct Draft<'a, 'b> {
    field: &'a mut Field<'b>,
    parts: &'a [TierPart],
    /// Bytes that a column of a row holds.
    column_bytes: &'a dyn Fn(Id, u64) -> u64,
    most_bytes: u64,
    most_steps: usize,
    plan: Plan,
}

impl Draft<'_, '_> {
    fn is_full(&self) -> bool {
        self.plan.bytes >= self.most_bytes || self.plan.steps.len() >= self.most_steps
    }

    /// Plans a row's move; whether there is room.
    fn add(&mut self, index: usize, row: u64, role: Role, drives: &[u32]) -> bool {
        let part = &self.parts[index];
        let Some(run) = part.rows.run(row) else { return false };
        let places = run.places_of(row);
        let Some(steps) = self.field.place(part.part, row, &places, drives, role) else { return false };
        self.plan.bytes += (self.column_bytes)(part.part, row) * steps.len() as u64;
        self.plan.steps.extend(steps);
        true
    }

    /// Rows of pinned volumes that are not where they belong.
    fn keep_pins(&mut self) {
        for index in 0..self.parts.len() {
            let (role, home) = match self.parts[index].pin {
                Pin::None => continue,
                Pin::Fast => (Role::Fast, Tier::Fast),
                Pin::Slow => (Role::Data, Tier::Data),
            };
            let drives = if role == Role::Fast { self.field.fast.clone() } else { self.field.data.clone() };
            let strays: Vec<Run> = self.parts[index]
                .rows
                .runs()
                .filter(|run| is_current(run) && self.field.tier_of(&run.places) != home)
                .cloned()
                .collect();
            for row in strays.iter().flat_map(|run| run.first_row..run.end_row()) {
                if self.is_full() {
                    return;
                }
                if !self.add(index, row, role, &drives) {
                    self.plan.without_room.push(self.parts[index].part);
                    break;
                }
            }
        }
    }

    /// Rows up there that may be moved down, the coldest last.
    fn up(&self) -> Vec<Warm> {
        let mut up = Vec::new();
        for (index, part) in self.parts.iter().enumerate().filter(|(_, part)| part.pin == Pin::None) {
            let is_up = |run: &&Run| is_current(run) && self.field.tier_of(&run.places) == Tier::Fast;
            for run in part.rows.runs().filter(is_up) {
                up.extend((run.first_row..run.end_row()).map(|row| warm(part, index, row)));
            }
        }
        up.sort_by(|a, b| b.density.total_cmp(&a.density).then((a.index, a.row).cmp(&(b.index, b.row))));
        up
    }

    /// Rows worth moving up, the hottest first.
    fn worth_it(&self) -> Vec<Warm> {
        let mut hot = Vec::new();
        for (index, part) in self.parts.iter().enumerate().filter(|(_, part)| part.pin == Pin::None) {
            let width = part.rows.width();
            if self.field.fast.len() < width {
                continue;
            }
            for (&row, &heat) in &part.heat {
                let Some(run) = part.rows.run(row) else { continue };
                let mib = (self.column_bytes)(part.part, row) as f32 * width as f32 / (1 << 20) as f32;
                let is_worth_it = heat >= HEAT_PER_MIB * mib.max(1.0);
                if is_worth_it && is_current(run) && self.field.tier_of(&run.places) != Tier::Fast {
                    hot.push(warm(part, index, row));
                }
            }
        }
        hot.sort_by(|a, b| b.density.total_cmp(&a.density).then((a.index, a.row).cmp(&(b.index, b.row))));
        hot
    }

    /// The hottest rows up, the coldest down for them where they must.
    fn follow_heat(&mut self, may_move_down: bool) {
        let (mut up, hot) = (self.up(), self.worth_it());
        let (fast, data) = (self.field.fast.clone(), self.field.data.clone());
        let mut has_moved_down = false;
        while may_move_down && self.field.is_below_reserve() && !self.is_full() {
            // What it frees is free after it; one at a time is enough.
            let Some(coldest) = up.pop().filter(|_| !has_moved_down) else { break };
            has_moved_down = self.add(coldest.index, coldest.row, Role::Data, &data);
        }
        for row in hot {
            if self.is_full() {
                return;
            }
            let beyond = self.field.fast_beyond_reserve();
            if self.add(row.index, row.row, Role::Fast, &beyond) {
                continue;
            }
            let Some(coldest) = up.last().copied().filter(|_| may_move_down) else { return };
            if row.density < CLEARLY * coldest.density {
                return;
            }
            up.pop();
            let moves_down = self.add(coldest.index, coldest.row, Role::Data, &data);
            // No room for it down there: then the other one goes first, into what is kept free.
            if !moves_down && !self.add(row.index, row.row, Role::Fast, &fast) {
                return;
            }
        }
    }
}

fn is_current(run: &Run) -> bool {
    run.places.iter().all(|place| place.state == SlotState::Active)
}

fn warm(part: &TierPart, index: usize, row: u64) -> Warm {
    let heat = part.heat.get(&row).copied().unwrap_or(0.0);
    Warm { index, row, density: heat / part.rows.width().max(1) as f32 }
}

/// The next moves: about `most_bytes` and `most_steps` of them; what they take is taken from the
/// books. Rows move down for warmer ones only if `may_move_down`, up by heat only if `may_move_up`.
pub(in crate::pool) fn plan(
    field: &mut Field<'_>,
    parts: &[TierPart],
    column_bytes: &dyn Fn(Id, u64) -> u64,
    (most_bytes, most_steps): (u64, usize),
    (may_move_up, may_move_down): (bool, bool),
) -> Plan {
    let mut draft = Draft { field, parts, column_bytes, most_bytes, most_steps, plan: Plan::default() };
    draft.keep_pins();
    if may_move_up {
        draft.follow_heat(may_move_down);
    }
    draft.plan
}
