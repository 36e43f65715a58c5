//! The charts of the report. Rows are layouts and states; a state has the same colour everywhere.
//!
//! Throughput: a bar per row with its 95 % interval as a whisker, and a line for a single drive.
//! Latency: from the median over the 99th to the 99.9th percentile on a logarithmic scale. Rebuild:
//! throughput of the load and of the rebuild, and progress, over time.

use super::plot::{decade as decade_text, mark};
use super::svg::{Anchor, Svg, round_steps};
use crate::records::results::{ArrayResult, Evaluation, Measurement, RebuildRecord, State};
use crate::reports::tables::{bytes, duration, milliseconds, number, short_name};

const WIDTH: f64 = 390.0;
const LABELS: f64 = 62.0;
const RIGHT: f64 = 50.0;
const ROW: f64 = 15.0;
const GROUP_GAP: f64 = 9.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 34.0;

fn class(state: State) -> &'static str {
    match state {
        State::Normal => "normal",
        State::Degraded => "degraded",
        State::Rebuilding => "rebuilding",
        State::Recovered => "recovered",
    }
}

/// A measured row of a chart: its position and figures.
struct Row<'a> {
    array: &'a ArrayResult,
    state: State,
    cell: &'a Measurement,
    y: f64,
    first_of_group: bool,
    rows_in_group: usize,
}

/// All rows of one workload from top to bottom, and their total height.
fn rows<'a>(evaluation: &'a Evaluation, workload: &str) -> (Vec<Row<'a>>, f64) {
    let mut found = Vec::new();
    let mut y = TOP;
    for array in &evaluation.arrays {
        let cells: Vec<(State, &Measurement)> = State::ALL
            .into_iter()
            .filter_map(|state| array.cell(state, workload).map(|cell| (state, cell)))
            .collect();
        for (index, &(state, cell)) in cells.iter().enumerate() {
            found.push(Row { array, state, cell, y, first_of_group: index == 0, rows_in_group: cells.len() });
            y += ROW;
        }
        if !cells.is_empty() {
            y += GROUP_GAP;
        }
    }
    (found, y - GROUP_GAP)
}

fn group_label(svg: &mut Svg, row: &Row<'_>) {
    if row.first_of_group {
        let middle = row.y + ROW * row.rows_in_group as f64 / 2.0 + 4.0;
        svg.text("label", LABELS - 8.0, middle, Anchor::End, &row.array.layout);
    }
}

/// Throughput of one workload; `None` if it was not measured.
pub(super) fn throughput(evaluation: &Evaluation, workload: &str) -> Option<String> {
    let (rows, height) = rows(evaluation, workload);
    let most = rows
        .iter()
        .map(|row| row.cell.ci95.map_or(row.cell.mb_per_s, |[_, high]| high.max(row.cell.mb_per_s)))
        .fold(f64::NAN, f64::max);
    rows.first()?;
    let (steps, end) = round_steps(most, 4.0);
    let x = |value: f64| LABELS + (WIDTH - LABELS - RIGHT) * (value / end).min(1.0);
    let description = format!("Throughput of {} per layout and state, in MB/s", short_name(workload));
    let mut svg = Svg::new(WIDTH, height + BOTTOM, &description);
    for step in &steps {
        svg.line("grid", x(*step), TOP - 4.0, x(*step), height + 2.0);
        svg.text("tick", x(*step), height + 15.0, Anchor::Middle, &mark(*step));
    }
    svg.text("tick", x(end / 2.0), height + 30.0, Anchor::Middle, "MB/s");
    let single = evaluation.arrays.iter().find(|array| array.layout == "single");
    if let Some(single) = single.and_then(|array| array.cell(State::Normal, workload)) {
        svg.line("reference", x(single.mb_per_s), TOP - 4.0, x(single.mb_per_s), height + 2.0);
    }
    for row in &rows {
        group_label(&mut svg, row);
        let hint = format!(
            "{}, {}: {} MB/s (runs {}){}",
            row.array.layout,
            row.state,
            number(row.cell.mb_per_s),
            row.cell.runs.iter().map(|run| number(*run)).collect::<Vec<_>>().join(", "),
            row.cell.ci95.map_or(String::new(), |[low, high]| format!(
                ", 95 % {} to {}",
                number(low),
                number(high)
            ))
        );
        let (top, middle) = (row.y + 1.0, row.y + ROW / 2.0);
        let length = x(row.cell.mb_per_s) - LABELS;
        svg.bar(class(row.state), LABELS, top, length, ROW - 2.0, &hint);
        let mut text_x = x(row.cell.mb_per_s);
        if let Some([low, high]) = row.cell.ci95 {
            svg.line("whisker", x(low), middle, x(high), middle);
            svg.line("whisker", x(low), middle - 3.0, x(low), middle + 3.0);
            svg.line("whisker", x(high), middle - 3.0, x(high), middle + 3.0);
            text_x = text_x.max(x(high));
        }
        svg.text("value", text_x + 4.0, middle + 4.0, Anchor::Start, &number(row.cell.mb_per_s));
    }
    svg.line("axis", LABELS, TOP - 4.0, LABELS, height + 2.0);
    Some(svg.finish())
}

