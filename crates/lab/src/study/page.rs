//! A study's result as a page of HTML, as Markdown, and as charts. Pure.
//!
//! Tables are the study's own, with our figures beside the published ones, both as a share of a
//! single drive. A chart has a pair of bars per row; results that a study prints as a chart only
//! (ATTO, the stripe units and drive counts of 002) are charts here, too. Rows that only another
//! system can provide are marked "published only".

use std::fmt::Write;

use super::{StudyNumber, StudyResult, StudyRow, StudyTable, Verdict};
use crate::reports::report::svg::{Anchor, Svg, escape, round_steps};
use crate::reports::report::{Chart, STYLE};

/// Figure 4 of study 002.
pub(super) const STRIPE_UNITS: &str = "Figure 4: stripe units of 8 KiB to 1 MiB, RAID 0 of 4";
/// Figure 5 of study 002.
pub(super) const DRIVE_COUNTS: &str = "Figure 5: RAID 0 of 1 to 8 drives";
/// Maximum number of rows of a chart; longer ones are split.
const ROWS_A_CHART: usize = 24;

/// A chart of the page.
struct Drawn {
    title: String,
    svg: String,
}

impl Verdict {
    /// Text of the verdict.
    pub fn text(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Disagrees => "disagrees",
            Self::CannotTell => "undecided",
            Self::NotModelled => "not modelled",
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Agrees => "good",
            Self::Disagrees => "bad",
            Self::CannotTell | Self::NotModelled => "soft",
        }
    }
}

impl StudyRow {
    /// Our figure, or the reason why there is none.
    pub fn here(&self) -> String {
        self.measured.map_or_else(|| "published only".to_owned(), digits)
    }
}

/// Every chart as a separate drawing.
pub fn study_charts(result: &StudyResult) -> Vec<Chart> {
    let drawn = result.tables.iter().flat_map(charts_of);
    let title = |drawn: &Drawn| match drawn.svg.contains("class=\"published\"") {
        true => format!("{} (blue: here, grey: published)", drawn.title),
        false => drawn.title.clone(),
    };
    drawn.map(|drawn| Chart::of(title(&drawn), &drawn.svg)).collect()
}

/// The whole page.
pub fn study_html(study: StudyNumber, result: &StudyResult) -> String {
    let title = format!("Study {}: {}", result.study, study.title());
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    let _ = writeln!(page, "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>", escape(&title));
    let _ = writeln!(page, "<header>\n<h1>{}</h1>\n<p>{}</p>", escape(&title), summary(result));
    if let Some(pace) = &result.pace {
        let _ = writeln!(page, "<p class=\"soft\">Each drive was paced at {}.</p>", escape(pace));
    }
    for note in &result.notes {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(note));
    }
    page += "</header>\n<main>\n<h2>Findings</h2>\n";
    findings(&mut page, result);
    for table in &result.tables {
        let _ = writeln!(page, "<h2>{}</h2>\n<div class=\"charts\">", escape(&table.table));
        for chart in charts_of(table) {
            let _ =
                writeln!(page, "<figure><h3>{}</h3>{}{}</figure>", escape(&chart.title), LEGEND, chart.svg);
        }
        page += "</div>\n";
        html_table(&mut page, table);
    }
    let json = serde_json::to_string(result).expect("plain data becomes JSON").replace('<', "\\u003c");
    let _ = writeln!(page, "<script type=\"application/json\" id=\"results\">{json}</script>");
    page += "</main>\n<footer class=\"soft\">1 MB is 10<sup>6</sup> bytes.</footer>\n</body>\n</html>\n";
    page
}

const LEGEND: &str = "<p class=\"legend\"><span><i style=\"background:var(--normal)\"></i>here</span>\
                      <span><i style=\"background:var(--progress)\"></i>published</span></p>";

fn summary(result: &StudyResult) -> String {
    let count = |verdict| result.findings.iter().filter(|finding| finding.verdict == verdict).count();
    let rows = || result.tables.iter().flat_map(|table| &table.rows);
    let both = rows().filter(|row| row.measured.is_some() && row.published.is_some()).count();
    let only = rows().filter(|row| row.measured.is_none()).count();
    format!(
        "Of {} findings this run agrees with {}, disagrees with {}, and does not decide {}; {} are about parts not \
         built here. {both} published figures have one of ours beside them, {only} are published only.",
        result.findings.len(),
        count(Verdict::Agrees),
        count(Verdict::Disagrees),
        count(Verdict::CannotTell),
        count(Verdict::NotModelled),
    )
}

