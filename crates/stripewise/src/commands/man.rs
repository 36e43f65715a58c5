//! `man`: writes the manual pages, one per command, from the grammar of the command line.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use serde::Serialize;

use crate::cli::Cli;
use crate::commands::App;
use crate::failure::{Exit, Failure, Result, system_text};

/// Write a manual page for each command
#[derive(Args)]
#[command(after_help = "Example: stripewise man /usr/local/share/man/man1")]
pub(crate) struct Options {
    /// Directory for the pages; created if missing
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

#[derive(Serialize)]
struct Pages {
    folder: PathBuf,
    pages: usize,
}

pub(crate) fn run(options: &Options, app: &App) -> Result<Exit> {
    let folder = &options.folder;
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot write manual pages into {}: {}", folder.display(), system_text(&error)))
            .hint("name a directory that you may write in, with room for 1 MiB")
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let grammar = Cli::command().disable_help_subcommand(true);
    let pages = number_of_commands(&grammar);
    clap_mangen::generate_to(grammar, folder).map_err(failed)?;
    let written = Pages { folder: folder.clone(), pages };
    app.printer.result(&written, |page| {
        page.line(format!("{pages} manual pages written to {}", folder.display()));
    })?;
    Ok(Exit::Success)
}

fn number_of_commands(command: &clap::Command) -> usize {
    1 + command.get_subcommands().map(number_of_commands).sum::<usize>()
}