/// Latency percentiles of one workload; `None` if it was not measured.
pub(super) fn latency(evaluation: &Evaluation, workload: &str) -> Option<String> {
    let (rows, height) = rows(evaluation, workload);
    let lowest = rows.iter().map(|row| row.cell.latency_us.p50).fold(f64::NAN, f64::min).max(0.1);
    let highest = rows.iter().map(|row| row.cell.latency_us.max).fold(f64::NAN, f64::max);
    rows.first()?;
    let from = lowest.log10().floor();
    let to = highest.max(lowest * 1.01).log10().ceil().max(from + 1.0);
    let right = RIGHT - 28.0;
    let x = |microseconds: f64| {
        let share = (microseconds.max(0.1).log10() - from) / (to - from);
        LABELS + (WIDTH - LABELS - right) * share.clamp(0.0, 1.0)
    };
    let description =
        format!("Latency percentiles of {} per layout and state, logarithmic scale", short_name(workload));
    let mut svg = Svg::new(WIDTH, height + BOTTOM, &description);
    for decade in from as i32..=to as i32 {
        let at = 10f64.powi(decade);
        svg.line("grid", x(at), TOP - 4.0, x(at), height + 2.0);
        svg.text("tick", x(at), height + 15.0, Anchor::Middle, &decade_text(decade));
        if decade < to as i32 {
            for part in 2..10 {
                svg.line(
                    "fine grid",
                    x(at * f64::from(part)),
                    TOP - 4.0,
                    x(at * f64::from(part)),
                    height + 2.0,
                );
            }
        }
    }
    svg.text("tick", (LABELS + WIDTH - right) / 2.0, height + 30.0, Anchor::Middle, "latency");
    for row in &rows {
        group_label(&mut svg, row);
        let latency = &row.cell.latency_us;
        let hint = format!(
            "{}, {}: median {} ms, 99 % {} ms, 99.9 % {} ms, longest {} ms",
            row.array.layout,
            row.state,
            milliseconds(latency.p50),
            milliseconds(latency.p99),
            milliseconds(latency.p999),
            milliseconds(latency.max)
        );
        let y = row.y + ROW / 2.0;
        let class = class(row.state);
        svg.line(&format!("span {class}"), x(latency.p50), y, x(latency.max), y);
        svg.bar(class, x(latency.p50), y - 3.0, x(latency.p99) - x(latency.p50), 6.0, &hint);
        svg.circle(&format!("median {class}"), x(latency.p50), y, 4.5, &hint);
        svg.line("whisker", x(latency.p999), y - 5.0, x(latency.p999), y + 5.0);
        svg.line("whisker", x(latency.max), y - 2.5, x(latency.max), y + 2.5);
    }
    svg.line("axis", LABELS, TOP - 4.0, LABELS, height + 2.0);
    Some(svg.finish())
}

