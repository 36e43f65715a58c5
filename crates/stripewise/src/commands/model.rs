//! The models' commands: the catalogue, replays of measured traces, and what an array will do
//! before it is built.

mod catalogue;
mod own;
mod predict;
mod reliability;
mod replay;
mod sweep;
mod validate;

use clap::Subcommand;
use stripewise_model::predict::State;
use stripewise_model::system::CatalogueError;

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};

pub(crate) use predict::profile_loads;

/// Commands on models.
#[derive(Subcommand)]
pub(crate) enum ModelCommand {
    /// List the drives of the catalogue, or one with every parameter and its source
    Catalogue(catalogue::Options),
    /// Predict the performance and bottleneck of a system of the catalogue, or of drives under a
    /// layout
    Predict(predict::Options),
    /// Predict every combination of layouts, drives, strip sizes and loads
    Sweep(sweep::Options),
    /// Compare the predictions with every row of the published studies
    Validate(validate::Options),
    /// Estimate the probability of data loss of a layout
    Reliability(Box<reliability::Options>),
    /// Replay a measured trace against a described hard disk and print the error
    Replay(replay::Options),
}

pub(crate) fn run(command: &ModelCommand, app: &App) -> Result<Exit> {
    match command {
        ModelCommand::Catalogue(options) => catalogue::run(options, app),
        ModelCommand::Predict(options) => predict::run(options, app),
        ModelCommand::Sweep(options) => sweep::run(options, app),
        ModelCommand::Validate(options) => validate::run(options, app),
        ModelCommand::Reliability(options) => reliability::run(options, app),
        ModelCommand::Replay(options) => replay::run(options, app),
    }
}

pub(super) use predict::lab_load;

pub(super) fn system_failure(error: &CatalogueError) -> Failure {
    Failure::new(error.to_string()).hint(error.hint())
}

fn parse_state(text: &str) -> std::result::Result<State, String> {
    match text {
        "normal" => Ok(State::Normal),
        "degraded" => Ok(State::Degraded),
        "rebuilding" => Ok(State::Rebuilding),
        other => Err(format!("there is no state `{other}`: normal, degraded or rebuilding")),
    }
}

/// Parses a fraction from 0 to 1.
fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("`{text}` is not a share from 0 to 1"))?;
    (0.0..=1.0).contains(&share).then_some(share).ok_or_else(|| format!("{share} is not within 0 and 1"))
}
