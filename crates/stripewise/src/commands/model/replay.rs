//! `model replay`: a measured trace against a described hard disk, and how far both are apart.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use stripewise_model::replay::{Description, Percentiles, ReplayError, Trace, replay};

use crate::commands::App;
use crate::failure::{Exit, Failure, Result, system_text};
use crate::printer::{Table, plain};

/// Replay a measured trace against a described hard disk and print the error
#[derive(Args)]
#[command(after_help = "Example: stripewise model replay --drive drive.json trace.csv")]
pub(crate) struct Options {
    /// Description of the drive, in the format of studies/disksim/README.md
    #[arg(long, value_name = "FILE.json")]
    drive: PathBuf,
    /// Trace: requests with their measured response times
    #[arg(value_name = "TRACE.csv")]
    trace: PathBuf,
    /// Random seed of the rotational phase, which is not in the trace
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let description = Description::parse(&name(&options.drive), &text(&options.drive)?);
    let description = description.map_err(|error| failure(&error))?;
    let trace = Trace::parse(&name(&options.trace), &text(&options.trace)?);
    let trace = trace.map_err(|error| failure(&error))?;
    let result = replay(&description, &trace, options.seed).map_err(|error| failure(&error))?;
    let replayed = result.summary(&description, &trace);
    app.printer.result(&replayed, |page| {
        page.line(format!(
            "{}: {} requests, demerit {:.3} ms ({:.1} % of the measured mean)",
            replayed.drive, replayed.requests, replayed.demerit_ms, replayed.demerit_percent
        ));
        let mut table = Table::new(&["RESPONSE (ms)", ">MEAN", ">P50", ">P90", ">P99", ">P99.9", ">MAX"]);
        let mut row = |what: &str, mean_ms: f64, at: &Percentiles| {
            let cell = |ms: f64| plain(format!("{ms:.3}"));
            table.row([
                plain(what),
                cell(mean_ms),
                cell(at.p50),
                cell(at.p90),
                cell(at.p99),
                cell(at.p999),
                cell(at.max),
            ]);
        };
        row("model", replayed.mean_ms, &replayed.percentiles_ms);
        row("measured", replayed.measured_mean_ms, &replayed.measured_percentiles_ms);
        page.table(&table);
    })?;
    Ok(Exit::Success)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn text(path: &Path) -> Result<String> {
    let failed = |why: String| {
        Failure::missing(format!("cannot read {}: {why}", path.display()))
            .hint("studies/disksim/README.md describes the form of drives and traces")
    };
    let bytes = fs::read(path).map_err(|error| failed(system_text(&error)))?;
    String::from_utf8(bytes).map_err(|_| failed("it is no text".into()))
}

fn failure(error: &ReplayError) -> Failure {
    Failure::new(format!("cannot replay: {error}"))
        .hint("studies/disksim/README.md describes the form of drives and traces")
}
