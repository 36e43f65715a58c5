//! Predicts the performance of a system under a workload, and its bottleneck.
//!
//! [`predict`] is the one call. Hard disks are simulated request by request one after the other;
//! solid-state drives behind a controller are a closed network of stations; an enclosure that moves
//! every byte itself is its processor.

mod chart;
mod enclosure;
mod plan;
mod positioned;
mod station;

use serde::{Deserialize, Serialize};

use crate::system::{ComponentKind, System};

pub use chart::depth_chart;
pub use enclosure::{Bonnie, PostMark};

pub(crate) const SEED: u64 = 20_260_301;

/// State of the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All drives present.
    #[default]
    Normal,
    /// One drive missing.
    Degraded,
    /// Its replacement is being rebuilt.
    Rebuilding,
}

/// A closed load: a constant number of outstanding requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Share of requests that read, 0 to 1.
    pub read_share: f64,
    /// Share of requests at random places, 0 to 1; the others follow each other.
    pub random_share: f64,
    /// Sizes in bytes with their weights.
    pub blocks: Vec<(u64, f64)>,
    /// Outstanding requests of each worker.
    pub depth: usize,
    /// Workers; each has its own sequential stream.
    pub workers: usize,
    /// Bytes used from the start; all if omitted.
    pub span_bytes: Option<u64>,
    /// True if short runs repeat the same random offsets, as where the tool's generator has one
    /// seed.
    #[serde(default)]
    pub repeats: bool,
}

impl Workload {
    /// One size, one worker.
    pub fn simple(read: bool, random: bool, block_bytes: u64, depth: usize) -> Self {
        Self {
            read_share: if read { 1.0 } else { 0.0 },
            random_share: if random { 1.0 } else { 0.0 },
            blocks: vec![(block_bytes, 1.0)],
            depth,
            workers: 1,
            span_bytes: None,
            repeats: false,
        }
    }

    /// Requests outstanding in all.
    pub fn outstanding(&self) -> usize {
        (self.depth * self.workers).max(1)
    }

    /// Mean size of a request.
    pub fn mean_bytes(&self) -> f64 {
        let weight: f64 = self.blocks.iter().map(|(_, weight)| weight).sum();
        self.blocks.iter().map(|(bytes, weight)| *bytes as f64 * weight).sum::<f64>() / weight
    }
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The longest of the run.
    pub max: f64,
}

impl Latency {
    /// A mean of `n` services after one another, each as variable as its mean.
    fn of_mean(mean: f64, outstanding: f64) -> Self {
        let spread = mean / outstanding.max(1.0).sqrt() * if outstanding > 1.0 { 1.0 } else { 0.25 };
        let at = |deviations: f64| mean + deviations * spread;
        Self { mean, p50: mean, p99: at(2.33), p999: at(3.09), max: at(3.9) }
    }
}

/// A component and the maximum requests a second it sustains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Name of the component.
    pub part: String,
    /// Rate that the component could sustain.
    pub iops: f64,
}

/// Predicted performance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// 10^6 bytes a second, reads and writes together.
    pub mb_per_s: f64,
    /// Requests a second.
    pub iops: f64,
    /// Latency of whole requests.
    pub latency_us: Latency,
    /// The limiting component.
    pub bottleneck: String,
    /// Rate of the next limiting component, as a multiple of the predicted rate.
    pub headroom: f64,
    /// Every part's limit, the tightest first.
    pub limits: Vec<Limit>,
    /// Utilisation of the busiest drive.
    pub drive_utilisation: f64,
    /// Utilisation of each drive; zero for a missing one.
    pub drives_busy: Vec<f64>,
    /// Share of one processor: the controller's or enclosure's where its work is known, otherwise
    /// of one of the host's cores, which may be more than one.
    pub processor_utilisation: f64,
    /// Seconds to rebuild one drive without load; `None` without redundancy.
    pub rebuild_seconds: Option<f64>,
    /// The same under this load.
    pub rebuild_under_load_seconds: Option<f64>,
}

