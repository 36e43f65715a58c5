//! Medians, ninetieth percentiles, and pairs in order.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Answer;

/// Pairs that lie closer than this in print are not asked for their order.
const APART: f64 = 0.15;

/// The errors of some rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of rows.
    pub rows: usize,
    /// Rows that no system answers.
    pub unanswered: usize,
    /// Half of the rows err less.
    pub median_error_percent: f64,
    /// Nine of ten rows err less.
    pub p90_error_percent: f64,
    /// Pairs of configurations in one test, more than 15 % apart, that come out in the printed
    /// order.
    pub pairs_in_order_percent: Option<f64>,
}

/// A table's errors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableSummary {
    /// Number of the study.
    pub study: String,
    /// Its table; empty: the whole study.
    pub table: String,
    /// Its errors.
    #[serde(flatten)]
    pub summary: Summary,
}

/// The errors of these rows.
pub fn summarise<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> Summary {
    let answers: Vec<&Answer> = answers.into_iter().collect();
    let (median, p90) = quantiles(answers.iter().map(|answer| answer.distance()).collect());
    Summary {
        rows: answers.len(),
        unanswered: answers.iter().filter(|answer| answer.predicted.is_none()).count(),
        median_error_percent: median,
        p90_error_percent: p90,
        pairs_in_order_percent: pairs(&answers),
    }
}

/// Median and ninetieth percentile of distances, as errors in percent.
pub(super) fn quantiles(mut distances: Vec<f64>) -> (f64, f64) {
    distances.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (share * (distances.len().max(1) - 1) as f64).round() as usize;
        distances.get(index).map_or(0.0, |distance| 100.0 * (distance.exp() - 1.0))
    };
    (at(0.5), at(0.9))
}

fn pairs(answers: &[&Answer]) -> Option<f64> {
    let mut tests: BTreeMap<(&str, &str), Vec<&Answer>> = BTreeMap::new();
    for answer in answers {
        tests.entry((&answer.study, &answer.test)).or_default().push(answer);
    }
    let (mut asked, mut right) = (0u64, 0u64);
    for rows in tests.values() {
        for (index, one) in rows.iter().enumerate() {
            for other in &rows[index + 1..] {
                let apart = (one.published / other.published).ln();
                if one.configuration == other.configuration || apart.abs().exp() - 1.0 <= APART {
                    continue;
                }
                asked += 1;
                let predicted = one.predicted.zip(other.predicted);
                right += u64::from(predicted.is_some_and(|(one, other)| (one / other).ln() * apart > 0.0));
            }
        }
    }
    (asked > 0).then(|| 100.0 * right as f64 / asked as f64)
}

/// Each study, then each of its tables.
pub fn tables(answers: &[Answer]) -> Vec<TableSummary> {
    let mut names: Vec<(String, String)> = Vec::new();
    for answer in answers {
        for table in [String::new(), answer.table.clone()] {
            let name = (answer.study.clone(), table);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.is_empty().cmp(&other.1.is_empty()).reverse()));
    let summary = |(study, table): (String, String)| {
        let of = |answer: &&Answer| answer.study == study && (table.is_empty() || answer.table == table);
        TableSummary { summary: summarise(answers.iter().filter(of)), study, table }
    };
    names.into_iter().map(summary).collect()
}
