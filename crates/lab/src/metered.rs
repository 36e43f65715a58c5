//! A drive that counts what passes through it: how many requests and bytes each drive really served for what the user
//! asked. Changes nothing and adds a few nanoseconds; has no faults of its own.

use std::cell::Cell;
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stripewise_drive::{Completion, Drive, DriveInfo, IoRequest, Operation};

/// What drives were asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Read requests.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes they carried.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Traffic {
    /// Bytes both ways.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    /// Reads and writes.
    pub fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Adds what another drive was asked.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            flushes: self.flushes + other.flushes,
        }
    }

    /// What came since an earlier look at the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            flushes: self.flushes - earlier.flushes,
        }
    }
}

/// Wraps a drive and counts.
pub struct MeteredDrive {
    inner: Rc<dyn Drive>,
    traffic: Cell<Traffic>,
}

impl MeteredDrive {
    /// Counts what `inner` is asked from now on.
    pub fn new(inner: Rc<dyn Drive>) -> Rc<Self> {
        Rc::new(Self { inner, traffic: Cell::default() })
    }

    /// Everything asked so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic.get()
    }
}

impl Drive for MeteredDrive {
    fn info(&self) -> &DriveInfo {
        self.inner.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let mut traffic = self.traffic.get();
        match request.operation {
            Operation::Read => {
                traffic.reads += 1;
                traffic.read_bytes += request.length_bytes;
            }
            Operation::Write { .. } | Operation::WriteZeroes => {
                traffic.writes += 1;
                traffic.written_bytes += request.length_bytes;
            }
            Operation::Flush => traffic.flushes += 1,
            Operation::Discard => {}
        }
        self.traffic.set(traffic);
        self.inner.submit(request)
    }
}
