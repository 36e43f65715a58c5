//! A run in words: the verdict on it, on several of one method, and the circumstances of a
//! measurement.

use std::collections::BTreeMap;

use super::ReportedRun;
use super::figures::{in_flight, is_counted, named};
use crate::records::record::{MeasurementRecord, Operation, RunRecord, Unit};
use crate::reports::tables::{bytes, number, time_text};
use crate::statistics::{Comparison, Direction, MOST_RUNS_NEEDED, Pair, Verdict, compare};

/// Requests up to this size are the small ones of the verdict.
const SMALL_BYTES: u64 = 8 << 10;

/// Names of runs in charts and tables: their drives' models, targets or tools if these differ, else
/// their targets, and the time of those whose target repeats.
pub(super) fn names(runs: &[&ReportedRun]) -> Vec<String> {
    let model = |run: &RunRecord| run.environment.get("device_model").cloned();
    let shortened = |text: &str| -> String {
        let count = text.chars().count();
        if count > 28 {
            format!("…{}", text.chars().skip(count - 27).collect::<String>())
        } else {
            text.to_owned()
        }
    };
    let all = |of: &dyn Fn(&RunRecord) -> String| -> Option<Vec<String>> {
        let names: Vec<String> = runs.iter().map(|run| shortened(&of(&run.run))).collect();
        let mut unique = names.clone();
        unique.sort();
        unique.dedup();
        (unique.len() == names.len()).then_some(names)
    };
    let by_model = runs.iter().all(|run| model(&run.run).is_some());
    by_model
        .then(|| all(&|run| model(run).unwrap_or_default()))
        .flatten()
        .or_else(|| all(&|run| run.target.clone()))
        .or_else(|| all(&|run| run.tool.clone()))
        .or_else(|| all(&|run| with_time(run, runs)))
        .unwrap_or_else(|| runs.iter().map(|run| run.run.run.clone()).collect())
}

/// The target of a run, with the time if another run has this target, and the date if that differs.
fn with_time(run: &RunRecord, runs: &[&ReportedRun]) -> String {
    let others = || runs.iter().map(|other| &other.run).filter(|other| other.run != run.run);
    if others().all(|other| other.target != run.target) {
        return run.target.clone();
    }
    let (day, time) = run.date.split_once('T').unwrap_or((&run.date, ""));
    let time = time.trim_end_matches('Z');
    let end: String = if others().all(|other| other.date.starts_with(day)) {
        time.to_owned()
    } else {
        format!("{day} {time}").chars().take(16).collect()
    };
    let is_path = run.target.starts_with('/');
    let target = run.target.rsplit('/').next().filter(|_| is_path).unwrap_or(&run.target);
    format!("{target} {end}")
}

/// The most important figures of one run in a sentence or two.
pub(super) fn verdict(run: &RunRecord) -> String {
    let figures = &run.measurements;
    let best = |op: Operation, of: fn(&MeasurementRecord) -> Option<f64>| {
        let known =
            figures.iter().filter(|figure| figure.op == op).filter_map(|figure| Some((figure, of(figure)?)));
        known.max_by(|(_, one), (_, other)| one.total_cmp(other))
    };
    let large = |figure: &MeasurementRecord| figure.mb_per_s.filter(|_| figure.unit == Unit::MbPerS);
    let small = |figure: &MeasurementRecord| {
        figure
            .iops
            .filter(|_| is_counted(figure) && figure.block_bytes.is_some_and(|bytes| bytes <= SMALL_BYTES))
    };
    let mut parts = Vec::new();
    for (op, what) in
        [(Operation::Read, "reads"), (Operation::Write, "writes"), (Operation::Mixed, "mixed requests")]
    {
        parts.extend(
            best(op, large)
                .map(|(figure, rate)| format!("{what} reach {} MB/s ({})", number(rate), figure.name)),
        );
    }
    for (op, what) in
        [(Operation::Read, "read"), (Operation::Write, "written"), (Operation::Mixed, "read or written")]
    {
        parts.extend(best(op, small).map(|(figure, rate)| {
            let size = figure.block_bytes.map_or_else(String::new, bytes);
            format!("{} blocks of {size} are {what} a second ({})", number(rate), figure.name)
        }));
    }
    for (op, what) in [(Operation::Transaction, "transactions"), (Operation::Seek, "seeks")] {
        let counted = |figure: &MeasurementRecord| figure.iops.filter(|_| figure.unit == Unit::PerSecond);
        parts.extend(best(op, counted).map(|(_, rate)| format!("{} {what} a second", number(rate))));
    }
    let alone = figures.iter().filter(|figure| in_flight(figure) == Some(1));
    let smallest = alone.filter(|figure| figure.latency_us.is_some()).min_by_key(|figure| {
        (figure.block_bytes.unwrap_or(u64::MAX), figure.op != Operation::Read, figure.name.contains("seq"))
    });
    parts.extend(smallest.and_then(|figure| {
        let latency = figure.latency_us?;
        let far = latency.p99.map_or_else(String::new, |us| format!(", 99 % within {}", time_text(us)));
        Some(format!("one request alone takes {} ({}){far}", time_text(latency.mean?), figure.name))
    }));
    capitalised(&parts.join("; "))
}

