//! The status file of an open pool: its report, events and I/O counters, for other processes to
//! read. The process that has the pool open rewrites it every second, in the registry's folder.
//!
//! Expected faults: a killed process (without its lock, the file is ignored), one that has not
//! written the file yet, one of another version of this program (the file is unreadable).

use std::path::Path;

use serde::{Deserialize, Serialize};
use stripewise_array::Member;
use stripewise_drive::{Cause, CauseCounts};
use stripewise_pool::{Pool, RequestKind, VolumeLoad};

use crate::drives::names::id_of;
use crate::messages::report::{DriveState, EventReport, PoolReport};
use crate::notation::times::unix_ms;
use crate::registry::write_beside;

/// Contents of a status file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusFile {
    /// Time of writing, milliseconds since 1970.
    pub unix_ms: u64,
    /// Time at which the pool was opened, milliseconds since 1970.
    pub opened_unix_ms: u64,
    /// Report of the pool.
    pub report: PoolReport,
    /// Events of the pool, oldest first.
    pub events: Vec<EventReport>,
    /// Load of the drives since the pool was opened.
    pub drives: Vec<DriveLoad>,
    /// Load of the volumes since the pool was opened.
    #[serde(default)]
    pub volumes: Vec<VolumeRequests>,
}

/// Load of a drive since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveLoad {
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
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time spent serving requests.
    pub busy_ns: u64,
    /// Load by cause; causes without requests are omitted.
    #[serde(default)]
    pub causes: Vec<CauseLoad>,
    /// Requests that are currently queued or being served.
    pub queued: usize,
}

/// Load of a drive for one cause since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseLoad {
    /// The cause's name in JSON.
    pub cause: String,
    /// Requests, after merging.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Seeks: requests that did not start at the end of the drive's previous request.
    pub positions: u64,
}

/// Requests of one kind to a volume since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRequests {
    /// Volume name.
    pub volume: String,
    /// `read`, `write`, `flush`, `discard` or `write_zeroes`.
    pub operation: String,
    /// Histogram of the latencies of successful requests, in the engine's steps.
    pub by_latency: Vec<u64>,
    /// Total latency of the successful requests.
    pub total_ns: u64,
    /// Bytes of the successful requests.
    pub bytes: u64,
    /// Failed requests.
    pub failed: u64,
}

impl StatusFile {
    /// Status of an open pool.
    pub fn of(pool: &Pool, report: PoolReport, opened_unix_ms: u64) -> Self {
        let events = pool.events().iter().map(EventReport::from).collect();
        Self {
            unix_ms: unix_ms(),
            opened_unix_ms,
            drives: loads(pool, &report),
            volumes: requests(pool),
            report,
            events,
        }
    }

    /// Counters of an open pool; of its report only the name, and no events.
    pub(crate) fn counters(pool: &Pool, report: &PoolReport, opened_unix_ms: u64) -> Self {
        Self {
            unix_ms: unix_ms(),
            opened_unix_ms,
            drives: loads(pool, report),
            volumes: requests(pool),
            report: PoolReport { name: report.name.clone(), ..PoolReport::default() },
            events: Vec::new(),
        }
    }

    /// Writes the file.
    pub fn leave(&self, path: &Path) {
        let text = serde_json::to_vec(self).expect("plain data becomes JSON");
        // Best effort: this process does not need the file.
        let _ = write_beside(path, &text);
    }
}

/// Load of every volume of an open pool so far, by kind of request.
fn requests(pool: &Pool) -> Vec<VolumeRequests> {
    let of = |load: &VolumeLoad, kind: RequestKind| {
        let counts = load.of(kind);
        VolumeRequests {
            volume: load.volume.clone(),
            operation: kind.word().to_owned(),
            by_latency: counts.by_latency.to_vec(),
            total_ns: counts.total_ns,
            bytes: counts.bytes,
            failed: counts.failed,
        }
    };
    let loads = pool.volume_loads();
    loads.iter().flat_map(|load| RequestKind::ALL.map(|kind| of(load, kind))).collect()
}

fn causes(member: &Member) -> Vec<CauseLoad> {
    let load = |(cause, counts): (Cause, CauseCounts)| CauseLoad {
        cause: cause.name().to_owned(),
        requests: counts.requests,
        bytes: counts.bytes,
        positions: counts.positions,
    };
    member.causes().used().map(load).collect()
}

/// Load of every drive of an open pool so far.
pub fn loads(pool: &Pool, report: &PoolReport) -> Vec<DriveLoad> {
    let load = |drive: &crate::messages::report::DriveReport| {
        let member = pool.member(id_of(drive));
        let counters = member.as_ref().map(|member| member.counters()).unwrap_or_default();
        DriveLoad {
            id: drive.id.clone(),
            path: drive.path.clone(),
            role: drive.role.clone(),
            state: drive.state,
            requests: counters.requests,
            read_bytes: counters.read_bytes,
            written_bytes: counters.written_bytes,
            busy_ns: counters.foreground_busy_ns + counters.background_busy_ns,
            causes: member.as_ref().map(|member| causes(member)).unwrap_or_default(),
            queued: member.map_or(0, |member| member.load()),
        }
    };
    report.drives.iter().map(load).collect()
}
