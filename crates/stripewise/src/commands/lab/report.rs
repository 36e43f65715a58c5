//! `lab report`: runs as one page of HTML that refers to nothing outside itself.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use stripewise_control::registry::replace_file;
use stripewise_lab::Chart;
use stripewise_lab::lab_report::{ReportedRun, charted_figures, lab_report_charts, lab_report_html};

use super::{store, store_failure};
use crate::commands::{App, evaluate};
use crate::failure::{Exit, Failure, Result, system_text};

/// Write a report of runs as one HTML page
#[derive(Args)]
#[command(after_help = "Example: stripewise lab report before latest -o report.html")]
pub(crate) struct Options {
    /// The runs
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<String>,
    /// Output file
    #[arg(short, long, value_name = "FILE.html", default_value = "lab-report.html")]
    out: PathBuf,
    /// Also write each chart as SVG and PNG to this directory
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
}

#[derive(Serialize)]
struct Written {
    report: PathBuf,
    runs: Vec<String>,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let store = store(app)?;
    let load = |name: &String| {
        let run = store.load(&store.find(name)?)?;
        let positions = 0..run.measurements.len().min(charted_figures(options.runs.len()));
        let samples: std::result::Result<Vec<_>, _> =
            positions.map(|position| store.samples(&run.run, position)).collect();
        samples.map(|samples| ReportedRun { run, samples })
    };
    let runs: std::result::Result<Vec<ReportedRun>, _> = options.runs.iter().map(load).collect();
    let runs = runs.map_err(|error| store_failure(&error))?;
    let path = app.absolute(&options.out);
    replace_file(&path, lab_report_html(&runs).as_bytes())
        .map_err(|error| Failure::new(format!("cannot write {}: {}", path.display(), system_text(&error))))?;
    if let Some(folder) = &options.charts {
        write_charts(&app.absolute(folder), &lab_report_charts(&runs))?;
    }
    let written = Written { report: path, runs: runs.into_iter().map(|run| run.run.run).collect() };
    app.printer.result(&written, |page| page.line(format!("report: {}", written.report.display())))?;
    Ok(Exit::Success)
}

/// Writes the charts, numbered in the order of the page.
pub(super) fn write_charts(folder: &Path, charts: &[Chart]) -> Result<()> {
    let folder = evaluate::prepare_output(folder)?;
    for (number, chart) in charts.iter().enumerate() {
        for (ending, bytes) in [("svg", chart.svg.clone().into_bytes()), ("png", chart.png())] {
            let path = folder.join(format!("{:02}.{ending}", number + 1));
            replace_file(&path, &bytes).map_err(|error| {
                Failure::new(format!("cannot write {}: {}", path.display(), system_text(&error)))
            })?;
        }
    }
    Ok(())
}