/// Comparisons of a run with the first one, over all figures that both have.
pub(super) fn compared(first: &ReportedRun, second: &ReportedRun) -> Vec<Comparison> {
    let pair = |figure: &MeasurementRecord| {
        let other = named(second, &figure.name).filter(|other| other.unit == figure.unit)?;
        let higher = figure.unit.higher_is_better();
        let direction = if higher { Direction::HigherIsBetter } else { Direction::LowerIsBetter };
        Some(Pair {
            name: figure.name.clone(),
            first: figure.runs.clone(),
            second: other.runs.clone(),
            direction,
        })
    };
    compare(&first.run.measurements.iter().filter_map(pair).collect::<Vec<_>>())
}

/// The verdict on several runs of one method: each against the first.
pub(super) fn verdict_of_several(runs: &[&ReportedRun], names: &[String]) -> String {
    let Some((first, others)) = runs.split_first() else { return String::new() };
    let one = |(other, name): (&&ReportedRun, &String)| {
        let all = compared(first, other);
        let count = |verdict| all.iter().filter(|found| found.verdict == verdict).count();
        let (better, worse) = (count(Verdict::Better), count(Verdict::Worse));
        let mut ratios: Vec<f64> =
            all.iter().map(|found| found.ratio).filter(|ratio| ratio.is_finite()).collect();
        ratios.sort_by(f64::total_cmp);
        let middle = ratios.get(ratios.len() / 2).map_or_else(String::new, |ratio| {
            format!(" Its figures are {} times the others' (median).", number(*ratio))
        });
        let undecided = all.len() - better - worse;
        let found = all.iter().filter(|found| found.verdict == Verdict::CannotTell);
        let more = match found.map(|found| found.runs_needed).max() {
            None => String::new(),
            Some(MOST_RUNS_NEEDED..) => "; these runs vary too much for more of them to decide it".to_owned(),
            Some(runs) => format!("; {runs} runs of each can decide it"),
        };
        let (first, count) = (&names[0], all.len());
        match (better, worse) {
            (0, 0) => format!("{name} and {first} differ surely in none of {count} figures{more}.{middle}"),
            _ => format!(
                "{name} is better than {first} in {better} of {count} figures, worse in {worse}; \
                 {undecided} are undecided{more}.{middle}"
            ),
        }
    };
    others.iter().zip(&names[1..]).map(one).collect::<Vec<_>>().join(" ")
}

/// Number of valid figures, and what the others failed.
pub(super) fn checks(runs: &[ReportedRun]) -> String {
    let figures: Vec<&MeasurementRecord> = runs.iter().flat_map(|run| &run.run.measurements).collect();
    let sound = figures.iter().filter(|figure| figure.badges.values().all(|holds| *holds)).count();
    let mut failed: BTreeMap<String, usize> = BTreeMap::new();
    for name in figures.iter().flat_map(|figure| figure.badge_reasons.keys()) {
        *failed.entry(MeasurementRecord::failed(name)).or_default() += 1;
    }
    let mut failed: Vec<(String, usize)> = failed.into_iter().collect();
    failed.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let failed: Vec<String> = failed.into_iter().map(|(name, count)| format!("{name}: {count}")).collect();
    let mut text = format!("{sound} of {} figures passed every check of their validity", figures.len());
    if !failed.is_empty() {
        text += &format!(" ({})", failed.join(", "));
    }
    match runs.iter().filter(|run| !run.run.finished).count() {
        0 => {}
        1 => text += "; 1 run is not finished",
        several => text += &format!("; {several} runs are not finished"),
    }
    text + "."
}

pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>());
    first.map_or_else(String::new, |text| text + ".")
}

/// Circumstances that every report states, in this order: key, name.
const FACTS: [(&str, &str); 20] = [
    ("device_model", "drive model"),
    ("device_firmware", "firmware"),
    ("device_serial", "serial number"),
    ("device", "device"),
    ("rotational", "rotates"),
    ("smart", "health"),
    ("link_mb_per_s", "link"),
    ("scheduler", "I/O scheduler"),
    ("file_system", "file system"),
    ("mount_options", "mount options"),
    ("direct_io", "page cache bypassed"),
    ("cpu_model", "processor"),
    ("cores", "cores"),
    ("memory_bytes", "memory"),
    ("virtual_machine", "virtual machine"),
    ("system", "system"),
    ("kernel", "kernel"),
    ("load_average", "load average at the start"),
    ("program_version", "version"),
    ("command", "command"),
];

