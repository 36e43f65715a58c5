//! Plans the moves of rows between fast and data drives.
//!
//! The rows of a pinned volume belong on its kind of drive. Any other row moves up when its heat
//! (client requests, see `heat.rs`) justifies the cost of the move and there is room. If there is
//! none, the coldest row on fast drives moves down for it, provided that it is clearly colder. So
//! the hottest rows that fit are on fast drives, no row oscillates, and rows without requests stay
//! where they are. There is no other read cache: a block has one place, so a row on fast drives has
//! its redundancy there, and its writes go there, too.
//!
//! A row moves as a whole, because it is as fast as its slowest column. After drive failures or a
//! shortage of room a row may lie on both kinds of drives; it counts as not up, and moves like any
//! other. A few slabs of every fast drive stay free, so that rows can be exchanged. Pure except for
//! the free-space table; the fault expected is a lack of room, which is reported.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::jobs::column_migration::Step;
use crate::manifest::drive_record::Role;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::Pin;
use crate::space::slabs::FreeSlabs;
use stripewise_array::rows::{Places, RowTable, Run, SlotPlace, SlotState};

/// Heat from which a row moves up, in disk seeks per MiB to copy: a move pays when it saves the
/// disks several times the work that it causes.
const HEAT_PER_MIB: f32 = 4.0;
/// Factor by which a row must be warmer to displace another: heat varies from minute to minute.
const CLEARLY: f32 = 2.0;
/// Divisor for the reserve of free slabs on each fast drive: one slab in this many, at least one.
const RESERVE_SHARE: u64 = 20;

/// Placement and heat of a volume's rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TierInfo {
    /// Rows all of whose columns are on fast drives.
    pub fast_rows: u64,
    /// Rows all of whose columns are on data drives.
    pub data_rows: u64,
    /// Rows with columns on both kinds of drives.
    pub mixed_rows: u64,
    /// Bytes of rows on fast drives.
    pub fast_bytes: u64,
    /// Bytes of rows on data drives.
    pub data_bytes: u64,
    /// Recent heat of rows wholly on fast drives, in disk seeks (one per request or MiB); halves
    /// with every half-life. Known only while a process has the pool open.
    pub fast_heat: f64,
    /// Recent heat of all other rows, likewise.
    pub data_heat: f64,
    /// Heat of the hottest row.
    pub hottest_row_heat: f64,
    /// Number of rows being moved.
    pub moving_rows: u64,
    /// Reason why the volume cannot use fast drives, or why rows are not where they belong.
    pub note: Option<String>,
}

/// A part of a volume, as input for the planner.
pub(crate) struct TierPart {
    pub part: Id,
    pub pin: Pin,
    pub rows: RowTable,
    /// Heat of the rows for which it is known.
    pub heat: BTreeMap<u64, f32>,
}

/// Kind of drives that a row lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Fast,
    Data,
    Mixed,
}

/// Drives and free space that rows may move to.
pub(crate) struct Field<'a> {
    pub books: &'a mut FreeSlabs,
    pub roles: BTreeMap<u32, Role>,
    /// Fast drives that are online and take new content.
    pub fast: Vec<u32>,
    /// Data drives that are online and take new content.
    pub data: Vec<u32>,
}

/// The next moves.
#[derive(Default)]
pub(crate) struct Plan {
    pub steps: Vec<Step>,
    /// Bytes that the moves copy, all columns.
    pub bytes: u64,
    /// Parts of volumes whose pin cannot be satisfied now.
    pub without_room: Vec<Id>,
}

/// A row with its heat.
#[derive(Clone, Copy, Debug)]
struct Warm {
    index: usize,
    row: u64,
    /// Heat per column: fast slabs go to the rows that benefit most.
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

    /// Number of slabs of a fast drive that stay free.
    fn reserve(&self, drive: u32) -> u64 {
        (self.books.slabs(drive) / RESERVE_SHARE).max(1)
    }

    /// Fast drives with more free slabs than the reserve.
    fn fast_beyond_reserve(&self) -> Vec<u32> {
        let has_more = |drive: &&u32| self.books.free_slabs(**drive) > self.reserve(**drive);
        self.fast.iter().filter(has_more).copied().collect()
    }

    fn is_below_reserve(&self) -> bool {
        self.fast.iter().any(|&drive| self.books.free_slabs(drive) < self.reserve(drive))
    }

    /// Allocates slabs on `drives` for the columns of a row that are not on drives of the role. All
    /// or nothing.
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

/// A plan in progress.
struct Draft<'a, 'b> {
    field: &'a mut Field<'b>,
    parts: &'a [TierPart],
    /// Bytes in one column of a row.
    column_bytes: &'a dyn Fn(Id, u64) -> u64,
    most_bytes: u64,
    most_steps: usize,
    plan: Plan,
}

impl Draft<'_, '_> {
    fn is_full(&self) -> bool {
        self.plan.bytes >= self.most_bytes || self.plan.steps.len() >= self.most_steps
    }

    /// Plans the move of a row. False if there is no room.
    fn add(&mut self, index: usize, row: u64, role: Role, drives: &[u32]) -> bool {
        let part = &self.parts[index];
        let Some(run) = part.rows.run(row) else { return false };
        let places = run.places_of(row);
        let Some(steps) = self.field.place(part.part, row, &places, drives, role) else { return false };
        self.plan.bytes += (self.column_bytes)(part.part, row) * steps.len() as u64;
        self.plan.steps.extend(steps);
        true
    }

    /// Plans moves for rows of pinned volumes that are not where they belong.
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

    /// Rows on fast drives that may move down, the coldest last.
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

    /// Plans moves of the hottest rows up, and of the coldest rows down where room is needed.
    fn follow_heat(&mut self, may_move_down: bool) {
        let (mut up, hot) = (self.up(), self.worth_it());
        let (fast, data) = (self.field.fast.clone(), self.field.data.clone());
        let mut has_moved_down = false;
        while may_move_down && self.field.is_below_reserve() && !self.is_full() {
            // Its slabs become free after the move; one at a time is enough.
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
            // If the colder row has no room below, the hotter one moves first, into the reserve.
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

/// Plans the next moves, up to about `most_bytes` and `most_steps`, and takes their slabs. Rows are
/// displaced by hotter ones only if `may_move_down`, and move up by heat only if `may_move_up`.
pub(crate) fn plan(
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
