//! `model validate`: compares the predictions with every published row.
//!
//! Expected faults: data files with other columns or fields (the error names file, line and
//! column).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use stripewise_control::registry::replace_file;
use stripewise_model::studies::{self, DataError};
use stripewise_model::system::Catalogue;
use stripewise_model::validate::{
    Answer, Checks, Halves, LeftOut, Summary, TableSummary, all_halves, chart, findings, leave_out, markdown,
    summarise, tables, validate,
};

use super::own;
use crate::commands::App;
use crate::failure::{Exit, Failure, Result, system_text};
use crate::printer::{Page, Table, plain};

/// Compare the predictions with every row of the published studies
#[derive(Args)]
#[command(after_help = "Example: stripewise model validate")]
pub(crate) struct Options {
    /// Validate only this study: 000, 001, 002 or 004
    #[arg(long, value_name = "STUDY", value_parser = ["000", "001", "002", "004"])]
    study: Option<String>,
    /// A directory of files with the same columns, or one such file, instead of the built-in data
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print every row
    #[arg(long)]
    rows: bool,
    /// Also leave out each system and each layout of a study in turn, fit the numbers to the other
    /// rows, and predict those left out: some minutes
    #[arg(long)]
    leave_out: bool,
    /// Write the report as Markdown, and its chart as SVG next to it; includes --leave-out
    #[arg(long, value_name = "FILE.md")]
    report: Option<PathBuf>,
    /// Also compare this engine, on the modelled drives of studies 004 and 002, with the best
    /// published system of each cell
    #[arg(long, conflicts_with = "data")]
    own: bool,
    /// Random seed of the split into halves, and of where fits start
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Maximum number of lines about figures without an answer.
const MOST_UNANSWERED: usize = 40;

#[derive(Serialize)]
struct Validated<'a> {
    tables: Vec<&'a TableSummary>,
    studies: Vec<&'a TableSummary>,
    rows: &'a [Answer],
    median_error_percent: f64,
    p90_error_percent: f64,
    fitted_numbers: usize,
    halves: Vec<Half<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<&'a [LeftOut]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    own: Option<Vec<own::Cell>>,
}

#[derive(Serialize)]
struct Half<'a> {
    study: &'a str,
    #[serde(flatten)]
    halves: Halves,
}

fn data_failure(error: &DataError) -> Failure {
    Failure::new(error.to_string()).hint(error.hint())
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let catalogue = Catalogue::built_in();
    let mut rows = match &options.data {
        Some(path) => studies::read(&app.absolute(path)).map_err(|error| data_failure(&error))?,
        None => studies::built_in(),
    };
    if let Some(study) = &options.study {
        rows.retain(|row| row.text("study") == study);
    }
    let answers = validate(&catalogue, &rows).map_err(|error| data_failure(&error))?;
    if answers.is_empty() {
        return Err(
            Failure::new("this data has no measured rows").hint("see studies/ of the project for examples")
        );
    }
    let halves = all_halves(&catalogue, &rows, options.seed).map_err(|error| data_failure(&error))?;
    let left_out = match options.leave_out || options.report.is_some() {
        true => Some(leave_out(&catalogue, &rows, options.seed).map_err(|error| data_failure(&error))?),
        false => None,
    };
    let all = tables(&answers);
    let (studies, of_tables): (Vec<_>, Vec<_>) = all.iter().partition(|table| table.table.is_empty());
    let Summary { median_error_percent, p90_error_percent, .. } = summarise(&answers);
    let own = if options.own { Some(own::cells(app)?) } else { None };
    if let Some(path) = &options.report {
        let path = app.absolute(path);
        // An existing report keeps its section on this engine if that is not computed again.
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let section = own.as_ref().map_or_else(|| own::kept(&before).to_owned(), |cells| own::section(cells));
        let picture = path.with_extension("svg");
        let name = picture.file_name().unwrap_or_default().to_string_lossy().into_owned();
        write(&picture, &chart(&answers))?;
        let checks = Checks { halves: &halves, left_out: left_out.as_deref().unwrap_or_default() };
        let mut text = markdown(&catalogue, &answers, &all, checks, &findings(&catalogue), &name);
        if !section.is_empty() {
            text = format!("{}\n\n{section}", text.trim_end());
        }
        write(&path, &text)?;
        app.printer.note(format!("report: {}", path.display()));
    }
    let document = Validated {
        tables: of_tables,
        studies,
        rows: &answers,
        median_error_percent,
        p90_error_percent,
        fitted_numbers: catalogue.fitted().len(),
        halves: halves.iter().map(|(study, halves)| Half { study, halves: *halves }).collect(),
        left_out: left_out.as_deref(),
        own,
    };
    app.printer.result(&document, |page| {
        if options.rows {
            rows_of(&answers, page);
        }
        tables_of(&all, page);
        unanswered(&answers, page);
        halves_of(&halves, page);
        left_out_of(left_out.as_deref().unwrap_or_default(), page);
        fitted_of(&catalogue, page);
        if let Some(own) = &document.own {
            page.line("");
            own::section(own).lines().for_each(|line| page.line(line));
        }
    })?;
    Ok(Exit::Success)
}

