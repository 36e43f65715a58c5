//! The verdict on an evaluation in a few sentences: the fastest layouts, what a failure costs, the
//! rebuild, the data.

use crate::records::results::{ArrayResult, Evaluation, Severity, State};
use crate::reports::figures::{bytes, duration, number};

/// The verdict as plain text.
pub(crate) fn verdict(evaluation: &Evaluation) -> String {
    let parts = [
        data(evaluation),
        fastest(evaluation),
        failure(evaluation),
        rebuild(evaluation),
        warnings(evaluation),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn data(evaluation: &Evaluation) -> Option<String> {
    let sum = |of: fn(&ArrayResult) -> u64| evaluation.arrays.iter().map(of).sum::<u64>();
    let (verified, corrupt) = (sum(|array| array.verified_bytes), sum(|array| array.corrupt_bytes));
    match (verified, corrupt) {
        (0, 0) => None,
        (verified, 0) => Some(format!("All {} compared are as they were written.", bytes(verified))),
        (verified, corrupt) => {
            Some(format!("{} of {} compared differ from what was written.", bytes(corrupt), bytes(verified)))
        }
    }
}

fn fastest(evaluation: &Evaluation) -> Option<String> {
    let best = |workload: &str| {
        let rates = evaluation.arrays.iter().filter_map(|array| {
            let cell = array.cell(State::Normal, workload)?;
            Some((array.layout.as_str(), cell.mb_per_s))
        });
        rates.max_by(|(_, one), (_, other)| one.total_cmp(other))
    };
    let one = |(name, words): (&str, &str)| {
        let (layout, rate) = best(name)?;
        Some(format!("{words} {layout} with {} MB/s", number(rate)))
    };
    let loads =
        [("seq_write", "sequential writes"), ("seq_read", "sequential reads"), ("mixed", "the mixed load")];
    let found: Vec<String> = loads.into_iter().filter_map(one).collect();
    (!found.is_empty()).then(|| format!("Fastest: {}.", found.join(", ")))
}

/// The share of the mixed load that is left with a drive failed: the most and the least.
fn failure(evaluation: &Evaluation) -> Option<String> {
    let share = |array: &ArrayResult| {
        let of = |state| array.cell(state, "mixed").map(|cell| cell.mb_per_s).filter(|rate| *rate > 0.0);
        Some((array.layout.clone(), 100.0 * of(State::Degraded)? / of(State::Normal)?))
    };
    let mut kept: Vec<(String, f64)> = evaluation.arrays.iter().filter_map(share).collect();
    kept.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let (most, least) = (kept.first()?, kept.last()?);
    let rest = match kept.len() {
        1 => String::new(),
        _ => format!(", {} {:.0} %", least.0, least.1),
    };
    Some(format!("With a drive failed {} keeps {:.0} % of its mixed load{rest}.", most.0, most.1))
}

fn rebuild(evaluation: &Evaluation) -> Option<String> {
    let seconds = |array: &ArrayResult| Some((array.layout.clone(), array.rebuild_seconds?));
    let mut all: Vec<(String, f64)> = evaluation.arrays.iter().filter_map(seconds).collect();
    all.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let (first, last) = (all.first()?, all.last()?);
    let rest = match all.len() {
        1 => String::new(),
        _ => format!(" to {} ({})", duration(last.1), last.0),
    };
    Some(format!("A rebuild without load takes {} ({}){rest}.", duration(first.1), first.0))
}

fn warnings(evaluation: &Evaluation) -> Option<String> {
    let count = evaluation.remarks.iter().filter(|remark| remark.severity >= Severity::Warning).count();
    match count {
        0 => None,
        1 => Some("One remark warns about a figure or a setting.".into()),
        several => Some(format!("{several} remarks warn about figures or settings.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{example, quiet};

    #[test]
    fn the_verdict_names_winners_and_what_a_failure_costs() {
        let text = verdict(&quiet());
        for part in [
            "Fastest: sequential writes ",
            "the mixed load ",
            "With a drive failed ",
            "A rebuild without load takes",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut damaged = example();
        damaged.arrays[0].verified_bytes = 4096;
        damaged.arrays[0].corrupt_bytes = 4096;
        assert!(verdict(&damaged).contains("differ from what was written"), "{}", verdict(&damaged));
        let mut empty = quiet();
        empty.arrays.clear();
        empty.remarks.clear();
        assert_eq!(verdict(&empty), "");
    }
}
