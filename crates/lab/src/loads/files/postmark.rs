//! PostMark's method: many small files, and transactions that each read or append to one and create
//! or delete another.
//!
//! Parameters, choices and report follow PostMark 1.5 (J. Katcher, *PostMark: A New File System
//! Benchmark*, 1997): sizes are uniform between the bounds; a transaction first reads a whole file
//! or appends to one below the upper bound, then creates or deletes one; biases are in tenths.
//! Rates that PostMark prints as whole numbers a second are kept exact.

use std::time::Duration;

use serde::Deserialize;
use stripewise_drive::{Context, SplitMix64};

use super::{FileError, FileStore, FileWatch, Phase, proceed};
use crate::loads::workload::random_stream;
use crate::records::record::{MeasurementRecord, Operation, Unit};

/// Parameters of PostMark.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostMark {
    /// Files created before the transactions.
    pub files: u64,
    /// Number of transactions.
    pub transactions: u64,
    /// Minimum file size.
    pub least_bytes: u64,
    /// Maximum file size.
    pub most_bytes: u64,
    /// Size of a read.
    pub read_block_bytes: u64,
    /// Size of a write.
    pub write_block_bytes: u64,
    /// Reads per ten reads and appends.
    pub read_bias: u64,
    /// Creations per ten creations and deletions.
    pub create_bias: u64,
    /// Random seed.
    pub seed: u64,
}

impl Default for PostMark {
    /// PostMark's own defaults.
    fn default() -> Self {
        Self {
            files: 500,
            transactions: 500,
            least_bytes: 500,
            most_bytes: 9_770,
            read_block_bytes: 512,
            write_block_bytes: 512,
            read_bias: 5,
            create_bias: 5,
            seed: 42,
        }
    }
}

/// Names of the figures, in order.
pub(crate) const POSTMARK_FIGURES: [&str; 12] = [
    "total_time",
    "transactions",
    "created",
    "created_alone",
    "created_mixed",
    "files_read",
    "files_appended",
    "deleted",
    "deleted_alone",
    "deleted_mixed",
    "data_read",
    "data_written",
];

impl PostMark {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The invalid parameter.
    pub fn check(&self) -> Result<(), String> {
        if self.least_bytes > self.most_bytes {
            return Err(format!("invalid file sizes: {} to {} bytes", self.least_bytes, self.most_bytes));
        }
        if self.files == 0 || self.read_block_bytes == 0 || self.write_block_bytes == 0 {
            return Err("files and blocks must be more than 0".into());
        }
        if self.read_bias > 10 || self.create_bias > 10 {
            return Err("a bias must be from 0 to 10".into());
        }
        Ok(())
    }
}

/// Counts of operations, and duration of each part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    created: u64,
    created_in_transactions: u64,
    read: u64,
    appended: u64,
    deleted: u64,
    deleted_in_transactions: u64,
    read_bytes: u64,
    written_bytes: u64,
    creation: Duration,
    transactions: Duration,
    deletion: Duration,
}

/// An existing file: its number and length.
type Known = (u64, u64);

/// Runs PostMark once; returns the figures named as in PostMark's report.
///
/// # Errors
/// Those of the store, and an interrupt.
pub async fn run_postmark<S: FileStore>(
    context: &Context,
    store: &S,
    asked: &PostMark,
    watch: &dyn FileWatch,
) -> Result<Vec<MeasurementRecord>, FileError<S::Error>> {
    let mut work = Work {
        store,
        asked,
        random: random_stream(asked.seed, 0),
        files: Vec::new(),
        next: 0,
        counts: Counts::default(),
    };
    let start_ns = context.now_ns();
    let creation = Phase { name: "creating files", unit: "files", total: asked.files };
    for done in 0..asked.files {
        proceed(watch, creation, done)?;
        work.create().await?;
    }
    let created_ns = context.now_ns();
    let mixed = Phase { name: "running transactions", unit: "transactions", total: asked.transactions };
    for done in 0..asked.transactions {
        proceed(watch, mixed, done)?;
        work.transaction().await?;
    }
    let done_ns = context.now_ns();
    let left = work.files.len() as u64;
    let deletion = Phase { name: "deleting files", unit: "files", total: left };
    while !work.files.is_empty() {
        proceed(watch, deletion, left - work.files.len() as u64)?;
        work.delete().await?;
    }
    let end_ns = context.now_ns();
    let counts = Counts {
        creation: Duration::from_nanos(created_ns - start_ns),
        transactions: Duration::from_nanos(done_ns - created_ns),
        deletion: Duration::from_nanos(end_ns - done_ns),
        ..work.counts
    };
    Ok(figures(&counts, asked))
}

struct Work<'a, S: FileStore> {
    store: &'a S,
    asked: &'a PostMark,
    random: SplitMix64,
    files: Vec<Known>,
    next: u64,
    counts: Counts,
}

