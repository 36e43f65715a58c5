//! fio's terse lines (`--minimal`, `--output-format=terse`), of format versions 2 to 5.
//!
//! The first field is the format version, and it alone determines the columns: 4 and 5 add trims,
//! 5 adds figures to each direction.

use super::{DIRECTIONS, Document, Job, Side};
use crate::records::record::Latencies;

/// Fields of a direction after its bandwidth, requests a second and time: submission, completion.
const COMPLETION_AT: usize = 8;
const PERCENTILES_AT: usize = 12;
const PERCENTILES: usize = 20;
const TOTAL_AT: usize = PERCENTILES_AT + PERCENTILES;

/// Columns of a format version.
struct Columns {
    /// Index of the job's name; group and error follow.
    name: usize,
    /// Fields of a direction.
    side: usize,
    directions: usize,
}

fn columns(fields: &[&str]) -> Option<Columns> {
    let columns = match fields[0] {
        // Newer programs print trims in this version too; otherwise the processor's share follows.
        "2" => {
            let after_writes = fields.get(4 + 2 * 41)?;
            Columns { name: 1, side: 41, directions: if after_writes.ends_with('%') { 2 } else { 3 } }
        }
        "3" => Columns { name: 2, side: 41, directions: 2 },
        "4" => Columns { name: 2, side: 41, directions: 3 },
        "5" => Columns { name: 2, side: 47, directions: 3 },
        _ => return None,
    };
    let cpu = fields.get(columns.name + 3 + columns.side * columns.directions)?;
    (cpu.ends_with('%') && (fields[0] == "2" || fields[1].starts_with("fio"))).then_some(columns)
}

/// The results of the lines in a text, in their order.
pub(super) fn documents(text: &str) -> Vec<Document> {
    let mut documents: Vec<Document> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.trim().split(';').collect();
        let Some(columns) = (fields.len() > 80).then(|| columns(&fields)).flatten() else { continue };
        let name = fields[columns.name].to_owned();
        let mut notes = Vec::new();
        if fields[columns.name + 2] != "0" {
            notes.push(format!("{name}: fio ended with error {}", fields[columns.name + 2]));
        }
        let sides = (0..columns.directions).filter_map(|at| {
            let first = columns.name + 3 + at * columns.side;
            side(at, &fields[first..first + columns.side])
        });
        let job = Job {
            name,
            group: fields[columns.name + 1].parse().unwrap_or(0),
            sides: sides.collect(),
            ..Job::default()
        };
        let version = if columns.name == 2 { fields[1].to_owned() } else { "fio".to_owned() };
        documents.push(Document { version, jobs: vec![job], notes, ..Document::default() });
    }
    mark_repeated(&mut documents);
    documents
}

/// Lines of one job are its state at intervals if its work grows a good deal from the first to the
/// last. Otherwise they may be clones or other runs, which the form does not distinguish.
fn mark_repeated(documents: &mut [Document]) {
    let work = |document: &Document| -> (f64, f64) {
        let sides = || document.jobs[0].sides.iter();
        let most = |of: fn(&Side) -> Option<f64>| sides().filter_map(of).fold(0.0, f64::max);
        (most(|side| side.runtime_s), sides().filter_map(|side| side.bytes).sum())
    };
    let key = |document: &Document| (document.jobs[0].name.clone(), document.jobs[0].group);
    let mut start = 0;
    while start < documents.len() {
        let same = documents[start..].iter().take_while(|other| key(other) == key(&documents[start])).count();
        let lines = &mut documents[start..start + same];
        let works: Vec<(f64, f64)> = lines.iter().map(work).collect();
        let grows = works.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1);
        let is_series = same > 1 && grows && works[0].0 * 1.5 < works[same - 1].0;
        for (number, line) in lines.iter_mut().enumerate() {
            line.process = Some(if is_series { format!("{start}") } else { format!("{start}.{number}") });
            if same > 1 && !is_series {
                line.jobs[0].part = number;
            }
        }
        if same > 1 && !is_series {
            let name = &lines[0].jobs[0].name;
            let note =
                format!("{name}: {same} lines, of clones or repeated runs: each is a figure of its own");
            lines[0].notes.push(note);
        }
        start += same;
    }
}

fn side(at: usize, fields: &[&str]) -> Option<Side> {
    let (name, op) = DIRECTIONS[at];
    let figure = |at: usize| fields[at].parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    let percentile = |wanted: &str| {
        let all = fields[PERCENTILES_AT..TOTAL_AT].iter();
        let found = all.filter_map(|field| field.split_once("%=")).find(|(percent, _)| *percent == wanted);
        found.and_then(|(_, time)| time.parse::<f64>().ok()).filter(|time| *time > 0.0)
    };
    // All times are in microseconds; those of a job that took none are 0.
    let times = [TOTAL_AT, COMPLETION_AT].into_iter().find(|at| figure(at + 2).is_some());
    let latency = times.map(|at| Latencies {
        mean: figure(at + 2),
        p50: percentile("50.000000"),
        p99: percentile("99.000000"),
        p999: percentile("99.900000"),
        max: figure(at + 1),
    });
    let bytes_per_s = figure(1)? * 1024.0;
    Some(Side {
        name,
        op,
        bytes: figure(0).map(|kib| kib * 1024.0),
        requests: None,
        runtime_s: figure(3).map(|ms| ms / 1e3),
        bytes_per_s,
        iops: figure(2),
        latency,
        samples: 0.0,
    })
}
