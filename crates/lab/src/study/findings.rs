//! Verdicts on a study's findings by our figures: agrees, disagrees, undecided, not
//! modelled. Pure.
//!
//! A check compares ratios of our own figures with the study's, with a margin for the noise of
//! short runs. Findings that only another system or another quantity can show are not judged, with
//! a reason.

use serde::{Deserialize, Serialize};

use super::published::FINDINGS;
use super::{FindingResult, OwnFigures, StudyNumber};
use crate::records::import::table::{Headings, fields};
use crate::records::record::MeasurementRecord;
use crate::statistics::{median, ratio_interval};

/// Agreement of a run with a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Our figures show the same.
    Agrees,
    /// Our figures show the opposite.
    Disagrees,
    /// Our figures do not decide it.
    CannotTell,
    /// Not built here.
    NotModelled,
}

/// Bounds of a finding for the ratio of two of our figures.
struct Check {
    id: &'static str,
    above: &'static str,
    below: &'static str,
    least: f64,
    most: f64,
}

const fn check(id: &'static str, above: &'static str, below: &'static str, least: f64, most: f64) -> Check {
    Check { id, above, below, least, most }
}

/// Bounds are those of the finding, a tenth wider.
const CHECKS: [Check; 58] = [
    check("F000-01", "RAID0/SEQ1M_Q16T1/large/read", "single/SEQ1M_Q16T1/large/read", 2.9, 4.1),
    check("F000-01", "RAID0/SEQ1M_Q16T1/large/write", "single/SEQ1M_Q16T1/large/write", 2.9, 4.1),
    check("F000-05", "RAID1/SEQ1M_Q16T1/large/read", "single/SEQ1M_Q16T1/large/read", 1.5, 2.1),
    check("F000-07", "RAID1/SEQ1M_Q16T1/large/write", "single/SEQ1M_Q16T1/large/write", 0.7, 1.05),
    check("F000-10", "RAID5/SEQ1M_Q16T1/large/write", "single/SEQ1M_Q16T1/large/write", 0.0, 0.3),
    check("F000-11", "RAID5/SEQ1M_Q16T1/large/read", "single/SEQ1M_Q16T1/large/read", 2.2, 4.1),
    check("F000-17", "RAID0/RND4K_Q32T1/large/read", "RAID5/RND4K_Q32T1/large/read", 0.9, 1.1),
    check("F000-28", "RAID5/RND4K_Q32T1/large/write", "single/RND4K_Q32T1/large/write", 0.7, 1.1),
    check("F000-29", "RAID1/RND4K_Q32T1/large/write", "single/RND4K_Q32T1/large/write", 0.85, 1.1),
    check("F000-30", "RAID0/RND4K_Q32T1/large/read", "single/RND4K_Q32T1/large/read", 3.2, 4.2),
    check("F001-02", "RAID5/rewrite", "RAID0/rewrite", 0.0, 0.6),
    check("F001-03", "RAID50/rewrite", "RAID5/rewrite", 1.2, 10.0),
    check("F001-04", "RAID10/block_read", "RAID0/block_read", 0.0, 1.02),
    check("F002-03", "RAID5x5/light/random/read/8", "RAID0x4/light/random/read/8", 0.9, 1.4),
    check("F002-22", "RAID5x8/heavy/random/read/8", "RAID0x8/heavy/random/read/8", 0.88, 1.12),
    check("F002-32", "RAID0x4/light/random/write/8", "RAID5x5/light/random/write/8", 1.1, 100.0),
    check("F002-34", "RAID5x5/light/sequential/write/256", "RAID10x8/light/sequential/write/256", 1.0, 100.0),
    check("F003-07", "003-p2/64KiB_write", "003-p1/64KiB_write", 1.2, 1000.0),
    check("F003-14", "003-d1/64KiB_write", "003-p1/64KiB_write", 0.0, 1.05),
    check("F003-15", "003-p4/64KiB_write", "003-m1/64KiB_write", 0.0, 0.9),
    check("F004-01", "RAID5/normal/seq_write", "single/normal/seq_write", 2.7, 3.3),
    check("F004-01", "RAID10/normal/seq_write", "single/normal/seq_write", 1.8, 2.2),
    check("F004-02", "RAID10/normal/seq_read", "single/normal/seq_read", 2.5, 4.2),
    check("F004-03", "RAID5/normal/seq_write", "RAID10/normal/seq_write", 1.3, 1.65),
    check("F004-04", "RAID10/normal/mixed", "RAID5/normal/mixed", 1.25, 1.65),
    check("F004-05", "RAID10/normal/mixed", "single/normal/mixed", 1.9, 2.4),
    check("F004-07", "RAID5/degraded/seq_write", "RAID5/normal/seq_write", 0.93, 1.07),
    check("F004-08", "RAID1/degraded/seq_read", "single/normal/seq_read", 0.9, 1.1),
    check("F000-19", "RAID0/SEQ1M_Q16T1/large/write", "RAID5/SEQ1M_Q16T1/large/write", 15.0, 30.0),
    check("F000-27", "RAID5/RND4K_Q1T1/large/write", "single/RND4K_Q1T1/large/write", 0.2, 0.33),
    check("F000-31", "RAID0/RND4K_Q1T1/large/read", "single/RND4K_Q1T1/large/read", 1.9, 2.8),
    check("F001-01", "RAID0/block_write", "RAID5/block_write", 1.0, 100.0),
    check("F001-01", "RAID0/rewrite", "RAID50/rewrite", 1.0, 100.0),
    check("F001-01", "RAID0/block_read", "RAID10/block_read", 0.98, 100.0),
    check("F001-04", "RAID10/block_write", "RAID0/block_write", 0.75, 0.95),
    check("F001-06", "RAID5/per_char_write", "RAID0/per_char_write", 0.85, 1.15),
    check("F002-25", "RAID0n8/light/sequential/write/512", "RAID0n2/light/sequential/write/512", 3.2, 4.4),
    check("F002-28", "RAID5x5/light/random/read/8", "singlex1/light/random/read/8", 0.0, 1.0),
    check("F002-28", "RAID5x5/light/random/write/8", "singlex1/light/random/write/8", 0.0, 1.0),
    check("F002-29", "RAID0x4/light/random/read/4", "singlex1/light/random/read/4", 0.0, 0.8),
    check("F002-30", "RAID0x8/heavy/random/read/8", "RAID0x8/heavy/random/write/8", 2.2, 2.8),
    check("F002-30", "RAID5x8/heavy/random/read/8", "RAID5x8/heavy/random/write/8", 3.6, 4.6),
    check("F002-36", "RAID0x4u256/light/random/read/8", "RAID0x4u64/light/random/read/8", 0.85, 1.15),
    check(
        "F002-36",
        "RAID0x4u256/light/sequential/read/512",
        "RAID0x4u64/light/sequential/read/512",
        0.85,
        1.15,
    ),
    check("F002-38", "RAID0x4u256/light/random/write/8", "RAID0x4u64/light/random/write/8", 0.9, 100.0),
    check("F002-42", "RAID5x5/latency/random/write/256", "RAID5x5/latency/random/read/256", 0.0, 1.0),
    check("F002-46", "RAID0x4/latency/sequential/read/256", "singlex1/latency/sequential/read/256", 1.5, 4.4),
    check("F003-01", "003-m1/1MiB_read", "003-m2/1MiB_read", 1.2, 100.0),
    check("F003-10", "003-p3/64KiB_write", "003-p2/64KiB_write", 0.9, 1.1),
    check("F003-10", "003-p4/64KiB_write", "003-p2/64KiB_write", 1.1, 100.0),
    check("F003-16", "003-p1/1MiB_read", "003-m1/1MiB_read", 0.7, 100.0),
    check("F004-09", "RAID5/degraded/seq_read", "RAID5/normal/seq_read", 0.33, 0.52),
    check("F004-10", "RAID10/degraded/seq_read", "RAID10/normal/seq_read", 0.48, 0.83),
    check("F004-11", "RAID5/degraded/mixed", "RAID5/normal/mixed", 0.58, 0.99),
    check("F004-11", "RAID10/degraded/mixed", "RAID10/normal/mixed", 0.58, 0.99),
    check("F004-12", "RAID5/rebuilding/seq_write", "RAID5/normal/seq_write", 0.56, 0.85),
    check("F004-12", "RAID5/rebuilding/seq_read", "RAID5/normal/seq_read", 0.13, 0.24),
    check("F004-12", "RAID5/rebuilding/mixed", "RAID5/normal/mixed", 0.3, 0.5),
];

