//! Bandwidth and latency over time, with what happened meanwhile.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::{Deserialize, Serialize};
use stripewise_drive::Context;

use crate::loads::load::Pulse;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marker {
    /// Seconds after the beginning.
    pub seconds: f64,
    /// What.
    pub what: String,
}

/// What a load moved over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of each of the pieces in `mb_per_s`.
    pub step_seconds: f64,
    /// 10^6 bytes a second in each piece.
    pub mb_per_s: Vec<f64>,
    /// Mean latency of the requests that completed in each piece, 0 where none did; none in runs of
    /// older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mean_us: Vec<f64>,
    /// The longest latency in each piece.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub longest_us: Vec<f64>,
    /// In the order of time.
    pub markers: Vec<Marker>,
}

/// Pieces of the timeline.
const STEP_NS: u64 = 250_000_000;

/// Watches bytes moved until it is stopped or dropped.
pub(crate) struct Watch {
    context: Context,
    start_ns: u64,
    kept: Rc<RefCell<Timeline>>,
    over: Rc<Cell<bool>>,
}

impl Watch {
    /// Looks at `moved` and `pulse` at the end of every piece from now on.
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

    /// Something happens now.
    pub(crate) fn mark(&self, what: impl Into<String>) {
        let seconds = (self.context.now_ns() - self.start_ns) as f64 / 1e9;
        self.kept.borrow_mut().markers.push(Marker { seconds, what: what.into() });
    }

    /// Waits until the piece under way has been looked at.
    pub(crate) async fn end_of_piece(&self) {
        self.context.sleep_ns(STEP_NS).await;
    }

    /// What there is so far.
    pub(crate) fn so_far(&self) -> Timeline {
        self.kept.borrow().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.set(true);
    }
}
