//! A closed loop over one drive: a constant number of outstanding requests, each replaced when it
//! completes.

use stripewise_drive::SplitMix64;
use stripewise_model::hdd::{Completed, HddOperation, HddQueue, HddRequest};

/// Result of a loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    pub bytes: u64,
    pub requests: u64,
    pub elapsed_ns: u64,
    pub latencies_ns: Vec<u64>,
}

impl Delivered {
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.elapsed_ns as f64
    }

    pub fn iops(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns as f64
    }

    pub fn mean_ms(&self) -> f64 {
        self.latencies_ns.iter().sum::<u64>() as f64 / self.latencies_ns.len() as f64 / 1e6
    }
}

/// Keeps `depth` requests out until `requests` are complete; `next` makes them.
pub fn closed_loop(
    queue: &mut HddQueue,
    depth: u64,
    requests: u64,
    mut next: impl FnMut(u64) -> (HddOperation, u64, u64),
) -> Delivered {
    let mut sent = Vec::new();
    let mut submit = |queue: &mut HddQueue, now_ns: u64, sent: &mut Vec<(u64, u64)>| {
        let id = sent.len() as u64;
        let (operation, offset_bytes, length_bytes) = next(id);
        sent.push((now_ns, length_bytes));
        queue.submit(now_ns, HddRequest { id, operation, offset_bytes, length_bytes });
    };
    for _ in 0..depth {
        submit(queue, 0, &mut sent);
    }
    let mut delivered = Delivered { bytes: 0, requests: 0, elapsed_ns: 0, latencies_ns: Vec::new() };
    let mut completed: Vec<Completed> = Vec::new();
    while delivered.requests < requests {
        let now_ns = queue.next_event_ns().expect("requests are out");
        queue.advance(now_ns, &mut completed);
        for done in completed.drain(..) {
            let (sent_ns, length_bytes) = sent[done.id as usize];
            delivered.bytes += length_bytes;
            delivered.requests += 1;
            delivered.elapsed_ns = done.at_ns;
            delivered.latencies_ns.push(done.at_ns - sent_ns);
            submit(queue, done.at_ns, &mut sent);
        }
    }
    delivered
}

/// Offsets aligned to `align` with `length` bytes to go, within the first `span` bytes.
pub fn aligned(random: &mut SplitMix64, span: u64, align: u64, length: u64) -> u64 {
    random.below((span - length) / align + 1) * align
}
