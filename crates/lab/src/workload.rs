//! What a load is made of: pattern, block sizes, read share, depth, jobs, region, seed. Plain data.
//!
//! One type describes every load of the laboratory, whichever driver runs it: the native driver in
//! real or virtual time, later fio. The constants are those of study 004 (`studies/workloads.csv`;
//! a test compares them with that file). Expects descriptions that make no sense (no blocks, a
//! region beyond the target): [`Workload::resolve`] refuses them.

mod places;

use std::cell::Cell;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stripewise_drive::SplitMix64;

use self::places::Zipf;

/// Where the next request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Each job goes through its own equal part of the region from start to end and then starts
    /// again.
    Sequential,
    /// Anywhere in the region, each place equally likely, places may repeat (fio's `norandommap`).
    Random,
    /// Sequential, but so many percent of requests jump anywhere and the job goes on from there
    /// (IOMeter's "% random").
    Partly(u32),
    /// Each request begins so many bytes behind the beginning of the one before.
    Strided(u64),
    /// Random by Zipf's law with this exponent in hundredths (fio's `zipf:1.2` is 120).
    Zipf(u32),
    /// Random, (so many percent of requests, in so many percent of the region), the rest anywhere
    /// in the remainder.
    HotSpot(u32, u32),
}

/// When requests are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// As soon as the one before is answered.
    #[default]
    Closed,
    /// So many a second over all jobs, evenly; latency counts from the moment a request was due.
    Fixed(f64),
    /// So many a second on average, at random moments (exponential gaps); latency counts from the
    /// moment it was due.
    Poisson(f64),
    /// At most so many a second over all jobs; latency counts from the moment a request is made.
    Limited(f64),
}

/// One entry of a block-size split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockShare {
    /// Length of a request in bytes.
    pub bytes: u64,
    /// How many of all requests have this length, relative to the other entries (percent when they
    /// add up to 100).
    pub share: u32,
}

/// A part of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// First byte.
    pub offset_bytes: u64,
    /// How many bytes.
    pub length_bytes: u64,
}

/// A load on a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// What people and results call it.
    pub name: String,
    /// Where requests go.
    pub pattern: Pattern,
    /// Lengths of requests and how often each occurs.
    pub blocks: Vec<BlockShare>,
    /// Share of requests that read, from 0 to 1.
    pub read_share: f64,
    /// Requests in flight per job.
    pub depth: u32,
    /// Independent jobs.
    pub jobs: u32,
    /// The part of the target to use; `None` is all of it.
    pub region: Option<Region>,
    /// Offsets of random requests are multiples of this; `None` is the smallest block of the split,
    /// which is what fio does (`blockalign`: a 2 MiB request of the mixed load begins at any
    /// multiple of 4 KiB).
    pub align_bytes: Option<u64>,
    /// Where the random choices start.
    pub seed: u64,
    /// When requests are made.
    #[serde(default, skip_serializing_if = "is_default")]
    pub arrival: Arrival,
    /// Pause of a job's request slot after each answer, microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub think_us: u64,
    /// Flush after so many writes of a request slot; 0 never. The flush is no request of its own in
    /// the figures.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flush_every: u32,
    /// Each so-manieth write of a request slot completes only when it is durable (FUA); 0 none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fua_every: u32,
    /// Discards in place of writes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub discards: bool,
    /// What may be asked for, by weight, in place of `blocks`, `read_share` and the share of random
    /// places (IOMeter's access specifications); empty: those.
    #[serde(default, skip_serializing_if = "is_default")]
    pub accesses: Vec<Access>,
    /// The load ends after so many requests.
    #[serde(default, skip_serializing_if = "is_default")]
    pub most_requests: Option<u64>,
    /// The load ends once so many bytes were asked for.
    #[serde(default, skip_serializing_if = "is_default")]
    pub most_bytes: Option<u64>,
}

