//! Random lives of random pools, as `stripewise simulate torture --json` prints them.

use std::num::NonZeroUsize;

use pyo3::prelude::*;
use stripewise_torture::{Focus, Options, run_many};

use crate::failure::{Failure, Result, json};
use crate::loads;
use crate::work;

/// The arguments of `stripewise.torture`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Request {
    seed: u64,
    runs: u64,
    focus: Option<String>,
    threads: Option<usize>,
}

fn focus(name: Option<&str>) -> Result<Option<Focus>> {
    let Some(name) = name else { return Ok(None) };
    let names = || Focus::ALL.iter().map(|focus| focus.name()).collect::<Vec<_>>().join(", ");
    let unknown = || Failure::request(format!("unknown focus `{name}`"), format!("one of {}", names()));
    Focus::named(name).ok_or_else(unknown).map(Some)
}

/// Runs consecutive seeds. `progress(done, total)` counts runs.
#[pyfunction]
pub(crate) fn torture(py: Python<'_>, request: Request, progress: Option<Py<PyAny>>) -> PyResult<String> {
    work::run(py, progress, move |progress| {
        let options = Options { focus: focus(request.focus.as_deref())?, ..Options::default() };
        loads::at_least_one("runs", usize::try_from(request.runs).unwrap_or(usize::MAX))?;
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = request.threads.unwrap_or(processors);
        loads::at_least_one("threads", threads)?;
        let summary = run_many(request.seed, request.runs, threads, &options, |state| {
            progress.note(state.done, state.runs)
        });
        json(&summary)
    })
}
