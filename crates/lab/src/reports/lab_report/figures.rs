//! Figures grouped into questions: sweeps over the request size or the requests in flight, figures
//! at one request in flight, and the others.

use std::collections::BTreeSet;

use super::ReportedRun;
use crate::method::parse_bytes;
use crate::records::record::{MeasurementRecord, Unit};

/// Fewest values that make a sweep.
const FEWEST: usize = 3;
/// Requests up to this size are counted, larger ones are measured in MB/s.
const SMALL_BYTES: u64 = 32 << 10;

/// Varied parameter of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Varied {
    /// Bytes of a request.
    Size,
    /// Requests in flight.
    InFlight,
}

/// Figures of one test that differ only in the varied parameter, over all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sweep {
    /// Name of the test.
    pub(super) name: String,
    pub(super) varied: Varied,
    /// True if its figures are requests a second.
    pub(super) counts: bool,
    /// Values of the parameter, ascending.
    pub(super) values: Vec<u64>,
}

/// Requests in flight of a figure, if known.
pub(super) fn in_flight(figure: &MeasurementRecord) -> Option<u64> {
    Some(u64::from(figure.queue_depth?) * u64::from(figure.workers.unwrap_or(1)))
}

/// True if a figure is shown as requests a second.
pub(super) fn is_counted(figure: &MeasurementRecord) -> bool {
    figure.iops.is_some()
        && (figure.unit == Unit::PerSecond || figure.block_bytes.is_some_and(|bytes| bytes <= SMALL_BYTES))
}

/// Name of a figure's test, without the size and the depth that it states.
pub(super) fn test_name(figure: &MeasurementRecord) -> String {
    let is_size = |word: &str| figure.block_bytes.is_some() && parse_bytes(word).ok() == figure.block_bytes;
    let depth = figure.queue_depth.map(|depth| depth.to_string());
    let queue = figure.queue_depth.zip(figure.workers).map(|(depth, workers)| format!("Q{depth}T{workers}"));
    let words: Vec<&str> = figure.name.split([' ', '_']).filter(|word| !word.is_empty()).collect();
    let size = words.iter().position(|word| is_size(word));
    let in_flight = words.iter().position(|word| Some(*word) == queue.as_deref());
    let in_flight = in_flight
        .or_else(|| (0..words.len()).find(|at| Some(*at) != size && Some(words[*at]) == depth.as_deref()));
    let kept = words.iter().enumerate().filter(|(at, _)| Some(*at) != size && Some(*at) != in_flight);
    let name = kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ");
    if name.is_empty() { figure.name.clone() } else { name }
}

/// Value of the varied parameter.
pub(super) fn value(figure: &MeasurementRecord, varied: Varied) -> Option<u64> {
    match varied {
        Varied::Size => figure.block_bytes,
        Varied::InFlight => in_flight(figure),
    }
}

/// The sweeps of all runs, in the order of the first run that has them.
pub(super) fn sweeps(runs: &[&ReportedRun]) -> Vec<Sweep> {
    let all = || runs.iter().flat_map(|run| &run.run.measurements);
    let mut names: Vec<String> = Vec::new();
    for figure in all().filter(|figure| matches!(figure.unit, Unit::MbPerS)) {
        let name = test_name(figure);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let of_name = |name: String| {
        let of_test: Vec<&MeasurementRecord> = all().filter(|figure| test_name(figure) == name).collect();
        let values = |varied| -> Vec<u64> {
            of_test
                .iter()
                .filter_map(|figure| value(figure, varied))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect()
        };
        let (sizes, depths) = (values(Varied::Size), values(Varied::InFlight));
        let (varied, values) = match (sizes.len(), depths.len()) {
            (FEWEST.., 0 | 1) => (Varied::Size, sizes),
            (0 | 1, FEWEST..) => (Varied::InFlight, depths),
            _ => return None,
        };
        let counts = varied == Varied::InFlight && of_test.iter().all(|figure| is_counted(figure));
        Some(Sweep { name, varied, counts, values })
    };
    names.into_iter().filter_map(of_name).collect()
}

impl Sweep {
    /// The figure of a run at a value.
    pub(super) fn figure<'a>(&self, run: &'a ReportedRun, at: u64) -> Option<&'a MeasurementRecord> {
        let found = run.run.measurements.iter().filter(|figure| test_name(figure) == self.name);
        found.into_iter().find(|figure| value(figure, self.varied) == Some(at))
    }
}

/// Figures outside of all sweeps, by name, in the order of the runs.
pub(super) fn single_figures<'a>(runs: &[&'a ReportedRun], sweeps: &[Sweep]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in runs.iter().flat_map(|run| &run.run.measurements) {
        let in_sweep = sweeps.iter().any(|sweep| sweep.name == test_name(figure));
        if !in_sweep && !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    names
}

/// The figure of that name.
pub(super) fn named<'a>(run: &'a ReportedRun, name: &str) -> Option<&'a MeasurementRecord> {
    run.run.measurements.iter().find(|figure| figure.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::built_in;
    use crate::records::record::RunRecord;

    fn run_of(profile: &str) -> ReportedRun {
        let profile = built_in(profile).expect("a profile");
        let loads = profile.steps.iter().flat_map(|step| step.loads().map(move |load| (step.op, load)));
        let figures = loads.map(|(op, load)| {
            let mut figure = MeasurementRecord::of_load(&load.name, op, load).with_runs(vec![100.0]);
            figure.iops = Some(10.0);
            figure
        });
        let run = RunRecord { measurements: figures.collect(), ..RunRecord::default() };
        ReportedRun { run, samples: Vec::new() }
    }

    fn found(profile: &str) -> Vec<(String, Varied, usize)> {
        let run = run_of(profile);
        sweeps(&[&run]).into_iter().map(|one| (one.name, one.varied, one.values.len())).collect()
    }

    #[test]
    fn sweeps_of_the_methods_are_found() {
        assert_eq!(found("atto"), [("write".into(), Varied::Size, 21), ("read".into(), Varied::Size, 21)]);
        let marks = found("crystaldiskmark");
        assert!(marks.contains(&("SEQ1M read".into(), Varied::InFlight, 3)), "{marks:?}");
        assert!(marks.contains(&("RND4K write".into(), Varied::InFlight, 3)), "{marks:?}");
        assert_eq!(found("iometer-light").len(), 4);
        assert!(found("orion-simple").iter().all(|(_, varied, _)| *varied == Varied::InFlight));
        assert_eq!(found("toshiba"), []);
        let run = run_of("toshiba");
        assert_eq!(single_figures(&[&run], &[]), ["seq_write", "seq_read", "mixed"]);
    }
}