/// One line of an access specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// How many of all requests it makes, relative to the other lines.
    pub share: u32,
    /// Length of its requests.
    pub bytes: u64,
    /// So many percent of them read.
    pub read_percent: u32,
    /// So many percent of them go anywhere, the others on from the one before.
    pub random_percent: u32,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A description that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// No block sizes, or none that ever occurs.
    #[error("workload {name}: its block-size split is empty")]
    NoBlocks {
        /// The workload.
        name: String,
    },
    /// A length that targets cannot take.
    #[error("workload {name}: a block of {bytes} bytes is not a positive multiple of 512")]
    BadBlock {
        /// The workload.
        name: String,
        /// The length.
        bytes: u64,
    },
    /// A read share outside 0 to 1.
    #[error("workload {name}: the read share {share} is not between 0 and 1")]
    BadReadShare {
        /// The workload.
        name: String,
        /// The share, as text.
        share: String,
    },
    /// No requests in flight.
    #[error("workload {name}: depth and jobs must be at least 1 and give at most 65536 requests in flight")]
    BadDepth {
        /// The workload.
        name: String,
    },
    /// The region or a job's part of it holds not even one request, or lies beyond the target.
    #[error("workload {name}: {why}")]
    BadRegion {
        /// The workload.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

impl Region {
    /// What of `size_bytes` a load works on that asks for this part of it: as much of it as there
    /// is.
    pub fn within(asked: Option<Self>, size_bytes: u64) -> Self {
        let asked = asked.unwrap_or(Self { offset_bytes: 0, length_bytes: u64::MAX });
        Self { length_bytes: asked.length_bytes.min(size_bytes.saturating_sub(asked.offset_bytes)), ..asked }
    }
}

impl Workload {
    fn uniform(name: &str, pattern: Pattern, block_bytes: u64, read_share: f64, depth: u32) -> Self {
        Self {
            name: name.into(),
            pattern,
            blocks: vec![BlockShare { bytes: block_bytes, share: 100 }],
            read_share,
            depth,
            jobs: 1,
            region: None,
            align_bytes: None,
            seed: 0,
            arrival: Arrival::Closed,
            think_us: 0,
            flush_every: 0,
            fua_every: 0,
            discards: false,
            accesses: Vec::new(),
            most_requests: None,
            most_bytes: None,
        }
    }

    /// Whether it ends by itself.
    pub fn is_counted(&self) -> bool {
        self.most_requests.is_some() || self.most_bytes.is_some()
    }

    /// Lengths of requests, whatever they are given by.
    pub fn split(&self) -> Vec<BlockShare> {
        match self.accesses.as_slice() {
            [] => self.blocks.clone(),
            lines => lines.iter().map(|line| BlockShare { bytes: line.bytes, share: line.share }).collect(),
        }
    }

    /// One length, one read share (0 to 1), one worker: what most methods vary.
    pub fn plain(name: &str, pattern: Pattern, block_bytes: u64, read_share: f64, depth: u32) -> Self {
        Self::uniform(name, pattern, block_bytes, read_share, depth)
    }

    /// SW of study 004: sequential writes of 1 MiB at depth 64.
    pub fn sequential_write() -> Self {
        Self::uniform("seq_write", Pattern::Sequential, MIB, 0.0, 64)
    }

    /// SR of study 004: sequential reads of 1 MiB at depth 64.
    pub fn sequential_read() -> Self {
        Self::uniform("seq_read", Pattern::Sequential, MIB, 1.0, 64)
    }

    /// M of study 004: half reads, half writes, random, 20 % of 4 KiB, 50 % of 64 KiB, 20 % of 256
    /// KiB, 10 % of 2 MiB, by eight jobs at depth 64 each.
    pub fn mixed() -> Self {
        let split = [(4 * KIB, 20), (64 * KIB, 50), (256 * KIB, 20), (2 * MIB, 10)];
        Self {
            blocks: split.map(|(bytes, share)| BlockShare { bytes, share }).to_vec(),
            jobs: 8,
            ..Self::uniform("mixed", Pattern::Random, 4 * KIB, 0.5, 64)
        }
    }

    /// Random reads of 4 KiB at a depth.
    pub fn random_read(depth: u32) -> Self {
        Self::uniform("random_read_4k", Pattern::Random, 4 * KIB, 1.0, depth)
    }

    /// Random writes of 4 KiB at a depth.
    pub fn random_write(depth: u32) -> Self {
        Self::uniform("random_write_4k", Pattern::Random, 4 * KIB, 0.0, depth)
    }

    /// The three loads of study 004 in the order of its tables: SW, SR, M.
    pub fn study_004() -> [Self; 3] {
        [Self::sequential_write(), Self::sequential_read(), Self::mixed()]
    }

    /// The same load with other random choices.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Requests in flight over all jobs.
    pub fn outstanding(&self) -> u64 {
        u64::from(self.depth) * u64::from(self.jobs)
    }

    /// Mean length of a request in bytes.
    pub fn mean_block_bytes(&self) -> f64 {
        let split = self.split();
        let shares: f64 = split.iter().map(|block| f64::from(block.share)).sum();
        split.iter().map(|block| block.bytes as f64 * f64::from(block.share)).sum::<f64>() / shares
    }

    /// The longest request in bytes; 0 for an empty split.
    pub fn largest_block_bytes(&self) -> u64 {
        self.split().iter().map(|block| block.bytes).max().unwrap_or(0)
    }

    /// Checks the description against a target of `capacity_bytes` and works out what the choices
    /// need.
    pub fn resolve(&self, capacity_bytes: u64) -> Result<ResolvedWorkload, WorkloadError> {
        let name = || self.name.clone();
        let used: Vec<BlockShare> = self.split().into_iter().filter(|block| block.share > 0).collect();
        let Some(smallest) = used.iter().map(|block| block.bytes).min() else {
            return Err(WorkloadError::NoBlocks { name: name() });
        };
        if let Some(bad) = used.iter().find(|block| block.bytes == 0 || !block.bytes.is_multiple_of(512)) {
            return Err(WorkloadError::BadBlock { name: name(), bytes: bad.bytes });
        }
        if !(0.0..=1.0).contains(&self.read_share) {
            return Err(WorkloadError::BadReadShare { name: name(), share: self.read_share.to_string() });
        }
        if !(1..=65536).contains(&self.outstanding()) {
            return Err(WorkloadError::BadDepth { name: name() });
        }
        let align_bytes = self.align_bytes.unwrap_or(smallest);
        let bad_region = |why: String| WorkloadError::BadRegion { name: name(), why };
        if align_bytes == 0 || !align_bytes.is_multiple_of(512) {
            return Err(bad_region(format!("an alignment of {align_bytes} bytes is no multiple of 512")));
        }
        let region = self.region.unwrap_or(Region { offset_bytes: 0, length_bytes: capacity_bytes });
        let end = region.offset_bytes.checked_add(region.length_bytes);
        if end.is_none_or(|end| end > capacity_bytes) {
            return Err(bad_region(format!(
                "its region of {} bytes at {} lies beyond the target's {capacity_bytes} bytes",
                region.length_bytes, region.offset_bytes
            )));
        }
        if !region.offset_bytes.is_multiple_of(512) {
            return Err(bad_region(format!(
                "its region starts at {}, no multiple of 512",
                region.offset_bytes
            )));
        }
        let largest = used.iter().map(|block| block.bytes).max().unwrap_or(smallest);
        let in_a_row = self.pattern.is_sequential() || !self.accesses.is_empty();
        let parts = if in_a_row { u64::from(self.jobs) } else { 1 };
        self.check_pattern(align_bytes)?;
        let part_bytes = region.length_bytes / parts / align_bytes * align_bytes;
        if part_bytes < largest {
            return Err(bad_region(format!(
                "{part_bytes} bytes for each job are less than one request of {largest} bytes"
            )));
        }
        let total: u64 = used.iter().map(|block| u64::from(block.share)).sum();
        let mut so_far = 0;
        let blocks = used
            .iter()
            .map(|block| {
                so_far += u64::from(block.share);
                ((so_far << 32) / total, block.bytes)
            })
            .collect();
        Ok(ResolvedWorkload {
            blocks,
            accesses: self.accesses.iter().copied().filter(|line| line.share > 0).collect(),
            read_below: (self.read_share * (1u64 << 32) as f64) as u64,
            pattern: if self.accesses.is_empty() { self.pattern } else { Pattern::Partly(0) },
            zipf: match self.pattern {
                Pattern::Zipf(theta) => {
                    Some(Zipf::new(region.length_bytes / align_bytes, f64::from(theta) / 100.0))
                }
                _ => None,
            },
            align_bytes,
            region,
            part_bytes,
        })
    }

    fn check_pattern(&self, align_bytes: u64) -> Result<(), WorkloadError> {
        let bad = |why: String| Err(WorkloadError::BadRegion { name: self.name.clone(), why });
        let positive = |rate: f64| rate.is_finite() && rate > 0.0;
        match self.arrival {
            Arrival::Fixed(rate) | Arrival::Poisson(rate) | Arrival::Limited(rate) if !positive(rate) => {
                return bad(format!("{rate} requests a second is no rate"));
            }
            _ => {}
        }
        let percents = self.accesses.iter().flat_map(|line| [line.read_percent, line.random_percent]);
        if let Some(percent) = percents.into_iter().find(|percent| *percent > 100) {
            return bad(format!("{percent} % in an access specification"));
        }
        match self.pattern {
            Pattern::Partly(percent) if percent > 100 => bad(format!("{percent} % of requests cannot jump")),
            Pattern::Strided(stride) if stride == 0 || !stride.is_multiple_of(align_bytes) => {
                bad(format!("a stride of {stride} bytes is no positive multiple of {align_bytes}"))
            }
            Pattern::Zipf(theta) if !(1..=1000).contains(&theta) => {
                bad(format!("the exponent {theta} of Zipf's law, in hundredths, is not from 1 to 1000"))
            }
            Pattern::HotSpot(requests, region) if requests > 100 || !(1..=99).contains(&region) => bad(
                format!("a hot spot of {requests} % of requests in {region} % of the region makes no sense"),
            ),
            _ => Ok(()),
        }
    }
}

impl Pattern {
    /// Whether a job has a place that it goes on from.
    pub fn is_sequential(self) -> bool {
        matches!(self, Self::Sequential | Self::Partly(_) | Self::Strided(_))
    }

    /// In words.
    pub fn text(self) -> String {
        match self {
            Self::Sequential => "sequential".into(),
            Self::Random => "random".into(),
            Self::Partly(percent) => format!("{percent} % random"),
            Self::Strided(stride) => format!("strided by {stride}"),
            Self::Zipf(theta) => format!("zipf {:.2}", f64::from(theta) / 100.0),
            Self::HotSpot(requests, region) => format!("{requests} % in {region} %"),
        }
    }
}

/// One request to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Read or write.
    pub is_read: bool,
    /// Where, in bytes from the target's start.
    pub offset_bytes: u64,
    /// How much, in bytes.
    pub length_bytes: u64,
}