/// Tolerance of a ratio with too few runs for an interval.
const FEW_RUNS: f64 = 1.1;
/// Factor by which such a ratio, or one of doubtful figures, must lie outside of its bounds to
/// disagree: the noise of single runs is not known, and a stall can halve a short one.
const FAR_BEYOND: f64 = 2.0;
/// Badge of figures with a warning.
pub(super) const DOUBTFUL: &str = "free_of_warnings";

/// Findings that only other systems can show: controllers, other software, caches, flash, file
/// systems, links.
const OTHERS: [&str; 59] = [
    "F000-02", "F000-03", "F000-06", "F000-08", "F000-09", "F000-12", "F000-13", "F000-14", "F000-15",
    "F000-16", "F000-18", "F000-20", "F000-21", "F000-22", "F002-04", "F002-05", "F002-08", "F002-09",
    "F002-10", "F002-16", "F002-17", "F002-18", "F002-19", "F002-20", "F002-21", "F002-27", "F002-33",
    "F002-35", "F002-37", "F002-41", "F002-43", "F002-44", "F002-45", "F002-49", "F002-50", "F002-51",
    "F002-52", "F002-53", "F002-54", "F002-55", "F002-56", "F002-57", "F003-12", "F003-17", "F003-18",
    "F003-23", "F004-16", "F004-17", "F004-21", "F004-22", "F004-23", "F004-24", "F004-25", "F004-26",
    "F004-27", "F004-29", "F004-30", "F004-31", "F004-32",
];

