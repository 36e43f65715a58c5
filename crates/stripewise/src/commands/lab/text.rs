//! A run's figures as a table for people.

use stripewise_lab::forms::tool_form;
use stripewise_lab::record::{MeasurementRecord, RunRecord};
use stripewise_lab::tables;

use crate::printer::{Page, Style, Table, plain};

/// A run: what it is about, the figures, the badges that do not hold, the notes.
pub(super) fn page_of(run: &RunRecord, page: &mut Page) {
    page.field("run", &run.run, Style::Strong);
    page.field("target", &run.target, Style::Plain);
    page.field("profile", &run.profile, Style::Plain);
    page.field("tool", &run.tool, Style::Plain);
    page.field("date", &run.date, Style::Plain);
    if !run.finished {
        page.field("state", "not finished: what was measured until then", Style::Warning);
    }
    let mut table =
        Table::new(&["MEASUREMENT", ">MB/s", ">IOPS", ">MEAN", ">P99", ">95 % INTERVAL", ">RUNS"]);
    for figure in &run.measurements {
        table.row([
            plain(figure.name.clone()),
            plain(number(figure.mb_per_s)),
            plain(rate(figure)),
            plain(time(figure.latency_us.and_then(|latency| latency.mean))),
            plain(time(figure.latency_us.and_then(|latency| latency.p99))),
            plain(figure.ci95.map_or_else(String::new, |[low, high]| {
                format!("{} – {} {}", number(Some(low)), number(Some(high)), figure.unit.text())
            })),
            plain(figure.runs.len().to_string()),
        ]);
    }
    page.table(&table);
    if let Some(form) = tool_form(run) {
        page.line("");
        form.lines().for_each(|line| page.line(line));
        page.line("");
    }
    // Figures that failed a check for the same reason share a line.
    let mut failed: Vec<((&String, &String), Vec<&str>)> = Vec::new();
    for figure in &run.measurements {
        for reason in &figure.badge_reasons {
            match failed.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, figures)) => figures.push(&figure.name),
                None => failed.push((reason, vec![&figure.name])),
            }
        }
    }
    for ((name, why), figures) in failed {
        let figures = match figures.as_slice() {
            all if all.len() > 1 && all.len() == run.measurements.len() => "all figures".to_owned(),
            few if few.len() <= 3 => few.join(", "),
            many => format!("{} figures, the first of them {}", many.len(), many[0]),
        };
        page.line(format!("{figures}: {}: {why}", MeasurementRecord::failed(name)));
    }
    for marker in run.timeline.iter().flat_map(|timeline| &timeline.markers) {
        page.line(format!("{:>8.1} s: {}", marker.seconds, marker.what));
    }
    for note in &run.notes {
        page.line(format!("note: {note}"));
    }
}

/// Requests a second, or the figure itself with its unit where it is neither.
fn rate(figure: &MeasurementRecord) -> String {
    match (figure.iops, figure.mb_per_s, figure.runs.first()) {
        (Some(rate), ..) => number(Some(rate)),
        (None, None, Some(value)) => format!("{} {}", number(Some(*value)), figure.unit.text()),
        _ => String::new(),
    }
}

/// Three digits that matter.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, tables::number)
}

/// A latency in the unit that people read it in.
fn time(microseconds: Option<f64>) -> String {
    microseconds.map_or_else(String::new, tables::time_text)
}
