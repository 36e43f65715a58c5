//! A described drive that serves one request at a time: the electronics around the mechanics.
//!
//! Commands cost an overhead by kind, before the arm moves and before data flow. A read that its
//! buffer answers in part waits for the rest; after a read the drive reads on behind it until the
//! next request stops it. A write ends on the medium, or with its data in the buffer where the
//! drive has a write cache; then the arm is busy until it is on the medium.

use super::buffer::{Buffer, Hit};
use super::bus::{ReadTransfer, Start};
use super::description::{Bus, Cache, Description, Overheads};
use crate::hdd::{Hdd, ParameterError, Plan};

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Time of completion.
    pub at_ns: u64,
    /// Answered by the buffer, wholly or in part; of a write, before it was on the medium.
    pub hit: bool,
}

/// Reading on behind a read into a segment.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    segment: usize,
    /// The sector whose start passed, or will be looked for, at `at_ns`.
    next_lba: u64,
    at_ns: u64,
    limit_lba: u64,
    /// Until here another request waits.
    least_lba: u64,
}

/// A drive of a description.
#[derive(Clone, Debug)]
pub(crate) struct ReplayDrive {
    hdd: Hdd,
    overheads: Overheads,
    bus: Bus,
    cache: Cache,
    read_sector_ns: u64,
    write_sector_ns: u64,
    buffer: Buffer,
    ahead: Option<Ahead>,
    after_write: bool,
    /// End of the last write in sectors.
    written_to: Option<u64>,
    /// The arm is writing until then.
    writing_until_ns: u64,
}

impl ReplayDrive {
    /// Idle, with an empty buffer; the seed sets the rotational phase.
    pub(crate) fn new(description: &Description, seed: u64) -> Result<Self, ParameterError> {
        Ok(Self {
            hdd: Hdd::new(&description.hdd, seed)?,
            overheads: description.overheads,
            bus: description.bus.clone(),
            buffer: Buffer::new(&description.cache),
            cache: description.cache.clone(),
            read_sector_ns: description.read_sector_ns,
            write_sector_ns: description.write_sector_ns,
            ahead: None,
            after_write: false,
            written_to: None,
            writing_until_ns: 0,
        })
    }

    /// Capacity in the description.
    pub(crate) fn capacity_sectors(&self) -> u64 {
        self.hdd.geometry().capacity_sectors()
    }

    /// Serves a request; the one before must be over. Panics beyond the capacity.
    pub(crate) fn serve(&mut self, now_ns: u64, write: bool, lba: u64, sectors: u32) -> Completion {
        let free_ns = self.catch_up(now_ns);
        let completion = match write {
            true => self.write(now_ns, free_ns, lba, sectors),
            false => self.read(now_ns, free_ns, lba, sectors),
        };
        self.after_write = write;
        completion
    }

    /// Brings the read-ahead to now, and says when the arm could leave it.
    fn catch_up(&mut self, now_ns: u64) -> u64 {
        let Some(ahead) = &mut self.ahead else { return now_ns };
        let left = (ahead.limit_lba - ahead.next_lba) as u32;
        let progress = self.hdd.progress(ahead.at_ns, ahead.next_lba, left, now_ns);
        self.hdd.commit_progress(&progress);
        ahead.next_lba += u64::from(progress.sectors);
        ahead.at_ns = progress.at_ns;
        self.buffer.extend(ahead.segment, ahead.next_lba);
        if ahead.next_lba >= ahead.limit_lba {
            return now_ns;
        }
        let needed = ahead.least_lba.saturating_sub(ahead.next_lba) as u32;
        if needed > 0 {
            return self.hdd.plan(ahead.at_ns, ahead.next_lba, needed, false).finished_ns;
        }
        if self.cache.stop_prefetch_mid_sector {
            return now_ns;
        }
        let plan = self.hdd.plan(ahead.at_ns, ahead.next_lba, 1, false);
        let seek_done_ns = plan.start_ns + u64::from(plan.moving_ns);
        match (seek_done_ns > now_ns, plan.positioned_ns > now_ns) {
            (true, _) => seek_done_ns,
            (_, true) => plan.positioned_ns,
            _ => plan.finished_ns,
        }
    }

    /// Returns the segment that is being read ahead into, if any.
    fn reading_into(&self) -> Option<usize> {
        self.ahead.filter(|ahead| ahead.next_lba < ahead.limit_lba).map(|ahead| ahead.segment)
    }

