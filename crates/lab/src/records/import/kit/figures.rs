//! Figures gathered from the records of a file: unique names, repeated measurements as runs.
//!
//! A figure with the name, the parameters and the origin of one that is there is another run of it.
//! With other parameters it is a figure of its own, and its name gets a number: `db read#2`.

use std::collections::HashMap;

use crate::records::import::{ImportError, MAX_MEASUREMENTS, too_many_figures};
use crate::records::record::{Latencies, MeasurementRecord, Operation, Unit};
use crate::statistics::median;

/// Parameters that all runs of a figure share.
type Parameters = (Operation, Option<u64>, Option<u32>, Option<u32>, Unit);

struct Gathered {
    figure: MeasurementRecord,
    origin: String,
    runs: Vec<f64>,
    iops: Vec<f64>,
    latencies: Vec<Latencies>,
}

/// Figures in the order in which they were found.
#[derive(Default)]
pub(in crate::records::import) struct Figures {
    all: Vec<Gathered>,
    by_name: HashMap<String, Vec<usize>>,
    are_too_many: bool,
}

impl Figures {
    /// Adds a figure. `origin` is what else repeated runs have in common: host, options, part.
    pub(in crate::records::import) fn add(&mut self, figure: MeasurementRecord, origin: &str) {
        let same_name = self.by_name.entry(figure.name.clone()).or_default();
        let known = same_name.iter().copied().find(|at| {
            let other = &self.all[*at];
            parameters(&other.figure) == parameters(&figure) && other.origin == origin
        });
        let at = known.unwrap_or_else(|| {
            same_name.push(self.all.len());
            let (runs, iops, latencies) = Default::default();
            let figure =
                MeasurementRecord { runs: Vec::new(), iops: None, latency_us: None, ..figure.clone() };
            self.all.push(Gathered { figure, origin: origin.to_owned(), runs, iops, latencies });
            self.all.len() - 1
        });
        let gathered = &mut self.all[at];
        gathered.runs.extend(&figure.runs);
        gathered.iops.extend(figure.iops);
        gathered.latencies.extend(figure.latency_us);
        if self.all.len() > MAX_MEASUREMENTS {
            self.are_too_many = true;
            self.all.clear();
            self.by_name.clear();
        }
    }

    /// True if nothing was added.
    pub(in crate::records::import) fn is_empty(&self) -> bool {
        self.all.is_empty() && !self.are_too_many
    }

    /// The figures, with unique names.
    pub(in crate::records::import) fn finish(self) -> Result<Vec<MeasurementRecord>, ImportError> {
        if self.are_too_many {
            return Err(too_many_figures());
        }
        let mut figures: Vec<MeasurementRecord> = self.all.into_iter().map(Gathered::finish).collect();
        number_equal_names(&mut figures);
        Ok(figures)
    }
}

fn parameters(figure: &MeasurementRecord) -> Parameters {
    (figure.op, figure.block_bytes, figure.queue_depth, figure.workers, figure.unit)
}

impl Gathered {
    fn finish(self) -> MeasurementRecord {
        let iops = median(&self.iops);
        let found = self.figure.with_runs(self.runs);
        MeasurementRecord { iops: found.iops.or(iops), latency_us: together(&self.latencies), ..found }
    }
}

/// Latencies of several runs: their percentiles do not combine, so only a single run has them.
fn together(runs: &[Latencies]) -> Option<Latencies> {
    if let [only] = runs {
        return Some(*only);
    }
    let means: Vec<f64> = runs.iter().filter_map(|run| run.mean).collect();
    let all = Latencies {
        mean: (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64),
        max: runs.iter().filter_map(|run| run.max).max_by(f64::total_cmp),
        ..Latencies::default()
    };
    (all != Latencies::default()).then_some(all)
}

fn number_equal_names(figures: &mut [MeasurementRecord]) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for figure in figures {
        let count = seen.entry(figure.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            figure.name = format!("{}#{count}", figure.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, depth: u32, rate: f64) -> MeasurementRecord {
        MeasurementRecord {
            queue_depth: Some(depth),
            latency_us: Some(Latencies {
                mean: Some(rate),
                p99: Some(rate),
                max: Some(rate),
                ..Latencies::default()
            }),
            ..MeasurementRecord::printed(name, Operation::Read, Unit::MbPerS, rate)
        }
    }

    #[test]
    fn repeated_figures_are_runs() {
        let mut all = Figures::default();
        [50.0, 70.0, 60.0].into_iter().for_each(|rate| all.add(figure("a", 1, rate), ""));
        let [only] = &all.finish().expect("few")[..] else { panic!("one figure") };
        assert_eq!((only.runs.as_slice(), only.mb_per_s), (&[50.0, 70.0, 60.0][..], Some(60.0)));
        let latency = only.latency_us.expect("latencies");
        assert_eq!((latency.mean, latency.p99, latency.max), (Some(60.0), None, Some(70.0)));
    }

    #[test]
    fn names_are_unique() {
        let mut all = Figures::default();
        all.add(figure("a", 1, 1.0), "");
        all.add(figure("a", 8, 1.0), "");
        all.add(figure("b", 1, 1.0), "one host");
        all.add(figure("b", 1, 1.0), "another");
        let names: Vec<String> = all.finish().expect("few").into_iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["a", "a#2", "b", "b#2"]);
    }
}
