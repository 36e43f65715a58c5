//! `lab list`: the runs in the result store, the newest first.

use clap::Args;
use serde::Serialize;
use stripewise_lab::store::ListedRun;

use super::{store, store_failure};
use crate::commands::App;
use crate::failure::{Exit, Result};
use crate::printer::{Style, Table, plain};

/// List the runs in the result store
#[derive(Args)]
#[command(after_help = "Example: stripewise lab list")]
pub(crate) struct Options {
    /// Show only the newest N runs
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

#[derive(Serialize)]
struct Listed {
    runs: Vec<ListedRun>,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let mut runs = store(app)?.list().map_err(|error| store_failure(&error))?;
    runs.truncate(options.last.unwrap_or(usize::MAX));
    let listed = Listed { runs };
    app.printer.result(&listed, |page| {
        if listed.runs.is_empty() {
            page.line("No runs yet: `stripewise lab run TARGET --profile NAME` makes one.");
            return;
        }
        let mut table = Table::new(&["RUN", "DATE", "PROFILE", "TOOL", "TARGET", ""]);
        for run in &listed.runs {
            let end = if run.finished { plain("") } else { ("not finished".to_owned(), Style::Warning) };
            table.row([
                plain(run.run.clone()),
                plain(run.date.clone()),
                plain(run.profile.clone()),
                plain(run.tool.clone()),
                plain(run.target.clone()),
                end,
            ]);
        }
        page.table(&table);
    })?;
    Ok(Exit::Success)
}