fn write(path: &Path, text: &str) -> Result<()> {
    replace_file(path, text.as_bytes())
        .map_err(|error| Failure::new(format!("cannot write {}: {}", path.display(), system_text(&error))))
}

fn percent(value: f64) -> String {
    if value > 9999.0 { "none".into() } else { format!("{value:.1}") }
}

/// Names the figures without an answer, which count as the worst.
fn unanswered(answers: &[Answer], page: &mut Page) {
    let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for one in answers.iter().filter(|answer| answer.predicted.is_none()) {
        *counts.entry((&one.study, &one.table, &one.metric)).or_default() += 1;
    }
    if counts.is_empty() {
        return;
    }
    page.line("");
    page.line("no answer (no system of the catalogue, or no such figure in the model):");
    for ((study, table, metric), count) in counts.iter().take(MOST_UNANSWERED) {
        page.line(format!("  {study} {table}: {metric} ({count} row{})", if *count == 1 { "" } else { "s" }));
    }
    if counts.len() > MOST_UNANSWERED {
        page.line(format!("  and {} more; --rows prints every row", counts.len() - MOST_UNANSWERED));
    }
}

fn rows_of(answers: &[Answer], page: &mut Page) {
    let mut table = Table::new(&["TABLE", "ROW", "FIGURE", ">PUBLISHED", ">PREDICTED", ">ERROR %", ""]);
    for answer in answers {
        table.row([
            plain(format!("{} {}", answer.study, answer.table)),
            plain(answer.row.clone()),
            plain(answer.metric.clone()),
            plain(format!("{:.3}", answer.published)),
            plain(answer.predicted.map_or_else(|| "none".into(), |one| format!("{one:.3}"))),
            plain(answer.error_percent.map_or_else(|| "none".into(), |one| format!("{one:.1}"))),
            plain(if answer.fitted { "fitted" } else { "" }),
        ]);
    }
    page.table(&table);
    page.line("");
}

fn tables_of(all: &[TableSummary], page: &mut Page) {
    let mut table =
        Table::new(&["STUDY", "TABLE", ">ROWS", ">NO ANSWER", ">MEDIAN %", ">P90 %", ">IN ORDER %"]);
    for TableSummary { study, table: name, summary } in all {
        table.row([
            plain(study.clone()),
            plain(if name.is_empty() { "all" } else { name }),
            plain(summary.rows.to_string()),
            plain(summary.unanswered.to_string()),
            plain(percent(summary.median_error_percent)),
            plain(percent(summary.p90_error_percent)),
            plain(summary.pairs_in_order_percent.map_or_else(String::new, |pairs| format!("{pairs:.1}"))),
        ]);
    }
    page.table(&table);
}

fn halves_of(halves: &[(String, Halves)], page: &mut Page) {
    if halves.is_empty() {
        return;
    }
    page.line("");
    let mut table = Table::new(&["STUDY", ">FITTED HALF %", ">OTHER HALF %", ">P90 %", ">OTHER P90 %"]);
    for (study, half) in halves {
        table.row([
            plain(study.clone()),
            plain(percent(half.fitted_median_percent)),
            plain(percent(half.other_median_percent)),
            plain(percent(half.fitted_p90_percent)),
            plain(percent(half.other_p90_percent)),
        ]);
    }
    page.table(&table);
}

/// Errors of the rows that were left out, and of the same rows with all of them fitted.
fn left_out_of(left_out: &[LeftOut], page: &mut Page) {
    if left_out.is_empty() {
        return;
    }
    page.line("");
    let mut table = Table::new(&[
        "STUDY",
        "LEFT OUT",
        ">ROWS",
        ">BY DEFAULTS",
        ">MEDIAN %",
        ">P90 %",
        ">FITTED MEDIAN %",
        ">FITTED P90 %",
    ]);
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
    for one in left_out {
        table.row([
            plain(one.study.clone()),
            plain(format!("each {}", one.one_of.name())),
            plain(one.rows.to_string()),
            plain(one.rows_with_defaults.to_string()),
            plain(shown(one.median_error_percent)),
            plain(shown(one.p90_error_percent)),
            plain(shown(one.fitted_median_percent)),
            plain(shown(one.fitted_p90_percent)),
        ]);
        for group in &one.groups {
            table.row([
                plain(""),
                plain(format!("  {}", group.name)),
                plain(group.rows.to_string()),
                plain(group.rows_with_defaults.to_string()),
                plain(percent(group.median_error_percent)),
                plain(percent(group.p90_error_percent)),
                plain(""),
                plain(""),
            ]);
        }
    }
    page.table(&table);
}

fn fitted_of(catalogue: &Catalogue, page: &mut Page) {
    page.line("");
    page.line(format!("{} fitted numbers:", catalogue.fitted().len()));
    for (component, name) in catalogue.fitted() {
        let parameter = &catalogue.component[&component].parameters[&name];
        page.line(format!(
            "  {component} {name} = {} {} ({})",
            parameter.value, parameter.unit, parameter.source
        ));
    }
}
