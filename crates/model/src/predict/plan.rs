//! Member accesses of a request: strips, copies, parity by read-modify-write or reconstruct-write,
//! a missing member, and the options of other vendors (parity that moves every few rows, slabs of
//! one column).

use stripewise_layout::Level;

use crate::system::System;

/// A contiguous piece of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub member: usize,
    pub offset: u64,
    pub bytes: u64,
    pub write: bool,
}

/// Reads, then writes.
#[derive(Default)]
struct Steps {
    reads: Vec<Extent>,
    writes: Vec<Extent>,
}

/// A layout over members of one size.
pub(super) struct Planner {
    level: Level,
    width: usize,
    groups: usize,
    parities: usize,
    strip: u64,
    rows: u64,
    parity_run: u64,
    /// Data keep the order of the drives in each row, around the parity; otherwise they begin after
    /// it.
    asymmetric: bool,
    slab: u64,
    drives: usize,
    serial_strips: bool,
    /// Old data and parity of a stream were read ahead.
    read_ahead: bool,
    missing: Option<usize>,
}

/// Part of a strip in a row.
#[derive(Clone, Copy)]
struct Part {
    unit: usize,
    from: u64,
    to: u64,
}

impl Planner {
    pub(super) fn new(system: &System, member_bytes: u64, missing: Option<usize>, stream: bool) -> Self {
        let shape = &system.shape;
        // Columns of a mirror stay on their drives: one that is missing would be many.
        let moves = shape.level == Level::Raid0 || shape.parity_units() > 0;
        let slab = (system.controller.or("slab", 0.0) * 1024.0 * 1024.0) as u64;
        Self {
            level: shape.level,
            width: shape.width,
            groups: shape.groups,
            parities: shape.parity_units(),
            strip: shape.interleave_bytes,
            rows: member_bytes / shape.interleave_bytes,
            // Firmware leaves its fast path in a set with a missing member, and goes row by row.
            parity_run: match missing {
                None => system.controller.or("parity_run", 1.0) as u64,
                Some(_) => 1,
            },
            asymmetric: system.controller.is("asymmetric"),
            drives: match shape.level {
                Level::Raid0 => system.controller.or("slab_drives", system.drives as f64) as usize,
                _ => system.drives,
            },
            read_ahead: stream,
            serial_strips: system.controller.is("serial_strips"),
            slab: if moves { slab } else { 0 },
            missing: missing.filter(|_| shape.fault_tolerance() > 0),
        }
    }

    /// Data units of a row, over all groups.
    fn units(&self) -> usize {
        match self.level {
            Level::Single | Level::Raid1 => 1,
            Level::Raid10 => self.width / 2,
            _ => self.width - self.groups * self.parities,
        }
    }

    pub(super) fn row_bytes(&self) -> u64 {
        self.units() as u64 * self.strip
    }

    pub(super) fn capacity(&self) -> u64 {
        if self.slab > 0 && self.level == Level::Raid0 {
            return self.rows * self.strip / self.slab * self.slab * self.drives as u64;
        }
        self.rows * self.row_bytes()
    }

