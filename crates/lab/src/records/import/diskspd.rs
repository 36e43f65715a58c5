//! diskspd's results: XML (`-Rxml`) and the text that it prints by default.
//!
//! Both become the same model: a time span has a length and rows of work, one per thread and
//! target. Expects text around documents, several documents in a file, several time spans, and
//! several targets, whose latencies are known only together.

mod text;
mod xml;

use std::collections::BTreeMap;

use super::kit::Figures;
use super::{ImportError, broken};
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

/// Result of one diskspd process.
#[derive(Debug, Default, PartialEq)]
struct Document {
    version: String,
    date: String,
    host: String,
    spans: Vec<Span>,
    notes: Vec<String>,
}

/// A time span: its settings and its work.
#[derive(Debug, Default, PartialEq)]
struct Span {
    seconds: f64,
    /// Settings by path.
    wishes: Vec<(String, Wish)>,
    work: Vec<Work>,
    /// Over all targets: reads, then writes.
    latencies: [Option<Latencies>; 2],
}

/// Settings of a target.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wish {
    block_bytes: Option<u64>,
    queue_depth: Option<u32>,
    threads: Option<u32>,
}

/// Work of one thread on one target.
#[derive(Clone, Debug, Default, PartialEq)]
struct Work {
    path: String,
    /// Bytes and requests: reads, then writes.
    bytes: [f64; 2],
    requests: [f64; 2],
    /// Mean latencies in microseconds, if the form has them for each thread.
    mean_us: [Option<f64>; 2],
}

/// Reads all results of diskspd in a text; `None` if it has none.
pub(super) fn read(all: &str) -> Result<Option<RunRecord>, ImportError> {
    let (documents, format, mut notes) = match xml::documents(all)? {
        Some((documents, notes)) => (documents, "diskspd XML", notes),
        None => match text::documents(all)? {
            Some(documents) => (documents, "diskspd text", Vec::new()),
            None => return Ok(None),
        },
    };
    let Some(first) = documents.first() else {
        return Err(broken(format, notes.into_iter().next().unwrap_or_else(|| "it has no results".into())));
    };
    let mut record = RunRecord {
        tool: format!("diskspd {}", first.version).trim().to_owned(),
        profile: "diskspd".into(),
        date: first.date.clone(),
        ..RunRecord::default()
    };
    if !first.host.is_empty() {
        record.environment.insert("host".into(), first.host.clone());
    }
    let hosts = documents.iter().any(|document| document.host != first.host);
    let mut figures = Figures::default();
    for document in &documents {
        notes.extend(document.notes.iter().cloned());
        for (at, span) in document.spans.iter().enumerate() {
            let prefix = if hosts { format!("{}: ", document.host) } else { String::new() };
            add_span(span, at + 1, &prefix, &mut figures);
        }
    }
    if figures.is_empty() {
        return Err(broken(format, "no time span has a target with reads or writes"));
    }
    if documents.iter().flat_map(|document| &document.spans).any(|span| by_path(span).len() > 1) {
        notes.push("latencies are those of all targets of a time span, not of each, and are left out".into());
    }
    let paths = documents.iter().flat_map(|document| &document.spans).flat_map(|span| &span.work);
    record.target = paths.map(|work| work.path.clone()).next().unwrap_or_default();
    record.notes = notes;
    record.measurements = figures.finish()?;
    Ok(Some(record))
}

/// The work of a span by target, in the order of their paths.
fn by_path(span: &Span) -> BTreeMap<&str, Vec<&Work>> {
    let mut targets: BTreeMap<&str, Vec<&Work>> = BTreeMap::new();
    for work in span.work.iter().filter(|work| work.requests != [0.0; 2]) {
        targets.entry(work.path.as_str()).or_default().push(work);
    }
    targets
}

fn add_span(span: &Span, number: usize, prefix: &str, figures: &mut Figures) {
    let targets = by_path(span);
    for (path, work) in &targets {
        let wish =
            span.wishes.iter().find(|(of, _)| of == path).map(|(_, wish)| wish.clone()).unwrap_or_default();
        for (side, op, name) in [(0, Operation::Read, "read"), (1, Operation::Write, "write")] {
            let sum = |of: fn(&Work) -> [f64; 2]| work.iter().map(|work| of(work)[side]).sum::<f64>();
            let (bytes, requests) = (sum(|work| work.bytes), sum(|work| work.requests));
            if requests == 0.0 {
                continue;
            }
            // A target that is alone has the latencies of the whole.
            let latency_us = match targets.len() {
                1 => span.latencies[side],
                _ => mean_of(work, side).map(|mean| Latencies { mean: Some(mean), ..Latencies::default() }),
            };
            let figure = MeasurementRecord {
                block_bytes: wish.block_bytes,
                queue_depth: wish.queue_depth,
                workers: wish.threads.or(u32::try_from(work.len()).ok()),
                iops: Some(requests / span.seconds),
                latency_us,
                unit: Unit::MbPerS,
                ..MeasurementRecord::empty(format!("{prefix}{path} {number} {name}"), op)
            };
            figures.add(figure.with_runs(vec![bytes / 1e6 / span.seconds]), "");
        }
    }
}

/// Mean latency over threads, by their requests.
fn mean_of(work: &[&Work], side: usize) -> Option<f64> {
    let busy = || work.iter().filter(|work| work.requests[side] > 0.0);
    let sum = busy().map(|work| Some(work.mean_us[side]? * work.requests[side])).sum::<Option<f64>>()?;
    let requests: f64 = busy().map(|work| work.requests[side]).sum();
    (requests > 0.0).then(|| sum / requests)
}
