//! Commands of a solid-state drive: cable, controller, channels and dies, each serving in order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::ftl::Ftl;
use super::parameters::SsdParameters;
use crate::hdd::{Completed, HddOperation, HddRequest, ParameterError};

/// Pages that the translation is simulated on.
const SAMPLE_PAGES: u64 = 1 << 17;
/// Blocks of the sample are at most this long, so that there are many.
const SAMPLE_BLOCK: u32 = 128;
/// Weight of one sampled write in the running amplification.
const MEMORY: f64 = 1.0 / 4096.0;

/// One drive.
#[derive(Clone, Debug)]
pub struct SsdQueue {
    page_bytes: u64,
    pages: u64,
    page_read_ns: u64,
    page_program_ns: u64,
    copy_ns: f64,
    erase_per_page_ns: f64,
    channel_page_ns: u64,
    interface_bytes_per_us: f64,
    command_ns: u64,
    latency_ns: u64,
    queue_depth: usize,
    cache_bytes: u64,
    channels: Vec<u64>,
    dies: Vec<u64>,
    controller_free_ns: u64,
    interface_free_ns: u64,
    /// Die on which the next page is programmed.
    next_die: usize,
    ftl: Ftl,
    /// Pages that one page of the sample stands for.
    scale: u64,
    sample_pages: u64,
    /// Copies and erases for each page that the host writes, lately.
    copies: f64,
    erases: f64,
    /// Data in the write cache: until when, and how much.
    cached: VecDeque<(u64, u64)>,
    cached_bytes: u64,
    /// Every write is programmed by then.
    programmed_ns: u64,
    inside: BinaryHeap<Reverse<(u64, u64, u64)>>,
    entered: u64,
    beyond: VecDeque<HddRequest>,
}

impl SsdQueue {
    /// Idle, and never written; the seed turns the order of dies.
    pub fn new(parameters: &SsdParameters, seed: u64) -> Result<Self, ParameterError> {
        parameters.check()?;
        let page_bytes = u64::from(parameters.page_bytes);
        let pages = parameters.capacity_bytes / page_bytes;
        let scale = pages.div_ceil(SAMPLE_PAGES).max(1);
        let sample_pages = pages.div_ceil(scale).max(1);
        let ns = |us: f64| (us * 1000.0).round() as u64;
        let dies = (parameters.channels * parameters.dies_per_channel) as usize;
        let block = parameters.pages_per_block.min(SAMPLE_BLOCK);
        let channel_page_ns = ns(page_bytes as f64 / parameters.channel_mb_per_s);
        Ok(Self {
            page_bytes,
            pages,
            page_read_ns: ns(parameters.read_us),
            page_program_ns: ns(parameters.program_us),
            copy_ns: (parameters.read_us + parameters.program_us) * 1000.0,
            erase_per_page_ns: parameters.erase_us * 1000.0 / f64::from(parameters.pages_per_block),
            channel_page_ns,
            interface_bytes_per_us: parameters.interface_mb_per_s,
            command_ns: ns(parameters.command_us),
            latency_ns: ns(parameters.latency_us),
            queue_depth: parameters.queue_depth as usize,
            cache_bytes: u64::from(parameters.write_cache_kib) << 10,
            channels: vec![0; parameters.channels as usize],
            dies: vec![0; dies],
            controller_free_ns: 0,
            interface_free_ns: 0,
            next_die: seed as usize % dies,
            ftl: Ftl::new(sample_pages as u32, block, parameters.over_provisioning_percent),
            scale,
            sample_pages,
            copies: 0.0,
            erases: 0.0,
            cached: VecDeque::new(),
            cached_bytes: 0,
            programmed_ns: 0,
            inside: BinaryHeap::new(),
            entered: 0,
            beyond: VecDeque::new(),
        })
    }

    /// Whole pages.
    pub fn capacity_bytes(&self) -> u64 {
        self.pages * self.page_bytes
    }

    /// Pages programmed for each that the host writes, lately.
    pub fn write_amplification(&self) -> f64 {
        1.0 + self.copies
    }

    /// Brings the drive to the state that `writes` whole capacities of uniform random writes leave,
    /// without taking time; what it holds is full afterwards.
    pub fn age(&mut self, writes: f64, seed: u64) {
        for page in 0..self.sample_pages {
            self.note_sample(page as u32);
        }
        let mut random = stripewise_drive::SplitMix64::new(seed);
        for _ in 0..(writes * self.sample_pages as f64) as u64 {
            self.note_sample(random.below(self.sample_pages) as u32);
        }
    }

    fn note_sample(&mut self, page: u32) {
        let written = self.ftl.write(page);
        self.copies += (f64::from(written.copies) - self.copies) * MEMORY;
        self.erases += (f64::from(written.erases) - self.erases) * MEMORY;
    }

    /// Everything until now must have been taken with [`SsdQueue::advance`]. Panics beyond the
    /// capacity and without length.
    pub fn submit(&mut self, now_ns: u64, request: HddRequest) {
        match self.inside.len() < self.queue_depth {
            true => self.enter(now_ns, request),
            false => self.beyond.push_back(request),
        }
    }

