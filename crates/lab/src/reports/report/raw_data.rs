//! Every figure of an evaluation, as a table and as the JSON that the page carries.

use std::fmt::Write;

use super::settings::conditions;
use super::svg::escape;
use super::table::table;
use crate::records::results::{Evaluation, Measurement, State};
use crate::reports::tables::{ColumnGroup, Table, milliseconds, number, short_name};

/// All of them.
pub(super) fn raw_data(page: &mut String, evaluation: &Evaluation) {
    page.push_str("<h2>Raw data</h2>\n");
    page.push_str("<details><summary>Every cell with all its figures</summary>\n");
    let columns = [
        "layout",
        "state",
        "load",
        "MB/s",
        "95 % low",
        "95 % high",
        "deviation",
        "IOPS",
        "mean ms",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "read MB/s",
        "write MB/s",
        "CPU s/GB",
        "errors",
        "in flight",
        "runs MB/s",
        "runs s",
    ];
    let mut rows = Vec::new();
    for array in &evaluation.arrays {
        for state in State::ALL {
            for workload in &evaluation.settings.workloads {
                if let Some(cell) = array.cell(state, &workload.name) {
                    rows.push(raw_row(&array.layout, state, &workload.name, cell));
                }
            }
        }
    }
    let group = ColumnGroup { title: String::new(), columns: columns.map(str::to_owned).to_vec() };
    let shown = Table { title: "All figures".into(), groups: vec![group], rows };
    table(page, &shown, &escape(&conditions(evaluation)), "names");
    page.push_str("</details>\n<p class=\"screen\"><button id=\"save\" type=\"button\">Save results.json</button></p>\n");
    // `</script` or `<!--` would end or change a script element; inside JSON strings `<` may be
    // written as its code.
    let json = serde_json::to_string(evaluation)
        .unwrap_or_else(|error| format!("\"{error}\""))
        .replace('<', "\\u003c");
    let _ = writeln!(page, "<script type=\"application/json\" id=\"results\">{json}</script>");
}

fn raw_row(layout: &str, state: State, workload: &str, cell: &Measurement) -> Vec<String> {
    let optional = |value: Option<f64>| value.map_or("–".to_owned(), number);
    let list = |values: &[f64]| values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(" ");
    vec![
        layout.to_owned(),
        state.to_string(),
        short_name(workload).to_owned(),
        number(cell.mb_per_s),
        optional(cell.ci95.map(|[low, _]| low)),
        optional(cell.ci95.map(|[_, high]| high)),
        optional(cell.standard_deviation_mb_per_s),
        format!("{:.0}", cell.iops),
        milliseconds(cell.latency_us.mean),
        milliseconds(cell.latency_us.p50),
        milliseconds(cell.latency_us.p99),
        milliseconds(cell.latency_us.p999),
        milliseconds(cell.latency_us.max),
        optional(cell.read.as_ref().map(|way| way.mb_per_s)),
        optional(cell.write.as_ref().map(|way| way.mb_per_s)),
        optional(cell.cpu_seconds_per_gb),
        cell.errors.to_string(),
        cell.outstanding.to_string(),
        list(&cell.runs),
        list(&cell.run_seconds),
    ]
}
