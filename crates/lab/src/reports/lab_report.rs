//! The page of `lab report`: the verdict, a chart for each question with all runs of a method in
//! it, the figures as tables and as the tool prints them, the circumstances, the raw data. One
//! self-contained file, in the style of the evaluation's report.

mod charts;
mod figures;
mod heat;
mod timeline;
mod words;

use std::fmt::Write;

use self::charts::Drawn;
use self::heat::heat_map;
use self::timeline::marked_timeline;
use crate::records::record::{MeasurementRecord, RunRecord};
use crate::records::store::Sample;
use crate::reports::forms::tool_form;
use crate::reports::report::svg::escape;
use crate::reports::report::table::{Cell, cards};
use crate::reports::report::{Chart, STYLE};
use crate::reports::tables::{number, time_text};
use crate::statistics::Verdict;

/// A run and the samples of each of its figures.
#[derive(Clone, Debug)]
pub struct ReportedRun {
    /// The figures.
    pub run: RunRecord,
    /// Samples by figure; those of the first [`charted_figures`] are drawn.
    pub samples: Vec<Vec<Sample>>,
}

/// Maximum number of figures of a run whose samples are drawn; all are in the tables.
const CHARTED: usize = 96;
/// Approximate maximum over all runs, so that a report of many runs is made in reasonable time.
const CHARTED_IN_ALL: usize = 480;
/// Maximum number of failed checks that are explained one by one.
const MOST_REASONS: usize = 40;

/// Number of figures of each run whose samples are drawn, in a report of `runs` runs.
pub fn charted_figures(runs: usize) -> usize {
    (CHARTED_IN_ALL / runs.max(1)).clamp(1, CHARTED)
}

/// The whole page.
pub fn lab_report_html(runs: &[ReportedRun]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    let groups = by_method(runs);
    let title = match (runs, groups.as_slice()) {
        ([only], _) => format!("{} on {}", only.run.profile, object(&only.run)),
        (_, [only]) => format!("{}: {} runs side by side", only[0].run.profile, only.len()),
        _ => format!("{} runs of {} methods", runs.len(), groups.len()),
    };
    let _ = writeln!(
        page,
        "<title>Stripewise: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{}</h1>",
        escape(&title),
        escape(&title)
    );
    for group in &groups {
        let heading = if groups.len() > 1 {
            format!("<b>{}</b>: ", escape(&group[0].run.profile))
        } else {
            String::new()
        };
        let _ = writeln!(page, "<p class=\"verdict\">{heading}{}</p>", escape(&verdict(group)));
    }
    let _ = writeln!(page, "<p class=\"soft\">{}</p>\n</header>\n<main>", escape(&words::checks(runs)));
    groups.iter().for_each(|group| one_method(&mut page, group, groups.len() > 1));
    page += "<h2>Circumstances</h2>\n";
    circumstances(&mut page, runs);
    raw_data(&mut page, runs);
    page += "</main>\n<footer class=\"soft\">1 MB is 10<sup>6</sup> bytes, 1 MiB is \
        2<sup>20</sup>.</footer>\n</body>\n</html>\n";
    page
}

/// Every chart of the page as a separate file, in the page's order.
pub fn lab_report_charts(runs: &[ReportedRun]) -> Vec<Chart> {
    let mut all = Vec::new();
    for group in by_method(runs) {
        let method = &group[0].run.profile;
        let drawn = drawn(&group);
        all.extend(drawn.iter().map(|one| Chart::of(format!("{method}: {}", one.title), &one.svg)));
    }
    all
}

/// Runs of the same method together, in the order of the first of each.
fn by_method(runs: &[ReportedRun]) -> Vec<Vec<&ReportedRun>> {
    let mut groups: Vec<Vec<&ReportedRun>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| group[0].run.profile == run.run.profile) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

/// The measured object: the drive's model if it is known, else the target.
fn object(run: &RunRecord) -> String {
    match run.environment.get("device_model") {
        Some(model) => format!("{} ({model})", run.target),
        None => run.target.clone(),
    }
}

fn verdict(group: &[&ReportedRun]) -> String {
    match group {
        [only] => words::verdict(&only.run),
        several => words::verdict_of_several(several, &words::names(several)),
    }
}

