//! A study's result as a page of HTML, as Markdown, and as charts. Pure.
//!
//! Tables are the study's own, with our figures beside the published ones, both as a share of a
//! single drive. A chart has a pair of bars per row; results that a study prints as a chart only
//! (ATTO, the stripe units and drive counts of 002) are charts here, too. Rows that only another
//! system can provide are marked "published only".

use std::fmt::Write;

use super::merged::{ShownRow, ShownTable, shown_tables};
use super::{StudyNumber, StudyResult, StudyRow, Verdict};
use crate::reports::report::plot::{Axis, Bar, MOST_SERIES, Point, Scale, Series, bars, curves};
use crate::reports::report::svg::escape;
use crate::reports::report::table::{Cell, cards};
use crate::reports::report::{Chart, STYLE};
use crate::reports::tables::number;

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
        self.measured.map_or_else(|| "published only".to_owned(), number)
    }
}

/// Every chart as a separate drawing.
pub fn study_charts(result: &StudyResult) -> Vec<Chart> {
    let drawn = shown_tables(result).into_iter().flat_map(|table| charts_of(&table));
    drawn.map(|drawn| Chart::of(drawn.title.clone(), &drawn.svg)).collect()
}

/// The whole page.
pub fn study_html(study: StudyNumber, result: &StudyResult) -> String {
    let title = format!("Study {}: {}", result.study, study.title());
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    let _ = writeln!(page, "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>", escape(&title));
    let _ = writeln!(
        page,
        "<header>\n<h1>{}</h1>\n<p class=\"verdict\">{}</p>",
        escape(&title),
        study_summary(result)
    );
    if let Some(pace) = &result.pace {
        let _ = writeln!(page, "<p class=\"soft\">Each drive was paced at {}.</p>", escape(pace));
    }
    for note in &result.notes {
        let _ = writeln!(page, "<p class=\"soft\">{}</p>", escape(note));
    }
    page += "</header>\n<main>\n<h2>Findings</h2>\n";
    findings(&mut page, result);
    for table in shown_tables(result) {
        let _ = writeln!(page, "<h2>{}</h2>\n<div class=\"charts wide\">", escape(&table.title()));
        for chart in charts_of(&table) {
            let _ = writeln!(page, "<figure><h3>{}</h3>{}</figure>", escape(&chart.title), chart.svg);
        }
        page += "</div>\n";
        html_table(&mut page, &table);
    }
    let json = serde_json::to_string(result).expect("plain data becomes JSON").replace('<', "\\u003c");
    let _ = writeln!(page, "<script type=\"application/json\" id=\"results\">{json}</script>");
    page += "</main>\n<footer class=\"soft\">1 MB is 10<sup>6</sup> bytes.</footer>\n</body>\n</html>\n";
    page
}

/// The verdict on a study in two sentences.
pub fn study_summary(result: &StudyResult) -> String {
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
    let columns =
        ["finding", "verdict", "what the study found, and the numbers of this run"].map(str::to_owned);
    let row = |finding: &super::FindingResult| {
        let (class, word) = (finding.verdict.class(), finding.verdict.text());
        let (found, why) = (escape(&finding.finding), escape(&finding.why));
        let cells = vec![
            Cell::Html(format!("<span class=\"{class}\">{word}</span>")),
            Cell::Html(format!("{found}<br><span class=\"soft\">{why}</span>")),
        ];
        (finding.id.clone(), cells)
    };
    cards(page, &columns, &result.findings.iter().map(row).collect::<Vec<_>>());
}

fn html_table(page: &mut String, table: &ShownTable<'_>) {
    let mut columns = ["", "metric", "here", "95 % interval", "% of single"].map(str::to_owned).to_vec();
    if table.is_published() {
        columns.extend(system_names(table).into_iter().flat_map(|name| [name, "% of single".to_owned()]));
    }
    let row = |row: &ShownRow<'_>| {
        let ours = row.ours;
        let interval =
            ours.ci95.map_or_else(String::new, |[low, high]| format!("{} – {}", number(low), number(high)));
        let mut cells = vec![
            Cell::Figure(ours.metric.clone()),
            Cell::Figure(ours.here()),
            Cell::Figure(interval),
            Cell::Figure(percent(ours.percent_of_single)),
        ];
        for one in row.published.iter().filter(|_| table.is_published()) {
            cells.push(Cell::Figure(one.and_then(|one| one.published).map_or_else(String::new, number)));
            cells.push(Cell::Figure(percent(one.and_then(|one| one.published_percent_of_single))));
        }
        (row.name.clone(), cells)
    };
    cards(page, &columns, &table.rows.iter().map(row).collect::<Vec<_>>());
}

