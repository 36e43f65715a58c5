//! Statistics of several runs of one measurement: median, spread, and an interval if there are
//! enough runs. Pure.
//!
//! The method of the 95 % interval, and why: fewer than three runs give none. A run's figure is
//! itself a mean over hundreds or thousands of requests and so close to normally distributed; three
//! to five runs therefore give Student's t interval of the mean (with two runs its factor of 12.7
//! would make any interval meaningless). Six runs or more give the interval of the median from
//! order statistics, which assumes nothing about the distribution: the k-th lowest to the k-th
//! highest run, k the largest with a binomial probability of at least 95 %. Either interval
//! contains the median.

mod compare;
mod series;

pub(crate) use compare::ratio_interval;
pub use compare::{
    Comparison, Direction, MOST_RUNS_NEEDED, Pair, Undecided, Verdict, compare, rank_sum_p, runs_needed,
};
pub(crate) use series::{STEADY_ROUNDS, drifts, is_steady, outliers, steady_text};

use serde::{Deserialize, Serialize};

/// Method of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IntervalMethod {
    /// Student's t around the mean, three to five runs.
    StudentT,
    /// Order statistics around the median, six runs or more.
    OrderStatistics,
}

/// 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end, never below zero.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Method.
    pub method: IntervalMethod,
}

/// The middle value, or the mean of the two in the middle; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The arithmetic mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The sample standard deviation (n - 1 in the denominator); `None` with fewer than two values.
pub(crate) fn standard_deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// The 95 % interval of non-negative values by the method above; `None` for fewer than three.
pub(crate) fn interval95(values: &[f64]) -> Option<Interval> {
    // Two-sided 95 % points of Student's t for 2, 3 and 4 degrees of freedom, from any table of it.
    let factor = match values.len() {
        0..=2 => return None,
        3 => 4.302_653,
        4 => 3.182_446,
        5 => 2.776_445,
        _ => return Some(order_statistics_interval(values)),
    };
    let centre = mean(values)?;
    let reach = factor * standard_deviation(values)? / (values.len() as f64).sqrt();
    Some(Interval { low: (centre - reach).max(0.0), high: centre + reach, method: IntervalMethod::StudentT })
}

fn order_statistics_interval(values: &[f64]) -> Interval {
    let sorted = sorted(values);
    let count = sorted.len();
    // The chance that the median lies outside [k-th lowest, k-th highest] is twice the chance of
    // fewer than k heads in `count` tosses of a coin.
    let mut outside_one_side = 0.0;
    let mut chance = 0.5f64.powi(count as i32);
    let mut rank = 0;
    for heads in 0..count / 2 {
        outside_one_side += chance;
        if 2.0 * outside_one_side > 0.05 {
            break;
        }
        rank = heads + 1;
        chance *= (count - heads) as f64 / (heads + 1) as f64;
    }
    let rank = rank.max(1);
    Interval { low: sorted[rank - 1], high: sorted[count - rank], method: IntervalMethod::OrderStatistics }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_mean_and_deviation_are_right() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(mean(&[1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(standard_deviation(&[5.0]), None);
        assert!(
            (standard_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap() - 2.138_09).abs() < 1e-5
        );
    }

    #[test]
    fn too_few_runs_give_no_interval() {
        assert_eq!(interval95(&[]), None);
        assert_eq!(interval95(&[1.0, 2.0]), None);
    }

    #[test]
    fn three_runs_give_students_interval() {
        let interval = interval95(&[99.0, 100.0, 101.0]).unwrap();
        assert_eq!(interval.method, IntervalMethod::StudentT);
        assert!((interval.low - (100.0 - 4.302_653 / 3f64.sqrt())).abs() < 1e-6, "{interval:?}");
        assert!((interval.high - (100.0 + 4.302_653 / 3f64.sqrt())).abs() < 1e-6, "{interval:?}");
        assert_eq!(interval95(&[0.0, 0.1, 10.0]).unwrap().low, 0.0, "throughput is never negative");
    }

    #[test]
    fn intervals_of_many_runs_match_sign_test_tables() {
        // (runs, rank from either end): e.g. Conover, Practical Nonparametric Statistics, intervals
        // for the median.
        for (count, rank) in [(6, 1), (7, 1), (8, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6), (25, 8)] {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            let interval = interval95(&values).unwrap();
            assert_eq!(interval.method, IntervalMethod::OrderStatistics);
            assert_eq!(
                (interval.low, interval.high),
                (f64::from(rank), f64::from(count + 1 - rank)),
                "{count}"
            );
        }
    }

    #[test]
    fn every_interval_contains_the_median() {
        let mut random = stripewise_drive::SplitMix64::new(1);
        for count in 3..12 {
            for _ in 0..200 {
                let values: Vec<f64> = (0..count).map(|_| random.exponential(100.0)).collect();
                let (interval, median) = (interval95(&values).unwrap(), median(&values).unwrap());
                assert!(interval.low <= median && median <= interval.high, "{values:?}: {interval:?}");
            }
        }
    }

    #[test]
    fn intervals_have_their_stated_coverage() {
        let mut random = stripewise_drive::SplitMix64::new(2);
        // The sum of twelve uniform numbers minus six is close to a standard normal one.
        let mut normal = || 100.0 + (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        for count in [3, 5, 6, 9] {
            let trials = 4000;
            let covered = (0..trials)
                .filter(|_| {
                    let values: Vec<f64> = (0..count).map(|_| normal()).collect();
                    let interval = interval95(&values).unwrap();
                    interval.low <= 100.0 && 100.0 <= interval.high
                })
                .count();
            let share = covered as f64 / f64::from(trials);
            assert!((0.94..0.985).contains(&share), "{count} runs: {share}");
        }
    }
}
