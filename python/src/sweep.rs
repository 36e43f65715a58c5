//! Predictions over every combination of parameters, as a table with the columns of
//! `stripewise model sweep`.

use pyo3::prelude::*;
use stripewise_model::sweep::{Point, Sweep};
use stripewise_model::system::{Configuration, Over};

use crate::catalogue::{BUILT_IN, failure};
use crate::failure::{Failure, Result, interrupted};
use crate::loads;
use crate::table::{Column, PyTable};
use crate::work;

/// The arguments of `stripewise.sweep`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Request {
    drive: String,
    drives: Vec<usize>,
    layouts: Vec<String>,
    interleaves_bytes: Vec<u64>,
    blocks_bytes: Vec<u64>,
    depths: Vec<usize>,
    read_shares: Vec<f64>,
    random_shares: Vec<f64>,
    workers: usize,
    controller: String,
    link: Option<String>,
    state: String,
    seed: u64,
    threads: Option<usize>,
}

/// Number of combinations, if the request is valid.
#[pyfunction]
pub(crate) fn sweep_points(request: Request) -> PyResult<usize> {
    Ok(of(&request)?.points())
}

/// Predicts every combination, or a range of them. `progress(done, total)` counts points.
#[pyfunction]
pub(crate) fn sweep(
    py: Python<'_>,
    request: Request,
    progress: Option<Py<PyAny>>,
    range: Option<(usize, usize)>,
) -> PyResult<PyTable> {
    let points = work::run(py, progress, move |progress| {
        let sweep = of(&request)?;
        let (first, end) = range.unwrap_or((0, sweep.points()));
        let range = first..end.min(sweep.points());
        let total = range.len() as u64;
        let run = || sweep.run_range(&BUILT_IN, range.clone(), &|| progress.step(total));
        let points = match request.threads {
            None => run(),
            Some(threads) => pool(threads)?.install(run),
        };
        points.ok_or_else(interrupted)
    })?;
    Ok(table(&points))
}

/// Threads of a call.
pub(crate) fn pool(threads: usize) -> Result<rayon::ThreadPool> {
    loads::at_least_one("threads", threads)?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| Failure::other(format!("cannot start threads: {error}"), "use fewer threads"))
}

fn of(request: &Request) -> Result<Sweep> {
    let one = format!("1x{}", request.drive);
    BUILT_IN.drives(&one).map_err(|error| failure(&error))?;
    for depth in &request.depths {
        loads::at_least_one("depth", *depth)?;
    }
    for block in &request.blocks_bytes {
        loads::at_least_one("block", *block as usize)?;
    }
    loads::at_least_one("workers", request.workers)?;
    for value in &request.read_shares {
        loads::share("read_share", *value)?;
    }
    for value in &request.random_shares {
        loads::share("random_share", *value)?;
    }
    let sweep = Sweep {
        base: Configuration {
            drives: one,
            layout: "single".into(),
            columns: None,
            interleave_kib: None,
            groups: None,
            controller: request.controller.clone(),
            controllers: 1,
            over: Over::Drives,
            file_system: false,
            link: request.link.clone(),
            journal: None,
            filled: None,
        },
        drive: request.drive.clone(),
        state: loads::state(&request.state)?,
        layouts: request.layouts.clone(),
        drives: request.drives.clone(),
        interleaves_kib: request.interleaves_bytes.iter().map(|bytes| bytes >> 10).collect(),
        blocks: request.blocks_bytes.clone(),
        depths: request.depths.clone(),
        read_shares: request.read_shares.clone(),
        random_shares: request.random_shares.clone(),
        workers: request.workers,
        seed: request.seed,
    };
    // An unknown name would fail every point: report it once.
    BUILT_IN.build("sweep", &sweep.base).map_err(|error| failure(&error))?;
    Ok(sweep)
}

fn table(points: &[Point]) -> PyTable {
    let text = |name, of: fn(&Point) -> &str| Column::text(name, points.iter().map(|point| Some(of(point))));
    let whole =
        |name, of: fn(&Point) -> u64| Column::whole(name, points.iter().map(|point| Some(of(point) as i64)));
    let real = |name, of: fn(&Point) -> Option<f64>| Column::real(name, points.iter().map(of));
    let columns = vec![
        text("layout", |point| &point.layout),
        whole("drives", |point| point.drives as u64),
        whole("interleave_kib", |point| point.interleave_kib),
        whole("block_bytes", |point| point.block_bytes),
        whole("depth", |point| point.depth as u64),
        real("read_share", |point| Some(point.read_share)),
        real("random_share", |point| Some(point.random_share)),
        real("mb_per_s", |point| point.mb_per_s),
        real("iops", |point| point.iops),
        real("latency_mean_us", |point| point.latency_mean_us),
        real("latency_p99_us", |point| point.latency_p99_us),
        text("bottleneck", |point| &point.bottleneck),
    ];
    PyTable::new(points.len(), columns)
}