fn findings(page: &mut String, result: &StudyResult) {
    *page += "<div class=\"scroll\"><table class=\"findings\">\n<thead><tr><th>finding</th><th>verdict</th>\
              <th>what the study found, and the numbers of this run</th></tr></thead>\n<tbody>\n";
    for finding in &result.findings {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td class=\"{}\">{}</td><td style=\"text-align:left;white-space:normal\">{}\
             <br><span class=\"soft\">{}</span></td></tr>",
            escape(&finding.id),
            finding.verdict.class(),
            finding.verdict.text(),
            escape(&finding.finding),
            escape(&finding.why)
        );
    }
    *page += "</tbody></table></div>\n";
}

fn html_table(page: &mut String, table: &StudyTable) {
    *page += "<div class=\"scroll\"><table>\n<thead><tr><th></th><th>metric</th><th>here</th><th>95 % interval</th>\
              <th>% of single</th><th>published</th><th>% of single</th></tr></thead>\n<tbody>\n";
    for row in &table.rows {
        let interval =
            row.ci95.map_or_else(String::new, |[low, high]| format!("{} – {}", digits(low), digits(high)));
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td{}>{}</td><td>{interval}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&row.row),
            escape(&row.metric),
            if row.measured.is_none() { " class=\"soft\"" } else { "" },
            row.here(),
            percent(row.percent_of_single),
            row.published.map_or_else(String::new, digits),
            percent(row.published_percent_of_single)
        );
    }
    *page += "</tbody></table></div>\n";
}

/// The result as Markdown.
pub fn study_markdown(study: StudyNumber, result: &StudyResult) -> String {
    let mut text = format!("# Study {}: {}\n\n{}\n\n", result.study, study.title(), summary(result));
    if let Some(pace) = &result.pace {
        let _ = writeln!(text, "Each drive was paced at {pace}.\n");
    }
    for note in &result.notes {
        let _ = writeln!(text, "- {note}");
    }
    for table in &result.tables {
        let _ = writeln!(
            text,
            "\n## {}\n\n| | metric | here | of single | published | of single |\n|---|---|---|---|---|---|",
            table.table
        );
        for row in &table.rows {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row.row,
                row.metric,
                row.here(),
                percent(row.percent_of_single),
                row.published.map_or_else(String::new, digits),
                percent(row.published_percent_of_single)
            );
        }
    }
    text += "\n## Findings\n\n| finding | what the study found | this run | why |\n|---|---|---|---|\n";
    for finding in &result.findings {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            finding.id,
            finding.finding,
            finding.verdict.text(),
            finding.why
        );
    }
    text
}

fn charts_of(table: &StudyTable) -> Vec<Drawn> {
    if table.table == STRIPE_UNITS || table.table == DRIVE_COUNTS {
        return lines_of(table);
    }
    let mut metrics: Vec<&str> = table.rows.iter().map(|row| row.metric.as_str()).collect();
    metrics.sort_unstable();
    metrics.dedup();
    let of_metric = |metric: &&str| {
        let rows: Vec<&StudyRow> =
            table.rows.iter().filter(|row| row.metric == **metric && row.measured.is_some()).collect();
        rows.chunks(ROWS_A_CHART).map(|rows| bars(&table.table, metric, rows)).collect::<Vec<_>>()
    };
    metrics.iter().flat_map(of_metric).collect()
}

/// A pair of bars for each row: shares of a single drive if all rows have them, else the figures.
fn bars(table: &str, metric: &str, rows: &[&StudyRow]) -> Drawn {
    let shares = rows.iter().all(|row| row.percent_of_single.is_some());
    let pair = |row: &StudyRow| match shares {
        true => (row.percent_of_single, row.published_percent_of_single),
        false => (row.measured, row.published),
    };
    let unit = if shares { format!("{metric}, % of a single drive") } else { metric.to_owned() };
    let (width, labels, right, row_height, top) = (560.0, 235.0, 46.0, 26.0, 6.0);
    let bottom = top + row_height * rows.len() as f64;
    let most = rows.iter().flat_map(|row| <[Option<f64>; 2]>::from(pair(row))).flatten().fold(0.0, f64::max);
    let (steps, end) = round_steps(most, 4.0);
    let x = |value: f64| labels + (width - labels - right) * (value / end).clamp(0.0, 1.0);
    let title = format!("{table}: {unit}");
    let mut svg = Svg::new(width, bottom + 22.0, &title);
    for step in steps {
        svg.line("grid", x(step), top, x(step), bottom);
        svg.text("tick", x(step), bottom + 15.0, Anchor::Middle, &digits(step));
    }
    for (at, row) in rows.iter().enumerate() {
        let y = top + row_height * at as f64 + 3.0;
        svg.text("", labels - 6.0, y + 13.0, Anchor::End, &shortened(&row.row));
        let (here, published) = pair(row);
        for (class, value, y) in [("here", here, y), ("published", published, y + 10.0)] {
            if let Some(value) = value {
                let hint = format!("{}, {class}: {} {unit}", row.row, digits(value));
                svg.bar(class, labels, y, x(value) - labels, 9.0, &hint);
                svg.text("value", x(value) + 3.0, y + 8.5, Anchor::Start, &digits(value));
            }
        }
    }
    svg.line("axis", labels, top, labels, bottom);
    Drawn { title, svg: svg.finish() }
}