/// All findings of a study, judged as far as our figures allow.
pub(super) fn judge_findings(study: StudyNumber, ours: &OwnFigures) -> Vec<FindingResult> {
    let mut lines = FINDINGS.lines();
    let headings = Headings::of(lines.next().unwrap_or_default());
    let finding = |line: &str| {
        let row = fields(line);
        let id = headings.get(&row, "finding_id")?.to_owned();
        (headings.get(&row, "study") == Some(study.text())).then_some(())?;
        let support = headings.get(&row, "support").unwrap_or_default().to_owned();
        let text = headings.get(&row, "finding").unwrap_or_default().to_owned();
        let (verdict, why) = judge(&id, &support, ours);
        Some(FindingResult { id, finding: text, verdict, why })
    };
    lines.filter_map(finding).collect()
}

fn judge(id: &str, support: &str, ours: &OwnFigures) -> (Verdict, String) {
    let figure = |key: &str| ours.get(key);
    let mut found: Vec<(Verdict, String)> = Vec::new();
    let mut missing = Vec::new();
    for check in CHECKS.iter().filter(|check| check.id == id) {
        let both = figure(check.above).zip(figure(check.below));
        match both.and_then(|(above, below)| one_check(check, above, below)) {
            Some(judged) => found.push(judged),
            None => missing.push(check.above),
        }
    }
    let words = found.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>().join("; ");
    let any = |verdict| found.iter().any(|(one, _)| *one == verdict);
    match (found.is_empty(), any(Verdict::Disagrees)) {
        (false, true) => (Verdict::Disagrees, words),
        (false, false) if any(Verdict::CannotTell) => (Verdict::CannotTell, words),
        (false, false) => (Verdict::Agrees, words),
        (true, _) if !missing.is_empty() => {
            (Verdict::CannotTell, format!("not measured in this run: {}", missing.join(", ")))
        }
        (true, _) if OTHERS.contains(&id) => {
            (Verdict::NotModelled, "it concerns another system, whose figures are published only".into())
        }
        (true, _) if matches!(support, "stated" | "cited") => {
            (Verdict::CannotTell, "the study states it without a table".into())
        }
        (true, _) => (Verdict::CannotTell, "no pair of figures measured here shows it".into()),
    }
}

