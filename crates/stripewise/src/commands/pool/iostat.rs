//! `pool iostat`: I/O statistics of a pool's drives and volumes, as counted by the process that has
//! the pool open; since it was opened, or interval by interval.
//!
//! Expected faults: no process has the pool open (there is no I/O then, which is reported), the
//! process ends in between, a clock that is set.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::names::PoolName;
use stripewise_control::pools::load::{Interval, Load, between, rates, since_opening};
use stripewise_control::pools::other_process;
use stripewise_control::pools::session::{Session, with_pool};
use stripewise_control::pools::status_file::{StatusFile, loads};
use stripewise_control::registry::{KnownPool, Registry};
use stripewise_control::request::ShowLoad;
use stripewise_control::response::Response;

use crate::answer::print_interval;
use crate::commands::App;
use crate::failure::{Failure, Result};

/// Show I/O statistics of a pool's drives
#[derive(Args)]
#[command(after_help = "Example: stripewise pool iostat tank 5")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Length of an interval; default: the time since the pool was opened
    #[arg(value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// Number of intervals; default: until interrupted (with --json: one)
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Show the drives' I/O by cause: client data, parity, journal, checksums, ...
    #[arg(long)]
    causes: bool,
}

fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is not an interval (1 to 86400 seconds)")),
    }
}

impl Options {
    /// The request.
    pub(crate) fn request(&self) -> ShowLoad {
        ShowLoad { pool: self.name.clone(), seconds: self.seconds, count: self.count, causes: self.causes }
    }
}

pub(crate) async fn run(asked: &ShowLoad, app: &App) -> Result<Response> {
    let (registry, name) = (app.registry()?, &asked.pool.0);
    check(asked, app.printer.is_json())?;
    let known = registry.pool(name)?;
    let first = match Session::served(app, name) {
        Some(session) => Some(session.word()),
        None => other_process::wait_for_status(app, &registry, &known).await?,
    };
    let Some(first) = first else {
        return nothing_runs(app, name, asked.causes).await;
    };
    let mut load = Load {
        pool: name.clone(),
        running: true,
        intervals: Vec::new(),
        shows_causes: asked.causes,
        is_told: false,
    };
    let Some(seconds) = asked.seconds else {
        load.intervals.push(since_opening(&first));
        return Ok(Response::Load(load));
    };
    load.is_told = !app.printer.is_json();
    let count = asked.count.unwrap_or(if load.is_told { u32::MAX } else { 1 });
    let mut before = first;
    for _ in 0..count {
        let Some(now) = next(app, &registry, &known, &before, seconds).await? else {
            app.note(format!("the process that had pool `{name}` open has ended: no I/O any more"));
            break;
        };
        let interval = between(&before, &now);
        match load.is_told {
            true => app.printer.result(&(), |page| print_interval(&interval, asked.causes, page))?,
            false => load.intervals.push(interval),
        }
        before = now;
    }
    Ok(Response::Load(load))
}

/// Maximum intervals of one document, which keeps all of them in memory.
const MAX_COLLECTED: u32 = 1000;

/// Validates the times of a request, typed or sent.
fn check(asked: &ShowLoad, is_collected: bool) -> Result<()> {
    if let Some(seconds) = asked.seconds {
        parse_seconds(&seconds.to_string()).map_err(Failure::usage)?;
    }
    match asked.count {
        Some(0) => Err(Failure::usage("the number of intervals must be at least 1")),
        Some(count) if is_collected && count > MAX_COLLECTED => {
            let why = format!("{count} intervals exceed the maximum of {MAX_COLLECTED} for one document");
            Err(Failure::usage(why).hint("request fewer, in several documents"))
        }
        _ => Ok(()),
    }
}

/// The answer for a pool that no process has open: the only I/O is that of opening it.
async fn nothing_runs(app: &App, name: &str, causes: bool) -> Result<Response> {
    let drives = with_pool(app, name, Access::Look, "pool iostat", async |session| {
        Ok(loads(&session.pool, &session.report()))
    })
    .await?;
    let interval = Interval {
        seconds: 0.0,
        drives: drives.iter().map(|drive| rates(drive, None, 0.0)).collect(),
        volumes: Vec::new(),
    };
    Ok(Response::Load(Load {
        pool: name.to_owned(),
        running: false,
        intervals: vec![interval],
        shows_causes: causes,
        is_told: false,
    }))
}

/// The first status written at least `seconds` after `before`; `None` once none is written any
/// more.
async fn next(
    app: &App,
    registry: &Registry,
    known: &KnownPool,
    before: &StatusFile,
    seconds: f64,
) -> Result<Option<StatusFile>> {
    let context = app.executor()?.context();
    // The status is written once a second, and read a little later.
    let due_ms = before.unix_ms + (seconds * 1000.0) as u64 - 500;
    loop {
        context.sleep_ns(100_000_000).await;
        let word = match Session::served(app, &known.name) {
            Some(session) => Some(session.word()),
            None => other_process::read(registry, known),
        };
        let Some(word) = word else { return Ok(None) };
        // Stops if the clock was set back, or another process began to count from zero.
        if word.unix_ms >= due_ms
            || word.unix_ms < before.unix_ms
            || word.opened_unix_ms != before.opened_unix_ms
        {
            return Ok(Some(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_a_second_to_a_day() {
        for text in ["0", "-1", "0.5", "x", "1e9", "NaN"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert_eq!(parse_seconds("2.5"), Ok(2.5));
    }

    #[test]
    fn a_document_has_a_bounded_number_of_intervals() {
        let asked = |count| ShowLoad {
            pool: "tank".parse().expect("a name"),
            seconds: Some(1.0),
            count: Some(count),
            causes: false,
        };
        assert!(check(&asked(MAX_COLLECTED), true).is_ok());
        assert!(check(&asked(u32::MAX), true).is_err());
        assert!(check(&asked(u32::MAX), false).is_ok(), "people read each as it comes");
    }
}