    fn read(&mut self, now_ns: u64, free_ns: u64, lba: u64, sectors: u32) -> Completion {
        let end = lba + u64::from(sectors);
        let busy = self.writing_until_ns > now_ns;
        let decoded_ns = now_ns + self.overheads.read_miss.after(self.after_write);
        let reading_into = self.reading_into();
        let hit = self.buffer.find(lba, sectors, reading_into, self.cache.almost_read_hits);
        let (segment, from, continues) = match hit {
            Hit::Whole(at) | Hit::Partial(at) => {
                self.buffer.touch(at);
                (at, self.buffer.segment(at).end, reading_into == Some(at))
            }
            Hit::Miss => (self.buffer.replace(lba, lba, reading_into), lba, false),
        };
        let least_lba = (end + u64::from(self.cache.min_readahead)).min(self.capacity_sectors());
        let start_ns = decoded_ns.max(free_ns).max(self.writing_until_ns);
        let there = (from.max(lba) - lba).min(u64::from(sectors)) as usize;
        let mut ready_ns = vec![0; there];
        if let Hit::Whole(_) = hit {
            let limit_lba = self.limit_lba(segment, lba, sectors);
            self.go_on_ahead(segment, limit_lba, least_lba, continues, start_ns);
        } else {
            let at_ns = if continues { self.ahead.map_or(start_ns, |ahead| ahead.at_ns) } else { start_ns };
            let (plan, times) = self.hdd.sector_times(at_ns, from, (end - from) as u32, false, |_| 0);
            let mut latest_ns = 0;
            ready_ns.extend(times.iter().skip((lba.max(from) - from) as usize).map(|time_ns| {
                latest_ns = latest_ns.max(*time_ns);
                latest_ns
            }));
            if hit == Hit::Miss && self.cache.read_sectors_before_request {
                let before = self.before_request(&plan, lba);
                self.buffer.restart(segment, lba - u64::from(before));
            }
            let limit_lba = self.limit_lba(segment, lba, sectors);
            self.hdd.commit(&plan);
            self.buffer.extend(segment, end);
            let at_ns = plan.finished_ns;
            self.ahead = Some(Ahead { segment, next_lba: end, at_ns, limit_lba, least_lba });
        }
        if self.cache.readahead_may_overwrite_requested {
            self.buffer.restart(segment, end);
        }
        let whole_or_partial = hit != Hit::Miss;
        let watermark = self.watermark(sectors);
        let enough = match hit {
            Hit::Whole(_) => true,
            Hit::Partial(_) => self.cache.transfer_partial_hit_immediately || there >= watermark,
            Hit::Miss => false,
        };
        let overhead_ns = match whole_or_partial {
            true => self.overheads.read_hit.after(self.after_write),
            false => self.overheads.read_miss.after(self.after_write),
        };
        let start = match self.bus.never_disconnect || (enough && !busy) {
            true => Start::Connected(now_ns + overhead_ns + self.overheads.data_preparation),
            false => {
                let away_ns = decoded_ns + self.overheads.read_disconnect.after(self.after_write);
                Start::Away(if enough { away_ns.max(self.writing_until_ns) } else { away_ns })
            }
        };
        let transfer = ReadTransfer {
            bus: &self.bus,
            overheads: &self.overheads,
            after_write: self.after_write,
            sector_ns: self.read_sector_ns,
            ready_ns: &ready_ns,
            watermark,
        };
        let at_ns = transfer.done_ns(start) + self.overheads.read_completion;
        Completion { at_ns, hit: whole_or_partial }
    }

    fn watermark(&self, sectors: u32) -> usize {
        let bounded = u64::from(sectors).min(self.buffer.size());
        ((bounded as f64 * self.bus.read_reconnect_watermark) as usize).max(1)
    }

    /// A read that the buffer answers wholly lets the read-ahead go on, where it runs, or begin
    /// again where the drive does so.
    fn go_on_ahead(
        &mut self,
        segment: usize,
        limit_lba: u64,
        least_lba: u64,
        continues: bool,
        start_ns: u64,
    ) {
        let next_lba = self.buffer.segment(segment).end;
        match &mut self.ahead {
            Some(ahead) if continues => ahead.limit_lba = ahead.limit_lba.max(limit_lba),
            _ if self.cache.readahead_after_full_hit && limit_lba > next_lba => {
                self.ahead = Some(Ahead { segment, next_lba, at_ns: start_ns, limit_lba, least_lba });
            }
            _ => self.ahead = None,
        }
    }

    /// Sectors of the track that passed under the head before the request's first.
    fn before_request(&self, plan: &Plan, lba: u64) -> u32 {
        let target = self.hdd.target(lba);
        let arrived_ns = plan.start_ns + u64::from(plan.moving_ns);
        let revolution_ns = u64::from(self.hdd.geometry().revolution_ns());
        let per_track = u64::from(self.hdd.geometry().sectors_per_track(target.zone));
        let waited_ns = self.hdd.wait_ns(arrived_ns, target.angle_ns);
        let passed = u64::from(waited_ns) * per_track / revolution_ns;
        target.before_on_track.min(passed as u32)
    }