/// Headings of the published columns.
pub(super) fn system_names(table: &ShownTable<'_>) -> Vec<String> {
    match table.systems.as_slice() {
        [_] => vec!["published".into()],
        several => several.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The result as Markdown.
pub fn study_markdown(study: StudyNumber, result: &StudyResult) -> String {
    let mut text = format!("# Study {}: {}\n\n{}\n\n", result.study, study.title(), study_summary(result));
    if let Some(pace) = &result.pace {
        let _ = writeln!(text, "Each drive was paced at {pace}.\n");
    }
    for note in &result.notes {
        let _ = writeln!(text, "- {note}");
    }
    for table in shown_tables(result) {
        let systems = if table.is_published() { system_names(&table) } else { Vec::new() };
        let heads: String = systems.iter().map(|name| format!(" {name} | of single |")).collect();
        let rule = "---|".repeat(4 + 2 * systems.len());
        let _ = writeln!(text, "\n## {}\n\n| | metric | here | of single |{heads}\n|{rule}", table.title());
        for row in &table.rows {
            let ours = row.ours;
            let _ = write!(
                text,
                "| {} | {} | {} | {} |",
                row.name,
                ours.metric,
                ours.here(),
                percent(ours.percent_of_single)
            );
            for one in row.published.iter().take(systems.len()) {
                let _ = write!(
                    text,
                    " {} | {} |",
                    one.and_then(|one| one.published).map_or_else(String::new, number),
                    percent(one.and_then(|one| one.published_percent_of_single))
                );
            }
            text.push('\n');
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

fn charts_of(table: &ShownTable<'_>) -> Vec<Drawn> {
    if [STRIPE_UNITS, DRIVE_COUNTS].contains(&table.title().as_str()) {
        return lines_of(table);
    }
    let mut metrics: Vec<&str> = table.rows.iter().map(|row| row.ours.metric.as_str()).collect();
    metrics.sort_unstable();
    metrics.dedup();
    let of_metric = |metric: &&str| {
        let is_shown = |row: &&ShownRow<'_>| row.ours.metric == **metric && row.ours.measured.is_some();
        let rows: Vec<&ShownRow<'_>> = table.rows.iter().filter(is_shown).collect();
        rows.chunks(ROWS_A_CHART).map(|rows| pairs(table, metric, rows)).collect::<Vec<_>>()
    };
    metrics.iter().flat_map(of_metric).collect()
}

/// Our bar and those of the systems for each row: shares of a single drive if all rows have them,
/// else the figures.
fn pairs(table: &ShownTable<'_>, metric: &str, rows: &[&ShownRow<'_>]) -> Drawn {
    let shares = rows.iter().all(|row| row.ours.percent_of_single.is_some());
    let ours = |row: &StudyRow| if shares { row.percent_of_single } else { row.measured };
    let theirs = |row: &StudyRow| if shares { row.published_percent_of_single } else { row.published };
    let unit = if shares { format!("{metric}, % of a single drive") } else { metric.to_owned() };
    let mut names = vec!["here".to_owned()];
    if table.is_published() {
        names.extend(system_names(table).into_iter().take(MOST_SERIES - 1));
    }
    let bars_of = |row: &&ShownRow<'_>| {
        let published = row.published.iter().map(|one| one.and_then(theirs));
        let values = std::iter::once(ours(row.ours)).chain(published).zip(&names).enumerate();
        let bar = |(series, (value, name)): (usize, (Option<f64>, &String))| {
            let value = value?;
            let hint = format!("{}, {name}: {} {unit}", row.name, number(value));
            Some(Bar { series, value, interval: None, hint })
        };
        (row.name.clone(), values.filter_map(bar).collect())
    };
    let title = format!("{}: {unit}", table.title());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Drawn { svg: bars(&title, &unit, &rows.iter().map(bars_of).collect::<Vec<_>>(), &names), title }
}

/// A curve for each test over the varied parameter.
fn lines_of(table: &ShownTable<'_>) -> Vec<Drawn> {
    let mut charts = Vec::new();
    let test = |row: &ShownRow<'_>| row.name.split_once(' ').map_or("", |(_, test)| test).to_owned();
    let what = if table.title() == STRIPE_UNITS { "stripe unit, KiB" } else { "drives" };
    for rows in table.rows.chunk_by(|one, next| test(one) == test(next)) {
        let title = format!("{}: {}, {}", table.title(), test(&rows[0]), rows[0].ours.metric);
        let varied = |row: &ShownRow<'_>| {
            let configuration = row.name.split(' ').next().unwrap_or_default();
            configuration.rsplit(['u', 'n']).next().unwrap_or_default().to_owned()
        };
        let point = |(at, row): (usize, &ShownRow<'_>)| {
            let y = row.ours.measured?;
            let hint = format!("{}: {}", row.name, number(y));
            Some(Point { x: at as f64, y, interval: row.ours.ci95, hint })
        };
        let axis = Axis {
            name: what.into(),
            ends: [0.0, (rows.len() - 1) as f64],
            marks: rows.iter().enumerate().map(|(at, row)| (at as f64, varied(row))).collect(),
        };
        let unit = if rows[0].ours.metric.contains("IOPS") { "IOPS" } else { "MB/s" };
        let points = rows.iter().enumerate().filter_map(point).collect();
        let series = [Series { name: test(&rows[0]), parts: vec![points] }];
        charts.push(Drawn { svg: curves(&title, &axis, Scale::From0(unit), &series), title });
    }
    charts
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(String::new, |share| format!("{share:.0} %"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{FindingResult, StudyTable};

    fn row(name: &str, measured: Option<f64>, published: Option<f64>) -> StudyRow {
        StudyRow {
            row: name.into(),
            metric: "MB/s".into(),
            measured,
            ci95: None,
            published,
            percent_of_single: measured.map(|value| value / 2.0),
            published_percent_of_single: published.map(|value| value / 3.0),
            key: name.replace(' ', "/"),
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
