//! `completions`: the script by which a shell completes command lines, and the answers to it. The
//! script calls this program for each completion, so it completes the names of pools, volumes and
//! drives too.

mod names;

use clap::builder::StyledStr;
use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::engine::ValueCompleter;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter};
use clap_complete::env::{CompleteEnv, EnvCompleter, Shells};

use serde_json::json;

use crate::cli::Cli;
use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::OUTPUT_VERSION;

/// Set by the script when it asks this program for completions.
const VARIABLE: &str = "STRIPEWISE_COMPLETE";
const PROGRAM: &str = "stripewise";

/// Print the script that completes commands, options and the names of pools, volumes and drives
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stripewise completions bash > /usr/share/bash-completion/completions/stripewise\n  \
    stripewise completions zsh > /usr/share/zsh/site-functions/_stripewise\n  \
    stripewise completions fish > /usr/share/fish/vendor_completions.d/stripewise.fish")]
pub(crate) struct Options {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(options: &Options, app: &App) -> Result<Exit> {
    let name = match options.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let script = script(name).map_err(|error| Failure::new(format!("cannot make the script: {error}")))?;
    let document = json!({ "output_version": OUTPUT_VERSION, "shell": name, "script": script });
    app.printer.text_or_json(&script, &document.to_string())?;
    Ok(Exit::Success)
}

/// The script for a shell.
fn script(shell: &str) -> std::io::Result<String> {
    let shells = Shells::builtins();
    let shell: &dyn EnvCompleter = shells.completer(shell).expect("a shell of the library");
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    String::from_utf8(script).map_err(std::io::Error::other)
}

/// Answers a shell that asks for completions, and ends the process; does nothing otherwise.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(grammar).var(VARIABLE).complete();
}

/// The grammar, with candidates for the arguments that name pools, volumes and drives.
fn grammar() -> Command {
    with_candidates(Cli::command())
}

fn with_candidates(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let name = arg.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
        match name.as_deref() {
            Some("POOL") => arg.add(ArgValueCandidates::new(|| candidates(names::pools()))),
            Some("POOL/VOL" | "POOL[/VOL]" | "POOL/VOL[@NAME]") => {
                arg.add(ArgValueCandidates::new(|| candidates(names::volumes())))
            }
            Some("POOL/VOL@NAME") => arg.add(ArgValueCandidates::new(|| candidates(names::snapshots()))),
            Some("DRIVE" | "OLD" | "NEW") => arg.add(ArgValueCompleter::new(drives)),
            _ => arg,
        }
    });
    command.mut_subcommands(with_candidates)
}

fn candidates(names: Vec<String>) -> Vec<CompletionCandidate> {
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Paths that exist, and drives of known pools, which may be missing.
fn drives(begun: &std::ffi::OsStr) -> Vec<CompletionCandidate> {
    let mut all = PathCompleter::any().complete(begun);
    let known = names::drives().into_iter();
    let fitting = known.filter(|(path, _)| path.starts_with(&*begun.to_string_lossy()));
    all.extend(fitting.map(|(path, pool)| {
        CompletionCandidate::new(path).help(Some(StyledStr::from(format!("drive of pool {pool}"))))
    }));
    all
}
