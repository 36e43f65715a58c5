//! An enclosure whose own processor moves every byte, and the host before it: bonnie and PostMark.
//!
//! The array decides block writes, rewrites and block reads. Calls per character cost the host's
//! processor a fixed time for each byte; what the array takes beyond what the host hides behind
//! that is waited for.

use super::{Limit, Prediction, Workload};
use crate::system::{Component, System};

/// Share of bonnie's random reads whose block is written back.
const SEEKS_REWRITTEN: f64 = 0.1;

/// Nanoseconds for each byte that the host writes or reads.
struct Bytes<'a> {
    system: &'a System,
    parts: &'a Component,
}

impl Bytes<'_> {
    fn of(system: &System) -> Bytes<'_> {
        Bytes { system, parts: &system.controller }
    }

    /// Bytes on drives for each byte of the host.
    fn spread(&self) -> f64 {
        let shape = &self.system.shape;
        shape.units() as f64 / shape.data_units() as f64
    }

    /// Long writes, gathered into full stripes.
    fn write(&self) -> f64 {
        let parity =
            if self.system.shape.parity_units() > 0 { self.parts.or("parity_byte", 0.0) } else { 0.0 };
        self.parts.or("host_byte", 0.0) + self.parts.or("drive_byte", 0.0) * self.spread() + parity
    }

    /// Writes over what was read just before: of stripes too wide to be gathered the old parity is
    /// read; the old data are still in the enclosure's memory.
    fn write_over(&self) -> f64 {
        let shape = &self.system.shape;
        let widest = self.parts.or("widest_full_stripe", f64::INFINITY);
        let partial = shape.parity_units() > 0 && shape.data_units() as f64 > widest;
        self.write() + if partial { self.parts.or("old_byte", 0.0) } else { 0.0 }
    }

    /// New files: pieces that fill no stripe, so that with parity old data and old parity are read,
    /// and the work of the file system.
    fn create(&self) -> f64 {
        let old = if self.system.shape.parity_units() > 0 { 2.0 } else { 0.0 };
        self.write() + self.parts.or("creation_byte", 0.0) + old * self.parts.or("old_byte", 0.0)
    }

    /// Milliseconds until an arm is at a random place: the nearer of two copies, and a turn more
    /// for the share of blocks that are rewritten where old parity is read first.
    fn position_ms(&self, rewritten: f64) -> f64 {
        let drive = &self.system.drive;
        let turn = 60_000.0 / drive.or("spindle", 7200.0);
        // The mean distance falls from 1/3 of the stroke to 5/24; time goes with its root.
        let nearer = if self.system.shape.copies() > 1 { (5.0f64 / 8.0).sqrt() } else { 1.0 };
        let again = if self.system.shape.parity_units() > 0 { rewritten * turn } else { 0.0 };
        drive.or("average_seek", 8.5) * nearer + turn / 2.0 + again
    }

    /// Random reads a second, with a tenth of the blocks rewritten as bonnie does. Host and drives
    /// share the work as they do without redundancy.
    fn seeks(&self) -> f64 {
        let drive = &self.system.drive;
        let plain = drive.or("average_seek", 8.5) + 30_000.0 / drive.or("spindle", 7200.0);
        self.parts.or("seek_rate", 0.0) * plain / self.position_ms(SEEKS_REWRITTEN)
    }

    /// Deleted files a second: each writes its part of the file system's tree and journal.
    fn deletions(&self) -> f64 {
        1e3 / (self.parts.or("deletion", f64::INFINITY) * self.write())
    }

    /// Long reads: the drives that hold data, or the bus.
    fn read(&self) -> f64 {
        let drives = self.parts.or("all_drives_rate", f64::INFINITY) / self.spread();
        1000.0 / drives.min(self.bus())
    }

    fn bus(&self) -> f64 {
        self.system.link.as_ref().map_or(f64::INFINITY, |link| link.or("rate", f64::INFINITY))
    }

    fn rewrite(&self) -> f64 {
        (self.read() + self.write_over()) / self.parts.or("turn_efficiency", 1.0)
    }
}

/// Output of bonnie: kilobytes of 1024 bytes a second, and processor shares in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Bonnie {
    pub putc: f64,
    pub putc_cpu: f64,
    pub write: f64,
    pub write_cpu: f64,
    pub rewrite: f64,
    pub rewrite_cpu: f64,
    pub getc: f64,
    pub getc_cpu: f64,
    pub read: f64,
    pub read_cpu: f64,
    pub seeks: f64,
    pub seeks_cpu: f64,
}

