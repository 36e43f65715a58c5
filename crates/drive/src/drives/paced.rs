//! A drive limited to a pace: real I/O beneath, in real time, never faster than the given rates.
//!
//! Four files on one disk are not four drives; paced to a rate the disk can deliver to all at once,
//! they behave like four. Each rate has a *service clock*: a request reserves its share when
//! submitted, goes to the drive beneath at once, and is answered no earlier than the end of its
//! reservation. So a single request takes as long as on a drive of this rate, and under load
//! exactly the rate is reached, provided that the drive beneath answers in time. If both rates are
//! given and sizes are mixed so that the limit alternates, each rate idles a little while the other
//! is the limit.
//!
//! If the drive beneath is late (a stall, a late timer), a second clock, of *answered* requests,
//! bounds the catch-up by [`BURST_NS`]. Over any span of `W` seconds at most `(W + 0.01 s) * rate`,
//! plus one request, is answered. A clock that ran empty because of late answers, not for lack of
//! load, may be wound back by that lateness, also bounded by [`BURST_NS`]: otherwise jitter of the
//! host would make the drive look slower.
//!
//! Every read and write counts as one operation, even if sequential, and with all its bytes. A
//! write-zeroes counts as an operation, and its bytes count only if the drive beneath has to write
//! them. Flushes and discards are not paced: they transfer nothing, and their cost is that of the
//! drive beneath. Errors are answered at the pace of successes.

use std::cell::RefCell;
use std::rc::Rc;

use crate::completion::{Completion, CompletionSender, completion};
use crate::context::Context;
use crate::drives::pace::Pace;
use crate::drives::timing::{DelayQueue, Rate, SECOND_NS, when_answered};
use crate::error::IoResult;
use crate::operation::Operation;
use crate::request::{Drive, DriveInfo, DriveKind, IoRequest};

/// Maximum catch-up after lateness, in nanoseconds of the rate.
pub const BURST_NS: u64 = 10_000_000;

/// Target for requests in flight, in nanoseconds of the rate.
const QUEUE_NS: u64 = 50_000_000;

/// The service clock of one rate.
struct ServiceClock {
    rate: Rate,
    /// End of the reservations.
    reserved_ns: u64,
    /// End of the answered requests, on a clock that may lag by the burst.
    answered_ns: u64,
    /// Lateness of recent answers relative to their reservations.
    lateness_ns: u64,
}

impl ServiceClock {
    fn new(units_per_second: u64) -> Self {
        Self { rate: Rate::new(units_per_second), reserved_ns: 0, answered_ns: 0, lateness_ns: 0 }
    }

    /// Reserves time for `units` after all earlier reservations; returns its length and end.
    fn reserve(&mut self, now_ns: u64, units: u64) -> Reserved {
        if self.reserved_ns < now_ns {
            let idle_ns = now_ns - self.reserved_ns;
            let made_up_ns = if idle_ns <= BURST_NS { idle_ns.min(self.lateness_ns) } else { 0 };
            self.lateness_ns = if idle_ns <= BURST_NS { self.lateness_ns - made_up_ns } else { 0 };
            self.reserved_ns = now_ns - made_up_ns;
        }
        let cost_ns = self.rate.cost_ns(units);
        self.reserved_ns = self.reserved_ns.saturating_add(cost_ns);
        Reserved { cost_ns, end_ns: self.reserved_ns }
    }

    /// Records an answer given at `at_ns`, `late_ns` after its whole reservation.
    fn answer(&mut self, at_ns: u64, late_ns: u64, reserved: Reserved) {
        self.lateness_ns = self.lateness_ns.max(late_ns.min(BURST_NS));
        self.answered_ns = self.earliest_ns(reserved).max(at_ns.saturating_sub(BURST_NS));
    }

    /// Earliest time of this answer, after the time of all earlier answers and its own.
    fn earliest_ns(&self, reserved: Reserved) -> u64 {
        self.answered_ns.saturating_add(reserved.cost_ns)
    }
}

#[derive(Clone, Copy)]
struct Reserved {
    cost_ns: u64,
    end_ns: u64,
}

/// Both rates; a rate that is not given takes no time.
struct ServiceClocks {
    bytes: Option<ServiceClock>,
    operations: Option<ServiceClock>,
}

/// Reservation of one request in both rates.
#[derive(Clone, Copy)]
struct Share {
    bytes: Option<Reserved>,
    operations: Option<Reserved>,
}

impl ServiceClocks {
    fn reserve(&mut self, now_ns: u64, transfer_bytes: u64) -> Share {
        Share {
            bytes: self.bytes.as_mut().map(|clock| clock.reserve(now_ns, transfer_bytes)),
            operations: self.operations.as_mut().map(|clock| clock.reserve(now_ns, 1)),
        }
    }

