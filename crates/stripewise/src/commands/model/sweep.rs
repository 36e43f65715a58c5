//! `model sweep`: predictions for every combination of parameters, as CSV or JSON lines.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;
use stripewise_control::registry::replace_file;
use stripewise_control::size::ByteSize;
use stripewise_model::predict::State;
use stripewise_model::sweep::{Sweep, csv, json_lines};
use stripewise_model::system::{Catalogue, Configuration, Over};

use super::{parse_share, parse_state, system_failure};
use crate::commands::App;
use crate::failure::{Exit, Failure, Result, system_text};
use crate::printer::write_out;

/// Predict every combination of layouts, drives, strip sizes and loads
#[derive(Args)]
#[command(after_help = "Example: stripewise model sweep --drive x25e --layouts raid5,raid6 --drives 4,8")]
pub(crate) struct Options {
    /// The drive, by its name in the catalogue
    #[arg(long, value_name = "NAME")]
    drive: String,
    /// Numbers of drives
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "4")]
    drives: Vec<usize>,
    /// Layouts
    #[arg(long, value_name = "LAYOUT,…", value_delimiter = ',', default_value = "raid0,raid5,raid10")]
    layouts: Vec<String>,
    /// Strip sizes
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "64K")]
    interleaves: Vec<ByteSize>,
    /// Request sizes
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', default_value = "4K,64K,1M")]
    blocks: Vec<ByteSize>,
    /// Outstanding requests per worker
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,32")]
    depths: Vec<usize>,
    /// Fractions of reads
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_value = "0,1", value_parser = parse_share)]
    read_shares: Vec<f64>,
    /// Fractions of random requests
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', default_value = "0,1", value_parser = parse_share)]
    random_shares: Vec<f64>,
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Controller or software [default: hba]
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
    /// Link between host and array: 10gbe, 2.5gbe, 1gbe …
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// State of the array: normal, degraded or rebuilding
    #[arg(long, default_value = "normal", value_parser = parse_state)]
    state: State,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Output format: csv, or jsonl (one JSON document per line)
    #[arg(long, default_value = "csv")]
    format: Format,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Csv,
    Jsonl,
}

#[derive(Serialize)]
struct Swept<'a> {
    points: &'a [stripewise_model::sweep::Point],
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let catalogue = Catalogue::built_in();
    let one = format!("1x{}", options.drive);
    catalogue.drives(&one).map_err(|error| system_failure(&error))?;
    if options.depths.contains(&0) || options.workers == 0 || options.blocks.iter().any(|size| size.0 == 0) {
        return Err(Failure::usage("depths, workers and blocks must be at least 1"));
    }
    let sweep = Sweep {
        base: Configuration {
            drives: one,
            layout: "single".into(),
            columns: None,
            interleave_kib: None,
            groups: None,
            controller: options.controller.clone().unwrap_or_else(|| "hba".into()),
            controllers: 1,
            over: Over::Drives,
            file_system: false,
            link: options.link.clone(),
            journal: None,
            filled: None,
        },
        drive: options.drive.clone(),
        state: options.state,
        layouts: options.layouts.clone(),
        drives: options.drives.clone(),
        interleaves_kib: options.interleaves.iter().map(|size| size.0 >> 10).collect(),
        blocks: options.blocks.iter().map(|size| size.0).collect(),
        depths: options.depths.clone(),
        read_shares: options.read_shares.clone(),
        random_shares: options.random_shares.clone(),
        workers: options.workers,
        seed: options.seed,
    };
    // An unknown name would fail every point: report it once.
    catalogue.build("sweep", &sweep.base).map_err(|error| system_failure(&error))?;
    let points = sweep.run(&catalogue);
    if app.printer.is_json() {
        app.printer.result(&Swept { points: &points }, |_| ())?;
        return Ok(Exit::Success);
    }
    let text = match options.format {
        Format::Csv => csv(&points),
        Format::Jsonl => json_lines(&points),
    };
    match &options.out {
        None => write_out(text.as_bytes())?,
        Some(path) => {
            let path = app.absolute(path);
            replace_file(&path, text.as_bytes()).map_err(|error| {
                Failure::new(format!("cannot write {}: {}", path.display(), system_text(&error)))
            })?;
            app.printer.note(format!("{} points: {}", points.len(), path.display()));
        }
    }
    Ok(Exit::Success)
}
