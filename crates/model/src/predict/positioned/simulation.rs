//! The simulation of hard disks behind a controller.
//!
//! The load is closed: a constant number of outstanding requests. A request becomes reads and,
//! after them, writes of members ([`super::super::plan`]); a member serves the nearest of a bounded
//! window of commands. A write that fits the drive's own cache is answered at once and destaged
//! later; behind a controller that keeps the cache to itself a write holds its command until it is
//! on the medium.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use stripewise_drive::SplitMix64;

use super::super::plan::{Extent, Planner};
use super::super::{State, Workload};
use super::member::{Command, Member};
use crate::hdd::{DataSheet, Geometry, Hdd, HddParameters};
use crate::system::{Component, System};

const SECTOR: u64 = 4096;
/// A file that fits a driver's cache is read from it, but for the blocks that a run reads for the
/// first time.
const MOST_CACHED: f64 = 0.97;
/// Maximum pause between two commands of a stream of writes from a drive's cache.
const STREAM_PAUSE_NS: u64 = 1_000_000;
/// Duration of a drive's read-ahead.
const READ_AHEAD_NS: u64 = 40_000_000;
/// Full stripes in flight of a stream of gathered writes.
const GATHERED: u64 = 4;
/// Minimum that a stream passes through before it starts again.
const STREAM_BYTES: u64 = 4 << 30;
const HOST: u32 = 1 << 24;

/// A host request.
#[derive(Clone, Default)]
pub(super) struct Request {
    started_ns: u64,
    bytes: u64,
    left: u32,
    /// Accesses that follow once none is left.
    then: VecDeque<Vec<Extent>>,
    active: bool,
}

/// Inputs of the simulation from a system.
struct Setup {
    tags: usize,
    absorb: usize,
    absorb_bytes: u64,
    in_flight: usize,
    read_ns_per_byte: f64,
    write_ns_per_byte: f64,
    command_ns: u64,
    /// The least that a command takes that does not go on where the last one ended.
    prepare_ns: u64,
    /// Whole records are read and written.
    record: u64,
    /// Sectors that a drive reads on beyond a read.
    read_ahead: u64,
    mirror_run: Option<u64>,
    /// Segments of a drive's buffer that random reads are found in, and how long one is.
    segments: usize,
    segment_sectors: u64,
    host_ns: u64,
    cached_ns: u64,
    cached: f64,
    /// One command to one member at a time.
    serial_members: bool,
    /// Random writes wait until their regions are marked on every member.
    marks: bool,
    /// Commands and bytes of the host that a rebuild waits for between its own.
    turn: (u64, u64),
}

/// The drive's mechanics from the catalogue's numbers.
fn parameters(drive: &Component) -> HddParameters {
    let sheet = DataSheet {
        capacity_bytes: drive.or("capacity", 1e12) as u64,
        sector_bytes: SECTOR as u32,
        rpm: drive.or("spindle", 7200.0) as u32,
        heads: drive.or("heads", 8.0) as u32,
        outer_mb_per_s: drive.or("outer_rate", 200.0),
        inner_mb_per_s: drive.or("inner_rate", drive.or("outer_rate", 200.0) / 2.0),
        settle_ms: drive.or("settle", 1.0),
        average_seek_ms: drive.or("average_seek", 8.0),
        head_switch_ms: drive.or("head_switch", 1.0),
        write_settle_ms: drive.or("write_settle", 0.3),
        ..DataSheet::generic_8tb_7200()
    };
    sheet.parameters().unwrap_or_else(|_| DataSheet::generic_8tb_7200().parameters().expect("a sound drive"))
}

pub(super) struct Simulation<'a> {
    setup: Setup,
    planner: Planner,
    pub members: Vec<Member>,
    pub requests: Vec<Request>,
    free: Vec<u32>,
    events: BinaryHeap<Reverse<(u64, u32)>>,
    waiting: VecDeque<u32>,
    active: usize,
    link_free_ns: u64,
    pub link_busy_ns: u64,
    random: SplitMix64,
    workload: &'a Workload,
    streams: Vec<u64>,
    next_stream: usize,
    pub span: u64,
    weight: f64,
    now_ns: u64,
    /// Bytes and latencies of requests completed after the warm-up.
    done: u64,
    pub done_bytes: u64,
    pub latencies_ns: Vec<u64>,
    block_of_stream: u64,
    /// Number of the request that marks regions.
    mark: u32,
    marking: Marking,
}