/// A workload checked against a target.
#[derive(Clone, Debug)]
pub struct ResolvedWorkload {
    /// (upper bound of a 32-bit random number, length): the first entry whose bound is above the
    /// number is taken.
    blocks: Vec<(u64, u64)>,
    /// In place of read share and pattern, one for each of `blocks`; or none at all.
    accesses: Vec<Access>,
    read_below: u64,
    pattern: Pattern,
    zipf: Option<Zipf>,
    align_bytes: u64,
    region: Region,
    part_bytes: u64,
}

/// The place a sequential job has reached; shared by the tasks that keep its depth.
#[derive(Clone)]
pub struct JobCursor(Rc<Cell<u64>>);

impl ResolvedWorkload {
    /// Where job number `job` starts.
    pub fn cursor(&self, job: u32) -> JobCursor {
        JobCursor(Rc::new(Cell::new(self.part_start(job))))
    }

    fn part_start(&self, job: u32) -> u64 {
        match self.pattern.is_sequential() {
            true => self.region.offset_bytes + u64::from(job) * self.part_bytes,
            false => self.region.offset_bytes,
        }
    }

    /// The next request of `job`, whose place is `cursor`.
    pub fn choose(&self, random: &mut SplitMix64, job: u32, cursor: &JobCursor) -> Choice {
        let dice = random.next_u64();
        let (low, high) = (dice & 0xffff_ffff, dice >> 32);
        let line = match self.blocks.as_slice() {
            [_] => 0,
            blocks => blocks.iter().position(|(bound, _)| low < *bound).unwrap_or(0),
        };
        let length_bytes = self.blocks[line].1;
        let (read_below, pattern) = match self.accesses.get(line) {
            None => (self.read_below, self.pattern),
            Some(line) => ((u64::from(line.read_percent) << 32) / 100, Pattern::Partly(line.random_percent)),
        };
        let is_read = high < read_below;
        let places = (self.region.length_bytes - length_bytes) / self.align_bytes + 1;
        let at_place = |place: u64| self.region.offset_bytes + place * self.align_bytes;
        let offset_bytes = match pattern {
            Pattern::Sequential => self.go_on(job, cursor, length_bytes, length_bytes),
            Pattern::Strided(stride) => self.go_on(job, cursor, length_bytes, stride),
            Pattern::Partly(percent) if random.below(100) < u64::from(percent) => {
                let own = (self.part_bytes - length_bytes) / self.align_bytes + 1;
                let at = self.part_start(job) + random.below(own) * self.align_bytes;
                cursor.0.set(at + length_bytes);
                at
            }
            Pattern::Partly(_) => self.go_on(job, cursor, length_bytes, length_bytes),
            Pattern::Random => at_place(random.below(places)),
            Pattern::Zipf(_) => {
                let zipf = self.zipf.as_ref().expect("made with the pattern");
                at_place(zipf.place(random, places))
            }
            Pattern::HotSpot(requests, region) => {
                let hot = (places * u64::from(region) / 100).clamp(1, places);
                if places == hot || random.below(100) < u64::from(requests) {
                    at_place(random.below(hot))
                } else {
                    at_place(hot + random.below(places - hot))
                }
            }
        };
        Choice { is_read, offset_bytes, length_bytes }
    }

