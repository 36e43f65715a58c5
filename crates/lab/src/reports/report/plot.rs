//! Charts of any figures: curves over an axis, bars with intervals, latencies from the median to
//! the longest. Several series share a chart, each with a colour; the key is part of the drawing,
//! so that a chart alone is complete.

use super::svg::{Anchor, Svg, round_steps};
use crate::records::record::Latencies;
use crate::reports::tables::{number, time_text};

/// Number of series with a colour of their own.
pub(crate) const MOST_SERIES: usize = 6;

const WIDTH: f64 = 560.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const PLOT: f64 = 210.0;
const KEY_ROW: f64 = 17.0;
/// Average width of a letter.
const LETTER: f64 = 7.2;
/// Least distance of the marks on an axis.
const MARK_GAP: f64 = 34.0;

/// A point of a curve.
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) interval: Option<[f64; 2]>,
    pub(crate) hint: String,
}

/// A curve: lines through the points of each part.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) parts: Vec<Vec<Point>>,
}

impl Series {
    fn points(&self) -> impl Iterator<Item = &Point> {
        self.parts.iter().flatten()
    }
}

/// Unit of the vertical axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From 0 on, in the unit of this name.
    From0(&'static str),
    /// Microseconds, logarithmic.
    Time,
}

/// The horizontal axis.
pub(crate) struct Axis {
    pub(crate) name: String,
    /// First and last value.
    pub(crate) ends: [f64; 2],
    /// Marks with their texts.
    pub(crate) marks: Vec<(f64, String)>,
}

/// Curves over an axis.
pub(crate) fn curves(title: &str, axis: &Axis, scale: Scale, series: &[Series]) -> String {
    let names: Vec<&str> = series.iter().map(|one| one.name.as_str()).collect();
    let top = 12.0 + key_height(&names);
    let bottom = top + PLOT;
    let mut svg = Svg::new(WIDTH, bottom + 38.0, title);
    key(&mut svg, &names);
    let values = || {
        series
            .iter()
            .flat_map(Series::points)
            .flat_map(|point| [Some(point.y), point.interval.map(|[_, high]| high)])
            .flatten()
    };
    let y = vertical(
        &mut svg,
        scale,
        values().fold(0.0, f64::max),
        values().fold(f64::MAX, f64::min),
        [top, bottom],
    );
    let [from, to] = axis.ends;
    let x = |value: f64| {
        let share = if to > from { (value - from) / (to - from) } else { 0.5 };
        LEFT + 10.0 + (WIDTH - LEFT - RIGHT - 20.0) * share
    };
    let mut last = f64::MIN;
    for (value, text) in &axis.marks {
        svg.line("axis", x(*value), bottom, x(*value), bottom + 4.0);
        let gap = MARK_GAP.max(LETTER * (text.chars().count() + 1) as f64);
        if x(*value) - last >= gap {
            svg.text("tick", x(*value), bottom + 16.0, Anchor::Middle, text);
            last = x(*value);
        }
    }
    svg.line("axis", LEFT, bottom, WIDTH - RIGHT, bottom);
    svg.text("tick", (LEFT + WIDTH - RIGHT) / 2.0, bottom + 32.0, Anchor::Middle, &axis.name);
    for (number, one) in series.iter().enumerate() {
        let class = class(number);
        for part in &one.parts {
            let points: Vec<(f64, f64)> = part.iter().map(|point| (x(point.x), y(point.y))).collect();
            svg.path(&format!("stroke {class}"), &points);
        }
        for point in one.points() {
            let at = x(point.x);
            if let Some([low, high]) = point.interval {
                svg.line("whisker", at, y(low), at, y(high));
                svg.line("whisker", at - 3.0, y(low), at + 3.0, y(low));
                svg.line("whisker", at - 3.0, y(high), at + 3.0, y(high));
            }
            if !point.hint.is_empty() {
                svg.circle(class, at, y(point.y), 3.2, &point.hint);
            }
        }
    }
    svg.finish()
}

