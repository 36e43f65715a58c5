//! `lab profiles`: the methods that the laboratory brings along.

use clap::Args;
use serde::Serialize;
use stripewise_lab::method::{Profile, built_in, built_in_names};

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Table, plain};

/// List the methods that `lab run` knows
#[derive(Args)]
#[command(after_help = "Example: stripewise lab profiles")]
pub(crate) struct Options {}

#[derive(Serialize)]
struct Listed {
    profiles: Vec<ListedProfile>,
}

#[derive(Serialize)]
struct ListedProfile {
    name: String,
    tool: String,
    about: String,
    measurements: Vec<String>,
}

pub(super) fn run(_: &Options, app: &App) -> Result<Exit> {
    let all: std::result::Result<Vec<Profile>, _> =
        built_in_names().iter().map(|name| built_in(name)).collect();
    let all = all.map_err(|error| Failure::because("cannot list profiles", &error))?;
    let profiles = all
        .into_iter()
        .map(|profile| ListedProfile {
            measurements: match profile.files {
                Some(method) => method.figures(),
                None => profile.steps.iter().map(|step| step.name.clone()).collect(),
            },
            name: profile.name,
            tool: profile.tool,
            about: profile.about,
        })
        .collect();
    let listed = Listed { profiles };
    app.printer.result(&listed, |page| {
        let mut table = Table::new(&["PROFILE", ">FIGURES", "AFTER", "WHAT"]);
        for profile in &listed.profiles {
            let count = profile.measurements.len().to_string();
            table.row([
                plain(profile.name.clone()),
                plain(count),
                plain(profile.tool.clone()),
                plain(profile.about.clone()),
            ]);
        }
        page.table(&table);
    })?;
    Ok(Exit::Success)
}
