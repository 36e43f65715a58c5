//! The laboratory's commands: methods for any storage, the store of results, and reports on them.

mod compare;
mod export;
mod import;
mod list;
pub(crate) mod profile;
mod profiles;
mod report;
mod run;
mod show;
mod study;
pub(super) mod target;
mod text;

use clap::Subcommand;
use stripewise_lab::store::{Store, StoreError};

use crate::commands::App;
use crate::failure::{Exit, Failure, Result, chain};

/// Commands of the laboratory.
#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// List the methods that `lab run` knows
    Profiles(profiles::Options),
    /// Measure a volume, device, file, directory or NBD export with a method
    Run(run::Options),
    /// Repeat a published study: its configurations, method and tables; check its findings
    Study(study::Options),
    /// List the runs in the result store
    List(list::Options),
    /// Show a run's figures
    Show(show::Options),
    /// Compare two runs: better, worse, or undecided
    Compare(compare::Options),
    /// Write a report of runs as one HTML page
    Report(report::Options),
    /// Import the results of another tool into the store
    Import(import::Options),
    /// Print runs as CSV or JSON
    Export(export::Options),
}

pub(crate) fn run(command: &LabCommand, app: &App) -> Result<Exit> {
    match command {
        LabCommand::Profiles(options) => profiles::run(options, app),
        LabCommand::Run(options) => run::run(options, app),
        LabCommand::Study(options) => study::run(options, app),
        LabCommand::List(options) => list::run(options, app),
        LabCommand::Show(options) => show::run(options, app),
        LabCommand::Compare(options) => compare::run(options, app),
        LabCommand::Report(options) => report::run(options, app),
        LabCommand::Import(options) => import::run(options, app),
        LabCommand::Export(options) => export::run(options, app),
    }
}

/// The result store of this user.
fn store(app: &App) -> Result<Store> {
    Store::open(&app.registry()?.lab_path()?).map_err(|error| store_failure(&error))
}

fn store_failure(error: &StoreError) -> Failure {
    Failure::new(chain(error)).hint(error.hint())
}
