//! Comparison of two configurations: the ratio of their medians with an interval, an exact rank
//! test, a verdict. Pure.
//!
//! The run is the unit: a configuration is the list of its runs' figures. A verdict other than
//! "undecided" needs both a ratio at least [`LEAST_EFFECT`] away from 1 and a rank-sum test (Mann
//! and Whitney 1947) that stays below 5 % after Holm's correction (1979) for all comparisons made
//! together. The distribution of the rank sum is counted exactly, ties included, so it holds for
//! three runs as for thirty. The interval of the ratio is that of Hodges and Lehmann: all ratios
//! that the same test, at the same corrected level, does not reject. So an interval that excludes 1
//! and a rejected hypothesis are the same thing. Too few runs give no interval: at that level even
//! runs that are all apart could be chance.

use serde::{Deserialize, Serialize};
use stripewise_drive::SplitMix64;

use super::{median, standard_deviation};

/// Minimum distance of a ratio from 1 to be called a difference.
pub(crate) const LEAST_EFFECT: f64 = 0.03;
/// Maximum rate of false differences, over all comparisons made together.
pub(crate) const ERROR_RATE: f64 = 0.05;
/// Resamples of [`ratio_interval`], the bootstrap (Efron 1979) of a study's checks, with a fixed
/// seed.
const RESAMPLES: usize = 4000;
/// Most runs that [`runs_needed`] answers with, also where more are needed.
pub const MOST_RUNS_NEEDED: usize = 1000;

/// Difference that [`runs_needed`] plans for.
const PLANNED_EFFECT: f64 = 0.1;
/// Maximum number of runs on both sides together for exact counts of rank sums; beyond it their
/// distribution is close to normal.
const COUNTED_RUNS: usize = 60;

/// Outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second is better.
    Better,
    /// The second is worse.
    Worse,
    /// The runs are not conclusive.
    CannotTell,
}

/// Reason why runs are not conclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undecided {
    /// No difference can be shown with so few runs, however large it is.
    TooFewRuns,
    /// The difference is smaller than the least that is called one.
    Small,
    /// The runs vary too much for a difference of this size.
    Noise,
}

/// Direction of improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Throughput, requests a second.
    HigherIsBetter,
    /// Latency, seconds, processor time.
    LowerIsBetter,
}

/// Two lists of runs to compare.
#[derive(Clone, Debug)]
pub struct Pair {
    /// Measurement.
    pub name: String,
    /// Runs of the first configuration, positive.
    pub first: Vec<f64>,
    /// Runs of the second configuration.
    pub second: Vec<f64>,
    /// Direction of improvement.
    pub direction: Direction,
}

/// Result of comparing a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Measurement.
    pub measurement: String,
    /// Median of the second over median of the first.
    pub ratio: f64,
    /// 95 % interval of the ratio, corrected for all comparisons made together; null with too few
    /// runs.
    pub ci95: Option<[f64; 2]>,
    /// The verdict.
    pub verdict: Verdict,
    /// Reason of an undecided verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<Undecided>,
    /// Probability of ranks as uneven as these without a difference, corrected for all comparisons
    /// made together.
    pub p: f64,
    /// Runs per side needed to show a difference of 10 % in nine of ten cases, with the observed
    /// noise and as many comparisons.
    pub runs_needed: usize,
}

/// Compares all pairs together. A pair without runs on one side is left out.
pub fn compare(pairs: &[Pair]) -> Vec<Comparison> {
    let pairs: Vec<&Pair> =
        pairs.iter().filter(|pair| !pair.first.is_empty() && !pair.second.is_empty()).collect();
    let raw: Vec<f64> = pairs.iter().map(|pair| rank_sum_p(&pair.first, &pair.second)).collect();
    let all = pairs.len();
    let corrected = holm(&raw).into_iter().zip(holm_levels(&raw));
    pairs.into_iter().zip(corrected).map(|(pair, (p, level))| one(pair, p, level, all)).collect()
}

