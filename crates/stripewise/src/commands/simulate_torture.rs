//! `simulate torture`: random pools led through random lives in virtual time, with every fault a
//! drive can have, and every promise checked. A run is named by its seed and is the same every
//! time; no drive of this machine is touched.
//!
//! Expected faults: a promise that is broken (exit code 1, with the seed that shows it).

use std::num::NonZeroUsize;

use clap::Args;
use serde::Serialize;
use stripewise_torture::{
    CAN_BREAK, Coverage, Failure as Broken, Focus, Mutation, Options as TortureOptions, run as run_seed,
    run_many,
};

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Style};
use crate::progress::Progress;

/// Lead random pools through power cuts, drive losses and every other fault, and check every
/// promise. Exit code 1: one was broken
#[derive(Args)]
#[command(after_help = "Example: stripewise simulate torture --seed 1 --runs 100")]
pub(crate) struct Options {
    /// The seed of the first run; the others follow it
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of runs
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,
    /// Threads; left out: one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Lead lives that provoke one kind of fault; left out: all kinds, or with --mutation those
    /// that it is found in
    #[arg(long, value_name = "NAME")]
    focus: Option<String>,
    /// Break this rule of the engine, to see that it is found. Not in a release build
    #[arg(long, value_name = "NAME")]
    mutation: Option<String>,
    /// Print everything that happens in a run; for a single run
    #[arg(long)]
    trace: bool,
}

#[derive(Serialize)]
struct Report {
    first_seed: u64,
    runs: u64,
    failures: Vec<Broken>,
    coverage: Coverage,
}

pub(crate) fn run(options: &Options, app: &App) -> Result<Exit> {
    let mutation = mutation(options)?;
    let focus = focus(options)?.or(mutation.and_then(Focus::of));
    let how = TortureOptions { mutation, focus, ..TortureOptions::default() };
    let report = match options.trace && options.runs == 1 {
        true => traced(options.seed, &how, app),
        false => tortured(options, &how, app),
    };
    let exit = if report.failures.is_empty() { Exit::Success } else { Exit::Failure };
    app.printer.result(&report, |page| print(&report, &how, page))?;
    Ok(exit)
}

/// The lives that were asked for.
fn focus(options: &Options) -> Result<Option<Focus>> {
    let Some(name) = &options.focus else { return Ok(None) };
    let names = || Focus::ALL.iter().map(|focus| focus.name()).collect::<Vec<_>>().join(", ");
    let unknown = || Failure::usage(format!("unknown focus `{name}`")).hint(format!("one of {}", names()));
    Focus::named(name).ok_or_else(unknown).map(Some)
}

/// The mutation that `--mutation` names.
fn mutation(options: &Options) -> Result<Option<Mutation>> {
    let Some(name) = &options.mutation else { return Ok(None) };
    let Some(mutation) = Mutation::named(name) else {
        let names: Vec<String> = Mutation::ALL.iter().map(|mutation| mutation.name()).collect();
        return Err(Failure::usage(format!("there is no mutation `{name}`"))
            .hint(format!("one of {}", names.join(", "))));
    };
    if !CAN_BREAK {
        return Err(Failure::new(format!(
            "cannot break `{name}`: the engine of a release build cannot be broken on purpose"
        ))
        .hint(format!("in a checkout: cargo run -p stripewise -- simulate torture --mutation {name}")));
    }
    Ok(Some(mutation))
}

fn tortured(options: &Options, how: &TortureOptions, app: &App) -> Report {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = options.threads.map_or(processors, usize::from);
    let mut progress = Progress::new(&app.printer);
    let what = "torture";
    let summary = run_many(options.seed, options.runs, threads, how, |state| {
        progress.count(what, "runs", state.done, state.runs);
        true
    });
    let stripewise_torture::Summary { first_seed, runs, failures, coverage } = summary;
    Report { first_seed, runs, failures, coverage }
}

/// One run, with all that happens on standard error.
fn traced(seed: u64, how: &TortureOptions, app: &App) -> Report {
    let outcome = run_seed(seed, &TortureOptions { keep_log: true, ..*how });
    outcome.log.iter().for_each(|line| app.printer.note(line));
    Report { first_seed: seed, runs: 1, failures: outcome.failures, coverage: outcome.coverage }
}

fn print(report: &Report, how: &TortureOptions, page: &mut Page) {
    let last = report.first_seed.wrapping_add(report.runs.saturating_sub(1));
    page.field("seeds", format!("{} to {last}", report.first_seed), Style::Plain);
    for (what, count) in report.coverage.counts() {
        page.field("tried", format!("{count} {what}"), Style::Plain);
    }
    for failure in &report.failures {
        page.field(
            "broken",
            format!("{} (seed {}): {}", failure.promise, failure.seed, failure.detail),
            Style::Bad,
        );
    }
    match report.failures.first() {
        None => page.field("result", "every promise was kept", Style::Good),
        Some(failure) => {
            let focus = how.focus.map_or_else(String::new, |focus| format!(" --focus {}", focus.name()));
            let mutation = how.mutation.map_or_else(String::new, |one| format!(" --mutation {}", one.name()));
            let seed = failure.seed;
            let again =
                format!("stripewise simulate torture --seed {seed} --runs 1{focus}{mutation} --trace");
            page.field("to see it", again, Style::Plain);
        }
    }
}
