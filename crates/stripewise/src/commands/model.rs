//! The models' commands: drives of the catalogue, and replays of measured traces.

mod catalogue;
mod replay;

use clap::Subcommand;

use crate::commands::App;
use crate::failure::{Exit, Result};

/// Commands on models.
#[derive(Subcommand)]
pub enum ModelCommand {
    /// List the drives of the catalogue, or one with every parameter and its source
    Catalogue(catalogue::Options),
    /// Replay a measured trace against a described hard disk and print the error
    Replay(replay::Options),
}

/// Runs it.
pub fn run(command: &ModelCommand, app: &App) -> Result<Exit> {
    match command {
        ModelCommand::Catalogue(options) => catalogue::run(options, app),
        ModelCommand::Replay(options) => replay::run(options, app),
    }
}