/// Draws the vertical axis; returns the position of a value.
fn vertical(
    svg: &mut Svg,
    scale: Scale,
    most: f64,
    least: f64,
    [top, bottom]: [f64; 2],
) -> impl Fn(f64) -> f64 + use<> {
    let (from, to) = match scale {
        Scale::From0(_) => (0.0, round_steps(most, 4.0).1),
        Scale::Time => decades(least, most),
    };
    let is_time = scale == Scale::Time;
    let place = move |value: f64| {
        let value = if is_time { value.max(1e-3).log10() } else { value };
        bottom - (bottom - top) * ((value - from) / (to - from)).clamp(0.0, 1.0)
    };
    let marks: Vec<(f64, String)> = match scale {
        Scale::From0(_) => round_steps(most, 4.0).0.into_iter().map(|step| (step, mark(step))).collect(),
        Scale::Time => decade_marks(from, to),
    };
    for (value, text) in marks {
        svg.line("grid", LEFT, place(value), WIDTH - RIGHT, place(value));
        svg.text("tick", LEFT - 6.0, place(value) + 4.0, Anchor::End, &text);
    }
    let name = if let Scale::From0(unit) = scale { unit } else { "" };
    svg.text("tick", 2.0, top - 8.0, Anchor::Start, name);
    place
}

/// The decades around microseconds, as powers of ten.
fn decades(least: f64, most: f64) -> (f64, f64) {
    let from = least.clamp(1e-3, 1e12).log10().floor();
    (from, most.clamp(1e-3, 1e12).log10().ceil().max(from + 1.0))
}

fn decade_marks(from: f64, to: f64) -> Vec<(f64, String)> {
    (from as i32..=to as i32).map(|power| (10f64.powi(power), decade(power))).collect()
}

/// `10 ms` for a power of ten of microseconds.
pub(crate) fn decade(power: i32) -> String {
    let value = 10f64.powi(power);
    match power {
        ..0 => format!("{} ns", mark(value * 1e3)),
        0..3 => format!("{} µs", mark(value)),
        3..6 => format!("{} ms", mark(value / 1e3)),
        _ => format!("{} s", mark(value / 1e6)),
    }
}

/// A number of an axis: as many decimals as it has, thousands apart.
pub(crate) fn mark(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text.contains('.') || value.abs() < 10_000.0 {
        true => text.to_owned(),
        false => number(value),
    }
}

/// A bar: series, value, interval, hint.
pub(crate) struct Bar {
    pub(crate) series: usize,
    pub(crate) value: f64,
    pub(crate) interval: Option<[f64; 2]>,
    pub(crate) hint: String,
}

const BAR_LEFT: f64 = 176.0;
const BAR_RIGHT: f64 = 62.0;
const BAR_ROW: f64 = 15.0;
const BAR_GAP: f64 = 7.0;

/// Bars of each row, one below the other.
pub(crate) fn bars(title: &str, unit: &str, rows: &[(String, Vec<Bar>)], names: &[&str]) -> String {
    let top = 8.0 + key_height(names);
    let (places, bottom) = row_places(rows.iter().map(|(_, bars)| bars.len()), top);
    let all = || rows.iter().flat_map(|(_, bars)| bars);
    let most =
        all().map(|bar| bar.interval.map_or(bar.value, |[_, high]| high.max(bar.value))).fold(0.0, f64::max);
    let (steps, end) = round_steps(most, 4.0);
    let x = |value: f64| BAR_LEFT + (WIDTH - BAR_LEFT - BAR_RIGHT) * (value / end).clamp(0.0, 1.0);
    let mut svg = Svg::new(WIDTH, bottom + 34.0, title);
    key(&mut svg, names);
    for step in steps {
        svg.line("grid", x(step), top - 4.0, x(step), bottom);
        svg.text("tick", x(step), bottom + 14.0, Anchor::Middle, &mark(step));
    }
    svg.text("tick", x(end / 2.0), bottom + 29.0, Anchor::Middle, unit);
    for ((label, bars), place) in rows.iter().zip(places) {
        row_label(&mut svg, label, place, bars.len());
        for (at, bar) in bars.iter().enumerate() {
            let y = place + BAR_ROW * at as f64;
            let middle = y + BAR_ROW / 2.0;
            svg.bar(class(bar.series), BAR_LEFT, y + 1.0, x(bar.value) - BAR_LEFT, BAR_ROW - 2.0, &bar.hint);
            let mut end = x(bar.value);
            if let Some([low, high]) = bar.interval {
                svg.line("whisker", x(low), middle, x(high), middle);
                svg.line("whisker", x(low), middle - 3.0, x(low), middle + 3.0);
                svg.line("whisker", x(high), middle - 3.0, x(high), middle + 3.0);
                end = end.max(x(high));
            }
            svg.text("value", end + 4.0, middle + 4.0, Anchor::Start, &number(bar.value));
        }
    }
    svg.line("axis", BAR_LEFT, top - 4.0, BAR_LEFT, bottom);
    svg.finish()
}

