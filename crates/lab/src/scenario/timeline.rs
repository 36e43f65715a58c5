//! Bandwidth and latency over time, with events.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stripewise_drive::Context;

use crate::loads::load::Pulse;

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marker {
    /// Time since the beginning in seconds.
    pub seconds: f64,
    /// Description.
    pub what: String,
}

/// Throughput of a load over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of each interval in `mb_per_s`.
    pub step_seconds: f64,
    /// 10^6 bytes a second in each interval.
    pub mb_per_s: Vec<f64>,
    /// Mean latency of the requests that completed in each interval, 0 if there are none; empty in
    /// runs of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mean_us: Vec<f64>,
    /// Longest latency in each interval.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub longest_us: Vec<f64>,
    /// Events in order of time.
    pub markers: Vec<Marker>,
}

/// Length of an interval.
const STEP_NS: u64 = 250_000_000;

/// Samples moved bytes until it is stopped or dropped.
pub(crate) struct Watch {
    context: Context,
    start_ns: u64,
    kept: Rc<RefCell<Timeline>>,
    over: Rc<Cell<bool>>,
}

impl Watch {
    /// Samples `moved` and `pulse` at the end of every interval from now on.
    pub(crate) fn start(context: &Context, moved: &Rc<Cell<u64>>, pulse: &Rc<Pulse>) -> Self {
        let kept =
            Rc::new(RefCell::new(Timeline { step_seconds: STEP_NS as f64 / 1e9, ..Timeline::default() }));
        let over = Rc::new(Cell::new(false));
        let start_ns = context.now_ns();
        let watch = Self { context: context.clone(), start_ns, kept: kept.clone(), over: over.clone() };
        let (context, moved, pulse) = (context.clone(), moved.clone(), pulse.clone());
        watch.context.spawn(async move {
            let mut before = moved.get();
            for step in 1.. {
                context.sleep_until_ns(start_ns + step * STEP_NS).await;
                if over.get() {
                    return;
                }
                let (now, beat) = (moved.get(), pulse.take());
                let mut kept = kept.borrow_mut();
                kept.mb_per_s.push((now - before) as f64 * 1e3 / STEP_NS as f64);
                kept.mean_us.push(beat.mean_us());
                kept.longest_us.push(beat.longest_ns as f64 / 1e3);
                before = now;
            }
        });
        watch
    }

    /// Marks an event at the present time.
    pub(crate) fn mark(&self, what: impl Into<String>) {
        let seconds = (self.context.now_ns() - self.start_ns) as f64 / 1e9;
        self.kept.borrow_mut().markers.push(Marker { seconds, what: what.into() });
    }

    /// Waits until the current interval has been sampled.
    pub(crate) async fn end_of_piece(&self) {
        self.context.sleep_ns(STEP_NS).await;
    }

    /// The timeline so far.
    pub(crate) fn so_far(&self) -> Timeline {
        self.kept.borrow().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.set(true);
    }
}