/// All charts of the runs of one method.
fn drawn(group: &[&ReportedRun]) -> Vec<Drawn> {
    let (names, sweeps) = (words::names(group), figures::sweeps(group));
    let mut all = charts::of_sweeps(group, &names, &sweeps);
    all.extend(charts::of_single_figures(group, &names, &sweeps));
    all.extend(charts::at_depth_1(group, &names));
    all.extend(charts::rounds(group, &names));
    all.extend(charts::percentiles(group, &names));
    all.extend(charts::over_time(group, &names));
    for (run, name) in group.iter().zip(&names) {
        all.extend(run.run.timeline.as_ref().map(|timeline| Drawn {
            title: format!("Throughput and latency over a drive failure: {name}"),
            svg: marked_timeline(timeline),
            note: String::new(),
        }));
    }
    all
}

fn one_method(page: &mut String, group: &[&ReportedRun], is_one_of_several: bool) {
    if is_one_of_several {
        let _ = writeln!(page, "<h2>{}</h2>", escape(&group[0].run.profile));
    }
    page.push_str("<div class=\"charts wide\">\n");
    for one in drawn(group) {
        let _ = writeln!(
            page,
            "<figure><h3>{}</h3>{}<figcaption>{}</figcaption></figure>",
            escape(&one.title),
            one.svg,
            escape(&one.note)
        );
    }
    page.push_str("</div>\n");
    let has_depth_1 =
        group.iter().flat_map(|run| &run.run.measurements).any(|one| figures::in_flight(one) == Some(1));
    let has_latency = group.iter().flat_map(|run| &run.run.measurements).any(|one| one.latency_us.is_some());
    if has_latency && !has_depth_1 {
        let _ = writeln!(
            page,
            "<p class=\"soft\">No measurement of this method has one request in flight, so none \
             shows the response time of the drive itself. {}</p>",
            escape(charts::QUEUE_NOTE)
        );
    }
    if group.len() > 1 {
        side_by_side(page, group);
    }
    for run in group {
        one_run(page, &run.run, group.len() > 1);
    }
}

/// Every figure of all runs, and each run against the first.
fn side_by_side(page: &mut String, group: &[&ReportedRun]) {
    page.push_str("<h3>Side by side</h3>\n");
    let names = words::names(group);
    let mut columns = vec!["measurement".to_owned(), "unit".to_owned()];
    columns.extend(names.iter().cloned());
    columns.extend(names.iter().skip(1).map(|name| format!("{name} / {}", names[0])));
    let compared: Vec<_> = group[1..].iter().map(|other| words::compared(group[0], other)).collect();
    let mut known: Vec<&MeasurementRecord> = Vec::new();
    for figure in group.iter().flat_map(|run| &run.run.measurements) {
        if !known.iter().any(|one| one.name == figure.name) {
            known.push(figure);
        }
    }
    let row = |figure: &&MeasurementRecord| {
        let counts = figures::is_counted(figure);
        let value = |run: &&ReportedRun| {
            let found = figures::named(run, &figure.name);
            found.and_then(
                |one| if counts { one.iops } else { one.mb_per_s.or_else(|| one.runs.first().copied()) },
            )
        };
        let unit = if counts { "a second" } else { figure.unit.text() };
        let mut cells = vec![Cell::Figure(unit.to_owned())];
        cells.extend(group.iter().map(|run| Cell::Figure(value(run).map_or_else(String::new, number))));
        cells.extend(compared.iter().map(|all| {
            let Some(one) = all.iter().find(|one| one.measurement == figure.name) else {
                return Cell::Figure(String::new());
            };
            let (class, word) = match one.verdict {
                Verdict::Better => ("good", "better"),
                Verdict::Worse => ("bad", "worse"),
                Verdict::CannotTell => ("soft", "undecided"),
            };
            let interval = one
                .ci95
                .map_or_else(String::new, |[low, high]| format!(" ({} – {})", number(low), number(high)));
            Cell::Html(format!("{}{interval} <span class=\"{class}\">{word}</span>", number(one.ratio)))
        }));
        (figure.name.clone(), cells)
    };
    cards(page, &columns, &known.iter().map(row).collect::<Vec<_>>());
    page.push_str(
        "<p class=\"soft\">Ratios with 95 % intervals, corrected for the number of comparisons.</p>\n",
    );
}