    /// Members that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = usize> {
        (0..self.width).filter(|member| Some(*member) != self.missing)
    }

    /// Members that hold a data unit of a row, first copy first.
    fn members(&self, row: u64, unit: usize) -> Vec<usize> {
        match self.level {
            Level::Raid1 => (0..self.width).collect(),
            Level::Raid10 => vec![2 * unit, 2 * unit + 1],
            Level::Single | Level::Raid0 => vec![unit],
            _ => {
                let group_width = self.width / self.groups;
                let data = group_width - self.parities;
                let (group, unit) = (unit / data, unit % data);
                let first = self.first_parity(row, group_width);
                if self.asymmetric {
                    let is_parity =
                        |member: &usize| (member + group_width - first) % group_width < self.parities;
                    let of_data = (0..group_width).filter(|member| !is_parity(member)).nth(unit);
                    return vec![group * group_width + of_data.expect("unit is within the row")];
                }
                vec![group * group_width + (first + self.parities + unit) % group_width]
            }
        }
    }

    fn first_parity(&self, row: u64, group_width: usize) -> usize {
        if self.level == Level::Raid4 {
            return group_width - 1;
        }
        let turn = (row / self.parity_run) as usize % group_width;
        group_width - 1 - turn
    }

    fn parity_members(&self, row: u64, group: usize) -> Vec<usize> {
        let group_width = self.width / self.groups;
        let first = self.first_parity(row, group_width);
        (0..self.parities).map(|parity| group * group_width + (first + parity) % group_width).collect()
    }

    /// True if every strip lies on several members.
    pub(super) fn is_mirrored(&self) -> bool {
        matches!(self.level, Level::Raid1 | Level::Raid10)
    }

    /// Parts of a request by row.
    fn rows(&self, offset: u64, bytes: u64) -> Vec<(u64, Vec<Part>)> {
        let mut rows: Vec<(u64, Vec<Part>)> = Vec::new();
        let (mut at, end) = (offset, (offset + bytes).min(self.capacity()));
        while at < end {
            let row = at / self.row_bytes();
            let unit = (at % self.row_bytes() / self.strip) as usize;
            let from = at % self.strip;
            let to = (from + end - at).min(self.strip);
            if rows.last().is_none_or(|(last, _)| *last != row) {
                rows.push((row, Vec::new()));
            }
            rows.last_mut().expect("it was pushed").1.push(Part { unit, from, to });
            at += to - from;
        }
        rows
    }

    fn extent(&self, row: u64, member: usize, from: u64, to: u64, write: bool) -> Extent {
        let offset = row * self.strip + from;
        // Columns lie on other drives slab by slab.
        let member = match self.slab {
            0 => member,
            slab => (member + (offset / slab) as usize) % self.drives,
        };
        Extent { member, offset, bytes: to - from, write }
    }

    /// One column: a slab after the other goes to the next member.
    fn on_slabs(&self, offset: u64, bytes: u64, write: bool) -> Vec<Extent> {
        let mut extents = Vec::new();
        let (mut at, end) = (offset, offset + bytes);
        while at < end {
            let slab = at / self.slab;
            let within = at % self.slab;
            let length = (self.slab - within).min(end - at);
            let member = (slab % self.drives as u64) as usize;
            let place = slab / self.drives as u64 * self.slab + within;
            extents.push(Extent { member, offset: place, bytes: length, write });
            at += length;
        }
        extents
    }

    /// `choose` says which of the members that hold a copy of the strip at an offset serves it.
    pub(super) fn read(
        &self,
        offset: u64,
        bytes: u64,
        choose: &mut dyn FnMut(u64, &[usize]) -> usize,
    ) -> Vec<Vec<Extent>> {
        if self.slab > 0 && self.level == Level::Raid0 {
            return vec![self.on_slabs(offset, bytes, false)];
        }
        let mut reads = Vec::new();
        for (row, parts) in self.rows(offset, bytes) {
            for part in parts {
                let mut members = self.members(row, part.unit);
                members.retain(|member| Some(*member) != self.missing);
                if !members.is_empty() {
                    let at = row * self.row_bytes() + part.unit as u64 * self.strip + part.from;
                    let member = members[choose(at, &members)];
                    reads.push(self.extent(row, member, part.from, part.to, false));
                } else {
                    let others = self.others(row, part.unit, &[]);
                    reads.extend(
                        others.into_iter().map(|member| self.extent(row, member, part.from, part.to, false)),
                    );
                }
            }
        }
        vec![merged(reads)]
    }

    /// Members of a unit's group, without these, the missing one, and parity beyond the first.
    fn others(&self, row: u64, unit: usize, without: &[usize]) -> Vec<usize> {
        let group_width = self.width / self.groups;
        let data = group_width - self.parities;
        let group = unit / data;
        let spare: Vec<usize> = self.parity_members(row, group).into_iter().skip(1).collect();
        let all = group * group_width..(group + 1) * group_width;
        all.filter(|member| {
            !without.contains(member) && Some(*member) != self.missing && !spare.contains(member)
        })
        .collect()
    }

    /// Steps that follow each other.
    pub(super) fn write(&self, offset: u64, bytes: u64) -> Vec<Vec<Extent>> {
        if self.slab > 0 && self.level == Level::Raid0 {
            return vec![self.on_slabs(offset, bytes, true)];
        }
        let mut steps = Steps::default();
        let mut chain = Vec::new();
        for (row, parts) in self.rows(offset, bytes) {
            if self.serial_strips && self.parities > 0 {
                let data = self.width / self.groups - self.parities;
                for part in parts {
                    let mut strip = Steps::default();
                    self.write_group(row, part.unit / data, data, &[part], &mut strip);
                    if !self.read_ahead {
                        chain.push(strip.reads);
                    }
                    chain.push(strip.writes);
                }
                continue;
            }
            if self.parities == 0 {
                for part in parts {
                    let members = self.members(row, part.unit).into_iter();
                    let present = members.filter(|member| Some(*member) != self.missing);
                    let write = |member| self.extent(row, member, part.from, part.to, true);
                    steps.writes.extend(present.map(write));
                }
                continue;
            }
            let data = self.width / self.groups - self.parities;
            for group in 0..self.groups {
                let of_group: Vec<Part> =
                    parts.iter().copied().filter(|part| part.unit / data == group).collect();
                if !of_group.is_empty() {
                    self.write_group(row, group, data, &of_group, &mut steps);
                }
            }
        }
        chain.extend([merged(steps.reads), merged(steps.writes)]);
        chain
    }

    fn write_group(&self, row: u64, group: usize, data: usize, parts: &[Part], steps: &mut Steps) {
        let from = parts.iter().map(|part| part.from).min().unwrap_or(0);
        let to = parts.iter().map(|part| part.to).max().unwrap_or(0);
        let touched: Vec<usize> = parts.iter().map(|part| self.members(row, part.unit)[0]).collect();
        let parity = self.parity_members(row, group);
        let is_missing = |member: &usize| Some(*member) == self.missing;
        let full = parts.len() == data && parts.iter().all(|part| part.to - part.from == self.strip);
        let live_parity: Vec<usize> = parity.iter().copied().filter(|member| !is_missing(member)).collect();
        if !full && !live_parity.is_empty() {
            let untouched: Vec<usize> = (group * data..(group + 1) * data)
                .map(|unit| self.members(row, unit)[0])
                .filter(|member| !touched.contains(member))
                .collect();
            let modify_possible = !touched.iter().any(is_missing);
            let rebuild_possible = !untouched.iter().any(is_missing);
            let modify_reads = touched.len() + live_parity.len();
            let modify = modify_possible && (!rebuild_possible || modify_reads <= untouched.len());
            if modify {
                for part in parts {
                    let member = self.members(row, part.unit)[0];
                    steps.reads.push(self.extent(row, member, part.from, part.to, false));
                }
                for member in &live_parity {
                    steps.reads.push(self.extent(row, *member, from, to, false));
                }
            } else {
                for member in untouched.iter().filter(|member| !is_missing(member)) {
                    steps.reads.push(self.extent(row, *member, from, to, false));
                }
            }
        }
        for part in parts {
            let member = self.members(row, part.unit)[0];
            if !is_missing(&member) {
                steps.writes.push(self.extent(row, member, part.from, part.to, true));
            }
        }
        for member in live_parity {
            steps.writes.push(self.extent(row, member, from, to, true));
        }
    }
}

/// Touching pieces of a member become one.
fn merged(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_by_key(|extent| (extent.member, extent.offset));
    let mut merged: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match merged.last_mut() {
            Some(last) if last.member == extent.member && last.offset + last.bytes >= extent.offset => {
                last.bytes = last.bytes.max(extent.offset + extent.bytes - last.offset);
            }
            _ => merged.push(extent),
        }
    }
    merged
}