fn one(pair: &Pair, p: f64, level: f64, comparisons: usize) -> Comparison {
    let ratio = ratio_of_medians(&pair.first, &pair.second);
    let is_difference = p < ERROR_RATE && (ratio - 1.0).abs() >= LEAST_EFFECT;
    let verdict = match (is_difference, (ratio > 1.0) == (pair.direction == Direction::HigherIsBetter)) {
        (false, _) => Verdict::CannotTell,
        (true, true) => Verdict::Better,
        (true, false) => Verdict::Worse,
    };
    let undecided = match verdict {
        Verdict::Better | Verdict::Worse => None,
        Verdict::CannotTell if p < ERROR_RATE => Some(Undecided::Small),
        Verdict::CannotTell if least_p(pair.first.len(), pair.second.len()) >= level => {
            Some(Undecided::TooFewRuns)
        }
        Verdict::CannotTell => Some(Undecided::Noise),
    };
    Comparison {
        measurement: pair.name.clone(),
        ratio,
        ci95: accepted_ratios(&pair.first, &pair.second, level)
            .map(|[low, high]| [low.min(ratio), high.max(ratio)]),
        verdict,
        undecided,
        p,
        runs_needed: runs_needed(&[&pair.first, &pair.second], PLANNED_EFFECT, comparisons),
    }
}

/// All ratios of the second list to the first that the rank test does not reject at `level`: from
/// one ratio of two runs to another. `None` if the test rejects none or if there is no end.
fn accepted_ratios(first: &[f64], second: &[f64], level: f64) -> Option<[f64; 2]> {
    let mut ratios: Vec<f64> =
        first.iter().flat_map(|below| second.iter().map(move |above| above / below)).collect();
    ratios.sort_by(f64::total_cmp);
    // Ranks change only at these ratios: between two of them, one trial stands for all.
    let accepts = |gap: usize| {
        let ratio = match (gap.checked_sub(1).map(|at| ratios[at]), ratios.get(gap)) {
            (None, Some(next)) => next / 2.0,
            (Some(before), None) => before * 2.0,
            (Some(before), Some(next)) => (before * next).sqrt(),
            (None, None) => 1.0,
        };
        let scaled: Vec<f64> = first.iter().map(|value| value * ratio).collect();
        rank_sum_p(&scaled, second) >= level
    };
    // The middle is accepted, and acceptance ends once on each side of it.
    let middle = ratios.len() / 2;
    let lowest = (0..middle).collect::<Vec<_>>().partition_point(|gap| !accepts(*gap));
    let rejected = (middle + 1..=ratios.len()).collect::<Vec<_>>();
    let highest = middle + rejected.partition_point(|gap| accepts(*gap));
    match (lowest.checked_sub(1), ratios.get(highest)) {
        (Some(low), Some(high)) => Some([ratios[low], *high]),
        _ => None,
    }
}

/// Least probability that the rank test can give: runs that are all apart.
fn least_p(first: usize, second: usize) -> f64 {
    let choices: f64 = (1..=first).map(|at| (second + at) as f64 / at as f64).product();
    2.0 / choices
}

fn ratio_of_medians(first: &[f64], second: &[f64]) -> f64 {
    let of = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    of(second) / of(first)
}

/// The 95 % bootstrap interval of the second's median over the first's; `None` with fewer than
/// three runs on either side.
pub(crate) fn ratio_interval(first: &[f64], second: &[f64]) -> Option<[f64; 2]> {
    if first.len().min(second.len()) < 3 {
        return None;
    }
    let mut random = SplitMix64::new(0x5eed);
    let mut resample = |values: &[f64]| -> Vec<f64> {
        (0..values.len()).map(|_| values[random.below(values.len() as u64) as usize]).collect()
    };
    let mut ratios: Vec<f64> =
        (0..RESAMPLES).map(|_| ratio_of_medians(&resample(first), &resample(second))).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((RESAMPLES - 1) as f64 * share).round() as usize];
    Some([at(0.025), at(0.975)])
}

/// Probability that, if both lists came from one distribution, their ranks are at least as uneven
/// as these. Two-sided, ties at their mean rank; exact up to 60 values, normal beyond.
pub fn rank_sum_p(first: &[f64], second: &[f64]) -> f64 {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    let doubled = doubled_ranks(&all);
    let found: usize = doubled[..first.len()].iter().sum();
    if all.len() <= COUNTED_RUNS {
        counted_p(&doubled, first.len(), found)
    } else {
        normal_p(&doubled, first.len(), found)
    }
}