fn one_run(page: &mut String, run: &RunRecord, is_one_of_several: bool) {
    let state = if run.finished { "" } else { " <b class=\"bad\">Not finished.</b>" };
    let _ = writeln!(
        page,
        "<section>\n<h3>{}</h3>\n<p>{} on {} by {}, {}.{state}</p>",
        escape(&run.run),
        escape(&run.profile),
        escape(&object(run)),
        escape(&run.tool),
        escape(&run.date),
    );
    if let Some(form) = tool_form(run) {
        let _ = writeln!(
            page,
            "<details open><summary>In the output format of its tool</summary><pre>{}</pre></details>",
            escape(&form)
        );
    }
    heat_map(page, run);
    let _ = writeln!(
        page,
        "<details{}><summary>All figures</summary>",
        if is_one_of_several { "" } else { " open" }
    );
    figures_table(page, run);
    page.push_str("</details>\n");
    reasons(page, run);
    for note in &run.notes {
        let _ = writeln!(page, "<p>{}</p>", escape(note));
    }
    page.push_str("</section>\n");
}

fn figures_table(page: &mut String, run: &RunRecord) {
    let titles = [
        "measurement",
        "figure",
        "95 % interval",
        "IOPS",
        "mean latency",
        "99 %",
        "longest",
        "runs",
        "checks",
    ];
    let has = |of: fn(&MeasurementRecord) -> bool| run.measurements.iter().any(of);
    // Columns without any figure are left out.
    let shown = [
        true,
        true,
        has(|figure| figure.ci95.is_some()),
        has(|figure| figure.iops.is_some()),
        has(|figure| figure.latency_us.is_some_and(|one| one.mean.is_some())),
        has(|figure| figure.latency_us.is_some_and(|one| one.p99.is_some())),
        has(|figure| figure.latency_us.is_some_and(|one| one.max.is_some())),
        true,
        true,
    ];
    let columns = titles.iter().zip(shown).filter(|(_, shown)| *shown).map(|(title, _)| (*title).to_owned());
    let row = |figure: &MeasurementRecord| {
        let latency = figure.latency_us.unwrap_or_default();
        let time = |us: Option<f64>| us.map_or_else(String::new, time_text);
        let own = figure.mb_per_s.or(figure.iops.filter(|_| figure.unit.text() == "/s"));
        let own = own.or_else(|| crate::statistics::median(&figure.runs));
        let interval =
            figure.ci95.map_or_else(String::new, |[low, high]| format!("{} – {}", number(low), number(high)));
        let failed: Vec<String> =
            figure.badge_reasons.keys().map(|name| MeasurementRecord::failed(name)).collect();
        let checks = match (failed.is_empty(), figure.badges.len()) {
            (true, 0) => "none known".to_owned(),
            (true, count) => format!("all {count} hold"),
            (false, _) => format!("<b class=\"bad\">{}</b>", escape(&failed.join(", "))),
        };
        let cells = [
            Cell::Figure(
                own.map_or_else(String::new, |own| format!("{} {}", number(own), figure.unit.text())),
            ),
            Cell::Figure(interval),
            Cell::Figure(figure.iops.map_or_else(String::new, number)),
            Cell::Figure(time(latency.mean)),
            Cell::Figure(time(latency.p99)),
            Cell::Figure(time(latency.max)),
            Cell::Figure(figure.runs.len().to_string()),
            Cell::Html(checks),
        ];
        let kept = cells.into_iter().zip(&shown[1..]).filter(|(_, shown)| **shown).map(|(cell, _)| cell);
        (figure.name.clone(), kept.collect())
    };
    cards(page, &columns.collect::<Vec<_>>(), &run.measurements.iter().map(row).collect::<Vec<_>>());
}

/// Reasons of failed checks; figures with the same reason share a line.
fn reasons(page: &mut String, run: &RunRecord) {
    let mut found: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for figure in &run.measurements {
        for (name, why) in &figure.badge_reasons {
            let reason = (name.as_str(), why.as_str());
            match found.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, figures)) => figures.push(&figure.name),
                None => found.push((reason, vec![&figure.name])),
            }
        }
    }
    if found.is_empty() {
        return;
    }
    page.push_str("<ul class=\"remarks\">\n");
    for ((name, why), figures) in found.iter().take(MOST_REASONS) {
        let figures = match figures.as_slice() {
            all if all.len() == run.measurements.len() && all.len() > 1 => "all figures".to_owned(),
            few if few.len() <= 3 => few.join(", "),
            many => format!("{} figures", many.len()),
        };
        let _ = writeln!(
            page,
            "<li class=\"warning\"><b>{}</b> ({}): {}</li>",
            escape(&MeasurementRecord::failed(name)),
            escape(&figures),
            escape(why)
        );
    }
    page.push_str("</ul>\n");
    if found.len() > MOST_REASONS {
        let _ = writeln!(
            page,
            "<p class=\"soft\">{} more are in the data of this page.</p>",
            found.len() - MOST_REASONS
        );
    }
}

