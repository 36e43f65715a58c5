//! fio's results: JSON (`json`, `json+`), terse lines of versions 2 to 5, and its text.
//!
//! The forms hold the same results with less and less detail; of a file that has several, the most
//! detailed one counts. Expects results of `--status-interval` before the last one, results of
//! several processes in one file, and entries of each clone of a job.

mod json;
mod size;
mod terse;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use super::kit::Figures;
use super::{ImportError, broken};
use crate::records::dates::iso_8601;
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};
use size::{block_bytes, queue_depth};

/// Directions in the order of fio's options.
const DIRECTIONS: [(&str, Operation); 3] =
    [("read", Operation::Read), ("write", Operation::Write), ("trim", Operation::Discard)];

/// Result of one fio process, at its end or at an interval before.
#[derive(Clone, Debug, Default, PartialEq)]
struct Document {
    version: String,
    /// Start of the process, in seconds since 1970.
    started_s: Option<f64>,
    /// The process, as far as the form names it.
    process: Option<String>,
    /// Seconds that fio expected to go on.
    remaining_s: f64,
    jobs: Vec<Job>,
    notes: Vec<String>,
}

/// A job, or one of its clones.
#[derive(Clone, Debug, Default, PartialEq)]
struct Job {
    name: String,
    host: String,
    group: u64,
    /// Distinguishes entries of one name that are no runs of each other.
    part: usize,
    options: BTreeMap<String, String>,
    /// Workers that the form counts; otherwise the option `numjobs`.
    workers: Option<u32>,
    sides: Vec<Side>,
}

/// A direction of a job.
#[derive(Clone, Debug, PartialEq)]
struct Side {
    name: &'static str,
    op: Operation,
    bytes: Option<f64>,
    requests: Option<f64>,
    runtime_s: Option<f64>,
    bytes_per_s: f64,
    iops: Option<f64>,
    latency: Option<Latencies>,
    /// Requests whose latency was taken.
    samples: f64,
}

/// Reads all results of fio in a text; `None` if it has none.
pub(super) fn read(text: &str) -> Result<Option<RunRecord>, ImportError> {
    let (documents, cut) = json::documents(text)?;
    let (format, mut notes, documents) = if !documents.is_empty() {
        ("fio JSON", cut, documents)
    } else if let documents = terse::documents(text)
        && !documents.is_empty()
    {
        ("fio terse", Vec::new(), documents)
    } else if let documents = text::documents(text)
        && !documents.is_empty()
    {
        let rounded = "fio's text has rounded figures; --output-format=json has all digits";
        ("fio text", vec![rounded.to_owned()], documents)
    } else if let Some(first) = cut.into_iter().next() {
        return Err(broken("fio JSON", first));
    } else {
        return Ok(None);
    };
    let all = documents.len();
    let documents = finals(documents);
    if documents.len() < all {
        notes.push(format!("the last result counts; interim results left out: {}", all - documents.len()));
    }
    record_of(documents, notes, format).map(Some)
}

/// Removes the results that a later one of the same process replaces.
fn finals(documents: Vec<Document>) -> Vec<Document> {
    let mut finals: Vec<Document> = Vec::new();
    for document in documents {
        match finals.last_mut() {
            Some(last) if is_interim(last, &document) => *last = document,
            _ => finals.push(document),
        }
    }
    finals
}

/// True if both are of one process, and the second is the later one.
fn is_interim(first: &Document, second: &Document) -> bool {
    let names = |document: &Document| -> Vec<(String, String)> {
        document.jobs.iter().map(|job| (job.name.clone(), job.host.clone())).collect()
    };
    if names(first) != names(second) || first.version != second.version {
        return false;
    }
    match (first.process.as_ref().zip(second.process.as_ref()), first.started_s.zip(second.started_s)) {
        (Some((one, other)), _) => return one == other,
        // The time since the start is in whole seconds.
        (None, Some((one, other))) if (one - other).abs() > 1.1 => return false,
        (None, None) => return false,
        _ => {}
    }
    let grows = |before: &Side, after: &Side| {
        let equal = before.bytes == after.bytes && before.runtime_s == after.runtime_s;
        // Two runs can begin in one second, but not do equal work at different rates.
        let fits = !equal || before.bytes_per_s == after.bytes_per_s || first.remaining_s > 0.0;
        fits && before.bytes <= after.bytes && before.runtime_s <= after.runtime_s
    };
    first.jobs.iter().zip(&second.jobs).all(|(before, after)| {
        before.sides.iter().all(|side| {
            let same = after.sides.iter().find(|after| after.name == side.name);
            same.is_some_and(|after| grows(side, after))
        })
    })
}

