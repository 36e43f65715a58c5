//! A drive that behaves as its tables say: it serves commands in order of arrival, at the rate
//! measured for the current queue depth.
//!
//! The first command in the queue is served at the rate that its table gives for the current number
//! of commands, so a load of constant depth gets the rate measured at that depth. A command takes
//! at least as long as a command alone. Times of commands and of transfers pass on two clocks where
//! the drive does so ([`MeasuredParameters::overlap_percent`]).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::parameters::{MeasuredParameters, at};
use super::response::ResponseTable;
use crate::hdd::{Completed, HddOperation, HddRequest, ParameterError};

/// Maximum number of streams followed.
const STREAMS: usize = 32;
/// A request this far behind the end of a stream continues it.
const STREAM_GAP_BYTES: u64 = 256 << 10;
/// Weight of one request in the moving share of reads.
const READ_SHARE_WEIGHT: f64 = 1.0 / 32.0;
/// Ranges of the read cache.
const SEGMENTS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    RandomRead,
    SequentialRead,
    RandomWrite,
    SequentialWrite,
}

/// Service of a command.
#[derive(Clone, Copy, Debug)]
enum Service {
    /// Service by table; `commands` and `transfers` scale the table's times.
    Table { table: Table, commands: f64, transfers: f64, gap_us: f64 },
    /// In this time, however many are inside.
    Fixed { us: f64 },
}

#[derive(Clone, Copy, Debug)]
struct Item {
    id: u64,
    bytes: u64,
    arrived_ns: u64,
    /// Not answered before.
    floor_ns: u64,
    service: Service,
}

/// One drive.
#[derive(Clone, Debug)]
pub struct MeasuredQueue {
    parameters: MeasuredParameters,
    mean_seek_us: f64,
    mean_zone: f64,
    first_zone: f64,
    line: VecDeque<Item>,
    /// Remaining share of the first command's service, and the share of its time that it takes
    /// beside others.
    left: f64,
    stretch: f64,
    updated_ns: u64,
    /// Served, and not yet due for completion.
    served: BinaryHeap<Reverse<(u64, u64, u64)>>,
    served_count: u64,
    beyond: VecDeque<HddRequest>,
    /// Ends of the last streams, the latest first.
    streams: VecDeque<u64>,
    last_end: u64,
    cache: VecDeque<(u64, u64)>,
    burst_left_bytes: f64,
    idle_since_ns: u64,
    /// Mean of the last requests: 1 for reads, 0 for writes.
    read_share: f64,
    /// Ends of what commands and transfers have used so far.
    commands_ns: f64,
    transfers_ns: f64,
}

impl MeasuredQueue {
    /// Idle.
    pub fn new(parameters: &MeasuredParameters) -> Result<Self, ParameterError> {
        parameters.check()?;
        let capacity = parameters.capacity_bytes as f64;
        // Distances of random places: likelier the shorter they are.
        let seeks = (0..64).map(|step| {
            let share = (f64::from(step) + 0.5) / 64.0;
            at(&parameters.seek, (1.0 - (1.0 - share).sqrt()) * capacity)
        });
        let mean_seek_us = seeks.sum::<f64>() / 64.0;
        let places = (0..64).map(|step| 1.0 / at(&parameters.zones, (f64::from(step) + 0.5) / 64.0));
        let mean_zone = places.sum::<f64>() / 64.0;
        Ok(Self {
            mean_seek_us,
            mean_zone,
            first_zone: 1.0 / at(&parameters.zones, 0.0),
            line: VecDeque::new(),
            left: 1.0,
            stretch: 1.0,
            updated_ns: 0,
            served: BinaryHeap::new(),
            served_count: 0,
            beyond: VecDeque::new(),
            streams: VecDeque::with_capacity(STREAMS),
            last_end: 0,
            cache: VecDeque::with_capacity(SEGMENTS),
            burst_left_bytes: parameters.write_burst_kib as f64 * 1024.0,
            idle_since_ns: 0,
            read_share: 1.0,
            commands_ns: 0.0,
            transfers_ns: 0.0,
            parameters: parameters.clone(),
        })
    }

    /// As measured.
    pub fn capacity_bytes(&self) -> u64 {
        self.parameters.capacity_bytes
    }

    /// Everything until now must have been taken with [`MeasuredQueue::advance`]. Panics beyond the
    /// capacity.
    pub fn submit(&mut self, now_ns: u64, request: HddRequest) {
        self.pass(now_ns);
        match self.inside() < self.parameters.queue_depth {
            true => self.enter(now_ns, request),
            false => self.beyond.push_back(request),
        }
    }