/// Normal approximation, from the mean and variance of a sum of ranks drawn without replacement.
fn normal_p(doubled: &[usize], count: usize, found: usize) -> f64 {
    let (all, drawn) = (doubled.len() as f64, count as f64);
    let mean = doubled.iter().sum::<usize>() as f64 / all;
    let spread = doubled.iter().map(|rank| (*rank as f64 - mean).powi(2)).sum::<f64>() / (all - 1.0);
    let variance = drawn * (1.0 - drawn / all) * spread;
    if variance <= 0.0 {
        return 1.0;
    }
    let z = (found as f64 - drawn * mean).abs() / variance.sqrt();
    // Abramowitz and Stegun 26.2.17: the normal distribution's tail to seven digits.
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let tail = series.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    (2.0 * tail * (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()).min(1.0)
}

fn counted_p(doubled: &[usize], count: usize, found: usize) -> f64 {
    let most: usize = doubled.iter().sum();
    // ways[k][s]: number of choices of k values whose doubled ranks add up to s.
    let mut ways = vec![vec![0.0_f64; most + 1]; count + 1];
    ways[0][0] = 1.0;
    for &rank in doubled {
        for chosen in (1..=count).rev() {
            let (fewer, more) = ways.split_at_mut(chosen);
            for sum in rank..=most {
                more[0][sum] += fewer[chosen - 1][sum - rank];
            }
        }
    }
    let centre = most as f64 * count as f64 / doubled.len() as f64;
    let distance = (found as f64 - centre).abs() - 1e-9;
    let last = &ways[count];
    let total: f64 = last.iter().sum();
    let as_far = |sum: usize| (sum as f64 - centre).abs() >= distance;
    let beyond: f64 = last.iter().enumerate().filter(|(sum, _)| as_far(*sum)).map(|(_, ways)| ways).sum();
    (beyond / total).min(1.0)
}

/// Twice each value's rank from 1, ties sharing their mean: whole numbers.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let same = values.iter().filter(|other| *other == value).count();
        2 * below + same + 1
    };
    values.iter().map(rank).collect()
}

/// Holm's step-down correction: the k-th smallest of n is multiplied by n - k, and none falls below
/// a previous one.
pub(crate) fn holm(raw: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..raw.len()).collect();
    order.sort_by(|a, b| raw[*a].total_cmp(&raw[*b]));
    let mut corrected = vec![0.0; raw.len()];
    let mut highest: f64 = 0.0;
    for (step, index) in order.into_iter().enumerate() {
        highest = highest.max(raw[index] * (raw.len() - step) as f64).min(1.0);
        corrected[index] = highest;
    }
    corrected
}

/// The level at which Holm's correction tests each of `raw`. From the first that is not rejected
/// on, the level no longer rises.
fn holm_levels(raw: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..raw.len()).collect();
    order.sort_by(|a, b| raw[*a].total_cmp(&raw[*b]));
    let (mut levels, mut level) = (vec![0.0; raw.len()], 0.0);
    let mut rejects = true;
    for (step, index) in order.into_iter().enumerate() {
        if rejects {
            level = ERROR_RATE / (raw.len() - step) as f64;
        }
        rejects &= raw[index] < level;
        levels[index] = level;
    }
    levels
}

/// Number of runs per side that show a relative `effect` in nine of ten cases at [`ERROR_RATE`]
/// over all `comparisons`, from the present runs: the normal formula 2 (z + z₀.₉)² (σ / δ)², a
/// sixth more for ranks instead of means; at least six, and as many as the rank test needs to show
/// anything.
pub fn runs_needed(lists: &[&[f64]], effect: f64, comparisons: usize) -> usize {
    let level = ERROR_RATE / comparisons.max(1) as f64;
    let z = normal_quantile(level / 2.0) + 1.281_552;
    let least = (6..MOST_RUNS_NEEDED).find(|runs| least_p(*runs, *runs) < level).unwrap_or(MOST_RUNS_NEEDED);
    let spread = |values: &&[f64]| {
        let relative = standard_deviation(values)? / median(values).filter(|middle| *middle > 0.0)?;
        Some(relative)
    };
    let spreads: Vec<f64> = lists.iter().filter_map(spread).collect();
    let variance = spreads.iter().map(|spread| spread * spread).sum::<f64>() / spreads.len().max(1) as f64;
    let runs = 2.0 * z * z * variance / (1.0 + effect).ln().powi(2) * 7.0 / 6.0;
    (runs.ceil() as usize).clamp(least, MOST_RUNS_NEEDED)
}

