//! Predictions beside the published rows, as `stripewise model validate --json` prints them; the
//! rows are a table.

use std::path::Path;

use pyo3::prelude::*;
use serde::Serialize;
use stripewise_model::studies::{self, DataError};
use stripewise_model::validate::{
    Answer, Halves, LeftOut, Summary, TableSummary, all_halves, leave_out as left_out_of, summarise, tables,
    validate as validated,
};

use crate::catalogue::BUILT_IN;
use crate::failure::{Failure, json};
use crate::table::{Column, PyTable};
use crate::work;

#[derive(Serialize)]
struct Document<'a> {
    tables: Vec<&'a TableSummary>,
    studies: Vec<&'a TableSummary>,
    median_error_percent: f64,
    p90_error_percent: f64,
    fitted_numbers: usize,
    halves: Vec<Half<'a>>,
    left_out: Vec<LeftOut>,
}

#[derive(Serialize)]
struct Half<'a> {
    study: &'a str,
    #[serde(flatten)]
    halves: Halves,
}

fn failure(error: &DataError) -> Failure {
    Failure::other(error.to_string(), error.hint())
}

/// Summaries as a document, and all rows. `halves` and `leave_out` add the errors on rows that were
/// left out of a fit, which takes much longer.
#[pyfunction]
pub(crate) fn validate(
    py: Python<'_>,
    study: Option<String>,
    data: Option<String>,
    halves: bool,
    leave_out: bool,
    seed: u64,
) -> PyResult<(String, PyTable)> {
    let (document, answers) = work::run(py, None, move |_| {
        let rows = match &data {
            Some(path) => studies::read(Path::new(path)).map_err(|error| failure(&error))?,
            None => studies::built_in(),
        };
        let is_wanted = |row: &studies::Row| study.as_ref().is_none_or(|study| row.text("study") == study);
        let rows: Vec<_> = rows.into_iter().filter(is_wanted).collect();
        let answers = validated(&BUILT_IN, &rows).map_err(|error| failure(&error))?;
        if answers.is_empty() {
            let (message, hint) = match &study {
                Some(study) => (format!("study {study} has no measured rows"), "one of 000, 001, 002, 004"),
                None => ("this data has no measured rows".to_owned(), "see studies/ for examples"),
            };
            return Err(Failure::request(message, hint));
        }
        let halves = match halves {
            true => all_halves(&BUILT_IN, &rows, seed).map_err(|error| failure(&error))?,
            false => Vec::new(),
        };
        let left_out = match leave_out {
            true => left_out_of(&BUILT_IN, &rows, seed).map_err(|error| failure(&error))?,
            false => Vec::new(),
        };
        let all = tables(&answers);
        let (studies, tables) = all.iter().partition(|table| table.table.is_empty());
        let Summary { median_error_percent, p90_error_percent, .. } = summarise(&answers);
        let document = json(&Document {
            tables,
            studies,
            median_error_percent,
            p90_error_percent,
            fitted_numbers: BUILT_IN.fitted().len(),
            halves: halves.iter().map(|(study, halves)| Half { study, halves: *halves }).collect(),
            left_out,
        })?;
        Ok((document, answers))
    })?;
    Ok((document, table(&answers)))
}

fn table(answers: &[Answer]) -> PyTable {
    let text = |name, of: fn(&Answer) -> &str| Column::text(name, answers.iter().map(|one| Some(of(one))));
    let columns = vec![
        text("study", |one| &one.study),
        text("table", |one| &one.table),
        text("row", |one| &one.row),
        text("metric", |one| &one.metric),
        Column::real("published", answers.iter().map(|one| Some(one.published))),
        Column::real("predicted", answers.iter().map(|one| one.predicted)),
        Column::real("error_percent", answers.iter().map(|one| one.error_percent)),
        Column::truth("fitted", answers.iter().map(|one| Some(one.fitted))),
    ];
    PyTable::new(answers.len(), columns)
}
