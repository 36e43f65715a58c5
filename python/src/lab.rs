//! The laboratory's result store: runs, figures, samples and latencies as tables, and comparisons as
//! `stripewise lab compare --json` prints them.
//!
//! Expected faults: no store, a file that is none, an unknown run, runs without a common figure.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use stripewise_lab::paired::compare_runs;
use stripewise_lab::record::{Latencies, MeasurementRecord, Operation, RunRecord};
use stripewise_lab::store::{ListedRun, Sample, Second, Store, StoreError};

use crate::failure::{Failure, Result, interrupted, json};
use crate::table::{Column, PyTable};
use crate::work;

fn failure(error: &StoreError) -> Failure {
    match error {
        StoreError::NoRun(_) => Failure::request(error.to_string(), "stripewise.lab.runs() lists the runs"),
        _ => Failure::other(error.to_string(), error.hint()),
    }
}

/// Opens a store that is there; unlike the command line, reading makes none.
fn open(path: &Path) -> Result<Store> {
    if !path.exists() {
        return Err(Failure::other(
            format!("there is no result store at {}", path.display()),
            "`stripewise lab run` and `lab import` make one; or name another with store=",
        ));
    }
    Store::open(path).map_err(|error| failure(&error))
}

fn load(store: &Store, name: &str) -> Result<RunRecord> {
    store.find(name).and_then(|run| store.load(&run)).map_err(|error| failure(&error))
}

/// The named runs, or all of them, the newest first.
fn load_all(path: &Path, names: &[String]) -> Result<(Store, Vec<RunRecord>)> {
    let store = open(path)?;
    let all = match names.is_empty() {
        true => store.list().map_err(|error| failure(&error))?.into_iter().map(|run| run.run).collect(),
        false => names.to_vec(),
    };
    let runs = all.iter().map(|name| load(&store, name)).collect::<Result<_>>()?;
    Ok((store, runs))
}

/// The runs of the store, the newest first.
#[pyfunction]
pub(crate) fn lab_runs(py: Python<'_>, store: PathBuf) -> PyResult<PyTable> {
    let runs = work::run(py, None, move |_| open(&store)?.list().map_err(|error| failure(&error)))?;
    let text = |name, of: fn(&ListedRun) -> &str| Column::text(name, runs.iter().map(|run| Some(of(run))));
    let columns = vec![
        text("run", |run| &run.run),
        text("date", |run| &run.date),
        text("profile", |run| &run.profile),
        text("tool", |run| &run.tool),
        text("target", |run| &run.target),
        Column::truth("finished", runs.iter().map(|run| Some(run.finished))),
    ];
    Ok(PyTable::new(runs.len(), columns))
}

/// A run with its figures, as `stripewise lab show --json` prints it.
#[pyfunction]
pub(crate) fn lab_run(py: Python<'_>, store: PathBuf, run: String) -> PyResult<String> {
    work::run(py, None, move |_| json(&load(&open(&store)?, &run)?))
}

