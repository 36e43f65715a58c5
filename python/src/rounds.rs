//! An estimate of reliability whose trials other processes make (`stripewise.ray`): blocks of trials
//! there, rounds and the stop condition here. The answer is that of [`crate::reliability`].
//!
//! Expected faults: sums that are not those of the blocks that were asked for.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stripewise_model::reliability::{Rounds, Sums, run_blocks};

use crate::failure::{Failure, Result, interrupted};
use crate::reliability::{Asked, Request, failure, stop};
use crate::work;

/// Questions of the last request: a process makes many blocks of one estimate, and asking may take
/// a prediction of the rebuild.
static LAST: Mutex<Option<(Request, Arc<Asked>)>> = Mutex::new(None);

fn asked(request: &Request) -> Result<Arc<Asked>> {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, asked)) = last.as_ref().filter(|(known, _)| known == request) {
        return Ok(Arc::clone(asked));
    }
    let asked = Arc::new(Asked::of(request)?);
    *last = Some((request.clone(), Arc::clone(&asked)));
    Ok(asked)
}

/// The sums of blocks of trials, each of the same length. `is_field`: with latent errors as found
/// in the field.
#[pyfunction]
pub(crate) fn reliability_blocks(
    py: Python<'_>,
    request: Request,
    is_field: bool,
    range: (u64, u64),
) -> PyResult<Py<PyBytes>> {
    let sums = work::run(py, None, move |progress| {
        let asked = asked(&request)?;
        let question = asked.question(is_field).ok_or_else(no_question)?;
        let mut all = Vec::new();
        // One after the other: a task has one processor.
        for block in range.0..range.1 {
            let go_on = || progress.step(range.1 - range.0);
            let (question, bytes) = (&question.question, question.bytes_per_group);
            let sums = run_blocks(question, bytes, request.seed, block..block + 1, &go_on);
            all.extend(sums.map_err(|error| failure(error.into()))?.ok_or_else(interrupted)?);
        }
        Ok(all)
    })?;
    let bytes: Vec<u8> = sums.iter().flat_map(Sums::to_bytes).collect();
    Ok(PyBytes::new(py, &bytes).unbind())
}

fn no_question() -> Failure {
    Failure::request("this estimate has no second question", "only those with `ure` have one")
}

/// Rounds of an estimate.
#[pyclass(module = "stripewise._native", name = "Rounds")]
pub(crate) struct PyRounds {
    request: Request,
    asked: Arc<Asked>,
    rounds: Rounds,
    is_field: bool,
}

#[pymethods]
impl PyRounds {
    /// The rounds of a question; of that with latent errors as found in the field if `is_field`.
    #[new]
    fn new(py: Python<'_>, request: Request, is_field: bool) -> PyResult<Self> {
        work::run(py, None, move |_| {
            let asked = asked(&request)?;
            let question = asked.question(is_field).ok_or_else(no_question)?;
            let rounds = Rounds::new(&question.question, &stop(&request)?);
            let rounds = rounds.map_err(|error| failure(error.into()))?;
            Ok(Self { request, asked, rounds, is_field })
        })
    }

    /// First and end of the next round's blocks; `None` if the answer is there.
    fn next_blocks(&self) -> Option<(u64, u64)> {
        self.rounds.next_blocks().map(|blocks| (blocks.start, blocks.end))
    }

    /// Adds the sums of all blocks of the round, in order.
    fn add(&mut self, sums: &[u8]) -> PyResult<()> {
        let wanted = self.rounds.next_blocks().map_or(0, |blocks| blocks.end - blocks.start);
        let (chunks, rest) = sums.as_chunks::<{ Sums::BYTES }>();
        if chunks.len() as u64 != wanted || !rest.is_empty() || wanted == 0 {
            let message = format!("{} bytes are not the sums of {wanted} blocks", sums.len());
            return Err(Failure::request(message, "add the blocks of next_blocks()").into());
        }
        self.rounds.add(chunks.iter().map(Sums::from_bytes).collect());
        Ok(())
    }

    /// Trials made, and the estimated total.
    fn trials(&self) -> (u64, u64) {
        (self.rounds.trials(), self.rounds.expected_trials())
    }

    /// The answer as a document; `field` is the estimate of the second question.
    fn document(&self, field: Option<&Self>) -> PyResult<String> {
        let answer = |rounds: &Self| {
            let question = rounds.asked.question(rounds.is_field);
            question.map(|asked| rounds.rounds.answer(&asked.question))
        };
        let found = answer(self).ok_or_else(no_question)?;
        Ok(self.asked.document(&self.request, found, field.and_then(answer))?)
    }
}
