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
    Answer, Halves, Summary, TableSummary, all_halves, chart, findings, markdown, summarise, tables, validate,
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
    /// Write the report as Markdown, and its chart as SVG next to it
    #[arg(long, value_name = "FILE.md")]
    report: Option<PathBuf>,
    /// Also compare this engine, on the modelled drives of studies 004 and 002, with the best
    /// published system of each cell
    #[arg(long, conflicts_with = "data")]
    own: bool,
    /// Random seed of the split into halves
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
        let mut text = markdown(&catalogue, &answers, &all, &halves, &findings(&catalogue), &name);
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
        own,
    };
    app.printer.result(&document, |page| {
        page_of(&all, &answers, &halves, &catalogue, options.rows, page);
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

fn page_of(
    all: &[TableSummary],
    answers: &[Answer],
    halves: &[(String, Halves)],
    catalogue: &Catalogue,
    every_row: bool,
    page: &mut Page,
) {
    if every_row {
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
    unanswered(answers, page);
    if !halves.is_empty() {
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
