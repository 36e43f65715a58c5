//! I/O load of a pool's drives and volumes per interval, from the counters in status files. Pure.
//!
//! Expected faults: counters that restart with the process, volumes recreated under an old name.

use serde::Serialize;
use stripewise_pool::LATENCY_STEPS_NS;
use utoipa::ToSchema;

use crate::messages::report::DriveState;
use crate::pools::status_file::{CauseLoad, DriveLoad, StatusFile, VolumeRequests};

/// I/O load of a pool.
#[derive(Serialize, ToSchema)]
pub struct Load {
    /// Pool name.
    pub pool: String,
    /// True if a process has the pool open.
    pub running: bool,
    /// One or more, unless the process that had the pool open exited first.
    pub intervals: Vec<Interval>,
    /// True if text output includes the causes of drive requests.
    #[serde(skip)]
    pub shows_causes: bool,
    /// True if text output has already shown each interval at its end.
    #[serde(skip)]
    pub is_told: bool,
}

/// I/O load in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Interval {
    /// Length of the interval; 0 if no process has the pool open.
    pub seconds: f64,
    /// Load of every drive of the pool.
    pub drives: Vec<DriveRates>,
    /// Load of volumes, by kind of request; kinds without requests are omitted.
    pub volumes: Vec<VolumeRates>,
}

/// Requests of one kind to a volume.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct VolumeRates {
    /// Volume name.
    pub volume: String,
    /// `read`, `write`, `flush`, `discard` or `write_zeroes`.
    pub operation: String,
    /// Successful requests.
    pub requests: u64,
    /// Successful requests per second.
    pub requests_per_s: f64,
    /// Bytes of the successful requests.
    pub bytes: u64,
    /// Megabytes per second.
    pub mb_per_s: f64,
    /// Failed requests.
    pub failed: u64,
    /// Latencies, microseconds.
    pub latency_us: Latencies,
}

/// Latencies of successful requests, from a histogram. A percentile is the upper bound of its step;
/// `null`: beyond the last step, or no requests.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Latencies {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50_at_most: Option<f64>,
    /// 99th percentile.
    pub p99_at_most: Option<f64>,
    /// 99.9th percentile.
    pub p999_at_most: Option<f64>,
}

/// I/O load of a drive.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct DriveRates {
    /// Drive identity.
    pub id: String,
    /// Path of the drive.
    pub path: String,
    /// Role of the drive.
    pub role: String,
    /// State of the drive.
    pub state: DriveState,
    /// Requests, after merging.
    pub requests: u64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Megabytes read per second.
    pub read_mb_per_s: f64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Megabytes written per second.
    pub write_mb_per_s: f64,
    /// Share of the time in which the drive was serving requests.
    pub busy_percent: f64,
    /// Requests that are currently queued or being served.
    pub queued: usize,
    /// Load by cause; causes without requests are omitted.
    pub causes: Vec<CauseRates>,
}

/// I/O load of a drive for one cause.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CauseRates {
    /// The cause's name in JSON.
    pub cause: String,
    /// Requests, after merging.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Seeks: requests that did not start at the end of the drive's previous request.
    pub positions: u64,
    /// Seeks per second.
    pub positions_per_s: f64,
}

/// Load since the pool was opened.
pub fn since_opening(status: &StatusFile) -> Interval {
    let seconds = status.unix_ms.saturating_sub(status.opened_unix_ms) as f64 / 1e3;
    Interval {
        seconds,
        drives: status.drives.iter().map(|drive| rates(drive, None, seconds)).collect(),
        volumes: status.volumes.iter().filter_map(|volume| volume_rates(volume, None, seconds)).collect(),
    }
}

/// Load between two status files.
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

/// Load of the clients of a pool in an interval, over all its volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct PoolRates {
    /// Time at the end of the interval, milliseconds since 1970.
    pub unix_ms: u64,
    /// Length of the interval.
    pub seconds: f64,
    /// Read requests.
    pub reads: OperationRates,
    /// Write requests.
    pub writes: OperationRates,
}

/// Load by one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct OperationRates {
    /// Megabytes per second.
    pub mb_per_s: f64,
    /// Requests per second.
    pub requests_per_s: f64,
    /// Mean latency, microseconds; `null` without requests.
    pub mean_us: Option<f64>,
    /// Upper bound of the 99th percentile of the latency, microseconds; `null` without requests,
    /// and beyond the last step of the histogram.
    pub p99_at_most_us: Option<f64>,
}

/// Load of the clients of a pool between two status files.
pub fn pool_rates(before: &StatusFile, now: &StatusFile) -> PoolRates {
    let same = (before.opened_unix_ms == now.opened_unix_ms).then_some(before);
    let seconds = now.unix_ms.saturating_sub(same.map_or(now.opened_unix_ms, |before| before.unix_ms));
    let seconds = seconds as f64 / 1e3;
    let of = |operation: &str| {
        let mut sum =
            VolumeRequests { by_latency: vec![0; LATENCY_STEPS_NS.len() + 1], ..Default::default() };
        for volume in now.volumes.iter().filter(|volume| volume.operation == operation) {
            let is_it = |other: &&VolumeRequests| {
                other.volume == volume.volume
                    && other.operation == operation
                    && other.total_ns <= volume.total_ns
            };
            let earlier = same.and_then(|before| before.volumes.iter().find(is_it));
            for (step, count) in sum.by_latency.iter_mut().enumerate() {
                let at = |of: &VolumeRequests| of.by_latency.get(step).copied().unwrap_or(0);
                *count += at(volume).saturating_sub(earlier.map_or(0, at));
            }
            sum.total_ns += volume.total_ns - earlier.map_or(0, |earlier| earlier.total_ns);
            sum.bytes += volume.bytes.saturating_sub(earlier.map_or(0, |earlier| earlier.bytes));
        }
        match volume_rates(&sum, None, seconds) {
            None => OperationRates::default(),
            Some(rates) => OperationRates {
                mb_per_s: rates.mb_per_s,
                requests_per_s: rates.requests_per_s,
                mean_us: Some(rates.latency_us.mean),
                p99_at_most_us: rates.latency_us.p99_at_most,
            },
        }
    };
    PoolRates { unix_ms: now.unix_ms, seconds, reads: of("read"), writes: of("write") }
}

/// Load of a drive since an earlier status file, or since the pool was opened.
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

/// Load of one cause; `None` without requests.
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

/// Load of one kind of request to a volume; `None` without requests. A recreated volume counts from
/// its creation.
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

/// Upper bound of the histogram step that contains this quantile, microseconds.
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