    /// Returns the end of the drive's read-ahead after this request.
    fn limit_lba(&self, segment: usize, lba: u64, sectors: u32) -> u64 {
        let end = lba + u64::from(sectors);
        let size = self.buffer.size();
        let cache = &self.cache;
        let at_most = match (cache.max_readahead, cache.readahead_may_overwrite_requested) {
            (0, false) if u64::from(sectors) + u64::from(cache.min_readahead) >= size => {
                end + u64::from(cache.min_readahead)
            }
            (0, false) => lba + size,
            (0, true) => end + size,
            (most, _) => end + u64::from(most),
        };
        let last = self.hdd.target(end - 1);
        let track_end = end - 1 + u64::from(last.left_on_track);
        let limit = match cache.continuous_read {
            0 => end,
            1 => at_most.min(track_end),
            2 => at_most.min(self.cylinder_end(end - 1)),
            4 => self.next_track_limit(segment, end),
            _ => at_most,
        };
        limit.clamp(end, self.capacity_sectors())
    }

    fn cylinder_end(&self, lba: u64) -> u64 {
        let cylinder = self.hdd.target(lba).cylinder;
        let mut next = lba;
        while next < self.capacity_sectors() {
            let target = self.hdd.target(next);
            if target.cylinder != cylinder {
                break;
            }
            next += u64::from(target.left_on_track);
        }
        next.min(self.capacity_sectors())
    }

    /// To the end of the track behind the request, and of one more when what was read began on a
    /// track before.
    fn next_track_limit(&self, segment: usize, end: u64) -> u64 {
        if end >= self.capacity_sectors() {
            return end;
        }
        let next = self.hdd.target(end);
        let track_end = end + u64::from(next.left_on_track);
        match self.buffer.segment(segment).start < end - u64::from(next.before_on_track) {
            true => track_end + u64::from(self.hdd.geometry().sectors_per_track(next.zone)),
            false => track_end,
        }
    }

    fn write(&mut self, now_ns: u64, free_ns: u64, lba: u64, sectors: u32) -> Completion {
        let overheads = self.overheads;
        let fast = self.cache.fast_write != 0;
        let end = lba + u64::from(sectors);
        let busy = self.writing_until_ns > now_ns;
        let appends = busy && self.cache.combine_sequential_writes && self.written_to == Some(lba);
        let waits = busy && !appends;
        let overhead_ns = match fast {
            true => overheads.write_hit.after(self.after_write),
            false => overheads.write_miss.after(self.after_write),
        };
        let extra = self.bus.extra_write_disconnect
            && !self.bus.never_disconnect
            && self.after_write
            && !waits
            && self.written_to != Some(lba);
        let (data_ns, decoded_ns) = match (extra, waits && !self.bus.never_disconnect) {
            (true, _) => {
                let away_ns = now_ns + overheads.extra_command + overheads.extra_first + overheads.extra_gap;
                let seek_ns = now_ns + overheads.extra_command + overheads.extra_seek_delay;
                (away_ns + overheads.first_reselect + overheads.data_preparation, seek_ns)
            }
            (false, true) => {
                let away_ns = now_ns + overhead_ns + overheads.write_disconnect;
                let again_ns = overheads.first_reselect + overheads.data_preparation;
                (away_ns.max(self.writing_until_ns) + again_ns, now_ns + overhead_ns)
            }
            (false, false) => (now_ns + overhead_ns + overheads.data_preparation, now_ns + overhead_ns),
        };
        let sent_ns = data_ns + u64::from(sectors) * self.write_sector_ns;
        let on_medium_ns = self.write_medium(free_ns.max(decoded_ns), appends, lba, sectors, data_ns);
        let again_ns = if extra { overheads.other_reselect } else { overheads.first_reselect };
        let away_ns = if extra { overheads.extra_second } else { overheads.write_disconnect };
        let at_ns = match fast {
            true => sent_ns,
            false if self.bus.hold_bus_entire_write || self.bus.never_disconnect => sent_ns.max(on_medium_ns),
            false => (sent_ns + away_ns).max(on_medium_ns) + again_ns,
        };
        self.buffer.write(lba, sectors, self.reading_into());
        self.ahead = None;
        self.written_to = Some(end);
        self.writing_until_ns = on_medium_ns;
        Completion { at_ns: at_ns + overheads.write_completion, hit: fast }
    }

    /// Writes sectors whose data come over the cable from `data_ns` on; when they are on the
    /// medium.
    fn write_medium(&mut self, from_ns: u64, appends: bool, lba: u64, sectors: u32, data_ns: u64) -> u64 {
        // A drive that leaves the cable before the data starts writing when some are there.
        let at_first = match self.bus.extra_write_disconnect {
            true if sectors < 45 => sectors.min(10),
            true => 15,
            false => 1,
        };
        let ready_ns = |index: u32| data_ns + u64::from((index + 1).max(at_first)) * self.write_sector_ns;
        let mut start_ns = from_ns.max(self.writing_until_ns);
        if appends {
            start_ns = self.writing_until_ns;
        } else {
            let moving_ns = u64::from(self.hdd.plan(start_ns, lba, 1, true).moving_ns);
            start_ns += self.overheads.minimum_write_seek_delay.saturating_sub(moving_ns);
        }
        let (plan, _) = self.hdd.sector_times(start_ns, lba, sectors, true, ready_ns);
        self.hdd.commit(&plan);
        plan.finished_ns
    }
}
