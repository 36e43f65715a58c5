//! Simulated I/Os of modelled drives per second and core: random reads and writes of 4 KiB in a
//! closed loop.
//!
//! The goal is 500,000. A hard disk's scheduler compares every candidate at each choice, so the
//! cost grows with the queue depth. No array and no executor is included in these figures.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use stripewise_drive::SplitMix64;
use stripewise_model::catalogue::{DriveModel, drive};
use stripewise_model::hdd::{Completed, HddOperation, HddQueue, HddRequest};
use stripewise_model::measured::MeasuredQueue;
use stripewise_model::ssd::SsdQueue;

const REQUESTS: u64 = 20_000;

/// A closed loop over either sort of queue.
macro_rules! closed_loop {
    ($queue:expr, $depth:expr) => {{
        let mut queue = $queue;
        let blocks = queue.capacity_bytes() / 4096;
        let mut random = SplitMix64::new(1);
        let mut request = |id: u64| {
            let operation = [HddOperation::Read, HddOperation::Write][random.below(2) as usize];
            HddRequest { id, operation, offset_bytes: random.below(blocks) * 4096, length_bytes: 4096 }
        };
        let mut completed: Vec<Completed> = Vec::new();
        (0..$depth).for_each(|id| queue.submit(0, request(id)));
        let mut done = 0;
        while done < REQUESTS {
            let now_ns = queue.next_event_ns().expect("requests are out");
            queue.advance(now_ns, &mut completed);
            for one in completed.drain(..) {
                done += 1;
                queue.submit(one.at_ns, request($depth + done));
            }
        }
        black_box(queue.next_event_ns())
    }};
}

fn drives(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("model");
    group.throughput(Throughput::Elements(REQUESTS));
    group.sample_size(10).measurement_time(Duration::from_secs(2));
    for name in ["hdd8tb", "nvme"] {
        let entry = drive(name).expect("it is in the catalogue");
        for depth in [1, 32] {
            group.bench_function(format!("{name}-depth-{depth}"), |bencher| match &entry.model {
                DriveModel::Hdd(sheet) => {
                    let parameters = sheet.parameters().expect("the catalogue is checked");
                    let queue = HddQueue::new(&parameters, 1).expect("the catalogue is checked");
                    bencher.iter(|| closed_loop!(queue.clone(), depth))
                }
                DriveModel::Ssd(parameters) => {
                    let queue = SsdQueue::new(parameters, 1).expect("the catalogue is checked");
                    bencher.iter(|| closed_loop!(queue.clone(), depth))
                }
                DriveModel::Measured(parameters) => {
                    let queue = MeasuredQueue::new(parameters).expect("the entry is checked");
                    bencher.iter(|| closed_loop!(queue.clone(), depth))
                }
            });
        }
    }
    group.finish();
}

criterion_group!(benches, drives);
criterion_main!(benches);
