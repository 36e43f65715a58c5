//! The charts of a group of runs of one method: one for each question, with all runs in it.

use super::ReportedRun;
use super::figures::{Sweep, Varied, in_flight, is_counted, named, single_figures};
use crate::method::size_text;
use crate::records::record::{Latencies, MeasurementRecord, Operation, Unit};
use crate::records::store::Sample;
use crate::reports::report::plot::{Axis, Bar, MOST_SERIES, Point, Scale, Series, bars, curves, mark, spans};
use crate::reports::report::svg::round_steps;
use crate::reports::tables::{number, time_text};

/// Percentiles drawn.
const QUANTILES: [(f64, &str); 6] =
    [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %"), (1.0, "longest")];
/// Maximum number of rows of a chart.
const MOST_ROWS: usize = 24;
/// Maximum number of points of a curve over time.
const MOST_POINTS: usize = 600;

/// A chart with its title and a line that explains it.
pub(super) struct Drawn {
    pub(super) title: String,
    pub(super) svg: String,
    pub(super) note: String,
}

/// Throughput and latency of every sweep.
pub(super) fn of_sweeps(runs: &[&ReportedRun], names: &[String], sweeps: &[Sweep]) -> Vec<Drawn> {
    let mut groups: Vec<Vec<&Sweep>> = Vec::new();
    for sweep in sweeps {
        let fits = |group: &Vec<&Sweep>| {
            let same = |one: &&Sweep| (one.varied, one.counts) == (sweep.varied, sweep.counts);
            group.iter().all(same) && (group.len() + 1) * runs.len() <= MOST_SERIES
        };
        match groups.iter_mut().find(|group| fits(group)) {
            Some(group) => group.push(sweep),
            None => groups.push(vec![sweep]),
        }
    }
    let mut drawn = Vec::new();
    for group in groups {
        drawn.extend(sweep_chart(runs, names, &group, false));
        drawn.extend(sweep_chart(runs, names, &group, true));
    }
    drawn
}

fn sweep_chart(runs: &[&ReportedRun], names: &[String], group: &[&Sweep], latency: bool) -> Option<Drawn> {
    let first = group.first()?;
    let mut values: Vec<u64> = group.iter().flat_map(|sweep| sweep.values.clone()).collect();
    values.sort_unstable();
    values.dedup();
    let mut series = Vec::new();
    for sweep in group {
        for (run, name) in runs.iter().zip(names) {
            let point = |(at, value): (usize, &u64)| {
                let figure = sweep.figure(run, *value)?;
                let (y, interval) = match latency {
                    true => (figure.latency_us?.mean?, None),
                    false => rate(figure, sweep.counts)?,
                };
                let hint = hint_of(figure);
                Some(Point { x: at as f64, y, interval, hint })
            };
            let points: Vec<Point> = values.iter().enumerate().filter_map(point).collect();
            let name = match (runs.len(), group.len()) {
                (1, _) => sweep.name.clone(),
                (_, 1) => name.clone(),
                _ => format!("{}, {name}", sweep.name),
            };
            if !points.is_empty() {
                series.push(Series { name, parts: vec![points] });
            }
        }
    }
    series.truncate(MOST_SERIES);
    if series.is_empty() {
        return None;
    }
    let (over, text): (&str, fn(u64) -> String) = match first.varied {
        Varied::Size => ("request size", short_size),
        Varied::InFlight => ("requests in flight", |value| value.to_string()),
    };
    let marks = values.iter().enumerate().map(|(at, value)| (at as f64, text(*value)));
    let axis = Axis { name: over.into(), ends: [0.0, (values.len() - 1) as f64], marks: marks.collect() };
    let (what, scale) = match (latency, first.counts) {
        (true, _) => ("Mean latency", Scale::Time),
        (false, true) => ("Requests a second", Scale::From0("IOPS")),
        (false, false) => ("Throughput", Scale::From0("MB/s")),
    };
    let tests: Vec<&str> = group.iter().map(|sweep| sweep.name.as_str()).collect();
    let title = format!("{what} over {over}: {}", tests.join(", "));
    let note = match (latency, first.varied) {
        (true, Varied::InFlight) => QUEUE_NOTE.to_owned(),
        (true, Varied::Size) => depth_note(runs, first),
        (false, _) => interval_note(runs),
    };
    Some(Drawn { svg: curves(&title, &axis, scale, &series), title, note })
}

/// Explanation of latencies with several requests in flight.
pub(super) const QUEUE_NOTE: &str = "Once the drive is busy, a request waits for those before it: \
    the mean latency is the number of requests in flight over the requests a second. The response \
    time of the drive itself is that of one request in flight.";

fn depth_note(runs: &[&ReportedRun], sweep: &Sweep) -> String {
    let figure = runs.iter().find_map(|run| sweep.values.iter().find_map(|value| sweep.figure(run, *value)));
    match figure.and_then(in_flight) {
        Some(1) => "One request in flight: the response time of the drive itself. Logarithmic scale.".into(),
        Some(depth) => format!("{depth} requests in flight. {QUEUE_NOTE}"),
        None => String::new(),
    }
}

fn interval_note(runs: &[&ReportedRun]) -> String {
    let most = runs.iter().flat_map(|run| &run.run.measurements).map(|figure| figure.runs.len()).max();
    match most {
        Some(0 | 1) | None => "One run of each figure: there is no interval.".into(),
        Some(2) => "Two runs of each figure: too few for an interval.".into(),
        Some(count) => format!("Up to {count} runs of each figure; whiskers are 95 % intervals."),
    }
}

/// Rate of a figure, and its interval, in requests or MB a second.
fn rate(figure: &MeasurementRecord, counts: bool) -> Option<(f64, Option<[f64; 2]>)> {
    let own = if counts { figure.iops? } else { figure.mb_per_s? };
    // Intervals are in the unit of the runs.
    let factor = match (counts, figure.unit) {
        (true, Unit::MbPerS) => figure.mb_per_s.filter(|rate| *rate > 0.0).map(|rate| own / rate),
        _ => Some(1.0),
    };
    let interval = figure.ci95.zip(factor).map(|([low, high], factor)| [low * factor, high * factor]);
    Some((own, interval))
}

fn hint_of(figure: &MeasurementRecord) -> String {
    let mut parts = vec![figure.name.clone()];
    parts.extend(figure.mb_per_s.map(|rate| format!("{} MB/s", number(rate))));
    parts.extend(figure.iops.map(|rate| format!("{} IOPS", number(rate))));
    parts.extend(
        figure.latency_us.and_then(|one| one.mean).map(|us| format!("mean latency {}", time_text(us))),
    );
    let runs: Vec<String> = figure.runs.iter().map(|run| number(*run)).collect();
    if runs.len() > 1 {
        parts.push(format!("runs {} {}", runs.join(", "), figure.unit.text()));
    }
    parts.join("; ")
}

fn short_size(bytes: u64) -> String {
    let text = size_text(bytes);
    text.strip_suffix("iB").map_or_else(|| format!("{text} B"), str::to_owned)
}

/// Bars of the figures outside of sweeps: throughput, and requests a second.
pub(super) fn of_single_figures(runs: &[&ReportedRun], names: &[String], sweeps: &[Sweep]) -> Vec<Drawn> {
    let known = single_figures(runs, sweeps);
    let mut drawn = Vec::new();
    for (counts, what, unit) in [(false, "Throughput", "MB/s"), (true, "Requests a second", "a second")] {
        let row = |name: &&str| {
            let of_run = |(series, run): (usize, &&ReportedRun)| {
                let figure = named(run, name).filter(|figure| is_counted(figure) == counts)?;
                let (value, interval) = rate(figure, counts)?;
                Some(Bar { series, value, interval, hint: hint_of(figure) })
            };
            let bars: Vec<Bar> = runs.iter().enumerate().take(MOST_SERIES).filter_map(of_run).collect();
            (!bars.is_empty()).then(|| ((*name).to_owned(), bars))
        };
        let rows: Vec<(String, Vec<Bar>)> = known.iter().filter_map(row).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).take(MOST_SERIES).collect();
        for part in rows.chunks(MOST_ROWS) {
            let title = format!("{what} of each measurement");
            drawn.push(Drawn { svg: bars(&title, unit, part, &names), title, note: interval_note(runs) });
        }
    }
    drawn
}