    /// Records an answer of the drive beneath; returns the time at which it may be passed on.
    fn answer(&mut self, now_ns: u64, share: Share) -> u64 {
        let late_ns = now_ns.saturating_sub(share.end_ns());
        let each = || [(&self.bytes, share.bytes), (&self.operations, share.operations)].into_iter();
        let earliest = each().filter_map(|(clock, reserved)| Some(clock.as_ref()?.earliest_ns(reserved?)));
        let at_ns = earliest.fold(now_ns, u64::max);
        for (clock, reserved) in [(&mut self.bytes, share.bytes), (&mut self.operations, share.operations)] {
            if let (Some(clock), Some(reserved)) = (clock, reserved) {
                clock.answer(at_ns, late_ns, reserved);
            }
        }
        at_ns
    }
}

impl Share {
    /// End of both reservations.
    fn end_ns(&self) -> u64 {
        self.bytes.into_iter().chain(self.operations).map(|reserved| reserved.end_ns).max().unwrap_or(0)
    }
}

/// A request that waits for its time.
enum Stage {
    /// Passed to the drive beneath; due at the end of its reservation.
    Reserved { answer: Completion, share: Share, sender: CompletionSender },
    /// Answered beneath; due when the answer may be passed on.
    Answered { result: IoResult, sender: CompletionSender },
}

/// A drive limited to a [`Pace`].
pub struct PacedDrive {
    info: DriveInfo,
    pace: Pace,
    context: Context,
    inner: Rc<dyn Drive>,
    clocks: Rc<RefCell<ServiceClocks>>,
    waiting: DelayQueue<Stage>,
}

impl PacedDrive {
    /// Limits `inner` to `pace`. Its info requests few requests and bytes in flight (about 50 ms of
    /// the rate), so that the rest waits where adjacent requests can still be merged.
    pub fn new(context: &Context, inner: Rc<dyn Drive>, pace: Pace) -> Rc<Self> {
        let clocks = Rc::new(RefCell::new(ServiceClocks {
            bytes: pace.bytes_per_second.map(ServiceClock::new),
            operations: pace.iops.map(ServiceClock::new),
        }));
        let (shared, outside) = (clocks.clone(), context.clone());
        let waiting = DelayQueue::start(context, move |queue: &DelayQueue<Stage>, stage| match stage {
            Stage::Answered { result, sender } => sender.complete(result),
            Stage::Reserved { answer, share, sender } => {
                let (queue, clocks, clock) = (queue.clone(), shared.clone(), outside.clone());
                when_answered(&outside, answer, move |result| {
                    let now_ns = clock.now_ns();
                    let allowed_ns = clocks.borrow_mut().answer(now_ns, share);
                    if allowed_ns <= now_ns {
                        sender.complete(result);
                    } else {
                        queue.push(allowed_ns, Stage::Answered { result, sender });
                    }
                });
            }
        });
        let info = paced_info(inner.info(), pace);
        Rc::new(Self { info, pace, context: context.clone(), inner, clocks, waiting })
    }

    /// The limits of this drive.
    pub fn pace(&self) -> Pace {
        self.pace
    }
}

/// Adapts queue limits and request sizes to the pace.
fn paced_info(inner: &DriveInfo, pace: Pace) -> DriveInfo {
    let in_queue =
        |per_second: u64| (u128::from(per_second) * u128::from(QUEUE_NS) / u128::from(SECOND_NS)) as u64;
    // Without a limit on operations, small ones need more in flight to hide the latency beneath;
    // the bytes are the limit.
    let queue_depth = pace.iops.map_or(32, |iops| in_queue(iops).clamp(8, 16) as u32);
    let queue_bytes = pace.bytes_per_second.map_or(4 << 20, |rate| in_queue(rate).clamp(1 << 20, 4 << 20));
    // A request this long reaches both rates at once; at least two of the longest fit in the queue.
    let balanced = pace.bytes_per_second.zip(pace.iops).map_or(0, |(bytes, iops)| bytes / iops);
    let longest = balanced.max(queue_bytes / 4).min(queue_bytes / 2).next_multiple_of(4096);
    DriveInfo {
        // Its answers are delayed, so requests deserve a queue in which adjacent ones can be
        // merged.
        kind: if inner.kind == DriveKind::Memory { DriveKind::Model } else { inner.kind },
        queue_depth: queue_depth.min(inner.queue_depth),
        queue_bytes: queue_bytes.min(inner.queue_bytes),
        max_request_bytes: longest.min(inner.max_request_bytes),
        // Reading over a gap costs bytes, another request costs an operation: up to here bytes are
        // cheaper.
        gap_bytes: (balanced / 2 / 4096 * 4096).min(longest / 4),
        ..inner.clone()
    }
}

impl Drive for PacedDrive {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if let Err(error) = request.check(&self.info) {
            return Completion::ready(Err(error));
        }
        let transfer_bytes = match request.operation {
            Operation::Read | Operation::Write { .. } => request.length_bytes,
            Operation::WriteZeroes if self.info.cheap_zeroes => 0,
            Operation::WriteZeroes => request.length_bytes,
            Operation::Flush | Operation::Discard => return self.inner.submit(request),
        };
        let share = self.clocks.borrow_mut().reserve(self.context.now_ns(), transfer_bytes);
        let (sender, completion) = completion();
        let answer = self.inner.submit(request);
        self.waiting.push(share.end_ns(), Stage::Reserved { answer, share, sender });
        completion
    }
}
