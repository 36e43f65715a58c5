//! `lab compare`: decides whether the second run is better or worse than the first, if the runs
//! allow it.

use clap::Args;
use serde::Serialize;
use stripewise_lab::record::RunRecord;
use stripewise_lab::statistics::{Comparison, Direction, Pair, Verdict, compare};

use super::text::number;
use super::{store, store_failure};
use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Style, Table, plain};

/// Compare two runs: better, worse, or undecided
#[derive(Args)]
#[command(
    after_help = "A difference is reported if the medians differ by 3 % or more and the p-value of an exact rank \
                        test, corrected for the number of comparisons, is below 5 %."
)]
pub(crate) struct Options {
    /// Baseline run
    #[arg(value_name = "A")]
    first: String,
    /// Run to compare with the baseline
    #[arg(value_name = "B")]
    second: String,
}

#[derive(Serialize)]
struct Compared {
    first: String,
    second: String,
    comparisons: Vec<Comparison>,
    only_in_one: Vec<String>,
}

pub(super) fn run(options: &Options, app: &App) -> Result<Exit> {
    let store = store(app)?;
    let load =
        |name: &str| store.find(name).and_then(|run| store.load(&run)).map_err(|error| store_failure(&error));
    let (first, second) = (load(&options.first)?, load(&options.second)?);
    let (pairs, only_in_one) = pairs(&first, &second);
    if pairs.is_empty() {
        return Err(Failure::new(format!("{} and {} have no measurement in common", first.run, second.run))
            .hint(
                "only runs of the same method can be compared; `stripewise lab show` lists a run's measurements",
            ));
    }
    let comparisons = compare(&pairs);
    let compared = Compared { first: first.run, second: second.run, comparisons, only_in_one };
    app.printer.result(&compared, |page| {
        let mut table = Table::new(&["MEASUREMENT", ">B / A", ">95 % INTERVAL", "VERDICT", ">RUNS NEEDED"]);
        for found in &compared.comparisons {
            let verdict = match found.verdict {
                Verdict::Better => ("better".to_owned(), Style::Good),
                Verdict::Worse => ("worse".to_owned(), Style::Bad),
                Verdict::CannotTell => plain("undecided"),
            };
            let interval = found.ci95.map_or_else(String::new, |[low, high]| {
                format!("{} – {}", number(Some(low)), number(Some(high)))
            });
            table.row([
                plain(found.measurement.clone()),
                plain(number(Some(found.ratio))),
                plain(interval),
                verdict,
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

fn pairs(first: &RunRecord, second: &RunRecord) -> (Vec<Pair>, Vec<String>) {
    let (mut pairs, mut alone) = (Vec::new(), Vec::new());
    for figure in &first.measurements {
        let other = second.measurements.iter().find(|other| other.name == figure.name);
        match other.filter(|other| other.unit == figure.unit) {
            None => alone.push(figure.name.clone()),
            Some(other) => pairs.push(Pair {
                name: figure.name.clone(),
                first: figure.runs.clone(),
                second: other.runs.clone(),
                direction: match figure.unit.higher_is_better() {
                    true => Direction::HigherIsBetter,
                    false => Direction::LowerIsBetter,
                },
            }),
        }
    }
    let is_known = |name: &String| first.measurements.iter().any(|figure| figure.name == *name);
    alone.extend(second.measurements.iter().map(|figure| figure.name.clone()).filter(|name| !is_known(name)));
    (pairs, alone)
}