/// Latencies of the figures with one request in flight.
pub(super) fn at_depth_1(runs: &[&ReportedRun], names: &[String]) -> Option<Drawn> {
    let is_alone = |figure: &&MeasurementRecord| in_flight(figure) == Some(1) && figure.latency_us.is_some();
    let mut known: Vec<&MeasurementRecord> = Vec::new();
    for figure in runs.iter().flat_map(|run| &run.run.measurements).filter(is_alone) {
        if !known.iter().any(|one| one.name == figure.name) {
            known.push(figure);
        }
    }
    if known.len() > MOST_ROWS / 2 {
        // A sweep over sizes has its own curve; the smallest requests show the response time.
        let least = known.iter().filter_map(|figure| figure.block_bytes).min();
        known.retain(|figure| figure.block_bytes == least);
    }
    let row = |figure: &&MeasurementRecord| {
        let of_run = |(series, run): (usize, &&ReportedRun)| {
            Some((series, named(run, &figure.name).filter(is_alone)?.latency_us?))
        };
        let spans: Vec<(usize, Latencies)> =
            runs.iter().enumerate().take(MOST_SERIES).filter_map(of_run).collect();
        (figure.name.clone(), spans)
    };
    let rows: Vec<(String, Vec<(usize, Latencies)>)> = known.iter().map(row).take(MOST_ROWS).collect();
    let title = "Latency with one request in flight".to_owned();
    let names: Vec<&str> = names.iter().map(String::as_str).take(MOST_SERIES).collect();
    let note = "Dot: median; bar: to the 99th percentile; long tick: 99.9th; short tick: longest. \
        Logarithmic scale.";
    (!rows.is_empty()).then(|| Drawn { svg: spans(&title, &rows, &names), title, note: note.into() })
}

