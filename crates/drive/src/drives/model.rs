//! A modelled drive: fixed latency, one serial link, a bounded queue depth. Contents live in a
//! memory drive (or a null drive) beneath.
//!
//! This is the simplest model in which queue depth pays. Requests are served in order of arrival.
//! With `L` the latency, `B` the link's bytes per second and `D` the queue depth, request `i`,
//! submitted at `s(i)` with `n(i)` bytes to transfer, ends at
//!
//! ```text
//! enter(i) = max( s(i), end(i - D) )                      a place inside the drive
//! end(i)   = max( enter(i) + L, end(i - 1) ) + n(i) / B   latencies overlap, transfers do not
//! ```
//!
//! So one request at a time takes `L + n / B`, and under load the rate is the smaller of `B` and
//! `D * n / (L + n / B)`. Flushes, discards and write-zeroes transfer nothing; as end times never
//! decrease, a flush ends after every write submitted before it. The model works in virtual and in
//! real time and has no faults of its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::completion::{Completion, CompletionSender, completion};
use crate::context::Context;
use crate::drives::timing::{DelayQueue, Rate, SECOND_NS, when_answered};
use crate::operation::Operation;
use crate::request::{Drive, DriveInfo, DriveKind, IoRequest};

/// Parameters of a modelled drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// Time from entering the drive to the start of the transfer, in nanoseconds.
    pub latency_ns: u64,
    /// Rate of the link, reads and writes together; above zero.
    pub bytes_per_second: u64,
    /// Maximum number of requests whose latencies overlap; above zero.
    pub queue_depth: u32,
}

struct Service {
    link: Rate,
    /// End of the last request.
    last_end_ns: u64,
    /// Ends of the last `queue_depth` requests, oldest first.
    ends_ns: VecDeque<u64>,
}

impl Service {
    fn end_ns(&mut self, spec: &ModelSpec, now_ns: u64, transfer_bytes: u64) -> u64 {
        let place_free_ns = match self.ends_ns.len() < spec.queue_depth as usize {
            true => 0,
            false => self.ends_ns.pop_front().expect("the depth is above zero"),
        };
        let ready_ns = now_ns.max(place_free_ns).saturating_add(spec.latency_ns);
        let end_ns = ready_ns.max(self.last_end_ns).saturating_add(self.link.cost_ns(transfer_bytes));
        self.ends_ns.push_back(end_ns);
        self.last_end_ns = end_ns;
        end_ns
    }
}

/// A drive of fixed latency, bandwidth and queue depth.
pub struct ModelDrive {
    info: DriveInfo,
    spec: ModelSpec,
    context: Context,
    service: RefCell<Service>,
    inside: DelayQueue<(IoRequest, CompletionSender)>,
}

impl ModelDrive {
    /// Creates a drive with the contents of `inner`, which must hold at least `capacity_bytes`.
    pub fn new(
        context: &Context,
        label: &str,
        capacity_bytes: u64,
        spec: ModelSpec,
        inner: Rc<dyn Drive>,
    ) -> Rc<Self> {
        assert!(spec.queue_depth > 0, "queue depth must be above zero");
        assert!(capacity_bytes <= inner.info().capacity_bytes, "capacity exceeds the drive beneath");
        let in_latency =
            u128::from(spec.bytes_per_second) * u128::from(spec.latency_ns) / u128::from(SECOND_NS);
        let info = DriveInfo {
            label: label.into(),
            kind: DriveKind::Model,
            capacity_bytes,
            queue_depth: spec.queue_depth,
            // Twice the bytes that keep the link busy during one latency.
            queue_bytes: u64::try_from(2 * in_latency).unwrap_or(u64::MAX).clamp(4 << 20, 64 << 20),
            cheap_zeroes: true,
            gap_bytes: gap_bytes(&spec),
            ..inner.info().clone()
        };
        let spawn_in = context.clone();
        let inside =
            DelayQueue::start(context, move |_, (request, sender): (IoRequest, CompletionSender)| {
                when_answered(&spawn_in, inner.submit(request), |result| sender.complete(result));
            });
        let link = Rate::new(spec.bytes_per_second);
        let service = RefCell::new(Service { link, last_end_ns: 0, ends_ns: VecDeque::new() });
        Rc::new(Self { info, spec, context: context.clone(), service, inside })
    }
}

/// Bytes that the link transfers in the time of one request under load, in whole blocks, clamped.
fn gap_bytes(spec: &ModelSpec) -> u64 {
    let request_ns = spec.latency_ns / u64::from(spec.queue_depth);
    let bytes = u128::from(spec.bytes_per_second) * u128::from(request_ns) / u128::from(SECOND_NS);
    u64::try_from(bytes).unwrap_or(u64::MAX).min(256 << 10) / 4096 * 4096
}

impl Drive for ModelDrive {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if let Err(error) = request.check(&self.info) {
            return Completion::ready(Err(error));
        }
        let transfer_bytes = match request.operation {
            Operation::Read | Operation::Write { .. } => request.length_bytes,
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => 0,
        };
        let end_ns = self.service.borrow_mut().end_ns(&self.spec, self.context.now_ns(), transfer_bytes);
        let (sender, completion) = completion();
        self.inside.push(end_ns, (request, sender));
        completion
    }
}