/// Writes that wait for the marks of their regions: one mark is written at a time, for all that
/// came while the one before was.
#[derive(Default)]
struct Marking {
    underway: Option<Vec<u32>>,
    next: Vec<u32>,
}

/// True if a mirror's copy alternates between the host's commands and the rebuild's.
pub(super) fn takes_turns(system: &System) -> bool {
    system.controller.is("rebuild_turns")
}

impl<'a> Simulation<'a> {
    pub(super) fn new(system: &System, state: State, workload: &'a Workload, seed: u64) -> Self {
        let controller = &system.controller;
        let parameters = parameters(&system.drive);
        let geometry = Arc::new(Geometry::new(&parameters).expect("parameters of a data sheet are sound"));
        let member_bytes = geometry.capacity_sectors() * SECTOR;
        let missing = (state != State::Normal).then_some(0);
        let sequential = workload.random_share < 0.5;
        let planner = Planner::new(system, member_bytes, missing, sequential);
        let gather = controller.is("coalesces") && sequential && workload.read_share == 0.0;
        let block = workload.blocks.first().map_or(4096, |block| block.0);
        let row = planner.row_bytes();
        let block_of_stream = if gather { block.div_ceil(row) * row } else { block };
        let outstanding = workload.outstanding() as u64;
        // A write-back cache destages gathered data several stripes at a time, even with few
        // requests outstanding.
        let slots = (outstanding * block / block_of_stream).max(GATHERED) as usize;
        let slots = if sequential && gather { slots } else { outstanding as usize };
        let span = workload.span_bytes.unwrap_or(u64::MAX).min(planner.capacity()).max(block);
        let link = system.link.as_ref();
        let cap = |name: &str| {
            let link = link.map_or(f64::INFINITY, |link| link.or(name, link.or("rate", f64::INFINITY)));
            1000.0 / link.min(controller.or(name, f64::INFINITY))
        };
        let record = controller.or("record", 0.0) * 1024.0;
        // A record of a parity set is whole rows; one of a mirror lies in one pair.
        let record = match system.shape.parity_units() {
            0 => record as u64,
            _ if record > 0.0 => (record / row as f64).round().max(1.0) as u64 * row,
            _ => 0,
        };
        let serial_strips = controller.is("serial_strips") && system.shape.parity_units() > 0;
        let cache = controller.or("read_cache", 0.0) * 1024.0 * 1024.0;
        let setup = Setup {
            tags: controller.or("tags", 32.0).min(system.drive.or("queue_depth", 32.0)).round() as usize,
            // A stream that is updated strip by strip has each on the medium before the next.
            absorb: if controller.is("absorbs") && !(serial_strips && sequential) {
                system.drive.or("write_cache", 0.0) as usize
            } else {
                0
            },
            absorb_bytes: (system.drive.or("write_cache_size", 64.0) * 1024.0 * 1024.0) as u64,
            prepare_ns: (system.drive.or("prepare", 0.0) * 1000.0) as u64,
            record: if sequential { 0 } else { record },
            // Streams are read ahead and written behind: only random requests are held back.
            // Of parity updates there are as many as drives.
            in_flight: match (serial_strips && workload.read_share < 1.0, sequential) {
                (true, _) => system.drives.min(slots),
                (false, true) => slots,
                (false, false) => controller.or("in_flight", f64::MAX).round().min(slots as f64) as usize,
            },
            read_ns_per_byte: cap("read_rate"),
            write_ns_per_byte: cap("write_rate"),
            command_ns: (system.drive.or("command", 50.0) * 1000.0) as u64,
            read_ahead: (system.drive.or("read_ahead", 256.0) * 1024.0) as u64 / SECTOR,
            mirror_run: controller
                .get("mirror_run")
                .map(|kib| kib as u64 * 1024)
                .filter(|_| sequential && outstanding > 1),
            segments: if sequential { 0 } else { system.drive.or("read_segments", 0.0) as usize },
            segment_sectors: (system.drive.or("read_segment", 0.0) * 1024.0) as u64 / SECTOR,
            cached_ns: (controller.or("cached_latency", 0.0) * 1000.0) as u64,
            host_ns: (controller.or("cached_request", 20.0) * 1000.0) as u64,
            // Some blocks are read for the first time.
            cached: if sequential { 0.0 } else { (cache / span as f64).min(MOST_CACHED) },
            serial_members: controller.is("serial_members") && system.shape.parity_units() > 0,
            marks: controller.is("bitmap") && system.shape.fault_tolerance() > 0 && !sequential,
            turn: match gather {
                true => (u64::MAX, (controller.or("rebuild_burst", 1.0) * 1024.0 * 1024.0) as u64),
                false => (controller.or("rebuild_pass", 1.0).round() as u64, u64::MAX),
            },
        };
        let turns = state == State::Rebuilding && takes_turns(system);
        let parity = system.shape.parity_units() > 0;
        let members = (0..system.drives.max(system.shape.width)).map(|index| Member {
            hdd: Hdd::on(geometry.clone(), &parameters, seed.wrapping_add(index as u64)),
            window: Vec::new(),
            backlog: VecDeque::new(),
            dirty: Vec::new(),
            serving: None,
            read_end: (u64::MAX, 0),
            write_end: (u64::MAX, 0),
            held: VecDeque::new(),
            arm_lba: u64::MAX,
            busy_ns: 0,
            rebuild: (turns && (index == 1 || (parity && index > 0))).then_some((
                geometry.capacity_sectors() / 8,
                0,
                0,
            )),
        });
        // Going back to the start of a small file again and again is no part of a stream's speed.
        let span = if sequential { span.max(STREAM_BYTES.min(planner.capacity())) } else { span };
        let streams = workload.workers.max(1) as u64;
        Self {
            planner,
            members: members.collect(),
            // The last one is the mark of regions.
            requests: vec![Request::default(); slots + 1],
            free: (0..slots as u32).rev().collect(),
            events: BinaryHeap::new(),
            waiting: VecDeque::new(),
            active: 0,
            link_free_ns: 0,
            link_busy_ns: 0,
            random: SplitMix64::new(seed),
            workload,
            streams: (0..streams).map(|stream| span / streams * stream / SECTOR * SECTOR).collect(),
            next_stream: 0,
            span,
            weight: workload.blocks.iter().map(|(_, weight)| weight).sum(),
            now_ns: 0,
            done: 0,
            done_bytes: 0,
            latencies_ns: Vec::new(),
            block_of_stream,
            mark: slots as u32,
            marking: Marking::default(),
            setup,
        }
    }