/// Latency percentiles from the merged histograms of up to six figures; those with one request in
/// flight first.
pub(super) fn percentiles(runs: &[&ReportedRun], names: &[String]) -> Option<Drawn> {
    let mut candidates: Vec<(bool, usize, usize)> = Vec::new();
    for (run, reported) in runs.iter().enumerate() {
        for (position, figure) in reported.run.measurements.iter().take(reported.samples.len()).enumerate() {
            candidates.push((in_flight(figure) != Some(1), position, run));
        }
    }
    candidates.sort_unstable();
    let mut series = Vec::new();
    for (_, position, run) in candidates {
        let figure = &runs[run].run.measurements[position];
        let Some(values) = quantiles(&runs[run].samples[position]) else { continue };
        let name =
            if runs.len() > 1 { format!("{}, {}", figure.name, names[run]) } else { figure.name.clone() };
        let point = |(at, us): (usize, f64)| Point {
            x: at as f64,
            y: us,
            interval: None,
            hint: format!("{name}: {} {}", QUANTILES[at].1, time_text(us)),
        };
        let points = values.into_iter().enumerate().map(point).collect();
        series.push(Series { parts: vec![points], name });
        if series.len() == MOST_SERIES {
            break;
        }
    }
    let marks = QUANTILES.iter().enumerate().map(|(at, (_, name))| (at as f64, (*name).to_owned()));
    let axis = Axis {
        name: "of all requests".into(),
        ends: [0.0, (QUANTILES.len() - 1) as f64],
        marks: marks.collect(),
    };
    let title = "Latency percentiles".to_owned();
    let note = "All requests of all runs, logarithmic scale.".to_owned();
    (!series.is_empty()).then(|| Drawn { svg: curves(&title, &axis, Scale::Time, &series), title, note })
}

fn quantiles(samples: &[Sample]) -> Option<Vec<f64>> {
    let mut all = crate::loads::load::Tally::new().latency_ns;
    for histogram in samples.iter().flat_map(|sample| [&sample.read_latency, &sample.write_latency]).flatten()
    {
        all.add(histogram).ok()?;
    }
    let at = |(quantile, _): &(f64, &str)| all.value_at_quantile(*quantile) as f64 / 1e3;
    (!all.is_empty()).then(|| QUANTILES.iter().map(at).collect())
}