    /// Time of the next event; `None` while the drive is idle.
    pub fn next_event_ns(&self) -> Option<u64> {
        let answer_ns = self.served.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let service_ns = self.line.front().map(|item| {
            self.updated_ns + (self.left * self.stretch * self.service_ns(item)).ceil().max(0.0) as u64
        });
        match (answer_ns, service_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Advances the drive to this time, and appends the completed requests in order of time.
    pub fn advance(&mut self, now_ns: u64, completed: &mut Vec<Completed>) {
        while let Some(event_ns) = self.next_event_ns().filter(|event_ns| *event_ns <= now_ns) {
            self.pass(event_ns);
            match self.served.peek() {
                Some(Reverse((at_ns, _, id))) if *at_ns <= event_ns => {
                    completed.push(Completed { id: *id, at_ns: *at_ns });
                    self.served.pop();
                    if let Some(request) = self.beyond.pop_front() {
                        self.enter(event_ns, request);
                    }
                    if self.inside() == 0 {
                        self.idle_since_ns = event_ns;
                    }
                }
                _ => self.serve_first(event_ns),
            }
        }
    }

    fn inside(&self) -> u32 {
        (self.line.len() + self.served.len()) as u32
    }

    /// The first in line is served for the time since the last look.
    fn pass(&mut self, now_ns: u64) {
        if let Some(item) = self.line.front() {
            let whole_ns = self.stretch * self.service_ns(item);
            let passed_ns = now_ns.saturating_sub(self.updated_ns) as f64;
            self.left = if whole_ns > 0.0 { (self.left - passed_ns / whole_ns).max(0.0) } else { 0.0 };
        }
        self.updated_ns = self.updated_ns.max(now_ns);
    }

    fn serve_first(&mut self, now_ns: u64) {
        let item = self.line.pop_front().expect("its service ended");
        self.served_count += 1;
        self.served.push(Reverse((item.floor_ns.max(now_ns), self.served_count, item.id)));
        self.begin_first(now_ns);
    }

    fn table(&self, table: Table) -> &ResponseTable {
        match table {
            Table::RandomRead => &self.parameters.random_read,
            Table::SequentialRead => &self.parameters.sequential_read,
            Table::RandomWrite => &self.parameters.random_write,
            Table::SequentialWrite => &self.parameters.sequential_write,
        }
    }

    /// Returns the times of the command and of the whole service in microseconds, with `inside`
    /// commands in the drive.
    fn times_us(&self, item: &Item, inside: u32) -> (f64, f64) {
        match item.service {
            Service::Fixed { us } => (us, us),
            Service::Table { table, commands, transfers, gap_us } => {
                let table = self.table(table);
                let command_us = table.us(table.smallest_block(), inside);
                let whole_us = table.us(item.bytes, inside);
                let transfer_us = (whole_us - command_us).max(0.0);
                (command_us * commands, command_us * commands + transfer_us * transfers + gap_us)
            }
        }
    }

    fn service_ns(&self, item: &Item) -> f64 {
        self.times_us(item, self.inside().max(1)).1 * 1000.0
    }

    /// Commands and transfers go on two clocks; what the longer of them adds is what the first in
    /// line takes.
    fn begin_first(&mut self, now_ns: u64) {
        self.left = 1.0;
        self.stretch = 1.0;
        let overlap = self.parameters.overlap_percent / 100.0;
        let Some(item) = self.line.front().copied().filter(|_| overlap > 0.0) else { return };
        let Service::Table { table, transfers, .. } = item.service else { return };
        let inside = self.inside().max(1);
        let (command_us, whole_us) = self.times_us(&item, inside);
        let table = self.table(table);
        let largest = table.largest_block();
        let byte_us = table.us(largest, inside) / largest as f64 * item.bytes as f64 * transfers;
        let transfer_us = (1.0 - overlap) * whole_us + overlap * byte_us;
        let now = now_ns as f64;
        // A clock with nothing to do saves no time up from before the command came.
        let earliest = item.arrived_ns as f64;
        let lag = |clock: f64| now - (now - clock.max(earliest)).max(0.0) * overlap;
        self.commands_ns = lag(self.commands_ns) + command_us * 1000.0;
        self.transfers_ns = lag(self.transfers_ns) + transfer_us * 1000.0;
        let takes_ns = self.commands_ns.max(self.transfers_ns) - now;
        self.stretch = (takes_ns.max(0.0) / (whole_us * 1000.0).max(1.0)).max(0.0);
    }

    fn enter(&mut self, now_ns: u64, request: HddRequest) {
        if self.inside() == 0 {
            self.refill_burst(now_ns);
        }
        let (service, floor_us) = match request.operation {
            HddOperation::Flush => (Service::Fixed { us: 0.0 }, self.parameters.flush_us),
            operation => self.service(&request, operation),
        };
        let item = Item {
            id: request.id,
            bytes: request.length_bytes,
            arrived_ns: now_ns,
            floor_ns: now_ns + (floor_us * 1000.0) as u64,
            service,
        };
        self.line.push_back(item);
        if self.line.len() == 1 {
            self.begin_first(now_ns);
            self.updated_ns = now_ns;
        }
    }

    /// Moves burst data to the medium while the drive is idle.
    fn refill_burst(&mut self, now_ns: u64) {
        let most = self.parameters.write_burst_kib as f64 * 1024.0;
        let table = &self.parameters.random_write;
        let bytes_per_ns = table.smallest_block() as f64 / (table.us(table.smallest_block(), 1) * 1000.0);
        let idle_ns = now_ns.saturating_sub(self.idle_since_ns) as f64;
        self.burst_left_bytes = (self.burst_left_bytes + idle_ns * bytes_per_ns).min(most);
    }

    /// Returns the service of a request, and its minimum time, that of a command alone.
    fn service(&mut self, request: &HddRequest, operation: HddOperation) -> (Service, f64) {
        let (offset, bytes) = (request.offset_bytes, request.length_bytes);
        let end = offset + bytes;
        assert!(bytes > 0 && end <= self.parameters.capacity_bytes, "a request has a length and lies within");
        let is_read = operation == HddOperation::Read;
        self.read_share += (f64::from(u8::from(is_read)) - self.read_share) * READ_SHARE_WEIGHT;
        let gap_bytes = self.continues(offset, end);
        let distance = self.last_end.abs_diff(offset) as f64;
        self.last_end = end;
        if is_read && self.is_cached(offset, end) {
            let us = self.parameters.read_cache_us * (bytes as f64 / 65536.0).max(1.0);
            return (Service::Fixed { us }, us);
        }
        match is_read {
            true => self.keep(offset, end),
            false => self.cache.retain(|range| range.1 <= offset || end <= range.0),
        }
        if operation == HddOperation::Write && self.burst_left_bytes >= bytes as f64 {
            self.burst_left_bytes -= bytes as f64;
            let us = self.parameters.write_burst_us * (bytes as f64 / 65536.0).max(1.0);
            return (Service::Fixed { us }, us);
        }
        let place = offset as f64 / self.parameters.capacity_bytes as f64;
        let zone = 1.0 / at(&self.parameters.zones, place);
        // Even shares of reads and writes get what was measured with them.
        let evenness = 4.0 * self.read_share * (1.0 - self.read_share);
        let mixing = 1.0 + (at(&self.parameters.mixing, bytes as f64) / 100.0 - 1.0) * evenness;
        let far = Service::Table {
            table: if is_read { Table::RandomRead } else { Table::RandomWrite },
            commands: at(&self.parameters.seek, distance) / self.mean_seek_us * mixing,
            transfers: zone / self.mean_zone * mixing,
            gap_us: 0.0,
        };
        let item = |service| Item { id: request.id, bytes, arrived_ns: 0, floor_ns: 0, service };
        let far_us = self.times_us(&item(far), 1).1;
        let near = gap_bytes.map(|gap_bytes| {
            let table = if is_read { Table::SequentialRead } else { Table::SequentialWrite };
            let transfers = zone / self.first_zone * mixing;
            let rates = self.table(table);
            let byte_us = rates.us(rates.largest_block(), 1) / rates.largest_block() as f64;
            Service::Table {
                table,
                commands: mixing,
                transfers,
                gap_us: gap_bytes as f64 * byte_us * transfers,
            }
        });
        // A hole that takes longer to pass than to go round is gone round.
        let near = near.map(|near| (near, self.times_us(&item(near), 1).1)).filter(|near| near.1 <= far_us);
        let (service, alone_us) = near.unwrap_or((far, far_us));
        let forced = operation == HddOperation::ForcedWrite;
        (service, if forced { alone_us.max(self.parameters.forced_write_us) } else { alone_us })
    }

    /// Bytes between the end of a stream and here, where this goes on with one.
    fn continues(&mut self, offset: u64, end: u64) -> Option<u64> {
        let is_it = |at: &u64| *at <= offset && offset - *at <= STREAM_GAP_BYTES;
        let found = self.streams.iter().position(is_it);
        let gap = found.and_then(|at| self.streams.remove(at)).map(|at| offset - at);
        if found.is_none() && self.streams.len() == STREAMS {
            self.streams.pop_back();
        }
        self.streams.push_front(end);
        gap
    }

    fn is_cached(&self, offset: u64, end: u64) -> bool {
        self.cache.iter().any(|range| range.0 <= offset && end <= range.1)
    }

    /// Keeps a range that was read; the oldest ranges are dropped.
    fn keep(&mut self, offset: u64, end: u64) {
        let most = self.parameters.read_cache_kib << 10;
        if most == 0 {
            return;
        }
        match self.cache.iter_mut().find(|range| range.0 <= offset && offset <= range.1) {
            Some(range) => {
                range.1 = range.1.max(end);
                range.0 = range.0.max(range.1.saturating_sub(most));
            }
            None => {
                if self.cache.len() == SEGMENTS {
                    self.cache.pop_front();
                }
                self.cache.push_back((offset, end));
            }
        }
        let held = |cache: &VecDeque<(u64, u64)>| cache.iter().map(|range| range.1 - range.0).sum::<u64>();
        while self.cache.len() > 1 && held(&self.cache) > most {
            self.cache.pop_front();
        }
    }
}