/// Latencies of each row, logarithmic: a dot at the median, a bar to the 99th percentile, ticks at
/// the 99.9th and the longest.
pub(crate) fn spans(title: &str, rows: &[(String, Vec<(usize, Latencies)>)], names: &[&str]) -> String {
    let top = 8.0 + key_height(names);
    let (places, bottom) = row_places(rows.iter().map(|(_, spans)| spans.len()), top);
    let known = |one: &Latencies| [one.p50.or(one.mean), one.p99, one.p999, one.max];
    let all: Vec<f64> =
        rows.iter().flat_map(|(_, spans)| spans).flat_map(|(_, one)| known(one)).flatten().collect();
    let (from, to) =
        decades(all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max));
    let x = |us: f64| {
        let share = (us.max(1e-3).log10() - from) / (to - from);
        BAR_LEFT + (WIDTH - BAR_LEFT - BAR_RIGHT) * share.clamp(0.0, 1.0)
    };
    let mut svg = Svg::new(WIDTH, bottom + 20.0, title);
    key(&mut svg, names);
    for (value, text) in decade_marks(from, to) {
        svg.line("grid", x(value), top - 4.0, x(value), bottom);
        svg.text("tick", x(value), bottom + 14.0, Anchor::Middle, &text);
    }
    for ((label, spans), place) in rows.iter().zip(places) {
        row_label(&mut svg, label, place, spans.len());
        for (at, (series, one)) in spans.iter().enumerate() {
            let y = place + BAR_ROW * (at as f64 + 0.5);
            let [middle, p99, p999, max] = known(one);
            let Some(middle) = middle else { continue };
            let hint = span_text(one);
            let class = class(*series);
            svg.line(&format!("stroke {class}"), x(middle), y, x(max.or(p99).unwrap_or(middle)), y);
            svg.bar(class, x(middle), y - 3.0, x(p99.unwrap_or(middle)) - x(middle), 6.0, &hint);
            svg.circle(&format!("median {class}"), x(middle), y, 4.5, &hint);
            for (value, half) in [(p999, 5.0), (max, 2.5)] {
                if let Some(value) = value {
                    svg.line("whisker", x(value), y - half, x(value), y + half);
                }
            }
            let end = x(max.or(p99).unwrap_or(middle));
            svg.text("value", end + 6.0, y + 4.0, Anchor::Start, &time_text(middle));
        }
    }
    svg.line("axis", BAR_LEFT, top - 4.0, BAR_LEFT, bottom);
    svg.finish()
}

fn span_text(one: &Latencies) -> String {
    let parts = [
        ("median", one.p50),
        ("mean", one.mean),
        ("99 %", one.p99),
        ("99.9 %", one.p999),
        ("longest", one.max),
    ];
    let known = parts.into_iter().filter_map(|(name, us)| Some(format!("{name} {}", time_text(us?))));
    known.collect::<Vec<_>>().join(", ")
}