    /// The job's place, which then moves by `step`; from the end of its part back to the start.
    fn go_on(&self, job: u32, cursor: &JobCursor, length_bytes: u64, step: u64) -> u64 {
        let start = self.part_start(job);
        let at = cursor.0.get();
        let at = if at + length_bytes > start + self.part_bytes { start } else { at };
        cursor.0.set(at + step);
        at
    }
}

/// The random numbers number `stream` of `seed`: streams of one seed, and seeds, have nothing to do
/// with each other.
pub fn random_stream(seed: u64, stream: u64) -> SplitMix64 {
    SplitMix64::new(mix(seed ^ mix(stream)))
}

/// Spreads the bits of a number over all 64.
pub(crate) fn mix(value: u64) -> u64 {
    SplitMix64::new(value).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// The rows of a comma-separated file, quotes resolved.
    fn rows(text: &str) -> Vec<Vec<String>> {
        let row = |line: &str| {
            let (mut fields, mut quoted) = (vec![String::new()], false);
            for character in line.chars() {
                match character {
                    '"' => quoted = !quoted,
                    ',' if !quoted => fields.push(String::new()),
                    other => fields.last_mut().expect("never empty").push(other),
                }
            }
            fields
        };
        text.lines().map(row).collect()
    }

    fn bytes(text: &str) -> u64 {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = match &text[digits.len()..] {
            "k" => KIB,
            "M" => MIB,
            other => panic!("unit {other:?}"),
        };
        digits.parse::<u64>().unwrap() * unit
    }

    #[test]
    fn the_constants_are_those_of_study_004() {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/workloads.csv"))
                .expect("studies/workloads.csv");
        let rows = rows(&text);
        let column =
            |name: &str| rows[0].iter().position(|head| head == name).expect("a column of that name");
        let find =
            |id: &str| rows.iter().find(|row| row[column("workload_id")] == id).expect("a row of that id");
        let ours = Workload::study_004();
        for (workload, id, read_share) in
            [(&ours[0], "004-seqwrite", 0.0), (&ours[1], "004-seqread", 1.0), (&ours[2], "004-mixed", 0.5)]
        {
            let row = find(id);
            assert_eq!(row[column("queue_depth")], workload.depth.to_string(), "{id}");
            assert_eq!(row[column("workers_threads")], format!("numjobs {}, thread", workload.jobs), "{id}");
            assert_eq!(workload.read_share, read_share, "{id}");
            let (pattern, split) = (&row[column("pattern")], &row[column("block_size")]);
            match workload.pattern {
                Pattern::Sequential => {
                    assert_eq!(pattern, if read_share == 0.0 { "write" } else { "read" });
                    assert_eq!(workload.blocks, [BlockShare { bytes: bytes(split), share: 100 }], "{id}");
                }
                _ => {
                    assert!(
                        pattern.starts_with("randrw (rwmixread not set, so fio's default 50)"),
                        "{pattern}"
                    );
                    let split = split.strip_prefix("bssplit ").expect("a split");
                    let parts: Vec<BlockShare> = split
                        .split(':')
                        .map(|part| part.split_once('/').expect("size/share"))
                        .map(|(size, share)| BlockShare { bytes: bytes(size), share: share.parse().unwrap() })
                        .collect();
                    assert_eq!(workload.blocks, parts, "{id}");
                    assert!(row[column("other_parameters")].contains("--norandommap"));
                    let mean_kib = format!("mean request {:.1} KiB", workload.mean_block_bytes() / 1024.0);
                    assert!(row[column("other_parameters")].contains(&mean_kib), "{mean_kib}");
                }
            }
        }
    }

    #[test]
    fn random_choices_follow_the_split_and_stay_inside() {
        let region = Region { offset_bytes: 8 * MIB, length_bytes: 64 * MIB + 512 };
        let workload = Workload { region: Some(region), ..Workload::mixed() };
        let resolved = workload.resolve(1 << 30).unwrap();
        let mut random = random_stream(7, 0);
        let cursor = resolved.cursor(0);
        let mut lengths: HashMap<u64, u32> = HashMap::new();
        let (mut reads, mut unaligned_large, count) = (0, 0, 100_000);
        let (mut lowest, mut highest) = (u64::MAX, 0);
        for _ in 0..count {
            let choice = resolved.choose(&mut random, 0, &cursor);
            *lengths.entry(choice.length_bytes).or_default() += 1;
            reads += u32::from(choice.is_read);
            assert!(choice.offset_bytes.is_multiple_of(4096));
            assert!(choice.offset_bytes >= region.offset_bytes);
            assert!(choice.offset_bytes + choice.length_bytes <= region.offset_bytes + region.length_bytes);
            unaligned_large +=
                u32::from(choice.length_bytes == 2 * MIB && !choice.offset_bytes.is_multiple_of(2 * MIB));
            lowest = lowest.min(choice.offset_bytes);
            highest = highest.max(choice.offset_bytes + choice.length_bytes);
        }
        for block in &workload.blocks {
            let percent = 100.0 * f64::from(lengths[&block.bytes]) / f64::from(count);
            assert!((percent - f64::from(block.share)).abs() < 1.0, "{} bytes: {percent} %", block.bytes);
        }
        assert!((f64::from(reads) / f64::from(count) - 0.5).abs() < 0.01, "{reads} reads");
        assert!(unaligned_large > 9000, "as fio, large requests start at multiples of the smallest block");
        assert!(
            lowest < region.offset_bytes + MIB && highest > region.offset_bytes + region.length_bytes - MIB
        );
    }

    #[test]
    fn sequential_jobs_walk_their_own_part_and_wrap() {
        let region = Region { offset_bytes: MIB, length_bytes: 7 * MIB };
        let workload = Workload { jobs: 2, region: Some(region), ..Workload::sequential_write() };
        let resolved = workload.resolve(8 * MIB).unwrap();
        let mut random = random_stream(0, 0);
        for (job, expected) in [(0, [1, 2, 3, 1, 2]), (1, [4, 5, 6, 4, 5])] {
            let cursor = resolved.cursor(job);
            let offsets: Vec<u64> =
                (0..5).map(|_| resolved.choose(&mut random, job, &cursor).offset_bytes / MIB).collect();
            assert_eq!(offsets, expected, "job {job}");
            assert!((0..10).all(|_| !resolved.choose(&mut random, job, &cursor).is_read));
        }
    }

    #[test]
    fn patterns_go_where_they_say() {
        let offsets = |pattern: Pattern, count: usize| -> Vec<u64> {
            let workload = Workload::plain("p", pattern, 4096, 1.0, 1);
            let resolved = workload.resolve(100 * 4096).unwrap();
            let (mut random, cursor) = (random_stream(1, 1), resolved.cursor(0));
            (0..count).map(|_| resolved.choose(&mut random, 0, &cursor).offset_bytes / 4096).collect()
        };
        assert_eq!(offsets(Pattern::Strided(40 * 4096), 5), [0, 40, 80, 0, 40]);
        assert_eq!(offsets(Pattern::Partly(0), 4), [0, 1, 2, 3]);
        let partly = offsets(Pattern::Partly(20), 10_000);
        let jumps = partly.windows(2).filter(|pair| pair[1] != (pair[0] + 1) % 100).count();
        assert!((1700..2200).contains(&jumps), "{jumps}");
        let hot = offsets(Pattern::HotSpot(90, 10), 10_000).iter().filter(|place| **place < 10).count();
        assert!((8800..9200).contains(&hot), "{hot}");
        let mut seen = vec![0; 100];
        offsets(Pattern::Zipf(120), 10_000).iter().for_each(|place| seen[*place as usize] += 1);
        assert!(*seen.iter().max().unwrap() > 1500, "{seen:?}");
        for bad in [Pattern::Partly(101), Pattern::Strided(100), Pattern::Zipf(0), Pattern::HotSpot(50, 100)]
        {
            assert!(Workload::plain("p", bad, 4096, 1.0, 1).resolve(1 << 20).is_err(), "{bad:?}");
        }
        let nan = Workload { arrival: Arrival::Poisson(f64::NAN), ..Workload::random_read(1) };
        assert!(nan.resolve(1 << 20).is_err());
    }

    #[test]
    fn access_specifications_mix_as_they_say() {
        let line = |share, bytes, read_percent, random_percent| Access {
            share,
            bytes,
            read_percent,
            random_percent,
        };
        let accesses = vec![line(75, 4096, 100, 100), line(25, 65536, 0, 0)];
        let workload = Workload { accesses, ..Workload::plain("a", Pattern::Random, 512, 0.5, 1) };
        let resolved = workload.resolve(64 << 20).unwrap();
        let (mut random, cursor) = (random_stream(1, 1), resolved.cursor(0));
        let all: Vec<Choice> = (0..10_000).map(|_| resolved.choose(&mut random, 0, &cursor)).collect();
        let small = all.iter().filter(|choice| choice.length_bytes == 4096).count();
        assert!((7300..7700).contains(&small), "{small}");
        assert!(all.iter().all(|choice| choice.is_read == (choice.length_bytes == 4096)));
        let in_a_row = all.windows(2).filter(|two| {
            !two[1].is_read && two[1].offset_bytes == two[0].offset_bytes + two[0].length_bytes
        });
        let large = all.len() - small;
        assert!(in_a_row.count() + 3 >= large, "large ones go on from the one before: {large}");
        let wrong = Workload { accesses: vec![line(1, 4096, 101, 0)], ..workload };
        assert!(wrong.resolve(64 << 20).is_err());
    }

    #[test]
    fn extremes_of_the_read_share_are_exact() {
        let (all, none) = (Workload::random_read(1), Workload::random_write(1));
        for (workload, expected) in [(all, true), (none, false)] {
            let resolved = workload.resolve(1 << 20).unwrap();
            let mut random = random_stream(3, 3);
            let cursor = resolved.cursor(0);
            assert!((0..10_000).all(|_| resolved.choose(&mut random, 0, &cursor).is_read == expected));
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        let good = Workload::mixed();
        let capacity = 1 << 30;
        let refused = |change: fn(&mut Workload), part: &str| {
            let mut workload = good.clone();
            change(&mut workload);
            let message = workload.resolve(capacity).expect_err(part).to_string();
            assert!(message.contains(part) && message.contains("mixed"), "{message}");
        };
        refused(|w| w.blocks.clear(), "split is empty");
        refused(|w| w.blocks.iter_mut().for_each(|b| b.share = 0), "split is empty");
        refused(|w| w.blocks[0].bytes = 1000, "1000 bytes");
        refused(|w| w.read_share = 1.5, "1.5");
        refused(|w| w.read_share = f64::NAN, "NaN");
        refused(|w| w.depth = 0, "at least 1");
        refused(|w| w.jobs = 100_000, "at most 65536");
        refused(|w| w.region = Some(Region { offset_bytes: u64::MAX, length_bytes: 1 }), "beyond");
        refused(|w| w.region = Some(Region { offset_bytes: 100, length_bytes: 4 << 20 }), "multiple of 512");
        refused(
            |w| w.region = Some(Region { offset_bytes: 0, length_bytes: 1 << 20 }),
            "less than one request",
        );
        refused(|w| w.align_bytes = Some(0), "alignment");
        assert!(good.resolve(capacity).is_ok());
    }
}
