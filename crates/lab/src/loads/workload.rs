//! Workload parameters: pattern, block sizes, read share, depth, jobs, region, seed. Plain data.
//!
//! One type describes every load of the laboratory for any driver: the native one in real or
//! virtual time, and fio. The constants are those of study 004 (`studies/workloads.csv`; a test
//! compares them with that file). Invalid descriptions (no blocks, a region beyond the target) are
//! expected: [`Workload::resolve`] refuses them.

mod places;
mod resolved;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use stripewise_drive::SplitMix64;

pub use resolved::{Choice, JobCursor, ResolvedWorkload};

use self::places::Zipf;

/// Placement of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Each job passes through its own equal part of the region from start to end, then starts
    /// again.
    Sequential,
    /// Uniformly anywhere in the region; places may repeat (fio's `norandommap`).
    Random,
    /// Sequential, but this percentage of requests jumps to a random place, from which the job
    /// continues (IOMeter's "% random").
    Partly(u32),
    /// Each request begins this many bytes after the beginning of the previous one.
    Strided(u64),
    /// Random by Zipf's law with this exponent in hundredths (fio's `zipf:1.2` is 120).
    Zipf(u32),
    /// Random: (percentage of requests, in percentage of the region); the rest anywhere in the
    /// remainder.
    HotSpot(u32, u32),
}

/// Arrival of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// As soon as the previous one is answered.
    #[default]
    Closed,
    /// This many a second over all jobs, evenly; latency counts from the moment a request was due.
    Fixed(f64),
    /// This many a second on average, at random moments (exponential gaps); latency counts from
    /// the moment a request was due.
    Poisson(f64),
    /// At most this many a second over all jobs; latency counts from the moment of the request.
    Limited(f64),
}

/// One entry of a block-size split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockShare {
    /// Length of a request in bytes.
    pub bytes: u64,
    /// Weight among all requests, relative to the other entries (percent if they add up to 100).
    pub share: u32,
}

/// A part of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// First byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
}

/// A load on a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Name in the interface and in results.
    pub name: String,
    /// Placement of requests.
    pub pattern: Pattern,
    /// Lengths of requests and their frequencies.
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
    /// Random seed.
    pub seed: u64,
    /// Arrival of requests.
    #[serde(default, skip_serializing_if = "is_default")]
    pub arrival: Arrival,
    /// Pause of a job's request slot after each answer, microseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub think_us: u64,
    /// Flush after this number of writes of a request slot; 0 never. The flush does not count as a
    /// request in the figures.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flush_every: u32,
    /// Every n-th write of a request slot completes only when it is durable (FUA); 0 none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fua_every: u32,
    /// Discards in place of writes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub discards: bool,
    /// Weighted kinds of requests in place of `blocks`, `read_share` and the share of random places
    /// (IOMeter's access specifications); empty: not used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub accesses: Vec<Access>,
    /// Maximum number of requests, after which the load ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub most_requests: Option<u64>,
    /// Maximum number of requested bytes, after which the load ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub most_bytes: Option<u64>,
}

/// One line of an access specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Weight among all requests, relative to the other lines.
    pub share: u32,
    /// Length of its requests.
    pub bytes: u64,
    /// Percentage of reads.
    pub read_percent: u32,
    /// Percentage of random places; the others follow the previous request.
    pub random_percent: u32,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A workload that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// No block sizes, or none with a weight.
    #[error("workload {name}: its block-size split is empty")]
    NoBlocks {
        /// The workload.
        name: String,
    },
    /// A length that targets cannot accept.
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
        /// The reason.
        why: String,
    },
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

impl Region {
    /// Part of a target of `size_bytes` that a load uses: the requested region cut to the size.
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

    /// True if it ends by itself.
    pub fn is_counted(&self) -> bool {
        self.most_requests.is_some() || self.most_bytes.is_some()
    }

    /// Lengths of requests, from `blocks` or `accesses`.
    pub fn split(&self) -> Vec<BlockShare> {
        match self.accesses.as_slice() {
            [] => self.blocks.clone(),
            lines => lines.iter().map(|line| BlockShare { bytes: line.bytes, share: line.share }).collect(),
        }
    }

    /// One length, one read share (0 to 1), one worker: the parameters that most methods vary.
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
    pub(crate) fn mean_block_bytes(&self) -> f64 {
        let split = self.split();
        let shares: f64 = split.iter().map(|block| f64::from(block.share)).sum();
        split.iter().map(|block| block.bytes as f64 * f64::from(block.share)).sum::<f64>() / shares
    }

    /// The longest request in bytes; 0 for an empty split.
    pub(crate) fn largest_block_bytes(&self) -> u64 {
        self.split().iter().map(|block| block.bytes).max().unwrap_or(0)
    }

    /// Checks the workload against a target of `capacity_bytes` and prepares its random choices.
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
            return Err(bad_region(format!("an alignment of {align_bytes} bytes is not a multiple of 512")));
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
                "its region starts at {}, which is not a multiple of 512",
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
                return bad(format!("{rate} requests a second is not a valid rate"));
            }
            _ => {}
        }
        let percents = self.accesses.iter().flat_map(|line| [line.read_percent, line.random_percent]);
        if let Some(percent) = percents.into_iter().find(|percent| *percent > 100) {
            return bad(format!("{percent} % in an access specification is not a percentage (0–100)"));
        }
        match self.pattern {
            Pattern::Partly(percent) if percent > 100 => bad(format!("{percent} % of requests cannot jump")),
            Pattern::Strided(stride) if stride == 0 || !stride.is_multiple_of(align_bytes) => {
                bad(format!("a stride of {stride} bytes is not a positive multiple of {align_bytes}"))
            }
            Pattern::Zipf(theta) if !(1..=1000).contains(&theta) => {
                bad(format!("the exponent {theta} of Zipf's law, in hundredths, is not from 1 to 1000"))
            }
            Pattern::HotSpot(requests, region) if requests > 100 || !(1..=99).contains(&region) => {
                bad(format!("invalid hot spot: {requests} % of requests in {region} % of the region"))
            }
            _ => Ok(()),
        }
    }
}

impl Pattern {
    /// True if jobs keep a current position.
    pub fn is_sequential(self) -> bool {
        matches!(self, Self::Sequential | Self::Partly(_) | Self::Strided(_))
    }

    /// Label for reports.
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

/// Random numbers of stream number `stream` of `seed`: streams, and seeds, are independent.
pub(crate) fn random_stream(seed: u64, stream: u64) -> SplitMix64 {
    SplitMix64::new(mix(seed ^ mix(stream)))
}

/// Spreads the bits of a number over all 64.
pub(crate) fn mix(value: u64) -> u64 {
    SplitMix64::new(value).next_u64()
}