impl Prediction {
    /// From the parts' limits and the latency of a request that is alone.
    fn of_limits(
        system: &System,
        workload: &Workload,
        alone_us: f64,
        mut limits: Vec<Limit>,
        drives_iops: f64,
    ) -> Self {
        limits.sort_by(|one, other| one.iops.total_cmp(&other.iops));
        let outstanding = workload.outstanding() as f64;
        let offered = outstanding / alone_us * 1e6;
        let tightest = limits.first().map_or(f64::INFINITY, |limit| limit.iops);
        let iops = offered.min(tightest);
        let (bottleneck, headroom) = if offered <= tightest {
            ("outstanding requests".to_owned(), tightest / offered)
        } else {
            let next = limits.get(1).map_or(offered, |limit| limit.iops).min(offered);
            (limits[0].part.clone(), next / iops)
        };
        let drive_utilisation = (iops / drives_iops).min(1.0);
        Self {
            mb_per_s: iops * workload.mean_bytes() / 1e6,
            iops,
            latency_us: Latency::of_mean(outstanding / iops * 1e6, outstanding),
            bottleneck,
            headroom,
            processor_utilisation: processor(system, workload, iops, &limits),
            limits,
            drive_utilisation,
            drives_busy: vec![drive_utilisation; system.drives],
            rebuild_seconds: None,
            rebuild_under_load_seconds: None,
        }
    }
}

/// Parts that are processors, by the names of their limits.
const PROCESSORS: [&str; 3] = ["controller", "enclosure's processor", PROCESSOR];
/// Name of the host's cores that software RAID runs on, where what it takes of them was measured.
const PROCESSOR: &str = "processor";
/// Host processor time of a request and its completion, where nothing was measured.
const HOST_REQUEST_US: f64 = 5.0;

/// Share of one processor: of the part that is one, or of the host.
fn processor(system: &System, workload: &Workload, iops: f64, limits: &[Limit]) -> f64 {
    let part = limits.iter().find(|limit| PROCESSORS.contains(&limit.part.as_str()));
    match part {
        Some(limit) => (iops / limit.iops).min(1.0),
        None => iops * HOST_REQUEST_US / 1e6 + software_processor(system, workload, iops),
    }
}

/// Share of one of the host's processors that software RAID takes on top of plain drives: its
/// mapping of requests, and the parity of what is written.
pub(crate) fn software_processor(system: &System, workload: &Workload, iops: f64) -> f64 {
    if !system.is_software() {
        return 0.0;
    }
    let written = (1.0 - workload.read_share) * workload.mean_bytes() * system.shape.parity_units() as f64;
    let (request, byte) =
        (system.controller.or("software_request", 1.0), system.controller.or("software_byte", 0.2));
    iops * (request / 1e6 + written * byte / 1e9)
}

/// Requests a second that the cores of software RAID can serve, where its cost per request was
/// measured.
fn processor_limit(system: &System, workload: &Workload) -> Option<Limit> {
    let parts = &system.controller;
    let cores = parts.get("cores")?;
    let redundant = (system.shape.parity_units() + system.shape.copies() - 1) as f64;
    let us = |request: &str, byte: &str| {
        parts.or(request, 0.0) + workload.mean_bytes() * parts.or(byte, 0.0) / 1e3
    };
    let read = us("core_read", "core_read_byte");
    let write = us("core_write", "core_write_byte") + redundant * parts.or("core_redundancy", 0.0);
    let mean_us = workload.read_share * read + (1.0 - workload.read_share) * write;
    (mean_us > 0.0).then(|| Limit { part: PROCESSOR.to_owned(), iops: cores * 1e6 / mean_us })
}

/// Predicts one system under one load.
pub fn predict(system: &System, state: State, workload: &Workload) -> Prediction {
    predict_seeded(system, state, workload, SEED)
}

/// The same with random choices of one's own.
pub(crate) fn predict_seeded(system: &System, state: State, workload: &Workload, seed: u64) -> Prediction {
    predict_roughly(system, state, workload, seed, 1.0)
}

/// Predicts with a multiple of the usual number of simulated requests, for surveys.
pub fn predict_roughly(
    system: &System,
    state: State,
    workload: &Workload,
    seed: u64,
    effort: f64,
) -> Prediction {
    let mut prediction = match system.drive.kind {
        ComponentKind::Ssd => station::predict(system, state, workload),
        _ if system.controller.kind == ComponentKind::Enclosure => enclosure::predict(system, workload),
        _ => positioned::predict(system, state, workload, positioned::Run { seed, effort }),
    };
    prediction.drives_busy.resize(system.drives, 0.0);
    if state != State::Normal {
        prediction.drives_busy[0] = 0.0;
    }
    prediction
}
