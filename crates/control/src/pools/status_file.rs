//! What the process that has a pool open leaves for others to read beside it: how the pool stands,
//! what happened to it, what its drives were asked. Rewritten every second, beside the list of
//! pools.
//!
//! Expected faults: a process that was killed (its lock is gone, so its word is passed over), one
//! that has only begun, one of another version of this program (its word cannot be read).

use std::path::Path;

use serde::{Deserialize, Serialize};
use stripewise_drive::{Cause, CauseCounts};
use stripewise_engine::Member;
use stripewise_engine::pool::{Pool, RequestKind, VolumeLoad};

use crate::drives::names::id_of;
use crate::messages::report::{DriveState, EventReport, PoolReport};
use crate::notation::times::unix_ms;
use crate::registry::write_beside;

/// How a pool stands for those who cannot open it now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusFile {
    /// When this was written.
    pub unix_ms: u64,
    /// When the pool was opened.
    pub opened_unix_ms: u64,
    /// How the pool is.
    pub report: PoolReport,
    /// What happened to it, oldest first.
    pub events: Vec<EventReport>,
    /// What its drives were asked since it was opened.
    pub drives: Vec<DriveLoad>,
    /// What its volumes were asked since it was opened.
    #[serde(default)]
    pub volumes: Vec<VolumeRequests>,
}

/// What a drive was asked since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveLoad {
    /// Its identity.
    pub id: String,
    /// Where it is.
    pub path: String,
    /// What it is for.
    pub role: String,
    /// How it is.
    pub state: DriveState,
    /// Requests, neighbours merged.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time it spent serving requests.
    pub busy_ns: u64,
    /// What it was asked by cause, those that asked anything.
    #[serde(default)]
    pub causes: Vec<CauseLoad>,
    /// Requests that wait or are being served at this moment.
    pub queued: usize,
}

/// What a drive was asked for one cause since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseLoad {
    /// The cause's name in JSON.
    pub cause: String,
    /// Requests, neighbours merged.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests that did not begin where the one before on the drive ended.
    pub positions: u64,
}

/// Requests of one kind to a volume since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRequests {
    /// The volume's name.
    pub volume: String,
    /// `read`, `write`, `flush`, `discard` or `write_zeroes`.
    pub operation: String,
    /// Those that succeeded, by how long they took, in the engine's steps.
    pub by_latency: Vec<u64>,
    /// How long these took together.
    pub total_ns: u64,
    /// Bytes that these were for.
    pub bytes: u64,
    /// Those that failed.
    pub failed: u64,
}

impl StatusFile {
    /// Of an open pool.
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

    /// Leaves it.
    pub fn leave(&self, path: &Path) {
        let text = serde_json::to_vec(self).expect("plain data becomes JSON");
        // Only others miss it.
        let _ = write_beside(path, &text);
    }
}

/// What every volume of an open pool was asked so far, by kind of request.
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

/// What every drive of an open pool was asked so far.
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
