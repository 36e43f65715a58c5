//! A run in the output format of the tool that its method follows. Pure.
//!
//! CrystalDiskMark's text (the best run, as it prints, and study 000's groups of small and large
//! files beside it), bonnie's line, PostMark's report, ATTO's bars, Orion's matrices, IOMeter's
//! shares of reads by shares of random requests. `lab import` also parses our output in the first
//! three formats. A run whose figures do not fill a format has none.

use std::fmt::Write;

use crate::method::{parse_bytes, size_text};
use crate::records::import::BONNIE_TESTS;
use crate::records::record::{MeasurementRecord, Operation, RunRecord};
use crate::statistics::{mean, median};

/// Maximum length of the small files of study 000.
const SMALL_BYTES: u64 = 32 << 20;
/// Length of the longest bar.
const BAR: f64 = 30.0;

/// Formats a run like its tool; `None` if there is no such format.
pub fn tool_form(run: &RunRecord) -> Option<String> {
    let text = match run.profile.as_str() {
        "crystaldiskmark" => disk_mark(run),
        "bonnie" => bonnie(run),
        "postmark" => postmark(run),
        "atto" => atto(run),
        "orion-normal" => orion(run),
        "iometer-matrix" => iometer(run),
        _ => None,
    };
    // Output of another tool is not formatted again.
    text.filter(|_| run.tool.starts_with("stripewise") || run.tool.starts_with("fio"))
}

/// Splits `SEQ1M_Q16T1_read of 16 MiB` into the test and, if several sizes were measured, the size.
fn sized(name: &str) -> (&str, &str) {
    name.split_once(" of ").unwrap_or((name, ""))
}

