//! The page of `lab report`: figures with intervals, a dot for each run, latency percentiles,
//! bandwidth over time, badges, environment and raw data. One self-contained file, in the style of
//! the evaluation's report.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::records::record::{MeasurementRecord, RunRecord};
use crate::records::store::Sample;
use crate::reports::forms::tool_form;
use crate::reports::report::svg::{Anchor, Svg, escape, round_steps};
use crate::reports::report::{Chart, STYLE};
use crate::scenario::Timeline;

/// A run and the samples of each of its figures.
#[derive(Clone, Debug)]
pub struct ReportedRun {
    /// The figures.
    pub run: RunRecord,
    /// Samples by figure; those of the first [`charted_figures`] are drawn.
    pub samples: Vec<Vec<Sample>>,
}

/// Percentiles drawn.
const QUANTILES: [(f64, &str); 6] =
    [(0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99"), (1.0, "max")];
/// Maximum number of figures of a run with charts of their own; all are in the table.
const CHARTED: usize = 24;
/// Approximate maximum over all runs, so that the page does not become too large to open.
const CHARTED_IN_ALL: usize = 480;

/// The whole page.
pub fn lab_report_html(runs: &[ReportedRun]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    let names: Vec<&str> = runs.iter().map(|run| run.run.run.as_str()).collect();
    let title = match names.as_slice() {
        [only] => format!("{only}: {} on {}", runs[0].run.profile, runs[0].run.target),
        several => format!("{} runs", several.len()),
    };
    let _ = writeln!(
        page,
        "<title>Stripewise: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>",
        escape(&title)
    );
    let _ = writeln!(
        page,
        "<header>\n<h1>{}</h1>\n<p class=\"soft\">{}</p>\n</header>\n<main>",
        escape(&title),
        verdict(runs)
    );
    for run in runs {
        one_run(&mut page, run, charted_figures(runs.len()));
    }
    raw_data(&mut page, runs);
    page += "</main>\n<footer class=\"soft\">1 MB is 10<sup>6</sup> bytes.</footer>\n</body>\n</html>\n";
    page
}

/// Every chart of the page as a separate file, in the page's order.
pub fn lab_report_charts(runs: &[ReportedRun]) -> Vec<Chart> {
    let mut all = Vec::new();
    for reported in runs {
        let name = &reported.run.run;
        let timeline = reported.run.timeline.as_ref();
        all.extend(timeline.map(|one| Chart::of(format!("{name}: over time"), &marked_timeline(one))));
        for (figure, samples) in charted(reported, charted_figures(runs.len())) {
            let title = |what: &str| format!("{name}: {}: {what}", figure.name);
            all.extend(drawn(figure, samples).iter().map(|(what, svg)| Chart::of(title(what), svg)));
        }
    }
    all
}

/// Summary for readers: the number of valid figures.
fn verdict(runs: &[ReportedRun]) -> String {
    let figures: Vec<&MeasurementRecord> = runs.iter().flat_map(|run| &run.run.measurements).collect();
    let sound = figures.iter().filter(|figure| figure.badges.values().all(|holds| *holds)).count();
    let unfinished = runs.iter().filter(|run| !run.run.finished).count();
    let mut text = format!("{sound} of {} figures passed every check of their validity", figures.len());
    if unfinished > 0 {
        let _ = write!(text, "; {unfinished} runs are not finished");
    }
    text + "."
}

fn one_run(page: &mut String, reported: &ReportedRun, most: usize) {
    let run = &reported.run;
    let _ = writeln!(
        page,
        "<section>\n<h2>{}</h2>\n<p>{} on {} by {}, {}.{}</p>",
        escape(&run.run),
        escape(&run.profile),
        escape(&run.target),
        escape(&run.tool),
        escape(&run.date),
        if run.finished { "" } else { " <b class=\"bad\">Not finished.</b>" }
    );
    table(page, run);
    if let Some(timeline) = &run.timeline {
        let _ = writeln!(
            page,
            "<figure><h3>Bandwidth and latency over time</h3>{}</figure>",
            marked_timeline(timeline)
        );
    }
    heat_map(page, run);
    if let Some(form) = tool_form(run) {
        let _ = writeln!(
            page,
            "<details open><summary>In the output format of its tool</summary><div class=\"scroll\"><pre>{}</pre></div></details>",
            escape(&form)
        );
    }
    page.push_str("<div class=\"charts\">\n");
    for (figure, samples) in charted(reported, most) {
        for (what, svg) in drawn(figure, samples) {
            let _ = writeln!(page, "<figure><h3>{}: {what}</h3>{svg}</figure>", escape(&figure.name));
        }
    }
    page.push_str("</div>\n");
    if run.measurements.len() > most {
        let _ = writeln!(page, "<p class=\"soft\">Charts are of the first {most} figures.</p>");
    }
    for note in &run.notes {
        let _ = writeln!(page, "<p>{}</p>", escape(note));
    }
    page.push_str("<h3>Environment</h3>\n<dl>\n");
    for (name, value) in &run.environment {
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(&name.replace('_', " ")), escape(value));
    }
    page.push_str("</dl>\n</section>\n");
}

fn table(page: &mut String, run: &RunRecord) {
    page.push_str(
        "<div class=\"scroll\"><table>\n<tr><th>measurement</th><th>MB/s</th><th>IOPS</th><th>95 % interval</th><th>mean us</th>\
         <th>99 % us</th><th>runs</th><th>checks</th></tr>\n",
    );
    for figure in &run.measurements {
        let latency = figure.latency_us.unwrap_or_default();
        let failed: Vec<String> = figure
            .badge_reasons
            .iter()
            .map(|(name, why)| {
                format!("<b class=\"bad\">{}</b>: {}", escape(&MeasurementRecord::failed(name)), escape(why))
            })
            .collect();
        let checks = match (failed.is_empty(), figure.badges.len()) {
            (true, 0) => "none known".to_owned(),
            (true, count) => format!("all {count} hold"),
            (false, _) => failed.join("<br>"),
        };
        let interval = figure.ci95.map_or_else(String::new, |[low, high]| {
            format!("{} – {} {}", digits(Some(low)), digits(Some(high)), figure.unit.text())
        });
        let _ = writeln!(
            page,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{interval}</td><td>{}</td><td>{}</td><td>{}</td><td style=\"text-align:left;white-space:normal\">{checks}</td></tr>",
            escape(&figure.name),
            digits(figure.mb_per_s),
            digits(figure.iops),
            digits(latency.mean),
            digits(latency.p99),
            figure.runs.len()
        );
    }
    page.push_str("</table></div>\n");
}

/// Block length by depth, if a run varies both: one map for each operation.
fn heat_map(page: &mut String, run: &RunRecord) {
    let mut maps: BTreeMap<String, BTreeMap<(u64, u32), f64>> = BTreeMap::new();
    for figure in &run.measurements {
        let depth = figure.queue_depth.unwrap_or(1) * figure.workers.unwrap_or(1);
        if let (Some(block), Some(rate)) = (figure.block_bytes, figure.mb_per_s) {
            maps.entry(format!("{:?}", figure.op).to_lowercase()).or_default().insert((block, depth), rate);
        }
    }
    for (op, cells) in maps {
        let mut blocks: Vec<u64> = cells.keys().map(|(block, _)| *block).collect();
        let mut depths: Vec<u32> = cells.keys().map(|(_, depth)| *depth).collect();
        for_unique(&mut blocks);
        for_unique(&mut depths);
        if blocks.len() < 2 || depths.len() < 2 {
            continue;
        }
        let most = cells.values().copied().fold(0.0, f64::max);
        let _ = write!(
            page,
            "<table class=\"heat\"><caption>{op}: MB/s by block length and requests in flight</caption>\n<tr><th></th>"
        );
        for depth in &depths {
            let _ = write!(page, "<th>{depth}</th>");
        }
        page.push_str("</tr>\n");
        for block in &blocks {
            let _ = write!(page, "<tr><th>{}</th>", crate::method::size_text(*block));
            for depth in &depths {
                match cells.get(&(*block, *depth)) {
                    Some(rate) => {
                        let share = (rate / most * 100.0).round();
                        let _ = write!(
                            page,
                            "<td style=\"background:color-mix(in srgb, #2a78d6 {share}%, transparent)\">{}</td>",
                            digits(Some(*rate))
                        );
                    }
                    None => page.push_str("<td></td>"),
                }
            }
            page.push_str("</tr>\n");
        }
        page.push_str("</table>\n");
    }
}

fn for_unique<T: Ord>(values: &mut Vec<T>) {
    values.sort_unstable();
    values.dedup();
}

/// Number of figures of each run with charts, in a report of `runs` runs.
pub fn charted_figures(runs: usize) -> usize {
    (CHARTED_IN_ALL / runs.max(1)).clamp(1, CHARTED)
}

/// Figures with charts, and their samples.
fn charted(reported: &ReportedRun, most: usize) -> impl Iterator<Item = (&MeasurementRecord, &Vec<Sample>)> {
    reported.run.measurements.iter().zip(&reported.samples).take(most)
}

/// Charts of a figure with their titles.
fn drawn(figure: &MeasurementRecord, samples: &[Sample]) -> Vec<(&'static str, String)> {
    let charts = [
        ("every run", Some(dots(figure))),
        ("latency percentiles, us", percentiles(figure, samples)),
        ("MB/s over time", over_time(figure, samples)),
        ("latency over time", latency_over_time(figure, samples)),
    ];
    charts.into_iter().filter_map(|(what, svg)| Some((what, svg?))).collect()
}

/// A dot for each run.
fn dots(figure: &MeasurementRecord) -> String {
    let (width, height, left, bottom) = (360.0, 120.0, 60.0, 24.0);
    let (steps, end) = round_steps(figure.runs.iter().copied().fold(0.0, f64::max), 3.0);
    let mut svg = Svg::new(width, height, &format!("{}: every run", figure.name));
    let y = |value: f64| (height - bottom) * (1.0 - value / end) + 4.0;
    for step in steps {
        svg.line("grid", left, y(step), width, y(step));
        svg.text("tick", left - 6.0, y(step) + 4.0, Anchor::End, &digits(Some(step)));
    }
    let gap = (width - left) / (figure.runs.len() + 1) as f64;
    for (at, value) in figure.runs.iter().enumerate() {
        let hint = format!("run {}: {} {}", at + 1, digits(Some(*value)), figure.unit.text());
        svg.circle("dot", left + gap * (at + 1) as f64, y(*value), 4.0, &hint);
    }
    svg.text("tick", left, height - 6.0, Anchor::Start, &format!("each run, {}", figure.unit.text()));
    svg.finish()
}

/// Latency percentiles from the merged histograms.
fn percentiles(figure: &MeasurementRecord, samples: &[Sample]) -> Option<String> {
    let mut all = crate::loads::load::Tally::new().latency_ns;
    for histogram in samples.iter().flat_map(|sample| [&sample.read_latency, &sample.write_latency]).flatten()
    {
        all.add(histogram).ok()?;
    }
    if all.is_empty() {
        return None;
    }
    let (width, height, left, bottom) = (360.0, 140.0, 60.0, 24.0);
    let values: Vec<f64> = QUANTILES.iter().map(|(at, _)| all.value_at_quantile(*at) as f64 / 1e3).collect();
    let (least, most) =
        (values[0].max(0.1).log10().floor(), values[QUANTILES.len() - 1].max(1.0).log10().ceil());
    let y = |value: f64| {
        let share = (value.max(0.1).log10() - least) / (most - least).max(1.0);
        (height - bottom) * (1.0 - share) + 4.0
    };
    let mut svg = Svg::new(width, height, &format!("{}: latency percentiles", figure.name));
    for decade in least as i32..=most as i32 {
        let value = 10f64.powi(decade);
        svg.line("grid", left, y(value), width, y(value));
        svg.text("tick", left - 6.0, y(value) + 4.0, Anchor::End, &digits(Some(value)));
    }
    let x = |at: usize| left + (width - left) * (at as f64 + 0.5) / QUANTILES.len() as f64;
    let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(at, value)| (x(at), y(*value))).collect();
    svg.path("line", &points);
    for (at, (value, (_, name))) in values.iter().zip(QUANTILES).enumerate() {
        svg.circle("dot", x(at), y(*value), 3.0, &format!("{name} %: {} us", digits(Some(*value))));
        svg.text("tick", x(at), height - 6.0, Anchor::Middle, name);
    }
    Some(svg.finish())
}

