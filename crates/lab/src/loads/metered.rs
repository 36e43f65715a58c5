//! A laboratory drive: counts the requests that pass through it (the real work of each drive for
//! the user's requests), and can be pulled in operation. Adds a few nanoseconds a request.
//!
//! After a pull, every later request is answered "gone", as from a drive that lost its cable;
//! requests in flight are answered by the drive beneath. No other faults.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stripewise_drive::{
    Cause, CauseCounts, CauseMeter, CauseTable, Completion, Drive, DriveErrorKind, DriveInfo, IoRequest,
    Operation,
};

/// Requests to drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Requests by cause; empty for results that predate causes.
    #[serde(default, serialize_with = "write_causes", deserialize_with = "read_causes")]
    pub causes: CauseTable,
}

/// One cause in `results.json`.
#[derive(Serialize, Deserialize)]
struct OfCause {
    requests: u64,
    bytes: u64,
    positions: u64,
}

fn write_causes<S: Serializer>(table: &CauseTable, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(table.used().map(|(cause, counts)| {
        let CauseCounts { requests, bytes, positions } = counts;
        (cause.name(), OfCause { requests, bytes, positions })
    }))
}

fn read_causes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CauseTable, D::Error> {
    let found = BTreeMap::<String, OfCause>::deserialize(deserializer)?;
    let mut table = CauseTable::default();
    for cause in Cause::ALL {
        if let Some(&OfCause { requests, bytes, positions }) = found.get(cause.name()) {
            *table.of_mut(cause) = CauseCounts { requests, bytes, positions };
        }
    }
    Ok(table)
}

impl Traffic {
    /// Bytes read and written.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    /// Number of reads and writes.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Adds the traffic of another drive.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            flushes: self.flushes + other.flushes,
            causes: self.causes.plus(&other.causes),
        }
    }

    /// Difference from an earlier snapshot of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            flushes: self.flushes - earlier.flushes,
            causes: self.causes.since(&earlier.causes),
        }
    }
}

/// Wraps a drive, counts requests, and can be pulled.
pub struct MeteredDrive {
    inner: Rc<dyn Drive>,
    info: DriveInfo,
    /// Without causes, which are in `causes`.
    traffic: Cell<Traffic>,
    causes: CauseMeter,
    pulled: Cell<bool>,
}

impl MeteredDrive {
    /// Wraps `inner` under another label.
    pub fn new(label: &str, inner: Rc<dyn Drive>) -> Rc<Self> {
        let info = DriveInfo { label: label.into(), ..inner.info().clone() };
        Rc::new(Self {
            inner,
            info,
            traffic: Cell::default(),
            causes: CauseMeter::default(),
            pulled: Cell::new(false),
        })
    }

    /// Traffic so far.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic { causes: self.causes.table(), ..self.traffic.get() }
    }

    /// Pulls the drive: it is gone from now on.
    pub fn pull(&self) {
        self.pulled.set(true);
    }
}

impl Drive for MeteredDrive {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if self.pulled.get() {
            return Completion::ready(Err(request.error(&self.info.label, DriveErrorKind::Gone, None)));
        }
        self.causes.note(&request);
        let mut traffic = self.traffic.get();
        match request.operation {
            Operation::Read => {
                traffic.reads += 1;
                traffic.read_bytes += request.length_bytes;
            }
            Operation::Write { .. } => {
                traffic.writes += 1;
                traffic.written_bytes += request.length_bytes;
            }
            Operation::WriteZeroes => {
                traffic.writes += 1;
                // Nothing is transferred if zeros are only recorded.
                traffic.written_bytes += if self.info.cheap_zeroes { 0 } else { request.length_bytes };
            }
            Operation::Flush => traffic.flushes += 1,
            Operation::Discard => {}
        }
        self.traffic.set(traffic);
        self.inner.submit(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::{Buffer, IoResult, MemoryDrive};

    fn now(completion: Completion) -> IoResult {
        completion.try_take().unwrap_or_else(|_| panic!("memory answers at once"))
    }

    #[test]
    fn requests_are_counted_by_cause_and_by_seek() {
        let drive = MeteredDrive::new("drive7", MemoryDrive::new("memory", 1 << 20));
        let buffer = Buffer::from_bytes(&[1; 8192]);
        let write = |offset_bytes, cause| {
            now(drive.submit(IoRequest::write(offset_bytes, buffer.clone(), false).because(cause))).unwrap();
        };
        write(0, Cause::Data);
        write(8192, Cause::Data);
        write(65536, Cause::Journal);
        now(drive.submit(IoRequest::flush())).unwrap();
        write(65536 + 8192, Cause::Journal);
        write(16384, Cause::Data);
        let causes = drive.traffic().causes;
        let counts = |requests, bytes, positions| CauseCounts { requests, bytes, positions };
        assert_eq!(causes.of(Cause::Data), counts(3, 3 * 8192, 1));
        assert_eq!(causes.of(Cause::Journal), counts(2, 2 * 8192, 1));
        assert_eq!(causes.of(Cause::Flush), counts(1, 0, 0));
        assert_eq!(causes.total(), counts(6, 5 * 8192, 2));
        let text = serde_json::to_string(&drive.traffic()).unwrap();
        assert!(text.contains("\"journal\":{\"requests\":2,\"bytes\":16384,\"positions\":1}"), "{text}");
        assert_eq!(serde_json::from_str::<Traffic>(&text).unwrap(), drive.traffic());
        let older = "{\"reads\":1,\"read_bytes\":0,\"writes\":0,\"written_bytes\":0,\"flushes\":0}";
        assert_eq!(serde_json::from_str::<Traffic>(older).unwrap().causes, CauseTable::default());
    }

    #[test]
    fn requests_are_counted_until_the_drive_is_pulled() {
        let drive = MeteredDrive::new("drive7", MemoryDrive::new("memory", 1 << 20));
        let buffer = Buffer::from_bytes(&[1; 8192]);
        now(drive.submit(IoRequest::write(0, buffer.clone(), false))).unwrap();
        let before = drive.traffic();
        now(drive.submit(IoRequest::read(4096, buffer.slice(0..4096)))).unwrap();
        now(drive.submit(IoRequest::flush())).unwrap();
        assert_eq!((before.writes, before.written_bytes, before.bytes()), (1, 8192, 8192));
        let since = drive.traffic().since(&before);
        assert_eq!((since.reads, since.read_bytes, since.writes, since.flushes), (1, 4096, 0, 1));
        assert_eq!(since.plus(&before), drive.traffic());
        drive.pull();
        let error = now(drive.submit(IoRequest::read(0, buffer))).unwrap_err();
        assert_eq!(error.kind, DriveErrorKind::Gone);
        assert!(error.to_string().starts_with("drive7: "), "{error}");
        assert_eq!(drive.traffic().reads, 1, "a pulled drive serves nothing");
    }
}