/// The normal deviate that is exceeded with probability `tail`, to three digits (Abramowitz and
/// Stegun 26.2.23).
fn normal_quantile(tail: f64) -> f64 {
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    t - above / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_sums_agree_with_published_tables() {
        // Two-sided chances of complete separation: 2 / C(n + m, n).
        let p = rank_sum_p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!((p - 0.1).abs() < 1e-12, "{p}");
        let p = rank_sum_p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
        assert!((p - 2.0 / 924.0).abs() < 1e-12, "{p}");
        // n = m = 5, U = 2: 0.0317 (e.g. Hollander and Wolfe, table of the rank sum).
        let p = rank_sum_p(&[1.0, 2.0, 3.0, 5.0, 6.0], &[4.0, 7.0, 8.0, 9.0, 10.0]);
        assert!((p - 8.0 / 252.0).abs() < 1e-12, "{p}");
        assert_eq!(rank_sum_p(&[1.0, 1.0, 1.0], &[1.0, 1.0, 1.0]), 1.0);
    }

    #[test]
    fn many_runs_are_judged_as_few_are() {
        let list = |step: usize| -> Vec<f64> { (0..30).map(|n| ((n * 7 + step) % 61) as f64).collect() };
        let (first, second) = (list(0), list(11));
        let all: Vec<f64> = first.iter().chain(&second).copied().collect();
        let doubled = doubled_ranks(&all);
        let found = doubled[..30].iter().sum();
        let (counted, normal) = (counted_p(&doubled, 30, found), normal_p(&doubled, 30, found));
        assert!((counted - normal).abs() < 0.02, "{counted} {normal}");
        let far: Vec<f64> = (0..100).map(f64::from).collect();
        let farther: Vec<f64> = far.iter().map(|value| value + 50.0).collect();
        assert!(rank_sum_p(&far, &farther) < 1e-6 && rank_sum_p(&far, &far) > 0.99);
    }

    #[test]
    fn holm_correction_matches_worked_examples() {
        assert_eq!(holm(&[0.04, 0.01, 0.02]), vec![0.04, 0.03, 0.04]);
        assert_eq!(holm(&[0.9, 0.8]), vec![1.0, 1.0]);
    }

    fn noisy(random: &mut SplitMix64, count: usize, centre: f64, spread: f64) -> Vec<f64> {
        let normal = |random: &mut SplitMix64| (0..12).map(|_| random.unit()).sum::<f64>() - 6.0;
        (0..count).map(|_| centre * (1.0 + spread * normal(random))).collect()
    }

    fn pair(first: Vec<f64>, second: Vec<f64>) -> Pair {
        Pair { name: "seq_read".into(), first, second, direction: Direction::HigherIsBetter }
    }

    #[test]
    fn equal_configurations_are_rarely_called_different() {
        let mut random = SplitMix64::new(11);
        let trials = 600;
        let claimed = (0..trials)
            .filter(|_| {
                let all: Vec<Pair> = (0..4)
                    .map(|_| pair(noisy(&mut random, 6, 100.0, 0.06), noisy(&mut random, 6, 100.0, 0.06)))
                    .collect();
                compare(&all).iter().any(|found| found.verdict != Verdict::CannotTell)
            })
            .count();
        assert!(claimed <= trials / 20, "{claimed} of {trials} sets of four");
    }

    #[test]
    fn a_tenth_less_is_detected_with_the_planned_runs() {
        let mut random = SplitMix64::new(12);
        let trials = 300;
        let found = (0..trials)
            .filter(|_| {
                let first = noisy(&mut random, 6, 100.0, 0.05);
                let runs = runs_needed(&[&first, &noisy(&mut random, 6, 90.0, 0.05)], 0.1, 1).max(8);
                let (first, second) =
                    (noisy(&mut random, runs, 100.0, 0.05), noisy(&mut random, runs, 90.0, 0.05));
                compare(&[pair(first, second)])[0].verdict == Verdict::Worse
            })
            .count();
        assert!(found >= trials * 9 / 10, "{found} of {trials}");
    }

    /// MB/s of runs of 0.1 s on a virtual machine's disk: sequential reads of 1 MiB, and random
    /// writes of 4 KiB while compilers were running.
    const CALM: [f64; 36] = [
        1025.3, 1047.0, 993.8, 973.8, 1110.1, 1036.8, 1026.3, 1047.1, 1068.2, 1120.6, 1057.6, 1015.5, 1057.7,
        1068.1, 1057.7, 1064.0, 1036.7, 1047.2, 1099.6, 1088.9, 780.6, 1036.8, 1005.3, 1089.1, 1005.3,
        1029.2, 1068.2, 1057.9, 977.9, 1005.4, 1088.8, 1015.8, 1057.2, 1005.4, 921.5, 858.8,
    ];
    const RESTLESS: [f64; 24] = [
        160.6, 121.2, 109.9, 97.5, 98.7, 94.2, 78.7, 87.2, 85.1, 85.4, 74.5, 71.0, 49.8, 75.0, 82.0, 80.2,
        72.1, 59.1, 68.9, 73.1, 33.0, 59.6, 58.2, 76.5,
    ];

    fn drawn(random: &mut SplitMix64, recorded: &[f64], count: usize, factor: f64) -> Vec<f64> {
        (0..count).map(|_| factor * recorded[random.below(recorded.len() as u64) as usize]).collect()
    }

    #[test]
    fn recorded_noise_alone_is_rarely_called_a_difference() {
        for recorded in [&CALM[..], &RESTLESS] {
            let mut random = SplitMix64::new(21);
            let trials = 300;
            let claimed = (0..trials).filter(|_| {
                let two = [6, 6].map(|count| drawn(&mut random, recorded, count, 1.0));
                let [first, second] = two;
                compare(&[pair(first, second)])[0].verdict != Verdict::CannotTell
            });
            let claimed = claimed.count();
            assert!(claimed * 20 <= trials, "{claimed} of {trials}");
        }
    }

    #[test]
    fn a_tenth_less_is_detected_in_recorded_noise() {
        for (recorded, trials) in [(&CALM[..], 100), (&RESTLESS, 20)] {
            let mut random = SplitMix64::new(22);
            let found = (0..trials).filter(|_| {
                let (mut first, mut second) = (Vec::new(), Vec::new());
                let mut wanted = 6;
                // Runs until no more are requested.
                while first.len() < wanted {
                    let more = wanted - first.len();
                    first.extend(drawn(&mut random, recorded, more, 1.0));
                    second.extend(drawn(&mut random, recorded, more, 0.9));
                    wanted = runs_needed(&[&first, &second], 0.1, 1);
                }
                compare(&[pair(first, second)])[0].verdict == Verdict::Worse
            });
            let found = found.count();
            assert!(found * 10 >= trials * 9, "{found} of {trials}");
        }
    }

    #[test]
    fn an_interval_excludes_one_only_with_a_verdict() {
        let mut random = SplitMix64::new(31);
        for round in 0..60 {
            let runs = 3 + round % 6;
            let all: Vec<Pair> = (0..3)
                .map(|at| {
                    let centre = 100.0 * (1.0 + 0.08 * f64::from(at));
                    pair(noisy(&mut random, runs, 100.0, 0.04), noisy(&mut random, runs, centre, 0.04))
                })
                .collect();
            for found in compare(&all) {
                let excludes = found.ci95.is_some_and(|[low, high]| low > 1.0 || high < 1.0);
                let is_known =
                    found.verdict != Verdict::CannotTell || found.undecided == Some(Undecided::Small);
                assert_eq!(excludes, is_known, "{found:?}");
            }
        }
    }

    #[test]
    fn too_few_runs_are_said_with_the_number_needed() {
        let apart = |step: f64| pair(vec![100.0, 101.0, 102.0, 103.0], [step; 4].to_vec());
        let all = compare(&[apart(200.0), apart(201.0), apart(202.0)]);
        for found in &all {
            assert_eq!(found.undecided, Some(Undecided::TooFewRuns), "{found:?}");
            assert_eq!((found.ci95, found.runs_needed), (None, 6), "{found:?}");
        }
        // Four runs suffice for a single comparison.
        assert_eq!(compare(&[apart(200.0)])[0].verdict, Verdict::Better);
        assert!((normal_quantile(0.025) - 1.959_964).abs() < 1e-3);
        let many = runs_needed(&[&[100.0, 100.5, 101.0]], 0.1, 2000);
        assert!(many > 8 && least_p(many, many) < ERROR_RATE / 2000.0, "{many}");
    }

    #[test]
    fn verdicts_follow_direction_and_ignore_small_change() {
        let slow: Vec<f64> = (0..6).map(|n| 100.0 + f64::from(n) / 10.0).collect();
        let fast: Vec<f64> = slow.iter().map(|value| value * 1.2).collect();
        let hardly: Vec<f64> = slow.iter().map(|value| value * 1.02).collect();
        let verdict = |first: &[f64], second: &[f64], direction| {
            compare(&[Pair { direction, ..pair(first.to_vec(), second.to_vec()) }])[0].verdict
        };
        assert_eq!(verdict(&slow, &fast, Direction::HigherIsBetter), Verdict::Better);
        assert_eq!(verdict(&slow, &fast, Direction::LowerIsBetter), Verdict::Worse);
        assert_eq!(verdict(&slow, &hardly, Direction::HigherIsBetter), Verdict::CannotTell);
        let one = compare(&[pair(slow.clone(), fast)]).remove(0);
        let [low, high] = one.ci95.expect("six runs");
        assert!(low <= one.ratio && one.ratio <= high && low > 1.1, "{one:?}");
        assert_eq!(compare(&[pair(vec![1.0], vec![2.0])])[0].ci95, None);
    }
}