/// Bandwidth in each second of every run.
fn over_time(figure: &MeasurementRecord, samples: &[Sample]) -> Option<String> {
    let rates = samples.iter().map(|sample| sample.per_second.iter().map(|second| second.bytes as f64 / 1e6));
    let lines: Vec<Vec<f64>> = rates.map(Iterator::collect).collect();
    seconds(&format!("{}: MB/s over time", figure.name), "MB/s", &lines)
}

/// Mean latency in each second of every run.
fn latency_over_time(figure: &MeasurementRecord, samples: &[Sample]) -> Option<String> {
    let means = samples.iter().map(|sample| sample.per_second.iter().map(|second| second.mean_us));
    let lines: Vec<Vec<f64>> = means.map(Iterator::collect).collect();
    let known = lines.iter().flatten().any(|mean| *mean > 0.0);
    known.then(|| seconds(&format!("{}: latency over time", figure.name), "mean latency, us,", &lines))?
}

/// A line for each run, a point for each of its seconds.
fn seconds(title: &str, what: &str, lines: &[Vec<f64>]) -> Option<String> {
    let longest = lines.iter().map(Vec::len).max().filter(|longest| *longest > 2)?;
    let most = lines.iter().flatten().copied().fold(0.0, f64::max);
    let (width, height, left, bottom) = (360.0, 140.0, 60.0, 24.0);
    let (steps, end) = round_steps(most, 3.0);
    let mut svg = Svg::new(width, height, title);
    let y = |value: f64| (height - bottom) * (1.0 - value / end) + 4.0;
    for step in steps {
        svg.line("grid", left, y(step), width, y(step));
        svg.text("tick", left - 6.0, y(step) + 4.0, Anchor::End, &digits(Some(step)));
    }
    for line in lines {
        let x = |second: usize| left + (width - left) * second as f64 / (longest - 1) as f64;
        let points = line.iter().enumerate().map(|(second, value)| (x(second), y(*value)));
        svg.path("line", &points.collect::<Vec<_>>());
    }
    svg.text("tick", left, height - 6.0, Anchor::Start, &format!("{what} in each of {longest} seconds"));
    Some(svg.finish())
}