/// The circumstances of all runs: what they share once, the rest side by side.
fn circumstances(page: &mut String, runs: &[ReportedRun]) {
    let all: Vec<Vec<(String, String)>> = runs.iter().map(|run| words::circumstances(&run.run)).collect();
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in all.iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let value = |of: &[(String, String)], name: &str| {
        of.iter().find(|(known, _)| known == name).map_or_else(String::new, |(_, value)| value.clone())
    };
    let (mut shared, mut differing) = (Vec::new(), Vec::new());
    for name in names {
        let values: Vec<String> = all.iter().map(|of| value(of, name)).collect();
        match values.iter().all(|one| *one == values[0]) {
            true => shared.push((name, values[0].clone())),
            false => differing.push((name.clone(), values.into_iter().map(Cell::Text).collect::<Vec<_>>())),
        }
    }
    if !differing.is_empty() {
        let columns: Vec<String> =
            std::iter::once(String::new()).chain(runs.iter().map(|run| run.run.run.clone())).collect();
        cards(page, &columns, &differing);
    }
    page.push_str("<dl>\n");
    for (name, value) in shared {
        let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value));
    }
    page.push_str("</dl>\n");
}

/// The figures as JSON, for programs that read the page.
fn raw_data(page: &mut String, runs: &[ReportedRun]) {
    let all: Vec<&RunRecord> = runs.iter().map(|run| &run.run).collect();
    let json = serde_json::to_string(&all).expect("plain data becomes JSON").replace('<', "\\u003c");
    let _ = writeln!(page, "<script type=\"application/json\" id=\"runs\">{json}</script>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::record::Operation;
    use crate::records::store::Second;
    use crate::scenario::Timeline;

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
        assert!(page.contains(">mean latency<") && page.contains(">200 µs<"), "{page}");
    }

    #[test]
    fn charts_are_files_of_their_own() {
        let page = lab_report_html(&[reported(2)]);
        let charts = lab_report_charts(&[reported(2)]);
        assert_eq!(charts.len(), page.matches("<svg ").count());
        for chart in &charts {
            assert!(chart.svg.starts_with("<svg xmlns=") && chart.png().starts_with(b"\x89PNG"));
        }
    }

    /// A sweep over seven sizes, read and written.
    fn sweep(run: &str, factor: f64, runs: usize) -> ReportedRun {
        let mut measurements = Vec::new();
        for (op, side) in [(Operation::Write, "write"), (Operation::Read, "read")] {
            for shift in 9..16 {
                let name = format!("{}_{side}", crate::method::size_text(1 << shift));
                let figure = MeasurementRecord {
                    block_bytes: Some(1 << shift),
                    queue_depth: Some(4),
                    workers: Some(1),
                    ..MeasurementRecord::empty(name, op)
                };
                measurements.push(figure.with_runs(vec![factor * f64::from(shift); runs]));
            }
        }
        let run = RunRecord {
            run: run.into(),
            target: run.into(),
            profile: "atto".into(),
            measurements,
            ..RunRecord::default()
        };
        ReportedRun { run, samples: Vec::new() }
    }

    #[test]
    fn a_sweep_is_one_chart_over_the_size() {
        let page = lab_report_html(&[sweep("a", 10.0, 1)]);
        assert_eq!(page.matches("<svg ").count(), 1, "no chart of a single dot");
        assert!(page.contains("Throughput over request size: write, read"), "{page}");
        assert!(page.contains("request size</text>") && page.contains(">4K<"), "{page}");
        assert!(page.contains("there is no interval"), "{page}");
    }

    #[test]
    fn runs_of_a_method_share_their_charts() {
        let page = lab_report_html(&[sweep("a", 10.0, 6), sweep("b", 20.0, 6)]);
        assert_eq!(page.matches("<svg ").count(), 1, "one chart with four curves");
        assert!(page.contains("b is better than a in 14 of 14 figures"), "{page}");
        for name in ["write, a", "write, b", "read, a", "read, b"] {
            assert!(page.contains(&format!(">{name}<")), "{name}: {page}");
        }
        assert!(page.contains("class=\"whisker\"") && page.contains("data-label=\"b / a\""), "{page}");
    }

    #[test]
    fn a_report_of_a_hundred_runs_stays_small() {
        let runs: Vec<ReportedRun> = (0..100).map(|_| reported(12)).collect();
        let page = lab_report_html(&runs);
        assert!(page.len() < 5 << 20, "{} bytes", page.len());
    }
}
