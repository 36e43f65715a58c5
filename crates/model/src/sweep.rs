//! Predictions over every combination of block, depth, layout, interleave, drives, read share and
//! randomness, on all cores. The order of the points and their bytes depend on the seed only.

use std::fmt::Write;
use std::ops::Range;

use rayon::prelude::*;
use serde::Serialize;

use crate::predict::{State, Workload, predict_seeded};
use crate::system::{Catalogue, Configuration};

/// Parameters to vary.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Configuration of every point; the number of drives, layout and interleave are replaced.
    pub base: Configuration,
    /// Name of the drive.
    pub drive: String,
    /// State of the arrays.
    pub state: State,
    /// Layouts by name.
    pub layouts: Vec<String>,
    /// Numbers of drives.
    pub drives: Vec<usize>,
    /// Strips.
    pub interleaves_kib: Vec<u64>,
    /// Block sizes in bytes.
    pub blocks: Vec<u64>,
    /// Outstanding requests of each worker.
    pub depths: Vec<usize>,
    /// Shares of reads, 0 to 1.
    pub read_shares: Vec<f64>,
    /// Shares of random requests, 0 to 1.
    pub random_shares: Vec<f64>,
    /// Workers.
    pub workers: usize,
    /// Random seed.
    pub seed: u64,
}

/// One combination and its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Layout by name.
    pub layout: String,
    /// Number of drives.
    pub drives: usize,
    /// Strip in KiB.
    pub interleave_kib: u64,
    /// Block in bytes.
    pub block_bytes: u64,
    /// Outstanding requests of each worker.
    pub depth: usize,
    /// Share of reads.
    pub read_share: f64,
    /// Share of random requests.
    pub random_share: f64,
    /// 10^6 bytes a second; null where the configuration cannot be.
    pub mb_per_s: Option<f64>,
    /// Requests a second.
    pub iops: Option<f64>,
    /// Mean latency in microseconds.
    pub latency_mean_us: Option<f64>,
    /// 99 of 100 requests are faster.
    pub latency_p99_us: Option<f64>,
    /// Limiting component, or the reason why the configuration is invalid.
    pub bottleneck: String,
}

impl Sweep {
    /// Number of points.
    pub fn points(&self) -> usize {
        let configurations = self.layouts.len() * self.drives.len() * self.interleaves_kib.len();
        let loads = self.blocks.len() * self.depths.len() * self.read_shares.len() * self.random_shares.len();
        configurations * loads
    }

    fn point(&self, catalogue: &Catalogue, mut index: usize) -> Point {
        let mut pick = |count: usize| {
            let at = index % count;
            index /= count;
            at
        };
        let random_share = self.random_shares[pick(self.random_shares.len())];
        let read_share = self.read_shares[pick(self.read_shares.len())];
        let depth = self.depths[pick(self.depths.len())];
        let block_bytes = self.blocks[pick(self.blocks.len())];
        let interleave_kib = self.interleaves_kib[pick(self.interleaves_kib.len())];
        let drives = self.drives[pick(self.drives.len())];
        let layout = self.layouts[pick(self.layouts.len())].clone();
        let configuration = Configuration {
            drives: format!("{drives}x{}", self.drive),
            layout: layout.clone(),
            interleave_kib: Some(interleave_kib),
            ..self.base.clone()
        };
        let workload = Workload {
            read_share,
            random_share,
            blocks: vec![(block_bytes, 1.0)],
            depth,
            workers: self.workers,
            span_bytes: None,
            repeats: false,
        };
        let system = catalogue.build("sweep", &configuration);
        let prediction = system.map(|system| predict_seeded(&system, self.state, &workload, self.seed));
        let (prediction, bottleneck) = match prediction {
            Ok(prediction) => (Some(prediction.clone()), prediction.bottleneck),
            Err(error) => (None, error.to_string()),
        };
        let figure = |of: fn(&crate::predict::Prediction) -> f64| prediction.as_ref().map(of);
        Point {
            layout,
            drives,
            interleave_kib,
            block_bytes,
            depth,
            read_share,
            random_share,
            mb_per_s: figure(|one| one.mb_per_s),
            iops: figure(|one| one.iops),
            latency_mean_us: figure(|one| one.latency_us.mean),
            latency_p99_us: figure(|one| one.latency_us.p99),
            bottleneck,
        }
    }

    /// All of them, in the order of the options.
    pub fn run(&self, catalogue: &Catalogue) -> Vec<Point> {
        self.run_range(catalogue, 0..self.points(), &|| true).expect("nothing stops this sweep")
    }

    /// A range of them, in that order. `go_on` is called before each point and ends the sweep by
    /// returning false; the answer is `None` then.
    pub fn run_range(
        &self,
        catalogue: &Catalogue,
        range: Range<usize>,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Option<Vec<Point>> {
        range.into_par_iter().map(|index| go_on().then(|| self.point(catalogue, index))).collect()
    }
}

/// As comma-separated text with headings.
pub fn csv(points: &[Point]) -> String {
    let mut text = String::from(
        "layout,drives,interleave_kib,block_bytes,depth,read_share,random_share,mb_per_s,iops,latency_mean_us,\
         latency_p99_us,bottleneck\n",
    );
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
    for point in points {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},\"{}\"",
            point.layout,
            point.drives,
            point.interleave_kib,
            point.block_bytes,
            point.depth,
            point.read_share,
            point.random_share,
            number(point.mb_per_s),
            number(point.iops),
            number(point.latency_mean_us),
            number(point.latency_p99_us),
            point.bottleneck.replace('"', "\"\""),
        );
    }
    text
}

/// One JSON document a line.
pub fn json_lines(points: &[Point]) -> String {
    points.iter().map(|point| serde_json::to_string(point).expect("plain data becomes JSON") + "\n").collect()
}
