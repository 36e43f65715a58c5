//! Counts a drive's requests by purpose, which follows from the offset, since the drives' queues
//! merge requests before they get here.

use std::cell::Cell;
use std::rc::Rc;

use stripewise_drive::{Completion, Drive, DriveInfo, IoRequest, Operation};

use crate::kit::pool::MIB;

/// Range of the checksum pages on a drive of 2 GiB with slabs of 2 MiB; the slabs follow.
const PAGES_FROM: u64 = MIB;
const PAGES_TO: u64 = 17 * MIB;

/// Number of requests, and bytes that they transfer.
#[derive(Clone, Copy, Default)]
pub struct Count {
    pub requests: u64,
    pub bytes: u64,
}

/// Requests of one drive, or of several together.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub reads: Count,
    pub writes: Count,
    pub page_reads: Count,
    pub page_writes: Count,
    pub flushes: Count,
}

impl Counts {
    fn each(&mut self) -> [&mut Count; 5] {
        [&mut self.reads, &mut self.writes, &mut self.page_reads, &mut self.page_writes, &mut self.flushes]
    }

    pub fn plus(mut self, mut other: Self) -> Self {
        for (own, other) in self.each().into_iter().zip(other.each()) {
            own.requests += other.requests;
            own.bytes += other.bytes;
        }
        self
    }

    pub fn since(mut self, mut before: Self) -> Self {
        for (own, before) in self.each().into_iter().zip(before.each()) {
            own.requests -= before.requests;
            own.bytes -= before.bytes;
        }
        self
    }
}

/// Counts the requests to the drive beneath.
pub struct CountedDrive {
    inner: Rc<dyn Drive>,
    counts: Cell<Counts>,
}

impl CountedDrive {
    pub fn new(inner: Rc<dyn Drive>) -> Rc<Self> {
        Rc::new(Self { inner, counts: Cell::default() })
    }

    pub fn counts(&self) -> Counts {
        self.counts.get()
    }
}

impl Drive for CountedDrive {
    fn info(&self) -> &DriveInfo {
        self.inner.info()
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let mut counts = self.counts.get();
        let is_page = (PAGES_FROM..PAGES_TO).contains(&request.offset_bytes);
        let count = match (request.operation, is_page) {
            (Operation::Read, false) => &mut counts.reads,
            (Operation::Read, true) => &mut counts.page_reads,
            (Operation::Flush | Operation::Discard, _) => &mut counts.flushes,
            (_, false) => &mut counts.writes,
            (_, true) => &mut counts.page_writes,
        };
        count.requests += 1;
        count.bytes += request.length_bytes;
        self.counts.set(counts);
        self.inner.submit(request)
    }
}