/// Figures of runs.
#[pyfunction]
pub(crate) fn lab_measurements(py: Python<'_>, store: PathBuf, runs: Vec<String>) -> PyResult<PyTable> {
    let runs = work::run(py, None, move |_| Ok(load_all(&store, &runs)?.1))?;
    let rows: Vec<(&RunRecord, &MeasurementRecord)> =
        runs.iter().flat_map(|run| run.measurements.iter().map(move |figure| (run, figure))).collect();
    let real = |name, of: fn(&MeasurementRecord) -> Option<f64>| {
        Column::real(name, rows.iter().map(|(_, figure)| of(figure)))
    };
    let whole = |name, of: fn(&MeasurementRecord) -> Option<i64>| {
        Column::whole(name, rows.iter().map(|(_, figure)| of(figure)))
    };
    let latency = |name, of: fn(&Latencies) -> Option<f64>| {
        Column::real(name, rows.iter().map(|(_, figure)| figure.latency_us.as_ref().and_then(of)))
    };
    let operations: Vec<_> = rows.iter().map(|(_, figure)| operation(figure.op)).collect();
    let columns = vec![
        Column::text("run", rows.iter().map(|(run, _)| Some(run.run.as_str()))),
        Column::text("measurement", rows.iter().map(|(_, figure)| Some(figure.name.as_str()))),
        Column::text("op", operations.iter().map(Option::as_deref)),
        whole("block_bytes", |figure| figure.block_bytes.map(|bytes| bytes as i64)),
        whole("queue_depth", |figure| figure.queue_depth.map(i64::from)),
        whole("workers", |figure| figure.workers.map(i64::from)),
        real("mb_per_s", |figure| figure.mb_per_s),
        real("iops", |figure| figure.iops),
        latency("latency_mean_us", |latency| latency.mean),
        latency("latency_p50_us", |latency| latency.p50),
        latency("latency_p99_us", |latency| latency.p99),
        latency("latency_p999_us", |latency| latency.p999),
        latency("latency_max_us", |latency| latency.max),
        Column::text("unit", rows.iter().map(|(_, figure)| Some(figure.unit.text()))),
        whole("runs", |figure| Some(figure.runs.len() as i64)),
        real("ci95_low", |figure| figure.ci95.map(|[low, _]| low)),
        real("ci95_high", |figure| figure.ci95.map(|[_, high]| high)),
        Column::truth(
            "valid",
            rows.iter().map(|(_, figure)| Some(figure.badges.values().all(|holds| *holds))),
        ),
    ];
    Ok(PyTable::new(rows.len(), columns))
}

/// The name of an operation in documents.
fn operation(op: Operation) -> Option<String> {
    serde_json::to_value(op).ok()?.as_str().map(str::to_owned)
}

/// One run of a figure: its value, and the measured window if the store has it.
struct Row<T> {
    run: usize,
    figure: usize,
    /// Counted from 1, as `lab export` does.
    sample: usize,
    of: T,
}

/// Rows with the columns that name their sample.
struct Rows<T> {
    runs: Vec<RunRecord>,
    rows: Vec<Row<T>>,
}

impl<T: Send + 'static> Rows<T> {
    /// Reads the samples of the named runs; `rows(figure, index, sample)` are those of one sample.
    fn read(
        py: Python<'_>,
        store: PathBuf,
        names: Vec<String>,
        rows: impl Fn(&MeasurementRecord, usize, Option<Sample>) -> Vec<T> + Send + 'static,
    ) -> PyResult<Self> {
        work::run(py, None, move |progress| {
            let (store, runs) = load_all(&store, &names)?;
            let mut all = Vec::new();
            for (run, record) in runs.iter().enumerate() {
                if !progress.note(run as u64, runs.len() as u64) {
                    return Err(interrupted());
                }
                for (figure, measurement) in record.measurements.iter().enumerate() {
                    let kept = store.samples(&record.run, figure).map_err(|error| failure(&error))?;
                    let count = kept.len().max(measurement.runs.len());
                    let samples = kept.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
                    for (index, sample) in samples.take(count).enumerate() {
                        let row = |of| Row { run, figure, sample: index + 1, of };
                        all.extend(rows(measurement, index, sample).into_iter().map(row));
                    }
                }
            }
            Ok(Self { runs, rows: all })
        })
    }

    fn figure(&self, row: &Row<T>) -> &MeasurementRecord {
        &self.runs[row.run].measurements[row.figure]
    }

    /// The table: names of the sample, then `columns`.
    fn table(&self, columns: impl IntoIterator<Item = Column>) -> PyTable {
        let rows = self.rows.iter();
        let mut all = vec![
            Column::text("run", rows.clone().map(|row| Some(self.runs[row.run].run.as_str()))),
            Column::text("measurement", rows.clone().map(|row| Some(self.figure(row).name.as_str()))),
            Column::whole("sample", rows.map(|row| Some(row.sample as i64))),
        ];
        all.extend(columns);
        PyTable::new(self.rows.len(), all)
    }

    fn real(&self, name: &str, of: impl Fn(&T) -> Option<f64>) -> Column {
        Column::real(name, self.rows.iter().map(|row| of(&row.of)))
    }

    fn whole(&self, name: &str, of: impl Fn(&T) -> Option<u64>) -> Column {
        Column::whole(name, self.rows.iter().map(|row| of(&row.of).map(|value| value as i64)))
    }
}