/// Throughput in each second of the whole run: of each operation, or of each run.
pub(super) fn over_time(runs: &[&ReportedRun], names: &[String]) -> Option<Drawn> {
    let mut series: Vec<Series> = Vec::new();
    for (run, name) in runs.iter().zip(names) {
        let mut pieces: Vec<(Operation, &MeasurementRecord, &Sample)> = Vec::new();
        for (figure, samples) in run.run.measurements.iter().zip(&run.samples) {
            pieces.extend(samples.iter().map(|sample| (figure.op, figure, sample)));
        }
        pieces.sort_by(|(_, _, one), (_, _, other)| one.started_s.total_cmp(&other.started_s));
        for (op, figure, sample) in pieces.into_iter().filter(|(_, _, sample)| sample.per_second.len() > 1) {
            let name = match runs.len() {
                1 => format!("{op:?}").to_lowercase(),
                _ => name.clone(),
            };
            let point = |(second, piece): (usize, &crate::records::store::Second)| Point {
                x: sample.started_s + second as f64 + 0.5,
                y: piece.bytes as f64 / 1e6,
                interval: None,
                // Only the first of a piece says what it is.
                hint: if second == 0 { figure.name.clone() } else { String::new() },
            };
            let part: Vec<Point> = sample.per_second.iter().enumerate().map(point).collect();
            match series.iter().position(|one| one.name == name) {
                Some(at) => series[at].parts.push(part),
                None if series.len() < MOST_SERIES => series.push(Series { name, parts: vec![part] }),
                None => {}
            }
        }
    }
    for one in &mut series {
        thin(one);
    }
    let last =
        series.iter().flat_map(|one| one.parts.iter().flatten()).map(|point| point.x).fold(0.0, f64::max);
    let (steps, _) = round_steps(last, 8.0);
    let marks = steps.into_iter().filter(|step| *step <= last).map(|step| (step, mark(step)));
    let axis = Axis { name: "seconds since the run began".into(), ends: [0.0, last], marks: marks.collect() };
    let title = "Throughput over time".to_owned();
    let note = "Each second of every run; a dot where a measurement begins, with its name.".to_owned();
    (!series.is_empty()).then(|| Drawn {
        svg: curves(&title, &axis, Scale::From0("MB/s"), &series),
        title,
        note,
    })
}

/// Keeps a long curve small: means of adjacent seconds.
fn thin(series: &mut Series) {
    let all: usize = series.parts.iter().map(Vec::len).sum();
    let step = all.div_ceil(MOST_POINTS).max(1);
    if step == 1 {
        return;
    }
    for part in &mut series.parts {
        let mean = |piece: &[Point]| Point {
            x: piece.iter().map(|point| point.x).sum::<f64>() / piece.len() as f64,
            y: piece.iter().map(|point| point.y).sum::<f64>() / piece.len() as f64,
            interval: None,
            hint: piece.first().map_or_else(String::new, |point| point.hint.clone()),
        };
        *part = part.chunks(step).map(mean).collect();
    }
}

/// The rounds of a method that ends with the steady state.
pub(super) fn rounds(runs: &[&ReportedRun], names: &[String]) -> Option<Drawn> {
    let mut series = Vec::new();
    for (run, name) in runs.iter().zip(names) {
        let of_rounds = |figure: &&MeasurementRecord| figure.badges.contains_key("steady_state");
        for figure in run.run.measurements.iter().filter(of_rounds) {
            let factor = figure.iops.zip(figure.mb_per_s).filter(|(_, rate)| *rate > 0.0);
            let factor = factor.map_or(1.0, |(iops, rate)| iops / rate);
            let point = |(at, value): (usize, &f64)| Point {
                x: at as f64 + 1.0,
                y: value * factor,
                interval: None,
                hint: format!("{}, round {}: {} IOPS", figure.name, at + 1, number(value * factor)),
            };
            let name = if runs.len() > 1 { format!("{}, {name}", figure.name) } else { figure.name.clone() };
            series.push(Series { name, parts: vec![figure.runs.iter().enumerate().map(point).collect()] });
        }
    }
    series.truncate(MOST_SERIES);
    let last =
        series.iter().flat_map(|one| one.parts.iter().flatten()).map(|point| point.x).fold(1.0, f64::max);
    let marks = (1..=last as u32).map(|round| (f64::from(round), round.to_string()));
    let axis = Axis { name: "round".into(), ends: [1.0, last], marks: marks.collect() };
    let title = "Requests a second in each round".to_owned();
    let note = "Steady: five rounds within 20 % of their mean, with a slope of at most 10 %.".to_owned();
    (!series.is_empty()).then(|| Drawn {
        svg: curves(&title, &axis, Scale::From0("IOPS"), &series),
        title,
        note,
    })
}