impl Bonnie {
    /// On this system.
    pub fn on(system: &System) -> Self {
        let bytes = Bytes::of(system);
        let number = |name: &str| system.controller.or(name, 0.0);
        let (write, read, rewrite) = (bytes.write(), bytes.read(), bytes.rewrite());
        let putc = number("putc_cpu") + (write - number("hidden_write")).max(0.0);
        let getc = number("getc_cpu") + (read - number("hidden_read")).max(0.0);
        let rate = |nanoseconds: f64| 1e9 / nanoseconds / 1024.0;
        let share = |name: &str, total: f64| 100.0 * number(name) / total;
        Self {
            putc: rate(putc),
            putc_cpu: share("putc_cpu", putc),
            write: rate(write),
            write_cpu: share("write_cpu", write),
            rewrite: rate(rewrite),
            rewrite_cpu: share("rewrite_cpu", rewrite),
            getc: rate(getc),
            getc_cpu: share("getc_cpu", getc),
            read: rate(read),
            read_cpu: share("read_cpu", read),
            seeks: bytes.seeks(),
            seeks_cpu: 100.0 * bytes.seeks() * number("seek_cpu") / 1e6,
        }
    }
}

/// Output of PostMark, from its rules: sizes equally likely between the bounds, a read or an append
/// and a creation or a deletion in each transaction, all equally likely. Megabytes are of 2^20
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct PostMark {
    pub total_seconds: f64,
    pub transaction_seconds: f64,
    pub created: f64,
    pub created_alone: f64,
    pub created_alone_rate: f64,
    pub created_mixed: f64,
    pub read: f64,
    pub appended: f64,
    pub deleted_alone: f64,
    pub deleted_alone_rate: f64,
    pub deleted_mixed: f64,
    pub transactions: f64,
    pub data_read_mb: f64,
    pub data_written_mb: f64,
}

impl PostMark {
    /// Predicts a run with this number of files, of sizes between these bounds, and of
    /// transactions.
    pub fn on(system: &System, files: f64, transactions: f64, least: f64, most: f64) -> Self {
        let bytes = Bytes::of(system);
        let number = |name: &str| system.controller.or(name, 0.0);
        let mean = (least + most) / 2.0;
        let half = transactions / 2.0;
        // An append adds anything up to what the largest size leaves: half of that in the mean, a
        // little less for files that were appended to before.
        let appended = half * (most - mean) / 2.0;
        let grown = appended / files / 2.0;
        let (read_bytes, mixed_bytes) = (half * (mean + grown), half * mean + appended);
        let write = bytes.rewrite() / 1e9;
        let creation = files * mean * bytes.create() / 1e9;
        let transaction = mixed_bytes * write + read_bytes * number("small_read_byte") / 1e9;
        let deletion = files / bytes.deletions();
        Self {
            total_seconds: creation + transaction + deletion,
            transaction_seconds: transaction,
            created: files + half,
            created_alone: files,
            created_alone_rate: files / creation,
            created_mixed: half,
            read: half,
            appended: half,
            deleted_alone: files,
            deleted_alone_rate: bytes.deletions(),
            deleted_mixed: half,
            transactions,
            data_read_mb: read_bytes / 1_048_576.0,
            data_written_mb: (files * mean + mixed_bytes) / 1_048_576.0,
        }
    }
}

pub(super) fn predict(system: &System, workload: &Workload) -> Prediction {
    let bytes = Bytes::of(system);
    let per_byte = workload.read_share * bytes.read() + (1.0 - workload.read_share) * bytes.write_over();
    let us = workload.mean_bytes() * per_byte / 1000.0;
    let random = workload.random_share / bytes.seeks() * 1e6;
    let limits = vec![
        Limit { part: "enclosure's processor".into(), iops: 1e6 / us },
        Limit { part: "link".into(), iops: bytes.bus() * 1e6 / workload.mean_bytes() },
    ];
    let drives = bytes.parts.or("all_drives_rate", f64::INFINITY) * 1e6 / workload.mean_bytes();
    let mut prediction = Prediction::of_limits(system, workload, us + random, limits, drives);
    if system.shape.fault_tolerance() > 0 {
        // Its processor reads every drive of a set, and is left over by the host's requests.
        let read = system.shape.data_units() as f64 * system.drive.or("capacity", 0.0) * bytes.read() / 1e9;
        let written = system.drive.or("capacity", 0.0) * bytes.parts.or("drive_byte", 0.0) / 1e9;
        let idle = read + written;
        prediction.rebuild_seconds = Some(idle);
        let left = (1.0 - prediction.processor_utilisation).max(0.1);
        prediction.rebuild_under_load_seconds = Some(idle / left);
    }
    prediction
}