    /// Size, place and direction of the next request.
    fn draw(&mut self) -> (u64, u64, bool) {
        let mut bytes = self.block_of_stream;
        if self.workload.blocks.len() > 1 {
            let mut pick = self.random.unit() * self.weight;
            for (size, weight) in &self.workload.blocks {
                bytes = *size;
                pick -= weight;
                if pick < 0.0 {
                    break;
                }
            }
        }
        let share = self.workload.read_share;
        let read = share >= 1.0 || (share > 0.0 && self.random.unit() < share);
        let chance = self.workload.random_share;
        if chance >= 1.0 || (chance > 0.0 && self.random.unit() < chance) {
            // Offsets are multiples of 4 KiB, not of the size; blocks of one size are aligned to
            // it.
            let align = if self.workload.blocks.len() > 1 { SECTOR } else { bytes.max(SECTOR) };
            let places = (self.span.saturating_sub(bytes) / align).max(1);
            return (self.random.below(places) * align, bytes, read);
        }
        let count = self.streams.len();
        let stream = &mut self.streams[self.next_stream % count];
        self.next_stream += 1;
        if *stream + bytes > self.span {
            *stream = 0;
        }
        let offset = *stream;
        *stream += bytes;
        (offset, bytes, read)
    }

    fn start(&mut self, id: u32) {
        let (offset, bytes, read) = self.draw();
        let started_ns = self.now_ns;
        if read && self.setup.cached > 0.0 && self.random.unit() < self.setup.cached {
            self.requests[id as usize] =
                Request { started_ns, bytes, left: 0, then: VecDeque::new(), active: false };
            self.link_free_ns = self.link_free_ns.max(self.now_ns) + self.setup.host_ns;
            self.events.push(Reverse((self.link_free_ns + self.setup.cached_ns, HOST + id)));
            return;
        }
        let steps = match (self.setup.record, read) {
            (0, true) => self.plan_read(offset, bytes),
            (0, false) => self.planner.write(offset, bytes),
            (record, _) => {
                let from = offset / record * record;
                let length = (offset + bytes).div_ceil(record) * record - from;
                let mut steps = self.plan_read(from, length);
                if !read {
                    steps.extend(self.planner.write(from, length));
                }
                steps
            }
        };
        let mut then: VecDeque<Vec<Extent>> = steps.into_iter().filter(|step| !step.is_empty()).collect();
        if self.setup.serial_members {
            then = then.into_iter().flatten().map(|extent| vec![extent]).collect();
        }
        self.requests[id as usize] = Request { started_ns, bytes, left: 0, then, active: true };
        self.active += 1;
        if !read && self.setup.marks {
            self.marking.next.push(id);
            self.write_mark();
        } else {
            self.proceed(id);
        }
    }

