//! `lab compare`: decides whether the second run is better or worse than the first, if the runs
//! allow it.

use clap::Args;
use stripewise_lab::paired::{ComparedRuns, compare_runs};
use stripewise_lab::statistics::{Undecided, Verdict};

use super::text::number;
use super::{store, store_failure};
use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Style, Table, plain};

/// Compare two runs: better, worse, or undecided
#[derive(Args)]
#[command(after_help = "A difference is reported if the medians differ by 3 % or more and the p-value of \
        an exact rank test, corrected for the number of comparisons, is below 5 %. Intervals have \
        the same correction. RUNS NEEDED shows a difference of 10 % in nine of ten cases.\n\n\
        Example: stripewise lab compare before latest")]
pub(crate) struct Options {
    /// Baseline run
    #[arg(value_name = "A")]
    first: String,
    /// Run to compare with the baseline
    #[arg(value_name = "B")]
    second: String,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let store = store(app)?;
    let load =
        |name: &str| store.find(name).and_then(|run| store.load(&run)).map_err(|error| store_failure(&error));
    let (first, second) = (load(&options.first)?, load(&options.second)?);
    let compared =
        compare_runs(&first, &second).map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    app.printer.result(&compared, |page| {
        page.line(summary(&compared));
        page.line("");
        let mut table =
            Table::new(&["MEASUREMENT", ">B / A", ">95 % INTERVAL", "VERDICT", ">RUNS", ">RUNS NEEDED"]);
        for (found, runs) in compared.comparisons.iter().zip(&compared.runs) {
            let verdict = match found.verdict {
                Verdict::Better => ("better".to_owned(), Style::Good),
                Verdict::Worse => ("worse".to_owned(), Style::Bad),
                Verdict::CannotTell => plain(match found.undecided {
                    Some(Undecided::TooFewRuns) => "undecided: too few runs",
                    Some(Undecided::Small) => "differs by less than 3 %",
                    _ => "undecided",
                }),
            };
            let interval = found.ci95.map_or_else(
                || "–".to_owned(),
                |[low, high]| format!("{} – {}", number(Some(low)), number(Some(high))),
            );
            table.row([
                plain(found.measurement.clone()),
                plain(number(Some(found.ratio))),
                plain(interval),
                verdict,
                plain(runs.to_string()),
                plain(found.runs_needed.to_string()),
            ]);
        }
        page.table(&table);
        for name in &compared.only_in_one {
            page.line(format!("note: {name} is in only one of the runs"));
        }
    })?;
    Ok(Exit::Success)
}

/// The verdict in a sentence, and how to get one that is missing.
fn summary(compared: &ComparedRuns) -> String {
    let all = &compared.comparisons;
    let count = |verdict| all.iter().filter(|found| found.verdict == verdict).count();
    let because = |why| all.iter().filter(|found| found.undecided == Some(why)).count();
    let mut text = format!(
        "{} against {}: better in {} of {} figures, worse in {}",
        compared.second,
        compared.first,
        count(Verdict::Better),
        all.len(),
        count(Verdict::Worse)
    );
    if because(Undecided::Small) > 0 {
        text += &format!(", less than 3 % apart in {}", because(Undecided::Small));
    }
    let (few, noise) = (because(Undecided::TooFewRuns), because(Undecided::Noise));
    if few + noise > 0 {
        text += &format!(", undecided in {}", few + noise);
    }
    text.push('.');
    let undecided = all.iter().filter(|found| found.verdict == Verdict::CannotTell);
    let needed = undecided.filter(|found| found.undecided != Some(Undecided::Small));
    let needed = needed.map(|found| found.runs_needed).max().unwrap_or(0);
    if few > 0 {
        text += &format!(
            " With so few runs and {} comparisons no difference can be shown, however large; \
             measure both with --runs {needed}.",
            all.len()
        );
    } else if noise > 0 {
        text += &format!(" To show a difference of 10 %, measure both with --runs {needed}.");
    }
    text
}