/// Tests if a ratio lies within the bounds; if its interval crosses a bound, the runs do not
/// decide.
fn one_check(
    check: &Check,
    above: &MeasurementRecord,
    below: &MeasurementRecord,
) -> Option<(Verdict, String)> {
    let doubt = [above, below].into_iter().find_map(|figure| figure.badge_reasons.get(DOUBTFUL));
    let (above, below) = (&above.runs, &below.runs);
    let ratio = median(above)? / median(below).filter(|below| *below > 0.0)?;
    let within = |ratio: f64| (check.least..=check.most).contains(&ratio);
    // Ratio of the second to the first.
    let interval = ratio_interval(below, above);
    let [low, high] = interval.unwrap_or([ratio / FEW_RUNS, ratio * FEW_RUNS]);
    let reaches_over = within(low) != within(ratio) || within(high) != within(ratio);
    let is_far = ratio * FAR_BEYOND < check.least || ratio / FAR_BEYOND > check.most;
    let is_weak = interval.is_none() || doubt.is_some();
    let verdict = match (reaches_over, within(ratio)) {
        (true, _) => Verdict::CannotTell,
        (false, true) if doubt.is_some() => Verdict::CannotTell,
        (false, true) => Verdict::Agrees,
        (false, false) if is_weak && !is_far => Verdict::CannotTell,
        (false, false) => Verdict::Disagrees,
    };
    let around = interval.map_or_else(String::new, |[low, high]| format!(" (95 %: {low:.2} to {high:.2})"));
    // A bound beyond this is no bound.
    let asked = match check.most {
        100.0.. => format!("{} or more", check.least),
        most => format!("{} to {most}", check.least),
    };
    let mut text =
        format!("{} is {ratio:.2} times {}{around}; the finding expects {asked}", check.above, check.below);
    if verdict == Verdict::CannotTell {
        match doubt {
            Some(why) => text += &format!(" (doubtful: {})", why.trim_end_matches('.')),
            None if interval.is_none() => text += " (too few runs)",
            None => {}
        }
    }
    Some((verdict, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::{MeasurementRecord, Operation};

    fn figure(value: f64) -> MeasurementRecord {
        MeasurementRecord::empty("x", Operation::Read).with_runs(vec![value])
    }

    #[test]
    fn verdicts_follow_the_figures() {
        let mut ours = OwnFigures::new();
        let verdict = |ours: &OwnFigures, id: &str| {
            let all = judge_findings(StudyNumber::S004, ours);
            all.into_iter().find(|finding| finding.id == id).expect(id)
        };
        assert_eq!(verdict(&ours, "F004-03").verdict, Verdict::CannotTell);
        ours.insert("RAID5/normal/seq_write".into(), figure(740.0));
        ours.insert("RAID10/normal/seq_write".into(), figure(500.0));
        assert_eq!(verdict(&ours, "F004-03").verdict, Verdict::Agrees);
        // One run decides only what is far beyond the noise.
        ours.insert("RAID5/normal/seq_write".into(), figure(510.0));
        let found = verdict(&ours, "F004-03");
        assert_eq!(found.verdict, Verdict::CannotTell);
        assert!(found.why.contains("(too few runs)"), "{}", found.why);
        ours.insert("RAID5/normal/seq_write".into(), figure(250.0));
        assert_eq!(verdict(&ours, "F004-03").verdict, Verdict::Disagrees);
        let three = |value: f64| figure(0.0).with_runs(vec![value, value + 1.0, value + 2.0]);
        ours.insert("RAID5/normal/seq_write".into(), three(510.0));
        ours.insert("RAID10/normal/seq_write".into(), three(500.0));
        let found = verdict(&ours, "F004-03");
        assert_eq!(found.verdict, Verdict::Disagrees);
        assert!(found.why.contains("1.02 times"), "{}", found.why);
        let mut stalled = three(510.0);
        stalled.badge(DOUBTFUL, Err("Nothing at all completed for 0.3 s of 1.0 s.".into()));
        ours.insert("RAID5/normal/seq_write".into(), stalled);
        let found = verdict(&ours, "F004-03");
        assert_eq!(found.verdict, Verdict::CannotTell);
        assert!(found.why.contains("doubtful: Nothing at all completed"), "{}", found.why);
        assert_eq!(verdict(&ours, "F004-30").verdict, Verdict::NotModelled);
        // The same median, but runs that scatter across the bound of 1.3.
        let scattered = |runs: &[f64]| figure(0.0).with_runs(runs.to_vec());
        ours.insert("RAID10/normal/seq_write".into(), scattered(&[500.0; 4]));
        ours.insert("RAID5/normal/seq_write".into(), scattered(&[600.0, 690.0, 700.0, 760.0]));
        let found = verdict(&ours, "F004-03");
        assert_eq!(found.verdict, Verdict::CannotTell, "{}", found.why);
        assert!(found.why.contains("95 %"), "{}", found.why);
    }

    #[test]
    fn a_ratio_inside_its_bounds_agrees_with_its_interval() {
        let calm = |value: f64| figure(0.0).with_runs(vec![value, value + 1.0, value + 2.0]);
        let mut ours = OwnFigures::new();
        ours.insert("RAID5/normal/seq_write".into(), calm(740.0));
        ours.insert("RAID10/normal/seq_write".into(), calm(500.0));
        let all = judge_findings(StudyNumber::S004, &ours);
        let found = all.into_iter().find(|finding| finding.id == "F004-03").expect("it");
        assert_eq!(found.verdict, Verdict::Agrees, "{}", found.why);
        assert!(
            found.why.contains("is 1.48 times") && found.why.contains("(95 %: 1.47 to 1.48)"),
            "{}",
            found.why
        );
    }

    #[test]
    fn every_check_belongs_to_a_finding() {
        for check in &CHECKS {
            assert!(FINDINGS.contains(&format!(",{},", check.id)), "{}", check.id);
        }
        for id in OTHERS {
            assert!(FINDINGS.contains(&format!(",{id},")), "{id}");
        }
    }
}
