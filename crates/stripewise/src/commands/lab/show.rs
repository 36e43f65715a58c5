//! `lab show`: one run's figures, as `lab run` printed them.

use clap::Args;

use super::text::page_of;
use super::{store, store_failure};
use crate::commands::App;
use crate::failure::{Exit, Result};

/// Show a run's figures
#[derive(Args)]
#[command(after_help = "Example: stripewise lab show latest")]
pub(crate) struct Options {
    /// Name of the run, the beginning of its name, or `latest`
    #[arg(value_name = "RUN")]
    run: String,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let store = store(app)?;
    let run = store.find(&options.run).and_then(|run| store.load(&run));
    let run = run.map_err(|error| store_failure(&error))?;
    app.printer.result(&run, |page| page_of(&run, page))?;
    Ok(Exit::Success)
}
