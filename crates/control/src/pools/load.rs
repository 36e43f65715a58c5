//! What a pool's drives and volumes were asked in a time, from what the process that has the pool
//! open counts. Pure.
//!
//! Expected faults: a process that begins to count again, volumes made again under their names.

use serde::Serialize;
use stripewise_engine::pool::LATENCY_STEPS_NS;

use crate::messages::report::DriveState;
use crate::pools::status_file::{CauseLoad, DriveLoad, StatusFile, VolumeRequests};

/// What a pool's drives and volumes were asked.
#[derive(Serialize)]
pub struct Load {
    /// The pool.
    pub pool: String,
    /// Whether a process has the pool open; else nothing runs.
    pub running: bool,
    /// One or more, unless the process that had the pool open ended before.
    pub intervals: Vec<Interval>,
    /// People are shown also what the requests to drives were for.
    #[serde(skip)]
    pub shows_causes: bool,
    /// People were shown each interval at its end.
    #[serde(skip)]
    pub is_told: bool,
}

/// What was asked in a time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// How long; 0 where no process has the pool open.
    pub seconds: f64,
    /// Every drive of the pool.
    pub drives: Vec<DriveRates>,
    /// Kinds of requests that there were any of.
    pub volumes: Vec<VolumeRates>,
}

/// Requests of one kind to a volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeRates {
    /// The volume.
    pub volume: String,
    /// `read`, `write`, `flush`, `discard` or `write_zeroes`.
    pub operation: String,
    /// How many.
    pub requests: u64,
    /// The same per second.
    pub requests_per_s: f64,
    /// What they were for.
    pub bytes: u64,
    /// The same per second.
    pub mb_per_s: f64,
    /// Those that failed.
    pub failed: u64,
    /// How long they took, microseconds.
    pub latency_us: Latencies,
}

/// Of requests that succeeded. Latencies are counted in steps: so many took no longer than this;
/// `null`: longer than the last step, or there were none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// On average.
    pub mean: f64,
    /// Half of them.
    pub p50_at_most: Option<f64>,
    /// 99 % of them.
    pub p99_at_most: Option<f64>,
    /// 99.9 % of them.
    pub p999_at_most: Option<f64>,
}

/// What a drive was asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriveRates {
    /// Its identity.
    pub id: String,
    /// Where it is.
    pub path: String,
    /// What it is for.
    pub role: String,
    /// How it is.
    pub state: DriveState,
    /// How many.
    pub requests: u64,
    /// The same per second.
    pub requests_per_s: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// The same per second.
    pub read_mb_per_s: f64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The same per second.
    pub write_mb_per_s: f64,
    /// Share of the time in which it served requests.
    pub busy_percent: f64,
    /// Requests that wait or are being served at this moment.
    pub queued: usize,
    /// What the requests were for; causes that there were any of.
    pub causes: Vec<CauseRates>,
}

/// What a drive was asked for one cause. A position is a request that did not begin where the one
/// before it on the drive ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseRates {
    /// The cause's name in JSON.
    pub cause: String,
    /// How many.
    pub requests: u64,
    /// What they were for.
    pub bytes: u64,
    /// Requests that did not begin where the one before on the drive ended.
    pub positions: u64,
    /// The same per second.
    pub positions_per_s: f64,
}

/// What was asked since the pool was opened.
pub fn since_opening(word: &StatusFile) -> Interval {
    let seconds = word.unix_ms.saturating_sub(word.opened_unix_ms) as f64 / 1e3;
    Interval {
        seconds,
        drives: word.drives.iter().map(|drive| rates(drive, None, seconds)).collect(),
        volumes: word.volumes.iter().filter_map(|volume| volume_rates(volume, None, seconds)).collect(),
    }
}

/// What was asked between two looks.
pub fn between(before: &StatusFile, now: &StatusFile) -> Interval {
    if before.opened_unix_ms != now.opened_unix_ms {
        return since_opening(now);
    }
    let seconds = now.unix_ms.saturating_sub(before.unix_ms) as f64 / 1e3;
    let earlier = |drive: &DriveLoad| before.drives.iter().find(|other| other.id == drive.id);
    let earlier_of = |volume: &VolumeRequests| {
        let is_it =
            |other: &&VolumeRequests| other.volume == volume.volume && other.operation == volume.operation;
        before.volumes.iter().find(is_it)
    };
    Interval {
        seconds,
        drives: now.drives.iter().map(|drive| rates(drive, earlier(drive), seconds)).collect(),
        volumes: now
            .volumes
            .iter()
            .filter_map(|volume| volume_rates(volume, earlier_of(volume), seconds))
            .collect(),
    }
}

/// What a drive was asked since an earlier look, or at all.
pub fn rates(now: &DriveLoad, before: Option<&DriveLoad>, seconds: f64) -> DriveRates {
    let since = |of: fn(&DriveLoad) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let (requests, read, written) =
        (since(|load| load.requests), since(|load| load.read_bytes), since(|load| load.written_bytes));
    DriveRates {
        id: now.id.clone(),
        path: now.path.clone(),
        role: now.role.clone(),
        state: now.state,
        requests,
        requests_per_s: per_s(requests),
        read_bytes: read,
        read_mb_per_s: per_s(read) / 1e6,
        written_bytes: written,
        write_mb_per_s: per_s(written) / 1e6,
        busy_percent: (per_s(since(|load| load.busy_ns)) / 1e7).min(100.0),
        queued: now.queued,
        causes: now.causes.iter().filter_map(|cause| cause_rates(cause, before, seconds)).collect(),
    }
}