/// One rebuild over time.
pub(super) fn rebuild(array: &ArrayResult, rebuild: &RebuildRecord) -> String {
    const HEIGHT: f64 = 250.0;
    const PLOT_TOP: f64 = 34.0;
    const PLOT_BOTTOM: f64 = HEIGHT - 36.0;
    const PLOT_LEFT: f64 = 48.0;
    const WIDE: f64 = 560.0;
    const PLOT_RIGHT: f64 = WIDE - 46.0;
    let fastest = rebuild
        .timeline
        .iter()
        .map(|point| point.rebuild_mb_per_s.max(point.load_mb_per_s))
        .fold(f64::NAN, f64::max);
    let (steps, top) = round_steps(fastest, 4.0);
    let (times, end) = {
        let (times, _) = round_steps(rebuild.seconds, 6.0);
        (times, rebuild.seconds.max(0.001))
    };
    let x = |seconds: f64| PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * (seconds / end).clamp(0.0, 1.0);
    let y = |rate: f64| PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * (rate / top).clamp(0.0, 1.0);
    let percent = |percent: f64| PLOT_BOTTOM - (PLOT_BOTTOM - PLOT_TOP) * (percent / 100.0).clamp(0.0, 1.0);
    let description = format!(
        "Rebuild of {} after losing {}: {} in {}; throughput of load and rebuild, and progress, against time",
        array.layout,
        rebuild.lost_drive,
        bytes(rebuild.rebuilt_bytes),
        duration(rebuild.seconds)
    );
    let mut svg = Svg::new(WIDE, HEIGHT, &description);
    for load in &rebuild.loads {
        let (from, to) = (x(load.from_seconds), x(load.to_seconds));
        svg.bar("band", from, PLOT_TOP, to - from, PLOT_BOTTOM - PLOT_TOP, short_name(&load.workload));
    }
    for same in rebuild.loads.chunk_by(|one, next| one.workload == next.workload) {
        let (from, to) = (x(same[0].from_seconds), x(same[same.len() - 1].to_seconds));
        if to - from > 16.0 {
            let runs = if same.len() > 1 { format!(" ×{}", same.len()) } else { String::new() };
            let text = format!("{}{runs}", short_name(&same[0].workload));
            svg.text("tick", (from + to) / 2.0, PLOT_TOP - 6.0, Anchor::Middle, &text);
        }
    }
    for step in &steps {
        svg.line("grid", PLOT_LEFT, y(*step), PLOT_RIGHT, y(*step));
        svg.text("tick", PLOT_LEFT - 6.0, y(*step) + 4.0, Anchor::End, &mark(*step));
    }
    for share in [0.0, 25.0, 50.0, 75.0, 100.0] {
        svg.text("tick", PLOT_RIGHT + 6.0, percent(share) + 4.0, Anchor::Start, &format!("{share:.0} %"));
    }
    for time in times.iter().filter(|time| **time <= end) {
        svg.line("axis", x(*time), PLOT_BOTTOM, x(*time), PLOT_BOTTOM + 4.0);
        svg.text("tick", x(*time), PLOT_BOTTOM + 16.0, Anchor::Middle, &mark(*time));
    }
    let middle = (PLOT_LEFT + PLOT_RIGHT) / 2.0;
    svg.text("tick", middle, HEIGHT - 6.0, Anchor::Middle, "seconds since the replacement was provided");
    svg.text("tick", 4.0, 14.0, Anchor::Start, "MB/s");
    svg.text("tick", WIDE - 4.0, 14.0, Anchor::End, "done");
    let line = |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
        (0..rebuild.timeline.len()).map(|index| (x(rebuild.timeline[index].seconds), value(index))).collect()
    };
    svg.path("progress", &line(&|index| percent(rebuild.timeline[index].percent)));
    if !rebuild.loads.is_empty() {
        svg.path("curve load", &line(&|index| y(rebuild.timeline[index].load_mb_per_s)));
    }
    svg.path("curve rebuild", &line(&|index| y(rebuild.timeline[index].rebuild_mb_per_s)));
    svg.line("axis", PLOT_LEFT, PLOT_BOTTOM, PLOT_RIGHT, PLOT_BOTTOM);
    svg.finish()
}
