//! Replays of measured traces against modelled drives, and their error.
//!
//! A drive is described in the neutral form of `studies/disksim/` ([`Description`]); its mechanics
//! are those of every other hard disk here ([`crate::hdd::Hdd`]). What is added are the things that
//! show when one request is out at a time: the cable, and when the drive takes and leaves it
//! ([`bus`]); overheads by kind of request; buffers that the next request may find full, or filling
//! ([`buffer`]). Nothing depends on the name of a drive.
//!
//! Faults expected: users' descriptions and traces. Each error has the file, line and column.

mod buffer;
mod bus;
mod demerit;
mod description;
mod drive;
mod summary;
mod trace;

pub use demerit::{Replay, demerit_ms};
pub use description::Description;
pub use drive::Completion;
use drive::ReplayDrive;
pub use summary::{Percentiles, ReplaySummary};
pub use trace::{Row, Trace};

use thiserror::Error;

/// A file that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}{}: {why}", place(*.line, *.column))]
pub struct ReplayError {
    /// Its path.
    pub file: String,
    /// Counted from 1; 0 where the fault is not at one place.
    pub line: usize,
    /// Counted from 1; 0 where it concerns the line.
    pub column: usize,
    /// Fault of the text.
    pub why: String,
}

fn place(line: usize, column: usize) -> String {
    match (line, column) {
        (0, _) => String::new(),
        (line, 0) => format!(":{line}"),
        (line, column) => format!(":{line}:{column}"),
    }
}

/// Replays a whole trace: the first request at time 0, each later one when the one before is
/// complete and its gap over.
pub fn replay(description: &Description, trace: &Trace, seed: u64) -> Result<Replay, ReplayError> {
    let mut drive = ReplayDrive::new(description, seed).map_err(|error| ReplayError {
        file: description.file.clone(),
        line: 0,
        column: 0,
        why: error.to_string(),
    })?;
    trace.check_capacity(drive.capacity_sectors())?;
    let mut now_ns = 0;
    let mut responses_ns = Vec::with_capacity(trace.rows.len());
    for row in &trace.rows {
        let completion = drive.serve(now_ns, row.write, row.lbn, row.sectors);
        responses_ns.push(completion.at_ns - now_ns);
        now_ns = completion.at_ns + row.gap_ns;
    }
    let measured_ns = trace.rows.iter().map(|row| row.response_ns).collect();
    Ok(Replay { responses_ns, measured_ns })
}