/// `None` where there were none since.
fn cause_rates(now: &CauseLoad, before: Option<&DriveLoad>, seconds: f64) -> Option<CauseRates> {
    let earlier = before.and_then(|before| before.causes.iter().find(|earlier| earlier.cause == now.cause));
    let since = |of: fn(&CauseLoad) -> u64| of(now).saturating_sub(earlier.map_or(0, of));
    let (requests, positions) = (since(|load| load.requests), since(|load| load.positions));
    (requests > 0).then(|| CauseRates {
        cause: now.cause.clone(),
        requests,
        bytes: since(|load| load.bytes),
        positions,
        positions_per_s: if seconds > 0.0 { positions as f64 / seconds } else { 0.0 },
    })
}

/// `None` where there were none. A volume that was made again under its name counts from its
/// beginning.
fn volume_rates(now: &VolumeRequests, before: Option<&VolumeRequests>, seconds: f64) -> Option<VolumeRates> {
    let before = before.filter(|before| before.total_ns <= now.total_ns && before.failed <= now.failed);
    let since = |of: fn(&VolumeRequests) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let earlier = |step: usize| before.and_then(|before| before.by_latency.get(step)).copied().unwrap_or(0);
    let counts: Vec<u64> =
        now.by_latency.iter().enumerate().map(|(step, count)| count.saturating_sub(earlier(step))).collect();
    let (requests, failed) = (counts.iter().sum::<u64>(), since(|volume| volume.failed));
    let (bytes, total_ns) = (since(|volume| volume.bytes), since(|volume| volume.total_ns));
    let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    (requests + failed > 0).then(|| VolumeRates {
        volume: now.volume.clone(),
        operation: now.operation.clone(),
        requests,
        requests_per_s: per_s(requests),
        bytes,
        mb_per_s: per_s(bytes) / 1e6,
        failed,
        latency_us: Latencies {
            mean: total_ns as f64 / 1e3 / requests.max(1) as f64,
            p50_at_most: at_most(&counts, 0.5),
            p99_at_most: at_most(&counts, 0.99),
            p999_at_most: at_most(&counts, 0.999),
        },
    })
}

/// The end of the step that has this part of the requests below it, microseconds.
fn at_most(counts: &[u64], part: f64) -> Option<f64> {
    let wanted = (counts.iter().sum::<u64>() as f64 * part).ceil() as u64;
    if wanted == 0 {
        return None;
    }
    let mut so_far = 0;
    let step = counts.iter().position(|count| {
        so_far += count;
        so_far >= wanted
    });
    LATENCY_STEPS_NS.get(step?).map(|&end_ns| end_ns as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_cover_only_the_interval() {
        let load = |requests, read_bytes, busy_ns| DriveLoad {
            requests,
            read_bytes,
            busy_ns,
            queued: 3,
            ..DriveLoad::default()
        };
        let found = rates(&load(30, 7_000_000, 1_500_000_000), Some(&load(10, 1_000_000, 500_000_000)), 2.0);
        assert_eq!((found.requests, found.requests_per_s), (20, 10.0));
        assert_eq!((found.read_mb_per_s, found.write_mb_per_s), (3.0, 0.0));
        assert_eq!((found.busy_percent, found.queued), (50.0, 3));
        assert_eq!(rates(&load(5, 0, 0), None, 0.0).requests_per_s, 0.0);
    }

    #[test]
    fn causes_cover_only_the_interval() {
        let load = |journal, map| {
            let of = |cause: &str, positions| CauseLoad {
                cause: cause.to_owned(),
                requests: 2 * positions,
                bytes: 4096 * positions,
                positions,
            };
            DriveLoad { causes: vec![of("journal", journal), of("region_map", map)], ..DriveLoad::default() }
        };
        let found = rates(&load(30, 7), Some(&load(10, 7)), 2.0).causes;
        let journal = CauseRates {
            cause: "journal".into(),
            requests: 40,
            bytes: 81920,
            positions: 20,
            positions_per_s: 10.0,
        };
        assert_eq!(found, [journal]);
    }

    #[test]
    fn latencies_cover_only_the_interval() {
        let load = |counts: [u64; 3], total_ns| {
            let mut by_latency = vec![0; LATENCY_STEPS_NS.len() + 1];
            by_latency[..2].copy_from_slice(&counts[..2]);
            by_latency[LATENCY_STEPS_NS.len()] = counts[2];
            VolumeRequests { by_latency, total_ns, bytes: 8192, ..VolumeRequests::default() }
        };
        let before = load([100, 0, 0], 500_000);
        let found = volume_rates(&load([150, 49, 1], 2_500_000), Some(&before), 2.0).expect("some");
        assert_eq!((found.requests, found.requests_per_s, found.bytes), (100, 50.0, 0));
        let latencies =
            Latencies { mean: 20.0, p50_at_most: Some(10.0), p99_at_most: Some(20.0), p999_at_most: None };
        assert_eq!(found.latency_us, latencies);
        assert_eq!(volume_rates(&before, Some(&before), 1.0), None);
        assert_eq!(
            volume_rates(&before, Some(&load([150, 0, 0], 600_000)), 1.0).map(|rates| rates.requests),
            Some(100)
        );
    }
}