/// A line for each test over the varied parameter.
fn lines_of(table: &StudyTable) -> Vec<Drawn> {
    let mut charts = Vec::new();
    let test = |row: &StudyRow| row.row.split_once(' ').map_or("", |(_, test)| test).to_owned();
    for rows in table.rows.chunk_by(|one, next| test(one) == test(next)) {
        let (width, height, left, bottom) = (360.0, 150.0, 52.0, 26.0);
        let most = rows.iter().filter_map(|row| row.measured).fold(0.0, f64::max);
        let (steps, end) = round_steps(most, 3.0);
        let title = format!("{}: {}, {}", table.table, test(&rows[0]), rows[0].metric);
        let mut svg = Svg::new(width, height, &title);
        let y = |value: f64| (height - bottom) * (1.0 - value / end) + 4.0;
        for step in steps {
            svg.line("grid", left, y(step), width, y(step));
            svg.text("tick", left - 6.0, y(step) + 4.0, Anchor::End, &digits(step));
        }
        let x = |at: usize| left + (width - left) * (at as f64 + 0.5) / rows.len() as f64;
        let point = |(at, row): (usize, &StudyRow)| row.measured.map(|value| (x(at), y(value)));
        svg.path("line", &rows.iter().enumerate().filter_map(point).collect::<Vec<_>>());
        for (at, row) in rows.iter().enumerate() {
            let configuration = row.row.split(' ').next().unwrap_or_default();
            let varied = configuration.rsplit(['u', 'n']).next().unwrap_or_default();
            svg.text("tick", x(at), height - 8.0, Anchor::Middle, varied);
            if let Some(value) = row.measured {
                svg.circle("dot", x(at), y(value), 3.0, &format!("{}: {}", row.row, digits(value)));
            }
        }
        charts.push(Drawn { title, svg: svg.finish() });
    }
    charts
}

/// Shortens a label to the available space.
fn shortened(label: &str) -> String {
    const MOST: usize = 42;
    match label.chars().count() {
        0..=MOST => label.to_owned(),
        _ => label.chars().take(MOST - 1).chain(['…']).collect(),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{share:.0} %"))
}

/// Formats three significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::FindingResult;

    fn row(name: &str, measured: Option<f64>, published: Option<f64>) -> StudyRow {
        StudyRow {
            row: name.into(),
            metric: "MB/s".into(),
            measured,
            ci95: None,
            published,
            percent_of_single: measured.map(|value| value / 2.0),
            published_percent_of_single: published.map(|value| value / 3.0),
        }
    }

    fn result() -> StudyResult {
        let sweep = |unit: u32| row(&format!("RAID0x4u{unit} light random read 8"), Some(80.0), None);
        StudyResult {
            study: "002".into(),
            pace: Some("100MB/s".into()),
            tables: vec![
                StudyTable {
                    table: "Table 7 <a>".into(),
                    rows: vec![row("one", Some(200.0), Some(300.0)), row("other", None, Some(250.0))],
                },
                StudyTable { table: STRIPE_UNITS.into(), rows: vec![sweep(16), sweep(64), sweep(256)] },
            ],
            findings: vec![FindingResult {
                id: "F002-01".into(),
                finding: "a > b".into(),
                verdict: Verdict::Disagrees,
                why: "a is 0.5 times b".into(),
            }],
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_page_marks_figures_that_are_published_only() {
        let page = study_html(StudyNumber::S002, &result());
        for part in ["Table 7 &lt;a&gt;", "published only", "100 %", "disagrees", "a is 0.5 times b", "<svg"]
        {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("http://") && !page.contains(" src="), "the page must be self-contained");
        let text = study_markdown(StudyNumber::S002, &result());
        assert!(text.contains("| other | MB/s | published only |  | 250 | 83 % |"), "{text}");
    }

    #[test]
    fn charts_are_files_of_their_own() {
        let charts = study_charts(&result());
        assert_eq!(charts.len(), 2);
        for chart in &charts {
            assert!(chart.svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{}", chart.svg);
            assert!(chart.svg.contains("<style>") && chart.svg.trim_end().ends_with("</svg>"));
            assert!(chart.svg.contains("viewBox=\"0 -20 "), "the title is above the chart");
            assert!(chart.png().starts_with(b"\x89PNG"));
        }
        assert_eq!(charts[1].svg.matches("<circle").count(), 3, "one for each stripe unit");
    }
}
