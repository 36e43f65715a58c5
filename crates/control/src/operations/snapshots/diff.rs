//! `snapshot diff`: ranges in which two snapshots of a volume differ, or a snapshot and the volume.
//!
//! The number of ranges is limited; a further request shows the next ones. Expected faults: names
//! of different volumes, or of none.

use stripewise_pool::LogChange;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::request::CompareSnapshots;
use crate::messages::response::{DifferenceReport, Differences, Response};
use crate::notation::names::ReadableName;
use crate::pools::session::with_pool;

/// Ranges shown if no number is given.
const USUAL_RANGES: usize = 10_000;
/// Most ranges of an answer.
const MOST_RANGES: usize = 100_000;

/// Carries it out.
pub async fn run(asked: &CompareSnapshots, control: &Control) -> Result<Response> {
    let (older, path) = (&asked.snapshot, asked.snapshot.path());
    let (volume, newer) = match &*asked.newer {
        ReadableName::Volume(volume) => (volume, None),
        ReadableName::Snapshot(name) => (&name.volume, Some(name.snapshot.as_str())),
    };
    if *volume != older.volume {
        return Err(Failure::usage(format!("{older} and {} are of different volumes", asked.newer))
            .hint("snapshots of one volume are compared, or a snapshot and its volume"));
    }
    let limit = asked.limit.unwrap_or(USUAL_RANGES);
    if !(1..=MOST_RANGES).contains(&limit) {
        return Err(Failure::usage(format!("{limit} ranges at a time; valid: 1 to {MOST_RANGES}")));
    }
    let what = format!("compare {older} with {}", asked.newer);
    let (ranges, next_offset_bytes) =
        with_pool(control, &older.volume.pool, Access::Look, "snapshot diff", async |session| {
            let mut ranges: Vec<DifferenceReport> = Vec::new();
            let mut from = Some(asked.offset);
            while let Some(at) = from {
                let changes = session.pool.changes(&path, newer, at).await;
                let changes = changes.map_err(|error| pool_failure(format!("cannot {what}"), &error))?;
                for change in changes.ranges {
                    let LogChange { offset_bytes, length_bytes, has_data } = change;
                    let is_next = |last: &&mut DifferenceReport| {
                        last.has_data == has_data && last.offset_bytes + last.length_bytes == offset_bytes
                    };
                    if let Some(last) = ranges.last_mut().filter(is_next) {
                        last.length_bytes += length_bytes;
                    } else if ranges.len() == limit {
                        return Ok((ranges, Some(offset_bytes)));
                    } else {
                        ranges.push(DifferenceReport { offset_bytes, length_bytes, has_data });
                    }
                }
                from = changes.next_bytes;
            }
            Ok((ranges, None))
        })
        .await?;
    let changed_bytes = ranges.iter().map(|range| range.length_bytes).sum();
    let rest = next_offset_bytes.map_or_else(String::new, |next| {
        format!("stripewise snapshot diff {older} {} --offset {next}", asked.newer)
    });
    Ok(Response::Differences(Differences { ranges, changed_bytes, next_offset_bytes, rest }))
}