/// The single runs of each figure, with their windows.
#[pyfunction]
pub(crate) fn lab_samples(py: Python<'_>, store: PathBuf, runs: Vec<String>) -> PyResult<PyTable> {
    let rows =
        Rows::read(py, store, runs, |figure, index, sample| vec![(figure.runs.get(index).copied(), sample)])?;
    let whole = |name, of: fn(&Sample) -> u64| rows.whole(name, |(_, sample)| sample.as_ref().map(of));
    Ok(rows.table([
        rows.real("value", |(value, _)| *value),
        Column::text("unit", rows.rows.iter().map(|row| Some(rows.figure(row).unit.text()))),
        rows.real("started_s", |(_, sample)| sample.as_ref().map(|sample| sample.started_s)),
        rows.real("seconds", |(_, sample)| sample.as_ref().map(|sample| sample.seconds)),
        whole("bytes", |sample| sample.bytes),
        whole("requests", |sample| sample.requests),
        whole("errors", |sample| sample.errors),
        rows.real("cpu_seconds", |(_, sample)| sample.as_ref().and_then(|sample| sample.cpu_seconds)),
    ]))
}

/// The seconds of each sample.
#[pyfunction]
pub(crate) fn lab_seconds(py: Python<'_>, store: PathBuf, runs: Vec<String>) -> PyResult<PyTable> {
    let rows = Rows::read(py, store, runs, |_, _, sample| {
        let seconds = sample.map(|sample| sample.per_second).unwrap_or_default();
        seconds.into_iter().enumerate().collect::<Vec<(usize, Second)>>()
    })?;
    let latency =
        |name, of: fn(&Second) -> f64| rows.real(name, move |(_, at)| (at.longest_us > 0.0).then(|| of(at)));
    Ok(rows.table([
        rows.whole("second", |(number, _)| Some(*number as u64 + 1)),
        rows.whole("bytes", |(_, second)| Some(second.bytes)),
        latency("latency_mean_us", |second| second.mean_us),
        latency("latency_max_us", |second| second.longest_us),
    ]))
}

/// A class of latencies.
struct Class {
    op: &'static str,
    low_ns: u64,
    high_ns: u64,
    count: u64,
}

fn classes(sample: Option<Sample>) -> Vec<Class> {
    let Some(sample) = sample else { return Vec::new() };
    let kept = [("read", sample.read_latency), ("write", sample.write_latency)];
    let kept = kept.into_iter().filter_map(|(op, histogram)| Some((op, histogram?)));
    kept.flat_map(|(op, histogram)| {
        let class = |low_ns, high_ns, count| Class { op, low_ns, high_ns, count };
        let recorded = histogram.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value()));
        recorded
            .map(|(value, count)| {
                class(histogram.lowest_equivalent(value), histogram.highest_equivalent(value), count)
            })
            .collect::<Vec<_>>()
    })
    .collect()
}

/// The latencies of each sample: classes that are not empty.
#[pyfunction]
pub(crate) fn lab_histograms(py: Python<'_>, store: PathBuf, runs: Vec<String>) -> PyResult<PyTable> {
    let rows = Rows::read(py, store, runs, |_, _, sample| classes(sample))?;
    Ok(rows.table([
        Column::text("op", rows.rows.iter().map(|row| Some(row.of.op))),
        rows.real("low_us", |class| Some(class.low_ns as f64 / 1e3)),
        rows.real("high_us", |class| Some(class.high_ns as f64 / 1e3)),
        rows.whole("count", |class| Some(class.count)),
    ]))
}

/// The figures of a run against those of another.
#[pyfunction]
pub(crate) fn lab_compare(py: Python<'_>, store: PathBuf, first: String, second: String) -> PyResult<String> {
    work::run(py, None, move |_| {
        let store = open(&store)?;
        let compared = compare_runs(&load(&store, &first)?, &load(&store, &second)?);
        json(&compared.map_err(|error| {
            let hint =
                "only runs of the same method can be compared; stripewise.lab.measurements() lists them";
            Failure::request(error.to_string(), hint)
        })?)
    })
}