    /// Issues the next step of a request.
    fn proceed(&mut self, id: u32) {
        let step = self.requests[id as usize].then.pop_front().unwrap_or_default();
        self.issue(id, &step);
    }

    /// Writes the next mark, unless one is being written or nothing waits for it.
    fn write_mark(&mut self) {
        if self.marking.underway.is_some() || self.marking.next.is_empty() {
            return;
        }
        self.marking.underway = Some(std::mem::take(&mut self.marking.next));
        let extents: Vec<Extent> = self
            .planner
            .present()
            .map(|member| Extent { member, offset: 0, bytes: SECTOR, write: true })
            .collect();
        self.issue(self.mark, &extents);
    }

    /// Returns the accesses of a mirror's read: the copy is chosen by region, or by the shorter
    /// queue.
    fn plan_read(&mut self, offset: u64, bytes: u64) -> Vec<Vec<Extent>> {
        let mut load = Vec::new();
        if self.setup.mirror_run.is_none() && self.planner.is_mirrored() {
            let load_of = |member: &Member| {
                member.window.len() + member.backlog.len() + usize::from(member.serving.is_some())
            };
            load = self.members.iter().map(load_of).collect();
        }
        let run = self.setup.mirror_run;
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        self.planner.read(offset, bytes, &mut |at, copies: &[usize]| match run {
            Some(run) => (at / run) as usize % copies.len(),
            None if load.is_empty() => 0,
            None => {
                // A request stays with one copy. Of equals the first: a lone stream keeps its
                // read-ahead.
                if let Some((_, index)) = chosen.iter().find(|(first, _)| *first == copies[0]) {
                    return *index;
                }
                let least = copies.iter().enumerate().min_by_key(|(_, member)| load[**member]);
                let index = least.map_or(0, |(index, _)| index);
                chosen.push((copies[0], index));
                index
            }
        })
    }

    fn issue(&mut self, id: u32, extents: &[Extent]) {
        self.requests[id as usize].left = extents.len() as u32;
        if extents.is_empty() {
            self.complete_at(id, self.now_ns);
            return;
        }
        for extent in extents {
            let member = &mut self.members[extent.member];
            let lba = extent.offset / SECTOR;
            let sectors = (extent.bytes.div_ceil(SECTOR) as u32).max(1);
            let target = member.hdd.target(lba);
            member.backlog.push_back(Command { request: id, lba, sectors, write: extent.write, target });
        }
        let mut touched: Vec<usize> = extents.iter().map(|extent| extent.member).collect();
        touched.dedup();
        for member in touched {
            self.admit(member);
        }
    }

