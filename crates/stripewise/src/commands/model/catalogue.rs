//! `model catalogue`: the drives of the catalogue, with the source of each number.

use clap::Args;
use serde::Serialize;
use stripewise_control::size::ByteSize;
use stripewise_model::catalogue::{DriveEntry, ListedDrive, Origin, drives};

use crate::commands::App;
use crate::commands::evaluate::catalogue_drive;
use crate::failure::{Exit, Result};
use crate::printer::{Table, plain};

/// List the drives of the catalogue, or one with every parameter and its source
#[derive(Args)]
#[command(after_help = "Example: stripewise model catalogue")]
pub(crate) struct Options {
    /// Show this drive: its name in the catalogue, or the path of its entry
    #[arg(value_name = "DRIVE")]
    name: Option<String>,
}

#[derive(Serialize)]
struct Listed<'a> {
    drives: Vec<ListedDrive<'a>>,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let named = options.name.as_deref().map(|name| catalogue_drive(app, name)).transpose()?;
    let entries: Vec<&DriveEntry> = match &named {
        Some(entry) => vec![entry],
        None => drives().iter().collect(),
    };
    let listed = Listed { drives: entries.iter().map(|entry| entry.listed()).collect() };
    app.printer.result(&listed, |page| {
        let mut table = Table::new(&["DRIVE", ">CAPACITY", "KIND", "WHAT"]);
        for drive in &listed.drives {
            table.row([
                plain(drive.name),
                plain(ByteSize(drive.capacity_bytes).to_string()),
                plain(drive.kind),
                plain(drive.title),
            ]);
        }
        page.table(&table);
        if options.name.is_some() {
            let mut table = Table::new(&["PARAMETER", ">VALUE", "FROM", "SOURCE"]);
            for (name, parameter) in listed.drives.iter().flat_map(|drive| &drive.parameters) {
                let source = match parameter.rows {
                    [] => parameter.source.to_owned(),
                    rows => format!("{}: {}", parameter.source, rows.join("; ")),
                };
                table.row([
                    plain(*name),
                    plain(parameter.value.to_string()),
                    plain(origin(parameter.from)),
                    plain(source),
                ]);
            }
            page.line("");
            page.table(&table);
        }
    })?;
    Ok(Exit::Success)
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::DataSheet => "data sheet",
        Origin::Measured => "measured",
        Origin::Fitted => "fitted",
        Origin::Assumed => "assumed",
    }
}