fn record_of(
    documents: Vec<Document>,
    notes: Vec<String>,
    format: &'static str,
) -> Result<RunRecord, ImportError> {
    let mut record = RunRecord { profile: "fio".into(), notes, ..RunRecord::default() };
    let first = documents.first().expect("there is a document");
    record.tool = if first.version.is_empty() { "fio".to_owned() } else { first.version.clone() };
    record.date = first.started_s.map(|seconds| iso_8601(seconds as u64)).unwrap_or_default();
    let jobs = || documents.iter().flat_map(|document| &document.jobs);
    let hosts: BTreeSet<&str> = jobs().map(|job| job.host.as_str()).collect();
    if let [only] = hosts.iter().collect::<Vec<_>>()[..]
        && !only.is_empty()
    {
        record.environment.insert("host".into(), (*only).to_owned());
    }
    let named = |key: &str| jobs().find_map(|job| job.options.get(key).cloned());
    record.target = named("filename").or_else(|| named("directory")).unwrap_or_default();
    let mut figures = Figures::default();
    for document in &documents {
        record.notes.extend(document.notes.iter().cloned());
        for job in without_clones(&document.jobs) {
            add_job(&job, hosts.len() > 1, &mut figures);
        }
    }
    if figures.is_empty() {
        let errors = record.notes.first().map(|note| format!(" ({note})")).unwrap_or_default();
        return Err(broken(format, format!("no job in it read, wrote or trimmed anything{errors}")));
    }
    record.measurements = figures.finish()?;
    Ok(record)
}

fn add_job(job: &Job, several_hosts: bool, figures: &mut Figures) {
    let option = |key: &str| job.options.get(key).map(String::as_str);
    let origin = format!("{} {} {:?}", job.host, job.part, job.options);
    for (at, side) in job.sides.iter().enumerate() {
        let name = match several_hosts {
            true => format!("{}: {} {}", job.host, job.name, side.name),
            false => format!("{} {}", job.name, side.name),
        };
        let position = DIRECTIONS.iter().position(|(name, _)| *name == side.name).unwrap_or(at);
        let figure = MeasurementRecord {
            iops: side.iops,
            queue_depth: queue_depth(&job.options),
            workers: job.workers.or_else(|| match option("numjobs") {
                Some(jobs) => jobs.parse().ok(),
                None => (!job.options.is_empty()).then_some(1),
            }),
            block_bytes: block_bytes(&job.options, position, side),
            latency_us: side.latency,
            unit: Unit::MbPerS,
            ..MeasurementRecord::empty(name, side.op)
        };
        figures.add(figure.with_runs(vec![side.bytes_per_s / 1e6]), &origin);
    }
}

/// Adds up the entries of clones (`numjobs` without `group_reporting`), which ran at the same time.
fn without_clones(jobs: &[Job]) -> Vec<Job> {
    let mut all: Vec<(Job, Vec<&Job>)> = Vec::new();
    for job in jobs {
        let is_clone = |other: &Job| {
            let same_place = other.host == job.host && other.group == job.group;
            same_place && other.name == job.name && other.options == job.options
        };
        match all.last_mut() {
            Some((first, clones)) if is_clone(first) => clones.push(job),
            _ => all.push((job.clone(), vec![job])),
        }
    }
    all.into_iter()
        .map(|(first, clones)| if clones.len() == 1 { first } else { sum(&first, &clones) })
        .collect()
}

fn sum(first: &Job, clones: &[&Job]) -> Job {
    let sides = |name: &str| -> Vec<&Side> {
        clones.iter().flat_map(|job| &job.sides).filter(|side| side.name == name).collect()
    };
    let directions = clones.iter().flat_map(|job| &job.sides).map(|side| side.name);
    let mut names: Vec<&'static str> = Vec::new();
    directions.for_each(|name| {
        if !names.contains(&name) {
            names.push(name);
        }
    });
    let workers = clones.iter().map(|job| job.workers.unwrap_or(1)).sum();
    let sides = names.into_iter().map(|name| sum_of_sides(&sides(name))).collect();
    Job { workers: Some(workers), sides, ..first.clone() }
}

fn sum_of_sides(sides: &[&Side]) -> Side {
    let total = |of: fn(&Side) -> Option<f64>| sides.iter().map(|side| of(side)).sum::<Option<f64>>();
    let (bytes, requests) = (total(|side| side.bytes), total(|side| side.requests));
    let seconds = sides.iter().filter_map(|side| side.runtime_s).max_by(f64::total_cmp);
    let over = |amount: Option<f64>| amount.zip(seconds).map(|(amount, seconds)| amount / seconds);
    let summed = sides.iter().map(|side| side.bytes_per_s).sum();
    let samples: f64 = sides.iter().map(|side| side.samples).sum();
    let means = sides.iter().map(|side| Some(side.latency?.mean? * side.samples)).sum::<Option<f64>>();
    let max = sides.iter().filter_map(|side| side.latency?.max).max_by(f64::total_cmp);
    // Percentiles of clones do not combine.
    let latency = Latencies {
        mean: means.filter(|_| samples > 0.0).map(|sum| sum / samples),
        max,
        ..Latencies::default()
    };
    Side {
        bytes,
        requests,
        runtime_s: seconds,
        bytes_per_s: over(bytes).unwrap_or(summed),
        iops: over(requests).or_else(|| total(|side| side.iops)),
        latency: (latency != Latencies::default()).then_some(latency),
        samples,
        ..sides[0].clone()
    }
}