impl<S: FileStore> Work<'_, S> {
    async fn create(&mut self) -> Result<(), S::Error> {
        let range = self.asked.most_bytes.saturating_sub(self.asked.least_bytes) + 1;
        let bytes = self.asked.least_bytes + self.random.below(range);
        let number = self.next;
        self.next += 1;
        self.store.create(number).await?;
        self.store.append(number, bytes, self.asked.write_block_bytes).await?;
        self.files.push((number, bytes));
        self.counts.created += 1;
        self.counts.written_bytes += bytes;
        Ok(())
    }

    async fn delete(&mut self) -> Result<(), S::Error> {
        let at = self.random.below(self.files.len() as u64) as usize;
        let (number, _) = self.files.swap_remove(at);
        self.store.delete(number).await?;
        self.counts.deleted += 1;
        Ok(())
    }

    async fn transaction(&mut self) -> Result<(), S::Error> {
        if !self.files.is_empty() {
            let at = self.random.below(self.files.len() as u64) as usize;
            if self.random.below(10) < self.asked.read_bias {
                let (number, bytes) = self.files[at];
                self.store.read(number, 0, bytes, self.asked.read_block_bytes).await?;
                self.counts.read += 1;
                self.counts.read_bytes += bytes;
            } else {
                self.append(at).await?;
            }
        }
        if self.files.is_empty() || self.random.below(10) < self.asked.create_bias {
            self.create().await?;
            self.counts.created_in_transactions += 1;
        } else {
            self.delete().await?;
            self.counts.deleted_in_transactions += 1;
        }
        Ok(())
    }

    /// Appends to a file below its upper bound; others stay unchanged.
    async fn append(&mut self, at: usize) -> Result<(), S::Error> {
        let (number, length) = self.files[at];
        let room = self.asked.most_bytes.saturating_sub(length);
        if room == 0 {
            return Ok(());
        }
        let bytes = self.random.below(room) + 1;
        self.store.append(number, bytes, self.asked.write_block_bytes).await?;
        self.files[at].1 += bytes;
        self.counts.appended += 1;
        self.counts.written_bytes += bytes;
        Ok(())
    }
}

fn figures(counts: &Counts, asked: &PostMark) -> Vec<MeasurementRecord> {
    let total = counts.creation + counts.transactions + counts.deletion;
    let rate = |count: u64, time: Duration| count as f64 / time.as_secs_f64().max(1e-9);
    let (all, mixed) = (total, counts.transactions);
    let alone_created = counts.created - counts.created_in_transactions;
    let alone_deleted = counts.deleted - counts.deleted_in_transactions;
    let a_second = |name: &str, op, value| MeasurementRecord::printed(name, op, Unit::PerSecond, value);
    let mb = |name: &str, op, bytes: u64| {
        MeasurementRecord::printed(name, op, Unit::MbPerS, rate(bytes, all) / 1e6)
    };
    vec![
        MeasurementRecord::printed("total_time", Operation::Transaction, Unit::Seconds, total.as_secs_f64()),
        a_second("transactions", Operation::Transaction, rate(asked.transactions, mixed)),
        a_second("created", Operation::Create, rate(counts.created, all)),
        a_second("created_alone", Operation::Create, rate(alone_created, counts.creation)),
        a_second("created_mixed", Operation::Create, rate(counts.created_in_transactions, mixed)),
        a_second("files_read", Operation::Read, rate(counts.read, mixed)),
        a_second("files_appended", Operation::Write, rate(counts.appended, mixed)),
        a_second("deleted", Operation::Delete, rate(counts.deleted, all)),
        a_second("deleted_alone", Operation::Delete, rate(alone_deleted, counts.deletion)),
        a_second("deleted_mixed", Operation::Delete, rate(counts.deleted_in_transactions, mixed)),
        mb("data_read", Operation::Read, counts.read_bytes),
        mb("data_written", Operation::Write, counts.written_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loads::files::{Extents, Unwatched};
    use crate::loads::target::DriveTarget;
    use crate::testing::SlowDrive;
    use stripewise_drive::{BufferPool, MemoryDrive};
    use stripewise_runtime::VirtualExecutor;

    fn run(asked: &PostMark) -> Vec<MeasurementRecord> {
        let executor = VirtualExecutor::new();
        let context = executor.context();
        let drive = SlowDrive::new(&context, MemoryDrive::new("memory", 64 << 20), 100_000);
        let files = Extents::new(DriveTarget::new(drive, BufferPool::new(1 << 20)));
        executor.block_on(run_postmark(&context, &files, asked, &Unwatched)).expect("PostMark failed")
    }

    #[test]
    fn every_created_file_is_deleted_and_shares_hold() {
        let asked = PostMark { files: 400, transactions: 2000, ..PostMark::default() };
        let figures = run(&asked);
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).expect(name).runs[0];
        let total = value("total_time");
        let (created, deleted) = (value("created") * total, value("deleted") * total);
        assert!((created - deleted).abs() < 0.5, "{created} {deleted}");
        let mixed_s = 2000.0 / value("transactions");
        let counts = ["created_mixed", "deleted_mixed", "files_read", "files_appended"]
            .map(|name| value(name) * mixed_s);
        for count in counts {
            assert!((880.0..1120.0).contains(&count), "{counts:?}");
        }
        assert!((created - 400.0 - counts[0]).abs() < 0.5);
        assert_eq!(run(&asked), figures, "the same seed must give the same choices");
        assert!(figures.iter().map(|figure| figure.name.as_str()).eq(POSTMARK_FIGURES));
    }
}
