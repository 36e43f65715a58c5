//! `lab export`: runs as CSV, one run of a measurement a row, or as JSON.

use clap::Args;
use serde::Serialize;
use stripewise_lab::record::{MeasurementRecord, RunRecord};

use super::{store, store_failure};
use crate::commands::App;
use crate::failure::{Exit, Result};

/// Print runs as CSV or JSON
#[derive(Args)]
#[command(after_help = "Example: stripewise lab export latest")]
pub(crate) struct Options {
    /// Runs, each by name, by the beginning of its name, or `latest`
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
    /// Print CSV [default]
    #[arg(long)]
    csv: bool,
}

#[derive(Serialize)]
struct Exported {
    runs: Vec<RunRecord>,
}

const HEADINGS: &str =
    "run,date,profile,tool,target,measurement,op,block_bytes,queue_depth,workers,sample,value,unit";

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let store = store(app)?;
    let load = |name: &String| store.find(name).and_then(|run| store.load(&run));
    let runs: std::result::Result<Vec<RunRecord>, _> = options.runs.iter().map(load).collect();
    let exported = Exported { runs: runs.map_err(|error| store_failure(&error))? };
    if options.csv && app.printer.is_json() {
        return Err(crate::failure::Failure::usage("either --csv or --json"));
    }
    app.printer.result(&exported, |page| {
        page.line(HEADINGS);
        for run in &exported.runs {
            for figure in &run.measurements {
                for (sample, value) in figure.runs.iter().enumerate() {
                    page.line(row(run, figure, sample, *value));
                }
            }
        }
    })?;
    Ok(Exit::Success)
}

fn row(run: &RunRecord, figure: &MeasurementRecord, sample: usize, value: f64) -> String {
    let op = serde_json::to_value(figure.op).ok().and_then(|op| op.as_str().map(str::to_owned));
    let whole = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    [
        quoted(&run.run),
        quoted(&run.date),
        quoted(&run.profile),
        quoted(&run.tool),
        quoted(&run.target),
        quoted(&figure.name),
        op.unwrap_or_default(),
        whole(figure.block_bytes),
        whole(figure.queue_depth.map(u64::from)),
        whole(figure.workers.map(u64::from)),
        (sample + 1).to_string(),
        value.to_string(),
        figure.unit.text().to_owned(),
    ]
    .join(",")
}

/// Quotes a CSV field. A text that a spreadsheet would evaluate as a formula is disarmed.
fn quoted(text: &str) -> String {
    let text = match text.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{text}"),
        _ => text.to_owned(),
    };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_and_formulas_disarmed() {
        assert_eq!(quoted("a,b\"c"), "\"a,b\"\"c\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
        assert_eq!(quoted("plain"), "plain");
    }
}