fn disk_mark(run: &RunRecord) -> Option<String> {
    let mut sizes: Vec<&str> = Vec::new();
    for figure in &run.measurements {
        let (_, size) = sized(&figure.name);
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    let rule = "-".repeat(78);
    let mut text = format!(
        "{rule}\n{}, in the form of CrystalDiskMark 7.0: the best of the runs\n{rule}\n* MB/s = 1,000,000 bytes/s, KB = \
         1000 bytes, KiB = 1024 bytes\n",
        run.tool
    );
    for size in &sizes {
        for (heading, op) in [("[Read]", Operation::Read), ("[Write]", Operation::Write)] {
            let of_side =
                run.measurements.iter().filter(|figure| figure.op == op && sized(&figure.name).1 == *size);
            let lines: Vec<String> = of_side.filter_map(disk_mark_line).collect();
            if !lines.is_empty() {
                let _ = writeln!(text, "\n{heading}\n{}", lines.join("\n"));
            }
        }
        let runs = run.measurements.iter().map(|figure| figure.runs.len()).max()?;
        let size = if size.is_empty() { "one size" } else { size };
        let _ = writeln!(text, "\nProfile: Default\n   Test: {size} (x{runs})");
    }
    let date = run.date.trim_end_matches('Z').replace('T', " ").replace('-', "/");
    let _ = writeln!(text, "   Date: {date}");
    text += &groups(run);
    Some(text)
}

/// Formats `Sequential 1MiB (Q= 16, T= 1):   560.563 MB/s [ 534.6 IOPS] < 14932.41 us>`.
fn disk_mark_line(figure: &MeasurementRecord) -> Option<String> {
    let bytes = figure.block_bytes?;
    let best = figure.runs.iter().copied().fold(0.0, f64::max);
    let kind = if figure.name.starts_with("SEQ") { "Sequential" } else { "Random" };
    let what = format!("{kind} {}", size_text(bytes));
    let latency = figure.latency_us.and_then(|latency| latency.mean).unwrap_or(0.0);
    Some(format!(
        "{what:>15} (Q={:>3}, T={:>2}): {best:>9.3} MB/s [{:>9.1} IOPS] <{latency:>9.2} us>",
        figure.queue_depth?,
        figure.workers?,
        best * 1e6 / bytes as f64
    ))
}

/// Study 000 judges by two groups of sizes and the mean of the runs.
fn groups(run: &RunRecord) -> String {
    let mut tests: Vec<&str> = Vec::new();
    for figure in &run.measurements {
        let (test, _) = sized(&figure.name);
        if !tests.contains(&test) {
            tests.push(test);
        }
    }
    let of_group = |test: &str, small: bool| {
        let fits = |figure: &&MeasurementRecord| {
            let (name, size) = sized(&figure.name);
            let bytes = parse_bytes(&size.replace(' ', ""));
            name == test && bytes.is_ok_and(|bytes| (bytes <= SMALL_BYTES) == small)
        };
        mean(&run.measurements.iter().filter(fits).filter_map(|figure| figure.mb_per_s).collect::<Vec<_>>())
    };
    let rows: Vec<(&str, f64, f64)> = tests
        .iter()
        .filter_map(|test| Some((*test, of_group(test, true)?, of_group(test, false)?)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{:<20} {:>12} {:>12}\n", "mean MB/s, study 000", "small files", "large files");
    for (test, small, large) in rows {
        let _ = writeln!(text, "{test:<20} {small:>12.1} {large:>12.1}");
    }
    text
}

fn figure_of(run: &RunRecord, name: &str) -> Option<f64> {
    let found = run.measurements.iter().find(|figure| figure.name == name)?;
    median(&found.runs)
}

fn known(run: &RunRecord, name: &str) -> Option<f64> {
    run.environment.get(name)?.parse().ok()
}

fn bonnie(run: &RunRecord) -> Option<String> {
    let mut line = format!("{:>14}", format!("1*{:.0}", known(run, "file_bytes")? / f64::from(1 << 20)));
    for (name, op) in BONNIE_TESTS {
        let rate = figure_of(run, name)?;
        let cpu = figure_of(run, &format!("{name}_cpu"))?;
        let _ = match op {
            Operation::Seek => write!(line, " {rate:>5.1} {cpu:>4.1}"),
            _ => write!(line, " {:>5.0} {cpu:>4.1}", rate * 1e6 / 1024.0),
        };
    }
    Some(format!(
        "{:14}-------Sequential Output-------- ---Sequential Input-- --Random--\n\
         {:14}-Per Char- --Block--- -Rewrite-- -Per Char- --Block--- --Seeks---\n\
         Machine     MB K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU  /sec %CPU\n{line}\n",
        "", ""
    ))
}

fn postmark(run: &RunRecord) -> Option<String> {
    let rate = |name: &str| figure_of(run, name);
    let (files, transactions) = (known(run, "files")?, known(run, "transactions")?);
    let total = rate("total_time")?;
    let mixed = transactions / rate("transactions")?.max(1e-9);
    let (created, deleted) = (rate("created")? * total, rate("deleted")? * total);
    let deleted_mixed = rate("deleted_mixed")? * mixed;
    let data = |name: &str| -> Option<String> {
        let side = if name == "data_read" { "read" } else { "written" };
        let (all, a_second) = (rate(name)? * 1e6 * total, rate(name)? * 1e6);
        Some(format!("\t{} {side} ({} per second)\n", scaled(all), scaled(a_second)))
    };
    let mut text = format!(
        "PostMark v1.5 : in its form, by {}\nTime:\n\t{total:.2} seconds total\n\t{mixed:.2} seconds of transactions \
         ({:.2} per second)\n\nFiles:\n",
        run.tool,
        rate("transactions")?
    );
    let _ = writeln!(text, "\t{created:.0} created ({:.2} per second)", rate("created")?);
    let _ = writeln!(text, "\t\tCreation alone: {files:.0} files ({:.2} per second)", rate("created_alone")?);
    let in_transactions = |count: f64, rate: f64| {
        format!("\t\tMixed with transactions: {count:.0} files ({rate:.2} per second)\n")
    };
    text += &in_transactions(created - files, rate("created_mixed")?);
    for (name, what) in [("files_read", "read"), ("files_appended", "appended")] {
        let _ = writeln!(text, "\t{:.0} {what} ({:.2} per second)", rate(name)? * mixed, rate(name)?);
    }
    let _ = writeln!(text, "\t{deleted:.0} deleted ({:.2} per second)", rate("deleted")?);
    let alone = deleted - deleted_mixed;
    let _ = writeln!(text, "\t\tDeletion alone: {alone:.0} files ({:.2} per second)", rate("deleted_alone")?);
    text += &in_transactions(deleted_mixed, rate("deleted_mixed")?);
    text += "\nData:\n";
    text += &data("data_read")?;
    text += &data("data_written")?;
    Some(text)
}

/// Formats bytes in PostMark's units, which are powers of 1024.
fn scaled(bytes: f64) -> String {
    match bytes {
        0.0..1024.0 => format!("{bytes:.2} bytes"),
        1024.0..1_048_576.0 => format!("{:.2} kilobytes", bytes / 1024.0),
        1_048_576.0..1_073_741_824.0 => format!("{:.2} megabytes", bytes / 1_048_576.0),
        _ => format!("{:.2} gigabytes", bytes / 1_073_741_824.0),
    }
}

fn atto(run: &RunRecord) -> Option<String> {
    let mut rows: Vec<(u64, [Option<f64>; 2])> = Vec::new();
    for figure in &run.measurements {
        let (bytes, side) = (figure.block_bytes?, usize::from(figure.op == Operation::Read));
        match rows.iter_mut().find(|(known, _)| *known == bytes) {
            Some((_, rates)) => rates[side] = figure.mb_per_s,
            None => {
                let mut rates = [None; 2];
                rates[side] = figure.mb_per_s;
                rows.push((bytes, rates));
            }
        }
    }
    let most = rows.iter().flat_map(|(_, rates)| rates).flatten().copied().fold(0.0, f64::max);
    let mut text = format!("{:>8} {:>10} {:>10}  MB/s, w write, r read\n", "size", "write", "read");
    for (bytes, rates) in rows {
        let number = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!("{rate:.1}"));
        let bar = |rate: Option<f64>, letter: &str| {
            letter.repeat((rate.unwrap_or(0.0) / most * BAR).round() as usize)
        };
        let [write, read] = rates;
        let size = size_text(bytes);
        let _ = writeln!(text, "{size:>8} {:>10} {:>10}  {}", number(write), number(read), bar(write, "w"));
        let _ = writeln!(text, "{:>8} {:>10} {:>10}  {}", "", "", "", bar(read, "r"));
    }
    (most > 0.0).then_some(text)
}

/// Small requests down, large ones across: rate and latency of the small ones, throughput of the
/// large ones.
fn orion(run: &RunRecord) -> Option<String> {
    let cell = |name: &str, large: bool| {
        let (name, is_large) = name.strip_suffix(", large").map_or((name, false), |name| (name, true));
        let (small, beside) = name.strip_prefix("small ")?.split_once(" large ")?;
        let depths: (u32, u32) = (small.parse().ok()?, beside.parse().ok()?);
        (is_large == large).then_some(depths)
    };
    let matrix = |title: &str, large: bool, value: fn(&MeasurementRecord) -> Option<f64>| {
        let cells: Vec<((u32, u32), f64)> = run
            .measurements
            .iter()
            .filter_map(|figure| Some((cell(&figure.name, large)?, value(figure)?)))
            .filter(|((small, beside), _)| if large { *beside > 0 } else { *small > 0 })
            .collect();
        grid(title, "small\\large", &cells)
    };
    let parts = [
        matrix("Small requests a second", false, |figure| figure.iops),
        matrix("Mean latency of small requests, us", false, |figure| figure.latency_us?.mean),
        matrix("MB/s of large requests", true, |figure| figure.mb_per_s),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("\n"))
}

fn iometer(run: &RunRecord) -> Option<String> {
    let cells: Vec<((u32, u32), f64)> = run
        .measurements
        .iter()
        .filter_map(|figure| {
            let (reads, random) = figure.name.split_once(" % reads, ")?;
            let random = random.strip_suffix(" % random")?;
            Some(((reads.parse().ok()?, random.parse().ok()?), figure.iops?))
        })
        .collect();
    grid("Requests a second: % of reads down, % of random requests across", "reads\\random", &cells)
}

/// A table with two numeric axes; `None` if it is empty.
fn grid(title: &str, corner: &str, cells: &[((u32, u32), f64)]) -> Option<String> {
    let sides = |of: fn(&(u32, u32)) -> u32| {
        let mut all: Vec<u32> = cells.iter().map(|(at, _)| of(at)).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (rows, columns) = (sides(|at| at.0), sides(|at| at.1));
    let mut text = format!("{title}\n{corner:>12}");
    for column in &columns {
        let _ = write!(text, " {column:>9}");
    }
    for row in &rows {
        let _ = write!(text, "\n{row:>12}");
        for column in &columns {
            let value =
                cells.iter().find(|(at, _)| at == &(*row, *column)).map(|(_, value)| format!("{value:.1}"));
            let _ = write!(text, " {:>9}", value.unwrap_or_default());
        }
    }
    (!cells.is_empty()).then_some(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::built_in;
    use crate::records::import::import;
    use crate::records::record::{Latencies, Unit};

    fn run_of(profile: &str, figures: Vec<MeasurementRecord>) -> RunRecord {
        RunRecord {
            profile: profile.into(),
            tool: "stripewise 0.1.0".into(),
            date: "2026-01-02T03:04:05Z".into(),
            measurements: figures,
            ..RunRecord::default()
        }
    }

    /// Figures of a method's steps, each with its own rates.
    fn figures(profile: &str) -> Vec<MeasurementRecord> {
        let profile = built_in(profile).expect("it");
        let loads = profile.steps.iter().flat_map(|step| step.loads().map(move |load| (step.op, load)));
        let one = |(at, (op, load)): (usize, (Operation, &crate::loads::workload::Workload))| {
            let rate = 100.0 + at as f64;
            let mut figure =
                MeasurementRecord::of_load(&load.name, op, load).with_runs(vec![rate, rate + 0.5, rate]);
            figure.iops = Some(10.0 * rate);
            figure.latency_us = Some(Latencies { mean: Some(rate), ..Latencies::default() });
            figure
        };
        loads.enumerate().map(one).collect()
    }

    #[test]
    fn crystaldiskmark_text_has_best_runs_and_reimports() {
        let run = run_of("crystaldiskmark", figures("crystaldiskmark"));
        let text = tool_form(&run).expect("its text");
        let line = "Sequential 1MiB (Q=  1, T= 1):   100.500 MB/s [     95.8 IOPS] <   100.00 us>";
        assert!(text.contains(line), "{text}");
        let again = import(text.as_bytes()).expect("reimported").remove(0);
        assert_eq!(
            (again.profile.as_str(), again.date.as_str()),
            ("crystaldiskmark", "2026-01-02T03:04:05Z")
        );
        assert_eq!(again.measurements.len(), 12);
        for figure in &again.measurements {
            let ours = run.measurements.iter().find(|ours| ours.name == figure.name).expect("the same names");
            let best = ours.runs.iter().copied().fold(0.0, f64::max);
            assert!((figure.runs[0] - best).abs() < 1e-3, "{figure:?}");
        }
    }

    #[test]
    fn several_sizes_are_grouped_as_study_000_does() {
        let mut all = Vec::new();
        for (number, size) in ["16 MiB", "32 MiB", "1 GiB", "4 GiB"].into_iter().enumerate() {
            for figure in figures("crystaldiskmark").into_iter().take(2) {
                let rate = 100.0 * (number + 1) as f64;
                let named = MeasurementRecord { name: format!("{} of {size}", figure.name), ..figure };
                all.push(named.with_runs(vec![rate]));
            }
        }
        let text = tool_form(&run_of("crystaldiskmark", all)).expect("its text");
        let row = text.lines().find(|line| line.starts_with("SEQ1M_Q1T1_read")).expect("a row");
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["SEQ1M_Q1T1_read", "150.0", "350.0"]);
        assert_eq!(text.matches("[Read]").count(), 4, "{text}");
    }

    #[test]
    fn bonnie_and_postmark_output_reimports() {
        let mut bonnie = run_of("bonnie", Vec::new());
        bonnie.environment.insert("file_bytes".into(), (2030u64 << 20).to_string());
        for (at, (name, op)) in BONNIE_TESTS.into_iter().enumerate() {
            let unit = if op == Operation::Seek { Unit::PerSecond } else { Unit::MbPerS };
            bonnie.measurements.push(MeasurementRecord::printed(name, op, unit, 51.2 + at as f64));
            let cpu = MeasurementRecord::printed(format!("{name}_cpu"), op, Unit::CpuPercent, 98.1);
            bonnie.measurements.push(cpu);
        }
        assert!(tool_form(&RunRecord { tool: "bonnie 1.x".into(), ..bonnie.clone() }).is_none());
        let mut postmark = run_of("postmark", Vec::new());
        for (name, value) in [("files", 5000), ("transactions", 4000)] {
            postmark.environment.insert(name.into(), value.to_string());
        }
        for (at, name) in crate::loads::files::POSTMARK_FIGURES.into_iter().enumerate() {
            let unit = match name {
                "total_time" => Unit::Seconds,
                _ if name.starts_with("data_") => Unit::MbPerS,
                _ => Unit::PerSecond,
            };
            let op = Operation::Transaction;
            postmark.measurements.push(MeasurementRecord::printed(name, op, unit, 51.2 + at as f64));
        }
        for run in [bonnie, postmark] {
            let text = tool_form(&run).expect("its form");
            let again = import(text.as_bytes()).unwrap_or_else(|why| panic!("{why}: {text}")).remove(0);
            assert_eq!(again.profile, run.profile);
            for figure in &run.measurements {
                let found = again.measurements.iter().find(|found| found.name == figure.name).expect("there");
                assert!((found.runs[0] / figure.runs[0] - 1.0).abs() < 1e-3, "{found:?} {figure:?}");
            }
        }
    }

    #[test]
    fn matrices_and_bars_have_a_cell_for_each_figure() {
        let orion = tool_form(&run_of("orion-normal", figures("orion-normal"))).expect("its matrices");
        assert_eq!(orion.lines().count(), (2 + 7) + 1 + (2 + 7) + 1 + (2 + 8), "{orion}");
        let small = orion.lines().find(|line| line.trim_start().starts_with("20 ")).expect("the last row");
        assert_eq!(small.split_whitespace().count(), 1 + 6, "{small}");
        let matrix = tool_form(&run_of("iometer-matrix", figures("iometer-matrix"))).expect("a matrix");
        assert_eq!(matrix.lines().count(), 2 + 5, "{matrix}");
        let atto = tool_form(&run_of("atto", figures("atto"))).expect("bars");
        assert_eq!(atto.lines().count(), 1 + 2 * 21, "{atto}");
        assert!(atto.lines().last().expect("a line").trim() == "r".repeat(30), "{atto}");
        assert!(tool_form(&run_of("toshiba", figures("toshiba"))).is_none());
    }
}