/// The top of each row, and the end of the last.
fn row_places(lengths: impl Iterator<Item = usize>, top: f64) -> (Vec<f64>, f64) {
    let mut at = top;
    let places = lengths.map(|length| {
        let place = at;
        at += BAR_ROW * length as f64 + BAR_GAP;
        place
    });
    (places.collect(), at)
}

fn row_label(svg: &mut Svg, label: &str, place: f64, bars: usize) {
    let most = (BAR_LEFT / LETTER) as usize - 2;
    let label = match label.chars().count() > most {
        true => label.chars().take(most - 1).chain(['…']).collect(),
        false => label.to_owned(),
    };
    svg.text("", BAR_LEFT - 8.0, place + BAR_ROW * bars as f64 / 2.0 + 4.0, Anchor::End, &label);
}

fn class(series: usize) -> &'static str {
    ["s0", "s1", "s2", "s3", "s4", "s5"][series % MOST_SERIES]
}

/// Rows of the key, each with the positions of its entries. A single series needs none.
fn key_rows<'a>(names: &[&'a str]) -> Vec<Vec<(usize, f64, &'a str)>> {
    let mut rows: Vec<Vec<(usize, f64, &str)>> = Vec::new();
    let mut at = f64::MAX;
    for (number, name) in names.iter().enumerate().filter(|_| names.len() > 1) {
        let width = 30.0 + LETTER * name.chars().count() as f64;
        if at + width > WIDTH {
            rows.push(Vec::new());
            at = 4.0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((number, at, name));
        }
        at += width;
    }
    rows
}

fn key_height(names: &[&str]) -> f64 {
    KEY_ROW * key_rows(names).len() as f64 + 6.0
}

fn key(svg: &mut Svg, names: &[&str]) {
    for (row, entries) in key_rows(names).into_iter().enumerate() {
        let y = 9.0 + KEY_ROW * row as f64;
        for (number, x, name) in entries {
            svg.bar(class(number), x, y - 5.0, 14.0, 8.0, name);
            svg.text("", x + 19.0, y + 4.0, Anchor::Start, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_in_units_that_people_read() {
        assert_eq!([decade(0), decade(4), decade(6), decade(-1)], ["1 µs", "10 ms", "1 s", "100 ns"]);
        assert_eq!([mark(0.0), mark(0.005), mark(2.5), mark(250_000.0)], ["0", "0.005", "2.5", "250,000"]);
    }

    #[test]
    fn series_share_a_chart_and_have_a_key() {
        let series = |name: &str, factor: f64| Series {
            name: name.into(),
            parts: vec![
                (0..4)
                    .map(|at| Point {
                        x: f64::from(at),
                        y: factor * f64::from(at + 1),
                        interval: Some([factor, 5.0 * factor]),
                        hint: "a point".into(),
                    })
                    .collect(),
            ],
        };
        let axis = Axis {
            name: "size".into(),
            ends: [0.0, 3.0],
            marks: (0..4).map(|at| (f64::from(at), format!("{at}"))).collect(),
        };
        let svg = curves("t", &axis, Scale::From0("MB/s"), &[series("read", 0.001), series("write", 0.002)]);
        assert_eq!(svg.matches("<path").count(), 2, "{svg}");
        assert!(svg.contains(">read<") && svg.contains(">write<") && svg.contains("0.005"), "{svg}");
        let alone = curves("t", &axis, Scale::Time, &[series("read", 1e6)]);
        assert!(!alone.contains(">read<") && alone.contains("1 s") && !alone.contains("1000000"), "{alone}");
        let drawn = bars(
            "t",
            "MB/s",
            &[("a".into(), vec![Bar { series: 0, value: 0.0, interval: None, hint: String::new() }])],
            &["x"],
        );
        assert!(!drawn.contains("NaN"));
        let empty = spans("t", &[("a".into(), vec![(0, Latencies::default())])], &["x"]);
        assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
    }
}