    /// Time of the next completion; `None` while the drive is idle.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.inside.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Appends what completed up to now, in order of time.
    pub fn advance(&mut self, now_ns: u64, completed: &mut Vec<Completed>) {
        while let Some(Reverse((at_ns, _, id))) =
            self.inside.peek().copied().filter(|next| next.0.0 <= now_ns)
        {
            self.inside.pop();
            completed.push(Completed { id, at_ns });
            if let Some(request) = self.beyond.pop_front() {
                self.enter(at_ns, request);
            }
        }
    }

    fn enter(&mut self, now_ns: u64, request: HddRequest) {
        let decoded_ns = now_ns.max(self.controller_free_ns) + self.command_ns;
        self.controller_free_ns = decoded_ns;
        let at_ns = match request.operation {
            HddOperation::Flush => decoded_ns.max(self.programmed_ns),
            operation => {
                assert!(request.length_bytes > 0, "a request has a length");
                let first = request.offset_bytes / self.page_bytes;
                let end = (request.offset_bytes + request.length_bytes).div_ceil(self.page_bytes);
                assert!(end <= self.pages, "beyond the end of the drive");
                match operation {
                    HddOperation::Read => self.read(decoded_ns, first, end, request.length_bytes),
                    _ => self.write(decoded_ns, first, end, request.length_bytes, operation),
                }
            }
        };
        self.entered += 1;
        self.inside.push(Reverse((at_ns + self.latency_ns, self.entered, request.id)));
    }

    fn interface_ns(&self, bytes: u64) -> u64 {
        (bytes as f64 * 1000.0 / self.interface_bytes_per_us) as u64
    }

    fn read(&mut self, decoded_ns: u64, first: u64, end: u64, bytes: u64) -> u64 {
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        for page in first..end {
            let die = self.die_of(page);
            let channel = die % self.channels.len();
            let sensed_ns = decoded_ns.max(self.dies[die]) + self.page_read_ns;
            let out_ns = sensed_ns.max(self.channels[channel]) + self.channel_page_ns;
            self.dies[die] = out_ns;
            self.channels[channel] = out_ns;
            first_ns = first_ns.min(out_ns);
            last_ns = last_ns.max(out_ns);
        }
        // Pages leave over the cable as they come.
        let sent_ns = self.interface_free_ns.max(first_ns) + self.interface_ns(bytes);
        let page_ns = self.interface_ns(bytes.min(self.page_bytes));
        self.interface_free_ns = sent_ns.max(last_ns + page_ns);
        self.interface_free_ns
    }

    /// Neighbours are on different dies, as they were written.
    fn die_of(&self, page: u64) -> usize {
        let dies = self.dies.len() as u64;
        let row = (page / dies).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        ((page + row) % dies) as usize
    }

    fn write(&mut self, decoded_ns: u64, first: u64, end: u64, bytes: u64, operation: HddOperation) -> u64 {
        let arrived_ns = decoded_ns.max(self.interface_free_ns) + self.interface_ns(bytes);
        self.interface_free_ns = arrived_ns;
        let mut done_ns = 0;
        for page in first..end {
            if page % self.scale == 0 {
                self.note_sample((page / self.scale) as u32);
            }
            let beyond_ns = self.copies * self.copy_ns
                + self.erases.max(1.0 / f64::from(SAMPLE_BLOCK))
                    * self.erase_per_page_ns
                    * f64::from(SAMPLE_BLOCK);
            let die = self.next_die;
            self.next_die = (die + 1) % self.dies.len();
            let channel = die % self.channels.len();
            let in_ns = arrived_ns.max(self.channels[channel]) + self.channel_page_ns;
            self.channels[channel] = in_ns;
            let programmed_ns = in_ns.max(self.dies[die]) + self.page_program_ns + beyond_ns as u64;
            self.dies[die] = programmed_ns;
            done_ns = done_ns.max(programmed_ns);
        }
        self.programmed_ns = self.programmed_ns.max(done_ns);
        match operation {
            HddOperation::Write if self.cache_bytes > 0 => self.cache(arrived_ns, done_ns, bytes),
            _ => done_ns,
        }
    }

    /// When the cache has room for the data.
    fn cache(&mut self, arrived_ns: u64, done_ns: u64, bytes: u64) -> u64 {
        let mut taken_ns = arrived_ns;
        while let Some((until_ns, held)) = self.cached.front().copied() {
            let fits = self.cached_bytes + bytes <= self.cache_bytes;
            if until_ns > arrived_ns && fits {
                break;
            }
            taken_ns = taken_ns.max(if fits { arrived_ns } else { until_ns });
            self.cached_bytes -= held;
            self.cached.pop_front();
        }
        let last_ns = self.cached.back().map_or(0, |last| last.0);
        self.cached.push_back((done_ns.max(last_ns), bytes));
        self.cached_bytes += bytes;
        taken_ns
    }
}
