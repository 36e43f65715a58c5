//! What a study found, held against our figures: agrees, disagrees, cannot tell, not modelled. Pure.
//!
//! A check compares ratios of our own figures with the study's, with room for the noise of short runs. Findings that only
//! another system or another quantity can show are not judged, and say why.

use serde::{Deserialize, Serialize};

use super::measure::Ours;
use super::published::FINDINGS;
use super::{FindingResult, StudyNumber};
use crate::import::table::{Headings, fields};

/// Whether a run agrees with a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Our figures show the same.
    Agrees,
    /// They show the opposite.
    Disagrees,
    /// They do not decide it.
    CannotTell,
    /// Nothing of it is built here.
    NotModelled,
}

/// A ratio of two of our figures that a finding gives bounds for.
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
const CHECKS: [Check; 28] = [
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
];

/// Findings that other systems alone can show.
const OTHERS: [&str; 26] = [
    "F000-02", "F000-03", "F000-06", "F000-08", "F000-12", "F000-13", "F000-14", "F000-15", "F000-16",
    "F000-22", "F002-04", "F002-16", "F002-17", "F002-18", "F002-27", "F002-49", "F002-50", "F002-51",
    "F002-52", "F002-53", "F002-54", "F004-16", "F004-21", "F004-22", "F004-27", "F004-30",
];

/// All findings of a study, judged as far as our figures go.
pub(super) fn judge_findings(study: StudyNumber, ours: &Ours) -> Vec<FindingResult> {
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

fn judge(id: &str, support: &str, ours: &Ours) -> (Verdict, String) {
    let value = |key: &str| ours.get(key).and_then(|figure| crate::statistics::median(&figure.runs));
    let mut found: Vec<(bool, String)> = Vec::new();
    let mut missing = Vec::new();
    for check in CHECKS.iter().filter(|check| check.id == id) {
        match value(check.above).zip(value(check.below).filter(|below| *below > 0.0)) {
            Some((above, below)) => {
                let ratio = above / below;
                let holds = (check.least..=check.most).contains(&ratio);
                let text = format!(
                    "{} is {ratio:.2} times {}; the finding asks for {} to {}",
                    check.above, check.below, check.least, check.most
                );
                found.push((holds, text));
            }
            None => missing.push(check.above),
        }
    }
    let words = found.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>().join("; ");
    match (found.is_empty(), found.iter().all(|(holds, _)| *holds)) {
        (false, true) => (Verdict::Agrees, words),
        (false, false) => (Verdict::Disagrees, words),
        (true, _) if !missing.is_empty() => {
            (Verdict::CannotTell, format!("not measured in this run: {}", missing.join(", ")))
        }
        (true, _) if OTHERS.contains(&id) => (
            Verdict::NotModelled,
            "it is about another system, which is in the tables as published only".into(),
        ),
        (true, _) if matches!(support, "stated" | "cited") => {
            (Verdict::CannotTell, "the study states it without a table".into())
        }
        (true, _) => (Verdict::CannotTell, "no pair of figures taken here shows it".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{MeasurementRecord, Operation};

    fn figure(value: f64) -> MeasurementRecord {
        MeasurementRecord::empty("x", Operation::Read).with_runs(vec![value])
    }

    #[test]
    fn verdicts_follow_the_figures() {
        let mut ours = Ours::new();
        let verdict = |ours: &Ours, id: &str| {
            let all = judge_findings(StudyNumber::S004, ours);
            all.into_iter().find(|finding| finding.id == id).expect(id)
        };
        assert_eq!(verdict(&ours, "F004-03").verdict, Verdict::CannotTell);
        ours.insert("RAID5/normal/seq_write".into(), figure(740.0));
        ours.insert("RAID10/normal/seq_write".into(), figure(500.0));
        assert_eq!(verdict(&ours, "F004-03").verdict, Verdict::Agrees);
        ours.insert("RAID5/normal/seq_write".into(), figure(510.0));
        let found = verdict(&ours, "F004-03");
        assert_eq!(found.verdict, Verdict::Disagrees);
        assert!(found.why.contains("1.02 times"), "{}", found.why);
        assert_eq!(verdict(&ours, "F004-30").verdict, Verdict::NotModelled);
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
