//! The log of a process that keeps pools open (`serve`, `mount`): on standard error, for people or
//! as one JSON document a line.
//!
//! Events are logged with `tracing`: a sentence and fields, under the targets `daemon` (the process
//! itself), `pool` (pools, drives, jobs), `client` (users of volumes), `command` (requests) and
//! `alert`. Other commands keep no log and print for people.
//!
//! A thread of its own writes the lines (`log_lines.rs`), so that a slow reader holds up no pool.
//!
//! Expected faults: an invalid level (refused), a reader that leaves or does not read (lines are
//! dropped, and their number is logged).

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::commands::App;
use crate::failure::{Failure, Result};
use crate::log_lines::{self, Lines};

/// Environment variable for the level.
const LEVEL_VARIABLE: &str = "STRIPEWISE_LOG";

/// Options for the log.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogOptions {
    /// Format of the log on standard error
    #[arg(long = "log-format", value_name = "FORMAT", value_enum, default_value = "text")]
    format: Format,
    /// Log level: error, warn, info, debug or trace, also by target (daemon, pool, client, command,
    /// alert), such as info,client=warn. Default: STRIPEWISE_LOG, or info (warn with --quiet)
    #[arg(long = "log-level", value_name = "LEVEL", value_parser = targets)]
    level: Option<Targets>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// One JSON document a line
    Json,
}

/// Parses a default level, and levels of targets.
fn targets(text: &str) -> std::result::Result<Targets, String> {
    let is_level = |text: &str| {
        let known = ["off", "error", "warn", "info", "debug", "trace"];
        known.iter().any(|known| known.eq_ignore_ascii_case(text))
    };
    // Without this check an unknown level would count as a target: everything of it would be
    // logged, and nothing else.
    let is_known = |part: &str| is_level(part.rsplit_once('=').map_or(part, |(_, level)| level));
    let wrong = || {
        format!("`{text}` is no level; valid levels: error, warn, info, debug, trace; also info,client=warn")
    };
    match text.split(',').all(is_known) {
        true => text.parse().map_err(|_| wrong()),
        false => Err(wrong()),
    }
}

/// The level from the command line or the environment.
fn level(options: &LogOptions, quiet: bool) -> Result<Targets> {
    if let Some(level) = &options.level {
        return Ok(level.clone());
    }
    match std::env::var(LEVEL_VARIABLE) {
        Ok(text) if !text.is_empty() => {
            targets(&text).map_err(|error| Failure::usage(format!("{LEVEL_VARIABLE}: {error}")))
        }
        _ => Ok(Targets::new().with_default(if quiet { Level::WARN } else { Level::INFO })),
    }
}

/// Starts the log; the printer's messages then go there, too.
pub(crate) fn begin(options: &LogOptions, app: &App) -> Result<()> {
    let level = level(options, app.printer.is_quiet())?;
    // The journal of systemd adds times, and reads the level from the beginning of a line.
    let in_journal = std::env::var_os("JOURNAL_STREAM").is_some() && !std::io::stderr().is_terminal();
    let lines = Lines {
        levels: in_journal,
        are_json: options.format == Format::Json,
        have_colours: app.printer.colours().err && !in_journal,
    };
    let lines = log_lines::begin(lines)
        .map_err(|error| Failure::because("cannot keep a log: no thread could be started", &error))?;
    let to_lines = fmt::layer().with_writer(lines).with_ansi(lines.have_colours);
    let layer = match (options.format, in_journal) {
        (Format::Text, false) => to_lines.compact().boxed(),
        (Format::Text, true) => to_lines.compact().without_time().boxed(),
        (Format::Json, false) => to_lines.json().flatten_event(true).boxed(),
        (Format::Json, true) => to_lines.json().flatten_event(true).without_time().boxed(),
    };
    app.printer.log_failures_as_json(options.format == Format::Json);
    let begun = tracing_subscriber::registry().with(layer.with_filter(level)).try_init();
    begun.map_err(|error| Failure::new(format!("cannot keep a log: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words_with_or_without_a_target() {
        for good in ["info", "WARN", "off", "info,client=warn", "client=debug"] {
            assert!(targets(good).is_ok(), "{good}");
        }
        for wrong in ["", "loud", "info,loud", "client=loud", "client", "info,"] {
            assert!(targets(wrong).is_err(), "{wrong}");
        }
        let targets = targets("warn,pool=debug").expect("levels");
        assert!(targets.would_enable("pool", &Level::DEBUG) && !targets.would_enable("client", &Level::INFO));
    }
}