    /// Fills a drive's window from its backlog, and lets it serve.
    fn admit(&mut self, index: usize) {
        let mut answered = Vec::new();
        let member = &mut self.members[index];
        while let Some(&command) = member.backlog.front() {
            if command.write && self.setup.absorb > 0 {
                let bytes: u64 = member.dirty.iter().map(|held| u64::from(held.sectors) * SECTOR).sum();
                let full = bytes + u64::from(command.sectors) * SECTOR > self.setup.absorb_bytes;
                if member.dirty.len() >= self.setup.absorb || (full && !member.dirty.is_empty()) {
                    break;
                }
                member.give_up(&command);
                member.dirty.push(command);
                answered.push(command.request);
            } else if !command.write && member.holds(&command) {
                answered.push(command.request);
            } else if member.window.len() < self.setup.tags {
                member.window.push(command);
            } else {
                break;
            }
            member.backlog.pop_front();
        }
        self.serve(index);
        for id in answered {
            self.part_done(id, self.now_ns + self.setup.command_ns);
        }
    }

    fn serve(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let member = &mut self.members[index];
        if member.serving.is_some() {
            return;
        }
        if let Some((place, commands, bytes)) = &mut member.rebuild {
            let idle = member.window.is_empty() && member.dirty.is_empty();
            if *commands >= self.setup.turn.0 || *bytes >= self.setup.turn.1 || idle {
                let sectors = (256 * 1024 / SECTOR) as u32;
                let lba = *place;
                *place = (*place + u64::from(sectors)) % (member.hdd.geometry().capacity_sectors() / 2);
                (*commands, *bytes) = (0, 0);
                let plan = member.hdd.plan(now_ns, lba, sectors, false);
                member.hdd.commit(&plan);
                member.busy_ns += plan.finished_ns - now_ns;
                let target = member.hdd.target(lba);
                member.serving =
                    Some((Command { request: u32::MAX, lba, sectors, write: false, target }, true));
                member.read_end = (u64::MAX, 0);
                self.events.push(Reverse((plan.finished_ns, index as u32)));
                return;
            }
        }
        let gathers = self.setup.absorb > 0;
        // Sectors between the end of the last read and this one, where the drive has read on or
        // reads on now.
        let (read_end, read_ns) = member.read_end;
        let skipped = |command: &Command| {
            let gap = command.lba.checked_sub(read_end).filter(|_| !command.write && read_end != u64::MAX)?;
            let ahead = if now_ns > read_ns { self.setup.read_ahead } else { 0 };
            (gap <= ahead && now_ns - read_ns < READ_AHEAD_NS).then_some(gap as u32)
        };
        // A write in the drive's cache that goes on where the last one ended was ready before that.
        let (write_end, written_ns) = member.write_end;
        let streamed = |command: &Command| command.write && command.lba == write_end;
        let wait = |command: &Command| match skipped(command) {
            Some(_) => now_ns,
            None if gathers && streamed(command) => now_ns,
            None => member.hdd.positioned_ns(now_ns, &command.target, command.write),
        };
        // The first sectors of the drive's read-ahead are served first: those behind would be a
        // turn away.
        let in_window =
            member.window.iter().enumerate().map(|(at, command)| (wait(command), command.lba, false, at));
        let reads_first = !member.window.is_empty() && member.dirty.len() * 4 < self.setup.absorb * 3;
        let destaged = if reads_first { &[][..] } else { &member.dirty[..] };
        let in_cache =
            destaged.iter().enumerate().map(|(at, command)| (wait(command), command.lba, true, at));
        let Some((_, _, cached, at)) = in_window.chain(in_cache).min() else { return };
        let command = if cached { member.dirty[at] } else { member.window[at] };
        // A read that goes on where the last one ended was read ahead while the arm had nothing
        // else to do.
        let plan = match skipped(&command) {
            None if gathers && streamed(&command) && now_ns - written_ns < STREAM_PAUSE_NS => {
                member.hdd.plan_from(written_ns, command.lba, command.target, command.sectors, true)
            }
            Some(0) => {
                member.hdd.plan_from(read_ns, command.lba, command.target, command.sectors, command.write)
            }
            Some(gap) => member.hdd.plan(read_ns, read_end, gap + command.sectors, false),
            None => member.hdd.plan_from(now_ns, command.lba, command.target, command.sectors, command.write),
        };
        member.hdd.commit(&plan);
        let least_ns = match skipped(&command) {
            Some(_) => self.setup.command_ns,
            None if command.lba == member.arm_lba => self.setup.command_ns,
            None => self.setup.command_ns.max(self.setup.prepare_ns),
        };
        let finished_ns = plan.finished_ns.max(now_ns + least_ns);
        member.arm_lba = command.lba + u64::from(command.sectors);
        member.busy_ns += finished_ns - now_ns;
        member.write_end = match command.write {
            true => (command.lba + u64::from(command.sectors), plan.finished_ns),
            false => (u64::MAX, 0),
        };
        member.read_end = match command.write {
            true => (u64::MAX, 0),
            false => (command.lba + u64::from(command.sectors), plan.finished_ns),
        };
        // With others waiting the arm arrives just in time.
        let alone = member.window.len() + member.backlog.len() == 1;
        if !command.write && alone && skipped(&command).is_none() {
            member.hold(
                plan.positioned_ns - plan.start_ns - u64::from(plan.moving_ns),
                &command,
                self.setup.segments,
                self.setup.segment_sectors,
            );
        }
        if let Some((_, commands, bytes)) = &mut member.rebuild {
            *commands += 1;
            *bytes += u64::from(command.sectors) * SECTOR;
        }
        if cached {
            member.dirty.swap_remove(at);
        } else {
            member.window.swap_remove(at);
        }
        member.serving = Some((command, cached));
        self.events.push(Reverse((finished_ns, index as u32)));
    }