/// Bandwidth over the whole scenario, latency below it, and a line for each event.
fn marked_timeline(timeline: &Timeline) -> String {
    const ROW: f64 = 13.0;
    const PLOT: f64 = 150.0;
    let (width, left, right) = (760.0, 60.0, 20.0);
    let top = 8.0 + ROW * timeline.markers.len() as f64;
    let panels: Vec<(&str, &[f64])> =
        [("MB/s", timeline.mb_per_s.as_slice()), ("mean latency, us", timeline.mean_us.as_slice())]
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .collect();
    let bottom = top + PLOT * panels.len().max(1) as f64;
    let pieces = timeline.mb_per_s.len().max(1) as f64;
    let last = timeline.markers.last().map_or(0.0, |marker| marker.seconds);
    let end = (pieces * timeline.step_seconds).max(last).max(1e-3);
    let (times, _) = round_steps(end, 8.0);
    let x = |seconds: f64| left + (width - left - right) * (seconds / end).clamp(0.0, 1.0);
    let mut svg =
        Svg::new(width, bottom + 34.0, "MB/s and latency over time, with what happened to the array");
    for time in times.into_iter().filter(|time| *time <= end) {
        svg.text("tick", x(time), bottom + 15.0, Anchor::Middle, &digits(Some(time)));
    }
    for (number, (what, values)) in panels.into_iter().enumerate() {
        let base = top + PLOT * (number + 1) as f64;
        let (steps, most) = round_steps(values.iter().copied().fold(0.0, f64::max), 4.0);
        let y = |value: f64| base - (PLOT - 20.0) * (value / most).clamp(0.0, 1.0);
        for step in steps {
            svg.line("grid", left, y(step), width - right, y(step));
            svg.text("tick", left - 6.0, y(step) + 4.0, Anchor::End, &digits(Some(step)));
        }
        let middle = |piece: usize| (piece as f64 + 0.5) * timeline.step_seconds;
        let point = |(piece, value): (usize, &f64)| (x(middle(piece)), y(*value));
        svg.path("line", &values.iter().enumerate().map(point).collect::<Vec<_>>());
        svg.text("tick", left, y(most) - 5.0, Anchor::Start, what);
    }
    for (number, marker) in timeline.markers.iter().enumerate() {
        let (x, y) = (x(marker.seconds), 12.0 + ROW * number as f64);
        svg.line("marker", x, y + 2.0, x, bottom);
        let (at, anchor) = if x > width / 2.0 { (x - 4.0, Anchor::End) } else { (x + 4.0, Anchor::Start) };
        svg.text("", at, y, anchor, &format!("{} ({} s)", marker.what, digits(Some(marker.seconds))));
    }
    svg.text("tick", (left + width) / 2.0, bottom + 30.0, Anchor::Middle, "seconds");
    svg.finish()
}