/// A run's circumstances in words: name, value.
pub(super) fn circumstances(run: &RunRecord) -> Vec<(String, String)> {
    let mut facts = vec![
        ("target".to_owned(), run.target.clone()),
        ("method".to_owned(), run.profile.clone()),
        ("tool".to_owned(), run.tool.clone()),
        ("date".to_owned(), run.date.clone()),
    ];
    let known = FACTS.iter().filter_map(|(key, name)| {
        let value = run.environment.get(*key)?;
        Some(((*name).to_owned(), in_words(key, value)))
    });
    facts.extend(known);
    let is_listed = |key: &String| FACTS.iter().any(|(known, _)| *known == key.as_str());
    let others = run.environment.iter().filter(|(key, _)| !is_listed(key));
    facts.extend(others.map(|(key, value)| {
        let name = key.strip_suffix("_bytes").unwrap_or(key).replace('_', " ");
        (name, in_words(key, value))
    }));
    facts
}

/// A value of the environment with its unit.
fn in_words(key: &str, value: &str) -> String {
    let figure = || value.parse::<f64>().ok();
    match value {
        "true" => return "yes".into(),
        "false" => return "no".into(),
        _ => {}
    }
    if key.ends_with("_bytes") {
        return value.parse().map_or_else(|_| value.to_owned(), bytes);
    }
    if key.ends_with("_mb_per_s") {
        return figure().map_or_else(|| value.to_owned(), |rate| format!("{} MB/s", number(rate)));
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::Latencies;

    fn figure(name: &str, op: Operation, block_bytes: u64, depth: u32, mb_per_s: f64) -> MeasurementRecord {
        let mut figure = MeasurementRecord {
            block_bytes: Some(block_bytes),
            queue_depth: Some(depth),
            workers: Some(1),
            ..MeasurementRecord::empty(name, op)
        }
        .with_runs(vec![mb_per_s; 3]);
        figure.iops = Some(mb_per_s * 1e6 / block_bytes as f64);
        figure.latency_us = Some(Latencies { mean: Some(82.0), p99: Some(1300.0), ..Latencies::default() });
        figure
    }

    #[test]
    fn the_verdict_names_what_reviews_state() {
        let run = RunRecord {
            measurements: vec![
                figure("SEQ_read", Operation::Read, 1 << 20, 8, 3412.0),
                figure("SEQ_write", Operation::Write, 1 << 20, 8, 2100.0),
                figure("RND_read", Operation::Read, 4096, 1, 40.96),
            ],
            ..RunRecord::default()
        };
        let text = verdict(&run);
        for part in [
            "Reads reach 3412 MB/s (SEQ_read)",
            "writes reach 2100 MB/s",
            "10,000 blocks of 4 KiB are read a second",
            "one request alone takes 82.0 µs (RND_read), 99 % within 1.30 ms",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn runs_of_one_target_are_told_apart_by_their_time() {
        let run = |name: &str, target: &str, date: &str| ReportedRun {
            run: RunRecord {
                run: name.into(),
                target: target.into(),
                date: date.into(),
                ..RunRecord::default()
            },
            samples: Vec::new(),
        };
        let runs = [
            run("a", "/srv/bench", "2026-11-27T17:55:33Z"),
            run("b", "tank/v", "2026-11-27T17:56:37Z"),
            run("c", "/srv/bench", "2026-11-27T17:57:48Z"),
        ];
        let runs: Vec<&ReportedRun> = runs.iter().collect();
        assert_eq!(names(&runs), ["bench 17:55:33", "tank/v", "bench 17:57:48"]);
        let later = run("d", "tank/v", "2026-11-28T17:56:37Z");
        assert_eq!(names(&[runs[1], &later]), ["tank/v 2026-11-27 17:56", "tank/v 2026-11-28 17:56"]);
        // No other difference is left but the names of the runs.
        assert_eq!(names(&[runs[1], &run("e", "tank/v", &runs[1].run.date)]), ["b", "e"]);
    }

    #[test]
    fn circumstances_are_stated_in_words() {
        let environment = [
            ("memory_bytes", "25276063744"),
            ("rotational", "false"),
            ("device_model", "X 990"),
            ("note", "a"),
        ];
        let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let facts = circumstances(&RunRecord { environment, ..RunRecord::default() });
        for fact in [("memory", "23.5 GiB"), ("rotates", "no"), ("drive model", "X 990"), ("note", "a")] {
            assert!(
                facts.iter().any(|(name, value)| (name.as_str(), value.as_str()) == fact),
                "{fact:?}: {facts:?}"
            );
        }
    }
}