    fn part_done(&mut self, id: u32, at_ns: u64) {
        let request = &mut self.requests[id as usize];
        request.left -= 1;
        if request.left > 0 {
            return;
        }
        if id == self.mark {
            let marked = self.marking.underway.take().unwrap_or_default();
            marked.into_iter().for_each(|id| self.proceed(id));
            self.write_mark();
            return;
        }
        let Some(then) = request.then.pop_front() else {
            self.complete_at(id, at_ns);
            return;
        };
        self.issue(id, &then);
    }

    /// The drives are done with it: it crosses the link.
    fn complete_at(&mut self, id: u32, at_ns: u64) {
        let bytes = self.requests[id as usize].bytes as f64;
        let read = self.workload.read_share;
        let per_byte = read * self.setup.read_ns_per_byte + (1.0 - read) * self.setup.write_ns_per_byte;
        let transfer_ns = (bytes * per_byte) as u64;
        self.link_free_ns = self.link_free_ns.max(at_ns) + transfer_ns;
        self.link_busy_ns += transfer_ns;
        self.events.push(Reverse((self.link_free_ns, HOST + id)));
    }

    fn fill(&mut self) {
        while let Some(id) = self.free.pop() {
            self.waiting.push_back(id);
        }
        while self.active < self.setup.in_flight {
            let Some(id) = self.waiting.pop_front() else { break };
            self.start(id);
        }
    }

    pub(super) fn run(&mut self, warm: u64, measured: u64) -> (u64, u64) {
        let mut from = (0, 0, Vec::new());
        self.fill();
        let mut completed = 0;
        while completed < warm + measured {
            let Some(Reverse((at_ns, who))) = self.events.pop() else { break };
            self.now_ns = at_ns;
            if who >= HOST {
                let id = who - HOST;
                let request = &self.requests[id as usize];
                completed += 1;
                if completed > warm {
                    self.done += 1;
                    self.done_bytes += request.bytes;
                    self.latencies_ns.push(at_ns - request.started_ns);
                } else if completed == warm {
                    let busy = self.members.iter().map(|member| member.busy_ns).collect();
                    from = (at_ns, self.link_busy_ns, busy);
                }
                if self.requests[id as usize].active {
                    self.active -= 1;
                }
                self.free.push(id);
                self.fill();
            } else {
                let index = who as usize;
                let (command, cached) = self.members[index].serving.take().expect("it was serving");
                if command.request == u32::MAX || cached {
                    self.admit(index);
                } else {
                    // The request after this one may already wait where the arm is.
                    self.part_done(command.request, at_ns);
                    self.admit(index);
                }
            }
        }
        let (from_ns, link, busy) = from;
        for (member, before) in self.members.iter_mut().zip(busy) {
            member.busy_ns -= before;
        }
        self.link_busy_ns -= link;
        (from_ns, self.now_ns)
    }
}
