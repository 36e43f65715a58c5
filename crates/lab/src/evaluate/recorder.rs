//! Records a rebuild: progress, writes to the replacement, and throughput of the load.
//!
//! The number of points is bounded: when the buffer is full, every second one is dropped and the
//! interval doubles.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::Context;

use crate::loads::metered::MeteredDrive;
use crate::records::results::RebuildPoint;

const FIRST_STEP_NS: u64 = 50_000_000;
const MOST_POINTS: usize = 240;

struct Sample {
    at_ns: u64,
    percent: f64,
    rebuilt_bytes: u64,
    load_bytes: u64,
}

/// Samples until it is stopped.
pub(super) struct Recorder {
    samples: Rc<RefCell<Vec<Sample>>>,
    stop: Rc<Cell<bool>>,
}

impl Recorder {
    /// Starts sampling. `percent` returns the progress, or `None` once the rebuild has ended.
    pub(super) fn start(
        context: &Context,
        replacement: Rc<MeteredDrive>,
        load_bytes: Rc<Cell<u64>>,
        percent: impl Fn() -> Option<f64> + 'static,
    ) -> Self {
        let samples: Rc<RefCell<Vec<Sample>>> = Rc::default();
        let stop = Rc::new(Cell::new(false));
        let recorder = Self { samples: samples.clone(), stop: stop.clone() };
        let context = context.clone();
        let beside = context.clone();
        context.spawn(async move {
            let mut step_ns = FIRST_STEP_NS;
            while !stop.get() {
                let percent = percent();
                samples.borrow_mut().push(Sample {
                    at_ns: beside.now_ns(),
                    percent: percent.unwrap_or(100.0),
                    rebuilt_bytes: replacement.traffic().written_bytes,
                    load_bytes: load_bytes.get(),
                });
                if percent.is_none() {
                    break;
                }
                if samples.borrow().len() >= MOST_POINTS {
                    let mut number = 0;
                    samples.borrow_mut().retain(|_| {
                        number += 1;
                        number % 2 == 1
                    });
                    step_ns *= 2;
                }
                beside.sleep_ns(step_ns).await;
            }
        });
        recorder
    }

    /// Rates between the samples, since `start_ns`.
    pub(super) fn finish(self, start_ns: u64) -> Vec<RebuildPoint> {
        self.stop.set(true);
        let samples = self.samples.borrow();
        let points = samples.windows(2).map(|pair| {
            let seconds = ((pair[1].at_ns - pair[0].at_ns) as f64 / 1e9).max(1e-9);
            let rate = |before: u64, after: u64| (after - before) as f64 / 1e6 / seconds;
            RebuildPoint {
                seconds: (pair[1].at_ns - start_ns) as f64 / 1e9,
                percent: pair[1].percent,
                rebuild_mb_per_s: rate(pair[0].rebuilt_bytes, pair[1].rebuilt_bytes),
                load_mb_per_s: rate(pair[0].load_bytes, pair[1].load_bytes),
            }
        });
        points.collect()
    }
}