/// The figures as JSON, for programs that read the page.
fn raw_data(page: &mut String, runs: &[ReportedRun]) {
    let all: Vec<&RunRecord> = runs.iter().map(|run| &run.run).collect();
    let json = serde_json::to_string(&all).expect("plain data becomes JSON").replace('<', "\\u003c");
    let _ = writeln!(page, "<script type=\"application/json\" id=\"runs\">{json}</script>");
}

fn digits(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::Operation;
    use crate::records::store::Second;

    fn reported(count: usize) -> ReportedRun {
        let figure = |at: usize| {
            let mut figure = MeasurementRecord {
                block_bytes: Some(4096 << (at % 3)),
                queue_depth: Some(1 << (at % 4)),
                ..MeasurementRecord::empty(format!("read <{at}>"), Operation::Read)
            }
            .with_runs(vec![100.0, 101.0, 99.0, 98.0, 102.0, 100.0]);
            figure.badge("steady", Err("it swings & sways".into()));
            figure
        };
        let mut histogram = crate::loads::load::Tally::new().latency_ns;
        histogram.record_n(50_000, 1000).expect("in range");
        let sample = Sample {
            started_s: 0.0,
            seconds: 5.0,
            bytes: 1,
            requests: 1,
            errors: 0,
            cpu_seconds: None,
            read_latency: Some(histogram),
            write_latency: None,
            per_second: vec![Second { bytes: 100_000_000, mean_us: 50.0, longest_us: 70.0 }; 5],
        };
        let run = RunRecord {
            run: "20260101-000000-abc".into(),
            measurements: (0..count).map(figure).collect(),
            ..RunRecord::default()
        };
        ReportedRun { run, samples: vec![vec![sample; 6]; count] }
    }

    #[test]
    fn the_page_is_self_contained_and_complete() {
        let page = lab_report_html(&[reported(12)]);
        for part in [
            "0 of 12 figures passed",
            "not steady",
            "it swings &amp; sways",
            "requests in flight",
            "<svg",
            "99.9",
            "Not finished",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("read <1>") && page.contains("read &lt;1&gt;"));
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains(" src="));
    }

    #[test]
    fn scenario_events_are_marked_in_the_timeline() {
        let mut one = reported(1);
        let marker = |seconds, what: &str| crate::scenario::Marker { seconds, what: what.into() };
        one.run.timeline = Some(Timeline {
            step_seconds: 0.25,
            mb_per_s: vec![100.0; 40],
            mean_us: vec![250.0; 40],
            longest_us: vec![900.0; 40],
            markers: vec![marker(2.0, "fail begins"), marker(9.0, "recovered")],
        });
        let page = lab_report_html(&[one]);
        assert!(page.contains("fail begins (2.00 s)") && page.contains("recovered (9.00 s)"), "{page}");
        assert!(page.contains(">mean latency, us<"), "{page}");
    }

    #[test]
    fn charts_are_files_of_their_own() {
        let page = lab_report_html(&[reported(2)]);
        let charts = lab_report_charts(&[reported(2)]);
        assert_eq!(charts.len(), 2 * 4, "runs, percentiles, bandwidth and latency over time");
        assert_eq!(charts.len(), page.matches("<svg ").count());
        for chart in &charts {
            assert!(chart.svg.starts_with("<svg xmlns=") && chart.png().starts_with(b"\x89PNG"));
        }
    }

    #[test]
    fn a_report_of_a_hundred_runs_stays_small() {
        let runs: Vec<ReportedRun> = (0..100).map(|_| reported(12)).collect();
        let page = lab_report_html(&runs);
        assert!(page.len() < 5 << 20, "{} bytes", page.len());
        assert_eq!(page.matches("Charts are of the first 4 figures").count(), 100);
    }
}
