//! Bandwidth and latency over a drive failure, with what happened to the array.

use crate::reports::report::plot::mark;
use crate::reports::report::svg::{Anchor, Svg, round_steps};
use crate::reports::tables::{number, time_text};
use crate::scenario::Timeline;

/// Bandwidth over the whole scenario, latency below it, and a line for each event.
pub(super) fn marked_timeline(timeline: &Timeline) -> String {
    const ROW: f64 = 13.0;
    const PLOT: f64 = 150.0;
    let (width, left, right) = (760.0, 60.0, 20.0);
    let top = 8.0 + ROW * timeline.markers.len() as f64;
    let panels: Vec<(&str, &[f64])> =
        [("MB/s", timeline.mb_per_s.as_slice()), ("mean latency", timeline.mean_us.as_slice())]
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
        svg.text("tick", x(time), bottom + 15.0, Anchor::Middle, &mark(time));
    }
    for (number, (what, values)) in panels.into_iter().enumerate() {
        let base = top + PLOT * (number + 1) as f64;
        let (steps, most) = round_steps(values.iter().copied().fold(0.0, f64::max), 4.0);
        let y = |value: f64| base - (PLOT - 20.0) * (value / most).clamp(0.0, 1.0);
        let text = |step| if number == 0 { mark(step) } else { time_text(step) };
        for step in steps {
            svg.line("grid", left, y(step), width - right, y(step));
            svg.text("tick", left - 6.0, y(step) + 4.0, Anchor::End, &text(step));
        }
        let middle = |piece: usize| (piece as f64 + 0.5) * timeline.step_seconds;
        let point = |(piece, value): (usize, &f64)| (x(middle(piece)), y(*value));
        svg.path("line", &values.iter().enumerate().map(point).collect::<Vec<_>>());
        svg.text("tick", left, y(most) - 5.0, Anchor::Start, what);
    }
    for (row, marker) in timeline.markers.iter().enumerate() {
        let (x, y) = (x(marker.seconds), 12.0 + ROW * row as f64);
        svg.line("marker", x, y + 2.0, x, bottom);
        let (at, anchor) = if x > width / 2.0 { (x - 4.0, Anchor::End) } else { (x + 4.0, Anchor::Start) };
        svg.text("", at, y, anchor, &format!("{} ({} s)", marker.what, number(marker.seconds)));
    }
    svg.text("tick", (left + width) / 2.0, bottom + 30.0, Anchor::Middle, "seconds");
    svg.finish()
}
